"""Hidden Markov models: against hmmlearn, all paths and the plain model; data; behaviour."""

from __future__ import annotations

import pickle
from collections import Counter
from functools import partial
from itertools import pairwise, product

import numpy as np
import plain_hidden_markov as plain
import pytest
from harness import Fixed, attributes_of, context_of, one_update, open_run, units_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_anneal import AnnealedHMM, concat_sequences, split_sequences
from sklearn_anneal.annealing import (
    ANNEALING,
    DeterministicAnnealing,
    LocalVariationalTempering,
    StructuredVI,
    SVIPlus,
    VariationalTempering,
)
from sklearn_anneal.families import Tempering
from sklearn_anneal.models import hidden_markov
from sklearn_anneal.models.hidden_markov import Gaps

V, D = 5, 2
COVARIANCE_TYPES = ("full", "diag", "spherical", "tied")
VARIANTS = {
    "categorical": {"emission": "categorical", "n_symbols": V},
    "bernoulli": {"emission": "bernoulli"},
    "poisson": {"emission": "poisson"},
    **{f"gaussian-{t}": {"covariance_type": t} for t in COVARIANCE_TYPES},
}
ONE_OF_EACH = ("categorical", "bernoulli", "poisson", "gaussian-full")
GIVEN_PRIORS = {
    "categorical": {"emissionprob_prior": [0.3, 0.6, 0.2, 1.1, 0.5]},
    "bernoulli": {"emissionprob_prior": 0.7},
    "poisson": {"lambdas_prior": 1.3, "lambdas_weight": [0.4, 0.8]},
    "gaussian": {"means_prior": [4.0, 5.5], "beta_prior": 0.6, "dof_prior": 3.5},
}
INVERSE_TEMPERATURES = (1.0, 0.4)

all_variants = pytest.mark.parametrize("variant", VARIANTS)
all_emissions = pytest.mark.parametrize("variant", ONE_OF_EACH)


def draw_states(rng, length, k=3, stay=0.8):
    """A chain that stays where it is with probability ``stay``."""
    states = np.empty(length, dtype=int)
    states[0] = rng.integers(k)
    for t in range(1, length):
        states[t] = states[t - 1] if rng.random() < stay else rng.integers(k)
    return states


def draw(variant, rng, lengths, missing=None):
    """Sequences of three states; ``missing`` frames of the index (sequence → frames)."""
    sequences = []
    for length in lengths:
        z = draw_states(rng, length)
        if variant == "categorical":
            usual = rng.random(length) < 0.7
            X = np.where(usual, z, rng.integers(V, size=length)).astype(float)[:, None]
        elif variant == "bernoulli":
            p = np.array([[0.9, 0.1], [0.2, 0.9], [0.1, 0.2]])
            X = (rng.random((length, D)) < p[z]).astype(float)
        elif variant == "poisson":
            X = rng.poisson(np.array([[1.0, 8.0], [6.0, 2.0], [15.0, 15.0]])[z]).astype(float)
        else:
            centers = np.array([[4.0, 4.0], [6.0, 5.0], [5.0, 8.0]])
            X = centers[z] + rng.standard_normal((length, D)) * [0.5, 0.8]
        sequences.append(X)
    for i, frames in (missing or {}).items():
        sequences[i][frames] = -1.0 if variant == "categorical" else np.nan
    return sequences


def small(variant="gaussian-full", n_components=2, **params):
    settings = {"annealing": "none", "random_state": 0, "max_iter": 8, "reg_covar": 0.0}
    settings |= VARIANTS[variant]
    return AnnealedHMM(n_components, **(settings | params))


def with_priors(variant, n_components=2, **params):
    """Every prior given, none symmetric where that can be."""
    given = {
        "startprob_prior": np.linspace(0.5, 1.0, n_components),
        "transmat_prior": 0.4 + 0.1 * np.arange(n_components**2).reshape(n_components, -1),
        "sticky": 0.7,
        **GIVEN_PRIORS[variant.split("-")[0]],
    }
    if variant.startswith("gaussian"):
        full = np.array([[1.2, 0.3], [0.3, 0.8]])
        given["scale_prior"] = {
            "full": full,
            "tied": full,
            "diag": np.diag(full),
            "spherical": 0.9,
        }[VARIANTS[variant]["covariance_type"]]
    return small(variant, n_components, **(given | params))


def sequence_weights(weights, sequences):
    """Weights of rows from weights of sequences."""
    return None if weights is None else np.repeat(weights, [len(X) for X in sequences])


def run_of(est, sequences, weights=None, q=None):
    """``open_run``, and the plain emission, prior and q at its start."""
    ctx, method, units = open_run(
        est, sequences, weights if weights is None else np.array(weights), q=q
    )
    return ctx, method, units, *plain_state(est, ctx)


def plain_state(est, ctx):
    attributes = attributes_of(est, ctx)
    prior, q = (plain.parameters_of(est, which, attributes) for which in ("prior", "posterior"))
    return plain.emission_of(est), prior, q


def assert_parameters(found, expected, rtol=1e-9):
    assert_allclose(found.start, expected.start, rtol=rtol)
    assert_allclose(found.transition, expected.transition, rtol=rtol)
    assert found.emission.keys() == expected.emission.keys()
    for key, value in expected.emission.items():
        assert_allclose(
            found.emission[key], value, rtol=rtol, atol=rtol * np.abs(value).max(), err_msg=key
        )


# hmmlearn


def twin_of(est, attributes, n_iter):
    """hmmlearn's estimator with the priors and the start of ours."""
    vhmm = pytest.importorskip("hmmlearn.vhmm")
    # A tolerance of minus infinity never stops it.
    how = {"n_iter": n_iter, "tol": -np.inf, "init_params": ""}
    names = ["startprob", "transmat"]
    if est.emission == "categorical":
        twin = vhmm.VariationalCategoricalHMM(est.n_components, n_features=V, **how)
        names += ["emissionprob"]
    else:
        twin = vhmm.VariationalGaussianHMM(
            est.n_components, covariance_type=est.covariance_type, **how
        )
        names += ["means", "beta", "dof", "scale"]
    for name in names:
        for which in ("prior", "posterior"):
            value = np.array(attributes[f"{name}_{which}_"])
            if name == "dof" and est.covariance_type == "tied":
                value = float(value)
            setattr(twin, f"{name}_{which}_", value)
    return twin


def bounds_of_both(est, sequences, n_iter):
    """The bounds before each of the first updates, ours and hmmlearn's, and its parameters.

    hmmlearn drops the constant −D/2 log 2π of each Gaussian frame; it is put back.
    """
    ctx, method, units = open_run(est, sequences)
    twin = twin_of(est, attributes_of(est, ctx), n_iter)
    ours = []
    for _ in range(n_iter):
        q = ctx.q
        seen = one_update(ctx, method, units)
        ours.append(seen.step.bound - ctx.model.kl(q, ctx.prior))
    X = np.concatenate(sequences)
    twin.fit(X.astype(int) if est.emission == "categorical" else X, [len(s) for s in sequences])
    theirs = np.array(twin.monitor_.history)
    if est.emission == "gaussian":
        theirs -= 0.5 * X.size * np.log(2 * np.pi)
    return np.array(ours), theirs, twin, attributes_of(est, ctx)


# Its history has as many bounds as its monitor keeps.
COMPARED = 8


@pytest.mark.parametrize("priors", ["default", "given"])
@pytest.mark.parametrize(
    ("variant", "n_components"),
    [
        *((v, k) for v in ("categorical", "gaussian-full", "gaussian-diag") for k in (2, 4)),
        ("gaussian-spherical", 3),
        # Its tied model is another one than scikit-learn's mixtures and ours: one precision
        # matrix that all states share, whose Wishart counts all frames and enters the bound
        # once. Ours are K precision matrices whose q(Λ_k) share a scale matrix. With one state
        # these are the same.
        ("gaussian-tied", 1),
    ],
)
def test_bound_is_that_of_hmmlearn_pass_by_pass(variant, n_components, priors, rng):
    sequences = draw(variant, rng, [40, 25, 1, 60, 2])
    make = with_priors if priors == "given" else small
    est = make(variant, n_components, tol=0.0, max_iter=COMPARED - 1)
    ours, theirs, twin, attributes = bounds_of_both(est, sequences, COMPARED)
    assert len(theirs) == COMPARED
    assert_allclose(ours, theirs, rtol=1e-8)
    if n_components > 1:
        assert theirs[-1] > theirs[0] + 1
    for name in ("startprob_posterior_", "transmat_posterior_", "emissionprob_posterior_"):
        if name in attributes:
            assert_allclose(attributes[name], getattr(twin, name), rtol=1e-7, err_msg=name)
    if est.emission == "gaussian":
        for name in ("means_posterior_", "beta_posterior_", "dof_posterior_", "scale_posterior_"):
            assert_allclose(
                attributes[name], getattr(twin, name), rtol=1e-7, atol=1e-8, err_msg=name
            )
    # The history of a fit begins after the first update.
    assert_allclose(est.fit(sequences).lower_bounds_, theirs[1:], rtol=1e-8)


def test_tied_states_are_not_those_of_hmmlearn(rng):
    """Two models, each with its own bound: what the comment above says, so that it stays true."""
    sequences = draw("gaussian-tied", rng, [40, 30])
    ours, theirs, *_ = bounds_of_both(small("gaussian-tied", 3), sequences, 3)
    assert np.all(np.abs(ours - theirs) > 0.1)


@pytest.mark.parametrize("variant", ["categorical", "gaussian-full", "gaussian-tied"])
def test_predictions_are_those_of_hmmlearn_at_the_mean_parameters(variant, rng):
    hmm = pytest.importorskip("hmmlearn.hmm")
    sequences = draw(variant, rng, [30, 1, 20])
    est = small(variant, 3).fit(sequences)
    if variant == "categorical":
        twin = hmm.CategoricalHMM(3, n_features=V)
        twin.emissionprob_ = est.emissionprob_
    else:
        twin = hmm.GaussianHMM(3, covariance_type=est.covariance_type)
        twin.means_, twin.covars_ = est.means_, est.covars_
    twin.startprob_, twin.transmat_ = est.startprob_, est.transmat_
    X, lengths = np.concatenate(sequences), [30, 1, 20]
    X = X.astype(int) if variant == "categorical" else X
    assert est.score(sequences) * len(X) == pytest.approx(twin.score(X, lengths), rel=1e-9)
    assert_array_equal(est.predict(sequences), twin.predict(X, lengths))
    assert_allclose(est.predict_proba(sequences), twin.predict_proba(X, lengths), atol=1e-9)


# Enumeration of all paths

TINY = ([5, 3, 1, 4], {0: [2], 3: [0, 3]})


@pytest.mark.parametrize("x", INVERSE_TEMPERATURES)
@all_variants
def test_local_step_is_the_sum_over_all_paths(variant, x, rng):
    """Log normalisers, statistics, energy and entropy, with missing frames and weights."""
    lengths, missing = TINY
    sequences = draw(variant, rng, lengths, missing)
    weights = [1.0, 2.0, 0.5, 3.0]
    est = with_priors(variant)
    ctx, _, units, emission, prior, q = run_of(est, sequences, weights)
    seen = one_update(ctx, Fixed(Tempering(x, x)), units)
    step = plain.local_step(emission, q, sequences, x, weights, find=plain.enumerated)
    assert seen.step.energy == pytest.approx(step.energy, rel=1e-10)
    assert seen.step.entropy == pytest.approx(step.entropy, rel=1e-9)
    log_norm = np.dot(weights, [paths.log_norm for paths in step.paths])
    assert x * seen.step.energy + seen.step.entropy == pytest.approx(log_norm, rel=1e-10)
    expected = plain.updated(emission, prior, sequences, step, x, weights)
    assert_parameters(plain_state(est, ctx)[2], expected)


@all_variants
def test_each_sequence_may_have_a_temperature(variant, rng):
    lengths, missing = TINY
    sequences = draw(variant, rng, lengths, missing)
    est = with_priors(variant)
    ctx, _, units, emission, prior, q = run_of(est, sequences)
    x = np.array([1.0, 0.3, 0.7, 0.01])
    seen = one_update(ctx, Fixed(Tempering(x, x)), units)
    steps = [
        plain.local_step(emission, q, [X], power, find=plain.enumerated)
        for X, power in zip(sequences, x, strict=True)
    ]
    assert seen.step.energy == pytest.approx(sum(s.energy for s in steps), rel=1e-10)
    assert seen.step.entropy == pytest.approx(sum(s.entropy for s in steps), rel=1e-9)
    # The factor x of the statistics of a sequence acts as its weight does.
    together = plain.Step([s.paths[0] for s in steps], *(
        sum(p * getattr(s, name) for p, s in zip(x, steps, strict=True))
        for name in ("start", "transition", "energy", "entropy")
    ))  # fmt: skip
    expected = plain.updated(emission, prior, sequences, together, 1.0, x)
    assert_parameters(plain_state(est, ctx)[2], expected)


@pytest.mark.parametrize("n_components", [1, 3, 5])
@all_variants
def test_several_updates_are_the_plain_ones(variant, n_components, rng):
    sequences = draw(variant, rng, [30, 1, 17, 2, 40], {0: [0, 7], 2: slice(10, None), 1: [0]})
    weights = [1.0, 0.5, 2.0, 0.0, 1.0]
    est = with_priors(variant, n_components)
    ctx, method, units, emission, prior, q = run_of(est, sequences, weights)
    for _ in range(3):
        before = ctx.q
        seen = one_update(ctx, method, units)
        bound = seen.step.bound - ctx.model.kl(before, ctx.prior)
        assert bound == pytest.approx(
            plain.lower_bound(emission, q, prior, sequences, weights), rel=1e-10
        )
        q = plain.one_update(emission, q, prior, sequences, weights=weights)
        assert_parameters(plain_state(est, ctx)[2], q, rtol=1e-8)


@all_variants
def test_reported_bound_is_the_plain_one(variant, rng):
    sequences = draw(variant, rng, [30, 12], {1: [11]})
    est = with_priors(variant, 3, annealing=DeterministicAnnealing(n_passes=3), max_iter=3)
    est.fit(sequences)
    prior, q = (plain.parameters_of(est, which) for which in ("prior", "posterior"))
    expected = plain.lower_bound(plain.emission_of(est), q, prior, sequences)
    assert est.lower_bound_ == pytest.approx(expected, rel=1e-10)
    assert est.temperatures_[0] > 1 == est.temperatures_[-1]


# Prediction


def fitted(variant, rng, n_components=2, **params):
    est = with_priors(variant, n_components, **params)
    return est.fit(draw(variant, rng, [20, 15, 1]))


def mean_logs(est, X):
    """log π, log A and log p(x | z) at the mean parameters, of one sequence."""
    q = plain.parameters_of(est)
    return (
        np.log(q.start / q.start.sum()),
        np.log(q.transition / q.transition.sum(axis=1, keepdims=True)),
        plain.emission_of(est).log_density(q.emission, X),
    )


@all_variants
def test_predictions_are_those_of_all_paths(variant, rng):
    est = fitted(variant, rng, 3)
    lengths, missing = TINY
    sequences = draw(variant, rng, lengths, missing)
    best = [plain.best_path(*mean_logs(est, X)) for X in sequences]
    paths = [plain.enumerated(*mean_logs(est, X)) for X in sequences]
    assert_array_equal(est.predict(sequences), np.concatenate([z for z, _ in best]))
    log_probability, states = est.decode(sequences)
    assert_array_equal(states, est.predict(sequences))
    assert log_probability == pytest.approx(sum(energy for _, energy in best), rel=1e-10)
    proba = np.concatenate([p.posteriors for p in paths])
    assert_allclose(est.predict_proba(sequences), proba, atol=1e-10)
    assert_array_equal(est.transform(sequences), est.predict_proba(sequences))
    found = est.score_sequences(sequences)
    assert_allclose(found, [p.log_norm for p in paths], rtol=1e-10)
    assert est.score(sequences) == pytest.approx(found.sum() / sum(lengths), rel=1e-12)


def test_viterbi_is_not_the_sequence_of_the_most_probable_states(rng):
    """Where the most probable states do not make a path; else the tests above tell little."""
    est = fitted("categorical", rng, 3)
    differing = 0
    for _ in range(30):
        X = rng.integers(V, size=(6, 1))
        differing += np.any(est.predict(X) != est.predict_proba(X).argmax(axis=1))
    assert differing


def test_weighted_score_is_the_weighted_mean_over_frames(rng):
    est, sequences = fitted("gaussian-full", rng), draw("gaussian-full", rng, [4, 7, 2])
    weights = np.array([1.0, 0.0, 2.5])
    expected = weights @ est.score_sequences(sequences) / (weights @ [4, 7, 2])
    found = est.score(sequences, sample_weight=sequence_weights(weights, sequences))
    assert found == pytest.approx(expected, rel=1e-12)


@all_emissions
def test_sample_has_the_frequencies_of_the_model(variant, rng):
    est = fitted(variant, rng, 3)
    X, states = est.sample(20_000)
    n_columns = 1 if variant == "categorical" else D
    assert X.shape == (20_000, n_columns)
    assert states.shape == (20_000,)
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (states[:-1], states[1:]), 1)
    assert_allclose(pairs / pairs.sum(axis=1, keepdims=True), est.transmat_, atol=0.04)
    for k in range(3):
        frames = X[states == k]
        error = 5 / np.sqrt(len(frames))
        if variant == "categorical":
            found = np.bincount(frames[:, 0].astype(int), minlength=V) / len(frames)
            assert_allclose(found, est.emissionprob_[k], atol=error)
        elif variant == "bernoulli":
            assert_allclose(frames.mean(axis=0), est.emissionprob_[k], atol=error)
        elif variant == "poisson":
            scale = np.sqrt(est.lambdas_[k])
            assert_allclose((frames.mean(axis=0) - est.lambdas_[k]) / scale, 0, atol=error)
        else:
            scale = np.sqrt(np.diag(est.covars_[k]))
            assert_allclose((frames.mean(axis=0) - est.means_[k]) / scale, 0, atol=error)
            assert_allclose(np.cov(frames.T), est.covars_[k], atol=0.1 * est.covars_[k].max())
    again = est.sample(20_000)
    for one, other in zip((X, states), again, strict=True):
        assert_array_equal(one, other)
    starts = Counter(int(clone_with_seed(est, seed).sample(1)[1][0]) for seed in range(400))
    found = np.array([starts[k] for k in range(3)]) / 400
    assert_allclose(found, est.startprob_, atol=0.13)
    assert np.isfinite(est.score(X))


def clone_with_seed(est, seed):
    return pickle.loads(pickle.dumps(est)).set_params(random_state=seed)


# Missing frames


@pytest.mark.parametrize("variant", ["categorical", "bernoulli"])
def test_a_model_with_a_missing_frame_marginalises_it(variant, rng):
    """For frames of few values: the log likelihood summed over all that could have been seen."""
    est = fitted(variant, rng, 3)
    values = np.arange(V)[:, None] if variant == "categorical" else np.array(
        [[0, 0], [0, 1], [1, 0], [1, 1]]
    )  # fmt: skip
    (X,) = draw(variant, rng, [6])
    for t in (0, 3, 5):
        gap = X.copy()
        gap[t] = -1 if variant == "categorical" else np.nan
        filled = []
        for value in values:
            full = X.copy()
            full[t] = value
            filled.append(est.score_sequences(full)[0])
        assert est.score_sequences(gap)[0] == pytest.approx(np.logaddexp.reduce(filled))


@all_emissions
def test_missing_frames_at_the_end_change_nothing_but_the_path(variant, rng):
    est = fitted(variant, rng, 3)
    (X,) = draw(variant, rng, [12])
    gone = X.copy()
    gone[9:] = -1 if variant == "categorical" else np.nan
    assert est.score_sequences(gone)[0] == pytest.approx(est.score_sequences(X[:9])[0], rel=1e-12)
    proba = est.predict_proba(gone)
    assert_allclose(proba[:9], est.predict_proba(X[:9]), atol=1e-12)
    assert_allclose(proba[10], proba[9] @ est.transmat_, atol=1e-12)
    assert_array_equal(est.predict(gone)[:9].shape, (9,))


@all_variants
def test_missing_frames_have_no_share_of_the_emissions(variant, rng):
    """Neither of the data-dependent priors and starts: expected counts are those observed."""
    sequences = draw(variant, rng, [20, 10], {0: slice(15, None), 1: [3, 4]})
    est = small(variant, 3).fit(sequences)
    prior, q = (plain.parameters_of(est, which) for which in ("prior", "posterior"))
    count = {
        "categorical": lambda p: p.emission["emissionprob"].sum(),
        "bernoulli": lambda p: (p.emission["a"] + p.emission["b"])[:, 0].sum(),
        "poisson": lambda p: p.emission["rate"][:, 0].sum(),
    }.get(variant, lambda p: p.emission["beta"].sum())
    assert count(q) - count(prior) == pytest.approx(30 - 7, rel=1e-10)
    assert q.transition.sum() - prior.transition.sum() == pytest.approx(28, rel=1e-10)
    observed = np.concatenate([X[plain.emission_of(est).observed(X)] for X in sequences])
    if est.emission == "gaussian":
        assert_allclose(est.means_prior_ * np.ones((3, D)), [observed.mean(axis=0)] * 3)
    if est.emission == "poisson":
        assert_allclose(est.lambdas_weight_prior_, [1 / observed.mean(axis=0)] * 3)


@pytest.mark.parametrize("variant", ["gaussian-full", "poisson", "bernoulli"])
def test_rows_that_are_partly_missing_are_refused(variant, rng):
    est = fitted(variant, rng)
    (X,) = draw(variant, rng, [6])
    X[3, 1] = np.nan
    for method in ("fit", "partial_fit", "predict", "score", "transform"):
        with pytest.raises(ValueError, match="[Rr]ow 3 .*partly NaN"):
            getattr(est, method)(X)


@pytest.mark.parametrize("variant", ONE_OF_EACH)
def test_a_sequence_of_missing_frames_alone_is_a_path(variant, rng):
    sequences = draw(variant, rng, [15, 3, 12], {1: slice(None)})
    est = small(variant).fit(sequences)
    assert est.score_sequences(sequences)[1] == pytest.approx(0, abs=1e-12)
    assert_allclose(est.predict_proba(sequences)[15], est.startprob_, atol=1e-12)
    assert np.isfinite(est.lower_bound_)


def test_a_missing_symbol_may_be_nan_or_minus_one(rng):
    sequences = draw("categorical", rng, [20, 10], {0: [3, 19]})
    with_nan = [np.where(X < 0, np.nan, X) for X in sequences]
    one, other = small("categorical").fit(sequences), small("categorical").fit(with_nan)
    assert_same_fit(one, other)
    assert_array_equal(one.predict(sequences), one.predict(with_nan))


def test_infinite_values_are_refused(rng):
    (X,) = draw("gaussian-full", rng, [10])
    X[2] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        small().fit(X)


# Forms of data


def assert_same_fit(one, other):
    assert_array_equal(one.lower_bounds_, other.lower_bounds_)
    q = context_of(other).q
    for key, value in context_of(one).q.items():
        assert_array_equal(value, q[key], err_msg=key)
    assert one.n_sequences_ == other.n_sequences_


def forms_of(variant, sequences):
    """The same sequences in every form: arguments of ``fit``."""
    pd = pytest.importorskip("pandas")
    X, lengths = np.concatenate(sequences), [len(s) for s in sequences]
    ids = np.repeat(np.arange(len(sequences)), lengths)
    forms = {
        "list": (sequences, {}),
        "tuple": (tuple(sequences), {}),
        "lengths": (X, {"lengths": lengths}),
        "lengths as an array": (X, {"lengths": np.array(lengths)}),
        "groups": (X, {"groups": ids}),
        "groups in no order": (X, {"groups": (7 - 3 * ids) ** 2}),
        "groups of words": (X, {"groups": np.array(["zeta", "beta", "psi", "eta"])[ids]}),
        "groups as a list": (X, {"groups": ids.tolist()}),
        "groups as a series": (X, {"groups": pd.Series(ids, index=ids[::-1])}),
    }
    if variant == "categorical":
        forms["one-dimensional"] = ([s[:, 0].astype(int) for s in sequences], {})
        forms["integers"] = ([s.astype(np.int8) for s in sequences], {})
    return forms


@all_emissions
def test_every_form_of_the_same_data_is_the_same_fit(variant, rng):
    sequences = draw(variant, rng, [12, 1, 7, 9])
    est = small(variant)
    reference = clone(est).fit(sequences)
    assert reference.n_sequences_ == 4
    for name, (X, how) in forms_of(variant, sequences).items():
        other = clone(est).fit(X, **how)
        assert_same_fit(reference, other)
        for method in ("predict", "predict_proba", "transform", "score_sequences", "score"):
            expected = getattr(reference, method)(sequences)
            found = getattr(reference, method)(X, **how)
            assert_array_equal(found, expected, err_msg=f"{name}: {method}")
        for found, expected in zip(reference.decode(X, **how), reference.decode(sequences),
                                   strict=True):  # fmt: skip
            assert_array_equal(found, expected, err_msg=name)
        assert_same_fit(clone(est).partial_fit(sequences), clone(est).partial_fit(X, **how))
    assert reference.predict_proba(sequences).shape == (29, 2)
    assert reference.score_sequences(sequences).shape == (4,)


@pytest.mark.parametrize("variant", VARIANTS)
def test_parts_in_memory_change_nothing(variant, rng, monkeypatch):
    """However few sequences are in memory at a time."""
    sequences = draw(variant, rng, [9, 1, 30, 4, 4, 17, 2, 60, 5])
    whole = small(variant, max_iter=5).fit(sequences)
    states = whole.decode(sequences)
    monkeypatch.setattr(hidden_markov, "_ENTRIES", 40)
    parts = small(variant, max_iter=5).fit(sequences)
    assert_allclose(parts.lower_bounds_, whole.lower_bounds_, rtol=1e-12)
    assert_allclose(parts.transmat_, whole.transmat_, rtol=1e-9)
    assert_allclose(parts.predict_proba(sequences), whole.predict_proba(sequences), atol=1e-9)
    log_probability, path = whole.decode(sequences)
    assert log_probability == pytest.approx(states[0], rel=1e-12)
    assert_array_equal(path, states[1])


def test_sequences_may_be_data_frames(rng):
    pd = pytest.importorskip("pandas")
    sequences = draw("gaussian-full", rng, [12, 1, 7])
    frames = [pd.DataFrame(X, columns=["a", "b"]) for X in sequences]
    one, other = small().fit(sequences), small().fit(frames)
    # Columns lie elsewhere in memory, which changes the last bits of sums.
    assert_allclose(other.lower_bounds_, one.lower_bounds_, rtol=1e-12)
    assert_array_equal(other.feature_names_in_, ["a", "b"])
    assert_array_equal(other.predict(frames), one.predict(sequences))
    whole = pd.concat(frames)
    assert_same_fit(small().fit(whole, lengths=[12, 1, 7]), other)
    with pytest.raises(ValueError, match="feature names"):
        other.predict([frame[["b", "a"]] for frame in frames])


def test_nested_list_is_one_sequence():
    rows = [[1.0, 2.0], [3.0, 4.0], [1.5, 2.5], [3.5, 3.5]]
    est = small().fit(rows)
    assert est.n_sequences_ == 1
    assert_same_fit(est, small().fit(np.array(rows)))
    assert est.predict(rows).shape == (4,)
    symbols = small("categorical").fit([[0], [1], [1], [0]])
    assert symbols.n_sequences_ == 1


def test_one_array_is_one_sequence(rng):
    (X,) = draw("gaussian-full", rng, [20])
    est = small().fit(X)
    assert est.n_sequences_ == 1
    assert_same_fit(est, small().fit([X]))
    assert_same_fit(est, small().fit(X, lengths=[20]))


@all_emissions
def test_all_sequences_may_be_of_length_one(variant, rng):
    sequences = draw(variant, rng, [1] * 30)
    est = small(variant).fit(sequences)
    assert est.n_sequences_ == 30
    prior = plain.parameters_of(est, "prior").transition
    assert_allclose(est.transmat_posterior_, prior, rtol=1e-12)
    assert est.startprob_posterior_.sum() == pytest.approx(30 + est.startprob_prior_.sum())


def test_lists_become_one_array_and_groups_and_back(rng):
    sequences = draw("gaussian-full", rng, [12, 1, 7])
    X, groups = concat_sequences(sequences)
    assert_array_equal(X, np.concatenate(sequences))
    assert groups.shape == (20,)
    lengths = [len(s) for s in sequences]
    assert len(np.unique(groups)) == 3
    assert_array_equal(np.flatnonzero(np.diff(groups)), [11, 12])
    parts = split_sequences(X, lengths)
    assert isinstance(parts, list)
    for part, sequence in zip(parts, sequences, strict=True):
        assert_array_equal(part, sequence)
    est = small().fit(sequences)
    assert_same_fit(est, small().fit(X, groups=groups))
    per_frame = split_sequences(est.predict_proba(sequences), lengths)
    assert [p.shape for p in per_frame] == [(12, 2), (1, 2), (7, 2)]
    assert [len(p) for p in split_sequences(est.predict(sequences), lengths)] == lengths
    with pytest.raises(ValueError, match="19.*20|20.*19"):
        split_sequences(X, [12, 7])


METHODS = ("fit", "partial_fit", "predict", "predict_proba", "transform", "score",
           "score_sequences", "decode")  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_metadata_that_does_not_fit_is_refused(method, rng):
    (X,) = draw("gaussian-full", rng, [20])
    est = small().fit(X)
    call = getattr(est, method)
    for lengths in ([5, 5], [15, 15], [20, 5, -5], [10.5, 9.5]):
        with pytest.raises(ValueError, match="lengths"):
            call(X, lengths=lengths)
    with pytest.raises(ValueError, match="19.*20|20.*19"):
        call(X, groups=np.zeros(19))
    back = np.repeat([0, 1, 0], [8, 7, 5])
    with pytest.raises(ValueError, match="consecutive"):
        call(X, groups=back)
    with pytest.raises(ValueError, match="groups.*lengths|lengths.*groups"):
        call(X, groups=np.zeros(20), lengths=[20])
    for how in ({"groups": np.zeros(20)}, {"lengths": [20]}):
        with pytest.raises(ValueError, match="list"):
            call([X], **how)


@pytest.mark.parametrize("method", ["fit", "partial_fit", "score"])
def test_lengths_in_the_place_of_y_are_asked_about(method, rng):
    (X,) = draw("gaussian-full", rng, [20])
    est = small().fit(X)
    with pytest.raises(ValueError, match="did you mean lengths="):
        getattr(est, method)(X, [12, 8])
    getattr(est, method)(X, np.zeros(20))


@pytest.mark.parametrize("method", ["fit", "partial_fit", "score"])
def test_weights_vary_between_sequences_alone(method, rng):
    (X,) = draw("gaussian-full", rng, [20])
    est = small().fit(X)
    weights = np.repeat([1.0, 2.0], 10)
    getattr(est, method)(X, lengths=[10, 10], sample_weight=weights)
    with pytest.raises(ValueError, match="sample_weight.*sequence|sequence.*sample_weight"):
        getattr(est, method)(X, lengths=[12, 8], sample_weight=weights)


def test_columns_differ_between_sequences():
    with pytest.raises(ValueError):
        small().fit([np.zeros((4, 2)), np.zeros((4, 3))])
    with pytest.raises(ValueError):
        small().fit([np.zeros((4, 2)), np.zeros((0, 2))])
    with pytest.raises(ValueError):
        small().fit([])


# Model selection


class Seen(AnnealedHMM):
    """Counts the sequences that ``fit`` and ``score`` are called with."""

    fitted: list = []
    scored: list = []

    def fit(self, X, y=None, *, groups=None, lengths=None, sample_weight=None):
        super().fit(X, y, groups=groups, lengths=lengths, sample_weight=sample_weight)
        self.fitted.append((self.n_sequences_, None if groups is None else len(set(groups))))
        return self

    def score(self, X, y=None, *, groups=None, lengths=None, sample_weight=None):
        self.scored.append(len(self.score_sequences(X, groups=groups, lengths=lengths)))
        return super().score(X, y, groups=groups, lengths=lengths, sample_weight=sample_weight)


@pytest.fixture
def spy():
    Seen.fitted.clear()
    Seen.scored.clear()
    return Seen(2, annealing="none", max_iter=3, random_state=0)


@pytest.mark.parametrize("piped", [False, True])
def test_grid_search_routes_groups_and_nothing_else_is_needed(piped, spy, rng):
    sequences = draw("gaussian-full", rng, [9, 4, 6, 8, 5, 7])
    X, groups = concat_sequences(sequences)
    with config_context(enable_metadata_routing=True):
        est = make_pipeline(StandardScaler(), spy) if piped else spy
        name = "seen__n_components" if piped else "n_components"
        search = GridSearchCV(est, {name: [1, 2]}, cv=GroupKFold(2)).fit(X, groups=groups)
        best = search.best_estimator_
        assert (best[-1] if piped else best).n_sequences_ == 6
        assert search.score(X, groups=groups) == pytest.approx(best.score(X, groups=groups))
    # Two candidates and two folds of three sequences each, and the refit.
    assert Seen.fitted == [(3, 3)] * 4 + [(6, 6)]
    assert Seen.scored[:4] == [3] * 4
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))


@pytest.mark.parametrize("routing", [False, True])
def test_lists_of_sequences_in_model_selection(routing, spy, rng):
    sequences = draw("gaussian-full", rng, [9, 4, 6, 8, 5, 7])
    with config_context(enable_metadata_routing=routing):
        scores = cross_val_score(spy, sequences, cv=3)
    assert Seen.fitted == [(4, None)] * 3
    assert Seen.scored == [2] * 3
    by_hand = [
        clone(spy).fit([s for i, s in enumerate(sequences) if i // 2 != fold]).score(
            sequences[2 * fold : 2 * fold + 2]
        )
        for fold in range(3)
    ]  # fmt: skip
    assert_allclose(scores, by_hand)
    search = GridSearchCV(clone(spy), {"n_components": [1, 2]}, cv=3).fit(sequences)
    assert search.best_estimator_.n_sequences_ == 6


# Symbols


def symbols(*sequences):
    return [np.array(s, dtype=int) for s in sequences]


READERS = ("predict", "predict_proba", "transform", "score", "score_sequences", "decode")


@pytest.mark.parametrize("method", [*READERS, "partial_fit"])
@pytest.mark.parametrize("n_symbols", [3, None])
def test_undeclared_symbol_is_named(method, n_symbols):
    est = small("categorical", n_symbols=n_symbols).fit(symbols([0, 1, 2, 1], [2, 2, 0]))
    assert est.emissionprob_.shape == (2, 3)
    with pytest.raises(ValueError, match=r"7.*n_symbols=") as caught:
        getattr(est, method)(symbols([0, 7]))
    assert "3" in str(caught.value)


def test_symbols_are_declared_or_inferred_in_fit_alone():
    data = symbols([0, 1, 5, 1], [2, 2, 0])
    assert small("categorical", n_symbols=None).fit(data).emissionprob_.shape == (2, 6)
    assert small("categorical", n_symbols=9).fit(data).emissionprob_.shape == (2, 9)
    with pytest.raises(ValueError, match=r"5.*n_symbols="):
        small("categorical", n_symbols=5).fit(data)
    stream = small("categorical", n_symbols=None)
    with pytest.raises(ValueError, match="n_symbols"):
        stream.partial_fit(data)
    assert not hasattr(stream, "lower_bound_")
    stream.set_params(n_symbols=6).partial_fit(data)
    assert stream.emissionprob_.shape == (2, 6)


@pytest.mark.parametrize("symbol", [0.5, -2, -0.5, 1e300])
@pytest.mark.parametrize("method", ["fit", "partial_fit", "predict"])
def test_what_is_no_symbol_is_refused(method, symbol):
    est = small("categorical").fit(symbols([0, 1, 2, 1]))
    with pytest.raises(ValueError, match="[Ss]ymbol"):
        getattr(est, method)(np.array([[0.0], [symbol], [1.0]]))


def test_categorical_has_one_column():
    with pytest.raises(ValueError, match="one column.*2"):
        small("categorical").fit(np.zeros((5, 2)))


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16, np.float32, np.float64])
def test_symbols_of_any_dtype(dtype, rng):
    data = draw("categorical", rng, [30, 20])
    assert_same_fit(
        small("categorical").fit(data), small("categorical").fit([X.astype(dtype) for X in data])
    )


@pytest.mark.parametrize(
    ("variant", "bad"), [("poisson", -1.0), ("poisson", 0.5), ("bernoulli", 2.0)]
)
def test_values_outside_of_the_support_are_refused(variant, bad, rng):
    (X,) = draw(variant, rng, [10])
    X[4, 1] = bad
    with pytest.raises(ValueError, match=f"{bad:g}"):
        small(variant).fit(X)


def test_emission_is_never_guessed(rng):
    X = rng.integers(0, 2, size=(40, 2))
    est = AnnealedHMM(2, random_state=0).fit(X)
    assert est.emission == "gaussian"
    assert est.means_.shape == (2, 2)
    assert not hasattr(est, "emissionprob_")


# What survives


def assert_sound(est, sequences):
    for name, value in vars(est).items():
        # Some methods evaluate the bound only now and then.
        if name.endswith("_") and name != "lower_bounds_" and isinstance(value, np.ndarray):
            assert np.all(np.isfinite(value)), name
    assert np.isfinite(est.lower_bound_)
    assert not np.any(np.isinf(est.lower_bounds_))
    assert np.all(np.isfinite(est.score_sequences(sequences)))
    assert_allclose(est.predict_proba(sequences).sum(axis=1), 1)
    assert est.startprob_.sum() == pytest.approx(1)
    assert_allclose(est.transmat_.sum(axis=1), 1)


@pytest.mark.parametrize("annealing", ["none", "deterministic", "stochastic"])
@all_variants
def test_a_state_that_dies_gets_its_prior_back(variant, annealing, rng):
    sequences = draw(variant, rng, [12, 8])
    n_states = 18 if variant == "gaussian-tied" else 12
    est = small(variant, n_states, annealing=annealing, max_iter=300, tol=1e-12)
    if variant == "categorical":
        est.set_params(emissionprob_prior=1.0)
    est.fit(sequences)
    assert_sound(est, sequences)
    prior, q = (plain.parameters_of(est, which) for which in ("prior", "posterior"))
    arrivals = (q.transition - prior.transition).sum(axis=0) + q.start - prior.start
    dead = np.flatnonzero(arrivals < 1e-6)
    assert len(dead), "every state is in use: the test tests nothing"
    assert est.n_effective_components_ <= n_states - len(dead)
    assert_allclose(q.transition[dead], prior.transition[dead], rtol=1e-4)
    for key, value in q.emission.items():
        if variant == "gaussian-tied" and key in ("inverse_scale", "dof"):
            continue  # shared with the living
        assert_allclose(value[dead], prior.emission[key][dead], rtol=1e-3, atol=1e-3, err_msg=key)


@pytest.mark.parametrize("annealing", ANNEALING)
@all_emissions
def test_constant_data(variant, annealing):
    if variant == "poisson" and "tempering" in annealing:
        pytest.skip("refused")
    value = {"categorical": [[2.0]], "gaussian-full": [[3.0, -4.0]]}.get(variant, [[1.0, 0.0]])
    sequences = [np.repeat(value, n, axis=0) for n in (10, 1, 5)]
    est = small(variant, 3, annealing=annealing)
    if variant == "gaussian-full":
        with pytest.raises(ValueError, match="scale_prior.*reg_covar"):
            est.fit(sequences)
        est.set_params(scale_prior=np.eye(2), reg_covar=1e-6)
    assert_sound(est.fit(sequences), sequences)


def scaled_log_likelihood(est, X):
    """The forward recursion with one normaliser per frame; quick enough for long sequences."""
    start, transition, emission = (np.exp(v) for v in mean_logs(est, X))
    total, forward = 0.0, start
    for t, row in enumerate(emission):
        forward = (forward if t == 0 else forward @ transition) * row
        norm = forward.sum()
        total += np.log(norm)
        forward = forward / norm
    return total


@pytest.mark.parametrize("variant", ["categorical", "gaussian-full"])
def test_sequence_of_a_hundred_thousand_frames(variant, rng):
    (X,) = draw(variant, rng, [100_000])
    est = small(variant, 3, max_iter=2).fit(X)
    assert_sound(est, X)
    assert est.score_sequences(X)[0] == pytest.approx(scaled_log_likelihood(est, X), rel=1e-10)
    best, states = est.decode(X)
    start, transition, emission = mean_logs(est, X)
    energy = start[states[0]] + transition[states[:-1], states[1:]].sum()
    assert best == pytest.approx(energy + emission[np.arange(len(X)), states].sum())
    assert best <= est.score_sequences(X)


@pytest.mark.parametrize("tiny", [1e-5, 1e-100, 1e-300])
def test_probabilities_near_zero(tiny, rng):
    """Symbols and transitions that were never seen, of prior weight next to nothing."""
    est = small("categorical", n_symbols=4, emissionprob_prior=tiny, transmat_prior=tiny)
    train = symbols([0, 1] * 10, [0, 0, 1, 1])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        est.fit(train)
        test = symbols([3, 0, 3, 3, 1], [2], [1, 1, 1, 2])
        found = est.score_sequences(test)
    assert_sound(est, test)
    expected = [plain.forward_backward(*mean_logs(est, X[:, None])).log_norm for X in test]
    assert_allclose(found, expected, rtol=1e-10)
    assert np.all(found < np.log(tiny))
    paths = [plain.best_path(*mean_logs(est, X[:, None])) for X in test]
    assert est.decode(test)[0] == pytest.approx(sum(energy for _, energy in paths), rel=1e-10)


def test_frames_far_from_every_state(rng):
    """Densities that underflow: e^-1e6 per frame, in scaled recursions and in logarithms."""
    est = fitted("gaussian-full", rng, 3)
    X = np.array([[5.0, 5.0], [3000.0, -2000.0], [4.0, 4.0], [-5000.0, 0.0]])
    paths = plain.forward_backward(*mean_logs(est, X))
    assert paths.log_norm < -1e6
    assert est.score_sequences(X)[0] == pytest.approx(paths.log_norm, rel=1e-10)
    assert_allclose(est.predict_proba(X), paths.posteriors, atol=1e-8)


# Streams, weights and annealing


@all_emissions
def test_pickled_stream_goes_on_the_same(variant, rng):
    batches = [draw(variant, rng, [7, 5, 9]) for _ in range(4)]
    for annealing in ("none", "deterministic", "stochastic"):
        straight, resumed = (small(variant, annealing=annealing) for _ in range(2))
        for batch in batches:
            X, groups = concat_sequences(batch)
            straight.partial_fit(X, groups=groups)
            resumed = pickle.loads(pickle.dumps(resumed)).partial_fit(batch)
            assert_same_fit(straight, resumed)
        assert straight.n_iter_ == 4


@all_emissions
def test_first_update_of_a_stream_is_that_of_a_batch(variant, rng):
    sequences = draw(variant, rng, [20, 11, 5])
    stream = small(variant, learning_decay=0.0).partial_fit(sequences)
    whole = small(variant, max_iter=1).fit(sequences)
    for key, value in context_of(whole).q.items():
        assert_allclose(context_of(stream).q[key], value, rtol=1e-12)


@all_emissions
def test_refused_batch_leaves_the_stream_as_it_was(variant, rng):
    est = small(variant).partial_fit(draw(variant, rng, [20, 11]))
    before = pickle.dumps(est)
    (X,) = draw(variant, rng, [10])
    for how in ({"lengths": [3, 3]}, {"groups": [0, 1, 0] * 3 + [1]}):
        with pytest.raises(ValueError):
            est.partial_fit(X, **how)
    assert pickle.dumps(est) == before


@pytest.mark.parametrize("annealing", ["none", "deterministic"])
@all_emissions
def test_minibatches_of_sequences_come_near_the_batch(variant, annealing, rng):
    sequences = draw(variant, rng, rng.integers(5, 30, size=60))
    plainly = small(variant, 3, max_iter=60).fit(sequences)
    how = {"max_iter": 30, "batch_size": 12, "annealing": annealing}
    stochastic = small(variant, 3, **how).fit(sequences)
    assert stochastic.n_sequences_ == 60
    # Counts are those of the data, however long they were displaced.
    total = (stochastic.transmat_posterior_ - stochastic.transmat_prior_).sum()
    assert total == pytest.approx(sum(map(len, sequences)) - 60, rel=0.1)
    n_frames = sum(map(len, sequences))
    slack = 0.1 if annealing == "none" else 0.2
    assert plainly.lower_bound_ - slack * n_frames < stochastic.lower_bound_
    assert stochastic.lower_bound_ < plainly.lower_bound_ + 0.1 * n_frames
    assert stochastic.lower_bounds_[-1] > stochastic.lower_bounds_[0] + 1


def test_total_samples_counts_sequences(rng):
    sequences = draw("gaussian-full", rng, [6] * 10)
    counts = []
    for total in (None, 300):
        est = small(learning_decay=0.0, total_samples=total).partial_fit(sequences)
        counts.append((est.startprob_posterior_ - est.startprob_prior_).sum())
    assert_allclose(counts, [10, 300], rtol=1e-10)


@pytest.mark.parametrize("annealing", ["none", "deterministic"])
def test_sticky_prior_raises_the_self_transitions(annealing, rng):
    sequences = draw("gaussian-full", rng, [40, 30])
    loose, sticky = (small("gaussian-full", 3, annealing=annealing, sticky=s) for s in (0.0, 50.0))
    loose.fit(sequences)
    sticky.fit(sequences)
    assert_allclose(loose.transmat_prior_, np.full((3, 3), 1 / 3))
    assert_allclose(sticky.transmat_prior_, np.full((3, 3), 1 / 3) + 50 * np.eye(3))
    assert np.diag(sticky.transmat_).min() > np.diag(loose.transmat_).min()
    assert np.diag(sticky.transmat_).mean() > np.diag(loose.transmat_).mean() + 0.05


@all_variants
def test_weights_are_numbers_of_sequences_in_every_update(variant, rng):
    """From the same start; the priors that depend on data count weights too."""
    sequences = draw(variant, rng, [12, 7, 9], {0: [3]})
    repeated = [sequences[0], sequences[0], sequences[2]]
    est = small(variant, 3)
    one, method, units = open_run(est, sequences, np.array([2.0, 0.0, 1.0]))
    two, _, copies = open_run(est, repeated, q=one.q)
    for key, value in two.prior.items():
        assert_allclose(one.prior[key], value, rtol=1e-10, atol=1e-12, err_msg=key)
    for _ in range(3):
        seen, of_copies = one_update(one, method, units), one_update(two, method, copies)
        assert seen.step.bound == pytest.approx(of_copies.step.bound, rel=1e-10)
        for key, value in two.q.items():
            assert_allclose(one.q[key], value, rtol=1e-9, atol=1e-9, err_msg=key)


@pytest.mark.parametrize("annealing", ["none", "deterministic", "tempering", "local_tempering"])
def test_weights_are_numbers_of_sequences_in_a_fit(annealing, rng):
    """The random start of categorical states depends on the number of frames alone."""
    sequences = draw("categorical", rng, [12, 7, 9])
    weights = sequence_weights([2.0, 0.0, 1.0], sequences)
    one = small("categorical", annealing=annealing).fit(sequences, sample_weight=weights)
    other = small("categorical", annealing=annealing).fit([sequences[i] for i in (0, 0, 2)])
    assert_allclose(one.lower_bounds_, other.lower_bounds_, rtol=1e-9)
    assert_allclose(one.transmat_, other.transmat_, rtol=1e-7)


def test_svi_plus_has_one_weight_per_sequence(rng):
    sequences = draw("gaussian-full", rng, [12, 1, 7, 30])
    est = small(annealing=SVIPlus(effective_batch_size=2))
    ctx, method, units = open_run(est, sequences)
    assert units.n_weight_units == units.n_units == 4
    noise = method.weights(ctx, units)
    assert noise.shape == (4,)
    assert noise.std() > 0
    _, _, _, emission, prior, q = run_of(est, sequences)
    expected = plain.one_update(emission, q, prior, sequences, weights=noise)
    step = ctx.model.local_step(
        units, ctx.model.prepared(ctx.model.expectations(ctx.q), Tempering()), Tempering(), noise
    )
    stats = ctx.model.block_statistics(ctx.model.blocks[0], step.statistics, ctx.q)
    ctx.q = {key: ctx.prior[key] + value for key, value in stats.items()}
    assert_parameters(plain_state(est, ctx)[2], expected)
    # The bound is that of the data as they are.
    step_of_data = plain.local_step(emission, q, sequences)
    assert step.energy == pytest.approx(step_of_data.energy, rel=1e-10)


@pytest.mark.parametrize("variant", ["categorical", "bernoulli", "gaussian-full"])
def test_inverse_temperatures_rank_an_outlier_first(variant, rng):
    sequences = draw(variant, rng, [25] * 12)
    odd = {
        "categorical": lambda: rng.integers(3, V, size=(25, 1)).astype(float),
        "bernoulli": lambda: rng.integers(0, 2, size=(25, D)).astype(float),
    }.get(variant, lambda: rng.uniform(-30, 40, size=(25, D)))()
    sequences[4] = odd
    est = small(variant, 3, annealing=LocalVariationalTempering(n_passes=10)).fit(sequences)
    x = est.inverse_temperatures(sequences)
    assert x.shape == (12,)
    assert np.all((x > 0) & (x <= 1))
    assert np.argmin(x) == 4
    X, groups = concat_sequences(sequences)
    assert_array_equal(est.inverse_temperatures(X, groups=groups), x)
    assert est.temperatures_[0] > 1 == est.temperatures_[-1]
    assert not hasattr(small(variant).fit(sequences), "inverse_temperatures")


def test_counts_of_states_do_not_vanish_by_displacement(rng):
    """Two states of Poisson counts are found from any start, with jitter and without."""
    z = [np.repeat(rng.integers(2, size=4), 5) for _ in range(30)]
    X = [rng.poisson(30 * np.array([[1, 4], [4, 1]])[states]).astype(float) for states in z]
    bounds = [
        small("poisson", annealing=annealing, random_state=seed, max_iter=50).fit(X).lower_bound_
        for annealing in ("none", "deterministic")
        for seed in range(4)
    ]
    assert_allclose(bounds, bounds[0], rtol=1e-3)


@pytest.mark.parametrize("variant", ["categorical", "bernoulli"])
@pytest.mark.parametrize("gaps", [[], [0], [2], [1, 2], [4], [0, 4], [0, 1, 2, 3, 4]])
def test_log_partition_is_the_sum_over_paths_and_observations(variant, gaps, rng):
    """By enumeration; what is missing takes a state, and is not summed over."""
    sequences = draw(variant, rng, [7, 3, 9])
    est = small(variant).fit(sequences)
    ctx, _, _ = open_run(est, sequences)
    sequence = draw(variant, rng, [5], {0: gaps})
    x = np.array([0.3, 0.7, 1.0])
    found = ctx.model.unit_log_partition(x, ctx.summary, ctx.q).of(units_of(est, sequence))
    expected = ctx.model.expectations(ctx.q)
    every = np.arange(V)[:, None] if variant == "categorical" else list(product([0, 1], repeat=D))
    emission = ctx.model.log_density(units_of(est, np.array(every, dtype=float)), expected)
    sums = []
    for power in (*x, 1.0):
        paths = []
        for path in product(range(2), repeat=5):
            log_p = expected.startprob[path[0]]
            log_p += sum(expected.transmat[i, j] for i, j in pairwise(path))
            total = power * log_p
            for t, k in enumerate(path):
                if t not in gaps:
                    total += logsumexp(power * emission[:, k])
            paths.append(total)
        sums.append(logsumexp(paths))
    assert_allclose(found, [np.array(sums[:-1]) - x * sums[-1]], rtol=1e-9, atol=1e-9)
    # All data: by number of sequences, complete or not.
    weights = np.array([1.0, 1.0, 1.0, 2.0, 0.0])
    both, _, _ = open_run(est, sequences + sequence * 2, weights, q=ctx.q)
    whole = ctx.model.log_partition(x, ctx.summary, ctx.q) + 2 * found[0]
    assert_allclose(both.model.log_partition(x, both.summary, ctx.q), whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("annealing", ["tempering", "local_tempering"])
def test_temperings_end_at_one_with_missing_frames(annealing, rng):
    sequences = draw("gaussian-full", rng, [30] * 40)
    for frames in sequences:
        frames[rng.random(30) < 0.7] = np.nan
    tempered = small(n_components=3, max_iter=60, annealing=annealing).fit(sequences)
    annealed = tempered.temperatures_[tempered.temperatures_ > 1]
    assert annealed[-1] < 1.1
    if annealing == "local_tempering":
        long = [sequences[0], np.concatenate([sequences[0], np.full((100, D), np.nan)])]
        few, many = tempered.inverse_temperatures(long)
        assert few > 0.9 and many > 0.6


def test_sequences_of_weight_zero_do_not_declare_symbols():
    symbols = np.repeat([[0], [1], [2], [9]], 10, axis=0)
    weights = np.repeat([1.0, 0.0], [30, 10])
    est = AnnealedHMM(2, emission="categorical", annealing="none", random_state=0)
    assert est.fit(symbols, lengths=[30, 10], sample_weight=weights).n_symbols_ == 3


@pytest.mark.parametrize("kind", ["Int64", "int64", "polars"])
def test_series_of_symbols_are_sequences(kind):
    if kind == "polars":
        series = pytest.importorskip("polars").Series
    else:
        series = partial(pytest.importorskip("pandas").Series, dtype=kind)
    values = [[0, 1, 1, 0, 2], [2, 2, 1]]
    est = small("categorical", n_symbols=None)
    found = est.fit([series(each) for each in values]).transmat_
    assert_array_equal(found, est.fit([np.array(each) for each in values]).transmat_)


def test_polars_frames_of_other_types_are_put_together():
    pl = pytest.importorskip("polars")
    X, groups = concat_sequences([pl.DataFrame({"a": [1, 2]}), pl.DataFrame({"a": [1.5]})])
    assert_array_equal(np.asarray(X)[:, 0], [1.0, 2.0, 1.5])
    assert_array_equal(groups, [0, 0, 1])


def test_warm_start_counts_its_own_sequences(rng):
    frames = rng.standard_normal((60, 2))
    est = small(warm_start=True).fit(frames, lengths=[60])
    assert est.fit(frames, lengths=[10] * 6).n_sequences_ == 6


def test_a_batch_that_overflows_is_refused_and_leaves_no_trace(rng):
    frames = rng.standard_normal((60, 2))
    est = small().partial_fit(frames)
    before = est.score(frames)
    with pytest.raises(ValueError, match="rescale X|Rescale X"):
        est.partial_fit(1e160 * frames)
    assert est.score(frames) == before
    assert np.isfinite(est.partial_fit(frames).score(frames))
    with pytest.raises(ValueError, match="so far from the training data"):
        est.score(1e160 * frames)


def test_gaps_of_a_stream_are_those_of_some_sequences():
    rng = np.random.default_rng(0)
    some = Gaps(np.array([0, 60_000]), np.ones(60_000, dtype=np.int32), np.array([2.0]))
    other = Gaps(np.array([0, 5, 70_000]), np.ones(70_000, dtype=np.int32), rng.random(2))
    merged = some.merge(other)
    assert_array_equal(merged.indptr, [0, 60_000, 60_005])
    assert len(merged.missing) == 60_005
    assert merged.weights.sum() == pytest.approx(2.0 + other.weights.sum())
    assert some.merge(some).weights == pytest.approx(4.0)


def test_poisson_refuses_temperings(rng):
    (X,) = draw("poisson", rng, [20])
    for method in ("tempering", "local_tempering", VariationalTempering(),
                   LocalVariationalTempering()):  # fmt: skip
        for fit in ("fit", "partial_fit"):
            est = small("poisson", annealing=method)
            with pytest.raises(ValueError, match="log partition function") as caught:
                getattr(est, fit)(X)
            assert "'deterministic'" in str(caught.value)
            assert not hasattr(est, "lower_bound_")


@all_emissions
def test_exact_gradients_are_refused(variant, rng):
    (X,) = draw(variant, rng, [20])
    with pytest.raises(ValueError, match="exact"):
        small(variant, annealing=StructuredVI(gradient="exact")).fit(X)


@pytest.mark.parametrize("annealing", ANNEALING)
@all_variants
def test_every_method_fits_every_emission(variant, annealing, rng):
    if variant == "poisson" and "tempering" in annealing:
        pytest.skip("refused")
    method = ANNEALING[annealing]()
    if "n_passes" in method.get_params():
        method.set_params(n_passes=4)
    sequences = draw(variant, rng, [20, 1, 9], {0: [4]})
    est = small(variant, 3, annealing=method, n_init=2).fit(sequences)
    assert_sound(est, sequences)
    assert len(est.restart_lower_bounds_) == 2
    assert est.lower_bound_ == est.restart_lower_bounds_.max()
    prior, q = (plain.parameters_of(est, which) for which in ("prior", "posterior"))
    bound = plain.lower_bound(plain.emission_of(est), q, prior, sequences)
    assert est.lower_bound_ == pytest.approx(bound, rel=1e-9)


def test_deterministic_annealing_parts_equal_states(rng):
    """Above a critical temperature all states become equal; the jitter parts them again."""
    sequences = draw("categorical", rng, [200, 150])
    hot = {"initial_temperature": 30.0, "n_passes": 40}
    still, shaken = (
        small("categorical", 3, annealing=DeterministicAnnealing(**hot, jitter=jitter),
              max_iter=50).fit(sequences)
        for jitter in (0.0, 1.0)
    )  # fmt: skip
    assert np.ptp(still.emissionprob_, axis=0).max() < 1e-3
    assert np.ptp(shaken.emissionprob_, axis=0).max() > 0.3
    assert shaken.lower_bound_ > still.lower_bound_ + 5


# Attributes


@all_variants
def test_attributes_have_their_shapes_and_meanings(variant, rng):
    k = 3
    sequences = draw(variant, rng, [30, 20])
    est = small(variant, k).fit(sequences)
    for name, shape in {"startprob": (k,), "transmat": (k, k)}.items():
        posterior, prior = (getattr(est, f"{name}_{w}_") for w in ("posterior", "prior"))
        assert posterior.shape == prior.shape == shape
        assert_allclose(prior, 1 / k)
        mean = posterior / posterior.sum(axis=-1, keepdims=True)
        assert_allclose(getattr(est, f"{name}_"), mean, rtol=1e-12)
    if variant == "categorical":
        assert est.emissionprob_posterior_.shape == est.emissionprob_prior_.shape == (k, V)
        assert_allclose(est.emissionprob_prior_, 1 / V)
        assert_allclose(est.emissionprob_.sum(axis=1), 1)
    elif variant == "bernoulli":
        assert est.emissionprob_.shape == (k, D)
        assert est.emissionprob_posterior_.shape == (k, D, 2)
        assert_allclose(
            est.emissionprob_,
            est.emissionprob_posterior_[..., 0] / est.emissionprob_posterior_.sum(axis=-1),
        )
    elif variant == "poisson":
        assert est.lambdas_.shape == est.lambdas_posterior_.shape == (k, D)
        assert est.lambdas_weight_posterior_.shape == (k, D)
        assert_allclose(est.lambdas_, est.lambdas_posterior_ / est.lambdas_weight_posterior_)
    else:
        shape = {"full": (k, D, D), "diag": (k, D), "spherical": (k,), "tied": (D, D)}
        assert est.covars_.shape == est.scale_posterior_.shape == shape[est.covariance_type]
        assert_array_equal(est.means_, est.means_posterior_)
        dof = np.reshape(est.dof_posterior_, np.shape(est.dof_posterior_) + (1,) * (
            est.covars_.ndim - np.ndim(est.dof_posterior_)))  # fmt: skip
        assert_allclose(est.covars_, est.scale_posterior_ / dof)
        X = np.concatenate(sequences)
        assert_allclose(np.broadcast_to(est.means_prior_, (k, D)), [X.mean(axis=0)] * k)
        assert_allclose(est.beta_prior_, 1)
        assert_allclose(est.dof_prior_, D)
        full = plain.full_matrices(est.scale_prior_, est.covariance_type, k, D)
        assert_allclose(full, plain.emission_of(est).project(np.array([np.cov(X.T)] * k)))
    assert est.n_sequences_ == 2
    assert est.n_features_in_ == (1 if variant == "categorical" else D)
    counts = np.array(est.predict_proba(sequences).sum(axis=0))
    assert 1 <= est.n_effective_components_ <= k
    assert est.n_effective_components_ == np.sum(counts > 1)
    assert list(est.get_feature_names_out()) == [f"annealedhmm{i}" for i in range(k)]
    assert len(est.lower_bounds_) == len(est.temperatures_) == est.n_iter_


def test_unfitted_estimators_say_so(rng):
    (X,) = draw("gaussian-full", rng, [5])
    for method in READERS:
        with pytest.raises(NotFittedError):
            getattr(AnnealedHMM(2), method)(X)
    with pytest.raises(NotFittedError):
        AnnealedHMM(2).sample(3)


def test_warm_start_goes_on_where_the_fit_ended(rng):
    sequences = draw("gaussian-full", rng, [40, 30])
    straight = small(n_components=3, max_iter=6, tol=0.0).fit(sequences)
    two = small(n_components=3, max_iter=3, tol=0.0, warm_start=True).fit(sequences)
    two.fit(sequences)
    assert_allclose(two.lower_bounds_, straight.lower_bounds_, rtol=1e-12)
    two.set_params(emission="poisson")
    with pytest.raises(ValueError, match="emission"):
        two.fit([np.floor(np.abs(X)) for X in sequences])


@pytest.mark.parametrize(
    "params",
    [
        {"startprob_prior": 0.0},
        {"startprob_prior": [1.0, 1.0, 1.0]},
        {"transmat_prior": np.ones((3, 2))},
        {"transmat_prior": -1.0},
        {"sticky": -1.0},
        {"beta_prior": 0.0},
        {"dof_prior": 1.0},
        {"means_prior": [1.0]},
        {"scale_prior": -np.eye(2)},
        {"covariance_type": "round"},
        {"emission": "normal"},
        {"n_components": 0},
        {"n_symbols": 0},
        {"init_params": "best"},
    ],
)
def test_impossible_parameters_are_named(params, rng):
    (X,) = draw("gaussian-full", rng, [10])
    with pytest.raises(ValueError, match=next(iter(params))):
        small().set_params(**params).fit(X)


# hmmlearn's published examples, with data drawn here

DICE = np.array([[1 / 6] * 6, [1 / 10] * 5 + [1 / 2]])
SWITCHES = np.array([[0.95, 0.05], [0.1, 0.9]])


def matched(found, expected):
    """The order of the found rows that is nearest to the expected ones."""
    distances = np.abs(np.asarray(found)[None] - np.asarray(expected)[:, None])
    return linear_sum_assignment(distances.reshape(len(expected), len(found), -1).sum(axis=2))[1]


def test_dishonest_casino_is_found_out():
    """Which rolls were of the loaded die, and how it is loaded; plain inference does not see it."""
    rng = np.random.default_rng(513)
    n = 20_000
    z = np.zeros(n, dtype=int)
    for t in range(1, n):
        z[t] = rng.random() < SWITCHES[z[t - 1], 1]
    rolls = (rng.random(n)[:, None] > np.cumsum(DICE, axis=1)[z]).sum(axis=1).clip(max=5)
    plainly, est = (
        small("categorical", n_symbols=6, annealing=name, max_iter=500).fit(rolls[:, None])
        for name in ("none", "stochastic")
    )
    assert est.lower_bound_ > plainly.lower_bound_ + 50
    order = matched(est.emissionprob_, DICE)
    assert_allclose(est.emissionprob_[order], DICE, atol=0.03)
    assert_allclose(est.transmat_[np.ix_(order, order)], SWITCHES, atol=0.03)
    found = np.argsort(order)[est.predict(rolls[:, None])]
    # What the true parameters tell is the best that can be told of the rolls.
    hmm = pytest.importorskip("hmmlearn.hmm").CategoricalHMM(2)
    hmm.startprob_, hmm.transmat_, hmm.emissionprob_ = np.array([1.0, 0.0]), SWITCHES, DICE
    by_truth = np.mean(hmm.predict(rolls[:, None]) == z)
    assert by_truth > 0.75
    assert np.mean(found == z) > by_truth - 0.01


MEANS = np.array([-1.5, 0.0, 1.5, 3.0])
MOVES = np.array([[0.3, 0.4, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.5, 0.2, 0.1, 0.2],
                  [0.25, 0.25, 0.25, 0.25]])  # fmt: skip


def test_bound_chooses_the_four_states_of_the_variational_tutorial():
    """Four Gaussians of deviation 1/4 whose order tells little; hmmlearn's bound says four."""
    rng = np.random.default_rng(1984)
    n = 1000
    z = np.empty(n, dtype=int)
    z[0] = rng.integers(4)
    for t in range(1, n):
        z[t] = rng.choice(4, p=MOVES[z[t - 1]])
    X = (MEANS[z] + 0.25 * rng.standard_normal(n))[:, None]
    bounds, models = {}, {}
    for k in range(2, 7):
        models[k] = AnnealedHMM(
            k, scale_prior=1e-3 * np.eye(1), random_state=0,
        ).fit(X)  # fmt: skip
        bounds[k] = models[k].lower_bound_
    assert max(bounds, key=bounds.get) == 4
    best = models[4]
    order = matched(best.means_, MEANS[:, None])
    assert_allclose(best.means_[order, 0], MEANS, atol=0.06)
    # The prior's one frame at the mean of all makes the outer states wider.
    assert_allclose(np.sqrt(best.covars_[order].ravel()), 0.25, atol=0.08)
    assert_allclose(best.transmat_[np.ix_(order, order)], MOVES, atol=0.09)
    assert np.mean(np.argsort(order)[best.predict(X)] == z) > 0.98
    # With six, the two that are not needed are given up.
    assert models[6].n_effective_components_ >= 4
