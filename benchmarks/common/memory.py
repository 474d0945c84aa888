"""The memory of this process, which Linux reports in a file that other systems do not have.

Anonymous memory (RssAnon) belongs neither to a file nor to shared memory. Pages of a memory-mapped
file are not counted, because the system takes them back when it needs them. An MB is 10⁶ bytes.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

STATUS = Path("/proc/self/status")


def anonymous_megabytes() -> float:
    """RssAnon of this process in MB."""
    return _megabytes("RssAnon")


def _megabytes(name: str) -> float:
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise OSError(f"{STATUS} has no {name}")


class Sampler(threading.Thread):
    """The largest anonymous memory while a `with` block runs, sampled every 2 ms.

    Attributes
    ----------
    before, peak : float
        The memory when the sampler was made, and the largest since then; in MB.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before = self.peak = anonymous_megabytes()
        self._over = threading.Event()

    @property
    def growth(self) -> float:
        """How far the memory rose, in MB."""
        return self.peak - self.before

    def run(self) -> None:
        while not self._over.wait(0.002):
            self.peak = max(self.peak, anonymous_megabytes())

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._over.set()
        self.join()
        self.peak = max(self.peak, anonymous_megabytes())
