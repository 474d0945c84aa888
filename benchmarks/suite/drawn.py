"""Drawn data of known truth: groups of rows, tables of answers, chains, sums of parts, and counts.

Each function returns training and held-out data, the same in every run.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from sklearn_anneal.datasets import make_factorial_mixture, make_mixture

from ..gamma_process_nmf.data import drawn as drawn_counts
from .data import Rows, Sequences

# The least distance between the means of two groups, in standard deviations within a group.
DISTANCES = {"separated": 7.0, "overlapping": 3.0}
# Candidates for a mean that are drawn before the box of means becomes a tenth larger.
_CANDIDATES = 200
# Training rows per group, on average.
_ROWS_PER_GROUP = 50
# Eight binary images of 4 × 4 pixels that overlap. The paper drew its own by hand and shows them in
# a figure only.
_PARTS = np.array(
    [
        [1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1],
        [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0],
        [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1],
        [1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1],
    ],
    dtype=float,
)
# Sums of parts: how strong the parts are, the noise, and the share of rows that have a part.
_AMPLITUDE, _NOISE, _ACTIVE = 3.0, 0.5, 0.3


class Groups(NamedTuple):
    """Rows of several Gaussian groups.

    Attributes
    ----------
    train, test : ndarray of shape (n_rows, n_columns)
    labels : ndarray of shape (n_test_rows,)
        The groups of the held-out rows.
    """

    train: np.ndarray
    test: np.ndarray
    labels: np.ndarray


def held_out(X: np.ndarray, n_train: int) -> Rows:
    """Drawn rows, of which those after the first are held out."""
    return X[:n_train], X[n_train:]


@cache
def groups(kind: str, n_groups: int, n_columns: int) -> Groups:
    """Gaussian groups with covariances and weights of their own.

    Variances within a group are between a half and one, so that ``DISTANCES`` says how many
    standard deviations of at most 1 lie between two means. The box of the means is as small as
    these distances allow to a random choice.
    """
    seed = [sorted(DISTANCES).index(kind), n_groups, n_columns]
    rng = np.random.default_rng(seed)
    means = _apart(n_groups, n_columns, DISTANCES[kind], rng)
    weights = rng.uniform(0.5, 1.5, n_groups)
    labels = rng.choice(n_groups, 2 * _ROWS_PER_GROUP * n_groups, p=weights / weights.sum())
    roots = []
    for _ in range(n_groups):
        turn, _ = np.linalg.qr(rng.standard_normal((n_columns, n_columns)))
        roots.append(turn * np.sqrt(rng.uniform(0.5, 1.0, n_columns)))
    noise = rng.standard_normal((len(labels), n_columns))
    X = means[labels] + np.einsum("nij,nj->ni", np.array(roots)[labels], noise)
    half = _ROWS_PER_GROUP * n_groups
    return Groups(X[:half], X[half:], labels[half:])


def _apart(n: int, n_columns: int, distance: float, rng: np.random.Generator) -> np.ndarray:
    """Random means of which no two are closer than the distance."""
    # In many dimensions random points of this box are farther apart than necessary.
    side = distance / np.sqrt(n_columns)
    found = [np.zeros(n_columns)]
    while len(found) < n:
        candidates = rng.uniform(-side, side, (_CANDIDATES, n_columns))
        for mean in candidates:
            if np.linalg.norm(np.array(found) - mean, axis=1).min() >= distance:
                found.append(mean)
                break
        else:
            side *= 1.1
    return np.array(found)


def group_rows(kind: str, n_groups: int, n_columns: int) -> Rows:
    drawn = groups(kind, n_groups, n_columns)
    return drawn.train, drawn.test


def group_labels(kind: str, n_groups: int, n_columns: int) -> np.ndarray:
    return groups(kind, n_groups, n_columns).labels


def answers(n_classes: int, n_questions: int, separation: float, emission: Any) -> Rows:
    """Answers of classes of respondents, 100 to be fitted for each class and as many held out.

    A list as ``emission`` has questions of several kinds. Some cells are missing.
    """
    X, _, _ = make_mixture(
        200 * n_classes,
        n_questions,
        n_components=n_classes,
        emission=emission,
        n_categories=4,
        separation=separation,
        missing=0.05,
        random_state=n_classes,
    )
    if not isinstance(emission, list):
        X = np.where(np.isnan(X), -1, X).astype(np.int64)
    return held_out(X, 100 * n_classes)


def chains(kind: str, n_states: int) -> tuple[Sequences, Sequences]:
    """Sequences of two columns, around means that overlap a little.

    Parameters
    ----------
    kind : {"sticky", "left to right"}
        ``"sticky"``: a chain stays in a state for five frames or a little longer. ``"left to
        right"``: it begins in the first state, goes to the next one after four frames on average,
        and stays in the last one.
    n_states : int
    """
    rng = np.random.default_rng([len(kind), n_states])
    start, chain = _sticky(n_states, rng)
    if kind == "left to right":
        chain = 0.75 * np.eye(n_states) + 0.25 * np.eye(n_states, k=1)
        chain[-1, -1], start = 1.0, np.eye(n_states)[0]
    means = np.sqrt(2 * n_states) * rng.standard_normal((n_states, 2))
    states = _states(start, chain, rng)
    return _first_held_out([means[s] + rng.standard_normal((len(s), 2)) for s in states])


def symbols(n_states: int) -> tuple[Sequences, Sequences]:
    """Sequences of twice as many symbols as there are states, each of which has a few symbols."""
    rng = np.random.default_rng([0, n_states])
    states = _states(*_sticky(n_states, rng), rng)
    table = rng.dirichlet(np.full(2 * n_states, 0.2), n_states)
    return _first_held_out(
        [np.array([[rng.choice(2 * n_states, p=table[state])] for state in s]) for s in states]
    )


def _sticky(n_states: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Start and transition probabilities of a chain that stays in a state for a while."""
    others = rng.dirichlet(np.full(n_states, 0.5), n_states)
    return np.full(n_states, 1.0 / n_states), 0.8 * np.eye(n_states) + 0.2 * others


def _states(start: np.ndarray, chain: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """The states of 60 sequences of 40 frames."""
    found = []
    for _ in range(60):
        states = [rng.choice(len(start), p=start)]
        while len(states) < 40:
            states.append(rng.choice(len(start), p=chain[states[-1]]))
        found.append(np.array(states))
    return found


def _first_held_out(each: list[np.ndarray]) -> tuple[Sequences, Sequences]:
    """A third of drawn sequences is held out."""
    n_test = len(each) // 3
    return Sequences.of(each[n_test:]), Sequences.of(each[:n_test])


def parts() -> Rows:
    """Sums of the eight parts of 4 × 4 pixels of a paper, with much noise."""
    rng = np.random.default_rng(0)
    active = rng.random((1000, len(_PARTS))) < _ACTIVE
    noise = _NOISE * rng.standard_normal((1000, _PARTS.shape[1]))
    return held_out(_AMPLITUDE * active @ _PARTS + noise, 500)


def squares() -> Rows:
    """Sums of eight parts of four pixels each, of which neighbours share one or two pixels."""
    rng = np.random.default_rng(1)
    corners = [(0, 0), (0, 1), (0, 2), (1, 1), (2, 0), (2, 1), (2, 2), (1, 2)]
    pictures = np.zeros((8, 4, 4))
    for picture, (row, column) in zip(pictures, corners, strict=True):
        picture[row : row + 2, column : column + 2] = _AMPLITUDE
    active = rng.random((800, 8)) < _ACTIVE
    noise = _NOISE * rng.standard_normal((800, 16))
    return held_out(active @ pictures.reshape(8, 16) + noise, 400)


def pictures(n_components: int, n_columns: int) -> Rows:
    """Sums of drawn pictures."""
    X, *_ = make_factorial_mixture(
        800, n_columns, n_components=n_components, random_state=n_components
    )
    return held_out(X, 400)


def counts(n_rows: int, n_columns: int, n_components: int) -> Rows:
    """Counts of a mean of 2 from components of known number."""
    X, _ = drawn_counts(2 * n_rows, n_columns, n_components, 2.0, 0)
    return held_out(X, n_rows)


def factors(sparse_loadings: bool) -> Rows:
    """600 rows of 8 factors, a fifth of which are on, with sparse or dense loadings of 50 columns.

    Every factor has the variance 1, and the noise of every column too.
    """
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((8, 50))
    if sparse_loadings:
        loadings *= rng.random(loadings.shape) < 0.2
    factors = rng.standard_normal((1200, 8))
    factors *= (rng.random(factors.shape) < 0.2) / np.sqrt(0.2)
    return held_out(factors @ loadings + rng.standard_normal((1200, 50)), 600)
