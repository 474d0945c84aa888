"""How parts are read: from where, how often, by how many workers, and what is left behind."""

from __future__ import annotations

import gc
import pickle
import tempfile
import threading
import warnings
from contextlib import nullcontext
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from cases_parts import Counted, cut, folders, uneven
from designs import in_turn
from harness import (
    MANY,
    alternating,
    assert_identical,
    divide_few_units,
    make_threads_worthwhile,
    models,
    one_of_each_class,
    quick,
)
from models import ENTRIES
from scipy import sparse
from test_callbacks import Recorder
from test_checkpoints import goes_on, interrupted

from sklearn_anneal import (
    Shards,
)
from sklearn_anneal.annealing import DeterministicAnnealing
from sklearn_anneal.data.parts import Sums
from sklearn_anneal.parallel.lockstep import Lockstep


@pytest.fixture(autouse=True)
def own_temporary_files(monkeypatch, tmp_path):
    """Files of tests that run at the same time are elsewhere."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("no_wait_for_the_disk"),
]

BY_NAME = {entry.name: entry for entry in ENTRIES}
# The models with local variables that stay with the parts.
KEEPING = ["latent_dirichlet", "gamma_process_nmf", "factorial_mixture", "matrix_factorization"]


def without_search(entry, **params):
    """The estimator of an entry, without moves if it makes any."""
    est = entry.make(**params)
    return est.set_params(effort=0) if "effort" in est.get_params() else est


# Where parts are


def saved(parts, folder, suffix):
    """Write parts to files, and return their paths, and what reading them should yield."""
    paths, tables = [], []
    for i, part in enumerate(parts):
        path = folder / f"{i}{suffix}"
        if suffix == ".npy":
            np.save(path, part)
        elif suffix == ".npz" and sparse.issparse(part):
            sparse.save_npz(path, part)
        elif suffix == ".npz":
            np.savez(path, rows=part)
        else:
            pandas = pytest.importorskip("pandas")
            pytest.importorskip("pyarrow")
            part = pandas.DataFrame(part, columns=list("abcdefghijkl")[: part.shape[1]])
            part.to_parquet(path)
        paths.append(path if i % 2 else str(path))
        tables.append(part)
    return paths, tables


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("gaussian_mixture", ".npy"),
        ("gaussian_mixture", ".parquet"),
        ("gamma_process_nmf", ".npz"),
        ("latent_dirichlet", ".npz"),
    ],
)
def test_files_are_the_arrays_in_them(name, suffix, rng, tmp_path):
    entry = BY_NAME[name]
    X = entry.data(rng, 40)
    how = {"annealing": quick("deterministic", 2), "effort": 0, "max_iter": 3}
    settings = {**entry.first, **how}
    paths, tables = saved(uneven(X, 4), tmp_path, suffix)
    read, whole = (entry.make(**settings).fit(Shards(parts)) for parts in (paths, tables))
    assert_identical(read, whole)
    # Functions and delayed objects may return paths.
    dask = pytest.importorskip("dask")
    returning = [partial(str, paths[0]), lambda: Path(paths[1]), *map(dask.delayed(str), paths[2:])]
    assert_identical(entry.make(**settings).fit(Shards(returning)), whole)
    assert len(whole.transform(Shards(returning)).compute()) == 4


@pytest.mark.parametrize(
    ("entry", "how"), alternating(one_of_each_class(models()), ("batch", "minibatches"))
)
def test_functions_and_arrays_are_the_same_parts(entry, how, rng):
    """With local variables in files or in memory, read ahead or not, in passes or minibatches."""
    parts = uneven(entry.data(rng, 30), 4)
    batches = entry.in_batches(9) if how == "minibatches" else {}
    settings = {**entry.first, "annealing": quick("svi_plus", 1), "max_iter": 3, **batches}
    whole = without_search(entry, **settings).fit(Shards(parts))
    # All parts are read in one case, and every other part in the other case.
    called = [Counted(part) if i % 2 or batches else part for i, part in enumerate(parts)]
    assert_identical(without_search(entry, **settings).fit(Shards(called)), whole)


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_the_number_of_workers_changes_nothing(entry, rng, monkeypatch):
    make_threads_worthwhile(monkeypatch)
    divide_few_units(monkeypatch)
    X, found = entry.many(rng, 2 * MANY), []
    for n_jobs in (1, 2):
        settings = {**entry.first, "annealing": quick("svi_plus", 1), "max_iter": 1}
        parts = [Counted(part) for part in cut(X, [MANY])]
        found.append(without_search(entry, **settings, n_jobs=n_jobs).fit(Shards(parts)))
    assert_identical(*found)


def test_files_are_read_in_every_pass_and_arrays_stay(rng):
    X = BY_NAME["gaussian_mixture"].data(rng, 60)
    counted, stays = Counted(X[:40]), X[40:]
    n_calls = []
    for max_iter in (2, 5):
        counted.n_calls = 0
        est = BY_NAME["gaussian_mixture"].make(annealing="none", max_iter=max_iter, tol=0.0)
        est.fit(Shards([counted, stays]))
        n_calls.append(counted.n_calls)
    assert n_calls[1] - n_calls[0] == 3
    assert n_calls[0] <= 9


@pytest.mark.parametrize("name", KEEPING)
def test_fitted_estimators_have_nothing_of_the_data(name, rng):
    sizes = []
    for n in (60, 600):
        X = BY_NAME[name].data(rng, n)
        est = BY_NAME[name].make(annealing="none", max_iter=5)
        sizes.append(len(pickle.dumps(est.fit(Shards(uneven(X, 3))))))
    assert abs(sizes[1] - sizes[0]) < 2000


@pytest.mark.parametrize("error", [None, OSError, KeyboardInterrupt])
@pytest.mark.parametrize("name", KEEPING)
def test_local_variables_in_files_are_removed(name, error, rng, monkeypatch):
    X = BY_NAME[name].data(rng, 30)
    before, during = folders(), []
    fails_at = 0 if error is None else 11

    class Watched(Counted):
        def __call__(self):
            during.append(folders() - before)
            return super().__call__()

    part = Watched(X[:10], fails_at, None if error is None else error("gone"))
    est = BY_NAME[name].make(annealing=quick("deterministic", 2), max_iter=12, tol=0.0)
    state = dict(vars(est))
    if error is None:
        est.fit(Shards([part, X[10:]]))
    else:
        with pytest.raises(error, match="gone"):
            est.fit(Shards([part, X[10:]]))
        assert vars(est) == state
    assert any(during)
    assert folders() == before


def test_the_garbage_collector_finds_no_folder(rng):
    """It warns of those that nobody has removed; a second one took the place of the first."""
    X = BY_NAME["gaussian_mixture"].data(rng, 30)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        for n_parts, fails in product((1, 3), (False, True)):
            parts = [Counted(part) for part in uneven(X, n_parts)]
            parts[-1].error, parts[-1].fails_at = OSError("gone"), 4 if fails else 0
            est = BY_NAME["gaussian_mixture"].make(annealing="none", max_iter=3)
            with pytest.raises(OSError, match="gone") if fails else nullcontext():
                est.fit(Shards(parts))
        gc.collect()
    assert not caught


# Sums


def in_parentheses(a, b):
    return f"({a}{b})"


@pytest.mark.parametrize("n_parts", [*range(1, 18), 31, 32, 33])
def test_sums_do_not_depend_on_the_division_into_groups(n_parts, rng):
    """The merge is not associative, so that the result shows the order of additions."""
    whole = Sums(n_parts, in_parentheses)
    for i in range(n_parts):
        whole.add((0, i), f"{i} ")
    ((node, expected),) = whole.found
    assert node == ((n_parts - 1).bit_length(), 0)
    for _ in range(20):
        n_groups = rng.integers(1, 5)
        group_of = rng.integers(n_groups, size=n_parts)
        if rng.random() < 0.5:
            group_of = np.sort(group_of)
        nodes = []
        for group in range(n_groups):
            sums = Sums(n_parts, in_parentheses)
            for i in np.flatnonzero(group_of == group):
                sums.add((0, int(i)), f"{i} ")
            nodes += sums.found
        sums = Sums(n_parts, in_parentheses)
        for node, value in sorted(nodes, key=lambda found: found[0][1] << found[0][0]):
            sums.add(node, value)
        assert sums.found == whole.found


def test_nothing_adds_nothing_to_a_sum():
    sums = Sums(5, in_parentheses)
    for i, value in enumerate([None, "a", None, None, "b"]):
        sums.add((0, i), value)
    assert sums.found == [((3, 0), "(ab)")]


# Restarts together


@pytest.mark.parametrize("name", ["gaussian_mixture", "hidden_markov_gaussian", *KEEPING])
def test_restarts_read_every_part_once_per_pass(name, rng):
    entry = BY_NAME[name]
    X = entry.data(rng, 30)
    settings = {**entry.first, "annealing": quick("deterministic", 2), "max_iter": 3, "tol": 0.0}
    n_calls = []
    for n_init in (1, 3):
        counted = [Counted(part) for part in cut(X, [7])]
        without_search(entry, **settings, n_init=n_init).fit(Shards(counted))
        n_calls.append([part.n_calls for part in counted])
    assert n_calls[0] == n_calls[1]


@in_turn(name=KEEPING, restarts=("full", "race"))
def test_restarts_of_parts_in_files_are_those_in_memory(name, restarts, rng):
    X, entry = BY_NAME[name].data(rng, 30), BY_NAME[name]
    settings = {"annealing": quick("svi_plus", 2), "max_iter": 12, "n_init": 3}
    parts = cut(X, [7, 20])
    one, two = (
        without_search(entry, **settings, restarts=restarts).fit(Shards(data))
        for data in (parts, [Counted(part) for part in parts])
    )
    assert_identical(one, two)


@pytest.mark.parametrize("fails_at", range(3, 10))
def test_an_error_in_a_pass_of_restarts_reaches_the_user(fails_at, rng):
    X, n_threads = BY_NAME["gaussian_mixture"].data(rng, 30), threading.active_count()
    error = OSError("the disk is gone")
    est = BY_NAME["gaussian_mixture"].make(annealing="none", n_init=3, tol=0.0)
    with pytest.raises(OSError, match=r"Part 1 cannot be read: the disk is gone") as caught:
        est.fit(Shards([X[:9], Counted(X[9:], fails_at, error)]))
    assert caught.value.__cause__ is error
    assert threading.active_count() == n_threads
    assert not hasattr(est, "lower_bound_")


def test_an_error_of_one_restart_ends_the_others(rng, monkeypatch):
    """Restarts that wait for a pass are woken, and the error is that of the one that failed."""
    X, n_threads = BY_NAME["gaussian_mixture"].data(rng, 30), threading.active_count()

    class Failing(DeterministicAnnealing):
        def update(self, ctx, q, target, rho):
            with lock:
                counter[0] += 1
                if counter[0] == 5:
                    raise FloatingPointError("in one restart")
            return super().update(ctx, q, target, rho)

    lock, counter = threading.Lock(), [0]
    method = Failing(initial_temperature=3.0, n_passes=4)
    est = BY_NAME["gaussian_mixture"].make(annealing=method, n_init=3)
    with pytest.raises(FloatingPointError, match="in one restart"):
        est.fit(Shards(cut(X, [9])))
    assert threading.active_count() == n_threads


def test_lockstep_waits_for_all_that_still_run():
    batches = []

    def visit_all(jobs):
        batches.append(sorted(jobs))
        return [job * 10 for job in jobs]

    lockstep = Lockstep(3, visit_all)

    def restart(index, n_passes):
        return [lockstep.pass_with(index) for _ in range(n_passes)]

    found = lockstep.map(restart, [(0, 1), (1, 3), (2, 2)])
    assert found == [[0], [10, 10, 10], [20, 20]]
    assert batches == [[0, 1, 2], [1, 2], [1]]


@pytest.mark.parametrize("n_init", [1, 3])
def test_callbacks_stop_a_fit_to_parts(n_init, rng):
    X, stopper = BY_NAME["gaussian_mixture"].data(rng, 30), Recorder(stop_at=("pass", 4))
    est = BY_NAME["gaussian_mixture"].make(annealing="none", tol=0.0, max_iter=20, n_init=n_init)
    est.set_callbacks(stopper)
    est.fit(Shards(cut(X, [9])))
    # Restarts pass over the data together, and each ends with the pass that it is in.
    assert est.n_iter_ <= 4
    assert 4 <= stopper.ended("pass") <= 3 + 2 * n_init
    assert np.isfinite(est.lower_bound_)


# Checkpoints


@pytest.mark.parametrize("place", [pytest.param("memory", marks=pytest.mark.exhaustive), "files"])
@pytest.mark.parametrize(
    ("name", "params", "first"),
    [
        ("gaussian_mixture", {}, 1),
        ("latent_dirichlet", {}, 2),
        ("latent_dirichlet", {"local_step": "cvb0"}, 3),
        ("gamma_process_nmf", {}, 4),
        ("factorial_mixture", {}, 5),
        ("matrix_factorization", {}, 6),
    ],
)
def test_a_fit_to_parts_goes_on_from_after_any_pass(
    name, params, first, place, rng, tmp_path, monkeypatch
):
    """After half of the passes, local variables are kept from pass to pass.

    Each model is interrupted after every sixth pass, and all of them together after any.
    """
    entry = BY_NAME[name]
    parts = cut(entry.data(rng, 30), [7, 20])
    if place == "files":
        parts = [Counted(part) for part in parts]
    settings = {**params, "annealing": quick("svi_plus", 1), "max_iter": 6, "tol": 0.0}

    def make():
        return without_search(entry, **settings)

    X = Shards(parts)
    whole, n_saved = make().fit(X), first
    while goes_on(monkeypatch, make, X, whole, tmp_path / str(n_saved), n_saved):
        n_saved += 6
    assert n_saved > 6


def test_a_checkpoint_of_other_parts_is_refused(rng, tmp_path, monkeypatch):
    X = BY_NAME["gaussian_mixture"].data(rng, 30)
    est = BY_NAME["gaussian_mixture"].make(annealing="none")
    assert interrupted(monkeypatch, est, Shards(cut(X, [9])), tmp_path, 2)
    for other in (cut(X, [10]), cut(X[::-1], [9]), cut(X, [9, 20])):
        with pytest.raises(ValueError, match="differs in the data"):
            est.fit(Shards(other), checkpoint=tmp_path)
    with pytest.raises(ValueError, match="differs in the data"):
        est.fit(X, checkpoint=tmp_path)
    # Where the same parts are read from does not matter.
    est.fit(Shards([Counted(part) for part in cut(X, [9])]), checkpoint=tmp_path)
