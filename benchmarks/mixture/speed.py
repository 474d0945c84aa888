"""Speed of mixtures of binary columns and categories against StepMix's.

All tables are drawn. ``benchmarks/common/speed.py`` says how the command is run. Without StepMix,
only ours is measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sklearn_anneal import AnnealedBayesianMixture

from ..common import speed
from ..common.measuring import milliseconds, processor_seconds, progress, reached, spread
from ..common.peers import is_there
from ..common.report import Page
from ..common.speed import METHODS, Fit, Speed, of_passes, pass_times

try:
    from stepmix import StepMix
except ImportError:
    StepMix = None

OURS, PEER = "ours", "StepMix"
# StepMix is so slow that it makes three passes less one.
_PASSES_OF_PEER = {PEER: (1, 4)}
_PASSES_OF_FIT = 100


@dataclass(frozen=True)
class Case:
    """A table on which passes are compared.

    Attributes
    ----------
    name : str
    emission : {"bernoulli", "categorical"}
    n_features, n_levels : int
    n_components : int
        K of the fits.
    target : float
        How many times as long a pass of StepMix should take.
    missing : float
        The share of the cells that are missing.
    n_distinct : int or None
        The number of distinct rows; None if there is no limit.
    """

    name: str
    emission: str
    n_features: int
    n_levels: int
    n_components: int
    target: float
    missing: float = 0.0
    n_distinct: int | None = None


@dataclass(frozen=True)
class Size(speed.Size):
    """The size of a run: the number of rows, and the tables."""

    n_rows: int = 50_000
    cases: tuple[Case, ...] = (
        Case("binary", "bernoulli", 100, 2, 20, 10.0),
        Case("binary, 10 % missing", "bernoulli", 100, 2, 20, 5.0, missing=0.1),
        Case("survey, 1,000 distinct rows", "categorical", 20, 4, 10, 20.0, n_distinct=1000),
        Case("four categories", "categorical", 100, 4, 20, 5.0),
    )


FULL = Size(7, (1, 21))
QUICK = Size(
    rounds=1,
    passes=(1, 4),
    quick=True,
    n_rows=300,
    cases=tuple(
        replace(c, n_features=5, n_components=2, n_distinct=c.n_distinct and 50) for c in FULL.cases
    ),
)


def draw(case: Case, n_rows: int) -> np.ndarray:
    """Draw a table from a mixture of eight components; missing cells are NaN."""
    rng = np.random.default_rng(0)
    n = case.n_distinct or n_rows
    p = rng.dirichlet(np.ones(case.n_levels), size=(8, case.n_features)).cumsum(axis=2)
    limits = p[rng.integers(8, size=n)]
    X = (rng.random((n, case.n_features, 1)) > limits[:, :, :-1]).sum(axis=2).astype(float)
    if case.n_distinct is not None:
        # Every row occurs, so that the number of distinct ones does not depend on chance.
        X = X[np.concatenate([np.arange(n), rng.integers(n, size=n_rows - n)])]
    X[rng.random(X.shape) < case.missing] = np.nan
    return X


def our_fit(case: Case, X: np.ndarray, annealing: str = "none") -> Fit:
    """Fits with fixed priors."""
    settings = {"weight_concentration_prior": None, "emissionprob_prior": None, "tol": 0}
    settings |= {"emission": case.emission, "random_state": 0}

    def fit(n: int) -> AnnealedBayesianMixture:
        made = AnnealedBayesianMixture(case.n_components, **settings)
        return of_passes(made, annealing, n).fit(X)

    return fit


def peer_fit(case: Case, X: np.ndarray) -> Fit:
    name = {"bernoulli": "binary", "categorical": "categorical"}[case.emission]
    settings: dict[str, Any] = {"measurement": f"{name}_nan" if case.missing else name}
    settings |= {"abs_tol": 0.0, "rel_tol": 0.0, "random_state": 0, "progress_bar": 0}
    return lambda n: StepMix(case.n_components, max_iter=n, **settings).fit(X)


def measure_passes(page: Page, size: Size) -> None:
    page.section(
        "Time per pass",
        f"N = {size.n_rows:,}, float64 arrays with NaN for missing cells, one thread, processor "
        'time. Ours: `annealing="none"`, fixed priors; StepMix: `binary`, `categorical`, or '
        "their variants with `_nan` where cells are missing. Ratio: StepMix's time over ours, "
        f"median and quartiles of {size.rounds} rounds. Ours finds rows that are equal once per "
        "fit and processes them once per pass; this and other work that is done once is not in the "
        f"time of a pass, but in that of a fit of {_PASSES_OF_FIT} passes, which is the time of a "
        f"fit of one pass and {_PASSES_OF_FIT - 1} times that of a pass.",
    )
    header = ["table", "columns × levels", "K", "ours, ms", "StepMix, ms", "ratio", "target"]
    fits = [f"ours, {_PASSES_OF_FIT} passes, s", f"StepMix, {_PASSES_OF_FIT} passes, s"]
    page.table([*header, *fits], [_passes_row(case, size) for case in size.cases])


def _passes_row(case: Case, size: Size) -> list[str]:
    progress(f"passes, {case.name}")
    X = draw(case, size.n_rows)
    fits = {OURS: our_fit(case, X)}
    if is_there("stepmix", StepMix):
        fits[PEER] = peer_fit(case, X)
    times = pass_times(fits, {}, size, passes=_PASSES_OF_PEER)
    once = {name: processor_seconds(lambda fit=fit: fit(1)) for name, fit in fits.items()}
    whole = {
        name: f"{once[name] + (_PASSES_OF_FIT - 1) * float(np.median(times[name])):.2f}"
        for name in fits
    }
    cells = [case.name, f"{case.n_features} × {case.n_levels}", str(case.n_components)]
    cells.append(milliseconds(times[OURS]))
    if PEER not in fits:
        return [*cells, "–", "–", "–", whole[OURS], "–"]
    ratios = times[PEER] / times[OURS]
    holds = reached(bool(np.median(ratios) >= case.target))
    cells += [milliseconds(times[PEER]), spread(ratios, 1), f"{case.target:g}: {holds}"]
    return [*cells, whole[OURS], whole[PEER]]


def measure_methods(page: Page, size: Size) -> None:
    case = size.cases[0]
    page.section(
        "What annealing costs per pass",
        f'Ratio of the time per pass to that of `annealing="none"`, N = {size.n_rows:,}, binary '
        f"columns as above, one thread, processor time: median and quartiles of {size.rounds} "
        "rounds.",
    )
    progress("methods")
    X = draw(case, size.n_rows)
    times = pass_times({name: our_fit(case, X, name) for name in ("none", *METHODS)}, {}, size)
    rows = [[n, milliseconds(t), spread(t / times["none"])] for n, t in times.items()]
    page.table(["method", "ms", "ratio"], rows)


SPEED = Speed(
    __doc__,
    model="mixture",
    title="Speed of mixtures of binary columns and categories",
    output="mixtures_speed.md",
    sections={"passes": measure_passes, "methods": measure_methods},
    full=FULL,
    quick=QUICK,
    peers={"stepmix": StepMix},
)
main = SPEED.main

if __name__ == "__main__":
    main()
