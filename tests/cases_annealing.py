"""Helpers that the modules test_annealing_*.py share: a small model and ways to run it."""

from __future__ import annotations

import pytest
from harness import open_run
from models import gaussian_mixture

from sklearn_anneal.annealing import Context

(MIXTURE,) = gaussian_mixture.ENTRIES

VARIANTS = [
    pytest.param(params, marks=pytest.mark.exhaustive if name in MIXTURE.seldom else (), id=name)
    for name, params in MIXTURE.variants.items()
]


def mixture(method="none", **params):
    """A mixture whose annealed fit is neither searched from nor compared with plain inference."""
    return MIXTURE.make(annealing=method, **{"effort": 0} | params)


def run(method, X, **params):
    return open_run(mixture(method, **params), X)


def bare_context(rng, passes=0.0):
    ctx = Context(model=None, prior={}, summary=None, rng=rng, q={})
    ctx.state["passes"] = passes
    return ctx


def with_defaults(method):
    return method.resolve({})
