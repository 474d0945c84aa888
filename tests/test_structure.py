"""Linear algebra of full matrices, on both sides of the order at which its routines change."""

from __future__ import annotations

import numpy as np
import pytest

from sklearn_anneal.families import COVARIANCE_TYPES, get_structure
from sklearn_anneal.families._structure import inverse_of_root

orders = pytest.mark.parametrize("d", [1, 63, 64, 65, 200])


def matrices_and_vectors(rng, d, n_rows=3):
    """Draw positive definite matrices (n_rows, d, d) and vectors (n_rows, d)."""
    factors = rng.normal(size=(n_rows, d, 2 * d))
    return factors @ factors.swapaxes(-1, -2) / d, rng.normal(size=(n_rows, d))


@orders
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_full_matrices_are_solved_and_inverted_as_by_numpy(d, dtype, rng):
    full = get_structure("full", COVARIANCE_TYPES, "covariance_type")
    matrices, vectors = (a.astype(dtype) for a in matrices_and_vectors(rng, d))
    given = matrices.copy(), vectors.copy()
    exact = np.linalg.inv(matrices.astype(float))
    close = {"rtol": 1e-8, "atol": 1e-10} if dtype == np.float64 else {"rtol": 1e-2, "atol": 1e-3}

    np.testing.assert_allclose(inverse_of_root(np.linalg.cholesky(matrices)), exact, **close)
    # One matrix and many vectors, many matrices and one vector, all pairs, and none at all.
    for m, v in ((slice(None),) * 2, (0, slice(None)), (slice(None), 0), ((slice(None), None), 0)):
        expected = np.einsum("...ij,...j->...i", exact[m], vectors[v])
        np.testing.assert_allclose(full.solve(matrices[m], vectors[v]), expected, **close)
        quadratic, log_det = full.quadratic_and_log_det(matrices[m], vectors[v], d)
        np.testing.assert_allclose(quadratic, (vectors[v] * expected).sum(-1), **close)
        np.testing.assert_allclose(log_det, np.linalg.slogdet(matrices[m])[1], **close)
    assert full.solve(matrices[:0], vectors[:0]).shape == (0, d)
    assert full.inverse(matrices[:0]).shape == (0, d, d)
    assert full.quadratic_and_log_det(matrices[:0], vectors[:0], d)[0].shape == (0,)
    # LAPACK replaces copies, and no argument.
    assert np.array_equal(matrices, given[0])
    assert np.array_equal(vectors, given[1])


@orders
def test_inverses_are_symmetric_and_large_ones_to_the_last_digit(d, rng):
    inverses = inverse_of_root(np.linalg.cholesky(matrices_and_vectors(rng, d)[0]))
    difference = inverses - inverses.swapaxes(-1, -2)
    assert np.abs(difference).max() <= (1e-12 if d < 64 else 0.0)


@orders
def test_one_indefinite_matrix_of_a_stack_raises(d, rng):
    full = get_structure("full", COVARIANCE_TYPES, "covariance_type")
    matrices, vectors = matrices_and_vectors(rng, d)
    matrices[1, -1, -1] = -1.0
    for call in (
        lambda: full.inverse(matrices),
        lambda: full.inverse_and_log_det(matrices, d),
        lambda: full.quadratic_and_log_det(matrices, vectors, d),
    ):
        with pytest.raises(np.linalg.LinAlgError):
            call()


@pytest.mark.parametrize("kind", ["diag", "spherical"])
@pytest.mark.parametrize("shared", [False, True])
def test_relative_eigenvalues_of_diagonals_are_those_of_their_matrices(kind, shared, rng):
    d, n = 5, 3
    structure = get_structure(kind, COVARIANCE_TYPES, "covariance_type")
    full = get_structure("full", COVARIANCE_TYPES, "covariance_type")
    shape = (d,) if kind == "diag" else ()
    left = rng.normal(size=(n, *shape))
    right = rng.uniform(0.5, 2.0, size=shape if shared else (n, *shape))
    found = structure.relative(left, right, d)
    expected = full.relative(structure.to_full(left, d), structure.to_full(right, d), d)
    np.testing.assert_allclose(np.sort(found), expected, rtol=1e-12)
    with pytest.raises(np.linalg.LinAlgError):
        structure.relative(left, -right, d)
