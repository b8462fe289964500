"""
How the budget is split over the steps
======================================

A private method with steps shares its epsilon among them. Early steps are forgotten again: what they add to the error
is contracted by all later ones. The split that makes the proven bound smallest therefore gives little to the first
steps and much to the last.
"""

import matplotlib.pyplot as plt
import numpy as np

import epsteps as es

# %%
# Everything here is public: no data is read. Both plans spend epsilon = 1 with Nesterov's method and Laplace noise.

problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.02, n=100_000, d=20)
options = {"mechanism": "laplace", "start_gap": problem.start_gap}
optimal = es.plan(problem, es.Pure(1.0), es.nesterov, **options)
uniform = es.plan(problem, es.Pure(1.0), es.nesterov, allocation="uniform", iterations=optimal.iterations, **options)

# %%
# On the left, the epsilon of each step. On the right, the bound over the number of steps: the even split must not
# take a step too many, whereas the optimal one hardly minds.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
steps = np.arange(1, optimal.iterations + 1)
horizons = (5, 10, 20, 30, 40, 60, 80, 120, 160)
for name, plan, allocation, colour in (
    ("optimal", optimal, "optimal", "#0072B2"),
    ("even", uniform, "uniform", "#D55E00"),
):
    left.plot(steps, plan.costs, color=colour, lw=2)
    left.annotate(name, (steps[-1], plan.costs[-1]), (-4, 6), textcoords="offset points", color=colour, ha="right")
    made = (
        es.plan(problem, es.Pure(1.0), es.nesterov, allocation=allocation, iterations=T, **options) for T in horizons
    )
    bounds = [plan.error for plan in made]
    right.plot(horizons, bounds, "o-", color=colour, lw=2, ms=4)
    right.annotate(name, (horizons[-1], bounds[-1]), (-4, 6), textcoords="offset points", color=colour, ha="right")
left.set(xlabel="step", ylabel="epsilon of the step", ylim=(0, 1.15 * optimal.costs.max()))
right.set(xlabel="number of steps T", ylabel="bound on E F(x_T) - F*", yscale="log")
plt.show()

# %%
# What was left to choose is on the plan's page, which a data holder can sign.

print(optimal)
