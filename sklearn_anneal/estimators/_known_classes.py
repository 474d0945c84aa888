"""Mixtures as classifiers: rows some of whose classes are known."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils import column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _num_samples

from .._compat import with_callbacks
from ..annealing import Annealing, Context
from ..data.units import ROWS_OF_A_CLASS, Rows, Units
from ..search.search import Plan
from ._attributes import Attributes
from ._covariates import (
    Columns,
    GivenCovariates,
    LabelledTable,
    beside_table,
    read_covariates,
)
from ._interface import D
from ._part_fits import stream
from ._part_predictions import NothingToScore
from ._part_sources import Inputs, concatenated, refuse_lengths
from ._shards import in_parts
from ._validation import checks_parameters, refuse_masked, without_value

CONSTRAINTS_OF_ROWS: dict = {
    "n_components_per_class": [Interval(Integral, 1, None, closed="left"), dict, None],
    "n_unlabelled_components": [Interval(Integral, 0, None, closed="left")],
    "coefficients_prior": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
}
"""The constraints of the parameters that suit what is known of rows besides X."""


class Labels(NamedTuple):
    """The y of a user."""

    values: np.ndarray
    known: np.ndarray  # whether a value is a label, and does not stand for an unknown class

    def distinct(self, counted: np.ndarray | None = None) -> np.ndarray:
        """Return the classes that occur in ascending order, in rows that are ``counted``."""
        return distinct(self.values[self.known if counted is None else self.known & counted])

    def numbers(self, classes: np.ndarray) -> np.ndarray:
        """Return the number of the class of each row, −1 if it is unknown or no class of these."""
        place = {label: number for number, label in enumerate(classes.tolist())}
        found = [
            place.get(label, -1) if known else -1
            for label, known in zip(self.values.tolist(), self.known.tolist(), strict=True)
        ]
        return np.array(found, dtype=np.intp)

    def some_rows(self, classes: np.ndarray) -> list[np.ndarray]:
        """Return the numbers of some rows of each class, if it has so many."""
        return [_spread(np.flatnonzero(self.known & (self.values == label))) for label in classes]


class Facts(NamedTuple):
    """Facts on a part that a fit to data in parts needs before it begins."""

    labels: np.ndarray | None  # the classes that occur; None without y
    rows: list[np.ndarray]  # the numbers of some rows of each class
    columns: Columns | None  # those of the covariates; None without any


def read_labels(y: Any) -> Labels:
    """Check labels, some of which may stand for an unknown class: −1, None or NaN."""
    refuse_masked(y, "y")
    values = column_or_1d(y, warn=True)
    kind = values.dtype.kind
    if kind in "US":
        if (values == np.asarray("-1", dtype=values.dtype.type)).any():
            raise ValueError(
                "y has strings, among them '-1', as an array does that is made of strings and −1. "
                "Give an array of objects, np.array(y, dtype=object), in which −1 or None stands "
                "for an unknown class."
            )
        return Labels(values, np.ones(len(values), dtype=bool))
    if kind not in "biufO":
        raise ValueError(f"Unknown label type: y has the dtype {values.dtype}.")
    known = ~without_value(values)
    if kind == "O":
        known &= [not (isinstance(v, Integral) and v == -1) for v in values.tolist()]
        known &= [not (isinstance(v, float) and v == -1.0) for v in values.tolist()]
    elif kind != "b":
        known &= values != -1
    if kind == "f":
        if np.isinf(values).any():
            raise ValueError("Input y contains infinity or a value too large for dtype('float64').")
        if (values[known] != np.round(values[known])).any():
            raise ValueError(
                "Unknown label type: continuous. y has the classes of rows, which are integers or "
                "strings, but has numbers with fractions."
            )
    return Labels(values, known)


def distinct(values: Any) -> np.ndarray:
    """Return the distinct labels in ascending order."""
    try:
        return np.unique(values)
    except TypeError:
        raise ValueError(
            "Unknown label type: the classes of y are not of one kind, all numbers or all strings."
        ) from None


def layout_of(classes: np.ndarray, per_class: Any, n_unlabelled: int) -> np.ndarray:
    """Return the number of the class of each component, −1 for those that no label names.

    Components of the first class come first, and those of no class last.
    """
    labels = classes.tolist()
    if isinstance(per_class, dict):
        missing = [label for label in labels if label not in per_class]
        if missing:
            raise ValueError(
                f"n_components_per_class has no number for the class {missing[0]!r} of y. Give "
                "one for each class."
            )
        others = [label for label in per_class if label not in labels]
        if others:
            raise ValueError(
                f"n_components_per_class has the class {others[0]!r}, but no row has this label. "
                "Components of classes that no label names are n_unlabelled_components."
            )
        for label, number in per_class.items():
            if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
                raise ValueError(
                    "The parameter 'n_components_per_class' should have integers of at least 1, "
                    f"but has {number!r} for the class {label!r}."
                )
    each = [per_class[label] if isinstance(per_class, dict) else per_class for label in labels]
    named = np.repeat(np.arange(len(labels)), each)
    return np.append(named, np.full(n_unlabelled, -1)).astype(np.intp)


class KnownClasses(GivenCovariates[D]):
    """Mixin of mixtures that are classifiers if ``n_components_per_class`` is given."""

    n_components_per_class: Any
    n_unlabelled_components: int
    # The classes of the labels and the class of each component at the start of the fit.
    _class_labels: np.ndarray
    _class_layout: np.ndarray

    _class_parameters: ClassVar[tuple[str, ...]] = tuple(CONSTRAINTS_OF_ROWS)

    @property
    def _classifies(self) -> bool:
        """Whether the mixture is a classifier."""
        return self.n_components_per_class is not None

    @property
    def _number(self) -> int:
        return len(self._class_layout) if self._classifies else super()._number

    @property
    def _reads_targets(self) -> bool:
        return self._classifies

    @property
    def _scores_targets(self) -> bool:
        return self._fitted_classes is not None

    # Data

    def _validated_rows(self, X: Any, reset: bool, ensure_min_samples: int) -> Any:
        """X as an array that the model can read."""
        raise NotImplementedError

    def _rows_with(
        self,
        X: Any,
        weights: np.ndarray | None,
        classes: np.ndarray | None,
        covariates: np.ndarray | None,
    ) -> Rows:
        """The rows of X, which has been validated."""
        raise NotImplementedError

    def _validate_data(self, X: Any, *, reset: bool, ensure_min_samples: int = 2) -> Any:
        if not isinstance(X, LabelledTable):
            return self._validated_rows(X, reset, ensure_min_samples)
        table = self._validated_rows(X.X, reset, ensure_min_samples)
        if X.n_labels is not None and X.n_labels != table.shape[0]:
            raise ValueError(
                "Found input variables with inconsistent numbers of samples: y has "
                f"{X.n_labels} entries, but X has {table.shape[0]} rows."
            )
        if X.covariates is not None and len(X.covariates) != table.shape[0]:
            raise ValueError(
                "Found input variables with inconsistent numbers of samples: covariates has "
                f"{len(X.covariates)} rows, but X has {table.shape[0]}."
            )
        return replace(X, X=table)

    def _make_units(self, X: Any, sample_weight: np.ndarray | None) -> Rows:
        if isinstance(X, LabelledTable):
            return self._rows_with(X.X, sample_weight, X.classes, X.covariates)
        return self._rows_with(X, sample_weight, None, None)

    def _check_weights(
        self, sample_weight: ArrayLike | None, X: Any, allow_nothing: bool = False
    ) -> np.ndarray | None:
        table = X.X if isinstance(X, LabelledTable) else X
        return super()._check_weights(sample_weight, table, allow_nothing)

    def _chosen(self, X: Any, chosen: np.ndarray) -> Any:
        return X.take(chosen) if isinstance(X, LabelledTable) else super()._chosen(X, chosen)

    def _callback_data(self, given: object, X: Any) -> Any:
        return X.X if isinstance(X, LabelledTable) else super()._callback_data(given, X)

    # Fits

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None, *, covariates=None, checkpoint=None):
        """Fit the model: anneal, then plain variational inference to convergence.

        If the fit is refused or interrupted, the estimator remains as it was before.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            Training data. Parts are :class:`~sklearn_anneal.Shards` or a collection of Dask. Sparse
            matrices are for counts and binary columns, which Gaussian mixtures do not have.
        y : array-like of shape (n_samples,), default=None
            Ignored unless ``n_components_per_class`` is given. Then it has the class of each row
            where it is known, and −1, None or NaN elsewhere. Labels are data:
            ``lower_bound_`` is then a bound of the log evidence of rows and labels together. With
            data in parts, one array for each part.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. A row with a weight of 2 counts twice, and one with a weight of 0
            is left out. With data in parts, one array for each part.
        covariates : array-like of shape (n_samples, n_covariates), default=None
            Columns on which the weights of the components depend in each row, by a multinomial
            logit (:ref:`covariates`). They are numbers without missing values. Predictions then
            need the covariates of their rows. None: all rows have the same weights. With data in
            parts, one array for each part.
        checkpoint : path-like, default=None
            A folder in which the state of the fit is saved after every pass. If it contains the
            state of an interrupted fit to the same data with the same parameters, the fit continues
            from there, and its result is bit for bit that of a fit without interruption.

        Returns
        -------
        self : estimator instance
            The fitted estimator.

        Raises
        ------
        ValueError
            If the data or the parameters are refused, if the result is not finite, or if
            ``checkpoint`` belongs to a fit with other data, parameters or versions.
        """
        with self._all_or_nothing():
            goes_on = self.warm_start and hasattr(self, "_inference")
            if self._labelled() and not in_parts(X):
                X = self._with_classes(X, y, sample_weight, None, goes_on)
            X = self._with_covariates(X, covariates, goes_on)
            return self._fit(X, y, sample_weight, checkpoint, covariates)

    @checks_parameters
    def partial_fit(self, X, y=None, sample_weight=None, *, classes=None, covariates=None):
        """Update the model with one batch of a stream.

        The model is fitted to all rows so far, as by :meth:`fit` with its annealing, whenever these
        have grown by a half: from 25 rows for each component on, and one for each component and
        column with full covariances, up to eight times as many. Batches that come before the first
        fit and between fits update the model by plain inference. Each fit determines its priors
        anew, and components keep the numbers of those that they resemble. Afterwards a random
        sample of that size is kept. The fit is repeated with it where later rows, or earlier ones,
        are predicted worse than expected, by 0.5 nats each or more, because other groups have come.
        A repeated fit that fails changes nothing, and the update with the batch remains.
        ``"structured"``, which has no schedule, runs in updates, too.

        ``max_iter=1`` makes a stream of updates alone, which keeps no rows. The first batch fixes
        the priors that depend on data. The annealing schedule runs within the first tenth of
        ``total_samples``, whatever its number of passes in ``fit`` is. Plain inference follows, so
        that one pass over the stream ends at T = 1, and further passes are plain. Without
        ``total_samples`` the length of the stream is unknown, and all updates are plain.

        If components coincide after fits or after the schedule, a warning says so; the check is
        repeated whenever the stream has doubled.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            The batch, as :meth:`fit` takes data. Parts are batches one after another.
        y : array-like of shape (n_samples,), default=None
            Ignored unless ``n_components_per_class`` is given. Then it has the class of each row
            where it is known, and −1, None or NaN elsewhere. None: all are unknown. With data in
            parts, one array for each part.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. A batch of weight zero changes nothing. With data in parts, one
            array for each part.
        classes : array-like of shape (n_classes,), default=None
            The classes of all labels of the stream. The first call needs it if
            ``n_components_per_class`` is given, unless it follows a fit.
        covariates : array-like of shape (n_samples, n_covariates), default=None
            Covariates of the rows, as in :meth:`fit`. Their means and standard deviations in the
            first batch are the origin and the unit of coefficients, whose standard deviations need
            :meth:`fit`. With data in parts, one array for each part.

        Returns
        -------
        self : estimator instance
            The updated estimator.

        Raises
        ------
        ValueError
            If the batch or a parameter is refused. Both are checked at every call, and the
            estimator remains as it was before the call.
        """
        with self._all_or_nothing():
            first, labelled = not hasattr(self, "_inference"), self._labelled()
            if labelled and first and classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            if classes is not None and not labelled:
                raise ValueError(
                    "classes are those of labels, which n_components_per_class=None ignores. Give "
                    "the number of components of each class, or leave classes out."
                )
            if in_parts(X):
                how = {"classes": classes} if labelled else {}
                stream(self, X, y, sample_weight, covariates, **how)
                return self
            if labelled:
                X = self._with_classes(X, y, sample_weight, classes, not first)
            X = self._with_covariates(X, covariates, not first)
            return self._partial_fit(X, sample_weight)

    def _labelled(self) -> bool:
        """Whether a fit reads labels, after a check that parameters suit them."""
        if not self._classifies:
            if self.n_unlabelled_components:
                raise ValueError(
                    f"n_unlabelled_components={self.n_unlabelled_components} are those beside the "
                    "components of classes: give n_components_per_class too, or n_components alone."
                )
            return False
        if self._chooses_number:
            raise ValueError(
                "n_components='auto' finds one number for all rows, and not one for each class. "
                "Give n_components_per_class alone, and compare several by lower_bound_ or by a "
                "search with folds."
            )
        return True

    def _with_classes(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, classes: Any, goes_on: bool
    ) -> LabelledTable:
        """X together with the numbers of the classes of its rows."""
        labels = None if y is None else read_labels(y)
        known = None if classes is None else read_labels(classes).distinct()
        found = None
        if labels is not None:
            found = labels.distinct(_present(sample_weight, labels.known))
        self._settle_classes(found, known, goes_on)
        if labels is None:
            return LabelledTable(X, None, None)
        numbers = labels.numbers(self._class_labels)
        some = numbers if (numbers >= 0).any() else None
        return LabelledTable(X, some, len(labels.values))

    def _settle_classes(
        self, found: np.ndarray | None, known: np.ndarray | None, goes_on: bool
    ) -> None:
        """Give components to the classes, which are those that are ``known``, or ``found`` in y."""
        if found is None and known is None and not goes_on:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                "is None: with n_components_per_class, y has the classes of rows that are known."
            )
        if goes_on:
            if not hasattr(self, "_class_labels"):
                self._checked_inference("This fit goes on from the last one")
            if known is not None and known.tolist() != self._class_labels.tolist():
                raise ValueError(
                    f"classes={known.tolist()} differ from those of earlier data, which are "
                    f"{self._class_labels.tolist()}."
                )
            known = self._class_labels
        elif known is None:
            assert found is not None
            known = found
            if not len(known):
                raise ValueError(
                    "y has no label: the class of every row is unknown. Give some labels, or "
                    "n_components_per_class=None for a mixture without classes."
                )
        self._lay_out(known, goes_on)
        others = [] if found is None else found.tolist()
        others = [label for label in others if label not in known.tolist()]
        if others:
            raise ValueError(
                f"y has the class {others[0]!r}, but the classes are {known.tolist()}, which "
                "cannot change. Fit anew with all classes."
            )

    # Data in parts

    def _reader(self) -> Self:
        reader = super()._reader()
        if self._classifies and hasattr(self, "_class_labels"):
            reader._class_labels, reader._class_layout = self._class_labels, self._class_layout
        reader._n_covariates, reader._covariate_names = self._n_covariates, self._covariate_names
        return reader

    def _facts_of_part(self, inputs: Inputs) -> Facts:
        labels, rows, columns = None, [], None
        if self._classifies and inputs.y is not None:
            given = read_labels(inputs.y)
            refuse_lengths(_num_samples(inputs.X), y=inputs.y)
            labels = given.distinct()
            rows = given.some_rows(labels)
        if inputs.covariates is not None:
            Z, names = read_covariates(inputs.covariates)
            columns = Z.shape[1], names
        return Facts(labels, rows, columns)

    def _know_facts(self, of_parts: list[Facts | None]) -> list[np.ndarray] | None:
        goes_on = self.warm_start and hasattr(self, "_inference")
        needed = self._settle_classes_of_parts(of_parts, goes_on) if self._classifies else None
        columns = [None if facts is None else facts.columns for facts in of_parts]
        self._settle_columns_of_parts(columns, goes_on)
        return needed

    def _settle_classes_of_parts(
        self, of_parts: list[Facts | None], goes_on: bool
    ) -> list[np.ndarray]:
        """Give components to the classes, and return rows of each part that are of each class."""
        every = [facts.labels for facts in of_parts if facts is not None]
        given = [labels for labels in every if labels is not None]
        found = given[0] if given else None
        # The dtype of a part without labels says nothing.
        given = [labels for labels in given if len(labels)]
        if given:
            found = distinct(concatenated(given))
        self._settle_classes(found, None, goes_on)
        return _rows_of_classes(of_parts, self._class_labels)

    def _part(self, inputs: Inputs) -> Any:
        table = super()._part(inputs)
        if self._classifies and inputs.y is not None:
            # All parts have them, also those in which no class is known.
            labels = read_labels(inputs.y)
            numbers = labels.numbers(self._class_labels)
            table = LabelledTable(table, numbers, len(labels.values))
        if inputs.covariates is None:
            return table
        Z, names = read_covariates(inputs.covariates)
        self._check_as_fitted(Z.shape[1], names)
        return beside_table(table, Z)

    def _lay_out(self, classes: np.ndarray, goes_on: bool) -> None:
        """Give components to classes, unless the fit goes on with those that they have."""
        if goes_on:
            return
        own = self.n_components_per_class, self.n_unlabelled_components
        self._class_labels, self._class_layout = classes, layout_of(classes, *own)
        total = len(self._class_layout)
        if self.n_components not in (1, total):
            raise ValueError(
                f"n_components={self.n_components}, but n_components_per_class and "
                f"n_unlabelled_components make {total} components. Leave n_components out."
            )

    def _plan(self, strategy: Annealing, units: Units) -> Plan:
        plan = super()._plan(strategy, units)
        # Labels lead to the optimum in which components are the classes. Others may have a higher
        # bound, in which components are groups that cross the classes.
        return plan.with_effort_up_to(0.0) if self._classifies and self.effort == "auto" else plan

    @property
    def _component_classes(self) -> np.ndarray | None:
        """The numbers of the classes of the components of a new model; None without classes."""
        return self._class_layout if self._classifies else None

    def _attributes_of_classes(self, ctx: Context) -> Attributes:
        """The fitted attributes of a classifier."""
        of = ctx.model.component_classes
        if of is None:
            for name in ("classes_", "component_classes_"):
                self.__dict__.pop(name, None)
            return {}
        classes = self._class_labels
        if (of < 0).any():
            if classes.dtype.kind not in "if":
                classes = classes.astype(object)
            unknown = np.array([-1], dtype=classes.dtype)
            classes, of = np.concatenate([unknown, classes]), of + 1
        return {"classes_": classes, "component_classes_": classes[of]}

    # Predictions, which are those of the mixture as it was fitted

    @property
    def _fitted_classes(self) -> np.ndarray | None:
        """The number of the class of each component; None if the mixture is no classifier."""
        of: np.ndarray | None = self._context().model.component_classes
        return of

    def _sums_of_classes(self, shares: np.ndarray, of: np.ndarray) -> np.ndarray:
        """Sums of responsibilities over the components of each class, (n_rows, n_classes)."""
        every = np.arange(min(int(of.min()), 0), len(self._class_labels))
        return shares @ np.equal.outer(of, every).astype(shares.dtype)

    def _scored(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        covariates: ArrayLike | None = None,
    ) -> tuple[float, float]:
        if self._fitted_classes is None:
            return self._mean_score(X, sample_weight, covariates)
        if y is None:
            raise ValueError(
                "score is the accuracy of a classifier, and needs y: the classes of the rows. The "
                "mean log density of rows is score_samples(X).mean()."
            )
        labels = read_labels(y)
        weights = self._check_weights(sample_weight, X, allow_nothing=True)
        right = np.zeros(len(labels.values), dtype=bool)
        found = self.predict(X, covariates=covariates)
        right[labels.known] = found[labels.known] == labels.values[labels.known]
        weights = labels.known.astype(float) if weights is None else weights * labels.known
        if not weights.any():
            raise NothingToScore(
                "y has no label of positive weight, so that there is no accuracy. The mean log "
                "density of rows is score_samples(X).mean()."
            )
        return float(np.average(right, weights=weights)), float(weights.sum())


def _spread(values: Any) -> Any:
    """Return as many of some values as starts need of a class, at equal distances."""
    n = len(values)
    if n <= ROWS_OF_A_CLASS:
        return values
    return values[np.linspace(0, n - 1, ROWS_OF_A_CLASS).astype(np.intp)]


def _rows_of_classes(of_parts: list[Facts | None], classes: np.ndarray) -> list[np.ndarray]:
    """Return the numbers of the rows of each part with which starts know some of each class."""
    chosen = np.zeros((0, 2), dtype=np.intp)
    for label in classes:
        rows = [
            (i, row)
            for i, facts in enumerate(of_parts)
            if facts is not None and facts.labels is not None
            for place in np.flatnonzero(facts.labels == label)
            for row in facts.rows[place].tolist()
        ]
        if rows:
            chosen = np.concatenate([chosen, _spread(np.array(rows))])
    return [np.sort(chosen[chosen[:, 0] == i, 1]) for i in range(len(of_parts))]


def _present(sample_weight: ArrayLike | None, known: np.ndarray) -> np.ndarray | None:
    """Return a mask of the rows of positive weight; other weights are refused later."""
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight)
    if weights.shape != known.shape or weights.dtype.kind not in "biuf" or not weights.any():
        return None
    return np.asarray(weights > 0)
