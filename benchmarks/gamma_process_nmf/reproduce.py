"""Gamma-process factorisation of drawn and of real counts; writes a page of results.

Parts: *drawn*, components of drawn counts that are recovered, by every method (Hoffman and Blei,
2015, section 4.3); *paper*, the same in the paper's size, by a few methods; *notes*, spectra of
synthesised notes; *held_out*, digits and texts against scikit-learn's factorisations and our
topics; *stability*, the components of fits from several starts. The page is
``doc/results/gamma_process_nmf.md``.

    python -m benchmarks.gamma_process_nmf.reproduce --cache counts.jsonl
    python -m benchmarks.gamma_process_nmf.reproduce --cache counts.jsonl --write
    python -m benchmarks.gamma_process_nmf.reproduce --quick --cache /tmp/q.jsonl

The first command makes all fits, and the second writes the page from the cache. To write the page
of a quick run, give ``--output`` too. Every finished fit is a line of the cache, so that a run that
was interrupted goes on where it stopped. Delete the cache after a change of the package. Texts come
from files, see ``data.py`` in this folder; without them these fits are left out with a message.

Verdicts are computed from the figures. Comparisons of drawn data are paired by seed, which
determines the data and the start, and are decided by Wilcoxon's one-sided signed-rank test,
adjusted for the comparisons of the claim (Holm), at p < 0.05. Real data have too few seeds for a
test, so that their claims state a rule.
"""

from __future__ import annotations

import numpy as np

from ..common.report import Claim, Page
from ..common.reproduction import Cache, Record, Reproduction, n_seeds
from . import data, plan
from .claims import Found, claims
from .fits import Spec
from .plan import (
    Size,
    drawn_cells,
    held_out_cells,
    notes_cells,
    paper_cells,
    stability_cells,
)

RULES = (
    "A comparison of drawn data is won if the median difference over seeds is above zero and "
    "Wilcoxon's one-sided signed-rank test, adjusted for the comparisons of the claim, gives "
    "p < 0.05; lost is the same below. All won: reproduced; none: not reproduced; otherwise "
    "partly. Other rules are stated with the claim."
)


def middle(record: Record, what: str, digits: int) -> str:
    """The median and the range over seeds; a dash for what was not measured."""
    if what not in record:
        return "–"
    low, median, high = np.percentile(record[what], [0, 50, 100])
    if len(record[what]) == 1 or low == high:
        return f"{median:.{digits}f}"
    return f"{median:.{digits}f} ({low:.{digits}f} … {high:.{digits}f})"


def median(record: Record, what: str, digits: int) -> str:
    return f"{np.median(record[what]):.{digits}f}" if what in record else "–"


def table_of_truth(page: Page, records: dict[str, Record], of: str) -> None:
    """Add a table of fits whose true components are known."""
    rows = [
        [
            name,
            middle(record, "recovered", 0),
            middle(record, "used", 0),
            median(record, "bound", 0),
            median(record, "passes", 0),
            median(record, "seconds", 1),
        ]
        for name, record in records.items()
    ]
    page.table(["method", f"{of} found", "components used", "bound", "passes", "time, s"], rows)


def section_drawn(
    page: Page,
    drawn: dict[tuple[float, str], Record],
    of_paper: dict[tuple[float, str], Record],
    size: Size,
) -> None:
    if drawn:
        page.section(
            "Components of drawn counts",
            f"{size.rows} rows and {size.columns} columns, drawn from {size.truth} components of "
            f"equal weight; activations have gamma priors of shape {data.ACTIVATION_PRIOR:g}, and "
            f"components of shape {data.COMPONENT_PRIOR:g}, as in the paper. The fits have these "
            "too, and the concentration 1, but for *default*, which reheats and learns its priors. "
            f"Fits may use {size.truncation} components. A component is found if one of the fit "
            f"has a cosine of {data.NEAR:g} or more with it, in the best assignment. Medians and "
            f"ranges of {n_seeds(drawn)} seeds, which draw data and start; bound in nats. *Passes* "
            "count all restarts and reheats.",
        )
        _by_mean(page, drawn)
    if of_paper:
        page.section(
            "Components of drawn counts, in the paper's size",
            f"The same with {size.paper[0]:,} rows and {size.paper[1]} columns, which are those of "
            f"the paper; its components resembled spectra of speech. {n_seeds(of_paper)} seeds.",
        )
        _by_mean(page, of_paper)


def _by_mean(page: Page, records: dict[tuple[float, str], Record]) -> None:
    for mean in dict.fromkeys(mean for mean, _ in records):
        page.lines += [f"Mean count {mean:g}:", ""]
        of_mean = {name: r for (m, name), r in records.items() if m == mean}
        table_of_truth(page, of_mean, "components")


def section_notes(page: Page, notes: dict[str, Record], size: Size) -> None:
    if not notes:
        return
    page.section(
        "Notes in spectra",
        f"{size.spectra} magnitude spectra of {size.notes} synthesised notes that overlap in time "
        "(`sklearn_anneal.datasets.make_notes`); the recorded music of the paper cannot be "
        "shipped. Magnitudes are no counts, and the model takes them as such. Fits may use "
        f"{2 * size.notes} components. A note is found if a component has a cosine of "
        f"{data.NEAR:g} or more with its mean spectrum. {n_seeds(notes)} seeds.",
    )
    table_of_truth(page, notes, "notes")


def section_held_out(page: Page, held_out: dict[tuple[str, str], Record], size: Size) -> None:
    if not held_out:
        return
    shown = "; ".join(f"{n}: {a:,} and {b:,} rows of {c:,}" for n, a, b, c in size.real)
    grid = ", ".join(map(str, size.grid))
    page.section(
        "Held-out halves of digits and texts",
        f"Rows that are fitted and held out ({shown} columns, the most frequent), drawn anew for "
        f"each of {n_seeds(held_out)} seeds. The counts of a held-out row are split in two halves "
        "(`split_documents`); activations are inferred from one, and the score is the mean log "
        "probability of the cells of the other under Poisson distributions, in 10⁻³ nats. Our fits "
        f"have {size.truncation_of_real} components. NMF is scikit-learn's with the "
        "Kullback-Leibler loss: the number of components "
        f"({grid}) and a share of the mean of each column, which is added to the rates because "
        "zeros would have infinite losses, are the best on rows that are neither fitted nor held "
        "out; of ten random starts the one with the least loss is taken. MiniBatchNMF is chosen in "
        "the same way from one start. hpfrec is hierarchical Poisson factorisation with as many "
        "components as our fits and 200 iterations. Topics are "
        "`AnnealedLatentDirichletAllocation` with its defaults. *Sparsity*: share of the entries "
        "below a hundredth of the largest of their "
        "component. *Time* includes the choice of settings.",
    )
    rows = []
    for (name, method), record in held_out.items():
        scores = {"score": 1e3 * record["score"]}
        rows.append(
            [
                name,
                method,
                middle(scores, "score", 2),
                median(record, "used", 0),
                median(record, "sparsity", 2),
                median(record, "bound", 2),
                median(record, "seconds", 1),
            ]
        )
    header = ["data", "method", "score, 10⁻³ nats per cell", "components", "sparsity"]
    page.table([*header, "bound per row", "time, s"], rows)


def section_stability(page: Page, stability: dict[str, Record], size: Size) -> None:
    if not stability:
        return
    page.section(
        "Do fits from other starts find the same components?",
        f"{size.real[0][1]:,} digits of 8 × 8 pixels. The components of {size.repeats} fits are "
        "assigned to each other in pairs, as well as their cosines allow. *NMF*: the best of ten "
        f"starts with {size.truncation_of_real} components. *Consensus*: "
        f"{size.consensus} solutions of 100 fits of NMF each, whose components are grouped in the "
        "way of cNMF (Kotliar et al., 2019) in a few lines of our own. *The same*: share of pairs "
        f"with a cosine of {data.NEAR:g} or more. Where one solution has more components than the "
        "other, those that are left over do not count.",
    )
    rows = [
        [
            name,
            f"{record['used'][0]:.1f}",
            f"{record['cosine'][0]:.3f}",
            f"{record['same'][0]:.0%}",
            f"{record['seconds'][0]:.1f}",
        ]
        for name, record in stability.items()
    ]
    page.table(["method", "components", "mean cosine", "the same", "time per solution, s"], rows)


def sections(page: Page, size: Size, cache: Cache) -> list[Claim]:
    """Add the sections that follow the verdicts, and return the claims."""
    found = Found(
        drawn=cache.of_common_seeds(drawn_cells(size), size.seeds),
        notes=cache.of_common_seeds(notes_cells(size), size.few),
        held_out=cache.of_common_seeds(held_out_cells(size), size.few),
        stability=cache.of_common_seeds(stability_cells(size), 1),
    )
    of_paper = cache.of_common_seeds(paper_cells(size), size.few)
    section_drawn(page, found.drawn, of_paper, size)
    section_notes(page, found.notes, size)
    section_held_out(page, found.held_out, size)
    section_stability(page, found.stability, size)
    return claims(found)


def main(argv: list[str] | None = None) -> None:
    Reproduction(
        model="gamma_process_nmf",
        title="Gamma-process factorisation of counts",
        description=(__doc__ or "").partition("\n")[0],
        rules=RULES,
        plan=plan,
        spec=Spec,
        sections=sections,
        output="gamma_process_nmf.md",
    ).run(argv)


if __name__ == "__main__":
    main()
