"""The interface of models to streams, whose batches come one after another and only once."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..families import Natural

# A stream is fitted to its first rows once there are so many for each component, and this share of
# those that represent others, which are five for each component and column of full covariances.
_ROWS_OF_FIT, _SHARE_OF_FIT = 25, 0.2
# The same where each fit to more data predicts better, so that the first one needs not be good: in
# rows, and in ratings, which also have to be so many where rows are users.
_ROWS_OF_GROWING_FIT, _RATINGS_OF_GROWING_FIT = 2, 200


class Streamed:
    """Mixin of models that learn otherwise from the first batches of a stream than from later ones.

    Attributes
    ----------
    learns_soon : bool
        Whether hyperparameters wait for few updates only. Variances of noise do, because little is
        found in the data while they are as large as those of the data.
    keeps_sample : bool
        Whether a stream that has become long keeps a random sample, to which it is fitted anew
        where other groups come. A fit to a sample of counts or ratings would lose more than it
        gains, because most words are rare, and most users and items have few ratings.
    adds_counts : bool
        Whether all that data add to natural parameters are expected counts, or sums of positive
        numbers.
    """

    learns_soon: ClassVar[bool] = False
    keeps_sample: ClassVar[bool] = True
    adds_counts: ClassVar[bool] = False

    def least_weight(self, summary: Any) -> float:
        """Return the weight from which on the batches of a stream represent data to come.

        Until then the parameters describe the data so far, as in a stream of unknown length.
        """
        return 0.0

    def least_weight_of_fit(self, summary: Any) -> float:
        """Return the weight of the first batches from which on a stream is fitted to them.

        Updates follow, at first with these batches. Fewer data lack groups that come later, which
        components that are sure of the first rows would leave to one of them.
        """
        return np.inf

    def rows_of_replays(self) -> int:
        """Return the number of random rows of a stream that are kept for further steps.

        It is 0 if its rows are seen once only, or if a stream is fitted to them.
        """
        return 0

    def shares_of_components(self, units: Any, q: Natural) -> np.ndarray:
        """Return the shares of the components in each row, or frame, by its density alone.

        The shape is (n_rows, n_components). They tell which components of two fits are the same.
        """
        raise NotImplementedError


def least_rows_of_fit(n_components: int, least_rows: float) -> float:
    """Return the number of first rows, or frames, to which a stream of components is fitted.

    ``least_rows`` represent others. A single component has one optimum, which updates find.
    """
    if n_components == 1:
        return np.inf
    return max(_SHARE_OF_FIT * least_rows, float(_ROWS_OF_FIT * n_components))


def least_rows_of_growing_fit(n_components: int) -> float:
    """Return the number of first rows to which a stream is fitted that keeps no sample."""
    return np.inf if n_components == 1 else float(_ROWS_OF_GROWING_FIT * n_components)


def least_weight_of_growing_fit(n_components: int, weight: float) -> float:
    """Return the weight of first users, or ratings, for the same, given the weight per rating."""
    # Ratings that are their own data points are more than enough rows.
    return n_components * max(_ROWS_OF_GROWING_FIT, _RATINGS_OF_GROWING_FIT * weight)
