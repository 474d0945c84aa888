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
from typing import Any, NamedTuple

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


class Sums(NamedTuple):
    """Sums of K parts in D columns."""

    n_parts: int
    n_columns: int
    noise: float
    binary: bool = False

    @property
    def n_rows(self) -> int:
        """The number of rows for fitting, and of others for the scores."""
        return max(400, 30 * self.n_parts)

    def draw(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        shape = (self.n_parts, self.n_columns)
        parts = (rng.random(shape) < 0.35).astype(float)
        if not self.binary:
            parts = rng.standard_normal(shape) * (rng.random(shape) < 0.5)
        active = rng.random((2 * self.n_rows, self.n_parts)) < rng.uniform(0.1, 0.6, self.n_parts)
        X = active @ parts + self.noise * rng.standard_normal((len(active), self.n_columns))
        return X[: self.n_rows], X[self.n_rows :]


ALL = (
    *(Sums(5, 20, 0.2), Sums(8, 12, 0.1), Sums(8, 25, 0.1, binary=True), Sums(10, 12, 0.05)),
    *(Sums(10, 36, 0.2, binary=True), Sums(12, 30, 0.1), Sums(12, 100, 0.1), Sums(15, 30, 0.15)),
    *(Sums(16, 40, 0.2), Sums(20, 64, 0.1), Sums(25, 80, 0.1), Sums(30, 60, 0.3)),
)


class Factors(NamedTuple):
    """Sums of K vectors in D columns, with Gaussian weights in some of the rows."""

    n_parts: int
    n_columns: int
    noise: float
    share: float

    @property
    def n_rows(self) -> int:
        """The number of rows for fitting, and of others for the scores."""
        return max(400, 30 * self.n_parts)

    def draw(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        loadings = rng.standard_normal((self.n_parts, self.n_columns))
        shape = (2 * self.n_rows, self.n_parts)
        weights = (rng.random(shape) < self.share) * rng.standard_normal(shape)
        X = weights @ loadings + self.noise * rng.standard_normal((len(weights), self.n_columns))
        return X[: self.n_rows], X[self.n_rows :], loadings


ALL_FACTORS = (
    *(Factors(6, 15, 0.1, 0.2), Factors(10, 30, 0.05, 0.15), Factors(12, 40, 0.1, 0.15)),
    *(Factors(12, 24, 0.2, 0.2), Factors(15, 40, 0.1, 0.1), Factors(25, 60, 0.1, 0.1)),
)


def are_found(components: np.ndarray, loadings: np.ndarray) -> bool:
    """Whether there is a component with nearly the same direction for each vector."""
    lengths = [np.linalg.norm(each, axis=1, keepdims=True) for each in (components, loadings)]
    cosines = np.abs((components / np.maximum(lengths[0], 1e-300)) @ (loadings / lengths[1]).T)
    return bool(cosines[linear_sum_assignment(cosines, maximize=True)].min() > COSINE)


def measured_factors(drawn: Factors, seed: int) -> list[list[float]]:
    """Whether each fit has found the vectors, its held-out score, its seconds and its bound."""
    train, test, loadings = drawn.draw(seed)
    found = []
    for how in FITS.values():
        begun = time.process_time()
        fit = AnnealedSpikeSlabFactorAnalysis(drawn.n_parts, random_state=seed, **how).fit(train)
        seconds = time.process_time() - begun
        all_found = float(are_found(fit.components_, loadings))
        found.append([all_found, fit.score(test), seconds, fit.lower_bound_])
    return found


def measured(sums: Sums, seed: int) -> list[list[float]]:
    """Whether each fit has found the parts, its held-out score in nats per row, and its seconds."""
    train, test = sums.draw(seed)
    found = []
    for how in FITS.values():
        begun = time.process_time()
        fit = AnnealedFactorialMixture(sums.n_parts, random_state=seed, **how).fit(train)
        seconds = time.process_time() - begun
        noise = np.sqrt(fit.noise_variance_)
        found.append([float(noise < TOLERANCE * sums.noise), fit.score(test), seconds])
    return found


def cells_of(each: np.ndarray) -> list[str]:
    """The number of fits that have found all, and medians of scores and seconds, for each kind."""
    medians = np.median(each, axis=0)
    return [
        cell
        for i in range(len(FITS))
        for cell in (f"{each[:, i, 0].sum():.0f}", f"{medians[i, 1]:.2f}", f"{medians[i, 2]:.2f}")
    ]


HEAD = [f"{what}, {name}" for name in FITS for what in ("found", "score", "seconds")]


def section_of_parts(page: Page, seeds: int, quick: bool) -> None:
    page.section(
        "Parts",
        "Rows are sums of K parts in D columns, each of which is in a row with a probability of "
        "its own from 0.1 to 0.6, and noise with the given standard deviation. Parts have Gaussian "
        "numbers, half of which are 0, or the binary numbers 0 and 1. *Found*: in how many of "
        f"{seeds} fits the learned noise is at most 5% larger. *Score*: held-out rows, in nats per "
        "row, medians. Seconds are processor time, medians.",
    )
    lines, every = [], []
    for sums in ALL[:1] if quick else ALL:
        progress(f"{sums}")
        each = np.array([measured(sums, 1000 + seed) for seed in range(seeds)])
        every.append(each)
        kind = "binary" if sums.binary else "Gaussian"
        about = [f"{sums.n_parts}", f"{sums.n_columns}", kind, f"{sums.noise:g}"]
        lines.append([*about, f"{sums.n_rows}", *cells_of(each)])
    page.table(["K", "D", "parts", "noise", "rows", *HEAD], lines)
    found = np.concatenate(every)[:, :, 0].sum(axis=0)
    page.lines += [
        f"In all {sum(map(len, every))} fits the default finds the parts in {found[0]:.0f}, and "
        f"the best of ten plain starts in {found[1]:.0f}.",
        "",
    ]


def section_of_factors(page: Page, seeds: int, quick: bool) -> None:
    page.section(
        "Sparse factors",
        "Rows are sums of K vectors in D columns with Gaussian numbers, each of which is in a "
        "share of the rows, with a Gaussian weight, and noise. *Found*: in how many of "
        f"{seeds} fits there is a factor for each vector whose |cosine| with it is above {COSINE}. "
        "Scores and seconds as above.",
    )
    lines, every = [], []
    for drawn in ALL_FACTORS[:1] if quick else ALL_FACTORS:
        progress(f"{drawn}")
        each = np.array([measured_factors(drawn, 1000 + seed) for seed in range(seeds)])
        every.append(each)
        about = [f"{drawn.n_parts}", f"{drawn.n_columns}", f"{drawn.share:g}", f"{drawn.noise:g}"]
        lines.append([*about, f"{drawn.n_rows}", *cells_of(each)])
    page.table(["K", "D", "share", "noise", "rows", *HEAD], lines)
    together = np.concatenate(every)
    found, rises = together[:, :, 0].sum(axis=0), together[:, 0, 3] - together[:, 1, 3]
    page.lines += [
        f"In all {len(together)} fits the default finds the vectors in {found[0]:.0f}, and the "
        f"best of ten plain starts in {found[1]:.0f}. Its bound is higher by more than 1 nat in "
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
    seeds = 1 if quick else N_SEEDS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        few = ALL[0].draw(0)[0][:20]
        for cls in (AnnealedFactorialMixture, AnnealedSpikeSlabFactorAnalysis):
            cls(2, random_state=0).fit(few)  # compiles kernels
        section_of_parts(page, seeds, quick)
        section_of_factors(page, seeds, quick)
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
