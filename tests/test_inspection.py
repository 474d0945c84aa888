"""Pictures show what the estimators hold, and refuse what they cannot show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.mixture import BayesianGaussianMixture

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import DeterministicAnnealing, StochasticAnnealing, StructuredVI
from sklearn_anneal.inspection import (
    LowerBoundDisplay,
    MixtureEllipseDisplay,
    TemperatureDisplay,
)

matplotlib = pytest.importorskip("matplotlib")
plt = pytest.importorskip("matplotlib.pyplot")

HISTORIES = [LowerBoundDisplay, TemperatureDisplay]
COVARIANCE_TYPES = ["full", "tied", "diag", "spherical"]


@pytest.fixture(autouse=True)
def off_screen():
    backend = matplotlib.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(backend)


def blobs(n_features=2, seed=0):
    rng = np.random.default_rng(seed)
    centers = np.zeros((3, n_features))
    centers[1, 0], centers[2, 1] = 8.0, 8.0
    spread = np.linspace(0.5, 1.5, n_features)
    return np.vstack([c + spread * rng.standard_normal((n, n_features)) for c, n in
                      zip(centers, (60, 40, 20), strict=True)])  # fmt: skip


def mixture(**params):
    params = {"n_components": 3, "random_state": 0, "annealing": "none"} | params
    return AnnealedBayesianGaussianMixture(**params)


def hot(**params):
    return mixture(annealing=DeterministicAnnealing(initial_temperature=3, n_passes=7), **params)


@pytest.mark.parametrize("display", HISTORIES)
def test_curves_are_the_histories(display):
    fits = {"cold": mixture().fit(blobs()), "hot": hot().fit(blobs())}
    attribute = "lower_bounds_" if display is LowerBoundDisplay else "temperatures_"
    drawn = display.from_estimators(fits)
    lines = {line.get_label(): line for line in drawn.lines_}
    expected = getattr(fits["hot"], attribute)
    np.testing.assert_array_equal(lines["hot"].get_ydata(), expected)
    np.testing.assert_array_equal(lines["hot"].get_xdata(), np.arange(1, len(expected) + 1))
    assert drawn.figure_ is drawn.ax_.figure
    texts = [text.get_text() for text in drawn.ax_.get_legend().get_texts()]
    assert texts[-1] == "end of annealing"
    assert len(texts) == 3


def end_of_annealing(display):
    """Where the dots of a picture are."""
    return [line.get_xdata()[0] for line in display.ax_.lines if line.get_marker() == "o"]


@pytest.mark.parametrize("display", HISTORIES)
def test_a_dot_ends_the_annealed_phase(display):
    assert end_of_annealing(display.from_estimator(hot().fit(blobs()))) == [7]
    assert end_of_annealing(display.from_estimator(mixture().fit(blobs()))) == []


def test_the_dot_counts_calls_in_a_stream():
    X = blobs()
    stream = mixture(annealing=StochasticAnnealing(n_passes=2), total_samples=len(X))
    for part in np.array_split(np.random.default_rng(0).permutation(X), 4) * 3:
        stream.partial_fit(part)
    assert stream.n_iter_ == 12
    # Four calls are a pass: two passes end with the eighth call.
    assert end_of_annealing(LowerBoundDisplay.from_estimator(stream)) == [8]
    young = mixture(annealing=StochasticAnnealing(n_passes=2)).partial_fit(X)
    assert end_of_annealing(LowerBoundDisplay.from_estimator(young)) == [1]


def test_bounds_that_were_not_evaluated_are_bridged():
    fit = mixture(annealing=StructuredVI(n_passes=20, evaluate_every=5)).fit(blobs())
    assert np.isnan(fit.lower_bounds_).any()
    (line,) = LowerBoundDisplay.from_estimator(fit).lines_
    np.testing.assert_array_equal(line.get_xdata(), [5, 10, 15, 20])
    np.testing.assert_array_equal(line.get_ydata(), fit.lower_bounds_[4::5])
    assert line.get_marker() not in ("", "None", None)


def test_focus_keeps_the_ends_and_whole_range_keeps_everything():
    bounds = {"a": np.r_[-1e6, np.linspace(-110, -100, 30)], "b": np.r_[-5e5, [-104.0] * 30]}
    low, high = LowerBoundDisplay(lower_bounds=bounds).plot().ax_.get_ylim()
    assert -1000 < low < -104
    assert high > -100
    low, _ = LowerBoundDisplay(lower_bounds=bounds).plot(whole_range=True).ax_.get_ylim()
    assert low < -1e6


def test_the_dots_stay_in_view():
    bounds = {"a": [-900.0] * 5 + [-800.0] + [-100.0] * 50, "b": [-90.0] * 50}
    display = LowerBoundDisplay(lower_bounds=bounds, n_annealed={"a": 6}).plot()
    assert display.ax_.get_ylim()[0] < -800


def test_constant_and_unknown_bounds_draw():
    LowerBoundDisplay(lower_bounds={"flat": [-3.0, -3.0], "unknown": [np.nan]}).plot()


def test_methods_at_temperature_one_share_a_line():
    fits = {
        "cold": mixture().fit(blobs()),
        "hot": hot().fit(blobs()),
        "cool": mixture().fit(blobs()),
    }
    drawn = TemperatureDisplay.from_estimators(fits)
    assert [line.get_label() for line in drawn.lines_] == ["hot", "always 1: cold, cool"]
    bounds = LowerBoundDisplay.from_estimators(fits)
    assert bounds.lines_[1].get_color() == drawn.lines_[0].get_color()


@pytest.mark.parametrize(
    "hottest, yscale, expected",
    [(3, "auto", "linear"), (30, "auto", "log"), (3, "log", "log"), (30, "linear", "linear")],
)
def test_temperature_scale(hottest, yscale, expected):
    display = TemperatureDisplay(temperatures={"fit": np.geomspace(hottest, 1, 9)})
    assert display.plot(yscale=yscale).ax_.get_yscale() == expected


def test_unknown_temperature_scale():
    with pytest.raises(ValueError, match="'auto', 'linear' or 'log'.*'symlog'"):
        TemperatureDisplay(temperatures={"fit": [2.0, 1.0]}).plot(yscale="symlog")


@pytest.mark.parametrize("display", HISTORIES)
def test_given_axes_are_used(display):
    figure, ax = plt.subplots()
    drawn = display.from_estimator(mixture().fit(blobs()), ax=ax, curve_kwargs={"linewidth": 9})
    assert drawn.ax_ is ax
    assert drawn.figure_ is figure
    assert drawn.lines_[0].get_linewidth() == 9


@pytest.mark.parametrize("display", HISTORIES)
def test_what_cannot_be_drawn_is_refused(display):
    with pytest.raises(ValueError, match="dict.*names.*got a list.*from_estimator"):
        display.from_estimators([mixture().fit(blobs())])
    with pytest.raises(ValueError, match="at least one.*empty dict"):
        display.from_estimators({})
    with pytest.raises(NotFittedError):
        display.from_estimator(mixture())
    peer = BayesianGaussianMixture().fit(blobs())
    with pytest.raises(TypeError, match='BayesianGaussianMixture.*annealing="none"'):
        display.from_estimator(peer)


def covariance_of(ellipse, n_std):
    """The covariance matrix whose ellipse at ``n_std`` deviations this is."""
    angle = np.radians(ellipse.angle)
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    half = np.array([ellipse.width, ellipse.height]) / (2 * n_std)
    return rotation @ np.diag(half**2) @ rotation.T


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_ellipses_are_the_covariances(covariance_type):
    X = blobs() @ np.array([[1.0, 0.6], [0.0, 0.8]])
    fit = mixture(covariance_type=covariance_type).fit(X)
    drawn = MixtureEllipseDisplay.from_estimator(fit, X, n_std=[2.5, 0.5])
    full = {
        "full": lambda c: c,
        "tied": lambda c: np.array([c] * 3),
        "diag": lambda c: np.array([np.diag(v) for v in c]),
        "spherical": lambda c: np.array([v * np.eye(2) for v in c]),
    }[covariance_type](fit.covariances_)
    assert len(drawn.ellipses_) == 3
    for k, (outer, inner) in enumerate(drawn.ellipses_):
        for ellipse, radius in ((outer, 2.5), (inner, 0.5)):
            np.testing.assert_allclose(ellipse.center, fit.means_[k])
            np.testing.assert_allclose(
                covariance_of(ellipse, radius), full[k], rtol=1e-10, atol=1e-12
            )


@pytest.mark.parametrize("prior", ["dirichlet_process", "dirichlet_distribution"])
@pytest.mark.parametrize("cls", [AnnealedBayesianGaussianMixture, BayesianGaussianMixture])
def test_empty_components_are_left_out(cls, prior):
    params = {
        "n_components": 8,
        "weight_concentration_prior_type": prior,
        "weight_concentration_prior": 1e-3,
        "max_iter": 500,
        "random_state": 1,
    }
    fit = cls(**params).fit(blobs())
    drawn = MixtureEllipseDisplay.from_estimator(fit)
    used = np.sum(fit.predict_proba(blobs()).sum(axis=0) >= 1)
    assert used < 8
    assert len(drawn.ellipses_) == used
    if cls is AnnealedBayesianGaussianMixture:
        assert used == fit.n_effective_components_


def test_heavier_components_are_darker():
    drawn = MixtureEllipseDisplay(
        means=np.zeros((2, 2)), covariances=np.array([np.eye(2)] * 2), weights=[0.8, 0.2]
    ).plot()
    heavy, light = (ellipses[0] for ellipses in drawn.ellipses_)
    assert heavy.get_facecolor()[3] > light.get_facecolor()[3]


def test_the_view_holds_all_ellipses_and_rows():
    fit = mixture().fit(blobs())
    ax = MixtureEllipseDisplay.from_estimator(fit, blobs(), n_std=4).ax_
    reach = 4 * np.sqrt(fit.covariances_[:, 0, 0])
    low, high = ax.get_xlim()
    assert low < np.min(fit.means_[:, 0] - reach)
    assert high > np.max(fit.means_[:, 0] + reach)


def test_axes_have_the_names_of_the_features():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(blobs(), columns=["length (cm)", "width (cm)"])
    ax = MixtureEllipseDisplay.from_estimator(mixture().fit(frame), frame).ax_
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("length (cm)", "width (cm)")


@pytest.mark.parametrize("n_features", [1, 3])
def test_other_than_two_features_are_refused(n_features):
    X = np.random.default_rng(0).standard_normal((40, n_features))
    fit = mixture().fit(X)
    with pytest.raises(ValueError, match=f"fitted to {n_features}.*two columns.*PCA"):
        MixtureEllipseDisplay.from_estimator(fit, X)
    with pytest.raises(ValueError, match=f"X has {n_features}"):
        MixtureEllipseDisplay.from_estimator(mixture().fit(blobs()), X)


@pytest.mark.parametrize("n_std", [0, [], [1, -2], np.nan])
def test_radii_that_are_none(n_std):
    with pytest.raises(ValueError, match="n_std should be"):
        MixtureEllipseDisplay.from_estimator(mixture().fit(blobs()), n_std=n_std)


def test_without_matplotlib_one_sentence_says_what_to_install():
    script = """
import sys
sys.modules["matplotlib"] = None
from sklearn_anneal.inspection import TemperatureDisplay
display = TemperatureDisplay(temperatures={"fit": [2.0, 1.0]})
try:
    display.plot()
except ImportError as error:
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).resolve().parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "TemperatureDisplay.plot draws with matplotlib" in result.stdout
    assert 'pip install "sklearn-anneal[plot]"' in result.stdout
