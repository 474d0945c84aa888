"""Tests of hidden Markov models beside hmmlearn."""

from __future__ import annotations

import numpy as np
import pytest
from cases_hidden_markov import V, draw, small, with_priors
from harness import attributes_of, one_update, open_run
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment

from sklearn_anneal import AnnealedHMM

# hmmlearn


def twin_of(est, attributes, n_iter):
    """hmmlearn's estimator with the priors and the start of ours."""
    vhmm = pytest.importorskip("hmmlearn.vhmm")
    # A tolerance of minus infinity never stops it.
    how = {"n_iter": n_iter, "tol": -np.inf, "init_params": ""}
    names = ["startprob", "transmat"]
    if est.emission == "categorical":
        twin = vhmm.VariationalCategoricalHMM(est.n_components, n_features=V, **how)
        names += ["emissionprob"]
    else:
        twin = vhmm.VariationalGaussianHMM(
            est.n_components, covariance_type=est.covariance_type, **how
        )
        names += ["means", "beta", "dof", "scale"]
    for name in names:
        for which in ("prior", "posterior"):
            value = np.array(attributes[f"{name}_{which}_"])
            if name == "dof" and est.covariance_type == "tied":
                value = float(value)
            setattr(twin, f"{name}_{which}_", value)
    return twin


def bounds_of_both(est, sequences, n_iter):
    """The bounds before each of the first updates, ours and hmmlearn's, and its parameters.

    hmmlearn drops the constant −D/2 log 2π of each Gaussian frame; it is put back.
    """
    ctx, method, units = open_run(est, sequences)
    twin = twin_of(est, attributes_of(est, ctx), n_iter)
    ours = []
    for _ in range(n_iter):
        q = ctx.q
        seen = one_update(ctx, method, units)
        ours.append(seen.step.bound - ctx.model.kl(q, ctx.prior))
    X = np.concatenate(sequences)
    twin.fit(X.astype(int) if est.emission == "categorical" else X, [len(s) for s in sequences])
    theirs = np.array(twin.monitor_.history)
    if est.emission == "gaussian":
        theirs -= 0.5 * X.size * np.log(2 * np.pi)
    return np.array(ours), theirs, twin, attributes_of(est, ctx)


# Its history has as many bounds as its monitor keeps.
COMPARED = 8


@pytest.mark.parametrize("priors", ["default", "given"])
@pytest.mark.parametrize(
    ("variant", "n_components"),
    [
        *((v, k) for v in ("categorical", "gaussian-full", "gaussian-diag") for k in (2, 4)),
        ("gaussian-spherical", 3),
        # Its tied model is another one than scikit-learn's mixtures and ours: one precision
        # matrix that all states share, whose Wishart counts all frames and enters the bound
        # once. Ours are K precision matrices whose q(Λ_k) share a scale matrix. With one state
        # these are the same.
        ("gaussian-tied", 1),
    ],
)
def test_bound_is_that_of_hmmlearn_pass_by_pass(variant, n_components, priors, rng):
    sequences = draw(variant, rng, [40, 25, 1, 60, 2])
    make = with_priors if priors == "given" else small
    est = make(variant, n_components, tol=0.0, max_iter=COMPARED - 1)
    ours, theirs, twin, attributes = bounds_of_both(est, sequences, COMPARED)
    assert len(theirs) == COMPARED
    assert_allclose(ours, theirs, rtol=1e-8)
    if n_components > 1:
        assert theirs[-1] > theirs[0] + 1
    for name in ("startprob_posterior_", "transmat_posterior_", "emissionprob_posterior_"):
        if name in attributes:
            assert_allclose(attributes[name], getattr(twin, name), rtol=1e-7, err_msg=name)
    if est.emission == "gaussian":
        for name in ("means_posterior_", "beta_posterior_", "dof_posterior_", "scale_posterior_"):
            assert_allclose(
                attributes[name], getattr(twin, name), rtol=1e-7, atol=1e-8, err_msg=name
            )
    # The history of a fit begins after the first update.
    assert_allclose(est.fit(sequences).lower_bounds_, theirs[1:], rtol=1e-8)


def test_tied_states_are_not_those_of_hmmlearn(rng):
    """Two models, each with its own bound: what the comment above says, so that it stays true."""
    sequences = draw("gaussian-tied", rng, [40, 30])
    ours, theirs, *_ = bounds_of_both(small("gaussian-tied", 3), sequences, 3)
    assert np.all(np.abs(ours - theirs) > 0.1)


@pytest.mark.parametrize("variant", ["categorical", "gaussian-full", "gaussian-tied"])
def test_predictions_are_those_of_hmmlearn_at_the_mean_parameters(variant, rng):
    hmm = pytest.importorskip("hmmlearn.hmm")
    sequences = draw(variant, rng, [30, 1, 20])
    est = small(variant, 3, predictive=False).fit(sequences)
    if variant == "categorical":
        twin = hmm.CategoricalHMM(3, n_features=V)
        twin.emissionprob_ = est.emissionprob_
    else:
        twin = hmm.GaussianHMM(3, covariance_type=est.covariance_type)
        twin.means_, twin.covars_ = est.means_, est.covars_
    twin.startprob_, twin.transmat_ = est.startprob_, est.transmat_
    X, lengths = np.concatenate(sequences), [30, 1, 20]
    X = X.astype(int) if variant == "categorical" else X
    assert est.score(sequences) * len(X) == pytest.approx(twin.score(X, lengths), rel=1e-9)
    assert_array_equal(est.predict(sequences), twin.predict(X, lengths))
    assert_allclose(est.predict_proba(sequences), twin.predict_proba(X, lengths), atol=1e-9)


# hmmlearn's published examples, with data drawn here

DICE = np.array([[1 / 6] * 6, [1 / 10] * 5 + [1 / 2]])
SWITCHES = np.array([[0.95, 0.05], [0.1, 0.9]])


def matched(found, expected):
    """The order of the found rows that is nearest to the expected ones."""
    distances = np.abs(np.asarray(found)[None] - np.asarray(expected)[:, None])
    return linear_sum_assignment(distances.reshape(len(expected), len(found), -1).sum(axis=2))[1]


def test_dishonest_casino_is_found_out():
    """Which rolls were of the loaded die, and how it is loaded; plain inference does not see it."""
    rng = np.random.default_rng(513)
    n = 20_000
    z = np.zeros(n, dtype=int)
    for t in range(1, n):
        z[t] = rng.random() < SWITCHES[z[t - 1], 1]
    rolls = (rng.random(n)[:, None] > np.cumsum(DICE, axis=1)[z]).sum(axis=1).clip(max=5)
    plainly, est = (
        small("categorical", n_symbols=6, annealing=name, max_iter=500).fit(rolls[:, None])
        for name in ("none", "stochastic")
    )
    assert est.lower_bound_ > plainly.lower_bound_ + 50
    order = matched(est.emissionprob_, DICE)
    assert_allclose(est.emissionprob_[order], DICE, atol=0.03)
    assert_allclose(est.transmat_[np.ix_(order, order)], SWITCHES, atol=0.03)
    found = np.argsort(order)[est.predict(rolls[:, None])]
    # No model can predict the rolls better than the true parameters do.
    hmm = pytest.importorskip("hmmlearn.hmm").CategoricalHMM(2)
    hmm.startprob_, hmm.transmat_, hmm.emissionprob_ = np.array([1.0, 0.0]), SWITCHES, DICE
    by_truth = np.mean(hmm.predict(rolls[:, None]) == z)
    assert by_truth > 0.75
    assert np.mean(found == z) > by_truth - 0.01


MEANS = np.array([-1.5, 0.0, 1.5, 3.0])
MOVES = np.array([[0.3, 0.4, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.5, 0.2, 0.1, 0.2],
                  [0.25, 0.25, 0.25, 0.25]])  # fmt: skip


def test_bound_chooses_the_four_states_of_the_variational_tutorial():
    """Four Gaussians of deviation 1/4 whose order tells little; hmmlearn's bound says four."""
    rng = np.random.default_rng(1984)
    n = 1000
    z = np.empty(n, dtype=int)
    z[0] = rng.integers(4)
    for t in range(1, n):
        z[t] = rng.choice(4, p=MOVES[z[t - 1]])
    X = (MEANS[z] + 0.25 * rng.standard_normal(n))[:, None]
    bounds, models = {}, {}
    for k in (3, 4, 6):
        models[k] = AnnealedHMM(
            k, scale_prior=1e-3 * np.eye(1), random_state=0,
        ).fit(X)  # fmt: skip
        bounds[k] = models[k].lower_bound_
    assert max(bounds, key=bounds.get) == 4
    best = models[4]
    order = matched(best.means_, MEANS[:, None])
    assert_allclose(best.means_[order, 0], MEANS, atol=0.06)
    # The prior's one frame at the mean of all makes the outer states wider.
    assert_allclose(np.sqrt(best.covars_[order].ravel()), 0.25, atol=0.08)
    assert_allclose(best.transmat_[np.ix_(order, order)], MOVES, atol=0.09)
    assert np.mean(np.argsort(order)[best.predict(X)] == z) > 0.98
    # Of six states the model gives up the two that are not needed.
    assert models[6].n_effective_components_ >= 4
