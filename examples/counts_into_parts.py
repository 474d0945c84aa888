"""
How many parts the counts need
==============================

Counts are drawn as sums of six parts, and two factorisations may use twenty. scikit-learn's NMF
uses all that it is given, and divides the counts among them. The gamma process begins with twenty
too, but the weights of those that the counts do not need fall to zero, and six are left. The bars
are the shares of the counts that the parts have, the largest first.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import NMF

from sklearn_anneal import AnnealedGammaProcessNMF
from sklearn_anneal.datasets import make_gamma_process_nmf

X, _, _ = make_gamma_process_nmf(300, 60, n_components=6, mean_count=10.0, random_state=0)
models = {
    "NMF": NMF(20, beta_loss="kullback-leibler", solver="mu", init="nndsvda", max_iter=1000),
    "gamma process": AnnealedGammaProcessNMF(20, max_iter=500, random_state=0),
}

plt.rc("font", size=18)
figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
for shift, (name, model) in zip((-0.2, 0.2), models.items(), strict=True):
    counts = model.fit_transform(X).sum(axis=0) * model.components_.sum(axis=1)
    shares = np.sort(counts / counts.sum())[::-1]
    print(f"{name:>13}: {np.sum(shares > 0.001)} parts have more than a thousandth of the counts")
    ax.bar(np.arange(1, 21) + shift, shares, width=0.4, label=name)
ax.set(xlabel="part", ylabel="share of the counts", xticks=[1, 6, 20])
ax.legend()
plt.show()
