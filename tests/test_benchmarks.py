"""The scripts in ``benchmarks/`` run, and their verdicts follow from their figures."""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
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
    from benchmarks import _data
    from benchmarks.gaussian_mixture import reproduce as reproduce_gaussian_mixture

    monkeypatch.setenv(_data.VARIABLE, str(tmp_path))
    page = tmp_path / "page.md"
    reproduce_gaussian_mixture.main(["--quick", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("Verdicts", 'digits "0"', "Objective", "Four clusters", "Two Gaussians", "Forms"):
        assert part in text
    assert "A quick run" in text
    assert "nan" not in text


def test_sections_on_data_files_are_written_where_the_files_are():
    from benchmarks import _data, _report
    from benchmarks.gaussian_mixture import experiments as _paper_claims
    from benchmarks.gaussian_mixture import fits as _mixtures

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
    from benchmarks.gaussian_mixture import reproduce as reproduce_gaussian_mixture

    with pytest.raises(SystemExit):
        reproduce_gaussian_mixture.main(["--quick"])
    assert "--output" in capsys.readouterr().err


REPRODUCTIONS = {
    "lda": (
        "_topics",
        ("Which setting", "Batch inference at equal passes", "drawn, equal passes"),
        ("drawn, equal time", "figure 3", "Priors"),
        ("Gultekin", "Mandt", "Paisley", "Hoffman", "Altosaar", "expected figures"),
    ),
    "hmm": (
        "_sequences",
        ("Data and methods", "figure 2", "A classifier of letters", "figure 3"),
        ("Other methods", "Letters of English", "Which settings", "Emission: gaussian"),
        ("Gultekin", "expected figures", "own question"),
    ),
    "pmf": (
        "_ratings",
        ("Data and methods", "figure 1", "The paper's priors", "Default priors", "Which settings"),
        ("Variances, fixed or learned", "Every method by name", "Against other libraries"),
        ("Paisley", "expected figures", "own question"),
    ),
}
every_reproduction = pytest.mark.parametrize("name", REPRODUCTIONS)


def reproduce(name, directory, *options):
    script = import_module(f"benchmarks.reproduce_{name}")
    script.main(["--quick", "--cache", str(directory / "fits.jsonl"), *options])


@pytest.fixture(scope="module")
def cached(tmp_path_factory):
    """All fits of a quick run of a reproduction, which needs no file: their cache, by name."""
    found = {}

    def get(name):
        if name not in found:
            from benchmarks import _data

            directory = tmp_path_factory.mktemp(name)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(_data.VARIABLE, str(directory))
                reproduce(name, directory)
            found[name] = directory / "fits.jsonl"
        return found[name]

    return get


@every_reproduction
def test_a_quick_reproduction_writes_every_section(name, cached, tmp_path):
    page = tmp_path / "page.md"
    reproduce(name, cached(name).parent, "--write", "--output", str(page))
    text = page.read_text(encoding="utf-8")
    _, some, others, sources = REPRODUCTIONS[name]
    for part in ("Verdicts", *some, *others, "A quick run"):
        assert part in text
    for source in sources:
        assert f"| {source}" in text
    assert not re.search(r"\bnan\b", text)


@every_reproduction
def test_an_interrupted_reproduction_goes_on(name, cached, tmp_path, monkeypatch, capsys):
    from benchmarks import _reproduction

    spec = import_module(f"benchmarks.{REPRODUCTIONS[name][0]}").Spec
    lines = cached(name).read_text(encoding="utf-8").splitlines(keepends=True)
    fits = tmp_path / "fits.jsonl"
    # The last fit was being written when the run ended.
    fits.write_text("".join(lines[:-2]) + lines[-2][:20], encoding="utf-8")
    made = []
    run = spec.run
    monkeypatch.setattr(spec, "run", lambda self: made.append(self) or run(self))
    reproduce(name, tmp_path)
    known = [spec(**json.loads(line)["spec"]).key for line in lines[-2:]]
    assert [each.key for each in made] == known
    assert "incomplete" in capsys.readouterr().err
    assert len(_reproduction.Cache(fits, spec)) == len(lines)


@every_reproduction
def test_a_page_is_written_from_whatever_the_cache_has(name, tmp_path):
    page = tmp_path / "page.md"
    reproduce(name, tmp_path, "--write", "--output", str(page))
    assert "Verdicts" in page.read_text(encoding="utf-8")
    assert not (tmp_path / "fits.jsonl").exists()


@every_reproduction
def test_a_quick_reproduction_does_not_replace_the_full_page(name, tmp_path, capsys):
    with pytest.raises(SystemExit):
        reproduce(name, tmp_path, "--write")
    assert "--output" in capsys.readouterr().err


@pytest.mark.slow
def test_processes_find_what_one_process_finds(cached, tmp_path):
    from benchmarks import _reproduction, _topic_plan, _topics

    cells = dict(list(_topic_plan.online_cells(_topic_plan.QUICK).items())[:2])
    other = _reproduction.Cache(tmp_path / "other.jsonl", _topics.Spec)
    _reproduction.run_missing(cells.values(), 2, other, 2)
    expected = _reproduction.Cache(cached("lda"), _topics.Spec).records(cells, 2)
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


def quick_sequences(tmp_path, *sections):
    from benchmarks import bench_hmm

    page = tmp_path / "sequences_speed.md"
    bench_hmm.main([*sections, "--quick", "--write", "--output", str(page)])
    return page.read_text(encoding="utf-8")


def test_a_quick_run_of_the_speed_of_sequences_needs_no_file(no_data, tmp_path):
    pytest.importorskip("hmmlearn")
    text = quick_sequences(tmp_path, "symbols", "vectors", "where", "methods", "jobs")
    for part in ("over symbols", "over vectors", "Where the time", "annealing costs", "Two jobs"):
        assert part in text
    assert "A quick run" in text
    assert not re.search(r"\bnan\b", text)
    assert "Left out" not in text
    assert text.count("| yes |") == 2  # two jobs find what one finds


@pytest.mark.slow
def test_the_memory_of_sequences_is_measured(no_data, tmp_path):
    text = quick_sequences(tmp_path, "memory")
    assert "## Memory" in text
    assert not re.search(r"\bnan\b", text)


def test_without_hmmlearn_the_speed_of_sequences_is_still_measured(
    no_data, tmp_path, monkeypatch, capsys
):
    from benchmarks import _hmm, bench_hmm

    monkeypatch.setattr(_hmm, "vhmm", None)
    monkeypatch.setattr(bench_hmm, "vhmm", None)
    text = quick_sequences(tmp_path, "symbols", "vectors", "where")
    assert "hmmlearn left out" in text
    assert text.count("Left out: hmmlearn is not installed.") == 2
    assert "forward–backward" in text
    assert "pip install hmmlearn" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["symbols", "vectors", "windows"])
def test_passes_over_sequences_that_are_compared_agree(kind):
    pytest.importorskip("hmmlearn")
    from benchmarks import _hmm

    data = getattr(_hmm, kind)(_hmm.QUICK)
    ours = _hmm.Ours(data, 3)
    ours()
    for implementation in ("log", "scaling"):
        peer = _hmm.Peer(data, 3, ours.attributes, implementation)
        bounds = [(ours(), peer()) for _ in range(3)]
        assert bounds[2][0] > bounds[0][0]
        np.testing.assert_allclose(*np.transpose(bounds), rtol=1e-8)


def test_passes_over_sequences_are_those_of_a_fit():
    from benchmarks import _hmm

    data = _hmm.vectors(_hmm.QUICK)
    ours = _hmm.Ours(data, 3)
    bounds = [ours() for _ in range(4)]
    fitted = _hmm.estimator(data, 3, max_iter=3).fit(data.X, lengths=data.lengths)
    np.testing.assert_allclose(fitted.lower_bounds_, bounds[1:], rtol=1e-12)


def test_windows_hold_consecutive_frames_of_one_sequence():
    from benchmarks import _hmm

    frames, windows = _hmm.vectors(_hmm.QUICK), _hmm.windows(_hmm.QUICK)
    assert (frames.lengths % 4 > 0).any()
    assert windows.X.shape == (windows.lengths.sum(), 12)
    np.testing.assert_array_equal(windows.lengths, frames.lengths // 4)
    second = frames.X[frames.lengths[0] :]
    np.testing.assert_array_equal(windows.X[windows.lengths[0]], second[:4].ravel())


def test_parts_of_a_pass_over_sequences_add_up():
    from benchmarks import _hmm, bench_hmm

    kernel = bench_hmm.Kernel.__call__
    total, spent = bench_hmm.shares(_hmm.vectors(_hmm.QUICK), 3, _hmm.QUICK)
    assert sum(spent.values()) == pytest.approx(total)
    for part in ("log density", "forward–backward", "statistics", "update"):
        assert 0 < spent[part] < total
    assert bench_hmm.Kernel.__call__ is kernel


def test_what_a_busy_machine_does_not_give_is_not_held_against_two_jobs():
    from benchmarks._hmm_processes import _verdict

    assert _verdict(1.8, 1.2) == _verdict(1.8, 1.9) == "reached"
    assert _verdict(1.2, 1.9) == "**not reached**"
    assert "busy" in _verdict(1.2, 1.1)


def test_a_quick_run_on_sequences_does_not_replace_the_full_page(capsys):
    from benchmarks import bench_hmm

    with pytest.raises(SystemExit):
        bench_hmm.main(["--quick", "--write"])
    assert "--output" in capsys.readouterr().err


def test_a_page_on_sequences_is_of_the_seeds_that_all_fits_have(cached):
    from benchmarks import _reproduction, _sequence_plan, _sequences

    cells = _sequence_plan.letter_cells(_sequence_plan.QUICK)
    cache = _reproduction.Cache(cached("hmm"), _sequences.Spec)
    assert cache.n_seeds(cells.values(), 9) == _sequence_plan.QUICK.some
    del cache._found[next(iter(cells.values())).seeded(2)[1].key]
    assert cache.n_seeds(cells.values(), 9) == 1
    assert cache.n_seeds([], 9) == 0


def test_a_third_of_the_sequences_is_held_out():
    from benchmarks import _sequences

    sequences = [np.full((2 + i, 1), i) for i in range(10)]
    found = _sequences._third_held_out(sequences, "categorical", 10)
    assert (len(found.training), len(found.held_out)) == (7, 3)
    both = np.concatenate([found.training.X, found.held_out.X])[:, 0]
    np.testing.assert_array_equal(np.bincount(both), [len(s) for s in sequences])
    for part in (found.training, found.held_out):
        assert len(np.unique(part.X)) == len(part)  # no sequence is in both, none is cut


def test_the_classifier_of_sequences_counts_what_is_right():
    from benchmarks._sequence_claims import VI, accuracy

    # Of three held-out sequences, the first is the first letter's; two seeds.
    scores = {"a": [[-1.0, -5.0, -5.0], [-1.0, -5.0, -1.0]], "b": [[-2.0, -1.0, -1.5]] * 2}
    records = {
        (name, 5, VI): {
            "scores": np.array(values),
            "sequences": np.array([2, 2]),
            "held_out_sequences": np.full(2, 1 if name == "a" else 2),
        }
        for name, values in scores.items()
    }
    np.testing.assert_allclose(accuracy(records, VI, 5), [1.0, 2 / 3])
    # Many more training sequences of the second letter outweigh a nat.
    records["b", 5, VI]["sequences"] = np.array([20, 20])
    np.testing.assert_allclose(accuracy(records, VI, 5), [2 / 3, 2 / 3])


def test_verdicts_on_sequences_follow_from_the_medians_of_the_letters():
    from benchmarks._sequence_claims import BEST, STOCH, VI, _over_letters, texts, with_best

    def record(bound):
        return {"bound": np.asarray(bound), "seconds": np.array([1.0, 2.0, 3.0])}

    plain = {(f"letter {i}", 5, VI): record([i - 2.0, i, i + 9.0]) for i in range(8)}
    better = {(f"letter {i}", 5, STOCH): record([i + 4.0] * 3) for i in range(8)}
    records = with_best(plain | better, plain)
    np.testing.assert_array_equal(records["letter 3", 5, BEST]["bound"], [12.0])
    np.testing.assert_array_equal(records["letter 3", 5, BEST]["seconds"], [6.0])
    above = _over_letters("", "", records, STOCH, VI)
    below = _over_letters("", "", records, STOCH, BEST)
    assert (above.verdict, below.verdict) == ("reproduced", "not reproduced")
    assert "K = 5: +4 " in above.figures
    assert "Letters: 8 of 8." in above.figures
    assert "0 won, 1 lost of 1" in below.figures
    assert texts({}) == []


def test_settings_of_sequences_are_compared_over_data_sets_and_seeds():
    from benchmarks._sequence_claims import VI
    from benchmarks.reproduce_hmm import gains, not_told_apart

    better = {"good": [0.5, 0.7], "also good": [0.7, 0.4], "worse": [0.1, 0.31], VI: [0.0, 0.0]}
    records = {
        ("poisson", name, 2, label): {
            "bound": 100 * (np.arange(2.0) + gain),
            "frames": np.full(2, 100.0),
        }
        for label, gain in better.items()
        for name in ("x", "y")
    }
    records["gaussian", "x", 2, VI] = records["poisson", "x", 2, VI]
    ordered = gains(records, "poisson", "bound")
    assert list(ordered) == ["good", "also good", "worse", VI]
    np.testing.assert_allclose(ordered["good"], [0.5, 0.7, 0.5, 0.7])
    assert not_told_apart(ordered) == ["also good"]


def test_settings_are_told_apart_by_the_cache_and_accepted_by_the_estimator():
    from benchmarks._sequence_plan import QUICK, grid, methods
    from benchmarks._sequences import Spec

    both = grid(QUICK) | methods()
    specs = [Spec("drawn 0", "categorical", 2, *method) for method in both.values()]
    assert len({spec.key for spec in specs}) == len(set(both.values()))
    for spec in specs:
        again = Spec(**json.loads(spec.key))
        assert again.key == spec.key
        annealing = again.estimator().annealing
        found = {} if annealing == "none" else annealing.get_params()
        assert found == dict(spec.settings)


def quick_ratings_speed(tmp_path, *sections):
    from benchmarks import bench_pmf

    page = tmp_path / "ratings_speed.md"
    bench_pmf.main([*sections, "--quick", "--write", "--output", str(page)])
    return page.read_text(encoding="utf-8")


def test_a_quick_run_of_the_speed_of_ratings_needs_no_file(no_data, tmp_path):
    text = quick_ratings_speed(tmp_path, "passes", "methods", "costs", "precision", "jobs")
    for part in ("alternating least squares", "annealing costs", "Single precision", "Two jobs"):
        assert part in text
    # Annealed passes in both precisions, and whole fits.
    assert text.count("| nothing: ") == text.count("| 1.25: ") == 3
    assert "A quick run" in text
    assert not re.search(r"\bnan\b", text)
    assert text.count("| yes |") == 4  # two jobs find what one finds


@pytest.mark.slow
def test_many_ratings_are_measured_in_other_interpreters(no_data, tmp_path):
    text = quick_ratings_speed(tmp_path, "large")
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| svi_plus")]
    assert len(rows) == 2
    # An interpreter with these libraries, and little more.
    assert all(100 < float(row[-2]) < 1000 for row in rows)


def test_without_peers_the_speed_of_ratings_is_still_measured(
    no_data, tmp_path, monkeypatch, capsys
):
    from benchmarks import _pmf

    monkeypatch.setattr(_pmf, "CMF", None)
    monkeypatch.setattr(_pmf, "AlternatingLeastSquares", None)
    text = quick_ratings_speed(tmp_path, "passes")
    assert "no peer is installed" in text
    assert "cmfrec is not installed" in text
    assert "pip install implicit" in capsys.readouterr().err


def test_a_quick_run_on_ratings_does_not_replace_the_full_page(capsys):
    from benchmarks import bench_pmf

    with pytest.raises(SystemExit):
        bench_pmf.main(["--quick", "--write"])
    assert "--output" in capsys.readouterr().err


def test_drawn_ratings_have_their_shape_and_its_skew():
    from benchmarks import _pmf

    shape = _pmf.Shape("", 900, 500, 60_000, 1.05, 1.25)
    X = _pmf.draw(shape)
    assert X.shape == (900, 500)
    assert X.nnz == 60_000
    assert X.has_canonical_format  # no pair twice
    assert set(X.data) == {1.0, 2.0, 3.0, 4.0, 5.0}
    for axis, spread in ((1, shape.user_spread), (0, shape.item_spread)):
        counts = np.diff(X.indptr if axis == 1 else X.tocsc().indptr)
        # Those who could rate everything do, so that the skew is a little less.
        skew = np.sqrt(2 * np.log(counts.mean() / np.median(counts)))
        assert 0.6 * spread < skew < 1.1 * spread
    again = _pmf.draw.__wrapped__(shape)
    np.testing.assert_array_equal(again.data, X.data)
    np.testing.assert_array_equal(again.indices, X.indices)


def test_the_time_of_a_pass_leaves_out_what_a_fit_does_once():
    from benchmarks import _pmf

    now = [0.0]

    def fit(n):
        now[0] += 100.0 + 3.0 * n

    def clock(run):
        before = now[0]
        run()
        return now[0] - before

    each, others = _pmf.pass_times({"a": fit}, (2, 12), 4, clock, {"b": lambda: fit(1)})
    np.testing.assert_allclose(each["a"], np.full(4, 3.0))
    np.testing.assert_allclose(others["b"], np.full(4, 103.0))


def test_fits_that_are_timed_make_the_passes_asked_for():
    from benchmarks import _pmf
    from sklearn_anneal.annealing import ANNEALING

    X = _pmf.draw(_pmf.QUICK.shape)
    for name in ANNEALING:
        assert _pmf.our_fit(X, 2, name)(4).n_iter_ == 4


def test_what_a_busy_machine_does_not_give_is_not_held_against_two_threads_of_ratings():
    from benchmarks._pmf_processes import verdict

    assert verdict(1.7, 1.2) == verdict(1.7, 1.9) == "reached"
    assert verdict(1.2, 1.9) == "**not reached**"
    assert "busy" in verdict(1.2, 1.1)


@pytest.mark.parametrize("peer", ["cmfrec", "implicit"])
def test_peers_of_ratings_make_the_sweeps_asked_for(peer):
    pytest.importorskip(peer)
    from benchmarks import _pmf

    X = _pmf.draw(_pmf.QUICK.shape).astype(np.float32)
    first, last = (_pmf.PEERS[peer](X, 2)(n) for n in (1, 3))
    factors = {"cmfrec": "B_", "implicit": "item_factors"}[peer]
    assert getattr(last, factors).dtype == np.float32
    assert len(getattr(last, factors)) == X.shape[1]
    assert not np.allclose(getattr(first, factors), getattr(last, factors))


def test_a_tenth_of_the_ratings_is_held_out():
    from benchmarks import _ratings

    every = _ratings.ratings("drawn")
    pairs = {tuple(pair) for pair in every.X}
    training, held_out = _ratings.split("drawn", 1)
    assert len(held_out) == round(0.1 * len(every))
    assert {tuple(p) for part in (training, held_out) for p in part.X} == pairs
    smaller, validation = _ratings.split("drawn", 1, True)
    assert len(validation) == round(0.1 * len(training))
    assert {tuple(p) for part in (smaller, validation) for p in part.X} == {
        tuple(p) for p in training.X
    }
    other = _ratings.split("drawn", 2)[1]
    assert not np.array_equal(other.X, held_out.X)


def test_fits_of_so_many_passes_stop_there_whatever_their_schedule():
    from benchmarks import _ratings
    from benchmarks._rating_plan import QUICK, methods

    for passes in (2, 6, 70):
        for label, how in methods(QUICK).items():
            record = _ratings.Spec("drawn", 2, *how, passes=passes).run()
            assert record["passes"] == len(record["bounds"]) == passes, label


def test_m_grows_by_fifty_ratings_in_every_pass():
    from types import SimpleNamespace

    from benchmarks._rating_plan import papers_svi_plus
    from sklearn_anneal.annealing import SVIPlus

    n_ratings = 90_000
    method = SVIPlus(**dict(papers_svi_plus(n_ratings, 0.0)))
    for t in (1, 2, 10, 500):
        ctx = SimpleNamespace(state={"passes": float(t - 1)})
        assert method.effective_size(ctx, n_ratings) == pytest.approx(50 * t)


def test_passes_that_are_needed_are_counted_to_the_median_of_vi():
    from benchmarks._rating_claims import PAPER, VI, _sooner, bound_after, needed

    plain = np.array([[-9.0, -5.0, -4.0], [-9.0, -5.0, -3.0], [-9.0, -6.0, -2.0]])
    fast = np.array([[-9.0, -3.0, -1.0], [-2.5, -2.0, -1.0], [-9.0, -8.0, -7.0]])
    records = {(PAPER, 5, VI): {"bounds": plain}, (PAPER, 5, "fast"): {"bounds": fast}}
    np.testing.assert_array_equal(bound_after(records[PAPER, 5, VI], 2), [-5, -5, -6])
    np.testing.assert_array_equal(bound_after(records[PAPER, 5, VI], 99), [-4, -3, -2])
    np.testing.assert_array_equal(needed(records, PAPER, 5, "fast"), [2, 1, np.inf])
    np.testing.assert_array_equal(needed(records, PAPER, 5, VI), [np.inf, 3, 3])
    np.testing.assert_array_equal(needed(records, PAPER, 5, "fast", slack=5.5), [2, 1, 2])
    assert "d = 5: +2 " in _sooner("", records, "fast", (PAPER,)).figures


def test_libraries_are_compared_at_the_settings_of_the_least_error(tmp_path):
    from benchmarks import _ratings, _reproduction
    from benchmarks._rating_plan import QUICK, tuned_cells, tuning_cells

    cells = tuning_cells(QUICK)
    cache = _reproduction.Cache(tmp_path / "x.jsonl", _ratings.Spec)
    assert tuned_cells(QUICK, cache) == {}
    own = [spec for (library, _), spec in cells.items() if library == "ours"]
    cache.add(own[0], {"rmse": 0.9, "seconds": 1.0})
    assert tuned_cells(QUICK, cache) == {}  # not all were tried
    cache.add(own[1], {"rmse": 0.8, "seconds": 1.0})
    best = tuned_cells(QUICK, cache)
    assert set(best) == {"ours", "ours, VI", "ours, defaults"}
    assert best["ours"].model == own[1].model
    assert best["ours"].own_split
    assert not best["ours"].validation
    assert best["ours, VI"].method == "none"
    first, second = best["ours"].seeded(2)
    assert not np.array_equal(first.split()[1].X, second.split()[1].X)


@pytest.mark.parametrize("library", ["cmfrec", "surprise"])
def test_other_libraries_predict_better_than_the_mean(library):
    pytest.importorskip(library)
    from benchmarks import _ratings

    settings = {
        "cmfrec": {"ridge": 8.0, "bias_ridge": 2.0, "n_iterations": 5},
        "surprise": {"n_epochs": 30, "lr_all": 0.01, "reg_all": 0.05},
    }[library]
    spec = _ratings.Spec(_ratings.WEAK, 6, library, _ratings.settings_of(**settings))
    training, held_out = spec.split()
    assert spec.run()["rmse"] < np.std(held_out.y - training.y.mean())
