"""Schedules: how a quantity moves from its start to its end while a fit proceeds.

Every schedule is a function of the progress u = passes / n_passes and is at its end value for
u >= 1, so that no schedule stops short of plain variational inference.
"""

from __future__ import annotations

from collections.abc import Callable

# Clocks of streams are sums of fractions: 0.1 added ten times is not quite 1.
_END = 1.0 - 1e-9


def geometric(start: float, end: float, progress: float) -> float:
    """``start^(1-u) end^u``; both ends positive."""
    # Powers of equal ends would multiply to not quite the same.
    over = progress >= _END or start == end
    return end if over else start ** (1.0 - progress) * end**progress


def linear(start: float, end: float, progress: float) -> float:
    """``start + u (end - start)``."""
    return end if progress >= _END else start + progress * (end - start)


def constant(start: float, end: float, progress: float) -> float:
    """``start`` up to the end of the schedule, then ``end`` at once."""
    return end if progress >= _END else start


SCHEDULES: dict[str, Callable[[float, float, float], float]] = {
    "geometric": geometric,
    "linear": linear,
    "constant": constant,
}


def finished(progress: float) -> bool:
    """Whether a schedule with this progress has reached its end."""
    return progress >= _END
