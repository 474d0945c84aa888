"""Fits of ratings by us and by other libraries: specifications, and figures measured on each."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedPMF
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.models.matrix_factorization import MatrixFactorization

from ..common.peers import is_there
from ..common.priors import PEER_OF_RATINGS, effort_of
from ..common.reproduction import BaseSpec, Settings, settings_of
from .data import STARS, Ratings, ratings, split

try:
    from cmfrec import CMF
except ImportError:
    CMF = None
try:
    import pandas
    import surprise
except ImportError:
    surprise = None

_LONGEST_FINISH = 500
# The normal quantile of an interval that holds 90 % of the probability.
_NINE_OF_TEN = 1.6448536269514722


# Fits


def libraries() -> list[str]:
    """The other libraries that are installed; a message is printed for each missing one."""
    packages = {"cmfrec": ("cmfrec", CMF), "surprise": ("scikit-surprise", surprise)}
    return [name for name, (package, found) in packages.items() if is_there(package, found)]


def recommended(method: str) -> Settings:
    """The settings that a method's name stands for, as a part of the key in the cache."""
    return settings_of(**MatrixFactorization.recommended.get(method, {}))


@dataclass(frozen=True)
class Spec(BaseSpec):
    """Everything that determines a fit; the key of the fit in the cache.

    Attributes
    ----------
    data : str
    n_components : int
    method : str
        A name of ``annealing=``, or ``"cmfrec"`` or ``"surprise"``.
    settings : tuple of (str, value)
        Settings of the annealing, or of the other library.
    model : tuple of (str, value)
        Other parameters of our estimator.
    passes : int or None
        Number of all passes, without a test of convergence; None: until convergence.
    own_split : bool
        Whether the seed determines the split too.
    validation : bool
        Whether the held-out ratings are a part of the training set.
    seed : int
    """

    data: str
    n_components: int
    method: str = "none"
    settings: Settings = ()
    model: Settings = ()
    passes: int | None = None
    own_split: bool = False
    validation: bool = False
    seed: int = 0

    @property
    def label(self) -> str:
        return f"{self.data}, d = {self.n_components}, {self.method}, seed {self.seed}"

    def split(self) -> tuple[Ratings, Ratings]:
        return split(self.data, self.seed if self.own_split else 0, self.validation)

    def estimator(self) -> AnnealedPMF:
        n_users, n_items = (int(ids.max()) + 1 for ids in ratings(self.data).X.T)
        annealing = ANNEALING[self.method](**dict(self.settings))
        known = MatrixFactorization.recommended.get(self.method, {})
        n_annealed = annealing.resolve(known).schedule_length()
        pmf = AnnealedPMF(
            self.n_components,
            input="pairs",
            n_users=n_users,
            n_items=n_items,
            annealing=annealing,
            effort=effort_of(self.method),
            max_iter=_LONGEST_FINISH,
            random_state=self.seed,
            **PEER_OF_RATINGS | dict(self.model),
        )
        if self.passes is None:
            return pmf
        if n_annealed > self.passes:
            pmf.set_callbacks(StopAfter(self.passes))
        return pmf.set_params(tol=0, max_iter=max(0, self.passes - n_annealed))

    def run(self) -> dict[str, Any]:
        """Fit and measure the result.

        Returns
        -------
        result : dict
            ``rmse`` of the held-out ratings, and ``seconds`` of processor time of the fit. Of ours
            also ``bound`` (nats), ``density``, nats per held-out rating, ``coverage``, the share of
            held-out ratings within intervals of 90 %, the number of ``passes``, the three
            variances, and with ``self.passes`` the ``bounds`` of all passes.
        """
        training, held_out = self.split()
        if self.method in _OTHERS:
            begun = time.process_time()
            predict = _OTHERS[self.method](self, training)
            seconds = time.process_time() - begun
            return {"rmse": _rmse(predict(held_out.X), held_out.y), "seconds": seconds}
        _warm(self.method)
        pmf = self.estimator()
        begun = time.process_time()
        _fitted(pmf, training)
        seconds = time.process_time() - begun
        mean, std = pmf.predict(held_out.X, return_std=True)
        result = {
            "bound": float(pmf.lower_bound_),
            "rmse": _rmse(mean, held_out.y),
            "density": float(pmf.score(held_out.X, held_out.y)),
            "coverage": float(np.mean(np.abs(held_out.y - mean) <= _NINE_OF_TEN * std)),
            "seconds": seconds,
            "passes": int(pmf.n_iter_),
            "noise_variance": pmf.noise_variance_,
            "factor_variance": pmf.factor_variance_,
            "bias_variance": pmf.bias_variance_ if pmf.biases else 0.0,
        }
        if self.passes is not None:
            result["bounds"] = pmf.lower_bounds_.round(1).tolist()
        return result


class StopAfter:
    """A callback that ends a fit after some passes, whatever its schedule is.

    Parameters
    ----------
    n_passes : int
    """

    def __init__(self, n_passes: int):
        self.n_passes = n_passes
        self._done = 0

    def setup(self, estimator, context):
        """Nothing has to be set up."""

    def teardown(self, estimator, context):
        """Nothing has to be cleaned up."""

    def on_fit_task_begin(self, estimator, context):
        if context.task_name == "restart":
            self._done = 0

    def on_fit_task_end(self, estimator, context):
        self._done += context.task_name == "pass"
        return self._done >= self.n_passes


def _rmse(predicted: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


@cache
def _warm(method: str) -> None:
    """Load or compile the kernels of a method before a fit is timed."""
    spec = Spec("drawn", 2, method, passes=2)
    _fitted(spec.estimator(), ratings("drawn"))


def _fitted(pmf: AnnealedPMF, data: Ratings) -> AnnealedPMF:
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return pmf.fit(data.X, data.y)


def _fit_cmfrec(spec: Spec, data: Ratings) -> Any:
    """Alternating least squares by Cholesky's method; biases and factors have different ridges."""
    settings = dict(spec.settings)
    ridge = [settings["bias_ridge"]] * 2 + [settings["ridge"]] * 4
    model = CMF(
        k=spec.n_components,
        lambda_=np.array(ridge),
        method="als",
        use_cg=False,
        user_bias=True,
        item_bias=True,
        niter=settings["n_iterations"],
        nthreads=1,
        random_state=spec.seed,
        verbose=False,
    )
    shape = ratings(spec.data).X.max(axis=0) + 1
    model.fit(coo_matrix((data.y, tuple(data.X.T)), shape=tuple(shape)))

    def predict(X: np.ndarray) -> np.ndarray:
        # An item without ratings is predicted by the mean.
        predicted = model.predict(user=X[:, 0], item=X[:, 1])
        return np.where(np.isnan(predicted), data.y.mean(), predicted).clip(*STARS)

    return predict


def _fit_surprise(spec: Spec, data: Ratings) -> Any:
    """Stochastic gradient descent by the class ``SVD``."""
    settings = dict(spec.settings)
    frame = pandas.DataFrame({"user": data.X[:, 0], "item": data.X[:, 1], "rating": data.y})
    read = surprise.Dataset.load_from_df(frame, surprise.Reader(rating_scale=STARS))
    model = surprise.SVD(n_factors=spec.n_components, random_state=spec.seed, **settings)
    model.fit(read.build_full_trainset())
    return lambda X: np.array([model.predict(user, item).est for user, item in X])


_OTHERS = {"cmfrec": _fit_cmfrec, "surprise": _fit_surprise}
