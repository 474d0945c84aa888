"""
Loadings that need no rotation
==============================

The loadings of factor analysis can be rotated without any change of the likelihood, and which
rotation is read is a matter of taste. If factors are switched off in most rows, no such freedom is
left. Here rows are drawn from a few sparse loadings, each of which is on in a quarter of the rows,
and a tenth of the cells is deleted for the last contestant.

Run it with ``python -m examples.loadings_without_rotation``; it takes a few seconds.
"""

# %%
# Data
# ----
# Five loadings of 30 columns, most of whose entries are zero.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import FactorAnalysis, SparsePCA

from sklearn_anneal import AnnealedSpikeSlabFactorAnalysis


def load_data(n_rows=400, seed=0):
    """Rows, and the loadings that they were drawn from."""
    rng = np.random.default_rng(seed)
    loadings = 2.0 * rng.standard_normal((5, 30)) * (rng.random((5, 30)) < 0.3)
    factors = rng.standard_normal((n_rows, 5)) * (rng.random((n_rows, 5)) < 0.25)
    return factors @ loadings + 0.5 * rng.standard_normal((n_rows, 30)), loadings


# %%
# Contestants
# -----------
# Those of scikit-learn are told the number of factors. Ours may use ten.

OURS, GAPS = "spike and slab", "spike and slab, missing cells"


def contestants(seed=0):
    """Unfitted estimators by name."""
    shared = {"max_iter": 300, "random_state": seed}
    return {
        "factor analysis": FactorAnalysis(5, random_state=seed),
        "factor analysis, varimax": FactorAnalysis(5, rotation="varimax", random_state=seed),
        "sparse PCA": SparsePCA(5, random_state=seed),
        OURS: AnnealedSpikeSlabFactorAnalysis(10, **shared),
        GAPS: AnnealedSpikeSlabFactorAnalysis(10, **shared),
    }


def matched(found, loadings):
    """The found loadings that are most similar to each true one, with its sign, and the cosines."""

    def unit(rows):
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)

    cosines = unit(loadings) @ unit(found).T
    rows, columns = linear_sum_assignment(-np.abs(cosines))
    best = cosines[rows, columns]
    return found[columns] * np.sign(best)[:, None], np.abs(best)


def compare(X, loadings, seed=0):
    """The matched loadings of every contestant and their cosines with the true ones."""
    gaps = X.copy()
    gaps[np.random.default_rng(seed).random(X.shape) < 0.1] = np.nan
    results = {}
    for name, estimator in contestants(seed).items():
        estimator.fit(gaps if name == GAPS else X)
        results[name] = matched(estimator.components_, loadings)
        print(f"{name:30} mean |cosine| {results[name][1].mean():.3f}")
    return results


# %%
# Loadings
# --------
# One row per factor and one column per column of the data, below those that drew the rows.


def draw(results, loadings):
    """Write the loadings as a PNG file into the current directory."""
    shown = {"truth": loadings} | {name: found for name, (found, _) in results.items()}
    figure, axes = plt.subplots(len(shown), 1, figsize=(6, 7), layout="constrained")
    for ax, (name, rows) in zip(axes, shown.items(), strict=True):
        largest = np.abs(rows).max()
        ax.imshow(rows, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
        ax.set(xticks=[], yticks=[])
        ax.set_title(name, loc="left", fontsize=9)
    path = Path("loadings_without_rotation.png").resolve()
    figure.savefig(path, dpi=150)
    return path


if __name__ == "__main__":
    X, loadings = load_data()
    results = compare(X, loadings)
    print(f"The figure is in {draw(results, loadings)}")
