"""The description of a model that the common tests work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.inference.visits import Visited


class ExpectedFailure(NamedTuple):
    """The reason why a common check of scikit-learn must fail, and the estimators concerned."""

    reason: str
    concerns: Callable[[Any], bool]


@dataclass(frozen=True)
class Entry:
    """A model, described for the common tests.

    Attributes
    ----------
    name : str
    make : callable
        ``make(**params)`` returns a small estimator, in which every number of passes is small. It
        has no regularisation, with which bounds would not be exact.
    data : callable
        ``data(rng, n)`` returns n units.
    variants : mapping
        Id → parameters of each form of the model that has equations of its own. Tests of the loop,
        which do not depend on the equations, use only the first one.
    seldom : tuple of str
        Ids of those variants that combine what others have too. Their tests are exhaustive.
    heuristics : mapping
        Id → parameters of forms whose local step does not ascend a bound. They have all other
        properties.
    sampled : tuple of str
        Ids of those heuristics whose local step is random.
    converged : mapping
        Parameters with which the iterations over local parameters run to convergence.
    frozen : mapping
        Attributes of the model that keep local parameters at their start.
    settled : mapping
        Parameters with which the bound of a visit is that of the local parameters that it found.
        They are needed where a visit computes the bound from what these were updated from.
    one_optimum : str
        Id of a variant whose converged local parameters do not depend on their start; empty for
        models without such a variant.
    learns : callable
        ``learns(params)`` says whether the fit changes the prior.
    minibatches : mapping
        Parameters that ``fit`` needs besides ``batch_size`` to work in minibatches.
    steps_of_minibatches : mapping
        Parameters with which batch mode makes the local steps that minibatches make by default.
    several_chunks : callable or None
        ``several_chunks(rng, n)`` returns n units, of which 2500 are cut into several chunks. If
        chunks are cut by the number of observations, 1200 of these units make several chunks too.
        None: ``data`` does so.
    local_entropy : callable
        ``local_entropy(visit, units)`` is H[q] of the local parameters that have priors of their
        own, in nats. It is a part of the entropy of a local step.
    tiny : mapping
        Id → ``tiny[id](rng)``, which returns data small enough for ``log_evidence`` to enumerate.
    log_evidence : callable or None
        ``log_evidence(estimator, X)`` is the exact log evidence at the fitted priors, in nats.
    exact : tuple of (parameters, id of tiny data)
        A case in which the exact posterior lies in the variational family.
    total_probability : callable or None
        ``total_probability(estimator)`` is the sum or integral of exp(score_samples).
    spaces : mapping
        Id → ``spaces[id](rng, n)``, which returns data in a space small enough for
        ``total_probability``.
    common_checks : bool
        Whether scikit-learn's common checks are run. They bring no data of symbols or counts.
    checked : tuple of dict
        Parameters with which scikit-learn's common checks are run, besides the defaults and every
        value of ``annealing``. Only the defaults need reheats and a fit that has converged.
    checked_small : mapping
        Parameters of the smallest model, with which the values of ``annealing`` are checked.
    checked_form : mapping
        Parameters that all of these need, because the checks bring real numbers.
    as_in_parts : mapping
        Parameters that leave out what fits to data in parts are without.
    expected_failures : mapping
        Common check → the reason why it fails. All of these must fail, and no other may.
    forms : tuple of str
        Forms of deterministic annealing that make sense for the model; others are refused.
    unit_keys : tuple of str
        Natural parameters in batch mode that have one row per unit.
    refused : callable
        ``refused(params)`` returns name of annealing → the missing part that the refusal names.
    repeat : callable
        ``repeat(X, counts)`` repeats unit i ``counts[i]`` times.
    row_weights : callable
        ``row_weights(X, weights)`` turns weights of units into ``sample_weight``.
    """

    name: str
    make: Callable[..., Any]
    data: Callable[[np.random.Generator, int], Any]
    variants: Mapping[str, dict[str, Any]]
    seldom: tuple[str, ...] = ()
    heuristics: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    sampled: tuple[str, ...] = ()
    converged: Mapping[str, Any] = field(default_factory=dict)
    frozen: Mapping[str, Any] = field(default_factory=dict)
    settled: Mapping[str, Any] = field(default_factory=dict)
    one_optimum: str = ""
    learns: Callable[[dict[str, Any]], bool] = lambda params: False
    minibatches: Mapping[str, Any] = field(default_factory=dict)
    steps_of_minibatches: Mapping[str, Any] = field(default_factory=dict)
    several_chunks: Callable[[np.random.Generator, int], Any] | None = None
    local_entropy: Callable[[Visited, Any], float] = lambda visit, units: 0.0
    tiny: Mapping[str, Callable[[np.random.Generator], Any]] = field(default_factory=dict)
    log_evidence: Callable[[Any, Any], float] | None = None
    exact: tuple[tuple[dict[str, Any], str], ...] = ()
    total_probability: Callable[[Any], float] | None = None
    spaces: Mapping[str, Callable[[np.random.Generator, int], Any]] = field(default_factory=dict)
    common_checks: bool = True
    checked: tuple[dict[str, Any], ...] = ()
    checked_small: Mapping[str, Any] = field(
        default_factory=lambda: {"n_components": 2, "effort": 0}
    )
    checked_form: Mapping[str, Any] = field(default_factory=dict)
    expected_failures: Mapping[str, ExpectedFailure] = field(default_factory=dict)
    as_in_parts: Mapping[str, Any] = field(default_factory=dict)
    forms: tuple[str, ...] = ("likelihood", "posterior", "local")
    unit_keys: tuple[str, ...] = ()
    refused: Callable[[dict[str, Any]], Mapping[str, str]] = lambda params: {}
    repeat: Callable[[Any, np.ndarray], Any] = lambda X, counts: X[
        np.repeat(np.arange(len(counts)), counts)
    ]
    row_weights: Callable[[Any, np.ndarray], np.ndarray] = lambda X, weights: weights

    @property
    def first(self) -> dict[str, Any]:
        """Parameters of the first variant, which stands for the model."""
        return next(iter(self.variants.values()))

    @property
    def unambiguous(self) -> dict[str, Any]:
        """Parameters with which local parameters do not depend on their start."""
        return {**self.variants.get(self.one_optimum, {}), **self.converged}

    def in_batches(self, size: int) -> dict[str, Any]:
        """Parameters of a fit with ``size`` units per update."""
        return {**self.minibatches, "batch_size": size}

    def many(self, rng: np.random.Generator, n: int = 2500) -> Any:
        """Units of which 2500 are cut into several chunks."""
        return (self.several_chunks or self.data)(rng, n)


def has_auto(params: dict[str, Any]) -> bool:
    """Whether a parameter asks for a prior that the fit learns; a function for ``Entry.learns``."""
    return any(isinstance(value, str) and value == "auto" for value in params.values())


def annealing_of(estimator: Any) -> str:
    """The name of an estimator's method; a function for ``ExpectedFailure.concerns``."""
    method = estimator.annealing
    if isinstance(method, str):
        return method
    return next(name for name, cls in ANNEALING.items() if type(method) is cls)
