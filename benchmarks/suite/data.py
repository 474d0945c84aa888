"""Real data of the suite: each function returns training and held-out data, the same in every run.

Files are looked for as ``benchmarks/common/data.py`` says. They have the arrays

- ``X`` and ``lengths`` of frames: ``basic_motions.npz``, ``libras.npz``, ``daphnet_s06.npz``,
  ``character_trajectories.npz`` with ``labels`` and ``label_names``, ``vowels_train.npz`` with
  ``labels``;
- tables, in which −1 is a missing cell: ``surveys_polca.npz`` with ``gss82`` and ``election``,
  ``mushroom.npz`` and ``votes_1984.npz`` with ``X``, ``newsgroups_w100.npz`` with a binary ``X``
  (n_posts, 100), ``life_sequences.npz`` with ``biofam`` (2000, 16) and ``mvad`` (712, 72),
  ``splice.npz`` with ``symbols`` (3190, 60);
- rows: ``mnist.npz`` with ``images`` (n, 784) of 0..255 and ``labels``, ``geyser.npz`` with ``X``
  (299, 2), ``pima.npz`` with ``X`` and ``y``, ``wine_quality.npz`` with ``X`` (6497, 11),
  ``labels`` and ``quality``;
- counts of the corpora in ``benchmarks/latent_dirichlet/data.py``;
- ``user``, ``item`` and ``rating``: ``movielens_100k.npz`` and ``jester.npz``.

Sets are cut so that one fit takes at most a few seconds. Where the same sequence or the same
measurement occurs more than once, one copy is kept, because a copy in both parts would be predicted
from memory. Tables of answers, votes, words and pixels keep all rows: there, equal rows are equal
observations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse, vstack
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

from ..common.data import load
from ..latent_dirichlet.data import counts_of
from ..matrix_factorization.data import Ratings

Rows = tuple[np.ndarray, np.ndarray]

LIVES, WINES, MNIST = "life_sequences.npz", "wine_quality.npz", "mnist.npz"
SURVEYS, WORDS = "surveys_polca.npz", "newsgroups_w100.npz"
MOTIONS, GAIT, GESTURES = "basic_motions.npz", "daphnet_s06.npz", "libras.npz"
PENS, VOWELS = "character_trajectories.npz", "vowels_train.npz"


@dataclass(frozen=True)
class Sequences:
    """Several sequences, one after another.

    Attributes
    ----------
    X : ndarray of shape (n_frames, n_features)
    lengths : ndarray of int, shape (n_sequences,)
    """

    X: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, sequences: list[np.ndarray]) -> Sequences:
        return cls(np.concatenate(sequences), np.array([len(s) for s in sequences]))

    def __len__(self) -> int:
        return len(self.lengths)


def divided_anew(train: Any, test: Any, split: int) -> tuple[Any, Any]:
    """The same rows, sequences or ratings in other training and held-out parts of the same sizes.

    Both keep the scales of the first training part.

    Parameters
    ----------
    train, test : ndarray, sparse matrix, Sequences or Ratings
    split : int
        The seed of the order in which rows are dealt out.
    """
    if isinstance(train, Ratings):
        every = Ratings(np.concatenate([train.X, test.X]), np.concatenate([train.y, test.y]))
        held_out, rest = _dealt(len(every), len(test), split)
        return every.take(np.sort(rest)), every.take(np.sort(held_out))
    if isinstance(train, Sequences):
        each = [s for part in (train, test) for s in np.split(part.X, np.cumsum(part.lengths)[:-1])]
        first, rest = _dealt(len(each), len(train.lengths), split)
        return tuple(Sequences.of([each[i] for i in part]) for part in (first, rest))
    stacked = vstack([train, test]).tocsr() if issparse(train) else np.concatenate([train, test])
    first, rest = _dealt(stacked.shape[0], train.shape[0], split)
    return stacked[first], stacked[rest]


def _dealt(n: int, n_first: int, split: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(split).permutation(n)
    return order[:n_first], order[n_first:]


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
    return _scaled(*_divided(X, at_most), n_components)


def _divided(X: np.ndarray, at_most: int | None = None) -> Rows:
    """Three quarters of the rows in random order, and the other quarter."""
    order = np.random.default_rng(0).permutation(len(X))[:at_most]
    n_train = 3 * len(order) // 4
    return X[order[:n_train]], X[order[n_train:]]


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


@cache
def _mnist() -> tuple[PCA, np.ndarray, np.ndarray]:
    archive = load(MNIST)
    images, labels = archive["images"], archive["labels"]
    rows = np.random.default_rng(0).choice(len(images), 10_000, replace=False)
    return PCA(30, random_state=0).fit(images[rows] / 255.0), images, labels


def mnist(label: int) -> Rows:
    """800 MNIST digits of one class, and 800 others, on 30 principal components of all digits."""
    pca, images, labels = _mnist()
    rows = np.random.default_rng(label).permutation(np.flatnonzero(labels == label))[:1600]
    X = pca.transform(images[rows] / 255.0)
    return X[:800], X[800:]


def table(file: str) -> Rows:
    """The rows of the array ``X`` of a file."""
    return rows_of(load(file)["X"].astype(np.float64))


def frames(file: str, every: int) -> Rows:
    """Some frames of each sequence as rows; whole sequences are held out."""
    train, test = sequences(file, every)
    return _scaled(train.X, test.X)


def pen_frames() -> Rows:
    """One frame in 60 of the pen trajectories of all letters; whole trajectories are held out."""
    each = _of_file(PENS)
    # The last frames of a trajectory are padding.
    thinned = [sequence[20:-20:30] for sequence in each[::2]]
    train, test = _parts(thinned)
    return _scaled(train.X, test.X)


def gestures() -> Rows:
    """Whole gestures as rows of 90 columns on 12 principal components, the distinct ones."""
    flat = np.array([sequence.ravel() for sequence in _distinct(_of_file(GESTURES))])
    return rows_of(flat, 12)


def wines(label: int, at_most: int) -> Rows:
    """Measures of red or of white wines, the distinct ones."""
    found = load(WINES)
    return rows_of(np.unique(found["X"][found["labels"] == label], axis=0), None, at_most)


# Tables of any columns


def survey(file: str, name: str = "X") -> Rows:
    """A table of answers, votes or descriptions."""
    X = load(file)[name]
    if name == "election":
        X = X[:, :12]
        X = X[(X >= 0).all(axis=1)]
    return _divided(X.astype(np.int64), 1200)


def words() -> Rows:
    """Posts to newsgroups, and which of 100 words occur in each."""
    X = load(WORDS)["X"].astype(np.int64)
    X = X[np.random.default_rng(0).permutation(len(X))[: 3 * len(X) // 4]]
    return _divided(X, 1200)


def pixels(at_most: int) -> Rows:
    """scikit-learn's digits as 64 binary pixels."""
    return _divided((datasets.load_digits().data >= 8).astype(np.int64), at_most)


def lives(name: str, at_most: int) -> Rows:
    """Life sequences as rows with one column for each time, the distinct ones."""
    return _divided(np.unique(load(LIVES)[name], axis=0).astype(np.int64), at_most)


def clinic() -> Rows:
    """Seven measures with missing cells, a number of pregnancies, and a diagnosis."""
    found = load("pima.npz")
    X = np.column_stack([found["X"], found["y"]]).astype(np.float64)
    measured = X[:, 1:6]
    measured[measured == 0] = np.nan
    return _with_scaled(X, slice(1, 8))


def cellar(at_most: int) -> Rows:
    """Eleven measures of wines, their grade from 0 to 6, and whether they are white."""
    found = load(WINES)
    X = np.column_stack([found["X"], found["quality"] - 3, found["labels"]])
    return _with_scaled(np.unique(X, axis=0), slice(0, 11), at_most)


def _with_scaled(X: np.ndarray, columns: slice, at_most: int | None = None) -> Rows:
    """Rows whose Gaussian columns are standardised by what the training rows say."""
    train, test = _divided(X, at_most)
    mean, scale = np.nanmean(train[:, columns], axis=0), np.nanstd(train[:, columns], axis=0)
    for part in (train, test):
        part[:, columns] = (part[:, columns] - mean) / scale
    return train, test


# Rows for sums of parts, factors and counts


def images(at_most: int, label: int | None = None) -> Rows:
    """scikit-learn's digits with pixels from 0 to 1."""
    X, y = datasets.load_digits(return_X_y=True)
    return _divided((X if label is None else X[y == label]) / 16.0, at_most)


def factor_rows(name: str) -> Rows:
    """600 rows of digits or of ``"cancer"``, and as many others, on the scales of the first."""
    X = datasets.load_breast_cancer().data
    if name == "digits":
        X = datasets.load_digits().data
        # A Gaussian of a column that is almost always zero says nothing.
        X = X[:, (X > 0).mean(axis=0) >= 0.05]
        # Pixels have 17 values. Without noise that fills the gaps between them their density has
        # no upper limit.
        X = X + np.random.default_rng(0).random(X.shape)
    train, test = train_test_split(X, test_size=0.25, random_state=0)
    train, test = _scaled(train, test)
    return train[:600], test[:600]


def count_rows(file: str | None, n_rows: int, n_columns: int) -> Rows:
    """Rows of counts, and half as many others, with the most frequent columns alone.

    Without a file they are scikit-learn's digits, whose pixels are counts from 0 to 16. A column
    that has no count in the rows for fitting is left out.
    """
    X = datasets.load_digits().data.astype(np.int64) if file is None else counts_of(file)
    frequent = np.argsort(-np.asarray(X.sum(axis=0)).ravel(), kind="stable")[:n_columns]
    X = X[:, np.sort(frequent)]
    X = (X.toarray() if issparse(X) else X).astype(np.float64)
    # As many rows as are held out are left for choosing settings.
    half = n_rows // 2
    order = np.random.default_rng(0).permutation(len(X))[: n_rows + 2 * half]
    train = X[order[:n_rows]]
    used = train.sum(axis=0) > 0
    return train[:, used], X[order[n_rows + half :]][:, used]


# Sequences


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


def _shuffled(sequences: list[np.ndarray]) -> list[np.ndarray]:
    """The sequences in an order that is random, and the same in every run."""
    return [sequences[i] for i in np.random.default_rng(0).permutation(len(sequences))]


def pen(letter: str, at_most: int) -> tuple[Sequences, Sequences]:
    """Every third frame of the pen trajectories of a letter, without the zeros at both ends."""
    found = load(PENS)
    wanted = list(found["label_names"]).index(letter)
    each = []
    for sequence, label in zip(_of_file(PENS), found["labels"], strict=True):
        if label == wanted:
            moving = np.flatnonzero(sequence.any(axis=1))
            each.append(sequence[moving[0] : moving[-1] + 1])
    return _standardised(_parts([sequence[::3] for sequence in _shuffled(each)], at_most))


def pen_symbols(letter: str, at_most: int, n_symbols: int) -> tuple[Sequences, Sequences]:
    """Pen trajectories as symbols of a codebook that k-means finds in the training frames."""
    parts = pen(letter, at_most)
    codebook = KMeans(n_symbols, n_init=1, random_state=0).fit(parts[0].X)
    return _changed(parts, lambda X: codebook.predict(X)[:, None])


def vowels(speaker: int | None, at_most: int | None = None) -> tuple[Sequences, Sequences]:
    """Utterances of one speaker, or of all, as frames of 12 coefficients."""
    chosen = [
        sequence
        for sequence, label in zip(_of_file(VOWELS), load(VOWELS)["labels"], strict=True)
        if speaker is None or label == speaker
    ]
    return _standardised(_parts(_distinct(chosen), at_most))


def life_chains(name: str, at_most: int) -> tuple[Sequences, Sequences]:
    """Life sequences, the distinct ones, state by state."""
    each = np.unique(load(LIVES)[name], axis=0).astype(np.int64)
    return _parts([sequence[:, None] for sequence in each], at_most)


def splice(at_most: int) -> tuple[Sequences, Sequences]:
    """Windows of 60 bases, the distinct ones without ambiguous bases."""
    symbols = load("splice.npz")["symbols"].astype(np.int64)
    clean = symbols[(symbols >= 0).all(axis=1)]
    return _parts([window[:, None] for window in _distinct(clean)], at_most)


def english(at_most: int) -> tuple[Sequences, Sequences]:
    """Paragraphs of scikit-learn's descriptions of its data sets, letter by letter."""
    loaders = ("iris", "wine", "breast_cancer", "diabetes", "linnerud", "digits")
    paragraphs = []
    for name in loaders:
        for text in getattr(datasets, f"load_{name}")().DESCR.split("\n\n"):
            letters = " ".join(re.findall("[a-z]+", text.lower()))
            if len(letters) >= 40:
                codes = np.frombuffer(letters.encode(), dtype=np.uint8).astype(int)
                paragraphs.append(np.where(codes == ord(" "), 26, codes - ord("a"))[:, None])
    each = [paragraph[:80] for paragraph in _shuffled(paragraphs)]
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
    X = counts_of(file).astype(np.float64)
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
