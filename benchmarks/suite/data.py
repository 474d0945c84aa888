"""Real data of the suite: each function returns training and held-out data, the same in every run.

Files are looked for as ``benchmarks/common/data.py`` says. The ``data.py`` of the models name some
of them; the others are ``basic_motions.npz``, ``libras.npz`` and ``daphnet_s06.npz`` with frames
``X`` and ``lengths``, ``splice.npz`` with ``symbols`` (3190, 60), ``geyser.npz`` with ``X``
(299, 2), ``newsgroups_basehock.npz`` with counts as CSR arrays, ``jester.npz`` with ``user``,
``item`` and ``rating``, ``wine_quality.npz`` with ``X`` and ``labels``, ``vowels_train.npz`` with
frames ``X``, ``lengths`` and ``labels``, and ``life_sequences.npz`` with tables of states.

Sets are cut so that one fit takes at most a few seconds. Where the same sequence occurs more than
once, one copy is kept, because a copy in both parts would be predicted from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
from scipy.sparse import csr_matrix
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from ..common.data import load
from ..factorial_mixture import data as factorial_data
from ..gamma_process_nmf import data as count_data
from ..gaussian_mixture.data import mnist_of
from ..hidden_markov.data import Sequences
from ..hidden_markov.data import split as split_sequences_of
from ..matrix_factorization.data import Ratings
from ..mixture.data import table as table_of_answers
from ..spike_slab_factor_analysis import data as factor_data

Rows = tuple[np.ndarray, np.ndarray]


# Rows, for mixtures


def rows_of(X: np.ndarray, n_components: int | None = None, at_most: int | None = None) -> Rows:
    """Three quarters of the rows in random order, and the other quarter, both standardised.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns)
    n_components : int or None
        Project on so many principal components of the training rows instead of scaling columns.
    at_most : int or None
        Take no more rows than this.
    """
    order = np.random.default_rng(0).permutation(len(X))[:at_most]
    n_train = 3 * len(order) // 4
    return _scaled(X[order[:n_train]], X[order[n_train:]], n_components)


def _scaled(train: np.ndarray, test: np.ndarray, n_components: int | None = None) -> Rows:
    """Standardise columns, or project them, by what the training rows say."""
    if n_components is not None:
        pca = PCA(n_components, random_state=0).fit(train)
        return pca.transform(train), pca.transform(test)
    mean, scale = train.mean(axis=0), train.std(axis=0)
    return (train - mean) / scale, (test - mean) / scale


def bundled(name: str, n_components: int | None = None, leave_out: Iterable[int] = ()) -> Rows:
    """A data set that scikit-learn brings along, as rows, without some columns."""
    X = getattr(datasets, f"load_{name}")().data
    return rows_of(np.delete(X, list(leave_out), axis=1), n_components)


def digits(label: int | None, n_components: int, at_most: int | None = None) -> Rows:
    """scikit-learn's digits of one class, or of all, on their first principal components."""
    X, y = datasets.load_digits(return_X_y=True)
    return rows_of(X if label is None else X[y == label], n_components, at_most)


def mnist(label: int) -> Rows:
    """800 MNIST digits of one class on 30 principal components, and 800 others."""
    return mnist_of(label, 800)


def table(file: str) -> Rows:
    """The rows of the array ``X`` of a file."""
    return rows_of(load(file)["X"].astype(np.float64))


def frames(file: str, every: int) -> Rows:
    """Some frames of each sequence as rows; whole sequences are held out."""
    train, test = sequences(file, every)
    return _scaled(train.X, test.X)


def pen_frames() -> Rows:
    """One frame in 60 of the pen trajectories of all letters; whole trajectories are held out."""
    found = load("character_trajectories.npz")
    each = np.split(found["X"].astype(np.float64), np.cumsum(found["lengths"])[:-1])
    # The last frames of a trajectory are padding.
    thinned = [sequence[20:-20:30] for sequence in each[::2]]
    train, test = _parts(thinned)
    return _scaled(train.X, test.X)


def gestures() -> Rows:
    """Whole gestures as rows of 90 columns on 12 principal components, the distinct ones."""
    flat = np.array([sequence.ravel() for sequence in _distinct(_of_file("libras.npz"))])
    return rows_of(flat, 12)


def wines(label: int, at_most: int) -> Rows:
    """Distinct rows of eleven measures of red or white wines."""
    found = load("wine_quality.npz")
    return rows_of(np.unique(found["X"][found["labels"] == label], axis=0), at_most=at_most)


def groups(n_groups: int, deviation: float, n_columns: int, n_rows: int) -> Rows:
    """Drawn Gaussian groups of equal size with means in a box of 100, and as many other rows."""
    rng = np.random.default_rng([n_groups, n_columns, n_rows])
    means = rng.uniform(0.0, 100.0, (n_groups, n_columns))

    def rows() -> np.ndarray:
        labels = np.arange(n_rows) % n_groups
        return means[labels] + deviation * rng.standard_normal((n_rows, n_columns))

    return rows(), rows()


# Tables of categories and binary columns


def _some(X: np.ndarray, at_most: int | None = None) -> Rows:
    """Three quarters of some rows in random order, and the other quarter."""
    order = np.random.default_rng(0).permutation(len(X))[:at_most]
    n_train = 3 * len(order) // 4
    return X[order[:n_train]], X[order[n_train:]]


def answers(name: str, at_most: int | None = None) -> Rows:
    """A table of ``benchmarks/mixture/data.py``, of which all rows are known."""
    found = table_of_answers(name)
    X = found.X if found.held_out is None else np.concatenate([found.X, found.held_out])
    return _some(X, at_most)


def binary_digits(label: int | None) -> Rows:
    """scikit-learn's digits of one class, or of all, as 64 binary pixels."""
    X, y = datasets.load_digits(return_X_y=True)
    return _some((X > 7).astype(np.int8)[slice(None) if label is None else y == label])


def life_table(name: str, at_most: int) -> Rows:
    """Life sequences as wide tables with one column per time step, the distinct ones."""
    return _some(np.unique(load("life_sequences.npz")[name], axis=0), at_most)


def drawn_answers(n_classes: int, n_columns: int, n_categories: int, n_rows: int) -> Rows:
    """Answers of drawn classes of equal size, most of which give one answer to each question."""
    rng = np.random.default_rng([n_classes, n_columns, n_rows])
    liked = rng.dirichlet(np.full(n_categories, 0.3), (n_classes, n_columns))

    def rows() -> np.ndarray:
        labels = np.arange(n_rows) % n_classes
        below = rng.random((n_rows, n_columns, 1)) > np.cumsum(liked[labels], axis=-1)
        return below.sum(axis=-1).clip(0, n_categories - 1).astype(np.int8)

    return rows(), rows()


# Parts and factors


def bars(n_rows: int) -> Rows:
    """Images of 4 × 4 pixels, each the sum of some of eight parts of four pixels and noise."""
    rng = np.random.default_rng(n_rows)
    rows, columns = np.divmod(np.arange(16), 4)
    parts = 3.0 * np.array([rows == i for i in range(4)] + [columns == i for i in range(4)])
    active = rng.random((2 * n_rows, 8)) < 0.25
    X = active @ parts + 0.5 * rng.standard_normal((2 * n_rows, 16))
    return X[:n_rows], X[n_rows:]


def drawn_parts(n_rows: int) -> Rows:
    """Images of 4 × 4 pixels with the eight overlapping parts of the factorial benchmark."""
    X, _ = factorial_data.drawn(2 * n_rows, 0)
    return X[:n_rows], X[n_rows:]


def images(label: int | None, n_train: int) -> Rows:
    """scikit-learn's digits with pixels from 0 to 1; the pixels that are never on are left out."""
    X, y = datasets.load_digits(return_X_y=True)
    X = (X if label is None else X[y == label]) / 16.0
    order = np.random.default_rng(0).permutation(len(X))
    train, test = np.split(X[order], [n_train])
    used = train.std(axis=0) > 0.05
    return train[:, used], test[:, used]


def counted_images(label: int | None, n_train: int) -> Rows:
    """scikit-learn's digits as counts from 0 to 16."""
    X, y = datasets.load_digits(return_X_y=True)
    X = X if label is None else X[y == label]
    order = np.random.default_rng(0).permutation(len(X))
    return X[order[:n_train]], X[order[n_train:]]


def drawn_counts(n_rows: int, n_columns: int, n_components: int) -> Rows:
    """Counts that are drawn from the model of gamma-process factorisation."""
    X, _ = count_data.drawn(2 * n_rows, n_columns, n_components, 2.0, 0)
    return X[:n_rows], X[n_rows:]


def dense_corpus(file: str, n_documents: int, least: int) -> Rows:
    """Word counts of some documents as dense tables of the frequent words."""
    train, test = corpus(file, n_documents, least)
    return train.toarray(), test.toarray()


def drawn_factors(kind: str, n_rows: int) -> Rows:
    """Rows of sparse or dense factors with sparse or dense loadings."""
    X, _ = factor_data.drawn(kind, 2 * n_rows, 0)
    return X[:n_rows], X[n_rows:]


def real_factors(name: str) -> Rows:
    """Real data of the benchmark of spike-and-slab factors."""
    return factor_data.split(name, 0)


# Sequences


def life(name: str, at_most: int) -> tuple[Sequences, Sequences]:
    """Life sequences of states, the distinct ones."""
    X = np.unique(load("life_sequences.npz")[name], axis=0).astype(np.int64)
    return _parts([row[:, None] for row in X], at_most)


def vowels(speaker: int) -> tuple[Sequences, Sequences]:
    """Utterances of a vowel by one speaker, 12 coefficients a frame."""
    found = load("vowels_train.npz")
    each = np.split(found["X"].astype(np.float64), np.cumsum(found["lengths"])[:-1])
    spoken = [x for x, label in zip(each, found["labels"], strict=True) if label == speaker]
    return _standardised(_parts(spoken))


def drawn_chain(n_states: int, n_columns: int, one_way: bool) -> tuple[Sequences, Sequences]:
    """Drawn chains of Gaussian states, in any order or in one order."""
    rng = np.random.default_rng([n_states, n_columns])
    means = 1.5 * rng.standard_normal((n_states, n_columns))
    each = []
    for _ in range(60):
        order = np.arange(n_states) if one_way else rng.permutation(np.repeat(range(n_states), 2))
        states = np.repeat(order, 1 + rng.poisson(5.0, len(order)))
        each.append(means[states] + 0.6 * rng.standard_normal((len(states), n_columns)))
    return _parts(each)


def _of_file(file: str) -> list[np.ndarray]:
    found = load(file)
    return np.split(found["X"].astype(np.float64), np.cumsum(found["lengths"])[:-1])


def _distinct(each: Iterable[np.ndarray]) -> list[np.ndarray]:
    """The sequences in their order, each content once."""
    return list({sequence.tobytes(): sequence for sequence in each}.values())


def _parts(each: list[np.ndarray], at_most: int | None = None) -> tuple[Sequences, Sequences]:
    """Two thirds of the sequences in random order, and the other third."""
    order = np.random.default_rng(0).permutation(len(each))[:at_most]
    n_train = len(order) - len(order) // 3
    train, test = ([each[i] for i in part] for part in np.split(order, [n_train]))
    return Sequences.of(train), Sequences.of(test)


def _changed(
    parts: tuple[Sequences, Sequences], change: Callable[[np.ndarray], np.ndarray]
) -> tuple[Sequences, Sequences]:
    train, test = (Sequences(change(part.X), part.lengths) for part in parts)
    return train, test


def _standardised(parts: tuple[Sequences, Sequences]) -> tuple[Sequences, Sequences]:
    mean, scale = parts[0].X.mean(axis=0), parts[0].X.std(axis=0)
    return _changed(parts, lambda X: (X - mean) / scale)


def sequences(
    file: str, every: int = 1, window: int | None = None, at_most: int | None = None
) -> tuple[Sequences, Sequences]:
    """Sequences of a file, standardised by the training part.

    Parameters
    ----------
    file : str
    every : int
        Keep one frame in so many.
    window : int or None
        Cut what is then left into windows of so many frames.
    at_most : int or None
        Take no more sequences than this.
    """
    each = [sequence[::every] for sequence in _distinct(_of_file(file))]
    if window is not None:
        each = [s[i : i + window] for s in each for i in range(0, len(s) - window + 1, window)]
    return _standardised(_parts(each, at_most))


def above_median(parts: tuple[Sequences, Sequences]) -> tuple[Sequences, Sequences]:
    """Sequences of binary vectors: whether a channel is above its median in the training part."""
    middle = np.median(parts[0].X, axis=0)
    return _changed(parts, lambda X: X > middle)


def pen(letter: str, at_most: int) -> tuple[Sequences, Sequences]:
    """Every third frame of the pen trajectories of a letter."""
    found = split_sequences_of(f"letter {letter}", "gaussian")
    each = [
        sequence[::3]
        for part in (found.training, found.held_out)
        for sequence in np.split(part.X, np.cumsum(part.lengths)[:-1])
    ]
    return _standardised(_parts(each, at_most))


def pen_symbols(letter: str, at_most: int, n_symbols: int) -> tuple[Sequences, Sequences]:
    """Pen trajectories as symbols of a codebook that k-means finds in the training frames."""
    parts = pen(letter, at_most)
    codebook = KMeans(n_symbols, n_init=1, random_state=0).fit(parts[0].X)
    return _changed(parts, lambda X: codebook.predict(X)[:, None])


def splice(at_most: int) -> tuple[Sequences, Sequences]:
    """Windows of 60 bases, the distinct ones without ambiguous bases."""
    symbols = load("splice.npz")["symbols"].astype(np.int64)
    clean = symbols[(symbols >= 0).all(axis=1)]
    return _parts([window[:, None] for window in _distinct(clean)], at_most)


def english(at_most: int) -> tuple[Sequences, Sequences]:
    """Paragraphs of scikit-learn's descriptions of its data sets, letter by letter."""
    found = split_sequences_of("English", "categorical")
    each = [
        sequence[:80]
        for part in (found.training, found.held_out)
        for sequence in np.split(part.X, np.cumsum(part.lengths)[:-1])
    ]
    return _parts(_distinct(each), at_most)


def digit_rows(label: int) -> tuple[Sequences, Sequences]:
    """Images of a digit as sequences of 8 rows of 8 binary pixels."""
    X, y = datasets.load_digits(return_X_y=True)
    return _parts(_distinct((X[y == label] >= 8).reshape(-1, 8, 8)))


# Corpora


@cache
def corpus(
    file: str, n_documents: int, least: int = 5, shortest: int = 10
) -> tuple[csr_matrix, csr_matrix]:
    """So many documents of a file to train on, and half as many others.

    Parameters
    ----------
    file : str
    n_documents : int
    least : int
        Keep the words that occur in at least so many of the training documents.
    shortest : int
        Leave out documents with fewer tokens in all.
    """
    found = load(file)
    X = csr_matrix((found["data"], found["indices"], found["indptr"]), shape=found["shape"])
    X = X.astype(np.float64)
    long_enough = np.flatnonzero(np.asarray(X.sum(axis=1)).ravel() >= shortest)
    order = np.random.default_rng(0).permutation(long_enough)
    train = X[order[:n_documents]]
    test = X[order[n_documents : 3 * n_documents // 2]]
    words = np.flatnonzero(np.asarray((train > 0).sum(axis=0)).ravel() >= least)
    return train[:, words], test[:, words]


# Ratings


@cache
def ratings(file: str, every: int) -> tuple[Ratings, Ratings]:
    """Nine tenths of the ratings of every n-th user, and the other tenth."""
    found = load(file)
    chosen = found["user"] % every == 0
    pairs = np.stack([found["user"][chosen] // every, found["item"][chosen]], axis=1)
    everything = Ratings(pairs.astype(np.int64), found["rating"][chosen].astype(np.float64))
    order = np.random.default_rng(0).permutation(len(everything))
    held_out, rest = np.split(order, [len(order) // 10])
    return everything.take(np.sort(rest)), everything.take(np.sort(held_out))
