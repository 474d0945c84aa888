"""Other libraries of topic models, fitted under the clock of a course.

A library that shows no states on the way is fitted anew for every point of its course; the time of
a point is that of its own fit.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.decomposition import LatentDirichletAllocation

from sklearn_anneal import AnnealedLatentDirichletAllocation

from ..common.peers import is_there
from .contestants import Contestant, counts, in_words
from .course import MARKS, Course, State

try:
    import tomotopy
except ImportError:
    tomotopy = None
try:
    from pyrmallet import _rust_mallet as mallet
except ImportError:
    mallet = None
try:
    import gensim
    from gensim.models import LdaModel
except ImportError:
    gensim, LdaModel = None, object
try:
    import vowpalwabbit
except ImportError:
    vowpalwabbit = None

TOMOTOPY, TWO_WORKERS, MALLET = "tomotopy", "tomotopy, 2 workers", "Mallet (pyrmallet)"
GENSIM, VOWPAL = "gensim", "Vowpal Wabbit"
SKLEARN_BATCH, SKLEARN_ONLINE = "scikit-learn, batch", "scikit-learn, online"

# Samplers: number of iterations, and the last states, of which the predictions are averaged.
ITERATIONS = 500
SAMPLES, SPACING = 10, 10
# The iterations or passes of the fits that are made anew for every point.
ANEW_ITERATIONS = (1, 3, 10, 30, 100, 300, ITERATIONS)
ANEW_PASSES = (1, 2, 3, 5, 7, 10)


class BudgetUsedUpError(Exception):
    """Raised from within a library to end its fit."""


def words_of(X: csr_matrix, names: np.ndarray) -> Iterator[list[str]]:
    """The tokens of each document."""
    for start, stop in pairwise(X.indptr):
        yield np.repeat(names[X.indices[start:stop]], X.data[start:stop]).tolist()


# Tomotopy


def _fit_tomotopy(
    path: Path, k: int, seed: int, course: Course, *, workers: int, **settings: Any
) -> dict[str, Any]:
    course.clock.start()
    X = counts(path, "int32")
    model = tomotopy.LDAModel(k=k, seed=seed, **settings)
    for words in words_of(X, np.array([str(word) for word in range(X.shape[1])])):
        model.add_doc(words)
    state = partial(_state_of_tomotopy, model)
    done = 0
    for upto in stops():
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            # It says that two workers do not repeat themselves.
            model.train(upto - done, workers=workers)
        done = upto
        if course.passed(done, state):
            break
        if is_sampled(done):
            course.sample(state())
    course.end(done, state)
    return {}


def is_sampled(iteration: int) -> bool:
    """Whether the predictions after an iteration are among those that are averaged."""
    before = ITERATIONS - iteration
    return before % SPACING == 0 and before < SAMPLES * SPACING


def stops() -> list[int]:
    """The iterations after which a sampler pauses."""
    marks = {int(mark) for mark in MARKS if 1 <= mark <= ITERATIONS}
    return sorted(marks | {i for i in range(1, ITERATIONS + 1) if is_sampled(i)})


def _state_of_tomotopy(model: Any) -> State:
    order = np.array([int(word) for word in model.used_vocabs])
    topics = np.zeros((model.k, model.num_vocabs))
    for t in range(model.k):
        topics[t, order] = model.get_topic_word_dist(t)
    topics /= topics.sum(axis=1, keepdims=True)
    return State(topics, np.asarray(model.alpha), np.asarray(model.get_count_by_topics()))


# Mallet's algorithm


def _letters(word: int) -> str:
    """A name of a word that the tokeniser of Mallet keeps whole."""
    return "".join(ascii_lowercase[word // 26**place % 26] for place in range(4))


def _fit_mallet(
    path: Path, k: int, seed: int, course: Course, *, alpha_sum: float, **settings: Any
) -> dict[str, Any]:
    model, spent, done, order = None, 0.0, 0, np.array([])
    for iterations in ANEW_ITERATIONS:
        if done and course.is_over(spent * iterations / done):
            break
        model, order = _mallet(
            path, course, k, seed, iterations, alpha_sum=alpha_sum, num_samples=1, **settings
        )
        course.evaluate(iterations, _state_of_mallet(model, order))
        spent, done = course.clock.seconds, iterations
    clock = course.clock
    if not course.cut:
        # Its own average over states is that of the topics.
        before = ITERATIONS - SAMPLES * SPACING
        averaging = {"num_samples": SAMPLES, "sample_interval": SPACING, **settings}
        model, order = _mallet(path, course, k, seed, before, alpha_sum=alpha_sum, **averaging)
        course.sample(_state_of_mallet(model, order))
    course.clock = clock
    return {}


def _mallet(
    path: Path, course: Course, k: int, seed: int, iterations: int, **settings: Any
) -> tuple[Any, np.ndarray]:
    course.anew()
    X = counts(path, "int32")
    names = np.array([_letters(word) for word in range(X.shape[1])])
    corpus = mallet.Corpus.from_strings([" ".join(words) for words in words_of(X, names)])
    model = mallet.train(
        corpus, num_topics=k, iterations=iterations, seed=seed, **{"sample_interval": 1} | settings
    )
    course.clock.stop()
    place = {name: word for word, name in enumerate(names.tolist())}
    return model, np.array([place[name] for name in model.vocabulary])


def _state_of_mallet(model: Any, order: np.ndarray) -> State:
    found = np.asarray(model.topic_word_matrix())
    topics = np.zeros_like(found)
    topics[:, order] = found / found.sum(axis=1, keepdims=True)
    # The numbers of tokens are not shown; a topic without any has the same probability everywhere.
    tokens = np.where(np.ptp(topics, axis=1) > 0, np.inf, 0.0)
    return State(topics, np.asarray(model.alpha), tokens)


# Gensim


class WatchedGensim(LdaModel):
    """Gensim's model, which reports to a course after every chunk of documents."""

    def watch(self, course: Course, n_documents: int) -> None:
        self._course, self._n_documents, self._seen = course, n_documents, 0

    def do_mstep(self, rho: float, other: Any, extra_pass: bool = False) -> None:
        self._seen += other.numdocs
        super().do_mstep(rho, other, extra_pass)
        if self._course.passed(self.passes_so_far, self.now):
            raise BudgetUsedUpError

    @property
    def passes_so_far(self) -> float:
        return self._seen / self._n_documents

    def now(self) -> State:
        return _variational(self.state.get_lambda(), self.alpha, self.eta)


def _fit_gensim(path: Path, k: int, seed: int, course: Course, **settings: Any) -> dict[str, Any]:
    course.clock.start()
    X = counts(path, "int32")
    bags = [
        list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True))
        for a, b in pairwise(X.indptr)
    ]
    names = {word: str(word) for word in range(X.shape[1])}
    model = WatchedGensim(num_topics=k, id2word=names, random_state=seed, **settings)
    model.watch(course, X.shape[0])
    try:
        model.update(bags)
    except BudgetUsedUpError:
        pass
    course.end(model.passes_so_far, model.now)
    return {}


def _variational(topics: np.ndarray, alpha: Any, eta: Any) -> State:
    """The state of a library that has Dirichlet parameters of topics."""
    topics = np.asarray(topics, dtype=np.float64)
    alpha = np.broadcast_to(alpha, len(topics))
    shares = topics / topics.sum(axis=1, keepdims=True)
    return State(shares, alpha, (topics - np.asarray(eta)).sum(axis=1))


# scikit-learn


class WatchedSklearn(LatentDirichletAllocation):
    """scikit-learn's estimator, which reports to a course after every update of the topics."""

    def watch(self, course: Course, n_documents: int) -> None:
        self._course, self._n_documents, self._seen = course, n_documents, 0

    def _em_step(self, X: csr_matrix, *args: Any, **kwargs: Any) -> Any:
        result = super()._em_step(X, *args, **kwargs)
        self._seen += X.shape[0]
        if self._course.passed(self.passes_so_far, self.now):
            raise BudgetUsedUpError
        return result

    @property
    def passes_so_far(self) -> float:
        return self._seen / self._n_documents

    def now(self) -> State:
        return _variational(self.components_, self.doc_topic_prior_, self.topic_word_prior_)


def _fit_sklearn(path: Path, k: int, seed: int, course: Course, **settings: Any) -> dict[str, Any]:
    course.clock.start()
    X = counts(path, "float64")
    model = WatchedSklearn(k, random_state=seed, **settings)
    model.watch(course, X.shape[0])
    try:
        model.fit(X)
    except BudgetUsedUpError:
        pass
    course.end(model.passes_so_far, model.now)
    return {"bound": _bound(X, model)}


def _bound(X: csr_matrix, model: LatentDirichletAllocation) -> float:
    """Our lower bound at the topics of scikit-learn's estimator, nats per token."""
    at_these = AnnealedLatentDirichletAllocation(
        model.n_components,
        doc_topic_prior=model.doc_topic_prior_,
        topic_word_prior=model.topic_word_prior_,
        annealing="none",
        components_init=model.components_,
        max_iter=0,
    )
    return float(at_these.fit(X).lower_bound_ / X.sum())


# Vowpal Wabbit


def _fit_vowpal_wabbit(
    path: Path, k: int, seed: int, course: Course, **settings: Any
) -> dict[str, Any]:
    settings |= {"lda": k, "lda_alpha": 1.0 / k, "lda_rho": 1.0 / k}
    spent, done = 0.0, 0
    for passes in ANEW_PASSES:
        if done and course.is_over(spent * passes / done):
            break
        with TemporaryDirectory() as directory:
            topics = _vowpal_wabbit(path, course, Path(directory), passes, seed, settings)
        course.evaluate(passes, _variational(topics, 1.0 / k, 1.0 / k))
        spent, done = course.clock.seconds, passes
    return {}


def _vowpal_wabbit(
    path: Path, course: Course, directory: Path, passes: int, seed: int, settings: dict[str, Any]
) -> np.ndarray:
    course.anew()
    X = counts(path, "int32")
    X = X[np.random.default_rng(seed).permutation(X.shape[0])]
    texts, model = directory / "texts", directory / "model"
    _write_vowpal_wabbit(X, texts)
    options = {
        **settings,
        # It writes beyond its memory in the second pass if there are fewer documents than that.
        "minibatch": min(settings["minibatch"], X.shape[0]),
        "lda_D": X.shape[0],
        "bit_precision": int(np.ceil(np.log2(X.shape[1]))),
        "passes": passes,
        "data": texts,
        "readable_model": model,
        **({"cache_file": directory / "cache"} if passes > 1 else {}),
    }
    given = [f"--{name}={value}" for name, value in options.items()]
    # It runs when the object is made, and writes the model when it is finished.
    run = vowpalwabbit.Workspace(arg_list=[*given, "--holdout_off", "--quiet"])
    course.clock.stop()
    run.finish()
    return _read_vowpal_wabbit(model, X.shape[1], settings["lda"])


def _write_vowpal_wabbit(X: csr_matrix, path: Path) -> None:
    with path.open("w", encoding="ascii") as file:
        for start, stop in pairwise(X.indptr):
            pairs = zip(X.indices[start:stop].tolist(), X.data[start:stop].tolist(), strict=True)
            file.write("| " + " ".join(f"{word}:{count}" for word, count in pairs) + "\n")


def _read_vowpal_wabbit(model: Path, n_words: int, k: int) -> np.ndarray:
    """λ from a readable model, whose lines after the head begin with the number of a word."""
    lines = model.read_text(encoding="ascii").splitlines()
    first = next(i for i, line in enumerate(lines) if len(line.split()) == k + 1)
    rows = np.array([line.split() for line in lines[first:]], dtype=np.float64)
    topics = np.empty((k, n_words))
    kept = rows[:, 0] < n_words
    topics[:, rows[kept, 0].astype(int)] = rows[kept, 1:].T
    return topics


# The settings

_TOMOTOPY: dict[str, Any] = {"tw": "one", "min_cf": 0, "alpha": 0.1, "eta": 0.01}
_MALLET: dict[str, Any] = {"alpha_sum": 5.0, "beta": 0.01, "optimize_interval": 10, "burn_in": 20}
_GENSIM: dict[str, Any] = {
    "passes": 10,
    "chunksize": 256,
    "decay": 0.5,
    "offset": 10.0,
    "alpha": "auto",
    "eval_every": None,
}
_ONLINE: dict[str, Any] = {
    "learning_method": "online",
    "max_iter": 10,
    "batch_size": 256,
    "learning_decay": 0.5,
    "learning_offset": 10.0,
}
_BATCH: dict[str, Any] = {"learning_method": "batch", "max_iter": 100}
_VOWPAL: dict[str, Any] = {"minibatch": 256, "power_t": 0.5, "initial_t": 10, "learning_rate": 1.0}

LIBRARIES = {
    "tomotopy": tomotopy,
    "pyrmallet": mallet,
    "gensim": gensim,
    "vowpalwabbit": vowpalwabbit,
}
"""The libraries by the names of their distributions, with None for those not installed."""

WORDS = {
    TOMOTOPY: "The prior α of the proportions is learned (its default, every tenth iteration), η "
    "is not.",
    MALLET: "α and β are learned. It shows no states on the way, so that a fit with the same seed "
    f"is made for each of {', '.join(map(str, ANEW_ITERATIONS))} iterations; *averaged* is its own "
    "average of topics.",
    GENSIM: "`LdaModel`, because `LdaMulticore` is not one thread.",
    VOWPAL: "α = η = 1/K. Its start does not depend on its seed, so that seeds are orders of the "
    "documents. It shows no states on the way, so that a fit is made for each of "
    f"{', '.join(map(str, ANEW_PASSES))} passes. Minibatches of more than 256 documents end its "
    "process.",
    SKLEARN_BATCH: "α = η = 1/K.",
    SKLEARN_ONLINE: "α = η = 1/K.",
}
"""Sentences of the page about the peers, besides their settings."""


def peers() -> dict[str, Contestant]:
    """The libraries that are installed, with their settings, by their names in tables."""
    found = {}
    if is_there("tomotopy", tomotopy):
        for name, workers in ((TOMOTOPY, 1), (TWO_WORKERS, 2)):
            words = f"{ITERATIONS} iterations, {in_words(_TOMOTOPY)}, workers={workers}"
            fit = partial(_fit_tomotopy, workers=workers, **_TOMOTOPY)
            found[name] = Contestant(fit, words)
    if is_there("pyrmallet", mallet):
        words = f"{ITERATIONS} iterations, {in_words(_MALLET)}"
        found[MALLET] = Contestant(partial(_fit_mallet, **_MALLET), words)
    if is_there("gensim", gensim):
        found[GENSIM] = Contestant(partial(_fit_gensim, **_GENSIM), in_words(_GENSIM))
    for name, settings in ((SKLEARN_BATCH, _BATCH), (SKLEARN_ONLINE, _ONLINE)):
        found[name] = Contestant(partial(_fit_sklearn, **settings), in_words(settings))
    if is_there("vowpalwabbit", vowpalwabbit):
        words = f"{ANEW_PASSES[-1]} passes, {in_words(_VOWPAL)}"
        found[VOWPAL] = Contestant(partial(_fit_vowpal_wabbit, **_VOWPAL), words)
    return found
