"""Plain inference to the first optimum, which moves then try to leave."""

from __future__ import annotations

from ._base import Annealing


class Reheating(Annealing):
    """Plain inference to the first optimum, which moves then try to leave.

    The method has no schedule of its own. It adds a search to plain inference, whose length is the
    parameter ``effort`` of the estimator. The moves of the search are reheats, which are short
    phases of stochastic annealing [1]_ from the best optimum so far; and, in mixtures, hidden
    Markov models and factorial mixtures, swaps of components [2]_ and starts of other kinds. Plain
    inference follows each move, and its result is kept only if the lower bound is higher. Moves can
    also follow all other methods that end with plain inference. A fit in minibatches makes none
    unless ``effort`` is a number, and a stream makes none, but for the fit with which one of a
    mixture or hidden Markov model may begin; without moves the method is plain inference.

    See Also
    --------
    NoAnnealing : Plain inference, which ends at its first optimum.

    References
    ----------
    .. [1] Gultekin, Zhang, Paisley (2015). Stochastic annealing for variational inference.
       arXiv preprint.
    .. [2] Zhao, Hautamäki, Kärkkäinen, Fränti (2012). Random swap EM algorithm for Gaussian mixture
       models. Pattern Recognition Letters 33.

    Examples
    --------
    >>> from sklearn_anneal.annealing import Reheating
    >>> Reheating()
    Reheating()
    """

    moves_absent_alike = True

    def __init__(self):
        pass

    def schedule_length(self) -> int:
        return 0
