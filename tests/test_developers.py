"""The page for developers: its examples do what they say, and its packages are the real ones.

The new model is an entry of ``models``, so that all common tests run on it; the new annealing
method goes through those properties of the contract that every method has to have.
"""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import test_contract as contract
from cyclical import CyclicalAnnealing
from geometric_mixture import AnnealedGeometricMixture, GeometricMixture
from harness import (
    Fixed,
    assert_identical,
    context_of,
    crossed,
    forms,
    make_threads_worthwhile,
    models,
    one_update,
    open_run,
)
from models import geometric_mixture
from scipy.special import logsumexp

import sklearn_anneal
from sklearn_anneal.annealing import Annealing, DeterministicAnnealing
from sklearn_anneal.families import Tempering
from sklearn_anneal.models._base import ConjugateModel, Model, Visit

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

(GEOMETRIC,) = geometric_mixture.ENTRIES
PACKAGE = Path(sklearn_anneal.__file__).parent
PAGE = Path(__file__).resolve().parents[1] / "doc" / "developers.rst"


# The new model


def test_local_step_is_that_of_the_generative_model(rng):
    """Responsibilities, energy, entropy and statistics, from the formulas and one row at a time."""
    X, weights = GEOMETRIC.data(rng, 30), rng.uniform(0.5, 2.0, size=30)
    ctx, _, units = open_run(GEOMETRIC.make(annealing="none"), X, weights)
    # Expectations of which nothing cancels: those of one draw are the logarithms themselves.
    log_weights, log_v, log_complement = ctx.model.expectations(ctx.q, rng)
    np.testing.assert_allclose(np.exp(log_weights).sum(), 1.0)
    np.testing.assert_allclose(np.exp(log_v) + np.exp(log_complement), 1.0)
    x, share = 0.7, 0.4
    step = ctx.model.local_step(
        units, (log_weights, log_v, log_complement), Tempering(local=x, statistics=share)
    )
    energy = entropy = 0.0
    count, total = np.zeros(3), np.zeros((3, 3))
    for row, w in zip(X, weights, strict=True):
        p = np.exp(log_weights + (log_v + row * log_complement).sum(axis=1))
        r = p**x / (p**x).sum()
        energy += w * (r @ np.log(p))
        entropy -= w * (r @ np.log(r))
        count += share * w * r
        total += share * w * np.outer(r, row)
    assert step.energy == pytest.approx(energy, rel=1e-12)
    assert step.entropy == pytest.approx(entropy, rel=1e-12)
    np.testing.assert_allclose(step.statistics["count"], count, rtol=1e-12)
    np.testing.assert_allclose(step.statistics["total"], total, rtol=1e-12)


def test_noise_that_is_kept_apart_is_the_deviation(rng):
    """Of the statistics at the same temperature, which are those of no noise."""
    ctx, _, units = open_run(GEOMETRIC.make(annealing="none"), GEOMETRIC.data(rng, 30))
    expected, t = ctx.model.expectations(ctx.q), Tempering(local=0.7, statistics=0.4)
    noise = rng.standard_normal(30)
    apart = ctx.model.local_step(units, expected, t, noise, separate_noise=True)
    plain = ctx.model.local_step(units, expected, t)
    noisy = ctx.model.local_step(units, expected, t, noise)
    assert plain.deviation is None and noisy.deviation is None
    for key in ("count", "total"):
        np.testing.assert_array_equal(apart.statistics[key], plain.statistics[key])
        np.testing.assert_array_equal(apart.deviation[key], noisy.statistics[key])
    shifted = ctx.model.local_step(units, expected, t, 1.0 + noise)
    np.testing.assert_allclose(
        shifted.statistics["total"] - plain.statistics["total"], apart.deviation["total"]
    )


def test_summary_counts_weights_and_is_that_of_all_parts(rng):
    X, weights = GEOMETRIC.data(rng, 30), rng.integers(1, 4, size=30)
    est = GEOMETRIC.make(annealing="none")
    ctx, _, weighted = open_run(est, X, weights.astype(float))
    copies = open_run(est, np.repeat(X, weights, axis=0))[2]
    halves = [ctx.model.summary(weighted.take(part)) for part in (slice(12), slice(12, 30))]
    merged = halves[0].merge(halves[1])
    for found in (merged, ctx.model.summary(weighted)):
        expected = ctx.model.summary(copies)
        assert found.weight == found.seen == expected.weight == weights.sum()
        np.testing.assert_allclose(found.total, expected.total, rtol=1e-13)
    assert halves[0].continued(halves[1]) is halves[0]


def test_log_partition_is_a_sum_over_all_rows(rng):
    """log C(x) = N log c(x), c(x) = Σ_rows Σ_z p(row, z)^x / (Σ_rows Σ_z p(row, z))^x."""
    X = rng.geometric(0.4, size=(20, 2)) - 1.0
    est = AnnealedGeometricMixture(n_components=2, annealing="none", random_state=0).fit(X)
    ctx = context_of(est)
    log_weights, log_v, log_complement = ctx.model.expectations(ctx.q)
    rows = np.stack(np.meshgrid(*[np.arange(400.0)] * 2), axis=-1).reshape(-1, 2)
    joint = log_weights + log_v.sum(axis=1) + rows @ log_complement.T
    x = np.array([1.0, 0.8, 0.5])
    expected = [20 * (logsumexp(y * joint) - y * logsumexp(joint)) for y in x]
    np.testing.assert_allclose(ctx.model.log_partition(x, ctx.summary, ctx.q), expected, atol=1e-9)
    assert expected[-1] > 1


def test_components_are_found(rng):
    """The fitted success probabilities are those that the counts were drawn with."""
    weights, means = np.array([0.5, 0.3, 0.2]), 0.5 + 8.0 * np.eye(3)
    est = GEOMETRIC.make(annealing="deterministic", max_iter=200).fit(GEOMETRIC.data(rng, 4000))
    order = est.success_probabilities_.argmin(axis=1)
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(est.weights_, weights[order], atol=0.05)
    np.testing.assert_allclose(est.success_probabilities_, 1 / (1 + means[order]), atol=0.05)
    X, labels = np.repeat(8.0 * np.eye(3), 5, axis=0), np.repeat(np.argsort(order), 5)
    np.testing.assert_array_equal(est.predict(X), labels)


def test_equal_components_are_reported(rng):
    X = GEOMETRIC.data(rng, 60)
    est = GEOMETRIC.make(annealing="none", max_iter=50)
    ctx, _, _ = open_run(est, X)
    assert ctx.model.coinciding(ctx.q, ctx.summary, ctx.prior) == []
    ctx.q = {key: value.copy() for key, value in ctx.q.items()}
    ctx.q["a"][2], ctx.q["b"][2] = ctx.q["a"][0], ctx.q["b"][0]
    assert ctx.model.coinciding(ctx.q, ctx.summary, ctx.prior) == [(0, 2)]


@pytest.mark.parametrize("value", [-1.0, np.nan])
def test_what_is_no_count_is_refused(value, rng):
    X = GEOMETRIC.data(rng, 30)
    est = GEOMETRIC.make().fit(X)
    X[3, 1] = value
    for method in (est.fit, est.partial_fit, est.transform, est.score_samples):
        with pytest.raises(ValueError, match=r"(?i)negative|nan"):
            method(X)


# The new annealing method


def test_one_cycle_is_deterministic_annealing(rng):
    """Bit for bit, the displacements included, in batches, in minibatches and in a stream."""
    X = GEOMETRIC.data(rng, 60)
    one = CyclicalAnnealing(initial_temperature=2.5, n_cycles=1, n_passes=6, jitter=0.1)
    other = DeterministicAnnealing("likelihood", 2.5, "linear", 6, 0.1)
    for how in ({}, {"batch_size": 20}):
        fits = [GEOMETRIC.make(annealing=m, effort=0, **how).fit(X) for m in (one, other)]
        _assert_same_fit(*fits)
        assert 2 < fits[0].temperatures_[0] <= 2.5
    streams = [GEOMETRIC.make(annealing=m, total_samples=120) for m in (one, other)]
    for batch in np.split(X, 3):
        for stream in streams:
            stream.partial_fit(batch)
    _assert_same_fit(*streams)


def _assert_same_fit(a, b):
    """All but the methods' own parameters."""
    a.annealing_ = b.annealing_
    assert_identical(a, b)


@pytest.mark.parametrize("how", [{}, {"batch_size": 20}])
@pytest.mark.parametrize("n_cycles", [1, 3, 4])
def test_temperatures_fall_once_per_cycle_and_each_cycle_begins_lower(n_cycles, how, rng):
    method = CyclicalAnnealing(3.0, n_cycles, 5 * n_cycles, 0.0)
    est = GEOMETRIC.make(annealing=method, tol=0.0, effort=0, **how).fit(GEOMETRIC.data(rng, 60))
    assert est.n_iter_ == 5 * n_cycles + 5
    assert (est.temperatures_[-5:] == 1).all()
    cycles = est.temperatures_[:-5].reshape(n_cycles, 5)
    assert (np.diff(cycles, axis=1) < 0).all() and (cycles > 1).all()
    assert (np.diff(cycles[:, 0]) < 0).all()
    if not how:
        tops = 3 - 2 * np.arange(n_cycles) / n_cycles
        expected = 1 + np.outer(tops - 1, 1 - np.arange(5) / 5)
        np.testing.assert_allclose(cycles, expected, rtol=1e-12)


@pytest.mark.parametrize("n_calls", [6, 7, 10, 49])
def test_cycles_of_a_stream_begin_although_fractions_do_not_add_up(n_calls, rng):
    """One pass of ``n_calls`` batches is two cycles, the second of which is heated on time."""
    n_calls *= 2
    ctx, method, units = open_run(
        GEOMETRIC.make(annealing=CyclicalAnnealing(3.0, 2, 1, 0.0)), GEOMETRIC.data(rng, 60)
    )
    found = []
    for _ in range(n_calls):
        found.append(method.temperature(ctx))
        ctx.state["passes"] += 1 / n_calls
    assert np.argmax(np.diff(found)) + 1 == n_calls // 2
    assert found[n_calls // 2] == pytest.approx(2.0, abs=1e-6)
    assert method.temperature(ctx) == 1


@pytest.mark.parametrize(("entry", "params"), forms(sampled=False))
def test_updates_are_those_of_the_likelihood_at_the_temperature(entry, params, rng):
    X = entry.data(rng, 50)
    method = CyclicalAnnealing(initial_temperature=2.0, n_cycles=2, n_passes=4, jitter=0.0)
    ctx, method, units = open_run(entry.make(annealing=method, **params), X)
    for temperature in (2.0, 1.5, 1.5, 1.25):
        plain, _, _ = open_run(entry.make(annealing="none", **params), X, q=ctx.q)
        plain.state = dict(ctx.state)
        plain.model, plain.prior = ctx.model, ctx.prior
        t = Tempering(local=1 / temperature, statistics=1 / temperature)
        one_update(plain, Fixed(t), units)
        assert one_update(ctx, method, units).temperature == pytest.approx(temperature)
        assert contract.largest_difference(ctx.q, plain.q) == 0


def test_displacements_separate_what_a_cycle_has_merged(rng):
    """Equal components stay equal without them, however often the fit is heated."""
    X, apart = GEOMETRIC.data(rng, 200), {}
    for jitter in (0.0, 0.1):
        method = CyclicalAnnealing(2.0, 3, 30, jitter)
        est = GEOMETRIC.make(n_components=2, annealing=method, max_iter=0)
        ctx, method, units = open_run(est, X)
        # The second component is a copy of the first.
        ctx.q = {key: np.repeat(value[:1], 2, axis=0) for key, value in ctx.q.items()}
        for _ in range(30):
            one_update(ctx, method, units)
        apart[jitter] = np.abs(ctx.q["b"][0] / ctx.q["b"][1] - 1).max()
    assert apart[0.0] < 1e-12
    assert apart[0.1] > 0.1


@pytest.mark.parametrize("minibatch", [False, True])
@pytest.mark.parametrize(("entry", "params"), forms())
def test_cycles_without_heat_are_plain_inference(entry, params, minibatch, rng):
    for n_cycles in (1, 3):
        contract.test_method_without_temperature_or_noise_is_plain_inference(
            entry, params, CyclicalAnnealing(1, n_cycles, 10, 0.5), minibatch, rng
        )


PROPERTIES = (
    contract.test_minibatch_of_all_units_with_full_steps_is_batch,
    contract.test_weight_is_a_number_of_copies,
    contract.test_weight_zero_is_absence,
    contract.test_pickled_fit_predicts_and_goes_on_the_same,
    contract.test_fit_is_repeatable_and_does_not_depend_on_what_was_before,
)
every_form = pytest.mark.parametrize(
    ("entry", "params", "name"), crossed(forms(sampled=False), [CyclicalAnnealing])
)


@pytest.mark.parametrize("check", PROPERTIES, ids=lambda check: check.__name__[5:])
@every_form
def test_new_method_has_the_properties_of_all(entry, params, name, check, rng):
    check(entry, params, name, rng)


@every_form
def test_new_method_records_the_bounds_of_its_parameters(entry, params, name, rng, monkeypatch):
    contract.test_recorded_bounds_are_those_of_the_parameters(entry, params, name, rng, monkeypatch)


@pytest.mark.parametrize("total_samples", [None, 120])
@every_form
def test_new_method_goes_on_after_a_pickle(entry, params, name, total_samples, rng):
    contract.test_pickle_between_two_batches_changes_nothing(
        entry, params, name, total_samples, rng
    )


@pytest.mark.parametrize(
    ("entry", "how"),
    [
        pytest.param(*one.values, how, id=f"{one.id}-{how}")
        for one in models()
        for how in ("batch", "minibatches", "restarts")
        # Restarts are sent to workers whole, with any model alike.
        if how != "restarts" or one.values[0] is GEOMETRIC
    ],
)
def test_new_method_does_not_depend_on_workers(entry, how, rng, monkeypatch):
    make_threads_worthwhile(monkeypatch)
    contract.test_result_does_not_depend_on_workers(
        entry, entry.first, CyclicalAnnealing, how, rng, monkeypatch
    )


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"initial_temperature": 0.5}, "initial_temperature"),
        ({"n_cycles": 0}, "n_cycles"),
        ({"n_passes": -1}, "n_passes"),
        ({"jitter": -0.1}, "jitter"),
    ],
)
def test_wrong_parameters_of_the_new_method_are_refused(params, name, rng):
    est = GEOMETRIC.make(annealing=CyclicalAnnealing(**params))
    with pytest.raises(ValueError, match=f"'{name}' parameter of CyclicalAnnealing"):
        est.fit(GEOMETRIC.data(rng, 30))


# The page


def test_packages_of_the_page_are_those_of_the_imports():
    """Every import within the package goes where the table of the page allows it."""
    allowed = packages()
    directories = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert allowed.keys() == directories | modules
    used = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts == ("__init__",):
            continue
        for target in imported(path, parts[:-1]):
            if target.split(".")[0] == parts[0] or target == "__version__":
                continue
            found = {room for room in allowed[parts[0]] if f"{target}.".startswith(f"{room}.")}
            assert found, f"{'/'.join(parts)}.py imports {target}"
            used |= {(parts[0], room) for room in found}
    # Kernels are imported by their names, when they are first needed.
    listed = {(room, other) for room in allowed for other in allowed[room] if other != "kernels"}
    assert listed == {pair for pair in used if pair[1] != "kernels"}


def test_twelve_words_are_names_of_the_code():
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("Twelve words\n") : text.index("Components, and the models made")]
    found = re.findall(r"``([\w/]+\.py): (\w+)``", section)
    assert len(found) == 12 == section.count("\n   * - ") - 1
    for file, name in found:
        tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
        assert name in {
            target.id if isinstance(target, ast.Name) else getattr(node, "name", None)
            for node in tree.body
            for target in getattr(node, "targets", [node])
        }, file


def packages():
    """Package → what it may import, as the page's table has it."""
    text = PAGE.read_text(encoding="utf-8")
    pattern = r"^\.\. list-table:: Packages\n(.*?)\n(?=\S)"
    table = re.search(pattern, text, re.DOTALL | re.MULTILINE)[1]
    rows = re.split(r"\n   \* - ", table)[2:]
    cells = [re.split(r"\n     - ", row) for row in rows]
    assert all(len(row) == 3 for row in cells)
    return {
        re.fullmatch(r"``(\w+)``", name.strip())[1]: re.findall(r"``([\w.]+)``", others)
        for name, _, others in cells
    }


def imported(path, package):
    """The modules of this package that a file imports, other than for annotations."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    annotations = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level or id(node) in annotations:
            continue
        base = [*package[: len(package) - node.level + 1]]
        if node.module:
            base += node.module.split(".")
        # A name that is imported from a package can be a module of it.
        for alias in node.names:
            file = PACKAGE.joinpath(*base, alias.name)
            is_module = file.is_dir() or file.with_suffix(".py").exists()
            if is_module or not base:
                yield ".".join([*base, alias.name])
            else:
                yield ".".join(base)


def test_page_names_the_hooks_of_annealing_and_the_methods_of_models():
    """What can be overridden is explained, so that the page is not silent about a new hook."""
    text = PAGE.read_text(encoding="utf-8")
    parameters = {field.name for field in fields(Visit)}
    for cls in (Annealing, Model, ConjugateModel, Visit):
        for name in vars(cls).keys() - parameters:
            if not name.startswith("_"):
                assert f"``{name}``" in text, f"{cls.__name__}.{name}"


def test_page_includes_the_files_that_are_tested():
    text = PAGE.read_text(encoding="utf-8")
    included = set(re.findall(r"\.\. literalinclude:: developers/(\w+)\.py", text))
    assert included == {GeometricMixture.__module__, CyclicalAnnealing.__module__}
    assert {path.stem for path in (PAGE.parent / "developers").glob("*.py")} == included
