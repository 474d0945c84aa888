"""Quality of topics against time: the clock, the evaluation, the records and the verdicts."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from peer_priors import PEER_OF_TOPICS
from scipy.sparse import csr_matrix
from scipy.special import psi

from sklearn_anneal.metrics import document_completion_log_likelihood, split_documents

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def command(records, *options):
    from benchmarks.latent_dirichlet import time_to_quality

    time_to_quality.main(["--records", str(records), "--quick", *options])


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """The file of a quick run, which needs no data."""
    with pytest.MonkeyPatch.context() as patch:
        from test_benchmarks import ROOT

        patch.syspath_prepend(str(ROOT))
        path = tmp_path_factory.mktemp("time") / "records.jsonl"
        command(path)
    return path


def results(records):
    lines = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
    return {(line["spec"]["contestant"], line["spec"]["seed"]): line["result"] for line in lines}


@pytest.fixture
def judge():
    from benchmarks.latent_dirichlet.course import Judge
    from benchmarks.latent_dirichlet.data import parts

    return Judge(parts("drawn")[1])


def state_of(n_words, k=4, seed=0):
    from benchmarks.latent_dirichlet.course import State

    rng = np.random.default_rng(seed)
    return State(
        rng.dirichlet(np.full(n_words, 0.3), k), rng.uniform(0.1, 1.0, k), np.arange(float(k))
    )


def test_the_judge_infers_proportions_by_mean_field_updates_at_the_given_topics(judge):
    from benchmarks.latent_dirichlet.data import parts

    test = parts("drawn")[1]
    test = test[np.asarray(test.sum(axis=1)).ravel() >= 2]
    observed, held_out = (half.toarray() for half in split_documents(test))
    topics, alpha, _ = state = state_of(test.shape[1])
    gamma = np.ones((len(observed), len(alpha)))
    for _ in range(200):
        weights = np.exp(psi(gamma))
        gamma = alpha + weights * ((observed / np.maximum(weights @ topics, 1e-300)) @ topics.T)
    theta = gamma / gamma.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(judge.proportions(state, "mean_field"), theta, atol=1e-3)
    found, n_tokens = document_completion_log_likelihood(held_out, theta, topics)
    expected = found.sum() / n_tokens.sum()
    assert judge.log_likelihood(state, "mean_field") == pytest.approx(expected, abs=1e-3)
    averaged = judge.log_likelihood_of(judge.probabilities(state))
    assert averaged == pytest.approx(judge.log_likelihood(state), abs=1e-12)


def test_collapsed_inference_predicts_better_from_the_topics_that_drew_the_documents():
    from benchmarks.latent_dirichlet.course import Judge, State
    from benchmarks.latent_dirichlet.data import Generator, _tokens

    how, rng = Generator(n_topics=20, n_words=500), np.random.default_rng(0)
    topics = rng.dirichlet(np.full(500, 0.05), 20)
    X = _tokens(how, topics.cumsum(axis=1), 500, rng)
    state = State(np.maximum(topics, 1e-12), np.full(20, how.alpha / 20), np.ones(20))
    judge = Judge(X)
    collapsed, mean_field = (judge.log_likelihood(state, s) for s in ("cvb0", "mean_field"))
    assert collapsed > mean_field + 0.02


def test_the_clock_stands_still_during_evaluations_and_marks_are_met(judge, monkeypatch):
    from benchmarks.latent_dirichlet import course as module

    now = [0.0]
    monkeypatch.setattr(module.time, "process_time", lambda: now[0])
    state = state_of(judge.held_out.shape[1])

    def evaluate(self, state, local_step=None):
        now[0] += 100.0
        return 0.5

    monkeypatch.setattr(module.Judge, "log_likelihood", evaluate)
    course = module.Course(judge, budget=11.5)
    course.clock.start()
    for iteration in range(1, 13):
        now[0] += 1.0
        if course.passed(iteration, lambda: state):
            break
    course.end(iteration, lambda: state)
    points = [(point.iterations, point.seconds) for point in course.points]
    assert points == [(n, n) for n in (1, 2, 3, 5, 7, 10, 12)]
    assert course.result()["cut"]
    assert course.points[-1].empty == 1


def test_a_quick_run_has_a_course_of_every_contestant(records):
    from benchmarks.latent_dirichlet.runs import CONTESTANTS

    found = results(records)
    assert {name for name, _ in found} == set(CONTESTANTS)
    for (name, _), result in found.items():
        curve = {key: np.array(values, dtype=float) for key, values in result["curve"].items()}
        assert np.isfinite(curve["held_out"]).all(), name
        assert (curve["seconds"] > 0).all(), name
        assert (np.diff(curve["iterations"]) >= 0).all(), name
        assert curve["held_out"][-1] == result["held_out"], name
        assert not result["cut"], name
        # Four topics generated the documents, of which three find much.
        assert result["held_out"] > np.log(1 / result["words"]) + 0.3, name
    for name in ("tomotopy", "Mallet (pyrmallet)"):
        if name in CONTESTANTS:
            assert found[name, 0]["averaged"] == pytest.approx(found[name, 0]["held_out"], abs=0.1)


def test_bounds_of_scikit_learn_and_of_ours_are_the_same_quantity():
    from benchmarks.latent_dirichlet.data import corpus
    from benchmarks.latent_dirichlet.topic_peers import _bound
    from sklearn_anneal import AnnealedLatentDirichletAllocation

    X = corpus("drawn").astype(np.float64)
    ours = AnnealedLatentDirichletAllocation(3, annealing="none", random_state=0, **PEER_OF_TOPICS)
    ours.fit(X)
    # The bound is that of the topics, whichever library has found them.
    assert _bound(X, ours) == pytest.approx(ours.lower_bound_ / X.sum(), abs=1e-4)


def test_an_interrupted_run_goes_on_and_a_cut_run_is_made_again(records, tmp_path, monkeypatch):
    from benchmarks.common.records import Cache
    from benchmarks.latent_dirichlet import runs, time_plan
    from benchmarks.latent_dirichlet.contestants import SETTINGS

    rows = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
    path, specs = tmp_path / "records.jsonl", list(time_plan.QUICK.specs())
    last = runs.Spec(**rows[-1]["spec"]).key
    # Samplers are never cut, and are made again as a whole if they were.
    for contestant, again in (("plain", {None, 2.0}), ("default", {None, 2.0, 1.0})):
        cut = next(i for i, row in enumerate(rows) if row["spec"]["contestant"] == contestant)
        result = {**rows[cut]["result"], "cut": True, "budget": 1.0}
        kept = [*rows[:cut], {**rows[cut], "result": result}, *rows[cut + 1 : -1]]
        path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        cache, key = Cache(path, runs.Spec), runs.Spec(**rows[cut]["spec"]).key
        for budget in (None, 2.0, 1.0):
            missing = time_plan.missing(specs, cache, budget)
            expected = [key, last] if budget in again else [last]
            assert [spec.key for spec in missing] == expected
            assert {spec.budget for spec in missing if spec.contestant == "default"} <= {None}
    other = runs.CONTESTANTS["plain"]._replace(settings="others")
    monkeypatch.setitem(runs.CONTESTANTS, "plain", other)
    changed = time_plan.missing(time_plan.QUICK.specs(), Cache(records, runs.Spec), None)
    assert {spec.contestant for spec in changed} == {"plain"}
    monkeypatch.undo()
    newer = replace(time_plan.QUICK, code="newer")
    again = time_plan.missing(newer.specs(), Cache(records, runs.Spec), None)
    assert {spec.contestant for spec in again} == set(SETTINGS)


def test_a_cell_has_the_runs_of_one_machine(records, tmp_path):
    from benchmarks.common.records import Cache
    from benchmarks.common.report import processor
    from benchmarks.latent_dirichlet import runs, time_plan

    rows = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
    assert {row["spec"]["machine"] for row in rows} == {processor()}
    elsewhere = [{**row, "spec": {**row["spec"], "machine": "another"}} for row in rows]
    path, size = tmp_path / "records.jsonl", time_plan.QUICK
    specs = list(size.specs())
    for here, there in ((len(rows), 5), (5, len(rows)), (0, 3), (0, len(rows))):
        chosen = rows[:here] + elsewhere[:there]
        path.write_text("".join(json.dumps(row) + "\n" for row in chosen), encoding="utf-8")
        cache = Cache(path, runs.Spec)
        found = time_plan.Found(cache, size)
        assert found.machines == {("drawn", 3): processor() if here > there else "another"}
        assert len(list(found.every())) == max(here, there)
        # What another machine has completed is not run again.
        left = time_plan.left_to(processor(), specs, cache, size)
        assert left == ([] if there == len(rows) else specs)


def test_runs_are_chosen_by_name_and_pattern(records, capsys):
    from benchmarks.latent_dirichlet.time_plan import FULL, Filter, chosen

    filters = [Filter.of(text) for text in ("corpus=A*", "corpus=NIPS", "K=50", "seed=0")]
    found = chosen(FULL.specs(), filters)
    assert {spec.corpus for spec in found} == {"AP", "NIPS"}
    assert {(spec.n_components, spec.seed) for spec in found} == {(50, 0)}
    with pytest.raises(SystemExit):
        command(records, "--only", "topics=50")
    assert "corpus, K, contestant, seed" in capsys.readouterr().err


def test_the_page_of_a_quick_run_has_every_section_and_a_figure(records, tmp_path):
    page = tmp_path / "page.md"
    command(records, "--write", "--output", str(page))
    text = page.read_text(encoding="utf-8")
    for part in ("A quick run", "Verdicts", "Courses", "Clock and evaluation", "Contestants"):
        assert part in text
    assert "| ours: default | 1 |" in text
    assert "![Held-out log-likelihood against processor time](page.svg)" in text
    assert not re.search(r"\bnan\b", text)
    figure = (tmp_path / "page.svg").read_text(encoding="utf-8")
    assert "drawn, K = 3" in figure
    command(records, "--write", "--output", str(page))
    assert (tmp_path / "page.svg").read_text(encoding="utf-8") == figure


def test_the_page_says_what_was_not_measured(tmp_path):
    page = tmp_path / "page.md"
    command(tmp_path / "none.jsonl", "--write", "--output", str(page))
    assert "| drawn | 3 | not decided |" in page.read_text(encoding="utf-8")
    assert "not measured" in (tmp_path / "page.svg").read_text(encoding="utf-8")


def test_a_quick_run_does_not_replace_the_full_page(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command(tmp_path / "none.jsonl", "--write")
    assert "--output" in capsys.readouterr().err


def test_a_page_is_not_replaced_by_one_without_records(tmp_path, capsys):
    from benchmarks.latent_dirichlet import time_to_quality

    with pytest.raises(SystemExit):
        time_to_quality.main(["--records", str(tmp_path / "none.jsonl"), "--write"])
    assert "no records" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        time_to_quality.main(["--quick"])
    assert "--records" in capsys.readouterr().err


def curve(points):
    from benchmarks.latent_dirichlet.time_verdicts import Curve

    seconds, held_out = np.array(points, dtype=float).T
    return Curve(np.arange(1.0, len(points) + 1), seconds, held_out)


def test_curves_are_linear_in_log_time():
    mine = curve([(1, -8.0), (100, -7.0), (200, -7.5)])
    np.testing.assert_allclose(mine.at(np.array([0.5, 10, 100, 999])), [-np.inf, -7.5, -7, -7.5])
    assert mine.best_by(np.array([999.0]))[0] == -7.0
    assert mine.reaches(-7.5) == pytest.approx(10.0)
    assert mine.reaches(-8.5) == 1.0
    assert mine.reaches(-6.9) == np.inf
    assert mine.per_iteration == pytest.approx(100.0)


def test_verdicts_follow_from_the_curves():
    from benchmarks.latent_dirichlet.time_verdicts import AS_GOOD, compare

    peer = [curve([(1, -9.0), (10, -8.0), (100, -7.5)])]
    better = compare([curve([(1, -8.5), (5, -7.4)])], peer)
    assert better.never_below and better.in_time and better.ends_above
    assert better.tolerance == AS_GOOD
    assert better.ahead == pytest.approx(0.1)
    # Until 10 seconds it is ahead, and then the peer overtakes it.
    overtaken = compare([curve([(1, -8.5), (10, -7.9), (100, -7.8)])], peer)
    assert not overtaken.never_below and not overtaken.ends_above
    assert (overtaken.shortfall, overtaken.where) == (pytest.approx(0.3), 100)
    assert overtaken.ratio == np.inf
    # A peer that has no topics yet is not ahead.
    early = compare([curve([(0.1, -9.9), (0.5, -7.4)])], peer)
    assert early.never_below
    assert early.ratio < 0.005


def test_the_tolerance_grows_with_the_noise_of_seeds():
    from benchmarks.latent_dirichlet.time_verdicts import tolerance

    calm = [curve([(1, -8.0)])] * 3
    noisy = [curve([(1, value)]) for value in (-8.1, -8.0, -7.9)]
    assert tolerance(calm, calm) == 0.005
    assert tolerance(noisy, noisy) == pytest.approx(0.1)
    assert tolerance(calm, noisy) == pytest.approx(0.1 / np.sqrt(2))


def test_moves_that_are_not_kept_change_no_point(judge):
    from types import SimpleNamespace

    from benchmarks.latent_dirichlet.contestants import Watch
    from benchmarks.latent_dirichlet.course import Course, Point

    course = Course(judge)
    course.points = [Point(n, n, n, value, 0) for n, value in ((1, -8.0), (2, -9.0), (3, -7.0))]
    watch = Watch(course)
    watch.passes, watch._moves = 3, [1, 2]
    fitted = SimpleNamespace(
        restart_lower_bounds_=[-100.0],
        best_restart_=0,
        search_results_={"lower_bound": [-101.0, -99.0]},
        components_=np.ones((2, judge.held_out.shape[1])),
        doc_topic_prior_=0.5,
        topic_word_prior_=0.5,
    )
    watch.close(fitted)
    assert [point.held_out for point in course.points] == [-8.0, -8.0, -7.0]


def test_short_documents_are_as_their_generator_says():
    from benchmarks.latent_dirichlet.data import Generator, _short_documents

    how = Generator(n_training=3_000, n_test=100, n_topics=20, n_words=500)
    X = _short_documents(how)
    assert isinstance(X, csr_matrix)
    assert X.shape == (3_100, 500)
    lengths = np.asarray(X.sum(axis=1)).ravel()
    assert lengths.min() >= 1
    assert lengths.mean() == pytest.approx(how.mean_length, abs=0.5)
    shares = np.asarray(X.sum(axis=0)).ravel() / X.sum()
    expected = 1 / (np.arange(500) + 1 + how.shift)
    assert np.corrcoef(shares, expected)[0, 1] > 0.9
    np.testing.assert_array_equal(_short_documents(how).toarray(), X.toarray())


def test_words_that_cannot_be_learned_are_left_out(monkeypatch):
    from benchmarks.latent_dirichlet import data

    training = csr_matrix([[1, 0, 2], [0, 0, 1]])
    test = csr_matrix(np.ones((5, 3), dtype=int))
    monkeypatch.setattr(data, "parts", lambda name: (training, test))
    for limits, n_left in (
        (data.Limits(2, 100), 2),
        (data.Limits(5, 7), 2),
        (data.Limits(9, 99), 5),
    ):
        kept, evaluated = data.completion_parts("drawn", limits)
        assert kept.shape == (2, 2)
        assert evaluated.shape == (n_left, 2)
