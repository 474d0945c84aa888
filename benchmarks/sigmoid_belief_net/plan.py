"""The fits that the experiments with sigmoid belief nets consist of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ..common.data import present
from ..common.reproduction import Cache, Settings, run_missing, settings_of
from .data import DIGITS, FILES, MNIST, WORDS
from .fits import MARGINALS, RBM, Spec

PARTS = ("bad_start", "images", "held_out")

PLAIN, ENTROPY, STRONG, KL = "VI", "entropy", "entropy, k = 10¹⁰", "KL"
GOOD = "VI, good start"
BAD = settings_of(init_params="normal", init_bias=-10.0)


@dataclass(frozen=True)
class Size:
    """The size of the experiments.

    Attributes
    ----------
    digits, images : tuple of (rows fitted, rows held out, hidden units, passes)
        Of bad starts on digits and on larger images. With 100 rows per update, 1,500 rows are 15
        updates per pass.
    images_of : str
        The data set of larger images.
    share : float
        The share of the passes in which the strength of proximity falls to 0.
    held_out : tuple of (data, rows fitted, rows held out, passes)
    nets : tuple of tuple of int
        Hidden units of nets for held-out rows; the first is that of the machine too.
    rates : tuple of float
        Learning rates of these that are tried.
    seeds, few : int
        Numbers of seeds of digits, and of other experiments.
    n_scored : int
        Number of draws, or of chains, by which log probabilities are estimated.
    """

    digits: tuple[int, int, tuple[int, ...], int] = (1500, 297, (50, 50, 50), 400)
    images: tuple[int, int, tuple[int, ...], int] = (5000, 500, (200, 200, 200), 120)
    images_of: str = MNIST
    share: float = 0.5
    held_out: tuple[tuple[str, int, int, int], ...] = (
        (DIGITS, 1400, 397, 100),
        (WORDS, 4000, 1000, 60),
    )
    nets: tuple[tuple[int, ...], ...] = ((100,), (50, 50, 50))
    rates: tuple[float, ...] = (0.003, 0.01, 0.03)
    seeds: int = 5
    few: int = 3
    n_scored: int = 200
    quick: bool = False


FULL = Size()
QUICK = Size(
    digits=(60, 20, (3, 2), 4),
    images=(40, 20, (3,), 2),
    images_of=DIGITS,
    held_out=((DIGITS, 60, 20, 3),),
    nets=((3,), (3, 2)),
    rates=(0.01, 0.03),
    seeds=1,
    few=1,
    n_scored=10,
    quick=True,
)


def bad_starts(base: Spec, share: float) -> dict[str, Spec]:
    """Fits from a bad start by plain inference and with proximity, and from a good start."""
    n_passes = round(share * base.n_passes)

    def proximity(**settings: object) -> Spec:
        how = settings_of(n_passes=n_passes, **settings)
        return replace(base, method="proximity", settings=how, model=BAD)

    return {
        MARGINALS: replace(base, method=MARGINALS),
        PLAIN: replace(base, model=BAD),
        ENTROPY: proximity(),
        STRONG: proximity(strength=1e10),
        KL: proximity(constraint="kl"),
        GOOD: base,
    }


def digits_cells(size: Size) -> dict[str, Spec]:
    n_train, n_test, sizes, n_passes = size.digits
    base = Spec(DIGITS, n_train, n_test, sizes, n_passes, (0.01,), n_scored=size.n_scored)
    return bad_starts(base, size.share)


def images_cells(size: Size) -> dict[str, Spec]:
    """The same for larger images, if their file is there, without the variants of proximity."""
    if not present([size.images_of], FILES.get):
        return {}
    n_train, n_test, sizes, n_passes = size.images
    base = Spec(size.images_of, n_train, n_test, sizes, n_passes, (0.003,), n_scored=size.n_scored)
    cells = bad_starts(base, size.share)
    return {name: cells[name] for name in (MARGINALS, PLAIN, ENTROPY, GOOD)}


Method = tuple[str, str, Settings]


def held_out_cells(size: Size) -> dict[tuple[str, str], Spec]:
    """Fits by data and method; data whose files are missing are left out."""
    there = present([name for name, *_ in size.held_out], FILES.get)
    cells = {}
    for name, n_train, n_test, n_passes in size.held_out:
        if name not in there:
            continue
        base = Spec(name, n_train, n_test, size.nets[0], n_passes, size.rates)
        base = replace(base, n_scored=size.n_scored)
        cells[name, MARGINALS] = replace(base, method=MARGINALS)
        cells[name, RBM] = replace(base, method=RBM)
        short = settings_of(n_passes=max(n_passes // 4, 1))
        for sizes in size.nets:
            shape = " – ".join(map(str, sizes))
            for method in ("none", "deterministic", "svi_plus", "proximity"):
                how = () if method == "none" else short
                spec = replace(base, sizes=sizes, method=method, settings=how)
                cells[name, f"{method}, {shape}"] = spec
    return cells


def measure(parts: Iterable[str], size: Size, cache: Cache, jobs: int) -> None:
    """Make those fits of the given parts that the cache does not have."""
    plan: dict[str, tuple[Callable[[Size], dict], int]] = {
        "bad_start": (digits_cells, size.seeds),
        "held_out": (held_out_cells, size.few),
        "images": (images_cells, size.few),
    }
    for part, (cells, n_seeds) in plan.items():
        if part in parts:
            run_missing(cells(size).values(), n_seeds, cache, jobs)
