"""Predictions of few rows need no compiled kernels, and are those that compiled ones make."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import sklearn_anneal
from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedBayesianMixture
from sklearn_anneal.estimators import _mixture_predictions

CHECK = """
import pickle, sys
import numpy as np
with open(sys.argv[1], "rb") as file:
    cases = pickle.load(file)
for est, X, expected in cases:
    for name, value in expected.items():
        found = getattr(est, name)(X)
        if np.abs(found - value).max() > 1e-9:
            sys.exit(f"{type(est).__name__}.{name} is not what the process of the fit predicts")
        if "numba" in sys.modules:
            sys.exit(f"{type(est).__name__}.{name} imported numba")
"""
QUICK = {"max_iter": 5, "effort": 0, "random_state": 0}


def gaussian(covariance_type, missing=False):
    def make(rng):
        X = rng.standard_normal((80, 4)) + 3.0 * rng.integers(0, 3, (80, 1))
        if missing:
            X[rng.random(X.shape) < 0.3] = np.nan
            X[3] = np.nan
        est = AnnealedBayesianGaussianMixture(3, covariance_type=covariance_type, **QUICK)
        return est.fit(X), X

    return make


def columns(emission, form=np.asarray, missing=False, scale=1.0, **params):
    def make(rng):
        X = rng.integers(0, 2 if emission == "bernoulli" else 4, (80, 7)) * scale
        if missing:
            X[rng.random(X.shape) < 0.2] = np.nan
        X = form(X)
        return AnnealedBayesianMixture(3, emission=emission, **params, **QUICK).fit(X), X

    return make


def blocks(rng):
    X = np.hstack([rng.integers(0, 3, (80, 4)), rng.standard_normal((80, 3))])
    emission = [("c", "categorical", slice(0, 4)), ("g", "gaussian", slice(4, 7))]
    est = AnnealedBayesianMixture(3, emission=emission, covariance_type="full", **QUICK)
    return est.fit(X), X


MIXTURES = {
    **{kind: gaussian(kind) for kind in ("full", "tied", "diag", "spherical")},
    **{f"{kind}-missing": gaussian(kind, True) for kind in ("full", "tied", "diag")},
    "bernoulli": columns("bernoulli"),
    "bernoulli-missing": columns("bernoulli", missing=True),
    "bernoulli-sparse": columns("bernoulli", csr_matrix),
    "categorical": columns("categorical"),
    "categorical-missing": columns("categorical", missing=True),
    "poisson-sparse-missing": columns("poisson", csr_matrix, True),
    "poisson-large": columns("poisson", missing=True, scale=1e6),
    "gaussian-full-missing": columns("gaussian", missing=True, covariance_type="full"),
    "blocks": blocks,
}
METHODS = ("predict", "predict_proba", "transform", "score_samples", "score")


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_of_few_rows_predict_as_those_of_many(name, rng, monkeypatch):
    est, X = MIXTURES[name](rng)
    for method in (*METHODS, "impute"):
        if method == "impute" and "sparse" in name:
            continue
        plain = getattr(est, method)(X)
        with monkeypatch.context() as patch:
            patch.setattr(_mixture_predictions, "_MOST_PLAIN", -1)
            compiled = getattr(est, method)(X)
        np.testing.assert_allclose(plain, compiled, rtol=1e-11, atol=1e-11)


def test_a_process_that_predicts_few_rows_does_not_import_numba(rng, tmp_path):
    cases = []
    for make in MIXTURES.values():
        est, X = make(rng)
        cases.append((est, X, {name: getattr(est, name)(X) for name in METHODS}))
    path = tmp_path / "cases.pickle"
    path.write_bytes(pickle.dumps(cases))
    found = subprocess.run(
        [sys.executable, "-c", CHECK, path],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(sklearn_anneal.__file__).parents[1],
    )
    assert found.returncode == 0, found.stderr
