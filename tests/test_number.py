"""``n_components="auto"``: what is tried, what is found, and what is refused."""

from __future__ import annotations

import re
import warnings
from copy import deepcopy
from functools import partial

import numpy as np
import pytest
from cases_gamma_process_nmf import drawn_counts
from harness import assert_identical, context_of, make_threads_worthwhile, quick, units_of
from peer_priors import MIXTURE_PRIORS, PEER_OF_MIXTURES
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedFactorialMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedPMF,
    Shards,
)
from sklearn_anneal.annealing import StructuredVI
from sklearn_anneal.estimators import _number
from sklearn_anneal.estimators._number import (
    Tried,
    best_number,
    contenders,
    decided,
    preferred,
)
from sklearn_anneal.models._left_out import LeftOut
from sklearn_anneal.search.moves import Reduction

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("few_passes_of_searches", "no_wait_for_the_disk"),
]


def groups(rng, n=60):
    return 8.0 * np.eye(3)[rng.integers(0, 3, n)] + rng.normal(size=(n, 3))


def answers(rng, n=120):
    p = np.array([[0.05] * 4 + [0.95] * 4, [0.95] * 4 + [0.05] * 4, [0.05, 0.95] * 4])
    return (rng.random((n, 8)) < p[rng.integers(0, 3, n)]).astype(int)


def series(rng):
    states = np.repeat(np.arange(6) % 3, 15)
    return 5.0 * np.eye(3)[states] + rng.normal(size=(90, 3))


def parts_of_counts(rng):
    return rng.poisson(rng.gamma(0.5, size=(60, 3)) @ rng.gamma(0.3, size=(3, 30)) * 5)


def automatic(**params):
    """A mixture that finds the number of its components, with few passes for each of them.

    It learns no priors, which would take most of the time of a pass.
    """
    settings = {"annealing": "none", "effort": 0, "random_state": 0}
    settings |= {"max_iter": 10, **PEER_OF_MIXTURES}
    return AnnealedBayesianGaussianMixture("auto", **settings | params)


@pytest.fixture(scope="module")
def found():
    """Rows of three components, and a fit that has found their number."""
    X = groups(np.random.default_rng(0))
    return X, automatic().fit(X)


# The estimator and data of three components.
CASES = [
    pytest.param(AnnealedBayesianGaussianMixture, {}, groups, id="gaussian_mixture"),
    pytest.param(AnnealedBayesianMixture, {"emission": "bernoulli"}, answers, id="mixture"),
    pytest.param(AnnealedHMM, {}, series, id="hidden_markov"),
    pytest.param(AnnealedGammaProcessNMF, {}, parts_of_counts, id="gamma_process_nmf"),
]


# The numbers that are tried


@pytest.mark.parametrize("truth", [1, 2, 3, 5, 11, 20, 37])
def test_the_best_of_bounds_with_one_peak_is_found_in_few_fits(truth):
    def fit(k, near):
        return {k: Tried(-float(abs(k - truth)), min(k, truth))}

    best, tried = best_number(fit, 1000)
    assert best == truth
    assert len(tried) <= 4 + 3 * np.log2(truth + 1)


def test_of_equal_bounds_that_of_fewer_components_counts():
    best, _ = best_number(lambda k, near: {k: Tried(0.0 if k >= 3 else -1.0, k)}, 50)
    assert best == 3


def densities(*of_rows):
    return LeftOut(np.array(of_rows), np.ones(len(of_rows)), float(len(of_rows)))


@pytest.mark.parametrize(
    ("bound", "of_rows", "better"),
    [
        (-10.0, [3.6, 3.6, 3.6, 3.6], True),
        (-10.0, [3.2, 3.2, 3.2, 3.2], False),  # 2.8 nats are no strong evidence
        (-10.0, [14.0, 0.0, 0.0, 0.0], False),  # the standard error of the sum is 12.1
        (0.0, [-2.0, 1.0, 1.0, 1.0], False),
        (-np.inf, [9.0, 9.0, 9.0, 9.0], False),
        (-10.0, [np.nan, 9.0, 9.0, 9.0], False),
    ],
)
def test_the_number_with_the_highest_bound_gives_way_to_strong_evidence(bound, of_rows, better):
    tried = {
        1: Tried(0.0, 1, densities(0.0, 0.0, 0.0, 0.0)),
        2: Tried(bound, 2, densities(*of_rows)),
    }
    assert preferred(tried) == (2 if better else 1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("failed", "best"), [(1, 2), (2, 1)])
def test_a_number_whose_fits_to_folds_failed_is_not_chosen(failed, best):
    tried = {1: Tried(0.0, 1, by_chance=2.0), 2: Tried(1.0, 2)}
    found = {k: densities(0.0, 0.0, -np.inf if k == failed else 0.0) for k in (1, 2)}
    assert decided(tried, lambda numbers: found) == best


def test_rows_of_a_sample_stand_for_all():
    one, two = LeftOut(np.zeros(2), np.ones(2), 200.0), LeftOut(np.r_[1.0, 3.0], np.ones(2), 200.0)
    assert two.total == 400.0
    # The mean rises by 2, with a standard error of 1 / √2.
    assert two.rise_over(one) == pytest.approx(200.0 * (2.0 - np.sqrt(0.5)))


def test_of_sequences_the_smallest_number_counts_that_none_is_better_than():
    def of_sequences(*values):
        return densities(*values)._replace(independent=False)

    tried = {
        1: Tried(0.0, 1, of_sequences(0.0, 0.0, 0.0, 0.0)),
        2: Tried(5.0, 2, of_sequences(2.0, 2.0, 2.0, 2.0)),
        3: Tried(90.0, 3, of_sequences(2.5, 2.5, 2.5, 2.5)),
    }
    assert preferred(tried) == 2
    assert preferred(tried | {4: Tried(9.0, 4, of_sequences(4.0, 4.0, 4.0, 4.0))}) == 4


@pytest.mark.parametrize(
    ("bounds", "of_sequences", "numbers"),
    [
        ((0.0, 20.0, 25.0), (0.0, 9.0, 9.5), [2]),  # a larger number has only the bound
        ((0.0, 99.0, 74.0), (0.0, 9.0, 15.0), [2, 3]),
        ((0.0, 99.0, 79.0), (0.0, 9.0, 15.0), [3]),  # the sum of 4 densities rises by more
        ((0.0, 8.0, 7.0), (0.0, 9.0, 9.5), [1, 2]),  # the bound rises as it does by chance
        ((0.0, -80.0, -90.0), (0.0, 9.0, 15.0), [1, 3]),
        ((0.0, -8.0, -9.0), (0.0, 0.0, 0.0), [1]),
    ],
)
def test_of_sequences_a_smaller_number_of_higher_bound_leaves_doubt(bounds, of_sequences, numbers):
    tried = {
        k: Tried(bound, k, densities(*[value] * 4)._replace(independent=False), by_chance)
        for k, bound, value, by_chance in zip(
            (1, 2, 3), bounds, of_sequences, (6.0, None, None), strict=True
        )
    }
    assert contenders(tried) == numbers


@pytest.mark.parametrize(("spread", "number"), [(1.0, 2), (2.0, 3)])
def test_states_give_way_to_fewer_that_predict_better_beyond_the_standard_error(spread, number):
    tried = {
        k: Tried(bound, k, densities(*[value] * 4)._replace(independent=False))
        for k, bound, value in ((1, 0.0, 0.0), (2, 99.0, 9.0), (3, 74.0, 15.0))
    }
    # Two states rise by 3 nats, with a standard error of twice the spread.
    folds = {
        2: densities(*(0.75 + spread * np.array([-1.0, -1.0, 1.0, 1.0]))),
        3: densities(0.0, 0.0, 0.0, 0.0),
    }
    assert decided(tried, lambda numbers: folds) == number


def test_the_search_for_states_goes_around_the_number_that_predicts_best():
    """The densities of finished fits rise with every state, and would lead it to larger numbers."""

    def fit(k, near):
        left_out = densities(*[9.0 * k] * 4)._replace(independent=False)
        return {k: Tried(-99.0 * abs(k - 3.4), k, left_out)}

    best, tried = best_number(
        fit, 9, lambda numbers: {k: densities(*[-abs(k - 3.4)] * 4) for k in numbers}
    )
    assert best == 3
    assert not {7, 9} & set(tried)


@pytest.mark.parametrize(("bound", "number"), [(9.1, 2), (8.9, 1), (np.nan, 1)])
def test_few_rows_have_groups_if_the_bound_rises_by_more_than_by_chance(bound, number):
    """Their densities, which would prefer two components, do not count."""
    tried = {
        1: Tried(0.0, 1, densities(0.0, 0.0, 0.0, 0.0), by_chance=6.0),
        2: Tried(bound, 2, densities(9.0, 9.0, 9.0, 9.0)),
    }
    assert decided(tried, lambda numbers: {}) == number


@pytest.mark.parametrize(
    ("bounds", "of_rows", "numbers"),
    [
        ((0.0, 20.0, 19.0), (0.0, 9.0, 9.5), [2]),
        ((0.0, 20.0, 19.0), (0.0, 9.0, 15.0), [2, 3]),  # densities prefer a larger number
        ((0.0, 8.0, 7.0), (0.0, 9.0, 9.5), [1, 2]),  # the bound rises as it does by chance
        ((0.0, 8.0, 7.0), (0.0, 9.0, 15.0), [1, 2, 3]),
        ((0.0, -8.0, -9.0), (0.0, 1.0, 2.0), [1]),
        ((0.0, -8.0, -9.0), (0.0, 20.0, 2.0), [1, 2]),
    ],
)
def test_numbers_on_which_bounds_and_densities_disagree_are_compared_by_other_fits(
    bounds, of_rows, numbers
):
    tried = {
        k: Tried(bound, k, densities(*[of_row] * 4), by_chance=6.0 if k == 1 else None)
        for k, bound, of_row in zip((1, 2, 3), bounds, of_rows, strict=True)
    }
    assert contenders(tried) == numbers
    asked = []

    def predicted(numbers, rise=3.2, error=0.0):
        asked.append(numbers)
        spread = error * np.array([-1.0, -1.0, 1.0, 1.0])  # the standard error is twice the error
        return {k: densities(*(k * (rise / 4 + spread))) for k in numbers}

    assert decided(tried, predicted) == numbers[-1]
    assert asked == ([numbers] if len(numbers) > 1 else [])
    # One component does not give way to a rise of less than the standard error and 3 nats.
    little = partial(predicted, rise=1.4), partial(predicted, rise=5.0, error=2.0)
    for chance in little:
        assert decided(tried, chance) == (1 if 1 in numbers else numbers[-1])
    failed = decided(tried, lambda numbers: {k: densities(-np.inf, -9.0) for k in numbers})
    assert failed == numbers[0]


def test_one_component_that_predicts_best_ends_the_search():
    def fit(k, near):
        return {k: Tried(float(k > 1), k, by_chance=6.0 if k == 1 else None)}

    best, tried = best_number(fit, 50, lambda numbers: {k: densities(-k) for k in numbers})
    assert best == 1
    assert sorted(tried) == [1, 2, 4, 8]
    best, tried = best_number(
        fit, 50, lambda numbers: {k: densities(2 * k, 2 * k) for k in numbers}
    )
    assert best == 2
    assert 3 in tried


def test_no_more_components_than_rows_are_tried():
    best, tried = best_number(lambda k, near: {k: Tried(float(k), k)}, 21)
    assert best == 21
    assert max(tried) == 21


def test_a_number_with_which_the_fit_fails_is_not_chosen():
    best, _ = best_number(lambda k, near: {k: Tried(-np.inf if k > 2 else float(k), k)}, 50)
    assert best == 2


# What is found


def test_the_default_finds_three_components(rng):
    est = AnnealedBayesianGaussianMixture("auto", random_state=0)
    assert est.fit(groups(rng, 30)).n_components_ == 3


@pytest.mark.parametrize(("make", "params", "data"), CASES)
def test_three_components_are_found(make, params, data, rng):
    X = data(rng)
    est = make(random_state=0, effort=0, annealing=quick("deterministic"), max_iter=40, **params)
    est.set_params(n_components="auto").fit(X)
    assert est.n_components_ == 3
    assert est.n_effective_components_ == 3
    tried = est.component_results_
    assert est.lower_bound_ >= tried["lower_bound"].max() - 1e-3 * abs(est.lower_bound_)
    assert {1, 2, 3, 4} <= set(tried["n_components"].tolist())
    assert est.transform(X).shape == (len(X), 3)
    assert est.get_params()["n_components"] == "auto"


@pytest.mark.parametrize(
    ("make", "params", "X"),
    [
        (AnnealedBayesianGaussianMixture, {}, np.random.default_rng(1).normal(size=(80, 3))),
        (
            AnnealedBayesianMixture,
            {"emission": "categorical"},
            np.random.default_rng(2).integers(0, 3, (80, 6)),
        ),
        (AnnealedHMM, {"emission": "poisson"}, np.random.default_rng(3).poisson(4.0, (80, 2))),
    ],
)
def test_data_without_groups_have_one_component(make, params, X):
    est = make(random_state=0, effort=0, annealing="none", max_iter=30, **params)
    assert est.set_params(n_components="auto").fit(X).n_components_ == 1


@pytest.mark.parametrize(
    ("make", "params", "data"),
    [
        (AnnealedBayesianGaussianMixture, {}, groups),
        (AnnealedBayesianGaussianMixture, {"covariance_type": "tied"}, groups),
        (AnnealedBayesianMixture, {"emission": [("all", "gaussian", [0, 1, 2])]}, groups),
        (AnnealedHMM, {"duration": "auto"}, series),
    ],
)
def test_components_that_the_search_empties_are_left_out(make, params, data, rng, monkeypatch):
    """Their priors cost more than nothing, so that the bound rises without them."""
    monkeypatch.setattr(_number, "best_number", lambda fit, *rest: (6, fit(6, None)))
    est, X = make("auto", random_state=0, annealing="none", **params), data(rng)
    kept = clone(est).fit(X)
    assert kept.n_components_ == kept.n_effective_components_ < 6
    assert kept.transform(X).shape == (len(X), kept.n_components_)
    assert kept.search_results_["move"][-1] == "reduction"
    monkeypatch.setattr(Reduction, "propose", lambda *args: None)
    assert kept.lower_bound_ > clone(est).fit(X).lower_bound_


@pytest.mark.parametrize("truth", [pytest.param(1, marks=pytest.mark.exhaustive), 3])
def test_the_number_of_states_is_found_in_several_sequences(truth, rng):
    """Their densities are what is compared, and not the bound."""
    states = np.repeat(rng.integers(0, truth, 30), 6)
    frames = 5.0 * np.eye(3)[states] + rng.normal(size=(180, 3))
    how = {"annealing": quick("deterministic"), "random_state": 0, "effort": 0, "max_iter": 30}
    est = AnnealedHMM("auto", **how).fit(np.split(frames, 10))
    assert est.n_components_ == truth
    assert len(est.component_results_["log_density_left_out"])


def test_states_that_are_those_of_single_sequences_do_not_count(rng):
    """Every sequence has a mean of its own, which says nothing of those of other sequences."""
    sequences = [rng.normal(size=4) + 0.05 * rng.normal(size=(30, 4)) for _ in range(12)]
    est = AnnealedHMM("auto", annealing="none", random_state=0, effort=0).fit(sequences)
    tried = est.component_results_
    assert tried["n_components"][tried["lower_bound"].argmax()] >= 8
    assert est.n_components_ <= 2


@pytest.mark.parametrize(
    "params",
    [
        pytest.param({"annealing": quick("deterministic")}, marks=pytest.mark.exhaustive),
        {"annealing": quick("reheating"), "n_init": 2},
    ],
)
def test_the_fit_goes_on_from_what_was_tried_as_if_it_had_begun_anew(params, rng, tmp_path, capsys):
    """With a checkpoint it is run from its start, so that all of it is stored."""
    X = groups(rng, 20)
    est = automatic(effort=1, max_iter=6, **params)
    again = clone(est).set_params(verbose=1).fit(X, checkpoint=tmp_path)
    assert_identical(again, clone(est).fit(X))
    assert "n_components=3" in capsys.readouterr().out


def test_a_search_whose_moves_pause_goes_on_as_if_it_had_begun_anew(rng, tmp_path):
    """The fits that are compared have made the same moves, which pause in full tables."""
    X = drawn_counts(rng, n=120, n_columns=16, n_parts=6, size=20.0)
    est = AnnealedGammaProcessNMF("auto", random_state=0)
    first = clone(est).fit(X)
    assert first.search_results_["move"][-1] == "continuation"
    assert_identical(clone(est).fit(X, checkpoint=tmp_path), first)


def test_a_given_number_is_an_attribute_too(rng):
    est = AnnealedBayesianGaussianMixture(2).fit(groups(rng))
    assert est.n_components_ == 2
    assert not hasattr(est, "component_results_")


def test_jobs_and_clones_find_the_same_to_the_last_bit(rng, monkeypatch):
    make_threads_worthwhile(monkeypatch)
    X = answers(rng, 40)
    how = {"annealing": quick("deterministic"), "effort": 0, "max_iter": 8, "random_state": 0}
    est = AnnealedBayesianMixture("auto", emission="bernoulli", **how)
    one, two = (clone(est).set_params(n_jobs=n).fit(X) for n in (1, 2))
    assert_identical(one, two)


def test_any_random_state_gives_every_number_the_same_start(rng):
    X = groups(rng, 20)
    states = (3, np.random.RandomState(3))
    fits = [automatic(random_state=s, max_iter=3).fit(X) for s in states]
    assert fits[0].lower_bound_ == fits[1].lower_bound_


def test_parts_and_weights_find_the_number(rng):
    X = groups(rng)
    assert automatic().fit(Shards([X[:20], X[20:]])).n_components_ == 3
    weights = np.r_[np.ones(45), np.zeros(15)]
    assert automatic().fit(X, sample_weight=weights).n_components_ == 3


def test_pipelines_and_predictions_need_no_number(rng):
    X = groups(rng)
    pipeline = make_pipeline(StandardScaler(), automatic()).fit(X)
    labels = KMeans(3, n_init=1, random_state=0).fit_predict(X)
    assert len(set(zip(pipeline.predict(X), labels, strict=True))) == 3
    assert np.isfinite(pipeline.score(X))
    assert len(pipeline[-1].sample(5)[0]) == 5


def test_two_rows_are_one_component():
    est = AnnealedBayesianGaussianMixture("auto", random_state=0)
    assert est.fit([[0.0, 1.0], [1.0, 0.0]]).n_components_ == 1


def test_the_fit_that_is_kept_has_no_less_evidence_than_that_of_the_highest_bound(rng):
    """Components of less than a row can be worth their place, and annealing can lose them."""
    X = rng.normal(size=(50, 4))  # a single component learns from them
    learned = dict.fromkeys(MIXTURE_PRIORS, "auto")
    est = automatic(annealing="stochastic", effort=1, **learned).fit(X)
    tried, ctx = est.component_results_, context_of(est)
    left_out = ctx.model.left_out(units_of(est, X), ctx.q, ctx.summary, ctx.prior)
    evidence = tried["lower_bound"] + tried["log_density_left_out"]
    best = evidence[tried["lower_bound"].argmax()]
    assert est.lower_bound_ + left_out.total >= best - 1e-9 * abs(best)


@pytest.mark.parametrize(
    "emission", ["bernoulli", pytest.param("gaussian", marks=pytest.mark.exhaustive)]
)
def test_many_columns_have_groups_where_rows_differ_and_none_in_white_noise(emission):
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(30, 30))
    groups = noise + 2.5 * np.outer(np.arange(30) % 2, np.arange(30) < 12)
    for X, number in ((noise, 1), (groups, 2)):
        est = AnnealedBayesianMixture("auto", emission=emission, random_state=0)
        rows = (X > 0.8 * number - 0.8) if emission == "bernoulli" else X
        assert est.fit(rows.astype(float)).n_components_ == number


@pytest.mark.parametrize("number", [1, 2])
def test_groups_and_noise_of_many_columns_are_not_divided(number):
    """The densities of rows that are left out, and even the bound, prefer more components."""
    groups = np.outer(np.arange(100) % number == 1, np.arange(40) < 8)
    X = np.random.default_rng(4).normal(size=(100, 40)) + 2.5 * groups
    est = AnnealedBayesianMixture("auto", emission="gaussian", random_state=0).fit(X)
    tried = est.component_results_
    assert tried["n_components"][tried["log_density_left_out"].argmax()] > number
    assert tried["n_components"][np.nanargmax(tried["log_density_of_folds"])] == number
    assert est.n_components_ == number


def test_folds_whose_rows_are_refused_do_not_end_a_fit():
    """One row alone makes two columns different."""
    X = np.random.default_rng(2).standard_t(3, size=(200, 12))
    X = np.column_stack([X, X[:, 0]])
    X[7, -1] += 0.5
    params = {"reg_covar": 0.0, "annealing": "none", "max_iter": 30, "random_state": 0}
    est = AnnealedBayesianGaussianMixture("auto", **params).fit(X)
    assert est.n_components_ >= 1
    assert "log_density_of_folds" not in est.component_results_


def test_many_columns_of_white_noise_are_one_state():
    sequences = np.random.default_rng(52).normal(size=(10, 10, 20))
    assert AnnealedHMM("auto", random_state=0).fit(list(sequences)).n_components_ == 1


@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.exhaustive), 2])
def test_states_and_noise_of_several_sequences_are_not_divided(number):
    """The densities of sequences that finished fits leave out prefer more states than there are."""
    rng = np.random.default_rng(53)
    states = np.repeat(rng.integers(number, size=50), 5)
    X = rng.normal(size=(250, 9)) + 2.0 * np.eye(9)[states]
    how = {"annealing": "none", "effort": 0, "random_state": 0}
    est = AnnealedHMM("auto", **how).fit(np.split(X, 10))
    tried = est.component_results_
    assert tried["n_components"][tried["log_density_left_out"].argmax()] > number
    assert tried["n_components"][np.nanargmax(tried["log_density_of_folds"])] == number
    assert est.n_components_ == number


@pytest.mark.parametrize(("n_rows", "n_columns"), [(20, 2), (40, 4), (40, 5), (40, 15)])
def test_few_rows_of_white_noise_are_one_group(rng, n_rows, n_columns):
    """A single component is compared with learned priors, and predicts with the usual ones.

    With fewer than ten rows for each column, priors are learned from any number of rows.
    """
    X = rng.normal(size=(n_rows, n_columns))
    est = AnnealedBayesianGaussianMixture("auto", random_state=0).fit(X)
    assert est.n_components_ == 1
    alone = AnnealedBayesianGaussianMixture(random_state=0).fit(X)
    assert est.lower_bound_ == pytest.approx(alone.lower_bound_, rel=1e-9)
    gained = est.component_results_["lower_bound"][0] - alone.lower_bound_
    assert gained > 1.0 if n_rows >= 10 * n_columns else abs(gained) < 1e-6


@pytest.mark.parametrize("kind", ["series", "mixed", "bernoulli", "poisson"])
def test_few_rows_of_other_kinds_without_structure_are_one_group(rng, kind):
    if kind == "series":
        X, est = [rng.normal(size=(30, 2))], AnnealedHMM("auto", random_state=0)
    else:
        blocks = [("real", "gaussian", [0, 1]), ("kinds", "categorical", [2])]
        emission = blocks if kind == "mixed" else kind
        est = AnnealedBayesianMixture("auto", emission=emission, random_state=0)
        X = {
            "mixed": np.column_stack([rng.normal(size=(30, 2)), rng.integers(3, size=30)]),
            "bernoulli": rng.integers(2, size=(30, 5)),
            "poisson": rng.poisson(2, size=(30, 4)),
        }[kind]
    assert est.fit(X).n_components_ == 1


def test_if_every_number_fails_the_error_says_why(rng, monkeypatch):
    def failing(*args):
        raise np.linalg.LinAlgError("results that are not finite")

    monkeypatch.setattr(AnnealedBayesianGaussianMixture, "_start_anew", failing)
    with pytest.raises(ValueError, match="Fitting failed"):
        AnnealedBayesianGaussianMixture("auto").fit(groups(rng))


def test_results_of_numbers_belong_to_their_fit(found):
    X, est = deepcopy(found)
    assert hasattr(est, "component_results_")
    assert not hasattr(est.set_params(n_components=2).fit(X), "component_results_")


def test_a_resumed_fit_has_the_number_of_the_interrupted_one(rng, tmp_path, monkeypatch):
    """Without a random state, another search could find another number."""
    X = rng.normal(size=(20, 4))
    how = {"annealing": quick("stochastic"), "random_state": None, "max_iter": 8}
    est = automatic(**how)
    np.random.seed(0)  # noqa: NPY002
    first = clone(est).fit(X, checkpoint=tmp_path)
    monkeypatch.setattr(AnnealedBayesianGaussianMixture, "_choose_number", None)
    np.random.seed(1)  # noqa: NPY002
    assert_identical(clone(est).fit(X, checkpoint=tmp_path), first)


def test_a_checkpoint_is_that_of_the_fit_that_is_kept(rng, tmp_path):
    X = groups(rng, 20)
    est = automatic(annealing=quick("reheating"), effort=0.5, max_iter=5)
    plain = clone(est).fit(X)
    kept = clone(est).fit(X, checkpoint=tmp_path)
    again = clone(est).fit(X, checkpoint=tmp_path)
    assert plain.lower_bound_ == kept.lower_bound_ == again.lower_bound_


def test_warm_starts_and_streams_go_on_with_the_number_that_was_found(found):
    X, est = deepcopy(found)
    est.set_params(warm_start=True)
    assert est.fit(X).n_components_ == 3
    assert est.partial_fit(X).n_components_ == 3


def test_the_number_that_was_found_can_be_given_from_then_on(found):
    X, est = deepcopy(found)
    est.set_params(n_components=3).partial_fit(X)
    assert est.set_params(warm_start=True).fit(X).n_components_ == 3
    with pytest.raises(ValueError, match="n_components=3, but n_components=4 now"):
        est.set_params(n_components=4).partial_fit(X)


def test_chains_with_priors_of_transitions_find_the_number(rng):
    how = {"annealing": quick("deterministic"), "effort": 0, "random_state": 0, "max_iter": 20}
    est = AnnealedHMM("auto", **how, sticky=10.0, transmat_prior="auto")
    assert est.fit(series(rng)).n_components_ == 3


def test_verbose_tells_of_every_number(rng, capsys):
    est = automatic(verbose=1, max_iter=3)
    est.fit(groups(rng, 20))
    shown = capsys.readouterr().out
    assert shown.startswith("AnnealedBayesianGaussianMixture(")
    assert shown.count("restarts:") == 1
    # Each run says why it ends, and the search what it has reached.
    for pattern in (r"^n_components=(\d+): lower bound", r"^n_components=(\d+) · ended after"):
        found = re.findall(pattern, shown, re.MULTILINE)
        assert set(map(int, found)) == set(est.component_results_["n_components"])


# What is refused


def test_a_stream_cannot_begin_without_a_number(rng):
    est = automatic()
    with pytest.raises(ValueError, match="needs all data at once"):
        est.partial_fit(groups(rng))
    assert not hasattr(est, "lower_bound_")


def test_states_that_are_known_need_a_number(rng):
    X = series(rng)
    with pytest.raises(ValueError, match="states says something of each component"):
        AnnealedHMM("auto").fit(X, states=np.zeros(len(X), dtype=int))


def test_priors_of_each_component_need_a_number(rng):
    est = AnnealedHMM("auto", transmat_prior=np.ones((3, 3)))
    with pytest.raises(ValueError, match="tries several numbers, of which 1 is refused"):
        est.fit(series(rng))


@pytest.mark.parametrize("make", [AnnealedPMF, AnnealedFactorialMixture])
def test_other_models_have_no_number_to_find(make):
    with pytest.raises(InvalidParameterError, match="n_components"):
        make("auto").fit(np.ones((10, 4)))


def test_what_the_search_for_a_number_computes_does_not_change_the_data(rng, tmp_path):
    """Sparse counts keep their columns in another order once a fit has needed it."""
    X = csr_array(parts_of_counts(rng)[:30])
    structured = StructuredVI(n_passes=5)
    est = AnnealedGammaProcessNMF("auto", annealing=structured, max_iter=2, random_state=0)
    assert_identical(clone(est).fit(X, checkpoint=tmp_path), clone(est).fit(X))


@pytest.mark.parametrize("emission", ["gaussian", "poisson"])
def test_a_chosen_number_above_that_of_distinct_rows_warns_of_nothing(emission, rng):
    """k-means warned of it, though nobody had asked for so many clusters."""
    X = 10.0 * rng.integers(0, 2, (120, 2))
    if emission == "gaussian":
        mixture = AnnealedBayesianGaussianMixture("auto", random_state=0)
    else:
        X = csr_array(X)
        mixture = AnnealedBayesianMixture(
            "auto", emission="poisson", init_params="kmeans", random_state=0
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        est = mixture.fit(X)
    assert est.component_results_["n_components"].max() > 4
    # The number of the user is a mistake that is worth a warning.
    given = clone(mixture).set_params(n_components=9, effort=0)
    with pytest.warns(ConvergenceWarning, match="Number of distinct clusters"):
        given.fit(X)
