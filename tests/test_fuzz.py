"""A small share of the random cases of ``tests/fuzz.py``, and that its checks can fail."""

from __future__ import annotations

import json
import warnings

import fuzz
import numpy as np
import pytest
from fuzzing import run as fuzzing_run
from fuzzing.draw import KINDS, OF_THE_PACKAGE, case_of
from fuzzing.forms import given, values_of
from fuzzing.properties import (
    REFUSED,
    Findings,
    attempt,
    check_bounds,
    check_fitted,
    check_predictions,
    check_same,
    check_warnings,
    contents,
    fault_of,
    snapshot,
)
from fuzzing.run import run_case
from harness import context_of
from models import gaussian_mixture

from sklearn_anneal.annealing import ANNEALING

N_CASES, STEP = 24, 12
(MIXTURE,) = gaussian_mixture.ENTRIES


@pytest.mark.parametrize("first", range(0, N_CASES, STEP))
def test_random_cases(first):
    failed = []
    for number in range(first, first + STEP):
        _, found = run_case(0, number)
        failed += [
            f"{kind}: {text}\n  python -m tests.fuzz --cases {number}" for kind, text in found
        ]
    assert not failed, "\n".join(failed)


# Cases


def test_a_case_is_a_function_of_its_number():
    for number in (3, 17, 40):
        one, other = case_of(5, number), case_of(5, number)
        assert contents(values_of(one.X)) == contents(values_of(other.X))
        assert one.described() == other.described()
        assert one.rng.random() == other.rng.random()
    assert case_of(5, 3).described() != case_of(6, 3).described()


def test_cases_are_of_every_kind():
    cases = [case_of(1, number) for number in range(1600)]
    assert {case.kind for case in cases} == KINDS.keys()
    pairs = {(case.entry.name, case.method) for case in cases}
    assert len(pairs) == len(OF_THE_PACKAGE) * len(ANNEALING)
    assert sum(not case.odd for case in cases) > 160
    assert {case.params.get("n_components") for case in cases} >= {1, 2, 3, 4, 5}


def test_forms_have_the_same_cells():
    for number in range(120):
        case = case_of(2, number)
        if case.form == "pairs" or "float32" in case.form:
            continue
        X, _ = given(case.X, case.form)
        if isinstance(case.X, list):
            X = (
                np.concatenate([np.asarray(part) for part in X])
                if isinstance(X, list | tuple)
                else X
            )
        X = X.toarray() if hasattr(X, "toarray") else np.asarray(X, dtype=float)
        # What a sparse matrix of ratings does not store is not observed.
        expected = (
            np.where(X == 0, 0, values_of(case.X)) if "cs" in case.form else values_of(case.X)
        )
        np.testing.assert_array_equal(X, expected, err_msg=case.form)


# What is a finding


def _call(function, *args):
    found = Findings()
    assert attempt(found, "a call", lambda: function(*args), may_refuse=True) is REFUSED
    return [kind for kind, _ in found.found]


def test_refusals_are_those_of_the_package_and_of_scikit_learn():
    est = MIXTURE.make(annealing="none")
    for X in (np.ones((1, 2)), np.full((9, 2), np.inf), [["a"], ["b"]], 3.0):
        assert _call(est.fit, X) == []
    assert _call(est.predict, np.ones((9, 2))) == []
    found = Findings()
    attempt(found, "a fit", lambda: est.fit(np.ones((1, 2))), may_refuse=False)
    assert [kind for kind, _ in found.found] == ["refusal of ordinary data"]


@pytest.mark.parametrize("error", [KeyError, IndexError, AttributeError, OverflowError])
def test_other_errors_are_findings(error):
    def fail():
        raise error("a sentence of more than three words")

    assert _call(fail) == ["raw error"]


def test_a_value_error_of_an_operation_on_arrays_is_a_finding(rng):
    """Nobody wrote its sentence for those who read it."""
    ctx = context_of(MIXTURE.make(annealing="none").fit(MIXTURE.data(rng, 20)))
    less = {key: value[:-1] for key, value in ctx.prior.items()}
    assert _call(ctx.model.kl, ctx.q, less) == ["raw error"]

    def short():
        raise ValueError("bad")

    assert fault_of(pytest.raises(ValueError, short).value)


def test_a_refusal_that_leaves_something_is_a_finding(monkeypatch):
    case = next(c for c in (case_of(0, i) for i in range(99)) if c.entry is MIXTURE)
    run = fuzzing_run.Run(case)
    est = case.make()

    def leaves(*args, **how):
        est.trace_ = 3
        raise ValueError("This is a sentence of a user's own.")

    monkeypatch.setattr(type(est), "fit", leaves)
    run.fit("fit", est, case.X, None)
    assert "refusal left something" in [kind for kind, _ in run.found.found]


def test_warnings_that_are_not_the_packages_own_are_findings():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("a sentence to users", UserWarning, stacklevel=1)
        np.log(np.zeros(1))
    found = Findings()
    check_warnings(found, caught)
    assert [kind for kind, _ in found.found] == ["warning"]


def kinds_after(change, est, X):
    """The kinds of findings after a change of a fitted estimator."""
    change(est)
    found = Findings()
    check_fitted(found, est, streamed=False)
    check_predictions(found, est, X, {}, None, X, may_refuse=False, discrete=False)
    return {kind for kind, _ in found.found}


def test_fitted_estimators_that_are_not_sound_are_findings(rng):
    X = MIXTURE.data(rng, 30)

    def fitted():
        return MIXTURE.make(annealing="none").fit(X)

    def without_weights(est):
        vars(est)["weights_"] = np.full_like(est.weights_, np.inf)

    assert kinds_after(lambda est: None, fitted(), X) == set()
    assert "not finite" in kinds_after(without_weights, fitted(), X)
    assert "histories" in kinds_after(lambda est: setattr(est, "n_iter_", 99), fitted(), X)
    assert "last bound" in kinds_after(lambda est: setattr(est, "lower_bound_", 1.0), fitted(), X)
    changed = {
        "probability": lambda X: np.full((30, 3), 0.5),
        "shape": lambda X: np.full((30, 2), 0.5),
        "prediction not finite": lambda X: np.full((30, 3), np.nan),
    }
    for kind, predict in changed.items():
        found = kinds_after(lambda est, p=predict: setattr(est, "predict_proba", p), fitted(), X)
        assert kind in found
    one, other = fitted(), fitted()
    found = Findings()
    check_same(found, "they differ", one, other)
    vars(other)["means_"] = np.nextafter(other.means_, np.inf)
    check_same(found, "they differ now", one, other)
    assert [kind for kind, _ in found.found] == ["they differ now"]
    check_bounds(found, np.array([-9.0, -3.0, -3.1]), 0, 1.0)
    assert "the bound fell" in [kind for kind, _ in found.found]


# The script


def test_a_search_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    numbers = []

    def run_one(seed, number):
        numbers.append(number)
        return case_of(seed, number), [("a kind", "a text")] if number == 3 else []

    monkeypatch.setattr(fuzzing_run, "run_case", run_one)
    monkeypatch.setattr(fuzz, "BLOCK", 2)
    out = tmp_path / "records.jsonl"
    command = ["--out", str(out), "--cases"]
    assert fuzz.main([*command, "0:2"]) == 0
    assert fuzz.main([*command, "0:7"]) == 1
    assert numbers == [0, 1, 2, 3, 4, 5, 6]
    assert "3: a kind: " in capsys.readouterr().out
    # A line that was cut off is not the record of a block.
    whole = out.read_text(encoding="utf-8").splitlines()
    out.write_text("\n".join([*whole[:-1], whole[-1][:20]]) + "\n", encoding="utf-8")
    assert fuzz.main([*command, "0:7"]) == 1
    assert numbers == [0, 1, 2, 3, 4, 5, 6, 6]
    assert [json.loads(line)["cases"] for line in whole] == [[0, 2], [2, 4], [4, 6], [6, 7]]
    assert fuzz.main(["--cases", "5"]) == 0
    assert numbers[-1] == 5


def test_a_state_is_read_to_the_last_bit(rng):
    est = MIXTURE.make(annealing="none").fit(MIXTURE.data(rng, 20))
    before = snapshot(est)
    assert snapshot(est) == before
    means = est.means_.copy()
    means[0, 0] = np.nextafter(means[0, 0], np.inf)
    vars(est)["means_"] = means
    assert snapshot(est) != before
