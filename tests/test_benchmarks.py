"""The scripts in ``benchmarks/`` run, and their verdicts follow from their figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])


def test_missing_data_are_named_with_the_way_out(monkeypatch, tmp_path):
    from benchmarks import _data

    monkeypatch.setenv(_data.VARIABLE, str(tmp_path))
    assert not _data.available("pima.npz")
    with pytest.raises(_data.DataNotFoundError, match=f"pima.npz.*{_data.VARIABLE}"):
        _data._load("pima.npz")


def test_splits_are_disjoint_and_complete():
    from benchmarks import _data

    X = np.arange(40.0).reshape(20, 2)
    train, held_out = _data.Task("rows", "", X, 2).split(0)
    assert len(train) == 15
    np.testing.assert_array_equal(np.sort(np.vstack([train, held_out]), axis=0), X)


def test_verdicts_follow_from_the_figures():
    from benchmarks._report import compared, verdict

    assert verdict([True, True]) == "reproduced"
    assert verdict([True, False]) == "partly"
    assert verdict([False]) == verdict([]) == "not reproduced"
    low = np.arange(20.0)
    above = compared("", "", [("a", low + 1, low)])
    both = compared("", "", [("a", low + 1, low), ("b", low, low)])
    below = compared("", "", [("a", low - 1, low)])
    assert (above.verdict, both.verdict, below.verdict) == (
        "reproduced",
        "partly",
        "not reproduced",
    )
    assert "0 won, 1 lost of 1" in below.figures
    # Neither a median above without significance nor a difference that prints as zero is a win.
    noisy = compared("", "", [("a", np.array([1.0, 1.0, -5.0]), np.zeros(3))])
    tied = compared("", "", [("a", low + 0.01, low)])
    assert noisy.verdict == tied.verdict == "not reproduced"


def test_p_values_are_adjusted_for_the_comparisons_of_a_claim():
    from benchmarks._report import compared, holm

    np.testing.assert_allclose(holm([0.04, 0.01, 0.03]), [0.06, 0.03, 0.06])
    ahead = ("a", np.arange(1.0, 6.0), np.zeros(5))  # p = 1/32
    assert compared("", "", [ahead]).verdict == "reproduced"
    assert compared("", "", [ahead, ahead]).verdict == "not reproduced"


def test_a_quick_run_writes_every_section_that_needs_no_file(monkeypatch, tmp_path):
    from benchmarks import _data, reproduce_gaussian_mixture

    monkeypatch.setenv(_data.VARIABLE, str(tmp_path))
    page = tmp_path / "page.md"
    reproduce_gaussian_mixture.main(["--quick", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("Verdicts", 'digits "0"', "Objective", "Four clusters", "Two Gaussians", "Forms"):
        assert part in text
    assert "A quick run" in text
    assert "nan" not in text


def test_sections_on_data_files_are_written_where_the_files_are():
    from benchmarks import _data, _mixtures, _paper_claims, _report

    if not _data.available("mnist.npz", "pima.npz"):
        pytest.skip(f"mnist.npz and pima.npz are not where {_data.VARIABLE} says")
    page = _report.Page()
    _paper_claims.section_gultekin(page, _mixtures.QUICK)
    _paper_claims.section_objective(page, _mixtures.QUICK)
    assert any("Pima, K = 2" in line for line in page.lines)
    assert {"Gultekin et al. 2018", "Paisley et al. (SVI+)"} == {c.source for c in page.claims}


def test_table_cells_may_hold_bars():
    from benchmarks._report import markdown_table

    assert markdown_table(["a"], [["|S| = 5"]])[-1] == r"| \|S\| = 5 |"


def test_a_quick_run_does_not_replace_the_full_page(capsys):
    from benchmarks import reproduce_gaussian_mixture

    with pytest.raises(SystemExit):
        reproduce_gaussian_mixture.main(["--quick"])
    assert "--output" in capsys.readouterr().err


def quick_topics(tmp_path, *options):
    from benchmarks import reproduce_lda

    reproduce_lda.main(["--quick", "--cache", str(tmp_path / "fits.jsonl"), *options])


@pytest.fixture(scope="module")
def topics_cache(tmp_path_factory):
    """All fits of a quick run of the topic models, which needs no file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        from benchmarks import _data

        directory = tmp_path_factory.mktemp("topics")
        patch.setenv(_data.VARIABLE, str(directory))
        quick_topics(directory)
    return directory / "fits.jsonl"


def test_a_quick_run_of_topic_models_writes_every_section(topics_cache, tmp_path):
    page = tmp_path / "page.md"
    quick_topics(topics_cache.parent, "--write", "--output", str(page))
    text = page.read_text(encoding="utf-8")
    for part in (
        "Verdicts",
        "Which setting",
        "Batch inference at equal passes",
        "drawn, equal passes",
        "drawn, equal time",
        "figure 3",
        "Priors",
        "A quick run",
    ):
        assert part in text
    for paper in ("Gultekin", "Mandt", "Paisley", "Hoffman", "Altosaar", "expected figures"):
        assert f"| {paper}" in text
    assert "nan" not in text


def test_an_interrupted_run_goes_on_where_it_stopped(topics_cache, tmp_path, monkeypatch, capsys):
    from benchmarks import _topics

    lines = topics_cache.read_text(encoding="utf-8").splitlines(keepends=True)
    fits = tmp_path / "fits.jsonl"
    # The last fit was being written when the run ended.
    fits.write_text("".join(lines[:-2]) + lines[-2][:20], encoding="utf-8")
    made = []
    run = _topics.run
    monkeypatch.setattr(_topics, "run", lambda spec: made.append(spec) or run(spec))
    quick_topics(tmp_path)
    assert [spec.key for spec in made] == [key_of(line) for line in lines[-2:]]
    assert "incomplete" in capsys.readouterr().err
    assert len(_topics.Cache(fits)) == len(lines)


def key_of(line):
    from benchmarks._topics import Spec

    return Spec(**json.loads(line)["spec"]).key


@pytest.mark.slow
def test_processes_find_what_one_process_finds(topics_cache, tmp_path):
    from benchmarks import _topic_plan, _topics

    cells = dict(list(_topic_plan.online_cells(_topic_plan.QUICK).items())[:2])
    other = _topics.Cache(tmp_path / "other.jsonl")
    _topics.run_missing(cells.values(), 2, other, 2)
    expected = _topics.Cache(topics_cache).records(cells, 2)
    for key, record in other.records(cells, 2).items():
        for name in set(record) - {"seconds"}:
            np.testing.assert_array_equal(record[name], expected[key][name])
    assert len(other) == 4


def test_methods_share_the_passes_and_the_documents():
    from benchmarks import _topics

    for name, method in _topics.METHODS.items():
        for passes in (1, 2, 20, 100):
            annealing, max_iter = method.plan(passes)
            assert getattr(annealing, "n_passes", 0) + max_iter == passes, name
    training, held_out = _topics.corpus("drawn")
    whole = _topics._drawn()
    assert training.shape[0] + held_out.shape[0] == whole.shape[0]
    assert training.sum() + held_out.sum() == whole.sum()


def test_equal_time_gives_a_method_the_passes_that_fit():
    from benchmarks._topic_plan import QUICK, SVI, online_cells, timed_cells

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
    from benchmarks._topic_claims import SVI, TEMPERING, Found, claims, compare, compared

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


def test_the_recommended_setting_is_the_best_measured_one():
    from benchmarks._topics import Spec
    from benchmarks.reproduce_lda import recommended, setting, standing

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


def test_a_page_is_written_from_whatever_the_cache_has(tmp_path):
    page = tmp_path / "page.md"
    quick_topics(tmp_path, "--write", "--output", str(page))
    assert "Verdicts" in page.read_text(encoding="utf-8")
    assert not (tmp_path / "fits.jsonl").exists()


def test_a_quick_run_of_topic_models_does_not_replace_the_full_page(tmp_path, capsys):
    with pytest.raises(SystemExit):
        quick_topics(tmp_path, "--write")
    assert "--output" in capsys.readouterr().err


def quick_speed(tmp_path, *sections):
    from benchmarks import bench_lda

    page = tmp_path / "speed.md"
    bench_lda.main([*sections, "--quick", "--write", "--output", str(page)])
    return page.read_text(encoding="utf-8")


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    from benchmarks import _data

    monkeypatch.setenv(_data.VARIABLE, str(tmp_path))


def test_a_quick_run_of_the_speed_of_topics_needs_no_file(no_data, tmp_path):
    text = quick_speed(tmp_path, "local", "online", "where", "jobs")
    for part in ("A quick run", "local step", "Whole online fits", "Where the time", "Two jobs"):
        assert part in text
    assert "nan" not in text
    assert "| yes |" in text  # two jobs find what one finds


@pytest.mark.slow
def test_the_other_sections_on_the_speed_of_topics_run(no_data, tmp_path):
    text = quick_speed(tmp_path, "sparse", "threads", "start", "memory")
    for part in ("a document does not have", "one thread", "The first fit", "Memory"):
        assert part in text
    assert "nan" not in text


def test_local_steps_that_are_compared_agree():
    from benchmarks import _lda, bench_lda

    X = _lda.corpus("drawn").astype(np.float64)
    topics = bench_lda.topics_of("drawn", 4, "trained")
    gamma, statistics = bench_lda.peer_step(X, topics, 300)()
    ours = bench_lda.our_step(X, topics, 300)()
    np.testing.assert_allclose(ours.local, gamma, rtol=1e-5)
    found = ours.statistics["topic_word"][:, :4].T
    np.testing.assert_allclose(found, statistics, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_kernel_without_a_choice_of_topics_visits_all_of_them(monkeypatch):
    from benchmarks import _lda, bench_lda

    X = _lda.corpus("drawn").astype(np.float64)
    # With a prior of 1/64, the weight of a topic without tokens is nothing.
    topics = bench_lda.topics_of("drawn", 64, "trained")
    chosen = bench_lda.our_step(X, topics, 100)().local
    monkeypatch.setattr(bench_lda.latent_dirichlet, "kernels", bench_lda.kernels_of_all_topics)
    whole = bench_lda.our_step(X, topics, 100)().local
    np.testing.assert_allclose(chosen, whole, rtol=1e-4)
    assert not np.array_equal(chosen, whole)


def test_shares_of_the_time_of_a_fit_add_up():
    from benchmarks import _lda, _lda_online

    X = _lda.corpus("drawn").astype(np.float64)
    update = _lda_online.engine.update
    total, shares = _lda_online._shares(X, 4, _lda_online.Online(16, None))
    assert total > 0
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["documents"] > 0
    assert shares["evaluation at the end"] > 0
    assert _lda_online.engine.update is update


def test_own_limits_are_those_of_the_libraries():
    import inspect

    from sklearn.decomposition import LatentDirichletAllocation

    from benchmarks import _lda_online

    assert LatentDirichletAllocation().max_doc_update_iter == 100
    if _lda_online.LdaModel is None:
        pytest.skip("gensim is not installed")
    assert inspect.signature(_lda_online.LdaModel).parameters["iterations"].default == 50


def test_a_quick_run_on_speed_does_not_replace_the_full_page(capsys):
    from benchmarks import bench_lda

    with pytest.raises(SystemExit):
        bench_lda.main(["--quick", "--write"])
    assert "--output" in capsys.readouterr().err
