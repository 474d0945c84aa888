"""Whole fits of topics: tables of counts, words that no document has, and numbers of passes.

Times and scores are those of scikit-learn's ``LatentDirichletAllocation`` too, with its topics and
its α in our ``score``.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.decomposition import LatentDirichletAllocation

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import StructuredVI

from ..common.measuring import interleaved, progress, reached, spread
from ..common.report import Page
from .absent import among
from .data import RATINGS, available, corpus

MOST = 3.0
# Rows, columns, mean tokens of a row, topics, and the parameters of the Dirichlet distributions
# from which proportions and topics are drawn.
TABLES = (
    (500, 2000, 1000, 10, 0.1, 0.1),
    (500, 2000, 2000, 20, 0.1, 0.1),
    (500, 2000, 4000, 20, 0.1, 0.1),
    (500, 2000, 2000, 50, 0.1, 0.3),
)
SMALL = ((60, 80, 100, 3, 0.1, 0.1),)
# The first seed of the tables; the rule that ends fits was chosen on others.
FIRST_SEED, HELD_OUT = 100, 200
CORPORA = ("AP", "NIPS", "20 Newsgroups", "baseball and hockey", RATINGS)
# Numbers of training documents.
DOCUMENTS = {
    "AP": 1000,
    "NIPS": 250,
    "20 Newsgroups": 2000,
    "baseball and hockey": 700,
    RATINGS: 743,
}
# The largest number of documents for the score.
MOST_SCORED = 300
PASSES, DEFAULT, TOPICS = (30, 60, 100, 150), 300, (20, 50)


def drawn_table(shape: tuple[Any, ...], seed: int) -> tuple[csr_matrix, csr_matrix]:
    """Counts drawn from latent Dirichlet allocation, and others from the same topics."""
    n, v, length, k, alpha, eta = shape
    rng = np.random.default_rng([seed, n, v, length, k])
    topics = rng.dirichlet(np.full(v, eta), k)
    means = rng.dirichlet(np.full(k, alpha), n + HELD_OUT) @ topics
    lengths = rng.negative_binomial(5, 5 / (5 + length), n + HELD_OUT) + 5
    counts = np.array(
        [rng.multinomial(m, p / p.sum()) for m, p in zip(lengths, means, strict=True)]
    )
    X = csr_matrix(counts.astype(np.float64))
    return X[:n], X[n:]


def split_of(name: str, n_documents: int, seed: int) -> tuple[csr_matrix, csr_matrix]:
    """Random documents of a corpus for training, and others for the score.

    Their words are those of the former. So many train as leave 300 for the score, or half.
    """
    X = corpus(name)
    n_documents = min(n_documents, max(X.shape[0] - MOST_SCORED, X.shape[0] // 2))
    order = np.random.default_rng(seed).permutation(X.shape[0])
    X = X[order[: n_documents + MOST_SCORED]].astype(np.float64)
    words = np.flatnonzero(np.asarray(X[:n_documents].sum(axis=0)).ravel() > 0)
    return X[:n_documents, words], X[n_documents:, words]


def trained_on(name: str, seed: int) -> tuple[csr_matrix, csr_matrix]:
    """Random documents of a corpus for training, and others for the score."""
    return split_of(name, DOCUMENTS.get(name, 40), seed)


def our_topics(k: int, seed: int, **params: Any) -> AnnealedLatentDirichletAllocation:
    return AnnealedLatentDirichletAllocation(k, random_state=seed, **params)


def score_of(fitted: Any, X: csr_matrix, test: csr_matrix) -> float:
    if isinstance(fitted, LatentDirichletAllocation):
        priors = {
            name: getattr(fitted, f"{name}_") for name in ("doc_topic_prior", "topic_word_prior")
        }
        topics = np.maximum(fitted.components_, 1e-12)
        how = {"annealing": "none", "max_iter": 0, "components_init": topics, **priors}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = our_topics(fitted.n_components, 0, **how).fit(X)
    return float(fitted.score(test))


# Tables with some counts per entry


def measure_tables(page: Page, size: Any) -> None:
    page.section(
        "Tables of some counts per entry",
        "Fits to tables drawn from as many topics as are fitted, and to the ratings of 743 users "
        "of MovieLens 100K as counts; float64, one thread, processor time. Medians over "
        f"{size.rounds} rounds, each with another table and seed, of which none served to choose "
        "the `tol` that ends the default. scikit-learn: 10 passes, its default, and 30. *Ratio*: "
        f"default over scikit-learn, median and quartiles; the target is at most {MOST:g} of the "
        "shorter of its fits. *All passes*: `StructuredVI(tol=0)`. *Score*: of other rows, in nats "
        "per token of one half given the other.",
    )
    rows = []
    tables: list[Any] = [*(SMALL if size.quick else TABLES)]
    if not size.quick:
        tables += available([RATINGS])
    for table in tables:
        progress(f"tables, {table}")
        rows.append(_row_of_table(table, size.rounds, size.quick))
    header = "table|K|tokens per entry|default, s|passes|all passes, s|scikit-learn 10, s"
    header += f"|scikit-learn 30, s|ratio, 10|≤ {MOST:g}|ratio, 30|score, default|score, all passes"
    page.table([*header.split("|"), "score, scikit-learn 10", "score, scikit-learn 30"], rows)


def _row_of_table(table: Any, rounds: int, quick: bool) -> list[str]:
    k = 10 if table == RATINGS else table[3]
    names = ("default", "all", "10", "30")
    times: dict[str, list[float]] = {name: [] for name in names}
    scores: dict[str, list[float]] = {name: [] for name in names}
    passes, density = [], []
    for seed in range(FIRST_SEED, FIRST_SEED + rounds):
        if table == RATINGS:
            X, test = split_of(RATINGS, 743, seed)
        else:
            X, test = drawn_table(table, seed)
        our_topics(k, 0, annealing=StructuredVI(n_passes=2)).fit(X)
        fits = {
            "default": our_topics(k, seed),
            "all": our_topics(k, seed, annealing=StructuredVI(tol=0)),
            "10": LatentDirichletAllocation(k, random_state=seed),
            "30": LatentDirichletAllocation(k, max_iter=3 if quick else 30, random_state=seed),
        }
        runs = {name: (lambda fit=fit, X=X: fit.fit(X)) for name, fit in fits.items()}
        for name, found in interleaved(runs, 1).items():
            times[name].append(float(found[0]))
            scores[name].append(score_of(fits[name], X, test))
        passes.append(fits["default"].n_passes_)
        density.append(X.sum() / X.nnz)
    seconds = {name: np.array(values) for name, values in times.items()}
    ratio = seconds["default"] / seconds["10"]
    label = table if table == RATINGS else "{} × {:,}".format(*table[:2])
    return [
        *(label, f"{k}", f"{np.mean(density):.1f}", f"{np.median(times['default']):.1f}"),
        "–".join(f"{n}" for n in sorted({min(passes), max(passes)})),
        *(f"{np.median(seconds[name]):.1f}" for name in names[1:]),
        *(spread(ratio), reached(float(np.median(ratio)) <= MOST)),
        spread(seconds["default"] / seconds["30"]),
        *(f"{np.median(scores[name]):.4f}" for name in names),
    ]


# Words that no document has


def measure_empty(page: Page, size: Any) -> None:
    if not available(["AP"]) and not size.quick:
        return
    X = corpus("drawn" if size.quick else "AP")[::4].astype(np.float64)
    X = X[:, np.flatnonzero(np.asarray(X.sum(axis=0)).ravel() > 0)].tocsr()
    k, vocabularies = (3, (200,)) if size.quick else (10, (2**17, 2**20))
    page.section(
        "Empty columns, against scikit-learn",
        f"Default fits of ours, and of scikit-learn with 10 passes, to {X.shape[0]} documents "
        "whose words are spread over a vocabulary of V words; the first V is that of their own "
        f"words. K = {k}, float64, one thread, processor time. *Growth*: the time over that with "
        "the first V; *ratio*: ours over scikit-learn's; medians and quartiles of "
        f"{size.rounds} rounds.",
    )
    data = {X.shape[1]: X} | {v: among(X, v) for v in vocabularies}
    our_topics(k, 0).fit(X)
    runs: dict[Any, Any] = {}
    for v, counts in data.items():
        progress(f"empty columns, {v}")
        runs["ours", v] = lambda counts=counts: our_topics(k, 0).fit(counts)
        runs["peer", v] = lambda counts=counts: LatentDirichletAllocation(k).fit(counts)
    times = interleaved(runs, size.rounds)
    first, rows = X.shape[1], []
    for v in data:
        ours, peer = times["ours", v], times["peer", v]
        row = [f"{v:,}", f"{np.median(ours):.1f}", f"{np.median(peer):.1f}"]
        growth = spread(ours / times["ours", first]), spread(peer / times["peer", first])
        rows.append([*row, *growth, spread(ours / peer)])
    header = ["V", "ours, s", "scikit-learn, s", "growth, ours", "growth, scikit-learn", "ratio"]
    page.table(header, rows)


# Numbers of passes


def measure_passes(page: Page, size: Any) -> None:
    page.section(
        "What passes bring",
        "Default fits to some documents of each corpus, and to the ratings of 743 users of "
        "MovieLens 100K as counts, with other numbers of passes: "
        "`annealing=StructuredVI(n_passes=…)`. Each is a fit of its own, in which the shares of "
        "passes after which priors are learned are the same. *Behind*: the score of 300 other "
        "documents or fewer, in nats per token of one half given the other, below that of "
        f"{DEFAULT} passes; in brackets, the processor time over that of {DEFAULT} passes. "
        f"float64, one thread; medians over {size.rounds} rounds, each with other documents and "
        f"another seed. *Made*: passes after which the fit of {DEFAULT} ended.",
    )
    passes = (12, 20) if size.quick else (*PASSES, DEFAULT)
    names = ["drawn"] if size.quick else available(CORPORA)
    rows, behind = [], []
    for name in names:
        for k in (3,) if size.quick else TOPICS:
            progress(f"passes, {name}, K = {k}")
            row, found = _row_of_passes(name, k, passes, size.rounds)
            rows.append(row)
            behind.append(found)
    header = [
        "corpus",
        "documents",
        "tokens",
        "K",
        f"score, {passes[-1]} passes",
        "seconds",
        "made",
    ]
    page.table([*header, *(f"behind, {n} passes" for n in passes[:-1])], rows)
    largest, middle = np.max(behind, axis=0), np.median(behind, axis=0)
    for n, most, usual in zip(passes[:-1], largest, middle, strict=True):
        page.lines.append(f"- {n} passes: {usual:.3f} behind in the median, {most:.3f} at most")
    page.lines.append("")


def _row_of_passes(
    name: str, k: int, passes: tuple[int, ...], rounds: int
) -> tuple[list[str], np.ndarray]:
    """The cells of a corpus, and how much fewer passes are behind the last number."""
    seconds, scores = (np.empty((rounds, len(passes))) for _ in range(2))
    made = []
    for seed in range(rounds):
        training, test = trained_on(name, seed)
        our_topics(k, 0, annealing=StructuredVI(n_passes=2)).fit(training)
        for i, n in enumerate(passes):
            start = time.process_time()
            fitted = our_topics(k, seed, annealing=StructuredVI(n_passes=n)).fit(training)
            seconds[seed, i] = time.process_time() - start
            scores[seed, i] = fitted.score(test)
        made.append(fitted.n_passes_)
    behind = np.median(scores[:, -1:] - scores[:, :-1], axis=0)
    share = np.median(seconds[:, :-1] / seconds[:, -1:], axis=0)
    row = [name, f"{training.shape[0]:,}", f"{training.sum():,.0f}", f"{k}"]
    row += [f"{np.median(scores[:, -1]):.4f}", f"{np.median(seconds[:, -1]):.1f}"]
    row.append("–".join(f"{n}" for n in sorted({min(made), max(made)})))
    return [*row, *(f"{b:.4f} ({s:.2f})" for b, s in zip(behind, share, strict=True))], behind
