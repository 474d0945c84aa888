"""Moves of the parts of gamma-process factorisation."""

from __future__ import annotations

import numpy as np
import pytest
from harness import context_of, units_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, csr_matrix

from sklearn_anneal import AnnealedGammaProcessNMF
from sklearn_anneal.datasets import make_gamma_process_nmf
from sklearn_anneal.models import _count_search
from sklearn_anneal.models._count_moves import (
    Explained,
    best_division,
    divided,
    excesses,
    given_up,
    most_alike,
    sought,
)

KINDS = ["dense", "sparse", "missing"]


def rows(kind="dense", n=120, k=4, seed=0):
    """Counts of four parts that are apart, and the parts."""
    X, _, truth = make_gamma_process_nmf(
        n, 30, n_components=k, mean_count=2.0, activation_prior=0.3, component_prior=0.2,
        random_state=seed,
    )  # fmt: skip
    if kind == "sparse":
        return csr_matrix(X), truth.components
    if kind == "missing":
        X = X.astype(float)
        X[np.random.default_rng(seed).random(X.shape) < 0.15] = np.nan
    return X, truth.components


def cosines(components, truth):
    """The cosine of each true part with the component that is most like it."""
    a, b = (
        part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-300)
        for part in (components, truth)
    )
    return (b @ a.T).max(axis=1)


def state(X, start, **params):
    """The model, its data and parameters after one plain pass from given components."""
    given = {"components_init": start, "max_iter": 1, "annealing": "none", "random_state": 0}
    est = AnnealedGammaProcessNMF(len(start), **given | params).fit(X)
    ctx = context_of(est)
    return est, ctx, units_of(est, X)


def explained(counts, activations, parts, weights=None, observed=None):
    weights = np.ones(len(activations)) if weights is None else weights
    return Explained(csr_array(counts), observed, weights, activations, parts)


def test_losses_are_those_of_the_log_likelihood_without_a_part(rng):
    """Each part explains the counts in proportion to what it expects."""
    activations, parts = rng.gamma(1.0, size=(6, 3)), rng.gamma(1.0, size=(3, 5))
    rates = activations @ parts
    counts, weights = rng.poisson(rates) * 1.0, rng.integers(1, 4, 6).astype(float)
    for k, loss in enumerate(explained(counts, activations, parts, weights).losses()):
        rest = rates - np.outer(activations[:, k], parts[k])
        own = counts * (1.0 - rest / rates)
        lost = counts * np.log(rates / np.maximum(rest, 1e-3 * rates)) - own
        assert loss == pytest.approx((weights @ lost).sum())


def test_counts_of_parts_add_up_to_the_counts(rng):
    activations, parts = rng.gamma(1.0, size=(6, 3)), rng.gamma(1.0, size=(3, 5))
    counts = rng.poisson(2.0, (6, 5)) * 1.0
    found = explained(counts, activations, parts)
    assert_allclose(sum(found.counts_of(k).toarray() for k in range(3)), counts)


def test_the_part_that_explains_least_is_given_up_most_often():
    losses = np.array([500.0, 5.0, 300.0, 400.0])
    chosen = [given_up(losses, np.random.default_rng(i), True) for i in range(50)]
    assert np.bincount(chosen, minlength=4)[1] > 40
    drawn = [given_up(losses, np.random.default_rng(i), False) for i in range(50)]
    assert set(drawn) == {0, 1, 2, 3}


def test_counts_of_two_profiles_are_divided_and_those_of_one_promise_little(rng):
    """Rows of weight 0 have another profile, which no half has."""
    profiles = rng.dirichlet(np.full(20, 0.3), 3)
    of_row = np.repeat([0, 1, 2], 40)
    counts = rng.poisson(30.0 * profiles[of_row]).astype(float)
    # The quotients of the second table are sparse.
    wide = np.hstack([counts, np.zeros((120, 100))])
    for table in (counts, wide):
        activations, parts = np.ones((120, 1)), np.ones((1, table.shape[1]))
        weights = (of_row < 2).astype(float)
        known = explained(table, activations, parts, weights)
        assert isinstance(known.quotients, np.ndarray) == (table is counts)
        (halves,), (gain,) = divided(known, np.array([0]), rng)
        assert_allclose(halves.sum(axis=0), weights @ table)
        assert cosines(halves[:, :20], profiles[:2]).min() > 0.99
        alone = explained(table, activations, parts, (of_row == 0).astype(float))
        _, (of_one,) = divided(alone, np.array([0]), rng)
        assert gain > 20 * max(of_one, 1.0)
        assert best_division(explained(0.0 * table, activations, parts), 1, rng) is None


def test_parts_are_divided_together_as_they_are_alone(rng):
    """The halves of a part add up to what it explains, whatever other parts are divided."""
    activations, parts = rng.gamma(0.5, size=(60, 4)), rng.gamma(0.3, size=(4, 12))
    counts, weights = rng.poisson(20.0 * activations @ parts) * 1.0, rng.uniform(0.5, 2.0, 60)
    known = explained(counts, activations, parts, weights)
    numbers = np.array([0, 2, 3])
    halves, gains = divided(known, numbers, rng)
    for k, own in zip(numbers, halves, strict=True):
        assert_allclose(own.sum(axis=0), known.counts_of(k).T @ weights)
    assert_allclose(known.totals.sum(), weights @ counts.sum(axis=1))
    assert gains.shape == (3,)
    other, own, gain = best_division(known, 1, rng)
    assert other in numbers
    assert_allclose(own.sum(axis=0), known.counts_of(other).T @ weights)
    assert gain > 0


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_part_is_found_in_what_others_leave(missing, rng):
    """Rows of weight 0 have another part, which is not found."""
    parts = rng.gamma(0.3, 1.0, (3, 25)) + 1e-3
    activations = rng.gamma(0.3, 3.0, (300, 3))
    weights = (np.arange(300) < 200).astype(float)
    activations[:, 2] = 20.0 * (1.0 - weights)
    counts = rng.poisson(activations @ parts).astype(float)
    observed = None
    if missing:
        observed = (rng.random(counts.shape) > missing).astype(float)
        counts *= observed
    known = explained(counts, activations[:, :1], parts[:1], weights, observed)
    rest = known.expected
    starts = excesses(known, rest, 3, rng)
    found, gain = max((sought(known, rest, start, 0.3) for start in starts), key=lambda f: f[1])
    cells = known.cells
    assert cosines(found[None] / cells, parts[1:2])[0] > 0.97
    assert gain > 0
    assert excesses(known, counts[counts > 0], 3, rng) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_swap_mends_a_fit_in_which_one_part_explains_two(kind):
    """A part has the sum of two profiles, and another one is there twice."""
    X, truth = rows(kind)
    start = truth[[0, 1, 2, 2]]
    start[0] += truth[3]
    plain, _, _ = state(X, start, max_iter=30)
    assert cosines(plain.components_, truth).min() < 0.9
    _, ctx, units = state(X, start)
    rng = np.random.default_rng(0)
    best = 0.0
    for _ in range(4):
        model, prior, q = ctx.model.swapped(units, ctx.q, ctx.summary, ctx.prior, rng, True)
        best = max(best, cosines(model.means(q), truth[[0, 3]]).min())
        assert prior is ctx.prior
    assert best > 0.85
    searched = AnnealedGammaProcessNMF(4, components_init=start, max_iter=40, random_state=0).fit(X)
    assert cosines(searched.components_, truth).min() > 0.97
    assert searched.lower_bound_ > plain.lower_bound_ + 10.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_swap_replaces_one_part_by_what_the_others_leave(kind):
    X, truth = rows(kind)
    _, ctx, units = state(X, truth, max_iter=30)
    before = ctx.model.means(ctx.q)
    model, _, q = ctx.model.swapped(
        units, ctx.q, ctx.summary, ctx.prior, np.random.default_rng(1), False
    )
    changed = np.flatnonzero(np.abs(model.means(q) - before).max(axis=1) > 0)
    assert len(changed) == 1
    # All other parts are right, so that the new one is the one that was given up.
    assert cosines(model.means(q)[changed], before[changed])[0] > 0.97


@pytest.mark.parametrize("kind", KINDS)
def test_parts_with_the_same_profile_become_one(kind, rng):
    X, truth = rows(kind)
    start = np.concatenate([truth, truth[:1]])
    _, ctx, units = state(X, start, max_iter=3)
    model, prior, q = ctx.model.merged(units, ctx.q, ctx.summary, ctx.prior, rng)
    counts = model.expected_counts(q, prior)
    assert_allclose(min(counts), 0.0, atol=1e-9)
    before = ctx.model.expected_counts(ctx.q, ctx.prior)
    assert_allclose(counts.sum(), before.sum(), rtol=0.05)
    assert cosines(model.means(q), truth).min() > 0.95
    assert model.merged(units, q, ctx.summary, prior, rng) is None


def test_alike_are_profiles_and_the_larger_one_is_first():
    parts = np.array([[1.0, 2.0], [0.0, 0.0], [2.0, 0.5], [2.0, 4.1]])
    assert most_alike(parts, np.array([0, 2, 3])) == (3, 0)
    assert most_alike(parts, np.array([0, 2])) is None
    assert most_alike(parts, np.array([2])) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_the_rows_stands_for_all_of_them(kind, monkeypatch):
    X, truth = rows(kind, n=240)
    _, ctx, units = state(X, truth, max_iter=10)
    given = units, ctx.q, ctx.summary, ctx.prior
    counts = {}
    for n_entries in (1 << 19, 120 * 30):
        monkeypatch.setattr("sklearn_anneal.models._count_search._ENTRIES_FOR_MOVES", n_entries)
        assert len(ctx.model._explained(units, ctx.q).weights) <= 240
        model, prior, q = ctx.model.swapped(*given, np.random.default_rng(1), False)
        counts[n_entries] = model.expected_counts(q, prior)
    assert_allclose(*counts.values(), rtol=0.4)


@pytest.fixture
def all_swaps(monkeypatch):
    """Guided swaps are tried however little they promise."""
    monkeypatch.setattr(_count_search, "_LEAST_GAIN_IF_DENSE", 0.0)


@pytest.mark.usefixtures("all_swaps")
def test_numbers_of_any_size_can_be_searched(rng):
    """Expected logarithms of parts without counts underflow, and counts are as large as 2**53."""
    X = rng.poisson(1.0, (12, 6)).astype(float) * np.array([1.0, 1e-9, 2.0**50, 1.0, 0.0, 1e6])
    X[0, 4] = 1.0
    given = {"activation_prior": 1e-3, "component_prior": 1e-3}
    est = AnnealedGammaProcessNMF(3, **given, random_state=0, max_iter=5).fit(X)
    assert any("swap" in move for move in est.search_results_["move"])
    assert np.isfinite(est.lower_bound_)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_copies_in_moves_too(kind):
    X, truth = rows(kind, n=60)
    weights = np.tile([1.0, 2.0, 0.0], 20)
    copies = np.repeat(np.arange(60), weights.astype(int))
    _, ctx, units = state(X, truth)
    est = AnnealedGammaProcessNMF(4, random_state=0)
    found = [
        ctx.model._explained(est._make_units(*given), ctx.q).losses()
        for given in ((X, weights), (X[copies], None))
    ]
    assert_allclose(*found, rtol=1e-9)


def test_one_part_has_nothing_to_swap():
    X, _ = rows(n=40)
    est = AnnealedGammaProcessNMF(1, random_state=0).fit(X)
    assert not any("swap" in move or move == "merge" for move in est.search_results_["move"])


@pytest.mark.usefixtures("all_swaps")
@pytest.mark.parametrize("kind", KINDS)
def test_workers_do_not_change_a_search_with_swaps(kind):
    X, _ = rows(kind, n=80)
    weights = np.tile([1.0, 2.0], 40)
    one, other = (
        AnnealedGammaProcessNMF(3, random_state=0, n_jobs=n, max_iter=10, effort=2).fit(
            X, sample_weight=weights
        )
        for n in (1, 2)
    )
    assert "guided swap" in one.search_results_["move"]
    assert_array_equal(one.components_, other.components_)
    assert_array_equal(one.search_results_["lower_bound"], other.search_results_["lower_bound"])


def test_swaps_of_dense_tables_promise_enough():
    """One that gives up far more than a division promises is not made."""
    X, truth = rows()
    _, ctx, units = state(X, truth[[0, 1, 2, 2]])
    ctx.model.search_dense_table()
    assert 0.0 < ctx.model.least_gain < 1.0
    for least, proposes in ((0.0, True), (np.inf, False)):
        ctx.model.least_gain = least
        rng = np.random.default_rng(0)
        found = ctx.model.swapped(units, ctx.q, ctx.summary, ctx.prior, rng, True)
        assert (found is not None) == proposes
