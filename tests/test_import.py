"""Importing the package is light: what is slow to import waits until it is needed."""

from __future__ import annotations

import re
import sys
from importlib import util
from pathlib import Path

import pytest

import sklearn_anneal

HEAVY = ("numba", "llvmlite", "matplotlib")

# What a process may do without these; ``test_plain_kernels.py`` runs it.
STATEMENTS = [
    "import sklearn_anneal",
    "from sklearn_anneal import *",
    "from sklearn_anneal.annealing import *",
    "from sklearn_anneal.datasets import *",
    "from sklearn_anneal.inspection import *",
    "from sklearn_anneal.metrics import *",
    "from sklearn_anneal import AnnealedLatentDirichletAllocation as E; E().get_params()",
    "from sklearn_anneal import AnnealedBayesianGaussianMixture as E; E().get_params()",
]


def test_every_directory_of_modules_is_a_package():
    # Run from a clone, the tests meet the sources; an installation has only what setuptools finds.
    package = Path(sklearn_anneal.__file__).parent
    directories = {path.parent for path in package.rglob("*.py")}
    assert [str(d) for d in sorted(directories) if not (d / "__init__.py").exists()] == []


def test_one_module_asks_for_versions():
    package = Path(sklearn_anneal.__file__).parent
    asking = re.compile(r"version_info|\b(?!sklearn_anneal\b)\w+\.__version__|\bparse_version\b")
    files = {path for path in package.rglob("*.py") if asking.search(path.read_text("utf-8"))}
    assert files == {package / "_compat.py"}


def test_without_callbacks_of_scikit_learn_they_are_refused(monkeypatch):
    """Versions before 1.9 have none; fits are as with any other version."""
    monkeypatch.setitem(sys.modules, "sklearn.callback", None)
    old = util.module_from_spec(util.find_spec("sklearn_anneal._compat"))
    old.__spec__.loader.exec_module(old)
    with pytest.raises(NotImplementedError, match="Callbacks need scikit-learn 1.9 or later"):
        old.CallbackSupportMixin().set_callbacks("one", "another")

    def fit(self, X):
        return self

    assert old.with_callbacks(fit)(3, 4) == 3
