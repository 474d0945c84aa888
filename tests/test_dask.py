"""Data in parts on a Dask cluster of processes: the same bits as in one process, come what may."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import warnings
from contextlib import contextmanager
from functools import partial
from itertools import cycle, repeat
from pathlib import Path

import numpy as np
import pytest
from designs import each_once
from harness import (
    combinations,
    context_of,
    largest_difference,
    make_threads_worthwhile,
    quick,
)
from joblib import parallel_config
from scipy import sparse
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples
from test_parallel import Tracked, assert_same, make_mixture, read_common

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    Shards,
)
from sklearn_anneal.data import parted_units
from sklearn_anneal.data.part_visits import VisitAll
from sklearn_anneal.parallel.workers import Workers

distributed = pytest.importorskip("distributed")
get_mp_context = pytest.importorskip("distributed.utils").get_mp_context
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
cluster = pytest.importorskip("sklearn_anneal.cluster.dask_workers")

PARTS_AND_WORKERS = [(n, w) for n in (1, 5, 16) for w in (1, 2)]


@pytest.fixture(scope="module", autouse=True)
def quick_to_start():
    """Where there are forks, workers are forks of a process that has imported what they need.

    It has no cluster and no threads of its own. The process of the tests, which has, is not forked.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        yield
        return
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(["distributed", __name__])
        yield


# Tests count how often a loss costs something, and are patient where the machine is busy. Dask
# would otherwise let a worker steal a visit from one that is late, with copies of its parts, and
# what the parts have kept until then would be old at the next visit.
SETTINGS = {
    "distributed.scheduler.work-stealing": False,
    "distributed.comm.timeouts.connect": "300s",
    "distributed.comm.timeouts.tcp": "300s",
}


@contextmanager
def of_cluster(n_workers=2, processes=True):
    """A client of workers with one thread each."""
    with (
        dask.config.set(SETTINGS),
        distributed.LocalCluster(
            n_workers, threads_per_worker=1, processes=processes, dashboard_address=":0"
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    with of_cluster() as client:
        yield client


def in_this_process():
    """A client of a cluster whose only worker is a thread."""
    return of_cluster(1, processes=False)


@pytest.fixture
def mortal(request):
    """A client of two workers that a test may kill.

    A worker that takes the place of a killed one does not always come up on a busy machine.
    Exhaustive tests have workers of their own therefore, and the last test of all has the usual
    ones.
    """
    if request.node.get_closest_marker("exhaustive") is None:
        yield request.getfixturevalue("client")
        return
    with of_cluster() as client:
        yield client


@pytest.fixture
def workers(monkeypatch):
    """A function that lets fits use the first few workers only."""

    def use(n):
        every = cluster.OnDask._addresses
        monkeypatch.setattr(cluster.OnDask, "_addresses", lambda self: every(self)[:n])
        # Other numbers of workers would be taken for other workers, which are compared anew.
        monkeypatch.setattr(cluster.OnDask, "_check", lambda self: None)

    return use


def cut(X, n):
    """X in n parts, of which the second has nothing if there are several."""
    rows = _num_samples(X)
    edges = np.linspace(0, rows, n).astype(int) if n > 1 else np.array([0, rows])
    if n > 1:
        edges = np.insert(edges, 1, edges[1])
    return [_safe_indexing(X, np.arange(a, b)) for a, b in zip(edges, edges[1:], strict=False)]


def same(one, other):
    """Whether two fits are equal, bit for bit."""
    q, p = context_of(one).q, context_of(other).q
    np.testing.assert_array_equal(one.lower_bounds_, other.lower_bounds_)
    assert one.lower_bound_ == other.lower_bound_
    return largest_difference(q, p) == 0


def clusters(rng, n=240):
    centers = np.array([[-5.0, 0, 0], [0, 5, 0], [5, 0, 5]])
    return centers[rng.integers(3, size=n)] + rng.normal(size=(n, 3))


def documents(rng, n=90, n_words=40):
    topics = rng.dirichlet(np.full(n_words, 0.1), size=4)
    shares = rng.dirichlet(np.full(4, 0.3), size=n)
    return sparse.csr_matrix(rng.poisson(60 * shares @ topics))


def mixture(**params):
    settings = {"n_components": 3, "annealing": quick("deterministic", 2), "max_iter": 5}
    return AnnealedBayesianGaussianMixture(
        **settings | {"tol": 0.0, "effort": 0, "random_state": 0} | params
    )


def counts_batch(**params):
    settings = {"n_components": 4, "max_iter": 24, "tol": 0.0, "random_state": 0}
    return AnnealedLatentDirichletAllocation(learning_method="batch", **settings | params)


def factors(**params):
    settings = {"n_components": 4, "max_iter": 16, "tol": 0.0, "effort": 0, "random_state": 0}
    return AnnealedGammaProcessNMF(**settings | params)


# The same bits


def first_forms():
    """Every model in its first form × the methods that work."""
    return [case for case in combinations() if case.values[1] is case.values[0].first]


def of_each_class_and_method():
    """Combinations in which every class and every method occurs, in few tests."""
    cases = [case for case in first_forms() if not case.id.startswith("geometric")]
    chosen = each_once(
        cases, lambda entry, *_: type(entry.make()), lambda entry, params, name: name
    )
    return [case for case in chosen if not case.marks]


def cells(pairs, numbers):
    """Combinations of :func:`combinations`, each with numbers of parts and workers."""
    return [
        pytest.param(*pair.values, *cell, id=f"{pair.id}-{cell[0]}-{cell[1]}")
        for pair, cell in zip(pairs, numbers, strict=False)
        if not pair.id.startswith("geometric")
    ]


def assert_a_cluster_finds_the_same_bits(entry, params, n_parts, client, rng):
    parts = cut(entry.data(rng, 60), n_parts)
    here = entry.make(**params).fit(Shards(parts))
    there = entry.make(**params).fit(Shards(parts, client=client))
    assert same(here, there)


@pytest.mark.parametrize(
    ("entry", "params", "name", "n_parts", "n_workers"),
    cells(of_each_class_and_method(), cycle(PARTS_AND_WORKERS)),
)
def test_a_cluster_finds_the_bits_of_one_process(
    entry, params, name, n_parts, n_workers, client, workers, rng
):
    """Every class and method; the numbers of parts and workers go through all pairs in turn.

    Passes are few, but local variables are kept in the last of them. Reheats, where there are any,
    follow plain fits alone.
    """
    workers(n_workers)
    params = {**params, "annealing": quick(name, 2), "max_iter": 3, "tol": 0.0}
    if name != "none" and "effort" in entry.make().get_params():
        params["effort"] = 0
    assert_a_cluster_finds_the_same_bits(entry, params, n_parts, client, rng)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("entry", "params", "name", "n_parts", "n_workers"),
    [cell for numbers in PARTS_AND_WORKERS for cell in cells(combinations(), repeat(numbers))],
)
def test_every_combination_on_a_cluster_finds_the_bits_of_one_process(
    entry, params, name, n_parts, n_workers, client, workers, rng
):
    """Every model and method with every pair of numbers."""
    workers(n_workers)
    params = {**params, "annealing": quick(name)}
    assert_a_cluster_finds_the_same_bits(entry, params, n_parts, client, rng)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_parts", "n_workers"),
    [
        pytest.param(1, 2, marks=pytest.mark.exhaustive),
        (5, 2),
        pytest.param(16, 2, marks=pytest.mark.exhaustive),
    ],
)
def test_weights_and_ways_of_fitting(n_parts, n_workers, client, workers, rng):
    workers(n_workers)
    ways = ({}, {"batch_size": 60}, {"n_init": 3}, {"annealing": quick("svi_plus", 2)})
    # What travels in single precision does so in all ways alike.
    for dtype, hows in ((np.float64, ways), (np.float32, ways[:1])):
        X = clusters(rng).astype(dtype)
        parts, weights = cut(X, n_parts), cut(rng.integers(0, 3, len(X)).astype(float), n_parts)
        for how in hows:
            params = {"max_iter": 3, **how}
            here = mixture(**params).fit(Shards(parts), sample_weight=weights)
            there = mixture(**params).fit(Shards(parts, client=client), sample_weight=weights)
            assert same(here, there)


def test_groups_and_their_order_make_no_difference(client, monkeypatch, rng):
    parts = cut(clusters(rng), 13)
    method = quick("stochastic", 2)
    expected = mixture(annealing=method).fit(Shards(parts))

    def shuffled(self):
        order = rng.permutation(self.n_parts)
        return [
            sorted(group.tolist())
            for group in np.array_split(order, rng.integers(1, 6))
            if len(group)
        ]

    monkeypatch.setattr(cluster.OnDask, "groups", shuffled)
    assert same(mixture(annealing=method).fit(Shards(parts, client=client)), expected)


def test_labels_and_covariates_are_read_where_their_parts_are(client, rng):
    X, parts = clusters(rng), 5
    y = np.where(rng.random(len(X)) < 0.2, (X[:, 0] > 2).astype(int), -1)
    given = {"annealing": "none", "max_iter": 3, "n_components": 1, "n_components_per_class": 2}
    beside = {"y": cut(y, parts), "covariates": cut(X[:, :1] + rng.normal(size=(len(X), 1)), parts)}
    here = mixture(**given).fit(Shards(cut(X, parts)), **beside)
    there = mixture(**given).fit(Shards(cut(X, parts), client=client), **beside)
    assert same(here, there)
    assert there.classes_.tolist() == [0, 1]


def test_covariates_can_be_a_collection(rng):
    X = clusters(rng)
    Z = X[:, :1] + rng.normal(size=(len(X), 1))
    lazy = [da.from_array(table, chunks=(100, -1)) for table in (X, Z)]
    given = {"annealing": "none", "max_iter": 3}
    parts = [[table[:100], table[100:200], table[200:]] for table in (X, Z)]
    here = mixture(**given).fit(Shards(parts[0]), covariates=parts[1])
    there = mixture(**given).fit(lazy[0], covariates=lazy[1])
    assert same(here, there)
    found = there.predict_proba(lazy[0], covariates=lazy[1])
    expected = here.predict_proba(X, covariates=Z)
    np.testing.assert_allclose(found.compute(scheduler="synchronous"), expected, rtol=1e-9)
    assert there.score(lazy[0], covariates=lazy[1]) == pytest.approx(here.score(X, covariates=Z))


# A client that ends


class Stopped(Exception):
    """What stands for the end of a client."""


@pytest.mark.slow
@pytest.mark.parametrize("at", [pytest.param(3, marks=pytest.mark.exhaustive), 10])
def test_a_fit_is_resumed_on_another_cluster(at, client, monkeypatch, tmp_path, rng):
    parts = cut(documents(rng), 5)
    how = {"annealing": "none", "max_iter": 12}
    expected = counts_batch(**how).fit(Shards(parts))
    n_sweeps = 0
    get = cluster.OnDask.get

    def failing(place, handles):
        nonlocal n_sweeps
        n_sweeps += "visitall" in handles[0][0].key
        if n_sweeps == at:
            raise Stopped
        return get(place, handles)

    with monkeypatch.context() as patch:
        patch.setattr(cluster.OnDask, "get", failing)
        with pytest.raises(Stopped):
            counts_batch(**how).fit(Shards(parts, client=client), checkpoint=tmp_path)
    with in_this_process() as other:
        found = counts_batch(**how).fit(Shards(parts, client=other), checkpoint=tmp_path)
    assert same(found, expected)


# What travels


class Traffic:
    """The bytes of the visits of a fit, out and back, and the tasks that the scheduler knows."""

    def __init__(self, monkeypatch, client):
        self.visits, self.n_tasks = [], []
        call, get = cluster.OnDask.call, cluster.OnDask.get

        def calling(place, request, indices, workers):
            if isinstance(request, VisitAll):
                self.visits.append(len(pickle.dumps(request)))
                count = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
                self.n_tasks.append(count)
            return call(place, request, indices, workers)

        def getting(place, handles):
            found = get(place, handles)
            if "visitall" in handles[0][0].key:
                self.visits.append(len(pickle.dumps(found)))
            return found

        monkeypatch.setattr(cluster.OnDask, "call", calling)
        monkeypatch.setattr(cluster.OnDask, "get", getting)


@pytest.mark.parametrize(
    ("make", "data", "n_globals"),
    [(mixture, clusters, 3 * (9 + 3 + 4)), (counts_batch, documents, 4 * 40)],
    ids=["mixture", "topics"],
)
def test_what_travels_does_not_grow_with_the_data(
    make, data, n_globals, client, workers, monkeypatch, rng
):
    workers(2)
    found = []
    for n in (100, 200):
        with monkeypatch.context() as patch:
            traffic = Traffic(patch, client)
            make(annealing="none", max_iter=4).fit(Shards(cut(data(rng, n), 6), client=client))
            found.append(traffic)
    one, two = (np.mean(traffic.visits) for traffic in found)
    assert two == pytest.approx(one, rel=0.05)
    # The visit and the statistics are as large as the parameters, up to a few tables; every visit
    # also has some kilobytes of settings.
    assert max(found[1].visits) < 8 * 8 * n_globals + 20_000


def test_the_scheduler_has_no_more_tasks_in_the_last_pass(client, workers, monkeypatch, rng):
    workers(2)
    traffic = Traffic(monkeypatch, client)
    counts_batch(annealing="none", max_iter=12).fit(
        Shards(cut(documents(rng, 40), 6), client=client)
    )
    assert len(traffic.n_tasks) >= 20
    # A task that was released may still be known for a moment.
    assert max(traffic.n_tasks[10:]) <= max(traffic.n_tasks[:10]) + 2 * 2


def only_on_workers(seed, client_pid):
    assert os.getpid() != client_pid, "the client has computed a part"
    return clusters(np.random.default_rng(seed), 60)


def test_no_part_is_computed_on_the_client(client):
    parts = [partial(only_on_workers, seed, os.getpid()) for seed in range(4)]
    est = mixture().fit(Shards(parts, client=client))
    assert np.isfinite(est.score(Shards(parts, client=client)))
    assert len(pickle.dumps(est)) < 60_000
    assert b"distributed" not in pickle.dumps(est)


# Collections of Dask


def test_arrays_of_dask_are_fitted_and_predicted_where_they_are(client, rng):
    X = clusters(rng)
    lazy = da.from_array(X, chunks=(50, 2))
    est = mixture().fit(lazy)
    parts = Shards([X[i : i + 50] for i in range(0, 240, 50)])
    assert same(est, mixture().fit(parts))
    assert est.score(lazy) == pytest.approx(est.score(X), rel=1e-12)
    for name in ("predict", "predict_proba", "score_samples"):
        found = getattr(est, name)(lazy)
        assert isinstance(found, da.Array)
        # The same rows together have the same bits; other rows beside them change last digits.
        of_blocks = np.concatenate(getattr(est, name)(parts).compute())
        np.testing.assert_array_equal(found.compute(), of_blocks)
        np.testing.assert_allclose(of_blocks, getattr(est, name)(X), rtol=1e-12, atol=1e-12)


def test_data_frames_of_dask(client, rng):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(clusters(rng), columns=list("abc"))
    lazy = dd.from_pandas(frame, npartitions=3)
    weights = dd.from_pandas(pd.Series(np.arange(240.0)), npartitions=3)
    est = mixture().fit(lazy, sample_weight=weights)
    assert est.feature_names_in_.tolist() == ["a", "b", "c"]
    assert est.score(frame) == pytest.approx(
        mixture().fit(frame, sample_weight=np.arange(240.0)).score(frame), rel=1e-6
    )
    np.testing.assert_array_equal(est.predict(lazy).compute(), est.predict(frame))


def test_blocks_and_partitions_without_rows(client, rng):
    """They fit, score and predict as parts without rows do, also with nullable columns."""
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X = clusters(rng)
    plain = mixture().fit(X)
    cut_off = da.from_array(X, chunks=((100, 0, 140), (3,)))
    counts = cut_off.astype(int).map_blocks(sparse.csr_matrix, dtype=int)
    factorization = factors(annealing="none", max_iter=2).fit(abs(X.astype(int)))
    frame = pd.DataFrame(X, columns=list("abc")).astype({"a": "Float64", "b": "float32"})
    lazy = dd.from_pandas(frame, npartitions=3)
    few = lazy.map_partitions(lambda rows: rows[rows.index < 100])
    of_few = mixture().fit(few)
    assert 0 in few.map_partitions(len).compute().tolist()
    for data, rows, est in ((cut_off, X, plain), (few, frame[:100], of_few)):
        assert np.isfinite(est.score(data))
        for name in ("predict", "predict_proba", "score_samples"):
            found, expected = getattr(est, name)(data), getattr(est, name)(rows)
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found.compute(), expected, rtol=1e-10, atol=1e-13)
    found = factorization.transform(abs(counts)).compute()
    np.testing.assert_allclose(found, factorization.transform(abs(X.astype(int))), rtol=1e-10)


def test_streams_update_where_the_part_is(client, rng):
    counts = documents(rng)
    parts = cut(counts, 4)
    how = {"n_components": 4, "total_samples": 90, "random_state": 0, "batch_size": 16}
    here, there = (AnnealedLatentDirichletAllocation(**how) for _ in range(2))
    for part in parts:
        if part.shape[0]:
            here.partial_fit(part)
    there.partial_fit(Shards(parts, client=client))
    assert same(here, there)


def test_other_forms_of_data(client, rng):
    sequences = [rng.normal(size=(n, 2)) + 4 * (n % 2) for n in rng.integers(5, 30, size=12)]
    parts = [sequences[:5], sequences[5:6], sequences[6:]]
    make = {"n_components": 2, "annealing": quick("deterministic", 2), "max_iter": 3}
    make |= {"effort": 0, "random_state": 0}
    one = AnnealedHMM(**make).fit(Shards(parts))
    assert same(AnnealedHMM(**make).fit(Shards(parts, client=client)), one)
    users = np.repeat(np.arange(40), 6)
    pairs = np.column_stack([users, rng.integers(0, 15, size=240)])
    pairs, where = np.unique(pairs, axis=0, return_index=True)
    y = rng.integers(1, 6, size=240).astype(float)[where]
    edges = np.searchsorted(pairs[:, 0], [0, 13, 30, 40])
    X, ys = ([a[i:j] for i, j in zip(edges, edges[1:], strict=False)] for a in (pairs, y))
    make |= {"input": "pairs", "n_items": 15}
    one = AnnealedPMF(**make).fit(Shards(X), ys)
    assert same(AnnealedPMF(**make).fit(Shards(X, client=client), ys), one)


# Restarts by joblib


def workers_of_a_task(n_jobs):
    with warnings.catch_warnings(), parallel_config("dask", n_jobs=-1):
        warnings.simplefilter("error")
        return [Workers(n_jobs, restarts=restarts).n_workers for restarts in (True, False)]


def test_restarts_of_joblib_go_to_a_cluster(client, monkeypatch, tmp_path, rng):
    """What they have in common goes to each of the two processes once, and chunks stay here."""
    make_threads_worthwhile(monkeypatch)
    X, path = rng.normal(size=(400, 3)), str(tmp_path / "log")
    with client.as_current(), parallel_config("dask"):
        with Workers(None, restarts=True) as two:
            assert two.n_workers == 2
            found = two.map(read_common, ((path, i) for i in range(10)), common=(Tracked(path),))
        restarts = make_mixture(n_init=4).fit(X)
        with pytest.warns(UserWarning, match="stay on this machine"):
            alone = make_mixture(n_jobs=2).fit(X)
        # The tasks of a search, whose estimators ask for no number of jobs, send nothing back.
        assert client.submit(workers_of_a_task, None).result(60) == [1, 1]
    assert found == [(True, i) for i in range(10)]
    log = Path(path).read_text(encoding="utf-8").split()
    assert 1 <= log.count("arrived") <= 2
    # Once by this process; the other times are to tell the size.
    assert log.count("sent") <= 3
    assert_same(restarts, make_mixture(n_init=4, n_jobs=1).fit(X))
    assert_same(alone, make_mixture(n_jobs=1).fit(X))


# Bad input


def failing():
    raise RuntimeError("the disk is gone")


def shrinking(X, marker):
    """All rows at the first reading, in whichever process, and half of them at later ones."""
    if marker.exists():
        return X[:30]
    marker.touch()
    return X


def test_errors_name_the_part(client, rng, tmp_path):
    X = clusters(rng, 60)
    for bad, words in (
        (X[:, :2], "Part 1: it has 2 columns, but others have 3"),
        (X.astype(np.float32), "Part 1: its dtype is float32.*Give Shards a dtype"),
        ("/nowhere/x.npy", "Part 1 .*x.npy.*cannot be read"),
        (failing, "Part 1 cannot be read: the disk is gone"),
        (
            partial(shrinking, X, tmp_path / "read"),
            "Part 1: it had 60 rows when .* but has 30 rows",
        ),
    ):
        est = mixture()
        with pytest.raises((ValueError, OSError), match=words):
            est.fit(Shards([X, bad, X], client=client))
        assert not hasattr(est, "lower_bound_")


def test_a_closed_client_is_refused(rng):
    with in_this_process() as client:
        client.close()
        with pytest.raises(ValueError, match="The Dask client is closed"):
            mixture().fit(Shards([clusters(rng)], client=client))


def test_workers_without_the_package_or_with_another_are_told_of(client, monkeypatch, rng):
    shards = Shards([clusters(rng)], client=client)
    run = type(client).run

    def without(self, function, *args, **kwargs):
        found = run(self, function, *args, **kwargs)
        return {at: function is not eval for at in found} if function is eval else found

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "_CHECKED", {})
        patch.setattr(type(client), "run", without)
        with pytest.raises(ValueError, match="The worker tcp.* has no sklearn_anneal"):
            mixture().fit(shards)

    def differing(self, function, *args, **kwargs):
        found = run(self, function, *args, **kwargs)
        if function is cluster.machine:
            found[min(found)]["version of numpy"] = "0.1"
        return found

    monkeypatch.setattr(cluster, "_CHECKED", {})
    monkeypatch.setattr(type(client), "run", differing)
    match = "Workers differ in their version of numpy.*has 0.1"
    with pytest.warns(UserWarning, match=match) as caught:
        mixture().fit(shards)
    assert [w.filename for w in caught if "Workers differ" in str(w.message)] == [__file__]


# Failures, at the end of the module because they kill workers


class Killer:
    """Kills a worker with parts while it makes a visit, at the n-th visit of a fit."""

    def __init__(self, monkeypatch, at):
        self.at, self.n_sweeps, self.n_again = at, 0, 0
        call = cluster.OnDask.call

        def counting(place, request, indices, workers):
            visiting = isinstance(request, VisitAll)
            again = visiting and any(job.replay for job in request.jobs)
            self.n_again += again
            victim = None
            if visiting and not again and indices[0] == 0:
                self.n_sweeps += 1
                if self.n_sweeps == self.at:
                    victim = place._where[0]
                    # Others may be about to take the place of one that was killed before.
                    pids = place._client.run(os.getpid, workers=[victim])
            handle = call(place, request, indices, workers)
            if victim is not None:
                os.kill(pids[victim], signal.SIGKILL)
            return handle

        monkeypatch.setattr(cluster.OnDask, "call", counting)


SHORT = {"max_iter": 12}
EXHAUSTIVE_FAILURES = {
    "schedule": (mixture, {"annealing": quick("deterministic"), **SHORT}, clusters, 3, False),
    "exploring": (counts_batch, {"annealing": "none"}, documents, 4, False),
    "kept-locals": (counts_batch, {"annealing": "none"}, documents, 20, True),
    "svi-plus": (mixture, {"annealing": quick("svi_plus"), **SHORT}, clusters, 3, False),
    "lockstep": (mixture, {"n_init": 3, **SHORT}, clusters, 5, False),
}
FAILURES = [
    *(
        pytest.param(*case, marks=pytest.mark.exhaustive, id=name)
        for name, case in EXHAUSTIVE_FAILURES.items()
    ),
    pytest.param(
        *(factors, {"annealing": "none", "n_init": 2}, documents, 26, True),
        id="kept-of-two-blocks-in-lockstep",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "params", "data", "at", "replays"), FAILURES)
def test_a_killed_worker_changes_no_bit(make, params, data, at, replays, mortal, monkeypatch, rng):
    monkeypatch.setattr(parted_units, "_VISITS_BETWEEN_COPIES", 3)
    parts = cut(data(rng), 6)
    expected = make(**params).fit(Shards(parts))
    killer = Killer(monkeypatch, at)
    found = make(**params).fit(Shards(parts, client=mortal))
    assert killer.n_sweeps > at
    assert same(found, expected)
    # Local variables that were lost are made anew once, and then kept again.
    assert (killer.n_again > 0) == replays
    assert killer.n_again <= 2
