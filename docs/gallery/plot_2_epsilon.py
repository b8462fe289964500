"""
What epsilon buys
=================

A plan predicts the error of its model from public numbers alone, so that budgets can be compared before anything is
spent. Here the prediction stands beside fits to made-up records: seeded ones, which are repeatable and hence not
private.
"""

import matplotlib.pyplot as plt
import numpy as np

import epsteps as es

# %%
# Two tables of the same kind, one with ten times the records.

rng = np.random.default_rng(0)
weights = rng.standard_normal(10)


def people(n):
    """Return features in [0, 1] and labels that follow them, with some chance."""
    X = rng.uniform(0, 1, (n, 10))
    return X, (2 * (X - 0.5) @ weights + rng.logistic(size=n) > 0).astype(int)


X_test, y_test = people(20_000)
epsilons = (0.03, 0.1, 0.3, 1.0, 3.0)

# %%
# Predicted excess of the objective over its minimum (left), and test accuracy of six fits each (right).

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for n, colour in ((5_000, "#D55E00"), (50_000, "#0072B2")):
    X, y = people(n)
    models = [es.PrivateLogisticRegression(epsilon, bounds=(0, 1), classes=(0, 1), anyway=True) for epsilon in epsilons]
    utilities = [model.plan(n=n, d=10).utility for model in models]
    left.plot(epsilons, [utility.expected for utility in utilities], "o-", color=colour, lw=2, ms=5)
    scores = np.array(
        [[model.set_params(random_state=seed).fit(X, y).score(X_test, y_test) for seed in range(6)] for model in models]
    )
    right.errorbar(epsilons, scores.mean(axis=1), scores.std(axis=1, ddof=1), color=colour, marker="o", ms=5, capsize=3)
    right.annotate(f"n = {n:,}", (epsilons[1], scores[1].mean()), (8, -12), textcoords="offset points", color=colour)
    print(f"n = {n}: " + ", ".join(f"{e:g} {u.verdict}" for e, u in zip(epsilons, utilities, strict=True)))
left.axhline(utilities[0].trivial, color="0.45", ls="--", lw=1.2)
left.annotate(
    "the model 0", (epsilons[-1], utilities[0].trivial), (0, 4), textcoords="offset points", color="0.35", ha="right"
)
left.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="predicted excess")
right.set(xscale="log", xlabel="epsilon", ylabel="test accuracy")
plt.show()

# %%
# It is the product of n and epsilon that counts: ten times the records allow about a tenth of the epsilon for the
# same model. Where the verdict is "noise", a fit is refused unless ``anyway=True``.
