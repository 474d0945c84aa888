"""Tests of the scales of users, who differ in how widely they rate."""

from __future__ import annotations

import pickle

import numpy as np
import plain_matrix_factorization as plain
import pytest
from cases_matrix_factorization import NAN, pairs_of, ratings, rows_of, small
from harness import assert_identical, context_of, lower_bound
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from scipy.stats import gamma, multivariate_t, norm
from sklearn.base import clone

from sklearn_anneal import Shards
from sklearn_anneal.data.units import Ratings
from sklearn_anneal.families import Tempering
from sklearn_anneal.models._rating_scales import GAINS, SHAPES, Scales, best_shape, log_densities
from sklearn_anneal.models._rating_visits import EVIDENCE, FoldingVisit

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
both_priors = pytest.mark.parametrize("hierarchical", [True, False])


def scaled(n_components=2, **params):
    settings = {"user_scales": True, "implicit_feedback": False, "gibbs_sweeps": 0, "clip": False}
    return small(n_components, **(settings | params))


def drawn(rng, n_users=300, n_items=30, shape=2.0):
    """Ratings by users of different scales, and their precisions τ."""
    tau = rng.gamma(shape, 1.0 / shape, n_users)
    u, b = 0.6 * rng.standard_normal((n_users, 2)), 0.5 * rng.standard_normal((n_users, 1))
    v, c = 0.8 * rng.standard_normal((n_items, 2)), 0.5 * rng.standard_normal(n_items)
    noise = 0.5 * rng.standard_normal((n_users, n_items))
    Y = 3.0 + c + (u @ v.T + b + noise) / np.sqrt(tau)[:, None]
    Y[rng.random(Y.shape) < 0.3] = NAN
    return Y, tau


def users_of(est):
    """The Gaussians of users at τ = 1, and q(τ)."""
    model, sums = context_of(est).model, est._user_statistics
    natural = model.solution(model.per_noise(sums))
    rows = rows_of({f"users_{key}": value for key, value in natural.items()}, "users")
    return rows, model.users_of(sums)[1]


def test_step_is_the_evidence_of_a_student_t(rng):
    """Given items that are known exactly, the ratings of a user are multivariate t."""
    est = scaled(biases=False, fit_intercept=False).fit(ratings(rng))
    model = context_of(est).model
    V = rng.standard_normal((4, 2))
    y = rng.standard_normal(4)
    nothing = np.zeros((4, 0))
    across = model.empty_moments(4)._replace(mean=V, table=model.table_of(V), squares=nothing)
    visit = model.visit(context_of(est).q, None, evaluation=True)
    units = Ratings(y, np.arange(4, dtype=np.int32), np.array([0, 4]), 4)
    step = type(visit)(model, across, *visit_settings(visit), statistics=False).step(units)
    cov = est.factor_variance_ * V @ V.T + est.noise_variance_ * np.eye(4)
    expected = multivariate_t(np.zeros(4), cov, 2.0 * model.shape).logpdf(y)
    assert step.energy + step.entropy + step.log_prior == pytest.approx(expected, rel=1e-10)


def visit_settings(visit):
    return visit.t, visit.unit_temperatures, visit.separate_noise


@both_priors
@pytest.mark.parametrize("biases", [True, False])
def test_bound_is_a_mean_over_draws_of_all_parameters(biases, hierarchical, rng):
    """E_q[log p(y, u, τ, v) − log q] of μ, Λ at their means in a model that is hierarchical."""
    Y = ratings(rng, 4, 3)
    est = scaled(biases=biases, hierarchical=hierarchical, max_iter=30).fit(Y)
    ctx, n, d = context_of(est), 100_000, 2
    model, items, (users, scales) = ctx.model, rows_of(ctx.q, "items"), users_of(est)
    terms, z = np.zeros(n), []
    tau = np.array([rng.gamma(a, 1.0 / b, n) for a, b in zip(*scales, strict=True)])
    a = model.shape
    terms += gamma.logpdf(tau, a, scale=1.0 / a).sum(axis=0)
    terms -= np.sum(
        [gamma.logpdf(t, s, scale=1.0 / r) for t, s, r in zip(tau, *scales, strict=True)], axis=0
    )
    for side, rows in (("users", users), ("items", items)):
        precision, linear = np.diag(1.0 / model.variances), np.zeros(model.size)
        log_det, quadratic = -np.log(model.variances).sum(), 0.0
        if hierarchical:
            found = model.hierarchy.of_side(side)
            precision, linear = found.precision, found.natural_mean
            log_det, quadratic = found.log_det, found.quadratic
        drawn_rows = []
        for i, (mean, cov) in enumerate(zip(rows.mean, rows.cov, strict=True)):
            scale = tau[i] if side == "users" else np.ones(n)
            white = rng.multivariate_normal(np.zeros(len(mean)), cov, n)
            x = mean + white / np.sqrt(scale)[:, None]
            inner = np.einsum("ni,ij,nj->n", x, precision, x) - 2.0 * x @ linear + quadratic
            own = np.einsum("ni,ij,nj->n", white, np.linalg.inv(cov), white)
            # The terms ½ D log τ of both densities cancel, as D log 2π does.
            terms += 0.5 * (log_det - scale * inner) + 0.5 * (np.linalg.slogdet(cov)[1] + own)
            drawn_rows.append(x)
        z.append(np.array(drawn_rows))
    u, v = z
    f = est.intercept_ + np.einsum("ink,jnk->nij", u[..., :d], v[..., :d])
    if biases:
        f += u[..., d].T[:, :, None] + v[..., d].T[:, None, :]
    deviations = np.sqrt(est.noise_variance_ / tau.T)[:, :, None]
    terms += np.nansum(norm.logpdf(Y, f, deviations), axis=(1, 2))
    if hierarchical:
        terms -= model.hierarchy.kl
    assert abs(est.lower_bound_ - terms.mean()) < 5 * terms.std() / np.sqrt(n)


@both_priors
@pytest.mark.parametrize("variance", ["auto", 0.5])
def test_bound_never_falls(hierarchical, variance, rng):
    Y, _ = drawn(rng, 60, 12)
    est = scaled(hierarchical=hierarchical, noise_variance=variance, max_iter=80).fit(Y)
    assert np.diff(est.lower_bounds_).min() > -1e-9 * abs(est.lower_bound_)


@both_priors
def test_bound_is_below_the_log_evidence(hierarchical, rng):
    """By draws of items and their priors, which agree with the integral of a simpler model."""
    Y = np.array([[4.0, 2.5], [1.0, 3.0], [5.0, 2.0]])
    hyper = plain.Hyperparameters(3.0, 0.3, 0.6, 0.25)
    expected = plain.log_evidence(Y, hyper, 2)
    assert plain.drawn_log_evidence(Y, hyper, 2, False) == pytest.approx(expected, abs=0.02)
    for params in ({}, {"noise_variance": "auto"}, {"biases": False}):
        est = scaled(hierarchical=hierarchical, max_iter=30, **params).fit(Y)
        below = plain.matrix_factorization_log_evidence(est, Y) - est.lower_bound_
        assert 0.0 < below < 12.0


@both_priors
def test_users_who_are_predicted_exactly_leave_the_bound_its_digits(hierarchical, rng):
    """The smallest noise is some 1e-10 of the ratings' variance."""
    Y = np.tile(rng.integers(1, 6, (40, 1)).astype(float), (1, 8))
    params = dict.fromkeys(("noise_variance", "factor_variance", "bias_variance"), "auto")
    est = scaled(hierarchical=hierarchical, max_iter=200, **params).fit(Y)
    assert est.noise_variance_ < 1e-9
    assert np.diff(est.lower_bounds_).min() > -1e-3 * abs(est.lower_bound_)
    assert len(np.unique(est.user_precisions_)) > 1


def test_shape_maximises_the_bound():
    for spread in (-1.02, -1.2, -1.6):
        terms = lambda x, s=spread: -(x * np.exp(x) - gammaln(np.exp(x)) + np.exp(x) * s)  # noqa: E731
        best = minimize_scalar(terms, bounds=(0.0, 9.0), method="bounded", options={"xatol": 1e-9})
        assert best_shape(spread, 10.0) == pytest.approx(max(np.exp(best.x), 1.5), rel=1e-5)
    assert best_shape(-1.0 - 1e-12, 10.0) == pytest.approx(1e4)


@both_priors
def test_scales_are_found(hierarchical, rng):
    Y, tau = drawn(rng)
    params = dict.fromkeys(("noise_variance", "factor_variance", "bias_variance"), "auto")
    est = scaled(hierarchical=hierarchical, max_iter=200, **params).fit(Y)
    assert 1.6 < est.user_precision_shape_ < 2.5
    assert np.corrcoef(np.log(est.user_precisions_), np.log(tau))[0, 1] > 0.9
    # Users who do not differ have the largest shape in the end, and are predicted as without.
    Y = ratings(rng, 200, 20)
    same = scaled(hierarchical=hierarchical, max_iter=500, **params).fit(Y)
    other = scaled(hierarchical=hierarchical, user_scales=False, max_iter=500, **params).fit(Y)
    assert same.user_precision_shape_ > 20
    assert_allclose(same.predict_rows(Y), other.predict_rows(Y), atol=0.05)


def test_predictions_have_the_moments_of_draws(rng):
    Y, _ = drawn(rng, 40, 8)
    est = scaled(max_iter=30, noise_variance="auto").fit(Y)
    mean, std = est.predict_rows(Y[:5], return_std=True)
    tables = est.impute(Y[:5], n_draws=4000, random_state=0)
    gone = np.isnan(Y[:5])
    found = tables[:, gone]
    assert_allclose(found.mean(axis=0), mean[gone], atol=0.1 * std[gone].max())
    assert_allclose(found.std(axis=0), std[gone], rtol=0.12)
    users = np.repeat(np.arange(5), 8)
    pairs = est.predict_ratings(users, np.tile(np.arange(8), 5), return_std=True)[1]
    assert_allclose(pairs.reshape(5, 8), std, rtol=1e-10)
    unknown = est.predict_ratings([99] * 8, np.arange(8), return_std=True)[1]
    X, _ = est.sample(200_000)
    assert_allclose(X.std(axis=0), unknown, rtol=0.1)


def test_densities_integrate_to_one_with_their_deviations():
    y = np.linspace(-60.0, 60.0, 400_001)
    for shape in (4.0, np.inf):
        p = np.exp(log_densities(y, 0.5, 1.5, np.array(shape)))
        step = y[1] - y[0]
        assert p.sum() * step == pytest.approx(1.0, abs=1e-6)
        assert (p * (y - 0.5) ** 2).sum() * step == pytest.approx(1.5**2, rel=1e-3)


def test_moments_of_scales():
    scales = Scales(np.array([3.0, 8.0]), np.array([2.0, 9.0]))
    found = [gamma(a, scale=1.0 / b) for a, b in zip(*scales, strict=True)]
    assert_allclose(scales.mean, [q.mean() for q in found])
    assert_allclose(scales.entropy, [q.entropy() for q in found])
    assert_allclose(scales.inverse_mean, [q.expect(lambda t: 1.0 / t) for q in found], rtol=1e-6)
    expected = [q.expect(lambda t: gamma.logpdf(t, 2.5, scale=0.4)) for q in found]
    assert_allclose(scales.log_priors(2.5), expected, rtol=1e-6)


@pytest.mark.parametrize("input", ["matrix", "pairs"])
def test_result_does_not_depend_on_the_number_of_threads(input, rng):
    Y, _ = drawn(rng, 900, 30)
    given = pairs_of(Y) if input == "pairs" else (Y,)
    one, two = (scaled(input=input, n_jobs=n, max_iter=5).fit(*given) for n in (1, 2))
    assert one.lower_bound_ == two.lower_bound_
    assert_array_equal(one.user_precisions_, two.user_precisions_)


def test_users_of_data_in_parts_have_scales(rng):
    """They stay with the parts, and are inferred again for predictions."""
    Y, _ = drawn(rng, 60, 12)
    params = {"noise_variance": "auto", "max_iter": 40}
    whole, parts = scaled(**params).fit(Y), scaled(**params).fit(Shards([Y[:25], Y[25:]]))
    assert parts.lower_bound_ == pytest.approx(whole.lower_bound_, rel=1e-9)
    assert parts.user_precision_shape_ == pytest.approx(whole.user_precision_shape_, rel=1e-6)
    assert len(parts.user_precisions_) == 0
    for found, known in zip(
        parts.predict_rows(Y, return_std=True), whole.predict_rows(Y, return_std=True), strict=True
    ):
        assert_allclose(found, known, rtol=1e-6)
    assert parts.score(Y) == pytest.approx(whole.score(Y), rel=1e-6)


def test_warm_starts_and_checkpoints_keep_the_shape(rng, tmp_path, monkeypatch):
    Y, _ = drawn(rng, 60, 12)
    est = scaled(noise_variance="auto", max_iter=30, warm_start=True).fit(Y)
    shape, bound = est.user_precision_shape_, est.lower_bound_
    assert est.set_params(max_iter=1).fit(Y).lower_bound_ >= bound - 1e-9 * abs(bound)
    assert est.user_precision_shape_ == pytest.approx(shape, rel=0.1)
    whole, cut = (scaled(noise_variance="auto", max_iter=30) for _ in range(2))
    whole.fit(Y)
    with monkeypatch.context() as patch:
        step, calls = FoldingVisit.step, []

        def interrupted(*args, **kwargs):
            calls.append(1)
            if len(calls) == 15:
                raise KeyboardInterrupt
            return step(*args, **kwargs)

        patch.setattr(FoldingVisit, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cut.fit(Y, checkpoint=tmp_path / "fit")
    cut.fit(Y, checkpoint=tmp_path / "fit")
    assert_array_equal(cut.lower_bounds_, whole.lower_bounds_)
    assert cut.user_precision_shape_ == whole.user_precision_shape_
    assert_array_equal(cut.user_precisions_, whole.user_precisions_)


def test_ratings_of_a_stream_add_up(rng):
    """The scale of a user follows from the ratings of all batches."""
    Y, _ = drawn(rng, 12, 8)
    X, y = pairs_of(Y)
    first = X[:, 1] < 4
    est = scaled(input="pairs", n_items=8).partial_fit(X[first], y[first])
    said = est._user_statistics["ratings"].copy()
    est.partial_fit(X[~first], y[~first])
    now = est._user_statistics["ratings"]
    assert_array_equal(now[:, 0], np.isfinite(Y).sum(axis=1))
    assert (now[:, 1] >= said[:, 1]).all()


def test_scales_wait_for_the_temperature_of_one(rng):
    Y, _ = drawn(rng, 60, 12)
    est = scaled(annealing="deterministic", noise_variance="auto").fit(Y)
    model, q, units = (
        context_of(est).model,
        context_of(est).q,
        est._make_units(est._validate_data(Y, reset=False), None),
    )
    hot = model.visit(q, units, Tempering(0.5, 0.5, 1.0)).step(units)
    cold = model.visit(q, units).step(units)
    spread = 5
    assert hot.statistics[EVIDENCE][spread] == 0.0
    assert cold.statistics[EVIDENCE][spread] < -60.0
    assert model.learned(q, {}, hot, 1.0, 1.0)[0].shape == model.shape


def test_equal_ratings_have_no_scales():
    est = scaled(noise_variance="auto").fit(np.full((3, 3), 2.0))
    assert_array_equal(est.user_precisions_, np.ones(3))
    assert est.user_precision_shape_ == np.inf


def test_a_stream_may_begin_with_equal_ratings(rng):
    """Its variances are given; later users have scales, and priors are learned."""
    est = scaled(hierarchical=True).partial_fit(np.full((3, 6), 2.0))
    for _ in range(120):
        est.partial_fit(drawn(rng, 20, 6)[0])
    assert est.user_precision_shape_ < 9.0
    assert est.user_precisions_.std() > 0.1
    assert np.abs(est.user_prior_mean_).max() > 0.0


def test_unseen_users_are_users_without_ratings(rng):
    """In means, deviations and densities."""
    Y, _ = drawn(rng, 20, 6)
    Y[0] = NAN
    est = scaled(hierarchical=True, max_iter=30).fit(Y)
    for found in est.predict_ratings([0, 20, -1], [3, 3, 3], return_std=True):
        assert_allclose(found, found[0], rtol=1e-12)
    X, y = pairs_of(Y)
    est = scaled(input="pairs", n_users=25, max_iter=30).fit(X, y)
    assert est.score([[24, 3]], [5.0]) == pytest.approx(est.score([[99, 3]], [5.0]), rel=1e-12)


# Scales that wait for the end of the search


def waiting(n_components=2, **params):
    """A fit that may take its scales at the end, with learned variances."""
    learned = dict.fromkeys(("noise_variance", "factor_variance", "bias_variance"), "auto")
    settings = {"user_scales": "auto", "hierarchical": True, "max_iter": 60, "tol": 1e-6}
    return scaled(n_components, **(learned | settings | params))


def extensions(est):
    moves = est.search_results_
    return moves["kept"][moves["move"] == "extension"].tolist()


@both_priors
@pytest.mark.parametrize("biases", [True, False])
def test_gains_of_scales_are_those_of_the_bound(biases, hierarchical, rng):
    Y, _ = drawn(rng, 30, 8)
    est = waiting(hierarchical=hierarchical, biases=biases, user_scales=False).fit(Y)
    ctx = context_of(est)
    ctx.model.waiting, weights = True, rng.uniform(0.5, 2.0, len(Y))
    units = est._make_units(est._validate_data(Y, reset=False), weights)
    step = ctx.model.visit(ctx.q, units, evaluation=True).step(units)
    without = lower_bound(ctx, units)
    for shape, gain in zip(SHAPES[::5], step.statistics[GAINS][::5], strict=True):
        ctx.model.user_scales, ctx.model.shape = True, shape
        assert lower_bound(ctx, units) - without == pytest.approx(gain, abs=1e-8 * abs(without))


@both_priors
def test_scales_are_taken_only_if_the_bound_is_higher(hierarchical):
    taken = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        Y, _ = drawn(rng, 100, 20, shape=1e6 if seed < 6 else 6.0)
        auto, without = (
            waiting(hierarchical=hierarchical, user_scales=value).fit(Y)
            for value in ("auto", False)
        )
        found = bool(np.isfinite(auto.user_precision_shape_))
        assert extensions(auto) == [True] * found
        if found:
            n = len(without.lower_bounds_)
            assert_array_equal(auto.lower_bounds_[:n], without.lower_bounds_)
            assert auto.lower_bound_ > without.lower_bound_
        else:
            assert auto.lower_bound_ == without.lower_bound_
            assert_array_equal(auto.predict_rows(Y), without.predict_rows(Y))
            assert_array_equal(auto.user_precisions_, np.ones(len(Y)))
        taken.append(found)
    # Users who do not differ can do so by chance.
    assert not all(taken[:6]) and all(taken[6:])


METHODS = ("none", "deterministic", "stochastic", "svi_plus", "local_tempering")


@pytest.mark.parametrize("annealing", METHODS)
def test_the_bound_does_not_fall_when_scales_enter(annealing, rng):
    """Methods that put noise into users hold them in q until then."""
    Y, _ = drawn(rng, 60, 12)
    est = waiting(annealing=annealing, max_iter=30).fit(Y)
    assert extensions(est) == [True]
    plain = est.lower_bounds_[len(est.lower_bounds_) - 40 :]
    assert np.diff(plain).min() > -1e-9 * abs(est.lower_bound_)


def held_out(Y, rng):
    """The same ratings without a fifth of them, and these as pairs."""
    gone = np.isfinite(Y) & (rng.random(Y.shape) < 0.2)
    return np.where(gone, NAN, Y), np.argwhere(gone), Y[gone]


def densities(Y, rng, **params):
    X, pairs, y = held_out(Y, rng)
    found = []
    for scales in (False, "auto"):
        est = waiting(user_scales=scales, annealing="deterministic", **params).fit(X)
        mean, std = est.predict_ratings(*pairs.T, return_std=True)
        _, q = context_of(est).model.users_of(est._user_statistics)
        shape = np.full(len(y), np.inf) if q is None else q.shape[pairs[:, 0]]
        found.append(log_densities(y, mean, std, shape).mean())
    return est, found


def test_users_who_differ_are_predicted_better(rng):
    est, (without, auto) = densities(drawn(rng)[0], rng, max_iter=100)
    assert 1.5 < est.user_precision_shape_ < 4.0
    assert auto > without + 0.05


def test_users_who_do_not_differ_are_predicted_as_well(rng):
    for n_users, n_items in ((60, 12), (200, 20)):
        _, (without, auto) = densities(drawn(rng, n_users, n_items, shape=1e6)[0], rng)
        assert auto > without - 0.01


@pytest.mark.parametrize("input", ["matrix", "pairs"])
def test_threads_take_the_same_scales(input, rng):
    Y, _ = drawn(rng, 900, 30)
    given = pairs_of(Y) if input == "pairs" else (Y,)
    one, two = (waiting(input=input, n_jobs=n, max_iter=5).fit(*given) for n in (1, 2))
    assert extensions(one) == [True]
    assert_identical(one, two)


def test_scales_that_were_taken_survive_copies(rng):
    Y, _ = drawn(rng, 60, 12)
    est = waiting(max_iter=10).fit(Y)
    assert clone(est).user_scales == "auto"
    again = pickle.loads(pickle.dumps(est))
    assert_identical(est, again)
    for found, known in zip(
        again.predict_rows(Y, return_std=True), est.predict_rows(Y, return_std=True), strict=True
    ):
        assert_array_equal(found, known)


def test_warm_starts_and_streams_keep_what_a_fit_has_decided(rng):
    Y, _ = drawn(rng, 60, 12)
    est = waiting(max_iter=20, warm_start=True).fit(Y)
    shape, bound = est.user_precision_shape_, est.lower_bound_
    assert np.isfinite(shape)
    est.set_params(max_iter=1).fit(Y)
    assert est.lower_bound_ >= bound - 1e-9 * abs(bound)
    assert est.user_precision_shape_ == pytest.approx(shape, rel=0.1)
    est.partial_fit(drawn(rng, 20, 12)[0])
    assert est.user_precisions_.std() > 0.1
    # One that has not taken them does without, although it would take them now.
    none = waiting(max_iter=0, warm_start=True).fit(Y)
    assert np.isinf(none.set_params(max_iter=20).fit(Y).user_precision_shape_)


def test_updates_of_a_new_stream_have_no_scales(rng):
    batches = [drawn(rng, 20, 8)[0] for _ in range(4)]
    auto, without = (waiting(user_scales=value, max_iter=1) for value in ("auto", False))
    for batch in batches:
        auto.partial_fit(batch)
        without.partial_fit(batch)
    assert_array_equal(auto.components_, without.components_)
    assert_array_equal(auto.user_precisions_, np.ones(20))


def test_parts_and_minibatches_take_scales(rng):
    Y, _ = drawn(rng, 60, 12)
    whole, parts = waiting().fit(Y), waiting().fit(Shards([Y[:25], Y[25:]]))
    assert extensions(parts) == [True]
    assert parts.lower_bound_ == pytest.approx(whole.lower_bound_, rel=1e-9)
    assert parts.user_precision_shape_ == pytest.approx(whole.user_precision_shape_, rel=1e-6)
    batches = waiting(batch_size=20).fit(Y)
    assert extensions(batches) == [True]
    assert batches.user_precision_shape_ == pytest.approx(whole.user_precision_shape_, rel=0.5)


def test_restarts_are_compared_without_scales(rng):
    Y, _ = drawn(rng, 60, 12)
    for restarts in ("full", "race"):
        auto, without = (
            waiting(user_scales=value, n_init=3, restarts=restarts).fit(Y)
            for value in ("auto", False)
        )
        assert_array_equal(auto.restart_lower_bounds_, without.restart_lower_bounds_)
        assert auto.lower_bound_ > without.lower_bound_


def test_fits_without_plain_passes_have_no_scales(rng):
    Y, _ = drawn(rng, 60, 12)
    for params in ({"annealing": "structured", "max_iter": 20}, {"max_iter": 0}):
        est = waiting(**params).fit(Y)
        assert extensions(est) == []
        assert np.isinf(est.user_precision_shape_)
    same = waiting().fit(np.full((3, 3), 2.0))
    assert extensions(same) == []
    assert_array_equal(same.user_precisions_, np.ones(3))


def test_an_interrupted_extension_goes_on(rng, tmp_path, monkeypatch):
    Y, _ = drawn(rng, 60, 12)
    whole, cut = (waiting(max_iter=20) for _ in range(2))
    whole.fit(Y)
    n = whole.search_results_["n_before"][whole.search_results_["move"] == "extension"][0]
    with monkeypatch.context() as patch:
        step, scaled_steps = FoldingVisit.step, []

        def interrupted(visit, *args, **kwargs):
            if visit.model.user_scales:
                scaled_steps.append(1)
            if len(scaled_steps) == 6:
                raise KeyboardInterrupt
            return step(visit, *args, **kwargs)

        patch.setattr(FoldingVisit, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cut.fit(Y, checkpoint=tmp_path / "fit")
    cut.fit(Y, checkpoint=tmp_path / "fit")
    assert n < len(cut.lower_bounds_)
    assert_array_equal(cut.lower_bounds_, whole.lower_bounds_)
    assert_array_equal(cut.user_precisions_, whole.user_precisions_)
