"""Held-out counts against processor time: ours, topics times row totals, and scikit-learn's NMF.

Every held-out row is divided in two halves as ``score`` divides it, and the Poisson log-likelihood
of one half given the other is compared, in nats per token: the tokens are the units of the counts
of the half that is predicted. All fits to a table follow one another in this process, and the next
round makes them in the opposite order with another seed. Processor time of one thread.

    python -m benchmarks.gamma_process_nmf.held_out             # about 10 minutes
    python -m benchmarks.gamma_process_nmf.held_out --write     # also the page
    python -m benchmarks.gamma_process_nmf.held_out --quick     # two small drawn tables

The page is ``doc/results/counts_held_out.md``. Texts come from files, see
``benchmarks/latent_dirichlet/data.py``; what needs a missing file is left out with a message.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, issparse
from scipy.special import gammaln
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedGammaProcessNMF, AnnealedLatentDirichletAllocation
from sklearn_anneal.metrics import split_documents
from sklearn_anneal.parallel.thread_limits import one_thread

from ..common import RESULTS
from ..common.measuring import interleaved, progress
from ..common.report import Page, machine, write_or_print
from ..latent_dirichlet.data import available, corpus
from .data import DIGITS, FILES, NEWSGROUPS, NIPS, drawn, split

PAGE = RESULTS / "counts_held_out.md"
# Iterations after which scikit-learn's NMF stops, and the shares of the margins in its rates.
STOPS, SMOOTHINGS = (10, 30, 100, 200), (0.0, 0.1)
# Rates are at least this large, so that no count has the probability zero.
SMALLEST_RATE = 1e-12
# Documents of the corpus, of which three quarters are for fitting.
DOCUMENTS = 1000
DEFAULT, PLAIN, TOPICS = "default", '`annealing="none"`', "topics × totals"


class Table(NamedTuple):
    """Counts for fitting and held-out ones, and the number of components."""

    name: str
    train: Any
    test: Any
    n_components: int


class Held(NamedTuple):
    """Both halves of the held-out rows, and the margins of the table.

    Attributes
    ----------
    given, predicted : csr_matrix of shape (n_rows, n_columns)
    margins : ndarray of shape (n_columns,)
        The share that each column has of all counts for fitting.
    """

    given: csr_matrix
    predicted: csr_matrix
    margins: np.ndarray

    @property
    def totals(self) -> np.ndarray:
        """The sums of the rows that are given, of shape (n_rows,)."""
        return np.asarray(self.given.sum(axis=1)).ravel()

    @classmethod
    def of(cls, table: Table) -> Held:
        margins = np.asarray(table.train.sum(axis=0)).ravel()
        return cls(*split_documents(csr_matrix(table.test)), margins / margins.sum())

    def per_token(self, activations: np.ndarray, parts: np.ndarray, smoothing: float) -> float:
        """The log-likelihood of the predicted half, in nats per token.

        Rates are ``activations @ parts``, of which a share is replaced by the row's total of the
        given half times the margins.
        """
        counts = self.predicted.tocsr()
        rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        rates = np.einsum("ik,ki->i", activations[rows], parts[:, counts.indices])
        of_margins = self.totals[rows] * self.margins[counts.indices]
        rates = np.maximum((1.0 - smoothing) * rates + smoothing * of_margins, SMALLEST_RATE)
        total = (1.0 - smoothing) * float((activations @ parts.sum(axis=1)).sum())
        total += smoothing * float(self.totals.sum())
        found = counts.data @ np.log(rates) - float(gammaln(counts.data + 1.0).sum()) - total
        return float(found / counts.sum())


def tables(quick: bool) -> Iterator[Table]:
    if quick:
        for name, mean in (("drawn, few counts", 0.3), ("drawn, many counts", 4.0)):
            X, _ = drawn(80, 30, 3, mean, 0)
            yield Table(name, X[:60], X[60:], 3)
        return
    if available(["AP"]):
        train, test = _documents()
        for k in (20, 50):
            yield Table("AP", train, test, k)
    for n_rows, n_columns, k in ((200, 40, 5), (300, 60, 12), (1500, 96, 20)):
        X, _ = drawn(2 * n_rows, n_columns, k, 2.0, 0)
        yield Table(f"drawn {k}", X[:n_rows], X[n_rows:], k)
    train, _, test = split(DIGITS, 500, 250, 64, 0)
    yield Table("digits", train, test, 15)
    for name, n_rows in ((NIPS, 200), (NEWSGROUPS, 500)):
        if name in FILES and available([name]):
            train, _, test = split(name, n_rows, n_rows // 2, 150, 0)
            yield Table(f"{name}, frequent words", train, test, 10)


def _documents() -> tuple[csr_matrix, csr_matrix]:
    """Documents for fitting and held-out ones, with the words of two documents or more."""
    X = corpus("AP")
    X = X[np.random.RandomState(0).permutation(X.shape[0])[:DOCUMENTS]]
    train, test = X[: 3 * DOCUMENTS // 4], X[3 * DOCUMENTS // 4 :]
    frequent = np.asarray((train > 0).sum(axis=0)).ravel() >= 2
    train, test = train[:, frequent], test[:, frequent]
    return train[np.asarray(train.sum(axis=1)).ravel() > 0], test


def fits(table: Table, seed: int) -> dict[str, Callable[[], Any]]:
    """The fits that are compared, by their names."""
    X, k = table.train, table.n_components
    kinds: dict[str, Any] = {
        DEFAULT: AnnealedGammaProcessNMF(k, random_state=seed),
        PLAIN: AnnealedGammaProcessNMF(
            k, annealing="none", init_params="random", random_state=seed
        ),
        TOPICS: AnnealedLatentDirichletAllocation(k, random_state=seed),
    }
    how = {"solver": "mu", "beta_loss": "kullback-leibler", "init": "random", "tol": 0.0}
    for stop in STOPS:
        kinds[f"NMF, {stop} iterations"] = NMF(k, max_iter=stop, random_state=seed, **how)
    given = {name: X.astype(np.float64) if "NMF," in name else X for name in kinds}
    return {name: partial(kind.fit, given[name]) for name, kind in kinds.items()}


def scores(fitted: Any, table: Table, held: Held) -> list[float]:
    """Nats per held-out token, one figure for ours and one per smoothing for scikit-learn's."""
    if isinstance(fitted, AnnealedGammaProcessNMF):
        cells = float(np.prod(table.test.shape))
        return [fitted.score(table.test) * cells / float(held.predicted.sum())]
    parts = fitted.components_
    if isinstance(fitted, NMF):
        activations = fitted.transform(held.given.astype(np.float64))
        return [held.per_token(activations, parts, smoothing) for smoothing in SMOOTHINGS]
    activations = fitted.transform(held.given) * held.totals[:, None]
    return [held.per_token(activations, parts / parts.sum(axis=1, keepdims=True), 0.0)]


def _compared(table: Table, rounds: int) -> dict[str, tuple[float, np.ndarray]]:
    """Median seconds and scores of each fit."""
    held = Held.of(table)
    seconds: dict[str, list[float]] = {}
    found: dict[str, list[list[float]]] = {}

    def run(name: str, fit: Callable[[], Any]) -> None:
        fitted[name] = fit()

    for seed in range(rounds):
        fitted: dict[str, Any] = {}
        runs = {name: partial(run, name, fit) for name, fit in fits(table, seed).items()}
        keys = list(runs) if seed % 2 == 0 else list(runs)[::-1]
        progress(f"{table.name}, {table.n_components} components, round {seed + 1}")
        for name, (time,) in interleaved({key: runs[key] for key in keys}, 1).items():
            seconds.setdefault(name, []).append(float(time))
            found.setdefault(name, []).append(scores(fitted[name], table, held))
    return {
        name: (float(np.median(seconds[name])), np.median(found[name], axis=0)) for name in seconds
    }


def _section(page: Page, table: Table, rounds: int) -> tuple[bool, float, float]:
    """Add the section of a table; return how ours stands beside NMF and topics.

    Returns
    -------
    ahead : bool
        Whether the default predicts better than NMF at every stop and smoothing.
    below_topics : float
        Nats per token that the default is below topics.
    ratio : float
        Its time over that of the last stop of NMF.
    """
    with one_thread():
        results = _compared(table, rounds)
    seconds, (own,) = results[DEFAULT]
    X = table.train
    filled = X.data[X.data > 0] if issparse(X) else X[X > 0]
    page.section(
        f"{table.name}, K = {table.n_components}",
        f"{X.shape[0]:,} × {X.shape[1]:,}, {len(filled):,} cells with a count of "
        f"{filled.mean():.2f} on average.",
    )
    rows, others = [], []
    for name, (time, figures) in results.items():
        nmf = name.startswith("NMF")
        others += list(figures) if nmf else []
        cells = [f"{figure:.4f}" for figure in figures] + ([] if nmf else ["–"])
        rows.append([name, f"{time:.2f}", *cells])
    page.table(["fit", "seconds", "nats per token", "smoothed"], rows)
    last = results[f"NMF, {STOPS[-1]} iterations"][0]
    return own > max(others), float(results[TOPICS][1][0] - own), seconds / last


def written(quick: bool) -> str:
    rounds = 1
    page, rows = Page(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Kernels are compiled, or read from disk, before anything is timed.
        small = next(tables(quick=True))
        for fit in fits(small, 0).values():
            fit()
        for table in tables(quick):
            ahead, below, ratio = _section(page, table, rounds)
            rows.append(
                [f"{table.name}, K = {table.n_components}", "yes" if ahead else "**no**"]
                + [f"{below:+.4f}", f"{ratio:.1f}"]
            )
    top = Page([f"# Held-out counts by ours and by others{' (a quick run)' * quick}", ""])
    top.lines += [
        f"{machine()} Written by `python -m benchmarks.gamma_process_nmf.held_out --write`.",
        "",
    ]
    if quick:
        top.lines += ["A quick run, whose figures mean nothing.", ""]
    top.section(
        "In short",
        f"Medians of {rounds} round{'s' * (rounds > 1)}, in which fits to a table follow one "
        "another; processor time of one thread. *Nats per token*: the Poisson log-likelihood of "
        "one half of each held-out row given the other, divided by the tokens of that half. *Ahead "
        f"of NMF*: `AnnealedGammaProcessNMF` at its defaults predicts better than scikit-learn's "
        f"KL-NMF stopped after {', '.join(map(str, STOPS))} iterations, both as it is, with rates "
        f"of at least {SMALLEST_RATE:g}, and *smoothed*: a share of {SMOOTHINGS[1]:g} of its rates "
        "is the row's total times the share of the column. *Below topics*: what it loses to "
        "`AnnealedLatentDirichletAllocation` at its defaults, whose proportions times the row's "
        f"total are rates. *Time*: over that of {STOPS[-1]} iterations of NMF.",
    )
    top.table(["counts", "ahead of NMF", "below topics", "time"], rows)
    return "\n".join([*top.lines, *page.lines]).rstrip("\n") + "\n"


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
