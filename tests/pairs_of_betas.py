"""The search for beta priors of columns, by itself."""

from sklearn_anneal.kernels._compile import kernel
from sklearn_anneal.kernels.empirical_bayes import best_pair


@kernel("rows vector float float out2", dtypes=("float64",))
def beta_pairs(logs, least_mean, least, most, pairs):
    """Replace the first guesses ``pairs`` (2, n_columns) by the best pairs of columns.

    ``logs`` (2, n_columns) and ``least_mean`` (n_columns,) are as in
    :func:`sklearn_anneal.kernels.empirical_bayes.best_pair`.
    """
    for j in range(pairs.shape[1]):
        first_a, first_b = pairs[0, j], pairs[1, j]
        a, b = best_pair(logs[0, j], logs[1, j], least_mean[j], first_a, first_b, least, most)
        pairs[0, j], pairs[1, j] = a, b
