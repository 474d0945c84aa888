"""Default fits of topics while the vocabulary grows by words that no document has."""

from __future__ import annotations

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
from .data import documents
from .workload import Size, names

# Only every n-th document is used.
SAMPLED = {"AP": 8}
# The time of a fit, less that of an array like the topics, over that without absent words.
MOST = 1.3
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "draws of topics": {"local_step": "mean_field"},
    "plain": {"annealing": "none", "max_iter": 50},
}
_QUICK_SETTINGS: dict[str, dict[str, Any]] = {"default": {"annealing": StructuredVI(n_passes=12)}}


def among(X: csr_matrix, n_words: int) -> csr_matrix:
    """The same documents in a vocabulary of ``n_words``, in which their words are spread."""
    X = X[:, np.flatnonzero(np.asarray(X.sum(axis=0)).ravel() > 0)].tocsr()
    if n_words <= X.shape[1]:
        return X
    columns = np.random.default_rng(0).choice(n_words, X.shape[1], replace=False)
    words = np.sort(columns).astype(np.int32)[X.indices]
    return csr_matrix((X.data, words, X.indptr), shape=(X.shape[0], n_words))


def measure_absent(size: Size) -> list[str]:
    """The time and the memory of fits to the same documents in larger and larger vocabularies."""
    (name,) = names(size, ("AP",)) or [None]
    page = Page()
    if name is None:
        return page.lines
    X, k = documents(name, SAMPLED).astype(np.float64), size.online_topics
    page.section(
        "Words that no document has",
        f"Fits to {X.shape[0]} documents of {name}, whose words are spread over a vocabulary of "
        f"V words, K = {k}, float64, one thread, processor time; the first V is that of their "
        "own words. *Ratio*: the time, less that of filling one array of the shape of "
        "`components_`, over the time with the first V, median and quartiles of "
        f"{size.rounds} rounds; the target is at most {MOST:g}. *Peak*: the most memory that "
        "Python and NumPy had for arrays and objects at one moment of a fit, beyond the data; "
        "*components*: what of it is `components_`. All settings but the default have random "
        "starts, for which a number is drawn for each word and topic as in scikit-learn.",
    )
    rows = []
    for setting, params in (_QUICK_SETTINGS if size.quick else SETTINGS).items():
        rows += _rows(setting, params, X, k, size)
    header = ["fit", "V", "time, ms", "an array, ms", "ratio", f"≤ {MOST:g}", "peak, MB"]
    page.table([*header, "components, MB"], rows)
    return page.lines


def _rows(
    setting: str, params: dict[str, Any], X: csr_matrix, k: int, size: Size
) -> list[list[str]]:
    progress(f"absent words, {setting}")
    data = {v: among(X, v) for v in (0, *size.absent_vocabularies)}

    def fit(v: int) -> AnnealedLatentDirichletAllocation:
        return AnnealedLatentDirichletAllocation(k, random_state=0, **params).fit(data[v])

    runs: dict[Any, Callable[[], object]] = {}
    for v, documents_of_v in data.items():
        runs["fit", v] = partial(fit, v)
        runs["array", v] = partial(np.ones, (k, documents_of_v.shape[1]))
    fit(0)
    times = interleaved(runs, size.rounds)
    rows = []
    for v, documents_of_v in data.items():
        seconds, filled = times["fit", v], times["array", v]
        ratio = (seconds - filled) / times["fit", 0]
        components = 8e-6 * k * documents_of_v.shape[1]
        peak = _peak(runs["fit", v])
        row = [setting, f"{documents_of_v.shape[1]:,}", milliseconds(seconds), milliseconds(filled)]
        row += [spread(ratio), reached(float(np.median(ratio)) <= MOST)]
        rows.append([*row, f"{peak:.0f}", f"{components:.0f}"])
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
