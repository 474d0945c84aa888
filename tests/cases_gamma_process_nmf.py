"""Helpers that the modules test_gamma_process_nmf_*.py share: data, estimators, local steps."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.sparse import csr_matrix, issparse

from sklearn_anneal import AnnealedGammaProcessNMF
from sklearn_anneal.data.units import DenseCounts, SparseCounts, cell_patterns
from sklearn_anneal.families import Tempering
from sklearn_anneal.models._count_visits import Activations, Start
from sklearn_anneal.models.gamma_process_nmf import GammaProcessNMF

FORMS = {
    "none": (1.0, 1.0, 1.0),
    "likelihood": (0.5, 0.5, 1.0),
    "posterior": (0.5, 0.5, 0.5),
    "local": (0.5, 1.0, 1.0),
    "all_different": (0.6, 0.8, 0.3),
}
"""Factors of the local step, the statistics and the prior."""

PRIORS = {"activation_prior": 0.1, "component_prior": 0.1, "concentration": 1.0}
FAST = {"annealing": "none", "max_iter": 5, "effort": 0, "random_state": 0, **PRIORS}
nmf = partial(AnnealedGammaProcessNMF, n_components=3, **FAST)


def drawn_counts(rng, n=60, n_columns=7, n_parts=3, size=4.0, missing=0.0):
    """Counts drawn from the model, as float64, of rows that are all zero in part."""
    parts = rng.gamma(0.3, 1.0 / 0.3, (n_parts, n_columns)) + 0.02
    X = rng.poisson(size * rng.gamma(0.5, 2.0, (n, n_parts)) @ parts / n_parts).astype(float)
    X[:2] = 0.0
    X[rng.random(X.shape) < missing] = np.nan
    return X


def parameters(rng, k, n_columns, rates_differ=False):
    """Random natural parameters, in the layout that fits have."""
    rate = rng.uniform(0.5, 2.0, (k, n_columns if rates_differ else 1))
    return {
        "weights_shape": rng.gamma(2.0, size=k) + 0.05,
        "weights_rate": rng.uniform(0.5, 2.0, k),
        "components_shape": np.asfortranarray(rng.gamma(0.5, size=(k, n_columns)) + 0.02),
        "components_rate": rate,
    }


def units_of(X, weights=None):
    if issparse(X):
        return SparseCounts(X.data, X.indices, X.indptr, weights)
    return DenseCounts(X, weights, cell_patterns(X))


def step_of(
    X, q, b, form=(1.0, 1.0, 1.0), *, start=None, n_sweeps=40, tol=1e-3, weights=None, noise=None,
    separate_noise=False, dtype=np.float64, block=1, momentum=False,
):  # fmt: skip
    """The completed local step of all rows, for the update of the components or of the weights."""
    units = units_of(X, weights)
    k, n_columns = q["components_shape"].shape
    model = GammaProcessNMF(
        k, n_columns, activation_prior=b, learns=("activation_prior",), sweep_tol=tol, dtype=dtype
    )
    visit = model.visit(
        q, units, Tempering(*form), block=model.blocks[block], separate_noise=separate_noise
    )
    start = None if start is None else Activations(*(np.array(part) for part in start))
    step = visit.finish(visit.step(units, noise, Start(start, n_sweeps, momentum)))
    if step.statistics.get("counts") is not None:
        for found in (step.statistics, step.deviation or {}):
            if "counts" in found:
                found["counts"] = found["counts"][:, :k].T
    return step


def sparse(X):
    return csr_matrix(np.nan_to_num(X))
