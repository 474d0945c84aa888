"""Sigmoid belief nets from bad and from good starts; writes a page of results.

Parts: *bad_start*, digits of 8 × 8 pixels from a start at which hidden units are soon switched off,
with and without proximity (Altosaar et al., 2018, section 4); *images*, the same with MNIST, in
small; *held_out*, probabilities of held-out rows against scikit-learn's BernoulliRBM. The page is
``doc/results/sigmoid_belief_net.md``.

    python -m benchmarks.sigmoid_belief_net.reproduce --cache nets.jsonl
    python -m benchmarks.sigmoid_belief_net.reproduce --cache nets.jsonl --write
    python -m benchmarks.sigmoid_belief_net.reproduce --quick --cache /tmp/q.jsonl

The first command makes all fits, and the second writes the page from the cache. To write the page
of a quick run, give ``--output`` too. Every finished fit is a line of the cache, so that a run that
was interrupted goes on where it stopped. Delete the cache after a change of the package. MNIST and
the words of posts come from files, see ``data.py`` in this folder; without them these fits are left
out with a message.

Verdicts are computed from the figures. There are too few seeds for tests, so that every claim
states a rule.
"""

from __future__ import annotations

import numpy as np

from ..common.report import Claim, Page
from ..common.reproduction import Cache, Record, Reproduction, n_seeds
from . import plan
from .claims import Found, claims
from .data import THRESHOLD
from .fits import Spec
from .plan import Size, digits_cells, held_out_cells, images_cells

RULES = (
    "There are too few seeds for tests, so that every claim states the rule by which its figures "
    "decide. If all parts hold: reproduced; none: not reproduced; otherwise partly."
)
FIGURES = (
    "*Error*: the mean of |x − E x′| over held-out rows and columns, where x′ is drawn from the "
    "net given hidden units of the recognition network. *Score*: the importance-weighted bound on "
    "the log probability of a held-out row, and *bound*: the multi-sample bound of the rows that "
    "were fitted, both in nats per row."
)


def middle(record: Record, what: str, digits: int) -> str:
    """The median and the range over seeds; a dash for what was not measured."""
    if what not in record:
        return "–"
    low, median, high = np.percentile(record[what], [0, 50, 100])
    if len(record[what]) == 1 or round(low, digits) == round(high, digits):
        return f"{median:.{digits}f}"
    return f"{median:.{digits}f} ({low:.{digits}f} … {high:.{digits}f})"


def table(page: Page, records: dict[str, Record]) -> None:
    """Add a table of fits from bad starts."""
    rows = [
        [
            name,
            middle(record, "error", 3),
            middle(record, "score", 2),
            middle(record, "bound", 2),
            f"{np.median(record['seconds']):.0f}",
        ]
        for name, record in records.items()
    ]
    page.table(["method", "error", "score", "bound", "time, s"], rows)


def sizes_in_words(size: tuple[int, int, tuple[int, ...], int]) -> str:
    n_train, n_test, sizes, n_passes = size
    return (
        f"{n_train:,} rows fitted and {n_test:,} held out, {' – '.join(map(str, sizes))} hidden "
        f"units, {n_passes} passes with batches of 100 rows, that is "
        f"{n_passes * -(-n_train // 100):,} steps of Adam"
    )


def section_digits(page: Page, digits: dict[str, Record], size: Size) -> None:
    if not digits:
        return
    page.section(
        "Digits of 8 × 8 pixels from a bad start",
        f"Pixels above {THRESHOLD} of 16 are on; {sizes_in_words(size.digits)} with the learning "
        "rate 0.01 "
        "and 5 draws per row. At the bad start, weights and biases of the net are drawn from "
        "N(−10, 0.01²), and the recognition network starts as it usually does. The paper "
        "takes N(−100, 0.01²), images of 28 × 28 pixels and 3 million steps. The strength of "
        "proximity is 10⁸, the default, where no other is given, and falls by 10⁻¹⁶ over "
        f"{size.share:.0%} of the passes; its lag is 100. Medians and ranges of "
        f"{n_seeds(digits)} seeds, which draw the split and the start.",
        FIGURES,
    )
    table(page, digits)


def section_images(page: Page, images: dict[str, Record], size: Size) -> None:
    if not images:
        return
    page.section(
        f"{size.images_of} from a bad start, in small",
        f"{sizes_in_words(size.images)} with the learning rate 0.003; everything else is as above. "
        f"Pixels above a half are on. {n_seeds(images)} seeds.",
    )
    table(page, images)


def section_held_out(page: Page, held_out: dict[tuple[str, str], Record], size: Size) -> None:
    if not held_out:
        return
    shown = "; ".join(
        f"{name}: {a:,} and {b:,} rows, {n} passes" for name, a, b, n in size.held_out
    )
    rates = ", ".join(f"{rate:g}" for rate in size.rates)
    page.section(
        "Held-out probabilities from a good start",
        f"Rows that are fitted and held out ({shown}), drawn anew for each of "
        f"{n_seeds(held_out)} seeds. The learning rate of every method ({rates}) is the best on "
        "a fifth of the rows that are fitted. Annealing methods have a quarter of the "
        "passes for their schedule. The score of nets is the importance-weighted bound with "
        f"{size.n_scored} draws, which is too low; "
        "BernoulliRBM has as many hidden units as the first net, batches of 10 rows, and the "
        f"normaliser by annealed importance sampling with {size.n_scored} chains of 1,000 steps, "
        "which is more often too small than too large and so flatters the machine. *Time* includes "
        "the choice of the rate and the scores.",
    )
    rows = [
        [
            name,
            method,
            middle(record, "score", 2),
            middle(record, "error", 3),
            middle(record, "bound", 2),
            f"{np.median(record['rate']):g}" if np.median(record["rate"]) else "–",
            f"{np.median(record['seconds']):.0f}",
        ]
        for (name, method), record in held_out.items()
    ]
    page.table(["data", "method", "score", "error", "bound", "rate", "time, s"], rows)


def sections(page: Page, size: Size, cache: Cache) -> list[Claim]:
    """Add the sections that follow the verdicts, and return the claims."""
    found = Found(
        digits=cache.of_common_seeds(digits_cells(size), size.seeds),
        images=cache.of_common_seeds(images_cells(size), size.few),
        held_out=cache.of_common_seeds(held_out_cells(size), size.few),
    )
    section_digits(page, found.digits, size)
    section_images(page, found.images, size)
    section_held_out(page, found.held_out, size)
    return claims(found)


def main(argv: list[str] | None = None) -> None:
    Reproduction(
        model="sigmoid_belief_net",
        title="Sigmoid belief nets",
        description=(__doc__ or "").partition("\n")[0],
        rules=RULES,
        plan=plan,
        spec=Spec,
        sections=sections,
        output="sigmoid_belief_net.md",
    ).run(argv)


if __name__ == "__main__":
    main()
