"""Spike-and-slab factors from near and far starts, of drawn loadings and of real data.

Parts: *starts*, Bernoulli factors by gradients from starts at a distance from the truth, with and
without proximity (Altosaar et al., 2018, section 4), and by coordinates; *loadings*, sparse
loadings that drew the data, against FactorAnalysis, SparsePCA and mofapy2; *held_out*, scores of
held-out rows of real data against FactorAnalysis and PCA. The page is
``doc/results/spike_slab_factor_analysis.md``.

    python -m benchmarks.spike_slab_factor_analysis.reproduce --cache factors.jsonl
    python -m benchmarks.spike_slab_factor_analysis.reproduce --cache factors.jsonl --write
    python -m benchmarks.spike_slab_factor_analysis.reproduce --quick --cache /tmp/q.jsonl

The first command makes all fits, and the second writes the page from the cache. To write the page
of a quick run, give ``--output`` too. Every finished fit is a line of the cache, so that a run that
was interrupted goes on where it stopped. Delete the cache after a change of the package. mofapy2 is
left out with a message where it is not installed.

Verdicts are computed from the figures. Comparisons are paired by seed, which determines the data
and the start, and are decided by Wilcoxon's one-sided signed-rank test, adjusted for the
comparisons of the claim (Holm), at p < 0.05.
"""

from __future__ import annotations

import numpy as np

from ..common.report import Claim, Page
from ..common.reproduction import Cache, Record, Reproduction, n_seeds
from . import data, plan
from .claims import Found, claims
from .fits import MOFA_ITERATIONS, NEAR, PENALTIES, Spec
from .plan import Size, held_out_cells, loadings_cells, starts_cells

RULES = (
    "A comparison is won if the median difference over seeds is above zero and Wilcoxon's "
    "one-sided signed-rank test, adjusted for the comparisons of the claim, gives p < 0.05; lost "
    "is the same below. All won: reproduced, or yes; none: not reproduced, or no; otherwise "
    "partly. Other rules are stated with the claim."
)


def middle(record: Record, what: str, digits: int) -> str:
    """The median and the range over seeds; a dash for what was not measured."""
    if what not in record:
        return "–"
    low, median, high = np.percentile(record[what], [0, 50, 100])
    if round(low, digits) == round(high, digits):
        return f"{median:.{digits}f}"
    return f"{median:.{digits}f} ({low:.{digits}f} … {high:.{digits}f})"


def section_starts(page: Page, starts: dict[tuple[str, float | None], Record], size: Size) -> None:
    if not starts:
        return
    k, d = data.N_BERNOULLI, data.N_BERNOULLI_COLUMNS
    page.section(
        "Bernoulli factors from near and far starts",
        f"{size.bernoulli} rows of {d} columns, drawn from {k} factors that are on or off, whose "
        "means are N(0, I), with noise of variance 1. By gradients, the means start at the truth "
        "plus the distance in every column plus N(0, 1), the prior probabilities at 0.01, and the "
        f"activations at 1/2; RMSProp with the rate 0.5 takes {size.n_steps:,} steps. Proximity "
        "keeps the entropy near that of five steps before, with k = 10¹² at first. The paper does "
        "not say where the activations start; at 0.01 the entropy is almost zero, and proximity "
        "keeps it there. By coordinates (`AnnealedFactorialMixture`), fits have their own starts "
        "and learn the probabilities. *Error*: the norm of the difference of all means from the "
        f"truth. Medians and ranges of {n_seeds(starts)} seeds, which draw data and start; bound "
        "in nats.",
    )
    rows = [
        [
            name,
            "own" if distance is None else f"{distance:g}",
            middle(record, "error", 1),
            f"{np.median(record['bound']):.0f}",
            f"{np.median(record['seconds']):.1f}",
        ]
        for (name, distance), record in starts.items()
    ]
    page.table(["method", "distance of the start", "error", "bound", "time, s"], rows)


def section_loadings(page: Page, loadings: dict[tuple[str, str], Record], size: Size) -> None:
    if not loadings:
        return
    penalties = ", ".join(f"{alpha:g}" for alpha in PENALTIES)
    grid = " and ".join(map(str, size.grid))
    page.section(
        "Loadings that drew the data",
        f"{size.rows} rows of {data.N_COLUMNS} columns from {data.N_FACTORS} factors and noise of "
        "variance 1. *Both sparse*: a fifth of the factors of a row is on, and a fifth of the "
        "loadings is not zero; *factors sparse*: loadings are dense; *loadings sparse*: factors "
        f"are Gaussian, which is not our model. Our fits have {size.components} components. Peers "
        "have settings chosen by the cosines with the truth, which no user knows: "
        f"FactorAnalysis with varimax or quartimax rotation, SparsePCA with the penalties "
        f"{penalties}, mofapy2 ({MOFA_ITERATIONS} iterations) with sparse loadings and with or "
        f"without sparse factors, each with {grid} components. *Cosine*: mean over the true "
        "loadings, in the best assignment, of the absolute cosine; *recovered*: the number of "
        f"those with {NEAR} or more; *support*: average precision of the absolute values as a "
        "ranking of the entries that are not zero. Fits by gradients make "
        f"{size.passes:,} passes. Medians and ranges of {n_seeds(loadings)} seeds; bound in nats "
        "per row; *time* includes the choice of settings.",
    )
    rows = [
        [
            kind,
            name,
            middle(record, "cosine", 3),
            middle(record, "recovered", 0),
            f"{np.median(record['support']):.2f}",
            middle(record, "used", 0),
            f"{np.median(record['bound']):.2f}" if "bound" in record else "–",
            f"{np.median(record['seconds']):.1f}",
        ]
        for (kind, name), record in loadings.items()
    ]
    page.table(
        ["data", "method", "cosine", "recovered", "support", "used", "bound", "time, s"], rows
    )


def section_held_out(page: Page, held_out: dict[tuple[str, str], Record], size: Size) -> None:
    if not held_out:
        return
    ours = ", ".join(f"{k} for {name}" for name, k in size.real)
    page.section(
        "Held-out rows of real data",
        "Data sets of scikit-learn in units of each column's standard deviation, a quarter of the "
        f"rows held out, drawn anew for each of {n_seeds(held_out)} seeds. Pixels of digits that "
        "are rarely on are left out, and uniform noise fills the gaps between the values of the "
        f"others. Our fits have a fixed number of components ({ours}); their score is the lower "
        "bound of a held-out row, in nats, which is below its log density. FactorAnalysis and PCA "
        "choose their number on a fifth of the fitted rows, and have exact densities. Medians and "
        "ranges over seeds.",
    )
    rows = [
        [
            name,
            method,
            middle(record, "score", 2),
            middle(record, "used", 0),
            f"{np.median(record['bound']):.2f}" if "bound" in record else "–",
            f"{np.median(record['seconds']):.1f}",
        ]
        for (name, method), record in held_out.items()
    ]
    page.table(["data", "method", "score", "components", "bound per row", "time, s"], rows)


def sections(page: Page, size: Size, cache: Cache) -> list[Claim]:
    """Add the sections that follow the verdicts, and return the claims."""
    found = Found(
        starts=cache.of_common_seeds(starts_cells(size), size.seeds),
        loadings=cache.of_common_seeds(loadings_cells(size), size.seeds),
        held_out=cache.of_common_seeds(held_out_cells(size), size.seeds),
    )
    section_starts(page, found.starts, size)
    section_loadings(page, found.loadings, size)
    section_held_out(page, found.held_out, size)
    return claims(found)


def main(argv: list[str] | None = None) -> None:
    Reproduction(
        model="spike_slab_factor_analysis",
        title="Spike-and-slab factor analysis",
        description=(__doc__ or "").partition("\n")[0],
        rules=RULES,
        plan=plan,
        spec=Spec,
        sections=sections,
        output="spike_slab_factor_analysis.md",
    ).run(argv)


if __name__ == "__main__":
    main()
