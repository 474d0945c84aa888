"""Topics of the standard library.

Topic models of text that is on every installation of Python: the documentation strings of its
standard library. Plain variational inference (VI) with one start and with several meets one
annealed fit of each kind, and the topics of both are printed and drawn.

Run it with ``python -m benchmarks.latent_dirichlet.comparison``; it takes about a minute.
"""

# Text
#
# Each documentation string of at least thirty words is a document. The source files are parsed and
# not imported, so that nothing of them is run. Lines of examples (``>>>``) are left out.

import argparse
import ast
import re
import sys
import sysconfig
import time
import warnings
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import vstack
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import DeterministicAnnealing
from sklearn_anneal.inspection import LowerBoundDisplay, TopicsDisplay
from sklearn_anneal.metrics import (
    document_completion_log_likelihood,
    split_documents,
    topic_coherence,
)

SKIPPED = {"test", "tests", "idlelib", "idle_test", "lib2to3", "turtledemo", "ensurepip"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
WORD = r"(?u)\b[a-zA-Z]{3,}\b"


def docstrings(path):
    """The documentation strings of a source file, without the lines of their examples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some files have escapes that newer versions deprecate
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            return
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED):
            yield re.sub(r"(?m)^\s*(>>>|\.\.\.).*$", "", ast.get_docstring(node) or "")


def load_documents(folder=None, n_words=30):
    """Different documentation strings of at least ``n_words`` words in the standard library."""
    folder = Path(sysconfig.get_path("stdlib") if folder is None else folder)
    documents = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts[0] in sys.stdlib_module_names and SKIPPED.isdisjoint(parts):
            documents |= dict.fromkeys(
                text for text in docstrings(path) if len(re.findall(WORD, text)) >= n_words
            )
    if not documents:
        raise RuntimeError(
            f"There are no documented source files of the standard library in {folder}: this "
            "Python came without them. Use another one."
        )
    return list(documents)


def count_words(documents):
    """Counts of words in the documents to fit and in those held out, and the words."""
    fitted, held_out = train_test_split(documents, test_size=0.25, random_state=0)
    vectorizer = CountVectorizer(stop_words="english", min_df=5, max_df=0.2, token_pattern=WORD)
    train = vectorizer.fit_transform(fitted)
    return train, vectorizer.transform(held_out), vectorizer.get_feature_names_out()


# Contestants
#
# All have the same model, twenty topics with the same priors. Deterministic annealing takes part
# with its default form and with the one that tempers nothing but the topics of words
# (``"local"``). scikit-learn's class comes with its default of ten passes.

SKLEARN, RESTARTS, SINGLE = "scikit-learn, 10 passes", "plain VI, 5 starts", "plain VI, 1 start"
ANNEALED = {
    "deterministic": {"annealing": "deterministic"},
    "deterministic, local": {
        "annealing": DeterministicAnnealing(form="local", initial_temperature=2.0)
    },
    "stochastic": {"annealing": "stochastic"},
    "tempering": {"annealing": "tempering"},
    "structured": {"annealing": "structured"},
    "structured, CVB0": {"annealing": "structured", "local_step": "cvb0"},
}


def contestants(n_components, seed):
    """Unfitted estimators by name."""
    ours = {
        RESTARTS: {"annealing": "none", "n_init": 5},
        SINGLE: {"annealing": "none"},
        **ANNEALED,
    }
    return {
        SKLEARN: LatentDirichletAllocation(n_components, random_state=seed),
        **{
            name: AnnealedLatentDirichletAllocation(
                n_components,
                learning_method="batch",
                max_iter=300,
                tol=1e-5,
                random_state=seed,
                doc_topic_prior=None,
                topic_word_prior=None,
                **settings,
            )
            for name, settings in ours.items()
        },
    }


# Measures
#
# The lower bound per token, the log-likelihood per token of one half of each held-out document
# given the other (both in nats), the mean coherence of the ten first words of each topic (NPMI in
# all documents, from -1 to 1), and the time of the fit. For scikit-learn's class they come from
# its fitted topics, by the same functions; its ``score`` of the training set is its bound.


def measure(lda, train, test):
    """Lower bound and held-out log-likelihood per token, coherence, and seconds of one fit."""
    start = time.perf_counter()
    lda.fit(train)
    seconds = time.perf_counter() - start
    if isinstance(lda, LatentDirichletAllocation):
        bound, score = lda.score(train), predictive_score(lda, test)
    else:
        bound, score = lda.lower_bound_, lda.score(test)
    n_words = min(10, train.shape[1])
    coherence = topic_coherence(lda.components_, vstack([train, test]), n_top_words=n_words)
    return bound / train.sum(), score, np.nanmean(coherence), seconds


def predictive_score(lda, X):
    """``score`` of this package for scikit-learn's class."""
    documents = X[np.asarray(X.sum(axis=1)).ravel() >= 2]
    observed, held_out = split_documents(documents)
    topics = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    log_likelihood, n_tokens = document_completion_log_likelihood(
        held_out, lda.transform(observed), topics
    )
    return log_likelihood.sum() / n_tokens.sum()


# The work
#
# The methods take turns within each seed and have one thread each, so that their times compare.
# First fits to a few documents, which do not count, compile the loops that each of them needs. A
# line is printed as soon as a fit is done.


def compare(train, test, n_seeds=3, n_components=20):
    """Measures of shape (n_seeds, 4) by method, and the fits of the first seed."""
    results, first_fits = defaultdict(list), {}
    with threadpool_limits(1):
        for lda in contestants(n_components, 0).values():
            lda.fit(train[:20])
        for seed in range(n_seeds):
            for method, lda in contestants(n_components, seed).items():
                results[method].append(measure(lda, train, test))
                first_fits.setdefault(method, lda)
                seconds = results[method][-1][-1]
                print(f"seed {seed + 1} of {n_seeds}: {method:25}{seconds:7.2f} s", flush=True)
    return {method: np.array(runs) for method, runs in results.items()}, first_fits


# Results
#
# The best bound, likelihood and coherence have a star.


def print_table(results):
    """Medians over the seeds, and the range of the held-out log-likelihood."""
    medians = {method: np.median(runs, axis=0) for method, runs in results.items()}
    best = np.max(list(medians.values()), axis=0)
    print(f"\n{'':25}{'bound':>8}{'held-out':>10}{'range':>18}{'coherence':>11}{'s':>7}")
    for method, values in medians.items():
        bound, score, coherence, seconds = values
        stars = np.where(values == best, "*", " ")
        scores = results[method][:, 1]
        print(
            f"{method:25}{bound:8.3f}{stars[0]}{score:9.3f}{stars[1]}"
            f"{f'{scores.min():.3f} .. {scores.max():.3f}':>17}"
            f"{coherence:10.3f}{stars[2]}{seconds:7.2f}"
        )


def conclusions(results):
    """What the medians say about each method against several starts of plain VI."""
    medians = {method: np.median(runs, axis=0) for method, runs in results.items()}
    yield f"Against {RESTARTS}, medians of {len(results[RESTARTS])} seeds:"
    for method, values in medians.items():
        if method != RESTARTS:
            bound, score, coherence = (values - medians[RESTARTS])[:3]
            yield (
                f"  {method:25}bound {bound:+.3f}, held-out {score:+.3f}, "
                f"coherence {coherence:+.3f},"
            )
            yield f"{'':27}in {values[3] / medians[RESTARTS][3]:.2f} x the time"
    names = list(medians)
    winners = [names[i] for i in np.argmax(list(medians.values()), axis=0)]
    for what, winner in zip(("bound", "held-out likelihood", "coherence"), winners, strict=False):
        yield f"Best {what}: {winner}."


def print_topics(fits, words, X, methods=(SINGLE, "deterministic"), n=10):
    """The largest topics of some fits: share of the tokens, coherence and first words."""
    for method in methods:
        lda = fits[method]
        tokens = (lda.components_ - lda.topic_word_prior_).sum(axis=1)
        coherence = topic_coherence(lda.components_, X, n_top_words=min(10, len(words)))
        print(f"\n{method}: largest topics, share of tokens, coherence, words")
        for k in np.argsort(-tokens)[:n]:
            top = " ".join(lda.top_words(words, n=6)[k])
            print(f"  {100 * tokens[k] / tokens.sum():4.1f} %  {coherence[k]:6.3f}  {top}"[:80])


# The bound, pass by pass, and the topics
#
# For the first seed. The bound is always the one of the real problem, also while a fit anneals.
# Below, the topics of ``"deterministic"`` that have most tokens.


def draw(fits, words, method="deterministic", n_topics=12):
    """Write bounds and topics as a PNG file into the current directory."""
    figure, (above, below) = plt.subplots(
        2, figsize=(11, 12), height_ratios=(2, 3), layout="constrained"
    )
    LowerBoundDisplay.from_estimators({m: fits[m] for m in (SINGLE, *ANNEALED)}, ax=above)
    n_topics = min(n_topics, fits[method].n_components)
    TopicsDisplay.from_estimator(
        fits[method], words, topics=n_topics, n_words=min(8, len(words)), n_columns=4, ax=below
    )
    path = Path("latent_dirichlet_comparison.png").resolve()
    figure.savefig(path, dpi=150)
    return path


def main():
    """Make the fits, print what they say, and draw it."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    began = time.perf_counter()
    documents = load_documents()
    train, test, words = count_words(documents)
    print(
        f"{len(documents)} documentation strings of Python {sys.version.split()[0]}: "
        f"{train.shape[0]} with {train.sum()} tokens of {len(words)} words to fit, "
        f"{test.shape[0]} with {test.sum()} tokens held out"
    )
    print("The loops are compiled; the first time this takes some seconds.\n", flush=True)
    results, fits = compare(train, test)
    print_table(results)
    print("", *conclusions(results), sep="\n")
    print_topics(fits, words, vstack([train, test]))
    print(f"\nThe figure is in {draw(fits, words)}")
    print(f"All of it took {time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
