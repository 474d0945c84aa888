"""The data of each contest, what is scored, and the contestants with their settings.

A contestant fits once for a seed, and returns what scores the held-out data. Data and scores are
those of the suite and of the pages of single families. A seed above 0 also divides the rows anew
into training and held-out ones, the same for all contestants, where rows can be divided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import xlogy
from sklearn.datasets import load_digits
from sklearn.decomposition import MiniBatchNMF
from sklearn.neural_network import BernoulliRBM

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedSigmoidBeliefNet,
    AnnealedSpikeSlabFactorAnalysis,
)

from ..gamma_process_nmf import held_out
from ..spike_slab_factor_analysis.speed import QUICKLY, as_code, filled_by_peer, pictures
from ..suite import data
from ..suite.families import FAMILY
from ..suite.instances import INSTANCES, Instance
from . import libraries
from .libraries import Score

OURS, PLAIN = "ours", 'ours, `annealing="none"`'
WITHOUT_SCALES = "ours, `user_scales=False`"


class Contestant(NamedTuple):
    """A way to fit: what it is called and set to, and the package that it needs.

    Attributes
    ----------
    fit : callable
        Fits with a seed, and returns what computes the score.
    settings, package : str
    """

    fit: Callable[[int], Score]
    settings: str = "defaults"
    package: str = "sklearn_anneal"

    @property
    def is_ours(self) -> bool:
        return self.package == "sklearn_anneal"

    @property
    def distribution(self) -> str:
        """The name by which the package is installed."""
        top = self.package.partition(".")[0]
        usual = {"sklearn": "scikit-learn", "surprise": "scikit-surprise"}
        return usual.get(top, top.replace("_", "-"))


@dataclass(frozen=True)
class Contest:
    """Data on which ours and the peers are compared.

    Attributes
    ----------
    title, about, unit : str
    make : callable
        Returns the contestants by their names.
    margin : float
        The largest difference of scores that counts as none.
    file : str or None
        The data file that it needs.
    sign : int
        1 where larger scores are better, and -1 for errors.
    """

    title: str
    about: str
    unit: str
    make: Callable[[], Mapping[str, Contestant]]
    margin: float = 0.01
    file: str | None = None
    sign: int = 1


_FAMILIES: dict[tuple[str, int], Any] = {}


def family_of(instance: Instance, seed: int) -> Any:
    """The family of an instance, whose data are read and divided once for each seed."""
    key = instance.name, seed
    if key not in _FAMILIES:
        _FAMILIES[key] = FAMILY[instance.family](instance, seed)
    return _FAMILIES[key]


def _ours(instance: Instance, figure: str = "held_out") -> dict[str, Contestant]:
    """Our default, and one plain fit."""
    fit = partial(_fitted, instance, figure)
    return {OURS: Contestant(fit), PLAIN: Contestant(partial(fit, annealing="none"))}


def _fitted(instance: Instance, figure: str, seed: int, **parameters: Any) -> Score:
    family = family_of(instance, seed)
    fitted = family.fit_ours(seed, parameters)
    return lambda: family.predictions(fitted)[figure]


def _of(instance: Instance, *given: tuple[Any, ...]) -> dict[str, Contestant]:
    """Contestants from a name, a function of the family and the seed, settings and a package."""

    def bound(function: Callable[..., Score], options: dict[str, Any]) -> Callable[[int], Score]:
        return lambda seed: function(family_of(instance, seed), seed, **options)

    return {
        name: Contestant(bound(function, options), settings, package)
        for name, function, options, settings, package in given
    }


# Families of the suite


def _mixtures(instance: Instance) -> dict[str, Contestant]:
    # The share of the covariance that the prior expects is the best of six, from 1 to 0.0001.
    share, moves = {"share": 1e-4}, "births, merges, deletions, `sF=1e-4`"
    return _ours(instance) | _of(
        instance,
        ("GaussianMixture", libraries.em, {"n_init": 1}, "one start", "sklearn"),
        ("GaussianMixture, ten", libraries.em, {"n_init": 10}, "`n_init=10`", "sklearn"),
        ("BayesianGaussianMixture", libraries.usual_priors, {},
         "`n_init=10, max_iter=100`, tolerance as ours", "sklearn"),
        ("bnpy", libraries.bnpy_gaussians, share, f"as many components at first; {moves}", "bnpy"),
        ("bnpy, from one", libraries.bnpy_gaussians, share | {"start": 1},
         f"one component at first; {moves}", "bnpy"),
    )  # fmt: skip


def _columns(instance: Instance) -> dict[str, Contestant]:
    return _ours(instance) | _of(
        instance,
        ("StepMix", libraries.stepmix, {"n_init": 1}, "one start", "stepmix"),
        ("StepMix, ten", libraries.stepmix, {"n_init": 10}, "`n_init=10`", "stepmix"),
        ("KModes", libraries.kmodes, {},
         "`n_init=10`; the shares of its clusters, smoothed, are a mixture", "kmodes.kmodes"),
    )  # fmt: skip


def _sequences(instance: Instance) -> dict[str, Contestant]:
    em, dynamax = libraries.hmmlearn_em, libraries.dynamax
    return _ours(instance) | _of(
        instance,
        ("hmmlearn", em, {"n_init": 1}, "EM, one start, smoothed by one count", "hmmlearn.hmm"),
        ("hmmlearn, ten", em, {"n_init": 10}, "the best of ten starts", "hmmlearn.hmm"),
        ("dynamax", dynamax, {"iterations": 50},
         "EM, 50 iterations, which every fit compiles", "dynamax.hidden_markov_model"),
        ("pomegranate", libraries.pomegranate, {},
         "EM, `max_iter=100`, tolerance as ours", "pomegranate.hmm"),
        ("bnpy", libraries.bnpy_chains, {"share": 1.0}, "as many states at first; merges", "bnpy"),
    )  # fmt: skip


def _topics(instance: Instance) -> dict[str, Contestant]:
    sklearn, tomotopy, gensim = (
        libraries.sklearn_topics,
        libraries.tomotopy_topics,
        libraries.gensim_topics,
    )
    return _ours(instance) | _of(
        instance,
        ("scikit-learn", sklearn, {"max_iter": 10}, "defaults, 10 passes", "sklearn"),
        ("scikit-learn, 30", sklearn, {"max_iter": 30}, "`max_iter=30`", "sklearn"),
        ("tomotopy", tomotopy, {"iterations": 100}, "100 iterations", "tomotopy"),
        ("tomotopy, 500", tomotopy, {"iterations": 500}, "500 iterations", "tomotopy"),
        (
            "gensim",
            gensim,
            {"passes": 20},
            '20 passes, `alpha="auto", eta="auto"`',
            "gensim.models",
        ),
    )


def _ratings(instance: Instance) -> dict[str, Contestant]:
    without = partial(_fitted, instance, "rmse", user_scales=False)
    return _ours(instance, "rmse") | {WITHOUT_SCALES: Contestant(without)} | _of(
        instance,
        ("cmfrec", libraries.cmfrec, {},
         "30 alternations, the best of five ridges for a tenth of the ratings", "cmfrec"),
        ("myfm", libraries.myfm, {"iterations": 500}, "Gibbs sampling, 500 iterations", "myfm"),
        ("myfm, raters", libraries.myfm, {"iterations": 200, "implicit": "raters"},
         "200 iterations; all raters of the item are features, as our default has them", "myfm"),
        ("myfm, raters and rated", libraries.myfm, {"iterations": 200, "implicit": "both"},
         "200 iterations; all items that the user rated are features too", "myfm"),
        ("surprise", libraries.surprise, {}, "`SVD`, 100 factors, 20 epochs", "surprise"),
    )  # fmt: skip


# Families with scores of their own


def _counts(instance: Instance) -> dict[str, Contestant]:
    @cache
    def divided(seed: int) -> tuple[held_out.Table, held_out.Held]:
        train, test = instance.load()
        if seed:
            train, test = data.divided_anew(train, test, seed)
        table = held_out.Table(instance.name, train, test, instance.n_components)
        return table, held_out.Held.of(table)

    def fit(name: str, smoothing: int, seed: int) -> Score:
        table, held = divided(seed)
        fitted = held_out.fits(table, seed)[name]()
        return lambda: held_out.scores(fitted, table, held)[smoothing]

    def batches(seed: int) -> Score:
        table, held = divided(seed)
        made = MiniBatchNMF(
            instance.n_components,
            beta_loss="kullback-leibler",
            init="random",
            random_state=seed,
        ).fit(table.train.astype(np.float64))

        def score() -> float:
            given = made.transform(held.given.toarray().astype(np.float64))
            return held.per_token(given, made.components_, held_out.SMOOTHINGS[1])

        return score

    margins, sklearn = "a tenth of the margins added", "sklearn"
    named = "NMF, {} iterations"
    return {
        OURS: Contestant(partial(fit, held_out.DEFAULT, 0)),
        PLAIN: Contestant(partial(fit, held_out.PLAIN, 0), "from a random start"),
        "our topics × totals": Contestant(
            partial(fit, held_out.TOPICS, 0), "`AnnealedLatentDirichletAllocation`"
        ),
        **{
            named.format(stop): Contestant(
                partial(fit, named.format(stop), 1), f"Kullback–Leibler, {margins}", sklearn
            )
            for stop in (30, 200)
        },
        "MiniBatchNMF": Contestant(batches, f"Kullback–Leibler, {margins}", sklearn),
    }


_FACTORS = 20


def _cells() -> dict[str, Contestant]:
    X = pictures("digits")
    gone = np.random.default_rng(0).random(X.shape) < 0.1
    gaps = np.where(gone, np.nan, X)

    def contestant(fill: Callable[..., np.ndarray], *about: str) -> Contestant:
        def fit(seed: int) -> Score:
            filled = fill(gaps, _FACTORS, seed)
            return lambda: float(np.sqrt(np.mean((filled - X)[gone] ** 2)))

        return Contestant(fit, *about)

    def ours(X: np.ndarray, k: int, seed: int, **how: Any) -> np.ndarray:
        made = AnnealedSpikeSlabFactorAnalysis(k, random_state=seed, **how).fit(X)
        return made.inverse_transform(made.transform(X))

    def mixture(X: np.ndarray, k: int, seed: int) -> np.ndarray:
        made = AnnealedBayesianGaussianMixture(10, annealing="none", random_state=seed)
        return made.fit(X).impute(X)

    return {
        OURS: contestant(ours),
        "ours, sparse factors": contestant(
            partial(ours, activation_prior="learned"), '`activation_prior="learned"`'
        ),
        "ours, Gaussian factors": contestant(partial(ours, **QUICKLY), f"`{as_code(QUICKLY)}`"),
        "our mixture": contestant(
            mixture, '`AnnealedBayesianGaussianMixture(10, annealing="none")`'
        ),
        "FactorAnalysis": contestant(
            lambda X, k, seed: filled_by_peer(X, k), "three rounds of imputation", "sklearn"
        ),
        "mofapy2": contestant(
            libraries.mofapy2,
            'sparse loadings, `convergence_mode="medium"`',
            "mofapy2.run.entry_point",
        ),
    }


_UNITS = 64
_MACHINES = {
    "BernoulliRBM": {"learning_rate": 0.06, "n_iter": 20},
    "BernoulliRBM, 100": {"learning_rate": 0.02, "n_iter": 100},
    "BernoulliRBM, 400": {"learning_rate": 0.005, "n_iter": 400},
}
_NETS: dict[str, dict[str, Any]] = {
    OURS: {},
    'ours, `annealing="proximity"`': {"annealing": "proximity"},
    "ours, smaller steps": {"learning_rate_init": 0.03},
    "ours, without decay": {"weight_decay": 0.0},
    "ours, two layers": {"hidden_layer_sizes": (_UNITS, 32)},
}
# Settings that change the units alone, and no probability of a picture.
_GRADED = {"ours, graded units": {"transform_temperature": 2.0}}


def _net(how: dict[str, Any], seed: int) -> Any:
    return AnnealedSigmoidBeliefNet(
        **{"hidden_layer_sizes": (_UNITS,), "random_state": seed, **how}
    )


def _machine(how: dict[str, Any], seed: int) -> Any:
    return BernoulliRBM(_UNITS, random_state=seed, **how)


def _binary_pictures() -> tuple[np.ndarray, ...]:
    """Pictures and classes, of 1,200 digits and of the others."""
    X, y = load_digits(return_X_y=True)
    X = (X >= 8).astype(np.float64)
    order = np.random.default_rng(0).permutation(len(X))
    first, rest = order[:1200], order[1200:]
    return X[first], y[first], X[rest], y[rest]


def _nets(
    score: Callable[..., float], pixels: Any, score_of_machine: Any, ours: dict[str, Any] = _NETS
) -> dict[str, Contestant]:
    """Nets and restricted Boltzmann machines; ``score`` takes a fitted one and the pictures."""
    parts = _binary_pictures()

    def contestant(make: Callable[[int], Any], score: Any, *about: str) -> Contestant:
        def fit(seed: int) -> Score:
            made = make(seed).fit(parts[0])
            return lambda: score(made, parts)

        return Contestant(fit, *about)

    def settings(how: dict[str, Any]) -> str:
        return f"`{as_code(how)}`" if how else "defaults"

    return {
        **{k: contestant(partial(_net, how), score, settings(how)) for k, how in ours.items()},
        **{
            k: contestant(partial(_machine, how), score_of_machine, settings(how), "sklearn")
            for k, how in _MACHINES.items()
        },
        "pixels": contestant(lambda seed: _Pixels(), pixels, "no hidden units", "sklearn"),
    }


def _units(scaled: bool = False) -> dict[str, Contestant]:
    def score(made: Any, parts: tuple[np.ndarray, ...]) -> float:
        return libraries.accuracy(made.transform, parts, scaled)

    return _nets(score, score, score, _NETS | _GRADED)


def _digits() -> dict[str, Contestant]:
    def smoothed_means(X: np.ndarray) -> np.ndarray:
        return (X.sum(axis=0) + 0.5) / (len(X) + 1.0)

    def of_machine(made: Any, parts: tuple[np.ndarray, ...]) -> float:
        return libraries.log_probability(made, parts[2], smoothed_means(parts[0]))

    def of_pixels(made: Any, parts: tuple[np.ndarray, ...]) -> float:
        p = smoothed_means(parts[0])
        return float((xlogy(parts[2], p) + xlogy(1.0 - parts[2], 1.0 - p)).sum(axis=1).mean())

    return _nets(lambda made, parts: float(made.score(parts[2])), of_pixels, of_machine)


class _Pixels:
    """The pixels themselves."""

    def fit(self, X: np.ndarray) -> _Pixels:
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        return X


# The contests

_TOKEN = "nats per held-out token"


def _contest(instance: Instance, make: Callable[..., Any], what: str, **how: Any) -> Contest:
    family, _, name = instance.name.partition("/")
    unit = how.pop("unit", "nats per held-out row")
    title = f"{what}: {name}, K = {instance.n_components}"
    return Contest(
        title, how.pop("about", ""), unit, partial(make, instance), file=instance.file, **how
    )


_PAPERS = Instance("topics/AP", 20, partial(data.corpus, "ap.npz", 300), "ap.npz")


def contests() -> dict[str, Contest]:
    found, frame = INSTANCES, "nats per held-out frame"
    chains = "Hidden Markov models"
    half = "One half of each held-out row is predicted from the other."
    return {
        "pima": _contest(found["mixture/pima"], _mixtures, "Gaussian mixtures"),
        "votes": _contest(found["columns/votes"], _columns, "Latent classes"),
        "gss82": _contest(found["columns/gss82"], _columns, "Latent classes"),
        "motions": _contest(found["sequence/motions"], _sequences, chains, unit=frame),
        "papers": _contest(
            _PAPERS, _topics, "Topics", unit=_TOKEN,
            about="300 documents. One half of each of 150 others is predicted from the other half; "
            "its proportions are inferred by the same code from the topics of each library.",
        ),
        "films": _contest(
            found["ratings/movielens_100k 5"], _ratings, "Ratings of films",
            unit="root mean square error of held-out stars", margin=0.002, sign=-1,
            about="Nine tenths of the ratings of a third of the users; the others are held out.",
        ),
        "jokes": _contest(
            found["ratings/jester 10"], _ratings, "Ratings of jokes",
            unit="root mean square error of held-out ratings from −10 to 10", margin=0.01, sign=-1,
            about="Nine tenths of the ratings of an eighth of the users; the others are held out.",
        ),
        "news": _contest(found["counts/news"], _counts, "Counts", unit=_TOKEN, about=half),
        "cells": Contest(
            f"Sparse factors with missing cells: digits, K = {_FACTORS}",
            "400 pictures, a tenth of whose cells are deleted.",
            "root mean square error of deleted cells, in standard deviations of the columns",
            _cells, 0.005, sign=-1,
        ),
        "units": Contest(
            f"Nets of binary units: digits, {_UNITS} units",
            "The classes of 597 held-out pictures by a logistic regression on the hidden units, "
            "which were trained without classes on 1,200.",
            "accuracy", _units,
        ),
        "scaled": Contest(
            f"Nets of binary units, standardised: digits, {_UNITS} units",
            "The same, with a `StandardScaler` before the regression, whose penalty depends on the "
            "scale of the units.",
            "accuracy", partial(_units, scaled=True),
        ),
        "digits": Contest(
            f"Nets as distributions of pictures: digits, {_UNITS} units",
            "The same pictures. Nets have a lower bound on the log probability; that of "
            "restricted Boltzmann machines is estimated by annealed importance sampling.",
            "nats per held-out picture", _digits, 0.1,
        ),
    }  # fmt: skip


def quick_contests() -> dict[str, Contest]:
    """Small ones that need no file."""
    return {
        "iris": _contest(INSTANCES["mixture/iris"], _mixtures, "Gaussian mixtures"),
        "counts": _contest(INSTANCES["counts/drawn 5"], _counts, "Counts", unit=_TOKEN),
    }
