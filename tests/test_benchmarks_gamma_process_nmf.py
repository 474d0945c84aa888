"""Measurements of gamma-process NMF: what is compared is the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def test_a_quick_run_of_the_speed_of_gamma_process_nmf_needs_no_file(no_data, quick_speed):
    text = quick_speed("gamma_process_nmf")
    parts = ("of scikit-learn", "arithmetic", "explore", "annealing costs", "Memory", "Two jobs")
    for part in parts:
        assert part in text
    assert "A quick run" in text
    assert not re.search(r"\bnan\b", text)


def test_fits_of_gamma_process_nmf_make_the_passes_asked_for():
    from benchmarks.gamma_process_nmf import workload
    from sklearn_anneal.annealing import ANNEALING

    X = workload.counts(workload.DENSE, workload.QUICK)
    for name in ANNEALING:
        if "tempering" not in name:
            assert workload.estimator(3, 4, name).fit(X).n_iter_ == 4


def test_passes_that_go_on_raise_the_bound():
    from benchmarks.gamma_process_nmf import workload

    passes = workload.Passes(workload.counts(workload.DENSE, workload.QUICK), 4)
    bounds = [(passes(), passes.bound)[1] for _ in range(5)]
    assert (np.diff(bounds) > -1e-9 * abs(bounds[0])).all()
    assert bounds[-1] > bounds[0]


def test_iterations_are_those_of_scikit_learn():
    from sklearn.decomposition import NMF

    from benchmarks.gamma_process_nmf import workload

    X = workload.counts(workload.DENSE, workload.QUICK)
    iterations = workload.Iterations(X, 4)
    for _ in range(3):
        iterations()
    nmf = NMF(
        4,
        solver="mu",
        beta_loss="kullback-leibler",
        init="random",
        random_state=0,
        max_iter=5,
        tol=0,
    )
    assert_allclose(iterations.activations, nmf.fit_transform(X), rtol=1e-10)
    assert_allclose(iterations.components, nmf.components_, rtol=1e-10)


def test_drawn_sparse_counts_have_the_entries_asked_for():
    from benchmarks.gamma_process_nmf import workload

    X = workload.many_counts(20_000)
    assert X.nnz == 20_000
    assert X.has_canonical_format
    assert (X.data > 0).all()
