"""The documentation says what the package has, and its commands and examples are the real ones."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.datasets import load_iris
from sklearn.decomposition import NMF
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sklearn_anneal
from sklearn_anneal import AnnealedGammaProcessNMF
from sklearn_anneal.datasets import make_gamma_process_nmf
from sklearn_anneal.estimators._interface import Interface

ROOT = Path(__file__).resolve().parents[1]
PUBLIC_MODULES = (
    "sklearn_anneal",
    "sklearn_anneal.annealing",
    "sklearn_anneal.datasets",
    "sklearn_anneal.inspection",
    "sklearn_anneal.metrics",
    "sklearn_anneal.three_step",
)


def fenced_blocks(language):
    """Return the contents of README's code blocks of one language, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}[ \t]*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def documented_names():
    """Return the full names in the autosummary tables of the API page."""
    names, module, in_table = [], None, False
    for line in (ROOT / "doc" / "api.rst").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = match[1]
        if line.strip() and not line.startswith(" "):
            in_table = line.startswith(".. autosummary::")
        elif in_table and (match := re.fullmatch(r" +(\w+)", line)):
            names.append(f"{module}.{match[1]}")
    return names


def public_names():
    """Return the full names in the `__all__` of the public modules, dunder names left out."""
    return [
        f"{module}.{name}"
        for module in PUBLIC_MODULES
        for name in importlib.import_module(module).__all__
        if not name.startswith("__")
    ]


def test_api_page_lists_exactly_the_public_names():
    documented = documented_names()
    assert len(documented) == len(set(documented))
    assert sorted(documented) == sorted(public_names())


def test_html_representations_link_to_existing_pages():
    with (ROOT / "pyproject.toml").open("rb") as file:
        home = tomllib.load(file)["project"]["urls"]["Documentation"]
    package = importlib.import_module("sklearn_anneal")
    estimators = [getattr(package, name) for name in package.__all__ if name.startswith("Annealed")]
    pages = set()
    for cls in (*estimators, *package.annealing.ANNEALING.values()):
        link = cls()._get_doc_link()
        assert link in cls()._repr_html_()
        pages.add(link.removeprefix(f"{home}generated/").removesuffix(".html"))
    assert pages <= set(documented_names())
    assert len(pages) == len(estimators) + len(package.annealing.ANNEALING)


def texts():
    """The pages and files that people read, from which the documentation is built."""
    tops = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    pages = [p for p in (ROOT / "doc").rglob("*.*") if p.suffix in (".rst", ".md")]
    generated = {"_build", "generated", "auto_examples", "_templates"}
    return tops + [p for p in pages if not generated & set(p.parts)]


def test_spelling_of_texts_and_docstrings():
    code = [*(ROOT / "sklearn_anneal").rglob("*.py"), *(ROOT / "examples").glob("*.py")]
    words = ["--toml", str(ROOT / "pyproject.toml"), *map(str, [*texts(), *code])]
    found = subprocess.run(
        [sys.executable, "-m", "codespell_lib", *words], capture_output=True, text=True
    )
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.parametrize("page", texts(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(page):
    """Sphinx checks its own references; these are links in Markdown, and paths in texts."""
    text = page.read_text(encoding="utf-8")
    linked = (
        re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text) if page.suffix == ".md" else []
    )
    for target in linked:
        assert (page.parent / target).exists(), target
    for target in re.findall(r"`((?:doc|examples|benchmarks|tests)/[\w./-]+\.\w+)`", text):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("name", documented_names())
def test_every_public_name_has_docstrings(name):
    module, _, attribute = name.rpartition(".")
    value = getattr(importlib.import_module(module), attribute)
    assert inspect.getdoc(value)
    if not inspect.isclass(value):
        return
    for method, member in inspect.getmembers(value):
        ours = (getattr(member, "__module__", None) or "").startswith("sklearn_anneal")
        if not method.startswith("_") and (ours or isinstance(member, property)):
            assert inspect.getdoc(member), f"{name}.{method}"


def openings():
    """Return first lines of docstrings and comments that begin without their subject."""
    starts = re.compile(r"(?:Of|With|Where|At|What|Whose|Which|By what|By which)\b")
    first_lines = re.compile(r'^ *r?"""\n? *(.*)|^(?! *#).*\n *# (.*)', re.MULTILINE)
    folders = ("sklearn_anneal", "benchmarks", "examples")
    return [
        f"{path.relative_to(ROOT)}: {line}"
        for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
        for line in map("".join, first_lines.findall(path.read_text(encoding="utf-8")))
        if starts.match(line)
    ]


def test_docstrings_and_comments_begin_with_their_subject():
    assert openings() == [], (
        'such as "The sizes of a part" for "What a fit needs to know of a part"'
    )


def guide():
    """Return the text of all pages of the user guide."""
    pages = sorted((ROOT / "doc" / "guide").glob("*.rst"))
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def test_every_page_of_the_guide_is_listed_once():
    text = (ROOT / "doc" / "user_guide.rst").read_text(encoding="utf-8")
    listed = re.findall(r"^ {3}guide/(\w+)$", text, flags=re.MULTILINE)
    assert sorted(listed) == sorted(page.stem for page in (ROOT / "doc" / "guide").glob("*.rst"))


@pytest.mark.parametrize("page", ["index.rst", "guide/choosing.rst"])
def test_landing_page_and_chooser_lead_to_every_estimator(page):
    text = (ROOT / "doc" / page).read_text(encoding="utf-8")
    package = importlib.import_module("sklearn_anneal")
    estimators = {name for name in package.__all__ if name.startswith("Annealed")}
    assert {name for name in estimators if f":class:`{name}`" not in text} == set()


def test_names_of_scikit_learn_are_links_without_a_network_too():
    """The file has every name that pages refer to, and every name in it exists."""
    lines = (ROOT / "doc" / "sklearn.inv").read_text(encoding="utf-8").splitlines()[3:]
    listed = {line.split()[0] for line in lines}
    pages = [page for page in texts() if page.suffix == ".rst"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert set(re.findall(r":(?:class|func):`[^`]*?(sklearn\.[\w.]+)>?`", text)) <= listed
    for name in listed - {"sklearn.impute.IterativeImputer"}:  # which is experimental
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def test_user_guide_names_every_annealing_method():
    listed = set(re.findall(r"~annealing\.(\w+)`", guide()))
    annealing = importlib.import_module("sklearn_anneal.annealing")
    public = {name: getattr(annealing, name) for name in annealing.__all__}
    base = annealing.Annealing
    methods = {
        name
        for name, value in public.items()
        if inspect.isclass(value) and issubclass(value, base) and value is not base
    }
    assert listed == methods


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("effort", ["little", pytest.param("usual", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("page", [p for p in texts() if ">>>" in p.read_text(encoding="utf-8")])
def test_snippets_of_every_page_run(page, effort, monkeypatch):
    """Most pages show what fits find without moves, or with a quarter of the usual ones."""
    if effort == "little":
        efforts = {"gaussian_mixtures": Interface._efforts["reheating"]}
        efforts |= {"quick_start": 0.5, "sequences": 0.5, "tables": 1.0}
        monkeypatch.setitem(Interface._efforts, "reheating", efforts.get(page.stem, 0.0))
    if "set_callbacks" in page.read_text(encoding="utf-8"):
        pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks since 1.9")
    failed, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert tried > 0 and not failed


def test_quick_start_has_every_estimator():
    text = (ROOT / "doc" / "quick_start.rst").read_text(encoding="utf-8")
    package = importlib.import_module("sklearn_anneal")
    estimators = {name for name in package.__all__ if name.startswith("Annealed")}
    assert {name for name in estimators if f"{name}(" not in text} == set()


def snippets(page):
    """Return the Python code of one page of the user guide."""
    text = (ROOT / "doc" / "guide" / f"{page}.rst").read_text(encoding="utf-8")
    found = re.findall(r"^\.\. code-block:: python\n\n((?: {3}.*\n|\n)+)", text, flags=re.MULTILINE)
    return [re.sub(r"^ {3}", "", code, flags=re.MULTILINE) for code in found]


def rows():
    return np.random.default_rng(0).normal(size=(40, 4)) + 3.0 * np.arange(40)[:, None] // 20


def texts_as_counts():
    return np.random.default_rng(0).poisson(0.5, size=(30, 12)) + np.eye(30, 12, dtype=int)


def _without_search(value):
    """An estimator of few passes, without a search, which makes no difference to snippets."""
    searches = inspect.isclass(value) and "effort" in inspect.signature(value).parameters
    return partial(value, effort=0, max_iter=3) if searches else value


def _search(estimator, grid, **params):
    """A search in two folds over at most two values of each parameter, which is quick."""
    grids = grid if isinstance(grid, list) else [grid]
    few = [{name: values[:2] for name, values in each.items()} for each in grids]
    return GridSearchCV(estimator, few, **{"cv": 2} | params)


def given_names(page):
    """What the snippets of a page take for granted: data, and imports."""
    sequences = [rows()[:4], rows()[4:7]]
    given = {
        "factorial_mixtures": lambda: {"X": rows()},
        "gaussian_mixtures": lambda: {
            "X": pd.DataFrame(rows()),
            "X_test": pd.DataFrame(rows()),
            "y": np.where(np.arange(40) < 30, np.arange(40) % 2, -1),
            "classifier": sklearn_anneal.AnnealedBayesianGaussianMixture(
                n_components_per_class=1, effort=0, max_iter=5
            ),
            "StratifiedKFold": StratifiedKFold,
        },
        "methods": lambda: {"mixture": None},
        "nets": lambda: {"X": (rows() > 1).astype(float)},
        "ratings": lambda: {
            "matrix": rows(),
            "X": np.argwhere(rows() > 0),
            "y": rows()[rows() > 0],
        },
        "sequences": lambda: {
            "hmm": sklearn_anneal.AnnealedHMM(2, effort=0),
            "first": rows(),
            "second": rows(),
            "X": np.tile(rows(), (5, 1)),
            "ids": np.repeat(np.arange(5), 40),
            "sequences": sequences,
        },
        "spike_and_slab": lambda: {"X": rows()},
        "topics": lambda: {
            "X": texts_as_counts(),
            "columns_of_my_words": [1, 2],
            "vectorizer": HashingVectorizer(n_features=16, alternate_sign=False, norm=None),
            "stream": [["some words", "other words"], ["more of the words", "and the end"]],
        },
        "starts": dict,
        "working": lambda: {
            "mixture": sklearn_anneal.AnnealedBayesianGaussianMixture().fit(rows())
        },
    }
    quick = {"GridSearchCV": _search, "np": np, "sklearn": sklearn}
    names = {
        name: _without_search(getattr(sklearn_anneal, name)) for name in sklearn_anneal.__all__
    }
    names |= {name: getattr(sklearn_anneal.annealing, name) for name in ("StochasticAnnealing",)}
    names |= {"make_pipeline": make_pipeline, "StandardScaler": StandardScaler}
    return names | {"GroupKFold": partial(GroupKFold, 2)} | quick | given[page]()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "page",
    [
        page.stem
        for page in sorted((ROOT / "doc" / "guide").glob("*.rst"))
        if "code-block:: python" in page.read_text(encoding="utf-8")
        and page.stem != "counts"  # which has a test of its own
    ],
)
def test_code_of_the_user_guide_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = given_names(page)
    for code in snippets(page):
        exec(compile(textwrap.dedent(code), f"{page}.rst", "exec"), names)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_user_guide_on_counts_runs():
    X, activations, truth = make_gamma_process_nmf(
        60, 12, n_components=3, mean_count=20.0, random_state=0
    )
    names = {
        "X": X,
        "AnnealedGammaProcessNMF": AnnealedGammaProcessNMF,
        "GridSearchCV": GridSearchCV,
    }
    blocks = snippets("counts")
    assert len(blocks) == 3
    for code in blocks:
        exec(compile(code, "guide.rst", "exec"), names)
    # The counts of components add up to about those of X.
    assert names["counts"].sum() == pytest.approx(X.sum(), rel=0.02)
    assert names["expected"].shape == X.shape


def test_user_guide_lists_what_differs_from_nmf():
    """Every parameter of scikit-learn's class that this one lacks has a row in the table."""
    page = (ROOT / "doc" / "guide" / "counts.rst").read_text(encoding="utf-8")
    table = page.split(".. _migration-nmf:\n")[1]
    lacking = NMF().get_params().keys() - AnnealedGammaProcessNMF().get_params().keys()
    assert {name for name in lacking if f"``{name}``" not in table} == set()
    shared = {"n_components", "tol", "max_iter"}
    assert {name for name in shared if f"``{name}``" not in table} == set()


def test_readme_example_runs(capsys):
    (example,) = fenced_blocks("python")
    exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})
    # Its output is below it, and in the landing page.
    printed = capsys.readouterr().out.strip()
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "doc/index.rst")]
    number = re.compile(r"-\d+\.\d+")
    assert all(number.sub("", printed) in number.sub("", page) for page in pages)


def test_readme_has_two_commands():
    commands = [block.strip() for block in fenced_blocks("sh")]
    assert len(commands) == 2
    for command, extra in zip(commands, ("plot", "test"), strict=True):
        assert "\n" not in command
        parts = command.split(" && ")
        assert all(part.startswith("python -m ") for part in parts)
        assert parts[0] == f'python -m pip install ".[{extra}]"'
    assert commands[1].endswith("&& python -m pytest -n 2")


@pytest.mark.skipif(
    os.name == "nt" or shutil.which("bash") is None, reason="a bash of the same system is needed"
)
def test_ci_takes_its_command_from_the_readme(tmp_path):
    def printed(root):
        script = root / ".ci" / "run"
        result = subprocess.run(
            ["bash", str(script), "--print-command"], capture_output=True, text=True, check=True
        )
        return result.stdout.strip()

    (_, command) = fenced_blocks("sh")
    assert printed(ROOT) == command.strip()

    # If README has another command, that one is run, because the script has no copy of it.
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    other = "python -m something_else --entirely"
    (tmp_path / "README.md").write_text(readme.replace(command.strip(), other), encoding="utf-8")
    assert printed(tmp_path) == other


def test_the_agreement_that_readme_compares_with_is_that_of_scikit_learn():
    X, species = load_iris(return_X_y=True)
    peer = BayesianGaussianMixture(n_components=3, n_init=10, random_state=0)
    with warnings.catch_warnings(action="ignore"):
        found = adjusted_rand_score(species, peer.fit_predict(X))
    for page in ("README.md", "doc/index.rst"):
        assert f"agrees by {found:.2f}" in " ".join((ROOT / page).read_text("utf-8").split())
