"""
Parts of counts that come in bursts
===================================

Counts are drawn as sums of three parts, and the rate of every cell is multiplied by noise: a good
that is bought at all is bought in quantity. Poisson parts explain this noise too, and all twelve
that are offered are in use. With ``dispersion="auto"`` the noise of cells is a part of the model,
its variance is learned, and three parts are left. The bars are the shares of the counts that parts
have, the largest first.
"""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_anneal import AnnealedGammaProcessNMF

rng = np.random.default_rng(0)
parts = np.kron(np.eye(3), np.full(10, 6.0))
rates = rng.gamma(0.5, 2.0, size=(150, 3)) @ parts
X = rng.poisson(rates * rng.gamma(2.0, 0.5, size=rates.shape))

plt.rc("font", size=18)
figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
for shift, dispersion in ((-0.2, None), (0.2, "auto")):
    nmf = AnnealedGammaProcessNMF(12, dispersion=dispersion, max_iter=200, random_state=0)
    counts = nmf.fit_transform(X).sum(axis=0) * nmf.components_.sum(axis=1)
    shares = np.sort(counts / counts.sum())[::-1]
    found = nmf.n_effective_components_
    print(f"dispersion {nmf.dispersion_}: {found} parts, score {nmf.score(X):.3f}")
    ax.bar(np.arange(1, 13) + shift, shares, width=0.4, label=f"dispersion={dispersion}: {found}")
ax.set(xlabel="part", ylabel="share of the counts", xticks=[1, 3, 12])
ax.legend()
plt.show()
