"""Topic models: compiled loops against plain ones, the bound, and the estimator's behaviour."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numba
import numpy as np
import plain_topics as plain
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special
from scipy.sparse import coo_matrix, csc_matrix, csr_array, csr_matrix, issparse, vstack
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from test_plain_topics import COUNTS, PRIOR, WEIGHTS, exact_topic_counts

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import DeterministicAnnealing, StochasticAnnealing, StructuredVI
from sklearn_anneal.families import Dirichlet, Tempering
from sklearn_anneal.inference import engine
from sklearn_anneal.inference.parallel import SEQUENTIAL
from sklearn_anneal.inference.units import Documents
from sklearn_anneal.kernels import _math
from sklearn_anneal.metrics import document_completion_log_likelihood, split_documents
from sklearn_anneal.models.latent_dirichlet import LatentDirichlet, LocalStart, Topics

ROOT = Path(__file__).resolve().parents[1]
FORMS = {
    "none": (1.0, 1.0, 1.0),
    "likelihood": (0.5, 0.5, 1.0),
    "posterior": (0.5, 0.5, 0.5),
    "local": (0.5, 1.0, 1.0),
    "all_different": (0.6, 0.8, 0.3),
}
"""x, s, y: inverse temperatures of the local step, the statistics and the prior."""
PRECISION = {np.float64: 1e-10, np.float32: 1e-4}


def draw_corpus(rng, n_documents=60, n_words=40, n_topics=4, length=30, eta=0.1):
    """Counts drawn from the model, with documents of very different lengths."""
    beta = rng.dirichlet(np.full(n_words, eta), size=n_topics)
    theta = rng.dirichlet(np.full(n_topics, 0.3), size=n_documents)
    lengths = rng.poisson(length, size=n_documents) + 1
    return csr_matrix(rng.multinomial(lengths, theta @ beta))


def documents(X, weights=None):
    X = csr_matrix(X)
    return Documents(X.data, X.indices, X.indptr, weights)


def small(n_components=3, **params):
    settings = {"annealing": "none", "max_iter": 8, "random_state": 0}
    return AnnealedLatentDirichletAllocation(n_components, **(settings | params))


@pytest.fixture
def X(rng):
    return draw_corpus(rng)


# Kernels against the plain reference


def topics_of(log_beta):
    """log β of shape (K, V) as the kernels read it."""
    n_topics, n_words = log_beta.shape
    largest = log_beta.max(axis=0)
    table = np.full((n_words, -(-n_topics // 8) * 8), -1e30)
    table[:, :n_topics] = (log_beta - largest).T
    return Topics(table, largest)


def local_step(
    X, log_beta, alpha, form=(1.0, 1.0, 1.0), *, name="mean_field", gammas=None, n_iter=10,
    tol=0.0, weights=None, noise=None, apart=False, dtype=np.float64, seed=0,
):  # fmt: skip
    """The completed local step of a corpus; its statistics as (K, V) arrays."""
    n_topics, n_words = log_beta.shape
    model = LatentDirichlet(
        n_topics, n_words, np.asarray(alpha, dtype=float), np.ones(n_words), local_step=name,
        mean_change_tol=tol, dtype=dtype,
    )  # fmt: skip
    t = Tempering(*form)
    expected = model.prepared(topics_of(log_beta), t)
    given = gammas is not None
    gamma = np.array(gammas) if given else np.empty((X.shape[0], n_topics))
    start = LocalStart(gamma, given, n_iter, seed)
    step = model.local_step(documents(X, weights), expected, t, noise, start, apart)
    step = model.completed(step, expected, t)
    step.statistics["topic_word"] = model.block_statistics(None, step.statistics, {})["topic_word"]
    if step.deviation is not None:
        step.deviation = model.block_statistics(None, step.deviation, {})
    return step


def spread(X, alpha, form):
    """Where documents start if nothing is given: their tokens spread over all topics."""
    _, s, y = form
    lengths = np.asarray(X.sum(axis=1), dtype=float).reshape(-1, 1)
    return plain.tempered_prior(np.asarray(alpha), y) + s * lengths / len(alpha)


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


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_mean_field_stops_by_the_mean_change(tol, mixed, rng):
    log_beta, alpha = peaked(rng, 5, 60), np.full(5, 0.4)
    gammas = spread(mixed, alpha, FORMS["none"])
    expected = plain.corpus_step(mixed, log_beta, alpha, gammas, 100, tol)
    longer = plain.corpus_step(mixed, log_beta, alpha, gammas, 100, 0.0)
    assert_step(local_step(mixed, log_beta, alpha, n_iter=100, tol=tol), expected, 1e-10)
    assert np.max(np.abs(longer.gammas - expected.gammas)) > 1e-7


def test_random_weights_change_the_statistics_alone(mixed, rng):
    log_beta, alpha, form = peaked(rng, 5, 60), np.full(5, 0.4), FORMS["likelihood"]
    weights = rng.uniform(0.5, 2.0, size=len(mixed))
    noise = rng.uniform(0.0, 3.0, size=len(mixed))
    start = spread(mixed, alpha, form)
    quiet = plain.corpus_step(mixed, log_beta, alpha, start, 10, 0.0, *form, weights)
    loud = plain.corpus_step(mixed, log_beta, alpha, start, 10, 0.0, *form, weights * noise)
    step = local_step(mixed, log_beta, alpha, form, weights=weights, noise=noise)
    assert_step(step, quiet._replace(statistics=loud.statistics), 1e-10)
    step = local_step(mixed, log_beta, alpha, form, weights=weights, noise=noise, apart=True)
    assert_step(step, quiet, 1e-10)
    assert_allclose(step.deviation["topic_word"], loud.statistics, rtol=1e-10, atol=1e-12)
    assert np.max(np.abs(loud.statistics - quiet.statistics)) > 0.1


def test_noise_that_comes_apart_leaves_the_statistics(mixed, rng):
    log_beta, alpha = peaked(rng, 5, 60), np.full(5, 0.4)
    noise = rng.uniform(0.0, 3.0, size=len(mixed))
    for name in ("mean_field", "cvb0", "gibbs"):
        for form in (FORMS["none"], FORMS["likelihood"]):
            quiet = local_step(mixed, log_beta, alpha, form, name=name)
            loud = local_step(mixed, log_beta, alpha, form, name=name, noise=noise)
            step = local_step(mixed, log_beta, alpha, form, name=name, noise=noise, apart=True)
            for found, expected in (
                (step.statistics, quiet.statistics),
                (step.deviation, loud.statistics),
            ):
                assert_allclose(
                    found["topic_word"],
                    expected["topic_word"],
                    rtol=1e-10,
                    atol=1e-12,
                    err_msg=f"{name}, form {form}",
                )
            assert step.energy == pytest.approx(quiet.energy, rel=1e-12)
            assert loud.energy == pytest.approx(quiet.energy, rel=1e-12)


MANY = 40


def sparse_topics(rng, n_words=200):
    """Topics of few words each, and a corpus whose documents have few of them."""
    beta = rng.dirichlet(np.full(n_words, 0.05), size=MANY)
    X = np.zeros((25, n_words))
    for d in range(25):
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
    # What a topic left out has less than is below 1e-10 tokens, but counts 1/α² times in ψ(γ).
    assert_step(step, expected, {np.float64: 1e-7, np.float32: 1e-3}[dtype])
    if dtype is np.float64:
        assert_allclose(step.local, expected.gammas, rtol=1e-7, atol=1e-9)
        assert_allclose(
            step.bound, expected.energy + expected.log_prior + expected.entropy, rtol=1e-10
        )


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
    # The random numbers of neighbours have nothing to do with each other.
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
    expected = model.expectations({"topic_word": np.asfortranarray(lam)})
    topics = model.log_topics(expected)
    found = (topics.table[:, :n_topics] + topics.largest[:, None]).T
    assert_allclose(found, plain.expected_log(lam), rtol=1e-13)
    assert topics.table.shape[1] % 8 == 0
    assert_array_equal(topics.table.max(axis=1), 0.0)
    for x in (0.5, 1.0):
        powers = np.exp(x * (found - found.max(axis=0))).T
        # Of λ itself, and of logarithms that were found before.
        for source in (expected, topics._replace(table=topics.table.copy())):
            prepared = model.prepared(source, Tempering(local=x))
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
        found = model.prepared(
            model.expectations({"topic_word": np.asfortranarray(lam)}), Tempering()
        )
        assert_allclose(found.largest, logs.max(axis=0), rtol=1e-12)
        assert_allclose(
            found.table[:, :2], np.exp(logs - logs.max(axis=0)).T, atol=1e-30, rtol=1e-5
        )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_visit_prepares_the_words_that_it_meets(dtype, mixed, rng):
    lam = rng.gamma(0.5, size=(5, 60)) + 0.05
    model = model_of(lam, 0.4, 0.1, dtype=dtype)
    q, units = {"topic_word": np.asfortranarray(lam)}, documents(mixed[:3])
    visitor, same = model.visiting(model.blocks[0], units)
    assert same is units
    found, every = (m.prepared(m.expectations(q), Tempering()) for m in (visitor, model))
    met = np.unique(units.words)
    assert 0 < len(met) < 60
    assert_array_equal(found.table[met], every.table[met])
    assert_array_equal(found.largest[met], every.largest[met])
    # What no document has is not looked at.
    found.table[np.setdiff1d(np.arange(60), met)] = np.nan
    some, whole = (
        m.completed(
            m.local_step(units, topics, Tempering(), local=start_of(3)), topics, Tempering()
        )
        for m, topics in ((visitor, found), (model, every))
    )
    assert_array_equal(some.statistics["topic_word"], whole.statistics["topic_word"])
    assert some.energy == whole.energy


def start_of(n_documents):
    return LocalStart(np.empty((n_documents, 5)), False, 30)


@pytest.mark.parametrize("rounds", [1, 2])
def test_local_tempering_is_the_plain_step(rounds, mixed, rng):
    lam, alpha = rng.gamma(0.5, size=(5, 60)) + 0.05, np.array([0.2, 0.7, 1.4, 0.1, 0.4])
    model = model_of(lam, alpha, 0.1, mean_change_tol=1e-6)
    grid = np.arange(1, 21) / 20
    q = {"topic_word": np.asfortranarray(lam)}
    weights = rng.uniform(0.5, 2.0, size=len(mixed))
    noise = rng.uniform(0.0, 2.0, size=len(mixed))
    units = documents(mixed, weights)
    start = LocalStart(np.empty((len(mixed), 5)), False, 30)
    step = model.locally_tempered_step(
        units, model.locally_prepared(model.expectations(q)), grid,
        model.unit_log_partition(grid, None, q), rounds, noise=noise, local=start,
    )  # fmt: skip
    log_beta = plain.expected_log(lam)
    found = [plain.locally_tempered(row, log_beta, alpha, grid, rounds, 30, 1e-6) for row in mixed]
    inverse = np.array([each.inverse_temperature for each in found])
    assert_allclose(step.inverse_temperatures, inverse, rtol=1e-8)
    assert np.ptp(inverse) > 0.05, "all documents have one temperature: the test tests nothing"
    gammas = np.array([each.gamma for each in found])
    assert_allclose(step.local, gammas, rtol=1e-8)
    statistics, energy, log_prior, entropy = np.zeros((5, 60)), 0.0, 0.0, 0.0
    for w, loud, row, each in zip(weights, noise, mixed, found, strict=True):
        words = np.flatnonzero(row)
        share = (row[words, None] * each.phi).T
        statistics[:, words] += w * loud * each.inverse_temperature * share
        energy += w * each.energy
        log_prior += w * plain.expected_log_density(alpha, each.gamma)
        entropy += w * plain.assignment_entropy(row[words], each.phi)
        entropy += w * plain.dirichlet_entropy(each.gamma)
    assert_allclose(step.statistics["topic_word"][:, :5].T, statistics, rtol=1e-8, atol=1e-12)
    assert_allclose(step.energy, energy, rtol=1e-9)
    assert_allclose(step.log_prior, log_prior, rtol=1e-9)
    assert_allclose(step.entropy, entropy, rtol=1e-8)
    assert_allclose(step.temperature, weights @ (1.0 / inverse), rtol=1e-8)


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


# The bound


def evaluation(lda, X):
    """The plain local step at the fitted topics, and the divergence of these."""
    ctx = lda._context()
    units = lda._make_units(lda._validate_data(X, reset=False), None)
    at_the_end = replace(ctx, exploring=False)
    seen = engine.visit(at_the_end, engine.PLAIN, units, SEQUENTIAL)
    return seen, ctx.model.kl(ctx.q, ctx.prior)


@pytest.mark.parametrize(("alpha", "eta"), [(None, None), (0.05, 0.01), (1.7, 2.5)])
def test_the_bound_is_that_of_scikit_learn_at_the_same_gamma(alpha, eta, X):
    lda = small(4, doc_topic_prior=alpha, topic_word_prior=eta).fit(X)
    seen, divergence = evaluation(lda, X)
    peer = LatentDirichletAllocation(4)
    peer.components_ = lda.components_
    peer.doc_topic_prior_ = lda.doc_topic_prior_
    peer.topic_word_prior_ = lda.topic_word_prior_
    gamma = np.concatenate(seen.local)
    expected = peer._approx_bound(X, gamma, sub_sampling=False)
    assert_allclose(seen.step.bound - divergence, expected, rtol=1e-8)
    assert_allclose(lda.transform(X, normalize=False), gamma, rtol=1e-12)
    perplexity = np.exp(-(expected + divergence) / X.sum())
    assert_allclose(lda.perplexity(X), perplexity, rtol=1e-8)


def test_the_bound_of_a_fit_is_the_plain_one(X):
    lda = small(4, doc_topic_prior=[0.1, 0.5, 1.0, 2.0], topic_word_prior=np.linspace(0.1, 3, 40))
    lda.set_params(max_iter=60, tol=1e-9).fit(X)
    gammas = lda.transform(X, normalize=False)
    expected = plain.lower_bound(
        X.toarray(), gammas, lda.components_, lda.doc_topic_prior_, lda.topic_word_prior_
    )
    # Documents have been kept from pass to pass, and may be in a better optimum by a little.
    assert_allclose(lda.lower_bound_, expected, rtol=1e-3)
    seen, divergence = evaluation(lda, X)
    assert_allclose(seen.step.bound - divergence, expected, rtol=1e-10)


@pytest.mark.parametrize("learning_method", ["batch", "online"])
@pytest.mark.parametrize("local_step", ["mean_field", "cvb0", "gibbs"])
def test_bound_is_the_perplexity_of_the_training_set(local_step, learning_method, X):
    lda = small(learning_method=learning_method, local_step=local_step, batch_size=20).fit(X)
    # Where the fit has evaluated the bound, its data's side is told by adding the topics' again.
    assert_allclose(lda.bound_, lda.perplexity(X), rtol=1e-12)
    assert lda.perplexity(X) == lda.perplexity(X, sub_sampling=True)


@pytest.mark.parametrize("copies", [2, 7])
def test_perplexity_does_not_depend_on_the_number_of_documents(copies, X):
    lda = small().fit(X)
    assert_allclose(lda.perplexity(vstack([X[:9]] * copies)), lda.perplexity(X[:9]), rtol=1e-10)
    peer = LatentDirichletAllocation(3, random_state=0).fit(X)
    assert peer.perplexity(vstack([X[:9]] * copies)) < 0.95 * peer.perplexity(X[:9])


def test_score_is_document_completion(X, rng):
    lda = small().fit(X)
    test = vstack([draw_corpus(rng, 10), csr_matrix(np.eye(1, 40, dtype=int)), X[:3]]).tocsr()
    observed, held_out = split_documents(test)
    topics = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    each, tokens = document_completion_log_likelihood(held_out, lda.transform(observed), topics)
    long_enough = np.asarray(test.sum(axis=1)).ravel() >= 2
    assert not long_enough[10]
    expected = each[long_enough].sum() / tokens[long_enough].sum()
    assert_allclose(lda.score(test), expected, rtol=1e-12)
    weights = rng.uniform(size=14)
    expected = (weights * each)[long_enough].sum() / (weights * tokens)[long_enough].sum()
    assert_allclose(lda.score(test, sample_weight=weights), expected, rtol=1e-12)
    order = rng.permutation(14)
    assert_allclose(lda.score(test[order]), lda.score(test), rtol=1e-12)
    with pytest.raises(ValueError, match="two tokens"):
        lda.score(np.eye(3, 40))


# In the place of scikit-learn's class


def test_parameters_and_attributes_of_scikit_learn(X):
    ours, peer = AnnealedLatentDirichletAllocation(), LatentDirichletAllocation()
    theirs = peer.get_params()
    assert theirs.keys() <= ours.get_params().keys()
    different = {name for name, value in theirs.items() if ours.get_params()[name] != value}
    assert different == {"max_iter", "total_samples", "max_doc_update_iter"}, (
        "defaults differ from scikit-learn's without a word in the docstring"
    )
    settings = {"learning_method": "online", "batch_size": 16, "max_iter": 2, "random_state": 0}
    peer = peer.set_params(**settings).fit(X)
    ours = ours.set_params(annealing="none", **settings).fit(X)
    # Ours keeps no generator: the seeds of all parts of a fit hang on one number.
    for name in vars(peer).keys() - peer.get_params().keys() - {"random_state_"}:
        theirs, found = np.asarray(getattr(peer, name)), np.asarray(getattr(ours, name))
        assert found.shape == theirs.shape, name
        assert found.dtype.kind == theirs.dtype.kind, name
    assert ours.n_batch_iter_ == peer.n_batch_iter_
    assert ours.doc_topic_prior_ == peer.doc_topic_prior_


def test_the_start_is_that_of_scikit_learn(X):
    peer = LatentDirichletAllocation(3, random_state=5)
    peer._init_latent_vars(X.shape[1])
    assert_array_equal(small(random_state=5, max_iter=0).fit(X).components_, peer.components_)


def test_a_fit_is_as_good_as_that_of_scikit_learn(X):
    """By scikit-learn's own measure, the bound on the corpus with its own local step."""
    peer = LatentDirichletAllocation(4, random_state=0, max_iter=100).fit(X)
    lda = small(4, max_iter=100).fit(X)
    theirs = peer.score(X)
    peer.components_, peer.exp_dirichlet_component_ = (
        lda.components_,
        lda.exp_dirichlet_component_,
    )
    assert peer.score(X) > theirs - 0.02 * X.sum()


FORMATS = {
    "csr int64": lambda X: X.astype(np.int64),
    "csr int32": lambda X: X.astype(np.int32),
    "csr uint8": lambda X: X.astype(np.uint8),
    "csr array": csr_array,
    "csc": csc_matrix,
    "coo": coo_matrix,
    "dense": lambda X: X.toarray(),
    "dense Fortran": lambda X: np.asfortranarray(X.toarray()),
    "dense int": lambda X: X.toarray().astype(int),
    "lists": lambda X: X.toarray().tolist(),
}


def int64_indices(X):
    X = X.copy()
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def with_duplicates(X):
    """Every entry in two parts, and words in reverse order."""
    coo = coo_matrix(X)
    halves = (np.tile(coo.row, 2)[::-1], np.tile(coo.col, 2)[::-1])
    order = np.argsort(halves[0], kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(halves[0], minlength=X.shape[0]))])
    data = np.tile(coo.data / 2, 2)[::-1][order]
    return csr_matrix((data, halves[1][order], indptr), shape=X.shape)


FORMATS |= {"int64 indices": int64_indices, "duplicates": with_duplicates}


@pytest.mark.parametrize("name", FORMATS)
def test_the_format_of_the_counts_does_not_matter(name, X):
    X = X.astype(float)
    other = FORMATS[name](X)
    parts = [name for name in ("data", "indices", "indptr") if issparse(other)]
    before = {part: getattr(other, part).copy() for part in parts if hasattr(other, part)}
    expected, found = small(max_iter=3).fit(X), small(max_iter=3).fit(other)
    assert_array_equal(found.components_, expected.components_)
    assert found.components_.dtype == np.float64
    assert_array_equal(found.transform(other), expected.transform(X))
    assert found.perplexity(other) == expected.perplexity(X)
    assert found.score(other) == expected.score(X)
    assert_array_equal(small().partial_fit(other).components_, small().partial_fit(X).components_)
    for part, values in before.items():
        assert_array_equal(getattr(other, part), values, err_msg="the user's matrix was changed")


@pytest.mark.parametrize("local_step", ["mean_field", "cvb0"])
def test_float32_stays_float32(local_step, X):
    single = X.astype(np.float32)
    for learning_method in ("batch", "online"):
        params = {"learning_method": learning_method, "local_step": local_step, "max_iter": 3}
        one, two = small(**params).fit(single), small(**params).fit(X.astype(float))
        for lda, dtype in ((one, np.float32), (two, np.float64)):
            assert lda.components_.dtype == dtype
            assert lda.exp_dirichlet_component_.dtype == dtype
            assert lda.transform(X).dtype == dtype
            assert lda.transform(single, normalize=False).dtype == dtype
            assert lda._context().q["topic_word"].dtype == np.float64
        assert_allclose(one.components_, two.components_, rtol=1e-3)
        assert_allclose(one.lower_bound_, two.lower_bound_, rtol=1e-5)


def test_exp_dirichlet_component(X):
    lda = small().fit(X)
    assert_allclose(
        lda.exp_dirichlet_component_, np.exp(plain.expected_log(lda.components_)), rtol=1e-10
    )


def test_names_of_topics_and_data_frames(X):
    pandas = pytest.importorskip("pandas")
    words = [f"word {i}" for i in range(X.shape[1])]
    frame = pandas.DataFrame(X.toarray(), columns=words)
    lda = small(3).set_output(transform="pandas").fit(frame)
    names = [f"annealedlatentdirichletallocation{k}" for k in range(3)]
    assert_array_equal(lda.get_feature_names_out(), names)
    found = lda.transform(frame)
    assert list(found.columns) == names
    assert_allclose(found.to_numpy(), small(3).fit(X).transform(X), rtol=1e-12)
    assert_array_equal(lda.feature_names_in_, words)
    assert set(lda.top_words(n=2)[0]) <= set(words)
    with pytest.raises(ValueError, match="feature names"):
        lda.transform(frame[words[::-1]])


def test_transform_without_normalisation_gives_gamma(X):
    lda = small(doc_topic_prior=[0.2, 0.3, 0.9]).fit(X)
    gamma = lda.transform(X, normalize=False)
    assert_allclose(gamma.sum(axis=1), 1.4 + np.asarray(X.sum(axis=1)).ravel(), rtol=1e-9)
    shares = gamma / gamma.sum(axis=1, keepdims=True)
    assert_allclose(lda.transform(X), shares, rtol=1e-12)
    assert_array_equal(lda.transform(X), lda.transform(X))
    again = small(doc_topic_prior=[0.2, 0.3, 0.9])
    assert_array_equal(again.fit_transform(X), lda.transform(X))
    assert_array_equal(again.fit_transform(X, normalize=False), gamma)
    # A document is read alone: the others do not matter.
    assert_array_equal(lda.transform(X[7]), lda.transform(X)[7:8])


@pytest.mark.parametrize("learning_method", ["batch", "online"])
@pytest.mark.parametrize("local_step", ["mean_field", "cvb0", "gibbs"])
def test_an_empty_document_gets_the_prior(local_step, learning_method, X):
    alpha = np.array([0.2, 0.3, 0.5])
    some = vstack([csr_matrix((2, 40), dtype=int), X, csr_matrix((1, 40), dtype=int)]).tocsr()
    params = {"doc_topic_prior": alpha, "local_step": local_step, "batch_size": 1000}
    lda = small(learning_method=learning_method, **params).fit(some)
    found = lda.transform(some, normalize=False)
    for d in (0, 1, len(found) - 1):
        assert_array_equal(found[d], alpha)
    assert_allclose(lda.transform(some)[0], alpha)
    if local_step != "gibbs":  # whose random numbers belong to the places of documents
        assert_allclose(
            lda.components_,
            small(learning_method=learning_method, **params).fit(X).components_,
            rtol=1e-9,
        )
    assert_allclose(lda.perplexity(some), lda.perplexity(X), rtol=1e-10)


def test_a_batch_without_tokens_changes_nothing(X):
    lda = small().partial_fit(X)
    before = pickle.dumps(lda)
    lda.partial_fit(csr_matrix((3, 40)))
    lda.partial_fit(X, sample_weight=np.zeros(X.shape[0]))
    assert pickle.dumps(lda) == before


# What is refused


def test_a_corpus_of_zero_tokens_is_refused(X):
    nothing = csr_matrix((4, 40))
    weights = np.zeros(X.shape[0])
    weights[0] = 1.0
    only_empty = vstack([nothing[:1], X[1:]]).tocsr()
    for annealing in ("none", "deterministic", "stochastic", "local_tempering"):
        for name in ("fit", "partial_fit"):
            with pytest.raises(ValueError, match="have no words"):
                getattr(small(annealing=annealing), name)(nothing)
            with pytest.raises(ValueError, match="have no words"):
                getattr(small(annealing=annealing), name)(only_empty, sample_weight=weights)
    lda = small().fit(X)
    with pytest.raises(ValueError, match="no words"):
        lda.perplexity(nothing)
    with pytest.raises(ValueError, match="two tokens"):
        lda.score(nothing)
    # Where nothing has to be learned nor divided by tokens, an empty document is one as others.
    assert_allclose(lda.transform(nothing), 1 / 3)


USES = ("transform", "score", "perplexity", "partial_fit", "inverse_temperatures")


@pytest.mark.parametrize("name", USES)
def test_a_wrong_number_of_columns_is_refused(name, X):
    lda = small(annealing="local_tempering")
    lda.set_params(annealing__n_passes=2, max_iter=2).fit(X)
    for wrong in (X[:, :39], csr_matrix((3, 41), dtype=int)):
        with pytest.raises(ValueError, match=rf"{wrong.shape[1]} features.*40"):
            getattr(lda, name)(wrong)
    before = pickle.dumps(lda)
    with pytest.raises(ValueError, match="features"):
        lda.partial_fit(X[:, :39])
    assert pickle.dumps(lda) == before, "a refused batch has changed the estimator"


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(
    ("value", "message"), [(-1.0, "Negative values"), (np.nan, "NaN"), (np.inf, "infinity")]
)
def test_counts_that_are_none_are_refused(value, message, sparse, X):
    wrong = X.astype(float).toarray()
    wrong[3, 5] = value
    wrong = csr_matrix(wrong) if sparse else wrong
    lda = small(annealing="local_tempering")
    for name in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=message):
            getattr(lda, name)(wrong)
    lda.set_params(annealing__n_passes=2, max_iter=2).fit(X)
    for name in USES:
        with pytest.raises(ValueError, match=message):
            getattr(lda, name)(wrong)


def test_a_sampler_of_tokens_keeps_fractions(X):
    """What a count has above a whole number is a smaller token: none is lost or made up."""
    for counts in (X / 2, X * 1.25, X * 0.3):
        lda = small(local_step="gibbs", annealing="none", max_iter=1).fit(counts)
        tokens = (lda.components_ - lda.topic_word_prior_).sum(axis=0)
        assert_allclose(tokens, np.asarray(counts.sum(axis=0)).ravel(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"doc_topic_prior": [0.1, 0.2]}, r"doc_topic_prior.*n_components = 3"),
        ({"doc_topic_prior": [0.1, 0.2, 0.0]}, "doc_topic_prior.*smallest entry of 0"),
        ({"doc_topic_prior": [0.1, np.nan, 1.0]}, "doc_topic_prior"),
        ({"doc_topic_prior": 0.0}, "doc_topic_prior"),
        ({"doc_topic_prior": "best"}, "doc_topic_prior"),
        ({"topic_word_prior": np.ones(39)}, r"topic_word_prior.*n_features = 40"),
        ({"topic_word_prior": np.ones((3, 40))}, "topic_word_prior"),
        ({"topic_word_prior": -1.0}, "topic_word_prior"),
        ({"local_step": "vb"}, "local_step"),
        ({"learning_method": "stream"}, "learning_method"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": None}, "batch_size"),
        ({"max_doc_update_iter": -1}, "max_doc_update_iter"),
    ],
)
def test_parameters_that_are_refused(params, message, X):
    for name in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=message):
            getattr(small(**params), name)(X)


def test_before_a_fit(X):
    for name in ("transform", "score", "perplexity"):
        with pytest.raises(NotFittedError):
            getattr(small(), name)(X)
    with pytest.raises(NotFittedError):
        small().top_words()
    assert not hasattr(small(), "components_")
    assert not hasattr(small(), "inverse_temperatures")


# Priors, starts, streams


def kept_bounds(lda, X, monkeypatch):
    """The bounds of the passes that keep γ, from the last that did not."""
    exploring = []
    start = LatentDirichlet.local_start

    def spy(self, units, local, explore, rng):
        if rng is not None:
            exploring.append(explore)
        return start(self, units, local, explore, rng)

    monkeypatch.setattr(LatentDirichlet, "local_start", spy)
    lda.fit(X)
    monkeypatch.undo()
    first = exploring.index(False)
    # One chunk, hence one start per visit; the bound of visit p is that of pass p - 1.
    assert exploring == [True] * first + [False] * (len(exploring) - first)
    assert len(lda.lower_bounds_) == len(exploring) - 1
    return lda.lower_bounds_[max(first - 2, 0) :]


@pytest.mark.parametrize("annealing", ["none", "deterministic"])
@pytest.mark.parametrize(
    "priors",
    [
        {},
        {"doc_topic_prior": 0.01, "topic_word_prior": 0.01},
        {"doc_topic_prior": 3.0, "topic_word_prior": 2.0},
        {"doc_topic_prior": "auto"},
        {"doc_topic_prior": "auto", "topic_word_prior": "auto"},
    ],
)
def test_the_bound_never_falls_once_documents_are_kept(priors, annealing, X, monkeypatch):
    lda = small(4, annealing=annealing, max_iter=40, tol=0.0, **priors)
    if annealing == "deterministic":
        lda.set_params(annealing__n_passes=5)
    bounds = kept_bounds(lda, X, monkeypatch)
    assert len(bounds) >= 20
    assert np.diff(bounds).min() > -1e-9 * abs(bounds[-1])
    assert bounds[-1] > bounds[0]


@pytest.mark.parametrize("annealing", ["none", "deterministic", "stochastic"])
def test_asymmetric_and_large_priors(annealing, X):
    alpha, eta = np.array([5.0, 0.5, 0.01]), np.linspace(0.1, 4.0, 40)
    lda = small(annealing=annealing, doc_topic_prior=alpha, topic_word_prior=eta, max_iter=30)
    if annealing != "none":
        lda.set_params(annealing__n_passes=5)
    lda.fit(X)
    assert_array_equal(lda.doc_topic_prior_, alpha)
    assert_array_equal(lda.topic_word_prior_, eta)
    assert np.all(lda.components_ >= eta * (1 - 1e-12))
    assert_allclose(lda.components_.sum() - 3 * eta.sum(), X.sum(), rtol=1e-9)
    alpha[:] = 7.0
    assert lda.doc_topic_prior_[0] == 5.0, "the estimator keeps the user's own array"
    scalar = small(doc_topic_prior=2.0, topic_word_prior=1.5).fit(X)
    vector = small(doc_topic_prior=np.full(3, 2.0), topic_word_prior=np.full(40, 1.5)).fit(X)
    assert_array_equal(scalar.components_, vector.components_)
    assert (scalar.doc_topic_prior_, scalar.topic_word_prior_) == (2.0, 1.5)


@pytest.mark.parametrize("names", [("doc_topic_prior",), ("doc_topic_prior", "topic_word_prior")])
def test_learned_priors_raise_the_bound(names, rng):
    X = draw_corpus(rng, n_documents=120, eta=0.05)
    fixed = small(4, max_iter=80, doc_topic_prior=2.0, topic_word_prior=2.0).fit(X)
    given = {"doc_topic_prior": fixed.doc_topic_prior_, "topic_word_prior": fixed.topic_word_prior_}
    auto = dict.fromkeys(names, "auto")
    default = small(4, max_iter=80, **({} if len(names) == 2 else {"topic_word_prior": 2.0}))
    learned = small(4, max_iter=80, **(given | auto)).fit(X)
    assert learned.lower_bound_ > default.fit(X).lower_bound_ + 1.0
    assert learned.doc_topic_prior_.shape == (4,)
    assert np.all(learned.doc_topic_prior_ > 0)
    # At the end α is the best there is: scaling it up or down lowers the bound.
    seen, _ = evaluation(learned, X)
    theta = plain.expected_log(np.concatenate(seen.local)).mean(axis=0)

    def objective(alpha):
        return (alpha - 1) @ theta - plain.log_normaliser(alpha)

    best = objective(learned.doc_topic_prior_)
    for factor in (0.9, 1.1):
        assert objective(factor * learned.doc_topic_prior_) < best


def test_topics_to_start_from(X):
    given = np.random.default_rng(1).gamma(2.0, size=(3, 40))
    start = small(init_components=given, max_iter=0).fit(X)
    assert_array_equal(start.components_, given)
    assert not np.shares_memory(start.components_, given)
    lda = small(init_components=given, max_iter=20).fit(X)
    again = small(init_components=given.tolist(), max_iter=20, random_state=9).fit(X)
    assert_array_equal(lda.components_, again.components_)
    assert lda.lower_bound_ > start.lower_bound_
    # The topics keep their places.
    turned = small(init_components=given[[2, 0, 1]], max_iter=20).fit(X)
    assert_allclose(turned.components_, lda.components_[[2, 0, 1]], rtol=1e-6)
    streamed = small(init_components=given, learning_offset=1e12, learning_decay=1.0)
    assert_allclose(streamed.partial_fit(X).components_, given, rtol=1e-8)


@pytest.mark.parametrize(
    "given", [np.ones((2, 40)), np.ones((3, 39)), np.zeros((3, 40)), -np.ones((3, 40))]
)
def test_topics_to_start_from_that_are_refused(given, X):
    with pytest.raises(ValueError, match=r"init_components.*\(3, 40\)"):
        small(init_components=given).fit(X)


def test_topics_to_start_from_need_a_method_that_starts_there(X):
    given = np.ones((3, 40)) + np.eye(3, 40)
    random = StochasticAnnealing(start="random", n_passes=2)
    with pytest.raises(ValueError, match="init_params"):
        small(init_components=given, annealing=random).fit(X)
    small(init_components=given, annealing="stochastic").set_params(annealing__n_passes=2).fit(X)


@pytest.mark.parametrize("annealing", ["none", "deterministic"])
def test_a_warm_start_goes_on(annealing, X):
    lda = small(annealing=annealing, max_iter=30, tol=0.0, warm_start=True)
    if annealing == "deterministic":
        lda.set_params(annealing__n_passes=5)
    first = lda.fit(X).lower_bounds_
    topics = lda.components_.copy()
    second = lda.fit(X).lower_bounds_
    assert_array_equal(second[: len(first)], first)
    added = second[len(first) :]
    assert len(added) == 30
    assert np.diff(added).min() > -1e-9 * abs(added[-1])
    # Documents start anew, as none of the size of the corpus is kept: hardly lower, or higher.
    assert added[0] > first[-1] - 1e-3 * X.sum()
    assert added[-1] >= first[-1] - 1e-3 * X.sum()
    assert np.any(lda.components_ != topics)
    assert lda.n_iter_ == len(second)


def test_partial_fit_cuts_its_input_into_batches(X):
    whole = small(batch_size=16, total_samples=60).partial_fit(X)
    parts = small(batch_size=16, total_samples=60)
    for begin in range(0, X.shape[0], 16):
        parts.partial_fit(X[begin : begin + 16])
    assert len(whole.lower_bounds_) == 4
    assert whole.n_batch_iter_ == parts.n_batch_iter_ == 5
    assert_array_equal(whole.lower_bounds_, parts.lower_bounds_)
    assert_array_equal(whole.components_, parts.components_)
    one = small(batch_size=1000, total_samples=60).partial_fit(X)
    assert len(one.lower_bounds_) == 1
    # λ after one update: the mean of the start and of the whole corpus at the learning rate.
    rho = 11.0**-0.7
    assert_allclose(
        one.components_.sum(),
        (1 - rho) * small(max_iter=0).fit(X).components_.sum() + rho * (X.sum() + 40.0),
        rtol=1e-9,
    )


@pytest.mark.parametrize("local_step", ["mean_field", "gibbs"])
@pytest.mark.parametrize(
    "annealing", ["none", "deterministic", "stochastic", "svi_plus", "structured", "tempering"]
)
def test_a_pickled_stream_goes_on_as_if_it_had_not_been(annealing, local_step, X):
    lda = small(annealing=annealing, local_step=local_step, batch_size=16, total_samples=60)
    lda.partial_fit(X)
    other = pickle.loads(pickle.dumps(lda))
    lda.partial_fit(X)
    assert_array_equal(lda.components_, other.partial_fit(X).components_)
    assert_array_equal(lda.lower_bounds_, other.lower_bounds_)


@pytest.mark.parametrize(
    ("annealing", "local_step"),
    [
        *product(("none", "deterministic", "tempering"), ("mean_field", "cvb0")),
        ("local_tempering", "mean_field"),
    ],
)
def test_a_weight_is_a_number_of_copies(annealing, local_step, X, rng):
    copies = rng.integers(0, 4, size=X.shape[0])
    repeated = X[np.repeat(np.arange(X.shape[0]), copies)]
    lda = small(annealing=annealing, local_step=local_step, max_iter=6, tol=0.0)
    if annealing != "none":
        lda.set_params(annealing__n_passes=4)
    weighted = lda.fit(X, sample_weight=copies)
    topics, bounds, perplexity = weighted.components_, weighted.lower_bounds_, weighted.bound_
    lda.fit(repeated)
    assert_allclose(lda.components_, topics, rtol=1e-8)
    assert_allclose(lda.lower_bounds_, bounds, rtol=1e-10)
    assert_allclose(lda.bound_, perplexity, rtol=1e-10)


@pytest.mark.parametrize("local_step", ["cvb0", "gibbs"])
def test_local_tempering_needs_mean_field_steps(local_step, X):
    for name in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=f"local_step='{local_step}'.*local_step='mean_field'"):
            getattr(small(annealing="local_tempering", local_step=local_step), name)(X)


def test_top_words(X):
    lda = small().fit(X)
    names = np.array([f"w{i}" for i in range(40)])
    words = lda.top_words(names, 5)
    assert len(words) == 3
    for topic, columns, named in zip(lda.components_, lda.top_words(n=5), words, strict=True):
        assert_array_equal(topic[columns], np.sort(topic)[::-1][:5])
        assert_array_equal(names[columns], named)
    assert [len(each) for each in lda.top_words(list(names), 40)] == [40] * 3
    for n in (0, 41):
        with pytest.raises(ValueError, match=f"between 1 and .* 40, got {n}"):
            lda.top_words(names, n)
    with pytest.raises(ValueError, match=r"feature_names.*40.*\(39,\)"):
        lda.top_words(names[1:])


def test_random_words_have_a_high_temperature(rng):
    """Words drawn from the whole vocabulary fit no topic; no document was seen by the fit."""
    X = draw_corpus(rng, n_documents=200, n_words=100, n_topics=5, length=60, eta=0.05)
    lda = small(5, annealing="local_tempering", max_iter=20)
    lda.set_params(annealing__n_passes=15).fit(X[40:])
    odd = np.random.default_rng(5).multinomial(60, np.full(100, 0.01), size=40)
    found = lda.inverse_temperatures(vstack([X[:40], csr_matrix(odd)]))
    assert found.shape == (80,)
    assert np.all((found > 0) & (found <= 1))
    assert np.median(found[40:]) < np.median(found[:40]) - 0.05
    assert np.mean(found[40:, None] < found[None, :40]) > 0.9
    assert np.all(lda.temperatures_ >= 1.0)


@pytest.mark.parametrize("local_step", ["mean_field", "cvb0", "gibbs"])
def test_the_number_of_threads_does_not_change_a_bit(local_step, rng):
    X = draw_corpus(rng, n_documents=900, n_words=1500, n_topics=8, length=200, eta=1.0)
    params = {"local_step": local_step, "max_iter": 3, "tol": 0.0}
    one = small(20, **params)
    assert len(documents(X).chunks()) >= 3, "one chunk: the test tests nothing"
    if local_step == "gibbs":
        one.set_params(max_iter=1)
    two = pickle.loads(pickle.dumps(one)).set_params(n_jobs=2).fit(X)
    one.fit(X)
    assert_array_equal(one.components_, two.components_)
    assert_array_equal(one.lower_bounds_, two.lower_bounds_)
    assert_array_equal(one.transform(X), two.transform(X))
    assert one.perplexity(X) == two.perplexity(X)
    assert one.bound_ == two.bound_


def test_restarts_keep_the_best(X):
    lda = small(4, n_init=4, max_iter=10).fit(X)
    assert lda.restart_lower_bounds_.shape == (4,)
    assert lda.lower_bound_ == lda.restart_lower_bounds_.max()
    assert len(set(lda.restart_lower_bounds_)) == 4
    assert lda.restart_lower_bounds_[0] == small(4, max_iter=10).fit(X).lower_bound_


def test_the_perplexity_ends_a_fit(X):
    lda = small(4, max_iter=60, tol=0.0, evaluate_every=2, perp_tol=0.5).fit(X)
    assert lda.converged_
    assert 2 < lda.n_iter_ < 60
    assert lda.n_iter_ % 2 == 0
    before, after = np.exp(-lda.lower_bounds_[[-3, -1]] / X.sum())
    assert abs(after - before) < 0.5
    never = small(4, max_iter=60, tol=0.0, evaluate_every=0, perp_tol=0.5).fit(X)
    assert never.n_iter_ == 60


def test_a_number_of_local_iterations_holds_everywhere(X):
    lda = small(max_doc_update_iter=2, mean_change_tol=0.0).fit(X)
    log_beta = plain.expected_log(lda.components_)
    alpha = np.full(3, 1 / 3)
    for n_iter in (0, 2, 5):
        lda.set_params(max_doc_update_iter=n_iter)
        expected = plain.corpus_step(
            X.toarray(), log_beta, alpha, spread(X, alpha, FORMS["none"]), n_iter, 0.0
        )
        fitted = small(max_doc_update_iter=n_iter, mean_change_tol=0.0, max_iter=0)
        fitted.set_params(init_components=lda.components_).fit(X)
        assert_allclose(fitted.transform(X, normalize=False), expected.gammas, rtol=1e-9)
        updated = pickle.loads(pickle.dumps(fitted)).set_params(max_iter=1).fit(X)
        assert_allclose(updated.components_, 1 / 3 + expected.statistics, rtol=1e-9)


GLOBAL = {
    "none": "none",
    "approximate": StructuredVI(gradient="approximate", n_passes=12),
    "exact": StructuredVI(gradient="exact", n_passes=12),
}


@pytest.mark.parametrize("local_step", ["mean_field", "cvb0", "gibbs"])
@pytest.mark.parametrize("method", GLOBAL)
def test_three_global_and_three_local_steps(method, local_step, X):
    """Online, as in the paper: each combination learns, and tells other topics than all others."""
    lda = small(
        4, annealing=GLOBAL[method], local_step=local_step, learning_method="online",
        batch_size=15, max_iter=12, learning_offset=1.0, doc_topic_prior=0.3, topic_word_prior=0.1,
    )  # fmt: skip
    start = lda.set_params(annealing="none", max_iter=0).fit(X)
    before, score = start.lower_bound_, start.score(X)
    lda.set_params(annealing=GLOBAL[method], max_iter=12).fit(X)
    assert lda.lower_bound_ > before
    assert lda.score(X) > score + 0.3
    assert np.all(lda.components_ > 0)
    assert np.isfinite(lda.components_).all()
    assert lda.n_iter_ == 12
    assert_array_equal(pickle.loads(pickle.dumps(lda)).fit(X).components_, lda.components_)


def test_gradient_and_local_step_matter(X):
    found = [
        small(annealing=GLOBAL[method], local_step=local_step, learning_method="online")
        .set_params(batch_size=15, max_iter=3)
        .fit(X)
        .components_
        for method in GLOBAL
        for local_step in ("mean_field", "cvb0", "gibbs")
    ]
    for i, one in enumerate(found):
        for other in found[:i]:
            assert np.max(np.abs(one - other)) > 1e-3


def test_annealing_is_another_fit_than_none(X):
    none = small(max_iter=5).fit(X).components_
    for form in ("likelihood", "posterior", "local"):
        method = DeterministicAnnealing(form=form, initial_temperature=2.0, n_passes=5)
        lda = small(annealing=method, max_iter=5).fit(X)
        assert lda.temperatures_[0] == 2.0
        assert lda.temperatures_[-1] == 1.0
        assert np.max(np.abs(lda.components_ - none)) > 1e-3
    # At T = 1 from the first pass on there is nothing to anneal.
    method = DeterministicAnnealing(initial_temperature=1.0)
    assert_array_equal(small(annealing=method, max_iter=5).fit(X).components_, none)


def associated_press():
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks.common.data import directory
    except ImportError:
        pytest.skip("the benchmarks are in the repository only")
    finally:
        sys.path.remove(str(ROOT))
    path = directory() / "ap.npz"
    if not path.is_file():
        pytest.skip(f"the AP corpus is not in {directory()}")
    with np.load(path, allow_pickle=False) as archive:
        parts = (archive["data"], archive["indices"], archive["indptr"])
        return csr_matrix(parts, shape=tuple(archive["shape"]))


def test_a_stream_reaches_the_quality_of_a_batch():
    X = associated_press()
    order = np.random.default_rng(0).permutation(X.shape[0])
    train, test = X[order[:2000]], X[order[2000:]]
    batch, stream = [], []
    for seed in (0, 1):
        params = {"n_components": 20, "annealing": "none", "random_state": seed}
        lda = AnnealedLatentDirichletAllocation(**params).fit(train)
        batch.append(lda.score(test))
        lda = AnnealedLatentDirichletAllocation(**params, batch_size=64, total_samples=2000)
        shuffle = np.random.default_rng(seed).permutation
        for _ in range(5):
            lda.partial_fit(train[shuffle(2000)])
        stream.append(lda.score(test))
    assert np.mean(stream) > np.mean(batch) - 0.02, (batch, stream)


# Memory


def test_nothing_of_the_size_of_the_corpus_stays(rng):
    X = draw_corpus(rng, n_documents=2000, n_words=30, length=5)
    for params in (
        {},
        {"annealing": "deterministic"},
        {"annealing": "stochastic"},
        {"annealing": "local_tempering"},
        {"annealing": "svi_plus"},
        {"learning_method": "online"},
    ):
        lda = small(4, max_iter=2, **params)
        if params.get("annealing"):
            lda.set_params(annealing__n_passes=2)
        size = len(pickle.dumps(lda.fit(X)))
        # γ alone would be 64 kB, one number per document 16 kB.
        assert size < 14_000, f"{params}: {size} bytes"


MEASURE = """
import json, sys, threading, warnings
import numpy as np
from scipy.sparse import csr_matrix
from benchmarks.common.memory import Sampler, anonymous_megabytes
from sklearn_anneal import AnnealedLatentDirichletAllocation as LDA

warnings.simplefilter("ignore")
options = json.loads(sys.argv[1])
n, v, k = options["documents"], options["words"], options["topics"]
# Every document has one word of each of 50 parts of the vocabulary.
rng = np.random.default_rng(0)
words = np.arange(0, v, v // 50) + rng.integers(v // 50, size=(n, 50))
counts = rng.integers(1, 4, size=words.size).astype(float)
X = csr_matrix((counts, words.astype(np.int32).ravel(), np.arange(0, 50 * n + 1, 50)), (n, v))
del words, counts
if options["dtype"] == "float32":
    X = X.astype(np.float32)
params = {"annealing": options["annealing"], "max_iter": 2}
params |= {"max_doc_update_iter": 3, "batch_size": 1000}
if options["annealing"] != "none":
    params["annealing"] = LDA(annealing=options["annealing"]).set_params(
        annealing__n_passes=2
    ).annealing
# Kernels and what libraries load when first used are not the fit's.
LDA(2, **params).fit(X[:200, :50])
lda = LDA(k, **params)
before = anonymous_megabytes()
with Sampler() as sampler:
    if options["stream"]:
        for begin in range(0, n, 1000):
            lda.partial_fit(X[begin : begin + 1000])
    else:
        lda.fit(X)
sizes = [X.data.nbytes + X.indices.nbytes + X.indptr.nbytes, 8 * v * k, 8 * n * k]
print(json.dumps([sampler.peak - before, *(size / 1e6 for size in sizes)]))
"""


def growth(**options):
    """Growth of the anonymous memory of a fit once X is there, and the sizes of X, of one (V, K)
    and of one (D, K) float64 array, all in MB.
    """
    if not (ROOT / "benchmarks").exists():
        pytest.skip("the benchmarks are in the repository only")
    status = Path("/proc/self/status")
    if not status.exists() or "RssAnon" not in status.read_text():
        pytest.skip("the system does not tell the anonymous memory of a process")
    defaults = {"documents": 40_000, "words": 10_000, "topics": 40, "stream": False}
    task = json.dumps(defaults | {"annealing": "none", "dtype": "float64"} | options)
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, task], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def assert_small(found, topics, proportions):
    """Besides X, one (V, K) and one (D, K) float64 array and 64 MB."""
    assert found < topics + proportions + 64, (
        f"the fit took {found:.0f} MB besides X; one (V, K) array has {topics:.0f} MB, one (D, K) "
        f"array {proportions:.0f} MB"
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("annealing", ["none", "deterministic", "stochastic", "local_tempering"])
def test_memory_of_a_batch_fit(annealing, dtype):
    found, _, topics, proportions = growth(annealing=annealing, dtype=dtype)
    assert_small(found, topics, proportions)


@pytest.mark.slow
def test_memory_of_a_batch_fit_of_many_topics():
    """λ, its table of exponentials, a sum of statistics and a part of it are alive at once."""
    found, _, topics, proportions = growth(topics=200)
    assert found < 4 * topics + proportions + 64, (found, topics, proportions)


@pytest.mark.slow
def test_a_stream_has_no_array_of_all_documents():
    found, _, topics, proportions = growth(stream=True, documents=150_000, topics=80)
    assert proportions > 90
    assert found < topics + 64, (found, topics)
