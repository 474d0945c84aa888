"""The page on numbers of components: its sections, and the groups of the data that it draws."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def test_a_quick_run_writes_every_section(tmp_path, monkeypatch):
    from benchmarks import numbers

    every = numbers.cases()
    few = {name: every[name] for name in ("mixture, poisson", "chain, categorical")}
    monkeypatch.setattr(numbers, "cases", lambda: few)
    page = tmp_path / "page.md"
    numbers.main(["--quick", "--write", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("Drawn tables and chains", "Real tables", "| iris | 0 |", "A quick run"):
        assert part in text


@pytest.mark.parametrize("emission", ["gaussian", "categorical", "bernoulli", "poisson"])
def test_groups_are_drawn_apart(emission, rng):
    from benchmarks import numbers

    rows = [numbers.drawn(emission, np.full(50, k), rng) for k in range(3)]
    means = np.array([r.mean(axis=0) for r in rows])
    spread = np.mean([r.std(axis=0) for r in rows], axis=0)
    for i in range(3):
        for j in range(i):
            assert (np.abs(means[i] - means[j]) > 1.5 * spread).any()


def test_states_last_some_frames(rng):
    from benchmarks import numbers

    states = numbers.lasting(3000, 3, rng)
    assert 0.9 < np.mean(states[1:] == states[:-1]) < 0.97
