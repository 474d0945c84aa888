"""The topic models whose time to quality is compared: settings of ours, and how they are fitted.

Settings are the keyword arguments of the estimator; ``dtype`` is that of the counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, load_npz
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedLatentDirichletAllocation

from .course import Course, State

_USUAL = {"doc_topic_prior": None, "topic_word_prior": None}
_SINGLE = {"dtype": "float32"}

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "single precision": _SINGLE,
    "mean field": {"local_step": "mean_field", **_SINGLE},
    "deterministic": {"annealing": "deterministic", **_USUAL, **_SINGLE},
    "plain": {"annealing": "none", **_USUAL, **_SINGLE},
    "plain, online": {
        "annealing": "none",
        "learning_method": "online",
        "batch_size": 256,
        "max_iter": 10,
        **_USUAL,
        **_SINGLE,
    },
}
"""The settings of our estimator that take part, by the names that tables and figures give them."""

RECOMMENDED = "single precision"
"""The setting that the verdicts are about: the defaults, with counts in single precision."""


class Contestant(NamedTuple):
    """A library with its settings.

    Attributes
    ----------
    fit : callable
        ``fit(path, k, seed, course)`` reads the training documents from a file, fits K topics to
        them, reports to the course, and returns further figures.
    settings : str
        The settings in words; records that were made with other ones do not count.
    """

    fit: Callable[[Path, int, int, Course], dict[str, Any]]
    settings: str


def ours(name: str) -> Contestant:
    """A setting of our estimator as a contestant."""
    settings = SETTINGS[name]

    def fit(path: Path, k: int, seed: int, course: Course) -> dict[str, Any]:
        return _fit_ours(path, k, seed, course, **settings)

    return Contestant(fit, in_words(settings))


def in_words(settings: Mapping[str, Any]) -> str:
    """Keyword arguments in one line."""
    words = ", ".join(f"{key}={value!r}" for key, value in settings.items())
    return " ".join(words.split())


def counts(path: Path, dtype: str) -> csr_matrix:
    """The training documents of a file."""
    return csr_matrix(load_npz(path), dtype=dtype)


def _fit_ours(
    path: Path, k: int, seed: int, course: Course, dtype: str = "float64", **settings: Any
) -> dict[str, Any]:
    watch = Watch(course)
    course.clock.start()
    X = counts(path, dtype)
    lda = AnnealedLatentDirichletAllocation(k, random_state=seed, **settings)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        lda.set_callbacks(watch).fit(X)
    watch.close(lda)
    return {"bound": lda.lower_bound_ / float(X.sum())}


def state_of(lda: AnnealedLatentDirichletAllocation) -> State:
    """Return the parameters of a fitted estimator of ours that are evaluated."""
    components = np.asarray(lda.components_, dtype=np.float64)
    alpha = np.broadcast_to(lda.doc_topic_prior_, len(components))
    eta = np.broadcast_to(lda.topic_word_prior_, components.shape)
    topics = components / components.sum(axis=1, keepdims=True)
    return State(topics, alpha, (components - eta).sum(axis=1))


class Watch:
    """A callback that evaluates a fit of ours after some of its passes.

    A point in the passes of a restart has the topics that the fit would return if it ended there.
    Of a reheat, only its end has a point: a reheat may be thrown away, so that a user who stopped
    it would have the topics from before it.

    Parameters
    ----------
    course : Course
    """

    def __init__(self, course: Course):
        self.course = course
        self.passes = 0
        self._moves: list[int] = []

    def setup(self, estimator, context):
        """Nothing has to be set up."""

    def teardown(self, estimator, context):
        """Nothing has to be cleaned up."""

    def on_fit_task_begin(self, estimator, context):
        # A pass is reported as a whole when it is over, and then its fitted estimator is made,
        # which a fit without callbacks does not do.
        if context.task_name == "pass":
            self.course.clock.stop()

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        if context.task_name not in ("restart", "pass", "fit"):
            self._moves.append(len(self.course.points))
            self.course.evaluate(self.passes, state_of(fitted_estimator))
            self.course.clock.start()
        if context.task_name != "pass":
            return False
        self.passes += 1
        if context.parent.task_name == "restart":
            return self.course.passed(self.passes, lambda: state_of(fitted_estimator))
        over = self.course.is_over()
        self.course.clock.start()
        return over

    def close(self, lda: AnnealedLatentDirichletAllocation) -> None:
        """End the course, and give moves that were not kept the likelihood from before them."""
        course, points = self.course, self.course.points
        course.clock.stop()
        kept = lda.restart_lower_bounds_[lda.best_restart_]
        for where, bound in zip(self._moves, lda.search_results_["lower_bound"], strict=True):
            if bound <= kept:
                before = points[where - 1]
                points[where] = points[where]._replace(held_out=before.held_out, empty=before.empty)
            kept = max(kept, bound)
        course.end(self.passes, lambda: state_of(lda))
