"""When topics leave a document, as compiled and plain mean-field steps decide it."""

from __future__ import annotations

from typing import Any

# A topic leaves a document if its number of tokens there is below this share of the mean change of
# γ at which the iterations end: all such topics together have less than the iterations ignore.
SHARE_OF_TOLERANCE = 0.1
# If the tolerance does not say how much may be ignored, a topic leaves once its number of tokens
# is below the first of these numbers times α² and below the second: its weight no longer depends
# on them.
FEW = (1e-6, 1e-10)
FEW_SINGLE = (1e-3, 1e-6)
# To copy one column costs as much as this many iterations over one column. The first number is that
# of the iterations which the sums and statistics of a document cost; few documents need more
# iterations than the second says.
_COPY_OF_COLUMN = 10
_SUMS_OF_DOCUMENT, _ITERATIONS_LEFT = 3, 16


def repays(left: int, before: int, after: Any) -> Any:
    """Whether iterations over fewer columns repay the copy of these columns."""
    saved = (min(left, _ITERATIONS_LEFT) + _SUMS_OF_DOCUMENT) * (before - after)
    return (2 * after <= before) & (saved > _COPY_OF_COLUMN * after)
