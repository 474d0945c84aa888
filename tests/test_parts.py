"""Data in parts: a fit to parts is a fit to their rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from cases_parts import (
    WHOLE_ROWS,
    assert_close_fit,
    assert_same_fit,
    cut,
    gradients,
    together,
    uneven,
    unobserved,
    without_further_passes,
    without_unit_parameters,
)
from designs import each_once, in_turn
from harness import (
    alternating,
    combinations,
    context_of,
    crossed,
    forms,
    has_local_variables,
    largest_difference,
    lower_bound,
    models,
    of_each_class_and_method,
    one_of_each_class,
    quick,
    taking_turns,
    units_of,
    variants,
)
from models import ENTRIES, TRAINED_BY_GRADIENTS
from models.hidden_markov import SequenceList
from scipy.sparse import csr_matrix
from sklearn.base import clone

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    Shards,
)
from sklearn_anneal.annealing import SVIPlus
from sklearn_anneal.annealing.svi_plus import Deviations, DirichletWeights
from sklearn_anneal.estimators import _part_fits

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("few_passes_of_searches"),
]

BY_NAME = {entry.name: entry for entry in (*ENTRIES, *TRAINED_BY_GRADIENTS)}


# One part


@pytest.mark.parametrize(
    ("entry", "params", "name", "how"),
    alternating(taking_turns(combinations() + gradients()), ("batch", "minibatches")),
)
def test_one_part_is_the_data(entry, params, name, how, rng, monkeypatch):
    """Bit for bit. Parameters of single data points (the users of AnnealedPMF, and the rows of
    factor analysis by gradients) are local variables in parts: fits are compared to those with
    methods that do not hold them.
    """
    X = entry.data(rng, 30)
    settings = {**params, "annealing": quick(name, 2), "max_iter": 2, "tol": 0.0}
    if how == "minibatches":
        settings |= entry.in_batches(13)
    in_parts = entry.make(**settings).fit(Shards([X]))
    without_unit_parameters(monkeypatch)
    assert_same_fit(in_parts, entry.make(**settings).fit(X))


def of_counts():
    """The models of counts × the methods that work, in every form."""
    names = ("latent_dirichlet", "gamma_process_nmf")
    return [pair for pair in combinations() if pair.values[0].name in names]


@pytest.mark.parametrize(("entry", "params", "name"), taking_turns(of_counts()))
def test_one_part_is_the_data_if_columns_never_occur(entry, params, name, rng, monkeypatch):
    """Bit for bit: fits that leave such columns out leave them out in parts too.

    The part may have empty ones beside it.
    """
    without_further_passes(monkeypatch)
    dense = rng.poisson(0.4, (40, 30)).astype(float)
    dense[:, [3, 17]] = 0.0
    X = csr_matrix(dense)
    settings = {**params, "annealing": quick(name, 2), "max_iter": 4, "tol": 0.0}
    for parts, how in (([X], entry.in_batches(13)), ([X[:0], X, X[:0]], {})):
        in_parts = entry.make(**settings, **how).fit(Shards(parts))
        assert_same_fit(in_parts, entry.make(**settings, **how).fit(X))


SEARCHES = {
    "restarts": {"n_init": 2, "annealing": quick("deterministic", 2)},
    "race": {"n_init": 3, "restarts": "race", "n_jobs": 1, "annealing": quick("proximity", 2)},
    "reheats": {"effort": 1, "annealing": quick("svi_plus", 2)},
}


@pytest.mark.parametrize(
    ("entry", "params", "how"),
    of_each_class_and_method(
        crossed([pytest.param(e, e.first, id=e.name) for e in BY_NAME.values()], SEARCHES)
    ),
)
def test_searches_in_one_part_are_those_in_the_data(entry, params, how, rng, monkeypatch):
    """Restarts, races and reheats; what the estimator refuses, it refuses in the same words."""
    if not set(SEARCHES[how]) <= set(entry.make().get_params()):
        pytest.skip("the estimator has no such search")
    X = entry.data(rng, 30)
    settings = {**params, "max_iter": 3, "tol": 0.0, **SEARCHES[how]}
    without_unit_parameters(monkeypatch)
    try:
        whole = entry.make(**settings).fit(X)
    except ValueError as refusal:
        with pytest.raises(ValueError) as caught:
            entry.make(**settings).fit(Shards([X]))
        assert str(caught.value) == str(refusal)
        return
    assert_same_fit(entry.make(**settings).fit(Shards([X])), whole)


@pytest.mark.parametrize(
    "entry", one_of_each_class([pytest.param(e, id=e.name) for e in BY_NAME.values()])
)
def test_what_is_refused_is_refused_in_the_same_words(entry, rng):
    X = entry.data(rng, 30)
    for name in entry.refused(entry.first):
        texts = []
        for data in (X, Shards(cut(X, [11]))):
            with pytest.raises(ValueError) as caught:
                entry.make(**entry.first, annealing=name).fit(data)
            texts.append(str(caught.value))
        assert texts[0] == texts[1]


# Several parts


@pytest.mark.parametrize(
    ("entry", "params", "n_parts"),
    each_once(
        crossed(variants(heuristics=True, sampled=False), [2, 5, 16]),
        lambda entry, params, n: (entry.name, "auto" in map(str, params.values())),
        lambda entry, params, n: (entry.name, params.get("local_step")),
        lambda entry, params, n: n,
    ),
)
def test_plain_inference_is_that_of_the_rows(entry, params, n_parts, rng, monkeypatch):
    """Up to rounding, with parts of fewer rows than components, and with an empty part.

    Every entry has given and learned priors. Statistics of every variant are merged in the tests
    of summaries and visits.
    """
    X = entry.data(rng, 40)
    settings = {**params, **entry.as_in_parts, "annealing": "none", "max_iter": 2, "tol": 0.0}
    in_parts = entry.make(**settings).fit(Shards(uneven(X, n_parts)))
    without_unit_parameters(monkeypatch)
    assert_close_fit(in_parts, entry.make(**settings).fit(X))


@pytest.mark.parametrize(
    ("entry", "params", "place"),
    taking_turns(
        crossed(
            [form for form in forms(sampled=False) if form.values[0].name not in WHOLE_ROWS],
            [0, 1, 2, 4],
        )
    ),
)
def test_parts_without_an_observation_lose_nothing_of_the_others(
    entry, params, place, rng, monkeypatch
):
    """Wherever they are in the tree of sums; after them, the data have another scale."""
    parts = cut(entry.data(rng, 40), [9, 18, 30])
    parts.insert(place, unobserved(parts[1]))
    settings = {**params, "annealing": "none", "max_iter": 2, "tol": 0.0}
    in_parts = entry.make(**settings).fit(Shards(parts))
    without_unit_parameters(monkeypatch)
    assert_close_fit(in_parts, entry.make(**settings).fit(together(parts)))


@pytest.mark.parametrize("emission", ["one", "independent", "chain", "blocks"])
def test_a_column_that_early_parts_lack_keeps_its_digits(emission, rng):
    """Its origin is far from zero, and comes from the first part that has the column.

    The bound does not depend on the origin, so that the fit to the same data about zero is exact.
    """
    columns = [("a", "gaussian", [0]), ("b", "gaussian", [1])]
    make = {
        "one": AnnealedBayesianGaussianMixture,
        "independent": partial(AnnealedBayesianMixture, emission="gaussian"),
        "chain": AnnealedHMM,
        "blocks": partial(AnnealedHMM, emission=columns),
    }[emission]
    z = rng.integers(2, size=120)
    X = np.round(2.0**20 * (np.c_[6.0 * z, 4.0 * z] + rng.normal(size=(120, 2)))) / 2.0**20
    X[:50, 0] = np.nan

    def fit(shift):
        parts = cut(X + shift, [20, 50, 80])
        if emission in ("chain", "blocks"):
            parts = [[part] for part in parts]
        est = make(n_components=2, annealing="none", max_iter=15, random_state=0)
        return est.fit(Shards(parts))

    far, near = fit(2.0**27), fit(0.0)
    assert far.lower_bound_ == pytest.approx(near.lower_bound_, rel=1e-9)
    data = [X] if emission in ("chain", "blocks") else X
    moved = [X + 2.0**27] if emission in ("chain", "blocks") else X + 2.0**27
    np.testing.assert_allclose(far.predict_proba(moved), near.predict_proba(data), atol=1e-6)


@pytest.mark.parametrize(
    ("entry", "params", "name", "how"),
    alternating(taking_turns(combinations() + gradients(), 2), ("minibatches", "batch")),
)
def test_all_methods_work_in_parts(entry, params, name, how, rng):
    """The bound of the result is that of the same parameters and the rows in memory."""
    X = entry.data(rng, 30)
    settings = {**params, "annealing": quick(name, 2), "max_iter": 2, "tol": 0.0}
    if how == "minibatches":
        settings |= entry.in_batches(7)
    weights = np.ones(30)
    weights[5:9] = 0.0
    shards, of_parts = Shards(cut(X, [5, 9, 9])), cut(weights, [5, 9, 9])
    est = entry.make(**settings).fit(shards, sample_weight=of_parts)
    assert np.isfinite(est.lower_bound_)
    for key, value in context_of(est).q.items():
        assert np.isfinite(value).all(), key
    # Local variables of parts, the users of AnnealedPMF among them, are known to the fit alone.
    if entry in ENTRIES and not hasattr(est, "n_items_") and not has_local_variables(est, X):
        ctx = context_of(est)
        units = units_of(est, X, weights).centered(ctx.summary)
        assert est.lower_bound_ == pytest.approx(lower_bound(ctx, units), rel=1e-9)


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_a_weight_of_two_is_a_second_row(entry, rng):
    """To the total weight and to all priors; starts draw rows, of which there are others then."""
    X, twice = entry.data(rng, 30), np.ones(30)
    twice[7:11] = 2.0
    parts, weights = cut(X, [9]), cut(twice, [9])
    again = [entry.repeat(part, w.astype(int)) for part, w in zip(parts, weights, strict=True)]
    found = []
    for data, of_parts in ((parts, weights), (again, None)):
        est = entry.make(**{**entry.first, "annealing": "none", "tol": 0.0})
        found.append(est.set_params(max_iter=0).fit(Shards(data), sample_weight=of_parts))
    one, two = (context_of(est) for est in found)
    assert one.summary.weight == two.summary.weight
    assert largest_difference(one.prior, two.prior) < 1e-12


# Kinds of data


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_are_converted_to_the_dtype_of_shards(dtype, rng):
    X = BY_NAME["gaussian_mixture"].data(rng, 40)
    est = BY_NAME["gaussian_mixture"].make(annealing="none")
    in_parts = est.fit(Shards([X.astype(dtype)], dtype=np.float32))
    whole = BY_NAME["gaussian_mixture"].make(annealing="none").fit(X.astype(np.float32))
    assert_same_fit(in_parts, whole)


def equal_bounds(est, parts, X, **rest):
    """Check that parts and rows lead to the same bounds; returns the fit to parts."""
    in_parts = clone(est).fit(Shards(parts), **rest)
    np.testing.assert_allclose(in_parts.lower_bounds_, clone(est).fit(X).lower_bounds_, rtol=1e-9)
    return in_parts


def holed(X, rows):
    """The array with a missing cell in each of some rows."""
    X = X.astype(float)
    X[rows, np.arange(len(rows)) % X.shape[1]] = np.nan
    return X


PLAIN = {"annealing": "none", "max_iter": 4, "tol": 0.0}


@in_turn(
    name=(
        "gaussian_mixture",
        "mixture_bernoulli",
        "mixture_categorical",
        "mixture_poisson",
        "mixture_negative_binomial",
        "mixture_zero_inflated_poisson",
        "mixture_blocks",
        "gamma_process_nmf",
        "spike_slab_factor_analysis",
    ),
    rows=([21, 25, 27], [3, 4]),
)
def test_cells_may_be_missing_in_some_parts_only(name, rows, rng):
    entry = BY_NAME[name]
    X = entry.data(rng, 300)
    X = X[~np.isnan(X).any(axis=1)][:30]
    X = holed(X, rows)
    equal_bounds(entry.make(**PLAIN), cut(X, [10, 20]), X)


@pytest.mark.parametrize("number", ["auto", "classes"])
def test_categories_are_packed_alike_in_all_parts(number, rng, monkeypatch):
    """For as many components as there are, which ``n_components`` does not say."""
    monkeypatch.setattr("sklearn_anneal.data.tables._TABLE_SIZE", 1 << 13)
    y = np.arange(80) % 2
    X = holed((y[:, None] + (rng.random((80, 12)) < 0.2)) % 3, [3])
    how = {"emission": "categorical", "n_categories": 3, "random_state": 0, **PLAIN}
    if number == "auto":
        est, y = AnnealedBayesianMixture("auto", **how), None
    else:
        est = AnnealedBayesianMixture(n_components_per_class=8, **how)
    whole = clone(est).fit(X, y)
    parts = Shards(cut(X, [30, 50]))
    labels = None if y is None else cut(y, [30, 50])
    # The second fit knows the number that the first one has found.
    for _ in range(2):
        np.testing.assert_allclose(est.fit(parts, labels).lower_bound_, whole.lower_bound_)
        assert est.n_components_ == whole.n_components_


def test_cells_of_frames_may_be_missing_in_some_parts_only(rng):
    X = [rng.standard_normal((4, 2)) for _ in range(12)]
    X[7][2, 1] = np.nan
    equal_bounds(AnnealedHMM(2, random_state=0, **PLAIN), cut(X, [3, 5]), X)


@pytest.mark.parametrize("emission", ["gaussian", "categorical", "poisson", "blocks"])
def test_frames_may_be_missing_in_some_parts_only(emission, rng):
    """And all frames of a sequence, but not all frames of all data."""
    entry = BY_NAME[f"hidden_markov_{emission}"]
    X = SequenceList(x for x in entry.data(rng, 60) if not (np.isnan(x) | (x < 0)).any())[:20]
    X[8] = np.full_like(X[8], -1.0 if emission == "categorical" else np.nan)
    X[9] = X[9].copy()
    X[9][0] = -1.0 if emission == "categorical" else np.nan
    equal_bounds(entry.make(**PLAIN), cut(X, [4, 11]), X)


@pytest.mark.parametrize("emission", ["bernoulli", "categorical"])
def test_cells_may_be_missing_where_no_start_looks(emission, rng, monkeypatch):
    """The form in which columns are stored follows from all rows, not from those of the start."""
    monkeypatch.setattr(_part_fits, "ROWS_FOR_STARTS", 12)
    entry = BY_NAME[f"mixture_{emission}"]
    X = np.nan_to_num(entry.data(rng, 60))
    for rows in ([], range(20, 33)):
        X = holed(X, list(rows))
        est = entry.make(**PLAIN).fit(Shards(cut(X, [20, 33])))
        ctx = context_of(est)
        expected = lower_bound(ctx, units_of(est, X).centered(ctx.summary))
        assert est.lower_bound_ == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("cls", [AnnealedLatentDirichletAllocation, AnnealedGammaProcessNMF])
def test_counts_in_parts(cls, kind, rng, monkeypatch):
    without_further_passes(monkeypatch)
    X = rng.poisson(0.7, (40, 12))
    X[11:14] = 0
    X = csr_matrix(X) if kind == "sparse" else X.astype(float)
    equal_bounds(cls(3, random_state=0, **PLAIN), cut(X, [11, 14, 30]), X)


def test_binary_sparse_columns_in_parts(rng):
    X = csr_matrix((rng.random((40, 9)) < 0.3).astype(float))
    est = AnnealedBayesianMixture(3, emission="bernoulli", random_state=0, **PLAIN)
    equal_bounds(est, cut(X, [11, 30]), X)


@pytest.mark.parametrize("kind", ["dense", "csr", "pairs"])
def test_ratings_in_parts(kind, rng, monkeypatch):
    """Pairs are parts of X and of y; a user may have any number, and numbers may have gaps."""
    without_unit_parameters(monkeypatch)
    X = BY_NAME["matrix_factorization"].data(rng, 40)
    settings = {"n_components": 2, "implicit_feedback": False, "random_state": 0, **PLAIN}
    if kind == "dense":
        equal_bounds(AnnealedPMF(**settings), cut(X, [9, 10, 30]), X)
    elif kind == "csr":
        rows, columns = np.nonzero(~np.isnan(X))
        known = csr_matrix((X[rows, columns], (rows, columns)), shape=X.shape)
        equal_bounds(AnnealedPMF(**settings), cut(known, [9, 10, 30]), known)
    else:
        users, items = np.nonzero(~np.isnan(X))
        pairs, y = np.column_stack([users, items]), X[users, items]
        est = AnnealedPMF(**settings, input="pairs", n_items=12)
        ends = np.searchsorted(users, [9, 10, 30])
        in_parts = clone(est).fit(Shards(cut(pairs, ends)), cut(y, ends))
        whole = clone(est).fit(pairs, y)
        np.testing.assert_allclose(in_parts.lower_bounds_, whole.lower_bounds_, rtol=1e-9)


def test_numbers_of_users_may_be_large_because_no_part_has_a_row_for_each(rng):
    pairs = np.column_stack([10**8 + np.repeat(np.arange(20), 3), rng.integers(5, size=60)])
    y = rng.standard_normal(60)
    est = AnnealedPMF(2, input="pairs", n_items=5, n_users=2 * 10**8, random_state=0, **PLAIN)
    assert np.isfinite(est.fit(Shards(cut(pairs, [30])), cut(y, [30])).lower_bound_)


def test_early_stopping_holds_out_a_share_of_every_part(rng):
    entry = BY_NAME["sigmoid_belief_net"]
    X = entry.data(rng, 60)
    settings = {"early_stopping": True, "validation_fraction": 0.2, "annealing": "none"}
    one = entry.make(**settings).fit(Shards([X]))
    assert_same_fit(one, entry.make(**settings).fit(X))
    several = entry.make(**settings).fit(Shards(cut(X, [3, 30])))
    assert np.isfinite(several.lower_bound_)
    assert len(several.validation_scores_) == several.n_iter_


# Random weights


def drawn_in_parts(distribution, sizes, rng):
    """The weights of all parts: totals first, and then weights that are scaled to them."""
    found = [distribution.draw(size, rng) for size in sizes]
    totals = found[0][1]
    for _, own in found[1:]:
        totals = distribution.merge(totals, own)
    return np.concatenate([distribution.scaled(drawn, own, totals) for drawn, own in found]).astype(
        float
    )


@pytest.mark.parametrize(
    "distribution", [DirichletWeights(0.7, 10), Deviations(1.3, 10)], ids=["dirichlet", "gaussian"]
)
def test_weights_of_all_parts_together_have_the_moments_of_definition_one(distribution, rng):
    """Mean 1, sum N and the covariance of the definition, whatever parts there are."""
    n = 10
    draws = np.array([drawn_in_parts(distribution, [1, 0, 6, 3], rng) for _ in range(3_000)])
    if isinstance(distribution, Deviations):
        draws += 1.0
        variance = distribution.scale**2 * (1 - 1 / n)
    else:
        variance = (n - 1) / (n * distribution.concentration + 1)
    np.testing.assert_allclose(draws.sum(axis=1), n, rtol=1e-5)
    covariance = variance * (np.eye(n) - (1 - np.eye(n)) / (n - 1))
    np.testing.assert_allclose(draws.mean(axis=0), 1.0, atol=0.06)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.15 * max(variance, 1))


@pytest.mark.parametrize("noise", ["dirichlet", "gaussian"])
def test_every_pass_scales_its_weights_to_the_number_of_rows(noise, rng, monkeypatch):
    cls, sums = (DirichletWeights if noise == "dirichlet" else Deviations), []
    original = cls.scaled

    def scaled(self, *args):
        found = original(self, *args)
        sums.append(float(found.sum()))
        return found

    monkeypatch.setattr(cls, "scaled", scaled)
    X = BY_NAME["gaussian_mixture"].data(rng, 40)
    method = SVIPlus(0.3, noise, "constant", 3, 1.0)
    est = BY_NAME["gaussian_mixture"].make(annealing=method, max_iter=0)
    est.fit(Shards(uneven(X, 5)))
    passes = np.reshape(sums, (-1, 4))  # one of five parts is empty
    total = 40.0 if noise == "dirichlet" else 0.0
    assert len(passes) >= 3
    np.testing.assert_allclose(passes.sum(axis=1), total, atol=1e-4)


# Warm starts and weights


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_a_warm_start_goes_on_in_parts(entry, rng, monkeypatch):
    """From a fit to parts or from one to rows: bounds rise on, and are the same up to rounding."""
    without_unit_parameters(monkeypatch)
    X = entry.data(rng, 40)
    settings = {**entry.first, **PLAIN, "max_iter": 2, "warm_start": True}
    shards = Shards(uneven(X, 5))
    found = [
        entry.make(**settings).fit(first).fit(second)
        for first, second in ((X, X), (shards, shards), (X, shards))
    ]
    for est in found[1:]:
        assert len(est.lower_bounds_) == 4
        np.testing.assert_allclose(est.lower_bounds_, found[0].lower_bounds_, rtol=1e-8)


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_weights_are_lists_with_an_array_for_each_part(entry, rng, monkeypatch):
    """With one weight per row, per user, or per sequence."""
    without_unit_parameters(monkeypatch)
    X, weights = entry.data(rng, 40), rng.integers(0, 3, size=40).astype(float)
    settings = {**entry.first, **PLAIN}
    in_parts = entry.make(**settings).fit(Shards(uneven(X, 5)), sample_weight=uneven(weights, 5))
    whole = entry.make(**settings).fit(X, sample_weight=entry.row_weights(X, weights))
    np.testing.assert_allclose(in_parts.lower_bounds_, whole.lower_bounds_, rtol=1e-9)
