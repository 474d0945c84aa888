"""Drawn sums of parts: how often fits of factorial mixtures find the parts.

Rows are sums of K parts, each of which is in a row with a probability of its own, and noise. Half
of the numbers of a part are zero, the others are Gaussian; *binary* parts have the numbers 0 and 1.
One default fit is compared with the best of ten plain starts. The parts are found where the learned
standard deviation of noise is at most 5 % larger than the one that rows were drawn with.

``--write`` writes the page ``doc/results/drawn_sums.md``; without it the page is printed.
``--quick`` is a small run that shows that everything works and whose figures mean nothing.
"""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import numpy as np

from sklearn_anneal import AnnealedFactorialMixture

from ..common import RESULTS
from ..common.measuring import progress
from ..common.report import Page, machine, write_or_print

PAGE = RESULTS / "drawn_sums.md"
N_SEEDS, TOLERANCE = 6, 1.05
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


def written(quick: bool) -> str:
    page = Page()
    page.lines += ["# Drawn sums of parts", ""]
    command = "python -m benchmarks.factorial_mixture.drawn --write"
    page.lines += [f"Written by `{command}`. {machine()}", ""]
    if quick:
        page.lines += ["**A quick run: far too small to tell anything.**", ""]
    seeds = 1 if quick else N_SEEDS
    page.lines += [
        "Rows are sums of K parts in D columns, each of which is in a row with a probability of "
        "its own from 0.1 to 0.6, and noise with the given standard deviation. Parts have Gaussian "
        "numbers, half of which are 0, or the binary numbers 0 and 1. *Found*: in how many of "
        f"{seeds} fits the learned noise is at most 5% larger. *Score*: held-out rows, in nats per "
        "row, medians. Seconds are processor time, medians.",
        "",
    ]
    lines, every = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        AnnealedFactorialMixture(2, random_state=0).fit(ALL[0].draw(0)[0][:20])  # compiles kernels
        for sums in ALL[:1] if quick else ALL:
            progress(f"{sums}")
            each = np.array([measured(sums, 1000 + seed) for seed in range(seeds)])
            every.append(each)
            kind = "binary" if sums.binary else "Gaussian"
            about = [f"{sums.n_parts}", f"{sums.n_columns}", kind, f"{sums.noise:g}"]
            medians = np.median(each, axis=0)
            cells = [
                cell
                for i in range(len(FITS))
                for cell in (
                    f"{each[:, i, 0].sum():.0f}",
                    f"{medians[i, 1]:.2f}",
                    f"{medians[i, 2]:.2f}",
                )
            ]
            lines.append([*about, f"{sums.n_rows}", *cells])
    head = [f"{what}, {name}" for name in FITS for what in ("found", "score", "seconds")]
    page.table(["K", "D", "parts", "noise", "rows", *head], lines)
    found = np.concatenate(every)[:, :, 0].sum(axis=0)
    page.lines += [
        f"In all {sum(map(len, every))} fits the default finds the parts in {found[0]:.0f}, and "
        f"the best of ten plain starts in {found[1]:.0f}.",
        "",
    ]
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
