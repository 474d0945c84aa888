"""Priors of the estimators that the benchmarks measure.

The pages compare with other packages, whose models have these priors. The
estimators learn priors by default, so that the benchmarks give None, which selects the values of
the peers.
"""

from __future__ import annotations

from typing import Any

_OF_GAUSSIANS = ("means_prior", "beta_prior", "dof_prior", "scale_prior")

PEER_OF_MIXTURES: dict[str, Any] = dict.fromkeys(
    (
        *("weight_concentration_prior", "mean_precision_prior", "mean_prior"),
        *("degrees_of_freedom_prior", "covariance_prior"),
    )
)
PEER_OF_TABLES: dict[str, Any] = dict.fromkeys(
    (
        *("weight_concentration_prior", "emissionprob_prior", "lambdas_prior", "lambdas_weight"),
        *_OF_GAUSSIANS,
    )
)
PEER_OF_SEQUENCES: dict[str, Any] = dict.fromkeys(
    ("startprob_prior", "transmat_prior", *_OF_GAUSSIANS)
)
PEER_OF_TOPICS: dict[str, Any] = dict.fromkeys(("doc_topic_prior", "topic_word_prior"))
VARIANCES_OF_RATINGS = ("noise_variance", "factor_variance", "bias_variance")
PEER_OF_RATINGS: dict[str, Any] = {
    "hierarchical": False,
    "user_scales": False,
    **dict.fromkeys(VARIANCES_OF_RATINGS),
}
