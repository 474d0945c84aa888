"""
Ratings, and how sure they are
==============================

Matrix factorisation is fitted to ratings that are drawn from given factors and biases. Users give
from 3 to 100 ratings, and every prediction comes with a standard deviation. The line is what the
model says about its errors, the noise of a rating left out, and the points are the true errors, of
eight groups of users. Both fall with the number of ratings, and they agree except for the users
with fewest ratings, of whom the model is a little too sure.
"""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_anneal import AnnealedPMF

rng = np.random.default_rng(0)
users, items = rng.standard_normal((600, 2)), 0.7 * rng.standard_normal((200, 2))
truth = 3.5 + 0.4 * rng.standard_normal((600, 1)) + 0.4 * rng.standard_normal(200) + users @ items.T
counts = np.geomspace(3, 100, 600).round().astype(int)
X = np.array([(u, i) for u, n in enumerate(counts) for i in rng.choice(200, n, replace=False)])
y = truth[X[:, 0], X[:, 1]] + 0.6 * rng.standard_normal(len(X))

pmf = AnnealedPMF(2, input="pairs", factor_variance=0.7, clip=False, max_iter=300, random_state=0)
pmf.fit(X, y)
mean, std = pmf.predict_ratings(*np.divmod(np.arange(truth.size), 200), return_std=True)
variance = std.reshape(truth.shape) ** 2 - pmf.noise_variance_
error = (mean.reshape(truth.shape) - truth) ** 2
groups = np.array_split(np.arange(600), 8)
numbers = [counts[group].mean() for group in groups]
predicted = [np.sqrt(variance[group].mean()) for group in groups]
true = [np.sqrt(error[group].mean()) for group in groups]
for row in zip(numbers, predicted, true, strict=True):
    print("{:2.0f} ratings: predicted error {:.2f}, true error {:.2f}".format(*row))

plt.rc("font", size=18)
figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
ax.semilogx(numbers, true, "o", color="C1", markersize=16, label="true")
ax.semilogx(numbers, predicted, color="C0", linewidth=6, label="predicted")
ax.minorticks_off()
ax.set_xticks([5, 10, 20, 50], [5, 10, 20, 50])
ax.set(xlabel="ratings of a user", ylabel="error", ylim=(0, None))
ax.legend()
plt.show()
