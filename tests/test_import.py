"""Importing the package is light: what is slow to import waits until it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sklearn_anneal

HEAVY = ("numba", "llvmlite", "matplotlib")

CHECK = """
import sys
{statement}
loaded = {heavy!r} & {{name.partition(".")[0] for name in sys.modules}}
if loaded:
    sys.exit("imported: " + ", ".join(sorted(loaded)))
"""


@pytest.mark.parametrize(
    "statement",
    [
        "import sklearn_anneal",
        "from sklearn_anneal import *",
        "from sklearn_anneal.annealing import *",
        "from sklearn_anneal.datasets import *",
        "from sklearn_anneal.inspection import *",
        "from sklearn_anneal.metrics import *",
        "from sklearn_anneal import AnnealedLatentDirichletAllocation as E; E().get_params()",
        "from sklearn_anneal import AnnealedBayesianGaussianMixture as E; E().get_params()",
    ],
)
def test_import_loads_nothing_heavy(statement):
    # `python -c` looks into the current directory first, so that the subprocess meets this package.
    result = subprocess.run(
        [sys.executable, "-c", CHECK.format(statement=statement, heavy=set(HEAVY))],
        cwd=Path(sklearn_anneal.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{statement!r}: {result.stderr}"


def test_the_check_can_fail():
    result = subprocess.run(
        [sys.executable, "-c", CHECK.format(statement="import numba", heavy=set(HEAVY))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert "numba" in result.stderr


def test_every_directory_of_modules_is_a_package():
    # Run from a clone, the tests meet the sources; an installation has only what setuptools finds.
    package = Path(sklearn_anneal.__file__).parent
    directories = {path.parent for path in package.rglob("*.py")}
    assert [str(d) for d in sorted(directories) if not (d / "__init__.py").exists()] == []
