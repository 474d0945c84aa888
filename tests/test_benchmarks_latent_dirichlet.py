"""Measurements of topic models: what is compared is the same, and verdicts follow."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from sklearn_anneal.models._topic_sampling import SampledDirichlet
from sklearn_anneal.models.latent_dirichlet import LatentDirichlet

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


@pytest.mark.slow
def test_processes_find_what_one_process_finds(quick_fits, tmp_path):
    from benchmarks.common import reproduction
    from benchmarks.latent_dirichlet import fits, plan

    cells = dict(list(plan.online_cells(plan.QUICK).items())[:2])
    other = reproduction.Cache(tmp_path / "other.jsonl", fits.Spec)
    reproduction.run_missing(cells.values(), 2, other, 2)
    expected = reproduction.Cache(quick_fits("latent_dirichlet"), fits.Spec).records(cells, 2)
    for key, record in other.records(cells, 2).items():
        for name in set(record) - {"seconds"}:
            np.testing.assert_array_equal(record[name], expected[key][name])
    assert len(other) == 4


def test_methods_share_the_passes_and_the_documents():
    from benchmarks.latent_dirichlet import data, fits

    for name, method in fits.METHODS.items():
        for passes in (1, 2, 20, 100):
            annealing, max_iter = method.plan(passes)
            assert getattr(annealing, "n_passes", 0) + max_iter == passes, name
    training, held_out = data.split("drawn")
    whole = data.corpus("drawn")
    assert training.shape[0] + held_out.shape[0] == whole.shape[0]
    assert training.sum() + held_out.sum() == whole.sum()


def test_equal_time_gives_a_method_the_passes_that_fit():
    from benchmarks.latent_dirichlet.plan import QUICK, SVI, online_cells, timed_cells

    seconds = {SVI: 2.0, "SSVI": 60.0, "SVI + cvb0": 1.0}
    passes = {
        ("drawn", name): {"seconds": np.full(2, s), "passes": np.full(2, 10.0)}
        for name, s in seconds.items()
    }
    cells = timed_cells(QUICK, passes)
    assert {name: spec.passes for (_, name), spec in cells.items()} == {
        SVI: QUICK.budget,
        "SSVI": 1,
        "SVI + cvb0": 2 * QUICK.budget,
    }
    assert cells["drawn", SVI].method == online_cells(QUICK)["drawn", SVI].method
    assert timed_cells(QUICK, {key: passes[key] for key in [("drawn", "SSVI")]}) == {}


def test_verdicts_on_topics_follow_from_median_and_spread_over_seeds():
    from benchmarks.latent_dirichlet.claims import SVI, TEMPERING, Found, claims, compare, compared

    low = np.array([0.0, 0.01, 0.02])
    assert compare(low + 0.03, low)[2] == 1
    assert compare(low - 0.03, low)[2] == -1
    assert compare(low + 0.015, low)[2] == 0  # less than two standard deviations
    assert compare(np.full(3, 0.0004), np.zeros(3))[2] == 0  # printed as zero
    above, equal = ("a", low + 0.03, low), ("b", low, low)
    assert compared("", "", [above]).verdict == "reproduced"
    assert compared("", "", [above, equal]).verdict == "partly"
    assert compared("", "", [equal]).verdict == "not reproduced"
    records = {
        ("drawn", SVI): {"held_out": low},
        ("drawn", TEMPERING): {"held_out": low + 0.03},
    }
    found = {c.text: c.verdict for c in claims(Found(passes=records))}
    assert found["tempering predicts held-out documents better than SVI, equal passes"] == (
        "reproduced"
    )
    assert claims(Found()) == []


@pytest.mark.parametrize("method", ["none", "recommended", "stochastic", "proximity"])
def test_fits_at_equal_passes_have_no_others(method):
    from benchmarks.latent_dirichlet.fits import Spec

    assert Spec("drawn", method, 3, 12).run()["passes"] == 12


def test_the_recommended_setting_is_the_best_measured_one():
    from benchmarks.latent_dirichlet.fits import Spec
    from benchmarks.latent_dirichlet.reproduce import recommended, setting, standing

    gains = {"plain": np.zeros(3), "good": np.full(3, 0.05), "also good": [0.049, 0.04, 0.06]}
    records = {
        (cell, name): {"held_out": np.arange(3.0) + gain}
        for cell in ("x", "y")
        for name, gain in gains.items()
    }
    records["x", "not everywhere"] = {"held_out": np.full(3, 9.0)}
    order = standing(records, "plain", "held_out")
    best, figures = recommended(order)
    assert [name for name, _ in order] == ["good", "also good", "plain"]
    assert best == "good"
    assert figures.endswith("Not told apart from it by the seeds: also good.")
    words = setting(Spec("drawn", "exact", 3, 4, batch_size=20, local_step="cvb0"))
    assert words == (
        "`annealing=StructuredVI(gradient='exact', n_passes=4), max_iter=0, "
        'local_step="cvb0", learning_method="online", batch_size=20`'
    )
    assert setting(Spec("drawn", "none", 3, 4)) == '`annealing="none", max_iter=4, effort=0`'


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


def test_more_sections_on_the_speed_of_topics_run(no_data, quick_speed):
    text = quick_speed("latent_dirichlet", "sparse", "threads", "million")
    for part in ("does not have", "one thread", "out of core"):
        assert part in text
    assert "nan" not in text


@pytest.mark.exhaustive
def test_sections_of_fresh_interpreters_on_topics_run(no_data, quick_speed):
    """They compile everything anew."""
    text = quick_speed("latent_dirichlet", "start", "memory")
    for part in ("The first fit", "Memory"):
        assert part in text
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


@pytest.mark.slow
def test_the_kernel_without_a_choice_of_topics_visits_all_of_them(monkeypatch):
    from benchmarks.latent_dirichlet import data, speed

    X = data.corpus("drawn").astype(np.float64)
    # With a prior of 1/64, a topic without tokens has a weight of practically zero.
    topics = speed.topics_of("drawn", 64, "trained")
    chosen = speed.our_step(X, topics, 100)().local
    monkeypatch.setattr(speed._topic_mean_field, "kernels", speed.kernels_of_all_topics)
    whole = speed.our_step(X, topics, 100)().local
    np.testing.assert_allclose(chosen, whole, rtol=1e-4)
    assert not np.array_equal(chosen, whole)


def test_shares_of_the_time_of_a_fit_add_up():
    from benchmarks.latent_dirichlet import data, online

    X = data.corpus("drawn").astype(np.float64)
    updates = dict(online.engine.UPDATES)
    total, shares = online._shares(X, 4, online.Online(16, None))
    assert total > 0
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["documents"] > 0
    assert shares["evaluation at the end"] > 0
    assert updates == online.engine.UPDATES


def test_own_limits_are_those_of_the_libraries():
    import inspect

    from sklearn.decomposition import LatentDirichletAllocation

    from benchmarks.latent_dirichlet import online

    assert LatentDirichletAllocation().max_doc_update_iter == 100
    if online.LdaModel is None:
        pytest.skip("gensim is not installed")
    assert inspect.signature(online.LdaModel).parameters["iterations"].default == 50


def test_a_quick_run_of_choices_changes_what_it_says(tmp_path, capsys):
    from benchmarks.latent_dirichlet import choices

    records, page = tmp_path / "fits.jsonl", tmp_path / "page.md"
    with pytest.raises(SystemExit):
        choices.main(["--records", str(records), "--write"])
    assert "no seed of all fits" in capsys.readouterr().err
    choices.main(["--records", str(records), "--quick"])
    choices.main(["--records", str(records), "--quick", "--write", "--output", str(page)])
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if "drawn" in line]
    n = len(choices.CHOICES)
    assert [row.split(" | ")[3] for row in rows[:n]] == list(choices.CHOICES)
    assert [row.split(" | ")[2] for row in rows[n:]] == list(choices.WAYS)
    with pytest.raises(SystemExit):
        choices.main(["--records", str(records), "--quick", "--write"])
    assert "--quick needs --output" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["stream", "plain stream of known size", "online", "deterministic"])
def test_a_first_prior_reaches_the_training(way, monkeypatch):
    from benchmarks.latent_dirichlet import choice_fits

    monkeypatch.setattr(LatentDirichlet, "learned", lambda self, q, prior, *_: (self, prior, q))
    X = choice_fits.prepared("drawn")[0][:256]
    for first, alpha in {"0.1": 0.1, "5 / K": 1.25}.items():
        lda = choice_fits.ALL[f"{way}, {first}"].fit(X, 4, 0)
        np.testing.assert_array_equal(lda.doc_topic_prior_, alpha)


def test_choices_reach_the_fit(monkeypatch):
    from benchmarks.latent_dirichlet import choice_fits

    X, seen = choice_fits.prepared("drawn")[0], []
    original = SampledDirichlet.of_mean

    def spy(self, *parameters):
        seen.append(self.smallest)
        return original(self, *parameters)

    monkeypatch.setattr(SampledDirichlet, "of_mean", spy)
    usual = choice_fits.CHOICES[choice_fits.DEFAULT].fit(X, 3, 0)
    other = choice_fits.CHOICES["both"].fit(X, 3, 0)
    assert seen == [0.1, 0.0]
    assert other.topic_word_prior_ == 2 * 3**-0.75 == usual.topic_word_prior_
    wide = csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], 16_000))
    assert choice_fits.CHOICES[choice_fits.DEFAULT].fit(wide, 3, 0).topic_word_prior_ == 3**-0.75
    assert choice_fits.CHOICES["any vocabulary"].fit(wide, 3, 0).topic_word_prior_ == 2 * 3**-0.75
