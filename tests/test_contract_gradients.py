"""What the loop promises of every model that is trained by gradients, with every method.

The tests of conjugate models are in ``test_contract.py``. Here bounds are estimates from draws, so
that nothing rises for certain; what must be equal is equal bit for bit.
"""

from __future__ import annotations

import pickle
from itertools import cycle
from types import SimpleNamespace

import numpy as np
import pytest
from harness import (
    alternating,
    assert_identical,
    context_of,
    covering,
    finish_run,
    make_threads_worthwhile,
    model_of,
    open_run,
    quick,
    visit,
)
from models import TRAINED_BY_GRADIENTS
from test_checkpoints import goes_on, in_turn
from test_persistence import assert_round_trip

from sklearn_anneal.annealing import ANNEALING, ProximityVI, check_capabilities
from sklearn_anneal.annealing._base import CAPABILITIES, OF_UPDATE_RULES, UPDATES

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("no_wait_for_the_disk"),
]

FORMS = [
    pytest.param(entry, params, id=f"{entry.name}-{name}")
    for entry in TRAINED_BY_GRADIENTS
    for name, params in entry.variants.items()
]
WORKING = [
    pytest.param(*form.values, name, id=f"{form.id}-{name}")
    for form in FORMS
    for name in ANNEALING
    if name not in form.values[0].refused(form.values[1])
]
# Each class meets each method in one of its forms.
FORMS_IN_TURN = covering(WORKING)
# Batches and minibatches take turns as well.
SIZES_IN_TURN = alternating(FORMS_IN_TURN, (None, 15))
forms = pytest.mark.parametrize(("entry", "params"), FORMS)
working = pytest.mark.parametrize(("entry", "params", "name"), WORKING)
in_forms_in_turn = pytest.mark.parametrize(("entry", "params", "name"), FORMS_IN_TURN)
hows = pytest.mark.parametrize("size", [None, 15])


def short(entry, params, name, size, **settings):
    short = {"annealing": quick(name, 3), "max_iter": 3, "tol": 0.0, **settings}
    return entry.make(**(params | {"batch_size": size} | short))


@in_forms_in_turn
def test_number_of_jobs_changes_no_bit(entry, params, name, rng, monkeypatch):
    make_threads_worthwhile(monkeypatch)
    X = entry.data(rng, 700)
    for size, n_jobs in ((None, 3), (600, 2)):
        one, other = (
            short(entry, params, name, size, max_iter=1, n_jobs=n).fit(X) for n in (1, n_jobs)
        )
        assert_identical(other, one)
    restarts = [
        short(entry, params, name, 300, max_iter=1, n_init=3, n_jobs=n).fit(X) for n in (1, 2)
    ]
    assert_identical(*restarts)
    assert len(restarts[0].restart_lower_bounds_) == 3


@pytest.mark.parametrize(
    ("entry", "params", "name", "size", "first", "step"), in_turn(SIZES_IN_TURN, 5)
)
def test_a_fit_goes_on_from_after_any_pass(
    entry, params, name, size, first, step, rng, tmp_path, monkeypatch
):
    X = entry.data(rng, 40)

    def make():
        return short(entry, params, name, size)

    whole, n_saved = make().fit(X), first
    while goes_on(monkeypatch, make, X, whole, tmp_path / str(n_saved), n_saved):
        n_saved += step
    assert n_saved > 3


@in_forms_in_turn
def test_a_stream_goes_on_after_a_pickle(entry, params, name, rng):
    """With the moments of the optimizer and with what the method remembers."""
    X = entry.data(rng, 40)
    # Nets make further steps if they may make several passes.
    for max_iter in (1, 3):
        whole = short(entry, params, name, None, total_samples=40, max_iter=max_iter)
        copied = short(entry, params, name, None, total_samples=40, max_iter=max_iter)
        for start in range(0, 40, 10):
            whole.partial_fit(X[start : start + 10])
            copied = pickle.loads(pickle.dumps(copied)).partial_fit(X[start : start + 10])
        assert_identical(copied, whole)
        n_steps = context_of(whole).state["optimizer"]["n_steps"]
        assert n_steps == 4 or (n_steps > 4 and max_iter > 1)


@pytest.mark.parametrize(
    ("entry", "params", "name", "how"), alternating(FORMS_IN_TURN, ("fit", "partial_fit"))
)
def test_round_trip_of_files(entry, params, name, how, rng, tmp_path):
    X = entry.data(rng, 40)
    fitted = getattr(short(entry, params, name, None), how)(X)
    assert_round_trip(fitted, X, tmp_path / "estimator.skops")


@in_forms_in_turn
def test_a_failed_update_changes_nothing(entry, params, name, rng, monkeypatch):
    X = entry.data(rng, 30)
    est = short(entry, params, name, None, total_samples=60).partial_fit(X)
    before = pickle.loads(pickle.dumps(est))
    cls = type(context_of(est).model.optimizer)
    original = cls.step

    def failing(self, *arguments):
        original(self, *arguments)
        raise RuntimeError("in the middle of an update")

    with monkeypatch.context() as patch:
        patch.setattr(cls, "step", failing)
        with pytest.raises(RuntimeError, match="in the middle"):
            est.partial_fit(X)
    assert_identical(est, before)
    assert_identical(est.partial_fit(X), before.partial_fit(X))


@forms
@hows
def test_a_warm_start_goes_on_where_the_fit_ended(entry, params, size, rng):
    X = entry.data(rng, 40)
    once = short(entry, params, "none", size, max_iter=6, n_init=1).fit(X)
    twice = short(entry, params, "none", size, warm_start=True).fit(X).fit(X)
    if size is not None:  # in batch mode the visit that ends a fit draws numbers too
        for key, value in context_of(once).q.items():
            np.testing.assert_array_equal(context_of(twice).q[key], value)
    assert twice.n_iter_ == 6 == len(twice.lower_bounds_)
    assert len(getattr(twice, "standard_errors_", range(6))) == 6
    assert context_of(twice).state["optimizer"]["n_steps"] == (6 if size is None else 18)


@working
def test_without_annealing_left_a_method_is_plain(entry, params, name, rng):
    """At T = 1, with a strength of 0 and with weights of 1."""
    if name == "tempering":
        pytest.skip("Its temperature is inferred, and close to 1 only in a fit to data that fit.")
    X = entry.data(rng, 40)
    neutral = {
        "none": {},
        "deterministic": {"initial_temperature": 1.0, "schedule": "constant"},
        "svi_plus": {"effective_batch_size": 1.0},
        "proximity": {"strength": 0.0},
    }
    method = quick(name).set_params(**neutral[name])
    n_passes = method.resolve({}).schedule_length()
    annealed = short(entry, params, name, 15, annealing=method, max_iter=2).fit(X)
    plain = short(entry, params, "none", 15, max_iter=2 + n_passes).fit(X)
    np.testing.assert_array_equal(annealed.lower_bounds_, plain.lower_bounds_)
    for key, value in context_of(plain).q.items():
        np.testing.assert_array_equal(context_of(annealed).q[key], value)


@forms
def test_other_methods_are_refused_in_one_sentence(entry, params, rng):
    X = entry.data(rng, 40)
    refused = entry.refused(params)
    assert refused
    for name in ANNEALING:
        est = entry.make(**params, annealing=quick(name))
        if name not in refused:
            continue
        for fit in (est.fit, est.partial_fit):
            with pytest.raises(ValueError, match=f"'{refused[name]}'") as caught:
                fit(X)
            message = str(caught.value)
            assert (CAPABILITIES | UPDATES)[refused[name]] in message
            if refused[name] == "conjugate_update":
                assert OF_UPDATE_RULES["gradient"]["conjugate_update"] in message
            works = message.split("What works: ")[1]
            assert all(repr(other) in works for other in ANNEALING.keys() - refused.keys())
            assert not any(repr(other) in works for other in refused)
        assert not hasattr(est, "lower_bound_")


@forms
def test_jitter_is_refused(entry, params, rng):
    method = quick("deterministic").set_params(jitter=0.1, initial_temperature=2.0)
    with pytest.raises(ValueError, match="conjugate_update"):
        entry.make(**params, annealing=method).fit(entry.data(rng, 40))


@pytest.mark.parametrize("entry", TRAINED_BY_GRADIENTS, ids=lambda entry: entry.name)
def test_a_model_says_why_it_lacks_capabilities(entry, rng):
    model = model_of(entry.make(), entry.data(rng, 40))
    can = model.capabilities()
    assert can.keys() <= CAPABILITIES.keys()
    assert all(reason is None or len(reason.split()) > 5 for reason in can.values())
    for name, cls in ANNEALING.items():
        if name not in entry.refused({}):
            method = cls().resolve(model.recommended.get(name, {}))
            check_capabilities(method, model, name, "Model")


KINDS_OF_PROXIMITY = (
    {"constraint": "kl"},
    {"constraint": "mean_variance"},
    {"constraint": "active_units"},
    {"distance": "inverse_huber"},
    {"average": 0.9},
    {"schedule": "accelerating"},
)


@pytest.mark.parametrize(
    ("entry", "params", "settings"),
    [
        pytest.param(entry, params, settings, id=f"{entry.name}-{settings}")
        for entry in TRAINED_BY_GRADIENTS
        for params, settings in zip(
            cycle(entry.variants.values()), KINDS_OF_PROXIMITY, strict=False
        )
    ],
)
def test_proximity_in_all_forms(entry, params, settings, rng):
    X = entry.data(rng, 40)
    method = ProximityVI(strength=10.0, lag=2, n_passes=4, **settings)
    # Rows have parameters of their own in batch mode only.
    size = None if entry.unit_keys else 15
    fitted = [
        short(entry, params, "proximity", size, annealing=copy, max_iter=1).fit(X)
        for copy in (method, ProximityVI(strength=0.0, n_passes=4))
    ]
    bounds = [est.lower_bounds_ for est in fitted]
    assert np.isfinite(bounds).all()
    # The first update compares with itself, and the next ones feel the constraint.
    assert not np.array_equal(*bounds)


@forms
def test_proximity_adds_the_gradient_of_its_constraint(entry, params, rng):
    """g − k d′(f − f_lag) ∂f/∂q, with the value of m updates before, or the first one."""
    X = entry.data(rng, 40)
    method = ProximityVI(strength=3.0, lag=2, n_passes=100, constraint="mean_variance")
    est = entry.make(**params, annealing=method)
    ctx, method, units = open_run(est, X)
    step = visit(ctx, method, units).step
    gradient = {key: rng.normal(size=value.shape) for key, value in ctx.q.items()}
    own = method.ascent(ctx, gradient, step, None)
    for key, value in gradient.items():
        np.testing.assert_array_equal(own[key], value)
    lagged = tuple(
        {key: 0.9 * value - 0.1 for key, value in part.value.items()} for part in step.constraints
    )
    ctx.state = {**ctx.state, "lagged": (lagged, step.constraints)}
    found = method.ascent(ctx, gradient, step, None)
    for key, value in gradient.items():
        expected = value.copy()
        for part, before in zip(step.constraints, lagged, strict=True):
            if key in part.gradient:
                for j in range(len(value)):
                    change = part.value[key][j] - before[key][j]
                    expected[j] -= 3.0 * 2 * change * part.gradient[key][j]
        np.testing.assert_allclose(found[key], expected, rtol=1e-6, atol=1e-9)
        assert found[key].dtype == np.float64


def test_average_of_proximity_forgets_slowly():
    """The first average is of the parameters before and after the first update."""
    method, model = ProximityVI(average=0.9), SimpleNamespace(update_rule="gradient")
    ctx = SimpleNamespace(
        model=model, state={}, q_start={"a": np.zeros(2)}, q={"a": np.array([1.0, 2.0])}
    )
    ctx.state = method.advance(ctx, None)
    np.testing.assert_allclose(ctx.state["average"]["a"], [0.1, 0.2])
    np.testing.assert_allclose(method.advance(ctx, None)["average"]["a"], [0.19, 0.38])


@pytest.mark.parametrize("entry", TRAINED_BY_GRADIENTS, ids=lambda entry: entry.name)
def test_bounds_are_below_the_log_evidence(entry, rng):
    for tiny in entry.tiny.values():
        X = tiny(rng)
        est = entry.make(max_iter=100, tol=0.0, learning_rate_init=0.05).fit(X)
        exact = entry.log_evidence(est, X)
        assert est.lower_bound_ < exact + 1e-9 * abs(exact)
        assert est.lower_bound_ > est.lower_bounds_[0]


@forms
def test_a_batch_of_all_rows_is_a_minibatch(entry, params, rng):
    """Both make the same updates, though the second records bounds at other times."""
    if entry.unit_keys:
        pytest.skip("rows have parameters of their own in batch mode only")
    X = entry.data(rng, 40)
    results = []
    for how in ("batch", "minibatches"):
        est = entry.make(**params, annealing="none", tol=0.0)
        ctx, method, units = open_run(est, X)
        finish_run(ctx, method, units, est, how)
        results.append(ctx)
    for key, value in results[0].q.items():
        np.testing.assert_array_equal(results[1].q[key], value)
    assert context_of(est.fit(X)).q.keys() == results[0].q.keys()


@forms
def test_float32_is_near_float64(entry, params, rng):
    X = entry.data(rng, 40)
    one, other = (short(entry, params, "none", 15).fit(X.astype(dtype)) for dtype in "fd")
    if not entry.unit_keys:
        assert {value.dtype for value in context_of(one).q.values()} == {np.dtype(np.float32)}
    np.testing.assert_allclose(one.lower_bounds_, other.lower_bounds_, rtol=0.02)
