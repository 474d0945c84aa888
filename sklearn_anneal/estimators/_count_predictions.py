"""Predictions of factorisations of counts: activations, expected counts, and recommendations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn.utils import check_random_state

from ..data.units import DenseCounts, SparseCounts
from ..families import deviance, log_negative_binomial, log_poisson
from ..metrics import floors_of_used, split_documents
from ..models._count_activations import are_few
from ..models._count_allocations import positive_counts
from ..models._count_cells import drawn_cells, imputed
from ..models._draws import drawn_counts
from ..models.gamma_process_nmf import GammaProcessNMF
from ..parallel.workers import SEQUENTIAL
from ._attributes import read_only
from ._base import BaseAnnealed
from ._draws import check_rounds, stacked, wants_draws
from ._part_predictions import NothingToScore, by_parts
from ._recommendations import asked_users, best_items
from ._tables import in_frames
from ._validation import check_activations, check_n_samples, explains, finite
from ._words import listed_words

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..annealing import Context

# Entries of X that are compared with their expectations at a time.
_ENTRIES = 1 << 15
# Rates are products of matrices where at least this share of the cells is not zero.
_DENSE = 0.25
# Counts divided by rates that are at least as large as this do not overflow.
_SMALLEST_RATE = 1e-280
# In rows whose expected counts have a larger sum than this, cells of small rates are added up
# apart from the others.
_LARGE_TOTAL = 1e5
OVERFLOW = (
    "X has numbers so large that their sums overflow. Check their units, or divide X by a "
    "constant before fitting and predicting."
)
# Plain kernels predict for rows with noise if there are at most so many products of a row, a column
# and a component. Up to here they take hardly longer than compiled ones.
_MOST_PLAIN = 2**15


class CountPredictions(
    BaseAnnealed[np.ndarray | csr_matrix, DenseCounts | SparseCounts, GammaProcessNMF]
):
    """Methods of :class:`AnnealedGammaProcessNMF` that predict, for rows of any data."""

    @property
    @explains("Prediction")
    def components_(self) -> np.ndarray:
        """Posterior means of θ_k w_kv, of shape (n_components, n_features)."""
        ctx = self._context()
        return read_only(self._means(ctx).astype(ctx.model.dtype, copy=False))

    def top_words(self, feature_names=None, n=10):
        """The columns with the largest expected counts in each component.

        Parameters
        ----------
        feature_names : array-like of shape (n_features,) or None, default=None
            Names of the columns, such as words, genes or pixels. None: ``feature_names_in_`` if X
            had names of columns, else the indices of the columns.
        n : int, default=10
            Largest number of columns per component.

        Returns
        -------
        words : list of ndarray of shape (n,) or shorter
            One array per component, the largest expected count (``components_``) first. The arrays
            of components that are not in use are empty, and a warning says how many these are. In
            use is a component with an expected count in the training data above 1, or above a
            thousandth of the mean where scales are tiny.
        """
        ctx = self._context()
        floors = floors_of_used(ctx.model.expected_counts(ctx.q, ctx.prior), 0.0)
        means = self._means(ctx)
        return listed_words(self, means, floors, feature_names, n, "components are not in use")

    @by_parts
    @explains("Prediction")
    def transform(self, X):
        """Expected activations of rows, inferred at the fitted components.

        Each unit of a count is assigned to a component given the other counts of its row, with the
        activations integrated out (collapsed variational Bayes of order zero), which predicts
        better than the mean-field steps of the fit. With ``dispersion``, activations are inferred
        by mean-field steps here too.

        Activations are 0 for components that are not in use, so that ``transform(X) @ components_``
        has the expected counts of the components in use. The data do not determine the activations
        of the others, whose posterior mean is therefore that of the prior, 1. A component is in use
        if its expected count in the training data is above 1, as for ``n_effective_components_``,
        or if the sum of its row of ``components_`` is at least 5 percent of the mean of all sums.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            Counts. NaN marks missing cells of a dense array.

        Returns
        -------
        activations : ndarray of shape (n_samples, n_components)
            E h, or 0. The dtype is that of the data to which the model was fitted.
        """
        return self._inferred(self._validate_data(X, reset=False))

    @in_frames
    @by_parts
    @explains("Prediction")
    def impute(self, X, return_std=False, *, n_draws=None, n_rounds=0, random_state=None):
        """Fill missing cells with their expected counts, given the observed cells of their rows.

        With ``n_draws`` they are filled with drawn counts instead, in several tables: statistics of
        each, pooled by Rubin's rules, have standard errors that know what is missing. Cells are
        taken to be missing at random: whether a cell is missing may depend on the observed cells of
        its row, but not on its own value.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
            Counts, in which NaN marks missing cells. A sparse matrix has none.
        return_std : bool, default=False
            Whether to return standard deviations too. Only for means.
        n_draws : int, default=None
            The number of tables to draw (multiple imputation). None: one table of means.
        n_rounds : int, default=0
            Only with ``n_draws``, and for the table of the fit: rounds in which the components and
            their weights are drawn again from their posterior given the division of the observed
            counts among components, and then the activations (Gibbs sampling). The priors stay as
            they are. 0 is for other rows.
        random_state : int, RandomState instance or None, default=None
            Determines the draws. None: the ``random_state`` of the estimator.

        Returns
        -------
        X_imputed : ndarray or frame of shape (n_samples, n_features)
            The counts, with the expected count of each missing cell. Observed cells are unchanged.
            The dtype is that of X if X has floating-point numbers, else float64. After
            ``set_output(transform="pandas")``, or "polars", it is a frame with the columns, the
            index and the dtypes of X, where they can hold the means.
            With ``n_draws``, it is an ndarray of shape (n_draws, n_samples, n_features), or a list
            of frames. For each table, the components and their weights are drawn from the
            variational posterior once; given them, the activations of each row are drawn given its
            observed counts, by twenty Gibbs sweeps from their posterior means, and then Poisson
            counts, or negative binomial ones with ``dispersion``.
        std : ndarray or frame of shape (n_samples, n_features)
            Standard deviations of the predictive distribution of a count, with noise, activations
            and components that are independent as in the variational posterior; 0 for observed
            cells. Only returned if ``return_std`` is True.

        Raises
        ------
        ValueError
            If X is sparse, or if draws are asked for and X has fractions, which no distribution of
            counts could have given.
        """
        draws = wants_draws(n_draws, n_rounds, return_std)
        ctx, units = self._rows(X)
        if isinstance(units, SparseCounts):
            raise ValueError(
                "impute fills missing cells, but a sparse matrix has none: every cell that it "
                "leaves out is a count of zero. Give a dense array with NaN in missing cells."
            )
        holes = np.isnan(units.X)
        if draws and (np.floor(units.X[~holes]) != units.X[~holes]).any():
            raise ValueError(
                "n_draws is for counts, which are drawn from Poisson distributions, but X has "
                "fractions. Round them, or give n_draws=None for the means."
            )
        # Without rounds, rows that lack nothing have no use for draws.
        rows = np.arange(len(holes)) if n_rounds > 0 else np.flatnonzero(holes.any(axis=1))
        some, cells = units.take(rows), np.zeros(holes.shape)
        activations = self._infer(ctx, some) if len(rows) else cells[rows]

        def filled(found: np.ndarray) -> np.ndarray:
            cells[rows] = finite(found, OVERFLOW)
            return np.where(holes, cells, units.X).astype(units.X.dtype)

        if draws:
            check_rounds(ctx.summary.weight, len(holes), n_rounds)

            def table(rng: np.random.Generator) -> np.ndarray:
                own = ctx.model, ctx.q, ctx.prior, some, activations, n_rounds
                return filled(drawn_cells(*own, rng)) if len(rows) else units.X

            return stacked(self, table, n_draws, random_state)
        if len(rows) == 0:
            return (units.X, cells) if return_std else units.X
        means, std = imputed(ctx.model, ctx.q, self._means(ctx), some, activations)
        deviations = np.zeros(holes.shape)
        deviations[rows] = np.where(holes[rows], std, 0.0)
        return (filled(means), deviations) if return_std else filled(means)

    @explains("Prediction")
    def inverse_transform(self, X):
        """Expected counts of rows whose activations are given.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Activations, as :meth:`transform` returns them.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            The product of the activations and ``components_``.
        """
        ctx = self._context()
        X = check_activations(X, ctx.model.n_components)
        return (X @ self.components_).astype(X.dtype, copy=False)

    @explains("Prediction")
    def score(self, X, y=None, sample_weight=None):
        """Log-likelihood of one half of each row of counts given the other, per cell.

        Each row is split in two by a rule that depends only on its own counts, so that the split is
        the same for all models (:func:`sklearn_anneal.metrics.split_documents`): every unit of a
        count goes to one half or the other with probability 1/2. The activations are inferred from
        one half, and the other is predicted by Poisson distributions with the expected rates. With
        ``dispersion``, the halves of a cell share its noise, so that the distributions are negative
        binomial with parameters that depend on the cell's first half. In
        rows with fractional numbers whole cells go to one half or the other, which is no more than
        a rule by which candidates can be compared.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            Counts. NaN marks missing cells of a dense array, which do not count.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. With data in parts, one array for each part.

        Returns
        -------
        log_likelihood : float
            The log-likelihood in nats per cell; higher is better.
        """
        return self._score(X, y, sample_weight)

    def _scored(
        self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[float, float]:
        ctx = self._context()
        X = self._validate_data(X, reset=False)
        X, weights = self._present(X, self._check_weights(sample_weight, X))
        weights = np.ones(X.shape[0]) if weights is None else weights
        missing = None if issparse(X) else np.isnan(X)
        counts = csr_matrix(X if missing is None else np.where(missing, 0, X))
        observed: Any
        observed, held_out = split_documents(counts)
        if missing is not None:
            observed = observed.toarray()
            observed[missing] = np.nan
        units = self._make_units(observed, None)
        activations = self._infer(ctx, units, exposure=0.5)
        components = 0.5 * self._means(ctx)
        if ctx.model.dispersion is None:
            rates = _rates(held_out, activations, components)
            terms = log_poisson(held_out.data.astype(np.float64), rates)
            zeros = _rates_of_zeros(held_out, rates, activations, components, missing)
            each = _sums_of_rows(held_out, terms) - zeros
        else:
            each = _noisy_scores(
                held_out, observed, activations, components, 1.0 / ctx.model.dispersion
            )
        cells = np.full(X.shape[0], float(X.shape[1]))
        if missing is not None:
            cells -= missing.sum(axis=1)
        total = float(weights @ cells)
        if total == 0:
            raise NothingToScore(
                "X has no observed cell in rows of positive weight to be predicted."
            )
        return float(finite(weights @ each, OVERFLOW)) / total, total

    # Recommendations

    @by_parts
    @explains("Prediction")
    def recommend(self, X, n=10, exclude_seen=True, return_scores=False):
        """The items that each user of X would choose most often.

        Rows are users, and columns are items that they clicked on, bought or read so many times.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items), or data in parts
            Counts of these users, new ones or not. NaN marks missing cells of a dense array.
        n : int, default=10
            Number of items for each user.
        exclude_seen : bool, default=True
            Whether to leave out the items of which the user has a count above 0. A missing cell is
            not left out.
        return_scores : bool, default=False
            Whether to return the expected counts of these items too.

        Returns
        -------
        items : ndarray of int, shape (n_users, n)
            Columns of X in the order of expected counts, the largest first; among equal ones the
            lower column comes first. If a user has fewer than n unseen items, the rest is −1.
        scores : ndarray of shape (n_users, n)
            Their expected counts, those of ``inverse_transform(transform(X))``, and NaN where
            ``items`` is −1. Returned only if ``return_scores`` is true.

        See Also
        --------
        recommend_for : The same for users of the training data, by their rows.
        """
        ctx = self._context()
        X = self._validate_data(X, reset=False)
        found = self._best_of(ctx, self._inferred(X), n, _positive(X) if exclude_seen else None)
        return found if return_scores else found[0]

    @explains("Prediction")
    def recommend_for(self, users, n=10, exclude=None, return_scores=False):
        """The items that users of the training data would choose most often.

        Parameters
        ----------
        users : array-like of int, shape (n_users,)
            Rows of the X that ``fit`` was given.
        n : int, default=10
            Number of items for each user.
        exclude : sparse matrix or boolean array of shape (n_users, n_items), or list of \
                array-like or sets, default=None
            Items that are not recommended, for example those that a user has seen: the stored (or
            true) entries of row i, or the ids in ``exclude[i]``, belong to ``users[i]``. The fitted
            estimator does not keep the counts of the training data.
        return_scores : bool, default=False
            Whether to return the expected counts of these items too.

        Returns
        -------
        items : ndarray of int, shape (n_users, n)
            Columns of X in the order of expected counts, the largest first; among equal ones the
            lower column comes first. If fewer than n items are left for a user, the rest is −1.
        scores : ndarray of shape (n_users, n)
            Their expected counts, and NaN where ``items`` is −1. Returned only if
            ``return_scores`` is true.

        Raises
        ------
        ValueError
            If a user was not in the training data, or if the estimator was fitted to data in parts
            or by ``partial_fit``, after which it has no ``activations_``. ``recommend(X)`` then
            infers those of the users, whose counts it is given.

        Notes
        -----
        A fit to data in parts needs no memory that grows with the number of rows, and activations
        can be larger than the counts of sparse rows, so that it keeps none.
        ``recommend(X)`` takes the same parts, and makes the lists of one part after another. Rows
        of a stream are gone after their batch, and later batches change the components, at which
        their activations would have to be inferred anew.

        Examples
        --------
        >>> from sklearn_anneal import AnnealedGammaProcessNMF
        >>> X = [[6, 4, 0, 0], [5, 0, 0, 0], [0, 0, 5, 6], [0, 0, 0, 5]] * 20
        >>> nmf = AnnealedGammaProcessNMF(2, random_state=0).fit(X)
        >>> nmf.recommend_for([1, 3], n=1, exclude=[[0], [3]])
        array([[1],
               [2]])
        """
        ctx = self._context()
        users, seen = asked_users(users, exclude, ctx.model.n_columns)
        own = getattr(self, "activations_", None)
        if own is None:
            raise ValueError(
                "The activations of the rows of a stream, or of data in parts, are not kept. Call "
                "recommend(X) with the counts of the users, from which they are inferred again; X "
                "can be in parts."
            )
        unknown = users[(users < 0) | (users >= len(own))]
        if unknown.size:
            raise ValueError(
                f"users has {unknown[0]}, but users are the rows 0 to {len(own) - 1} that fit was "
                "given. Give the counts of new users to recommend, which infers their activations; "
                "a row of zeros is a user of whom nothing is known."
            )
        found = self._best_of(ctx, own[users], n, seen)
        return found if return_scores else found[0]

    def _best_of(
        self, ctx: Any, activations: np.ndarray, n: Any, seen: tuple[np.ndarray, np.ndarray] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        components = self._means(ctx)

        def expected(block: slice) -> np.ndarray:
            return finite(activations[block].astype(np.float64) @ components, OVERFLOW)

        return best_items(expected, (len(activations), ctx.model.n_columns), n, seen)

    # Draws

    @explains("Prediction")
    def sample(self, n_samples=1):
        """Draw rows and their activations, at the posterior means of the components.

        The rates of their cells have noise where ``dispersion_`` is not None.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        Returns
        -------
        X : ndarray of int64, shape (n_samples, n_features)
            The rows.
        activations : ndarray of shape (n_samples, n_components)
            Their activations, drawn from the prior.
        """
        self._context()
        check_n_samples(n_samples)
        rng = check_random_state(self.random_state)
        b = self.activation_prior_
        activations = rng.gamma(b, 1.0 / b, size=(n_samples, len(self.component_weights_)))
        rates = activations @ self.components_
        if self.dispersion_ is not None:
            shape = 1.0 / self.dispersion_
            rates *= rng.gamma(shape, self.dispersion_, size=rates.shape)
        return drawn_counts(rng, rates), activations

    # Rows

    def _rows(self, X: ArrayLike) -> tuple[Context, DenseCounts | SparseCounts]:
        ctx = self._context()
        return ctx, self._make_units(self._validate_data(X, reset=False), None)

    def _inferred(self, X: np.ndarray | csr_matrix) -> np.ndarray:
        """Return E h of validated rows, as :meth:`transform` does, by whichever kernels serve."""
        ctx, units = self._context(), self._make_units(X, None)
        found = self._activations(ctx, units)
        return found.astype(ctx.model.dtype, copy=False)

    def _means(self, ctx: Context) -> np.ndarray:
        """The means of θ_k w_kv: those over allocations if the fit drew any, or those of q."""
        own: np.ndarray | None = getattr(self, "_averaged", None)
        return ctx.model.means(ctx.q) if own is None else own

    def _activations(self, ctx: Context, units: DenseCounts | SparseCounts) -> np.ndarray:
        """E h of rows for the components in use, and 0 for the others."""
        used = ctx.model.in_use(ctx.q, ctx.prior, self._means(ctx))
        return np.where(used, self._infer(ctx, units), 0.0)

    def _infer(
        self, ctx: Context, units: DenseCounts | SparseCounts, exposure: float = 1.0
    ) -> np.ndarray:
        """E h of rows, of shape (n_rows, n_components), by plain kernels or compiled ones."""
        own = units, ctx.q, self._means(ctx)
        if _are_few(ctx.model, units):
            return finite(ctx.model.predicted(*own, None, exposure), OVERFLOW)
        multiplies = units.patterns is not None or ctx.model.dispersion is not None
        if not multiplies and self._jobs_for(ctx, units) == 1:
            # Without products of matrices, BLAS needs no limit, which threads would set.
            self._load_kernels()
            return finite(ctx.model.predicted(*own, SEQUENTIAL, exposure), OVERFLOW)
        with self._workers_for(ctx, units) as workers:
            return finite(ctx.model.predicted(*own, workers, exposure), OVERFLOW)

    def _divergence(
        self,
        ctx: Context,
        units: DenseCounts | SparseCounts,
        activations: np.ndarray | None = None,
    ) -> float:
        """The generalised Kullback-Leibler divergence between rows and their expectations."""
        if activations is None:
            activations = self._activations(ctx, units)
        components = self._means(ctx)
        total = 0.0
        for index in units.chunks():
            chunk: Any = units.take(index)
            missing = None if chunk.patterns is None else np.isnan(chunk.X)
            counts: Any = positive_counts(chunk, components.shape[1])
            rates = _rates(counts, activations[index], components)
            each = _sums_of_rows(counts, deviance(rates, counts.data - rates))
            each += _rates_of_zeros(counts, rates, activations[index], components, missing)
            total += float(each.sum() if chunk.weights is None else chunk.weights @ each)
        return max(total, 0.0)


def _are_few(model: GammaProcessNMF, units: DenseCounts | SparseCounts) -> bool:
    """Whether plain kernels predict for rows, so that none has to be compiled."""
    if model.dispersion is None:
        return are_few(units, model.n_components)
    return units.n_units * model.n_columns * model.n_components <= _MOST_PLAIN


def _noisy_scores(
    held_out: Any, observed: Any, activations: np.ndarray, components: np.ndarray, a: float
) -> np.ndarray:
    """The log-likelihoods of one half of each row, whose cells share their noise with the other.

    Given the x counts of the other half, of the expectation m too, the noise of a cell is
    Gamma(a + x, a + m), and its count negative binomial. NaN marks missing cells of ``observed``.
    """
    result = np.empty(len(activations))
    size = max(_ENTRIES // components.shape[1], 1)
    for start in range(0, len(activations), size):
        rows = slice(start, start + size)
        other, x = (
            each[rows].toarray() if issparse(each) else each[rows] for each in (observed, held_out)
        )
        m = np.maximum(activations[rows] @ components, _SMALLEST_RATE)
        seen = ~np.isnan(other)
        terms = log_negative_binomial(
            x.astype(np.float64), a + np.where(seen, other, 0.0), a / m + 1.0
        )
        result[rows] = np.where(seen, terms, 0.0).sum(axis=1)
    return result


def _sums_of_rows(counts: Any, terms: np.ndarray) -> np.ndarray:
    """The sum over each row of one term per entry that a CSR matrix stores."""
    n = counts.shape[0]
    rows = np.repeat(np.arange(n), np.diff(counts.indptr))
    # Without any entry, the result would have integers.
    return np.bincount(rows, terms, n).astype(np.float64, copy=False)


def _rates(counts: Any, activations: np.ndarray, components: np.ndarray) -> np.ndarray:
    """Σ_k h_nk w_kv of the entries that a CSR matrix stores, a part of them at a time."""
    n_rows, n_columns = counts.shape
    rows = np.repeat(np.arange(n_rows), np.diff(counts.indptr))
    result = np.empty(len(rows))
    if counts.nnz > _DENSE * n_rows * n_columns:
        # A product of matrices takes less time than one per entry.
        size = max(_ENTRIES // n_columns, 1)
        for start in range(0, n_rows, size):
            first, last = counts.indptr[[start, min(start + size, n_rows)]]
            product = activations[start : start + size] @ components
            result[first:last] = product[rows[first:last] - start, counts.indices[first:last]]
        return np.maximum(result, _SMALLEST_RATE)
    by_column = np.ascontiguousarray(components.T)
    for start in range(0, len(rows), _ENTRIES):
        part = slice(start, start + _ENTRIES)
        left, right = activations[rows[part]], by_column[counts.indices[part]]
        result[part] = np.einsum("ik,ik->i", left, right)
    return np.maximum(result, _SMALLEST_RATE)


def _rates_of_zeros(
    counts: Any,
    rates: np.ndarray,
    activations: np.ndarray,
    components: np.ndarray,
    missing: np.ndarray | None,
) -> np.ndarray:
    """The sum of Σ_k h_nk w_kv over the observed cells of each row that a CSR matrix leaves out.

    ``rates`` are those of the cells that it stores.
    """
    total = _total_rates(activations, components, missing)
    result = np.maximum(total - _sums_of_rows(counts, rates), 0.0)
    # The difference of two huge sums would lose the rates of the few cells without counts.
    large = np.flatnonzero(total > _LARGE_TOTAL)
    size = max(_ENTRIES // components.shape[1], 1)
    for start in range(0, len(large), size):
        rows = large[start : start + size]
        left_out = np.ones((len(rows), components.shape[1]))
        stored = counts[rows]
        left_out[np.repeat(np.arange(len(rows)), np.diff(stored.indptr)), stored.indices] = 0.0
        if missing is not None:
            left_out[missing[rows]] = 0.0
        result[rows] = ((activations[rows] @ components) * left_out).sum(axis=1)
    return result


def _total_rates(
    activations: np.ndarray, components: np.ndarray, missing: np.ndarray | None
) -> np.ndarray:
    """Σ_v Σ_k h_nk w_kv over the observed cells of each row."""
    if missing is None or not missing.any():
        return activations @ components.sum(axis=1)
    return (((~missing).astype(np.float64) @ components.T) * activations).sum(axis=1)


def _positive(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells of counts above 0 as ``indptr`` and ``indices`` of a CSR matrix."""
    if issparse(X):
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        rows, columns = rows[X.data > 0], X.indices[X.data > 0]
    else:
        rows, columns = np.nonzero(X > 0)
    return np.cumsum([0, *np.bincount(rows, minlength=X.shape[0])]), columns
