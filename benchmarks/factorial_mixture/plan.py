"""The fits that the experiments with factorial mixtures consist of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ..common.data import present
from ..common.reproduction import Cache, Settings, run_missing, settings_of
from .data import DIGITS, FILES, MNIST, TOY
from .fits import OTHERS, PAPER, Spec

PARTS = ("toy", "batches", "images")

VI, RESTARTS, REHEATING = "VI", "VI, best of 10", "reheating"
OURS, SMOOTH = "geometric 100 → 1, jitter", "geometric 100 → 1, no jitter"
MILD = "geometric 30 → 1, less jitter"
TWICE = "geometric 100 → 1, jitter, best of 2"
SHORT, LONG = "linear 10 → 1 in 10", "linear 10 → 1 in 100"
VT = "variational tempering"
ENUMERATED_VI, ENUMERATED = "VI, enumerated", "geometric 100 → 1, jitter, enumerated"
LEARNED_VI, LEARNED = "VI, learned priors", "geometric 100 → 1, jitter, learned priors"

Method = tuple[str, Settings, Settings]


def toy_methods() -> dict[str, Method]:
    """Name in the tables → annealing, its settings, and parameters of the estimator."""
    paper = settings_of(**PAPER)
    exact = settings_of(**PAPER, local_step="enumerate")

    def linear(n: int) -> Settings:
        return settings_of(initial_temperature=10.0, schedule="linear", n_passes=n, jitter=0.0)

    mild = settings_of(initial_temperature=30.0, jitter=0.25)
    others = ("stochastic", "local_tempering", "svi_plus", "structured", "proximity")
    return {
        VI: ("none", (), paper),
        RESTARTS: ("none", (), settings_of(**PAPER, n_init=10)),
        REHEATING: ("reheating", (), paper),
        SHORT: ("deterministic", linear(10), paper),
        LONG: ("deterministic", linear(100), paper),
        VT: ("tempering", settings_of(max_temperature=10.0), paper),
        "variational tempering to T = 100": ("tempering", (), paper),
        OURS: ("deterministic", (), paper),
        TWICE: ("deterministic", (), settings_of(**PAPER, n_init=2)),
        SMOOTH: ("deterministic", settings_of(jitter=0.0), paper),
        MILD: ("deterministic", mild, paper),
        **{name: (name, (), paper) for name in others},
        ENUMERATED_VI: ("none", (), exact),
        ENUMERATED: ("deterministic", (), exact),
        LEARNED_VI: ("none", (), ()),
        LEARNED: ("deterministic", (), ()),
    }


def batch_methods(size: Size) -> dict[str, tuple[Method, int]]:
    """Name in the tables → method, and the number of rows per batch of a stream, or 0."""
    plain = settings_of(**PAPER)
    in_minibatches = settings_of(**PAPER, batch_size=size.batch)
    of_known_length = settings_of(**PAPER, total_samples=size.rows)
    brief = settings_of(n_passes=50)
    return {
        "minibatches, VI": (("none", (), in_minibatches), 0),
        "minibatches, geometric 100 → 1 in 50": (("deterministic", brief, in_minibatches), 0),
        "minibatches, geometric 100 → 1 in 200": (("deterministic", (), in_minibatches), 0),
        "stream, VI": (("none", (), plain), size.batch),
        "stream, geometric 100 → 1": (("deterministic", (), of_known_length), size.batch),
    }


FACTORIAL, PLAIN, MILDER, CENTERED = "factorial mixture", "its VI", "its 30 → 1", "its centered"


def image_methods() -> dict[str, Method]:
    """Name in the tables → annealing or another estimator, settings, and parameters."""
    long = settings_of(max_iter=300)
    mild = settings_of(initial_temperature=30.0, jitter=0.25)
    return {
        FACTORIAL: ("deterministic", (), long),
        PLAIN: ("none", (), long),
        MILDER: ("deterministic", mild, long),
        CENTERED: ("deterministic", (), settings_of(max_iter=300, center=True)),
        **{name: (name, (), ()) for name in OTHERS},
    }


@dataclass(frozen=True)
class Size:
    """The size of the experiments.

    Attributes
    ----------
    rows, batch : int
        Numbers of rows of drawn data, and of a batch where they come in batches.
    seeds, few : int
        Numbers of seeds of drawn data, and of images.
    images : tuple of (name, numbers of components, rows fitted, rows held out)
    """

    rows: int = 10_000
    batch: int = 500
    seeds: int = 20
    few: int = 8
    images: tuple[tuple[str, tuple[int, ...], int, int], ...] = (
        (DIGITS, (16, 32), 1347, 450),
        (MNIST, (32,), 2000, 1000),
    )
    quick: bool = False


FULL = Size()
QUICK = Size(rows=100, batch=25, seeds=1, few=1, images=((DIGITS, (3,), 100, 50),), quick=True)


def toy_cells(size: Size) -> dict[str, Spec]:
    return {
        name: Spec(TOY, 8, size.rows, method=method, settings=settings, model=model)
        for name, (method, settings, model) in toy_methods().items()
    }


def batch_cells(size: Size) -> dict[str, Spec]:
    return {
        name: Spec(TOY, 8, size.rows, method=how, settings=settings, model=model, stream=stream)
        for name, ((how, settings, model), stream) in batch_methods(size).items()
    }


def image_cells(size: Size) -> dict[tuple[str, int, str], Spec]:
    """Fits by data, number of components and method; data whose files are missing are left out."""
    there = present([name for name, *_ in size.images], FILES.get)
    found = {}
    for data, components, n_train, n_test in size.images:
        for k in components if data in there else ():
            base = Spec(data, k, n_train, n_test)
            for name, (method, settings, model) in image_methods().items():
                found[data, k, name] = replace(base, method=method, settings=settings, model=model)
    return found


def measure(parts: Iterable[str], size: Size, cache: Cache, jobs: int) -> None:
    """Make those fits of the given parts that the cache does not have."""
    plan: dict[str, tuple[Callable[[Size], dict], int]] = {
        "toy": (toy_cells, size.seeds),
        "batches": (batch_cells, size.seeds),
        "images": (image_cells, size.few),
    }
    for part in parts:
        cells, n_seeds = plan[part]
        run_missing(cells(size).values(), n_seeds, cache, jobs)
