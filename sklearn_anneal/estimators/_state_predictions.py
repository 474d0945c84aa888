"""Predictions of a fitted hidden Markov model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Bunch, check_random_state
from sklearn.utils.metaestimators import available_if

from ..annealing import Context
from ..data.tables import missing_cells
from ..data.units import Sequences
from ..families import Natural
from ..models._design_effect import (
    design_effect,
    discounted,
    has_design_effect,
    moments_of_sequences,
)
from ..models._path_draws import drawn_frames, rows_with_holes
from ..models.hidden_markov import HiddenMarkov
from ._attributes import read_only
from ._base import BaseAnnealed
from ._columns import TablesOfColumns
from ._draws import check_rounds, stacked, wants_draws
from ._forecasts import ahead, expected_blocks, expected_frames, long_run_shares
from ._interface import has_unit_temperatures
from ._part_predictions import by_parts
from ._sequences import SequenceData, draw_states
from ._shards import in_parts
from ._tables import in_frames
from ._validation import check_n_samples, check_n_steps, explains, finite

_OVERFLOW = (
    "X has frames so far from the training data that their log densities overflow. Check their "
    "units, or rescale X before fitting and predicting."
)


class StatePredictions(
    TablesOfColumns,
    BaseAnnealed[SequenceData, Sequences, HiddenMarkov],
):
    """Methods of :class:`AnnealedHMM` that predict states, score sequences and draw new ones."""

    __metadata_request__score = {"groups": True}
    __metadata_request__predict = {"groups": True}
    __metadata_request__predict_proba = {"groups": True}
    __metadata_request__transform = {"groups": True}

    def fit_transform(
        self, X, y=None, *, groups=None, lengths=None, sample_weight=None, states=None
    ):
        """Fit the model and return the posterior probabilities of the states of each frame.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), or list of such
            Training sequences.
        y : Ignored
            Not used, present for API consistency by convention.
        groups, lengths : array-like, default=None
            The id of the sequence of every row, or the number of rows of each sequence.
        sample_weight : array-like of shape (n_frames,), default=None
            Weights, constant within a sequence.
        states : array-like of int, shape (n_frames,), or list of such, default=None
            Known states for :meth:`fit`. The result follows from X alone, and can differ from them.

        Returns
        -------
        posteriors : ndarray of shape (n_frames, n_components)
            The result of :meth:`transform`.
        """
        how = {"groups": groups, "lengths": lengths}
        also = {"sample_weight": sample_weight, "states": states}
        return self.fit(X, y, **how, **also).transform(X, **how)

    def fit_predict(self, X, y=None, *, groups=None, lengths=None, sample_weight=None, states=None):
        """Fit the model and return the most probable path of states of each training sequence.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), or list of such
            Training sequences.
        y : Ignored
            Not used, present for API consistency by convention.
        groups, lengths : array-like, default=None
            The id of the sequence of every row, or the number of rows of each sequence.
        sample_weight : array-like of shape (n_frames,), default=None
            Weights, constant within a sequence.
        states : array-like of int, shape (n_frames,), or list of such, default=None
            Known states for :meth:`fit`. The result follows from X alone, and can differ from them.

        Returns
        -------
        states : ndarray of int, shape (n_frames,)
            The result of :meth:`predict`.
        """
        how = {"groups": groups, "lengths": lengths}
        also = {"sample_weight": sample_weight, "states": states}
        return self.fit(X, y, **how, **also).predict(X, **how)

    @by_parts
    def predict(self, X, *, groups=None, lengths=None):
        """The most probable path of states of each sequence, by the Viterbi algorithm.

        The parameter ``predictive`` chooses the densities of frames; transition probabilities are
        posterior means. Ties go to the state of lowest index. Unless ``duration`` is
        ``"geometric"``, the algorithm is that of hidden semi-Markov models: it chooses the state
        and the duration of every segment, whose last one can go on after the sequence. Ties go to
        the longer segment.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), list of such, or data in parts
            Sequences.
        groups, lengths : array-like, default=None
            The id of the sequence of every row, or the number of rows of each sequence.

        Returns
        -------
        states : ndarray of int, shape (n_frames,)
            One state per frame.
        """
        return self.decode(X, groups=groups, lengths=lengths)[1]

    @explains("Prediction")
    def decode(self, X, *, groups=None, lengths=None):
        """The most probable path of states of each sequence, and its probability.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), or list of such
            Sequences.
        groups, lengths : array-like, default=None
            The id of the sequence of every row, or the number of rows of each sequence.

        Returns
        -------
        log_probability : float
            Sum over sequences of the log joint density of frames and path, in nats.
        states : ndarray of int, shape (n_frames,)
            One state per frame.
        """
        ctx, _, units = self._units(X, groups, lengths)
        q = self._predicting(ctx, self.predictive)
        chain = ctx.model.chain_at_means(q)
        states = np.empty(int(units.indptr[-1]), dtype=np.int64)
        best = np.empty(units.n_units)
        for part, some, density in ctx.model.densities(units, q, self.predictive):
            ctx.model.best_paths(
                finite(density, _OVERFLOW),
                some.indptr,
                chain,
                states[units.indptr[part.start] : units.indptr[part.stop]],
                best[part],
            )
        return float(best.sum()), states

    @by_parts
    @explains("Prediction")
    def predict_proba(self, X, *, groups=None, lengths=None):
        """Posterior probabilities of the states of each frame, given its whole sequence.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), list of such, or data in parts
            Sequences.
        groups, lengths : array-like, default=None
            The id of the sequence of every row, or the number of rows of each sequence.

        Returns
        -------
        posteriors : ndarray of shape (n_frames, n_components)
            They sum to 1 over the states. The dtype is that of X if X is floating, else float64.
        """
        ctx, data, units = self._units(X, groups, lengths)
        posteriors = np.empty((int(units.indptr[-1]), ctx.model.n_components))
        self._log_likelihoods(ctx, units, self.predictive, posteriors)
        return posteriors.astype(data.X.dtype, copy=False)

    @by_parts
    def transform(self, X, *, groups=None, lengths=None):
        """Posterior probabilities of the states of each frame, as :meth:`predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), list of such, or data in parts
            Sequences.
        groups, lengths : array-like, default=None
            The id of the sequence of every row, or the number of rows of each sequence.

        Returns
        -------
        posteriors : ndarray of shape (n_frames, n_components)
            One column per state.
        """
        return self.predict_proba(X, groups=groups, lengths=lengths)

    @by_parts
    @explains("Prediction")
    def score_samples(self, X, *, groups=None, lengths=None):
        """Log-likelihood of all sequences, and the posterior probabilities of their states.

        Both come from one pass of forward–backward. The method is that of hmmlearn. scikit-learn's
        methods of this name return one log density per row, but the frames of a sequence depend on
        each other, so that a log-likelihood belongs to a whole sequence: :meth:`score_sequences`
        has one for each.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), list of such, or data in parts
            Sequences.
        groups, lengths : array-like, default=None
            The id of the sequence of every row, or the number of rows of each sequence.

        Returns
        -------
        log_likelihood : float
            The sum of :meth:`score_sequences`, in nats.
        posteriors : ndarray of shape (n_frames, n_components)
            The result of :meth:`predict_proba`.
        """
        ctx, data, units = self._units(X, groups, lengths)
        posteriors = np.empty((int(units.indptr[-1]), ctx.model.n_components))
        each = self._log_likelihoods(ctx, units, self.predictive, posteriors)
        return float(each.sum()), posteriors.astype(data.X.dtype, copy=False)

    def score_sequences(self, X, *, groups=None, lengths=None):
        """Log-likelihood of each sequence.

        Every frame has its posterior predictive density given its state, or with
        ``predictive=False`` the density at the posterior means. Start and transition probabilities
        are posterior means.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), or list of such
            Sequences.
        groups, lengths : array-like, default=None
            The id of the sequence of every row, or the number of rows of each sequence.

        Returns
        -------
        log_likelihoods : ndarray of shape (n_sequences,)
            Log-likelihoods in nats, summed over the observed frames of a sequence.
        """
        ctx, _, units = self._units(X, groups, lengths)
        return self._log_likelihoods(ctx, units, self.predictive)

    def score(self, X, y=None, *, groups=None, lengths=None, sample_weight=None):
        """Mean log-likelihood per frame, as :meth:`score_sequences` measures it.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), list of such, or data in parts
            Sequences.
        y : Ignored
            Not used, present for API consistency by convention.
        groups, lengths : array-like, default=None
            The id of the sequence of every row, or the number of rows of each sequence.
        sample_weight : array-like of shape (n_frames,), default=None
            Weights, constant within a sequence. With data in parts, one array for each part, with
            one weight per sequence.

        Returns
        -------
        log_likelihood : float
            In nats per frame; missing frames count in the denominator. Higher is better.
        """
        if in_parts(X):
            return self._score(X, y, sample_weight)
        log_likelihood, n_frames = self._log_likelihood(
            X, groups, lengths, sample_weight, self.predictive, y
        )
        return log_likelihood / n_frames

    def _scored(
        self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[float, float]:
        if sample_weight is not None:
            sample_weight = self._weights_of_part(sample_weight, X)
        log_likelihood, n_frames = self._log_likelihood(
            X, None, None, sample_weight, self.predictive, y
        )
        return log_likelihood / max(n_frames, 1e-300), n_frames

    def aic(self, X, *, groups=None, lengths=None, sample_weight=None):
        """Akaike's information criterion at the posterior means.

        It counts the parameters as if each were one number that was fitted freely. ``lower_bound_``
        takes into account how well the data determine them, and the prior; it is the better
        criterion for the number of states.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), or list of such
            Sequences.
        groups, lengths : array-like, default=None
            The id of the sequence of every row, or the number of rows of each sequence.
        sample_weight : array-like of shape (n_frames,), default=None
            Weights, constant within a sequence.

        Returns
        -------
        aic : float
            2 p − 2 log L, where L is the likelihood and p the number of free parameters; the lower
            the better. Transitions that the prior forbids are no parameters.
        """
        log_likelihood, _ = self._log_likelihood(X, groups, lengths, sample_weight, False)
        return float(2.0 * self._context().model.n_parameters - 2.0 * log_likelihood)

    def bic(self, X, *, groups=None, lengths=None, sample_weight=None):
        """Bayesian information criterion at the posterior means.

        It approximates −2 times the log evidence as if each parameter were one number that all
        frames determine, although only the frames of a state determine its own. ``lower_bound_``
        bounds the evidence without this approximation, with the prior that was used, and is the
        better criterion for the number of states.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), or list of such
            Sequences.
        groups, lengths : array-like, default=None
            The id of the sequence of every row, or the number of rows of each sequence.
        sample_weight : array-like of shape (n_frames,), default=None
            Weights, constant within a sequence.

        Returns
        -------
        bic : float
            p log N − 2 log L, where L is the likelihood, p the number of free parameters and N the
            number of frames, or the sum of their weights; the lower the better. Missing frames
            are counted, and transitions that the prior forbids are not.
        """
        found, n_frames = self._log_likelihood(X, groups, lengths, sample_weight, False)
        return float(self._context().model.n_parameters * np.log(n_frames) - 2.0 * found)

    @in_frames
    @by_parts
    @explains("Prediction")
    def impute(
        self,
        X,
        return_std=False,
        *,
        groups=None,
        lengths=None,
        n_draws=None,
        n_rounds=0,
        random_state=None,
    ):
        """Fill missing cells with their posterior means, or their most probable categories.

        With ``n_draws`` they are filled with draws instead, in several tables: statistics of each,
        pooled by Rubin's rules, have standard errors that know what is missing.

        The states of frames follow from all observed cells of their sequences, as in
        :meth:`predict_proba`, and the missing cells of a frame from its state and its own observed
        cells. Cells are taken to be missing at random: whether a cell is missing may depend on
        observed cells, but not on its own value.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), list of such, or data in parts
            Sequences, in which missing cells and frames are NaN, or −1 for symbols and, in a table
            of blocks, for binary columns and categories.
        return_std : bool, default=False
            Whether to return standard deviations too. Only for means.
        groups, lengths : array-like, default=None
            The id of the sequence of every row, or the number of rows of each sequence.
        n_draws : int, default=None
            The number of tables to draw (multiple imputation). None: one table of means and
            categories.
        n_rounds : int, default=0
            Only with ``n_draws``, and for the sequences of the fit: rounds in which the parameters
            are drawn again from their posterior given the paths and the completed frames, and then
            the paths and the missing cells (data augmentation). 0 is for other sequences.
        random_state : int, RandomState instance or None, default=None
            Determines the draws. None: the ``random_state`` of the estimator.

        Returns
        -------
        X_imputed : ndarray or frame of shape (n_frames, n_features)
            The frames, with the posterior mean of each missing cell, or its most probable category.
            Observed cells are unchanged. The dtype is that of X if X has floating-point numbers,
            else float64. After ``set_output(transform="pandas")``, or "polars", it is a frame with
            the columns, the index and the dtypes of X, where they can hold the means.
            With ``n_draws``, it is an ndarray of shape (n_draws, n_frames, n_features), or a list
            of frames. For each table, the parameters are drawn from the variational posterior once,
            of which frames count 1 / ``design_effect_`` without rounds, if ``predictive`` is True;
            given them, the path of states of each sequence is drawn by forward filtering and
            backward sampling, and then the missing cells of each frame given its state.
        std : ndarray or frame of shape (n_frames, n_features)
            Only with ``return_std``: standard deviations of missing counts and real numbers, as
            :meth:`AnnealedBayesianMixture.impute` explains them, or with ``predictive=False`` those
            at the posterior means; 0 for observed cells, and NaN for missing symbols, categories
            and binary cells.
        """
        draws = wants_draws(n_draws, n_rounds, return_std)
        ctx, data, units = self._units(X, groups, lengths)
        if draws:
            check_rounds(ctx.summary.n_frames, len(data.X), n_rounds)

            def table(rng: np.random.Generator) -> np.ndarray:
                return self._drawn_frames(ctx, data, units, n_rounds, rng)

            return stacked(self, table, n_draws, random_state)
        shares = np.empty((len(data.X), ctx.model.n_components))
        self._log_likelihoods(ctx, units, self.predictive, shares)
        rows = rows_with_holes(units)
        q = self._predicting(ctx, self.predictive)
        values, std = ctx.model.emission.imputed(rows, shares, q, self.predictive)
        filled = self._filled(data, units, values)
        if not return_std:
            return filled
        std = np.full(values.shape, np.nan) if std is None else std
        return filled, np.where(self._holes(data, units), self._ordered(std), 0.0)

    def _drawn_frames(
        self,
        ctx: Context,
        data: SequenceData,
        units: Sequences,
        n_rounds: int,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """The frames with draws in the place of missing cells."""
        # Without rounds, sequences that lack nothing have no use for draws.
        chosen = np.ones(units.n_units, dtype=bool)
        if n_rounds == 0:
            frames = self._holes(data, units).any(axis=1)
            chosen = np.array([own.any() for own in np.split(frames, units.indptr[1:-1])])
            if not chosen.any():
                return data.X
        some, own = units.take(np.flatnonzero(chosen)), data.take(chosen)

        def completed(cells: np.ndarray) -> Sequences:
            whole: Any = self._make_units(replace(own, X=self._filled(own, some, cells)), None)
            return whole.centered(ctx.summary)

        # Rounds are for the sequences of the fit, all of whose frames count.
        q = self._predicting(ctx, self.predictive) if n_rounds == 0 else ctx.q
        cells = drawn_frames(ctx.model, q, ctx.prior, some, n_rounds, completed, rng)
        found = np.array(data.X)
        found[np.repeat(chosen, data.lengths)] = self._filled(own, some, cells)
        return found

    def _holes(self, data: SequenceData, units: Sequences) -> np.ndarray:
        """The mask of missing cells of frames, in the order of the columns of X."""
        if self._blocks is not None:
            mask = missing_cells(units.frames)
            return np.zeros(data.X.shape, dtype=bool) if mask is None else self._ordered(mask)
        if units.frames.ndim == 1:
            return (units.frames < 0)[:, None]
        return np.isnan(data.X)

    def _ordered(self, cells: np.ndarray) -> np.ndarray:
        """Cells whose columns have the order of the model, in the order of X."""
        order = self._order()
        return cells if order is None else cells[:, np.argsort(order)]

    def _filled(self, data: SequenceData, units: Sequences, cells: np.ndarray) -> np.ndarray:
        """The frames, in which cells, in the order of the model, replace those that are missing."""
        filled = np.where(self._holes(data, units), self._ordered(cells), data.X)
        return filled.astype(data.X.dtype, copy=False)

    @explains("Sampling")
    def sample(self, n_samples=1):
        """Draw one sequence from the fitted model, at the posterior mean parameters.

        Parameters
        ----------
        n_samples : int, default=1
            Number of frames.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The frames.
        states : ndarray of int, shape (n_samples,)
            Their states.
        """
        ctx = self._context()
        check_n_samples(n_samples)
        random_state = check_random_state(self.random_state)
        start, transitions = ctx.model.markov_chain(ctx.q)
        drawn = draw_states(start, transitions, random_state, int(n_samples))
        states = ctx.model.states_of_sub_states[drawn]
        return self._draw(ctx.model.emission, states, random_state), states

    @property
    @explains("Prediction")
    def stationary_distribution_(self):
        """Shares of its time that an endless sequence spends in each state."""
        ctx = self._quiet_context()
        return read_only(long_run_shares(self.startprob_, ctx.model.frame_transitions(ctx.q)))

    @property
    def expected_durations_(self):
        """Mean number of frames for which each state lasts once it is reached."""
        with np.errstate(divide="ignore"):
            return read_only(self.duration_shapes_ / self.leaveprob_)

    @property
    def duration_shapes_(self):
        """Shapes of the negative binomial distributions of the durations of states."""
        return read_only(np.bincount(self._quiet_context().model.states_of_sub_states))

    @property
    def leaveprob_(self):
        """Posterior means of the probabilities to leave a state, or a sub-state, in a frame."""
        leave, stay = self.leaveprob_posterior_.T
        return read_only(leave / (leave + stay))

    @property
    def leaveprob_posterior_(self):
        """Parameters of the beta posteriors of the probabilities to leave."""
        return read_only(self._quiet_context().model.durations(self._quiet_context().q))

    @property
    def leaveprob_prior_(self):
        """Parameters of the beta priors of the probabilities to leave."""
        return read_only(self._quiet_context().model.durations(self._quiet_context().prior))

    @explains("Prediction")
    def predict_next(self, X, n_steps=1, *, groups=None, lengths=None):
        """Forecast the states and the observations after the end of each sequence.

        The state of the last frame is inferred from the whole sequence, as by
        :meth:`predict_proba`, and every step makes a transition. A frame of a later step has the
        mixture of the states' distributions. These are posterior predictive distributions, or with
        ``predictive=False`` those at the posterior means, as in :meth:`score`. Start and transition
        probabilities are posterior means. Steps are counted from the last row of a sequence, be it
        missing or not.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), or list of such
            Sequences.
        n_steps : int, default=1
            Number of frames to forecast.
        groups, lengths : array-like, default=None
            The id of the sequence of every row, or the number of rows of each sequence.

        Returns
        -------
        forecast : Bunch
            Arrays whose first two axes are the sequences and the steps 1, …, n_steps.

            state_probabilities : ndarray of shape (n_sequences, n_steps, n_components)
                The distributions of the states, which sum to 1.
            mean, std : ndarray of shape (n_sequences, n_steps, n_features), or None
                Means and standard deviations of real numbers and counts; None if there are none.
                In a table of blocks, they are NaN in columns that have probabilities. Where the
                distribution of a state has no variance, ``std`` has the value that
                :meth:`AnnealedBayesianMixture.impute` explains.
            probabilities : ndarray, dict of ndarray or None
                For symbols, an array of shape (n_sequences, n_steps, n_symbols). For binary
                columns, the probabilities of ones, of shape (n_sequences, n_steps, n_features).
                For a table of blocks, a dictionary from the position of each column of categories
                to an array of shape (n_sequences, n_steps, n_categories), and of each binary
                column to the probabilities of ones, of shape (n_sequences, n_steps). None if there
                are no such columns.

        Raises
        ------
        ValueError
            If ``n_steps`` is no integer above 0, or if X is refused.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn_anneal import AnnealedHMM
        >>> X = np.tile(np.repeat([0.0, 5.0], 10), 5) + np.random.default_rng(0).normal(size=100)
        >>> hmm = AnnealedHMM(2, random_state=0).fit(X[:, None])
        >>> forecast = hmm.predict_next(X[:, None], n_steps=20)
        >>> forecast.mean.shape
        (1, 20, 1)
        >>> forecast.state_probabilities[0, [0, 19]].max(axis=1).round(1)
        array([0.9, 0.5])
        """
        check_n_steps(n_steps)
        ctx, _, units = self._units(X, groups, lengths)
        states, (_, transitions) = ctx.model.states_of_sub_states, ctx.model.markov_chain(ctx.q)
        ends = np.empty((units.n_units, len(states)))
        self._log_likelihoods(ctx, units, self.predictive, ends=ends)
        later = ahead(ends, transitions, int(n_steps))
        first = np.searchsorted(states, np.arange(ctx.model.n_components))
        shares = np.add.reduceat(later, first, axis=-1)
        return Bunch(state_probabilities=shares, **self._expected(ctx, shares))

    def _expected(self, ctx: Context, shares: np.ndarray) -> Bunch:
        """Return the moments and probabilities of frames, given those of their states."""
        components, center, how = ctx.model.emission, ctx.summary.center, self.predictive
        if self._blocks is None:
            q = self._predicting(ctx, how)
            return expected_frames(components, q, center, shares, how)
        parts = []
        for name, _, columns in self._blocks:
            own = components.own(name, ctx.q)
            part = components.parts[name]
            parts.append((columns, expected_frames(part, own, center[name], shares, how)))
        return expected_blocks(parts, shares.shape[:2], self.n_features_in_)

    @available_if(has_unit_temperatures)
    @by_parts
    @explains("Prediction")
    def inverse_temperatures(self, X, *, groups=None, lengths=None):
        """Expected inverse temperature of each sequence, low for outliers.

        The method is available with ``annealing="local_tempering"``. The inverse temperature is
        the factor by which the fitted model would multiply the sequence's log-likelihood.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), list of such, or data in parts
            Sequences.
        groups, lengths : array-like, default=None
            The id of the sequence of every row, or the number of rows of each sequence.

        Returns
        -------
        inverse_temperatures : ndarray of shape (n_sequences,)
            E[1/T], in (0, 1].
        """
        ctx, _, units = self._units(X, groups, lengths)
        return finite(self.annealing_.inverse_temperatures(ctx, units), _OVERFLOW)

    def _units(
        self, X: ArrayLike, groups: object, lengths: object, y: ArrayLike | None = None
    ) -> tuple[Context, SequenceData, Sequences]:
        ctx, data = self._sequences(X, groups, lengths, y)
        units: Any = self._make_units(data, None)
        return ctx, data, units.centered(ctx.summary)

    def _sequences(
        self, X: ArrayLike, groups: object, lengths: object, y: ArrayLike | None = None
    ) -> tuple[Context, SequenceData]:
        ctx = self._context()
        data = self._data(X, groups, lengths, y)  # without states: predictions are made from X
        return ctx, self._validate_data(data, reset=False, ensure_min_samples=1)

    def _log_likelihood(
        self,
        X: Any,
        groups: Any,
        lengths: Any,
        sample_weight: ArrayLike | None,
        predictive: bool,
        y: Any = None,
    ) -> tuple[float, float]:
        """The log-likelihood of all sequences, and the number of frames, both weighted."""
        ctx, data = self._sequences(X, groups, lengths, y)
        data, weights = self._present(data, self._check_weights(sample_weight, data))
        units: Any = self._make_units(data, None).centered(ctx.summary)
        if weights is None:
            weights = np.ones(units.n_units)
        each = self._log_likelihoods(ctx, units, predictive)
        with np.errstate(over="ignore"):
            total = weights @ each
        return float(finite(total, _OVERFLOW)), float(weights @ units.lengths)

    def _complete_update(self, batch: Sequences, units: Sequences, follows_fit: bool) -> None:
        # Updates leave the design effect as the last fit has estimated it.
        if follows_fit:
            self._complete_fit(self._inference.ctx, units, None)

    def _complete_fit(self, ctx: Context, units: Any, given: Any) -> None:
        effect = 1.0
        if ctx.summary.n_sequences > 1 and has_design_effect(ctx.model):
            effect = design_effect(units.total(partial(self._moments, ctx)))
        self._describe({"design_effect_": effect})

    @staticmethod
    def _moments(ctx: Context, units: Sequences) -> np.ndarray:
        return moments_of_sequences(ctx.model, ctx.q, units.centered(ctx.summary))

    def _predicting(self, ctx: Context, predictive: bool) -> Natural:
        """The posterior over which predictions integrate, or of which they take the means."""
        effect = self.design_effect_ if predictive else 1.0
        return discounted(ctx.model, ctx.q, ctx.prior, effect)

    @explains("Prediction")
    def _log_likelihoods(
        self,
        ctx: Context,
        units: Sequences,
        predictive: bool,
        posteriors: np.ndarray | None = None,
        ends: np.ndarray | None = None,
    ) -> np.ndarray:
        """Log-likelihoods of sequences; probabilities of states are filled in if they are given."""
        q = self._predicting(ctx, predictive)
        found, energies = ctx.model.log_likelihoods(units, q, predictive, posteriors, ends)
        # Energies, unlike normalisers, also show densities that are not finite in some states only.
        finite(energies, _OVERFLOW)
        return finite(found, _OVERFLOW)
