"""Reading sequences in any of the forms that users may give, with checks of each form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.utils.validation import _num_samples

from ..data.units import Sequences
from ..models._known_states import impossible_sequence
from ._tables import joined_frames, refuse_lazy
from ._validation import (
    hint_of_one,
    masked_as_nan,
    read_array,
    refuse_unobserved_columns,
    without_value,
)


@dataclass(frozen=True)
class SequenceData:
    """The frames of all sequences, one after another, and the length of each sequence."""

    X: Any
    lengths: np.ndarray
    # The known states of frames, and −1 elsewhere; None if no state is known.
    states: np.ndarray | None = None
    n_symbols: int | None = None  # the number of symbols that frames may have, if it is declared
    # The numbers of categories that are declared, or those of a fit, by the name of the block.
    levels: dict[str, object] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of frames; callbacks read the number of frames from it."""
        return self.X.shape

    @property
    def indptr(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    def take(self, chosen: np.ndarray) -> SequenceData:
        """Return those sequences that a mask chooses; the frames must be an array."""
        frames = np.repeat(chosen, self.lengths)
        states = None if self.states is None else self.states[frames]
        return replace(self, X=self.X[frames], lengths=self.lengths[chosen], states=states)


def concat_sequences(sequences):
    """Put sequences one after another, with the number of its sequence beside each frame.

    Parameters
    ----------
    sequences : list or tuple of array-like of shape (n_frames, n_features)
        Arrays or data frames with equal columns. A 1-D array is taken as one column, and masked
        entries of masked arrays become NaN.

    Returns
    -------
    X : ndarray or data frame of shape (n_frames, n_features)
        All frames in their order.
    groups : ndarray of int, shape (n_frames,)
        0 for the frames of the first sequence, 1 for those of the second, and so on.

    Raises
    ------
    ValueError
        If there is no sequence, if one has no frame, or if their columns differ.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import concat_sequences
    >>> X, groups = concat_sequences([np.zeros((2, 1)), np.ones((3, 1))])
    >>> groups
    array([0, 0, 1, 1, 1])
    """
    sequences = [_as_columns(sequence) for sequence in sequences]
    if any(map(issparse, sequences)):
        raise ValueError("A sequence is sparse, but frames are dense: use its toarray() method.")
    if not sequences:
        raise ValueError("There is no sequence: the list is empty.")
    for i, sequence in enumerate(sequences):
        if sequence.shape[0] == 0:
            raise ValueError(f"Sequence {i} has no frames. Leave it out.")
        if sequence.shape[1] != sequences[0].shape[1]:
            raise ValueError(
                f"Sequence {i} has {sequence.shape[1]} columns, but the first one has "
                f"{sequences[0].shape[1]}."
            )
    groups = np.repeat(np.arange(len(sequences)), [sequence.shape[0] for sequence in sequences])
    if all(hasattr(sequence, "columns") for sequence in sequences):
        for i, sequence in enumerate(sequences):
            if list(sequence.columns) != list(sequences[0].columns):
                raise ValueError(f"The columns of sequence {i} are not those of the first one.")
    joined = joined_frames(sequences)
    if joined is None:
        joined = np.concatenate([np.asarray(sequence) for sequence in sequences])
    return joined, groups


def split_sequences(A, lengths):
    """Cut an array with one row per frame into one array per sequence.

    Parameters
    ----------
    A : array-like of shape (n_frames, ...)
        For example the result of ``predict_proba`` for a list of sequences.
    lengths : array-like of int, shape (n_sequences,)
        Number of frames of each sequence.

    Returns
    -------
    sequences : list of ndarray
        Views of the array.

    Raises
    ------
    ValueError
        If the lengths do not sum to the number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import split_sequences
    >>> split_sequences(np.arange(5), [2, 3])
    [array([0, 1]), array([2, 3, 4])]
    """
    A = np.asarray(A)
    return np.split(A, np.cumsum(_checked_lengths(lengths, len(A)))[:-1])


def _as_columns(sequence: object) -> Any:
    sequence = masked_as_nan(sequence)
    if not hasattr(sequence, "shape"):
        try:
            sequence = np.asarray(sequence)
        except ValueError:
            raise ValueError(
                "The frames of a sequence have different numbers of values. Give NaN for values "
                "that are missing."
            ) from None
    if len(sequence.shape) == 1:
        sequence = np.asarray(sequence).reshape(-1, 1)
    if len(sequence.shape) != 2:
        raise ValueError(f"A sequence has 2 dimensions, but one has {len(sequence.shape)}.")
    return sequence


def listed_sequences(X: Any) -> list | None:
    """Return the sequences that ``X`` consists of, as a list; None if ``X`` is one table.

    Sequences are the elements of a list, of a tuple or of a 1-D array of objects if each of them is
    an array, a data frame or a series with one or two dimensions, or a list of rows; and the
    matrices of an array with three dimensions. A list of lists of numbers is a table of frames, and
    an empty list has no sequences. A dictionary and a generator are refused.
    """
    if isinstance(X, Mapping | Iterator) and not issparse(X):  # scipy has sparse dictionaries
        made = "list(X.values())" if isinstance(X, Mapping) else "list(X)"
        raise TypeError(
            f"X is a {type(X).__name__}, but sequences come as a list of arrays or data frames, or "
            f"as one array with lengths or groups: {made} makes a list."
        )
    n_dimensions = len(getattr(X, "shape", ()))
    if n_dimensions == 3:
        return [X[i] for i in range(X.shape[0])]
    kind = getattr(getattr(X, "dtype", None), "kind", "")  # dtypes of other libraries have none
    if n_dimensions == 1 and kind == "O":
        X = list(X)
    if isinstance(X, list | tuple) and all(map(_is_sequence, X)):
        return list(X)
    return None


def _is_sequence(element: object) -> bool:
    if hasattr(element, "shape"):
        return len(element.shape) in (1, 2)
    return isinstance(element, list | tuple) and len(element) > 0 and all(map(_is_row, element))


def _is_row(element: object) -> bool:
    return isinstance(element, list | tuple) or len(getattr(element, "shape", ())) == 1


def _one_dimensional(values: object, name: str) -> np.ndarray:
    values = read_array(values, name)
    if values.ndim != 1:
        raise ValueError(
            f"{name} is an array with one dimension, but has {values.ndim} dimensions."
        )
    return values


def _checked_lengths(lengths: object, n_rows: int) -> np.ndarray:
    lengths = _one_dimensional(lengths, "lengths")
    if not np.issubdtype(lengths.dtype, np.integer) or (lengths < 1).any():
        raise ValueError("lengths are the numbers of frames of the sequences, integers above 0.")
    # Python's integers are added, because a sum of fixed-width integers can wrap around and equal
    # the number of rows by accident.
    total = sum(lengths.tolist())
    if total != n_rows:
        raise ValueError(
            f"lengths sum to {total}, but X has {n_rows} rows: they are the numbers of rows of "
            "each sequence, in the order of the rows."
        )
    return lengths.astype(np.int64)


def _lengths_of_groups(groups: object, n_rows: int) -> np.ndarray:
    groups = _one_dimensional(groups, "groups")
    if len(groups) != n_rows:
        raise ValueError(
            f"groups has {len(groups)} entries, but X has {n_rows} rows: it holds the id of its "
            "sequence for every row. Use lengths= for the numbers of rows of each sequence."
        )
    unknown = np.flatnonzero(without_value(groups))
    if len(unknown):
        raise ValueError(
            f"groups has {groups[unknown[0]]!r} for row {unknown[0]}, but every row belongs to a "
            "sequence: fill in the ids that are missing, or leave these rows out."
        )
    try:
        _, ids = np.unique(groups, return_inverse=True)
    except TypeError:
        raise ValueError("groups must be ids of one kind, all numbers or all strings.") from None
    starts = np.flatnonzero(np.append(True, np.diff(ids) != 0))
    again = len(starts) - int(ids.max()) - 1
    if again:
        raise ValueError(
            "groups must be consecutive: the rows of a sequence follow each other, but an id comes "
            f"back after another one ({again} times). Sort the rows by sequence and time."
        )
    return np.diff(np.append(starts, n_rows)).astype(np.int64)


def read_sequences(X: Any, groups: Any, lengths: Any, categorical: bool) -> SequenceData:
    """Check sequences and bring them into one form, in whichever form the user gave them."""
    if isinstance(X, SequenceData):
        return X
    refuse_lazy(X)
    sequences = listed_sequences(X)
    if sequences is not None:
        if groups is not None or lengths is not None:
            raise ValueError(
                "X is a list of sequences, or an array of such, which says where each of them "
                "begins: leave groups and lengths out."
            )
        X, groups = concat_sequences(sequences)
    if groups is not None and lengths is not None:
        raise ValueError("Give groups or lengths, not both.")
    X = masked_as_nan(X)
    if not hasattr(X, "shape"):
        try:
            X = np.asarray(X)
        except ValueError as error:
            raise ValueError(
                "X is neither an array of numbers nor a list of sequences, whose elements are all "
                "2-D arrays, data frames or 1-D arrays of numbers. Lists of numbers are rows of a "
                "table: make each sequence an array, [numpy.asarray(sequence) for sequence in X] "
                f"({error})."
            ) from error
    if categorical and len(X.shape) == 1:
        X = _as_columns(X)
    n_rows = X.shape[0] if len(X.shape) else 0
    if lengths is not None:
        return SequenceData(X, _checked_lengths(lengths, n_rows))
    if groups is not None:
        return SequenceData(X, _lengths_of_groups(groups, n_rows))
    return SequenceData(X, np.array([n_rows], dtype=np.int64))


def read_states(states: object, data: SequenceData, n_components: int) -> np.ndarray | None:
    """Check states that are known and bring them into one array; None if none is known.

    They are an array with one entry per frame, or a list with one array per sequence; None in the
    list is a sequence without known states. NaN, None and pandas' NA are unknown states like −1.
    """
    if states is None:
        return None
    parts = _states_of_sequences(states, len(data.lengths))
    if parts is not None:
        if len(parts) != len(data.lengths):
            raise ValueError(
                f"states has {len(parts)} arrays, but there are {len(data.lengths)} sequences."
            )
        for i, length in enumerate(data.lengths.tolist()):
            if parts[i] is None:
                parts[i] = np.full(length, -1)
            parts[i] = part = _one_dimensional(parts[i], f"states of sequence {i}")
            if len(part) != length:
                raise ValueError(
                    f"states has {len(part)} entries for sequence {i}, which has {length} frames."
                )
        states = np.concatenate(parts)
    states = _one_dimensional(states, "states")
    if len(states) != data.shape[0]:
        raise ValueError(
            f"states has {len(states)} entries, but X has {data.shape[0]} rows: it has one entry "
            "per frame, −1 where the state is not known."
        )
    states = _integers(states)
    wrong = states[(states < -1) | (states >= n_components)]
    if len(wrong):
        raise ValueError(
            f"states has {wrong[0]}, but with n_components={n_components} states are numbered from "
            f"0 to {n_components - 1}, and −1 where they are not known."
            + hint_of_one(states, n_components, "states")
        )
    return states.astype(np.intp) if (states >= 0).any() else None


def _integers(states: np.ndarray) -> np.ndarray:
    """Return states as integers, −1 for NaN, None and pandas' NA."""
    wanted = "states are integers, the number of the state of each frame, or −1 where it is unknown"
    if states.dtype.kind in "iu":
        return states
    reads = states.dtype.kind in ("f", "O")
    unknown = without_value(states) if reads else np.zeros(len(states), bool)
    known = states[~unknown].tolist()
    if not all(isinstance(v, Real) and not isinstance(v, bool) for v in known):
        raise ValueError(f"{wanted}, but their dtype is {states.dtype}.")
    # The rest is NaN for infinity. Numbers of Python can be larger than those of numpy.
    wrong = [v for v in known if v % 1 != 0 or abs(v) > np.iinfo(np.int64).max]
    if wrong:
        raise ValueError(f"{wanted}, but one of them is {wrong[0]}.")
    found = np.full(len(states), -1)
    found[~unknown] = known
    return found


def any_known_state(data: SequenceData, sample_weight: np.ndarray | None) -> bool:
    """Whether the state of some frame is known, in a sequence whose weight is not zero."""
    if data.states is None:
        return False
    known = data.states >= 0
    if sample_weight is not None:
        known &= np.repeat(sample_weight > 0, data.lengths)
    return bool(known.any())


def _states_of_sequences(states: object, n_sequences: int) -> list | None:
    """Return the states of each sequence; None if ``states`` has one entry per frame."""
    if isinstance(states, np.ndarray) and (states.dtype == object or states.ndim == 2):
        # A matrix has the states of sequences of equal lengths, in the form of a 3-D array of X.
        if states.ndim == 1 or len(states) == n_sequences:
            states = list(states)
    if not isinstance(states, list | tuple) or len(states) == 0:
        return None
    given = [part for part in states if part is not None]
    if any(np.ndim(part) == 0 for part in given) or (not given and len(states) != n_sequences):
        return None
    return list(states)


def check_targets(y: Any, X: Any, data: SequenceData) -> None:
    """Check that a y, which is ignored, has one entry per row, or per sequence if X is a list."""
    if y is None or not data.shape or _num_samples(y) == data.shape[0]:
        return  # An X without rows, such as None, is refused later.
    # A search over a list of sequences splits a y with one entry per sequence. So do callbacks.
    listed = isinstance(X, SequenceData) or listed_sequences(X) is not None
    if listed and _num_samples(y) == len(data.lengths):
        return
    per_sequence = f" of {len(data.lengths)} sequences" if listed else ""
    raise ValueError(
        f"y has {_num_samples(y)} entries, but X has {data.shape[0]} rows{per_sequence}. It is "
        "ignored if it has one entry per row, or per sequence of a list; did you mean lengths=?"
    )


def refuse_all_missing(units: Sequences) -> None:
    """Raise a ValueError if no frame is observed, or if a column has no observed cell."""
    if units.patterns is not None:
        refuse_unobserved_columns(units.observed())
    if units.missing is not None and units.missing.all():
        raise ValueError(
            "All frames of X are missing (or have weight zero), so there is nothing to learn from."
        )


def refuse_impossible(
    units: Sequences,
    startprob_prior: np.ndarray,
    transmat_prior: np.ndarray,
    shapes: np.ndarray | None,
) -> None:
    """Raise a ValueError if known states of a sequence need what the priors, or shapes, forbid."""
    number = impossible_sequence(units, startprob_prior, transmat_prior, shapes)
    if number is not None:
        shorter = "" if shapes is None else ", or a segment has fewer frames than duration"
        raise ValueError(
            f"Sequence {number} cannot happen: startprob_prior or transmat_prior forbids every "
            f"path through the states that are given for it{shorter}. Correct its states, or give "
            "the starts and transitions that it needs a prior above 0."
        )


def refuse_late_names() -> NoReturn:
    """Refuse known states after data that had none."""
    raise ValueError(
        "states has known states, but the states of the earlier data were numbered without any, so "
        "that the numbers would not mean the same. Give known states from the first batch (or fit) "
        "on, or fit anew."
    )


def refuse_part(X: ArrayLike) -> None:
    """Refuse a part of data in parts that is no list of sequences."""
    if not isinstance(X, list | tuple) or listed_sequences(X) is None:
        given = "is of" if not isinstance(X, list | tuple) else "has no sequences; it is of"
        raise ValueError(
            "With data in parts, every part is a list of whole sequences, but this one "
            f"{given} the type {type(X).__name__}. Give [X] for one sequence X, and list(X) "
            "for an array of sequences."
        )


def weights_of_frames(weights: Any, X: Any) -> np.ndarray:
    """Return one weight per row of a part, given one per sequence."""
    lengths = [len(sequence) for sequence in X]
    if np.shape(weights) != (len(lengths),):
        raise ValueError(
            "with data in parts, sample_weight has one weight per sequence: expected "
            f"{len(lengths)}, but its shape is {np.shape(weights)}"
        )
    return np.repeat(np.asarray(weights, dtype=np.float64), lengths)


def refuse_one_weight_each(weights: Any, data: SequenceData) -> None:
    """Refuse weights of sequences in the place of those of rows."""
    n_sequences, n_rows = len(data.lengths), int(data.indptr[-1])
    if np.asarray(weights).shape == (n_sequences,) and n_sequences != n_rows:
        raise ValueError(
            f"sample_weight has {n_sequences} entries, one per sequence, but needs one per row, "
            f"{n_rows} in all: np.repeat(sample_weight, lengths) repeats those of the sequences."
        )


def weights_of_sequences(weights: np.ndarray, data: SequenceData) -> np.ndarray:
    """Return one weight per sequence, given one per row."""
    each = weights[data.indptr[:-1]]
    if not np.array_equal(np.repeat(each, data.lengths), weights):
        raise ValueError(
            "sample_weight has one entry per row, but must be constant within a sequence, because "
            "weights are those of whole sequences."
        )
    return each


def draw_states(
    start: np.ndarray, transitions: np.ndarray, random_state: np.random.RandomState, n_frames: int
) -> np.ndarray:
    """Draw the states of one sequence from a Markov chain."""
    uniform = random_state.random_sample(n_frames)
    # The last limit is 1 without rounding, so that no state of probability 0 is ever drawn.
    limits = np.cumsum(transitions, axis=1)
    limits /= limits[:, -1:]
    states = np.empty(n_frames, dtype=np.int64)
    limit = np.cumsum(start)
    limit /= limit[-1]
    for t in range(n_frames):
        states[t] = np.searchsorted(limit, uniform[t], "right")
        limit = limits[states[t]]
    return states


def refuse_beside_parts(**given: object) -> None:
    """Refuse beginnings or states of sequences beside data in parts."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} cannot be given with data in parts: every part is a list of whole "
                "sequences."
            )
