"""
Counts that vary more than Poisson counts
=========================================

Two kinds of customers buy two goods at different rates, and every customer has days of more and of
less. A mixture of Poisson counts, whose variance is the mean, has to explain these days by further
components (left). With ``emission="negative_binomial"`` the rate of each cell varies, by a shape
that is learned for each column, and the two kinds are found (right). Each line surrounds half of
the probability of a component, and the numbers are log densities of new rows, in nats.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import nbinom, poisson

from sklearn_anneal import AnnealedBayesianMixture

rng = np.random.default_rng(0)
kind = rng.integers(2, size=1200)
means = np.array([[6.0, 40.0], [25.0, 12.0]])[kind]
counts = rng.poisson(means * rng.gamma(4.0, 1 / 4.0, means.shape))
X, new = counts[:600], counts[600:]

plt.rc("font", size=16)
figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), sharey=True, layout="constrained")
grid = np.arange(100)
for ax, emission in zip(axes, ("poisson", "negative_binomial"), strict=True):
    mixture = AnnealedBayesianMixture(12, emission=emission, random_state=0).fit(X)
    n_used, score = mixture.n_effective_components_, mixture.score(new)
    print(f"{emission}: {n_used} components, {score:.2f} nats per new row")
    ax.scatter(*(X + rng.random(X.shape) - 0.5).T, s=6, color="silver")
    for k in np.flatnonzero(mixture.weights_ > 1 / len(X)):
        m, r = mixture.lambdas_[k], getattr(mixture, "count_shapes_", None)
        first, second = (
            poisson.pmf(grid, m[d]) if r is None else nbinom.pmf(grid, r[d], r[d] / (r[d] + m[d]))
            for d in range(2)
        )
        density = np.outer(second, first)
        level = np.sort(density, axis=None)[::-1]
        half = level[np.searchsorted(level.cumsum(), 0.5 * level.sum())]
        ax.contour(grid, grid, density, [half], colors="k", linewidths=2)
    ax.set(title=f"{emission}:\n{n_used} components, {score:.2f}", xlabel="first good")
    ax.set(xlim=(-1, 80), ylim=(-1, 99))
axes[0].set_ylabel("second good")
plt.show()
