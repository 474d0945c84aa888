"""The annealing methods: hyperparameters of how an optimum is looked for."""

from __future__ import annotations

from typing import Any

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


def lacking(method: Annealing, model: Any) -> dict[str, str]:
    """What a method asks for and a model cannot do, with the reasons."""
    can = model.capabilities()
    reasons = {need: can.get(need, "this model does not have that") for need in method.needs}
    return {need: reason for need, reason in reasons.items() if reason is not None}


def check_capabilities(method: Annealing, model: Any, given: object, name: str) -> None:
    """Refuse a method that asks for what a model cannot do.

    Parameters
    ----------
    method : Annealing
        Resolved: without any ``"auto"`` that the model's recommendations fill in.
    model : Model
    given : Annealing or str
        The method as the user gave it, for the message.
    name : str
        Of the estimator, for the message.

    Raises
    ------
    ValueError
        It says what is missing, why, and which names of ``annealing`` work with the model.
    """
    missing = lacking(method, model)
    if not missing:
        return
    working = [
        repr(known)
        for known, cls in ANNEALING.items()
        if not lacking(cls().resolve(model.recommended.get(known, {})), model)
    ]
    sentences = "; ".join(
        f"{CAPABILITIES[need]} ('{need}'), but {reason}" for need, reason in missing.items()
    )
    raise ValueError(
        f"annealing={given!r} cannot be combined with {name}: the method needs {sentences}. "
        f"What works: {', '.join(working)}."
    )
