"""The papers' claims about Gaussian mixtures, measured; writes ``doc/results/gaussian_mixture.md``.

Sections: bound, held-out density and time of every method on several data sets; the prior settings;
mixtures of digits as in Gultekin et al. (2018); the two objectives of the SVI+ paper (Paisley et
al.) and its four clusters under an approximate Dirichlet process; what variational tempering
(Mandt et al., 2016) and proximity variational inference (Altosaar et al., 2018) claim, as far as it
concerns Gaussian mixtures. Fits that are compared are interleaved, one thread, paired by seed.

    OMP_NUM_THREADS=1 python -m benchmarks.gaussian_mixture.reproduce     # about 12 minutes
    python -m benchmarks.gaussian_mixture.reproduce --quick --output /tmp/quick.md

Data that are not shipped are looked for as ``benchmarks/_data.py`` says; sections without their
data are left out with a message.

Verdicts are computed. A claim is a list of comparisons "A above B" in runs paired by seed. One is
won if the median difference is positive and Wilcoxon's one-sided signed-rank test, with Holm's
adjustment for the comparisons of the claim, gives p < 0.05; lost is the same for "below".
Differences that would be printed as zero are ties. All won: reproduced; none: not reproduced;
otherwise: partly. Other claims state their rule.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from sklearn_anneal.annealing import DeterministicAnnealing, StochasticAnnealing

from .. import _data
from .._report import Claim, Page, compared, machine, outcomes, quartiles, verdict
from .experiments import (
    section_clusters,
    section_forms,
    section_gultekin,
    section_objective,
    section_two_gaussians,
)
from .fits import BEGUN, FULL, QUICK, Size, drawn_start, fit, missing, progress

OUTPUT = Path(__file__).resolve().parents[2] / "doc" / "results" / "gaussian_mixture.md"

# Medians found before; the prior settings were not recorded with them.
EXPECTED = {
    ('digits "0"', "plain, drawn start"): -8011,
    ('digits "0"', "plain, k-means"): -8041,
    ('digits "0"', "deterministic, T₀=6"): -7822,
    ('digits "0"', "stochastic, 200"): -7846,
    ('digits "0"', "best of 10, drawn"): -7935,
    ('digits "0"', "best of 10, k-means"): -7995,
    ('digits "5"', "plain, drawn start"): -9047,
    ('digits "5"', "plain, k-means"): -8880,
    ('digits "5"', "deterministic, T₀=6"): -8769,
    ('digits "5"', "stochastic, 200"): -8636,
    ('digits "5"', "best of 10, drawn"): -8924,
    ('digits "5"', "best of 10, k-means"): -8837,
    ('MNIST "3"', "plain, drawn start"): -35836,
    ('MNIST "3"', "plain, k-means"): -35556,
    ('MNIST "3"', "deterministic, T₀=6"): -34635,
    ('MNIST "3"', "stochastic, 200"): -34646,
    ('MNIST "3"', "best of 10, k-means"): -35469,
}


@dataclass(frozen=True)
class Method:
    """A column of the main table.

    Attributes
    ----------
    name : str
    annealing : str or callable
        A name, or a function that makes an instance.
    parameters : dict
        Further parameters of the estimator.
    """

    name: str
    annealing: str | Callable[[], Any]
    parameters: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Any:
        return self.annealing if isinstance(self.annealing, str) else self.annealing()


SLOW = ("stochastic, 200", "structured", "proximity", "best of 10, drawn")

METHODS = [
    Method("plain, random responsibilities", "none", {"init_params": "random"}),
    Method("plain, drawn start", drawn_start),
    Method("plain, k-means", "none"),
    Method("deterministic, T₀=6", lambda: DeterministicAnnealing(initial_temperature=6)),
    Method("deterministic, default", "deterministic"),
    Method("stochastic, 50", lambda: StochasticAnnealing(n_passes=50)),
    Method("stochastic, 200", lambda: StochasticAnnealing(n_passes=200)),
    Method("tempering", "tempering"),
    Method("local_tempering", "local_tempering"),
    Method("svi_plus", "svi_plus"),
    Method("structured", "structured"),
    Method("proximity", "proximity"),
    Method("best of 10, drawn", drawn_start, {"n_init": 10}),
    Method("best of 10, k-means", "none", {"n_init": 10}),
]
REFERENCE = "best of 10, k-means"
ANNEALED = [m.name for m in METHODS[4:12] if m.name != "stochastic, 50"]


# Methods on several data sets


Record = dict[str, dict[str, np.ndarray]]


def run_methods(task: _data.Task, n_seeds: int, methods: list[Method]) -> Record:
    """Bounds of fits to all rows, held-out densities and seconds: method → name → (n_seeds,)."""
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


def main_tasks(size: Size) -> list[tuple[_data.Task, int]]:
    """Data sets and their numbers of seeds."""
    own = _data.synthetic_tasks()
    if size.quick:
        own = [task for task in own if task.name in ('digits "0"', "easy 2-D")]
    seeds = {"all digits": size.few}
    tasks = [(task, seeds.get(task.name, size.seeds)) for task in own]
    digits = [(3, 6, size.seeds), (0, 6, size.few), (8, 12, size.few)]
    try:
        for label, n_components, n in digits[:1] if size.quick else digits:
            tasks.append((_data.mnist_task(label, n_components, size.n_rows), n))
        if not size.quick:
            tasks.append((_data.pima_task(), size.seeds))
    except _data.DataNotFoundError as error:
        missing(error)
    return tasks


def section_methods(page: Page, size: Size) -> dict[str, Record]:
    methods = METHODS
    if size.quick:
        methods = [m for m in METHODS if m.name not in SLOW]
    records: dict[str, Record] = {}
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


def claims_of_methods(page: Page, records: dict[str, Record]) -> None:
    hard = [name for name in records if name.startswith(("digits", "MNIST"))]
    easy = [name for name in records if name in ("Pima", "all digits", "easy 2-D")]
    run = [m.name for m in METHODS if m.name in records[hard[0]]]
    annealed = [name for name in run if name in ANNEALED]

    def pairs(first: str, second: str, names: list[str], what: str = "bound") -> list:
        return [(n, records[n][first][what], records[n][second][what]) for n in names]

    source = "expected figures"
    for name in (
        "deterministic, T₀=6",
        "deterministic, default",
        "stochastic, 50",
        "stochastic, 200",
    ):
        if name in run:
            text = (
                f"{name}: one fit beats the best of ten plain fits (k-means, digits of one class)"
            )
            page.claims.append(compared(source, text, pairs(name, REFERENCE, hard)))
    gains = []
    for data in easy:
        record = records[data]
        best = max(annealed, key=lambda name, r=record: np.median(r[name]["bound"]))
        gains.append((f"{data}, {best}", record[best]["bound"], record[REFERENCE]["bound"]))
    wins, _, figures = outcomes(gains)
    page.claims.append(
        Claim(
            source,
            "No gain is to be had on Pima, on all digits together and on easy 2-D sets (rule, per "
            "data set: the best annealing method is not above the best of ten plain fits)",
            verdict(not win for win in wins),
            figures,
        )
    )
    names = list(records)
    for name in annealed:
        text = f"{name}: a better bound than plain inference from k-means"
        page.claims.append(compared("all papers", text, pairs(name, "plain, k-means", names)))
        text = f"{name}: better held-out density than plain inference from k-means"
        held_out = pairs(name, "plain, k-means", names, "held_out")
        page.claims.append(compared("all papers", text, held_out, 3))
    source = "Mandt et al. 2016"
    wins, _, figures = outcomes(pairs("deterministic, T₀=6", "tempering", hard))
    page.claims.append(
        Claim(
            source,
            "Variational tempering recovers or improves on the best annealing schedule (rule, per "
            "data set: deterministic annealing with T₀ = 6 is not above it)",
            verdict(not win for win in wins),
            f"deterministic − tempering: {figures}",
        )
    )
    text = "Local tempering predicts held-out rows better than global tempering"
    held_out = pairs("local_tempering", "tempering", hard, "held_out")
    page.claims.append(compared(source, text, held_out, 3))


# Prior settings


def section_priors(page: Page, size: Size) -> None:
    """Which weights' prior gives the expected figures of plain inference."""
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


# The page


def build(size: Size) -> str:
    """The page, in Markdown."""
    page = Page()
    fit(_data.easy_clusters(100), 2, 0, "none")  # kernels are compiled or loaded here
    records = section_methods(page, size)
    claims_of_methods(page, records)
    section_priors(page, size)
    section_gultekin(page, size)
    section_objective(page, size)
    section_clusters(page, size)
    section_two_gaussians(page, size)
    section_forms(page, size)
    head = Page()
    head.lines += ["# Gaussian mixtures: methods, and what the papers claim", ""]
    head.lines += [
        "Written by `benchmarks/gaussian_mixture/reproduce.py`; see there for the rules of the "
        f"verdicts. {machine()} The whole page took {(perf_counter() - BEGUN) / 60:.0f} minutes.",
        "",
    ]
    if size.quick:
        head.lines += ["**A quick run: far too small to tell anything.**", ""]
    head.section(
        "Verdicts",
        "A comparison is won if the median of the differences, paired by seed, is positive and "
        "Wilcoxon's one-sided signed-rank test gives p < 0.05 after Holm's adjustment for the "
        "comparisons of the claim; lost is the same below. Differences that would be printed as "
        "zero are ties. All won: reproduced; none: not reproduced; otherwise partly. Other rules "
        "are stated with the claim. The number of claims itself is not adjusted for.",
    )
    rows = [(c.source, c.text, f"**{c.verdict}**", c.figures) for c in page.claims]
    head.table(("source", "claim", "verdict", "figures"), rows)
    return "\n".join(head.lines + page.lines).rstrip() + "\n"


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
