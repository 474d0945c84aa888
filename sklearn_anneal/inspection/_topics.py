"""The most probable words of topics, as small bar charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..estimators._words import names_of_words
from ..metrics import floors_of_words, top_words
from ._plotting import COLORS, choose, divided, import_pyplot, is_positive_int, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_COLUMNS = 5
_PANEL_WIDTH = 2.6  # inches
_LINE_HEIGHT = 0.19
_TITLE_HEIGHT = 0.55


class TopicsDisplay:
    """The most probable words of topics, one panel for each topic.

    The bars are probabilities of words in the topic, on a common scale. The title of a panel has
    the number of the topic, its row in ``components_``, and the share of the tokens of the
    training set that the model assigns to it.

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    words : sequence of array-like of shape (n_words,) or shorter
        Words of each topic, the most probable first.
    probabilities : array-like of shape (n_topics, n_words)
        Their probabilities in the topic. Entries for which a topic has no word are not drawn.
    numbers : sequence of int of length n_topics, default=None
        Numbers of the topics for the titles; None: 0, 1, ….
    shares : array-like of shape (n_topics,), default=None
        Shares of the tokens, from 0 to 1, for the titles; None: they are left out.

    Attributes
    ----------
    axes_ : ndarray of shape (n_topics,)
        The axes of the panels, in the order of ``words``.
    bounding_ax_ : matplotlib Axes or None
        The given axes that were divided into panels; None otherwise.
    figure_ : matplotlib Figure
        The figure of these axes.
    bars_ : list of matplotlib BarContainer
        The bars of each panel, the most probable word first.

    See Also
    --------
    LowerBoundDisplay : The lower bound over the passes of the fit.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn_anneal import AnnealedLatentDirichletAllocation
    >>> from sklearn_anneal.inspection import TopicsDisplay
    >>> texts = ["cat dog cat", "dog cat pet", "stock bond stock", "bond market stock"] * 5
    >>> vectorizer = CountVectorizer()
    >>> X = vectorizer.fit_transform(texts)
    >>> lda = AnnealedLatentDirichletAllocation(n_components=2, random_state=0).fit(X)
    >>> words = vectorizer.get_feature_names_out()
    >>> display = TopicsDisplay.from_estimator(lda, words, n_words=3)
    >>> plt.show()
    >>> len(display.axes_)
    2
    """

    def __init__(self, *, words, probabilities, numbers=None, shares=None):
        self.words = words
        self.probabilities = probabilities
        self.numbers = numbers
        self.shares = shares

    def plot(self, ax=None, *, n_columns=None, bar_kwargs=None):
        """Draw the panels.

        Parameters
        ----------
        ax : matplotlib Axes or array-like of Axes, default=None
            The axes to draw on: a single one, which is divided into panels, or one for each topic.
            None: a new figure.
        n_columns : int, default=None
            Number of panels side by side; it is not used if there is one axes for each topic.
            None: about as many as there are rows of panels, and at most 5.
        bar_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.barh`` for every panel.

        Returns
        -------
        display : TopicsDisplay
            This object, with ``axes_``, ``bounding_ax_``, ``figure_`` and ``bars_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If ``ax`` has another number of axes than there are topics, or ``n_columns`` is not
            positive.
        """
        plt = import_pyplot(f"{type(self).__name__}.plot")
        probabilities = np.asarray(self.probabilities, dtype=float)
        n_topics, n_words = probabilities.shape
        if n_columns is None:
            n_columns = min(_MOST_COLUMNS, int(np.ceil(np.sqrt(n_topics))))
        if not is_positive_int(n_columns):
            raise ValueError(f"n_columns should be a positive int or None, but got {n_columns!r}.")
        n_columns = min(n_columns, n_topics)
        self.bounding_ax_ = ax if isinstance(ax, plt.Axes) else None
        if ax is None or self.bounding_ax_ is not None:
            shape = (-(-n_topics // n_columns), n_columns)
            axes = _divide(ax, shape, n_topics, n_words, plt)
            lowest = range(n_topics - n_columns, n_topics)
        else:
            axes = np.asarray(ax, dtype=object).ravel()
            lowest = range(n_topics)
            if len(axes) != n_topics:
                raise ValueError(
                    f"ax should have one axes for each of the {n_topics} topics, but has "
                    f"{len(axes)}. Choose the topics to draw by the parameter topics, or give "
                    "ax=None for a new figure."
                )

        style = {"color": COLORS[0], "height": 0.75, **(bar_kwargs or {})}
        largest = float(np.nanmax(probabilities, initial=0.0))
        self.bars_ = []
        for i, (panel, words) in enumerate(zip(axes, self.words, strict=True)):
            positions = np.arange(len(words))
            self.bars_.append(panel.barh(positions, probabilities[i, : len(words)], **style))
            # A word may contain characters that matplotlib would take for a formula.
            panel.set_yticks(
                positions, [str(word) for word in words], fontsize="small", parse_math=False
            )
            # Bars of all panels have the same height, whatever the number of words.
            panel.set_ylim(n_words - 0.5, -0.5)
            panel.set_title(self._title(i), fontsize="medium")
            panel.set_xlim(0, 1.05 * max(largest, 1e-12))
            panel.tick_params(axis="x", labelsize="small")
            panel.tick_params(axis="y", length=0)
            panel.locator_params(axis="x", nbins=4)
            tidy(panel)
            panel.grid(visible=False, axis="y")
            if i in lowest:
                panel.set_xlabel("Probability", fontsize="small")
        self.axes_, self.figure_ = axes, axes[0].figure
        return self

    def _title(self, index: int) -> str:
        title = f"Topic {index if self.numbers is None else self.numbers[index]}"
        if self.shares is None:
            return title
        return f"{title}: {100 * self.shares[index]:.1f} % of tokens"

    @classmethod
    def from_estimator(
        cls,
        estimator,
        feature_names=None,
        *,
        topics=None,
        n_words=8,
        ax=None,
        n_columns=None,
        bar_kwargs=None,
    ):
        """Draw topics of a fitted topic model.

        Parameters
        ----------
        estimator : estimator instance
            Fitted :class:`sklearn_anneal.AnnealedLatentDirichletAllocation` or
            :class:`sklearn.decomposition.LatentDirichletAllocation`.
        feature_names : array-like of shape (n_features,), default=None
            The words, as ``get_feature_names_out`` of the vectorizer gives them; None:
            ``feature_names_in_`` where the training set had names, else the numbers of its
            columns.
        topics : int or sequence of int, default=None
            An int n: the n topics with most tokens. A sequence: the topics with these numbers, in
            this order. None: all topics with more than one token, the largest first.
        n_words : int, default=8
            Largest number of words per topic. Words of which a topic has no tokens are left out,
            because their order would be that of the columns.
        ax : matplotlib Axes or array-like of Axes, default=None
            The axes to draw on, see :meth:`plot`.
        n_columns : int, default=None
            Number of panels side by side, see :meth:`plot`.
        bar_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.barh`` for every panel.

        Returns
        -------
        display : TopicsDisplay

        Raises
        ------
        TypeError
            If the estimator is no topic model.
        ValueError
            If ``feature_names``, ``topics`` or ``n_words`` do not fit the model.
        sklearn.exceptions.NotFittedError
            If the estimator is not fitted.
        """
        check_is_fitted(estimator)
        if not (hasattr(estimator, "components_") and hasattr(estimator, "topic_word_prior_")):
            raise TypeError(
                f"{cls.__name__} draws topics of AnnealedLatentDirichletAllocation or "
                "sklearn.decomposition.LatentDirichletAllocation, but got "
                f"{type(estimator).__name__}."
            )
        concentration = np.asarray(estimator.components_, dtype=float)
        n_features = concentration.shape[1]
        if not is_positive_int(n_words):
            raise ValueError(f"n_words should be a number of words from 1, but got {n_words!r}.")
        n_words = min(n_words, n_features)
        names = names_of_words(estimator, feature_names, n_features)
        # The documents added their expected numbers of tokens to the prior.
        prior = estimator.topic_word_prior_
        tokens = np.maximum(concentration - prior, 0.0).sum(axis=1)
        chosen = choose(topics, tokens, "topics", "token")
        floors = floors_of_words(concentration, prior)[chosen]
        order = top_words(concentration[chosen], n_words, floors)
        probabilities = np.full((len(chosen), n_words), np.nan)
        for row, k, words in zip(probabilities, chosen, order, strict=True):
            row[: len(words)] = concentration[k, words] / concentration[k].sum()
        display = cls(
            words=[names[row] for row in order],
            probabilities=probabilities,
            numbers=[int(k) for k in chosen],
            shares=tokens[chosen] / max(float(tokens.sum()), np.finfo(float).tiny),
        )
        return display.plot(ax, n_columns=n_columns, bar_kwargs=bar_kwargs)


def _divide(
    ax: Axes | None, shape: tuple[int, int], n_topics: int, n_words: int, plt: Any
) -> np.ndarray:
    """Make the axes of the panels in a grid, which fills a new figure or the place of ``ax``."""
    n_rows, n_columns = shape
    if ax is None:
        height = _TITLE_HEIGHT + _LINE_HEIGHT * n_words
        size = (_PANEL_WIDTH * n_columns, height * n_rows + 0.3)
        figure = plt.figure(figsize=size, layout="constrained")
        grid = figure.add_gridspec(n_rows, n_columns)
    else:
        figure, grid = ax.figure, divided(ax, n_rows, n_columns)
    cells = (divmod(i, n_columns) for i in range(n_topics))
    return np.array([figure.add_subplot(grid[cell]) for cell in cells], dtype=object)
