"""
Recommendations from clicks
===========================

Three hundred users have clicked on some of 100 items. Their clicks are drawn from five tastes, and
a fifth of them is held out. A list of items that everybody likes finds some of these. The gamma
process finds more: it infers how much of each part a user has, and recommends what these parts
have most of. The curves are the shares of the held-out items that are among the first ones of a
list.
"""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_anneal import AnnealedGammaProcessNMF

rng = np.random.default_rng(0)
tastes, items = rng.gamma(0.2, size=(300, 5)), rng.gamma(0.2, size=(5, 100))
popular = rng.gamma(1.0, size=100)
clicks = (rng.poisson(tastes @ (items * popular)) > 0).astype(int)
held_out = clicks * (rng.random(clicks.shape) < 0.2)
known = clicks - held_out

nmf = AnnealedGammaProcessNMF(10, random_state=0).fit(known)
users = np.flatnonzero(held_out.sum(axis=1))
lists = {
    "gamma process": nmf.recommend(known[users], n=30),
    "popularity": np.argsort(-np.where(known[users], -1, known.sum(axis=0)), kind="stable")[:, :30],
}

plt.rc("font", size=18)
figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
for (name, columns), style in zip(lists.items(), ("-", "--"), strict=True):
    hits = np.take_along_axis(held_out[users], columns, axis=1).cumsum(axis=1)
    recall = (hits / held_out[users].sum(axis=1, keepdims=True)).mean(axis=0)
    print(f"{name:>13}: {recall[9]:.2f} of the held-out items are among the first ten")
    ax.plot(np.arange(1, 31), recall, style, linewidth=6, label=name)
ax.set(xlabel="items in the list", ylabel="share that is found", ylim=(0, 1))
ax.legend()
plt.show()
