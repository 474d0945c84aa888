"""Tests of the local steps of topics, and of the functions that they are made of."""

from __future__ import annotations

import numba
import numpy as np
import plain_topics as plain
import pytest
from cases_latent_dirichlet import FORMS, documents, spread
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special
from test_plain_topics import COUNTS, PRIOR, WEIGHTS, exact_topic_counts

from sklearn_anneal.data.units import _documents
from sklearn_anneal.families import Dirichlet, Tempering, UnitTemperatures
from sklearn_anneal.kernels import _math, counts, ragged
from sklearn_anneal.models.topics import LOCAL_STEPS, LatentDirichlet, mean_field, tables
from sklearn_anneal.models.topics.visit import LocalStart
from sklearn_anneal.parallel.workers import SEQUENTIAL, Workers

PRECISION = {np.float64: 1e-10, np.float32: 1e-4}


# Kernels against the plain reference


def topics_of(log_beta, x=1.0, dtype=np.float64):
    """exp{x log β} of shape (K, V) as the kernels read it."""
    n_topics, n_words = log_beta.shape
    largest = log_beta.max(axis=0)
    table = np.full((n_words, -(-n_topics // 8) * 8), -1e30)
    table[:, :n_topics] = (log_beta - largest).T
    prepared = np.empty(table.shape, dtype)
    counts.exponentiate(prepared, table, x)
    return tables.Topics(prepared, largest)


def local_step(
    X, log_beta, alpha, form=(1.0, 1.0, 1.0), *, name="mean_field", gammas=None, n_iter=10,
    tol=0.0, weights=None, noise=None, separate_noise=False, dtype=np.float64, seed=0,
    workers=SEQUENTIAL,
):  # fmt: skip
    """The completed local step of a corpus; its statistics as (K, V) arrays."""
    n_topics, n_words = log_beta.shape
    model = LOCAL_STEPS[name](
        n_topics, n_words, np.asarray(alpha, dtype=float), np.ones(n_words),
        mean_change_tol=tol, dtype=dtype,
    )  # fmt: skip
    t = Tempering(*form)
    topics = topics_of(log_beta, form[0], dtype)
    units = documents(X, weights)
    occurring = units.occurring(n_words)
    words = tables.Words(occurring, n_words, False, occurring)
    visit = model._visit(model, topics, t, None, separate_noise, words=words, workers=workers)
    start = LocalStart(None if gammas is None else np.array(gammas), n_iter, seed)
    before = None if gammas is None else start.gamma.copy()
    step = visit.finish(visit.step(units, noise, start))
    assert gammas is None or np.array_equal(start.gamma, before), "the start has been changed"
    step.statistics["topic_word"] = model.block_statistics(None, step.statistics, {})["topic_word"]
    if step.deviation is not None:
        step.deviation = model.block_statistics(None, step.deviation, {})
    return step


def assert_step(step, expected, rtol):
    """Statistics, γ and the three sums of a local step, against those of the plain one."""
    scale = expected.statistics.max()
    assert_allclose(
        step.statistics["topic_word"] / scale, expected.statistics / scale, rtol=rtol, atol=rtol
    )
    assert_allclose(step.local, expected.gammas, rtol=rtol, atol=rtol)
    size = abs(expected.energy) + abs(expected.log_prior) + abs(expected.entropy)
    for name in ("energy", "log_prior", "entropy"):
        found, wanted = getattr(step, name), getattr(expected, name)
        assert abs(found - wanted) < rtol * size, f"{name}: {found} instead of {wanted}"


@pytest.fixture
def mixed(rng):
    """Documents of 0 to 27 types, of all remainders modulo the block length of the kernels."""
    X = np.zeros((30, 60))
    for d in range(28):
        X[d, rng.choice(60, size=d, replace=False)] = rng.integers(1, 6, size=d)
    X[29, :] = 1.0
    return X


def peaked(rng, n_topics, n_words, concentration=0.3):
    return plain.expected_log(rng.gamma(concentration, size=(n_topics, n_words)) + 0.05)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("form", FORMS)
def test_mean_field_is_the_plain_step(form, dtype, mixed, rng):
    log_beta, form = peaked(rng, 5, 60), FORMS[form]
    alpha = np.array([0.2, 0.7, 1.4, 0.1, 0.4])
    weights = rng.uniform(0.5, 2.0, size=len(mixed))
    expected = plain.corpus_step(
        mixed, log_beta, alpha, spread(mixed, alpha, form), 10, 0.0, *form, weights
    )
    step = local_step(mixed, log_beta, alpha, form, weights=weights, dtype=dtype)
    assert_step(step, expected, PRECISION[dtype])


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("n_topics", [1, 8, 13, 16])
def test_any_number_of_topics(n_topics, dtype, mixed, rng):
    log_beta, alpha = peaked(rng, n_topics, 60), np.full(n_topics, 0.4)
    gammas = rng.gamma(1.0, size=(len(mixed), n_topics)) + 0.1
    gammas[0] = alpha  # of the empty document, whose γ is the prior from the start
    expected = plain.corpus_step(mixed, log_beta, alpha, gammas, 7, 0.0)
    step = local_step(mixed, log_beta, alpha, gammas=gammas, n_iter=7, dtype=dtype)
    assert_step(step, expected, PRECISION[dtype])


def test_mean_field_stops_by_the_mean_change(mixed, rng):
    tol = 1e-2
    log_beta, alpha = peaked(rng, 5, 60), np.full(5, 0.4)
    gammas = spread(mixed, alpha, FORMS["none"])
    expected = plain.corpus_step(mixed, log_beta, alpha, gammas, 40, tol)
    longer = plain.corpus_step(mixed, log_beta, alpha, gammas, 40, 0.0)
    assert_step(local_step(mixed, log_beta, alpha, n_iter=40, tol=tol), expected, 1e-10)
    assert np.max(np.abs(longer.gammas - expected.gammas)) > 1e-7


def test_random_weights_change_the_statistics_alone(mixed, rng):
    log_beta, alpha, form = peaked(rng, 5, 60), np.full(5, 0.4), FORMS["likelihood"]
    weights = rng.uniform(0.5, 2.0, size=len(mixed))
    noise = rng.uniform(0.0, 3.0, size=len(mixed))
    start = spread(mixed, alpha, form)
    without_noise = plain.corpus_step(mixed, log_beta, alpha, start, 10, 0.0, *form, weights)
    with_noise = plain.corpus_step(mixed, log_beta, alpha, start, 10, 0.0, *form, weights * noise)
    step = local_step(mixed, log_beta, alpha, form, weights=weights, noise=noise)
    assert_step(step, without_noise._replace(statistics=with_noise.statistics), 1e-10)
    step = local_step(
        mixed, log_beta, alpha, form, weights=weights, noise=noise, separate_noise=True
    )
    assert_step(step, without_noise, 1e-10)
    assert_allclose(step.deviation["topic_word"], with_noise.statistics, rtol=1e-10, atol=1e-12)
    assert np.max(np.abs(with_noise.statistics - without_noise.statistics)) > 0.1


@pytest.mark.parametrize("noisy", [False, True])
def test_workers_share_tiles_of_documents_and_their_words(noisy, mixed, rng, monkeypatch):
    """The result is that of the plain step, and does not depend on the number of workers."""
    for name, value in (("_SMALLEST_BLOCK", 2), ("_MOST_BLOCKS", 10), ("_WORDS", 7)):
        monkeypatch.setattr(mean_field, name, value)
    monkeypatch.setattr(mean_field, "_FACTORS_OF_TILE", 6 * 8)
    monkeypatch.setattr(mean_field, "_ADDITIONS_OF_TASK", 1)
    monkeypatch.setattr(mean_field, "_PRODUCTS_OF_TASK", 1)
    log_beta, alpha, form = peaked(rng, 5, 60), np.full(5, 0.4), FORMS["likelihood"]
    weights = rng.uniform(0.5, 2.0, size=len(mixed))
    noise = rng.uniform(0.0, 3.0, size=len(mixed)) if noisy else None
    start = spread(mixed, alpha, form)
    expected = plain.corpus_step(mixed, log_beta, alpha, start, 10, 0.0, *form, weights)
    if noisy:
        with_noise = plain.corpus_step(
            mixed, log_beta, alpha, start, 10, 0.0, *form, weights * noise
        )
        expected = expected._replace(statistics=with_noise.statistics)
    steps = []
    for n_workers in (1, 2):
        with Workers(n_workers) as workers:
            step = local_step(
                mixed, log_beta, alpha, form, weights=weights, noise=noise, workers=workers
            )
        assert_step(step, expected, 1e-10)
        steps.append(step)
    for name in ("energy", "entropy", "log_prior"):
        assert getattr(steps[0], name) == getattr(steps[1], name)
    for key, value in steps[0].statistics.items():
        assert_array_equal(value, steps[1].statistics[key])


@pytest.mark.parametrize("form", ["none", "likelihood"])
@pytest.mark.parametrize("noisy", [False, True])
def test_a_step_without_energy_tells_the_same_bound(form, noisy, mixed, rng):
    """The energy is not computed apart if the likelihood is not tempered."""
    lam = rng.gamma(0.5, size=(5, 60)) + 0.05
    model, units = model_of(lam, 0.4, 0.1), documents(mixed)
    q = {"topic_word": np.asfortranarray(lam)}
    noise = rng.uniform(0.0, 3.0, size=len(mixed)) if noisy else None
    visit = model.visit(q, units, Tempering(*FORMS[form]))
    apart, together = (
        v.finish(v.step(units, noise, LocalStart(None, 20)))
        for v in (visit, visit.without_energy())
    )
    assert together.bound == pytest.approx(apart.bound, rel=1e-12)
    assert_array_equal(together.statistics["topic_word"], apart.statistics["topic_word"])
    assert (together.energy == apart.energy) == (form == "likelihood")


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("form", ["none", "likelihood", "local"])
@pytest.mark.parametrize("given", [False, True])
def test_documents_of_few_tokens_have_topics_whose_exponentials_underflow(
    given, form, dtype, mixed, rng
):
    """exp ψ(γ) of all topics is 0 at first; with one token it is not in the end."""
    log_beta, alpha, form = (
        peaked(rng, 5, 60),
        np.array([1.0, 3.0, 2.0, 1.0, 9.0]) * 1e-5,
        FORMS[form],
    )
    X = mixed * np.array([1e-6, 1.0, 1e-9])[np.arange(len(mixed)) % 3, None]
    start = spread(X, alpha, form)
    if given:
        start *= rng.uniform(1.0, 2.0, size=start.shape)
        start[X.sum(axis=1) == 0] = plain.tempered_prior(alpha, form[2])
    assert np.exp(form[0] * special.psi(start.max(axis=1))).min() == 0.0
    expected = plain.corpus_step(X, log_beta, alpha, start, 10, 0.0, *form)
    gammas = start if given else None
    step = local_step(X, log_beta, alpha, form, gammas=gammas, dtype=dtype)
    # γ has the precision of the data, and 1/γ multiplies its errors in ψ(γ).
    assert_step(step, expected, {np.float64: 1e-8, np.float32: 2e-3}[dtype])
    assert_allclose(step.statistics["topic_word"].sum(), form[1] * X.sum(), rtol=1e-5)


@pytest.mark.parametrize("tol", [0.0, 1e-3])
def test_one_token_of_a_thousand_topics_has_one(tol, rng):
    """All exp ψ(γ) underflow at the start, where each topic has a thousandth of the token."""
    log_beta, alpha = peaked(rng, 1000, 7), np.full(1000, 1e-3)
    X = np.eye(7)
    start = spread(X, alpha, FORMS["none"])
    expected = plain.corpus_step(X, log_beta, alpha, start, 50, tol)
    step = local_step(X, log_beta, alpha, n_iter=50, tol=tol)
    assert_step(step, expected, 1e-7)
    assert expected.statistics.max(axis=0).min() > 0.9


def test_a_document_without_tokens_to_speak_of_keeps_its_topics(rng):
    """No topic has enough of them to stay, but all tokens belong to topics."""
    log_beta, alpha = peaked(rng, 40, 7), np.full(40, 0.1)
    X = np.full((2, 7), 1e-12)
    expected = plain.corpus_step(X, log_beta, alpha, spread(X, alpha, FORMS["none"]), 50, 0.0)
    step = local_step(X, log_beta, alpha, n_iter=50)
    assert_step(step, expected, 1e-9)


MANY = 40


def sparse_topics(rng, n_words=200):
    """Topics of few words each, and a corpus whose documents have few of them."""
    beta = rng.dirichlet(np.full(n_words, 0.05), size=MANY)
    X = np.zeros((12, n_words))
    for d in range(12):
        theta = rng.dirichlet(np.full(3, 1.0))
        X[d] = rng.multinomial(80, theta @ beta[rng.choice(MANY, size=3, replace=False)])
    return X, plain.expected_log(500.0 * beta + 0.05)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("tol", [0.0, 1e-3])
def test_topics_without_tokens_may_be_left_out(tol, dtype, rng):
    X, log_beta = sparse_topics(rng)
    alpha = np.full(MANY, 0.01)
    gammas = spread(X, alpha, FORMS["none"])
    expected = plain.corpus_step(X, log_beta, alpha, gammas, 60, tol)
    used = (expected.gammas - alpha > 1e-8).sum(axis=1)
    assert np.median(used) <= 16, "no topic is left out of such documents: the test tests nothing"
    step = local_step(X, log_beta, alpha, n_iter=60, tol=tol, dtype=dtype)
    # A topic that was left out lacks less than 1e-10 tokens, but 1/α² multiplies them in ψ(γ).
    assert_step(step, expected, {np.float64: 1e-7, np.float32: 1e-3}[dtype])
    if dtype is np.float64:
        assert_allclose(step.local, expected.gammas, rtol=1e-7, atol=1e-9)
        assert_allclose(
            step.bound, expected.energy + expected.log_prior + expected.entropy, rtol=1e-10
        )


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("tol", [1e-2, 1e-3])
def test_topics_are_left_out_within_the_tolerance(tol, dtype, rng):
    """With α = 0.1 every topic keeps some share of a token, so that leaving it out is an error."""
    X, log_beta = sparse_topics(rng)
    alpha = np.full(MANY, 0.1)
    gammas = spread(X, alpha, FORMS["none"])
    expected = plain.corpus_step(X, log_beta, alpha, gammas, 60, tol)
    step = local_step(X, log_beta, alpha, n_iter=60, tol=tol, dtype=dtype)
    left_out = step.local == np.asarray(alpha, dtype)
    assert left_out.mean() > 0.5, "few topics are left out: the test tests nothing"
    assert np.max(expected.gammas[left_out] - 0.1) > 1e-12
    assert np.all(np.abs(step.local - expected.gammas).mean(axis=1) < tol)
    assert_allclose(step.statistics["topic_word"].sum(), X.sum(), rtol=1e-6)
    bound = expected.energy + expected.log_prior + expected.entropy
    assert abs(step.bound - bound) < tol * X.sum()


def test_a_topic_that_was_left_out_can_return(rng):
    """Its word is another topic's at first, but that one has nothing else to live on."""
    log_beta = np.full((MANY, 20), -300.0)
    log_beta[0, :19] = -3.0
    log_beta[:3, 19] = -70.0, 0.0, -48.0
    X = np.full((1, 20), 5.0)
    X[0, 19] = 1.0
    alpha = np.full(MANY, 0.02)
    start = np.full((1, MANY), 0.02)
    start[0, 0], start[0, 2] = 95.0, 1e9
    first = plain.corpus_step(X, log_beta, alpha, start, 1, 0.0)
    assert first.gammas[0, 1] - 0.02 < 1e-10, "the topic is not left out: the test tests nothing"
    expected = plain.corpus_step(X, log_beta, alpha, start, 500, 1e-9)
    assert expected.gammas[0, 1] > 0.9
    step = local_step(X, log_beta, alpha, gammas=start, n_iter=500, tol=1e-9)
    assert_allclose(step.local, expected.gammas, rtol=1e-6, atol=1e-6)


def test_no_token_is_lost_where_all_its_topics_are_nearly_off():
    """A word of a topic that the document has left, at α = 0.01, where exp ψ(α) is e^-100."""
    log_beta = np.full((MANY, 20), -300.0)
    log_beta[0, :19] = -3.0
    log_beta[:2, 19] = -120.0, 0.0
    X = np.full((1, 20), 5.0)
    alpha = np.full(MANY, 0.01)
    start = np.full((1, MANY), 0.01)
    start[0, 0] = 95.0
    expected = plain.corpus_step(X, log_beta, alpha, start, 500, 1e-9)
    step = local_step(X, log_beta, alpha, gammas=start, n_iter=500, tol=1e-9)
    assert_allclose(step.statistics["topic_word"].sum(), X.sum())
    assert_step(step, expected, 1e-7)


def reference_of_collapsed(X, log_beta, alpha, form, find):
    """Sums over a corpus, of φ that ``find(counts, words)`` returns for each document."""
    x, s, y = form
    statistics, gammas = np.zeros(log_beta.shape), np.empty((len(X), len(alpha)))
    energy = log_prior = entropy = 0.0
    for d, row in enumerate(X):
        words = np.flatnonzero(row)
        phi = find(row[words], words)
        statistics[:, words] += s * (row[words, None] * phi).T
        gammas[d] = plain.tempered_prior(alpha, y) + s * plain.topic_counts(row[words], phi)
        energy += plain.document_energy(row[words], words, phi, log_beta, gammas[d])
        log_prior += plain.expected_log_density(alpha, gammas[d])
        entropy += plain.assignment_entropy(row[words], phi) + plain.dirichlet_entropy(gammas[d])
    return plain.Corpus(statistics, energy, log_prior, entropy, gammas)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("n_iter", [0, 1, 6])
def test_cvb0_is_the_plain_step(n_iter, dtype, mixed, rng):
    log_beta, alpha = peaked(rng, 5, 60), np.array([0.2, 0.7, 1.4, 0.1, 0.4])
    mixed[5] *= 0.3  # fractional counts, some below 1

    def find(counts, words):
        return plain.cvb0(counts, np.exp(log_beta[:, words]), alpha, n_iter)[0]

    expected = reference_of_collapsed(mixed, log_beta, alpha, FORMS["none"], find)
    step = local_step(mixed, log_beta, alpha, name="cvb0", n_iter=n_iter, dtype=dtype)
    assert_step(step, expected, PRECISION[dtype])


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("form", FORMS)
def test_tempered_cvb0_raises_what_the_topics_are_proportional_to(form, dtype, mixed, rng):
    log_beta, form = peaked(rng, 5, 60), FORMS[form]
    alpha = np.array([0.2, 0.7, 1.4, 0.1, 0.4])
    gammas = rng.gamma(1.0, size=(len(mixed), 5)) + 0.1
    starts = {tuple(row): gamma for row, gamma in zip(mixed, gammas, strict=True)}
    x, _, y = form
    base = plain.tempered_prior(alpha, y)

    def find(counts, words):
        row = np.zeros(60)
        row[words] = counts
        weights = np.exp(x * log_beta[:, words]).T
        phi = starts[tuple(row)] ** x * weights
        phi /= phi.sum(axis=1, keepdims=True)
        for _ in range(4):
            for i in range(len(words)):
                phi[i] = (counts @ phi - min(counts[i], 1.0) * phi[i] + base) ** x * weights[i]
                phi[i] /= phi[i].sum()
        return phi

    expected = reference_of_collapsed(mixed, log_beta, alpha, form, find)
    step = local_step(
        mixed, log_beta, alpha, form, name="cvb0", gammas=gammas, n_iter=4, dtype=dtype
    )
    assert_step(step, expected, PRECISION[dtype])


@pytest.mark.parametrize("dtype", PRECISION)
def test_gibbs_samples_the_posterior_of_the_topics(dtype):
    """Many copies of one document: each has random numbers of its own."""
    n = 3000
    X = np.tile(COUNTS, (n, 1))
    step = local_step(X, np.log(WEIGHTS), PRIOR, name="gibbs", seed=7, dtype=dtype)
    exact = exact_topic_counts(COUNTS, WEIGHTS, PRIOR).T
    # A mean of 20 sweeps varies by less than one draw, whose variance is at most c²/4.
    error = COUNTS.max() / 2 / np.sqrt(n)
    assert_allclose(step.statistics["topic_word"] / n, exact, atol=4.5 * error)
    of_topic = step.local - PRIOR
    assert_allclose(of_topic.mean(axis=0), exact.sum(axis=1), atol=5 * error)
    assert_allclose(of_topic.sum(axis=1), COUNTS.sum(), rtol=1e-6)
    # The random numbers of neighbouring documents are not correlated.
    for lag in (1, 2, 16):
        assert abs(np.corrcoef(of_topic[lag:, 0], of_topic[:-lag, 0])[0, 1]) < 4.5 / np.sqrt(n)


def test_gibbs_of_one_token_is_exact_at_any_temperature(rng):
    n, x = 3000, 0.5
    X = np.zeros((n, 3))
    X[:, 1] = 1
    step = local_step(X, np.log(WEIGHTS), PRIOR, (x, 1.0, 1.0), name="gibbs", seed=3)
    expected = (PRIOR * WEIGHTS[:, 1]) ** x
    expected /= expected.sum()
    share = step.local - PRIOR
    error = share.std(axis=0) / np.sqrt(n)
    assert np.all(np.abs(share.mean(axis=0) - expected) < 4.5 * error)


def test_gibbs_repeats_itself():
    X = np.tile(COUNTS, (5, 1))
    one, two, other = (
        local_step(X, np.log(WEIGHTS), PRIOR, name="gibbs", seed=seed).local for seed in (1, 1, 2)
    )
    assert_array_equal(one, two)
    assert np.any(one != other)


def model_of(lam, alpha, eta, **params):
    n_topics, n_words = lam.shape
    alpha = np.broadcast_to(np.asarray(alpha, dtype=float), (n_topics,))
    eta = np.broadcast_to(np.asarray(eta, dtype=float), (n_words,))
    return LatentDirichlet(n_topics, n_words, np.array(alpha), np.array(eta), **params)


@pytest.mark.parametrize("n_topics", [1, 3, 8, 11])
def test_expected_log_topics(n_topics, rng):
    lam = rng.gamma(0.1, size=(n_topics, 17)) + 1e-5
    model = model_of(lam, 1.0, 1.0)
    topics = tables.log_topics(tables.Concentrations.of(np.asfortranarray(lam)))
    found = (topics.table[:, :n_topics] + topics.largest[:, None]).T
    assert_allclose(found, plain.expected_log(lam), rtol=1e-13)
    assert topics.table.shape[1] % 8 == 0
    assert_array_equal(topics.table.max(axis=1), 0.0)
    means = tables.mean_topics(
        tables.Concentrations.of(np.asfortranarray(lam)), np.float64, SEQUENTIAL
    )
    of_words = means.table[:, :n_topics] * np.exp(means.largest)[:, None]
    assert_allclose(of_words.T, lam / lam.sum(axis=1, keepdims=True), rtol=1e-12)
    for x in (0.5, 1.0):
        powers = np.exp(x * (found - found.max(axis=0))).T
        # The table is computed from λ, and also from logarithms that were computed before.
        whole = documents(np.ones((1, 17)))
        of_concentrations = model.visit({"topic_word": np.asfortranarray(lam)}, whole, Tempering(x))
        for prepared in (of_concentrations.expected, topics_of(found, x)):
            assert_array_equal(prepared.table[:, n_topics:], 0.0)
            assert_allclose(prepared.table[:, :n_topics], powers, rtol=1e-9, atol=1e-300)
            assert_allclose(prepared.largest, topics.largest, rtol=1e-12, atol=1e-13)
            assert_array_equal(prepared.table.max(axis=1), 1.0)


def test_topics_of_tiny_concentrations_keep_their_largest_entry():
    """exp ψ(λ) underflows from λ = 0.0014 down."""
    lam = np.array([[1e-3, 1e-3, 1e-5, 2.0], [2e-3, 1e-4, 1e-5, 1e-6]])
    model = model_of(lam, 1.0, 1.0)
    logs = plain.expected_log(lam)
    for dtype in ("float64", "float32"):
        model.dtype = np.dtype(dtype)
        whole = documents(np.ones((1, lam.shape[1])))
        found = model.visit({"topic_word": np.asfortranarray(lam)}, whole).expected
        assert_allclose(found.largest, logs.max(axis=0), rtol=1e-12)
        assert_allclose(
            found.table[:, :2], np.exp(logs - logs.max(axis=0)).T, atol=1e-30, rtol=1e-5
        )


@pytest.mark.parametrize("n_documents", [3, 18])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_visit_prepares_the_words_that_it_meets(dtype, n_documents, mixed, rng, monkeypatch):
    """If the documents have few of the words, the table has rows for these alone."""
    monkeypatch.setattr(tables, "_FEW_ENTRIES", 0)
    # The energies of blocks of rows are added up; here all rows are one block.
    monkeypatch.setattr(mean_field, "_WORDS", 60)
    lam = rng.gamma(0.5, size=(5, 60)) + 0.05
    model = model_of(lam, 0.4, 0.1, dtype=dtype)
    q, units = {"topic_word": np.asfortranarray(lam)}, documents(mixed[:n_documents])
    visit, whole = model.visit(q, units), model.visit(q, documents(np.ones((1, 60))))
    found, every = visit.expected, whole.expected
    met = np.unique(units.words)
    assert 0 < len(met) < 60
    few = len(met) <= 30
    assert few == (n_documents == 3)
    rows = np.arange(len(met)) if few else met
    assert_array_equal(found.table[rows], every.table[met])
    assert_array_equal(found.largest[rows], every.largest[met])
    # Words that no document has are not read.
    assert len(found.table) == (len(met) if few else 60)
    found.table[np.setdiff1d(np.arange(len(found.table)), rows)] = np.nan
    some, more = (v.finish(v.step(units, local=LocalStart(None, 30))) for v in (visit, whole))
    some_counts, more_counts = (
        np.asarray(model.block_statistics(None, step.statistics, q)["topic_word"])
        for step in (some, more)
    )
    assert_array_equal(some_counts, more_counts)
    assert some.energy == more.energy


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_local_tempering_is_the_plain_step(scale, rounds, mixed, rng):
    """Of documents of few tokens, all exp ψ(γ) underflow."""
    lam, alpha = rng.gamma(0.5, size=(5, 60)) + 0.05, scale * np.array([0.2, 0.7, 1.4, 0.1, 0.4])
    mixed = scale * mixed
    model = model_of(lam, alpha, 0.1, mean_change_tol=1e-6)
    grid = np.arange(1, 9) / 8
    q = {"topic_word": np.asfortranarray(lam)}
    weights = rng.uniform(0.5, 2.0, size=len(mixed))
    noise = rng.uniform(0.0, 2.0, size=len(mixed))
    units = documents(mixed, weights)
    partition = model.unit_log_partition(grid, None, q)
    temperatures = UnitTemperatures(grid, partition, rounds)
    visit = model.visit(q, units, unit_temperatures=temperatures)
    step = visit.step(units, noise, LocalStart(None, 12))
    log_beta = plain.expected_log(lam)
    found = [plain.locally_tempered(row, log_beta, alpha, grid, rounds, 12, 1e-6) for row in mixed]
    inverse = np.array([each.inverse_temperature for each in found])
    assert_allclose(step.inverse_temperatures, inverse, rtol=1e-8)
    assert scale < 1.0 or np.ptp(inverse) > 0.05, (
        "all documents have one temperature: the test tests nothing"
    )
    gammas = np.array([each.gamma for each in found])
    assert_allclose(step.local, gammas, rtol=1e-8)
    statistics, energy, log_prior, entropy = np.zeros((5, 60)), 0.0, 0.0, 0.0
    for w, factor, row, each in zip(weights, noise, mixed, found, strict=True):
        words = np.flatnonzero(row)
        share = (row[words, None] * each.phi).T
        statistics[:, words] += w * factor * each.inverse_temperature * share
        energy += w * each.energy
        log_prior += w * plain.expected_log_density(alpha, each.gamma)
        entropy += w * plain.assignment_entropy(row[words], each.phi)
        entropy += w * plain.dirichlet_entropy(each.gamma)
    assert_allclose(step.statistics["topic_word"][:, :5].T, statistics, rtol=1e-8, atol=1e-12)
    assert_allclose(step.energy, energy, rtol=1e-9)
    assert_allclose(step.log_prior, log_prior, rtol=1e-9)
    assert_allclose(step.entropy, entropy, rtol=1e-8)
    assert_allclose(step.temperature, weights @ (1.0 / inverse), rtol=1e-8)


@pytest.mark.parametrize("scale", [1e-2, 1e-3, 1e-6])
def test_a_topic_of_few_tokens_keeps_its_word(scale, rng):
    """exp{−ψ(Σ λ)} of this topic overflows, although its E log β are ordinary numbers."""
    lam = rng.gamma(2.0, size=(3, 60)) + 0.05
    lam[1] = scale * np.where(np.arange(60) == 7, 1.0, 1e-9)
    q = {"topic_word": np.asfortranarray(lam)}
    topics = model_of(lam, 0.2, 0.1).visit(q, documents(np.ones((1, 60)))).expected
    logs = plain.expected_log(lam).T
    assert_allclose(topics.largest, logs.max(axis=1), rtol=1e-12, atol=1e-14 / scale)
    expected = np.exp(logs - logs.max(axis=1)[:, None])
    assert expected[7, 1] == 1.0
    assert_allclose(topics.table[:, :3], expected, rtol=1e-13 / scale, atol=1e-300)


def test_the_partition_of_untempered_topics_is_zero(rng):
    lam = rng.gamma(0.5, size=(5, 60)) + 0.05
    grid = np.arange(1, 11) / 10
    found = model_of(lam, 0.2, 0.1).unit_log_partition(
        grid, None, {"topic_word": np.asfortranarray(lam)}
    )
    logs = plain.expected_log(lam)
    expected = special.logsumexp(grid[:, None, None] * logs, axis=2)
    expected -= np.multiply.outer(grid, special.logsumexp(logs, axis=1))
    assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert_array_equal(found[-1], 0.0)


def test_log_partition_is_the_plain_one(rng):
    """With weights that are numbers of copies, and documents of many lengths below 1000."""
    lengths = np.array([0, 1, 7, 300, 999, 7])
    copies = np.array([2, 1, 3, 1, 2, 1])
    X = np.zeros((6, 9))
    X[:, 4] = lengths
    model = model_of(np.ones((4, 9)), 0.3, 0.2)
    summary = model.summary(documents(X, copies.astype(float)))
    x = np.array([0.0, 0.2, 0.9, 1.0])
    found = model.log_partition(x, summary, {})
    repeated = np.repeat(lengths, copies)
    expected = [plain.global_log_partition(v, 10, repeated, 0.3, 0.2, 4, 9) for v in x]
    assert_allclose(found, expected, rtol=1e-10)


def test_log_partition_of_a_stream_is_scaled_to_its_documents(rng):
    lengths = np.array([12345, 54321, 777])
    X = np.zeros((3, 9))
    X[:, 4] = lengths
    model = model_of(np.ones((4, 9)), 0.3, 0.2)
    first, second = (model.summary(documents(X[part])) for part in (slice(2), slice(2, 3)))
    summary = first.merge(second)
    assert summary.tokens == lengths.sum()
    summary.weight = 9.0
    # Three digits of the lengths are kept: 12300, 54300 and 777.
    expected = plain.global_log_partition(0.5, 9, np.repeat([12300, 54300, 777], 3), 0.3, 0.2, 4, 9)
    assert_allclose(model.log_partition(np.array([0.5]), summary, {}), [expected], rtol=1e-12)


@pytest.mark.parametrize("eta", [0.3, 2.0, "vector"])
def test_divergence_of_the_topics(eta, rng):
    eta = rng.gamma(1.0, size=31) + 0.01 if eta == "vector" else np.full(31, eta)
    lam = eta + rng.gamma(0.05, size=(5, 31)) * rng.choice([1.0, 1e6], size=(5, 1))
    model = model_of(lam, 0.1, eta)
    prior = model.prior(None)
    same = np.broadcast_to(prior["topic_word"], lam.shape)
    expected = Dirichlet().kl({"concentration": lam}, {"concentration": same})
    found = model.kl({"topic_word": np.asfortranarray(lam)}, prior)
    # Terms of the size of λ log λ cancel.
    assert_allclose(found, expected, rtol=1e-12, atol=1e-15 * (lam * np.log1p(lam)).sum())
    assert abs(model.kl({"topic_word": np.asfortranarray(same)}, prior)) < 1e-9


@pytest.mark.parametrize("n_words", [511, 513, 1600])
def test_threads_share_the_divergence_of_the_topics(n_words, rng, monkeypatch):
    """The result does not depend on their number, and is that of the family."""
    monkeypatch.setattr(tables, "_ENTRIES_OF_TASK", 1)
    lam = rng.gamma(0.5, size=(5, n_words)) + 0.3
    model = model_of(lam, 0.1, np.full(n_words, 0.3))
    q, prior = {"topic_word": np.asfortranarray(lam)}, model.prior(None)
    same = np.broadcast_to(prior["topic_word"], lam.shape)
    with Workers(2) as workers:
        found = model.kl(q, prior, None, workers)
    assert found == model.kl(q, prior)
    assert found == pytest.approx(
        Dirichlet().kl({"concentration": lam}, {"concentration": same}), rel=1e-11
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_rows", [4, 7, 12])
def test_statistics_are_completed_in_parts(n_rows, dtype, rng):
    """A second array is added, empty words stay empty, and every part has an energy of its own."""
    table, largest = rng.uniform(0.1, 1.0, (n_rows, 8)).astype(dtype), -rng.gamma(1.0, size=n_rows)
    out, addend = rng.gamma(1.0, size=(2, n_rows, 8))
    out[2] = addend[2] = 0.0
    energies = np.full(-(-n_rows // 4), 0.25)
    expected = (out + addend) * table
    logs = np.log(table.astype(float)) / 0.5 + largest[:, None]
    sums = np.add.reduceat((expected * logs).sum(axis=1), np.arange(0, n_rows, 4))
    counts.expected_statistics(table, largest, 0.5, 2.0, 1, addend, out, 4, energies)
    assert_allclose(out, 2.0 * expected, rtol=1e-6 if dtype == np.float32 else 1e-12)
    assert_allclose(energies, 0.25 + sums, rtol=1e-6 if dtype == np.float32 else 1e-12)


def test_columns_are_renumbered(rng):
    numbers = rng.permutation(40).astype(np.int32)
    columns, out = rng.integers(0, 40, 100).astype(np.int32), np.empty(100, np.int32)
    ragged.renumber(out.view(np.uint32), numbers, columns)
    assert_array_equal(out, numbers[columns])


def test_entries_are_listed_by_columns(rng):
    indptr = np.array([3, 3, 10, 40, 103])
    columns = rng.integers(0, 12, 110).astype(np.int32)
    begins, occurrences = np.empty(14, np.int64), np.empty(200, np.uint32)
    ragged.by_column(occurrences, begins, columns, indptr)
    points, positions = occurrences.reshape(100, 2).T
    order = 3 + np.argsort(columns[3:103], kind="stable")
    assert_array_equal(positions, order)
    assert_array_equal(points, np.searchsorted(indptr, order, side="right") - 1)
    assert_array_equal(begins, np.searchsorted(columns[order], np.arange(14)))


@pytest.mark.parametrize("n_documents", [3, 18])
def test_documents_that_list_no_words_get_the_same_step(n_documents, mixed, rng, monkeypatch):
    """The step then lists them itself."""
    lam = rng.gamma(0.5, size=(5, 60)) + 0.05
    model, q = model_of(lam, 0.4, 0.1), {"topic_word": np.asfortranarray(lam)}
    steps = []
    for most in (1_000_000, 0):
        monkeypatch.setattr(_documents, "_MOST_LISTED", most)
        units = documents(mixed[:n_documents])
        visit = model.visit(q, units)
        assert visit.words.listed_by(units) == (most > 0)
        steps.append(visit.finish(visit.step(units, local=LocalStart(None, 30))))
        assert ("occurrences" in vars(units)) == (most > 0)
    assert steps[0].bound == steps[1].bound
    one, other = (np.asarray(step.statistics["topic_word"]) for step in steps)
    assert_array_equal(one, other)


# Elementary functions

FUNCTIONS = ("exp", "log", "digamma", "exp_digamma", "log_gamma")


@pytest.fixture(scope="module")
def elementary():
    """The functions as loops over arrays."""

    def loop(function):
        @numba.njit(error_model="numpy", fastmath={"contract"})
        def run(x, out):
            for i in range(len(x)):
                out[i] = function(x[i])

        def call(x):
            x = np.atleast_1d(x)
            out = np.empty_like(x)
            run(x, out)
            return out

        return call

    return {name: loop(getattr(_math, name)) for name in FUNCTIONS}


def test_exp(elementary):
    x = np.concatenate([np.linspace(-707.9, 709.0, 20001), np.linspace(-1, 1, 2001)])
    assert_allclose(elementary["exp"](x), np.exp(x), rtol=5e-16)
    assert_array_equal(elementary["exp"](np.array([-709.0, -1e5, -1e30])), 0.0)
    assert elementary["exp"](0.0)[0] == 1.0
    single = np.linspace(-86.9, 88.0, 20001).astype(np.float32)
    found = elementary["exp"](single)
    assert found.dtype == np.float32
    assert_allclose(found, np.exp(single.astype(float)), rtol=3e-7)
    assert_array_equal(elementary["exp"](np.array([-88.0, -1e30], dtype=np.float32)), 0.0)


def test_log(elementary):
    x = np.concatenate([np.logspace(-307, 308, 20001), np.linspace(0.5, 2.0, 2001)])
    assert_allclose(elementary["log"](x), np.log(x), rtol=5e-16, atol=0.0)
    assert elementary["log"](1.0)[0] == 0.0


def test_digamma(elementary):
    x = np.concatenate([np.logspace(-300, 32, 20001), np.linspace(0.1, 20.0, 2001)])
    expected = special.psi(x)
    error = np.abs(elementary["digamma"](x) - expected) / np.maximum(1.0, np.abs(expected))
    assert error.max() < 1e-14


def test_exp_digamma(elementary):
    x = np.concatenate([np.logspace(-1, 32, 20001), np.linspace(0.1, 20.0, 2001)])
    assert_allclose(elementary["exp_digamma"](x), np.exp(special.psi(x)), rtol=5e-14)
    # An exponent of −1/x leaves fewer digits, to the reference as well.
    x = np.logspace(np.log10(1.5e-3), -1, 2001)
    assert_allclose(elementary["exp_digamma"](x), np.exp(special.psi(x)), rtol=5e-13)
    assert_array_equal(elementary["exp_digamma"](np.array([1e-3, 1e-100])), 0.0)
    single = np.logspace(np.log10(0.012), 9, 20001).astype(np.float32)
    found = elementary["exp_digamma"](single)
    assert found.dtype == np.float32
    expected = np.exp(special.psi(single.astype(float)))
    error = np.abs(found / expected - 1) / (1 + 1 / single.astype(float))
    assert error.max() < 1e-6
    assert_array_equal(elementary["exp_digamma"](np.array([1e-3, 1e-9], dtype=np.float32)), 0.0)


def test_log_gamma(elementary):
    x = np.concatenate([np.logspace(-30, 37, 20001), np.linspace(0.1, 20.0, 2001)])
    expected = special.gammaln(x)
    error = np.abs(elementary["log_gamma"](x) - expected) / np.maximum(1.0, np.abs(expected))
    assert error.max() < 1e-13
