"""Default fits of topics that are followed: how much they would lose by an earlier end."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gammaln, psi

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import StructuredVI

from ..common.measuring import progress
from ..common.report import Page
from .data import available
from .fits import CORPORA, DEFAULT, TOPICS, trained_on

# A loss in nats per token that a rule may cause.
LIMIT = 0.003
# Passes after which the default compares its mean, but the first two of them.
ENDS = (134, 179, 239)
_FIRST_SEED = 200


class MeansOfFit:
    """A callback that scores the mean over passes and measures how far it has moved.

    Attributes
    ----------
    scores : dict
        Scores of the documents ``test`` after some numbers of passes.
    moved : dict
        Kullback-Leibler divergences between the topics of a mean and those of the mean before, in
        nats per token.
    """

    def __init__(self, test: Any, n_tokens: float, passes: tuple[int, ...]):
        self.test, self.n_tokens, self.passes = test, n_tokens, passes
        self.n_passes, self.before = 0, None
        self.scores: dict[int, float] = {}
        self.moved: dict[int, float] = {}

    def setup(self, estimator: Any, context: Any) -> None: ...

    def teardown(self, estimator: Any, context: Any) -> None: ...

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...

    def on_fit_task_end(self, estimator: Any, context: Any, *, fitted_estimator: Any) -> bool:
        if context.task_name == "pass":
            self.n_passes += 1
            if self.n_passes in self.passes:
                self.scores[self.n_passes] = float(fitted_estimator.score(self.test))
                topics = fitted_estimator.components_
                if self.before is not None:
                    found = divergence(topics, self.before) / self.n_tokens
                    self.moved[self.n_passes] = found
                self.before = topics
        return False


def divergence(a: np.ndarray, b: np.ndarray) -> float:
    """The sum of KL(Dir(a_k) ‖ Dir(b_k)) over rows k."""
    sums, others = a.sum(axis=1), b.sum(axis=1)
    found = gammaln(sums) - gammaln(others) + (gammaln(b) - gammaln(a)).sum(axis=1)
    return float((found + ((a - b) * (psi(a) - psi(sums)[:, None])).sum(axis=1)).sum())


def measure_ends(page: Page, size: Any) -> None:
    ends = (12, 14, 16) if size.quick else ENDS
    first = (11,) if size.quick else (100,)
    page.section(
        "What an earlier end would cost",
        f"Default fits of {DEFAULT} passes to the data of the section *What passes bring*. After "
        "some of them, the topics that a fit would return then are compared with those after three "
        "quarters of these passes, as the rule does that ends fits (`StructuredVI(tol=…)`, by "
        "default 0.01): *moved* is the Kullback-Leibler divergence in nats per token, and *rise* "
        "that of the score of other documents, 300 of them or fewer. *Behind*: this score below "
        "that of the last pass. The smallest and the largest value of "
        f"{size.rounds} fits, each to other documents with another seed.",
    )
    rows, found = [], []
    for name in ["drawn"] if size.quick else available(CORPORA):
        for k in (3,) if size.quick else TOPICS:
            progress(f"ends, {name}, K = {k}")
            of_fits = [_along(name, k, seed, (*first, *ends)) for seed in range(size.rounds)]
            values = np.array(of_fits)
            found.append(values)
            cells = zip(values.min(axis=0), values.max(axis=0), strict=True)
            rows.append([name, f"{k}", *(" to ".join(f"{v:.4f}" for v in cell) for cell in cells)])
    names = ("moved", "rise", "behind")
    header = [f"{name}, {n} passes" for n in ends for name in names]
    page.table(["data", "K", *header], rows)
    page.lines += [*_summary(np.concatenate(found), ends), ""]


def _along(name: str, k: int, seed: int, passes: tuple[int, ...]) -> list[float]:
    """How far the mean has moved, the rise of the score and what is left, for all but the first."""
    X, test = trained_on(name, _FIRST_SEED + seed)
    means = MeansOfFit(test, X.sum(), passes)
    n_passes = DEFAULT if passes[0] >= 100 else 20
    fitted = AnnealedLatentDirichletAllocation(
        k, random_state=seed, annealing=StructuredVI(n_passes=n_passes, tol=0)
    )
    last = fitted.set_callbacks(means).fit(X).score(test)
    return [
        value
        for before, n in zip(passes, passes[1:], strict=False)
        for value in (
            means.moved[n],
            means.scores[n] - means.scores[before],
            last - means.scores[n],
        )
    ]


def _summary(found: np.ndarray, ends: tuple[int, ...]) -> list[str]:
    """Sentences about fits that would lose at most the limit, and others."""
    lines = []
    for i, n in enumerate(ends):
        moved, rise, behind = found[:, 3 * i : 3 * i + 3].T
        worse = behind > LIMIT
        line = f"- {n} passes: {(~worse).sum()} of {len(found)} fits would lose at most {LIMIT}"
        if worse.any():
            first, second = ((values < values[worse].min()).sum() for values in (moved, rise))
            line += f"; {first} of them have moved less than each of the others, and {second} risen"
            line += " less"
        lines.append(line)
    return lines
