"""Pictures of the components of tables show their probabilities and means, block by block."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedBayesianMixture
from sklearn_anneal.datasets import make_mixture
from sklearn_anneal.inspection import ComponentProfilesDisplay

matplotlib = pytest.importorskip("matplotlib")
plt = pytest.importorskip("matplotlib.pyplot")

COVARIANCE_TYPES = ["full", "tied", "diag", "spherical"]


@pytest.fixture(autouse=True)
def off_screen():
    backend = matplotlib.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(backend)


MIXED = [("answers", "categorical", [0, 3]), ("visits", "poisson", [1]), ("sizes", "gaussian", [2])]


NAMES = ["age", "visits", "size", "wage"]


def table_mixture(emission, n_components=3, **params):
    n_features = 4
    X, _, _ = make_mixture(300, n_features, emission=emission, separation=2.0, random_state=0)
    params = {"annealing": "none", "init_params": "kmeans", "random_state": 0} | params
    return AnnealedBayesianMixture(n_components, emission=emission, **params).fit(X)


def labels_of(drawn):
    return [text.get_text() for text in drawn.ax_.get_yticklabels()]


@pytest.mark.parametrize("emission", ["bernoulli", "categorical"])
def test_profiles_are_probabilities_of_levels(emission):
    fit = table_mixture(emission)
    drawn = ComponentProfilesDisplay.from_estimator(fit)
    order = drawn.numbers
    assert list(order) == list(
        np.argsort(-fit.predict_proba(fit.sample(1)[0])[0] * 0 - fit.weights_)
    )
    p = fit.emissionprob_
    expected = (np.hstack(p) if emission == "categorical" else p)[order].T
    np.testing.assert_array_equal(drawn.im_.get_array(), expected)
    assert drawn.im_.get_clim() == (0.0, 1.0)
    written = [[float(text.get_text()) for text in row] for row in drawn.text_]
    np.testing.assert_allclose(written, expected, atol=0.005)
    ticks = [text.get_text() for text in drawn.ax_.get_xticklabels()]
    assert ticks == [f"{k}\n{100 * fit.weights_[k]:.0f} %" for k in order]
    if emission == "bernoulli":
        assert labels_of(drawn) == ["x0", "x1", "x2", "x3"]
    else:
        assert labels_of(drawn) == [f"x{d} = {v}" for d in range(4) for v in range(3)]
        np.testing.assert_allclose(np.add.reduceat(expected, [0, 3, 6, 9]), 1)
        lines = [line.get_ydata()[0] for line in drawn.ax_.lines]
        assert lines == [2.5, 5.5, 8.5]
    assert drawn.figure_ is drawn.ax_.figure


@pytest.mark.parametrize(
    ("emission", "covariance_type"),
    [("poisson", "independent"), *(("gaussian", c) for c in ("independent", *COVARIANCE_TYPES))],
)
def test_colours_of_means_are_deviations_within_their_column(emission, covariance_type):
    fit = table_mixture(emission, covariance_type=covariance_type)
    drawn = ComponentProfilesDisplay.from_estimator(fit, components=[2, 0, 1])
    means = fit.lambdas_ if emission == "poisson" else fit.means_
    np.testing.assert_array_equal(drawn.values, means[[2, 0, 1]].T)
    written = [[float(text.get_text()) for text in row] for row in drawn.text_]
    np.testing.assert_allclose(written, drawn.values, rtol=0.006)
    # The centre and the scale are those of the mixture, which many draws of it have.
    fit.random_state = 1
    X, _ = fit.sample(100_000)
    expected = (means[[2, 0, 1]] - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(drawn.im_.get_array(), expected.T, atol=0.03)
    low, high = drawn.im_.get_clim()
    assert low == -high < 0


def test_profiles_of_one_block():
    fit = table_mixture(MIXED)
    drawn = ComponentProfilesDisplay.from_estimator(
        fit,
        block="answers",
        feature_names=["age", "visits", "size", "$wage$"],
        category_names=[["young", "older", "old"], "abc"],
    )
    assert labels_of(drawn)[:4] == ["age = young", "age = older", "age = old", "$wage$ = a"]
    assert labels_of(ComponentProfilesDisplay.from_estimator(fit, block="visits")) == ["x1"]
    sizes = ComponentProfilesDisplay.from_estimator(fit, block="sizes", components=2)
    np.testing.assert_array_equal(sizes.values, fit.blocks_["sizes"].means_[sizes.numbers].T)
    for block in ("ages", 0):
        with pytest.raises(ValueError, match=r"block should be.*\['answers', 'visits', 'sizes'\]"):
            ComponentProfilesDisplay.from_estimator(fit, block=block)
    (single,) = table_mixture([("all", "bernoulli", slice(0, 4))]).blocks_
    alone = ComponentProfilesDisplay.from_estimator(
        table_mixture([("all", "bernoulli", slice(0, 4))])
    )
    assert single == "all" and len(alone.values) == 4


def test_names_of_profiles_have_to_fit():
    fit = table_mixture("categorical")
    draw = ComponentProfilesDisplay.from_estimator
    with pytest.raises(ValueError, match=r"each of the 4 columns.*shape \(2,\)"):
        draw(fit, feature_names=["a", "b"])
    with pytest.raises(ValueError, match=r"lengths \[3, 3, 3, 3\], but the lengths are \[2\]"):
        draw(fit, category_names=[["no", "yes"]])
    with pytest.raises(ValueError, match="fitted without blocks"):
        draw(fit, block="answers")
    with pytest.raises(ValueError, match="category_names are for columns of categories"):
        draw(table_mixture("poisson"), category_names=["a"])
    with pytest.raises(ValueError, match="components should be how many of the 3 .*from 0 to 2"):
        draw(fit, components=[3])


def test_profiles_take_the_names_of_a_data_frame():
    pandas = pytest.importorskip("pandas")
    X, _, _ = make_mixture(100, 3, random_state=0)
    fit = AnnealedBayesianMixture(2, random_state=0).fit(pandas.DataFrame(X, columns=list("abc")))
    assert labels_of(ComponentProfilesDisplay.from_estimator(fit)) == ["a", "b", "c"]


def test_profiles_of_a_mixture_with_covariates():
    X = make_mixture(60, 4, random_state=0)[0]
    covariates = np.random.default_rng(0).standard_normal((60, 1))
    fit = AnnealedBayesianMixture(2, random_state=0).fit(X, covariates=covariates)
    drawn = ComponentProfilesDisplay.from_estimator(fit)
    assert drawn.values.shape == (4, fit.n_effective_components_)


def test_profiles_in_given_axes():
    fit = table_mixture("bernoulli")
    figure, ax = plt.subplots()
    drawn = ComponentProfilesDisplay.from_estimator(
        fit,
        ax=ax,
        values_format=".1f",
        im_kwargs={"cmap": "Reds"},
        text_kwargs={"color": "green"},
    )
    assert drawn.ax_ is ax
    assert drawn.figure_ is figure
    assert drawn.im_.get_cmap().name == "Reds"
    assert {text.get_color() for text in drawn.text_.ravel()} == {"green"}
    assert {len(text.get_text()) for text in drawn.text_.ravel()} == {3}
    assert drawn.plot(include_values=False).text_ is None


def test_many_profiles_are_not_written():
    many = ComponentProfilesDisplay(
        values=np.full((201, 2), 0.5), labels=np.arange(201), weights=[0.5, 0.5]
    ).plot()
    assert many.text_ is None
    assert many.plot(include_values=True).text_.shape == (201, 2)


def test_no_profiles_to_draw():
    with pytest.raises(TypeError, match="AnnealedBayesianMixture.*got AnnealedBayesianGaussian"):
        gaussian = AnnealedBayesianGaussianMixture(2, annealing="none", random_state=0)
        ComponentProfilesDisplay.from_estimator(gaussian.fit(np.arange(8.0).reshape(4, 2)))
    with pytest.raises(NotFittedError):
        ComponentProfilesDisplay.from_estimator(AnnealedBayesianMixture())


def test_all_blocks_of_a_mixed_table_are_drawn():
    fit = table_mixture(MIXED)
    drawn = ComponentProfilesDisplay.from_estimator(
        fit,
        feature_names=["age", "visits", "size", "wage"],
        category_names=[["a", "b", "c"], "xyz"],
    )
    assert set(drawn.ax_) == set(drawn.im_) == set(drawn.text_) == {"answers", "visits", "sizes"}
    assert [ax.get_title(loc="left") for ax in drawn.ax_.values()] == list(drawn.ax_)
    for block, ax in drawn.ax_.items():
        names = {"answers": ["abc", "xyz"]}.get(block)
        alone = ComponentProfilesDisplay.from_estimator(
            fit, block=block, feature_names=NAMES, category_names=names
        )
        np.testing.assert_array_equal(drawn.im_[block].get_array(), alone.im_.get_array())
        assert drawn.im_[block].get_clim() == alone.im_.get_clim()
        written = [[text.get_text() for text in row] for row in drawn.text_[block]]
        assert written == [[text.get_text() for text in row] for row in alone.text_]
        assert [t.get_text() for t in ax.get_yticklabels()] == labels_of(alone)
    # Only the lowest panel names the components.
    *others, lowest = drawn.ax_.values()
    assert [len(ax.get_xticks()) for ax in others] == [0] * len(others)
    assert len(lowest.get_xticks()) == len(drawn.numbers)


def test_every_scale_of_colours_says_what_it_means():
    drawn = ComponentProfilesDisplay.from_estimator(table_mixture(MIXED))
    labels = [bar.ax.get_ylabel() for bar in drawn.colorbars_]
    assert labels == ["Probability", "Standard deviations from\nthe mean of the column"]


def test_blocks_with_the_same_scale_are_neighbours():
    blocks = [("a", "bernoulli", [0]), ("b", "poisson", [1]), ("c", "bernoulli", [2, 3])]
    drawn = ComponentProfilesDisplay.from_estimator(table_mixture(blocks))
    assert list(drawn.ax_) == ["a", "c", "b"]
    assert len(drawn.colorbars_) == 2
    tops = [ax.get_position().y1 for ax in drawn.ax_.values()]
    assert tops == sorted(tops, reverse=True)


def test_blocks_in_given_axes():
    fit = table_mixture(MIXED)
    _, axes = plt.subplots(3)
    drawn = ComponentProfilesDisplay.from_estimator(fit, ax=axes)
    assert list(drawn.ax_.values()) == list(axes)
    figure, (left, right) = plt.subplots(1, 2)
    drawn = ComponentProfilesDisplay.from_estimator(fit, ax=right)
    assert drawn.figure_ is figure
    assert not right.axison
    assert left.axison
    with pytest.raises(ValueError, match="each of the 3 blocks that are drawn, but has 2"):
        ComponentProfilesDisplay.from_estimator(fit, ax=[left, right])
    with pytest.raises(ValueError, match="from a grid of subplots"):
        ComponentProfilesDisplay.from_estimator(fit, ax=figure.add_axes([0.1, 0.1, 0.5, 0.5]))
    with pytest.raises(ValueError, match="of which there are 2, but has 1"):
        ComponentProfilesDisplay.from_estimator(fit, category_names=["abc"])
