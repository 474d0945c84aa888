"""The fits that the experiments with spike-and-slab factor analysis consist of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ..common.peers import is_there
from ..common.reproduction import Cache, Settings, run_missing, settings_of
from .data import CANCER, DIGITS, DRAWN, N_BERNOULLI, WINE
from .fits import (
    BERNOULLI,
    COORDINATE,
    FACTORS,
    GRADIENT,
    MOFA,
    PEERS,
    PROBABILISTIC,
    SPARSE,
    Spec,
)

PARTS = ("starts", "loadings", "held_out")

VI, RESTARTS, DEFAULT = "VI", "VI, best of 10", "default"
LEARNED = "default, learned variance of loadings"
BY_GRADIENTS, PROXIMITY = "VI, by gradients", "proximity, by gradients"
# Fits of Bernoulli factors by coordinates.
PLAIN, STEEP, REHEATING = "VI", "deterministic, 100 → 1", "reheating"
# The priors of the Bernoulli factors: the paper's, and p is learned.
GIVEN = settings_of(noise_variance=1.0, mean_variance=1.0, activation_prior="auto")


@dataclass(frozen=True)
class Size:
    """The size of the experiments.

    Attributes
    ----------
    bernoulli : int
        Number of rows of Bernoulli factors.
    distances : tuple of float
        Distances of starts from the truth.
    n_steps : int
        Number of steps by gradients, in which k falls.
    rows, components : int
        Number of rows of drawn loadings, and of components of our fits.
    grid : tuple of int
        Numbers of components that peers choose from, of drawn loadings.
    passes : int
        Number of passes of fits by gradients.
    real : tuple of (name, components of our fits)
    wide : tuple of int
        Numbers of components that peers choose from, of real data.
    seeds : int
    """

    bernoulli: int = 200
    distances: tuple[float, ...] = (0.0, 2.5, 5.0, 10.0, 20.0, 50.0)
    n_steps: int = 2000
    rows: int = 500
    components: int = 12
    grid: tuple[int, ...] = (8, 12)
    passes: int = 1000
    real: tuple[tuple[str, int], ...] = ((DIGITS, 30), (CANCER, 20), (WINE, 10))
    wide: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 10, 15, 20, 25, 30, 40)
    seeds: int = 10
    quick: bool = False


FULL = Size()
QUICK = Size(
    bernoulli=30,
    distances=(0.0, 5.0),
    n_steps=20,
    rows=60,
    components=3,
    grid=(3,),
    passes=5,
    real=((WINE, 3),),
    wide=(2, 3),
    seeds=2,
    quick=True,
)


def starts_cells(size: Size) -> dict[tuple[str, float | None], Spec]:
    """Fits by method and distance; those by coordinates have starts of their own."""
    base = Spec(BERNOULLI, (N_BERNOULLI,), size.bernoulli)
    # The strength, the lag and the schedule of the paper.
    near = settings_of(
        strength=1e12,
        lag=5,
        n_passes=size.n_steps,
        schedule="accelerating",
        constraint="entropy",
        distance="squared",
        average=None,
    )
    cells: dict[tuple[str, float | None], Spec] = {}
    for name, method, settings in ((BY_GRADIENTS, "none", ()), (PROXIMITY, "proximity", near)):
        for distance in size.distances:
            cells[name, distance] = replace(
                base,
                method=method,
                settings=settings,
                solver=GRADIENT,
                distance=distance,
                n_steps=size.n_steps,
            )
    own = replace(base, solver=COORDINATE, model=GIVEN)
    steep = settings_of(initial_temperature=100.0, schedule="geometric")
    cells[PLAIN, None] = own
    cells[STEEP, None] = replace(own, method="deterministic", settings=steep)
    cells[REHEATING, None] = replace(own, method="reheating")
    return cells


def methods(size: Size) -> dict[str, tuple[str, Settings, Settings]]:
    """Name in the tables → annealing, its settings, and parameters of the estimator."""
    gradients = settings_of(solver="gradient", max_iter=size.passes)
    others = ("deterministic", "stochastic", "svi_plus", "proximity")
    return {
        VI: ("none", (), ()),
        RESTARTS: ("none", (), settings_of(n_init=10)),
        DEFAULT: ("reheating", (), ()),
        LEARNED: ("reheating", (), settings_of(loading_variance="auto")),
        **{name: (name, (), ()) for name in others},
        BY_GRADIENTS: ("none", (), gradients),
        PROXIMITY: ("proximity", (), gradients),
    }


def _with_methods(base: Spec, size: Size) -> dict[str, Spec]:
    return {
        name: replace(base, method=method, settings=settings, model=model)
        for name, (method, settings, model) in methods(size).items()
    }


def loadings_cells(size: Size) -> dict[tuple[str, str], Spec]:
    """Fits by data and method."""
    cells = {}
    peers = [name for name in (FACTORS, SPARSE, MOFA) if is_there(name, PEERS.get(name, name))]
    for kind in DRAWN:
        base = Spec(kind, (size.components,), size.rows)
        for name, spec in _with_methods(base, size).items():
            cells[kind, name] = spec
        for name in peers:
            cells[kind, name] = replace(base, method=name, n_components=size.grid)
    return cells


def held_out_cells(size: Size) -> dict[tuple[str, str], Spec]:
    """Fits by data and method."""
    cells = {}
    for data, k in size.real:
        base = Spec(data, (k,))
        for name, spec in _with_methods(base, size).items():
            cells[data, name] = spec
        for name in (FACTORS, PROBABILISTIC):
            cells[data, name] = replace(base, method=name, n_components=size.wide)
    return cells


def measure(parts: Iterable[str], size: Size, cache: Cache, jobs: int) -> None:
    """Make those fits of the given parts that the cache does not have."""
    plan: dict[str, Callable[[Size], dict]] = {
        "starts": starts_cells,
        "loadings": loadings_cells,
        "held_out": held_out_cells,
    }
    for part in parts:
        run_missing(plan[part](size).values(), size.seeds, cache, jobs)
