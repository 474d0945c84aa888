"""Predictions of a fitted factorisation of ratings."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_array, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from ..data.units import Ratings
from ..families import Gaussian, Natural, get_structure
from ..models._rating_draws import drawn_ratings
from ..models._rating_hierarchy import coefficients
from ..models._rating_scales import log_densities
from ..models.matrix_factorization import MatrixFactorization
from ..parallel.thread_limits import one_thread
from ._attributes import read_only
from ._base import BaseAnnealed
from ._draws import check_rounds, stacked, wants_draws
from ._interface import has_unit_temperatures
from ._part_predictions import NothingToScore, by_parts
from ._ratings import (
    Pairs,
    RatingData,
    halves,
    read_ids,
    read_pairs,
    some_ratings,
)
from ._recommendations import asked_users, best_items
from ._tables import in_frames
from ._validation import check_n_samples, explains, finite, refuse_masked

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..annealing import Context


_PACKED = get_structure("packed", ("packed",), "structure")
# This many pairs are predicted at a time, so that memory does not grow with the number of pairs.
_PAIRS = 8192
_OVERFLOW = (
    "The squares of predicted ratings overflow: the ratings, or the factors, are too large. "
    "Rescale the ratings before fitting and predicting."
)


def of_matrix(estimator: BaseAnnealed) -> bool:
    """Whether the estimator takes its ratings as a matrix."""
    return bool(estimator.input == "matrix")


def of_pairs(estimator: BaseAnnealed) -> bool:
    """Whether the estimator takes its ratings as pairs of ids."""
    return bool(estimator.input == "pairs")


def exact(ctx: Context) -> MatrixFactorization:
    """Copy the model with tables of float64, even if it was trained in float32."""
    model = copy(ctx.model)
    model.dtype = np.dtype(np.float64)
    return model


def _rows(table: np.ndarray, numbers: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Return rows of a table, and the prior's mean for those that it has not."""
    known = (numbers >= 0) & (numbers < len(table))
    found = np.empty((len(numbers), *table.shape[1:]), dtype=table.dtype)
    found[~known] = otherwise
    found[known] = table[numbers[known]]
    return found


def _numbered(numbers: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return those of 0, …, n − 1 that occur, and the position of each number among them.

    The position of a number that is not one of them is that after the last.
    """
    known = (numbers >= 0) & (numbers < n)
    occurs = np.zeros(n + 1, dtype=bool)
    occurs[numbers[known]] = True
    positions = np.cumsum(occurs) - 1
    positions[n] = positions[n - 1] + 1
    return np.flatnonzero(occurs[:n]), positions[np.where(known, numbers, n)]


class RatingPredictions(BaseAnnealed[RatingData, Ratings, MatrixFactorization]):
    """Methods of :class:`AnnealedPMF` that predict, for users of the training data and new ones."""

    @available_if(of_matrix)
    @explains("Prediction")
    def inverse_transform(self, X, user_biases=None):
        """Mean ratings of all items, given the factors of users.

        Parameters
        ----------
        X : array-like of shape (n_users, n_components)
            Factors of the users, for example from :meth:`transform`.
        user_biases : array-like of shape (n_users,), default=None
            Biases of the users; None: the mean of their prior, which is 0 unless the model is
            hierarchical.

        Returns
        -------
        ratings : ndarray of shape (n_users, n_items)
            μ + b_i + c_j + u_iᵀ v_j, clipped to the range of ``clip``.
        """
        model = self._context().model
        refuse_masked(X, "X")
        refuse_masked(user_biases, "user_biases")
        X = check_array(X, dtype=[np.float64, np.float32])
        if X.shape[1] != model.n_components:
            raise ValueError(
                f"X has {X.shape[1]} columns, but there are n_components={model.n_components} "
                "factors."
            )
        ratings = X @ self.components_.astype(X.dtype) + X.dtype.type(self.intercept_)
        if model.biases:
            ratings += self.item_biases_.astype(X.dtype)
        if user_biases is None and model.biases:
            ratings += X.dtype.type(model.prior_of_rows("users")[0][-1])
        if user_biases is not None:
            if not model.biases:
                raise ValueError("user_biases is given, but the model has no biases.")
            user_biases = check_array(user_biases, ensure_2d=False, input_name="user_biases")
            if user_biases.shape != (len(X),):
                raise ValueError(
                    f"user_biases has the shape {user_biases.shape}, but X has {len(X)} rows."
                )
            ratings += user_biases.astype(X.dtype)[:, None]
        return self._clipped(finite(ratings, _OVERFLOW))

    @available_if(of_matrix)
    @explains("Prediction")
    def sample(self, n_samples=1):
        """Draw ratings of all items by new users, with the posterior means of the items.

        Parameters
        ----------
        n_samples : int, default=1
            Number of users.

        Returns
        -------
        X : ndarray of shape (n_samples, n_items)
            Ratings with their noise; they are not clipped.
        user_factors : ndarray of shape (n_samples, n_components)
            The factors of these users, drawn from their prior like their biases.
        """
        model = self._context().model
        check_n_samples(n_samples)
        rng = check_random_state(self.random_state)
        d, (mean, covariance) = model.n_components, model.prior_of_rows("users")
        white = [rng.standard_normal((n_samples, d))]
        if model.biases:
            white.append(rng.standard_normal((n_samples, 1)))
        wider = np.ones((n_samples, 1))
        if model.user_scales:
            wider = rng.gamma(model.shape, 1.0 / model.shape, (n_samples, 1)) ** -0.5
        users = mean + wider * np.concatenate(white, axis=1) @ np.linalg.cholesky(covariance).T
        factors = users[:, :d].copy()
        ratings = factors @ self.components_ + self.intercept_
        if model.biases:
            ratings += self.item_biases_ + users[:, d:]
        noise = wider * np.sqrt(self.noise_variance_) * rng.standard_normal(ratings.shape)
        return ratings + noise, factors

    @available_if(of_matrix)
    @by_parts
    @explains("Prediction")
    def predict_rows(self, X, return_std=False):
        """Predicted ratings of all items by the users of X, new ones or not.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items)
            Ratings by these users.
        return_std : bool, default=False
            Whether to return standard deviations too.

        Returns
        -------
        mean : ndarray of shape (n_users, n_items)
            Posterior means, clipped to the range of ``clip``.
        std : ndarray of shape (n_users, n_items)
            Standard deviations of the predictive distribution of a rating, its noise included.
            Returned only if ``return_std`` is true.
        """
        ctx, data = self._read(X)
        mean, std = self._mean_and_deviations(ctx, data, return_std)
        return (self._clipped(mean), std) if return_std else self._clipped(mean)

    @available_if(of_matrix)
    @in_frames
    @by_parts
    @explains("Prediction")
    def impute(self, X, return_std=False, *, n_draws=None, n_rounds=0, random_state=None):
        """Fill the cells of X that are not rated with predicted ratings.

        With ``n_draws`` they are filled with draws instead, in several tables: statistics of each,
        pooled by Rubin's rules, have standard errors that know what is missing. Cells are taken to
        be missing at random: whether a user has rated an item may depend on the other ratings, but
        not on how this one would be.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items), or data in parts
            Ratings by these users, new ones or not.
        return_std : bool, default=False
            Whether to return standard deviations too. Only for means.
        n_draws : int, default=None
            The number of tables to draw (multiple imputation). None: one table of means.
        n_rounds : int, default=0
            Only with ``n_draws``, and for the ratings of the fit: rounds in which the items are
            drawn again from their posterior given the users and the ratings, and then the users
            (Gibbs sampling). 0 is for other users.
        random_state : int, RandomState instance or None, default=None
            Determines the draws. None: the ``random_state`` of the estimator.

        Returns
        -------
        X_imputed : ndarray or frame of shape (n_users, n_items)
            The ratings, and the posterior mean of each cell that is not rated, clipped to the range
            of ``clip``; dense also where X is sparse. The dtype is that of X if X has
            floating-point numbers, else float64. After ``set_output(transform="pandas")``, or
            "polars", it is a frame with the columns, the index and the dtypes of X, where they can
            hold the means.
            With ``n_draws``, it is an ndarray of shape (n_draws, n_users, n_items), or a list of
            frames. For each table, the items are drawn from their Gaussians once; given
            them, users are drawn from their posterior given their ratings, and then the other
            ratings with their noise, clipped likewise.
        std : ndarray or frame of shape (n_users, n_items)
            Standard deviations of the predictive distribution of a rating, its noise included; 0
            for ratings of X. Only returned if ``return_std`` is True.
        """
        draws = wants_draws(n_draws, n_rounds, return_std)
        ctx, data = self._read(X)
        rated = np.repeat(np.arange(len(data.users)), np.diff(data.indptr)), data.columns

        def filled(ratings: np.ndarray) -> np.ndarray:
            found = self._clipped(finite(ratings, _OVERFLOW)).astype(data.values.dtype)
            found[rated] = data.values
            return found[:, : data.shape[1]]

        if draws:
            check_rounds(ctx.summary.weight, len(data.users), n_rounds)
            units, model = self._make_units(data, None), exact(ctx)

            def table(rng: np.random.Generator) -> np.ndarray:
                return filled(drawn_ratings(model, ctx.q, units, n_rounds, rng))

            return stacked(self, table, n_draws, random_state)
        mean, std = self._mean_and_deviations(ctx, data, return_std)
        if not return_std:
            return filled(mean)
        std[rated] = 0.0
        return filled(mean), std[:, : data.shape[1]]

    @available_if(of_matrix)
    @by_parts
    @explains("Prediction")
    def recommend(self, X, n=10, exclude_seen=True, return_scores=False):
        """The items that each user of X would rate best.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items), or data in parts
            Ratings by these users.
        n : int, default=10
            Number of items for each user.
        exclude_seen : bool, default=True
            Whether to leave out the items that the user has rated.
        return_scores : bool, default=False
            Whether to return the predicted ratings of these items too.

        Returns
        -------
        items : ndarray of int, shape (n_users, n)
            Columns of X in the order of predicted means, the best first; among equal means the
            lower column comes first. If a user has fewer than n unseen items, the rest is −1.
        scores : ndarray of shape (n_users, n)
            Their posterior means, clipped to the range of ``clip``, and NaN where ``items`` is −1.
            Returned only if ``return_scores`` is true.

        See Also
        --------
        recommend_for : The same for users of the training data, by their ids.
        """
        ctx, data = self._read(X)
        seen = (data.indptr, data.columns) if exclude_seen else None
        found = self._best_items(self._rows(ctx, data).mean, n, seen)
        return found if return_scores else found[0]

    @explains("Prediction")
    def recommend_for(self, users, n=10, exclude=None, return_scores=False):
        """The items that users of the training data, or of the last batch, would rate best.

        Parameters
        ----------
        users : array-like of int, shape (n_users,)
            Ids of the users. A user that was not seen in training, and −1, has its prior. With
            ``input="matrix"`` the ids are rows of the X that ``fit`` or the last call of
            ``partial_fit`` was given.
        n : int, default=10
            Number of items for each user.
        exclude : sparse matrix or boolean array of shape (n_users, n_items), or list of \
                array-like or sets, default=None
            Items that are not recommended, for example those that a user has seen: the stored (or
            true) entries of row i, or the ids in ``exclude[i]``, belong to ``users[i]``. The fitted
            estimator does not keep the ratings of the training data.
        return_scores : bool, default=False
            Whether to return the predicted ratings of these items too.

        Returns
        -------
        items : ndarray of int, shape (n_users, n)
            Ids of items in the order of predicted means, the best first; among equal means the
            lower id comes first. If fewer than n items are left for a user, the rest is −1.
        scores : ndarray of shape (n_users, n)
            Their posterior means, clipped to the range of ``clip``, and NaN where ``items`` is −1.
            Returned only if ``return_scores`` is true.

        Raises
        ------
        ValueError
            If the estimator was fitted to data in parts, with which the factors of users stay, so
            that the fit needs no memory that grows with the number of users. ``recommend(X)`` takes
            the same parts.

        Examples
        --------
        >>> from sklearn_anneal import AnnealedPMF
        >>> X = [[0, 0], [0, 1], [1, 0], [1, 2], [2, 1], [2, 2]]
        >>> model = AnnealedPMF(1, input="pairs", random_state=0).fit(X, [5, 1, 5, 3, 1, 3])
        >>> model.recommend_for([0, 1], n=1, exclude=[[0, 1], [0, 2]])
        array([[2],
               [1]])
        """
        self._context()
        users, seen = asked_users(users, exclude, self.n_items_)
        self._refuse_unkept(users)
        prior, _ = self._context().model.prior_of_rows("users")
        means = _rows(self._means_of_users(), users, prior)
        found = self._best_items(means, n, seen)
        return found if return_scores else found[0]

    def _refuse_unkept(self, users: np.ndarray) -> None:
        """Refuse users after a fit to data in parts, with which their factors have stayed."""
        if len(self._user_statistics["natural_mean"]) == 0 and (users >= 0).any():
            way = "Call recommend or transform with their ratings, which can be in parts"
            if of_pairs(self):
                way = "Fit in memory, or give input='matrix', with which recommend takes ratings"
            raise ValueError(
                "The factors of the users of data in parts stay with the parts, so that users are "
                f"not known by their ids. {way}; −1 is a user of whom nothing is known."
            )

    def _best_items(
        self, means: np.ndarray, n: Any, seen: tuple[np.ndarray, np.ndarray] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best items of each user and their mean ratings.

        ``means`` are those of the users' factors and biases, of shape (n_users, D). ``seen`` has
        the items that are left out, as the ``indptr`` and the ``indices`` of a sparse matrix in CSR
        format.
        """

        def ratings_of(block: slice) -> np.ndarray:
            return finite(self._means_of_all_items(means[block]), _OVERFLOW)

        best, scores = best_items(ratings_of, (len(means), self.n_items_), n, seen)
        return best, self._clipped(scores)

    @available_if(of_pairs)
    @by_parts
    def predict(self, X, return_std=False):
        """Predicted ratings of pairs.

        Parameters
        ----------
        X : array-like of shape (n_ratings, 2), or data in parts
            Ids (user, item). An id that was not seen in training, and −1, is predicted from the
            prior.
        return_std : bool, default=False
            Whether to return standard deviations too.

        Returns
        -------
        mean : ndarray of shape (n_ratings,)
            Posterior means, clipped to the range of ``clip``.
        std : ndarray of shape (n_ratings,)
            Standard deviations of the predictive distribution of a rating, its noise included.
            Returned only if ``return_std`` is true.
        """
        check_is_fitted(self)
        refuse_masked(X, "X")
        X = validate_data(self, X, reset=False, dtype=None)
        users, items = read_ids(X, "The ids of users and items", unseen=True).T
        return self.predict_ratings(users, items, return_std)

    @explains("Prediction")
    def predict_ratings(self, users, items, return_std=False):
        """Predicted ratings of items by users of the training data, or of the last batch.

        Parameters
        ----------
        users, items : array-like of int, shape (n_ratings,)
            Ids of the users and items. An id that was not seen in training, and −1, is predicted
            from the prior. With ``input="matrix"`` the ids of items are columns, and those of
            users are rows of the X that ``fit`` or the last call of ``partial_fit`` was given.
        return_std : bool, default=False
            Whether to return standard deviations too.

        Returns
        -------
        mean : ndarray of shape (n_ratings,)
            Posterior means, clipped to the range of ``clip``.
        std : ndarray of shape (n_ratings,)
            Standard deviations of the predictive distribution of a rating, its noise included.
            Returned only if ``return_std`` is true.
        """
        check_is_fitted(self)
        users, items = read_ids(users, "users", unseen=True), read_ids(items, "items", unseen=True)
        if users.shape != items.shape or users.ndim != 1:
            raise ValueError(
                f"users and items are ids of the same ratings, but have shapes {users.shape} and "
                f"{items.shape}."
            )
        self._refuse_unkept(users)
        mean = self._clipped(self._means_of_pairs(users, items))
        return (mean, self._predictions(users, items)[1]) if return_std else mean

    @explains("Prediction")
    def score(self, X, y=None, sample_weight=None):
        """Predictive log density per rating.

        For pairs, it is the log density of the ratings ``y``. For a matrix, every other rating of
        each user is predicted from the rest of the user's ratings; the order of the items in which
        the ratings alternate is always the same.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items), array-like of shape \
                (n_ratings, 2), or data in parts
            Ratings as a matrix, or the ids (user, item) of each.
        y : array-like of shape (n_ratings,), default=None
            The ratings of pairs; ignored for a matrix. With data in parts, one array for each part.
        sample_weight : array-like of shape (n_users,) or (n_ratings,), default=None
            Weights of the rows of X. With data in parts, one array for each part.

        Returns
        -------
        log_density : float
            In nats per rating; higher is better.
        """
        return self._score(X, y, sample_weight)

    def _scored(self, X: Any, y: Any, sample_weight: Any) -> tuple[float, float]:
        ctx = self._context()
        if of_pairs(self):
            # Ids that were not seen in training are no errors here.
            sizes: dict[str, Any] = {"n_users": None, "n_items": None}
            pairs = Pairs(X, y, sample_weight)
            data = read_pairs(self, pairs, reset=False, dense=False, unseen=True, **sizes)
            self._check_size(data, reset=False)
            weights = self._check_weights(sample_weight, data)
            users = np.repeat(data.users, np.diff(data.indptr))
            self._refuse_unkept(users)
            densities = log_densities(data.values, *self._predictions(users, data.columns))
            if weights is not None:
                weights = weights[data.order]
            total = len(densities) if weights is None else weights.sum()
            return float(np.average(finite(densities, _OVERFLOW), weights=weights)), float(total)
        ctx, data = self._read(X)
        data, weights = self._present(data, self._check_weights(sample_weight, data))
        known, predicted = halves(data)
        if not predicted.any():
            kind = "rating" if weights is None else "rating of positive weight"
            raise NothingToScore(f"X has no {kind} to predict.")
        natural = self._solved(ctx, self._make_units(some_ratings(data, known), None))
        rows = np.repeat(np.arange(len(data.users)), np.diff(data.indptr))[predicted]
        found = self._predictions(rows, data.columns[predicted], natural)
        densities = log_densities(data.values[predicted], *found)
        each = np.ones(len(rows)) if weights is None else weights[rows]
        if not each.any():
            raise NothingToScore("X has no rating of positive weight to predict.")
        mean = np.average(finite(densities, _OVERFLOW), weights=each)
        return float(mean), float(each.sum())

    @available_if(has_unit_temperatures)
    @by_parts
    @explains("Prediction")
    def inverse_temperatures(self, X, y=None):
        """Expected inverse temperature of each user, low for outliers.

        It is the factor by which the fitted model weighs the ratings of a user. It is available
        only with ``annealing="local_tempering"``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items), array-like of shape \
                (n_ratings, 2), or data in parts
            Ratings as a matrix, or the ids (user, item) of each.
        y : array-like of shape (n_ratings,), default=None
            The ratings of pairs; ignored for a matrix.

        Returns
        -------
        inverse_temperatures : ndarray of shape (n_users,)
            E[1/T], in (0, 1]. For pairs, there is one entry for each id from 0 to the largest.
        """
        ctx, data = self._read(X, y)
        found = self.annealing_.inverse_temperatures(ctx, self._make_units(data, None))
        return finite(found, _OVERFLOW)

    @property
    def components_cov_(self):
        """Posterior covariances of the factors of items, (n_items, n_components, n_components)."""
        ctx = self._context()
        natural = {key: ctx.q[f"items_{key}"] for key in Gaussian.keys}
        d = ctx.model.n_components
        return read_only(self._covariances(natural)[:, :d, :d])

    @property
    def user_factors_cov_(self):
        """Posterior covariances of the factors of users, (n_users, n_components, n_components)."""
        d = self._context().model.n_components
        found = self._covariances(self._natural_of_users())[:, :d, :d]
        return read_only(found * self._widths()[:, None, None])

    @property
    def item_biases_var_(self):
        """Posterior variances of the biases of items, of shape (n_items,)."""
        q = self._context().q
        return self._bias_variances({key: q[f"items_{key}"] for key in Gaussian.keys})

    @property
    def user_biases_var_(self):
        """Posterior variances of the biases of users, of shape (n_users,)."""
        found = self._bias_variances(self._natural_of_users())
        return read_only(found * self._widths())

    def _natural_of_users(self) -> Natural:
        model = self._context().model
        return model.solution(model.per_noise(self._user_statistics))

    @explains("Prediction")
    def _covariances(self, natural: Natural) -> np.ndarray:
        family = Gaussian("packed")
        size = natural["natural_mean"].shape[1]
        return _PACKED.to_full(family.to_standard(natural)["covariance"], size)

    def _bias_variances(self, natural: Natural) -> np.ndarray:
        if not self._context().model.biases:
            raise AttributeError("The model has no biases: it was fitted with biases=False.")
        return read_only(self._covariances(natural)[:, -1, -1])

    def _read(self, X: ArrayLike, y: ArrayLike | None = None) -> tuple[Context, RatingData]:
        ctx = self._context()
        return ctx, self._validate_data(self._data(X, y), reset=False)

    def _solved(self, ctx: Context, units: Ratings) -> Natural:
        """Sums over the ratings of users given the fitted items, without the factor 1/σ²."""
        with one_thread():
            # Few users have rated few of the items, and need the moments of these alone.
            of_items, units = units.with_columns_in_use()
            across = ctx.model.moments_of(
                ctx.q["items_precision"][of_items], ctx.q["items_natural_mean"][of_items]
            )
            found: Natural = ctx.model.sums_of_users(units, across)
            return found

    def _rows(self, ctx: Context, data: RatingData) -> Any:
        """Solve for the users who gave these ratings, and return the moments of their factors."""
        return self._rows_and_scales(ctx, data)[0]

    def _rows_and_scales(self, ctx: Context, data: RatingData) -> tuple[Any, Any]:
        """The same, and the distributions of users' precisions τ, or None without scales."""
        found, scales = exact(ctx).users_of(self._solved(ctx, self._make_units(data, None)))
        finite(found.squares, _OVERFLOW)
        return found, scales

    def _widths(self) -> np.ndarray:
        """E[1/τ] of the fitted users; ones unless users have scales."""
        _, scales = exact(self._context()).users_of(self._user_statistics)
        return np.ones(self.n_users_) if scales is None else scales.inverse_mean

    def _mean_and_deviations(
        self, ctx: Context, data: RatingData, with_std: bool
    ) -> tuple[np.ndarray, Any]:
        """Means of all ratings by the users who gave these, and their deviations if wanted."""
        users, scales = self._rows_and_scales(ctx, data)
        mean = finite(self._means_of_all_items(users.mean), _OVERFLOW)
        if not with_std:
            return mean, None
        of_users = coefficients(ctx.model.n_components, ctx.model.biases, users.table)
        second = of_users @ self._moments_of_items(ctx).table.T
        widths = 1.0 if scales is None else scales.inverse_mean[:, None]
        return mean, self._deviations(ctx, mean, second, widths)

    def _moments_of_items(self, ctx: Context, items: Any = slice(None)) -> Any:
        """Moments of the items with these numbers, by default of all."""
        q = ctx.q
        return exact(ctx).moments_of(q["items_precision"][items], q["items_natural_mean"][items])

    def _means_of_users(self) -> np.ndarray:
        """Means of the factors and biases of users of the training data, (n_users, D)."""
        if not self._context().model.biases:
            return self.user_factors_
        return np.column_stack([self.user_factors_, self.user_biases_])

    def _means_of_all_items(self, means: np.ndarray) -> np.ndarray:
        """Mean ratings of all items, given the means of users, of shape (n_users, n_items)."""
        d = len(self.components_)
        ratings = means[:, :d] @ self.components_
        ratings += self.intercept_
        if self._context().model.biases:
            ratings += self.item_biases_
            ratings += means[:, d:]
        return ratings

    def _means_of_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Mean ratings of pairs of fitted users and items, which need no covariances."""
        model = self._context().model
        biases, d = model.biases, model.n_components
        # Users and items without ratings have the mean of their prior.
        of_user, of_item = (model.prior_of_rows(side)[0] for side in ("users", "items"))
        mean = np.empty(len(users))
        for start in range(0, len(users), _PAIRS):
            some = slice(start, start + _PAIRS)
            i, j = users[some], items[some]
            own = _rows(self.user_factors_, i, of_user[:d])
            other = _rows(self.components_.T, j, of_item[:d])
            mean[some] = np.einsum("nk,nk->n", own, other) + self.intercept_
            if biases:
                mean[some] += _rows(self.user_biases_, i, of_user[d])
                mean[some] += _rows(self.item_biases_, j, of_item[d])
        return finite(mean, _OVERFLOW)

    def _predictions(
        self, users: np.ndarray, items: np.ndarray, statistics: Natural | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means and standard deviations of the ratings of pairs, and the shapes of users' scales.

        ``statistics`` are sums over the ratings of users; None: those of the fitted users.
        """
        ctx = self._context()
        if statistics is None:
            statistics = self._user_statistics
        model = exact(ctx)
        # Moments are computed of those users and items alone that the pairs have.
        of_users, i = _numbered(users, len(statistics["natural_mean"]))
        of_items, j = _numbered(items, model.n_items)
        # One more user and one more item, without ratings, stand for ids that were never seen.
        statistics = {
            key: np.concatenate([value[of_users], np.zeros((1, value.shape[1]))])
            for key, value in statistics.items()
        }
        own, scales = model.users_of(statistics)
        tables, means = coefficients(model.n_components, model.biases, own.table), own.mean
        prior = model.row_prior("items")
        nothing = model.moments_of(prior["precision"][None], prior["natural_mean"][None])
        across = self._moments_of_items(ctx, of_items)
        other = np.concatenate([across.table, nothing.table])
        other_means = np.concatenate([across.mean, nothing.mean])
        mean, second = np.empty(len(users)), np.empty(len(users))
        for start in range(0, len(users), _PAIRS):
            some = slice(start, start + _PAIRS)
            second[some] = np.einsum("nk,nk->n", tables[i[some]], other[j[some]])
            mean[some] = model.mean_of_pairs(means[i[some]], other_means[j[some]])
        finite(second, _OVERFLOW)
        if scales is None:
            return mean, self._deviations(ctx, mean, second, 1.0), np.full(len(mean), np.inf)
        return mean, self._deviations(ctx, mean, second, scales.inverse_mean[i]), scales.shape[i]

    def _deviations(
        self, ctx: Context, mean: np.ndarray, second: np.ndarray, widths: float | np.ndarray
    ) -> np.ndarray:
        f, noise = mean - ctx.model.intercept, widths * ctx.model.noise_variance
        return np.sqrt(noise + np.maximum(second - f**2, 0.0))

    def _clipped(self, ratings: np.ndarray) -> np.ndarray:
        if isinstance(self.clip, bool | np.bool_):
            return np.clip(ratings, *self.rating_range_) if self.clip else ratings
        return np.clip(ratings, *self.clip)
