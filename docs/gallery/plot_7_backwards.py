"""
Planning backwards
==================

Which budget, or how many records, does a given accuracy need? ``required_epsilon`` and ``required_n`` answer from
public numbers: before a study begins, nothing has been collected yet.
"""

import matplotlib.pyplot as plt

import epsteps as es

# %%
# A logistic model with ten features in [0, 1]. The excess is over the least mean loss; 0.69 is that of a coin.

sizes = (1_000, 10_000, 100_000)
figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
for error, colour in ((0.03, "#009E73"), (0.01, "#0072B2"), (0.003, "#D55E00")):
    needed = []
    for n in sizes:
        problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=1e-4, n=n, d=10)
        needed.append(es.required_epsilon(problem, error=error, release="final"))
    axes.plot(sizes, needed, "o-", color=colour, lw=2)
    axes.annotate(f"excess {error:g}", (sizes[0], needed[0]), (6, 6), textcoords="offset points", color=colour)
axes.axhline(1.0, color="0.45", ls="--", lw=1.2)
axes.set(xscale="log", yscale="log", xlabel="records", ylabel="epsilon that is needed")
plt.show()

# %%
# The other way round: how many people must a study ask, if epsilon = 0.5 is what it can promise them?

problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=1e-4, n=1_000, d=10)
print(es.required_n(problem, error=0.01, epsilon=0.5, release="final"))
print(es.required_n(problem, verdict="useful", epsilon=0.5, release="final"))
