"""Default fits of topics to few documents, with other priors of the words of topics."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.decomposition import LatentDirichletAllocation

from sklearn_anneal.estimators._priors import prior_of_words

from ..common.measuring import interleaved, progress
from ..common.report import Page
from .data import available
from .fits import CORPORA, MOST_SCORED, our_topics, score_of, split_of

# Numbers of training documents, and of topics.
DOCUMENTS, TOPICS = (100, 300, 1000), (5, 20)
# The default was chosen on documents drawn with other seeds.
_FIRST_SEED = 300


def measure_small(page: Page, size: Any) -> None:
    page.section(
        "The prior of words of few documents",
        "Default fits to some documents of each corpus, and to ratings of MovieLens 100K as "
        f"counts, and the score of {MOST_SCORED} other documents or fewer in nats per token of one "
        "half given the other. The default falls where a word occurs fewer than "
        "100 times on average (*tokens per word*). *Gain over no fall*: over the same "
        'number without this; *over learned*: over `topic_word_prior="auto"`; *over '
        "scikit-learn*: over the topics of its class after 30 passes. Seconds are processor time. "
        f"float64, one thread; medians over {size.rounds} rounds, each with other documents and "
        "another seed, of which none served to choose the default.",
    )
    rows = []
    for name in ["drawn"] if size.quick else available(CORPORA):
        for n_documents in (40,) if size.quick else DOCUMENTS:
            for k in (3,) if size.quick else TOPICS:
                progress(f"few documents, {name}, {n_documents}, K = {k}")
                rows.append(_row(name, n_documents, k, size))
    header = "corpus|documents|tokens per word|K|score|gain over no fall|over learned"
    page.table([*header.split("|"), "over scikit-learn", "seconds", "scikit-learn, s"], rows)


def _row(name: str, n_documents: int, k: int, size: Any) -> list[str]:
    scores: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    per_word = []
    for seed in range(_FIRST_SEED, _FIRST_SEED + size.rounds):
        X, test = split_of(name, n_documents, seed)
        per_word.append(X.sum() / X.shape[1])
        number = float(prior_of_words("scaled", k, X.shape[1])[0])
        fits = {
            "default": our_topics(k, seed),
            "no fall": our_topics(k, seed, topic_word_prior=number),
            "learned": our_topics(k, seed, topic_word_prior="auto"),
            "scikit-learn": LatentDirichletAllocation(
                k, max_iter=3 if size.quick else 30, random_state=seed
            ),
        }
        runs = {fit: (lambda fitted=fitted, X=X: fitted.fit(X)) for fit, fitted in fits.items()}
        for fit, found in interleaved(runs, 1).items():
            seconds.setdefault(fit, []).append(float(found[0]))
            scores.setdefault(fit, []).append(score_of(fits[fit], X, test))
    default = np.array(scores["default"])
    gains = (f"{np.median(default - scores[fit]):+.4f}" for fit in list(fits)[1:])
    row = [name, f"{X.shape[0]:,}", f"{np.median(per_word):.0f}", f"{k}"]
    row += [f"{np.median(default):.4f}", *gains]
    return [*row, *(f"{np.median(seconds[fit]):.1f}" for fit in ("default", "scikit-learn"))]
