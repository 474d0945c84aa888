"""Claims about mixtures of binary columns and categories, and the rules by which figures decide."""

from __future__ import annotations

import numpy as np

from ..common.report import LEVEL, OWN_QUESTION, Claim, compared, verdict
from ..common.reproduction import Record
from .plan import (
    BEST_OF_TEN,
    DEFAULT_NAME,
    DETERMINISTIC,
    EM,
    EM_OF_TEN,
    LEARNED,
    REHEATING,
    SSVI,
    SSVI_A,
    VI,
    Key,
)

HOFFMAN, EXPECTED, POLCA = "Hoffman & Blei 2015", "expected figures", "poLCA"
# A fit belongs to the best documented maximum if EM from it ends within this many nats of it.
SAME = 0.05
# The best documented log-likelihoods of latent class models, in nats.
DOCUMENTED = {
    ("carcinoma", 2): -317.2568,
    ("carcinoma", 3): -293.705,
    ("cheating", 2): -440.0271,
    ("gss82", 2): -2783.268,
    ("values", 2): -504.4677,
    ("election", 2): -17344.92,
    ("election", 3): -16714.66,
}
# Figures of methods before this implementation: components used, and divergence from the truth.
COMPONENTS_OF_VI = (19, 27)
FIGURES = {VI: ("19–27", "4.0"), SSVI_A: ("60", "2.1"), DETERMINISTIC: ("30", "2.7")}

Records = dict[Key, Record]


def by_method(records: Records) -> dict[str, Record]:
    """The records of one data set and one K."""
    return {method: record for (_, _, method), record in records.items()}


def bernoullis(records: Records) -> list[Claim]:
    own = by_method(records)
    if not own:
        return []

    def medians(what: str, *names: str) -> str:
        return "; ".join(f"{n}: {np.median(own[n][what]):.4g}" for n in names)

    used, truth = np.median(own[VI]["used"]), np.median(own[VI]["true_components"])
    low, high = COMPONENTS_OF_VI
    few = f"the truth: {truth:g}; {medians('used', VI, SSVI_A, SSVI)}"
    names = (f"{DEFAULT_NAME}, true priors", f"{DEFAULT_NAME}, {LEARNED}", "stochastic", "svi_plus")
    near = abs(np.median(own[SSVI_A]["used"]) - truth) < abs(used - truth)
    return [
        Claim(
            EXPECTED,
            f"{VI} uses {low} to {high} components (rule: the median)",
            verdict([low <= used <= high]),
            few,
        ),
        Claim(
            HOFFMAN,
            f"{SSVI_A} uses nearly as many components as the truth, {VI} far fewer (rule: the "
            "median is nearer)",
            verdict([bool(near)]),
            few,
        ),
        compared(
            HOFFMAN,
            f"the predictive distribution of {SSVI_A} is nearer to the truth than that of {VI} "
            "(nats per row)",
            [("divergence", own[VI]["kl"], own[SSVI_A]["kl"])],
            3,
        ),
        compared(
            OWN_QUESTION,
            f"{SSVI} is nearer to the truth than {SSVI_A}",
            [("divergence", own[SSVI_A]["kl"], own[SSVI]["kl"])],
            3,
        ),
        compared(
            OWN_QUESTION,
            f"methods are nearer to the truth than {VI}",
            [
                (name, own[VI]["kl"], own[name]["kl"])
                for name in (*names, DETERMINISTIC, REHEATING, BEST_OF_TEN)
            ],
            3,
        ),
    ]


def hits(record: Record, best: float) -> int:
    """The number of fits from which EM ends at the best maximum."""
    return int(np.sum(record["em"] > best - SAME))


def best_of(records: Records) -> dict[tuple[str, int], float]:
    """The best log-likelihood of each model: the documented one, or else the best on the page."""
    found: dict[tuple[str, int], float] = {}
    for (name, k, _), record in records.items():
        found[name, k] = max(found.get((name, k), -np.inf), float(record["em"].max()))
    return found | {key: value for key, value in DOCUMENTED.items() if key in found}


def surveys(records: Records) -> list[Claim]:
    known = [key for key in best_of(records) if key in DOCUMENTED]
    if not known:
        return []
    claims = []
    for method in (DEFAULT_NAME, REHEATING, VI):
        source = POLCA if method == DEFAULT_NAME else OWN_QUESTION
        holds, figures = [], []
        for name, k in known:
            record = records[name, k, method]
            n = hits(record, DOCUMENTED[name, k])
            holds.append(n == len(record["em"]))
            figures.append(f"{name}, K = {k}: {n} of {len(record['em'])}")
        text = (
            f"{method}, one start: every fit belongs to the best documented maximum of the "
            f"likelihood (rule: EM from it ends within {SAME} nats)"
        )
        claims.append(Claim(source, text, verdict(holds), "; ".join(figures)))
    claims += _undocumented(records)
    exact = [
        abs(max(float(r["em"].max()) for (*key, _), r in records.items() if tuple(key) == own) - v)
        for own, v in DOCUMENTED.items()
        if own in known
    ]
    text = f"the best maxima that are found equal the documented ones (rule: within {SAME} nats)"
    largest = f"largest difference {max(exact):.4f} nats"
    return [Claim(POLCA, text, verdict([e < SAME for e in exact]), largest), *claims]


def _undocumented(records: Records) -> list[Claim]:
    """How often fits belong to the best maximum of models for which none is documented."""
    best = {key: value for key, value in best_of(records).items() if key not in DOCUMENTED}
    found = {}
    for method in (DEFAULT_NAME, REHEATING, VI, EM):
        own = [
            (records[*key, method], value)
            for key, value in best.items()
            if (*key, method) in records
        ]
        if own:
            found[method] = [hits(r, value) for r, value in own]
    if not found:
        return []
    models = ", ".join(f"{name} with K = {k}" for name, k in best)
    others = [sum(n) for method, n in found.items() if method not in (DEFAULT_NAME, REHEATING)]
    total = sum(len(records[*key, DEFAULT_NAME]["em"]) for key in best)
    return [
        Claim(
            OWN_QUESTION,
            f"where none is documented ({models}), fits of {DEFAULT_NAME} belong to the best "
            f"maximum on the page more often than those of {VI} and {EM} (rule: the sum of their "
            "numbers)",
            verdict([sum(found[DEFAULT_NAME]) > n for n in others]),
            "; ".join(
                f"{method}: {' + '.join(map(str, n))} = {sum(n)} of {total}"
                for method, n in found.items()
            ),
        )
    ]


def _pairs(
    records: Records, first: str, second: str, what: str
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """One figure of two methods, for each model that both were fitted to."""
    sizes = dict.fromkeys((name, k) for name, k, _ in records)
    return [
        (f"{name}, K = {k}", records[name, k, first][what], records[name, k, second][what])
        for name, k in sizes
        if (name, k, first) in records and (name, k, second) in records
    ]


def held_out(records: Records, what: str) -> list[Claim]:
    """Claims about held-out log probabilities of words or digits, in nats per row."""
    claims = []
    for other in (EM, VI, f"{VI}, {LEARNED}"):
        pairs = _pairs(records, DEFAULT_NAME, other, "held_out")
        if pairs:
            text = f"{what}: {DEFAULT_NAME} predicts better than {other} (nats per held-out row)"
            claims.append(_decided(text, pairs))
    return claims


def _decided(text: str, pairs: list[tuple[str, np.ndarray, np.ndarray]]) -> Claim:
    """Compare by the test, or by every single seed where the test could never find a difference."""
    claim = compared(OWN_QUESTION, text, pairs, 3)
    n = min(len(a) for _, a, _ in pairs)
    if len(pairs) * 0.5**n < LEVEL:
        return claim
    won = [bool(np.all(a > b)) for _, a, b in pairs]
    figures = "; ".join(f"{name}: {np.median(a - b):+.3f}" for name, a, b in pairs)
    text += " (rule: with every seed, of which there are too few for the test)"
    return Claim(
        OWN_QUESTION, text, verdict(won), f"Number of seeds: {n}. Median differences: {figures}"
    )


def labels(records: Records) -> list[Claim]:
    claims = []
    for other in (EM, EM_OF_TEN):
        pairs = _pairs(records, DEFAULT_NAME, other, "rand")
        if pairs:
            text = f"clusters of {DEFAULT_NAME} agree better with the classes than those of {other}"
            claims.append(compared(OWN_QUESTION, text, pairs, 3))
    return claims
