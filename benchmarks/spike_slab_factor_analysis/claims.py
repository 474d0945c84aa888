"""What is claimed about spike-and-slab factors, and the rules by which figures decide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ..common.report import OWN_QUESTION, Claim, answered, compared, verdict
from ..common.reproduction import Record
from .data import BOTH, DRAWN
from .fits import FACTORS, MOFA, SPARSE
from .plan import BY_GRADIENTS, DEFAULT, LEARNED, PROXIMITY, RESTARTS, STEEP, VI

PAPER = "Altosaar et al. (2018), section 4"
EXPECTED = "expected figures"
# Errors of Bernoulli factors before this package had the model, and how far off a median may be:
# by gradients from a near start and with proximity from any, without it from a far start, and by
# coordinates with deterministic annealing.
_NEAR, _FAR, _COORDINATES = 6.3, (20.0, 24.0), 2.6
_SLACK = 0.5
# A start is far if the error of plain gradients is at least twice that of the nearest.
_TWICE = 2.0


@dataclass
class Found:
    """All records of the cache, by what their sections are divided into."""

    starts: dict[tuple[str, float | None], Record] = field(default_factory=dict)
    loadings: dict[tuple[str, str], Record] = field(default_factory=dict)
    held_out: dict[tuple[str, str], Record] = field(default_factory=dict)


def _starts_claims(starts: dict[tuple[str, float | None], Record]) -> list[Claim]:
    distances = sorted(d for name, d in starts if name == BY_GRADIENTS and d is not None)

    def medians(name: str) -> np.ndarray:
        return np.array([np.median(starts[name, d]["error"]) for d in distances])

    plain, near = medians(BY_GRADIENTS), medians(PROXIMITY)
    far = plain >= _TWICE * plain[0]
    listed = ", ".join(f"{d:g}" for d in distances)
    figures = (
        f"medians at the distances {listed}: plain {_numbers(plain)}, proximity {_numbers(near)}"
    )
    coordinates = float(np.median(starts[STEEP, None]["error"]))
    expected = [
        (bool(abs(plain[0] - _NEAR) <= _SLACK), f"plain, nearest start: {plain[0]:.1f}"),
        (
            bool(_FAR[0] - _SLACK <= plain[-1] <= _FAR[1] + _SLACK),
            f"plain, farthest start: {plain[-1]:.1f}",
        ),
        (bool((abs(near - _NEAR) <= _SLACK).all()), f"proximity: {_numbers(near)}"),
        (bool(abs(coordinates - _COORDINATES) <= _SLACK), f"coordinates: {coordinates:.1f}"),
    ]
    text = (
        f"the error is {_NEAR} by gradients from near starts, {_FAR[0]:g} to {_FAR[1]:g} from far "
        f"ones, {_NEAR} with proximity from any, and {_COORDINATES} by coordinates with "
        f"deterministic annealing (rule: medians, to {_SLACK})"
    )
    own = Claim(
        OWN_QUESTION,
        "coordinate ascent with deterministic annealing, from its own start, is nearer to the "
        "truth than proximity from the nearest start (rule: medians)",
        verdict([coordinates < near[0]]),
        f"{coordinates:.1f} against {near[0]:.1f}",
    )
    return [
        Claim(
            PAPER,
            "plain gradients fail from far starts (rule: the median error is at least "
            f"{_TWICE:g} times that of the nearest start)",
            verdict([bool(far.any())]),
            figures,
        ),
        Claim(
            PAPER,
            "proximity does not fail from any start (rule: no median error is "
            f"{_TWICE:g} times that of plain gradients from the nearest start)",
            verdict([bool((near < _TWICE * plain[0]).all())]),
            figures,
        ),
        Claim(
            EXPECTED,
            text,
            verdict([holds for holds, _ in expected]),
            "; ".join(shown for _, shown in expected),
        ),
        *answered([own]),
    ]


def _numbers(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def _loadings_claims(loadings: dict[tuple[str, str], Record]) -> list[Claim]:
    claims = []
    for peer in (FACTORS, SPARSE, MOFA):
        if (BOTH, peer) in loadings:
            pairs = [
                (kind, loadings[kind, DEFAULT]["cosine"], loadings[kind, peer]["cosine"])
                for kind in DRAWN
            ]
            text = f"the default finds loadings with higher cosines than {peer} at its best"
            claims.append(compared(OWN_QUESTION, text, pairs, 3))
    pairs = [
        (kind, loadings[kind, DEFAULT]["bound"], loadings[kind, RESTARTS]["bound"])
        for kind in DRAWN
    ]
    text = "the default has a better bound than the best of ten plain fits, nats per row"
    claims.append(compared(OWN_QUESTION, text, pairs, 3))
    return answered(claims)


def _held_out_claims(held_out: dict[tuple[str, str], Record]) -> list[Claim]:
    names = list(dict.fromkeys(name for name, _ in held_out))
    claims = []
    for other in (VI, RESTARTS, LEARNED, FACTORS):
        pairs = [(n, held_out[n, DEFAULT]["score"], held_out[n, other]["score"]) for n in names]
        text = f"the default scores held-out rows higher than {other}, nats per row"
        claims.append(compared(OWN_QUESTION, text, pairs, 2))
    pairs = [(n, held_out[n, DEFAULT]["bound"], held_out[n, RESTARTS]["bound"]) for n in names]
    text = "the default has a better bound on these data than the best of ten plain fits"
    claims.append(compared(OWN_QUESTION, text, pairs, 2))
    return answered(claims)


def claims(found: Found) -> list[Claim]:
    """The claims of the parts whose fits are complete."""
    made = _starts_claims(found.starts) if found.starts else []
    if found.loadings:
        made += _loadings_claims(found.loadings)
    return made + (_held_out_claims(found.held_out) if found.held_out else [])
