"""Measurements of data in parts."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import sparse

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


@pytest.mark.slow
def test_a_quick_run_on_a_cluster_counts_tasks_and_bytes(quick_speed):
    pytest.importorskip("distributed")
    text = quick_speed("parts", "cluster")
    for part in ("bytes per pass on a cluster", "Tasks per pass", "a task costs"):
        assert part in text
    assert "A constant number of tasks per pass: reached" in text
    assert not re.search(r"\bnan\b", text)


def test_all_formats_of_files_have_the_same_rows(tmp_path):
    from benchmarks.parts.data import drawn
    from benchmarks.parts.formats import FORMATS, MEMORY, written
    from sklearn_anneal import Shards

    arrays = [part() for part in drawn("rows", 2, 50)]
    sources = written(arrays, tmp_path)
    assert sources.keys() == {MEMORY, *FORMATS}
    for paths in sources.values():
        shards = Shards(paths)
        for i, X in enumerate(arrays):
            np.testing.assert_array_equal(np.asarray(shards.read(i)), X)


def test_a_quick_run_compares_all_formats(quick_speed):
    from benchmarks.parts.formats import FORMATS

    text = quick_speed("parts", "formats")
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
    assert rows == ["| part", "| in memory", *(f"| {name}" for name in FORMATS)]


def test_fits_to_files_are_measured(tmp_path):
    from benchmarks.common.memory import STATUS
    from benchmarks.parts.data import drawn, written
    from benchmarks.parts.files import CASES, task_files

    if not STATUS.exists():
        pytest.skip("needs Linux")
    for case in CASES:
        paths = written(drawn(case.family, 2, 200), tmp_path)
        given = {"family": case.family, "parameters": case.parameters, "paths": paths}
        for in_memory in (False, True):
            found = task_files({**given, "passes": 2, "in_memory": in_memory})
            assert found["processor"] > 0
            assert found["peak"] >= found["before"] > 0


def test_drawn_parts_are_the_same_wherever_they_are_drawn():
    from benchmarks.parts.data import DRAW, drawn

    for family in DRAW:
        one, again = (drawn(family, 2, 200)[1]() for _ in range(2))
        if sparse.issparse(one):
            one, again = one.toarray(), again.toarray()
        np.testing.assert_array_equal(np.concatenate(list(one)), np.concatenate(list(again)))
