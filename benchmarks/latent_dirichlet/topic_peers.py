"""Other libraries of topic models, fitted under the clock of a course."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .contestants import Contestant, counts
from .course import MARKS, Course, State

try:
    import tomotopy
except ImportError:
    tomotopy = None

# Tomotopy and Mallet's algorithm: number of iterations, and the states at the end whose predictions
# are averaged.
ITERATIONS = 500
SAMPLES, SPACING = 10, 10


def _fit_tomotopy(
    path: Path, k: int, seed: int, course: Course, *, workers: int, **settings: Any
) -> dict[str, Any]:
    course.clock.start()
    X = counts(path, "int32")
    model = tomotopy.LDAModel(k=k, seed=seed, **settings)
    names = np.array([str(word) for word in range(X.shape[1])])
    for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        model.add_doc(np.repeat(names[X.indices[start:stop]], X.data[start:stop]).tolist())
    done = 0
    for upto in _stops():
        model.train(upto - done, workers=workers)
        done = upto
        over = course.passed(done, partial(_state_of_tomotopy, model))
        if over:
            break
        if _is_sampled(done):
            course.sample(_state_of_tomotopy(model))
    course.end(done, partial(_state_of_tomotopy, model))
    return {}


def _is_sampled(iteration: int) -> bool:
    """Whether the predictions after an iteration are among those that are averaged."""
    before = ITERATIONS - iteration
    return before % SPACING == 0 and before < SAMPLES * SPACING


def _stops() -> list[int]:
    """The iterations after which a sampler pauses."""
    marks = {int(mark) for mark in MARKS if 1 <= mark <= ITERATIONS}
    sampled = {i for i in range(1, ITERATIONS + 1) if _is_sampled(i)}
    return sorted({*marks, *sampled, ITERATIONS})


def _state_of_tomotopy(model: Any) -> State:
    order = np.array([int(word) for word in model.used_vocabs])
    topics = np.zeros((model.k, model.num_vocabs))
    for t in range(model.k):
        topics[t, order] = model.get_topic_word_dist(t)
    topics /= topics.sum(axis=1, keepdims=True)
    return State(topics, np.asarray(model.alpha), np.asarray(model.get_count_by_topics()))


def _tomotopy(workers: int) -> Contestant:
    settings: dict[str, Any] = {"tw": "one", "min_cf": 0, "alpha": 0.1, "eta": 0.01}
    words = ", ".join(f"{key}={value!r}" for key, value in settings.items())
    return Contestant(
        partial(_fit_tomotopy, workers=workers, **settings),
        f"{ITERATIONS} iterations, {words}, workers={workers}",
    )
