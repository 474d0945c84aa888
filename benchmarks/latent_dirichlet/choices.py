"""Choices behind the defaults of sampled topics, judged by bound and by held-out likelihood.

The documents that judge are split off the training documents of the corpora, so that the test
documents of other benchmarks play no part in the choice. Records of fits are appended to a file,
from which the page is written.

    python -m benchmarks.latent_dirichlet.choices --records FILE            # about an hour
    python -m benchmarks.latent_dirichlet.choices --records FILE --write
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import StructuredVI
from sklearn_anneal.estimators._priors import prior_of_words
from sklearn_anneal.models import latent_dirichlet

from ..common import RESULTS
from ..common.report import Page, machine
from ..common.reproduction import BaseSpec, Cache, Record, n_seeds, run_missing
from .contestants import in_words, state_of
from .course import Judge
from .data import available, parts

OUTPUT = "topics_choices.md"
# For these numbers of words the default η is a part of the key of a fit.
VOCABULARIES = 1_000, 16_000
# One in so many training documents judges.
EVERY = {"AP": 8, "NIPS": 8, "20 Newsgroups": 16, "drawn": 4}


class Choice(NamedTuple):
    """A way to fit topics.

    Attributes
    ----------
    words : str
        What differs from the default.
    parameters : callable
        ``parameters(n_components)`` returns arguments of the estimator.
    smallest : float or None
        The smallest number of tokens of a word that a topic keeps in the mean; None is the default.
    """

    words: str
    parameters: Callable[[int], dict[str, Any]] = lambda k: {}
    smallest: float | None = None

    def fit(self, X: csr_matrix, k: int, seed: int) -> AnnealedLatentDirichletAllocation:
        """Fit K topics."""
        changed: Any = nullcontext()
        if self.smallest is not None:
            changed = patch.object(latent_dirichlet, "_SMALLEST_MEAN", self.smallest)
        lda = AnnealedLatentDirichletAllocation(k, random_state=seed, **self.parameters(k))
        with changed:
            return lda.fit(X)


def _of_topics_alone(k: int) -> dict[str, Any]:
    return {"topic_word_prior": 2 * k**-0.75}


def _of_few_passes(k: int) -> dict[str, Any]:
    return {"annealing": StructuredVI(n_passes=60)}


DEFAULT = "default"
CHOICES = {
    DEFAULT: Choice("nothing"),
    "any vocabulary": Choice("η is 2 / K^(3/4), whatever the number of words is", _of_topics_alone),
    "all fractions": Choice("the mean keeps all fractions of tokens", smallest=0.0),
    "both": Choice("both of these", _of_topics_alone, smallest=0.0),
    "sixty passes": Choice("60 passes instead of 300", _of_few_passes),
}


@cache
def prepared(corpus: str) -> tuple[csr_matrix, Judge]:
    """The documents to fit and those that judge, with the words that can be learned."""
    X = parts(corpus)[0].tocsr()
    judging = np.arange(X.shape[0]) % EVERY[corpus] == 3
    known = np.flatnonzero(np.asarray(X[~judging].sum(axis=0)).ravel() > 0)
    fitted = csr_matrix(X[~judging][:, known], dtype=np.float32)
    return fitted, Judge(csr_matrix(X[judging][:, known]))


@cache
def _warm() -> None:
    """Load or compile the kernels, before the clock starts."""
    CHOICES[DEFAULT].fit(prepared("drawn")[0], 3, 0)


@dataclass(frozen=True)
class Spec(BaseSpec):
    """Everything that determines a fit."""

    corpus: str
    n_components: int
    choice: str
    settings: str
    seed: int = 0

    @classmethod
    def of(cls, corpus: str, n_components: int, choice: str) -> Spec:
        how = CHOICES[choice]
        smallest = latent_dirichlet._SMALLEST_MEAN if how.smallest is None else how.smallest
        # Defaults are part of the key, so that fits are made again when they change.
        settings = {
            "topic_word_prior": [
                float(prior_of_words("scaled", n_components, v)[0]) for v in VOCABULARIES
            ],
            **latent_dirichlet._RECOMMENDED_FOR_SAMPLER,
            **how.parameters(n_components),
            "smallest mean": smallest,
        }
        return cls(corpus, n_components, choice, in_words(settings))

    @property
    def label(self) -> str:
        return f"{self.corpus}, K = {self.n_components}, {self.choice}, seed {self.seed}"

    def run(self) -> dict[str, Any]:
        X, judge = prepared(self.corpus)
        _warm()
        with threadpool_limits(1):
            begun = time.process_time()
            lda = CHOICES[self.choice].fit(X, self.n_components, self.seed)
            seconds = time.process_time() - begun
            held_out = judge.log_likelihood(state_of(lda))
        bound = lda.lower_bound_ / float(X.sum())
        return {"held_out": held_out, "bound": bound, "seconds": seconds, "words": X.shape[1]}


@dataclass(frozen=True)
class Size:
    """The corpora, the numbers of topics, and the number of seeds."""

    corpora: tuple[str, ...] = ("AP", "NIPS", "20 Newsgroups")
    topics: tuple[int, ...] = (50, 200, 500)
    seeds: int = 2

    def cells(self) -> Iterator[tuple[str, int, str]]:
        for corpus in self.corpora:
            for k in self.topics:
                for choice in CHOICES:
                    yield corpus, k, choice


FULL = Size()
QUICK = Size(corpora=("drawn",), topics=(3,), seeds=1)


def render(size: Size, cache: Cache) -> str:
    """The page, of the seeds that all cells have."""
    cells = {cell: Spec.of(*cell) for cell in size.cells()}
    records = cache.of_common_seeds(cells, size.seeds)
    page = Page()
    page.lines += [
        "# Choices behind the defaults of sampled topics",
        "",
        f"{machine()} Written by `python -m benchmarks.latent_dirichlet.choices`.",
        "",
        "Each row changes the default: "
        + "; ".join(f"*{name}*: {choice.words}" for name, choice in CHOICES.items())
        + ". Held-out log-likelihood (completion of documents that were split off the training "
        "documents) and lower bound of the training documents, both in nats per token, and "
        "processor time are means over seeds, in brackets what the default gains over the row. "
        f"Bounds of different η are those of different models. Seeds: {n_seeds(records)}.",
        "",
    ]
    rows = []
    for (corpus, k, choice), record in records.items():
        default = records.get((corpus, k, DEFAULT))
        if default is not None:
            rows.append(_row(corpus, k, choice, record, default))
    page.table(["corpus", "words", "K", "choice", "held out", "bound", "seconds"], rows)
    return "\n".join(page.lines).rstrip() + "\n"


def _row(corpus: str, k: int, choice: str, record: Record, default: Record) -> list[str]:
    figures = []
    for name in ("held_out", "bound"):
        mean = record[name].mean()
        gain = "" if choice == DEFAULT else f" ({default[name].mean() - mean:+.3f})"
        figures.append(f"{mean:.3f}{gain}")
    seconds = f"{record['seconds'].mean():.1f}"
    return [corpus, f"{record['words'][0]:,.0f}", str(k), choice, *figures, seconds]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=Path, required=True, help="JSON lines, one per fit")
    parser.add_argument("--quick", action="store_true", help="a small run that tells nothing")
    parser.add_argument("--write", action="store_true", help=f"write {OUTPUT}, and fit nothing")
    parser.add_argument("--output", type=Path, help="another file for the page")
    arguments = parser.parse_args(argv)
    if arguments.quick and arguments.write and arguments.output is None:
        parser.error("--quick needs --output, so that it does not replace the full page")
    size = QUICK if arguments.quick else FULL
    found = Cache(arguments.records, Spec)
    if arguments.write and not found.n_seeds((Spec.of(*cell) for cell in size.cells()), size.seeds):
        parser.error(f"{arguments.records} has no seed of all fits")
    if arguments.write:
        page = arguments.output or RESULTS / OUTPUT
        page.write_text(render(size, found), encoding="utf-8")
        return
    there = set(available(size.corpora))
    specs = [Spec.of(*cell) for cell in size.cells() if cell[0] in there]
    run_missing(specs, size.seeds, found)


if __name__ == "__main__":
    main()
