"""What ``verbose`` prints: how a fit begins, where it is, and why it ends."""

from __future__ import annotations

import re
from time import sleep

import numpy as np
import pytest
from harness import assert_identical
from test_callbacks import Recorder

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    warm_up,
)
from sklearn_anneal.annealing import DeterministicAnnealing, StructuredVI
from sklearn_anneal.inference import messages
from sklearn_anneal.kernels import COMPILATIONS, Compilations, _compile

SHORT = DeterministicAnnealing(initial_temperature=3.0, n_passes=4)
PASS = re.compile(
    r"(?:(restart|[a-z ]*swap|merge|reorder|reheat|start|plain) (\d+) · )?pass ([^·]*) · T ([^·]*)"
    r" · bound ([^·]*)"
    r"(?: · rise ([^·]*) per observation)? · ([0-9.]+) s"
)


def rows(n=60):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)) + 4.0 * rng.integers(2, size=(n, 1))


def mixture(**params):
    usual = {"n_components": 3, "annealing": SHORT, "max_iter": 5, "tol": 0.0, "random_state": 0}
    return AnnealedBayesianGaussianMixture(**(usual | params))


def lines_of(capsys, fit, *arguments):
    capsys.readouterr()
    fit(*arguments)
    return capsys.readouterr().out.splitlines()


def test_the_result_does_not_depend_on_verbose(capsys):
    plain = mixture(n_init=2)
    assert lines_of(capsys, plain.fit, rows()) == []
    for verbose in (1, 2):
        told = mixture(n_init=2, verbose=verbose, verbose_interval=2)
        assert len(lines_of(capsys, told.fit, rows())) > 5
        assert_identical(told, plain)


def test_the_first_line_tells_of_method_data_and_plan(capsys):
    est = mixture(verbose=1, n_init=3, effort=1, n_jobs=2)
    first = lines_of(capsys, est.fit, rows())[0]
    assert first.startswith("AnnealedBayesianGaussianMixture(")
    method = " ".join(repr(est.annealing_).split())
    assert f"{method} · 60 rows of 2 columns · restarts: 3 · effort: 1 · n_jobs: 2" in first
    assert "auto" not in method


@pytest.mark.parametrize(
    ("est", "X", "words"),
    [
        (
            AnnealedLatentDirichletAllocation(2),
            np.ones((4, 3), int),
            "4 documents with 12 tokens of 3 words",
        ),
        (AnnealedHMM(2), rows(), "1 sequence with 60 frames of 2 columns"),
        (AnnealedPMF(2), np.eye(5), "5 users with 25 ratings"),
    ],
    ids=["topics", "sequences", "ratings"],
)
def test_data_are_counted_in_the_words_of_the_model(est, X, words, capsys):
    est.set_params(verbose=1, max_iter=1, annealing="none")
    assert f" · {words} · " in lines_of(capsys, est.fit, X)[0]


def test_passes_tell_where_a_fit_is(capsys):
    est = mixture(verbose=2, n_init=2, effort=1)
    found = [PASS.fullmatch(line) for line in lines_of(capsys, est.fit, rows())]
    found = [match for match in found if match]
    assert len(found) == est.n_passes_
    of_best = [m for m in found if m[1] == "restart" and int(m[2]) == est.best_restart_]
    schedule = ["1/4 + ≤5", "2/4 + ≤5", "3/4 + ≤5", "4/4 + ≤5"]
    assert [m[3] for m in of_best] == schedule + [f"4 + {n}/≤5" for n in range(1, 6)]
    for m, temperature, bound in zip(
        of_best, est.temperatures_[:9], est.lower_bounds_[:9], strict=True
    ):
        assert float(m[4]) == pytest.approx(temperature, rel=0.01)
        assert float(m[5]) == pytest.approx(bound, abs=1e-5)
    rises = [float(m[6]) for m in of_best[1:]]
    np.testing.assert_allclose(rises, np.diff(est.lower_bounds_[:9]) / 60, rtol=0.01, atol=1e-8)
    names = [("restart", "0"), ("restart", "1")]
    results = est.search_results_
    names += [(move, str(i)) for i, move in enumerate(results["move"]) if results["n_passes"][i]]
    assert {(m[1], m[2]) for m in found} == set(names)


def test_the_only_restart_has_no_name_and_no_empty_schedule(capsys):
    est = mixture(annealing="none", verbose=1, verbose_interval=2)
    found = [PASS.fullmatch(line) for line in lines_of(capsys, est.fit, rows())]
    assert [(m[1], m[3]) for m in found if m] == [(None, "2/≤5"), (None, "4/≤5")]


def test_a_pass_after_silence_has_a_line(capsys, monkeypatch):
    monkeypatch.setattr(messages, "SILENCE", -1.0)
    est = mixture(annealing="none", verbose=1, verbose_interval=100)
    assert sum(bool(PASS.fullmatch(line)) for line in lines_of(capsys, est.fit, rows())) == 5


def test_the_last_lines_say_why_it_ended_and_with_what(capsys):
    ends = {
        "max_iter=5 passes at T = 1 are over": mixture(),
        "the bound rises by less than tol=10 per observation": mixture(tol=10, max_iter=50),
        "a callback asked to stop": mixture().set_callbacks(Recorder(stop_at=("pass", 3))),
        "its passes are over": mixture(annealing="structured"),
        "its mean over passes changes by less than tol=9 per observation": mixture(
            annealing=StructuredVI(n_passes=40, average=True, tol=9.0)
        ),
    }
    for reason, est in ends.items():
        *_, ended, fitted = lines_of(capsys, est.set_params(verbose=1, effort=0).fit, rows())
        assert f"ended after {est.n_iter_} passes, because {reason} · bound" in ended
        assert f"bound {est.lower_bound_:.6f} from restart 0 · {est.n_passes_} passes" in fitted
        assert re.match(r"fitted in [0-9.]+ s", fitted)


def test_a_move_that_cannot_reach_the_best_bound_says_so(capsys):
    X = np.repeat(rows(), 5, axis=0) + np.random.default_rng(1).normal(size=(300, 2))
    est = mixture(n_components=8, annealing="reheating", max_iter=100, tol=1e-6, verbose=1)
    text = "\n".join(lines_of(capsys, est.fit, X))
    assert re.search(r"reheat \d+ · ended after \d+ passes, because the bound will not reach", text)


def test_a_race_tells_which_restarts_are_given_up(capsys):
    est = mixture(n_init=4, restarts="race", max_iter=60, effort=0, verbose=1, verbose_interval=100)
    text = "\n".join(lines_of(capsys, est.fit, rows()))
    assert len(re.findall("passes, because other restarts are better", text)) == 3
    assert len(re.findall("ended after", text)) == 4


def test_streams_tell_where_they_are(capsys):
    est = mixture(verbose=1, verbose_interval=1, total_samples=120, max_iter=1)
    X = rows()
    begin, first = lines_of(capsys, est.partial_fit, X)
    assert "DeterministicAnnealing(" in begin
    assert begin.endswith("first batch of 60 rows of 2 columns")
    assert re.fullmatch(r"batch 1 · T .* · bound .* · 60 of 120 data points · [0-9.]+ s", first)
    (second,) = lines_of(capsys, est.partial_fit, X)
    assert second.startswith("batch 2 · T 1 · bound ")
    est = mixture(verbose=1, verbose_interval=2)
    assert len(lines_of(capsys, est.partial_fit, X)) == 1
    fitted, second = lines_of(capsys, est.partial_fit, X)
    assert fitted == "fitted to 120 rows of 2 columns"
    assert "120 data points" in second


def test_a_warm_start_says_that_it_is_plain(capsys):
    est = mixture(warm_start=True).fit(rows())
    first, *_, last = lines_of(capsys, est.set_params(verbose=1).fit, rows())
    assert "NoAnnealing() · 60 rows" in first
    assert "restarts: 1 · effort: 0" in first
    assert last.startswith("fitted in")
    est = mixture(warm_start=True).fit(rows())
    *_, ended, _ = lines_of(capsys, est.set_params(verbose=1).fit, rows())
    assert "because max_iter=5 passes at T = 1 are over" in ended


def test_passes_without_a_bound_have_the_last_one(capsys):
    method = StructuredVI(n_passes=5, evaluate_every=2)
    lines = lines_of(capsys, mixture(annealing=method, verbose=2).fit, rows())
    passes = [line for line in lines if line.startswith("pass ")]
    assert not any("nan" in line for line in lines)
    assert "bound" not in passes[0]
    assert " · last bound " in passes[2]
    assert "rise" in passes[3]


def test_a_race_that_a_callback_stops_says_so(capsys):
    est = mixture(n_init=3, restarts="race", max_iter=60, verbose=1)
    est.set_callbacks(Recorder(stop_at=("pass", 17)))
    text = "\n".join(lines_of(capsys, est.fit, rows()))
    assert "other restarts are better" not in text
    assert text.count("a callback asked to stop") == 2


def test_compilation_is_announced_once_and_measured(monkeypatch):
    monkeypatch.setattr("sklearn_anneal.kernels._LONGEST_READ", 0.01)
    log, said = Compilations(), []
    with log.announced(said.append):
        for _ in range(2):
            with log.watched(lambda: True):
                sleep(0.1)
        with log.watched(lambda: False):
            sleep(0.1)
    assert len(said) == 1
    assert "compiling kernels" in said[0]
    assert 0.2 <= log.seconds
    before = log.seconds
    with log.watched(lambda: False):
        pass
    assert log.seconds == before
    assert len(said) == 1


def test_compiled_kernels_are_part_of_the_last_line(capsys, monkeypatch):
    est = mixture(verbose=1)
    monkeypatch.setattr(COMPILATIONS, "seconds", 10.0)
    watcher = type(est)._words_for

    def compiling(self, units):
        COMPILATIONS.seconds += 2.5
        return watcher(self, units)

    monkeypatch.setattr(type(est), "_words_for", compiling)
    assert ", of which 2.5 s compiled kernels" in lines_of(capsys, est.fit, rows())[-1]


def test_kernels_that_are_compiled_anew_are_measured(monkeypatch, tmp_path):
    """A kernel that is on disk costs no time of compilation, and one that is not does."""
    import numba

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    @_compile.kernel("values out_values", ("float64",))
    def twice(x, out):
        for i in range(len(x)):
            out[i] = 2.0 * x[i]

    before = COMPILATIONS.seconds
    twice.compile("float64")
    assert COMPILATIONS.seconds > before


def test_one_family_is_compiled(monkeypatch):
    loaded = []
    monkeypatch.setattr(_compile, "compile_all", lambda module: loaded.append(module.__name__))
    warm_up("mixture")
    of_mixture = {name.rpartition(".")[2] for name in loaded}
    own = {"discrete", "mixture_steps", "gaussian_mixture", "missing_cells", "gamma"}
    own |= {"divergence", "empirical_bayes"}
    assert of_mixture == own | {"waiting"}
    warm_up("mixture", "sigmoid_belief_net")
    assert any(name.endswith("sigmoid_belief_net") for name in loaded)
    with pytest.raises(ValueError, match=r"no family of models.*Did you mean 'mixture'"):
        warm_up("mixtur")
