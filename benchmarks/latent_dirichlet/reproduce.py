"""The papers' claims about topic models, measured; writes ``doc/results/topics.md``.

Parts: *batch*, bound and held-out likelihood of batch inference at equal passes, for several K;
*online*, stochastic inference at equal passes and at equal processor time; *priors*, the grid of
Hoffman & Blei (2015), figure 2; *figure3*, stochastic mean-field inference that starts from the
result of each method, as in their figure 3 (measured with the fits of *online*). Fits that are
compared are run seed by seed, one thread each.

    python -m benchmarks.latent_dirichlet.reproduce --cache lda.jsonl
    python -m benchmarks.latent_dirichlet.reproduce --cache lda.jsonl --write
    python -m benchmarks.latent_dirichlet.reproduce --cache lda.jsonl --parts priors
    python -m benchmarks.latent_dirichlet.reproduce --quick --cache /tmp/q.jsonl

The first command makes all fits (half an hour on two cores with ``--jobs 2``), and the
second writes the page from the cache. To write the page of a quick run, give ``--output`` too.

Every finished fit is a line of the cache, so that a run that was interrupted goes on where it
stopped. Delete the cache after a change of the package. The corpora come from files, see
``data.py`` in this folder; a part whose file is missing is left out with a message. A quick run
draws a small corpus.

Verdicts are computed from the figures. A claim is a list of comparisons "A above B" in runs paired
by seed. A comparison is won if the median difference exceeds twice the standard deviation over
seeds, pooled over A and B. It is lost if the same holds for "A below B". Differences that would be
printed as zero are ties. A claim is reproduced if all its comparisons are won, not reproduced if
none is, and otherwise partly reproduced. Other claims state their rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sklearn_anneal.models.latent_dirichlet import LatentDirichlet

from ..common.report import Claim, Page
from ..common.reproduction import Cache, Record, Reproduction
from . import plan
from .claims import DIGITS, Found, claims, compare, ranges
from .fits import Spec
from .plan import (
    BEST_OF_5,
    FAST,
    HOT,
    LOCAL_STEPS,
    STRUCTURED,
    SVI,
    VI,
    Size,
    batch_cells,
    grid_cells,
    online_cells,
    timed_cells,
    with_local_step,
)


def found_in(cache: Cache, size: Size) -> Found:
    """All complete records of a cache."""
    passes = cache.records(online_cells(size), size.seeds)
    return Found(
        cache.records(batch_cells(size), size.seeds),
        passes,
        cache.records(timed_cells(size, passes), size.seeds),
        cache.records(grid_cells(size), size.few),
    )


# The page


def extremes(values: np.ndarray, digits: int = DIGITS) -> str:
    """The median and the range, written as "median (smallest … largest)"."""
    low, middle, high = np.min(values), np.median(values), np.max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} … {high:.{digits}f})"


def section_corpora(page: Page, found: Found) -> None:
    records = {key[0]: record for key, record in {**found.batch, **found.passes}.items()}
    page.section(
        "Corpora",
        "After 15 % of the documents were set aside, the same in all runs; 20 Newsgroups is cut to "
        "8,000 training documents. Counts are float32. Bounds are complete, of the training set, "
        "in nats per token; held-out likelihoods are those of `score`: one half of each held-out "
        "document given the other, nats per token. It integrates proportions out where local steps "
        "are cvb0 or gibbs. Topics start like documents, as by default. Times are processor time "
        "of the passes, in seconds, of one thread.",
    )
    rows = [
        (name, *(f"{r[what][0]:.0f}" for what in ("documents", "words", "length")))
        for name, r in records.items()
    ]
    page.table(("corpus", "training documents", "words", "tokens per document"), rows)


def section_batch(page: Page, found: Found, size: Size) -> None:
    if not found.batch:
        return
    page.section(
        "Batch inference at equal passes",
        f"{size.passes} passes, half of them the schedule where there is one, and no reheats; "
        "α = η = 1/K; "
        f"{size.seeds} seeds: median (smallest … largest). *VI* starts documents anew at each pass "
        "for the first half. *deterministic* in its three forms, linear from T = 2 (local) or 1.5, "
        "and as recommended: the posterior form from T = "
        f"{LatentDirichlet.recommended['deterministic']['initial_temperature']}; *stochastic* and "
        "*proximity* with their recommended settings. *best of 5* takes five times the passes.",
    )
    for corpus in dict.fromkeys(corpus for corpus, _, _ in found.batch):
        page.lines += [f"### {corpus}", ""]
        rows = []
        for k in size.topics:
            own = {n: r for (c, kk, n), r in found.batch.items() if (c, kk) == (corpus, k)}
            rows += _rows(own, str(k))
        page.table(("K", "method", "bound", "held-out", "time"), rows)


def _rows(records: dict[str, Record], label: str) -> list[tuple[str, ...]]:
    """Rows of a table, with the best medians in bold."""
    best = {
        what: max((float(np.median(r[what])) for r in records.values()), default=0.0)
        for what in ("bound", "held_out")
    }

    def cell(record: Record, what: str) -> str:
        text = extremes(record[what])
        return f"**{text}**" if np.median(record[what]) == best[what] else text

    return [
        (
            label,
            name,
            cell(record, "bound"),
            cell(record, "held_out"),
            f"{np.median(record['seconds']):.1f}",
        )
        for name, record in records.items()
    ]


def section_online(page: Page, found: Found, size: Size) -> None:
    if not found.passes:
        return
    page.section(
        "Stochastic inference",
        f"K = {size.k}, α = η = {1 / size.k:g}; batches of {size.sizes[0]} documents unless |S| is "
        f"given, ρ = (10 + t)^(−0.7), {size.seeds} seeds. *Equal passes*: {size.online_passes} in "
        "all. *AVI* is deterministic annealing in the likelihood form, linear from T = 1.5 over "
        f"half of the passes ({FAST}: a tenth; {HOT}: from 8; local form: from 2); tempering takes "
        "half of the passes too; SVI+ has M = |S|/2 throughout or (*then SVI*) for half of the "
        "passes; SSVI-A and SSVI draw topics in every pass. *Equal time*: as many passes as fit "
        f"into the processor time of {size.budget} passes of SVI, by the time per pass measured at "
        "equal passes, at least one; a fit ends early where its bound has fallen from ten passes "
        "to the next ten.",
    )
    for corpus in dict.fromkeys(corpus for corpus, _ in found.passes):
        for records, title in (
            (found.passes, f"{corpus}, equal passes"),
            (found.timed, f"{corpus}, equal time"),
        ):
            own = {name: r for (c, name), r in records.items() if c == corpus}
            if not own:
                continue
            page.lines += [f"### {title}", ""]
            counts = {name: f"{np.median(r['passes']):.0f}" for name, r in own.items()}
            rows = [(name, counts[name], *rest) for _, name, *rest in _rows(own, "")]
            page.table(("method", "passes", "bound", "held-out", "time"), rows)
            page.lines += ["Held-out likelihood by local step and global update:", ""]
            page.table(("local step", *STRUCTURED), _matrix(own))


def _matrix(records: dict[str, Record]) -> list[list[str]]:
    rows = []
    for local_step in LOCAL_STEPS:
        names = [with_local_step(method, local_step) for method in STRUCTURED]
        if any(name in records for name in names):
            cells = [extremes(records[n]["held_out"]) if n in records else "" for n in names]
            rows.append([local_step, *cells])
    return rows


def section_figure3(page: Page, found: Found, size: Size) -> None:
    if not found.passes:
        return
    page.section(
        "Mean-field inference from the result of each method (Hoffman & Blei, figure 3)",
        f"{size.polish} passes of SVI that start from the topics of the fits at equal passes.",
    )
    for corpus in dict.fromkeys(corpus for corpus, _ in found.passes):
        page.lines += [f"### Started from each method, {corpus}", ""]
        names = ("bound", "polished_bound", "held_out", "polished_held_out")
        rows = [
            (name, *(extremes(record[what]) for what in names))
            for (c, name), record in found.passes.items()
            if c == corpus
        ]
        header = ("method", "bound before", "bound after", "held-out before", "held-out after")
        page.table(header, rows)


def section_grid(page: Page, found: Found, size: Size) -> None:
    if not found.grid:
        return
    page.section(
        "Priors (Hoffman & Blei, figure 2)",
        f"Held-out likelihood on {size.priors[0]}, K = {size.k}, {size.grid_passes} passes, "
        f"{size.few} seeds; last row: best minus worst over the grid, seed by seed.",
    )
    wide = ranges(found.grid)
    rows = [
        [
            f"{alpha:g}",
            f"{eta:g}",
            *(
                extremes(found.grid[alpha, eta, m]["held_out"])
                if (alpha, eta, m) in found.grid
                else ""
                for m in wide
            ),
        ]
        for alpha in size.grid
        for eta in size.grid
    ]
    rows.append(["range", "", *(extremes(values) for values in wide.values())])
    page.table(("α", "η", *wide), rows)


# Which setting


Standing = list[tuple[str, np.ndarray]]


def standing(records: dict[tuple[Any, str], Record], reference: str, what: str) -> Standing:
    """Mean gains over a reference, averaged over all cells, seed by seed; best median first.

    ``records`` are by (cell, method). Only methods that are there for every cell take part.
    """
    cells = dict.fromkeys(cell for cell, _ in records)
    names = dict.fromkeys(name for _, name in records)
    complete = [n for n in names if all((cell, n) in records for cell in cells)]
    if reference not in complete:
        return []
    gains = [
        (
            name,
            np.mean([records[c, name][what] - records[c, reference][what] for c in cells], axis=0),
        )
        for name in complete
    ]
    return sorted(gains, key=lambda gain: -float(np.median(gain[1])))


def recommended(order: Standing) -> tuple[str, str]:
    """The name of the best method, and the figures behind the choice."""
    (best, gain), *others = order
    near = [name for name, other in others if compare(gain, other)[2] <= 0]
    ranks = "; ".join(f"{name} {np.median(g):+.{DIGITS}f}" for name, g in order[:5])
    equal = f" Not told apart from it by the seeds: {', '.join(near)}." if near else ""
    return best, f"{ranks}.{equal}"


def setting(spec: Spec) -> str:
    """A fit as parameters of the estimator."""
    lda = spec.estimator()
    annealing = lda.annealing
    if not isinstance(annealing, str):
        # How often the bound is evaluated has no influence on the result.
        if hasattr(annealing, "evaluate_every") and "evaluate_every" in annealing.get_params():
            annealing = annealing.set_params(evaluate_every="auto")
        annealing = " ".join(str(annealing).split())
    else:
        annealing = f'"{annealing}"'
    parts = [f"annealing={annealing}", f"max_iter={lda.max_iter}"]
    if spec.local_step != "mean_field":
        parts.append(f'local_step="{spec.local_step}"')
    if spec.batch_size is None:
        parts.append(f"effort={lda.effort:g}")
    else:
        parts += ['learning_method="online"', f"batch_size={spec.batch_size}"]
    return f"`{', '.join(parts)}`"


def section_setting(page: Page, found: Found, size: Size) -> None:
    """The best settings, by the mean gain over plain inference."""
    batch = {((c, k), n): r for (c, k, n), r in found.batch.items() if n != BEST_OF_5}
    specs = {name: spec for (_, _, name), spec in batch_cells(size).items()}
    online = {name: spec for (_, name), spec in online_cells(size).items()}
    # At K = 50 both kinds have the same priors, α = η = 1/K.
    both = {(c, n): r for (c, k, n), r in found.batch.items() if k == size.k and n != BEST_OF_5}
    both = {key: record for key, record in both.items() if (key[0], SVI) in found.passes}
    if both:
        both |= {(c, f"{n} (online)"): r for (c, n), r in found.passes.items()}
        both = {key: record for key, record in both.items() if (key[0], VI) in both}
    questions = [
        ("for the best bound (batch)", batch, VI, "bound"),
        ("for the best held-out likelihood (batch)", batch, VI, "held_out"),
        (f"for the best held-out likelihood, all at K = {size.k}", both, VI, "held_out"),
        ("for streams: held-out likelihood at equal time", found.timed, SVI, "held_out"),
    ]
    rows = []
    for question, records, reference, what in questions:
        order = standing(records, reference, what)
        if order:
            best, figures = recommended(order)
            known = specs | online | {f"{n} (online)": s for n, s in online.items()}
            if records is found.timed:
                known = {n: s for (_, n), s in timed_cells(size, found.passes).items()}
            rows.append((question, best, setting(known[best]), figures))
    if not rows:
        return
    page.section(
        "Which setting",
        "Computed from the tables below: mean gain over plain inference (VI or SVI) in nats per "
        "token, over all corpora and K that all methods of the table have; the best five. More "
        "bound is not more held-out likelihood. The passes are those of the measurements, for "
        "streams those of the last corpus.",
    )
    page.table(("aim", "best", "setting", "mean gains over plain inference"), rows)


RULES = (
    "A comparison is won if the median of the differences, paired by seed, exceeds the noise, "
    "which is twice the standard deviation over seeds, pooled over both methods; lost is the "
    "same below. Differences that would be printed as zero are ties. All won: reproduced; "
    "none: not reproduced; otherwise partly. Other rules are stated with the claim. Figures "
    "are median differences ± noise. The number of comparisons is not adjusted for."
)


def sections(page: Page, size: Size, cache: Cache) -> list[Claim]:
    """Add the sections that follow the verdicts, and return the claims."""
    found = found_in(cache, size)
    section_setting(page, found, size)
    section_corpora(page, found)
    section_batch(page, found, size)
    section_online(page, found, size)
    section_figure3(page, found, size)
    section_grid(page, found, size)
    return claims(found)


def main(argv: list[str] | None = None) -> None:
    Reproduction(
        model="latent_dirichlet",
        title="Topic models: methods, and what the papers claim",
        description=(__doc__ or "").partition("\n")[0],
        rules=RULES,
        plan=plan,
        spec=Spec,
        sections=sections,
        output="topics.md",
    ).run(argv)


if __name__ == "__main__":
    main()
