"""Two threads against one: the machine's own speed-up, and verdicts on measured speed-ups."""

from __future__ import annotations

from threading import Thread

import numpy as np

from sklearn_anneal.kernels.hidden_markov import forward_backward

from .measuring import reached


class Independent:
    """Forward–backward over some sequences again and again, alone or in two threads at once.

    The two threads share nothing, and all data that they read and write fit into the caches of
    their cores. Their speed-up is therefore the best that the machine can give at that time.

    Parameters
    ----------
    k : int
        Number of states.
    repetitions : int
    """

    def __init__(self, k: int, repetitions: int):
        rng = np.random.default_rng(0)
        self._k, self._repetitions = k, repetitions
        self._pointer = np.arange(0, 2001, 100, dtype=np.int64)
        self._log_emission = -rng.gamma(2.0, 1.0, (2000, k))
        self._log_transition = np.log(rng.dirichlet(np.ones(k), size=k))

    def alone(self) -> None:
        k, n = self._k, len(self._pointer) - 1
        out = np.empty((2000, k)), np.zeros(k), np.zeros((k, k)), np.empty(n), np.empty(n)
        emission = self._log_emission.copy()
        for _ in range(self._repetitions):
            forward_backward(
                emission, self._pointer, self._log_transition[0], self._log_transition,
                np.ones(1), np.empty(0), *out,
            )  # fmt: skip

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
