"""Displays of hidden Markov models: transition matrices, and series over their states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..estimators._base import BaseAnnealed
from ..estimators._emissions import emission_named
from ..estimators._emissions.categorical import SymbolEmission
from ..estimators._sequences import read_sequences
from ._plotting import COLORS, choose, import_pyplot, new_axes, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CELL = 0.52  # inches
_MOST_VALUES = 15
# Black is kept for the series. Yellow, too pale for a line, is clear enough for an area.
_STATE_COLORS = (*COLORS[:6], "#f0e442", COLORS[7])
_HATCHES = (None, "///", "...", "xxx")
_INKS = ("#000000", "#8b1a1a", "#14507a", "#1d6b3a")
_STYLES = ("-", (0, (4, 1.5)), (0, (1, 1)))


class TransitionMatrixDisplay:
    """Transition probabilities of a hidden Markov model.

    Each row belongs to a state and holds the probabilities of the state of the next frame. Staying
    in a state is usually far more probable than any move to another one. The scale of colours
    therefore covers the moves alone; the diagonal is grey, with its values in bold. The expected
    number of frames of a stay, 1 / (1 − p), is on the right.

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    transitions : array-like of shape (n_states, n_states)
        Probabilities, one row for each state to leave.
    numbers : sequence of int of length n_states, default=None
        Numbers of the states for the labels; None: 0, 1, ….
    shares : array-like of shape (n_states,), default=None
        Shares of the frames, from 0 to 1, for the labels; None: they are left out.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes that hold the picture.
    figure_ : matplotlib Figure
        The figure of these axes.
    im_ : matplotlib AxesImage
        The cells; those of the diagonal are masked.
    text_ : ndarray of shape (n_states, n_states) of matplotlib Text, or None
        The values, where they were drawn.

    See Also
    --------
    StateSequenceDisplay : A series and the states of its frames.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedHMM
    >>> from sklearn_anneal.inspection import TransitionMatrixDisplay
    >>> states = np.repeat([0, 1, 2] * 4, 20)
    >>> X = 5.0 * states[:, None] + np.random.default_rng(0).standard_normal((240, 1))
    >>> hmm = AnnealedHMM(3, random_state=0).fit(X)
    >>> display = TransitionMatrixDisplay.from_estimator(hmm)
    >>> plt.show()
    >>> display.text_.shape
    (3, 3)
    """

    def __init__(self, *, transitions, numbers=None, shares=None):
        self.transitions = transitions
        self.numbers = numbers
        self.shares = shares

    def plot(
        self, ax=None, *, include_values=None, values_format=None, im_kwargs=None, text_kwargs=None
    ):
        """Draw the matrix.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            The axes to draw on; None: a new figure.
        include_values : bool, default=None
            Whether the probabilities are written into the cells; otherwise a colour bar takes their
            place. None: they are written if there are at most 15 states.
        values_format : str, default=None
            Format of the values; None: two decimals, and more where the moves are rare or staying
            would be rounded to 1.
        im_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.imshow``.
        text_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.text`` for every value.

        Returns
        -------
        display : TransitionMatrixDisplay
            This object, with ``ax_``, ``figure_``, ``im_`` and ``text_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        plt = import_pyplot(f"{type(self).__name__}.plot")
        p = np.asarray(self.transitions, dtype=float)
        n_states = len(p)
        if ax is None:
            side = max(_CELL * n_states, 2.2)
            _, ax = plt.subplots(figsize=(side + 1.9, side + 0.8), layout="constrained")
        moves = np.ma.masked_array(p, mask=np.eye(n_states, dtype=bool))
        most = float(moves.max()) if n_states > 1 else 0.0
        style = {"cmap": "Blues", "vmin": 0.0, "vmax": max(most, 1e-12), **(im_kwargs or {})}
        ax.set_facecolor("0.88")
        self.im_ = ax.imshow(moves, **style)

        self.text_ = None
        if n_states <= _MOST_VALUES if include_values is None else include_values:
            self.text_ = self._write(ax, p, values_format, text_kwargs)
        else:
            bar = {"shrink": 0.75, "aspect": 25, "pad": 0.02}
            ax.figure.colorbar(self.im_, ax=ax, label="Probability of a move", **bar)
        positions = np.arange(n_states)
        numbers = positions if self.numbers is None else self.numbers
        names = [str(number) for number in numbers]
        ax.set_xticks(positions, names)
        if self.shares is not None:
            names = [
                f"{name}  ({100 * share:.0f} %)"
                for name, share in zip(names, self.shares, strict=True)
            ]
        ax.set_yticks(positions, names)
        ax.set_xlabel("To state")
        ax.set_ylabel("From state" if self.shares is None else "From state (share of frames)")
        right = ax.secondary_yaxis("right")
        right.set_yticks(positions, [_stay(value) for value in np.diag(p)])
        right.set_ylabel("Expected stay (frames)")
        ax.set_xticks(positions[1:] - 0.5, minor=True)
        ax.set_yticks(positions[1:] - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1.5)
        for axis in (ax, right):
            axis.tick_params(which="both", length=0)
            axis.spines[:].set_visible(False)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _write(self, ax: Axes, p: np.ndarray, form: str | None, text_kwargs: Any) -> np.ndarray:
        """Write the values into the cells, and moves that are rounded to 0 in a paler colour."""
        most = self.im_.get_array().max() if len(p) > 1 else 0.0
        moves = form or f".{2 + int(most < 0.1) + int(most < 0.01)}f"
        texts = np.empty(p.shape, dtype=object)
        for i, j in np.ndindex(*p.shape):
            probability = float(p[i, j])
            value, color, weight = format(probability, moves), "0.25", "normal"
            if i == j:
                value = format(probability, form or _digits(probability))
                color, weight = "black", "bold"
            elif _luminance(self.im_, probability) < 0.5:
                color = "white"
            elif probability < 0.5 * 10.0 ** -len(value.partition(".")[2]):
                color = "0.65"
            style = {
                "ha": "center",
                "va": "center",
                "color": color,
                "fontweight": weight,
                "fontsize": "small",
                **(text_kwargs or {}),
            }
            texts[i, j] = ax.text(j, i, value, **style)
        return texts

    @classmethod
    def from_estimator(
        cls,
        estimator,
        *,
        states=None,
        ax=None,
        include_values=None,
        values_format=None,
        im_kwargs=None,
        text_kwargs=None,
    ):
        """Draw the transition probabilities of a fitted hidden Markov model.

        Parameters
        ----------
        estimator : estimator instance
            Fitted :class:`sklearn_anneal.AnnealedHMM`, or a variational model of hmmlearn.
        states : int or sequence of int, default=None
            An int n: the n states with the largest expected time in the training set. A sequence:
            the states with these numbers, in this order. None: all states with more than one
            expected frame, the largest time first. If some states are left out, the rows do not
            sum to 1.
        ax : matplotlib Axes, default=None
            The axes to draw on; None: a new figure.
        include_values : bool, default=None
            Whether the probabilities are written into the cells. None: they are written if there
            are at most 15 states.
        values_format : str, default=None
            Format of the values; None: two decimals, and more where the moves are rare or staying
            would be rounded to 1.
        im_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.imshow``.
        text_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.text`` for every value.

        Returns
        -------
        display : TransitionMatrixDisplay

        Raises
        ------
        TypeError
            If the estimator is no variational hidden Markov model.
        ValueError
            If ``states`` does not fit the model.
        sklearn.exceptions.NotFittedError
            If the estimator is not fitted.
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "transmat_posterior_"):
            raise TypeError(
                f"{cls.__name__} draws transitions of AnnealedHMM or of a variational model of "
                f"hmmlearn, but got {type(estimator).__name__}. Give transitions= to the class "
                "itself for those of any other model."
            )
        transitions, frames = _of_frames(estimator)
        chosen = choose(states, frames, "states", "frame")
        display = cls(
            transitions=transitions[np.ix_(chosen, chosen)],
            numbers=[int(k) for k in chosen],
            shares=frames[chosen] / max(float(frames.sum()), np.finfo(float).tiny),
        )
        return display.plot(
            ax,
            include_values=include_values,
            values_format=values_format,
            im_kwargs=im_kwargs,
            text_kwargs=text_kwargs,
        )


def _of_frames(estimator: BaseAnnealed) -> tuple[np.ndarray, np.ndarray]:
    """Return the transitions from frame to frame, and the expected frames of each state."""
    transitions = estimator.transmat_
    # The sequences added their expected numbers of frames in each state to the priors.
    first = estimator.startprob_posterior_ - estimator.startprob_prior_
    others = estimator.transmat_posterior_ - estimator.transmat_prior_
    into = others.sum(axis=0)
    duration = getattr(estimator, "duration", "geometric")
    if not (isinstance(duration, str) and duration == "geometric"):
        # Only jumps are counted in the transitions. Each frame but the last one of a sequence is
        # followed by one of the same state or by a jump.
        followed = (estimator.leaveprob_posterior_ - estimator.leaveprob_prior_).sum(axis=1)
        into = followed + into - others.sum(axis=1)
        leaves = 1.0 / estimator.expected_durations_
        transitions = leaves[:, None] * transitions + np.diag(1.0 - leaves)
    return transitions, np.maximum(first + into, 0.0)


def _luminance(image: Any, value: float) -> float:
    red, green, blue, _ = image.cmap(image.norm(value))
    return 0.3 * red + 0.59 * green + 0.11 * blue


def _digits(p: float) -> str:
    """A format with two decimals, or with more if the probability would be rounded to 1."""
    return f".{next((n for n in (2, 3, 4) if round(p, n) < 1.0), 2)}f"


def _stay(p: float) -> str:
    """The expected number of frames of a stay, written out; p is the probability of staying."""
    return "∞" if p >= 1.0 else f"{1.0 / (1.0 - p):.3g}"


class StateSequenceDisplay:
    """A series over its frames, and behind it the states of a hidden Markov model.

    The states are drawn either as bands, which show the most probable path, or as areas, which
    show the posterior probabilities of the states and together fill the height of the picture at
    each frame. Dotted lines separate the sequences.

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    values : array-like of shape (n_frames, n_columns)
        Values that are drawn as lines, one for each column. NaN leaves a gap.
    states : array-like of shape (n_frames,) or (n_frames, n_components)
        The state of each frame, or the probabilities of its states.
    lengths : array-like of int, shape (n_sequences,), default=None
        Number of frames of each sequence; None: all frames are one sequence.
    names : sequence of str, default=None
        Names of the columns; None: "Column 0", "Column 1", ….

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes that hold the picture.
    figure_ : matplotlib Figure
        The figure of these axes.
    lines_ : list of matplotlib Line2D
        The line of each column.
    bands_ : dict of matplotlib PolyCollection
        The bands or areas, by the number of their state; states that have none are left out.

    See Also
    --------
    TransitionMatrixDisplay : How the states follow each other.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedHMM
    >>> from sklearn_anneal.inspection import StateSequenceDisplay
    >>> states = np.repeat([0, 1, 0, 1], 25)
    >>> X = 5.0 * states[:, None] + np.random.default_rng(0).standard_normal((100, 1))
    >>> hmm = AnnealedHMM(2, random_state=0).fit(X)
    >>> display = StateSequenceDisplay.from_estimator(hmm, X)
    >>> plt.show()
    >>> sorted(display.bands_)
    [0, 1]
    """

    def __init__(self, *, values, states, lengths=None, names=None):
        self.values = values
        self.states = states
        self.lengths = lengths
        self.names = names

    def plot(self, ax=None, *, colors=None, line_kwargs=None, band_kwargs=None):
        """Draw the series over its states.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            The axes to draw on; None: a new figure.
        colors : sequence of matplotlib colors, default=None
            One for each state of the model; None: eight that readers with a colour vision
            deficiency can distinguish, hatched from the ninth state on.
        line_kwargs : dict or sequence of dict, default=None
            Passed to ``matplotlib.pyplot.plot``; a sequence has one for each column.
        band_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.fill_between`` for every state.

        Returns
        -------
        display : StateSequenceDisplay
            This object, with ``ax_``, ``figure_``, ``lines_`` and ``bands_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there are too few ``colors``, or not as many ``line_kwargs`` as columns.
        """
        ax = new_axes(ax, f"{type(self).__name__}.plot")
        values = np.asarray(self.values, dtype=float)
        n_frames, n_columns = values.shape
        styles = [line_kwargs or {}] * n_columns
        if not isinstance(line_kwargs, dict | None):
            styles = list(line_kwargs)
        if len(styles) != n_columns:
            raise ValueError(
                f"line_kwargs should be a dict or have one for each of the {n_columns} columns, "
                f"but has {len(styles)}."
            )
        lengths = [n_frames] if self.lengths is None else self.lengths
        ends = np.cumsum(lengths)[:-1]
        self.bands_ = self._draw_bands(ax, colors, band_kwargs or {})
        names = [f"Column {i}" for i in range(n_columns)] if self.names is None else self.names
        # NaN between two sequences interrupts the lines there.
        frames = np.insert(np.arange(n_frames, dtype=float), ends, np.nan)
        self.lines_ = []
        for i, (name, own) in enumerate(zip(names, styles, strict=True)):
            style = {
                "color": _INKS[i % len(_INKS)],
                "linestyle": _STYLES[i // len(_INKS) % len(_STYLES)],
                "linewidth": 1.2,
                "label": str(name),
                **own,
            }
            series = np.insert(values[:, i], ends, np.nan)
            self.lines_ += ax.plot(frames, series, **style)
        for end in ends:
            ax.axvline(end - 0.5, color="0.2", linewidth=1.0, linestyle=(0, (1, 2)))
        self._add_legend(ax)
        tidy(ax)
        ax.grid(visible=False)
        ax.set_xlim(-0.5, n_frames - 0.5)
        ax.set_xlabel("Frame")
        if n_columns == 1:
            ax.set_ylabel(str(names[0]))
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw_bands(self, ax: Axes, colors: Any, band_kwargs: dict) -> dict[int, Any]:
        """Draw one area per state, whose height is the probability of the state."""
        states = np.asarray(self.states)
        n_states = states.shape[1] if states.ndim == 2 else int(states.max()) + 1
        if colors is not None and len(colors) < n_states:
            raise ValueError(
                f"colors has {len(colors)} entries, but there are states up to {n_states - 1}: it "
                "holds one color for each state of the model."
            )
        if states.ndim == 1:
            states = np.equal.outer(states, np.arange(n_states)).astype(float)
        # Each frame extends from its number − 1/2 to its number + 1/2.
        edges = np.repeat(np.arange(len(states) + 1) - 0.5, 2)[1:-1]
        tops = np.repeat(np.cumsum(states, axis=1), 2, axis=0)
        heights = np.repeat(states, 2, axis=0)
        bands = {}
        for k in range(n_states):
            if not heights[:, k].any():
                continue
            style = {
                "facecolor": _STATE_COLORS[k % len(_STATE_COLORS)] if colors is None else colors[k],
                "alpha": 0.45,
                "linewidth": 0,
                "zorder": 0,
                "label": f"State {k}",
            }
            hatch = _HATCHES[k // len(_STATE_COLORS) % len(_HATCHES)] if colors is None else None
            if hatch is not None:
                style |= {"hatch": hatch, "edgecolor": "white"}
            bands[k] = ax.fill_between(
                edges,
                tops[:, k] - heights[:, k],
                tops[:, k],
                where=heights[:, k] > 0,
                transform=ax.get_xaxis_transform(),
                **{**style, **band_kwargs},
            )
        return bands

    def _add_legend(self, ax: Axes) -> None:
        """Add a legend beside the axes, where it hides nothing.

        A single line is left out, because the label of the vertical axis names it.
        """
        handles = [*self.lines_] if len(self.lines_) > 1 else []
        handles += self.bands_.values()
        n_columns = -(-len(handles) // 14)
        ax.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            frameon=False,
            fontsize="small",
            ncols=n_columns,
        )

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        *,
        groups=None,
        lengths=None,
        response_method="predict",
        columns=None,
        ax=None,
        colors=None,
        line_kwargs=None,
        band_kwargs=None,
    ):
        """Draw sequences and the states that a fitted hidden Markov model gives their frames.

        Parameters
        ----------
        estimator : estimator instance
            Fitted :class:`sklearn_anneal.AnnealedHMM`, or a model of hmmlearn.
        X : array-like of shape (n_frames, n_features), or list of such
            One sequence or several, in any form that the estimator takes.
        groups : array-like of shape (n_frames,), default=None
            The id of its sequence for every row.
        lengths : array-like of int, shape (n_sequences,), default=None
            Number of rows of each sequence, in the place of ``groups``.
        response_method : {"predict", "predict_proba"}, default="predict"
            The most probable path of states, as bands, or the posterior probabilities of the
            states, as stacked areas.
        columns : sequence of int, default=None
            Columns of X to draw; None: all.
        ax : matplotlib Axes, default=None
            The axes to draw on; None: a new figure.
        colors : sequence of matplotlib colors, default=None
            One for each state of the model, see :meth:`plot`.
        line_kwargs : dict or sequence of dict, default=None
            Passed to ``matplotlib.pyplot.plot``, see :meth:`plot`.
        band_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.fill_between`` for every state.

        Returns
        -------
        display : StateSequenceDisplay

        Raises
        ------
        TypeError
            If the estimator is no hidden Markov model.
        ValueError
            If ``response_method`` or ``columns`` does not exist, or the estimator refuses X.
        sklearn.exceptions.NotFittedError
            If the estimator is not fitted.
        """
        check_is_fitted(estimator)
        if not (hasattr(estimator, "transmat_") and hasattr(estimator, "predict_proba")):
            raise TypeError(
                f"{cls.__name__} draws states of AnnealedHMM or of a model of hmmlearn, but got "
                f"{type(estimator).__name__}."
            )
        if response_method not in ("predict", "predict_proba"):
            raise ValueError(
                "response_method should be 'predict' or 'predict_proba', but got "
                f"{response_method!r}."
            )
        kind = emission_named(getattr(estimator, "emission", None), of_frames=True)
        categorical = kind is SymbolEmission
        data = read_sequences(X, groups, lengths, categorical)
        states = getattr(estimator, response_method)(data.X, lengths=data.lengths)
        values = np.array(data.X, dtype=float).reshape(len(states), -1)
        line = line_kwargs
        if categorical:
            values[values < 0] = np.nan  # missing
            if isinstance(line_kwargs, dict | None):
                # Symbols have no order, so that lines between them would mean nothing.
                line = {"linestyle": "none", "marker": ".", **(line_kwargs or {})}
        names = getattr(estimator, "feature_names_in_", None)
        if names is None:
            names = ["Symbol"] if categorical else [f"Column {i}" for i in range(values.shape[1])]
        chosen = _columns(columns, values.shape[1])
        display = cls(
            values=values[:, chosen],
            states=states,
            lengths=data.lengths,
            names=[names[i] for i in chosen],
        )
        return display.plot(ax, colors=colors, line_kwargs=line, band_kwargs=band_kwargs)


def _columns(columns: Any, n_columns: int) -> np.ndarray:
    """Numbers of the columns to draw."""
    chosen = np.arange(n_columns) if columns is None else np.asarray(columns)
    if (
        chosen.ndim != 1
        or len(chosen) == 0
        or chosen.dtype.kind not in "iu"
        or not ((chosen >= 0) & (chosen < n_columns)).all()
    ):
        raise ValueError(
            f"columns should be a sequence of numbers from 0 to {n_columns - 1}, or None, but got "
            f"{columns!r}."
        )
    return chosen
