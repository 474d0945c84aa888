"""The picture of a lower bound marks the moves of the search, and says what they were."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_wine

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.inspection import LowerBoundDisplay, _lower_bound
from sklearn_anneal.search import moves

matplotlib = pytest.importorskip("matplotlib")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def off_screen():
    backend = matplotlib.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(backend)


@pytest.fixture(scope="module")
def searched():
    """A fit whose search keeps some moves and gives up others."""
    est = AnnealedBayesianGaussianMixture(3, covariance_type="diag", random_state=0)
    return est.fit(load_wine().data)


def meanings(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def test_every_move_is_a_mark_where_it_ended(searched):
    display, results = LowerBoundDisplay.from_estimator(searched), searched.search_results_
    assert results["kept"].any()
    assert not results["kept"].all()
    ends = results["n_before"] + results["n_passes"]
    for (name, kept), (marks,) in display.marks_.items():
        chosen = (results["move"] == name) & (results["kept"] == kept)
        np.testing.assert_array_equal(marks.get_xdata(), ends[chosen])
        np.testing.assert_array_equal(marks.get_ydata(), results["lower_bound"][chosen])
        assert (marks.get_markerfacecolor() != "none") == kept
    n_marks = sum(len(marks.get_xdata()) for (marks,) in display.marks_.values())
    assert n_marks == len(results["move"])


def test_the_curve_goes_through_the_moves_that_are_a_part_of_it(searched):
    results = searched.search_results_
    at = np.cumsum(results["kept"] & (results["n_before"] == 0))
    own = results["kept"] & (at == at[-1])
    ends = (results["n_before"] + results["n_passes"])[own]
    np.testing.assert_allclose(searched.lower_bounds_[ends - 1], results["lower_bound"][own])
    assert own.any()


def test_moves_that_go_on_begin_where_the_last_kept_one_ended(searched):
    results, length = searched.search_results_, None
    for before, passes, kept in zip(
        results["n_before"], results["n_passes"], results["kept"], strict=True
    ):
        assert before in (0, length) or length is None
        length = before or length
        if kept:
            length = before + passes
    assert length == searched.n_iter_


def test_the_legend_has_the_marks_in_view(searched):
    whole = LowerBoundDisplay.from_estimator(searched, whole_range=True)
    expected = {
        f"reheat of the result, {'kept' if kept else 'given up'}"
        for name, kept in whole.marks_
        if name == "reheat"
    }
    assert expected <= set(meanings(whole))
    assert len(set(meanings(whole))) == len(meanings(whole))
    without = LowerBoundDisplay.from_estimator(searched, show_moves=False)
    assert without.marks_ == {}
    assert meanings(without) == ["AnnealedBayesianGaussianMixture"]


def test_marks_have_the_colour_of_their_curve(searched):
    display = LowerBoundDisplay.from_estimators({"a": searched, "b": searched})
    colours = [line.get_color() for line in display.lines_]
    for marks in display.marks_.values():
        assert [each.get_color() for each in marks] == colours


def test_a_move_without_a_bound_is_not_in_the_legend():
    moves = {"move": ["reheat"], "n_before": [2], "n_passes": [0], "lower_bound": [np.nan],
             "kept": [False]}  # fmt: skip
    display = LowerBoundDisplay(lower_bounds={"a": [-2.0, -1.0]}, moves={"a": moves}).plot()
    assert meanings(display) == ["a"]


def test_every_move_has_a_meaning_in_the_legend():
    kinds = [*moves.Move.__subclasses__(), *moves.Rearrangement.__subclasses__()]
    names = set()
    for kind in set(kinds) - {moves.Rearrangement}:
        depends = isinstance(kind.name, property)
        names |= {kind(True).name, kind(False).name} if depends else {kind.name}
    assert names == _lower_bound._MARKS.keys()
