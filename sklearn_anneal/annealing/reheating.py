"""Plain inference to the first optimum, which reheats then try to leave."""

from __future__ import annotations

from ._base import Annealing


class Reheating(Annealing):
    """Plain inference to the first optimum, which short annealed phases then try to leave.

    The method has no schedule of its own. What it adds to plain inference are reheats, whose number
    is the parameter ``n_reheats`` of the estimator: each is a short phase of stochastic annealing
    [1]_ from the best optimum so far, with plain inference after it, and is kept only if the lower
    bound is higher. All other methods that end with plain inference can be reheated too. A fit in
    minibatches has no reheats unless ``n_reheats`` is a number, and neither has a stream; without
    reheats the method is plain inference.

    See Also
    --------
    NoAnnealing : Plain inference, which ends at its first optimum.

    References
    ----------
    .. [1] Gultekin, Zhang, Paisley (2015). Stochastic annealing for variational inference.
       arXiv preprint.

    Examples
    --------
    >>> from sklearn_anneal.annealing import Reheating
    >>> Reheating()
    Reheating()
    """

    def __init__(self):
        pass

    def schedule_length(self) -> int:
        return 0
