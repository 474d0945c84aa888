"""Visits: what travels beside the data is read-only, can be pickled, and merges without a trace."""

from __future__ import annotations

import copy
import pickle
from functools import reduce

import numpy as np
import pytest
from harness import (
    all_at_once,
    alternating,
    combinations,
    covering,
    open_run,
    prepared_visit,
    taking_turns,
    visit_of,
)

from sklearn_anneal.models.topics.visit import Addends

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def arrays_of(value, seen=None):
    """All arrays that an object holds, at any depth."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Addends):
        # Sums that are put off are those of arrays, whatever their summands are.
        yield value.total()
    elif isinstance(value, dict):
        for part in value.values():
            yield from arrays_of(part, seen)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from arrays_of(part, seen)
    elif hasattr(value, "__dict__") and type(value).__module__.startswith("sklearn_anneal"):
        yield from arrays_of(vars(value), seen)


def copies_of(step):
    return [np.array(x) for x in arrays_of(step)] + [step.energy, step.entropy, step.log_prior]


def opened(entry, params, name, rng, n=30):
    ctx, method, units = open_run(entry.make(annealing=name, **params), entry.data(rng, n))
    visit = visit_of(ctx, method, units, block=ctx.model.blocks[0])
    return ctx, method, visit, visit.view(units)


def steps_of(ctx, method, visit, units, parts, local=None, noisy=False):
    """The local steps of some parts of the units; local variables are those of a single part."""
    assert local is None or len(parts) == 1
    weights = method.weights(ctx, units.n_weight_units) if noisy else None
    noise = None if weights is None else all_at_once(weights, units.n_weight_units, ctx.rng)
    steps = []
    for part in parts:
        chunk = units.take(part)
        start = visit.start(chunk, local, *method.local_start(ctx), ctx.rng)
        of_chunk = None if noise is None else noise[units.weight_units(part)]
        steps.append(visit.step(chunk, of_chunk, start))
    return steps


PARTS = [slice(0, 11), slice(11, 12), slice(12, 30)]


@pytest.mark.parametrize(("entry", "params", "name"), covering(combinations(), turn=0))
def test_merging_changes_no_step_and_is_associative(entry, params, name, rng):
    ctx, method, visit, units = opened(entry, params, name, rng)
    parts = [part for part in PARTS if part.start < units.n_units]
    parts[-1] = slice(parts[-1].start, units.n_units)
    steps = steps_of(ctx, method, visit, units, parts, noisy=True)
    before = [copies_of(step) for step in steps]
    left = reduce(visit.merge, steps)
    right = reduce(lambda b, a: visit.merge(a, b), reversed(steps))
    for step, copies in zip(steps, before, strict=True):
        for now, then in zip(copies_of(step), copies, strict=True):
            np.testing.assert_array_equal(now, then)
    for one, other in zip(copies_of(left), copies_of(right), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("entry", "params", "name", "place"),
    alternating(covering(combinations(), turn=1), range(len(PARTS))),
)
def test_the_step_of_units_of_weight_zero_is_the_unit(entry, params, name, place, rng):
    """Merged first, in the middle or last, it leaves the sum of the others as it is."""
    est, X = entry.make(annealing=name, **params), entry.data(rng, 30)
    weights = np.ones(30)
    weights[PARTS[place]] = 0.0
    ctx, method, units = open_run(est, X, weights)
    visit = visit_of(ctx, method, units, block=ctx.model.blocks[0])
    steps = steps_of(ctx, method, visit, visit.view(units), PARTS)
    others = [step for i, step in enumerate(steps) if i != place]
    found, expected = reduce(visit.merge, steps), reduce(visit.merge, others)
    for key in ("energy", "entropy", "log_prior", "temperature", "likelihood", "squares"):
        np.testing.assert_equal(getattr(found, key), getattr(expected, key), err_msg=key)
    if found.rows is None:
        both = arrays_of(found.statistics), arrays_of(expected.statistics)
        for one, other in zip(*both, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("entry", "params", "name"), taking_turns(combinations(), turn=2))
def test_steps_read_only_what_they_are_given(entry, params, name, rng):
    """They run on arrays that cannot be written to, from the start of local variables too."""
    ctx, method, visit, units = opened(entry, params, name, rng)
    whole = [slice(0, units.n_units)]
    ctx.exploring = False
    first = steps_of(ctx, method, visit, units, whole)[0]
    state = ctx.rng.bit_generator.state
    # The second visit starts from the local variables of the first.
    start = copy.deepcopy(first.local)
    expected = steps_of(ctx, method, visit, units, whole, start, noisy=True)[0]
    ctx.rng.bit_generator.state = state
    # Copies, since arrays that a module shares must stay as they are for other tests.
    visit, units, start = copy.deepcopy((visit, units, start))
    for array in arrays_of([units, visit, start]):
        array.setflags(write=False)
    found = steps_of(ctx, method, visit, units, whole, start, noisy=True)[0]
    for one, other in zip(copies_of(found), copies_of(expected), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("entry", "params", "name"), taking_turns(combinations(), turn=3))
def test_a_pickled_visit_takes_the_same_steps(entry, params, name, rng):
    ctx, method, visit, units = opened(entry, params, name, rng)
    again = pickle.loads(pickle.dumps(visit))
    state = ctx.rng.bit_generator.state
    one = visit.finish(steps_of(ctx, method, visit, units, [slice(0, units.n_units)])[0])
    ctx.rng.bit_generator.state = state
    other = again.finish(steps_of(ctx, method, again, units, [slice(0, units.n_units)])[0])
    for a, b in zip(copies_of(one), copies_of(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("entry", "params", "name"), combinations(["none"]))
def test_models_keep_nothing_of_a_visit(entry, params, name, rng):
    ctx, _, units = open_run(entry.make(annealing=name, **params), entry.data(rng, 30))
    before = pickle.dumps(ctx.model)
    visit, seen = prepared_visit(ctx, units)
    start = visit.start(seen, None, True, 0.0, ctx.rng)
    visit.finish(visit.step(seen, None, start))
    assert pickle.dumps(ctx.model) == before
