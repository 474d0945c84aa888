"""Tests of annealing methods on ratings."""

from __future__ import annotations

from functools import partial

import numpy as np
import plain_matrix_factorization as plain
import pytest
from cases_matrix_factorization import (
    DEFAULT,
    NAN,
    TRUTH,
    VARIANTS,
    all_variants,
    assert_rows,
    draw,
    full,
    hyper_of,
    pairs_of,
    ratings,
    rows_of,
    small,
)
from harness import context_of, one_update, open_run, prepared_visit, quick
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.special import softmax
from scipy.stats import norm
from sklearn.base import clone

from sklearn_anneal.annealing import (
    LocalVariationalTempering,
    StochasticAnnealing,
    SVIPlus,
    VariationalTempering,
)
from sklearn_anneal.families import Gaussian, backoff, fast_normal

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# SVI+


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_of_next_to_nothing_leave_next_to_nothing(dtype, rng):
    """Dirichlet noise makes most weights tiny: their sums are no differences of large ones."""
    ctx, _, units = open_run(small(), ratings(rng, 60, 40).astype(dtype))
    weights = np.full(units.n_weight_units, 1e-12)
    for block in ctx.model.blocks:
        found = []
        for noise in (None, weights):
            visit, batch = prepared_visit(ctx, units, block)
            found.append(visit.step(batch, noise).statistics)
        plain, faint = found
        for key in block.keys:
            size = np.abs(plain[key]).max()
            assert_allclose(faint[key], 1e-12 * plain[key], rtol=0, atol=1e-18 * size, err_msg=key)


def test_effective_size_grows_to_all_ratings(rng):
    """From one rating (or 1e-4 of them) linearly; the noise ends where plain inference begins."""
    ctx, method, units = open_run(small(annealing="svi_plus"), ratings(rng, 60, 40))
    n = units.n_weight_units
    assert method.noise == "gaussian" and method.learning_rate == 0.85 and method.margin == 0.2
    n_passes = method.n_passes
    for t in range(n_passes + 1):
        ctx.state["passes"] = t
        expected = 1 + (n - 1) * t / n_passes
        assert method.effective_size(ctx, n) == pytest.approx(expected, rel=1e-9)
    assert method.weights(ctx, n) is None


@pytest.mark.parametrize("variant", ["biases", "plain"])
def test_noisy_updates_are_those_of_the_definition(variant, rng):
    """One ε per rating and visit of a block, centred; a share of every step; the rows' backoff."""
    Y = ratings(rng)
    X, _ = pairs_of(Y)
    method = SVIPlus(0.2, "gaussian", "linear", 10, 0.85, 0.2)
    ctx, method, units = open_run(small(annealing=method, **VARIANTS[variant]), Y)
    hyper, n = hyper_of(ctx.model), len(X)
    backed_off = 0
    for p in range(4):
        users, items = rows_of(ctx.q, "users"), rows_of(ctx.q, "items")
        source = np.random.default_rng()
        source.bit_generator.state = ctx.rng.bit_generator.state
        effective = n * (0.2 + 0.8 * p / 10)
        one_update(ctx, method, units)
        new = {}
        for side, old in (("users", users), ("items", items)):
            noise = fast_normal(n, source, float(np.sqrt(n / effective - 1)))
            noise -= noise.mean()
            assert noise.dtype == np.float32
            noise = 1 + noise.astype(float)
            W = np.full(Y.shape, NAN)
            # Ratings of users one after another, or of items one after another.
            order = np.argsort(X[:, 1], kind="stable") if side == "items" else slice(None)
            W[tuple(X[order].T)] = noise
            across, table = (items, Y) if side == "users" else (new["users"], Y.T)
            weights = W if side == "users" else W.T
            clean, noisy = (
                [0.15 * a + 0.85 * b
                 for a, b in zip(old, plain.updated(table, across, hyper, w), strict=True)]
                for w in (None, weights)
            )  # fmt: skip
            rows = [np.empty_like(part) for part in clean]
            for i in range(len(table)):
                least = np.linalg.eigvalsh(clean[0][i])[0]
                for share in (*2.0 ** -np.arange(13), 0.0):
                    for k in range(2):
                        rows[k][i] = clean[k][i] + share * (noisy[k][i] - clean[k][i])
                    if np.linalg.eigvalsh(rows[0][i])[0] >= 0.2 * least:
                        break
                backed_off += share < 1
            new[side] = plain.Rows(*rows)
            assert_rows(ctx.q, side, new[side], 1e-8)
    assert backed_off > 5


@pytest.mark.parametrize("margin", [0.0, 0.2])
@pytest.mark.parametrize("d", [1, 3, 6])
def test_backoff_is_that_of_the_family(d, margin, rng):
    est = small(d)
    ctx, _, _ = open_run(est, ratings(rng, 200, 50))
    family = Gaussian("packed")
    size = d + 1
    for scale in (0.5, 3.0, 50.0):
        a = rng.standard_normal((200, size, size + 2))
        rows, columns = np.tril_indices(size)
        clean = {
            "precision": np.ascontiguousarray((a @ a.swapaxes(1, 2))[:, rows, columns]),
            "natural_mean": rng.standard_normal((200, size)),
        }
        deviation = {k: scale * rng.standard_normal(v.shape) for k, v in clean.items()}
        deviation["natural_mean"][3, 0] = NAN
        deviation["precision"][4, 0] = np.inf
        named = [{f"users_{k}": v.copy() for k, v in one.items()} for one in (clean, deviation)]
        found = ctx.model.factors().backoff(*named, 0.85, margin)
        valid = partial(family.valid, reference=clean, margin=margin)
        with np.errstate(invalid="ignore"):
            expected = backoff(clean, deviation, valid, 0.85)
        for key, value in expected.items():
            error, name = min(1e-14 * scale, 1e-13), f"{scale} {key}"
            assert_allclose(found[f"users_{key}"], value, rtol=1e-14, atol=error, err_msg=name)
        shares = (expected["natural_mean"] == clean["natural_mean"]).all(axis=1)
        assert shares[3] and shares[4]
        if scale > 1:
            moved = clean["precision"] + 0.85 * deviation["precision"]
            assert not np.allclose(expected["precision"], moved)


# Other methods


@pytest.mark.parametrize("seed", range(2))
def test_annealing_keeps_the_factors(seed):
    """Hot posteriors are symmetric; cooling has to find the factors again."""
    rng = np.random.default_rng(seed)
    Y, known = draw(rng, 200, 50, observed=0.3, hyper=TRUTH._replace(factor=0.5, noise=0.36))
    Y = np.where(known, Y, NAN)
    params = {"max_iter": 300, "tol": 1e-7, **DEFAULT}
    reference = small(3, **params).fit(Y).lower_bound_
    for name in ("deterministic", "stochastic", "tempering", "svi_plus"):
        bound = small(3, annealing=name, **params).fit(Y).lower_bound_
        assert bound > reference - 1e-3 * abs(reference), name


def test_jitter_displaces_the_means_of_items(rng):
    """By N(0, size²) prior standard deviations; precisions and users stay."""
    ctx, _, _ = open_run(small(), ratings(rng, 10, 4000))
    moved = ctx.model.jitter(ctx.q, 0.2, rng, ctx.prior)
    assert moved.keys() == ctx.q.keys()
    for key in moved.keys() - {"items_natural_mean"}:
        assert_array_equal(moved[key], ctx.q[key])
    shift = rows_of(moved, "items").mean - rows_of(ctx.q, "items").mean
    deviations = np.sqrt(TRUTH.prior_variances(3))
    assert_allclose(shift.std(axis=0), 0.2 * deviations, rtol=0.06)
    assert (np.abs(shift.mean(axis=0)) < 4 * 0.2 * deviations / np.sqrt(4000)).all()


@pytest.mark.parametrize("x", [0.1, 0.5, 1.0])
def test_log_partition_is_the_volume_of_a_tempered_rating(x, rng):
    """∫ N(y; f, σ²)^x dy, whatever f is."""
    Y = ratings(rng)
    ctx, _, units = open_run(small(noise_variance=0.37), Y)
    width = 20.0 * np.sqrt(0.37 / x)
    for f in (0.0, 2.5):
        volume = quad(lambda y, f=f: norm.pdf(y, f, 0.37**0.5) ** x, f - width, f + width)[0]
        found = ctx.model.unit_log_partition(np.array([x]), ctx.summary, ctx.q)
        assert found[0] == pytest.approx(np.log(volume), abs=1e-8)
    whole = ctx.model.log_partition(np.array([x]), ctx.summary, ctx.q)
    assert whole[0] == pytest.approx((~np.isnan(Y)).sum() * found[0])


def test_stationary_inverse_temperature(rng):
    """x ℓ − log C(x) is largest where x = σ² / E(y − f)², if that is below 1."""
    Y = ratings(rng, 150, 40)
    method = VariationalTempering(n_temperatures=2000, damping=0.5, n_passes=300)
    est = small(annealing=method, max_iter=0, noise_variance=0.5 * TRUTH.noise).fit(Y)
    x = 1 / est.temperatures_[-1]
    items, hyper = rows_of(context_of(est).q, "items"), plain.hyperparameters(est)
    users = plain.updated(Y, items, hyper, x=x)
    error = np.nanmean(plain.squared_errors(Y, users, items, hyper))
    assert x < 0.8
    assert x == pytest.approx(hyper.noise / error, rel=1e-3)


@pytest.mark.parametrize("n_rounds", [1, 3])
@all_variants
def test_local_temperatures_are_those_of_the_definition(variant, n_rounds, rng):
    """Rounds of q(u) at E[1/T] and of r ∝ exp{x ℓ − n log c(x)}, n the user's ratings."""
    Y = ratings(rng)
    method = LocalVariationalTempering(40, n_rounds, 3)
    est = small(annealing=method, **VARIANTS[variant]).fit(Y)
    hyper, items = plain.hyperparameters(est), rows_of(context_of(est).q, "items")
    grid = np.arange(1, 41) / 40
    log_c = 0.5 * ((1 - grid) * np.log(2 * np.pi * hyper.noise) - np.log(grid))
    x = np.full(len(Y), grid.mean())
    for _ in range(n_rounds):
        users = plain.updated(Y, items, hyper, x=x)
        energies = np.nansum(plain.log_densities(Y, users, items, hyper), axis=1)
        n = (~np.isnan(Y)).sum(axis=1)
        x = softmax(np.outer(energies, grid) - np.outer(n, log_c), axis=1) @ grid
    found = est.inverse_temperatures(Y)
    assert_allclose(found, x, rtol=1e-9)
    # Without ratings the temperature has its prior.
    assert found[0] == pytest.approx(grid.mean())


def test_local_tempering_listens_less_to_random_ratings(rng):
    Y, known = draw(rng, 200, 60, observed=0.5)
    Y[:20] = rng.uniform(-4.0, 10.0, (20, 60))
    Y = np.where(known, Y, NAN)
    est = small(annealing="local_tempering").fit(Y)
    x = est.inverse_temperatures(Y)
    assert x.shape == (200,) and ((x > 0) & (x <= 1)).all()
    assert x[:20].max() < x[20:].min()
    X, y = pairs_of(Y)
    pairs = clone(est).set_params(input="pairs").fit(X, y)
    assert_allclose(pairs.inverse_temperatures(X, y), x, rtol=1e-6)


def test_stochastic_annealing_draws_anew_for_every_update(rng):
    """One η for both blocks of an update; the target is mixed with it."""
    Y = ratings(rng)
    method = StochasticAnnealing(0.6, "linear", 4, "init_params")
    ctx, method, units = open_run(small(annealing=method), Y)
    hyper = hyper_of(ctx.model)
    for p in range(3):
        items = rows_of(ctx.q, "items")
        one_update(ctx, method, units)
        share = 0.6 * (1 - p / 4)
        # What is left without the share of the target is a diagonal, typical precision.
        target = plain.updated(Y, items, hyper)
        eta = (full(ctx.q["users_precision"]) - (1 - share) * target.precision) / share
        typical = units.n_observations / len(Y) / hyper.noise
        expected = np.array([
            1 / hyper.factor + typical * hyper.factor, 1 / hyper.factor + typical * hyper.factor,
            1 / hyper.bias + typical,
        ])  # fmt: skip
        assert_allclose(eta, np.broadcast_to(np.diag(expected), eta.shape), rtol=1e-8, atol=1e-8)


def test_temperature_of_pairs_is_a_mean(rng):
    Y = ratings(rng, 30, 12)
    X, y = pairs_of(Y)
    for params in ({}, {"input": "pairs"}, {"batch_size": 7}, {"input": "pairs", "batch_size": 7}):
        est = small(annealing=quick("local_tempering"), max_iter=2, **params)
        est.fit(*((X, y) if "input" in params else (Y,)))
        assert (est.temperatures_ >= 1 - 1e-12).all()
        assert est.temperatures_[0] > 1
