"""
Outliers have high temperatures
===============================

Local tempering learns one temperature for every point. A point that no component explains well gets
a high one, so that it counts less when the components are fitted. The inverse temperatures of the
fitted mixture are therefore scores of outliers: dark points here. Fifteen of the points were drawn
from the whole square, and the others from three groups; the mixture does not know which. Those few
of the fifteen that fell into a group look like its other points. The log density of a default fit
ranks outliers as well, as the printed areas show; local tempering is of use where outliers would
draw components away.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs
from sklearn.metrics import roc_auc_score

from sklearn_anneal import AnnealedBayesianGaussianMixture

groups, _ = make_blobs(300, centers=[[-6, -3], [0, 5], [6, -3]], random_state=0)
X = np.vstack([groups, np.random.default_rng(0).uniform(-12, 12, (15, 2))])

mixture = AnnealedBayesianGaussianMixture(
    n_components=3, annealing="local_tempering", random_state=0
).fit(X)
inverse = mixture.inverse_temperatures(X)
is_outlier = np.arange(len(X)) >= len(groups)
default = AnnealedBayesianGaussianMixture(n_components=3, random_state=0).fit(X)
density = default.score_samples(X)
print("Area under the ROC curve of the outliers")
print(f"by inverse temperatures: {roc_auc_score(is_outlier, -inverse):.3f}")
print(f"by log densities of the default fit: {roc_auc_score(is_outlier, -density):.3f}")

plt.rc("font", size=18)
figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
points = ax.scatter(*X.T, c=inverse, s=120, edgecolors="black")
figure.colorbar(points, label="inverse temperature")
ax.set(xticks=[], yticks=[])
plt.show()
