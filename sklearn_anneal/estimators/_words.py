"""Lists of the words that are the largest of topics, of parts of counts, and of groups of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .._stack import warn
from ..metrics import top_words
from ._validation import read_array

if TYPE_CHECKING:
    from ._base import BaseAnnealed


def names_of_words(
    estimator: BaseAnnealed, feature_names: ArrayLike | None, n_features: int
) -> np.ndarray:
    """The names of the columns of X: those given, those of the fitted frame, or numbers."""
    if feature_names is None:
        feature_names = getattr(estimator, "feature_names_in_", np.arange(n_features))
    names = read_array(feature_names, "feature_names")
    if names.shape != (n_features,):
        raise ValueError(
            f"feature_names should have one name for each of the {n_features} words of the model, "
            f"but got an array of shape {names.shape}. The get_feature_names_out() of the "
            "vectorizer that counted the words has them."
        )
    return names


def listed_words(
    estimator: BaseAnnealed,
    weights: np.ndarray,
    floors: Any,
    feature_names: ArrayLike | None,
    n: Any,
    unused: str,
) -> list[np.ndarray]:
    """The names of at most n words with the largest weights in each row of ``weights``.

    ``floors`` are those of :func:`sklearn_anneal.metrics.top_words`. A warning says how many rows
    have no words at all; ``unused`` is what they are, such as "topics have no tokens".
    """
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
        raise ValueError(f"n must be a number of words, 1 or more, got {n!r}.")
    n_features = weights.shape[1]
    names = names_of_words(estimator, feature_names, n_features)
    words = [names[row] for row in top_words(weights, min(int(n), n_features), floors)]
    empty = sum(len(row) == 0 for row in words)
    if empty:
        warn(
            f"{empty} of {len(words)} {unused}, so that their lists of words are empty. Fewer "
            "n_components leave fewer of them without use.",
        )
    return words
