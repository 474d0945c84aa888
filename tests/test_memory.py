"""A fit needs little memory beyond its data, and never a copy of a memory-mapped file."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from peer_priors import PEER_OF_MIXTURES

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedGammaProcessNMF,
)


def peak_of(function, *args):
    """The result of a call, and the memory in MB that numpy and Python took for it at most."""
    tracemalloc.start()
    try:
        return function(*args), tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def mapped(X, folder):
    """The same array as a memory-mapped file that cannot be changed, in the same layout."""
    np.save(folder / "rows.npy", X)
    return np.load(folder / "rows.npy", mmap_mode="r")


def quick_mixture(annealing, n_components, **params):
    """A mixture that makes one pass of each kind."""
    settings = {"annealing": annealing, "max_iter": 1, "random_state": 0, **PEER_OF_MIXTURES}
    est = AnnealedBayesianGaussianMixture(n_components, **settings, **params)
    return est if annealing == "none" else est.set_params(annealing__n_passes=1)


@pytest.mark.parametrize(("dtype", "order"), [("f4", "C"), ("f8", "C"), ("f8", "F")])
@pytest.mark.parametrize("method", ["fit", "partial_fit", "predict"])
def test_memmap_is_not_copied_by_validation(method, dtype, order, tmp_path, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(300, 4))
    X = mapped(np.asarray(rows, dtype=dtype, order=order), tmp_path)
    assert X.flags[f"{order}_CONTIGUOUS"]
    mixture = AnnealedBayesianGaussianMixture(
        n_components=2, annealing="none", batch_size=50, max_iter=2, random_state=0
    )
    mixture.fit(np.asarray(X))
    seen = []
    validate = mixture._validate_data

    def spy(*args, **kwargs):
        seen.append(validate(*args, **kwargs))
        return seen[-1]

    monkeypatch.setattr(mixture, "_validate_data", spy)
    getattr(mixture, method)(X)
    assert seen
    assert all(np.shares_memory(rows, X) for rows in seen)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_checks_of_counts_make_no_copy(dtype, tmp_path):
    """The signs and the sizes of memory-mapped counts are checked without another array."""
    X = mapped(np.random.default_rng(0).poisson(1.0, size=(2000, 500)).astype(dtype), tmp_path)
    found, peak = peak_of(lambda: AnnealedGammaProcessNMF()._validate_data(X, reset=True))
    assert np.shares_memory(found, X)
    assert peak < 0.05 * X.nbytes / 1e6


@pytest.mark.parametrize("emission", ["poisson", "negative_binomial", "zero_inflated_poisson"])
def test_mixtures_of_counts_take_less_memory_than_a_memory_mapped_file(emission, tmp_path):
    """Their cells were compared with integers in a second array of the same size."""
    X = mapped(np.random.default_rng(0).poisson(1.0, size=(80_000, 100)).astype(float), tmp_path)
    mixture = AnnealedBayesianMixture(
        2, emission=emission, annealing="none", max_iter=1, random_state=0
    )
    mixture.set_params(batch_size=1000).fit(np.asarray(X[:3000])).score(np.asarray(X[:3000]))
    # Predictions of counts with more zeros make a mask of the cells that are zero.
    predicts = () if emission == "zero_inflated_poisson" else (mixture.predict, mixture.transform)
    for call in (mixture.fit, mixture.score, *predicts):
        _, peak = peak_of(call, X)
        assert peak < 0.5 * X.nbytes / 1e6


@pytest.mark.parametrize("batch_size", [None, 50])
def test_memmap_fits_as_an_array_does(batch_size, tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 4))
    mixture = AnnealedBayesianGaussianMixture(
        n_components=2, batch_size=batch_size, max_iter=5, effort=0, random_state=0
    )
    bounds = mixture.fit(X).lower_bounds_
    np.testing.assert_array_equal(mixture.fit(mapped(X, tmp_path)).lower_bounds_, bounds)


@pytest.mark.parametrize(
    "annealing", [pytest.param("none", marks=pytest.mark.exhaustive), "local_tempering"]
)
def test_memory_does_not_grow_with_a_memory_mapped_file(annealing, tmp_path):
    """One float64 per row may stay during a fit; a copy would be 160 bytes per row or more."""
    # Starts are fits to at most 20,000 rows.
    small, large = 25_000, 50_000
    X = mapped(np.random.default_rng(0).standard_normal((large, 40), dtype=np.float32), tmp_path)
    est = quick_mixture(annealing, 4, batch_size=2_000).fit(X[:200])  # it loads the kernels
    peaks = [peak_of(est.fit, X[:n])[1] for n in (small, large)]
    assert peaks[1] - peaks[0] < 8 * (large - small) / 1e6 + 0.5


@pytest.mark.parametrize(
    "annealing",
    [
        pytest.param("none", marks=pytest.mark.exhaustive),
        pytest.param("local_tempering", marks=pytest.mark.exhaustive),
        "svi_plus",
    ],
)
def test_no_temporary_of_rows_times_components_times_features(annealing, rng):
    X = rng.standard_normal((5_000, 30))
    est = quick_mixture(annealing, 20, init_params="random").fit(X[:200])  # it loads the kernels
    _, peak = peak_of(est.fit, X)
    # Rows × components alone would be 0.8 MB, times the features 24 MB.
    assert peak < 5


def test_the_sampler_of_the_benchmarks_sees_a_copy(benchmarks_importable):
    memory = pytest.importorskip("benchmarks.common.memory", reason="in the repository only")
    if not memory.STATUS.exists() or "RssAnon" not in memory.STATUS.read_text():
        pytest.skip("the system does not tell the anonymous memory of a process")
    X = np.ones(5_000_000)
    with memory.Sampler() as sampler:
        copy = X.copy()
    assert sampler.growth > 0.9e-6 * copy.nbytes
