"""Annealed variational inference as scikit-learn estimators.

Variational inference ends in the local optimum next to its start. Instead of restarting many
times, the estimators of this package reach a better optimum by annealing. The parameter
``annealing`` selects the method.
"""

from __future__ import annotations

from ._version import __version__
from .annealing import ANNEALING
from .estimators._sequences import concat_sequences, split_sequences
from .estimators._shards import Shards
from .estimators.factorial_mixture import AnnealedFactorialMixture
from .estimators.gamma_process_nmf import AnnealedGammaProcessNMF
from .estimators.gaussian_mixture import AnnealedBayesianGaussianMixture
from .estimators.hidden_markov import AnnealedHMM
from .estimators.latent_dirichlet import AnnealedLatentDirichletAllocation
from .estimators.matrix_factorization import AnnealedPMF
from .estimators.mixture import AnnealedBayesianMixture
from .estimators.mixture_regressor import MixtureRegressor
from .estimators.sigmoid_belief_net import AnnealedSigmoidBeliefNet
from .estimators.spike_slab_factor_analysis import AnnealedSpikeSlabFactorAnalysis

__all__ = [
    "TRUSTED_TYPES",
    "AnnealedBayesianGaussianMixture",
    "AnnealedBayesianMixture",
    "AnnealedFactorialMixture",
    "AnnealedGammaProcessNMF",
    "AnnealedHMM",
    "AnnealedLatentDirichletAllocation",
    "AnnealedPMF",
    "AnnealedSigmoidBeliefNet",
    "AnnealedSpikeSlabFactorAnalysis",
    "MixtureRegressor",
    "Shards",
    "__version__",
    "concat_sequences",
    "split_sequences",
    "warm_up",
]

_PUBLIC_TYPES: list[type] = [
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedFactorialMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    AnnealedSigmoidBeliefNet,
    AnnealedSpikeSlabFactorAnalysis,
    MixtureRegressor,
    *ANNEALING.values(),
]
TRUSTED_TYPES = (
    *(f"{cls.__module__}.{cls.__qualname__}" for cls in _PUBLIC_TYPES),
    "sklearn.utils._bunch.Bunch",
)
"""The types in files of skops that hold fitted estimators of this package, by their full names.

They are the estimators, the annealing methods, and scikit-learn's ``Bunch``, which has the
parameters of blocks of columns.
``skops.io.load(file, trusted=TRUSTED_TYPES)`` loads such a file.
"""


def warm_up(*families: str) -> None:
    """Compile kernels and keep them on disk, so that no later fit has to compile them.

    Call it when a container image is built or a service starts, so that its first fit is as fast
    as the later ones.

    Parameters
    ----------
    *families : str
        The families of models whose kernels are compiled: ``"factorial_mixture"``,
        ``"gamma_process_nmf"``, ``"gaussian_mixture"``, ``"hidden_markov"``,
        ``"latent_dirichlet"``, ``"matrix_factorization"``, ``"mixture"``,
        ``"sigmoid_belief_net"`` or ``"spike_slab_factor_analysis"``. Without any, the kernels of
        all families are compiled.

    Raises
    ------
    ValueError
        If a family does not exist.

    Examples
    --------
    >>> import sklearn_anneal
    >>> sklearn_anneal.warm_up("mixture")
    """
    from .estimators._base import BaseAnnealed
    from .estimators._validation import did_you_mean
    from .kernels import load
    from .kernels._compile import compile_all

    known = {
        value.__module__.rpartition(".")[2]: value._kernel_modules
        for value in map(globals().get, __all__)
        if isinstance(value, type) and issubclass(value, BaseAnnealed)
    }
    for family in families:
        if family not in known:
            raise ValueError(
                f"{family!r} is no family of models. The families are "
                f"{', '.join(map(repr, sorted(known)))}.{did_you_mean(family, known)}"
            )
    modules = {name for family in families or known for name in known[family]}
    for module in sorted({"waiting"} | modules):
        compile_all(load(module))
