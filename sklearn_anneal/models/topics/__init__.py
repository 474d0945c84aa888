"""Latent Dirichlet allocation, the model of topics, in the order of its derivation.

- ``corpus.py``: the summary of all documents before a fit begins, and the start of topics.
- ``model.py``: the model, its priors, and the bound of topics.
- ``tables.py``: λ of the words in a visit, and E log β or E β as kernels read them; ``draws.py``:
  draws of β; ``lazy_columns.py``: λ of which a batch touches few words.
- ``visit.py``: the base class of visits to documents; ``mean_field.py``: those of the model, which
  infer q(θ, z).
- ``collapsed.py`` and ``sampled.py``: models whose visits integrate out θ, or θ and β.
- ``predictions.py``: predictions for documents at the expected topics.
"""

from __future__ import annotations

from .collapsed import CVB0LatentDirichlet, GibbsLatentDirichlet
from .model import LatentDirichlet
from .sampled import SampledLatentDirichlet
from .visit import TOPICS

__all__ = [
    "LOCAL_STEPS",
    "TOPICS",
    "LatentDirichlet",
    "SampledLatentDirichlet",
    "with_local_step",
]

LOCAL_STEPS: dict[str, type[LatentDirichlet]] = {
    cls.local_step_name: cls
    for cls in (LatentDirichlet, CVB0LatentDirichlet, GibbsLatentDirichlet, SampledLatentDirichlet)
}
"""The ``local_step`` of the estimator → the class of the model."""


def with_local_step(model: LatentDirichlet, local_step: str) -> LatentDirichlet:
    """Return the model, with all that it has learned, with another local step."""
    other: LatentDirichlet = object.__new__(LOCAL_STEPS[local_step])
    vars(other).update(vars(model))
    return other
