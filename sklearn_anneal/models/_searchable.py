"""The interface of models to the moves of a search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Self

import numpy as np

from ..data.units import U
from ..families import Natural
from ._base import S
from ._left_out import LeftOut

# A model, its prior and q after a change of components.
Rearranged = tuple[Any, Natural, Natural]


@dataclass(frozen=True)
class SearchOptions:
    """How a search looks for better optima of a model.

    Attributes
    ----------
    noises : tuple of float
        The shares of noise with which reheats begin. Low noise suffices for most data, and high
        noise leads out of optima of data in many dimensions.
    passes_of_reheat : int or None
        The passes in which the noise of a reheat falls to zero; None for the usual number.
    swaps : tuple of bool
        The swaps that take turns: True for a guided one, False for a random one.
    repeats_swaps : bool
        Whether a swap that has paid is made again at once.
    starts_anew : bool
        Whether new starts are among the moves that take turns.
    patience : int or None
        The number of moves in a row, those that propose nothing included, after which a search ends
        if none has paid; None for the usual number.
    pause_factor : float
        The fit from a move pauses when the bound rises by less than so many times the rise at which
        a fit has converged. Only the best goes on to its end, after the last move. With 1 none
        pauses.
    least_passes : int
        The number of passes as which the first fit counts at least in the budget of a search. A fit
        that converges in few passes may have done so far from the best optimum.
    refits : bool
        Whether refits are among the moves that take turns.
    least_visits : float
        The same in observations that passes visit, which is less than ``least_passes`` for many
        data: their passes take long, and their optima are far from each other.
    """

    noises: tuple[float, ...] = (0.1, 0.5)
    passes_of_reheat: int | None = None
    swaps: tuple[bool, ...] = (True, False)
    repeats_swaps: bool = True
    starts_anew: bool = True
    patience: int | None = None
    pause_factor: float = 1.0
    refits: bool = False
    least_passes: int = 48
    least_visits: float = 500_000.0


class Searchable(ABC, Generic[U, S]):
    """Mixin of models that can propose swaps of their components and starts of several kinds.

    Models without it are searched by reheats alone.

    Attributes
    ----------
    learns_shapes : bool
        Whether :meth:`reshaped` proposes other shapes of distributions.
    search_options : SearchOptions
        How a search goes about it.
    """

    n_components: int
    learns_shapes: bool = False
    search_options: SearchOptions = SearchOptions()

    def refitted(
        self, units: U, q: Natural, summary: S, prior: Natural, rng: np.random.Generator
    ) -> Rearranged | None:
        """Return the parameters after some components were fitted anew to what the others leave.

        The arguments are those of :meth:`swapped`. Models whose components are not added have none.
        """
        return None

    def cooling(self) -> Self | None:
        """Return the model whose visits cool local variables; None if these have one optimum."""
        return None

    @abstractmethod
    def swapped(
        self,
        units: U,
        q: Natural,
        summary: S,
        prior: Natural,
        rng: np.random.Generator,
        guided: bool,
    ) -> Rearranged | None:
        """Return the parameters after one component has been given up and another one divided.

        Parameters
        ----------
        units : Units
            Data points in memory, which may be a sample.
        q, prior : dict of ndarray
        summary : object
        rng : numpy.random.Generator
        guided : bool
            Whether the components are those that promise the highest gain, up to chance, and not
            drawn at random.

        Returns
        -------
        rearranged : tuple of (model, dict of ndarray, dict of ndarray) or None
            The model, which may have learned other hyperparameters for the new component, its
            prior and q. None if there is nothing to swap.
        """

    @abstractmethod
    def other_starts(self) -> tuple[Self, ...]:
        """Return copies of the model whose starts are of other kinds, which are worth trying."""

    def merged(
        self,
        units: U,
        q: Natural,
        summary: S,
        prior: Natural,
        rng: np.random.Generator,
    ) -> Rearranged | None:
        """Return the parameters after components that explain the same have become one.

        None stands for components none of which promise a higher bound as one. The parameters are
        those of :meth:`swapped`.
        """
        return None

    def reshaped(
        self,
        units: U,
        q: Natural,
        summary: S,
        prior: Natural,
        rng: np.random.Generator,
        guided: bool,
    ) -> Rearranged | None:
        """Return the model with other shapes of its distributions, and q for them.

        Shapes are whole numbers, of which no step of inference changes any. With guidance they are
        those that the present assignments prefer, and else one of them is changed at random. The
        parameters are those of :meth:`swapped`. None stands for shapes that stay.
        """
        return None

    def preferred_order(self, q: Natural, prior: Natural) -> np.ndarray | None:
        """Return the order of the components that their prior prefers, as their numbers.

        None stands for components that have this order already, or for which none is better.
        """
        return None

    def canonical(self, q: Natural, prior: Natural) -> Rearranged | None:
        """Return the parameters among those with the same bound that are the easiest to read.

        None stands for parameters that are these already.
        """
        return None

    def statistics_of(self, q: Natural, prior: Natural, chosen: np.ndarray) -> Natural | None:
        """Return what q adds to the prior for some components, as a model of these has it.

        ``chosen`` has the numbers of the components. None stands for a model that cannot be
        reduced to some of its components.
        """
        return None

    def with_priors_of(self, larger: Self, chosen: np.ndarray) -> Self:
        """Return the model with the learned priors of one of which it has some components.

        ``chosen`` has their numbers there. Priors that :meth:`Model.learned` finds again, from
        wherever it begins, need not be taken over.
        """
        return self

    def start_from(
        self,
        fewer: Rearranged,
        units: U,
        summary: S,
        prior: Natural,
        rng: np.random.Generator,
    ) -> Natural | None:
        """Return a start at the components of a model with fewer of them, some of them divided.

        Parameters
        ----------
        fewer : tuple of (model, dict of ndarray, dict of ndarray)
            The model, which has at least half as many components, its prior and q.
        units : Units
            Data points in memory, which may be a sample.
        summary : object
        prior : dict of ndarray
        rng : numpy.random.Generator

        Returns
        -------
        q : dict of ndarray or None
            None for a model whose components cannot be divided.
        """
        return None

    def compared(self) -> Self:
        """Return the model whose bound is compared with those of other numbers of components.

        All of them learn the same priors, and a single component does so from however few data.
        """
        return self

    def left_out(self, units: U, q: Natural, summary: S, prior: Natural) -> LeftOut | None:
        """Return the log densities of data points, each given others.

        ``units`` may be in parts. None stands for a model whose data points cannot be left out
        without inference for those that remain.
        """
        return None

    def gain_by_chance(self, units: U, summary: S) -> float | None:
        """Return by how much several components can exceed the bound of one without groups, nats.

        It is None where all rises of the bound count.
        """
        return None

    def rows_of_folds(self, units: U) -> U | None:
        """Return the data points that fits leave out and predict, in memory.

        ``units`` may be in parts. None stands for rows of few columns, and for few sequences.
        """
        return None

    @property
    def has_one_optimum(self) -> bool:
        """Whether plain inference ends at the same optimum from every start."""
        return False

    @property
    def usual_effort(self) -> float:
        """The largest effort of a search after the start of this model, unless one is given."""
        return float("inf")

    @property
    def tries_other_start_first(self) -> bool:
        """Whether a search begins with the first one of :meth:`other_starts`."""
        return False

    @property
    def starts_assigned(self) -> bool:
        """Whether the start assigns every data point to one component."""
        return False
