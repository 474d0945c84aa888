"""Checkpoints: an interrupted fit goes on, and ends bit for bit where it would have ended."""

from __future__ import annotations

import joblib
import numpy as np
import pytest
from harness import assert_identical, crossed, models, quick, variants

import sklearn_anneal
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.inference.checkpoint import Checkpoint

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("no_wait_for_the_disk"),
]


class Interruption(BaseException):
    """What ends a program in the middle of a fit."""


def interrupted(monkeypatch, est, X, folder, n_saved, part="restart-0"):
    """Run a fit until a part of it has been saved so many times; whether it came to that."""
    original, saved = Checkpoint.save, [0]

    def save(self, name, state):
        original(self, name, state)
        saved[0] += part in (None, name)
        if saved[0] == n_saved:
            raise Interruption

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save)
        try:
            est.fit(X, checkpoint=folder)
        except Interruption:
            return True
    return False


def goes_on(monkeypatch, make, X, whole, folder, n_saved, part="restart-0"):
    """Check that a fit that ends after so many saves goes on; whether it has so many of them."""
    est = make()
    if not interrupted(monkeypatch, est, X, folder, n_saved, part):
        assert_identical(est, whole)
        return False
    assert_identical(make().fit(X, checkpoint=folder), whole)
    return True


def in_turn(pairs, step):
    """Parameters with the first save after which a fit is interrupted, and the steps to others.

    Fits of the first parameters are interrupted after every save. Those of the others begin with
    the first, the second, … in turn, so that every method and every model meets all of them.
    """
    return [
        pytest.param(*pair.values, *((1, 1) if i == 0 else (1 + i % step, step)), id=pair.id)
        for i, pair in enumerate(pairs)
    ]


def first_variants():
    return [pair for pair in variants() if pair.values[1] is pair.values[0].first]


@pytest.mark.parametrize("how", ["batch", "minibatches"])
@pytest.mark.parametrize(
    ("entry", "params", "name", "first", "step"), in_turn(crossed(first_variants()), 4)
)
def test_a_fit_goes_on_from_after_any_pass(
    entry, params, name, first, step, how, rng, tmp_path, monkeypatch
):
    X = entry.data(rng, 40)
    settings = {**params, "annealing": quick(name), "max_iter": 3, "tol": 0.0}
    if how == "minibatches":
        settings |= entry.in_batches(15)

    def make():
        return entry.make(**settings)

    whole, n_saved = make().fit(X), first
    while goes_on(monkeypatch, make, X, whole, tmp_path / str(n_saved), n_saved):
        n_saved += step
    assert n_saved > 3


def test_a_mean_over_passes_goes_on(tmp_path, monkeypatch):
    X = np.random.default_rng(0).poisson(1.0, size=(30, 8))

    def make():
        method = sklearn_anneal.annealing.StructuredVI(n_passes=15)
        return sklearn_anneal.AnnealedLatentDirichletAllocation(3, annealing=method, random_state=0)

    whole = make().fit(X)
    assert whole.annealing_.average
    assert goes_on(monkeypatch, make, X, whole, tmp_path, 13)


@pytest.mark.parametrize("entry", models())
def test_restarts_go_on_where_each_of_them_was(entry, rng, tmp_path, monkeypatch):
    """Without a seed as well: what had been drawn is in the checkpoint."""
    X = entry.data(rng, 40)
    settings = {**entry.first, "annealing": "none", "max_iter": 4, "tol": 0.0, "n_init": 3}
    folder = tmp_path / "fit"
    est = entry.make(**settings, random_state=None)
    assert interrupted(monkeypatch, est, X, folder, 2, part="restart-1")
    assert not hasattr(est, "lower_bound_")
    begun = joblib.load(folder / "fit.joblib")["shared"]
    resumed = entry.make(**settings, random_state=None).fit(X, checkpoint=folder)
    state = np.random.RandomState()
    state.set_state(begun)
    assert_identical(resumed, entry.make(**settings, random_state=state).fit(X))
    # A fit that has ended is not repeated.
    assert_identical(entry.make(**settings, random_state=None).fit(X, checkpoint=folder), resumed)


@pytest.mark.parametrize(("entry", "first", "step"), in_turn(models(), 9))
def test_a_race_and_reheats_go_on_from_after_any_pass(
    entry, first, step, rng, tmp_path, monkeypatch, few_passes_of_searches
):
    X = entry.data(rng, 40)
    settings = {**entry.first, "annealing": quick("svi_plus", 2), "max_iter": 5, "tol": 0.0}
    settings |= {"n_init": 4, "restarts": "race", "effort": 1, "n_jobs": 1}

    def make():
        return entry.make(**settings)

    whole = make().fit(X)
    # The last visits of one restart and of each move.
    n_saves = whole.n_passes_ + 1 + len(whole.search_results_["move"])
    for n_saved in (*range(first, n_saves, step), n_saves):
        assert goes_on(monkeypatch, make, X, whole, tmp_path / str(n_saved), n_saved, None)
    assert not goes_on(monkeypatch, make, X, whole, tmp_path / "all", n_saves + 1, None)


@pytest.mark.parametrize("entry", models())
def test_a_warm_start_goes_on_too(entry, rng, tmp_path, monkeypatch):
    X = entry.data(rng, 40)
    settings = {**entry.first, "annealing": "none", "tol": 0.0, "warm_start": True}

    def fitted():
        return entry.make(**settings, max_iter=2).fit(X).set_params(max_iter=4)

    whole = fitted().fit(X)
    assert interrupted(monkeypatch, fitted(), X, tmp_path, 2)
    assert_identical(fitted().fit(X, checkpoint=tmp_path), whole)
    other = entry.make(**settings, max_iter=1).fit(X).set_params(max_iter=4)
    with pytest.raises(ValueError, match="fitted parameters that it goes on from"):
        other.fit(X, checkpoint=tmp_path)


@pytest.fixture
def begun(rng, tmp_path, monkeypatch):
    """An entry, data, and a checkpoint in the middle of a schedule."""
    entry = models()[0].values[0]
    X = entry.data(rng, 40)
    assert interrupted(monkeypatch, make(entry), X, tmp_path / "fit", 3)
    return entry, X, tmp_path / "fit"


def make(entry, **params):
    method = ANNEALING["deterministic"](initial_temperature=3.0, n_passes=5)
    return entry.make(**{"annealing": method, "n_jobs": 1, **params})


def test_other_parameters_are_refused_with_their_names(begun):
    entry, X, folder = begun
    other = ANNEALING["deterministic"](initial_temperature=2.0, n_passes=5)
    for params, name in (
        ({"n_components": 2}, "n_components"),
        ({"annealing": other}, "annealing"),
        ({"mean_prior": np.zeros(3)}, "mean_prior"),
    ):
        est = make(entry, **params)
        with pytest.raises(ValueError, match=f"differs in the parameter {name}"):
            est.fit(X, checkpoint=folder)
        assert not hasattr(est, "n_features_in_")


def test_what_changes_no_result_may_change(begun):
    entry, X, folder = begun
    changed = make(entry, n_jobs=2, verbose=1).fit(X, checkpoint=folder)
    assert_identical(changed, make(entry).fit(X))


def test_other_data_and_weights_are_refused(begun):
    entry, X, folder = begun
    other = X.copy()
    other[3, 1] += 1e-9
    for data, weights in ((other, None), (X[:-1], None), (X, np.full(len(X), 2.0))):
        with pytest.raises(ValueError, match="differs in the data"):
            make(entry).fit(data, sample_weight=weights, checkpoint=folder)


@pytest.mark.parametrize("entry", models())
def test_data_that_differ_in_one_unit_are_refused(entry, rng, tmp_path, monkeypatch):
    X = entry.data(rng, 40)
    other = [*range(1, 40), 0]
    other = type(X)(X[i] for i in other) if isinstance(X, list) else X[other]
    assert interrupted(monkeypatch, entry.make(annealing="none", n_jobs=1), X, tmp_path, 2)
    with pytest.raises(ValueError, match="differs in the data"):
        entry.make(annealing="none", n_jobs=1).fit(other, checkpoint=tmp_path)


def test_another_version_is_refused(begun, monkeypatch):
    entry, X, folder = begun
    monkeypatch.setattr(sklearn_anneal, "__version__", "99.0")
    with pytest.raises(ValueError, match=r"version of sklearn_anneal.*'99\.0' now"):
        make(entry).fit(X, checkpoint=folder)


def test_damaged_files_are_refused(begun):
    entry, X, folder = begun
    (folder / "restart-0.joblib").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="cannot be read"):
        make(entry).fit(X, checkpoint=folder)


def test_a_write_that_fails_leaves_the_state_before(begun, monkeypatch):
    entry, X, folder = begun
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(value, file):
        file.write(b"a part of it")
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(joblib, "dump", full)
        with pytest.raises(OSError, match="No space left"):
            make(entry).fit(X, checkpoint=folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert_identical(make(entry).fit(X, checkpoint=folder), make(entry).fit(X))
