"""Checkpoints: an interrupted fit goes on, and ends bit for bit where it would have ended."""

from __future__ import annotations

import pickle
import shutil

import designs
import joblib
import numpy as np
import pytest
from cases_gamma_process_nmf import drawn_counts
from harness import (
    alternating,
    assert_identical,
    crossed,
    models,
    one_of_each_class,
    quick,
    taking_turns,
)
from scipy.sparse import csr_matrix

import sklearn_anneal
from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
)
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.annealing._base import Context
from sklearn_anneal.estimators import _fitting
from sklearn_anneal.estimators._state import described_value
from sklearn_anneal.inference.checkpoint import Checkpoint
from sklearn_anneal.inference.loop import PLAIN
from sklearn_anneal.inference.progress import Progress
from sklearn_anneal.models.gamma_process_nmf import GammaProcessNMF
from sklearn_anneal.models.hidden_markov import HiddenMarkov
from sklearn_anneal.models.mixture import Mixture

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


def test_a_search_goes_on_after_a_move_that_has_paused(monkeypatch, rng, tmp_path):
    X, original = drawn_counts(rng, n=200, n_columns=20, size=20.0), Checkpoint.save

    def make():
        return AnnealedGammaProcessNMF(
            n_components=6, annealing="reheating", effort="auto", random_state=0
        )

    def save(self, name, state):
        original(self, name, state)
        if name == "moves-0" and state.trial.paused:
            raise Interruption

    with monkeypatch.context() as patch, pytest.raises(Interruption):
        patch.setattr(Checkpoint, "save", save)
        make().fit(X, checkpoint=tmp_path)
    assert_identical(make().fit(X, checkpoint=tmp_path), make().fit(X))


def test_what_a_visit_leaves_is_saved_where_rounding_errors_depend_on_it():
    for model, saved in ((GammaProcessNMF(2, 3), False), (HiddenMarkov, True), (Mixture, True)):
        ctx = Context(model, {}, None, None, q={})
        found = pickle.loads(pickle.dumps(Progress(ctx, PLAIN, known={"moments": 1.0})))
        assert (found.known is not None) == saved


@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("few", [False, True])
def test_fits_that_keep_statistics_go_on(sequences, few, monkeypatch, rng, tmp_path):
    """Statistics and factors of many columns that have not changed have their rounding errors."""
    X = rng.standard_normal((24 if few else 90, 70))
    X += 0.8 * np.repeat(rng.standard_normal((3, 70)), len(X) // 3, axis=0)
    settings = {"annealing": "none", "max_iter": 25, "tol": 0.0, "random_state": 0}

    def make():
        if sequences:
            return AnnealedHMM(3, covariance_type="full", **settings)
        return AnnealedBayesianGaussianMixture(3, **settings)

    whole = make().fit(X)
    for n_saved in (1, 4, 9, 16):
        assert goes_on(monkeypatch, make, X, whole, tmp_path / str(n_saved), n_saved)


# The first form of the first entry of each class, with marks of all others.
FIRST_OF_CLASSES = [
    pytest.param(entry, entry.first, marks=case.marks, id=case.id)
    for case in one_of_each_class(models())
    for entry in case.values
]


def in_turn(pairs, step):
    """Parameters with the first save after which a fit is interrupted, and the steps to others.

    Fits of the first parameters are interrupted after every save. Those of the others begin with
    the first, the second, … in turn, so that methods and models meet all of them.
    """
    return [
        pytest.param(
            *pair.values,
            *((1, 1) if i == 0 else (1 + i % step, step)),
            marks=pair.marks,
            id=pair.id,
        )
        for i, pair in enumerate(pairs)
    ]


@pytest.mark.parametrize(
    ("entry", "params", "name", "first", "step", "how"),
    alternating(in_turn(taking_turns(crossed(FIRST_OF_CLASSES)), 4), ("batch", "minibatches")),
)
def test_a_fit_goes_on_from_after_any_pass(
    entry, params, name, first, step, how, rng, tmp_path, monkeypatch
):
    X = entry.data(rng, 30)
    # Searches are interrupted by the next test but two.
    settings = {**params, "annealing": quick(name, 3), "max_iter": 3, "tol": 0.0, "effort": 0}
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


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_restarts_go_on_where_each_of_them_was(entry, rng, tmp_path, monkeypatch):
    """Without a seed as well: what had been drawn is in the checkpoint."""
    X = entry.data(rng, 40)
    settings = {**entry.first, "annealing": "none", "max_iter": 3, "tol": 0.0, "n_init": 2}
    folder = tmp_path / "fit"
    est = entry.make(**settings, random_state=None)
    assert interrupted(monkeypatch, est, X, folder, 2, part="restart-1")
    assert not hasattr(est, "lower_bound_")
    begun = joblib.load(folder / "fit.joblib")["shared"]
    # Another process begins with other numbers.
    np.random.mtrand._rand.random_sample()
    resumed = entry.make(**settings, random_state=None).fit(X, checkpoint=folder)
    state = np.random.RandomState()
    state.set_state(begun)
    assert_identical(resumed, entry.make(**settings, random_state=state).fit(X))
    # A fit that has ended is not repeated.
    assert_identical(entry.make(**settings, random_state=None).fit(X, checkpoint=folder), resumed)


@pytest.mark.parametrize(("entry", "first", "step"), in_turn(one_of_each_class(models()), 41))
def test_a_race_and_reheats_go_on_from_after_any_pass(
    entry, first, step, rng, tmp_path, monkeypatch, few_passes_of_searches
):
    X = entry.data(rng, 25)
    settings = {**entry.first, "annealing": quick("svi_plus", 2), "max_iter": 3, "tol": 0.0}
    settings |= {"n_init": 3, "restarts": "race", "effort": 1, "n_jobs": 1}

    def make():
        return entry.make(**settings)

    whole = make().fit(X)
    # The last visits of one restart and of each move.
    n_saves = whole.n_passes_ + 1 + len(whole.search_results_["move"])
    for n_saved in (*range(first, n_saves, max(step, 19)), n_saves):
        assert goes_on(monkeypatch, make, X, whole, tmp_path / str(n_saved), n_saved, None)
    assert not goes_on(monkeypatch, make, X, whole, tmp_path / "all", n_saves + 1, None)


def test_the_moves_that_end_a_search_go_on(tmp_path, monkeypatch):
    """A continuation went on as the move before it, which stops sooner."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 2)) + rng.choice([-1.2, 0.0, 1.2], (150, 1))
    settings = {"max_iter": 15, "tol": 1e-7, "effort": 1, "random_state": 0}

    def make():
        return sklearn_anneal.AnnealedBayesianGaussianMixture(3, **settings)

    whole = make().fit(X)
    assert whole.search_results_["move"][-1] == "continuation"
    n_saves = whole.n_passes_ + 1 + len(whole.search_results_["move"])
    for n_saved in (n_saves - 10, n_saves - 1):
        assert goes_on(monkeypatch, make, X, whole, tmp_path / str(n_saved), n_saved, None)


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_a_warm_start_goes_on_too(entry, rng, tmp_path, monkeypatch):
    X = entry.data(rng, 40)
    settings = {**entry.first, "annealing": "none", "tol": 0.0, "warm_start": True}

    def fitted():
        return entry.make(**settings, max_iter=2).fit(X).set_params(max_iter=4)

    whole = fitted().fit(X)
    assert interrupted(monkeypatch, fitted(), X, tmp_path, 2)
    # The next process may have read the estimator from a file.
    for again in (fitted(), pickle.loads(pickle.dumps(fitted()))):
        assert_identical(again.fit(X, checkpoint=tmp_path), whole)
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
    return entry.make(**{"annealing": method, "effort": 0, "n_jobs": 1, **params})


def test_other_parameters_are_refused_with_their_names(begun):
    entry, X, folder = begun
    other = ANNEALING["deterministic"](initial_temperature=2.0, n_passes=5)
    for params, name in (
        ({"n_components": 2}, "n_components"),
        ({"annealing": other}, "annealing"),
        ({"mean_prior": np.zeros(3)}, "mean_prior"),
        ({"random_state": 1}, "random_state"),
        ({"random_state": None}, "random_state"),
        ({"random_state": np.random.RandomState(0)}, "random_state"),
    ):
        est = make(entry, **params)
        with pytest.raises(ValueError, match=f"differs in the parameter {name}"):
            est.fit(X, checkpoint=folder)
        assert not hasattr(est, "n_features_in_")


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_another_seed_is_refused_before_and_after_the_end(entry, rng, tmp_path, monkeypatch):
    X = entry.data(rng, 40)
    settings = {**entry.first, "annealing": "none", "max_iter": 3, "tol": 0.0}

    def refused():
        with pytest.raises(ValueError, match=r"parameter random_state \('3' then, '4' now\)"):
            entry.make(**settings, random_state=4).fit(X, checkpoint=tmp_path)

    assert interrupted(monkeypatch, entry.make(**settings, random_state=3), X, tmp_path, 2)
    refused()
    # An integer of NumPy is the same number.
    resumed = entry.make(**settings, random_state=np.int64(3)).fit(X, checkpoint=tmp_path)
    assert_identical(resumed, entry.make(**settings, random_state=3).fit(X))
    refused()


def test_a_generator_is_compared_by_its_state(rng, tmp_path, monkeypatch):
    """The fit does not change it, so that it can be given again in the same process too."""
    entry = models()[0].values[0]
    X, state = entry.data(rng, 40), np.random.RandomState(3)
    assert interrupted(monkeypatch, make(entry, random_state=state), X, tmp_path, 3)
    whole = make(entry, random_state=np.random.RandomState(3)).fit(X)
    for again in (state, np.random.RandomState(3)):
        assert_identical(make(entry, random_state=again).fit(X, checkpoint=tmp_path), whole)
    other = np.random.RandomState(3)
    other.random_sample()
    with pytest.raises(ValueError, match=r"parameter random_state \('a RandomState"):
        make(entry, random_state=other).fit(X, checkpoint=tmp_path)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.array(1 / 3), np.array(1 / 3 + 1e-12)),
        (np.array([1 / 3]), np.array([1 / 3 + 1e-12])),
        (np.float32(1 / 3), 1 / 3),
        ([1.0, np.array([2.0])], [1.0, np.array([3.0])]),
        ({"a": (1, 2)}, {"a": (1, 3)}),
        ("1", 1),
        (None, "None"),
        (csr_matrix([[0.0, 1.0]]), csr_matrix([[0.0, 2.0]])),
        ({"a": csr_matrix([[0.0, 1.0]])}, {"a": csr_matrix([[1.0, 0.0]])}),
        (np.random.RandomState(0), np.random.RandomState(1)),
    ],
)
def test_descriptions_of_different_values_differ(one, other):
    """And those of equal values are equal, in whichever process: they have no addresses."""
    assert described_value(one) != described_value(other)
    for value in (one, other):
        again = pickle.loads(pickle.dumps(value))
        assert described_value(again) == described_value(value)


@pytest.mark.parametrize("name", ["latent_dirichlet", "gamma_process_nmf_sparse"])
def test_columns_without_entries_are_compared_too(name, rng, tmp_path, monkeypatch):
    entry = next(pair.values[0] for pair in models() if pair.values[0].name == name)
    X = csr_matrix(entry.data(rng, 40))
    wider = csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], X.shape[1] + 2))
    settings = {**entry.first, "annealing": "none", "max_iter": 3}
    assert interrupted(monkeypatch, entry.make(**settings), X, tmp_path, 2)
    with pytest.raises(ValueError, match=r"number of columns \(\d+ then, \d+ now\)"):
        entry.make(**settings).fit(wider, checkpoint=tmp_path)


def test_what_changes_no_result_may_change(begun, tmp_path, monkeypatch):
    """The three passes before the interruption are not repeated."""
    entry, X, folder = begun
    saved, original = [], Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", lambda *how: saved.append(how[1]) or original(*how))
    changed = make(entry, n_jobs=2, verbose=1).fit(X, checkpoint=folder)
    n_rest = len(saved)
    assert_identical(changed, make(entry).fit(X, checkpoint=tmp_path / "whole"))
    assert len(saved) - n_rest == n_rest + 3


def test_other_data_and_weights_are_refused(begun):
    entry, X, folder = begun
    other = X.copy()
    other[3, 1] += 1e-9
    for data, weights in ((other, None), (X[:-1], None), (X, np.full(len(X), 2.0))):
        with pytest.raises(ValueError, match="differs in the data"):
            make(entry).fit(data, sample_weight=weights, checkpoint=folder)


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_data_that_differ_in_one_unit_are_refused(entry, rng, tmp_path, monkeypatch):
    X = entry.data(rng, 40)
    other = [*range(1, 40), 0]
    other = type(X)(X[i] for i in other) if isinstance(X, list) else X[other]
    assert interrupted(monkeypatch, entry.make(annealing="none", n_jobs=1), X, tmp_path, 2)
    with pytest.raises(ValueError, match="differs in the data"):
        entry.make(annealing="none", n_jobs=1).fit(other, checkpoint=tmp_path)


def test_another_version_is_refused(begun, monkeypatch):
    entry, X, folder = begun
    monkeypatch.setattr(_fitting, "__version__", "99.0")
    with pytest.raises(ValueError, match=r"version of sklearn_anneal.*'99\.0' now"):
        make(entry).fit(X, checkpoint=folder)


FOREIGN = {
    "text": b"nothing of the kind",
    "nothing": b"",
    "a list": [1, 2],
    "an array": np.arange(3.0),
    "a number": 1.0,
    "None": None,
    "a dictionary": {"shared": {}},
    "another dictionary": {"identity": [], "shared": {}},
    "a dictionary of a dictionary": {"identity": {}, "shared": {}, "fit": "", "part": "restart-0"},
    "an estimator": sklearn_anneal.AnnealedHMM(2),
}


@designs.in_turn(content=FOREIGN, name=["fit", "restart-0", "moves-0"])
def test_files_that_are_no_checkpoint_are_refused_in_one_sentence(
    content, name, rng, tmp_path, monkeypatch, few_passes_of_searches
):
    entry = models()[0].values[0]
    X, est = entry.data(rng, 40), make(entry, effort=1)
    assert interrupted(monkeypatch, est, X, tmp_path, 3)
    path, value = tmp_path / f"{name}.joblib", FOREIGN[content]
    if isinstance(value, bytes):
        path.write_bytes(value)
    else:
        joblib.dump(value, path)
    kept = path.read_bytes()
    with pytest.raises(ValueError, match=rf"{name}\.joblib'.*Remove (it|the file)") as caught:
        est.fit(X, checkpoint=tmp_path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == kept


@pytest.mark.parametrize("name", ["fit", "restart-0"])
def test_truncated_files_are_refused(begun, name):
    entry, X, folder = begun
    path = folder / f"{name}.joblib"
    whole = path.read_bytes()
    for size in np.linspace(0, len(whole) - 1, 5).astype(int):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=rf"{name}\.joblib' cannot be read \(.+\)"):
            make(entry).fit(X, checkpoint=folder)
    path.write_bytes(whole)
    assert_identical(make(entry).fit(X, checkpoint=folder), make(entry).fit(X))


def test_the_state_of_a_restart_belongs_to_its_fit(begun, rng, tmp_path, monkeypatch):
    """Neither that of another fit nor that of another restart is taken for it."""
    entry, X, folder = begun
    other = tmp_path / "other"
    assert interrupted(monkeypatch, make(entry, random_state=1), X, other, 3)
    own = (folder / "restart-0.joblib").read_bytes()
    shutil.copy(other / "restart-0.joblib", folder)
    with pytest.raises(ValueError, match=r"restart-0\.joblib' does not belong to the fit"):
        make(entry).fit(X, checkpoint=folder)
    (folder / "restart-0.joblib").write_bytes(own)
    several = tmp_path / "several"
    est = make(entry, n_init=2)
    assert interrupted(monkeypatch, est, X, several, 3, part="restart-1")
    shutil.copy(several / "restart-0.joblib", several / "restart-1.joblib")
    with pytest.raises(ValueError, match=r"restart-1\.joblib' does not belong to the fit"):
        est.fit(X, checkpoint=several)
    assert_identical(make(entry).fit(X, checkpoint=folder), make(entry).fit(X))


@pytest.mark.parametrize("entry", one_of_each_class(models())[1:])
def test_a_checkpoint_of_another_estimator_is_refused(entry, begun, rng):
    _, _, folder = begun
    with pytest.raises(ValueError, match=r"differs in the estimator \('\w+' then, '\w+' now\)"):
        entry.make().fit(entry.data(rng, 40), checkpoint=folder)


@pytest.mark.parametrize("folder", [3, True, 1.5, b"folder", ["folder"]])
def test_what_is_no_path_is_refused(folder, rng):
    entry = models()[0].values[0]
    with pytest.raises(TypeError, match="checkpoint should be the path of a folder, but"):
        make(entry).fit(entry.data(rng, 40), checkpoint=folder)


def test_a_file_in_the_place_of_the_folder_is_refused(rng, tmp_path):
    entry, path = models()[0].values[0], tmp_path / "file"
    path.write_text("some text")
    with pytest.raises(ValueError, match="checkpoint should be a folder, but .*file' is a file"):
        make(entry).fit(entry.data(rng, 40), checkpoint=path)
    assert path.read_text() == "some text"


def test_a_write_that_fails_leaves_the_state_before(begun, monkeypatch):
    entry, X, folder = begun
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(value, file, protocol):
        file.write(b"a part of it")
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pickle, "dump", full)
        with pytest.raises(OSError, match="No space left"):
            make(entry).fit(X, checkpoint=folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert_identical(make(entry).fit(X, checkpoint=folder), make(entry).fit(X))


@pytest.mark.parametrize("name", ["fit.joblib", "restart-0.joblib"])
def test_files_that_hold_arrays_where_texts_belong_are_refused(name, begun):
    entry, X, folder = begun
    stored = joblib.load(folder / name)
    if name == "fit.joblib":
        stored["identity"]["data"] = np.arange(3.0)
    else:
        stored["fit"] = np.arange(3.0)
    joblib.dump(stored, folder / name)
    with pytest.raises(ValueError, match="differs in the data|does not belong to the fit"):
        make(entry).fit(X, checkpoint=folder)
