"""Moves and the race of restarts: what they keep, what they cost, and when they end."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
from far_backend import far_away
from harness import (
    alternating,
    assert_identical,
    context_of,
    crossed,
    first_variants,
    make_threads_worthwhile,
    models,
    of_each_class_and_method,
    open_run,
    quick,
    units_of,
    variants,
)
from joblib import parallel_config
from peer_priors import MIXTURE_PRIORS, PEER_OF_MIXTURES
from scipy.sparse import csr_array
from scipy.special import xlogy
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale
from test_callbacks import Recorder

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedFactorialMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
)
from sklearn_anneal.annealing import ANNEALING, DeterministicAnnealing
from sklearn_anneal.annealing._base import Context
from sklearn_anneal.data.tables import Blocks
from sklearn_anneal.data.units import Sequences
from sklearn_anneal.families import Dirichlet, Factors
from sklearn_anneal.inference import loop
from sklearn_anneal.inference.progress import Momentum, Progress, Trace
from sklearn_anneal.inference.stopping import RiseOfBound
from sklearn_anneal.inference.visits import PLAIN
from sklearn_anneal.models._exchangeable import across_widest, of_one_value
from sklearn_anneal.models._merges import disjoint_pairs, merge_gains
from sklearn_anneal.models._searchable import Searchable
from sklearn_anneal.models.gamma_process_nmf import GammaProcessNMF
from sklearn_anneal.parallel.workers import SEQUENTIAL
from sklearn_anneal.search import restarts
from sklearn_anneal.search.moves import Reheat, Swap
from sklearn_anneal.search.search import Found, Moves

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("few_passes_of_searches"),
]
LEARNED = dict.fromkeys(MIXTURE_PRIORS, "auto")
WITH_FINISH = [name for name in ANNEALING if name not in ("none", "structured")]


def rows(n=100, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(5, d))[rng.integers(5, size=n)]


def mixture(**params):
    """A mixture that learns no priors, which would take most of the time of a pass."""
    settings = {"n_components": 6, "annealing": quick("svi_plus", 3), "random_state": 0}
    settings |= PEER_OF_MIXTURES
    return AnnealedBayesianGaussianMixture(**settings | {"n_jobs": 1} | params)


def assert_own_bound(est, X):
    """Check that the bound is that of the fitted parameters."""
    ctx = context_of(est)
    units = units_of(est, X).centered(ctx.summary)
    bound = loop.lower_bound(ctx, units, SEQUENTIAL)
    if isinstance(est, AnnealedGammaProcessNMF):
        # Activations that start anew can end in a lower optimum than those that went on. These had
        # one sweep after further passes have moved the components, and 100 raise the bound a bit.
        assert est.lower_bound_ >= bound - 1e-4 * abs(bound)
    else:
        assert est.lower_bound_ == pytest.approx(bound, rel=1e-6)
    assert est.lower_bounds_[-1] == est.lower_bound_
    assert len(est.lower_bounds_) == len(est.temperatures_) == est.n_iter_


@pytest.fixture
def undone(monkeypatch):
    """A list with an entry for every update that momentum has undone."""
    made, undo = [], Momentum.undo
    monkeypatch.setattr(Momentum, "undo", lambda self, ctx: (made.append(ctx), undo(self, ctx)))
    return made


# Moves


def moves_of(est):
    return list(est.search_results_["move"])


def turns_of(est):
    """The moves that take turns, without the comparison with plain inference."""
    return [name for name in moves_of(est) if name != "plain"]


@pytest.mark.parametrize(
    ("entry", "params", "name"), of_each_class_and_method(crossed(first_variants(), WITH_FINISH))
)
def test_a_fit_keeps_the_best_of_its_first_optimum_and_its_moves(entry, params, name, rng, undone):
    X = entry.data(rng, 40)
    settings = {**params, "annealing": quick(name), "max_iter": 8, "n_jobs": 1}
    first = entry.make(**settings, effort=0).fit(X)
    searched = entry.make(**settings, effort=1).fit(X)
    results = searched.search_results_
    assert len(turns_of(searched)) > 0
    assert moves_of(first) == []
    np.testing.assert_array_equal(
        searched.restart_lower_bounds_, first.restart_lower_bounds_, strict=True
    )
    best = first.lower_bound_
    for bound, kept in zip(results["lower_bound"], results["kept"], strict=True):
        # A rise within rounding errors does not count.
        assert kept == (bound - best > 1e-12 * abs(best))
        best = bound if kept else best
    assert searched.lower_bound_ == best
    assert searched.annealing_.get_params() == first.annealing_.get_params()
    assert first.n_passes_ == first.n_iter_
    # The data are visited once more after every update that is undone.
    assert searched.n_passes_ == first.n_passes_ + results["n_passes"].sum() + len(undone)


@pytest.mark.parametrize("entry", models())
def test_the_bound_of_a_search_is_that_of_its_parameters(entry, rng):
    X = entry.data(rng, 25)
    est = entry.make(**entry.first, annealing=quick("svi_plus", 2), max_iter=200, effort=1).fit(X)
    assert_own_bound(est, X)


def easy_rows():
    """Three clusters that no start misses."""
    return np.repeat(50 * np.eye(3), 40, axis=0) + np.random.default_rng(0).normal(size=(120, 3))


def test_rejected_moves_leave_the_fit_as_it_was():
    params = {"n_components": 3, "tol": 1e-9, "max_iter": 100, "annealing": "reheating"}
    first = mixture(**params, effort=0).fit(easy_rows())
    est = mixture(**params, effort=10).fit(easy_rows())
    assert len(turns_of(est)) > 3
    if not est.search_results_["kept"].any():
        for name in ("means_", "covariances_", "weights_", "lower_bounds_", "temperatures_"):
            np.testing.assert_array_equal(getattr(est, name), getattr(first, name))
    assert est.lower_bound_ == pytest.approx(first.lower_bound_, abs=1e-4 * 120)


def test_a_swap_finds_the_groups_that_a_bad_start_has_merged(rng):
    """Two components share a group, and one has two groups, which plain inference cannot mend."""
    centers = 40.0 * np.array([[0, 0], [0, 1], [1, 0], [5, 5], [5, 6]])
    labels = rng.integers(5, size=100)
    X = centers[labels] + rng.normal(size=(100, 2))
    params = {"n_components": 5, "init_params": "random_from_data", **PEER_OF_MIXTURES}
    plain = [
        AnnealedBayesianGaussianMixture(**params, random_state=s, annealing="none").fit(X)
        for s in range(6)
    ]
    found = [len(np.unique(est.predict(X))) for est in plain]
    assert min(found) < 5  # otherwise the test would show nothing
    for seed in np.flatnonzero(np.array(found) < 5)[:2]:
        est = AnnealedBayesianGaussianMixture(**params, random_state=int(seed)).fit(X)
        pairs = set(zip(labels.tolist(), est.predict(X).tolist(), strict=True))
        assert len(pairs) == 5


MIXTURES = [
    pair
    for pair in variants()
    if isinstance(pair.values[0].make(), AnnealedBayesianGaussianMixture | AnnealedBayesianMixture)
]


@pytest.mark.parametrize(("entry", "params"), MIXTURES)
def test_components_in_another_order_explain_rows_as_before(entry, params, rng):
    X = entry.data(rng, 60)
    est = entry.make(**params, annealing="none", max_iter=5).fit(X)
    ctx = context_of(est)
    model, units = ctx.model, units_of(est, X).centered(ctx.summary)
    order = rng.permutation(model.n_components)
    weights = model.weights.factor.pick(ctx.q).values()
    q = dict(ctx.q) | model.components.reordered(ctx.q, order)
    assert len(weights) > 0
    np.testing.assert_allclose(
        model.log_densities(units, q), model.log_densities(units, ctx.q)[:, order], rtol=1e-9
    )


def bound_given(model, r, units, ctx):
    """The part of the bound that components and rows contribute, given responsibilities."""
    q = model.posterior_given(r, units, ctx.summary, ctx.prior)
    likelihood = np.sum(r * model.log_densities(units, q))
    factors = Factors(model.components.factors)
    return likelihood - factors.kl(q, ctx.prior), q


@pytest.mark.parametrize(("entry", "params"), MIXTURES)
def test_gains_of_merges_are_those_of_the_bound_given_responsibilities(entry, params, rng):
    X = entry.data(rng, 60)
    est = entry.make(**params, annealing="none", max_iter=3).fit(X)
    ctx = context_of(est)
    model, units = ctx.model, units_of(est, X).centered(ctx.summary)
    r = rng.dirichlet(np.ones(model.n_components), size=units.n_units)
    before, q = bound_given(model, r, units, ctx)
    gain = model.components.merge_gains(q, ctx.prior, np.array([0]), np.array([1]))[0]
    merged = r.copy()
    merged[:, 0] += merged[:, 1]
    merged[:, 1] = 0.0
    change = bound_given(model, merged, units, ctx)[0] - before
    settings = est.get_params()
    tied = settings.get("covariance_type") == "tied"
    # Zeros keep their shares of causes in the gain, and change them with the rates in the bound.
    causes = settings.get("emission") == "zero_inflated_poisson"
    exact = not (tied or causes or settings.get("factorization") == "independent")
    if exact:
        assert gain == pytest.approx(change, rel=1e-6, abs=1e-6)
    else:
        assert gain == pytest.approx(change, rel=0.3, abs=3)


def of_labels(r):
    """The evidence of weights given the numbers of rows, and the entropy of the assignments."""
    weights = Dirichlet().log_normalizer({"concentration": r.sum(axis=0) + 1 / r.shape[1]})
    return weights - xlogy(r, r).sum()


def test_gains_of_merges_know_priors_of_single_components(rng, monkeypatch):
    X = (rng.random((60, 6)) < 0.4).astype(int)
    prior = rng.uniform(0.2, 20.0, size=(4, 6))
    est = AnnealedBayesianMixture(4, annealing="none", max_iter=3, emissionprob_prior=prior).fit(X)
    ctx = context_of(est)
    model, units = ctx.model, units_of(est, X).centered(ctx.summary)
    r = rng.dirichlet(np.ones(4), size=units.n_units)
    before, q = bound_given(model, r, units, ctx)
    pairs = np.triu_indices(4, 1)
    gains = model.components.merge_gains(q, ctx.prior, *pairs)
    # In parts, as for large parameters, they are the same.
    how = model.components, q, ctx.prior, r, np.ones(units.n_units)
    whole = merge_gains(*how)
    monkeypatch.setattr("sklearn_anneal.models._merges._NUMBERS_AT_A_TIME", 20)
    np.testing.assert_array_equal(merge_gains(*how), whole)
    for i, j, gain in zip(*pairs, gains, strict=True):
        merged = r.copy()
        merged[:, i] += merged[:, j]
        merged[:, j] = 0.0
        assert gain == pytest.approx(bound_given(model, merged, units, ctx)[0] - before, rel=1e-6)
        # The weights are integrated out, with a Dirichlet prior of 1 / 4.
        rise = gain + of_labels(merged) - of_labels(r)
        assert whole[i, j] == pytest.approx(rise, rel=1e-9)
    order = model.preferred_order(q, ctx.prior)
    if order is not None:
        _, prior, parameters = model.reordered(q, ctx.prior, order)
        assert all((parameters[key] - prior[key] > -1e-9).all() for key in q)


@pytest.mark.parametrize(
    "covariance_type",
    [
        "full",
        "tied",
        pytest.param("diag", marks=pytest.mark.exhaustive),
        pytest.param("spherical", marks=pytest.mark.exhaustive),
    ],
)
def test_components_that_a_group_does_not_need_are_merged(covariance_type):
    X = np.vstack([clusters_at(0.0, 80), clusters_at(12.0, 80)])
    params = {"n_components": 8, "annealing": "reheating", "covariance_type": covariance_type}
    params |= LEARNED
    first, searched = mixture(**params, effort=0).fit(X), mixture(**params).fit(X)
    assert searched.n_effective_components_ == 2
    if covariance_type != "tied":
        assert first.n_effective_components_ > 2
    assert searched.lower_bound_ > first.lower_bound_ + 2


def clusters_at(center, n, seed=0):
    return center + np.random.default_rng([seed, int(center)]).normal(size=(n, 2))


def test_disjoint_pairs_are_the_best_ones_without_common_components():
    gains = np.full((4, 4), -np.inf)
    gains[0, 1], gains[1, 2], gains[2, 3], gains[0, 3] = 5.0, 4.0, 3.0, -1.0
    assert disjoint_pairs(gains, 0.0) == [(0, 1), (2, 3)]
    assert disjoint_pairs(gains, 3.5) == [(0, 1)]
    assert disjoint_pairs(gains, 6.0) == []


@pytest.mark.parametrize("concentration", [0.2, 2.0, "auto"])
@pytest.mark.parametrize("n_rows", [12, 300])
def test_the_order_of_components_is_the_best_of_all_orders(concentration, n_rows):
    X = rows(n_rows, 3)
    est = mixture(n_components=4, annealing="none", weight_concentration_prior=concentration)
    ctx = context_of(est.fit(X))
    units, counts = units_of(est, X).centered(ctx.summary), None
    found = []
    for order in permutations(range(4)):
        trial = copy(ctx)
        counts = ctx.model.weights.expected_counts(ctx.q, ctx.prior)[list(order)]
        of_weights = ctx.model.weights.statistics(counts)
        trial.q = {key: ctx.prior[key] + value for key, value in of_weights.items()}
        trial.q |= ctx.model.components.reordered(ctx.q, np.array(order))
        trial.model = copy(ctx.model)
        trial.model.components, own = ctx.model.components.carried(ctx.prior, np.array(order))
        trial.prior = ctx.prior | own
        found.append(loop.lower_bound(trial, units, SEQUENTIAL))
    best = copy(ctx)
    order = ctx.model.preferred_order(ctx.q, ctx.prior)
    if order is not None:
        best.model, best.prior, best.q = ctx.model.reordered(ctx.q, ctx.prior, order)
    assert max(found) - min(found) > 0.1
    assert loop.lower_bound(best, units, SEQUENTIAL) == pytest.approx(max(found), abs=0.02)
    sizes = ctx.model.weights.expected_counts(best.q, best.prior)
    assert (np.diff(sizes[: None if concentration != "auto" else -1]) <= 0).all()
    assert best.model.preferred_order(best.q, best.prior) is None


@pytest.mark.parametrize("make", [AnnealedBayesianGaussianMixture, AnnealedBayesianMixture])
def test_a_search_ends_with_the_largest_components_first(make):
    X = rows(100, 3)
    params = {"emission": "gaussian"} if make is AnnealedBayesianMixture else {}
    params |= {"n_components": 5, "effort": 1, "annealing": quick("reheating")}
    fits = [make(random_state=seed, **params).fit(X) for seed in range(2)]
    assert any("reorder" in moves_of(est) for est in fits)
    for est in fits:
        # The last one takes what is left, which can be more.
        assert (np.diff(est.weights_[:-1]) < 1e-6).all()


def test_dirichlet_weights_have_no_order():
    X = rows(100, 3)
    est = mixture(
        annealing="reheating", weight_concentration_prior_type="dirichlet_distribution"
    ).fit(X)
    assert "reorder" not in moves_of(est)


def test_the_budget_is_a_multiple_of_the_first_fit():
    params = {"n_components": 8, "annealing": "reheating", "max_iter": 100}
    X = rows(150, 8)
    first = mixture(**params, effort=0).fit(X).n_passes_
    longest = 0
    for effort in (0.5, 3.0):
        est = mixture(**params, effort=effort).fit(X)
        counted = [
            n
            for n, name in zip(est.search_results_["n_passes"], moves_of(est), strict=True)
            if name != "reorder"
        ]
        assert sum(counted) >= longest
        longest = sum(counted)
        # The last move is finished, and proposals of swaps take passes too.
        assert sum(counted) <= effort * max(first, 25) + counted[-1]


def searched_with(monkeypatch, **options):
    """Let searches have some other options."""
    monkeypatch.setattr(Searchable, "search_options", replace(Searchable.search_options, **options))


def test_a_first_fit_of_few_passes_counts_as_more(monkeypatch):
    params = {"n_components": 3, "annealing": "reheating", "effort": 1}
    short = mixture(**params).fit(easy_rows())
    assert short.search_results_["n_before"].max() < 12
    searched_with(monkeypatch, least_passes=48)
    assert len(turns_of(mixture(**params).fit(easy_rows()))) > 2 * len(turns_of(short))


def test_a_first_fit_to_many_rows_does_not_count_as_more(monkeypatch):
    params = {"n_components": 3, "annealing": "reheating", "effort": 1}
    searched_with(monkeypatch, least_passes=48)
    rows_of_search = len(easy_rows())
    many = len(turns_of(mixture(**params).fit(easy_rows())))
    searched_with(monkeypatch, least_visits=4.0 * rows_of_search)
    few = mixture(**params).fit(easy_rows())
    assert many > 2 * len(turns_of(few)) > 0
    searched_with(monkeypatch, least_visits=0.0)
    by_first_fit = mixture(**params).fit(easy_rows())
    assert len(turns_of(by_first_fit)) <= len(turns_of(few))


def test_a_search_in_vain_ends_before_its_budget_is_spent():
    est = mixture(n_components=3, annealing="reheating", effort=1000).fit(easy_rows())
    assert 6 * 3 <= len(turns_of(est)) < 60


def test_a_fit_never_ends_below_plain_inference_from_its_own_start():
    """Assignments of one temperature for long enough lose all groups."""
    collapse = quick("deterministic").set_params(
        form="local", initial_temperature=1000.0, schedule="geometric", n_passes=6, jitter=0.0
    )
    plain = mixture(n_components=3, annealing="none").fit(easy_rows())
    alone = mixture(n_components=3, annealing=collapse, effort=0).fit(easy_rows())
    assert alone.lower_bound_ < plain.lower_bound_ - 10
    with pytest.warns(ConvergenceWarning, match="ended below plain inference"):
        est = mixture(n_components=3, annealing=collapse).fit(easy_rows())
    assert moves_of(est) == ["plain"]
    assert est.lower_bound_ == plain.lower_bound_
    np.testing.assert_array_equal(est.means_, plain.means_)
    np.testing.assert_array_equal(est.lower_bounds_, plain.lower_bounds_)


def test_a_method_that_draws_its_start_does_not_end_below_plain_inference_either():
    X = rows(100, 20)
    stochastic = mixture(annealing="stochastic", n_components=12)
    alone = clone(stochastic).set_params(effort=0).fit(X)
    plain = mixture(n_components=12, annealing="none", n_init=2).fit(X)
    assert alone.lower_bound_ < plain.restart_lower_bounds_.min() - 10
    with pytest.warns(ConvergenceWarning, match="ended below plain inference"):
        est = stochastic.fit(X)
    assert moves_of(est) == ["plain"]
    assert est.lower_bound_ > alone.lower_bound_ + 10


def test_only_a_method_that_was_asked_for_is_said_to_have_ended_below_plain_inference(recwarn):
    """Nobody who takes the default can do anything about it."""
    rng = np.random.default_rng(7)
    X = np.concatenate([rng.normal(0, 1, (60, 3)), rng.normal(6, 1, (60, 3))])
    default = AnnealedFactorialMixture(2, random_state=0).fit(X)
    assert moves_of(default)[0] == "plain" and default.search_results_["kept"][0]
    assert not len(recwarn)
    asked_for = clone(default).set_params(annealing=DeterministicAnnealing())
    with pytest.warns(ConvergenceWarning, match="ended below plain inference"):
        asked_for.fit(X)


def test_a_fit_without_an_annealed_phase_searches_and_says_so(capsys):
    """The automatic initial temperature is 1 where the start leaves assignments in doubt."""
    est = mixture(annealing="deterministic", verbose=1).fit(rows(200))
    assert est.annealing_.initial_temperature == 1
    assert len(turns_of(est)) > 0
    assert "\nthe initial temperature is 1: there is no" in capsys.readouterr().out
    est = mixture(annealing="deterministic", verbose=1, n_components=3).fit(easy_rows())
    assert est.annealing_.initial_temperature > 1
    assert moves_of(est) == ["plain"]
    assert "\nannealing begins at temperature" in capsys.readouterr().out


def test_auto_is_the_effort_that_suits_the_method():
    assert len(turns_of(mixture(annealing="reheating").fit(rows()))) > 0
    assert len(turns_of(mixture(annealing="svi_plus").fit(rows()))) == 0
    whole = mixture(batch_size=200, annealing="reheating").fit(rows())
    assert len(turns_of(whole)) > 0


@pytest.mark.parametrize("name", ["none", "structured"])
def test_methods_without_a_finish_search_nothing(name):
    assert moves_of(mixture(annealing=name, effort="auto").fit(rows())) == []
    with pytest.raises(ValueError, match=r"effort=2 cannot be combined with annealing="):
        mixture(annealing=name, effort=2).fit(rows())


def test_minibatches_search_only_if_asked():
    params = {"batch_size": 50, "max_iter": 10, "annealing": "reheating"}
    assert moves_of(mixture(**params).fit(rows())) == []
    est = mixture(**params, effort=1).fit(rows())
    assert len(turns_of(est)) > 0
    assert_own_bound(est, rows())


def test_streams_and_warm_starts_search_nothing():
    assert moves_of(mixture(effort=1).partial_fit(rows())) == []
    est = mixture(effort=1, warm_start=True).fit(rows())
    n_passes, n_iter = est.n_passes_, est.n_iter_
    est.fit(rows())
    assert moves_of(est) == []
    assert est.n_passes_ - n_passes == est.n_iter_ - n_iter > 0


def test_reheating_starts_as_plain_inference():
    plain = mixture(annealing="none").fit(rows())
    unheated = mixture(annealing="reheating", effort=0).fit(rows())
    np.testing.assert_array_equal(unheated.lower_bounds_, plain.lower_bounds_)
    assert mixture(annealing="reheating", effort=4).fit(rows()).lower_bound_ > plain.lower_bound_


# The race


def test_the_winner_of_a_race_is_the_full_restart_of_the_same_start():
    X = rows()
    params = {"annealing": "none", "init_params": "random", "n_init": 5}
    full = mixture(**params).fit(X)
    race = mixture(**params, restarts="race").fit(X)
    best = race.best_restart_
    assert race.lower_bound_ == full.restart_lower_bounds_[best]
    assert full.lower_bound_ == full.restart_lower_bounds_.max()
    assert race.n_passes_ < full.n_passes_
    assert race.restart_lower_bounds_.shape == (5,)
    assert (race.restart_lower_bounds_ <= full.restart_lower_bounds_).all()
    assert race.restart_lower_bounds_[best] == race.lower_bound_
    assert_own_bound(race, X)


def test_a_race_goes_on_with_the_restarts_of_the_highest_bounds(capsys):
    """Standings of the first round, after two passes, are bounds after one update."""
    params = {"annealing": "none", "init_params": "random", "n_init": 5}
    bounds = mixture(**params, max_iter=1).fit(rows()).restart_lower_bounds_
    mixture(**params, restarts="race", verbose=1, verbose_interval=100).fit(rows())
    rounds = re.findall(r"race: .* for restarts (.*)", capsys.readouterr().out)
    best = sorted(np.argsort(-bounds)[:3].tolist())
    assert rounds[1] == ", ".join(map(str, best))


def test_a_race_of_one_is_a_fit():
    assert_identical(mixture(restarts="race").fit(rows()), mixture().fit(rows()))


@pytest.mark.parametrize(
    ("entry", "params", "name"), of_each_class_and_method(crossed(first_variants()))
)
def test_races_of_every_method(entry, params, name, rng):
    X = entry.data(rng, 40)
    settings = {**params, "annealing": quick(name), "max_iter": 8, "n_jobs": 1, "n_init": 4}
    settings |= {"effort": 0}
    full = entry.make(**settings).fit(X)
    race = entry.make(**settings, restarts="race")
    if not settings["annealing"].finish:
        with pytest.raises(ValueError, match="restarts='race' cannot be combined with annealing="):
            race.fit(X)
        return
    race.fit(X)
    assert race.lower_bound_ == full.restart_lower_bounds_[race.best_restart_]
    assert race.lower_bound_ <= full.lower_bound_
    assert race.n_passes_ <= full.n_passes_


@pytest.mark.parametrize(
    ("entry", "params", "name", "how"),
    alternating(
        of_each_class_and_method(crossed(first_variants(), WITH_FINISH)), ("batch", "minibatches")
    ),
)
def test_a_restart_that_is_further_on_keeps_the_standing_of_a_round(entry, params, name, how, rng):
    """As one from a checkpoint is, when a race that was interrupted begins again."""
    settings = {**params, "annealing": quick(name, 2), "max_iter": 8, "tol": 0.0}
    if how == "minibatches":
        settings |= entry.in_batches(13)
    est = entry.make(**settings)
    ctx, method, units = open_run(est, entry.data(rng, 40))
    progress, standings = loop.Progress(ctx, method), {}
    n_annealed = method.schedule_length()
    for n_passes in (2, 4, 6):
        until = n_annealed + n_passes
        loop.fit(progress, units, est._settings(units), SEQUENTIAL, until=until)
        assert progress.passes == until
        standings[n_passes] = restarts._standing(progress, n_passes)
    assert len(set(standings.values())) == 3
    loop.fit(progress, units, est._settings(units), SEQUENTIAL)
    for n_passes, standing in standings.items():
        assert restarts._standing(progress, n_passes) == standing


# Workers, callbacks and messages


def test_workers_do_not_change_the_result(monkeypatch):
    """Neither threads, nor another machine to which restarts are pickled and come back."""
    make_threads_worthwhile(monkeypatch)
    params = {"n_init": 4, "restarts": "race", "effort": 1, "init_params": "random"}
    alone = mixture(**params).fit(rows())
    with parallel_config(backend="threading"):
        assert_identical(mixture(**params, n_jobs=2).fit(rows()), alone)
    with far_away() as far, parallel_config(backend="far"):
        assert_identical(mixture(**params, n_jobs=2).fit(rows()), alone)
        assert far.calls


def test_callbacks_see_moves_and_each_restart_once(undone):
    recorder = Recorder()
    params = {"n_init": 4, "restarts": "race", "effort": 1, "annealing": "reheating"}
    est = mixture(**params).set_callbacks(recorder).fit(rows())
    assert recorder.begun("restart") == recorder.ended("restart") == 4
    begun = [recorder.begun(name) for name in set(moves_of(est))]
    assert sum(begun) == sum(recorder.ended(name) for name in set(moves_of(est)))
    assert sum(begun) == len(moves_of(est)) > 0
    assert recorder.ended("pass") == recorder.begun("pass")
    # The bound of the last update of a paused restart is not known before its next pass.
    assert recorder.ended("pass") == est.n_passes_ - len(undone) - 3
    ids = {call[2] for call in recorder.calls if call[1] in moves_of(est)}
    assert ids == set(range(4, 4 + len(moves_of(est))))
    assert_identical(est, mixture(**params).fit(rows()))


@pytest.mark.parametrize("phase", ["restart", "plain"])
def test_a_callback_that_stops_ends_the_search(phase):
    stopper = Recorder(stop_at=(phase, 1))
    est = mixture(n_init=3, effort=5).set_callbacks(stopper).fit(rows())
    assert moves_of(est) == (["plain"] if phase == "plain" else [])


def test_a_callback_that_stops_in_a_move_keeps_the_best():
    first = mixture(annealing="reheating", effort=0).fit(rows())
    stopper = Recorder(stop_at=("pass", first.n_iter_ + 2))
    est = mixture(annealing="reheating", effort=5).set_callbacks(stopper).fit(rows())
    assert len(moves_of(est)) == 1
    assert est.lower_bound_ >= first.lower_bound_


def test_a_callback_that_stops_a_race_keeps_what_had_been_reached():
    stopper = Recorder(stop_at=("pass", 7))
    est = mixture(n_init=3, restarts="race", effort=1).set_callbacks(stopper).fit(rows())
    assert stopper.ended("pass") == 7
    assert stopper.begun("restart") == stopper.ended("restart") == 2
    assert np.isfinite(est.restart_lower_bounds_).tolist() == [True, True, False]
    assert_own_bound(est, rows())


def test_verbose_tells_of_the_rounds_of_a_race(capsys):
    mixture(n_init=8, restarts="race", verbose=1, verbose_interval=100).fit(rows())
    found = re.findall(
        r"race: pass (\d+) after the schedule for restarts (.*)", capsys.readouterr().out
    )
    assert [int(n) for n, _ in found] == [2, 4, 8]
    assert [len(names.split(", ")) for _, names in found] == [8, 4, 2]


def test_a_search_that_ends_early_warns_as_a_fit_does():
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        mixture(max_iter=2, tol=0, effort=1).fit(rows())


def test_divisions_across_the_widest_direction_are_those_of_dense_rows():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.poisson(0.3, (40, 12)), rng.poisson(3.0, (40, 12))]).astype(float)
    weights = rng.random((80, 3))
    dense, sparse = (
        across_widest(weights, points, np.random.default_rng(1)) for points in (X, csr_array(X))
    )
    np.testing.assert_array_equal(dense, sparse)
    assert dense.shape == (80, 3)


def test_the_widest_direction_divides_two_groups_in_many_dimensions():
    """Groups that differ in every column, in units that differ by many orders."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [60, 30])
    X = (rng.normal(size=(90, 20)) + 2.0 * labels[:, None]) * np.logspace(-6, 6, 20)
    divided = [across_widest(np.ones((90, 1)), X, np.random.default_rng(i))[:, 0] for i in range(9)]
    agreement = [max((d == labels).mean(), (d != labels).mean()) for d in divided]
    assert sum(a > 0.95 for a in agreement) >= 3


def test_divisions_by_one_value_are_those_of_columns_with_few_values():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=80), rng.integers(0, 3, 80), np.ones(80)])
    weights = np.column_stack([np.ones(80), X[:, 1] == 2.0])
    for _ in range(5):
        divided = of_one_value(weights, X, rng)
        # The values of a component do not differ, nor do those of a constant column.
        assert not divided[:, 1].any()
        one = divided[:, 0] == 1.0
        assert len(np.unique(X[one, 1])) == 1
        assert set(X[one, 1]).isdisjoint(X[~one, 1])
    assert of_one_value(weights, X[:, :1], rng) is None
    # Few rows have few values in every column.
    assert of_one_value(weights[:8], X[:8, :1], rng) is None
    assert of_one_value(weights, csr_array(X), rng) is None


def test_a_column_of_two_values_divides_components():
    """One of the columns is binary, of which one of three fits made no use."""
    X = scale(load_diabetes().data)
    for covariance_type, least in (("full", -1800.0), ("diag", -3400.0)):
        for seed in range(3):
            est = AnnealedBayesianGaussianMixture(
                4, covariance_type=covariance_type, random_state=seed
            )
            assert est.fit(X).lower_bound_ > least


@pytest.mark.parametrize(
    "est",
    [
        AnnealedBayesianGaussianMixture(n_components=1, random_state=0),
        AnnealedBayesianMixture(1, emission="gaussian", random_state=0),
        AnnealedHMM(1, random_state=0),
    ],
)
def test_one_component_has_one_optimum_and_nothing_to_search_for(est):
    est.fit(rows(100, 2))
    assert len(est.search_results_["move"]) == 0
    assert est.n_passes_ == est.n_iter_


def test_swaps_of_long_sequences_are_computed_from_windows():
    """All frames of a window have their own symbols, weights, gaps and states."""
    lengths = np.array([700, 3, 0, 250, 80, 1200])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    frames = np.arange(indptr[-1])[:, None].astype(float)
    missing = np.arange(indptr[-1]) % 7 == 0
    weights = np.arange(1.0, 7.0)
    units = Sequences(frames, indptr, weights, missing, states=np.arange(indptr[-1]))
    assert units.windows(int(indptr[-1])) is units
    some = units.windows(1000)
    assert some.n_entries <= 1000
    ids = some.frames[:, 0].astype(int)
    assert len(set(ids)) == len(ids)
    np.testing.assert_array_equal(some.missing, missing[ids])
    np.testing.assert_array_equal(some.states, ids)
    of = np.searchsorted(indptr, ids, side="right") - 1
    np.testing.assert_array_equal(some.per_frame(some.weights), weights[of])
    for begin, end in zip(some.indptr[:-1], some.indptr[1:], strict=True):
        np.testing.assert_array_equal(np.diff(ids[begin:end]), 1)
        assert len(set(of[begin:end])) == 1


def blocks_of(frames):
    return Blocks({"a": frames, "b": np.asarray(frames) % 2})


@pytest.mark.parametrize("form", [np.asarray, blocks_of])
def test_distinct_sequences_have_the_weights_of_all_that_are_equal(form):
    frames = form(np.array([1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 3.0, 1.0, 2.0, 1.0, 2.0]))
    indptr = np.array([0, 2, 4, 6, 6, 7, 9, 9, 11])
    missing = np.arange(11) == 9  # the last sequence differs in a gap alone
    units = Sequences(frames, indptr, None, missing)
    some = units.distinct(8)
    np.testing.assert_array_equal(some.lengths, [2, 0, 1, 2])
    np.testing.assert_array_equal(some.weights, [4.0, 2.0, 1.0, 1.0])
    weighted = Sequences(frames, indptr, np.array([0.0, 0.5, 1, 0, 3, 1, 0, 0]), missing)
    np.testing.assert_array_equal(weighted.distinct(8).weights, [2.5, 3.0])
    np.testing.assert_array_equal(units.distinct(2).lengths, [2, 1])


def test_sequences_that_differ_are_spread(rng):
    units = Sequences(rng.normal(size=(40, 2)), np.arange(0, 41, 2))
    assert units.distinct(20) is units
    np.testing.assert_array_equal(units.distinct(3).frames, units.spread(3).frames)
    assert Sequences(np.empty((0, 2)), np.zeros(1, dtype=np.int64)).distinct(3).n_units == 0


def test_a_posterior_of_windows_weighs_as_much_as_all_frames(rng):
    X = rng.normal(size=(3000, 2)) + 4.0 * rng.integers(2, size=(3000, 1))
    est = AnnealedHMM(2, random_state=0, max_iter=5, effort=0).fit(X)
    model, ctx = context_of(est).model, context_of(est)
    units = units_of(est, X).centered(ctx.summary)
    whole, part = (
        model.posterior_given(
            model.assigned(some, ctx.q).responsibilities, some, ctx.summary, ctx.prior
        )
        for some in (units, units.windows(1500))
    )
    for key in ("dof", "mean_precision"):
        total = (whole[key] - ctx.prior[key]).sum()
        assert (part[key] - ctx.prior[key]).sum() == pytest.approx(total)
    assert whole["startprob"].sum() == pytest.approx(part["startprob"].sum())
    np.testing.assert_allclose(part["transmat"], whole["transmat"], rtol=0.2, atol=60)


def test_no_transition_leads_from_one_sequence_to_the_next(rng):
    sequences = [rng.normal(size=(n, 2)) for n in (3, 1, 5)]
    est = AnnealedHMM(2, random_state=0, max_iter=2, annealing="none").fit(sequences)
    ctx = context_of(est)
    units = units_of(est, sequences).centered(ctx.summary)
    found = ctx.model.posterior_given(np.full((9, 2), 0.5), units, ctx.summary, ctx.prior)
    assert (found["startprob"] - ctx.prior["startprob"]).sum() == pytest.approx(3)
    assert (found["transmat"] - ctx.prior["transmat"]).sum() == pytest.approx(2 + 0 + 4)


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize(("rise", "in_vain"), [(5.0, 0), (1e-5, 3), (-5.0, 3)])
def test_moves_that_bring_little_are_in_vain(rise, in_vain, repeats):
    ctx = Context(None, {}, None, None, q={})
    kept, trial = (
        Progress(ctx, PLAIN, Trace(lower_bounds=[bound], final=bound), finished=True)
        for bound in (0.0, rise)
    )
    found = Found(kept, PLAIN, np.zeros(1), 0, 0, in_vain=2, trial=trial)
    found.judge(Swap(guided=True, repeats=repeats), RiseOfBound(1e-3), 10.0)
    assert (found.in_vain, found.kept is trial) == (in_vain, rise > 0)
    # One that has paid is made again, if it is one of those that are.
    assert found.turn == (0 if repeats and in_vain == 0 else 1)


def test_models_can_say_how_many_moves_may_be_in_vain():
    moves, model = Moves(turns=(Swap(guided=True), Swap(guided=False))), GammaProcessNMF(2, 3)
    usual = moves.patience(model)
    assert usual == moves.patience(None) and usual % 2 == 0
    model.search_dense_table()
    assert moves.patience(model) == model.search_options.patience < usual


def test_clocks_of_a_reheat_begin_at_zero():
    ctx = Context(None, {}, None, None, q={}, state={"updates": 9, "passes": 9.0}, exploring=False)
    problem = SimpleNamespace(seed=np.random.SeedSequence(0))
    trial = Reheat(0.1).propose(problem, Progress(ctx, PLAIN), (0, 2))
    assert trial.ctx.state == {"updates": 0, "passes": 0.0} and trial.ctx.exploring
    assert ctx.state["passes"] == 9.0


@pytest.mark.parametrize("guided", [True, False])
def test_a_swap_keeps_the_number_of_rows(guided, rng):
    X = rows(60)
    est = mixture(annealing="none", max_iter=3).fit(X)
    ctx = context_of(est)
    how = ctx.q, ctx.summary, ctx.prior, rng, guided
    model, prior, q = ctx.model.swapped(units_of(est, X).centered(ctx.summary), *how)
    assert model.expected_counts(q, prior).sum() == pytest.approx(60)


# The search from the first restart


def searched_by(n_init, name, seed):
    """A fit with moves and a number of restarts to small data that have several optima."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4)) + 2.5 * rng.normal(size=(6, 4))[rng.integers(0, 6, 150)]
    make = {
        "codes": lambda: AnnealedFactorialMixture(3),
        "states": lambda: AnnealedHMM(4),
        "mixture": lambda: AnnealedBayesianGaussianMixture(6),
    }[name]
    return make().set_params(random_state=seed, n_init=n_init, max_iter=40).fit(X)


@pytest.mark.parametrize(
    ("name", "seed"), [("codes", 1), ("states", 1), ("states", 2), ("mixture", 1)]
)
def test_more_restarts_end_no_lower_than_one(name, seed):
    """Moves from the best restart alone led to lower bounds than those from the first."""
    one, three = searched_by(1, name, seed), searched_by(3, name, seed)
    assert three.restart_lower_bounds_[0] == one.restart_lower_bounds_[0]
    assert three.restart_lower_bounds_.argmax() != 0
    assert three.lower_bound_ >= one.lower_bound_
    assert three.n_passes_ > one.n_passes_ + three.n_iter_
    if three.best_restart_ == 0:
        np.testing.assert_array_equal(three.lower_bounds_, one.lower_bounds_)


def test_both_searches_of_restarts_go_on_from_a_checkpoint_and_are_seen(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4)) + 2.5 * rng.normal(size=(6, 4))[rng.integers(0, 6, 150)]
    est = AnnealedFactorialMixture(3, random_state=1, n_init=3, max_iter=40)
    whole = clone(est).fit(X)
    stored = clone(est).fit(X, checkpoint=tmp_path)
    assert_identical(stored, whole)
    names = {path.stem for path in tmp_path.iterdir()}
    assert sum(name.startswith("moves-") for name in names) == 2
    (tmp_path / "moves-0.joblib").unlink()
    assert_identical(clone(est).fit(X, checkpoint=tmp_path), whole)
    recorder = Recorder()
    assert_identical(clone(est).set_callbacks(recorder).fit(X), whole)
    ids = [call[2] for call in recorder.calls if call[0] == "begin" and call[1] != "pass"]
    assert len(set(ids[1:])) == len(ids[1:])
