"""
Colours of a stream of pixels
=============================

``partial_fit`` takes rows as they come. Here a mixture of Gaussians reads the pixels of a
photograph in batches of a few hundred, in random order, and every pixel is then painted in the
mean colour of its component. The mixture is fitted anew, with its annealing and its search,
whenever the pixels so far have grown by a half. It keeps at most 1,200 of them, eight times the 25
for each component that the first fit needs; batches of a longer stream update what the last fit
has found. Six colours are enough to recognise the flower, and a stream of a tenth of the pixels
has found them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from sklearn_anneal import AnnealedBayesianGaussianMixture

photograph = load_sample_image("flower.jpg")[::2, 160:460:2] / 255
pixels = photograph.reshape(-1, 3)
mixture = AnnealedBayesianGaussianMixture(n_components=6, random_state=0)
some = pixels[::10]
for i, batch in enumerate(np.array_split(np.random.default_rng(0).permutation(pixels), 100), 1):
    mixture.partial_fit(batch)
    if i in (1, 2, 5, 10, 50, 100):
        print(f"batch {i:3}: log density of a pixel {mixture.score(some):.3f}")
print(f"{len(pixels)} pixels, {mixture.n_effective_components_} colours")
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
