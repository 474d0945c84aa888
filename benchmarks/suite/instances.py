"""The instances of the suite, and its two halves.

Settings are chosen on the half *choose*, and the choice is confirmed on the half *confirm*, which
is looked at only then. Which instance is in which half follows from the names alone: in each family
they are sorted, and the first, third, fifth … are in *choose*. Instances are added in pairs of
names that are neighbours in this order, so that no other instance changes its half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np

from ..common.data import present
from . import data, drawn

FAMILIES = {
    "mixture": "row",
    "groups": "row",
    "columns": "row",
    "factorial": "row",
    "counts": "cell",
    "factors": "row",
    "sequence": "frame",
    "topics": "token",
    "ratings": "rating",
}
"""The families of models, each with what one observation is called."""

EM = "EM"
"""The name of one start of EM, which is fitted to drawn groups."""

HALVES = ("choose", "confirm")


@dataclass(frozen=True)
class Instance:
    """Data, a number of components, and what else defines the model that is fitted to them.

    Attributes
    ----------
    name : str
        The family, a slash, and a name within it.
    n_components : int
    load : callable
        Returns the training and the held-out data.
    file : str or None
        The data file that it needs.
    model : dict
        Parameters of the model that all fits have in common, by our estimator's names.
    labels : callable or None
        For drawn groups, returns the groups of the held-out rows.
    """

    name: str
    n_components: int
    load: Callable[[], tuple[Any, Any]]
    file: str | None = None
    model: dict[str, Any] = field(default_factory=dict)
    labels: Callable[[], np.ndarray] | None = None

    @property
    def family(self) -> str:
        return self.name.partition("/")[0]

    @property
    def can_be_divided(self) -> bool:
        """Whether the suite divides its rows or sequences anew for each seed.

        Held-out rows of drawn groups have labels, and ratings are not rows of their own.
        """
        return self.family not in ("groups", "ratings")


def _mixtures() -> list[Instance]:
    def mixture(name, n_components, load, *arguments, file=None, **model):
        made = partial(load, *arguments)
        return Instance(f"mixture/{name}", n_components, made, file, model)

    return [
        mixture("geyser", 4, data.table, "geyser.npz", file="geyser.npz"),
        mixture("iris", 5, data.bundled, "iris"),
        mixture("wine", 4, data.bundled, "wine"),
        mixture("breast cancer", 6, data.bundled, "breast_cancer", 8),
        # The second column is the sex, which is no Gaussian measure.
        mixture("diabetes", 5, data.bundled, "diabetes", None, (1,)),
        mixture("pima", 6, data.table, "pima.npz", file="pima.npz"),
        mixture("digit 1", 6, data.digits, 1, 15),
        mixture("digit 3", 8, data.digits, 3, 15),
        mixture("digit 7", 12, data.digits, 7, 15),
        mixture("digits", 20, data.digits, None, 15, 1200),
        mixture("mnist 2", 12, data.mnist, 2, file=data.MNIST),
        mixture("mnist 4", 12, data.mnist, 4, file=data.MNIST),
        mixture("mnist 8", 12, data.mnist, 8, file=data.MNIST),
        mixture("motion frames", 12, data.frames, data.MOTIONS, 5, file=data.MOTIONS),
        mixture("gestures", 15, data.gestures, file=data.GESTURES),
        mixture("pen frames", 20, data.pen_frames, file=data.PENS),
        mixture("gait frames", 8, _gait, file=data.GAIT, covariance_type="diag"),
        mixture("wine, red", 8, data.wines, 0, 1200, file=data.WINES),
        mixture("wine, white", 10, data.wines, 1, 1600, file=data.WINES),
    ]


def _groups() -> list[Instance]:
    """Drawn groups; as many components are fitted as there are groups."""
    sizes = [(5, 2), (10, 5), (20, 2), (30, 10), (60, 5)]
    sizes_of = {"separated": [*sizes, (15, 20)], "overlapping": [*sizes, (8, 20)]}
    return [
        Instance(
            f"groups/{kind} {n:02} in {d:02}",
            n,
            partial(drawn.group_rows, kind, n, d),
            labels=partial(drawn.group_labels, kind, n, d),
        )
        for kind, pairs in sizes_of.items()
        for n, d in pairs
    ]


def _columns() -> list[Instance]:
    def columns(name, n_components, load, *arguments, emission="categorical", file=None):
        made, model = partial(load, *arguments), {"emission": emission}
        return Instance(f"columns/{name}", n_components, made, file, model)

    measures = [
        ("measures", "gaussian", slice(1, 8)),
        ("pregnancies", "poisson", [0]),
        ("diagnosis", "bernoulli", [8]),
    ]
    tastes = [
        ("measures", "gaussian", slice(0, 11)),
        ("grade", "categorical", [11]),
        ("white", "bernoulli", [12]),
    ]
    kinds = [
        ("answers", "categorical", slice(0, 8)),
        ("sizes", "gaussian", slice(8, 10)),
        ("ticks", "bernoulli", slice(10, 14)),
    ]
    surveys, binary = data.SURVEYS, "bernoulli"
    votes, mushroom = "votes_1984.npz", "mushroom.npz"
    return [
        columns("election", 6, data.survey, surveys, "election", file=surveys),
        columns("gss82", 4, data.survey, surveys, "gss82", file=surveys),
        columns("votes", 5, data.survey, votes, emission=binary, file=votes),
        columns("mushrooms", 15, data.survey, mushroom, file=mushroom),
        columns("words", 8, data.words, emission=binary, file=data.WORDS),
        columns("pixels", 15, data.pixels, 1200, emission=binary),
        columns("families", 8, data.lives, "biofam", 537, file=data.LIVES),
        columns("careers", 10, data.lives, "mvad", 500, file=data.LIVES),
        columns("clinic", 5, data.clinic, emission=measures, file="pima.npz"),
        columns("cellar", 8, data.cellar, 1200, emission=tastes, file=data.WINES),
        columns("drawn answers 5", 5, drawn.answers, 5, 12, 0.6, "categorical"),
        columns("drawn answers 12", 12, drawn.answers, 12, 20, 0.6, "categorical"),
        columns("drawn ticks 10", 10, drawn.answers, 10, 30, 0.6, binary),
        columns("drawn mixed 8", 8, drawn.answers, 8, 14, 0.7, kinds, emission=kinds),
    ]


def _factorial() -> list[Instance]:
    return [
        Instance("factorial/parts of a paper", 8, drawn.parts),
        Instance("factorial/squares", 8, drawn.squares),
        Instance("factorial/drawn pictures", 10, partial(drawn.pictures, 10, 25)),
        Instance("factorial/digits", 12, partial(data.images, 800)),
        Instance("factorial/digit 3", 8, partial(data.images, 200, 3)),
        Instance("factorial/digit 8", 10, partial(data.images, 200, 8)),
    ]


def _counts() -> list[Instance]:
    def counts(name, n_components, load, *arguments, file=None):
        made = partial(load, *arguments)
        return Instance(f"counts/{name}", n_components, made, file)

    nips, news = "nips.npz", "newsgroups20.npz"
    return [
        counts("drawn 5", 5, drawn.counts, 200, 40, 5),
        counts("drawn 12", 12, drawn.counts, 300, 60, 12),
        counts("digits", 15, data.count_rows, None, 500, 64),
        counts("nips", 10, data.count_rows, nips, 200, 150, file=nips),
        counts("news", 10, data.count_rows, news, 500, 150, file=news),
    ]


def _factors() -> list[Instance]:
    return [
        Instance("factors/drawn, both sparse", 8, partial(drawn.factors, sparse_loadings=True)),
        Instance("factors/drawn, factors sparse", 8, partial(drawn.factors, sparse_loadings=False)),
        Instance("factors/cancer", 8, partial(data.factor_rows, "cancer")),
        Instance("factors/digits", 12, partial(data.factor_rows, "digits")),
    ]


def _gait() -> data.Rows:
    """Frames of the walk as rows; whole windows are held out, as neighbours are alike."""
    train, test = data.sequences(data.GAIT, every=4, window=16)
    return train.X, test.X


def _motions_above_median() -> tuple[Any, Any]:
    return data.above_median(data.sequences(data.MOTIONS, every=2))


def _sequences() -> list[Instance]:
    def sequence(name, n_components, load, file=None, emission="gaussian", **model):
        everything = {"emission": emission, **model}
        return Instance(f"sequence/{name}", n_components, load, file, everything)

    motions, daphnet, libras, letters = data.MOTIONS, data.GAIT, data.GESTURES, data.PENS
    binary = {"emission": "bernoulli"}
    lives, vowels = data.LIVES, data.VOWELS

    def symbols(n: int) -> dict[str, Any]:
        return {"emission": "categorical", "n_symbols": n}

    pens, careers = partial(data.pen_symbols, "g", 36, 32), partial(data.life_chains, "mvad", 90)
    families = partial(data.life_chains, "biofam", 300)
    return [
        sequence("pen d", 6, partial(data.pen, "d", 36), letters),
        sequence("pen m", 10, partial(data.pen, "m", 36), letters),
        sequence("motions", 8, partial(data.sequences, motions, 2), motions),
        sequence("gait", 6, partial(data.sequences, daphnet, 2, 64), daphnet),
        sequence("gestures", 10, partial(data.sequences, libras, 1, None, 90), libras),
        sequence("splice", 6, partial(data.splice, 90), "splice.npz", **symbols(4)),
        sequence("english", 6, partial(data.english, 90), **symbols(27)),
        sequence("pen symbols g", 8, pens, letters, **symbols(32)),
        sequence("digit rows 3", 8, partial(data.digit_rows, 3), **binary),
        sequence("digit rows 8", 12, partial(data.digit_rows, 8), **binary),
        sequence("motions above median", 6, _motions_above_median, motions, **binary),
        sequence("lives, careers", 8, careers, lives, **symbols(6)),
        sequence("lives, families", 6, families, lives, **symbols(8)),
        sequence("vowels", 9, partial(data.vowels, None, 120), vowels),
        sequence("vowels of a speaker", 4, partial(data.vowels, 0), vowels),
        *(
            sequence(
                f"drawn, one way {k}",
                k,
                partial(drawn.chains, "left to right", k),
                startprob_prior=np.eye(k)[0],
                transmat_prior=np.triu(np.ones((k, k))),
            )
            for k in (6, 10)
        ),
        sequence("drawn, sticky 8", 8, partial(drawn.chains, "sticky", 8)),
        sequence("drawn, symbols 6", 6, partial(drawn.symbols, 6), **symbols(12)),
    ]


def _topics() -> list[Instance]:
    sizes = {"ap": 150, "newsgroups20": 300, "newsgroups_basehock": 300, "nips": 40}
    topics = {"ap": (10, 25), "newsgroups20": (10, 25), "newsgroups_basehock": (5, 15)}
    topics["nips"] = (5, 15)
    return [
        Instance(
            f"topics/{corpus} {k}",
            k,
            partial(data.corpus, f"{corpus}.npz", sizes[corpus]),
            f"{corpus}.npz",
        )
        for corpus in sizes
        for k in topics[corpus]
    ]


def _ratings() -> list[Instance]:
    sets = {"movielens_100k": (3, (5, 15)), "jester": (8, (3, 10))}
    return [
        Instance(
            f"ratings/{name} {rank}",
            rank,
            partial(data.ratings, f"{name}.npz", every),
            f"{name}.npz",
        )
        for name, (every, ranks) in sets.items()
        for rank in ranks
    ]


_MADE = (
    *(_mixtures, _groups, _columns, _factorial, _counts, _factors),
    *(_sequences, _topics, _ratings),
)
INSTANCES = {instance.name: instance for made in _MADE for instance in made()}


def halves() -> dict[str, str]:
    """The half of every instance, by its name."""
    found = {}
    for family in FAMILIES:
        names = sorted(name for name, i in INSTANCES.items() if i.family == family)
        found |= {name: HALVES[i % 2] for i, name in enumerate(names)}
    return found


def selected(half: str | None, patterns: Iterable[str] = ("*",)) -> list[Instance]:
    """The instances of a half, or of both, whose names match any of the patterns.

    Raises
    ------
    ValueError
        If no instance of that half matches a pattern.
    """
    of = halves()
    names = [name for name in INSTANCES if half is None or of[name] == half]
    chosen: set[str] = set()
    for pattern in patterns:
        found = {name for name in names if fnmatchcase(name, pattern)}
        if not found:
            where = "the suite" if half is None else f"the half {half!r}"
            raise ValueError(f"No instance of {where} is called {pattern!r}; there are {names}.")
        chosen |= found
    return [INSTANCES[name] for name in names if name in chosen]


def with_files(instances: Iterable[Instance]) -> list[Instance]:
    """The instances whose files are there; a message is printed for each missing file."""
    names = [instance.name for instance in instances]
    return [INSTANCES[name] for name in present(names, lambda name: INSTANCES[name].file)]
