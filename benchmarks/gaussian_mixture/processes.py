"""Gaussian mixtures: restarts in two threads."""

from __future__ import annotations

from functools import partial

import numpy as np

from sklearn_anneal import AnnealedBayesianGaussianMixture

from ..common.measuring import interleaved, progress, spread, wall_seconds
from ..common.priors import PEER_OF_MIXTURES
from ..common.report import Page
from .workload import Size, blobs


def measure_jobs(size: Size) -> list[str]:
    """Restarts in two threads against one."""
    page = Page()
    page.section(
        "Two jobs",
        "`n_init=8`: time with `n_jobs=1` over time with `n_jobs=2`; the fits are the same bit "
        "for bit.",
    )
    rows = []
    for n, d, k, passes in size.restarts:
        progress(f"jobs, N = {n}, D = {d}, K = {k}")
        X = blobs(n, d)

        def fit(n_jobs: int, X: np.ndarray = X, k: int = k, passes: int = passes) -> None:
            AnnealedBayesianGaussianMixture(
                n_components=k,
                annealing="none",
                max_iter=passes,
                tol=0,
                n_init=8,
                init_params="random",
                random_state=0,
                n_jobs=n_jobs,
                **PEER_OF_MIXTURES,
            ).fit(X)

        fit(2)
        times = interleaved({jobs: partial(fit, jobs) for jobs in (1, 2)}, size.seeds, wall_seconds)
        cells = [f"{np.median(times[jobs]):.2f}" for jobs in (1, 2)]
        rows.append([str(n), str(d), str(k), *cells, spread(times[1] / times[2])])
    page.table(["N", "D", "K", "n_jobs=1, s", "n_jobs=2, s", "ratio"], rows)
    return page.lines
