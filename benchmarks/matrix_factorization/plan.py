"""The fits that the experiments with ratings consist of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import product

from ..common.reproduction import Cache, Settings, run_missing, settings_of
from .data import MOVIELENS, SHARE_HELD_OUT, WEAK, available, ratings
from .fits import Spec, libraries, recommended

PARTS = ("figure", "settings", "variances", "others", "libraries")

VI, DET, STOCH, SVI_PLUS = "VI", "deterministic", "stochastic", "SVI+"
PAPER_SVI, PAPER_MARGIN = "SVI+, M = 50 t", "SVI+, M = 50 t, margin 0.2"
# The methods of the figure, VI first. The paper's SVI+ has fits of its own, with fewer seeds.
COMPARED = (VI, SVI_PLUS, DET, STOCH)
LITERAL = (PAPER_SVI, PAPER_MARGIN)

PAPER, OURS = "the paper's priors", "default priors"
PRIORS: dict[str, Settings] = {
    PAPER: settings_of(biases=False, fit_intercept=False, noise_variance=0.5, factor_variance=1.0),
    OURS: (),
}
# The paper's M grows by this many ratings in every pass.
_GROWTH = 50
_VARIANCES = ("noise_variance", "factor_variance", "bias_variance")

Grid = dict[str, tuple[str, Settings]]


@dataclass(frozen=True)
class Size:
    """The size of the experiments.

    Attributes
    ----------
    data : str
    components : tuple of int
        Numbers of factors (d) of the figure.
    passes : int
        Number of passes of the figure.
    cases : tuple of (str, int)
        Pairs of priors, or drawn ratings, and d, for which settings are compared.
    few_passes : int
        Number of passes of the fits that compare settings.
    temperatures, heated, jitters : tuple
        First temperatures, numbers of annealed passes, and jitters of deterministic annealing.
    noises, noisy : tuple
        First noise levels and numbers of annealed passes of stochastic annealing.
    rates, growing, shares : tuple
        Rates, numbers of annealed passes, and first effective batches (as a share of the ratings)
        of SVI+.
    strengths : tuple of float
        Strengths of the proximity constraint.
    learned : tuple of int
        Numbers of factors with which variances are learned.
    others : tuple of str
        Methods that are run with their recommended settings.
    usual : int
        Number of factors for these methods.
    tuned : dict
        The values from which the settings of each library are chosen.
    seeds, few : int
        Number of repetitions in general, and for settings, variances and other methods.
    """

    data: str = MOVIELENS
    components: tuple[int, ...] = (5, 10)
    passes: int = 500
    cases: tuple[tuple[str, int], ...] = ((OURS, 10), (PAPER, 10), (WEAK, 6))
    few_passes: int = 200
    temperatures: tuple[float, ...] = (2.0, 5.0, 10.0)
    heated: tuple[int, ...] = (20, 40, 80)
    jitters: tuple[float, ...] = (0.0, 0.1)
    noises: tuple[float, ...] = (0.1, 0.3, 0.5, 0.9)
    noisy: tuple[int, ...] = (50,)
    rates: tuple[float, ...] = (0.7, 0.85, 1.0)
    growing: tuple[int, ...] = (20, 45, 90)
    shares: tuple[float, ...] = (1 / 45, 1e-4)
    strengths: tuple[float, ...] = (1e-7, 1e-6, 1e-5, 1e-4)
    learned: tuple[int, ...] = (5, 10, 20)
    others: tuple[str, ...] = (
        "none",
        "deterministic",
        "stochastic",
        "tempering",
        "local_tempering",
        "svi_plus",
        "structured",
        "proximity",
    )
    usual: int = 10
    our_ranks: tuple[int, ...] = (5, 10, 20, 40)
    our_spreads: tuple[float, ...] = (0.05, 0.1, 0.2)
    als_ranks: tuple[int, ...] = (5, 10, 20, 40)
    als_ridges: tuple[float, ...] = (4.0, 6.0, 8.0, 12.0, 16.0)
    als_bias_ridges: tuple[float, ...] = (2.0, 4.0)
    als_iterations: tuple[int, ...] = (10, 30)
    svd_ranks: tuple[int, ...] = (10, 50)
    svd_epochs: tuple[int, ...] = (20, 50, 100)
    svd_rates: tuple[float, ...] = (0.005, 0.01)
    svd_ridges: tuple[float, ...] = (0.02, 0.05, 0.1)
    seeds: int = 10
    few: int = 2
    quick: bool = False


FULL = Size()
QUICK = Size(
    data="drawn",
    components=(2, 3),
    passes=8,
    cases=((OURS, 2),),
    few_passes=6,
    temperatures=(5.0,),
    heated=(3,),
    jitters=(0.1,),
    noises=(0.5,),
    noisy=(3,),
    rates=(0.85,),
    growing=(3,),
    shares=(0.01,),
    strengths=(1e-4,),
    learned=(2,),
    others=("none", "tempering"),
    usual=2,
    our_ranks=(2,),
    our_spreads=(0.1, 0.2),
    als_ranks=(2,),
    als_ridges=(8.0,),
    als_bias_ridges=(2.0,),
    als_iterations=(3,),
    svd_ranks=(2,),
    svd_epochs=(3,),
    svd_rates=(0.01,),
    svd_ridges=(0.02, 0.1),
    seeds=3,
    few=2,
    quick=True,
)


def deterministic(temperature: float, n_passes: int, jitter: float) -> Settings:
    return settings_of(
        form="likelihood",
        initial_temperature=temperature,
        schedule="geometric",
        n_passes=n_passes,
        jitter=jitter,
    )


def stochastic(noise: float, n_passes: int, start: str) -> Settings:
    return settings_of(initial_noise=noise, schedule="linear", n_passes=n_passes, start=start)


def svi_plus(rate: float, n_passes: int, first: float, margin: float = 0.2) -> Settings:
    return settings_of(
        effective_batch_size=first,
        noise="gaussian",
        schedule="linear",
        n_passes=n_passes,
        learning_rate=rate,
        margin=margin,
    )


def papers_svi_plus(n_ratings: int, margin: float) -> Settings:
    """M = 50 t: from 50 ratings on, 50 more in every pass until all are reached."""
    return svi_plus(0.85, max(1, n_ratings // _GROWTH - 1), _GROWTH, margin)


def n_training(size: Size) -> int:
    """Number of ratings that are fitted."""
    n = len(ratings(size.data))
    return n - round(SHARE_HELD_OUT * n)


def methods(size: Size) -> Grid:
    """The methods of the figure."""
    n_ratings = n_training(size)
    return {
        VI: ("none", ()),
        SVI_PLUS: ("svi_plus", recommended("svi_plus")),
        PAPER_SVI: ("svi_plus", papers_svi_plus(n_ratings, 0.0)),
        PAPER_MARGIN: ("svi_plus", papers_svi_plus(n_ratings, 0.2)),
        DET: ("deterministic", recommended("deterministic")),
        STOCH: ("stochastic", recommended("stochastic")),
    }


def grid(size: Size) -> Grid:
    """All settings that are compared with each other and with plain inference."""
    found: Grid = {VI: ("none", ())}
    for temperature, n, jitter in product(size.temperatures, size.heated, size.jitters):
        name = f"deterministic, T₀ = {temperature:g}, n = {n}, jitter {jitter:g}"
        found[name] = "deterministic", deterministic(temperature, n, jitter)
    for noise, n, start in product(size.noises, size.noisy, ("random", "init_params")):
        name = f"stochastic, r₀ = {noise:g}, n = {n}, {start}"
        found[name] = "stochastic", stochastic(noise, n, start)
    for share, rate, n in product(size.shares, size.rates, size.growing):
        name = f"SVI+, M₀ = {share:.2g} of all, ρ = {rate:g}, n = {n}"
        found[name] = "svi_plus", svi_plus(rate, n, share)
    for strength in size.strengths:
        settings = settings_of(**dict(recommended("proximity")) | {"strength": strength})
        found[f"proximity, k = {strength:g}"] = "proximity", settings
    return found


FigureKey = tuple[str, int, str]


def figure_cells(size: Size, labels: tuple[str, ...] = COMPARED) -> dict[FigureKey, Spec]:
    """Fits by (priors, d, method)."""
    if not available([size.data]):
        return {}
    how = methods(size)
    return {
        (prior, d, label): Spec(size.data, d, *how[label], PRIORS[prior], passes=size.passes)
        for prior in PRIORS
        for d in size.components
        for label in labels
    }


def literal_cells(size: Size) -> dict[FigureKey, Spec]:
    """Fits with the paper's M as it is printed."""
    cells = figure_cells(size, LITERAL)
    return {key: spec for key, spec in cells.items() if key[0] == PAPER}


def settings_cells(size: Size) -> dict[FigureKey, Spec]:
    """Fits by (priors, d, name of the settings)."""
    if not available([size.data]):
        return {}
    found = {}
    for case, d in size.cases:
        # The fits to drawn ratings use the default priors.
        data = WEAK if case == WEAK else size.data
        for label, how in grid(size).items():
            model = PRIORS.get(case, ())
            found[case, d, label] = Spec(data, d, *how, model, passes=size.few_passes)
    return found


def variances_cells(size: Size) -> dict[tuple[int, tuple[str, ...]], Spec]:
    """Fits by (d, variances that are learned)."""
    if not available([size.data]):
        return {}
    which = [(), *((name,) for name in _VARIANCES), _VARIANCES[::2], _VARIANCES]
    method = methods(size)[DET]
    return {
        (d, names): Spec(size.data, d, *method, settings_of(**dict.fromkeys(names, "auto")))
        for d in size.learned
        for names in which
    }


def other_cells(size: Size) -> dict[str, Spec]:
    """Fits by name of the method, with its recommended settings and to convergence."""
    if not available([size.data]):
        return {}
    return {
        method: Spec(size.data, size.usual, method, recommended(method)) for method in size.others
    }


# Other libraries

LibraryKey = tuple[str, int]


def tuning_cells(size: Size) -> dict[LibraryKey, Spec]:
    """Fits by (library, number), on a part of the training set, from which settings are chosen."""
    if not available([size.data]):
        return {}
    base = Spec(size.data, 1, validation=True)
    method, settings = methods(size)[DET]
    ours = replace(base, method=method, settings=settings)
    specs = {
        "ours": [
            replace(ours, n_components=d, model=settings_of(factor_variance=c))
            for d, c in product(size.our_ranks, size.our_spreads)
        ],
        "cmfrec": [
            replace(
                base,
                n_components=d,
                method="cmfrec",
                settings=settings_of(ridge=ridge, bias_ridge=of_biases, n_iterations=n),
            )
            for d, ridge, of_biases, n in product(
                size.als_ranks, size.als_ridges, size.als_bias_ridges, size.als_iterations
            )
        ],
        "surprise": [
            replace(
                base,
                n_components=d,
                method="surprise",
                settings=settings_of(n_epochs=n, lr_all=rate, reg_all=ridge),
            )
            for d, n, rate, ridge in product(
                size.svd_ranks, size.svd_epochs, size.svd_rates, size.svd_ridges
            )
        ],
    }
    there = ["ours", *libraries()]
    return {(name, i): spec for name in there for i, spec in enumerate(specs[name])}


def tuned_cells(size: Size, cache: Cache) -> dict[str, Spec]:
    """Fits by library, with the settings of the least error, on several splits.

    A library is included when all its settings were tried. Ours is also run without annealing.
    """
    cells = tuning_cells(size)
    best: dict[str, Spec] = {}
    for library in dict.fromkeys(name for name, _ in cells):
        own = [spec for (name, _), spec in cells.items() if name == library]
        records = [cache.record(spec, 1) for spec in own]
        errors = [record["rmse"][0] for record in records if record is not None]
        if len(errors) == len(own):
            chosen = own[errors.index(min(errors))]
            best[library] = replace(chosen, validation=False, own_split=True)
    if "ours" in best:
        best[f"ours, {VI}"] = replace(best["ours"], method="none", settings=())
        best["ours, defaults"] = replace(best["ours"], n_components=10, model=())
    return best


def measure(parts: Iterable[str], size: Size, cache: Cache, jobs: int) -> None:
    """Make those fits of the given parts that the cache does not have."""
    plan: dict[str, list[tuple[Callable[[Size], dict], int]]] = {
        "figure": [(figure_cells, size.seeds), (literal_cells, size.few)],
        "settings": [(settings_cells, size.few)],
        "variances": [(variances_cells, size.few)],
        "others": [(other_cells, size.few)],
        "libraries": [
            (tuning_cells, 1),
            (lambda size: tuned_cells(size, cache), size.seeds),
        ],
    }
    for part in parts:
        for cells, n_seeds in plan[part]:
            run_missing(cells(size).values(), n_seeds, cache, jobs)
