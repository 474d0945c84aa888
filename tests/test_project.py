"""The files beside the code agree with each other: packaging, citation, workflows, hooks."""

from __future__ import annotations

import re
import shlex
import textwrap
import tomllib
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import sklearn_anneal

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
YAML_FILES = (
    ROOT / "CITATION.cff",
    ROOT / ".pre-commit-config.yaml",
    *sorted((ROOT / ".github").rglob("*.yml")),
)
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read_yaml(path):
    """Return the contents of a YAML file, with ``on`` as the key that GitHub reads.

    YAML 1.1 takes the word for a truth value.
    """
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {"on" if key is True else key: value for key, value in content.items()}


def workflow(name):
    """Return the contents of one workflow."""
    return read_yaml(ROOT / ".github" / "workflows" / f"{name}.yml")


def steps(name):
    """Return the steps of all jobs of one workflow, in order."""
    return [step for job in workflow(name)["jobs"].values() for step in job["steps"]]


def commands(name):
    """Return the lines of shell that one workflow runs, in order."""
    return [line for step in steps(name) for line in step.get("run", "").splitlines()]


def installed_by_the_commands():
    """Return what README's commands and the building of the package need, without the package."""
    extras = PROJECT["optional-dependencies"]
    lines = [
        *PYPROJECT["build-system"]["requires"],
        *PROJECT["dependencies"],
        *extras["dask"],
        *extras["plot"],
        *extras["test"],
    ]
    requirements = [Requirement(line) for line in lines]
    own = canonicalize_name(PROJECT["name"])
    return [r for r in requirements if canonicalize_name(r.name) != own]


def lower_bound(requirement):
    """Return the version of the only specifier, which has to be a lower bound."""
    (specifier,) = requirement.specifier
    assert specifier.operator == ">=", str(requirement)
    return Version(specifier.version)


def pythons_of_the_tests():
    """Return the versions of Python that the workflow runs the tests with."""
    return workflow("tests")["jobs"]["newest"]["strategy"]["matrix"]["python"]


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.name)
def test_yaml_files_are_mappings_without_repeated_keys(path):
    def check(node):
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value]
            assert len(keys) == len(set(keys)), f"line {node.start_mark.line + 1}: {keys}"
            for _, value in node.value:
                check(value)
        elif isinstance(node, yaml.SequenceNode):
            for value in node.value:
                check(value)

    document = yaml.compose(path.read_text(encoding="utf-8"))
    assert isinstance(document, yaml.MappingNode)
    check(document)


def test_every_file_of_the_package_is_packaged():
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["sklearn_anneal"]
    package = ROOT / "sklearn_anneal"
    data = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    }
    assert "py.typed" in data
    assert [name for name in data if not any(fnmatch(name, p) for p in patterns)] == []


def test_groups_refer_to_the_extras():
    groups = PYPROJECT["dependency-groups"]
    extras = set(PROJECT["optional-dependencies"])
    for name in extras & set(groups):
        assert groups[name] == [f"{PROJECT['name']}[{name}]"]
    # Those which others include: plot in test, doc and benchmark, and dask in test.
    assert extras - set(groups) == {"dask", "plot"}
    # A requirement is written once: no group repeats what an extra or another group has.
    listed = [
        canonicalize_name(Requirement(entry).name)
        for name, group in groups.items()
        if name not in extras
        for entry in group
        if isinstance(entry, str)
    ]
    in_extras = {
        canonicalize_name(Requirement(entry).name)
        for entries in PROJECT["optional-dependencies"].values()
        for entry in entries
    }
    assert len(listed) == len(set(listed))
    assert set(listed).isdisjoint(in_extras)


def test_oldest_versions_are_the_lower_bounds():
    text = (ROOT / ".github" / "oldest.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    oldest = {}
    for line in lines:
        requirement = Requirement(line)
        (specifier,) = requirement.specifier
        assert specifier.operator == "=="
        assert requirement.name not in oldest
        oldest[requirement.name] = Version(specifier.version)
    assert list(oldest) == sorted(oldest)
    assert oldest == {r.name: lower_bound(r) for r in installed_by_the_commands()}


def test_the_recipe_for_conda_has_the_requirements_of_the_project():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    recipe = yaml.safe_load(textwrap.dedent(block))
    needed = {f"python {PROJECT['requires-python']}"}
    for entry in PROJECT["dependencies"]:
        requirement = Requirement(entry)
        needed.add(f"{requirement.name} {requirement.specifier}")
    assert set(recipe["requirements"]["run"]) == needed
    assert recipe["about"]["summary"] == PROJECT["description"]


def test_oldest_versions_are_tested_with_the_oldest_python():
    job = workflow("tests")["jobs"]["oldest"]
    for variable in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"):
        path = job["env"][variable].removeprefix("${{ github.workspace }}/")
        assert (ROOT / path).samefile(ROOT / ".github" / "oldest.txt")
    (python,) = [
        step["with"]["python-version"]
        for step in job["steps"]
        if step.get("uses", "").startswith("actions/setup-python@")
    ]
    assert PROJECT["requires-python"] == f">={python}"


def test_supported_pythons_are_tested():
    tested = [Version(python) for python in pythons_of_the_tests()]
    supported = SpecifierSet(PROJECT["requires-python"])
    assert all(version in supported for version in tested)
    assert PROJECT["requires-python"] == f">={min(tested)}"
    prefix = "Programming Language :: Python :: "
    numbers = [c.removeprefix(prefix) for c in PROJECT["classifiers"] if c.startswith(prefix)]
    assert [number for number in numbers if "." in number] == pythons_of_the_tests()


def test_tests_run_on_three_systems():
    systems = workflow("tests")["jobs"]["newest"]["strategy"]["matrix"]["os"]
    assert {system.partition("-")[0] for system in systems} == {"ubuntu", "macos", "windows"}


def test_tests_are_run_by_the_command_of_the_readme():
    # The script takes the command from README.md, which tests/test_docs.py checks.
    runs = [step["run"].splitlines() for step in steps("tests") if "run" in step]
    assert len(runs) == len(workflow("tests")["jobs"])
    for run in runs:
        # One job runs the command with a variable in its environment.
        plain = [line.removeprefix('env "$VARIABLE" ') for line in run]
        assert plain == ["command=$(.ci/run --print-command)", 'bash -euo pipefail -c "$command"']


def test_pages_are_built_by_the_commands_of_the_readme():
    prose = re.sub(r"^```.*?^```", "", README, flags=re.DOTALL | re.MULTILINE)
    inline = set(re.findall(r"`([^`]+)`", prose))
    assert len(commands("docs")) == 3
    assert set(commands("docs")) <= inline


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_groups_that_workflows_install_exist(path):
    for command in commands(path.stem):
        words = shlex.split(command)
        for option, group in pairwise(words):
            if option == "--group":
                assert group in PYPROJECT["dependency-groups"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_few_rights_and_fixed_actions(path):
    content = read_yaml(path)
    assert content["permissions"] == {"contents": "read"}
    for name, job in content["jobs"].items():
        assert "timeout-minutes" in job, name
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), name
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False, name
    # An action has one version: two workflows with different ones would be an oversight.
    versions = {}
    for other in WORKFLOWS:
        for step in steps(other.stem):
            if "uses" in step:
                action, _, version = step["uses"].partition("@")
                assert versions.setdefault(action, version) == version, action


def test_only_releases_are_uploaded_and_without_a_token():
    release = workflow("release")
    publish = release["jobs"]["publish"]
    assert release["on"]["release"] == {"types": ["published"]}
    assert publish["if"] == "github.event_name == 'release'"
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"]["name"] == "pypi"
    (upload,) = [
        s for s in publish["steps"] if s["uses"].startswith("pypa/gh-action-pypi-publish@")
    ]
    assert "password" not in upload["with"]
    assert upload["with"]["attestations"] is True


def test_hooks_are_fixed_versions_and_run_what_ci_runs():
    repositories = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = {hook["id"]: hook for repository in repositories for hook in repository["hooks"]}
    assert {"ruff-check", "ruff-format", "mypy"} <= set(hooks)
    for repository in repositories:
        assert re.fullmatch(r"v\d+(\.\d+)+", repository["rev"]), repository["repo"]
    for line in hooks["mypy"]["additional_dependencies"]:
        (specifier,) = Requirement(line).specifier
        assert specifier.operator == "=="


def test_citation_describes_this_package():
    citation = read_yaml(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert citation["version"] == sklearn_anneal.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]
    assert citation["keywords"] == PROJECT["keywords"]
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]


def test_citation_names_the_papers_of_the_methods():
    references = read_yaml(ROOT / "CITATION.cff")["references"]
    titles = [reference["title"] for reference in references]
    assert len(titles) == len(set(titles)) == 5
    for reference in references:
        assert all(set(a) == {"given-names", "family-names"} for a in reference["authors"])
        assert isinstance(reference["year"], int)
        assert ("collection-title" in reference) == (reference["type"] == "conference-paper")
        assert ("journal" in reference) == (reference["type"] == "article")
    # Every first author is named by a docstring of an annealing method.
    docstrings = " ".join(
        str(getattr(sklearn_anneal.annealing, name).__doc__)
        for name in sklearn_anneal.annealing.__all__
    )
    for reference in references:
        assert reference["authors"][0]["family-names"] in docstrings


def test_addresses_belong_to_one_repository():
    urls = PROJECT["urls"]
    assert {"Repository", "Documentation", "Issues", "Changelog"} <= set(urls)
    assert urls["Issues"] == f"{urls['Repository']}/issues"
    assert (ROOT / urls["Changelog"].removeprefix(f"{urls['Repository']}/blob/main/")).is_file()
    advisories = f"{urls['Repository']}/security/advisories/new"
    assert advisories in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    links = read_yaml(ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml")["contact_links"]
    assert advisories in [link["url"] for link in links]


def test_commands_for_contributors_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    words = [word for block in blocks for word in shlex.split(block, comments=True)]
    groups = [group for option, group in pairwise(words) if option == "--group"]
    modules = [module for option, module in pairwise(words) if option == "-m"]
    own = [module for module in modules if module.startswith("benchmarks.")]
    files = [word for word in words if word.startswith(("tests/", "PIP_CONSTRAINT="))]
    assert groups and own and files
    assert set(groups) <= set(PYPROJECT["dependency-groups"])
    for file in [*files, *(module.replace(".", "/") + ".py" for module in own)]:
        assert (ROOT / file.removeprefix("PIP_CONSTRAINT=")).is_file()
