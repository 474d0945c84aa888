"""Data in parts for tests: divisions of any data, and what to compare fits to them with."""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import pytest
from harness import crossed, fitted_state
from models import TRAINED_BY_GRADIENTS
from scipy.sparse import csr_matrix, issparse, vstack

from sklearn_anneal.annealing import Annealing
from sklearn_anneal.models import gamma_process_nmf

# Parameters of single data points, which are attributes of a fit to data in memory only.
OF_UNITS = ("n_users_", "user_", "users", "activations_")


def cut(X: Any, ends: Any) -> list[Any]:
    """Divide data before the given positions; they can be an array or a list."""
    edges = [0, *ends, len(X) if isinstance(X, list) else X.shape[0]]
    return [X[a:b] for a, b in zip(edges[:-1], edges[1:], strict=True)]


def uneven(X: Any, n_parts: int) -> list[Any]:
    """Divide data into parts of different sizes; from five parts on, one of them is empty."""
    n = len(X) if isinstance(X, list) else X.shape[0]
    ends = np.round(n * (np.arange(1, n_parts) / n_parts) ** 1.5).astype(int)
    if n_parts >= 5:
        ends[2] = ends[1]
    return cut(X, ends)


# Estimators that refuse missing cells, in one column at least.
WHOLE_ROWS = ("factorial_mixture", "geometric_mixture", "sigmoid_belief_net", "mixture_covariates")


def unobserved(X: Any, columns: Any = slice(None)) -> Any:
    """The same units without any observation in some columns: NaN, or no entry of sparse rows."""
    if isinstance(X, list):
        return type(X)(unobserved(sequence, columns) for sequence in X)
    if issparse(X):
        kept = np.ones(X.shape[1], dtype=X.dtype)
        kept[columns] = 0
        return csr_matrix(X.multiply(kept))
    X = X.astype(float)
    X[:, columns] = np.nan
    return X


def together(parts: list[Any]) -> Any:
    """The units of several parts in one."""
    if isinstance(parts[0], list):
        return type(parts[0])(unit for part in parts for unit in part)
    return vstack(parts, format="csr") if issparse(parts[0]) else np.concatenate(parts)


def gradients() -> list[Any]:
    """The models that are trained by gradients × the methods that work."""
    return crossed(
        [
            pytest.param(entry, params, id=f"{entry.name}-{name}")
            for entry in TRAINED_BY_GRADIENTS
            for name, params in entry.variants.items()
        ]
    )


def without_further_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no model add passes to those of the loop, as it adds none to data in parts.

    The loop makes those that explore itself, as it does for parts.
    """
    for name in ("further_passes", "exploring_passes"):
        monkeypatch.setattr(gamma_process_nmf, name, lambda *_: None)


def without_unit_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fits to data in memory have local variables in the place of parameters of data points."""
    monkeypatch.setattr(Annealing, "holds_units", False)


def assert_same_fit(in_parts: Any, whole: Any) -> None:
    """Check that fits are equal bit for bit, apart from parameters of single data points."""
    one, other = fitted_state(in_parts), fitted_state(whole)
    assert {name for name in one if not name.startswith(OF_UNITS)} == {
        name for name in other if not name.startswith(OF_UNITS)
    }
    for name, value in one.items():
        if not name.startswith(OF_UNITS):
            np.testing.assert_array_equal(np.asarray(value), np.asarray(other[name]), err_msg=name)


def assert_close_fit(in_parts: Any, whole: Any) -> None:
    """Check that fits are equal up to rounding, apart from parameters of single data points."""
    np.testing.assert_allclose(in_parts.lower_bounds_, whole.lower_bounds_, rtol=1e-9)
    # Natural parameters have an origin of their own in each fit, but attributes have not.
    one, other = fitted_state(in_parts), fitted_state(whole)
    for name, value in one.items():
        if not name.startswith((*OF_UNITS, "q: ", "state", "annealing_")):
            expected = np.asarray(other[name])
            if expected.dtype.kind == "f":
                atol = 1e-7 * np.abs(expected).max(initial=0.0)
                np.testing.assert_allclose(value, expected, 1e-7, atol, err_msg=name)


def folders() -> set[str]:
    """The folders with local variables of parts in files, which fits make and remove."""
    return {path.name for path in Path(gettempdir()).glob("sklearn_anneal-*")}


class Counted:
    """A part that is a function, and counts how often it is read."""

    def __init__(self, X: Any, fails_at: int = 0, error: Any = None):
        self.X, self.n_calls, self.fails_at, self.error = X, 0, fails_at, error

    def __call__(self) -> Any:
        self.n_calls += 1
        if self.n_calls == self.fails_at:
            raise self.error
        return self.X
