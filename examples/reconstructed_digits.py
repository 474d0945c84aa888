"""
Digits from layers of hidden units
==================================

A sigmoid belief net with three layers learns binary digits of 8 × 8 pixels. From a usual start it
needs no annealing. From a bad start, at which hidden units explain nothing, plain training
switches them all off, and every reconstruction is the mean of all digits. Proximity keeps the
entropy of the hidden units near its recent value, so that they are still there when the weights
have become useful.

Run it with ``python -m examples.reconstructed_digits``; it takes less than a minute.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from sklearn_anneal import AnnealedSigmoidBeliefNet
from sklearn_anneal.annealing import ProximityVI


def fitted_nets(train, n_passes=300, sizes=(50, 50, 50)):
    """Nets from a usual start, and from a bad start without and with proximity."""
    shared = {"learning_rate_init": 0.01, "tol": 0.0, "random_state": 0}
    bad = {"init_params": "normal", "init_bias": -10.0}
    proximity = ProximityVI(n_passes=n_passes // 2)
    nets = {
        "usual start": AnnealedSigmoidBeliefNet(sizes, max_iter=n_passes, **shared),
        "bad start": AnnealedSigmoidBeliefNet(sizes, max_iter=n_passes, **bad, **shared),
        "bad start, proximity": AnnealedSigmoidBeliefNet(
            sizes, annealing=proximity, max_iter=n_passes - n_passes // 2, **bad, **shared
        ),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return {name: net.fit(train) for name, net in nets.items()}


def draw(rows):
    """Write one line of images for each name as a PNG file into the current directory."""
    figure, axes = plt.subplots(len(rows), 1, figsize=(8, 1.1 * len(rows)), layout="constrained")
    for ax, (name, images) in zip(axes, rows.items(), strict=True):
        ax.imshow(np.hstack(images.reshape(-1, 8, 8)), cmap="gray_r", vmin=0, vmax=1)
        ax.set(title=name, xticks=[], yticks=[])
    path = Path("reconstructed_digits.png").resolve()
    figure.savefig(path, dpi=150)
    return path


def reconstructions(n_passes=300):
    """Held-out digits and what each net makes of them, by a name with the mean error of pixels."""
    X = (load_digits().data > 6).astype(np.float32)
    train, test = train_test_split(X, test_size=300, random_state=0)
    rows = {"digits": test[:12]}
    for name, net in fitted_nets(train, n_passes).items():
        error = np.abs(test - net.reconstruct(test)).mean()
        print(f"{name}: reconstruction error {error:.3f}, {net.score(test):.1f} nats per digit")
        rows[f"{name}: error {error:.3f}"] = net.reconstruct(test[:12])
    return rows


if __name__ == "__main__":
    print(f"\nThe figure is in {draw(reconstructions())}")
