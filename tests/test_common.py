"""scikit-learn's common checks, for every value of ``annealing``."""

from __future__ import annotations

import pytest
from models import ENTRIES as CONJUGATE
from models import TRAINED_BY_GRADIENTS
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from sklearn_anneal.annealing import ANNEALING

ENTRIES = [*CONJUGATE, *TRAINED_BY_GRADIENTS]
all_models = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


def estimators(entry):
    """The defaults, every value of ``annealing`` with two components, and the entry's own list.

    Reheats draw random numbers for every data point, and a weight of 2 is one data point. They are
    therefore left to the defaults, which have more components than the data of the checks.
    """
    if not entry.common_checks:
        return
    cls = type(entry.make())
    yield cls(**entry.checked_form)
    for name in ANNEALING.keys() - entry.refused({}).keys():
        yield cls(annealing=name, **entry.checked_small, **entry.checked_form)
    for params in entry.checked:
        yield cls(**params, **entry.checked_form)


def expected_failures(estimator):
    """The checks that this estimator is expected to fail, with their reasons."""
    return {
        check: expected.reason
        for entry in ENTRIES
        if type(estimator) is type(entry.make())
        for check, expected in entry.expected_failures.items()
        if expected.concerns(estimator)
    }


# An expected failure that passes is a failure: the list must not outlive its reasons.
@parametrize_with_checks(
    [
        estimator
        for entry in ENTRIES
        for estimator in sorted(estimators(entry), key=lambda est: str(est.get_params()))
    ],
    expected_failed_checks=expected_failures,
    xfail_strict=True,
)
def test_common_checks(estimator, check):
    check(estimator)


@all_models
def test_expected_failures_concern_checks_that_are_run(entry):
    for check, expected in entry.expected_failures.items():
        concerned = [est for est in estimators(entry) if expected.concerns(est)]
        assert concerned, f"{check} is listed for no estimator"
        generated = estimator_checks_generator(concerned[0])
        assert check in {getattr(c, "func", c).__name__ for _, c in generated}
        assert expected.reason.endswith(".")


def test_expected_failures_belong_to_entries():
    """An entry without common checks has nothing that could fail."""
    assert all(entry.common_checks for entry in ENTRIES if entry.expected_failures)


@all_models
def test_listed_checks_fail(entry):
    """Whatever pytest's configuration makes of a listed check that passes."""
    for estimator in estimators(entry):
        listed = expected_failures(estimator)
        if not listed:
            continue
        for copy, check in estimator_checks_generator(estimator):
            if getattr(check, "func", check).__name__ in listed:
                # Most checks fail by an assertion, those that the estimator refuses by its words.
                with pytest.raises((AssertionError, ValueError)):
                    check(copy)
