"""The gain from more passes of a default fit of topics: held-out likelihood against time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import StructuredVI

from ..common.measuring import progress
from ..common.report import Page
from .data import Limits, completion_parts
from .workload import Size, names

CORPORA = ("AP", "NIPS", "20 Newsgroups", "baseball and hockey")
# Only every n-th training document is used.
SAMPLED = {"20 Newsgroups": 6, "AP": 2, "NIPS": 4, "baseball and hockey": 2}
TEST = Limits(300, 30_000)
DEFAULT = 300
# A fit that is behind the default by less than this, in nats per token, is as good.
AS_GOOD = 0.01
PASSES = (30, 60, 100, 150)
TOPICS = (20, 50)


def measure_passes(size: Size) -> list[str]:
    """The held-out likelihood and the time of fits of fewer passes than the default's."""
    page = Page()
    page.section(
        "What passes bring",
        "Default fits of some training documents of each corpus, float64, one thread, with other "
        "numbers of passes: `annealing=StructuredVI(n_passes=…)`. Each is a fit of its own, in "
        "which the shares of passes after which priors are learned are the same. *Behind*: the "
        f"score of {TEST.documents} test documents or fewer, in nats per token of one half given "
        f"the other, below that of {DEFAULT} passes; in brackets, the processor time over that of "
        f"{DEFAULT} passes. Medians over {size.rounds} rounds of one seed each.",
    )
    rows, behind, spared = [], [], []
    passes = (12, 20) if size.quick else (*PASSES, DEFAULT)
    for name in names(size, CORPORA):
        for k in (4,) if size.quick else TOPICS:
            progress(f"passes, {name}, K = {k}")
            row, found, share = _row(name, k, passes, size.rounds)
            rows.append(row)
            behind.append(found)
            spared.append(1.0 - min([1.0, *share[found < AS_GOOD]]))
    header = ["corpus", "documents", "tokens", "K", f"score, {passes[-1]} passes", "seconds"]
    page.table([*header, *(f"behind, {n} passes" for n in passes[:-1])], rows)
    if behind:
        largest, middle = np.max(behind, axis=0), np.median(behind, axis=0)
        for n, most, usual in zip(passes[:-1], largest, middle, strict=True):
            page.lines.append(f"- {n} passes: {usual:.3f} behind in the median, {most:.3f} at most")
        page.lines += [
            f"- The shortest of these fits that is less than {AS_GOOD:g} behind, if one is, saves "
            f"{np.mean(spared):.0%} of the time on average over the rows, and {min(spared):.0%} at "
            "least. A rule that ended fits among these lengths, and not too early, could not save "
            "more.",
            "",
        ]
    return page.lines


def _row(
    name: str, k: int, passes: tuple[int, ...], rounds: int
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The cells of a corpus, how much fewer passes are behind the last number, and their time."""
    training, test = completion_parts(name, TEST)
    training = training[:: SAMPLED.get(name, 1)].astype(np.float64)
    seconds, scores = (np.empty((rounds, len(passes))) for _ in range(2))
    _fitted(k, training[:20], 2, 0)
    for seed in range(rounds):
        for i, n in enumerate(passes):
            start = time.process_time()
            fitted = _fitted(k, training, n, seed)
            seconds[seed, i] = time.process_time() - start
            scores[seed, i] = fitted.score(test)
    behind = np.median(scores[:, -1:] - scores[:, :-1], axis=0)
    share = np.median(seconds[:, :-1] / seconds[:, -1:], axis=0)
    row = [name, f"{training.shape[0]:,}", f"{training.sum():,.0f}", str(k)]
    row += [f"{np.median(scores[:, -1]):.4f}", f"{np.median(seconds[:, -1]):.1f}"]
    row += [f"{b:.4f} ({s:.2f})" for b, s in zip(behind, share, strict=True)]
    return row, behind, share


def _fitted(k: int, training: Any, n: int, seed: int) -> AnnealedLatentDirichletAllocation:
    method = StructuredVI(n_passes=n, evaluate_every=n)
    return AnnealedLatentDirichletAllocation(k, annealing=method, random_state=seed).fit(training)
