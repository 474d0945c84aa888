"""The emissions of mixtures and hidden Markov models: one class each, and the table of them all.

Estimators, data sets and displays find an emission by its name in ``EMISSIONS``, and nowhere else.
"""

from __future__ import annotations

from sklearn.base import BaseEstimator

from .._priors import is_auto, numbers_of, refuse_nonpositive
from ._base import Emission
from .bernoulli import BernoulliEmission
from .categorical import CategoricalEmission
from .gaussian import GaussianEmission
from .negative_binomial import NegativeBinomialEmission
from .poisson import PoissonEmission
from .zero_inflated_poisson import ZeroInflatedPoissonEmission

EMISSIONS: dict[str, type[Emission]] = {
    "gaussian": GaussianEmission,
    "categorical": CategoricalEmission,
    "poisson": PoissonEmission,
    "bernoulli": BernoulliEmission,
    "negative_binomial": NegativeBinomialEmission,
    "zero_inflated_poisson": ZeroInflatedPoissonEmission,
}
"""The emissions, by the values of the parameter ``emission``. An entry that is added is one of them
at once."""


def emission_named(name: object, of_frames: bool = False) -> type[Emission] | None:
    """Return the emission with a name; None for lists of blocks and for unknown names.

    ``of_frames`` selects the form of frames that all have this emission (:meth:`of_frames`).
    """
    found = EMISSIONS.get(name) if isinstance(name, str) else None
    return found.of_frames() if found is not None and of_frames else found


def attributes_only_with(of_frames: bool) -> dict[str, tuple[object, ...]]:
    """Return the emissions with which each fitted attribute exists; ``blocks_`` needs a list."""
    found: dict[str, tuple[object, ...]] = {"blocks_": (list,)}
    for name, emission in EMISSIONS.items():
        form = emission.of_frames() if of_frames else emission
        for attribute in form.fitted_attributes:
            found[attribute] = (*found.get(attribute, ()), name)
    return found


def check_priors_of_others(estimator: BaseEstimator) -> None:
    """Check the prior parameters that belong to other emissions than the estimator's.

    The fit does not use them, but a value that no emission would accept is refused all the same.
    Their shapes are not checked, because the data do not say which shapes they should have.
    """
    if isinstance(estimator.emission, str):
        used = [estimator.emission]
    else:
        used = [emission for _, emission, _ in estimator.emission]
    own = {name for emission in used for name in EMISSIONS[emission].prior_parameters}
    for emission in EMISSIONS.values():
        for name, positive in emission.prior_parameters.items():
            # Subclasses can have parameters for emissions of their own.
            value = getattr(estimator, name, None)
            if name in own or value is None or is_auto(value):
                continue
            prior = numbers_of(value, name)
            # An array of means, or the entries of a matrix off its diagonal, may have any sign.
            if positive or prior.ndim == 0:
                refuse_nonpositive(prior, name)
