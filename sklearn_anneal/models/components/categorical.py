"""Components whose observations are single symbols."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ...data.units import Rows
from ...families import Dirichlet, Factor, Natural
from .._base import Known, compiled, shallow
from .._dirichlet_rows import divergence_of_rows, logs_of_rows, one_column
from .._draws import drawn_labels
from ._base import BOUNDS, Components, Profile, RawStatistics, log_means, multiplied

kernels = partial(compiled, "hidden_markov")

_FACTORS = (Factor(Dirichlet(), {"concentration": "emissionprob"}),)


@dataclass(frozen=True)
class SymbolSums(RawStatistics):
    """Σ R over the rows that have each symbol, (V, n_components)."""

    symbols: np.ndarray


class CategoricalComponents(Components[None, SymbolSums]):
    """Distributions of one symbol out of V per row, with Dirichlet priors of the probabilities.

    The natural parameters are ``emissionprob``, of shape (n_components, V).

    Parameters
    ----------
    n_components : int
    concentration : ndarray of shape (n_components, V)
        Concentrations of the priors.
    learns : bool
        Whether the concentration is learned, as one number for all states and symbols. It must
        then begin as one number.
    """

    profile_names = ("emissionprob",)

    def __init__(self, n_components: int, concentration: np.ndarray, learns: bool = False):
        self.n_components = int(n_components)
        self.concentration = concentration
        self.learns = learns

    @property
    def n_symbols(self) -> int:
        """V, the number of symbols."""
        return self.concentration.shape[1]

    factors = _FACTORS  # type: ignore[assignment]
    keys = ("emissionprob",)  # type: ignore[assignment]

    def prior(self, summary: None) -> Natural:
        return {"emissionprob": self.concentration}

    def _learned(
        self, q: Natural, prior: Natural, rho: float
    ) -> tuple[CategoricalComponents, Natural]:
        old, new = np.ascontiguousarray(self.concentration), np.empty(self.concentration.shape)
        of_q = np.ascontiguousarray(q["emissionprob"])
        how = old, one_column(self.n_symbols), rho, *BOUNDS, new
        compiled("empirical_bayes").learned_dirichlets(of_q, *how)
        learned = shallow(self)
        learned.concentration = new
        return learned, learned.prior(None)

    def known(self, q: Natural, before: Known | None) -> Known | None:
        return {"logs": logs_of_rows(q["emissionprob"])}

    def expectations_given(self, q: Natural, known: Known) -> np.ndarray:
        logs: np.ndarray = known["logs"]
        return logs

    def kl_given(self, q: Natural, prior: Natural, known: Known) -> float | None:
        return divergence_of_rows(q["emissionprob"], prior["emissionprob"], known["logs"])

    def embedding(self, rows: Rows) -> Any:
        symbols = np.ravel(rows.X)
        known = symbols >= 0
        pointers = np.concatenate([[0], np.cumsum(known)])
        # scikit-learn's clusterings read indices of 32 bits alone.
        kind = np.int32 if pointers[-1] < 2**31 else np.int64
        one_hot = np.ones(pointers[-1]), symbols[known].astype(kind), pointers.astype(kind)
        return csr_array(one_hot, shape=(len(symbols), self.n_symbols))

    def posterior_like(
        self,
        profile: Profile,
        counts: np.ndarray,
        q: Natural,
        summary: None,
        prior: Natural,
    ) -> Natural:
        return {"emissionprob": prior["emissionprob"] + counts[:, None] * profile["emissionprob"]}

    def random_natural(
        self, counts: np.ndarray, summary: None, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        shares = rng.dirichlet(np.ones(self.n_symbols), size=self.n_components)
        return {"emissionprob": prior["emissionprob"] + counts[:, None] * shares}

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> np.ndarray:
        (factor,) = self.factors
        if rng is None:
            logs = factor.family.expectations(factor.pick(q))["concentration"]
        else:
            logs = factor.family.sample(factor.pick(q), rng)["log_probabilities"]
        return np.ascontiguousarray(logs.T)

    def plug_in(self, q: Natural) -> np.ndarray:
        return np.ascontiguousarray(log_means(q["emissionprob"]).T)

    def multiplied_counts(self, q: Natural, size: float, rng: np.random.Generator) -> Natural:
        return {"emissionprob": multiplied(q["emissionprob"], size, rng)}

    def probabilities(self, q: Natural) -> np.ndarray:
        return np.exp(log_means(q["emissionprob"]))

    def imputed(
        self, rows: Rows, shares: np.ndarray, q: Natural, predictive: bool = True
    ) -> tuple[np.ndarray, np.ndarray | None]:
        most = (shares @ self.probabilities(q)).argmax(axis=1)
        return most[:, None].astype(np.float64), None

    def drawn_rows(
        self, rows: Rows, labels: np.ndarray, expected: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        symbols = np.array(np.ravel(rows.X), dtype=np.float64)
        missing = np.flatnonzero(symbols < 0)
        symbols[missing] = drawn_labels(expected.T[labels[missing]], rng)
        return symbols[:, None]

    def coordinates(self, q: Natural, summary: None) -> np.ndarray:
        return self.probabilities(q)

    @property
    def n_parameters(self) -> int:
        return self.n_components * (self.n_symbols - 1)

    def log_density(self, rows: Rows, expected: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows.X), self.n_components))
        kernels().categorical_log_density(expected, rows.X, out)
        return out

    def zeros(self, expected: np.ndarray) -> SymbolSums:
        return SymbolSums(np.zeros(expected.shape))

    def add(self, rows: Rows, shares: np.ndarray, raw: SymbolSums, expected: np.ndarray) -> None:
        kernels().categorical_statistics(shares, rows.X, raw.symbols)

    def statistics(
        self, raw: SymbolSums, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        return {"emissionprob": raw.symbols.T}

    def log_volume(self, x: np.ndarray, summary: None, expected: np.ndarray) -> np.ndarray:
        """Return log Σ_v p(v | z_n = k)^x in nats, of shape (len(x), n_components)."""
        exponents = np.asarray(x)[:, None, None] * expected
        top = exponents.max(axis=1)
        return top + np.log(np.exp(exponents - top[:, None]).sum(axis=1))
