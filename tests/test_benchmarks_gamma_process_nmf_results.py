"""Results of gamma-process factorisation: what is counted is what the page says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.stats import poisson

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def test_components_count_as_found_in_any_order_and_once():
    from benchmarks.gamma_process_nmf import data

    truth = np.random.default_rng(0).gamma(0.1, size=(6, 40))
    assert data.n_recovered(truth[::-1] * np.arange(1.0, 7.0)[:, None], truth) == 6
    assert data.n_recovered(truth[[0, 0, 1]], truth) == 2
    assert data.n_recovered(np.ones((6, 40)), truth) == 0


def test_the_score_of_other_models_is_that_of_our_own_estimator():
    from benchmarks.gamma_process_nmf import fits
    from sklearn_anneal import AnnealedGammaProcessNMF

    X = np.random.default_rng(0).poisson(2.0, size=(40, 7))
    nmf = AnnealedGammaProcessNMF(3, annealing="none", max_iter=5, random_state=0)
    with pytest.warns(match="did not converge"):
        nmf.fit(X)

    def rates(half):
        # Half of a row was counted for half of the time.
        ctx = nmf._inference.ctx
        units = nmf._make_units(half.toarray().astype(float), None)
        return 0.5 * nmf._infer(ctx, units, exposure=0.5) @ nmf.components_

    assert fits.log_predictive(X, rates) == pytest.approx(nmf.score(X), abs=1e-10)


def test_the_score_is_that_of_poisson_distributions():
    from benchmarks.gamma_process_nmf import fits
    from sklearn_anneal.metrics import split_documents

    X = csr_matrix(np.random.default_rng(1).poisson(3.0, size=(10, 4)))
    held_out = split_documents(X)[1].toarray()
    expected = poisson(1.5).logpmf(held_out).mean()
    assert fits.log_predictive(X, lambda half: np.full(half.shape, 1.5)) == pytest.approx(expected)


def test_consensus_finds_clear_components():
    from benchmarks.gamma_process_nmf import data, fits

    rng = np.random.default_rng(0)
    components = np.kron(np.eye(3), np.ones((1, 4))) * 10
    X = rng.poisson(rng.gamma(0.5, size=(60, 3)) @ components).astype(float)
    found = fits.consensus(X, 3, 0, n_replicates=4)
    assert data.n_recovered(found, components) == 3


def test_verdicts_on_recovered_components_follow_from_the_counts():
    from benchmarks.gamma_process_nmf import claims, plan

    counts = {(5.0, plan.VI): 20, (5.0, plan.STRUCTURED): 30, (50.0, plan.VI): 43}
    counts |= {(50.0, plan.POWER): 46, (50.0, plan.STRUCTURED): 45}
    drawn = {
        (mean, name): {
            "recovered": np.arange(10.0) / 100 + counts.get((mean, name), 10),
            "bound": np.arange(10.0) + 100 * (name == plan.DEFAULT),
            "seconds": np.ones(10),
        }
        for mean in (5.0, 50.0)
        for name in plan.methods()
    }

    def verdicts():
        return [claim.verdict for claim in claims.claims(claims.Found(drawn=drawn))]

    assert verdicts() == ["reproduced"] * 5 + ["yes", "no"]
    drawn[50.0, plan.POWER]["recovered"] += 3
    drawn[5.0, plan.STRUCTURED]["recovered"] -= 15
    assert verdicts()[0] == "partly"
    assert verdicts()[2] == verdicts()[4] == "not reproduced"
