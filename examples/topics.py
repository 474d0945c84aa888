"""
Ten topics, and all of them found
=================================

The words of 200 short documents are drawn from ten topics. Each topic is a row or a column of a
square of 25 words, so that it can be seen whether it was found. Plain variational inference merges
some topics and splits others. Deterministic annealing begins at a high temperature, at which the
topics are still alike, and lowers it to 1. From the same start it finds all ten, and its lower
bound is higher.
"""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_anneal import AnnealedLatentDirichletAllocation

rng = np.random.default_rng(0)
bars = np.zeros((10, 5, 5))
for i in range(5):
    bars[i, i] = bars[5 + i, :, i] = 0.2
bars = bars.reshape(10, 25)
proportions = rng.dirichlet(np.full(10, 0.3), 200)
X = np.array([rng.multinomial(40, words) for words in proportions @ bars])

pictures = {"truth\n": bars}
for name in ("none", "deterministic"):
    lda = AnnealedLatentDirichletAllocation(
        10, annealing=name, doc_topic_prior=0.3, topic_word_prior=0.1, max_iter=300, random_state=2
    ).fit(X)
    topics = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    distances = np.abs(bars[:, None] - topics).sum(axis=2) / 2
    found = np.sum(distances.min(axis=1) < 0.1)
    print(f"{name:>13}: lower bound {lda.lower_bound_:.0f}, {found} of 10 topics found")
    pictures[f"{name}\n{found} of 10"] = topics[distances.argmin(axis=1)]

plt.rc("font", size=20)
figure, axes = plt.subplots(1, 3, figsize=(7, 5), layout="constrained")
for ax, (title, rows) in zip(axes, pictures.items(), strict=True):
    gaps = [(0, 0), (0, 0), (0, 1), (0, 1)]
    images = np.pad(rows.reshape(5, 2, 5, 5), gaps, constant_values=np.nan)
    ax.imshow(images.swapaxes(1, 2).reshape(30, 12), vmin=0, vmax=0.2)
    ax.set_title(title)
    ax.set_axis_off()
plt.show()
