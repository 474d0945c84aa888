"""Streams that are read once against fits: held-out densities by the size of the batches.

Mixtures of Gaussians, hidden Markov models, factorial mixtures, sparse factors, topics,
factorisations of counts and of ratings, and nets read real and drawn data in batches, by
``partial_fit``. They are compared with default fits to the same data, and with streams of updates
alone, which ``max_iter=1`` makes of them; topics and counts also with streams of other libraries.

``--write`` writes the page ``doc/results/streams.md``; without it the page is printed. ``--quick``
is a small run that shows that everything works and whose figures mean nothing. Data whose file is
missing are left out.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedFactorialMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    AnnealedSigmoidBeliefNet,
    AnnealedSpikeSlabFactorAnalysis,
)
from sklearn_anneal.metrics import document_completion_log_likelihood, split_documents

from . import streams_of_peers
from .common import RESULTS
from .common.data import DataNotFoundError, load
from .common.measuring import progress
from .common.peers import versions
from .common.report import Page, machine, write_or_print
from .suite.data import MNIST, corpus, pixels, words
from .suite.instances import INSTANCES as OF_SUITE
from .suite.instances import Instance

PAGE = RESULTS / "streams.md"
ROWS = (
    *("groups/separated 10 in 05", "groups/overlapping 10 in 05", "groups/separated 15 in 20"),
    *("mixture/diabetes", "mixture/pen frames", "mixture/motion frames", "mixture/gait frames"),
    *("mixture/wine, white", "mixture/digits"),
)
SEQUENCES = (
    *("sequence/drawn, sticky 8", "sequence/pen d", "sequence/pen m", "sequence/motions"),
    *("sequence/gait", "sequence/gestures", "sequence/vowels"),
)
SUMS = (
    *("factorial/parts of a paper", "factorial/squares", "factorial/digits", "factorial/digit 8"),
    *("factors/drawn, both sparse", "factors/drawn, factors sparse", "factors/cancer"),
    "factors/digits",
)
TOPICS = (
    *("topics/ap 10", "topics/ap 25", "topics/newsgroups20 10", "topics/newsgroups20 25"),
    *("topics/newsgroups_basehock 15", "topics/nips 15"),
)
RATINGS = ("ratings/movielens_100k 5", "ratings/jester 3")
COUNTS = ("counts/drawn 5", "counts/drawn 12", "counts/digits", "counts/nips", "counts/news")
# Longer corpora, whose last documents come after the last fit.
LONGER = {
    f"topics/{name} {k}, {n:,}": Instance(
        f"topics/{name} {k}, {n:,}", k, partial(corpus, f"{name}.npz", n), f"{name}.npz"
    )
    for name, k, n in (("ap", 5, 1500), ("newsgroups20", 10, 6000))
}


def black_pixels(at_most: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of MNIST in black and white, and half as many others."""
    images = load(MNIST)["images"]
    rows = np.random.default_rng(0).permutation(len(images))[: 3 * at_most // 2]
    X = (images[rows].reshape(len(rows), -1) > 127).astype(np.int64)
    return X[:at_most], X[at_most:]


# Nets with one hidden layer of so many units.
NETS = {
    f"nets/{name}": Instance(f"nets/{name}", 32, data, file)
    for name, data, file in (
        ("digits", partial(pixels, 1200), None),
        ("words", words, "newsgroups_w100.npz"),
        ("mnist", partial(black_pixels, 2000), "mnist.npz"),
    )
}
SIZES, N_SEEDS = (20, 100, 500), 3
SIZES_OF_RATINGS = (300, 1000, 5000)
# The longest piece of a sequence, so that a batch has at least one whole sequence.
PIECE = 20


CLASSES: dict[str, Any] = {
    "sequence": AnnealedHMM,
    "factorial": AnnealedFactorialMixture,
    "factors": AnnealedSpikeSlabFactorAnalysis,
    "topics": AnnealedLatentDirichletAllocation,
    "counts": AnnealedGammaProcessNMF,
    "nets": AnnealedSigmoidBeliefNet,
}
INSTANCES = OF_SUITE | LONGER | NETS


class Data(NamedTuple):
    """Rows, or the frames of sequences of which each is as long as ``lengths`` says."""

    X: Any
    lengths: np.ndarray | None

    def how(self) -> dict[str, np.ndarray]:
        return {} if self.lengths is None else {"lengths": self.lengths}


def pieces(sequences: Any) -> list[np.ndarray]:
    """Sequences, divided where they are long."""
    ends = np.cumsum(sequences.lengths)[:-1]
    return [
        one[start : start + PIECE]
        for one in np.split(sequences.X, ends)
        for start in range(0, len(one), PIECE)
    ]


def joined(sequences: list[np.ndarray]) -> Data:
    return Data(np.concatenate(sequences), np.array([len(one) for one in sequences]))


def batches(data: Data, size: int) -> Iterator[Data]:
    """Batches of so many rows, or of sequences with at least so many frames."""
    if data.lengths is None:
        for start in range(0, data.X.shape[0], size):
            yield Data(data.X[start : start + size], None)
        return
    held: list[np.ndarray] = []
    for one in np.split(data.X, np.cumsum(data.lengths)[:-1]):
        held.append(one)
        if sum(map(len, held)) >= size:
            yield joined(held)
            held = []
    if held:
        yield joined(held)


@cache
def ordered_rows(name: str) -> np.ndarray:
    """The rows by their first column, or by the largest component of a fit to topics or counts."""
    train, _ = INSTANCES[name].load()
    by = train[:, 0]
    if INSTANCES[name].family in ("topics", "counts"):
        cls, k = CLASSES[INSTANCES[name].family], INSTANCES[name].n_components
        by = cls(n_components=k, random_state=0).fit(train).transform(train).argmax(axis=1)
    return np.argsort(by, kind="stable")


def divided(name: str, seed: int, ordered: bool) -> tuple[Data, Data]:
    """The training data in random order, or sorted, and the held-out data."""
    train, test = INSTANCES[name].load()
    rng = np.random.default_rng(seed)
    if ordered:
        return Data(train[ordered_rows(name)], None), Data(test, None)
    if name in SEQUENCES:
        parts = pieces(train)
        return joined([parts[i] for i in rng.permutation(len(parts))]), joined(pieces(test))
    return Data(train[rng.permutation(train.shape[0])], None), Data(test, None)


def held_out(est: Any, data: Data) -> float:
    """The score, which is that of one half of the counts of each row given the other half.

    The score of factorisations of counts is one of whole rows, whose sums say most of it.
    """
    if not isinstance(est, AnnealedGammaProcessNMF):
        return float(est.score(data.X, **data.how()))
    seen, rest = split_documents(csr_matrix(data.X))
    shares = est.components_ / est.components_.sum(axis=1, keepdims=True)
    activations = est.transform(seen) * est.components_.sum(axis=1)
    activations /= activations.sum(axis=1, keepdims=True)
    likelihood, n = document_completion_log_likelihood(rest, activations, shares)
    return float(likelihood.sum() / n.sum())


def measured(
    name: str, seed: int, sizes: tuple[int, ...], ordered: bool = False
) -> dict[Any, tuple[float, float]]:
    """The held-out score per row or frame, and the seconds, of a fit and of each stream."""
    train, test = divided(name, seed, ordered)
    cls = CLASSES.get(INSTANCES[name].family, AnnealedBayesianGaussianMixture)
    k, number = INSTANCES[name].n_components, "n_components"
    if cls is AnnealedSigmoidBeliefNet:
        number = "hidden_layer_sizes"
    make = {number: k, "random_state": seed}
    found: dict[Any, tuple[float, float]] = {}

    def keep(key: Any, begun: float, est: Any) -> None:
        seconds = time.process_time() - begun
        found[key] = held_out(est, test), seconds

    begun = time.process_time()
    keep("fit", begun, cls(**make).fit(train.X, **train.how()))
    for size in sizes:
        for kind, also in (("stream", {}), ("updates", {"max_iter": 1})):
            est, begun = cls(**make, **also), time.process_time()
            for batch in batches(train, max(size, 2 * k if number == "n_components" else 1)):
                est.partial_fit(batch.X, **batch.how())
            keep((kind, size), begun, est)
    return found


def in_all(page: Page, title: str, pairs: list[tuple[float, float]]) -> None:
    """Sum up by how much streams and updates differ from fits, if there are any."""
    if not pairs:
        return
    updates, streams = np.median(pairs, axis=0)
    gains = np.array([stream - update for update, stream in pairs])
    better, worse = (gains > 0.005).sum(), (gains < -0.005).sum()
    page.lines += [
        f"{title}: streams differ from fits by {streams:+.3f} nats in the median of "
        f"{len(pairs)} comparisons, updates alone by {updates:+.3f}. Streams are better than these "
        f"by more than 0.005 nats in {better}, and worse in {worse}.",
        "",
    ]


def section(
    page: Page,
    title: str,
    names: tuple[str, ...],
    quick: bool,
    ordered: bool = False,
    unit: str = "row or frame",
) -> list[tuple[float, float]]:
    """Add a table; return the differences of updates and of streams from fits, as it has them."""
    sizes, seeds = (SIZES[1:2], 1) if quick else (SIZES, N_SEEDS)
    lines, pairs = [], []
    for name in names[:1] if quick else names:
        try:
            each = [measured(name, seed, sizes, ordered) for seed in range(seeds)]
        except DataNotFoundError as error:
            progress(f"{name} is left out: {error}")
            continue
        progress(name)
        medians = {key: np.median([one[key] for one in each], axis=0) for key in each[0]}
        train, _ = divided(name, 0, ordered)
        figures = [f"{medians['fit'][0]:.3f}"]
        for size in sizes:
            losses = [
                np.median([one[kind, size][0] - one["fit"][0] for one in each])
                for kind in ("updates", "stream")
            ]
            ratio = medians["stream", size][1] / medians["updates", size][1]
            pairs.append((losses[0], losses[1]))
            figures += [*(f"{loss:+.3f}" for loss in losses), f"{ratio:.1f}"]
        k = INSTANCES[name].n_components
        shape = [f"{train.X.shape[0]:,}", f"{train.X.shape[1]}", f"{k}"]
        lines.append([name.partition("/")[2], *shape, *figures])
    page.section(
        title,
        "The score of the fit, and by how much that of each stream differs from it, in nats per "
        f"{unit}: medians over the seeds. *Updates*: `max_iter=1`. *Time*: processor time of "
        "the stream over that of updates alone.",
    )
    head = [f"{what}, {n}" for n in sizes for what in ("updates", "stream", "time")]
    page.table(["data", "N", "D", "K", "fit", *head], lines)
    in_all(page, "In this table", pairs)
    return pairs


def of_ratings(name: str, seed: int, sizes: tuple[int, ...], order: str) -> list[float]:
    """The held-out score per rating of a fit, and what updates and streams differ from it."""
    train, test = INSTANCES[name].load()
    n_users, n_items = (int(max(one.X[:, i].max() for one in (train, test))) + 1 for i in (0, 1))
    rows = np.random.default_rng(seed).permutation(len(train.y))
    if order != "random":
        rows = rows[np.argsort(train.X[rows, 0 if order == "users" else 1], kind="stable")]
    X, y = train.X[rows], train.y[rows]
    make: dict[str, Any] = {"n_components": INSTANCES[name].n_components, "random_state": seed}
    make |= {"input": "pairs", "n_users": n_users, "n_items": n_items}
    fit = AnnealedPMF(**make).fit(X, y).score(test.X, test.y)
    found = [fit]
    for size in sizes:
        seconds = []
        for also in ({"max_iter": 1}, {}):
            est, begun = AnnealedPMF(**make, **also), time.process_time()
            for start in range(0, len(y), size):
                est.partial_fit(X[start : start + size], y[start : start + size])
            seconds.append(time.process_time() - begun)
            found.append(est.score(test.X, test.y) - fit)
        found.append(seconds[1] / seconds[0])
    return found


def section_of_ratings(page: Page, quick: bool) -> None:
    """Add the table of ratings, in random order and sorted."""
    sizes, seeds = (SIZES_OF_RATINGS[1:2], 1) if quick else (SIZES_OF_RATINGS, N_SEEDS)
    lines, pairs = [], []
    for name in RATINGS[-1:] if quick else RATINGS:
        try:
            n = len(INSTANCES[name].load()[0].y)
        except DataNotFoundError as error:
            progress(f"{name} is left out: {error}")
            continue
        for order in ("random", "users", "items"):
            each = [of_ratings(name, seed, sizes, order) for seed in range(seeds)]
            fit, *rest = np.median(each, axis=0)
            figures = [f"{x:.1f}" if i % 3 == 2 else f"{x:+.3f}" for i, x in enumerate(rest)]
            pairs += list(zip(rest[::3], rest[1::3], strict=True))
            k = INSTANCES[name].n_components
            title = name.partition("/")[2].rpartition(" ")[0]
            lines.append([title, order, f"{n:,}", f"{k}", f"{fit:.3f}", *figures])
            progress(f"{name}, {order}")
    page.section(
        "Ratings, as pairs",
        "The same in nats per rating, by the number of ratings in a batch. Ratings come in random "
        "order, or sorted by users or by items.",
    )
    head = [f"{what}, {n}" for n in sizes for what in ("updates", "stream", "time")]
    page.table(["data", "order", "N", "K", "fit", *head], lines)
    in_all(page, "In this table", pairs)


def section_of_peers(page: Page, quick: bool) -> None:
    """Add the table of streams of other libraries."""
    size, names = SIZES[1], (*TOPICS, *COUNTS, *LONGER)
    lines, gains = [], []
    for name in COUNTS[:1] if quick else names:
        try:
            each = [
                streams_of_peers.measured(
                    INSTANCES[name], divided(name, seed, False)[0].X, seed, size
                )
                for seed in range(1 if quick else N_SEEDS)
            ]
        except DataNotFoundError as error:
            progress(f"{name} is left out: {error}")
            continue
        progress(f"{name}, other libraries")
        behind = {
            kind: np.median([one[kind][0] - one["ours"][0] for one in each]) for kind in each[0]
        }
        seconds = {kind: np.median([one[kind][1] for one in each]) for kind in each[0]}
        ours = np.median([one["ours"][0] for one in each])
        for kind, by in behind.items():
            score = f"{ours:.3f}" if kind == "ours" else f"{by:+.3f}"
            lines.append([name, kind, score, f"{seconds[kind]:.2g}"])
        gains.append(-max(by for kind, by in behind.items() if not kind.startswith("ours")))
    found = np.array(gains)
    page.section(
        "Topics and counts against streams of other libraries",
        f"Batches of {size} rows. The score of our stream, and by how much others differ from it, "
        "in nats per token of one half of each held-out row given the other half: medians over "
        "the seeds. Proportions of topics are inferred by the same code from the topics of each "
        "library. *scikit-learn*: `partial_fit` of `LatentDirichletAllocation`, by default for a "
        "million documents, or told their number, also with `learning_offset=1`, which makes early "
        "steps longer; and of `MiniBatchNMF` for the Kullback-Leibler divergence, with its default "
        "`forget_factor=0.7` and with 0.5, whose rates are taken as they are or with a tenth of "
        "the margins of the table, whichever is better for the held-out tokens. *gensim*: "
        '`update` of `LdaModel` with `alpha="auto"` and `eta="auto"`, and so many passes over '
        "each batch. "
        f"{versions(streams_of_peers.PEERS)}. Seconds are processor time.",
    )
    page.table(["data", "stream", "score", "seconds"], lines)
    if len(found):
        page.lines += [
            f"Our stream is ahead of the best of the others by {np.median(found):.3f} nats in the "
            f"median of {len(found)} tables, by {found.min():.3f} at least.",
            "",
        ]


def written(quick: bool) -> str:
    page = Page()
    page.lines += ["# Streams against fits", ""]
    page.lines += [f"Written by `python -m benchmarks.streams --write`. {machine()}", ""]
    if quick:
        page.lines += ["**A quick run: far too small to tell anything.**", ""]
    page.lines += [
        "Streams read data once, in batches of "
        + ", ".join(map(str, SIZES[:-1]))
        + f" or {SIZES[-1]} "
        "rows or frames, without `total_samples`. They are fitted to all rows so far whenever "
        "these have grown by a half: from 25 rows for each component on, and one for each "
        "component and column of full covariances, up to eight times as many. Afterwards the "
        "fit is repeated with a sample of rows where later or earlier ones are predicted worse "
        "than expected. Topics and factorisations of counts are fitted so from two rows for "
        "each component on, up to 200, and ratings from 200 for each factor on, up to 20,000. "
        "They are updated afterwards. Nets repeat steps with random rows of the stream. A stream "
        "that ends with a fit to all rows is this fit. "
        "Sequences are divided into pieces of at most "
        f"{PIECE} frames. Full covariances, default settings, {N_SEEDS} seeds.",
        "",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = section(page, "Mixtures of Gaussians", ROWS, quick)
        section(page, "Mixtures of Gaussians, rows sorted by their first column", ROWS, quick, True)
        found += section(page, "Hidden Markov models", SEQUENCES, quick)
        found += section(page, "Factorial mixtures and sparse factors", SUMS, quick)
        how = {"unit": "token, of one half of the tokens of each row given the other half"}
        counts = (*TOPICS, *COUNTS, *LONGER)
        of_counts = section(page, "Topics and factorisations of counts", counts, quick, **how)
        by = "sorted by the largest component of a fit"
        section(page, f"Topics and factorisations of counts, {by}", counts, quick, True, **how)
        section_of_peers(page, quick)
        section_of_ratings(page, quick)
        title = "Nets with one hidden layer"
        section(page, title, tuple(NETS), quick, unit="row, of which the score is a bound")
    page.lines += ["## All tables in random order", ""]
    in_all(page, "Rows and sequences", found)
    in_all(page, "Topics and counts", of_counts)
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
