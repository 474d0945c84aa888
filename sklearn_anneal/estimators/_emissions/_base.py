"""The interface of emissions to estimators, data sets and displays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator

from ...families import Natural
from ...models._chain_moves import goes_one_way
from ...models.components._base import Components, Profile
from .._attributes import Attributes

C = TypeVar("C", bound=Components)


class Wanted(NamedTuple):
    """The sizes and the separation of components that random data are to have."""

    n_components: int
    n_columns: int
    n_categories: int  # levels of each column, for an emission that ``has_levels``
    separation: float  # the larger it is, the more the components differ

    @property
    def size(self) -> tuple[int, int]:
        """The shape of an array with one number for each column of each component."""
        return self.n_components, self.n_columns


class Emission(ABC, Generic[C]):
    """One value of the parameter ``emission``; the class itself is used, without instances.

    The distribution of a row given its component or state is a class of ``models/components``. An
    emission adds the parts that estimators, data sets and displays need: what cells may be, the
    parameters of the priors, the fitted attributes, draws and profiles.
    """

    title: ClassVar[str]  # the name of such columns in messages, as "Gaussian columns"
    # The values of the parameter ``init_params`` of hidden Markov models that this emission
    # supports. "auto" is the first one, unless states are visited in one order.
    init_params: ClassVar[tuple[str, ...]] = ("kmeans", "random", "segments")
    # The estimators' parameters for the priors of this emission, and whether all of their entries
    # must be positive.
    prior_parameters: ClassVar[dict[str, bool]]
    fitted_attributes: ClassVar[tuple[str, ...]]  # the names in the result of :meth:`attributes`
    sparse: ClassVar[bool] = False  # whether a table of such columns may be a sparse matrix
    positive_only: ClassVar[bool] = False  # whether no cell is below zero
    # Whether cells are the numbers of categories or symbols, whose number users can declare.
    has_levels: ClassVar[bool] = False
    # Whether cells can be counts of words, whose largest rates ``lambdas_`` describe components.
    counts_words: ClassVar[bool] = False
    # Whether default priors depend on the data, so that the first batch of a stream needs an
    # observed cell in every column.
    priors_of_data: ClassVar[bool] = False
    regularised: ClassVar[bool] = False  # whether ``reg_covar`` is added to variances

    @classmethod
    def of_frames(cls) -> type[Emission]:
        """Return the class for frames of Markov chains whose columns all have this emission."""
        return cls

    # Cells

    @classmethod
    def check(cls, values: np.ndarray) -> None:
        """Refuse values that no cell can have, by a ValueError; NaN is a missing cell."""

    @classmethod
    def cells(cls, X: Any, n_components: int, declared: Any, parameter: str) -> Any:
        """Return columns of a table in the form that the components read.

        Values that cannot be of this emission are refused. ``declared`` has the number of levels of
        each column, or is None where the data show it; only an emission that ``has_levels`` reads
        it. ``parameter`` is the name of the parameter that declares levels, for messages.
        """
        if issparse(X) and not cls.sparse:
            raise TypeError(f"{cls.title} cannot be sparse. Give a dense array.")
        cls.check(X.data if issparse(X) else X)
        return as_floats(X)

    @classmethod
    def encode(cls, X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Convert frames to the form that kernels read, and mark the missing ones.

        ``X`` has shape (n_frames, n_columns), and its entries are finite or NaN. The second result
        is None if no frame is missing. Frames that are missing in part keep their NaN. A ValueError
        is raised if ``X`` cannot be data of this emission.
        """
        frames, missing = filled(X)
        cls.check(frames)
        return frames, missing

    # Priors and starts

    @classmethod
    def checked_init_params(cls, estimator: BaseEstimator, transmat_prior: np.ndarray) -> str:
        """Check the parameter ``init_params`` and return the start that it stands for.

        In ``transmat_prior``, of shape (n_components, n_components), zeros forbid transitions.

        Raises
        ------
        ValueError
            If the emission does not support this start.
        """
        asked = estimator.init_params
        if asked == "auto":
            return "segments" if goes_one_way(transmat_prior) else cls.init_params[0]
        if asked not in cls.init_params:
            raise ValueError(
                f"init_params={asked!r} is not for emission={estimator.emission!r}, whose frames "
                f"have no distances. Use {cls.init_params[0]!r}."
            )
        return asked

    @classmethod
    def check_first_batch(cls, estimator: BaseEstimator, rows: Any) -> None:
        """Refuse a first batch of a stream that does not determine the default priors."""

    @classmethod
    @abstractmethod
    def components(cls, estimator: BaseEstimator, rows: Any) -> C:
        """Check the estimator's parameters and make the components from them.

        ``rows`` are the training data, as :meth:`cells` returns them, or their observed frames, as
        :meth:`encode` does.
        """

    @classmethod
    @abstractmethod
    def given(cls, components: C, key: str, value: object, name: str) -> Any:
        """Check a parameter of the components at the start of a fit, and return it as an array.

        ``key`` is one of the ``profile_names`` of the components, and ``name`` the name of the
        value in messages.
        """

    # Results

    @classmethod
    @abstractmethod
    def attributes(cls, components: C, q: Natural, prior: Natural, summary: Any) -> Attributes:
        """Return the fitted attributes of the estimator, by name."""

    @classmethod
    def described(cls, components: C, fitted: Any) -> Profile:
        """Return the parameters of fitted components, by the ``profile_names`` of the components.

        ``fitted`` has the fitted attributes.
        """
        return {name: getattr(fitted, f"{name}_") for name in components.profile_names}

    @classmethod
    @abstractmethod
    def draw(
        cls, own: Profile, labels: np.ndarray, random_state: np.random.RandomState
    ) -> np.ndarray:
        """Draw one row for each label, of shape (n_rows, n_columns).

        ``own`` describes the components, as :meth:`described` or :meth:`drawn_components` returns
        it, and ``labels`` has the component or state of each row.
        """

    @classmethod
    @abstractmethod
    def drawn_components(cls, wanted: Wanted, random_state: np.random.RandomState) -> Profile:
        """Draw components for random data, in the form of :meth:`described`."""

    @classmethod
    @abstractmethod
    def profile(cls, own: Profile, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the values of components that displays show, of shape (n_levels, n_components).

        These are probabilities, with the second result None, or means, with their deviations from
        the mean of all components in standard deviations (:func:`profile_of_means`). ``own``
        describes the components, and ``weights`` has shape (n_components,).
        """


# Parts of emissions


def as_floats(X: Any) -> Any:
    """Return an array or a sparse matrix with a dtype that compiled code reads."""
    return X if X.dtype in (np.float64, np.float32) else X.astype(np.float64)


def filled(X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Replace missing rows by zeros; also return which rows these are, or None.

    Rows that are missing in part keep their NaN.
    """
    missing = np.isnan(X).all(axis=1)
    if not missing.any():
        return X, None
    return np.where(missing[:, None], X.dtype.type(0), X), missing


def refuse_cells(bad: np.ndarray, X: np.ndarray, what: str) -> None:
    """Raise a ValueError that shows the first bad value of ``X``, if there is one."""
    if bad.any():
        raise ValueError(f"{what}, but X contains {X[bad].flat[0]:g}.")


def profile_of_means(
    means: np.ndarray, variances: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the means of columns, and their deviations in standard deviations of the column.

    ``means`` and ``variances`` are those of the cells of a row, given its component, of shape
    (n_components, n_columns). Both results have the shape (n_columns, n_components).
    """
    center = weights @ means
    total = weights @ (variances + (means - center) ** 2)
    return means.T, ((means - center) / np.sqrt(np.maximum(total, np.finfo(float).tiny))).T
