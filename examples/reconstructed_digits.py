"""
Hidden units that survive a bad start
=====================================

A sigmoid belief net learns digits in black and white, and reconstructs images that it has not seen
from its fifty hidden units. From a usual start it needs no annealing. From a bad start, at which
hidden units explain nothing, plain training switches them off, and every reconstruction is the same
mean image. Proximity keeps the entropy of the hidden units near its recent value while the weights
become useful, so that reconstructions differ and the score is higher. The usual start is still much
better than both.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from sklearn_anneal import AnnealedSigmoidBeliefNet
from sklearn_anneal.annealing import ProximityVI

warnings.simplefilter("ignore", ConvergenceWarning)  # the number of passes is fixed
X = (load_digits().data > 6).astype(np.float32)
train, test = train_test_split(X, test_size=300, random_state=0)
bad = {"init_params": "normal", "init_bias": -10.0}

rows = {"digits": test[:7]}
for name, settings in {
    "bad start, plain": {"max_iter": 200, **bad},
    "bad start, proximity": {"annealing": ProximityVI(n_passes=100), "max_iter": 100, **bad},
    "usual start": {"max_iter": 200},
}.items():
    net = AnnealedSigmoidBeliefNet(
        (50,), learning_rate_init=0.02, tol=0.0, random_state=0, **settings
    ).fit(train)
    made = net.reconstruct(test)
    error = np.abs(test - made).mean()
    print(f"{name:>20}: error {error:.3f}, score {net.score(test):.1f} nats per digit")
    rows[name] = made[:7]

plt.rc("font", size=18)
figure, axes = plt.subplots(4, 1, figsize=(6, 5), layout="constrained")
for ax, (name, images) in zip(axes, rows.items(), strict=True):
    ax.imshow(np.hstack(images.reshape(-1, 8, 8)), cmap="gray_r", vmin=0, vmax=1)
    ax.set_title(name)
    ax.set_axis_off()
plt.show()
