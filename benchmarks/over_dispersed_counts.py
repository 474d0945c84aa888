"""Counts of more variance and of more zeros: held-out densities against Poisson counts.

Mixtures of Poisson, negative binomial and zero-inflated Poisson counts are fitted to words of real
texts, to pixels of digits, and to drawn counts, and predict other rows. For texts of two known
groups, one component of each group is compared with the maximum-likelihood fits of statsmodels,
column by column. Factorisations with and without noise of cells predict cells that they have not
seen, next to scikit-learn's NMF.

``--write`` writes the page ``doc/results/over_dispersed_counts.md``; without it the page is
printed. ``--quick`` is a small run that shows that everything works and whose figures mean nothing.
Texts are files that are not shipped: ``nips.npz`` and ``newsgroups20.npz`` with the
arrays ``data``, ``indices``, ``indptr`` and ``shape`` of sparse counts, and
``newsgroups_basehock.npz`` with ``labels`` besides. What needs a missing file is left out.
``statsmodels`` is measured where it is installed.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from scipy.stats import nbinom, poisson
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF

from sklearn_anneal import AnnealedBayesianMixture, AnnealedGammaProcessNMF
from sklearn_anneal.datasets import make_mixture

from .common.data import DataNotFoundError, load, read_each
from .common.measuring import progress
from .common.report import Page, machine, write_or_print

PAGE = Path(__file__).resolve().parents[1] / "doc" / "results" / "over_dispersed_counts.md"
EMISSIONS = ("poisson", "negative_binomial", "zero_inflated_poisson")
N_TRAIN, N_TEST, N_WORDS, N_COMPONENTS, N_SPLITS = 300, 600, 12, 6, 2
# Rows of each known group from which single components are fitted.
SIZES = (50, 300)
# Factorisations: rows, columns of texts, parts that may be used, parts of NMF, rounds in which it
# fills missing cells, and how many of the cells are missing.
N_ROWS, N_COLUMNS, N_PARTS, NUMBERS, N_FILLS, SHARE_HIDDEN = 300, 100, 20, (2, 5, 10, 20), 6, 0.1


def words(file: str, n_words: int = N_WORDS) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the counts of the most frequent words of a corpus, and the groups of its texts."""
    z = load(file)
    X = csr_array((z["data"], z["indices"], z["indptr"]), shape=tuple(z["shape"]))
    frequent = np.argsort(-np.asarray(X.sum(axis=0)).ravel(), kind="stable")[:n_words]
    return X[:, np.sort(frequent)].toarray().astype(np.float64), z.get("labels")


def pixels() -> np.ndarray:
    """Return the twelve pixels in the middle of images of digits."""
    return np.asarray(load_digits().images[:, 3:5, 1:7].reshape(-1, 12))


def drawn(emission: str) -> np.ndarray:
    """Return counts of four components."""
    how: dict[str, Any] = {"n_components": 4, "emission": emission, "separation": 1.0}
    return np.asarray(make_mixture(N_TRAIN + N_TEST, 10, random_state=0, **how)[0])


SOURCES: dict[str, Callable[[], np.ndarray]] = {
    "words of NIPS papers": lambda: words("nips.npz")[0],
    "words of newsgroups": lambda: words("newsgroups20.npz")[0],
    "pixels of digits": pixels,
    "drawn, negative binomial": lambda: drawn("negative_binomial"),
    "drawn, zero-inflated": lambda: drawn("zero_inflated_poisson"),
}


def tables(quick: bool) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the names and the rows of the data sets that there are."""
    yield from read_each(list(SOURCES)[-2 if quick else 0 :], lambda name: SOURCES[name]())


def divided(X: np.ndarray, seed: int, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return rows for a fit, and others."""
    order = np.random.default_rng(seed).permutation(len(X))
    n = 40 if quick else min(N_TRAIN, len(X) // 2)
    return X[order[:n]], X[order[n : n + N_TEST]]


def mixtures(page: Page, quick: bool) -> None:
    rows = []
    settings = {"max_iter": 5} if quick else {}
    for name, X in tables(quick):
        found: dict[str, list[list[float]]] = {emission: [] for emission in EMISSIONS}
        for seed in range(1 if quick else N_SPLITS):
            train, test = divided(X, seed, quick)
            for emission in EMISSIONS:
                progress(f"{name}, {emission}, {seed}")
                est = AnnealedBayesianMixture(
                    N_COMPONENTS, emission=emission, effort=0, random_state=0, **settings
                )
                begin = time.process_time()
                est.fit(train)
                seconds = time.process_time() - begin
                bound, used = est.lower_bound_ / len(train), est.n_effective_components_
                found[emission].append([bound, est.score(test), used, seconds])
        for emission in EMISSIONS:
            values = np.array(found[emission])
            bound, score, used, seconds = np.median(values, axis=0)
            gains = values[:, 1] - np.array(found["poisson"])[:, 1]
            low = f"{gains.min():+.3f} … {gains.max():+.3f}" if emission != "poisson" else ""
            figures = [f"{bound:.3f}", f"{score:.3f}", low, f"{used:.0f}", f"{seconds:.1f}"]
            rows.append([name, f"{X.shape[1]}", emission, *figures])
    page.section(
        "Mixtures",
        f"Fits of {N_COMPONENTS} components without moves (`effort=0`) to {N_TRAIN} rows, or to "
        f"half of the rows where there are fewer, and the log density of up to {N_TEST} other "
        "rows. Texts: the "
        f"{N_WORDS} most frequent words. Medians over {N_SPLITS} divisions; gains are differences "
        "from Poisson counts on the same rows, the smallest and the largest. Drawn counts have "
        "four components.",
    )
    header = ["data", "columns", "emission", "bound per row", "held out", "gain", "in use", "s"]
    page.table(header, rows)


# Single groups against maximum likelihood


def likeliest(kind: str, x: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the log density of a column at the maximum-likelihood estimates of statsmodels."""
    from statsmodels.discrete.count_model import ZeroInflatedPoisson
    from statsmodels.discrete.discrete_model import NegativeBinomial

    one = np.ones((len(x), 1))
    if kind == "poisson" or x.max() == 0:
        return lambda new: poisson.logpmf(new, x.mean())
    if kind == "negative_binomial":
        mean, alpha = NegativeBinomial(x, one).fit(disp=0, maxiter=200).params
        mean, r = np.exp(mean), 1.0 / max(alpha, 1e-8)
        return lambda new: nbinom.logpmf(new, r, r / (r + mean))
    logit, log_mean = ZeroInflatedPoisson(x, one, exog_infl=one).fit(disp=0, maxiter=200).params
    zero = 1.0 / (1.0 + np.exp(-logit))

    def density(new: np.ndarray) -> np.ndarray:
        log_counts = np.log1p(-zero) + poisson.logpmf(new, np.exp(log_mean))
        return np.where(new == 0, np.logaddexp(np.log(zero), log_counts), log_counts)

    return density


def groups(page: Page, quick: bool) -> None:
    if not importlib.util.find_spec("statsmodels"):
        progress("statsmodels is not installed: its section is left out")
        return
    try:
        X, labels = words("newsgroups_basehock.npz")
    except DataNotFoundError as error:
        progress(f"groups are left out: {error}")
        return
    rows = []
    for n in (30,) if quick else SIZES:
        for emission in EMISSIONS:
            scores = np.array([scored(X[labels == g], emission, n) for g in np.unique(labels)])
            ours, theirs, failures = scores.mean(axis=0)
            cells = [f"{ours:.3f}", f"{theirs:.3f}", f"{ours - theirs:+.3f}"]
            rows.append([f"{n}", emission, *cells, f"{failures * len(scores):.0f}"])
    page.section(
        "Single groups against maximum likelihood",
        f"The {N_WORDS} most frequent words of texts on baseball and on hockey, one component for "
        "each group, fitted to *n* texts and scored on others of the group, in nats per text; "
        f"means over {N_SPLITS} divisions and both groups. statsmodels fits every column by "
        "`NegativeBinomial` and `ZeroInflatedPoisson` with a constant alone; Poisson: the means of "
        "columns. A column that it cannot score (its estimate is not finite, or gives a held-out "
        "count the probability 0) has ours in its place, and is counted as a failure. Ours: "
        "`AnnealedBayesianMixture(1, emission=…)`, whose densities integrate over the parameters.",
    )
    page.table(["n", "emission", "ours", "statsmodels", "difference", "failures"], rows)


def scored(X: np.ndarray, emission: str, n: int) -> tuple[float, float, float]:
    """Return our mean log density of texts of one group, that of statsmodels, and its failures."""
    ours, theirs, failures = [], [], 0
    for seed in range(N_SPLITS):
        order = np.random.default_rng(seed).permutation(len(X))
        train, test = X[order[:n]], X[order[n : n + N_TEST]]
        est = AnnealedBayesianMixture(1, emission=emission, random_state=0).fit(train)
        for d in range(X.shape[1]):
            alone = np.full(test.shape, np.nan)
            alone[:, d] = test[:, d]
            mine = est.score(alone)
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                other = likeliest(emission, train[:, d])(test[:, d]).mean()
            failures += not np.isfinite(other)
            ours.append(mine)
            theirs.append(other if np.isfinite(other) else mine)
    return float(np.sum(ours) / N_SPLITS), float(np.sum(theirs) / N_SPLITS), float(failures)


# Parts


def parts_of_noise() -> np.ndarray:
    """Return counts of five parts of ten columns each, whose cells have noise of dispersion 0.5."""
    rng = np.random.default_rng(0)
    parts = np.kron(np.eye(5), np.full(10, 6.0))
    rates = rng.gamma(0.5, 2.0, (N_ROWS, 5)) @ parts
    return rng.poisson(rates * rng.gamma(2.0, 0.5, rates.shape)).astype(np.float64)


SOURCES_OF_PARTS: dict[str, Callable[[], np.ndarray]] = {
    "words of NIPS papers": lambda: words("nips.npz", N_COLUMNS)[0][:N_ROWS],
    "words of newsgroups": lambda: words("newsgroups20.npz", N_COLUMNS)[0][:N_ROWS],
    "drawn, five parts": parts_of_noise,
}


def nmf_rates(X: np.ndarray, k: int, quick: bool) -> np.ndarray:
    """Return the rates of scikit-learn's NMF, which fills missing cells with its expectations.

    A Poisson count is its expectation plus noise that no other cell depends on, so that filling and
    fitting in turns is EM.
    """
    missing = np.isnan(X)
    filled, start = np.where(missing, np.nanmean(X, axis=0), X), {}
    settings = {"beta_loss": "kullback-leibler", "solver": "mu", "random_state": 0}
    for n in range(2 if quick else N_FILLS):
        model = NMF(k, init="custom" if start else "nndsvda", max_iter=50 if n else 300, **settings)
        start = {"W": model.fit_transform(filled, **start), "H": model.components_}
        rates = start["W"] @ start["H"]
        filled = np.where(missing, rates, X)
    return np.maximum(rates, 1e-6)


def log_likelihood(x: np.ndarray, rates: np.ndarray, dispersion: float | None) -> float:
    """Return the mean log probability of counts given their rates."""
    if dispersion is None:
        return float(poisson.logpmf(x, rates).mean())
    a = 1.0 / dispersion
    return float(nbinom.logpmf(x, a, a / (a + rates)).mean())


def with_noise(x: np.ndarray, rates: np.ndarray) -> float:
    """Return the dispersion that makes counts most probable."""
    found = minimize_scalar(
        lambda log: -log_likelihood(x, rates, np.exp(log)), bounds=(-9, 5), method="bounded"
    )
    return float(np.exp(found.x))


def of_parts(X: np.ndarray, seed: int, quick: bool) -> dict[str, list[float]]:
    """Return the bound, the held-out score, parts in use, dispersion and seconds of each model."""
    hidden = np.random.default_rng(seed).random(X.shape) < SHARE_HIDDEN
    train, found = np.where(hidden, np.nan, X), {}
    k = 4 if quick else N_PARTS
    for name, dispersion in (("Poisson", None), ('`dispersion="auto"`', "auto")):
        settings = {"max_iter": 3, "effort": 0} if quick else {"max_iter": 300, "effort": 1}
        nmf = AnnealedGammaProcessNMF(k, dispersion=dispersion, random_state=0, **settings)
        begin = time.process_time()
        rates = nmf.fit_transform(train) @ nmf.components_
        seconds = time.process_time() - begin
        d = nmf.dispersion_
        score = log_likelihood(X[hidden], np.maximum(rates[hidden], 1e-6), d)
        bound = nmf.lower_bound_ / np.sum(~hidden)
        found[name] = [bound, score, nmf.n_effective_components_, d or np.nan, seconds]
    # The numbers of parts that predict the held-out cells best are those that NMF gets.
    best: dict[str, list[float]] = {}
    for n_parts in (2,) if quick else NUMBERS:
        begin = time.process_time()
        rates = nmf_rates(train, n_parts, quick)
        seconds = time.process_time() - begin
        noise = with_noise(X[~hidden], rates[~hidden])
        for name, d in (("NMF", None), ("NMF, then noise", noise)):
            score = log_likelihood(X[hidden], rates[hidden], d)
            if name not in best or score > best[name][1]:
                best[name] = [np.nan, score, n_parts, d or np.nan, seconds]
    return found | best


def factorisations(page: Page, quick: bool) -> None:
    rows = []
    names = list(SOURCES_OF_PARTS)[-1 if quick else 0 :]
    for name, X in read_each(names, lambda name: SOURCES_OF_PARTS[name]()):
        found = []
        for seed in range(1 if quick else N_SPLITS):
            progress(f"parts of {name}, {seed}")
            found.append(of_parts(X[:30] if quick else X, seed, quick))
        for model in found[0]:
            values = np.array([each[model] for each in found])
            bound, score, used, noise, seconds = (
                np.nan if np.isnan(column).all() else np.nanmedian(column) for column in values.T
            )
            figures = ["" if np.isnan(bound) else f"{bound:.3f}", f"{score:.3f}", f"{used:.0f}"]
            figures += ["" if np.isnan(noise) else f"{noise:.2f}", f"{seconds:.1f}"]
            rows.append([name, model, *figures])
    page.section(
        "Parts",
        f"`AnnealedGammaProcessNMF({N_PARTS}, effort=1, max_iter=300)` with and without "
        f"`dispersion`, fitted to {N_ROWS} rows of which {SHARE_HIDDEN:.0%} of the cells are "
        f"missing, and the log probability of these cells at the expected rates. Texts: the "
        f"{N_COLUMNS} most frequent words. Medians over {N_SPLITS} choices of the cells. "
        "scikit-learn's `NMF` (Kullback-Leibler) fills missing cells with its expectations, in "
        f"{N_FILLS} rounds, and has the number of parts among {listed(NUMBERS)} that predicts the "
        "held-out cells best, which favours it; then, its rates have the noise that makes the "
        "training cells most probable. Drawn counts have five parts and a dispersion of 0.5.",
    )
    header = ["data", "model", "bound per cell", "held out", "parts", "dispersion", "s"]
    page.table(header, rows)


def listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"


def written(quick: bool) -> str:
    page = Page()
    page.lines += ["# Counts of more variance, and of more zeros", ""]
    command = "python -m benchmarks.over_dispersed_counts --write"
    page.lines += [f"Written by `{command}`. {machine()}", ""]
    if quick:
        page.lines += ["**A quick run: far too small to tell anything.**", ""]
    page.lines += [
        "Do counts that vary more than Poisson counts, or have more zeros, predict new rows better "
        "than Poisson counts do, and with fewer parts? Figures are nats per row, or per cell where "
        "that is said, higher being better; times are seconds of the processor.",
        "",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mixtures(page, quick)
        groups(page, quick)
        factorisations(page, quick)
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
