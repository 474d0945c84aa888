"""Running cases: what is done with each, and ranges of them."""

from __future__ import annotations

import pickle
import tempfile
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import harness
import numpy as np
import pytest
from cases_parts import OF_UNITS, cut, without_unit_parameters
from scipy import sparse
from sklearn.base import clone
from test_checkpoints import interrupted
from test_contract import _assert_weights_count

from fuzzing import faults
from fuzzing.draw import Case, case_of, kind_of, n_units
from fuzzing.forms import given, values_of
from fuzzing.properties import (
    REFUSED,
    Findings,
    attempt,
    check_bounds,
    check_fitted,
    check_predictions,
    check_same,
    check_warnings,
    contents,
    predictions,
    snapshot,
)
from sklearn_anneal import Shards
from sklearn_anneal.search import moves, restarts


class Run:
    """One case while it is run."""

    def __init__(self, case: Case):
        self.case = case
        self.found = Findings()
        self.rng = case.rng
        self.may_refuse = bool(case.odd) or case.is_refused

    def arguments(self, X: Any, weights: np.ndarray | None) -> tuple[Any, dict[str, Any], Any]:
        """Data as they are given, the arguments that belong to them, and the weights."""
        form, entry = self.case.form, self.case.entry
        given_X, how = given(X, form)
        if weights is not None:
            if form == "pairs":
                weights = weights[np.nonzero(~np.isnan(X))[0]]
            else:
                weights = entry.row_weights(X, weights)
        return given_X, how, weights

    def fit(
        self, method: str, est: Any, X: Any, weights: np.ndarray | None, may_refuse: Any = None
    ) -> Any:
        """Call fit or partial_fit; a refusal must leave the estimator, and no call changes X."""
        given_X, how, w = self.arguments(X, weights)
        extra = {} if w is None else {"sample_weight": w}
        if "known states" in self.case.odd:
            extra["states"] = known_states(X)
        before, data = snapshot(est), contents(given_X)
        may_refuse = self.may_refuse if may_refuse is None else may_refuse
        call = getattr(est, method)
        result = attempt(self.found, method, lambda: call(given_X, **how, **extra), may_refuse)
        if result is REFUSED:
            same = snapshot(est) == before
            self.found.check(same, "refusal left something", f"{method} changed the estimator")
        self.found.check(contents(given_X) == data, "input changed", f"{method} changed X")
        return result

    def check(self, est: Any, X: Any, weights: np.ndarray | None, streamed: bool) -> Any:
        """What every fitted estimator has to be, and all of its predictions."""
        check_fitted(self.found, est, streamed)
        given_X, how, w = self.arguments(X, weights)
        values = values_of(X)
        if self.case.form == "pairs":
            values = np.empty((len(given_X), 2))
        kind = kind_of(est, X)
        seen = values[np.isfinite(values)]
        whole = kind in ("counts", "binary", "categories") and (seen == np.round(seen)).all()
        # A model whose scores are densities may have data that happen to be whole numbers.
        discrete = whole and not _has_densities(est)
        steps = getattr(est, "local_step", "mean_field")
        if (
            discrete
            and steps in ("mean_field", "enumerate")
            and "known states" not in self.case.odd
        ):
            # The evidence of discrete data is a probability, and the bound is below its logarithm.
            most = 1e-9 * max(1.0, abs(est.lower_bounds_[0]) if est.n_iter_ else 1.0)
            text = f"lower_bound_ = {est.lower_bound_}"
            self.found.check(est.lower_bound_ <= most, "probability above 1", text)
        return check_predictions(
            self.found, est, given_X, how, w, values, bool(self.case.odd), discrete
        )


def known_states(X: Any) -> np.ndarray:
    """The states of a few frames, which are given beside sequences."""
    frames = np.arange(sum(map(len, X)))
    return np.where(frames % 5 == 0, 0, -1)


def _has_densities(est: Any) -> bool:
    """Whether scores are densities, estimates, or no probabilities at all."""
    names = ("covariance_type", "noise_variance", "factor_variance", "n_score_samples")
    of_columns = getattr(est, "emission", None) in (
        *("poisson", "negative_binomial", "zero_inflated_poisson"),
        *("bernoulli", "categorical"),
    )
    return not of_columns and any(hasattr(est, name) for name in names)


# Fits


def _fit(run: Run) -> None:
    case = run.case
    est = case.make()
    if run.fit("fit", est, case.X, case.weights) is REFUSED:
        return
    if case.is_refused and not case.odd:
        run.found.add("not refused", f"annealing={case.method!r}")
    run.check(est, case.X, case.weights, streamed=False)
    _bound_of_plain_inference(run, est)
    names = list(DEARER)
    for name in run.rng.permutation(names)[:2]:
        DEARER[name](run, est)


def _is_plain(case: Case, est: Any) -> bool:
    """Whether a fit consists of coordinate ascent of the bound alone."""
    gradients = hasattr(est, "learning_rate_init") and getattr(est, "solver", "") != "coordinate"
    heuristic = getattr(est, "local_step", "mean_field") not in ("mean_field", "enumerate")
    return case.method == "none" and not (case.in_batches or gradients or heuristic)


def _bound_of_plain_inference(run: Run, est: Any) -> None:
    case = run.case
    # The bound is exact only without regularisation.
    if _is_plain(case, est) and getattr(est, "reg_covar", 0.0) == 0.0:
        # Local parameters start anew in the first half of the passes, where there are any.
        first = 0 if not _keeps_local_variables(est) else est.max_iter // 2 + 2
        heaviest = 1.0 if case.weights is None else max(1.0, case.weights.max())
        values = values_of(case.X)
        size = values.size * heaviest * _digits_lost(est, values)
        check_bounds(run.found, est.lower_bounds_, first, size)


def _digits_lost(est: Any, values: np.ndarray) -> float:
    """By how much the bound of a Gaussian model is less exact than its terms, at least 1.

    A row far from a component has a squared distance that is large beside a small variance. This
    happens where thousands of rows are equal, as those that share a large weight.
    """
    covariances = getattr(est, "covariances_", getattr(est, "covars_", None))
    if covariances is None or isinstance(covariances, dict):
        return 1.0
    square = covariances.ndim > 1 and covariances.shape[-1] == covariances.shape[-2]
    is_matrix = square and est.covariance_type in ("full", "tied")
    variances = np.linalg.eigvalsh(covariances) if is_matrix else covariances
    spread = np.nanmax(values) - np.nanmin(values)
    of_terms = np.finfo(np.float64).eps * spread**2 / np.maximum(variances.min(), 1e-300)
    return max(1.0, of_terms / 1e-9)


def _keeps_local_variables(est: Any) -> bool:
    return hasattr(est, "max_sweeps") or hasattr(est, "max_doc_update_iter")


def _refitted(run: Run, est: Any) -> None:
    again = clone(est)
    if run.fit("fit", again, run.case.X, run.case.weights, may_refuse=False) is not REFUSED:
        check_same(run.found, "a second fit differs", est, again)


def _with_workers(run: Run, est: Any) -> None:
    other = clone(est).set_params(n_jobs=2)
    with pytest.MonkeyPatch.context() as patch:
        harness.make_threads_worthwhile(patch)
        if run.fit("fit", other, run.case.X, run.case.weights, may_refuse=False) is not REFUSED:
            check_same(run.found, "n_jobs changes bits", est, other)


def _pickled(run: Run, est: Any) -> None:
    case = run.case
    other = pickle.loads(pickle.dumps(est))
    X, how, w = run.arguments(case.X, case.weights)
    random = ("sample",)
    for name, call in predictions(est, X, how, w).items():
        if name not in random:
            again = predictions(other, X, how, w)[name]
            run.found.check(_same_outcome(call, again), "a pickled estimator differs", f"in {name}")
    check_same(run.found, "a pickled estimator differs", est, other)
    both = [pickle.loads(pickle.dumps(e)) for e in (est, other)]
    results = [run.fit("partial_fit", e, case.X, case.weights, True) for e in both]
    if REFUSED not in results:
        check_same(run.found, "a pickled estimator goes on differently", *both)
        check_fitted(run.found, both[0], streamed=True)


def _same_outcome(*calls: Callable[[], Any]) -> bool:
    results = []
    for call in calls:
        try:
            results.append(call())
        except ValueError as error:
            results.append(str(error))
    try:
        np.testing.assert_equal(*(r.toarray() if sparse.issparse(r) else r for r in results))
    except AssertionError:
        return False
    return True


def _continued(run: Run, est: Any) -> None:
    """A warm start goes on from the optimum, and plain inference does not lose what it has."""
    case = run.case
    before = est.lower_bound_
    warm = pickle.loads(pickle.dumps(est)).set_params(warm_start=True)
    if run.fit("fit", warm, case.X, case.weights, may_refuse=True) is REFUSED:
        return
    check_fitted(run.found, warm, streamed=False)
    exact = getattr(est, "reg_covar", 0.0) == 0.0 and not _keeps_local_variables(est)
    if _is_plain(case, est) and exact and not case.odd and est.max_iter > 0:
        fall = before - warm.lower_bound_
        most = 1e-9 * (abs(before) + values_of(case.X).size)
        run.found.check(fall <= most, "the bound fell", f"by {fall} in a warm start")


def _counted(run: Run, est: Any) -> None:
    """A weight of 2 is a second unit, and one of 0 is none, update by update."""
    case = run.case
    harmless = {"missing cells", "constant column", "empty rows", "few columns", "small"}
    if not _is_plain(case, est) or case.form == "pairs" or not set(case.odd) <= harmless:
        return
    if getattr(est, "n_components", 2) == 1:
        # Its natural mean is 0 up to rounding errors, which no difference is relative to.
        return
    counts = np.where(np.arange(n_units(case.X)) % 3, 1, int(run.rng.choice([0, 2])))
    params = {k: v for k, v in case.params.items() if k not in ("annealing", "n_init")}
    try:
        _assert_weights_count(case.entry, params, "none", counts, case.X, n_updates=3)
    except AssertionError as error:
        run.found.add(
            "a weight is no number of copies", f"{counts.min()} to {counts.max()}: {error}"
        )
    except ValueError as error:
        # Without the units of weight 0 the data can be too few, which is refused.
        run.found.check(case.odd or not counts.all(), "refusal of ordinary data", str(error))


def _from_checkpoint(run: Run, est: Any) -> None:
    case = run.case
    X, how, w = run.arguments(case.X, case.weights)
    if how or w is not None or "known states" in case.odd:
        return
    n_saved = int(run.rng.integers(1, 6))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        resumed = clone(est)
        if interrupted(patch, resumed, X, folder, n_saved):
            resumed = clone(est).fit(X, checkpoint=folder)
        check_same(run.found, "a resumed fit differs", est, resumed)


def _in_another_form(run: Run, est: Any) -> None:
    """Data in the form of the entry lead to the same fit, up to rounding."""
    case = run.case
    single = "float32" in case.form
    if case.form == "pairs" or single or "far scaled" in case.odd or "offset" in case.odd:
        return
    other = clone(est)
    w = None if case.weights is None else case.entry.row_weights(case.X, case.weights)
    if "known states" in case.odd:
        return
    if attempt(run.found, "fit", lambda: other.fit(case.X, sample_weight=w), False) is REFUSED:
        return
    one, two = est.lower_bounds_, other.lower_bounds_
    if case.method == "none" and not case.odd:
        same = one.shape == two.shape and np.allclose(one, two, rtol=1e-6, equal_nan=True)
        run.found.check(same, "the form changes the fit", f"{one[-3:]} and {two[-3:]}")


def _integrated(run: Run, est: Any) -> None:
    """Densities of new rows integrate to 1, and probabilities sum to 1."""
    case, entry = run.case, run.case.entry
    if entry.total_probability is None or case.odd:
        return
    other = clone(est)
    for name, make in sorted(entry.spaces.items()):
        X = make(run.rng, 30)
        if attempt(run.found, f"fit to {name}", lambda X=X: other.fit(X), False) is not REFUSED:
            total = entry.total_probability(other)
            text = f"exp(score_samples) of {name} sums to {total}"
            run.found.check(abs(total - 1.0) < 1e-4, "density", text)


DEARER: dict[str, Callable[[Run, Any], None]] = {
    "refitted": _refitted,
    "with workers": _with_workers,
    "pickled": _pickled,
    "continued": _continued,
    "counted": _counted,
    "from a checkpoint": _from_checkpoint,
    "in another form": _in_another_form,
    "integrated": _integrated,
}


# Streams


def _ends(rng: np.random.Generator, n: int, n_parts: int) -> list[int]:
    return sorted(int(end) for end in rng.integers(0, n + 1, size=n_parts - 1))


def _stream(run: Run) -> None:
    """Batches of several sizes, among them single rows and batches of weight zero."""
    case, rng = run.case, run.rng
    n = n_units(case.X)
    total = [None, float(n), 3.0 * n][int(rng.integers(3))]
    n_jobs = int(rng.integers(1, 3))
    est, other = case.make(total_samples=total), case.make(total_samples=total, n_jobs=n_jobs)
    ends = [end for end in _ends(rng, n, int(rng.integers(1, 5))) if end >= min(n, 5)]
    weights = np.ones(n) if case.weights is None else case.weights
    # A first batch can lack what priors depend on, and later ones units of positive weight.
    may_refuse = run.may_refuse or len(ends) > 0
    with pytest.MonkeyPatch.context() as patch:
        harness.make_threads_worthwhile(patch)
        for X, w in zip(cut(case.X, ends), cut(weights, ends), strict=True):
            w = None if case.weights is None else w
            if n_units(X) == 0:
                if run.fit("partial_fit", est, X, w, may_refuse=True) is not REFUSED:
                    run.found.add("not refused", "an empty batch")
                continue
            results = [run.fit("partial_fit", e, X, w, may_refuse) for e in (est, other)]
            if (results[0] is REFUSED) != (results[1] is REFUSED):
                run.found.add("n_jobs changes a refusal", f"{results}")
            if REFUSED in results:
                break
            check_fitted(run.found, est, streamed=True)
            other = pickle.loads(pickle.dumps(other))
            check_same(run.found, "n_jobs or pickle changes a stream", est, other)
            if rng.random() < 0.3:
                before = pickle.loads(pickle.dumps(est))
                run.fit("partial_fit", est, X, np.zeros(n_units(X)), may_refuse=True)
                check_same(run.found, "a batch of weight zero counts", before, est)
    if hasattr(est, "lower_bound_"):
        run.check(est, case.X, case.weights, streamed=True)
        again = clone(est)
        if run.fit("fit", again, case.X, case.weights) is not REFUSED:
            run.fit("fit", est, case.X, case.weights, may_refuse=False)
            check_same(run.found, "a fit remembers a stream", est, again)


# Parts


def _parts(run: Run) -> None:
    case, rng = run.case, run.rng
    X, n = case.X, n_units(case.X)
    dense = "data frame" if case.form == "nested lists" else case.form
    sequences = dense.startswith("list") or not isinstance(X, list)
    case.form = dense if sequences else "list"
    ends = _ends(rng, n, int(rng.integers(1, 6)))
    parts = [given(part, case.form)[0] for part in cut(X, ends)]
    weights = None if case.weights is None else cut(case.weights, ends)
    if rng.random() < 0.3:
        # Parts that are read at every pass.
        parts = [partial(_read, part) for part in parts]
    est = case.make()
    method = "partial_fit" if rng.random() < 0.2 else "fit"
    before = snapshot(est)
    may_refuse = run.may_refuse or method == "partial_fit" or not _declared(est)
    call = getattr(est, method)
    result = attempt(
        run.found, method, lambda: call(Shards(parts), sample_weight=weights), may_refuse
    )
    if result is REFUSED:
        same = snapshot(est) == before
        run.found.check(same, "refusal left something", f"{method} of parts")
        return
    check_fitted(run.found, est, streamed=method == "partial_fit")
    _predicted_in_parts(run, est, parts, ends)
    if method == "fit":
        _one_part(run, est, ends)


def _read(part: Any) -> Any:
    return part


def _declared(est: Any) -> bool:
    """Whether the numbers of categories are declared, as data in parts need it."""
    of_categories = getattr(est, "emission", None) == "categorical"
    return not of_categories or est.get_params().get("n_symbols", 1) is not None


def _predicted_in_parts(run: Run, est: Any, parts: list[Any], ends: list[int]) -> None:
    case = run.case
    for name in ("predict", "predict_proba", "transform"):
        if not hasattr(est, name):
            continue
        whole = attempt(
            run.found, name, lambda name=name: getattr(est, name)(given(case.X, case.form)[0]),
            bool(case.odd),
        )  # fmt: skip
        of_parts = attempt(
            run.found, f"{name} of parts",
            lambda name=name: getattr(est, name)(Shards(parts)).compute(),
            bool(case.odd) or _empty_sequences(case, ends),
        )  # fmt: skip
        if whole is REFUSED or of_parts is REFUSED:
            continue
        whole, of_parts = np.asarray(whole), np.concatenate([np.asarray(p) for p in of_parts])
        close = whole.shape == of_parts.shape
        if name != "predict":
            close = close and np.allclose(whole, of_parts, rtol=1e-5, atol=1e-6)
        run.found.check(close, "predictions of parts differ", name)


def _empty_sequences(case: Case, ends: list[int]) -> bool:
    return isinstance(case.X, list) and any(len(part) == 0 for part in cut(case.X, ends))


def _one_part(run: Run, est: Any, ends: list[int]) -> None:
    """One part is the data to the last bit, and several lead to the same plain inference."""
    case = run.case
    X = given(case.X, case.form)[0]
    w = case.weights
    if isinstance(case.X, list) and w is not None:
        return
    one, whole = case.make(), case.make()
    weights = None if w is None else [w]
    of_part = attempt(
        run.found, "fit of one part", lambda: one.fit(Shards([X]), sample_weight=weights),
        run.may_refuse,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        without_unit_parameters(patch)
        of_rows = attempt(run.found, "fit", lambda: whole.fit(X, sample_weight=w), run.may_refuse)
    if of_part is REFUSED or of_rows is REFUSED:
        different = (of_part is REFUSED) != (of_rows is REFUSED)
        run.found.check(not different, "parts change a refusal", f"{of_part} and {of_rows}")
        return
    check_same(run.found, "one part is not the data", one, whole, left_out=OF_UNITS)
    if _is_plain(case, est) and not case.odd and est.n_init == 1:
        a, b = est.lower_bounds_, whole.lower_bounds_
        # A fit in single precision differs as much from the one in double precision.
        precision = 1e-5 if "float32" in case.form else 1e-6
        close = a.shape == b.shape and np.allclose(a, b, rtol=precision)
        run.found.check(close, "parts change plain inference", f"{a[-3:]} and {b[-3:]}")


# Refusals


def _refusal(run: Run) -> None:
    """An estimator that is fitted to ordinary data is given something bad."""
    case = run.case
    est = case.make()
    fitted = run.fit("fit", est, case.X, case.weights) is not REFUSED
    kind = run.rng.random()
    if kind < 0.4:
        faults.in_parameters(run, est)
    elif fitted and kind < 0.65:
        faults.in_arguments(run, est)
    elif fitted:
        faults.in_data(run, est)


KINDS: dict[str, Callable[[Run], None]] = {
    "fit": _fit,
    "stream": _stream,
    "parts": _parts,
    "refusal": _refusal,
}


def run_case(seed: int, number: int) -> tuple[Case, list[tuple[str, str]]]:
    """Run one case; returns it with what was found."""
    case = case_of(seed, number)
    run = Run(case)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Short searches, as in the tests of searches.
        patch.setattr(moves, "PASSES_OF_REHEAT", 3)
        patch.setattr(restarts, "PASSES_OF_FIRST_ROUND", 2)
        try:
            KINDS[case.kind](run)
        except Exception as error:
            run.found.add("accident", f"{type(error).__name__}: {error} at {_place(error)}")
    check_warnings(run.found, caught)
    return case, list(dict.fromkeys(run.found.found))


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " ← ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
