"""The summary of rows of counts, from which priors and starts of factorisations are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._base import DataSummary
from ._light_counts import are_fractions, why_fractions

# Priors are not learned from fractions of counts if a row or a column has fewer counts than this,
# on average.
_FEW_COUNTS = 10.0


@dataclass(frozen=True)
class Summary(DataSummary):
    """Sums over the data that the model needs.

    Attributes
    ----------
    weight : float
        Σ w, the number of rows. In a stream it includes rows that have not arrived yet.
    rows : float
        Σ w of the rows seen.
    total : float
        Σ w x over their observed cells.
    cells : float
        Σ w of their observed cells.
    whole_total : float
        Σ w ⌈x⌉ over them.
    filled : float
        Σ w of those with a count above zero.
    """

    weight: float
    rows: float
    total: float
    cells: float
    whole_total: float
    filled: float

    @property
    def mean(self) -> float:
        """The mean of the observed cells."""
        return self.total / max(self.cells, 1e-300)

    @property
    def expected_total(self) -> float:
        """Σ w x over all rows, including those that have not arrived yet."""
        return self.total * self.weight / max(self.rows, 1e-300)

    def why_not_learned(self, model: Any) -> str | None:
        # Fractions that add up to many counts, as those of a spectrogram may, do determine priors.
        of_row = self.total / max(self.rows, 1e-300)
        of_column = self.expected_total / model.n_columns
        few = min(of_row, of_column) < _FEW_COUNTS
        if model.learns and few and are_fractions(self.total, self.whole_total):
            names = model.learns
            if model.popularity is not None and "popularity_prior" not in names:
                # The rates of columns follow components in the same step.
                names = (*names, "popularity_prior")
            return why_fractions(names, "a count", self.total, self.whole_total)
        return None

    def merge(self, other: Summary) -> Summary:
        """Return the summary of both sets of rows together."""
        rows = self.rows + other.rows
        return Summary(
            rows,
            rows,
            self.total + other.total,
            self.cells + other.cells,
            self.whole_total + other.whole_total,
            self.filled + other.filled,
        )

    def continued(self, other: Summary) -> Summary:
        """Return the summary of the other rows; the model keeps the scale of the earlier ones."""
        return other
