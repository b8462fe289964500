"""
Records larger than memory
==========================

Records may lie in a file: a ``.npy`` or ``.parquet`` path is read block by block at every pass. Sums are exact
integers, so that a fit from the file has the same bits as one from memory.
"""

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import epsteps as es

# %%
# Files of growing size, written in blocks. (These are small, so that the gallery is soon built.)

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
sizes = (50_000, 100_000, 200_000, 400_000)
for n in sizes:
    file = np.lib.format.open_memmap(folder / f"X{n}.npy", mode="w+", dtype=np.float32, shape=(n, 10))
    for begin in range(0, n, 50_000):
        file[begin : begin + 50_000] = rng.random((50_000, 10), dtype=np.float32)
    file.flush()
    np.save(folder / f"y{n}.npy", np.where(file[:, 0] > file[:, 1], 1, -1))

# %%
# The same seeded run of Nesterov's method from memory and from the file.

seconds = {"in memory": [], "from a file": []}
for n in sizes:
    problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.02, n=n, d=10)
    plan = es.plan(problem, es.Pure(1.0), es.nesterov, iterations=20)
    sources = {
        "in memory": (np.load(folder / f"X{n}.npy"), np.load(folder / f"y{n}.npy")),
        "from a file": (str(folder / f"X{n}.npy"), str(folder / f"y{n}.npy")),
    }
    models = []
    for name, (X, y) in sources.items():
        begin = time.perf_counter()
        models.append(es.run(plan, es.Rows(problem, X, y), seed=1, arithmetic="exact").x)
        seconds[name].append(time.perf_counter() - begin)
    assert np.array_equal(*models)  # the same bits

figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for (name, values), colour in zip(seconds.items(), ("#0072B2", "#D55E00"), strict=True):
    axes.plot(sizes, values, "o-", color=colour, lw=2)
    axes.annotate(name, (sizes[-1], values[-1]), (-6, 6), textcoords="offset points", color=colour, ha="right")
axes.set(xlabel="records", ylabel="seconds for 20 exact steps", ylim=(0, None))
plt.show()
