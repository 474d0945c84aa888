"""What the experiments with ratings share: data, methods, other libraries, fits."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedPMF
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.models.matrix_factorization import MatrixFactorization

from . import _data
from ._reproduction import BaseSpec, Settings, settings_of

try:
    from cmfrec import CMF
except ImportError:
    CMF = None
try:
    import pandas
    import surprise
except ImportError:
    surprise = None

MOVIELENS, WEAK = "MovieLens 100K", "weak factors"
FILES = {MOVIELENS: "movielens_100k.npz"}
SHARE_HELD_OUT = 0.1
STARS = (1.0, 5.0)
_LONGEST_FINISH = 500
# Normal quantile of an interval that holds nine of ten.
_NINE_OF_TEN = 1.6448536269514722


# Data


@dataclass(frozen=True)
class Ratings:
    """Some ratings as pairs of ids with stars.

    Attributes
    ----------
    X : ndarray of int, shape (n_ratings, 2)
    y : ndarray of shape (n_ratings,)
    """

    X: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: np.ndarray) -> Ratings:
        return Ratings(self.X[index], self.y[index])


@cache
def ratings(name: str) -> Ratings:
    """All ratings of a data set; ``"drawn"`` and ``"weak factors"`` need no file.

    Raises
    ------
    DataNotFoundError
        If the file is missing.
    """
    if name == "drawn":
        return _drawn()
    if name == WEAK:
        return _weak()
    found = _data._load(FILES[name])
    pairs = np.stack([found["user"], found["item"]], axis=1).astype(np.int64)
    return Ratings(pairs, found["rating"].astype(np.float64))


def _drawn() -> Ratings:
    rng = np.random.default_rng(0)
    u, v = rng.standard_normal((60, 2)), rng.standard_normal((40, 2))
    pairs = np.argwhere(rng.random((60, 40)) < rng.beta(1.0, 2.0, (60, 1)))
    means = 3.5 + np.sum(0.7 * u[pairs[:, 0]] * v[pairs[:, 1]], axis=1)
    stars = np.rint(means + 0.7 * rng.standard_normal(len(pairs))).clip(*STARS)
    return Ratings(pairs, stars)


def _weak() -> Ratings:
    """Six factors that explain half as much as noise does, which hot starts switch off."""
    rng = np.random.default_rng(0)
    u, v = rng.standard_normal((600, 6)), 0.3 * rng.standard_normal((200, 6))
    popularity = rng.lognormal(0.0, 1.0, 200)
    pairs = np.array(
        [
            (user, item)
            for user, n in enumerate(np.geomspace(3, 100, 600).round().astype(int))
            for item in rng.choice(200, n, replace=False, p=popularity / popularity.sum())
        ]
    )
    i, j = pairs.T
    biases = 0.4 * rng.standard_normal(600)[i] + 0.4 * rng.standard_normal(200)[j]
    y = 3.5 + biases + np.sum(u[i] * v[j], axis=1) + 0.7 * rng.standard_normal(len(i))
    return Ratings(pairs, y)


@cache
def split(name: str, seed: int = 0, validation: bool = False) -> tuple[Ratings, Ratings]:
    """Nine tenths of the ratings, and the other tenth; the same for the same seed.

    With ``validation`` the nine tenths alone are split in this way, to tune settings by.
    """
    every = ratings(name)
    rng = np.random.default_rng(seed)
    for _ in range(2 if validation else 1):
        order = rng.permutation(len(every))
        n_held_out = round(SHARE_HELD_OUT * len(order))
        # In the order of the file.
        held_out, rest = (np.sort(part) for part in (order[:n_held_out], order[n_held_out:]))
        every, other = every.take(rest), every.take(held_out)
    return every, other


def available(names: Iterable[str]) -> list[str]:
    """Those of some data sets that are there, with a message for each missing file."""
    there = []
    for name in names:
        if name not in FILES or _data.available(FILES[name]):
            there.append(name)
        else:
            print(f"Left out: {FILES[name]} is not in {_data.directory()}.", file=sys.stderr)
    return there


def libraries() -> list[str]:
    """The other libraries that are installed, with a message for each of the others."""
    packages = {"cmfrec": ("cmfrec", CMF), "surprise": ("scikit-surprise", surprise)}
    for package, found in packages.values():
        if found is None:
            message = f"Left out: {package}, which is not installed (pip install {package})."
            print(message, file=sys.stderr)
    return [name for name, (_, found) in packages.items() if found is not None]


# Fits


def recommended(method: str) -> Settings:
    """The settings that a name stands for; what the cache is searched by."""
    return settings_of(**MatrixFactorization.recommended.get(method, {}))


@dataclass(frozen=True)
class Spec(BaseSpec):
    """All that decides a fit; what the cache is searched by.

    Attributes
    ----------
    data : str
    n_components : int
    method : str
        A name of ``annealing=``, or ``"cmfrec"`` or ``"surprise"``.
    settings : tuple of (str, value)
        Of the annealing, or of the other library.
    model : tuple of (str, value)
        Other parameters of our estimator.
    passes : int or None
        In all, without a test of convergence; None: until convergence.
    own_split : bool
        Whether the seed decides the split too.
    validation : bool
        Whether what is held out is a part of the training set.
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
            max_iter=_LONGEST_FINISH,
            random_state=self.seed,
            **dict(self.model),
        )
        if self.passes is None:
            return pmf
        if n_annealed > self.passes:
            pmf.set_callbacks(StopAfter(self.passes))
        return pmf.set_params(tol=0, max_iter=max(0, self.passes - n_annealed))

    def run(self) -> dict[str, Any]:
        """Fit, and measure what came out.

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
    """A callback that ends a fit after some passes, whatever its schedule.

    Parameters
    ----------
    n_passes : int
    """

    def __init__(self, n_passes: int):
        self.n_passes = n_passes
        self._done = 0

    def setup(self, estimator, context):
        """Ask for nothing."""

    def teardown(self, estimator, context):
        """Leave nothing behind."""

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
    """Have the kernels of a method loaded or compiled before a fit is timed."""
    spec = Spec("drawn", 2, method, passes=2)
    _fitted(spec.estimator(), ratings("drawn"))


def _fitted(pmf: AnnealedPMF, data: Ratings) -> AnnealedPMF:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return pmf.fit(data.X, data.y)


def _fit_cmfrec(spec: Spec, data: Ratings) -> Any:
    """Alternating least squares by Cholesky's method; ridges of biases and of factors differ."""
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
        # Nothing is known of items without ratings but the mean.
        predicted = model.predict(user=X[:, 0], item=X[:, 1])
        return np.where(np.isnan(predicted), data.y.mean(), predicted).clip(*STARS)

    return predict


def _fit_surprise(spec: Spec, data: Ratings) -> Any:
    """Stochastic gradient descent, ``SVD``."""
    settings = dict(spec.settings)
    frame = pandas.DataFrame({"user": data.X[:, 0], "item": data.X[:, 1], "rating": data.y})
    read = surprise.Dataset.load_from_df(frame, surprise.Reader(rating_scale=STARS))
    model = surprise.SVD(n_factors=spec.n_components, random_state=spec.seed, **settings)
    model.fit(read.build_full_trainset())
    return lambda X: np.array([model.predict(user, item).est for user, item in X])


_OTHERS = {"cmfrec": _fit_cmfrec, "surprise": _fit_surprise}
