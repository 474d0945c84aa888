"""Tests of the priors that hidden Markov models learn by empirical Bayes."""

from __future__ import annotations

import pickle
from copy import copy

import numpy as np
import plain_hidden_markov as plain
import pytest
from cases_gaussian_mixture import divergence_of_sizes
from cases_hidden_markov import (
    assert_same_fit,
    assert_sound,
    draw,
    sequence_weights,
    small,
)
from designs import in_turn
from harness import context_of, lower_bound, one_update, open_run, quick
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize, minimize_scalar
from scipy.special import gammaln, psi
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedHMM
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.inference import conjugate
from sklearn_anneal.inference.checkpoint import Checkpoint

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

CHAIN = {"startprob_prior": "auto", "transmat_prior": "auto"}
GAUSSIAN = dict.fromkeys(("means_prior", "beta_prior", "dof_prior", "scale_prior"), "auto")
EMISSIONS = {
    "categorical": ("categorical", {"emissionprob_prior": "auto"}),
    "bernoulli": ("bernoulli", {"emissionprob_prior": "auto"}),
    "poisson": ("poisson", {"lambdas_prior": "auto", "lambdas_weight": "auto"}),
    "poisson-shape": ("poisson", {"lambdas_prior": "auto"}),
    "poisson-shape-of-rate": ("poisson", {"lambdas_prior": "auto", "lambdas_weight": [0.4, 0.8]}),
    "poisson-rate": ("poisson", {"lambdas_prior": 1.3, "lambdas_weight": "auto"}),
    "gaussian": ("gaussian-full", GAUSSIAN),
    "gaussian-tied": ("gaussian-tied", GAUSSIAN),
    "gaussian-diag": ("gaussian-diag", {"dof_prior": "auto", "scale_prior": "auto"}),
}
PRECISE = {"xatol": 1e-9}
PRIORS = ("_prior", "_weight")
every_emission = pytest.mark.parametrize("case", EMISSIONS)
one_of_each = pytest.mark.parametrize("case", ["categorical", "bernoulli", "poisson", "gaussian"])
# For what does not depend on the emission: one with a single kind of parameters, and one with four.
two = pytest.mark.parametrize(
    "case",
    [
        "categorical",
        "gaussian",
        pytest.param("bernoulli", marks=pytest.mark.exhaustive),
        pytest.param("poisson", marks=pytest.mark.exhaustive),
    ],
)


def learner(case, n_components=3, chain=True, **params):
    variant, asked = EMISSIONS[case]
    return small(variant, n_components, **({**(CHAIN if chain else {}), **asked} | params))


def of_sizes(est):
    """What the bound lacks because the sizes of states are inferred."""
    if not hasattr(est, "scale_prior_sizes_"):
        return 0.0
    return divergence_of_sizes(est.scale_prior_sizes_, est.dof_prior_, est.means_.shape[1])


def unlearned(est):
    """A new estimator with the default in the place of every prior that is learned."""
    auto = [name for name, value in est.get_params().items() if str(value) == "auto"]
    return clone(est).set_params(**{name: None for name in auto if name.endswith(PRIORS)})


def sequences_of(case, rng, lengths=(20, 15, 1, 30)):
    return draw(EMISSIONS[case][0], rng, lengths)


def learned(ctx, q=None, rho=1.0):
    """The model, its prior and q after a step of learning."""
    return ctx.model.learned(ctx.q if q is None else q, ctx.prior, None, rho, 1.0)


def settled_run(est, sequences, n_updates=4):
    """A run after some updates, in which priors have not been learned yet."""
    ctx, method, units = open_run(est, sequences)
    for _ in range(n_updates):
        one_update(ctx, method, units)
    return ctx, method, units


def divergence(ctx, **changed):
    """KL(q ‖ prior), with some arrays of the prior replaced: what learning minimises."""
    prior = ctx.prior | {
        key: np.broadcast_to(value, ctx.prior[key].shape) for key, value in changed.items()
    }
    return ctx.model.factors().kl(ctx.q, prior)


def minimum(function, start):
    """Where a function of some positive numbers is smallest, by a search that needs no slope."""
    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000, "maxfev": 8000}
    found = minimize(
        lambda x: function(*np.exp(x)), np.log(start), method="Nelder-Mead", options=options
    )
    return np.exp(found.x)


# The step


@pytest.mark.parametrize("sticky", [0.0, 2.5])
@pytest.mark.parametrize("key", ["startprob", "transmat"])
def test_concentrations_of_the_chain_maximise_the_bound(key, sticky, rng):
    est = learner("categorical", sticky=sticky)
    ctx, _, _ = settled_run(est, sequences_of("categorical", rng, [30, 8, 9, 4, 12]))
    extra = sticky * np.eye(3) if key == "transmat" else 0.0

    def of(log_concentration):
        return divergence(ctx, **{key: np.exp(log_concentration) + extra})

    best = minimize_scalar(of, bounds=np.log([0.1 / 3, 1e4]), method="bounded", options=PRECISE)
    _, prior, _ = learned(ctx)
    assert_allclose(prior[key], np.exp(best.x) + extra + np.zeros_like(prior[key]), rtol=1e-5)


def test_concentration_of_symbols_maximises_the_bound(rng):
    ctx, _, _ = settled_run(learner("categorical"), sequences_of("categorical", rng))
    best = minimize_scalar(
        lambda x: divergence(ctx, emissionprob=np.exp(x)),
        bounds=np.log([0.01, 1e4]),
        method="bounded",
        options=PRECISE,
    )
    assert_allclose(learned(ctx)[1]["emissionprob"], np.exp(best.x), rtol=1e-5)


def test_beta_priors_maximise_the_bound(rng):
    ctx, _, _ = settled_run(learner("bernoulli"), sequences_of("bernoulli", rng))
    a, b = ctx.prior["a"].copy(), ctx.prior["b"].copy()
    prior = learned(ctx)[1]
    for column in range(a.shape[1]):

        def of(one, other, column=column):
            a[:, column], b[:, column] = one, other
            return divergence(ctx, a=a, b=b)

        best = minimum(of, [1.0, 1.0])
        assert_allclose([prior["a"][0, column], prior["b"][0, column]], best, rtol=1e-4)
    assert_array_equal(prior["a"], prior["a"][[0, 0, 0]])


@pytest.mark.parametrize("case", [case for case in EMISSIONS if case.startswith("poisson")])
def test_gamma_priors_maximise_the_bound(case, rng):
    sequences = sequences_of(case, rng)
    ctx, _, _ = settled_run(learner(case), sequences)
    mean = np.concatenate(sequences).mean(axis=0)
    prior = learned(ctx)[1]
    shape, rate = ctx.prior["shape"].copy(), ctx.prior["rate"].copy()
    for column in range(2):

        def of(*parameters, column=column):
            if case == "poisson":
                shape[:, column], rate[:, column] = parameters
            elif case == "poisson-rate":
                (rate[:, column],) = parameters
            else:
                (shape[:, column],) = parameters
                if case == "poisson-shape":
                    rate[:, column] = shape[:, column] / mean[column]
            return divergence(ctx, shape=shape, rate=rate)

        best = minimum(of, [1.0] * (2 if case == "poisson" else 1))
        names = {"poisson": ("shape", "rate"), "poisson-rate": ("rate",)}.get(case, ("shape",))
        assert_allclose([prior[name][0, column] for name in names], best, rtol=1e-4)


@pytest.mark.parametrize("case", [case for case in EMISSIONS if "gaussian" in case])
def test_gaussian_priors_are_better_than_those_next_to_them(case, rng):
    ctx, _, _ = settled_run(learner(case), sequences_of(case, rng))
    model, prior, _ = learned(ctx)
    best = divergence(ctx, **prior)
    names = ("mean_precision_prior", "degrees_of_freedom_prior", "covariance_prior", "mean_prior")
    center = model.emission.mean_prior - ctx.summary.center
    for name in set(names) & set(model.emission.auto):
        for factor in (0.99, 1.01):
            near = copy(model.emission)
            setattr(near, name, factor * getattr(near, name))
            mean = factor * center if name == "mean_prior" else center
            assert best < divergence(ctx, **near.natural_prior(mean)), name


@every_emission
def test_both_parts_of_a_step_raise_the_bound(case, rng):
    """First the prior changes while q stays; then q changes with the prior."""
    ctx, method, units = settled_run(learner(case), sequences_of(case, rng))
    one_update(ctx, method, units)
    q = ctx.q
    stats = {key: q[key] - ctx.prior[key] for key in q}
    model, prior, moved = learned(ctx)
    for key in q:
        assert_allclose(moved[key], prior[key] + stats[key], rtol=1e-9, err_msg=key)
    before = lower_bound(ctx, units)
    ctx.model, ctx.prior = model, prior
    between = lower_bound(ctx, units)
    ctx.q = moved
    after = lower_bound(ctx, units)
    assert before + 1e-4 < between
    assert between < after


@every_emission
def test_a_damped_step_goes_a_part_of_the_way(case, rng):
    ctx, _, _ = settled_run(learner(case), sequences_of(case, rng))
    whole, part = learned(ctx)[1], learned(ctx, rho=0.3)[1]
    for key in ("startprob", "transmat", "emissionprob", "a", "b", "shape", "rate", "dof"):
        if key in ctx.prior:
            least = 1.0 if key == "dof" else 0.0  # above which the logarithm is taken
            logs = [np.log(prior[key] - least) for prior in (ctx.prior, part, whole)]
            assert_allclose(logs[1], 0.7 * logs[0] + 0.3 * logs[2], rtol=1e-9, err_msg=key)


def test_parameters_that_nothing_asks_to_learn_stay(rng):
    sequences = draw("categorical", rng, [20, 15])
    for asked in CHAIN | EMISSIONS["categorical"][1]:
        ctx, _, _ = settled_run(small("categorical", 3, **{asked: "auto"}), sequences)
        model, prior, q = learned(ctx)
        key = asked.removesuffix("_prior")
        assert [name for name in prior if not np.array_equal(prior[name], ctx.prior[name])] == [key]
        assert model is not ctx.model
    ctx, _, _ = settled_run(small("categorical", 3), sequences)
    model, prior, q = learned(ctx)
    assert model is ctx.model and prior is ctx.prior and q is ctx.q


def test_random_statistics_cannot_push_parameters_out_of_their_domain(rng):
    """Noise can take q below the prior, and the prior is then lowered by learning."""
    ctx, _, _ = settled_run(learner("categorical"), sequences_of("categorical", rng))
    q = {key: np.where(rng.random(value.shape) < 0.5, 1e-3, 20.0) for key, value in ctx.q.items()}
    _, prior, moved = learned(ctx, q)
    assert any((q[key] + prior[key] - ctx.prior[key] <= 0).any() for key in q)
    assert all((value > 0).all() for value in moved.values())


# Fits


@in_turn(case=EMISSIONS, sticky=(0.0, 3.0))
def test_bound_never_falls(case, sticky, rng):
    sequences = sequences_of(case, rng, [25, 18, 30, 12])
    est = learner(case, 4, sticky=sticky, max_iter=40, tol=0.0).fit(sequences)
    assert np.diff(est.lower_bounds_).min() > -1e-8
    fixed = unlearned(est).fit(sequences)
    if case.startswith(("gaussian", "poisson")):
        assert est.lower_bounds_[0] > fixed.lower_bounds_[0]
    else:
        # Nothing is learned in the first half of the passes, as none rises by less than tol = 0.
        assert_allclose(est.lower_bounds_[:19], fixed.lower_bounds_[:19], rtol=1e-12)
    assert est.lower_bound_ > fixed.lower_bound_


def test_learning_by_hand_from_public_attributes(rng):
    """At convergence, each prior is the best one for the posteriors of the fitted attributes."""
    how = {"max_iter": 4000, "tol": 1e-12}
    hmm = learner("categorical", 2, **how).fit(draw("categorical", rng, [60, 40, 30, 9, 12]))
    for name in ("startprob", "transmat", "emissionprob"):
        rows = np.atleast_2d(getattr(hmm, f"{name}_posterior_"))
        prior = np.atleast_2d(getattr(hmm, f"{name}_prior_"))
        logs = (psi(rows) - psi(rows.sum(axis=1, keepdims=True))).sum()
        k, v = prior.shape

        def of(x, k=k, v=v, logs=logs):
            alpha = np.exp(x)
            return -(k * (gammaln(v * alpha) - v * gammaln(alpha)) + alpha * logs)

        found = minimize_scalar(of, bounds=np.log([0.01, 1e4]), method="bounded", options=PRECISE)
        assert_allclose(prior, np.exp(found.x), rtol=1e-2, err_msg=name)


@one_of_each
def test_learning_waits_until_annealing_is_over_and_the_bound_has_settled(case, rng):
    sequences = sequences_of(case, rng)
    annealing = {"annealing": quick("deterministic", 8), "effort": 0}
    waiting = learner(case, max_iter=0, **annealing).fit(sequences)
    start = learner(case, max_iter=0).fit(sequences)
    for name in vars(start):
        if name.endswith("_prior_"):
            assert_array_equal(getattr(waiting, name), getattr(start, name))
    learning = learner(case, max_iter=20, **annealing).fit(sequences)
    assert learning.transmat_prior_[0, 0] != start.transmat_prior_[0, 0]


@in_turn(name=ANNEALING, case=("gaussian", "categorical", "poisson", "bernoulli"))
def test_every_method_learns(case, name, rng):
    if case == "poisson" and "tempering" in name:
        pytest.skip("refused")
    sequences = sequences_of(case, rng)
    how = {"annealing": quick(name), "n_init": 2, "max_iter": 12}
    est = learner(case, **how).fit(sequences)
    assert_sound(est, sequences)
    best = max(*est.restart_lower_bounds_, *est.search_results_["lower_bound"])
    # A rise within rounding errors does not count.
    assert est.lower_bound_ == pytest.approx(best, rel=1e-12)
    assert est.transmat_prior_[0, 0] != pytest.approx(1 / 3, rel=1e-6)
    prior, q = (plain.parameters_of(est, which) for which in ("prior", "posterior"))
    bound = plain.lower_bound(plain.emission_of(est), q, prior, sequences)
    assert est.lower_bound_ == pytest.approx(bound - of_sizes(est), rel=1e-9)


@two
def test_restarts_learn_separately(case, rng):
    sequences = sequences_of(case, rng)
    many = learner(case, n_init=3, max_iter=15).fit(sequences)
    with_threads = learner(case, n_init=3, max_iter=15, n_jobs=2).fit(sequences)
    assert_same_fit(many, with_threads)
    assert_array_equal(many.transmat_prior_, with_threads.transmat_prior_)
    assert len(set(many.restart_lower_bounds_)) > 1


@one_of_each
def test_weights_are_numbers_of_sequences(case, rng):
    sequences = sequences_of(case, rng, [12, 7, 9])
    repeated = [sequences[i] for i in (0, 0, 2)]
    weights = np.array([2.0, 0.0, 1.0])
    est = learner(case)
    one, method, units = open_run(est, sequences, weights)
    two, _, copies = open_run(est, repeated, q=one.q)
    for _ in range(3):
        for ctx, data in ((one, units), (two, copies)):
            one_update(ctx, method, data)
            ctx.model, ctx.prior, ctx.q = learned(ctx)
        for key in two.q:
            assert_allclose(one.prior[key], two.prior[key], rtol=1e-8, err_msg=key)
            assert_allclose(one.q[key], two.q[key], rtol=1e-8, atol=1e-9, err_msg=key)
    learner(case).fit(sequences, sample_weight=sequence_weights(weights, sequences))


@two
def test_minibatches_learn_after_a_hundred_updates(case, rng):
    sequences = sequences_of(case, rng, [12] * 12)
    how = {"batch_size": 4, "tol": 0.0}
    early = learner(case, max_iter=30, **how).fit(sequences)
    late = learner(case, max_iter=45, **how).fit(sequences)
    start = learner(case, max_iter=0).fit(sequences)
    assert_array_equal(early.transmat_prior_, start.transmat_prior_)
    assert late.transmat_prior_[0, 0] != start.transmat_prior_[0, 0]
    assert_sound(late, sequences)
    whole = learner(case, max_iter=40).fit(sequences)
    assert_allclose(np.log(late.transmat_prior_), np.log(whole.transmat_prior_), atol=1.0)


@two
def test_a_stream_learns_and_a_pickled_one_goes_on_the_same(case, rng, monkeypatch):
    monkeypatch.setattr(conjugate, "_UPDATES_BEFORE_LEARNING", 10)
    straight = learner(case)
    batches = [sequences_of(case, rng, [5, 4]) for _ in range(4)]
    for i in range(8):
        resumed = straight.partial_fit(batches[i % 4])
    for i in range(8, 24):  # it is fitted at the ninth batch, and learns ten updates later
        resumed = pickle.loads(pickle.dumps(resumed)).partial_fit(batches[i % 4])
        straight.partial_fit(batches[i % 4])
        if i == 9:
            before = straight.transmat_prior_.copy()
    assert_same_fit(straight, resumed)
    assert_array_equal(straight.transmat_prior_, resumed.transmat_prior_)
    assert straight.transmat_prior_[0, 0] != before[0, 0]
    assert_sound(straight, batches[0])


@two
def test_a_warm_start_goes_on_from_the_learned_priors(case, rng):
    sequences = sequences_of(case, rng)
    est = learner(case, max_iter=20, warm_start=True).fit(sequences)
    first, bound = est.transmat_prior_, est.lower_bound_
    est.fit(sequences)
    assert est.lower_bound_ >= bound
    assert_allclose(est.transmat_prior_, first, rtol=0.5)
    loaded = pickle.loads(pickle.dumps(est))
    assert_same_fit(loaded.fit(sequences), est.fit(sequences))
    assert context_of(loaded).model.learned_names == ("startprob", "transmat")


@two
def test_an_interrupted_fit_goes_on_in_the_middle_of_learning(case, rng, tmp_path, monkeypatch):
    sequences = sequences_of(case, rng)
    straight = learner(case, max_iter=30, tol=0.0).fit(sequences)
    save, passes = Checkpoint.save, []

    def interrupted(self, index, progress):
        save(self, index, progress)
        passes.append(index)
        if len(passes) == 22:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", interrupted)
    resumed = learner(case, max_iter=30, tol=0.0)
    with pytest.raises(KeyboardInterrupt):
        resumed.fit(sequences, checkpoint=tmp_path)
    resumed.fit(sequences, checkpoint=tmp_path)
    assert len(passes) < 35
    assert_same_fit(straight, resumed)
    assert_array_equal(straight.transmat_prior_, resumed.transmat_prior_)


# Edges


def test_the_sticky_diagonal_stays(rng):
    est = learner("categorical", sticky=7.0, max_iter=20).fit(sequences_of("categorical", rng))
    prior = est.transmat_prior_
    off = prior[~np.eye(3, dtype=bool)]
    assert_allclose(off, off[0], rtol=1e-12)
    assert_allclose(np.diag(prior) - off[0], 7.0, rtol=1e-12)
    assert off[0] != pytest.approx(1 / 3)


def test_a_single_state_has_no_transitions_to_learn_from(rng):
    sequences = sequences_of("categorical", rng)
    est = learner("categorical", 1).fit(sequences)
    assert_array_equal(est.transmat_prior_, [[1.0]])
    assert_array_equal(est.startprob_prior_, [1.0])
    assert 0.1 <= est.emissionprob_prior_[0, 0] <= 1e4
    assert_sound(est, sequences)


@pytest.mark.parametrize("case", [case for case in EMISSIONS if case != "categorical"])
def test_a_single_state_with_few_frames_keeps_the_priors_of_none(case, rng):
    """A prior that is learned from few frames would repeat them with too much certainty."""
    sequences = sequences_of(case, rng, (20, 15, 1, 13))
    est = learner(case, 1).fit(sequences)
    plain = unlearned(est).fit(sequences)
    assert est.lower_bound_ == plain.lower_bound_
    assert_array_equal(est.score_sequences(sequences), plain.score_sequences(sequences))
    q = context_of(plain).q
    for key, value in context_of(est).q.items():
        assert_array_equal(value, q[key], err_msg=key)
    more = sequences_of(case, rng, (20, 15, 1, 14))
    rise = learner(case, 1).fit(more).lower_bound_ - unlearned(est).fit(more).lower_bound_
    # The rate of None is already the best one for a given shape.
    assert rise >= (0 if case == "poisson-rate" else 0.5)
    for name in ("startprob_prior_", "transmat_prior_"):
        assert_array_equal(getattr(est, name), np.ones_like(getattr(est, name)))
    learner(case, 1).partial_fit(sequences)


def test_states_that_share_a_covariance_do_not_learn_its_prior(rng):
    sequences = sequences_of("gaussian-tied", rng)
    est = learner("gaussian-tied", max_iter=30).fit(sequences)
    plain_fit = unlearned(est).fit(sequences)
    for name in ("dof_prior_", "scale_prior_"):
        assert_allclose(getattr(est, name), getattr(plain_fit, name), rtol=1e-12)
    assert (est.beta_prior_ != plain_fit.beta_prior_).all()


def test_defaults_learn_chains_and_gaussian_frames():
    asked = {name for name, value in AnnealedHMM().get_params().items() if str(value) == "auto"}
    learned_ones = {name for name in asked if name.endswith(PRIORS)}
    of_frames = {"beta_prior", "means_prior", "dof_prior", "scale_prior"}
    assert learned_ones == {"startprob_prior", "transmat_prior"} | of_frames


@one_of_each
def test_more_states_than_the_data_have(case, rng):
    sequences = sequences_of(case, rng, [6, 4])
    est = learner(case, 8, max_iter=40).fit(sequences)
    assert est.n_effective_components_ < 8
    assert_sound(est, sequences)
    assert 0.1 / 8 <= est.transmat_prior_.min() <= est.transmat_prior_.max() <= 1e4


@in_turn(case=[case for case in EMISSIONS if case != "categorical"], value=(0.0, 1.0))
def test_constant_columns(case, value, rng):
    sequences = sequences_of(case, rng)
    for frames in sequences:
        frames[:, 1] = value
    regular = {"reg_covar": 1e-3} if "gaussian" in case else {}
    est = learner(case, max_iter=40, **regular).fit(sequences)
    assert_sound(est, sequences)
    if not regular:
        assert np.diff(est.lower_bounds_).min() > -1e-7
        assert all(0 < x.min() <= x.max() < 1e9 for x in context_of(est).prior.values())


def test_symbols_that_never_occur(rng):
    sequences = sequences_of("categorical", rng)
    est = learner("categorical", n_symbols=40, max_iter=200).fit(sequences)
    assert_sound(est, sequences)
    assert_allclose(est.emissionprob_prior_, 0.1, rtol=0.2)
    one_symbol = [np.zeros((n, 1)) for n in (9, 5)]
    for n_symbols in (1, 3):
        assert_sound(learner("categorical", n_symbols=n_symbols).fit(one_symbol), one_symbol)


def test_two_sequences_of_one_frame():
    frames = [np.array([[2.0]]), np.array([[0.0]])]
    assert_sound(learner("categorical").fit(frames), frames)


# Parameters


@pytest.mark.parametrize(
    "name",
    [
        *("startprob_prior", "transmat_prior", "emissionprob_prior"),
        *("lambdas_prior", "lambdas_weight", *GAUSSIAN),
    ],
)
def test_other_strings_are_refused(name, rng):
    for value in ("Auto", "learned", ["auto"]):
        with pytest.raises(ValueError, match=name):
            small("poisson", **{name: value}).fit(draw("poisson", rng, [20]))


def test_priors_of_other_emissions_may_be_learned_too(rng):
    """They are not used, as values that are given for other emissions."""
    sequences = draw("categorical", rng, [20])
    plainly = small("categorical").fit(sequences)
    assert_same_fit(small("categorical", lambdas_prior="auto").fit(sequences), plainly)


def test_no_warning_where_learning_converges(rng, recwarn):
    sequences = draw("bernoulli", rng, [60, 50, 40, 30])
    est = learner("bernoulli", 2, max_iter=500, tol=1e-5).fit(sequences)
    assert est.converged_
    assert not [w for w in recwarn if issubclass(w.category, ConvergenceWarning)]
