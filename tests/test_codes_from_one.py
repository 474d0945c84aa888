"""Codes that begin with 1, where the number that is declared counts them from 0."""

from __future__ import annotations

import numpy as np
import pytest

from sklearn_anneal import AnnealedBayesianMixture, AnnealedHMM, AnnealedPMF

HINT = r"counted from 0, and no 0 occurs: if yours begin with 1, give {} - 1\."


def answers(codes):
    """A mixture of two columns of answers, of which the second one has these codes."""
    X = np.column_stack([np.tile([0, 1, 2], 20), np.resize(codes, 60)])
    model = AnnealedBayesianMixture(2, emission="categorical", n_categories=3, max_iter=2)
    return model.set_params(annealing="none"), {"X": X}, "X"


def answers_in_blocks(codes):
    model, how, name = answers(codes)
    return model.set_params(emission=[("answers", "categorical", [0, 1])]), how, name


def symbols(codes):
    how = {"X": np.resize(codes, 60)[:, None]}
    return AnnealedHMM(2, emission="categorical", n_symbols=3, annealing="none"), how, "X"


def states(codes):
    how = {"X": np.linspace(0, 1, 60)[:, None], "states": np.resize(codes, 60).astype(int)}
    return AnnealedHMM(3, annealing="none"), how, "states"


def users(codes):
    pairs = np.column_stack([np.resize(codes, 60), np.tile([0, 1, 2, 3, 4], 12)])
    how = {"X": pairs.astype(int), "y": np.linspace(1, 5, 60)}
    return AnnealedPMF(2, input="pairs", n_users=3, annealing="none"), how, r"X\[:, 0\]"


def items(codes):
    pairs = np.column_stack([np.tile([0, 1, 2, 3, 4], 12), np.resize(codes, 60)])
    how = {"X": pairs.astype(int), "y": np.linspace(1, 5, 60)}
    return AnnealedPMF(2, input="pairs", n_items=3, annealing="none"), how, r"X\[:, 1\]"


KINDS = [answers, answers_in_blocks, symbols, states, users, items]


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_of_codes_from_one_says_what_to_subtract(kind):
    model, how, name = kind([1, 2, 3])
    with pytest.raises(ValueError, match=HINT.format(name)):
        model.fit(**how)
    model, how, _ = kind([0, 1, 2])
    model.fit(**how)


@pytest.mark.parametrize("codes", [[0, 1, 3], [1, 2, 4], [1, 2, 3, 7]])
@pytest.mark.parametrize("kind", KINDS)
def test_other_codes_beyond_the_declared_number_have_another_reason(kind, codes):
    model, how, _ = kind(codes)
    with pytest.raises(ValueError) as error:
        model.fit(**how)
    assert "counted from 0" not in str(error.value)


@pytest.mark.parametrize("kind", [answers, symbols])
def test_missing_codes_are_no_codes(kind):
    model, how, name = kind([1.0, np.nan, 2.0, 3.0])
    with pytest.raises(ValueError, match=HINT.format(name)):
        model.fit(**how)
