"""The scripts in ``benchmarks/`` run, and their verdicts follow from their figures.

What one model alone has is in ``test_benchmarks_<model>.py``.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.usefixtures("benchmarks_importable")


MODELS = (
    "gaussian_mixture",
    "latent_dirichlet",
    "hidden_markov",
    "matrix_factorization",
    "factorial_mixture",
    "gamma_process_nmf",
    "mixture",
)

# Parts of the pages, and sources of the claims, of the reproductions that keep their fits.
REPRODUCTIONS = {
    "latent_dirichlet": (
        (
            "Which setting",
            "Batch inference at equal passes",
            "drawn, equal passes",
            "drawn, equal time",
            "figure 3",
            "Priors",
        ),
        ("Gultekin", "Mandt", "Paisley", "Hoffman", "Altosaar", "expected figures"),
    ),
    "hidden_markov": (
        (
            "Data and methods",
            "figure 2",
            "A classifier of letters",
            "figure 3",
            "Other methods",
            "Letters of English",
            "Which settings",
            "Emission: gaussian",
        ),
        ("Gultekin", "expected figures", "own question"),
    ),
    "matrix_factorization": (
        (
            "Data and methods",
            "figure 1",
            "The paper's priors",
            "Default priors",
            "Which settings",
            "Variances, fixed or learned",
            "Every method by name",
            "Against other libraries",
        ),
        ("Paisley", "expected figures", "own question"),
    ),
    "factorial_mixture": (
        (
            "Eight drawn parts",
            "The same parts from minibatches and streams",
            "Digits, reconstructed from K bits",
        ),
        ("Mandt", "expected figures", "own question"),
    ),
    "gamma_process_nmf": (
        (
            "Components of drawn counts",
            "Notes in spectra",
            "Held-out halves of digits and texts",
            "Do fits from other starts find the same components?",
        ),
        ("Hoffman", "expected figures", "own question"),
    ),
    "sigmoid_belief_net": (
        ("Digits of 8 × 8 pixels from a bad start", "Held-out probabilities from a good start"),
        ("Altosaar", "expected figures", "own question"),
    ),
    "spike_slab_factor_analysis": (
        (
            "Bernoulli factors from near and far starts",
            "Loadings that drew the data",
            "Held-out rows of real data",
        ),
        ("Altosaar", "expected figures", "own question"),
    ),
    "mixture": (
        (
            "Methods and figures",
            "A drawn mixture of Bernoullis",
            "Latent class analysis",
            "Clusters against classes",
            "Words of posts",
            "Binary digits",
        ),
        ("Hoffman", "expected figures", "own question"),
    ),
}
every_reproduction = pytest.mark.parametrize("model", REPRODUCTIONS)

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


def test_verdicts_follow_from_the_figures():
    from benchmarks.common.report import compared, verdict

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
    from benchmarks.common.report import compared, holm

    np.testing.assert_allclose(holm([0.04, 0.01, 0.03]), [0.06, 0.03, 0.06])
    ahead = ("a", np.arange(1.0, 6.0), np.zeros(5))  # p = 1/32
    assert compared("", "", [ahead]).verdict == "reproduced"
    assert compared("", "", [ahead, ahead]).verdict == "not reproduced"


def test_table_cells_may_hold_bars():
    from benchmarks.common.report import markdown_table

    assert markdown_table(["a"], [["|S| = 5"]])[-1] == r"| \|S\| = 5 |"


def test_the_table_of_commands_has_all_of_them_and_no_other():
    table = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert set(COMMAND.findall(table)) == commands()


def test_the_table_of_commands_has_every_page():
    table = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert PAGES
    assert sorted(re.findall(r"`doc/results/(\w+\.md)`", table)) == PAGES


def test_documents_and_messages_name_commands_that_exist():
    folders = ("benchmarks", "doc", "examples", "sklearn_anneal", "tests")
    files = [ROOT / "README.md", *(f for d in folders for f in (ROOT / d).rglob("*.*"))]
    known = commands() | {"benchmarks"}
    texts = [f for f in files if f.suffix in (".py", ".md", ".rst") and "_build" not in f.parts]
    stale = {
        (str(f.relative_to(ROOT)), name)
        for f in texts
        for name in COMMAND.findall(f.read_text(encoding="utf-8"))
        if name.rstrip(".") not in known
    }
    assert not stale


@pytest.mark.parametrize("page", PAGES)
def test_pages_say_by_which_command_they_were_written(page):
    table = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    (row,) = [line for line in table.splitlines() if f"`doc/results/{page}`" in line]
    text = (ROOT / "doc" / "results" / page).read_text(encoding="utf-8")
    written = re.search(r"Written by `python -m (benchmarks[.\w]+)", text)
    assert written is not None
    assert COMMAND.findall(row) == [written[1]]


@pytest.mark.parametrize("command", sorted(commands()))
def test_commands_answer_for_help(command, monkeypatch, capsys):
    script = import_module(command)
    monkeypatch.setattr(sys, "argv", [command, "--help"])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 0
    assert script.__doc__.partition("\n")[0][:20] in capsys.readouterr().out


@pytest.mark.parametrize("model", MODELS)
def test_a_quick_run_on_speed_does_not_replace_the_full_page(model, capsys):
    script = import_module(f"benchmarks.{model}.speed")
    with pytest.raises(SystemExit):
        script.main(["--quick", "--write"])
    assert "--output" in capsys.readouterr().err


def test_a_section_that_is_measured_alone_replaces_its_own(quick_speed):
    first = quick_speed("gaussian_mixture", "passes", "learning")
    second = quick_speed("gaussian_mixture", "learning", "where")
    head, passes, learning, where = re.split(r"^(?=## )", second, flags=re.MULTILINE)
    old = re.split(r"^(?=## )", first, flags=re.MULTILINE)
    assert [head, passes] == old[:2]
    assert learning.splitlines()[0] == old[2].splitlines()[0]
    for section in (learning, where):
        assert "Measured apart from the other sections." in section
        assert "Written by" not in section
    assert "Measured apart" not in first + head + passes


@every_reproduction
def test_a_quick_reproduction_writes_every_section(model, quick_fits, reproduce, tmp_path):
    page = tmp_path / "page.md"
    reproduce(model, quick_fits(model).parent, "--write", "--output", str(page))
    text = page.read_text(encoding="utf-8")
    parts, sources = REPRODUCTIONS[model]
    for part in ("Verdicts", *parts, "A quick run"):
        assert part in text
    for source in sources:
        assert f"| {source}" in text
    assert not re.search(r"\bnan\b", text)


@every_reproduction
def test_an_interrupted_reproduction_goes_on(
    model, quick_fits, reproduce, tmp_path, monkeypatch, capsys
):
    from benchmarks.common import reproduction

    spec = import_module(f"benchmarks.{model}.fits").Spec
    lines = quick_fits(model).read_text(encoding="utf-8").splitlines(keepends=True)
    fits = tmp_path / "fits.jsonl"
    # The last fit was being written when the run ended.
    fits.write_text("".join(lines[:-2]) + lines[-2][:20], encoding="utf-8")
    made = []
    run = spec.run
    monkeypatch.setattr(spec, "run", lambda self: made.append(self) or run(self))
    reproduce(model, tmp_path)
    known = [spec(**json.loads(line)["spec"]).key for line in lines[-2:]]
    assert [each.key for each in made] == known
    assert "incomplete" in capsys.readouterr().err
    assert len(reproduction.Cache(fits, spec)) == len(lines)


@every_reproduction
def test_a_page_is_written_from_whatever_the_cache_has(model, reproduce, tmp_path):
    page = tmp_path / "page.md"
    reproduce(model, tmp_path, "--write", "--output", str(page))
    assert "Verdicts" in page.read_text(encoding="utf-8")
    assert not (tmp_path / "fits.jsonl").exists()


@every_reproduction
def test_a_quick_reproduction_does_not_replace_the_full_page(model, reproduce, tmp_path, capsys):
    with pytest.raises(SystemExit):
        reproduce(model, tmp_path, "--write")
    assert "--output" in capsys.readouterr().err


def test_what_a_busy_machine_does_not_give_is_not_held_against_two_jobs():
    from benchmarks.common.threads import verdict

    assert verdict(1.8, 1.2, 1.7) == verdict(1.8, 1.9, 1.7) == "reached"
    assert verdict(1.2, 1.9, 1.7) == "**not reached**"
    assert "busy" in verdict(1.2, 1.1, 1.7)
    # The target decides, and not a figure of one model.
    assert verdict(1.65, 1.9, 1.6) == "reached"


def test_an_own_question_is_answered_and_not_reproduced():
    from benchmarks.common.report import OWN_QUESTION, Claim, answered

    verdicts = ("reproduced", "partly", "not reproduced")
    own = [Claim(OWN_QUESTION, "", verdict, "") for verdict in verdicts]
    assert [claim.verdict for claim in answered(own)] == ["yes", "partly", "no"]
    of_paper = Claim("a paper", "", "reproduced", "")
    assert answered([of_paper]) == [of_paper]
