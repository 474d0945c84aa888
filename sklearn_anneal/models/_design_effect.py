"""The design effect of sequences: how many frames say as much as one independent frame.

A hidden Markov model takes the frames of a state for independent draws. Those of one sequence often
resemble each other more, for example because each sequence has a level of its own. With the
correlation ρ of two frames of the same sequence and state, n such frames say as much about the
state in other sequences as n / (1 + (n − 1) ρ) independent ones. Predictions of new sequences would
be far too certain if they counted all n.

References
----------
Kish (1965), Survey Sampling, section 5.4 for the design effect; Donner (1986), A review of
inference procedures for the intraclass correlation coefficient, for its estimate from an analysis
of variance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..data.units import Sequences
from ..families import Natural
from .components.gaussian import GaussianComponents

if TYPE_CHECKING:
    from .hidden_markov import HiddenMarkov

# Fewer frames of a state than this are no visit of a sequence.
_LEAST_FRAMES = 1e-6


def has_design_effect(model: HiddenMarkov) -> bool:
    """Whether the design effect of the emission is known: that of Gaussian frames is."""
    return isinstance(model.emission, GaussianComponents)


def moments_of_sequences(model: HiddenMarkov, q: Natural, units: Sequences) -> np.ndarray:
    """Return the sums from which :func:`design_effect` follows, of shape (n_components, D + 5).

    They are additive over sequences. Frames count by the probabilities of their states, and are
    standardised by the scale of the state. Those with missing cells do not count. With n frames of
    a state in a sequence, and s their sum, the columns are Σ n, Σ n², Σ min(n, 1), the sum of
    squared norms, Σ ‖s‖² / n and Σ s. A part of the sequences is in memory at a time.
    """
    assert isinstance(model.emission, GaussianComponents)
    found = np.zeros((model.n_components, model.emission.n_features + 5))
    for part in model.parts(units):
        found += _moments(model, q, units.take(part))
    return found


def _moments(model: HiddenMarkov, q: Natural, units: Sequences) -> np.ndarray:
    assert isinstance(model.emission, GaussianComponents)
    k, d = model.n_components, model.emission.n_features
    shares = np.empty((len(units.frames), k))
    model.log_likelihoods(units, q, True, shares)
    rows = units.rows()
    complete = np.ones(rows.n_units, dtype=bool)
    for absent in (units.missing, None if rows.patterns is None else rows.patterns != 0):
        if absent is not None:
            complete &= ~absent
    shares *= complete[:, None]
    weights = np.ones(units.n_units) if units.weights is None else units.weights
    filled = units.lengths > 0
    weights, first = weights[filled], units.indptr[:-1][filled]
    frames = np.where(complete[:, None], rows.X - rows.center, 0.0)
    _, means, scales = model.emission.student_t(q)
    found = np.zeros((k, d + 5))
    for own, share, mean, scale in zip(found, shares.T, means, scales, strict=True):
        z = np.linalg.solve(np.linalg.cholesky(scale), (frames - mean).T).T
        n = np.add.reduceat(share, first)
        sums = np.add.reduceat(share[:, None] * z, first)
        squares = np.add.reduceat(share * (z * z).sum(axis=1), first)
        visits = n > _LEAST_FRAMES
        between = np.zeros(len(n))
        between[visits] = (sums[visits] ** 2).sum(axis=1) / n[visits]
        each = np.column_stack([n, n * n, np.minimum(n, 1.0), squares, between, sums])
        own += weights @ each
    return found


def design_effect(moments: np.ndarray) -> float:
    """Return the design effect, at least 1, from the sums over all sequences.

    One correlation is estimated for all states, by the mean squares between and within sequences.
    It is 0 if no state is in two sequences.
    """
    n, squares_of_n, visits, total, between = moments[:, :5].T
    used = n > _LEAST_FRAMES
    d = moments.shape[1] - 5
    of_mean = (moments[used, 5:] ** 2).sum(axis=1) / n[used]
    n_frames, dof_between = n.sum(), np.maximum(visits[used] - 1.0, 0.0).sum()
    dof_within = n_frames - visits.sum()
    within = (total - between).sum()
    if min(dof_between, dof_within) < 1.0 or not within > 0:
        return 1.0
    mean_between = max((between[used] - of_mean).sum(), 0.0) / (d * dof_between)
    mean_within = within / (d * dof_within)
    typical = (n[used] - squares_of_n[used] / n[used]).sum() / dof_between
    correlation = (mean_between - mean_within) / (mean_between + (typical - 1.0) * mean_within)
    size = squares_of_n.sum() / n_frames
    return float(1.0 + max(size - 1.0, 0.0) * min(max(correlation, 0.0), 1.0))


def discounted(model: HiddenMarkov, q: Natural, prior: Natural, effect: float) -> Natural:
    """Return the posterior of which each frame counts only 1 / ``effect`` for its state."""
    if effect == 1.0:
        return q
    keys = model.emission.keys
    return q | {key: prior[key] + (q[key] - prior[key]) / effect for key in keys}
