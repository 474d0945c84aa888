"""The bridge to scikit-learn's callbacks. No other module uses the names of their methods."""

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
"""A function that returns the fitted attributes as they would be if the fit ended now."""


class FitCallbacks:
    """The tree of tasks that callbacks see of one fit: its restarts, and the passes of each.

    Parameters
    ----------
    estimator : estimator instance
        An estimator with ``_init_callback_context`` of scikit-learn's ``CallbackSupportMixin``.
    n_restarts : int
    X, y : array-like
        The arguments of ``fit``.
    metadata : dict
        Sample weights and similar arguments of ``fit``, which callbacks pass to their scorers.
    """

    def __init__(self, estimator: Any, n_restarts: int, X: Any, y: Any, metadata: dict[str, Any]):
        self.estimator = estimator
        self.stopped = False
        # Scoring callbacks skip tasks without y. An array of zeros avoids that, and scorers of
        # unsupervised models ignore it.
        target = np.broadcast_to(0, _num_samples(X)) if y is None else y
        self._data = {"X": X, "y": target, "metadata": metadata}
        self._root = estimator._init_callback_context(
            max_subtasks=n_restarts, sequential_subtasks=False
        )
        self._root.call_on_fit_task_begin(estimator=estimator, **self._data)
        self._restarts: dict[int, Any] = {}

    def begin_restart(self, index: int, max_passes: int) -> None:
        """Tell the callbacks that a restart of at most ``max_passes`` passes begins."""
        self._restarts[index] = task = self._root.subcontext(
            task_name="restart", task_id=index, max_subtasks=max_passes
        )
        task.call_on_fit_task_begin(estimator=self.estimator, **self._data)

    def end_pass(self, index: int, attributes: Attributes) -> bool:
        """Tell the callbacks that a pass has ended, and return whether one asks to stop."""
        task = self._restarts[index].subcontext(task_name="pass")
        task.call_on_fit_task_begin(estimator=self.estimator, **self._data)
        stop = self._end_task(task, attributes)
        self.stopped = self.stopped or stop
        return stop

    def end_restart(self, index: int, attributes: Attributes) -> None:
        """Tell the callbacks that a restart has ended; one may ask that no other begins."""
        stop = self._end_task(self._restarts[index], attributes)
        self.stopped = self.stopped or stop

    def end(self, attributes: Attributes) -> None:
        """Tell the callbacks that the whole fit has ended."""
        self._end_task(self._root, attributes)

    def _end_task(self, task: Any, attributes: Attributes) -> bool:
        return task.call_on_fit_task_end(
            estimator=self.estimator, **self._data, reconstruction_attributes=attributes
        )


class FitMonitor:
    """The observer of a fit, which passes reports on to callbacks and prints for ``verbose``."""

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
        """Return the monitor of a fit; None without callbacks and without ``verbose``."""
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
        """Begin a restart, and return the function to call after each of its passes."""
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
