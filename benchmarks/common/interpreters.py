"""Work that is done by another interpreter, so that it is measured apart from this process.

This module imports little, so that a script can import it without changing its memory much.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from . import ROOT

THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def in_fresh_interpreter(module: str, case: str, **options: Any) -> dict[str, Any]:
    """Let another interpreter run a task of a script, without limits on threads.

    The result is the value that the task returned, which the interpreter printed.

    Parameters
    ----------
    module : str
        The script, from the folder of the benchmarks on: ``"package.memory_of_fits"``.
    case : str
        Name of the task.
    **options
        Options of the task, with values that JSON can represent.
    """
    env = {key: value for key, value in os.environ.items() if key not in THREAD_LIMITS}
    task = json.dumps({"case": case, **options})
    return json.loads(_printed(["-m", f"benchmarks.{module}", "--task", task], env))


def seconds_in_fresh_interpreter(code: str, cache_directory: str | None = None) -> float:
    """Let another interpreter run some code in this environment; return the number it prints.

    ``cache_directory`` is that of compiled kernels; None for the usual one.
    """
    own = {} if cache_directory is None else {"NUMBA_CACHE_DIR": cache_directory}
    return float(_printed(["-c", code], os.environ | own))


def _printed(arguments: list[str], env: Mapping[str, str]) -> str:
    command = [sys.executable, "-W", "ignore", *arguments]
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{result.stderr}")
    return result.stdout


def run_task(tasks: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]], options: str) -> None:
    """Run the task that ``in_fresh_interpreter`` asked for, and print what it returns."""
    found = json.loads(options)
    print(json.dumps(tasks[found["case"]](found)))
