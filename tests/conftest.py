"""Fixtures that all tests share."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator
from threadpoolctl import ThreadpoolController

import sklearn_anneal

# scikit-learn reads the signature of a class whenever it needs the names of its parameters, which
# takes a tenth of the time of all tests. No test changes the signature of a class.
BaseEstimator._get_param_names = classmethod(cache(BaseEstimator._get_param_names.__func__))

# Examples in docstrings show figures, which need no screen here.
os.environ.setdefault("MPLBACKEND", "agg")


def pytest_addoption(parser):
    parser.addoption(
        "--nan-memory",
        action="store_true",
        help="fill memory that is not initialised, and the places after arrays, with NaN",
    )


def pytest_configure(config):
    if config.getoption("--nan-memory"):
        import nan_memory

        nan_memory.fill_with_nan()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session):
    """Compile the kernels of all models once, before several workers begin a run of all tests.

    They run tests of the same files at the same time, and each would compile what these need. The
    modules with the longest sources come first, so that all processes end at about the same time.
    """
    config = session.config
    n_workers = getattr(config.option, "numprocesses", None)
    if n_workers and _wants_all_files(config) and not config.option.collectonly:
        folder = Path(sklearn_anneal.__file__).parent / "kernels"
        sources = sorted(folder.glob("[!_]*.py"), key=lambda path: -path.stat().st_size)
        Parallel(n_workers)(delayed(_compile_kernels)(path.stem) for path in sources)


def _wants_all_files(config):
    return config.args_source is config.ArgsSource.TESTPATHS


def _compile_kernels(module):
    from sklearn_anneal.kernels import load
    from sklearn_anneal.kernels._compile import compile_all

    compile_all(load(module))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let each worker have one half of the tests, in order, and steal from the other at the end.

    What tests of a file share, such as a cluster, kernels that are loaded, and fits that a module
    keeps, is then made by one worker in most files. The usual way, in which workers take turns,
    makes it in both.
    """
    if config.getoption("dist") == "load":
        from xdist.scheduler import WorkStealingScheduling

        return WorkStealingScheduling(config, log)
    return None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Tell each worker whether it collects all files."""
    node.workerinput["all_files"] = _wants_all_files(node.config)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Collect without searches for unused objects, of which collecting leaves hardly any.

    The first run in a clone rewrites the assertions of all files. Each worker imports its own share
    of the files first, so that it finds the others rewritten when it collects them.
    """
    worker = getattr(session.config, "workerinput", {})
    gc.disable()
    try:
        if worker.get("all_files"):
            first = int(worker["workerid"].removeprefix("gw"))
            files = sorted(Path(__file__).parent.glob("test_*.py"))
            for path in files[first :: worker["workercount"]]:
                # What prevents an import is reported when the file is collected.
                with suppress(Exception, pytest.skip.Exception):
                    import_module(path.stem)
        return (yield)
    finally:
        gc.enable()


def _wants_exhaustive(config):
    return "exhaustive" in config.getoption("markexpr")


def _is_exhaustive(case):
    return any(mark.name == "exhaustive" for mark in getattr(case, "marks", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc):
    """Make no tests of exhaustive cases, which are nearly half of all, unless ``-m`` names them."""
    if _wants_exhaustive(metafunc.config):
        return
    whole = metafunc.definition.get_closest_marker("exhaustive")
    for marker in metafunc.definition.iter_markers("parametrize"):
        cases = marker.args[1] if len(marker.args) > 1 else None
        if isinstance(cases, list) and not isinstance(marker.kwargs.get("ids"), list | tuple):
            # Where all cases are exhaustive, one of them is left out like a test without cases.
            some = [] if whole else [case for case in cases if not _is_exhaustive(case)]
            cases[:] = some or cases[:1]


def pytest_collection_finish(session):
    """Let the garbage collector pass by the tests and modules, which stay to the end of the run."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config, items):
    """Leave exhaustive tests out of every run whose option ``-m`` does not name them."""
    if _wants_exhaustive(config):
        return
    left_out = [item for item in items if item.get_closest_marker("exhaustive")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]


@contextmanager
def _callbacks_if_there_are():
    """Skip what needs callbacks with versions of scikit-learn that have none, before 1.9."""
    try:
        yield
    except (NotImplementedError, ModuleNotFoundError) as error:
        said = "Callbacks need scikit-learn" in str(error) or "'sklearn.callback'" in str(error)
        if said and find_spec("sklearn.callback") is None:
            pytest.skip("it needs callbacks, which scikit-learn has since 1.9")
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    with _callbacks_if_there_are():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with _callbacks_if_there_are():
        return (yield)


@pytest.fixture
def rng():
    """A new generator for each test, with the same seed in every run."""
    return np.random.default_rng(0)


@pytest.fixture
def few_passes_of_searches(monkeypatch):
    """Make moves and the rounds of a race short, so that tests are quick."""
    from sklearn_anneal.models._count_search import SearchableCounts
    from sklearn_anneal.models._searchable import Searchable
    from sklearn_anneal.search import moves, restarts

    for model in (Searchable, SearchableCounts):
        short = replace(model.search_options, least_passes=4)
        monkeypatch.setattr(model, "search_options", short)
    monkeypatch.setattr(moves, "PASSES_OF_REHEAT", 3)
    monkeypatch.setattr(moves, "_PASSES_OF_SWAP", 3)
    monkeypatch.setattr(moves, "_PASSES_OF_START", 3)
    monkeypatch.setattr(restarts, "PASSES_OF_FIRST_ROUND", 2)


@pytest.fixture
def no_wait_for_the_disk(monkeypatch):
    """Let checkpoints be written without waiting for the disk, because no test loses power."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="session")
def native_libraries():
    """The libraries of BLAS and OpenMP of this process."""
    for name in ("scipy.linalg", "sklearn.cluster"):
        import_module(name)
    return ThreadpoolController()


@pytest.fixture(scope="session", autouse=True)
def one_thread_of_libraries(native_libraries):
    """Let workers that run side by side use one thread of BLAS and OpenMP each.

    With more, the threads of one worker wait for the cores that those of another have, and small
    products take many times as long. Tests of limits ask for ``usual_threads_of_libraries``.
    """
    with ExitStack() as limit:
        if "PYTEST_XDIST_WORKER" in os.environ:
            limit.enter_context(native_libraries.limit(limits=1))
        yield limit


@pytest.fixture
def usual_threads_of_libraries(native_libraries, one_thread_of_libraries):
    """Let a test use as many threads of BLAS and OpenMP as a program by itself."""
    one_thread_of_libraries.close()
    yield
    if "PYTEST_XDIST_WORKER" in os.environ:
        one_thread_of_libraries.enter_context(native_libraries.limit(limits=1))


# Scripts in ``benchmarks/``, which are in the repository only and not installed


@pytest.fixture
def benchmarks_importable(monkeypatch):
    """Make ``benchmarks`` importable, whatever directory the tests are run from."""
    root = str(Path(__file__).resolve().parents[1])
    monkeypatch.setattr(sys, "path", [root, *sys.path])


@pytest.fixture
def no_data(benchmarks_importable, monkeypatch, tmp_path):
    """Make sure that no data file is found."""
    from benchmarks.common import data

    monkeypatch.setenv(data.VARIABLE, str(tmp_path))


@pytest.fixture
def with_few_passes(monkeypatch):
    """A function that lets estimators of a script have few passes and no moves by default.

    Figures of quick runs mean nothing, and searches have tests of their own.
    """
    from sklearn_anneal.estimators._interface import Interface

    monkeypatch.setitem(Interface._efforts, "reheating", 0.0)

    def change(script):
        for name, value in list(vars(script).items()):
            if isinstance(value, type) and name in sklearn_anneal.__all__:
                monkeypatch.setattr(script, name, partial(value, max_iter=4))

    return change


@pytest.fixture
def quick_speed(benchmarks_importable, with_few_passes, tmp_path):
    """A function that measures the speed of a model in a quick run, and returns the page."""

    def run(model, *sections):
        page = tmp_path / "speed.md"
        script = import_module(f"benchmarks.{model}.speed")
        with_few_passes(script)
        script.main([*sections, "--quick", "--write", "--output", str(page)])
        return page.read_text(encoding="utf-8")

    return run
