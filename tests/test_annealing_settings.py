"""Tests of how annealing methods are named, set and defaulted."""

from __future__ import annotations

import numpy as np
import pytest
from cases_annealing import MIXTURE, mixture, run
from harness import context_of, one_update, open_run, quick
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_anneal import annealing
from sklearn_anneal.annealing import (
    ANNEALING,
    DeterministicAnnealing,
    LocalVariationalTempering,
    ProximityVI,
    StochasticAnnealing,
    StructuredVI,
    SVIPlus,
    VariationalTempering,
)
from sklearn_anneal.annealing.deterministic import _uncertainty

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("name", ANNEALING)
def test_no_setting_stays_automatic(name, rng):
    X = MIXTURE.data(rng, 40)
    for method, fit in (
        (name, "partial_fit"),
        (ANNEALING[name](), "partial_fit"),
        (quick(name, 3), "fit"),
    ):
        before = method if isinstance(method, str) else dict(vars(method))
        # Among streams, those of updates alone run the schedule.
        est = mixture(method, max_iter=2 if fit == "fit" else 1, total_samples=1000)
        getattr(est, fit)(X)
        settings = est.annealing_.get_params()
        assert "auto" not in [v for v in settings.values() if isinstance(v, str)]
        assert est.annealing is method
        assert est.annealing_ is not method
        assert type(est.annealing_) is ANNEALING[name]
        # A method carries no fitted state: it may serve other fits.
        assert before == (method if isinstance(method, str) else vars(method))


@pytest.mark.parametrize("name", ANNEALING)
def test_every_parameter_defaults_to_automatic(name):
    method = ANNEALING[name]()
    assert set(method.get_params().values()) <= {"auto"}
    assert clone(method).get_params() == method.get_params()
    assert set(method._defaults) | {"initial_temperature"} >= set(method.get_params())
    assert set(method._parameter_constraints) == set(method.get_params())


def test_given_settings_are_kept(rng):
    X = MIXTURE.data(rng, 40)
    est = mixture(DeterministicAnnealing(n_passes=3, jitter=0.2)).fit(X)
    assert est.annealing_.n_passes == 3 and est.annealing_.jitter == 0.2
    assert est.annealing_.form == "likelihood" and est.annealing_.schedule == "geometric"
    recommended = context_of(est).model.recommended
    for name, values in recommended.items():
        settings = mixture(name, max_iter=1).fit(X).annealing_.get_params()
        for key, value in values.items():
            if value != "auto":
                assert settings[key] == value


def test_recommended_settings_come_before_defaults_and_after_given_ones():
    method = DeterministicAnnealing(n_passes=3).resolve({"n_passes": 7, "jitter": 0.3})
    assert (method.n_passes, method.jitter, method.form) == (3, 0.3, "likelihood")


@pytest.mark.parametrize("deviation", [0.25, 0.15, 0.05])
def test_automatic_initial_temperature(deviation, rng):
    """6, with T − 1 halved until twenty updates do not merge the components."""
    X = np.vstack([rng.normal(c, deviation, size=(60, 2)) for c in (-1.0, 0.0, 1.0)])
    ctx, method, units = run("deterministic", X)
    chosen = method.initial_temperature

    def entropy(q):
        r = softmax(ctx.model.log_joint(units, ctx.model.expectations(q)), axis=1)
        return -(r * np.log(np.where(r > 0, r, 1.0))).sum(axis=1).mean() / np.log(3)

    def entropy_after_updates(t):
        constant = DeterministicAnnealing("likelihood", t, "constant", 20, 0.0)
        trial, constant, _ = open_run(mixture(constant), X, q=ctx.q)
        for _ in range(20):
            one_update(trial, constant, units)
        return entropy(trial.q)

    assert entropy(ctx.q) < 0.05
    assert _uncertainty(ctx, units, ctx.q) == pytest.approx(entropy(ctx.q), rel=1e-9)
    assert 1 < chosen <= 6
    halvings = np.log2(5 / (chosen - 1))
    assert halvings == round(halvings)
    assert entropy_after_updates(chosen) < 0.2
    for merging in range(round(halvings)):
        assert entropy_after_updates(1 + 5 / 2**merging) >= 0.2


def test_uncertain_assignments_are_not_annealed_automatically(rng):
    """Clusters on top of each other would merge at any temperature."""
    X = rng.normal(size=(200, 2))
    assert mixture("deterministic").fit(X).annealing_.initial_temperature == 1


def test_temperature_of_one_skips_the_schedule(rng):
    X = MIXTURE.data(rng, 40)
    for est in (
        mixture("deterministic", n_components=1, max_iter=4, tol=0.0),
        mixture(DeterministicAnnealing(initial_temperature=1), max_iter=4, tol=0.0),
    ):
        assert est.fit(X).annealing_.initial_temperature == 1
        assert est.n_iter_ == 4


WRONG = [
    (DeterministicAnnealing, "form", "prior"),
    (DeterministicAnnealing, "initial_temperature", 0.5),
    (DeterministicAnnealing, "initial_temperature", "hot"),
    (DeterministicAnnealing, "schedule", "exponential"),
    (DeterministicAnnealing, "n_passes", -1),
    (DeterministicAnnealing, "n_passes", 2.5),
    (DeterministicAnnealing, "jitter", -0.1),
    (StochasticAnnealing, "initial_noise", 1.5),
    (StochasticAnnealing, "initial_noise", -0.1),
    (StochasticAnnealing, "schedule", "geometric"),
    (StochasticAnnealing, "start", "kmeans"),
    (SVIPlus, "effective_batch_size", 0),
    (SVIPlus, "effective_batch_size", 1.5),
    (SVIPlus, "noise", "uniform"),
    (SVIPlus, "learning_rate", 0.0),
    (SVIPlus, "margin", 1.0),
    (VariationalTempering, "max_temperature", 1.0),
    (VariationalTempering, "n_temperatures", 1),
    (VariationalTempering, "damping", 0.0),
    (LocalVariationalTempering, "n_rounds", 0),
    (LocalVariationalTempering, "n_temperatures", 1),
    (StructuredVI, "gradient", "natural"),
    (StructuredVI, "evaluate_every", 0),
    (ProximityVI, "strength", -1.0),
    (ProximityVI, "lag", 0),
    (ProximityVI, "learning_rate", 1.1),
]


@pytest.mark.parametrize(("cls", "parameter", "value"), WRONG)
def test_settings_are_validated_in_fit(cls, parameter, value, rng):
    X = MIXTURE.data(rng, 40)
    method = cls(**{parameter: value})
    est = mixture(method)
    for fit in (est.fit, est.partial_fit):
        with pytest.raises(ValueError, match=f"'{parameter}' parameter of {cls.__name__}") as e:
            fit(X)
        assert repr(value) in str(e.value)
    assert getattr(method, parameter) == value
    with pytest.raises(NotFittedError):
        est.predict(X)


@pytest.mark.parametrize("value", ["cold", None, DeterministicAnnealing, 3])
def test_unknown_method_is_refused(value, rng):
    with pytest.raises(ValueError, match="'annealing' parameter") as caught:
        mixture(value).fit(MIXTURE.data(rng, 40))
    for name in ANNEALING:
        assert repr(name) in str(caught.value)


def test_nested_setting_turns_a_name_into_an_instance():
    est = mixture("deterministic").set_params(annealing__initial_temperature=2.0)
    assert type(est.annealing) is DeterministicAnnealing
    assert (
        est.annealing.get_params() == DeterministicAnnealing(initial_temperature=2.0).get_params()
    )
    est.set_params(annealing="svi_plus", annealing__noise="gaussian")
    assert type(est.annealing) is SVIPlus and est.annealing.noise == "gaussian"
    assert est.get_params()["annealing__noise"] == "gaussian"
    assert mixture("deterministic").set_params(n_components=2).annealing == "deterministic"


def test_cloned_estimators_do_not_share_their_method():
    est = mixture(DeterministicAnnealing(initial_temperature=2.0))
    other = clone(est).set_params(annealing__initial_temperature=3.0)
    assert est.annealing.initial_temperature == 2.0
    assert other.annealing.initial_temperature == 3.0


def test_grid_search_in_a_pipeline():
    X = load_digits().data[:150]
    pipe = Pipeline([
        ("scale", StandardScaler()),
        ("project", PCA(3, random_state=0)),
        ("mixture", mixture("deterministic", reg_covar=1e-6, max_iter=2)),
    ])  # fmt: skip
    grids = [
        {"mixture__annealing__initial_temperature": [2.0, 5.0]},
        {"mixture__annealing": ["none", quick("stochastic", 3), quick("structured", 3)]},
        {"mixture__annealing": ["deterministic"], "mixture__annealing__n_passes": [2, 3]},
    ]
    for grid in grids:
        search = GridSearchCV(pipe, grid, cv=2, error_score="raise").fit(X)
        scores = search.cv_results_["mean_test_score"]
        assert np.isfinite(scores).all()
        assert len(scores) == max(map(len, grid.values()))
    search = GridSearchCV(pipe, grids[0], cv=2).fit(X)
    best = search.best_estimator_["mixture"]
    assert best.annealing_.initial_temperature == search.best_params_[next(iter(grids[0]))]
    assert pipe["mixture"].annealing == "deterministic"
    # The candidates give different results, so that the search compares something.
    assert len(set(search.cv_results_["mean_test_score"])) == 2


def test_public_names_are_those_of_the_table():
    assert {cls.__name__ for cls in ANNEALING.values()} <= set(annealing.__all__)
    assert len(set(ANNEALING.values())) == len(ANNEALING)
