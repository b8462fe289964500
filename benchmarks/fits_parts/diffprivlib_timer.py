"""Runs inside diffprivlib's own environment: reads records and settings, writes what fits with its defaults cost.

`python diffprivlib_timer.py FOLDER`, as ``accuracy_parts.diffprivlib_worker``; costs.npy is written.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from accuracy_parts.diffprivlib_worker import model

from fits_parts.watch import NUMBERS, fitted


def main():
    folder = Path(sys.argv[1])
    settings = json.loads((folder / "settings.json").read_text())
    X, y = np.load(folder / "X.npy"), np.load(folder / "y.npy")
    defaults = {"fit_intercept": True} | ({"tol": 1e-4, "max_iter": 100} if settings["kind"] == "logistic" else {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, costs = fitted(lambda: model(settings, None).set_params(**defaults).fit(X, y), again=3)
    np.save(folder / "costs.npy", [costs[name] for name in NUMBERS])


if __name__ == "__main__":
    main()
