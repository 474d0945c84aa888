"""What is bad about data or parameters: every fault is refused with a sentence, or harmless."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from fuzzing.forms import given, values_of
from fuzzing.properties import REFUSED, attempt, check_fitted, predictions, snapshot

# Values for any parameter. Whole numbers stay small where they could be accepted as a size.
_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2,
    2**64,
    -(2**64),
    -1.0,
    0.0,
    -0.0,
    0.5,
    1.5,
    5e-324,
    1e-300,
    1e-9,
    1e9,
    1e300,
    np.nan,
    np.inf,
    -np.inf,
    1j,
    "",
    "auto",
    "none",
    "nonsense",
    b"bytes",
    (),
    [],
    {},
    {"a": 1},
    [1.0],
    [np.nan],
    [-1.0, 2.0],
    [1.0, 2.0, 3.0],
    ["a", "b"],
    [None],
    [[1.0, 2.0], [3.0]],
    np.ones((2, 2)),
    np.eye(3),
    np.zeros(3),
    np.full(3, np.inf),
    np.array(["a"]),
    np.array(1.0),
    np.array(None),
    np.float32(0.5),
    np.int8(2),
    np.ma.array([1.0, 2.0], mask=[0, 1]),
    int,
    object(),
    slice(3),
    range(3),
    np.datetime64("2020-01-01"),
    sparse.csr_matrix(np.eye(2)),
]
_NOT_CHANGED = ("verbose", "verbose_interval", "n_jobs")


def in_parameters(run: Any, est: Any) -> None:
    """Set a parameter to anything: the fit is refused as a whole, or sound."""
    rng, case = run.rng, run.case
    names = [name for name in sorted(est.get_params(deep=False)) if name not in _NOT_CHANGED]
    name = names[int(rng.integers(len(names)))]
    value = _VALUES[int(rng.integers(len(_VALUES)))]
    nested = case.params["annealing"]
    if rng.random() < 0.2 and not isinstance(nested, str):
        inner = sorted(nested.get_params())
        if inner:
            name = f"annealing__{inner[int(rng.integers(len(inner)))]}"
    what = f"{name}={value!r}"
    case.odd.append(what)
    setting = attempt(run.found, what, lambda: est.set_params(**{name: value}), True)
    if setting is REFUSED:
        return
    method = "fit" if rng.random() < 0.8 else "partial_fit"
    run.may_refuse = True
    found = len(run.found.found)
    if run.fit(method, est, case.X, case.weights) is not REFUSED:
        check_fitted(run.found, est, streamed=method == "partial_fit")
    for i, (kind, text) in enumerate(run.found.found[found:], found):
        run.found.found[i] = (kind, f"{what}: {text}")


def in_arguments(run: Any, est: Any) -> None:
    """Give anything to an argument of a method, beside good data."""
    rng, case = run.rng, run.case
    X, how, _ = run.arguments(case.X, None)
    methods = {}
    for name in dir(est):
        method = getattr(est, name, None)
        if not name.startswith(("_", "set_", "get_params", "get_meta")) and callable(method):
            arguments = inspect.signature(method).parameters.values()
            # Anything is true or false, and a checkpoint would be written.
            free = [
                a.name
                for a in arguments
                if a.kind not in (a.VAR_KEYWORD, a.VAR_POSITIONAL)
                and not isinstance(a.default, bool)
                and a.name not in ("X", "y", "checkpoint")
            ]
            if free:
                methods[name] = free
    name = sorted(methods)[int(rng.integers(len(methods)))]
    free = methods[name]
    argument = free[int(rng.integers(len(free)))]
    value = _VALUES[int(rng.integers(len(_VALUES)))]
    given_values = (
        {"users": [0], "items": [0]} if name.startswith(("recommend", "predict_r")) else {}
    )
    known = inspect.signature(getattr(est, name)).parameters
    given_values |= {key: value for key, value in how.items() if key in known}
    given_values = {key: v for key, v in given_values.items() if key in known} | {argument: value}
    if "X" in known:
        given_values["X"] = X
    what = f"{name} with {argument}={value!r}"
    case.odd.append(what)
    before = snapshot(est)
    result = attempt(run.found, what, lambda: getattr(est, name)(**given_values), True)
    if result is REFUSED or not name.startswith(("fit", "partial_fit")):
        run.found.check(snapshot(est) == before, "refusal left something", what)
    else:
        check_fitted(run.found, est, streamed=name == "partial_fit")


# Faults of tables. Each returns other data; it may also raise if it does not apply.


def _with(X: np.ndarray, value: Any) -> np.ndarray:
    kinds = {complex: complex, str: object}
    X = X.astype(kinds.get(type(value), float))
    X[len(X) // 2, X.shape[1] // 2] = value
    return X


_OF_TABLES: dict[str, Callable[[np.ndarray], Any]] = {
    "infinity": lambda X: _with(X, np.inf),
    "minus infinity": lambda X: _with(X, -np.inf),
    "NaN": lambda X: _with(X, np.nan),
    "a negative number": lambda X: _with(X, -3.0),
    "minus a half": lambda X: _with(X, -0.5),
    "a half": lambda X: _with(X, 0.5),
    "a huge number": lambda X: _with(X, 1e300),
    "a large number": lambda X: _with(X, 1e12),
    "a string": lambda X: _with(X, "word"),
    "a number in a string": lambda X: _with(X, "1"),
    "a complex number": lambda X: _with(X, 1j),
    "one dimension": lambda X: X[:, 0],
    "three dimensions": lambda X: X[None],
    "no rows": lambda X: X[:0],
    "no columns": lambda X: X[:, :0],
    "a column less": lambda X: X[:, 1:],
    "a column more": lambda X: np.hstack([X, X[:, :1]]),
    "one row": lambda X: X[:1],
    "a scalar": lambda X: np.float64(3.0),
    "None": lambda X: None,
    "text": lambda X: "text",
    "strings": lambda X: np.full(X.shape, "a"),
    "dates": lambda X: np.full(X.shape, np.datetime64("2020-01-01")),
    "booleans": lambda X: X > 0,
    "a mask": lambda X: np.ma.array(X, mask=np.arange(X.size).reshape(X.shape) % 5 == 0),
    "everything missing": lambda X: np.full(X.shape, np.nan),
    "ragged lists": lambda X: [row[: 1 + i % 2].tolist() for i, row in enumerate(X)],
    "a dictionary": lambda X: {"a": X},
    "a set": lambda X: {1, 2, 3},
    "objects": lambda X: np.full(X.shape, None),
    "a generator": lambda X: (row for row in X),
    "a structured array": lambda X: np.zeros(len(X), dtype=[("a", float), ("b", float)]),
    "a sparse matrix": lambda X: sparse.csr_matrix(np.nan_to_num(X)),
    "sparse diagonals": lambda X: sparse.dia_matrix(np.nan_to_num(X)),
    "sparse blocks": lambda X: sparse.bsr_matrix(np.nan_to_num(X)),
    "a sparse dictionary": lambda X: sparse.dok_matrix(np.nan_to_num(X)),
}


def _weights(n: int) -> dict[str, Any]:
    return {
        "negative": -np.ones(n),
        "one negative": np.where(np.arange(n) == 1, -1.0, 1.0),
        "NaN": np.full(n, np.nan),
        "infinite": np.where(np.arange(n) == 1, np.inf, 1.0),
        "too few": np.ones(max(n - 1, 0)),
        "two columns": np.ones((n, 2)),
        "strings": np.full(n, "a"),
        "objects": np.full(n, None),
        "zero": np.zeros(n),
        "complex": np.full(n, 1j),
        "huge": np.full(n, 1e200),
        "tiny": np.full(n, 1e-200),
        "a dictionary": {"a": 1},
        "text": "text",
        "a mask": np.ma.array(np.ones(n), mask=np.arange(n) % 3 == 0),
    }


def in_data(run: Any, est: Any) -> None:
    """Give bad data or weights to a fit, a stream or a prediction of a fitted estimator."""
    rng, case = run.rng, run.case
    values, how, extra = values_of(case.X), {}, {}
    if case.form == "pairs":
        values, how = given(case.X, "pairs")
    n = len(values)
    if rng.random() < 0.25:
        weights = _weights(n)
        name = sorted(weights)[int(rng.integers(len(weights)))]
        X, extra = values, {"sample_weight": weights[name]}
        name = f"weights: {name}"
    else:
        name = sorted(_OF_TABLES)[int(rng.integers(len(_OF_TABLES)))]
        X = _OF_TABLES[name](np.array(values, dtype=float))
        if isinstance(case.X, list) and rng.random() < 0.5:
            X = [X, X]
    case.odd.append(name)
    calls: dict[str, Callable[[], Any]] = {
        "fit": lambda: est.fit(X, **how, **extra),
        "partial_fit": lambda: est.partial_fit(X, **how, **extra),
    }
    if not extra:
        calls |= predictions(est, X, how)
    elif "score" in predictions(est, X, how):
        calls["score"] = lambda: est.score(X, **how, **extra)
    method = sorted(calls)[int(rng.integers(len(calls)))]
    before = snapshot(est)
    result = attempt(run.found, f"{method} with {name}", calls[method], True)
    if method not in ("fit", "partial_fit") or result is REFUSED:
        same = snapshot(est) == before
        run.found.check(same, "refusal left something", f"{method} with {name}")
    else:
        check_fitted(run.found, est, streamed=method == "partial_fit")
