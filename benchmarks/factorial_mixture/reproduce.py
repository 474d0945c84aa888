"""Annealed factorial mixtures of drawn parts and of digits; writes a page of results.

Parts: *toy*, Mandt et al., section 4.2: eight drawn parts, recovered or not, by every method;
*batches*, the same parts from minibatches and streams; *images*, reconstruction of held-out digits
from K bits, against k-means, BernoulliRBM and dictionary learning with as many parameters. The page
is ``doc/results/factorial_mixture.md``.

    python -m benchmarks.factorial_mixture.reproduce --cache factorial.jsonl
    python -m benchmarks.factorial_mixture.reproduce --cache factorial.jsonl --write
    python -m benchmarks.factorial_mixture.reproduce --quick --cache /tmp/q.jsonl

The first command makes all fits, and the second writes the page from the cache. To write the page
of a quick run, give ``--output`` too. Every finished fit is a line of the cache, so that a run that
was interrupted goes on where it stopped. Delete the cache after a change of the package. MNIST
comes from a file, see ``data.py`` in this folder; without it that part is left out with a message.

Verdicts are computed from the figures. Comparisons are paired by seed, which determines the data
and the start. A comparison is won if the median difference is above zero and the one-sided p-value
of Wilcoxon's signed-rank test, adjusted for the comparisons of the claim (Holm), is below 0.05. It
is lost if the same holds in the other direction. Differences that would be printed as zero are
ties. A claim is reproduced if all its comparisons are won, not reproduced if none is, and otherwise
partly reproduced. Other claims state their rule.
"""

from __future__ import annotations

import numpy as np

from ..common.report import Claim, Page
from ..common.reproduction import Cache, Record, Reproduction, n_seeds
from . import plan
from .claims import N_PARTS, Found, all_found, claims
from .fits import Spec
from .plan import Size, batch_cells, image_cells, toy_cells

RULES = (
    "A comparison is won if the median difference over seeds is above zero and Wilcoxon's "
    "one-sided signed-rank test, adjusted for the comparisons of the claim, gives p < 0.05; "
    "lost is the same below. All won: reproduced; none: not reproduced; otherwise partly. "
    "Other rules are stated with the claim."
)


def median(record: Record, what: str, digits: int) -> str:
    return f"{np.median(record[what]):.{digits}f}" if what in record else "–"


def section_toy(page: Page, toy: dict[str, Record], size: Size) -> None:
    if not toy:
        return
    page.section(
        "Eight drawn parts (Mandt et al., section 4.2)",
        f"{size.rows:,} rows of 4 × 4 pixels, each the sum of those of eight binary images that "
        "are there with probability 0.3, each weighted by a number from 0.5 to 1, plus noise of "
        "standard deviation 0.1. The images of the paper are in a figure only; these are our own. "
        "The model has σ_n = 0.1, σ_μ = 0.35 and π = 0.3, as there, unless the priors are learned. "
        f"Data and start are drawn anew for each of {n_seeds(toy)} seeds. A part is recovered by a "
        "component whose pixels differ from it by 0.1 at most, in root mean square. Bound in nats; "
        "medians. *Passes* count all restarts and reheats. The start of the sweeps, and the values "
        "at which learning begins, were chosen on such data and on the digits below.",
    )
    table_of_parts(page, toy)


def section_batches(page: Page, batches: dict[str, Record], size: Size) -> None:
    if not batches:
        return
    page.section(
        "The same parts from minibatches and streams",
        f"The rows, the model and the seeds are those of the section above, and a batch has "
        f"{size.batch:,} rows. *Minibatches* are fits with `batch_size`, whose schedules of 50 and "
        "200 passes (200 is the default) are followed by plain passes until the bound converges. A "
        "*stream* is given to `partial_fit` batch by batch, so that every row is seen once; it is "
        "annealed in its first tenth if `total_samples` is given, and not otherwise. A stream has "
        "no bound of all its rows.",
    )
    table_of_parts(page, batches)


def table_of_parts(page: Page, records: dict[str, Record]) -> None:
    """Add a table of the fits to drawn parts."""
    rows = []
    for name, record in records.items():
        low, middle, high = np.percentile(record["recovered"], [0, 50, 100])
        rows.append(
            [
                name,
                f"{middle:g} ({low:.0f} … {high:.0f})",
                f"{int(all_found(record).sum())} of {len(record['seconds'])}",
                median(record, "bound", 0),
                median(record, "passes", 0),
                median(record, "seconds", 2),
            ]
        )
    header = ["method", f"parts of {N_PARTS}: median (range)", "fits with all"]
    page.table([*header, "bound", "passes", "time, s"], rows)


def section_images(page: Page, images: dict[tuple[str, int, str], Record], size: Size) -> None:
    if not images:
        return
    shown = "; ".join(f"{n}: {a:,} and {b:,} rows" for n, _, a, b in size.images)
    page.section(
        "Digits, reconstructed from K bits",
        f"Rows that are fitted and held out ({shown}), drawn anew for each of {n_seeds(images)} "
        "seeds, pixels from 0 to 1. All models have K × D parameters and at most K + D others. "
        "*Error from bits*: mean squared error of held-out pixels, times 10⁴, from the rounded "
        "activations. The bits of k-means say which of K centres is nearest, those of dictionary "
        "learning whether a code is above half of the mean of the positive ones; its atoms are "
        "then refitted to the bits. *Error from codes*: from real activations or codes. *Score*: "
        "held-out lower bound in nats per row. *30 → 1*: `initial_temperature=30, jitter=0.25`. "
        "Our fits have `max_iter=300`. The settings of the others are the best of several on the "
        "digits of 8 × 8.",
    )
    rows = []
    for (data, k, name), record in images.items():
        codes = f"{1e4 * np.median(record['soft']):.1f}" if "soft" in record else "–"
        errors = 1e4 * record["error"]
        rows.append(
            [
                data,
                str(k),
                name,
                f"{np.median(errors):.1f} ({errors.min():.1f} … {errors.max():.1f})",
                codes,
                median(record, "score", 2),
                median(record, "bound", 2),
                median(record, "seconds", 1),
            ]
        )
    header = ["data", "K", "method", "error from bits", "error from codes", "score"]
    page.table([*header, "bound per row", "time, s"], rows)


def sections(page: Page, size: Size, cache: Cache) -> list[Claim]:
    """Add the sections that follow the verdicts, and return the claims."""
    found = Found(
        toy=cache.of_common_seeds(toy_cells(size), size.seeds),
        images=cache.of_common_seeds(image_cells(size), size.few),
    )
    section_toy(page, found.toy, size)
    section_batches(page, cache.of_common_seeds(batch_cells(size), size.seeds), size)
    section_images(page, found.images, size)
    return claims(found)


def main(argv: list[str] | None = None) -> None:
    Reproduction(
        model="factorial_mixture",
        title="Factorial mixtures: annealed sums of parts",
        description=(__doc__ or "").partition("\n")[0],
        rules=RULES,
        plan=plan,
        spec=Spec,
        sections=sections,
        output="factorial_mixture.md",
    ).run(argv)


if __name__ == "__main__":
    main()
