"""A fit that is refused or interrupted leaves the estimator as it was, at whatever moment."""

from __future__ import annotations

import numpy as np
import pytest
from harness import models, one_of_each_class
from scipy.sparse import issparse
from sklearn.base import clone
from test_callbacks import Recorder

from sklearn_anneal.inference import conjugate, loop, visits

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def state_of(est):
    """What an estimator holds, by identity: fits replace values, and change none in place."""
    return {name: id(value) for name, value in vars(est).items()}


def contents_of(est):
    """Copies of its arrays."""
    return {k: np.array(v) for k, v in vars(est).items() if isinstance(v, np.ndarray)}


def assert_unchanged(est, held, contents):
    assert state_of(est) == held
    for name, value in contents.items():
        np.testing.assert_array_equal(getattr(est, name), value, err_msg=name)


class Stop(BaseException):
    """An interrupt."""


def interrupt_at(monkeypatch, owner, name, number):
    """Raise at the call of a function with this number, counted from 1."""
    original, calls = getattr(owner, name), [0]

    def interrupting(*args, **how):
        calls[0] += 1
        if calls[0] == number:
            raise Stop
        return original(*args, **how)

    monkeypatch.setattr(owner, name, interrupting)


# The first and a later visit, a block of parameters, and the last bound.
PLACES = [
    (visits, "visit", 1),
    (visits, "visit", 3),
    (conjugate, "posterior", 2),
    (loop, "_end", 1),
]


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_a_fit_that_is_interrupted_in_an_update_changes_nothing(entry, rng, monkeypatch):
    X, other = entry.data(rng, 40), entry.data(rng, 30)
    est = entry.make(annealing="none", max_iter=4, tol=0.0, **entry.first).fit(X)
    held, contents = state_of(est), contents_of(est)
    calls = []

    def interrupting(update):
        def interrupted(*args, **how):
            calls.append(1)
            if len(calls) == 2:
                raise Stop
            return update(*args, **how)

        return interrupted

    for rule, update in loop.UPDATES.items():
        monkeypatch.setitem(loop.UPDATES, rule, interrupting(update))
    with pytest.raises(Stop):
        est.fit(other)
    assert_unchanged(est, held, contents)


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_an_interrupted_fit_changes_nothing(entry, rng, monkeypatch):
    """Nor does it after another interrupt, at another moment."""
    X, other = entry.data(rng, 40), entry.data(rng, 30)
    est = entry.make(annealing="none", max_iter=4, tol=0.0, **entry.first).fit(X)
    held, contents = state_of(est), contents_of(est)
    own = [(type(est), name, 1) for name in ("_fitted_attributes", "_complete_fit", "_warn")]
    for place in (*PLACES, *own):
        with monkeypatch.context() as patch:
            interrupt_at(patch, *place)
            with pytest.raises(Stop):
                est.fit(other)
        assert_unchanged(est, held, contents)
    again = clone(est).fit(other)
    assert est.fit(other).lower_bound_ == again.lower_bound_


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_a_first_fit_that_is_interrupted_leaves_nothing(entry, rng, monkeypatch):
    X = entry.data(rng, 40)
    est = entry.make(annealing="none", max_iter=4, **entry.first)
    held = state_of(est)
    for place in (("_warn", 1), ("_complete_fit", 1)):
        with monkeypatch.context() as patch:
            interrupt_at(patch, type(est), *place)
            with pytest.raises(Stop):
                est.fit(X)
        assert state_of(est) == held
        assert not hasattr(est, "n_features_in_")


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_a_callback_that_fails_at_the_end_changes_nothing(entry, rng):
    class Failing(Recorder):
        def on_fit_task_end(self, estimator, context, **how):
            if context.task_name == "fit":
                raise Stop
            return False

    X = entry.data(rng, 40)
    est = entry.make(annealing="none", max_iter=3, **entry.first).fit(X)
    est.set_callbacks(Failing())
    held, contents = state_of(est), contents_of(est)
    with pytest.raises(Stop):
        est.fit(entry.data(rng, 30))
    assert_unchanged(est, held, contents)


@pytest.mark.parametrize("entry", models())
def test_predictions_change_nothing(entry, rng):
    """Those of blocks of frames set an attribute anew, which threads then shared."""
    X = entry.data(rng, 40)
    est = entry.make(annealing="none", max_iter=3, **entry.first).fit(X)
    held, contents = state_of(est), contents_of(est)
    for name in ("predict", "predict_proba", "transform", "score_samples", "score", "impute"):
        if hasattr(est, name) and not (name == "impute" and issparse(X)):
            getattr(est, name)(X)
            assert_unchanged(est, held, contents)


@pytest.mark.parametrize("annealing", ["none", "local_tempering"])
def test_a_refused_width_never_reaches_the_kernels(annealing, rng):
    """A fit to wider rows that is refused left their number behind, and predictions read beyond."""
    entry = models()[0].values[0]
    X = entry.data(rng, 40)
    est = entry.make(annealing=annealing, max_iter=3, **entry.first).fit(X)
    expected = est.score_samples(X)
    wide = np.hstack([X, X])
    for bad, weight in ((wide[:2], None), (wide, np.zeros(len(X)))):
        with pytest.raises(ValueError):
            est.fit(bad, sample_weight=weight)
        assert est.n_features_in_ == X.shape[1]
        with pytest.raises(ValueError, match="features"):
            est.score_samples(wide)
        np.testing.assert_array_equal(est.score_samples(X), expected)
