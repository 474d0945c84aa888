"""Explicit vector code checks the bounds of arrays where numba checks those of other code."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

CASES = {
    "a row beyond the table": """
        @numba.njit
        def run(start, table, starts, out):
            sum_rows(start, table, starts, len(starts), out, 0)

        table = np.arange(32.0).reshape(4, 8)
        out = np.empty((1, 8))
        run(np.zeros(8), table, np.array([0, 16]), out)
        np.testing.assert_array_equal(out[0], table[0] + table[2])
        attempt(run, np.zeros(8), table, np.array([0, 28]), out)
        attempt(run, np.zeros(8), table, np.array([-8, 0]), out)
    """,
    "an output that is too short": """
        @numba.njit
        def run(x, y, out):
            lane_products(x, y, out)

        x = np.arange(32.0)
        out = np.empty(4 * 4 + 4)
        run(x, x, out)
        assert out[-4:].sum() == x @ x
        attempt(run, x, x, out[:-1].copy())
        attempt(run, x, x[:-4].copy(), out)
    """,
}
PROGRAM = """
import numba
import numpy as np

from sklearn_anneal.kernels._simd import lane_products
from sklearn_anneal.kernels._simd_rows import sum_rows

def attempt(run, *arguments):
    try:
        run(*arguments)
    except IndexError as error:
        print("found:", error)
"""


@pytest.mark.parametrize("case", CASES)
def test_explicit_vector_code_stays_within_arrays(case, tmp_path):
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + textwrap.dedent(CASES[case])],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("found: explicit vector code is out of the bounds of an array") == 2


def test_checks_cost_nothing_unless_they_are_asked_for():
    numba = pytest.importorskip("numba")
    if numba.config.BOUNDSCHECK:
        pytest.skip("bounds are checked in this process")
    from sklearn_anneal.kernels._simd import total

    @numba.njit
    def run(x):
        return total(x)

    run.compile("float64(float64[::1])")
    (code,) = run.inspect_llvm().values()
    assert "out of the bounds" not in code
