"""Tests of the data that hidden Markov models read and refuse."""

from __future__ import annotations

from functools import partial

import numpy as np
import plain_hidden_markov as plain
import pytest
from cases_hidden_markov import (
    ONE_OF_EACH,
    READERS,
    VARIANTS,
    D,
    all_emissions,
    all_variants,
    assert_same_fit,
    draw,
    fitted,
    small,
    symbols,
)
from designs import in_turn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from sklearn_anneal import AnnealedHMM, Shards, concat_sequences, split_sequences
from sklearn_anneal.models import hidden_markov

# Missing frames


@all_variants
def test_missing_frames_have_no_share_of_the_emissions(variant, rng):
    """Neither of the data-dependent priors and starts: expected counts are those observed."""
    sequences = draw(variant, rng, [20, 10], {0: slice(15, None), 1: [3, 4]})
    est = small(variant, 3).fit(sequences)
    prior, q = (plain.parameters_of(est, which) for which in ("prior", "posterior"))
    count = {
        "categorical": lambda p: p.emission["emissionprob"].sum(),
        "bernoulli": lambda p: (p.emission["a"] + p.emission["b"])[:, 0].sum(),
        "poisson": lambda p: p.emission["rate"][:, 0].sum(),
    }.get(variant, lambda p: p.emission["beta"].sum())
    assert count(q) - count(prior) == pytest.approx(30 - 7, rel=1e-10)
    assert q.transition.sum() - prior.transition.sum() == pytest.approx(28, rel=1e-10)
    observed = np.concatenate([X[plain.emission_of(est).observed(X)] for X in sequences])
    if est.emission == "gaussian":
        assert_allclose(est.means_prior_ * np.ones((3, D)), [observed.mean(axis=0)] * 3)
    if est.emission == "poisson":
        assert_allclose(est.lambdas_weight_prior_, [1 / observed.mean(axis=0)] * 3)


@pytest.mark.parametrize("variant", ["poisson", "bernoulli"])
def test_a_missing_cell_is_marginalised(variant, rng):
    """The log likelihood of the rest is the sum over all values that the cell could have."""
    est = fitted(variant, rng)
    (X,) = draw(variant, rng, [6])
    gap = X.copy()
    gap[3, 1] = np.nan
    filled = []
    for value in range(2 if variant == "bernoulli" else 200):
        X[3, 1] = value
        filled.append(est.score_sequences(X)[0])
    assert est.score_sequences(gap)[0] == pytest.approx(np.logaddexp.reduce(filled))


@pytest.mark.parametrize("variant", ONE_OF_EACH)
def test_a_sequence_of_missing_frames_alone_is_a_path(variant, rng):
    sequences = draw(variant, rng, [15, 3, 12], {1: slice(None)})
    est = small(variant).fit(sequences)
    assert est.score_sequences(sequences)[1] == pytest.approx(0, abs=1e-12)
    assert_allclose(est.predict_proba(sequences)[15], est.startprob_, atol=1e-12)
    assert np.isfinite(est.lower_bound_)


def test_a_missing_symbol_may_be_nan_or_minus_one(rng):
    sequences = draw("categorical", rng, [20, 10], {0: [3, 19]})
    with_nan = [np.where(X < 0, np.nan, X) for X in sequences]
    one, other = small("categorical").fit(sequences), small("categorical").fit(with_nan)
    assert_same_fit(one, other)
    assert_array_equal(one.predict(sequences), one.predict(with_nan))


# Forms of data


def forms_of(variant, sequences):
    """The same sequences in every form: arguments of ``fit``."""
    pd = pytest.importorskip("pandas")
    X, lengths = np.concatenate(sequences), [len(s) for s in sequences]
    ids = np.repeat(np.arange(len(sequences)), lengths)
    forms = {
        "list": (sequences, {}),
        "tuple": (tuple(sequences), {}),
        "lengths": (X, {"lengths": lengths}),
        "lengths as an array": (X, {"lengths": np.array(lengths)}),
        "groups": (X, {"groups": ids}),
        "groups in no order": (X, {"groups": (7 - 3 * ids) ** 2}),
        "groups of words": (X, {"groups": np.array(["zeta", "beta", "psi", "eta"])[ids]}),
        "groups as a list": (X, {"groups": ids.tolist()}),
        "groups as a series": (X, {"groups": pd.Series(ids, index=ids[::-1])}),
    }
    if variant == "categorical":
        forms["one-dimensional"] = ([s[:, 0].astype(int) for s in sequences], {})
        forms["integers"] = ([s.astype(np.int8) for s in sequences], {})
    return forms


@all_emissions
def test_every_form_of_the_same_data_is_the_same_fit(variant, rng):
    sequences = draw(variant, rng, [12, 1, 7, 9])
    est = small(variant, max_iter=3)
    reference, stream = clone(est).fit(sequences), clone(est).partial_fit(sequences)
    assert reference.n_sequences_ == 4
    for name, (X, how) in forms_of(variant, sequences).items():
        other = clone(est).fit(X, **how)
        assert_same_fit(reference, other)
        for method in ("predict", "predict_proba", "transform", "score_sequences", "score"):
            expected = getattr(reference, method)(sequences)
            found = getattr(reference, method)(X, **how)
            assert_array_equal(found, expected, err_msg=f"{name}: {method}")
        for found, expected in zip(reference.decode(X, **how), reference.decode(sequences),
                                   strict=True):  # fmt: skip
            assert_array_equal(found, expected, err_msg=name)
        assert_same_fit(stream, clone(est).partial_fit(X, **how))
    assert reference.predict_proba(sequences).shape == (29, 2)
    assert reference.score_sequences(sequences).shape == (4,)


@pytest.mark.parametrize("variant", VARIANTS)
def test_parts_in_memory_change_nothing(variant, rng, monkeypatch):
    """However few sequences are in memory at a time."""
    sequences = draw(variant, rng, [9, 1, 30, 4, 4, 17, 2, 60, 5])
    whole = small(variant, max_iter=5).fit(sequences)
    states = whole.decode(sequences)
    monkeypatch.setattr(hidden_markov, "_ENTRIES", 40)
    parts = small(variant, max_iter=5).fit(sequences)
    assert_allclose(parts.lower_bounds_, whole.lower_bounds_, rtol=1e-12)
    assert_allclose(parts.transmat_, whole.transmat_, rtol=1e-9)
    assert_allclose(parts.predict_proba(sequences), whole.predict_proba(sequences), atol=1e-9)
    log_probability, path = whole.decode(sequences)
    assert log_probability == pytest.approx(states[0], rel=1e-12)
    assert_array_equal(path, states[1])


def test_sequences_may_be_data_frames(rng):
    pd = pytest.importorskip("pandas")
    sequences = draw("gaussian-full", rng, [12, 1, 7])
    frames = [pd.DataFrame(X, columns=["a", "b"]) for X in sequences]
    one, other = small().fit(sequences), small().fit(frames)
    # Columns lie elsewhere in memory, which changes the last bits of sums.
    assert_allclose(other.lower_bounds_, one.lower_bounds_, rtol=1e-12)
    assert_array_equal(other.feature_names_in_, ["a", "b"])
    assert_array_equal(other.predict(frames), one.predict(sequences))
    whole = pd.concat(frames)
    assert_same_fit(small().fit(whole, lengths=[12, 1, 7]), other)
    with pytest.raises(ValueError, match="feature names"):
        other.predict([frame[["b", "a"]] for frame in frames])


def test_nested_list_is_one_sequence():
    rows = [[1.0, 2.0], [3.0, 4.0], [1.5, 2.5], [3.5, 3.5]]
    est = small().fit(rows)
    assert est.n_sequences_ == 1
    assert_same_fit(est, small().fit(np.array(rows)))
    assert est.predict(rows).shape == (4,)
    symbols = small("categorical").fit([[0], [1], [1], [0]])
    assert symbols.n_sequences_ == 1


def test_one_array_is_one_sequence(rng):
    (X,) = draw("gaussian-full", rng, [20])
    est = small().fit(X)
    assert est.n_sequences_ == 1
    assert_same_fit(est, small().fit([X]))
    assert_same_fit(est, small().fit(X, lengths=[20]))


@all_emissions
def test_all_sequences_may_be_of_length_one(variant, rng):
    sequences = draw(variant, rng, [1] * 30)
    est = small(variant).fit(sequences)
    assert est.n_sequences_ == 30
    prior = plain.parameters_of(est, "prior").transition
    assert_allclose(est.transmat_posterior_, prior, rtol=1e-12)
    assert est.startprob_posterior_.sum() == pytest.approx(30 + est.startprob_prior_.sum())


def test_lists_become_one_array_and_groups_and_back(rng):
    sequences = draw("gaussian-full", rng, [12, 1, 7])
    X, groups = concat_sequences(sequences)
    assert_array_equal(X, np.concatenate(sequences))
    assert groups.shape == (20,)
    lengths = [len(s) for s in sequences]
    assert len(np.unique(groups)) == 3
    assert_array_equal(np.flatnonzero(np.diff(groups)), [11, 12])
    parts = split_sequences(X, lengths)
    assert isinstance(parts, list)
    for part, sequence in zip(parts, sequences, strict=True):
        assert_array_equal(part, sequence)
    est = small().fit(sequences)
    assert_same_fit(est, small().fit(X, groups=groups))
    per_frame = split_sequences(est.predict_proba(sequences), lengths)
    assert [p.shape for p in per_frame] == [(12, 2), (1, 2), (7, 2)]
    assert [len(p) for p in split_sequences(est.predict(sequences), lengths)] == lengths
    with pytest.raises(ValueError, match="19.*20|20.*19"):
        split_sequences(X, [12, 7])


METHODS = ("fit", "partial_fit", "predict", "predict_proba", "transform", "score",
           "score_sequences", "decode")  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_metadata_that_does_not_fit_is_refused(method, rng):
    (X,) = draw("gaussian-full", rng, [20])
    est = small().fit(X)
    call = getattr(est, method)
    for lengths in ([5, 5], [15, 15], [20, 5, -5], [10.5, 9.5]):
        with pytest.raises(ValueError, match="lengths"):
            call(X, lengths=lengths)
    with pytest.raises(ValueError, match="19.*20|20.*19"):
        call(X, groups=np.zeros(19))
    back = np.repeat([0, 1, 0], [8, 7, 5])
    with pytest.raises(ValueError, match="consecutive"):
        call(X, groups=back)
    with pytest.raises(ValueError, match="groups.*lengths|lengths.*groups"):
        call(X, groups=np.zeros(20), lengths=[20])
    for how in ({"groups": np.zeros(20)}, {"lengths": [20]}):
        with pytest.raises(ValueError, match="list"):
            call([X], **how)


@pytest.mark.parametrize("method", ["fit", "partial_fit", "score"])
def test_lengths_in_the_place_of_y_are_asked_about(method, rng):
    (X,) = draw("gaussian-full", rng, [20])
    est = small().fit(X)
    with pytest.raises(ValueError, match="did you mean lengths="):
        getattr(est, method)(X, [12, 8])
    getattr(est, method)(X, np.zeros(20))


@pytest.mark.parametrize("method", ["fit", "partial_fit", "score"])
def test_weights_vary_between_sequences_alone(method, rng):
    (X,) = draw("gaussian-full", rng, [20])
    est = small().fit(X)
    weights = np.repeat([1.0, 2.0], 10)
    getattr(est, method)(X, lengths=[10, 10], sample_weight=weights)
    with pytest.raises(ValueError, match="sample_weight.*sequence|sequence.*sample_weight"):
        getattr(est, method)(X, lengths=[12, 8], sample_weight=weights)
    with pytest.raises(ValueError, match=r"one per sequence, but needs one per row, 20 .*repeat"):
        getattr(est, method)(X, lengths=[10, 10], sample_weight=[1.0, 2.0])


def test_columns_differ_between_sequences():
    with pytest.raises(ValueError):
        small().fit([np.zeros((4, 2)), np.zeros((4, 3))])
    with pytest.raises(ValueError):
        small().fit([np.zeros((4, 2)), np.zeros((0, 2))])
    with pytest.raises(ValueError):
        small().fit([])


def test_polars_frames_of_other_types_are_put_together():
    pl = pytest.importorskip("polars")
    X, groups = concat_sequences([pl.DataFrame({"a": [1, 2]}), pl.DataFrame({"a": [1.5]})])
    assert_array_equal(np.asarray(X)[:, 0], [1.0, 2.0, 1.5])
    assert_array_equal(groups, [0, 0, 1])


# Sequences of one feature, and other containers of sequences


def series(rng, kind, lengths):
    """1-D series, and the same as arrays of one column."""
    if kind == "gaussian":
        found = [np.cumsum(rng.normal(size=n)) for n in lengths]
    else:
        found = [rng.integers(0, 3, n) for n in lengths]
    return found, [one[:, None] for one in found]


@in_turn(kind=("gaussian", "poisson", "categorical"), lengths=([20, 7, 12], [20, 20]))
def test_one_dimensional_series_are_sequences_of_one_feature(kind, lengths, rng):
    pd = pytest.importorskip("pandas")
    flat, columns = series(rng, kind, lengths)
    make = partial(AnnealedHMM, 2, emission=kind, random_state=0, max_iter=3, effort=0)
    extra = {"n_symbols": 3} if kind == "categorical" else {}
    reference, stream = make(**extra).fit(columns), make(**extra).partial_fit(columns)
    objects = np.empty(len(flat), dtype=object)
    objects[:] = flat
    forms = {
        "list": flat,
        "tuple": tuple(flat),
        "series": [pd.Series(one) for one in flat],
        "floats": [one.astype(float) for one in flat],
        "array of objects": objects,
        "series of objects": pd.Series(flat),
        "some with a column": [columns[0], *flat[1:]],
    }
    for name, X in forms.items():
        est = make(**extra).fit(X)
        assert est.n_sequences_ == len(lengths), name
        assert est.n_features_in_ == 1
        assert_same_fit(est, reference)
        assert_same_fit(make(**extra).partial_fit(X), stream)
        for method in ("predict", "predict_proba", "score_sequences", "score"):
            assert_array_equal(getattr(est, method)(X), getattr(reference, method)(columns))
        y = np.arange(len(lengths))
        assert est.score(X, y) == reference.score(columns)


def test_symbols_of_one_dimension_may_be_missing(rng):
    flat = [np.array([0.0, 1.0, np.nan, 1.0]), np.array([1.0, np.nan, 0.0, 0.0])]
    est = small("categorical").fit(flat)
    assert est.n_sequences_ == 2
    assert_same_fit(est, small("categorical").fit([one[:, None] for one in flat]))


@all_emissions
def test_arrays_of_three_dimensions_are_sequences(variant, rng):
    sequences = draw(variant, rng, [12, 12, 12])
    X = np.stack(sequences)
    reference, stream = small(variant).fit(sequences), small(variant).partial_fit(sequences)
    objects = np.empty(3, dtype=object)
    objects[:] = sequences
    for form in (X, X.tolist(), objects):
        assert_same_fit(small(variant).fit(form), reference)
        assert_same_fit(small(variant).partial_fit(form), stream)
        assert_array_equal(reference.predict_proba(form), reference.predict_proba(sequences))
        assert reference.score(form, [0, 1, 1]) == reference.score(sequences)
        with pytest.raises(ValueError, match="leave groups and lengths out"):
            reference.predict(form, lengths=[12, 12, 12])


def test_parts_are_lists_of_series(rng):
    flat, columns = series(rng, "gaussian", [30, 12, 21])
    one = small().fit(Shards([flat[:1], flat[1:]]))
    assert one.n_sequences_ == 3
    assert_same_fit(one, small().fit(Shards([columns[:1], columns[1:]])))
    assert_same_fit(one, small().fit(Shards([flat[:1], columns[1:]])))
    with pytest.raises(ValueError, match=r"Part 1.*list of whole sequences.*list\(X\)"):
        small().fit(Shards([flat, np.zeros((2, 5, 1))]))
    with pytest.raises(ValueError, match=r"Part 1.*has no sequences.*\[X\]"):
        small().fit(Shards([flat, [[0.5], [1.5]]]))


def test_none_stands_for_the_states_of_a_sequence_without_known_ones(rng):
    sequences = draw("gaussian-full", rng, [12, 5, 7])
    known = [np.zeros(12, dtype=int), np.full(5, -1), np.ones(7, dtype=int)]
    reference = small().fit(sequences, states=known)
    objects = np.empty(3, dtype=object)
    objects[:] = [known[0], None, known[2]]
    for states in ([known[0], None, known[2]], (known[0], None, known[2]), objects):
        assert_same_fit(small().fit(sequences, states=states), reference)
        assert_same_fit(
            small().partial_fit(sequences, states=states),
            small().partial_fit(sequences, states=known),
        )
    nothing = small().fit(sequences, states=[None, None, None])
    assert_same_fit(nothing, small().fit(sequences))
    with pytest.raises(ValueError, match="2 arrays, but there are 3 sequences"):
        small().fit(sequences, states=[known[0], None])


def test_states_of_an_array_of_sequences_have_its_form(rng):
    X = np.stack(draw("gaussian-full", rng, [12, 12]))
    states = np.repeat([[0], [1]], 12, axis=1)
    reference = small().fit(list(X), states=list(states))
    assert_same_fit(small().fit(X, states=states), reference)
    with pytest.raises(ValueError, match="states is an array with one dimension"):
        small().fit(X, states=np.zeros((24, 1), dtype=int))


@pytest.mark.parametrize("method", METHODS)
def test_groups_without_a_value_are_refused(method, rng):
    pd = pytest.importorskip("pandas")
    (X,) = draw("gaussian-full", rng, [20])
    call = getattr(small().fit(X), method)
    days = np.repeat(np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[ns]"), 10)
    call(X, groups=days)
    call(X, groups=days - days[0])
    for ids, unknown in [
        (days, np.datetime64("NaT")),
        (days - days[0], np.timedelta64("NaT")),
        (np.repeat([0.0, 1.0], 10), np.nan),
        (np.repeat(["a", "b"], 10).astype(object), None),
        (np.repeat(["a", "b"], 10).astype(object), np.nan),
        (np.repeat(["a", "b"], 10).astype(object), pd.NA),
        (np.repeat([pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-02")], 10), pd.NaT),
    ]:
        ids = ids.copy()
        ids[12:14] = unknown
        with pytest.raises(ValueError, match="groups has .* for row 12, but every row belongs"):
            call(X, groups=ids)


# Symbols


@pytest.mark.parametrize("method", [*READERS, "partial_fit"])
@pytest.mark.parametrize("n_symbols", [3, None])
def test_undeclared_symbol_is_named(method, n_symbols):
    est = small("categorical", n_symbols=n_symbols).fit(symbols([0, 1, 2, 1], [2, 2, 0]))
    assert est.emissionprob_.shape == (2, 3)
    with pytest.raises(ValueError, match=r"7.*n_symbols=") as caught:
        getattr(est, method)(symbols([0, 7]))
    assert "3" in str(caught.value)


def test_symbols_are_declared_or_inferred_in_fit_alone():
    data = symbols([0, 1, 5, 1], [2, 2, 0])
    assert small("categorical", n_symbols=None).fit(data).emissionprob_.shape == (2, 6)
    assert small("categorical", n_symbols=9).fit(data).emissionprob_.shape == (2, 9)
    with pytest.raises(ValueError, match=r"5.*n_symbols="):
        small("categorical", n_symbols=5).fit(data)
    stream = small("categorical", n_symbols=None)
    with pytest.raises(ValueError, match="n_symbols"):
        stream.partial_fit(data)
    assert not hasattr(stream, "lower_bound_")
    stream.set_params(n_symbols=6).partial_fit(data)
    assert stream.emissionprob_.shape == (2, 6)


@pytest.mark.parametrize("symbol", [0.5, -2, -0.5, 1e300])
@pytest.mark.parametrize("method", ["fit", "partial_fit", "predict"])
def test_what_is_no_symbol_is_refused(method, symbol):
    est = small("categorical").fit(symbols([0, 1, 2, 1]))
    with pytest.raises(ValueError, match="[Ss]ymbol"):
        getattr(est, method)(np.array([[0.0], [symbol], [1.0]]))


def test_categorical_has_one_column():
    with pytest.raises(ValueError, match="one column.*2"):
        small("categorical").fit(np.zeros((5, 2)))


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16, np.float32, np.float64])
def test_symbols_of_any_dtype(dtype, rng):
    data = draw("categorical", rng, [30, 20])
    assert_same_fit(
        small("categorical").fit(data), small("categorical").fit([X.astype(dtype) for X in data])
    )


@pytest.mark.parametrize(
    ("variant", "bad"), [("poisson", -1.0), ("poisson", 0.5), ("bernoulli", 2.0)]
)
def test_values_outside_of_the_support_are_refused(variant, bad, rng):
    (X,) = draw(variant, rng, [10])
    X[4, 1] = bad
    with pytest.raises(ValueError, match=f"{bad:g}"):
        small(variant).fit(X)


def test_emission_is_never_guessed(rng):
    X = rng.integers(0, 2, size=(40, 2))
    est = AnnealedHMM(2, annealing="none", max_iter=2, random_state=0).fit(X)
    assert est.emission == "gaussian"
    assert est.means_.shape == (2, 2)
    assert not hasattr(est, "emissionprob_")


@pytest.mark.parametrize("kind", ["Int64", "int64", "polars"])
def test_series_of_symbols_are_sequences(kind):
    if kind == "polars":
        series = pytest.importorskip("polars").Series
    else:
        series = partial(pytest.importorskip("pandas").Series, dtype=kind)
    values = [[0, 1, 1, 0, 2], [2, 2, 1]]
    est = small("categorical", n_symbols=None)
    found = est.fit([series(each) for each in values]).transmat_
    assert_array_equal(found, est.fit([np.array(each) for each in values]).transmat_)


def test_another_fit_of_blocks_forgets_the_symbols_of_the_last(rng):
    """Predictions know the symbols of the fit, and so do later batches of a stream."""
    X = np.column_stack([rng.integers(3, size=40), rng.standard_normal(40)])
    blocks = [("symbols", "categorical", [0]), ("sizes", "gaussian", [1])]
    est = AnnealedHMM(2, emission=blocks, annealing="none", max_iter=3, tol=1e3)
    assert est.fit(X).blocks_["symbols"].n_categories_ == 3
    more = X + [2, 0]
    with pytest.raises(ValueError, match="symbols"):
        est.predict(more)
    assert est.fit(more).blocks_["symbols"].n_categories_ == 5
    assert len(est.predict(X)) == 40


def test_lists_of_numbers_of_different_lengths_are_answered_with_a_way_out():
    sequences = [[0.0, 1.0, 2.0], [1.0, 2.0]]
    with pytest.raises(ValueError, match=r"numpy.asarray\(sequence\) for sequence in X"):
        small().fit(sequences)
    assert small().fit([np.asarray(sequence) for sequence in sequences]).n_sequences_ == 2


def test_frames_of_different_lengths_are_refused_in_a_sentence():
    est = AnnealedHMM(2, max_iter=2, effort=0, random_state=0).fit(np.ones((9, 2)) * [[0.5, 1.0]])
    ragged = [[[1.0, 2.0], [3.0, 4.0]], [[1.0], [2.0, 3.0]]]
    for call in (est.predict, est.score, AnnealedHMM(2).fit):
        with pytest.raises(ValueError, match="frames of a sequence have different numbers"):
            call(ragged)


def test_an_empty_list_has_no_sequences():
    with pytest.raises(ValueError, match="There is no sequence: the list is empty"):
        AnnealedHMM(2).fit([])


@pytest.mark.parametrize("form", [iter, lambda sequences: dict(enumerate(sequences))])
def test_sequences_that_are_no_list_are_refused_with_the_call_that_makes_one(form, rng):
    sequences = list(rng.normal(size=(3, 5, 2)))
    est = small().fit(sequences)
    for call in (est.predict, est.score, est.fit, est.partial_fit):
        with pytest.raises(TypeError, match=r"list\(X.*\) makes a list"):
            call(form(sequences))
