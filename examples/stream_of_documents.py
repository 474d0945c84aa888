"""
Topics from a stream of documents
=================================

Documents arrive in batches of a hundred, and every batch is read once by ``partial_fit``.
Structured variational inference computes the topics of the words at a draw of the topics, and not
at their expectations, which suits sparse topics like the twenty of these documents. In the
beginning it is behind plain inference (``"none"``), because draws from few documents are noisy.
After some 1500 documents it predicts the words of new documents better. Both are given the length
of the stream.
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
for name in ("none", "structured"):
    lda = AnnealedLatentDirichletAllocation(
        20, annealing=name, doc_topic_prior=0.05, topic_word_prior=0.02, random_state=0,
        total_samples=len(stream),
    )  # fmt: skip
    scores = [lda.partial_fit(batch).score(test) for batch in np.array_split(stream, 25)]
    print(f"{name:>10}: {scores[-1]:.3f} nats per token of new documents")
    ax.plot(np.arange(1, 26) * 100, scores, linewidth=6, label=name)
ax.set(xlabel="documents", ylabel="held-out score", xticks=[0, 1000, 2000])
ax.legend()
plt.show()
