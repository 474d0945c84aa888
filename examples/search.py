"""
Moves leave a poor optimum
==========================

The points are drawn from eight groups. On the left are the components of plain variational
inference from a start at random points: some cover two groups, and others are left without points.
On the right is the default fit from the same start. It begins with the same steps and then tries to
leave the optimum by moves, such as a swap, in which one component is given up and another one is
divided. A move is kept only if the lower bound is higher after it. So the fit cannot end below the
plain one, and here it ends with one component for each group.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from sklearn_anneal import AnnealedBayesianGaussianMixture

X, _ = make_blobs(320, centers=8, cluster_std=0.7, random_state=6)
angles = np.linspace(0, 2 * np.pi, 100)
circle = 2.5 * np.stack([np.cos(angles), np.sin(angles)])

plt.rc("font", size=20)
figure, axes = plt.subplots(1, 2, figsize=(7, 4.9), sharey=True, layout="constrained")
for ax, annealing in zip(axes, ("none", "reheating"), strict=True):
    mixture = AnnealedBayesianGaussianMixture(
        n_components=8,
        init_params="random_from_data",
        annealing=annealing,
        max_iter=300,
        random_state=4,
    ).fit(X)
    used = mixture.n_effective_components_
    print(f"{annealing:>9}: {used} components, lower bound {mixture.lower_bound_:.1f}")
    ax.plot(*X.T, "o", color="0.7", markersize=8)
    for k in np.flatnonzero(mixture.weights_ > 0.01):
        ellipse = mixture.means_[k][:, None] + np.linalg.cholesky(mixture.covariances_[k]) @ circle
        ax.plot(*ellipse, color="C1", linewidth=5)
    ax.set(title=f"{annealing}: {used}", xticks=[], yticks=[])
plt.show()
