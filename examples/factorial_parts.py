"""
Parts that a row has or lacks
=============================

Every row is the sum of some of eight pictures, and noise. A factorial mixture has to find the
pictures from such sums. Plain variational inference finds four of them, and other components of it
mix several pictures. Deterministic annealing, the default, begins at a temperature at which all
components are alike, and they separate while it falls. From the same start it finds all eight, and
its lower bound is higher by far.
"""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_anneal import AnnealedFactorialMixture
from sklearn_anneal.datasets import make_factorial_mixture

X, _, truth = make_factorial_mixture(5000, random_state=0)
pictures = {"truth\n": truth.components}
for name in ("none", "deterministic"):
    mixture = AnnealedFactorialMixture(8, annealing=name, max_iter=300, random_state=0).fit(X)
    distances = np.linalg.norm(truth.components[:, None] - mixture.means_, axis=2) / 4
    found = np.sum(distances.min(axis=1) < 0.1)
    print(f"{name:>13}: lower bound {mixture.lower_bound_:.0f}, {found} of 8 parts found")
    pictures[f"{name}\n{found} of 8"] = mixture.means_[distances.argmin(axis=1)]

plt.rc("font", size=20)
figure, axes = plt.subplots(1, 3, figsize=(7, 5), layout="constrained")
for ax, (title, rows) in zip(axes, pictures.items(), strict=True):
    gaps = [(0, 0), (0, 0), (0, 1), (0, 1)]
    images = np.pad(rows.reshape(4, 2, 4, 4), gaps, constant_values=np.nan)
    ax.imshow(images.swapaxes(1, 2).reshape(20, 10), vmin=0, vmax=1)
    ax.set_title(title)
    ax.set_axis_off()
plt.show()
