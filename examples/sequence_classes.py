"""
One model for each class of sequences
=====================================

Sequences of both classes go round three levels, one class upwards and the other downwards, and
every level lasts for a random time. Frames alone do not separate the classes, as both have the
same levels with the same noise; only the order does. One hidden Markov model is fitted to each
class, and a new sequence belongs to the class whose model gives it the higher likelihood: below the
line to the first, above it to the second.
"""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_anneal import AnnealedHMM

rng = np.random.default_rng(0)


def draw(step, n_sequences, length=15):
    """Sequences that go round three levels in steps of +1 or of -1, with noise."""
    moves = step * (rng.random((n_sequences, length)) < 0.5)
    levels = (rng.integers(3, size=(n_sequences, 1)) + np.cumsum(moves, axis=1)) % 3
    return list(levels[..., None] + 0.4 * rng.standard_normal((n_sequences, length, 1)))


models = [AnnealedHMM(3, random_state=0).fit(draw(step, 40)) for step in (1, -1)]

plt.rc("font", size=16)
figure, ax = plt.subplots(figsize=(6, 4.4), layout="constrained")
for true, (name, step) in enumerate({"upwards": 1, "downwards": -1}.items()):
    test = draw(step, 100)
    scores = [model.score_sequences(test) for model in models]
    print(f"{name}: {np.mean(np.argmax(scores, axis=0) == true):.0%} recognised")
    ax.plot(*scores, "os"[true], markersize=12, alpha=0.7, label=name)
ax.axline((-20, -20), slope=1, color="black", linewidth=4)
ax.set(xlabel="log-likelihood, upwards", ylabel="log-likelihood, downwards")
ax.legend()
plt.show()
