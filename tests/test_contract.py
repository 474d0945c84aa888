"""Properties that every model × method has to have, over the entries of ``models``."""

from __future__ import annotations

import copy
import pickle
import threading
from dataclasses import replace
from itertools import cycle, product

import joblib
import numba
import numpy as np
import pytest
from far_backend import far_away
from harness import (
    FULL_STEPS,
    MANY,
    SOME,
    Fixed,
    alternating,
    assert_identical,
    batches_and_minibatches,
    change_models,
    combinations,
    context_of,
    covering,
    crossed,
    divide_few_units,
    finish_run,
    first_variants,
    fitted_state,
    forms,
    has_local_variables,
    largest_difference,
    make_threads_worthwhile,
    model_of,
    models,
    of_each_class_and_method,
    one_of_each_class,
    one_update,
    open_run,
    prepared_visit,
    quick,
    recorded_tasks,
    recorded_visits,
    taking_turns,
    unambiguous,
    units_of,
    update,
    variants,
    visit,
)
from models import ENTRIES, TRAINED_BY_GRADIENTS
from sklearn.base import clone

from sklearn_anneal.annealing import (
    ANNEALING,
    DeterministicAnnealing,
    NoAnnealing,
    ProximityVI,
    StochasticAnnealing,
    StructuredVI,
    SVIPlus,
    VariationalTempering,
    check_capabilities,
)
from sklearn_anneal.annealing._base import CAPABILITIES
from sklearn_anneal.annealing.svi_plus import Deviations
from sklearn_anneal.families import Tempering, posterior

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    # Some methods are followed by reheats.
    pytest.mark.usefixtures("few_passes_of_searches"),
]

# In batch mode these methods draw nothing per unit, so that the order of units does not matter.
# Two compiled forms of a kernel give the same bits. Checks of bounds prevent some of the
# vectorisation, and so change the order of sums.
_OF_COMPILED_FORMS = 1e-14 if numba.config.BOUNDSCHECK else 0.0
# Entries of both update rules, by conjugacy and by gradients.
OF_BOTH_RULES = [pytest.param(entry, id=entry.name) for entry in (*ENTRIES, *TRAINED_BY_GRADIENTS)]
DETERMINISTIC = ("none", "deterministic", "tempering", "local_tempering")
FORMS = {"likelihood": (1, 1, 0), "posterior": (1, 1, 1), "local": (1, 0, 0)}


def tempering(form, x):
    return Tempering(*(x**power for power in FORMS[form]))


def tempered_bound(entry, ctx, units, seen, t):
    """The tempered bound of ``ctx.q`` and of the q(z) that ``seen`` found at ``t``, nats.

    With x, s and y the factors of the local step, of statistics and of priors, updates ascend

        F(q) = x E log p(X, z | θ, β) + H[q(z)] + (x/s) (y E log p(θ, β) + H[q(θ)] + H[q(β)]),

    θ being local parameters with a prior of their own, where a model has any, and
    E log p(β) = −KL(q(β) ‖ p(β)) − H[q(β)]. In the likelihood and the posterior form s = x and
    y is 1 or x; in the local form s = y = 1, which makes the bracket the untempered one times x.
    """
    model, step = ctx.model, seen.step
    of_parameters = entry.local_entropy(seen, units)
    prior = t.prior * step.log_prior + of_parameters
    prior += -t.prior * model.kl(ctx.q, ctx.prior) + (1 - t.prior) * model.entropy(ctx.q)
    of_assignments = step.entropy - of_parameters
    return t.local * step.energy + of_assignments + t.local / t.statistics * prior


# Bounds


@pytest.mark.parametrize(("entry", "params"), variants())
def test_bound_never_falls(entry, params, rng):
    est = entry.make(annealing="none", tol=0.0, max_iter=13, **params)
    bounds = est.fit(entry.data(rng, 60)).lower_bounds_
    assert len(bounds) == 13
    # Local parameters start anew in the first half of the passes, and are kept from then on.
    kept = bounds[5:] if has_local_variables(entry.make(**params), entry.data(rng, 9)) else bounds
    assert np.diff(kept).min() >= -1e-10 * np.abs(bounds).max()
    assert bounds[-1] > bounds[0] + 1e-3


def at_fixed_temperature(form):
    return DeterministicAnnealing(
        form=form, initial_temperature=1.7, schedule="constant", n_passes=25, jitter=0.0
    )


def with_forms(turn=0):
    """Variants of all entries, with forms of annealing that make sense for them."""
    cases = [case for case in crossed(variants(), FORMS) if case.values[2] in case.values[0].forms]
    return covering(cases, turn)


@pytest.mark.parametrize(("entry", "params", "form"), with_forms())
def test_tempered_bound_never_falls_at_fixed_temperature(entry, params, form, rng):
    """Local parameters are kept from visit to visit, with few iterations or with many."""
    t = tempering(form, 1 / 1.7)
    est, X = entry.make(annealing=at_fixed_temperature(form), **params), entry.data(rng, 30)
    ctx, method, units = open_run(est, X)
    ctx.exploring = False
    bounds, local = [], None
    for _ in range(7):
        seen = visit(ctx, method, units, local)
        local = seen.local
        bounds.append(tempered_bound(entry, ctx, units, seen, t))
        update(ctx, method, units, seen)
    assert np.diff(bounds).min() >= -1e-10 * np.abs(bounds).max()
    assert bounds[-1] > bounds[0] + 1e-3


@pytest.mark.parametrize("entry", models())
def test_forms_that_a_model_does_not_have_are_refused(entry, rng):
    X = entry.data(rng, 60)
    for form in FORMS.keys() - set(entry.forms):
        for params in entry.variants.values():
            est = entry.make(annealing=at_fixed_temperature(form), **params)
            for fit in (est.fit, est.partial_fit):
                with pytest.raises(ValueError, match=f'form="{form}"') as caught:
                    fit(X)
                assert all(f'form="{known}"' in str(caught.value) for known in entry.forms)


@pytest.mark.parametrize(
    ("entry", "params", "name"),
    taking_turns(
        [case for case in crossed(variants(heuristics=True)) if case.values[0].tiny], turn=3
    ),
)
def test_bound_is_below_the_log_evidence(entry, params, name, rng):
    """Of every pass, annealed ones too: the recorded bound is the untempered one.

    Of the last pass where every pass has a prior, and with it an evidence, of its own.
    """
    for tiny in entry.tiny.values():
        X = tiny(rng)
        est = entry.make(n_components=2, annealing=quick(name), **params).fit(X)
        evidence = entry.log_evidence(est, X)
        bounds = est.lower_bounds_[~np.isnan(est.lower_bounds_)]
        assert len(bounds)
        if entry.learns(params):
            bounds = bounds[-1:]
        assert bounds.max() <= evidence + 1e-9
        assert est.lower_bound_ > evidence - 25.0


@pytest.mark.parametrize("entry", models())
def test_bound_is_the_log_evidence_where_the_posterior_is_in_the_family(entry, rng):
    for params, tiny in entry.exact:
        X = entry.tiny[tiny](rng)
        est = entry.make(annealing="none", **params).fit(X)
        assert est.lower_bound_ == pytest.approx(entry.log_evidence(est, X), rel=1e-10)


@pytest.mark.parametrize(
    ("entry", "params", "name", "max_iter"),
    alternating(
        taking_turns(
            crossed(
                variants(heuristics=True),
                ["none", "deterministic", "stochastic", "local_tempering"],
            )
        ),
        (3, 0),
    ),
)
def test_recorded_bounds_are_those_of_the_parameters(
    entry, params, name, max_iter, rng, monkeypatch
):
    """lower_bounds_[-1] = lower_bound_ = one more evaluation, whatever the last pass was.

    At the local parameters that the last visit of the fit found, where there are any.
    """
    visits = recorded_visits(monkeypatch)
    X, params = entry.data(rng, 25), {**params, **entry.settled}
    est = entry.make(annealing=quick(name), tol=0.0, max_iter=max_iter, **params).fit(X)
    kept = context_of(est)
    units = units_of(est, X).centered(kept.summary)
    ctx = replace(kept, model=copy.copy(kept.model), exploring=False)
    vars(ctx.model).update(entry.frozen)
    again = visit(ctx, NoAnnealing(), units, visits[-1].local, evaluation=True)
    expected = again.step.bound - ctx.model.kl(ctx.q, ctx.prior)
    assert est.lower_bound_ == pytest.approx(expected, rel=1e-12)
    assert est.n_iter_ == len(est.lower_bounds_) == len(est.temperatures_)
    if est.n_iter_:
        assert est.lower_bounds_[-1] == est.lower_bound_


@pytest.mark.parametrize(
    ("entry", "name"),
    alternating(
        OF_BOTH_RULES,
        ("none", "proximity"),
    ),
)
def test_a_warm_start_without_a_pass_has_one_last_bound(entry, name, rng):
    """It is evaluated anew, and local parameters that start anew can change it."""
    X = entry.data(rng, 40)
    est = entry.make(annealing=quick(name), **{**entry.first, "max_iter": 2}).fit(X)
    n_passes = est.n_iter_
    est.set_params(warm_start=True, max_iter=0).fit(X)
    assert est.n_iter_ == len(est.lower_bounds_) == n_passes
    assert est.lower_bounds_[-1] == est.lower_bound_


@pytest.mark.parametrize(("entry", "params"), variants(heuristics=True))
def test_visits_without_the_bound_have_the_same_statistics(entry, params, rng):
    ctx, method, units = open_run(entry.make(annealing="none", **params), entry.data(rng, 40))
    local = visit(ctx, method, units).local
    for block in ctx.model.blocks:
        found = []
        for bound in (True, False):
            ctx.rng = np.random.default_rng(0)
            step = visit(ctx, method, units, local, block=block, bound=bound).step
            found.append((step.bound, ctx.model.block_statistics(block, step.statistics, ctx.q)))
        (told, expected), (silent, statistics) = found
        for key in block.keys:
            np.testing.assert_allclose(statistics[key], expected[key], rtol=_OF_COMPILED_FORMS)
        assert silent == told or np.isnan(silent)


# Gradients


@pytest.mark.parametrize(("entry", "params", "form"), with_forms(turn=1))
def test_natural_gradient_is_that_of_the_tempered_bound(entry, params, form, rng):
    """dF = (x/s) (λ̂ − λ)ᵀ dE[t] along random directions, block by block, q(z) at its best.

    λ̂ − λ is then the Fisher matrix's inverse times the gradient of F s/x, since dE[t] is the
    Fisher matrix times dλ.
    """
    x, eps = 0.6, 6e-7
    est = entry.make(annealing="none", **params, **entry.converged)
    ctx, _, units = open_run(est, entry.data(rng, 40))
    t = tempering(form, x)
    one_update(ctx, NoAnnealing(), units)
    model, q = ctx.model, ctx.q
    for block in model.blocks:
        ctx.q, ctx.exploring = q, True
        here = visit(ctx, Fixed(t), units, block=block)
        raw, ctx.exploring = here.step.statistics, False
        prior = {key: ctx.prior[key] for key in block.keys}
        target = posterior(prior, model.block_statistics(block, raw, q), model.factors().base(q), t)
        for _ in range(2):
            # Symmetric matrices differ by symmetric matrices: directions to another valid point.
            other = model.random_natural(ctx.summary, ctx.prior, rng)
            direction = {k: rng.standard_normal() * (other[k] - q[k]) for k in block.keys}
            bounds, expectations = [], []
            for sign in (1, -1):
                ctx.q = {**q, **{k: q[k] + sign * eps * direction[k] for k in direction}}
                # A copy is used, because local parameters are overwritten.
                start = copy.deepcopy(here.local)
                seen = visit(ctx, Fixed(t), units, start, block=block)
                bounds.append(tempered_bound(entry, ctx, units, seen, t))
                expectations.append(_expected_statistics(model, ctx.q, block))
            gradient = t.statistics / t.local * (bounds[0] - bounds[1]) / (2 * eps)
            terms = [
                (target[k] - q[k]) * (expectations[0][k] - expectations[1][k]) / (2 * eps)
                for k in block.keys
            ]
            size = sum(np.abs(term).sum() for term in terms)
            assert gradient == pytest.approx(sum(term.sum() for term in terms), abs=2e-6 * size)


def _expected_statistics(model, q, block):
    expected = {}
    for factor in model.factors():
        if set(factor.names.values()) <= set(block.keys):
            expected |= factor.rename(factor.family.expectations(factor.pick(q)))
    assert expected.keys() == set(block.keys)
    return expected


# Batches


@pytest.mark.parametrize(("entry", "params", "name"), taking_turns(combinations()))
def test_minibatch_of_all_units_with_full_steps_is_batch(entry, params, name, rng):
    """Bit for bit, through the loop over minibatches.

    Only batch mode continues local parameters from pass to pass: in the second half of the
    finish, and where stochastic annealing mixes them with noise. Models with any do without.
    """
    X = entry.data(rng, 50)
    how = {}
    n_passes = 4
    local = has_local_variables(entry.make(), X)
    if local:
        how = {"max_iter": 1}
        n_passes = 1 if name == "stochastic" else 4
    one, two, batch, minibatch = _batch_and_minibatch(entry, X, quick(name, n_passes), params | how)
    assert largest_difference(two.q, one.q) == 0
    if not local:
        assert minibatch.final == batch.final
    np.testing.assert_allclose(minibatch.temperatures, batch.temperatures, rtol=1e-15)


@pytest.mark.parametrize(("entry", "params", "name"), covering(crossed(unambiguous())))
def test_minibatch_of_all_units_is_batch_where_local_parameters_converge(entry, params, name, rng):
    """Wherever they start from: batch mode and minibatches are then the same to all passes."""
    one, two, batch, minibatch = _batch_and_minibatch(
        entry, entry.data(rng, 50), quick(name), params
    )
    assert largest_difference(two.q, one.q) < 1e-8
    assert minibatch.final == pytest.approx(batch.final, rel=1e-10)
    np.testing.assert_allclose(minibatch.temperatures, batch.temperatures, rtol=1e-8)


def _batch_and_minibatch(entry, X, method, params):
    # learning_decay = 0 is a learning rate of 1 in every update, as in batch mode.
    params = {**entry.steps_of_minibatches, **params}
    est = entry.make(annealing=method, learning_decay=0.0, tol=0.0, **params)
    (one, method, units), (two, _, _) = open_run(est, X), open_run(est, X)
    if "learning_rate" in method.get_params():
        method.set_params(learning_rate="decay")
    batch = finish_run(one, method, units, est, "batch")
    minibatch = finish_run(two, method, units, est, "minibatches")
    return one, two, batch, minibatch


@pytest.mark.parametrize(("entry", "params"), forms())
def test_one_call_of_partial_fit_is_one_pass(entry, params, rng):
    X = entry.data(rng, 50)
    # Local parameters converge, since a single look iterates longer than a first pass does.
    params = entry.converged | params
    est = entry.make(annealing="none", learning_decay=0.0, max_iter=1, **params)
    whole, stream = est.fit(X), entry.make(**est.get_params(deep=False)).partial_fit(X)
    assert largest_difference(context_of(stream).q, context_of(whole).q) == 0
    assert stream.n_iter_ == 1


@pytest.mark.parametrize(("entry", "params"), variants(heuristics=True, sampled=False))
def test_targets_of_minibatches_average_to_that_of_the_batch(entry, params, rng):
    """The first block's statistics are linear in the units, so N/|S| makes them unbiased."""
    est = entry.make(annealing="none", **entry.in_batches(15), **params)
    start, method, units = open_run(est, entry.data(rng, 60))
    block = start.model.blocks[0]

    def target(batch):
        ctx = replace(start, scale=units.total_weight / batch.total_weight)
        one_update(ctx, method, batch, minibatch=True)
        return {key: ctx.q[key] - ctx.prior[key] for key in block.keys}  # without what is learned

    found = [target(units.batch(index)) for index in units.batches(15, rng)]
    assert len(found) == 4
    mean = {key: np.mean([one[key] for one in found], axis=0) for key in block.keys}
    assert largest_difference(mean, target(units)) < 1e-12


# Methods without effect


def neutral_methods():
    """Kinds of methods, each in all schedules and with and without minibatches."""
    for form in ("likelihood", "posterior", "local"):
        schedules = ("geometric", "linear", "constant")
        methods = [DeterministicAnnealing(form, 1, schedule, 10, 0.5) for schedule in schedules]
        yield f"deterministic {form}", product(methods, (False, True))
    for noise in ("dirichlet", "gaussian"):
        methods = [SVIPlus(50, noise, s, 10, 1.0) for s in ("constant", "linear", "geometric")]
        yield f"svi_plus {noise}", product(methods, (False, True))
    methods = [
        StochasticAnnealing(0.0, schedule, 10, "init_params")
        for schedule in ("linear", "exponential")
    ]
    yield "stochastic", product(methods, (False, True))
    yield "whole batch", product([SVIPlus(1.0, "dirichlet", "constant", 10, 1.0)], (False, True))
    yield "proximity", product([ProximityVI(0.0, 2, 10, 1.0)], (False, True))


def with_fixed_priors(pairs):
    """Forms whose fit learns nothing, which would wait until annealing is over."""
    return [pair for pair in pairs if not pair.values[0].learns(pair.values[1])]


def forms_and_neutral_methods():
    """All kinds of methods take turns, and so do schedules and minibatches of each kind."""
    kinds = {name: cycle(methods) for name, methods in neutral_methods()}
    for methods in [*kinds.values()][::2]:
        next(methods)  # so that a form has some of its methods in minibatches
    return [
        pytest.param(
            *pair.values,
            *next(methods),
            marks=() if (turn + i) % 3 == 0 else pytest.mark.exhaustive,
            id=f"{pair.id}-{name}",
        )
        for turn, pair in enumerate(with_fixed_priors(forms()))
        for i, (name, methods) in enumerate(kinds.items())
    ]


@pytest.mark.parametrize(("entry", "params", "method", "minibatch"), forms_and_neutral_methods())
def test_method_without_temperature_or_noise_is_plain_inference(
    entry, params, method, minibatch, rng
):
    X = entry.data(rng, 50)
    plain, none, units = open_run(entry.make(annealing="none", **params), X)
    if getattr(method, "effective_batch_size", None) == 50:
        # With as many effective units as there are random weights, all these weights are 1.
        method = clone(method).set_params(effective_batch_size=units.n_weight_units)
    ctx, method, _ = open_run(entry.make(annealing=method, **params), X)
    # Plain inference reads the sum of energy and entropy alone, and steps may tell no more.
    none.reads_energy = method.reads_energy
    settings = FULL_STEPS._replace(learning_decay=0.6 if minibatch else 0.0)
    for _ in range(6):
        one = one_update(plain, none, units, settings=settings, minibatch=minibatch)
        two = one_update(ctx, method, units, settings=settings, minibatch=minibatch)
        assert two.temperature == 1
        for name in ("energy", "entropy"):
            found, expected = getattr(two.step, name), getattr(one.step, name)
            np.testing.assert_allclose(found, expected, rtol=_OF_COMPILED_FORMS)
        assert largest_difference(ctx.q, plain.q) <= _OF_COMPILED_FORMS


@pytest.mark.parametrize(
    ("entry", "params", "noise"),
    alternating(with_fixed_priors(forms(sampled=False)), ("dirichlet", "gaussian")),
)
def test_effective_batch_that_is_the_batch_is_plain_inference(
    entry, params, noise, rng, monkeypatch
):
    """Bit for bit, in minibatches of several chunks, whose statistics are sums of several."""
    divide_few_units(monkeypatch)
    X = entry.many(rng, MANY)
    method = SVIPlus(1.0, noise, "constant", 2, "decay")
    how = {"tol": 0.0, **params, **entry.in_batches(SOME)}
    plain = entry.make(annealing="none", **how | {"max_iter": 2}).fit(X)
    est = entry.make(annealing=method, **how | {"max_iter": 0}).fit(X)
    assert len(units_of(est, X).take(slice(SOME)).chunks()) > 1
    if not has_local_variables(entry.make(**params), X):
        assert est.lower_bound_ == plain.lower_bound_
    assert largest_difference(context_of(est).q, context_of(plain).q) == 0


class _AboveOne(Deviations):
    def scaled(self, drawn, own, totals):
        return 1.0 + super().scaled(drawn, own, totals).astype(float)


class _Multiplied(SVIPlus):
    """Gaussian noise as weights 1 + ε of the statistics, in the place of a deviation."""

    def visit_options(self, ctx):
        return {}

    def weights(self, ctx, size):
        return _AboveOne(*super().weights(ctx, size))


@pytest.mark.parametrize(
    ("entry", "params", "minibatch"), alternating(forms(sampled=False), (False, True))
)
def test_noise_that_is_kept_apart_is_that_of_weights(entry, params, minibatch, rng, monkeypatch):
    """Faint enough for parameters to stay inside: λ̂ + deviation = λ₀ + Σ (1 + ε) s."""
    # Steps that are longer than those of EM are not linear in the statistics.
    monkeypatch.setattr("sklearn_anneal.models._count_noise._STRONGEST", 0.0)
    X = entry.data(rng, 50)
    found = []
    for kind, share in ((SVIPlus, 0.999), (_Multiplied, 0.999), (SVIPlus, 1.0)):
        method = kind(share, "gaussian", "constant", 10, 0.7, 0.0)
        ctx, method, units = open_run(entry.make(annealing=method, **params), X)
        settings = FULL_STEPS._replace(learning_decay=0.6 if minibatch else 0.0)
        for _ in range(3):
            one_update(ctx, method, units, settings=settings, minibatch=minibatch)
        found.append(ctx.q)
    separate, multiplied, noiseless = found
    assert largest_difference(separate, multiplied) < 1e-6
    assert largest_difference(separate, noiseless) > 1e-5


@pytest.mark.parametrize(("entry", "params", "name"), combinations(["tempering"]))
def test_tempering_that_is_sure_of_temperature_one_is_plain_inference(entry, params, name, rng):
    X = entry.data(rng, 50)
    plain, none, units = open_run(entry.make(annealing="none", **params), X)
    ctx, method, _ = open_run(entry.make(annealing=quick(name), **params), X)
    sure = np.eye(method.n_temperatures)[0]
    for _ in range(4):
        ctx.state = {**ctx.state, "temperature_probabilities": sure}
        one_update(plain, none, units)
        one_update(ctx, method, units)
        assert largest_difference(ctx.q, plain.q) == 0


# Weights


def _assert_weights_count(entry, params, name, counts, X, n_updates=6):
    est = entry.make(annealing=quick(name, n_updates), **params)

    def copied(q):
        return {
            key: np.repeat(value, counts, axis=0) if key in entry.unit_keys else value
            for key, value in q.items()
        }

    weighted, other, units = open_run(est, X, counts.astype(float))
    repeated, method, copies = open_run(est, entry.repeat(X, counts), q=copied(weighted.q))
    repeated_settings, settings = method.get_params(), other.get_params()
    assert settings.keys() == repeated_settings.keys()
    for key, value in settings.items():
        assert value == (
            pytest.approx(repeated_settings[key], rel=1e-10)
            if isinstance(value, float)
            else repeated_settings[key]
        )
    for _ in range(n_updates):
        a = one_update(repeated, method, copies)
        b = one_update(weighted, other, units)
        assert b.step.energy == pytest.approx(a.step.energy, rel=1e-10)
        assert b.step.entropy == pytest.approx(a.step.entropy, rel=1e-9, abs=1e-9)
        assert b.temperature == pytest.approx(a.temperature, rel=1e-10)
    assert largest_difference(copied(weighted.q), repeated.q) < 1e-10


@pytest.mark.parametrize(
    ("entry", "params", "name"),
    taking_turns(crossed(variants(heuristics=True, sampled=False), DETERMINISTIC)),
)
def test_weight_is_a_number_of_copies(entry, params, name, rng):
    """A weight of 0 is no copy."""
    X, counts = entry.data(rng, 40), np.array([2, 1, 0, 1])[np.arange(40) % 4]
    _assert_weights_count(entry, params, name, counts, X)


# Parallel work


@pytest.fixture
def always_parallel(monkeypatch):
    make_threads_worthwhile(monkeypatch)


@pytest.mark.usefixtures("always_parallel")
@pytest.mark.parametrize(
    ("entry", "n_init"),
    [
        pytest.param(*one.values, n_init, marks=one.marks, id=f"{one.id}-{n_init}")
        for one in one_of_each_class(models())
        for n_init in (1, 3)
    ],
)
def test_parallel_work_is_done_by_several_threads(entry, n_init, rng, monkeypatch):
    """Without this, the next test could compare sequential work with itself."""
    divide_few_units(monkeypatch)
    tasks, threads = recorded_tasks(monkeypatch)
    X = entry.many(rng, MANY)
    settings = {"n_init": n_init, "annealing": "none", "max_iter": 2, "tol": 0.0, **entry.first}
    est = entry.make(n_jobs=1, **settings).fit(X)
    assert not tasks
    n_chunks = len(units_of(est, X).chunks())
    assert n_chunks > 2
    ctx, _, units = open_run(entry.make(**settings), X)
    visits = [
        len(prepared_visit(ctx, units, block)[1].chunks())
        for block in ctx.model.blocks
        if block is ctx.model.blocks[0] or block.refresh
    ]
    # Two updates of all blocks, and the steps that the bound after the last one takes.
    n_steps = 2 * sum(visits) + n_chunks
    if not prepared_visit(ctx, units)[0].gives_bound:
        n_steps += n_chunks
    entry.make(n_jobs=2, **settings).fit(X)
    steps, restarts = (n_steps, 0) if n_init == 1 else (0, 3)
    if entry.name.startswith("latent_dirichlet") or entry.name == "gamma_process_nmf_noise":
        # When the fit is over, the perplexity of the training data is computed, or activations are.
        # Those of counts without noise are no steps of a visit.
        steps += n_chunks
    assert {name: tasks[name] for name in ("step", "restart")} == {
        "step": steps,
        "restart": restarts,
    }
    assert threads - {threading.get_ident()}


def worth_several_workers():
    """All methods in batches or in minibatches, and restarts of a method of each model.

    The entries of a class share the methods. Of a heuristic only what could treat its chunks
    differently. Restarts are sent to workers whole: what matters is that each model and each method
    can be sent.
    """
    heuristics = [
        case
        for case in combinations(["none", "stochastic", "structured"])
        if case.values[1] is not case.values[0].first
    ]
    return [
        *batches_and_minibatches(crossed(first_variants())),
        *alternating(taking_turns(heuristics), ("batch",)),
        *alternating(taking_turns(heuristics, turn=1), ("minibatches",)),
        *alternating(of_each_class_and_method(crossed(first_variants())), ("restarts",)),
    ]


@pytest.mark.usefixtures("always_parallel")
@pytest.mark.parametrize(("entry", "params", "name", "way"), worth_several_workers())
def test_result_does_not_depend_on_workers(entry, params, name, way, rng, monkeypatch):
    """Bit for bit, for units in several chunks, and in minibatches of two chunks each."""
    divide_few_units(monkeypatch)
    X = entry.many(rng, MANY)
    weights = entry.row_weights(X, rng.integers(0, 3, size=MANY))
    how = {
        "batch": {"max_iter": 2},
        "restarts": {"n_init": 3, "max_iter": 1},
        "minibatches": {"max_iter": 1, **entry.in_batches(SOME)},
    }[way]
    # Only restarts travel to other processes, or as here to a backend that pickles all that goes
    # and comes back; chunks stay in this one, whatever the backend.
    ways = {
        "batch": [("threading", 2), ("threading", 3)][: 1 + (name == "none")],
        "restarts": [("threading", 2), ("far", 2)],
        "minibatches": [("threading", 3)],
    }[way]
    params = params | how | {"annealing": quick(name, 2)}
    one = entry.make(n_jobs=1, **params).fit(X, sample_weight=weights)
    assert np.isfinite(one.lower_bound_)
    assert context_of(one).model.factors().valid(context_of(one).q)
    units = units_of(one, X)
    assert len(units.chunks()) > 2
    assert len(units.take(slice(SOME)).chunks()) > 1
    for backend, n_jobs in ways:
        with far_away(), joblib.parallel_config(backend=backend):
            other = entry.make(n_jobs=n_jobs, **params).fit(X, sample_weight=weights)
        assert_identical(one, other)


@pytest.mark.usefixtures("always_parallel")
@pytest.mark.parametrize(("entry", "params"), forms())
def test_stream_does_not_depend_on_workers(entry, params, rng, monkeypatch):
    divide_few_units(monkeypatch)
    batches = [entry.many(rng, MANY) for _ in range(2)]
    found = []
    for n_jobs in (1, 2):
        est = entry.make(n_jobs=n_jobs, **entry.in_batches(MANY), **params)
        for X in batches:
            est.partial_fit(X)
        assert est.n_iter_ == 2
        found.append(est)
    assert_identical(*found)


# Persistence and names


@pytest.mark.parametrize(
    ("entry", "params", "name", "total_samples"),
    alternating(taking_turns(combinations()), (None, 120)),
)
def test_pickle_between_two_batches_changes_nothing(entry, params, name, total_samples, rng):
    batches = [entry.data(rng, 30) for _ in range(3)]
    params = params | {"annealing": quick(name, 2), "total_samples": total_samples}
    resumed, straight = entry.make(**params), entry.make(**params)
    for X in batches:
        straight.partial_fit(X)
        resumed = pickle.loads(pickle.dumps(resumed)).partial_fit(X)
        assert_identical(straight, resumed)
    assert straight.n_iter_ == 3


@pytest.mark.parametrize(("entry", "params", "name"), taking_turns(combinations(), turn=1))
def test_repeated_and_pickled_fits_predict_and_go_on_the_same(entry, params, name, rng):
    """A fit does not depend on what was before."""
    X = entry.data(rng, 40)
    params = params | {"annealing": quick(name)}
    est = entry.make(**params).fit(X)
    assert_identical(est, entry.make(**params).partial_fit(entry.data(rng, 30)).fit(X))
    other = pickle.loads(pickle.dumps(est))
    readers = ["score", "transform"]
    # Methods that only some kinds of models have.
    readers += [method for method in ("score_samples", "perplexity") if hasattr(est, method)]
    readers += ["inverse_temperatures"] * (name == "local_tempering")
    for method in readers:
        # A result can be an array, a number, or a tuple of these.
        np.testing.assert_equal(getattr(est, method)(X), getattr(other, method)(X))
    assert_identical(est.partial_fit(X), other.partial_fit(X))


@pytest.mark.parametrize("entry", OF_BOTH_RULES)
def test_name_is_the_default_instance(entry, rng):
    params = entry.first
    model = model_of(entry.make(**params), entry.data(rng, 30))
    for name in ANNEALING.keys() - entry.refused(params).keys():
        by_name = entry.make(annealing=name, **params)._strategy(model)
        instance = entry.make(annealing=ANNEALING[name](), **params)._strategy(model)
        assert type(by_name) is type(instance) is ANNEALING[name]
        assert by_name.get_params() == instance.get_params()


# Predictions


@pytest.mark.parametrize(("entry", "params"), variants(of=lambda entry: entry.total_probability))
def test_density_integrates_to_one(entry, params, rng):
    for make in entry.spaces.values():
        est = entry.make(annealing="none", **params).fit(make(rng, 30))
        assert entry.total_probability(est) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("entry", "params", "name"), taking_turns(combinations(sampled=False)))
def test_float32_is_near_float64(entry, params, name, rng):
    X = entry.data(rng, 25).astype(np.float32)
    # Rounding must not choose between optima of local parameters.
    params = {"annealing": quick(name), **params, **entry.unambiguous}
    # Iterations over local parameters in single precision never meet so small a tolerance.
    params |= dict.fromkeys(params.keys() & {"max_sweeps", "max_doc_update_iter"}, 200)
    single, double = entry.make(**params).fit(X), entry.make(**params).fit(X.astype(float))
    assert single.lower_bound_ == pytest.approx(double.lower_bound_, rel=1e-5)
    assert isinstance(single.lower_bound_, float)
    for key, value in fitted_state(double).items():
        if key.startswith("q: "):
            found = fitted_state(single)[key]
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-4 * np.abs(value).max())
    assert single.transform(X).dtype == np.float32
    assert double.transform(X.astype(float)).dtype == np.float64
    np.testing.assert_allclose(single.transform(X), double.transform(X), atol=1e-4)


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_transform_gives_a_data_frame_if_asked(entry, rng):
    X = entry.data(rng, 40)
    estimator = entry.make(annealing="none", **entry.first).set_output(transform="pandas").fit(X)
    frame = estimator.transform(X)
    assert list(frame.columns) == list(estimator.get_feature_names_out())


# Capabilities


@pytest.mark.parametrize("entry", models())
def test_methods_that_ask_for_what_a_model_lacks_are_refused(entry, rng):
    X = entry.data(rng, 40)
    for params in (entry.variants | entry.heuristics).values():
        for name, lacking in entry.refused(params).items():
            est = entry.make(annealing=quick(name), **params)
            for fit in (est.fit, est.partial_fit):
                with pytest.raises(ValueError, match=lacking):
                    fit(X)
            assert not hasattr(est, "lower_bound_")


@pytest.mark.parametrize(
    ("entry", "params", "name", "how"),
    alternating(taking_turns(crossed(variants(heuristics=True)), turn=2), ("batch", "minibatches")),
)
def test_every_pair_that_is_not_refused_works(entry, params, name, how, rng):
    """Each set of parameters has one method; each class has met all of them with workers."""
    X = entry.data(rng, 40)
    how = entry.in_batches(20) if how == "minibatches" else {}
    est = entry.make(annealing=quick(name), **how, **params).fit(X)
    assert np.isfinite(est.lower_bound_)
    assert context_of(est).model.factors().valid(context_of(est).q)
    assert np.isfinite(est.score(X))
    est.partial_fit(X[:5])
    assert context_of(est).model.factors().valid(context_of(est).q)


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_exact_gradients_are_refused_where_the_model_has_none(entry, rng):
    model = model_of(entry.make(**entry.first), entry.data(rng, 50))
    if model.capabilities().get("exact_gradient_statistics", "no") is None:
        pytest.skip("this model has them")
    est = entry.make(annealing=StructuredVI(gradient="exact"), **entry.first)
    for fit in (est.fit, est.partial_fit):
        with pytest.raises(ValueError, match="exact_gradient_statistics") as caught:
            fit(entry.data(rng, 50))
        message = str(caught.value)
        assert CAPABILITIES["exact_gradient_statistics"] in message
        assert "gradient='exact'" in message
        assert "'none'" in message and "'deterministic'" in message
        assert not hasattr(est, "lower_bound_")


class _Without:
    """A model that lacks one capability, and does no work but say what it can do."""

    def __init__(self, model, lacking):
        self._model = model
        self._lacking = lacking

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("recommended", "update_rule"):
            return getattr(self._model, name)
        raise AssertionError(f"{name} was used before the refusal")

    def capabilities(self):
        return self._model.capabilities() | {self._lacking: "it is taken away here"}


@pytest.mark.parametrize(
    ("entry", "capability"), alternating(one_of_each_class(models()), CAPABILITIES)
)
def test_lack_of_a_capability_is_one_sentence_before_any_work(entry, capability, rng, monkeypatch):
    X = entry.data(rng, 50)
    cls = type(entry.make())
    change_models(monkeypatch, cls, lambda model: _Without(model, capability))
    settings = {
        "exact_gradient_statistics": StructuredVI(gradient="exact"),
        "assignments": DeterministicAnnealing(form="local", initial_temperature=2.0),
    }
    methods = {name: settings.get(capability, quick(name)) for name in ANNEALING}
    recommended = model_of(entry.make(), X).recommended
    asking = {
        name: method
        for name, method in methods.items()
        if capability in method.resolve(recommended.get(name, {})).needs
    }
    if not asking:
        pytest.skip("the model's recommended settings leave nothing to ask for")
    for method in asking.values():
        est = entry.make(annealing=method, **entry.first)
        for fit in (est.fit, est.partial_fit):
            with pytest.raises(ValueError, match=f"'{capability}'") as caught:
                fit(X)
            message = str(caught.value)
            assert type(method).__name__ in message
            assert CAPABILITIES[capability] in message
            assert "it is taken away here" in message
            works = message.split("What works: ")[1]
            assert "'none'" in works
            if capability not in settings:
                assert not any(f"'{name}'" in works for name in asking)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_capability_is_asked_of_some_model(capability, rng):
    asking = []
    for entry in (param.values[0] for param in models()):
        recommended = model_of(entry.make(), entry.data(rng, 50)).recommended
        asking += [cls().resolve(recommended.get(name, {})) for name, cls in ANNEALING.items()]
    asking.append(StructuredVI(gradient="exact").resolve({}))
    asking.append(DeterministicAnnealing(form="local", initial_temperature=2.0).resolve({}))
    assert any(capability in method.needs for method in asking)


def test_bare_model_works_with_what_needs_nothing():
    """A model with the obligatory methods alone."""
    says = {"recommended": {}, "update_rule": "conjugate", "capabilities": lambda self: {}}
    bare = type("Bare", (), says)()
    for cls in ANNEALING.values():
        method = cls().resolve({})
        if method.needs:
            with pytest.raises(ValueError, match="cannot be combined with Bare"):
                check_capabilities(method, bare, method, "Bare")
        else:
            check_capabilities(method, bare, method, "Bare")
    assert not VariationalTempering().resolve({}).needs == ()
    check_capabilities(
        DeterministicAnnealing(initial_temperature=2.0), bare, "deterministic", "Bare"
    )


@pytest.mark.parametrize("entry", models())
def test_a_model_says_of_known_capabilities_why_it_lacks_them(entry, rng):
    can = model_of(entry.make(**entry.first), entry.data(rng, 50)).capabilities()
    assert can.keys() <= CAPABILITIES.keys()
    assert None in can.values()
    assert all(reason is None or len(reason.split()) > 5 for reason in can.values())
