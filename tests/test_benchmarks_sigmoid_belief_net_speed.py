"""Measurements of the speed of sigmoid belief nets."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def test_a_quick_run_of_the_speed_of_nets_needs_no_file(no_data, quick_speed):
    text = quick_speed("sigmoid_belief_net")
    for part in ("against its matrix products", "Linear in", "annealing costs"):
        assert part in text
    assert "A quick run" in text
    assert not re.search(r"\bnan\b", text)


@pytest.mark.parametrize("method", ["none", "deterministic", "svi_plus", "proximity"])
def test_fits_that_are_timed_make_the_passes_asked_for(method):
    from benchmarks.sigmoid_belief_net import speed

    fit = speed.our_fit(speed.QUICK.images, 2, method)(4)
    assert fit.n_iter_ == 4
    assert not fit.early_stopping


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_multiply_what_the_net_multiplies(dtype, monkeypatch):
    """As many multiplications as weights are used: forward once, and once for the gradient."""
    from benchmarks.sigmoid_belief_net import speed

    counted = []

    class Counted(np.ndarray):
        def __matmul__(self, other):
            assert self.dtype == other.dtype == dtype
            counted.append(self.shape[0] * self.shape[1] * other.shape[1])
            return np.asarray(self) @ np.asarray(other)

    class Counting:
        def random(self, size, dtype):
            return np.zeros(size, dtype).view(Counted)

    shape = speed.Shape(200, 16, (6, 5))
    monkeypatch.setattr(speed.np.random, "default_rng", lambda seed: Counting())
    run = speed.products(shape, 3, dtype)
    monkeypatch.undo()
    run()
    first, second = 16 * 6, 6 * 5
    assert sum(counted) == 2 * (200 * (first + 3 * second) + 3 * 200 * (first + second))
