"""Effects of the settings of every annealing method on Gaussian mixtures, over several data sets.

Each configuration is fitted to three quarters of the rows of every data set (MNIST: to 1,000 rows,
with 1,000 others held out). It is compared with plain variational inference from the k-means start
with the same seed and split, by the gains in the lower bound and in the held-out log predictive
density, both in nats per row, and by the fitting time. The script prints medians over seeds,
averaged over the data sets of a group (digits of one class, MNIST digits of one class,
low-dimensional sets, clusters in the plane), the worst data set, and the ratio of the fitting
times.

    python -m benchmarks.gaussian_mixture.tuning                    # everything; takes long
    python -m benchmarks.gaussian_mixture.tuning --only svi_plus --csv /tmp/svi_plus.csv
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import ANNEALING

from ..common.data import DataNotFoundError, left_out
from .data import (
    Task,
    digits_of,
    easy_clusters,
    four_clusters,
    iris,
    mnist_task,
    pima_task,
    wine,
)

GROUPS = ("digits", "MNIST", "low-dimensional", "2-D")


@dataclass(frozen=True)
class Configuration:
    """Settings of a method and of the estimator that are compared with plain inference.

    Attributes
    ----------
    method : str
        Name of the method.
    settings : dict
        Parameters of the method; all others keep their defaults.
    estimator : dict
        Parameters of the estimator.
    """

    method: str
    settings: dict[str, Any]
    estimator: dict[str, Any] = field(default_factory=dict)

    def label(self) -> str:
        both = {**self.settings, **self.estimator}
        return ", ".join(f"{name}={value}" for name, value in both.items()) or "default"


def grid(method: str, **values: Iterable[Any]) -> Iterator[Configuration]:
    """All combinations of some settings of a method."""
    for combination in itertools.product(*values.values()):
        yield Configuration(method, dict(zip(values, combination, strict=True)))


def minibatch(sizes: Iterable[int]) -> Iterator[Configuration]:
    """Configurations of plain stochastic inference with several learning rates."""
    for size, offset, decay in itertools.product(sizes, (1, 10, 64), (0.5, 0.6, 0.7, 0.9)):
        yield Configuration(
            "none",
            {},
            {"batch_size": size, "learning_offset": offset, "learning_decay": decay},
        )


def configurations() -> dict[str, list[Configuration]]:
    """The configurations that are measured, by section of the table."""
    return {
        "deterministic": [
            *grid("deterministic", n_passes=(20, 50, 100, 200)),
            *grid("deterministic", n_passes=(20, 50), jitter=(0.1, 0.3)),
            *grid(
                "deterministic",
                initial_temperature=(4, 6, 10, 15),
                n_passes=(20, 50),
                jitter=(0.0, 0.1, 0.3, 0.5),
            ),
            *grid("deterministic", initial_temperature=(6, 10), n_passes=(100,), jitter=(0.3,)),
            *grid("deterministic", initial_temperature=(6,), form=("posterior", "local")),
            *grid("deterministic", initial_temperature=(6,), schedule=("linear",)),
        ],
        "stochastic": list(
            grid(
                "stochastic",
                start=("random", "init_params"),
                initial_noise=(0.3, 0.5, 0.9),
                n_passes=(50, 100, 200),
            )
        ),
        "tempering": [
            *grid("tempering", max_temperature=(2, 5, 10, 30), damping=(0.02, 0.05, 0.1, 0.2)),
            *grid("tempering", max_temperature=(10, 30), n_passes=(50, 200)),
        ],
        "local_tempering": list(grid("local_tempering", n_passes=(20, 50, 100))),
        "svi_plus": [
            *grid(
                "svi_plus",
                effective_batch_size=(0.1, 0.25, 0.5),
                schedule=("constant", "linear", "geometric"),
                learning_rate=("decay", 0.5, 0.85),
            ),
            *grid(
                "svi_plus",
                effective_batch_size=(0.1, 0.25),
                schedule=("linear",),
                learning_rate=(0.7, 0.85, 1.0),
                n_passes=(20, 50, 100),
            ),
        ],
        "structured": [
            *grid("structured", n_passes=(100, 300, 500)),
            *grid("structured", n_passes=(300,), learning_rate=(0.1,)),
        ],
        "proximity": [
            *grid(
                "proximity", strength=(0.0, 1e-4, 1e-3, 1e-2, 1e-1), learning_rate=(0.3, 0.5, 0.7)
            ),
            *grid("proximity", strength=(1e-3,), n_passes=(20, 100)),
        ],
        "minibatch": list(minibatch((50,))),
    }


def tasks() -> list[Task]:
    """The data sets; those whose files are absent are left out with a message."""
    found = [
        Task('digits "0"', "digits", digits_of(0), 6),
        Task('digits "5"', "digits", digits_of(5), 12),
        Task('digits "8"', "digits", digits_of(8), 8),
        Task("iris", "low-dimensional", iris(), 5),
        Task("wine", "low-dimensional", wine(), 4),
        Task("easy 2-D", "2-D", easy_clusters(), 3),
        Task("four clusters", "2-D", four_clusters(), 4),
        Task("four clusters, K = 8", "2-D", four_clusters(), 8),
    ]
    try:
        found += [mnist_task(3, 6), mnist_task(8, 12), pima_task()]
    except DataNotFoundError as error:
        left_out(error)
    return found


def fit(
    task: Task, seed: int, annealing: Any, estimator: dict[str, Any]
) -> tuple[float, float, float]:
    """Bound per row, held-out density per row (nats) and seconds of one fit."""
    train, held_out = task.split(seed)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=task.n_components,
        weight_concentration_prior_type="dirichlet_distribution",
        annealing=annealing,
        max_iter=300,
        random_state=seed,
        **estimator,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        begun = perf_counter()
        mixture.fit(train)
        seconds = perf_counter() - begun
    return mixture.lower_bound_ / len(train), mixture.score(held_out), seconds


class Comparison:
    """Fits against plain variational inference from k-means, task by task and seed by seed."""

    def __init__(self, among: list[Task], n_seeds: dict[str, int]):
        self.tasks = among
        self.n_seeds = n_seeds
        fit(among[0], 0, "none", {})  # kernels are compiled or loaded; not counted
        self.plain = {
            (task.name, seed): fit(task, seed, "none", {})
            for task in among
            for seed in range(n_seeds[task.group])
        }

    def measure(self, configuration: Configuration) -> dict[str, tuple[float, float, float]]:
        """Medians over seeds, by task: bound gain, held-out gain, ratio of times."""
        method = ANNEALING[configuration.method]
        result = {}
        for task in self.tasks:
            rows = []
            for seed in range(self.n_seeds[task.group]):
                annealing = method(**configuration.settings)
                # A plain fit is timed directly before, because the load of a machine drifts over a
                # long run.
                beside = fit(task, seed, "none", {})[2]
                bound, held_out, seconds = fit(task, seed, annealing, configuration.estimator)
                plain = self.plain[task.name, seed]
                rows.append((bound - plain[0], held_out - plain[1], seconds / beside))
            result[task.name] = tuple(np.median(rows, axis=0))
        return result


def summary(
    measured: dict[str, tuple[float, float, float]], among: list[Task]
) -> list[tuple[str, float]]:
    """Means over the data sets of a group, the worst data set, and the geometric mean of times."""
    cells = []
    for column, what in enumerate(("bound", "held-out")):
        for group in GROUPS:
            values = [measured[t.name][column] for t in among if t.group == group]
            if values:
                cells.append((f"{what} {group}", float(np.mean(values))))
        cells.append((f"{what} worst", min(v[column] for v in measured.values())))
    cells.append(("time ratio", float(np.exp(np.mean([np.log(v[2]) for v in measured.values()])))))
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    sections = configurations()
    parser.add_argument("--only", nargs="+", choices=sorted(sections), default=sorted(sections))
    parser.add_argument("--seeds", type=int, default=5, help="seeds of small sets; MNIST: half")
    parser.add_argument("--csv", help="write one row per configuration and data set here")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    among = tasks()
    n_seeds = {group: arguments.seeds for group in GROUPS} | {"MNIST": (arguments.seeds + 1) // 2}
    comparison = Comparison(among, n_seeds)
    rows = []
    for section in arguments.only:
        for i, configuration in enumerate(sections[section]):
            measured = comparison.measure(configuration)
            cells = summary(measured, among)
            if i == 0:
                print(f"\n### {section}: gain over plain VI from k-means, nats per row\n")
                print("| settings | " + " | ".join(name for name, _ in cells) + " |")
                print("|---" * (len(cells) + 1) + "|")
            values = [f"{value:+.3f}" for _, value in cells[:-1]] + [f"{cells[-1][1]:.1f}"]
            print(f"| {configuration.label()} | " + " | ".join(values) + " |", flush=True)
            rows += [
                (section, configuration.label(), name, *(f"{v:.5f}" for v in values))
                for name, values in measured.items()
            ]
    if arguments.csv:
        with open(arguments.csv, "w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(("section", "settings", "data", "bound", "held_out", "time_ratio"))
            writer.writerows(rows)


if __name__ == "__main__":
    main()
