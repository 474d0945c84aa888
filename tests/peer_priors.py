"""Parameters that select the priors of other packages, in the place of learned priors.

Tests give them where they compare with such a package, with plain code that learns nothing, or with
numbers that hold for fixed priors only.
"""

from __future__ import annotations

MIXTURE_PRIORS = (
    "weight_concentration_prior",
    "mean_precision_prior",
    "mean_prior",
    "degrees_of_freedom_prior",
    "covariance_prior",
)
PEER_OF_MIXTURES = dict.fromkeys(MIXTURE_PRIORS)
PEER_OF_SEQUENCES = dict.fromkeys(
    (
        "startprob_prior",
        "transmat_prior",
        "means_prior",
        "beta_prior",
        "dof_prior",
        "scale_prior",
    )
)
PEER_OF_TOPICS = dict.fromkeys(("doc_topic_prior", "topic_word_prior"))
PEER_OF_RATINGS = {
    "hierarchical": False,
    "user_scales": False,
    **dict.fromkeys(("noise_variance", "factor_variance", "bias_variance")),
}
PEER_OF_COLUMNS = dict.fromkeys(
    (
        "weight_concentration_prior",
        "emissionprob_prior",
        "lambdas_prior",
        "lambdas_weight",
        "means_prior",
        "beta_prior",
        "dof_prior",
        "scale_prior",
    )
)
