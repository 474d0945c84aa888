"""Structured stochastic variational inference."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from sklearn.utils._param_validation import Interval, StrOptions

from ..families import Natural
from ._base import AUTO, LEARNING_RATE, N_PASSES, Annealing, Context, DampedMixin, State


class StructuredVI(DampedMixin, Annealing):
    """Structured stochastic VI: the local step sees a draw of the global parameters.

    β ~ q(β) is drawn anew for every update, so that the local variables keep their dependence on
    the global parameters (Hoffman & Blei [1]_). Otherwise the method is stochastic VI with the step
    size ``learning_rate``, in batch mode too. A fit of topics to all documents at once even
    integrates topics and proportions out, and draws the topics of tokens. With fewer than 8,192
    documents it also moves whole topics after 40 passes, and again after 50 if something moved: two
    topics become one, and a third is divided, where this clearly raises the joint probability of
    words and topics of tokens. Nothing moves if topics have priors of their own, as they have once
    these are learned: by default, a fit of at most 160 passes has no moves.

    Plain inference does not follow its passes, because it would undo the gain of the method. The
    estimator's ``max_iter`` and ``tol`` therefore have no effect. The local steps do not yield the
    lower bound of q. It is evaluated by an extra pass every ``evaluate_every`` passes and at the
    end, and is NaN for the passes between.

    Parameters
    ----------
    gradient : {"auto", "approximate", "exact"}, default="auto"
        ``"approximate"`` (SSVI-A in the paper) uses the statistics as they are. ``"exact"`` (SSVI)
        multiplies them by the matrix V of Eq. 8 of the paper, which not all models provide.
    n_passes : int or "auto", default="auto"
        Number of passes over the data, or the largest one if ``tol`` is above 0.
    learning_rate : float, "decay" or "auto", default="auto"
        The step size ρ: a number in (0, 1], or ``"decay"`` for (τ + t)^(−κ), with the estimator's
        ``learning_offset`` τ and ``learning_decay`` κ. A number is the step size of updates from
        all data. An update from a share w of the data has the decaying step size, but at least w ρ
        / (w ρ + 1 − ρ): the weight of new data relative to earlier data is then in proportion to
        the share. Parameters therefore go on moving among good solutions, and are averages over
        about one pass whatever the size of the batches is. 1 keeps nothing of earlier data, and is
        refused in minibatches and streams.
    evaluate_every : int or "auto", default="auto"
        Number of passes between two evaluations of the lower bound.
    average : bool or "auto", default="auto"
        Whether the fit returns a mean of the parameters after its passes instead of the last
        ones. It leaves out the first ten passes, and the last fifth counts most (polynomial-decay
        averaging, Shamir and Zhang [2]_). It suits large steps, after which the parameters are as
        random as one draw. A fit of at most ten passes, and a stream, which has no passes, have
        the last parameters in any case.
    learn_priors_after : float or "auto", default="auto"
        The share of the passes after which learned priors begin to change. Early learning favours
        components that have slightly more data by chance; late learning leaves few passes at the
        learned priors.
    tol : float or "auto", default="auto"
        A fit to all data at once that returns a mean (``average``) ends before ``n_passes`` if that
        mean hardly changes: if the Kullback-Leibler divergence between q with the mean so far and q
        with the mean after three quarters of these passes is below ``tol``, in nats per
        observation. The passes before learned priors begin to change do not count. With 0 all
        passes are made, which is ``"auto"`` except where topics are sampled.

    References
    ----------
    .. [1] Hoffman, Blei (2015). Structured stochastic variational inference. AISTATS.
    .. [2] Shamir, Zhang (2013). Stochastic gradient descent for non-smooth optimization:
       convergence results and optimal averaging schemes. ICML, section 4.

    Examples
    --------
    >>> from sklearn_anneal.annealing import StructuredVI
    >>> StructuredVI(n_passes=200)
    StructuredVI(n_passes=200)
    """

    _parameter_constraints: dict = {
        "gradient": [StrOptions({"auto", "approximate", "exact"})],
        "n_passes": N_PASSES,
        "learning_rate": LEARNING_RATE,
        "evaluate_every": [Interval(Integral, 1, None, closed="left"), AUTO],
        "average": ["boolean", AUTO],
        "learn_priors_after": [Interval(Real, 0, 1, closed="both"), AUTO],
        "tol": [Interval(Real, 0, None, closed="left"), AUTO],
    }
    _defaults = {
        "gradient": "approximate",
        "n_passes": 100,
        "learning_rate": "decay",
        "evaluate_every": 10,
        "average": False,
        "learn_priors_after": 0.5,
        "tol": 0.0,
    }

    finish = False
    exact_bound = False
    holds_units = False

    def __init__(
        self,
        gradient="auto",
        n_passes="auto",
        learning_rate="auto",
        evaluate_every="auto",
        average="auto",
        learn_priors_after="auto",
        tol="auto",
    ):
        self.gradient = gradient
        self.n_passes = n_passes
        self.learning_rate = learning_rate
        self.evaluate_every = evaluate_every
        self.average = average
        self.learn_priors_after = learn_priors_after
        self.tol = tol

    def check_minibatches(self) -> None:
        if self.learning_rate == 1:
            raise ValueError(
                "StructuredVI(learning_rate=1) keeps nothing of earlier data, so that each "
                "minibatch would replace all that was learned before. Give a smaller number, "
                "'decay' or 'auto', or fit to all data at once."
            )

    def minibatch_step(self, decaying: float, share: float) -> float:
        if self.learning_rate == "decay":
            return decaying
        # The weights of what is new and of what is kept, in an update from all data.
        new, kept = float(self.learning_rate), 1.0 - float(self.learning_rate)
        return max(decaying, share * new / (share * new + kept))

    @property
    def returns_mean(self) -> bool:  # type: ignore[override]
        return bool(self.average)

    @property
    def tol_of_mean(self) -> float:  # type: ignore[override]
        return float(self.tol)

    @property
    def needs(self) -> tuple[str, ...]:
        exact = ("exact_gradient_statistics",) if self.gradient == "exact" else ()
        return ("draws", *exact)

    @property
    def moves_absent_alike(self) -> bool:  # type: ignore[override]
        return self.gradient == "approximate"

    def is_annealing(self, state: State) -> bool:
        return True

    def visit_options(self, ctx: Context) -> dict[str, Any]:
        return {"rng": ctx.rng}

    def target(self, ctx: Context, target: Natural, stats: Natural, visited: Any) -> Natural:
        if self.gradient == "approximate":
            return target
        # The target with the usual statistics may be that of a longer step, which this is not.
        exact = visited.visit.exact_gradient_statistics(ctx.q, ctx.prior, stats)
        return {key: ctx.prior[key] + exact[key] for key in target}
