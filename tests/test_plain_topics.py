"""The plain topic model itself, against enumeration, integrals and scikit-learn."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import plain_topics as plain
import pytest
from enumeration import latent_dirichlet_log_evidence
from scipy.sparse import csr_array
from scipy.special import gammaln, logsumexp, softmax
from sklearn.decomposition import LatentDirichletAllocation

# x, s, y of the three tempered forms at T = 2, of none, and of one that is no form's.
FORMS = {
    "none": (1.0, 1.0, 1.0),
    "likelihood": (0.5, 0.5, 1.0),
    "posterior": (0.5, 0.5, 0.5),
    "local": (0.5, 1.0, 1.0),
    "all_different": (0.6, 0.8, 0.3),
}
ALPHA = np.array([0.2, 0.7, 1.4])
ETA = np.array([0.1, 0.4, 0.4, 0.8, 1.5, 0.3])


@pytest.fixture
def corpus(rng):
    X = rng.poisson(1.2, size=(7, len(ETA))).astype(float)
    X[3] = 0.0
    return X


def random_topics(rng, n_topics=3, n_words=6):
    return rng.gamma(1.0, size=(n_topics, n_words)) + 0.05


def prior_terms(gamma, prior, y):
    return y * plain.expected_log_density(prior, gamma) + plain.dirichlet_entropy(gamma)


def tempered_objective(X, gammas, lam, x, s, y):
    """What the module's docstring says that the updates ascend, phi optimal; global factors too."""
    log_beta = plain.expected_log(lam)
    total = 0.0
    for counts, gamma in zip(X, gammas, strict=True):
        _, document = plain.mean_field(counts, log_beta, ALPHA, gamma, 0, 0.0, x, s, y)
        of_words = plain.assignment_entropy(counts[counts > 0], document.phi)
        total += x * document.energy + of_words + x / s * prior_terms(gamma, ALPHA, y)
    return total + x / s * sum(prior_terms(row, ETA, y) for row in lam)


# Mean-field steps


@pytest.mark.parametrize("form", FORMS)
def test_each_form_ascends_its_own_objective(form, corpus, rng):
    x, s, y = FORMS[form]
    lam = random_topics(rng)
    gammas = rng.gamma(1.0, size=(len(corpus), 3)) + 0.1
    values = [tempered_objective(corpus, gammas, lam, x, s, y)]
    for _ in range(15):
        # q(θ) moves at fixed β, then q(β) at the phi of the new q(θ).
        log_beta = plain.expected_log(lam)
        step = plain.corpus_step(corpus, log_beta, ALPHA, gammas, 1, 0.0, x, s, y)
        gammas = step.gammas
        values.append(tempered_objective(corpus, gammas, lam, x, s, y))
        lam = plain.tempered_prior(ETA, y) + step.statistics
        values.append(tempered_objective(corpus, gammas, lam, x, s, y))
    assert np.all(np.diff(values) >= -1e-10)
    assert values[-1] > values[0] + 0.1


@pytest.mark.parametrize("form", FORMS)
def test_a_converged_document_is_stationary(form, corpus, rng):
    x, s, y = FORMS[form]
    lam = random_topics(rng)
    gamma, _ = plain.mean_field(
        corpus[0], plain.expected_log(lam), ALPHA, np.ones(3), 5000, 1e-13, x, s, y
    )

    def objective(value):
        return tempered_objective(corpus[:1], [value], lam, x, s, y)

    for direction in np.eye(3):
        h = 1e-5 * direction
        slope = (objective(gamma + h) - objective(gamma - h)) / 2e-5
        elsewhere = (objective(1.3 * gamma + h) - objective(1.3 * gamma - h)) / 2e-5
        assert abs(slope) < 1e-6 < abs(elsewhere)


@pytest.mark.parametrize("form", ["likelihood", "posterior"])
def test_equal_temperatures_ascend_the_tempered_bound(form, corpus, rng):
    """x A + y E log p(θ) + H[q(z)] + H[q(θ)], from the sums that `corpus_step` returns."""
    x, s, y = FORMS[form]
    log_beta = plain.expected_log(random_topics(rng))
    weights = rng.uniform(0.5, 2.0, size=len(corpus))
    gammas, values = np.ones((len(corpus), 3)), []
    for _ in range(20):
        step = plain.corpus_step(corpus, log_beta, ALPHA, gammas, 1, 0.0, x, s, y, weights)
        gammas = step.gammas
        values.append(x * step.energy + y * step.log_prior + step.entropy)
    assert np.all(np.diff(values) >= -1e-10)
    assert values[-1] > values[0]


def test_the_local_form_has_another_objective_than_the_likelihood_form(corpus, rng):
    """Where x A + log prior + entropies is at its maximum, the local form's step lowers it."""
    log_beta = plain.expected_log(random_topics(rng))
    x, s, y = FORMS["likelihood"]
    best = plain.corpus_step(corpus, log_beta, ALPHA, np.ones((7, 3)), 2000, 1e-12, x, s, y)
    step = plain.corpus_step(corpus, log_beta, ALPHA, best.gammas, 1, 0.0, *FORMS["local"])
    at_best, after = (x * sums.energy + sums.log_prior + sums.entropy for sums in (best, step))
    assert after < at_best - 0.1


def test_responsibilities_and_counts_add_up(corpus, rng):
    log_beta = plain.expected_log(random_topics(rng))
    step = plain.corpus_step(corpus, log_beta, ALPHA, np.ones((7, 3)), 5, 0.0, s=0.5)
    np.testing.assert_allclose(step.statistics.sum(axis=0), 0.5 * corpus.sum(axis=0))
    for counts in corpus:
        gamma, document = plain.mean_field(counts, log_beta, ALPHA, np.ones(3), 5, 0.0)
        assert document.phi.shape == (np.count_nonzero(counts), 3)
        np.testing.assert_allclose(document.phi.sum(axis=1), 1.0)
        np.testing.assert_allclose(document.n.sum(), counts.sum())
        np.testing.assert_allclose(gamma.sum(), ALPHA.sum() + counts.sum())


def test_the_sums_are_weighted_and_the_documents_are_not(corpus, rng):
    log_beta = plain.expected_log(random_topics(rng))
    settings = (log_beta, ALPHA, np.ones((7, 3)), 5, 0.0, 0.7, 0.6, 0.5)
    weights = np.array([1.0, 0.0, 2.0, 1.0, 3.0, 1.0, 1.0])
    repeated = np.repeat(np.arange(7), weights.astype(int))
    weighted = plain.corpus_step(corpus, *settings, weights)
    plainly = plain.corpus_step(corpus, *settings)
    copies = plain.corpus_step(
        corpus[repeated], log_beta, ALPHA, np.ones((len(repeated), 3)), *settings[3:]
    )
    np.testing.assert_array_equal(weighted.gammas, plainly.gammas)
    np.testing.assert_allclose(weighted.statistics, copies.statistics)
    np.testing.assert_allclose(weighted[1:4], copies[1:4])


@pytest.mark.parametrize("y", [1.0, 0.4])
def test_an_empty_document_gets_the_tempered_prior(y, rng):
    log_beta = plain.expected_log(random_topics(rng))
    gamma, document = plain.mean_field(
        np.zeros(6), log_beta, ALPHA, np.ones(3), 9, 0.0, 0.4, 0.4, y
    )
    np.testing.assert_array_equal(gamma, ALPHA if y == 1.0 else 1.0 + y * (ALPHA - 1.0))
    assert document.energy == 0.0
    assert document.phi.shape == (0, 3)


def test_the_tolerance_ends_the_iterations(corpus, rng):
    log_beta = plain.expected_log(random_topics(rng))

    def after(n_iter, tol):
        return plain.mean_field(corpus[0], log_beta, ALPHA, np.ones(3), n_iter, tol)[0]

    np.testing.assert_array_equal(after(0, 0.0), np.ones(3))
    path = [after(n, 0.0) for n in range(40)]
    changes = np.mean(np.abs(np.diff(path, axis=0)), axis=1)
    first = int(np.argmax(changes < 1e-3))
    assert 0 < first < 38
    np.testing.assert_array_equal(after(100, 1e-3), path[first + 1])


# The complete bound


def fit(X, alpha, eta, lam, n_passes):
    """Batch passes with one inner iteration and gamma kept; the bound after each."""
    gammas, bounds = np.ones((len(X), len(lam))), []
    for _ in range(n_passes):
        step = plain.corpus_step(X, plain.expected_log(lam), alpha, gammas, 1, 0.0)
        gammas, lam = step.gammas, eta + step.statistics
        bounds.append(plain.lower_bound(X, gammas, lam, alpha, eta))
    return gammas, lam, np.array(bounds)


def test_the_bound_never_falls(corpus, rng):
    _, _, bounds = fit(corpus, ALPHA, ETA, random_topics(rng), 40)
    assert np.all(np.diff(bounds) >= -1e-10)
    assert bounds[-1] > bounds[0] + 0.1


def test_the_bound_is_the_sum_of_its_parts(corpus, rng):
    lam = random_topics(rng)
    gammas = rng.gamma(1.0, size=(7, 3)) + 0.1
    step = plain.corpus_step(corpus, plain.expected_log(lam), ALPHA, gammas, 0, 0.0)
    expected = step.energy + step.log_prior + step.entropy
    expected += sum(prior_terms(row, ETA, 1.0) for row in lam)
    np.testing.assert_allclose(plain.lower_bound(corpus, gammas, lam, ALPHA, ETA), expected)


def test_the_bound_is_that_of_scikit_learn(corpus, rng):
    peer = LatentDirichletAllocation(3, doc_topic_prior=0.3, topic_word_prior=0.2, max_iter=3)
    peer.set_params(random_state=0).fit(corpus)
    gammas = rng.gamma(1.0, size=(7, 3)) + 0.1
    expected = peer._approx_bound(corpus, gammas, sub_sampling=False)
    bound = plain.lower_bound(corpus, gammas, peer.components_, 0.3, 0.2)
    # Its digamma function is a short series, wrong by about 1e-9.
    np.testing.assert_allclose(bound, expected, rtol=1e-9)


TINY = np.array([[2, 0, 1], [0, 3, 1], [1, 1, 0]])


def tiny(n_topics, alpha=0.4, eta=0.6):
    return SimpleNamespace(n_components=n_topics, doc_topic_prior_=alpha, topic_word_prior_=eta)


def test_the_bound_is_below_the_evidence(rng):
    evidence = latent_dirichlet_log_evidence(tiny(2), TINY)
    best = -np.inf
    for _ in range(5):
        _, _, bounds = fit(TINY, np.full(2, 0.4), 0.6, rng.gamma(1.0, size=(2, 3)) + 0.1, 60)
        best = max(best, bounds[-1])
    assert evidence - 10.0 < best < evidence


@pytest.mark.parametrize("eta", [0.6, np.array([0.1, 0.7, 2.0])])
def test_one_topic_is_exact(eta):
    _, _, bounds = fit(TINY, np.array([0.4]), eta, np.ones((1, 3)), 2)
    evidence = latent_dirichlet_log_evidence(tiny(1, eta=eta), TINY)
    np.testing.assert_allclose(bounds[-1], evidence, rtol=1e-12)


def test_the_evidence_is_a_distribution_over_words():
    """Two documents of two and one tokens: the probabilities of all sequences sum to one."""
    alpha, eta = np.array([0.3, 1.1]), np.array([0.2, 0.9, 1.6])
    total = 0.0
    for words in product(range(3), repeat=3):
        X = np.zeros((2, 3), dtype=int)
        for d, w in zip((0, 0, 1), words, strict=True):
            X[d, w] += 1
        total += np.exp(latent_dirichlet_log_evidence(tiny(2, alpha, eta), X))
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)


def test_the_evidence_agrees_with_sampling_from_the_prior(rng):
    """Which enumeration could get wrong alone: θ is per document, β is shared."""
    alpha, eta = np.array([0.5, 1.1]), np.array([0.6, 0.9, 1.6])
    n = 200_000
    beta = rng.dirichlet(eta, size=(n, 2))
    likelihood = np.ones(n)
    for counts in TINY[[0, 2]]:
        words = np.einsum("nk,nkv->nv", rng.dirichlet(alpha, size=n), beta)
        likelihood *= np.prod(words**counts, axis=1)
    expected = np.exp(latent_dirichlet_log_evidence(tiny(2, alpha, eta), TINY[[0, 2]]))
    assert abs(likelihood.mean() - expected) < 4.0 * likelihood.std() / np.sqrt(n)


def test_the_evidence_takes_sparse_counts_and_refuses_fractions():
    expected = latent_dirichlet_log_evidence(tiny(2), TINY)
    assert latent_dirichlet_log_evidence(tiny(2), csr_array(TINY)) == expected
    with pytest.raises(ValueError, match="integers"):
        latent_dirichlet_log_evidence(tiny(2), TINY / 2)


# Collapsed local steps

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


def test_gibbs_samples_the_posterior(rng):
    runs = np.array([plain.gibbs(COUNTS, WEIGHTS, PRIOR, 10, 40, rng) for _ in range(60)])
    error = runs.std(axis=0, ddof=1) / np.sqrt(len(runs))
    expected = exact_topic_counts(COUNTS, WEIGHTS, PRIOR)
    assert np.all(error < 0.1)
    assert np.all(np.abs(runs.mean(axis=0) - expected) < 4.5 * error)
    np.testing.assert_allclose(runs.sum(axis=2), np.tile(COUNTS, (60, 1)))


def test_gibbs_repeats_itself_and_needs_whole_tokens():
    one, two = (
        plain.gibbs(COUNTS, WEIGHTS, PRIOR, 2, 5, np.random.default_rng(3)) for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)
    with pytest.raises(ValueError, match="integers"):
        plain.gibbs(COUNTS / 2, WEIGHTS, PRIOR, 2, 5, np.random.default_rng(3))


def test_cvb0_is_exact_for_one_token():
    phi, n = plain.cvb0(np.array([1]), WEIGHTS[:, :1], PRIOR, 1)
    np.testing.assert_allclose(phi, exact_topic_counts(np.array([1]), WEIGHTS[:, :1], PRIOR))
    np.testing.assert_allclose(n, phi[0])


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


def test_cvb0_works_in_place():
    """One sweep by hand: the second word sees what the first has just become."""
    phi = WEIGHTS.T / WEIGHTS.sum(axis=0)[:, None]
    start = phi.copy()
    for w in range(3):
        others = sum(COUNTS[v] * phi[v] for v in range(3)) - phi[w]
        phi[w] = (others + PRIOR) * WEIGHTS[:, w]
        phi[w] /= phi[w].sum()
    np.testing.assert_allclose(plain.cvb0(COUNTS, WEIGHTS, PRIOR, 1)[0], phi)
    np.testing.assert_allclose(plain.cvb0(COUNTS, WEIGHTS, PRIOR, 1, start)[0], phi)
    np.testing.assert_allclose(start, WEIGHTS.T / WEIGHTS.sum(axis=0)[:, None])


def test_cvb0_keeps_fractional_counts_valid():
    phi, n = plain.cvb0(np.array([0.2, 0.1, 0.3]), WEIGHTS, np.full(2, 0.01), 50)
    assert np.all(phi >= 0.0)
    np.testing.assert_allclose(n.sum(), 0.6)


# Tempering


def test_at_temperature_one_the_local_step_is_plain(corpus, rng):
    """Also where Σ_v exp(log_beta_kv) < 1, as it is for E log β, by different amounts per topic."""
    draw = np.log(rng.dirichlet(ETA + 1.0, size=3))
    start = ALPHA + corpus[0].sum() / 3
    gammas = []
    for log_beta in (draw, draw + np.array([[0.0], [-2.0], [-0.5]])):
        gamma, document = plain.mean_field(corpus[0], log_beta, ALPHA, start, 300, 1e-12)
        result = plain.locally_tempered(corpus[0], log_beta, ALPHA, [1.0], 2, 300, 1e-12)
        assert result.inverse_temperature == 1.0
        np.testing.assert_allclose(result.gamma, gamma, rtol=1e-9)
        np.testing.assert_allclose(result.phi, document.phi, rtol=1e-9)
        gammas.append(gamma)
    assert np.max(np.abs(gammas[1] - gammas[0])) > 0.1


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


def test_all_that_is_returned_belongs_to_the_same_temperatures(corpus, rng):
    log_beta = plain.expected_log(random_topics(rng))
    grid = np.linspace(0.1, 1.0, 10)
    found = [
        plain.locally_tempered(corpus[0], log_beta, ALPHA, grid, rounds, 500, 1e-13)
        for rounds in (0, 1, 2)
    ]
    for result in found:
        x = result.r @ grid
        np.testing.assert_allclose(result.inverse_temperature, x)
        np.testing.assert_allclose(result.gamma, ALPHA + x * result.n, rtol=1e-8)
    assert found[0].inverse_temperature == pytest.approx(grid.mean())
    assert len({round(result.inverse_temperature, 4) for result in found}) == 3


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


def test_the_log_partition_s_slope_is_that_of_its_energy():
    """∂/∂x at fixed q is the whole derivative: g and h are stationary."""
    lengths, alpha, eta, k, v, x = np.array([5.0, 9.0]), 0.2, 0.3, 3, 7, 0.6
    slope = np.diff(
        [plain.global_log_partition(x + d, 2, lengths, alpha, eta, k, v) for d in (-1e-5, 1e-5)]
    )
    energy = sum(n * plain.expected_log(np.full(k, alpha + n * x / k))[0] for n in lengths)
    energy += 14.0 * plain.expected_log(np.full(v, eta + 14.0 * x / (k * v)))[0]
    np.testing.assert_allclose(slope / 2e-5, energy, rtol=1e-7)
