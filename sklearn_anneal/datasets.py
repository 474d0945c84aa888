"""Random data with their true parameters: mixtures, factorial mixtures, counts and notes."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.utils import Bunch, check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions, validate_params

from .estimators._columns import Block, blocks_of
from .estimators._emissions import EMISSIONS
from .estimators._emissions._base import Wanted

__all__ = [
    "delete_cells",
    "make_factorial_mixture",
    "make_gamma_process_nmf",
    "make_mixture",
    "make_notes",
]

# Black-and-white pictures of 4 × 4 pixels, row by row. No sum of some of them is a sum of others.
_PICTURES = (
    "1111 0000 0000 0000",
    "1000 1000 1000 1000",
    "1000 0100 0010 0001",
    "0001 0010 0100 1000",
    "0000 0110 0110 0000",
    "0000 0000 0011 0011",
    "1111 1001 1001 1111",
    "0100 1110 0100 0000",
)
# How notes are synthesised and analysed: samples per second, samples of a window, and the time
# between two onsets of the same note and the time in which a note falls to 1/e, in seconds.
_RATE, _WINDOW, _BETWEEN_ONSETS, _DECAY = 8000, 1024, 2.0, 0.5
# Semitones above the lowest note, 110 Hz, from which notes are drawn; the number of harmonics of a
# note, and the range of the exponents with which their amplitudes fall.
_SEMITONES, _HARMONICS, _FALL = 36, 12, (0.8, 1.6)
_POSITIVE = Interval(Integral, 1, None, closed="left")
_SIZE = Interval(Real, 0.0, None, closed="neither")
_SHARE = Interval(Real, 0.0, 1.0, closed="left")


@validate_params(
    {
        "n_samples": [_POSITIVE],
        "n_features": [_POSITIVE],
        "n_components": [_POSITIVE],
        "emission": [StrOptions(EMISSIONS.keys()), list],
        "n_categories": [Interval(Integral, 2, None, closed="left")],
        "weights": ["array-like", None],
        "separation": [Interval(Real, 0.0, None, closed="neither")],
        "missing": [_SHARE],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_mixture(
    n_samples: int = 300,
    n_features: int = 10,
    *,
    n_components: int = 3,
    emission: Any = "bernoulli",
    n_categories: int = 3,
    weights: ArrayLike | None = None,
    separation: float = 1.0,
    missing: float = 0.0,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, Bunch]:
    """Draw a table from a mixture, and return its true components and parameters.

    The parameters of the components are drawn first, then a component for each row, then the
    cells of the row, independently of each other. The truth comes with the names of the fitted
    attributes of :class:`~sklearn_anneal.AnnealedBayesianMixture`, so that the two compare; the
    order of its components means nothing.

    Parameters
    ----------
    n_samples : int, default=300
        Number of rows.
    n_features : int, default=10
        Number of columns.
    n_components : int, default=3
        Number of components.
    emission : {"bernoulli", "categorical", "poisson", "gaussian", "negative_binomial", \
            "zero_inflated_poisson"} or list of tuples, default="bernoulli"
        The distribution of the columns, or a list of (name, emission, columns) for mixed columns,
        where ``columns`` is a position, a list of positions, a slice or a mask. The estimator takes
        the same list.
    n_categories : int, default=3
        Number of categories of each column of categories.
    weights : array-like of shape (n_components,), default=None
        Weights of the components, which are divided by their sum. None: equal weights.
    separation : float, default=1.0
        How far the components are apart. Probabilities are drawn from a Dirichlet distribution
        whose concentration is 1 / ``separation``, rates from a gamma distribution of mean 5 with
        this shape, and means from a normal distribution with the standard deviation
        2 × ``separation`` in units of that within a component.
    missing : float, default=0.0
        Share of the cells that are deleted at random, in [0, 1): see :func:`delete_cells`.
    random_state : int, RandomState instance or None, default=None
        Seed of all draws. Tables with and without missing cells agree in the others.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        The table, float64. Missing cells are NaN.
    labels : ndarray of shape (n_samples,)
        The component of each row.
    truth : :class:`~sklearn.utils.Bunch`
        ``weights``, ``complete`` (the table before cells were deleted), and the parameters of the
        emission:

        - for binary columns ``emissionprob``, the probabilities of ones, of shape (n_components,
          n_features);
        - for categories ``emissionprob``, a list with one array of shape (n_components,
          n_categories) for each column;
        - for counts ``lambdas``, of shape (n_components, n_features), with ``count_shapes``, of
          shape (n_features,), or ``zeroprob``, of shape (n_components, n_features), if their
          variance or their zeros are more than those of Poisson counts;
        - for real numbers ``means`` and ``covars``, the variances, of the same shape.

        If ``emission`` is a list, ``blocks`` has one Bunch of these for each name, each with its
        ``columns``.

    Raises
    ------
    ValueError
        If ``emission`` or ``weights`` are not well formed.

    Examples
    --------
    >>> from sklearn.metrics import adjusted_rand_score
    >>> from sklearn_anneal import AnnealedBayesianMixture
    >>> from sklearn_anneal.datasets import make_mixture
    >>> emission = [("answers", "categorical", slice(0, 8)), ("sizes", "gaussian", [8, 9])]
    >>> X, labels, truth = make_mixture(
    ...     200, 10, emission=emission, separation=2.0, missing=0.1, random_state=0
    ... )
    >>> mixture = AnnealedBayesianMixture(3, emission=emission, random_state=0).fit(X)
    >>> adjusted_rand_score(labels, mixture.predict(X)) > 0.9
    True
    """
    rng = check_random_state(random_state)
    weights = _weights(weights, n_components)
    blocks = blocks_of(emission, np.empty((0, n_features)), EMISSIONS)
    columns = blocks or [Block("", emission, np.arange(n_features))]
    drawn = {
        block.name: EMISSIONS[block.emission].drawn_components(
            Wanted(n_components, len(block.columns), n_categories, separation), rng
        )
        for block in columns
    }
    labels = rng.choice(n_components, size=n_samples, p=weights)
    complete = np.empty((n_samples, n_features))
    for block in columns:
        kind = EMISSIONS[block.emission]
        complete[:, block.columns] = kind.draw(drawn[block.name], labels, rng)
    truth = Bunch(weights=weights, complete=complete)
    if blocks is None:
        truth.update(drawn[""])
    else:
        truth["blocks"] = {b.name: Bunch(columns=b.columns, **drawn[b.name]) for b in blocks}
    X = delete_cells(complete, missing, random_state=rng) if missing else complete.copy()
    return X, labels, truth


def _weights(weights: ArrayLike | None, n_components: int) -> np.ndarray:
    """Check the weights and divide them by their sum."""
    if weights is None:
        return np.full(n_components, 1.0 / n_components)
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (n_components,) or not (values >= 0).all() or not 0 < values.sum() < np.inf:
        raise ValueError(
            f"weights should have one number for each of the {n_components} components, none of "
            f"them negative and not all 0, but is {weights!r}."
        )
    return values / values.sum()


@validate_params(
    {"X": ["array-like", "sparse matrix"], "share": [_SHARE], "random_state": ["random_state"]},
    prefer_skip_nested_validation=True,
)
def delete_cells(
    X: ArrayLike, share: float = 0.1, *, random_state: int | np.random.RandomState | None = None
) -> np.ndarray:
    """Delete cells of a table at random, to measure how well a model predicts them.

    Every observed cell is deleted with the same probability. Whether a cell is missing does
    therefore not depend on its value, as models assume that integrate missing cells out. A column
    keeps at least one of its cells.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        The table. It is not modified, and cells that are NaN stay so.
    share : float, default=0.1
        Share of the observed cells to delete, in [0, 1). It is rounded to a whole number of cells.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        A copy with NaN in the deleted cells, float32 if ``X`` is, else float64.

    Raises
    ------
    ValueError
        If ``X`` is sparse.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal.datasets import delete_cells
    >>> X = delete_cells(np.ones((10, 4)), 0.25, random_state=0)
    >>> int(np.isnan(X).sum())
    10
    """
    if issparse(X):
        raise ValueError("delete_cells takes a dense array: in a sparse one most cells are zeros.")
    rng = check_random_state(random_state)
    table = check_array(X, dtype=[np.float64, np.float32], copy=True, ensure_all_finite="allow-nan")
    observed = ~np.isnan(table)
    cells = np.flatnonzero(observed)
    chosen = rng.permutation(cells)[: round(share * len(cells))]
    deleted = np.zeros(table.shape, dtype=bool)
    deleted.flat[chosen] = True
    for column in np.flatnonzero(observed.any(axis=0) & ~(observed & ~deleted).any(axis=0)):
        deleted[rng.choice(np.flatnonzero(observed[:, column])), column] = False
    table[deleted] = np.nan
    return table


@validate_params(
    {
        "n_samples": [_POSITIVE],
        "n_features": [_POSITIVE],
        "n_components": [_POSITIVE],
        "activation": [Interval(Real, 0.0, 1.0, closed="both"), "array-like"],
        "noise": [Interval(Real, 0.0, None, closed="left")],
        "components": ["array-like", None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_factorial_mixture(
    n_samples: int = 1000,
    n_features: int = 16,
    *,
    n_components: int = 8,
    activation: ArrayLike = 0.3,
    noise: float = 0.1,
    components: ArrayLike | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, Bunch]:
    """Draw rows that are sums of some of the components, plus noise.

    In a factorial mixture each component is active in a row or not, independently of the others: x
    = Σ_k z_k μ_k + ε with binary z. The defaults resemble the artificial data of Mandt et al.
    (2016), section 4.2, of which that paper has ten thousand rows. The components are eight
    black-and-white pictures of 4 × 4 pixels, each multiplied by a draw from [0.5, 1].

    Parameters
    ----------
    n_samples : int, default=1000
        Number of rows.
    n_features : int, default=16
        Number of columns.
    n_components : int, default=8
        Number of components.
    activation : float or array-like of shape (n_components,), default=0.3
        Probability that a component is active in a row.
    noise : float, default=0.1
        Standard deviation of the noise.
    components : array-like of shape (n_components, n_features), default=None
        The components μ. None: with 16 columns and at most 8 components, the first of eight
        pictures that are always the same; otherwise pictures in which a random half of the pixels
        is set. Either are multiplied by one draw from [0.5, 1] each.
    random_state : int, RandomState instance or None, default=None
        Seed of all draws.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        The rows, float64.
    Z : ndarray of shape (n_samples, n_components)
        1 where a component is active in a row, and 0 where it is not.
    truth : :class:`~sklearn.utils.Bunch`
        ``components`` of shape (n_components, n_features), ``activation`` of shape
        (n_components,), and ``noise``.

    Raises
    ------
    ValueError
        If ``activation`` or ``components`` do not have the shapes that the numbers ask for.

    References
    ----------
    .. [1] Mandt, McInerney, Abrol, Ranganath, Blei (2016). Variational tempering. AISTATS.
    .. [2] Ghahramani (1995). Factorial learning and the EM algorithm. NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal.datasets import make_factorial_mixture
    >>> X, Z, truth = make_factorial_mixture(200, random_state=0)
    >>> X.shape, Z.shape, truth.components.shape
    ((200, 16), (200, 8), (8, 16))
    >>> bool(np.abs(X - Z @ truth.components).std() < 0.11)
    True
    """
    rng = check_random_state(random_state)
    k, d = n_components, n_features
    shares = np.asarray(activation, dtype=np.float64)
    if shares.shape not in ((), (k,)) or not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError(
            f"activation should be a probability or one for each of the {k} components, but is "
            f"{activation!r}."
        )
    if components is None:
        mu = _pictures(k, d, rng) * rng.uniform(0.5, 1.0, size=(k, 1))
    else:
        mu = check_array(components, dtype=np.float64)
        if mu.shape != (k, d):
            raise ValueError(
                f"components should have the shape (n_components, n_features) = {(k, d)}, but has "
                f"{mu.shape}."
            )
    Z = (rng.random_sample((n_samples, k)) < shares).astype(np.int64)
    X = Z @ mu + noise * rng.standard_normal((n_samples, d))
    truth = Bunch(components=mu, activation=np.broadcast_to(shares, (k,)).copy(), noise=noise)
    return X, Z, truth


def _pictures(k: int, d: int, rng: np.random.RandomState) -> np.ndarray:
    """Black-and-white pictures, of shape (k, d)."""
    if d == 16 and k <= len(_PICTURES):
        pixels = [[int(pixel) for pixel in text.replace(" ", "")] for text in _PICTURES[:k]]
        return np.array(pixels, dtype=np.float64)
    half = np.arange(d) < (d + 1) // 2
    return np.array([rng.permutation(half) for _ in range(k)], dtype=np.float64)


@validate_params(
    {
        "n_samples": [_POSITIVE],
        "n_features": [_POSITIVE],
        "n_components": [_POSITIVE],
        "mean_count": [_SIZE],
        "activation_prior": [_SIZE],
        "component_prior": [_SIZE],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_gamma_process_nmf(
    n_samples: int = 300,
    n_features: int = 100,
    *,
    n_components: int = 10,
    mean_count: float = 5.0,
    activation_prior: float = 0.3,
    component_prior: float = 0.3,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, Bunch]:
    """Draw counts that are sums of components of equal weight.

    Components, activations and counts are drawn from the model of
    :class:`~sklearn_anneal.AnnealedGammaProcessNMF`, except that all of its components are used.

    Parameters
    ----------
    n_samples : int, default=300
        Number of rows.
    n_features : int, default=100
        Number of columns.
    n_components : int, default=10
        Number of components.
    mean_count : float, default=5.0
        The mean of the counts.
    activation_prior, component_prior : float, default=0.3
        Shapes of the gamma distributions of activations and of entries of components. The smaller
        they are, the fewer are large.
    random_state : int, RandomState instance or None, default=None
        Seed of all draws.

    Returns
    -------
    X : ndarray of int64, shape (n_samples, n_features)
        The counts.
    activations : ndarray of shape (n_samples, n_components)
        The activations.
    truth : :class:`~sklearn.utils.Bunch`
        ``components`` of shape (n_components, n_features), so that ``activations @ components`` is
        the expected X.

    References
    ----------
    .. [1] Hoffman, Blei, Cook (2010). Bayesian nonparametric matrix factorization for recorded
       music. ICML.

    Examples
    --------
    >>> from sklearn_anneal.datasets import make_gamma_process_nmf
    >>> X, activations, truth = make_gamma_process_nmf(50, 20, random_state=0)
    >>> X.shape, activations.shape, truth.components.shape
    ((50, 20), (50, 10), (10, 20))
    """
    rng = check_random_state(random_state)
    a, b = component_prior, activation_prior
    components = rng.gamma(a, 1.0 / a, size=(n_components, n_features))
    activations = rng.gamma(b, 1.0 / b, size=(n_samples, n_components))
    components *= mean_count / n_components
    X = rng.poisson(activations @ components)
    return X, activations, Bunch(components=components)


@validate_params(
    {
        "n_samples": [_POSITIVE],
        "n_notes": [Interval(Integral, 1, _SEMITONES, closed="both")],
        "mean": [_SIZE],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_notes(
    n_samples: int = 400,
    *,
    n_notes: int = 8,
    mean: float = 5.0,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, Bunch]:
    """Synthesise piano-like notes, and return the magnitudes of their short-time spectra.

    Each note is a sum of twelve harmonics, which fall with their number, each at a power of its
    own. It is struck at random times, about every two seconds, and decays exponentially. Magnitudes
    of sums of tones are not quite sums of magnitudes, as in recordings.

    Parameters
    ----------
    n_samples : int, default=400
        Number of spectra, 64 ms apart.
    n_notes : int, default=8
        Number of different notes, at most 36.
    mean : float, default=5.0
        The mean of the magnitudes, to which they are scaled.
    random_state : int, RandomState instance or None, default=None
        Seed of all draws.

    Returns
    -------
    X : ndarray of shape (n_samples, 513)
        Magnitudes, one row per spectrum; columns are frequencies from 0 to 4000 Hz.
    activations : ndarray of shape (n_samples, n_notes)
        The loudness of each note at the time of each spectrum.
    truth : :class:`~sklearn.utils.Bunch`
        ``components`` of shape (n_notes, 513), the mean spectrum of each note when it is played
        alone, and ``frequencies`` of shape (n_notes,), those of the notes in Hz.

    Examples
    --------
    >>> from sklearn_anneal.datasets import make_notes
    >>> X, activations, truth = make_notes(100, n_notes=3, random_state=0)
    >>> X.shape, activations.shape, truth.components.shape
    ((100, 513), (100, 3), (3, 513))
    """
    rng = check_random_state(random_state)
    hop = _WINDOW // 2
    time = np.arange((n_samples - 1) * hop + _WINDOW) / _RATE
    pitches = np.sort(rng.choice(_SEMITONES, n_notes, replace=False))
    frequencies = 110.0 * 2.0 ** (pitches / 12.0)
    n_onsets = max(1, round(time[-1] / _BETWEEN_ONSETS))
    tones, loudness = np.empty((n_notes, len(time))), np.empty((n_notes, len(time)))
    for k, frequency in enumerate(frequencies):
        onsets = rng.uniform(0.0, time[-1], size=n_onsets)
        elapsed = time - onsets[:, None]
        decay = np.exp(-np.maximum(elapsed, 0.0) / _DECAY)
        struck = np.where(elapsed >= 0, decay, 0.0)
        loudness[k] = rng.uniform(0.5, 1.0, size=n_onsets) @ struck
        harmonics = np.arange(1, _HARMONICS + 1)
        harmonics = harmonics[harmonics * frequency < 0.5 * _RATE]
        amplitudes = harmonics ** -rng.uniform(*_FALL, size=len(harmonics))
        phases = rng.uniform(0.0, 2.0 * np.pi, size=len(harmonics))
        waves = np.sin(
            2.0 * np.pi * frequency * np.multiply.outer(harmonics, time) + phases[:, None]
        )
        tones[k] = loudness[k] * (amplitudes @ waves)
    starts = hop * np.arange(n_samples)
    window = np.hanning(_WINDOW)

    def magnitudes(signal: np.ndarray) -> np.ndarray:
        frames = np.lib.stride_tricks.sliding_window_view(signal, _WINDOW)[starts]
        return np.abs(np.fft.rfft(frames * window, axis=1))

    X = magnitudes(tones.sum(axis=0))
    scale = mean / X.mean()
    components = scale * np.array([magnitudes(tone).mean(axis=0) for tone in tones])
    activations = loudness[:, starts + hop].T
    return scale * X, activations, Bunch(components=components, frequencies=frequencies)
