"""Measurements of the speed of spike-and-slab factor analysis."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def test_a_quick_run_of_the_speed_of_factors_needs_no_file(no_data, quick_speed):
    text = quick_speed("spike_slab_factor_analysis")
    for part in ("an iteration of mofapy2", "Linear in", "annealing costs"):
        assert part in text
    assert "A quick run" in text
    assert not re.search(r"\bnan\b", text)


def test_fits_that_are_timed_make_the_passes_asked_for():
    from benchmarks.spike_slab_factor_analysis import speed
    from sklearn_anneal.annealing import ANNEALING

    X = speed.rows(speed.QUICK.peer)
    for name in ANNEALING:
        assert speed.our_fit(X, 4, name)(4).n_iter_ == 4
