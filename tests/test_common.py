"""scikit-learn's common checks, for every value of ``annealing``."""

from __future__ import annotations

import pytest
from models import ENTRIES as CONJUGATE
from models import TRAINED_BY_GRADIENTS
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from sklearn_anneal.annealing import ANNEALING

ENTRIES = [*CONJUGATE, *TRAINED_BY_GRADIENTS]
all_models = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


# What a fit computes can depend on the method of annealing. All other checks are of parameters,
# tags, input and predictions, which the same code reads whatever the method is. That every
# method works with float32 is a test of the contract.
OF_RESULTS = {
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_methods_subset_invariance",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
}


def own(entry):
    """The defaults, and the entry's own list."""
    if not entry.common_checks:
        return
    cls = type(entry.make())
    yield cls(**entry.checked_form)
    for params in entry.checked:
        yield cls(**params, **entry.checked_form)


def annealed(entry):
    """Every value of ``annealing`` with two components, in every form of the local step.

    Reheats draw random numbers for every data point, and a weight of 2 is one data point. They are
    therefore left to the defaults, which have more components than the data of the checks.
    """
    if not entry.common_checks:
        return
    cls = type(entry.make())
    for form in ({}, *entry.heuristics.values()):
        for name in ANNEALING.keys() - entry.refused(form).keys():
            yield cls(annealing=name, **entry.checked_small, **entry.checked_form, **form)


def named(estimator):
    return str(estimator.get_params())


def of_results():
    """The checks of what fits compute, for every value of ``annealing``."""
    for entry in ENTRIES:
        for estimator in sorted(annealed(entry), key=named):
            failures = expected_failures(estimator)
            for copy, check in estimator_checks_generator(estimator):
                name = getattr(check, "func", check).__name__
                if name not in OF_RESULTS:
                    continue
                marks = ()
                if name in failures:
                    marks = pytest.mark.xfail(reason=failures[name], strict=True)
                yield pytest.param(
                    copy, check, marks=marks, id=f"{''.join(repr(estimator).split())}-{name}"
                )


def expected_failures(estimator):
    """The checks that this estimator is expected to fail, with their reasons."""
    return {
        check: expected.reason
        for entry in ENTRIES
        if type(estimator) is type(entry.make())
        for check, expected in entry.expected_failures.items()
        if expected.concerns(estimator)
    }


# An expected failure that passes is a failure (xfail_strict of pytest): the list must not outlive
# its reasons.
@parametrize_with_checks(
    [estimator for entry in ENTRIES for estimator in sorted(own(entry), key=named)],
    expected_failed_checks=expected_failures,
)
def test_common_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(("estimator", "check"), list(of_results()))
def test_checks_of_results_with_every_method(estimator, check):
    check(estimator)


@all_models
def test_expected_failures_concern_checks_that_are_run(entry):
    for check, expected in entry.expected_failures.items():
        concerned = [
            est
            for est in (*own(entry), *(annealed(entry) if check in OF_RESULTS else ()))
            if expected.concerns(est)
        ]
        assert concerned, f"{check} is listed for no estimator"
        generated = estimator_checks_generator(concerned[0])
        assert check in {getattr(c, "func", c).__name__ for _, c in generated}
        assert expected.reason.endswith(".")


def test_expected_failures_belong_to_entries():
    """An entry without common checks has nothing that could fail."""
    assert all(entry.common_checks for entry in ENTRIES if entry.expected_failures)
