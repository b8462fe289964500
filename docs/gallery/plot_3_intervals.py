"""
Intervals that know of the noise
================================

The noise of a private fit has a known law, so that intervals can take account of it. ``intervals=0.95`` buys the
curvature that measuring takes, with a share of the budget that a public rule decides.
"""

import matplotlib.pyplot as plt
import numpy as np

import epsteps as es

# %%
# Made-up records, of which the truth is known. Without a seed, this fit is private.

rng = np.random.default_rng(0)
n, truth = 60_000, np.array([2.0, -1.5, 1.0, -0.5, 0.0])
X = rng.uniform(0, 1, (n, 5))
y = (X @ truth - 0.5 + rng.logistic(size=n) > 0).astype(int)
model = es.PrivateLogisticRegression(epsilon=1.0, bounds=(0, 1), classes=(0, 1), intervals=0.95).fit(X, y)
table = model.confint()
print(table)

# %%
# "privacy" is how much of an interval's width is due to the noise. Crosses are the truth.

figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
table.plot(axes)
axes.plot([*truth, -0.5], np.arange(6)[::-1], "x", color="#D55E00", ms=9, mew=2, label="truth")
axes.legend(frameon=False)
plt.show()
