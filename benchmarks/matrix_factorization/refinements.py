"""Held-out ratings without who rated an item, scales of users, or Gibbs sampling.

    python -m benchmarks.matrix_factorization.refinements --write

The ratings of the suite, and all films beside the suite's third of their users, are divided anew.
The default, fits without one refinement each, and Gibbs sampling by myfm, if it is installed, read
the same training ratings, one after another. Drawn ratings, by users who differ and by users who do
not, say what scales of users do if they are there at the end of a fit, or from the beginning.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from sklearn_anneal import AnnealedPMF

from ..common import RESULTS
from ..common.measuring import progress
from ..common.report import Page, machine, write_or_print
from ..peers import libraries
from ..peers.compare import is_installed
from ..suite import data
from ..suite.families import RatingSet, rmse
from ..suite.instances import Instance

PAGE = RESULTS / "ratings_refinements.md"
WITHOUT: dict[str, dict[str, Any]] = {
    "Who rated an item": {"implicit_feedback": False},
    "Scales of users": {"user_scales": False},
    "Averages over Gibbs sampling": {"gibbs_sweeps": 0},
}
# The file, the number n where every nth user is taken, and the number of divisions.
RATINGS = {
    "films": ("movielens_100k", 3, 8),
    "jokes": ("jester", 8, 8),
    "all films": ("movielens_100k", 1, 3),
}
# Factors of ours and of myfm, of which each has the better one among those tried.
RANKS = {"films": ((5, 15), (5, 8)), "jokes": ((3, 10), (3, 10)), "all films": ((10, 30), (10, 20))}
ITERATIONS = 500
# Users, items, factors, and the share of ratings that are there.
DRAWN = ((800, 100, 3, 0.05), (400, 60, 3, 0.15), (500, 200, 3, 0.3), (1000, 50, 5, 0.1))
# The shape of the gamma distribution of users' precisions; infinite for users who do not differ.
DRAWN_SHAPES = (np.inf, 10.0, 2.0)
DRAWS = 8


def divided(name: str, n_components: int, seed: int) -> RatingSet:
    """The ratings of a set with other held-out ones, a tenth of all, for each seed."""
    file, every, _ = RATINGS[name]
    read = partial(data.ratings, f"{file}.npz", every)
    instance = Instance(f"ratings/{file} {n_components}", n_components, read, f"{file}.npz")
    return RatingSet(instance, seed)


def timed(fit: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    found = fit()
    return found, time.process_time() - start


def ours(family: RatingSet, seed: int, how: dict[str, Any]) -> list[float]:
    """The error, the density and the bound in nats per rating, and the seconds of a fit."""
    fitted, seconds = timed(lambda: family.fit_ours(seed, how))
    found = family.predictions(fitted)
    return [found["rmse"], found["held_out"], fitted.lower_bound_ / len(family.train), seconds]


def span(values: np.ndarray, digits: int) -> str:
    low, middle, high = (f"{v:+.{digits}f}" for v in (values.min(), values.mean(), values.max()))
    return f"{middle} ({low} to {high})"


def written(quick: bool) -> str:
    page = Page(["# Who rated an item, scales of users, and averages over Gibbs sampling", ""])
    page.lines += [
        "Written by `python -m benchmarks.matrix_factorization.refinements --write`. " + machine(),
        "",
    ]
    if quick:
        page.lines += ["A quick run, whose figures mean nothing.", ""]
    found = _measured(quick)
    for name, how in WITHOUT.items():
        setting = ", ".join(f"`{key}={value!r}`" for key, value in how.items())
        page.section(
            name,
            f"`AnnealedPMF` at its defaults against {setting} on divisions of the ratings of the "
            "suite, of a third of the users of films and an eighth of those of jokes, and on all "
            "films; nine tenths are for training. Means, and smallest and largest differences in "
            "brackets: of the root mean square error of held-out ratings, of their density and of "
            "the lower bound, both in nats per rating. *Time*: median of ratios of processor time, "
            "one thread, fits of all settings one after another.",
        )
        rows = [_row(*key, with_, settings[name]) for key, (with_, settings) in found.items()]
        page.table(
            ["ratings", "K", "error without", "with", "error changes by", "density rises by"]
            + ["bound rises by", "error lower on", "time"],
            rows,
        )
    _add_drawn(page, quick)
    if is_installed("myfm") and not quick:
        _add_gibbs(page, {key: with_[:, [0, 3]].T for key, (with_, _) in found.items()})
    return "\n".join(page.lines).rstrip() + "\n"


def _measured(quick: bool) -> dict[tuple[str, int], tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Results of the default and of each setting, with a row for each division."""
    measured = {}
    for name, (_, _, divisions) in RATINGS.items():
        for k in RANKS[name][0]:
            found = []
            for seed in range(1, 2 if quick else divisions + 1):
                progress(f"{name}, K = {k}, division {seed}")
                family = divided(name, k, seed)
                if seed == 1:
                    ours(family, seed, {})  # loads or compiles the kernels
                found.append([ours(family, seed, how) for how in ({}, *WITHOUT.values())])
            with_, *others = np.moveaxis(np.array(found), 1, 0)
            measured[name, k] = with_, dict(zip(WITHOUT, others, strict=True))
    return measured


def _row(name: str, k: int, with_: np.ndarray, without: np.ndarray) -> list[str]:
    change = with_ - without
    return [
        *(name, str(k), f"{without[:, 0].mean():.4f}", f"{with_[:, 0].mean():.4f}"),
        *(span(change[:, i], 4) for i in range(3)),
        f"{np.sum(change[:, 0] < 0)} of {len(change)}",
        f"{np.median(with_[:, 3] / without[:, 3]):.1f}",
    ]


def drawn(
    n_users: int, n_items: int, n_components: int, share: float, shape: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw pairs and ratings for training, and a tenth of all to hold out."""
    rng = np.random.default_rng(seed)
    tau = rng.gamma(shape, 1.0 / shape, n_users) if np.isfinite(shape) else np.ones(n_users)
    u, v = (rng.standard_normal((n, n_components)) for n in (n_users, n_items))
    b, c = (rng.standard_normal((n, 1)) for n in (n_users, n_items))
    of_users = 0.6 * u @ (0.8 * v.T) + 0.4 * b + 0.8 * rng.standard_normal((n_users, n_items))
    ratings = 3.0 + 0.5 * c.T + of_users / np.sqrt(tau)[:, None]
    pairs = rng.permutation(np.argwhere(rng.random(ratings.shape) < share))
    y, n = ratings[tuple(pairs.T)], len(pairs) * 9 // 10
    return pairs[:n], y[:n], pairs[n:], y[n:]


def _add_drawn(page: Page, quick: bool) -> None:
    page.section(
        "Scales of users in drawn ratings",
        f"Drawn from the model, {DRAWS} tables of each kind: users whose precisions have a gamma "
        "distribution of this shape, and users who do not differ. A tenth of the ratings is held "
        'out. Changes of the error and of the density by `user_scales="auto"`, the default, and by '
        "`True`, against `False`: means and their standard errors. *Taken*: tables in which the "
        "default took scales. *Time*: as above.",
    )
    rows = []
    for size in DRAWN[:1] if quick else DRAWN:
        for shape in DRAWN_SHAPES:
            n_users, n_items, k, share = size
            progress(f"drawn, {n_users} users, shape {shape}")
            found = []
            for seed in range(1 if quick else DRAWS):
                X, y, held, truth = drawn(*size, shape, seed)
                how = {"input": "pairs", "n_users": n_users, "n_items": n_items}
                for scales in (False, "auto", True):
                    est = AnnealedPMF(k, user_scales=scales, random_state=seed, **how)
                    _, seconds = timed(partial(est.fit, X, y))
                    taken = bool(scales) and np.isfinite(est.user_precision_shape_)
                    error = rmse(est.predict(held), truth)
                    found.append([error, est.score(held, truth), seconds, taken])
            table = np.reshape(found, (-1, 3, 4))
            rows.append([*_described(size, shape), f"{table[:, 0, 0].mean():.3f}"])
            rows[-1].append(f"{table[:, 1, 3].sum():.0f} of {len(table)}")
            for i in (1, 2):
                rows[-1] += [_mean(table[:, i, j] - table[:, 0, j]) for j in (0, 1)]
                rows[-1].append(f"{np.median(table[:, i, 2] / table[:, 0, 2]):.1f}")
    names = ["users", "items", "K", "ratings of a user", "shape", "error without", "taken"]
    default = ["error", "density", "time"]
    page.table([*names, *default, *(f"{name}, `True`" for name in default)], rows)


def _described(size: tuple[int, int, int, float], shape: float) -> list[str]:
    n_users, n_items, k, share = size
    alike = f"{shape:g}" if np.isfinite(shape) else "alike"
    return [str(n_users), str(n_items), str(k), f"{0.9 * share * n_items:.1f}", alike]


def _mean(values: np.ndarray) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():+.4f} ± {error:.4f}"


def _add_gibbs(page: Page, errors: dict[Any, Any]) -> None:
    page.section(
        "Against sampling alone",
        f"myfm, {ITERATIONS} iterations, on the same divisions. Mean errors and seconds; "
        "*difference* is ours less that of myfm, mean, smallest and largest.",
    )
    rows = []
    for name, (_, _, divisions) in RATINGS.items():
        for rank in RANKS[name][1]:
            found = []
            for seed in range(1, divisions + 1):
                progress(f"{name}, myfm, rank {rank}, division {seed}")
                family = divided(name, rank, seed)
                score, seconds = timed(
                    lambda family=family, seed=seed: libraries.myfm(family, seed, ITERATIONS)
                )
                found.append((score(), seconds))
            theirs, seconds = np.array(found).T
            for k in RANKS[name][0]:
                mine, times = errors[name, k]
                rows.append(
                    [name, str(k), f"{mine.mean():.4f}", f"{times.mean():.2g}", str(rank)]
                    + [f"{theirs.mean():.4f}", f"{seconds.mean():.2g}", span(mine - theirs, 4)]
                )
    page.table(
        ["ratings", "K", "ours", "s", "rank of myfm", "myfm", "s", "difference"],
        rows,
    )


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
