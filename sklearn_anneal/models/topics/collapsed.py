"""Models with the proportions θ integrated out: CVB0, and Gibbs sampling within documents.

Given the topics B_wk = exp{x (E log β_kw − m_w)}, each token is assigned given all other tokens of
its document, whose numbers n_k by topic stand in the place of θ,

    φ_wk ∝ (n_k − φ_wk + α_k)^x B_wk,    n_k = Σ_w c_w φ_wk,

by expected numbers (CVB0; Asuncion, Welling, Smyth and Teh 2009, On smoothing and inference for
topic models), or by drawn ones (Griffiths and Steyvers 2004), of which φ is the mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from ...data.units import Documents
from ...parallel import kept_memory
from .._base import LocalStep, compiled
from .model import OF_LOCAL_TEMPERATURES, LatentDirichlet
from .tables import WORDS_OF_PART, tables, words_of_task
from .visit import NO_MATRIX, NOTHING, TOPICS, Addends, LocalStart, TopicsVisit

_NOISELESS = "topic_word_without_noise"
# Sweeps of the Gibbs sampler over a document: first those of the burn-in, which are discarded,
# then those whose assignments are averaged.
_GIBBS_SWEEPS = (10, 20)

kernels = partial(compiled, "assigned_tokens")


@dataclass(frozen=True)
class CollapsedVisit(TopicsVisit):
    """A visit whose local steps assign the tokens of a document one after another.

    No bound rises by such steps.
    """

    gives_bound = False

    def kernel(self, local: LocalStart) -> tuple[Any, tuple]:
        """Return the kernel, and the arguments that say how it iterates."""
        raise NotImplementedError

    def step(
        self, units: Documents, noise: np.ndarray | None = None, local: Any = None
    ) -> LocalStep:
        """Assign the tokens of documents.

        The statistics lack the factor s, and the energy lacks Σ S E log β. Both depend on a word
        and a topic alone, so that :meth:`finish` adds them once, to the sum over all documents.
        """
        model, t = self.model, self.t
        shape = self.expected.table.shape
        out = kept_memory.zeros(shape) if self.statistics else NO_MATRIX
        # The energy is computed from statistics without noise, even if the result has noise.
        noiseless = NO_MATRIX if noise is None else kept_memory.zeros(shape)
        theta = sums = NOTHING
        if self.bound or model.learn_doc_topic_prior:
            theta = kept_memory.zeros_apart(model.n_components + 2)
        if self.bound:
            sums = kept_memory.zeros_apart(4)
        gamma = self.array_of_gamma(units, local)
        kernel, how = self.kernel(local)
        kernel(
            *self.arrays(units, model.dtype),
            *(*self.expected, model.doc_topic_prior),
            *(float(t.local), float(t.statistics), float(t.prior)),
            *(local.gamma is not None, *how),
            NOTHING if units.weights is None else units.weights,
            NOTHING if noise is None else np.asarray(noise, dtype=np.float64),
            *(gamma, out, noiseless, theta, sums),
        )
        step = self.result(units, Addends([out]), theta, sums, gamma)
        if noise is not None and self.separate_noise:
            step.deviation = {TOPICS: cast(Any, Addends([out]))}
            step.statistics[TOPICS] = cast(Any, Addends([noiseless]))
        elif noise is not None:
            step.statistics[_NOISELESS] = cast(Any, Addends([noiseless]))
        return step

    def finish(self, step: LocalStep) -> LocalStep:
        """Complete the statistics of all chunks together, with noise and without."""
        if not self.statistics:
            return super().finish(replace(step, statistics={}))
        noiseless = step.statistics.pop(_NOISELESS, None)
        energy = self._complete(step.statistics)
        if noiseless is not None:
            energy = self._complete({TOPICS: noiseless})
        if step.deviation is not None:
            self._complete(step.deviation)
        step.energy += energy
        return super().finish(step)

    def _complete(self, statistics: dict[str, Any]) -> float:
        """Add up the statistics of all chunks, and multiply them by s.

        Returns Σ S E log β, or 0 if the bound is not wanted. The threads that share the work do not
        change the order of sums.
        """
        addends, (table, largest) = statistics[TOPICS], self.expected
        total, n = addends.place(), len(table)
        x, factor = float(self.t.local), float(self.t.statistics)
        energies = np.zeros(-(-n // WORDS_OF_PART))

        def complete(parts: slice) -> None:
            rows = slice(WORDS_OF_PART * parts.start, WORDS_OF_PART * parts.stop)
            addends.add_up(rows, but_last=True)
            tables().expected_statistics(
                *(table[rows], largest[rows] if self.bound else NOTHING, x, factor, 0),
                *(addends.last(rows), total[rows], WORDS_OF_PART, energies[parts]),
            )

        at_least = max(1, words_of_task(table.shape[1]) // WORDS_OF_PART)
        self.workers.share(complete, len(energies), at_least)
        statistics[TOPICS] = total
        return float(energies.sum())


@dataclass(frozen=True)
class CVB0Visit(CollapsedVisit):
    """A visit by collapsed variational Bayes of order zero."""

    def kernel(self, local: LocalStart) -> tuple[Any, tuple]:
        return kernels().collapsed, (local.n_iter, self.model.mean_change_tol)


@dataclass(frozen=True)
class GibbsVisit(CollapsedVisit):
    """A visit by Gibbs sampling within documents, at given topics."""

    def start(
        self, units: Documents, local: Any, exploring: bool, noise: float, rng: np.random.Generator
    ) -> Any:
        seed = int(rng.integers(2**62))
        return super().start(units, local, exploring, noise, rng)._replace(seed=seed)

    def kernel(self, local: LocalStart) -> tuple[Any, tuple]:
        return kernels().gibbs, (*_GIBBS_SWEEPS, local.seed)


class CollapsedLatentDirichlet(LatentDirichlet):
    """Latent Dirichlet allocation with local steps that integrate proportions out."""

    def capabilities(self) -> dict[str, str | None]:
        reason = (
            "it infers the temperature of a document together with its mean-field "
            f"assignments, which local_step={self.local_step_name!r} does not make; "
            "local_step='mean_field' does"
        )
        return super().capabilities() | dict.fromkeys(OF_LOCAL_TEMPERATURES, reason)


class CVB0LatentDirichlet(CollapsedLatentDirichlet):
    """Latent Dirichlet allocation with local steps by CVB0."""

    local_step_name = "cvb0"
    _visit = CVB0Visit


class GibbsLatentDirichlet(CollapsedLatentDirichlet):
    """Latent Dirichlet allocation with local steps by Gibbs sampling within documents."""

    local_step_name = "gibbs"
    _visit = GibbsVisit
