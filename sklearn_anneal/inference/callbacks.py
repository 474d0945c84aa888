"""The bridge to scikit-learn's callbacks: the only place that knows their method names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Attributes = Callable[[], dict[str, Any]]


class FitCallbacks:
    """The task tree of one fit: restarts, and the passes of each.

    Parameters
    ----------
    estimator : estimator instance
        With ``_init_callback_context`` from scikit-learn's ``CallbackSupportMixin``.
    n_restarts : int
    X, y : array-like
        What ``fit`` was given.
    metadata : dict
        Sample weights and the like, as the scorers of callbacks take them.
    """

    def __init__(self, estimator: Any, n_restarts: int, X: Any, y: Any, metadata: dict[str, Any]):
        self.estimator = estimator
        self.stopped = False
        # Scoring callbacks skip tasks without y; scorers of unsupervised models ignore it.
        target = np.broadcast_to(0, len(X)) if y is None else y
        self._data = {"X": X, "y": target, "metadata": metadata}
        self._root = estimator._init_callback_context(
            max_subtasks=n_restarts, sequential_subtasks=False
        )
        self._root.call_on_fit_task_begin(estimator=estimator, **self._data)
        self._restarts: dict[int, Any] = {}

    def begin_restart(self, index: int, max_passes: int) -> None:
        """A restart of at most ``max_passes`` passes begins."""
        self._restarts[index] = task = self._root.subcontext(
            task_name="restart", task_id=index, max_subtasks=max_passes
        )
        task.call_on_fit_task_begin(estimator=self.estimator, **self._data)

    def end_pass(self, index: int, attributes: Attributes) -> bool:
        """A pass has ended; whether a callback asks to stop the restart."""
        task = self._restarts[index].subcontext(task_name="pass")
        task.call_on_fit_task_begin(estimator=self.estimator, **self._data)
        stop = self._ended(task, attributes)
        self.stopped = self.stopped or stop
        return stop

    def end_restart(self, index: int, attributes: Attributes) -> None:
        """A restart has ended; a callback may ask that no other begins."""
        stop = self._ended(self._restarts[index], attributes)
        self.stopped = self.stopped or stop

    def end(self, attributes: Attributes) -> None:
        """The whole fit has ended."""
        self._ended(self._root, attributes)

    def _ended(self, task: Any, attributes: Attributes) -> bool:
        return task.call_on_fit_task_end(
            estimator=self.estimator, **self._data, reconstruction_attributes=attributes
        )
