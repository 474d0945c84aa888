"""
Missing cells filled in by a mixture
====================================

Cells that are NaN need no imputer in front of a mixture: they are integrated out, and ``impute``
then fills them with values that follow from the other cells of their row. Here cells of the table
of wines are deleted at random, and the error is that of the deleted cells, in standard deviations
of their column. The mixture is better than five nearest neighbours while up to a fifth of the cells
is missing. With more holes in these 178 rows there is no clear difference between the two.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.preprocessing import scale

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.datasets import delete_cells

complete = scale(load_wine().data)
shares = (0.05, 0.1, 0.2, 0.3, 0.4)
errors = {"column means": [], "5 neighbours": [], "mixture": []}
for share in shares:
    X = delete_cells(complete, share, random_state=0)
    mixture = AnnealedBayesianGaussianMixture(n_components=5, tol=1e-4, random_state=0).fit(X)
    filled = SimpleImputer().fit_transform(X), KNNImputer().fit_transform(X), mixture.impute(X)
    for name, values in zip(errors, filled, strict=True):
        errors[name].append(np.sqrt(np.mean((values - complete)[np.isnan(X)] ** 2)))

plt.rc("font", size=16)
figure, ax = plt.subplots(figsize=(6, 4.4), layout="constrained")
for (name, values), color in zip(errors.items(), ("0.6", "C0", "C1"), strict=True):
    print(f"{name:>12}:", *(f"{value:.2f}" for value in values))
    ax.plot(shares, values, "o-", color=color, linewidth=5, markersize=12, label=name)
ax.set(xlabel="share of missing cells", ylabel="error", ylim=(0.5, 1.3))
ax.legend(loc="upper center", ncols=2)
plt.show()
