"""
Digits reconstructed and drawn by a net
=======================================

A sigmoid belief net has two layers of binary hidden units and learns digits in black and white. A
recognition network infers the hidden units of images that the net has not seen, and the second row
has the images that the net makes from these units alone. A pixel is wrong by 0.11 on average, where
the mean image would be wrong by 0.27. The third row are images that the net draws by itself: hidden
units of the top layer first, then those below, then pixels. Nets need no annealing from their usual
start, so that ``annealing="none"`` is their default.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from sklearn_anneal import AnnealedSigmoidBeliefNet

warnings.simplefilter("ignore", ConvergenceWarning)  # the number of passes is fixed
X = (load_digits().data > 6).astype(np.float32)
train, test = train_test_split(X, test_size=300, random_state=0)
net = AnnealedSigmoidBeliefNet((100, 50), max_iter=200, tol=0.0, random_state=0).fit(train)
made = net.reconstruct(test)
error, of_mean = np.abs(test - made).mean(), np.abs(test - train.mean(axis=0)).mean()
print(f"score of held-out digits: {net.score(test):.1f} nats per digit")
print(f"mean error of a pixel: {error:.2f}, and {of_mean:.2f} for the mean image")

plt.rc("font", size=20)
figure, axes = plt.subplots(3, 1, figsize=(6.4, 5), layout="constrained")
rows = {"digits": test, "reconstructed": made, "drawn": net.sample(5)[0]}
for ax, (name, images) in zip(axes, rows.items(), strict=True):
    ax.imshow(np.hstack(images[:5].reshape(5, 8, 8)), cmap="gray_r", vmin=0, vmax=1)
    ax.set_title(name)
    ax.set_axis_off()
plt.show()
