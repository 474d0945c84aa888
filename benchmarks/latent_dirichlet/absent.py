"""Fits of topics while the vocabulary grows by words that no document has."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import StructuredVI

from ..common.measuring import interleaved, milliseconds, progress, reached, spread
from ..common.report import Page
from .data import available, corpus

# The user time of a fit over that without absent words.
MOST = 1.3
# The smallest time that the system tells, in seconds.
TICK = 0.01
VOCABULARIES, TOPICS = (2**17, 2**20), 50
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "draws of topics": {"local_step": "mean_field"},
    "plain": {"annealing": "none", "max_iter": 50},
}
_QUICK_SETTINGS: dict[str, dict[str, Any]] = {"default": {"annealing": StructuredVI(n_passes=12)}}


def among(X: csr_matrix, n_words: int) -> csr_matrix:
    """The same documents in a vocabulary of ``n_words``, in which their words are spread."""
    places = np.sort(np.random.default_rng(0).choice(n_words, X.shape[1], replace=False))
    words = places.astype(np.int32)[X.indices]
    return csr_matrix((X.data, words, X.indptr), shape=(X.shape[0], n_words))


def measure_absent(page: Page, size: Any) -> None:
    """The time and the memory of fits to the same documents in larger and larger vocabularies."""
    if not size.quick and not available(["AP"]):
        return
    X = corpus("drawn") if size.quick else corpus("AP")[::8].astype(np.float64)
    X = X[:, np.flatnonzero(np.asarray(X.sum(axis=0)).ravel() > 0)].tocsr()
    k, vocabularies = (3, (200,)) if size.quick else (TOPICS, VOCABULARIES)
    page.section(
        "Words that no document has",
        f"Fits to {X.shape[0]} documents of AP, whose words are spread over a vocabulary of V "
        f"words, K = {k}, float64, one thread; the first V is that of their own words. *Time* is "
        "processor time; *system* is its part in which the operating system hands out memory, as "
        "for any new array of the shape of `components_`, which takes several times as long if no "
        "process has used that memory for a second; *user* is the rest. *An array*: processor "
        "time of filling such an array, soon after another one was released. *Ratio*: the user "
        f"time over that with the first V, median and quartiles of {size.rounds} rounds; the "
        f"target is at most {MOST:g}. *Peak*: the most memory that Python and NumPy had for arrays "
        "and objects at one moment of a fit, beyond the data; *components*: what of it is "
        "`components_`.",
    )
    data = {X.shape[1]: X} | {v: among(X, v) for v in vocabularies}
    rows = []
    for setting, params in (_QUICK_SETTINGS if size.quick else SETTINGS).items():
        progress(f"absent words, {setting}")
        rows += _rows(setting, params, data, k, size.rounds)
    header = ["fit", "V", "time, ms", "user, ms", "system, ms", "an array, ms", "ratio"]
    page.table([*header, f"≤ {MOST:g}", "peak, MB", "components, MB"], rows)


def _rows(
    setting: str, params: dict[str, Any], data: dict[int, csr_matrix], k: int, rounds: int
) -> list[list[str]]:
    def fit(v: int) -> AnnealedLatentDirichletAllocation:
        return AnnealedLatentDirichletAllocation(k, random_state=0, **params).fit(data[v])

    first = min(data)
    fit(first)
    runs = {v: partial(fit, v) for v in data}
    arrays = {v: partial(np.ones, (k, v)) for v in data}
    user: dict[int, list[float]] = {v: [] for v in data}
    system: dict[int, list[float]] = {v: [] for v in data}
    for i in range(rounds):
        for v in list(data)[:: 1 if i % 2 == 0 else -1]:
            before = os.times()
            runs[v]()
            after = os.times()
            user[v].append(after.user - before.user)
            system[v].append(after.system - before.system)
    filled = interleaved(arrays, rounds)
    rows = []
    for v in data:
        times = np.array(user[v]), np.array(system[v])
        ratio = times[0] / np.maximum(user[first], TICK)
        row = [setting, f"{v:,}", *map(milliseconds, (sum(times), *times, filled[v]))]
        row += [spread(ratio), reached(float(np.median(ratio)) <= MOST)]
        rows.append([*row, f"{_peak(runs[v]):.0f}", f"{8e-6 * k * v:.0f}"])
    return rows


def _peak(run: Callable[[], object]) -> float:
    """Largest memory of arrays and objects during a call, beyond what there was before, in MB."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run()
        return 1e-6 * (tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
