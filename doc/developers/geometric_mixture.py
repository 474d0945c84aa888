"""A mixture of geometric counts: the worked example of a new model and its estimator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from scipy.special import betaln, logsumexp, softmax
from sklearn.cluster import KMeans
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_non_negative, validate_data

from sklearn_anneal.data.units import Rows
from sklearn_anneal.estimators._base import BaseAnnealed
from sklearn_anneal.estimators._validation import refuse_masked
from sklearn_anneal.families import Beta, Dirichlet, Factor, Factors
from sklearn_anneal.models._base import ConjugateModel, DataSummary, LocalStep, coinciding


@dataclass(frozen=True)
class Summary(DataSummary):
    """What the model has to know of all data.

    Attributes
    ----------
    weight : float
        N = Σ w of all data, in a stream of those yet to come too.
    seen : float
        Σ w of the data that the total is of.
    total : ndarray of shape (n_features,)
        Σ w x.
    center : ndarray of shape (n_features,)
        The origin of the model's coordinates. Counts must not be shifted, so that it is zero.
    """

    weight: float
    seen: float
    total: np.ndarray
    center: np.ndarray

    def merge(self, other):
        """The summary of both data sets."""
        seen = self.seen + other.seen
        return replace(self, weight=seen, seen=seen, total=self.total + other.total)

    def continued(self, other):
        """The same summary: priors stay when a fit goes on with other data."""
        return self


class GeometricMixture(ConjugateModel):
    """Mixture whose component k draws column d from a geometric distribution.

    p(x, z = k | β) = π_k Π_d v_kd (1 − v_kd)^x_d for x_d = 0, 1, 2, …, and q(β) is a Dirichlet
    distribution of the weights π times beta distributions of the success probabilities v. The
    natural parameters are ``weights`` (K,), ``a`` and ``b`` (K, D).
    """

    def __init__(self, n_components, weight_prior, a_prior, b_prior):
        self.n_components = n_components
        self.weight_prior = weight_prior
        self.a_prior = a_prior
        self.b_prior = b_prior

    def capabilities(self):
        can = dict.fromkeys(("draws", "log_partition", "assignments", "assignment_entropy"))
        return can | {"locally_tempered_step": "its local step has one temperature for all rows"}

    def factors(self):
        weights = Factor(Dirichlet(), {"concentration": "weights"})
        return Factors([weights, Factor(Beta(), {"a": "a", "b": "b"})])

    def operations(self, units):
        return 4.0 * units.X.size * self.n_components

    # Data, prior and starts

    def summary(self, units):
        w = np.ones(units.n_units) if units.weights is None else units.weights
        total = w @ units.X
        return Summary(float(w.sum()), float(w.sum()), total, np.zeros_like(total))

    def prior(self, summary):
        k, d = self.n_components, len(summary.total)
        a, b = np.full((k, d), float(self.a_prior)), np.full((k, d), float(self.b_prior))
        return {"weights": np.full(k, float(self.weight_prior)), "a": a, "b": b}

    def init(self, units, summary, prior, random_state):
        kmeans = KMeans(self.n_components, n_init=1, random_state=random_state)
        labels = kmeans.fit(np.log1p(units.X), sample_weight=units.weights).labels_
        scale = summary.weight / units.total_weight  # of a subset to all data
        return self._posterior(
            raw_statistics(units, np.eye(self.n_components)[labels], scale), prior
        )

    def random_natural(self, summary, prior, rng, block=None):
        count = summary.weight * rng.dirichlet(np.ones(self.n_components))
        means = summary.total / summary.seen * rng.standard_exponential(prior["a"].shape)
        return self._posterior({"count": count, "total": count[:, None] * means}, prior)

    def _posterior(self, raw, prior):
        stats = self.block_statistics(self.blocks[0], raw, prior)
        return {key: prior[key] + stats[key] for key in prior}

    # The local step

    def expectations(self, q, rng=None):
        """log π (K,), log v and log(1 − v) (K, D): expected, or those of one draw."""
        weights, beta = {"concentration": q["weights"]}, {"a": q["a"], "b": q["b"]}
        if rng is None:
            v = Beta().expectations(beta)
            return Dirichlet().expectations(weights)["concentration"], v["a"], v["b"]
        log_weights = Dirichlet().sample(weights, rng)["log_probabilities"]
        v = Beta().sample(beta, rng)
        return log_weights, v["log_value"], v["log_complement"]

    def log_joint(self, units, expected):
        """log p(x, z = k | β) as the expectations have it, (n_units, K)."""
        log_weights, log_v, log_complement = expected
        return log_weights + log_v.sum(axis=1) + units.X @ log_complement.T

    def local_step(self, units, expected, t, noise=None, separate_noise=False):
        joint = self.log_joint(units, expected)
        r = softmax(t.local * joint, axis=1)
        energies = (r * joint).sum(axis=1)
        # log Z = x E log p(x, z | β) + H[q(z)], with x = t.local.
        entropies = logsumexp(t.local * joint, axis=1) - t.local * energies
        w = np.ones(units.n_units) if units.weights is None else units.weights
        noisy = raw_statistics(units, r, t.statistics * (1.0 if noise is None else noise))
        if not separate_noise:
            return LocalStep(noisy, float(w @ energies), float(w @ entropies))
        plain = raw_statistics(units, r, t.statistics)
        return LocalStep(plain, float(w @ energies), float(w @ entropies), deviation=noisy)

    def block_statistics(self, block, raw, q):
        successes = np.broadcast_to(raw["count"][:, None], raw["total"].shape)
        return {"weights": raw["count"], "a": successes, "b": raw["total"]}

    # What annealing methods and warnings ask for

    def jitter(self, q, size, rng, prior):
        return {key: c * np.exp(size * rng.standard_normal(c.shape)) for key, c in q.items()}

    def log_partition(self, x, summary, q):
        """N log c(x), c(x) being the sum of p(row, z | β)^x over all rows of counts and all z.

        The expectations of log β are not those of a normalised p, so that c(1)^x is taken off.
        """
        log_weights, log_v, log_complement = self.expectations(q)
        x = np.append(x, 1.0)[:, None, None]
        columns = x * log_v - np.log(-np.expm1(x * log_complement))
        log_c = logsumexp(x[:, 0] * log_weights + columns.sum(axis=2), axis=1)
        return summary.weight * (log_c[:-1] - x[:-1, 0, 0] * log_c[-1])

    def coinciding(self, q, summary, prior):
        used = np.flatnonzero(q["weights"] - prior["weights"] >= 1)
        return coinciding(np.log(q["b"] / q["a"]), used)


def raw_statistics(units, r, factor):
    """Expected numbers of rows (K,) and their sums (K, D), given responsibilities (n_units, K)."""
    r = r * np.reshape(factor if units.weights is None else factor * units.weights, (-1, 1))
    return {"count": r.sum(axis=0), "total": r.T @ units.X}


class AnnealedGeometricMixture(BaseAnnealed):
    """Bayesian mixture of geometric counts, fitted by annealed variational inference."""

    _parameter_constraints = {
        **BaseAnnealed._parameter_constraints,
        "weight_prior": [Interval(Real, 0.0, None, closed="neither")],
        "a_prior": [Interval(Real, 0.0, None, closed="neither")],
        "b_prior": [Interval(Real, 0.0, None, closed="neither")],
    }
    _model_parameters = ("n_components", "weight_prior", "a_prior", "b_prior")

    def __init__(
        self,
        n_components=2,
        *,
        annealing="deterministic",
        weight_prior=1.0,
        a_prior=1.0,
        b_prior=1.0,
        tol=1e-6,
        max_iter=200,
        n_init=1,
        restarts="full",
        effort="auto",
        batch_size=None,
        learning_offset=10.0,
        learning_decay=0.7,
        total_samples=None,
        n_jobs=None,
        random_state=None,
        warm_start=False,
        verbose=False,
        verbose_interval=10,
    ):
        self.n_components = n_components
        self.annealing = annealing
        self.weight_prior = weight_prior
        self.a_prior = a_prior
        self.b_prior = b_prior
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.restarts = restarts
        self.effort = effort
        self.batch_size = batch_size
        self.learning_offset = learning_offset
        self.learning_decay = learning_decay
        self.total_samples = total_samples
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

    # What the base class asks for

    def _validate_data(self, X, *, reset, ensure_min_samples=2):
        refuse_masked(X, "X")
        kinds = [np.float64, np.float32]
        X = validate_data(self, X, reset=reset, dtype=kinds, ensure_min_samples=ensure_min_samples)
        check_non_negative(X, type(self).__name__)
        return X

    def _make_units(self, X, sample_weight):
        return Rows(X, sample_weight)

    def _make_model(self, X, units):
        return GeometricMixture(self.n_components, self.weight_prior, self.a_prior, self.b_prior)

    def _fitted_attributes(self, ctx):
        q = ctx.q
        return {
            "weights_": q["weights"] / q["weights"].sum(),
            "success_probabilities_": q["a"] / (q["a"] + q["b"]),
        }

    # What a user calls

    def _fitted_and_units(self, X):
        ctx = self._context()
        return ctx, Rows(self._validate_data(X, reset=False, ensure_min_samples=1))

    def transform(self, X):
        """Responsibilities of the components for each row, (n_samples, n_components)."""
        ctx, units = self._fitted_and_units(X)
        joint = ctx.model.log_joint(units, ctx.model.expectations(ctx.q))
        return softmax(joint, axis=1).astype(units.X.dtype, copy=False)

    def predict(self, X):
        """Most probable component of each row, (n_samples,)."""
        return self.transform(X).argmax(axis=1)

    def score_samples(self, X):
        """Log posterior predictive probability of each row, (n_samples,), in nats."""
        ctx, units = self._fitted_and_units(X)
        a, b = ctx.q["a"], ctx.q["b"]
        columns = betaln(a + 1, b + units.X[:, None, :]) - betaln(a, b)
        return logsumexp(columns.sum(axis=2) + np.log(self.weights_), axis=1)

    def score(self, X, y=None):
        """Mean log predictive probability per row, in nats."""
        return float(self.score_samples(X).mean())
