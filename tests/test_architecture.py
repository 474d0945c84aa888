"""The house of the package: what a model may define, how long things are, what is said twice.

Which room may import which is on the page for developers, and is tested with it.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import quick
from scipy import sparse
from sklearn.utils._param_validation import Options

import sklearn_anneal
from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedFactorialMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    AnnealedSigmoidBeliefNet,
    AnnealedSpikeSlabFactorAnalysis,
)
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.inference import loop
from sklearn_anneal.kernels import _compile
from sklearn_anneal.models._base import ConjugateModel, Model
from sklearn_anneal.models.components._base import Components
from sklearn_anneal.models.factorial_mixture import FactorialMixture
from sklearn_anneal.models.gamma_process_nmf import GammaProcessNMF
from sklearn_anneal.models.hidden_markov import HiddenMarkov
from sklearn_anneal.models.matrix_factorization import MatrixFactorization
from sklearn_anneal.models.mixture import Mixture
from sklearn_anneal.models.spike_slab_factor_analysis import SpikeSlabFactorAnalysis
from sklearn_anneal.models.topics import LatentDirichlet

ROOT = Path(sklearn_anneal.__file__).parent
ESTIMATORS = (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedFactorialMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    AnnealedSpikeSlabFactorAnalysis,
    AnnealedSigmoidBeliefNet,
)
MODELS = (
    Components,  # they make the local steps of mixtures
    FactorialMixture,
    GammaProcessNMF,
    HiddenMarkov,
    LatentDirichlet,
    MatrixFactorization,
    Mixture,
    SpikeSlabFactorAnalysis,
)


# The base classes say these. A mixture has momentum unless its weights depend on covariates, and
# counts explore for fewer passes where tables are dense, and make further passes.
SAID_BY_BASES = ("update_rule", "accelerates", "exploring_factor", "further")


def interface() -> list[str]:
    """What a conjugate model may define."""
    names = [name for cls in (Model, ConjugateModel) for name in vars(cls) if name[0] != "_"]
    return [name for name in names if name not in SAID_BY_BASES]


def test_a_conjugate_model_may_define_few_names():
    names = set(interface())
    assert len(names) <= 22, sorted(names)


@pytest.mark.parametrize("name", sorted(set(interface())))
def test_no_name_of_the_interface_is_there_for_one_model(name):
    defining = [cls.__name__ for cls in MODELS if name in vars(cls)]
    # The entropy of q follows from its families. Only ratings define it, for speed.
    assert len(defining) >= (1 if name == "entropy" else 2), defining


# Lines


def long_functions(path: Path, most: int) -> list[str]:
    """Functions with more lines of code than that; docstrings and constructors do not count."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef) or node.name == "__init__":
            continue
        lines = node.end_lineno - node.lineno + 1
        if ast.get_docstring(node) is not None:
            lines -= node.body[0].end_lineno - node.body[0].lineno + 1
        if lines > most:
            found.append(f"{node.name}: {lines}")
    return found


@pytest.mark.parametrize(
    "path",
    [path for room in ("models", "estimators") for path in sorted((ROOT / room).rglob("*.py"))],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_files_and_functions_fit_the_eye(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 900
    assert not long_functions(path, 60)


# Parameters that estimators share


def test_constructors_end_alike():
    """The parameters that all estimators have, in their order."""
    shared = [
        "n_jobs",
        "random_state",
        "warm_start",
        "verbose",
        "verbose_interval",
    ]
    for estimator in ESTIMATORS:
        names = list(inspect.signature(estimator).parameters)
        assert names[-len(shared) :] == shared


def described(documented: Any, parameter: str) -> str:
    """What a docstring says of a parameter, without its first line."""
    text = inspect.getdoc(documented) or ""
    found = re.search(rf"^{parameter} : .*\n((?: {{4}}.*\n|\n)+)", text, flags=re.MULTILINE)
    assert found is not None, f"{documented} does not describe {parameter}"
    return " ".join(found.group(1).split())


# What an observation is called, where a parameter counts or weighs them.
OBSERVATION = re.compile(r"\b(row|frame|token|rating|unit of the sum of X)s?\b")


@pytest.mark.parametrize(
    "parameter",
    ["tol", "max_iter", "n_init", "learning_offset", "learning_decay", "n_jobs", "random_state",
     "verbose", "verbose_interval"],
)  # fmt: skip
def test_shared_parameters_are_described_alike(parameter):
    having = [cls for cls in ESTIMATORS if parameter in inspect.signature(cls).parameters]
    texts = {OBSERVATION.sub("row", described(cls, parameter)) for cls in having}
    # What a default means, or trades, for a certain model follows what the parameter is.
    texts = {text.partition(' ``"auto"`` is ')[0] for text in texts}
    assert all(text.startswith(min(texts, key=len)) for text in texts), texts


def heading(cls: type, parameter: str) -> str:
    """The first line of what a docstring says of a parameter, which may share it with others."""
    text = inspect.getdoc(cls) or ""
    found = re.search(rf"^(?:\w+, )*{parameter}(?:, \w+)* : (.*)$", text, flags=re.MULTILINE)
    assert found is not None, f"{cls.__name__} does not describe {parameter}"
    return found.group(1)


@pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_docstrings_list_the_options_and_the_defaults_of_parameters(cls):
    for name, parameter in inspect.signature(cls).parameters.items():
        kind, *default = re.split(r",\s+default=", heading(cls, name))
        allowed = [c.options for c in cls._parameter_constraints[name] if isinstance(c, Options)]
        options = {option for each in allowed for option in each if isinstance(option, str)}
        if name != "annealing":  # its names have a list of their own
            assert set(re.findall(r'"([^"]+)"', kind)) == options, name
        if default:
            assert ast.literal_eval(default[0]) == parameter.default, name
        else:
            assert parameter.default is inspect.Parameter.empty, name


def test_every_estimator_lists_the_names_of_annealing_alike():
    for cls in ESTIMATORS:
        text = described(cls, "annealing")
        assert all(f'``"{name}"``' in text for name in ANNEALING)


def test_fits_describe_checkpoints_alike():
    assert len({described(cls.fit, "checkpoint") for cls in ESTIMATORS}) == 1


BINARY = (np.random.default_rng(0).standard_normal((40, 3)) > 0).astype(float)
COUNTS = np.random.default_rng(0).poisson(1.0, (40, 30))
RATINGS = sparse.csr_matrix(np.random.default_rng(0).integers(0, 6, (40, 8)).astype(float))
# Data with missing cells are left out for Gaussian mixtures of rows with covariances: their rows go
# two ways, with all cells by one kernel, and with patterns of missing cells in groups.
WAYS = {
    "gaussian_mixture": (AnnealedBayesianGaussianMixture, {}, BINARY),
    "mixture_of_tables": (AnnealedBayesianMixture, {"emission": "bernoulli"}, BINARY),
    "mixture_of_categories": (AnnealedBayesianMixture, {"emission": "categorical"}, BINARY),
    "mixture_of_counts": (AnnealedBayesianMixture, {"emission": "poisson"}, COUNTS),
    "mixture_of_sparse_rows": (
        AnnealedBayesianMixture,
        {"emission": "bernoulli"},
        sparse.csr_matrix(BINARY),
    ),
    "mixture_of_blocks": (
        AnnealedBayesianMixture,
        {"emission": [("a", "bernoulli", [0, 1]), ("b", "gaussian", [2])]},
        BINARY,
    ),
    "factorial_mixture": (AnnealedFactorialMixture, {}, BINARY),
    "hidden_markov": (AnnealedHMM, {}, BINARY),
    "hidden_markov_of_symbols": (AnnealedHMM, {"emission": "categorical"}, BINARY[:, :1]),
    "spike_slab": (AnnealedSpikeSlabFactorAnalysis, {}, BINARY),
    "counts": (AnnealedGammaProcessNMF, {}, COUNTS),
    "sparse_counts": (AnnealedGammaProcessNMF, {}, sparse.csr_matrix(COUNTS)),
    "topics": (AnnealedLatentDirichletAllocation, {}, COUNTS),
    "drawn_topics": (AnnealedLatentDirichletAllocation, {"local_step": "gibbs"}, COUNTS),
    "ratings": (AnnealedPMF, {}, RATINGS),
    "belief_net": (AnnealedSigmoidBeliefNet, {}, BINARY),
}
# Methods that make visits of their own, or read other results of them, in batches and minibatches.
METHODS_OF_WAYS = (
    *(("none", None), ("none", 16), ("local_tempering", 16)),
    *(("svi_plus", None), ("structured", 16), ("proximity", None)),
)
NOT_COUNTED = (
    # How threads share a kernel is told once, whatever the kernel computes.
    "Workers.share",
    "Workers.share_kernel",
    "SharedKernel.part",
    # A request takes the minibatches of a part to where its data are.
    "Minibatches.at",
    # What is computed once for some data, when it is first needed.
    "cached_property.__get__",
    # A thread can take the next minibatch from the data while one is in use.
    "Workers.ahead",
    "_Ahead.__next__",
    # Blocks of columns have components of their own.
    "BlockComponents.for_rows",
    "BlockComponents.log_density",
    "BlockComponents.add",
    "BlockComponents.sums",
)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", WAYS)
def test_from_the_loop_to_a_kernel_are_eight_calls(name, monkeypatch):
    """What a reader has to follow, in any pass and in the evaluation at its end.

    Longer ways come from functions that only hand over to others.
    """
    call, ways = _compile.Kernel.__call__, set()

    def counted(kernel, *arguments):
        names, frame = [], sys._getframe(1)
        while frame is not None and frame.f_code is not loop.fit.__code__:
            names.append(frame.f_code.co_qualname.partition(".<locals>.<")[0])
            frame = frame.f_back
        if frame is not None:
            # A function within another is one of its own, but a comprehension is not.
            names = [new for new, old in zip(names, [None, *names], strict=False) if new != old]
            way = [each for each in reversed(names) if each not in NOT_COUNTED]
            ways.add(("fit", *way, kernel.__name__))
        call(kernel, *arguments)

    monkeypatch.setattr(_compile.Kernel, "__call__", counted)
    cls, params, X = WAYS[name]
    for method, batch_size in METHODS_OF_WAYS:
        estimator = cls(2, annealing=quick(method, 2), max_iter=2, random_state=0, **params)
        how = {"effort": 0, "learning_method": "batch" if batch_size is None else "online"}
        how |= {} if batch_size is None else {"batch_size": batch_size}
        estimator.set_params(**{key: how[key] for key in how.keys() & estimator.get_params()})
        try:
            estimator.fit(X)
        except ValueError as refused:
            assert "cannot be combined" in str(refused)
    assert ways
    assert not [" > ".join(way) for way in sorted(ways) if len(way) > 8]


def test_plain_passes_of_a_gaussian_mixture_go_through_few_files_and_functions():
    """What a reader has to open, from the loop to the formulas; comprehensions do not count."""
    root, found, inside = str(ROOT), set(), []

    def noted(frame, event, _):
        code = frame.f_code
        if code is loop.fit.__code__:
            inside[:] = [True] if event == "call" else []
        elif inside and code.co_filename.startswith(root) and code.co_name[0] != "<":
            found.add((code.co_filename, code.co_qualname))

    X = np.random.default_rng(0).standard_normal((50, 3))
    mixture = AnnealedBayesianGaussianMixture(
        2, annealing="none", effort=0, max_iter=20, tol=0.0, random_state=0
    )
    # The first fit of a process also reads kernels from the disk, or compiles them.
    mixture.fit(X)
    before = sys.getprofile()
    sys.setprofile(noted)
    try:
        mixture.fit(X)
    finally:
        sys.setprofile(before)
    files = {file for file, _ in found}
    assert len(files) <= 25, sorted(files)
    assert 100 < len(found) <= 130, sorted(found)
