"""Explicit vector code against the plain loops that it replaces, function by function.

Each function of ``sklearn_anneal/kernels/simd`` runs in turn with the loop that computes the same,
compiled with the options of kernels, on the same arrays of float64. What only prefetches or makes a
view has no loop to compare with, and is left out.

    python -m benchmarks.package.simd --write
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from sklearn_anneal.kernels import matrix_factorization
from sklearn_anneal.kernels._compile import helper
from sklearn_anneal.kernels.simd import chains, products, rows
from sklearn_anneal.kernels.simd.emitter import DOUBLES, LANES, QUARTERS

from ..common import RESULTS
from ..common.measuring import interleaved, processor_seconds, progress
from ..common.report import Page, machine, write_or_print

PAGE = RESULTS / "simd.md"
SIZES = (8, 16, 32, 64, 128)
# Rows that a call reads, such as the words of a document; columns of a block of data points; codes
# of a row of categories.
N_ROWS, N_POINTS, N_CODES = 64, 64, 16
# Rows of tables from which rows are picked.
N_ALL = 500
# Hidden Markov models have kernels of their own for rows of at most so many states.
NARROW = 12
# A run repeats a call until it takes so many seconds.
SECONDS = 1e-3
ROUNDS = 15
TINY = 1e-200


# The plain loops


def total(x):
    found = 0.0
    for value in x:
        found += value
    return found


def lane_products(x, y, out):
    quarter = x.shape[0] // QUARTERS
    for q in range(QUARTERS):
        whole = 0.0
        for lane in range(DOUBLES):
            found = 0.0
            for i in range(q * quarter + lane, (q + 1) * quarter, DOUBLES):
                found += x[i] * y[i]
            out[q * DOUBLES + lane] = found
            whole += found
        out[QUARTERS * DOUBLES + q] = whole


def multiplicative_step(base, factor, e, acc, x, n):
    change = 0.0
    for k in range(n):
        acc[k] *= e[k]
        new = base[k] + factor * acc[k]
        change += abs(new - x[k])
        x[k] = new
    return change


def ratio_update(x, counts, tiny, table, n_rows, norms, out):
    for j in range(n_rows):
        norm = DOUBLES * tiny
        for k in range(x.shape[0]):
            norm += table[j, k] * x[k]
        norms[j] = norm
        ratio = counts[j] / norm
        for k in range(x.shape[0]):
            out[k] += ratio * table[j, k]


def ratio_update_of_rows(x, counts, tiny, table, numbers, n_rows, norms, out):
    for j in range(n_rows):
        row = table[numbers[j]]
        norm = DOUBLES * tiny
        for k in range(x.shape[0]):
            norm += row[k] * x[k]
        norms[j] = norm
        ratio = counts[j] / norm
        for k in range(x.shape[0]):
            out[k] += ratio * row[k]


def add_shares_of_rows(x, counts, numbers, n, tiny, weight, table, out):
    for j in range(n):
        row = table[numbers[j]]
        target = out[numbers[j]]
        norm = DOUBLES * tiny
        for k in range(x.shape[0]):
            norm += row[k] * x[k]
        share = weight * (counts[j] / norm)
        for k in range(x.shape[0]):
            target[k] += share * x[k]


def add_shares_to_row(x, counts, weights, numbers, n, tiny, table, out):
    for j in range(n):
        row = table[numbers[j]]
        norm = DOUBLES * tiny
        for k in range(x.shape[0]):
            norm += row[k] * x[k]
        share = weights[j] * (counts[j] / norm)
        for k in range(x.shape[0]):
            out[k] += share * row[k]


def add_rows(table, numbers, n, first, weights, factors, sums, linear):
    for j in range(n):
        row, weight, factor = table[numbers[j]], weights[j], factors[j]
        for k in range(row.shape[0]):
            sums[k] += weight * row[k]
        end = row[first:]
        for k in range(end.shape[0]):
            linear[k] += factor * end[k]


def add_rows_twice(table, numbers, n, first, w, p, sums, linear, v, q, more, others):
    for j in range(n):
        row, a, b, c, d = table[numbers[j]], w[j], p[j], v[j], q[j]
        for k in range(row.shape[0]):
            sums[k] += a * row[k]
            more[k] += c * row[k]
        end = row[first:]
        for k in range(end.shape[0]):
            linear[k] += b * end[k]
            others[k] += d * end[k]


def add_products(left, left_at, right, right_at, n, out, at):
    target = out[at]
    for k in range(n):
        for lane in range(LANES):
            target[lane] += left[left_at + k, lane] * right[right_at + k, lane]


def subtract_products(left, left_at, right, right_at, n, out, at):
    target = out[at]
    for k in range(n):
        for lane in range(LANES):
            target[lane] -= left[left_at + k, lane] * right[right_at + k, lane]


def subtract_rows(factors, at, n, table, out):
    for j in range(n):
        factor = factors[at, j]
        for i in range(N_POINTS):
            out[i] -= factor * table[j, i]


def squared_distances(points, at, n, table, out):
    for i in range(N_POINTS):
        out[i] = 0.0
    for j in range(n):
        point = points[at, j]
        for i in range(N_POINTS):
            step = table[j, i] - point
            out[i] += step * step


def sum_rows(start, table, numbers, n, out, at):
    target = out[at]
    for k in range(start.shape[0]):
        target[k] = start[k]
    for j in range(n):
        row = table[numbers[j]]
        for k in range(row.shape[0]):
            target[k] += row[k]


def add_to_rows(sources, at, factor, numbers, n, table):
    source = sources[at]
    for j in range(n):
        row = table[numbers[j]]
        for k in range(row.shape[0]):
            row[k] += source[k] * factor


def subtract_maxima(table, n, maxima):
    for i in range(n):
        row = table[i]
        most = row[0]
        for k in range(row.shape[0]):
            most = max(most, row[k])
        maxima[i] = most
        for k in range(row.shape[0]):
            row[k] -= most


def sums_and_products(table, others, n, sums, weighted):
    for i in range(n):
        found = product = 0.0
        for k in range(table.shape[1]):
            found += table[i, k]
            product += table[i, k] * others[i, k]
        sums[i] = found
        weighted[i] = product


def center_rows(values, first, n, factor, out):
    sum_of_maxima = 0.0
    width = values.shape[1]
    for t in range(n):
        row, target = values[first + t], out[t * width : (t + 1) * width]
        most = row[0]
        for k in range(width):
            most = max(most, row[k])
        sum_of_maxima += most
        for k in range(width):
            target[k] = factor * (row[k] - most)
    return sum_of_maxima


def forward(alpha, at, table, n_states, factors, factors_at, inverse):
    width = table.shape[1]
    source, target = alpha[at - width : at], alpha[at : at + width]
    factor = factors[factors_at : factors_at + width]
    for k in range(width):
        target[k] = 0.0
    for j in range(n_states):
        weight = source[j]
        for k in range(width):
            target[k] += weight * table[j, k]
    found = 0.0
    for k in range(width):
        target[k] *= factor[k] * inverse
        found += target[k]
    return found


def backward(v, source, target, table, n_states, factors, factors_at, inverse, beta, at):
    width = table.shape[1]
    message, new, old = beta[at : at + width], v[target : target + width], v[source:]
    factor = factors[factors_at : factors_at + width]
    for k in range(width):
        message[k] = 0.0
    for j in range(n_states):
        weight = old[j]
        for k in range(width):
            message[k] += weight * table[j, k]
    found = 0.0
    for k in range(width):
        message[k] *= inverse
        new[k] = message[k] * factor[k]
        found += new[k]
    return found


def finish_rows(
    alpha, beta, b, start, n, ratios, overlaps, values, posteriors, first, scale
):  # fmt: skip
    width = values.shape[1]
    energy = 0.0
    for t in range(n):
        at = (start + t) * width
        left, right, factors = alpha[at : at + width], beta[at : at + width], b[at : at + width]
        value, posterior = values[first + t], posteriors[first + t]
        overlap = 0.0
        for k in range(width):
            overlap += left[k] * right[k]
        overlaps[start + t] = overlap
        inverse = 1.0 / overlap
        factor = inverse * ratios[start + t]
        for k in range(width):
            gamma = left[k] * right[k] * inverse
            energy += gamma * value[k]
            posterior[k] = gamma * scale
            right[k] *= factors[k] * factor
    return energy


def add_outer_products(left, right, start, n, out):
    width = out.shape[1]
    for t in range(start, start + n):
        weights, row = left[t * width : (t + 1) * width], right[(t + 1) * width : (t + 2) * width]
        for j in range(width):
            weight = weights[j]
            for k in range(width):
                out[j, k] += weight * row[k]


# Comparisons


def _starts(k: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return where ``n`` different rows of K numbers begin in a table."""
    return k * np.sort(rng.choice(N_ALL, n, replace=False))


def _table(k: int, rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(0.5, 1.0, (N_ALL, k))


def _of_counts(k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a vector, counts of rows, and where the rows begin."""
    return rng.uniform(0.5, 1.0, k), rng.uniform(1.0, 9.0, N_ROWS), _starts(k, N_ROWS, rng)


def _of_ratings(k: int, rng: np.random.Generator, n_sums: int) -> tuple:
    """Return a tile of ratings, and ``n_sums`` sets of sums."""
    width, first = matrix_factorization.n_columns(k, True), matrix_factorization.first_linear(k)
    n = max(LANES, min(matrix_factorization._TILE, matrix_factorization._BYTES // (8 * width)))
    starts = np.concatenate([_starts(width, n, rng), _starts(width, n, rng)])
    sums: list[np.ndarray] = []
    for _ in range(n_sums):
        sums += [*rng.uniform(0.5, 1.0, (2, n)), np.zeros(width), np.zeros(width - first)]
    return _table(width, rng), starts, n, first, *sums


def _groups(k: int, rng: np.random.Generator) -> tuple:
    left, right = rng.uniform(0.5, 1.0, (2, k + 1, LANES))
    return left, 1, right, 1, k, np.zeros((2, LANES)), 1


def _points(k: int, rng: np.random.Generator) -> tuple:
    """Return factors of K rows, K, a block of data points, and a row of it."""
    return rng.normal(size=(2, k)), 1, k, rng.normal(size=(k, N_POINTS)), np.zeros(N_POINTS)


def _ratio_update(k: int, rng: np.random.Generator) -> tuple:
    x, counts, _ = _of_counts(k, rng)
    return x, counts, TINY, _table(k, rng)[:N_ROWS], N_ROWS, np.zeros(N_ROWS), np.zeros(k)


def _ratio_update_of_rows(k: int, rng: np.random.Generator) -> tuple:
    x, counts, starts = _of_counts(k, rng)
    return x, counts, TINY, _table(k, rng), starts, N_ROWS, np.zeros(N_ROWS), np.zeros(k)


def _add_shares_of_rows(k: int, rng: np.random.Generator) -> tuple:
    x, counts, starts = _of_counts(k, rng)
    return x, counts, starts, N_ROWS, TINY, 1.0, _table(k, rng), np.zeros((N_ALL, k))


def _add_shares_to_row(k: int, rng: np.random.Generator) -> tuple:
    x, counts, starts = _of_counts(k, rng)
    weights = rng.uniform(0.5, 1.0, N_ROWS)
    return x, counts, weights, starts, N_ROWS, TINY, _table(k, rng), np.zeros(k)


def _sum_rows(k: int, rng: np.random.Generator) -> tuple:
    return np.zeros(k), _table(k, rng), _starts(k, N_CODES, rng), N_CODES, np.zeros((2, k)), 1


def _add_to_rows(k: int, rng: np.random.Generator) -> tuple:
    return rng.uniform(size=(2, k)), 1, 0.5, _starts(k, N_CODES, rng), N_CODES, _table(k, rng)


def _sums_and_products(k: int, rng: np.random.Generator) -> tuple:
    left, right = rng.uniform(0.5, 1.0, (2, N_ROWS, k))
    return left, right, N_ROWS, np.zeros(N_ROWS), np.zeros(N_ROWS)


def _chain(k: int, rng: np.random.Generator) -> tuple:
    """Return a table and the rows of all frames, with emissions of 1 so that repeats are stable."""
    return rng.dirichlet(np.ones(k), k), rng.uniform(0.5, 1.0, N_ROWS * k), np.ones(N_ROWS * k)


def _forward(k: int, rng: np.random.Generator) -> tuple:
    table, alpha, b = _chain(k, rng)
    return alpha, k, table, k, b, k, 1.0


def _backward(k: int, rng: np.random.Generator) -> tuple:
    table, beta, b = _chain(k, rng)
    return rng.uniform(size=2 * k), k, 0, table, k, b, k, 1.0, beta, k


def _finish_rows(k: int, rng: np.random.Generator) -> tuple:
    _, alpha, b = _chain(k, rng)
    beta, values = rng.uniform(0.5, 1.0, N_ROWS * k), rng.normal(size=(N_ROWS, k))
    ones, posteriors = np.ones(N_ROWS), np.zeros((N_ROWS, k))
    return alpha, beta, b, 0, N_ROWS, ones, np.zeros(N_ROWS), values, posteriors, 0, 1.0


def _add_outer_products(k: int, rng: np.random.Generator) -> tuple:
    left, right = rng.uniform(size=(2, N_ROWS * k))
    return left, right, 0, N_ROWS - 1, np.zeros((k, k))


def _lane_products(k: int, rng: np.random.Generator) -> tuple:
    left, right = rng.uniform(size=(2, QUARTERS * k))
    return left, right, np.zeros(QUARTERS * (DOUBLES + 1))


def _multiplicative_step(k: int, rng: np.random.Generator) -> tuple:
    """Return factors of 1, with which products stay as they are."""
    base, acc, x = rng.uniform(size=(3, k))
    return base, 0.5, np.ones(k), acc, x, k


def _subtract_maxima(k: int, rng: np.random.Generator) -> tuple:
    return rng.normal(size=(N_ROWS, k)), N_ROWS, np.zeros(N_ROWS)


def _center_rows(k: int, rng: np.random.Generator) -> tuple:
    return rng.normal(size=(N_ROWS, k)), 0, N_ROWS, 0.5, np.zeros(N_ROWS * k)


class Case(NamedTuple):
    """A plain loop, which has the name of a function, and its arguments for a size.

    Attributes
    ----------
    plain : callable
    used : str
        The models whose kernels call the function.
    size : str
        What the size K counts.
    arguments : callable
        Returns the arguments, given K and a random number generator.
    returns : bool
        Whether the function returns a number.
    picked : int or None
        Which argument has the positions of rows in a table; the loop takes the numbers of the rows.
    table : int or None
        Which argument is the table.
    """

    plain: Callable
    used: str
    size: str
    arguments: Callable[[int, np.random.Generator], tuple]
    returns: bool = False
    picked: int | None = None
    table: int | None = None


TOPICS, COUNTS, RATINGS = "topics", "gamma process NMF", "ratings"
CATEGORIES, FACTORIAL, STATES = "mixtures of categories", "factorial mixtures", "Markov models"
CASES = (
    Case(total, "topics and others", "entries", lambda k, rng: (rng.uniform(size=k),), True),
    Case(lane_products, TOPICS, "topics / 4", _lane_products),
    Case(multiplicative_step, f"{TOPICS}, {COUNTS}", "components", _multiplicative_step, True),
    Case(ratio_update, TOPICS, "topics", _ratio_update),
    Case(
        ratio_update_of_rows,
        f"{TOPICS}, {COUNTS}",
        "components",
        _ratio_update_of_rows,
        picked=4,
        table=3,
    ),
    Case(add_shares_of_rows, COUNTS, "components", _add_shares_of_rows, picked=2, table=6),
    Case(add_shares_to_row, COUNTS, "components", _add_shares_to_row, picked=3, table=6),
    Case(add_rows, RATINGS, "factors", lambda k, rng: _of_ratings(k, rng, 1), picked=1, table=0),
    Case(
        add_rows_twice, RATINGS, "factors", lambda k, rng: _of_ratings(k, rng, 2), picked=1, table=0
    ),
    Case(add_products, RATINGS, "products", _groups),
    Case(subtract_products, RATINGS, "products", _groups),
    Case(subtract_rows, f"{FACTORIAL}, spike and slab", "components", _points),
    Case(squared_distances, FACTORIAL, "dimensions", _points),
    Case(sum_rows, CATEGORIES, "components", _sum_rows, picked=2, table=1),
    Case(add_to_rows, CATEGORIES, "components", _add_to_rows, picked=3, table=5),
    Case(subtract_maxima, CATEGORIES, "components", _subtract_maxima),
    Case(sums_and_products, CATEGORIES, "components", _sums_and_products),
    Case(center_rows, STATES, "states", _center_rows, True),
    Case(forward, STATES, "states", _forward, True),
    Case(backward, STATES, "states", _backward, True),
    Case(finish_rows, STATES, "states", _finish_rows, True),
    Case(add_outer_products, STATES, "states", _add_outer_products),
)
MADE: dict[str, Callable[[int | None], Any]] = {
    "center_rows": chains.make_center_rows,
    "forward": lambda width: chains.make_steps(width)[0],
    "backward": lambda width: chains.make_steps(width)[1],
    "finish_rows": chains.make_finish_rows,
    "add_outer_products": chains.make_add_outer_products,
}


def explicit(name: str, width: int | None) -> Any:
    """Return the explicit vector code of this name, for rows of a width or, if None, of any."""
    if name in MADE:
        return MADE[name](width)
    return getattr(products if hasattr(products, name) else rows, name)


def repeated(function: Any, returns: bool) -> Callable[..., float]:
    """Compile a loop that calls a function ``n`` times and returns the sum of what it returns."""

    def with_result(n, *arguments):
        found = 0.0
        for _ in range(n):
            found += function(*arguments)
        return found

    def without(n, *arguments):
        for _ in range(n):
            function(*arguments)
        return 0.0

    run = with_result if returns else without
    return numba.njit(nogil=True, fastmath={"contract"}, error_model="numpy")(run)


@cache
def compiled(case: Case, width: int | None) -> tuple[Callable[..., float], Callable[..., float]]:
    """Compile the plain loop and the explicit code for rows of a width or, if None, of any."""
    functions = helper(case.plain), explicit(case.plain.__name__, width)
    plain, vectors = (repeated(function, case.returns) for function in functions)
    return plain, vectors


def arguments_of(case: Case, k: int) -> tuple[tuple, tuple]:
    """Return the same arguments for the plain loop and for the explicit code."""
    given = case.arguments(k, np.random.default_rng(0))
    if case.picked is None or case.table is None:
        return given, given
    numbers = given[case.picked] // given[case.table].shape[1]
    return (*given[: case.picked], numbers, *given[case.picked + 1 :]), given


def compared(case: Case, k: int) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """Return the plain loop and the code that fits use with K numbers, given the number of calls.

    Raises
    ------
    AssertionError
        If the results of a call differ by more than rounding.
    """
    narrow = case.plain.__name__ in MADE and k <= NARROW
    plain, vectors = compiled(case, k if narrow else None)
    of_plain, _ = arguments_of(case, k)
    _, of_vectors = arguments_of(case, k)
    np.testing.assert_allclose(plain(1, *of_plain), vectors(1, *of_vectors), rtol=1e-9)
    for i, (found, expected) in enumerate(zip(of_vectors, of_plain, strict=True)):
        if i != case.picked:
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    return lambda n: plain(n, *of_plain), lambda n: vectors(n, *of_vectors)


def ratios(case: Case, k: int, rounds: int, seconds: float) -> np.ndarray:
    """Processor time of the plain loop over that of the explicit code, in each round."""
    plain, vectors = compared(case, k)
    n = 1
    while processor_seconds(lambda: vectors(n)) < seconds:
        n *= 2
    times = interleaved({"plain": lambda: plain(n), "vectors": lambda: vectors(n)}, rounds)
    return times["plain"] / times["vectors"]


def written(quick: bool) -> str:
    """Measure, and return the page."""
    sizes, rounds, seconds = ((8,), 2, 1e-5) if quick else (SIZES, ROUNDS, SECONDS)
    page = Page(["# Explicit vector code", ""])
    page.section(
        "Against plain loops",
        f"Written by `python -m benchmarks.package.simd --write`. {machine()} "
        f"numba {numba.__version__}.",
        "Processor time of a plain loop that computes the same, compiled by numba with the options "
        "of kernels, over that of the function of `sklearn_anneal/kernels/simd`: above 1, explicit "
        f"code is faster. Median of {rounds} interleaved rounds, float64. K is the length of rows "
        "or sums, of the things in the third column. A call "
        f"reads {N_ROWS} rows, {N_CODES} for mixtures of categories, a tile for ratings, one for "
        f"the two steps of Markov models; blocks have {N_POINTS} data points. Every call reads the "
        "same arrays, so that prefetching, a part of `add_rows` and `add_rows_twice`, costs and "
        "gains nothing here. Sums of plain loops may have another order."
        + " A quick run, whose figures mean nothing."
        * quick,
    )
    table = []
    for case in CASES:
        found = [f"{np.median(ratios(case, k, rounds, seconds)):.2f}" for k in sizes]
        table.append([f"`{case.plain.__name__}`", case.used, case.size, *found])
        progress(" | ".join(table[-1]))
    page.table(["function", "models", "K", *(f"K = {k}" for k in sizes)], table)
    return "\n".join(page.lines)


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
