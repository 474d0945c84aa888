"""Hidden Markov models of Gaussian frames in which some cells are missing."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from cases_hidden_markov import COVARIANCE_TYPES, D, draw, small
from designs import in_turn
from harness import open_run, quick, units_of
from numpy.testing import assert_allclose
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from sklearn_anneal.annealing import ANNEALING

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

all_types = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)


def gapped(rng, lengths, share=0.3):
    """Sequences with missing cells, and with frames that are missing as a whole."""
    sequences = draw("gaussian-full", rng, lengths, {0: [2, 3]})
    for X in sequences:
        X[rng.random(X.shape) < share] = np.nan
    return sequences


@all_types
def test_bound_never_falls(covariance_type, rng):
    sequences = gapped(rng, [40, 30, 1])
    est = small(f"gaussian-{covariance_type}", 3, max_iter=25, tol=0.0).fit(sequences)
    assert np.diff(est.lower_bounds_).min() >= -1e-9 * abs(est.lower_bound_)
    assert est.lower_bounds_[-1] > est.lower_bounds_[0] + 1e-3


@all_types
def test_likelihood_is_the_sum_over_paths(covariance_type, rng):
    """Of the densities of observed cells, at the posterior means."""
    est = small(f"gaussian-{covariance_type}", predictive=False).fit(gapped(rng, [30, 30]))
    covariances = est._inference.ctx.model.emission.structure.to_full(est.covars_, D)
    covariances = np.broadcast_to(covariances, (2, D, D))
    (X,) = gapped(rng, [5])
    assert np.isnan(X).any() and not np.isnan(X).all()
    paths, marginals = [], np.zeros((5, 2))
    for path in product(range(2), repeat=5):
        log_p = np.log(est.startprob_[path[0]])
        log_p += sum(np.log(est.transmat_[i, j]) for i, j in pairwise(path))
        for x, k in zip(X, path, strict=True):
            o = ~np.isnan(x)
            if o.any():
                covariance = covariances[k][np.ix_(o, o)]
                log_p += multivariate_normal.logpdf(x[o], est.means_[k][o], covariance)
        paths.append((log_p, path))
    total = logsumexp([log_p for log_p, _ in paths])
    for log_p, path in paths:
        marginals[np.arange(5), path] += np.exp(log_p - total)
    assert est.score_sequences(X)[0] == pytest.approx(total, rel=1e-9)
    assert_allclose(est.predict_proba(X), marginals, atol=1e-9)
    log_p, path = max(paths)
    assert est.decode(X)[0] == pytest.approx(log_p, rel=1e-9)
    assert tuple(est.predict(X)) == path


@all_types
def test_log_partition_counts_observed_cells(covariance_type, rng):
    """A frame adds the volume of the cells that it has, in all states alike."""
    sequences = gapped(rng, [20, 12, 7])
    ctx, _, units = open_run(small(f"gaussian-{covariance_type}"), sequences)
    x = np.array([0.3, 0.8, 1.0])
    partition = ctx.model.unit_log_partition(x, ctx.summary, ctx.q)
    each = partition.of(units)
    total = ctx.model.log_partition(x, ctx.summary, ctx.q)
    assert_allclose(total, each.sum(axis=0), rtol=1e-9, atol=1e-9)
    covariance = np.asarray(ctx.summary.emission.covariance)
    if covariance_type == "diag":
        covariance = np.diag(covariance)
    elif covariance_type == "spherical":
        covariance = covariance.mean() * np.eye(D)
    # Without the observed cells, only the chain is left.
    chain = [np.full_like(X, np.nan) for X in sequences]
    found = each - partition.of(units_of(small().fit(sequences), chain))
    for X, volume in zip(sequences, found, strict=True):
        expected = np.zeros(len(x))
        for row in X:
            o = ~np.isnan(row)
            log_det = np.linalg.slogdet(covariance[np.ix_(o, o)])[1]
            expected += 0.5 * (1 - x) * (o.sum() * np.log(2 * np.pi) + log_det)
            expected -= 0.5 * o.sum() * np.log(x)
        assert_allclose(volume, expected, atol=1e-8)


@pytest.mark.usefixtures("few_passes_of_searches")
@in_turn(name=ANNEALING, batch_size=(2, None))
def test_every_method_takes_missing_cells(name, batch_size, rng):
    sequences = gapped(rng, [40, 30, 10])
    est = small(annealing=quick(name), batch_size=batch_size).fit(sequences)
    assert np.isfinite(est.lower_bound_) and np.isfinite(est.score(sequences))
    if name == "local_tempering":
        x = est.inverse_temperatures(sequences)
        assert ((x > 0) & (x <= 1)).all()


def test_streams_take_missing_cells(rng):
    est = small(annealing="deterministic", total_samples=20)
    for _ in range(4):
        est.partial_fit(gapped(rng, [30, 20]))
        assert np.isfinite(est.lower_bound_)
    est.partial_fit([np.array([[np.nan, 5.0], [4.0, np.nan]])])
    assert np.isfinite(est.means_).all()


def test_a_column_without_values_is_refused(rng):
    sequences = gapped(rng, [30])
    sequences[0][:, 1] = np.nan
    for call in (small().fit, small().partial_fit):
        with pytest.raises(ValueError, match="Column 1 of X has no observed value"):
            call(sequences)
