"""
Hidden units that survive a bad start
=====================================

A sigmoid belief net with fifty hidden units is trained on digits in black and white. From a bad
start, at which hidden units explain nothing, plain training switches them off if the weights do not
decay, and the bound stays where a net without hidden units would be. Proximity keeps the entropy of
the hidden units near its recent value while the weights become useful, and its bound goes on
rising. The usual start is still much better than both, and needs no annealing.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedSigmoidBeliefNet
from sklearn_anneal.annealing import ProximityVI

warnings.simplefilter("ignore", ConvergenceWarning)  # the number of passes is fixed
X = (load_digits().data[:1000] > 6).astype(np.float32)
bad = {"init_params": "normal", "init_bias": -10.0}

plt.rc("font", size=18)
figure, ax = plt.subplots(figsize=(6, 4.4), layout="constrained")
runs = {
    "usual start": {"max_iter": 200},
    "bad start, proximity": {"annealing": ProximityVI(n_passes=100), "max_iter": 100, **bad},
    "bad start, plain": {"max_iter": 200, **bad},
}
for (name, settings), color in zip(runs.items(), ("C0", "C1", "0.6"), strict=True):
    net = AnnealedSigmoidBeliefNet(
        (50,), weight_decay=0.0, tol=0.0, random_state=0, **settings
    ).fit(X)
    print(f"{name:>20}: {net.score(X):.1f} nats per digit after {net.n_iter_} passes")
    ax.plot(np.array(net.lower_bounds_) / len(X), color=color, linewidth=6, label=name)
ax.set(xlabel="pass", ylabel="lower bound per digit", ylim=(-33, -6))
ax.legend(loc="upper left", fontsize=16)
plt.show()
