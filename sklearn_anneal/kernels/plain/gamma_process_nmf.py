"""Element-wise steps of the activations of dense rows, between products of matrices."""

from __future__ import annotations

import numpy as np
from scipy.special import psi

from .counts import TINY


def activation_powers(out: np.ndarray, shape: np.ndarray, local: float) -> None:
    """``out = exp{x ψ(shape)}``."""
    values = psi(shape)
    if local != 1.0:
        values *= local
    np.exp(values, out=out, casting="same_kind")


def ratios(predicted: np.ndarray, x: np.ndarray) -> None:
    """Replace predictions by quotients x / prediction; missing cells (NaN) give 0."""
    predicted += predicted.dtype.type(TINY[predicted.itemsize])
    np.divide(x, predicted, out=predicted)
    predicted[np.isnan(x)] = 0.0
