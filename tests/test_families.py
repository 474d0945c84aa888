"""The exponential families against finite differences, scipy.stats and Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.special import gammaln, polygamma

from sklearn_anneal.families import (
    Beta,
    Dirichlet,
    Family,
    Gamma,
    Gaussian,
    Natural,
    NormalWishart,
    PartialDirichlet,
    ScaledBeta,
    Tempering,
    Wishart,
    backoff,
    gammaln_divergence,
    mix,
    posterior,
    stick_breaking_log_weights,
)
from sklearn_anneal.families._structure import inverse_of_lower, lower_triangle

# All but the last one restrict the scale matrices of independent matrices.
COVARIANCE_TYPES = ("full", "tied", "diag", "spherical", "common")
SHARED = ("tied", "common")
N_DRAWS = 4_000
# With a few hundred comparisons under fixed seeds, a correct mean stays within 5 standard errors.
N_ERRORS = 5.0


def restrict(full, covariance_type):
    """Project matrices of shape (K, D, D), written independently of the package."""
    if covariance_type == "tied":
        return sum(full) / len(full)
    if covariance_type == "common":
        return sum(full)
    if covariance_type == "diag":
        return np.array([np.diag(one) for one in full])
    if covariance_type == "spherical":
        return np.array([np.trace(one) / len(one) for one in full])
    if covariance_type == "packed":
        return np.array(
            [[one[i, j] for i in range(len(one)) for j in range(i + 1)] for one in full]
        )
    return np.array(full)


def unrestrict(stored, covariance_type, n_rows, n_features):
    """Return the matrices (K, D, D) that a restricted array stands for."""
    if covariance_type in SHARED:
        return np.array([stored] * n_rows)
    if covariance_type == "diag":
        return np.array([np.diag(one) for one in stored])
    if covariance_type == "spherical":
        return np.array([one * np.eye(n_features) for one in stored])
    if covariance_type == "packed":
        place = [[max(i, j) * (max(i, j) + 1) // 2 + min(i, j) for j in range(n_features)]
                 for i in range(n_features)]  # fmt: skip
        return stored[:, place]
    return stored


def restrict_counts(counts, covariance_type):
    """Project the numbers of rows of all components as their matrices are."""
    pooled = {"tied": counts.mean(), "common": counts.sum()}
    return np.asarray(pooled.get(covariance_type, counts))


def random_matrices(rng, n_rows, n_features):
    factors = rng.normal(size=(n_rows, n_features, n_features + 3))
    return factors @ factors.transpose(0, 2, 1) / (n_features + 3) + 0.3 * np.eye(n_features)


@dataclass
class Case:
    """A family with two members q and p, `n_rows` rows each."""

    family: Family
    q: Natural
    p: Natural
    n_rows: int
    covariance_type: str | None = None
    n_features: int | None = None

    def replicate(self, natural, n):
        """Return a family and parameters whose single draw is n draws of every row (n, K, ...)."""
        if self.covariance_type == "tied" and isinstance(self.family, Wishart):
            return Wishart("tied", n * self.n_rows), natural
        if isinstance(self.family, NormalWishart):
            family = NormalWishart(self.covariance_type, n * self.n_rows, self.n_features)
            shared = ("scatter", "dof") if self.covariance_type == "tied" else ()
            return family, {
                key: value if key in shared else np.tile(value, (n,) + (1,) * (value.ndim - 1))
                for key, value in natural.items()
            }
        tiled = {key: np.broadcast_to(value, (n, *value.shape)) for key, value in natural.items()}
        return self.family, tiled

    def draws(self, natural, n=N_DRAWS, seed=0):
        if self.covariance_type == "common":
            rng = np.random.default_rng(seed)
            each = [self.family.sample(natural, rng) for _ in range(n)]
            return {key: np.stack([one[key] for one in each]) for key in each[0]}
        family, tiled = self.replicate(natural, n)
        drawn = family.sample(tiled, np.random.default_rng(seed))
        if self.covariance_type is None:
            return drawn
        return {
            k: v.reshape(n, self.n_rows, *v.shape[v.ndim - NDIM[k] :]) for k, v in drawn.items()
        }


NDIM = {"value": 1, "mean": 1, "precision": 2, "log_det_precision": 0}


def dirichlet(n_features, n_rows, rng):
    q, p = ({"concentration": rng.gamma(2.0, 1.0, (n_rows, n_features)) + 0.3} for _ in "qp")
    return Case(Dirichlet(), q, p, n_rows)


def beta(n_features, n_rows, rng):
    q, p = ({k: rng.gamma(2.0, 1.0, n_rows) + 0.3 for k in ("a", "b")} for _ in "qp")
    return Case(Beta(), q, p, n_rows)


def scaled_beta(n_features, n_rows, rng):
    keys = ("shape", "rate")
    q, p = ({k: rng.gamma(2.0, 1.0, n_rows) + 0.3 for k in keys} for _ in "qp")
    return Case(ScaledBeta(rng.gamma(2.0, 1.0, n_rows) + 0.5), q, p, n_rows)


def gamma(n_features, n_rows, rng):
    q, p = ({k: rng.gamma(2.0, 1.0, n_rows) + 0.3 for k in ("shape", "rate")} for _ in "qp")
    return Case(Gamma(), q, p, n_rows)


def gaussian(structure, n_features, n_rows, rng):
    def member():
        return {
            "precision": restrict(random_matrices(rng, n_rows, n_features), structure),
            "natural_mean": rng.normal(size=(n_rows, n_features)),
        }

    family = Gaussian(structure)
    return Case(family, member(), member(), n_rows, structure, n_features)


def random_dof(covariance_type, n_features, n_rows, rng):
    dof = n_features + 1.0 + rng.gamma(2.0, 1.0, n_rows)
    return dof.mean() if covariance_type in SHARED else dof


def wishart(covariance_type, n_features, n_rows, rng):
    def member():
        return {
            "scatter": restrict(random_matrices(rng, n_rows, n_features), covariance_type),
            "dof": np.asarray(random_dof(covariance_type, n_features, n_rows, rng)),
        }

    needs_size = covariance_type == "spherical"
    family = Wishart(
        covariance_type,
        n_rows=n_rows if covariance_type in SHARED else None,
        n_features=n_features if needs_size else None,
    )
    return Case(family, member(), member(), n_rows, covariance_type, n_features)


def normal_wishart(covariance_type, n_features, n_rows, rng):
    def member():
        mean = rng.normal(size=(n_rows, n_features))
        beta = rng.gamma(2.0, 1.0, n_rows) + 0.5
        full = random_matrices(rng, n_rows, n_features)
        full += beta[:, None, None] * mean[:, :, None] * mean[:, None, :]
        return {
            "mean_precision": beta,
            "mean_natural": beta[:, None] * mean,
            "scatter": restrict(full, covariance_type),
            "dof": np.asarray(random_dof(covariance_type, n_features, n_rows, rng)),
        }

    family = NormalWishart(covariance_type, n_rows, n_features)
    return Case(family, member(), member(), n_rows, covariance_type, n_features)


MAKERS = {
    "dirichlet": dirichlet,
    "beta": beta,
    "scaled_beta": scaled_beta,
    "gamma": gamma,
    **{f"gaussian-{s}": partial(gaussian, s) for s in ("full", "packed", "diag", "spherical")},
    **{f"wishart-{c}": partial(wishart, c) for c in COVARIANCE_TYPES},
    **{f"normal_wishart-{c}": partial(normal_wishart, c) for c in COVARIANCE_TYPES},
}
SIZES = [(1, 3), (2, 1), (3, 3)]
# Families take turns with one column and one row, whose tests of the others are exhaustive.
ALL = [
    pytest.param(
        (name, size),
        marks=pytest.mark.exhaustive if size == SIZES[(turn + 1) % 2] else (),
        id=f"{name}-D{size[0]}-K{size[1]}",
    )
    for turn, name in enumerate(MAKERS)
    for size in SIZES
]


@pytest.fixture
def case(request):
    name, (n_features, n_rows) = request.param
    rng = np.random.default_rng([n_features, n_rows, *name.encode()])
    return MAKERS[name](n_features, n_rows, rng)


def cases(*prefixes):
    chosen = [p for p in ALL if p.id.startswith(prefixes)] if prefixes else list(ALL)
    return pytest.mark.parametrize("case", chosen, indirect=True)


def per_row(case, natural):
    """Return one dict of parameters per row, with full matrices, as scipy.stats wants them."""
    standard = case.family.to_standard(natural)
    rows = []
    for k in range(case.n_rows):
        row = {}
        for key, value in standard.items():
            if key in ("covariance", "inverse_scale"):
                size = (case.n_rows, case.n_features)
                row[key] = unrestrict(value, case.covariance_type, *size)[k]
            else:
                row[key] = value[()] if np.ndim(value) == 0 else value[k]
        rows.append(row)
    return rows


def scipy_log_density(case, natural, drawn):
    """Log density of draws, (n_draws, K), from scipy.stats."""
    columns = []
    for k, row in enumerate(per_row(case, natural)):
        d = {key: value[:, k] for key, value in drawn.items()}
        if isinstance(case.family, Dirichlet):
            # scipy refuses a probability that rounds to 0 and a sum that is off by one ulp
            p = np.maximum(d["probabilities"], 1e-300)
            logs = stats.dirichlet.logpdf((p / p.sum(-1, keepdims=True)).T, row["concentration"])
            logs = np.broadcast_to(logs, len(p))
        elif isinstance(case.family, Beta | ScaledBeta):
            logs = stats.beta.logpdf(np.exp(d["log_value"]), row["a"], row["b"])
        elif isinstance(case.family, Gamma):
            logs = stats.gamma.logpdf(d["value"], row["shape"], scale=1.0 / row["rate"])
        elif isinstance(case.family, Gaussian):
            frozen = stats.multivariate_normal(row["mean"], row["covariance"])
            logs = frozen.logpdf(d["value"]).reshape(-1)
        else:
            scale = np.linalg.inv(row["inverse_scale"])
            precisions = np.moveaxis(d["precision"], 0, -1)
            logs = np.reshape(stats.wishart.logpdf(precisions, row["dof"], scale), -1)
            if case.covariance_type == "common":
                logs = logs / case.n_rows  # one matrix, of which every row has a share
            if isinstance(case.family, NormalWishart):
                difference = d["mean"] - row["mean"]
                quadratic = np.einsum("nd,nde,ne->n", difference, d["precision"], difference)
                log_det = np.linalg.slogdet(d["precision"])[1]
                beta = row["mean_precision"]
                constant = case.n_features * np.log(beta / (2.0 * np.pi))
                logs = logs + 0.5 * (constant + log_det - beta * quadratic)
        columns.append(logs)
    return np.stack(columns, axis=1)


def statistics(case, drawn):
    """Sufficient statistics t(x) of draws, (n_draws, K, ...), summed over rows where shared."""
    family, kind = case.family, case.covariance_type
    if isinstance(family, Dirichlet):
        return {"concentration": drawn["log_probabilities"]}
    if isinstance(family, Beta):
        return {"a": drawn["log_value"], "b": drawn["log_complement"]}
    if isinstance(family, ScaledBeta):
        return {"shape": drawn["log_complement"], "rate": family.scale * drawn["log_value"]}
    if isinstance(family, Gamma):
        return {"shape": drawn["log_value"], "rate": -drawn["value"]}

    def stored(matrices):
        diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
        rows, columns = np.tril_indices(matrices.shape[-1])
        # An entry off the diagonal stands for two.
        packed = matrices[..., rows, columns] * np.where(rows == columns, 1, 2)
        choices = {
            "full": matrices,
            "packed": packed,
            "diag": diagonal,
            "spherical": diagonal.sum(-1),
        }
        if kind == "common":
            return matrices[:, 0]
        return matrices.sum(1) if kind == "tied" else choices[kind]

    if isinstance(family, Gaussian):
        x = drawn["value"]
        return {"precision": -0.5 * stored(x[..., :, None] * x[..., None, :]), "natural_mean": x}
    log_det = np.linalg.slogdet(drawn["precision"])[1]
    result = {
        "scatter": -0.5 * stored(drawn["precision"]),
        "dof": 0.5 * {"tied": log_det.sum(1), "common": log_det[:, 0]}.get(kind, log_det),
    }
    if isinstance(family, NormalWishart):
        weighted = np.einsum("nkde,nke->nkd", drawn["precision"], drawn["mean"])
        result["mean_natural"] = weighted
        result["mean_precision"] = -0.5 * (weighted * drawn["mean"]).sum(-1)
    return result


def assert_mean(samples, expected, what):
    """The mean of samples (n, ...) is `expected` within the Monte Carlo error."""
    error = samples.std(0, ddof=1) / np.sqrt(len(samples))
    excess = np.abs(samples.mean(0) - expected) - N_ERRORS * error
    assert np.all(excess <= 1e-9), f"{what}: off by {excess.max()} more than {N_ERRORS} errors"


def directions(case, key, array):
    """Directions in which one array may move, with the size of the step to take along each."""
    matrix = array.ndim >= 2 and array.shape[-1] == array.shape[-2]
    symmetric = matrix and (
        (key == "precision" and case.covariance_type == "full")
        or (key == "scatter" and case.covariance_type in ("full", *SHARED))
    )
    for index in np.ndindex(array.shape):
        if symmetric and index[-2] > index[-1]:
            continue
        direction = np.zeros(array.shape)
        direction[index] = 1.0
        if symmetric:
            direction[(*index[:-2], index[-1], index[-2])] = 1.0
        yield direction


@cases()
def test_gradient_of_the_log_normalizer_is_the_expected_statistics(case):
    expected = case.family.expectations(case.q)
    assert set(expected) == set(case.family.keys) == set(case.q)
    assert case.family.log_normalizer(case.q).shape == (case.n_rows,)
    step = 1e-5
    for key, array in case.q.items():
        assert expected[key].shape == array.shape
        for direction in directions(case, key, array):
            up, down = (
                case.family.log_normalizer({**case.q, key: array + sign * step * direction}).sum()
                for sign in (1.0, -1.0)
            )
            analytic = (expected[key] * direction).sum()
            np.testing.assert_allclose((up - down) / (2 * step), analytic, rtol=1e-6, atol=1e-7)


@cases("dirichlet", "beta", "gamma", "gaussian", "wishart", "normal_wishart-full")
def test_density_is_normalised_with_every_constant(case):
    drawn = case.draws(case.q, n=50)
    t, base = statistics(case, drawn), case.family.base(case.q)
    shared = case.covariance_type in SHARED
    log_q = -case.family.log_normalizer(case.q)
    log_q = np.full(50, log_q.sum()) if shared else np.tile(log_q, (50, 1))
    for key in case.family.keys:
        product = (case.q[key] - base[key]) * t[key]
        log_q = log_q + product.reshape(*log_q.shape, -1).sum(-1)
    reference = scipy_log_density(case, case.q, drawn)
    reference = reference.sum(1) if shared else reference
    np.testing.assert_allclose(log_q, reference, rtol=1e-8, atol=1e-7)


@cases()
def test_draws_have_the_expected_statistics(case):
    t = statistics(case, case.draws(case.q, seed=1))
    for key, expected in case.family.expectations(case.q).items():
        assert_mean(t[key], expected, key)


@cases("wishart", "normal_wishart")
def test_drawn_log_determinant_is_that_of_the_drawn_precision(case):
    drawn = case.draws(case.q, n=100)
    np.testing.assert_allclose(
        drawn["log_det_precision"], np.linalg.slogdet(drawn["precision"])[1], atol=1e-8
    )
    np.testing.assert_array_equal(drawn["precision"], drawn["precision"].swapaxes(-1, -2))


@pytest.mark.parametrize("maker", [wishart, normal_wishart])
def test_rows_of_tied_draws_are_independent(maker):
    case = maker("tied", 2, 3, np.random.default_rng(6))
    log_det = case.draws(case.q)["log_det_precision"]
    correlation = np.corrcoef(log_det[:, 0], log_det[:, 1])[0, 1]
    assert abs(correlation) < N_ERRORS / np.sqrt(N_DRAWS)


@cases()
def test_kl_agrees_with_monte_carlo(case):
    # scipy.stats.wishart evaluates its density in a Python loop over the draws.
    slow = isinstance(case.family, (Wishart, NormalWishart))
    drawn = case.draws(case.q, n=200 if slow else N_DRAWS, seed=2)
    ratio = scipy_log_density(case, case.q, drawn) - scipy_log_density(case, case.p, drawn)
    assert_mean(ratio.sum(1), case.family.kl(case.q, case.p), "KL")


@cases()
def test_kl_is_zero_at_itself_and_positive_elsewhere(case):
    assert case.family.kl(case.q, case.q) == pytest.approx(0.0, abs=1e-11)
    assert case.family.kl(case.p, case.p) == pytest.approx(0.0, abs=1e-11)
    if isinstance(case.family, Dirichlet) and case.q["concentration"].shape[-1] == 1:
        return  # a point mass, whatever its concentration
    assert case.family.kl(case.q, case.p) > 1e-4
    assert case.family.kl(case.p, case.q) > 1e-4
    near = {key: 0.999 * case.q[key] + 0.001 * case.p[key] for key in case.q}
    assert 0.0 < case.family.kl(case.q, near) < case.family.kl(case.q, case.p)


SUPPORT = np.array([[1, 1, 0, 1], [0, 0, 1, 0], [1, 1, 1, 1], [0, 1, 1, 0]], dtype=bool)


def partial_member(rng):
    return {"concentration": np.where(SUPPORT, rng.gamma(2.0, 1.0, SUPPORT.shape) + 0.3, 0.0)}


def supported_rows(*members):
    """The Dirichlet distributions of the supports, row by row, as separate arrays."""
    for k, inside in enumerate(SUPPORT):
        yield k, inside, *({key: v[k, inside] for key, v in member.items()} for member in members)


@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_partial_dirichlet_is_a_dirichlet_distribution_of_each_support(scale, rng):
    family, q, p = PartialDirichlet(SUPPORT), partial_member(rng), partial_member(rng)
    q, p = ({"concentration": m["concentration"] * scale} for m in (q, p))
    kl = entropy = 0.0
    for k, inside, own, other in supported_rows(q, p):
        expected = Dirichlet().expectations(own)["concentration"]
        assert_allclose(family.expectations(q)["concentration"][k, inside], expected)
        normaliser = Dirichlet().log_normalizer(own)
        assert_allclose(family.log_normalizer(q)[k], normaliser, rtol=1e-12, atol=1e-12)
        kl += Dirichlet().kl(own, other)
        entropy += Dirichlet().entropy(own)
    assert family.kl(q, p) == pytest.approx(kl, rel=1e-9)
    assert family.entropy(q) == pytest.approx(entropy, rel=1e-6)
    assert not family.expectations(q)["concentration"][~SUPPORT].any()
    assert family.valid(q).all()
    assert not family.valid({"concentration": q["concentration"] + 0.1})[0]
    assert family.valid({"concentration": q["concentration"] + 0.1})[2]


def test_partial_dirichlet_stays_partial_under_every_operation(rng):
    family, q, p = PartialDirichlet(SUPPORT), partial_member(rng), partial_member(rng)
    base, seen = family.base(q), {"concentration": np.where(SUPPORT, 2.0, 0.0)}
    for t in (Tempering(), Tempering(0.3, 0.3, 0.3)):
        tempered = posterior(p, seen, base, t)["concentration"]
        assert_array_equal(tempered > 0, SUPPORT)
    away = {"concentration": -3.0 * q["concentration"]}
    assert_array_equal(family.backoff(q, away, 1.0, 0.1)["concentration"] > 0, SUPPORT)
    draw = family.sample(q, rng)
    assert_array_equal(draw["probabilities"] > 0, SUPPORT)
    assert_allclose(draw["probabilities"].sum(axis=1), 1.0)
    found = family.implicit_statistics(draw, q, seen)["concentration"]
    for k, inside, of_draw, own, of_seen in supported_rows(draw, q, seen):
        expected = Dirichlet().implicit_statistics(of_draw, own, of_seen)["concentration"]
        assert_allclose(found[k, inside], expected)
    exact = family.exact_gradient_statistics(draw, q, p, seen)["concentration"]
    assert np.isfinite(exact).all()
    assert not exact[~SUPPORT].any()


@cases()
def test_entropy_agrees_with_scipy(case):
    total = 0.0
    for row in per_row(case, case.q):
        if isinstance(case.family, Dirichlet):
            total += stats.dirichlet.entropy(row["concentration"])
        elif isinstance(case.family, Beta | ScaledBeta):
            total += stats.beta.entropy(row["a"], row["b"])
        elif isinstance(case.family, Gamma):
            total += stats.gamma.entropy(row["shape"], scale=1.0 / row["rate"])
        elif isinstance(case.family, Gaussian):
            total += stats.multivariate_normal.entropy(row["mean"], row["covariance"])
        else:
            n_alike = case.n_rows if case.covariance_type == "common" else 1
            scale = np.linalg.inv(row["inverse_scale"])
            total += stats.wishart.entropy(row["dof"], scale) / n_alike
    if isinstance(case.family, NormalWishart):
        log_beta = np.log(case.q["mean_precision"])
        constant = case.n_features * np.log(2.0 * np.pi * np.e)
        log_det = case.family.log_det_expectation(case.q)
        total += 0.5 * np.sum(constant - case.n_features * log_beta - log_det)
    np.testing.assert_allclose(case.family.entropy(case.q), total, rtol=1e-9, atol=1e-9)


@cases("wishart", "normal_wishart")
def test_moments_from_one_factorisation_are_those_from_two(case):
    precision, log_det = case.family.moments(case.q)
    np.testing.assert_allclose(precision, case.family.expected_precision(case.q), rtol=1e-12)
    np.testing.assert_allclose(log_det, case.family.log_det_expectation(case.q), rtol=1e-12)


@pytest.mark.parametrize("shape", [(3, 3), (200, 9, 9), (4, 5, 30, 30), (64, 64)])
def test_triangular_matrices_are_inverted_as_any_others(rng, shape):
    roots = np.tril(rng.standard_normal(shape)) + 2 * shape[-1] * np.eye(shape[-1])
    inverses = inverse_of_lower(roots)
    np.testing.assert_allclose(inverses, np.linalg.inv(roots), rtol=1e-11, atol=1e-15)
    assert not np.triu(inverses, 1).any()
    roots[..., 0, 0] = 0.0
    with pytest.raises(np.linalg.LinAlgError):
        inverse_of_lower(roots)


@cases(*(f"{f}-{c}" for f in ("wishart", "normal_wishart") for c in COVARIANCE_TYPES[:-1]))
def test_restricted_families_are_the_full_one_at_a_restricted_scale(case):
    """Entropy and KL are those of K full distributions; only W is restricted."""
    standard = case.family.to_standard
    if isinstance(case.family, Wishart):
        full_family: Family = Wishart("full")
    else:
        full_family = NormalWishart("full", case.n_rows, case.n_features)

    def as_full(natural):
        parameters = standard(natural)
        scale = (parameters["inverse_scale"], case.covariance_type, case.n_rows, case.n_features)
        parameters["inverse_scale"] = unrestrict(*scale)
        parameters["dof"] = np.broadcast_to(parameters["dof"], case.n_rows)
        return full_family.from_standard(**parameters)

    q, p = as_full(case.q), as_full(case.p)
    assert case.family.entropy(case.q) == pytest.approx(full_family.entropy(q), rel=1e-10)
    assert case.family.kl(case.q, case.p) == pytest.approx(full_family.kl(q, p), rel=1e-10)
    np.testing.assert_allclose(
        case.family.log_normalizer(case.q), full_family.log_normalizer(q), rtol=1e-10
    )
    np.testing.assert_allclose(
        case.family.log_det_expectation(case.q), full_family.log_det_expectation(q), rtol=1e-10
    )
    np.testing.assert_allclose(
        unrestrict(
            case.family.expected_precision(case.q),
            case.covariance_type,
            case.n_rows,
            case.n_features,
        ),
        full_family.expected_precision(q),
        rtol=1e-9,
        atol=1e-12,
    )


@cases()
def test_standard_parameters_round_trip(case):
    standard = case.family.to_standard(case.q)
    back = case.family.from_standard(**standard)
    assert set(back) == set(case.q)
    for key, value in case.q.items():
        np.testing.assert_allclose(back[key], value, rtol=1e-10, atol=1e-12)
    again = case.family.to_standard(back)
    for key, value in standard.items():
        np.testing.assert_allclose(again[key], value, rtol=1e-10, atol=1e-12)


@cases("normal_wishart")
def test_normal_wishart_update_is_the_textbook_posterior(case):
    """Prior plus sufficient statistics of weighted rows gives the known standard parameters."""
    rng = np.random.default_rng(3)
    K, D, kind = case.n_rows, case.n_features, case.covariance_type
    x = rng.normal(size=(40, D)) + 2.0
    r = rng.dirichlet(np.ones(K), size=40)
    counts, linear = r.sum(0), r.T @ x
    second = np.einsum("nk,nd,ne->kde", r, x, x)
    sums = {
        "mean_precision": counts,
        "mean_natural": linear,
        "scatter": restrict(second, kind),
        "dof": restrict_counts(counts, kind),
    }
    prior, base = case.p, case.family.base(case.p)
    updated = case.family.to_standard(posterior(prior, sums, base, Tempering()))
    before = case.family.to_standard(prior)

    beta = before["mean_precision"] + counts
    centre = linear / counts[:, None]
    shift = before["mean_precision"] * counts / beta
    difference = centre - before["mean"]
    scatter = second - counts[:, None, None] * centre[:, :, None] * centre[:, None, :]
    scatter += shift[:, None, None] * difference[:, :, None] * difference[:, None, :]
    np.testing.assert_allclose(
        updated["inverse_scale"], before["inverse_scale"] + restrict(scatter, kind), rtol=1e-9
    )
    mean = (before["mean_precision"][:, None] * before["mean"] + linear) / beta[:, None]
    np.testing.assert_allclose(updated["mean"], mean, rtol=1e-10)
    np.testing.assert_allclose(updated["dof"], before["dof"] + sums["dof"])


@cases()
def test_flat_density_is_at_the_base_point(case):
    """The density of base + x (natural - base) is that of natural to the power x, renormalised."""
    x = 0.9
    base = case.family.base(case.q)
    zero = {key: np.zeros_like(value) for key, value in case.q.items()}
    tempered = posterior(case.q, zero, base, Tempering(x, x, x))
    drawn = case.draws(case.q, n=20)
    gap = scipy_log_density(case, tempered, drawn) - x * scipy_log_density(case, case.q, drawn)
    np.testing.assert_allclose(gap, np.broadcast_to(gap[0], gap.shape), rtol=1e-7, atol=1e-7)


@cases()
def test_posterior_forms(case):
    prior, base = case.p, case.family.base(case.p)
    sums = {key: np.abs(value) for key, value in case.q.items()}
    plain = posterior(prior, sums, base, Tempering())
    x = 0.37
    scaled = {key: x * value for key, value in sums.items()}
    tempered = posterior(prior, scaled, base, Tempering(x, x, x))
    likelihood = posterior(prior, scaled, base, Tempering(x, x, 1.0))
    for key in prior:
        np.testing.assert_array_equal(plain[key], prior[key] + sums[key])
        np.testing.assert_array_equal(likelihood[key], prior[key] + scaled[key])
        expected = base[key] + x * (prior[key] + sums[key] - base[key])
        np.testing.assert_allclose(tempered[key], expected, rtol=1e-12, atol=1e-13)
        assert isinstance(plain[key], np.ndarray) and plain[key].shape == prior[key].shape


@cases()
def test_mixing_is_linear_and_stays_in_the_domain(case):
    end = mix(case.q, case.p, 1.0)
    half = mix(case.q, case.p, 0.25)
    given = {key: value.copy() for key, value in case.p.items()}
    overwritten = mix(case.q, given, 0.25, overwrite=True)
    for key, value in half.items():
        assert overwritten[key] is given[key]
        np.testing.assert_array_equal(overwritten[key], value)
    for key in case.q:
        assert end[key] is case.p[key]
        np.testing.assert_allclose(half[key], 0.75 * case.q[key] + 0.25 * case.p[key])
    assert case.family.valid(half).all()


def spoil(case, part):
    """Return q with the last row moved out of the domain in one of its arrays."""
    spoiled = {key: value.copy() for key, value in case.q.items()}
    array = spoiled[part]
    tied = case.covariance_type in SHARED and part in ("scatter", "dof")
    last = ... if tied else -1
    if part == "dof":
        array[last] = case.n_features - 1.0
    elif part in ("mean_natural", "natural_mean"):
        # These have no limit of their own. Too long a mean makes W^{-1} indefinite, and the mean of
        # a Gaussian must be finite.
        array[last] = 1e3 if part == "mean_natural" else np.inf
    elif part in ("scatter", "precision"):
        array[last] -= 1e3 * np.ones_like(array[last])
    else:
        array.reshape(-1)[-1] = 0.0  # one entry is enough
    return spoiled


@cases()
@pytest.mark.filterwarnings("error")
def test_valid_answers_for_each_row(case):
    tied = case.covariance_type in SHARED
    shape = () if tied else (case.n_rows,)
    inside = case.family.valid(case.q)
    assert inside.shape == shape and inside.dtype == bool and inside.all()
    outside = np.zeros(()) if tied else np.arange(case.n_rows) < case.n_rows - 1
    for part in case.family.keys:
        np.testing.assert_array_equal(case.family.valid(spoil(case, part)), outside, part)
        for bad in (np.nan, np.inf):
            broken = {key: value.copy() for key, value in case.q.items()}
            broken[part].reshape(-1)[-1] = bad  # one entry is enough
            np.testing.assert_array_equal(case.family.valid(broken), outside, f"{part} {bad}")
            answer = case.family.valid(broken, reference=case.q, margin=0.5)
            np.testing.assert_array_equal(answer, outside, f"{part} {bad} with reference")


@cases()
def test_valid_keeps_a_distance_from_the_edge(case):
    """Towards the edge of the domain, the margin is what decides."""
    standard = case.family.to_standard(case.q)
    # Only the smaller one of a beta's two parameters matters, so that both are moved together.
    parts = [("a", "b")] if isinstance(case.family, Beta | ScaledBeta) else [(k,) for k in standard]
    for part in parts:
        if part == ("mean",):
            continue
        edge = case.n_features - 1.0 if part == ("dof",) else 0.0
        for share, kept in ((0.21, True), (0.19, False)):
            # A covariance of 1 / share is a precision of share.
            factor = 1.0 / share if part == ("covariance",) else share
            nearer = {key: edge + factor * (standard[key] - edge) for key in part}
            natural = case.family.from_standard(**{**standard, **nearer})
            assert case.family.valid(natural).all()
            answer = case.family.valid(natural, reference=case.q, margin=0.2)
            assert answer.shape == case.family.valid(natural).shape
            assert answer.all() == kept and answer.any() == kept, (part, share)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_the_narrowest_direction_decides_about_the_distance(covariance_type):
    case = wishart(covariance_type, 2, 2, np.random.default_rng(5))
    units = {"full": np.diag([0.3, 1.0]), "diag": np.array([0.09, 1.0])}[covariance_type]
    scatter = case.q["scatter"]
    narrow = units @ scatter @ units if covariance_type == "full" else units * scatter
    for margin, kept in ((0.05, True), (0.2, False)):
        answer = case.family.valid({**case.q, "scatter": narrow}, case.q, margin)
        assert answer.all() == kept and answer.any() == kept


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_backoff_acts_row_by_row(covariance_type):
    case = wishart(covariance_type, 2, 3, np.random.default_rng(5))
    deviation = {key: np.zeros_like(value) for key, value in case.q.items()}
    deviation["dof"][0] = 0.3
    # Row 1 leaves the domain at a share of 0.3 of the way, row 2 at once.
    deviation["dof"][1] = -(case.q["dof"][1] - 1.0) / 0.3
    deviation["scatter"][2] = -1e6
    for share, kept_of_1 in ((1.0, 0.25), (0.8, 0.2), (0.28, 0.28)):
        kept = backoff(case.q, deviation, case.family.valid, share)
        assert case.family.valid(kept).all()
        for key in case.q:
            for row, s in ((0, share), (1, kept_of_1), (2, 0.0)):
                expected = case.q[key][row] + s * deviation[key][row]
                np.testing.assert_allclose(kept[key][row], expected, rtol=1e-14)


@pytest.mark.parametrize("power", range(13))
def test_backoff_takes_the_largest_valid_share(power):
    clean, deviation = {"x": np.array([1.0, 1.0])}, {"x": np.array([-1.0, -0.5])}
    edge = 1.0 - 2.0**-power
    kept = backoff(clean, deviation, lambda natural: natural["x"] >= np.array([edge, 0.0]))
    np.testing.assert_array_equal(kept["x"], [edge, 0.5])


def test_backoff_gives_up_after_the_last_share():
    clean, deviation = {"x": np.array([1.0])}, {"x": np.array([-1.0])}
    edge = 1.0 - 2.0**-13
    kept = backoff(clean, deviation, lambda n: n["x"] >= edge)
    np.testing.assert_array_equal(kept["x"], [1.0])
    nothing = backoff(clean, deviation, lambda n: np.zeros(1, dtype=bool))
    np.testing.assert_array_equal(nothing["x"], clean["x"])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_backoff_from_a_deviation_that_is_not_finite(value):
    case = gamma(1, 3, np.random.default_rng(0))
    deviation = {key: case.p[key] - case.q[key] for key in case.q}
    deviation["rate"][1] = value
    kept = backoff(case.q, deviation, case.family.valid)
    for key in case.q:
        np.testing.assert_allclose(kept[key][[0, 2]], case.p[key][[0, 2]], rtol=1e-14)
        np.testing.assert_array_equal(kept[key][1], case.q[key][1])


@pytest.mark.parametrize("maker", [wishart, normal_wishart])
def test_rows_with_one_matrix_in_common_have_the_same_draw(maker):
    case = maker("common", 2, 3, np.random.default_rng(6))
    drawn = case.draws(case.q, n=20)
    assert (drawn["precision"] == drawn["precision"][:, :1]).all()
    assert len(np.unique(drawn["log_det_precision"])) == 20


@pytest.mark.parametrize("maker", [wishart, normal_wishart])
def test_backoff_moves_a_tied_block_as_one(maker):
    case = maker("tied", 2, 3, np.random.default_rng(7))
    deviation = {key: case.p[key] - case.q[key] for key in case.q}
    deviation["dof"] = -(case.q["dof"] - 1.0) / 0.3
    kept = backoff(case.q, deviation, case.family.valid)
    for key in case.q:
        expected = case.q[key] + 0.25 * deviation[key]
        np.testing.assert_allclose(kept[key], expected, rtol=1e-13)


def test_validity_of_a_badly_scaled_matrix_is_that_of_its_cholesky_factor():
    """Units of 1e-9 and 1e9 make eigenvalues useless; one bad row must not condemn this one."""
    units = np.array([1e-9, 1.0, 1e9])
    good = units[:, None] * (np.eye(3) + 0.4) * units
    bad = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    natural = {"precision": np.stack([good, bad, np.eye(3)]), "natural_mean": np.zeros((3, 3))}
    np.testing.assert_array_equal(Gaussian().valid(natural), [True, False, True])


@pytest.mark.filterwarnings("error")
def test_tiny_shapes_are_finite_in_log_space():
    rng = np.random.default_rng(0)
    n = 2000
    drawn = Dirichlet().sample({"concentration": np.full((n, 50), 1e-3)}, rng)
    logs = drawn["log_probabilities"]
    assert np.isfinite(logs).all()
    assert logs.min() < np.log(np.finfo(float).tiny)  # what draws outside log space would lose
    np.testing.assert_allclose(drawn["probabilities"].sum(-1), 1.0)

    drawn = Beta().sample({"a": np.full(n, 1e-3), "b": np.full(n, 1e-3)}, rng)
    assert all(np.isfinite(value).all() for value in drawn.values())
    assert abs((drawn["log_value"] < drawn["log_complement"]).mean() - 0.5) < 0.06

    natural = {"shape": np.full(n, 1e-3), "rate": np.full(n, 2.0)}
    drawn = Gamma().sample(natural, rng)
    assert np.isfinite(drawn["log_value"]).all()
    assert_mean(drawn["log_value"], Gamma().expectations(natural)["shape"][0], "E log x")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_draws_at_the_edge_of_the_degrees_of_freedom_are_finite(covariance_type):
    case = normal_wishart(covariance_type, 3, 3, np.random.default_rng(0))
    standard = case.family.to_standard(case.q)
    standard["dof"] = np.full_like(standard["dof"], 2.0 + 1e-3)
    natural = case.family.from_standard(**standard)
    for seed in range(20):
        drawn = case.family.sample(natural, np.random.default_rng(seed))
        assert all(np.isfinite(value).all() for value in drawn.values())


@cases()
def test_draws_depend_on_the_generator_alone(case):
    first, again, other = (
        case.family.sample(case.q, np.random.default_rng(seed)) for seed in (4, 4, 5)
    )
    for key, value in first.items():
        np.testing.assert_array_equal(value, again[key])
    if not (isinstance(case.family, Dirichlet) and case.q["concentration"].shape[-1] == 1):
        assert any(not np.array_equal(first[key], other[key]) for key in first)


@cases()
def test_parameters_are_not_modified(case):
    q, p = ({key: value.copy() for key, value in m.items()} for m in (case.q, case.p))
    for members in (case.q, case.p):
        for value in members.values():
            value.flags.writeable = False
    case.family.sample(case.q, np.random.default_rng(0))
    case.family.entropy(case.q), case.family.kl(case.q, case.p)
    case.family.from_standard(**case.family.to_standard(case.q))
    case.family.valid(case.q, reference=case.p, margin=0.1)
    for key in q:
        np.testing.assert_array_equal(case.q[key], q[key])
        np.testing.assert_array_equal(case.p[key], p[key])


def test_families_take_any_leading_shape():
    """Rows in a (2, 3) grid are the six rows in a line."""
    rng = np.random.default_rng(11)
    for maker in (dirichlet, beta, gamma, partial(gaussian, "full"), partial(wishart, "diag")):
        case = maker(2, 6, rng)
        grid = {key: value.reshape(2, 3, *value.shape[1:]) for key, value in case.q.items()}
        assert case.family.log_normalizer(grid).shape == (2, 3)
        assert case.family.valid(grid).shape == (2, 3)
        assert case.family.entropy(grid) == pytest.approx(case.family.entropy(case.q), rel=1e-12)
        for key, value in case.family.expectations(grid).items():
            flat = case.family.expectations(case.q)[key]
            np.testing.assert_allclose(value.reshape(flat.shape), flat, rtol=1e-12)


def test_stick_breaking_weights_multiply_out():
    v = np.random.default_rng(0).beta(1.0, 3.0, size=(4, 6))
    v[:, -1] = 1.0
    with np.errstate(divide="ignore"):
        weights = np.exp(stick_breaking_log_weights(np.log(v), np.log1p(-v)))
    for row, sticks in zip(weights, v, strict=True):
        left = 1.0
        for weight, stick in zip(row, sticks, strict=True):
            assert weight == pytest.approx(left * stick, rel=1e-12)
            left *= 1.0 - stick
    np.testing.assert_allclose(weights.sum(-1), 1.0)


@pytest.mark.parametrize("structure", ["full", "packed", "diag", "spherical"])
def test_a_matrix_that_is_not_positive_definite_is_an_error(structure):
    case = gaussian(structure, 2, 3, np.random.default_rng(0))
    for method in (case.family.expectations, case.family.log_normalizer, case.family.to_standard):
        with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
            method(spoil(case, "precision"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Gaussian("tied"), ["structure='tied'", "'full', 'packed', 'diag'"]),
        (lambda: Wishart("round"), ["covariance_type='round'", "'full', 'tied', 'diag'"]),
        (lambda: NormalWishart("round", 2, 2), ["covariance_type='round'", "'spherical'"]),
        (lambda: Wishart("tied"), ["n_rows=None", "covariance_type='tied'", "give n_rows"]),
        (lambda: Wishart("spherical"), ["n_features=None", "'spherical'", "give n_features"]),
    ],
)
def test_errors_name_the_parameter_and_the_way_out(make, words):
    with pytest.raises(ValueError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def test_places_of_packed_entries_cannot_be_changed():
    """All fits share the arrays: one that wrote into them would spoil the others."""
    for places in lower_triangle(3):
        with pytest.raises(ValueError, match="read-only"):
            places[0] = 1


@pytest.mark.parametrize("n_features", [1, 2, 5])
def test_packed_gaussian_is_the_full_one(n_features):
    """The same numbers, stored as lower triangles; draws of the same seed too."""
    rng = np.random.default_rng(8)
    packed = gaussian("packed", n_features, 4, rng)
    full = Gaussian("full")

    def unpacked(stored):
        return unrestrict(stored, "packed", 4, n_features)

    q, p = (
        {"precision": unpacked(m["precision"]), "natural_mean": m["natural_mean"]}
        for m in (packed.q, packed.p)
    )
    family = packed.family
    assert family.kl(packed.q, packed.p) == pytest.approx(full.kl(q, p), rel=1e-12)
    assert family.entropy(packed.q) == pytest.approx(full.entropy(q), rel=1e-12)
    standard, reference = family.to_standard(packed.q), full.to_standard(q)
    np.testing.assert_allclose(standard["mean"], reference["mean"], rtol=1e-12)
    np.testing.assert_allclose(
        unpacked(standard["covariance"]), reference["covariance"], rtol=1e-12, atol=1e-14
    )
    drawn, other = (
        f.sample(natural, np.random.default_rng(1))["value"]
        for f, natural in ((family, packed.q), (full, q))
    )
    np.testing.assert_allclose(drawn, other, rtol=1e-12)
    deviation = {key: 3.0 * (packed.p[key] - packed.q[key]) for key in packed.q}
    kept = backoff(packed.q, deviation, lambda n: family.valid(n, packed.q, 0.2))
    wide = {**deviation, "precision": unpacked(deviation["precision"])}
    expected = backoff(q, wide, lambda n: full.valid(n, q, 0.2))
    assert not np.allclose(kept["precision"], packed.q["precision"] + deviation["precision"])
    np.testing.assert_allclose(unpacked(kept["precision"]), expected["precision"], rtol=1e-12)
    np.testing.assert_allclose(kept["natural_mean"], expected["natural_mean"], rtol=1e-12)


@cases()
def test_divergence_is_the_kl(case):
    """What stands in for the difference of log-normalisers under strong priors is the same."""
    direct = case.family.kl(case.q, case.p)
    divergence = float(np.sum(case.family._divergence(case.q, case.p)))
    assert divergence == pytest.approx(direct, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("strength", [1e10, 1e13, 1e15])
def test_kl_from_a_strong_prior_has_its_leading_order(strength):
    """KL of a small step is half its square in the metric of Fisher, here with the statistics."""
    p, s = strength * np.array([1.0, 2.0, 0.5]), np.array([32.0, 2.0, 8.0])
    q = p + s
    s = q - p
    expected = 0.5 * ((s**2 / p).sum() - s.sum() ** 2 / p.sum())
    kl = Dirichlet().kl({"concentration": q}, {"concentration": p})
    assert kl == pytest.approx(expected, rel=1e-8)
    of_beta = Beta().kl({"a": q[:1], "b": q[1:2]}, {"a": p[:1], "b": p[1:2]})
    expected = 0.5 * ((s[:2] ** 2 / p[:2]).sum() - s[:2].sum() ** 2 / p[:2].sum())
    assert of_beta == pytest.approx(expected, rel=1e-8)
    # log x has the variance 1 / shape, and x / rate that of shape / rate².
    kl = Gamma().kl({"shape": q[:1], "rate": q[1:2]}, {"shape": p[:1], "rate": p[1:2]})
    step = s[0] / p[0] - s[1] / p[1]
    assert kl == pytest.approx(0.5 * p[0] * step**2, rel=1e-8)


@pytest.mark.parametrize("structure", ["full", "diag", "spherical"])
@pytest.mark.parametrize("stiff", [1e4, 1e10, 1e14])
def test_kl_of_precise_gaussians_far_from_the_origin(structure, stiff):
    """Squares of means in units of the variance of q would take all its digits."""
    precision = {
        "full": np.diag([stiff, 3.0]),
        "diag": np.array([stiff, 3.0]),
        "spherical": np.array(stiff),
    }[structure][None]
    of_prior = {"full": 0.02 * np.eye(2), "diag": np.full(2, 0.02), "spherical": np.array(0.02)}
    of_prior = of_prior[structure][None]
    family, mean = Gaussian(structure), np.array([[40.0, -30.0]])
    q = {"precision": precision, "natural_mean": mean * np.array([stiff, 3.0])}
    if structure == "spherical":
        q["natural_mean"] = mean * stiff
    p = {"precision": of_prior, "natural_mean": np.zeros((1, 2))}
    precisions = [stiff, stiff if structure == "spherical" else 3.0]
    with mpmath.workdps(40):
        expected = sum(
            (mpmath.mpf(0.02) / x - 1 + mpmath.log(x / mpmath.mpf(0.02)) + 0.02 * m**2) / 2
            for x, m in zip(precisions, (40.0, -30.0), strict=True)
        )
    assert family.kl(q, p) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("ratio", [1e-9, 1e-3, 4e-3, 6e-3, 0.5, 3.0, -0.6])
@pytest.mark.parametrize("q", [0.5, 63.0, 65.0, 200.0, 1e5])
def test_gammaln_divergence_against_the_integral(q, ratio):
    """log Γ(p) − log Γ(q) − (p − q) ψ(q) is the integral of (p − x) ψ'(x) from q to p."""
    p = q * (1.0 + ratio)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    x = q + 0.5 * (p - q) * (nodes + 1.0)
    expected = 0.5 * (p - q) * (weights * (p - x) * polygamma(1, x)).sum()
    found = gammaln_divergence(np.array(p), np.array(q), np.array(p - q))
    # Small arguments are evaluated directly, with an error of that of log Γ.
    tolerance = 1e-13 * max(1.0, abs(gammaln(q))) if q < 64.0 or p < 64.0 else 1e-17
    assert found == pytest.approx(expected, rel=1e-10, abs=tolerance)


@cases()
def test_backoff_of_a_family_is_the_general_one(case):
    """Whatever a family has of its own for it, such as a kernel in place of whole arrays."""
    family, clean, rng = case.family, case.q, np.random.default_rng(0)
    for size in (0.1, 3.0, 100.0):
        deviation = {key: -size * rng.random() * value for key, value in clean.items()}

        def valid(natural):
            return family.valid(natural, clean, 0.2)

        expected = backoff(clean, deviation, valid, 0.9)
        start = {key: value.copy() for key, value in clean.items()}
        found = family.backoff(start, deviation, 0.9, 0.2)
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-13)
