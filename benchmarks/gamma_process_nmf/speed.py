"""Speed of gamma-process NMF against scikit-learn's multiplicative updates.

A pass is made by the functions of the loop itself: the visit before the update of the weights, with
one sweep over the activations and the complete lower bound, the visit before the update of the
components, and both updates. scikit-learn's iteration is made as its own loop makes it, by
``_multiplicative_update_w`` and ``_multiplicative_update_h``. Both go on from their last call.

Whole fits are those of the defaults to dense counts, beside scikit-learn's to convergence. Two
corpora come from files, and the dense counts are drawn, as are all counts of a quick run.
``benchmarks/common/speed.py`` says how the command is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF
from sklearn.decomposition._nmf import _multiplicative_update_h, _multiplicative_update_w

from sklearn_anneal import AnnealedGammaProcessNMF
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.inference import loop, visits
from sklearn_anneal.inference.conjugate import update
from sklearn_anneal.parallel.workers import SEQUENTIAL

from ..common import speed
from ..common.measuring import (
    interleaved,
    milliseconds,
    processor_seconds,
    progress,
    reached,
    spread,
)
from ..common.report import Page
from ..common.speed import NEVER, Fit, Speed, add_methods, of_passes
from ..latent_dirichlet.data import available, corpus
from ..suite import data, drawn
from . import held_out
from .data import FILES, NIPS

DENSE = "dense"
CORPORA = ("AP", "20 Newsgroups")
# How many times as fast as scikit-learn's iteration a pass should be, dense and sparse.
TARGET_DENSE, TARGET_SPARSE = 1.0, 5.0
# How many times as long as scikit-learn's a whole fit to dense counts should take.
TARGET_FITS = 4.0
# The efforts of searches beside the default, which costs most of the time.
EFFORTS = (0, 1)
DTYPES = (np.float64, np.float32)
# Both kinds of tempering are refused for these models.
METHODS = tuple(name for name in ANNEALING if "tempering" not in name)


@dataclass(frozen=True)
class Size(speed.Size):
    """The size of a run: rows and columns of the dense counts, and K."""

    dense: tuple[int, int] = (2000, 1000)
    n_components: int = 50


FULL = Size(7, (1, 6))
QUICK = Size(1, (1, 3), quick=True, dense=(120, 40), n_components=8)


def names(size: Size) -> list[str]:
    """The data sets of a section whose files are there."""
    return [DENSE, *available(["drawn"] if size.quick else CORPORA)]


@cache
def dense(n_rows: int, n_columns: int, n_components: int) -> np.ndarray:
    """Counts that follow the model, with a mean of 1."""
    rng = np.random.default_rng(0)
    activations = rng.gamma(0.3, 1 / 0.3, (n_rows, n_components))
    parts = rng.gamma(0.3, 1 / 0.3, (n_components, n_columns))
    return rng.poisson(activations @ parts / n_components).astype(np.float64)


def counts(name: str, size: Size, dtype: Any = np.float64) -> Any:
    X = dense(*size.dense, size.n_components) if name == DENSE else corpus(name)
    return X.astype(dtype)


class Passes:
    """Passes of plain inference over some counts, one per call, each from the last one's result.

    Parameters
    ----------
    X : {ndarray, sparse matrix}
    n_components : int
    """

    def __init__(self, X: Any, n_components: int):
        estimator = AnnealedGammaProcessNMF(n_components, annealing="none", max_iter=0)
        self.ctx = estimator.fit(X)._inference.ctx
        self._units = estimator._make_units(estimator._validate_data(X, reset=False), None)
        self._settings = loop.Settings(NEVER, None, None, 1.0, 0.6)  # type: ignore[arg-type]
        self._local = self._known = None
        self.bound = -np.inf
        self()
        self.ctx.exploring = False
        for _ in range(2):
            self()

    def __call__(self) -> None:
        ctx, units = self.ctx, self._units
        visited = visits.visit(ctx, loop.PLAIN, units, SEQUENTIAL, self._local, self._known)
        self.bound = visited.step.bound - ctx.model.kl(ctx.q, ctx.prior, visited.visit.known)
        how = {"minibatch": False, "passes": 1.0}
        visited = update(ctx, loop.PLAIN, units, visited, self._settings, SEQUENTIAL, **how)
        self._local, self._known = visited.local, visited.visit.known


class Iterations:
    """Iterations of scikit-learn's multiplicative updates, one per call."""

    def __init__(self, X: Any, n_components: int):
        self._X = X
        nmf = NMF(
            n_components,
            solver="mu",
            beta_loss="kullback-leibler",
            init="random",
            random_state=0,
            max_iter=1,
        )
        self.activations = np.ascontiguousarray(nmf.fit_transform(X))
        self.components = nmf.components_
        self()

    def __call__(self) -> None:
        shared: dict[str, Any] = {"beta_loss": 1, "gamma": 1.0}
        X, W, H = self._X, self.activations, self.components
        W, *_ = _multiplicative_update_w(X, W, H, l1_reg_W=0, l2_reg_W=0, **shared)
        H = _multiplicative_update_h(X, W, H, l1_reg_H=0, l2_reg_H=0, **shared)
        self.activations, self.components = W, H


def our_fit(X: Any, k: int, annealing: str) -> Fit:
    settings = {"max_sweeps": 1, "random_state": 0, "tol": 0, "effort": 0}
    return lambda n: of_passes(AnnealedGammaProcessNMF(k, **settings), annealing, n).fit(X)


def measure_passes(page: Page, size: Size) -> None:
    page.section(
        "A pass against an iteration of scikit-learn",
        "*Pass*: it goes on from the activations of the last pass, and makes one sweep over them, "
        "the updates of weights and components, all expectations and the complete lower bound. "
        '*Iteration*: of `NMF(solver="mu", beta_loss="kullback-leibler")`, by '
        "`_multiplicative_update_w` and `_multiplicative_update_h` as in its own loop, without its "
        f"error. K = {size.n_components}, one thread, processor time. Ratio: scikit-learn's time "
        f"over ours, median and quartiles of {size.rounds} rounds. The targets are "
        f"{TARGET_DENSE:g} for dense counts and {TARGET_SPARSE:g} for sparse ones, in float64. A "
        "pass divides the counts twice, once for the activations and the weights and once for the "
        "components, and so does an iteration.",
    )
    rows = [_passes_row(name, dtype, size) for name in names(size) for dtype in DTYPES]
    header = ["counts", "rows × columns", "cells or non-zeros", "dtype", "iteration, ms"]
    page.table([*header, "pass, ms", "ratio", "target"], rows)


def _passes_row(name: str, dtype: Any, size: Size) -> list[str]:
    progress(f"passes, {name}, {np.dtype(dtype).name}")
    X, k = counts(name, size, dtype), size.n_components
    times = interleaved({"peer": Iterations(X, k), "ours": Passes(X, k)}, size.rounds)
    ratio = times["peer"] / times["ours"]
    target = TARGET_DENSE if name == DENSE else TARGET_SPARSE
    holds = f"{target:g}: {reached(bool(np.median(ratio) >= target))}"
    return [
        *(
            name,
            f"{X.shape[0]:,} × {X.shape[1]:,}",
            f"{X.nnz if issparse(X) else X.size:,}",
            X.dtype.name,
        ),
        *(milliseconds(each) for each in times.values()),
        *(spread(ratio), holds if dtype is np.float64 else "–"),
    ]


def tables(quick: bool) -> Iterator[held_out.Table]:
    """Dense counts for whole fits: drawn ones, and pictures of digits."""
    shapes = [(60, 20, 3)] if quick else [(200, 40, 5), (300, 60, 12), (1500, 96, 20)]
    for n_rows, n_columns, k in shapes:
        yield held_out.Table(f"drawn {k}", *drawn.counts(n_rows, n_columns, k), k)
    if not quick:
        yield held_out.Table("digits", *data.count_rows(None, 500, 64), 15)
        digits = load_digits().data
        yield held_out.Table("all digits", digits[:1200], digits[1200:], 30)
        for name in available([NIPS]):
            words = data.count_rows(FILES[name], 200, 150)
            yield held_out.Table(f"{name}, frequent words", *words, 10)


def measure_fits(page: Page, size: Size) -> None:
    page.section(
        "Whole fits to dense counts",
        "*Ours*: `AnnealedGammaProcessNMF` at its defaults. *scikit-learn*: "
        '`NMF(solver="mu", beta_loss="kullback-leibler", init="nndsvda", max_iter=1000, '
        "tol=1e-4)`, which converges on each of these tables. Processor time of one thread, "
        f"medians of {size.rounds} rounds, whose seeds differ. *Ratio*: of our time to "
        "scikit-learn's, median and quartiles. *Nats per token*: medians of the Poisson "
        "log-likelihood of one half of "
        "each held-out row given the other, divided by the tokens of that half; scikit-learn's "
        "rates have a share of 0.1 of the row's total times that of the column. *effort=0* and "
        "*effort=1*: ours with a search of no moves, and of as many passes as the first fit makes. "
        f"The highest ratio comes first; it should be at most {TARGET_FITS:g}.",
    )
    efforts = [f"effort={effort}" for effort in EFFORTS]
    rows = []
    for table in tables(size.quick):
        progress(f"fits, {table.name}")
        times, scores = _fits(table, size.rounds)
        ratio = times["ours"] / times["peer"]
        cells = [table.name, *(f"{n:,}" for n in table.train.shape), str(table.n_components)]
        cells += [f"{np.median(times[key]):.3f}" for key in ("peer", "ours")]
        cells += [spread(ratio), reached(bool(np.median(ratio) <= TARGET_FITS))]
        cells += [f"{np.median(scores[key]):.4f}" for key in ("peer", "ours")]
        for key in efforts:
            cells += [spread(times[key] / times["peer"]), f"{np.median(scores[key]):.4f}"]
        rows.append((float(np.median(ratio)), cells))
    header = ["counts", "rows", "columns", "K", "scikit-learn, s", "ours, s", "ratio"]
    header += [f"at most {TARGET_FITS:g}", "scikit-learn, nats per token", "ours, nats per token"]
    header += [f"`{key}`, {what}" for key in efforts for what in ("ratio", "nats per token")]
    page.table(header, [cells for _, cells in sorted(rows, key=lambda row: -row[0])])


def _fits(table: held_out.Table, n_rounds: int) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """The seconds and the scores of the fits of both, once per round."""
    held, X, k = held_out.Held.of(table), table.train.astype(np.float64), table.n_components
    how = {"solver": "mu", "beta_loss": "kullback-leibler", "init": "nndsvda", "max_iter": 1000}
    AnnealedGammaProcessNMF(k, max_iter=5, random_state=0).fit(X)  # compiles the kernels
    names = ["peer", "ours", *(f"effort={effort}" for effort in EFFORTS)]
    times: dict[str, list[float]] = {name: [] for name in names}
    scores: dict[str, list[float]] = {name: [] for name in names}
    for seed in range(n_rounds):
        fits: list[Any] = [NMF(k, tol=1e-4, random_state=seed, **how)]
        for effort in ("auto", *EFFORTS):
            fits.append(AnnealedGammaProcessNMF(k, effort=effort, random_state=seed))
        for name, estimator in zip(names, fits, strict=True):
            times[name].append(processor_seconds(lambda each=estimator: each.fit(X)))
            scores[name].append(held_out.scores(estimator, table, held)[-1])
    return {name: np.array(each) for name, each in times.items()}, scores


def measure_methods(page: Page, size: Size) -> None:
    k, (few, many) = size.n_components, size.passes
    (name,) = names(size)[1:2] or [DENSE]
    page.section(
        "What annealing costs per pass",
        f"{name}, K = {k}, float64, with `max_sweeps=1`, so that all methods make as many sweeps: "
        f"a fit of {many} passes less one of {few}, divided by {many - few}. Ratio of the time of "
        'an annealed pass to that of one with `annealing="none"`, each method in turns with it; '
        f"median and quartiles of {size.rounds} rounds. At a temperature above 1 the bound needs "
        "the counts of components, so that passes add them up twice. `proximity` reads the entropy "
        "before both updates, where the others need it once.",
    )
    X = counts(name, size)
    add_methods(page, lambda annealing: our_fit(X, k, annealing), size, METHODS)


SPEED = Speed(
    __doc__,
    model="gamma_process_nmf",
    title="Speed of gamma-process NMF",
    output="gamma_process_nmf_speed.md",
    sections={"fits": measure_fits, "passes": measure_passes, "methods": measure_methods},
    full=FULL,
    quick=QUICK,
)
main = SPEED.main

if __name__ == "__main__":
    main()
