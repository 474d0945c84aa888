"""Tests of natural parameters of which an update touches few columns, and of fits that use them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from cases_latent_dirichlet import draw_corpus, small
from harness import assert_identical, context_of, quick
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from test_checkpoints import interrupted

from sklearn_anneal.families import (
    Tempering,
    mix,
    posterior,
    settled,
)
from sklearn_anneal.models.topics import lazy_columns, tables
from sklearn_anneal.models.topics.lazy_columns import LazyColumns, SparseColumns, SparsePosterior
from sklearn_anneal.parallel.workers import Workers

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
K, V = 3, 40
METHODS = ["none", "deterministic", "stochastic", "tempering", "local_tempering", "svi_plus",
           "structured", "proximity"]  # fmt: skip


def sparse(rng, n=6):
    columns = np.sort(rng.choice(V, n, replace=False)).astype(np.int32)
    return SparseColumns(columns, rng.gamma(1.0, size=(n, K)), V)


@pytest.fixture(name="prior", params=["one row", "a row per topic"])
def one_prior(request, rng):
    rows = 1 if request.param == "one row" else K
    return {"x": rng.gamma(1.0, size=(rows, V))}


BASE = {"x": np.ones(())}


# The representations


@pytest.mark.parametrize("rho", [0.05, 0.5, 1 - 1e-3, 1.0])
def test_lazy_updates_are_those_of_whole_arrays(rho, prior, rng):
    """λ, some of its columns and its sums, after many updates, tempered ones among them.

    With a large ρ, the factor of the stored columns falls below what a float can hold.
    """
    dense = lazy = {"x": rng.gamma(1.0, size=(K, V))}
    for i in range(120):
        stats, t = {"x": sparse(rng)}, Tempering(prior=0.4 if i % 3 == 0 else 1.0)
        dense = mix(dense, posterior(prior, settled(stats), BASE, t), rho)
        lazy = mix(lazy, posterior(prior, stats, BASE, t), rho)
        assert isinstance(lazy["x"], LazyColumns) == (rho < 1)
        if rho < 1:
            some = rng.choice(V, 5)
            assert_allclose(lazy["x"].take(some), dense["x"][:, some].T, rtol=1e-12)
            assert_allclose(lazy["x"].sums(), dense["x"].sum(axis=1), rtol=1e-12)
        assert_allclose(settled(lazy)["x"], dense["x"], rtol=1e-12)


def test_threads_that_share_an_update_change_no_bit(prior, rng, monkeypatch):
    """Each of them computes parts of the columns, and sums have one addend for each part."""
    monkeypatch.setattr(lazy_columns, "_COLUMNS", 3)
    monkeypatch.setattr(lazy_columns, "_ENTRIES_OF_TASK", 1)
    monkeypatch.setattr(lazy_columns, "_ENTRIES_OF_KERNEL", 1)
    start, updates = rng.gamma(1.0, size=(K, V)), [sparse(rng, n=20) for _ in range(5)]
    found = []
    for n_jobs in (1, 2):
        lazy, calls = {"x": start}, []
        with Workers(n_jobs) as workers:

            class Counted:
                def share(self, function, n, at_least, calls=calls, workers=workers):
                    calls.append(n)
                    workers.share(function, n, at_least)

                def share_kernel(
                    self, kernel, arguments, n, at_least, calls=calls, workers=workers
                ):
                    calls.append(n)
                    workers.share_kernel(kernel, arguments, n, at_least)

            for stats in updates:
                stats = SparseColumns(stats.columns, stats.table, V, workers=Counted())
                lazy = mix(lazy, posterior(prior, {"x": 2.0 * stats}, BASE, Tempering()), 0.3)
            found.append((lazy["x"].whole(), lazy["x"].sums()))
        # The copy of the start has 14 parts, each update 7, and the last computation 40 columns.
        assert calls == [14, 7, 7, 7, 7, 7, V]
    for one, other in zip(*found, strict=True):
        assert_array_equal(one, other)
    assert_allclose(found[0][1], found[0][0].sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
def test_threads_that_share_a_mix_change_no_bit(order, rng):
    """Large arrays are mixed in parts."""
    a, b = ({"x": np.asarray(rng.gamma(1.0, size=(70, 1500)), order=order)} for _ in range(2))
    expected, into, shared = mix(a, b, 0.3), {"x": b["x"].copy(order="K")}, []

    def share(function, n, at_least):
        shared.append(n)
        workers.share(function, n, at_least)

    with Workers(2) as workers:
        found = mix(a, into, 0.3, overwrite=True, share=share)
    assert shared[0] > 1
    assert found["x"] is into["x"]
    assert_array_equal(found["x"], expected["x"])


def test_the_start_of_a_lazy_update_is_not_changed(prior, rng):
    start = rng.gamma(1.0, size=(K, V))
    before = start.copy()
    for order in "CF":
        q = {"x": np.array(start, order=order)}
        mixed = mix(q, posterior(prior, {"x": sparse(rng)}, BASE, Tempering()), 0.3)
        mix(mixed, posterior(prior, {"x": sparse(rng)}, BASE, Tempering()), 0.3)
        assert_array_equal(q["x"], before)


def test_parameters_that_have_moved_on_are_refused(prior, rng):
    target = posterior(prior, {"x": sparse(rng)}, BASE, Tempering())
    first = mix({"x": np.ones((K, V))}, target, 0.3)
    mix(first, target, 0.3)
    for read in (np.asarray, lambda x: x.sums(), lambda x: x.take(np.arange(2))):
        with pytest.raises(RuntimeError, match="have been updated"):
            read(first["x"])


def test_another_prior_begins_anew(prior, rng):
    other = {"x": prior["x"] + 1.0}
    stats = {"x": sparse(rng)}
    lazy = dense = {"x": np.ones((K, V))}
    for now in (prior, other, prior):
        dense = mix(dense, posterior(now, settled(stats), BASE, Tempering()), 0.3)
        lazy = mix(lazy, posterior(now, stats, BASE, Tempering()), 0.3)
    assert_allclose(settled(lazy)["x"], dense["x"], rtol=1e-13)


def test_they_act_as_arrays(prior, rng):
    stats = sparse(rng)
    target = posterior(prior, {"x": stats}, BASE, Tempering(prior=0.3))["x"]
    lazy = mix({"x": np.ones((K, V))}, {"x": target}, 0.2)["x"]
    for represented in (stats, target, lazy):
        array = np.asarray(represented)
        assert array.shape == represented.shape == (K, V)
        assert_array_equal(represented.T, array.T)
        assert_array_equal(represented.sum(axis=1), array.sum(axis=1))
        assert_array_equal(represented[:, 3:5], array[:, 3:5])
        assert_array_equal(
            np.maximum(represented, 0.5) - represented, np.maximum(array, 0.5) - array
        )
        assert_array_equal(1.0 + represented * array, 1.0 + array * array)
        assert_array_equal(np.where(array > 1, represented, 0.0), np.where(array > 1, array, 0.0))
    assert isinstance(2.5 * stats, SparseColumns)
    assert_array_equal(np.asarray(2.5 * stats), 2.5 * np.asarray(stats))
    moved = target + 2.5 * stats - stats
    assert isinstance(moved, SparsePosterior)
    assert_allclose(np.asarray(moved), np.asarray(target) + 1.5 * np.asarray(stats), rtol=1e-13)
    assert isinstance(target + sparse(rng), np.ndarray)


# Fits


def scattered(rng, n_words=600, **how):
    """Documents of which a batch meets few of the words."""
    X = draw_corpus(rng, n_words=n_words // 2, **({"n_documents": 40, "length": 15} | how)).tocoo()
    return csr_matrix((X.data, (X.row, 2 * X.col + 1)), shape=(X.shape[0], n_words))


def online(**params):
    return small(4, **({"learning_method": "online", "batch_size": 5, "max_iter": 2} | params))


def whole_arrays(monkeypatch):
    """Let visits make tables of all words, so that updates are those of whole arrays."""
    monkeypatch.setattr(tables, "_FEW_WORDS", np.inf)
    monkeypatch.setattr(tables, "_FEW_ENTRIES", 0)


@pytest.mark.parametrize(
    ("name", "local_step"),
    [(name, "mean_field") for name in METHODS] + [("none", "cvb0"), ("svi_plus", "gibbs")],
)
def test_fits_are_those_of_whole_arrays(name, local_step, rng, monkeypatch):
    X = scattered(rng)
    weights = rng.uniform(0.5, 2.0, size=40)
    make = partial(online, annealing=quick(name, 3), local_step=local_step)
    lazy = make().fit(X, sample_weight=weights)
    with monkeypatch.context() as patch:
        whole_arrays(patch)
        dense = make().fit(X, sample_weight=weights)
    assert_allclose(lazy.components_, dense.components_, rtol=1e-7)
    assert_allclose(lazy.lower_bounds_, dense.lower_bounds_, rtol=1e-9)
    assert_allclose(lazy.transform(X[:6]), dense.transform(X[:6]), rtol=1e-6)
    assert type(context_of(lazy).q["topic_word"]) is np.ndarray


@pytest.mark.parametrize("gradient", ["approximate", "exact"])
def test_structured_fits_are_those_of_whole_arrays(gradient, rng, monkeypatch):
    X = scattered(rng)
    make = partial(online, annealing=quick("structured", 3, gradient=gradient))
    lazy = make().fit(X)
    whole_arrays(monkeypatch)
    assert_allclose(lazy.components_, make().fit(X).components_, rtol=1e-6)


@pytest.mark.parametrize(
    "priors",
    [
        {"doc_topic_prior": "auto"},
        {"doc_topic_prior": "auto", "topic_word_prior": "auto"},
        {"topic_word_prior": np.linspace(0.1, 2.0, 4 * 600).reshape(4, 600)},
    ],
)
def test_learned_and_seeded_priors(priors, rng, monkeypatch):
    X = scattered(rng)
    make = partial(online, annealing="none", max_iter=20, **priors)  # learning begins at update 100
    lazy = make().fit(X)
    whole_arrays(monkeypatch)
    dense = make().fit(X)
    assert_allclose(lazy.components_, dense.components_, rtol=1e-6)
    assert_allclose(lazy.topic_word_prior_, dense.topic_word_prior_, rtol=1e-8)
    assert_allclose(lazy.doc_topic_prior_, dense.doc_topic_prior_, rtol=1e-6)


@pytest.mark.parametrize("name", ["none", "deterministic", "structured"])
def test_streams(name, rng, monkeypatch):
    X = scattered(rng)

    def streamed():
        lda = online(annealing=quick(name, 3), total_samples=120)
        for _ in range(3):
            lda.partial_fit(X)
        return lda

    lazy = streamed()
    whole_arrays(monkeypatch)
    dense = streamed()
    assert_allclose(lazy.components_, dense.components_, rtol=1e-7)
    assert_allclose(lazy.lower_bounds_, dense.lower_bounds_, rtol=1e-9)


@pytest.mark.parametrize("name", ["none", "deterministic", "structured"])
def test_interrupted_fits_go_on_bit_for_bit(name, rng, tmp_path, monkeypatch):
    X = scattered(rng)
    make = partial(online, annealing=quick(name, 3), max_iter=3)
    whole = make().fit(X)
    for n_saved in (1, 2):
        assert interrupted(monkeypatch, make(), X, tmp_path / str(n_saved), n_saved)
        assert_identical(make().fit(X, checkpoint=tmp_path / str(n_saved)), whole)


@pytest.mark.parametrize("name", ["none", "deterministic", "structured", "tempering"])
def test_all_words_are_computed_once_per_pass(name, rng, monkeypatch):
    """Whatever reads all of λ, or makes an array of all words, does so at the ends of passes."""
    counts = {LazyColumns: 0, SparseColumns: 0, SparsePosterior: 0}
    for cls in counts:

        def whole(self, original=cls.whole, cls=cls):
            counts[cls] += 1
            return original(self)

        monkeypatch.setattr(cls, "whole", whole)
    lda = online(annealing=quick(name, 3), max_iter=2).fit(scattered(rng))
    assert counts == {LazyColumns: lda.n_iter_, SparseColumns: 0, SparsePosterior: 0}
