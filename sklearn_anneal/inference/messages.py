"""The lines that ``verbose`` prints: how a fit begins, how it goes on, and why it ends.

Lines are printed with ``print``, because scikit-learn's estimators do so. With ``verbose=1`` a pass
has a line if its number is a multiple of ``verbose_interval``, or if nothing was printed for some
seconds; with ``verbose=2`` every pass has one, with the rise of the bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from ..annealing._base import Annealing
from ..kernels import COMPILATIONS
from .progress import Trace

# Seconds without a line after which the next pass has one, whatever its number is.
SILENCE = 5.0


def described(method: Annealing) -> str:
    """Return an annealing method with its parameters in one line."""
    return " ".join(repr(method).split())


def number(value: float) -> str:
    """Return a count with separators of thousands; weights can make it a fraction."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


@dataclass
class Messages:
    """The lines of one fit.

    Parameters
    ----------
    verbose : int
        0 for no line at all; 2 for more lines than 1.
    interval : int
        The number of passes, or of batches of a stream, from one line to the next.
    """

    verbose: int
    interval: int
    begun: bool = False  # whether the line has been printed that says what is fitted to what
    _start: float = field(default_factory=perf_counter)
    _last: float = field(default_factory=perf_counter)
    _compiling: float = field(default_factory=lambda: COMPILATIONS.seconds)

    def say(self, text: str) -> None:
        """Print a line."""
        if self.verbose:
            self._last = perf_counter()
            print(text, flush=True)

    def seconds(self) -> str:
        """Return how long the fit has taken so far."""
        return f"{perf_counter() - self._start:.1f} s"

    def due(self, n: int) -> bool:
        """Return whether pass or batch number n has a line."""
        if self.verbose != 1:
            return self.verbose > 1
        return n % self.interval == 0 or perf_counter() - self._last > SILENCE

    def after_pass(
        self, name: str, trace: Trace, n_annealed: int, n_plain: int, n_observations: float
    ) -> None:
        """Print where a restart or a reheat is, whose name is empty if it is the only one.

        Its schedule has ``n_annealed`` passes, and at most ``n_plain`` at T = 1 follow. The rise of
        the bound is divided by the weighted number of observations.
        """
        n = len(trace.lower_bounds)
        if not self.due(n):
            return
        parts = [name] if name else []
        plain = [f"≤{n_plain:,}"] if n_plain else []
        if n <= n_annealed:
            parts.append(" + ".join([f"pass {n}/{n_annealed}", *plain]))
        else:
            before = f"{n_annealed} + " if n_annealed else ""
            parts.append(f"pass {before}{n - n_annealed}/{''.join(plain)}")
        parts.append(f"T {trace.temperatures[-1]:.3g}")
        # Some methods evaluate the bound in some passes only, and it is NaN in the others.
        known = [bound for bound in trace.lower_bounds if np.isfinite(bound)]
        if known:
            since = "" if np.isfinite(trace.lower_bounds[-1]) else "last "
            parts.append(f"{since}bound {known[-1]:.6f}")
        if self.verbose > 1 and len(known) > 1 and np.isfinite(trace.lower_bounds[-1]):
            rise = (known[-1] - known[-2]) / n_observations
            parts.append(f"rise {rise:.2e} per observation")
        self.say(" · ".join([*parts, self.seconds()]))

    def ended(self, name: str, trace: Trace, left: str) -> None:
        """Print why a restart or a reheat has ended, and where.

        ``left`` is the reason if it was left before its end.
        """
        parts = [name] if name else []
        reason = trace.reason or left
        parts.append(f"ended after {_counted(len(trace.lower_bounds), 'pass')}, because {reason}")
        if trace.reason:
            parts.append(f"bound {trace.final:.6f}")
        self.say(" · ".join([*parts, self.seconds()]))

    def end(self, trace: Trace, best_restart: int, n_passes: int) -> None:
        """Print the result of a fit, and how much of its time was compilation."""
        compiled = COMPILATIONS.seconds - self._compiling
        rest = f", of which {compiled:.1f} s compiled kernels" if compiled > 0.05 else ""
        self.say(
            f"fitted in {self.seconds()}{rest} · bound {trace.final:.6f} from restart "
            f"{best_restart} · {_counted(n_passes, 'pass')} in all"
        )

    def after_batch(
        self, n: int, temperature: float, bound: float, seen: float, total: float | None
    ) -> None:
        """Print where a stream is after n batches, with the temperature and the bound of the last.

        ``seen`` is the weight of the data so far, and ``total`` that of the stream, if it is given.
        """
        if self.due(n):
            whole = "" if total is None else f" of {number(total)}"
            self.say(
                f"batch {n} · T {temperature:.3g} · bound {bound:.6f} · "
                f"{number(seen)}{whole} data points · {self.seconds()}"
            )


def _counted(n: int, noun: str) -> str:
    """Return "1 pass" or "2 passes"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}es"
