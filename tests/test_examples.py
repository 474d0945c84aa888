"""Every example runs, is short and draws a figure, and every estimator and method has one."""

from __future__ import annotations

import ast
import io
import re
import runpy
import tokenize
import warnings
from pathlib import Path

import pytest

import sklearn_anneal
from sklearn_anneal.annealing import ANNEALING

pytest.importorskip("matplotlib")
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))
MOST_LINES = 45
# These take more than half a second. The documentation runs them too, and fails if one does.
SLOW = {
    "annealing_instead_of_restarts",
    "bad_start",
    "classes_by_age",
    "counts_into_parts",
    "every_method",
    "factorial_parts",
    "files_out_of_core",
    "fewer_passes",
    "how_long_states_last",
    "latent_classes",
    "loadings_without_rotation",
    "missing_cells",
    "missing_pixels",
    "mixed_columns",
    "net_of_sparse_rows",
    "parts_of_restless_counts",
    "passes_and_optima",
    "recommendations",
    "reconstructed_digits",
    "restless_counts",
    "search",
    "search_over_schedules",
    "sequence_classes",
    "state_segmentation",
    "stochastic_steps",
    "stream_of_documents",
    "stream_of_pixels",
    "temperatures_without_schedule",
    "topics",
}
ESTIMATORS = [name for name in sklearn_anneal.__all__ if name.startswith("Annealed")]
CLASSES = {name: type_.__name__ for name, type_ in ANNEALING.items()}
every_example = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def lines_of_code(text):
    """The lines of a script that have code, without comments and documentation strings."""
    left_out = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
                tokenize.ENDMARKER)  # fmt: skip
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in left_out
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node):
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def test_lines_of_code_are_those_that_say_something():
    text = '"""Title.\n\nText.\n"""\n\nimport a\n\n# A comment.\nb = [\n    a,  # and why\n]\n'
    assert lines_of_code(text) == 4


def test_there_is_a_gallery():
    text = (EXAMPLES / "index.rst").read_text(encoding="utf-8")
    assert text.splitlines()[:2] == ["Examples", "=" * 8]
    # Every example is under one heading.
    shown = re.findall(r"^   \.\./examples/(\w+)\.py$", text, flags=re.MULTILINE)
    assert sorted(shown) == [path.stem for path in FILES]
    # Every page is in the table of contents.
    listed = re.findall(r"^   (\w+)$", text[text.index(".. toctree::") :], flags=re.MULTILINE)
    assert sorted(listed) == sorted(shown)


@every_example
def test_examples_are_short_and_say_what_they_show(path):
    text = path.read_text(encoding="utf-8")
    assert lines_of_code(text) <= MOST_LINES
    title, underline, *_ = ast.get_docstring(ast.parse(text)).splitlines()
    assert underline == "=" * len(title)
    assert text.endswith("\nplt.show()\n")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, marks=[pytest.mark.exhaustive] if path.stem in SLOW else [], id=path.stem
        )
        for path in FILES
    ],
)
def test_examples_print_what_they_find_and_draw_one_figure(path, capsys, tmp_path, monkeypatch):
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    pyplot.switch_backend("agg")
    pyplot.close("all")
    with pyplot.rc_context(), warnings.catch_warnings():
        # Among them those of fits that did not converge; readers would see them below the code.
        warnings.simplefilter("error", UserWarning)
        # A backend without windows says so when a figure is to be shown.
        warnings.filterwarnings("ignore", message=".*non-interactive")
        runpy.run_path(str(path), run_name="__main__")
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    pyplot.close("all")
    assert len(figures) == 1
    assert figures[0].axes
    assert capsys.readouterr().out.strip()


def test_every_estimator_has_an_example():
    texts = "\n".join(path.read_text(encoding="utf-8") for path in FILES)
    assert {name for name in ESTIMATORS if not re.search(rf"\b{name}\(", texts)} == set()


def test_every_annealing_method_has_an_example():
    """Beside the one that compares all of them, and reheating also where it is a default."""
    texts = "\n".join(p.read_text(encoding="utf-8") for p in FILES if p.stem != "every_method")
    shown = {name for name, type_ in CLASSES.items() if re.search(rf'"{name}"|\b{type_}\(', texts)}
    assert shown == set(ANNEALING)
    compared = (EXAMPLES / "every_method.py").read_text(encoding="utf-8")
    assert {name for name in ANNEALING if f'"{name}"' in compared} == set(ANNEALING)


def test_the_documentation_links_to_examples_that_exist():
    pages = sorted((EXAMPLES.parent / "doc").rglob("*.rst"))
    pages = [page for page in pages if not {"auto_examples", "generated"} & set(page.parts)]
    found = {
        name
        for page in pages
        for name in re.findall(
            r"sphx_glr_auto_examples_(\w+)\.py",
            page.read_text(encoding="utf-8"),
        )
    }
    assert len(found) > 10
    assert found <= {path.stem for path in FILES}
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"python -m examples\.(\w+)", readme)) <= {p.stem for p in FILES}


def test_pages_show_pictures_of_examples_without_running_them():
    """A build without the gallery had 15 warnings of missing pictures, and pages without them."""
    doc = EXAMPLES.parent / "doc"
    texts = [page.read_text(encoding="utf-8") for page in sorted(doc.glob("guide/*.rst"))]
    shown = set(re.findall(r"/_static/examples/(\w+)\.png", "\n".join(texts)))
    pictures = sorted((doc / "_static" / "examples").iterdir())
    assert {path.name for path in pictures} == {f"{name}.png" for name in shown}
    assert shown <= {path.stem for path in FILES}
    assert not any("auto_examples/images" in text for text in texts)
    assert max(path.stat().st_size for path in pictures) < 60_000
