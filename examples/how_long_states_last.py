"""
How long states last, and what comes next
=========================================

A machine takes turns between three levels of load, whose measurements overlap. The level in the
middle always lasts for about twenty minutes, and the others for random times. A Markov chain takes
every duration for geometric, so that one minute is always the most probable. With
``duration="auto"`` every state gets a shape of its own, found by the lower bound. On the left are
the distributions that both models have of the level in the middle, over the durations that were
drawn. On the right, the same level began eighteen minutes ago: the model with shapes forecasts that
it will soon be over, and the chain does not know for how long it has lasted.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import nbinom

from sklearn_anneal import AnnealedHMM

rng = np.random.default_rng(0)
segments = [(k, n) for _ in range(40) for k, n in ((0, rng.geometric(0.1)), (1, rng.poisson(20)),
                                                  (2, rng.geometric(0.05)))]  # fmt: skip
levels = np.repeat(*np.transpose(segments))
X = (2.5 * levels + rng.standard_normal(len(levels)))[:, None]

plt.rc("font", size=16)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
lasted = [n for k, n in segments if k == 1]
left.hist(lasted, np.arange(0.5, 61, 4), density=True, color="lightgray", label="drawn")
now = 2.5 * np.repeat([0.0, 1.0], [20, 18])[:, None]
for duration, style in (("geometric", "--"), ("auto", "-")):
    hmm = AnnealedHMM(3, duration=duration, random_state=0).fit(X)
    middle = np.argsort(hmm.means_[:, 0])[1]
    r, p = hmm.duration_shapes_[middle], hmm.leaveprob_[middle]
    print(f"{duration}: shape {r}, mean {r / p:.1f}, lower bound {hmm.lower_bound_:.0f}")
    frames = np.arange(1, 61)
    left.plot(frames, nbinom.pmf(frames - r, r, p), "k" + style, linewidth=3, label=duration)
    ahead = hmm.predict_next(now, n_steps=20).state_probabilities[0, :, middle]
    right.plot(range(1, 21), ahead, "k" + style, linewidth=3)
left.set(xlabel="minutes in the middle", ylabel="probability")
right.set(xlabel="minutes ahead", ylabel="still, or again, in the middle", ylim=(0, 1))
left.legend()
plt.show()
