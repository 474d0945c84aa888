"""Installed size, and the time of first fits with and without compiled kernels on disk.

Sizes are those of the environment that runs this script, without pip and setuptools. Every time is
measured in a fresh interpreter, whose directory for compiled kernels is either empty or was just
filled by the one before. For each estimator, the processor time of a default fit and a prediction
is measured, of which what a fit with kernels on disk takes is not compilation.

    python -m benchmarks.package.installation --rounds 3
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import sklearn_anneal

from ..common import ROOT
from ..common.interpreters import seconds_in_fresh_interpreter

WARM_UP = """
from time import perf_counter
import sklearn_anneal
start = perf_counter()
sklearn_anneal.warm_up()
print(perf_counter() - start)
"""
OF_ESTIMATOR = """
from benchmarks.package.installation import first_default_fit
print(first_default_fit({name!r}))
"""
ESTIMATORS = {
    "AnnealedBayesianGaussianMixture": ("rows", "predict"),
    "AnnealedBayesianMixture": ("bits", "predict"),
    "AnnealedFactorialMixture": ("rows", "transform"),
    "AnnealedGammaProcessNMF": ("counts", "transform"),
    "AnnealedHMM": ("rows", "predict"),
    "AnnealedLatentDirichletAllocation": ("counts", "transform"),
    "AnnealedPMF": ("rows", "transform"),
    "AnnealedSigmoidBeliefNet": ("bits", "transform"),
    "AnnealedSpikeSlabFactorAnalysis": ("rows", "transform"),
}
"""Every estimator with the data that it is fitted to, and how it predicts."""


def first_default_fit(name: str) -> float:
    """Processor seconds of a default fit and a prediction in this process, without imports."""
    kind, predict = ESTIMATORS[name]
    rows = np.random.default_rng(0).standard_normal((100, 6))
    data = {"rows": rows, "bits": rows > 0.0, "counts": np.floor(np.exp(rows))}
    X = data[kind].astype(float)
    estimator: Any = getattr(sklearn_anneal, name)()
    import_module("sklearn_anneal.kernels._compile")
    start = process_time()
    getattr(estimator.fit(X), predict)(X)
    return process_time() - start


def measure_estimators(rounds: int) -> None:
    """Print the processor time of the first default fit of each estimator."""
    for name in ESTIMATORS:
        found: list[tuple[float, float]] = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as cache:
                code = OF_ESTIMATOR.format(name=name)
                first = seconds_in_fresh_interpreter(code, cache)
                found.append((first, seconds_in_fresh_interpreter(code, cache)))
        first, cached = (statistics.median(values) for values in zip(*found, strict=True))
        print(f"{name}: {first:.1f} s of processor time, with kernels on disk {cached:.1f} s")


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
    seconds = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            seconds.append(seconds_in_fresh_interpreter(WARM_UP, cache))
    print(f"warm_up: median {statistics.median(seconds):.2f} s of {rounds}")
    measure_estimators(rounds)
    files = [p for p in (ROOT / "sklearn_anneal").rglob("*.py")]
    print(f"package: {sum(p.stat().st_size for p in files) / 2**20:.2f} MB of Python files")
    print(f"all installed distributions: {megabytes({'pip', 'setuptools', 'wheel'}):.0f} MB")


if __name__ == "__main__":
    main()
