"""
Classes that depend on age
==========================

Answers to six questions fall into three classes, whose shares change with the age of those who
answer. The class of a row depends on its answers, with errors, and on its age. The left picture has
the shares of the classes at each age: drawn (dots), and as the mixture finds them (lines). The
right one has the log odds ratios per ten years against the class that stays equally common, with
intervals of 95 %: of the fit with the covariate, and of three steps, which assign rows to classes
first and compare ages then. Without correction these are too near to 0.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import softmax

from sklearn_anneal import AnnealedBayesianMixture
from sklearn_anneal.three_step import class_covariates

rng = np.random.default_rng(0)
slopes, yes = np.array([0.6, 0.0, -0.6]), np.repeat([[0.8, 0.2], [0.8, 0.8], [0.2, 0.2]], 3, axis=1)
decades = rng.uniform(2.0, 8.0, size=(1500, 1))
shares = softmax((decades - 5.0) * slopes, axis=1)
classes = (shares.cumsum(axis=1) < rng.random((1500, 1))).sum(axis=1)
answers = (rng.random((1500, 6)) < yes[classes]).astype(int)

mixture = AnnealedBayesianMixture(3, random_state=0).fit(answers, covariates=decades)
mixture.reorder(np.argsort(-mixture.coefficients_[:, 0]))
alone = AnnealedBayesianMixture(3, random_state=0).fit(answers)
alone.reorder(np.lexsort([alone.emissionprob_[:, 5], alone.emissionprob_[:, 0] < 0.5]))

found = mixture.coefficient_intervals(reference=1)
estimates = {"one step": (found.estimate[[0, 2], 1], found.std[[0, 2], 1])}
for correction, name in ((None, "three, none"), ("bch", "three, BCH"), ("ml", "three, ML")):
    beside = class_covariates(
        alone.predict_proba(answers), decades, correction=correction, reference=1
    )
    estimates[name] = beside.coefficients[[0, 2], 0], beside.coefficients_std[[0, 2], 0]

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
grid = np.linspace(2.0, 8.0, 100)[:, None]
left.plot(10 * grid, softmax(mixture.intercepts_ + grid * mixture.coefficients_.T, axis=1))
left.set_prop_cycle(None)
left.plot(10 * grid[::10], softmax((grid[::10] - 5.0) * slopes, axis=1), "o")
left.set(xlabel="age", ylabel="share of the class")
for place, (name, (values, std)) in enumerate(estimates.items()):
    right.errorbar([place, place], values, 1.96 * std, fmt="o", capsize=4)
    print(name, values.round(2), std.round(2))
right.hlines([0.6, -0.6], -0.5, 3.5, color="0.5", linestyle=":")
right.set(xticks=range(4), xticklabels=estimates, ylabel="log odds ratio per ten years")
plt.show()
