"""Clocks, and words for figures.

A clock calls a function without arguments and returns the seconds that it took. Work in a single
thread is measured in processor time, which other work on the machine changes less than wall time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

# Clocks


def processor_seconds(run: Callable[[], object]) -> float:
    """Processor time of one call, all threads."""
    start = time.process_time()
    run()
    return time.process_time() - start


def wall_seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def interleaved(
    runs: Mapping[Any, Callable[[], object]],
    rounds: int,
    clock: Callable[[Callable[[], object]], float] = processor_seconds,
) -> dict[Any, np.ndarray]:
    """Times of several calls, each made once per round.

    The order is reversed in every other round, so that no call always follows the same other one.
    """
    times: dict[Any, list[float]] = {key: [] for key in runs}
    keys = list(runs)
    for i in range(rounds):
        for key in keys if i % 2 == 0 else keys[::-1]:
            times[key].append(clock(runs[key]))
    return {key: np.array(values) for key, values in times.items()}


# Words


def spread(values: np.ndarray, digits: int = 2) -> str:
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def milliseconds(values: np.ndarray) -> str:
    return f"{1e3 * np.median(values):.1f}"


def reached(holds: bool) -> str:
    return "reached" if holds else "**not reached**"


def progress(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {what}", file=sys.stderr, flush=True)


def load() -> str:
    """How busy the machine is, in words."""
    try:
        one, five, _ = os.getloadavg()
    except (AttributeError, OSError):
        return "unknown"
    return f"{one:.1f} (mean of one minute), {five:.1f} (of five)"
