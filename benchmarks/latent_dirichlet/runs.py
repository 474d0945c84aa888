"""Runs of topic models under a clock: what decides a run, and what is kept of it."""

from __future__ import annotations

import atexit
import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import save_npz
from threadpoolctl import threadpool_limits

from ..common.records import BaseSpec
from ..common.report import processor
from .contestants import SETTINGS, Contestant, ours
from .course import INFERENCE, Course, Judge
from .data import Limits, completion_parts
from .topic_peers import peers

LIMITS = Limits(documents=1_000, tokens=100_000)
# Processor seconds of the small fits that load what a contestant needs.
_WARM_UP = 1.0

CONTESTANTS: dict[str, Contestant] = {
    **{name: ours(name) for name in SETTINGS},
    **peers(),
}


class Prepared(NamedTuple):
    """A corpus as all contestants find it.

    Attributes
    ----------
    path : Path
        The file of the training documents.
    judge : Judge
    n_documents, n_words : int
    n_tokens : float
        Of the training documents.
    """

    path: Path
    judge: Judge
    n_documents: int
    n_words: int
    n_tokens: float


@cache
def _directory() -> Path:
    made = TemporaryDirectory(prefix="topics-")
    atexit.register(made.cleanup)
    return Path(made.name)


@cache
def prepared(corpus: str) -> Prepared:
    """Write the training documents of a corpus to a file, and split its test documents."""
    training, test = completion_parts(corpus, LIMITS)
    path = _directory() / f"{corpus.replace(' ', '_')}.npz"
    save_npz(path, training.astype(np.int32))
    return Prepared(path, Judge(test), *training.shape, float(training.sum()))


@cache
def _warm(contestant: str) -> None:
    """Load or compile what a contestant needs, before the clock starts."""
    found = prepared("drawn")
    CONTESTANTS[contestant].fit(found.path, 3, 0, Course(found.judge, _WARM_UP))


@dataclass(frozen=True)
class Spec(BaseSpec):
    """Everything that determines a run; the key of its record in the file.

    Attributes
    ----------
    corpus : str
    n_components : int
    contestant : str
        A key of ``CONTESTANTS``.
    settings : str
        What the contestant's settings were when the run was made, in words.
    seed : int
    inference : str
        How the proportions of held-out documents were inferred.
    code : str
        The state of the package, in the words of whoever measures it; empty for peers.
    machine : str
        The processor, because times on different ones do not compare.
    budget : float or None
        Processor seconds after which the run stops; not a part of the key.
    """

    corpus: str
    n_components: int
    contestant: str
    settings: str
    seed: int = 0
    inference: str = INFERENCE
    code: str = ""
    machine: str = ""
    budget: float | None = None

    @classmethod
    def of(
        cls, corpus: str, n_components: int, contestant: str, seed: int = 0, code: str = ""
    ) -> Spec:
        """The specification of a run on this machine by a contestant with its present settings."""
        settings = CONTESTANTS[contestant].settings
        kept = code if contestant in SETTINGS else ""
        return cls(corpus, n_components, contestant, settings, seed, code=kept, machine=processor())

    @property
    def key(self) -> str:
        return json.dumps(asdict(self) | {"budget": None}, sort_keys=True)

    @property
    def label(self) -> str:
        return f"{self.corpus}, K = {self.n_components}, {self.contestant}, seed {self.seed}"

    def run(self) -> dict[str, Any]:
        """Fit, and evaluate on the way.

        Returns
        -------
        result : dict
            The ``curve`` of held-out likelihoods and times, the figures at the end, and the sizes
            of the corpus.
        """
        _warm(self.contestant)
        found = prepared(self.corpus)
        course = Course(found.judge, self.budget)
        with threadpool_limits(1):
            more = CONTESTANTS[self.contestant].fit(
                found.path, self.n_components, self.seed, course
            )
        sizes = {
            "documents": found.n_documents,
            "words": found.n_words,
            "tokens": found.n_tokens,
            "held_out_documents": found.judge.n_documents,
            "held_out_tokens": found.judge.n_tokens,
        }
        return {**course.result(), **more, **sizes}
