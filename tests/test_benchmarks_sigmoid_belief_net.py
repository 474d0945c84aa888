"""Results of sigmoid belief nets: what is measured is what the page says."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.neural_network import BernoulliRBM

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def test_normaliser_of_a_small_machine_is_that_of_all_its_states():
    from benchmarks.sigmoid_belief_net import fits

    rng = np.random.default_rng(0)
    X = (rng.random((200, 6)) < rng.choice([0.1, 0.9], size=(200, 1))).astype(float)
    rbm = BernoulliRBM(4, learning_rate=0.05, n_iter=30, random_state=0).fit(X)
    states = np.array(list(product((0.0, 1.0), repeat=6)))
    exact = logsumexp(-rbm._free_energy(states))
    assert fits.log_partition(rbm, 200, 0) == pytest.approx(exact, abs=0.05)


def test_figures_of_independent_columns():
    from benchmarks.sigmoid_belief_net import data, fits

    found = fits.Spec(data.DIGITS, 1500, 297, method=fits.MARGINALS).run()
    assert found["error"] == pytest.approx(0.267, abs=0.002)
    train, test = data.split(data.DIGITS, 1500, 297, 0)
    assert np.isin(train, (0, 1)).all() and train.shape == (1500, 64)
    assert not np.shares_memory(train, test)
    p = train.mean(axis=0)
    assert fits.error(test, p) == pytest.approx(found["error"], abs=1e-3)


def test_verdicts_on_bad_starts_follow_from_the_errors():
    from benchmarks.sigmoid_belief_net import claims, plan

    errors = {plan.PLAIN: 0.265, plan.ENTROPY: 0.23, plan.KL: 0.24, plan.GOOD: 0.105}
    digits = {
        name: {"error": np.full(3, error), "bound": np.full(3, -error)}
        for name, error in errors.items()
    }

    def verdicts():
        return [claim.verdict for claim in claims.claims(claims.Found(digits=digits))]

    assert verdicts() == ["reproduced", "not reproduced", "reproduced", "yes"]
    digits[plan.ENTROPY]["error"] = np.array([0.23, 0.27, 0.23])
    digits[plan.GOOD]["error"] -= 0.05
    assert verdicts()[:3] == ["not reproduced", "not reproduced", "partly"]
