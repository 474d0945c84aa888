"""The papers' claims about topic models, and the rules by which figures decide them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..common.report import Claim, verdict
from ..common.reproduction import Record
from .plan import (
    APPROXIMATE,
    AVI,
    BEST_OF_5,
    DET,
    EXACT,
    FAST,
    HOT,
    LIKELIHOOD,
    LOCAL,
    LOCAL_TEMPERING,
    PROXIMITY,
    STOCH,
    SVI,
    TEMPERING,
    VI,
)

DIGITS = 3
# If a claim says "almost", methods that differ by less than this, in nats per token, count as
# equally good.
ALMOST = 0.02

Pairs = list[tuple[str, np.ndarray, np.ndarray]]

GULTEKIN, MANDT = "Gultekin et al. 2015", "Mandt et al. 2016"
PAISLEY, HOFFMAN = "Paisley et al. (SVI+)", "Hoffman & Blei 2015"
EXPECTED = "expected figures"


@dataclass
class Found:
    """All records of the cache, by part of the reproduction.

    Attributes
    ----------
    batch : dict
        Records of batch inference by (corpus, K, method).
    passes, timed : dict
        Records of stochastic inference at equal passes and at equal time, by (corpus, method).
    grid : dict
        Records of the grid of priors by (α, η, method).
    """

    batch: dict[tuple[str, int, str], Record] = field(default_factory=dict)
    passes: dict[tuple[str, str], Record] = field(default_factory=dict)
    timed: dict[tuple[str, str], Record] = field(default_factory=dict)
    grid: dict[tuple[float, float, str], Record] = field(default_factory=dict)

    def pairs(self, first: str, second: str, what: str = "bound") -> Pairs:
        """A quantity of two methods of batch inference, for every corpus and K that has both."""
        cells = dict.fromkeys((corpus, k) for corpus, k, _ in self.batch)
        both = [c for c in cells if (*c, first) in self.batch and (*c, second) in self.batch]
        return [
            (f"{c[0]}, K = {c[1]}", self.batch[*c, first][what], self.batch[*c, second][what])
            for c in both
        ]


def streamed(
    records: dict[tuple[str, str], Record], first: str, second: str, what: str = "held_out"
) -> Pairs:
    """A quantity of two methods of stochastic inference, for every corpus that has both."""
    corpora = dict.fromkeys(corpus for corpus, _ in records)
    both = [c for c in corpora if (c, first) in records and (c, second) in records]
    return [(c, records[c, first][what], records[c, second][what]) for c in both]


def spread(a: np.ndarray, b: np.ndarray) -> float:
    """Standard deviation over seeds, pooled over two methods."""
    return float(np.sqrt((np.var(a, ddof=1) + np.var(b, ddof=1)) / 2))


def compare(a: np.ndarray, b: np.ndarray, digits: int = DIGITS) -> tuple[float, float, int]:
    """How far a is above b, in runs paired by seed.

    Returns
    -------
    median, noise : float
        The median of the differences, and twice the pooled standard deviation over seeds. If two
        methods are equal and errors are normal, the median exceeds this by chance in 4 % of the
        comparisons with three seeds, and in 9 % with two.
    sign : int
        1 if the median is above the noise, −1 if it is below minus the noise, and 0 otherwise or
        if it would be printed as zero.
    """
    median, noise = round(float(np.median(a - b)), digits), 2 * spread(a, b)
    return median, noise, int(np.sign(median)) if abs(median) > noise else 0


def compared(source: str, text: str, pairs: Pairs, digits: int = DIGITS) -> Claim:
    """Decide the claim that in each of several pairs the first is above the second."""
    signs, figures = outcomes(pairs, digits)
    wins = [sign > 0 for sign in signs]
    losses = sum(sign < 0 for sign in signs)
    count = f"{sum(wins)} won, {losses} lost of {len(wins)}. "
    return Claim(source, text, verdict(wins), count + figures)


def outcomes(pairs: Pairs, digits: int = DIGITS) -> tuple[list[int], str]:
    """Whether pairs are won (1), tied (0) or lost (−1), and the median differences ± the noise."""
    results = [(name, *compare(a, b, digits)) for name, a, b in pairs]
    each = [f"{name}: {m:+.{digits}f} ± {noise:.{digits}f}" for name, m, noise, _ in results]
    return [sign for *_, sign in results], "; ".join(each)


def ratios(pairs: Pairs) -> list[tuple[str, float]]:
    """Ratios of medians."""
    return [(name, float(np.median(a) / np.median(b))) for name, a, b in pairs]


def gains(
    first: str, second: str, found: Found, what: str = "bound"
) -> dict[str, dict[int, float]]:
    """Median differences of two batch methods, by corpus and K."""
    table: dict[str, dict[int, float]] = {}
    for corpus, k, name in found.batch:
        if name == first and (corpus, k, second) in found.batch:
            difference = found.batch[corpus, k, first][what] - found.batch[corpus, k, second][what]
            table.setdefault(corpus, {})[k] = float(np.median(difference))
    return table


# Batch inference


def claims_of_batch(found: Found) -> Iterable[Claim | None]:
    for method, words in ((DET, "detAVI (posterior form)"), (STOCH, "stochAVI")):
        text = f"{words} reaches a clearly better bound than VI"
        yield _claim(compared, GULTEKIN, text, found.pairs(method, VI))
    yield _claim(_mostly, GULTEKIN, found.pairs(DET, STOCH))
    yield _length(found)
    yield _number_of_topics(found)
    yield _overhead(found)
    for method in (DET, STOCH, LIKELIHOOD, LOCAL):
        text = f"{method}: one fit has a better bound than the best of five of VI"
        yield _claim(compared, "all papers", text, found.pairs(method, BEST_OF_5))
    text = "The posterior form raises the bound over VI that starts documents anew"
    yield _claim(compared, EXPECTED, text, found.pairs(DET, VI))
    text = "… and lowers the held-out likelihood"
    yield _claim(compared, EXPECTED, text, found.pairs(VI, DET, "held_out"))
    text = "The local form raises the held-out likelihood over VI that starts documents anew"
    yield _claim(compared, EXPECTED, text, found.pairs(LOCAL, VI, "held_out"))
    text = "… and lowers the bound"
    yield _claim(compared, EXPECTED, text, found.pairs(VI, LOCAL))
    for what, words in (("held_out", "held-out likelihood"), ("bound", "bound")):
        text = f"Tempering the likelihood alone is better than tempering the prior too ({words})"
        yield _claim(compared, MANDT, text, found.pairs(LIKELIHOOD, DET, what))
    yield _more_topics(found)
    source = "Altosaar et al. 2018"
    for what, words in (("bound", "bound"), ("held_out", "held-out likelihood")):
        text = f"The entropy constraint helps (claimed for other models): better {words} than VI"
        yield _claim(compared, source, text, found.pairs(PROXIMITY, VI, what))


def _claim(make: Callable[..., Claim], *arguments: Any) -> Claim | None:
    """Make a claim from the figures in the last argument; None if they are missing."""
    return make(*arguments) if arguments[-1] else None


def _mostly(source: str, pairs: Pairs) -> Claim:
    signs, figures = outcomes(pairs)
    won, lost = signs.count(1), signs.count(-1)
    return Claim(
        source,
        "In general detAVI outperforms stochAVI in the bound, with some exceptions (rule: won in "
        "more than half of the cells; partly: in more than are lost)",
        "reproduced" if won > len(signs) / 2 else verdict((won > lost, False)),
        f"{won} won, {lost} lost of {len(signs)}. {figures}",
    )


def _length(found: Found) -> Claim | None:
    table = gains(STOCH, DET, found)
    lengths = {corpus: float(r["length"][0]) for (corpus, _, _), r in found.batch.items()}
    order = sorted(table, key=lambda corpus: lengths[corpus])
    middle = [float(np.median(list(table[corpus].values()))) for corpus in order]
    if len(order) < 2:
        return None
    return Claim(
        GULTEKIN,
        "stochAVI gains on detAVI as documents get longer (rule: its median advantage in the "
        "bound rises at each step)",
        verdict(b > a for a, b in zip(middle, middle[1:], strict=False)),
        "; ".join(
            f"{corpus} ({lengths[corpus]:.0f} tokens): {m:+.{DIGITS}f}"
            for corpus, m in zip(order, middle, strict=True)
        ),
    )


def _number_of_topics(found: Found) -> Claim | None:
    best: dict[str, dict[str, int]] = {}
    for method in (VI, DET, STOCH):
        for corpus in dict.fromkeys(corpus for corpus, _, _ in found.batch):
            bounds = {
                k: float(np.median(record["bound"]))
                for (c, k, name), record in found.batch.items()
                if c == corpus and name == method
            }
            if len(bounds) > 1:
                best.setdefault(corpus, {})[method] = max(bounds, key=bounds.__getitem__)
    complete = {corpus: each for corpus, each in best.items() if len(each) == 3}
    if not complete:
        return None
    return Claim(
        GULTEKIN,
        "The bounds of annealed and plain inference disagree on the number of topics (rule, per "
        "corpus: one of detAVI and stochAVI has its best K elsewhere than VI)",
        verdict(len(set(each.values())) > 1 for each in complete.values()),
        "; ".join(
            f"{corpus}: " + ", ".join(f"{name} {k}" for name, k in each.items())
            for corpus, each in complete.items()
        ),
    )


def _overhead(found: Found) -> Claim | None:
    each = [
        (f"{method}, {name}", ratio)
        for method in (DET, STOCH)
        for name, ratio in ratios(found.pairs(method, VI, "seconds"))
    ]
    if not each:
        return None
    return Claim(
        GULTEKIN,
        "stochAVI and detAVI take essentially the time of VI (rule, per cell: at most 1.2 times)",
        verdict(ratio <= 1.2 for _, ratio in each),
        "; ".join(f"{name}: {ratio:.2f} ×" for name, ratio in each),
    )


def _more_topics(found: Found) -> Claim | None:
    table = {c: v for c, v in gains(LIKELIHOOD, VI, found, "held_out").items() if len(v) > 1}
    if not table:
        return None
    return Claim(
        MANDT,
        "More topics give annealing more to gain in held-out likelihood (rule, per corpus: the "
        "median gain of the likelihood form over VI is larger at the largest K than at the "
        "smallest; batch inference here)",
        verdict(v[max(v)] > v[min(v)] for v in table.values()),
        "; ".join(
            f"{corpus}: " + ", ".join(f"K = {k} {v[k]:+.{DIGITS}f}" for k in sorted(v))
            for corpus, v in table.items()
        ),
    )


# Stochastic inference


def claims_of_streams(found: Found) -> Iterable[Claim | None]:
    for records, when in ((found.passes, "equal passes"), (found.timed, "equal time")):
        for method in (AVI, TEMPERING, LOCAL_TEMPERING):
            text = f"{method} predicts held-out documents better than SVI, {when}"
            yield _claim(compared, MANDT, text, streamed(records, method, SVI))
        for method in (AVI, TEMPERING):
            text = f"{LOCAL_TEMPERING} predicts held-out documents better than {method}, {when}"
            yield _claim(compared, MANDT, text, streamed(records, LOCAL_TEMPERING, method))
    yield _claim(_recovers, streamed(found.passes, TEMPERING, AVI))
    text = "Slow annealing works better (half of the passes against a tenth)"
    yield _claim(compared, MANDT, text, streamed(found.passes, AVI, FAST))
    text = "Annealing from temperatures above 5 is worse than SVI (T₀ = 8, held-out likelihood)"
    yield _claim(compared, MANDT, text, streamed(found.passes, SVI, HOT))
    yield from _claims_of_svi_plus(found)
    yield from _claims_of_structured(found)
    yield from _claims_of_local_steps(found)


def _recovers(pairs: Pairs) -> Claim:
    signs, figures = outcomes(pairs)
    return Claim(
        MANDT,
        "Tempering recovers or improves on annealing in held-out likelihood (rule, per corpus: "
        "it is not below AVI)",
        verdict(sign >= 0 for sign in signs),
        figures,
    )


def _claims_of_svi_plus(found: Found) -> Iterable[Claim | None]:
    def bound(first: str, second: str) -> Pairs:
        return streamed(found.passes, first, second, "bound")

    plus, same, half = "SVI+, |S| = 1000", "SVI, |S| = 1000", "SVI, |S| = 500"
    for second in (same, half):
        text = f"{plus}, M = 500 reaches a better bound than {second} (equal passes)"
        yield _claim(compared, PAISLEY, text, bound(plus, second))
    text = f"{half} reaches a better bound than |S| = 1000 (equal passes)"
    yield _claim(compared, PAISLEY, text, bound(half, same))
    for size in (500, 1000):
        then = f"SVI+, |S| = {size}, then SVI"
        text = f"{then}: a better bound than SVI with the same batches (not claimed by the paper)"
        yield _claim(compared, PAISLEY, text, bound(then, f"SVI, |S| = {size}"))
        text = f"… and better held-out likelihood, |S| = {size} (not claimed by the paper)"
        pairs = streamed(found.passes, then, f"SVI, |S| = {size}")
        yield _claim(compared, PAISLEY, text, pairs)


def _claims_of_structured(found: Found) -> Iterable[Claim | None]:
    for records, when in ((found.passes, "equal passes"), (found.timed, "equal time")):
        for method in (APPROXIMATE, EXACT):
            for local in ("", " + cvb0", " + gibbs"):
                words = local.removeprefix(" + ") or "mean-field"
                text = f"{method} predicts better than SVI ({words} local steps, {when})"
                pairs = streamed(records, method + local, SVI + local)
                yield _claim(compared, HOFFMAN, text, pairs)
    pairs = [p for local in ("", " + cvb0", " + gibbs") for p in _named(found, local)]
    yield _claim(_almost, "SSVI-A is only slightly worse than SSVI in held-out likelihood", pairs)
    for method in (APPROXIMATE, EXACT):
        text = f"SVI that starts from topics of {method} ends at a better bound than from SVI's"
        pairs = streamed(found.passes, method, SVI, "polished_bound")
        yield _claim(compared, HOFFMAN, text, pairs)
    costs = [
        ("SSVI against SSVI-A", EXACT, APPROXIMATE, 1.5),
        ("SSVI-A against SVI", APPROXIMATE, SVI, 1.15),
        ("SVI with Gibbs against mean-field local steps", f"{SVI} + gibbs", SVI, 1.75),
    ]
    each = [
        (f"{words}, {name}", ratio, limit)
        for words, first, second, limit in costs
        for name, ratio in ratios(streamed(found.passes, first, second, "seconds"))
    ]
    if each:
        yield Claim(
            HOFFMAN,
            "SSVI takes about 30 % longer than SSVI-A, SSVI-A as long as SVI, Gibbs local steps "
            "about 50 % longer than mean-field (rule: at most 1.5, 1.15, 1.75 times, in batches "
            "of 200 and not 1,000 documents)",
            verdict(ratio <= limit for _, ratio, limit in each),
            "; ".join(f"{name}: {ratio:.2f} ×" for name, ratio, _ in each),
        )


def _named(found: Found, local: str) -> Pairs:
    pairs = streamed(found.passes, APPROXIMATE + local, EXACT + local)
    return [(f"{corpus}{local}", a, b) for corpus, a, b in pairs]


def _almost(text: str, pairs: Pairs) -> Claim:
    _, figures = outcomes(pairs)
    return Claim(
        HOFFMAN,
        f"{text} (rule: less than {ALMOST} nats per token, by the medians)",
        verdict(np.median(a - b) > -ALMOST for _, a, b in pairs),
        figures,
    )


def _claims_of_local_steps(found: Found) -> Iterable[Claim | None]:
    def held_out(first: str, second: str) -> Pairs:
        return streamed(found.passes, first, second)

    text = "Gibbs within SVI (Mimno et al.) predicts better than SVI"
    yield _claim(compared, HOFFMAN, text, held_out(f"{SVI} + gibbs", SVI))
    for method in (APPROXIMATE, EXACT):
        for local in ("cvb0", "gibbs"):
            text = f"{method}: {local} local steps predict better than mean-field ones"
            yield _claim(compared, HOFFMAN, text, held_out(f"{method} + {local}", method))
    pairs = [
        (f"{corpus}, {method}", a, b)
        for method in (APPROXIMATE, EXACT)
        for corpus, a, b in held_out(f"{method} + cvb0", f"{method} + gibbs")
    ]
    text = "With SSVI and SSVI-A, cvb0 works almost as well as gibbs"
    yield _claim(_almost, text, pairs)
    text = "With SVI, gibbs local steps predict better than cvb0"
    yield _claim(compared, HOFFMAN, text, held_out(f"{SVI} + gibbs", f"{SVI} + cvb0"))
    for records, when in ((found.passes, "equal passes"), (found.timed, "equal time")):
        text = f"SSVI-A + cvb0 predicts better than SVI at sparse priors, {when}"
        pairs = streamed(records, f"{APPROXIMATE} + cvb0", SVI)
        yield _claim(compared, EXPECTED, text, pairs)
        text = f"SSVI + cvb0 predicts better still, {when}"
        pairs = streamed(records, f"{EXACT} + cvb0", f"{APPROXIMATE} + cvb0")
        yield _claim(compared, EXPECTED, text, pairs)


# The grid of priors


def ranges(grid: dict[tuple[float, float, str], Record]) -> dict[str, np.ndarray]:
    """Best minus worst held-out likelihood over the priors, by method; one value per seed."""
    values: dict[str, list[np.ndarray]] = {}
    for (_, _, method), record in grid.items():
        values.setdefault(method, []).append(record["held_out"])
    return {name: np.ptp(v, axis=0) for name, v in values.items()}


def claims_of_grid(found: Found) -> Iterable[Claim | None]:
    wide = ranges(found.grid)
    if SVI not in wide:
        return
    others = [m for m in (APPROXIMATE, EXACT, f"{APPROXIMATE} + cvb0") if m in wide]
    pairs = [(f"SVI − {m}", wide[SVI], wide[m]) for m in others]
    text = (
        "Mean-field inference is very sensitive to the priors, the structured methods are not "
        "(rule, per method: the range of SVI's held-out likelihood over the priors is larger)"
    )
    yield _claim(compared, HOFFMAN, text, pairs)
    yield Claim(
        MANDT,
        "No sensitivity to the priors was found (K = 500 there; rule, per method: a range of less "
        f"than {ALMOST} nats per token)",
        verdict(np.median(wide[m]) < ALMOST for m in (SVI, *others)),
        "; ".join(f"{m}: {np.median(wide[m]):.{DIGITS}f}" for m in (SVI, *others)),
    )
    best = {}
    for method in (SVI, *others):
        means: dict[float, list[float]] = {}
        for (alpha, _, name), record in found.grid.items():
            if name == method:
                means.setdefault(alpha, []).append(float(np.mean(record["held_out"])))
        best[method] = max(means, key=lambda alpha, m=means: np.mean(m[alpha]))
    yield Claim(
        HOFFMAN,
        "α = 0.1, the largest, is best for all methods (rule, per method: the best mean held-out "
        "likelihood over η and seeds)",
        verdict(alpha == max(a for a, _, _ in found.grid) for alpha in best.values()),
        "; ".join(f"{method}: α = {alpha:g}" for method, alpha in best.items()),
    )
    yield _shrinks(found)


def _shrinks(found: Found) -> Claim | None:
    method = f"{APPROXIMATE} + cvb0"
    sparse, dense = ((limit, limit) for limit in (_extreme(found, min), _extreme(found, max)))
    if any((*at, m) not in found.grid for at in (sparse, dense) for m in (method, SVI)):
        return None
    pairs = [
        (
            f"α = η = {at[0]:g}",
            found.grid[*at, method]["held_out"],
            found.grid[*at, SVI]["held_out"],
        )
        for at in (sparse, dense)
    ]
    (first, second), figures = outcomes(pairs)
    return Claim(
        EXPECTED,
        "The gain of SSVI-A + cvb0 over SVI shrinks to noise as the priors get less sparse (rule, "
        "one part each: won at the smallest priors; not won at the largest)",
        verdict((first > 0, second <= 0)),
        figures,
    )


def _extreme(found: Found, which: Callable[[Iterable[float]], float]) -> float:
    return which([alpha for alpha, _, _ in found.grid])


def claims(found: Found) -> list[Claim]:
    """All claims for which there are figures."""
    every = [*claims_of_batch(found), *claims_of_streams(found), *claims_of_grid(found)]
    return [claim for claim in every if claim is not None]
