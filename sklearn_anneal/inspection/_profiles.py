"""Profiles of the components of a mixture: probabilities of levels, or means of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..estimators._emissions import EMISSIONS, emission_named
from ._mixture import _expected_counts
from ._plotting import choose, import_pyplot
from ._transitions import _luminance

_CELL = (0.62, 0.27)  # inches, width and height
_MOST_VALUES = 400
_RANGE = 2.0  # standard deviations on either side of the mean that have colours of their own


class ComponentProfilesDisplay:
    """Profiles of the components of a mixture, as a table of levels × components.

    Each column belongs to a component, and its weight is in the label. A row belongs to a binary
    column of the data (its probability of 1), to one category of a column (its probability), or to
    a column of counts or real numbers (its mean). Colours of probabilities go from 0 to 1. Means of
    different columns have different units, so that their colours are deviations from the mean of
    the column in the whole mixture, in standard deviations of the column.

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    values : array-like of shape (n_levels, n_components)
        Probabilities or means.
    labels : sequence of str of length n_levels
        Names of the rows.
    weights : array-like of shape (n_components,)
        Weights of the components, from 0 to 1.
    numbers : sequence of int of length n_components, default=None
        Numbers of the components for the labels; None: 0, 1, ….
    deviations : array-like of shape (n_levels, n_components), default=None
        What the colours stand for if ``values`` are means; None: ``values`` are probabilities.
    sizes : sequence of int, default=None
        Numbers of rows that belong together, between which lines are drawn; None: no lines.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes that hold the picture.
    figure_ : matplotlib Figure
        The figure of these axes.
    im_ : matplotlib AxesImage
        The cells.
    text_ : ndarray of shape (n_levels, n_components) of matplotlib Text, or None
        The values, where they were drawn.

    See Also
    --------
    MixtureEllipseDisplay : Gaussian components of two features.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn_anneal import AnnealedBayesianMixture
    >>> from sklearn_anneal.datasets import make_mixture
    >>> from sklearn_anneal.inspection import ComponentProfilesDisplay
    >>> X, _, _ = make_mixture(200, 4, emission="categorical", random_state=0)
    >>> mixture = AnnealedBayesianMixture(3, emission="categorical", random_state=0).fit(X)
    >>> display = ComponentProfilesDisplay.from_estimator(mixture, components=3)
    >>> plt.show()
    >>> display.text_.shape
    (12, 3)
    """

    def __init__(self, *, values, labels, weights, numbers=None, deviations=None, sizes=None):
        self.values = values
        self.labels = labels
        self.weights = weights
        self.numbers = numbers
        self.deviations = deviations
        self.sizes = sizes

    def plot(
        self, ax=None, *, include_values=None, values_format=None, im_kwargs=None, text_kwargs=None
    ):
        """Draw the profiles.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.
        include_values : bool, default=None
            Whether the values are written into the cells. None: they are written if there are at
            most 400.
        values_format : str, default=None
            Format of the values; None: two decimals for probabilities, three digits for means.
        im_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.imshow``.
        text_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.text`` for every value.

        Returns
        -------
        display : ComponentProfilesDisplay
            This object, with ``ax_``, ``figure_``, ``im_`` and ``text_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        plt = import_pyplot(f"{type(self).__name__}.plot")
        values = np.asarray(self.values, dtype=float)
        n_levels, n_components = values.shape
        if ax is None:
            size = (_CELL[0] * n_components + 3.4, max(_CELL[1] * n_levels, 1.2) + 1.0)
            _, ax = plt.subplots(figsize=size, layout="constrained")
        if self.deviations is None:
            colors, label = values, "Probability"
            style: dict[str, Any] = {"cmap": "Blues", "vmin": 0.0, "vmax": 1.0}
        else:
            colors, label = np.asarray(self.deviations, dtype=float), "Standard deviations"
            style = {"cmap": "RdBu_r", "vmin": -_RANGE, "vmax": _RANGE}
        self.im_ = ax.imshow(colors, **{"aspect": "auto", **style, **(im_kwargs or {})})
        bar = {"shrink": 0.75, "aspect": 25, "pad": 0.02}
        ax.figure.colorbar(self.im_, ax=ax, label=label, **bar)

        self.text_ = None
        if values.size <= _MOST_VALUES if include_values is None else include_values:
            form = values_format or (".2f" if self.deviations is None else ".3g")
            self.text_ = np.empty(values.shape, dtype=object)
            for i, j in np.ndindex(*values.shape):
                dark = _luminance(self.im_, float(colors[i, j])) < 0.5
                text = {
                    "ha": "center",
                    "va": "center",
                    "color": "white" if dark else "0.15",
                    "fontsize": "small",
                    **(text_kwargs or {}),
                }
                self.text_[i, j] = ax.text(j, i, format(float(values[i, j]), form), **text)
        numbers = range(n_components) if self.numbers is None else self.numbers
        names = [
            f"{k}\n{100 * weight:.0f} %"
            for k, weight in zip(numbers, np.asarray(self.weights, dtype=float), strict=True)
        ]
        ax.set_xticks(np.arange(n_components), names)
        # A name may contain characters that matplotlib would take for a formula.
        ax.set_yticks(np.arange(n_levels), [str(name) for name in self.labels], parse_math=False)
        ax.set_xlabel("Component and its weight")
        for end in np.cumsum(self.sizes or [])[:-1]:
            ax.axhline(end - 0.5, color="0.3", linewidth=0.8)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator,
        *,
        block=None,
        components=None,
        feature_names=None,
        category_names=None,
        ax=None,
        include_values=None,
        values_format=None,
        im_kwargs=None,
        text_kwargs=None,
    ):
        """Draw the profiles of a fitted mixture.

        Parameters
        ----------
        estimator : estimator instance
            Fitted :class:`sklearn_anneal.AnnealedBayesianMixture`.
        block : str, default=None
            Name of the block of columns to draw, which a mixture of several blocks needs.
        components : int or sequence of int, default=None
            An int n: the n components with most rows. A sequence: the components with these
            numbers, in this order. None: all components with more than one row, the largest first.
        feature_names : array-like of shape (n_features,), default=None
            Names of all columns of the data; None: ``feature_names_in_`` where the training set had
            names, else x0, x1, ….
        category_names : sequence of array-like, default=None
            Names of the categories of each column that is drawn, as the attribute ``categories_``
            of :class:`sklearn.preprocessing.OrdinalEncoder` has them; None: their numbers.
        ax : matplotlib Axes, default=None
            Where to draw, see :meth:`plot`.
        include_values : bool, default=None
            Whether the values are written, see :meth:`plot`.
        values_format : str, default=None
            Format of the values, see :meth:`plot`.
        im_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.imshow``.
        text_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.text`` for every value.

        Returns
        -------
        display : ComponentProfilesDisplay

        Raises
        ------
        TypeError
            If the estimator is no mixture of any columns.
        ValueError
            If ``block``, ``components`` or the names do not fit the mixture.
        sklearn.exceptions.NotFittedError
            If the estimator is not fitted.
        """
        check_is_fitted(estimator)
        if not (hasattr(estimator, "emission") and hasattr(estimator, "weight_concentration_")):
            raise TypeError(
                f"{cls.__name__} draws components of AnnealedBayesianMixture, but got "
                f"{type(estimator).__name__}."
            )
        own, kind, model, columns = _block(estimator, block)
        chosen = choose(components, _expected_counts(estimator), "components", "row")
        names = _names(estimator, feature_names)[columns]
        values, deviations = kind.profile(kind.described(model, own), estimator.weights_)
        labels, sizes = _labels(own, names, category_names)
        display = cls(
            values=values[:, chosen],
            labels=labels,
            weights=estimator.weights_[chosen],
            numbers=[int(k) for k in chosen],
            deviations=None if deviations is None else deviations[:, chosen],
            sizes=sizes,
        )
        return display.plot(
            ax,
            include_values=include_values,
            values_format=values_format,
            im_kwargs=im_kwargs,
            text_kwargs=text_kwargs,
        )


def _block(estimator: Any, name: Any) -> tuple[Any, Any, Any, np.ndarray]:
    """Return what has the fitted attributes of the columns to draw, and their emission.

    Their components and their places in the table follow.
    """
    blocks = getattr(estimator, "blocks_", None)
    components = estimator._quiet_context().model.components
    if blocks is None:
        if name is not None:
            raise ValueError(f"block is {name!r}, but the mixture was fitted without blocks.")
        columns = np.arange(estimator.n_features_in_)
        return estimator, _kind(estimator.emission), components, columns
    if name is None and len(blocks) == 1:
        (name,) = blocks
    if name not in blocks:
        raise ValueError(
            f"block should be the name of the block to draw, one of {list(blocks)}, but got "
            f"{name!r}."
        )
    (emission,) = (kind for own, kind, _ in estimator.emission if own == name)
    return blocks[name], _kind(emission), components.parts[name], blocks[name].columns


def _kind(emission: Any) -> Any:
    """Return the emission with a name."""
    kind = emission_named(emission)
    if kind is None:
        *others, last = (repr(name) for name in sorted(EMISSIONS))
        raise ValueError(
            f"Profiles are drawn of columns with the emissions {', '.join(others)} and {last}, but "
            f"these have {emission!r}."
        )
    return kind


def _names(estimator: Any, feature_names: Any) -> np.ndarray:
    """Names of all columns of the data."""
    n = estimator.n_features_in_
    if feature_names is None:
        feature_names = getattr(estimator, "feature_names_in_", [f"x{i}" for i in range(n)])
    names = np.asarray(feature_names, dtype=object)
    if names.shape != (n,):
        raise ValueError(
            f"feature_names should have one name for each of the {n} columns of the data, but got "
            f"an array of shape {names.shape}."
        )
    return names


def _labels(own: Any, names: np.ndarray, category_names: Any) -> tuple[list[str], list[int] | None]:
    """Labels of the rows, and for categories the number of rows of each column."""
    sizes = getattr(own, "n_categories_", None)
    if sizes is None:
        if category_names is not None:
            raise ValueError("category_names are for columns of categories, and there are none.")
        return [str(name) for name in names], None
    levels = [range(n) for n in sizes] if category_names is None else list(category_names)
    given = [len(own_names) for own_names in levels]
    if given != list(sizes):
        raise ValueError(
            "category_names should have one sequence of names for each column that is drawn, of "
            f"the lengths {[int(n) for n in sizes]}, but the lengths are {given}."
        )
    labels = [
        f"{name} = {level}"
        for name, own_names in zip(names, levels, strict=True)
        for level in own_names
    ]
    return labels, given
