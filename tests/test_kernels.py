"""The compiled kernels against numpy, through the model that calls them."""

from __future__ import annotations

import warnings
from itertools import product
from pathlib import Path

import numba
import numpy as np
import pytest
from harness import open_run
from models import gaussian_mixture
from scipy.special import gammaln, logsumexp, psi, softmax

from sklearn_anneal.data.units import Rows
from sklearn_anneal.families import Tempering, UnitTemperatures, stick_breaking_log_weights
from sklearn_anneal.kernels import _compile, lazy_columns, ragged
from sklearn_anneal.kernels import gaussian_mixture as kernels
from sklearn_anneal.kernels._math import digamma_and_log_gamma
from sklearn_anneal.models._weights import StickBreakingWeights
from sklearn_anneal.models.components._features import FEATURE_KINDS
from sklearn_anneal.models.components.fused_gaussian import RowPartition

(MIXTURE,) = gaussian_mixture.ENTRIES
TYPES = ("full", "tied", "diag", "spherical")
PRIORS = ("dirichlet_process", "dirichlet_distribution")


def of_whole_rows(grid, partition):
    """log c(x) in the form that the model reads, for rows without missing cells."""
    return RowPartition(grid, np.zeros(len(grid)), partition, None)


# Written from the equations: standard parameters in, full matrices, no features.


def expected_log_joint(model, q, x):
    """E log p(x_n, z_n = k) of Normal–Wishart factors, shape (n, K); x relative to the centre."""
    k, d = model.n_components, model.components.n_features
    standard = model.components.standard(q)
    inverse_scale = full_matrices(standard["inverse_scale"], model.components.covariance_type, k, d)
    dof = np.broadcast_to(standard["dof"], (k,))
    if isinstance(model.weights, StickBreakingWeights):
        a, b = q["stick_a"], q["stick_b"]
        log_weights = stick_breaking_log_weights(psi(a) - psi(a + b), psi(b) - psi(a + b))
    else:
        a = q["weight_concentration"]
        log_weights = psi(a) - psi(a.sum())
    result = np.empty((len(x), k))
    for j in range(k):
        log_det = psi(0.5 * (dof[j] - np.arange(d))).sum() + d * np.log(2.0)
        log_det -= np.linalg.slogdet(inverse_scale[j])[1]
        deviation = x - standard["mean"][j]
        solved = np.linalg.solve(inverse_scale[j], deviation.T).T
        distance = dof[j] * (deviation * solved).sum(axis=1)
        constant = log_det - d * np.log(2 * np.pi) - d / standard["mean_precision"][j]
        result[:, j] = log_weights[j] + 0.5 * (constant - distance)
    return result


def full_matrices(stored, covariance_type, k, d):
    if covariance_type == "full":
        return stored
    if covariance_type == "tied":
        return np.array([stored] * k)
    if covariance_type == "diag":
        return np.array([np.diag(one) for one in stored])
    return np.array([one * np.eye(d) for one in stored])


def weighted_moments(responsibilities, x, covariance_type):
    """N_k, Σ R x, and Σ R x xᵀ restricted as the covariance type says."""
    second = np.einsum("nk,ni,nj->kij", responsibilities, x, x)
    if covariance_type == "tied":
        second = second.mean(axis=0)
    elif covariance_type == "diag":
        second = np.array([np.diag(one) for one in second])
    elif covariance_type == "spherical":
        second = np.array([np.trace(one) for one in second]) / x.shape[1]
    return {
        "counts": responsibilities.sum(axis=0),
        "first": responsibilities.T @ x,
        "second": second,
    }


def assert_statistics(model, found, expected, rtol=1e-12):
    found = model.components.unpack(found["components"])._asdict()
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(
            found[key], value, rtol=rtol, atol=rtol * np.abs(value).max(), err_msg=key
        )


def problem(rng, n=600, **params):
    """A context, the centred rows as the reference sees them, and the units."""
    X = MIXTURE.data(rng, n)
    ctx, _, units = open_run(MIXTURE.make(annealing="none", **params), X)
    return ctx, X - ctx.summary.center, units


@pytest.mark.parametrize("n", [1, 255, 256, 257, 600])
@pytest.mark.parametrize("weight_prior", PRIORS)
@pytest.mark.parametrize("covariance_type", TYPES)
def test_local_step(covariance_type, weight_prior, n, rng):
    """Every combination of factors that annealing methods ask for, around the block size."""
    ctx, _, units = problem(
        rng,
        covariance_type=covariance_type,
        weight_concentration_prior_type=weight_prior,
        n_components=4,
    )
    model = ctx.model
    units = units.take(slice(n))
    x = units.X - units.center
    joint = expected_log_joint(model, ctx.q, x)
    expected = model.expectations(ctx.q)
    np.testing.assert_allclose(model.log_joint(units, expected), joint, rtol=1e-12, atol=1e-11)
    per_row = rng.uniform(0.2, 1.0, n)
    for t in (Tempering(), Tempering(0.4, 0.7), Tempering(per_row, per_row)):
        for weights in (None, rng.uniform(0.0, 3.0, n)):
            for noise in (None, rng.standard_normal(n)):
                r = softmax(np.reshape(t.local, (-1, 1)) * joint, axis=1)
                w = np.ones(n) if weights is None else weights
                clean = r * (w * t.statistics)[:, None]
                noisy = clean if noise is None else clean * noise[:, None]
                rows = Rows(units.X, weights, units.center)
                for separate in (False, True)[: 1 if noise is None else 2]:
                    step = model.components.local_step(rows, expected, t, noise, separate)
                    found = step.deviation if separate else step.statistics
                    moments = weighted_moments(noisy, x, covariance_type)
                    assert_statistics(model, found, moments, 1e-11)
                    assert (step.deviation is not None) == separate
                    if separate:
                        moments = weighted_moments(clean, x, covariance_type)
                        assert_statistics(model, step.statistics, moments)
                    log_r = np.log(np.where(r > 0, r, 1.0))
                    energy = w @ (r * joint).sum(axis=1)
                    entropy = -w @ (r * log_r).sum(axis=1)
                    assert step.energy == pytest.approx(energy, rel=1e-12)
                    assert step.entropy == pytest.approx(entropy, rel=1e-11, abs=1e-11 * n)


def test_bound_needs_no_second_softmax(rng):
    """Σ R L + H[R] = logsumexp(x L) + (1 − x) Σ R L."""
    ctx, x, units = problem(rng)
    joint = expected_log_joint(ctx.model, ctx.q, x)
    step = ctx.model.components.local_step(
        units, ctx.model.expectations(ctx.q), Tempering(0.3, 0.3)
    )
    energy = (softmax(0.3 * joint, axis=1) * joint).sum()
    assert step.energy + step.entropy == pytest.approx(
        logsumexp(0.3 * joint, axis=1).sum() + 0.7 * energy, rel=1e-12
    )


def local_temperatures(joint, x_grid, log_partition, n_rounds):
    """Rounds r ↔ q(z) from uniform r: E_r[x] per row and the responsibilities."""
    mean = np.full(len(joint), x_grid.mean())
    for _ in range(n_rounds):
        r = softmax(mean[:, None] * joint, axis=1)
        energy = (r * joint).sum(axis=1)
        mean = softmax(np.outer(energy, x_grid) - log_partition, axis=1) @ x_grid
    return mean, softmax(mean[:, None] * joint, axis=1)


def log_c(x, covariance, k):
    """log Σ_k ∫ {p(x, k)}^x dx of equal weights and equal covariances."""
    d = len(covariance)
    return (
        0.5 * d * ((1 - x) * np.log(2 * np.pi) - np.log(x))
        + np.log(k) * (1 - x)
        + 0.5 * (1 - x) * np.linalg.slogdet(covariance)[1]
    )


@pytest.mark.parametrize("n_rounds", [1, 2, 5])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_locally_tempered_step(covariance_type, n_rounds, rng):
    ctx, x, units = problem(rng, covariance_type=covariance_type)
    # Some gross outliers, so that temperatures differ.
    units.X[:20] += 15.0
    x = units.X - units.center
    model = ctx.model
    grid = np.arange(1, 101) / 100
    covariance = np.cov(x[20:].T)
    restricted = {"full": covariance, "tied": covariance, "diag": np.diag(np.diag(covariance))}
    spherical = np.eye(3) * np.trace(covariance) / 3
    partition = log_c(grid, restricted.get(covariance_type, spherical), 3)
    joint = expected_log_joint(model, ctx.q, x)
    mean, r = local_temperatures(joint, grid, partition, n_rounds)
    assert mean[:20].max() < 0.5 < np.median(mean)
    for weights in (None, rng.uniform(0.0, 3.0, len(x))):
        for noise in (None, rng.uniform(0.0, 2.0, len(x))):
            w = np.ones(len(x)) if weights is None else weights
            rows = Rows(units.X, weights, units.center)
            expected = model.expectations(ctx.q)
            temperatures = UnitTemperatures(grid, of_whole_rows(grid, partition), n_rounds)
            step = model.components.locally_tempered_step(rows, expected, temperatures, noise)
            np.testing.assert_allclose(step.inverse_temperatures, mean, rtol=1e-10)
            factor = w * mean * (1.0 if noise is None else noise)
            moments = weighted_moments(r * factor[:, None], x, covariance_type)
            assert_statistics(model, step.statistics, moments, 1e-10)
            assert step.energy == pytest.approx(w @ (r * joint).sum(axis=1), rel=1e-10)
            log_r = np.log(np.where(r > 0, r, 1.0))
            entropy = -w @ (r * log_r).sum(axis=1)
            assert step.entropy == pytest.approx(entropy, rel=1e-9)
            assert step.temperature == pytest.approx(w @ (1 / mean), rel=1e-10)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_unit_log_partition_of_the_model_is_at_the_covariance_of_the_data(covariance_type, rng):
    ctx, x, _ = problem(rng, covariance_type=covariance_type)
    covariance = np.cov(x.T)
    if covariance_type == "diag":
        covariance = np.diag(np.diag(covariance))
    elif covariance_type == "spherical":
        covariance = np.eye(3) * np.trace(covariance) / 3
    grid = np.arange(1, 101) / 100
    found = ctx.model.unit_log_partition(grid, ctx.summary, ctx.q).whole
    np.testing.assert_allclose(found, log_c(grid, covariance, 3), rtol=1e-12, atol=1e-12)
    total = ctx.model.log_partition(grid, ctx.summary, ctx.q)
    np.testing.assert_allclose(total, len(x) * found, rtol=1e-14)


def test_one_temperature_of_one_is_the_plain_step(rng):
    """The kernel's grid {1}: local tempering without any temperature to choose."""
    ctx, _, units = problem(rng)
    model = ctx.model
    expected = model.expectations(ctx.q)
    plain = model.components.local_step(units, expected, Tempering())
    out, found, sums = (
        model.components.empty_statistics("full"),
        np.empty(units.n_units),
        np.zeros(3),
    )
    own = expected.own
    kernels.locally_tempered_step(
        units.X, units.center, kernels.FULL, own.own, own.shared, np.ones(1), 0.0, 2,
        np.empty(0), np.empty(0), 256, out.own, out.shared, found, sums,
    )  # fmt: skip
    np.testing.assert_array_equal(found, 1.0)
    np.testing.assert_array_equal(out.own, plain.statistics["components"].own)
    assert tuple(sums) == (plain.energy, plain.entropy, units.n_units)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_statistics_of_given_responsibilities(covariance_type, rng):
    ctx, x, units = problem(rng, covariance_type=covariance_type)
    model = ctx.model
    r = rng.dirichlet(np.ones(3), size=len(x))
    out = model.components.empty_statistics(covariance_type)
    kind = FEATURE_KINDS[covariance_type]
    kernels.statistics_of(units.X, units.center, kind, r, 256, out.own, out.shared)
    assert_statistics(model, {"components": out}, weighted_moments(r, x, covariance_type))


def layouts(X, tmp_path):
    """The same rows in every form in which they may come."""
    yield "C", np.ascontiguousarray(X)
    yield "Fortran", np.asfortranarray(X)
    wide = np.zeros((2 * len(X), 2 * X.shape[1]), dtype=X.dtype)
    wide[::2, ::2] = X
    yield "strided", wide[::2, ::2]
    yield "reversed", np.ascontiguousarray(X[::-1])[::-1]
    frozen = X.copy()
    frozen.setflags(write=False)
    yield "read-only", frozen
    np.save(tmp_path / "rows.npy", X)
    for mode in ("r", "c"):
        yield f"memory-mapped {mode}", np.load(tmp_path / "rows.npy", mmap_mode=mode)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_layout_of_the_rows_does_not_matter(covariance_type, dtype, rng, tmp_path):
    ctx, _, units = problem(rng, covariance_type=covariance_type)
    model, rows = ctx.model, units.X.astype(dtype)
    # Features are float64 for rows of any dtype, so that only the rounding of the rows matters.
    x = rows.astype(np.float64) - units.center
    joint = expected_log_joint(model, ctx.q, x)
    moments = weighted_moments(softmax(joint, axis=1), x, covariance_type)
    expected = model.expectations(ctx.q)
    grid = np.arange(1, 11) / 10
    partition = of_whole_rows(grid, log_c(grid, np.cov(x.T), 3))
    temperatures = UnitTemperatures(grid, partition, 2)
    first = None
    for name, X in layouts(rows, tmp_path):
        before = np.array(X)
        other = Rows(X, None, units.center)
        step = model.components.local_step(other, expected, Tempering())
        assert_statistics(model, step.statistics, moments, 1e-11)
        np.testing.assert_allclose(model.log_joint(other, expected), joint, atol=1e-10)
        tempered = model.components.locally_tempered_step(other, expected, temperatures)
        sums = [one.statistics["components"] for one in (step, tempered)]
        arrays = [a for s in sums for a in (s.own, s.shared)] + [step.energy, tempered.energy]
        first = arrays if first is None else first
        for a, b in zip(arrays, first, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
        np.testing.assert_array_equal(X, before)


def test_far_outliers_and_far_components_do_not_overflow(rng):
    ctx, _, units = problem(rng)
    units.X[0] = 1e8
    step = ctx.model.components.local_step(units, ctx.model.expectations(ctx.q), Tempering())
    assert np.isfinite(step.energy) and np.isfinite(step.entropy)
    grid = np.arange(1, 101) / 100
    partition = ctx.model.unit_log_partition(grid, ctx.summary, ctx.q)
    expected = ctx.model.expectations(ctx.q)
    temperatures = UnitTemperatures(grid, partition, 2)
    local = ctx.model.components.locally_tempered_step(units, expected, temperatures)
    assert local.inverse_temperatures[0] == pytest.approx(grid[0])
    assert (local.inverse_temperatures > 0).all() and (local.inverse_temperatures <= 1).all()


# The helpers


def add_twice(x, out):
    for i in range(x.shape[0]):
        out[i] += 2.0 * x[i, 0]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache directory of the test's own, in which `add_twice` is kept for float64."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(_compile, "_warned", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _compile.kernel("rows out1")(add_twice).compile("float64")
    assert {file.suffix for file in tmp_path.rglob("*.nb?")} == {".nbi", ".nbc"}
    return tmp_path


def assert_warns_once_and_works(match):
    double = _compile.kernel("rows out1")(add_twice)
    out = np.zeros(3)
    with pytest.warns(RuntimeWarning, match=match) as caught:
        double(np.ones((3, 1)), out)
    assert len(caught) == 1
    assert "NUMBA_CACHE_DIR" in str(caught[0].message)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        double(np.ones((3, 1), dtype=np.float32), out)
        _compile.kernel("rows out1")(add_twice)(np.ones((3, 1)), out)
    np.testing.assert_array_equal(out, 6.0)


def test_kernel_without_a_cache_directory_warns_once_and_works(monkeypatch):
    njit = numba.njit

    def without_cache(*args, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function 'f': no locator available for file 'f.py'")
        return njit(*args, **options)

    monkeypatch.setattr(numba, "njit", without_cache)
    monkeypatch.setattr(_compile, "_warned", False)
    assert_warns_once_and_works("no locator available")


@pytest.mark.parametrize(
    ("damage", "suffix"),
    [
        *(("directory", ".nbc"), ("truncated", ".nbi"), ("garbage", ".nbc")),
        *(
            pytest.param(damage, suffix, marks=pytest.mark.exhaustive)
            for damage, suffix in product(("directory", "empty", "zeros"), (".nbc", ".nbi"))
        ),
    ],
)
def test_kernel_with_damaged_files_in_the_cache_warns_once_and_works(suffix, damage, cache, rng):
    (file,) = cache.rglob(f"*{suffix}")
    content = file.read_bytes()
    if damage == "directory":
        file.unlink()
        file.mkdir()
        if suffix == ".nbc":
            # numba takes a file that it cannot open for one that has gone, and writes it again.
            (file / "stays").touch()
    else:
        damaged = {
            "empty": b"",
            "truncated": content[: len(content) // 2],
            "garbage": rng.bytes(len(content)),
            "zeros": bytes(len(content)),
        }
        file.write_bytes(damaged[damage])
    assert_warns_once_and_works("cannot be kept on disk or read from there")


def test_kernel_with_a_full_disk_warns_once_and_works(cache):
    """No file can grow, as on a full disk; what has been compiled is not compiled again."""
    resource = pytest.importorskip("resource")
    for file in cache.rglob("*.nb?"):
        file.unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    double = _compile.kernel("rows out1")(add_twice)
    njit, calls = numba.njit, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba, "njit", lambda *a, **o: calls.append(o) or njit(*a, **o))
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
            with pytest.warns(RuntimeWarning, match="cannot be kept on disk") as caught:
                double.compile("float64")
                double.compile("float32")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(caught) == 1
    assert len(calls) == 2
    assert not list(cache.rglob("*.nb?"))
    out = np.zeros(3)
    double(np.ones((3, 1)), out)
    double(np.ones((3, 1), dtype=np.float32), out)
    np.testing.assert_array_equal(out, 4.0)


def test_kernels_refuse_other_dtypes():
    with pytest.raises(TypeError, match="add_twice takes float64 or float32 data, not int64"):
        _compile.kernel("rows out1")(add_twice)(np.ones((3, 1), dtype=int), np.zeros(3))


def test_other_errors_of_the_compiler_are_not_hidden(monkeypatch):
    def broken(*args, **options):
        raise RuntimeError("out of patience")

    monkeypatch.setattr(numba, "njit", broken)
    with pytest.raises(RuntimeError, match="out of patience"):
        _compile.kernel("rows out1")(add_twice).compile("float64")


def test_kernels_have_two_signatures_and_release_the_lock():
    public = [kernels.local_step, kernels.locally_tempered_step, kernels.log_joint]
    for function in (*public, kernels.statistics_of):
        for dtype in ("float64", "float32"):
            compiled = function.compile(dtype)
            assert len(compiled.nopython_signatures) == 1
            assert compiled.targetoptions["nogil"]
            assert not compiled.targetoptions.get("parallel", False)


def test_digamma_and_log_gamma():
    @numba.njit(error_model="numpy", fastmath={"contract"})
    def run(x, digammas, log_gammas):
        for i in range(len(x)):
            digammas[i], log_gammas[i] = digamma_and_log_gamma(x[i])

    x = np.concatenate([np.logspace(-300, 32, 20001), np.linspace(0.1, 20.0, 2001)])
    found = np.empty_like(x), np.empty_like(x)
    run(x, *found)
    for values, expected in zip(found, (psi(x), gammaln(x)), strict=True):
        error = np.abs(values - expected) / np.maximum(1.0, np.abs(expected))
        assert error.max() < 1e-13


def test_machine_code_on_disk_is_that_of_the_code_that_kernels_share(tmp_path):
    """If a shared module changes, all kernels have other names there."""
    own, shared, vectors = (tmp_path / name for name in ("own.py", "_shared.py", "simd/rows.py"))
    vectors.parent.mkdir()
    for path in (own, shared, vectors):
        path.write_text("x = 1")
    digest = _compile.shared_code.__wrapped__
    before = digest(tmp_path)
    own.write_text("x = 2")
    assert digest(tmp_path) == before
    for path in (shared, vectors):
        path.write_text("x = 2")
        assert digest(tmp_path) != before
        path.write_text("x = 1")
    name = _compile.shared_code(Path(_compile.__file__).parent)
    for kernel in (ragged.mark, lazy_columns.add_to_columns):
        assert kernel._function.__qualname__ == f"{kernel.__name__}_{name}"
