"""The instances of the suite, and its two halves.

Settings are chosen on the half *choose*, and the choice is confirmed on the half *confirm*, which
is looked at only then. Which instance is in which half follows from the names alone: in each family
they are sorted, and the first, third, fifth … are in *choose*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np

from ..common.data import present
from ..spike_slab_factor_analysis import data as factor_data
from . import data

FAMILIES = {
    "mixture": "row",
    "groups": "row",
    "columns": "row",
    "sequence": "frame",
    "factorial": "row",
    "counts": "cell",
    "factors": "row",
    "topics": "token",
    "ratings": "rating",
}
"""The families of models, each with what one observation is called."""

HALVES = ("choose", "confirm")
EM = ("EM", "ten EM")


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
    also : tuple of str
        Other libraries and algorithms that are fitted for comparison.
    truth : int or None
        The number of groups from which drawn data come, if it can be found.
    """

    name: str
    n_components: int
    load: Callable[[], tuple[Any, Any]]
    file: str | None = None
    model: dict[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    truth: int | None = None

    @property
    def family(self) -> str:
        return self.name.partition("/")[0]


def _mixtures() -> list[Instance]:
    def mixture(name, n_components, load, *arguments, file=None, **model):
        made = partial(load, *arguments)
        return Instance(f"mixture/{name}", n_components, made, file, model, EM)

    motions, daphnet, mnist = "basic_motions.npz", "daphnet_s06.npz", "mnist.npz"
    letters = "character_trajectories.npz"
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
        mixture("mnist 2", 12, data.mnist, 2, file=mnist),
        mixture("mnist 4", 12, data.mnist, 4, file=mnist),
        mixture("mnist 8", 12, data.mnist, 8, file=mnist),
        mixture("motion frames", 12, data.frames, motions, 5, file=motions),
        mixture("gestures", 15, data.gestures, file="libras.npz"),
        mixture("pen frames", 20, data.pen_frames, file=letters),
        mixture("gait frames", 8, _gait, file=daphnet, covariance_type="diag"),
        mixture("red wines", 8, data.wines, 0, 1500, file="wine_quality.npz"),
        mixture("white wines", 12, data.wines, 1, 2000, file="wine_quality.npz"),
    ]


def _groups() -> list[Instance]:
    """Drawn groups: separated ones, and in the last three ones that overlap."""
    shapes = [
        (5, 1.0, 2, 500),
        (10, 1.0, 5, 600),
        (15, 0.5, 2, 900),
        (20, 0.5, 2, 1000),
        (25, 2.0, 4, 1000),
        (30, 1.0, 3, 1500),
        (40, 0.5, 2, 2000),
        (60, 2.0, 20, 1800),
        (8, 15.0, 3, 800),
        (12, 12.0, 2, 1200),
        (20, 8.0, 2, 1500),
    ]
    found = []
    for k, deviation, d, n in shapes:
        apart = deviation <= 2.0
        name = f"groups/{k} {'separated' if apart else 'overlapping'}, {d} columns"
        load = partial(data.groups, k, deviation, d, n)
        also = (*EM, "random-swap EM", "split-and-merge EM")
        found.append(Instance(name, k, load, None, {}, also, k if apart else None))
    return found


def _columns() -> list[Instance]:
    def columns(name, n_components, load, *arguments, file=None, emission="categorical"):
        model = {"emission": emission}
        return Instance(f"columns/{name}", n_components, partial(load, *arguments), file, model)

    surveys, life, binary = "surveys_polca.npz", "life_sequences.npz", {"emission": "bernoulli"}
    return [
        columns("election", 6, data.answers, "election", file=surveys),
        columns("cheating", 3, data.answers, "cheating", file=surveys),
        columns("mushrooms", 12, data.answers, "mushroom", 1200, file="mushroom.npz"),
        columns("votes", 4, data.answers, "votes", file="votes_1984.npz", **binary),
        columns("words", 12, data.answers, "words", 1600, file="newsgroups_w100.npz", **binary),
        columns("binary digits 3", 8, data.binary_digits, 3, **binary),
        columns("binary digits 8", 6, data.binary_digits, 8, **binary),
        columns("binary digits", 20, data.binary_digits, None, **binary),
        columns("family lives", 8, data.life_table, "biofam", 800, file=life),
        columns("school to work", 8, data.life_table, "mvad", 400, file=life),
        columns("drawn answers, 5 classes", 5, data.drawn_answers, 5, 12, 4, 600),
        columns("drawn answers, 12 classes", 12, data.drawn_answers, 12, 15, 3, 900),
    ]


def _parts() -> list[Instance]:
    def parts(family, name, n_components, load, *arguments, file=None):
        return Instance(f"{family}/{name}", n_components, partial(load, *arguments), file)

    both, factors, loadings = factor_data.DRAWN
    return [
        parts("factorial", "bars", 8, data.bars, 1000),
        parts("factorial", "few bars", 8, data.bars, 300),
        parts("factorial", "overlapping parts", 8, data.drawn_parts, 500),
        parts("factorial", "digits", 12, data.images, None, 600),
        parts("factorial", "digits 3", 6, data.images, 3, 130),
        parts("factorial", "digits 5", 8, data.images, 5, 130),
        parts("counts", "digits", 12, data.counted_images, None, 400),
        parts("counts", "digits 8", 8, data.counted_images, 8, 120),
        parts("counts", "drawn, 6 components", 10, data.drawn_counts, 150, 60, 6),
        parts("counts", "drawn, 12 components", 20, data.drawn_counts, 200, 80, 12),
        parts("counts", "nips", 12, data.dense_corpus, "nips.npz", 60, 30, file="nips.npz"),
        parts("counts", "ap", 15, data.dense_corpus, "ap.npz", 200, 20, file="ap.npz"),
        parts("factors", "both sparse", 8, data.drawn_factors, both, 200),
        parts("factors", "factors sparse", 8, data.drawn_factors, factors, 200),
        parts("factors", "loadings sparse", 8, data.drawn_factors, loadings, 200),
        parts("factors", "breast cancer", 8, data.real_factors, factor_data.CANCER),
        parts("factors", "wine", 5, data.real_factors, factor_data.WINE),
        parts("factors", "digits", 10, data.real_factors, factor_data.DIGITS),
    ]


def _gait() -> data.Rows:
    """Frames of the walk as rows; whole windows are held out, as neighbours are alike."""
    train, test = data.sequences("daphnet_s06.npz", every=4, window=16)
    return train.X, test.X


def _motions_above_median() -> tuple[Any, Any]:
    return data.above_median(data.sequences("basic_motions.npz", every=2))


def _sequences() -> list[Instance]:
    def sequence(name, n_components, load, file=None, also=(), emission="gaussian", **model):
        everything = {"emission": emission, **model}
        return Instance(f"sequence/{name}", n_components, load, file, everything, also)

    motions, daphnet, libras = "basic_motions.npz", "daphnet_s06.npz", "libras.npz"
    letters, life = "character_trajectories.npz", "life_sequences.npz"
    binary = {"emission": "bernoulli"}
    symbols = {"emission": "categorical"}
    checked = ("hmmlearn",)
    return [
        sequence("pen d", 6, partial(data.pen, "d", 36), letters),
        sequence("pen m", 10, partial(data.pen, "m", 36), letters),
        sequence("motions", 8, partial(data.sequences, motions, 2), motions),
        sequence("gait", 6, partial(data.sequences, daphnet, 2, 64), daphnet, checked),
        sequence("gestures", 10, partial(data.sequences, libras, 1, None, 90), libras),
        sequence(
            "splice",
            6,
            partial(data.splice, 90),
            "splice.npz",
            checked,
            **symbols,
            n_symbols=4,
        ),
        sequence("english", 6, partial(data.english, 90), **symbols, n_symbols=27),
        sequence(
            "pen symbols g",
            8,
            partial(data.pen_symbols, "g", 36, 32),
            letters,
            **symbols,
            n_symbols=32,
        ),
        sequence("digit rows 3", 8, partial(data.digit_rows, 3), **binary),
        sequence("digit rows 8", 12, partial(data.digit_rows, 8), **binary),
        sequence("motions above median", 6, _motions_above_median, motions, **binary),
        *(
            sequence(name, 6, partial(data.life, key, 450), life, **symbols, n_symbols=n)
            for name, key, n in (("family lives", "biofam", 8), ("school to work", "mvad", 6))
        ),
        *(
            sequence(f"vowel of speaker {i}", 5, partial(data.vowels, i), "vowels_train.npz")
            for i in (0, 3, 6)
        ),
        sequence("drawn, 8 states", 8, partial(data.drawn_chain, 8, 3, False)),
        sequence(
            "drawn, 6 states in order",
            6,
            partial(data.drawn_chain, 6, 2, True),
            startprob_prior=np.eye(6)[0],
            transmat_prior=np.triu(np.ones((6, 6))),
        ),
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
            also=("cmfrec",),
        )
        for name, (every, ranks) in sets.items()
        for rank in ranks
    ]


INSTANCES = {
    instance.name: instance
    for family in (_mixtures, _groups, _columns, _sequences, _parts, _topics, _ratings)
    for instance in family()
}


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
