"""Measurements of data in parts."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import sparse

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def test_fits_in_memory_are_timed():
    from benchmarks.parts.before import CASES, there

    for case in CASES:
        assert there(case, quick=True)
        assert case.run(quick=True) > 0, case.name


@pytest.mark.exhaustive
def test_a_quick_run_of_fits_in_memory_compares_two_interpreters(no_data, quick_speed):
    text = quick_speed("parts", "before")
    assert "In memory, against before" in text
    assert "A quick run" in text
    # One row for each fit, and two for the header.
    from benchmarks.parts.before import CASES

    assert sum(line.startswith("|") for line in text.splitlines()) == len(CASES) + 2


@pytest.mark.slow
def test_a_quick_run_on_a_cluster_counts_tasks_and_bytes(quick_speed):
    pytest.importorskip("distributed")
    text = quick_speed("parts", "cluster")
    for part in ("bytes per pass on a cluster", "Tasks per pass", "a task costs"):
        assert part in text
    assert "A constant number of tasks per pass: reached" in text
    assert not re.search(r"\bnan\b", text)


@pytest.mark.exhaustive
def test_a_quick_run_sends_the_messages_of_the_model_of_cost(quick_speed):
    pytest.importorskip("distributed")
    text = quick_speed("parts", "cost")
    assert "much more data" in text
    assert not re.search(r"\bnan\b", text)


def test_the_model_of_cost_predicts_from_what_is_measured_in_this_process():
    from benchmarks.common.report import Page
    from benchmarks.parts import cost
    from benchmarks.parts.workload import QUICK

    page, link = Page(), cost.Link(start=1e-2, task=1e-3, out=1e-9, back=2e-9)
    found = {family: cost.inputs_of(family, QUICK) for family in cost.TARGETS}
    assert all(min(inputs.calls, inputs.out, inputs.back) > 0 for inputs in found.values())
    cost._given(page, found, link, (1e9, 1e9, 1e9), QUICK)
    cost._predicted(page, found, link, QUICK)
    assert sum("| ratings, K" in line for line in page.lines) == 1 + len(QUICK.machines)


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


def test_messages_of_the_model_of_cost_grow_with_workers_and_bytes():
    from benchmarks.parts.cost import Link

    link = Link(start=1e-2, task=1e-3, out=1e-9, back=2e-9)
    assert link.visit(4, 0, 0) == pytest.approx(14e-3)
    assert link.visit(2, 1e6, 2e6) == pytest.approx(1e-2 + 2 * (1e-3 + 1e-3 + 4e-3))
    assert link.visit(2, 1e6, 2e6, 1e9) == pytest.approx(link.visit(2, 1e6, 2e6) + 6e-3)
