"""EM and factorisation by other libraries, with the smoothing that makes their predictions fair.

The estimates of maximum likelihood have probabilities of exactly zero, by which one unseen category
in one held-out row makes the density of all of them zero. One pseudo-count for each probability is
therefore added before held-out data are scored.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import gammaln, logsumexp
from sklearn.decomposition import NMF

from sklearn_anneal.metrics import split_documents

from .data import Sequences
from .settings import MAX_ITER, TOL

# Shares of the mean of a column that are added to rates, which would be zero in places otherwise;
# the best is chosen.
_FLOORS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
# The iterations after which the factorisation is stopped early; the best is chosen.
_STOPS = (5, 20, 50, 200)


def smoothed(probabilities: np.ndarray, counts: Any) -> np.ndarray:
    """Probabilities along the last axis with one pseudo-count each, given the counts behind them.

    Parameters
    ----------
    probabilities : ndarray of shape (..., n)
    counts : float or ndarray of shape (..., 1)
        The expected number of observations from which each distribution was estimated.
    """
    return (counts * probabilities + 1.0) / (counts + probabilities.shape[-1])


def measurement(X: np.ndarray, emission: str) -> str:
    """StepMix's name of the emission, which differs if cells are missing."""
    name = {"bernoulli": "binary", "categorical": "categorical"}[emission]
    return f"{name}_nan" if (X < 0).any() else name


def cells_of_peer(X: np.ndarray) -> np.ndarray:
    """The table in the form that StepMix reads, with NaN for missing cells."""
    return np.where(X < 0, np.nan, X.astype(float)) if (X < 0).any() else X.astype(float)


def fitted_stepmix(
    train: np.ndarray, emission: str, n_components: int, seed: int, n_init: int
) -> Any:
    """StepMix's mixture, fitted to binary columns or categories, with −1 for missing cells."""
    from stepmix import StepMix

    fitted = StepMix(
        n_components,
        measurement=measurement(train, emission),
        n_init=n_init,
        random_state=seed,
        abs_tol=TOL,
        max_iter=MAX_ITER,
        progress_bar=0,
    )
    with warnings.catch_warnings(action="ignore"):
        return fitted.fit(cells_of_peer(train))


def stepmix_density(
    train: np.ndarray, test: np.ndarray, emission: str, n_components: int, seed: int, n_init: int
) -> tuple[np.ndarray, int]:
    """Log densities of held-out rows under StepMix's smoothed fit, and its iterations.

    Parameters
    ----------
    train, test : ndarray of shape (n_rows, n_columns)
        Binary columns or categories; −1 where a cell is missing.
    emission : {"bernoulli", "categorical"}
    n_components, seed, n_init : int
    """
    fitted = fitted_stepmix(train, emission, n_components, seed, n_init)
    return smoothed_density(fitted, train, test, emission), int(fitted.n_iter_)


def smoothed_density(fitted: Any, train: np.ndarray, test: np.ndarray, emission: str) -> np.ndarray:
    """Log densities of held-out rows under a mixture of StepMix, whose shares are smoothed."""
    counts = len(train) * fitted.weights_
    joint = np.log(smoothed(fitted.weights_, len(train))) + np.zeros((len(test), 1))
    table = fitted.get_parameters()["measurement"]["pis"]
    n_components, n_columns = len(counts), train.shape[1]
    if emission == "bernoulli":
        each = np.stack([1.0 - table, table], axis=-1)
    else:
        each = table.reshape(n_components, n_columns, -1)
    # Levels of a column are those that either part has, as for our estimator.
    levels = np.maximum(train.max(axis=0), test.max(axis=0)).astype(int) + 1
    for column in range(n_columns):
        known = np.zeros((n_components, levels[column] if emission != "bernoulli" else 2))
        n = min(known.shape[1], each.shape[2])
        known[:, :n] = each[:, column, :n]
        logs = np.log(smoothed(known, counts[:, None]))
        there = test[:, column] >= 0
        joint[there] += logs[:, test[there, column].astype(int)].T
    return logsumexp(joint, axis=1)


def fitted_hmm(train: Sequences, model: dict[str, Any], seed: int, n_init: int) -> Any:
    """The best of several starts of hmmlearn's EM, with smoothed probabilities.

    Raises
    ------
    NotImplementedError
        If hmmlearn does not have the emission.
    """
    from hmmlearn import hmm

    gaussian = model["emission"] == "gaussian"
    if model["emission"] not in ("gaussian", "categorical"):
        raise NotImplementedError(f"hmmlearn has no EM for {model['emission']!r}.")
    settings = {"n_iter": MAX_ITER, "tol": TOL * len(train.X)}
    kind = hmm.GaussianHMM if gaussian else hmm.CategoricalHMM
    if gaussian:
        settings["covariance_type"] = model.get("covariance_type", "full")
    else:
        settings["n_features"] = model["n_symbols"]
    fits = []
    for restart in range(n_init):
        fitted = kind(model["n_components"], random_state=n_init * seed + restart, **settings)
        fits.append(fitted.fit(train.X, train.lengths))
    best = max(fits, key=lambda fit: np.nan_to_num(fit.monitor_.history[-1], nan=-np.inf))
    occupied = best.predict_proba(train.X, train.lengths).sum(axis=0)[:, None]
    best.startprob_ = smoothed(best.startprob_, len(train))
    best.transmat_ = smoothed(best.transmat_, occupied)
    if not gaussian:
        best.emissionprob_ = smoothed(best.emissionprob_, occupied)
    return best


def hmm_density(
    train: Sequences, test: Sequences, model: dict[str, Any], seed: int, n_init: int
) -> tuple[float, int]:
    """Log density per held-out frame under hmmlearn's smoothed EM, and its iterations."""
    best = fitted_hmm(train, model, seed, n_init)
    return best.score(test.X, test.lengths) / len(test.X), best.monitor_.iter


def kl_nmf(k: int, seed: int) -> NMF:
    """scikit-learn's factorisation with the Kullback-Leibler loss, from a random start."""
    return NMF(
        k,
        solver="mu",
        beta_loss="kullback-leibler",
        init="random",
        max_iter=200,
        random_state=seed,
    )


def rates_of(model: Any, floor: np.ndarray) -> Any:
    """A function that returns the rates of the other half of rows, given one half."""
    return lambda half: model.transform(half.astype(np.float64)) @ model.components_ + floor


def log_predictive(X: Any, rates: Any) -> float:
    """Mean log probability of the cells of one half of each row given the other half."""
    observed, held_out = split_documents(csr_matrix(X))
    expected = np.asarray(rates(observed))
    counts = held_out.toarray()
    logs = np.log(np.maximum(expected, 1e-300))
    return float((counts * logs - expected - gammaln(counts + 1.0)).mean())


def nmf_score(train: np.ndarray, test: np.ndarray, n_components: int, seed: int) -> float:
    """The log probability per held-out cell by scikit-learn's factorisation of counts.

    When it stops, and which share of the mean of a column is added to the rates, are chosen on a
    fifth of the training rows.
    """
    order = np.random.default_rng(seed).permutation(len(train))
    chosen, rest = np.split(order, [len(order) // 5])
    column = train.mean(axis=0) / 2.0

    def fitted(rows: np.ndarray, stop: int) -> Any:
        model = kl_nmf(n_components, seed).set_params(max_iter=stop, tol=0.0)
        with warnings.catch_warnings(action="ignore"):
            return model.fit(rows.astype(np.float64))

    scores = {
        (stop, floor): log_predictive(train[chosen], rates_of(model, floor * column))
        for stop in _STOPS
        for model in [fitted(train[rest], stop)]
        for floor in _FLOORS
    }
    stop, floor = max(scores, key=lambda pair: scores[pair])
    return log_predictive(test, rates_of(fitted(train, stop), floor * column))
