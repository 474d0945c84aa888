"""Measurements of the speed of topic models: sections are there, and what is compared agrees."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def test_a_quick_run_of_the_speed_of_topics_needs_no_file(no_data, quick_speed):
    text = quick_speed("latent_dirichlet", "local", "online", "where", "jobs")
    for part in ("A quick run", "local step", "Whole online fits", "Where the time", "Two jobs"):
        assert part in text
    assert "nan" not in text
    assert "| yes |" in text  # two jobs find what one finds


def test_a_quick_run_with_hashed_words_needs_no_file(no_data, quick_speed):
    text = quick_speed("latent_dirichlet", "vocabulary", "structured")
    for part in ("A large vocabulary", "Structured inference online", "≤ 1.5"):
        assert part in text
    assert "nan" not in text


def test_quick_runs_of_default_fits_need_no_file(no_data, quick_speed):
    text = quick_speed("latent_dirichlet", "absent", "passes")
    for part in ("Words that no document has", "≤ 1.3", "What passes bring", "behind, 12 passes"):
        assert part in text
    assert "nan" not in text


def test_hashed_documents_are_the_same_in_every_vocabulary():
    from benchmarks.latent_dirichlet.vocabulary import hashed

    few, many = (hashed(100, n_words) for n_words in (50, 1_000_000))
    assert few.shape == (100, 50) and many.shape == (100, 1_000_000)
    np.testing.assert_array_equal(few.sum(axis=1), many.sum(axis=1))
    # Equal words stay equal: in the small vocabulary others join them, but none leaves.
    assert (np.diff(few.indptr) <= np.diff(many.indptr)).all()
    assert many.data.max() > 1


def test_the_clock_of_minibatches_counts_each_of_them_once():
    from benchmarks.common.passes import BatchClock
    from benchmarks.latent_dirichlet.vocabulary import METHODS, hashed, model

    X = hashed(70, 500).astype(np.float64)
    for name in METHODS:
        with BatchClock() as clock:
            model(name, 4, 16, 2).fit(X)
        # Visits that evaluate the bound are none of minibatches.
        assert len(clock.visits) == len(clock.updates) == 2 * 5
        assert min(clock.visits) > 0


def test_sections_of_other_interpreters_on_topics_run(no_data, quick_speed, in_this_process):
    text = quick_speed("latent_dirichlet", "threads", "start", "memory", "million")
    for part in ("one thread", "The first fit", "Memory", "out of core"):
        assert part in text
    assert "nan" not in text


@pytest.mark.exhaustive
def test_sections_of_fresh_interpreters_on_topics_run(no_data, quick_speed):
    """They compile everything anew."""
    text = quick_speed("latent_dirichlet", "threads", "start", "memory", "million")
    assert "nan" not in text


def test_the_section_on_topics_left_out_runs(no_data, quick_speed, monkeypatch):
    from benchmarks.latent_dirichlet import speed

    # Without the kernels of all topics, which take long to compile.
    assert hasattr(speed.kernels, "_repays")
    monkeypatch.setattr(speed, "kernels_of_all_topics", lambda: speed.kernels)
    text = quick_speed("latent_dirichlet", "sparse")
    assert "does not have" in text
    assert "nan" not in text


def test_local_steps_that_are_compared_agree():
    from benchmarks.latent_dirichlet import data, speed

    X = data.corpus("drawn").astype(np.float64)
    topics = speed.topics_of("drawn", 4, "trained")
    gamma, statistics = speed.peer_step(X, topics, 300)()
    ours = speed.our_step(X, topics, 300)()
    np.testing.assert_allclose(ours.local, gamma, rtol=1e-5)
    found = ours.statistics["topic_word"][:4]
    np.testing.assert_allclose(found, statistics, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_the_kernel_without_a_choice_of_topics_visits_all_of_them(monkeypatch):
    from benchmarks.latent_dirichlet import data, speed

    X = data.corpus("drawn").astype(np.float64)
    # With a prior of 1/64, a topic without tokens has a weight of practically zero.
    topics = speed.topics_of("drawn", 64, "trained")
    chosen = speed.our_step(X, topics, 100)().local
    monkeypatch.setattr(speed.mean_field, "kernels", speed.kernels_of_all_topics)
    whole = speed.our_step(X, topics, 100)().local
    np.testing.assert_allclose(chosen, whole, rtol=1e-4)
    assert not np.array_equal(chosen, whole)


def test_shares_of_the_time_of_a_fit_add_up():
    from benchmarks.latent_dirichlet import data, online

    X = data.corpus("drawn").astype(np.float64)
    updates = dict(online.loop.UPDATES)
    total, shares = online._shares(X, 4, online.Online(16, None))
    assert total > 0
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["documents"] > 0
    assert shares["evaluation at the end"] > 0
    assert updates == online.loop.UPDATES


def test_own_limits_are_those_of_the_libraries():
    import inspect

    from sklearn.decomposition import LatentDirichletAllocation

    from benchmarks.latent_dirichlet import online

    assert LatentDirichletAllocation().max_doc_update_iter == 100
    if online.LdaModel is None:
        pytest.skip("gensim is not installed")
    assert inspect.signature(online.LdaModel).parameters["iterations"].default == 50
