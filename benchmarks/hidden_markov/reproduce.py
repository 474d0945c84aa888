"""Annealed hidden Markov models on real sequences; writes ``doc/results/sequences.md``.

Parts: *settings*, the grid behind the recommended settings, for three kinds of emission;
*letters*, Gultekin et al., figure 2: bound, held-out likelihood and time for pen trajectories of
each letter, a naive Bayes classifier of them, and a text of letters; *states*, their figure 3, the
bound against the number of states, on rows of images; *others*, the remaining methods by name.

    python -m benchmarks.hidden_markov.reproduce --cache hmm.jsonl
    python -m benchmarks.hidden_markov.reproduce --cache hmm.jsonl --write
    python -m benchmarks.hidden_markov.reproduce --cache hmm.jsonl --parts states
    python -m benchmarks.hidden_markov.reproduce --quick --cache /tmp/q.jsonl

The first command makes all fits (estimate: 60 minutes on one core), and the second writes the page
from the cache. To write the page of a quick run, give ``--output`` too.

Every finished fit is a line of the cache, so that a run that was interrupted goes on where it
stopped. The page is written from the seeds for which all fits of a part are complete. Delete the
cache after a change of the package. Some data come from files, see ``data.py`` in this folder; a
part whose file is missing is left out with a message. A quick run draws short sequences.

Verdicts are computed from the figures. Two methods are compared on letters by the letters' medians
over seeds, on the curve by the medians for each number of states, and otherwise by pairs of runs
with the same seed. A comparison is won if the median difference is above zero and the one-sided
p-value of Wilcoxon's signed-rank test, adjusted for the comparisons of the claim (Holm), is below
0.05. It is lost if the same holds in the other direction. Differences that would be printed as zero
are ties. A claim is reproduced if all its comparisons are won, not reproduced if none is, and
otherwise partly reproduced. Other claims state their rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..common.report import Claim, Page
from ..common.reproduction import Cache, Record, Reproduction, Settings, n_seeds
from . import plan
from .claims import (
    Found,
    Records,
    accuracy,
    claims,
    medians,
    states_of,
    with_best,
)
from .fits import Spec, recommended
from .plan import (
    BEST,
    COMPARED,
    VI,
    SettingsKey,
    Size,
    curve_cells,
    grid,
    letter_cells,
    methods,
    orientation_cells,
    other_cells,
    plain_cells,
    settings_cells,
    text_cells,
)


def found_in(cache: Cache, size: Size) -> Found:
    """The records of each part, for the seeds for which all its fits are complete."""
    records = cache.of_common_seeds
    plain = records(plain_cells(size), size.seeds)
    texts = records(text_cells(size), size.seeds)
    orientation = records(orientation_cells(size), size.seeds)
    return Found(
        letters=with_best(records(letter_cells(size), size.some), plain),
        orientation=with_best(orientation, orientation),
        texts=with_best(texts, texts),
        others=records(other_cells(size), 1),
        curve=records(curve_cells(size), size.some),
        settings=records(settings_cells(size), size.few),
    )


# The page


def in_words(settings: Settings) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings)


def section_methods(page: Page) -> None:
    page.section(
        "Data and methods",
        "*Pen trajectories*: for each of 20 letters, velocities and force of the pen as symbols of "
        "a codebook of 500 that k-means found in 50,000 of all frames; for Gaussian emissions as "
        "they are, without the padding at both ends. *Image rows*: images of digits as sequences "
        "of 28 rows, as symbols of a codebook of 256. *Digit 3* and *digit 8*: binary rows of 300 "
        "images. *English*: paragraphs of the descriptions of scikit-learn's data sets as letters "
        "and blanks. A third of the sequences of each is held out, the same in all runs. Bounds "
        "are complete, in nats, of the training set; held-out likelihoods are those of `score`, in "
        "nats per frame; times are processor time of whole fits, in seconds, of one thread. The "
        "priors of start and transition probabilities have concentration 1/K, those of symbols "
        "10/V, as the paper's. VI starts from posteriors of random counts, as the paper's.",
    )
    rows = [
        (label, f'`"{method}"`' if method == "none" else f"`{in_words(settings)}`")
        for label, (method, settings) in methods().items()
    ]
    rows.append((BEST, "the fit with the best bound of the seeds; the time of all of them"))
    page.table(("method", "settings"), rows)


def _best_in_bold(values: list[float], digits: int) -> list[str]:
    texts = [f"{value:.{digits}f}" for value in values]
    best = texts[int(np.argmax(values))]
    return [f"**{text}**" if text == best else text for text in texts]


def section_letters(page: Page, records: Records) -> None:
    if not records:
        return
    names = [*methods(), BEST]
    page.section(
        "Bound and held-out likelihood of each letter (Gultekin et al., figure 2)",
        f"Medians over {len(next(iter(records.values()))['bound'])} seeds; the best in bold.",
    )
    letters = list(dict.fromkeys(name for name, _, _ in records))
    for k in states_of(records):
        page.lines += [f"### K = {k}", ""]
        summary = []
        bounds, held_out = (
            np.stack([medians(records, m, k, what) for m in names])
            for what in ("bound", "held_out")
        )
        frames = medians(records, VI, k, "frames")
        for i, method in enumerate(names):
            gain = (bounds[i] - bounds[0]) / frames
            summary.append(
                (
                    method,
                    f"{np.sum(bounds[i] > bounds[0])} of {len(letters)}",
                    f"{np.sum(bounds[i] == bounds.max(axis=0))}",
                    f"{np.median(gain):+.3f}",
                    f"{np.median(held_out[i] - held_out[0]):+.3f}",
                    f"{np.median(medians(records, method, k, 'states')):.0f}",
                    f"{np.median(medians(records, method, k, 'passes')):.0f}",
                    f"{np.median(medians(records, method, k, 'seconds')):.2f}",
                )
            )
        header = ("method", "letters above VI", "letters best", "gain of the bound per frame")
        header += ("gain held out", "states used", "passes", "time")
        page.table(header, summary)
        for title, values, digits in (
            ("Lower bound:", bounds, 0),
            ("Held-out log-likelihood per frame:", held_out, 3),
        ):
            page.lines += [title, ""]
            rows = [
                (letter.removeprefix("letter "), *_best_in_bold(list(values[:, i]), digits))
                for i, letter in enumerate(letters)
            ]
            page.table(("letter", *names), rows)


def section_classifier(page: Page, records: Records, others: Records) -> None:
    if not records:
        return
    n_held_out = len(next(iter(records.values()))["scores"][0])
    page.section(
        "A classifier of letters",
        "Naive Bayes with one model per letter: log-likelihood of a sequence plus log share of "
        f"the letter in the training set. Percent of {n_held_out} held-out sequences that are "
        "assigned to their own letter: median over seeds (smallest … largest). The models of the "
        "methods without a range come from one seed.",
    )
    both = records | others
    rows = []
    for method in (*methods(), BEST, *dict.fromkeys(m for _, _, m in others)):
        cells = []
        for k in states_of(records):
            if not any((kk, m) == (k, method) for _, kk, m in both):
                cells.append("")
                continue
            values = 100 * accuracy(both, method, k)
            text = f"{np.median(values):.1f}"
            if len(values) > 1:
                text += f" ({values.min():.1f} … {values.max():.1f})"
            cells.append(text)
        if any(cells):
            rows.append((method, *cells))
    page.table(("method", *(f"K = {k}" for k in states_of(records))), rows)


def section_curve(page: Page, records: Records) -> None:
    if not records:
        return
    name = next(iter(records))[0]
    page.section(
        "Bound against the number of states (Gultekin et al., figure 3)",
        f"On {name}, medians over {n_seeds(records)} seeds; the best of a row in bold. The paper "
        "has songs of the Million Song Dataset, which are not at hand.",
    )
    rows = []
    for k in states_of(records):
        cells = [str(k)]
        for what, digits in (("bound", 0), ("held_out", 3)):
            cells += _best_in_bold([medians(records, m, k, what)[0] for m in COMPARED], digits)
        cells += [f"{medians(records, m, k, 'seconds')[0]:.1f}" for m in COMPARED]
        rows.append(cells)
    header = ["K"]
    for what in ("bound", "held-out", "time"):
        header += [f"{what}, {method}" for method in COMPARED]
    page.table(header, rows)


def section_others(page: Page, others: Records, letters: Records) -> None:
    if not others:
        return
    k = states_of(others)[0]
    page.section(
        "Other methods",
        f"By name, with their recommended settings; letters with K = {k}, one seed each, beside "
        "the medians of VI and of the recommended annealing: medians over letters.",
    )
    own = {
        key: record
        for key, record in letters.items()
        if key[1] == k and key[2] in (*COMPARED, BEST)
    }
    both = own | others
    if not own:
        return
    plain = {what: medians(both, VI, k, what) for what in ("bound", "held_out", "frames")}
    rows = []
    for method in dict.fromkeys(m for _, _, m in both):
        found = {
            what: medians(both, method, k, what)
            for what in ("bound", "held_out", "states", "passes", "seconds")
        }
        rows.append(
            (
                method,
                f"{np.sum(found['bound'] > plain['bound'])} of {len(plain['bound'])}",
                f"{np.median((found['bound'] - plain['bound']) / plain['frames']):+.3f}",
                f"{np.median(found['held_out'] - plain['held_out']):+.3f}",
                *(f"{np.median(found[what]):.0f}" for what in ("states", "passes")),
                f"{np.median(found['seconds']):.2f}",
            )
        )
    header = ("method", "letters above VI", "gain of the bound per frame", "gain held out")
    page.table((*header, "states used", "passes", "time"), rows)


def section_texts(page: Page, records: Records) -> None:
    if not records:
        return
    page.section("Letters of English", f"Medians over {n_seeds(records)} seeds.")
    rows = [
        (
            str(k),
            method,
            *(
                f"{np.median(record[what]):.{digits}f}"
                for what, digits in (("bound", 0), ("held_out", 3), ("seconds", 2))
            ),
        )
        for (_, k, method), record in records.items()
    ]
    page.table(("K", "method", "bound", "held-out", "time"), rows)


# Which setting

Gains = dict[str, np.ndarray]


def gains(records: dict[SettingsKey, Record], emission: str, what: str) -> Gains:
    """Gains over plain inference of each setting, in nats per frame, for all data sets and seeds.

    The setting with the best mean comes first.
    """
    own = {key: record for key, record in records.items() if key[0] == emission}
    found: dict[str, list[np.ndarray]] = {}
    for (_, name, k, label), record in own.items():
        difference = record[what] - own[emission, name, k, VI][what]
        scale = record["frames"] if what == "bound" else 1.0
        found.setdefault(label, []).append(difference / scale)
    both = {label: np.concatenate(parts) for label, parts in found.items()}
    return dict(sorted(both.items(), key=lambda item: -item[1].mean()))


def not_told_apart(ordered: Gains) -> list[str]:
    """Settings whose mean is below the best by less than two standard errors of the difference."""
    (_, best), *others = ordered.items()
    near = []
    for label, values in others:
        difference = best - values
        if difference.mean() <= 2 * difference.std(ddof=1) / np.sqrt(len(difference)):
            near.append(label)
    return near


def section_settings(page: Page, records: dict[SettingsKey, Record], size: Size) -> None:
    if not records:
        return
    page.section(
        "Which settings",
        "Mean gain over VI in nats per frame over the data sets of an emission and "
        f"{n_seeds(records)} seeds. Deterministic annealing in the likelihood form from T₀, "
        "geometric over n passes, with jitter of the counts; stochastic annealing with r₀ falling "
        "over n passes, from a draw (random) or the start of VI (init_params). *Equal*: settings "
        "whose mean is less than two standard errors of the paired difference below the best.",
    )
    for emission in dict.fromkeys(key[0] for key in records):
        own = {key: record for key, record in records.items() if key[0] == emission}
        sets = dict.fromkeys((name, k) for _, name, k, _ in own)
        words = ", ".join(f"{name} (K = {k})" for name, k in sets)
        page.lines += [f"### Emission: {emission}", "", f"On {words}.", ""]
        rows = []
        for method in ("deterministic", "stochastic"):
            labels = {label for label, (m, _) in grid(size).items() if m == method}
            for what in ("bound", "held_out"):
                ordered = {
                    label: values
                    for label, values in gains(own, emission, what).items()
                    if label in labels
                }
                best = next(iter(ordered))
                near = not_told_apart(ordered)
                rows.append(
                    (
                        f"{method}, {what.replace('_', '-')}",
                        best,
                        f"{ordered[best].mean():+.3f}",
                        f"{time_of(own, best):.2f}",
                        f"{len(near)} of {len(ordered) - 1}: " + "; ".join(near[:4]),
                    )
                )
        page.table(("aim", "best", "gain", "time", "equal, the first four"), rows)
        page.lines += ["Gain of the bound / held-out; the recommended setting in bold:", ""]
        _grid_table(page, own, emission, size, "deterministic", _deterministic_place)
        _grid_table(page, own, emission, size, "stochastic", _stochastic_place)


def time_of(records: dict[SettingsKey, Record], label: str) -> float:
    return float(np.mean([r["seconds"].mean() for key, r in records.items() if key[-1] == label]))


def _deterministic_place(settings: dict[str, Any]) -> tuple[str, str]:
    row = f"T₀ = {settings['initial_temperature']:g}, jitter {settings['jitter']:g}"
    return row, f"n = {settings['n_passes']}"


def _stochastic_place(settings: dict[str, Any]) -> tuple[str, str]:
    row = f"r₀ = {settings['initial_noise']:g}, {settings['schedule']}"
    return row, f"n = {settings['n_passes']}, {settings['start']}"


def _grid_table(
    page: Page,
    records: dict[SettingsKey, Record],
    emission: str,
    size: Size,
    method: str,
    place: Callable[[dict[str, Any]], tuple[str, str]],
) -> None:
    table: dict[str, dict[str, str]] = {}
    found = [gains(records, emission, what) for what in ("bound", "held_out")]
    for label, (kind, settings) in grid(size).items():
        if kind != method:
            continue
        row, column = place(dict(settings))
        text = " / ".join(f"{gain[label].mean():+.3f}" for gain in found)
        bold = settings == recommended(method)
        table.setdefault(row, {})[column] = f"**{text}**" if bold else text
    columns = list(dict.fromkeys(column for cells in table.values() for column in cells))
    rows = [(row, *(cells.get(c, "") for c in columns)) for row, cells in table.items()]
    page.table((method, *columns), rows)


RULES = (
    "A comparison is won if the median difference is above zero and Wilcoxon's one-sided "
    "signed-rank test, adjusted for the comparisons of the claim, gives p < 0.05; lost is the "
    "same below. On letters the medians over seeds are compared, letter by letter; on the "
    "curve those of each number of states; otherwise seed by seed. All won: reproduced; none: "
    "not reproduced; otherwise partly. Other rules are stated with the claim. *The paper's* "
    "deterministic annealing is the nearest that ends at T = 1."
)


def sections(page: Page, size: Size, cache: Cache) -> list[Claim]:
    """Add the sections that follow the verdicts, and return the claims."""
    found = found_in(cache, size)
    section_methods(page)
    section_letters(page, found.letters)
    section_classifier(page, found.letters, found.others)
    section_curve(page, found.curve)
    section_others(page, found.others, found.letters)
    section_texts(page, found.texts)
    section_settings(page, found.settings, size)
    return claims(found)


def main(argv: list[str] | None = None) -> None:
    Reproduction(
        model="hidden_markov",
        title="Sequences: annealed hidden Markov models",
        description=(__doc__ or "").partition("\n")[0],
        rules=RULES,
        plan=plan,
        spec=Spec,
        sections=sections,
        output="sequences.md",
    ).run(argv)


if __name__ == "__main__":
    main()
