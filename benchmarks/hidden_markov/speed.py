"""Speed of hidden Markov models against hmmlearn's, and what annealing costs.

All comparisons are interleaved in this process, and given as medians of the ratios of neighbouring
runs. Work in a single thread is measured in processor time, which other work on the machine changes
less than wall time.

    python -m benchmarks.hidden_markov.speed            # everything, about 5 minutes
    python -m benchmarks.hidden_markov.speed symbols methods
    python -m benchmarks.hidden_markov.speed --write    # also into doc/results/sequences_speed.md
    python -m benchmarks.hidden_markov.speed --quick --write --output /tmp/quick.md

The pen trajectories come from a file, see ``data.py`` in this folder; a quick run draws sequences
and needs no file. hmmlearn is left out with a message if it is not installed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from sklearn_anneal.annealing import ANNEALING

from ..common.measuring import (
    Script,
    interleaved,
    milliseconds,
    processor_seconds,
    progress,
    reached,
    spread,
)
from ..common.report import Page
from .workload import (
    FULL,
    QUICK,
    WINDOW,
    Data,
    Ours,
    Peer,
    Size,
    kept,
    peer_is_there,
    symbols,
    vectors,
    vhmm,
    windows,
)

FASTER_SYMBOLS, FASTER_VECTORS = 12, 5
# Bounds count as the same if their relative difference is at most this.
SAME = 1e-8


def corpus(size: Size) -> str:
    """A description of the sequences, in words."""
    data = vectors(size)
    name = "drawn sequences" if size.quick else "pen trajectories"
    return f"{len(data.lengths):,} {name} of {data.n_frames:,} frames"


# Passes against hmmlearn


def compared(data: Data, k: int, size: Size) -> tuple[Ours, Peer, list[str]]:
    """Measure passes of both libraries from the same posterior.

    Returns both models after these passes, and the cells of a row.
    """
    ours = Ours.trained(data, k, size.trained)
    peer = Peer(data, k, ours.attributes)
    bounds: dict[str, list[float]] = {"ours": [], "peer": []}
    runs = {"ours": kept(ours, bounds["ours"]), "peer": kept(peer, bounds["peer"])}
    times = interleaved(runs, size.rounds)
    ratios = times["peer"] / times["ours"]
    mine, theirs = (np.array(bounds[name]) for name in ("ours", "peer"))
    difference = float(np.max(np.abs(mine - theirs) / np.abs(theirs)))
    cells = [milliseconds(times["peer"]), milliseconds(times["ours"])]
    cells += [f"{1e9 * np.median(times['ours']) / data.n_frames:.0f}", spread(ratios, 1)]
    cells += [f"{difference:.0e}" if difference <= SAME else f"**{difference:.0e}**"]
    target = FASTER_VECTORS if data.n_symbols is None else FASTER_SYMBOLS
    return ours, peer, [*cells, reached(float(np.median(ratios)) >= target)]


HEADER = ["K", "hmmlearn, ms", "ours, ms", "ours, ns per frame", "ratio", "bounds apart"]


def measure_symbols(size: Size) -> list[str]:
    """A pass over symbols against both implementations of hmmlearn."""
    page = Page()
    page.section(
        "A pass over symbols",
        f"{corpus(size)}, as symbols of a codebook of {size.symbols} by k-means. A pass is the "
        "local step over all sequences, the lower bound and the update; one thread, processor "
        'time. hmmlearn: `VariationalCategoricalHMM(implementation="log")`, its E-step, bound '
        f"and M-step. Both go on from the same posterior, which is ours after {size.trained} "
        f"passes, and make the same passes. Ratio: hmmlearn's time over ours, median and quartiles "
        f"of {size.rounds} rounds. *Bounds apart*: the largest relative difference of the lower "
        "bounds of the passes.",
    )
    data = symbols(size)
    if not peer_is_there():
        return [*page.lines, "Left out: hmmlearn is not installed.", ""]
    rows, scaled, starts = [], [], []
    for k in size.components:
        progress(f"symbols, K = {k}")
        ours, _, cells = compared(data, k, size)
        rows.append([str(k), *cells])
        scaled.append(_scaling_row(data, k, ours, size))
        progress(f"starts, K = {k}")
        starts.append(_start_row(data, k, size))
    page.table([*HEADER, f"target {FASTER_SYMBOLS}"], rows)
    page.lines += [
        'hmmlearn\'s `implementation="scaling"` from the posterior after these passes:',
        "",
    ]
    page.table(["K", "scaling, ms", "ours, ms", "what scaling did"], scaled)
    page.lines += [
        "From the start that each draws by default. hmmlearn's emissions come from a Dirichlet "
        "distribution of one over the number of symbols, most of whose probabilities are below "
        "1e-100; ours are posteriors of random counts.",
        "",
    ]
    header = ["K", "ours, first pass, ms", "ours, second pass, ms", "ours"]
    page.table([*header, 'hmmlearn, "log"', 'hmmlearn, "scaling"'], starts)
    return page.lines


def _scaling_row(data: Data, k: int, ours: Ours, size: Size) -> list[str]:
    scaling = Peer(data, k, ours.attributes, "scaling")
    bounds: list[float] = []
    runs = {"ours": ours, "scaling": kept(scaling, bounds)}
    try:
        times = interleaved(runs, size.passes)
    except ValueError as error:
        return [str(k), "–", "–", f"stopped in pass {len(bounds) + 1}: {error}"]
    ratio = spread(times["scaling"] / times["ours"], 1)
    what = f"ran; {ratio} times the time of ours"
    return [str(k), milliseconds(times["scaling"]), milliseconds(times["ours"]), what]


def _start_row(data: Data, k: int, size: Size) -> list[str]:
    ours = Ours(data, k)
    bounds: list[float] = []
    passes = [processor_seconds(kept(ours, bounds)) for _ in range(size.passes)]
    row = [str(k), *(milliseconds(np.array([seconds])) for seconds in passes[:2])]
    row.append(_outcome(bounds))
    for implementation in ("log", "scaling"):
        peer = vhmm.VariationalCategoricalHMM(
            k,
            n_features=data.n_symbols,
            n_iter=size.passes,
            tol=-np.inf,
            random_state=0,
            implementation=implementation,
        )
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                peer.fit(data.X, data.lengths)
            except ValueError as error:
                row.append(f"stopped: {error}")
            else:
                row.append(_outcome(list(peer.monitor_.history)))
    return row


def _outcome(bounds: Sequence[float]) -> str:
    if np.isfinite(bounds).all():
        return f"bound {bounds[-1]:.0f} in pass {len(bounds)}"
    first = int(np.argmin(np.isfinite(bounds)))
    return f"bound is not a number from pass {first + 1} on"


def measure_vectors(size: Size) -> list[str]:
    """A pass over vectors against hmmlearn's."""
    k = size.many
    page = Page()
    page.section(
        "A pass over vectors",
        f"The same with Gaussian emissions of full covariance, K = {k}, against "
        '`VariationalGaussianHMM(implementation="log")`: D = 3, velocities and force as they '
        f"are, and D = {3 * WINDOW}, {WINDOW} consecutive frames as one. hmmlearn is so slow that "
        f"both pass over one sequence of {size.every}.",
    )
    if not peer_is_there():
        return [*page.lines, "Left out: hmmlearn is not installed.", ""]
    rows = []
    for whole in (vectors(size), windows(size)):
        data = whole.thinned(size.every)
        progress(f"vectors, {data.name}")
        _, _, cells = compared(data, k, size)
        rows.append([data.name, f"{data.n_frames:,}", str(k), *cells])
    page.table(["data", "frames", *HEADER, f"target {FASTER_VECTORS}"], rows)
    return page.lines


# Annealing methods


def measure_methods(size: Size) -> list[str]:
    """Time per pass of every annealing method against plain inference."""
    k = size.many
    page = Page()
    page.section(
        "What annealing costs per pass",
        'Ratio of the time per pass to that of `annealing="none"`, batch mode, all sequences, '
        f"K = {k}, the first passes with the settings that are recommended for hidden Markov "
        "models, from the same posterior; one thread, processor time: median and quartiles of "
        f"{size.rounds} rounds. Local tempering passes over the data three times. Bounds that some "
        "methods need an additional pass for are not counted.",
    )
    cases = (symbols(size), vectors(size))
    cells = []
    for data in cases:
        progress(f"methods, {data.name}")
        trained = Ours.trained(data, k, size.trained)
        runs = {name: trained.branch(name) for name in ANNEALING}
        times = interleaved(runs, size.rounds)
        cells.append(
            {name: (milliseconds(t), spread(t / times["none"])) for name, t in times.items()}
        )
    rows = [[name, *(cell for column in cells for cell in column[name])] for name in ANNEALING]
    header = [f"{data.name}, {what}" for data in cases for what in ("ms", "ratio")]
    page.table(["method", *header], rows)
    return page.lines


BENCHMARKS: dict[str, tuple[Callable[[Size], list[str]], bool]] = {
    "symbols": (measure_symbols, True),
    "vectors": (measure_vectors, True),
    "methods": (measure_methods, True),
}


def main(argv: Sequence[str] | None = None) -> None:
    Script(
        model="hidden_markov",
        title="Speed of hidden Markov models",
        description=(__doc__ or "").partition("\n")[0],
        benchmarks=BENCHMARKS,
        output="sequences_speed.md",
        peers={"hmmlearn": vhmm},
        full=FULL,
        quick=QUICK,
    ).run(argv)


if __name__ == "__main__":
    main()
