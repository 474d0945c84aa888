"""Schedules: how a quantity moves from its start to its end while a fit proceeds.

Every schedule is a function of the progress u = passes / n_passes. For u >= 1 it has its end
value, so that every schedule ends in plain variational inference.
"""

from __future__ import annotations

from collections.abc import Callable

# The clock of a stream is a sum of fractions, and rounding can leave it just below 1 at its end:
# 0.1 added ten times is less than 1. So a schedule has ended from this progress on.
END = 1.0 - 1e-9


def geometric(start: float, end: float, progress: float) -> float:
    """``start^(1-u) end^u``, for positive ``start`` and ``end``."""
    # If both ends are equal, rounding would make the product differ from them.
    over = progress >= END or start == end
    return end if over else start ** (1.0 - progress) * end**progress


def linear(start: float, end: float, progress: float) -> float:
    """``start + u (end - start)``."""
    return end if progress >= END else start + progress * (end - start)


def constant(start: float, end: float, progress: float) -> float:
    """``start`` until the end of the schedule, where it jumps to ``end``."""
    return end if progress >= END else start


SCHEDULES: dict[str, Callable[[float, float, float], float]] = {
    "geometric": geometric,
    "linear": linear,
    "constant": constant,
}
