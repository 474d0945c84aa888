"""Divergences of columns of mixtures by kernels, against those of the families."""

from __future__ import annotations

import numpy as np
import pytest
from models.mixture import BLOCKS, table

from sklearn_anneal import AnnealedBayesianMixture
from sklearn_anneal.families import Factors
from sklearn_anneal.models.components.bernoulli import BernoulliComponents
from sklearn_anneal.models.components.blocks import BlockComponents
from sklearn_anneal.models.components.categorical_columns import CategoricalColumns


def categorical(rng, k, d):
    n_levels = rng.integers(1, 8, size=d)
    return CategoricalColumns(k, n_levels, [np.ones((k, n)) for n in n_levels])


def bernoulli(rng, k, d):
    return BernoulliComponents(k, d, np.ones((k, d)), np.ones((k, d)))


def blocks(rng, k, d):
    return BlockComponents({"one": categorical(rng, k, d), "other": bernoulli(rng, k, d)})


def pair(components, rng):
    """q and p with parameters of all sizes, some of which are equal, and some alike in all rows."""
    q, p = {}, {}
    for key, at_rest in components.prior({"one": None, "other": None}).items():
        shape = at_rest.shape
        q[key] = 10.0 ** rng.uniform(-8.0, 6.0, size=shape)
        p[key] = np.broadcast_to(10.0 ** rng.uniform(-8.0, 6.0, size=shape[1:]), shape).copy()
        p[key] = np.where(rng.random(shape) < 0.3, q[key], p[key])
    return q, p


@pytest.mark.parametrize("make", [categorical, bernoulli, blocks])
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("d", [1, 6])
def test_divergence_is_that_of_the_families(make, k, d, rng):
    for _ in range(20):
        components = make(rng, k, d)
        q, p = pair(components, rng)
        known = components.known(q, None)
        kl = components.kl_given(q, p, known)
        # Log-normalisers are about as large as the parameters times their logarithms.
        assert kl == pytest.approx(Factors(components.factors).kl(q, p), rel=1e-11, abs=1e-7)
        assert components.kl_given(q, q, known) == 0.0


@pytest.mark.parametrize("make", [categorical, bernoulli, blocks])
@pytest.mark.parametrize("strong", [0, 1])
def test_divergence_of_strong_distributions_is_left_to_the_families(make, strong, rng):
    """Their log-normalisers are so large that a difference of them would lose its digits."""
    components = make(rng, 3, 4)
    both = pair(components, rng)
    for value in both[strong].values():
        value *= 1e12
    q, p = both
    kl = components.kl_given(q, p, components.known(q, None))
    if isinstance(components, BlockComponents):
        assert kl == pytest.approx(Factors(components.factors).kl(q, p), rel=1e-12)
    else:
        assert kl is None


@pytest.mark.parametrize("emission", ["bernoulli", "categorical", BLOCKS])
def test_what_visits_know_changes_no_bound(emission, rng, monkeypatch):
    X = table(emission, 0.1)(rng, 80)
    settings = {"emission": emission, "effort": 0, "random_state": 0}
    found = AnnealedBayesianMixture(3, **settings).fit(X)
    for cls in (BernoulliComponents, CategoricalColumns, BlockComponents):
        monkeypatch.setattr(cls, "known", lambda self, q, before: None)
    plain = AnnealedBayesianMixture(3, **settings).fit(X)
    np.testing.assert_allclose(found.lower_bounds_, plain.lower_bounds_, rtol=1e-11)
