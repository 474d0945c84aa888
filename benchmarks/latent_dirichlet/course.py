"""The course of a fit: the held-out likelihood of its topics at some moments, and its time so far.

All libraries are evaluated alike: what is taken of a model are the probabilities of words in topics
and the prior of the proportions, and the rest is inferred by our own inference.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from sklearn_anneal.data.units import Documents
from sklearn_anneal.metrics import document_completion_log_likelihood, split_documents
from sklearn_anneal.models.topics import LOCAL_STEPS
from sklearn_anneal.models.topics.visit import LocalStart

# Iterations (or passes) after which a fit is evaluated; those below 1 are shares of the first pass.
MARKS = (
    *(0.1, 0.2, 0.3, 0.5, 0.7),
    *(1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000),
)
# How proportions are inferred in all evaluations, and once more at the end of a fit: local steps of
# our model.
INFERENCE, OTHER_INFERENCE = "cvb0", "mean_field"
# Iterations over a document, and the mean change of its Dirichlet parameters at which they end.
N_ITER, TOL = 100, 1e-5
# Digits that records keep, well below the noise.
_DIGITS = {"seconds": 5, "wall": 5, "held_out": 6}
# Given topics enter the inference as Dirichlet parameters of this sum, so that the expected
# logarithms of their probabilities are the logarithms of the expected ones.
_WEIGHT = 1e15


class State(NamedTuple):
    """The parameters of a model at one moment, for its evaluation.

    Attributes
    ----------
    topics : ndarray of shape (n_topics, n_words)
        Expected probabilities of words; rows sum to 1.
    alpha : ndarray of shape (n_topics,)
        Dirichlet parameters of the proportions of topics.
    tokens : ndarray of shape (n_topics,)
        Expected numbers of tokens of the topics.
    """

    topics: np.ndarray
    alpha: np.ndarray
    tokens: np.ndarray


class Judge:
    """The document completion of held-out documents, the same for the models of all libraries.

    Parameters
    ----------
    test : csr_matrix of shape (n_documents, n_words)
        Held-out documents; those of fewer than two tokens are left out.
    """

    def __init__(self, test: csr_matrix):
        test = test[np.asarray(test.sum(axis=1)).ravel() >= 2]
        observed, self.held_out = split_documents(test)
        self.n_documents = test.shape[0]
        self.n_tokens = float(self.held_out.sum())
        self._observed = Documents(
            observed.data.astype(np.float64), observed.indices, observed.indptr
        )

    def proportions(self, state: State, local_step: str = INFERENCE) -> np.ndarray:
        """Proportions of topics, inferred from the observed halves.

        Single precision changes likelihoods by less than 1e-4 nats per token, in half the time.
        """
        k, n_words = state.topics.shape
        model = LOCAL_STEPS[local_step](
            k,
            n_words,
            np.array(state.alpha, dtype=np.float64),
            np.ones(n_words),
            mean_change_tol=TOL,
            dtype=np.float32,
        )
        q = {"topic_word": np.asfortranarray(state.topics, dtype=np.float64) * _WEIGHT}
        visit = replace(model.visit(q, self._observed), statistics=False).without_bound()
        gamma = visit.step(self._observed, local=LocalStart(None, N_ITER)).local
        return gamma / gamma.sum(axis=1, keepdims=True)

    def log_likelihood(self, state: State, local_step: str = INFERENCE) -> float:
        """Log-likelihood of the held-out halves, nats per token."""
        theta = self.proportions(state, local_step)
        found, n_tokens = document_completion_log_likelihood(self.held_out, theta, state.topics)
        return float(found.sum() / n_tokens.sum())

    def probabilities(self, state: State) -> np.ndarray:
        """Predictive probabilities of the held-out words, one for each count that is not zero."""
        theta = self.proportions(state)
        found = np.empty(self.held_out.nnz)
        for d, (start, stop) in enumerate(
            zip(self.held_out.indptr[:-1], self.held_out.indptr[1:], strict=True)
        ):
            found[start:stop] = theta[d] @ state.topics[:, self.held_out.indices[start:stop]]
        return found

    def log_likelihood_of(self, probabilities: np.ndarray) -> float:
        """Log-likelihood of the held-out halves given probabilities of their words."""
        return float(self.held_out.data @ np.log(probabilities) / self.n_tokens)


class Stopwatch:
    """A clock of processor time, all threads, and of wall time, which can stand still."""

    def __init__(self) -> None:
        self.seconds = self.wall = 0.0
        self._since: tuple[float, float] | None = None

    def start(self) -> None:
        """Start the clock, if it does not run."""
        if self._since is None:
            self._since = time.process_time(), time.perf_counter()

    def stop(self) -> None:
        """Stop the clock, if it runs."""
        if self._since is not None:
            self.seconds += time.process_time() - self._since[0]
            self.wall += time.perf_counter() - self._since[1]
            self._since = None


class Point(NamedTuple):
    """The state of a fit at one moment.

    Attributes
    ----------
    iterations : float
        Number of iterations, or of passes, so far.
    seconds, wall : float
        Processor time and wall time so far.
    held_out : float
        Log-likelihood of held-out documents, nats per token.
    empty : int
        Number of topics with less than one expected token.
    """

    iterations: float
    seconds: float
    wall: float
    held_out: float
    empty: int


class Course:
    """The points of a fit under a clock that stands still during evaluations.

    Parameters
    ----------
    judge : Judge
    budget : float or None, default=None
        Processor seconds after which the fit is to stop.

    Attributes
    ----------
    points : list of Point
    state : State or None
        The state that was evaluated last.
    cut : bool
        Whether the fit stopped because its budget was used up.
    """

    def __init__(self, judge: Judge, budget: float | None = None):
        self.judge = judge
        self.budget = budget
        self.clock = Stopwatch()
        self.points: list[Point] = []
        self.state: State | None = None
        self.cut = False
        self._predicted: list[np.ndarray] = []
        self._marks = iter(MARKS)
        self._next: float = next(self._marks)

    def is_over(self, seconds: float | None = None) -> bool:
        """Whether a time, or that of the stopped clock, is beyond the budget; the fit is cut then.

        A fit that is made anew for every point asks before it begins.
        """
        spent = self.clock.seconds if seconds is None else seconds
        self.cut = self.cut or (self.budget is not None and spent >= self.budget)
        return self.cut

    def passed(self, iterations: float, state: Callable[[], State]) -> bool:
        """Evaluate the state if an evaluation is due, and return whether the budget is used up.

        It is to be called after every iteration. The clock stands still in the meantime.
        """
        self.clock.stop()
        over = self.is_over()
        if self._due(iterations) or over:
            self.evaluate(iterations, state())
        self.clock.start()
        return over

    def _due(self, iterations: float) -> bool:
        # Shares of a pass that are sums of many small ones may be slightly too small.
        due = False
        while iterations >= self._next - 1e-9:
            due = True
            self._next = next(self._marks, np.inf)
        return due

    def evaluate(self, iterations: float, state: State) -> None:
        """Add a point."""
        self.clock.stop()
        self.state = state
        held_out = self.judge.log_likelihood(state)
        empty = int((state.tokens < 1).sum())
        point = Point(iterations, self.clock.seconds, self.clock.wall, held_out, empty)
        self.points.append(point)

    def anew(self) -> None:
        """Begin again with a clock at zero, for a fit that is made anew for every point."""
        self.clock = Stopwatch()
        self.clock.start()

    def sample(self, state: State) -> None:
        """Add the predictions of a state to those that are averaged at the end."""
        self.clock.stop()
        self._predicted.append(self.judge.probabilities(state))
        self.clock.start()

    def end(self, iterations: float, state: Callable[[], State]) -> None:
        """Stop the clock at the end of the fit, and add a last point.

        The state is not evaluated again if there is a point of the last iteration.
        """
        self.clock.stop()
        if not self.points or self.points[-1].iterations != iterations:
            self.evaluate(iterations, state())
            return
        self.state = state()
        if self.points[-1].seconds < self.clock.seconds:
            self.points.append(
                self.points[-1]._replace(seconds=self.clock.seconds, wall=self.clock.wall)
            )

    def result(self) -> dict[str, Any]:
        """The figures of the course, as they are kept in the file of records."""
        assert self.state is not None
        last = self.points[-1]
        averaged = None
        if self._predicted:
            averaged = self.judge.log_likelihood_of(np.mean(self._predicted, axis=0))
        columns = {name: [getattr(p, name) for p in self.points] for name in Point._fields}
        # The last point is not rounded, so that it has the figures below.
        for name, digits in _DIGITS.items():
            columns[name][:-1] = [round(value, digits) for value in columns[name][:-1]]
        return {
            "curve": columns,
            "seconds": last.seconds,
            "wall": last.wall,
            "iterations": last.iterations,
            "held_out": last.held_out,
            "other_held_out": self.judge.log_likelihood(self.state, OTHER_INFERENCE),
            "empty": last.empty,
            "averaged": averaged,
            "samples": len(self._predicted),
            "cut": self.cut,
            "budget": self.budget,
        }
