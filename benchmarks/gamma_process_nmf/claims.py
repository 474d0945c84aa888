"""What is claimed about gamma-process factorisation, and the rules by which figures decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..common.report import OWN_QUESTION, Claim, answered, compared, verdict
from ..common.reproduction import Record
from .fits import CONSENSUS, OTHERS
from .plan import DEFAULT, POWER, RESTARTS, STRUCTURED, VI

PAPER = "Hoffman and Blei (2015), section 4.3"
EXPECTED = "expected figures"
# Numbers of 50 drawn components that are recovered, by the mean of the counts and the method, as
# they were before this package had the model.
_EXPECTED = {(5.0, VI): (20, 20), (5.0, STRUCTURED): (29, 29), (50.0, VI): (41, 45)}
_EXPECTED_POWER = 46


@dataclass
class Found:
    """All records of the cache, by what their sections are divided into."""

    drawn: dict[tuple[float, str], Record] = field(default_factory=dict)
    notes: dict[str, Record] = field(default_factory=dict)
    held_out: dict[tuple[str, str], Record] = field(default_factory=dict)
    stability: dict[str, Record] = field(default_factory=dict)


def _drawn_claims(drawn: dict[tuple[float, str], Record]) -> list[Claim]:
    means = list(dict.fromkeys(mean for mean, _ in drawn))

    def pairs(one: str, other: str, what: str) -> list[tuple[str, np.ndarray, np.ndarray]]:
        return [
            (f"mean count {mean:g}", drawn[mean, one][what], drawn[mean, other][what])
            for mean in means
        ]

    expected = []
    for (mean, name), (low, high) in _EXPECTED.items():
        if (mean, name) in drawn:
            found = float(np.median(drawn[mean, name]["recovered"]))
            text = f"{low}" if low == high else f"{low} to {high}"
            expected.append(
                Claim(
                    EXPECTED,
                    f"at mean count {mean:g}, {name} recovers {text} of 50 (rule: the median lies "
                    "within 2 of it)",
                    verdict([low - 2 <= found <= high + 2]),
                    f"median {found:g}",
                )
            )
    largest = means[-1]
    power = float(np.median(drawn[largest, POWER]["recovered"]))
    expected.append(
        Claim(
            EXPECTED,
            f"at mean count 50, stochastic annealing with the noise 0.95^t recovers "
            f"{_EXPECTED_POWER} (rule: the median lies within 2 of it)",
            verdict([abs(power - _EXPECTED_POWER) <= 2]),
            f"median {power:g} at mean count {largest:g}",
        )
    )
    return [
        compared(
            PAPER,
            "structured inference recovers more drawn components than VI",
            pairs(STRUCTURED, VI, "recovered"),
            1,
        ),
        *expected,
        *answered(
            [
                compared(
                    OWN_QUESTION,
                    "the default has a better bound than the best of ten plain fits",
                    pairs(DEFAULT, RESTARTS, "bound"),
                ),
                compared(
                    OWN_QUESTION,
                    "it recovers more of the components",
                    pairs(DEFAULT, RESTARTS, "recovered"),
                    1,
                ),
            ]
        ),
    ]


def _held_out_claims(held_out: dict[tuple[str, str], Record]) -> list[Claim]:
    names = list(dict.fromkeys(name for name, _ in held_out))
    there = {method for _, method in held_out}
    others = [method for method in (*OTHERS, VI) if method in there]

    def pairs(other: str) -> list[tuple[str, np.ndarray, np.ndarray]]:
        return [
            (name, 1e3 * held_out[name, DEFAULT]["score"], 1e3 * held_out[name, other]["score"])
            for name in names
        ]

    claims = []
    for other in others:
        medians = [(name, float(np.median(a - b))) for name, a, b in pairs(other)]
        claims.append(
            Claim(
                OWN_QUESTION,
                "the default predicts held-out halves better than "
                f"{other} (rule: the median difference is above zero), 10⁻³ nats per cell",
                verdict([difference > 0 for _, difference in medians]),
                "; ".join(f"{name}: {difference:+.2f}" for name, difference in medians),
            )
        )
    return answered(claims)


def _stability_claims(stability: dict[str, Record]) -> list[Claim]:
    ours, agreed = (float(stability[name]["cosine"][0]) for name in (DEFAULT, CONSENSUS))
    return answered(
        [
            Claim(
                OWN_QUESTION,
                "components of single default fits are as similar as those of two consensus "
                "solutions of a hundred fits of NMF each (rule: mean cosine, to 0.01)",
                verdict([ours >= agreed - 0.01]),
                f"{ours:.3f} against {agreed:.3f}",
            )
        ]
    )


def claims(found: Found) -> list[Claim]:
    """The claims of the parts whose fits are complete."""
    makers: list[tuple[dict, Callable]] = [
        (found.drawn, _drawn_claims),
        (found.held_out, _held_out_claims),
        (found.stability, _stability_claims),
    ]
    return [claim for records, make in makers if records for claim in make(records)]
