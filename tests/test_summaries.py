"""Summaries of data: those of parts can be merged in any order, and nothing adds nothing."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import reduce

import numpy as np
import pytest
from cases_parts import WHOLE_ROWS, cut, together, unobserved
from harness import alternating, forms, model_and_units, variants
from models import TRAINED_BY_GRADIENTS

from sklearn_anneal.models._base import merged

ENDS = [7, 13, 16, 25]
EVERY_FORM = [
    *variants(heuristics=True),
    *(
        pytest.param(entry, params, id=f"{entry.name}-{name}")
        for entry in TRAINED_BY_GRADIENTS
        for name, params in entry.variants.items()
    ),
]
WITH_MISSING_CELLS = [pair for pair in forms() if pair.values[0].name not in WHOLE_ROWS]


def numbers_of(value, name=""):
    """All numbers of a summary, by name. Patterns of missing cells come in a fixed order."""
    if value is None:
        return {}
    if is_dataclass(value):
        parts = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
    elif hasattr(value, "_asdict"):
        parts = value._asdict()
        if "patterns" in parts:
            order = np.lexsort(parts["patterns"].T)
            for key in ("patterns", "weights"):
                parts[key] = parts[key][order]
    elif isinstance(value, dict):
        parts = value
    else:
        return {name: np.asarray(value, dtype=float)}
    return {
        k: v for key, part in parts.items() for k, v in numbers_of(part, f"{name}.{key}").items()
    }


def assert_equal(found, expected, but=()):
    """Check that summaries are equal up to rounding, apart from the given attributes."""
    one, other = numbers_of(found), numbers_of(expected)
    assert one.keys() == other.keys()
    for name, value in other.items():
        if not name.endswith(but):
            # Deviations from the mean add up to zero where all rows have both columns.
            least = 1e-11 if name.endswith("first") else 0.0
            atol = max(1e-11 * np.abs(np.nan_to_num(value)).max(initial=0.0), least)
            np.testing.assert_allclose(one[name], value, 1e-11, atol, err_msg=name)


def summaries(entry, params, parts, weights=None):
    """The summaries of parts of the data, and that of all of them, computed in one go."""
    model, units = model_and_units(entry.make(**params), together(parts), weights)
    # As of parts of which any has missing cells.
    if getattr(units, "patterns", None) is not None:
        units = units.marked()
    ends = np.cumsum([len(part) if isinstance(part, list) else part.shape[0] for part in parts])
    pieces = [units.take(slice(a, b)) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    return [model.summary(piece) for piece in pieces], model.summary(units)


def sums(parts):
    """The sum of summaries from the left, from the right, and along a tree."""
    yield reduce(merged, parts)
    yield reduce(lambda b, a: merged(a, b), reversed(parts))
    level = list(parts)
    while len(level) > 1:
        level = [reduce(merged, level[i : i + 2]) for i in range(0, len(level), 2)]
    yield level[0]


def merged_in_all_ways(*how):
    """The sum of the summaries of parts, which is that of all data, and the summaries."""
    found, whole = summaries(*how)
    first, *others = sums(found)
    for other in others:
        assert_equal(other, first)
    # The center, where there is one, is that of the first part.
    assert_equal(first, whole, but=("center",))
    return first, found


@pytest.mark.parametrize(("entry", "params"), EVERY_FORM)
def test_merging_is_associative_and_gives_the_summary_of_all(entry, params, rng):
    for weights in (None, rng.integers(3, size=40).astype(float)):
        merged_in_all_ways(entry, params, cut(entry.data(rng, 40), ENDS), weights)


@pytest.mark.parametrize(
    ("entry", "params", "columns"), alternating(WITH_MISSING_CELLS, (slice(None), 0))
)
def test_data_without_observations_add_their_weight_alone(entry, params, columns, rng):
    """Whether all columns are missing in a part, or the first one."""
    X = cut(entry.data(rng, 40), ENDS)
    empty = unobserved(X[0], columns)
    for places in ([0], [5], [0, 0, 3]):
        parts = list(X)
        for place in places:
            parts.insert(place, empty)
        first, found = merged_in_all_ways(entry, params, parts)
        # The center is that of a part that has one, in every column.
        for name, center in numbers_of(first).items():
            if name.endswith("center"):
                each = [numbers_of(one)[name] for one in found if name in numbers_of(one)]
                known = next(one for one in each if not np.isnan(one[-1]))
                assert np.isfinite(center).all()
                assert center[-1] == known[-1]


@pytest.mark.parametrize(("entry", "params"), EVERY_FORM)
def test_no_summary_is_the_unit(entry, params, rng):
    """None stands for parts of weight zero."""
    (summary,), whole = summaries(entry, params, [entry.data(rng, 20)])
    assert merged(None, summary) is summary
    assert merged(summary, None) is summary
    assert merged(None, None) is None
    assert_equal(summary, whole)
