"""Installed size, and the time of the first fit with and without compiled kernels on disk.

Sizes are those of the environment that runs this script, without pip and setuptools. Every time is
measured in a fresh interpreter, whose directory for compiled kernels is either empty or was just
filled by the one before.

    python -m benchmarks.package.installation --rounds 3
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from importlib.metadata import distributions
from pathlib import Path

from ..common import ROOT
from ..common.interpreters import seconds_in_fresh_interpreter

FIRST_FIT = """
from time import perf_counter
import numpy as np
from sklearn_anneal import AnnealedBayesianGaussianMixture
X = np.random.default_rng(0).standard_normal((200, 3))
mixture = AnnealedBayesianGaussianMixture(n_components=2, annealing="none", max_iter=1, tol=0)
start = perf_counter()
mixture.fit(X)
print(perf_counter() - start)
"""
WARM_UP = """
from time import perf_counter
import sklearn_anneal
start = perf_counter()
sklearn_anneal.warm_up()
print(perf_counter() - start)
"""


def megabytes(leave_out: set[str]) -> float:
    """Size of all installed distributions except the given ones."""
    total = 0
    for distribution in distributions():
        if distribution.metadata["Name"].lower() not in leave_out:
            paths = (Path(str(file.locate())) for file in distribution.files or ())
            total += sum(path.stat().st_size for path in paths if path.is_file())
    return total / 2**20


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args(argv).rounds
    times: dict[str, list[float]] = {"first fit": [], "first fit, cached": [], "warm_up": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            times["first fit"].append(seconds_in_fresh_interpreter(FIRST_FIT, cache))
            times["first fit, cached"].append(seconds_in_fresh_interpreter(FIRST_FIT, cache))
        with tempfile.TemporaryDirectory() as cache:
            times["warm_up"].append(seconds_in_fresh_interpreter(WARM_UP, cache))
    for name, values in times.items():
        print(f"{name}: median {statistics.median(values):.2f} s of {rounds}")
    files = [p for p in (ROOT / "sklearn_anneal").rglob("*.py")]
    print(f"package: {sum(p.stat().st_size for p in files) / 2**20:.2f} MB of Python files")
    print(f"all installed distributions: {megabytes({'pip', 'setuptools', 'wheel'}):.0f} MB")


if __name__ == "__main__":
    main()
