"""Memory that a default fit takes beyond its data, for every estimator, by the number of rows.

Every fit runs in a fresh interpreter, in which a small fit has loaded the kernels before. Its
anonymous memory is sampled while it works (``benchmarks/common/memory.py``). The growth with many
rows less that with few rows, divided by the difference of the numbers of rows, is what a row takes;
the rest does not depend on the rows.

    python -m benchmarks.package.memory_of_fits --write
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse

import sklearn_anneal
from sklearn_anneal.annealing import StructuredVI

from ..common import RESULTS
from ..common.interpreters import in_fresh_interpreter, run_task
from ..common.memory import Sampler
from ..common.report import Page, machine, write_or_print

PAGE = RESULTS / "memory.md"
FEW, MANY = 5_000, 25_000
PASSES = 3
_SCRIPT = "package.memory_of_fits"


def _real(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((n, 20)) + 3.0 * rng.integers(0, 5, (n, 1))


def _counts(n: int, rng: np.random.Generator) -> csr_matrix:
    """Return rows with 40 of 2,000 columns."""
    columns = rng.integers(0, 2000, 40 * n).astype(np.int32)
    values = 1.0 + rng.poisson(0.5, 40 * n)
    found = csr_matrix((values, columns, np.arange(0, 40 * n + 1, 40)), shape=(n, 2000))
    found.sum_duplicates()
    return found


CASES: dict[str, tuple[dict[str, Any], Callable[[int, np.random.Generator], Any]]] = {
    "AnnealedBayesianGaussianMixture": ({"n_components": 10}, _real),
    "AnnealedBayesianMixture": (
        {"n_components": 10, "emission": "categorical"},
        lambda n, rng: rng.integers(0, 4, (n, 20)),
    ),
    "AnnealedFactorialMixture": ({"n_components": 5}, _real),
    "AnnealedLatentDirichletAllocation": (
        {"n_components": 10, "annealing": StructuredVI(n_passes=PASSES)},
        _counts,
    ),
    "AnnealedGammaProcessNMF": ({"n_components": 10}, _counts),
    "AnnealedHMM": ({"n_components": 5}, _real),
    "AnnealedPMF": ({"n_components": 10}, _counts),
    "AnnealedSpikeSlabFactorAnalysis": ({"n_components": 5}, _real),
    "AnnealedSigmoidBeliefNet": (
        {"hidden_layer_sizes": (20,)},
        lambda n, rng: (rng.random((n, 50)) < 0.3).astype(float),
    ),
}
"""Estimator → the parameters that are not its defaults, and what draws its data."""


def _size(X: Any) -> float:
    """Return the size of the data in MB."""
    arrays = (X.data, X.indices, X.indptr) if issparse(X) else (X,)
    return sum(array.nbytes for array in arrays) / 1e6


def fit(options: dict[str, Any]) -> dict[str, float]:
    """Growth of the memory of a fit, in this process."""
    warnings.simplefilter("ignore")
    params, draw = CASES[options["estimator"]]
    estimator = getattr(sklearn_anneal, options["estimator"])(
        max_iter=PASSES, random_state=0, **params
    )
    rng = np.random.default_rng(0)
    estimator.fit(draw(2000, rng))
    X = draw(options["rows"], rng)
    with Sampler() as sampler:
        estimator.fit(X)
    return {"growth": sampler.growth, "data": _size(X)}


def written(quick: bool) -> str:
    """Measure, and return the page."""
    few, many = (500, 1000) if quick else (FEW, MANY)
    page = Page(["# Memory of fits", ""])
    command = "`python -m benchmarks.package.memory_of_fits`"
    page.section(
        "What a row takes",
        f"Written by {command}. {machine()}",
        f"Default fits with {PASSES} passes at T = 1 after the schedule, and the moves of the "
        f"search; topics make {PASSES} passes in all. *Data*: bytes of a row of the data as they "
        "are given. *Beyond*: bytes of the "
        f"process for each further row, from the fits to {few:,} and {many:,} rows. *Rest*: what "
        "does not depend on the rows. Both can be negative, where a fit takes memory that the "
        "making of the data has left free. Rows have 20 numbers, 40 of 2,000 counts or ratings, or "
        "50 bits; mixtures of categories read integers of eight bytes.",
    )
    rows = []
    for name in CASES:
        a, b = (in_fresh_interpreter(_SCRIPT, "fit", estimator=name, rows=n) for n in (few, many))
        data = (b["data"] - a["data"]) * 1e6 / (many - few)
        beyond = (b["growth"] - a["growth"]) * 1e6 / (many - few)
        rest = a["growth"] - beyond * few / 1e6
        ratio = beyond / data
        rows.append([f"`{name}`", f"{data:.0f}", f"{beyond:.0f}", f"{ratio:.2f}", f"{rest:.0f}"])
    page.table(["estimator", "data, bytes", "beyond, bytes", "ratio", "rest, MB"], rows)
    return "\n".join(page.lines)


def main(argv: list[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["--task"]:
        run_task({"fit": fit}, argv[1])
        return
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
