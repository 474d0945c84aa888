"""A fit needs little memory beyond its data, and never a copy of a memory-mapped file."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedGammaProcessNMF, warm_up

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists()
    or "RssAnon" not in Path("/proc/self/status").read_text(),
    reason="the system does not tell the anonymous memory of a process",
)


@pytest.fixture(scope="module")
def memory():
    if not (ROOT / "benchmarks").exists():
        pytest.skip("the benchmarks are in the repository only")
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks.package import memory_of_fits
    finally:
        sys.path.remove(str(ROOT))
    # None of the measured interpreters, which fit Gaussian mixtures, has to compile.
    warm_up("gaussian_mixture")
    return memory_of_fits


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", ["fit", "partial_fit", "predict"])
def test_memmap_is_not_copied_by_validation(method, dtype, tmp_path, monkeypatch):
    X = np.memmap(tmp_path / "rows", dtype=dtype, mode="w+", shape=(300, 4))
    X[:] = np.random.default_rng(0).normal(size=X.shape)
    X.flush()
    mapped = np.memmap(tmp_path / "rows", dtype=dtype, mode="r", shape=X.shape)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=2, annealing="none", batch_size=50, max_iter=2, random_state=0
    )
    mixture.fit(X)
    seen = []
    validate = mixture._validate_data

    def spy(*args, **kwargs):
        seen.append(validate(*args, **kwargs))
        return seen[-1]

    monkeypatch.setattr(mixture, "_validate_data", spy)
    getattr(mixture, method)(mapped)
    assert seen
    assert all(np.shares_memory(rows, mapped) for rows in seen)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_checks_of_counts_make_no_copy(dtype, tmp_path):
    """The signs and the sizes of memory-mapped counts are checked without another array."""
    X = np.memmap(tmp_path / "counts", dtype=dtype, mode="w+", shape=(2000, 500))
    X[:] = np.random.default_rng(0).poisson(1.0, size=X.shape)
    X.flush()
    mapped = np.memmap(tmp_path / "counts", dtype=dtype, mode="r", shape=X.shape)
    estimator = AnnealedGammaProcessNMF()
    tracemalloc.start()
    try:
        found = estimator._validate_data(mapped, reset=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.shares_memory(found, mapped)
    assert peak < 0.05 * mapped.nbytes


@pytest.mark.parametrize("batch_size", [None, 50])
def test_memmap_fits_as_an_array_does(batch_size, tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 4))
    X.tofile(tmp_path / "rows")
    mapped = np.memmap(tmp_path / "rows", mode="r", shape=X.shape, dtype=float)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=2, batch_size=batch_size, max_iter=5, random_state=0
    )
    bounds = mixture.fit(X).lower_bounds_
    np.testing.assert_array_equal(mixture.fit(mapped).lower_bounds_, bounds)


@pytest.mark.slow
@pytest.mark.parametrize(
    "annealing", [pytest.param("none", marks=pytest.mark.exhaustive), "local_tempering"]
)
def test_memory_does_not_grow_with_a_memory_mapped_file(annealing, memory):
    # One float64 per row may stay during a fit; a copy would be 160 bytes per row or more. Starts
    # are fits to at most 20,000 rows.
    small, large = 30_000, 90_000
    # The first fit loads the kernels, and libraries keep some memory from it.
    _, of_small, of_large = memory.measure_memmap(annealing, small, small, large)
    assert of_large < 300
    allowed = 8 * (large - small) / 1e6 + 5
    assert of_large - of_small < allowed


@pytest.mark.slow
@pytest.mark.parametrize(
    "annealing",
    [
        pytest.param("none", marks=pytest.mark.exhaustive),
        pytest.param("local_tempering", marks=pytest.mark.exhaustive),
        "svi_plus",
    ],
)
def test_no_temporary_of_rows_times_components_times_features(annealing, memory):
    found = memory.measure_array(annealing)
    # Rows x components alone would be 3.2 MB, times the features 96 MB.
    assert found["growth"] < 40


def test_the_measurement_sees_a_copy(memory):
    found = memory.measure_copy(5_000_000)
    assert found["growth"] > 0.9 * found["copy"]
