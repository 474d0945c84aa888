"""Measurements of the speed of topic models: sections are there, and what is compared agrees."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def test_a_quick_run_of_the_speed_of_topics_needs_no_file(no_data, quick_speed):
    text = quick_speed("latent_dirichlet", "local", "jobs")
    for part in ("A quick run", "local step", "Two jobs"):
        assert part in text
    assert "nan" not in text
    assert "| yes |" in text  # two jobs find what one finds


def test_quick_runs_of_default_fits_need_no_file(no_data, quick_speed):
    text = quick_speed("latent_dirichlet", "absent", "passes")
    for part in ("Words that no document has", "≤ 1.3", "What passes bring", "behind, 12 passes"):
        assert part in text
    assert "nan" not in text


def test_local_steps_that_are_compared_agree():
    from benchmarks.latent_dirichlet import data, speed

    X = data.corpus("drawn").astype(np.float64)
    topics = speed.topics_of("drawn", 4, "trained")
    gamma, statistics = speed.peer_step(X, topics, 300)()
    ours = speed.our_step(X, topics, 300)()
    np.testing.assert_allclose(ours.local, gamma, rtol=1e-5)
    found = ours.statistics["topic_word"][:4]
    np.testing.assert_allclose(found, statistics, rtol=1e-5, atol=1e-6)
