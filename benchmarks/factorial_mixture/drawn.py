"""Drawn sums of parts, and of sparse factors: how often fits find them.

Rows are sums of K parts, each of which is in a row with a probability of its own, and noise. Half
of the numbers of a part are zero, the others are Gaussian; *binary* parts have the numbers 0 and 1.
One default fit is compared with the best of ten plain starts. The parts are found where the learned
standard deviation of noise is at most 5 % larger than the one that rows were drawn with. Rows of
sparse factors are sums of K vectors, each of which is in a row with one probability and a Gaussian
weight. These are found where there is a factor with nearly the same direction for each.

``--write`` writes the page ``doc/results/drawn_sums.md``; without it the page is printed.
``--quick`` is a small run that shows that everything works and whose figures mean nothing.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from sklearn_anneal import AnnealedFactorialMixture, AnnealedSpikeSlabFactorAnalysis

from ..common import RESULTS
from ..common.measuring import progress
from ..common.report import Page, machine, write_or_print

PAGE = RESULTS / "drawn_sums.md"
N_SEEDS, TOLERANCE, COSINE = 6, 1.05, 0.98
FITS: dict[str, dict[str, Any]] = {
    "default": {},
    "ten plain starts": {"annealing": "none", "n_init": 10},
}


class Rows(NamedTuple):
    """Rows for fitting, and as many for the scores, and the components of all of them."""

    train: np.ndarray
    test: np.ndarray
    components: np.ndarray


class Outcome(NamedTuple):
    """The result of a fit."""

    found: bool
    score: float  # held-out, in nats per row
    seconds: float
    bound: float


@dataclass(frozen=True)
class Drawn(ABC):
    """Sums of K components in D columns, and noise."""

    n_components: int
    n_columns: int
    noise: float

    estimator: ClassVar[type]

    @abstractmethod
    def components_and_weights(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The components, (K, D), and their weights in the rows, (2 * n_rows, K)."""

    @abstractmethod
    def are_found(self, fit: Any, components: np.ndarray) -> bool:
        """Whether a fit has found the components."""

    @property
    @abstractmethod
    def cells(self) -> list[str]:
        """The first cells of a row of a table."""

    @property
    def n_rows(self) -> int:
        """The number of rows for fitting, and of others for the scores."""
        return max(400, 30 * self.n_components)

    def draw(self, seed: int) -> Rows:
        rng = np.random.default_rng(seed)
        components, weights = self.components_and_weights(rng)
        X = weights @ components + self.noise * rng.standard_normal((len(weights), self.n_columns))
        return Rows(X[: self.n_rows], X[self.n_rows :], components)

    def outcome(self, rows: Rows, seed: int, how: dict[str, Any]) -> Outcome:
        begun = time.process_time()
        fit = self.estimator(self.n_components, random_state=seed, **how).fit(rows.train)
        seconds = time.process_time() - begun
        found = self.are_found(fit, rows.components)
        return Outcome(found, fit.score(rows.test), seconds, fit.lower_bound_)


@dataclass(frozen=True)
class Parts(Drawn):
    """Sums of parts, each of which is in a row or not."""

    binary: bool = False

    estimator = AnnealedFactorialMixture

    def components_and_weights(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        shape = (self.n_components, self.n_columns)
        parts = (rng.random(shape) < 0.35).astype(float)
        if not self.binary:
            parts = rng.standard_normal(shape) * (rng.random(shape) < 0.5)
        shares = rng.uniform(0.1, 0.6, self.n_components)
        return parts, rng.random((2 * self.n_rows, self.n_components)) < shares

    def are_found(self, fit: Any, components: np.ndarray) -> bool:
        return bool(np.sqrt(fit.noise_variance_) < TOLERANCE * self.noise)

    @property
    def cells(self) -> list[str]:
        kind = "binary" if self.binary else "Gaussian"
        return [f"{self.n_components}", f"{self.n_columns}", kind, f"{self.noise:g}"]


@dataclass(frozen=True)
class Factors(Drawn):
    """Sums of vectors with Gaussian weights, each of which is in a share of the rows."""

    share: float

    estimator = AnnealedSpikeSlabFactorAnalysis

    def components_and_weights(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        loadings = rng.standard_normal((self.n_components, self.n_columns))
        shape = (2 * self.n_rows, self.n_components)
        return loadings, (rng.random(shape) < self.share) * rng.standard_normal(shape)

    def are_found(self, fit: Any, components: np.ndarray) -> bool:
        found, drawn = (
            each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-300)
            for each in (fit.components_, components)
        )
        cosines = np.abs(found @ drawn.T)
        return bool(cosines[linear_sum_assignment(cosines, maximize=True)].min() > COSINE)

    @property
    def cells(self) -> list[str]:
        return [
            f"{self.n_components}",
            f"{self.n_columns}",
            f"{self.share:g}",
            f"{self.noise:g}",
        ]


SUMS_OF_PARTS = (
    *(Parts(5, 20, 0.2), Parts(8, 12, 0.1), Parts(8, 25, 0.1, binary=True), Parts(10, 12, 0.05)),
    *(Parts(10, 36, 0.2, binary=True), Parts(12, 30, 0.1), Parts(12, 100, 0.1)),
    *(Parts(15, 30, 0.15), Parts(16, 40, 0.2), Parts(20, 64, 0.1), Parts(25, 80, 0.1)),
    Parts(30, 60, 0.3),
)
SUMS_OF_FACTORS = (
    *(Factors(6, 15, 0.1, 0.2), Factors(10, 30, 0.05, 0.15), Factors(12, 40, 0.1, 0.15)),
    *(Factors(12, 24, 0.2, 0.2), Factors(15, 40, 0.1, 0.1), Factors(25, 60, 0.1, 0.1)),
)

HEAD = [f"{what}, {name}" for name in FITS for what in ("found", "score", "seconds")]


def _section(
    page: Page,
    title: str,
    text: str,
    sums: Sequence[Drawn],
    third: str,
    what: str,
    n_seeds: int,
) -> None:
    """Write a table of fits to ``sums``, whose third column is the ``third``."""
    page.section(title, text)
    lines, every = [], []
    for drawn in sums:
        progress(f"{drawn}")
        each = []
        for seed in range(1000, 1000 + n_seeds):
            rows = drawn.draw(seed)
            each.append([drawn.outcome(rows, seed, how) for how in FITS.values()])
        outcomes = np.array(each, dtype=float)  # (n_seeds, n_fits, 4)
        medians = np.median(outcomes, axis=0)
        cells = [
            cell
            for found, (_, score, seconds, _) in zip(
                outcomes.sum(axis=0)[:, 0], medians, strict=True
            )
            for cell in (f"{found:.0f}", f"{score:.2f}", f"{seconds:.2f}")
        ]
        lines.append([*drawn.cells, f"{drawn.n_rows}", *cells])
        every.append(outcomes)
    page.table(["K", "D", third, "noise", "rows", *HEAD], lines)
    together = np.concatenate(every)
    found = together[:, :, 0].sum(axis=0)
    rises = together[:, 0, 3] - together[:, 1, 3]
    page.lines += [
        f"In all {len(together)} fits the default finds the {what} in {found[0]:.0f}, and the best "
        f"of ten plain starts in {found[1]:.0f}. Its bound is higher by more than 1 nat in "
        f"{(rises > 1.0).sum()}, and lower in {(rises < -1.0).sum()}.",
        "",
    ]


def written(quick: bool) -> str:
    page = Page()
    page.lines += ["# Drawn sums of parts and of sparse factors", ""]
    command = "python -m benchmarks.factorial_mixture.drawn --write"
    page.lines += [f"Written by `{command}`. {machine()}", ""]
    if quick:
        page.lines += ["**A quick run: far too small to tell anything.**", ""]
    n_seeds, n_sums = (1, 1) if quick else (N_SEEDS, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for drawn in (SUMS_OF_PARTS[0], SUMS_OF_FACTORS[0]):
            rows = drawn.draw(0)
            drawn.outcome(rows._replace(train=rows.train[:20]), 0, {})  # compiles kernels
        _section(
            page,
            "Parts",
            "Rows are sums of K parts in D columns, each of which is in a row with a probability "
            "of its own from 0.1 to 0.6, and noise with the given standard deviation. Parts have "
            "Gaussian numbers, half of which are 0, or the binary numbers 0 and 1. *Found*: in how "
            f"many of {n_seeds} fits the learned noise is at most 5% larger. *Score*: held-out "
            "rows, in nats per row, medians. Seconds are processor time, medians.",
            SUMS_OF_PARTS[:n_sums],
            "parts",
            "parts",
            n_seeds,
        )
        _section(
            page,
            "Sparse factors",
            "Rows are sums of K vectors in D columns with Gaussian numbers, each of which is in a "
            "share of the rows, with a Gaussian weight, and noise. *Found*: in how many of "
            f"{n_seeds} fits there is a factor for each vector whose |cosine| with it is above "
            f"{COSINE}. Scores and seconds as above.",
            SUMS_OF_FACTORS[:n_sums],
            "share",
            "vectors",
            n_seeds,
        )
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
