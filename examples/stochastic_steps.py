"""
Random steps before the ascent
==============================

Stochastic annealing mixes every update with a new random start, by a share that falls to zero. Its
lower bound is therefore poor for a long time, and it is above that of plain variational inference
only at the end, when the randomness is gone. The curves are three fits of each kind to images of
the digit 5, with twelve components and scikit-learn's priors. The gain has its price: plain fits
are done after about ten passes, from which on the figure repeats their last bound, and the annealed
ones take 220.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import StochasticAnnealing

images, digits = load_digits(return_X_y=True)
X = PCA(15, random_state=0).fit_transform(images[digits == 5])
names = ["weight_concentration", "mean_precision", "mean", "degrees_of_freedom", "covariance"]
priors = {f"{name}_prior": None for name in names}  # None: those of scikit-learn

plt.rc("font", size=18)
figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
for color, annealing in (("C1", StochasticAnnealing(n_passes=200)), ("C0", "none")):
    name = "plain" if annealing == "none" else "stochastic"
    for seed in range(3):
        mixture = AnnealedBayesianGaussianMixture(
            n_components=12, annealing=annealing, max_iter=300, random_state=seed, **priors
        ).fit(X)
        print(f"{name:>10}: lower bound {mixture.lower_bound_:.0f}, {mixture.n_iter_} passes")
        bounds = [*mixture.lower_bounds_, mixture.lower_bound_]
        passes = [*range(len(bounds) - 1), 230]
        ax.plot(passes, bounds, color=color, linewidth=4, label=name if seed == 0 else None)
ax.set(xlabel="pass", ylabel="lower bound", ylim=(-10500, -8300))
ax.legend(loc="lower right")
plt.show()
