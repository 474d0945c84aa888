"""How topics are trained: what several parameters of the estimator decide together."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from ..annealing import Annealing
from ..annealing.structured import StructuredVI
from ..data.units import Documents
from ..models._base import Recommended
from ..models.topics import LatentDirichlet, SampledLatentDirichlet

_MEAN_FIELD, SAMPLER = LatentDirichlet.local_step_name, SampledLatentDirichlet.local_step_name
# Σ α with which a prior of the topic proportions begins that is learned.
_TOKENS_OF_PRIOR = 5.0
# Each α where topics are sampled, unless documents are short.
_FIRST_PRIOR_OF_SAMPLER = 0.1
# The largest α with which a stream begins, which learns it late, if at all.
_FIRST_PRIOR_OF_STREAM = 0.1
# The default number of batches in a pass, and the smallest and largest number of their documents.
_BATCHES = 4
_DOCUMENTS_PER_BATCH = 128, 1024
# Tokens are not drawn one by one if documents have so many of each of their words, and so many for
# each topic. Mean-field steps then predict about as well, and take no longer for words that occur
# more often ("Many counts" in doc/results/topics_speed.md). Documents of few words, such as rows of
# tables with few columns, need fewer tokens for each topic.
_MANY = 8.0, 100.0
_FEW_WORDS, _MANY_OF_FEW_WORDS = 20.0, (40.0, 25.0)
# The passes of mean-field steps there. After 100 passes, which suffice for texts in minibatches,
# the topics of some tables are still at a worse optimum.
_PASSES_OF_MANY_COUNTS = 300


def has_many_counts(documents: Documents, n_components: int) -> bool:
    """Whether documents have so many tokens that single draws of these bring little."""
    tokens, entries = documents.weighted_whole, documents.weighted_entries
    n_documents = documents.total_weight

    def are_many(of_word: float, of_topic: float) -> bool:
        of_topics = of_topic * n_components * n_documents
        return bool(tokens >= of_word * entries and tokens >= of_topics)

    few_words = entries <= _FEW_WORDS * n_documents
    return are_many(*_MANY) or bool(few_words and are_many(*_MANY_OF_FEW_WORDS))


def with_more_passes(recommended: Recommended) -> dict[str, Any]:
    """Return recommended settings of annealing with the passes that many counts need."""
    structured = {**recommended["structured"], "n_passes": _PASSES_OF_MANY_COUNTS}
    return {**recommended, "structured": structured}


def tokens_per_word(documents: Documents, n_words: int) -> float:
    """Return how many tokens a word has on average, of the words that occur.

    Weights of documents count, and a fraction counts as one token.
    """
    tokens = documents.total(attrgetter("weighted_whole"))
    return float(tokens) / max(1, len(documents.occurring(n_words)))


@dataclass(frozen=True)
class TopicTraining:
    """The parameters of an estimator of topics on which its local step and its batches depend."""

    annealing: str | Annealing
    given_step: str  # ``local_step`` of the estimator
    learning_method: str
    batch_size: int | str
    many_counts: bool = False  # :func:`has_many_counts` of the documents of a fit

    @property
    def is_structured(self) -> bool:
        """Whether local steps see draws."""
        return self.annealing == "structured" or isinstance(self.annealing, StructuredVI)

    @property
    def can_sample(self) -> bool:
        """Whether the settings of the annealing are those with which tokens can keep topics."""
        approximate = getattr(self.annealing, "gradient", "auto") != "exact"
        whole = getattr(self.annealing, "learning_rate", "auto") in ("auto", 1)
        return self.is_structured and approximate and whole

    @property
    def prefers_samples(self) -> bool:
        """Whether tokens keep topics by default.

        A rate of 1, and documents that are all read at once, are for tokens that keep topics.
        """
        rate = getattr(self.annealing, "learning_rate", "auto")
        free = rate == "auto" and self.learning_method == "auto"
        return self.can_sample and not (free and self.many_counts)

    @property
    def is_online(self) -> bool:
        """Whether ``fit`` visits minibatches."""
        if self.learning_method != "auto":
            return self.learning_method == "online"
        samples = self.given_step == "auto" and self.prefers_samples
        return self.is_structured and not samples and self.given_step != SAMPLER

    @property
    def local_step(self) -> str:
        """The local step of ``fit``."""
        if self.given_step != "auto":
            return self.given_step
        return SAMPLER if self.prefers_samples and not self.is_online else _MEAN_FIELD

    @property
    def samples(self) -> bool:
        """Whether ``fit`` draws the topic of each token, which tokens keep from pass to pass."""
        return self.local_step == SAMPLER

    @property
    def local_step_of_stream(self) -> str:
        """The local step of ``partial_fit``, to which tokens come once, and keep no topics."""
        return _MEAN_FIELD if self.samples else self.local_step

    @property
    def needs_more_passes(self) -> bool:
        """Whether structured inference needs more passes by default than texts in minibatches."""
        return self.many_counts and self.local_step == _MEAN_FIELD

    @property
    def collapsed_predictions(self) -> bool:
        """Whether documents are predicted with proportions and topics integrated out."""
        return self.local_step != _MEAN_FIELD

    def first_prior(self, n_components: int) -> float:
        """Return each α with which ``fit`` begins, if it is learned."""
        if self.samples:
            return _FIRST_PRIOR_OF_SAMPLER
        return _TOKENS_OF_PRIOR / n_components

    def first_prior_of_stream(self, n_components: int) -> float:
        """Return each α with which ``partial_fit`` begins, if it is learned."""
        return min(_TOKENS_OF_PRIOR / n_components, _FIRST_PRIOR_OF_STREAM)

    def documents_per_batch(self, n_documents: float) -> int:
        """Return the number of documents of a minibatch, given that of all documents."""
        if isinstance(self.batch_size, str):
            return int(np.clip(-(-n_documents // _BATCHES), *_DOCUMENTS_PER_BATCH))
        return self.batch_size

    def check_stream(self) -> None:
        """Refuse to begin a stream with topics of tokens that are to be kept."""
        if self.given_step == SAMPLER:
            raise ValueError(
                f"local_step={SAMPLER!r} draws the topic of a token again at every pass, and "
                "partial_fit has each document only once. Give local_step='auto', with which "
                "partial_fit makes mean-field steps, or call fit, from which a stream can go on."
            )

    def check(self, strategy: Annealing) -> None:
        """Refuse settings that cannot be combined with topics of tokens that are kept."""
        reason = None
        if not isinstance(strategy, StructuredVI):
            reason = (
                f"draws the topics of tokens, and annealing={self.annealing!r} works with their "
                "expectations. Give annealing='structured'"
            )
        elif self.is_online:
            reason = (
                "keeps the topics of all tokens from pass to pass, and learning_method='online' "
                "does not. Give learning_method='batch'"
            )
        elif strategy.learning_rate != 1:
            reason = (
                "needs parameters that contain all tokens with their last topics, which "
                f"learning_rate={strategy.learning_rate!r} mixes with earlier ones. Give "
                "StructuredVI(learning_rate=1) or 'auto'"
            )
        if reason is not None:
            raise ValueError(f"local_step={SAMPLER!r} {reason}, or local_step='auto'.")
