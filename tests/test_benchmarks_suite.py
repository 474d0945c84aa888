"""The suite that decides about defaults: its instances and halves, its measures and its report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from peer_priors import PEER_OF_MIXTURES, PEER_OF_TOPICS

pytestmark = pytest.mark.usefixtures("benchmarks_importable")

INSTANCES = ("mixture/iris", "sequence/digit rows 3")
SETTINGS = ("default", "plain")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """The file of a small run on data of scikit-learn, and what the run printed."""
    root = str(Path(__file__).resolve().parents[1])
    directory = tmp_path_factory.mktemp("suite")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root)
        from benchmarks.common import data

        patch.setenv(data.VARIABLE, str(directory))
        run(directory / "records.jsonl")
    return directory / "records.jsonl"


def run(records, *options):
    from benchmarks.suite import run as script

    common = ["--records", str(records), "--half", "both", "--seeds", "1"]
    script.main([*common, "--instances", *INSTANCES, "--settings", *SETTINGS, *options])


def test_there_is_a_record_of_every_fit_with_every_figure(records):
    lines = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
    found = {(line["spec"]["instance"], line["spec"]["setting"]) for line in lines}
    assert found == {(name, s) for name in INSTANCES for s in ("peer", *SETTINGS)}
    for line in lines:
        figures = line["result"]
        assert set(figures) == {
            *("bound", "bound_at_peer", "held_out", "rmse", "passes", "seconds", "wall")
        }
        assert np.isfinite([value for name, value in figures.items() if name != "rmse"]).all()
        if line["spec"]["setting"] == "default":
            # Priors are learned where the bound is highest.
            assert figures["bound"] > figures["bound_at_peer"]
        else:
            # The priors are the peer's, so that both bounds are the same.
            assert figures["bound"] == pytest.approx(figures["bound_at_peer"], abs=1e-9)


def test_a_second_run_fits_nothing_and_a_new_seed_is_added(records, monkeypatch, tmp_path):
    from benchmarks.suite.fits import Spec

    copy = tmp_path / "records.jsonl"
    copy.write_text(records.read_text(encoding="utf-8"), encoding="utf-8")
    made = []
    monkeypatch.setattr(Spec, "run", lambda self: made.append(self) or {"seconds": 0.0})
    run(copy)
    assert not made
    run(copy, "--code", "another state", "--report")
    assert not made
    monkeypatch.setattr("benchmarks.suite.run.render", lambda *_: "")
    # Peers do not depend on the state of the package.
    run(copy, "--code", "another state")
    assert {spec.setting for spec in made} == set(SETTINGS)


def test_a_setting_that_is_changed_is_measured_anew(monkeypatch):
    from benchmarks.suite import settings

    before = settings.version("default", "mixture")
    monkeypatch.setitem(settings.SETTINGS, "default", {"mixture": {"n_init": 2}})
    assert settings.version("default", "mixture") != before
    assert settings.version("default", "topics") == before


def test_the_report_is_written_with_a_verdict_on_every_goal(records, tmp_path):
    page = tmp_path / "suite.md"
    run(records, "--report", "--write", "--output", str(page))
    text = page.read_text(encoding="utf-8")
    assert "Written by `python -m benchmarks.suite.run`" in text
    for setting in SETTINGS:
        assert f"## Setting: {setting}" in text
    for name in INSTANCES:
        assert len(re.findall(rf"^\| {name} \|", text, flags=re.MULTILINE)) == len(SETTINGS)
    # Five goals, on each of the two halves.
    assert len(re.findall(r"\*\*(not )?reached\*\*", text)) == 5 * 2 * len(SETTINGS)
    assert not re.search(r"\bnan\b", text)


def test_the_suite_is_large_and_its_halves_are_stratified():
    from benchmarks.suite.instances import FAMILIES, HALVES, INSTANCES, halves, selected

    assert len(INSTANCES) >= 28
    parts = {half: {i.name for i in selected(half)} for half in HALVES}
    assert not parts["choose"] & parts["confirm"]
    assert parts["choose"] | parts["confirm"] == set(INSTANCES) == set(halves())
    sizes = {"mixture": 12, "sequence": 7, "topics": 6, "ratings": 3}
    for family in FAMILIES:
        counts = [sum(name.startswith(f"{family}/") for name in part) for part in parts.values()]
        assert sum(counts) >= sizes[family]
        assert abs(counts[0] - counts[1]) <= 1
    emissions = {i.model["emission"] for i in INSTANCES.values() if i.family == "sequence"}
    assert emissions == {"gaussian", "categorical", "bernoulli"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--instances", "mixture/moons"], "mixture/moons"),
        (["--half", "choose", "--instances", "mixture/iris"], "half 'choose'"),
        (["--settings", "hotter"], "hotter"),
    ],
)
def test_unknown_names_are_refused(options, message, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run(tmp_path / "records.jsonl", *options)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "records.jsonl").exists()


def test_a_setting_for_a_parameter_that_does_not_exist_is_refused(monkeypatch):
    from benchmarks.suite import settings

    monkeypatch.setitem(settings.SETTINGS, "odd", {"topics": {"n_reheatings": 3}})
    with pytest.raises(ValueError, match="'n_reheatings', which AnnealedLatentDirichlet"):
        settings.parameters("odd", "topics")
    assert settings.parameters("odd", "mixture") == {}


def test_without_files_an_instance_is_left_out_with_a_message(no_data, capsys):
    from benchmarks.suite.instances import selected, with_files

    there = with_files(selected(None))
    assert {i.name for i in there} >= set(INSTANCES)
    assert all(i.file is None for i in there)
    assert "Left out: jester.npz" in capsys.readouterr().err


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_densities_of_mixtures_are_those_of_our_class_and_serve_scikit_learn(covariance_type):
    from sklearn.datasets import load_iris
    from sklearn.mixture import BayesianGaussianMixture

    from benchmarks.suite.predictive import mixture_density
    from sklearn_anneal import AnnealedBayesianGaussianMixture

    X = load_iris().data
    model = {"n_components": 3, "covariance_type": covariance_type, "random_state": 0}
    ours = AnnealedBayesianGaussianMixture(
        annealing="none", tol=1e-12, max_iter=2000, **PEER_OF_MIXTURES, **model
    )
    theirs = BayesianGaussianMixture(tol=1e-10, max_iter=2000, **model).fit(X)
    density = mixture_density(ours.fit(X), X)
    np.testing.assert_allclose(density, ours.score_samples(X), rtol=1e-9)
    np.testing.assert_allclose(mixture_density(theirs, X), density, atol=1e-4)


def test_the_bound_of_scikit_learn_s_mixture_is_that_of_the_same_fit_by_us():
    from benchmarks.suite.families import FAMILY
    from benchmarks.suite.instances import INSTANCES

    family = FAMILY["mixture"](INSTANCES["mixture/iris"])
    peer = family.fit_peer(0)
    figures = family.measure_peer(peer)
    ours = family.fit_ours(0, PEER_OF_MIXTURES | {"annealing": "none", "n_init": 10})
    same = ours.lower_bound_ / len(family.train)
    # Restarts draw other starts, and the best of ten is usually the same.
    assert figures["bound"] == pytest.approx(same, abs=0.05)


def test_topics_of_scikit_learn_are_measured_as_ours():
    from sklearn.decomposition import LatentDirichletAllocation

    from benchmarks.latent_dirichlet.data import split
    from benchmarks.suite import families
    from benchmarks.suite.instances import Instance

    family = families.Topics(Instance("topics/drawn", 4, lambda: split("drawn")))
    theirs = LatentDirichletAllocation(4, max_iter=30, random_state=0).fit(family.train)
    figures = family.measure_peer(theirs)
    # scikit-learn calls the exponential of minus the same bound the perplexity.
    assert figures["bound"] == pytest.approx(-np.log(theirs.bound_), abs=2e-3)
    start = {"annealing": "none", "max_iter": 0, "init_components": theirs.components_}
    # The score after collapsed steps is that of collapsed inference.
    ours = family.fit_ours(0, start | PEER_OF_TOPICS | {"local_step": "cvb0"})
    assert figures["held_out"] == pytest.approx(ours.score(family.test), rel=1e-6)


@pytest.mark.parametrize("emission", ["gaussian", "categorical", "bernoulli"])
def test_densities_of_sequences_sum_over_all_paths(emission, rng):
    from itertools import product

    from benchmarks.hidden_markov.data import Sequences, split
    from benchmarks.suite.predictive import frame_densities, sequence_density
    from sklearn_anneal import AnnealedHMM

    known = split("drawn 0", emission).training
    fitted = AnnealedHMM(2, emission=emission, random_state=0)
    fitted.fit(known.X, lengths=known.lengths)
    some = Sequences(known.X[:7], np.array([4, 3]))
    model = {"emission": emission}
    density = np.exp(frame_densities(fitted, some.X, model))
    start = fitted.startprob_posterior_ / fitted.startprob_posterior_.sum()
    chain = fitted.transmat_posterior_ / fitted.transmat_posterior_.sum(axis=1, keepdims=True)
    total = 0.0
    for frames in (density[:4], density[4:]):
        paths = product(range(2), repeat=len(frames))
        total += np.log(
            sum(
                start[path[0]]
                * np.prod([chain[a, b] for a, b in zip(path, path[1:], strict=False)])
                * np.prod(frames[range(len(path)), path])
                for path in paths
            )
        )
    assert sequence_density(fitted, some, model) == pytest.approx(total / 7)
    if emission != "gaussian":
        # Plug-in and predictive probabilities of one symbol are the same.
        assert total == pytest.approx(fitted.score_sequences(some.X, lengths=some.lengths).sum())


def test_noise_decides_what_is_not_worse():
    from benchmarks.suite.instances import INSTANCES
    from benchmarks.suite.report import Comparison, goals

    def comparison(name, gain, spread):
        peer = {"bound": np.zeros(3), "held_out": np.zeros(3), "seconds": np.full(3, 4.0)}
        held_out = gain + spread * np.array([-1.0, 0.0, 1.0])
        ours = {"bound": np.ones(3), "held_out": held_out, "seconds": np.ones(3)}
        return Comparison(INSTANCES[name], ours, peer)

    steady = comparison("mixture/iris", -0.1, 0.0)
    noisy = comparison("mixture/wine", -0.1, 1.0)
    ahead = comparison("topics/ap 10", 0.1, 0.0)
    assert [c.is_not_worse for c in (steady, noisy, ahead)] == [False, True, True]
    assert [c.predicts_better for c in (steady, noisy, ahead)] == [False, False, True]
    reached = [goal.reached for goal in goals([steady, noisy, ahead])]
    assert reached == [True, False, False, True, False]
    assert all(goal.reached for goal in goals([ahead]))


def test_hmmlearn_s_bound_is_ours_at_the_same_posterior():
    pytest.importorskip("hmmlearn")
    from benchmarks.hidden_markov.data import split
    from benchmarks.suite.families import Sequence
    from benchmarks.suite.instances import Instance

    def load():
        found = split("drawn 0", "gaussian")
        return found.training, found.held_out

    model = {"emission": "gaussian"}
    family = Sequence(Instance("sequence/drawn", 3, load, model=model))
    theirs = family.measure_other("hmmlearn", 0)
    ours = family.measure(family.fit_peer(0))
    assert theirs["bound"] == pytest.approx(ours["bound"], abs=0.05)
    assert theirs["held_out"] == pytest.approx(ours["held_out"], abs=0.05)
