"""The annealing methods, one by one, against their definitions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from harness import (
    FULL_STEPS,
    context_of,
    largest_difference,
    one_update,
    open_run,
    quick,
    units_of,
)
from models import gaussian_mixture
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax
from scipy.stats import norm
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
    Context,
    DeterministicAnnealing,
    LocalVariationalTempering,
    NoAnnealing,
    ProximityVI,
    StochasticAnnealing,
    StructuredVI,
    SVIPlus,
    VariationalTempering,
)
from sklearn_anneal.annealing.schedules import SCHEDULES, finished
from sklearn_anneal.inference.units import Rows
from sklearn_anneal.models._base import LocalStep

(MIXTURE,) = gaussian_mixture.ENTRIES
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

VARIANTS = [pytest.param(params, id=name) for name, params in MIXTURE.variants.items()]


def mixture(method="none", **params):
    return MIXTURE.make(annealing=method, **params)


def run(method, X, **params):
    return open_run(mixture(method, **params), X)


def bare_context(method, rng, passes=0.0):
    ctx = Context(model=None, prior={}, summary=None, rng=rng, q={})
    ctx.state["passes"] = passes
    return ctx


def with_defaults(method):
    return method.resolve({})


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return PCA(15, random_state=0).fit_transform(X[y == 0])


# Schedules


@pytest.mark.parametrize(("start", "end"), [(7.0, 1.0), (0.9, 0.3), (2.0, 90.0), (3.0, 3.0)])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_is_monotone_between_its_exact_ends(name, start, end):
    schedule = SCHEDULES[name]
    values = np.array([schedule(start, end, u) for u in np.linspace(0, 1.5, 301)])
    assert values[0] == pytest.approx(start, rel=1e-15)
    assert (values[200:] == end).all()
    assert (np.sign(end - start) * np.diff(values) >= 0).all()
    assert values.min() >= min(start, end) and values.max() <= max(start, end)


@pytest.mark.parametrize("n", [3, 7, 10, 49])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_ends_although_fractions_do_not_add_up_to_one(name, n):
    clock = 0.0
    for _ in range(n):
        clock += 1 / n
    assert finished(clock)
    assert SCHEDULES[name](5.0, 1.0, clock) == 1.0
    assert not finished(clock - 0.5 / n)


@pytest.mark.parametrize("how", [{}, {"batch_size": 7}])
@pytest.mark.parametrize("schedule", ["geometric", "linear", "constant"])
def test_temperatures_of_a_fit(schedule, how, rng):
    method = DeterministicAnnealing(initial_temperature=4.0, schedule=schedule, n_passes=6)
    est = mixture(method, max_iter=3, tol=0.0, **how).fit(MIXTURE.data(rng, 40))
    found = est.temperatures_
    assert len(found) == 6 + 3
    assert (np.diff(found[:6]) <= 1e-12).all()
    assert (found[:6] > 1).all() and (found[6:] == 1).all()
    u = np.arange(6) / 6
    if not how:
        expected = {"geometric": 4 ** (1 - u), "linear": 4 - 3 * u, "constant": 4 + 0 * u}
        np.testing.assert_allclose(found[:6], expected[schedule], rtol=1e-12)


@pytest.mark.parametrize("name", ANNEALING)
def test_every_fit_with_a_finish_ends_at_temperature_one(name, rng):
    est = mixture(quick(name), max_iter=3, tol=0.0).fit(MIXTURE.data(rng, 40))
    assert (est.temperatures_ >= 1).all()
    if est.annealing_.finish:
        assert (est.temperatures_[-3:] == 1).all()
    assert not np.isnan(est.lower_bound_)


def test_max_iter_does_not_cut_a_schedule_short(rng):
    X = MIXTURE.data(rng, 40)
    for max_iter in (0, 2):
        est = mixture(DeterministicAnnealing(initial_temperature=3.0, n_passes=5), tol=0.0)
        est.set_params(max_iter=max_iter).fit(X)
        assert est.n_iter_ == 5 + max_iter


# Settings


@pytest.mark.parametrize("name", ANNEALING)
def test_no_setting_stays_automatic(name, rng):
    X = MIXTURE.data(rng, 40)
    for method in (name, ANNEALING[name](), quick(name, 3)):
        before = method if isinstance(method, str) else dict(vars(method))
        for fit in ("fit", "partial_fit"):
            est = mixture(method, max_iter=2)
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
    recommended = type(context_of(est).model).recommended
    for name, values in recommended.items():
        settings = mixture(name, max_iter=1).fit(X).annealing_.get_params()
        for key, value in values.items():
            if value != "auto":
                assert settings[key] == value


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


@pytest.mark.parametrize("method", ["none", "stochastic", StochasticAnnealing()])
def test_nested_setting_that_the_method_lacks_is_the_usual_error(method):
    est = mixture(method)
    with pytest.raises(ValueError, match="Invalid parameter 'initial_temperature' for estimator"):
        est.set_params(annealing__initial_temperature=2.0)


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
    # Candidates really differ.
    assert len(set(search.cv_results_["mean_test_score"])) == 2


def test_public_names_are_those_of_the_table():
    assert {cls.__name__ for cls in ANNEALING.values()} <= set(annealing.__all__)
    assert len(set(ANNEALING.values())) == len(ANNEALING)


# SVI+


def definition_one(n, effective):
    """Covariance of 1 + ε_i − ε̄ with ε of variance n/M − 1."""
    variance = n / effective - 1
    return variance * (np.eye(n) - 1 / n)


@pytest.mark.parametrize(("n", "effective"), [(8, 2), (8, 7), (5, 1), (20, 5)])
@pytest.mark.parametrize("noise", ["dirichlet", "gaussian"])
def test_random_weights_have_the_moments_of_definition_one(noise, n, effective, rng):
    method = with_defaults(SVIPlus(effective, noise, "constant", 10))
    ctx, units = bare_context(method, rng), Rows(np.zeros((n, 1)))
    draws = np.array([method.weights(ctx, units) for _ in range(40_000)], dtype=float)
    # Where noise comes apart, weights are deviations from 1.
    deviations = draws if method.noise_apart else draws - 1.0
    assert method.noise_apart == (noise == "gaussian")
    rounding = 1e-5 if noise == "gaussian" else 1e-12 * n
    np.testing.assert_allclose(deviations.sum(axis=1), 0.0, atol=rounding)
    covariance = definition_one(n, effective)
    error = np.sqrt(covariance[0, 0] / len(draws))
    np.testing.assert_allclose(deviations.mean(axis=0), 0.0, atol=5 * error)
    products = deviations[:, :, None] * deviations[:, None, :]
    errors = products.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(products.mean(axis=0) - covariance) <= 5 * errors).all()
    assert (deviations.min() >= -1) == (noise == "dirichlet")


@pytest.mark.parametrize("noise", ["dirichlet", "gaussian"])
@pytest.mark.parametrize("share", [1e-3, 0.25, 0.5])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_small_batches_have_finite_weights(noise, share, n, rng):
    """A share of a few rows can be less than one row, for which no such weights exist."""
    method = with_defaults(SVIPlus(share, noise, "constant", 10))
    ctx, units = bare_context(method, rng), Rows(np.zeros((n, 1)))
    for _ in range(20):
        weights = method.weights(ctx, units)
        if n == 1:
            assert weights is None
        else:
            assert np.isfinite(weights).all()
            if noise == "gaussian":
                rounding = 1e-6 * (1.0 + float(np.abs(weights).sum()))
                assert weights.sum() == pytest.approx(0.0, abs=rounding)
            else:
                assert weights.sum() == pytest.approx(n)
            assert noise == "gaussian" or weights.min() >= 0


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_stream_of_few_rows_keeps_valid_parameters(n, rng):
    est = mixture("svi_plus").partial_fit(MIXTURE.data(rng, 40))
    for _ in range(5):
        est.partial_fit(MIXTURE.data(rng, n))
        assert context_of(est).model.valid(context_of(est).q)


def test_effective_size_grows_to_that_of_the_batch(rng):
    expected = {
        "constant": [10, 10, 10, 10, 40],
        "linear": [10, 17.5, 25, 32.5, 40],
        "geometric": [10, 10 * np.sqrt(2), 20, 20 * np.sqrt(2), 40],
    }
    for schedule, sizes in expected.items():
        for start in (10, 0.25):
            method = with_defaults(SVIPlus(start, "dirichlet", schedule, 8))
            found = [
                method.effective_size(bare_context(method, rng, passes), 40)
                for passes in (0, 2, 4, 6, 8)
            ]
            np.testing.assert_allclose(found, sizes, rtol=1e-12)


@pytest.mark.parametrize("size", [40, 41, 10**6, 1.0])
def test_no_noise_where_the_batch_is_no_larger_than_its_effective_size(size, rng):
    method = with_defaults(SVIPlus(size, "gaussian", "geometric", 10))
    assert method.weights(bare_context(method, rng, 3.3), Rows(np.zeros((40, 1)))) is None


@pytest.mark.parametrize("params", VARIANTS)
def test_gaussian_noise_never_leaves_the_domain(params, rng):
    """With an effective size of one row, and full steps: without backoff it leaves at once."""
    X = MIXTURE.data(rng, 30)
    outside = 0
    for margin in (0.0, 0.2):
        method = SVIPlus(1, "gaussian", "constant", 50, 1.0, margin)
        ctx, method, units = run(method, X, **params)
        for _ in range(30):
            q, state = ctx.q, ctx.rng.bit_generator.state
            one_update(ctx, method, units)
            assert ctx.model.valid(ctx.q)
            result = ctx.q
            # The same weights without the backoff.
            ctx.q, ctx.rng.bit_generator.state = q, state
            one_update(ctx, _Rash(**method.get_params()), units)
            outside += not ctx.model.valid(ctx.q)
            ctx.q = result
    assert outside > 10


class _Rash(SVIPlus):
    """Gaussian noise without backoff, where a later block does not fail for it."""

    def update(self, ctx, q, target, rho):
        deviation = ctx.deviation
        ctx.deviation = None
        clean = super().update(ctx, q, target, rho)
        if deviation is None:
            return clean
        noisy = {key: value + rho * deviation[key] for key, value in clean.items()}
        last = ctx.model.blocks[-1].keys
        if set(q) == set(last):
            return noisy
        # Independent factors: the precisions are computed from valid means.
        return ctx.model.replace_invalid(noisy, clean)


def test_random_weights_average_to_plain_inference(rng):
    """E λ̂ = λ₀ + S, within five standard errors."""
    X = MIXTURE.data(rng, 30)
    plain, none, units = run("none", X)
    q = plain.q
    one_update(plain, none, units)
    ctx, method, _ = run(SVIPlus(10, "dirichlet", "constant", 10, 1.0), X)
    draws = []
    for _ in range(2000):
        ctx.q = q
        one_update(ctx, method, units)
        ctx.state["passes"] = 0.0
        draws.append(ctx.q)
    for key in q:
        values = np.array([d[key] for d in draws])
        error = values.std(axis=0) / np.sqrt(len(values))
        difference = np.abs(values.mean(axis=0) - plain.q[key])
        assert (difference <= 5 * error + 1e-10 * np.abs(plain.q[key])).all()


# Variational tempering, global


def test_tempering_probabilities_by_enumeration(rng):
    """r_m ∝ exp{x_m E log p(X, z | β) − log C(x_m)}, every sum over z and integral done.

    C(x) is the sum over all assignments of ∫ p(X, z | β)^x dX, at the plugged-in parameters: equal
    weights and the variance of the data.
    """
    X = MIXTURE.tiny["D=1"](rng)[:3]
    n, k = len(X), 2
    ctx, method, units = run(
        VariationalTempering(max_temperature=8.0, n_temperatures=5), X, n_components=k
    )
    joint = ctx.model.log_joint(units, ctx.model.expectations(ctx.q))
    t = method.temper(ctx, units)
    r = softmax(t.local * joint, axis=1)
    energy = sum(
        np.prod(r[range(n), z]) * joint[range(n), z].sum() for z in product(range(k), repeat=n)
    )
    deviation = X.std(ddof=1)
    x = 1 / np.geomspace(1, 8.0, 5)
    log_partition = []
    for power in x:
        density = quad(
            lambda v, p=power: np.exp(p * norm.logpdf(v, scale=deviation)), -np.inf, np.inf
        )[0]
        terms = [n * (np.log(density) - power * np.log(k)) for _ in product(range(k), repeat=n)]
        log_partition.append(logsumexp(terms))
    expected = softmax(x * energy - np.array(log_partition))
    np.testing.assert_allclose(method.posterior_probabilities(ctx, energy), expected, rtol=1e-8)
    # An update moves r by its damping towards that, with the energy of its own local step.
    one_update(ctx, method, units)
    found = ctx.state["temperature_probabilities"]
    np.testing.assert_allclose(found, (1 - method.damping) / 5 + method.damping * expected)


def test_expected_inverse_temperature_starts_uniform_and_rises_to_one(digits):
    est = mixture("tempering", n_components=6, max_iter=0).fit(digits)
    x = 1 / est.temperatures_
    grid = 1 / np.geomspace(1, 10, 100)
    assert x[0] == pytest.approx(grid.mean())
    assert np.diff(x).min() > -1e-3
    assert x[-1] > 0.99
    assert len(x) == est.annealing_.n_passes == 100


def test_without_damping_tempering_jumps_to_one_at_once(digits):
    """Why there is damping: r is a point mass within a few updates."""
    est = mixture(VariationalTempering(damping=1.0), n_components=6, max_iter=0).fit(digits)
    assert est.temperatures_[5] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_stationary_temperature(covariance_type, rng):
    """T* = 1 + (2/D)(ℓ_ref − ℓ/N) maximises x ℓ − log C(x)."""
    X = MIXTURE.data(rng, 60)
    n, d = X.shape
    k = 3
    ctx, method, _ = run("tempering", X, covariance_type=covariance_type)
    covariance = np.cov(X.T)
    if covariance_type == "diag":
        covariance = np.diag(np.diag(covariance))
    elif covariance_type == "spherical":
        covariance = np.eye(d) * np.trace(covariance) / d
    log_det = -np.linalg.slogdet(covariance)[1]
    reference = -np.log(k) - 0.5 * d * np.log(2 * np.pi) + 0.5 * log_det - 0.5 * d
    for excess in (0.2, 1.0, 4.0):
        energy = n * (reference - excess)
        found = minimize_scalar(
            lambda x, e=energy: ctx.model.log_partition(np.array(x), ctx.summary, ctx.q) - x * e,
            bounds=(1e-3, 1.0),
            method="bounded",
            options={"xatol": 1e-10},
        ).x
        assert 1 / found == pytest.approx(1 + 2 / d * excess, rel=1e-5)


def test_minibatches_scale_the_energy_of_tempering(rng):
    X = MIXTURE.data(rng, 40)
    ctx, method, units = run("tempering", X)
    ctx.scale = 4.0
    seen = one_update(ctx, method, units.take(slice(10)))
    expected = method.posterior_probabilities(ctx, 4.0 * seen.step.energy)
    size = method.n_temperatures
    np.testing.assert_allclose(
        ctx.state["temperature_probabilities"],
        (1 - method.damping) / size + method.damping * expected,
        rtol=1e-12,
    )


# Variational tempering, local


@pytest.mark.parametrize("n_rounds", [1, 2, 4])
def test_local_temperatures_of_new_rows(n_rounds, rng):
    """In numpy: two rounds r ↔ q(z) from uniform r, at the fitted parameters."""
    X = MIXTURE.data(rng, 80)
    method = LocalVariationalTempering(n_temperatures=50, n_rounds=n_rounds, n_passes=3)
    est = mixture(method).fit(X)
    new = np.vstack([MIXTURE.data(rng, 30), [[60.0, -40.0, 10.0]]])
    ctx = context_of(est)
    rows = units_of(est, new).placed(ctx.summary)
    joint = ctx.model.log_joint(rows, ctx.model.expectations(ctx.q))
    x = np.arange(1, 51) / 50
    log_det = np.linalg.slogdet(np.cov(X.T))[1]
    log_c = 1.5 * ((1 - x) * np.log(2 * np.pi) - np.log(x)) + (1 - x) * (np.log(3) + 0.5 * log_det)
    mean = np.full(len(new), x.mean())
    for _ in range(n_rounds):
        energy = (softmax(mean[:, None] * joint, axis=1) * joint).sum(axis=1)
        mean = softmax(np.outer(energy, x) - log_c, axis=1) @ x
    found = est.inverse_temperatures(new)
    np.testing.assert_allclose(found, mean, rtol=1e-9)
    assert found.argmin() == len(new) - 1 and found[-1] == pytest.approx(1 / 50, rel=1e-3)
    assert ((found > 0) & (found <= 1)).all()


def test_only_local_tempering_has_inverse_temperatures(rng):
    X = MIXTURE.data(rng, 40)
    for name in ANNEALING:
        est = mixture(quick(name), max_iter=1)
        assert hasattr(est, "inverse_temperatures") == (name == "local_tempering")
        assert hasattr(est.fit(X), "inverse_temperatures") == (name == "local_tempering")


def test_local_tempering_records_the_mean_temperature(rng):
    X = MIXTURE.data(rng, 40)
    weights = rng.uniform(0.5, 2.0, 40)
    ctx, method, units = open_run(mixture(quick("local_tempering")), X, weights)
    expected, _ = method.expectations(ctx)
    x = method.local_step(ctx, units, expected, None).inverse_temperatures
    seen = one_update(ctx, method, units)
    assert seen.temperature == pytest.approx(np.average(1 / x, weights=weights), rel=1e-12)


# Stochastic annealing


@pytest.mark.parametrize("params", VARIANTS)
def test_random_initialisations_are_valid(params, rng):
    for n in (5, 40):
        ctx, _, _ = run("none", MIXTURE.data(rng, n), **params)
        for _ in range(50):
            eta = ctx.model.random_natural(ctx.summary, ctx.prior, rng)
            assert ctx.model.valid(eta)
            assert {k: v.shape for k, v in eta.items()} == {
                k: v.shape for k, v in ctx.prior.items()
            }
            counts = ctx.model.expected_counts(eta, ctx.prior)
            assert counts.sum() == pytest.approx(n)


def test_random_initialisation_is_the_posterior_of_pseudo_data(rng):
    """Counts N Dir(1), centres ~ N(mean, Cov) and scatter Cov about them."""
    X = MIXTURE.data(rng, 40)
    params = {"weight_concentration_prior_type": "dirichlet_distribution"}
    ctx, _, _ = run("none", X, **params)
    covariance = np.cov(X.T)
    shares, centers = [], []
    for _ in range(4000):
        eta = ctx.model.random_natural(ctx.summary, ctx.prior, rng)
        counts = eta["weight_concentration"] - ctx.prior["weight_concentration"]
        center = (eta["mean_natural"] - ctx.prior["mean_natural"]) / counts[:, None]
        scatter = eta["scatter"] - ctx.prior["scatter"]
        spread = scatter - counts[:, None, None] * center[:, :, None] * center[:, None, :]
        np.testing.assert_allclose(
            spread, counts[:, None, None] * covariance, atol=1e-8 * np.abs(scatter).max()
        )
        np.testing.assert_allclose(eta["mean_precision"] - ctx.prior["mean_precision"], counts)
        np.testing.assert_allclose(eta["dof"] - ctx.prior["dof"], counts)
        shares.append(counts / 40)
        centers.append(center[0])
    shares, centers = np.array(shares), np.array(centers)
    # Dir(1, 1, 1): mean 1/3, variance 1/18.
    np.testing.assert_allclose(shares.mean(axis=0), 1 / 3, atol=5 * np.sqrt(1 / 18 / 4000))
    np.testing.assert_allclose(shares.var(axis=0), 1 / 18, rtol=0.1)
    np.testing.assert_allclose(np.cov(centers.T), covariance, atol=0.1 * covariance.max())
    error = 5 * np.sqrt(np.diag(covariance) / 4000)
    assert (np.abs(centers.mean(axis=0) + ctx.summary.center - X.mean(axis=0)) < error).all()


@pytest.mark.parametrize("params", VARIANTS)
def test_stochastic_annealing_mixes_the_target_with_a_fresh_draw(params, rng):
    X = MIXTURE.data(rng, 40)
    method = StochasticAnnealing(0.6, "linear", 4, "init_params")
    ctx, method, units = run(method, X, **params)
    for passes in range(6):
        q, state = ctx.q, ctx.rng.bit_generator.state
        share = max(0.6 * (1 - passes / 4), 0.0)
        one_update(ctx, method, units)
        found = ctx.q
        rng_of_noise = np.random.default_rng()
        rng_of_noise.bit_generator.state = state
        plain, none, _ = run("none", X, **params)
        plain.q = q
        # One draw for all blocks.
        expected = _mixed_update(plain, none, units, share, rng_of_noise)
        assert largest_difference(found, expected) < 1e-12
        assert ctx.model.valid(found)


def _mixed_update(ctx, none, units, share, rng):
    eta = ctx.model.random_natural(ctx.summary, ctx.prior, rng)

    class Mixed(NoAnnealing):
        def target(self, ctx, target, stats, draw):
            if share == 0:
                return target
            return {k: (1 - share) * v + share * eta[k] for k, v in target.items()}

    one_update(ctx, Mixed(), units)
    return ctx.q


def test_noise_shares(rng):
    linear = with_defaults(StochasticAnnealing(0.8, "linear", 10))
    exponential = with_defaults(StochasticAnnealing(0.8, "exponential", 10))
    for passes in range(10):
        ctx = bare_context(linear, rng, passes)
        assert linear.noise_share(ctx) == pytest.approx(0.8 * (1 - passes / 10))
        assert exponential.noise_share(ctx) == pytest.approx(0.8 * 10 ** (-3 * passes / 10))
    for passes in (10, 11.5):
        ctx = bare_context(linear, rng, passes)
        assert linear.noise_share(ctx) == exponential.noise_share(ctx) == 0.0


def test_start_of_stochastic_annealing(rng):
    """A draw of η, or what ``init_params`` says; the schedule changes nothing in it."""
    X = MIXTURE.data(rng, 40)

    def start(method, **params):
        return context_of(mixture(method, max_iter=0, **params).fit(X)).q

    first = start(StochasticAnnealing(n_passes=0, start="random"))
    assert largest_difference(first, start(StochasticAnnealing(n_passes=0))) == 0
    plain = start("none")
    assert (
        largest_difference(start(StochasticAnnealing(n_passes=0, start="init_params")), plain) == 0
    )
    assert largest_difference(start(StochasticAnnealing(0.0, n_passes=0)), plain) == 0
    assert largest_difference(first, plain) > 1e-3
    other = start(StochasticAnnealing(n_passes=0), init_params="random")
    assert largest_difference(first, other) == 0


# Deterministic annealing


@pytest.mark.parametrize("params", VARIANTS)
@pytest.mark.parametrize("form", ["likelihood", "posterior", "local"])
def test_forms_of_the_first_update(form, params, rng):
    """λ₀ + S/T, b + (λ₀ + S − b)/T, and λ₀ + S, with S of responsibilities at T."""
    X, temperature = MIXTURE.data(rng, 40), 2.5
    method = DeterministicAnnealing(form, temperature, "constant", 10, 0.0)
    ctx, method, units = run(method, X, **params)
    q, block = ctx.q, ctx.model.blocks[0]
    joint = ctx.model.log_joint(units, ctx.model.expectations(q))
    r = softmax(joint / temperature, axis=1)
    counts = r.sum(axis=0)
    one_update(ctx, method, units)
    prior, base = ctx.prior, ctx.model.base(q)
    if "weight_concentration" in prior:
        stats = {"weight_concentration": counts}
    else:
        stats = {"stick_a": counts, "stick_b": counts[::-1].cumsum()[::-1] - counts}
    for key, value in stats.items():
        expected = {
            "likelihood": prior[key] + value / temperature,
            "posterior": base[key] + (prior[key] + value - base[key]) / temperature,
            "local": prior[key] + value,
        }[form]
        assert key in block.keys
        np.testing.assert_allclose(ctx.q[key], expected, rtol=1e-10)
    assert ctx.model.valid(ctx.q)


@pytest.mark.parametrize("params", VARIANTS)
def test_posterior_form_of_high_temperature_is_nearly_flat(params, rng):
    """λ → b: in the raw parameters ν would fall out of its domain."""
    method = DeterministicAnnealing("posterior", 1e4, "constant", 10, 0.0)
    ctx, method, units = run(method, MIXTURE.data(rng, 40), **params)
    one_update(ctx, method, units)
    base = ctx.model.base(ctx.q)
    np.testing.assert_allclose(ctx.q["dof"], base["dof"], atol=0.02)
    assert ctx.model.valid(ctx.q)


@pytest.mark.parametrize("params", VARIANTS)
def test_jitter_breaks_symmetry_and_ends_with_the_schedule(params, rng):
    X = MIXTURE.data(rng, 60)
    moved = {}
    for jitter in (0.0, 0.3):
        method = DeterministicAnnealing("likelihood", 1.5, "linear", 5, jitter)
        ctx, method, units = run(method, X, **params)
        # Components that are all alike.
        ctx.q = {
            key: (
                np.broadcast_to(value.mean(axis=0), value.shape).copy()
                if value.ndim and len(value) == 3 and not _shared(key, params)
                else value
            )
            for key, value in ctx.q.items()
        }
        for _ in range(5):
            one_update(ctx, method, units)
            assert ctx.model.valid(ctx.q)
        mean = ctx.model.components.standard(ctx.q)["mean"]
        moved[jitter] = np.abs(mean - mean[0]).max()
        state = ctx.rng.bit_generator.state
        one_update(ctx, method, units)
        assert ctx.rng.bit_generator.state == state
    assert moved[0.3] > 1e-2
    # Sticks give equal components unequal counts, hence unequal precisions, and part them.
    if params["weight_concentration_prior_type"] == "dirichlet_distribution":
        assert moved[0.0] < 1e-8


def _shared(key, params):
    return params["covariance_type"] == "tied" and key in ("scatter", "dof")


# Proximity


def entropy_terms(params, rng, **settings):
    """A context after some updates, with its method, and a direction in natural parameters."""
    X = MIXTURE.data(rng, 40)
    ctx, method, units = run(ProximityVI(**settings), X, **params)
    for _ in range(3):
        one_update(ctx, method, units)
    return ctx, method, units


@pytest.mark.parametrize("params", VARIANTS)
def test_pull_is_the_natural_gradient_of_the_constraint(params, rng):
    """d[−k (H(q) − H_lag)²] = gᵀ dE[t] with g = 2k (H − H_lag)(λ − b), along random directions."""
    k, gap = 0.003, 1.7
    ctx, method, _ = entropy_terms(params, rng, strength=k, lag=2, n_passes=10, learning_rate=0.5)
    q, model = ctx.q, ctx.model
    entropy = model.entropy(q)
    ctx.state = {**ctx.state, "passes": 0.0, "entropies": (entropy + gap, 0.0)}
    ctx.q_start, ctx.report = q, LocalStep({}, 0.0, 0.0)
    new = method.update(ctx, q, q, 0.5)
    gradient = {key: (new[key] - q[key]) / 0.5 for key in q}
    base, eps = model.base(q), 1e-5
    for key in q:
        np.testing.assert_allclose(gradient[key], -2 * k * gap * (q[key] - base[key]), atol=1e-9)
    for _ in range(4):
        other = model.random_natural(ctx.summary, ctx.prior, rng)
        direction = {key: rng.standard_normal() * (other[key] - q[key]) for key in q}
        values, expectations = [], []
        for sign in (1, -1):
            moved = {key: q[key] + sign * eps * direction[key] for key in q}
            values.append(-k * (model.entropy(moved) - entropy - gap) ** 2)
            expected = {}
            for factor in model.factors():
                expected |= factor.rename(factor.family.expectations(factor.pick(moved)))
            expectations.append(expected)
        slope = (values[0] - values[1]) / (2 * eps)
        terms = [gradient[key] * (expectations[0][key] - expectations[1][key]) for key in q]
        size = sum(np.abs(term).sum() for term in terms) / (2 * eps)
        assert slope == pytest.approx(sum(t.sum() for t in terms) / (2 * eps), abs=1e-5 * size)


def test_pull_compares_entropies_a_lag_apart_and_fades(rng):
    ctx, method, units = run(ProximityVI(0.01, 3, 20, 0.5), MIXTURE.data(rng, 40))
    entropies = []
    for update in range(25):
        q = ctx.q
        seen = one_update(ctx, method, units)
        entropies.append(ctx.model.entropy(q) + seen.step.entropy)
        ctx.q_start, ctx.report = q, seen.step
        assert ctx.state["entropies"] == pytest.approx(entropies[-3:], rel=1e-12)
        plain, none, _ = run("none", MIXTURE.data(np.random.default_rng(0), 40))
        plain.q = q
        one_update(plain, none, units)
        gap = entropies[-1] - entropies[-4] if update >= 3 else 0.0
        pull = np.clip(2 * 0.01 * max(1 - update / 20, 0.0) * gap, -0.9, 0.9)
        base = ctx.model.base(q)
        expected = {
            key: 0.5 * q[key] + 0.5 * plain.q[key] + 0.5 * pull * (q[key] - base[key]) for key in q
        }
        assert largest_difference(ctx.q, expected) < 1e-10
    assert pull == 0.0


def test_pull_is_clipped_and_stays_in_the_domain(rng):
    for gap in (1e6, -1e6):
        ctx, method, units = entropy_terms(
            MIXTURE.first, rng, strength=1.0, lag=1, n_passes=1000, learning_rate=1.0
        )
        ctx.state["entropies"] = (gap,)
        ctx.q_start, ctx.report = ctx.q, LocalStep({}, 0.0, 0.0)
        assert method.pull(ctx, 0.0) == (-0.9 if gap > 0 else 0.9)
        one_update(ctx, method, units)
        assert ctx.model.valid(ctx.q)


# Structured


@pytest.mark.parametrize("params", VARIANTS)
def test_draws_average_to_the_expectations(params, rng):
    """The local step of a draw is linear in t(β), so its mean is that of plain inference."""
    X = MIXTURE.data(rng, 40)
    ctx, method, units = run("structured", X, **params)
    some = units.take(slice(5))
    expected = ctx.model.log_joint(some, ctx.model.expectations(ctx.q))
    draws = np.array([
        ctx.model.log_joint(some, method.expectations(ctx)[0]) for _ in range(1500)
    ])  # fmt: skip
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (error > 0).all()
    assert (np.abs(draws.mean(axis=0) - expected) <= 5 * error).all()


@pytest.mark.parametrize("params", VARIANTS)
def test_structured_update_is_conjugate_given_the_draw(params, rng):
    """Counts are responsibilities at the drawn parameters; ρ = (1 + t)^−κ in batch mode."""
    X = MIXTURE.data(rng, 40)
    ctx, method, units = run("structured", X, **params)
    settings = FULL_STEPS._replace(learning_decay=0.7)
    for t in (1, 2, 3):
        q, state = ctx.q, ctx.rng.bit_generator.state
        one_update(ctx, method, units, settings=settings)
        again = np.random.default_rng()
        again.bit_generator.state = state
        features, _ = ctx.model.sample_expectations(q, again)
        counts = softmax(ctx.model.log_joint(units, features), axis=1).sum(axis=0)
        rho = (1.0 + t) ** -0.7
        key = "weight_concentration" if "weight_concentration" in q else "stick_a"
        expected = (1 - rho) * q[key] + rho * (ctx.prior[key] + counts)
        np.testing.assert_allclose(ctx.q[key], expected, rtol=1e-10)


def test_structured_has_no_finish_and_few_bounds(rng):
    X = MIXTURE.data(rng, 40)
    for how in ({}, {"batch_size": 15}):
        method = StructuredVI(n_passes=9, evaluate_every=4)
        est = mixture(method, max_iter=50, **how).fit(X)
        assert est.n_iter_ == 9
        known = ~np.isnan(est.lower_bounds_)
        assert list(np.flatnonzero(known) + 1) == [4, 8, 9]
        assert est.lower_bounds_[-1] == est.lower_bound_
        assert (est.temperatures_ == 1).all()
        assert est.converged_


# Clocks


def test_stream_without_a_size_counts_calls(rng):
    method = DeterministicAnnealing(initial_temperature=4.0, schedule="linear", n_passes=3)
    est = mixture(method)
    for n in (40, 3, 17, 40, 5):
        est.partial_fit(MIXTURE.data(rng, n))
    np.testing.assert_allclose(est.temperatures_, [4, 3, 2, 1, 1], rtol=1e-14)
    assert (est.temperatures_[3:] == 1).all()
    assert context_of(est).state["passes"] == context_of(est).state["updates"] == 5


def test_stream_with_a_size_counts_observations(rng):
    method = DeterministicAnnealing(initial_temperature=3.0, schedule="linear", n_passes=1)
    est = mixture(method, total_samples=100)
    for n in (30, 20, 40, 10, 5):
        est.partial_fit(MIXTURE.data(rng, n))
    expected = 3 - 2 * np.array([0, 0.3, 0.5, 0.9, 1.0])
    np.testing.assert_allclose(est.temperatures_, expected, rtol=1e-12)
    assert est.temperatures_[-1] == 1
    assert context_of(est).state["passes"] == pytest.approx(1.05)


def test_stream_counts_weights(rng):
    method = DeterministicAnnealing(initial_temperature=3.0, schedule="linear", n_passes=1)
    est = mixture(method, total_samples=100)
    est.partial_fit(MIXTURE.data(rng, 40), sample_weight=np.full(40, 0.5))
    est.partial_fit(MIXTURE.data(rng, 10))
    assert est.temperatures_[1] == pytest.approx(3 - 2 * 0.2)


@pytest.mark.parametrize("batch_size", [7, 10, 25])
def test_fit_in_minibatches_counts_passes(batch_size, rng):
    X = MIXTURE.data(rng, 40)
    method = DeterministicAnnealing(initial_temperature=4.0, schedule="linear", n_passes=3)
    est = mixture(method, batch_size=batch_size, max_iter=2, tol=0.0).fit(X)
    state = context_of(est).state
    assert state["passes"] == pytest.approx(5.0)
    assert state["updates"] == 5 * -(-40 // batch_size)
    # Within a pass the temperature falls with every batch; its mean over the rows is recorded.
    sizes = [min(batch_size, 40 - start) for start in range(0, 40, batch_size)]
    begins = np.cumsum([0, *sizes[:-1]]) / 40
    first = np.average(4 - begins, weights=sizes)
    np.testing.assert_allclose(est.temperatures_[:3], first - np.arange(3), rtol=1e-12)
    assert (est.temperatures_[3:] == 1).all()


def test_learning_rate_counts_updates(rng):
    """ρ_t = (τ + t)^−κ with t = 1 at the first step, over the batches of a fit."""
    seen = []

    class Watcher(NoAnnealing):
        def update(self, ctx, q, target, rho):
            seen.append(rho)
            return super().update(ctx, q, target, rho)

    ctx, _, units = run("none", MIXTURE.data(rng, 40))
    settings = FULL_STEPS._replace(learning_offset=3.0, learning_decay=0.8)
    for _ in range(4):
        one_update(ctx, Watcher(), units, settings=settings, minibatch=True)
    np.testing.assert_allclose(seen, (3.0 + np.arange(1, 5)) ** -0.8)
    one_update(ctx, Watcher(), units, settings=settings)
    assert seen[-1] == 1.0
