"""scikit-learn's callbacks see restarts and passes, may stop a fit, and change nothing else."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from peer_priors import PEER_OF_MIXTURES
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedHMM,
    AnnealedPMF,
)
from sklearn_anneal.annealing import DeterministicAnnealing

callback = pytest.importorskip("sklearn.callback", reason="scikit-learn has them since 1.9")
ProgressBar, ScoringMonitor = callback.ProgressBar, callback.ScoringMonitor

N_ANNEALED, N_FINISH = 4, 3


def rows(n=90):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)) + 5 * rng.integers(2, size=(n, 1))


def make_mixture(**parameters):
    """A fit of `N_ANNEALED` + `N_FINISH` passes per restart."""
    settings = {
        "n_components": 3,
        "annealing": DeterministicAnnealing(initial_temperature=3, n_passes=N_ANNEALED),
        "max_iter": N_FINISH,
        "tol": 0,
        "effort": 0,
        "init_params": "random",
        "random_state": 0,
    }
    return AnnealedBayesianGaussianMixture(**PEER_OF_MIXTURES | settings | parameters)


class Recorder:
    """Notes every task, and asks to stop where it is told to.

    `stop_at` is a pair of task name and number of tasks of that name.
    """

    max_propagation_depth = None

    def __init__(self, stop_at=None):
        self.stop_at = stop_at
        self.calls = []
        self.fitted = []

    def setup(self, estimator, context):
        self.calls.append(("setup", context.task_name, context.task_id))

    def teardown(self, estimator, context):
        self.calls.append(("teardown", context.task_name, context.task_id))

    def on_fit_task_begin(self, estimator, context):
        self.calls.append(("begin", context.task_name, context.task_id))

    def on_fit_task_end(self, estimator, context, *, X, fitted_estimator):
        self.calls.append(("end", context.task_name, context.task_id))
        self.fitted.append((context.task_name, fitted_estimator, X))
        if self.stop_at is None:
            return False
        name, number = self.stop_at
        return context.task_name == name and self.ended(name) == number

    def ended(self, name):
        return sum(call[:2] == ("end", name) for call in self.calls)

    def begun(self, name):
        return sum(call[:2] == ("begin", name) for call in self.calls)


class Onlooker(Recorder):
    """A recorder that does not ask for the fitted estimator."""

    def on_fit_task_end(self, estimator, context):
        self.calls.append(("end", context.task_name, context.task_id))


def scores(estimator, X, y, sample_weight=None, **beside):
    return {"score": estimator.score(X, sample_weight=sample_weight, **beside)}


def assert_same_fit(mixture, other):
    np.testing.assert_array_equal(mixture.lower_bounds_, other.lower_bounds_)
    np.testing.assert_array_equal(mixture.temperatures_, other.temperatures_)
    np.testing.assert_array_equal(mixture.restart_lower_bounds_, other.restart_lower_bounds_)
    for name in ("weights_", "means_", "covariances_", "mean_precision_"):
        np.testing.assert_array_equal(getattr(mixture, name), getattr(other, name))


# What callbacks see


@pytest.mark.parametrize("batch_size", [None, 30])
def test_tasks_are_restarts_and_their_passes(batch_size):
    recorder = Recorder()
    mixture = make_mixture(n_init=2, batch_size=batch_size).set_callbacks(recorder).fit(rows())
    one_restart = []
    for p in range(N_ANNEALED + N_FINISH):
        one_restart += [("begin", "pass", p), ("end", "pass", p)]
    expected = [("setup", "fit", 0), ("begin", "fit", 0)]
    for restart in range(2):
        expected += [("begin", "restart", restart), *one_restart, ("end", "restart", restart)]
    assert recorder.calls == [*expected, ("end", "fit", 0), ("teardown", "fit", 0)]
    assert mixture.n_iter_ == N_ANNEALED + N_FINISH


@pytest.mark.parametrize("annealing", ["none", "local_tempering", "structured"])
@pytest.mark.parametrize("batch_size", [None, 30])
def test_fitted_estimator_of_every_task_predicts(batch_size, annealing):
    recorder = Recorder()
    mixture = make_mixture(annealing=annealing, batch_size=batch_size).set_callbacks(recorder)
    if annealing != "none":
        mixture.set_params(annealing__n_passes=N_ANNEALED)
    mixture.fit(rows())
    X = rows()
    assert {name for name, _, _ in recorder.fitted} == {"pass", "restart", "fit"}
    for _, fitted, seen in recorder.fitted:
        assert seen.shape == X.shape
        assert fitted is not mixture
        assert fitted.predict(X).shape == (len(X),)
        assert np.isfinite(fitted.score(X))
        assert fitted.transform(X).shape == (len(X), 3)
        assert hasattr(fitted, "inverse_temperatures") == (annealing == "local_tempering")
    for _, fitted, _ in recorder.fitted[-2:]:
        np.testing.assert_array_equal(fitted.predict_proba(X), mixture.predict_proba(X))
    scores = [fitted.score(X) for name, fitted, _ in recorder.fitted if name == "pass"]
    assert len(set(scores)) > 2, "all passes show the same parameters"


@pytest.mark.parametrize("callbacks", [(), (Onlooker(),)])
def test_fitted_attributes_are_built_only_for_those_who_ask(callbacks, monkeypatch):
    mixture = make_mixture().set_callbacks(*callbacks)
    built = []
    fitted_attributes = mixture._fitted_attributes

    def spy(ctx):
        built.append(ctx)
        return fitted_attributes(ctx)

    monkeypatch.setattr(mixture, "_fitted_attributes", spy)
    mixture.fit(rows())
    assert len(built) == 1  # for the result


# What callbacks can do


def test_stop_while_annealing_skips_the_finish_and_all_later_restarts():
    stopper = Recorder(stop_at=("pass", 2))
    mixture = make_mixture(n_init=3).set_callbacks(stopper)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        mixture.fit(rows())
    assert stopper.begun("restart") == stopper.ended("restart") == 1
    assert stopper.ended("pass") == mixture.n_iter_ == len(mixture.lower_bounds_) == 2
    assert np.all(mixture.temperatures_ > 1)
    assert mixture.converged_ is False
    assert mixture.best_restart_ == 0
    assert np.isnan(mixture.restart_lower_bounds_[1:]).all()
    # The parameters are those of the last pass that was made.
    short = make_mixture().fit(rows())
    assert mixture.lower_bounds_[0] == short.lower_bounds_[0]
    # While annealing, bounds are those of tempered responsibilities; the last one never is.
    assert mixture.lower_bound_ == mixture.lower_bounds_[1] > short.lower_bounds_[1]
    last = [fitted for name, fitted, _ in stopper.fitted if name == "pass"][-1]
    np.testing.assert_array_equal(mixture.means_, last.means_)
    mixture.predict(rows())


def test_stop_in_the_finish():
    stopper = Recorder(stop_at=("pass", N_ANNEALED + 1))
    mixture = make_mixture(n_init=2).set_callbacks(stopper)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        mixture.fit(rows())
    assert mixture.n_iter_ == N_ANNEALED + 1
    assert mixture.temperatures_[-1] == 1
    assert mixture.converged_ is False
    assert stopper.begun("restart") == 1


def test_stop_in_a_later_restart_keeps_the_best_of_those_begun():
    whole = make_mixture(n_init=3).fit(rows())
    stopper = Recorder(stop_at=("pass", N_ANNEALED + N_FINISH + 1))
    mixture = make_mixture(n_init=3).set_callbacks(stopper).fit(rows())
    assert stopper.begun("restart") == 2
    assert np.isnan(mixture.restart_lower_bounds_).tolist() == [False, False, True]
    assert mixture.restart_lower_bounds_[0] == whole.restart_lower_bounds_[0]
    assert mixture.best_restart_ == np.nanargmax(mixture.restart_lower_bounds_)
    assert mixture.lower_bound_ == np.nanmax(mixture.restart_lower_bounds_)


def test_stop_at_the_end_of_a_restart():
    stopper = Recorder(stop_at=("restart", 1))
    mixture = make_mixture(n_init=3).set_callbacks(stopper).fit(rows())
    assert stopper.begun("restart") == 1
    assert mixture.n_iter_ == N_ANNEALED + N_FINISH


@pytest.mark.parametrize("annealing", ["structured", "local_tempering", "stochastic"])
def test_stop_in_minibatches(annealing):
    stopper = Recorder(stop_at=("pass", 2))
    mixture = make_mixture(annealing=annealing, batch_size=30).set_callbacks(stopper).fit(rows())
    assert mixture.n_iter_ == 2
    assert mixture.converged_ is False
    assert np.isfinite(mixture.lower_bound_)


def test_callback_that_fails_ends_the_fit_and_is_torn_down():
    class Failing(Recorder):
        def on_fit_task_end(self, estimator, context):
            raise RuntimeError("no more")

    failing = Failing()
    with pytest.raises(RuntimeError, match="no more"):
        make_mixture().set_callbacks(failing).fit(rows())
    assert failing.calls[-1] == ("teardown", "fit", 0)


@pytest.mark.parametrize("settings", [{"annealing": "none"}, {"effort": 0}])
def test_moves_that_need_no_effort_are_tasks(settings):
    """Extensions by scales of users, and other durations of states."""
    rng = np.random.default_rng(0)
    scales = np.repeat([0.2, 2.0], 30)[:, None]
    ratings = 3.0 + scales * (rng.normal(size=(60, 1)) + rng.normal(size=(60, 12)))
    frames = rng.normal(size=(200, 2)) + 4 * (np.arange(200)[:, None] // 8 % 2)
    for estimator, X, move in (
        (AnnealedPMF(1, max_iter=5), ratings, "extension"),
        (AnnealedHMM(2, duration="auto", max_iter=5), frames, "guided reshape"),
    ):
        recorder = Recorder()
        estimator.set_params(random_state=0, **settings).set_callbacks(recorder).fit(X)
        assert recorder.begun(move) == recorder.ended(move) == 1
        assert move in estimator.search_results_["move"]


def make_automatic(**parameters):
    """A mixture that finds the number of its components."""
    settings = {"n_components": "auto", "annealing": "none", "max_iter": 10}
    return make_mixture(**settings | parameters)


def runs_of(recorder):
    """The names of the runs that a recorder has seen begin, one for each number that is tried."""
    return [name for what, name, _ in recorder.calls if what == "begin" and "=" in name]


def test_search_for_a_number_is_seen_and_changes_nothing():
    plain, recorder = make_automatic().fit(rows()), Recorder()
    mixture = make_automatic().set_callbacks(recorder).fit(rows())
    assert_same_fit(mixture, plain)
    tried = [f"n_components={k}" for k in mixture.component_results_["n_components"]]
    names = runs_of(recorder)
    assert set(tried) == set(names)
    assert names[-1] == f"n_components={mixture.n_components_}"
    assert all(recorder.begun(name) == recorder.ended(name) for name in names)
    assert recorder.ended("pass") > mixture.n_passes_
    for name, fitted, _ in recorder.fitted:
        assert fitted.predict(rows()).shape == (90,), name
        if "=" in name:
            assert f"n_components={len(fitted.weights_)}" == name
    ids = [i for what, name, i in recorder.calls if what == "begin" and "=" in name]
    assert ids == list(range(len(names)))


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("annealing", ["none", "deterministic"])
def test_stop_in_the_search_for_a_number_ends_the_whole_fit(annealing, share):
    whole = Recorder()
    how = {"annealing": annealing}
    if annealing != "none":
        how["annealing"] = DeterministicAnnealing(initial_temperature=3, n_passes=N_ANNEALED)
    make_automatic(**how).set_callbacks(whole).fit(rows())
    stopper = Recorder(stop_at=("pass", max(1, int(share * whole.ended("pass")))))
    mixture = make_automatic(**how).set_callbacks(stopper).fit(rows())
    assert stopper.ended("pass") == stopper.stop_at[1]
    k, results = mixture.n_components_, mixture.component_results_
    assert k in results["n_components"]
    assert mixture.weights_.shape == (k,)
    assert mixture.lower_bound_ == mixture.lower_bounds_[-1]
    assert len(mixture.lower_bounds_) == mixture.n_iter_
    assert mixture.lower_bound_ == results["lower_bound"][results["n_components"] == k].item()
    assert np.isfinite(mixture.score(rows()))
    again = clone(mixture).set_params(n_components=k, warm_start=True)
    assert again.fit(rows()).weights_.shape == (k,)


def test_folds_of_numbers_in_doubt_are_seen_and_can_be_stopped():
    groups = np.outer(np.arange(100) % 2 == 1, np.arange(40) < 8)
    X = np.random.default_rng(4).normal(size=(100, 40)) + 2.5 * groups
    doubtful = AnnealedBayesianMixture("auto", emission="gaussian", random_state=0)
    whole = Recorder()
    mixture = clone(doubtful).set_callbacks(whole).fit(X)
    folds = [name for name in runs_of(whole) if "fold" in name]
    number = folds[0].partition(",")[0]
    assert folds[:5] == [f"{number}, fold {fold}" for fold in range(5)]
    assert "log_density_of_folds" in mixture.component_results_
    stopper = Recorder(stop_at=(folds[0], 1))
    mixture = clone(doubtful).set_callbacks(stopper).fit(X)
    assert sum("fold" in name for name in runs_of(stopper)) == 1
    assert "log_density_of_folds" not in mixture.component_results_
    assert mixture.predict(X).shape == (100,)


def test_stopped_search_for_a_number_is_resumed_with_what_it_had(tmp_path):
    stopper = Recorder(stop_at=("pass", 6))
    stopped = make_automatic().set_callbacks(stopper).fit(rows(), checkpoint=tmp_path)
    again = make_automatic().fit(rows(), checkpoint=tmp_path)
    assert again.n_components_ == stopped.n_components_
    assert again.lower_bound_ >= stopped.lower_bound_


# What callbacks do not do


@pytest.mark.parametrize("n_jobs", [None, 2])
@pytest.mark.parametrize("annealing", ["deterministic", "stochastic", "svi_plus", "structured"])
def test_result_does_not_depend_on_callbacks(annealing, n_jobs):
    # Enough work for threads to be used where they are allowed.
    X = np.random.default_rng(0).normal(size=(2048, 5))
    mixture = make_mixture(annealing=annealing, n_components=8, n_init=2, random_state=0)
    mixture.set_params(annealing__n_passes=5)
    plain = clone(mixture).fit(X)
    recorder = Recorder()
    mixture.set_params(n_jobs=n_jobs).set_callbacks(recorder).fit(X)
    assert_same_fit(mixture, plain)
    assert recorder.ended("restart") == 2
    assert recorder.ended("pass") >= 2 * N_FINISH


def test_callbacks_leave_nothing_behind():
    mixture = make_mixture().set_callbacks(Onlooker()).fit(rows())
    plain = make_mixture().fit(rows())
    assert set(vars(mixture)) - set(vars(plain)) == {"_skl_callbacks"}


# scikit-learn's own callbacks


def test_progress_bar(capsys):
    pytest.importorskip("rich")
    mixture = make_mixture(n_init=2).set_callbacks(ProgressBar())
    mixture.fit(rows())
    shown = capsys.readouterr().out
    assert "AnnealedBayesianGaussianMixture - fit" in shown
    for restart in range(2):
        assert f"AnnealedBayesianGaussianMixture - restart #{restart}" in shown
    assert "100%" in shown
    assert not re.search(r"\b[0-9]{1,2}%", shown)


def test_progress_bar_of_threads(capsys):
    pytest.importorskip("rich")
    X = np.random.default_rng(0).normal(size=(4000, 5))
    make_mixture(n_components=8, n_init=3, n_jobs=2).set_callbacks(ProgressBar()).fit(X)
    shown = capsys.readouterr().out
    for restart in range(3):
        assert f"restart #{restart}" in shown
    assert not re.search(r"\b[0-9]{1,2}%", shown)


@pytest.mark.parametrize("y", [None, np.zeros(90)])
def test_scoring_monitor_logs_every_pass(y):
    monitor = ScoringMonitor(scoring=scores)
    mixture = make_mixture(n_init=2).set_callbacks(monitor).fit(rows(), y)
    log = monitor.get_logs().data
    passes = [row for row in log if row["task_name"] == "pass"]
    assert len(passes) == 2 * (N_ANNEALED + N_FINISH)
    by_restart = {
        restart: [row["score"] for row in passes if row["parent_task_id_path"][-1] == restart]
        for restart in range(2)
    }
    assert all(len(scores) == N_ANNEALED + N_FINISH for scores in by_restart.values())
    assert by_restart[mixture.best_restart_][-1] == pytest.approx(mixture.score(rows()))
    whole = [row for row in log if row["task_name"] == "fit"]
    assert [row["score"] for row in whole] == pytest.approx([mixture.score(rows())])


def test_scoring_monitor_uses_sample_weight():
    weights = np.arange(90) % 3.0
    monitor = ScoringMonitor(scoring=scores)
    mixture = make_mixture().set_callbacks(monitor).fit(rows(), sample_weight=weights)
    last = [row for row in monitor.get_logs().data if row["task_name"] == "pass"][-1]
    assert last["score"] == pytest.approx(mixture.score(rows(), sample_weight=weights))


def test_scoring_monitor_uses_covariates():
    X, Z = rows(), np.arange(90.0)[:, None] % 7
    monitor = ScoringMonitor(scoring=scores)
    mixture = (
        make_mixture(weight_concentration_prior="auto").set_callbacks(monitor).fit(X, covariates=Z)
    )
    last = [row for row in monitor.get_logs().data if row["task_name"] == "pass"][-1]
    assert last["score"] == pytest.approx(mixture.score(X, covariates=Z))


@pytest.mark.xfail(
    raises=TypeError, strict=False, reason="scikit-learn 1.9 iterates over the one score"
)
def test_scoring_monitor_takes_the_default_score():
    monitor = ScoringMonitor(scoring=None)
    make_mixture().set_callbacks(monitor).fit(rows())
    monitor.get_logs()


# Inside of other estimators


def test_callbacks_of_a_pipeline_reach_the_mixture():
    recorder = Recorder()
    pipeline = make_pipeline(StandardScaler(), make_mixture()).set_callbacks(recorder)
    pipeline.fit(rows())
    assert recorder.begun("restart") == 1
    assert recorder.ended("pass") == N_ANNEALED + N_FINISH
    assert_same_fit(pipeline[-1], make_mixture().fit(StandardScaler().fit_transform(rows())))


def test_callbacks_of_a_grid_search_reach_the_mixtures(capsys):
    pytest.importorskip("rich")
    recorder = Recorder()
    search = GridSearchCV(make_mixture(), {"annealing__initial_temperature": [2, 5]}, cv=2)
    search.set_callbacks(recorder, ProgressBar(max_propagation_depth=None)).fit(rows())
    # Two candidates on two folds, and the refit.
    assert recorder.begun("restart") == 5
    assert recorder.ended("pass") == 5 * (N_ANNEALED + N_FINISH)
    assert "AnnealedBayesianGaussianMixture" in capsys.readouterr().out


def test_scoring_monitor_inside_of_a_pipeline():
    monitor = ScoringMonitor(scoring=scores)
    mixture = make_mixture().set_callbacks(monitor)
    pipeline = make_pipeline(StandardScaler(), mixture).fit(rows())
    log = monitor.get_logs().data
    assert sum(row["task_name"] == "pass" for row in log) == N_ANNEALED + N_FINISH
    assert log[-1]["score"] == pytest.approx(pipeline.score(rows()))


def test_stream_after_a_stopped_fit_goes_on_at_temperature_one():
    stopper = Recorder(stop_at=("pass", 2))
    mixture = make_mixture().set_callbacks(stopper).fit(rows())
    assert mixture.temperatures_[-1] > 1
    mixture.partial_fit(rows())
    assert mixture.temperatures_[-1] == 1
