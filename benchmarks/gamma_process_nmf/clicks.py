"""Recommendations from clicks: ours, implicit's, hpfrec, LightFM, and popularity.

A fifth of the clicks of each user is held out, and every model ranks the items that the user has
not clicked on in the other ones. Settings are chosen by a further fifth, and the model with the
best NDCG at 10 is fitted anew to both.

    python -m benchmarks.gamma_process_nmf.clicks             # about 5 minutes
    python -m benchmarks.gamma_process_nmf.clicks --write     # also the page
    python -m benchmarks.gamma_process_nmf.clicks --quick     # drawn clicks

The page is ``doc/results/clicks.md``. ``movielens_100k.npz`` and ``nips.npz`` are looked for as
``benchmarks/common/data.py`` says, and what needs a missing file is left out with a message. So is
what needs a library that is not installed, unless the page has its figures already.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedGammaProcessNMF, AnnealedPMF
from sklearn_anneal.parallel.thread_limits import one_thread

from ..common import RESULTS
from ..common.measuring import progress
from ..common.peers import is_there, versions
from ..common.report import Page, machine, write_or_print
from ..latent_dirichlet.data import corpus
from ..matrix_factorization.data import FILES as OF_RATINGS
from ..matrix_factorization.data import MOVIELENS, available, ratings
from .data import FILES, NIPS, drawn

try:
    from implicit.cpu.als import AlternatingLeastSquares
    from implicit.cpu.bpr import BayesianPersonalizedRanking
except ImportError:
    AlternatingLeastSquares = None
try:
    from hpfrec import HPF
except ImportError:
    HPF = None
try:
    from lightfm import LightFM
except ImportError:
    LightFM = None

PEERS = {"implicit": AlternatingLeastSquares, "hpfrec": HPF, "lightfm": LightFM}
PAGE = RESULTS / "clicks.md"
LENGTHS = (10, 50)
HELD_OUT = 0.2
# A rating of so many stars is a click.
STARS = 4.0
PAPERS, LEAST_PAPERS = 150, 10
POPULARITY, DEFAULT, SAMPLED = "popularity", "ours, default", "ours, from an allocation"
RATED, RATED_SAMPLED = "ours, rates of items", "ours, rates of items, from an allocation"
OF_PEERS = ("implicit, ALS", "implicit, BPR", "hpfrec", "LightFM, WARP")
# The commit whose run has the figures of libraries that are not installed.
RECORDED = "5f12239364"
Ranking = Callable[[int], np.ndarray]


class Clicks(NamedTuple):
    """Clicks for fitting and held-out ones, users by items."""

    train: csr_matrix
    test: csr_matrix


class Kind(NamedTuple):
    """A model: how it is fitted, and the settings among which validation chooses."""

    fit: Callable[..., Ranking]
    grid: dict[str, list]


def divided(X: csr_matrix, seed: int) -> Clicks:
    """Hold out a share of the items of each user, which the seed draws."""
    rng, X = np.random.default_rng(seed), X.tocsr()
    users = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    # The places of the entries of each row in a random order.
    order = np.lexsort([rng.random(X.nnz), users])
    places = np.empty(X.nnz, dtype=np.int64)
    places[order] = np.arange(X.nnz) - X.indptr[users]
    left = places < (HELD_OUT * np.diff(X.indptr)).astype(np.int64)[users]

    def some(chosen: np.ndarray) -> csr_matrix:
        cells = users[chosen], X.indices[chosen]
        return csr_matrix((X.data[chosen].astype(np.float64), cells), shape=X.shape)

    return Clicks(some(~left), some(left))


def scores(items: np.ndarray, test: csr_matrix) -> list[float]:
    """Recall and NDCG at each length, in turns, over users with held-out clicks.

    Parameters
    ----------
    items : ndarray of shape (n_users, n)
        Recommended items, the best first; −1 is none.
    test : csr_matrix of shape (n_users, n_items)
    """
    relevant = test.toarray() > 0
    numbers = relevant.sum(axis=1)
    hits = np.take_along_axis(relevant, np.maximum(items, 0), axis=1) & (items >= 0)
    found = []
    for n in LENGTHS:
        discounts = 1.0 / np.log2(np.arange(2, n + 2))
        ideal = np.append(0.0, np.cumsum(discounts))[np.minimum(numbers, n)]
        own = hits[:, :n]
        gains = own @ discounts[: own.shape[1]]
        some = numbers > 0
        found.append(float(np.mean(own.sum(axis=1)[some] / numbers[some])))
        found.append(float(np.mean(gains[some] / ideal[some])))
    return found


# Models


def best(ratings: np.ndarray, train: csr_matrix, n: int) -> np.ndarray:
    """The n items with the highest ratings that a user has not clicked on."""
    ratings = np.where(train.toarray() > 0, -np.inf, ratings)
    return np.argsort(-ratings, axis=1, kind="stable")[:, :n]


def popularity(train: csr_matrix) -> Ranking:
    clicks = np.asarray((train > 0).sum(axis=0)).reshape(1, -1)
    return lambda n: best(np.tile(clicks, (train.shape[0], 1)), train, n)


def ours(train: csr_matrix, **how: Any) -> Ranking:
    fitted = AnnealedGammaProcessNMF(random_state=0, **how).fit(train)
    users = np.arange(train.shape[0])
    return lambda n: fitted.recommend_for(users, n, exclude=train)


def zeros_and_ones(train: csr_matrix, n_components: int) -> Ranking:
    """Factorisation of ratings 1 for clicks and 0 for all other cells."""
    fitted = AnnealedPMF(n_components, annealing="none", max_iter=10, clip=False, random_state=0)
    users = np.arange(train.shape[0])
    fitted.fit((train.toarray() > 0).astype(np.float32))
    return lambda n: fitted.recommend_for(users, n, exclude=train)


def least_squares(train: csr_matrix, factors: int, regularization: float, alpha: float) -> Ranking:
    how = {"iterations": 15, "num_threads": 1, "random_state": 0}
    model = AlternatingLeastSquares(factors, regularization, alpha, **how)
    model.fit(train.astype(np.float32), show_progress=False)
    return lambda n: best(model.user_factors @ model.item_factors.T, train, n)


def pairwise(
    train: csr_matrix, factors: int, regularization: float, learning_rate: float
) -> Ranking:
    how = {"iterations": 100, "num_threads": 1, "random_state": 0}
    model = BayesianPersonalizedRanking(factors, learning_rate, regularization, **how)
    model.fit((train > 0).astype(np.float32), show_progress=False)
    return lambda n: best(model.user_factors @ model.item_factors.T, train, n)


def warp(train: csr_matrix, no_components: int, epochs: int) -> Ranking:
    model = LightFM(no_components, loss="warp", random_state=0)
    model.fit((train > 0).astype(np.float32), epochs=epochs, num_threads=1)
    (user_biases, users), (biases, items) = (
        model.get_user_representations(),
        model.get_item_representations(),
    )
    return lambda n: best(users @ items.T + biases + user_biases[:, None], train, n)


def hierarchical(train: csr_matrix, k: int) -> Ranking:
    import pandas as pd

    cells = train.tocoo()
    table = pd.DataFrame({"UserId": cells.row, "ItemId": cells.col, "Count": cells.data})
    how = {"maxiter": 100, "check_every": 100, "ncores": 1, "random_seed": 0}
    model = HPF(k=k, reindex=False, verbose=False, stop_crit="maxiter", **how).fit(table)
    # Users and items after the last one with clicks have no rows.
    found = np.zeros(train.shape)
    found[: len(model.Theta), : len(model.Beta)] = model.Theta @ model.Beta.T
    return lambda n: best(found, train, n)


def kinds(quick: bool) -> dict[str, Kind]:
    """The models that are compared, by their names."""
    several = [2, 4] if quick else [16, 32, 50]
    found = {
        POPULARITY: Kind(popularity, {}),
        DEFAULT: Kind(ours, {"n_components": several}),
        RATED: Kind(ours, {"n_components": several, "popularity_prior": ["auto"]}),
        SAMPLED: Kind(ours, {"n_components": several, "init_params": ["collapsed_gibbs"]}),
        RATED_SAMPLED: Kind(
            ours,
            {
                "n_components": several,
                "init_params": ["collapsed_gibbs"],
                "popularity_prior": ["auto"],
            },
        ),
        "`AnnealedPMF`, zeros and ones": Kind(zeros_and_ones, {"n_components": several}),
    }
    if is_there("implicit", AlternatingLeastSquares):
        grid = {"factors": several, "regularization": [0.1, 1.0, 10.0], "alpha": [1.0, 5.0, 20.0]}
        found["implicit, ALS"] = Kind(least_squares, grid)
        grid = {
            "factors": several,
            "regularization": [0.01, 0.1],
            "learning_rate": [0.01, 0.05],
        }
        found["implicit, BPR"] = Kind(pairwise, grid)
    if is_there("hpfrec", HPF):
        found["hpfrec"] = Kind(hierarchical, {"k": several})
    if is_there("lightfm", LightFM):
        found["LightFM, WARP"] = Kind(warp, {"no_components": several, "epochs": [10, 30]})
    return found


# Data


def tables(quick: bool) -> Iterator[tuple[str, str, csr_matrix]]:
    """Names of the data, what a click is, and the clicks."""
    if quick:
        yield "drawn", "counts", csr_matrix(drawn(60, 70, 3, 0.5, 0)[0])
        return
    if available([name for name in OF_RATINGS if name == MOVIELENS]):
        found = ratings(MOVIELENS)
        users, items = found.X[found.y >= STARS].T
        yield (
            MOVIELENS,
            f"ratings of {STARS:g} stars or more",
            csr_matrix((np.ones(len(users)), (users, items))),
        )
    if NIPS in FILES and _has_papers():
        X = corpus(NIPS)[:PAPERS]
        X = X[:, np.asarray((X > 0).sum(axis=0)).ravel() >= LEAST_PAPERS]
        yield f"{NIPS}, {PAPERS} papers", "words that a paper has", csr_matrix(X > 0).astype(float)


def _has_papers() -> bool:
    from ..latent_dirichlet.data import available as texts

    return bool(texts([NIPS]))


# The page


Row = tuple[str, str, list[float], float, float]
"""The name, chosen settings, scores, and seconds of the fit and of the choice of a model."""


def recorded(section: str) -> list[Row]:
    """The rows of other libraries that a section of the page has."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(section)}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    rows = []
    for line in found[1].splitlines() if found else ():
        name, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        if name in OF_PEERS:
            *values, choice, words = cells
            *figures, fit = map(float, values)
            rows.append((name, words, figures, fit, float(choice)))
    return rows


def compared(X: csr_matrix, quick: bool) -> list[Row]:
    clicks = divided(X, 0)
    inner = divided(clicks.train, 1)
    rows = []
    for name, (fit, grid) in kinds(quick).items():
        candidates = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        begun = time.process_time()
        if len(candidates) > 1:
            judged = []
            for how in candidates:
                judged.append(scores(fit(inner.train, **how)(LENGTHS[-1]), inner.test)[1])
                progress(f"{name} {how}: {judged[-1]:.4f}")
            chosen = candidates[int(np.argmax(judged))]
        else:
            (chosen,) = candidates
        choice, begun = time.process_time() - begun, time.process_time()
        ranking = fit(clicks.train, **chosen)
        seconds = time.process_time() - begun
        found = scores(ranking(LENGTHS[-1]), clicks.test)
        progress(f"{name}: {found}, {seconds:.1f} s")
        words = ", ".join(f"{key}={value}" for key, value in chosen.items() if len(grid[key]) > 1)
        rows.append((name, words or "–", found, seconds, choice))
    return rows


def written(quick: bool = False) -> str:
    """The page, from a run of all fits; a small run if ``quick``."""
    page = Page([f"# Recommendations from clicks{' (a quick run)' * quick}", ""])
    page.lines += [
        f"{machine()} {versions(PEERS)}. Written by "
        "`python -m benchmarks.gamma_process_nmf.clicks --write`.",
        "",
    ]
    if quick:
        page.lines += ["A quick run, whose figures mean nothing.", ""]
    page.lines += [
        f"Of the items of each user, {HELD_OUT:.0%} are held out, and every model ranks those that "
        "are not in the rest. *Recall*: the share of the held-out items of a user that are among "
        "the first so many. *NDCG*: the same with a weight of 1 / log2(rank + 1), relative to the "
        "best order. Means over users. *Settings* are chosen by the NDCG at 10 of a further fifth; "
        "what is not named is as the library has it, and *from an allocation* is "
        '`init_params="collapsed_gibbs"`. *Fit* is the processor time of the last '
        "fit, *choice* that of all fits before, in seconds, one thread. "
        "`AnnealedPMF` is given every cell as a rating of 1 or 0. *Rates of items*: "
        '`popularity_prior="auto"`.',
        "",
    ]
    missing = [name for name, found in PEERS.items() if found is None]
    if missing and not quick:
        page.lines += [
            f"The rows of {', '.join(missing)} are those of the run of commit `{RECORDED}`, on the "
            f"same data ({_recorded_versions()}).",
            "",
        ]
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # A zero is meant as a rating of zero.
        warnings.filterwarnings(
            "ignore", message=".*of the entries of X are 0", category=UserWarning
        )
        # Kernels are compiled, or read from disk, before a fit is timed.
        for _, _, X in tables(quick=True):
            ours(X.astype(np.float64), n_components=2, max_iter=2)
            zeros_and_ones(X, 2)
        for name, what, X in tables(quick):
            page.section(
                name, f"{X.shape[0]:,} users, {X.shape[1]:,} items, {X.nnz:,} cells: {what}."
            )
            rows = compared(X, quick)
            if not quick:
                there = {row[0] for row in rows}
                rows += [row for row in recorded(name) if row[0] not in there]
            tops = np.round(np.max([found for _, _, found, _, _ in rows], axis=0), 3)
            page.table(
                ["model", *(f"{m} at {n}" for n in LENGTHS for m in ("recall", "NDCG"))]
                + ["fit", "choice", "settings"],
                (
                    [model]
                    + [_cell(x, top) for x, top in zip(found, tops, strict=True)]
                    + [f"{fit:.1f}", f"{choice:.1f}" if choice > 0.05 else "–", words]
                    for model, words, found, fit, choice in rows
                ),
            )
    return "\n".join(page.lines).rstrip("\n") + "\n"


def _recorded_versions() -> str:
    return ", ".join(re.findall(r"\b(?:implicit|hpfrec|lightfm) \d\S*\d", PAGE.read_text("utf-8")))


def _cell(value: float, top: float) -> str:
    text = f"{value:.3f}"
    return f"**{text}**" if round(value, 3) == top else text


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
