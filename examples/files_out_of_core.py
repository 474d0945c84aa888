"""
A mixture of rows in files
==========================

The measurements of ten days are in ten files, of which at most two are in memory at a time.
``Shards`` lists them, and takes the place of ``X``. A pass reads one file after another and adds up
the statistics of their rows, which are all that an update needs. The result is that of a fit to all
rows in memory, except for rounding: the dashed ellipses of one lie on the solid ones of the other.
The workers of a cluster can read the files instead, and find the same result to the last bit.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from sklearn_anneal import AnnealedBayesianGaussianMixture, Shards
from sklearn_anneal.inspection import MixtureEllipseDisplay

rng = np.random.default_rng(0)
angles = np.pi / 3 * np.arange(6)
centres = 6 * np.column_stack([np.cos(angles), np.sin(angles)])
spreads = rng.normal(size=(6, 2, 2))


def measurements(n):
    which = rng.integers(6, size=n)
    return centres[which] + np.einsum("nd,nde->ne", rng.normal(size=(n, 2)), spreads[which])


mixtures = [
    AnnealedBayesianGaussianMixture(n_components=6, annealing="deterministic", random_state=0)
    for _ in range(2)
]
with tempfile.TemporaryDirectory() as folder:
    files = [Path(folder) / f"day-{day}.npz" for day in range(10)]
    for file in files:
        np.savez(file, measurements(1000))
    from_files = mixtures[0].fit(Shards(files))
    in_memory = mixtures[1].fit(np.concatenate(list(Shards(files))))
for name, mixture in zip(("from files", "in memory"), mixtures, strict=True):
    print(f"{name}: lower bound {mixture.lower_bound_:.6f} after {mixture.n_iter_} passes")

plt.rc("font", size=18)
figure, ax = plt.subplots(figsize=(6, 4.6), layout="constrained")
wide, dashed = {"linewidth": 5}, {"linestyle": "--", "edgecolor": "black", "facecolor": "none"}
shown = MixtureEllipseDisplay.from_estimator(
    from_files, measurements(500), ax=ax, n_std=2, ellipse_kwargs=wide
)
shown = MixtureEllipseDisplay.from_estimator(in_memory, ax=ax, n_std=2, ellipse_kwargs=dashed)
ax.set_ylim(-8.5, 12)
ax.set_title("ten files (solid), memory (dashed)", fontsize=18)
plt.show()
