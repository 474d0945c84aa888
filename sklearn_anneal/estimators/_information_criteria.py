"""The information criteria of fitted models, which are smaller for better ones."""

from __future__ import annotations

import numpy as np


def akaike_criterion(log_likelihood: float, n_parameters: int) -> float:
    """Return 2 p − 2 log L (Akaike, 1974), in which a parameter costs 1 nat of log L."""
    return float(2.0 * n_parameters - 2.0 * log_likelihood)


def bayesian_criterion(log_likelihood: float, n_parameters: int, n_observations: float) -> float:
    """Return p log N − 2 log L (Schwarz, 1978), in which a parameter costs log(N) / 2 nats."""
    return float(n_parameters * np.log(n_observations) - 2.0 * log_likelihood)
