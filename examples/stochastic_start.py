"""
Stochastic
==========

T.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from sklearn_anneal import AnnealedBayesianGaussianMixture

X = PCA(15, random_state=0).fit_transform(load_digits().data)
bounds = {}
for name in ("none", "stochastic"):
    fits = [
        AnnealedBayesianGaussianMixture(
            n_components=20, annealing=name, init_params="random", max_iter=500, random_state=seed
        ).fit(X)
        for seed in range(5)
    ]
    bounds[name] = [fit.lower_bound_ / len(X) for fit in fits]
    print(name, np.round(bounds[name], 2), [f.n_iter_ for f in fits])

plt.rc("font", size=16)
figure, ax = plt.subplots(figsize=(5.6, 4), layout="constrained")
for place, (name, values) in enumerate(bounds.items()):
    ax.plot(np.full(5, place), values, "o", markersize=12)
plt.show()
