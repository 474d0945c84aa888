"""The settings that the suite compares, by their names.

To compare another one, add a line to ``SETTINGS``. Parameters that a line does not give keep their
defaults, and so do families that it does not name. A record holds a digest of what its line said,
so that a line which is changed is measured anew.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import sklearn_anneal

from ..common.priors import (
    PEER_OF_MIXTURES,
    PEER_OF_RATINGS,
    PEER_OF_SEQUENCES,
    PEER_OF_TABLES,
    PEER_OF_TOPICS,
)
from .instances import FAMILIES

ESTIMATORS: dict[str, Any] = {
    "mixture": sklearn_anneal.AnnealedBayesianGaussianMixture,
    "groups": sklearn_anneal.AnnealedBayesianGaussianMixture,
    "columns": sklearn_anneal.AnnealedBayesianMixture,
    "factorial": sklearn_anneal.AnnealedFactorialMixture,
    "counts": sklearn_anneal.AnnealedGammaProcessNMF,
    "factors": sklearn_anneal.AnnealedSpikeSlabFactorAnalysis,
    "sequence": sklearn_anneal.AnnealedHMM,
    "topics": sklearn_anneal.AnnealedLatentDirichletAllocation,
    "ratings": sklearn_anneal.AnnealedPMF,
}


def every(**parameters: Any) -> dict[str, dict[str, Any]]:
    """The same parameters for every family."""
    return {family: dict(parameters) for family in FAMILIES}


RESTARTS, MAX_ITER, TOL = 10, 100, 1e-6

_PRIORS: dict[str, dict[str, Any]] = {
    "mixture": PEER_OF_MIXTURES,
    "groups": PEER_OF_MIXTURES,
    "columns": PEER_OF_TABLES,
    # The values with which the class begins to learn.
    "counts": {"activation_prior": 0.1, "component_prior": 0.1, "concentration": 1.0},
    "sequence": PEER_OF_SEQUENCES | {"emissionprob_prior": None},
    "topics": PEER_OF_TOPICS,
    "ratings": PEER_OF_RATINGS,
}

# All is written out, so that peers stay as they are when a default changes: None is the prior of
# the class that ours replaces. Factorial mixtures and sparse factors have no usual priors: the
# variances that they learn have no customary values.
PLAIN: dict[str, dict[str, Any]] = {
    family: {
        "annealing": "none",
        "restarts": "full",
        "max_iter": MAX_ITER,
        "tol": TOL,
        **priors,
    }
    for family, priors in _PRIORS.items()
}
"""One start of plain inference, by family: the algorithm and the priors of the peers."""

TEN, HUNDRED = "ten plain starts", "a hundred plain starts"

SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "default": {},
    TEN: every(annealing="none", n_init=RESTARTS),
    HUNDRED: every(annealing="none", n_init=10 * RESTARTS),
    "plain": PLAIN,
    "stochastic": every(annealing="stochastic"),
    "usual covariances of frames": {"sequence": {"dof_prior": None, "scale_prior": None}},
    "ten starts from clusters": {
        "sequence": {"annealing": "none", "n_init": RESTARTS, "init_params": "kmeans"}
    },
    "given variances of loadings": {"factors": {"loading_variance": 1.0}},
    "an offset of the rows": {"factorial": {"center": True}},
    "given means of users and items": {"ratings": {"hierarchical": False}},
    "no implicit feedback": {"ratings": {"implicit_feedback": False}},
    "no scales of users": {"ratings": {"user_scales": False}},
}
"""Keyword arguments of our estimators, by the name of the setting and by family."""

PEER = "peer"
"""The name under which ten starts with the usual priors have their records."""

REFERENCES = (TEN, HUNDRED, PEER)
"""The references of comparisons: plain starts with the same priors as ours, and the peer."""


def is_ours(setting: str) -> bool:
    """Whether a contestant is a setting, and not something that settings are compared with."""
    return setting in SETTINGS and setting not in REFERENCES


# To be raised where plain inference, its learned priors or a peer change, so that old records of
# them do not count.
_REFERENCE_VERSION = "2"
# The same of families whose plain inference alone has changed since.
_REFERENCE_VERSIONS = {"counts": "3", "factors": "4", "ratings": "4"}


def has_peer(family: str) -> bool:
    """Whether a family has usual priors, and with them a peer."""
    return family in PLAIN


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
    of_references = _REFERENCE_VERSIONS.get(family, _REFERENCE_VERSION)
    if setting not in SETTINGS:
        return of_references
    digest = sha256(repr(sorted(parameters(setting, family).items())).encode()).hexdigest()[:8]
    return f"{digest}.{of_references}" if setting in REFERENCES else digest
