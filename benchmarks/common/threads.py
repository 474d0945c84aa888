"""Two threads against one: the machine's own speed-up, and verdicts on measured speed-ups."""

from __future__ import annotations

import time
from threading import Thread

import numba
import numpy as np

from .measuring import reached


@numba.njit(nogil=True)
def _roots(x: np.ndarray, repetitions: int) -> float:
    """Add up square roots of some numbers again and again."""
    total = 0.0
    for _ in range(repetitions):
        for i in range(len(x)):
            total += np.sqrt(x[i] + 1e-300 * total)
    return total


class Independent:
    """Work of one call, without the interpreter, that is done alone or in two threads at once.

    The two threads share nothing, and the few numbers that each reads fit into the cache of its
    core. Their speed-up is therefore the best that the machine can give at that time.

    Parameters
    ----------
    seconds : float, default=0.05
        About how long the work of a thread takes.
    """

    def __init__(self, seconds: float = 0.05):
        self._repetitions = 1
        self.alone()
        start = time.perf_counter()
        self._repetitions = 100
        self.alone()
        self._repetitions = max(1, round(100 * seconds / (time.perf_counter() - start)))

    def alone(self) -> None:
        _roots(np.arange(1000.0), self._repetitions)

    def at_once(self) -> None:
        threads = [Thread(target=self.alone) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def machine_words() -> str:
    """The explanation, for pages, of the column with the machine's own ratio."""
    return (
        "*Machine*: in the same rounds, what two threads that share nothing and stay in their "
        "caches reach (twice the time of one alone over the time of two at once)"
    )


def verdict(ratio: float, machine: float, target: float) -> str:
    """The verdict on a ratio, in words.

    A ratio below the target counts as not measured if the machine itself does not reach the target.
    """
    if ratio < target and machine < target:
        return "**not measured**: a busy machine"
    return reached(ratio >= target)
