"""Tests of whole fits of hidden Markov models: streams, weights, annealing, attributes."""

from __future__ import annotations

import numpy as np
import plain_hidden_markov as plain
import pytest
import sklearn
from cases_hidden_markov import (
    ONE_OF_EACH,
    READERS,
    D,
    V,
    all_variants,
    assert_parameters,
    draw,
    plain_state,
    run_of,
    small,
)
from designs import in_turn
from harness import all_at_once, open_run, quick
from numpy.testing import assert_allclose, assert_array_equal
from packaging.version import Version
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_anneal import AnnealedHMM, concat_sequences
from sklearn_anneal.annealing import (
    DeterministicAnnealing,
    LocalVariationalTempering,
    SVIPlus,
)
from sklearn_anneal.models._tempered_chains import Gaps

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


def since(version):
    """What needs a version of scikit-learn that routes metadata so far."""
    older = Version(sklearn.__version__) < Version(version)
    reason = f"scikit-learn routes this metadata since version {version}"
    return pytest.param(True, marks=pytest.mark.skipif(older, reason=reason))


@pytest.mark.parametrize("piped", [False, since("1.8")])
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


@pytest.mark.parametrize("routing", [False, since("1.7")])
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


# Streams, weights and annealing


@in_turn(variant=ONE_OF_EACH, annealing=["none", "deterministic"])
def test_minibatches_of_sequences_come_near_the_batch(variant, annealing, rng):
    sequences = draw(variant, rng, rng.integers(5, 30, size=60))
    plainly = small(variant, 3, max_iter=60).fit(sequences)
    how = {"max_iter": 30, "batch_size": 12, "annealing": quick(annealing, 20)}
    stochastic = small(variant, 3, **how).fit(sequences)
    assert stochastic.n_sequences_ == 60
    # The counts are those of the data, however long noise displaced them.
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


@pytest.mark.parametrize("annealing", ["reheating", "none", "deterministic"])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_a_stream_begins_with_a_fit_to_enough_frames(covariance_type, annealing):
    """It has 25 frames for each state."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, 2))[rng.integers(0, 3, 450)] + rng.standard_normal((450, 2)) / 2
    est = AnnealedHMM(3, covariance_type=covariance_type, annealing=annealing, random_state=0)
    for n, begins in ((74, False), (75, True)):
        whole, stream = clone(est).fit(X[:n]), clone(est)
        # The bound of the first batch is that before its update.
        bound = stream.partial_fit(X[:n]).lower_bound_
        assert (abs(bound - whole.lower_bound_) < 1e-8 * abs(bound)) == begins
        assert stream.n_iter_ == 1
    assert clone(est).set_params(max_iter=1).partial_fit(X[:n]).lower_bound_ < bound
    # A fit that would be refused is refused at once.
    if annealing == "none":
        with pytest.raises(ValueError, match="effort=2 cannot be combined"):
            clone(est).set_params(effort=2).partial_fit(X[:5])


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


def test_svi_plus_has_one_weight_per_sequence(rng):
    sequences = draw("gaussian-full", rng, [12, 1, 7, 30])
    est = small(annealing=SVIPlus(effective_batch_size=2))
    ctx, method, units = open_run(est, sequences)
    assert units.n_weight_units == units.n_units == 4
    noise = all_at_once(method.weights(ctx, 4), 4, ctx.rng)
    assert noise.shape == (4,)
    assert noise.std() > 0
    _, _, _, emission, prior, q = run_of(est, sequences)
    expected = plain.one_update(emission, q, prior, sequences, weights=noise)
    step = ctx.model.visit(ctx.q, units).step(units, noise)
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
    method = LocalVariationalTempering(n_passes=10)
    est = small(variant, 3, annealing=method, effort=0).fit(sequences)
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


@pytest.mark.parametrize("annealing", ["tempering", "local_tempering"])
def test_temperings_end_at_one_with_missing_frames(annealing, rng):
    sequences = draw("gaussian-full", rng, [30] * 40)
    for frames in sequences:
        frames[rng.random(30) < 0.7] = np.nan
    how = {"annealing": annealing, "effort": 0}
    tempered = small(n_components=3, max_iter=60, **how).fit(sequences)
    annealed = tempered.temperatures_[tempered.temperatures_ > 1]
    assert annealed[-1] < 1.1
    if annealing == "local_tempering":
        long = [sequences[0], np.concatenate([sequences[0], np.full((100, D), np.nan)])]
        few, many = tempered.inverse_temperatures(long)
        assert few > 0.9 and many > 0.6


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


def test_deterministic_annealing_parts_equal_states(rng):
    """Above a critical temperature all states become equal; the jitter parts them again."""
    sequences = draw("categorical", rng, [200, 150])
    hot = {"initial_temperature": 30.0, "n_passes": 40}
    still, shaken = (
        small("categorical", 3, annealing=DeterministicAnnealing(**hot, jitter=jitter),
              max_iter=50, effort=0).fit(sequences)
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
