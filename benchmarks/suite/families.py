"""How each family of models is fitted by us and by its peer, and what is measured of a fit.

A peer is the best of ten restarts of plain inference, with the default priors of its class. Its
tolerance and its largest number of passes are ours at T = 1. The bounds of both are complete and
computed by the same code. EM of drawn groups, which has no such bound, is measured by held-out data
alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.metrics.cluster import contingency_matrix
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from sklearn_anneal.data.units import Rows, Units
from sklearn_anneal.inference.loop import lower_bound
from sklearn_anneal.parallel.workers import SEQUENTIAL

from . import predictive
from .data import divided_anew
from .instances import Instance
from .settings import ESTIMATORS, MAX_ITER, PLAIN, RESTARTS, TOL

Figures = dict[str, float]

# Figures that some fits do not have.
_MISSING: Figures = dict.fromkeys(
    ("bound", "bound_at_peer", "passes", "held_out", "rmse", "found", "matched"), float("nan")
)


class Family(ABC):
    """A family of models: an instance with its data, and how they are fitted and measured.

    Parameters
    ----------
    instance : Instance
    split : int, default=0
        0 for the instance's own training and held-out parts, and other numbers for other parts of
        the same sizes.
    """

    def __init__(self, instance: Instance, split: int = 0):
        self.instance = instance
        self.train, self.test = instance.load()
        if split:
            self.train, self.test = divided_anew(self.train, self.test, split)
        self.model: dict[str, Any] = {"n_components": instance.n_components, **instance.model}

    # Fits

    def ours(self, seed: int, parameters: dict[str, Any]) -> Any:
        """Our estimator with a setting, not fitted."""
        made = ESTIMATORS[self.instance.family](**self.model)
        return made.set_params(random_state=seed, **parameters | self.model)

    def fit_ours(self, seed: int, parameters: dict[str, Any]) -> Any:
        return self.fit(self.ours(seed, parameters))

    def fit_peer(self, seed: int) -> Any:
        """The best of ten restarts of plain inference."""
        return self.fit_ours(seed, PLAIN[self.instance.family] | {"n_init": RESTARTS})

    @abstractmethod
    def fit(self, estimator: Any) -> Any:
        """Fit one of our estimators to the training data, and return it."""

    # Measurements

    @property
    @abstractmethod
    def n_observations(self) -> float:
        """The number of observations in the training data."""

    def measure(self, fitted: Any) -> Figures:
        """The figures of a fit of ours.

        Returns
        -------
        figures : dict
            ``bound``, the lower bound at the priors of the fit, and ``bound_at_peer``, that of the
            same posterior at the priors of the peer (NaN where it cannot be computed), both in nats
            per observation; what :meth:`predictions` returns; ``passes``; the number of components
            ``found``, and for drawn groups how many of them were ``matched`` by a component.
        """
        return _MISSING | {
            "bound": fitted.lower_bound_ / self.n_observations,
            "bound_at_peer": self.bound_at_peer(fitted),
            "passes": float(getattr(fitted, "n_passes_", fitted.n_iter_)),
            "found": float(getattr(fitted, "n_effective_components_", np.nan)),
            **self.predictions(fitted),
        }

    def measure_peer(self, fitted: Any) -> Figures:
        """The figures of a fit of the peer, as :meth:`measure`; its priors are the peer's."""
        return self.measure(fitted)

    @abstractmethod
    def predictions(self, fitted: Any) -> Figures:
        """``held_out``, in nats per held-out observation, and for ratings ``rmse``."""

    # Bounds of a posterior at the priors of the peer, where the family has them

    def host(self) -> Any:
        """An estimator of ours at the priors of the peer, whose posterior is to be replaced."""
        return self.fit_ours(0, PLAIN[self.instance.family] | {"max_iter": 0})

    def bound_at_peer(self, fitted: Any) -> float:
        """The bound per observation of a posterior of ours at the priors of the peer."""
        host = self.host()
        ours, theirs = fitted._inference.ctx.q, host._inference.ctx.q
        same = {key: np.shape(value) for key, value in ours.items()}
        if same != {key: np.shape(value) for key, value in theirs.items()}:
            return float("nan")  # another family of posteriors, such as independent factors
        return self.bound_of(host, ours)

    def bound_of(self, host: Any, natural: dict[str, Any]) -> float:
        """The bound per observation of natural parameters at the priors of an estimator.

        They take the place of the estimator's own.
        """
        ctx = host._inference.ctx
        ctx.q = natural
        return lower_bound(ctx, self.units(host), SEQUENTIAL) / self.n_observations

    def units(self, host: Any) -> Units:
        """The training data in the form that the model of a fitted estimator reads."""
        raise NotImplementedError(f"Bounds of {self.instance.family} are those of the fits alone.")


class Mixture(Family):
    """Gaussian mixtures; the peer is scikit-learn's class."""

    @property
    def n_observations(self) -> float:
        return len(self.train)

    def fit(self, estimator: Any) -> Any:
        return estimator.fit(self.train)

    def fit_peer(self, seed: int) -> Any:
        peer = BayesianGaussianMixture(
            n_init=RESTARTS,
            max_iter=MAX_ITER,
            # Its tolerance is for the bound of all rows, ours for the bound per row.
            tol=TOL * len(self.train),
            random_state=seed,
            **self.model,
        )
        return peer.fit(self.train)

    def measure_peer(self, fitted: Any) -> Figures:
        bound = self.bound_of(host := self.host(), self._natural(host, fitted))
        found = {"bound": bound, "bound_at_peer": bound, "passes": float(fitted.n_iter_)}
        return _MISSING | found | self._used(fitted) | self.predictions(fitted)

    def _used(self, fitted: Any) -> Figures:
        """The number of components with more than one row in the fit of another class."""
        return {"found": float((len(self.train) * fitted.weights_ > 1).sum())}

    @staticmethod
    def _natural(host: Any, fitted: BayesianGaussianMixture) -> dict[str, Any]:
        """The natural parameters of scikit-learn's fitted parameters, with our model's names."""
        ctx = host._inference.ctx
        dof = np.asarray(fitted.degrees_of_freedom_)
        count = dof.reshape(-1, *[1] * (fitted.covariances_.ndim - 1)) if dof.ndim else dof
        joint = {
            "mean": fitted.means_ - ctx.summary.center,
            "mean_precision": fitted.mean_precision_,
            "inverse_scale": fitted.covariances_ * count,
            "dof": dof,
        }
        concentration = fitted.weight_concentration_
        # The weights of a Dirichlet process have two parameters per component.
        two = isinstance(concentration, tuple)
        names = ("stick_a", "stick_b") if two else ("weight_concentration",)
        weights = dict(zip(names, concentration if two else (concentration,), strict=True))
        return weights | ctx.model.components.factors[0].family.from_standard(**joint)

    def units(self, host: Any) -> Units:
        return Rows(self.train, None, host._inference.ctx.summary.center)

    def predictions(self, fitted: Any) -> Figures:
        density = predictive.mixture_density(fitted, self.test)
        return {"held_out": float(density.mean())}


class Groups(Mixture):
    """Gaussian mixtures of drawn groups."""

    def predictions(self, fitted: Any) -> Figures:
        return super().predictions(fitted) | self._matched(fitted)

    def _used(self, fitted: Any) -> Figures:
        return super()._used(fitted) | self._matched(fitted)

    def measure_em(self, seed: int) -> Figures:
        """The figures of one start of scikit-learn's EM."""
        fitted = GaussianMixture(max_iter=MAX_ITER, tol=TOL, random_state=seed, **self.model).fit(
            self.train
        )
        density = float(fitted.score_samples(self.test).mean())
        return _MISSING | {"held_out": density} | self._used(fitted)

    def _matched(self, fitted: Any) -> Figures:
        """How many groups have a component of their own among the held-out rows.

        More than half of the rows of the group are in the component, and the other way round.
        """
        assert self.instance.labels is not None
        table = contingency_matrix(self.instance.labels(), fitted.predict(self.test))
        groups, components = linear_sum_assignment(-table)
        both = table[groups, components]
        sizes = np.maximum(table.sum(axis=1)[groups], table.sum(axis=0)[components])
        return {"matched": float((2 * both > sizes).sum())}


class Scored(Family):
    """Models whose held-out figure is the estimator's own score; the peer is of our class."""

    @property
    def n_observations(self) -> float:
        return len(self.train)

    def fit(self, estimator: Any) -> Any:
        return estimator.fit(self.train)

    def bound_at_peer(self, fitted: Any) -> float:
        return float("nan")

    def predictions(self, fitted: Any) -> Figures:
        return {"held_out": float(fitted.score(self.test))}


class Columns(Scored):
    """Mixtures of any columns."""

    def __init__(self, instance: Instance, split: int = 0):
        super().__init__(instance, split)
        # Categories that only held-out rows have are declared.
        most = np.fmax(np.nanmax(self.train, axis=0), np.nanmax(self.test, axis=0)) + 1
        emission = self.model["emission"]
        if emission == "categorical":
            self.model["n_categories"] = np.maximum(most, 2).astype(int)
        elif isinstance(emission, list):
            levels = {
                name: np.maximum(most[columns], 2).astype(int)
                for name, kind, columns in emission
                if kind == "categorical"
            }
            self.model["n_categories"] = levels


class Counts(Scored):
    """Factorisations of counts, by the log probability of one half of each row given the other."""

    @property
    def n_observations(self) -> float:
        return self.train.size


class Sequence(Family):
    """Hidden Markov models; the peer is plain inference by our class.

    Its priors are hmmlearn's defaults, except that symbols have a concentration of at least 0.1.
    """

    @property
    def n_observations(self) -> float:
        return len(self.train.X)

    def fit(self, estimator: Any) -> Any:
        return estimator.fit(self.train.X, lengths=self.train.lengths)

    def units(self, host: Any) -> Units:
        _, _, units = host._units(self.train.X, None, self.train.lengths)
        return units

    def predictions(self, fitted: Any) -> Figures:
        return {"held_out": predictive.sequence_density(fitted, self.test, self.model)}


class Topics(Family):
    """Topic models; the peer is scikit-learn's class, by the bound that it calls perplexity."""

    @property
    def n_observations(self) -> float:
        return float(self.train.sum())

    def fit(self, estimator: Any) -> Any:
        return estimator.fit(self.train)

    def fit_peer(self, seed: int) -> Any:
        fits = [
            LatentDirichletAllocation(
                max_iter=MAX_ITER,
                learning_method="batch",
                random_state=RESTARTS * seed + restart,
                **self.model,
            ).fit(self.train)
            for restart in range(RESTARTS)
        ]
        return min(fits, key=lambda fit: fit.bound_)

    def measure_peer(self, fitted: Any) -> Figures:
        host = self.host()
        topics = {"topic_word": np.ascontiguousarray(fitted.components_, dtype=np.float64)}
        bound = self.bound_of(host, topics)
        found = {"bound": bound, "bound_at_peer": bound, "passes": float(fitted.n_iter_)}
        return _MISSING | found | self.predictions(host)

    def units(self, host: Any) -> Units:
        _, units = host._rows(self.train)
        return units

    def predictions(self, fitted: Any) -> Figures:
        likelihood = predictive.topic_likelihood(fitted, self.test)
        return {"held_out": likelihood}


class RatingSet(Family):
    """Matrix factorisation; the peer is plain inference by our class."""

    def __init__(self, instance: Instance, split: int = 0):
        super().__init__(instance, split)
        every = np.concatenate([self.train.X, self.test.X])
        n_users, n_items = (int(n) for n in every.max(axis=0) + 1)
        self.model |= {"input": "pairs", "n_users": n_users, "n_items": n_items}

    @property
    def n_observations(self) -> float:
        return len(self.train)

    def fit(self, estimator: Any) -> Any:
        return estimator.fit(self.train.X, self.train.y)

    def bound_at_peer(self, fitted: Any) -> float:
        # A fitted factorisation keeps the posterior of the items only, and the default variances
        # are the peer's, so that both bounds agree unless a setting learns the variances.
        return float("nan")

    def predictions(self, fitted: Any) -> Figures:
        density = float(fitted.score(self.test.X, self.test.y))
        return {"held_out": density, "rmse": rmse(fitted.predict(self.test.X), self.test.y)}


def rmse(predicted: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


FAMILY: dict[str, type[Family]] = {
    "mixture": Mixture,
    "groups": Groups,
    "columns": Columns,
    "factorial": Scored,
    "counts": Counts,
    "factors": Scored,
    "sequence": Sequence,
    "topics": Topics,
    "ratings": RatingSet,
}
