"""Clocks of the passes and of the minibatches of fits."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from sklearn_anneal.inference import conjugate, loop, visits


class PassClock:
    """Times of the passes of fits that are made in a ``with`` block.

    Attributes
    ----------
    processor, wall : list of float
        Seconds of each pass, all threads of this process.
    at_end : tuple of callable
        Called after every pass.
    parameter_bytes : int
        Size of the natural parameters after the last pass.
    """

    def __init__(self, *at_end: Callable[[], None]) -> None:
        self.processor: list[float] = []
        self.wall: list[float] = []
        self.at_end = at_end
        self.parameter_bytes = 0

    def __enter__(self) -> PassClock:
        self._stack = ExitStack()
        for name in ("_batch_pass", "_minibatch_pass"):
            timed = partial(self._timed, getattr(loop, name))
            self._stack.enter_context(patch.object(loop, name, timed))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.close()

    def _timed(self, one_pass: Callable[..., bool], *args: Any) -> bool:
        start = time.process_time(), time.perf_counter()
        over = one_pass(*args)
        self.processor.append(time.process_time() - start[0])
        self.wall.append(time.perf_counter() - start[1])
        q = args[0].ctx.q
        self.parameter_bytes = sum(np.asarray(value).nbytes for value in q.values())
        for call in self.at_end:
            call()
        return over

    def per_pass(self, times: list[float]) -> float:
        """Median seconds of a pass, without the last, which ends the fit and makes no update."""
        return float(np.median(times[:-1]))


class BatchClock:
    """Processor times of the minibatches of fits that are made in a ``with`` block.

    Attributes
    ----------
    visits, updates : list of float
        Seconds of the visit to each minibatch, and of the update after it.
    """

    def __init__(self) -> None:
        self.visits: list[float] = []
        self.updates: list[float] = []
        self._visit = 0.0

    def __enter__(self) -> BatchClock:
        self._stack = ExitStack()
        visit = partial(self._visited, visits.visit)
        self._stack.enter_context(patch.object(visits, "visit", visit))
        update = partial(self._updated, conjugate.update)
        self._stack.enter_context(patch.dict(loop.UPDATES, conjugate=update))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.close()

    def _visited(self, visit: Callable[..., Any], *args: Any, **how: Any) -> Any:
        start = time.process_time()
        found = visit(*args, **how)
        # The visits that evaluate the bound have no update after them, and are not recorded.
        self._visit = time.process_time() - start
        return found

    def _updated(self, update: Callable[..., Any], *args: Any, **how: Any) -> Any:
        seconds = self._visit
        start = time.process_time()
        found = update(*args, **how)
        self.visits.append(seconds)
        self.updates.append(time.process_time() - start)
        return found
