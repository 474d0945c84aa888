"""Plain variational inference."""

from __future__ import annotations

from ._base import Annealing


class NoAnnealing(Annealing):
    """Plain variational inference: coordinate ascent, or stochastic VI in minibatches.

    With this method the estimators run the same algorithm as the scikit-learn classes that they
    can replace. It ends in the local optimum next to its start.

    See Also
    --------
    Reheating : Plain inference, and short annealed phases from its optimum.

    Examples
    --------
    >>> from sklearn_anneal.annealing import NoAnnealing
    >>> NoAnnealing()
    NoAnnealing()
    """

    follows_gradients = True
    moves_absent_alike = True

    def __init__(self):
        pass
