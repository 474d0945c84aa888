"""Tests of the draws of topics, which structured inference makes of the words that it meets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases_latent_dirichlet import documents, draw_corpus, small
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats
from scipy.sparse import csr_matrix, hstack
from scipy.special import logsumexp, polygamma, psi

from sklearn_anneal.annealing import StructuredVI
from sklearn_anneal.families import Dirichlet, PooledDirichlet
from sklearn_anneal.families._implicit import log_gamma_derivative
from sklearn_anneal.kernels import gamma_draws
from sklearn_anneal.models.topics import LatentDirichlet
from sklearn_anneal.models.topics.draws import TopicsDraw, pooled_sums
from sklearn_anneal.models.topics.lazy_columns import LazyColumns
from sklearn_anneal.models.topics.tables import Concentrations, Words
from sklearn_anneal.parallel.workers import SEQUENTIAL

# λ of three topics over six words, of which the visits of these tests meet four.
CONCENTRATION = np.array([
    [0.02, 5.0, 40.0],
    [3.0, 0.4, 0.1],
    [0.5, 0.5, 2.0],
    [0.001, 8.0, 0.3],
    [1.5, 0.02, 6.0],
    [7.0, 1.0, 0.9],
])  # fmt: skip
MET = np.array([0, 2, 3, 5], dtype=np.int32)
OTHERS = np.array([1, 4], dtype=np.int32)


def log_gammas(shapes, rows, seed=0, number=0, dtype=np.float64):
    """Draw log G for some rows, which are the block of this number."""
    n, n_columns = len(rows), shapes.shape[1]
    out = np.empty(((number + 1) * n, n_columns), dtype)
    every = np.tile(np.asarray(rows, dtype=np.int32), number + 1)
    sums, log_sums = np.empty((2, number + 1, n_columns))
    arguments = (out, shapes, every, 1.0, np.empty(0), seed, n, sums, log_sums)
    gamma_draws.draw_rows.part(arguments, number, number + 1)
    assert_allclose(sums[number], shapes[np.asarray(rows)].sum(axis=0), rtol=1e-12)
    return out[number * n :]


def drawn(concentration, words, seed):
    rng = np.random.default_rng(seed)
    expected = Concentrations.of(concentration.T, Words(words, len(concentration), False, words))
    return TopicsDraw.of(expected, words, concentration.T, rng, SEQUENTIAL)


@pytest.fixture(scope="module")
def many():
    """3,000 draws of log β of the words that are met, and of the sum of the others."""
    draws = [drawn(CONCENTRATION, MET, seed) for seed in range(3_000)]
    log_beta = np.array([draw.log_gamma - draw.log_total for draw in draws])
    pooled = np.array([draw.log_pooled - draw.log_total for draw in draws])
    return log_beta, pooled


# Gamma variables


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [1e-4, 0.01, 0.3, 1.0, 2.5, 40.0, 1e5])
def test_gamma_variables_have_their_distribution(shape, dtype):
    values = log_gammas(np.full((4001, 25), shape), np.arange(4001), 3, dtype=dtype)
    values = values.astype(float).ravel()
    # G(a) itself is 0 in floating point if a is small, but G(a)^a is close to uniform.
    if shape < 1e-3:
        found = stats.kstest(shape * values, lambda y: np.exp(y - special.gammaln(shape + 1)))
    else:
        found = stats.kstest(np.exp(values), "gamma", args=(shape,))
    assert found.pvalue > 1e-3
    error = np.sqrt(polygamma(1, shape) / len(values))
    assert abs(values.mean() - psi(shape)) < 4 * error


def test_gamma_variables_of_a_block_are_independent(rng):
    """Pairs of normal variables share a radius, and those that are rejected are drawn anew."""
    shape = 0.05
    values = log_gammas(np.full((60_000, 8), shape), np.arange(60_000))
    uniform = special.gammainc(shape, np.exp(values)).reshape(-1, 480)
    correlation = np.corrcoef(uniform.T)[np.triu_indices(480, 1)]
    assert abs(correlation).max() < 6.5 / np.sqrt(len(uniform))
    assert np.sqrt(len(uniform)) * correlation.std() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_smallest_shapes_have_finite_logarithms(dtype):
    shapes = np.array([[1e-3, 1e-30, 1e-300, 5e-324, 1.0]]).repeat(5000, axis=0)
    values = log_gammas(shapes, np.arange(5000), dtype=dtype)
    assert np.isfinite(values).all()
    assert np.median(values[:, 0]) == pytest.approx(np.log(0.5) / 1e-3, rel=0.1)
    assert np.median(values[:, 1]) == pytest.approx(np.log(0.5) / 1e-30, rel=0.1)


def test_streams_of_numbers_differ_and_can_be_repeated():
    shapes = np.full((40, 3), 0.7)
    first = log_gammas(shapes, np.arange(40), 5)
    assert_array_equal(first, log_gammas(shapes, np.arange(40), 5))
    others = [log_gammas(shapes, np.arange(40), *which) for which in ((6,), (5, 1), (5, 2))]
    assert len(np.unique(np.stack([first, *others]))) == 4 * first.size


# Topics


def test_drawn_words_have_the_moments_of_the_whole_distribution(many):
    log_beta, _ = many
    totals = CONCENTRATION.sum(axis=0)
    met = CONCENTRATION[MET]
    deviation = log_beta - (psi(met) - psi(totals))
    variance = polygamma(1, met) - polygamma(1, totals)
    assert (abs(deviation.mean(axis=0)) < 4 * np.sqrt(variance / len(deviation))).all()
    for k in range(3):
        products = deviation[:, :, k, None] * deviation[:, None, :, k]
        expected = np.diag(polygamma(1, met[:, k])) - polygamma(1, totals[k])
        error = products.std(axis=0) / np.sqrt(len(products))
        assert (abs(products.mean(axis=0) - expected) < 4.5 * error).all()
        # Entries off the diagonal would be 0 if words were drawn without their common sum.
        assert (abs(expected) > 4.5 * error)[~np.eye(4, dtype=bool)].any()
        other = deviation[:, :, (k + 1) % 3]
        crossed = deviation[:, :, k, None] * other[:, None]
        assert (abs(crossed.mean(0)) < 4.5 * crossed.std(0) / np.sqrt(len(crossed))).all()


def test_every_probability_has_its_marginal_distribution(many):
    log_beta, log_pooled = many
    totals = CONCENTRATION.sum(axis=0)
    others = CONCENTRATION[OTHERS].sum(axis=0)
    for k in range(3):
        found = stats.kstest(np.exp(log_pooled[:, k]), "beta", (others[k], totals[k] - others[k]))
        assert found.pvalue > 1e-3
        for i, w in enumerate(MET):
            a = CONCENTRATION[w, k]
            if a > 0.01:
                assert stats.kstest(
                    np.exp(log_beta[:, i, k]), "beta", (a, totals[k] - a)
                ).pvalue > (1e-4)
    joined = np.concatenate([log_beta, log_pooled[:, None]], axis=1)
    assert_allclose(logsumexp(joined, axis=1), 0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_visit_reads_the_draw_of_its_words(dtype, rng):
    X = hstack([draw_corpus(rng, n_words=200), csr_matrix((60, 400))], dtype=dtype).tocsr()
    units = documents(X)
    model = LatentDirichlet(5, 600, np.full(5, 0.2), np.full(600, 0.1), dtype=dtype)
    q = {"topic_word": np.asfortranarray(rng.gamma(0.3, size=(5, 600)) + 1e-3)}
    visit = model.visit(q, units, rng=np.random.default_rng(2))
    words = np.flatnonzero(np.asarray(X.sum(axis=0)).ravel())
    assert_array_equal(visit.draw.words, words)
    assert visit.draw.log_gamma.dtype == np.float32
    log_beta = visit.draw.log_gamma - visit.draw.log_total
    # The visit meets few words, so that its table has rows for these alone.
    assert_allclose(visit.expected.largest, log_beta.max(axis=1), rtol=1e-5)
    expected = np.exp(log_beta - log_beta.max(axis=1, keepdims=True))
    tolerance = 1e-12 if dtype == np.float64 else 1e-3
    assert_allclose(visit.expected.table[:, :5], expected, rtol=tolerance, atol=1e-30)
    assert (visit.expected.table[:, 5:] == 0).all()


def test_the_others_are_summed_without_loss_of_digits():
    concentration = np.full((50, 2), 1e8)
    concentration[7] = 1e-9
    words = np.delete(np.arange(50), 7).astype(np.int32)
    totals, given = concentration.sum(axis=0), concentration[words].sum(axis=0)
    lazy = LazyColumns(concentration.T, np.ones((1, 50)), np.ones(()))
    for topics in (concentration.T, lazy):
        assert_allclose(pooled_sums(totals, given, words, topics), 1e-9, rtol=1e-12)
    everything = np.arange(50, dtype=np.int32)
    log_beta = drawn(concentration, everything, 0)
    assert log_beta.pooled is None
    log_sums = logsumexp(log_beta.log_gamma.astype(float), axis=0)
    assert_allclose(log_sums, log_beta.log_total, rtol=1e-12)


# The exact gradient


def inverse_trigamma_sums(concentration):
    inverse = 1 / polygamma(1, concentration)
    return inverse.sum(axis=-1), (concentration - inverse).sum(axis=-1)


def pooled_rows(concentration, n):
    """n draws of one row of λ, whose last two entries are pooled; the family and its parameters."""
    family = PooledDirichlet(*inverse_trigamma_sums(concentration[-2:]))
    natural = np.append(concentration[:-2], concentration[-2:].sum())
    natural = {"concentration": np.broadcast_to(natural, (n, len(natural))).copy()}
    return family, natural, family.sample(natural, np.random.default_rng(1))


def test_pooled_entries_leave_the_natural_gradient_of_the_others():
    """V S is the inverse Hessian of all words times the derivative of S · log β by all of λ."""
    concentration = np.array([0.3, 2.0, 11.0, 0.7, 4.0])
    statistics = np.array([[2.0, 0.5, 7.0, 0.0]])
    family, natural, draw = pooled_rows(concentration, 1)
    derivative = log_gamma_derivative(draw["log_gamma"], natural["concentration"])[0]
    p = draw["probabilities"][0]
    gradient = derivative * (statistics[0] - p * statistics.sum())
    gradient = np.append(gradient, gradient[-1])  # both pooled entries change the same variable
    hessian = np.diag(polygamma(1, concentration)) - polygamma(1, concentration.sum())
    expected = np.linalg.solve(hessian, gradient)
    found = family.implicit_statistics(draw, natural, {"concentration": statistics})
    assert_allclose(found["concentration"][0, :-1], expected[:-2], rtol=1e-7)
    assert_allclose(found["concentration"][0, -1], expected[-2:].sum(), rtol=1e-7)
    plain = Dirichlet().implicit_statistics(draw, natural, {"concentration": statistics})
    assert abs(plain["concentration"][0, :-1] / expected[:-2] - 1).max() > 1e-3


def test_the_matrix_of_pooled_draws_is_the_identity_on_average():
    concentration = np.array([0.3, 2.0, 11.0, 0.7, 4.0])
    family, natural, draw = pooled_rows(concentration, 100_000)
    statistics = np.broadcast_to([2.0, 0.5, 7.0, 0.0], natural["concentration"].shape)
    found = family.implicit_statistics(draw, natural, {"concentration": statistics})
    found = found["concentration"]
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (abs(found.mean(axis=0) - statistics[0]) < 4.5 * error).all()


def test_exact_statistics_of_a_visit_are_those_of_the_family():
    """Written out for one topic; the words that the visit did not meet keep statistics of 0."""
    prior = np.full((1, 6), 0.01)
    statistics = np.zeros((3, 6))
    statistics[:, MET] = np.arange(12).reshape(3, 4)
    draw = drawn(CONCENTRATION, MET, 4)
    exact = draw.exact_gradient_statistics(CONCENTRATION.T, prior, statistics)
    assert (exact[:, OTHERS] == 0).all()
    for k in range(3):
        pooled = CONCENTRATION[OTHERS, k]
        family = PooledDirichlet(*inverse_trigamma_sums(pooled))
        natural = {"concentration": np.append(CONCENTRATION[MET, k], pooled.sum())}
        log_gamma = np.append(draw.log_gamma[:, k], draw.log_pooled[k])
        one = {"log_gamma": log_gamma, "probabilities": special.softmax(log_gamma)}
        current = np.append(np.maximum(CONCENTRATION[MET, k] - 0.01, 0), 0)
        given = np.append(statistics[k, MET], 0)
        moved = family.implicit_statistics(one, natural, {"concentration": given - current})
        expected = np.clip(current + moved["concentration"], 0, 4 * (given + current))
        assert_allclose(exact[k, MET], expected[:-1], rtol=1e-7)


# Fits


def full_draw(model, q, units, *args, rng=None, **how):
    """A visit that draws all words one by one, by numpy."""
    visit = VISIT(model, q, units, *args, rng=rng and np.random.default_rng(0), **how)
    if rng is None:
        return visit
    natural = {"concentration": np.asarray(q["topic_word"])}
    draw = Dirichlet().sample(natural, rng)
    log_beta = draw["log_probabilities"][:, visit.words.occurring].T
    largest = log_beta.max(axis=1)
    table = np.zeros(visit.expected.table.shape)
    rows = slice(None) if visit.words.few else visit.words.occurring
    table[rows, : model.n_components] = np.exp(log_beta - largest[:, None])
    visit.expected.largest[rows] = largest
    visit.expected.table[:] = table
    return replace(visit, draw=FullDraw(draw))


class FullDraw:
    """A draw of all words, of which statistics of all words are made."""

    def __init__(self, draw):
        self.draw = draw

    def exact_gradient_statistics(self, concentration, prior, stats):
        natural, of_prior, statistics = (
            {"concentration": np.asarray(a)} for a in (concentration, prior, stats)
        )
        exact = Dirichlet().exact_gradient_statistics(self.draw, natural, of_prior, statistics)
        return exact["concentration"]


VISIT = LatentDirichlet.visit


@pytest.mark.parametrize("gradient", ["approximate", "exact"])
def test_fits_have_the_distribution_of_those_with_draws_of_all_words(gradient, monkeypatch, rng):
    X = draw_corpus(rng, n_documents=18, n_words=60, length=12)

    def fits(seeds):
        method = StructuredVI(gradient=gradient, n_passes=2, evaluate_every=100)
        online = {"annealing": method, "learning_method": "online", "batch_size": 6}
        online |= {"init_params": "random", "max_iter": 2}
        return [small(4, **online, random_state=seed).fit(X) for seed in seeds]

    ours = fits(range(60))
    monkeypatch.setattr(LatentDirichlet, "visit", full_draw)
    theirs = fits(range(100, 160))
    quantities = [
        lambda lda: lda.lower_bound_,
        lambda lda: lda.components_.max(),
        lambda lda: np.quantile(lda.components_, 0.75),
    ]
    for quantity in quantities:
        pair = [[quantity(lda) for lda in found] for found in (ours, theirs)]
        assert stats.ks_2samp(*pair).pvalue > 1e-3
        # The test would notice a shift of one standard deviation.
        assert stats.ks_2samp(pair[0], pair[1] + np.std(pair[1])).pvalue < 1e-3


@pytest.mark.parametrize("gradient", ["approximate", "exact"])
def test_the_number_of_threads_does_not_change_a_draw(gradient, rng):
    X = draw_corpus(rng, n_documents=600, n_words=1500, n_topics=8, length=200, eta=1.0)
    method = StructuredVI(gradient=gradient, n_passes=2)
    how = {"learning_method": "online", "batch_size": 300, "annealing": method}
    one, two = (small(16, **how, n_jobs=n).fit(X) for n in (1, 2))
    assert_array_equal(one.components_, two.components_)
