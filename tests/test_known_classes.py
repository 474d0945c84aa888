"""Mixtures in which the classes of some rows are known."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from designs import in_turn
from enumeration import gaussian_mixture_log_evidence, mixture_log_evidence
from harness import (
    assert_identical,
    context_of,
    open_run,
    quick,
)
from models.mixture import BLOCKS, table
from numpy.testing import assert_allclose, assert_array_equal
from peer_priors import PEER_OF_COLUMNS, PEER_OF_MIXTURES
from scipy.special import softmax
from scipy.stats import multivariate_t
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedBayesianMixture, Shards
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.data.units import Rows
from sklearn_anneal.estimators import _part_fits
from sklearn_anneal.families import Tempering
from sklearn_anneal.models._exchangeable import Exchangeable
from sklearn_anneal.models._known_classes import IMPOSSIBLE, KnownClasses

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("few_passes_of_searches"),
]

FORMS = {
    "full": {},
    "tied": {"covariance_type": "tied"},
    "diag": {"covariance_type": "diag", "factorization": "independent"},
    "bernoulli": {"emission": "bernoulli"},
    "categorical": {"emission": "categorical", "n_categories": 3},
    "poisson": {"emission": "poisson"},
    "gaussian": {"emission": "gaussian"},
    "blocks": {"emission": BLOCKS, "n_categories": {"categories": [3, 3]}},
}
forms = pytest.mark.parametrize("form", FORMS)


def make(form="full", per_class=1, **params):
    """An estimator without learned priors, of the parameters that a form has."""
    own = FORMS[form]
    settings = {"annealing": "none", "max_iter": 5, "random_state": 0, "reg_covar": 0.0}
    settings |= own | {"n_components_per_class": per_class} | params
    if "emission" in own:
        return AnnealedBayesianMixture(**(PEER_OF_COLUMNS | settings))
    return AnnealedBayesianGaussianMixture(**(PEER_OF_MIXTURES | settings))


def rows_of(form, rng, n, holes=0.1):
    return table(FORMS[form].get("emission", "gaussian"), holes)(rng, n)


def some_labels(rng, n, classes=(0, 1), share=0.5):
    y = np.where(rng.random(n) < share, rng.choice(classes, size=n), -1)
    y[: len(classes)] = classes
    return y


def far_apart(rng, n=150, share=0.1):
    """Rows of three clusters far from each other, their classes, and a share of these."""
    truth = rng.integers(3, size=n)
    X = 8.0 * np.eye(3)[truth, :2] + rng.standard_normal((n, 2))
    y = np.where(rng.random(n) < share, truth, -1)
    for c in range(3):
        y[np.flatnonzero(truth == c)[0]] = c
    return X, truth, y


# The local step and the bound


def plain_step(ctx, units, x=1.0, noise=1.0):
    """R ∝ exp(x L) with L = −∞ outside the class of a row; energy, entropy and shares."""
    model, joint = ctx.model, ctx.model.expectations(ctx.q)
    joint = joint._replace(own=model.components.for_rows(joint.own, units))
    log_joint = model.log_joint(units.unlabelled(np.arange(units.n_units)), joint)
    for row, label in enumerate(units.classes):
        if label >= 0:
            log_joint[row, model.component_classes != label] = -np.inf
    r = softmax(x * log_joint, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        energy = np.where(r > 0, r * log_joint, 0.0).sum(axis=1)
        entropy = -np.where(r > 0, r * np.log(r), 0.0).sum(axis=1)
    return r, units.weights @ energy, units.weights @ entropy


@pytest.mark.parametrize("x", [1.0, 0.4])
@forms
def test_local_step_is_that_of_a_joint_density_without_other_classes(form, x, rng):
    X, weights, noise = rows_of(form, rng, 90), rng.random(90) + 0.5, rng.random(90)
    est = make(form, 2)
    data = est._with_classes(X, some_labels(rng, 90), None, None, False)
    ctx, _, units = open_run(est, data, weights)
    model = ctx.model
    r, energy, entropy = plain_step(ctx, units, x)
    visit = model.visit(ctx.q, units, Tempering(x, 0.7))
    step = visit.finish(visit.step(visit.view(units), noise))
    assert step.energy == pytest.approx(energy, rel=1e-9)
    assert step.entropy == pytest.approx(entropy, rel=1e-9, abs=1e-9)
    # The same statistics as those of rows with these weights and responsibilities.
    shares = 0.7 * (weights * noise)[:, None] * r
    components, own, shares = model.components, visit.expected.own, np.ascontiguousarray(shares)
    bare = units.unlabelled(np.arange(90))
    sums = components.zeros(own)
    components.add(bare, shares, sums, own)
    raw = components._as_statistics(bare, shares, sums)
    for block in model.blocks:
        expected = model.block_statistics(block, raw, ctx.q)
        found = model.block_statistics(block, step.statistics, ctx.q)
        for key, value in expected.items():
            scale = np.abs(value).max() + 1.0
            assert_allclose(found[key], value, atol=1e-9 * scale, err_msg=key)


@pytest.mark.parametrize("form", ["full", "categorical", "gaussian"])
def test_temperatures_of_rows_keep_their_order(form, rng):
    """Rows of known class take another way, and their temperatures go back to their places."""
    X = rows_of(form, rng, 60)
    est = make(form, 2, annealing="local_tempering")
    data = est._with_classes(X, some_labels(rng, 60), None, None, False)
    ctx, method, units = open_run(est, data)
    t, options = method.temper(ctx, units), method.visit_options(ctx)
    visit = ctx.model.visit(ctx.q, units, t, **options)
    step = visit.step(units)
    for row in range(0, 60, 7):
        alone = visit.step(units.take(np.array([row])))
        assert step.inverse_temperatures[row] == pytest.approx(
            alone.inverse_temperatures[0], rel=1e-9
        )


@pytest.mark.parametrize("prior", ["dirichlet_process", "dirichlet_distribution"])
@pytest.mark.parametrize("form", ["full", "bernoulli", "categorical", "poisson", "gaussian"])
def test_a_fit_with_all_labels_is_exact(form, prior, rng):
    """Nothing is latent: the bound is the log evidence, and each class is a fit of its own."""
    X, y = rows_of(form, rng, 8, 0.0), np.array([0, 1, 1, 0, 1, 1, 0, 1])
    est = make(form, weight_concentration_prior_type=prior, max_iter=50).fit(X, y)
    enumerated = (
        mixture_log_evidence if "emission" in FORMS[form] else gaussian_mixture_log_evidence
    )
    assert est.lower_bound_ == pytest.approx(enumerated(est, X, y), rel=1e-10)
    shares = np.equal.outer(y, est.component_classes_).astype(float)
    ctx = context_of(est)
    units = est._make_units(est._validated_rows(X, False, 1), None).centered(ctx.summary)
    expected = ctx.model.posterior_given(shares, units, ctx.summary, ctx.prior)
    for key, value in expected.items():
        assert_allclose(ctx.q[key], value, rtol=1e-9, atol=1e-9, err_msg=key)


@pytest.mark.parametrize("name", ["reheating", "deterministic", "svi_plus"])
@pytest.mark.parametrize("form", ["full", "categorical"])
def test_a_stream_without_a_label_is_the_one_without_classes(form, name, rng):
    X = rows_of(form, rng, 60)
    bare = make(form, None, n_components=3, annealing=quick(name), total_samples=300.0)
    held = make(form, {0: 2, 1: 1}, annealing=quick(name), total_samples=300.0)
    for part in (X[:30], X[30:]):
        bare.partial_fit(part)
        held.partial_fit(part, np.full(30, -1), classes=[0, 1])
    of_classes = ("classes_", "component_classes_")
    for each in of_classes:
        assert hasattr(held, each)
        delattr(held, each)
    assert_identical(bare, held)


# Fits


@in_turn(name=ANNEALING, batch_size=(None, 40))
def test_components_keep_to_their_classes(name, batch_size, rng):
    X, truth, y = far_apart(rng)
    est = AnnealedBayesianGaussianMixture(
        n_components_per_class={0: 1, 1: 2, 2: 1},
        n_unlabelled_components=1,
        annealing=quick(name, 10),
        batch_size=batch_size,
        effort=2 if name == "reheating" else "auto",
        max_iter=10,
        random_state=0,
    ).fit(X, y)
    # Other optima may cross the classes, so that moves are made only if they are asked for.
    moves = set(est.search_results_["move"]) - {"plain", "continuation"}
    assert bool(moves) == (name == "reheating")
    assert sorted(est.component_classes_) == [-1, 0, 1, 1, 2]
    assert_array_equal(est.classes_, [-1, 0, 1, 2])
    assert est.score(X, y) > 0.7
    assert est.score(X, truth) > 0.7


@pytest.mark.parametrize("init_params", ["kmeans", "k-means++", "random", "random_from_data"])
@pytest.mark.parametrize("form", ["full", "tied", "gaussian"])
def test_clusters_have_the_classes_of_their_labels(form, init_params, rng):
    X, truth, y = far_apart(rng)
    est = make(form, init_params=init_params, annealing="none", max_iter=30).fit(X, y)
    if init_params == "kmeans":
        assert est.score(X, truth) == 1.0
    assert (est.predict(X)[y >= 0] == y[y >= 0]).all()


def test_a_class_that_no_label_names_is_found(rng):
    X, truth, y = far_apart(rng, 300)
    y[y == 2] = -1
    est = AnnealedBayesianGaussianMixture(
        n_components_per_class=1, n_unlabelled_components=1, effort=0, random_state=0
    ).fit(X, y)
    assert_array_equal(est.classes_, [-1, 0, 1])
    assert_array_equal(est.component_classes_, [0, 1, -1])
    assert accuracy_score(np.where(truth == 2, -1, truth), est.predict(X)) > 0.99
    names = np.array(["a", "b", -1], dtype=object)
    of_names = AnnealedBayesianGaussianMixture(
        n_components_per_class=1, n_unlabelled_components=1, effort=0, random_state=0
    ).fit(X, names[y])
    assert_array_equal(of_names.classes_, np.array([-1, "a", "b"], dtype=object))
    assert_array_equal(of_names.predict_proba(X), est.predict_proba(X))
    assert_array_equal(of_names.predict(X), names[est.predict(X)])


def test_a_label_of_a_row_of_weight_zero_says_nothing(rng):
    """Not even that there is such a class."""
    X, _, y = far_apart(rng, 60)
    other = np.append(y, 7)
    weights = np.append(np.ones(60), 0.0)
    absent = make().fit(np.vstack([X, [[0.0, 0.0]]]), other, sample_weight=weights)
    assert_identical(absent, make().fit(X, y))


def test_a_checkpoint_is_that_of_the_labels(tmp_path, rng, no_wait_for_the_disk):
    X, _, y = far_apart(rng)
    make(max_iter=6, annealing=quick("deterministic")).fit(X, y, checkpoint=tmp_path)
    y[y == 2] = -1
    with pytest.raises(ValueError, match="checkpoint"):
        make(max_iter=6, annealing=quick("deterministic")).fit(X, y, checkpoint=tmp_path)


def test_streams_and_warm_starts_keep_the_classes(rng):
    X, truth, y = far_apart(rng, 200, 0.3)
    est = make("full").partial_fit(X[:60], y[:60], classes=[2, 0, 1])
    copied = pickle.loads(pickle.dumps(est))
    for each in (est, copied):
        each.partial_fit(X[60:120], y[60:120]).partial_fit(X[120:])
    assert_identical(est, copied)
    assert_array_equal(est.classes_, [0, 1, 2])
    assert est.score(X, truth) > 0.9
    for bad in (
        lambda: est.partial_fit(X[:3], [0, 5, -1]),
        lambda: est.set_params(warm_start=True).fit(X[:9], [5] * 9),
    ):
        with pytest.raises(ValueError, match="class 5, but the classes are"):
            bad()
    with pytest.raises(ValueError, match="differ from those of earlier data"):
        est.partial_fit(X[:3], classes=[0, 1])
    before = est.lower_bound_
    est.fit(X, np.full(200, -1))
    assert_array_equal(est.classes_, [0, 1, 2])
    assert est.lower_bound_ != before
    # The classes of a fit stay when a stream goes on with them.
    make().fit(X, y).partial_fit(X[:30], y[:30])


def test_the_order_of_components_takes_their_classes_along(rng):
    X, truth, y = far_apart(rng)
    weights = "dirichlet_distribution"  # whose weights do not depend on the order
    est = make(per_class=2, weight_concentration_prior_type=weights).fit(X, y)
    before, classes = est.predict_proba(X), est.component_classes_
    order = rng.permutation(6)
    est.reorder(order)
    assert_array_equal(est.component_classes_, classes[order])
    assert_allclose(est.predict_proba(X), before, atol=1e-12)


def test_given_components_are_those_of_the_classes_in_their_order(rng):
    X, truth, y = far_apart(rng)
    means = 8.0 * np.eye(3)[[0, 0, 1, 2], :2] + [[1, 0], [-1, 0], [0, 0], [0, 0]]
    est = AnnealedBayesianGaussianMixture(
        n_components_per_class={0: 2, 1: 1, 2: 1}, means_init=means, max_iter=0, effort=0
    ).fit(X, y)
    assert_array_equal(est.component_classes_, [0, 0, 1, 2])
    assert_allclose(est.means_, means, atol=1.5)


# Starts and moves


def test_seeds_are_rows_of_the_class_of_their_component(rng):
    labels = np.array([0, 1, -1, -1, 0, 1, -1, 1])
    known = KnownClasses(labels, np.array([0, 0, 1, -1, 2]))
    points = rng.standard_normal((8, 2))
    for seed in range(20):
        for given in (None, points):
            chosen = known.seeds(np.ones(8), np.random.RandomState(seed), given)
            assert len(set(chosen)) == 5
            assert_array_equal(labels[chosen], [0, 0, 1, -1, -1])


def test_clusters_keep_rows_of_known_class(rng):
    X, truth, y = far_apart(rng)
    known = KnownClasses(y, np.array([2, 0, 1, 1]))
    labels = known.clusters(X, np.ones(150), np.random.RandomState(0))
    assert (known.components[labels][y >= 0] == y[y >= 0]).all()
    assert (known.components[labels] == truth).mean() == 1.0


def test_a_sample_has_rows_of_every_class(rng):
    classes = np.where(np.arange(5000) < 3, 1, -1)
    classes[-1] = 0
    rows = Rows(rng.standard_normal((5000, 2)), classes=classes)
    found = rows.subset(100, np.random.RandomState(0))
    assert found.n_units == 100
    assert_array_equal(np.unique(found.classes), [-1, 0, 1])
    assert rows.subset(5000, np.random.RandomState(0)) is rows


def alike(rng, per_class):
    """A fit to two classes whose rows have the same distribution."""
    X = rng.standard_normal((200, 2))
    y = np.where(np.arange(200) < 100, np.arange(200) % 2, -1)
    est = AnnealedBayesianGaussianMixture(
        n_components_per_class=per_class, annealing="none", random_state=0
    ).fit(X, y)
    ctx = context_of(est)
    rows = Rows(X, classes=y).centered(ctx.summary)
    return ctx, rows


def test_moves_stay_within_classes(rng, monkeypatch):
    ctx, rows = alike(rng, 1)
    own = rows, ctx.q, ctx.summary, ctx.prior
    for seed in range(5):
        draw = np.random.default_rng(seed)
        assert ctx.model.merged(*own, draw) is None
        assert ctx.model.swapped(*own, draw, guided=True) is None
        assert ctx.model.swapped(*own, draw, guided=False) is None
    ctx, rows = alike(rng, 3)
    own, found = (rows, ctx.q, ctx.summary, ctx.prior), []
    original = type(ctx.model).posterior_given
    monkeypatch.setattr(
        type(ctx.model),
        "posterior_given",
        lambda model, r, *args: found.append(r) or original(model, r, *args),
    )
    for seed in range(20):
        draw = np.random.default_rng(seed)
        for move in (
            lambda draw=draw: ctx.model.merged(*own, draw),
            lambda draw=draw: ctx.model.swapped(*own, draw, guided=True),
            lambda draw=draw: ctx.model.swapped(*own, draw, guided=False),
        ):
            if move() is None:
                continue
            known = rows.classes >= 0
            others = ctx.model.component_classes != rows.classes[known, None]
            assert found[-1][known][others].max() == 0.0
    # Without the classes, components of both would be one.
    ctx, rows = alike(rng, 1)
    monkeypatch.setattr(type(ctx.model), "groups", Exchangeable.groups)
    merged = [
        ctx.model.merged(rows, ctx.q, ctx.summary, ctx.prior, np.random.default_rng(seed))
        for seed in range(5)
    ]
    assert any(each is not None for each in merged)


# What users give, and scikit-learn


def test_labels_mean_the_same_in_every_form(rng):
    X, truth, y = far_apart(rng, 80)
    names = np.array(["a", "b", "c", None], dtype=object)[y]
    expected = make().fit(X, y)
    with_unknown = np.where(y < 0, np.nan, y)
    for given in (
        y.tolist(),
        y.astype(np.int8),
        pd.Series(y),
        with_unknown,
        pd.Series(with_unknown).astype("Int64"),
        np.array([None if label < 0 else int(label) for label in y], dtype=object),
    ):
        est = make().fit(X, given)
        assert est.lower_bound_ == expected.lower_bound_
        assert_array_equal(est.predict(X), expected.predict(X))
    for unknown in (None, -1, np.nan):
        given = np.array([unknown if name is None else name for name in names], dtype=object)
        est = make().fit(X, given)
        assert est.lower_bound_ == expected.lower_bound_
        assert_array_equal(est.classes_, ["a", "b", "c"])
    est = make().fit(X, truth == 1)
    assert est.predict(X).dtype == bool


REFUSED = [
    ({}, None, "requires y to be passed, but the target y is None"),
    ({}, np.full(30, -1), "y has no label"),
    ({}, np.arange(29) % 2, "y has 29 entries, but X has 30 rows"),
    ({}, np.linspace(0, 1, 30), "Unknown label type: continuous"),
    ({}, np.full((30, 2), 1), "1d array"),
    ({}, np.array(["a", "-1"] * 15), "dtype=object"),
    ({}, np.array(["a", 1] * 15, dtype=object), "not of one kind"),
    ({}, np.ma.masked_array(np.arange(30) % 2, np.arange(30) < 3), "masked"),
    ({"n_components_per_class": {0: 1}}, np.arange(30) % 2, "no number for the class 1"),
    ({"n_components_per_class": {0: 1, 1: 1, 2: 1}}, np.arange(30) % 2, "has the class 2"),
    ({"n_components_per_class": {0: 1, 1: 0}}, np.arange(30) % 2, "at least 1"),
    ({"n_components_per_class": {0: 1, 1: 1.5}}, np.arange(30) % 2, "at least 1"),
    ({"n_components_per_class": 0}, np.arange(30) % 2, "n_components_per_class"),
    ({"n_components": "auto"}, np.arange(30) % 2, "not one for each class"),
    ({"n_components": 3}, np.arange(30) % 2, "make 2 components"),
    ({"n_components_per_class": 20}, np.arange(30) % 2, "n_components = 40"),
    (
        {"n_components_per_class": None, "n_unlabelled_components": 1},
        np.arange(30) % 2,
        "give n_components_per_class too",
    ),
]


@pytest.mark.parametrize(("params", "y", "message"), REFUSED)
@pytest.mark.parametrize("form", ["full", "gaussian"])
def test_what_makes_no_sense_is_refused(form, params, y, message, rng):
    est = make(form, **{"n_components_per_class": 1} | params)
    with pytest.raises((ValueError, TypeError), match=message):
        est.fit(rng.standard_normal((30, 2)), y)
    assert not hasattr(est, "n_features_in_")


def in_parts(values):
    """Three parts, of which the second has no rows, and whose classes differ."""
    return [values[:20], values[20:20], values[20:]]


@forms
def test_labels_of_parts_are_those_of_the_data(form, rng):
    X, y = rows_of(form, rng, 60), some_labels(rng, 60)
    y[y == y[0]] = -1
    y[:5] = 7
    weights = rng.integers(0, 3, 60).astype(float)
    whole = make(form).fit(X, y, sample_weight=weights)
    one = make(form).fit(Shards([X]), [y], sample_weight=[weights])
    assert_identical(one, whole)
    several = make(form).fit(Shards(in_parts(X)), in_parts(y), sample_weight=in_parts(weights))
    assert several.lower_bound_ == pytest.approx(whole.lower_bound_, rel=1e-9)
    assert_array_equal(several.classes_, whole.classes_)
    assert_array_equal(several.predict(X), whole.predict(X))


@pytest.mark.parametrize("n_rows", [None, 30])
def test_classes_are_known_in_some_parts_only(n_rows, rng, monkeypatch):
    """Starts read rows with labels, of which there are few."""
    X, truth, y = far_apart(rng, 90, 0.0)
    if n_rows is not None:
        monkeypatch.setattr(_part_fits, "ROWS_FOR_STARTS", n_rows)
    y[60:] = -1
    for c in range(3):
        y[np.flatnonzero(truth[:60] == c)[:2]] = c
    est = make(init_params="kmeans").fit(Shards(in_parts(X)), in_parts(y))
    assert est.score(X, truth) == 1.0
    assert est.lower_bound_ == pytest.approx(
        make(init_params="kmeans", max_iter=20).fit(X, y).lower_bound_, abs=2.0
    )


def functions(parts):
    return Shards([lambda part=part: part for part in parts])


@pytest.mark.parametrize("read", [list, tuple, functions])
def test_labels_of_parts_come_in_every_form(read, rng):
    X, truth, y = far_apart(rng, 60)
    names = np.where(y < 0, None, np.array(["ant", "bee", "cat"], dtype=object)[truth])
    per_class = {"ant": 1, "bee": 2, "cat": 1}
    est = make("full", per_class).fit(Shards(in_parts(X)), read(in_parts(names)))
    assert est.classes_.tolist() == ["ant", "bee", "cat"]
    assert est.component_classes_.tolist() == ["ant", "bee", "bee", "cat"]
    bound = est.lower_bound_
    est.set_params(warm_start=True, max_iter=0).fit(Shards(in_parts(X)), read(in_parts(names)))
    assert est.lower_bound_ == pytest.approx(bound, rel=1e-9)


def test_a_stream_of_parts_is_one_batch_after_another(rng):
    X, _, y = far_apart(rng, 60)
    stream = make("full", 1).partial_fit(X[:20], y[:20], classes=[0, 1, 2])
    stream.partial_fit(X[20:], y[20:])
    parts = make("full", 1).partial_fit(Shards(in_parts(X)), in_parts(y), classes=[0, 1, 2])
    assert_identical(parts, stream)


WRONG_PARTS = [
    (None, "requires y to be passed"),
    ([-np.ones(20), np.ones(0), -np.ones(40)], "y has no label"),
    ([np.ones(20), np.ones(0), np.array(["b"] * 40)], "all numbers or all strings"),
    ([np.ones(20), np.ones(0), np.ones(39)], "Part 2: .*y has 39 entries, but X has 40 rows"),
    ([np.ones(20), np.ones(40)], "one entry for each of the 3 parts"),
]


@pytest.mark.parametrize(("y", "message"), WRONG_PARTS)
def test_wrong_labels_of_parts_are_refused(y, message, rng):
    est = make()
    with pytest.raises(ValueError, match=message):
        est.fit(Shards(in_parts(rng.standard_normal((60, 2)))), y)
    assert not hasattr(est, "n_features_in_") and not hasattr(est, "_class_labels")


def test_new_labels_of_parts_are_refused_by_a_fit_that_goes_on(rng):
    X, _, y = far_apart(rng, 60)
    est = make(warm_start=True).fit(Shards(in_parts(X)), in_parts(y))
    y[30] = 9
    with pytest.raises(ValueError, match="y has the class 9, but the classes are"):
        est.fit(Shards(in_parts(X)), in_parts(y))


def test_classes_beside_no_labels_are_refused(rng):
    X, _, y = far_apart(rng, 40)
    for data, labels in ((X, y), (Shards([X[:20], X[20:]]), [y[:20], y[20:]])):
        with pytest.raises(ValueError, match="first call to partial_fit"):
            make().partial_fit(data, labels)
    with pytest.raises(ValueError, match="n_components_per_class=None ignores"):
        make(per_class=None).partial_fit(X, y, classes=[0, 1])


def test_score_is_the_accuracy_of_rows_with_a_label(rng):
    X, truth, y = far_apart(rng, 90)
    est = make().fit(X, y)
    wrong = truth.copy()
    wrong[:30] = (wrong[:30] + 1) % 3
    assert est.score(X, wrong) == pytest.approx(accuracy_score(wrong, est.predict(X)))
    assert est.score(X, np.where(np.arange(90) < 30, -1, wrong)) == est.score(X[30:], truth[30:])
    weights = rng.random(90)
    expected = accuracy_score(wrong, est.predict(X), sample_weight=weights)
    assert est.score(X, wrong, sample_weight=weights) == pytest.approx(expected)
    parts = Shards([X[:20], X[20:]])
    assert est.score(parts, [wrong[:20], wrong[20:]]) == pytest.approx(est.score(X, wrong))
    for y_of_none in (None, np.full(90, -1)):
        with pytest.raises(ValueError, match=r"score_samples\(X\)\.mean\(\)"):
            est.score(X, y_of_none)
    assert np.isfinite(est.score_samples(X)).all()


def test_probabilities_of_classes_are_sums_over_their_components(rng):
    """They follow from the predictive densities of the components, whose sum is the score."""
    X, _, y = far_apart(rng, 90)
    est = make("full", {0: 1, 1: 3, 2: 2}).fit(X.astype(np.float32), y)
    assert est.transform(X.astype(np.float32)).shape == (90, 6)
    dof, mean, scale = est._context().model.components.student_t(est._context().q)
    mean = mean + est._context().summary.center
    joint = est.weights_ * np.transpose(
        [multivariate_t.pdf(X, mean[k], scale[k], dof[k]) for k in range(6)]
    )
    expected = [joint[:, est.component_classes_ == c].sum(axis=1) for c in est.classes_]
    found = est.predict_proba(X.astype(np.float32))
    assert_allclose(found.T, expected / np.exp(est.score_samples(X)), atol=1e-6)
    assert found.dtype == np.float32
    assert_array_equal(est.predict(X), est.classes_[found.argmax(axis=1)])
    assert len(est.get_feature_names_out()) == 6
    parts = est.predict(Shards([X[:20], X[20:]]))
    assert_array_equal(np.concatenate(list(parts)), est.predict(X))


def test_few_rows_of_large_weights_are_so_many_copies(rng):
    """Starts learn priors from five rows per component, of which copies and weights count alike."""
    X, truth, _ = far_apart(rng, 12)
    settings = {"n_components_per_class": 1, "max_iter": 0, "effort": 0, "random_state": 0}
    est = AnnealedBayesianGaussianMixture(**settings).fit(X, truth, np.full(12, 2.0))
    copies = AnnealedBayesianGaussianMixture(**settings).fit(
        np.repeat(X, 2, 0), np.repeat(truth, 2)
    )
    assert est.lower_bound_ == pytest.approx(copies.lower_bound_, rel=1e-10)
    assert est.mean_precision_prior_ == pytest.approx(copies.mean_precision_prior_)


@pytest.mark.parametrize(
    "labels",
    [
        lambda y: pd.Series(y).replace(-1, pd.NA).astype("Int64"),
        lambda y: pd.Series(y).replace(-1, pd.NA).astype("Int64").array,
        lambda y: pd.Series(y).astype(object).where(y >= 0, pd.NA),
        lambda y: pd.Series(y).astype("string").where(y >= 0, pd.NA),
    ],
    ids=["nullable", "array of pandas", "objects", "strings"],
)
def test_labels_of_pandas_that_are_missing_are_unknown(labels, rng):
    X, _, y = far_apart(rng, 60)
    est = make().fit(X, y)
    other = make().fit(X, labels(y))
    assert_allclose(other.predict_proba(X), est.predict_proba(X))
    assert other.score(X, labels(y)) == est.score(X, y)


def test_searches_and_scorers_of_scikit_learn(rng):
    X, truth, y = far_apart(rng, 120, 0.4)
    est = AnnealedBayesianGaussianMixture(n_components_per_class=1, max_iter=10, effort=0)
    assert is_classifier(est)
    assert not is_classifier(AnnealedBayesianGaussianMixture())
    assert cross_val_score(est, X, truth, cv=3, scoring="roc_auc_ovr").min() > 0.99
    assert cross_val_score(est, X, truth, cv=3, scoring="neg_log_loss").min() > -0.1
    # Only rows with a label are in the test folds; those without one are always in training.
    labelled = np.flatnonzero(y >= 0)
    folds = [
        (np.setdiff1d(np.arange(120), labelled[test]), labelled[test])
        for _, test in StratifiedKFold(3).split(X[labelled], y[labelled])
    ]
    pipe = make_pipeline(StandardScaler(), est)
    grid = {"annealedbayesiangaussianmixture__n_components_per_class": [1, 2]}
    search = GridSearchCV(pipe, grid, cv=folds).fit(X, y)
    assert search.best_score_ > 0.95
    assert search.score(X, truth) > 0.95


def test_without_components_per_class_y_is_ignored(rng):
    X, _, y = far_apart(rng, 60)
    one = make(per_class=None, n_components=2).fit(X, y)
    assert_identical(one, make(per_class=None, n_components=2).fit(X))
    assert not hasattr(one, "classes_")
    assert_array_equal(one.transform(X), one.predict_proba(X))


def test_predictions_are_those_of_the_mixture_as_it_was_fitted(rng):
    X, _, y = far_apart(rng, 60)
    est = make().fit(X, y)
    found = est.predict(X), est.predict_proba(X), est.score(X, y)
    for other in ({"n_unlabelled_components": 1}, {"n_components_per_class": None}):
        est.set_params(**other)
        assert_array_equal(est.predict(X), found[0])
        assert_array_equal(est.predict_proba(X), found[1])
        assert est.score(X, y) == found[2]
    est.set_params(n_unlabelled_components=0, n_components=2).fit(X)
    assert not hasattr(est, "classes_")
    assert not hasattr(est, "component_classes_")


def test_the_sentinel_is_below_every_density():
    assert np.exp(1e-6 * IMPOSSIBLE) == 0.0
    assert IMPOSSIBLE - IMPOSSIBLE == 0.0


def test_parts_of_unknown_classes_have_numbers_beside_names(rng):
    X, z, _ = far_apart(rng)
    names = np.array(["a", "b", "c"])[z]
    first = np.full(50, -1)
    for of_parts in ([first, names[50:100], names[100:]], [first, pd.Series(names[50:])]):
        ends = np.cumsum([len(part) for part in of_parts])[:-1]
        est = make().fit(Shards(np.split(X, ends)), of_parts)
        assert est.classes_.tolist() == ["a", "b", "c"]


def test_fitted_classes_do_not_depend_on_later_parameters(rng):
    X, y, _ = far_apart(rng)
    est = make().fit(X, y)
    score = est.score(X, y)
    est.set_params(n_unlabelled_components=1).reorder([2, 0, 1])
    assert est.classes_.tolist() == [0, 1, 2] and est.score(X, y) == score
    est.set_params(n_components_per_class=None)
    assert est.score(Shards([X[:50], X[50:]]), [y[:50], y[50:]]) == pytest.approx(score)


@pytest.mark.parametrize("stream", [False, True])
def test_a_fit_without_classes_does_not_go_on_with_them(stream, rng):
    X, y, _ = far_apart(rng)
    est = make(per_class=None, n_components=3, warm_start=True).fit(X)
    est.set_params(n_components_per_class=1, n_components=3)
    with pytest.raises(ValueError, match="goes on.*n_components_per_class=None"):
        (est.partial_fit if stream else est.fit)(X, y)
