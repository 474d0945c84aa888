"""Derivatives of draws with respect to the parameters of their distribution.

Such implicit derivatives give the exact gradient of structured stochastic VI.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np

# Controlled statistics are clipped at this multiple of the sum of the two given statistics.
_CEILING = 4.0


def log_gamma_derivative(log_value: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Differentiate the logarithm of a gamma variable by its shape, at a fixed quantile.

    Parameters
    ----------
    log_value : ndarray of any shape (...)
        Logarithms of gamma variables G of rate 1. G itself may be too small for a float.
    shape : ndarray of shape (...)
        Shape parameters a, positive.

    Returns
    -------
    ndarray of shape (...)
        d log G / da = -(dF/da)(G; a) / (G f(G; a)), with F the distribution function and f the
        density; positive. The relative error is below 1e-9 for shapes from 1e-3 to 1e7.

    References
    ----------
    Figurnov, Mohamed and Mnih (2018), Implicit reparameterization gradients, Eq. 5. Hoffman and
    Blei (2015), Structured stochastic variational inference, Eq. 23.
    """
    (result,) = _elementwise(_kernels().log_gamma_derivative, 1, log_value, shape)
    return result


def inverse_trigamma(argument: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 / psi'(a) and a - 1 / psi'(a), both with full relative accuracy.

    Parameters
    ----------
    argument : ndarray of any shape (...)
        Arguments a, positive.

    Returns
    -------
    inverse : ndarray of shape (...)
        1 / psi'(a), which is about a for large arguments and about a**2 for small ones.
    deficit : ndarray of shape (...)
        a - 1 / psi'(a), which rises from 0 at a = 0 to 1/2 at infinity.
    """
    inverse, deficit = _elementwise(_kernels().inverse_trigamma, 2, argument)
    return inverse, deficit


def controlled_statistics(
    multiply: Callable[[np.ndarray], np.ndarray], stats: np.ndarray, current: np.ndarray
) -> np.ndarray:
    """Return an estimate of V S with a smaller variance, kept in bounds.

    V is a random matrix whose expectation is I. For any C that does not depend on the draw,
    ``V S - (V - I) C`` has therefore the same expectation as V S. The noise of V has heavy tails;
    the closer C is to S, the less of this noise remains in the difference.

    Parameters
    ----------
    multiply : callable
        Maps an array of shape (...) to V times it.
    stats : ndarray of shape (...)
        Sufficient statistics S, not negative.
    current : ndarray of shape (...)
        C, not negative: the statistics that the variational parameters contain now.

    Returns
    -------
    ndarray of shape (...)
        C + V (S - C), clipped to between 0 and 4 (S + C). Apart from the clipping, its
        expectation is that of V S.
    """
    controlled = current + multiply(stats - current)
    return np.clip(controlled, 0.0, _CEILING * (stats + current))


def _kernels() -> ModuleType:
    from ..kernels import gamma

    return gamma


def _elementwise(kernel: Callable, n_results: int, *arguments: np.ndarray) -> list[np.ndarray]:
    """Run an elementwise kernel on arrays of one shape, and keep their memory order."""
    shape = np.shape(arguments[0])
    # Kernels read C-contiguous arrays. The transpose of a Fortran-ordered array is one, so that
    # such an array need not be copied.
    turned = arguments[0].flags.f_contiguous and not arguments[0].flags.c_contiguous
    rows = [
        np.ascontiguousarray(array.T if turned else array, dtype=float).reshape(1, -1)
        for array in arguments
    ]
    results = [np.empty(rows[0].shape) for _ in range(n_results)]
    kernel(*rows, *results)
    return [
        result.reshape(shape[::-1]).T if turned else result.reshape(shape) for result in results
    ]
