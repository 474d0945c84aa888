"""Tables of binary columns and categories: drawn ones, surveys, votes, mushrooms, words and digits.

The files are looked for as ``benchmarks/common/data.py`` says. In all of them −1 is a missing cell.
``surveys_polca.npz`` has tables of categories (n_rows, n_columns) by name: ``carcinoma``,
``cheating``, ``gss82``, ``values`` and ``election``. ``mushroom.npz`` and ``votes_1984.npz`` have
``X`` (n_rows, n_columns) and ``labels`` (n_rows,), ``newsgroups_w100.npz`` has a binary ``X``
(n_posts, 100), and ``mnist.npz`` has ``images`` (n, 784) of 0..255.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..common.data import load, present

SURVEYS, MUSHROOM, VOTES = "surveys_polca.npz", "mushroom.npz", "votes_1984.npz"
WORDS, DIGITS = "newsgroups_w100.npz", "mnist.npz"
FILES = {
    "mushroom": MUSHROOM,
    "votes": VOTES,
    "words": WORDS,
    "digits": DIGITS,
    **dict.fromkeys(("carcinoma", "cheating", "gss82", "values", "election"), SURVEYS),
}
# Rows of digits in the training set, and held out.
_DIGIT_ROWS, _HELD_OUT_DIGITS = 4_000, 4_000
# Rows from which the divergence from the true distribution is estimated.
_ROWS_OF_TRUTH = 20_000


@dataclass(frozen=True)
class Truth:
    """The distribution from which a table was drawn.

    Attributes
    ----------
    weights : ndarray of shape (n_components,)
    probabilities : ndarray of shape (n_components, n_features)
    """

    weights: np.ndarray
    probabilities: np.ndarray

    def sample(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows; return them and their components."""
        labels = rng.choice(len(self.weights), size=n, p=self.weights)
        uniform = rng.random((n, self.probabilities.shape[1]))
        return (uniform < self.probabilities[labels]).astype(np.int8), labels

    def log_probability(self, X: np.ndarray) -> np.ndarray:
        """Return the log probability of each row in nats."""
        with np.errstate(divide="ignore"):
            joint = np.log(self.weights) + X @ np.log(self.probabilities).T
        joint += (1.0 - X) @ np.log1p(-self.probabilities).T
        return np.logaddexp.reduce(joint, axis=1)


@dataclass(frozen=True)
class Table:
    """A table for fits.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_features)
        The training set; −1 where a cell is missing.
    emission : {"bernoulli", "categorical"}
    held_out : ndarray or None
    labels : ndarray of shape (n_rows,) or None
        The classes of the rows of the training set, or the components from which they were drawn.
    truth : Truth or None
    """

    X: np.ndarray
    emission: str
    held_out: np.ndarray | None = None
    labels: np.ndarray | None = None
    truth: Truth | None = None

    @property
    def n_categories(self) -> np.ndarray | None:
        """The numbers of categories of the columns; None if they are binary."""
        return self.X.max(axis=0).astype(int) + 1 if self.emission == "categorical" else None


def available(names: Iterable[str]) -> list[str]:
    """The data sets whose files are there; a message is printed for each missing file."""
    return present(names, FILES.get)


def bernoullis(n: int, n_features: int, n_components: int, alpha: float, seed: int) -> Table:
    """Draw from a mixture of Bernoullis with Dir(α/K) weights, as Hoffman and Blei (2015) do.

    Held out are rows by which the divergence from the truth is estimated.
    """
    rng = np.random.default_rng([seed, n_components])
    weights = rng.dirichlet(np.full(n_components, alpha / n_components))
    truth = Truth(weights, rng.random((n_components, n_features)))
    X, labels = truth.sample(n, rng)
    return Table(X, "bernoulli", truth.sample(_ROWS_OF_TRUTH, rng)[0], labels, truth)


@lru_cache(maxsize=8)
def table(name: str, seed: int = 0) -> Table:
    """The table of a name; only mixtures of Bernoullis depend on the seed."""
    if name == "Bernoullis":
        return bernoullis(1000, 100, 100, 20.0, seed)
    if name == "drawn Bernoullis":
        return bernoullis(80, 10, 8, 4.0, seed)
    if name.startswith("drawn"):
        return _drawn(name)
    if name in ("words", "digits"):
        return _halves(name)
    if FILES[name] == SURVEYS:
        return Table(_survey(name), "categorical")
    found = load(FILES[name])
    emission = "bernoulli" if name == "votes" else "categorical"
    return Table(found["X"], emission, labels=found["labels"])


def _survey(name: str) -> np.ndarray:
    X = load(SURVEYS)[name]
    if name == "cheating":
        X = X[:, :4]  # the average of grades is a covariate of the documented models
    if name == "election":
        X = X[:, :12]
        X = X[(X >= 0).all(axis=1)]
    return X


def _halves(name: str) -> Table:
    """Words of posts and binary pixels, divided at random into training and held-out rows."""
    rng = np.random.default_rng(0)
    if name == "words":
        X = load(WORDS)["X"].astype(np.int8)
        order = rng.permutation(len(X))
        n, m = 3 * len(X) // 4, len(X)
    else:
        X = (load(DIGITS)["images"] > 127).astype(np.int8)
        order = rng.permutation(len(X))
        n, m = _DIGIT_ROWS, _DIGIT_ROWS + _HELD_OUT_DIGITS
    return Table(X[order[:n]], "bernoulli", X[order[n:m]])


def _drawn(name: str) -> Table:
    """Small tables of two classes; half of the rows of "drawn words" are held out."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=160)
    if name == "drawn words":
        X = (rng.random((160, 8)) < np.where(labels[:, None], 0.2, 0.7)).astype(np.int8)
        return Table(X[:80], "bernoulli", X[80:])
    X = rng.binomial(2, np.where(labels[:, None], 0.2, 0.7), size=(160, 6)).astype(np.int8)
    if name == "drawn classes":
        X[rng.random(X.shape) < 0.1] = -1
        return Table(X, "categorical", labels=labels)
    return Table(X, "categorical")
