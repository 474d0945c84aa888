"""Another order of the components of a fitted estimator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..annealing import Context
from ..data.units import U
from ..models._componentwise import Componentwise
from ._interface import D, Interface, M
from ._state import Inference
from ._validation import read_array


class Reorders(Interface[D, U, M]):
    """Mixin of estimators whose components can exchange their numbers."""

    def reorder(self, order):
        """Change the order of the components, in all results at once.

        Attributes, predictions, samples and displays follow, and so do ``partial_fit``, warm starts
        and files. Predictions are the same but for the order of the components, and so is
        ``lower_bound_``. There are two exceptions. The activations of a row are updated one
        component after another in factorial mixtures, sparse factors and nets, so that a row with
        several optima can reach another one in another order. A stick-breaking prior of weights
        ("dirichlet_process") expects large components first: the posterior of the weights is then
        computed for the same assignments in the new order. This changes weights and predictions by
        the share of a few rows in all, and ``lower_bound_``, with the last of ``lower_bounds_``,
        becomes the bound of these assignments in the new order.

        Parameters
        ----------
        order : "weight" or array-like of int, shape (n_components,)
            The numbers of the components in their new order. ``np.argsort(means[:, 0])`` of an
            attribute with means, for example, sorts components by their first column. ``"weight"``:
            the components that explain most come first, as measured by their expected numbers of
            rows, frames, words or counts, or by the sums of their squared weights in factorisations
            of ratings and in nets.

        Returns
        -------
        self : estimator instance
            The fitted estimator.

        Raises
        ------
        ValueError
            If ``order`` does not have every number once, if components differ by priors or states
            that were given for each, or if a stream has not yet come to the end of its annealing.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn_anneal import AnnealedBayesianGaussianMixture
        >>> X = np.repeat([[1.0], [5.0], [9.0]], [20, 60, 40], axis=0)
        >>> X = X + np.random.default_rng(0).normal(size=(120, 1))
        >>> mixture = AnnealedBayesianGaussianMixture(3, random_state=0).fit(X)
        >>> mixture.reorder("weight").means_.round().ravel()
        array([5., 9., 1.])
        >>> mixture.reorder(np.argsort(mixture.means_[:, 0])).means_.round().ravel()
        array([1., 5., 9.])
        """
        check_is_fitted(self)
        kept = self._inference
        numbers = self._checked_order(order, kept.ctx)
        if (numbers == np.arange(len(numbers))).all():
            return self
        self._check_exchangeable(kept, numbers)
        ctx = self._context_in_order(kept, numbers)
        results, gain = self._fitted_attributes(ctx), ctx.model.gain_of_order(kept.ctx.q, ctx.q)
        self._inference = replace(kept, ctx=ctx)
        self.lower_bound_ += gain
        self.lower_bounds_ = np.append(self.lower_bounds_[:-1], self.lower_bounds_[-1:] + gain)
        self._describe(results)
        self._complete_reorder(numbers)
        return self

    def _context_in_order(self, kept: Inference, order: np.ndarray) -> Context:
        """A context like that of the fit, whose components have another order."""
        ctx, model = kept.context(), kept.ctx.model
        ctx.model, ctx.prior, ctx.q = model.reordered(ctx.q, ctx.prior, order)
        ctx.report = ctx.known = ctx.deviation = None
        if "optimizer" in ctx.state:
            # The moments of gradients belong to single parameters.
            optimizer = ctx.state["optimizer"]
            moments = {
                name: model.reordered(each, ctx.prior, order)[2]
                for name, each in optimizer["moments"].items()
            }
            ctx.state["optimizer"] = {**optimizer, "moments": moments}
        return ctx

    def _complete_reorder(self, order: np.ndarray) -> None:
        """Change the order in attributes that do not follow from the context."""

    def _weights_for_order(self, ctx: Context) -> np.ndarray:
        """Return the weights by which ``reorder("weight")`` sorts, of shape (n_components,)."""
        counts: np.ndarray = ctx.model.expected_counts(ctx.q, ctx.prior)
        return counts

    def _checked_order(self, order: object, ctx: Context) -> np.ndarray:
        if isinstance(order, str):
            if order != "weight":
                raise ValueError(
                    f"order={order!r} is not known: it is 'weight', or an array with the numbers "
                    "of all components."
                )
            return np.argsort(-self._weights_for_order(ctx), kind="stable")
        numbers, k = read_array(order, "order"), ctx.model.n_components
        whole = numbers.dtype.kind in "iu" and numbers.shape == (k,)
        if not (whole and np.array_equal(np.sort(numbers), np.arange(k))):
            raise ValueError(
                f"order should have each of the numbers from 0 to {k - 1} once, or be 'weight', "
                f"but got {order!r}."
            )
        return numbers.astype(np.intp)

    def _check_exchangeable(self, kept: Inference, order: np.ndarray) -> None:
        """Refuse an exchange of components whose numbers mean something."""
        model = kept.ctx.model
        if not isinstance(model, Componentwise):
            raise ValueError(
                f"The components of {type(self).__name__} do not exchange numbers: its model does "
                "not define reordered, as models that are Componentwise do."
            )
        if kept.is_annealing:
            raise ValueError(
                "The annealing of this stream has not ended, and refers to the components as they "
                "are. Reorder them when it has, after a tenth of total_samples."
            )
        if not model.exchangeable(kept.ctx.prior, order):
            raise ValueError(
                "The priors that were given differ between components that would exchange their "
                "numbers, so that the numbers mean something. Reorder the arrays of priors in the "
                "parameters, and fit again."
            )
