"""Predictions of sigmoid belief nets against enumeration of all states of the hidden units."""

from __future__ import annotations

from itertools import product

import numpy as np
import plain_sigmoid_belief_net as plain
import pytest
from harness import context_of
from models.sigmoid_belief_net import log_evidence, stripes
from models.sigmoid_belief_net import small_sigmoid_belief_net as net
from scipy.special import expit, logit, logsumexp
from sklearn.base import clone

from sklearn_anneal.models.sigmoid_belief_net import of_rows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def fitted(rng):
    X = stripes(rng, 200)
    return net(hidden_layer_sizes=(3, 2), max_iter=40, batch_size=50, tol=0.0).fit(X)


def every_row(d=6):
    return np.array(list(product((0.0, 1.0), repeat=d)))


def test_no_row_has_a_score_above_zero():
    """An estimate of few draws can be above the log probability, which is at most 0."""
    X = every_row()
    start = {"intercepts_init": [np.full(6, 50.0), np.zeros(2)], "coefs_init": [np.zeros((2, 6))]}
    how = {"hidden_layer_sizes": 2, "max_iter": 0, "n_score_samples": 2}
    estimates, scores = [], []
    for seed in range(10):
        fitted = net(**start, **how, random_state=seed).fit(X)
        ctx = context_of(fitted)
        drawn = ctx.model.infer(ctx.q, X[-1:], None, 0, 2)
        log_weights = ctx.model.generated(ctx.q, drawn.values)[0] - drawn.log_q
        estimates.append(logsumexp(log_weights) - np.log(2))
        scores.append(fitted.score_samples(X[-1:])[0])
    assert max(estimates) > 0.0 > min(estimates)
    np.testing.assert_allclose(scores, np.minimum(estimates, 0.0), atol=1e-12)


def test_scores_are_below_log_probabilities_and_approach_them(fitted):
    X = every_row()
    exact = plain.log_likelihoods(context_of(fitted).q, X, (6, 3, 2))
    assert np.exp(exact).sum() == pytest.approx(1.0)
    ctx = context_of(fitted)
    drawn = ctx.model.infer(ctx.q, X, None, 0, 3000)
    log_weights = of_rows(ctx.model.generated(ctx.q, drawn.values)[0] - drawn.log_q, len(X))
    gaps = []
    for n in (1, 10, 100, 3000):
        scores = fitted.set_params(n_score_samples=n).score_samples(X)
        # The scores are those of the first n draws; others are as many independent estimates.
        groups = logsumexp(log_weights.reshape(-1, n, len(X)), axis=1) - np.log(n)
        np.testing.assert_allclose(scores, groups[0], rtol=1e-10)
        gaps.append(np.exp(exact) @ (exact - groups.mean(axis=0)))
    assert gaps[0] > gaps[1] > gaps[2] > gaps[3] > -0.005
    assert gaps[3] < 0.01
    np.testing.assert_allclose(scores, exact, atol=0.6)


def test_expected_weights_are_probabilities(fitted):
    """E w = p(x): the mean of exp(score) over many draws, with a z-test."""
    X = every_row()[[3, 21, 42]]
    ctx = context_of(fitted)
    exact = np.exp(plain.log_likelihoods(ctx.q, X, (6, 3, 2)))
    drawn = ctx.model.infer(ctx.q, X, None, 0, 20_000)
    log_p, _ = ctx.model.generated(ctx.q, drawn.values)
    w = np.exp(log_p - drawn.log_q).reshape(-1, 3)
    z = (w.mean(axis=0) - exact) / (w.std(axis=0) / np.sqrt(len(w)))
    assert np.abs(z).max() < 4


def test_scores_depend_on_nothing_but_the_row(fitted, rng):
    X = stripes(rng, 600)
    scores = fitted.score_samples(X)
    np.testing.assert_allclose(fitted.score_samples(X[::-1])[::-1], scores, rtol=1e-10)
    np.testing.assert_allclose(fitted.score_samples(X[5:6]), scores[5:6], rtol=1e-10)
    weights = rng.uniform(size=600)
    expected = np.average(scores, weights=weights)
    assert fitted.score(X, sample_weight=weights) == pytest.approx(expected)
    repeated = np.array([fitted.score(X), fitted.score(X)])
    assert repeated[0] == repeated[1] == pytest.approx(scores.mean())


def test_activations_are_those_of_the_recognition_network(fitted):
    X = every_row()
    q, hidden = context_of(fitted).q, plain.states((6, 3, 2))
    first = fitted.transform(X)
    np.testing.assert_allclose(first, expit(X @ q["V1"].T + q["a1"]))
    exact = [np.exp(plain.log_recognition(q, x, hidden)) for x in X]
    np.testing.assert_allclose(first, exact @ hidden[0], rtol=1e-10)
    second = fitted.set_params(n_score_samples=2000).transform(X, layer=2)
    np.testing.assert_allclose(second, exact @ hidden[1], atol=0.03)
    assert list(fitted.get_feature_names_out()) == [
        f"annealedsigmoidbeliefnet{i}" for i in range(3)
    ]
    for layer in (0, 3, 1.5, "top"):
        with pytest.raises(ValueError, match="layer should be an integer from 1 to 2"):
            fitted.transform(X, layer=layer)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature_of_activations_divides_log_odds(temperature, fitted):
    """No other prediction depends on it, and a fit neither."""
    X = every_row()
    q, hidden = context_of(fitted).q, plain.states((6, 3, 2))
    before = fitted.score_samples(X), fitted.reconstruct(X)
    means = fitted.transform(X)
    fitted.set_params(transform_temperature=temperature, n_score_samples=2000)
    first = fitted.transform(X)
    np.testing.assert_allclose(logit(first), logit(means) / temperature, rtol=1e-10)
    # Layers below the one that is returned keep their distribution.
    exact = np.array([np.exp(plain.log_recognition(q, x, hidden)) for x in X])
    of_units = expit((hidden[0] @ q["V2"].T + q["a2"]) / temperature)
    np.testing.assert_allclose(fitted.transform(X, layer=2), exact @ of_units, atol=0.03)
    fitted.set_params(n_score_samples=100)
    for old, new in zip(before, (fitted.score_samples(X), fitted.reconstruct(X)), strict=True):
        np.testing.assert_array_equal(old, new)
    again = clone(fitted).set_params(n_score_samples=2).fit(X)
    other = clone(again).set_params(transform_temperature=1.0).fit(X)
    assert again.lower_bound_ == other.lower_bound_


def test_reconstructions_are_posterior_predictive_means(fitted):
    X = every_row()
    q, hidden = context_of(fitted).q, plain.states((6, 3, 2))
    means = expit(hidden[0] @ q["W1"] + q["b0"])
    exact = [np.exp(plain.log_recognition(q, x, hidden)) @ means for x in X]
    found = fitted.set_params(n_score_samples=2000).reconstruct(X)
    np.testing.assert_allclose(found, exact, atol=0.03)


def test_samples_have_the_frequencies_of_the_net(fitted):
    n = 20_000
    X, hidden = fitted.sample(n)
    assert X.shape == (n, 6) and [h.shape for h in hidden] == [(n, 3), (n, 2)]
    p = np.exp(plain.log_likelihoods(context_of(fitted).q, every_row(), (6, 3, 2)))
    counts = np.bincount((X @ 2 ** np.arange(5, -1, -1)).astype(int), minlength=64)
    expected = n * p
    often = expected > 5
    chi2 = ((counts - expected)[often] ** 2 / expected[often]).sum()
    assert chi2 < often.sum() + 5 * np.sqrt(2 * often.sum())
    conditional = expit(hidden[1] @ fitted.coefs_[1] + fitted.intercepts_[1])
    z = (hidden[0] - conditional).sum(axis=0) / np.sqrt(
        (conditional * (1 - conditional)).sum(axis=0)
    )
    assert np.abs(z).max() < 4
    with pytest.raises(ValueError, match="n_samples"):
        fitted.sample(0)


def test_predictions_keep_the_dtype(rng):
    X = stripes(rng, 40)
    single = net().fit(X.astype(np.float32))
    for dtype in (np.float32, np.float64):
        assert single.transform(X.astype(dtype)).dtype == dtype
        assert single.transform(X.astype(dtype), layer=2).dtype == dtype
        assert single.reconstruct(X.astype(dtype)).dtype == dtype
    assert single.score_samples(X).dtype == np.float64
    np.testing.assert_allclose(
        single.score_samples(X), single.score_samples(X.astype(np.float32)), rtol=1e-6
    )


def test_log_evidence_of_the_entry_is_that_of_all_rows(fitted):
    X = every_row()
    total = plain.log_likelihoods(context_of(fitted).q, X, (6, 3, 2)).sum()
    assert log_evidence(fitted, X) == pytest.approx(total)
