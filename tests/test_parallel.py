"""What the package does to the threads of others."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest
from far_backend import FarBackend, RaylikeBackend, far_away
from harness import make_threads_worthwhile
from joblib import parallel_config
from joblib.parallel import BACKENDS
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from tasks import count, itself, second
from threadpoolctl import ThreadpoolController, threadpool_limits

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.data.shared_rows import SharedRows
from sklearn_anneal.data.units import Sequences
from sklearn_anneal.parallel.thread_limits import one_thread
from sklearn_anneal.parallel.workers import Workers


def threads(api):
    found = ThreadpoolController().select(user_api=api).info()
    return [library["num_threads"] for library in found]


def test_limits_that_overlap_leave_the_process_as_it_was():
    """The first out must not lift the limit of the other, nor the last one keep it."""
    if not threads("blas"):
        pytest.skip("no BLAS library that threadpoolctl knows")
    before = threads("blas")
    inside, leave, left = threading.Event(), threading.Event(), threading.Event()

    def other():
        with one_thread():
            inside.set()
            leave.wait()
        left.set()

    with one_thread():
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait()
    during = threads("blas")
    leave.set()
    thread.join()
    assert left.is_set()
    assert during == [1] * len(before)
    assert threads("blas") == before


def test_limit_is_lifted_after_an_error():
    before = threads("blas"), threads("openmp")
    with pytest.raises(RuntimeError), one_thread():
        raise RuntimeError
    assert (threads("blas"), threads("openmp")) == before


@pytest.mark.parametrize("limit", [1, 2])
def test_limit_within_a_limit_of_the_caller(limit):
    before = threads("blas"), threads("openmp")
    with threadpool_limits(limit):
        inside = threads("blas"), threads("openmp")
        with one_thread():
            assert set(threads("blas") + threads("openmp")) <= {1}
        assert (threads("blas"), threads("openmp")) == inside
    assert (threads("blas"), threads("openmp")) == before


def test_threads_work_in_order_with_the_callers_configuration():
    barrier = threading.Barrier(2, timeout=20)

    def task(i):
        # Two of the tasks have to be in two threads.
        if i < 4:
            barrier.wait()
        return second(i)

    with config_context(assume_finite=True), Workers(2) as workers:
        results = list(workers.imap(task, ((i,) for i in range(2, 40))))
    assert [result[0] for result in results] == list(range(2, 40))
    assert all(finite for *_, finite in results)
    assert any(thread != threading.get_ident() for _, thread, _ in results)


def test_the_calling_thread_works_where_it_would_wait():
    """Two workers are this thread and another: both are needed for the barrier to open."""
    barrier = threading.Barrier(2, timeout=20)

    def meet(i):
        barrier.wait()
        return i, threading.get_ident()

    with Workers(2) as workers:
        results = workers.map(meet, ((i,) for i in range(6)))
    assert [i for i, _ in results] == list(range(6))
    threads = [thread for _, thread in results]
    assert sorted(map(threads.count, set(threads))) == [3, 3]
    assert threads.count(threading.get_ident()) == 3


def test_a_task_that_is_alone_can_share_its_work():
    """The calling thread runs it, so that other threads are free for the parts."""
    barrier = threading.Barrier(2, timeout=20)

    def task():
        workers.share(lambda part: barrier.wait(), 2, 1)
        return threading.get_ident()

    with Workers(2) as workers:
        assert workers.map(task, [()]) == [threading.get_ident()]
        assert workers.map(task, []) == []


def test_error_of_a_task_that_the_calling_thread_took_comes_in_its_turn():
    release = threading.Event()

    def task(i):
        if i == 0:
            release.wait(20)
            return i
        release.set()
        raise ValueError(f"task {i}")

    with Workers(2) as workers:
        results = workers.imap(task, ((i,) for i in range(3)))
        assert next(results) == 0
        with pytest.raises(ValueError, match="task 1"):
            next(results)


def test_tasks_are_made_when_they_are_about_to_run():
    """All of them at once could be larger than the data."""
    made = []

    def tasks():
        for i in range(50):
            made.append(i)
            yield (i + 2,)

    with Workers(2) as workers:
        results = workers.imap(second, tasks())
        next(results)
        assert len(made) <= 2 * workers.n_workers
        assert len(list(results)) == 49


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 99, 100, 101, 1000])
def test_shared_work_covers_everything_once(n, n_jobs):
    counts, parts = np.zeros(n, dtype=int), []

    def count(part):
        counts[part] += 1
        parts.append(part)

    with Workers(n_jobs) as workers:
        workers.share(count, n, 100)
    assert (counts == 1).all()
    assert all(part.stop - part.start >= min(n, 100) for part in parts)
    assert len(parts) == (8 if n_jobs == 2 and n == 1000 else 1)


def test_shared_work_is_done_by_all_workers():
    """Two workers are this thread and another: both are needed for the barrier to open."""
    barrier, threads = threading.Barrier(2, timeout=20), []

    def meet(part):
        barrier.wait()
        threads.append(threading.get_ident())

    with Workers(2) as workers:
        workers.share(meet, 800, 100)
    assert sorted(map(threads.count, set(threads))) == [4, 4]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_work_ahead_is_in_order_and_asks_for_one_more_item(n_jobs):
    """Items that draw random numbers draw the same ones with any number of workers."""
    asked = []

    def items():
        for i in range(5):
            asked.append(i)
            yield i

    with Workers(n_jobs) as workers:
        for i, result in enumerate(workers.ahead(lambda i: 10 * i, items())):
            assert result == 10 * i
            assert asked == list(range(min(i + 2, 5)))
        assert list(workers.ahead(abs, ())) == []
        # What has been given up is not made later, and is not referred to.
        results = workers.ahead(asked.append, iter(range(5, 8)))
        next(results)
        results.close()
        assert workers._ahead is None
        assert workers.map(abs, ((i,) for i in (-1, 2))) == [1, 2]
    assert i == 4
    assert asked == list(range(6))


@pytest.mark.parametrize("tasks", [(-1,), (-1, -2)])
def test_the_next_item_is_made_while_the_last_is_in_use(tasks):
    made = threading.Event()

    def make(i):
        if i == 1:
            made.set()
        return threading.get_ident()

    with Workers(2) as workers:
        results = workers.ahead(make, (0, 1, 2))
        next(results)
        # It is begun when the tasks of the next step are under way, however few they are.
        assert workers.map(abs, ((i,) for i in tasks)) == [-i for i in tasks]
        assert made.wait(20)
        assert next(results) != threading.get_ident()
        results.close()


def test_the_caller_makes_an_item_that_busy_threads_have_not_begun():
    release = threading.Event()
    with Workers(2) as workers:
        busy = workers._pool.submit(release.wait, 20)
        try:
            results = workers.ahead(lambda i: threading.get_ident(), (0, 1))
            found = [next(results)]
            workers._ahead.prepare()
            found += results
        finally:
            release.set()
        assert busy.result()
    assert found == 2 * [threading.get_ident()]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_of_work_ahead_comes_in_its_turn(n_jobs):
    with Workers(n_jobs) as workers:
        results = workers.ahead(lambda i: 1 // i, (1, 0, 2))
        assert next(results) == 1
        with pytest.raises(ZeroDivisionError):
            next(results)
        assert list(results) == []


@pytest.mark.parametrize("in_caller", [True, False])
def test_an_error_of_shared_work_reaches_the_caller(in_caller):
    """No other part begins afterwards, and the workers can be used again."""
    begun, release = [], threading.Event()

    def fail(part):
        begun.append(part)
        if (threading.current_thread() is threading.main_thread()) == in_caller:
            release.set()
            raise ValueError("one part")
        release.wait(20)

    with Workers(2) as workers:
        with pytest.raises(ValueError, match="one part"):
            workers.share(fail, 800, 1)
        assert len(begun) <= 3 if in_caller else len(begun) == 8
        assert workers.map(abs, ((i,) for i in (-1, 2))) == [1, 2]


def test_an_interrupt_of_the_caller_stops_it_at_once():
    """It begins with no further task, whichever of the first two it was in."""

    class Interrupt(BaseException):
        pass

    begun, barrier = [], threading.Barrier(2, timeout=20)

    def task(i):
        begun.append(threading.get_ident())
        if i < 2:
            barrier.wait()
            if threading.get_ident() == threading.main_thread().ident:
                raise Interrupt

    with Workers(2) as workers, pytest.raises(Interrupt):
        list(workers.imap(task, ((i,) for i in range(20))))
    assert begun.count(threading.get_ident()) == 1


def test_parts_of_sequences_follow_each_other_and_the_last_are_halves(rng):
    lengths = rng.integers(0, 300, size=1000)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    sequences = Sequences(np.zeros(indptr[-1]), indptr)
    parts = sequences.chunks()
    assert parts[0].start == 0 and parts[-1].stop == len(lengths)
    assert all(a.stop == b.start for a, b in zip(parts[:-1], parts[1:], strict=True))
    sizes = np.array([sequences.take(part).indptr[-1] for part in parts])
    assert len(parts) == 20
    assert np.abs(sizes[:12] - indptr[-1] / 16).max() <= 300
    assert np.abs(sizes[12:] - indptr[-1] / 32).max() <= 300


@pytest.mark.parametrize("lengths", [[200_000, 1, 1], [1, 200_000, 0, 0], [0] * 30 + [90_000]])
def test_parts_of_sequences_of_very_different_lengths(lengths):
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    parts = Sequences(np.zeros(indptr[-1]), indptr).chunks()
    assert all(part.start < part.stop for part in parts)
    assert np.concatenate([np.arange(p.start, p.stop) for p in parts]).tolist() == list(
        range(len(lengths))
    )


@pytest.mark.parametrize(
    "backend",
    ["threading", "multiprocessing", pytest.param("loky", marks=pytest.mark.exhaustive)],
)
def test_rows_and_errors_of_tasks_reach_the_caller(backend):
    """Rows come from threads without a copy, and from other processes with one.

    Processes of loky, which import the package, have restarts in the tests of interrupts.
    """
    shared = SharedRows(10, {"a": 3, "b": 1}, np.float32)
    parts = [slice(0, 4), slice(4, 5), slice(5, 10)]
    with parallel_config(backend=backend), Workers(2) as workers:
        found = workers.map(count, ((shared, rows) for rows in parts))
        if backend != "threading":
            _assert_arrays_can_be_written(workers)
        with pytest.raises(ValueError, match="the second task"):
            list(workers.imap(second, ((i,) for i in range(5))))
    array = shared.of(slice(None))["a"].base
    assert all((part["a"].base is array) == (backend == "threading") for part in found)
    whole = shared.joined(*zip(parts, found, strict=True))
    some = shared.joined(*zip(parts[1:], found[1:], strict=True))
    np.testing.assert_array_equal(some["a"], whole["a"][4:])
    for key, width in (("a", 3), ("b", 1)):
        assert whole[key].dtype == np.float32
        expected = np.repeat(np.arange(10.0)[:, None], width, axis=1)
        np.testing.assert_array_equal(whole[key], expected)


def _assert_arrays_can_be_written(workers):
    """joblib maps large arrays into the memory of workers read-only, and they may come back."""
    x = np.arange(300_000.0).reshape(-1, 3)
    for found, mapped in workers.imap(itself, [(x, x[:2])] * 3):
        assert mapped
        for array in found.values():
            array += 1
        np.testing.assert_array_equal(found["whole"], x + 1)
        np.testing.assert_array_equal(found["part"], x[1:3] + 1)


def test_rows_of_indices_are_copied_to_their_place():
    shared = SharedRows(4, {"a": 2}, float)
    part = shared.of(np.array([2, 0]))
    part["a"][:] = 7.0
    whole = shared.joined((slice(1, 3), part))
    assert whole["a"].shape == (2, 2)
    np.testing.assert_array_equal(whole["a"], 7.0)


# Backends of joblib


@pytest.fixture(params=[FarBackend, RaylikeBackend])
def far(request):
    """A remote backend, registered under the name "far"."""
    with far_away(request.param) as backend:
        yield backend


@pytest.fixture
def worth(monkeypatch):
    """Every fit is large enough for several workers."""
    make_threads_worthwhile(monkeypatch)


def make_mixture(**parameters):
    settings = {"n_components": 3, "max_iter": 5, "tol": 1e9, "effort": 0, "random_state": 0}
    return AnnealedBayesianGaussianMixture(**settings | parameters)


def state(mixture):
    names = ("lower_bounds_", "restart_lower_bounds_", "means_", "covariances_", "weights_")
    return [getattr(mixture, name) for name in names]


def assert_same(mixture, other):
    for a, b in zip(state(mixture), state(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture
def X(rng):
    return rng.normal(size=(400, 3))


@pytest.fixture
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("n_init", [1, 4])
def test_one_job_asks_nothing_of_a_backend(n_init, far, worth, X, no_warnings):
    with parallel_config("far"):
        mixture = make_mixture(n_init=n_init, n_jobs=1).fit(X)
    assert not far.calls
    assert_same(mixture, make_mixture(n_init=n_init, n_jobs=1).fit(X))


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_restarts_go_to_remote_workers_and_can_be_used_on_return(
    n_jobs, far, worth, X, no_warnings
):
    with parallel_config("far"):
        mixture = make_mixture(n_init=4, n_jobs=n_jobs).fit(X)
    assert len(far.calls) == 3
    assert_same(mixture, make_mixture(n_init=4, n_jobs=1).fit(X))
    # Everything that goes on from the result writes into it somewhere.
    mixture.set_params(warm_start=True, n_jobs=1).fit(X).partial_fit(X[:50])


def test_chunks_do_not_go_to_remote_workers(far, worth, X):
    with parallel_config("far"), pytest.warns(UserWarning, match="stay on this machine") as caught:
        mixture = make_mixture(n_jobs=2).fit(X)
    assert len(caught) == 1
    assert type(BACKENDS["far"]()).__name__ in str(caught[0].message)
    assert caught[0].filename == __file__
    assert not far.calls
    assert_same(mixture, make_mixture(n_jobs=1).fit(X))


def test_the_warning_of_chunks_points_at_the_user_from_within_pipelines(far, worth, X):
    pipeline = make_pipeline(make_mixture(n_jobs=2))
    with parallel_config("far"), pytest.warns(UserWarning, match="stay on this machine") as caught:
        pipeline.fit_predict(X)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("backend", ["far", "loky", "multiprocessing"])
def test_verbose_keeps_restarts_here_and_says_so(backend, worth, X, capsys):
    with (
        far_away() as far,
        parallel_config(backend),
        pytest.warns(UserWarning, match="messages of verbose") as caught,
    ):
        mixture = make_mixture(n_init=2, n_jobs=2, verbose=1, verbose_interval=1).fit(X)
    assert len(caught) == 1
    assert not far.calls
    assert "restart 1 · pass" in capsys.readouterr().out
    assert_same(mixture, make_mixture(n_init=2, n_jobs=1).fit(X))


@pytest.mark.parametrize("backend", ["far", "loky", "multiprocessing"])
def test_small_work_stays_here_and_says_so(backend, X):
    with (
        far_away() as far,
        parallel_config(backend),
        pytest.warns(UserWarning, match="too small") as caught,
    ):
        make_mixture(n_init=2, n_jobs=2).fit(X)
    assert len(caught) == 1
    assert not far.calls


@pytest.mark.parametrize("backend", [None, "threading"])
@pytest.mark.parametrize("verbose", [0, 1])
def test_nothing_is_said_where_no_other_backend_was_chosen(backend, verbose, X, no_warnings):
    with parallel_config(backend) if backend else config_context():
        make_mixture(n_init=2, n_jobs=2, verbose=verbose).fit(X)


def test_nothing_is_said_where_one_job_was_asked_for(X, no_warnings):
    with parallel_config("loky"):
        make_mixture(n_init=2, verbose=1).fit(X)
        make_mixture(n_init=2, n_jobs=1).fit(X)


def read_common(common, path, i):
    return common.path == path, i


class Tracked:
    """An object that notes in a file how often it is pickled, and how often it arrives."""

    def __init__(self, path):
        self.path = path

    def __getstate__(self):
        with open(self.path, "a") as file:
            file.write("sent\n")
        return self.__dict__ | {"ballast": bytes(10_000)}

    def __setstate__(self, state):
        self.__dict__.update(state)
        with open(self.path, "a") as file:
            file.write("arrived\n")


def test_what_is_common_goes_to_a_remote_worker_once(far, tmp_path):
    path = str(tmp_path / "log")
    with parallel_config("far"), Workers(3, restarts=True) as workers:
        found = workers.map(read_common, ((path, i) for i in range(10)), common=(Tracked(path),))
    assert found == [(True, i) for i in range(10)]
    assert open(path).read().split() == 3 * ["sent", "arrived"]


@pytest.mark.parametrize("n_tasks", [0, 1, 2, 7])
def test_results_of_remote_workers_are_in_order(n_tasks, far):
    with parallel_config("far"), Workers(3, restarts=True) as workers:
        found = workers.map(pow, [(i,) for i in range(n_tasks)], common=(2,))
    assert found == [2**i for i in range(n_tasks)]


def test_fits_in_processes_without_generators(worth, X, no_warnings):
    # The kernels that this fit loads are those of the processes, which are forks.
    alone = make_mixture(n_init=2, n_jobs=1).fit(X)
    with parallel_config("multiprocessing"):
        mixture = make_mixture(n_init=2, n_jobs=2).fit(X)
    assert_same(mixture, alone)


def test_tasks_are_made_in_groups_where_there_are_no_generators():
    made = []

    def tasks():
        for i in range(30):
            made.append(i)
            yield (-i,)

    with parallel_config("multiprocessing"), Workers(2) as workers:
        results = workers.imap(abs, tasks())
        assert next(results) == 0
        assert len(made) <= 4
        assert list(results) == list(range(1, 30))
