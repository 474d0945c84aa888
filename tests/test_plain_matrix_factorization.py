"""Tests of the plain model of ratings."""

from __future__ import annotations

import numpy as np
import plain_matrix_factorization as plain
import pytest
from cases_matrix_factorization import NAN
from scipy.stats import norm


@pytest.mark.parametrize("bias", [None, 0.3])
@pytest.mark.parametrize("d", [1, 2])
def test_plain_evidence_is_a_mean_over_draws_of_the_prior(d, bias, rng):
    hyper = plain.Hyperparameters(2.5, 1.5, 0.4, bias)
    Y = np.array([[3.5, 2.0], [NAN, 1.5], [NAN, NAN]])
    n = 200_000
    f = np.full((n, 3, 2), hyper.intercept)
    f += np.einsum("nid,njd->nij", *(0.4**0.5 * rng.standard_normal((n, m, d)) for m in (3, 2)))
    if bias is not None:
        f += bias**0.5 * rng.standard_normal((n, 3, 1)) + bias**0.5 * rng.standard_normal((n, 1, 2))
    density = np.exp(np.nansum(norm.logpdf(Y, f, 1.5**0.5), axis=(1, 2)))
    error = density.std() / np.sqrt(n)
    assert abs(np.exp(plain.log_evidence(Y, hyper, d)) - density.mean()) < 4 * error
    # Quadrature has converged.
    found = [plain.log_evidence(Y, hyper, d, n_nodes) for n_nodes in (20, 30)]
    assert found[0] == pytest.approx(found[1], rel=1e-6)
