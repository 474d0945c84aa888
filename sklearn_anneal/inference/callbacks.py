"""The bridge to scikit-learn's callbacks: the only place that knows their method names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import _num_samples

from ..annealing._base import Context
from .engine import Monitor, Trace
from .units import Units

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
        target = np.broadcast_to(0, _num_samples(X)) if y is None else y
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


class FitMonitor:
    """What is told how a fit goes on: the callbacks, and the printer of ``verbose``."""

    def __init__(self, estimator: Any, callbacks: FitCallbacks | None, units: Units):
        self.estimator = estimator
        self.callbacks = callbacks
        self.units = units

    @classmethod
    def of(
        cls,
        estimator: Any,
        n_restarts: int,
        X: Any,
        y: Any,
        metadata: dict[str, Any],
        units: Units,
    ) -> FitMonitor | None:
        """The monitor of a fit; None if there is nothing to tell anybody."""
        callbacks = None
        if getattr(estimator, "_skl_callbacks", []):
            callbacks = FitCallbacks(estimator, n_restarts, X, y, metadata)
        elif not estimator.verbose:
            return None
        return cls(estimator, callbacks, units)

    @property
    def stopped(self) -> bool:
        return self.callbacks is not None and self.callbacks.stopped

    def begin(self, index: int, max_passes: int) -> Monitor:
        """What the engine calls after every pass of a restart."""
        if self.callbacks is not None:
            self.callbacks.begin_restart(index, max_passes)

        def after_pass(ctx: Context, trace: Trace) -> bool:
            n = len(trace.lower_bounds)
            if self.estimator.verbose and n % self.estimator.verbose_interval == 0:
                print(
                    f"restart {index}, pass {n}: lower bound {trace.lower_bounds[-1]:.6f}, "
                    f"temperature {trace.temperatures[-1]:.4f}",
                    flush=True,
                )
            return self.callbacks is not None and self.callbacks.end_pass(
                index, self._attributes(ctx)
            )

        return after_pass

    def end_restart(self, index: int, ctx: Context) -> None:
        if self.callbacks is not None:
            self.callbacks.end_restart(index, self._attributes(ctx))

    def end(self, ctx: Context) -> None:
        if self.callbacks is not None:
            self.callbacks.end(self._attributes(ctx))

    def _attributes(self, ctx: Context) -> Attributes:
        return partial(self.estimator._snapshot, ctx, self.units)
