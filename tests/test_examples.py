"""The example measures what it says, and its text follows from its figures."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import ANNEALING

matplotlib = pytest.importorskip("matplotlib")
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def example():
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    # By its path: a package called examples may well be installed too.
    path = ROOT / "examples" / "annealing_instead_of_restarts.py"
    spec = importlib.util.spec_from_file_location("annealing_instead_of_restarts", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    pyplot.close("all")


@pytest.fixture(scope="module")
def compared(example):
    data = example.load_data()
    few = {name: data[name] for name in ("digit 0", "digit 5")}
    return example.compare(few, n_seeds=2, n_components=3)


def test_data_are_every_digit_and_all_of_them(example):
    data = example.load_data()
    assert len(data) == 11
    sizes = {name: len(train) + len(test) for name, (train, test) in data.items()}
    assert sizes.pop("all digits") == sum(sizes.values()) == 1797
    assert all(train.shape[1] == test.shape[1] == 15 for train, test in data.values())


def test_every_annealing_method_competes(example):
    assert {*example.METHODS, "none"} == set(ANNEALING)


@pytest.mark.parametrize("n_components", [1, 3])
def test_the_peer_is_measured_as_this_package_measures_itself(example, n_components):
    train, test = example.load_data()["digit 1"]
    # The same optimum of both classes; regularisation is no part of the bound.
    params = {
        "n_components": n_components,
        "max_iter": 5000,
        "tol": 1e-11,
        "reg_covar": 1e-12,
        "random_state": 0,
        "mean_precision_prior": 0.7,
        "weight_concentration_prior": 0.3,
    }
    peer = BayesianGaussianMixture(**params).fit(train)
    ours = AnnealedBayesianGaussianMixture(annealing="none", **params).fit(train)
    assert example.complete_bound(peer, len(train)) == pytest.approx(ours.lower_bound_, abs=1e-6)
    assert example.predictive_score(peer, test) == pytest.approx(ours.score(test), abs=1e-6)


def test_measures_have_one_row_per_seed(example, compared):
    results, fits = compared
    for data_name, rows in results.items():
        assert set(rows) == set(fits[data_name]) == set(example.contestants(10, 3, 0))
        for method, values in rows.items():
            assert values.shape == (2, 3)
            assert np.isfinite(values).all()
            if method != example.SKLEARN:
                assert fits[data_name][method].lower_bound_ == values[0, 0]
        assert (rows[example.RESTARTS][:, 0] >= rows[example.SINGLE][:, 0]).all()


def test_the_table_has_the_medians(example, compared, capsys):
    results, _ = compared
    example.print_table(results)
    printed = capsys.readouterr().out
    assert all(len(line) <= 80 for line in printed.splitlines())
    for rows in results.values():
        for values in rows.values():
            assert f"{np.median(values[:, 0]):.1f}" in printed
            assert f"{np.median(values[:, 1]):.3f}" in printed


def test_the_conclusions_follow_from_the_results(example, compared):
    results, _ = compared
    # One made-up winner in everything, at half the time; all others tie with ten starts.
    flat = {
        data_name: {method: np.array([[0.0, 0.0, 1.0]]) for method in rows}
        for data_name, rows in results.items()
    }
    for rows in flat.values():
        rows["tempering"] = np.array([[1.0, 1.0, 0.5]])
    text = list(example.conclusions(flat))
    (won,) = (line for line in text if line.startswith("  tempering"))
    assert re.search("bound on 2, better density on 2, in 0.50 x", won)
    (tied,) = (line for line in text if line.startswith("  stochastic"))
    assert re.search("bound on 0, better density on 0, in 1.00 x", tied)
    assert "tempering, on 2 of 2" in text[-2]
    assert "2 of 2" in text[-1]


def test_the_figure_is_written_where_it_says(example, compared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = example.draw(*compared, data_names=["digit 0", "digit 5"])
    assert path == tmp_path.resolve() / "annealing_instead_of_restarts.png"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_progress_needs_no_rich(example, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    assert list(example.progress([1, 2])) == [1, 2]


def test_the_gallery_has_a_title():
    lines = (ROOT / "examples" / "GALLERY_HEADER.rst").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["Examples", "=" * 8]
