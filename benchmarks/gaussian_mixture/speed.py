"""Speed of the Gaussian mixture against scikit-learn's, and the cost of each annealing method.

All comparisons are interleaved in this process and given as medians of the ratios of neighbouring
runs. They use one thread, unless a section says otherwise.

    python -m benchmarks.gaussian_mixture.speed            # everything, some ten minutes
    python -m benchmarks.gaussian_mixture.speed passes methods
    python -m benchmarks.gaussian_mixture.speed --write    # also into doc/results/speed.md
    python -m benchmarks.gaussian_mixture.speed learning --write    # only this section of the page
    python -m benchmarks.gaussian_mixture.speed --quick --write --output /tmp/quick.md

The section on restarts needs a file, see ``data.py`` in this folder; a quick run takes
scikit-learn's digits and needs no file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace

import numpy as np
from sklearn.mixture import BayesianGaussianMixture

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import (
    Context,
    DeterministicAnnealing,
    LocalVariationalTempering,
    ProximityVI,
    StochasticAnnealing,
    StructuredVI,
    SVIPlus,
    VariationalTempering,
)
from sklearn_anneal.data.units import Rows
from sklearn_anneal.inference.loop import PLAIN, fit, lower_bound
from sklearn_anneal.inference.progress import Progress, Settings
from sklearn_anneal.inference.stopping import RiseOfBound
from sklearn_anneal.models.components.gaussian import ROWS_PER_BLOCK
from sklearn_anneal.parallel.workers import SEQUENTIAL

from ..common.data import available, left_out
from ..common.measuring import (
    Script,
    interleaved,
    milliseconds,
    progress,
    spread,
    wall_seconds,
)
from ..common.memory import STATUS, Sampler
from ..common.priors import PEER_OF_MIXTURES
from ..common.report import Page
from .data import digits_of, mnist_of
from .processes import measure_jobs
from .workload import FULL, QUICK, Make, Size, blobs, ours, pass_times, peer, per_pass


def measure_passes(size: Size) -> list[str]:
    """Time per pass against scikit-learn, and peak memory beyond the data."""
    page = Page()
    page.section(
        "Time per pass",
        f'float64, one thread, `annealing="none"`, N = {size.n_rows:,}. Ratio: scikit-learn\'s '
        f"time over ours, median and quartiles of {size.rounds} rounds. Peak memory: growth of the "
        "anonymous memory of this process during a fit of ours, in MB of 10⁶ bytes.",
    )
    rows = []
    for covariance, d, k in size.shapes:
        progress(f"passes, {covariance}, D = {d}, K = {k}")
        X = blobs(size.n_rows, d)
        theirs = peer(k, covariance_type=covariance)
        mine = ours("none", k, covariance_type=covariance)
        mine(1).fit(X)
        memory = _growth(mine, X)
        slow, fast = pass_times(theirs, mine, X, size.rounds)
        cells = [milliseconds(slow), milliseconds(fast), spread(slow / fast), memory]
        rows.append([covariance, str(d), str(k), *cells])
    header = ["covariance", "D", "K", "scikit-learn, ms", "ours, ms", "ratio", "peak memory, MB"]
    page.table(header, rows)
    return page.lines


def _growth(make: Make, X: np.ndarray) -> str:
    """Growth of the memory during a fit, in words."""
    if not STATUS.exists():
        return "–"
    with Sampler() as memory:
        make(2).fit(X)
    return f"{memory.growth:.0f}"


METHODS = {
    "deterministic": lambda n: DeterministicAnnealing(initial_temperature=3, n_passes=n),
    "stochastic": lambda n: StochasticAnnealing(n_passes=n, start="init_params"),
    "svi_plus": lambda n: SVIPlus(n_passes=n),
    "tempering": lambda n: VariationalTempering(n_passes=n),
    "proximity": lambda n: ProximityVI(n_passes=n),
    "local_tempering": lambda n: LocalVariationalTempering(n_passes=n),
    "structured": lambda n: StructuredVI(n_passes=n, evaluate_every=1000),
}


def measure_methods(size: Size) -> list[str]:
    """Time per pass of every annealing method against plain inference."""
    spaces = size.spaces[:2]
    page = Page()
    page.section(
        "What annealing costs per pass",
        f'Ratio of the time per pass to that of `annealing="none"`, N = {size.n_rows:,}, full '
        "covariances, batch mode, one thread: median and quartiles of "
        f"{size.annealed_rounds} ratios.",
    )
    cells: dict[str, list[str]] = {name: [] for name in METHODS}
    for d, k in spaces:
        X = blobs(size.n_rows, d)
        plain = ours("none", k)
        plain(1).fit(X)
        for name, method in METHODS.items():
            progress(f"methods, D = {d}, K = {k}, {name}")
            annealed = ours(method, k)
            annealed(1).fit(X)
            slow, fast = pass_times(annealed, plain, X, size.annealed_rounds)
            cells[name].append(spread(slow / fast))
    header = ["method", *(f"D = {d}, K = {k}" for d, k in spaces)]
    page.table(header, [[name, *cell] for name, cell in cells.items()])
    return page.lines


def measure_restarts(size: Size) -> list[str]:
    """One stochastic fit against ten restarts of scikit-learn's class, on digits of one class."""
    k = size.digit_components
    kind = "scikit-learn's" if size.quick else "MNIST"
    page = Page()
    page.section(
        "One annealed fit against ten restarts",
        f"{kind} digits of one class, PCA {15 if size.quick else 30}, {size.digit_rows:,} rows at "
        f"most, K = {k}, Dirichlet weights: one fit with "
        '`annealing="stochastic"` against scikit-learn\'s `n_init=10` at the same tolerance per '
        f"row and at most 1,000 passes; medians over {size.seeds} seeds, fits interleaved. The "
        "bound is complete for both.",
    )
    if not (size.quick or available("mnist.npz")):
        left_out("one annealed fit against ten restarts, as mnist.npz is not there.")
        return [*page.lines, "Left out: mnist.npz is not there.", ""]
    won, found = 0, []
    for digit in size.digits:
        progress(f"restarts, digit {digit}")
        rows = size.digit_rows
        X = digits_of(digit)[:rows] if size.quick else mnist_of(digit, rows)[0]
        bounds, times = _against_restarts(X, k, size.seeds)
        a, b = (float(np.median(bounds[name])) for name in ("theirs", "mine"))
        ratio = float(np.median(times["mine"] / times["theirs"]))
        won += b > a and ratio < 1
        seconds = [f"{np.median(times[name]):.2f}" for name in ("theirs", "mine")]
        found.append([str(digit), f"{a:.0f}", f"{b:.0f}", *seconds, f"{ratio:.2f}"])
    header = ["digit", "bound, n_init=10", "bound, stochastic", "time, n_init=10, s"]
    page.table([*header, "time, stochastic, s", "time ratio"], found)
    page.lines += [f"Less time and a better bound on {won} of {len(size.digits)} digits.", ""]
    return page.lines


def _against_restarts(
    X: np.ndarray, k: int, n_seeds: int
) -> tuple[dict[str, list[float]], dict[str, np.ndarray]]:
    """Complete bounds and seconds of scikit-learn's restarts and of one fit of ours, by seed."""
    shared = {
        "n_components": k,
        "max_iter": 1000,
        "weight_concentration_prior_type": "dirichlet_distribution",
    }
    bounds: dict[str, list[float]] = {"theirs": [], "mine": []}
    times: dict[str, list[float]] = {"theirs": [], "mine": []}
    for seed in range(n_seeds):
        theirs = BayesianGaussianMixture(**shared, tol=1e-6 * len(X), n_init=10, random_state=seed)
        mine = AnnealedBayesianGaussianMixture(
            **shared, **PEER_OF_MIXTURES, tol=1e-6, annealing="stochastic", random_state=seed
        )
        fits = {"theirs": theirs, "mine": mine}
        for name in list(fits) if seed % 2 == 0 else list(fits)[::-1]:
            times[name].append(wall_seconds(lambda m=fits[name]: m.fit(X)))
        bounds["theirs"].append(complete_bound(theirs, X))
        bounds["mine"].append(mine.lower_bound_)
    return bounds, {name: np.array(values) for name, values in times.items()}


def complete_bound(fitted: BayesianGaussianMixture, X: np.ndarray) -> float:
    """The complete lower bound of scikit-learn's fitted parameters, in nats."""
    names = ("n_components", "covariance_type", "reg_covar", "weight_concentration_prior_type")
    settings = {name: getattr(fitted, name) for name in names}
    settings |= PEER_OF_MIXTURES
    model = AnnealedBayesianGaussianMixture(annealing="none", max_iter=0, **settings).fit(X)
    ctx = model._inference.ctx
    joint = {
        "mean": fitted.means_ - ctx.summary.center,
        "mean_precision": fitted.mean_precision_,
        "inverse_scale": fitted.covariances_ * fitted.degrees_of_freedom_[:, None, None],
        "dof": fitted.degrees_of_freedom_,
    }
    weights = {"weight_concentration": fitted.weight_concentration_}
    ctx.q = weights | ctx.model.components.factors[0].family.from_standard(**joint)
    return lower_bound(ctx, Rows(X, None, ctx.summary.center), SEQUENTIAL)


def measure_where(size: Size) -> list[str]:
    """Time of the parts of a pass, compared with the machine's rate of matrix products."""
    page, order = Page(), 100 if size.quick else 1500
    page.section(
        "Where the time goes",
        f"Full covariances, N = {size.n_rows:,}, one thread. *Products* are the two matrix "
        f"products per block of {ROWS_PER_BLOCK} rows alone, *rate* what they reach; the machine's "
        f"rate is that of a product of two {order:,} × {order:,} matrices.",
    )
    square = np.random.default_rng(0).standard_normal((order, order))
    rows = []
    for d, k in size.spaces:
        progress(f"where the time goes, D = {d}, K = {k}")
        X = blobs(size.n_rows, d)
        p = d * (d + 1) // 2 + d + 1
        rng = np.random.default_rng(0)
        coefficients = rng.standard_normal((k, p))
        features = rng.standard_normal((p, ROWS_PER_BLOCK))
        joint = np.empty((k, ROWS_PER_BLOCK))

        def products() -> None:
            for _ in range(len(X) // ROWS_PER_BLOCK):
                np.dot(coefficients, features, out=joint)
                np.dot(joint, features.T)

        mine = ours("none", k)
        mine(1).fit(X)
        runs = {
            "pass": lambda: per_pass(mine, X),
            "products": lambda: wall_seconds(products),
            "machine": lambda: wall_seconds(lambda: square @ square),
        }
        # Each of these calls returns the seconds that count.
        times = interleaved(runs, size.seeds, clock=lambda run: run())
        whole, part, machine = (float(np.median(times[name])) for name in runs)
        rate = 4e-9 * len(X) * p * k / part
        peak = 2e-9 * order**3 / machine
        cells = [f"{1e3 * whole:.1f}", f"{1e3 * part:.1f}", f"{part / whole:.0%}"]
        rows.append([str(d), str(k), *cells, f"{rate:.0f}", f"{peak:.0f}"])
    header = ["D", "K", "pass, ms", "products, ms", "share", "rate, GFLOP/s", "machine, GFLOP/s"]
    page.table(header, rows)
    return page.lines


# A fit learns its priors in the second half of its passes at the latest.
_PASSES_BEFORE_LEARNING = 20
FACTORIZATIONS = ("joint", "independent")


def measure_learning(size: Size) -> list[str]:
    """Time of a pass that learns all priors against that of a pass with fixed priors."""
    page = Page()
    page.section(
        "What learning the priors costs per pass",
        'Processor time of a pass that learns all priors (`"auto"`), over that of the same pass '
        f"with fixed priors, N = {size.n_rows:,}, full covariances, one thread: median and "
        f"quartiles of {size.learning_rounds} ratios of neighbouring passes.",
        "A fit learns only in its last passes, so that whole fits would hide the cost. The loop of "
        f"inference therefore makes single passes from the parameters of a fit of "
        f"{_PASSES_BEFORE_LEARNING} passes, the second half of which learned. The fixed priors are "
        "those that this fit has learned. A pass is a visit to all rows, the lower bound, and the "
        "update; the two kinds take turns and always start from the same parameters.",
    )
    spaces = size.spaces[:2]
    cells: dict[str, list[str]] = {name: [] for name in FACTORIZATIONS}
    for d, k in spaces:
        X = blobs(size.n_rows, d)
        for name in FACTORIZATIONS:
            progress(f"learning, D = {d}, K = {k}, {name}")
            runs = {key: single_pass(ctx, X) for key, ctx in learning(X, k, name).items()}
            times = interleaved(runs, size.learning_rounds)
            cells[name].append(spread(times["learned"] / times["fixed"], digits=3))
    header = ["factorization", *(f"D = {d}, K = {k}" for d, k in spaces)]
    page.table(header, [[name, *cell] for name, cell in cells.items()])
    return page.lines


def learning(X: np.ndarray, k: int, factorization: str) -> dict[str, Context]:
    """The context of a fit that learns all priors, and one with its priors fixed at their values.

    Both have the same parameters.
    """
    settings = {"annealing": "none", "factorization": factorization, "n_components": k}
    # A process ends with the last component only where its concentration is learned.
    settings["weight_concentration_prior_type"] = "dirichlet_distribution"
    priors = dict.fromkeys(PEER_OF_MIXTURES, "auto")
    mixture = AnnealedBayesianGaussianMixture(
        max_iter=_PASSES_BEFORE_LEARNING, tol=0, random_state=0, **settings, **priors
    ).fit(X)
    learned = replace(mixture._inference.ctx, exploring=False)
    model = copy(learned.model)
    for name in ("weights", "components"):
        part = copy(getattr(model, name))
        part.learns = False
        setattr(model, name, part)
    return {"learned": learned, "fixed": replace(learned, model=model)}


def single_pass(ctx: Context, X: np.ndarray) -> Callable[[], Progress]:
    """A call of the loop for one pass from these parameters, which stay as they are."""
    units = Rows(X, None, ctx.summary.center)
    settings = Settings(10, RiseOfBound(0.0), None, 1.0, 0.6)

    def run() -> Progress:
        return fit(Progress(replace(ctx), PLAIN), units, settings, SEQUENTIAL, until=1)

    return run


BENCHMARKS: dict[str, tuple[Callable[[Size], list[str]], bool]] = {
    "passes": (measure_passes, True),
    "methods": (measure_methods, True),
    "restarts": (measure_restarts, True),
    "jobs": (measure_jobs, False),
    "where": (measure_where, True),
    "learning": (measure_learning, True),
}


def main(argv: Sequence[str] | None = None) -> None:
    Script(
        model="gaussian_mixture",
        title="Speed of the Gaussian mixture",
        description=(__doc__ or "").partition("\n")[0],
        benchmarks=BENCHMARKS,
        output="speed.md",
        peers={},
        full=FULL,
        quick=QUICK,
    ).run(argv)


if __name__ == "__main__":
    main()
