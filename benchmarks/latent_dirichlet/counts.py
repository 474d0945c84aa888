"""Default fits of topics to tables with many counts, such as those of genes or microbes."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.decomposition import LatentDirichletAllocation

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import StructuredVI

from ..common.measuring import interleaved, milliseconds, progress, reached, spread
from ..common.report import Page
from .workload import Size

TOPICS, WORDS, HELD_OUT = 10, 300, 100
# Mean number of tokens of a document of each table.
TOKENS = (2400, 10_000)
MOST = 3.0
# Passes of the fits that draw each token.
DRAWN_PASSES = 60


def drawn_table(n_tokens: int, n_documents: int, seed: int = 0) -> csr_matrix:
    """Counts of documents whose lengths differ, drawn from topics that share their words."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(WORDS, 0.1), TOPICS)
    proportions = rng.dirichlet(np.full(TOPICS, 0.3), n_documents)
    lengths = rng.gamma(4.0, n_tokens / 4.0, (n_documents, 1))
    return csr_matrix(rng.poisson(lengths * (proportions @ topics)).astype(np.float64))


def measure_counts(size: Size) -> list[str]:
    """The time and the score of default fits, against scikit-learn's and draws of tokens."""
    n_documents = 40 if size.quick else 200
    page = Page()
    page.section(
        "Many counts",
        f"Fits to {n_documents} drawn documents, V = {WORDS}, K = {TOPICS}, float64, one thread, "
        "processor time. The default makes mean-field steps in minibatches there. scikit-learn: "
        'its default, 10 passes. *Draws*: `local_step="collapsed_gibbs"` with '
        f"{DRAWN_PASSES} passes. Ratio: our default over scikit-learn, median and quartiles of "
        f"{size.rounds} rounds, each with another table and seed; the target is at most {MOST:g}. "
        f"*Scores*: of {HELD_OUT} other documents, in nats per token, mean over the tables; "
        "scikit-learn's topics and α are scored by our `score`.",
    )
    wanted = TOKENS[:1] if size.quick else TOKENS
    rows = [_row(n_tokens, n_documents, size.rounds) for n_tokens in wanted]
    header = ["tokens per entry", "default, ms", "scikit-learn, ms", "draws, ms", "ratio"]
    header += ["≤ 3", "score, default", "score, scikit-learn", "score, draws"]
    page.table(header, rows)
    return page.lines


def _row(n_tokens: int, n_documents: int, rounds: int) -> list[str]:
    few = StructuredVI(n_passes=DRAWN_PASSES)
    ours = AnnealedLatentDirichletAllocation
    times: dict[str, list[float]] = {"default": [], "peer": [], "draws": []}
    scores: dict[str, list[float]] = {name: [] for name in times}
    ratios = []
    warm = drawn_table(n_tokens, 20)
    ours(TOPICS).fit(warm).score(warm)
    ours(TOPICS, annealing=few, local_step="collapsed_gibbs").fit(warm).score(warm)
    for seed in range(rounds):
        progress(f"many counts, {n_tokens} tokens, table {seed}")
        X = drawn_table(n_tokens, n_documents + HELD_OUT, seed)
        X, others = X[:n_documents], X[n_documents:]
        ratios.append(X.sum() / X.nnz)
        fits: dict[str, Any] = {
            "default": ours(TOPICS, random_state=seed),
            "peer": LatentDirichletAllocation(TOPICS, random_state=seed),
            "draws": ours(TOPICS, annealing=few, local_step="collapsed_gibbs", random_state=seed),
        }
        runs = {name: (lambda fit=fit, X=X: fit.fit(X)) for name, fit in fits.items()}
        for name, seconds in interleaved(runs, 1).items():
            times[name].append(float(seconds[0]))
        for name, fit in fits.items():
            scored = fit if name != "peer" else _as_ours(fit, X)
            scores[name].append(scored.score(others))
    found = {name: np.array(values) for name, values in times.items()}
    ratio = found["default"] / found["peer"]
    return [
        f"{np.mean(ratios):.1f}",
        *(milliseconds(found[name]) for name in times),
        spread(ratio),
        reached(float(np.median(ratio)) <= MOST),
        *(f"{np.mean(scores[name]):.4f}" for name in times),
    ]


def _as_ours(fitted: LatentDirichletAllocation, X: csr_matrix) -> AnnealedLatentDirichletAllocation:
    """Our estimator with the topics and the prior of scikit-learn's, without a pass of its own."""
    return AnnealedLatentDirichletAllocation(
        TOPICS,
        annealing="none",
        max_iter=0,
        components_init=fitted.components_,
        doc_topic_prior=fitted.doc_topic_prior_,
        topic_word_prior=fitted.topic_word_prior_,
    ).fit(X)
