"""
A grid search over schedules
============================

Annealing methods are parameters of an estimator like any other, and ``annealing__`` reaches their
own. Here a grid search compares first temperatures and lengths of the schedule by the score of
held-out rows, for a factorial mixture of eight drawn pictures. A first temperature of 1 is plain
variational inference, and its score is low. A schedule of ten passes is too short to be relied on.
From 50 passes on, several temperatures share the best score, at which all pictures are found.
"""

import matplotlib.pyplot as plt
from sklearn.model_selection import GridSearchCV

from sklearn_anneal import AnnealedFactorialMixture
from sklearn_anneal.annealing import DeterministicAnnealing
from sklearn_anneal.datasets import make_factorial_mixture

X, _, _ = make_factorial_mixture(1500, random_state=0)
temperatures, lengths = [1, 3, 10, 30, 100], [10, 50, 200]
search = GridSearchCV(
    AnnealedFactorialMixture(8, annealing=DeterministicAnnealing(), max_iter=300, random_state=0),
    {"annealing__initial_temperature": temperatures, "annealing__n_passes": lengths},
    cv=3,
).fit(X)
print(f"The best score is {search.best_score_:.2f} nats per row, with {search.best_params_}.")
# Parameters vary in the order of their names, the last one fastest.
scores = search.cv_results_["mean_test_score"].reshape(5, 3)

plt.rc("font", size=18)
figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
picture = ax.imshow(scores.T, aspect="auto", origin="lower")
ax.set_xticks(range(5), temperatures)
ax.set_yticks(range(3), lengths)
ax.set(xlabel="first temperature", ylabel="passes")
figure.colorbar(picture, label="held-out score")
plt.show()
