"""Helpers for tests of several models: lists of models and methods, and ways to run them.

The first half makes the arguments of ``pytest.mark.parametrize`` from the entries of ``models``.
The second half runs parts of a fit and reads its result. It is the only place where tests of
several models depend on private parts of the package: how an estimator makes its model and units,
how the loop visits and updates, and where a fitted estimator keeps its parameters. If one of these
changes, only this module has to change with it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from designs import each_once
from models import ENTRIES, Entry

from sklearn_anneal.annealing import ANNEALING, Annealing, Context, NoAnnealing
from sklearn_anneal.annealing._base import RandomWeights
from sklearn_anneal.data.units import _counts, _documents, _ratings, _rows, _sequences
from sklearn_anneal.estimators import _streaming as streams
from sklearn_anneal.families import Tempering
from sklearn_anneal.inference import conjugate, loop, visits
from sklearn_anneal.inference.stopping import RiseOfBound
from sklearn_anneal.inference.visits import Visited
from sklearn_anneal.models._base import Visit
from sklearn_anneal.models.topics import mean_field
from sklearn_anneal.parallel import workers as parallel
from sklearn_anneal.parallel.workers import SEQUENTIAL
from sklearn_anneal.search.problem import prepare


def models() -> list[Any]:
    """All entries, for ``pytest.mark.parametrize("entry", …)``."""
    return [pytest.param(entry, id=entry.name) for entry in ENTRIES]


def variants(
    heuristics: bool = False, sampled: bool = True, of: Callable[[Entry], Any] = lambda entry: True
) -> list[Any]:
    """All variants of all entries, for ``parametrize(("entry", "params"), …)``.

    With ``heuristics``, forms whose local step does not ascend a bound are included; those of them
    whose local step is random only with ``sampled``. ``of`` selects entries. Variants that combine
    what others have too are marked as exhaustive.
    """
    return [
        pytest.param(
            entry,
            params,
            marks=pytest.mark.exhaustive if name in entry.seldom else (),
            id=f"{entry.name}-{name}",
        )
        for entry in ENTRIES
        if of(entry)
        for name, params in (entry.variants | _heuristics(entry, heuristics, sampled)).items()
    ]


def first_variants() -> list[Any]:
    """The first variant of every entry, for ``parametrize(("entry", "params"), …)``."""
    return [pair for pair in variants() if pair.values[1] is pair.values[0].first]


def forms(sampled: bool = True) -> list[Any]:
    """The forms that differ for the loop, for ``parametrize(("entry", "params"), …)``.

    They are the first variant and the heuristics of every entry.
    """
    return [
        pytest.param(entry, params, id="-".join(filter(None, (entry.name, name))))
        for entry in ENTRIES
        for name, params in ({"": entry.first} | _heuristics(entry, True, sampled)).items()
    ]


def unambiguous() -> list[Any]:
    """Entries with local parameters, with settings that make these independent of their start."""
    return [
        pytest.param(entry, entry.unambiguous, id=entry.name)
        for entry in ENTRIES
        if entry.one_optimum
    ]


def _heuristics(entry: Entry, any_of_them: bool, sampled: bool) -> dict[str, dict[str, Any]]:
    return {
        name: params
        for name, params in entry.heuristics.items()
        if any_of_them and (sampled or name not in entry.sampled)
    }


def crossed(pairs: list[Any], names: Any = None) -> list[Any]:
    """Entries with parameters × names of annealing that work, for ``("entry", "params", "name")``.

    ``pairs`` is a result of :func:`variants` or :func:`forms`. A class of annealing methods that
    has no name stands for itself.
    """
    return [
        pytest.param(
            entry, params, name, marks=pair.marks, id=f"{pair.id}-{getattr(name, '__name__', name)}"
        )
        for pair in pairs
        for entry, params in [pair.values]
        for name in (ANNEALING if names is None else names)
        if name not in entry.refused(params)
    ]


def combinations(names: Any = None, sampled: bool = True) -> list[Any]:
    """All :func:`forms`, combined with names of annealing by :func:`crossed`."""
    return crossed(forms(sampled), names)


def covering(cases: list[Any], turn: int = 0) -> list[Any]:
    """Those of :func:`crossed` combinations in which each class meets each method once.

    The entries of a class, which share most of their code, take turns: each meets some of the
    methods, at least one, and others with another ``turn``. Other combinations are marked as
    exhaustive.
    """
    groups: dict[Any, list[int]] = {}
    forms: dict[Any, list[int]] = {}
    for i, case in enumerate(cases):
        if case.marks:
            continue
        entry, params, name = case.values
        groups.setdefault((type(entry.make()), name), []).append(i)
        forms.setdefault((entry.name, id(params)), []).append(i)
    chosen = {group[(turn + i) % len(group)] for i, group in enumerate(groups.values())}
    chosen |= {
        form[(turn + i) % len(form)]
        for i, form in enumerate(forms.values())
        if chosen.isdisjoint(form)
    }
    return _exhaustive_but(cases, chosen)


def one_of_each_class(cases: list[Any]) -> list[Any]:
    """The first entry of each class; the tests of the others are exhaustive."""
    seen: set[type] = set()
    found = []
    for case in cases:
        (entry,) = case.values
        cls = type(entry.make())
        marks = pytest.mark.exhaustive if cls in seen else ()
        found.append(pytest.param(entry, marks=marks, id=case.id))
        seen.add(cls)
    return found


def taking_turns(cases: list[Any], turn: int = 0) -> list[Any]:
    """Those of :func:`crossed` combinations in which the methods take turns.

    Each pair of an entry and its parameters meets one of its methods, the next pair the next one.
    Other combinations are marked as exhaustive.
    """
    groups: dict[Any, list[int]] = {}
    for i, case in enumerate(cases):
        if case.marks:
            continue
        entry, params, _ = case.values
        groups.setdefault((entry.name, id(params)), []).append(i)
    chosen = {group[(turn + i) % len(group)] for i, group in enumerate(groups.values())}
    return _exhaustive_but(cases, chosen)


def alternating(cases: list[Any], values: Any) -> list[Any]:
    """Cases × values of one more argument; each case has one of the values in turn.

    Other combinations are marked as exhaustive.
    """
    found, turn = [], 0
    for case in cases:
        for i, value in enumerate(values):
            marks = case.marks if i == turn % len(values) else pytest.mark.exhaustive
            found.append(pytest.param(*case.values, value, marks=marks, id=f"{case.id}-{value}"))
        turn += not case.marks
    return found


def batches_and_minibatches(cases: list[Any], turn: int = 0) -> list[Any]:
    """:func:`covering` combinations, each in batches or in minibatches."""
    return alternating(covering(cases, turn), ("batch", "minibatches"))


def of_each_class_and_method(cases: list[Any]) -> list[Any]:
    """Few of :func:`crossed` combinations, in which each class and each method occurs.

    They suffice where no class treats a method in a way of its own.
    """
    return each_once(cases, lambda entry, *_: type(entry.make()), lambda entry, params, name: name)


def _exhaustive_but(cases: list[Any], chosen: set[int]) -> list[Any]:
    return [
        case
        if i in chosen
        else pytest.param(*case.values, marks=pytest.mark.exhaustive, id=case.id)
        for i, case in enumerate(cases)
    ]


def quick(name: str | type[Annealing], n_passes: int = 4, **params: Any) -> Any:
    """The method of a name or a class with few passes; further settings can be given."""
    method = ANNEALING[name]() if isinstance(name, str) else name()
    if "n_passes" in method.get_params():
        params = {"n_passes": n_passes} | params
    return method.set_params(**params)


class Fixed(NoAnnealing):
    """A method that makes plain updates with a fixed tempering."""

    def __init__(self, t: Tempering = Tempering()):  # noqa: B008
        self.t = t

    def temper(self, ctx: Context, units: Any) -> Tempering:
        return self.t


def model_of(estimator: Any, X: Any) -> Any:
    """The model that an estimator would fit to X."""
    return model_and_units(estimator, X)[0]


def model_and_units(estimator: Any, X: Any, weights: np.ndarray | None = None) -> tuple[Any, Any]:
    """The model that an estimator would fit to X, and the units, given weights of units."""
    X = estimator._validate_data(X, reset=True)
    units = estimator._make_units(X, weights)
    return estimator._make_model(X, units), units


def change_models(monkeypatch: pytest.MonkeyPatch, cls: type, change: Callable[[Any], Any]) -> None:
    """Let estimators of a class fit ``change(model)`` in the place of each model that they make."""

    def changed(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda estimator, X, units: change(make(estimator, X, units))

    for name in ("_make_model", "_make_model_of_stream"):
        if name == "_make_model" or name in vars(cls):
            monkeypatch.setattr(cls, name, changed(getattr(cls, name)))


def units_of(estimator: Any, X: Any, weights: np.ndarray | None = None) -> Any:
    """The units of X as a fitted estimator sees them."""
    return estimator._make_units(estimator._validate_data(X, reset=False), weights)


def context_of(estimator: Any) -> Context:
    """The model, the parameters and the clock of a fitted estimator."""
    return estimator._inference.ctx


def attributes_of(estimator: Any, ctx: Context) -> dict[str, Any]:
    """The attributes that a fit of ``estimator`` would have if it ended at ``ctx``."""
    return estimator._fitted_attributes(ctx)


def open_run(
    estimator: Any,
    X: Any,
    sample_weight: np.ndarray | None = None,
    q: dict[str, np.ndarray] | Callable[[Context], dict[str, np.ndarray]] | None = None,
    seed: int = 0,
) -> tuple[Context, Any, Any]:
    """The context of a fit at its start (or at ``q``), its method, and its units.

    This function does the same as ``fit`` before the loop, so that tests can make single updates.
    ``q`` can also be a function of the context, for a start that depends on the model and the
    prior.
    """
    model, units = model_and_units(estimator, X, sample_weight)
    method, settings = estimator._strategy(model), estimator._settings(units)
    estimator._load_kernels()
    random_state = np.random.RandomState(seed)
    problem, _ = prepare(model, method, units, settings, random_state)
    model, prior, summary, units = problem.model, problem.prior, problem.summary, problem.units
    ctx = Context(model, prior, summary, np.random.default_rng(seed), q={})
    if q is None:
        q = model.init(units, summary, prior, np.random.RandomState(seed))
    ctx.q = q(ctx) if callable(q) else q
    method = method.calibrate(ctx, units, partial(loop.rehearse, ctx, units, FULL_STEPS))
    ctx.state |= method.initial_state(ctx)
    return ctx, method, units


FULL_STEPS = loop.Settings(
    max_iter=0, stop=RiseOfBound(0.0), batch_size=None, learning_offset=1.0, learning_decay=0.0
)


def prepared_visit(ctx: Context, units: Any, block: Any = None, **how: Any) -> tuple[Visit, Any]:
    """A plain visit for a block (by default the first), and the units in the form for its steps."""
    prepared = ctx.model.visit(ctx.q, units, block=block, **how)
    return prepared, prepared.view(units)


def visit_of(ctx: Context, method: Any, units: Any, **how: Any) -> Visit:
    """A visit as the method prepares it."""
    t, options = method.temper(ctx, units), method.visit_options(ctx)
    return ctx.model.visit(ctx.q, units, t, **options, **how)


def visit(
    ctx: Context,
    method: Any,
    units: Any,
    local: list[Any] | None = None,
    *,
    block: Any = None,
    evaluation: bool = False,
    bound: bool = True,
) -> Visited:
    """One local step over all units, for a block (by default the first), from ``local``."""
    # The loop empties the list of local parameters that it is given, so that it gets a copy.
    local = None if local is None else list(local)
    how = {"block": block, "evaluation": evaluation, "bound": bound}
    return visits.visit(ctx, method, units, SEQUENTIAL, local, **how)


def update(
    ctx: Context,
    method: Any,
    units: Any,
    seen: Visited,
    *,
    settings: Any = FULL_STEPS,
    minibatch: bool = False,
) -> None:
    """One update of all blocks of ``ctx``, given the visit of the first."""
    # The loop empties this list, but the test may read the local variables of ``seen`` again.
    seen = seen._replace(local=None if seen.local is None else list(seen.local))
    conjugate.update(
        ctx, method, units, seen, settings, SEQUENTIAL, minibatch=minibatch, passes=1.0
    )


def one_update(
    ctx: Context, method: Any, units: Any, *, settings: Any = FULL_STEPS, minibatch: bool = False
) -> Visited:
    """Visit all units, then update ``ctx``; returns the visit, made before the update."""
    seen = visit(ctx, method, units)
    update(ctx, method, units, seen, settings=settings, minibatch=minibatch)
    return seen


def lower_bound(ctx: Context, units: Any) -> float:
    """The complete evidence lower bound of ``ctx.q`` at T = 1, in nats."""
    return loop.lower_bound(ctx, units, SEQUENTIAL)


def finish_run(
    ctx: Context, method: Any, units: Any, estimator: Any, how: str | None = None
) -> loop.Trace:
    """Make all passes of a fit of ``estimator`` from ``ctx`` on; ``ctx`` then has the result.

    ``how`` is "batch", "minibatches" (each with all units), or None for the estimator's own choice.
    """
    settings, minibatches = estimator._settings(units), None
    if how is not None:
        settings = settings._replace(batch_size=units.n_units)
        minibatches = how == "minibatches"
    progress = loop.Progress(ctx, method)
    return loop.fit(progress, units, settings, SEQUENTIAL, minibatches=minibatches).trace


def recorded_visits(monkeypatch: pytest.MonkeyPatch) -> list[Visited]:
    """A list to which every visit of later fits is appended, with its local parameters."""
    original = visits.visit
    found: list[Visited] = []

    def spy(*args: Any, **how: Any) -> Visited:
        visited = original(*args, **{**how, "keep": True})
        # The loop empties the list of local parameters when it uses them.
        kept = None if visited.local is None else list(visited.local)
        found.append(visited._replace(local=kept))
        return visited

    monkeypatch.setattr(visits, "visit", spy)
    return found


def has_local_variables(estimator: Any, X: Any) -> bool:
    """Whether the model that an estimator fits to X has local variables that visits keep."""
    ctx, method, units = open_run(estimator, X)
    return visit(ctx, method, units).local is not None


def recorded_tasks(monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[str], set[int]]:
    """Record the functions that threads run from now on.

    Returns names with numbers of calls, and the ids of the threads; both are filled in later. The
    name of a visit's method is "step". The first task of the calling thread waits until another
    thread has one, because on a busy machine the calling thread could else do all tasks before the
    other is awake.
    """
    tasks: Counter[str] = Counter()
    threads: set[int] = set()
    original, caller, others = parallel.in_thread, threading.get_ident(), threading.Event()

    def spy(over: Any, config: Any, function: Callable[..., Any], *task: Any) -> Any:
        of_visit = isinstance(getattr(function, "__self__", None), Visit)
        tasks["step" if of_visit else function.__qualname__] += 1
        first = threading.get_ident() not in threads
        threads.add(threading.get_ident())
        if threading.get_ident() != caller:
            others.set()
        elif first:
            others.wait(10)
        return original(over, config, function, *task)

    monkeypatch.setattr(parallel, "in_thread", spy)
    return tasks, threads


def make_threads_worthwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fits use as many threads as they are allowed, however little work there is."""
    for key in streams.WORTH_THREADS:
        monkeypatch.setitem(streams.WORTH_THREADS, key, 0.0)


MANY, SOME = 320, 160
"""Numbers of units that :func:`divide_few_units` divides into several chunks, and into two."""


def divide_few_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an eighth of the data be divided into as many chunks, and as many parts of arrays.

    Documents are divided as those of large corpora are.
    """
    tables = (
        _documents._DOCUMENT_CHUNKS,
        _sequences._SEQUENCE_CHUNKS,
        _ratings._RATING_CHUNKS,
        _counts._SPARSE_COUNT_CHUNKS,
    )
    for table in tables:
        for n_chunks, n_entries in list(table.items()):
            monkeypatch.setitem(table, n_chunks, n_entries // 8)
    monkeypatch.setattr(mean_field, "_CHUNKS", _documents._DOCUMENT_CHUNKS)
    for module, name in (
        (_rows, "_SMALLEST_CHUNK"),
        (_rows, "_BLOCK"),
        (_counts, "_CELLS_OF_CHUNK"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name) // 8)
    n_parts = parallel.Workers._n_parts
    monkeypatch.setattr(
        parallel.Workers,
        "_n_parts",
        lambda workers, n, at_least, most: n_parts(workers, n, max(at_least // 8, 1), most),
    )


def largest_difference(a: Any, b: Any) -> float:
    """Largest difference of two sets of natural parameters, relative to the size of each array."""
    assert a.keys() == b.keys()
    return max(
        float(np.max(np.abs(a[key] - b[key])) / max(np.max(np.abs(b[key])), 1e-300)) for key in a
    )


def fitted_state(estimator: Any) -> dict[str, Any]:
    """All fitted attributes as arrays, including the settings of the annealing method."""
    state: dict[str, Any] = {}
    for name, value in vars(estimator).items():
        if name.endswith("_") and not name.startswith("_") and name != "annealing_":
            state |= _flat(name, value)
    ctx = context_of(estimator)
    state |= {f"q: {key}": value for key, value in ctx.q.items()}
    state |= _flat("state", dict(ctx.state))
    state |= {f"annealing_: {k}": v for k, v in estimator.annealing_.get_params().items()}
    return state


def _flat(name: str, value: Any) -> dict[str, Any]:
    """An attribute, or the parts of an attribute that is a dictionary or a list of arrays."""
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    else:
        return {name: value}
    return {k: v for key, part in parts for k, v in _flat(f"{name}[{key}]", part).items()}


def assert_identical(a: Any, b: Any) -> None:
    """Check that two fitted estimators are equal bit for bit."""
    one, other = fitted_state(a), fitted_state(b)
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(np.asarray(value), np.asarray(other[name]), err_msg=name)


def all_at_once(weights: RandomWeights, size: int, rng: np.random.Generator) -> np.ndarray:
    """The random factors of all weight units, drawn in one part."""
    drawn, totals = weights.draw(size, rng)
    return weights.scaled(drawn, totals, totals)


class AfterPass:
    """A callback that gives the fitted estimator to a function after each pass."""

    def __init__(self, function):
        self.function = function

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        return context.task_name == "pass" and self.function(fitted_estimator)
