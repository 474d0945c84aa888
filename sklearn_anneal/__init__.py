"""Annealed variational inference as scikit-learn estimators.

Variational inference ends in the local optimum next to its start. Instead of restarting many
times, the estimators of this package reach a better optimum by annealing. The parameter
``annealing`` selects the method.
"""

from __future__ import annotations

from .estimators._sequences import concat_sequences, split_sequences
from .estimators.factorial_mixture import AnnealedFactorialMixture
from .estimators.gamma_process_nmf import AnnealedGammaProcessNMF
from .estimators.gaussian_mixture import AnnealedBayesianGaussianMixture
from .estimators.hidden_markov import AnnealedHMM
from .estimators.latent_dirichlet import AnnealedLatentDirichletAllocation
from .estimators.matrix_factorization import AnnealedPMF
from .estimators.mixture import AnnealedBayesianMixture
from .estimators.sigmoid_belief_net import AnnealedSigmoidBeliefNet
from .estimators.spike_slab_factor_analysis import AnnealedSpikeSlabFactorAnalysis

__version__ = "0.1.0"

__all__ = [
    "AnnealedBayesianGaussianMixture",
    "AnnealedBayesianMixture",
    "AnnealedFactorialMixture",
    "AnnealedGammaProcessNMF",
    "AnnealedHMM",
    "AnnealedLatentDirichletAllocation",
    "AnnealedPMF",
    "AnnealedSigmoidBeliefNet",
    "AnnealedSpikeSlabFactorAnalysis",
    "concat_sequences",
    "split_sequences",
    "warm_up",
]


def warm_up() -> None:
    """Compile all kernels and keep them on disk, so that no later fit has to compile them.

    Call it when a container image is built or a service starts, so that its first fit is as fast
    as the later ones.

    Examples
    --------
    >>> import sklearn_anneal
    >>> sklearn_anneal.warm_up()
    """
    from importlib import import_module
    from pkgutil import iter_modules

    from . import kernels
    from .kernels._compile import compile_all

    for module in iter_modules(kernels.__path__):
        compile_all(import_module(f"{kernels.__name__}.{module.name}"))
