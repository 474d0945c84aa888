"""
A photograph cut into states
============================

A hidden Markov model reads a photograph line by line: a line is a sequence, and a pixel is a frame
of three colour values. The model is given nothing but the number of states, which is six. On the
right, every pixel of the most probable path has the mean colour of its state. Sky, pagoda and trees
are different states, and 95 % of the pixels have the state of their left neighbour, since the
model has learned that states last.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from sklearn_anneal import AnnealedHMM

photograph = load_sample_image("china.jpg") / 255
lines = photograph[:425].reshape(85, 5, 128, 5, 3).mean(axis=(1, 3))  # squares of 5 × 5 pixels

hmm = AnnealedHMM(6, max_iter=300, random_state=0).fit(list(lines))
states = hmm.predict(list(lines)).reshape(85, 128)
stays = np.mean(states[:, 1:] == states[:, :-1])
print(f"lower bound {hmm.lower_bound_:.0f} after {hmm.n_iter_} passes")
print(f"{stays:.0%} of the pixels have the state of their left neighbour")

plt.rc("font", size=20)
figure, axes = plt.subplots(1, 2, figsize=(6, 4.4), layout="constrained")
pictures = {"photograph": lines, "six states": hmm.means_.clip(0, 1)[states]}
for ax, (title, picture) in zip(axes, pictures.items(), strict=True):
    ax.imshow(picture[:, 10:70])
    ax.set_title(title)
    ax.set_axis_off()
plt.show()
