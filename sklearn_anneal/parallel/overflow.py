"""Numbers that are not finite, on the way to a result."""

from __future__ import annotations

import numpy as np


def judged_by_results() -> np.errstate:
    """Return a context in which numpy does not warn of what is not finite, or nearly 0.

    Fits and predictions refuse results that are not finite, with a sentence that says what to do.
    Numpy's warnings would name a line of this package instead, and come although a density of
    exp(-inf) = 0 is right. Underflows are right as well, which ``np.seterr`` may turn into errors.
    Every thread and every process of a fit needs a context of its own.
    """
    return np.errstate(all="ignore")
