"""
How many latent classes? The lower bound says so
================================================

The answers of 400 people to twelve questions are drawn from four classes, and a tenth of the
answers is missing. The lower bound of a fit approximates the evidence of its model and includes all
constants, so that fits with different numbers of classes compare by it, without held-out rows. All
fits have the same fixed priors. The bound rises until there are four classes, which is the true
number, and falls slowly after that, because every class that the data do not need costs a little.
"""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_anneal import AnnealedBayesianMixture
from sklearn_anneal.datasets import make_mixture

X, _, _ = make_mixture(
    400, 12, n_components=4, emission="categorical", separation=2.0, missing=0.1, random_state=0
)
numbers = np.arange(1, 9)
bounds = []
for n_classes in numbers:
    mixture = AnnealedBayesianMixture(
        n_classes, emission="categorical", weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=1.0, emissionprob_prior=0.5, max_iter=500, random_state=0,
    ).fit(X)  # fmt: skip
    bounds.append(mixture.lower_bound_ / len(X))
    print(f"{n_classes} classes: lower bound {bounds[-1]:.3f} per person")
best = np.argmax(bounds)

plt.rc("font", size=18)
figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
ax.plot(numbers, bounds, "o-", linewidth=5, markersize=12)
ax.plot(numbers[best], bounds[best], "o", color="C1", markersize=24)
ax.set(xlabel="number of classes", ylabel="lower bound", xticks=numbers)
plt.show()
