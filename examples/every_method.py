"""
Every method on the images of one digit
=======================================

The parameter ``annealing`` chooses the method, and everything else stays the same. Each point is
the lower bound of one fit to images of the digit 3, from one of five starts; all fits have
scikit-learn's priors and the default settings of their method. Most methods end above plain
variational inference (``"none"``). Proximity changes nothing here, because it is meant for bad
starts, and local tempering changes little. The order is another one on other data.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from sklearn_anneal import AnnealedBayesianGaussianMixture

images, digits = load_digits(return_X_y=True)
X = PCA(15, random_state=0).fit_transform(images[digits == 3])
names = ["weight_concentration", "mean_precision", "mean", "degrees_of_freedom", "covariance"]
priors = {f"{name}_prior": None for name in names}  # None: those of scikit-learn
methods = ["none", "proximity", "local_tempering", "structured", "tempering"]
methods += ["reheating", "deterministic", "stochastic", "svi_plus"]

plt.rc("font", size=19)
figure, ax = plt.subplots(figsize=(7, 4.9), layout="constrained")
for name in methods:
    bounds = []
    for seed in range(5):
        mixture = AnnealedBayesianGaussianMixture(
            n_components=12, annealing=name, max_iter=300, random_state=seed, **priors
        )
        bounds.append(mixture.fit(X).lower_bound_)
    print(f"{name:>15}: {min(bounds):.0f} to {max(bounds):.0f}")
    ax.plot(
        bounds, [name] * 5, "o", color="C0" if name == "none" else "C1", markersize=14, alpha=0.7
    )
ax.set_xlabel("lower bound")
plt.show()
