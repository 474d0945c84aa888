"""The annealing methods: hyperparameters of how an optimum is looked for."""

from __future__ import annotations

from ._base import CAPABILITIES, Annealing
from ._base import Context as Context
from .deterministic import DeterministicAnnealing
from .none import NoAnnealing
from .proximity import ProximityVI
from .stochastic import StochasticAnnealing
from .structured import StructuredVI
from .svi_plus import SVIPlus
from .tempering import LocalVariationalTempering, VariationalTempering

__all__ = [
    "Annealing",
    "DeterministicAnnealing",
    "LocalVariationalTempering",
    "NoAnnealing",
    "ProximityVI",
    "StochasticAnnealing",
    "StructuredVI",
    "SVIPlus",
    "VariationalTempering",
]

ANNEALING: dict[str, type[Annealing]] = {
    "none": NoAnnealing,
    "deterministic": DeterministicAnnealing,
    "stochastic": StochasticAnnealing,
    "tempering": VariationalTempering,
    "local_tempering": LocalVariationalTempering,
    "svi_plus": SVIPlus,
    "structured": StructuredVI,
    "proximity": ProximityVI,
}
"""The methods by the names that the parameter ``annealing`` of the estimators takes."""


def check_capabilities(method: Annealing, model: object, given: object, name: str) -> None:
    """Refuse a method that asks for what a model cannot do.

    Parameters
    ----------
    method : Annealing
        Resolved: without any ``"auto"`` that the model's recommendations fill in.
    model : ConjugateModel
    given : Annealing or str
        The method as the user gave it, for the message.
    name : str
        Of the estimator, for the message.

    Raises
    ------
    ValueError
        Naming what is missing and which names of ``annealing`` work with the model.
    """
    missing = [need for need in method.needs if not hasattr(model, need)]
    if not missing:
        return
    recommended = getattr(model, "recommended", {})
    working = []
    for known, cls in ANNEALING.items():
        candidate = cls().resolve(recommended.get(known, {}))
        if all(hasattr(model, need) for need in candidate.needs):
            working.append(repr(known))
    lacking = "; ".join(f"{CAPABILITIES[need]} ('{need}')" for need in missing)
    raise ValueError(
        f"annealing={given!r} cannot be combined with {name}: the method needs "
        f"{lacking}, which this model does not have. What works: {', '.join(working)}."
    )
