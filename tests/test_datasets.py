"""Drawn data follow their truth, and come with all that a test needs to know of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from sklearn_anneal import AnnealedBayesianMixture
from sklearn_anneal.datasets import (
    delete_cells,
    make_factorial_mixture,
    make_gamma_process_nmf,
    make_mixture,
    make_notes,
)

EMISSIONS = (
    *("bernoulli", "categorical", "poisson", "gaussian"),
    *("negative_binomial", "zero_inflated_poisson"),
)
MIXED = [
    ("answers", "categorical", [0, 4]),
    ("visits", "poisson", [1]),
    ("sizes", "gaussian", slice(2, 4)),
    ("owns", "bernoulli", [False] * 5 + [True]),
]
COLUMNS = {"answers": [0, 4], "visits": [1], "sizes": [2, 3], "owns": [5]}


def expected(emission, own, column):
    """Mean of a column in each component."""
    if emission == "categorical":
        return own["emissionprob"][column] @ np.arange(own["n_categories"][column])
    name = {"bernoulli": "emissionprob", "gaussian": "means"}.get(emission, "lambdas")
    rest = 1.0 - own["zeroprob"][:, column] if emission == "zero_inflated_poisson" else 1.0
    return rest * own[name][:, column]


@pytest.mark.parametrize("emission", EMISSIONS)
def test_columns_have_the_moments_of_their_component(emission):
    X, labels, truth = make_mixture(30_000, 4, emission=emission, random_state=0)
    assert X.shape == (30_000, 4) and X.dtype == np.float64
    for k in range(3):
        rows = X[labels == k]
        for d in range(4):
            noise = rows[:, d].std() / np.sqrt(len(rows))
            assert abs(rows[:, d].mean() - expected(emission, truth, d)[k]) < 5 * noise + 1e-12
    np.testing.assert_array_equal(X, truth.complete)


@pytest.mark.parametrize("emission", EMISSIONS)
def test_columns_are_independent_within_a_component(emission):
    X, labels, _ = make_mixture(20_000, 3, emission=emission, separation=0.5, random_state=1)
    for k in range(3):
        off = np.corrcoef(X[labels == k].T)[np.triu_indices(3, 1)]
        assert np.abs(off).max() < 5 / np.sqrt((labels == k).sum())


def test_probabilities_of_categories_are_those_of_the_truth():
    X, labels, truth = make_mixture(
        30_000, 2, emission="categorical", n_categories=5, random_state=2
    )
    for k in range(3):
        for d in range(2):
            shares = np.bincount(X[labels == k, d].astype(int), minlength=5) / (labels == k).sum()
            np.testing.assert_allclose(shares, truth.emissionprob[d][k], atol=0.03)


def test_weights_are_shares_of_the_rows():
    _, labels, truth = make_mixture(20_000, 2, weights=[3, 1, 0], random_state=0)
    np.testing.assert_allclose(truth.weights, [0.75, 0.25, 0.0])
    np.testing.assert_allclose(np.bincount(labels, minlength=3) / 20_000, truth.weights, atol=0.02)


def test_mixed_columns_are_where_they_should_be():
    X, labels, truth = make_mixture(5000, 6, emission=MIXED, random_state=0)
    assert {name: list(block.columns) for name, block in truth.blocks.items()} == COLUMNS
    for name, emission, _ in MIXED:
        block = truth.blocks[name]
        for d, column in enumerate(block.columns):
            cells = X[labels == 1, column]
            mean = expected(emission, block, d)[1]
            assert abs(cells.mean() - mean) < 5 * cells.std() / np.sqrt(len(cells)) + 1e-12
    assert set(np.unique(X[:, 5])) <= {0.0, 1.0}


# Where a rate is far below 1, the data do not tell other zeros from those of the counts.
CERTAIN = EMISSIONS[:-1]


@pytest.mark.parametrize("emission", [*CERTAIN, MIXED], ids=[*CERTAIN, "mixed"])
def test_a_fit_finds_the_truth_by_the_same_names(emission):
    X, _, truth = make_mixture(
        4000, 6, n_components=2, emission=emission, separation=2.0, missing=0.1, random_state=3
    )
    fit = AnnealedBayesianMixture(2, emission=emission, effort=0, random_state=0).fit(X)
    places = truth.blocks.items() if emission is MIXED else [("", truth)]
    order = None
    for name, own in places:
        found = fit.blocks_[name] if name else fit
        for key in ("emissionprob", "lambdas", "means", "covars"):
            if key not in own:
                continue
            got = found[f"{key}_"] if name else getattr(found, f"{key}_")
            a, b = (np.hstack(v) if isinstance(v, list) else v for v in (got, own[key]))
            if order is None:
                same, other = (np.abs(a[p] - b).sum() for p in ([0, 1], [1, 0]))
                order = [0, 1] if same < other else [1, 0]
            np.testing.assert_allclose(a[order], b, rtol=0.15, atol=0.12)


def test_separation_moves_components_apart():
    def found(separation):
        X, labels, _ = make_mixture(300, 8, separation=separation, random_state=4)
        distance = [X[labels == k].mean(axis=0) for k in range(3)]
        return np.std(distance, axis=0).mean()

    assert found(0.1) < found(1.0) < found(10.0)


@pytest.mark.parametrize("make", [make_mixture, make_factorial_mixture])
def test_a_seed_repeats_the_draw(make):
    first, again, other = (make(50, 16, random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])
    drawn = [make(50, 16, random_state=np.random.RandomState(0))[0] for _ in range(2)]
    np.testing.assert_array_equal(drawn[0], first[0])
    np.testing.assert_array_equal(drawn[1], first[0])


def test_tables_with_missing_cells_agree_in_the_others():
    whole, labels, _ = make_mixture(100, 6, emission="poisson", random_state=0)
    X, same, truth = make_mixture(100, 6, emission="poisson", missing=0.2, random_state=0)
    np.testing.assert_array_equal(labels, same)
    np.testing.assert_array_equal(truth.complete, whole)
    missing = np.isnan(X)
    assert missing.sum() == 120
    np.testing.assert_array_equal(X[~missing], whole[~missing])


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"emission": "normal"}, "'emission' parameter of make_mixture"),
        ({"emission": [("a", "bernoulli", [0])]}, "Column 1 of X is in 0 blocks"),
        ({"weights": [1.0, 2.0]}, "each of the 3 components"),
        ({"weights": [1.0, -1.0, 1.0]}, "none of them negative"),
        ({"weights": [0.0, 0.0, 0.0]}, "not all 0"),
        ({"missing": 1.0}, "'missing' parameter of make_mixture"),
        ({"separation": 0}, "'separation' parameter of make_mixture"),
    ],
)
def test_truths_that_do_not_exist(parameters, words):
    with pytest.raises(ValueError, match=words):
        make_mixture(20, 3, **parameters)


# Deletion


@pytest.mark.parametrize("share", [0.0, 0.1, 0.35])
def test_a_share_of_the_observed_cells_is_deleted(share):
    X = np.random.default_rng(0).standard_normal((50, 8))
    X[:5, 2] = np.nan
    before = X.copy()
    found = delete_cells(X, share, random_state=0)
    np.testing.assert_array_equal(X, before)
    assert np.isnan(found).sum() == 5 + round(share * 395)
    assert np.isnan(found[:5, 2]).all()
    kept = ~np.isnan(found)
    np.testing.assert_array_equal(found[kept], X[kept])


def test_every_cell_is_as_likely_to_go():
    counts = np.zeros((4, 3))
    for seed in range(600):
        counts += np.isnan(delete_cells(np.ones((4, 3)), 0.25, random_state=seed))
    # 150 deletions of each cell are expected, with a standard deviation below 11.
    assert np.abs(counts - 150).max() < 50


def test_every_column_keeps_a_cell():
    X = np.ones((3, 40))
    X[:, 7] = np.nan
    found = delete_cells(X, 0.9, random_state=0)
    assert list(np.flatnonzero(np.isnan(found).all(axis=0))) == [7]


def test_types_of_tables_with_deleted_cells():
    assert delete_cells(np.ones((5, 2), dtype=np.float32)).dtype == np.float32
    assert delete_cells(np.ones((5, 2), dtype=np.int8)).dtype == np.float64
    with pytest.raises(ValueError, match="dense"):
        delete_cells(csr_array(np.eye(3)))
    with pytest.raises(ValueError, match="'share' parameter of delete_cells"):
        delete_cells(np.ones((5, 2)), 1.5)


# Factorial mixtures


def test_rows_are_sums_of_active_components():
    X, Z, truth = make_factorial_mixture(20_000, random_state=0)
    assert X.shape == (20_000, 16) and Z.shape == (20_000, 8)
    assert set(np.unique(Z)) == {0, 1}
    np.testing.assert_allclose(Z.mean(axis=0), 0.3, atol=0.02)
    off = np.corrcoef(Z.T)[np.triu_indices(8, 1)]
    assert np.abs(off).max() < 0.04
    residual = X - Z @ truth.components
    assert residual.std() == pytest.approx(0.1, rel=0.02)
    assert np.abs(residual.mean(axis=0)).max() < 0.005
    # Least squares of the rows on the truth's z finds the components.
    found = np.linalg.lstsq(Z.astype(float), X, rcond=None)[0]
    np.testing.assert_allclose(found, truth.components, atol=0.01)


@pytest.mark.parametrize("shape", [(8, 16), (3, 16), (5, 30), (9, 16)])
def test_pictures_are_black_and_white(shape):
    _, _, truth = make_factorial_mixture(10, shape[1], n_components=shape[0], random_state=0)
    assert truth.components.shape == shape
    for picture in truth.components:
        black, white = np.unique(picture)
        assert black == 0 and 0.5 <= white <= 1
    if shape == (8, 16):
        assert np.linalg.matrix_rank(truth.components) == 8


def test_components_and_activations_can_be_given():
    mu, shares = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]), [0.0, 1.0]
    X, Z, truth = make_factorial_mixture(
        5, 3, n_components=2, activation=shares, noise=0.0, components=mu, random_state=0
    )
    np.testing.assert_array_equal(Z, np.tile([0, 1], (5, 1)))
    np.testing.assert_array_equal(X, np.tile(mu[1], (5, 1)))
    np.testing.assert_array_equal(truth.activation, shares)
    with pytest.raises(ValueError, match=r"\(n_components, n_features\) = \(2, 4\)"):
        make_factorial_mixture(5, 4, n_components=2, components=mu)
    with pytest.raises(ValueError, match="one for each of the 8 components"):
        make_factorial_mixture(5, activation=shares)
    with pytest.raises(ValueError, match="one for each of the 2 components"):
        make_factorial_mixture(5, n_components=2, activation=[0.5, 1.5])


def test_counts_have_the_mean_of_their_components():
    X, activations, truth = make_gamma_process_nmf(
        4000, 12, n_components=5, mean_count=7.0, random_state=0
    )
    expected = activations @ truth.components
    assert X.dtype == np.int64
    errors = (X - expected).sum(axis=0)
    assert (np.abs(errors) < 5 * np.sqrt(expected.sum(axis=0))).all()
    assert 3.5 < X.mean() < 10.5
    assert activations.mean() == pytest.approx(1.0, abs=0.1)
    again = make_gamma_process_nmf(4000, 12, n_components=5, mean_count=7.0, random_state=0)[0]
    np.testing.assert_array_equal(X, again)


def test_notes_have_their_harmonics_and_are_almost_sums():
    X, activations, truth = make_notes(120, n_notes=3, mean=2.0, random_state=1)
    assert X.shape == (120, 513) and activations.shape == (120, 3)
    assert X.mean() == pytest.approx(2.0)
    assert (X >= 0).all() and (activations >= 0).all()
    width = 8000 / 1024
    for spectrum, frequency in zip(truth.components, truth.frequencies, strict=True):
        assert abs(np.argmax(spectrum) * width - frequency) < width
        between = spectrum[round(1.5 * frequency / width)]
        assert spectrum[round(2 * frequency / width)] > 5 * between
    # A spectrum is nearly the sum of the notes at their loudness.
    profile = truth.components / activations.mean(axis=0)[:, None]
    loud = activations.min(axis=1) > 0.05
    ratio = (activations @ profile)[loud].sum() / X[loud].sum()
    assert 0.7 < ratio < 1.5


def test_more_notes_than_there_are_keys_are_refused():
    with pytest.raises(ValueError, match="n_notes"):
        make_notes(10, n_notes=40)
