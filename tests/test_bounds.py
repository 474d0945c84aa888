"""Two modes that find code which reads memory that it should not read, and that they find it.

With ``NUMBA_BOUNDSCHECK=1``, compiled code raises an IndexError in the place of reading or writing
outside of an array. With the option ``--nan-memory`` of pytest, memory that nobody has written is
NaN.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.extending import _Intrinsic

from sklearn_anneal import AnnealedBayesianMixture
from sklearn_anneal.kernels.simd import chains, products, rows, tiles
from sklearn_anneal.parallel import kept_memory

HERE = Path(__file__).parent
# The functions of a single array, which says how much of it is read, and those that only prefetch.
WITHOUT_SIZES = {"total", "fetch_entries", "fetch_entry"}
# An array that says how long all others are cannot be too short, nor can one that is prefetched.
GIVES_THE_SIZE = {
    "add_up": [0],
    "entry_beyond": [0],
    "fetch_rows": [0],
    "ratio_update_together": [0, 4],
    "ratio_update_together_with_norms": [0, 4],
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
    # Optimisation takes time, and removes no check.
    done = run("short_arrays.py", NUMBA_BOUNDSCHECK="1", NUMBA_OPT="0")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # Threads that share a kernel tell the one that called it, which raises.
    assert found.pop("shared") == [True, True]
    steps = {f"{step}{of}" for step in ("forward", "backward") for of in ("", "_of_four")}
    functions = {
        name
        for module in (products, chains, rows, tiles)
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


def look():
    """Check that memory is NaN where nobody has written it, and after the end of arrays."""
    assert np.isnan(np.empty(5)).all() and np.isnan(np.empty(10**5, np.float32)).all()
    assert (np.empty(7, int) == -1).all() and not np.zeros(9).any()
    for x in (np.ascontiguousarray(np.ones((3, 2)).T), np.zeros(6), np.ones(6)):
        after = (ctypes.c_double * 300).from_address(x.ctypes.data + x.nbytes)
        assert np.isnan(after[:]).all() and not np.isnan(x).any()
    with kept_memory.memory_kept():
        kept_memory.empty((100, 100))[:] = 1.0
        assert np.isnan(kept_memory.empty((100, 100))).all()
        assert not kept_memory.zeros((100, 100)).any()
    return "seen"


def bound_of_a_fit():
    X = np.random.default_rng(0).integers(0, 3, size=(30, 4))
    est = AnnealedBayesianMixture(2, emission="categorical", annealing="none", max_iter=3)
    return est.set_params(effort=0, random_state=0).fit(X).lower_bound_


@pytest.mark.skipif(sys.platform == "win32", reason="the mode needs the C library of Unix")
def test_memory_that_nobody_has_written_is_nan_and_a_fit_does_not_read_it(request):
    if request.config.getoption("--nan-memory"):
        assert look() == "seen"
        return
    done = run(
        "-c",
        "import threading\n"
        "import nan_memory, test_bounds\n"
        "nan_memory.fill_with_nan()\n"
        "print(test_bounds.look())\n"
        "thread = threading.Thread(target=lambda: print(test_bounds.look()))\n"
        "thread.start()\n"
        "thread.join()\n"
        "print(test_bounds.bound_of_a_fit())\n",
    )
    assert done.returncode == 0, done.stderr
    *seen, bound = done.stdout.split()
    assert seen == ["seen", "seen"]
    assert float(bound) == bound_of_a_fit()
