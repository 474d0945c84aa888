"""Latent Dirichlet allocation: priors, starts, visits, learned priors, and the bound of topics.

θ_d ~ Dir(α), z ~ θ_d, w ~ β_z, β_k ~ Dir(η), and q(β) = Π_k Dir(λ_k), which an update moves to
λ_kw = η_w + S_kw, where S_kw is the expected number of tokens of word w that belong to topic k.
This model infers them by mean-field updates; its subclasses integrate out θ (``collapsed.py``), or
θ and β (``sampled.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike
from scipy.special import gammaln, psi

from ...data.units import Documents
from ...families import (
    STRONG,
    Factor,
    Factors,
    Natural,
    RepeatedDirichlet,
    Tempering,
    UnitTemperatures,
    gammaln_divergence,
    settled,
)
from ...parallel.workers import SEQUENTIAL, Workers
from .._absent_columns import OmitsColumns
from .._base import Block, ConjugateModel
from .._componentwise import Componentwise
from .._streamed import Streamed, least_rows_of_growing_fit
from .absent import AbsentWords
from .corpus import Summary, histogram, make_like_documents
from .draws import TopicsDraw
from .lazy_columns import SparseColumns
from .mean_field import LocallyTemperedVisit, MeanFieldVisit, kernels, tempered
from .tables import (
    WORDS_OF_PART,
    Concentrations,
    Words,
    drawn_topics,
    expected_topics,
    log_topics,
    tables,
    words_of_task,
)
from .visit import TOPICS, TopicsVisit, gamma_of

# Default number of iterations over a document: few at visits that start anew in order to explore,
# many at other visits.
_FEW_ITERATIONS, _MANY_ITERATIONS = 10, 100
# Topics count as equal if their squared distance is below this share of their squared lengths.
_SAME_TOPIC = 1e-6
# Empirical Bayes keeps Dirichlet parameters between these bounds.
_SMALLEST, _LARGEST = 1e-4, 1e3
# A prior of sampled topics that is learned begins with at most this share of the tokens of a
# document. With more, the tokens of short documents hardly keep together until it is learned. So
# does a prior that would be learned if the counts were no fractions, and stays.
_LARGEST_FIRST = 0.3
# Elsewhere a prior that would be learned begins with 5 tokens. In documents with fewer than twice
# as many it has more than a third of the say, so that their tokens, of which a share goes to every
# topic, do not keep together at all. And each topic has a fraction of a count there, from which
# the prior would be learned too high. It has at most this share of the tokens then, and stays.
_SHORT, _LARGEST_OF_SHORT = 10.0, 0.1
# Words that no document has share a column if they are at least this share of the vocabulary.
_ABSENT = 0.5
# Methods of a model that local tempering needs.
OF_LOCAL_TEMPERATURES = "unit_log_partition", "locally_tempered_step"


def _symmetric_divergence(q: np.ndarray, p: float, n_entries: int) -> np.ndarray:
    """KL between symmetric Dirichlet distributions over ``n_entries``, of the shape of ``q``."""
    entries = gammaln_divergence(p, q, p - q)
    totals = gammaln_divergence(n_entries * p, n_entries * q, n_entries * (p - q))
    return n_entries * entries - totals


class LatentDirichlet(
    Componentwise[Summary], OmitsColumns, Streamed, ConjugateModel[Documents, Summary]
):
    """Latent Dirichlet allocation with mean-field steps.

    θ_d ~ Dir(α), β_k ~ Dir(η), z ~ θ_d, w ~ β_z; q(β) = Π_k Dir(λ_k) with the natural
    parameters ``topic_word``, λ of shape (n_components, n_words), laid out word by word in
    memory. Local variables are the Dirichlet parameters γ of the topic proportions.

    Parameters
    ----------
    n_components, n_words : int
    doc_topic_prior : ndarray of shape (n_components,)
        α.
    topic_word_prior : ndarray of shape (n_words,) or (n_components, n_words)
        η.
    learn_doc_topic_prior, learn_topic_word_prior : bool, default=False
        Empirical Bayes for α (entry by entry) and η (one number).
    collapsed_predictions : bool, default=False
        Whether predictions integrate the proportions out (CVB0) instead of updating their
        mean-field distribution.
    max_doc_update_iter : int or None, default=None
    mean_change_tol : float, default=1e-3
    init_params : {"documents", "random"}, default="documents"
    dtype : numpy.dtype, default=float64
        Precision of the local step and of the arrays that the estimator returns.

    Attributes
    ----------
    local_step_name : str
        The ``local_step`` of the estimator.
    divides_tokens : bool
        Whether each token is divided among topics, unlike a token that is drawn to belong to one.
    absent : AbsentWords or None
        The words that no document has, if one column of λ, the last, is the sum of theirs.

    References
    ----------
    Blei, Ng and Jordan (2003), Latent Dirichlet allocation; Hoffman, Blei and Bach (2010), Online
    learning for latent Dirichlet allocation, section 2.
    """

    keeps_sample, adds_counts = False, True
    local_step_name: ClassVar[str] = "mean_field"
    divides_tokens: ClassVar[bool] = True
    absent: AbsentWords | None = None
    _visit: ClassVar[type[TopicsVisit]] = MeanFieldVisit
    recommended = {
        "deterministic": {
            "form": "posterior",
            "initial_temperature": 1.35,
            "schedule": "linear",
            "n_passes": 50,
            "jitter": 0.0,
        },
        "stochastic": {
            "initial_noise": 0.25,
            "schedule": "linear",
            "n_passes": 50,
            "start": "init_params",
        },
        "tempering": {
            "max_temperature": 2.0,
            "n_temperatures": 100,
            "damping": 0.05,
            "n_passes": 50,
        },
        "local_tempering": {"n_temperatures": 100, "n_rounds": 2},
        "svi_plus": {"effective_batch_size": 0.5, "noise": "dirichlet", "schedule": "constant"},
        "structured": {
            "gradient": "approximate",
            "learning_rate": 0.5,
            "n_passes": 100,
            "evaluate_every": 20,
            "learn_priors_after": 0.1,
        },
        "proximity": {"strength": 1e-5, "lag": 5, "learning_rate": 0.5},
    }

    def __init__(
        self,
        n_components: int,
        n_words: int,
        doc_topic_prior: np.ndarray,
        topic_word_prior: np.ndarray,
        learn_doc_topic_prior: bool = False,
        learn_topic_word_prior: bool = False,
        collapsed_predictions: bool = False,
        max_doc_update_iter: int | None = None,
        mean_change_tol: float = 1e-3,
        init_params: str = "documents",
        dtype: DTypeLike = np.float64,
    ):
        self.n_components = int(n_components)
        self.n_words = n_words
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.learn_doc_topic_prior = learn_doc_topic_prior
        self.learn_topic_word_prior = learn_topic_word_prior
        self.collapsed_predictions = collapsed_predictions
        self.max_doc_update_iter = max_doc_update_iter
        self.mean_change_tol = mean_change_tol
        self.init_params = init_params
        self.dtype = np.dtype(dtype)
        self.mean_length = self.mass_of_token = np.nan
        # Whether α stays as it is because documents are short.
        self.keeps_alpha = False

    def capabilities(self) -> dict[str, str | None]:
        can = "draws", "log_partition", "assignments", "exact_gradient_statistics"
        return dict.fromkeys((*can, *OF_LOCAL_TEMPERATURES))

    def factors(self) -> Factors:
        return Factors([Factor(RepeatedDirichlet(self._n_last), {"concentration": TOPICS})])

    @property
    def _n_last(self) -> int:
        """The number of words that the last column stands for."""
        return 1 if self.absent is None else self.absent.number

    @property
    def _n_columns(self) -> int:
        """The number of columns of λ."""
        return self.n_words if self.absent is None else self.absent.n_columns

    @property
    def _eta(self) -> np.ndarray:
        """η of the columns of λ."""
        return self._summed(self.topic_word_prior)

    def _summed(self, of_words: np.ndarray) -> np.ndarray:
        """Return values of words, along the last axis, as those of the columns of λ."""
        return of_words if self.absent is None else self.absent.summed(of_words)

    def _columns_of(self, units: Documents) -> np.ndarray:
        """Return the columns of λ of the words that occur in documents."""
        words = units.occurring(self.n_words)
        return words if self.absent is None else self.absent.columns_of(words)

    def operations(self, units: Documents) -> float:
        n_iter = self.max_doc_update_iter or _FEW_ITERATIONS
        return 4.0 * self.n_components * n_iter * float(units.indptr[-1])

    # Data, prior and starts

    def least_weight_of_fit(self, summary: Summary) -> float:
        return least_rows_of_growing_fit(self.n_components)

    def shares_of_components(self, units: Documents, q: Natural) -> np.ndarray:
        visit = self.visit(q, units, evaluation=True)
        found = gamma_of(visit, units, SEQUENTIAL)
        shares: np.ndarray = found / found.sum(axis=1, keepdims=True)
        return shares

    def summary(self, units: Documents) -> Summary:
        weights = np.ones(units.n_units) if units.weights is None else units.weights
        whole = weighted_whole = 0.0
        if self.learned_names or not self.divides_tokens:
            whole = float(units.whole_lengths[weights > 0].sum())
            weighted_whole = float(weights @ units.whole_lengths)
        return Summary(
            units.total_weight,
            units.n_observations,
            *histogram(units.lengths, weights),
            whole,
            weighted_whole,
        )

    def resolved(self, summary: Summary, hold_units: bool = False) -> Self:
        model = copy(self)
        model.mean_length = summary.mean_length
        model.mass_of_token = summary.tokens / max(summary.whole_tokens, 1.0)
        low = summary.are_light or not self.divides_tokens
        short = not low and summary.mean_length < _SHORT
        if (low or short) and self.learn_doc_topic_prior:
            share = _LARGEST_OF_SHORT if short else _LARGEST_FIRST
            most = max(share * summary.mean_length / self.n_components, _SMALLEST)
            model.doc_topic_prior = np.minimum(self.doc_topic_prior, most)
            model.keeps_alpha = short
        return model

    def prior(self, summary: Summary) -> Natural:
        # One row serves all topics. An array of the full shape would make a pickle K times as
        # large, and λ would take over its memory order instead of being laid out word by word.
        return {TOPICS: np.atleast_2d(self._eta)}

    def without_absent(self, units: Documents) -> LatentDirichlet:
        occurring = units.occurring(self.n_words)
        found, eta = AbsentWords(occurring, self.n_words), self.topic_word_prior
        if found.number < max(2, _ABSENT * self.n_words) or not found.are_alike(eta):
            return self
        model = copy(self)
        model.absent = found
        return model

    def with_absent(self, q: Natural, prior: Natural) -> tuple[LatentDirichlet, Natural, Natural]:
        if self.absent is None:
            return self, q, prior
        model = copy(self)
        model.absent = None
        topics = self.absent.restored(q[TOPICS], self.topic_word_prior)
        return model, {TOPICS: topics}, model.prior(None)  # type: ignore[arg-type]

    def init(
        self,
        units: Documents,
        summary: Summary,
        prior: Natural,
        random_state: np.random.RandomState,
    ) -> Natural:
        from_documents = self.init_params == "documents" and self.topic_word_prior.ndim == 1
        if from_documents:
            start = np.ones((self._n_columns, self.n_components)).T
            start[:, -1] = self._n_last
            # The draws of the topics of tokens are random enough, and random factors take long.
            # Those of words that the documents do not have would tell no topics apart.
            if self.divides_tokens:
                columns = self._columns_of(units)
                for topic in start:
                    topic[columns] = random_state.gamma(100.0, 0.01, len(columns))
        else:
            start = np.empty((self.n_components, self._n_columns))
            for topic in start:
                # scikit-learn's class makes the same draws, with the numbers in the same order.
                topic[:] = self._summed(random_state.gamma(100.0, 0.01, self.n_words))
        if self.topic_word_prior.ndim == 2:
            # Topics that are alike at the start would share the seeds of all of them, and those of
            # other documents would compete with the seeds.
            start += self._eta
        elif from_documents:
            of_topics = start, self._eta, self.absent
            make_like_documents(of_topics, units, summary, random_state)
        return {TOPICS: np.asfortranarray(start)}

    def started_at(
        self, given: dict[str, Any], usual: Callable[[], Natural], summary: Summary, prior: Natural
    ) -> Natural:
        """Return the given λ itself: the ``components`` are pseudo-counts of words."""
        return {TOPICS: np.array(given["components"], order="F")}

    def exchangeable(self, prior: Natural, order: np.ndarray) -> bool:
        alpha, eta = self.doc_topic_prior, self.topic_word_prior
        same = self.learn_doc_topic_prior or np.array_equal(alpha[order], alpha)
        return bool(same and (eta.ndim == 1 or np.array_equal(eta[order], eta)))

    def reordered(
        self, q: Natural, prior: Natural, order: np.ndarray
    ) -> tuple[Self, Natural, Natural]:
        model = copy(self)
        model.doc_topic_prior = self.doc_topic_prior[order]
        return model, prior, {TOPICS: np.asfortranarray(np.asarray(q[TOPICS])[order])}

    def random_natural(
        self,
        summary: Summary,
        prior: Natural,
        rng: np.random.Generator,
        block: Block | None = None,
    ) -> Natural:
        """Return λ = η + (tokens / K) Dir(1), with one draw of Dir(1) for every topic.

        It is the random parameter η of stochastic annealing.
        """

        def draw(n_words: int) -> np.ndarray:
            return rng.standard_exponential((n_words, self.n_components))

        absent = self.absent
        counts = draw(self.n_words) if absent is None else absent.summed_draws(draw)
        tokens = summary.mean_length * summary.weight
        counts *= tokens / self.n_components / counts.sum(axis=0)
        counts += np.atleast_2d(self._eta).T
        return {TOPICS: counts.T}

    # Visits

    def visit(
        self,
        q: Natural,
        units: Documents,
        t: Tempering = Tempering(),  # noqa: B008
        *,
        rng: np.random.Generator | None = None,
        unit_temperatures: UnitTemperatures | None = None,
        separate_noise: bool = False,
        evaluation: bool = False,
        workers: Workers = SEQUENTIAL,
        **others: Any,
    ) -> TopicsVisit:
        words = Words.of(units, q[TOPICS], self.absent)
        expected = Concentrations.of(q[TOPICS], words)
        how: dict[str, Any] = {"words": words, "statistics": not evaluation, "workers": workers}
        if unit_temperatures is not None:
            topics = log_topics(expected)
            how["unit_temperatures"] = unit_temperatures
            return LocallyTemperedVisit(self, topics, t, separate_noise=separate_noise, **how)
        if rng is not None:
            how["draw"] = draw = TopicsDraw.of(expected, words.occurring, q[TOPICS], rng, workers)
            topics = drawn_topics(draw, expected, self.dtype, float(t.local), workers)
        else:
            topics = expected_topics(expected, self.dtype, float(t.local), workers)
        # Only mean-field iterations maximise a bound, so that it is computed with them even if
        # the model is fitted with another local step.
        kind = MeanFieldVisit if evaluation else self._visit
        return kind(self, topics, t, separate_noise=separate_noise, **how)

    def n_iter(self, exploring: bool) -> int:
        """Return the largest number of iterations over a document.

        While ``exploring``, every visit starts anew, and few iterations per visit suffice.
        """
        if self.max_doc_update_iter is not None:
            return self.max_doc_update_iter
        return _FEW_ITERATIONS if exploring else _MANY_ITERATIONS

    def block_statistics(self, block: Block, raw: Natural, q: Natural) -> Natural:
        counts: Any = raw[TOPICS]
        if isinstance(counts, SparseColumns):
            counts = counts.head(self.n_components)
        else:
            counts = counts[:, : self.n_components].T
        return {TOPICS: counts}

    # Hyperparameters

    @property
    def learned_names(self) -> list[str]:
        """The priors that are learned, as parameters of the estimator."""
        learned = {
            "doc_topic_prior": self.learn_doc_topic_prior,
            "topic_word_prior": self.learn_topic_word_prior,
        }
        return [name for name, learns in learned.items() if learns]

    def learned(
        self,
        q: Natural,
        prior: Natural,
        step: Any,
        rho: float,
        scale: float,
        late: bool = True,
    ) -> tuple[Self, Natural, Natural]:
        """Make one step of Minka's fixed-point iteration for each prior that is learned.

        With γ = α + n and λ = η + S, the counts n and S are treated as Pólya samples, and the
        priors move towards those under which these samples are most probable. This maximises the
        bound over priors, γ and λ together. Maximising it over the priors for fixed γ and λ would
        converge to the same point, but much more slowly.
        """
        if not late or not (self.learn_doc_topic_prior or self.learn_topic_word_prior):
            return self, prior, q
        model, k, v = copy(self), self.n_components, self.n_words
        if self.learn_doc_topic_prior and not self.keeps_alpha:
            *expected_log, n, normalizer = step.statistics["doc_topic"]
            alpha = self.doc_topic_prior
            better = fixed_point(
                alpha, np.array(expected_log) + normalizer, normalizer, n, alpha.sum()
            )
            model.doc_topic_prior = (1.0 - rho) * alpha + rho * better
        if self.learn_topic_word_prior:
            q, eta = settled(q), self.topic_word_prior
            topics = log_topics(Concentrations.of(q[TOPICS]))
            normalizer = psi(q[TOPICS].sum(axis=1)).sum()
            logs = topics.table[:, :k].sum() + k * topics.largest.sum()
            logs += self._n_columns * normalizer
            if self.absent is not None:
                last, n = q[TOPICS][:, -1], self._n_last
                logs += (n * psi(last / n) - psi(last)).sum()
            better = fixed_point(eta[:1], logs / v, normalizer, k, v * eta[0])
            model.topic_word_prior = np.full(v, better[0])
            q = {TOPICS: q[TOPICS] + self._summed(model.topic_word_prior - eta)}
            prior = model.prior(None)  # type: ignore[arg-type]
        return model, prior, q

    def kl(
        self, q: Natural, prior: Natural, known: Any = None, workers: Workers = SEQUENTIAL
    ) -> float:
        """Return Σ_k KL(Dir(λ_k) ‖ Dir(η)) in nats.

        The term of a topic is log Γ(Σ λ) − Σ log Γ(λ) + Σ (λ − η) {ψ(λ) − ψ(Σ λ)}, minus the same
        constant of η for all topics. Its sums over words have one addend for each part of these,
        and one for all absent words.
        """
        eta = self.topic_word_prior if self.absent is None else prior[TOPICS][0]
        if self.topic_word_prior.ndim == 2 or eta.sum() > STRONG:
            return super().kl(q, prior)
        concentration, last = np.ascontiguousarray(q[TOPICS].T), self._n_columns
        if self.absent is not None:
            last -= 1
        parts = np.zeros((-(-last // WORDS_OF_PART), 3, self.n_components))

        def add(which: slice) -> None:
            for i in range(which.start, which.stop):
                part = slice(WORDS_OF_PART * i, min(WORDS_OF_PART * (i + 1), last))
                kernels().dirichlet_sums(concentration[part], eta[part], parts[i])

        workers.share(
            add, len(parts), max(1, words_of_task(self.n_components) // (4 * WORDS_OF_PART))
        )
        log_gammas, products, total = parts.sum(axis=0)
        of_prior = gammaln(eta[:last]).sum()
        if self.absent is not None:
            each, n = concentration[-1] / self._n_last, self._n_last
            log_gammas += n * gammaln(each)
            products += (concentration[-1] - eta[-1]) * psi(each)
            total += concentration[-1]
            of_prior += n * gammaln(eta[-1] / n)
        per_topic = products - psi(total) * (total - eta.sum()) - log_gammas + gammaln(total)
        constant = of_prior - gammaln(eta.sum())
        return float(per_topic.sum() + self.n_components * constant)

    # Operations that only some annealing methods need

    def unit_log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """Return a_k(x) = log Σ_v exp(x E log β_kv) − x log Σ_v exp(E log β_kv) in nats.

        The shape is (n_temperatures, n_components), and x lies on the grid m/M. The second term
        makes a_k(1) zero, which is the log normaliser of an untempered topic, so that a document
        at T = 1 gets the plain local step.
        """
        topics = log_topics(Concentrations.of(q[TOPICS]))
        table = topics.table
        table += topics.largest[:, None]
        table /= len(x)
        np.maximum(table, -700.0, out=table)
        tables().exponentiate(table, table, 1.0)
        sums = np.zeros((len(x), table.shape[1]))
        tempered().tempered_topic_sums(table, len(x), sums)
        log_sums = np.log(sums[:, : self.n_components])
        return np.ascontiguousarray(log_sums - np.multiply.outer(x, log_sums[-1]))

    def log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """Return log C(x) in nats, of the shape of ``x``.

        It is approximated by the mean-field bound at the point where all topics are equal, with
        the priors α and η replaced by their means over topics and words.
        """
        k, v = self.n_components, self.n_words
        alpha, eta = self.doc_topic_prior.mean(), self.topic_word_prior.mean()
        documents = summary.documents * (summary.weight / summary.documents.sum())
        tokens = float(documents @ summary.lengths)
        n, x = summary.lengths, np.asarray(x, dtype=np.float64)[:, None]
        # A document of n tokens has γ = α + n x / K of each topic, and adds n x E log θ − KL.
        g = alpha + n * x / k
        log_theta = psi(g) - psi(k * g)
        if k * alpha > STRONG:
            per_document = n * x * log_theta - _symmetric_divergence(g, alpha, k)
        else:
            per_document = (
                (n * x + k * (alpha - g)) * log_theta
                + k * (gammaln(g) - gammaln(alpha))
                - gammaln(k * g)
                + gammaln(k * alpha)
            )
        # A topic has λ = η + N x / (K V) of each word, and adds −KL.
        x = x[:, 0]
        length = eta + tokens * x / (k * v)
        log_beta = psi(length) - psi(v * length)
        if v * eta > STRONG:
            per_topic = -_symmetric_divergence(length, eta, v)
        else:
            per_topic = (
                v * (eta - length) * log_beta
                + v * (gammaln(length) - gammaln(eta))
                - gammaln(v * length)
                + gammaln(v * eta)
            )
        words = tokens * (x * log_beta + np.log(k * v))
        return per_document @ documents + words + k * per_topic

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Multiply the expected counts of words by exp(``size`` · N(0, 1))."""
        topics, floor = q[TOPICS], prior[TOPICS]
        factor = np.exp(size * rng.standard_normal((self.n_words, self.n_components))).T
        return {TOPICS: floor + np.maximum(topics - floor, 0.0) * factor}

    # Functions of the fitted parameters

    def expected_counts(self, q: Natural, prior: Natural) -> np.ndarray:
        """Return the expected number of tokens of each topic, of shape (n_components,)."""
        return (q[TOPICS] - prior[TOPICS]).sum(axis=1)

    def coinciding(self, q: Natural, summary: Summary, prior: Natural) -> list[tuple[int, int]]:
        used = np.flatnonzero(self.expected_counts(q, prior) >= 1)
        topics = q[TOPICS][used]
        topics /= topics.sum(axis=1, keepdims=True)
        # The squares of n equal probabilities have the sum of that of their sum, divided by n.
        topics[:, -1] /= np.sqrt(self._n_last)
        products = topics @ topics.T
        size = np.diag(products)
        distance = size[:, None] + size - 2 * products
        same = np.triu(distance <= _SAME_TOPIC * np.minimum.outer(size, size), 1)
        return [(int(used[i]), int(used[j])) for i, j in np.argwhere(same)]


def fixed_point(
    parameter: np.ndarray, digammas: np.ndarray, normalizers: float, n: float, total: float
) -> np.ndarray:
    """Make one fixed-point step for Pólya samples (Minka 2000, Estimating a Dirichlet, Eq. 55).

    Over the ``n`` samples, ``digammas`` is Σ ψ(parameter + count) and ``normalizers`` is
    Σ ψ(total + size).
    """
    if n == 0:
        return parameter
    up = digammas - n * psi(parameter)
    down = normalizers - n * psi(total)
    # Without any count, both are zero up to rounding, and their ratio would be arbitrary.
    factor = up / down if down > 0 else np.ones_like(up)
    return np.clip(parameter * np.maximum(factor, 0.0), _SMALLEST, _LARGEST)
