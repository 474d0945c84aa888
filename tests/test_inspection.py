"""Pictures show what the estimators hold, and refuse what they cannot show."""

from __future__ import annotations

import sys
from functools import cache

import numpy as np
import pytest
from designs import in_turn
from peer_priors import PEER_OF_MIXTURES
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.model_selection import KFold, cross_val_score

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    concat_sequences,
)
from sklearn_anneal.annealing import DeterministicAnnealing, StochasticAnnealing, StructuredVI
from sklearn_anneal.inspection import (
    ComponentsDisplay,
    LowerBoundDisplay,
    MixtureEllipseDisplay,
    StateSequenceDisplay,
    TemperatureDisplay,
    TopicsDisplay,
    TransitionMatrixDisplay,
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
    settings = {"n_components": 3, "random_state": 0, "annealing": "none"}
    params = PEER_OF_MIXTURES | settings | params
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
    assert texts[2] == "end of annealing"
    assert len(texts) == 3 + len(getattr(drawn, "marks_", ()))


def end_of_annealing(display):
    """Where the dots of a picture are."""
    return [line.get_xdata()[0] for line in display.ax_.lines if line.get_marker() == "o"]


@pytest.mark.parametrize("display", HISTORIES)
def test_a_dot_ends_the_annealed_phase(display):
    assert end_of_annealing(display.from_estimator(hot().fit(blobs()))) == [7]
    assert end_of_annealing(display.from_estimator(mixture().fit(blobs()))) == []


def test_the_dot_counts_calls_in_a_stream():
    X = blobs()
    method = StochasticAnnealing(n_passes=2)
    stream = mixture(annealing=method, total_samples=10 * len(X), max_iter=1)
    for part in np.array_split(np.random.default_rng(0).permutation(X), 4) * 3:
        stream.partial_fit(part)
    assert stream.n_iter_ == 12
    # The schedule is over when a tenth of the stream is, which is the end of the fourth call.
    assert end_of_annealing(LowerBoundDisplay.from_estimator(stream)) == [3]
    stream.set_params(max_iter=200).fit(X).partial_fit(X)
    assert end_of_annealing(LowerBoundDisplay.from_estimator(stream)) == [2]
    plain = mixture(annealing=StochasticAnnealing(n_passes=2)).partial_fit(X)
    assert end_of_annealing(LowerBoundDisplay.from_estimator(plain)) == []


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


@in_turn(
    prior=["dirichlet_process", "dirichlet_distribution"],
    cls=[AnnealedBayesianGaussianMixture, BayesianGaussianMixture],
)
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


def test_mixtures_with_covariates_are_drawn(rng):
    covariates = rng.standard_normal((len(blobs()), 1))
    fit = AnnealedBayesianGaussianMixture(3, random_state=0).fit(blobs(), covariates=covariates)
    drawn = MixtureEllipseDisplay.from_estimator(fit)
    assert len(drawn.ellipses_) == fit.n_effective_components_


def test_ellipses_of_other_models_are_refused():
    for other in (AnnealedHMM(2, random_state=0, max_iter=5), GaussianMixture(2)):
        with pytest.raises(TypeError, match=f"but got {type(other).__name__}"):
            MixtureEllipseDisplay.from_estimator(other.fit(blobs()))


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


TOPIC_MODELS = [AnnealedLatentDirichletAllocation, LatentDirichletAllocation]
WORDS = np.array([f"word{i}" for i in range(30)])


def corpus(n=60, seed=0):
    """Documents of three topics of ten words each, the first in most documents."""
    rng = np.random.default_rng(seed)
    rates = np.kron(np.eye(3), np.linspace(2.0, 0.2, 10)) + 0.01
    return rng.poisson(rates[rng.choice(3, size=n, p=[0.6, 0.3, 0.1])])


@cache
def topics(cls=AnnealedLatentDirichletAllocation, n_components=3):
    """A fit to the corpus, of which tests change nothing."""
    return topics_of(corpus(), cls, n_components)


def topics_of(X, cls=AnnealedLatentDirichletAllocation, n_components=3, **params):
    params = {"topic_word_prior": 0.1, "random_state": 0} | params
    if cls is AnnealedLatentDirichletAllocation:
        params = {"annealing": "none", "max_iter": 300} | params
    return cls(n_components, **params).fit(X)


def labels(panel):
    return [text.get_text() for text in panel.get_yticklabels()]


def widths(bars):
    return np.array([bar.get_width() for bar in bars])


def topic_number(panel):
    return int(panel.get_title().removeprefix("Topic ").partition(":")[0])


@pytest.mark.parametrize("cls", TOPIC_MODELS)
def test_bars_are_the_most_probable_words(cls):
    fit = topics(cls)
    drawn = TopicsDisplay.from_estimator(fit, WORDS, n_words=4)
    expected = fit.components_ / fit.components_.sum(axis=1, keepdims=True)
    assert len(drawn.axes_) == len(drawn.bars_) == 3
    assert drawn.figure_ is drawn.axes_[0].figure
    for panel, bars in zip(drawn.axes_, drawn.bars_, strict=True):
        topic = expected[topic_number(panel)]
        np.testing.assert_allclose(widths(bars), np.sort(topic)[::-1][:4])
        np.testing.assert_allclose([topic[WORDS == word][0] for word in labels(panel)],
                                   widths(bars))  # fmt: skip
        # The most probable word is on top.
        assert panel.yaxis_inverted()
    if cls is AnnealedLatentDirichletAllocation:
        words = fit.top_words(WORDS, 4)
        assert all(labels(p) == list(words[topic_number(p)]) for p in drawn.axes_)


@pytest.mark.parametrize("cls", TOPIC_MODELS)
def test_shares_are_of_the_tokens_and_fall(cls):
    fit = topics_of(corpus(), cls, doc_topic_prior=0.1)
    drawn = TopicsDisplay.from_estimator(fit)
    assert sum(drawn.shares) == pytest.approx(1.0)
    assert (np.diff(drawn.shares) <= 0).all()
    # The documents count the same tokens as the topics do.
    tokens = (fit.transform(corpus(), normalize=False) - 0.1).sum(axis=0)
    np.testing.assert_allclose(drawn.shares, (tokens / tokens.sum())[drawn.numbers], atol=0.01)
    assert f"{100 * drawn.shares[0]:.1f} % of tokens" in drawn.axes_[0].get_title()


def test_shares_with_a_vector_of_priors():
    eta = np.linspace(0.05, 0.4, 30)
    fit = topics_of(corpus(), topic_word_prior=eta)
    tokens = np.sort((fit.components_ - eta).sum(axis=1))[::-1]
    drawn = TopicsDisplay.from_estimator(fit)
    np.testing.assert_allclose(drawn.shares, tokens / corpus().sum(), rtol=1e-6)


def test_empty_topics_are_left_out():
    priors = {"doc_topic_prior": 1e-3, "topic_word_prior": 1.0}
    fit = topics_of(corpus(), n_components=12, n_init=3, **priors)
    assert fit.n_effective_components_ < 12
    assert len(TopicsDisplay.from_estimator(fit).axes_) == fit.n_effective_components_


def test_the_topics_that_are_asked_for():
    fit = topics(n_components=5)
    every = [topic_number(p) for p in TopicsDisplay.from_estimator(fit, topics=5).axes_]
    assert sorted(every) == list(range(5))
    two = TopicsDisplay.from_estimator(fit, topics=2)
    assert [topic_number(p) for p in two.axes_] == every[:2]
    given = TopicsDisplay.from_estimator(fit, topics=[4, 0])
    assert [topic_number(p) for p in given.axes_] == [4, 0]
    drawn = TopicsDisplay.from_estimator(fit, topics=5)
    assert given.shares == pytest.approx([drawn.shares[every.index(k)] for k in (4, 0)])


@pytest.mark.parametrize("chosen", [0, 6, -1, True, [], [5], [-1], [0.5], "all", [[0, 1]]])
def test_topics_that_do_not_exist(chosen):
    with pytest.raises(ValueError, match="topics should be.* from 0 to 4"):
        TopicsDisplay.from_estimator(topics(n_components=5), topics=chosen)


@pytest.mark.parametrize("n_words", [0, 2.5, True])
def test_numbers_of_words_that_are_none(n_words):
    with pytest.raises(ValueError, match="n_words should be a number of words from 1"):
        TopicsDisplay.from_estimator(topics(), n_words=n_words)


def test_more_words_than_there_are_draw_all():
    display = TopicsDisplay.from_estimator(topics(), n_words=31)
    assert display.probabilities.shape[1] == 30


def test_names_of_words():
    with pytest.raises(ValueError, match=r"each of the 30 words.*\(29,\).*get_feature_names_out"):
        TopicsDisplay.from_estimator(topics(), WORDS[1:])
    columns = labels(TopicsDisplay.from_estimator(topics()).axes_[0])
    assert set(columns) <= {str(i) for i in range(30)}
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(corpus(), columns=WORDS)
    assert set(labels(TopicsDisplay.from_estimator(topics_of(frame)).axes_[0])) <= set(WORDS)


def test_words_are_not_read_as_formulas():
    words = [rf"$\nonsense{i}$" for i in range(30)]
    drawn = TopicsDisplay.from_estimator(topics(), words)
    drawn.figure_.canvas.draw()
    assert set(labels(drawn.axes_[0])) <= set(words)


def test_panels_share_their_scale():
    drawn = TopicsDisplay.from_estimator(topics(n_components=5), n_columns=2)
    assert len({panel.get_xlim() for panel in drawn.axes_}) == 1
    assert drawn.axes_[0].get_xlim()[1] > max(widths(bars).max() for bars in drawn.bars_)
    columns = {panel.get_subplotspec().colspan.start for panel in drawn.axes_}
    assert columns == {0, 1}
    # The axis is named below the lowest panel of each column only.
    assert [bool(panel.get_xlabel()) for panel in drawn.axes_] == [False] * 3 + [True] * 2


def test_topics_in_given_axes():
    fit = topics()
    figure, (left, right) = plt.subplots(1, 2)
    drawn = TopicsDisplay.from_estimator(fit, ax=right, bar_kwargs={"color": "#ff0000"})
    assert drawn.bounding_ax_ is right
    assert drawn.figure_ is figure
    assert drawn.bars_[0][0].get_facecolor() == (1.0, 0.0, 0.0, 1.0)
    figure.canvas.draw()
    inside, room = drawn.axes_[0].get_position(), right.get_position()
    assert room.x0 <= inside.x0 < inside.x1 <= room.x1
    figure, axes = plt.subplots(3)
    drawn = TopicsDisplay.from_estimator(fit, ax=axes)
    assert list(drawn.axes_) == list(axes)
    assert drawn.bounding_ax_ is None
    with pytest.raises(ValueError, match="each of the 3 topics, but has 2.*topics"):
        TopicsDisplay.from_estimator(fit, ax=axes[:2])
    free = plt.figure().add_axes((0, 0, 1, 1))
    with pytest.raises(ValueError, match="grid of subplots"):
        TopicsDisplay.from_estimator(fit, ax=free)
    with pytest.raises(ValueError, match="n_columns should be a positive int.*0"):
        TopicsDisplay.from_estimator(fit, n_columns=0)


def test_no_topics_to_draw():
    with pytest.raises(TypeError, match="AnnealedLatentDirichletAllocation.*got BayesianGaussian"):
        TopicsDisplay.from_estimator(BayesianGaussianMixture().fit(blobs()))
    with pytest.raises(NotFittedError):
        TopicsDisplay.from_estimator(AnnealedLatentDirichletAllocation())


def test_topics_without_shares():
    drawn = TopicsDisplay(words=[["a", "b"]], probabilities=[[0.6, 0.3]]).plot()
    assert drawn.axes_[0].get_title() == "Topic 0"


def sequences(n=4, seed=0):
    """Three states that follow each other in a ring, the first for most of the time."""
    rng = np.random.default_rng(seed)
    states = np.tile(np.repeat([0, 1, 2], [25, 10, 5]), 3)
    means = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    return [means[states] + 0.5 * rng.standard_normal((len(states), 2)) for _ in range(n)]


@cache
def hmm(n_components=3):
    """A fit to the sequences, of which tests change nothing."""
    return hmm_of(sequences(), n_components)


def hmm_of(X, n_components=3, **params):
    params = {"random_state": 0, "annealing": "none", "sticky": 5.0, "n_init": 2} | params
    return AnnealedHMM(n_components, **params).fit(X)


def numbers_of(ticks):
    return [int(tick.get_text().split()[0]) for tick in ticks]


def test_cells_are_the_transition_probabilities():
    fit = hmm()
    drawn = TransitionMatrixDisplay.from_estimator(fit)
    order = numbers_of(drawn.ax_.get_yticklabels())
    assert numbers_of(drawn.ax_.get_xticklabels()) == order
    expected = fit.transmat_[np.ix_(order, order)]
    written = [[float(text.get_text()) for text in row] for row in drawn.text_]
    np.testing.assert_allclose(written, expected, atol=0.005)
    frames = np.vstack([fit.predict_proba(one) for one in sequences()]).sum(axis=0)
    np.testing.assert_allclose(drawn.shares, (frames / frames.sum())[order], atol=2e-3)
    cells = drawn.im_.get_array()
    moves = ~np.eye(3, dtype=bool)
    np.testing.assert_array_equal(cells.mask, ~moves)
    np.testing.assert_array_equal(cells.data[moves], expected[moves])
    # The colours are those of the moves: the largest is the darkest.
    assert drawn.im_.get_clim() == (0.0, expected[moves].max())
    assert drawn.figure_ is drawn.ax_.figure


@pytest.mark.parametrize("n_sequences", [1, 4])
def test_states_come_by_their_time(n_sequences):
    data = sequences(n_sequences)
    fit = hmm_of(data)
    drawn = TransitionMatrixDisplay.from_estimator(fit)
    frames = fit.predict_proba(data).sum(axis=0)
    assert list(drawn.numbers) == list(np.argsort(-frames))
    np.testing.assert_allclose(drawn.shares, np.sort(frames / frames.sum())[::-1], atol=0.01)
    shown = [text.get_text() for text in drawn.ax_.get_yticklabels()]
    assert all(f"({100 * s:.0f} %)" in t for s, t in zip(drawn.shares, shown, strict=True))


def test_states_without_frames_are_left_out():
    fit = hmm(8)
    drawn = TransitionMatrixDisplay.from_estimator(fit)
    assert 3 <= fit.n_effective_components_ < 8
    assert len(drawn.numbers) == fit.n_effective_components_
    assert len(TransitionMatrixDisplay.from_estimator(fit, states=8).numbers) == 8
    assert TransitionMatrixDisplay.from_estimator(fit, states=[7, 0]).numbers == [7, 0]


@pytest.mark.parametrize("states", [0, 4, True, [], [3], [-1], [0.5], "all"])
def test_states_that_do_not_exist(states):
    with pytest.raises(ValueError, match="states should be how many of the 3 .*from 0 to 2"):
        TransitionMatrixDisplay.from_estimator(hmm(), states=states)


@pytest.mark.parametrize(
    "stay, value, frames",
    [(0.5, "0.50", "2"), (0.96, "0.96", "25"), (0.997, "0.997", "333"), (0.9999, "0.9999", "1e+04"),
     (1.0, "1.00", "∞")],
)  # fmt: skip
def test_staying_is_readable(stay, value, frames):
    drawn = TransitionMatrixDisplay(transitions=[[stay, 1 - stay], [0.25, 0.75]]).plot()
    assert drawn.text_[0, 0].get_text() == value
    (right,) = drawn.ax_.child_axes
    assert [text.get_text() for text in right.get_yticklabels()] == [frames, "4"]


@pytest.mark.parametrize("largest, shown", [(0.3, "0.30"), (0.03, "0.030"), (0.003, "0.0030")])
def test_rare_moves_have_more_decimals(largest, shown):
    drawn = TransitionMatrixDisplay(
        transitions=[[1 - largest, largest], [largest / 2, 1 - largest / 2]]
    ).plot()
    assert drawn.text_[0, 1].get_text() == shown
    given = TransitionMatrixDisplay(transitions=drawn.transitions).plot(values_format=".1e")
    assert given.text_[0, 1].get_text() == f"{largest:.1e}"


def test_many_states_have_a_colour_bar_in_the_place_of_values():
    many = TransitionMatrixDisplay(transitions=np.full((16, 16), 1 / 16)).plot()
    assert many.text_ is None
    assert len(many.figure_.axes) == 2
    asked = TransitionMatrixDisplay(transitions=np.full((16, 16), 1 / 16)).plot(include_values=True)
    assert asked.text_.shape == (16, 16)
    assert len(asked.figure_.axes) == 1


def test_a_single_state_has_transitions():
    drawn = TransitionMatrixDisplay.from_estimator(hmm(1))
    assert drawn.text_[0, 0].get_text() == "1.00"


def test_transitions_in_given_axes():
    figure, ax = plt.subplots()
    drawn = TransitionMatrixDisplay.from_estimator(
        hmm(), ax=ax, im_kwargs={"cmap": "Reds"}, text_kwargs={"color": "green"}
    )
    assert drawn.ax_ is ax
    assert drawn.figure_ is figure
    assert drawn.im_.get_cmap().name == "Reds"
    assert {text.get_color() for text in drawn.text_.ravel()} == {"green"}


def test_variational_models_of_hmmlearn_are_drawn():
    vhmm = pytest.importorskip("hmmlearn.vhmm")
    data = sequences()
    X, lengths = np.vstack(data), [len(s) for s in data]
    peer = vhmm.VariationalGaussianHMM(3, random_state=0, n_iter=50).fit(X, lengths)
    drawn = TransitionMatrixDisplay.from_estimator(peer)
    frames = peer.predict_proba(X, lengths).sum(axis=0)
    used = [k for k in np.argsort(-frames) if frames[k] > 1]
    assert drawn.numbers == used
    states = StateSequenceDisplay.from_estimator(peer, X, lengths=lengths).states
    np.testing.assert_array_equal(states, peer.predict(X, lengths))


@pytest.mark.parametrize("display", [TransitionMatrixDisplay, StateSequenceDisplay])
def test_no_states_to_draw(display):
    X = () if display is TransitionMatrixDisplay else (blobs(),)
    with pytest.raises(TypeError, match="AnnealedHMM.*hmmlearn.*got AnnealedBayesian"):
        display.from_estimator(mixture().fit(blobs()), *X)
    with pytest.raises(NotFittedError):
        display.from_estimator(AnnealedHMM(), *X)


def intervals(band):
    """The frames that a band covers, and its lower and upper ends in them."""
    covered = {}
    for path in band.get_paths():
        x, y = path.vertices.T
        for frame in range(round(x.min() + 0.5), round(x.max() + 0.5)):
            inside = (x > frame - 0.6) & (x < frame + 0.6)
            covered[frame] = (y[inside].min(), y[inside].max())
    return covered


def test_bands_are_the_most_probable_path():
    fit, data = hmm(), sequences()
    drawn = StateSequenceDisplay.from_estimator(fit, data[0])
    path = fit.predict(data[0])
    for k, band in drawn.bands_.items():
        covered = intervals(band)
        assert sorted(covered) == list(np.flatnonzero(path == k))
        assert set(covered.values()) == {(0.0, 1.0)}
    assert sorted(drawn.bands_) == sorted(set(path))
    assert len(np.unique([band.get_facecolor() for band in drawn.bands_.values()], axis=0)) == 3
    for line, column in zip(drawn.lines_, data[0].T, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(len(column)))
        np.testing.assert_array_equal(line.get_ydata(), column)
    assert drawn.ax_.get_xlim() == (-0.5, len(path) - 0.5)
    # Bands fill the height, whatever the values are.
    assert drawn.ax_.get_ylim()[0] < data[0].min() < data[0].max() < drawn.ax_.get_ylim()[1]
    assert drawn.ax_.get_ylim()[1] < 2 * data[0].max()


def test_areas_are_the_posterior_probabilities():
    # States that overlap, so that the path leaves something in doubt.
    data = [s + 3.0 * np.random.default_rng(1).standard_normal(s.shape) for s in sequences()]
    fit = hmm_of(data)
    drawn = StateSequenceDisplay.from_estimator(fit, data, response_method="predict_proba")
    posteriors = fit.predict_proba(data)
    assert ((posteriors > 0.1) & (posteriors < 0.9)).any()
    np.testing.assert_array_equal(drawn.states, posteriors)
    # Steps of one frame: the vertices between two frames belong to both.
    tops = posteriors.cumsum(axis=1)
    for k, band in drawn.bands_.items():
        vertices = np.vstack([path.vertices for path in band.get_paths()])
        for frame in range(len(posteriors)):
            at = vertices[np.isclose(vertices[:, 0], frame + 0.5), 1]
            for bound in (tops[frame, k] - posteriors[frame, k], tops[frame, k]):
                assert np.abs(at - bound).min() < 1e-12


def test_every_form_of_sequences_is_the_same_picture():
    fit, data = hmm(), sequences(3)
    X, groups = concat_sequences(data)
    lengths = [len(s) for s in data]
    forms = [(data, {}), (X, {"groups": groups}), (X, {"lengths": lengths})]
    expected = fit.predict(data)
    for given, how in forms:
        drawn = StateSequenceDisplay.from_estimator(fit, given, **how)
        np.testing.assert_array_equal(drawn.states, expected)
        # Lines are broken where a sequence ends, and the end is marked.
        (y, x) = drawn.lines_[0].get_ydata(), drawn.lines_[0].get_xdata()
        np.testing.assert_array_equal(y[~np.isnan(x)], X[:, 0])
        np.testing.assert_array_equal(np.flatnonzero(np.isnan(x)), [120, 241])
        marks = [line.get_xdata()[0] for line in drawn.ax_.lines if line not in drawn.lines_]
        assert marks == [119.5, 239.5]


def test_names_and_choice_of_columns():
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame(s, columns=["speed (m/s)", "angle"]) for s in sequences()]
    fit = hmm_of(frames)
    one = StateSequenceDisplay.from_estimator(fit, frames[0], columns=[1])
    assert one.ax_.get_ylabel() == "angle"
    np.testing.assert_array_equal(one.lines_[0].get_ydata(), frames[0]["angle"])
    both = StateSequenceDisplay.from_estimator(fit, frames[:1])
    texts = [text.get_text() for text in both.ax_.get_legend().get_texts()]
    assert texts == ["speed (m/s)", "angle", "State 0", "State 1", "State 2"]


@pytest.mark.parametrize("columns", [[], [2], [-1], [0.5], 0, "angle"])
def test_columns_that_do_not_exist(columns):
    with pytest.raises(ValueError, match="columns should be.*from 0 to 1"):
        StateSequenceDisplay.from_estimator(hmm(), sequences()[0], columns=columns)


def test_missing_frames_are_gaps():
    data = sequences()
    data[0][30:40] = np.nan
    drawn = StateSequenceDisplay.from_estimator(hmm_of(data), data[0])
    assert np.isnan(drawn.lines_[0].get_ydata()[30:40]).all()
    assert sum(len(intervals(band)) for band in drawn.bands_.values()) == len(data[0])


def test_symbols_are_dots():
    rng = np.random.default_rng(0)
    symbols = [np.repeat([0, 1, 0], 20) * 3 + rng.integers(3, size=60) for _ in range(3)]
    symbols[0][10] = -1
    fit = hmm_of(symbols, 2, emission="categorical")
    drawn = StateSequenceDisplay.from_estimator(fit, symbols[:1])
    (dots,) = drawn.lines_
    assert (dots.get_linestyle(), dots.get_marker()) == ("None", ".")
    assert np.flatnonzero(np.isnan(dots.get_ydata())).tolist() == [10]
    assert drawn.ax_.get_ylabel() == "Symbol"


def test_sequences_in_given_axes_and_colours():
    figure, ax = plt.subplots()
    fit, data = hmm(), sequences(1)
    drawn = StateSequenceDisplay.from_estimator(
        fit,
        data,
        ax=ax,
        colors=["red", "lime", "blue"],
        line_kwargs=[{"color": "black"}, {"color": "white", "label": "second"}],
        band_kwargs={"alpha": 1.0},
    )
    assert drawn.ax_ is ax
    assert drawn.figure_ is figure
    colors = {k: tuple(band.get_facecolor()[0]) for k, band in drawn.bands_.items()}
    assert colors == {0: (1, 0, 0, 1), 1: (0, 1, 0, 1), 2: (0, 0, 1, 1)}
    assert [line.get_color() for line in drawn.lines_] == ["black", "white"]
    assert drawn.lines_[1].get_label() == "second"
    same = StateSequenceDisplay.from_estimator(fit, data, line_kwargs={"linewidth": 7})
    assert {line.get_linewidth() for line in same.lines_} == {7}
    with pytest.raises(ValueError, match="colors has 2 entries.*up to 2"):
        StateSequenceDisplay.from_estimator(fit, data, colors=["red", "lime"])
    with pytest.raises(ValueError, match="line_kwargs.*each of the 2 columns, but has 1"):
        StateSequenceDisplay.from_estimator(fit, data, line_kwargs=[{}])
    with pytest.raises(ValueError, match="'predict' or 'predict_proba', but got 'decode'"):
        StateSequenceDisplay.from_estimator(fit, data, response_method="decode")


def test_more_states_than_colours_are_hatched():
    drawn = StateSequenceDisplay(values=np.zeros((12, 1)), states=np.arange(12)).plot()
    looks = {(tuple(b.get_facecolor()[0]), b.get_hatch()) for b in drawn.bands_.values()}
    assert len(looks) == 12


def test_without_matplotlib_one_sentence_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    display = TemperatureDisplay(temperatures={"fit": [2.0, 1.0]})
    with pytest.raises(ImportError, match="TemperatureDisplay.plot draws with .*pip install matpl"):
        display.plot()


# Numbers of components


def test_numbers_of_components_are_compared_by_bound_and_held_out_score(rng):
    X = rng.normal(size=(90, 2)) + 6.0 * np.repeat(np.eye(3)[:, :2], 30, axis=0)
    mixture = AnnealedBayesianGaussianMixture(
        annealing="none", max_iter=5, random_state=0, **PEER_OF_MIXTURES
    )
    folds = KFold(3, shuffle=True, random_state=0)
    display = ComponentsDisplay.from_estimator(mixture, X, n_components=[1, 3, 5], cv=folds)
    for i, k in enumerate((1, 3, 5)):
        model = clone(mixture).set_params(n_components=k)
        assert display.lower_bounds[i] == clone(model).fit(X).lower_bound_
        np.testing.assert_array_equal(display.scores[i], cross_val_score(model, X, cv=folds))
    assert mixture.n_components == 1
    bounds, scores = display.axes_
    for ax, values in ((bounds, display.lower_bounds), (scores, display.scores.mean(axis=1))):
        line = ax.containers[0].lines[0]
        np.testing.assert_array_equal(line.get_xdata(), [1, 3, 5])
        np.testing.assert_allclose(line.get_ydata(), values)
        assert ax.get_title(loc="right") == f"best: {[1, 3, 5][int(np.argmax(values))]}"
    assert display.figure_ is bounds.figure
    with pytest.raises(TypeError, match="estimators of sklearn_anneal, but got KMeans"):
        ComponentsDisplay.from_estimator(KMeans(), X, n_components=[1, 2])
    with pytest.raises(ValueError, match="no number of components"):
        ComponentsDisplay.from_estimator(mixture, X, n_components=[])
    with pytest.raises(ValueError, match="must be integers"):
        ComponentsDisplay.from_estimator(mixture, X, n_components=[1.5, 2])
    with pytest.raises(ValueError, match="two axes, for bounds and scores; got 1"):
        display.plot(bounds)
