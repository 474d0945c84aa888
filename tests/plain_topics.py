"""A second latent Dirichlet allocation: plain loops, float64, logarithms throughout.

Tests compare the compiled kernels with it. It uses nothing of the package. The symbols are: θ_d ~
Dir(alpha), the topics of a document; β_k ~ Dir(eta), the words of a topic; q(θ_d) = Dir(gamma);
q(β_k) = Dir(lam); phi_wk, the probability that a token of word w belongs to topic k; and c_w, the
count of the word. `log_beta` (K, V) is E log β or the logarithm of a draw of β. Everything is in
nats.

With x, s and y the inverse temperatures of phi, of the statistics and of the prior, one document's
updates are coordinate ascent on

    x A + H[q(z)] + (x / s) (y E log p(θ | alpha) + H[q(θ)]),

with A = Σ c phi (E log θ + log_beta). phi maximises the first two terms, and gamma maximises s A
plus the bracket. (x, s, y) is (x, x, 1) in the likelihood form, (x, x, x) in the posterior form,
and (x, 1, 1) in the local form.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp, psi, softmax, xlogy

FLAT = 1.0  # the Dirichlet parameter of the flat density, where tempering a density leads to


class Document(NamedTuple):
    """The result of the local step of one document, which has V_d distinct words."""

    phi: np.ndarray  # (V_d, K), the words in ascending order
    n: np.ndarray  # (K,), Σ_w c_w phi_wk
    energy: float  # A = Σ c phi (E log θ + log_beta)
    log_prior: float  # E log p(θ | alpha), with its normaliser, untempered
    entropy: float  # H[q(z)] + H[q(θ)]


class Corpus(NamedTuple):
    """Weighted sums over documents, and the new parameters of each document."""

    statistics: np.ndarray  # (K, V), s Σ_d w_d c_dv phi_dvk
    energy: float
    log_prior: float
    entropy: float
    gammas: np.ndarray  # (D, K)


class TemperedDocument(NamedTuple):
    """One document and its own temperature; all numbers belong to the same r."""

    inverse_temperature: float  # x̄ = Σ r_m x_m
    r: np.ndarray  # (M,)
    gamma: np.ndarray  # (K,)
    phi: np.ndarray  # (V_d, K)
    n: np.ndarray  # (K,)
    energy: float


def expected_log(parameter):
    """E log of Dirichlet rows, shape of `parameter` (..., K)."""
    parameter = np.asarray(parameter, dtype=float)
    return psi(parameter) - psi(parameter.sum(axis=-1, keepdims=True))


def log_normaliser(parameter):
    """Σ ln Γ(a) − ln Γ(Σ a) of one Dirichlet, `parameter` of shape (K,)."""
    return float(np.sum(gammaln(parameter)) - gammaln(np.sum(parameter)))


def expected_log_density(prior, parameter):
    """E_q log Dir(· | prior) under q = Dir(parameter), both of shape (K,)."""
    return float(np.sum((prior - 1.0) * expected_log(parameter)) - log_normaliser(prior))


def dirichlet_entropy(parameter):
    """Differential entropy of Dir(parameter), shape (K,)."""
    return -expected_log_density(np.asarray(parameter, dtype=float), parameter)


def assignment_entropy(counts, phi):
    """H[q(z)] = −Σ_w c_w Σ_k phi_wk log phi_wk; counts (V_d,), phi (V_d, K)."""
    return -float(np.sum(np.asarray(counts)[:, None] * xlogy(phi, phi)))


def tempered_prior(prior, y):
    """The prior's parameter at inverse temperature y: b + y (prior − b)."""
    # In floating point, b + (prior − b) need not be `prior` to the last bit.
    return prior if y == 1.0 else FLAT + y * (prior - FLAT)


def responsibilities(words, log_beta, gamma, x=1.0):
    """phi_wk ∝ exp(x (E log θ_k + log_beta_kw)) of the given words, shape (V_d, K)."""
    log_theta = expected_log(gamma)
    phi = np.empty((len(words), len(gamma)))
    for i, w in enumerate(words):
        phi[i] = softmax(x * (log_theta + log_beta[:, w]))
    return phi


def topic_counts(counts, phi):
    """n_k = Σ_w c_w phi_wk, shape (K,)."""
    n = np.zeros(phi.shape[1])
    for c, row in zip(counts, phi, strict=True):
        n += c * row
    return n


def document_energy(counts, words, phi, log_beta, gamma):
    """A = Σ_w c_w Σ_k phi_wk (E log θ_k + log_beta_kw); counts (V_d,) of the `words`."""
    log_theta = expected_log(gamma)
    energy = 0.0
    for c, w, row in zip(counts, words, phi, strict=True):
        energy += c * float(row @ (log_theta + log_beta[:, w]))
    return energy


def mean_field(counts, log_beta, alpha, gamma, n_iter, tol, x=1.0, s=1.0, y=1.0):
    """The local step of one document, from a given start.

    One iteration computes phi from gamma, then gamma = b + y (alpha − b) + s n. The loop stops
    after `n_iter` iterations (if this is 0, gamma is returned as given) or as soon as the mean
    |change of gamma| is below tol.

    Parameters
    ----------
    counts : array of shape (V,)
    log_beta : array of shape (K, V)
    alpha, gamma : arrays of shape (K,)
    n_iter : int
    tol : float
    x, s, y : float
        Inverse temperatures of phi, of the statistics and of the prior.

    Returns
    -------
    gamma : array of shape (K,)
    document : Document
        The summary for this gamma. phi is computed once more, at inverse temperature x, while the
        energy and the prior are not tempered.
    """
    counts = np.asarray(counts, dtype=float)
    alpha = np.asarray(alpha, dtype=float)
    gamma = np.array(gamma, dtype=float)
    words = np.flatnonzero(counts)
    present = counts[words]
    for _ in range(n_iter):
        before = gamma
        n = topic_counts(present, responsibilities(words, log_beta, before, x))
        gamma = tempered_prior(alpha, y) + s * n
        if np.mean(np.abs(gamma - before)) < tol:
            break
    phi = responsibilities(words, log_beta, gamma, x)
    return gamma, Document(
        phi=phi,
        n=topic_counts(present, phi),
        energy=document_energy(present, words, phi, log_beta, gamma),
        log_prior=expected_log_density(alpha, gamma),
        entropy=assignment_entropy(present, phi) + dirichlet_entropy(gamma),
    )


def corpus_step(X, log_beta, alpha, gammas, n_iter, tol, x=1.0, s=1.0, y=1.0, weights=None):
    """The local step of every document, and sums over documents with the given weights.

    Parameters
    ----------
    X : array of shape (D, V)
    log_beta : array of shape (K, V)
    alpha : array of shape (K,)
    gammas : array of shape (D, K)
        Where each document starts.
    n_iter, tol, x, s, y
        As in `mean_field`.
    weights : array of shape (D,), default=None
        Weights of the documents in the four sums, not in their own gamma; None: all are 1.

    Returns
    -------
    Corpus
    """
    X = np.asarray(X, dtype=float)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    statistics = np.zeros(np.shape(log_beta))
    energy = log_prior = entropy = 0.0
    new = np.empty((len(X), len(log_beta)))
    for d, counts in enumerate(X):
        new[d], document = mean_field(counts, log_beta, alpha, gammas[d], n_iter, tol, x, s, y)
        for i, w in enumerate(np.flatnonzero(counts)):
            statistics[:, w] += s * weights[d] * counts[w] * document.phi[i]
        energy += weights[d] * document.energy
        log_prior += weights[d] * document.log_prior
        entropy += weights[d] * document.entropy
    return Corpus(statistics, energy, log_prior, entropy, new)


def lower_bound(X, gammas, lam, alpha, eta):
    """The complete bound on log p(words in order) at temperature 1, phi optimal.

    Σ_d [Σ_w c log Σ_k exp(E log θ_k + E log β_kw) − KL(q(θ_d))] − Σ_k KL(q(β_k)).

    Parameters
    ----------
    X : array of shape (D, V)
    gammas : array of shape (D, K)
    lam : array of shape (K, V)
    alpha : float or array of shape (K,)
    eta : float or array of shape (V,)

    Returns
    -------
    float
    """
    n_topics, n_words = np.shape(lam)
    alpha = np.broadcast_to(np.asarray(alpha, dtype=float), (n_topics,))
    eta = np.broadcast_to(np.asarray(eta, dtype=float), (n_words,))
    log_beta = expected_log(lam)
    bound = 0.0
    for counts, gamma in zip(np.asarray(X, dtype=float), gammas, strict=True):
        log_theta = expected_log(gamma)
        for w in np.flatnonzero(counts):
            bound += counts[w] * logsumexp(log_theta + log_beta[:, w])
        bound += expected_log_density(alpha, gamma) + dirichlet_entropy(gamma)
    for row in lam:
        bound += expected_log_density(eta, row) + dirichlet_entropy(row)
    return float(bound)


def cvb0(counts, beta_weights, alpha, n_sweeps):
    """Zeroth-order collapsed updates of one document, in place, word by word.

    All tokens of a word share one phi_w. For one of them, the other tokens have the counts
    n − phi_w, so that phi_wk ∝ (n_k − phi_wk + alpha_k) B_wk. Before the next word, n changes by
    c_w times the change of phi_w. If the count of a word is below 1, only that fraction of phi_w
    is subtracted, because n − phi_w could be negative.

    Parameters
    ----------
    counts : array of shape (V_d,)
    beta_weights : array of shape (K, V_d)
        exp(log_beta) of the words of the document.
    alpha : array of shape (K,)
    n_sweeps : int

    Returns
    -------
    phi : array of shape (V_d, K)
    n : array of shape (K,)
    """
    # The start is B_w, normalised.
    phi = np.array(beta_weights, dtype=float).T
    phi /= phi.sum(axis=1, keepdims=True)
    n = topic_counts(counts, phi)
    for _ in range(n_sweeps):
        for w, c in enumerate(counts):
            others = n - min(c, 1.0) * phi[w]
            new = (others + alpha) * beta_weights[:, w]
            new = new / new.sum()
            n += c * (new - phi[w])
            phi[w] = new
    return phi, n


def locally_tempered(counts, log_beta, alpha, x_grid, n_rounds, n_iter, tol):
    """Local variational tempering of one document, with a posterior r over the grid of 1/T.

    At the start, r is uniform and gamma = alpha + N / K. One round is:

    1. inner iterations at the current r, from the current gamma: phi_wk ∝ exp{x̄ (E log θ_k +
       log_beta_kw) − Σ_m r_m a_k(x_m)}, gamma = alpha + x̄ n, until mean |change of gamma| < tol
       or `n_iter` are done; then phi and n once more from the final gamma;
    2. A and b(x) = log Σ_k exp(x E log θ_k) from the final gamma;
    3. r_m ∝ exp{x_m A − Σ_k n_k a_k(x_m) − N b(x_m)}, with the n of 1.

    Step 1 is done once more after the last round, so that everything that is returned belongs to
    the same r: the statistics x̄ c phi and the entropy of phi are those of the returned x̄, and
    gamma = alpha + x̄ n.

    a_k(x) = log Σ_v exp(x log_beta_kv) − x log Σ_v exp(log_beta_kv) is over the whole vocabulary.
    The second term is 0 for the logarithm of a draw. The exponentials of E log β sum to less than
    1; the second term then makes a_k(1) = 0, the normaliser of an untempered topic. Without it a
    document at T = 1 would not get the step of `mean_field`, but that of renormalised topics.

    Parameters
    ----------
    counts : array of shape (V,)
    log_beta : array of shape (K, V)
    alpha : array of shape (K,)
    x_grid : array of shape (M,)
        Inverse temperatures.
    n_rounds : int
        Number of rounds; with 0, only step 1 is done, at the uniform r.
    n_iter : int
    tol : float

    Returns
    -------
    TemperedDocument
    """
    counts = np.asarray(counts, dtype=float)
    x_grid = np.asarray(x_grid, dtype=float)
    n_topics = len(log_beta)
    words = np.flatnonzero(counts)
    present = counts[words]
    length = present.sum()

    a = np.empty((n_topics, len(x_grid)))
    for k in range(n_topics):
        for m, x in enumerate(x_grid):
            a[k, m] = logsumexp(x * log_beta[k]) - x * logsumexp(log_beta[k])

    def step(gamma, r):
        x_bar = float(r @ x_grid)
        log_theta = expected_log(gamma)
        phi = np.empty((len(words), n_topics))
        for i, w in enumerate(words):
            phi[i] = softmax(x_bar * (log_theta + log_beta[:, w]) - a @ r)
        return phi, x_bar

    def converge(gamma, r):
        for _ in range(n_iter):
            before = gamma
            phi, x_bar = step(before, r)
            gamma = alpha + x_bar * topic_counts(present, phi)
            if np.mean(np.abs(gamma - before)) < tol:
                break
        phi, _ = step(gamma, r)
        return gamma, phi, topic_counts(present, phi)

    r = np.full(len(x_grid), 1.0 / len(x_grid))
    gamma, phi, n = converge(np.asarray(alpha, dtype=float) + length / n_topics, r)
    for _ in range(n_rounds):
        energy = document_energy(present, words, phi, log_beta, gamma)
        log_theta = expected_log(gamma)
        score = np.empty(len(x_grid))
        for m, x in enumerate(x_grid):
            score[m] = x * energy - n @ a[:, m] - length * logsumexp(x * log_theta)
        r = softmax(score)
        gamma, phi, n = converge(gamma, r)
    energy = document_energy(present, words, phi, log_beta, gamma)
    return TemperedDocument(float(r @ x_grid), r, gamma, phi, n, energy)


def global_log_partition(x, n_documents, lengths, alpha, eta, n_topics, n_words):
    """The symmetric mean-field lower bound of log C(x), C(x) = Σ_{w,z} ∫ p(θ) p(β) p(w,z|θ,β)^x.

    In q, the topics and words of all tokens are uniform, θ_d ~ Dir(g_d) and β_k ~ Dir(h). The
    optimal parameters are then g_d = alpha + x N_d / K and h = eta + x tok / (K V), where tok is
    the number of tokens. The bound is exact at x = 0, where it is tok log(K V). At x = 1 the exact
    value is 0, and the bound is at most 0.

    Parameters
    ----------
    x : float
    n_documents : int
    lengths : float or array of shape (n_documents,)
    alpha, eta : float
        Symmetric priors.
    n_topics, n_words : int
        K and V.

    Returns
    -------
    float
    """
    lengths = np.broadcast_to(np.asarray(lengths, dtype=float), (n_documents,))
    tokens = lengths.sum()
    bound = tokens * np.log(n_topics * n_words)
    for length in lengths:
        g = alpha + x * length / n_topics
        log_theta = psi(g) - psi(n_topics * g)
        bound += x * length * log_theta + n_topics * (alpha - g) * log_theta
        bound += n_topics * gammaln(g) - gammaln(n_topics * g)
        bound -= n_topics * gammaln(alpha) - gammaln(n_topics * alpha)
    h = eta + x * tokens / (n_topics * n_words)
    log_word = psi(h) - psi(n_words * h)
    bound += x * tokens * log_word
    for _ in range(n_topics):
        bound += n_words * (eta - h) * log_word
        bound += n_words * gammaln(h) - gammaln(n_words * h)
        bound -= n_words * gammaln(eta) - gammaln(n_words * eta)
    return float(bound)
