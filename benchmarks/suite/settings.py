"""The settings that the suite compares, by their names.

To compare another one, add a line to ``SETTINGS``. Parameters that a line does not give keep their
defaults, and so do families that it does not name. A record holds a digest of what its line said,
so that a line which is changed is measured anew.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedFactorialMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    AnnealedSpikeSlabFactorAnalysis,
)

from .instances import FAMILIES

ESTIMATORS: dict[str, Any] = {
    "mixture": AnnealedBayesianGaussianMixture,
    "groups": AnnealedBayesianGaussianMixture,
    "columns": AnnealedBayesianMixture,
    "factorial": AnnealedFactorialMixture,
    "counts": AnnealedGammaProcessNMF,
    "factors": AnnealedSpikeSlabFactorAnalysis,
    "sequence": AnnealedHMM,
    "topics": AnnealedLatentDirichletAllocation,
    "ratings": AnnealedPMF,
}


def every(**parameters: Any) -> dict[str, dict[str, Any]]:
    """The same parameters for every family."""
    return {family: dict(parameters) for family in FAMILIES}


RESTARTS, MAX_ITER, TOL = 10, 100, 1e-6

_OF_GAUSSIANS = (
    "weight_concentration_prior",
    "mean_precision_prior",
    "mean_prior",
    "degrees_of_freedom_prior",
    "covariance_prior",
)
_PRIORS: dict[str, tuple[str, ...]] = {
    "mixture": _OF_GAUSSIANS,
    "groups": _OF_GAUSSIANS,
    "columns": ("weight_concentration_prior", "emissionprob_prior"),
    # No other library has these models, so that there are no other priors.
    "factorial": (),
    "counts": (),
    "factors": (),
    "sequence": (
        "startprob_prior",
        "transmat_prior",
        "emissionprob_prior",
        "means_prior",
        "beta_prior",
        "dof_prior",
        "scale_prior",
    ),
    "topics": ("doc_topic_prior", "topic_word_prior"),
    "ratings": ("noise_variance", "factor_variance", "bias_variance"),
}

# All is written out, so that peers stay as they are when a default changes: None is the prior of
# the class that ours replaces.
PLAIN: dict[str, dict[str, Any]] = {
    family: {
        "annealing": "none",
        "restarts": "full",
        "max_iter": MAX_ITER,
        "tol": TOL,
        **dict.fromkeys(priors),
    }
    for family, priors in _PRIORS.items()
}
"""One start of plain inference, by family: the algorithm and the priors of the peers."""

SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "default": {},
    "plain": every(annealing="none"),
    "ten starts": every(annealing="none", n_init=RESTARTS),
    "a hundred starts": every(annealing="none", n_init=10 * RESTARTS),
    "plain, usual priors": PLAIN,
    "stochastic": every(annealing="stochastic"),
    "effort 10": every(effort=10.0),
    "race": every(n_init=RESTARTS, restarts="race"),
    "deterministic": every(annealing="deterministic"),
    "both priors of topics learned": {"topics": {"topic_word_prior": "auto"}},
    "all variances learned": {"ratings": {"factor_variance": "auto"}},
    "all priors of frames learned": {"sequence": {"emissionprob_prior": "auto"}},
}
"""Keyword arguments of our estimators, by the name of the setting and by family."""

REFERENCE = "peer"
"""The name under which the peer of a family has its records: ten starts at the usual priors."""

TEN, HUNDRED = "ten starts", "a hundred starts"
"""Plain inference of our own classes with the same priors as the default, learned ones included."""

PACKAGES = {"EM": "sklearn", "ten EM": "sklearn", "random-swap EM": "sklearn"}
PACKAGES |= {"split-and-merge EM": "sklearn", "hmmlearn": "hmmlearn", "cmfrec": "cmfrec"}
"""The package that each other contestant needs."""

# To be raised where the fit of a peer changes, so that old records of it do not count.
_PEER_VERSION = "1"


def parameters(setting: str, family: str) -> dict[str, Any]:
    """The keyword arguments of a setting for a family.

    Raises
    ------
    ValueError
        If the setting is unknown, or gives a parameter that the estimator does not have.
    """
    if setting not in SETTINGS:
        raise ValueError(f"There is no setting {setting!r}; there are {sorted(SETTINGS)}.")
    unknown_families = set(SETTINGS[setting]) - set(FAMILIES)
    if unknown_families:
        raise ValueError(f"The setting {setting!r} is for unknown families: {unknown_families}.")
    found = SETTINGS[setting].get(family, {})
    known = ESTIMATORS[family]().get_params(deep=False)
    for name in found:
        if name not in known:
            raise ValueError(
                f"The setting {setting!r} gives {name!r}, which {ESTIMATORS[family].__name__} "
                "does not have."
            )
    return found


def version(setting: str, family: str) -> str:
    """A digest of what a setting means for a family, or the version of a peer."""
    if setting not in SETTINGS:
        return _PEER_VERSION
    return sha256(repr(sorted(parameters(setting, family).items())).encode()).hexdigest()[:8]
