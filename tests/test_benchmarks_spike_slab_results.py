"""Results of spike-and-slab factors: what is measured is what the page says."""

from __future__ import annotations

import numpy as np
import pytest

from sklearn_anneal.annealing import ANNEALING

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def random_parameters(rng, X):
    from benchmarks.spike_slab_factor_analysis.starts import BernoulliFactors

    q = BernoulliFactors().start(rng.standard_normal((3, X.shape[1])), len(X))
    return {key: value + 0.5 * rng.standard_normal(value.shape) for key, value in q.items()}


def test_gradients_of_bernoulli_factors_are_finite_differences(rng):
    from benchmarks.spike_slab_factor_analysis import starts

    X = rng.standard_normal((8, 5))
    q, model = random_parameters(rng, X), starts.BernoulliFactors()
    step = model.visit(q, None).step(starts.Rows(X))
    (constraint,) = step.constraints
    of_kl = model.kl_gradient(q, {})

    def entropy(q):
        return float(model.visit(q, None).step(starts.Rows(X)).constraints[0].value["logits"])

    for key, value in q.items():
        direction, size = rng.standard_normal(value.shape), 1e-6
        after, before = ({**q, key: value + sign * size * direction} for sign in (1, -1))
        slope = (starts.lower_bound(after, X) - starts.lower_bound(before, X)) / (2 * size)
        found = step.statistics[key] - of_kl.get(key, 0.0)
        assert slope == pytest.approx((found * direction).sum(), rel=1e-5, abs=1e-6)
        slope = (entropy(after) - entropy(before)) / (2 * size)
        found = constraint.gradient.get(key, np.zeros(value.shape))
        assert slope == pytest.approx((found * direction).sum(), rel=1e-5, abs=1e-6)


def test_bound_of_bernoulli_factors_is_below_the_evidence_of_one_column(rng):
    """One column and one factor: the mean is integrated out by hand, for every state of z."""
    from itertools import product

    from scipy.special import expit, logsumexp
    from scipy.stats import multivariate_normal

    from benchmarks.spike_slab_factor_analysis import starts

    X = rng.standard_normal((5, 1))
    model, plain = starts.BernoulliFactors(), ANNEALING["none"]()
    q = starts.climb(X, np.array([[1.0]]), plain, 200)
    p = float(expit(q["prior_logits"][0]))
    terms = []
    for z in product((0.0, 1.0), repeat=5):
        z = np.array(z)
        prior = (z * np.log(p) + (1 - z) * np.log1p(-p)).sum()
        covariance = np.eye(5) + np.outer(z, z)
        terms.append(prior + multivariate_normal.logpdf(X[:, 0], np.zeros(5), covariance))
    assert starts.lower_bound(q, X) <= logsumexp(terms)
    first = starts.lower_bound(model.start(np.array([[1.0]]), 5), X)
    assert starts.lower_bound(q, X) > first


def test_figures_of_loadings_know_neither_order_nor_sign_nor_length(rng):
    from benchmarks.spike_slab_factor_analysis import data, fits

    _, loadings = data.drawn(data.BOTH, 10, 0)
    found = np.vstack([-3.0 * loadings[::-1], np.zeros((2, data.N_COLUMNS))])
    figures = fits.compared(found, loadings)
    assert figures["cosine"] == pytest.approx(1.0)
    assert figures["recovered"] == data.N_FACTORS and figures["support"] == pytest.approx(1.0)
    assert fits.compared(found[:4], loadings)["recovered"] == 4
    noise = fits.compared(rng.standard_normal(loadings.shape), loadings)
    assert noise["cosine"] < 0.5 and noise["recovered"] == 0
    means = rng.standard_normal((4, 6))
    assert fits.distance(means[[2, 0, 3, 1]], means) == 0
    assert fits.distance(means + 2.0, means) == pytest.approx(2 * np.sqrt(24))


def test_held_out_rows_are_in_units_of_those_that_are_fitted():
    from benchmarks.spike_slab_factor_analysis import data

    for name in (data.DIGITS, data.CANCER, data.WINE):
        train, test = data.split(name, 0)
        np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(train.std(axis=0), 1)
        assert len(test) == pytest.approx((len(train) + len(test)) / 4, abs=1)


def test_verdicts_on_starts_follow_from_the_errors():
    from benchmarks.spike_slab_factor_analysis import claims, plan

    def record(error):
        return {"error": np.full(3, error)}

    starts = {(plan.STEEP, None): record(2.6)}
    for distance, error in ((0.0, 6.2), (20.0, 22.0)):
        starts[plan.BY_GRADIENTS, distance] = record(error)
        starts[plan.PROXIMITY, distance] = record(6.4)

    def verdicts():
        return [claim.verdict for claim in claims.claims(claims.Found(starts=starts))]

    assert verdicts() == ["reproduced", "reproduced", "reproduced", "yes"]
    starts[plan.PROXIMITY, 20.0] = record(13.0)
    assert verdicts() == ["reproduced", "not reproduced", "partly", "yes"]
    starts[plan.BY_GRADIENTS, 20.0] = record(6.2)
    starts[plan.STEEP, None] = record(9.0)
    assert verdicts() == ["not reproduced", "not reproduced", "partly", "no"]
