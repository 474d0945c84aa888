"""Mixtures of binary columns and categories; writes ``doc/results/mixtures.md``.

Parts: *bernoullis*, the drawn mixture of Hoffman and Blei (2015), section 4.2, whose truth is
known; *surveys*, textbook examples of latent class analysis, whose best maximum of the likelihood
is documented; *labels*, clusters of mushrooms and votes against their classes, with missing cells;
*words* and *digits*, held-out log probabilities of binary words of posts and binary pixels.

    python -m benchmarks.mixture.reproduce --cache mixture.jsonl
    python -m benchmarks.mixture.reproduce --cache mixture.jsonl --write
    python -m benchmarks.mixture.reproduce --cache mixture.jsonl --parts surveys
    python -m benchmarks.mixture.reproduce --quick --cache /tmp/q.jsonl

The first command makes all fits, and the second writes the page from the cache. To write the page
of a quick run, give ``--output`` too.

Every finished fit is a line of the cache, so that a run that was interrupted goes on where it
stopped. The page is written from the seeds for which all fits of a part are complete. Delete the
cache after a change of the package. Most data come from files, see ``data.py`` in this folder; what
needs a missing file or StepMix where it is not installed is left out with a message. A quick run
draws small tables.

Verdicts are computed from the figures. Two methods are compared by pairs of runs with the same
seed. A comparison is won if the median difference is above zero and the one-sided p-value of
Wilcoxon's signed-rank test, adjusted for the comparisons of the claim (Holm), is below 0.05. It is
lost if the same holds in the other direction. Differences that would be printed as zero are ties. A
claim is reproduced if all its comparisons are won, not reproduced if none is, and otherwise partly
reproduced. Other claims state their rule. Only the drawn mixture differs from seed to seed;
elsewhere the data stay, and starts and noise vary.
"""

from __future__ import annotations

import numpy as np

from ..common.peers import versions
from ..common.report import Claim, Page, answered, quartiles
from ..common.reproduction import Cache, Record, Reproduction, n_seeds
from . import claims, plan
from .claims import DOCUMENTED, FIGURES, SAME, Records, best_of, by_method, hits
from .data import table
from .fits import GIBBS, Spec, StepMix
from .plan import DEFAULT_NAME, SSVI, SSVI_A, Size, default

RULES = (
    "Comparisons are of runs with the same seed. One is won if the median difference is above zero "
    "and Wilcoxon's one-sided signed-rank test gives p < 0.05 after Holm's adjustment for the "
    "comparisons of the claim; lost is the same below. Differences that would be printed as zero "
    "are ties. All won: reproduced (yes); none: not reproduced (no); otherwise partly. Other rules "
    "are stated with the claim."
)


def _seconds(record: Record) -> str:
    return f"{np.median(record['seconds']):.2f}"


def _passes(record: Record) -> str:
    return f"{np.median(record['passes']):.0f}" if "passes" in record else ""


def section_settings(page: Page) -> None:
    method, parameters = default()
    how = ", ".join(f"{name}={value!r}" for name, value in parameters)
    page.section(
        "Methods and figures",
        f"*{DEFAULT_NAME}* is the estimator with nothing set but K: `annealing={method!r}`, {how}, "
        "all priors learned. *Usual priors*: the concentration of the weights is 1/K, and the "
        "priors of probabilities are uniform. *VI* is plain inference from one start of the "
        "default kind; in the sections on classes, words and digits it has the usual priors, "
        "unless its name says that priors are learned. Fits end when a pass raises the bound by "
        "less than 1e-6 nats per row, or unconverged after 1,000 passes, "
        f"StepMix's by the same tolerance on its likelihood ({versions({'stepmix': StepMix})}; it "
        "estimates by maximum likelihood, from random responsibilities). Figures are medians over "
        "the seeds; times are processor time of whole fits, in seconds, in one thread, "
        "which other work on the machine can lengthen.",
    )


def section_bernoullis(page: Page, records: Records, size: Size) -> None:
    if not records:
        return
    name, k, alpha = size.bernoullis
    own = by_method(records)
    seeds = n_seeds(records)
    truth = quartiles(next(iter(own.values()))["true_components"])
    shape = " × ".join(f"{length:,}" for length in table(name).X.shape)
    page.section(
        "A drawn mixture of Bernoullis",
        f"{name}: {shape} rows × columns, K = {k}, Dir(α/K) weights with α = {alpha:g}, uniform "
        f"probabilities; {seeds} tables, one per seed, of which the rows come from {truth} "
        "components (median and quartiles). All methods have the true priors, unless their priors "
        "are learned, and start from random responsibilities, unless the name says otherwise; "
        f"*{DEFAULT_NAME}* has the start of the estimator. "
        "*Used* is the number of components with an expected count above 1, *divergence* is that "
        "of the predictive distribution from the truth in nats per row, from 20,000 rows; both as "
        "median and quartiles. The bound is that of q at T = 1, in nats. *Expected*: figures of "
        "a sketch before this implementation, for one table whose truth used 56. Methods by name "
        f"have the recommended settings. *{SSVI_A}* and *{SSVI}* are structured inference with the "
        "approximate and with the exact gradient, 500 passes whose step size decays with the power "
        f"0.5. *{GIBBS}* is a sampler of this script; its figures are those of the last of 50 "
        "sweeps.",
    )
    rows = []
    for method, r in own.items():
        used, divergence = FIGURES.get(method, ("", "")) if not size.quick else ("", "")
        bound = f"{np.median(r['bound']):.0f}" if "bound" in r else ""
        cells = [quartiles(r["used"]), used, quartiles(r["kl"], 2), divergence]
        rows.append([method, *cells, bound, _passes(r), _seconds(r)])
    header = ["method", "used", "expected", "divergence", "expected", "bound", "passes", "time, s"]
    page.table(header, rows)


def section_surveys(page: Page, records: Records) -> None:
    if not records:
        return
    page.section(
        "Latent class analysis of surveys",
        f"Each fit has one start; {n_seeds(records)} seeds. Ours have uniform priors of all "
        "probabilities and of the weights. The posterior means of such a fit are not estimates of "
        "maximum likelihood, so that their log-likelihood is below the documented one by "
        "construction. Therefore EM without priors goes on from the means: *after EM* is where it "
        "ends, and a fit *belongs* to the best maximum if that is within "
        f"{SAME} nats of the best documented log-likelihood (where none is documented, of the best "
        "on this page). StepMix is EM from a random start, and is continued in the same way. "
        "*Worst* is the lowest of all seeds. AIC and BIC are those at the means.",
    )
    best = best_of(records)
    rows = []
    for (name, k, method), r in records.items():
        known = f"{best[name, k]:.2f}" + ("" if (name, k) in DOCUMENTED else " (this page)")
        cells = [f"{np.median(r['likelihood']):.2f}", f"{np.median(r['em']):.2f}"]
        cells += [f"{r['em'].min():.2f}", f"{hits(r, best[name, k])} of {len(r['em'])}"]
        cells += [f"{np.median(r['aic']):.1f}", f"{np.median(r['bic']):.1f}"]
        rows.append([name, str(k), method, known, *cells, _seconds(r)])
    header = ["data", "K", "method", "best documented", "at the means", "after EM", "worst"]
    page.table([*header, "belong", "AIC", "BIC", "time, s"], rows)


def section_labels(page: Page, records: Records) -> None:
    if not records:
        return
    page.section(
        "Clusters against classes, with missing cells",
        "*mushroom*: 22 features of 8,124 descriptions, 2,480 cells missing, edible or poisonous. "
        "*votes*: 16 votes of 435 members of the House of Representatives in 1984, 392 cells "
        "missing, of two parties; these are not missing at random, because a member may have kept "
        f"away. Nothing is held out; {n_seeds(records)} seeds. *Purity* is the share of rows whose "
        "class is the most frequent one of their cluster. Median and quartiles.",
    )
    rows = []
    for (name, k, method), r in records.items():
        cells = [quartiles(r["rand"], 3), quartiles(r["purity"], 3)]
        bound = f"{np.median(r['bound']):.0f}" if "bound" in r else ""
        used = f"{np.median(r['used']):.0f}"
        rows.append([name, str(k), method, *cells, used, bound, _seconds(r)])
    header = ["data", "K", "method", "adjusted Rand index", "purity", "used", "bound", "time, s"]
    page.table(header, rows)


def section_held_out(page: Page, records: Records, title: str, what: str) -> None:
    if not records:
        return
    page.section(
        title,
        f"{what} Number of seeds: {n_seeds(records)}; the division is the same in all runs. The "
        "held-out log probability is in nats per row, median and quartiles: ours is that of the "
        "posterior predictive distribution, StepMix's that of its estimates, which it keeps away "
        "from 0 and 1 by 1e-15.",
    )
    rows = []
    for (_, k, method), r in records.items():
        bound = f"{np.median(r['bound']):.0f}" if "bound" in r else ""
        used = f"{np.median(r['used']):.0f}"
        cells = [quartiles(r["held_out"], 3), used, bound, _passes(r), _seconds(r)]
        rows.append([str(k), method, *cells])
    page.table(["K", "method", "held out", "used", "bound", "passes", "time, s"], rows)


def sections(page: Page, size: Size, cache: Cache) -> list[Claim]:
    found = {
        part: cache.of_common_seeds(cells(size), seeds)
        for part, (cells, seeds) in plan.plan(size).items()
    }
    section_settings(page)
    section_bernoullis(page, found["bernoullis"], size)
    section_surveys(page, found["surveys"])
    section_labels(page, found["labels"])
    section_held_out(
        page,
        found["words"],
        "Words of posts",
        "Presence of 100 words in 16,242 posts of newsgroups, a quarter of them held out.",
    )
    section_held_out(
        page,
        found["digits"],
        "Binary digits",
        "Pixels of MNIST above 127, 784 of each digit: 4,000 digits drawn from the training set "
        "of 60,000, and 4,000 others held out. They are so few because fits of all digits would "
        "take too long for this page.",
    )
    return answered(
        [
            *claims.bernoullis(found["bernoullis"]),
            *claims.surveys(found["surveys"]),
            *claims.labels(found["labels"]),
            *claims.held_out(found["words"], "words"),
            *claims.held_out(found["digits"], "digits"),
        ]
    )


def main(argv: list[str] | None = None) -> None:
    Reproduction(
        model="mixture",
        title="Mixtures of binary columns and categories: methods, and other libraries",
        description=(__doc__ or "").partition("\n")[0],
        rules=RULES,
        plan=plan,
        spec=Spec,
        sections=sections,
        output="mixtures.md",
    ).run(argv)


if __name__ == "__main__":
    main()
