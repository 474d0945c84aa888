"""Streams: updates of an estimator with one batch after another."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from sklearn.utils import check_random_state

from ..annealing import Annealing, Context
from ..data.units import U
from ..inference import loop, streaming
from ..inference.kept import joined
from ..inference.messages import Messages, described
from ..inference.progress import Trace
from ..inference.replay import mixed, replay
from ..parallel.thread_limits import one_thread
from ..parallel.workers import Workers
from ..search.problem import prepare
from ..search.search import Plan, finite
from ._interface import D, Interface, M
from ._part_fits import stream
from ._shards import in_parts
from ._state import Inference, warn_of_priors, with_absent
from ._validation import checks_parameters

# Below these numbers of operations per update or pass, threads cost more time than they save.
WORTH_THREADS = {True: 1e7, False: 2e7}  # True: one restart, in chunks; False: several restarts
# Batches are not kept for a fit if it would take so many times the rows because weights are tiny.
_MOST_KEPT = 10


class Streams(Interface[D, U, M]):
    """Mixin of estimators that learn from the batches of a stream."""

    @checks_parameters
    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the model with one batch of a stream.

        Most models are fitted to all rows so far, as by ``fit`` with its annealing, whenever these
        have grown by a half, as long as they are kept. Batches that come before the first fit and
        between fits update the model by plain inference. Each fit determines its priors anew, and
        components keep the numbers of those that they resemble. A repeated fit that fails changes
        nothing, and the update with the batch remains. ``"structured"``, which has no schedule,
        runs in updates, too.

        - Mixtures, hidden Markov models, factorial mixtures and sparse factors: from 25 rows for
          each component on, and one for each component and column with full covariances, up to
          eight times as many. A random sample of that size is kept afterwards. The fit is repeated
          with it where later rows, or earlier ones, are predicted worse than expected, by 0.5 nats
          each or more, because other groups have come.
        - Topics and factorisations of counts: from two rows for each component on, up to 200. All
          that follow are updates, and nothing is kept.

        Nets keep random rows of the stream instead, as copies. Unless a schedule runs (see below),
        further steps with these follow each batch, and fill up batches of fewer rows than
        ``batch_size``: as many as ``fit`` makes for as many rows with ``max_iter`` passes. Once
        there are 32 rows for each unit of the largest hidden layer, and 6,400, at most half as many
        again are kept, and steps become fewer, down to one row that is seen again for each new one.
        In further passes over the ``total_samples`` rows of a stream it is one from the beginning.

        ``max_iter=1`` makes a stream of updates alone, which keeps nothing. The first batch fixes
        the priors that depend on data. The annealing schedule of such a stream, and of nets, runs
        within the first tenth of ``total_samples``, whatever its number of passes in ``fit`` is.
        Plain inference follows, so that one pass over the stream ends at T = 1, and further passes
        are plain. Without ``total_samples`` the length of the stream is unknown, and all updates
        are plain.

        If components coincide after fits or after the schedule, a warning says so; the check is
        repeated whenever the stream has doubled.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
            The batch. Parts, which are batches one after another, are
            :class:`~sklearn_anneal.Shards` or a collection of Dask.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. A batch of weight zero changes nothing. With data in parts, one
            array for each part.

        Returns
        -------
        self : estimator instance
            The updated estimator.

        Raises
        ------
        ValueError
            If the batch or a parameter is refused. Both are checked at every call, and the
            estimator remains as it was before the call.
        """
        with self._all_or_nothing():
            if in_parts(X):
                stream(self, X, y, sample_weight)
                return self
            return self._partial_fit(X, sample_weight)

    def _partial_fit(self, X: Any, sample_weight: ArrayLike | None) -> Self:
        first = not hasattr(self, "_inference")
        if not first:
            # A batch is read as the parameters say, which have to be those of the stream.
            self._checked_inference("partial_fit goes on with a stream")
        X = self._validate_data(X, reset=first, ensure_min_samples=1)
        # A later batch of weight zero is skipped, but a stream cannot begin with one.
        weights = self._check_weights(sample_weight, X, allow_nothing=not first)
        X, weights = self._present(X, weights)
        units = self._make_units(X, weights)
        if not first:
            self._check_parameters(X, units)
            if self._inference.kept is not None and self.max_iter > 1:
                # A new fit that is refused would count as one that fails, and change nothing.
                self._plan(self.annealing_, units)
        for batch in self._stream_batches(X, units):
            self._update(X, batch)
        self._warn_of_stream()
        if first:
            self._warn_of_scales(self._inference.ctx.summary)
        return self

    def _stream_batches(self, X: D, units: U) -> Iterable[U]:
        """The batches with which one call of ``partial_fit`` updates the model."""
        return (units,)

    def _update(self, X: D, units: U) -> None:
        """Update the fitted attributes with one batch of a stream, or begin a stream with it."""
        first, batch = not hasattr(self, "_inference"), units
        weight = units.total_weight
        messages = Messages(int(self.verbose), self.verbose_interval)
        if self.total_samples is not None and weight > self.total_samples * (1.0 + 1e-9):
            raise ValueError(
                f"total_samples={self.total_samples!r} is the number of data points of the whole "
                f"stream, or the sum of their weights, but this batch alone has {weight:g}. Give "
                "the whole number, or None if it is not known."
            )
        if first:
            inference, method = self._opened(X, units)
            if self.verbose:
                what = f"{described(self)} · {self._method_of_stream(inference, method)}"
                messages.say(f"{what} · first batch of {self._words_for(units)}")
        elif units.is_empty:
            return
        else:
            inference, method, units = self._resumed(X, units)
            if self.verbose and inference.follows_fit:
                messages.say(f"fitted to {self._words_for(units)}")
        follows_fit = inference.follows_fit
        bound, temperature = self._run_update(inference, units)
        if self._may_fit_again(inference):
            assert inference.kept is not None
            why = "others come now" if inference.kept.is_sample else "the stream has grown"
            try:
                again = self._fitted_again(X, inference)
                bound, temperature = self._run_update(again[0], again[2])
            except (np.linalg.LinAlgError, ValueError) as error:
                # A sample can be ill-defined where all the data are not. The update remains.
                inference.kept = inference.kept.failed(inference.ctx.rng)
                if self.verbose:
                    messages.say(f"a new fit failed, and the update remains: {error}")
            else:
                inference, method, units = again
                follows_fit = True
                if self.verbose:
                    messages.say(f"fitted anew to {self._words_for(units)}, because {why}")
        inference.annealed += inference.strategy.is_annealing(inference.ctx.state)
        nothing = np.empty(0)
        bounds = np.append(nothing if first else self.lower_bounds_, [bound])
        temperatures = np.append(nothing if first else self.temperatures_, [temperature])
        # If the method did not evaluate the bound at this call, the last value is kept.
        final = bound if first or np.isfinite(bound) else self.lower_bound_
        trace = Trace(list(bounds), list(temperatures), final=final)
        self._keep(inference, method, trace)
        self._complete_update(batch, units, follows_fit)
        messages.after_batch(len(bounds), temperature, bound, inference.seen, self.total_samples)

    def _method_of_stream(self, inference: Inference, method: Annealing) -> str:
        """Describe the method of the fits of a stream, or that of its updates if it has none."""
        runs = inference.strategy if inference.kept is None else method
        return "plain updates" if runs is loop.PLAIN else described(runs)

    def _complete_update(self, batch: U, units: U, follows_fit: bool) -> None:
        """Set the fitted attributes that are computed from the data of a stream again.

        ``units`` are the batch, or, if a fit was made, the data of the fit.
        """

    def _run_update(self, inference: Inference, units: U) -> tuple[float, float]:
        """Update the parameters in place; return the lower bound and the temperature."""
        ctx, weight = inference.ctx, units.total_weight
        known = ctx.model, inference.strategy, ctx.summary, inference.seen
        represented = streaming.represented_weight(*known, self.total_samples)
        ctx.summary = replace(ctx.summary, weight=represented)
        # A data point of a stream may be seen only once. Without exploring, its local variables
        # get as many iterations as they need.
        ctx.exploring = False
        settings = self._settings(units)
        if inference.replayed is not None:
            kept = inference.replayed.added(units, self._passes_of_rows(inference), ctx.rng)
            inference.replayed, units = mixed(kept, units, settings, ctx.rng)
        ctx.scale = represented / units.total_weight
        with Workers(self._jobs_for(ctx, units)) as workers:
            if inference.follows_fit:
                found = streaming.adopt(ctx, units.centered(ctx.summary), workers)
            else:
                found = streaming.update(
                    ctx,
                    inference.strategy,
                    units.centered(ctx.summary),
                    settings.after_fit() if inference.fitted else settings,
                    workers,
                    share=None if self.total_samples is None else weight / self.total_samples,
                    seen=inference.seen,
                )
            if inference.replayed is not None:
                inference.replayed = replay(ctx, inference.replayed, settings, workers)
            # Later updates cannot repair parameters that are not finite.
            if not finite(ctx.q):
                raise np.linalg.LinAlgError("parameters that are not finite")
        if inference.kept is not None and inference.fitted:
            inference.kept = inference.kept.updated(units, found.bound_of_batch)
        return found.lower_bound, found.temperature

    def _passes_of_rows(self, inference: Inference) -> int:
        """The number of times that rows of a stream are seen if the model sees them again.

        One row is seen again for each that comes after a whole stream, in further passes over it.
        """
        total = self.total_samples
        passed = total is not None and inference.seen > total * (1.0 + 1e-9)
        return min(self.max_iter, 2) if passed else self.max_iter

    def _resumed(self, X: D, units: U) -> tuple[Inference, Annealing, U]:
        """The stream before an update, its method, and the data points of the update.

        These are the batch, or all of the stream if they are enough for a fit with which it begins
        anew.
        """
        inference = copy.copy(self._inference)
        inference.ctx = ctx = inference.context()
        if self.total_samples is None:
            inference.strategy = without_schedule(inference.strategy)
        ctx.summary = ctx.summary.merge(ctx.model.summary(units))
        inference.seen += units.total_weight
        if inference.kept is None or inference.kept.is_over:
            inference.kept = None
            return inference, self.annealing_, units
        kept = inference.kept = inference.kept.added(units)
        if inference.fitted:
            return inference, self.annealing_, units
        least = ctx.model.least_weight_of_fit(ctx.summary)
        if inference.seen < least or self.max_iter <= 1:  # A larger number can be set again.
            inference.kept = kept if kept.n_weighed <= _MOST_KEPT * least else None
            return inference, self.annealing_, units
        return self._begun_anew(X, inference)

    def _begun_anew(self, X: D, inference: Inference) -> tuple[Inference, Annealing, U]:
        """The stream after a fit to the data that were kept, its method, and these data."""
        assert inference.kept is not None
        units = joined(inference.kept.batches)
        opened, method = self._opened(X, units, inference)
        return opened, method, units

    def _may_fit_again(self, inference: Inference) -> bool:
        """Whether the stream is fitted anew, because it has grown or because others come.

        If more data have come than are kept, the last batches, once they are enough, and some old
        rows are compared with the last fit.
        """
        kept, ctx = inference.kept, inference.ctx
        if kept is None or not kept.is_due:
            return False
        if self.max_iter <= 1:  # A larger number can be set again.
            inference.kept = kept.reduced(ctx.rng)
            return False
        if not kept.is_sample:
            return True
        some = kept.some(ctx.rng)
        bound = streaming.bound_of(ctx, some.centered(ctx.summary))
        falls, inference.kept = kept.compared(some, bound, self.n_features_in_, ctx.rng)
        return falls

    def _fitted_again(self, X: D, inference: Inference) -> tuple[Inference, Annealing, U]:
        """Begin a stream anew, with components in the order of those that they resemble most."""
        opened, method, units = self._begun_anew(X, inference)
        shares = [
            each.model.shares_of_components(units.centered(each.summary), each.q)
            for each in (inference.ctx, opened.ctx)
        ]
        ctx, model = opened.ctx, opened.ctx.model
        order = linear_sum_assignment(shares[0].T @ shares[1], maximize=True)[1]
        # Components keep the order of the fit where their numbers mean something.
        if model.exchangeable(ctx.prior, order):
            ctx.model, ctx.prior, ctx.q = model.reordered(ctx.q, ctx.prior, order)
        return opened, method, units

    @contextmanager
    def _workers_for(self, ctx: Context, units: U) -> Iterator[Workers]:
        """Workers for predictions."""
        self._load_kernels()
        with one_thread(), Workers(self._jobs_for(ctx, units)) as workers:
            yield workers

    def _jobs_for(self, ctx: Context, units: U) -> int | None:
        """``n_jobs``, or 1 if one look at the data points takes too little time for threads."""
        return self.n_jobs if ctx.model.operations(units) >= WORTH_THREADS[True] else 1

    def _opened(
        self, X: D, units: U, earlier: Inference | None = None
    ) -> tuple[Inference, Annealing]:
        """The start of a stream, and the method for the attribute ``annealing_``.

        A stream that had begun ``earlier`` had no schedule, and gets none if its length is known by
        now.
        """
        if self._chooses_number:
            raise ValueError(
                "n_components='auto' compares fits with several numbers of components, and so "
                "needs all data at once. Give a number of components, or begin with fit."
            )
        # The method is checked with the model of a fit as well, so that a stream is not begun with
        # parameters with which no fit can be made.
        model_of_fit = self._make_model(X, units)
        strategy_of_fit = self._strategy(model_of_fit)
        model = self._make_model_of_stream(X, units)
        strategy = self._strategy(model)
        self._check_first_batch(units, model)
        self._load_kernels()
        seen = units.total_weight
        if earlier is not None and earlier.fitted:  # The data are a sample of those so far.
            seen = earlier.seen
        random_state = check_random_state(self.random_state)
        least = self._least_weight_of_fit(model, units)
        # Fits anneal by themselves, and a schedule would have to run twice.
        unscheduled = earlier is not None or self.total_samples is None or least < np.inf
        runs = without_schedule(strategy) if unscheduled else strategy
        # A stream is not begun with what a fit would refuse later.
        plan = self._plan(strategy_of_fit, units) if least < np.inf else None
        kept = None if earlier is None else earlier.kept
        if seen >= least:
            assert plan is not None
            fit = model_of_fit, strategy_of_fit, plan
            ctx, strategy = self._fitted_to_kept_rows(*fit, runs, units, random_state)
        else:
            how = model, runs, units, self._settings(units), random_state
            given = self._start_for(model, runs)
            problem, start = prepare(*how, stream=(seen, self.total_samples), given=given)
            progress = problem.open(0, start)
            ctx, runs = progress.ctx, progress.strategy
            kept = streaming.nothing_kept(model).added(units) if least < np.inf else None
        inference = Inference(ctx, runs, seen, self._fixed_parameters(), kept=kept)
        if seen >= least:
            n_first = ceil(least * units.n_rows / units.n_weighed)
            kept = streaming.nothing_kept(model, units.n_rows) if kept is None else kept
            inference.kept, inference.fitted = kept.fitted(units, n_first, ctx.rng), True
        if self.max_iter > 1:
            inference.replayed = streaming.nothing_replayed(model, runs)
        if earlier is not None:
            inference.checked, inference.warned = earlier.checked, earlier.warned
        return inference, strategy if unscheduled else runs

    def _least_weight_of_fit(self, model: M, units: U) -> float:
        """The weight from which on a stream is fitted to its data, or infinity if it never is."""
        return streaming.least_weight_of_fit(model, units) if self.max_iter > 1 else np.inf

    def _fitted_to_kept_rows(
        self,
        model: M,
        strategy: Annealing,
        plan: Plan,
        runs: Annealing,
        units: U,
        random_state: np.random.RandomState,
    ) -> tuple[Context, Annealing]:
        """Fit the model as ``fit`` does; return the context and the method with all its settings.

        The clocks of the context are at their beginning. ``runs`` is what the updates of the stream
        run of the ``strategy``.
        """
        found = self._start_anew(model, strategy, plan, units, None, None, random_state)
        ctx = self._context_of_stream(found.kept.ctx, units)
        blank = replace(ctx, state={"updates": 0, "passes": 0.0})
        ctx.state = blank.state | runs.initial_state(blank)
        return ctx, found.strategy

    def _context_of_stream(self, ctx: Context, units: U) -> Context:
        """The context with which a stream goes on, given that of a fit and its data."""
        ctx = with_absent(ctx)
        ctx.model = self._model_of_stream(ctx.model)
        return ctx

    def _warn_of_stream(self) -> None:
        """Warn of components that coincide after the schedule of a stream.

        The check compares all pairs of components, and would take most of the time of calls with
        small batches. It is therefore repeated only when the weight of the data has doubled.
        """
        inference = self._inference
        warn_of_priors(inference)
        if not inference.is_annealing and inference.seen >= 2.0 * inference.checked:
            self._inference = replace(inference, checked=inference.seen)
            self._warn_of_coincidence(inference.ctx)


def without_schedule(strategy: Annealing) -> Annealing:
    """Plain inference, or the method itself if it has no schedule and runs throughout."""
    return loop.PLAIN if strategy.finish else strategy
