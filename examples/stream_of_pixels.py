"""
Colours of a stream of pixels
=============================

``partial_fit`` takes rows as they come, and never sees them again. Here a mixture of Gaussians
reads the pixels of a photograph in batches of a few hundred, in random order, and every pixel is
then painted in the mean colour of its component. ``total_samples`` says how long the stream is, so
that annealing can end in time: the temperature falls to 1 within the first tenth. Six colours are
enough to recognise the flower.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import DeterministicAnnealing

photograph = load_sample_image("flower.jpg")[::2, 160:460:2] / 255
pixels = photograph.reshape(-1, 3)
mixture = AnnealedBayesianGaussianMixture(
    n_components=6,
    annealing=DeterministicAnnealing(initial_temperature=4.0),
    total_samples=len(pixels),
    random_state=0,
)
for batch in np.array_split(np.random.default_rng(0).permutation(pixels), 100):
    mixture.partial_fit(batch)
print(f"{len(pixels)} pixels, read once, {mixture.n_effective_components_} colours")
for batch in (1, 4, 7, 10, 13, 100):
    print(f"batch {batch:3}: temperature {mixture.temperatures_[batch - 1]:.2f}")
painted = mixture.means_[mixture.predict(pixels)].reshape(photograph.shape)

plt.rc("font", size=18)
figure, axes = plt.subplots(1, 2, figsize=(6, 4.4), layout="constrained")
for ax, picture, title in zip(
    axes, (photograph, painted), ("photograph", "6 colours"), strict=True
):
    ax.imshow(picture.clip(0, 1))
    ax.set_title(title)
    ax.set_axis_off()
plt.show()
