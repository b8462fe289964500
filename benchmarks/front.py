"""The README's picture: test accuracy over epsilon on the Adult census extract: `python benchmarks/front.py`.

The table comes from OpenML (a download), or from a folder of prepared .npz files with ``--data``. Every method gets the
same features of the same declared schema, benchmarks/adult.toml. Every fit is seeded: nothing here is private.
``--draw`` draws the picture of the numbers that are kept, and measures nothing.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import machine
import matplotlib as mpl
import numpy as np
import pandas as pd
from accuracy_parts import clipped_descent, diffprivlib_peer
from accuracy_parts.encodings import Encoding
from accuracy_parts.scores import classified
from accuracy_parts.tasks import Task
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import epsteps as es

HERE = Path(__file__).parent
RESULTS, PICTURE = HERE / "results" / "front.json", HERE.parent / "docs" / "images" / "front.png"
EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0)
DELTA = 1e-5
RIDGE = 1e-4  # the estimators' default; each method may raise it


def from_openml() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return four fifths of the records, and the others, in random order."""
    from sklearn.datasets import fetch_openml

    frame = fetch_openml("adult", version=2, as_frame=True).frame
    frame = frame.iloc[np.random.default_rng(0).permutation(len(frame))]
    frame["log-gain"], frame["log-loss"] = np.log1p(frame["capital-gain"]), np.log1p(frame["capital-loss"])
    return frame.iloc[: len(frame) * 4 // 5], frame.iloc[len(frame) * 4 // 5 :]


def from_folder(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the same from adult.npz, whose features are taken back to the columns that they encode."""
    with np.load(folder / "adult.npz") as stored:
        names = [str(name) for name in stored["feature_names"]]
        return tuple(_decoded(stored[f"X_{part}"], stored[f"y_{part}"], names) for part in ("train", "test"))


def _decoded(X: np.ndarray, y: np.ndarray, names: list[str]) -> pd.DataFrame:
    def number(name: str, times: float) -> np.ndarray:
        return X[:, names.index(name)] * times

    def category(name: str) -> np.ndarray:
        places = [place for place, feature in enumerate(names) if feature.startswith(f"{name}=")]
        values = np.array([names[place].partition("=")[2] for place in places], dtype=object)
        return np.where(values == "?", None, values)[np.argmax(X[:, places], axis=1)]

    return pd.DataFrame(
        {
            "age": number("age/100", 100),
            "education-num": number("education_num/16", 16),
            "hours-per-week": number("hours/100", 100),
            "log-gain": number("log_capital_gain", np.log1p(1e5)),
            "log-loss": number("log_capital_loss", np.log1p(1e4)),
            "workclass": category("workclass"),
            "marital-status": category("marital"),
            "occupation": category("occupation"),
            "relationship": category("relationship"),
            "sex": np.where(number("sex=Male", 1) > 0.5, "Male", "Female"),
            "class": np.where(y > 0, ">50K", "<=50K"),
        }
    )


def task_of(schema: es.Schema, train: pd.DataFrame, test: pd.DataFrame) -> Task:
    """Return the table as the peers read it: the same features, with ranges and blocks as they are declared.

    The peers have no intercept: the levels of a category add up to one, and a column more would cost them noise.
    """
    encoding = Encoding((0.0,) * schema.d, (1.0,) * schema.d, tuple(schema.domain().one_hot))
    arrays = []
    for part in (train, test):
        arrays += [schema.encode(part), np.where(schema.encode_target(part) == ">50K", 1.0, -1.0)]
    return Task("adult", None, es.Logistic(), RIDGE, encoding, *arrays)


def ours(schema: es.Schema, task: Task, epsilon: float, seeds: Sequence[int]) -> np.ndarray:
    """Return the accuracies of the library's default."""
    options = {"domain": schema.domain(), "classes": (-1.0, 1.0)}
    fits = (es.PrivateLogisticRegression(epsilon, random_state=seed, **options) for seed in seeds)
    return np.array([fit.fit(task.X, task.y).score(task.X_test, task.y_test) for fit in fits])


def diffprivlib(schema: es.Schema, task: Task, epsilon: float, seeds: Sequence[int]) -> np.ndarray:
    """Return the accuracies of diffprivlib, told the exact norm bound, with a ridge that balances its noise."""
    ridge = diffprivlib_peer.ridge_by_rule(task, epsilon)
    return _accuracies(task, diffprivlib_peer.fit(task, epsilon, ridge, seeds))


def clipped(schema: es.Schema, task: Task, epsilon: float, seeds: Sequence[int]) -> np.ndarray:
    """Return the accuracies of clipped gradient descent with the best of 78 settings, chosen on the answer."""
    setting = clipped_descent.best_setting(task, epsilon, DELTA, seeds[0])
    return _accuracies(task, clipped_descent.fresh(task, setting, epsilon, DELTA, seeds))


def _accuracies(task: Task, x: np.ndarray) -> np.ndarray:
    return classified(task.X_test @ x, task.y_test)["accuracy"]


METHODS: dict[str, Callable[..., np.ndarray]] = {"epsteps": ours, "DP-GD": clipped, "diffprivlib": diffprivlib}


def measure(folder: Path | None, runs: int) -> dict[str, Any]:
    """Return every accuracy, and what they are held against."""
    schema = es.Schema.read(HERE / "adult.toml")
    task = task_of(schema, *(from_openml() if folder is None else from_folder(folder)))
    plain = LogisticRegression(max_iter=1000).fit(task.X, task.y)
    cells = []
    for name, method in METHODS.items():
        for epsilon in EPSILONS:
            found = method(schema, task, epsilon, range(1, runs + 1)).tolist()
            cells.append({"method": name, "epsilon": epsilon, "accuracy": [round(value, 6) for value in found]})
            print(f"{name:<12} epsilon {epsilon:<5} {np.mean(found):.4f} ± {np.std(found, ddof=1):.4f}", flush=True)
    return {
        "records": task.n,
        "tests": len(task.y_test),
        "features": schema.d,
        "delta of DP-GD": DELTA,
        "not private": round(float(plain.score(task.X_test, task.y_test)), 6),
        "majority": round(float(np.mean(task.y_test < 0)), 6),
        "cells": cells,
        "machine": machine.facts(),
    }


# Colour, label, how far the label is raised in points, and the factor that keeps error bars apart.
LOOKS = {
    "epsteps": ("#0072B2", "epsteps\npure ε, nothing tuned", 14, 0.98),
    "DP-GD": ("#D55E00", "DP-GD, clipped\nε with δ = 10⁻⁵,\nbest of 78 settings", -22, 1.02),
    "diffprivlib": ("#009E73", "diffprivlib\npure ε", 0, 1.0),
}


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw means and standard deviations over epsilon, each named where its curve begins."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8.4, 4.2), layout="constrained")
    for name, (colour, label, raised, aside) in LOOKS.items():
        cells = [cell for cell in results["cells"] if cell["method"] == name]
        epsilons = [aside * cell["epsilon"] for cell in cells]
        means, spread = (np.array([of(cell["accuracy"]) for cell in cells]) for of in (np.mean, _deviation))
        axes.errorbar(epsilons, means, spread, color=colour, marker="o", ms=5, lw=2, capsize=3)
        place = {"xytext": (-10, raised), "textcoords": "offset points", "ha": "right", "va": "center"}
        axes.annotate(label, (epsilons[0], means[0]), color=colour, **place)
    for key, label in (("not private", "not private"), ("majority", "always “no”")):
        axes.axhline(results[key], color="0.45", lw=1.2, ls=(0, (4, 3)))
        place = {"xytext": (0, 4), "textcoords": "offset points", "ha": "right"}
        axes.annotate(f"{label}: {results[key]:.3f}", (2.15, results[key]), color="0.35", **place)
    axes.set(xscale="log", xlim=(0.039, 2.2), xlabel="epsilon (less is more private)", ylabel="test accuracy")
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.set_xticks([], minor=True)
    axes.spines[["top", "right"]].set_visible(False)
    runs = len(results["cells"][0]["accuracy"])
    size = f"{results['records']:,} records, {results['features']} features"
    axes.set_title(f"Adult census: {size}; mean and standard deviation of {runs} fits", fontsize=10, loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with adult.npz; without it the table is downloaded")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--draw", action="store_true", help="only draw the picture of results/front.json")
    options = parser.parse_args()
    if not options.draw:
        threadpool_limits(1)
        RESULTS.write_text(json.dumps(measure(options.data, options.runs), indent=1) + "\n")
    draw(json.loads(RESULTS.read_text()), PICTURE)
    print(f"Wrote {PICTURE}.")


if __name__ == "__main__":
    main()
