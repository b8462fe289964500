"""Run one fit and print how many files of epsteps it walks through, and how often it changes file: for ``house.py``.

    PYTHONPATH=src python benchmarks/house_walk.py estimator

It writes into the folder it is run in.
"""

import inspect
import json
import os
import sys
from itertools import pairwise
from pathlib import Path

RECORDS = """
import epsteps as es, epsteps.cli, numpy as np
X = np.random.default_rng(0).random((2000, 5))
y = np.where(X[:, 0] > 0.5, 1, -1)
"""
SETUP_TABLE = """
from pathlib import Path
import sys
from epsteps.cli import main
lines = [f"{18 + i % 70},{('clerk', 'nurse', 'driver')[i % 3]},{'ill' if i % 70 > 35 else 'well'}" for i in range(2000)]
Path("data.csv").write_text("\\n".join(["age,job,y", *lines, ""]))
Path("schema.toml").write_text('''
columns.age = {type = "numeric", low = 18, high = 90}
columns.job = {type = "category", values = ["clerk", "nurse", "driver"]}
columns.y = {type = "category", values = ["well", "ill"]}
''')
sys.argv = "epsteps fit data.csv --schema schema.toml --target y --epsilon 1 --out model --yes".split()
"""
STEPS = """
problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.02, n=2000, d=5)
plan = es.plan(problem, es.Pure(1.0), es.nesterov, start_gap=problem.start_gap)
es.run(plan, es.Rows(problem, X, y))
"""
ESTIMATOR = "es.PrivateLogisticRegression(epsilon=1.0, bounds=(0, 1), classes=(-1, 1)).fit(X, y)"
TABLE = """
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
# What is done before the walk, and what is walked.
WALKS = {"Nesterov's method": (RECORDS, STEPS), "estimator": (RECORDS, ESTIMATOR), "CSV file": (SETUP_TABLE, TABLE)}


def walk(fit: str) -> tuple[int, int]:
    """Return how many files a fit walks through in this process, and how often it changes file."""
    (setup, steps), functions, names = WALKS[fit], {}, {}
    exec(setup, names)
    root = str(Path(sys.modules["epsteps"].__file__ or "").parent) + os.sep

    def note(frame, event, _) -> None:
        code = frame.f_code
        is_named = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")  # no body of a class
        if event == "call" and is_named and code.co_filename.startswith(root):
            functions.setdefault((code.co_filename, code.co_qualname))

    sys.setprofile(note)
    try:
        exec(steps, names)
    finally:
        sys.setprofile(None)
    files = [file for file, _ in functions]
    return len(set(files)), sum(before != after for before, after in pairwise(files))


if __name__ == "__main__":
    print(json.dumps(walk(sys.argv[1])))
