"""Fits of topic models: their specifications, and the figures measured on each."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import (
    DeterministicAnnealing,
    LocalVariationalTempering,
    ProximityVI,
    StochasticAnnealing,
    StructuredVI,
    SVIPlus,
    VariationalTempering,
)

from ..common.reproduction import BaseSpec
from .data import split

_NEVER = 10**6


# Methods


@dataclass(frozen=True)
class Method:
    """A way to fit, whose schedule takes a share of the passes.

    Attributes
    ----------
    make : callable
        Makes the annealing, given the number of passes of its schedule.
    share : float
        Share of all passes that the schedule takes; plain inference makes the others.
    """

    make: Callable[[int], Any]
    share: float = 0.5

    def plan(self, passes: int) -> tuple[Any, int]:
        """The annealing and ``max_iter`` of a fit that makes ``passes`` passes altogether."""
        schedule = max(1, round(self.share * passes)) if self.share > 0 else 0
        return self.make(schedule), passes - schedule


def _tempered(form: str, temperature: float, share: float = 0.5) -> Method:
    return Method(
        lambda n: DeterministicAnnealing(
            form=form, initial_temperature=temperature, schedule="linear", n_passes=n
        ),
        share,
    )


def _structured(gradient: str) -> Method:
    # Only the bound at the end is needed, and its evaluation must not count in the time.
    return Method(lambda n: StructuredVI(gradient=gradient, n_passes=n, evaluate_every=_NEVER), 1.0)


def _noisy(share: float) -> Method:
    return Method(
        lambda n: SVIPlus(effective_batch_size=0.5, schedule="constant", n_passes=n), share
    )


METHODS = {
    "none": Method(lambda n: "none", 0.0),
    "local": _tempered("local", 2.0),
    "posterior": _tempered("posterior", 1.5),
    "recommended": Method(lambda n: DeterministicAnnealing(n_passes=n)),
    "likelihood": _tempered("likelihood", 1.5),
    "likelihood, fast": _tempered("likelihood", 1.5, 0.1),
    "likelihood, hot": _tempered("likelihood", 8.0),
    "stochastic": Method(lambda n: StochasticAnnealing(n_passes=n)),
    "proximity": Method(lambda n: ProximityVI(n_passes=n)),
    "tempering": Method(lambda n: VariationalTempering(n_passes=n)),
    "local tempering": Method(lambda n: LocalVariationalTempering(n_passes=n)),
    "svi_plus": _noisy(1.0),
    "svi_plus, then plain": _noisy(0.5),
    "approximate": _structured("approximate"),
    "exact": _structured("exact"),
}
"""Every way to fit, by the name that the cache knows it by."""


# Fits


@dataclass(frozen=True)
class Spec(BaseSpec):
    """Everything that determines a fit; the key of the fit in the cache.

    Attributes
    ----------
    corpus, method : str
    n_components, seed : int
    passes : int
        Number of all passes, those of the schedule and those after it.
    alpha, eta : float or None
        Priors; None for 1/K.
    batch_size : int or None
        Documents per batch; None for batch inference.
    local_step : str
    n_init : int
    polish : int
        Number of passes of plain stochastic inference that continue from the topics found.
    """

    corpus: str
    method: str
    n_components: int
    passes: int
    alpha: float | None = None
    eta: float | None = None
    batch_size: int | None = None
    local_step: str = "mean_field"
    n_init: int = 1
    polish: int = 0
    seed: int = 0

    @property
    def label(self) -> str:
        model = f"{self.corpus}, K = {self.n_components}"
        return f"{model}, {self.method}, {self.local_step}, seed {self.seed}"

    def estimator(self) -> AnnealedLatentDirichletAllocation:
        annealing, max_iter = METHODS[self.method].plan(self.passes)
        online = {} if self.batch_size is None else {"batch_size": self.batch_size}
        return AnnealedLatentDirichletAllocation(
            self.n_components,
            doc_topic_prior=self.alpha,
            topic_word_prior=self.eta,
            annealing=annealing,
            local_step=self.local_step,
            learning_method="online" if online else "batch",
            learning_offset=10.0,
            learning_decay=0.7,
            max_iter=max_iter,
            tol=0.0,
            n_init=self.n_init,
            # The passes of reheats would come on top of those that are compared.
            effort=0,
            random_state=self.seed,
            **online,
        )

    def run(self) -> dict[str, Any]:
        """Fit and measure the result.

        Returns
        -------
        result : dict
            ``bound`` of the training set and ``held_out`` (nats per token), ``seconds`` of
            processor time for the passes, the number of ``passes``, the size of the corpus, and
            with ``self.polish`` also ``polished_bound`` and ``polished_held_out``.
        """
        X, held_out = split(self.corpus)
        tokens = float(X.sum())
        _warm(self.method, self.local_step, self.batch_size is None)
        clock = Clock()
        lda = _fitted(self.estimator().set_callbacks(clock), X)
        result = {
            "bound": lda.lower_bound_ / tokens,
            "held_out": lda.score(held_out),
            "seconds": clock.seconds,
            "passes": lda.n_iter_,
            "documents": X.shape[0],
            "words": X.shape[1],
            "length": tokens / X.shape[0],
        }
        if self.polish:
            plain = replace(self, method="none", local_step="mean_field", passes=self.polish)
            follower = plain.estimator().set_params(init_components=lda.components_)
            follower = _fitted(follower, X)
            result["polished_bound"] = follower.lower_bound_ / tokens
            result["polished_held_out"] = follower.score(held_out)
        return {name: float(value) for name, value in result.items()}


class Clock:
    """A callback that adds up the processor time of the passes, without work after the last one."""

    def __init__(self):
        self.seconds = self._last = 0.0

    def setup(self, estimator, context):
        """Nothing has to be set up."""

    def teardown(self, estimator, context):
        """Nothing has to be cleaned up."""

    def on_fit_task_begin(self, estimator, context):
        if context.task_name == "restart":
            self._last = time.process_time()

    def on_fit_task_end(self, estimator, context):
        if context.task_name == "pass":
            now = time.process_time()
            self.seconds += now - self._last
            self._last = now
        return False


@cache
def _warm(method: str, local_step: str, batch: bool) -> None:
    """Load or compile the kernels of a method before its passes are timed."""
    spec = Spec("drawn", method, 3, 2, local_step=local_step, batch_size=None if batch else 40)
    _fitted(spec.estimator(), split("drawn")[0])


def _fitted(lda: AnnealedLatentDirichletAllocation, X: csr_matrix) -> Any:
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return lda.fit(X)
