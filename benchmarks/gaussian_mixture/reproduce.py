"""The papers' claims about Gaussian mixtures, measured; writes ``doc/results/gaussian_mixture.md``.

Sections: bound, held-out density and time of every method on several data sets; the prior settings;
mixtures of digits as in Gultekin et al. (2015); the two objectives of the SVI+ paper (Paisley et
al.) and its four clusters under an approximate Dirichlet process; what variational tempering
(Mandt et al., 2016) and proximity variational inference (Altosaar et al., 2018) claim, as far as it
concerns Gaussian mixtures. Fits that are compared are interleaved, one thread, paired by seed.

    OMP_NUM_THREADS=1 python -m benchmarks.gaussian_mixture.reproduce     # about 12 minutes
    python -m benchmarks.gaussian_mixture.reproduce --quick --output /tmp/quick.md

Two data sets come from files, see ``data.py`` in this folder; sections without their data are left
out with a message.

Verdicts are computed from the figures. A claim is a list of comparisons "A above B" in runs paired
by seed. A comparison is won if the median difference is positive and Wilcoxon's one-sided
signed-rank test, with Holm's adjustment for the comparisons of the claim, gives p < 0.05. It is
lost if the same holds for "A below B". Differences that would be printed as zero are ties. A claim
is reproduced if all its comparisons are won, not reproduced if none is, and otherwise partly
reproduced. Other claims state their rule.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np

from ..common import RESULTS
from ..common.measuring import progress
from ..common.report import Page, quartiles, verdict_page
from ..common.reproduction import Record
from .claims import claims_of_methods
from .data import Task, easy_clusters
from .experiments import (
    section_clusters,
    section_forms,
    section_gultekin,
    section_objective,
    section_two_gaussians,
)
from .fits import drawn_start, fit
from .plan import EXPECTED, FULL, METHODS, QUICK, SLOW, Method, Size, main_tasks

OUTPUT = RESULTS / "gaussian_mixture.md"

# The page


def run_methods(task: Task, n_seeds: int, methods: list[Method]) -> dict[str, Record]:
    """Run all methods on a data set.

    The result has, by method and name of the quantity, an array of shape (n_seeds,): bounds of fits
    to all rows, held-out densities, and seconds.
    """
    rows: dict[str, list[tuple[float, float, float]]] = {m.name: [] for m in methods}
    for seed in range(n_seeds):
        train, held_out = task.split(seed)
        for method in methods:
            begun = perf_counter()
            full = fit(task.X, task.n_components, seed, method.make(), **method.parameters)
            seconds = perf_counter() - begun
            part = full
            if train is not task.X:
                part = fit(train, task.n_components, seed, method.make(), **method.parameters)
            rows[method.name].append((full.lower_bound_, part.score(held_out), seconds))
    return {
        name: dict(zip(("bound", "held_out", "seconds"), np.array(values).T, strict=True))
        for name, values in rows.items()
    }


def section_methods(page: Page, size: Size) -> dict[str, dict[str, Record]]:
    methods = METHODS
    if size.quick:
        methods = [m for m in METHODS if m.name not in SLOW]
    records: dict[str, dict[str, Record]] = {}
    page.section(
        "Methods and data sets",
        "Medians over seeds with quartiles. The bound (nats, complete) is that of fits to all "
        "rows; the held-out log predictive density (nats per row) is that of fits to three "
        "quarters of them, for MNIST that of 1,000 other rows; the time is that of the fit to "
        "all rows. *drawn start*: parameters of a random pseudo data set, what stochastic "
        "annealing mixes in; *default*: the settings of the name; weights have a Dirichlet prior "
        "with concentration 1/K, all else is the estimator's default, up to 300 passes at T = 1.",
    )
    for task, n_seeds in main_tasks(size):
        progress(task.name)
        record = run_methods(task, n_seeds, methods)
        records[task.name] = record
        n, d = task.X.shape
        best = max(np.median(v["bound"]) for v in record.values())
        page.lines += [f"### {task.name}: {n} × {d}, K = {task.n_components}, {n_seeds} seeds", ""]
        rows = []
        for name, values in record.items():
            marked = name if np.median(values["bound"]) < best else f"**{name}**"
            known = EXPECTED.get((task.name, name))
            rows.append(
                (
                    marked,
                    quartiles(values["bound"]),
                    f"{known}" if known and not size.quick else "",
                    quartiles(values["held_out"], 3),
                    f"{np.median(values['seconds']) * 1e3:.0f}",
                )
            )
        page.table(("method", "lower bound", "expected", "held-out per row", "time, ms"), rows)
    return records


def section_priors(page: Page, size: Size) -> None:
    """Find the prior of the weights that gives the expected figures of plain inference."""
    page.section(
        "Prior settings behind the expected figures",
        "The expected figures are medians found before, with a prior on the weights that was "
        "not recorded. Plain inference with the four candidates, medians and quartiles "
        f"of {size.seeds} seeds; *hits* counts the expected figures that lie within the "
        "quartiles, *distance* is the mean distance to the median in quartile ranges.",
    )
    starts = {"plain, drawn start": drawn_start(), "plain, k-means": "none"}
    tasks = [t for t, _ in main_tasks(size) if (t.name, "plain, k-means") in EXPECTED]
    header = ["prior of the weights"] + [f"{t.name}, {s[7:]}" for t in tasks for s in starts]
    rows = []
    for kind in ("dirichlet_process", "dirichlet_distribution"):
        for concentration in (None, 1.0):
            cells, hits, distances = [], 0, []
            for task in tasks:
                for start, annealing in starts.items():
                    bounds = np.array(
                        [
                            fit(
                                task.X,
                                task.n_components,
                                seed,
                                annealing,
                                weight_concentration_prior_type=kind,
                                weight_concentration_prior=concentration,
                            ).lower_bound_
                            for seed in range(size.seeds)
                        ]
                    )
                    low, middle, high = np.percentile(bounds, [25, 50, 75])
                    known = EXPECTED[task.name, start]
                    hits += bool(low <= known <= high)
                    distances.append(abs(middle - known) / max(high - low, 1e-9))
                    cells.append(quartiles(bounds))
            name = f"{kind}, {'1/K' if concentration is None else concentration}"
            rows.append((name, *cells, f"{hits} of {len(cells)}", f"{np.mean(distances):.2f}"))
    page.table([*header, "hits", "distance"], rows)


RULES = (
    "A comparison is won if the median of the differences, paired by seed, is positive and "
    "Wilcoxon's one-sided signed-rank test gives p < 0.05 after Holm's adjustment for the "
    "comparisons of the claim; lost is the same below. Differences that would be printed as "
    "zero are ties. All won: reproduced; none: not reproduced; otherwise partly. Other rules "
    "are stated with the claim. The number of claims itself is not adjusted for."
)


def build(size: Size) -> str:
    """The page, in Markdown."""
    begun = perf_counter()
    page = Page()
    fit(easy_clusters(100), 2, 0, "none")  # kernels are compiled or loaded here
    page.claims += claims_of_methods(section_methods(page, size))
    section_priors(page, size)
    section_gultekin(page, size)
    section_objective(page, size)
    section_clusters(page, size)
    section_two_gaussians(page, size)
    section_forms(page, size)
    cost = f"The whole page took {(perf_counter() - begun) / 60:.0f} minutes."
    title = "Gaussian mixtures: methods, and what the papers claim"
    return verdict_page("gaussian_mixture", title, RULES, page, cost, size.quick)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small run that tells nothing")
    parser.add_argument(
        "--output", type=Path, help=f"file to write (default: {OUTPUT.name} in doc)"
    )
    arguments = parser.parse_args(argv)
    if arguments.quick and arguments.output is None:
        parser.error("--quick needs --output, so that it does not replace the full page")
    text = build(QUICK if arguments.quick else FULL)
    (arguments.output or OUTPUT).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
