"""Claims about annealed hidden Markov models, and the rules by which figures decide them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..common.report import OWN_QUESTION, Claim, answered, compared, outcomes, verdict
from ..common.reproduction import Record
from .plan import (
    BEST,
    COMPARED,
    DET,
    PAPER_DET,
    PAPER_STOCH,
    STILL,
    STOCH,
    VI,
    LetterKey,
    SettingsKey,
)

GULTEKIN, EXPECTED, OWN = "Gultekin et al. 2015", "expected figures", OWN_QUESTION
# Times count as "essentially the same" if their ratio is at most this.
SAME_TIME = 1.25
# The share of all letters on which a method has to win for "consistently".
CONSISTENT = 0.9

Records = dict[LetterKey, Record]


@dataclass
class Found:
    """All records of the cache, by part of the reproduction.

    Attributes
    ----------
    letters, orientation, texts, others, curve : dict
        Records by (data, K, method).
    settings : dict
        Records by (emission, data, K, name of the settings).
    """

    letters: Records = field(default_factory=dict)
    orientation: Records = field(default_factory=dict)
    texts: Records = field(default_factory=dict)
    others: Records = field(default_factory=dict)
    curve: Records = field(default_factory=dict)
    settings: dict[SettingsKey, Record] = field(default_factory=dict)


def with_best(records: Records, plain: Records) -> Records:
    """Add the best bound of all seeds of plain inference to the records, as a further method."""
    found = dict(records)
    for (name, k, method), record in plain.items():
        if method == VI and (name, k, VI) in records:
            best = int(np.argmax(record["bound"]))
            one = {what: values[best : best + 1] for what, values in record.items()}
            found[name, k, BEST] = one | {"seconds": record["seconds"].sum(keepdims=True)}
    return found


def medians(records: Records, method: str, k: int, what: str) -> np.ndarray:
    """Medians over the seeds of one method, for each data set."""
    return np.array(
        [np.median(r[what]) for (_, kk, m), r in records.items() if (kk, m) == (k, method)]
    )


def states_of(records: Records) -> list[int]:
    return list(dict.fromkeys(k for _, k, _ in records))


def accuracy(records: Records, method: str, k: int) -> np.ndarray:
    """Share of held-out sequences that naive Bayes assigns to their own letter, per seed.

    There is one model per letter. The prior is the share of each letter in the training set.
    """
    own = [r for (_, kk, m), r in records.items() if (kk, m) == (k, method)]
    prior = np.log([r["sequences"][0] for r in own])
    truth = np.repeat(np.arange(len(own)), [int(r["held_out_sequences"][0]) for r in own])
    scores = np.stack([r["scores"] for r in own], axis=-1) + prior
    return (scores.argmax(axis=-1) == truth).mean(axis=1)


def _over_letters(
    source: str, text: str, records: Records, first: str, second: str, what: str = "bound"
) -> Claim:
    """Compare medians of the letters by Wilcoxon's test over the letters, for each K."""
    digits = 0 if what == "bound" else 3
    pairs, won = [], []
    for k in states_of(records):
        a, b = (medians(records, method, k, what) for method in (first, second))
        pairs.append((f"K = {k}", a, b))
        won.append(f"{int(np.sum(np.round(a - b, digits) > 0))} of {len(a)}")
    claim = compared(source, text, pairs, digits)
    claim.figures += f". Letters: {', '.join(won)}."
    return claim


def letters(records: Records) -> list[Claim]:
    if not records:
        return []
    found = [
        _over_letters(source, f"pen trajectories: {a} above {b}", records, a, b)
        for source, a, b in (
            (GULTEKIN, PAPER_STOCH, VI),
            (GULTEKIN, PAPER_DET, VI),
            (GULTEKIN, PAPER_STOCH, PAPER_DET),
            (GULTEKIN, STOCH, VI),
            (GULTEKIN, DET, VI),
            (GULTEKIN, STOCH, DET),
            (OWN, STOCH, BEST),
            (OWN, DET, BEST),
        )
    ]
    for own in ((PAPER_STOCH, PAPER_DET), (STOCH, DET)):
        found.append(_consistent(records, *own))
    found.append(_same_time(records))
    found += [
        _over_letters(OWN, f"{a} predicts better than {b}", records, a, b, "held_out")
        for a, b in (
            (DET, VI),
            (STOCH, VI),
            (STOCH, BEST),
            (STOCH, DET),
        )
    ]
    for method in (DET, STOCH):
        pairs = [
            (f"K = {k}", 100 * accuracy(records, method, k), 100 * accuracy(records, VI, k))
            for k in states_of(records)
        ]
        text = f"{method} tells letters apart better than {VI} (percent of sequences)"
        found.append(compared(OWN, text, pairs, 1))
    return found


def _consistent(records: Records, stochastic: str, deterministic: str) -> Claim:
    """Whether stochastic annealing is the best of three methods at nearly every letter."""
    holds, figures = [], []
    for k in states_of(records):
        best = medians(records, stochastic, k, "bound")
        others = [medians(records, m, k, "bound") for m in (VI, deterministic)]
        won = int(np.sum(best > np.max(others, axis=0)))
        holds.append(won >= CONSISTENT * len(best))
        figures.append(f"K = {k}: {won} of {len(best)}")
    return Claim(
        GULTEKIN,
        f"{stochastic} is consistently best of three (rule: the best median of {stochastic}, "
        f"{deterministic} and {VI} at {100 * CONSISTENT:.0f} % of the letters, for each K)",
        verdict(holds),
        "; ".join(figures),
    )


def _same_time(records: Records) -> Claim:
    figures, holds = [], []
    for k in states_of(records):
        times, passes = (
            {m: medians(records, m, k, what) for m in (VI, PAPER_DET, PAPER_STOCH)}
            for what in ("seconds", "passes")
        )
        each = {m: times[m] / passes[m] for m in times}
        for method in (PAPER_DET, PAPER_STOCH):
            ratio = float(np.median(each[method] / each[VI]))
            whole = float(np.median(times[method] / times[VI]))
            holds.append(ratio <= SAME_TIME)
            figures.append(f"{method}, K = {k}: {ratio:.2f} per pass, {whole:.1f} per fit")
    text = f"annealing takes essentially VI's time (rule: per pass at most {SAME_TIME} times)"
    return Claim(GULTEKIN, text, verdict(holds), "; ".join(figures))


def orientation(records: Records) -> list[Claim]:
    """Whether figures of letter "a" with five states are in the expected order."""
    name, k = next(((n, k) for n, k, _ in records), ("", 0))
    if not records:
        return []
    own = {method: r["bound"] for (n, kk, method), r in records.items() if (n, kk) == (name, k)}
    # The best of all seeds is a single figure, which is compared with that of each seed.
    best = np.full(len(own[VI]), own[BEST][0])
    pairs = [
        (f"{STILL} above {BEST}", own[STILL], best),
        (f"{DET} above {STILL}", own[DET], own[STILL]),
        (f"{STOCH} above {STILL}", own[STOCH], own[STILL]),
        (f"{DET} above {STOCH}", own[DET], own[STOCH]),
    ]
    values = "; ".join(f"{method} {np.median(v):.0f}" for method, v in own.items())
    claim = compared(
        EXPECTED,
        f"{name}, K = {k}: VI −13802, best of ten −13142, deterministic −12868 without and −12259 "
        "with jitter, stochastic −12389 (rule: the order, as the subset and codebook are unknown)",
        pairs,
    )
    claim.figures += f". Medians: {values}."
    return [claim]


def texts(records: Records) -> list[Claim]:
    """Whether annealing gains nothing on letters of English texts."""
    pairs = [
        (f"{method}, {name}, K = {k}", records[name, k, method]["bound"], r["bound"])
        for (name, k, m), r in records.items()
        if m == VI
        for method in (DET, STOCH)
    ]
    if not pairs:
        return []
    wins, losses, figures = outcomes(pairs)
    count = f"annealing won {sum(wins)}, lost {sum(losses)} of {len(wins)}. "
    text = f"no gain on letters of English texts (rule: no comparison with {VI} is won)"
    return [Claim(EXPECTED, text, verdict(not won for won in wins), count + figures)]


def curve(records: Records) -> list[Claim]:
    if not records:
        return []
    states = states_of(records)
    lines = {m: np.array([medians(records, m, k, "bound")[0] for k in states]) for m in COMPARED}
    name = next(iter(records))[0]
    found = [
        compared(
            GULTEKIN, f"{a} above {b} for every number of states", [(name, lines[a], lines[b])]
        )
        for a, b in ((DET, VI), (STOCH, VI), (STOCH, DET))
    ]
    best = {m: states[int(np.argmax(line))] for m, line in lines.items()}
    figures = "; ".join(f"{m}: K = {k}" for m, k in best.items())
    found.append(
        Claim(
            GULTEKIN,
            "annealed and plain inference do not agree on the best number of states",
            verdict([best[m] != best[VI] for m in (DET, STOCH)]),
            f"{figures}, of {states}",
        )
    )
    steps = np.diff(lines[STOCH]) > 0
    found.append(
        Claim(
            GULTEKIN,
            f"more states are better (rule: the bound of {STOCH} rises at every step)",
            verdict(steps.tolist()),
            f"{int(steps.sum())} of {len(steps)} steps",
        )
    )
    return found


def claims(found: Found) -> list[Claim]:
    """All claims for which there are figures, with verdicts."""
    every = [
        *letters(found.letters),
        *curve(found.curve),
        *orientation(found.orientation),
        *texts(found.texts),
    ]
    return answered(every)
