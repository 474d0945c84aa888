"""
A lower bound at four temperatures
==================================

Points come from two groups, and one component with the mean m, beside a broad background, can
explain one group only. The lower bound therefore has two optima in m. Plain inference ends at the
one on its side. At a high temperature the bound has one optimum, and while the temperature falls to
1 it moves to the better of the two.

Run it with ``python -m examples.tempered_bound``; it takes a second.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

TEMPERATURES = (16.0, 6.0, 2.5, 1.0)


def points(seed=0):
    """Forty points around -3, and sixty around 3."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(-3, 1, 40), rng.normal(3, 1, 60)])


def tempered_bound(m, x, temperature):
    """The bound per point at means m, with q(z) at its optimum for the temperature."""
    component = norm.logpdf(x, m[:, None]) + np.log(0.5)
    background = np.broadcast_to(norm.logpdf(x, scale=10) + np.log(0.5), component.shape)
    both = np.stack([component, background]) / temperature
    return temperature * logsumexp(both, axis=0).mean(axis=1)


def optima(bound):
    """Positions of the maxima of a curve, without its ends."""
    return 1 + np.flatnonzero((bound[1:-1] > bound[:-2]) & (bound[1:-1] > bound[2:]))


def draw():
    """Write the four curves with their optima as a PNG file into the current directory."""
    m, x = np.linspace(-7, 7, 701), points()
    figure, axes = plt.subplots(1, 4, figsize=(10, 2.6), layout="constrained")
    for ax, temperature in zip(axes, TEMPERATURES, strict=True):
        bound = tempered_bound(m, x, temperature)
        best = optima(bound)
        ax.plot(m, bound, color="#0072B2")
        ax.plot(m[best], bound[best], "o", color="#D55E00")
        ax.set(title=f"T = {temperature:g}", xlabel="mean m", yticks=[])
    axes[0].set_ylabel("lower bound")
    path = Path("tempered_bound.png").resolve()
    figure.savefig(path, dpi=150)
    return path


if __name__ == "__main__":
    print(f"The figure is in {draw()}")
