"""Pictures of fitted estimators; they need matplotlib, which is imported when one is drawn."""

from __future__ import annotations

from ._components import ComponentsDisplay
from ._lower_bound import LowerBoundDisplay
from ._mixture import MixtureEllipseDisplay
from ._profiles import ComponentProfilesDisplay
from ._temperature import TemperatureDisplay
from ._topics import TopicsDisplay
from ._transitions import StateSequenceDisplay, TransitionMatrixDisplay

__all__ = [
    "ComponentProfilesDisplay",
    "ComponentsDisplay",
    "LowerBoundDisplay",
    "MixtureEllipseDisplay",
    "StateSequenceDisplay",
    "TemperatureDisplay",
    "TopicsDisplay",
    "TransitionMatrixDisplay",
]
