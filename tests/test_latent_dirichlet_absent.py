"""Topics of a vocabulary of which most words are in no document: the same fit, at less cost."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from cases_latent_dirichlet import draw_corpus
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix

from sklearn_anneal import AnnealedLatentDirichletAllocation, Shards
from sklearn_anneal.annealing import Annealing, DeterministicAnnealing, StructuredVI
from sklearn_anneal.data.units import Documents
from sklearn_anneal.families import Dirichlet, RepeatedDirichlet, Tempering, posterior
from sklearn_anneal.inference.progress import Progress
from sklearn_anneal.models.topics import LatentDirichlet
from sklearn_anneal.models.topics.absent import AbsentWords
from sklearn_anneal.models.topics.tables import Concentrations, Words

N_WORDS, K = 150, 3


def widened(X, n_words, seed=0):
    """The same documents with words spread over a larger vocabulary."""
    columns = np.random.default_rng(seed).choice(n_words, X.shape[1], replace=False)
    X = X.tocsr()
    return csr_matrix((X.data, np.sort(columns)[X.indices], X.indptr), (X.shape[0], n_words))


@pytest.fixture
def X(rng):
    return widened(draw_corpus(rng, n_documents=60, n_words=30), N_WORDS)


def fitted(X, **params):
    with warnings.catch_warnings(action="ignore"):
        return AnnealedLatentDirichletAllocation(K, random_state=0, **params).fit(X)


@pytest.fixture
def plainly(monkeypatch):
    """A function that fits with a column of λ for each word, whether documents have it or not."""

    def fit(X, **params):
        with monkeypatch.context() as patch:
            patch.setattr(LatentDirichlet, "without_absent", lambda model, units: model)
            return fitted(X, **params)

    return fit


@pytest.fixture
def widths(monkeypatch):
    """The numbers of columns of λ after the passes of fits."""
    found, advance = [], Progress.advance

    def note(progress, *args):
        found.append(progress.ctx.q["topic_word"].shape[1])
        return advance(progress, *args)

    monkeypatch.setattr(Progress, "advance", note)
    return found


# Where an update keeps a part of a random start, or adds noise, absent words of the plain form have
# different parameters, of which the short form has the mean; sums and other words are not affected.
NOISY = {"exact": False}
SETTINGS = {
    "default": {"annealing": StructuredVI(n_passes=20, evaluate_every=5)},
    "draws": {"local_step": "mean_field", "annealing": StructuredVI(n_passes=4), **NOISY},
    "cvb0": {"local_step": "cvb0", "annealing": "none", "max_iter": 5},
    "plain": {"annealing": "none", "max_iter": 5},
    "scikit-learn's start": {"annealing": "none", "max_iter": 5, "init_params": "random"},
    "posterior form": {"annealing": DeterministicAnnealing("posterior", 2, n_passes=4), **NOISY},
    "stochastic": {"annealing": "stochastic", "max_iter": 5, **NOISY},
    "reheating": {"annealing": "reheating", "max_iter": 5, **NOISY},
    "tempering": {"annealing": "tempering", "max_iter": 2},
    "weights": {"annealing": "svi_plus", "max_iter": 2, **NOISY},
    "minibatches": {
        "annealing": "none",
        "max_iter": 5,
        "learning_method": "online",
        "batch_size": 20,
        **NOISY,
    },
    "learned": {"annealing": "none", "topic_word_prior": "auto", "max_iter": 60},
    "prior of topics": {"annealing": "none", "topic_word_prior": "rows", "max_iter": 3},
    "single": {"annealing": "none", "max_iter": 3, "dtype": np.float32},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_fit_is_that_with_a_column_for_each_word(name, X, plainly, widths):
    params = dict(SETTINGS[name])
    X = X.astype(params.pop("dtype", X.dtype))
    if params.get("topic_word_prior") == "rows":
        seeds = np.full((K, N_WORDS), 0.2) * np.arange(1, K + 1)[:, None]
        seeds[0, X.indices[:3]] += 2.0
        params["topic_word_prior"] = seeds
    exact = params.pop("exact", True)
    found = fitted(X, **params)
    assert set(widths) == {len(np.unique(X.indices)) + 1}
    expected = plainly(X, **params)
    rtol = 1e-5 if X.dtype == np.float32 else 1e-9
    occur = np.bincount(X.indices, minlength=N_WORDS) > 0
    assert found.components_.shape == (K, N_WORDS)
    assert_allclose(found.components_[:, occur], expected.components_[:, occur], rtol=rtol)
    sums = (lda.components_.sum(axis=1) for lda in (found, expected))
    assert_allclose(*sums, rtol=rtol)
    of_absent = found.components_[:, ~occur], expected.components_[:, ~occur]
    assert_allclose(*of_absent, rtol=rtol if exact else 0.1)
    for name in ("doc_topic_prior_", "topic_word_prior_", "bound_"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=rtol, err_msg=name)
    assert found.lower_bound_ == pytest.approx(expected.lower_bound_, rel=rtol if exact else 1e-4)
    assert_allclose(found.lower_bounds_, expected.lower_bounds_, rtol=rtol if exact else 1e-2)
    assert_allclose(found.transform(X), expected.transform(X), rtol=100 * rtol)
    assert found.n_effective_components_ == expected.n_effective_components_


class Unknown(Annealing):
    """A method of a user, which could do anything with λ."""


@pytest.mark.parametrize(
    "params",
    [
        {"annealing": StructuredVI("exact", n_passes=2), "local_step": "mean_field"},
        {"annealing": DeterministicAnnealing(jitter=0.1, n_passes=2)},
        {"annealing": "proximity"},
        {"annealing": "local_tempering"},
        {"annealing": Unknown()},
        {"annealing": "none", "components_init": np.ones((K, N_WORDS))},
        {"annealing": "none", "topic_word_prior": np.linspace(0.1, 1, N_WORDS)},
        {"annealing": "none", "narrow": True},
    ],
    ids=lambda params: str(params)[:60],
)
def test_words_keep_columns_where_they_can_move_apart(params, X, widths):
    params = dict(params)
    if params.pop("narrow", False):
        X = X[:, np.asarray(X.sum(axis=0)).ravel() > 0]
    fitted(X, max_iter=1, **params)
    assert set(widths) == {X.shape[1]}


def test_a_fit_has_no_array_of_all_words():
    """The prior of one row aside, nothing before the end of a fit has as many columns as words."""
    n_words = 2**20
    X = csr_matrix(([3, 1, 2, 2], ([0, 0, 1, 1], [5, 2**19, 7, n_words - 1])), shape=(2, n_words))
    units = Documents(X.data, X.indices, X.indptr)
    model = LatentDirichlet(K, n_words, np.full(K, 0.1), np.broadcast_to(0.1, n_words))
    absent = model.without_absent(units)
    assert absent._n_columns == 5
    summary, rng = absent.summary(units), np.random.RandomState(0)
    prior = absent.prior(summary)
    assert absent.init(units, summary, prior, rng)["topic_word"].shape == (K, 5)
    drawn = absent.random_natural(summary, prior, np.random.default_rng(0))["topic_word"]
    assert drawn.shape == (K, 5)


class Counting(np.random.RandomState):
    """A generator that notes how many numbers are asked for at a time."""

    def __init__(self):
        super().__init__(0)
        self.sizes = []

    def gamma(self, shape, scale, size):
        self.sizes.append(size)
        return super().gamma(shape, scale, size)


@pytest.mark.parametrize("init_params", ["documents", "random"])
def test_a_start_at_documents_draws_numbers_for_their_words_alone(init_params, X):
    units = Documents(X.data, X.indices, X.indptr)
    n_occurring, alpha, eta = len(np.unique(X.indices)), np.full(K, 0.1), np.full(N_WORDS, 0.2)
    model = LatentDirichlet(K, N_WORDS, alpha, eta, init_params=init_params)
    for each in (model, model.without_absent(units)):
        rng, summary = Counting(), each.summary(units)
        start = each.init(units, summary, each.prior(summary), rng)["topic_word"]
        assert rng.sizes == K * [n_occurring if init_params == "documents" else N_WORDS]
        occur = np.unique(X.indices) if each is model else np.arange(n_occurring)
        assert len(np.unique(start[:, occur])) == K * n_occurring
        if init_params == "documents":
            others = np.delete(start, occur, axis=1)
            assert_array_equal(others, np.broadcast_to(others[:1, :1], others.shape))


def test_rows_that_come_first_are_a_slice(X):
    """A list of rows, which takes longer to copy, is there only for words between others."""
    units = Documents(X.data, X.indices, X.indptr)
    topics = np.asfortranarray(np.random.default_rng(0).random((K, N_WORDS)))
    absent, part = AbsentWords(units.occurring(N_WORDS), N_WORDS), slice(3, 9)
    occurring = absent.occurring
    between = Concentrations.of(topics, Words(occurring, N_WORDS, False, occurring))
    summed = np.asfortranarray(absent.summed(topics))
    first = Concentrations.of(summed, Words.of(units, summed, absent))
    assert first.rows_of(part) == part
    assert_array_equal(between.rows_of(part), occurring[part])
    expected = topics.T[absent.occurring[part]]
    for found in (between, first):
        assert_array_equal(found.values(part), expected)


def test_parts_and_threads_have_the_same_bits(X):
    params = {"annealing": StructuredVI(n_passes=12, evaluate_every=4)}
    alone = fitted(X, **params)
    for other in (fitted(Shards([X]), **params), fitted(X, n_jobs=2, **params)):
        assert_array_equal(other.components_, alone.components_)
        assert_array_equal(other.lower_bounds_, alone.lower_bounds_)
    halves = fitted(Shards([X[:25], X[25:]]), annealing="none", max_iter=4)
    whole = fitted(X, annealing="none", max_iter=4)
    assert_allclose(halves.components_, whole.components_, rtol=1e-9)


def test_a_fit_goes_on_from_a_checkpoint(X, tmp_path):
    params = {"annealing": StructuredVI(n_passes=16, evaluate_every=4)}
    alone = fitted(X, **params)

    class Stop:
        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...
        def on_fit_task_end(self, estimator, context, *, fitted_estimator):
            if context.task_name != "pass":
                return False
            shapes.append(fitted_estimator.components_.shape)
            if len(shapes) == 13:
                raise KeyboardInterrupt
            return False

    shapes: list = []
    lda = AnnealedLatentDirichletAllocation(K, random_state=0, **params).set_callbacks(Stop())
    with pytest.raises(KeyboardInterrupt):
        lda.fit(X, checkpoint=tmp_path)
    assert set(shapes) == {(K, N_WORDS)}
    lda = AnnealedLatentDirichletAllocation(K, random_state=0, **params)
    assert_array_equal(lda.fit(X, checkpoint=tmp_path).components_, alone.components_)


def test_absent_words_can_occur_after_the_fit(X, plainly, rng):
    params = {"annealing": StructuredVI(n_passes=12)}
    later = widened(draw_corpus(rng, n_documents=10, n_words=30), N_WORDS, seed=1)
    found, expected = fitted(X, **params), plainly(X, **params)
    for name in ("transform", "score", "perplexity"):
        results = getattr(found, name)(later), getattr(expected, name)(later)
        assert_allclose(*results, rtol=1e-9, err_msg=name)
    found.partial_fit(later)
    assert_allclose(found.components_, expected.partial_fit(later).components_, rtol=1e-9)
    found.set_params(warm_start=True, max_iter=2).fit(later)
    expected.set_params(warm_start=True, max_iter=2).fit(later)
    assert_allclose(found.components_, expected.components_, rtol=1e-9)


def test_topics_do_not_coincide_because_absent_words_are_many(X):
    """The parameters of absent words, which are equal in all topics, are one large sum."""
    units, eta = Documents(X.data, X.indices, X.indptr), np.full(10**5, 10.0)
    wide = csr_matrix((X.data, X.indices, X.indptr), (X.shape[0], len(eta)))
    model = LatentDirichlet(K, len(eta), np.full(K, 0.1), eta)
    short = model.without_absent(units)
    topics = np.repeat(eta[None], K, axis=0)
    topics[np.arange(K), wide.indices[:K]] += 400.0
    for each in (topics, np.where(np.arange(K)[:, None] == 1, topics[:1], topics)):
        prior = {"topic_word": eta[None]}
        expected = model.coinciding({"topic_word": each.copy()}, None, prior)
        summed = {"topic_word": short.absent.summed(each)}
        found = short.coinciding(summed, None, short.prior(None))
        assert found == expected == ([] if each is topics else [(0, 1)])


@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_repeated_dirichlet_is_the_distribution_of_all_entries(scale, rng):
    absent = AbsentWords(np.array([1, 3, 4], dtype=np.int32), 9)
    q, p = (
        {"concentration": scale * np.where(absent._mask(), each, rng.gamma(2.0, size=(2, 9)))}
        for each in (0.3, 0.7)
    )
    short_q, short_p = ({key: absent.summed(v) for key, v in each.items()} for each in (q, p))
    family, whole = RepeatedDirichlet(absent.number), Dirichlet()
    assert_allclose(family.log_normalizer(short_q), whole.log_normalizer(q), rtol=1e-12)
    expected = whole.expectations(q)["concentration"]
    assert_allclose(family.expectations(short_q)["concentration"][:, :3], expected[:, [1, 3, 4]])
    assert_allclose(family.expectations(short_q)["concentration"][:, 3], expected[:, 0])
    assert family.kl(short_q, short_p) == pytest.approx(whole.kl(q, p), rel=1e-9)
    assert family.entropy(short_q) == pytest.approx(whole.entropy(q), rel=1e-6)
    t, nothing = Tempering(0.5, 0.5, 0.5), {"concentration": np.zeros((2, 4))}
    tempered = posterior(short_p, nothing, family.base(short_p), t)["concentration"]
    expected = posterior(p, {"concentration": 0.0}, whole.base(p), t)["concentration"]
    assert_allclose(tempered, absent.summed(expected), rtol=1e-12)
    assert_allclose(
        absent.restored(short_q["concentration"], p["concentration"])[:, 1:],
        q["concentration"][:, 1:],
    )
