"""Records of the suite: one fit each, by all that decides it, and the figures measured on it."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from ..common.records import BaseSpec
from .families import FAMILY, Family, Groups
from .instances import INSTANCES
from .settings import PEER, SETTINGS, is_ours, parameters, version


@dataclass(frozen=True)
class Spec(BaseSpec):
    """Everything that determines a fit; the key of its record in the file.

    Attributes
    ----------
    instance : str
    setting : str
        A key of ``SETTINGS``, ``PEER`` or ``EM``.
    version : str
        What the setting meant when the fit was made, see ``settings.py``.
    code : str
        The state of the package, in the words of whoever measures it. It is empty for references
        and EM: they are not ours, or plain inference, which is to give the same in every state.
    seed : int
    split : int
        0 for the instance's own training and held-out parts; others are of the same sizes.
    """

    instance: str
    setting: str
    version: str
    code: str = ""
    seed: int = 0
    split: int = 0

    @classmethod
    def of(cls, instance: str, setting: str, code: str = "") -> Spec:
        """The specification of a fit by a setting as it is now, or by a peer."""
        family = INSTANCES[instance].family
        kept = code if is_ours(setting) else ""
        return cls(instance, setting, version(setting, family), kept)

    @property
    def label(self) -> str:
        part = f"split {self.split}" if self.split else f"seed {self.seed}"
        return f"{self.instance}, {self.setting}, {part}"

    def run(self) -> dict[str, Any]:
        """Fit and measure the result.

        Returns
        -------
        result : dict
            The figures of ``Family.measure``, and of the fit on one thread the ``seconds`` of
            processor time and the seconds of ``wall`` time.
        """
        family = _family(self.instance, self.split)
        if self.setting in (PEER, *SETTINGS):
            _warm(family, self.setting)
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            # Warnings of components that coincide say what the figures show anyway.
            warnings.simplefilter("ignore", UserWarning)
            return self._timed(family)

    def _timed(self, family: Family) -> dict[str, Any]:
        wall, processor = time.perf_counter(), time.process_time()
        if self.setting == PEER:
            fitted, measure = family.fit_peer(self.seed), family.measure_peer
        elif self.setting in SETTINGS:
            known = parameters(self.setting, family.instance.family)
            fitted, measure = family.fit_ours(self.seed, known), family.measure
        else:
            assert isinstance(family, Groups)
            figures = family.measure_em(self.seed)
            fitted, measure = None, lambda _: figures
        seconds = {
            "seconds": time.process_time() - processor,
            "wall": time.perf_counter() - wall,
        }
        return {**measure(fitted), **seconds}


@lru_cache(maxsize=2)
def _family(instance: str, split: int) -> Family:
    chosen = INSTANCES[instance]
    return FAMILY[chosen.family](chosen, split)


_warmed = set()


def _warm(family: Family, setting: str) -> None:
    """Load or compile the kernels that a setting needs before its fits are timed."""
    kind = (family.instance.family, str(family.model.get("emission")), setting)
    if kind not in _warmed:
        known = {} if setting == PEER else parameters(setting, family.instance.family)
        with warnings.catch_warnings(action="ignore"):
            family.fit_ours(0, known | {"max_iter": 2, "n_init": 1})
        _warmed.add(kind)
