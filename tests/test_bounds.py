"""Two modes that find code which reads memory that it should not read, and that they find it.

With ``NUMBA_BOUNDSCHECK=1``, compiled code raises an IndexError in the place of reading or writing
outside of an array. With the option ``--nan-memory`` of pytest, memory that nobody has written is
NaN.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from numba.core.extending import _Intrinsic

from sklearn_anneal.kernels.simd import chains, products, rows

HERE = Path(__file__).parent
# The functions of a single array, which says how much of it is read, and those that only prefetch.
WITHOUT_SIZES = {"total", "fetch_entries"}
# An array that says how long all others are cannot be too short, nor can one that is prefetched.
GIVES_THE_SIZE = {
    "lane_products": [0],
    "fetch_rows": [0],
    "add_shares_of_rows": [0],
    "add_shares_to_row": [0],
}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=HERE,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


def test_explicit_vector_code_refuses_arrays_that_are_too_short():
    """By one element or row, each array of each function; arrays of the right size are accepted."""
    done = run("short_arrays.py", NUMBA_BOUNDSCHECK="1")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # Threads that share a kernel tell the one that called it, which raises.
    assert found.pop("shared") == [True, True]
    steps = {f"{step}{of}" for step in ("forward", "backward") for of in ("", "_of_four")}
    functions = {
        name
        for module in (products, chains, rows)
        for name, value in vars(module).items()
        if isinstance(value, _Intrinsic)
    }
    assert found.keys() == functions - WITHOUT_SIZES | steps
    assert found == {name: GIVES_THE_SIZE.get(name, []) for name in found}


def test_checks_cost_nothing_unless_they_are_asked_for():
    if numba.config.BOUNDSCHECK:
        pytest.skip("bounds are checked in this process")

    @numba.njit
    def run(x):
        return products.total(x)

    run.compile("float64(float64[::1])")
    (code,) = run.inspect_llvm().values()
    assert "out of the bounds" not in code


@pytest.mark.skipif(sys.platform == "win32", reason="the mode needs the C library of Unix")
def test_memory_that_nobody_has_written_is_nan():
    done = run(
        "-c",
        "import ctypes, threading, numpy as np, nan_memory\n"
        "from sklearn_anneal.parallel import kept_memory\n"
        "nan_memory.fill_with_nan()\n"
        "def look():\n"
        "    assert np.isnan(np.empty(5)).all() and np.isnan(np.empty(10**5, np.float32)).all()\n"
        "    assert (np.empty(7, int) == -1).all() and not np.zeros(9).any()\n"
        "    for x in (np.ascontiguousarray(np.ones((3, 2)).T), np.zeros(6), np.ones(6)):\n"
        "        after = (ctypes.c_double * 300).from_address(x.ctypes.data + x.nbytes)\n"
        "        assert np.isnan(after[:]).all() and not np.isnan(x).any()\n"
        "    with kept_memory.memory_kept():\n"
        "        kept_memory.empty((100, 100))[:] = 1.0\n"
        "        assert np.isnan(kept_memory.empty((100, 100))).all()\n"
        "        assert not kept_memory.zeros((100, 100)).any()\n"
        "    print('seen')\n"
        "look()\n"
        "thread = threading.Thread(target=look)\n"
        "thread.start()\n"
        "thread.join()\n",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["seen", "seen"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the mode needs the C library of Unix")
def test_fits_read_nothing_outside_of_their_arrays():
    """One of the tests that the workflows run in both modes."""
    done = run(
        *("-m", "pytest", "-q", "--nan-memory", "-p", "no:cacheprovider"),
        *("test_absent_data.py", "-k", "categories and do_not_exist and None"),
        NUMBA_BOUNDSCHECK="1",
    )
    assert done.returncode == 0, done.stdout
