"""Warnings about data and streams from which a fit cannot learn what its parameters request."""

from __future__ import annotations

import warnings

from .._stack import outer_level
from ..data.units import Units
from ._state import Inference


def warn_of_priors(inference: Inference) -> bool:
    """Warn, once, if priors keep their values that the data should have determined.

    Returns
    -------
    kept : bool
        Whether they do.
    """
    reason = inference.ctx.summary.why_kept(inference.ctx.model)
    if reason is not None and inference.first_time("priors"):
        warnings.warn(reason, UserWarning, stacklevel=outer_level())
    return reason is not None


def warn_of_light_data(inference: Inference, units: Units) -> None:
    """Warn if the data of a fit weigh too little for the priors that are to be learned."""
    light = units.n_observations < 1 and units.total_weight < 1
    # Optimizers of gradients take steps of one size whatever data weigh.
    if warn_of_priors(inference) or not light or inference.ctx.model.update_rule == "gradient":
        return
    warnings.warn(
        f"The sample weights sum to {units.total_weight:.2g}, but a weight is a number of copies: "
        "the fit sees less than one observation, stays near its priors, and learns none of them. "
        "Multiply sample_weight by a constant that makes its mean 1.",
        UserWarning,
        stacklevel=outer_level(),
    )


def warn_of_unfinished_stream(inference: Inference, temperature: float) -> None:
    """Warn, once, of the use of a stream whose schedule has not ended.

    If ``total_samples`` is far above the number of data points that come, it never ends.
    """
    if inference.first_time("annealing"):
        hot = f" at a temperature of {temperature:.3g}" if temperature > 1 else ""
        warnings.warn(
            f"The stream is used{hot} before its annealing schedule has ended: "
            f"{inference.seen:g} of total_samples={inference.ctx.summary.weight:g} have come, and "
            "the schedule ends after a tenth of them. If no more come, begin anew with "
            "total_samples as the number that do; set_params(total_samples=None) ends the schedule "
            "with the next partial_fit.",
            UserWarning,
            stacklevel=outer_level(),
        )
