"""Runs inside diffprivlib's own environment: reads records and settings, writes one fitted model per seed.

`python diffprivlib_worker.py FOLDER`: FOLDER holds X.npy, y.npy and settings.json; coefficients.npy is written.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from diffprivlib.models import LinearRegression, LogisticRegression


def model(settings, seed):
    """Return the unfitted model; more and finer iterations than its defaults, which only helps it."""
    if settings["kind"] == "logistic":
        return LogisticRegression(
            epsilon=settings["epsilon"],
            data_norm=settings["data_norm"],
            C=settings["C"],
            fit_intercept=False,
            tol=1e-7,
            max_iter=1000,
            random_state=seed,
        )
    return LinearRegression(
        epsilon=settings["epsilon"],
        bounds_X=(np.array(settings["low"]), np.array(settings["high"])),
        bounds_y=(-1.0, 1.0),
        fit_intercept=False,
        random_state=seed,
    )


def main():
    folder = Path(sys.argv[1])
    settings = json.loads((folder / "settings.json").read_text())
    X, y = np.load(folder / "X.npy"), np.load(folder / "y.npy")
    fitted = []
    for seed in settings["seeds"]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted.append(np.ravel(model(settings, seed).fit(X, y).coef_))
    np.save(folder / "coefficients.npy", np.stack(fitted, axis=1))


if __name__ == "__main__":
    main()
