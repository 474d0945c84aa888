"""Gaussian components of mixtures, whose local step is one kernel.

A block of rows becomes quadratic features f(x) = [x_i x_j, x, 1]. The kernel then computes

    L_nk = c_k · f(x_n),  R_nk ∝ exp{x L_nk},  S_k += Σ_n R_nk f(x_n),

where c_k has the coefficients of E log p(x, z = k), which include the weights of the components.
Rows with missing cells have no such features; a kernel of their own makes their steps
(``_missing_cells.py``), unless random factors or temperatures of single rows ask for the steps of
all components. Those are the steps of many columns as well, where products of matrices are faster
(``_wide_gaussians.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ...data.units import Rows
from ...families import STRONG, Natural, Tempering, UnitTemperatures
from ...families.wishart import Precisions
from .._base import Known, LocalStep, Recommended, vector
from .._mixture_steps import partition_polynomials, rows_at_a_time, values_at
from . import _missing_cells as missing_cells
from . import _narrow_gaussians as narrow
from ._base import Joint, Next
from ._features import (
    FEATURE_KINDS,
    Features,
    FeatureSums,
    LastSums,
    kernels,
    rows_per_block,
)
from ._missing_cells import Halves, RowVolume, tempered_volume
from ._moments import Summary
from ._settled_rows import Origin, settled_step
from .gaussian import GaussianComponents

if TYPE_CHECKING:
    from ..mixture import Summary as MixtureSummary

_NO_MATRIX = np.empty((0, 0))


class RowPartition(NamedTuple):
    """log c(x) of rows with and without missing cells, in nats."""

    x: np.ndarray  # the grid of inverse temperatures, (M,)
    mixing: np.ndarray  # the part of log c(x) that belongs to the weights of the components, (M,)
    whole: np.ndarray  # log c(x) of a row without missing cells, (M,)
    volume: RowVolume  # the other part, for rows with missing cells

    def of(self, rows: Rows) -> np.ndarray:
        """Return log c(x) of each row, in which the observed cells count, (n_rows, M)."""
        n_cells, log_det = self.volume.of_rows(rows)
        return tempered_volume(self.x, n_cells[:, None], log_det[:, None]) + self.mixing

    def mean(self, summary: MixtureSummary) -> np.ndarray:
        """Return the mean of log c(x) over the rows of a summary of a mixture, (M,)."""
        if summary.components.cells is None:
            return self.whole
        return tempered_volume(self.x, *self.volume.mean(summary.components)) + self.mixing


class FactoredGaussian(GaussianComponents):
    """Gaussian components whose matrices are factorised once for each visit.

    Parameters are those of :class:`GaussianComponents`.
    """

    def joint_expectations(
        self,
        q: Natural,
        log_weights: np.ndarray,
        rng: np.random.Generator | None = None,
        known: Known | None = None,
    ) -> Joint:
        if known is None:
            return Joint(self.expectations(q, rng, log_weights))
        if self.is_narrow:
            return Joint(narrow.features(self, q, known["moments"], log_weights))
        own = self.expectations(q, rng, log_weights, known["moments"])
        return Joint(own._replace(last=known["last"], origin=self._origin(q, known)))

    def _origin(self, q: Natural, known: Known) -> Origin | None:
        """Return the prior and the statistics of which q is made, if a step can use them."""
        return None

    def _from_prior(
        self, q: Natural, prior: Natural, known: Known
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return tr(W₀⁻¹ E Λ) and β₀ (m − m₀)ᵀ E Λ (m − m₀) of the components."""
        of_prior, *found = known.get("from_prior", (None,))
        keys = self._normal_wishart.keys
        if of_prior is None or any(prior[key] is not of_prior[key] for key in keys):
            precision = known["moments"][2]
            found = (
                self._traces_of_prior(prior, precision),
                self._normal_wishart.distances(q, prior, precision),
            )
            known["from_prior"] = (prior, *found)
        traces, distances = found
        return traces, distances

    def known(self, q: Natural, before: Known | None) -> Known | None:
        """Return the moments of q, whose matrices are factorised once for each visit.

        Learning the priors may have factorised those of the next q. Values for the divergence from
        the same prior are kept from visit to visit where there are many columns.
        """
        if not (self.is_narrow or (self.joint and self.is_wide(self.covariance_type))):
            return None
        known = dict(before or {})
        known.pop("raw", None)  # statistics from which no priors were learned
        prior, expected, moments, raw, exact = known.pop("next", Next())
        if moments is None or any(
            q[key] is not x and not np.array_equal(q[key], x) for key, x in expected.items()
        ):
            moments = narrow.moments(self, q) if self.is_narrow else self.moments(q)
            prior, raw, exact = None, None, False
        if self.is_narrow:
            return {"moments": moments, "last": None, "made_of": (None, None)}
        known.pop("from_prior", None)
        own = {"moments": moments, "made_of": (prior, raw), "exact": exact}
        return {**known, **own, "last": known.get("last", LastSums())}

    def kl_given(self, q: Natural, prior: Natural, known: Known) -> float | None:
        if self.is_narrow:
            return narrow.divergence(self, q, prior, known["moments"])
        family, pick = self._normal_wishart, self.factors[0].pick
        q, prior = pick(q), pick(prior)
        same = known.get("prior") is not None
        if not (same and all(known["prior"][key] is prior[key] for key in family.keys)):
            strength, known["log_normalizer"] = family.strength_and_log_normalizer(
                prior, *self.shared_scale
            )
            known["prior"], known["strong"] = prior, bool((strength > STRONG).any())
        if known["strong"]:
            return None
        _, _, precision, log_det = known["moments"]
        log_det = log_det[0] if self.structure.shared else log_det
        traces, distances = self._from_prior(q, prior, known)
        how = precision, log_det, known["log_normalizer"], traces, distances
        return family.kl_given(q, prior, *how)

    def _traces_of_prior(self, prior: Natural, precision: Precisions) -> np.ndarray:
        """Return tr(W₀⁻¹ E Λ) of the components."""
        if self.shared_scale:
            common, factors = self.shared_scale
            return factors * precision.traces(common)
        return precision.traces(self._normal_wishart.to_standard(prior)["inverse_scale"])

    def for_several_chunks(self, expected: Features) -> Features:
        return expected.for_other_rows()

    def with_halves(self, joint: Joint, rows: Rows) -> Joint:
        """Return the joint density for one step of rows, which may have missing cells.

        What their densities have in common with their statistics is computed once.
        """
        if rows.patterns is None or not self.is_wide(joint.own.layout):
            return joint
        gaussians = self.gaussians_of(joint.own)._replace(halves=Halves())
        return joint._replace(own=joint.own._replace(gaussians=gaussians))

    def last_sums(self, expected: Features) -> LastSums | None:
        found: LastSums | None = expected.last
        return found


class FusedGaussian(FactoredGaussian):
    """Gaussian components with a kernel that goes from rows to statistics at once.

    A mixture of them begins where scikit-learn's class does. Parameters are those of
    :class:`GaussianComponents`.
    """

    recommended: ClassVar[Recommended] = {
        "deterministic": {
            "form": "likelihood",
            "initial_temperature": "auto",
            "schedule": "geometric",
            "n_passes": 50,
            "jitter": 0.0,
        },
        "stochastic": {
            "initial_noise": 0.9,
            "schedule": "linear",
            "n_passes": 50,
            "start": "random",
        },
        "tempering": {"max_temperature": 10.0, "n_temperatures": 100, "damping": 0.05},
        "local_tempering": {"n_temperatures": 100, "n_rounds": 2},
        "svi_plus": {"effective_batch_size": 0.25, "noise": "dirichlet", "schedule": "linear"},
        "structured": {"gradient": "approximate"},
        "proximity": {"strength": 0.003, "lag": 5, "learning_rate": 0.5},
    }
    starts_like_scikit_learn = True

    # Starts

    def expectations_of_start(
        self, rows: Rows, prior: Natural, summary: Summary | None = None
    ) -> Features:
        if rows.patterns is None or summary is None:
            return super().expectations_of_start(rows, prior)
        return self.of_all_rows(summary)

    def posterior_of_single_rows(
        self, raw: FeatureSums, prior: Natural, summary: Summary, n_rows: float
    ) -> Natural:
        """Return λ₀ + S, in which rows without a component count for the shared covariance.

        When components start from single rows, all other rows belong to no component. But
        scikit-learn's class includes these rows in the initial shared covariance, so they are
        included here too, in order that both classes start from the same parameters: the second
        moments of the components have a share of Σ x xᵀ / K over the other rows, about the origin
        of the data.
        """
        s = self.unpack(raw)
        if self.structure.shared:
            c = summary.center
            shift = np.outer(s.first.sum(axis=0), c)
            copies = self.n_components if self.structure.alike else 1
            assigned = copies * s.second + shift + shift.T
            assigned += s.counts.sum() * np.outer(c, c)
            around = summary.scatter / summary.seen if summary.cells is None else summary.covariance
            every = around + np.outer(summary.mean, summary.mean)
            every = n_rows * every
            s = s._replace(second=s.second + (every - assigned) / copies)
        return self.posterior_of(s, prior)

    # The local step

    def _origin(self, q: Natural, known: Known) -> Origin | None:
        (prior, raw), diagonal = known["made_of"], self.scale_prior_dof == np.inf
        if not (known["exact"] and diagonal) or self.structure.shared:
            return None
        of_prior = self._from_prior(q, prior, known)
        return Origin.of(self, known["last"], raw, prior, q, known["moments"][2], *of_prior)

    def uncounted(self, rows: Rows) -> np.ndarray:
        # Rows without any observed cell change the weights and not the components.
        return rows.by_completeness[2]

    def counted(self, raw: FeatureSums) -> np.ndarray:
        return raw.own[:, -1]

    def local_step(
        self,
        rows: Rows,
        joint: Joint,
        t: Tempering,
        noise: np.ndarray | None = None,
        separate_noise: bool = False,
    ) -> LocalStep:
        if rows.patterns is not None:

            def one(step: Callable[..., LocalStep], some: Rows, index: np.ndarray) -> LocalStep:
                own = Tempering(values_at(t.local, index), values_at(t.statistics, index))
                return step(
                    some,
                    self.with_halves(joint, some),
                    own,
                    values_at(noise, index),
                    separate_noise,
                )

            return self._in_two_ways(rows, one, self.local_step, super().local_step)
        expected: Features = joint.own
        if self.is_wide(expected.layout):
            return super().local_step(rows, joint, t, noise, separate_noise)
        out = self.empty_statistics(expected.layout)
        noiseless = self.empty_statistics(expected.layout) if separate_noise else None
        sums = np.zeros(2)
        kernels().local_step(
            np.ascontiguousarray(rows.X),
            rows.center,
            FEATURE_KINDS[expected.layout],
            expected.own,
            expected.shared,
            vector(t.local),
            vector(t.statistics),
            vector(rows.weights),
            vector(noise),
            rows_per_block(self.n_features, expected.layout),
            out.own,
            out.shared,
            _NO_MATRIX if noiseless is None else noiseless.own,
            _NO_MATRIX if noiseless is None else noiseless.shared,
            sums,
        )
        if noiseless is None:
            return LocalStep(self._all_counted(out), float(sums[0]), float(sums[1]))
        step = LocalStep(self._all_counted(noiseless), float(sums[0]), float(sums[1]))
        step.deviation = self._all_counted(out)
        return step

    def fused_step(
        self,
        rows: Rows,
        joint: Joint,
        t: Tempering,
        noise: np.ndarray | None,
        separate_noise: bool,
    ) -> LocalStep | None:
        """Return the step of rows that have all settled, or all have missing cells; else None."""
        if noise is not None or separate_noise:
            return None
        if rows.patterns is None:
            return settled_step(self, rows, joint.own, t)
        complete, some, blank = rows.by_completeness
        if len(complete) or len(blank) or len(some) == 0:
            return None
        found = missing_cells.local_step(rows, some, t, self.gaussians_of(joint.own))
        if found is None:
            return None
        raw = self.empty_statistics(joint.own.layout)
        self._add_moments(found.moments, raw)
        return LocalStep(self._all_counted(raw), found.energy, found.entropy)

    def locally_tempered_step(
        self,
        rows: Rows,
        joint: Joint,
        temperatures: UnitTemperatures,
        noise: np.ndarray | None = None,
    ) -> LocalStep:
        if rows.patterns is not None:

            def one(step: Callable[..., LocalStep], some: Rows, index: np.ndarray) -> LocalStep:
                how = self.with_halves(joint, some), temperatures, values_at(noise, index)
                return step(some, *how)

            steps = self.locally_tempered_step, super().locally_tempered_step
            return self._in_two_ways(rows, one, *steps)
        expected: Features = joint.own
        if self.is_wide(expected.layout):
            return super().locally_tempered_step(rows, joint, temperatures, noise)
        x, log_partition, n_rounds = temperatures
        partition, reference = partition_polynomials(x, log_partition.whole)
        out = self.empty_statistics(expected.layout)
        found = np.empty(rows.n_units)
        sums = np.zeros(3)
        kernels().locally_tempered_step(
            np.ascontiguousarray(rows.X),
            rows.center,
            FEATURE_KINDS[expected.layout],
            expected.own,
            expected.shared,
            partition[0],
            float(reference[0]),
            n_rounds,
            vector(rows.weights),
            vector(noise),
            rows_per_block(self.n_features, expected.layout),
            out.own,
            out.shared,
            found,
            sums,
        )
        return LocalStep(
            self._all_counted(out),
            float(sums[0]),
            float(sums[1]),
            temperature=float(sums[2]),
            inverse_temperatures=found,
        )

    def _all_counted(self, raw: FeatureSums) -> dict[str, Any]:
        return {"components": raw, "rows": np.zeros(self.n_components)}

    def _in_two_ways(
        self,
        rows: Rows,
        one: Callable[[Callable[..., LocalStep], Rows, np.ndarray], LocalStep],
        fused: Callable[..., LocalStep],
        plain: Callable[..., LocalStep],
    ) -> LocalStep:
        """Make the local step of rows some of which have missing cells.

        The kernel takes those without missing cells. Of the others, a limited number is in memory
        at a time. ``one`` calls either step for the rows with the numbers that it is given.
        """
        complete, rest = rows.by_completeness[0], None
        step = one(fused, rows.complete, complete)
        order, found = [complete], [step.inverse_temperatures]  # type: Any, Any
        size = rows_at_a_time(self.n_features, self.n_components)
        for index, others in rows.incomplete(size):
            next_step = one(plain, others, index)
            rest = next_step if rest is None else rest + next_step
            order.append(index)
            found.append(next_step.inverse_temperatures)
        step = step if rest is None else step + rest
        if found[0] is not None:
            step.inverse_temperatures = np.empty(rows.n_units)
            step.inverse_temperatures[np.concatenate(order)] = np.concatenate(found)
        return step

    def partition(self, x: np.ndarray, summary: Summary) -> RowPartition:
        """Return log c(x) as if all components had equal weights and the covariance of the data."""
        mixing = (1 - x) * np.log(self.n_components)
        volume = self.row_volume(summary)
        return RowPartition(x, mixing, volume.whole(x) + mixing, volume)
