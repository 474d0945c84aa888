"""The scripts in ``benchmarks/`` run, and their verdicts follow from their figures."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])


def test_missing_data_are_named_with_the_way_out(monkeypatch, tmp_path):
    from benchmarks import _data

    monkeypatch.setenv(_data.VARIABLE, str(tmp_path))
    assert not _data.available("pima.npz")
    with pytest.raises(_data.DataNotFoundError, match=f"pima.npz.*{_data.VARIABLE}"):
        _data._load("pima.npz")


def test_splits_are_disjoint_and_complete():
    from benchmarks import _data

    X = np.arange(40.0).reshape(20, 2)
    train, held_out = _data.Task("rows", "", X, 2).split(0)
    assert len(train) == 15
    np.testing.assert_array_equal(np.sort(np.vstack([train, held_out]), axis=0), X)


def test_verdicts_follow_from_the_figures():
    from benchmarks._report import compared, verdict

    assert verdict([True, True]) == "reproduced"
    assert verdict([True, False]) == "partly"
    assert verdict([False]) == verdict([]) == "not reproduced"
    low = np.arange(20.0)
    above = compared("", "", [("a", low + 1, low)])
    both = compared("", "", [("a", low + 1, low), ("b", low, low)])
    below = compared("", "", [("a", low - 1, low)])
    assert (above.verdict, both.verdict, below.verdict) == (
        "reproduced",
        "partly",
        "not reproduced",
    )
    assert "0 won, 1 lost of 1" in below.figures
    # Neither a median above without significance nor a difference that prints as zero is a win.
    noisy = compared("", "", [("a", np.array([1.0, 1.0, -5.0]), np.zeros(3))])
    tied = compared("", "", [("a", low + 0.01, low)])
    assert noisy.verdict == tied.verdict == "not reproduced"


def test_p_values_are_adjusted_for_the_comparisons_of_a_claim():
    from benchmarks._report import compared, holm

    np.testing.assert_allclose(holm([0.04, 0.01, 0.03]), [0.06, 0.03, 0.06])
    ahead = ("a", np.arange(1.0, 6.0), np.zeros(5))  # p = 1/32
    assert compared("", "", [ahead]).verdict == "reproduced"
    assert compared("", "", [ahead, ahead]).verdict == "not reproduced"


def test_a_quick_run_writes_every_section_that_needs_no_file(monkeypatch, tmp_path):
    from benchmarks import _data, reproduce_gaussian_mixture

    monkeypatch.setenv(_data.VARIABLE, str(tmp_path))
    page = tmp_path / "page.md"
    reproduce_gaussian_mixture.main(["--quick", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("Verdicts", 'digits "0"', "Objective", "Four clusters", "Two Gaussians", "Forms"):
        assert part in text
    assert "A quick run" in text
    assert "nan" not in text


def test_sections_on_data_files_are_written_where_the_files_are():
    from benchmarks import _data, _mixtures, _paper_claims, _report

    if not _data.available("mnist.npz", "pima.npz"):
        pytest.skip(f"mnist.npz and pima.npz are not where {_data.VARIABLE} says")
    page = _report.Page()
    _paper_claims.section_gultekin(page, _mixtures.QUICK)
    _paper_claims.section_objective(page, _mixtures.QUICK)
    assert any("Pima, K = 2" in line for line in page.lines)
    assert {"Gultekin et al. 2018", "Paisley et al. (SVI+)"} == {c.source for c in page.claims}


def test_table_cells_may_hold_bars():
    from benchmarks._report import markdown_table

    assert markdown_table(["a"], [["|S| = 5"]])[-1] == r"| \|S\| = 5 |"


def test_a_quick_run_does_not_replace_the_full_page(capsys):
    from benchmarks import reproduce_gaussian_mixture

    with pytest.raises(SystemExit):
        reproduce_gaussian_mixture.main(["--quick"])
    assert "--output" in capsys.readouterr().err
