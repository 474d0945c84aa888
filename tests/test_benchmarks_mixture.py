"""Measurements of mixtures of binary columns and categories: what is compared is the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def test_a_quick_run_of_the_speed_of_these_mixtures(no_data, quick_speed):
    pytest.importorskip("stepmix")
    text = quick_speed("mixture")
    for part in ("Time per pass", "Memory", "annealing costs"):
        assert part in text
    assert "A quick run" in text
    assert not re.search(r"\bnan\b", text)


def test_without_stepmix_ours_is_still_measured(no_data, quick_speed, monkeypatch, capsys):
    from benchmarks.mixture import speed

    monkeypatch.setattr(speed, "StepMix", None)
    text = quick_speed("mixture", "passes")
    assert "four categories" in text
    assert not re.search(r"\bnan\b", text)
    assert "pip install stepmix" in capsys.readouterr().err


def test_without_stepmix_its_fits_are_left_out(no_data, monkeypatch):
    from benchmarks.mixture import plan

    monkeypatch.setattr(plan, "StepMix", None)
    assert {cell[-1] for cell in plan.survey_cells(plan.QUICK)} >= {plan.VI}
    assert plan.EM not in {cell[-1] for cell in plan.survey_cells(plan.QUICK)}


def test_drawn_surveys_have_as_many_distinct_rows_as_they_say():
    from benchmarks.mixture import workload

    (case,) = [case for case in workload.FULL.cases if case.n_distinct]
    X = workload.draw(case, 2000)
    assert len(np.unique(X, axis=0)) == case.n_distinct
    (case,) = [case for case in workload.FULL.cases if case.missing]
    assert np.isnan(workload.draw(case, 2000)).mean() == pytest.approx(case.missing, abs=0.01)


def test_log_probabilities_of_the_truth_sum_to_one(rng):
    from benchmarks.mixture import data

    truth = data.Truth(rng.dirichlet(np.ones(3)), rng.random((3, 4)))
    every = np.array(np.meshgrid(*[[0, 1]] * 4)).reshape(4, -1).T
    assert np.exp(truth.log_probability(every)).sum() == pytest.approx(1.0)


def test_predictive_probabilities_of_the_sampler_sum_to_one(rng):
    from benchmarks.mixture.gibbs import CollapsedGibbs

    X = (rng.random((30, 4)) < 0.5).astype(np.int8)
    sampler = CollapsedGibbs(3, 0.5, n_sweeps=2).fit(X)
    every = np.array(np.meshgrid(*[[0, 1]] * 4)).reshape(4, -1).T
    assert np.exp(sampler.score_samples(every)).sum() == pytest.approx(1.0)
    assert sampler.n_effective_components_ == len(np.unique(sampler.labels_))


def test_the_sampler_visits_assignments_as_often_as_the_posterior_says(rng):
    from itertools import product

    from scipy.special import gammaln

    from benchmarks.mixture.gibbs import CollapsedGibbs

    X, alpha = np.array([[0, 0], [0, 1], [1, 1]]), 0.7

    def log_joint(z):
        total = 0.0
        for k in range(2):
            rows = X[np.array(z) == k]
            n, ones = len(rows), rows.sum(axis=0)
            total += gammaln(n + alpha)
            total += (gammaln(ones + 1) + gammaln(n - ones + 1) - gammaln(n + 2)).sum()
        return total

    every = list(product(range(2), repeat=3))
    p = np.exp([log_joint(z) for z in every])
    draws = [
        tuple(CollapsedGibbs(2, alpha, n_sweeps=4, random_state=seed).fit(X).labels_)
        for seed in range(1500)
    ]
    share = np.array([draws.count(z) for z in every]) / len(draws)
    np.testing.assert_allclose(share, p / p.sum(), atol=0.05)


def test_em_never_falls_and_ends_where_stepmix_ends():
    stepmix = pytest.importorskip("stepmix")
    from benchmarks.mixture import data, fits

    X = data.table("drawn survey").X
    peer = stepmix.StepMix(
        2, measurement="categorical", random_state=0, abs_tol=1e-12, progress_bar=0, max_iter=5000
    ).fit(X.astype(float))
    pis = peer.get_parameters()["measurement"]["pis"].reshape(2, X.shape[1], -1)
    start, end = fits.em(X, peer.weights_, [pis[:, c] for c in range(X.shape[1])])
    assert start == pytest.approx(len(X) * peer.score(X.astype(float)), rel=1e-9)
    assert start - 1e-9 <= end <= start + 1e-3


def test_purity_is_the_share_of_the_most_frequent_class():
    from benchmarks.mixture.fits import purity

    assert purity(np.array([0, 0, 1, 1, 1]), np.array([0, 0, 0, 1, 1])) == pytest.approx(0.8)


def test_documented_maxima_are_of_the_tables_that_are_read():
    from benchmarks.common import data as common
    from benchmarks.mixture import data, fits
    from benchmarks.mixture.claims import DOCUMENTED

    if not common.available(data.SURVEYS):
        pytest.skip(f"{data.SURVEYS} is not where {common.VARIABLE} says")
    for name, k in (("values", 2), ("gss82", 2), ("cheating", 2)):
        spec = fits.Spec(name, k, parameters=fits.FLAT_PRIORS, polish=True)
        best = max(seeded.run()["em"] for seeded in spec.seeded(4))
        assert best == pytest.approx(DOCUMENTED[name, k], abs=1e-2)
