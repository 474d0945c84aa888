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
    open_run,
)
from numpy.testing import assert_allclose, assert_array_equal
from peer_priors import PEER_OF_COLUMNS, PEER_OF_MIXTURES
from scipy.special import log_softmax, softmax
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedBayesianMixture, Shards
from sklearn_anneal.annealing import NoAnnealing
from sklearn_anneal.data.units import Rows
from sklearn_anneal.estimators._covariates import _deviations
from sklearn_anneal.inference.response import Recycling
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


def test_systems_with_one_matrix_share_their_directions(rng):
    A = np.eye(30) - 0.5 * np.linalg.qr(rng.normal(size=(30, 30)))[0]
    A[:, 20:] = np.eye(30)[:, 20:]
    products = []
    solver = Recycling(lambda v: products.append(v) or A @ v, slice(5, 12))
    right = rng.normal(size=(40, 30))
    found = np.array([solver.solved(b) for b in right])
    assert_allclose(found, np.linalg.solve(A, right.T).T[:, 5:12], atol=1e-5)
    assert len(products) <= 30


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
    est = make(form, annealing="reheating", effort=0).fit(X, covariates=Z)
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


@pytest.mark.parametrize("annealing", METHODS)
def test_all_methods_that_make_sense_find_the_coefficients(annealing, rng):
    X, Z, _ = drawn(rng, 300)
    est = make(annealing=annealing, max_iter=100).fit(X, covariates=Z[:, :1])
    order = np.argsort(-est.emissionprob_.mean(axis=1))
    slopes = est.coefficients_[order, 0]
    assert_allclose(slopes, [0.5, 0.0, -0.5], atol=0.25)
    assert np.isfinite(est.coefficients_std_).all()


def test_a_number_of_components_is_found_by_the_bound(rng):
    X, Z, _ = drawn(rng, 200)
    est = make(n_components="auto", max_iter=60).fit(X, covariates=Z)
    assert est.n_components_ in (2, 3)
    assert set(est.component_results_) == {"n_components", "lower_bound", "n_effective_components"}
    assert np.isfinite(est.coefficients_std_).all()
    # Nothing depends on covariates where there is one component.
    noise = rng.integers(0, 2, size=(60, 4)).astype(float)
    one = make(n_components="auto", coefficients_prior="auto").fit(noise, covariates=Z[:60])
    assert one.n_components_ == 1
    assert_array_equal(one.coefficient_intervals().std, np.zeros((1, 3)))
    assert one.lower_bound_ == pytest.approx(make(n_components=1).fit(noise).lower_bound_)
    assert one.score(noise, covariates=Z[:60]) == pytest.approx(
        make(n_components=1).fit(noise).score(noise)
    )


# Parts and streams


def in_parts(values):
    """Three parts, of which the second has no rows."""
    return [values[:40], values[40:40], values[40:]]


@forms
def test_covariates_of_parts_are_those_of_the_data(form, rng):
    X, Z, _ = rows_of(form, rng)
    weights = rng.integers(0, 3, len(X)).astype(float)
    how = {"sample_weight": weights, "covariates": Z}
    whole = make(form).fit(X, **how)
    one = make(form).fit(Shards([X]), sample_weight=[weights], covariates=[Z])
    assert_identical(one, whole)
    parts, of_parts = Shards(in_parts(X)), {name: in_parts(v) for name, v in how.items()}
    several = make(form).fit(parts, **of_parts)
    assert several.lower_bound_ == pytest.approx(whole.lower_bound_, rel=1e-9)
    assert_allclose(several.coefficients_, whole.coefficients_, rtol=1e-7, atol=1e-9)
    assert_allclose(several.coefficients_std_, whole.coefficients_std_, rtol=1e-5)
    assert several.score(parts, **of_parts) == pytest.approx(several.score(X, **how), rel=1e-12)
    for name in ("predict", "predict_proba", "score_samples"):
        found = list(getattr(several, name)(parts, covariates=in_parts(Z)))
        expected = getattr(several, name)(X, covariates=Z)
        assert_allclose(np.concatenate(found), expected, rtol=1e-12, err_msg=name)


def test_covariates_of_parts_come_in_every_form(rng, tmp_path):
    X, Z, _ = drawn(rng, 100)
    expected = make().fit(Shards(in_parts(X)), covariates=in_parts(Z))
    for i, part in enumerate(in_parts(Z)):
        np.save(tmp_path / f"{i}.npy", part)
    for given in (
        Shards(in_parts(Z)),
        [lambda part=part: part for part in in_parts(Z)],
        [tmp_path / f"{i}.npy" for i in range(3)],
    ):
        assert_identical(make().fit(Shards(in_parts(X)), covariates=given), expected)
    frames = [pd.DataFrame(part, columns=["age", "size"]) for part in in_parts(Z)]
    named = make(warm_start=True).fit(Shards(in_parts(X)), covariates=frames)
    assert named.coefficient_intervals().names == ["intercept", "age", "size"]
    assert named.lower_bound_ == expected.lower_bound_
    # A fit goes on in memory, and in parts again.
    bound = named.fit(X, covariates=Z).lower_bound_
    assert named.fit(Shards(in_parts(X)), covariates=frames).lower_bound_ > bound


def test_a_stream_of_parts_is_one_batch_after_another(rng):
    X, Z, _ = drawn(rng, 400)
    stream, parts = (make(max_iter=60, total_samples=1600.0) for _ in range(2))
    start = {"emission_init": {"emissionprob": np.where([[1] * 6, [1, 0] * 3, [0] * 6], 0.8, 0.3)}}
    for est in (stream, parts):
        est.set_params(**start)
    for _ in range(4):
        for rows in (slice(0, 40), slice(40, None)):
            stream.partial_fit(X[rows], covariates=Z[rows])
        stream = pickle.loads(pickle.dumps(stream))
        parts.partial_fit(Shards(in_parts(X)), covariates=in_parts(Z))
    assert_identical(parts, stream)
    # The intercepts depend on the origin of the covariates, and weights of rows do not.
    whole = make(max_iter=200, **start).fit(X, covariates=Z)
    shares = stream.predict_proba(X, covariates=Z)
    assert np.abs(shares - whole.predict_proba(X, covariates=Z)).mean() < 0.1
    assert_allclose(stream.coefficients_, whole.coefficients_, atol=0.2)


WRONG_PARTS = {
    "columns": (lambda Z: [Z[:40], Z[40:40], Z[40:, :1]], "Part 2: covariates has 1 columns"),
    "rows": (lambda Z: [Z[:40], Z[40:40], Z[41:]], "Part 2: .*covariates has 59 entries, but"),
    "values": (lambda Z: in_parts(np.where(Z > 9.0, np.nan, Z)), "Part .: covariates has missing"),
    "one array": (lambda Z: Z, "covariates should have one entry for each of the 3 parts"),
}


@pytest.mark.parametrize("name", WRONG_PARTS)
def test_wrong_covariates_of_parts_are_refused(name, rng):
    wrong, sentence = WRONG_PARTS[name]
    X, Z, _ = drawn(rng, 100)
    Z[0, 0] = Z[99, 0] = 10.0
    est = make()
    with pytest.raises(ValueError, match=sentence):
        est.fit(Shards(in_parts(X)), covariates=wrong(Z))
    assert not hasattr(est, "n_features_in_") and est._n_covariates is None


def test_parts_and_streams_without_their_covariates_are_refused(rng):
    X, Z, _ = drawn(rng, 100)
    est = make(warm_start=True).fit(X, covariates=Z)
    parts = Shards(in_parts(X))
    for call in (est.score, lambda X: list(est.predict(X))):
        with pytest.raises(ValueError, match="Give the 2 covariates of these rows"):
            call(parts)
    for call in (est.fit, est.partial_fit):
        with pytest.raises(ValueError, match="goes on with data that had covariates"):
            call(parts)
    with pytest.raises(ValueError, match="beside an X in memory"):
        make().fit(X, covariates=Shards(in_parts(Z)))
    with pytest.raises(ValueError, match="constant in the first batch"):
        make().partial_fit(X, covariates=np.ones((100, 1)))


# As other fits


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


def test_checkpoints_and_warm_starts_are_those_of_the_covariates(rng, tmp_path):
    X, Z, _ = drawn(rng, 100)
    make(max_iter=6).fit(X, covariates=Z, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="checkpoint"):
        make(max_iter=6).fit(X, covariates=Z[::-1], checkpoint=tmp_path)
    warm = make(max_iter=6, warm_start=True).fit(X, covariates=Z)
    bound = warm.lower_bound_
    assert warm.fit(X, covariates=Z).lower_bound_ > bound
    with pytest.raises(ValueError, match="goes on with data that had covariates"):
        warm.fit(X)
    without = make(warm_start=True).fit(X)
    with pytest.raises(ValueError, match="goes on with data that had no covariates"):
        without.fit(X, covariates=Z)


def test_attributes_of_another_fit_are_gone(rng):
    X, Z, _ = drawn(rng, 100)
    est = make().fit(X, covariates=Z)
    assert not hasattr(est, "weight_concentration_")
    # After a batch of a stream, there are no derivatives of passes over all rows.
    est.partial_fit(X, covariates=Z)
    assert hasattr(est, "coefficients_")
    assert not hasattr(est, "coefficients_std_")
    with pytest.raises(ValueError, match="Call fit, with warm_start=True"):
        est.coefficient_intervals()
    est.fit(X)
    assert not hasattr(est, "coefficients_")
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
    est.set_params(warm_start=True).fit(X, covariates=Z)
    assert est.coefficient_intervals().names == found.names
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
        # In scikit-learn 1.6.0, cross-validation passes nothing on to the score of a pipeline.
        scores = cross_val_score(mixture, X, params={"covariates": Z}, cv=3)
        assert np.isfinite(scores).all()


REFUSALS = {
    "missing values": ({}, {"covariates": "nan"}, "covariates has missing values, in 1 rows"),
    "infinity": ({}, {"covariates": "inf"}, "infinity"),
    "text": ({}, {"covariates": "text"}, "OneHotEncoder"),
    "dates": ({}, {"covariates": "dates"}, "dates or times"),
    "huge numbers": ({}, {"covariates": "huge"}, "squares are too large or too small"),
    "tiny numbers": ({}, {"covariates": "tiny"}, "squares are too large or too small"),
    "one row less": ({}, {"covariates": "short"}, "inconsistent numbers of samples"),
    "a vector": ({}, {"covariates": "flat"}, "Reshape your data"),
    "a series": ({}, {"covariates": "series"}, "a single column"),
    "a series of dates": ({}, {"covariates": "series of dates"}, "dates or times"),
    "one component": ({"n_components": 1}, {}, "a single component has the weight 1"),
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
        "dates": pd.DataFrame({"day": pd.date_range("2020", periods=30)}),
        "huge": 1e160 * Z,
        "tiny": 1e-160 * Z,
        "short": Z[1:],
        "flat": Z[:, 0],
        "series": pd.Series(Z[:, 0]),
        "series of dates": pd.Series(pd.date_range("2020", periods=30)),
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
    with pytest.raises(ValueError, match="goes on with data that had covariates"):
        est.partial_fit(X)
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


def test_coefficients_of_zero_have_deviations(rng):
    X, Z, _ = drawn(rng, 60)
    est = make(n_components=2, emission_init={"emissionprob": np.full((2, 6), 0.5)})
    est.fit(X, covariates=Z)
    assert_allclose(est.coefficients_, 0.0, atol=1e-30)
    assert (est.coefficients_std_ > 0.1).all() and (est.intercepts_std_ > 0.1).all()


def test_a_negative_variance_is_no_deviation():
    assert_array_equal(_deviations(np.array([4.0, -1e-12, -1.0])), [2.0, 0.0, np.nan])
