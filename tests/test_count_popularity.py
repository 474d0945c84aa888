"""Rates of the columns of factorised counts: ``popularity_prior`` of AnnealedGammaProcessNMF."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import plain_gamma_process_nmf as plain
import pytest
from cases_gamma_process_nmf import drawn_counts, nmf, sparse
from harness import context_of, lower_bound, units_of
from models.gamma_process_nmf import LEARNED
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import gamma

from sklearn_anneal import AnnealedGammaProcessNMF, Shards
from sklearn_anneal.models._count_popularity import Popularity

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

AUTO = {**LEARNED, "popularity_prior": "auto"}


def skewed_counts(rng, n=60, n_columns=12, missing=0.0):
    """Counts of three components whose columns are rare or popular in all of them alike."""
    scale = np.geomspace(0.05, 4.0, n_columns)
    parts = rng.gamma(0.8, 1.0 / 0.8, (3, n_columns)) * scale
    X = rng.poisson(rng.gamma(0.7, 2.0, (n, 3)) @ parts).astype(float)
    X[rng.random(X.shape) < missing] = np.nan
    return X


# Equations


def test_the_bound_has_the_rates_with_every_constant(rng):
    """E log q(w) q(η) − E log p(w | η) p(η), by expectations of the log densities."""
    X = drawn_counts(rng, missing=0.1)
    ctx = context_of(nmf(popularity_prior=1.7).fit(X))
    a, k, s = ctx.model.component_prior, ctx.model.n_components, 1.7
    shape, rate = ctx.q["components_shape"], ctx.q["components_rate"]
    log_w, w = plain.expectations(shape, rate)
    of_rates = s + k * a, (s + k * a) / ctx.model.popularity.means
    log_eta, eta = plain.expectations(*of_rates)
    p_of_w = a * (np.log(a) + log_eta) - gammaln(a) + (a - 1.0) * log_w - a * eta * w
    entropy = gamma(shape, scale=1.0 / np.broadcast_to(rate, shape.shape)).entropy().sum()
    expected = -entropy - p_of_w.sum() + plain.kl_of_gammas(*of_rates, s, s)
    weights = (ctx.q[key] for key in ("weights_shape", "weights_rate"))
    prior = (ctx.prior[key] for key in ("weights_shape", "weights_rate"))
    expected += plain.kl_of_gammas(*weights, *prior)
    assert ctx.model.kl(ctx.q, ctx.prior) == pytest.approx(expected, rel=1e-10)
    assert_array_equal(ctx.prior["components_rate"], a * ctx.model.popularity.means[None])


def test_the_terms_of_the_rates_are_an_integral(rng):
    """At the best q(η), they are log ∫ p(η) exp{E log p(w | η)} dη."""
    a, k, s, totals = 0.4, 3, 1.3, np.array([0.2, 5.0])
    found = Popularity(s, np.ones(2)).following(totals, a, k, 1.0)

    def term(total):
        def density(eta):
            return gamma(s, scale=1.0 / s).pdf(eta) * eta ** (k * a) * np.exp(-a * eta * total)

        return np.log(quad(density, 0.0, np.inf)[0])

    # What KL(q(w) ‖ Gamma(a, a E η)) has of η, and what it lacks
    of_w = k * a * np.log(found.means).sum() - a * found.means @ totals
    assert of_w - found.kl(a, k) == pytest.approx(sum(map(term, totals)), rel=1e-8)


def test_fitted_rates_and_their_learned_prior_have_the_highest_bound(rng):
    settings = {"component_prior": 3.0, "popularity_prior": "auto"}
    est = nmf(**settings, max_iter=60).fit(skewed_counts(rng))
    ctx = context_of(est)
    # Nothing else in the bound depends on them.
    least, popularity = ctx.model.kl(ctx.q, ctx.prior), ctx.model.popularity
    changes = [
        {"means": popularity.means * np.where(np.arange(12) == v, f, 1.0)}
        for v in (0, 11)
        for f in (0.8, 1.25)
    ]
    changes += [{"prior": popularity.prior * f} for f in (0.6, 1.6)]
    for change in changes:
        model = copy(ctx.model)
        model.popularity = replace(popularity, **change)
        assert model.kl(ctx.q, model._prior()) > least


def test_weak_rates_are_those_of_the_model_without_any(rng):
    X = skewed_counts(rng)
    # Without a number of sweeps, only fits without rates add passes in single precision.
    without, weak = (nmf(max_sweeps=5, popularity_prior=s).fit(X) for s in (None, 1e9))
    assert_allclose(weak.components_, without.components_, rtol=1e-5)
    assert_allclose(weak.popularities_, 1.0, rtol=1e-5)
    with pytest.raises(AttributeError, match="with popularity_prior='auto' or a number, and this"):
        _ = without.popularities_
    assert not hasattr(weak.set_params(popularity_prior=None).fit(X), "popularities_")


# Fits


def test_popular_columns_have_high_popularities(rng):
    """Where entries of components are alike, columns differ by their rates alone."""
    X, settings = skewed_counts(rng, n=100, n_columns=20), {"max_iter": 100, "component_prior": 3.0}
    est, without = nmf(popularity_prior="auto", **settings).fit(X), nmf(**settings).fit(X)
    assert est.lower_bound_ > without.lower_bound_ + 30.0
    assert 0.15 < est.popularity_prior_ < 0.8
    assert est.popularities_[:6].max() < 0.5 < 1.5 < est.popularities_[-3:].min()
    totals = (est.components_ / est.component_weights_[:, None]).sum(axis=0)
    assert_array_equal(np.argsort(est.popularities_), np.argsort(totals))


def test_dense_sparse_parts_single_precision_and_weights(rng):
    X = skewed_counts(rng)
    est = nmf(**AUTO, max_iter=40).fit(X)
    for other in (
        nmf(**AUTO, max_iter=40).fit(sparse(X)),
        nmf(**AUTO, max_iter=40).fit(Shards([X])),
        nmf(**AUTO, max_iter=40).fit(np.vstack([X, X]), sample_weight=np.repeat([1.0, 0.0], 60)),
    ):
        assert_allclose(other.popularities_, est.popularities_, rtol=1e-6)
        assert other.popularity_prior_ == pytest.approx(est.popularity_prior_, rel=1e-6)
    single = nmf(**AUTO, max_iter=40).fit(X.astype(np.float32))
    assert_allclose(single.popularities_, est.popularities_, rtol=1e-2)


def test_streams_follow_the_components(rng):
    X = skewed_counts(rng, n=120)
    est = nmf(popularity_prior=1.0)
    for _ in range(20):
        for batch in np.split(X, 4):
            est.partial_fit(batch)
    assert est.popularities_[:6].max() < 0.9 < 1.5 < est.popularities_[-1]


def test_moves_and_noise_go_with_rates(rng):
    X = skewed_counts(rng, missing=0.1)
    settings = {"n_components": 5, "max_iter": 20, "effort": 2, "annealing": "reheating"}
    est = AnnealedGammaProcessNMF(
        **settings, popularity_prior="auto", dispersion=0.2, random_state=0
    ).fit(X)
    assert len(est.search_results_["move"]) > 0
    found = lower_bound(context_of(est), units_of(est, X))
    assert found == pytest.approx(est.lower_bound_, rel=1e-4)


def test_reordered_components_leave_the_rates(rng):
    est = nmf(popularity_prior=1.0).fit(skewed_counts(rng))
    before = est.popularities_
    est.reorder([2, 0, 1])
    assert_array_equal(est.popularities_, before)


def test_files_have_the_rates(rng, tmp_path):
    """As values of no private class, which the reader of a file would not know."""
    io = pytest.importorskip("skops.io")
    X, path = skewed_counts(rng), tmp_path / "estimator.skops"
    est = nmf(popularity_prior=1.0).fit(X)
    io.dump(est, path)
    names = io.get_untrusted_types(file=path)
    assert not [name for name in names if "models" in name]
    again = io.load(path, trusted=names)
    assert_array_equal(again.popularities_, est.popularities_)
    assert again.partial_fit(X).popularities_.tolist() == est.partial_fit(X).popularities_.tolist()


@pytest.mark.parametrize("value", [0.0, -1.0, "popular", np.inf])
def test_bad_priors_are_refused(value, rng):
    with pytest.raises(ValueError, match="popularity_prior"):
        nmf(popularity_prior=value).fit(drawn_counts(rng))
