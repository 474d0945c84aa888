"""Interrupts, forks and threads that cannot be started leave the process as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from itertools import chain, count, product

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from sklearn_anneal import kernels
from sklearn_anneal.data.units import Sequences
from sklearn_anneal.parallel import lockstep, thread_limits
from sklearn_anneal.parallel.thread_limits import one_thread
from sklearn_anneal.parallel.workers import SEQUENTIAL, Workers

PATIENCE = 60.0
"""Seconds after which something hangs; nothing waits for them otherwise."""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")


CONTROLLER = ThreadpoolController()


def threads():
    return [(lib["user_api"], lib["num_threads"]) for lib in CONTROLLER.info()]


def blas_threads():
    return [n for api, n in threads() if api == "blas"]


@pytest.fixture
def several_blas_threads(usual_threads_of_libraries):
    """Skip where a limit of one thread changes nothing, so that no test could fail."""
    if max(blas_threads(), default=1) < 2:
        pytest.skip("BLAS runs one thread in any case")


def eventually(condition):
    """Whether a condition comes true; threads that nobody waits for may have to end before."""
    end = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


# Limits of threads


class Interrupt:
    """Raises KeyboardInterrupt at the n-th moment at which the interpreter looks for signals.

    It looks where a Python function begins, and after calls of functions that are written in C.
    """

    def __init__(self, n):
        self.left = n

    def __call__(self, frame, event, argument):
        if event in ("call", "c_return"):
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt


def interrupted(n):
    """Enter and leave the limit, with an interrupt at the n-th moment; whether it came."""
    interrupt = Interrupt(n)
    try:
        sys.setprofile(interrupt)
        with one_thread():
            pass
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return interrupt.left <= 0


# The moments include some in which objects are freed, where Python cannot raise anything.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupt_at_any_moment_leaves_the_limits_as_they_were(several_blas_threads):
    with one_thread():
        pass
    before = threads()
    for n in count(1):
        came = interrupted(n)
        assert eventually(lambda: threads() == before), f"interrupt at moment {n}"
        if not came:
            break
    assert n > 50
    with one_thread():
        assert set(blas_threads()) == {1}


def test_a_limit_is_lifted_after_the_end_of_the_thread_that_set_it(several_blas_threads):
    """An interrupt lets the context end while this thread still lives, and owns the limit."""
    before, limit, holder = threads(), thread_limits._BLAS_LIMIT, thread_limits._Holder()
    entered, leaving = threading.Event(), threading.Event()

    def enter():
        limit._enter(holder)
        entered.set()
        leaving.wait(PATIENCE)
        time.sleep(0.05)

    def leave():
        leaving.set()
        limit._leave(holder)

    for function in (enter, leave):
        thread = threading.Thread(target=function)
        thread.start()
        assert entered.wait(PATIENCE)
    thread.join()
    assert threads() == before


@pytest.mark.parametrize("startable", [0, 1])
def test_threads_that_cannot_be_started_leave_the_limits_as_they_were(
    startable, several_blas_threads, monkeypatch
):
    """None can be, or only the one that sets the limit."""
    before, start, started = threads(), threading.Thread.start, []

    def limited_start(thread):
        if len(started) >= startable:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", limited_start)
        with one_thread():
            assert set(blas_threads()) == {1}
    assert len(started) == startable
    assert threads() == before
    with one_thread():
        assert set(blas_threads()) == {1}
    assert threads() == before


# Forks


@contextmanager
def elsewhere(context):
    """A context that another thread is in."""
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with context:
            inside.set()
            leave.wait(PATIENCE)

    thread = threading.Thread(target=stay)
    thread.start()
    assert inside.wait(PATIENCE)
    try:
        yield leave
    finally:
        leave.set()
        thread.join()


def in_child(check):
    """Fork; the exit status of a child that does what it is told, None if it hangs."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if check() else 2
        finally:
            os._exit(status)
    found: list[int] = []

    def ended():
        if not found:
            done, status = os.waitpid(pid, os.WNOHANG)
            found.extend([os.waitstatus_to_exitcode(status)] if done else [])
        return bool(found)

    if not eventually(ended):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return None
    return found[0]


@needs_fork
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_child_of_a_process_that_fits_has_no_limit(several_blas_threads):
    """The fit goes on in the parent alone, and a fit of the child's own ends as any other."""
    before = threads()

    def check():
        found = [threads() == before]
        with one_thread():
            found.append(set(blas_threads()) == {1})
        found.append(threads() == before)
        # Other threads of the child can set the limit too.
        thread = threading.Thread(target=lambda: found.append(limited_here()))
        thread.start()
        thread.join()
        return found == [True] * 4 and threads() == before

    def limited_here():
        with one_thread():
            return set(blas_threads()) == {1}

    with elsewhere(one_thread()):
        assert in_child(check) == 0
        assert set(blas_threads()) == {1}
    assert eventually(lambda: threads() == before)


@needs_fork
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_fork_within_the_limit_ends_well_in_both_processes(several_blas_threads):
    before = threads()

    def check():
        # The fork is in the middle of a fit, whose end comes in the child too.
        context.__exit__(None, None, None)
        return [n for api, n in before if api == "blas"] == blas_threads()

    context = one_thread()
    context.__enter__()
    try:
        assert in_child(check) == 0
        assert set(blas_threads()) == {1}
    finally:
        context.__exit__(None, None, None)
    assert threads() == before


@needs_fork
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("lock", ["limit", "kernels", "property"])
def test_fork_while_another_thread_holds_a_lock(lock):
    """The child can do what the lock protects, whatever the other thread was about to do."""
    sequences = Sequences(np.zeros(3), np.array([0, 1, 3]))
    held = {
        "limit": thread_limits._BLAS_LIMIT._lock,
        "kernels": kernels.LOADING,
        # From Python 3.12 on these locks do not exist.
        "property": getattr(vars(Sequences)["n_observations"], "lock", nullcontext()),
    }[lock]

    def check():
        if lock == "limit":
            with one_thread():
                return True
        if lock == "property":
            return sequences.n_observations == 3
        return kernels.load("gaussian_mixture").FULL is not None

    with elsewhere(held) as leave:
        # A fork may wait for the other thread to leave, but it need not.
        timer = threading.Timer(0.5, leave.set)
        timer.start()
        assert in_child(check) == 0
        timer.join()


@needs_fork
def test_fork_while_another_thread_imports_and_compiles(tmp_path):
    """In a process that has not imported numba, which takes longer than any fork."""
    script = """
import os, sys, threading, time
from sklearn_anneal import kernels

def fit():
    kernels.load("normal").normal.compile("float32")

thread = threading.Thread(target=fit)
thread.start()
while "numba.core" not in sys.modules:
    time.sleep(0.001)
pid = os.fork()
if pid == 0:
    fit()
    os._exit(0)
_, status = os.waitpid(pid, 0)
thread.join()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script], start_new_session=True
    )
    try:
        assert process.wait(5 * PATIENCE) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


# Interrupts of restarts


PASSES = 2000


def test_interrupt_ends_the_restarts_of_other_threads_after_their_current_step():
    """The main thread is one of the workers, and the only one that an interrupt reaches."""
    begun, passes = threading.Event(), []

    def one_pass(i):
        passes.append(i)
        time.sleep(0.01)

    def restart(i):
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(PATIENCE)
            raise KeyboardInterrupt
        for _ in SEQUENTIAL.imap(one_pass, ((i,) for _ in range(PASSES))):
            begun.set()

    with pytest.raises(KeyboardInterrupt), Workers(2) as workers:
        workers.map(restart, [(i,) for i in range(4)])
    assert 1 <= len(passes) < PASSES
    assert len(set(passes)) == 1, "a restart began after the interrupt"


def test_error_of_a_restart_ends_the_others():
    begun, passes = threading.Event(), []

    def restart(i):
        if i == 0:
            assert begun.wait(PATIENCE)
            raise ValueError("the first restart")
        begun.set()
        for _ in SEQUENTIAL.imap(lambda i: time.sleep(0.01), ((i,) for _ in range(PASSES))):
            passes.append(i)

    with pytest.raises(ValueError, match="the first restart"), Workers(3) as workers:
        workers.map(restart, [(i,) for i in range(2)])
    assert len(passes) < PASSES


def test_interrupt_ends_a_pass_of_restarts_in_lockstep_after_its_current_step(monkeypatch):
    """It need not wait for a pass over data that take long to read."""
    begun, passes = threading.Event(), []

    def one_pass(i):
        passes.append(i)
        begun.set()
        time.sleep(0.01)

    def visit_all(jobs):
        return list(SEQUENTIAL.imap(one_pass, ((i,) for i in range(PASSES))))

    def interrupted_wait(futures):
        assert begun.wait(PATIENCE)
        raise KeyboardInterrupt

    monkeypatch.setattr(lockstep, "wait", interrupted_wait)
    together = lockstep.Lockstep(3, visit_all)
    with pytest.raises(KeyboardInterrupt):
        together.map(together.pass_with, [(i,) for i in range(3)])
    assert 1 <= len(passes) < PASSES


def test_tasks_after_an_interrupt_are_not_ended():
    with Workers(2) as workers:
        with pytest.raises(KeyboardInterrupt):
            for _ in workers.imap(abs, ((i,) for i in range(20))):
                raise KeyboardInterrupt
        assert workers.map(abs, [(-i,) for i in range(20)]) == list(range(20))
    assert list(SEQUENTIAL.imap(abs, [(-1,)])) == [1]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(
    "cases",
    [
        [("threading", 1), ("loky", 2)],
        *(
            pytest.param([case], marks=pytest.mark.exhaustive)
            for case in product(("threading", "loky", "multiprocessing"), (1, 2))
        ),
    ],
    ids=str,
)
def test_process_whose_restarts_are_interrupted_ends(cases):
    """One that would run for hours otherwise; a second signal does not make it hang.

    Each case is a backend with its number of signals. One process has all cases, one after another.
    """
    script = f"""
import signal
import joblib, numpy as np
from sklearn_anneal import AnnealedBayesianGaussianMixture
import sklearn_anneal.estimators._fitting as base

base.WORTH_THREADS.update({{True: 0, False: 0}})
X = np.random.default_rng(0).normal(size=(2000, 5))
mixture = AnnealedBayesianGaussianMixture(
    n_components=10, n_init=4, n_jobs=2, max_iter=10**7, tol=0, random_state=0
)
# A shell starts what runs in its background with interrupts ignored, and tests may run there.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Compiled code is loaded by callbacks from C, in which Python would lose an interrupt.
AnnealedBayesianGaussianMixture(n_components=2, max_iter=1).fit(X[:50])
original = base.Workers.map

def mapped(*arguments, **keywords):
    print("begun", flush=True)
    return original(*arguments, **keywords)

base.Workers.map = mapped
for backend in {[backend for backend, _ in cases]!r}:
    with joblib.parallel_config(backend):
        try:
            mixture.fit(X)
        except KeyboardInterrupt as interrupt:
            caught = interrupt
        finally:
            print("ended", flush=True)
raise caught
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    # What hangs is killed, after which there is nothing to read.
    timer = threading.Timer(5 * PATIENCE, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    try:
        for _, n_signals in cases:
            assert process.stdout.readline() == "begun\n"
            time.sleep(0.5)
            for _ in range(n_signals):
                # A terminal interrupts all processes of its group.
                os.killpg(process.pid, signal.SIGINT)
                time.sleep(0.05)
            assert process.stdout.readline() == "ended\n"
        assert process.communicate()[0] == ""
        assert process.returncode not in (0, -signal.SIGKILL)
    finally:
        timer.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


# Threads that cannot be started, and interrupts while they are


STARTS = """
import faulthandler, sys, threading
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, product

import numpy as np
from sklearn_anneal import (
    AnnealedBayesianGaussianMixture, AnnealedLatentDirichletAllocation, Shards
)
from sklearn_anneal.annealing import DeterministicAnnealing
import sklearn_anneal.estimators._fitting as base
from sklearn_anneal.parallel.threads import Threads

faulthandler.dump_traceback_later(PATIENCE, exit=True)
base.WORTH_THREADS.update({True: 0, False: 0})
rng = np.random.default_rng(0)
X = rng.normal(size=(3072, 2))
counts = rng.poisson(0.3, size=(100, 30))

def mixture(**params):
    method = DeterministicAnnealing(initial_temperature=2.0, n_passes=1)
    settings = {"annealing": method, "max_iter": 1, "tol": 0.0, "effort": 0, "random_state": 0}
    return AnnealedBayesianGaussianMixture(n_components=2, **settings, **params)

def topics(**params):
    return AnnealedLatentDirichletAllocation(
        3, annealing="none", max_iter=2, random_state=0, batch_size=50, **params
    )

parts = [X[:1536], X[1536:]]
files = [lambda: parts[0], lambda: parts[1]]
CASES = {
    "restarts of parts": lambda: mixture(n_init=3).fit(Shards(parts)),
    "race of parts": lambda: mixture(n_init=3, restarts="race").fit(Shards(parts)),
    "restarts of parts in threads": lambda: mixture(n_init=3, n_jobs=3).fit(Shards(parts)),
    "parts that are read": lambda: mixture().fit(Shards(files)),
    "restarts of parts that are read": lambda: mixture(n_init=2).fit(Shards(files)),
    "restarts": lambda: mixture(n_init=3, n_jobs=3).fit(X),
    "chunks": lambda: mixture(n_jobs=3).fit(X),
    "minibatches": lambda: mixture(n_jobs=2, batch_size=1536).fit(X),
    "kernels": lambda: topics(n_jobs=2).fit(counts),
}

class Interruption(BaseException):
    pass

PLACES = {
    "thread": (threading.Thread, "start"),
    "pool": (ThreadPoolExecutor, "submit"),
    "threads": (Threads, "submit"),
}

def failing(n, place, how):
    # The n-th call fails, and so do all that follow an error: the system has no threads left.
    owner, name = PLACES[place]
    original, calls, lock = getattr(owner, name), [0], threading.Lock()

    def call(self, *arguments, **keywords):
        # Several threads make calls, so that each has to keep its own number.
        with lock:
            calls[0] += 1
            number = calls[0]
        if how == "error" and number >= n:
            raise RuntimeError("can't start new thread")
        if how == "interrupt before" and number == n:
            raise Interruption
        result = original(self, *arguments, **keywords)
        if how == "interrupt after" and number == n:
            raise Interruption
        return result

    setattr(owner, name, call)
    return calls, lambda: setattr(owner, name, original)

ways = [*zip(sys.argv[2::2], sys.argv[3::2])]
kinds = CASES.items()
tried = zip(cycle(ways), kinds) if sys.argv[1] == "in turn" else product(ways, kinds)
for (place, how), (case, run) in tried:
    expected, before = run().lower_bound_, set(threading.enumerate())
    for n in range(1, 40) if sys.argv[1] == "all" else (1, 2, 3, 6, 12, 24):
        calls, restore = failing(n, place, how)
        caught = None
        try:
            found = run().lower_bound_
        except (RuntimeError, Interruption) as error:
            caught = error
        finally:
            restore()
        where = f"{case}, call {n} of {place}, {how}: {caught!r}"
        if how == "error":
            if caught is None:
                assert found == expected, where
            else:
                assert isinstance(caught, RuntimeError), where
                assert place != "thread" or "Lower n_" in str(caught), where
        else:
            assert (calls[0] >= n) == isinstance(caught, Interruption), where
        # Nothing may keep the threads but threads themselves.
        left = set(threading.enumerate()) - before
        for thread in left:
            thread.join(PATIENCE)
            assert not thread.is_alive(), f"{where}: {thread} is left"
        if calls[0] < n:
            break
    assert n > 1 or place != "thread", case
    assert run().lower_bound_ == expected, case
faulthandler.cancel_dump_traceback_later()
print("ended", flush=True)
"""


PLACES = ("thread", "pool", "threads")
HOW = ("error", "interrupt before", "interrupt after")


@pytest.mark.parametrize(
    ("tried", "ways"),
    [
        ("in turn", [*zip(PLACES, HOW, strict=True)]),
        pytest.param("all", [*product(PLACES, HOW)], marks=pytest.mark.exhaustive),
    ],
    ids=["in turn", "all"],
)
def test_threads_that_cannot_be_started_let_nothing_hang(tried, ways):
    """A call that starts a thread, or that gives one work, fails, in every kind of fit.

    It is each of the first three and others after these, or any. The kinds of fit have one of the
    ways in turn, or all of them.

    The fit ends, with the error or with its result, no thread is left, and the next fit is as any
    other. The process ends too.
    """
    script = STARTS.replace("PATIENCE", str(15 * PATIENCE))
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, tried, *chain.from_iterable(ways)],
        capture_output=True,
        text=True,
        timeout=16 * PATIENCE,
    )
    assert process.stdout == "ended\n", process.stderr[-4000:]
    assert process.returncode == 0
