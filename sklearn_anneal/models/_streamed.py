"""The interface of models to streams, whose batches come one after another and only once."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np


class Streamed:
    """Mixin of models that learn otherwise from the first batches of a stream than from later ones.

    Attributes
    ----------
    learns_soon : bool
        Whether hyperparameters wait for few updates only. Variances of noise do, because little is
        found in the data while they are as large as those of the data.
    """

    learns_soon: ClassVar[bool] = False

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
