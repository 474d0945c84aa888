"""The bridge to scikit-learn's callbacks. No other module uses the names of their methods."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import _num_samples

from ..annealing._base import Annealing, Context
from ..data.units import Units
from .loop import Monitor
from .messages import Messages, described
from .progress import Progress, Trace

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from sklearn.base import BaseEstimator

Attributes = Callable[[], dict[str, object]]
"""A function that returns the fitted attributes as they would be if the fit ended now."""


class FitCallbacks:
    """The tree of tasks that callbacks see of a fit: restarts, moves, and the passes of each.

    A fit that tries several numbers of components has a task for each of these runs, and its
    restarts and moves belong to them.

    Parameters
    ----------
    estimator : estimator instance
        An estimator with ``_init_callback_context`` of scikit-learn's ``CallbackSupportMixin``.
    n_restarts : int
        Number of restarts.
    moves : bool
        Whether moves follow, whose number is not fixed beforehand.
    X, y : array-like
        The arguments of ``fit``.
    metadata : dict
        Sample weights and similar arguments of ``fit``, which callbacks pass to their scorers.
    """

    def __init__(
        self,
        estimator: BaseEstimator,
        n_restarts: int,
        moves: bool,
        X: ArrayLike,
        y: ArrayLike | None,
        metadata: dict[str, object],
    ):
        self.estimator = estimator
        # Runs share it, because a callback that asks for the end of one ends the whole fit.
        self._stop = threading.Event()
        # Scoring callbacks skip tasks without y. An array of zeros avoids that, and scorers of
        # unsupervised models ignore it.
        target = np.broadcast_to(0, _num_samples(X)) if y is None else y
        self._data = {"X": X, "y": target, "metadata": metadata}
        self._root = estimator._init_callback_context(
            max_subtasks=None if moves else n_restarts, sequential_subtasks=False
        )
        self._root.call_on_fit_task_begin(estimator=estimator, **self._data)
        self._n_restarts = n_restarts
        self._n_runs = 0
        self._phases: dict[str, Any] = {}
        # Restarts in several threads report one at a time, because callbacks count what they see.
        self._lock = threading.Lock()

    @property
    def stopped(self) -> bool:
        """Whether a callback has requested the end of the fit."""
        return self._stop.is_set()

    def run(self, name: str, n_restarts: int, moves: bool) -> FitCallbacks:
        """Report that one of several runs of the fit begins; return the callbacks of its tasks."""
        part = copy.copy(self)
        part._root = self._root.subcontext(
            task_name=name,
            task_id=self._n_runs,
            max_subtasks=None if moves else n_restarts,
            sequential_subtasks=False,
        )
        self._n_runs += 1
        part._n_restarts, part._phases = n_restarts, {}
        part._root.call_on_fit_task_begin(estimator=self.estimator, **self._data)
        return part

    def begin(self, phase: str, index: int, max_passes: int) -> None:
        """Report to the callbacks that a restart or a move of at most ``max_passes`` passes begins.

        Nothing is reported if it has begun before, and goes on after a pause.
        """
        name = f"{phase} {index}"
        if name in self._phases:
            return
        task_id = index + (0 if phase == "restart" else self._n_restarts)
        self._phases[name] = task = self._root.subcontext(
            task_name=phase, task_id=task_id, max_subtasks=max_passes
        )
        task.call_on_fit_task_begin(estimator=self.estimator, **self._data)

    def end_pass(self, phase: str, index: int, attributes: Attributes) -> bool:
        """Report the end of a pass, and return whether a callback requests the end of the fit.

        It may have done so after a pass of another restart, which runs at the same time.
        """
        task = self._phases[f"{phase} {index}"].subcontext(task_name="pass")
        with self._lock:
            task.call_on_fit_task_begin(estimator=self.estimator, **self._data)
            self._end_task(task, attributes)
            return self.stopped

    def end_phase(self, phase: str, index: int, attributes: Attributes) -> None:
        """Report to the callbacks that a restart or a move has ended.

        One of them may ask that no other begins.
        """
        with self._lock:
            self._end_task(self._phases[f"{phase} {index}"], attributes)

    def end(self, attributes: Attributes) -> None:
        """Report to the callbacks that the whole fit, or this run of it, has ended."""
        self._end_task(self._root, attributes)

    def _end_task(self, task: Any, attributes: Attributes) -> None:
        if task.call_on_fit_task_end(
            estimator=self.estimator, **self._data, reconstruction_attributes=attributes
        ):
            self._stop.set()


class FitMonitor:
    """The observer of a fit, which passes reports on to callbacks and prints for ``verbose``."""

    def __init__(
        self,
        estimator: BaseEstimator,
        callbacks: FitCallbacks | None,
        units: Units,
        n_restarts: int,
    ):
        self.estimator = estimator
        self.callbacks = callbacks
        self.units = units
        self.messages = Messages(int(estimator.verbose), estimator.verbose_interval)
        self._several = n_restarts > 1
        self._run = ""

    @classmethod
    def of(
        cls,
        estimator: BaseEstimator,
        n_restarts: int,
        moves: bool,
        X: ArrayLike,
        y: ArrayLike | None,
        metadata: dict[str, object],
        units: Units,
    ) -> FitMonitor | None:
        """Return the monitor of a fit; None without callbacks and without ``verbose``."""
        callbacks = None
        if getattr(estimator, "_skl_callbacks", []):
            callbacks = FitCallbacks(estimator, n_restarts, moves, X, y, metadata)
        elif not estimator.verbose:
            return None
        return cls(estimator, callbacks, units, n_restarts)

    @property
    def stopped(self) -> bool:
        """Whether a callback has requested the end of the fit."""
        return self.callbacks is not None and self.callbacks.stopped

    def run(self, name: str, units: Units, n_restarts: int, moves: bool) -> FitMonitor:
        """Begin one of several runs of the fit; return the monitor of its restarts and moves.

        ``units`` are those to which this run is fitted, and ``name`` says how it differs from the
        others.
        """
        part = copy.copy(self)
        part.units, part._several, part._run = units, n_restarts > 1, name
        if self.callbacks is not None:
            part.callbacks = self.callbacks.run(name, n_restarts, moves)
        return part

    def end_run(self, progress: Progress) -> None:
        """Report to the callbacks that this run has ended, which may end the whole fit."""
        if self.callbacks is not None:
            self.callbacks.end(self._attributes(progress.ctx))

    def begin(self, data: str, strategy: Annealing, n_restarts: int, effort: float) -> None:
        """Print the estimator, its method and the data before the first pass of all runs."""
        if self.messages.verbose and not self.messages.begun:
            self.messages.begun = True
            what = f"{described(self.estimator)} · {described(strategy)} · {data}"
            jobs = self.estimator.n_jobs or 1
            self.say(f"{what} · restarts: {n_restarts} · effort: {effort:g} · n_jobs: {jobs}")

    def say(self, text: str) -> None:
        """Print a line if ``verbose`` asks for lines."""
        self.messages.say(text)

    def begin_phase(
        self, phase: str, index: int, n_annealed: int, n_plain: int, note: str | None = None
    ) -> Monitor:
        """Begin a restart or a move, or go on with it; return the function to call after passes.

        The phase is ``"restart"`` or the name of a move, and the note is what there is to say about
        its annealing method.
        """
        name = self._name(phase, index)
        if note is not None:
            self.say(" · ".join(filter(None, (name, note))))
        if self.callbacks is not None:
            self.callbacks.begin(phase, index, n_annealed + n_plain)

        def after_pass(ctx: Context, trace: Trace) -> bool:
            self.messages.after_pass(name, trace, n_annealed, n_plain, self.units.n_observations)
            return self.callbacks is not None and self.callbacks.end_pass(
                phase, index, self._attributes(ctx)
            )

        return after_pass

    def end_phase(self, phase: str, index: int, progress: Progress) -> None:
        """Print that a restart or a move has ended, or will not go on after a pause."""
        left = "a callback asked to stop" if self.stopped else "other restarts are better"
        self.messages.ended(self._name(phase, index), progress.trace, left)
        if self.callbacks is not None:
            self.callbacks.end_phase(phase, index, self._attributes(progress.as_returned()))

    def _name(self, phase: str, index: int) -> str:
        shown = f"{phase} {index}" if self._several or phase != "restart" else ""
        return " · ".join(filter(None, (self._run, shown)))

    def end(self, progress: Progress, best_restart: int, n_passes: int) -> None:
        """Print that the whole fit has ended, with this state and after so many passes in all."""
        self.messages.end(progress.trace, best_restart, n_passes)
        if self.callbacks is not None:
            self.callbacks.end(self._attributes(progress.ctx))

    def _attributes(self, ctx: Context) -> Attributes:
        return partial(self.estimator._snapshot, ctx, self.units)
