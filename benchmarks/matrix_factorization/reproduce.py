"""Annealed matrix factorisation of MovieLens 100K; writes ``doc/results/ratings.md``.

Parts: *figure*, Paisley et al., figure 1: bound against pass, at the paper's priors and at the
defaults, with error and density of held-out ratings; *settings*, the grid behind the recommended
settings; *variances*, fixed or learned; *others*, every method by name; *libraries*, the error
against cmfrec's alternating least squares and scikit-surprise's SVD at tuned settings.

    python -m benchmarks.matrix_factorization.reproduce --cache pmf.jsonl
    python -m benchmarks.matrix_factorization.reproduce --cache pmf.jsonl --write
    python -m benchmarks.matrix_factorization.reproduce --cache pmf.jsonl --parts figure
    python -m benchmarks.matrix_factorization.reproduce --quick --cache /tmp/q.jsonl

The first command makes all fits (about 60 minutes on one core), and the second writes the page from
the cache. To write the page of a quick run, give ``--output`` too.

Every finished fit is a line of the cache, so that a run that was interrupted goes on where it
stopped. The page is written from the seeds for which all fits of a part are complete. Delete the
cache after a change of the package. MovieLens 100K comes from a file, see ``data.py`` in this
folder; libraries that are not installed are left out with a message. A quick run draws a few
ratings.

Verdicts are computed from the figures. Comparisons are paired by seed. The seed determines the
start, and for libraries the split as well. A comparison is won if the median difference is above
zero and the one-sided p-value of Wilcoxon's signed-rank test, adjusted for the comparisons of the
claim (Holm), is below 0.05. It is lost if the same holds in the other direction. Differences that
would be printed as zero are ties. A claim is reproduced if all its comparisons are won, not
reproduced if none is, and otherwise partly reproduced. Other claims state their rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common.report import Claim, Page
from ..common.reproduction import Cache, Record, Reproduction, Settings, n_seeds
from . import plan
from .claims import NEAR, Found, Records, bound_after, claims, needed, slack
from .fits import Spec, recommended
from .plan import (
    OURS,
    PAPER,
    PRIORS,
    VI,
    Size,
    figure_cells,
    grid,
    literal_cells,
    methods,
    other_cells,
    settings_cells,
    tuned_cells,
    tuning_cells,
    variances_cells,
)

# The table of the figure has the bounds after these shares of the passes.
_MOMENTS = (0.04, 0.1, 0.2, 0.4, 1.0)


def found_in(cache: Cache, size: Size) -> Found:
    """The records of each part, for the seeds for which all its fits are complete."""
    records = cache.of_common_seeds
    return Found(
        figure=records(figure_cells(size), size.seeds),
        literal=records(literal_cells(size), size.few),
        settings=records(settings_cells(size), size.few),
        variances=records(variances_cells(size), size.few),
        others=records(other_cells(size), size.few),
        libraries=records(tuned_cells(size, cache), size.seeds),
        tuning=cache.records(tuning_cells(size), 1),
    )


def in_words(settings: Settings) -> str:
    values = ((k, f"{v:.4g}" if isinstance(v, float) else repr(v)) for k, v in settings)
    return ", ".join(f"{name}={value}" for name, value in values)


def median(record: Record, what: str, digits: int) -> str:
    return f"{np.median(record[what]):.{digits}f}"


# The page


def section_methods(page: Page, size: Size) -> None:
    page.section(
        "Data and methods",
        "*MovieLens 100K*: 100,000 ratings from 1 to 5 of 1,682 films by 943 users; 90 % are "
        "fitted and 10 % held out, the same in all runs unless said otherwise. Bounds are "
        "complete, in nats, of the training set. *Density*: predictive log density of held-out "
        "ratings in nats per rating; *coverage*: percent of them inside intervals of 90 %. "
        "Predicted means are kept between 1 and 5. Times are processor time of one thread. "
        f"*{PAPER.capitalize()}*: c = 1, σ² = 1/2, no biases and no mean, as in Paisley et al.; "
        f"*{OURS}*: biases and mean, variances in proportion to that of the ratings.",
    )
    rows = [
        (label, f'`"{method}"`' if method == "none" else f'`"{method}"`, {in_words(settings)}')
        for label, (method, settings) in methods(size).items()
    ]
    page.table(("method", "settings"), rows)


def _moments(size: Size) -> list[int]:
    return list(dict.fromkeys(max(1, round(share * size.passes)) for share in _MOMENTS))


def section_figure(page: Page, compared: Records, literal: Records, size: Size) -> None:
    records = compared | literal
    if not compared:
        return
    page.section(
        "Bound against pass (Paisley et al., figure 1)",
        f"Medians over {n_seeds(compared)} seeds (M = 50 t: {n_seeds(literal) if literal else 0}); "
        f"all fits make {size.passes} passes, whatever "
        "their schedule. *Needed*: passes until the median of VI's last bounds is reached, median "
        f"and range; *near*: until it is {slack(size):.0f} nats away ({NEAR:g} per rating). "
        "The paper has MovieLens 1M and 10M, which are not at hand.",
    )
    moments = _moments(size)
    for prior in PRIORS:
        page.lines += [f"### {prior[0].upper()}{prior[1:]}", ""]
        rows = []
        for own, d, method in records:
            if own != prior:
                continue
            record = records[own, d, method]
            row = [str(d), method]
            row += [f"{np.median(bound_after(record, n)):.0f}" for n in moments]
            row += [_range(needed(records, own, d, method, below)) for below in (0, slack(size))]
            row += [median(record, "rmse", 4), median(record, "density", 4)]
            row.append(f"{100 * np.median(record['coverage']):.1f}")
            row.append(f"{1e3 * np.median(record['seconds'] / record['passes']):.1f}")
            rows.append(row)
        header = ["d", "method", *(f"bound after {n}" for n in moments), "needed", "near", "RMSE"]
        page.table([*header, "density", "coverage", "ms per pass"], rows)


def _range(values: np.ndarray) -> str:
    """Median and range of numbers of passes; an infinite number is written "never"."""
    low, middle, high = (
        f"{value:.0f}" if np.isfinite(value) else "never"
        for value in (values.min(), np.sort(values)[len(values) // 2], values.max())
    )
    return f"{middle} ({low} … {high})"


def section_settings(page: Page, records: Records, size: Size) -> None:
    if not records:
        return
    n = size.few_passes
    early = max(1, n // 3)
    page.section(
        "Which settings",
        f"Gain of the bound over VI after {early} and after {n} passes in nats, and the "
        f"RMSE after {n}; means over seeds ({n_seeds(records)}); the best three gains of a column "
        "in bold. The recommended settings have a star.",
    )
    cases = list(dict.fromkeys((prior, d) for prior, d, _ in records))
    labels = list(grid(size))
    columns = []
    for prior, d in cases:
        plain = records[prior, d, VI]
        for moment in (early, n):
            bounds = (bound_after(records[prior, d, label], moment) for label in labels)
            gains = [float(np.mean(bound - bound_after(plain, moment))) for bound in bounds]
            best = sorted(gains)[-3:]
            # A difference that would be printed as zero is no gain.
            bold = [gain in best and round(gain) > 0 for gain in gains]
            cells = [f"{gain:+.0f}" for gain in gains]
            columns.append([f"**{c}**" if b else c for c, b in zip(cells, bold, strict=True)])
        columns.append([f"{np.mean(records[prior, d, label]['rmse']):.4f}" for label in labels])
    starred = [
        label + " *" if method != "none" and settings == recommended(method) else label
        for label, (method, settings) in grid(size).items()
    ]
    header = ["settings"]
    for prior, d in cases:
        header += [f"{prior}, d = {d}: after {early}", f"after {n}", "RMSE"]
    page.table(header, zip(starred, *columns, strict=True))


def section_variances(page: Page, records: dict[Any, Record]) -> None:
    if not records:
        return
    page.section(
        "Variances, fixed or learned",
        'Default priors, `annealing="deterministic"`, to convergence; medians over '
        f"{n_seeds(records)} seeds. The variances that were used: of noise, factors, biases.",
    )
    rows = []
    for (d, names), record in records.items():
        used = (median(record, f"{name}_variance", 3) for name in ("noise", "factor", "bias"))
        rows.append(
            (
                str(d),
                ", ".join(name.removesuffix("_variance") for name in names) or "none",
                median(record, "bound", 0),
                *(median(record, what, 4) for what in ("rmse", "density")),
                f"{100 * np.median(record['coverage']):.1f}",
                " / ".join(used),
                median(record, "passes", 0),
            )
        )
    header = ("d", "learned", "bound", "RMSE", "density", "coverage", "variances", "passes")
    page.table(header, rows)


def section_others(page: Page, records: dict[str, Record], size: Size) -> None:
    if not records:
        return
    page.section(
        "Every method by name",
        f"With its recommended settings and the default priors, d = {size.usual}, to convergence; "
        f"medians over {n_seeds(records)} seeds.",
    )
    rows = [
        (
            method,
            median(record, "bound", 0),
            *(median(record, what, 4) for what in ("rmse", "density")),
            f"{100 * np.median(record['coverage']):.1f}",
            median(record, "passes", 0),
            median(record, "seconds", 2),
        )
        for method, record in records.items()
    ]
    page.table(("method", "bound", "RMSE", "density", "coverage", "passes", "time, s"), rows)


def section_libraries(page: Page, found: Found, size: Size, cache: Cache) -> None:
    if not found.libraries:
        return
    page.section(
        "Against other libraries",
        "Settings were chosen by the RMSE on a tenth of the training set of the first split, for "
        f"ours as well; then other splits ({n_seeds(found.libraries)}), the same for all: "
        "median and range of the RMSE, and the median time of a fit in seconds. cmfrec: explicit "
        "ratings, biases, `use_cg=False`, with ridges of factors and of biases; scikit-surprise: "
        "`SVD`, stochastic gradient descent. *Tried*: number of settings.",
    )
    rows = []
    for library, spec in tuned_cells(size, cache).items():
        record = found.libraries[library]
        errors = record["rmse"]
        tried = sum(name == library for name, _ in found.tuning)
        ours = library.startswith("ours")
        rows.append(
            (
                library,
                f"d = {spec.n_components}, {in_words(spec.model if ours else spec.settings)}",
                str(tried) if tried else "",
                f"{np.median(errors):.4f} ({errors.min():.4f} … {errors.max():.4f})",
                median(record, "seconds", 2),
            )
        )
    page.table(("library", "settings", "tried", "RMSE", "time, s"), rows)


RULES = (
    "A comparison is won if the median difference over seeds is above zero and Wilcoxon's "
    "one-sided signed-rank test, adjusted for the comparisons of the claim, gives p < 0.05; "
    "lost is the same below. All won: reproduced; none: not reproduced; otherwise partly. "
    "Other rules are stated with the claim."
)


def sections(page: Page, size: Size, cache: Cache) -> list[Claim]:
    """Add the sections that follow the verdicts, and return the claims."""
    found = found_in(cache, size)
    if figure_cells(size):
        section_methods(page, size)
    section_figure(page, found.figure, found.literal, size)
    section_settings(page, found.settings, size)
    section_variances(page, found.variances)
    section_others(page, found.others, size)
    section_libraries(page, found, size, cache)
    return claims(found, size)


def main(argv: list[str] | None = None) -> None:
    Reproduction(
        model="matrix_factorization",
        title="Ratings: annealed matrix factorisation",
        description=(__doc__ or "").partition("\n")[0],
        rules=RULES,
        plan=plan,
        spec=Spec,
        sections=sections,
        output="ratings.md",
    ).run(argv)


if __name__ == "__main__":
    main()
