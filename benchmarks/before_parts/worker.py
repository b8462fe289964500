"""Runs inside the environment of diffprivlib and Google's library (PyDP): reads a column, writes what they answer.

`python worker.py FOLDER`: FOLDER holds column.npy and settings.json; answers.json is written.
"""

import json
import sys
import warnings
from pathlib import Path

import diffprivlib.tools as tools
import numpy as np
from pydp.algorithms import laplacian


def google(kind, share, epsilon, low, high, values):
    """Return an answer of Google's library, whose epsilon is for a record more or less: a replaced one is both."""
    bounds = {"lower_bound": low, "upper_bound": high, "dtype": "float"}
    if kind == "mean":
        return laplacian.BoundedMean(epsilon=epsilon / 2, **bounds).quick_result(values)
    return laplacian.Percentile(epsilon=epsilon / 2, percentile=share, **bounds).quick_result(values)


def main():
    folder = Path(sys.argv[1])
    settings, column = json.loads((folder / "settings.json").read_text()), np.load(folder / "column.npy")
    low, high, runs = settings["low"], settings["high"], settings["runs"]
    values, answers = column.tolist(), []
    warnings.simplefilter("ignore")
    for kind, share, epsilon in settings["cells"]:
        bounds, cell = (low, high), {}
        if kind == "mean":
            cell["diffprivlib"] = [tools.mean(column, epsilon=epsilon, bounds=bounds) for _ in range(runs)]
        else:
            cell["diffprivlib"] = [tools.quantile(column, share, epsilon=epsilon, bounds=bounds) for _ in range(runs)]
        try:
            cell["Google"] = [google(kind, share, epsilon, low, high, values) for _ in range(runs)]
        except Exception as error:  # what a peer cannot do is said, and not counted
            cell["Google"] = repr(error)
        answers.append(cell)
    (folder / "answers.json").write_text(json.dumps(answers))


main()
