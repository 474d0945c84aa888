"""A model of the cost of a pass, from measured figures, and a check of what it says of messages."""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import numpy as np

from sklearn_anneal import Shards
from sklearn_anneal.data.part_visits import VisitAll
from sklearn_anneal.data.parts import Here, Part, Request
from sklearn_anneal.parallel.workers import Workers

from ..common.measuring import progress, reached
from ..common.passes import PassClock
from ..common.peers import is_there
from ..common.report import Page
from .cluster import (
    N_WORKERS,
    Pickled,
    distributed,
    empty_place,
    grouped,
    local_cluster,
    of_a_pass,
    seconds,
)
from .data import N_ITEMS, N_WORDS, RATINGS_OF_USER, drawn
from .workload import MODELS, NAMES, Size

CORES, NETWORK, EFFICIENCY = 16, 10e9 / 8, 0.8
# The model should be wrong by at most this factor about messages.
WITHIN = 1.5
PASSES = 6
# Messages of more bytes together are sent no more than three times, and others six times.
_MUCH = 5e8
PARAMETERS: dict[str, dict[str, Any]] = {"documents": {"learning_method": "batch"}}
# The family → the name of what is counted, how many there are in the prediction, how many of
# them there are in a data point of a part, and how many data points are measured.
TARGETS: dict[str, tuple[str, float, int, int]] = {
    "documents": ("documents", 1e8, 1, 40_000),
    "rows": ("rows", 1e9, 1, 200_000),
    "ratings": ("ratings", 1e9, RATINGS_OF_USER, 10_000),
    "frames": ("frames", 1e9, 1, 200_000),
}


@dataclass(frozen=True)
class Inputs:
    """The properties of a fit in the model of cost. Times are seconds, sizes are bytes.

    Attributes
    ----------
    unit : float
        Processor time of one thread in a pass, per row, document, rating or frame.
    calls : float
        Visits per pass.
    out, back : float
        What goes to one worker in a visit, and what comes back.
    merge : float
        Processor time to add what two workers have sent.
    fixed : float
        Processor time of a pass over next to no data: tables, the update, the bound.
    """

    unit: float
    calls: float
    out: float
    back: float
    merge: float
    fixed: float


@dataclass(frozen=True)
class Link:
    """Costs of messages through Dask. Times are seconds.

    Attributes
    ----------
    start : float
        Time of a visit beside that of its tasks.
    task : float
        Time of a task without work.
    out, back : float
        Time per byte from the process of the fit to a worker of the same machine, and back, with
        pickling, the way through the scheduler, and unpickling.
    """

    start: float
    task: float
    out: float
    back: float

    def visit(self, n: int, out: float, back: float, network: float = np.inf) -> float:
        """Seconds of one visit to n workers, whose messages all pass the scheduler.

        A network adds the time that its bytes per second take.
        """
        own = out * self.out + back * self.back
        return self.start + n * (self.task + own + (out + back) / network)


# Measurements


@contextmanager
def _merges() -> Iterator[list[float]]:
    """Yield a list of the processor times in which results of two parts are added."""
    times: list[float] = []
    merge = VisitAll.merge

    def timed(request: Any, a: Any, b: Any) -> Any:
        start = time.process_time()
        try:
            return merge(request, a, b)
        finally:
            times.append(time.process_time() - start)

    with patch.object(VisitAll, "merge", timed):
        yield times


def inputs_of(family: str, size: Size) -> Inputs:
    """Measure a family in this process."""
    _, _, per_point, n = TARGETS[family]
    n = 300 if size.quick else n
    passes = 3 if size.quick else PASSES

    def timed(parts: list[Any]) -> tuple[float, PassClock, np.ndarray]:
        sizes: list[tuple[int, ...]] = []
        with Pickled(Here).counted() as count:
            clock = PassClock(lambda: sizes.append(count.totals))
            with clock:
                MODELS[family](max_iter=passes, **PARAMETERS.get(family, {})).fit(Shards(parts))
        return clock.per_pass(clock.processor), clock, of_a_pass(sizes)

    few = [part() for part in drawn(family, 2, 100)]
    timed(few)
    with _merges() as merges:
        fixed, _, (out, back, calls) = timed(few)
    many, _, _ = timed([drawn(family, 1, n)[0]()])
    return Inputs(
        unit=max(many - fixed, 0.0) / (n * per_point),
        calls=float(calls),
        out=float(out / calls),
        back=float(back / calls),
        merge=float(np.median(merges)),
        fixed=fixed,
    )


def _receive(port: int, n_bytes: int, repeats: int) -> None:
    """Receive messages, and answer each with one byte."""
    buffer = bytearray(1 << 20)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(repeats):
            left = n_bytes
            while left:
                left -= connection.recv_into(buffer, min(left, len(buffer)))
            connection.sendall(b"1")


def loopback(n_bytes: int, repeats: int) -> float:
    """Bytes per second from this process to another one: median."""
    times = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        arguments = server.getsockname()[1], n_bytes, repeats
        process = get_context("spawn").Process(target=_receive, args=arguments)
        process.start()
        connection, _ = server.accept()
        with connection:
            data = os.urandom(n_bytes)
            for _ in range(repeats):
                start = time.perf_counter()
                connection.sendall(data)
                connection.recv(1)
                times.append(time.perf_counter() - start)
        process.join()
    return n_bytes / float(np.median(times))


class Calibration:
    """Messages of one size in one direction, which are sent again and again between others.

    Parameters
    ----------
    client : distributed.Client
    size : Size
    """

    def __init__(self, client: Any, size: Size):
        self._client, self._repeats = client, min(size.repeats, 5)
        self._many, self._few, self._bytes = (4, 2, 100_000) if size.quick else (64, 16, 4_000_000)
        self._times: list[list[float]] = []

    def run(self) -> None:
        """Measure once more."""
        many, few, n_bytes = self._many, self._few, self._bytes
        cases = (1, 0, 0), (many, 0, 0), (few, 0, 0), (few, n_bytes, 0), (few, 0, n_bytes)
        self._times.append([sent(self._client, *case, self._repeats) for case in cases])

    def link(self, runs: slice = slice(None)) -> Link:
        """Return what messages cost: medians of what some runs have measured."""
        one, tasks, empty, out, back = np.median(self._times[runs], axis=0).tolist()
        task = max(tasks - one, 0.0) / (self._many - 1)
        per_byte = [max(t - empty, 0.0) / (self._few * self._bytes) for t in (out, back)]
        return Link(max(one - task, 0.0), task, *per_byte)


def _rates(size: Size) -> tuple[float, float, float]:
    """Bytes per second of pickling, of unpickling, and of the loopback."""
    n_bytes = 100_000 if size.quick else 10_000_000
    array = np.frombuffer(os.urandom(n_bytes), dtype=np.uint8).copy()
    pickled = pickle.dumps(array, protocol=5)
    dumps, _ = seconds(lambda: pickle.dumps(array, protocol=5), size.repeats)
    loads, _ = seconds(lambda: pickle.loads(pickled), size.repeats)
    return n_bytes / dumps, n_bytes / loads, loopback(n_bytes, size.repeats)


# Messages that are sent


@cache
def _noise(n_bytes: int) -> np.ndarray:
    return np.frombuffer(np.random.default_rng(0).bytes(n_bytes), dtype=np.uint8)


@dataclass(frozen=True)
class Message(Request):
    """Bytes that go to a worker, which sends others back."""

    payload: np.ndarray
    back: int
    reads = False

    def at(self, part: Part, workers: Workers) -> np.ndarray:
        return _noise(self.back)


def sent(client: Any, n: int, out: float, back: float, repeats: int) -> float:
    """Wall time of n messages and their answers, of the given numbers of bytes."""
    place = empty_place(client, n)
    request = Message(_noise(int(out)), int(back))
    if n * (out + back) > _MUCH:
        repeats = min(repeats, 2)
    wall, _ = seconds(grouped(place, request, [[i] for i in range(n)]), repeats)
    place.close()
    return wall


def _figure(value: float) -> str:
    """Three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def measure_cost(size: Size) -> list[str]:
    """Predicted seconds per pass of large fits, and a check of the time of their messages."""
    page = Page()
    page.section(
        "What a pass over much more data would cost",
        "A prediction, not a measurement: no fit of this size was made. Seconds per pass = N × "
        "(time per unit) / (machines × cores × efficiency) + visits × (time of a visit + machines "
        "× (time of a task + bytes out and back × their times per byte + bytes / network)) + "
        "visits × (machines − 1) × (time of a sum) + time of a pass over next to no data. Every "
        "machine is one worker, all messages pass the scheduler, which is on the machine of the "
        "fit, and nothing of all this is done at the same time. What is measured is measured on "
        "this machine and in this run: times per unit are processor time of one thread; times of "
        f"visits, tasks and bytes are wall time on a `LocalCluster` of {N_WORKERS} processes, the "
        "times per byte those of messages of 4 MB in one direction, sent between the messages of "
        "the last table.",
    )
    if not is_there("distributed", distributed):
        page.lines += ["Left out: Dask is not installed.", ""]
        return page.lines
    found = {}
    for family in TARGETS:
        progress(f"cost, {family}")
        found[family] = inputs_of(family, size)
    real = {}
    with local_cluster() as client:
        rates, calibration = _rates(size), Calibration(client, size)
        for family, inputs in found.items():
            for n in size.machines:
                progress(f"cost, {n} messages of {family}")
                calibration.run()
                arguments = inputs.out, inputs.back, min(size.repeats, 5)
                real[family, n] = sent(client, n, *arguments)
        calibration.run()
    link = calibration.link()
    checks = []
    for i, ((family, n), wall) in enumerate(real.items()):
        # The machine's speed changes within minutes: only what was measured before and after.
        near = calibration.link(slice(i, i + 2))
        checks.append(_check(family, found[family], near, link, n, wall))
    _given(page, found, link, rates, size)
    _predicted(page, found, link, size)
    page.lines += [
        "The time of the messages, checked: as many tasks as there would be machines, each with "
        "as many bytes as go out and come back in a visit, really sent through the scheduler to "
        f"the {N_WORKERS} workers on this machine; the model says the same without a network, by "
        "times per task and byte that were measured just before and after. Wall "
        f"time, medians of {min(size.repeats, 5)}, and of 2 if the messages have more than "
        f"{_MUCH / 1e9:g} GB together. The target is a ratio between {1 / WITHIN:.2f} and "
        f"{WITHIN:g}. *By the table above*: the same ratio with the times of the table of inputs, "
        "by which the prediction is made; they are medians over the whole run, during which other "
        "work on the machine came and went.",
        "",
    ]
    header = ["fit", "messages", "bytes out, each", "bytes back, each", "model, ms", "sent, ms"]
    page.table([*header, "model over sent", f"within {WITHIN:g} ×", "by the table above"], checks)
    page.lines += [
        "The scheduler has all messages of a visit in memory at once, which the model does not "
        "count. Every worker gets a message of its own, although all of a visit say the same.",
        "",
    ]
    return page.lines


def _check(family: str, inputs: Inputs, near: Link, link: Link, n: int, real: float) -> list[str]:
    model, of_run = (each.visit(n, inputs.out, inputs.back) for each in (near, link))
    row = [NAMES[family], str(n), f"{inputs.out:,.0f}", f"{inputs.back:,.0f}"]
    row += [f"{1e3 * model:,.1f}", f"{1e3 * real:,.1f}", f"{model / real:.2f}"]
    return [*row, reached(1 / WITHIN <= model / real <= WITHIN), f"{of_run / real:.2f}"]


def _given(
    page: Page, found: dict[str, Inputs], link: Link, rates: tuple[float, ...], size: Size
) -> None:
    rows = []
    for family, inputs in found.items():
        unit, _, per_point, n = TARGETS[family]
        n = 300 if size.quick else n
        rows += [
            [f"{NAMES[family]}: time per {unit[:-1]}", f"{_figure(1e9 * inputs.unit)} ns",
             f"measured, {n * per_point:,} {unit} in memory, less a pass over next to no data"],
            ["– visits per pass", f"{inputs.calls:g}", "measured (counted)"],
            ["– bytes out and back per worker and visit",
             f"{inputs.out:,.0f} and {inputs.back:,.0f}", "measured, pickles"],
            ["– time of a sum", f"{_figure(1e3 * inputs.merge)} ms", "measured, processor time"],
            ["– time of a pass over next to no data", f"{_figure(1e3 * inputs.fixed)} ms",
             "measured, two parts of 100 data points, processor time"],
        ]  # fmt: skip
    rows += [
        ["time of a visit beside its tasks", f"{_figure(1e3 * link.start)} ms", "measured"],
        ["time of a task", f"{_figure(1e3 * link.task)} ms", "measured, without work"],
        ["time per byte out and back",
         f"{_figure(1e9 * link.out)} and {_figure(1e9 * link.back)} ns", "measured, through Dask"],
        ["– of which pickling, unpickling",
         " and ".join(f"{_figure(1e9 / rate)} ns" for rate in rates[:2]), "measured, arrays"],
        ["– of which the loopback, on each of two ways", f"{_figure(1e9 / rates[2])} ns",
         "measured, plain sockets between two processes"],
        ["network", f"{NETWORK / 1e9:g} GB/s", "assumed: 10 Gbit/s, all of it used"],
        ["cores per machine", str(CORES), "assumed, each as fast as the one measured"],
        ["efficiency of the cores of a machine", f"{EFFICIENCY:g}", "assumed"],
        ["time to read data in a pass", "0 s", "assumed: parts stay in the workers' memory"],
        ["balance", "equal", "assumed: no worker waits for a slower one"],
        ["time of a task with many workers", "the same", "assumed"],
        ["words, items", f"{N_WORDS:,} and {N_ITEMS:,}", "chosen; bytes grow with them"],
    ]  # fmt: skip
    page.table(["input", "value", "where from"], rows)


def _predicted(page: Page, found: dict[str, Inputs], link: Link, size: Size) -> None:
    rows = []
    for family, inputs in found.items():
        unit, total, _, _ = TARGETS[family]
        for n in size.machines:
            work = total * inputs.unit / (n * CORES * EFFICIENCY)
            talk = inputs.calls * link.visit(n, inputs.out, inputs.back, NETWORK)
            rest = inputs.calls * (n - 1) * inputs.merge + inputs.fixed
            row = [NAMES[family], f"{total:.0e} {unit}".replace("e+0", "e"), str(n)]
            row += [_figure(seconds) for seconds in (work, talk, rest, work + talk + rest)]
            rows.append([*row, f"{work / (work + talk + rest):.0%}"])
    header = ["fit", "N", "machines", "work, s", "messages, s", "sums and update, s"]
    page.table([*header, "s per pass, predicted", "share of work"], rows)
