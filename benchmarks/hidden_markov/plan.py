"""The fits that the experiments with sequences consist of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import product

from ..common.reproduction import Cache, Settings, run_missing, settings_of
from .data import available
from .fits import Spec, recommended

PARTS = ("settings", "letters", "states", "others")

VI, BEST = "VI", "VI, best of all seeds"
DET, STOCH = "deterministic", "stochastic"
PAPER_DET, PAPER_STOCH, STILL = (
    "deterministic, the paper's",
    "stochastic, the paper's",
    "deterministic, no jitter",
)

# These methods are run on texts and for the curve of the bound against the number of states.
COMPARED = (VI, DET, STOCH)

Grid = dict[str, tuple[str, Settings]]


@dataclass(frozen=True)
class Size:
    """The size of the experiments.

    Attributes
    ----------
    letters : tuple of str
        Data sets of the bound of each letter, and of the classifier.
    states : tuple of int
        Numbers of states (K) for the letters.
    curve, curve_states : str, tuple of int
        The data set and the numbers of states for the curve of the bound against them.
    texts : tuple of str
        Data sets on which no gain is expected.
    others : tuple of str
        Methods that are run by name.
    settings : dict
        For each emission, the data sets on which settings are compared, with numbers of states.
    temperatures, jitters, passes, noises, noise_passes : tuple
        The grid of settings.
    seeds, some, few : int
        Numbers of repetitions: ``seeds`` of plain inference and of single data sets, ``some`` of
        all letters and of the curve, ``few`` of the settings.
    """

    letters: tuple[str, ...] = tuple(f"letter {c}" for c in "abcdeghlmnopqrsuvwyz")
    states: tuple[int, ...] = (5, 10)
    curve: tuple[str, ...] = ("image rows",)
    curve_states: tuple[int, ...] = (2, 3, 5, 8, 10, 15, 20)
    texts: tuple[str, ...] = ("English",)
    others: tuple[str, ...] = (
        "tempering",
        "local_tempering",
        "svi_plus",
        "structured",
        "proximity",
    )
    settings: tuple[tuple[str, str, int], ...] = (
        ("categorical", "letter a", 5),
        ("categorical", "letter e", 10),
        ("categorical", "letter m", 5),
        ("categorical", "letter w", 10),
        ("gaussian", "letter a", 5),
        ("gaussian", "letter e", 10),
        ("gaussian", "letter m", 5),
        ("gaussian", "letter w", 10),
        ("bernoulli", "digit 3", 8),
        ("bernoulli", "digit 8", 8),
    )
    temperatures: tuple[float, ...] = (1.5, 2.0, 3.0)
    jitters: tuple[float, ...] = (0.0, 1.0)
    passes: tuple[int, ...] = (50, 200)
    noises: tuple[float, ...] = (0.1, 0.2, 0.5)
    noise_passes: tuple[int, ...] = (50, 200)
    seeds: int = 10
    some: int = 10
    few: int = 2
    quick: bool = False


FULL = Size()
QUICK = Size(
    letters=("drawn 0", "drawn 1"),
    states=(2,),
    curve=("drawn 2",),
    curve_states=(1, 2),
    texts=("drawn 3",),
    others=("proximity",),
    settings=(("categorical", "drawn 0", 2), ("gaussian", "drawn 0", 2)),
    temperatures=(1.5,),
    jitters=(0.0, 1.0),
    passes=(3,),
    noises=(0.5,),
    noise_passes=(3,),
    seeds=3,
    some=2,
    few=2,
    quick=True,
)


def deterministic(
    temperature: float, jitter: float, n_passes: int, form: str = "likelihood"
) -> Settings:
    return settings_of(
        form=form,
        initial_temperature=temperature,
        schedule="geometric",
        n_passes=n_passes,
        jitter=jitter,
    )


def stochastic(noise: float, schedule: str, n_passes: int, start: str) -> Settings:
    return settings_of(initial_noise=noise, schedule=schedule, n_passes=n_passes, start=start)


def methods() -> Grid:
    """The methods for the letters, with recommended settings and those nearest to the paper's.

    The paper's temperature T = 5/(1 − ρ) tends to 5, while ours falls from 5 to 1.
    """
    return {
        VI: ("none", ()),
        DET: ("deterministic", recommended("deterministic")),
        STOCH: ("stochastic", recommended("stochastic")),
        PAPER_DET: ("deterministic", deterministic(5.0, 0.0, 50, "posterior")),
        PAPER_STOCH: ("stochastic", stochastic(0.25, "linear", 50, "random")),
    }


def grid(size: Size) -> Grid:
    """All settings that are compared with each other and with plain inference."""
    found: Grid = {VI: ("none", ())}
    for temperature, jitter, n in product(size.temperatures, size.jitters, size.passes):
        name = f"T₀ = {temperature:g}, jitter {jitter:g}, n = {n}"
        found[name] = "deterministic", deterministic(temperature, jitter, n)
    schedules = ("linear", "exponential")
    starts = ("init_params", "random")
    for noise, how, n, start in product(size.noises, schedules, size.noise_passes, starts):
        name = f"r₀ = {noise:g}, {how}, n = {n}, {start}"
        found[name] = "stochastic", stochastic(noise, how, n, start)
    return found


SettingsKey = tuple[str, str, int, str]


def settings_cells(size: Size) -> dict[SettingsKey, Spec]:
    """Fits by (emission, data, K, name of the settings)."""
    there = available(name for _, name, _ in size.settings)
    return {
        (emission, name, k, label): Spec(name, emission, k, method, settings)
        for label, (method, settings) in grid(size).items()
        for emission, name, k in size.settings
        if name in there
    }


LetterKey = tuple[str, int, str]


def letter_cells(size: Size) -> dict[LetterKey, Spec]:
    """Fits by (letter, K, method)."""
    there = tuple(available(size.letters))
    return {
        (name, k, label): Spec(name, "categorical", k, method, settings, classify=there)
        for k in size.states
        for name in there
        for label, (method, settings) in methods().items()
    }


def orientation_cells(size: Size) -> dict[LetterKey, Spec]:
    """Fits to the first letter with the fewest states, including a setting without jitter."""
    own = (size.letters[0], size.states[0])
    found = {key: spec for key, spec in letter_cells(size).items() if key[:2] == own}
    still = deterministic(1.5, 0.0, 200)
    return found | {
        (*own, STILL): replace(spec, method="deterministic", settings=still)
        for (*_, method), spec in found.items()
        if method == DET
    }


def plain_cells(size: Size) -> dict[LetterKey, Spec]:
    """Fits of plain inference, from which the best of all seeds is taken."""
    return {key: spec for key, spec in letter_cells(size).items() if key[-1] == VI}


def text_cells(size: Size) -> dict[LetterKey, Spec]:
    """Fits by (text, K, method)."""
    return {
        (name, k, label): Spec(name, "categorical", k, method, settings)
        for k in size.states
        for name in available(size.texts)
        for label, (method, settings) in methods().items()
        if label in COMPARED
    }


def other_cells(size: Size) -> dict[LetterKey, Spec]:
    """Fits by (letter, K, method), for the methods that the paper does not use."""
    there = tuple(available(size.letters))
    return {
        (name, size.states[0], method): Spec(
            name, "categorical", size.states[0], method, classify=there
        )
        for name in there
        for method in size.others
    }


def curve_cells(size: Size) -> dict[LetterKey, Spec]:
    """Fits by (data, K, method)."""
    return {
        (name, k, label): Spec(name, "categorical", k, *methods()[label])
        for name in available(size.curve)
        for k in size.curve_states
        for label in COMPARED
    }


def measure(parts: Iterable[str], size: Size, cache: Cache, jobs: int) -> None:
    """Make those fits of the given parts that the cache does not have."""
    plan: dict[str, list[tuple[Callable[[Size], dict], int]]] = {
        "settings": [(settings_cells, size.few)],
        "letters": [
            (orientation_cells, size.seeds),
            (text_cells, size.seeds),
            (plain_cells, size.seeds),
            (letter_cells, size.some),
        ],
        "states": [(curve_cells, size.some)],
        "others": [(other_cells, 1)],
    }
    for part in parts:
        for cells, n_seeds in plan[part]:
            run_missing(cells(size).values(), n_seeds, cache, jobs)
