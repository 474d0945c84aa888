"""Outcomes and covariates of the classes of a mixture that was fitted without them.

Three steps answer the question: a mixture is fitted, its rows are assigned to classes, and another
variable is compared between the classes. As some rows are assigned to a wrong class, differences
come out too small. With D_cs, the probability that a row of class c is assigned to s, two
corrections mend this:

- BCH (Bolck, Croon and Hagenaars [1]_, Vermunt [2]_) weighs the rows by the inverse of D. A row
  then counts for several classes, for some with a negative weight. It assumes no distribution.
- ML (Vermunt [2]_) fits a mixture again, in which the assignment is the only observed column, and D
  its known distribution. It is more precise, and needs the right distribution of an outcome.

All functions read responsibilities, as ``predict_proba`` or ``transform`` of a mixture returns.

References
----------
.. [1] Bolck, Croon, Hagenaars (2004). Estimating latent structure models with categorical
   variables: one-step versus three-step estimators. Political Analysis 12.
.. [2] Vermunt (2010). Latent class modeling with covariates: two improved three-step approaches.
   Political Analysis 18.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Bunch, check_array, check_consistent_length
from sklearn.utils.validation import column_or_1d

from ._compat import check_sample_weight
from ._stack import warn

__all__ = ["class_covariates", "distal_outcome"]

_CORRECTIONS = (None, "bch", "ml")
_ASSIGNMENTS = ("modal", "soft")
_DISTRIBUTIONS = ("gaussian", "bernoulli")
# Rounds of EM and of Newton's method, and the changes at which they have converged.
_ROUNDS, _NEWTON, _TOLERANCE = 5000, 100, 1e-10
# Coefficients are finite if this share of the information of equal probabilities is left.
_LEAST_INFORMATION = 1e-7
# D is inverted if its condition number is at most this.
_CONDITION = 1e6
_TINY = 1e-300
# A class has at least this variance of a standardised outcome.
_LEAST_VARIANCE = 1e-6
# Numbers above this have squares, or sums of them, that overflow.
_MOST = 1e100
_NOT_FINITE = (
    "The coefficients have no finite values: a covariate separates the classes, or the correction "
    "of few rows is too large. Fit the covariates with the mixture instead, fit(X, covariates=…), "
    "whose coefficients have a prior."
)


class _Assigned(NamedTuple):
    """Rows that are assigned to classes, one or several."""

    # The assignments, (n_rows, n_classes): one 1 in each row, or responsibilities.
    shares: np.ndarray
    errors: np.ndarray  # D_cs, (n_classes, n_classes)
    weights: np.ndarray  # (n_rows,)

    def corrected(self) -> np.ndarray:
        """Return the shares by BCH, which sum to 1 in each row and can be negative."""
        return np.asarray(np.linalg.solve(self.errors.T, self.shares.T).T)

    def log_likelihood(self) -> np.ndarray:
        """Return log p(assignment | class) of rows, (n_rows, n_classes)."""
        return np.asarray(self.shares @ np.log(np.maximum(self.errors, _TINY)).T)


def distal_outcome(
    responsibilities: ArrayLike,
    outcome: ArrayLike,
    *,
    correction: str | None = "bch",
    assignment: str = "modal",
    distribution: str = "gaussian",
    sample_weight: ArrayLike | None = None,
) -> Bunch:
    """Return the mean of an outcome in each class, corrected for errors of assignment.

    Rows are assigned to classes by a mixture that has not seen the outcome. The standard errors
    take the mixture as known.

    Parameters
    ----------
    responsibilities : array-like of shape (n_samples, n_classes)
        The probabilities of the classes, as ``predict_proba`` of a mixture returns them.
    outcome : array-like of shape (n_samples,)
        The values of the outcome, which has no missing values.
    correction : {"bch", "ml"} or None, default="bch"
        ``"bch"``: no distribution is assumed, and the estimates stay right if an outcome is skewed
        or its variances differ. ``"ml"``: the outcome has the ``distribution`` in each class. None:
        the means of the rows that are assigned, which are too near to each other.
    assignment : {"modal", "soft"}, default="modal"
        Each row belongs to its most probable class, or to all by their probabilities. ``"soft"``
        has no likelihood, so that ``"ml"`` refuses it.
    distribution : {"gaussian", "bernoulli"}, default="gaussian"
        Only for ``"ml"``: real numbers, with a variance in each class, or 0 and 1.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows. A weight of 2 counts a row twice, also in the standard errors, which
        are not those of the sampling weights of a survey.

    Returns
    -------
    outcome : :class:`~sklearn.utils.Bunch`
        ``mean`` and ``std``, of shape (n_classes,), the means and their standard errors, and
        ``covariance`` (n_classes, n_classes).

    Raises
    ------
    ValueError
        If an argument is refused, or if the classes overlap so far that no correction is possible.

    References
    ----------
    .. [1] Bakk, Tekle, Vermunt (2013). Estimating the association between latent class membership
       and external variables using bias-adjusted three-step approaches. Sociological Methodology
       43.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal.three_step import distal_outcome
    >>> sure = np.repeat(np.eye(2), 3, axis=0)
    >>> distal_outcome(sure, [1, 2, 3, 7, 8, 9]).mean
    array([2., 8.])
    """
    assigned = _assigned(responsibilities, correction, assignment, sample_weight)
    y = _outcome(outcome, assigned)
    if distribution not in _DISTRIBUTIONS:
        raise ValueError(f"distribution is one of {_DISTRIBUTIONS}, but got {distribution!r}.")
    if correction == "ml":
        if distribution == "bernoulli":
            if not np.isin(y, (0.0, 1.0)).all():
                raise ValueError("distribution='bernoulli' is for an outcome of 0 and 1.")
            return _described(*_means_by_likelihood(assigned, y, gaussian=False))
        # The scores of standardised values have comparable sizes, and so their information has an
        # inverse whatever the unit of the outcome is.
        center = np.average(y, weights=assigned.weights)
        spread = np.sqrt(np.average((y - center) ** 2, weights=assigned.weights)) or 1.0
        mean, covariance = _means_by_likelihood(assigned, (y - center) / spread, gaussian=True)
        return _described(center + spread * mean, spread**2 * covariance)
    shares = assigned.shares if correction is None else assigned.corrected()
    weights = shares * assigned.weights[:, None]
    totals = weights.sum(axis=0)
    mean = weights.T @ y / totals
    # The sandwich: the influence of every row on each mean, of which a weight counts copies.
    influence = shares * (y[:, None] - mean) / totals * np.sqrt(assigned.weights)[:, None]
    return _described(mean, influence.T @ influence)


def class_covariates(
    responsibilities: ArrayLike,
    covariates: ArrayLike,
    *,
    correction: str | None = "ml",
    assignment: str = "modal",
    reference: int | None = None,
    sample_weight: ArrayLike | None = None,
) -> Bunch:
    """Return the coefficients of covariates on which the class depends, by a multinomial logit.

    Rows are assigned to classes by a mixture that has not seen the covariates. ``fit(X,
    covariates=…)`` estimates both at once and is more precise; here, classes stay the same whatever
    the covariates are. The standard errors take the mixture as known.

    Parameters
    ----------
    responsibilities : array-like of shape (n_samples, n_classes)
        The probabilities of the classes, as ``predict_proba`` of a mixture returns them.
    covariates : array-like of shape (n_samples, n_covariates)
        Numbers without missing values.
    correction : {"bch", "ml"} or None, default="ml"
        None: rows belong to the class that they are assigned to, which makes coefficients too
        small.
    assignment : {"modal", "soft"}, default="modal"
        Each row belongs to its most probable class, or to all by their probabilities. ``"soft"``
        has no likelihood, so that ``"ml"`` refuses it.
    reference : int or None, default=None
        None: coefficients sum to zero over the classes. An integer: differences from those of this
        class.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows. A weight of 2 counts a row twice, also in the standard errors, which
        are not those of the sampling weights of a survey.

    Returns
    -------
    coefficients : :class:`~sklearn.utils.Bunch`
        ``intercepts`` (n_classes,), ``coefficients`` (n_classes, n_covariates), their standard
        errors ``intercepts_std`` and ``coefficients_std``, and ``covariance`` (n_classes, 1 +
        n_covariates, n_classes, 1 + n_covariates).

    Raises
    ------
    ValueError
        If an argument is refused, if the classes overlap so far that no correction is possible, or
        if a covariate separates classes, so that coefficients have no finite values.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal.three_step import class_covariates
    >>> sure = np.repeat(np.eye(2), 4, axis=0)
    >>> z = np.array([0, 0, 0, 1, 0, 1, 1, 1])[:, None]
    >>> found = class_covariates(sure, z, reference=0)
    >>> float(found.coefficients[1, 0].round(2)), round(float(2 * np.log(3)), 2)
    (2.2, 2.2)
    """
    assigned = _assigned(responsibilities, correction, assignment, sample_weight)
    Z = check_array(covariates, dtype=np.float64, input_name="covariates")
    check_consistent_length(assigned.shares, Z)
    _refuse_extreme(Z, "covariates")
    n_classes = assigned.shares.shape[1]
    base = _class_number(reference, n_classes)
    center = np.average(Z, axis=0, weights=assigned.weights)
    spread = np.sqrt(np.average((Z - center) ** 2, axis=0, weights=assigned.weights))
    if not (spread > 1e-10 * np.abs(center)).all():
        raise ValueError("A covariate is constant, so that it has no coefficient: leave it out.")
    u = np.column_stack([np.ones(len(Z)), (Z - center) / spread])
    if np.linalg.matrix_rank(u[assigned.weights > 0]) < u.shape[1]:
        raise ValueError(
            "Covariates are collinear: some are linear functions of the others, or there are more "
            "than rows, so that the coefficients are not determined. Leave some out."
        )
    values, covariance = _logit(assigned, u, correction)
    back = np.diag(np.append(1.0, 1.0 / spread))
    back[0, 1:] = -center / spread
    change = np.eye(n_classes) - 1.0 / n_classes
    if base is not None:
        change = np.eye(n_classes)
        change[:, base] -= 1.0
    # The last class is 0 in ``values``, whose shape is (n_classes − 1, 1 + n_covariates).
    change = change[:, :-1]
    values = change @ values @ back.T
    covariance = np.einsum("ka,pq,aqbr,sr,lb->kpls", change, back, covariance, back, change)
    std: Any = np.sqrt(np.maximum(np.einsum("kpkp->kp", covariance), 0.0))
    return Bunch(
        intercepts=values[:, 0],
        coefficients=values[:, 1:],
        intercepts_std=std[:, 0],
        coefficients_std=std[:, 1:],
        covariance=covariance,
    )


def _assigned(
    responsibilities: Any, correction: Any, assignment: Any, sample_weight: Any
) -> _Assigned:
    """Return the assignments of rows, and their errors, after all checks."""
    if correction not in _CORRECTIONS:
        raise ValueError(f"correction is one of {_CORRECTIONS}, but got {correction!r}.")
    if assignment not in _ASSIGNMENTS:
        raise ValueError(f"assignment is one of {_ASSIGNMENTS}, but got {assignment!r}.")
    if correction == "ml" and assignment == "soft":
        raise ValueError(
            "correction='ml' takes the assigned class for an observation, whose likelihood given "
            "the true class is known; soft assignments have none. Give assignment='modal', or "
            "correction='bch'."
        )
    R = check_array(responsibilities, dtype=np.float64, input_name="responsibilities")
    if (R < 0).any() or np.abs(R.sum(axis=1) - 1.0).max() > 1e-3:
        raise ValueError("responsibilities are probabilities of classes, which sum to 1 in a row.")
    if R.shape[1] == 1:
        raise ValueError("responsibilities have one class, so that there is nothing to compare.")
    weights = check_sample_weight(sample_weight, R, dtype=np.float64)
    if (weights < 0).any():
        raise ValueError("Negative values in data passed to sample_weight.")
    if not weights.any():
        raise ValueError("All weights of rows are zero: there is nothing to compare.")
    shares = R
    if assignment == "modal":
        shares = np.equal.outer(R.argmax(axis=1), np.arange(R.shape[1])).astype(np.float64)
    totals = weights @ R
    least = 1e-8 * weights[weights > 0].mean()
    if (weights @ shares < least).any() or (totals < least).any():
        empty = int(np.argmin(weights @ shares))
        raise ValueError(
            f"No row is assigned to class {empty}. Leave out its column, and divide the others by "
            "their sums, or give assignment='soft'."
        )
    errors = (R * weights[:, None]).T @ shares / totals[:, None]
    if correction is not None and np.linalg.cond(errors) > _CONDITION:
        raise ValueError(
            "Classes overlap so far that assignments say nothing about some of them: the matrix of "
            "errors has no inverse. Fit fewer classes."
        )
    return _Assigned(shares, errors, weights)


def _class_number(reference: Any, n_classes: int) -> int | None:
    """Return the number of the class of reference, after a check; None if there is none."""
    if reference is None:
        return None
    whole = isinstance(reference, Integral) and not isinstance(reference, bool)
    if not (whole and 0 <= int(reference) < n_classes):
        raise ValueError(
            f"reference is a class from 0 to {n_classes - 1}, or None; got {reference!r}."
        )
    return int(reference)


def _outcome(outcome: Any, assigned: _Assigned) -> np.ndarray:
    y = column_or_1d(outcome, dtype=np.float64)
    check_consistent_length(assigned.shares, y)
    if not np.isfinite(y).all():
        raise ValueError(
            "outcome has missing or infinite values. Leave these rows out of both arguments."
        )
    _refuse_extreme(y, "outcome")
    return np.asarray(y)


def _refuse_extreme(values: np.ndarray, name: str) -> None:
    if (np.abs(values) > _MOST).any():
        raise ValueError(f"{name} has numbers whose squares overflow. Change their unit.")


def _described(mean: np.ndarray, covariance: np.ndarray) -> Bunch:
    std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return Bunch(mean=mean, std=std, covariance=covariance)


def _means_by_likelihood(
    assigned: _Assigned, y: np.ndarray, gaussian: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Fit p(assignment, y) = Σ_c π_c D_cs p(y | c) by EM; the covariance is that of the scores."""
    w, known = assigned.weights, assigned.log_likelihood()
    r = assigned.shares
    before = -np.inf
    for _ in range(_ROUNDS):
        totals = w @ r
        share, mean = totals / totals.sum(), (r * w[:, None]).T @ y / totals
        if gaussian:
            apart = y[:, None] - mean
            variance = np.maximum(((r * apart**2).T @ w) / totals, _LEAST_VARIANCE)
            log_density = -0.5 * (apart**2 / variance + np.log(2.0 * np.pi * variance))
        else:
            inside = np.clip(mean, 1e-12, 1.0 - 1e-12)
            log_density = np.where(y[:, None] == 1.0, np.log(inside), np.log1p(-inside))
            variance = inside * (1.0 - inside)
        r, log_likelihood = _posterior(known + log_density + np.log(share))
        value = float(w @ log_likelihood)
        if value - before < _TOLERANCE * abs(value):
            break
        before = value
    apart = y[:, None] - mean
    scores = [r * apart / variance, (r - share)[:, :-1]]
    if gaussian:
        if (variance <= _LEAST_VARIANCE).any() and np.ptp(y) > 0:
            warn(
                f"The outcome is all but constant in class {int(np.argmin(variance))}. A Gaussian "
                "density has no limit there, so that means and standard errors say little. Give "
                "correction='bch', or distribution='bernoulli' for an outcome of 0 and 1."
            )
        scores.append(0.5 * r * (apart**2 / variance - 1.0))
    every = np.column_stack(scores)
    information = (every * w[:, None]).T @ every
    n = len(mean)
    return mean, np.linalg.pinv(information)[:n, :n]


def _logit(
    assigned: _Assigned, u: np.ndarray, correction: str | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients (K − 1, P) relative to the last class, and their covariance."""
    w, n_classes = assigned.weights, assigned.shares.shape[1]
    values = np.zeros((n_classes - 1, u.shape[1]))
    if correction != "ml":
        target = assigned.shares if correction is None else assigned.corrected()
        values = _newton(values, u, target, w)
        _refuse_separation(values, u, w)
        rest = (target - _probabilities(values, u))[:, :-1] * np.sqrt(w)[:, None]
        scores = np.einsum("nk,np->nkp", rest, u).reshape(len(u), -1)
        bread = np.linalg.inv(_information(_probabilities(values, u), u, w))
        covariance = bread @ (scores.T @ scores) @ bread
        return values, covariance.reshape(*values.shape, *values.shape)
    known, before = assigned.log_likelihood(), -np.inf
    for _ in range(_ROUNDS):
        r, log_likelihood = _posterior(known + np.log(np.maximum(_probabilities(values, u), _TINY)))
        value = float(w @ log_likelihood)
        if value - before < _TOLERANCE * abs(value):
            break
        before = value
        values = _newton(values, u, r, w)
    _refuse_separation(values, u, w)
    p = _probabilities(values, u)
    # The observed information: that of known classes, less what the classes leave open.
    information = _information(p, u, w) - _information(r, u, w)
    covariance = np.linalg.pinv(information)
    return values, covariance.reshape(*values.shape, *values.shape)


def _posterior(joint: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return p(class | row) and log p(row), given log p(class, row), (n_rows, n_classes)."""
    top = joint.max(axis=1, keepdims=True)
    density = np.exp(joint - top)
    sums = density.sum(axis=1, keepdims=True)
    return density / sums, (top + np.log(sums))[:, 0]


def _probabilities(values: np.ndarray, u: np.ndarray) -> np.ndarray:
    return _posterior(np.column_stack([u @ values.T, np.zeros(len(u))]))[0]


def _information(p: np.ndarray, u: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return Σ w (diag p − p pᵀ) ⊗ u uᵀ without the last class."""
    p = p[:, :-1]
    outer = np.einsum("nk,kl->nkl", p, np.eye(p.shape[1])) - np.einsum("nk,nl->nkl", p, p)
    found = np.einsum("n,nkl,np,nq->kplq", w, outer, u, u, optimize=True)
    size = p.shape[1] * u.shape[1]
    return np.asarray(found.reshape(size, size))


def _newton(values: np.ndarray, u: np.ndarray, target: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Maximise Σ w Σ_c t_c log p_c(u), which is concave, as the targets of a row sum to 1."""

    def height(values: np.ndarray) -> float:
        p = np.maximum(_probabilities(values, u), _TINY)
        return float(w @ (target * np.log(p)).sum(axis=1))

    now = height(values)
    for _ in range(_NEWTON):
        p = _probabilities(values, u)
        gradient = ((target - p)[:, :-1] * w[:, None]).T @ u
        step = np.linalg.lstsq(_information(p, u, w), gradient.ravel(), rcond=None)[0]
        step = step.reshape(values.shape)
        after, share = height(values + step), 1.0
        while after < now and share > 1e-6:
            share *= 0.5
            after = height(values + share * step)
        if after <= now:
            return values
        values, now = values + share * step, after
        if np.abs(values).max() > 50.0:
            break
        if np.abs(share * step).max() < 1e-9:
            return values
    raise ValueError(_NOT_FINITE)


def _refuse_separation(values: np.ndarray, u: np.ndarray, w: np.ndarray) -> None:
    """Refuse coefficients of which hardly any information is left, as they grow without a limit.

    Rounding ends their growth where all rows have probabilities of 0 and 1 in some direction. The
    information is compared with that of equally probable classes, so that units do not matter.
    """
    p = _probabilities(values, u)
    sizes, axes = np.linalg.eigh(_information(np.full_like(p, 1.0 / p.shape[1]), u, w))
    axes = axes / np.sqrt(sizes)
    if np.linalg.eigvalsh(axes.T @ _information(p, u, w) @ axes)[0] < _LEAST_INFORMATION:
        raise ValueError(_NOT_FINITE)
