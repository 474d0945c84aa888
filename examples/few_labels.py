"""
A few labels name the groups
============================

Two classes of points are curved groups that touch, and five points of each have a label (large
markers). A classifier of these ten points alone draws a straight line through both groups. The
mixture with four components for each class also learns from the points without a label: components
follow the groups, and the labels say which class each of them belongs to. The shading is the
probability of the classes, and the titles have the share of all points whose class is right.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression

from sklearn_anneal import AnnealedBayesianGaussianMixture

rng = np.random.default_rng(1)
X, truth = make_moons(400, noise=0.12, random_state=0)
y = np.full(400, -1)
for label in (0, 1):
    y[rng.choice(np.flatnonzero(truth == label), size=5, replace=False)] = label
known = y >= 0

classifiers = {
    "ten points alone": LogisticRegression().fit(X[known], y[known]),
    "all points": AnnealedBayesianGaussianMixture(n_components_per_class=4, random_state=0).fit(
        X, y
    ),
}

plt.rc("font", size=15)
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
grid = np.stack(np.meshgrid(np.linspace(-1.6, 2.6, 150), np.linspace(-1.1, 1.6, 120)), axis=-1)
for ax, (name, classifier) in zip(axes, classifiers.items(), strict=True):
    share = classifier.predict_proba(grid.reshape(-1, 2))[:, 1].reshape(grid.shape[:2])
    ax.contourf(grid[..., 0], grid[..., 1], share, levels=20, cmap="coolwarm", alpha=0.6)
    ax.scatter(*X.T, color="0.35", s=8)
    ax.scatter(*X[known].T, c=y[known], cmap="coolwarm", edgecolor="black", s=160)
    accuracy = classifier.score(X, truth)
    ax.set(title=f"{name}: {accuracy:.0%}", xticks=[], yticks=[])
    print(f"{name}: {accuracy:.1%} of the classes are right")
plt.show()
