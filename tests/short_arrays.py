"""Calls of explicit vector code with arrays that are too short; run with NUMBA_BOUNDSCHECK=1.

It prints, as JSON, the arguments of each function that could be one element or row shorter without
an IndexError, or "exact" if the function raised one for arrays of the right size. Whether a kernel
that threads share raises an IndexError as well is printed under the name "shared", alone and with a
board.
"""

from __future__ import annotations

import json
import sys

import numba
import numpy as np

from sklearn_anneal.kernels import _team
from sklearn_anneal.kernels._compile import shared_kernel
from sklearn_anneal.kernels.simd import chains, products, rows, tiles
from sklearn_anneal.kernels.simd.emitter import LANES, ROWS, TOGETHER
from sklearn_anneal.kernels.simd.tiles import LANES as MATRICES
from sklearn_anneal.kernels.simd.tiles import TILE

FORWARD, BACKWARD = chains.make_steps()
FORWARD_OF_FOUR, BACKWARD_OF_FOUR = chains.make_steps(4)
N = 2 * LANES
# The positions at which 2 ROWS rows of N elements begin.
STARTS = np.arange(2 * ROWS) * N
BACKWARDS = STARTS[::-1].copy()


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.5, 1.0, shape)


def calls() -> list[tuple[str, object, tuple]]:
    """All functions on arrays, with arguments that are exactly as long as they have to be."""
    wide, table, out = array(2 * ROWS, N), array(2 * ROWS, N), array(N)
    counts, norms, chain = array(2 * ROWS), array(2 * ROWS), array(6 * 4)
    of_rows, sums = (array(ROWS), array(ROWS)), (array(N), array(N - LANES))
    narrow, lanes = array(6, 3), array(3, TOGETHER)
    # One row of a tile and three of its columns, in all lanes, and a whole tile.
    row, part, tile = TILE * MATRICES, array(TILE * 3 * MATRICES), array(TILE * TILE * MATRICES)
    left, vector = (part, 0, 3 * MATRICES), (array(3 * MATRICES), 0, 0, 3)
    found = [
        (
            "drawn_entry",
            products,
            (array(2, N), 1, array(3, N), np.int32(2), 1 - 1e-12, np.arange(N), array(N)),
        ),
        (
            "multiply_rows",
            products,
            (array(2, N), 1, array(3, N), np.int32(2), array(N)),
        ),
        ("add_up", products, (array(N), array(N), array(LANES))),
        ("entry_beyond", products, (array(N), array(LANES), 1e9, np.arange(N))),
        ("replace_entry", products, (array(3, N), 2, N - 1, 0.5)),
        ("fetch_rows", products, (table, np.arange(3, dtype=np.int32), 0, 3)),
        ("multiplicative_step", products, (array(N), 0.5, array(N), array(N), array(N), N)),
        ("ratio_update", products, (array(N), counts, 1e-9, table, 2 * ROWS, norms, out)),
        (
            "ratio_update_of_rows",
            products,
            (array(N), counts, 1e-9, table, STARTS, 2 * ROWS, norms, out),
        ),
        (
            "ratio_update_together",
            products,
            (lanes, array(6, TOGETHER + 3), 3, 1e-9, narrow, lanes),
        ),
        (
            "ratio_update_together_with_norms",
            products,
            # As many rows as are processed at a time, whatever the machine is.
            (
                lanes,
                array(ROWS, TOGETHER + 3),
                3,
                1e-9,
                array(ROWS, 3),
                lanes,
                array(ROWS, TOGETHER),
            ),
        ),
        (
            "add_shares_of_rows",
            products,
            (array(N), counts, STARTS, 2 * ROWS, 1e-9, 1.0, table, array(2 * ROWS, N)),
        ),
        (
            "add_shares_to_row",
            products,
            (array(N), counts, norms, STARTS, 2 * ROWS, 1e-9, table, out),
        ),
        (
            "add_rows",
            products,
            (table, BACKWARDS, ROWS, LANES, *of_rows, array(N), array(N - LANES)),
        ),
        (
            "add_rows_twice",
            products,
            (table, BACKWARDS, ROWS, LANES, *of_rows, *sums, *of_rows, *sums),
        ),
        ("add_products", products, (array(3, LANES), 0, array(3, LANES), 0, 3, array(LANES), 0)),
        (
            "subtract_products",
            products,
            (array(3, LANES), 0, array(3, LANES), 0, 3, array(LANES), 0),
        ),
        ("subtract_rows", rows, (array(2, 3), 1, 3, array(3, N), array(N))),
        ("squared_distances", rows, (array(2, 3), 1, 3, array(3, N), array(N))),
        ("sum_rows", rows, (array(N), table, STARTS, 2 * ROWS, array(2, N), 1)),
        ("add_to_rows", rows, (array(2, N), 1, 0.5, STARTS, 2 * ROWS, table)),
        ("subtract_maxima", rows, (wide, 2 * ROWS, array(2 * ROWS))),
        (
            "sums_and_products",
            rows,
            (wide, table, 2 * ROWS, array(2 * ROWS), array(2 * ROWS)),
        ),
        ("beginning_as_rows", products, (array(6), 2, 3)),
        ("center_rows", chains, (narrow, 0, 6, 0.5, array(5 * 3 + 4))),
        ("forward", FORWARD, (array(2 * 8), 8, array(8, 8), 8, array(2 * 8), 8, 1.0)),
        ("forward_of_four", FORWARD_OF_FOUR, (array(8), 4, array(4, 4), 4, array(8), 4, 1.0)),
        (
            "backward",
            BACKWARD,
            (array(2 * 8), 8, 0, array(8, 8), 8, array(2 * 8), 8, 1.0, array(2 * 8), 8),
        ),
        (
            "backward_of_four",
            BACKWARD_OF_FOUR,
            (array(8), 4, 0, array(4, 4), 4, array(8), 4, 1.0, array(8), 4),
        ),
        (
            "finish_rows",
            chains,
            (
                *(chain, array(6 * 4), array(5 * 3 + 4), 0, 6, array(6), array(6)),
                *(narrow, array(6, 3), 0, 1.0),
            ),
        ),
        ("set_tile", tiles, (*left, *left, 3, tile, 0, row)),
        ("subtract_tile", tiles, (*left, *left, 3, tile, 0, row)),
        ("set_vector", tiles, (*left, *vector, array(row), 0, MATRICES)),
        ("subtract_vector", tiles, (*left, *vector, array(row), 0, MATRICES)),
        ("factorise_tile", tiles, (tile, tile, tile, 0, row, 0)),
        ("add_outer_products", chains, (array(4 * 8), array(5 * 8), 0, 4, array(8, 8))),
    ]
    return [
        (name, getattr(where, name) if hasattr(where, name) else where, given)
        for name, where, given in found
    ]


def compiled(function: object, n_arguments: int) -> object:
    names = ", ".join(f"a{i}" for i in range(n_arguments))
    scope = {"function": function}
    exec(f"def call({names}):\n    function({names})\n", scope)
    return numba.njit(scope["call"])


def raises(call, arguments: tuple) -> bool:
    try:
        call(*(np.array(a) if isinstance(a, np.ndarray) else a for a in arguments))
    except IndexError:
        return True
    return False


@shared_kernel("values out_values")
def shift(x, out, first, last):
    """Move the entries of an array by one; the last one comes from beyond the end."""
    for i in range(first, last):
        out[i] = x[i + 1]


def main() -> None:
    found: dict[str, object] = {}
    for name, function, arguments in calls():
        call = compiled(function, len(arguments))
        if raises(call, arguments):
            found[name] = "exact"
            continue
        found[name] = [
            i
            for i, value in enumerate(arguments)
            if isinstance(value, np.ndarray)
            and not raises(call, (*arguments[:i], value[:-1], *arguments[i + 1 :]))
        ]
    x = array(4)
    found["shared"] = [
        raises(shift, (x, array(4), 0, 4, n_parts, board))
        for n_parts, board in ((1, np.empty(0, np.int64)), (2, _team.new_board()))
    ]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
