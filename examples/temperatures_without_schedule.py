"""
A temperature that needs no schedule
====================================

Deterministic annealing begins at a high temperature and lowers it by a schedule that was chosen
beforehand. Variational tempering treats the temperature as one more unknown of the model and infers
it: it falls as the components come to fit the images, here of the digit 0. Both end at the
temperature 1, which is the real problem. Both also end at a higher lower bound than plain
variational inference from the same start, and on these images the schedule gains more.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from sklearn_anneal import AnnealedBayesianGaussianMixture

images, digits = load_digits(return_X_y=True)
X = PCA(15, random_state=0).fit_transform(images[digits == 0])
names = ["weight_concentration", "mean_precision", "mean", "degrees_of_freedom", "covariance"]
priors = {f"{name}_prior": None for name in names}  # None: those of scikit-learn

plt.rc("font", size=18)
figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
for name in ("none", "deterministic", "tempering"):
    mixture = AnnealedBayesianGaussianMixture(
        n_components=12, annealing=name, max_iter=300, random_state=0, **priors
    ).fit(X)
    print(f"{name:>13}: lower bound {mixture.lower_bound_:.0f}")
    if name != "none":
        ax.plot(mixture.temperatures_[:80], linewidth=6, label=name)
ax.axhline(1, color="black", linestyle="--")
ax.set(xlabel="pass", ylabel="temperature")
ax.legend()
plt.show()
