"""Measurements of Gaussian mixtures: what is compared is the same, and pages are complete."""

from __future__ import annotations

import re

import numpy as np
import pytest
from peer_priors import PEER_OF_MIXTURES

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def test_splits_are_disjoint_and_complete():
    from benchmarks.gaussian_mixture import data

    X = np.arange(40.0).reshape(20, 2)
    train, held_out = data.Task("rows", "", X, 2).split(0)
    assert len(train) == 15
    np.testing.assert_array_equal(np.sort(np.vstack([train, held_out]), axis=0), X)


def test_a_quick_run_writes_every_section_that_needs_no_file(monkeypatch, tmp_path):
    from benchmarks.common import data
    from benchmarks.gaussian_mixture import reproduce

    monkeypatch.setenv(data.VARIABLE, str(tmp_path))
    page = tmp_path / "page.md"
    reproduce.main(["--quick", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("Verdicts", 'digits "0"', "Objective", "Four clusters", "Two Gaussians", "Forms"):
        assert part in text
    assert "A quick run" in text
    assert "nan" not in text


def test_sections_on_data_files_are_written_where_the_files_are():
    from benchmarks.common import data, report
    from benchmarks.gaussian_mixture import experiments, plan

    if not data.available("mnist.npz", "pima.npz"):
        pytest.skip(f"mnist.npz and pima.npz are not where {data.VARIABLE} says")
    page = report.Page()
    experiments.section_gultekin(page, plan.QUICK)
    experiments.section_objective(page, plan.QUICK)
    assert any("Pima, K = 2" in line for line in page.lines)
    assert {"Gultekin et al. 2015", "Paisley et al. (SVI+)"} == {c.source for c in page.claims}


def test_a_quick_run_does_not_replace_the_full_page(capsys):
    from benchmarks.gaussian_mixture import reproduce

    with pytest.raises(SystemExit):
        reproduce.main(["--quick"])
    assert "--output" in capsys.readouterr().err


def test_a_quick_run_of_the_speed_of_mixtures_needs_no_file(no_data, quick_speed):
    text = quick_speed("gaussian_mixture")
    parts = ("Time per pass", "annealing costs", "ten restarts", "Two jobs", "Where the time")
    for part in (*parts, "learning the priors"):
        assert part in text
    assert "A quick run" in text
    assert "gaussian_mixture.speed --write" in text
    assert not re.search(r"\bnan\b", text)


@pytest.mark.parametrize("factorization", ["joint", "independent"])
def test_passes_with_and_without_learning_have_the_same_bound(factorization):
    from benchmarks.gaussian_mixture import speed, workload

    X = workload.blobs(500, 3)
    contexts = speed.learning(X, 3, factorization)
    ends = {name: speed.single_pass(ctx, X)() for name, ctx in contexts.items()}
    before, fixed = ends["learned"].trace.initial, ends["fixed"].trace.initial
    assert before == pytest.approx(fixed, rel=1e-10)
    # One of them learns in its pass, the other does not, and neither changes where both began.
    q, moved = contexts["learned"].q, ends["learned"].ctx.prior
    assert contexts["fixed"].q is q
    assert any(not np.array_equal(moved[key], contexts["learned"].prior[key]) for key in moved)
    assert ends["fixed"].ctx.prior is contexts["fixed"].prior


def test_without_its_file_a_section_on_restarts_is_left_out(no_data, capsys):
    from benchmarks.gaussian_mixture import speed, workload

    lines = speed.measure_restarts(workload.FULL)
    assert any("Left out: mnist.npz" in line for line in lines)
    assert "mnist.npz" in capsys.readouterr().err


def test_bounds_of_both_libraries_are_complete():
    from sklearn.mixture import BayesianGaussianMixture

    from benchmarks.gaussian_mixture import speed
    from sklearn_anneal import AnnealedBayesianGaussianMixture

    X = np.random.default_rng(0).standard_normal((200, 3))
    params = {
        "n_components": 2,
        "weight_concentration_prior_type": "dirichlet_distribution",
        "max_iter": 2000,
        "random_state": 0,
    }
    theirs = BayesianGaussianMixture(**params, tol=1e-9).fit(X)
    ours = AnnealedBayesianGaussianMixture(
        **PEER_OF_MIXTURES, **params, annealing="none", tol=1e-12
    ).fit(X)
    np.testing.assert_allclose(speed.complete_bound(theirs, X), ours.lower_bound_, rtol=1e-4)
