"""Places that forget local variables: these are made anew, from a copy and few visits."""

from __future__ import annotations

import numpy as np
from designs import in_turn
from harness import context_of, largest_difference
from scipy import sparse

from sklearn_anneal import (
    AnnealedFactorialMixture,
    AnnealedGammaProcessNMF,
    AnnealedLatentDirichletAllocation,
    Shards,
)
from sklearn_anneal.data import part_visits, parted_units
from sklearn_anneal.data.parts import Here, copied
from sklearn_anneal.estimators import _part_fits

BETWEEN_COPIES = 4


class Forgetful(Here):
    """A place in which some parts lose what they keep, before one visit of the fit."""

    remembers = False

    def __init__(self, n_parts, at, lost):
        super().__init__([True] * n_parts)
        self.at, self.lost, self.n_sweeps, self.n_again = at, lost, 0, 0
        self.copies = {}

    def secure(self, token):
        for index, part in self._parts.items():
            if token in part.kept:
                self.copies[index, token] = part.kept[token]

    def groups(self):
        return [[0], [1, 2], [3]]

    def call(self, request, indices, workers):
        if isinstance(request, part_visits.VisitAll):
            again = any(job.replay for job in request.jobs)
            self.n_again += again
            self.n_sweeps += not again and indices[0] == 0
            if self.n_sweeps == self.at and not again and indices[0] == 0:
                for index in self.lost:
                    self._parts[index].kept.clear()
            if again:
                for (index, token), value in self.copies.items():
                    self._parts[index].kept[copied(token)] = value
        return super().call(request, indices, workers)


def counts(rng):
    topics = rng.dirichlet(np.full(30, 0.1), size=4)
    return rng.poisson(50 * rng.dirichlet(np.full(4, 0.3), size=40) @ topics)


MODELS = {
    "lda": (AnnealedLatentDirichletAllocation, {"learning_method": "batch"}, sparse.csr_matrix),
    "nmf": (AnnealedGammaProcessNMF, {}, sparse.csr_matrix),
    "factorial": (AnnealedFactorialMixture, {}, np.sqrt),
}


@in_turn(name=MODELS, copies=(True, False))
def test_forgotten_local_variables_are_made_anew(name, copies, monkeypatch, rng):
    cls, params, form = MODELS[name]
    every = BETWEEN_COPIES if copies else 10**6
    monkeypatch.setattr(parted_units, "_VISITS_BETWEEN_COPIES", every)
    X = form(counts(rng))
    parts = [X[:10], X[10:15], X[15:35], X[35:]]
    params = {"n_components": 4, "max_iter": 28, "tol": 0.0, "random_state": 0, **params}
    params |= {"annealing": "none"}
    expected = cls(**params).fit(Shards(parts))
    replayed = []
    monkeypatch.setattr(
        part_visits.Aside,
        "get",
        lambda self, get=part_visits.Aside.get: replayed.append(1) or get(self),
    )
    # Passes differ in their visits: a factorisation of counts makes two for each, and those that
    # explore are followed by others.
    place = Forgetful(4, -1, [])
    monkeypatch.setattr(_part_fits, "place_of", lambda *_: place)
    np.testing.assert_array_equal(
        cls(**params).fit(Shards(parts)).lower_bounds_, expected.lower_bounds_
    )
    late = place.n_sweeps - 3
    for at, lost in ((late, [2]), (late + 1, [0, 1, 2, 3])):
        place = Forgetful(4, at, lost)
        monkeypatch.setattr(_part_fits, "place_of", lambda *_, place=place: place)
        replayed.clear()
        found = cls(**params).fit(Shards(parts))
        np.testing.assert_array_equal(found.lower_bounds_, expected.lower_bounds_)
        assert largest_difference(context_of(found).q, context_of(expected).q) == 0
        # Only the group of a part that forgets is visited again, once.
        assert place.n_again == (1 if lost == [2] else 3)
        visited_again = 2 if lost == [2] else 4
        most = BETWEEN_COPIES if copies else 28
        assert len(replayed) <= visited_again * most
        assert copies or len(replayed) > visited_again * BETWEEN_COPIES
