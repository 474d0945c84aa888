"""Fits of ratings hold few copies of the Gaussians of users and items at the same time."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from sklearn_anneal import AnnealedPMF
from sklearn_anneal.families import Tempering, posterior
from sklearn_anneal.search.moves import Plain, compact

N_USERS, N_ITEMS, N_RATINGS, K = 6000, 400, 40_000, 10
D = K + 1
# Natural parameters of all rows, and the tables and means from which updates of others read them.
NATURAL = 8 * (N_USERS + N_ITEMS) * (D * (D + 1) // 2 + D)
MOMENTS = 8 * (N_USERS + N_ITEMS) * (80 + D + 3)
DATA = 8 * 3 * N_RATINGS


def ratings():
    rng = np.random.default_rng(0)
    chosen = rng.choice(N_USERS * N_ITEMS, N_RATINGS, replace=False)
    pairs = np.stack([chosen // N_ITEMS, chosen % N_ITEMS], axis=1)
    return pairs, rng.integers(1, 6, N_RATINGS).astype(float)


def peak_of_fit(**params):
    """The memory that a fit takes at most beyond its data, in bytes."""
    sizes = {"n_users": N_USERS, "n_items": N_ITEMS}
    est = AnnealedPMF(K, input="pairs", max_iter=2, random_state=0, **sizes, **params)
    X, y = ratings()
    est.fit(X[:200], y[:200])  # it loads the kernels
    tracemalloc.start()
    try:
        est.fit(X, y)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("annealing", "n_kept"), [("none", 0), ("deterministic", 1)])
def test_passes_hold_two_sets_of_gaussians(annealing, n_kept):
    """They are the old and the new ones of a pass; moves keep those of the best fit besides.

    Beyond the moments, which updates read, a quarter of the users are summed at a time.
    """
    plain = {"user_scales": False, "implicit_feedback": False, "gibbs_sweeps": 0}
    peak = peak_of_fit(annealing=annealing, **plain)
    assert peak < (2.6 + n_kept) * NATURAL + MOMENTS + 2 * DATA


def test_posteriors_can_be_written_into_their_statistics():
    prior, base = {"a": np.arange(3.0)}, {"a": np.ones(())}
    for t in (Tempering(), Tempering(0.5, 0.5, 0.5)):
        stats = {"a": np.random.default_rng(0).random((4, 3))}
        expected = posterior(prior, stats, base, t)["a"]
        assert not np.shares_memory(expected, stats["a"])
        found = posterior(prior, stats, base, t, overwrite=True)["a"]
        assert found is stats["a"]
        np.testing.assert_array_equal(found, expected)
    # Statistics in single precision stay, because the result has double precision.
    single = {"a": np.ones((4, 3), dtype=np.float32)}
    assert posterior(prior, single, base, Tempering(), overwrite=True)["a"].dtype == np.float64
    np.testing.assert_array_equal(single["a"], 1.0)


def test_compact_starts_have_all_rows_again():
    rows = np.tile(np.arange(3.0), (50, 1))
    start = {"alike": rows, "other": rows + np.arange(50.0)[:, None], "one": rows[:1]}
    found = compact(start)
    assert found["alike"].base.size == 3
    for key, value in start.items():
        np.testing.assert_array_equal(found[key], value)
        assert not np.shares_memory(found[key], value)

    class Problem:
        def open(self, index, start, strategy):
            return start

    proposed = Plain(found).propose(Problem(), None, (0, 0))
    for key, value in start.items():
        np.testing.assert_array_equal(proposed[key], value)
        assert proposed[key].flags.c_contiguous
        assert proposed[key].flags.writeable
