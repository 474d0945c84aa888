"""
Topics from a stream of documents
=================================

Documents arrive in batches of a hundred. By default ``partial_fit`` keeps them, and fits the model
to all documents so far whenever these have grown by a half. In between, and after 200 documents for
each topic, it updates the topics with each batch. With ``max_iter=1`` there are only such updates,
each of which reads its documents once. These predict the words of new documents far worse, above
all while documents are few: the first of them divide words among topics that later ones never
change enough.
"""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_anneal import AnnealedLatentDirichletAllocation

rng = np.random.default_rng(0)
topics = rng.dirichlet(np.full(500, 0.02), 20)
proportions = rng.dirichlet(np.full(20, 0.05), 3000)
X = np.array([rng.multinomial(60, words) for words in proportions @ topics])
stream, test = X[:2500], X[2500:]

plt.rc("font", size=18)
figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
for name, settings in (("fits and updates", {}), ("updates alone", {"max_iter": 1})):
    lda = AnnealedLatentDirichletAllocation(20, annealing="structured", **settings, random_state=0)
    scores = [lda.partial_fit(batch).score(test) for batch in np.array_split(stream, 25)]
    print(f"{name:>16}: {scores[-1]:.3f} nats per token of new documents")
    ax.plot(np.arange(1, 26) * 100, scores, linewidth=6, label=name)
fit = AnnealedLatentDirichletAllocation(20, random_state=0).fit(stream).score(test)
print(f"{'a fit at the end':>16}: {fit:.3f}")
ax.axhline(fit, color="0.5", linestyle=":", linewidth=4, label="a fit at the end")
ax.set(xlabel="documents", ylabel="held-out score", xticks=[0, 1000, 2000])
ax.legend()
plt.show()
