"""Memory that a fit takes beyond its data.

Every fit runs in a fresh interpreter, whose anonymous memory is sampled while it works;
``benchmarks/common/memory.py`` explains this measure.

- `memmap`: a fit in minibatches to rows of a file on disk. The growth is counted from the state
  after `import sklearn_anneal`, so that it includes the compiler and the kernels.
- `array`: a batch fit to rows in memory. The growth is counted from the state in which the rows are
  made and the kernels are loaded, so that it consists of the temporary arrays of the loop.

    python -m benchmarks.package.memory
    python -m benchmarks.package.memory --rows 2000000 --annealing local_tempering
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import sklearn_anneal

from ..common.interpreters import in_fresh_interpreter, run_task
from ..common.memory import STATUS, Sampler, anonymous_megabytes
from ..common.priors import PEER_OF_MIXTURES

LIMITS = {"memmap": 300.0, "array": 100.0}
BLOCK = 250_000


def draw_rows(n_rows: int, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw float32 rows around eight centers."""
    centers = 4 * np.random.default_rng(1).standard_normal((8, n_features))
    rows = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    rows += centers.astype(np.float32)[rng.integers(8, size=n_rows)]
    return rows


def write_rows(path: Path, n_rows: int, n_features: int) -> None:
    """Write a file of float32 rows, block by block."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for start in range(0, n_rows, BLOCK):
            file.write(draw_rows(min(BLOCK, n_rows - start), n_features, rng).tobytes())


def mixture(options: dict[str, Any], **parameters: Any) -> Any:
    """The estimator; ``passes`` are those of the schedule and also those at T = 1 after it."""
    made = sklearn_anneal.AnnealedBayesianGaussianMixture(
        n_components=options["components"],
        annealing=options["annealing"],
        max_iter=options["passes"],
        random_state=0,
        **PEER_OF_MIXTURES | parameters,
    )
    if options["annealing"] != "none":
        made.set_params(annealing__n_passes=options["passes"])
    return made


def fit_memmap(options: dict[str, Any]) -> dict[str, float]:
    """Growth of the anonymous memory of a fit to a memory-mapped file, in this process."""
    before = anonymous_megabytes()
    shape = (options["rows"], options["features"])
    X = np.memmap(options["path"], dtype=np.float32, mode="r", shape=shape)
    made = mixture(options, batch_size=10_000)
    if not np.shares_memory(made._validate_data(X, reset=True), X):
        raise MemoryError("validation copied the memory-mapped file")
    return fit(made, X, before)


def fit_array(options: dict[str, Any]) -> dict[str, float]:
    """Growth of the anonymous memory of a batch fit to an array, in this process."""
    sklearn_anneal.warm_up("gaussian_mixture")
    rng = np.random.default_rng(0)
    X = draw_rows(options["rows"], options["features"], rng).astype(np.float64)
    return fit(mixture(options, init_params="random"), X, anonymous_megabytes())


def copy_array(options: dict[str, Any]) -> dict[str, float]:
    """Growth of the anonymous memory while an array is copied, to test the measure itself."""
    X = np.ones(options["values"])
    with Sampler() as sampler:
        copy = X.copy()
    return {"growth": sampler.growth, "copy": copy.nbytes / 1e6}


def fit(made: Any, X: np.ndarray, before: float) -> dict[str, float]:
    """Fit while a sampler measures the memory."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    start = time.perf_counter()
    with Sampler() as sampler:
        made.fit(X)
    return {
        "before": before,
        "peak": sampler.peak,
        "growth": sampler.peak - before,
        "data": X.nbytes / 1e6,
        "seconds": time.perf_counter() - start,
        "passes": float(made.n_iter_),
    }


def _measured(case: str, **options: Any) -> dict[str, float]:
    return in_fresh_interpreter("package.memory", case, **options)


def measure_memmap(annealing: str, rows: int, passes: int = 1) -> dict[str, float]:
    """Write a file, fit it in minibatches in a fresh interpreter, and return the cost."""
    shape = {"rows": rows, "features": 10, "components": 8}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.float32"
        write_rows(path, rows, shape["features"])
        return _measured("memmap", path=str(path), annealing=annealing, passes=passes, **shape)


def measure_array(annealing: str) -> dict[str, float]:
    """Fit an array in batch mode in a fresh interpreter, and return the cost."""
    shape = {"rows": 50_000, "features": 30, "components": 20}
    return _measured("array", annealing=annealing, passes=3, **shape)


def measure_copy() -> dict[str, float]:
    """Copy an array in a fresh interpreter, and return the growth and the size of the copy."""
    return _measured("copy", values=5_000_000)


def report(case: str, annealing: str, found: dict[str, float]) -> None:
    print(
        f"{case:7} {annealing:16} data {found['data']:7.1f} MB  before {found['before']:6.1f} MB  "
        f"peak {found['peak']:6.1f} MB  growth {found['growth']:6.1f} MB  "
        f"({found['passes']:.0f} passes, {found['seconds']:.1f} s)  limit {LIMITS[case]:.0f} MB "
        f"{'met' if found['growth'] <= LIMITS[case] else 'MISSED'}",
        flush=True,
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the file")
    parser.add_argument("--annealing", nargs="+", default=["none", "local_tempering"])
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if not STATUS.exists():
        parser.error(f"needs {STATUS}, which this system does not have")
    if arguments.task is not None:
        tasks = {"memmap": fit_memmap, "array": fit_array, "copy": copy_array}
        run_task(tasks, arguments.task)
        return
    for annealing in arguments.annealing:
        report("memmap", annealing, measure_memmap(annealing, rows=arguments.rows, passes=2))
    for annealing in arguments.annealing:
        report("array", annealing, measure_array(annealing))


if __name__ == "__main__":
    main()
