"""
Everything published, or the final model alone
==============================================

The paper's methods publish every iterate of a descent, and every one has to be protected. One minimum, or two, at the
same guarantee are nearer to the optimum by orders of magnitude: what is never published needs no noise.
"""

import matplotlib.pyplot as plt
import numpy as np

import epsteps as es

# %%
# Four plans with the same epsilon, from the most to the least that is published.

problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.02, n=50_000, d=10)
budget = es.Pure(1.0)
plans = {
    "DP-GD, 100 steps": es.plan(problem, budget, es.gd, allocation="uniform", iterations=100, mechanism="laplace"),
    "DP-NAG-opt": es.plan(problem, budget, es.nesterov, start_gap=problem.start_gap, mechanism="laplace"),
    "everything, our choice": es.plan(problem, budget, release="iterates"),
    "the final model": es.plan(problem, budget, release="final"),
}

# %%
# Ten seeded runs of each, on made-up records: an experiment, and not private. The excess is that over the minimum,
# which is found without noise.

rng = np.random.default_rng(0)
X = rng.random((problem.n, problem.d))
y = np.where((X - 0.5) @ rng.standard_normal(problem.d) + 0.3 * rng.logistic(size=problem.n) >= 0, 1, -1)
rows = es.Rows(problem, X, y)
lowest = rows.value(es.run(es.plan(problem, es.Pure(1e9), release="final"), rows, seed=0).x)
excess = {
    name: np.array([rows.value(es.run(plan, rows, seed=seed, anyway=True).x) - lowest for seed in range(10)])
    for name, plan in plans.items()
}

figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
for place, values in enumerate(reversed(excess.values())):
    axes.plot(np.maximum(values, 1e-9), np.full(len(values), place), "o", color="#0072B2", alpha=0.35, ms=6)
    axes.plot(values.mean(), place, "|", color="#D55E00", ms=22, mew=3)
    axes.annotate(
        f"{values.mean():.1e}",
        (values.mean(), place),
        (0, 13),
        textcoords="offset points",
        ha="center",
        color="#B04000",
    )
axes.set_yticks(range(len(excess)), list(reversed(excess)))
axes.set(xscale="log", xlabel="excess F(x) - F*, ten runs and their mean", ylim=(-0.5, len(excess) - 0.3))
plt.show()
