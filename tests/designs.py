"""Designs of experiments in the place of full products of parameters.

Combinations that a design leaves out are marked as exhaustive. ``pairwise`` and ``in_turn``
parametrize a test by its factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(**factors: Iterable[Any]) -> pytest.MarkDecorator:
    """Let every two values of two factors meet at least once."""
    cases = list(product(*factors.values()))
    indices = list(product(*(range(len(list(values))) for values in factors.values())))
    pairs = [set(combinations(enumerate(index), 2)) for index in indices]
    left, chosen = set().union(*pairs), set()
    while left:
        best = max(range(len(cases)), key=lambda i: len(pairs[i] & left))
        chosen.add(best)
        left -= pairs[best]
    return _parametrized(factors, cases, chosen)


def in_turn(**factors: Iterable[Any]) -> pytest.MarkDecorator:
    """Let every value of each factor occur, in as few tests as the longest factor has values."""
    cases = list(product(*factors.values()))
    values = [list(each) for each in factors.values()]
    chosen = set()
    for i in range(max(map(len, values))):
        place = 0
        for each in values:
            place = place * len(each) + i % len(each)
        chosen.add(place)
    return _parametrized(factors, cases, chosen)


def each_once(cases: list[Any], *factors: Callable[..., Any]) -> list[Any]:
    """Let every value of each factor occur, in few of the cases.

    ``cases`` are arguments of ``pytest.mark.parametrize``, and each of ``factors`` is a function of
    the values of a case.
    """
    values = [[factor(*case.values) for factor in factors] for case in cases]
    left = {pair for each in values for pair in enumerate(each)}
    chosen: set[int] = set()
    while left:
        best = max(range(len(cases)), key=lambda i: len(left.intersection(enumerate(values[i]))))
        chosen.add(best)
        left -= set(enumerate(values[best]))
    return [
        case
        if i in chosen
        else pytest.param(*case.values, marks=pytest.mark.exhaustive, id=case.id)
        for i, case in enumerate(cases)
    ]


def each_value_of_each_class(pairs: list[Any]) -> list[Any]:
    """Let each class have each value of each of its parameters, and each entry occur.

    ``pairs`` are entries with parameters, and other pairs are exhaustive. This suffices where the
    entries of a class share the code.
    """
    names = sorted({name for pair in pairs for name in pair.values[1]})
    classes = {entry.name: type(entry.make()) for entry, _ in (pair.values for pair in pairs)}
    return each_once(
        pairs,
        lambda entry, params: entry.name,
        *(
            lambda entry, params, name=name: (classes[entry.name], repr(params.get(name)))
            for name in names
        ),
    )


def _parametrized(
    factors: dict[str, Any], cases: list[tuple[Any, ...]], chosen: set[int]
) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        tuple(factors),
        [
            pytest.param(*case, marks=() if i in chosen else pytest.mark.exhaustive)
            for i, case in enumerate(cases)
        ],
    )
