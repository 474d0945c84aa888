"""Local steps and sums of gamma-process factorisation against the same equations in plain numpy."""

from __future__ import annotations

import numpy as np
import plain_gamma_process_nmf as plain
import pytest
from cases_gamma_process_nmf import FORMS, drawn_counts, nmf, parameters, sparse, step_of
from designs import pairwise
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, csr_matrix

from sklearn_anneal.kernels import dense_counts as dense
from sklearn_anneal.kernels import gamma_process_nmf
from sklearn_anneal.models._count_visits import CountsVisit
from sklearn_anneal.models.gamma_process_nmf import GammaProcessNMF

PRECISION = {np.float64: 1e-10, np.float32: 2e-4}
# Rows of dense tables fill the lanes of vector instructions, or make products of matrices.
STEPS = ("dense", "dense together", "missing", "missing together", "sparse")
each_step = pytest.mark.parametrize("kind", STEPS)
each_form = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(autouse=True)
def together(request, monkeypatch):
    """Process rows together where the kind of the test says so, and by themselves elsewhere."""
    found = "together" in request.node.name
    monkeypatch.setattr(CountsVisit, "_together", lambda self, itemsize: found)


def problem(rng, kind, n=13, n_columns=11, dtype=np.float64):
    """Counts of one kind, and the same as a dense float64 array for the plain step."""
    X = drawn_counts(rng, n, n_columns, missing=0.25 if kind.startswith("missing") else 0.0)
    given = csr_matrix(X.astype(dtype)) if kind == "sparse" else X.astype(dtype)
    return given, X


def assert_step(step, expected, rtol, total_weight=None):
    k = expected.counts.shape[0]
    scale = expected.counts.max()
    for name, found, wanted in (
        ("counts", step.statistics["counts"], expected.counts),
        ("assigned", step.statistics["assigned"], expected.counts.sum(axis=1)),
    ):
        assert_allclose(found / scale, wanted / scale, rtol=rtol, atol=rtol, err_msg=name)
    found, wanted = np.broadcast_arrays(step.statistics["exposure"], expected.exposure)
    assert_allclose(found, wanted, rtol=rtol, atol=rtol, err_msg="exposure")
    assert_allclose(step.local.shape, expected.shape, rtol=rtol, atol=rtol, err_msg="shape")
    rates = np.broadcast_to(step.local.rate, expected.rate.shape)
    assert_allclose(rates, expected.rate, rtol=rtol, err_msg="rate")
    size = abs(expected.energy) + abs(expected.log_prior) + abs(expected.entropy)
    for name in ("energy", "log_prior", "entropy"):
        found, wanted = getattr(step, name), getattr(expected, name)
        assert abs(found - wanted) < rtol * size, f"{name}: {found} instead of {wanted}"
    if total_weight is not None:
        evidence, number = step.statistics["evidence"]
        assert evidence == pytest.approx(expected.evidence, rel=rtol)
        assert number == pytest.approx(total_weight * k)


# The local step


@pytest.mark.parametrize("dtype", PRECISION)
@each_form
@each_step
def test_a_step_is_the_plain_one(kind, form, dtype, rng):
    given, X = problem(rng, kind, dtype=dtype)
    q, weights = parameters(rng, 5, X.shape[1]), rng.uniform(0.5, 2.0, len(X))
    how = {"n_sweeps": 7, "tol": 0.0, "weights": weights}
    expected = plain.local_step(X, q, 0.3, FORMS[form], **how)
    step = step_of(given, q, 0.3, FORMS[form], dtype=dtype, **how)
    assert_step(step, expected, PRECISION[dtype], weights.sum())


@pytest.mark.parametrize("k", [1, 7, 8, 9, 17])
@each_step
def test_any_number_of_components(kind, k, rng):
    """Tables are padded to a multiple of eight."""
    given, X = problem(rng, kind)
    q = parameters(rng, k, X.shape[1])
    expected = plain.local_step(X, q, 0.1, n_sweeps=5, tol=0.0)
    assert_step(step_of(given, q, 0.1, n_sweeps=5, tol=0.0), expected, 1e-10)


@pytest.mark.parametrize("n_columns", [1, 3, 4, 5, 40])
@each_step
def test_any_number_of_columns(kind, n_columns, rng):
    given, X = problem(rng, kind, n_columns=n_columns)
    q = parameters(rng, 3, n_columns)
    expected = plain.local_step(X, q, 0.4, n_sweeps=5, tol=0.0)
    assert_step(step_of(given, q, 0.4, n_sweeps=5, tol=0.0), expected, 1e-10)


@each_step
def test_rows_in_several_blocks(kind, rng):
    """Dense rows are processed in blocks of about 65,536 cells."""
    given, X = problem(rng, kind, n=50, n_columns=3000)
    q = parameters(rng, 2, X.shape[1])
    expected = plain.local_step(X, q, 0.4, n_sweeps=2, tol=0.0)
    assert_step(step_of(given, q, 0.4, n_sweeps=2, tol=0.0), expected, 1e-9)


@pairwise(tol=[1e-1, 1e-3], form=FORMS, kind=STEPS)
def test_sweeps_over_a_row_end_when_it_has_converged(kind, form, tol, rng):
    """Every row has its own number of sweeps, whatever the others need."""
    given, X = problem(rng, kind)
    q = parameters(rng, 4, X.shape[1])
    expected = plain.local_step(X, q, 0.5, FORMS[form], n_sweeps=80, tol=tol)
    longer = plain.local_step(X, q, 0.5, FORMS[form], n_sweeps=80, tol=0.0)
    assert_step(step_of(given, q, 0.5, FORMS[form], n_sweeps=80, tol=tol), expected, 1e-10)
    assert np.abs(expected.shape - longer.shape).max() > 1e-4


@pairwise(form=FORMS, kind=STEPS)
def test_momentum_changes_no_limit(kind, form, rng):
    given, X = problem(rng, kind)
    q, how = parameters(rng, 4, X.shape[1]), {"n_sweeps": 200, "tol": 0.0}
    limit = plain.local_step(X, q, 0.5, FORMS[form], **how).shape
    found = step_of(given, q, 0.5, FORMS[form], **how, momentum=True).local.shape
    assert_allclose(found, limit, atol=1e-6)


def test_momentum_needs_fewer_sweeps_where_components_are_alike(rng):
    X, q = drawn_counts(rng, 60, 30, size=40.0), parameters(rng, 4, 30)
    q["components_shape"] = np.asfortranarray(rng.gamma(100.0, 1.0, (4, 30)))

    def shapes(n_sweeps, momentum):
        return step_of(X, q, 0.5, n_sweeps=n_sweeps, tol=0.0, momentum=momentum).local.shape

    limit = shapes(5000, False)
    plainly, with_momentum = (
        np.abs(shapes(*how) - limit).mean() for how in ((40, False), (16, True))
    )
    assert with_momentum < plainly


def test_sparse_and_dense_rows_have_the_same_momentum(rng):
    X = drawn_counts(rng, 40, 20)
    q, how = parameters(rng, 5, 20), {"n_sweeps": 16, "momentum": True}
    steps = [step_of(given, q, 0.2, **how) for given in (X, sparse(X))]
    assert_allclose(steps[0].local.shape, steps[1].local.shape, rtol=1e-10)
    once = [step_of(X[n : n + 1], q, 0.2, **how).local.shape for n in (0, 7, 39)]
    assert_allclose(np.vstack(once), steps[0].local.shape[[0, 7, 39]], rtol=1e-10)


@pairwise(
    n_sweeps=[0, 1, 4],
    form=FORMS,
    kind=[*STEPS, "missing, rates of rows", "missing together, rates of rows"],
)
def test_given_starts(kind, form, n_sweeps, rng):
    """Without sweeps, the result is the start. Rates of rows differ only if cells are missing."""
    kind, _, rates_of_rows = kind.partition(", ")
    given, X = problem(rng, kind)
    q = parameters(rng, 4, X.shape[1])
    shape = rng.gamma(1.0, size=(len(X), 4)) + 0.05
    rate = rng.uniform(0.5, 3.0, (len(X) if rates_of_rows else 1, 4))
    start = (shape, np.broadcast_to(rate, shape.shape))
    how = {"n_sweeps": n_sweeps, "tol": 0.0}
    expected = plain.local_step(X, q, 0.3, FORMS[form], start=start, **how)
    step = step_of(given, q, 0.3, FORMS[form], start=(shape, rate), **how)
    assert_step(step, expected, 1e-10)


@each_step
def test_rates_that_differ_between_columns(kind, rng):
    given, X = problem(rng, kind)
    q = parameters(rng, 4, X.shape[1], rates_differ=True)
    expected = plain.local_step(X, q, 0.3, n_sweeps=6, tol=0.0)
    assert_step(step_of(given, q, 0.3, n_sweeps=6, tol=0.0), expected, 1e-10)


@each_form
@each_step
def test_random_weights_change_the_statistics_alone(kind, form, rng):
    given, X = problem(rng, kind)
    q = parameters(rng, 4, X.shape[1])
    weights, noise = rng.uniform(0.5, 2.0, len(X)), rng.normal(1.0, 1.0, len(X))
    how = {"n_sweeps": 5, "tol": 0.0, "weights": weights}
    noisy = plain.local_step(X, q, 0.3, FORMS[form], noise=noise, **how)
    clean = plain.local_step(X, q, 0.3, FORMS[form], **how)
    step = step_of(given, q, 0.3, FORMS[form], noise=noise, **how)
    assert_step(step, noisy, 1e-10)
    apart = step_of(given, q, 0.3, FORMS[form], noise=noise, separate_noise=True, **how)
    assert_step(apart, clean, 1e-10)
    assert_allclose(apart.deviation["counts"], noisy.counts, rtol=1e-9, atol=1e-10)
    found, wanted = np.broadcast_arrays(apart.deviation["exposure"], noisy.exposure)
    assert_allclose(found, wanted, rtol=1e-9, atol=1e-10)


@each_form
@each_step
def test_the_bound_is_the_same_without_the_counts_of_components(kind, form, rng):
    """The update of the weights needs the sums over columns alone."""
    given, X = problem(rng, kind)
    q = parameters(rng, 4, X.shape[1])
    of_components = step_of(given, q, 0.3, FORMS[form])
    of_weights = step_of(given, q, 0.3, FORMS[form], block=0)
    assert of_weights.bound == pytest.approx(of_components.bound, rel=1e-12)
    assert_allclose(
        of_weights.statistics["assigned"], of_components.statistics["assigned"], rtol=1e-12
    )


@each_step
def test_a_start_is_not_changed(kind, rng):
    """Kernels write their result into the array of the start only where the loop owns it."""
    given, X = problem(rng, kind)
    q = parameters(rng, 3, X.shape[1])
    start = rng.gamma(1.0, size=(len(X), 3)) + 0.1, np.ones((1, 3))
    kept = start[0].copy()
    start[0].flags.writeable = False
    for n_sweeps in (0, 3):
        step_of(given, q, 0.3, start=start, n_sweeps=n_sweeps)
        assert_array_equal(start[0], kept)


def test_tiny_priors_do_not_divide_by_zero(rng):
    """E log w reaches −1e6 here: one component explains each column, and none of them is lost."""
    X = drawn_counts(rng)
    q = parameters(rng, 3, X.shape[1])
    q["components_shape"][:] = 1e-6
    q["components_shape"][0, :4] = 50.0
    q["components_shape"][1, 4:] = 50.0
    for kind, dtype in ((np.asarray, np.float64), (sparse, np.float64), (sparse, np.float32)):
        step = step_of(kind(X).astype(dtype), q, 1e-4, dtype=dtype)
        assert np.isfinite([step.energy, step.entropy, step.log_prior]).all()
        assert_allclose(
            step.statistics["counts"].sum(axis=0), np.nansum(X, axis=0), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (16, 7), (45, 12)])
def test_rows_that_are_updated_together_are_those_of_their_own(n, k, momentum, dtype, rng):
    """Each ends when it has converged, whatever the others do."""
    X = drawn_counts(rng, n, 11, missing=0.2).astype(dtype)
    table = np.zeros((11, 16), dtype)
    table[:, :k] = rng.uniform(0.01, 1.0, (11, k))
    e, factor = rng.uniform(0.1, 1.0, (n, k)).astype(dtype), rng.uniform(0.1, 1.0, (n, k))
    for rows in (1, n):
        how, found = (factor[:rows], 0.9, 0.3, 0.8, 60, momentum, 1e-2), []
        for update in (dense.dense_updates_together, gamma_process_nmf.dense_updates):
            powers, shape = np.empty((n, k), dtype), np.ones((n, k))
            update(X, table, e.copy(), powers, *how, shape)
            found.append((shape, powers))
        for together, alone in zip(*found, strict=True):
            assert_allclose(together, alone, rtol=10 * PRECISION[dtype])


# The divergence of components


@pytest.mark.parametrize("a", [1e-3, 0.1, 1.0, 40.0, 1e3, 1e6])
@pytest.mark.parametrize("rates_differ", [False, True])
def test_divergence_is_that_of_gamma_distributions(a, rates_differ, rng):
    q = parameters(rng, 5, 33, rates_differ)
    q["components_shape"] *= a
    q["components_rate"] *= a
    model = GammaProcessNMF(5, 33, component_prior=a, concentration=2.0)
    model.scale = 0.7
    expected = plain.kl_of_gammas(
        q["components_shape"], np.broadcast_to(q["components_rate"], (5, 33)), a, a
    ) + plain.kl_of_gammas(q["weights_shape"], q["weights_rate"], 2.0 / 5, 2.0 * 0.7)
    assert model.kl(q, model._prior()) == pytest.approx(expected, rel=1e-9)


# Forms of arrays


def layouts(X, tmp_path):
    """The same counts in other layouts and types."""
    read_only = X.copy()
    read_only.flags.writeable = False
    wide = np.full((2 * len(X), 3 * X.shape[1]), 7.0)
    wide[::2, ::3] = X
    mapped = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", X.dtype, X.shape)
    mapped[:] = X
    return {
        "Fortran": np.asfortranarray(X),
        "read-only": read_only,
        "strided": wide[::2, ::3],
        "memory-mapped": np.load(tmp_path / "x.npy", mmap_mode="r"),
        "int64": X.astype(np.int64),
        "uint8": X.astype(np.uint8),
        "big-endian": X.astype(">f8"),
        "lists": X.tolist(),
    }


def test_layouts_and_types_of_arrays_change_nothing(rng, tmp_path):
    X = drawn_counts(rng)
    plain_fit = nmf().fit(X)
    for name, other in layouts(X, tmp_path).items():
        est = nmf().fit(other)
        assert_allclose(est.components_, plain_fit.components_, rtol=1e-12, err_msg=name)
        assert_allclose(est.transform(other), plain_fit.transform(X), rtol=1e-12, err_msg=name)
        assert est.score(other) == pytest.approx(plain_fit.score(X), rel=1e-12), name


def test_layouts_and_types_of_sparse_matrices_change_nothing(rng):
    X = drawn_counts(rng)
    reference = nmf().fit(csr_matrix(X))
    unsorted = csr_matrix(X)
    for i in range(len(X)):
        part = slice(*unsorted.indptr[i : i + 2])
        unsorted.indices[part] = unsorted.indices[part][::-1].copy()
        unsorted.data[part] = unsorted.data[part][::-1].copy()
    unsorted.has_sorted_indices = False
    twice = csr_matrix(
        (np.repeat(csr_matrix(X).data / 2, 2), np.repeat(csr_matrix(X).indices, 2),
         2 * csr_matrix(X).indptr), shape=X.shape,
    )  # fmt: skip
    zeros = csr_matrix(X + 1.0)
    zeros.data -= 1.0
    read_only = csr_matrix(X)
    for array in (read_only.data, read_only.indices, read_only.indptr):
        array.flags.writeable = False
    forms = {
        "array": csr_array(X),
        "csc": csr_matrix(X).tocsc(),
        "coo": csr_matrix(X).tocoo(),
        "int64": csr_matrix(X.astype(np.int64)),
        "uint8": csr_matrix(X.astype(np.uint8)),
        "unsorted": unsorted,
        "duplicates": twice,
        "explicit zeros": zeros,
        "read-only": read_only,
    }
    for name, other in forms.items():
        est = nmf().fit(other)
        assert_allclose(est.components_, reference.components_, rtol=1e-10, err_msg=name)
        assert_allclose(
            est.transform(other), reference.transform(csr_matrix(X)), rtol=1e-10, err_msg=name
        )


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_data_are_not_changed(kind, rng):
    X = drawn_counts(rng, missing=0.2 if kind == "dense" else 0.0)
    given = csr_matrix(X) if kind == "sparse" else X.copy()
    est = nmf().fit(given).partial_fit(given)
    est.transform(given)
    est.score(given)
    assert_array_equal(given.toarray() if kind == "sparse" else given, X)
