"""A second hidden Markov model: plain numpy, logarithms, and all paths if there are few.

Tests compare the compiled model with it. It uses nothing of the package, except fitted priors in
`hidden_markov_log_evidence`. There are K states, D features, V symbols, and sequences of n frames;
everything is in nats. Rows of NaN (in a categorical sequence: −1 or NaN) are missing frames.

At inverse temperature x, q(z) ∝ exp(x E(z)) with the energy of a path
E(z) = log_start[z_1] + Σ log_transition[z_t, z_t+1] + Σ log_emission[t, z_t].
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
from enumeration import negative_binomial_marginal, zero_inflated_marginal
from scipy.special import betaln, gammaln, logsumexp, multigammaln, psi, softmax

LOG_2PI = np.log(2 * np.pi)
NEVER = -1e100  # the logarithm of 0, but 0 times it is 0


class Paths(NamedTuple):
    """The summary of q(z) of one sequence."""

    log_norm: float  # log Σ_z exp(x E(z))
    posteriors: np.ndarray  # (n, K), q(z_t = k)
    transitions: np.ndarray  # (K, K), Σ_t q(z_t = i, z_t+1 = j)
    energy: float  # E_q E(z), without x
    entropy: float  # H[q(z)]


def forward_backward(log_start, log_transition, log_emission, x=1.0):
    """q(z) at inverse temperature x by the recursion over logarithms of normalised messages."""
    start, transition = x * log_start, x * log_transition
    emission = x * np.asarray(log_emission)
    n, k = emission.shape
    forward, backward = np.empty((n, k)), np.zeros((n, k))
    log_norm = 0.0
    for t in range(n):
        before = start if t == 0 else logsumexp(forward[t - 1][:, None] + transition, axis=0)
        message = before + emission[t]
        forward[t] = message - logsumexp(message)
        log_norm += float(logsumexp(message))
    for t in range(n - 1, 0, -1):
        message = logsumexp(transition + emission[t] + backward[t], axis=1)
        backward[t - 1] = message - logsumexp(message)
    posteriors = forward + backward
    posteriors = np.exp(posteriors - logsumexp(posteriors, axis=1, keepdims=True))
    transitions = np.zeros((k, k))
    for t in range(1, n):
        pairs = forward[t - 1][:, None] + transition + emission[t] + backward[t]
        transitions += np.exp(pairs - logsumexp(pairs))
    energy = float(
        posteriors[0] @ log_start
        + np.sum(transitions * log_transition)
        + np.sum(posteriors * log_emission)
    )
    return Paths(log_norm, posteriors, transitions, energy, log_norm - x * energy)


def all_paths(n, k):
    """All state sequences of n frames, of shape (k ** n, n)."""
    return np.array(list(product(range(k), repeat=n)))


def path_energies(paths, log_start, log_transition, log_emission):
    """E(z) of each path, from its definition."""
    energies = np.empty(len(paths))
    for i, z in enumerate(paths):
        energy = log_start[z[0]]
        for before, after in zip(z[:-1], z[1:], strict=True):
            energy += log_transition[before, after]
        for t, state in enumerate(z):
            energy += log_emission[t][state]
        energies[i] = energy
    return energies


def enumerated(log_start, log_transition, log_emission, x=1.0):
    """The same result as that of `forward_backward`, from all K^n paths."""
    n, k = np.shape(log_emission)
    paths = all_paths(n, k)
    energies = path_energies(paths, log_start, log_transition, log_emission)
    q = softmax(x * energies)
    posteriors, transitions = np.zeros((n, k)), np.zeros((k, k))
    for probability, z in zip(q, paths, strict=True):
        posteriors[np.arange(n), z] += probability
        np.add.at(transitions, (z[:-1], z[1:]), probability)
    positive = q[q > 0]
    entropy = -float(positive @ np.log(positive))
    return Paths(
        float(logsumexp(x * energies)), posteriors, transitions, float(q @ energies), entropy
    )


def best_path(log_start, log_transition, log_emission):
    """The most probable path by comparing all of them, and its energy."""
    paths = all_paths(*np.shape(log_emission))
    energies = path_energies(paths, log_start, log_transition, log_emission)
    best = int(np.argmax(energies))
    return paths[best], float(energies[best])


# Dirichlet


def expected_log(concentration):
    """E log of Dirichlet rows. A probability whose concentration is 0 is 0."""
    concentration = np.asarray(concentration, dtype=float)
    logs = psi(concentration) - psi(concentration.sum(axis=-1, keepdims=True))
    return np.where(concentration > 0, logs, NEVER)


def _log_gamma(a):
    """log Γ of the entries of Dirichlet rows, of which those that are 0 have no term."""
    return np.where(a > 0, gammaln(np.where(a > 0, a, 1.0)), 0.0)


def dirichlet_kl(q, prior):
    """Σ over rows of KL(Dir(q) ‖ Dir(prior))."""

    def log_normaliser(a):
        return _log_gamma(a).sum(axis=-1) - gammaln(a.sum(axis=-1))

    q, prior = np.asarray(q, dtype=float), np.asarray(prior, dtype=float)
    prior = np.broadcast_to(prior, q.shape)
    rows = np.sum((q - prior) * expected_log(q), axis=-1) + log_normaliser(prior)
    return float(np.sum(rows - log_normaliser(q)))


def dirichlet_marginal(counts, prior):
    """log ∫ Dir(p | prior) Π p^counts, summed over rows."""
    counts, prior = np.broadcast_arrays(counts, prior)
    rows = gammaln(prior.sum(axis=-1)) - gammaln((prior + counts).sum(axis=-1))
    entries = _log_gamma(prior + counts) - _log_gamma(prior)
    return float(np.sum(rows) + np.sum(np.where(prior > 0, entries, NEVER * counts)))


# Emissions. `parameters` are those of q or of the prior, in their usual form, not the natural one.


class Categorical:
    """Rows Dir(emissionprob); parameters: emissionprob (K, V). A frame is a symbol."""

    @staticmethod
    def observed(X):
        symbols = np.asarray(X, dtype=float).ravel()
        return np.isfinite(symbols) & (symbols >= 0)

    @staticmethod
    def _counts(X, n_symbols):
        """One row per frame, 1 at its symbol; zeros where it is missing."""
        symbols = np.asarray(X, dtype=float).ravel()
        counts = np.zeros((len(symbols), n_symbols))
        seen = np.flatnonzero(Categorical.observed(X))
        counts[seen, symbols[seen].astype(int)] = 1.0
        return counts

    def expected_log_density(self, p, X):
        return self._counts(X, p["emissionprob"].shape[1]) @ expected_log(p["emissionprob"]).T

    def log_density(self, p, X):
        """The log density of each frame under the mean parameters."""
        probabilities = p["emissionprob"] / p["emissionprob"].sum(axis=1, keepdims=True)
        return self._counts(X, probabilities.shape[1]) @ np.log(probabilities).T

    def update(self, prior, X, weights):
        counts = self._counts(X, prior["emissionprob"].shape[1])
        return {"emissionprob": prior["emissionprob"] + weights.T @ counts}

    def kl(self, q, prior):
        return dirichlet_kl(q["emissionprob"], prior["emissionprob"])

    def log_marginal(self, prior, k, X):
        counts = self._counts(X, prior["emissionprob"].shape[1]).sum(axis=0)
        return dirichlet_marginal(counts, prior["emissionprob"][k])


def _seen_rows(X):
    return ~np.isnan(np.asarray(X, dtype=float)).any(axis=1)


def _only_seen(X, weights):
    X, seen = np.asarray(X, dtype=float), _seen_rows(X)
    return X[seen], weights[seen]


class _Rows:
    """Emissions of vectors: a missing frame has density 1 in every state."""

    observed = staticmethod(_seen_rows)

    def expected_log_density(self, p, X):
        return self._filled(self._expected, p, X)

    def log_density(self, p, X):
        return self._filled(self._plugged_in, p, X)

    def _filled(self, density, p, X):
        X, seen = np.asarray(X, dtype=float), _seen_rows(X)
        found = density(p, X[seen])
        out = np.zeros((len(X), found.shape[1]))
        out[seen] = found
        return out


class Bernoulli(_Rows):
    """Coordinates Beta(a, b); parameters: a and b (K, D)."""

    def _expected(self, p, X):
        both = psi(p["a"] + p["b"])
        return X @ (psi(p["a"]) - both).T + (1 - X) @ (psi(p["b"]) - both).T

    def _plugged_in(self, p, X):
        mean = p["a"] / (p["a"] + p["b"])
        return X @ np.log(mean).T + (1 - X) @ np.log1p(-mean).T

    def update(self, prior, X, weights):
        X, weights = _only_seen(X, weights)
        return {"a": prior["a"] + weights.T @ X, "b": prior["b"] + weights.T @ (1 - X)}

    def kl(self, q, prior):
        both = psi(q["a"] + q["b"])
        return float(
            np.sum(
                betaln(prior["a"], prior["b"])
                - betaln(q["a"], q["b"])
                + (q["a"] - prior["a"]) * (psi(q["a"]) - both)
                + (q["b"] - prior["b"]) * (psi(q["b"]) - both)
            )
        )

    def log_marginal(self, prior, k, X):
        a, b = prior["a"][k], prior["b"][k]
        ones = X.sum(axis=0)
        return float(np.sum(betaln(a + ones, b + len(X) - ones) - betaln(a, b)))


class Poisson(_Rows):
    """Coordinates Gamma(shape, rate); parameters: shape and rate (K, D)."""

    def _expected(self, p, X):
        log_mean = psi(p["shape"]) - np.log(p["rate"])
        return self._with_factorials(X, log_mean, p["shape"] / p["rate"])

    def _plugged_in(self, p, X):
        mean = p["shape"] / p["rate"]
        return self._with_factorials(X, np.log(mean), mean)

    @staticmethod
    def _with_factorials(X, log_mean, mean):
        return X @ log_mean.T - mean.sum(axis=1) - gammaln(X + 1).sum(axis=1)[:, None]

    def update(self, prior, X, weights):
        X, weights = _only_seen(X, weights)
        return {
            "shape": prior["shape"] + weights.T @ X,
            "rate": prior["rate"] + weights.sum(axis=0)[:, None],
        }

    def kl(self, q, prior):
        a, b, a0, b0 = q["shape"], q["rate"], prior["shape"], prior["rate"]
        return float(
            np.sum(
                (a - a0) * psi(a)
                - gammaln(a)
                + gammaln(a0)
                + a0 * (np.log(b) - np.log(b0))
                + a * (b0 - b) / b
            )
        )

    def log_marginal(self, prior, k, X):
        a, b = prior["shape"][k], prior["rate"][k]
        total, n = X.sum(axis=0), len(X)
        columns = a * np.log(b) - gammaln(a) + gammaln(a + total)
        columns = columns - (a + total) * np.log(b + n)
        return float(np.sum(columns) - np.sum(gammaln(X + 1)))


class NegativeBinomial(_Rows):
    """The evidence of counts with the shapes r (D,); parameters: shape and rate (K, D)."""

    def __init__(self, shapes):
        self.shapes = shapes

    def log_marginal(self, prior, k, X):
        columns = zip(X.T, self.shapes, prior["shape"][k], prior["rate"][k], strict=True)
        return sum(negative_binomial_marginal(*column) for column in columns)


class ZeroInflatedPoisson(_Rows):
    """The evidence of counts with more zeros; parameters: shape, rate, a and b (K, D)."""

    def log_marginal(self, prior, k, X):
        priors = (prior[key][k] for key in ("shape", "rate", "a", "b"))
        return sum(zero_inflated_marginal(*c) for c in zip(X.T, *priors, strict=True))


class Gaussian(_Rows):
    """Normal–Wishart; parameters: mean (K, D), beta (K,), inverse_scale (K, D, D), dof (K,).

    All K precision matrices are full and independent for every covariance type. The type restricts
    only the scale matrices of q(Λ_k) to be diagonal, a multiple of the identity, or equal. The best
    restricted q is found by a projection of the sufficient statistics.
    """

    def __init__(self, covariance_type="full"):
        self.covariance_type = covariance_type

    def project(self, matrices):
        """Project (K, D, D) matrices on those that the covariance type allows."""
        d = matrices.shape[-1]
        if self.covariance_type == "diag":
            return matrices * np.eye(d)
        if self.covariance_type == "spherical":
            return np.trace(matrices, axis1=1, axis2=2)[:, None, None] / d * np.eye(d)
        if self.covariance_type == "tied":
            return np.repeat(matrices.mean(axis=0)[None], len(matrices), axis=0)
        return matrices

    @staticmethod
    def _distances(X, mean, matrices):
        difference = X[:, None, :] - mean
        return np.einsum("nki,kij,nkj->nk", difference, matrices, difference)

    def _expected(self, p, X):
        d = X.shape[1]
        scale = np.linalg.inv(p["inverse_scale"])
        halves = 0.5 * (p["dof"][:, None] - np.arange(d))
        log_det = psi(halves).sum(axis=1) + d * np.log(2) + np.linalg.slogdet(scale)[1]
        distances = p["dof"] * self._distances(X, p["mean"], scale)
        return 0.5 * (log_det - d * LOG_2PI - d / p["beta"] - distances)

    def _plugged_in(self, p, X):
        """The log density at the covariance W⁻¹/ν, which is the inverse of the mean precision."""
        precision = p["dof"][:, None, None] * np.linalg.inv(p["inverse_scale"])
        log_det = np.linalg.slogdet(precision)[1]
        distances = self._distances(X, p["mean"], precision)
        return 0.5 * (log_det - X.shape[1] * LOG_2PI - distances)

    def update(self, prior, X, weights):
        X, weights = _only_seen(X, weights)
        origin = prior["mean"].mean(axis=0)  # sums of squares around it keep their digits
        X, m0 = X - origin, prior["mean"] - origin
        count = weights.sum(axis=0)
        beta = prior["beta"] + count
        mean = (prior["beta"][:, None] * m0 + weights.T @ X) / beta[:, None]
        scatter = (
            prior["inverse_scale"]
            + np.einsum("k,ki,kj->kij", prior["beta"], m0, m0)
            + np.einsum("nk,ni,nj->kij", weights, X, X)
            - np.einsum("k,ki,kj->kij", beta, mean, mean)
        )
        if self.covariance_type == "tied":
            count = np.full(len(count), count.mean())
        return {
            "mean": mean + origin,
            "beta": beta,
            "inverse_scale": self.project(scatter),
            "dof": prior["dof"] + count,
        }

    def kl(self, q, prior):
        total = 0.0
        for k, mean in enumerate(q["mean"]):
            beta, beta0 = q["beta"][k], prior["beta"][k]
            inverse, inverse0 = q["inverse_scale"][k], prior["inverse_scale"][k]
            dof, dof0 = q["dof"][k], prior["dof"][k]
            d = len(mean)
            scale = np.linalg.inv(inverse)
            difference = mean - prior["mean"][k]
            of_mean = d * (np.log(beta / beta0) + beta0 / beta - 1)
            of_mean += beta0 * dof * difference @ scale @ difference
            log_det = psi(0.5 * (dof - np.arange(d))).sum() + d * np.log(2)
            log_det += np.linalg.slogdet(scale)[1]
            total += (
                0.5 * of_mean
                + 0.5 * (dof - dof0) * log_det
                + 0.5 * dof * (np.trace(inverse0 @ scale) - d)
                + _log_wishart_norm(inverse0, dof0)
                - _log_wishart_norm(inverse, dof)
            )
        return float(total)

    def log_marginal(self, prior, k, X):
        m0, beta0 = prior["mean"][k], prior["beta"][k]
        n, d = X.shape
        X = X - m0
        beta = beta0 + n
        mean = X.sum(axis=0) / beta
        scatter = prior["inverse_scale"][k] + X.T @ X - beta * np.outer(mean, mean)
        return float(
            -0.5 * n * d * LOG_2PI
            + 0.5 * d * np.log(beta0 / beta)
            + _log_wishart_norm(scatter, prior["dof"][k] + n)
            - _log_wishart_norm(prior["inverse_scale"][k], prior["dof"][k])
        )


def _log_wishart_norm(inverse_scale, dof):
    """log ∫ |Λ|^((ν−D−1)/2) exp(−½ tr W⁻¹Λ) dΛ."""
    d = len(inverse_scale)
    log_det = np.linalg.slogdet(inverse_scale)[1]
    return 0.5 * dof * (d * np.log(2) - log_det) + multigammaln(0.5 * dof, d)


# The whole model


class Parameters(NamedTuple):
    """Parameters of q or of the prior."""

    start: np.ndarray  # (K,) Dirichlet
    transition: np.ndarray  # (K, K) Dirichlet rows
    emission: dict[str, np.ndarray]


class Step(NamedTuple):
    """The result of a local step under q: weighted sums over sequences."""

    paths: list[Paths]  # of each sequence, without weights
    start: np.ndarray
    transition: np.ndarray
    energy: float
    entropy: float


def expectations(emission, q, X):
    """Expected log start, transition, emission (n, K) of one sequence."""
    return (
        expected_log(q.start),
        expected_log(q.transition),
        emission.expected_log_density(q.emission, X),
    )


def local_step(emission, q, sequences, x=1.0, weights=None, find=forward_backward):
    """q(z) of every sequence; ``find`` may be `enumerated`."""
    weights = np.ones(len(sequences)) if weights is None else np.asarray(weights, dtype=float)
    paths = [find(*expectations(emission, q, X), x) for X in sequences]
    pairs = list(zip(weights, paths, strict=True))
    return Step(
        paths,
        sum(w * p.posteriors[0] for w, p in pairs),
        sum(w * p.transitions for w, p in pairs),
        float(sum(w * p.energy for w, p in pairs)),
        float(sum(w * p.entropy for w, p in pairs)),
    )


def updated(emission, prior, sequences, step, s=1.0, weights=None):
    """The best q for given q(z): prior plus s times statistics."""
    weights = np.ones(len(sequences)) if weights is None else np.asarray(weights, dtype=float)
    frames = np.concatenate(
        [s * w * p.posteriors for w, p in zip(weights, step.paths, strict=True)]
    )
    return Parameters(
        prior.start + s * step.start,
        prior.transition + s * step.transition,
        emission.update(prior.emission, np.concatenate(sequences), frames),
    )


def kl(emission, q, prior):
    """KL(q ‖ prior) of all parameters."""
    return (
        dirichlet_kl(q.start, prior.start)
        + dirichlet_kl(q.transition, prior.transition)
        + emission.kl(q.emission, prior.emission)
    )


def lower_bound(emission, q, prior, sequences, weights=None):
    """The complete bound on log p(X) at temperature 1, q(z) optimal."""
    step = local_step(emission, q, sequences, 1.0, weights)
    return step.energy + step.entropy - kl(emission, q, prior)


def one_update(emission, q, prior, sequences, x=1.0, s=1.0, weights=None):
    """One pass of variational inference from q; x tempers q(z), and s the statistics."""
    step = local_step(emission, q, sequences, x, weights)
    return updated(emission, prior, sequences, step, s, weights)


def log_evidence(emission, prior, sequences, states=None):
    """log p(X), all paths of all sequences summed and all parameters integrated out.

    The K^(all frames) terms allow about ten frames at K = 2. With ``states``, one array for each
    sequence with −1 where a state is not known, it is the log p of X and the known states.
    """
    k = len(prior.start)
    lengths = [len(X) for X in sequences]
    first = np.cumsum([0, *lengths[:-1]])
    inside = np.setdiff1d(np.arange(sum(lengths)), first)
    X = np.concatenate(sequences)
    seen = emission.observed(X)
    of_state: dict[tuple, float] = {}
    terms = []
    given = np.full(sum(lengths), -1) if states is None else np.concatenate(states)
    paths = all_paths(sum(lengths), k)
    for z in paths[((paths == given) | (given < 0)).all(axis=1)]:
        starts = np.bincount(z[first], minlength=k)
        transitions = np.zeros((k, k))
        np.add.at(transitions, (z[inside - 1], z[inside]), 1)
        term = dirichlet_marginal(starts, prior.start)
        term += dirichlet_marginal(transitions, prior.transition)
        for state in range(k):
            mine = (z == state) & seen
            key = (state, *mine)
            if key not in of_state:
                of_state[key] = emission.log_marginal(prior.emission, state, X[mine])
            term += of_state[key]
        terms.append(term)
    return float(logsumexp(terms))


# Reading the attributes of a fitted estimator


def emission_of(estimator):
    """The emission of this module that corresponds to that of an estimator."""
    if estimator.emission == "gaussian":
        return Gaussian(estimator.covariance_type)
    if estimator.emission == "negative_binomial":
        return NegativeBinomial(estimator.count_shapes_)
    return {
        "categorical": Categorical,
        "poisson": Poisson,
        "bernoulli": Bernoulli,
        "zero_inflated_poisson": ZeroInflatedPoisson,
    }[estimator.emission]()


def parameters_of(estimator, which="posterior", attributes=None):
    """Parameters of q or of the prior, from attributes of an estimator.

    Parameters
    ----------
    estimator : AnnealedHMM
    which : {"posterior", "prior"}
        The suffix of the attributes.
    attributes : mapping, default=None
        Name → value; None: the attributes of the estimator.
    """
    attributes = vars(estimator) if attributes is None else attributes

    def get(name):
        return np.asarray(attributes[f"{name}_{which}_"], dtype=float)

    def rows(name):
        value = get(name)
        return np.broadcast_to(value, (k, *value.shape[-1:]))

    start, transition = get("startprob"), get("transmat")
    k = len(start)
    own: dict[str, Any]
    if estimator.emission == "categorical":
        own = {"emissionprob": rows("emissionprob")}
    elif estimator.emission == "bernoulli":
        own = {"a": get("emissionprob")[..., 0], "b": get("emissionprob")[..., 1]}
    elif estimator.emission != "gaussian":
        own = {"shape": rows("lambdas"), "rate": rows("lambdas_weight")}
        if estimator.emission == "zero_inflated_poisson":
            own |= {"a": get("zeroprob")[..., 0], "b": get("zeroprob")[..., 1]}
    else:
        mean = rows("means")
        own = {
            "mean": mean,
            "beta": np.broadcast_to(get("beta"), (k,)),
            "inverse_scale": full_matrices(
                get("scale"), estimator.covariance_type, k, mean.shape[1]
            ),
            "dof": np.broadcast_to(get("dof"), (k,)),
        }
    return Parameters(start, transition, own)


def full_matrices(scale, covariance_type, k, d):
    """Expand matrices in the form of a covariance type, or one for all states, to (K, D, D)."""
    scale = np.asarray(scale, dtype=float)
    if covariance_type == "spherical":
        return np.broadcast_to(scale, (k,))[:, None, None] * np.eye(d)
    if covariance_type == "diag":
        return np.broadcast_to(scale, (k, d))[:, :, None] * np.eye(d)
    return np.broadcast_to(scale, (k, d, d))


def hidden_markov_log_evidence(estimator, X):
    """log p(X) at the fitted priors of an estimator; X is a list of sequences."""
    emission, prior = emission_of(estimator), parameters_of(estimator, "prior")
    if isinstance(estimator.duration, str) and estimator.duration == "geometric":
        return log_evidence(emission, prior, list(X))
    how = estimator.duration_shapes_, estimator.leaveprob_prior_
    return log_evidence_of_durations(emission, prior, list(X), *how)


# States of several sub-states


def expanded(start, jump, stay, leave, shapes):
    """The Markov chain of all sub-states, written from its definition, and their states."""
    names = [(k, j) for k, r in enumerate(shapes) for j in range(r)]
    log_start = np.array([start[k] if j == 0 else NEVER for k, j in names])
    table = np.full((len(names),) * 2, NEVER)
    for a, (k, j) in enumerate(names):
        for b, (m, i) in enumerate(names):
            if a == b:
                table[a, b] = stay[k]
            elif k == m and i == j + 1:
                table[a, b] = leave[k]
            elif k != m and j == shapes[k] - 1 and i == 0:
                table[a, b] = max(leave[k] + jump[k, m], NEVER)
    return log_start, table, np.array([k for k, _ in names])


def best_states(start, jump, stay, leave, shapes, log_emission):
    """The most probable path of states, and its log probability, by all paths of sub-states."""
    log_start, table, states = expanded(start, jump, stay, leave, shapes)
    paths = all_paths(len(log_emission), len(states))
    energies = path_energies(paths, log_start, table, np.asarray(log_emission)[:, states])
    found, of_path = np.unique(states[paths], axis=0, return_inverse=True)
    sums = np.full(len(found), -np.inf)
    np.logaddexp.at(sums, of_path.ravel(), energies)
    best = int(np.argmax(sums))
    return found[best], float(sums[best])


def best_segments(start, jump, stay, leave, shapes, log_emission):
    """The same result as that of `best_states`, by the best of all last segments of all lengths."""
    n, k = np.shape(log_emission)
    value, best = np.full((n + 1, k), NEVER), np.zeros((n + 1, k, 2), int)
    for t in range(1, n + 1):
        for own, r in enumerate(shapes):
            for d in range(1, t + 1):
                if t == n:  # the frames that follow the last segment are not seen
                    j = np.arange(min(r, d))  # sub-states that were left
                    ways = gammaln(d) - gammaln(j + 1) - gammaln(d - j)
                    how = logsumexp(ways + j * leave[own] + (d - 1 - j) * stay[own])
                elif d >= r:
                    ways = gammaln(d) - gammaln(r) - gammaln(d - r + 1)
                    how = ways + r * leave[own] + (d - r) * stay[own]
                else:
                    continue
                into = value[t - d] + jump[:, own]
                before = 0 if t == d else int(np.argmax(into))
                begun = start[own] if t == d else into[before]
                found = begun + how + log_emission[t - d : t, own].sum()
                if found > value[t, own]:
                    value[t, own], best[t, own] = found, (d, before)
    path, t, state = np.empty(n, int), n, int(np.argmax(value[n]))
    energy = float(value[n, state])
    while t > 0:
        d, before = best[t, state]
        path[t - d : t] = state
        t, state = t - d, before
    return path, energy


def log_evidence_of_durations(emission, prior, sequences, shapes, durations):
    """log p(X) where states have sub-states, by all paths of these.

    ``durations`` (K, 2) has the beta priors of leaving a sub-state, and of staying in it.
    """
    k = len(shapes)
    nothing = np.zeros(k), np.zeros((k, k)), np.zeros(k), np.zeros(k)
    start, table, states = expanded(*nothing, shapes)
    lengths = [len(X) for X in sequences]
    first = np.cumsum([0, *lengths[:-1]])
    inside = np.setdiff1d(np.arange(sum(lengths)), first)
    X = np.concatenate(sequences)
    seen = emission.observed(X)
    paths = all_paths(sum(lengths), len(states))
    possible = (start[paths[:, first]] == 0).all(axis=1)
    possible &= (table[paths[:, inside - 1], paths[:, inside]] == 0).all(axis=1)
    of_state: dict[tuple, float] = {}
    terms = []
    for z in paths[possible]:
        s = states[z]
        jumps, frames = np.zeros((k, k)), np.zeros((k, 2))
        before, after = s[inside - 1], s[inside]
        np.add.at(frames, (before, (z[inside - 1] == z[inside]).astype(int)), 1)
        np.add.at(jumps, (before, after), before != after)
        term = dirichlet_marginal(np.bincount(s[first], minlength=k), prior.start)
        term += dirichlet_marginal(jumps, prior.transition) + dirichlet_marginal(frames, durations)
        for state in range(k):
            mine = (s == state) & seen
            key = (state, *mine)
            if key not in of_state:
                of_state[key] = emission.log_marginal(prior.emission, state, X[mine])
            term += of_state[key]
        terms.append(term)
    return float(logsumexp(terms))
