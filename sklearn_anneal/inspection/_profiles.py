"""Profiles of the components of a mixture: probabilities of levels, or means of columns."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..estimators._base import BaseAnnealed
from ..estimators._emissions import EMISSIONS, Emission, emission_named
from ._mixture import _expected_counts
from ._plotting import choose, divided, import_pyplot
from ._transitions import _luminance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CELL = (0.62, 0.27)  # inches, width and height
_MOST_VALUES = 400
_RANGE = 2.0  # standard deviations on either side of the mean that have colours of their own


class _Panel(NamedTuple):
    """The content of one panel: the levels of columns that have one scale of colours."""

    values: np.ndarray
    labels: list[str]
    deviations: np.ndarray | None
    sizes: list[int] | None

    @property
    def colors(self) -> np.ndarray:
        return self.values if self.deviations is None else self.deviations


class ComponentProfilesDisplay:
    """Profiles of the components of a mixture, as a table of levels × components.

    Each column belongs to a component, and its weight is in the label. A row belongs to a binary
    column of the data (its probability of 1), to one category of a column (its probability), or to
    a column of counts or real numbers (its mean). Colours of probabilities go from 0 to 1. Means of
    different columns have different units, so that their colours are deviations from the mean of
    the column in the whole mixture, in standard deviations of the column. The blocks of columns of
    a mixed table are panels one below the other, and those with the same colours are neighbours.

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    values : array-like of shape (n_levels, n_components), or dict
        Probabilities or means. A dict has one such array for each panel, by its title. In that case
        ``labels`` is a dict too, and so are ``deviations`` and ``sizes`` of the panels that have
        them.
    labels : sequence of str of length n_levels, or dict
        Names of the rows.
    weights : array-like of shape (n_components,)
        Weights of the components, from 0 to 1.
    numbers : sequence of int of length n_components, default=None
        Numbers of the components for the labels; None: 0, 1, ….
    deviations : array-like of shape (n_levels, n_components), or dict, default=None
        The values of the colours if ``values`` are means; None: ``values`` are probabilities.
    sizes : sequence of int, or dict, default=None
        Numbers of rows that belong together, between which lines are drawn; None: no lines.

    Attributes
    ----------
    ax_ : matplotlib Axes, or dict
        The axes that hold the picture. If ``values`` is a dict, this and the next but one are
        dicts with one entry for each panel, by the same names.
    figure_ : matplotlib Figure
        The figure of these axes.
    im_ : matplotlib AxesImage, or dict
        The cells.
    text_ : ndarray of shape (n_levels, n_components) of matplotlib Text, None, or dict
        The values, where they were drawn.
    colorbars_ : list of matplotlib Colorbar
        The scales of the colours, whose labels say what colours mean.

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
        ax : matplotlib Axes or array-like of Axes, default=None
            The axes to draw on; None: a new figure. Several panels need one axes each, in the order
            of ``values``, or one axes from a grid of subplots, whose place they divide.
        include_values : bool, default=None
            Whether the values are written into the cells. None: they are written into panels of at
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
            This object, with ``ax_``, ``figure_``, ``im_``, ``text_`` and ``colorbars_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If ``ax`` has another number of axes than there are panels, or cannot be divided.
        """
        plt = import_pyplot(f"{type(self).__name__}.plot")
        panels = self._panels()
        axes = self._axes(ax, panels, plt)
        images: dict[Any, Any] = {}
        texts: dict[Any, Any] = {}
        for name, panel in panels.items():
            images[name] = self._image(axes[name], panel, **(im_kwargs or {}))
            texts[name] = None
            if panel.values.size <= _MOST_VALUES if include_values is None else include_values:
                form = values_format or (".2f" if panel.deviations is None else ".3g")
                texts[name] = _written(axes[name], panel, images[name], form, text_kwargs or {})
            if name is not None:
                title = axes[name].set_title(str(name), loc="left", fontsize="medium")
                title.set_parse_math(False)
        self._name_components(list(axes.values()))
        self.colorbars_ = _colorbars(panels, axes, images)
        self.figure_ = next(iter(axes.values())).figure
        if isinstance(self.values, Mapping):
            self.ax_, self.im_, self.text_ = axes, images, texts
        else:
            self.ax_, self.im_, self.text_ = axes[None], images[None], texts[None]
        return self

    def _panels(self) -> dict[Any, _Panel]:
        """The panels by their titles; the title of a single one is None."""
        if not isinstance(self.values, Mapping):
            return {None: self._panel(self.values, self.labels, self.deviations, self.sizes)}
        deviations, sizes = self.deviations or {}, self.sizes or {}
        return {
            name: self._panel(values, self.labels[name], deviations.get(name), sizes.get(name))
            for name, values in self.values.items()
        }

    @staticmethod
    def _panel(values: Any, labels: Any, deviations: Any, sizes: Any) -> _Panel:
        colors = None if deviations is None else np.asarray(deviations, dtype=float)
        return _Panel(np.asarray(values, dtype=float), list(labels), colors, sizes)

    def _axes(self, ax: Any, panels: dict[Any, _Panel], plt: Any) -> dict[Any, Any]:
        """The axes of each panel, in a new figure or where ``ax`` is."""
        names = list(panels)
        if ax is not None and (None in panels or not isinstance(ax, plt.Axes)):
            given = list(np.asarray(ax, dtype=object).ravel())
            if len(given) != len(names):
                raise ValueError(
                    f"ax should have one axes for each of the {len(names)} blocks that are drawn, "
                    f"but has {len(given)}. The parameter block chooses one of them, and ax=None "
                    "makes a new figure."
                )
            return dict(zip(names, given, strict=True))
        heights = [max(_CELL[1] * len(panel.values), 0.5) for panel in panels.values()]
        if ax is None:
            width = _CELL[0] * len(np.asarray(self.weights)) + 3.4
            size = (width, max(sum(heights), 1.8) + 0.6 + 0.4 * len(names))
            figure = plt.figure(figsize=size, layout="constrained")
            grid = figure.add_gridspec(len(names), 1, height_ratios=heights)
        else:
            figure, grid = ax.figure, divided(ax, len(names), 1, height_ratios=heights)
        return {name: figure.add_subplot(grid[i]) for i, name in enumerate(names)}

    @staticmethod
    def _image(ax: Axes, panel: _Panel, **kwargs: Any) -> Any:
        """Draw the cells of a panel, and name its rows."""
        style: dict[str, Any] = {"cmap": "Blues", "vmin": 0.0, "vmax": 1.0}
        if panel.deviations is not None:
            style = {"cmap": "RdBu_r", "vmin": -_RANGE, "vmax": _RANGE}
        image = ax.imshow(panel.colors, **{"aspect": "auto", **style, **kwargs})
        names = [str(name) for name in panel.labels]
        # A name may contain characters that matplotlib would take for a formula.
        ax.set_yticks(np.arange(len(names)), names, parse_math=False)
        for end in np.cumsum(panel.sizes or [])[:-1]:
            ax.axhline(end - 0.5, color="0.3", linewidth=0.8)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        return image

    def _name_components(self, axes: list[Any]) -> None:
        """Write the numbers and the weights of the components under the lowest panel."""
        weights = np.asarray(self.weights, dtype=float)
        numbers = range(len(weights)) if self.numbers is None else self.numbers
        names = [f"{k}\n{100 * w:.0f} %" for k, w in zip(numbers, weights, strict=True)]
        for ax in axes[:-1]:
            ax.set_xticks([])
        axes[-1].set_xticks(np.arange(len(weights)), names)
        axes[-1].set_xlabel("Component and its weight")

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
            Name of the block of columns to draw. None: all blocks, one panel for each.
        components : int or sequence of int, default=None
            An int n: the n components with most rows. A sequence: the components with these
            numbers, in this order. None: all components with more than one row, the largest first.
        feature_names : array-like of shape (n_features,), default=None
            Names of all columns of the data; None: ``feature_names_in_`` where the training set had
            names, else x0, x1, ….
        category_names : sequence of array-like, default=None
            Names of the categories of each column that is drawn and has categories, as the
            attribute ``categories_`` of :class:`sklearn.preprocessing.OrdinalEncoder` has them;
            None: their numbers.
        ax : matplotlib Axes or array-like of Axes, default=None
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
        if not (hasattr(estimator, "emission") and hasattr(estimator, "weights_")):
            raise TypeError(
                f"{cls.__name__} draws components of AnnealedBayesianMixture, but got "
                f"{type(estimator).__name__}."
            )
        blocks = _blocks(estimator, block)
        chosen = choose(components, _expected_counts(estimator), "components", "row")
        names = _names(estimator, feature_names)
        given = _levels_of_blocks([each.own for each in blocks], category_names)
        panels = {}
        for each, levels in zip(blocks, given, strict=True):
            profile = each.kind.described(each.components, each.own)
            values, deviations = each.kind.profile(profile, estimator.weights_)
            labels, sizes = _labels(each.own, names[each.columns], levels)
            moved = None if deviations is None else deviations[:, chosen]
            panels[each.title] = _Panel(values[:, chosen], labels, moved, sizes)
        if len(panels) > 1:
            # Panels with one scale of colours are neighbours.
            first = next(iter(panels.values())).deviations is None
            ordered = sorted(panels, key=lambda name: (panels[name].deviations is None) != first)
            parts: Any = {
                part: {
                    name: getattr(panels[name], part)
                    for name in ordered
                    if getattr(panels[name], part) is not None
                }
                for part in _Panel._fields
            }
        else:
            (panel,) = panels.values()
            parts = panel._asdict()
        display = cls(weights=estimator.weights_[chosen], numbers=[int(k) for k in chosen], **parts)
        return display.plot(
            ax,
            include_values=include_values,
            values_format=values_format,
            im_kwargs=im_kwargs,
            text_kwargs=text_kwargs,
        )


def _written(ax: Axes, panel: _Panel, image: Any, form: str, style: dict[str, Any]) -> np.ndarray:
    """Write the values into the cells, and return the texts."""
    texts = np.empty(panel.values.shape, dtype=object)
    for i, j in np.ndindex(*panel.values.shape):
        dark = _luminance(image, float(panel.colors[i, j])) < 0.5
        text = {
            "ha": "center",
            "va": "center",
            "color": "white" if dark else "0.15",
            "fontsize": "small",
            **style,
        }
        texts[i, j] = ax.text(j, i, format(float(panel.values[i, j]), form), **text)
    return texts


def _colorbars(panels: dict[Any, _Panel], axes: dict[Any, Any], images: dict[Any, Any]) -> list:
    """Draw one scale beside all neighbours with the same colours, and say what they mean."""
    bars = []
    for means, group in groupby(panels, key=lambda name: panels[name].deviations is not None):
        names = list(group)
        beside = [axes[name] for name in names]
        label = "Standard deviations from\nthe mean of the column" if means else "Probability"
        bar = beside[0].figure.colorbar(
            images[names[0]], ax=beside, shrink=0.9, aspect=25, pad=0.02
        )
        bar.set_label(label, fontsize="small")
        bar.ax.tick_params(labelsize="small")
        bars.append(bar)
    return bars


class _Block(NamedTuple):
    """Columns to draw.

    ``own`` has their fitted attributes, ``kind`` is their emission, ``components`` their components
    in the model, and ``columns`` has their places in the table. ``title`` is None for a table
    without blocks.
    """

    title: str | None
    own: Any
    kind: type[Emission]
    components: Any
    columns: np.ndarray


def _blocks(estimator: BaseAnnealed, name: Any) -> list[_Block]:
    """Return the block with a name, or all blocks if it is None."""
    blocks = getattr(estimator, "blocks_", None)
    components = estimator._quiet_context().model.components
    if blocks is None:
        if name is not None:
            raise ValueError(f"block is {name!r}, but the mixture was fitted without blocks.")
        columns = np.arange(estimator.n_features_in_)
        return [_Block(None, estimator, _kind(estimator.emission), components, columns)]
    if name is not None and name not in blocks:
        raise ValueError(
            f"block should be the name of the block to draw, one of {list(blocks)}, or None for "
            f"all of them, but got {name!r}."
        )
    return [
        _Block(own, blocks[own], _kind(emission), components.parts[own], blocks[own].columns)
        for own, emission, _ in estimator.emission
        if name is None or own == name
    ]


def _levels_of_blocks(owners: list[Any], category_names: Any) -> list[Any]:
    """Divide the names of categories among the blocks that have columns of categories."""
    if category_names is None or len(owners) == 1:
        return [category_names] * len(owners)
    given, sizes = list(category_names), [getattr(own, "n_categories_", None) for own in owners]
    counts = [0 if size is None else len(size) for size in sizes]
    if len(given) != sum(counts):
        raise ValueError(
            "category_names should have one sequence of names for each column of categories, of "
            f"which there are {sum(counts)}, but has {len(given)}."
        )
    ends = np.cumsum(counts)
    return [
        None if size is None else given[end - count : end]
        for size, count, end in zip(sizes, counts, ends, strict=True)
    ]


def _kind(emission: object) -> type[Emission]:
    """Return the emission with a name."""
    kind = emission_named(emission)
    if kind is None:
        *others, last = (repr(name) for name in sorted(EMISSIONS))
        raise ValueError(
            f"Profiles are drawn of columns with the emissions {', '.join(others)} and {last}, but "
            f"these have {emission!r}."
        )
    return kind


def _names(estimator: BaseAnnealed, feature_names: Any) -> np.ndarray:
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
