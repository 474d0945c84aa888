"""Exact log evidences of tiny problems, by enumeration of all assignments.

They are written from the generative models and use nothing of the package but fitted priors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from scipy.sparse import issparse
from scipy.special import betaln, gammaln, logsumexp, multigammaln
from scipy.stats import nbinom


def _assignments(estimator: Any, n: int, y: Any) -> Iterator[tuple[int, ...]]:
    """All assignments of n rows to components; rows with a label (not −1) keep to their class."""
    components = range(estimator.n_components_)
    if y is None:
        return product(components, repeat=n)
    of = estimator.component_classes_
    return product(*([k for k in components if label in (-1, of[k])] for label in y))


def gaussian_mixture_log_evidence(estimator: Any, X: np.ndarray, y: Any = None) -> float:
    """log p(X) of the mixture with K full precision matrices; all parameters are integrated out.

    With labels it is log p(X, y).
    """
    n, d = X.shape
    k = estimator.n_components_
    common = np.asarray(estimator.covariance_prior_, dtype=float)
    if common.ndim < 2:
        common = common * np.eye(d)
    independent = estimator.factorization == "independent"
    marginal = _independent_marginal if independent else _normal_wishart_marginal
    of_means = estimator.mean_prior_, estimator.mean_precision_prior_
    dof = estimator.degrees_of_freedom_prior_
    # The prior is taken at the expected sizes of the components, of which some may be equal.
    sizes = estimator.covariance_prior_sizes_["mean"]
    of_size = {
        (size, members): marginal(X[np.array(members, dtype=bool)], *of_means, size * common, dof)
        for size in set(sizes)
        for members in product((False, True), repeat=n)
    }
    terms = []
    for z in _assignments(estimator, n, y):
        assigned = np.equal.outer(np.arange(k), z)
        term = _log_prior_of_counts(estimator, assigned.sum(axis=1))
        of_components = zip(sizes, assigned, strict=True)
        terms.append(term + sum(of_size[size, tuple(map(bool, r))] for size, r in of_components))
    return float(logsumexp(terms))


def _log_prior_of_counts(estimator: Any, counts: np.ndarray) -> float:
    """log p(z), by the Dirichlet-multinomial or by K integrated sticks that need not sum to one."""
    a = estimator.weight_concentration_prior_
    if estimator.weight_concentration_prior_type == "dirichlet_distribution":
        k = len(counts)
        return float(
            gammaln(k * a)
            - gammaln(k * a + counts.sum())
            + np.sum(gammaln(a + counts) - gammaln(a))
        )
    beyond = counts[::-1].cumsum()[::-1] - counts
    if estimator.weight_concentration_prior == "auto":
        # The last component takes all that is left.
        beyond, counts = beyond[:-1], counts[:-1]
    return float(np.sum(betaln(1.0 + counts, a + beyond) - betaln(1.0, a)))


def _log_prior_given(estimator: Any, covariates: np.ndarray) -> Callable[[tuple[int, ...]], float]:
    """log p(z | covariate) of two components, by a grid of the coefficients."""
    u = np.column_stack([np.ones(len(covariates)), covariates])
    u[:, 1] = (u[:, 1] - u[:, 1].mean()) / u[:, 1].std()
    scales = 5.0, estimator.coefficients_prior_
    a, b = np.meshgrid(*(np.linspace(-6.0, 6.0, 121) * s for s in scales), indexing="ij")
    prior = (
        -0.5 * ((a / scales[0]) ** 2 + (b / scales[1]) ** 2) - np.log(2.0 * np.pi) + 2 * np.log(0.1)
    )
    # Γ has one column, and the two classes have ±1/√2 of it.
    eta = np.sqrt(2.0) * (u[:, :1, None] * a + u[:, 1:, None] * b)
    logs = np.stack([-np.logaddexp(0.0, -eta), -np.logaddexp(0.0, eta)])
    return lambda z: float(logsumexp(prior + sum(logs[k, i] for i, k in enumerate(z))))


def _log_det(matrices: np.ndarray) -> np.ndarray:
    return np.linalg.slogdet(matrices)[1]


def _normal_wishart_marginal(X, mean, strength, inverse_scale, dof):
    n, d = X.shape
    total = strength + n
    center = (strength * mean + X.sum(axis=0)) / total
    scatter = (
        inverse_scale + X.T @ X + strength * np.outer(mean, mean) - total * np.outer(center, center)
    )
    return (
        -0.5 * n * d * np.log(np.pi)
        + 0.5 * d * np.log(strength / total)
        + multigammaln(0.5 * (dof + n), d)
        - multigammaln(0.5 * dof, d)
        + 0.5 * dof * _log_det(inverse_scale)
        - 0.5 * (dof + n) * _log_det(scatter)
    )


@cache
def _hermite_nodes(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.hermite_e.hermegauss(n)


def _independent_marginal(X, mean, strength, inverse_scale, dof, n_nodes=60):
    """The marginal for independent μ ~ N(m₀, W₀⁻¹/strength) and Λ.

    Λ is integrated out exactly, and μ by the Gauss–Hermite rule.
    """
    n, d = X.shape
    nodes, weights = _hermite_nodes(n_nodes)
    grid = np.stack(np.meshgrid(*[nodes] * d, indexing="ij"), axis=-1).reshape(-1, d)
    log_weights = sum(np.meshgrid(*[np.log(weights)] * d, indexing="ij")).ravel()
    log_weights = log_weights - 0.5 * d * np.log(2 * np.pi)
    means = mean + grid @ np.linalg.cholesky(inverse_scale / strength).T
    deviation = X[None] - means[:, None]
    scatter = inverse_scale + np.einsum("gni,gnj->gij", deviation, deviation)
    return logsumexp(
        log_weights
        - 0.5 * n * d * np.log(np.pi)
        + multigammaln(0.5 * (dof + n), d)
        - multigammaln(0.5 * dof, d)
        + 0.5 * dof * _log_det(inverse_scale)
        - 0.5 * (dof + n) * _log_det(scatter)
    )


def mixture_log_evidence(
    estimator: Any, X: np.ndarray, y: Any = None, covariates: np.ndarray | None = None
) -> float:
    """log p(observed cells) of a mixture of independent columns; all parameters integrated out.

    With labels it is the log of the probability of cells and labels, and with covariates, of which
    there is one, that given these.
    """
    k = estimator.n_components_
    if isinstance(estimator.emission, str):
        found = [_column_marginals(estimator, estimator.emission, X)]
    else:
        kinds = {name: kind for name, kind, _ in estimator.emission}
        found = [
            _column_marginals(block, kinds[name], X[:, block.columns])
            for name, block in estimator.blocks_.items()
        ]
    columns = [marginal for each in found for marginal in each]
    given = None if covariates is None else _log_prior_given(estimator, covariates)
    terms = []
    for z in _assignments(estimator, len(X), y):
        assigned = np.equal.outer(np.arange(k), z)
        if given is None:
            term = _log_prior_of_counts(estimator, assigned.sum(axis=1))
        else:
            term = given(z)
        of_components = [m(j, row) for j, row in enumerate(assigned) for m in columns]
        terms.append(term + sum(of_components))
    return float(logsumexp(terms))


def _column_marginals(fitted: Any, emission: str, X: np.ndarray) -> list[Any]:
    """Functions of a component and the rows that it has: log p(these cells) of each column."""

    def marginal(d: int) -> Any:
        def of(k: int, members: np.ndarray) -> float:
            x = X[members, d]
            x = x[~np.isnan(x)]
            if emission == "bernoulli":
                a, b = fitted.emissionprob_prior_[k, d]
                return float(betaln(a + x.sum(), b + (1 - x).sum()) - betaln(a, b))
            if emission == "categorical":
                prior = fitted.emissionprob_prior_[d][k]
                counts = np.bincount(x.astype(int), minlength=len(prior))
                return _log_dirichlet_multinomial(counts[None], prior)
            if emission == "poisson":
                a, b = fitted.lambdas_prior_[k, d], fitted.lambdas_weight_prior_[k, d]
                shape, rate = a + x.sum(), b + len(x)
                gamma = gammaln(shape) - gammaln(a) + a * np.log(b) - shape * np.log(rate)
                return float(gamma - gammaln(x + 1.0).sum())
            if emission == "negative_binomial":
                priors = fitted.lambdas_prior_[k, d], fitted.lambdas_weight_prior_[k, d]
                return negative_binomial_marginal(x, fitted.count_shapes_[d], *priors)
            if emission == "zero_inflated_poisson":
                priors = fitted.lambdas_prior_[k, d], fitted.lambdas_weight_prior_[k, d]
                return zero_inflated_marginal(x, *priors, *fitted.zeroprob_prior_[k, d])
            prior = (
                fitted.means_prior_[k, [d]],
                fitted.beta_prior_[k, d],
                fitted.scale_prior_[k, [d], None],
                fitted.dof_prior_[k, d],
            )
            return float(_normal_wishart_marginal(x[:, None], *prior))

        return of

    if emission == "gaussian" and fitted.scale_prior_.ndim == 3:
        return [_block_marginal(fitted, X)]
    return [marginal(d) for d in range(X.shape[1])]


def negative_binomial_marginal(x: np.ndarray, r: float, shape: float, rate: float) -> float:
    """log p(counts of one component), with the prior Beta(r rate, shape) of p integrated out."""
    carriers = gammaln(x + r) - gammaln(r) - gammaln(x + 1.0)
    posterior = betaln(r * (rate + len(x)), shape + x.sum())
    return float(carriers.sum() + posterior - betaln(r * rate, shape))


def zero_inflated_marginal(x: np.ndarray, shape: float, rate: float, a: float, b: float) -> float:
    """The same for zero-inflated Poisson counts, summed over which zeros are structural."""
    zeros, n = int((x == 0).sum()), len(x)
    m = np.arange(zeros + 1)
    ways = gammaln(zeros + 1.0) - gammaln(m + 1.0) - gammaln(zeros - m + 1.0)
    others = n - m
    posterior = gammaln(shape + x.sum()) - (shape + x.sum()) * np.log(rate + others)
    poisson = posterior - gammaln(shape) + shape * np.log(rate) - gammaln(x + 1.0).sum()
    return float(logsumexp(ways + betaln(a + m, b + others) - betaln(a, b) + poisson))


def _block_marginal(fitted: Any, X: np.ndarray) -> Any:
    """The same for Gaussian columns with a covariance matrix per component."""
    missing = np.isnan(X).any(axis=1)
    if np.any(missing != np.isnan(X).all(axis=1)):
        raise ValueError("Rows with some cells of these columns have no closed form.")

    def of(k: int, members: np.ndarray) -> float:
        prior = (
            fitted.means_prior_[k],
            fitted.beta_prior_[k],
            fitted.scale_prior_[k],
            fitted.dof_prior_[k],
        )
        return float(_normal_wishart_marginal(X[members & ~missing], *prior))

    return of


def geometric_mixture_log_evidence(estimator: Any, X: np.ndarray) -> float:
    """log p(X) of a mixture of geometric counts, weights and success probabilities integrated."""
    k, a, b = estimator.n_components, estimator.a_prior, estimator.b_prior
    weights = np.full(k, float(estimator.weight_prior))
    terms = []
    for z in product(range(k), repeat=len(X)):
        assigned = np.equal.outer(np.arange(k), z).astype(float)
        counts = assigned.sum(axis=1)
        columns = betaln(a + counts[:, None], b + assigned @ X) - betaln(a, b)
        terms.append(_log_dirichlet_multinomial(counts[None], weights) + columns.sum())
    return float(logsumexp(terms))


def gamma_process_log_evidence(estimator: Any, X: Any, n_draws: int = 50_000) -> float:
    """log p(observed counts) of a gamma-process factorisation, to about two digits.

    All ways to divide the counts among components are enumerated and activations are integrated
    out exactly; components and their weights are draws from the prior.
    """
    counts = np.asarray(X.toarray() if issparse(X) else X, dtype=float)
    rng = np.random.default_rng(0)
    k, d = estimator.n_components, counts.shape[1]
    a, b = estimator.component_prior_, estimator.activation_prior_
    alpha, scale = estimator.concentration_, 1.0 / np.nanmean(counts)
    weights = rng.gamma(alpha / k, 1.0 / (alpha * scale), (n_draws, k))
    rates = weights[:, :, None] * rng.gamma(a, 1.0 / a, (n_draws, k, d))
    if estimator.popularity_prior is not None:
        s = estimator.popularity_prior_
        rates /= rng.gamma(s, 1.0 / s, (n_draws, 1, d))
    log_rates = np.log(np.maximum(rates, 1e-300))
    result = np.zeros(n_draws)
    if estimator.dispersion_ is not None:
        return _noisy_log_evidence(counts, rates, b, 1.0 / estimator.dispersion_, rng)
    for row in counts:
        seen = np.flatnonzero(~np.isnan(row))
        totals = rates[:, :, seen].sum(axis=2)
        terms = []
        for parts in product(*(_compositions(int(row[v]), k) for v in seen)):
            z = np.array(parts).reshape(-1, k).T
            shape = b + z.sum(axis=1)
            term = (log_rates[:, :, seen] * z).sum(axis=(1, 2)) - gammaln(z + 1.0).sum()
            term += (b * np.log(b) - gammaln(b) + gammaln(shape)).sum()
            terms.append(term - (np.log(b + totals) * shape).sum(axis=1))
        result += logsumexp(terms, axis=0)
    return float(logsumexp(result) - np.log(n_draws))


def _noisy_log_evidence(
    counts: np.ndarray, rates: np.ndarray, b: float, shape: float, rng: np.random.Generator
) -> float:
    """log p(observed counts) with noise, which is integrated out; activations are drawn too."""
    result = np.zeros(len(rates))
    for row in counts:
        seen = np.flatnonzero(~np.isnan(row))
        h = rng.gamma(b, 1.0 / b, rates.shape[:2])
        mean = np.einsum("ik,ikv->iv", h, rates[:, :, seen])
        result += nbinom.logpmf(row[seen], shape, shape / (shape + mean)).sum(axis=1)
    return float(logsumexp(result) - np.log(len(rates)))


def _compositions(n: int, k: int) -> list[tuple[int, ...]]:
    """All ways to divide n among k."""
    return [z for z in product(range(n + 1), repeat=k) if sum(z) == n]


def latent_dirichlet_log_evidence(estimator: Any, X: Any) -> float:
    """log p(words in order) of an LDA: a sum over the topics of all tokens, θ and β integrated out.

    There are no multinomial coefficients, because the words have an order, as in the variational
    bound. X (D, V) holds integer counts, dense or sparse. As the sum has K^tokens terms, about 12
    tokens are possible at K = 2.
    """
    counts = np.asarray(X.toarray() if issparse(X) else X)
    if not np.array_equal(counts, np.round(counts)):
        raise ValueError("The evidence is that of whole tokens: X must hold integers.")
    k = estimator.n_components
    n_documents, n_words = counts.shape
    alpha = np.broadcast_to(np.asarray(estimator.doc_topic_prior_, dtype=float), (k,))
    eta = np.broadcast_to(np.asarray(estimator.topic_word_prior_, dtype=float), (n_words,))
    document, word = (
        np.repeat(index, counts[counts > 0].astype(int)) for index in np.nonzero(counts)
    )
    terms = []
    for z in product(range(k), repeat=len(word)):
        of_document = np.zeros((n_documents, k))
        of_topic = np.zeros((k, n_words))
        np.add.at(of_document, (document, list(z)), 1)
        np.add.at(of_topic, (list(z), word), 1)
        terms.append(
            _log_dirichlet_multinomial(of_document, alpha)
            + _log_dirichlet_multinomial(of_topic, eta)
        )
    return float(logsumexp(terms))


def _log_dirichlet_multinomial(counts: np.ndarray, prior: np.ndarray) -> float:
    """log of ∏ over rows of ∫ Dir(p | prior) ∏ p^counts."""
    rows = gammaln(prior.sum()) - gammaln(prior.sum() + counts.sum(axis=1))
    return float(np.sum(rows) + np.sum(gammaln(prior + counts) - gammaln(prior)))
