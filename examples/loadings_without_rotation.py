"""
Loadings that need no rotation
==============================

The loadings of factor analysis can be rotated without any change of the likelihood, so that a
rotation has to be chosen before they are read. If factors are switched off in most rows, no such
freedom is left, and spike-and-slab factor analysis finds the loadings that drew the data. Here five
factors are on in a quarter of the rows each, and their loadings are dense, so that varimax, which
looks for sparse loadings, finds others. Varimax is given the number of factors; the other model may
use eight and is compared by the five that fit best.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import FactorAnalysis
from sklearn.preprocessing import normalize

from sklearn_anneal import AnnealedSpikeSlabFactorAnalysis

rng = np.random.default_rng(0)
loadings = rng.standard_normal((5, 15))
factors = 2 * rng.standard_normal((400, 5)) * (rng.random((400, 5)) < 0.25)
X = factors @ loadings + 0.5 * rng.standard_normal((400, 15))

truth = normalize(loadings)
pictures = {"truth": truth}
for name, estimator in {
    "varimax": FactorAnalysis(5, rotation="varimax", random_state=0),
    "spike and slab": AnnealedSpikeSlabFactorAnalysis(8, max_iter=300, random_state=0),
}.items():
    found = normalize(estimator.fit(X).components_)
    cosines = truth @ found.T
    rows, best = linear_sum_assignment(-np.abs(cosines))
    print(f"{name:>14}: mean |cosine| with the truth {np.abs(cosines[rows, best]).mean():.3f}")
    pictures[name] = found[best] * np.sign(cosines[rows, best])[:, None]

plt.rc("font", size=20)
figure, axes = plt.subplots(3, 1, figsize=(7, 5), layout="constrained")
for ax, (name, values) in zip(axes, pictures.items(), strict=True):
    ax.imshow(values, cmap="PuOr", vmin=-0.6, vmax=0.6, aspect="auto")
    ax.set(title=name, xticks=[], yticks=[])
plt.show()
