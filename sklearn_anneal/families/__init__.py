"""Exponential families with their natural and standard parameters, expectations and divergences.

``natural`` always means the coordinates in which a conjugate update is *prior plus sufficient
statistics*; ``_base.py`` explains how they relate to the density.
"""

from __future__ import annotations

from ._base import (
    N_HALVINGS,
    Family,
    Natural,
    Tempering,
    UnitTemperatures,
    backoff,
    followed,
    mix,
    posterior,
    settled,
)
from ._divergence import (
    STRONG,
    deviance,
    digamma_excess,
    digamma_rising,
    gamma_divergence,
    gammaln_divergence,
    log_beta,
    log_beta_negative_binomial,
    log_multichoose,
    log_negative_binomial,
    log_poisson,
    log_rising,
)
from ._factors import Factor, Factors
from ._structure import Structure, get_structure
from .beta import Beta, ScaledBeta, stick_breaking_log_weights
from .dirichlet import (
    Dirichlet,
    DirichletColumns,
    PartialDirichlet,
    PooledDirichlet,
    RepeatedDirichlet,
    dirichlet_divergence,
)
from .gamma import Gamma, fast_standard_gamma, log_standard_gamma
from .gaussian import Gaussian, fast_normal
from .matrix_gaussian import MatrixGaussian
from .normal_wishart import NormalWishart
from .wishart import COVARIANCE_TYPES, FORMS, Wishart

__all__ = [
    "COVARIANCE_TYPES",
    "FORMS",
    "N_HALVINGS",
    "STRONG",
    "Beta",
    "Dirichlet",
    "DirichletColumns",
    "Factor",
    "Factors",
    "Family",
    "Gamma",
    "Gaussian",
    "MatrixGaussian",
    "Natural",
    "NormalWishart",
    "PartialDirichlet",
    "PooledDirichlet",
    "RepeatedDirichlet",
    "ScaledBeta",
    "Structure",
    "Tempering",
    "UnitTemperatures",
    "Wishart",
    "backoff",
    "deviance",
    "digamma_excess",
    "digamma_rising",
    "dirichlet_divergence",
    "fast_normal",
    "fast_standard_gamma",
    "followed",
    "gamma_divergence",
    "gammaln_divergence",
    "get_structure",
    "log_beta",
    "log_beta_negative_binomial",
    "log_multichoose",
    "log_negative_binomial",
    "log_poisson",
    "log_rising",
    "log_standard_gamma",
    "mix",
    "posterior",
    "settled",
    "stick_breaking_log_weights",
]
