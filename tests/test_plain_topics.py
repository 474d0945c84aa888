"""The plain topic model itself, against enumeration.

Kernels are compared with it, and the contract compares fits with bounds and evidences; here is what
no comparison with the package could show.
"""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import plain_topics as plain
import pytest
from enumeration import latent_dirichlet_log_evidence
from scipy.special import gammaln, logsumexp, softmax

ALPHA = np.array([0.2, 0.7, 1.4])
ETA = np.array([0.1, 0.4, 0.4, 0.8, 1.5, 0.3])


@pytest.fixture
def corpus(rng):
    X = rng.poisson(1.2, size=(7, len(ETA))).astype(float)
    X[3] = 0.0
    return X


def random_topics(rng, n_topics=3, n_words=6):
    return rng.gamma(1.0, size=(n_topics, n_words)) + 0.05


def test_the_evidence_is_a_distribution_over_words():
    """Two documents of two and one tokens: the probabilities of all sequences sum to one."""
    alpha, eta = np.array([0.3, 1.1]), np.array([0.2, 0.9, 1.6])
    estimator = SimpleNamespace(n_components=2, doc_topic_prior_=alpha, topic_word_prior_=eta)
    total = 0.0
    for words in product(range(3), repeat=3):
        X = np.zeros((2, 3), dtype=int)
        for d, w in zip((0, 0, 1), words, strict=True):
            X[d, w] += 1
        total += np.exp(latent_dirichlet_log_evidence(estimator, X))
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)


COUNTS = np.array([2, 1, 2])
WEIGHTS = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.5]])
PRIOR = np.array([0.3, 0.8])


def exact_topic_counts(counts, weights, alpha):
    """Posterior expectation of the tokens of each word in each topic, by enumeration."""
    word = np.repeat(np.arange(len(counts)), counts)
    log_p, of_word = [], []
    for z in product(range(len(alpha)), repeat=len(word)):
        table = np.zeros((len(counts), len(alpha)))
        np.add.at(table, (word, list(z)), 1)
        log_p.append(np.sum(table * np.log(weights.T)) + gammaln(alpha + table.sum(axis=0)).sum())
        of_word.append(table)
    return np.einsum("z,zwk->wk", softmax(log_p), np.array(of_word))


def test_cvb0_ends_where_its_updates_agree_token_by_token():
    phi, n = plain.cvb0(COUNTS, WEIGHTS, PRIOR, 500)
    np.testing.assert_allclose(n, COUNTS @ phi)
    word = np.repeat(np.arange(3), COUNTS)
    tokens = np.full((len(word), 2), 0.5)
    for _ in range(500):
        for i, w in enumerate(word):
            others = tokens.sum(axis=0) - tokens[i]
            new = (others + PRIOR) * WEIGHTS[:, w]
            tokens[i] = new / new.sum()
    np.testing.assert_allclose(phi[word], tokens, rtol=1e-8)


def test_the_local_temperatures_are_optimal(corpus, rng):
    """r maximises E_r[x A − Σ n a(x) − N b(x)] + H[r], the rest as the round before left it."""
    log_beta = plain.expected_log(random_topics(rng))
    grid = np.linspace(0.1, 1.0, 10)
    before, found = (
        plain.locally_tempered(corpus[0], log_beta, ALPHA, grid, rounds, 50, 1e-8)
        for rounds in (1, 2)
    )
    a = logsumexp(grid[:, None, None] * log_beta, axis=2)
    a -= np.multiply.outer(grid, logsumexp(log_beta, axis=1))
    b = logsumexp(grid[:, None] * plain.expected_log(before.gamma), axis=1)
    score = grid * before.energy - a @ before.n - corpus[0].sum() * b

    def objective(r):
        return r @ score - np.sum(r * np.log(r))

    assert objective(found.r) == pytest.approx(logsumexp(score))
    for other in rng.dirichlet(np.ones(10), size=20):
        assert objective(0.9 * found.r + 0.1 * other) < objective(found.r)
    np.testing.assert_allclose(found.inverse_temperature, found.r @ grid)


def exact_log_partition(x, lengths, alpha, eta, n_topics, n_words):
    """log Σ_{w,z} ∫ p(θ) p(β) p(w, z | θ, β)^x: the integrals are ratios of gamma functions."""
    document = np.repeat(np.arange(len(lengths)), lengths)

    def ratios(counts, prior):
        size = counts.shape[1]
        rows = gammaln(size * prior) - gammaln(size * prior + counts.sum(axis=1))
        return rows.sum() + np.sum(gammaln(prior + counts) - gammaln(prior))

    terms = []
    for z in product(range(n_topics), repeat=len(document)):
        of_document = np.zeros((len(lengths), n_topics))
        np.add.at(of_document, (document, list(z)), x)
        for w in product(range(n_words), repeat=len(document)):
            of_topic = np.zeros((n_topics, n_words))
            np.add.at(of_topic, (list(z), list(w)), x)
            terms.append(ratios(of_document, alpha) + ratios(of_topic, eta))
    return logsumexp(terms)


@pytest.mark.parametrize(("alpha", "eta"), [(0.3, 0.5), (2.0, 1.5)])
def test_the_log_partition_is_bounded_and_exact_without_data(alpha, eta):
    lengths = [2, 1]
    sizes = (alpha, eta, 2, 3)
    exact = [exact_log_partition(x, lengths, *sizes) for x in (0.0, 0.3, 0.7, 1.0)]
    bound = [plain.global_log_partition(x, 2, lengths, *sizes) for x in (0.0, 0.3, 0.7, 1.0)]
    np.testing.assert_allclose([exact[0], bound[0]], 3 * np.log(6))
    assert abs(exact[-1]) < 1e-10
    assert np.all(np.array(bound[1:]) < exact[1:])
