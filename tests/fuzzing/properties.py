"""What has to hold in every case: of errors, of warnings, of fitted estimators, of predictions."""

from __future__ import annotations

import linecache
import pickle
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from harness import fitted_state
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import sklearn_anneal

_OWN = str(Path(sklearn_anneal.__file__).parent)
_TESTS = str(Path(__file__).resolve().parents[1])
_PEER = str(Path(sklearn.__file__).parent)
# Documented so: bounds of passes that did not evaluate one, and standard errors of streams.
# A move of a search that fails has no bound.
_MAY_BE_NAN = ("lower_bounds_", "standard_errors_", "search_results_")
REFUSED = object()


@dataclass
class Findings:
    """What a case has shown to be wrong, as pairs of a kind and a text."""

    found: list[tuple[str, str]] = field(default_factory=list)

    def add(self, kind: str, text: str) -> None:
        self.found.append((kind, " ".join(text.split())[:600]))

    def check(self, holds: Any, kind: str, text: str) -> None:
        if not holds:
            self.add(kind, text)


# Errors and warnings


def fault_of(error: Exception) -> str:
    """What is wrong with an error as the refusal of an input; empty if it is a good one.

    A refusal is a ValueError or TypeError that this package raises with a sentence of its own, or
    that scikit-learn's validation raises. One that comes up from an operation on arrays, a library
    or the interpreter is an accident, whatever its type is.
    """
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    told = f"{type(error).__name__}: {error} ({where})"
    if isinstance(error, np.linalg.LinAlgError) or not isinstance(error, ValueError | TypeError):
        return told
    # The frames of the tests come first, and those of methods that scikit-learn defines may follow.
    own = max((i for i, frame in enumerate(frames) if _is_own(frame)), default=-1)
    if own < len(frames) - 1:
        ours = max((i for i, frame in enumerate(frames) if _is_tests(frame)), default=-1)
        by_peer = frames[max(own, ours) + 1 :][:1]
        by_peer = bool(by_peer) and by_peer[0].filename.startswith(_PEER)
        return "" if by_peer else f"{told}, not raised by the package"
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    if not line.startswith("raise"):
        return f"{told}, not raised by the package"
    return "" if len(str(error).split()) > 3 else f"{told}, which is no sentence"


def _is_own(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith(_OWN)


def _is_tests(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith(_TESTS)


def attempt(found: Findings, what: str, call: Callable[[], Any], may_refuse: Any) -> Any:
    """Call a function whose errors have to be refusals; ``REFUSED`` if it was refused."""
    try:
        return call()
    except Exception as error:
        fault = fault_of(error)
        if fault:
            found.add("raw error", f"{what}: {fault}")
        elif not may_refuse:
            found.add("refusal of ordinary data", f"{what}: {error}")
        return REFUSED


def check_warnings(found: Findings, caught: list[warnings.WarningMessage]) -> None:
    """Only warnings of convergence, and the package's own sentences to users, are expected."""
    for warning in caught:
        if not issubclass(warning.category, ConvergenceWarning | UserWarning):
            place = f"{Path(warning.filename).name}:{warning.lineno}"
            text = f"{warning.category.__name__}: {warning.message} ({place})"
            found.add("warning", text)


def snapshot(value: Any) -> bytes:
    """An object to the last bit."""
    return pickle.dumps(value)


def contents(X: Any) -> bytes:
    """Data to the last bit, without what sparse matrices remember of themselves."""
    if not sparse.issparse(X):
        return pickle.dumps(X)
    entries = X.tocoo()
    return pickle.dumps((X.format, entries.row, entries.col, entries.data))


# Fitted estimators


def check_fitted(found: Findings, est: Any, streamed: bool) -> None:
    for name, value in fitted_numbers(est):
        known = name.split("[")[0]
        bad = np.isinf(value) if known in _MAY_BE_NAN else ~np.isfinite(value)
        found.check(not bad.any(), "not finite", f"{name} = {np.asarray(value).ravel()[:6]}")
    n = est.n_iter_
    lengths = {n, len(est.lower_bounds_), len(est.temperatures_)}
    found.check(len(lengths) == 1, "histories", f"n_iter_ and lengths of histories are {lengths}")
    if n and not streamed and np.isfinite(est.lower_bounds_[-1]):
        same = est.lower_bounds_[-1] == est.lower_bound_
        found.check(same, "last bound", f"{est.lower_bounds_[-1]!r} and {est.lower_bound_!r}")


def fitted_numbers(est: Any) -> Iterator[tuple[str, np.ndarray]]:
    """All numbers in public fitted attributes."""
    for name, value in fitted_state(est).items():
        value = value.data if sparse.issparse(value) else np.asarray(value)
        if not name.startswith(("state", "annealing_")) and value.dtype.kind == "f":
            yield name, value


def check_bounds(found: Findings, bounds: np.ndarray, first: int, size: float) -> None:
    """Plain inference never lowers the bound, up to rounding errors of sums of this size."""
    kept = bounds[first:]
    if len(kept) > 1:
        most = 1e-9 * (np.abs(kept).max() + size)
        fall = -np.diff(kept).min()
        text = f"by {fall:g} of {kept[-1]:g} in {kept[:8].tolist()}"
        found.check(fall <= most, "the bound fell", text)


def check_same(found: Findings, kind: str, one: Any, other: Any, left_out: Any = ()) -> None:
    """Two fitted estimators are equal to the last bit."""
    a, b = fitted_state(one), fitted_state(other)
    left_out = tuple(left_out)
    differ = [
        name
        for name in a.keys() | b.keys()
        if not (left_out and name.startswith(left_out))
        and (name not in a or name not in b or not _equal(a[name], b[name]))
    ]
    found.check(not differ, kind, f"{sorted(differ)[:8]}")


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    if sparse.issparse(a):
        a, b = a.toarray(), b.toarray()
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == b.dtype.kind == "f":
        return a.shape == b.shape and np.array_equal(a, b, equal_nan=True)
    return np.array_equal(a, b)


# Predictions


def predictions(
    est: Any, X: Any, how: dict[str, Any], weights: Any = None
) -> dict[str, Callable[[], Any]]:
    """All predictions that an estimator offers for these data, as calls by name."""
    pairs = getattr(est, "input", None) == "pairs"
    ids = {key: value for key, value in how.items() if key in ("groups", "lengths")}
    of_rows = ["predict", "predict_proba", "transform", "score_samples", "score_sequences"]
    of_rows += ["decode", "inclusion_probabilities", "reconstruct", "predict_rows", "impute"]
    if sparse.issparse(X):
        # It returns a dense array, and takes one.
        of_rows.remove("impute")
    if pairs:
        of_rows = ["predict"]
    calls = {name: partial(getattr(est, name), X, **ids) for name in of_rows if _has(est, name)}
    total = dict(how) if weights is None else {**how, "sample_weight": weights}
    for name in ("aic", "bic", "relative_entropy", "score"):
        if _has(est, name):
            calls[name] = partial(getattr(est, name), X, **total)
    if _has(est, "perplexity"):
        calls["perplexity"] = lambda: est.perplexity(X)
    if hasattr(est, "inverse_temperatures"):
        calls["inverse_temperatures"] = lambda: est.inverse_temperatures(X, **how)
    for name in ("sample", "get_covariance", "get_precision"):
        if _has(est, name):
            calls[name] = getattr(est, name)
    if _has(est, "top_words"):
        calls["top_words"] = lambda: est.top_words(n=1)
    if "impute" in calls:
        calls["impute with errors"] = lambda: est.impute(X, return_std=True, **ids)
    if _has(est, "predict_rows") and not pairs:
        calls["ratings with errors"] = lambda: est.predict_rows(X, return_std=True)
        calls["recommend"] = lambda: est.recommend(X, n=2)
    if _has(est, "inverse_transform") and not pairs:
        calls["inverse_transform"] = lambda: est.inverse_transform(est.transform(X, **ids))
    return calls


def _has(est: Any, name: str) -> bool:
    return hasattr(est, name)


def check_predictions(
    found: Findings,
    est: Any,
    X: Any,
    how: dict[str, Any],
    weights: Any,
    values: np.ndarray,
    may_refuse: bool,
    discrete: bool,
) -> dict[str, Any]:
    """Make all predictions and look at them; ``values`` has the cells that are given as X."""
    n, results = len(values), {}
    for name, call in predictions(est, X, how, weights).items():
        result = attempt(found, name, call, may_refuse)
        if result is REFUSED:
            continue
        results[name] = result
        # Those of missing categories are NaN, and infinite where there are too few rows.
        numbers = [] if name == "impute with errors" else _arrays(result)
        for number in numbers:
            if number.dtype.kind == "f":
                text = f"{name} = {number.ravel()[~np.isfinite(number.ravel())][:4]}"
                found.check(np.isfinite(number).all(), "prediction not finite", text)
    _check_shapes(found, est, results, n, values)
    _check_probabilities(found, est, results)
    if discrete:
        for name in ("score", "score_samples", "score_sequences"):
            if name in results and not isinstance(results[name], tuple):
                largest = float(np.max(results[name]))
                found.check(largest <= 1e-9, "probability above 1", f"{name}: log of it {largest}")
    return results


def _arrays(result: Any) -> Iterator[np.ndarray]:
    if isinstance(result, tuple | list):
        for part in result:
            yield from _arrays(part)
    elif sparse.issparse(result):
        yield result.data
    elif not isinstance(result, str):
        yield np.asarray(result)


def _check_shapes(
    found: Findings, est: Any, results: dict[str, Any], n: int, values: np.ndarray
) -> None:
    n_components = len(est.get_feature_names_out()) if _has(est, "transform") else 0
    table = (n, values.shape[1])
    expected = {
        "transform": (n, n_components),
        "predict_proba": (n, n_components),
        "predict": (n,),
        "inverse_transform": table,
        "predict_rows": table,
        "impute": table,
        "reconstruct": table,
    }
    for name, shape in expected.items():
        if name in results:
            result = np.shape(results[name]) or results[name].shape
            found.check(result == shape, "shape", f"{name} has {result} in the place of {shape}")
    if "impute" in results:
        known = np.isfinite(values) & (values != -1)
        kept = np.asarray(results["impute"], dtype=float)[known]
        same = np.allclose(kept, values[known], rtol=1e-6)
        found.check(same, "impute", "observed cells have changed")


def _check_probabilities(found: Findings, est: Any, results: dict[str, Any]) -> None:
    probabilities = ["predict_proba", "inverse_temperatures", "inclusion_probabilities"]
    for name in probabilities:
        if name in results:
            P = np.asarray(results[name])
            inside = P.size == 0 or (P.min() >= 0 and P.max() <= 1 + 1e-5)
            found.check(inside, "probability", f"{name} from {P.min()} to {P.max()}")
    for name in ("predict_proba", "transform"):
        if name in results and (_has(est, "predict_proba") or _has(est, "perplexity")):
            sums = np.asarray(results[name]).sum(axis=1)
            close = np.allclose(sums, 1, atol=1e-4 if sums.dtype == np.float32 else 1e-8)
            found.check(close, "probability", f"rows of {name} sum to {sums[:5]}")
