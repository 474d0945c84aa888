"""Outcomes and covariates of classes by three steps, with corrections for errors of assignment."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from sklearn_anneal.three_step import _Assigned, class_covariates, distal_outcome

MEANS = np.array([-1.0, 1.0, 0.0])
SLOPES = np.array([0.0, -1.0, 1.0])
CORRECTIONS = (None, "bch", "ml")
corrections = pytest.mark.parametrize(
    ("correction", "assignment"), [("bch", "modal"), ("bch", "soft"), ("ml", "modal")]
)


def drawn(rng, n=2500, separation=0.75):
    """Exact responsibilities given six items, a covariate, and classes that depend on it."""
    z = rng.normal(3.0, 2.0, size=(n, 1))
    prior = softmax(0.5 * (z - 3.0) * SLOPES, axis=1)
    c = (prior.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    ones = np.where([[1] * 6, [1] * 3 + [0] * 3, [0] * 6], separation, 1.0 - separation)
    X = rng.random((n, 6)) < ones[c]
    # The mixture of the first step does not know the covariate, but the shares of the classes.
    shares = np.bincount(c, minlength=3) / n
    log_density = X @ np.log(ones).T + ~X @ np.log1p(-ones).T
    return softmax(log_density + np.log(shares), axis=1), z, c


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_classes_that_are_known_have_their_usual_means(correction, rng):
    c, y = rng.integers(3, size=90), rng.normal(size=90)
    found = distal_outcome(np.eye(3)[c], y, correction=correction)
    for k in range(3):
        own = y[c == k]
        assert found.mean[k] == pytest.approx(own.mean())
        # The standard error of scores differs from the usual one by sampling error.
        close = {"rel": 0.25} if correction == "ml" else {"rel": 1e-9}
        assert found.std[k] == pytest.approx(own.std() / np.sqrt(len(own)), **close)


@corrections
def test_corrections_find_means_that_assignments_shrink(correction, assignment, rng):
    R, _, c = drawn(rng)
    y = MEANS[c] + rng.standard_normal(len(c))
    naive = distal_outcome(R, y, correction=None, assignment=assignment)
    assert np.abs(naive.mean - MEANS).max() > 0.2
    found = distal_outcome(R, y, correction=correction, assignment=assignment)
    assert (np.abs(found.mean - MEANS) < 3.5 * found.std).all()
    assert found.std.max() < 0.1
    assert_allclose(found.std**2, np.diag(found.covariance))


def test_weights_of_bch_are_those_of_the_inverse_of_errors(rng):
    R, _, c = drawn(rng, 300)
    y, W = MEANS[c] + rng.standard_normal(300), np.eye(3)[R.argmax(axis=1)]
    errors = (R.T @ W) / R.sum(axis=0)[:, None]
    weights = W @ np.linalg.inv(errors)
    expected = weights.T @ y / weights.sum(axis=0)
    assert_allclose(distal_outcome(R, y).mean, expected)
    # Corrected shares of the classes are those of the responsibilities.
    assert_allclose(weights.sum(axis=0), R.sum(axis=0))


def test_assignments_are_as_probable_as_errors_say():
    errors = np.array([[0.9, 0.1, 0.0], [0.3, 0.5, 0.2], [0.1, 0.2, 0.7]])
    found = _Assigned(np.eye(3)[[0, 1, 0]], errors, np.ones(3)).log_likelihood()
    assert_allclose(found, np.log(errors[:, [0, 1, 0]]).T)


def test_outcomes_of_zeros_and_ones(rng):
    R, _, c = drawn(rng)
    truth = np.array([0.2, 0.5, 0.8])
    y = (rng.random(len(c)) < truth[c]).astype(float)
    for how in ({"correction": "bch"}, {"correction": "ml", "distribution": "bernoulli"}):
        found = distal_outcome(R, y, **how)
        assert (np.abs(found.mean - truth) < 3.5 * found.std).all()
        assert found.std.max() < 0.05


def test_standard_errors_of_means_are_deviations_of_tables(rng):
    found = {correction: [] for correction in CORRECTIONS}
    for _ in range(40):
        R, _, c = drawn(rng, 400, 0.85)
        y = MEANS[c] + rng.standard_normal(400)
        for correction, every in found.items():
            every.append(distal_outcome(R, y, correction=correction))
    for correction, every in found.items():
        spread = np.std([one.mean for one in every], axis=0)
        typical = np.mean([one.std for one in every], axis=0)
        assert_allclose(typical / spread, 1.0, atol=0.35, err_msg=str(correction))


def test_coefficients_without_correction_are_those_of_a_logit(rng):
    R, z, _ = drawn(rng, 500)
    peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(z, R.argmax(axis=1))
    found = class_covariates(R, z, correction=None)
    assert_allclose(found.coefficients, peer.coef_ - peer.coef_.mean(axis=0), atol=1e-4)
    assert_allclose(found.intercepts, peer.intercept_ - peer.intercept_.mean(), atol=1e-3)
    other = class_covariates(R, z, correction=None, reference=2)
    assert_allclose(other.coefficients, found.coefficients - found.coefficients[2], atol=1e-12)
    assert (other.coefficients_std[2] == 0.0).all()
    assert (other.covariance[2] == 0.0).all()


@corrections
def test_corrections_find_coefficients_that_assignments_shrink(correction, assignment, rng):
    R, z, _ = drawn(rng)
    truth = 0.5 * SLOPES[:, None]
    naive = class_covariates(R, z, correction=None, reference=0, assignment=assignment)
    assert np.abs(naive.coefficients - truth).max() > 0.1
    found = class_covariates(R, z, correction=correction, reference=0, assignment=assignment)
    assert (np.abs(found.coefficients - truth)[1:] < 3.5 * found.coefficients_std[1:]).all()
    assert found.coefficients_std.max() < 0.1


def test_standard_errors_of_coefficients_are_deviations_of_tables(rng):
    found = {correction: [] for correction in CORRECTIONS}
    for _ in range(16):
        R, z, _ = drawn(rng, 300, 0.9)
        for correction, every in found.items():
            every.append(class_covariates(R, z, correction=correction, reference=0))
    for correction, every in found.items():
        spread = np.std([one.coefficients[1:] for one in every], axis=0)
        typical = np.mean([one.coefficients_std[1:] for one in every], axis=0)
        assert_allclose(typical / spread, 1.0, atol=0.5, err_msg=str(correction))


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_weight_is_a_number_of_copies(correction, rng):
    R, z, c = drawn(rng, 200)
    y, times = MEANS[c] + rng.standard_normal(200), rng.integers(0, 3, size=200)
    for call, beside, name in ((distal_outcome, y, "mean"), (class_covariates, z, "coefficients")):
        one = call(R, beside, correction=correction, sample_weight=times)
        copies = (np.repeat(a, times, axis=0) for a in (R, beside))
        other = call(*copies, correction=correction)
        for numbers in (name, "covariance"):
            assert_allclose(one[numbers], other[numbers], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_units_of_outcomes_do_not_matter(correction, rng):
    R, _, c = drawn(rng, 300)
    y = MEANS[c] + rng.standard_normal(300)
    one = distal_outcome(R, y, correction=correction)
    for unit in (1e-12, 1e9, 1e40):
        other = distal_outcome(R, unit * (y + 7.0), correction=correction)
        assert_allclose(other.mean / unit - 7.0, one.mean, rtol=1e-6, atol=1e-8)
        assert_allclose(other.std / unit, one.std, rtol=1e-5)


def test_gaussian_outcomes_of_few_values_are_reported(rng):
    """Gaussian densities at single values have no limit, whose information is not finite."""
    R, _, c = drawn(rng, 300)
    y = (rng.random(300) < np.array([0.1, 0.5, 0.9])[c]).astype(float)
    with pytest.warns(UserWarning, match="all but constant in class .* distribution='bernoulli'"):
        distal_outcome(R, y, correction="ml")


def test_units_of_covariates_do_not_matter(rng):
    R, z, _ = drawn(rng, 300)
    one, other = class_covariates(R, z), class_covariates(R, 100.0 * z + 7.0)
    assert_allclose(100.0 * other.coefficients, one.coefficients, rtol=1e-6)
    assert_allclose(100.0 * other.coefficients_std, one.coefficients_std, rtol=1e-5)


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_covariate_that_separates_a_class_is_refused(correction, noise, rng):
    """Rounding ends the growth of coefficients, which were returned with huge standard errors."""
    R = rng.dirichlet([0.2, 0.2, 0.2], size=300)
    z = 3.0 * (R.argmax(axis=1) == 0)[:, None] + noise * rng.random((300, 1))
    with pytest.raises(ValueError, match="a covariate separates the classes"):
        class_covariates(R, z, correction=correction)


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_the_unit_of_weights_does_not_matter_for_estimates(correction, rng):
    R, z, c = drawn(rng, 300)
    y = MEANS[c] + rng.standard_normal(300)
    for call, beside, name in ((distal_outcome, y, "mean"), (class_covariates, z, "coefficients")):
        one = call(R, beside, correction=correction)
        other = call(R, beside, correction=correction, sample_weight=np.full(300, 1e-12))
        assert_allclose(other[name], one[name], rtol=1e-6, atol=1e-8)


def refusals():
    R, z = np.full((4, 2), 0.5), np.arange(4.0)
    sure = np.eye(2)[[0, 0, 1, 1]]
    ways = {
        "correction is one of": (distal_outcome, sure, z, {"correction": "BCH"}),
        "assignment is one of": (distal_outcome, sure, z, {"assignment": "hard"}),
        "soft assignments have none": (
            *(distal_outcome, sure, z),
            {"correction": "ml", "assignment": "soft"},
        ),
        "distribution is one of": (distal_outcome, sure, z, {"distribution": "poisson"}),
        "outcome of 0 and 1": (
            *(distal_outcome, sure, z),
            {"correction": "ml", "distribution": "bernoulli"},
        ),
        "sum to 1": (distal_outcome, 2.0 * sure, z, {}),
        "one class": (distal_outcome, np.ones((4, 1)), z, {}),
        "No row is assigned to class 1": (distal_outcome, R, z, {}),
        "has no inverse": (distal_outcome, R, z, {"assignment": "soft"}),
        "missing or infinite": (distal_outcome, sure, [0.0, np.nan, 1.0, 2.0], {}),
        "inconsistent numbers": (distal_outcome, sure, z[1:], {}),
        "reference is a class": (class_covariates, sure, z[:, None], {"reference": 2}),
        "constant": (class_covariates, sure, np.ones((4, 1)), {}),
        "collinear": (class_covariates, sure, np.outer(z, [1.0, 2.0]), {}),
        "covariates has numbers whose": (class_covariates, sure, 1e200 * z[:, None], {}),
        "outcome has numbers whose": (distal_outcome, sure, 1e200 * z, {}),
        "Negative values": (distal_outcome, sure, z, {"sample_weight": z - 1.0}),
        "no finite values": (class_covariates, sure, z[:, None], {"correction": None}),
        "contains NaN": (class_covariates, sure, np.full((4, 1), np.nan), {}),
    }
    return [pytest.param(*way, sentence, id=sentence) for sentence, way in ways.items()]


@pytest.mark.parametrize(("call", "R", "beside", "how", "sentence"), refusals())
def test_what_makes_no_sense_is_refused(call, R, beside, how, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(R, beside, **how)
