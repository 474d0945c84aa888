"""scikit-learn's common checks, for every value of ``annealing``."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from harness import quick
from models import ENTRIES as CONJUGATE
from models import TRAINED_BY_GRADIENTS
from sklearn.base import clone, is_classifier
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedBayesianMixture
from sklearn_anneal.annealing import ANNEALING, LocalVariationalTempering

ENTRIES = [*CONJUGATE, *TRAINED_BY_GRADIENTS]
CHECKED = [entry for entry in ENTRIES if entry.common_checks]

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

# What can depend on other parameters, which choose other local steps and other forms of the data.
OF_FORMS = OF_RESULTS | {
    "check_dict_unchanged",
    "check_estimator_sparse_array",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_transformer_preserve_dtypes",
}

# Weights and repeated rows have other starts, which lead to one result after more passes.
OF_WEIGHTS = {name for name in OF_RESULTS if "sample_weight" in name}

# What can depend on the search, which no other check needs.
OF_SEARCHES = OF_RESULTS | {"check_dict_unchanged", "check_fit_idempotent"}

# Mixtures whose components belong to classes. So few passes do not end the learning of a prior of
# covariances, which begins at a start, and starts are drawn from rows that differ in a check.
CLASSIFIER = AnnealedBayesianGaussianMixture(
    n_components_per_class=1, max_iter=20, covariance_prior=None, annealing="none", effort=0
)
OTHER_CLASSIFIER = AnnealedBayesianMixture(
    n_components_per_class=1, max_iter=20, emission="gaussian", tol=0.0, scale_prior=None
)
FAILURES_OF_CLASSIFIERS = {
    "check_classifiers_classes": "The check has a class -1, which is an unknown class in "
    "semi-supervised learning.",
}


def default(entry):
    """The defaults, with few passes, and with few moves where reheats follow them."""
    estimator = type(entry.make())(max_iter=20, **entry.checked_form)
    return estimator.set_params(effort=0.3) if estimator.annealing == "reheating" else estimator


def without_search(entry):
    """The defaults, with hardly any passes, and without annealing and what comes after it."""
    estimator = default(entry).set_params(max_iter=4, annealing="none")
    return estimator.set_params(effort=0) if "effort" in estimator.get_params() else estimator


def further(entry):
    """Other parameters, the entry's own list, with few annealed passes."""
    found = [type(entry.make())(**params, **entry.checked_form) for params in entry.checked]
    return [est.set_params(annealing=quick(est.annealing)) for est in found]


def annealed(entry):
    """Every method with few passes and two components, its place, and whether it is exhaustive.

    The forms of the local step take turns: each value has one of them, and the tests of the others
    are exhaustive. Reheats draw random numbers for every data point, and a weight of 2 is one data
    point. They are therefore left to the defaults, which have more components than the data of the
    checks.
    """
    cls = type(entry.make())
    forms = ({}, *entry.heuristics.values())
    for turn, name in enumerate(sorted(ANNEALING)):
        fitting = [form for form in forms if name not in entry.refused(form)]
        for i, form in enumerate(fitting):
            params = {**entry.checked_small, **entry.checked_form, **form}
            yield cls(annealing=quick(name, 8), **params), turn, i != turn % len(fitting)


def named(estimator):
    return "".join(repr(estimator).split())


def checks_of(estimator, names, kept=lambda name: True):
    """The checks of these names, and whether each has to fail; those not kept are exhaustive."""
    failures = expected_failures(estimator)
    for copy, check in estimator_checks_generator(estimator):
        name = getattr(check, "func", check).__name__
        if name in names:
            test = f"{named(estimator)}-{name}"
            marks = () if kept(name) else pytest.mark.exhaustive
            yield pytest.param(copy, check, name in failures, marks=marks, id=test)


def run(check, estimator, fails):
    """Run a check that passes, or one that has to fail."""
    with pytest.raises((AssertionError, IndexError, ValueError)) if fails else nullcontext():
        check(estimator)


def in_turn(names, turn, n):
    """Whether a check is that of this turn, of n estimators or of as many as there are checks."""
    places = {name: place for place, name in enumerate(sorted(names))}
    return lambda name: (places[name] - turn) % n == 0


def with_every_method():
    """The checks of results, for every value of ``annealing``.

    A single row, and the temperatures of rows, could go wrong in any pair of an entry and a value.
    The other checks take turns: each value meets all of them, though not with each entry.
    """
    for row, entry in enumerate(CHECKED):
        for estimator, turn, exhaustive in annealed(entry):
            always = {"check_fit2d_1sample"}
            if isinstance(estimator.annealing, LocalVariationalTempering):
                always |= {"check_methods_subset_invariance"}
            kept = in_turn(OF_RESULTS, row + turn, len(OF_RESULTS) - 1)

            def chosen(name, always=always, kept=kept, exhaustive=exhaustive):
                return (name in always or kept(name)) and not exhaustive

            yield from checks_of(estimator, OF_RESULTS, chosen)


def with_few_passes(estimator, names, kept=lambda name: True):
    """The checks of these names, after few passes if they do not need more."""
    yield from checks_of(estimator, names & OF_WEIGHTS, kept)
    short = clone(estimator).set_params(max_iter=min(estimator.max_iter, 8))
    yield from checks_of(short, names - OF_WEIGHTS, kept)


def with_further_parameters():
    """The checks of what can depend on other parameters, or on the search of the defaults.

    The search is the same code for all entries, which take turns. The further parameters of an
    entry take turns too, so that it meets every check.
    """
    for row, entry in enumerate(CHECKED):
        yield from with_few_passes(default(entry), OF_SEARCHES, in_turn(OF_SEARCHES, row, 3))
        estimators = further(entry)
        for turn, estimator in enumerate(estimators):
            kept = in_turn(OF_FORMS, turn, len(estimators))
            yield from with_few_passes(estimator, OF_FORMS, kept)


def names_of_checks(estimator):
    return {getattr(c, "func", c).__name__ for _, c in estimator_checks_generator(estimator)}


def of_classes():
    """The checks of classifiers that an estimator without classes does not have.

    One classifier also has those of what can depend on the labels of rows.
    """
    names = names_of_checks(OTHER_CLASSIFIER) - names_of_checks(CHECKED[0].make())
    return [*checks_of(CLASSIFIER, names | OF_FORMS), *checks_of(OTHER_CLASSIFIER, names)]


def expected_failures(estimator):
    """The checks that this estimator is expected to fail, with their reasons."""
    if is_classifier(estimator):
        return FAILURES_OF_CLASSIFIERS
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
    [without_search(entry) for entry in CHECKED],
    expected_failed_checks=expected_failures,
)
def test_common_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(("estimator", "check", "fails"), of_classes())
def test_checks_of_classes(estimator, check, fails):
    run(check, estimator, fails)


@pytest.mark.usefixtures("few_passes_of_searches")
@pytest.mark.parametrize(("estimator", "check", "fails"), list(with_further_parameters()))
def test_checks_with_further_parameters(estimator, check, fails):
    run(check, estimator, fails)


@pytest.mark.parametrize(("estimator", "check", "fails"), list(with_every_method()))
def test_checks_of_results_with_every_method(estimator, check, fails):
    run(check, estimator, fails)


@pytest.mark.parametrize("entry", CHECKED, ids=lambda entry: entry.name)
def test_expected_failures_concern_checks_that_are_run(entry):
    for check, expected in entry.expected_failures.items():
        estimators = [without_search(entry), default(entry)]
        if check in OF_FORMS:
            estimators += further(entry)
        if check in OF_RESULTS:
            estimators += [estimator for estimator, *_ in annealed(entry)]
        concerned = [estimator for estimator in estimators if expected.concerns(estimator)]
        assert concerned, f"{check} is listed for no estimator"
        assert check in names_of_checks(concerned[0])
        assert expected.reason.endswith(".")


def test_expected_failures_belong_to_entries():
    """An entry without common checks has nothing that could fail."""
    assert all(entry.common_checks for entry in ENTRIES if entry.expected_failures)
