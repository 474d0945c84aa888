"""The fits that the experiments with mixtures of binary columns and categories consist of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sklearn_anneal import AnnealedBayesianMixture

from ..common.peers import is_there
from ..common.reproduction import Cache, Settings, run_missing, settings_of
from .data import available
from .fits import FLAT_PRIORS, GIBBS, OURS, STEPMIX, USUAL_PRIORS, Spec, StepMix

PARTS = ("bernoullis", "surveys", "labels", "words", "digits")

Pairs = tuple[tuple[str, int], ...]
Key = tuple[str, int, str]
"""Data, K and the name of the method in the tables."""


@dataclass(frozen=True)
class Method:
    """A row of the tables: everything of a specification but the data, K and the seed."""

    library: str = OURS
    method: str = "none"
    settings: Settings = ()
    parameters: Settings = ()


@dataclass(frozen=True)
class Size:
    """The size of the experiments.

    Attributes
    ----------
    bernoullis : tuple of (str, int, float)
        The drawn mixture of Bernoullis, its K and its α.
    surveys, labels, words, digits : tuple of (str, int)
        Data sets and numbers of components.
    restarted : tuple of (str, int)
        Those tables with classes to which StepMix is fitted from ten starts too, which takes long
        where columns have many categories.
    seeds : int
        Number of repetitions with the drawn mixture, and of the surveys.
    some, words_seeds, few : int
        Number of repetitions of tables with classes, of words, and of digits.
    """

    bernoullis: tuple[str, int, float] = ("Bernoullis", 100, 20.0)
    surveys: Pairs = (
        ("carcinoma", 2),
        ("carcinoma", 3),
        ("cheating", 2),
        ("gss82", 2),
        ("values", 2),
        ("election", 2),
        ("election", 3),
        ("carcinoma", 4),
        ("gss82", 4),
        ("election", 5),
        ("election", 7),
    )
    labels: Pairs = (
        ("mushroom", 2),
        ("mushroom", 12),
        ("votes", 2),
        ("votes", 4),
    )
    restarted: Pairs = (("votes", 2), ("votes", 4))
    words: Pairs = (("words", 4), ("words", 8), ("words", 12), ("words", 20))
    digits: Pairs = (("digits", 50),)
    seeds: int = 20
    some: int = 10
    words_seeds: int = 8
    few: int = 3
    quick: bool = False


FULL = Size()
QUICK = Size(
    bernoullis=("drawn Bernoullis", 8, 4.0),
    surveys=(("drawn survey", 2),),
    labels=(("drawn classes", 2),),
    restarted=(("drawn classes", 2),),
    words=(("drawn words", 2),),
    digits=(("drawn words", 3),),
    seeds=2,
    some=2,
    words_seeds=2,
    few=1,
    quick=True,
)

DEFAULT_NAME, VI, REHEATING = "default", "VI", "reheating"
DETERMINISTIC = "deterministic, T from 10 to 1"
LEARNED = "learned priors"
BEST_OF_TEN = "VI, best of ten starts"
SSVI_A, SSVI = "SSVI-A", "SSVI"
STARTS = ("kmeans", "k-means++", "random_from_data")
EM, EM_OF_TEN = "StepMix, one start", "StepMix, best of ten starts"


def default() -> tuple[str, Settings]:
    """The name of the annealing method that the estimator takes by default, and its start."""
    mixture = AnnealedBayesianMixture()
    return mixture.annealing, settings_of(init_params=mixture.init_params)


def _ours(method: str, *parameters: Settings, settings: Settings = (), **more: object) -> Method:
    every = sum(parameters, ()) + settings_of(**more)
    return Method(OURS, method, settings, tuple(sorted(every)))


def bernoulli_methods(n_components: int, alpha: float) -> dict[str, Method]:
    """All methods for the drawn mixture of Bernoullis, with its own priors if none are learned."""
    each = alpha / n_components
    true = settings_of(
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=each,
        emissionprob_prior=1.0,
    )
    learned = settings_of(weight_concentration_prior_type="dirichlet_distribution")
    # The decay of the step size, κ, has to be above one half.
    decay = settings_of(learning_decay=0.5001, init_params="random")

    def structured(gradient: str) -> Settings:
        return settings_of(gradient=gradient, n_passes=500, evaluate_every=500)

    methods = {VI: _ours("none", true, init_params="random")}
    methods |= {f"{VI}, start {s}": _ours("none", true, init_params=s) for s in STARTS}
    methods |= {
        BEST_OF_TEN: _ours("none", true, init_params="random", n_init=10),
        SSVI_A: _ours("structured", true, decay, settings=structured("approximate")),
        SSVI: _ours("structured", true, decay, settings=structured("exact")),
        DETERMINISTIC: _ours(
            "deterministic",
            true,
            init_params="random",
            settings=settings_of(
                form="local",
                initial_temperature=10.0,
                schedule="geometric",
                n_passes=50,
                jitter=0.3,
            ),
        ),
    }
    methods |= {
        name: _ours(name, true, init_params="random")
        for name in ("svi_plus", "stochastic", "tempering", "local_tempering", "proximity")
    }
    methods |= {
        REHEATING: _ours("reheating", true, init_params="random"),
        f"{DEFAULT_NAME}, true priors": _ours(default()[0], true),
        f"{DEFAULT_NAME}, {LEARNED}": _ours(default()[0], learned),
        f"{VI}, {LEARNED}": _ours("none", learned, init_params="random"),
        f"{REHEATING}, {LEARNED}": _ours("reheating", learned, init_params="random"),
        f"{SSVI_A}, {LEARNED}": _ours(
            "structured", learned, decay, settings=structured("approximate")
        ),
        GIBBS: Method(GIBBS, parameters=settings_of(alpha=each)),
    }
    return methods


def survey_methods() -> dict[str, Method]:
    return {
        DEFAULT_NAME: _ours(default()[0], FLAT_PRIORS),
        REHEATING: _ours("reheating", FLAT_PRIORS),
        VI: _ours("none", FLAT_PRIORS),
        EM: Method(STEPMIX),
    }


def table_methods() -> dict[str, Method]:
    """Methods for tables with classes, words and digits; with "default" nothing is set."""
    return {
        DEFAULT_NAME: _ours(default()[0]),
        f"{DEFAULT_NAME}, usual priors": _ours(default()[0], USUAL_PRIORS),
        VI: _ours("none", USUAL_PRIORS),
        f"{VI}, {LEARNED}": _ours("none"),
        EM: Method(STEPMIX),
    }


def _cells(pairs: Pairs, methods: dict[str, Method], polish: bool = False) -> dict[Key, Spec]:
    names = available([name for name, _ in pairs])
    return {
        (name, k, label): Spec(
            name, k, m.library, m.method, m.settings, m.parameters, polish=polish
        )
        for name, k in pairs
        if name in names
        for label, m in methods.items()
        if m.library != STEPMIX or is_there("stepmix", StepMix)
    }


def bernoulli_cells(size: Size) -> dict[Key, Spec]:
    name, k, alpha = size.bernoullis
    return _cells(((name, k),), bernoulli_methods(k, alpha))


def survey_cells(size: Size) -> dict[Key, Spec]:
    return _cells(size.surveys, survey_methods(), polish=True)


def label_cells(size: Size) -> dict[Key, Spec]:
    ten = {EM_OF_TEN: Method(STEPMIX, parameters=settings_of(n_init=10))}
    return _cells(size.labels, table_methods()) | _cells(size.restarted, ten)


def word_cells(size: Size) -> dict[Key, Spec]:
    return _cells(size.words, table_methods())


def digit_cells(size: Size) -> dict[Key, Spec]:
    return _cells(size.digits, table_methods())


def plan(size: Size) -> dict[str, tuple[Callable[[Size], dict[Key, Spec]], int]]:
    """The fits of each part, and how often each is made."""
    return {
        "bernoullis": (bernoulli_cells, size.seeds),
        "surveys": (survey_cells, size.seeds),
        "labels": (label_cells, size.some),
        "words": (word_cells, size.words_seeds),
        "digits": (digit_cells, size.few),
    }


def measure(parts: Iterable[str], size: Size, cache: Cache, jobs: int) -> None:
    """Make those fits of the given parts that the cache does not have."""
    for part in parts:
        cells, n_seeds = plan(size)[part]
        run_missing(cells(size).values(), n_seeds, cache, jobs)
