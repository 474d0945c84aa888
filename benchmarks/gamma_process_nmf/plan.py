"""The fits that the experiments with gamma-process factorisation consist of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ..common.data import present
from ..common.peers import is_there
from ..common.reproduction import Cache, Settings, run_missing, settings_of
from .data import (
    ACTIVATION_PRIOR,
    COMPONENT_PRIOR,
    DIGITS,
    DRAWN,
    FILES,
    NEWSGROUPS,
    NIPS,
    NOTES,
)
from .fits import CONSENSUS, OTHERS, PEERS, Spec

PARTS = ("drawn", "paper", "notes", "held_out", "stability")

VI, RESTARTS, DEFAULT = "VI", "VI, best of 10", "default"
REHEATING = "reheating"
POWER, STRUCTURED = "stochastic, 0.95^t", "structured"

# The priors that all methods have unless they learn them: for drawn counts those that drew them,
# and for other data the values from which learning starts.
TRUE = settings_of(
    activation_prior=ACTIVATION_PRIOR, component_prior=COMPONENT_PRIOR, concentration=1.0
)
GIVEN = settings_of(activation_prior=0.1, component_prior=0.1, concentration=1.0)

Method = tuple[str, Settings, Settings]


def methods(given: Settings = GIVEN) -> dict[str, Method]:
    """Name in the tables → annealing, its settings, and parameters of the estimator."""
    # The noise falls to a thousandth in 135 passes, as 0.95^t does.
    power = settings_of(initial_noise=0.95, schedule="exponential", n_passes=135)
    others = (REHEATING, "deterministic", "stochastic", "svi_plus", "proximity")
    return {
        VI: ("none", (), given),
        RESTARTS: ("none", (), settings_of(**dict(given), n_init=10)),
        DEFAULT: ("reheating", (), ()),
        **{name: (name, (), given) for name in others},
        POWER: ("stochastic", power, given),
        STRUCTURED: ("structured", (), given),
        "structured, exact gradient": ("structured", settings_of(gradient="exact"), given),
    }


def images_and_texts() -> dict[str, Method]:
    """The same for real data."""
    return {name: methods()[name] for name in (VI, DEFAULT, REHEATING, STRUCTURED)}


@dataclass(frozen=True)
class Size:
    """The size of the experiments.

    Attributes
    ----------
    rows, columns, truth, truncation : int
        Of drawn counts: numbers of rows, columns, true components, and components of the fit.
    means : tuple of float
        Means of drawn counts.
    paper : tuple of int
        Numbers of rows and columns of the paper's own size.
    seeds, few : int
        Numbers of seeds of drawn counts, and of the other data.
    spectra, notes : int
        Numbers of spectra and of notes.
    real : tuple of (name, rows fitted, rows held out, columns)
    truncation_of_real : int
        Number of components of our fits to real data.
    grid : tuple of int
        Numbers of components that NMF chooses from.
    repeats, consensus : int
        Numbers of fits that are compared with each other, and of consensus solutions.
    """

    rows: int = 300
    columns: int = 100
    truth: int = 50
    truncation: int = 75
    means: tuple[float, ...] = (5.0, 50.0)
    paper: tuple[int, int] = (1000, 257)
    seeds: int = 20
    few: int = 3
    spectra: int = 300
    notes: int = 12
    real: tuple[tuple[str, int, int, int], ...] = (
        (DIGITS, 1000, 350, 64),
        (NIPS, 600, 200, 1000),
        (NEWSGROUPS, 2000, 600, 1000),
    )
    truncation_of_real: int = 50
    grid: tuple[int, ...] = (20, 40, 60, 80)
    repeats: int = 10
    consensus: int = 2
    quick: bool = False


FULL = Size()
QUICK = Size(
    rows=30,
    columns=12,
    truth=2,
    truncation=3,
    means=(5.0,),
    paper=(40, 16),
    seeds=1,
    few=1,
    spectra=12,
    notes=2,
    real=((DIGITS, 40, 20, 64),),
    truncation_of_real=3,
    grid=(2, 3),
    repeats=2,
    consensus=2,
    quick=True,
)


def drawn_cells(size: Size) -> dict[tuple[float, str], Spec]:
    cells = {}
    for mean in size.means:
        base = Spec(
            DRAWN, size.truncation, size.rows, n_columns=size.columns, truth=size.truth, mean=mean
        )
        for name, (method, settings, model) in methods(TRUE).items():
            cells[mean, name] = replace(base, method=method, settings=settings, model=model)
    return cells


def paper_cells(size: Size) -> dict[tuple[float, str], Spec]:
    """A few of the fits to drawn counts of the paper's size."""
    n_rows, n_columns = size.paper
    chosen = (VI, DEFAULT, STRUCTURED)
    return {
        (mean, name): replace(spec, n_train=n_rows, n_columns=n_columns)
        for (mean, name), spec in drawn_cells(size).items()
        if name in chosen
    }


def notes_cells(size: Size) -> dict[str, Spec]:
    base = Spec(NOTES, 2 * size.notes, size.spectra, truth=size.notes)
    chosen = (VI, RESTARTS, DEFAULT, REHEATING, STRUCTURED)
    return {
        name: replace(base, method=method, settings=settings, model=model)
        for name, (method, settings, model) in methods().items()
        if name in chosen
    }


def held_out_cells(size: Size) -> dict[tuple[str, str], Spec]:
    """Fits by data and method; data whose files are missing are left out."""
    there = present([name for name, *_ in size.real], FILES.get)
    cells = {}
    for data, n_train, n_test, n_columns in size.real:
        if data not in there:
            continue
        base = Spec(data, size.truncation_of_real, n_train, n_test, n_columns)
        for name, (method, settings, model) in images_and_texts().items():
            cells[data, name] = replace(base, method=method, settings=settings, model=model)
        for name in OTHERS:
            if name in PEERS and not is_there(name, PEERS[name]):
                continue
            grid = size.grid if name in ("NMF", "MiniBatchNMF") else ()
            cells[data, name] = replace(base, method=name, grid=grid)
    return cells


def stability_cells(size: Size) -> dict[str, Spec]:
    """One fit each from several starts, and NMF with as many components."""
    _, n_train, _, n_columns = size.real[0]
    base = Spec(DIGITS, size.truncation_of_real, n_train, 0, n_columns, repeats=size.repeats)
    return {
        VI: replace(base, method="none", model=GIVEN),
        DEFAULT: replace(base, method="reheating"),
        REHEATING: replace(base, method="reheating", model=GIVEN),
        "NMF": replace(base, method="NMF"),
        CONSENSUS: replace(base, method=CONSENSUS, repeats=size.consensus),
    }


def measure(parts: Iterable[str], size: Size, cache: Cache, jobs: int) -> None:
    """Make those fits of the given parts that the cache does not have."""
    plan: dict[str, tuple[Callable[[Size], dict], int]] = {
        "stability": (stability_cells, 1),
        "held_out": (held_out_cells, size.few),
        "notes": (notes_cells, size.few),
        "paper": (paper_cells, size.few),
        "drawn": (drawn_cells, size.seeds),
    }
    for part, (cells, n_seeds) in plan.items():
        if part in parts:
            run_missing(cells(size).values(), n_seeds, cache, jobs)
