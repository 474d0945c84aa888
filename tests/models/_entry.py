"""What the common tests need to know of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sklearn_anneal.inference.visits import Visited


class ExpectedFailure(NamedTuple):
    """Why a common check of scikit-learn must fail, and for which estimators."""

    reason: str
    concerns: Callable[[Any], bool]


@dataclass(frozen=True)
class Entry:
    """A model as the common tests see it.

    Attributes
    ----------
    name : str
    make : callable
        ``make(**params)``, a small estimator without what falsifies bounds (regularisation), in
        which every number of passes is small.
    data : callable
        ``data(rng, n)``, n units.
    variants : mapping
        Id → parameters of each form of the model that has equations of its own. The first one
        stands for the model where a property is about the loop and not about equations.
    heuristics : mapping
        Id → parameters of forms whose local step ascends no bound. They have all other properties.
    sampled : tuple of str
        Those of them whose local step is random.
    converged : mapping
        Parameters with which the iterations over local parameters run to their end.
    frozen : mapping
        Attributes of the model that keep local parameters where they start.
    one_optimum : str
        Id of a variant whose iterations over local parameters then end at one point wherever
        they start; empty for models without any.
    learns : callable
        ``learns(params)``, whether the fit changes the prior.
    minibatches : mapping
        Parameters that ``fit`` needs besides ``batch_size`` to work in minibatches.
    several_chunks : callable or None
        ``several_chunks(rng)``, 2500 units that are cut into several chunks, and 1200 of them
        too if the number of observations decides; None: 2500 units of ``data``.
    local_entropy : callable
        ``local_entropy(visit, units)``, H[q] of local parameters with a prior of their own, a
        part of the entropy of a local step; nats.
    tiny : mapping
        Id → ``tiny[id](rng)``, data so small that ``log_evidence`` can enumerate.
    log_evidence : callable or None
        ``log_evidence(estimator, X)``, exact, from the fitted priors; nats.
    exact : tuple of (parameters, id of tiny data)
        Where the exact posterior lies in the variational family.
    total_probability : callable or None
        ``total_probability(estimator)``, sum or integral of exp(score_samples).
    spaces : mapping
        Id → ``spaces[id](rng, n)``: data in spaces small enough for ``total_probability``.
    common_checks : bool
        Whether scikit-learn's common checks are run. They know no data of symbols or counts.
    checked : tuple of dict
        Parameters with which scikit-learn's common checks are run, besides the defaults and every
        value of ``annealing``.
    expected_failures : mapping
        Common check → why it fails. Nothing else may fail, and all of these must.
    forms : tuple of str
        Forms of deterministic annealing that mean something for the model; others are refused.
    unit_keys : tuple of str
        Natural parameters in batch mode that have one row per unit.
    refused : callable
        ``refused(params)``, name of annealing → what the refusal says is missing.
    repeat : callable
        ``repeat(X, counts)``, unit i ``counts[i]`` times.
    row_weights : callable
        ``row_weights(X, weights)``, ``sample_weight`` of the given weights of units.
    """

    name: str
    make: Callable[..., Any]
    data: Callable[[np.random.Generator, int], Any]
    variants: Mapping[str, dict[str, Any]]
    heuristics: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    sampled: tuple[str, ...] = ()
    converged: Mapping[str, Any] = field(default_factory=dict)
    frozen: Mapping[str, Any] = field(default_factory=dict)
    one_optimum: str = ""
    learns: Callable[[dict[str, Any]], bool] = lambda params: False
    minibatches: Mapping[str, Any] = field(default_factory=dict)
    several_chunks: Callable[[np.random.Generator], Any] | None = None
    local_entropy: Callable[[Visited, Any], float] = lambda visit, units: 0.0
    tiny: Mapping[str, Callable[[np.random.Generator], Any]] = field(default_factory=dict)
    log_evidence: Callable[[Any, Any], float] | None = None
    exact: tuple[tuple[dict[str, Any], str], ...] = ()
    total_probability: Callable[[Any], float] | None = None
    spaces: Mapping[str, Callable[[np.random.Generator, int], Any]] = field(default_factory=dict)
    common_checks: bool = True
    checked: tuple[dict[str, Any], ...] = ()
    expected_failures: Mapping[str, ExpectedFailure] = field(default_factory=dict)
    forms: tuple[str, ...] = ("likelihood", "posterior", "local")
    unit_keys: tuple[str, ...] = ()
    refused: Callable[[dict[str, Any]], Mapping[str, str]] = lambda params: {}
    repeat: Callable[[Any, np.ndarray], Any] = lambda X, counts: X[
        np.repeat(np.arange(len(counts)), counts)
    ]
    row_weights: Callable[[Any, np.ndarray], np.ndarray] = lambda X, weights: weights

    @property
    def first(self) -> dict[str, Any]:
        """Parameters of the variant that stands for the model."""
        return next(iter(self.variants.values()))

    @property
    def unambiguous(self) -> dict[str, Any]:
        """Parameters with which local parameters have one value, whatever they start from."""
        return {**self.variants.get(self.one_optimum, {}), **self.converged}

    def in_batches(self, size: int) -> dict[str, Any]:
        """Parameters of a fit with ``size`` units per update."""
        return {**self.minibatches, "batch_size": size}

    def many(self, rng: np.random.Generator) -> Any:
        """2500 units in several chunks."""
        return self.data(rng, 2500) if self.several_chunks is None else self.several_chunks(rng)


def has_auto(params: dict[str, Any]) -> bool:
    """Whether a parameter asks for a prior that the fit learns; it may be ``Entry.learns``."""
    return any(isinstance(value, str) and value == "auto" for value in params.values())
