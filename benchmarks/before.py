"""What comes before a model: bounds that are bought, and private descriptions, beside other libraries.

python benchmarks/before.py PART [--data FOLDER] [--runs N]: PART is columns (quantiles and means over epsilon beside
OpenDP, diffprivlib and Google's library), bounds (models from bought, public and loose bounds), choice (ends chosen
together and one by one, beside noisy counts) or coverage (of intervals). Tables are printed as Markdown. FOLDER holds
tables NAME.npz with X_train, y_train, X_test, y_test and feature_names; without it scikit-learn's small ones are used
alone. bounds takes --tables NAME ... and --epsilon; other tables than those of FOLDER are design tables of
accuracy_parts/declared.toml, whose wheels are in the folder --packages.
"""

import argparse
import json
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from accuracy_parts.diffprivlib_peer import environment

import epsteps as es
from epsteps import tables

REQUIREMENTS = ("diffprivlib==0.6.6", "scikit-learn==1.7.2", "python-dp==1.1.5")
WORKER = Path(__file__).parent / "before_parts" / "worker.py"
EPSILONS = (0.05, 0.2, 1.0)
SHARES = (0.5, 0.9)


def load(folder, name):
    """Return a table of the folder: features by their names, and the target."""
    held = np.load(Path(folder) / f"{name}.npz")
    names = [str(text) for text in held["feature_names"]]
    return {
        part: (held[f"X_{part}"].astype(float), held[f"y_{part}"].astype(float)) for part in ("train", "test")
    }, names


def real_columns(folder):
    """Yield columns with public ranges: name, numbers, low and high."""
    from sklearn.datasets import load_breast_cancer, load_diabetes

    cancer, diabetes = load_breast_cancer(), load_diabetes(scaled=False)
    yield "breast cancer: mean area", cancer.data[:, 3], 0.0, 3000.0
    yield "diabetes: bmi", diabetes.data[:, 2], 10.0, 60.0
    if folder is None:
        return
    for name in ("california", "bike", "adult", "bank", "covertype"):
        held, names = load(folder, name)
        X = held["train"][0][:40_000]
        place = next(i for i in range(X.shape[1]) if len(np.unique(X[:, i])) > 30)
        yield f"{name}: {names[place]}", X[:, place], min(0.0, float(np.floor(X[:, place].min()))), 1.0


def ours(column, low, high, kind, share, epsilon, runs):
    """Return our answers: a seed for each run."""
    schema = es.Schema({"x": es.Numeric(low, high)})
    asked = {"statistics": ["means"]} if kind == "mean" else {"statistics": ["quantiles"], "quantiles": [share]}
    plan = es.description_plan(schema, len(column), es.Pure(epsilon), level=None, **asked)
    what = "mean" if kind == "mean" else f"{share:g} quantile"
    return [es.describe(schema, {"x": column}, plan, seed=run)["x", what].value for run in range(runs)]


def of_opendp(column, low, high, kind, share, epsilon, runs):
    """Return OpenDP's answers, for one record replaced."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    values = np.clip(column, low, high).tolist()
    if kind == "mean":
        domain = dp.vector_domain(dp.atom_domain(bounds=(low, high), nan=False), size=len(values))
        space = domain, dp.symmetric_distance()
        make = lambda scale: space >> dp.t.then_mean() >> dp.m.then_laplace(scale=scale)  # noqa: E731
    else:
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(values)), dp.symmetric_distance()
        candidates = np.linspace(low, high, 1025).tolist()
        make = lambda scale: dp.m.make_private_quantile(  # noqa: E731
            *space, dp.max_divergence(), candidates=candidates, alpha=share, scale=scale
        )
    scale = dp.binary_search(lambda s: make(s).check(2, epsilon), bounds=(1e-9, 1e9))
    measure = make(scale)
    return [measure(values) for _ in range(runs)]


def of_others(column, low, high, cells, runs):
    """Return the answers of diffprivlib and Google's library, in their own environment."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "column.npy", np.clip(column, low, high))
        (folder / "settings.json").write_text(json.dumps({"low": low, "high": high, "runs": runs, "cells": cells}))
        subprocess.run([str(environment(REQUIREMENTS)), str(WORKER), name], check=True)
        return json.loads((folder / "answers.json").read_text())


def columns(folder, runs):
    """Print errors of quantiles and means, as shares of the declared range."""
    cells = [
        (kind, share, eps) for kind, share in [("mean", 0), *(("quantile", q) for q in SHARES)] for eps in EPSILONS
    ]
    print("| column | n | what | epsilon | epsteps | OpenDP | diffprivlib | Google |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, column, low, high in real_columns(folder):
        held = np.clip(column, low, high)
        theirs = of_others(column, low, high, cells, runs)
        for (kind, share, epsilon), answers in zip(cells, theirs, strict=True):
            exact = held.mean() if kind == "mean" else np.sort(held)[max(int(share * len(held)), 1) - 1]
            answers = {"OpenDP": of_opendp(column, low, high, kind, share, epsilon, runs)} | answers
            answers = {"epsteps": ours(column, low, high, kind, share, epsilon, runs)} | answers
            errors = [
                _error(answers[peer], exact, high - low) for peer in ("epsteps", "OpenDP", "diffprivlib", "Google")
            ]
            what = "mean" if kind == "mean" else f"{share:g} quantile"
            print(f"| {name} | {len(column)} | {what} | {epsilon:g} | {' | '.join(errors)} |", flush=True)


def _error(answers, exact, width):
    """Return the mean absolute error in thousandths of the range, and its standard error."""
    if isinstance(answers, str):
        return "–"
    errors = 1000 * np.abs(np.array(answers) - exact) / width
    return f"{errors.mean():.3g} ± {errors.std() / np.sqrt(len(errors)):.1g}"


def choice(folder, runs):
    """Print how far bought bounds are from the quantile, in records, and how often one is beyond all records."""
    rng = np.random.default_rng(1)
    methods = (_together, _noisy_max, _noisy_counts, _tree)
    print("| n | ends | epsilon of all | together | one by one | Laplace counts | hierarchical Laplace counts |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    cells, n = 364, 20_000
    for columns in (1, 4):
        counts = [
            np.bincount(np.clip((rng.normal(size=n) * 12 + 180).astype(int), 0, cells - 1), minlength=cells)
            for _ in range(columns)
        ]
        for epsilon in (0.05, 0.1, 0.2):
            texts = []
            for method in methods:
                found = [method(counts, epsilon, rng) for _ in range(runs)]
                errors = [
                    [_rank_error(each, cell, target) for each, ends in zip(counts, cells_of, strict=True)
                     for cell, target in zip(ends, _ends(n), strict=True)]
                    for cells_of in found
                ]  # fmt: skip
                lost = np.mean(np.max(errors, axis=1) >= 0.05 * n)
                texts.append(f"{np.mean(errors):.3g}, {100 * lost:.3g} %")
            print(f"| {n} | {2 * columns} | {epsilon:g} | " + " | ".join(texts) + " |", flush=True)


def _rank_error(counts, cell, target):
    below, within = np.cumsum(counts)[cell] - counts[cell], np.cumsum(counts)[cell]
    return max(below - target, target - within, 0)


def _ends(n):
    return int(0.05 * n), int(0.95 * n)


def _distances(counts):
    within = np.cumsum(counts)
    return [np.maximum(np.maximum(within - counts - t, t - within), 0) for t in _ends(counts.sum())]


def _together(counts, epsilon, rng):
    """Return ends of all columns by one exponential mechanism: its law, in floats."""
    distances = [each for column in counts for each in _distances(column)]
    levels = np.unique(np.concatenate(distances))
    within = np.array([np.searchsorted(np.sort(each), levels, side="right") for each in distances])
    lists = np.exp(np.log(np.maximum(within, 1e-300)).sum(axis=0) - np.log(within[:, -1]).sum())
    masses = np.diff(lists, prepend=0.0) * np.exp(-levels * epsilon / 2)
    level = levels[rng.choice(len(levels), p=masses / masses.sum())]
    while True:  # uniform among those within the level, until one of them is at it
        cells = [int(rng.choice(np.flatnonzero(each <= level))) for each in distances]
        if max(each[cell] for each, cell in zip(distances, cells, strict=True)) == level:
            return np.reshape(cells, (-1, 2)).tolist()


def _noisy_max(counts, epsilon, rng):
    """Return each end by itself: report-noisy-max with one-sided noise."""
    stop = 1 - np.exp(-epsilon / (4 * len(counts)))
    return [
        [int(np.argmax(rng.geometric(stop, len(column)) - each)) for each in _distances(column)] for column in counts
    ]


def _noisy_counts(counts, epsilon, rng):
    scale = 2 * len(counts) / epsilon
    return [_from_sums(column, np.cumsum(column + rng.laplace(scale=scale, size=len(column)))) for column in counts]


def _tree(counts, epsilon, rng):
    return [_from_sums(column, _tree_sums(column, epsilon / len(counts), rng)) for column in counts]


def _tree_sums(counts, epsilon, rng):
    levels = int(np.ceil(np.log2(len(counts)))) + 1
    padded = np.append(counts, np.zeros(2 ** (levels - 1) - len(counts)))
    sums = [padded.reshape(-1, 2**level).sum(axis=1) for level in range(levels)]
    noisy = [s + rng.laplace(scale=2 * levels / epsilon, size=len(s)) for s in sums]
    within = []
    for stop in range(1, len(counts) + 1):
        total, place = 0.0, 0
        for level in reversed(range(levels)):
            if stop - place >= 2**level:
                total, place = total + noisy[level][place >> level], place + 2**level
        within.append(total)
    return np.array(within)


def _from_sums(counts, within):
    return [min(int(np.argmax(within >= target)), len(counts) - 1) for target in _ends(counts.sum())]


def schemas_of(X, y, names, regression):
    """Return schemas with public ranges, with ranges that are 10 times too wide, and with unknown ones."""
    target = es.Numeric(-1, 1) if regression else es.Category([-1, 1])
    low = [min(0.0, float(np.floor(column.min()))) for column in X.T]
    numeric = [len(np.unique(column)) > 2 for column in X.T]
    made = {}
    for kind in ("public", "loose", "unknown"):
        listed = {}
        for name, end, is_number in zip(names, low, numeric, strict=True):
            if kind == "public" or not is_number:
                listed[name] = es.Numeric(end, 1.0)
            elif kind == "loose":
                listed[name] = es.Numeric(10 * end, 10.0)
            else:
                listed[name] = es.Unbounded(low=0) if end == 0 else es.Unbounded()
        made[kind] = es.Schema(listed | {"the target": target}, target="the target")
    return made


def table(X, y, names):
    """Return a table as a dict of columns."""
    return dict(zip(names, X.T, strict=True)) | {"the target": y}


def risk(model, X, y, names, regression):
    """Return the mean loss on other records: squared, or logistic."""
    margins = model.margins(table(X, y, names))
    if regression:
        return float(np.mean((np.clip(margins, -1, 1) - y) ** 2))
    return float(np.mean(np.logaddexp(0, -y * margins)))


def best_risk(held, regression):
    """Return the risk of a model without privacy."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    (X, y), (other, truth) = held["train"], held["test"]
    if regression:
        return float(np.mean((np.clip(LinearRegression().fit(X, y).predict(other), -1, 1) - truth) ** 2))
    margins = LogisticRegression(C=100, max_iter=2000).fit(X, y).decision_function(other)
    return float(np.mean(np.logaddexp(0, -truth * margins)))


PREPARED = ("california", "bike", "adult", "bank", "ijcnn1", "covertype")


def table_for_bounds(folder, packages, name):
    """Return training and test records, the columns' names, and whether targets are numbers."""
    if name in PREPARED:
        return *load(folder, name), name in ("california", "bike")
    from accuracy_parts import tables as declared

    task = declared.tables()[name].task(declared.Sources(folder, packages), None)
    held = {"train": (task.X, task.y), "test": (task.X_test, task.y_test)}
    return held, [f"column {place}" for place in range(task.X.shape[1])], declared.tables()[name].kind == "regression"


def bounds(folder, runs, epsilon=1.0, names=PREPARED, packages=None):
    """Print the excess risk of models from public, bought and loose bounds, for the same epsilon in all."""
    print("| table | n | bought | best | public | bought for 5 % | 10 times too wide | bought/public |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        held, listed, regression = table_for_bounds(folder, packages, name)
        (X, y), (other, truth) = held["train"], held["test"]
        X, y = X[:100_000], y[:100_000]
        made, found = schemas_of(X, y, listed, regression), {}
        data, lowest = table(X, y, listed), best_risk({"train": (X, y), "test": (other, truth)}, regression)
        score = partial(risk, X=other, y=truth, names=listed, regression=regression)
        bought = []
        for kind in ("public", "unknown", "loose"):
            found[kind] = []
            for seed in range(runs):
                schema, price = made[kind], epsilon
                if kind == "unknown":
                    purchase = es.buy_bounds(schema, data, es.Pure(0.05 * epsilon), seed=seed)
                    schema, price, bought = purchase.schema, 0.95 * epsilon, purchase.plan.ends
                plan = es.plan(tables.problem_of(schema, len(y), 1e-4), es.Pure(price), method="auto", release="final")
                model = tables.fit_model(plan, schema, data, seed=1000 + seed, anyway=True)
                found[kind].append(score(model) - lowest)
        public, unknown = (np.mean(found[kind]) for kind in ("public", "unknown"))
        texts = " | ".join(f"{np.mean(found[k]):.4f} ± {np.std(found[k]) / np.sqrt(runs):.4f}" for k in found)
        print(
            f"| {name} | {len(y)} | {len(bought)} ends | {lowest:.4f} | {texts} | {unknown / public:.2f} |", flush=True
        )


def coverage(folder, runs):
    """Print how often intervals hold the number that they are for."""
    from sklearn.datasets import load_breast_cancer

    rng = np.random.default_rng(5)
    cancer = load_breast_cancer().data
    people = {"radius": np.tile(cancer[:, 0], 8), "area": np.tile(cancer[:, 3], 8)}
    people["kind"] = np.where(people["area"] > 800, "large", np.where(people["radius"] < 12, "small", "middle"))
    people["area"][rng.random(len(people["area"])) < 0.1] = np.nan
    schema = es.Schema(
        {
            "radius": es.Numeric(0, 40),
            "area": es.Numeric(0, 3000, missing=True),
            "kind": es.Category(["small", "middle", "large"]),
        }
    )
    budgets = [es.Pure(0.3), es.Pure(3.0), es.Concentrated(0.05), es.Approximate(1.0, 1e-6)]
    n = len(people["radius"])
    print("| budget | target | lowest coverage | of | mean coverage |")
    print("| --- | --- | --- | --- | --- |")
    for target in ("sample", "population"):
        truth = exact_of(people)
        for budget in budgets:
            m = n if target == "sample" else n // 2
            plan = es.description_plan(schema, m, budget, target=target)
            hits = {}
            for run in range(runs):
                rows = np.arange(n) if target == "sample" else rng.integers(0, n, m)
                for entry in es.describe(schema, {k: v[rows] for k, v in people.items()}, plan, seed=run).entries:
                    if entry.low is None:
                        continue
                    known = truth[entry.column, entry.statistic]
                    scaled = known * (m / n if entry.statistic.startswith(("count", "missing")) else 1)
                    hits.setdefault((entry.column, entry.statistic), []).append(
                        entry.low - 1e-9 <= scaled <= entry.high + 1e-9
                    )
            rates = {key: np.mean(held) for key, held in hits.items()}
            worst = min(rates, key=rates.get)
            mean = np.mean(list(rates.values()))
            print(f"| {budget} | {target} | {rates[worst]:.3f} | {' '.join(worst)} | {mean:.3f} |", flush=True)


def exact_of(people):
    """Return the exact numbers of the table; the grid of 2^20 steps moves them by far less than the noise."""
    truth = {("area", "missing"): np.isnan(people["area"]).sum()}
    for name, high in (("radius", 40), ("area", 3000)):
        known = np.clip(people[name][~np.isnan(people[name])], 0, high)
        truth |= {(name, "mean"): known.mean(), (name, "deviation"): known.std()}
        truth |= {(name, f"{q:g} quantile"): np.sort(known)[max(int(q * len(known)), 1) - 1] for q in (0.25, 0.5, 0.75)}
    middle = np.nan_to_num(people["area"], nan=1500.0)
    truth["radius", "correlation with area"] = np.corrcoef(people["radius"], middle)[0, 1]
    for label in ("small", "middle", "large"):
        truth["kind", f"count of {label}"] = np.sum(people["kind"] == label)
    return truth


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["columns", "bounds", "choice", "coverage"])
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--tables", nargs="+", default=PREPARED, help="of bounds")
    parser.add_argument("--epsilon", type=float, default=1.0, help="of bounds")
    parser.add_argument("--packages", type=Path, default=None, help="of bounds")
    given = parser.parse_args()
    if given.part == "bounds":
        bounds(given.data, given.runs or 10, given.epsilon, given.tables, given.packages)
    else:
        usual = {"columns": (columns, 100), "choice": (choice, 200), "coverage": (coverage, 300)}
        part, runs = usual[given.part]
        part(given.data, given.runs or runs)
