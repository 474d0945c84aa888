"""Mixtures whose weights depend on covariates by a multinomial logit."""

from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import pandas as pd
import pytest
from harness import (
    assert_identical,
    context_of,
    finish_run,
    make_threads_worthwhile,
    open_run,
    quick,
)
from numpy.testing import assert_allclose, assert_array_equal
from peer_priors import PEER_OF_COLUMNS, PEER_OF_MIXTURES
from scipy.special import betaln, log_softmax, logsumexp, softmax
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedBayesianMixture, Shards
from sklearn_anneal.annealing import NoAnnealing
from sklearn_anneal.data.units import Rows
from sklearn_anneal.families import Tempering
from sklearn_anneal.models._covariates import Gate, LogitWeights, contrasts

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("few_passes_of_searches"),
]

METHODS = ("none", "deterministic", "stochastic", "svi_plus", "structured", "proximity")
OWN = ("weight_concentration_prior",)
FORMS = {
    "bernoulli": {"emission": "bernoulli"},
    "blocks": {"emission": [("b", "bernoulli", [0, 1]), ("g", "gaussian", [2, 3])]},
    "full": {},
    "tied": {"covariance_type": "tied"},
}
forms = pytest.mark.parametrize("form", FORMS)


def make(form="bernoulli", **params):
    """An estimator without learned priors, of the parameters that a form has."""
    own = FORMS[form]
    settings = {"annealing": "none", "n_components": 3, "max_iter": 8, "random_state": 0} | own
    if "emission" in own:
        fixed = {name: None for name in PEER_OF_COLUMNS if name not in OWN}
        return AnnealedBayesianMixture(**(fixed | settings | params))
    fixed = {name: None for name in PEER_OF_MIXTURES if name not in OWN}
    return AnnealedBayesianGaussianMixture(**(fixed | settings | params))


def drawn(rng, n=300, separation=0.9, slopes=(1.0, 0.0, -1.0), n_columns=6):
    """Binary rows of three classes whose weights depend on the first of two covariates."""
    Z = rng.normal(5.0, 2.0, size=(n, 2))
    weights = softmax(np.multiply.outer((Z[:, 0] - 5.0) / 2.0, slopes), axis=1)
    z = (weights.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    ones = np.array([[1] * n_columns, [1, 0] * (n_columns // 2), [0] * n_columns])
    ones = np.where(ones, separation, 1.0 - separation)
    return (rng.random((n, n_columns)) < ones[z]).astype(float), Z, z


def rows_of(form, rng, n=120, holes=0.1):
    X, Z, z = drawn(rng, n, n_columns=4)
    if form != "bernoulli":
        first = 2 if form == "blocks" else 0
        X[:, first:] = 4.0 * X[:, first:] + rng.standard_normal((n, 4 - first))
    X[rng.random(X.shape) < holes] = np.nan
    return X, Z, z


def opened(est, X, Z, weights=None):
    return open_run(est, est._with_covariates(X, Z, False), weights)


# The weights and their bound


def test_contrasts_are_orthonormal_and_sum_to_zero():
    for k in (2, 3, 7):
        c = contrasts(k)
        assert_allclose(c.T @ c, np.eye(k - 1), atol=1e-14)
        assert_allclose(c.sum(axis=0), 0.0, atol=1e-14)


@pytest.mark.parametrize("k", [2, 4])
def test_expected_log_weights_are_below_those_of_draws(k, rng):
    values, root = rng.normal(size=(3, k - 1)), 0.7 * rng.normal(size=(3, 3))
    gate = Gate(np.zeros(2), np.ones(2), values, root @ root.T)
    rows = Rows(np.zeros((20, 1)), covariates=rng.normal(size=(20, 2)))
    found, u = gate.log_weights(rows), gate.design(rows.covariates)
    draws = values + np.einsum("ab,sbk->sak", root, rng.normal(size=(4000, 3, k - 1)))
    each = log_softmax(np.einsum("np,spk,lk->snl", u, draws, contrasts(k)), axis=2)
    assert (found <= each.mean(axis=0) + 5.0 * each.std(axis=0) / np.sqrt(4000)).all()
    # It is exact for coefficients that are known.
    sure = Gate(gate.center, gate.scale, values, 0.0 * root)
    exact = log_softmax(u @ values @ contrasts(k).T, axis=1)
    assert_allclose(sure.log_weights(rows), exact, atol=1e-12)


def log_evidence(X, Z, scale):
    """log p(X | Z) of two components of one binary column, by enumeration and a grid of Γ."""
    u = np.column_stack([np.ones(len(Z)), (Z - Z.mean()) / Z.std()])
    grid = [np.linspace(-6.0, 6.0, 121) * s for s in (5.0, scale)]
    a, b = np.meshgrid(*grid, indexing="ij")
    prior = -0.5 * ((a / 5.0) ** 2 + (b / scale) ** 2) - np.log(2.0 * np.pi * 5.0 * scale)
    cell = np.log((grid[0][1] - grid[0][0]) * (grid[1][1] - grid[1][0]))
    # Γ has one column, and the two classes have ±1/√2 of it.
    eta = np.sqrt(2.0) * (u[:, :1, None] * a + u[:, 1:, None] * b)
    logs = np.stack([-np.logaddexp(0.0, -eta), -np.logaddexp(0.0, eta)])
    terms = []
    for z in product((0, 1), repeat=len(X)):
        of_weights = logsumexp(prior + sum(logs[k, i] for i, k in enumerate(z))) + cell
        ones = [X[np.equal(z, k), 0] for k in (0, 1)]
        columns = sum(betaln(1 + x.sum(), 1 + (1 - x).sum()) for x in ones)
        terms.append(of_weights + columns)
    return float(logsumexp(terms))


def test_bound_is_below_the_log_evidence(rng):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X, Z = rng.integers(0, 2, size=(4, 1)).astype(float), rng.normal(3.0, 2.0, size=(4, 1))
        est = make(n_components=2, max_iter=200, tol=1e-8, coefficients_prior=1.5)
        found = est.fit(X, covariates=Z).lower_bound_
        exact = log_evidence(X, Z, 1.5)
        assert exact - 5.0 < found < exact


@pytest.mark.parametrize("scale", [0.7, "auto"])
@forms
def test_bound_never_falls(form, scale, rng):
    X, Z, _ = rows_of(form, rng)
    weights = rng.random(len(X)) + 0.5
    est = make(form, max_iter=30, coefficients_prior=scale).fit(X, None, weights, covariates=Z)
    rises = np.diff(est.lower_bounds_)
    assert (rises > -1e-9 * abs(est.lower_bound_)).all()
    assert rises[0] > 0.1


@pytest.mark.parametrize("form", ["bernoulli", "full"])
@pytest.mark.parametrize("t", [Tempering(0.5, 0.5, 1.0), Tempering(0.5, 0.5, 0.5)])
def test_update_at_a_temperature_raises_the_tempered_bound(t, form, rng):
    # x E log p(x, z | β) + H[q(z)] + (x of the prior) E log p(β) + H[q(β)], as in the contract.
    X, Z, _ = rows_of(form, rng, 60)
    ctx, _, units = opened(make(form), X, Z)
    model, before = ctx.model, -np.inf
    for _ in range(6):
        visit = model.visit(ctx.q, units, t)
        step = visit.finish(visit.step(visit.view(units)))
        of_prior = -model.kl(ctx.q, ctx.prior) - model.factors().entropy(ctx.q)
        value = t.local * step.energy + step.entropy
        value += t.prior * of_prior + model.factors().entropy(ctx.q)
        assert value > before - 1e-9 * abs(value)
        before = value
        base = model.factors().base(ctx.q)
        for block in model.blocks:
            stats = model.block_statistics(block, step.statistics, ctx.q)
            for key in block.keys:
                own = base[key] + t.prior * (ctx.prior[key] - base[key])
                ctx.q = ctx.q | {key: own + stats[key]}


@forms
def test_statistics_are_sums_over_rows(form, rng):
    """Two visits to halves of the rows have the statistics of one to all of them."""
    X, Z, _ = rows_of(form, rng)
    ctx, _, units = opened(make(form), X, Z, rng.random(len(X)) + 0.5)
    visit = ctx.model.visit(ctx.q, units, Tempering(0.8, 0.6))
    noise = rng.random(len(X))
    whole = visit.step(units, noise)
    parts = [visit.step(units.take(i), noise[i]) for i in (slice(0, 50), slice(50, None))]
    total = visit.merge(*parts)
    assert total.bound == pytest.approx(whole.bound, rel=1e-12)
    for name in ("precision", "natural_mean"):
        one, other = (getattr(step.statistics["gate"], name) for step in (total, whole))
        assert_allclose(one, other, rtol=1e-10, atol=1e-10)


# Results


def test_coefficients_are_those_of_a_logit_where_classes_are_known(rng):
    _, Z, y = drawn(rng, 200)
    X = np.zeros((200, 1))
    est = AnnealedBayesianMixture(
        n_components_per_class=1, annealing="none", max_iter=2000, tol=1e-13, effort=0
    ).fit(X, y, covariates=Z)
    u = np.column_stack([np.ones(200), (Z - Z.mean(axis=0)) / Z.std(axis=0)])
    peer = LogisticRegression(C=2.5**2, fit_intercept=False, tol=1e-10, max_iter=1000)
    # scikit-learn has one scale for all columns, so that the intercept is a column of 2.
    peer.fit(u * [2.0, 1.0, 1.0], y)
    expected = peer.coef_ * [2.0, 1.0, 1.0]
    found = np.column_stack([est.intercepts_, est.coefficients_])
    back = np.diag(np.append(1.0, 1.0 / Z.std(axis=0)))
    back[0, 1:] = -Z.mean(axis=0) / Z.std(axis=0)
    assert_allclose(found, expected @ back.T, atol=2e-4)
    # Deviations are those of the curvature of the log posterior at the mode.
    p = softmax(u @ expected.T, axis=1)
    own = np.einsum("nk,kl->nkl", p, np.eye(3)) - np.einsum("nk,nl->nkl", p, p)
    c, prior = contrasts(3), np.diag([0.04, 0.16, 0.16])
    information = np.einsum("np,nkl,nq,ki,lj->piqj", u, own, u, c, c).reshape(6, 6)
    information += np.kron(prior, np.eye(2))
    of_values = np.linalg.inv(information).reshape(3, 2, 3, 2)
    exact = np.einsum("pa,ki,aibj,qb,lj->kplq", back, c, of_values, back, c)
    assert_allclose(est.coefficients_covariance_, exact, rtol=2e-3, atol=1e-6)


def test_deviations_are_the_changes_by_tilted_priors(rng):
    X, Z, _ = drawn(rng, 200)
    est = make(max_iter=3000, tol=1e-13).fit(X, covariates=Z)
    covariance = est.coefficients_covariance_
    # Another prior mean: H₀ of the first contrast and the second column is 0.02 and not 0.
    ctx = context_of(est)
    shift = {"gate_mean": np.zeros(ctx.q["gate_mean"].shape)}
    shift["gate_mean"][1, 0] = 0.02
    before = ctx.model.weights.coefficients(ctx.q)
    ctx.prior = ctx.prior | {"gate_mean": ctx.prior["gate_mean"] + shift["gate_mean"]}
    units = est._make_units(est._with_covariates(X, Z, True), None).centered(ctx.summary)
    assert finish_run(ctx, NoAnnealing(), units, est).converged
    change = (ctx.model.weights.coefficients(ctx.q) - before) / 0.02
    # Column 1 is standardised, so that a tilt of its contrast is one of coefficient × deviation.
    c, scale = contrasts(3), Z.std(axis=0)[0]
    expected = scale * np.einsum("kpl,l->kp", covariance[:, :, :, 1], c[:, 0])
    assert_allclose(change, expected, rtol=0.02, atol=1e-3)


def test_intervals_cover_the_coefficients():
    # Of 16 intervals of 90 %, 12 or more cover, but in 1 of 60 such tests. Those of q alone, which
    # are too narrow, cover fewer.
    rng, covered, narrow = np.random.default_rng(3), 0, 0
    ones = np.where([[1] * 6, [1, 0] * 3, [0] * 6], 0.8, 0.2)
    for _ in range(8):
        X, Z, _ = drawn(rng, 250, separation=0.8)
        est = make(max_iter=400, emission_init={"emissionprob": ones}).fit(X, covariates=Z[:, :1])
        found = est.coefficient_intervals(0.9, reference=1)
        inside = (found.lower[[0, 2], 1] < [0.5, -0.5]) & (found.upper[[0, 2], 1] > [0.5, -0.5])
        covered += inside.sum()
        standard = est._context().model.weights._standard(est._context().q)["covariance"][1, 1]
        own = 1.645 * np.sqrt(2.0 * standard) / 2.0
        narrow += (np.abs(found.estimate[[0, 2], 1] - [0.5, -0.5]) < own).sum()
    assert covered >= 12
    assert narrow < covered - 1


def test_units_of_covariates_do_not_matter(rng):
    X, Z, _ = drawn(rng)
    one, other = (make().fit(X, covariates=z) for z in (Z, 1000.0 * Z - 7.0))
    assert other.lower_bound_ == pytest.approx(one.lower_bound_, rel=1e-12)
    assert_allclose(1000.0 * other.coefficients_, one.coefficients_, rtol=1e-9)
    assert_allclose(1000.0 * other.coefficients_std_, one.coefficients_std_, rtol=1e-6)
    assert_allclose(
        other.predict_proba(X, covariates=1000.0 * Z - 7.0), one.predict_proba(X, covariates=Z)
    )


def test_a_constant_column_leaves_ordinary_weights(rng):
    X, Z, _ = drawn(rng, slopes=(0.0, 0.5, -0.5))
    X = X[np.abs(Z[:, 0] - 5.0) < 1.0]
    start = {"emission_init": {"emissionprob": np.where([[1] * 6, [1, 0] * 3, [0] * 6], 0.9, 0.1)}}
    one = make(max_iter=300, **start).fit(X, covariates=np.full((len(X), 1), 0.3))
    prior = {"weight_concentration_prior_type": "dirichlet_distribution"}
    other = make(max_iter=300, weight_concentration_prior=1.0, **prior, **start).fit(X)
    assert_allclose(one.weights_, other.weights_, atol=0.01)
    shares = one.predict_proba(X, covariates=np.full((len(X), 1), 0.3))
    assert_allclose(shares, other.predict_proba(X), atol=0.03)
    assert (one.coefficients_ == 0.0).all()
    assert np.isinf(one.coefficients_std_).all()
    assert np.isfinite(one.intercepts_std_).all()
    assert np.isinf(one.coefficient_intervals(reference=0).std[1:, 1]).all()


def test_a_learned_scale_shrinks_coefficients_of_noise(rng):
    X, _, _ = drawn(rng)
    noise = rng.normal(size=(len(X), 2))
    wide, learned = (
        make(max_iter=300, coefficients_prior=scale).fit(X, covariates=noise)
        for scale in (2.5, "auto")
    )
    assert learned.coefficients_prior_ < 1.0
    assert wide.coefficients_prior_ == 2.5
    assert np.abs(learned.coefficients_).max() < np.abs(wide.coefficients_).max()
    assert learned.lower_bound_ > wide.lower_bound_


def test_covariates_predict_classes_that_rows_leave_open(rng):
    X, Z, z = drawn(rng, 400, separation=0.7, slopes=(3.0, 0.0, -3.0))
    start = {"emission_init": {"emissionprob": np.where([[1] * 6, [1, 0] * 3, [0] * 6], 0.7, 0.3)}}
    with_them = make(max_iter=60, **start).fit(X, covariates=Z)
    order = np.argsort(-with_them.emissionprob_.mean(axis=1))
    found = np.argsort(order)[with_them.predict(X, covariates=Z)]
    assert (found == z).mean() > 0.7
    shares = with_them.predict_proba(X, covariates=Z)
    assert_allclose(shares, with_them.transform(X, covariates=Z))
    assert with_them.score(X, covariates=Z) > make(max_iter=60, **start).fit(X).score(X)
    weights = rng.integers(0, 3, size=len(X)).astype(float)
    some = np.repeat(np.arange(len(X)), weights.astype(int))
    for name in ("score", "aic", "bic", "relative_entropy"):
        how = {"sample_weight": weights, "covariates": Z}
        one = getattr(with_them, name)(X, **how)
        assert one == pytest.approx(getattr(with_them, name)(X[some], covariates=Z[some]))


def test_densities_sum_to_one_given_covariates(rng):
    X, Z, _ = drawn(rng, n_columns=4)
    est = make().fit(X, covariates=Z)
    every = np.array(list(product((0.0, 1.0), repeat=4)))
    scores = est.score_samples(every, covariates=np.repeat(Z[:1], 16, axis=0))
    assert np.exp(scores).sum() == pytest.approx(1.0, rel=1e-12)


# The search


def test_halves_of_a_component_have_its_coefficients(rng):
    X, Z, z = drawn(rng, 400, slopes=(2.0, 0.0, -2.0))
    ctx, _, units = opened(make(n_components=4), X, Z)
    shares = np.equal.outer(z, np.arange(4)).astype(float)
    half = rng.random(len(X)) < 0.5
    shares[:, 3] = shares[:, 0] * half
    shares[:, 0] *= ~half
    q = ctx.model.posterior_given(shares, units, ctx.summary, ctx.prior)
    values = ctx.model.weights.coefficients(q)
    assert values[3, 1] == pytest.approx(values[0, 1], abs=0.25)
    assert values[0, 1] - values[2, 1] == pytest.approx(2.0, abs=0.7)
    assert_allclose(ctx.model.expected_counts(q, ctx.prior), shares.sum(axis=0))


@forms
def test_another_order_of_components_is_the_same_mixture(form, rng):
    X, Z, _ = rows_of(form, rng)
    est = make(form, annealing="reheating").fit(X, covariates=Z)
    before = pickle.loads(pickle.dumps(est))
    order = np.array([2, 0, 1])
    est.reorder(order)
    assert_allclose(est.coefficients_, before.coefficients_[order], rtol=1e-9)
    assert_array_equal(est.coefficients_std_, before.coefficients_std_[order])
    assert_allclose(
        est.predict_proba(X, covariates=Z),
        before.predict_proba(X, covariates=Z)[:, order],
        atol=1e-9,
    )
    ctx, old = context_of(est), context_of(before)
    assert ctx.model.kl(ctx.q, ctx.prior) == pytest.approx(old.model.kl(old.q, old.prior))


def test_a_search_leaves_a_poor_optimum(rng):
    X, Z, _ = drawn(rng, 300, slopes=(1.5, 0.0, -1.5))
    Z = Z[:, :1]
    poor = {"emission_init": {"emissionprob": np.array([[0.9] * 6, [0.88] * 6, [0.3] * 6])}}
    stuck = make(max_iter=200, **poor).fit(X, covariates=Z)
    found = make(max_iter=200, annealing="reheating", **poor).fit(X, covariates=Z)
    assert found.lower_bound_ > stuck.lower_bound_ - 1e-6
    assert found.search_results_["move"].size


@pytest.mark.parametrize("annealing", METHODS)
def test_all_methods_that_make_sense_find_the_coefficients(annealing, rng):
    X, Z, _ = drawn(rng, 300)
    est = make(annealing=annealing, max_iter=100).fit(X, covariates=Z[:, :1])
    order = np.argsort(-est.emissionprob_.mean(axis=1))
    slopes = est.coefficients_[order, 0]
    assert_allclose(slopes, [0.5, 0.0, -0.5], atol=0.25)
    assert np.isfinite(est.coefficients_std_).all()


@pytest.mark.parametrize("annealing", ["tempering", "local_tempering"])
def test_temperatures_that_are_learned_are_refused(annealing, rng):
    X, Z, _ = drawn(rng, 30)
    with pytest.raises(ValueError, match="weights of rows depend on covariates, so that every row"):
        make(annealing=annealing).fit(X, covariates=Z)


# As other fits


def test_weight_is_a_number_of_copies(rng):
    X, Z, _ = drawn(rng, 60)
    times = rng.integers(0, 3, size=60)
    start = {"emission_init": {"emissionprob": np.where([[1] * 6, [1, 0] * 3, [0] * 6], 0.8, 0.3)}}
    one = make(**start).fit(X, sample_weight=times, covariates=Z)
    other = make(**start).fit(np.repeat(X, times, axis=0), covariates=np.repeat(Z, times, axis=0))
    assert one.lower_bound_ == pytest.approx(other.lower_bound_, rel=1e-10)
    assert_allclose(one.coefficients_, other.coefficients_, rtol=1e-8)
    assert_allclose(one.coefficients_std_, other.coefficients_std_, rtol=1e-5)
    there = times > 0
    weighted = one.score(X, sample_weight=times, covariates=Z)
    kept = one.score(X[there], sample_weight=times[there], covariates=Z[there])
    assert weighted == pytest.approx(kept, rel=1e-12)


def test_result_does_not_depend_on_workers(rng, monkeypatch, form="blocks"):
    make_threads_worthwhile(monkeypatch)
    X, Z, _ = rows_of(form, rng, 1200)
    Z = Z[:, :1]
    one, other = (
        make(form, max_iter=2, n_jobs=n, annealing=quick("svi_plus", 2)).fit(X, covariates=Z)
        for n in (1, 2)
    )
    assert_identical(one, other)


def test_minibatches_end_near_the_batch(rng):
    X, Z, _ = drawn(rng, 600)
    start = {"emission_init": {"emissionprob": np.where([[1] * 6, [1, 0] * 3, [0] * 6], 0.8, 0.3)}}
    batch = make(max_iter=200, **start).fit(X, covariates=Z)
    parts = make(max_iter=30, batch_size=100, **start).fit(X, covariates=Z)
    assert_allclose(parts.coefficients_, batch.coefficients_, atol=0.1)
    assert parts.lower_bound_ == pytest.approx(batch.lower_bound_, rel=5e-3)


def test_labels_are_respected(rng):
    X, Z, z = drawn(rng, 200)
    y = np.where(rng.random(200) < 0.3, z, -1)
    y[:3] = [0, 1, 2]
    z[:3] = y[:3]
    est = AnnealedBayesianMixture(n_components_per_class=1, random_state=0)
    est.fit(X, y, covariates=Z)
    assert est.score(X, z, covariates=Z) > 0.8
    assert_array_equal(
        est.predict_proba(X, covariates=Z).argmax(axis=1), est.predict(X, covariates=Z)
    )
    slopes = est.coefficients_[:, 0]
    assert slopes[0] > slopes[1] > slopes[2]


def test_missing_cells_and_imputation(rng):
    X, Z, _ = rows_of("blocks", rng, 300, holes=0.2)
    est = make("blocks", max_iter=50).fit(X, covariates=Z)
    filled = est.impute(X, covariates=Z)
    assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])
    assert np.isfinite(filled).all()
    assert est.impute(X, n_draws=2, covariates=Z).shape == (2, *X.shape)
    with pytest.raises(ValueError, match="n_rounds draws all parameters"):
        est.impute(X, n_draws=2, n_rounds=1, covariates=Z)


def test_pickles_checkpoints_and_warm_starts(rng, tmp_path):
    X, Z, _ = drawn(rng, 100)
    est = make(max_iter=6).fit(X, covariates=Z)
    assert_identical(est, pickle.loads(pickle.dumps(est)))
    again = make(max_iter=6).fit(X, covariates=Z, checkpoint=tmp_path)
    assert_identical(again, make(max_iter=6).fit(X, covariates=Z, checkpoint=tmp_path))
    with pytest.raises(ValueError, match="checkpoint"):
        make(max_iter=6).fit(X, covariates=Z[::-1], checkpoint=tmp_path)
    warm = make(max_iter=6, warm_start=True).fit(X, covariates=Z)
    bound = warm.lower_bound_
    assert warm.fit(X, covariates=Z).lower_bound_ > bound
    with pytest.raises(ValueError, match="goes on from a fit with covariates"):
        warm.fit(X)
    without = make(warm_start=True).fit(X)
    with pytest.raises(ValueError, match="goes on from a fit without covariates"):
        without.fit(X, covariates=Z)


def test_attributes_of_another_fit_are_gone(rng):
    X, Z, _ = drawn(rng, 100)
    est = make().fit(X, covariates=Z)
    assert not hasattr(est, "weight_concentration_")
    est.fit(X)
    assert not hasattr(est, "coefficients_")
    assert not hasattr(est, "coefficients_std_")
    assert est.predict(X).shape == (100,)


def test_frames_have_names(rng):
    X, Z, _ = drawn(rng, 100)
    frame = pd.DataFrame(Z, columns=["age", "size"])
    est = make(max_iter=50, init_params="kmeans").fit(X, covariates=frame)
    found = est.coefficient_intervals()
    assert found.names == ["intercept", "age", "size"]
    assert found.estimate.shape == (3, 3)
    assert (found.lower < found.estimate).all()
    assert (found.estimate < found.upper).all()
    assert_allclose(found.estimate.sum(axis=0), 0.0, atol=1e-12)
    assert est.predict(X, covariates=frame).shape == (100,)
    with pytest.raises(ValueError, match="in this order"):
        est.predict(X, covariates=frame[["size", "age"]])
    assert make().fit(X, covariates=Z).coefficient_intervals().names == ["intercept", "z0", "z1"]


def test_metadata_are_routed(rng):
    X, Z, _ = drawn(rng, 90)
    with config_context(enable_metadata_routing=True):
        mixture = make("full", n_components=2).set_fit_request(covariates=True)
        mixture.set_score_request(covariates=True).set_predict_request(covariates=True)
        mixture.set_predict_proba_request(covariates=True)
        pipeline = make_pipeline(StandardScaler(), mixture).fit(X, covariates=Z)
        assert pipeline.predict(X, covariates=Z).shape == (90,)
        assert pipeline.predict_proba(X, covariates=Z).shape == (90, 2)
        alone = make("full", n_components=2).fit(StandardScaler().fit_transform(X), covariates=Z)
        assert pipeline.score(X, covariates=Z) == alone.score(
            StandardScaler().fit_transform(X), covariates=Z
        )
        scores = cross_val_score(pipeline, X, params={"covariates": Z}, cv=3)
        assert np.isfinite(scores).all()


REFUSALS = {
    "missing values": ({}, {"covariates": "nan"}, "covariates has missing values, in 1 rows"),
    "infinity": ({}, {"covariates": "inf"}, "infinity"),
    "text": ({}, {"covariates": "text"}, "OneHotEncoder"),
    "one row less": ({}, {"covariates": "short"}, "inconsistent numbers of samples"),
    "a vector": ({}, {"covariates": "flat"}, "Reshape your data"),
    "one component": ({"n_components": 1}, {}, "a single component has the weight 1"),
    "a number to find": ({"n_components": "auto"}, {}, "no closed form with covariates"),
    "a concentration": ({"weight_concentration_prior": 1.0}, {}, "leave this one at 'auto'"),
    "a prior without covariates": ({"coefficients_prior": 1.0}, {"covariates": None}, "Give fit"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_makes_no_sense_is_refused(name, rng):
    params, given, sentence = REFUSALS[name]
    X, Z, _ = drawn(rng, 30)
    spoiled = {
        "nan": np.where(np.arange(60).reshape(30, 2) == 7, np.nan, Z),
        "inf": np.where(np.arange(60).reshape(30, 2) == 7, np.inf, Z),
        "text": np.full((30, 1), "a"),
        "short": Z[1:],
        "flat": Z[:, 0],
        None: None,
    }
    with pytest.raises(ValueError, match=sentence):
        make(**params).fit(X, covariates=spoiled.get(given.get("covariates", ""), Z))


def test_predictions_need_the_covariates_of_the_fit(rng):
    X, Z, _ = drawn(rng, 60)
    est = make().fit(X, covariates=Z)
    for call in (est.predict, est.predict_proba, est.transform, est.score, est.score_samples):
        with pytest.raises(ValueError, match="Give the 2 covariates of these rows"):
            call(X)
        with pytest.raises(ValueError, match="covariates has 1 columns"):
            call(X, covariates=Z[:, :1])
    with pytest.raises(ValueError, match="inconsistent"):
        est.predict(X, covariates=Z[1:])
    with pytest.raises(ValueError, match="Rows are drawn given their covariates"):
        est.sample(3)
    with pytest.raises(ValueError, match="partial_fit takes no covariates"):
        est.partial_fit(X)
    parts = Shards([X[:30], X[30:]])
    with pytest.raises(ValueError, match="X cannot be data in parts"):
        make().fit(parts, covariates=Z)
    for call in (est.predict, est.score):
        with pytest.raises(ValueError, match="X cannot be data in parts"):
            call(parts, covariates=Z)
    without = make().fit(X)
    with pytest.raises(ValueError, match="was fitted without covariates"):
        without.predict(X, covariates=Z)
    with pytest.raises(ValueError, match="There are no coefficients"):
        without.coefficient_intervals()
    for level in (0, 1.0, "a"):
        with pytest.raises(ValueError, match="probability between 0 and 1"):
            est.coefficient_intervals(level)
    for reference in (3, 0.5, True):
        with pytest.raises(ValueError, match="reference"):
            est.coefficient_intervals(reference=reference)


def test_weights_of_all_rows_count_parameters(rng):
    weights = LogitWeights(3, 2, 1.0)
    assert weights.n_parameters == 6
    X, Z, _ = drawn(rng, 60)
    est, without = make().fit(X, covariates=Z), make().fit(X)
    difference = context_of(est).model.n_parameters - context_of(without).model.n_parameters
    assert difference == 6 - 2
