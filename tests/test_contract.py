"""Properties that every model × method has to have, over the entries of ``registry.py``."""

from __future__ import annotations

import pickle
import threading
from collections import Counter

import joblib
import numpy as np
import pytest
from registry import (
    FULL_STEPS,
    assert_identical,
    combinations,
    fitted_state,
    largest_difference,
    models,
    one_update,
    open_run,
    quick,
    variants,
)

from sklearn_anneal import base
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
from sklearn_anneal.families import Tempering, posterior
from sklearn_anneal.inference import engine, parallel
from sklearn_anneal.inference.parallel import SEQUENTIAL
from sklearn_anneal.models._base import ConjugateModel

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# In batch mode these are functions of the data as a multiset: nothing random per unit.
DETERMINISTIC = ("none", "deterministic", "tempering", "local_tempering")
BOUNDED_FORMS = {"likelihood": (1, 1, 0), "posterior": (1, 1, 1)}


def tempering(form, x):
    return Tempering(*(x**power for power in BOUNDED_FORMS[form]))


def tempered_bound(ctx, units, t):
    """The tempered bound of ``ctx.q`` at its best q(z), nats.

    With x = t.local and y = t.prior, which is 1 (likelihood form) or x (posterior form),

        F_x(q) = x E log p(X, z | β) + H[q(z)] + y E log p(β) + H[q(β)],

    and E log p(β) = −KL(q(β) ‖ p(β)) − H[q(β)].
    """
    model = ctx.model
    step = engine.visit(ctx, _Fixed(t), units, SEQUENTIAL).step
    prior = -t.prior * model.kl(ctx.q, ctx.prior) + (1 - t.prior) * model.entropy(ctx.q)
    return t.local * step.energy + step.entropy + prior


class _Fixed(NoAnnealing):
    """Plain updates under fixed factors."""

    def __init__(self, t=Tempering()):  # noqa: B008
        self.t = t

    def temper(self, ctx, units):
        return self.t


# Bounds


@pytest.mark.parametrize(("entry", "params"), variants())
def test_bound_never_falls(entry, params, rng):
    est = entry.make(annealing="none", tol=0.0, max_iter=25, **params)
    bounds = est.fit(entry.data(rng, 60)).lower_bounds_
    assert len(bounds) == 25
    assert np.diff(bounds).min() >= -1e-10 * np.abs(bounds).max()
    assert bounds[-1] > bounds[0] + 1e-3


@pytest.mark.parametrize("form", BOUNDED_FORMS)
@pytest.mark.parametrize(("entry", "params"), variants())
def test_tempered_bound_never_falls_at_fixed_temperature(entry, params, form, rng):
    method = DeterministicAnnealing(
        form=form, initial_temperature=1.7, schedule="constant", n_passes=25, jitter=0.0
    )
    ctx, method, units = open_run(entry.make(annealing=method, **params), entry.data(rng, 60))
    bounds = []
    for _ in range(20):
        bounds.append(tempered_bound(ctx, units, tempering(form, 1 / 1.7)))
        one_update(ctx, method, units)
    assert np.diff(bounds).min() >= -1e-10 * np.abs(bounds).max()
    assert bounds[-1] > bounds[0] + 1e-3


@pytest.mark.parametrize(("entry", "params"), variants())
def test_bound_is_below_the_log_evidence(entry, params, rng):
    """Of every pass, annealed ones too: the recorded bound is the untempered one."""
    for tiny in entry.tiny.values():
        X = tiny(rng)
        evidence = None
        for name in ANNEALING.keys() - entry.refused.keys():
            est = entry.make(n_components=2, annealing=quick(name), **params).fit(X)
            evidence = entry.log_evidence(est, X) if evidence is None else evidence
            bounds = est.lower_bounds_[~np.isnan(est.lower_bounds_)]
            assert len(bounds)
            assert bounds.max() <= evidence + 1e-9
            assert est.lower_bound_ > evidence - 25.0


@pytest.mark.parametrize("entry", models())
def test_bound_is_the_log_evidence_where_the_posterior_is_in_the_family(entry, rng):
    for params, tiny in entry.exact:
        X = entry.tiny[tiny](rng)
        est = entry.make(annealing="none", **params).fit(X)
        assert est.lower_bound_ == pytest.approx(entry.log_evidence(est, X), rel=1e-10)


@pytest.mark.parametrize(("entry", "params"), variants())
@pytest.mark.parametrize("name", ["none", "deterministic", "stochastic", "local_tempering"])
def test_recorded_bounds_are_those_of_the_parameters(entry, params, name, rng):
    """lower_bounds_[-1] = lower_bound_ = one more evaluation, whatever the last pass was."""
    X = entry.data(rng, 50)
    for max_iter in (0, 3):
        est = entry.make(annealing=quick(name), max_iter=max_iter, tol=0.0, **params).fit(X)
        ctx = est._inference.ctx
        units = est._make_units(X, None).placed(ctx.summary)
        expected = engine.lower_bound(ctx, units, SEQUENTIAL)
        assert est.lower_bound_ == pytest.approx(expected, rel=1e-12)
        assert est.n_iter_ == len(est.lower_bounds_) == len(est.temperatures_)
        if est.n_iter_:
            assert est.lower_bounds_[-1] == est.lower_bound_


# Gradients


@pytest.mark.parametrize("form", BOUNDED_FORMS)
@pytest.mark.parametrize(("entry", "params"), variants())
def test_natural_gradient_is_that_of_the_tempered_bound(entry, params, form, rng):
    """dF_x = (λ̂ − λ)ᵀ dE[t] along random directions, block by block.

    λ̂ − λ is then the Fisher matrix's inverse times the gradient of F_x, since dE[t] is the
    Fisher matrix times dλ.
    """
    x, eps = 0.6, 1e-5
    ctx, _, units = open_run(entry.make(annealing="none", **params), entry.data(rng, 40))
    model, t = ctx.model, tempering(form, x)
    one_update(ctx, NoAnnealing(), units)
    q = ctx.q
    raw = engine.visit(ctx, _Fixed(t), units, SEQUENTIAL).step.statistics
    for block in model.blocks:
        prior = {key: ctx.prior[key] for key in block.keys}
        target = posterior(prior, model.block_statistics(block, raw, q), model.base(q), t)
        for _ in range(4):
            # Symmetric matrices differ by symmetric matrices: directions to another valid point.
            other = model.random_natural(ctx.summary, ctx.prior, rng)
            direction = {k: rng.standard_normal() * (other[k] - q[k]) for k in block.keys}
            bounds, expectations = [], []
            for sign in (1, -1):
                ctx.q = {**q, **{k: q[k] + sign * eps * direction[k] for k in direction}}
                bounds.append(tempered_bound(ctx, units, t))
                expectations.append(_expected_statistics(model, ctx.q, block))
            gradient = (bounds[0] - bounds[1]) / (2 * eps)
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


@pytest.mark.parametrize(("entry", "name"), combinations())
def test_minibatch_of_all_units_with_full_steps_is_batch(entry, name, rng):
    """Bit for bit, through the loop over minibatches, and through partial_fit."""
    X = entry.data(rng, 50)
    # learning_decay = 0 is a learning rate of 1 in every update, as in batch mode.
    est = entry.make(annealing=quick(name), learning_decay=0.0, tol=0.0, **entry.first)
    (one, method, units), (two, _, _) = open_run(est, X), open_run(est, X)
    if "learning_rate" in method.get_params():
        method.set_params(learning_rate="decay")
    settings = est._settings()._replace(batch_size=units.n_units)
    batch = engine._fit_batch(one, method, units, settings, SEQUENTIAL, None)
    minibatch = engine._fit_minibatches(two, method, units, settings, SEQUENTIAL, None)
    assert largest_difference(two.q, one.q) == 0
    assert minibatch.final == batch.final
    np.testing.assert_array_equal(minibatch.temperatures, batch.temperatures)


@pytest.mark.parametrize("entry", models())
def test_one_call_of_partial_fit_is_one_pass(entry, rng):
    X = entry.data(rng, 50)
    est = entry.make(annealing="none", learning_decay=0.0, max_iter=1, **entry.first)
    whole, stream = est.fit(X), entry.make(**est.get_params(deep=False)).partial_fit(X)
    assert largest_difference(stream._inference.ctx.q, whole._inference.ctx.q) == 0
    assert stream.n_iter_ == 1


@pytest.mark.parametrize(("entry", "params"), variants())
def test_targets_of_minibatches_average_to_that_of_the_batch(entry, params, rng):
    """The first block's statistics are linear in the units, so N/|S| makes them unbiased."""
    ctx, method, units = open_run(entry.make(annealing="none", **params), entry.data(rng, 60))
    q, block = ctx.q, ctx.model.blocks[0]
    one_update(ctx, method, units)
    whole = {key: ctx.q[key] for key in block.keys}
    ctx.q, found = q, []
    for batch in units.batches(15, rng):
        ctx.q, ctx.scale = q, units.total_weight / batch.total_weight
        one_update(ctx, method, batch, minibatch=True)
        found.append(ctx.q)
    assert len(found) == 4
    mean = {key: np.mean([one[key] for one in found], axis=0) for key in block.keys}
    assert largest_difference(mean, whole) < 1e-12


# Methods without effect


def neutral_methods(n):
    for form in ("likelihood", "posterior", "local"):
        for schedule in ("geometric", "linear", "constant"):
            yield DeterministicAnnealing(form, 1, schedule, 10, 0.5)
    yield StochasticAnnealing(0.0, "linear", 10, "init_params")
    yield StochasticAnnealing(0.0, "exponential", 10, "init_params")
    for noise in ("dirichlet", "gaussian"):
        for schedule in ("constant", "linear", "geometric"):
            yield SVIPlus(n, noise, schedule, 10, 1.0)
    yield SVIPlus(1.0, "dirichlet", "constant", 10, 1.0)
    yield ProximityVI(0.0, 2, 10, 1.0)


@pytest.mark.parametrize("minibatch", [False, True])
@pytest.mark.parametrize(
    "method", list(neutral_methods(50)), ids=lambda m: " ".join(repr(m).split())
)
@pytest.mark.parametrize("entry", models())
def test_method_without_temperature_or_noise_is_plain_inference(entry, method, minibatch, rng):
    X = entry.data(rng, 50)
    plain, none, units = open_run(entry.make(annealing="none", **entry.first), X)
    ctx, method, _ = open_run(entry.make(annealing=method, **entry.first), X)
    settings = FULL_STEPS._replace(learning_decay=0.6 if minibatch else 0.0)
    for _ in range(6):
        one = one_update(plain, none, units, settings=settings, minibatch=minibatch)
        two = one_update(ctx, method, units, settings=settings, minibatch=minibatch)
        assert two.temperature == 1
        assert (one.step.energy, one.step.entropy) == (two.step.energy, two.step.entropy)
        assert largest_difference(ctx.q, plain.q) == 0


@pytest.mark.parametrize(("entry", "name"), combinations(["tempering"]))
def test_tempering_that_is_sure_of_temperature_one_is_plain_inference(entry, name, rng):
    X = entry.data(rng, 50)
    plain, none, units = open_run(entry.make(annealing="none", **entry.first), X)
    ctx, method, _ = open_run(entry.make(annealing=quick(name), **entry.first), X)
    sure = np.eye(method.n_temperatures)[0]
    for _ in range(4):
        ctx.state = {**ctx.state, "temperature_probabilities": sure}
        one_update(plain, none, units)
        one_update(ctx, method, units)
        assert largest_difference(ctx.q, plain.q) == 0


# Weights


def _assert_weights_count(entry, params, name, counts, X, n_updates=10):
    est = entry.make(annealing=quick(name, n_updates), **params)
    repeated, method, copies = open_run(est, entry.repeat(X, counts))
    weighted, other, units = open_run(est, X, counts.astype(float), q=repeated.q)
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
    assert largest_difference(weighted.q, repeated.q) < 1e-10


@pytest.mark.parametrize(("entry", "name"), combinations(DETERMINISTIC))
def test_weight_is_a_number_of_copies(entry, name, rng):
    X = entry.data(rng, 60)
    for params in entry.variants.values():
        _assert_weights_count(entry, params, name, np.where(np.arange(60) % 3, 1, 2), X)


@pytest.mark.parametrize(("entry", "name"), combinations(DETERMINISTIC))
def test_weight_zero_is_absence(entry, name, rng):
    X = entry.data(rng, 60)
    for params in entry.variants.values():
        _assert_weights_count(entry, params, name, np.where(np.arange(60) % 4, 1, 0), X)


# Parallel work


@pytest.fixture
def always_parallel(monkeypatch):
    monkeypatch.setattr(base, "_WORTH_THREADS", dict.fromkeys(base._WORTH_THREADS, 0.0))


@pytest.mark.usefixtures("always_parallel")
@pytest.mark.parametrize("n_init", [1, 3])
def test_parallel_work_is_done_by_several_threads(n_init, rng, monkeypatch):
    """Without this, the next test could compare sequential work with itself."""
    entry, tasks, threads = models()[0].values[0], Counter(), set()
    original = parallel._in_worker

    def spy(parent, function, *task):
        tasks[function.__name__] += 1
        threads.add(threading.get_ident())
        return original(parent, function, *task)

    monkeypatch.setattr(parallel, "_in_worker", spy)
    X = entry.data(rng, 2500)
    entry.make(n_init=n_init, n_jobs=1, annealing="none", max_iter=2, **entry.first).fit(X)
    assert not tasks
    entry.make(n_init=n_init, n_jobs=2, annealing="none", max_iter=2, **entry.first).fit(X)
    assert tasks == ({"local_step": 9} if n_init == 1 else {"restart": 3})
    assert threads - {threading.get_ident()}


@pytest.mark.usefixtures("always_parallel")
@pytest.mark.parametrize("how", [{}, {"n_init": 3}, {"batch_size": 1200}], ids=str)
@pytest.mark.parametrize(("entry", "name"), combinations())
def test_result_does_not_depend_on_workers(entry, name, how, rng):
    """Bit for bit, for 2500 units: three chunks, the last one smaller."""
    X = entry.data(rng, 2500)
    weights = rng.integers(0, 3, size=2500)
    params = entry.first | how | {"annealing": quick(name, 3), "max_iter": 2}
    one = entry.make(n_jobs=1, **params).fit(X, sample_weight=weights)
    for backend, n_jobs in (("threading", 2), ("threading", 3), ("loky", 2)):
        with joblib.parallel_config(backend=backend):
            other = entry.make(n_jobs=n_jobs, **params).fit(X, sample_weight=weights)
        assert_identical(one, other)


@pytest.mark.usefixtures("always_parallel")
@pytest.mark.parametrize("entry", models())
def test_stream_does_not_depend_on_workers(entry, rng):
    batches = [entry.data(rng, 2500) for _ in range(2)]
    found = []
    for n_jobs in (1, 2):
        est = entry.make(n_jobs=n_jobs, **entry.first)
        for X in batches:
            est.partial_fit(X)
        found.append(est)
    assert_identical(*found)


# Persistence and names


@pytest.mark.parametrize("total_samples", [None, 120])
@pytest.mark.parametrize(("entry", "name"), combinations())
def test_pickle_between_two_batches_changes_nothing(entry, name, total_samples, rng):
    batches = [entry.data(rng, 30) for _ in range(5)]
    params = entry.first | {"annealing": quick(name, 3), "total_samples": total_samples}
    resumed, straight = entry.make(**params), entry.make(**params)
    for X in batches:
        straight.partial_fit(X)
        resumed = pickle.loads(pickle.dumps(resumed)).partial_fit(X)
        assert_identical(straight, resumed)
    assert straight.n_iter_ == 5


@pytest.mark.parametrize(("entry", "name"), combinations())
def test_pickled_fit_predicts_and_goes_on_the_same(entry, name, rng):
    X = entry.data(rng, 60)
    est = entry.make(annealing=quick(name), **entry.first).fit(X)
    copy = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(est.score_samples(X), copy.score_samples(X))
    np.testing.assert_array_equal(est.transform(X), copy.transform(X))
    assert_identical(est.partial_fit(X), copy.partial_fit(X))


@pytest.mark.parametrize(("entry", "name"), combinations())
def test_name_is_the_default_instance(entry, name, rng):
    X = entry.data(rng, 50)
    for how in ({}, {"batch_size": 20}):
        by_name = entry.make(annealing=name, **how, **entry.first).fit(X)
        instance = entry.make(annealing=ANNEALING[name](), **how, **entry.first).fit(X)
        assert type(by_name.annealing_) is ANNEALING[name]
        assert_identical(by_name, instance)


@pytest.mark.parametrize(("entry", "name"), combinations())
def test_fit_is_repeatable_and_does_not_depend_on_what_was_before(entry, name, rng):
    X = entry.data(rng, 50)
    params = entry.first | {"annealing": quick(name)}
    est = entry.make(**params).fit(X)
    again = entry.make(**params).partial_fit(entry.data(rng, 30)).fit(X)
    assert_identical(est, again)


# Predictions


@pytest.mark.parametrize(("entry", "params"), variants())
def test_density_integrates_to_one(entry, params, rng):
    for make in entry.spaces.values():
        est = entry.make(annealing="none", **params).fit(make(rng, 30))
        assert entry.total_probability(est) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("entry", "name"), combinations())
def test_float32_is_near_float64(entry, name, rng):
    X = entry.data(rng, 80).astype(np.float32)
    params = entry.first | {"annealing": quick(name)}
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


# Capabilities


@pytest.mark.parametrize("name", ANNEALING)
@pytest.mark.parametrize("entry", models())
def test_every_pair_works_or_is_refused(entry, name, rng):
    X = entry.data(rng, 50)
    for params in entry.variants.values():
        for how in ({}, {"batch_size": 20}):
            est = entry.make(annealing=quick(name), **how, **params)
            if name in entry.refused:
                with pytest.raises(ValueError, match=entry.refused[name]):
                    est.fit(X)
                with pytest.raises(ValueError, match=entry.refused[name]):
                    est.partial_fit(X)
                continue
            est.fit(X)
            assert np.isfinite(est.lower_bound_)
            assert est._inference.ctx.model.valid(est._inference.ctx.q)
            assert np.isfinite(est.score(X))
            est.partial_fit(X[:5])
            assert est._inference.ctx.model.valid(est._inference.ctx.q)


@pytest.mark.parametrize("entry", models())
def test_exact_gradients_are_refused_where_the_model_has_none(entry, rng):
    model = entry.make(**entry.first)._make_model(entry.data(rng, 50))
    if hasattr(model, "exact_gradient_statistics"):
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
    """A model that lacks one capability, and does no work but say its name."""

    def __init__(self, model, lacking):
        self._model = model
        self._lacking = lacking

    def __getattr__(self, name):
        if name.startswith("__") or name == self._lacking:
            raise AttributeError(name)
        if name == "recommended":
            return self._model.recommended
        if name in CAPABILITIES:
            return getattr(self._model, name)
        raise AssertionError(f"{name} was used before the refusal")


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("entry", models())
def test_lack_of_a_capability_is_one_sentence_before_any_work(entry, capability, rng, monkeypatch):
    X = entry.data(rng, 50)
    make_model = type(entry.make())._make_model
    monkeypatch.setattr(
        type(entry.make()), "_make_model", lambda est, X: _Without(make_model(est, X), capability)
    )
    settings = {"exact_gradient_statistics": StructuredVI(gradient="exact")}
    methods = {name: settings.get(capability, quick(name)) for name in ANNEALING}
    asking = {
        name: method
        for name, method in methods.items()
        if capability in method.resolve(entry.make()._make_model(X).recommended).needs
    }
    assert asking, f"no method asks for {capability}"
    for method in asking.values():
        est = entry.make(annealing=method, **entry.first)
        for fit in (est.fit, est.partial_fit):
            with pytest.raises(ValueError, match=f"'{capability}'") as caught:
                fit(X)
            message = str(caught.value)
            assert type(method).__name__ in message
            assert CAPABILITIES[capability] in message
            works = message.split("What works: ")[1]
            assert "'none'" in works
            if capability != "exact_gradient_statistics":
                assert not any(f"'{name}'" in works for name in asking)


def test_bare_model_works_with_what_needs_nothing():
    """A model with the obligatory methods alone."""
    bare = type("Bare", (), {"recommended": {}})()
    for cls in ANNEALING.values():
        method = cls().resolve({})
        if method.needs:
            with pytest.raises(ValueError, match="cannot be combined with Bare"):
                check_capabilities(method, bare, method)
        else:
            check_capabilities(method, bare, method)
    assert not VariationalTempering().resolve({}).needs == ()
    check_capabilities(DeterministicAnnealing(initial_temperature=2.0), bare, "deterministic")
    for capability in CAPABILITIES:
        assert not hasattr(ConjugateModel, capability)
