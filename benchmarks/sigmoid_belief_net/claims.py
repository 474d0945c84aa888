"""What is claimed about sigmoid belief nets, and the rules by which figures decide."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..common.report import OWN_QUESTION, Claim, answered, verdict
from ..common.reproduction import Record
from .fits import RBM
from .plan import ENTROPY, GOOD, KL, PLAIN

PAPER = "Altosaar et al. (2018), section 4"
EXPECTED = "expected figures"
# Mean reconstruction errors of digits from a bad start, as they were before this package had the
# model: with proximity, without, of independent pixels, and from a good start.
_EXPECTED = {ENTROPY: (0.22, 0.24), PLAIN: (0.26, 0.27), GOOD: (0.10, 0.11)}


@dataclass
class Found:
    """All records of the cache, by what their sections are divided into."""

    digits: dict[str, Record] = field(default_factory=dict)
    images: dict[str, Record] = field(default_factory=dict)
    held_out: dict[tuple[str, str], Record] = field(default_factory=dict)


def _recovery(records: dict[str, Record], what: str) -> list[Claim]:
    """The claims on bad starts of one kind of images."""
    plain, entropy = (records[name] for name in (PLAIN, ENTROPY))
    better = [bool(e < p) for e, p in zip(entropy["error"], plain["error"], strict=True)]
    higher = [bool(p > e) for e, p in zip(entropy["bound"], plain["bound"], strict=True)]
    figures = (
        f"medians {np.median(entropy['error']):.3f} and {np.median(plain['error']):.3f}, lower "
        f"for {sum(better)} of {len(better)} seeds"
    )
    bounds = (
        f"medians {np.median(entropy['bound']):.2f} and {np.median(plain['bound']):.2f} nats per "
        f"row, lower for {sum(higher)} of {len(higher)} seeds"
    )
    return [
        Claim(
            PAPER,
            f"from a bad start, proximity reconstructs {what} better than plain inference (rule: "
            "for every seed)",
            verdict([all(better)]),
            figures,
        ),
        Claim(
            PAPER,
            f"its bound on {what} is lower than that of plain inference (rule: for every seed)",
            verdict([all(higher)]),
            bounds,
        ),
    ]


def _digits_claims(digits: dict[str, Record]) -> list[Claim]:
    parts = []
    for name, (low, high) in _EXPECTED.items():
        error = float(np.median(digits[name]["error"]))
        parts.append((low <= round(error, 2) <= high, f"{name}: {error:.3f}"))
    expected = Claim(
        EXPECTED,
        "the mean reconstruction error of digits is 0.22 to 0.24 with proximity, 0.26 to 0.27 "
        "without, and 0.10 to 0.11 from a good start (rule: medians, to 0.01)",
        verdict([holds for holds, _ in parts]),
        "; ".join(text for _, text in parts),
    )
    entropy, kl = (np.median(digits[name]["error"]) for name in (ENTROPY, KL))
    own = Claim(
        OWN_QUESTION,
        "the entropy is a better constraint than the divergence from the prior (rule: the median "
        "error is smaller by 0.005)",
        verdict([bool(entropy < kl - 0.005)]),
        f"medians {entropy:.3f} and {kl:.3f}",
    )
    return [*_recovery(digits, "digits"), expected, *answered([own])]


def _held_out_claims(held_out: dict[tuple[str, str], Record]) -> list[Claim]:
    names = list(dict.fromkeys(name for name, _ in held_out))
    plain = [method for name, method in held_out if name == names[0] and method[:4] == "none"]
    claims = []
    for method in plain:
        medians = {
            name: float(np.median(held_out[name, method]["score"] - held_out[name, RBM]["score"]))
            for name in names
        }
        claims.append(
            Claim(
                OWN_QUESTION,
                f"a plain fit ({method}) gives held-out rows a higher probability than "
                "BernoulliRBM (rule: the median difference is above zero), nats per row",
                verdict([difference > 0 for difference in medians.values()]),
                "; ".join(f"{name}: {d:+.2f}" for name, d in medians.items()),
            )
        )
        shape = method[len("none") :]
        for other in ("deterministic", "svi_plus", "proximity"):
            gains = {
                name: held_out[name, other + shape]["score"] - held_out[name, method]["score"]
                for name in names
            }
            claims.append(
                Claim(
                    OWN_QUESTION,
                    f"from a good start, {other}{shape} gives them a higher probability than "
                    f"{method} (rule: for every seed), nats per row",
                    verdict([bool((gain > 0).all()) for gain in gains.values()]),
                    "; ".join(f"{name}: {np.median(gain):+.2f}" for name, gain in gains.items()),
                )
            )
    return answered(claims)


def claims(found: Found) -> list[Claim]:
    """The claims of the parts whose fits are complete."""
    made = _digits_claims(found.digits) if found.digits else []
    if found.images:
        made += _recovery(found.images, "larger images")
    return made + (_held_out_claims(found.held_out) if found.held_out else [])
