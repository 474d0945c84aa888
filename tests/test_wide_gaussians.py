"""Tests of Gaussians of many columns, whose steps are products of matrices."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from harness import make_threads_worthwhile, quick
from joblib import parallel_config
from numpy.testing import assert_allclose
from sklearn.base import clone

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedHMM, Shards
from sklearn_anneal.data.units import Rows
from sklearn_anneal.families import NormalWishart
from sklearn_anneal.models.components import _wide_gaussians
from sklearn_anneal.models.components._features import FeatureSums, LastSums, rows_per_block
from sklearn_anneal.models.components._resolved_gaussians import resolved_gaussians
from sklearn_anneal.models.components.fused_gaussian import FusedGaussian
from sklearn_anneal.models.components.gaussian import GaussianComponents

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

QUICK = {"max_iter": 5, "effort": 0, "random_state": 0}
# Every method, covariance type and form of the data, and most pairs of them.
CASES = [
    ("none", "full", "float32"),
    ("none", "tied", "missing"),
    ("none", "diag", "rows"),
    ("svi_plus", "full", "missing"),
    ("svi_plus", "tied", "weights"),
    ("local_tempering", "full", "missing"),
    ("local_tempering", "tied", "rows"),
    ("structured", "full", "weights"),
    ("structured", "tied", "float32"),
    ("structured", "diag", "missing"),
]


def both(monkeypatch, make):
    """What the kernels and the products of matrices lead to."""
    found = []
    for takes in (False, True):
        monkeypatch.setattr(_wide_gaussians, "takes", lambda *shape, takes=takes: takes)
        found.append(make())
    return found


@pytest.mark.parametrize(("annealing", "covariance_type", "form"), CASES)
def test_steps_are_those_of_the_kernels(annealing, covariance_type, form, rng, monkeypatch):
    X = rng.standard_normal((90, 6)) + 4.0 * rng.integers(0, 3, (90, 1)) + 100.0
    weights = rng.integers(1, 4, 90) if form == "weights" else None
    if form == "missing":
        X[rng.random(X.shape) < 0.1] = np.nan
        X[3] = np.nan
    if form == "float32":
        X = X.astype(np.float32)
    # Parts that are smaller than the data have edges inside them.
    monkeypatch.setattr(_wide_gaussians, "_ENTRIES", 6 * 32)
    method = annealing if annealing == "none" else quick(annealing)

    def make():
        est = AnnealedBayesianGaussianMixture(
            3, covariance_type=covariance_type, annealing=method, **QUICK
        )
        return est.fit(X, sample_weight=weights)

    one, other = both(monkeypatch, make)
    assert_allclose(other.lower_bounds_, one.lower_bounds_, rtol=1e-9)
    assert_allclose(other.means_, one.means_, rtol=1e-9)
    assert_allclose(other.score_samples(X), one.score_samples(X), rtol=1e-8, atol=1e-12)


def test_bounds_of_strong_priors_keep_their_digits(rng, monkeypatch):
    """Their log-normalisers are so large that the divergence is evaluated without them."""
    X = rng.standard_normal((60, 4)) + 4.0 * rng.integers(0, 2, (60, 1))
    strong = {"degrees_of_freedom_prior": 1e9, "covariance_prior": 1e9 * np.eye(4)}

    def make():
        return AnnealedBayesianGaussianMixture(2, annealing="none", **strong, **QUICK).fit(X)

    one, other = both(monkeypatch, make)
    assert_allclose(other.lower_bounds_, one.lower_bounds_, rtol=1e-9)


def test_states_have_the_same_steps(rng, monkeypatch):
    X = rng.standard_normal((80, 5)) + 4.0 * np.repeat(rng.integers(0, 3, 8), 10)[:, None]
    one, other = both(monkeypatch, lambda: AnnealedHMM(3, covariance_type="full", **QUICK).fit(X))
    assert_allclose(other.lower_bounds_, one.lower_bounds_, rtol=1e-9)
    assert_allclose(other.predict_proba(X), one.predict_proba(X), atol=1e-9)


def test_many_columns_and_few_components_are_products_of_matrices():
    """The choice depends on the model alone, and so not on how rows are divided."""
    assert all(GaussianComponents(k, d).is_wide("full") for k, d in ((10, 100), (1, 29)))
    assert not any(GaussianComponents(k, d).is_wide("full") for k, d in ((40, 100), (1, 20)))
    assert GaussianComponents(40, 100).is_wide("tied")
    assert not GaussianComponents(1, 50).is_wide("tied")
    assert GaussianComponents(1, 50).with_one_matrix().is_wide("tied")
    assert not GaussianComponents(1, 100).is_wide("diag")


def test_searches_of_very_many_columns_are_short(rng, monkeypatch):
    """They have the effort 1, because a pass takes long."""
    X = rng.standard_normal((8, 6))
    made = AnnealedBayesianGaussianMixture(2, max_iter=15, random_state=0)
    longer = clone(made).fit(X)
    monkeypatch.setattr(f"{resolved_gaussians.__module__}._COLUMNS_OF_SHORT_SEARCH", 6)
    usual, given = clone(made).fit(X), clone(made).set_params(effort=1.0).fit(X)
    assert usual.n_passes_ == given.n_passes_ < longer.n_passes_
    np.testing.assert_array_equal(usual.means_, given.means_)
    # Two rows for each column make the usual search.
    X = rng.standard_normal((12, 6))
    assert clone(made).fit(X).n_passes_ > clone(made).set_params(effort=1.0).fit(X).n_passes_


@pytest.mark.parametrize("few", [True, False], ids=["few_rows", "many_rows"])
def test_learning_factorises_matrices_for_the_next_visit(few, rng, monkeypatch):
    """Every visit of plain passes after the first reads them, and finds what it would compute."""
    monkeypatch.setattr(_wide_gaussians, "takes", lambda *shape: True)
    n = 12 if few else 90
    X = rng.standard_normal((n, 8)) + 4.0 * rng.integers(0, 2, (n, 1))
    known, computed = FusedGaussian.known, []
    monkeypatch.setattr(FusedGaussian, "moments", _counted(FusedGaussian.moments, computed))

    def fitted(keep):
        def of_visit(self, q, before):
            some = {key: value for key, value in (before or {}).items() if keep or key != "next"}
            already = len(computed)
            found = known(self, q, some)
            visits.append(len(computed) - already)
            return found

        visits = []
        monkeypatch.setattr(FusedGaussian, "known", of_visit)
        est = AnnealedBayesianGaussianMixture(2, annealing="none", tol=0.0, **QUICK).fit(X)
        return est, visits

    (kept, own), (anew, every) = fitted(True), fitted(False)
    assert own == [1] + [0] * (len(own) - 1)
    assert set(every) == {1}
    np.testing.assert_array_equal(kept.lower_bounds_, anew.lower_bounds_)
    np.testing.assert_array_equal(kept.covariances_, anew.covariances_)


def _counted(function, calls):
    def call(*arguments):
        calls.append(arguments)
        return function(*arguments)

    return call


@pytest.mark.parametrize("form", ["rows", "weights", "minibatches", "sequences"])
@pytest.mark.parametrize("n", [24, 90])
def test_rows_that_have_settled_keep_their_statistics(n, form, rng, monkeypatch):
    """Passes find the same bounds if all statistics and factors are computed anew."""
    monkeypatch.setattr(_wide_gaussians, "takes", lambda *shape: True)
    X = rng.standard_normal((n, 30)) + 9.0 * np.repeat([0, 1], n // 2)[:, None]
    found, of_last = [], LastSums.of

    def fitted():
        settings = QUICK | {"annealing": "none", "tol": 0.0, "max_iter": 12}
        if form == "sequences":
            return AnnealedHMM(2, covariance_type="full", **settings).fit(X)
        if form == "minibatches":
            settings |= {"batch_size": n // 3}
        weights = rng.integers(1, 3, n) if form == "weights" else None
        made = AnnealedBayesianGaussianMixture(2, **settings)
        return made.fit(X, sample_weight=weights)

    def of(self, rows, shares):
        found.append(of_last(self, rows, shares) is not None)
        return of_last(self, rows, shares)

    monkeypatch.setattr(LastSums, "of", of)
    state = rng.bit_generator.state
    kept = fitted()
    assert found
    # Each minibatch has other rows.
    assert any(found) == (form != "minibatches")
    monkeypatch.setattr(LastSums, "of", lambda *_: None)
    rng.bit_generator.state = state
    anew = fitted()
    assert_allclose(kept.lower_bounds_, anew.lower_bounds_, rtol=1e-11)
    # Columns have a standard deviation of 1.
    assert_allclose(kept.means_, anew.means_, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("form", ["rows", "sequences", "parts"])
def test_statistics_of_several_chunks_are_not_kept(form, rng, monkeypatch):
    """The chunk that was visited last depends on workers, on which results do not depend."""
    monkeypatch.setattr(_wide_gaussians, "takes", lambda *shape: True)
    asked, of_last = [], LastSums.of
    monkeypatch.setattr(LastSums, "of", lambda *args: asked.append(args) or of_last(*args))
    n, settings = {"rows": 1100, "sequences": 4200, "parts": 60}[form], QUICK | {"max_iter": 3}
    X = rng.standard_normal((n, 2)) + 9.0 * (np.arange(n) % 2)[:, None]
    if form == "sequences":
        AnnealedHMM(2, **settings).fit(X, lengths=[n // 2, n // 2])
    else:
        X = Shards([X[:20], X[20:]]) if form == "parts" else X
        AnnealedBayesianGaussianMixture(2, **settings).fit(X)
    assert not asked


def test_a_single_chunk_keeps_its_statistics_whatever_the_backend(rng, monkeypatch):
    monkeypatch.setattr(_wide_gaussians, "takes", lambda *shape: True)
    make_threads_worthwhile(monkeypatch)
    found, of_last = [], LastSums.of

    def of(self, rows, shares):
        found.append(of_last(self, rows, shares))
        return found[-1]

    monkeypatch.setattr(LastSums, "of", of)
    X = rng.standard_normal((40, 30)) + 9.0 * np.repeat([0, 1], 20)[:, None]
    settings = QUICK | {"annealing": "none", "tol": 0.0, "n_jobs": 2}
    with parallel_config(backend="multiprocessing"):
        AnnealedBayesianGaussianMixture(2, **settings).fit(X)
    assert any(raw is not None for raw in found)


def test_statistics_are_kept_for_the_same_rows_and_shares_alone(rng):
    X, shares = rng.standard_normal((6, 2)), np.eye(2)[[0, 1, 0, 1, 0, 1]]
    raw, last = FeatureSums("full", np.zeros((2, 6)), np.zeros((1, 0))), LastSums()
    rows = Rows(X)
    assert last.of(rows, shares) is None
    last.keep(rows, shares, raw)
    assert last.of(Rows(X), shares.copy()) is raw
    assert last.of(Rows(X), shares + 1e-17) is raw
    assert last.of(Rows(X), shares + 1e-15) is None
    assert last.of(Rows(X.copy()), shares) is None
    assert last.of(Rows(X[::-1]), shares) is None
    assert last.of(Rows(X[:5]), shares[:5]) is None
    assert last.of(Rows(X, center=np.ones(2)), shares) is None
    # A fit that goes on from a pickle has the same rows somewhere else.
    last.keep(rows, shares, raw)
    resumed = pickle.loads(pickle.dumps(last))
    assert resumed.of(Rows(X), shares + 1e-15) is None
    assert resumed.of(Rows(X.copy()), shares).layout == "full"
    assert resumed.of(Rows(X), shares) is None


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_moments_inside_are_the_moments_of_valid_parameters(covariance_type, rng):
    for d in (3, 70):
        family = NormalWishart(covariance_type, 2, d)
        shape = {"full": (2, d, d), "tied": (d, d), "diag": (2, d), "spherical": (2,)}
        scale = 1.0 if covariance_type in ("diag", "spherical") else np.eye(d)
        natural = family.from_standard(
            rng.standard_normal((2, d)),
            np.array([1.0, 2.0]),
            np.broadcast_to(scale, shape[covariance_type]),
            np.full(() if covariance_type == "tied" else 2, d + 3.0),
        )
        for one, other in zip(family.moments_inside(natural), family.moments(natural), strict=True):
            one, other = (getattr(found, "matrices", found) for found in (one, other))
            np.testing.assert_array_equal(one, other)
        for key, value in (
            *(("scatter", value) for value in (-1.0, 0.0, np.nan, np.inf)),
            *(("dof", value) for value in (d - 1.0, np.nan, np.inf)),
            *(("mean_precision", value) for value in (0.0, np.nan, np.inf)),
            ("mean_natural", np.nan),
        ):
            wrong = natural[key].copy()
            wrong[(0,) * wrong.ndim] = value
            assert not family.valid({**natural, key: wrong}).all()
            assert family.moments_inside({**natural, key: wrong}) is None, (d, key, value)


@pytest.mark.parametrize("largest", [1e20, 1e60])
@pytest.mark.parametrize("n", [4, 20])
def test_units_of_columns_do_not_matter_to_scores(n, largest, rng):
    """Products of precisions of columns in such units leave the range of numbers."""
    X, units = rng.standard_normal((n, 40)), np.geomspace(1.0 / largest, largest, 40)
    made = AnnealedBayesianGaussianMixture(1, annealing="none", reg_covar=0.0, **QUICK)
    expected = clone(made).fit(X).score_samples(X)
    scores = clone(made).fit(X * units).score_samples(X * units)
    assert_allclose(scores, expected - np.log(units).sum(), rtol=1e-5)


def test_products_of_matrices_take_more_components_where_kernels_take_only_the_rows():
    """Up to 64 columns all steps of a pass have kernels; with more, small tables take these too."""
    assert _wide_gaussians.takes(40, 2) and not _wide_gaussians.takes(39, 2)
    assert _wide_gaussians.takes(80, 20) and not _wide_gaussians.takes(64, 20)
    assert not _wide_gaussians.takes(80, 40)


def test_features_of_many_columns_are_computed_for_fewer_rows_at_a_time():
    pairs = {d: rows_per_block(d) * d * (d + 1) // 2 for d in (31, 32, 64)}
    assert max(pairs.values()) == pairs[64] < 256 * 32 * 33
    assert rows_per_block(64, "tied") == rows_per_block(64) < rows_per_block(64, "diag")
