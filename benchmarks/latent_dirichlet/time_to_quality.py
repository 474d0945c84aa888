"""Held-out likelihood of topic models against processor time, ours and other libraries.

    python -m benchmarks.latent_dirichlet.time_to_quality --records FILE
    python -m benchmarks.latent_dirichlet.time_to_quality --records FILE --write

"""

from __future__ import annotations

import sys
from pathlib import Path

from ..common.reproduction import Cache, run_missing
from .runs import CONTESTANTS, Spec


def main():
    cache = Cache(Path(sys.argv[1]), Spec)
    for name in sys.argv[2:]:
        run_missing([Spec("AP", 50, name, CONTESTANTS[name].settings)], 1, cache)
        r = cache._found[Spec("AP", 50, name, CONTESTANTS[name].settings).key]
        for row in zip(*r["curve"].values()):
            print(row)
        print({k: v for k, v in r.items() if k != "curve"})


if __name__ == "__main__":
    main()
