"""The commands of ``benchmarks/`` and the pages that they write; what the scripts share."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.usefixtures("benchmarks_importable")
PAGES = sorted({p.name for p in (ROOT / "doc" / "results").glob("*.md")} - {"README.md"})
COMMAND = re.compile(r"python -m (benchmarks[.\w]+)")


def commands():
    """Modules of ``benchmarks`` that can be run, found by what they end with."""
    files = (ROOT / "benchmarks").rglob("*.py")
    runnable = [f for f in files if 'if __name__ == "__main__"' in f.read_text(encoding="utf-8")]
    return {".".join(f.relative_to(ROOT).with_suffix("").parts) for f in runnable}


def test_missing_data_are_named_with_the_way_out(monkeypatch, tmp_path):
    from benchmarks.common import data

    monkeypatch.setenv(data.VARIABLE, str(tmp_path))
    assert not data.available("pima.npz")
    with pytest.raises(data.DataNotFoundError, match=f"pima.npz.*{data.VARIABLE}"):
        data.load("pima.npz")


def test_table_cells_may_hold_bars():
    from benchmarks.common.report import markdown_table

    assert markdown_table(["a"], [["|S| = 5"]])[-1] == r"| \|S\| = 5 |"


def test_the_table_of_commands_has_all_of_them_and_no_other():
    table = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert set(COMMAND.findall(table)) == commands()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_its_command_in_the_table_or_names_the_commit_that_wrote_it(page):
    table = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    rows = [line for line in table.splitlines() if f"`doc/results/{page}`" in line]
    text = (ROOT / "doc" / "results" / page).read_text(encoding="utf-8")
    (written,) = re.findall(r"Written by (`[^`]+`(?: as of commit `[0-9a-f]{10}`)?)", text)
    if "as of commit" in written:
        assert not rows
        assert "no longer in the repository" in text
    else:
        (row,) = rows
        assert COMMAND.findall(row) == COMMAND.findall(written)


def test_the_table_of_commands_has_no_page_that_does_not_exist():
    table = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`doc/results/(\w+\.md)`", table)) <= set(PAGES)


def test_documents_and_messages_name_commands_that_exist():
    folders = ("benchmarks", "doc", "examples", "sklearn_anneal", "tests")
    files = [ROOT / "README.md", *(f for d in folders for f in (ROOT / d).rglob("*.*"))]
    known = commands() | {"benchmarks"}
    texts = [f for f in files if f.suffix in (".py", ".md", ".rst") and "_build" not in f.parts]
    # Commands of a commit are in that commit.
    old = re.compile(r"`python -m benchmarks[.\w]+` as of commit")
    stale = {
        (str(f.relative_to(ROOT)), name)
        for f in texts
        for name in COMMAND.findall(old.sub("", f.read_text(encoding="utf-8")))
        if name.rstrip(".") not in known
    }
    assert not stale


@pytest.mark.parametrize("command", sorted(commands()))
def test_commands_answer_for_help(command, monkeypatch, capsys):
    script = import_module(command)
    monkeypatch.setattr(sys, "argv", [command, "--help"])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 0
    assert script.__doc__.partition("\n")[0][:20] in capsys.readouterr().out


# Records of fits


@pytest.fixture
def spec():
    """A class of specifications, which processes can load."""
    from benchmarks.common.records import BaseSpec

    @dataclass(frozen=True)
    class Doubled(BaseSpec):
        name: str
        seed: int = 0

        @property
        def label(self):
            return f"{self.name}, seed {self.seed}"

        def run(self):
            return {"seconds": 0.5, "twice": 2 * self.seed}

    return Doubled


def test_an_interrupted_run_goes_on(spec, tmp_path, monkeypatch, capsys):
    from benchmarks.common import records

    path = tmp_path / "fits.jsonl"
    cells = [spec("a"), spec("b")]
    records.run_missing(cells, 2, records.Cache(path, spec))
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert len(lines) == 4
    # The last fit but one was being written when the run ended.
    path.write_text("".join(lines[:-2]) + lines[-2][:20], encoding="utf-8")
    made = []
    run = spec.run
    monkeypatch.setattr(spec, "run", lambda self: made.append(self) or run(self))
    records.run_missing(cells, 2, records.Cache(path, spec))
    assert made == [spec("a", 1), spec("b", 1)]
    assert "incomplete" in capsys.readouterr().err
    assert len(records.Cache(path, spec)) == 4


def test_a_record_is_of_the_seeds_that_all_fits_have(spec, tmp_path):
    from benchmarks.common import records

    cache = records.Cache(tmp_path / "fits.jsonl", spec)
    cells = [spec("a"), spec("b")]
    records.run_missing(cells, 2, cache)
    assert cache.n_seeds(cells, 9) == 2
    np.testing.assert_array_equal(cache.record(cells[0], 2)["twice"], [0, 2])
    records.run_all([spec("a", 2)], cache)
    assert cache.n_seeds(cells, 9) == 2
    assert cache.n_seeds(cells[:1], 9) == 3
    assert cache.record(cells[1], 3) is None
    assert cache.n_seeds([], 9) == 0


@pytest.mark.slow
def test_processes_find_what_one_process_finds(spec, tmp_path):
    from benchmarks.common import records

    one, two = (records.Cache(tmp_path / f"{n}.jsonl", spec) for n in (1, 2))
    records.run_missing([spec("a"), spec("b")], 2, one)
    records.run_missing([spec("a"), spec("b")], 2, two, jobs=2)
    assert two._found == one._found
