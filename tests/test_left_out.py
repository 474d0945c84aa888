"""The densities of rows given the other rows, by which numbers of components are compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from harness import context_of, units_of
from scipy.sparse import csr_array
from sklearn.base import clone

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedHMM,
    Shards,
)
from sklearn_anneal.data.units import Rows
from sklearn_anneal.models import _left_out, mixture
from sklearn_anneal.models._left_out import N_FOLDS, N_PARTS, dealt, folds, without
from sklearn_anneal.parallel.workers import generator, seed_sequence

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

_GAUSSIAN = {
    "mean_prior": [0.5, -0.5],
    "mean_precision_prior": 0.7,
    "degrees_of_freedom_prior": 4.0,
    "reg_covar": 0.0,
}
_COLUMNS = {
    "emission": "gaussian",
    "means_prior": [0.2, -0.1],
    "beta_prior": 0.6,
    "dof_prior": 3.0,
    "scale_prior": 2.0,
    "reg_covar": 0.0,
}


def reals(rng):
    return rng.normal(size=(12, 2))


def gaps(rng):
    X = rng.normal(size=(12, 2))
    X[[0, 3, 5], [0, 1, 0]] = np.nan
    return X


def counts(rng):
    return rng.poisson(3.0, (12, 3))


def answers(rng):
    return np.unpackbits(np.arange(12, dtype=np.uint8)[:, None], axis=1)[:, 4:]


# An estimator whose priors are given, and rows that all differ. The bound of one component is then
# the evidence itself.
CASES = [
    pytest.param(
        AnnealedBayesianGaussianMixture(covariance_prior=[[2.0, 0.3], [0.3, 1.0]], **_GAUSSIAN),
        reals,
        id="full",
    ),
    pytest.param(AnnealedBayesianMixture(**_COLUMNS), reals, id="columns"),
    pytest.param(AnnealedBayesianMixture(**_COLUMNS), gaps, id="missing"),
    pytest.param(
        AnnealedBayesianMixture(emission="poisson", lambdas_prior=1.5, lambdas_weight=0.5),
        counts,
        id="poisson",
    ),
    pytest.param(
        AnnealedBayesianMixture(emission="bernoulli", emissionprob_prior=0.8),
        answers,
        id="bernoulli",
    ),
]


def left_out(estimator, X, number=1, **fit):
    """What ``n_components="auto"`` has found for a number."""
    est = clone(estimator).set_params(n_components="auto", effort=0)
    tried = est.fit(X, **fit).component_results_
    return tried["log_density_left_out"][tried["n_components"] == number][0]


@pytest.mark.parametrize(("estimator", "data"), CASES)
def test_one_component_predicts_each_row_by_the_ratio_of_evidences(estimator, data, rng):
    """log p(x | other rows) is log p(all rows) − log p(other rows)."""
    X, estimator = data(rng), clone(estimator).set_params(annealing="none", effort=0, max_iter=5)

    def evidence(rows):
        return clone(estimator).set_params(n_components=1).fit(rows).lower_bound_

    expected = sum(evidence(X) - evidence(np.delete(X, n, axis=0)) for n in range(len(X)))
    # The last stick leaves a share of 1e-6, which the evidence lacks.
    assert left_out(estimator, X) == pytest.approx(expected, abs=1e-5)


def test_rows_of_weight_two_are_two_rows(rng):
    X, _ = two_groups(rng)
    est = AnnealedBayesianGaussianMixture(random_state=0, effort=0, max_iter=2)
    weighted = left_out(est, X, 1, sample_weight=np.full(len(X), 2.0))
    assert left_out(est, np.repeat(X, 2, axis=0), 1) == pytest.approx(weighted, rel=1e-9)


def test_parts_of_data_are_left_out_like_rows_in_memory(rng):
    X, _ = two_groups(rng)
    est = AnnealedBayesianGaussianMixture(random_state=0, effort=0, max_iter=5)
    in_parts = left_out(est, Shards([X[:25], X[25:]]), 2)
    assert in_parts == pytest.approx(left_out(est, X, 2), rel=1e-6)


def test_rows_of_groups_are_predicted_as_by_fits_without_them(rng):
    """The assignments of other rows, which stay, are those of a new fit where groups are apart."""
    X, group = two_groups(rng)
    priors = _GAUSSIAN | {"mean_prior": [0.0, 0.0]}
    est = AnnealedBayesianGaussianMixture(
        2,
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=1.0,
        covariance_prior=np.eye(2),
        effort=0,
        random_state=0,
        **priors,
    )
    expected = 0.0
    for part in range(N_PARTS):
        rows = np.arange(len(X)) % N_PARTS == part
        expected += clone(est).fit(X[~rows]).score_samples(X[rows]).sum()
    assert len(set(group)) == 2
    assert left_out(est, X, 2) == pytest.approx(expected, rel=1e-6)


def test_sequences_are_predicted_as_by_fits_without_them(rng):
    """Transitions are left out with the frames of a sequence, too."""
    states = rng.integers(0, 2, (12, 6))
    sequences = [20.0 * np.c_[s, s] + rng.normal(size=(6, 2)) for s in states]
    est = AnnealedHMM(
        2,
        covariance_type="full",
        startprob_prior=1.0,
        transmat_prior=1.0,
        means_prior=[10.0, 10.0],
        beta_prior=0.1,
        dof_prior=4.0,
        scale_prior=np.eye(2),
        reg_covar=0.0,
        effort=0,
        random_state=0,
    ).fit(sequences)
    ctx, units = context_of(est), units_of(est, sequences)
    found = ctx.model.left_out(units, ctx.q, ctx.summary, ctx.prior)
    assert not found.independent
    for i in range(0, 12, 4):
        others = clone(est).fit(sequences[:i] + sequences[i + 1 :])
        # The score would count frames by their design effect, which numbers are chosen without.
        ctx, unit = context_of(others), units_of(others, sequences[i : i + 1])
        expected = ctx.model.log_predictive(unit.centered(ctx.summary), ctx.q)
        assert found.log_densities[i] == pytest.approx(expected[0], rel=1e-6)


def test_few_sequences_are_not_left_out(rng):
    sequences = list(rng.normal(size=(9, 5, 2)))
    est = AnnealedHMM(2, effort=0, random_state=0).fit(sequences)
    ctx, units = context_of(est), units_of(est, sequences)
    assert ctx.model.left_out(units, ctx.q, ctx.summary, ctx.prior) is None


def test_copies_of_sequences_are_left_out_together(rng):
    """A copy that stayed would say what the frames are, and each state of one sequence pay off."""
    sequences = list(rng.normal(size=(10, 6, 2)))
    est = AnnealedHMM(3, annealing="none", effort=0, random_state=0).fit(sequences)
    ctx, twice = context_of(est), units_of(est, sequences + sequences)
    weighted = units_of(est, sequences)
    weighted.weights = np.full(10, 2.0)
    summary = replace(ctx.summary, weight=20.0)
    copies, double = (
        ctx.model.left_out(units, ctx.q, summary, ctx.prior) for units in (twice, weighted)
    )
    np.testing.assert_allclose(copies.log_densities, double.log_densities, rtol=1e-10)
    assert copies.total == pytest.approx(double.total)
    once = ctx.model.left_out(units_of(est, sequences), ctx.q, ctx.summary, ctx.prior)
    other = once._replace(log_densities=np.sort(once.log_densities))
    of_copies = other._replace(weights=np.full(10, 2.0), total_weight=20.0)
    twofold = once._replace(weights=np.full(10, 2.0), total_weight=20.0)
    # As many observations as there are different sequences have the same standard error.
    assert of_copies.rise_over(twofold) == pytest.approx(2.0 * other.rise_over(once))


@pytest.mark.parametrize("number", [4, 5])
def test_five_sequences_are_left_out_if_they_are_repeated(number, rng):
    sequences = list(rng.normal(size=(number, 5, 2)))
    est = AnnealedHMM(2, effort=0, random_state=0).fit(sequences)
    ctx, units = context_of(est), units_of(est, 2 * sequences)
    found = ctx.model.left_out(units, ctx.q, ctx.summary, ctx.prior)
    assert (found is None) == (number < 5)


def test_copies_of_five_sequences_are_no_reason_for_more_states(rng):
    """The bound rises with a state for each frame, which occurs four times."""
    means = 4.0 * np.repeat(np.arange(3), 7)[:, None]
    sequences = [means + rng.normal(size=(21, 2)) for _ in range(5)]
    est = AnnealedHMM("auto", annealing="none", random_state=0, effort=0, max_iter=20)
    assert clone(est).fit(4 * sequences).n_components_ <= 4
    weights = np.full(5 * 21, 4.0)
    assert clone(est).fit(sequences, sample_weight=weights).n_components_ <= 4


def test_few_sequences_of_symbols_are_equal_by_chance(rng):
    sequences = list(rng.integers(0, 2, (60, 3, 1)))
    est = AnnealedHMM(2, emission="categorical", effort=0, random_state=0).fit(sequences)
    ctx, units = context_of(est), units_of(est, sequences)
    assert len(np.unique(np.concatenate(sequences, axis=1), axis=1).T) >= 5
    assert ctx.model.left_out(units, ctx.q, ctx.summary, ctx.prior) is None


def test_white_noise_is_one_state_if_its_sequences_occur_twice(rng):
    sequences = list(rng.normal(size=(10, 12, 6)))
    est = AnnealedHMM("auto", annealing="none", random_state=0, effort=0, max_iter=20)
    tried = est.fit(sequences + sequences).component_results_
    assert est.n_components_ == 1
    assert tried["n_components"].max() <= 8


def two_groups(rng):
    group = rng.integers(0, 2, 50)
    return 20.0 * np.c_[group, group] + rng.normal(size=(50, 2)), group


def with_gaps(rng):
    X, _ = two_groups(rng)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[0] = np.nan
    return X


def mixed(rng):
    X, group = two_groups(rng)
    return np.c_[X, group]


def sparse_counts(rng):
    _, group = two_groups(rng)
    return csr_array(rng.poisson(np.where(group[:, None] == np.arange(4) % 2, 5.0, 0.1)))


_BLOCKS = [("real", "gaussian", [0, 1]), ("answers", "bernoulli", [2])]
FORMS = [
    pytest.param(AnnealedBayesianGaussianMixture(covariance_type=kind), with_gaps, id=kind)
    for kind in ("full", "tied", "diag", "spherical")
]
FORMS += [
    pytest.param(
        AnnealedBayesianGaussianMixture(factorization="independent"),
        lambda rng: two_groups(rng)[0],
        id="independent",
    ),
    pytest.param(AnnealedBayesianMixture(emission=_BLOCKS), mixed, id="blocks"),
    pytest.param(AnnealedBayesianMixture(emission="poisson"), sparse_counts, id="sparse"),
]


@pytest.mark.parametrize(("estimator", "data"), FORMS)
def test_with_many_more_rows_a_row_is_predicted_as_by_all(estimator, data, rng, monkeypatch):
    """A part that weighs a millionth of the data changes nothing in the posterior of the fit."""
    X = data(rng)
    est = clone(estimator).set_params(
        n_components=2, effort=0, tol=1e-12, max_iter=500, random_state=0
    )
    est.fit(X)
    ctx, units = context_of(est), units_of(est, X)

    def hardly(weights, whole):
        parts = np.zeros((len(weights), N_PARTS))
        parts[:, 0] = 1e-6 * weights
        return parts

    monkeypatch.setattr(_left_out, "dealt", hardly)
    found = ctx.model.left_out(units, ctx.q, ctx.summary, ctx.prior)
    expected = ctx.model.log_predictive(units.centered(ctx.summary), ctx.q)
    np.testing.assert_allclose(1e6 * found.log_densities, expected, rtol=1e-4, atol=1e-3)


# How rows are dealt to parts


def test_rows_are_dealt_by_turns():
    np.testing.assert_array_equal(dealt(np.ones(45)).argmax(axis=1), np.arange(45) % N_PARTS)


@pytest.mark.parametrize("weights", [[3.0, 1.0, 25.0], [0.4, 2.5, 0.0, 0.1], [0.01] * 30])
def test_parts_of_a_row_add_up_to_its_weight(weights):
    shares = dealt(np.array(weights))
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), weights, rtol=1e-12)


def test_a_row_of_weight_three_goes_to_three_parts():
    shares = dealt(np.array([1.0, 3.0, 1.0]))
    np.testing.assert_array_equal(shares[1], (np.isin(np.arange(N_PARTS), [1, 2, 3])) * 1.0)


def test_rows_that_remain_whole_are_dealt_by_turns():
    weights = np.array([3.0, 0.0, 0.5] + [1.0] * 30)
    shares = dealt(weights, whole=True)
    np.testing.assert_array_equal(shares.argmax(axis=1)[weights > 0], np.r_[0, 2:33] % N_PARTS)
    np.testing.assert_array_equal(shares.sum(axis=1), weights)
    assert ((shares > 0).sum(axis=1) == (weights > 0)).all()


def test_light_rows_are_dealt_like_rows_of_weight_one():
    np.testing.assert_allclose(dealt(np.full(30, 0.01)), 0.01 * dealt(np.ones(30)), atol=1e-12)


# Rows that other fits leave out


@pytest.mark.parametrize("weights", [np.ones(43), [3.0, 1.0, 25.0], [0.4, 2.5, 0.0, 0.1]])
def test_folds_have_the_weights_of_rows(weights, rng):
    shares = folds(np.array(weights), rng)
    assert shares.shape == (len(weights), N_FOLDS)
    np.testing.assert_allclose(shares.sum(axis=1), weights, rtol=1e-12)


def test_rows_that_remain_whole_are_in_one_fold(rng):
    shares = folds(np.array([3.0, 1.0, 0.25] * 5), rng, whole=True)
    assert ((shares > 0).sum(axis=1) == 1).all()
    assert ((shares > 0).sum(axis=0) == 3).all()


def test_folds_do_not_take_whole_groups_of_rows_that_are_in_turn(rng):
    groups = np.arange(100) % N_FOLDS
    shares = folds(np.ones(100), rng)
    assert set(shares.sum(axis=0)) == {100 / N_FOLDS}
    assert all(len(set(groups[part == 0])) == N_FOLDS for part in shares.T)
    assert not np.array_equal(shares, folds(np.ones(100), rng))


@pytest.mark.parametrize("weights", [None, [2.0, 0.3, 1.0, 3.0]])
def test_rows_that_remain_have_the_rest_of_their_weights(weights):
    share = np.array([1.0, 0.0, 1.0, 0.0]) if weights is None else np.array([0.5, 0.3, 1.0, 0.0])
    rows = Rows(np.arange(4.0)[:, None], None if weights is None else np.array(weights))
    rest = without(rows, share)
    assert rest.X.ravel().tolist() == ([1.0, 3.0] if weights is None else [0.0, 3.0])
    assert rest.weights is None if weights is None else rest.weights.tolist() == [1.5, 3.0]


def noise_of(kind, rng):
    """White noise, which several components predict better only by chance."""
    X = rng.normal(size=(40, 20))
    if kind == "gaps":
        X[rng.random(X.shape) < 0.1] = np.nan
        X[3:, 0] = np.nan
    return X


@pytest.mark.parametrize("kind", ["noise", "gaps"])
def test_folds_are_predicted_as_by_fits_to_the_other_rows(kind, rng):
    X = noise_of(kind, rng)
    est = AnnealedBayesianMixture("auto", emission="gaussian", random_state=0, effort=0)
    tried = clone(est).fit(X).component_results_
    compared = np.isfinite(tried["log_density_of_folds"]) & (tried["n_components"] > 1)
    assert compared.any(), "no number is in doubt: the test tests nothing"
    found = tried["log_density_of_folds"][compared][0]
    plain = est.set_params(n_components=tried["n_components"][compared][0], annealing="none")
    shares = folds(np.ones(40), generator(seed_sequence(np.random.RandomState(0))))
    expected = sum(
        clone(plain).fit(X[part == 0]).score_samples(X[part > 0]).sum() for part in shares.T
    )
    assert found == pytest.approx(expected, rel=1e-6)


def test_folds_leave_out_whole_sequences(rng):
    sequences = list(rng.normal(size=(10, 8, 6)))
    how = {"annealing": "none", "effort": 0, "random_state": 0}
    tried = AnnealedHMM("auto", **how).fit(sequences).component_results_
    compared = np.isfinite(tried["log_density_of_folds"]) & (tried["n_components"] > 1)
    assert compared.any(), "no number is in doubt: the test tests nothing"
    found = tried["log_density_of_folds"][compared][0]
    plain = AnnealedHMM(tried["n_components"][compared][0], **how)
    expected = 0.0
    for part in folds(np.ones(10), generator(seed_sequence(np.random.RandomState(0)))).T:
        others = clone(plain).fit(
            [X for X, share in zip(sequences, part, strict=True) if not share]
        )
        units = units_of(others, [X for X, share in zip(sequences, part, strict=True) if share])
        # The score would count frames by their design effect, which numbers are chosen without.
        ctx = context_of(others)
        expected += ctx.model.log_predictive(units.centered(ctx.summary), ctx.q).sum()
    assert found == pytest.approx(expected, rel=1e-6)


def test_folds_of_parts_and_weights_are_those_of_rows_in_memory(rng):
    X = noise_of("noise", rng)
    est = AnnealedBayesianMixture("auto", emission="gaussian", random_state=0, effort=0)
    whole = clone(est).fit(X)
    in_parts = clone(est).fit(Shards([X[:15], X[15:]]))
    more, weights = np.vstack([X, X[:5]]), np.r_[np.ones(40), np.zeros(5)]
    weighted = clone(est).fit(more, sample_weight=weights)
    assert whole.n_components_ == in_parts.n_components_ == weighted.n_components_ == 1
    for other in (in_parts, weighted):
        assert np.isfinite(other.component_results_["log_density_of_folds"][0])


def test_a_number_whose_fits_to_other_rows_fail_is_not_chosen(rng, monkeypatch):
    def failing(self, *args):
        raise np.linalg.LinAlgError("results that are not finite")

    X = noise_of("noise", rng)
    est = AnnealedBayesianMixture("auto", emission="gaussian", random_state=0, effort=0)
    monkeypatch.setattr(mixture.Mixture, "log_predictive", failing)
    monkeypatch.setattr(mixture.Mixture, "left_out", lambda *args: None)
    tried = est.fit(X).component_results_
    assert est.n_components_ == 1
    assert np.isneginf(tried["log_density_of_folds"]).any()


@pytest.mark.parametrize("covariates", [False, True])
def test_groups_are_found_that_predict_better_whatever_the_bound_says(covariates, rng, monkeypatch):
    monkeypatch.setattr(mixture, "_CHANCE_PER_COLUMN", 1e6)
    group = rng.integers(0, 2, 60)
    X = rng.random((60, 12)) < np.where(group[:, None] == 1, 0.8, 0.2)
    est = AnnealedBayesianMixture("auto", emission="bernoulli", random_state=0, effort=0)
    given = {"covariates": group[:, None] + rng.normal(size=(60, 1))} if covariates else {}
    tried = est.fit(X, **given).component_results_
    assert est.n_components_ == 2
    alone, two = tried["log_density_of_folds"][:2]
    assert two > alone + 10.0


# How numbers are compared


def test_frames_of_chains_are_not_left_out(rng):
    X, _ = two_groups(rng)
    est = AnnealedHMM("auto", effort=0, max_iter=3, random_state=0).fit(X)
    assert set(est.component_results_) == {
        "n_components",
        "lower_bound",
        "n_effective_components",
    }


def test_rows_that_stand_for_all_are_spread_over_them():
    few = Rows(np.arange(40.0)[:, None], (np.arange(40) >= 20).astype(float)).spread(4)
    assert few.X.ravel().tolist() == [20.0, 25.0, 30.0, 35.0]


@pytest.mark.parametrize(("n_rows", "counts"), [(11, False), (12, True)])
def test_rows_fewer_than_columns_are_not_left_out(n_rows, counts, rng):
    """Their densities would rise with every component, because it was learned with these rows."""
    est = AnnealedBayesianGaussianMixture("auto", random_state=0, effort=0, max_iter=3)
    tried = est.fit(rng.normal(size=(n_rows, 12))).component_results_
    assert ("log_density_left_out" in tried) == counts


def test_fewer_rows_of_white_noise_than_columns_are_one_group():
    """The densities of rows that are left out say that this table has several groups."""
    X = np.random.default_rng(5).normal(size=(40, 61))
    assert AnnealedBayesianGaussianMixture("auto", random_state=0).fit(X).n_components_ == 1
