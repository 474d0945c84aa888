"""The private state of a fitted estimator as values that any file format can store.

The state contains models, summaries and other objects of private classes. Some file formats list
the classes in a file, so that its reader can decide whether to trust them. Private classes should
not be in that list, because the reader does not know them. Each such object is therefore written
as a dictionary with the name of its class and its attributes, from which loading the estimator
rebuilds it. Only classes of a list are looked up by name, and no constructor runs.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from .._stack import warn
from .._version import __version__

_CLASS, _STATE = "class of sklearn_anneal", "attributes"
_DTYPE, _SPARSE = "numpy.dtype", "scipy.sparse.csr_array"
_PACKAGE = __name__.split(".")[0]
# The classes of which fitted estimators consist. No other class of this package may be made of what
# a file says, because objects of some others read files, as parts of data do when they are called.
_CLASSES = {
    "annealing._base": ("Annealing", "Context"),
    "data.tables": ("Blocks", "Coded", "Packing"),
    "data.units._counts": ("DenseCounts", "SparseCounts"),
    "data.units._documents": ("Documents",),
    "data.units._ratings": ("Ratings",),
    "data.units._rows": ("Rows",),
    "data.units._sequences": ("Sequences",),
    "estimators._state": ("Inference",),
    "inference.kept": ("Kept",),
    "inference.replay": ("Replayed",),
    "inference.gradient": ("Adam", "RMSProp", "SGD"),
    "models._binary_rows": ("BinaryRows",),
    "models._count_popularity": ("Popularity",),
    "models._count_summary": ("Summary",),
    "models._covariates": ("LogitWeights", "Moments"),
    "models._rating_hierarchy": ("Hierarchy",),
    "models._rating_raters": ("Raters",),
    "models._rating_summary": ("Summary",),
    "models._searchable": ("SearchOptions",),
    "models._tempered_chains": ("Gaps",),
    "models._weights": ("DirichletWeights", "StickBreakingWeights"),
    "models.components._gamma_rates": ("Moments",),
    "models.components._learned_gaussians": ("Sizes",),
    "models.components._moments": ("Cells", "Summary"),
    "models.components.bernoulli": ("BernoulliComponents",),
    "models.components.blocks": ("BlockComponents", "Summaries"),
    "models.components.categorical": ("CategoricalComponents",),
    "models.components.categorical_columns": ("CategoricalColumns",),
    "models.components.fused_gaussian": ("FactoredGaussian", "FusedGaussian"),
    "models.components.gaussian_columns": ("ColumnMoments", "GaussianColumns"),
    "models.components.negative_binomial": (
        "CountMoments",
        "Histogram",
        "NegativeBinomialComponents",
    ),
    "models.components.poisson": ("PoissonComponents",),
    "models.components.zero_inflated_poisson": ("ZeroInflatedPoissonComponents",),
    "models.factorial_mixture": ("FactorialMixture", "Summary"),
    "models.gamma_process_nmf": ("GammaProcessNMF",),
    "models.hidden_markov": ("HiddenMarkov", "Summary"),
    "models.hidden_semi_markov": ("HiddenSemiMarkov",),
    "models.matrix_factorization": ("MatrixFactorization",),
    "models.mixture": ("Mixture", "Summary"),
    "models.sigmoid_belief_net": ("SigmoidBeliefNet", "Summary"),
    "models.spike_slab_factor_analysis": ("SpikeSlabFactorAnalysis", "Summary"),
    "models.spike_slab_gradient": ("SpikeSlabByGradients",),
    "models.topics.collapsed": ("CVB0LatentDirichlet", "GibbsLatentDirichlet"),
    "models.topics.corpus": ("Summary",),
    "models.topics.model": ("LatentDirichlet",),
}
_NAMES = {f"{_PACKAGE}.{module}.{name}" for module, names in _CLASSES.items() for name in names}

VERSION = "version of sklearn_anneal"
"""The name, in the state of a fitted estimator, of the version that fitted it."""


def check_version(name: str, version: str | None) -> None:
    """Warn if another version wrote the state of the estimator with a class name."""
    if version == __version__:
        return
    writer = "an early version" if version is None else f"version {version}"
    warn(
        f"{name} was saved by {writer} of sklearn_anneal, and is loaded by version {__version__}. "
        "Its results may differ; fit it again if they matter.",
    )


def written(value: Any) -> Any:
    """A copy of a value in which dictionaries stand for the package's private objects.

    Objects that are nested in others, at any depth, are replaced too. Arrays are not copied, and
    objects of other classes stay as they are.
    """
    kind = type(value)
    if kind is dict:
        return {key: written(one) for key, one in value.items()}
    if kind is list or kind is tuple:
        return kind(written(one) for one in value)
    if isinstance(value, np.dtype):
        return {_CLASS: _DTYPE, _STATE: value.str}
    if kind is csr_array:
        parts = [value.data, value.indices, value.indptr]
        return {_CLASS: _SPARSE, _STATE: [parts, list(value.shape)]}
    if _name(kind) not in _NAMES:
        return value
    state = value._asdict() if issubclass(kind, tuple) else vars(value)
    # Cached properties can be computed again.
    kept = {
        key: written(one)
        for key, one in state.items()
        if not isinstance(getattr(kind, key, None), cached_property)
    }
    return {_CLASS: _name(kind), _STATE: kept}


def read(value: Any) -> Any:
    """Rebuild a value from the result of :func:`written`; refuse classes that this never names."""
    kind = type(value)
    if kind is list or kind is tuple:
        return kind(read(one) for one in value)
    if kind is not dict:
        return value
    if _CLASS not in value:
        return {key: read(one) for key, one in value.items()}
    name, state = value[_CLASS], value[_STATE]
    if name == _DTYPE:
        return np.dtype(str(state))
    if name == _SPARSE:
        return csr_array(tuple(state[0]), shape=tuple(state[1]))
    cls = _class(name)
    attributes = read(state)
    if issubclass(cls, tuple):
        return cls(**attributes)
    result = object.__new__(cls)
    result.__dict__.update(attributes)
    return result


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _class(name: str) -> Any:
    if name in _NAMES:
        module, _, attribute = name.rpartition(".")
        return getattr(import_module(module), attribute)
    raise ValueError(
        f"The file asks for {name!r}, which is no part of a fitted estimator of this version of "
        "sklearn_anneal. It is damaged, or was written by another version; load it with the "
        "version that wrote it, or fit the estimator again."
    )
