"""The annealing methods. Their parameters say how a fit searches for an optimum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._base import CAPABILITIES, OF_UPDATE_RULES, UPDATES, Annealing
from ._base import Context as Context
from .deterministic import DeterministicAnnealing
from .none import NoAnnealing
from .proximity import ProximityVI
from .reheating import Reheating
from .stochastic import StochasticAnnealing
from .structured import StructuredVI
from .svi_plus import SVIPlus
from .tempering import LocalVariationalTempering, VariationalTempering

if TYPE_CHECKING:
    from ..models._base import Model

__all__ = [
    "Annealing",
    "DeterministicAnnealing",
    "LocalVariationalTempering",
    "NoAnnealing",
    "ProximityVI",
    "Reheating",
    "StochasticAnnealing",
    "StructuredVI",
    "SVIPlus",
    "VariationalTempering",
]

ANNEALING: dict[str, type[Annealing]] = {
    "none": NoAnnealing,
    "reheating": Reheating,
    "deterministic": DeterministicAnnealing,
    "stochastic": StochasticAnnealing,
    "tempering": VariationalTempering,
    "local_tempering": LocalVariationalTempering,
    "svi_plus": SVIPlus,
    "structured": StructuredVI,
    "proximity": ProximityVI,
}
"""The class of each name that the parameter ``annealing`` of the estimators accepts."""


def lacking(method: Annealing, model: Model) -> dict[str, str]:
    """The capabilities that a method needs and a model lacks, with the reason for each."""
    can = OF_UPDATE_RULES[model.update_rule] | model.capabilities()
    needs = method.needs if method.follows_gradients else (*method.needs, "conjugate_update")
    reasons = {need: can.get(need, "this model does not have that") for need in needs}
    return {need: reason for need, reason in reasons.items() if reason is not None}


def check_capabilities(method: Annealing, model: Model, given: object, name: str) -> None:
    """Refuse a method that needs a capability that the model lacks.

    Parameters
    ----------
    method : Annealing
        The resolved method, in which the model's recommendations have replaced ``"auto"``.
    model : Model
    given : Annealing or str
        The method as the user gave it, which the message quotes.
    name : str
        The name of the estimator, which the message quotes.

    Raises
    ------
    ValueError
        If the method needs a capability that the model lacks. The message says which one, why
        the model lacks it, and which names of ``annealing`` work with the model.
    """
    missing = lacking(method, model)
    if not missing:
        return
    working = [
        repr(known)
        for known, cls in ANNEALING.items()
        if not lacking(cls().resolve(model.recommended.get(known, {})), model)
    ]
    described = CAPABILITIES | UPDATES
    sentences = "; ".join(
        f"{described[need]} ('{need}'), but {reason}" for need, reason in missing.items()
    )
    raise ValueError(
        f"annealing={given!r} cannot be combined with {name}: the method needs {sentences}. "
        f"What works: {', '.join(working)}."
    )
