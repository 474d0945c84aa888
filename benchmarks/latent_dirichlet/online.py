"""Whole online fits of topic models by three libraries, and the time of the parts of ours."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.decomposition import LatentDirichletAllocation

from sklearn_anneal.data.units import Documents
from sklearn_anneal.inference import conjugate, loop
from sklearn_anneal.kernels._compile import Kernel
from sklearn_anneal.metrics import document_completion_log_likelihood, split_documents
from sklearn_anneal.models.topics import predictions
from sklearn_anneal.parallel.workers import SEQUENTIAL

from ..common.measuring import Parts, processor_seconds, progress, reached, spread
from ..common.peers import is_there
from ..common.report import Page
from .data import parts
from .workload import Size, estimator, model_of, names

try:
    from gensim.models import LdaModel
except ImportError:
    LdaModel = None

FASTER = 8.0


@dataclass(frozen=True)
class Online:
    """A setting of the online fits: batch sizes, and iterations per document.

    If the iterations are None, each library uses its default.
    """

    batch_size: int
    n_iter: int | None

    def __str__(self) -> str:
        limit = "own limits" if self.n_iter is None else f"{self.n_iter} iterations"
        return f"{self.batch_size}, {limit}"


PASSES = 5
SETTINGS = (Online(128, None), Online(256, None), Online(256, 10))
QUICK_SETTINGS = (Online(16, None),)
DECAY, OFFSET = 0.7, 10.0
# A held-out likelihood counts as equally good if it is below another by at most this, in nats per
# token.
AS_GOOD = 0.005


class Fit(NamedTuple):
    """The result of a library: λ, and a function that infers γ of documents."""

    topics: np.ndarray
    infer: Callable[[csr_matrix], np.ndarray]


def fit_ours(X: csr_matrix, k: int, how: Online, seed: int) -> Fit:
    lda = estimator(
        k,
        learning_method="online",
        learning_decay=DECAY,
        learning_offset=OFFSET,
        batch_size=how.batch_size,
        max_doc_update_iter=how.n_iter,
        max_iter=PASSES,
        tol=0,
        random_state=seed,
    ).fit(X)
    return Fit(lda.components_, lda.transform)


def fit_sklearn(X: csr_matrix, k: int, how: Online, seed: int) -> Fit:
    lda = LatentDirichletAllocation(
        k,
        learning_method="online",
        learning_decay=DECAY,
        learning_offset=OFFSET,
        batch_size=how.batch_size,
        max_doc_update_iter=100 if how.n_iter is None else how.n_iter,
        max_iter=PASSES,
        random_state=seed,
    ).fit(X)
    return Fit(lda.components_, lda.transform)


def fit_gensim(X: csr_matrix, k: int, how: Online, seed: int) -> Fit:
    lda = LdaModel(
        _bags(X),
        num_topics=k,
        id2word={w: str(w) for w in range(X.shape[1])},
        passes=PASSES,
        chunksize=how.batch_size,
        decay=DECAY,
        offset=OFFSET,
        iterations=50 if how.n_iter is None else how.n_iter,
        alpha=1.0 / k,
        eta=1.0 / k,
        eval_every=None,
        random_state=seed,
    )

    def infer(X: csr_matrix) -> np.ndarray:
        return lda.inference(_bags(X))[0]

    return Fit(lda.state.get_lambda(), infer)


_BAGS: dict[int, tuple[csr_matrix, list[Any]]] = {}


def _bags(X: csr_matrix) -> list[Any]:
    """Convert documents to gensim's form, once for each matrix.

    The cache keeps the matrix alive.
    """
    if id(X) not in _BAGS:
        pairs = zip(X.indptr[:-1], X.indptr[1:], strict=True)
        bags = [
            list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True)) for a, b in pairs
        ]
        _BAGS[id(X)] = X, bags
    return _BAGS[id(X)][1]


def per_token(held_out: csr_matrix, gamma: np.ndarray, topics: np.ndarray) -> float:
    """Log-likelihood of held-out halves, nats per token."""
    gamma, topics = (np.asarray(a, dtype=np.float64) for a in (gamma, topics))
    theta = gamma / gamma.sum(axis=1, keepdims=True)
    beta = topics / topics.sum(axis=1, keepdims=True)
    log_likelihood, n_tokens = document_completion_log_likelihood(held_out, theta, beta)
    return float(log_likelihood.sum() / n_tokens.sum())


def our_proportions(X: csr_matrix, topics: np.ndarray) -> np.ndarray:
    """γ of documents at given topics, by our inference in float64 to convergence."""
    model = model_of(*topics.shape, 100, np.float64, tol=1e-3)
    units = Documents(X.data, X.indices, X.indptr)
    q = {"topic_word": np.asfortranarray(topics, dtype=np.float64)}
    return predictions.proportions(model, units, q, SEQUENTIAL)


def libraries(X: csr_matrix) -> dict[str, tuple[Callable[..., Fit], csr_matrix]]:
    """The libraries, each with a precision: the function that fits, and its data."""
    double, single = X.astype(np.float64), X.astype(np.float32)
    found: dict[str, tuple[Callable[..., Fit], csr_matrix]] = {
        "ours, float64": (fit_ours, double),
        "ours, float32": (fit_ours, single),
        "scikit-learn, float64": (fit_sklearn, double),
        "scikit-learn, float32": (fit_sklearn, single),
    }
    if is_there("gensim", LdaModel):
        found["gensim, float32"] = (fit_gensim, X)
        _bags(X)
    return found


def measure_online(size: Size) -> list[str]:
    """Whole online fits of three libraries: time and held-out likelihood."""
    k = size.online_topics
    page = Page()
    page.section(
        "Whole online fits",
        f"K = {k}, {PASSES} passes over the training documents, α = η = 1/K, decay {DECAY}, offset "
        f"{OFFSET:g}; one thread, processor time, {size.online_rounds} rounds, each with a seed of "
        "its own. The setting is the batch size and the limit of iterations over a document; own "
        "limits: ours 10 in training and 100 to infer, scikit-learn's 100, gensim's 50 (where "
        "all stop at a mean change of 0.001). Ours and scikit-learn's times have the perplexity of "
        "the training set at the end, gensim's has not, nor has it the lists of pairs made of the "
        "matrix. *Slower*: time over that of ours, median and quartiles. Held-out: nats per token "
        "of one half of each test document given the other, median over seeds; *own* with "
        "the proportions that the library itself infers, *ours* with our inference at its topics.",
    )
    summary = []
    for name in names(size, ("20 Newsgroups",)):
        training, test = parts(name)
        observed, held_out = split_documents(test)
        long = np.asarray(test.sum(axis=1)).ravel() >= 2
        observed, held_out = observed[long], held_out[long]
        who = libraries(training)
        rows = []
        for how in QUICK_SETTINGS if size.quick else SETTINGS:
            progress(f"online fits, {name}, {how}")
            rows += _online_rows(who, how, k, size, observed, held_out, summary)
        header = ["setting", "library", "seconds", "slower than ours, float64"]
        header += ["slower than ours, float32", "held-out, own", "held-out, ours"]
        page.table(header, rows)
    page.lines += [f"- {line}" for line in summary] + [""]
    return page.lines


def _online_rows(
    who: dict[str, tuple[Callable[..., Fit], csr_matrix]],
    how: Online,
    k: int,
    size: Size,
    observed: csr_matrix,
    held_out: csr_matrix,
    summary: list[str],
) -> list[list[str]]:
    times: dict[str, list[float]] = defaultdict(list)
    own: dict[str, list[float]] = defaultdict(list)
    same: dict[str, list[float]] = defaultdict(list)
    for seed in range(size.online_rounds):
        order = list(who) if seed % 2 == 0 else list(who)[::-1]
        for name in order:
            fit, X = who[name]
            start = time.process_time()
            found = fit(X, k, how, seed)
            times[name].append(time.process_time() - start)
            # The matrix has the precision in which the library works.
            given = observed if fit is fit_gensim else observed.astype(X.dtype)
            own[name].append(per_token(held_out, found.infer(given), found.topics))
            gamma = our_proportions(observed, found.topics)
            same[name].append(per_token(held_out, gamma, found.topics))
    rows = []
    for name in who:
        row = [str(how), name, f"{np.median(times[name]):.1f}"]
        for precision in ("float64", "float32"):
            slower = np.array(times[name]) / np.array(times[f"ours, {precision}"])
            row.append(spread(slower, 1))
        rows.append([*row, f"{np.median(own[name]):.4f}", f"{np.median(same[name]):.4f}"])
        if name.startswith("ours"):
            continue
        mine = f"ours, {name.rpartition(' ')[2]}"
        factor = np.median(np.array(times[name]) / np.array(times[mine]))
        ahead = np.median(np.array(own[mine]) - np.array(own[name]))
        summary.append(
            f"{how}: {mine} against {name}: {factor:.1f} times as fast, target "
            f"{FASTER:g}: {reached(factor >= FASTER)}; held-out {ahead:+.4f}, "
            f"equal (to {AS_GOOD:g}) or better: {reached(ahead >= -AS_GOOD)}"
        )
    return rows


# The time of an online fit by its parts.

PARTS = {
    "_mean_field": "documents",
    "_mean_field_of_wide_table": "documents",
    "expected_table": "exp(E log β)",
    "word_statistics": "statistics of words",
    "dirichlet_sums": "bound of topics",
}
ELSEWHERE = ("update of λ", "batches taken", "evaluation at the end", "everything else")


def measure_where(size: Size) -> list[str]:
    """The share of the time of an online fit that each of its parts takes."""
    k = size.online_topics
    page = Page()
    page.section(
        "Where the time of an online fit goes",
        f"Our fits of the section above: K = {k}, {PASSES} passes. *Documents* is the kernel that "
        "iterates over them; exp(E log β) is found anew in every batch, for the words in it; the "
        "update of λ is array arithmetic; *everything else* is validation, the loop and calls. "
        "Shares of the processor time.",
    )
    columns = list(dict.fromkeys([*PARTS.values(), *ELSEWHERE]))
    rows = []
    for name in names(size, ("20 Newsgroups",)):
        training, _ = parts(name)
        for batch_size in (16,) if size.quick else (128, 256):
            for dtype in size.dtypes:
                X = training.astype(dtype)
                progress(f"where the time goes, {batch_size}, {X.dtype.name}")
                fit_ours(X[: 2 * batch_size], k, Online(batch_size, None), 0)
                total, shares = _shares(X, k, Online(batch_size, None))
                cells = [f"{shares[part]:.0%}" for part in columns]
                rows.append([str(batch_size), X.dtype.name, f"{total:.2f}", *cells])
    page.table(["batch size", "dtype", "seconds", *columns], rows)
    return page.lines


def _shares(X: csr_matrix, k: int, how: Online) -> tuple[float, dict[str, float]]:
    """Processor seconds of an online fit, and the share of each part in them."""
    taken = Parts()
    watched, spent = taken.watched, taken.spent

    def part_of(kernel: Any) -> str:
        return PARTS.get(kernel.__name__, ELSEWHERE[-1])

    update, batches, evaluation, rest = ELSEWHERE
    with (
        patch.object(Kernel, "__call__", watched(Kernel.__call__, part_of)),
        patch.dict(loop.UPDATES, conjugate=watched(conjugate.update, lambda _: update)),
        patch.object(Documents, "take", watched(Documents.take, lambda _: batches)),
        patch.object(loop, "lower_bound", watched(loop.lower_bound, lambda _: evaluation)),
    ):
        total = processor_seconds(lambda: fit_ours(X, k, how, 0))
    spent[rest] += total - sum(spent.values())
    return total, defaultdict(float, {part: value / total for part, value in spent.items()})
