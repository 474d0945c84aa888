"""Ratings, models and passes that all measurements of the speed of matrix factorisation use.

The time of a pass is the difference of the times of two fits, one of many and one of few passes,
divided by the difference of their numbers of passes. Work that a fit does once thus does not count,
whichever the library is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import clone

from sklearn_anneal import AnnealedPMF
from sklearn_anneal.annealing import StructuredVI

from ..common.measuring import interleaved, processor_seconds
from ..common.peers import is_there
from ..common.priors import PEER_OF_RATINGS
from .data import Shape

try:
    from cmfrec import CMF
except ImportError:
    CMF = None
try:
    from implicit.cpu.als import AlternatingLeastSquares
except ImportError:
    AlternatingLeastSquares = None

Key = TypeVar("Key", bound=Hashable)

_NEVER = 10**6
# The noise variance divided by the prior variance of factors, from our defaults for stars from 1
# to 5.
_RIDGE = 8.0


@dataclass(frozen=True)
class Size:
    """The size of the measurements.

    Attributes
    ----------
    shape : Shape
    components : tuple of int
        Numbers of factors (d) in the section on passes.
    many : int
        Number of factors in all other sections.
    rounds : int
        Number of interleaved repetitions.
    passes : tuple of int
        Numbers of passes of the two fits whose difference is measured.
    """

    shape: Shape = Shape("MovieLens 1M", 6040, 3706, 1_000_209, 1.05, 1.25)
    components: tuple[int, ...] = (5, 10, 20)
    many: int = 10
    rounds: int = 5
    passes: tuple[int, int] = (2, 12)
    quick: bool = False

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n)


FULL = Size()
QUICK = Size(
    Shape("a small shape", 100, 60, 1500, 1.0, 1.2),
    components=(3,),
    many=3,
    rounds=1,
    passes=(1, 3),
    quick=True,
)


# Models

Fit = Callable[[int], Any]


def estimator(d: int, n_passes: int, annealing: str = "none", **parameters: Any) -> AnnealedPMF:
    """An estimator that makes a given number of passes, without any test of convergence."""
    settings = {"tol": 0, "max_iter": n_passes, "random_state": 0, "annealing": "none"}
    pmf = AnnealedPMF(d, **PEER_OF_RATINGS | settings | parameters)
    if annealing == "none":
        return pmf
    if annealing == "structured":
        # The evaluation of its bound takes another pass, which must not be measured.
        made = StructuredVI(n_passes=n_passes, evaluate_every=_NEVER)
        return pmf.set_params(annealing=made, max_iter=0)
    if annealing == "reheating":
        return pmf.set_params(annealing=annealing, effort=0)
    return pmf.set_params(annealing=annealing, annealing__n_passes=n_passes, max_iter=0)


def our_fit(X: csr_matrix, d: int, annealing: str = "none", **parameters: Any) -> Fit:
    return lambda n: estimator(d, n, annealing, **parameters).fit(X)


def cmfrec_fit(X: csr_matrix, d: int) -> Fit:
    """Alternating least squares of explicit ratings, with biases, by Cholesky's method."""
    ratings = X.tocoo()
    model = {
        "k": d,
        "lambda_": _RIDGE,
        "method": "als",
        "use_cg": False,
        "user_bias": True,
        "item_bias": True,
        "center": True,
        "use_float": X.dtype == np.float32,
        "precompute_for_predictions": False,
        "verbose": False,
        "nthreads": 1,
    }
    return lambda n: CMF(niter=n, **model).fit(ratings)


def implicit_fit(X: csr_matrix, d: int) -> Fit:
    """Alternating least squares of implicit feedback, by Cholesky's method."""
    how = {
        "regularization": _RIDGE,
        "dtype": X.dtype.type,
        "use_cg": False,
        "num_threads": 1,
        "random_state": 0,
    }

    def fit(n: int) -> Any:
        model = AlternatingLeastSquares(factors=d, iterations=n, **how)
        model.fit(X, show_progress=False)
        return model

    return fit


PEERS = {"cmfrec": cmfrec_fit, "implicit": implicit_fit}


def libraries() -> dict[str, Any]:
    """The other libraries by name; None for one that is not installed."""
    return {"cmfrec": CMF, "implicit": AlternatingLeastSquares}


def peers() -> dict[str, Callable[[csr_matrix, int], Fit]]:
    """Fits by the other libraries that are installed; a message is printed for each missing one."""
    return {name: PEERS[name] for name, found in libraries().items() if is_there(name, found)}


# Passes


def pass_times(
    fits: Mapping[Key, Fit],
    passes: tuple[int, int],
    rounds: int,
    clock: Callable[[Callable[[], object]], float] = processor_seconds,
    others: Mapping[Any, Callable[[], object]] | None = None,
) -> tuple[dict[Key, np.ndarray], dict[Any, np.ndarray]]:
    """Seconds per pass of several fits, one per round, and of other calls in the same rounds."""
    few, many = passes
    runs: dict[Any, Callable[[], object]] = {
        (key, n): (lambda fit=fit, n=n: fit(n)) for key, fit in fits.items() for n in passes
    }
    times = interleaved(runs | dict(others or {}), rounds, clock)
    each = {key: (times[key, many] - times[key, few]) / (many - few) for key in fits}
    return each, {key: times[key] for key in others or {}}


def warm(X: csr_matrix, estimator: AnnealedPMF) -> None:
    """Load or compile the kernels that a fit calls before it is timed."""
    clone(estimator).fit(X[:200])
