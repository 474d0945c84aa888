"""Fits on a small cluster: seconds and bytes per pass, tasks per pass, and what a task costs."""

from __future__ import annotations

import pickle
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from sklearn_anneal import Shards
from sklearn_anneal.data.parts import Part, Request
from sklearn_anneal.data.units import Units
from sklearn_anneal.parallel.workers import SEQUENTIAL, Workers

from ..common.measuring import progress, reached
from ..common.passes import PassClock
from ..common.peers import is_there
from ..common.report import Page
from .data import drawn
from .workload import MODELS, NAMES, Size

try:
    import distributed
except ImportError:
    distributed = None

N_WORKERS = 2
# Bytes per pass, both ways, are at most this multiple of the parameters' size × workers.
MULTIPLE = 4.0
PASSES = 8
PARAMETERS: dict[str, dict[str, Any]] = {"documents": {"learning_method": "batch"}}


@contextmanager
def local_cluster() -> Iterator[Any]:
    """Start workers on this machine, each a process with one thread, and yield a client."""
    with (
        distributed.LocalCluster(
            n_workers=N_WORKERS,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            memory_limit=0,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


# Bytes


class Traffic(NamedTuple):
    """Bytes that have gone over sockets.

    Attributes
    ----------
    submitted, gathered : int
        From the process of the fit to the scheduler, and back.
    to_workers, from_workers : int
        From the scheduler to workers, and back.
    """

    submitted: int
    gathered: int
    to_workers: int
    from_workers: int


class Sockets:
    """All connections of this process, which has the scheduler too, with their counters.

    The streams of Tornado count what is written; what is read is counted where Dask reads it.
    """

    def __init__(self) -> None:
        self._streams: list[tuple[Any, str, str]] = []
        self._read: dict[int, int] = defaultdict(int)

    @contextmanager
    def watched(self) -> Iterator[Sockets]:
        """Note all connections that are made in a ``with`` block."""
        from distributed.comm import tcp

        init, read = tcp.TCP.__init__, tcp.read_bytes_rw

        def noted(comm: Any, stream: Any, local: str, peer: str, *args: Any, **how: Any) -> None:
            self._streams.append((stream, local, peer))
            init(comm, stream, local, peer, *args, **how)

        async def counted(stream: Any, n: int) -> Any:
            self._read[id(stream)] += n
            return await read(stream, n)

        with patch.object(tcp.TCP, "__init__", noted), patch.object(tcp, "read_bytes_rw", counted):
            yield self

    def traffic(self, scheduler: str) -> Traffic:
        """Return the bytes so far, given the address of the scheduler."""
        of_client = {local for _, local, peer in self._streams if peer == scheduler}
        found = np.zeros(4, dtype=int)
        for stream, local, peer in self._streams:
            counts = stream._total_write_index, self._read[id(stream)]
            if peer == scheduler:
                found[:2] += counts
            elif peer not in of_client or local != scheduler:
                found[2:] += counts
        return Traffic(*found.tolist())


class Pickled:
    """The pickled sizes of requests and of their results, summed over groups of parts.

    Parameters
    ----------
    place : type
        The class of the places whose messages are counted.

    Attributes
    ----------
    out, back, calls : int
        Bytes that were sent and that came back, and the number of requests.
    """

    def __init__(self, place: type) -> None:
        self._place = place
        self.out = self.back = self.calls = 0

    @property
    def totals(self) -> tuple[int, int, int]:
        return self.out, self.back, self.calls

    @contextmanager
    def counted(self) -> Iterator[Pickled]:
        """Count in a ``with`` block."""
        call, get = self._place.call, self._place.get

        def counted_call(place: Any, request: Any, *args: Any) -> Any:
            self.out += len(pickle.dumps(request, protocol=5))
            self.calls += 1
            return call(place, request, *args)

        def counted_get(place: Any, handles: Any) -> Any:
            results = get(place, handles)
            self.back += sum(len(pickle.dumps(result, protocol=5)) for result in results)
            return results

        with (
            patch.object(self._place, "call", counted_call),
            patch.object(self._place, "get", counted_get),
        ):
            yield self


def of_a_pass(totals: list[Any]) -> np.ndarray:
    """Medians of the differences of totals after each pass, without the last pass."""
    return np.median(np.diff(np.array(totals, dtype=float), axis=0)[:-1], axis=0)


def _kilobytes(n: float) -> str:
    return f"{n / 1e3:,.1f}"


def _cost_rows(client: Any, sockets: Sockets, family: str, size: Size) -> list[list[str]]:
    from sklearn_anneal.cluster.dask_workers import OnDask

    rows, first = [], 0.0
    passes = 3 if size.quick else PASSES
    for n_parts in (size.on_cluster_parts * 2**i for i in range(3)):
        progress(f"cluster, {family}, {n_parts} parts")
        parts = Shards(drawn(family, n_parts, size.on_cluster[family]), client=client)
        model = MODELS[family](max_iter=passes, **PARAMETERS.get(family, {}))
        moved: list[Traffic] = []
        pickled: list[tuple[int, ...]] = []
        with Pickled(OnDask).counted() as count:
            clock = PassClock(
                lambda: moved.append(sockets.traffic(client.scheduler.address)),
                lambda count=count: pickled.append(count.totals),  # type: ignore[misc]
            )
            with clock:
                model.fit(parts)
        n_bytes = clock.parameter_bytes
        out, back, calls = of_a_pass(pickled)
        over = of_a_pass(moved)
        first = first or float(over[2:].sum())
        multiple = over[2:].sum() / (n_bytes * N_WORKERS)
        row = [NAMES[family], f"{n_parts * size.on_cluster[family]:,}", str(n_parts)]
        row.append(f"{calls / N_WORKERS:g}")
        row += [f"{1e3 * clock.per_pass(clock.wall):.1f}", _kilobytes(n_bytes)]
        row += [_kilobytes(out), _kilobytes(back), *map(_kilobytes, over)]
        row += [f"{over[2:].sum() / first:.3f}", f"{multiple:.1f}"]
        rows.append([*row, reached(multiple <= MULTIPLE)])
    return rows


def measure_cluster(size: Size) -> list[str]:
    """Seconds and bytes per pass while the data grow, and tasks per pass while passes go by."""
    page = Page()
    page.section(
        "Seconds and bytes per pass on a cluster",
        f"`fit(Shards(parts, client=client))` without annealing on a `LocalCluster` of {N_WORKERS} "
        "worker processes of one thread each, while the number of parts doubles and doubles again. "
        "Workers draw their parts. Figures are medians over the passes of a fit but the last. "
        "Seconds are wall time, and depend on what else the machine does. *Visits*: "
        "how often the data are visited in a pass. *Parameters*: the "
        "natural parameters of the model. *Pickled*: what goes out, and what comes back, as "
        "pickles, summed over the workers. *Sockets*: what the counters of the connections say, "
        "from the process of the fit to the scheduler and back, and between the scheduler and the "
        "workers, with everything else that Dask sends meanwhile. kB are 1,000 bytes. *Against "
        "fewest parts*: bytes between scheduler and workers, both ways, over those of the first "
        "line. *Multiple*: the same bytes over the parameters' size × workers; the target is at "
        f"most {MULTIPLE:g}.",
    )
    if not is_there("distributed", distributed):
        page.lines += ["Left out: Dask is not installed.", ""]
        return page.lines
    sockets = Sockets()
    with sockets.watched(), local_cluster() as client:
        rows = []
        for family in size.on_cluster:
            rows += _cost_rows(client, sockets, family, size)
        header = ["fit", "N", "parts", "visits", "ms per pass", "parameters, kB", "pickled out, kB"]
        header += ["pickled back, kB", "fit to scheduler, kB", "scheduler to fit, kB"]
        header += ["to workers, kB", "from workers, kB", "against fewest parts", "multiple"]
        page.table([*header, f"≤ {MULTIPLE:g}"], rows)
        page.lines += [
            "The parameters go out with what the visit computes from them, and sums of the size of "
            "the parameters come back, once in each visit; a fit with two visits in a pass does "
            "this twice. What the sockets carry beyond pickles are requests, heartbeats, which "
            "come by the second and not by the pass, and the names of the parts that a task "
            "visits.",
            "",
        ]
        _tasks(page, client, size)
        _overhead(page, client, size)
    return page.lines


# Tasks


def _tasks(page: Page, client: Any, size: Size) -> None:
    from distributed import SchedulerPlugin

    class Counter(SchedulerPlugin):
        """Counts the tasks that are done."""

        n = 0

        def transition(self, key: Any, start: str, finish: str, *args: Any, **how: Any) -> None:
            self.n += finish == "memory"

    n = size.many_passes
    page.section(
        "Tasks per pass",
        f"Tasks that are done in each of {n} passes of a Gaussian mixture over "
        f"{2 * size.on_cluster_parts} parts, counted by a plugin of the scheduler; and the number "
        "of tasks that the scheduler knows after each pass, of which one for each part holds its "
        "data.",
    )
    progress("cluster, tasks")
    scheduler, counter = client.cluster.scheduler, Counter()
    scheduler.add_plugin(counter, name="counter")
    done, known = [0], []
    clock = PassClock(
        lambda: done.append(counter.n),
        lambda: known.append(len(scheduler.tasks)),
    )
    parts = drawn("rows", 2 * size.on_cluster_parts, max(size.on_cluster["rows"] // 50, 100))
    with clock:
        MODELS["rows"](max_iter=n).fit(Shards(parts, client=client))
    scheduler.remove_plugin("counter")
    # The first pass has what was sent before it; the last also computes the final bound.
    per_pass, known = np.diff(done)[1:-1], known[1:-1]
    same = np.ptp(per_pass) == 0
    rows = [
        [name, *map(str, (values[0], values[-1], min(values), max(values)))]
        for name, values in (("tasks done", per_pass.tolist()), ("tasks known", known))
    ]
    page.table(["", "second pass", "last pass", "fewest", "most"], rows)
    page.lines += [f"A constant number of tasks per pass: {reached(bool(same))}.", ""]


@dataclass(frozen=True)
class Nothing(Request):
    """Work that takes no time: returns one number for each part."""

    reads = False

    def at(self, part: Part, workers: Workers) -> int:
        return 1


@dataclass(frozen=True)
class Empty:
    """The function that loads a part without data."""

    index: int

    inputs = (None, None, None)
    lazy = (None, None, None)

    def without_data(self) -> Empty:
        return self

    def computed(self, X: Any, y: Any, weights: Any) -> Empty:
        return self

    def __call__(self) -> Units:
        raise AssertionError("nobody asks for the data points")


def empty_place(client: Any, n_parts: int) -> Any:
    """Return a place with parts that have no data."""
    from sklearn_anneal.cluster.dask_workers import OnDask

    place = OnDask(client)
    place.put([Empty(i) for i in range(n_parts)])  # type: ignore[misc]
    return place


def seconds(run: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Median wall time of a call, and median processor time of this process."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter(), time.process_time()
        run()
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    wall, processor = np.median(times, axis=0).tolist()
    return wall, processor


def grouped(place: Any, request: Request, groups: list[list[int]]) -> Callable[[], Any]:
    """Return a function that sends a request to groups of parts and waits for all results."""
    return lambda: place.get([place.call(request, group, SEQUENTIAL) for group in groups])


def _overhead(page: Page, client: Any, size: Size) -> None:
    page.section(
        "What a task costs",
        "Wall time of a visit without any work, on the same cluster: all parts as one task, as "
        "one task per worker (which is what fits send), and as one task per part; "
        f"medians of {size.repeats} calls. *Per task*: the last over the number of "
        "parts, as wall time, and as processor time of the process with the client and the "
        "scheduler, which does not depend on what else the machine does.",
    )
    rows = []
    for n in size.groups:
        progress(f"cluster, {n} parts without work")
        place = empty_place(client, n)
        every = list(range(n))
        times = [
            seconds(grouped(place, Nothing(), groups), size.repeats)
            for groups in ([every], place.groups(), [[i] for i in every])
        ]
        place.close()
        row = [str(n), *(f"{1e3 * wall:.1f}" for wall, _ in times)]
        rows.append([*row, *(f"{1e3 * t / n:.2f}" for t in times[-1])])
    header = ["parts", "one task, ms", f"{N_WORKERS} tasks, ms", "a task per part, ms"]
    page.table([*header, "per task, ms", "per task, processor ms"], rows)
