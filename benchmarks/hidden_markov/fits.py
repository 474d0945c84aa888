"""Fits of hidden Markov models: their specifications, and the figures measured on each."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedHMM
from sklearn_anneal.annealing import DeterministicAnnealing, StochasticAnnealing
from sklearn_anneal.models.hidden_markov import HiddenMarkov

from ..common.priors import PEER_OF_SEQUENCES, effort_of
from ..common.reproduction import BaseSpec, Settings, settings_of
from .data import Sequences, split

# The prior concentration of a symbol is 10 / V, as in Gultekin et al.
_EMISSION_PRIOR = 10.0
_LONGEST_FINISH = 500

# Methods


CLASSES: dict[str, Any] = {
    "deterministic": DeterministicAnnealing,
    "stochastic": StochasticAnnealing,
}


def recommended(method: str) -> Settings:
    """The settings that a method's name stands for, as a part of the key in the cache."""
    return settings_of(**HiddenMarkov.recommended[method])


@dataclass(frozen=True)
class Spec(BaseSpec):
    """Everything that determines a fit; the key of the fit in the cache.

    Attributes
    ----------
    data, emission : str
    n_components : int
    method : str
        A name of ``annealing=``.
    settings : tuple of (str, value)
        Settings of deterministic and stochastic annealing; other methods have the recommended ones.
    seed : int
    classify : tuple of str
        Data sets of which every held-out sequence is scored.
    """

    data: str
    emission: str
    n_components: int
    method: str = "none"
    settings: Settings = ()
    seed: int = 0
    classify: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        model = f"{self.data}, {self.emission}, K = {self.n_components}"
        return f"{model}, {self.method}, seed {self.seed}"

    def estimator(self) -> AnnealedHMM:
        made = CLASSES[self.method](**dict(self.settings)) if self.settings else self.method
        found = split(self.data, self.emission)
        prior = None if found.n_symbols is None else _EMISSION_PRIOR / found.n_symbols
        return AnnealedHMM(
            self.n_components,
            emission=self.emission,
            n_symbols=found.n_symbols,
            emissionprob_prior=prior,
            annealing=made,
            effort=effort_of(self.method),
            max_iter=_LONGEST_FINISH,
            n_jobs=1,
            random_state=self.seed,
            **PEER_OF_SEQUENCES,
        )

    def run(self) -> dict[str, Any]:
        """Fit and measure the result.

        Returns
        -------
        result : dict
            ``bound`` of the training set in nats, ``held_out`` (nats per frame), ``seconds`` of
            processor time, the number of ``passes`` and of ``states`` in use, the number of
            ``frames`` and ``sequences`` of the training set, of ``held_out_sequences``, and with
            ``self.classify`` the ``scores`` of all held-out sequences of those data sets (nats).
        """
        found = split(self.data, self.emission)
        _warm(self.method, self.emission)
        begun = time.process_time()
        hmm = _fitted(self.estimator(), found.training)
        seconds = time.process_time() - begun
        result: dict[str, Any] = {
            "bound": float(hmm.lower_bound_),
            "held_out": float(hmm.score(found.held_out.X, lengths=found.held_out.lengths)),
            "seconds": seconds,
            "passes": int(hmm.n_iter_),
            "states": int(hmm.n_effective_components_),
            "frames": len(found.training.X),
            "sequences": len(found.training),
            "held_out_sequences": len(found.held_out),
        }
        if self.classify:
            every = [split(name, self.emission).held_out for name in self.classify]
            X, lengths = (
                np.concatenate([getattr(s, part) for s in every]) for part in ("X", "lengths")
            )
            result["scores"] = hmm.score_sequences(X, lengths=lengths).round(2).tolist()
        return result


@cache
def _warm(method: str, emission: str) -> None:
    """Load or compile the kernels of a method before a fit is timed."""
    spec = Spec("drawn 0", emission, 2, method)
    _fitted(spec.estimator().set_params(max_iter=2), split(spec.data, emission).training)


def _fitted(hmm: AnnealedHMM, sequences: Sequences) -> AnnealedHMM:
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return hmm.fit(sequences.X, lengths=sequences.lengths)
