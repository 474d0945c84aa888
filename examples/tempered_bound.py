"""
A lower bound at four temperatures
==================================

Points come from two groups, and one component with the mean m, beside a broad background, can
explain one group only. The lower bound therefore has two optima in m, at the temperature 1 as at
2.5, and plain inference ends at the one on its side. At a high temperature the bound has a single
optimum. While the temperature falls, that optimum moves to the side of the larger group, so that an
annealed fit ends at the better of the two.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

rng = np.random.default_rng(0)
x = np.concatenate([rng.normal(-3, 1, 40), rng.normal(3, 1, 60)])
m = np.linspace(-7, 7, 701)

# The log densities of every point at every mean m, in the component and in the background.
component = norm.logpdf(x, m[:, None]) + np.log(0.5)
background = np.broadcast_to(norm.logpdf(x, scale=10) + np.log(0.5), component.shape)
both = np.stack([component, background])

plt.rc("font", size=18)
figure, axes = plt.subplots(2, 2, figsize=(7, 5), sharex=True, layout="constrained")
for ax, temperature in zip(axes.flat, (16, 6, 2.5, 1), strict=True):
    # The bound per point, with q(z) at its optimum for the temperature.
    bound = temperature * logsumexp(both / temperature, axis=0).mean(axis=1)
    optima = 1 + np.flatnonzero((bound[1:-1] > bound[:-2]) & (bound[1:-1] > bound[2:]))
    print(f"T = {temperature:4}: optima at m =", *np.round(m[optima], 1))
    ax.plot(m, bound, linewidth=5)
    ax.plot(m[optima], bound[optima], "o", color="C1", markersize=16, clip_on=False)
    ax.set(title=f"T = {temperature}", xticks=[-3, 3], yticks=[])
figure.supxlabel("mean m")
figure.supylabel("lower bound")
plt.show()
