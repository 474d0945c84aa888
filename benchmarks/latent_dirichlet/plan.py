"""The fits that the experiments with topic models consist of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ..common.reproduction import Cache, Record, run_missing
from .data import available
from .fits import Spec

# Names of the papers' methods of batch inference.
VI, DET, LIKELIHOOD, LOCAL = (
    "VI",
    "deterministic, posterior",
    "deterministic, likelihood",
    "deterministic, local",
)
RECOMMENDED = "deterministic, as recommended"
STOCH, PROXIMITY, BEST_OF_5 = "stochastic", "proximity", "VI, best of 5"
# Names of the papers' methods of stochastic inference.
SVI, AVI, TEMPERING, LOCAL_TEMPERING = "SVI", "AVI", "tempering", "local tempering"
APPROXIMATE, EXACT = "SSVI-A", "SSVI"
FAST, HOT = "AVI, fast", "AVI, T₀ = 8"

PARTS = ("batch", "online", "priors", "figure3")


@dataclass(frozen=True)
class Size:
    """The size of the experiments.

    Attributes
    ----------
    batch, online, gibbs, priors : tuple of str
        Corpora of each part; ``gibbs`` are those on which Gibbs sampling is run.
    seeds, few : int
        Number of repetitions in general, and on the grid of priors.
    topics : tuple of int
        Numbers of topics (K) of batch inference.
    k : int
        K of all other fits, and of the restarts of plain inference.
    passes, online_passes, grid_passes : int
        Number of passes of batch inference, of stochastic inference, and of stochastic inference
        on the grid of priors.
    budget : int
        Number of passes of plain stochastic inference whose time is the limit of all methods.
    polish : int
        Number of passes of plain stochastic inference that follow each method.
    sizes : tuple of int
        Documents per batch: one size for all methods, and the two sizes of SVI+.
    grid : tuple of float
        Values of α and of η.
    """

    batch: tuple[str, ...] = ("AP", "NIPS", "20 Newsgroups")
    online: tuple[str, ...] = ("AP", "20 Newsgroups")
    gibbs: tuple[str, ...] = ("AP",)
    priors: tuple[str, ...] = ("AP",)
    seeds: int = 3
    few: int = 2
    topics: tuple[int, ...] = (20, 50, 100)
    k: int = 50
    passes: int = 100
    online_passes: int = 20
    grid_passes: int = 15
    budget: int = 40
    polish: int = 5
    sizes: tuple[int, int, int] = (200, 500, 1000)
    grid: tuple[float, ...] = (0.01, 0.03, 0.1)
    quick: bool = False


FULL = Size()
_DRAWN = ("drawn",)
QUICK = Size(
    batch=_DRAWN,
    online=_DRAWN,
    gibbs=_DRAWN,
    priors=_DRAWN,
    seeds=2,
    topics=(3, 4),
    k=3,
    passes=4,
    online_passes=2,
    grid_passes=2,
    budget=2,
    polish=1,
    sizes=(15, 20, 30),
    grid=(0.01, 0.1),
    quick=True,
)

BATCH = {
    VI: "none",
    LOCAL: "local",
    DET: "posterior",
    RECOMMENDED: "recommended",
    LIKELIHOOD: "likelihood",
    STOCH: "stochastic",
    PROXIMITY: "proximity",
}
LOCAL_STEPS = ("mean_field", "cvb0", "gibbs")
STRUCTURED = {SVI: "none", APPROXIMATE: "approximate", EXACT: "exact"}
# Methods for the paper's claims about schedules; they are not run at equal time.
SCHEDULES = {FAST: "likelihood, fast", HOT: "likelihood, hot"}
GRID = {
    SVI: ("none", "mean_field"),
    APPROXIMATE: ("approximate", "mean_field"),
    EXACT: ("exact", "mean_field"),
    f"{APPROXIMATE} + cvb0": ("approximate", "cvb0"),
}


# What is run


def with_local_step(method: str, local_step: str) -> str:
    """The name of a method that is combined with a local step."""
    return method if local_step == "mean_field" else f"{method} + {local_step}"


def batch_cells(size: Size) -> dict[tuple[str, int, str], Spec]:
    """Fits by (corpus, K, method)."""
    cells = {
        (corpus, k, name): Spec(corpus, method, k, size.passes)
        for corpus in size.batch
        for k in size.topics
        for name, method in BATCH.items()
    }
    k = size.k
    return cells | {
        (corpus, k, BEST_OF_5): Spec(corpus, "none", k, size.passes, n_init=5)
        for corpus in size.batch
    }


def online_cells(size: Size) -> dict[tuple[str, str], Spec]:
    """Fits at equal passes by (corpus, method)."""
    small, *larger = size.sizes
    cells = {}
    for corpus in size.online:
        sparse = 1.0 / size.k
        base = Spec(
            corpus, "none", size.k, size.online_passes, sparse, sparse, small, polish=size.polish
        )
        own = {
            with_local_step(name, local_step): replace(base, method=method, local_step=local_step)
            for local_step in LOCAL_STEPS
            for name, method in STRUCTURED.items()
            if local_step != "gibbs" or corpus in size.gibbs
        }
        tempered = {
            AVI: "likelihood",
            f"{AVI}, local form": "local",
            TEMPERING: "tempering",
            LOCAL_TEMPERING: "local tempering",
        }
        own |= {name: replace(base, method=m) for name, m in (tempered | SCHEDULES).items()}
        for label, n in zip(FULL.sizes[1:], larger, strict=True):
            noisy = {
                f"SVI, |S| = {label}": "none",
                f"SVI+, |S| = {label}": "svi_plus",
                f"SVI+, |S| = {label}, then SVI": "svi_plus, then plain",
            }
            own |= {name: replace(base, method=m, batch_size=n) for name, m in noisy.items()}
        cells |= {(corpus, name): spec for name, spec in own.items()}
    return cells


def timed_cells(size: Size, passes: dict[tuple[str, str], Record]) -> dict[tuple[str, str], Spec]:
    """Fits at equal processor time, whose passes follow from the times of those at equal passes.

    There are none for a corpus without a time for plain stochastic inference.
    """
    cells = {}
    for (corpus, name), spec in online_cells(size).items():
        measured, plain = passes.get((corpus, name)), passes.get((corpus, SVI))
        if measured is None or plain is None or name in SCHEDULES:
            continue
        share = _pass_seconds(plain) / _pass_seconds(measured)
        n = max(1, int(round(size.budget * share, 6)))
        cells[corpus, name] = replace(spec, passes=n, polish=0)
    return cells


def _pass_seconds(record: Record) -> float:
    return float(np.median(record["seconds"] / record["passes"]))


def grid_cells(size: Size) -> dict[tuple[float, float, str], Spec]:
    """Fits by (α, η, method)."""
    return {
        (alpha, eta, name): Spec(
            corpus, method, size.k, size.grid_passes, alpha, eta, size.sizes[0], local_step
        )
        for corpus in size.priors
        for alpha in size.grid
        for eta in size.grid
        for name, (method, local_step) in GRID.items()
    }


def measure(parts: Iterable[str], size: Size, cache: Cache, jobs: int) -> None:
    """Make those fits of the given parts that the cache does not have."""
    kinds = ("batch", "online", "gibbs", "priors")
    there = available(dict.fromkeys(name for kind in kinds for name in getattr(size, kind)))
    size = replace(size, **{k: tuple(n for n in getattr(size, k) if n in there) for k in kinds})
    if "batch" in parts:
        run_missing(batch_cells(size).values(), size.seeds, cache, jobs)
    if "online" in parts or "figure3" in parts:
        run_missing(online_cells(size).values(), size.seeds, cache, jobs)
    if "online" in parts:
        passes = cache.records(online_cells(size), size.seeds)
        run_missing(timed_cells(size, passes).values(), size.seeds, cache, jobs)
    if "priors" in parts:
        run_missing(grid_cells(size).values(), size.few, cache, jobs)
