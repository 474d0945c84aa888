"""Tests of local steps of rows that certainly stay with their components."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from test_checkpoints import goes_on

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.models.components import _settled_rows, _wide_gaussians
from sklearn_anneal.models.components.fused_gaussian import FusedGaussian
from sklearn_anneal.models.components.gaussian import GaussianComponents

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

MADE = AnnealedBayesianGaussianMixture(
    2, annealing="none", effort=0, max_iter=15, tol=0.0, random_state=0
)


@pytest.fixture(autouse=True)
def products_of_matrices(monkeypatch):
    monkeypatch.setattr(_wide_gaussians, "takes", lambda *shape: True)


def clusters(rng, n, d=30, k=2, apart=9.0):
    return rng.standard_normal((n, d)) + apart * (np.arange(n) % k)[:, None] + 20.0


def fitted(made, X, weights=None, without=False):
    """A fit, and the number of times that it has computed all densities and done without."""
    densities, settled = [], []
    with pytest.MonkeyPatch.context() as patched:
        step, density = _settled_rows.settled_step, GaussianComponents.log_density

        def of_rows(*arguments):
            found = None if without else step(*arguments)
            if found is not None:
                settled.append(found)
            return found

        def of_densities(self, *arguments):
            densities.append(arguments)
            return density(self, *arguments)

        patched.setattr(f"{FusedGaussian.__module__}.settled_step", of_rows)
        patched.setattr(GaussianComponents, "log_density", of_densities)
        return clone(made).fit(X, sample_weight=weights), len(densities), len(settled)


@pytest.mark.parametrize("form", ["rows", "weights", "float32", "unused", "prior of means"])
@pytest.mark.parametrize("n", [16, 90])
def test_bounds_are_those_of_all_densities(n, form, rng):
    """Few rows have precision matrices by rows, and a component may have no row."""
    X, made, weights = clusters(rng, n), MADE, None
    if form == "weights":
        # Priors that are learned from few rows let rounding errors grow if many rows count twice.
        weights = rng.integers(0, 3, n).astype(float) if n > 30 else 1.0 + (np.arange(n) < 2)
    elif form == "float32":
        X = X.astype(np.float32)
    elif form == "unused":
        made = clone(MADE).set_params(n_components=3, init_params="random_from_data")
        X = clusters(np.random.default_rng(0), 90, apart=30.0)
    elif form == "prior of means":
        made = clone(MADE).set_params(mean_precision_prior=0.01, mean_prior=X.mean(axis=0))
    found, densities, settled = fitted(made, X, weights)
    plain, every, none = fitted(made, X, weights, without=True)
    assert settled > 0
    assert none == 0
    assert (form == "unused") == (len(np.unique(found.predict(X))) < found.n_components)
    assert every == densities + settled
    assert_allclose(found.lower_bounds_, plain.lower_bounds_, rtol=1e-12)
    assert_allclose(found.means_, plain.means_, rtol=1e-9)
    assert_allclose(found.predict_proba(X), plain.predict_proba(X), atol=1e-12)
    assert np.diff(found.lower_bounds_).min() >= -1e-11 * np.abs(found.lower_bounds_).max()


@pytest.mark.parametrize("form", ["close", "several chunks", "given priors", "few passes"])
def test_rows_that_may_move_take_their_densities(form, rng):
    X, made = clusters(rng, 90), MADE
    if form == "close":
        X = clusters(rng, 90, apart=0.4)
    elif form == "several chunks":
        X = clusters(rng, 4_000)
    elif form == "given priors":
        given = {"covariance_prior": np.eye(30), "degrees_of_freedom_prior": 40.0}
        made = clone(MADE).set_params(mean_precision_prior=1.0, mean_prior=X.mean(axis=0), **given)
    elif form == "few passes":
        made = clone(MADE).set_params(max_iter=2)
    assert fitted(made, X)[2] == 0


def test_annealed_rows_take_their_densities(rng, monkeypatch):
    tempered = []

    def step(components, rows, features, t):
        found = own(components, rows, features, t)
        tempered.append((t.local, t.statistics, found is not None))
        return found

    own = _settled_rows.settled_step
    monkeypatch.setattr(f"{FusedGaussian.__module__}.settled_step", step)
    made = clone(MADE).set_params(annealing="deterministic", annealing__initial_temperature=3.0)
    made.set_params(annealing__n_passes=8).fit(clusters(rng, 90))
    assert any(np.min(local) < 1.0 for local, _, _ in tempered)
    assert not any(found for local, _, found in tempered if np.min(local) < 1.0)
    assert any(found for _, _, found in tempered)


@pytest.mark.parametrize("n", [16, 90])
def test_interrupted_fits_go_on(n, rng, monkeypatch, tmp_path):
    """A checkpoint has what shows that rows stay, or rounding errors would differ."""
    X = clusters(rng, n)
    whole, _, settled = fitted(MADE, X)
    assert settled > 0
    for n_saved in (4, 8, 12):
        folder = tmp_path / str(n_saved)
        assert goes_on(monkeypatch, lambda: clone(MADE), X, whole, folder, n_saved)


@pytest.mark.parametrize("n", [16, 90])
def test_limits_hold_whatever_the_prior_becomes(n, rng, monkeypatch):
    """The prior changes at random, and q follows it with the same statistics."""
    X, noted = clusters(rng, n, k=3), []
    of_visit = _settled_rows.Origin.noted

    def note(self, terms, log_joint, is_own):
        found = of_visit(self, terms, log_joint, is_own)
        noted.append((found, is_own, self))
        return found

    monkeypatch.setattr(_settled_rows.Origin, "noted", note)
    with pytest.MonkeyPatch.context() as patched:
        visits = []
        step = _settled_rows.settled_step
        patched.setattr(
            f"{FusedGaussian.__module__}.settled_step",
            lambda *arguments: visits.append(arguments) or step(*arguments),
        )
        clone(MADE).set_params(n_components=3).fit(X)
    (before, is_own, _), (components, rows, features, _) = noted[-1], visits[-1]
    raw, checked = features.origin.raw, 0
    stats = components.statistics(raw)
    for size in np.geomspace(1e-4, 3.0, 40):
        changed, spread = components, rng.uniform(-size, size, 30)
        changed = type(components)(3, 30, "full", reg_covar=components.reg_covar)
        vars(changed).update(vars(components))
        changed.mean_precision_prior *= np.exp(rng.uniform(-size, size))
        changed.degrees_of_freedom_prior *= np.exp(0.1 * rng.uniform(0.0, size))
        changed.set_scale(np.diag(np.diagonal(components.common_scale) * np.exp(spread)), None)
        center = components.mean_prior - rows.center + size * rng.standard_normal(30)
        prior = changed.natural_prior(center)
        q = {key: prior[key] + stats[key] for key in prior}
        known = changed.known(q, None)
        known |= {"made_of": (prior, raw), "exact": True}
        new = changed.joint_expectations(q, np.log([0.2, 0.3, 0.5]), known=known).own
        density, own = _wide_gaussians.log_joint(rows.X - rows.center, new), is_own.argmax(axis=1)
        limits = before.limits(new.origin, new.terms)
        if limits is None:
            continue
        checked += 1
        for j in range(3):
            some = density[own == j]
            assert limits[0][j] <= some[:, j].min() + 1e-9
            others = np.delete(np.arange(3), j)
            assert (limits[1][j, others] >= some[:, others].max(axis=0) - 1e-9).all()
        energy = new.origin.counts @ (new.terms.constant - 0.5 * new.origin.of_columns)
        energy -= 0.5 * new.origin.within.sum()
        assert_allclose(energy, density[np.arange(n), own].sum(), rtol=1e-9)
    assert checked >= 10
