"""Random cases. A case is a function of a seed and a number, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from numbers import Integral
from typing import Any

import numpy as np
from harness import quick
from models import ENTRIES, TRAINED_BY_GRADIENTS, Entry
from scipy import sparse
from sklearn.utils._param_validation import StrOptions

from fuzzing.forms import forms_of, values_of
from sklearn_anneal.annealing import ANNEALING

# The worked example of the page for developers is no part of the package.
OF_THE_PACKAGE = [
    entry
    for entry in (*ENTRIES, *TRAINED_BY_GRADIENTS)
    if type(entry.make()).__module__.startswith("sklearn_anneal.")
]
KINDS = {"fit": 0.45, "stream": 0.18, "parts": 0.15, "refusal": 0.22}


@dataclass
class Case:
    """A case before anything is fitted.

    Attributes
    ----------
    seed, number : int
    kind : str
        What is done: one of ``KINDS``.
    entry : Entry
    method : str
        Name of the annealing method.
    params : dict
        Parameters for ``entry.make``.
    X : array, CSR matrix or list
        The data in the form of the entry.
    form : str
        The form in which they are given.
    weights : ndarray or None
        A weight for each unit.
    odd : list of str
        What makes the data, the weights or the parameters unusual, so that they may be refused.
    rng : Generator
        For what is drawn later.
    """

    seed: int
    number: int
    kind: str
    entry: Entry
    method: str
    params: dict[str, Any]
    X: Any = None
    form: str = ""
    weights: np.ndarray | None = None
    odd: list[str] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=np.random.default_rng)

    def make(self, **params: Any) -> Any:
        return self.entry.make(**{**self.params, **params})

    @property
    def in_batches(self) -> bool:
        return self.params.get("batch_size") is not None

    @property
    def is_refused(self) -> bool:
        """Whether the estimator and the method cannot be combined."""
        return self.method in self.entry.refused(self.params)

    def described(self) -> dict[str, Any]:
        """The case in words, for records."""
        names = {key: repr(value) for key, value in sorted(self.params.items())}
        return {
            "kind": self.kind,
            "model": self.entry.name,
            "annealing": self.method,
            "form": self.form,
            "shape": list(values_of(self.X).shape),
            "odd": self.odd,
            "params": names,
        }


def kind_of(estimator: Any, X: Any) -> str:
    """What the cells are: "real", "counts", "binary", "categories" or "mixed"."""
    emission = getattr(estimator, "emission", None)
    if isinstance(emission, list):
        return "mixed"
    named = {"gaussian": "real", "bernoulli": "binary"}
    named |= dict.fromkeys(("poisson", "negative_binomial", "zero_inflated_poisson"), "counts")
    if emission is not None:
        return named.get(emission, "categories")
    values = values_of(X)
    values = values[np.isfinite(values)]
    if (values != np.round(values)).any() or (values < 0).any():
        return "real"
    return "binary" if values.max(initial=0.0) <= 1.0 else "counts"


# Parameters


def _chance(rng: np.random.Generator, p: float) -> bool:
    return bool(rng.random() < p)


def _pick(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def _has_arrays(params: dict[str, Any]) -> bool:
    return any(np.ndim(value) > 0 for value in params.values() if not isinstance(value, str))


def _method(rng: np.random.Generator, name: str, odd: list[str]) -> Any:
    """The method with few passes, or by its name; sometimes with other settings of its own."""
    # By its name structured inference makes hundreds of passes.
    if _chance(rng, 0.1) and name != "structured":
        return name
    method = quick(name, int(rng.integers(1, 6)))
    if _chance(rng, 0.7):
        return method
    for key, constraints in type(method)._parameter_constraints.items():
        options = sorted(o for c in constraints if isinstance(c, StrOptions) for o in c.options)
        if len(options) > 1 and _chance(rng, 0.3):
            method.set_params(**{key: _pick(rng, options)})
            odd.append(f"annealing__{key}")
    return method


def _searches(rng: np.random.Generator, known: set[str], name: str) -> dict[str, Any]:
    params: dict[str, Any] = {}
    if _chance(rng, 0.25):
        params["n_init"] = int(rng.integers(2, 4))
        if name != "structured" and _chance(rng, 0.3):
            params["restarts"] = "race"
    if name not in ("none", "structured") and _chance(rng, 0.3):
        params["effort"] = _pick(rng, ["auto", 0.5, 2])
    elif _chance(rng, 0.8):
        params["effort"] = 0
    return {key: value for key, value in params.items() if key in known}


def _others(rng: np.random.Generator, estimator: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Other options of the estimator's own, each with a small probability."""
    found: dict[str, Any] = {}
    if _chance(rng, 0.7):
        return found
    fixed = {"emission", "annealing", "input", "restarts", "effort", *params}
    for key, constraints in sorted(type(estimator)._parameter_constraints.items()):
        if key in fixed or not isinstance(constraints, list):
            continue
        options = sorted(o for c in constraints if isinstance(c, StrOptions) for o in c.options)
        if options and _chance(rng, 0.15):
            found[key] = _pick(rng, options)
    return found


@cache
def _defaults(cls: type) -> dict[str, Any]:
    return cls().get_params(deep=False)


def _parameters(
    rng: np.random.Generator, entry: Entry, name: str, n_units: int, odd: list[str]
) -> dict[str, Any]:
    variants = {**entry.variants, **entry.heuristics}
    params = dict(variants[_pick(rng, sorted(variants))])
    estimator = entry.make(**params)
    known = set(estimator.get_params(deep=False))
    if "n_components" in known and not _has_arrays(params):
        params["n_components"] = int(rng.integers(1, 6))
    params["max_iter"] = int(rng.integers(1, 16)) if _chance(rng, 0.95) else 0
    params["tol"] = _pick(rng, [0.0, 1e-6, 1e-2])
    params["random_state"] = int(rng.integers(1000))
    params |= _searches(rng, known, name)
    if "reg_covar" in known and _chance(rng, 0.4):
        params["reg_covar"] = 1e-6
    if _chance(rng, 0.3):
        # The learned priors that users have by default, in the place of fixed ones.
        priors = {k: v for k, v in _defaults(type(estimator)).items() if v in ("auto", "scaled")}
        given = {*params, "n_components", "annealing", "effort", "init_params", "batch_size"}
        given |= {"local_step", "learning_method"}
        params |= {k: v for k, v in priors.items() if k not in given}
    if _chance(rng, 0.25):
        params |= entry.in_batches(int(rng.integers(2, max(3, n_units))))
    others = _others(rng, estimator, params)
    odd += [f"{key}={value}" for key, value in others.items()]
    params |= others
    params["annealing"] = _method(rng, name, odd)
    return params


# What makes data unusual. Every function changes an array of cells in place or returns another.


def _cells_missing(rng: np.random.Generator, V: np.ndarray, kind: str) -> np.ndarray:
    gone = rng.random(V.shape) < rng.uniform(0.05, 0.7)
    return np.where(gone, -1.0 if kind == "categories" else np.nan, V)


def _row_missing(rng: np.random.Generator, V: np.ndarray, kind: str) -> np.ndarray:
    V[rng.integers(len(V))] = -1.0 if kind == "categories" else np.nan
    return V


def _column_missing(rng: np.random.Generator, V: np.ndarray, kind: str) -> np.ndarray:
    V[:, rng.integers(V.shape[1])] = -1.0 if kind == "categories" else np.nan
    return V


def _constant_column(rng: np.random.Generator, V: np.ndarray, kind: str) -> np.ndarray:
    j = rng.integers(V.shape[1])
    V[:, j] = np.where(np.isnan(V[:, j]), np.nan, _pick(rng, [0.0, 1.0]))
    return V


def _all_constant(rng: np.random.Generator, V: np.ndarray, kind: str) -> np.ndarray:
    return np.where(np.isnan(V), np.nan, _pick(rng, [0.0, 1.0]))


def _empty_rows(rng: np.random.Generator, V: np.ndarray, kind: str) -> np.ndarray:
    V[rng.random(len(V)) < 0.3] = 0.0
    return V


def _equal_columns(rng: np.random.Generator, V: np.ndarray, kind: str) -> np.ndarray:
    V[:, -1] = V[:, 0]
    return V


def _large_counts(rng: np.random.Generator, V: np.ndarray, kind: str) -> np.ndarray:
    return np.round(V * 10.0 ** rng.uniform(1, 15))


def _fractions(rng: np.random.Generator, V: np.ndarray, kind: str) -> np.ndarray:
    return V * 10.0 ** rng.uniform(-3, 1)


def _scaled(rng: np.random.Generator, V: np.ndarray, kind: str) -> np.ndarray:
    return V * 10.0 ** rng.uniform(-6, 6)


def _scaled_columns(rng: np.random.Generator, V: np.ndarray, kind: str) -> np.ndarray:
    return V * 10.0 ** rng.uniform(-6, 6, size=V.shape[1])


def _far_scaled(rng: np.random.Generator, V: np.ndarray, kind: str) -> np.ndarray:
    return V * 10.0 ** (rng.uniform(20, 300) * _pick(rng, [-1, 1]))


def _offset(rng: np.random.Generator, V: np.ndarray, kind: str) -> np.ndarray:
    return V + 10.0 ** rng.uniform(1, 9)


def _outlier(rng: np.random.Generator, V: np.ndarray, kind: str) -> np.ndarray:
    V[rng.integers(len(V)), rng.integers(V.shape[1])] = 10.0 ** rng.uniform(2, 9) // 1.0
    return V


ODD: dict[str, tuple[tuple[str, ...], Callable[..., np.ndarray]]] = {
    "missing cells": (("real", "counts", "binary", "categories", "mixed"), _cells_missing),
    "missing row": (("real", "counts", "binary", "categories", "mixed"), _row_missing),
    "missing column": (("real", "counts", "binary", "categories", "mixed"), _column_missing),
    "constant column": (("real", "counts", "binary", "categories", "mixed"), _constant_column),
    "all constant": (("real", "counts", "binary", "categories", "mixed"), _all_constant),
    "empty rows": (("real", "counts", "binary", "mixed"), _empty_rows),
    "equal columns": (("real", "counts", "binary"), _equal_columns),
    "large counts": (("counts",), _large_counts),
    "fractions": (("counts",), _fractions),
    "scaled": (("real",), _scaled),
    "scaled columns": (("real",), _scaled_columns),
    "far scaled": (("real", "counts"), _far_scaled),
    "offset": (("real",), _offset),
    "outlier": (("real", "counts"), _outlier),
}
# What happens to whole units, whatever they consist of.
OF_UNITS = ("few units", "duplicates", "one distinct unit")


def _changed(X: Any, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    """Apply a function of an array of cells to data of any form."""
    if isinstance(X, list):
        ends = np.cumsum([len(sequence) for sequence in X])[:-1]
        return type(X)(np.split(change(np.concatenate(X)), ends))
    if sparse.issparse(X):
        return sparse.csr_matrix(np.nan_to_num(change(X.toarray().astype(float))))
    return change(np.array(X, dtype=float))


def _units_changed(rng: np.random.Generator, entry: Entry, X: Any, name: str, n: int) -> Any:
    if name == "few units":
        return entry.repeat(X, (np.arange(n) < int(rng.integers(1, 4))).astype(int))
    n_distinct = 1 if name == "one distinct unit" else int(rng.integers(1, 4))
    return entry.repeat(X, np.bincount(rng.integers(min(n_distinct, n), size=n), minlength=n))


def _data(rng: np.random.Generator, entry: Entry, case: Case, n: int) -> Any:
    estimator = entry.make(**case.params)
    X = entry.data(rng, n)
    kind = kind_of(estimator, X)
    # Parameters with one entry per column fix the number of columns.
    if not isinstance(X, list) and kind != "mixed" and not _has_arrays(case.params):
        n_columns = X.shape[1]
        if n_columns > 1 and _chance(rng, 0.4):
            kept = np.sort(rng.permutation(n_columns)[: int(rng.integers(1, n_columns + 1))])
            X = X[:, kept]
            if len(kept) < min(3, n_columns):
                case.odd.append("few columns")
    n_odd = int(rng.choice(3, p=[0.52, 0.32, 0.16]))
    for _ in range(n_odd):
        names = [name for name, (kinds, _) in ODD.items() if kind in kinds]
        name = _pick(rng, [*names, *OF_UNITS])
        case.odd.append(name)
        if name in OF_UNITS:
            X = _units_changed(rng, entry, X, name, n_units(X))
        else:
            change = ODD[name][1]
            with np.errstate(over="ignore", under="ignore"):
                X = _changed(X, lambda V, change=change: change(rng, V, kind))
    if case.params.get("local_step") == "gibbs" or (
        case.method == "structured" and hasattr(estimator, "doc_topic_prior")
    ):
        # Samplers take time for every token.
        X = _changed(X, lambda V: np.minimum(V, 1e4))
    return X


def n_units(X: Any) -> int:
    return len(X) if isinstance(X, list) else int(X.shape[0])


def _weights(rng: np.random.Generator, n: int, odd: list[str]) -> np.ndarray | None:
    kind = rng.random()
    if kind < 0.5:
        return None
    if kind < 0.6:
        return np.ones(n)
    if kind < 0.75:
        # At least two rows count, as many as a fit needs.
        weights = rng.integers(0, 4, size=n).astype(float)
        weights[: max(2, n // 2)] += 1.0
        return weights
    if kind < 0.88:
        return rng.random(n) + 0.1
    if kind < 0.92:
        odd.append("few weights")
        return (rng.random(n) < 0.2).astype(float)
    odd.append("scaled weights")
    return (rng.random(n) + 0.1) * 10.0 ** rng.uniform(-9, 9)


def _finds_number(entry: Entry, params: dict[str, Any]) -> bool:
    """Whether the estimator can find its number of components with these parameters."""
    if _has_arrays(params):
        return False
    constraints = type(entry.make(**params))._parameter_constraints["n_components"]
    return any(isinstance(constraint, StrOptions) for constraint in constraints)


def case_of(seed: int, number: int) -> Case:
    """The case of this number; equal arguments give equal cases."""
    rng = np.random.default_rng([seed, number])
    kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
    entry = _pick(rng, OF_THE_PACKAGE)
    name = "none" if _chance(rng, 0.25) else _pick(rng, sorted(ANNEALING))
    odd: list[str] = []
    n = int(rng.integers(8, 16 if "hidden_markov" in entry.name else 61))
    if _chance(rng, 0.15):
        n = int(rng.integers(5, 8))
    params = _parameters(rng, entry, name, n, odd)
    if kind in ("fit", "parts") and _finds_number(entry, params) and _chance(rng, 0.05):
        params["n_components"] = "auto"
        odd.append("number of components to find")
    case = Case(seed, number, kind, entry, name, params, odd=odd, rng=rng)
    case.X = _data(rng, entry, case, n)
    k = params.get("n_components", 1)
    if n < 8 or (isinstance(k, Integral) and k > 3 and n < 20):
        case.odd.append("small")
    forms = forms_of(case.X, entry.make(**params))
    case.form = _pick(rng, forms) if _chance(rng, 0.6) else forms[0]
    if entry.name == "matrix_factorization" and kind != "parts" and _chance(rng, 0.25):
        case.form = "pairs"
        users_items = {"n_users": n_units(case.X), "n_items": int(case.X.shape[1])}
        case.params |= {"input": "pairs", **users_items}
    if isinstance(case.X, list) and kind in ("fit", "stream") and _chance(rng, 0.1):
        case.odd.append("known states")
    case.weights = _weights(rng, n_units(case.X), case.odd)
    return case
