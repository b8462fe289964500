"""What comes after the model: `python benchmarks/after.py coverage|error|trials [--runs 300] [--out FILE]`.

`coverage` counts how often the intervals of private scores hold the score of the sample and that of the population,
over fresh samples of simulated records. `error` measures how far private accuracies and areas under the curve are off,
beside what is bought otherwise: a count of right predictions for the whole budget, and a histogram on an even public
grid. `trials` computes what one trial of a search may cost, for a negative binomial and for a Poisson number of them.
All runs are seeded experiments: nothing here is private.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.special import expit

import epsteps as es
from epsteps.budgets import mechanisms
from epsteps.budgets.conversions import gaussian_delta
from epsteps.budgets.selection import Selection, poisson_renyi, renyi_epsilon
from epsteps.noise import Source
from epsteps.tables import evaluation

# Records that stand for the population.
POPULATION = 400_000
SIZES, EPSILONS = (500, 5000), (0.2, 1.0)
# Fewer draws than by default: their quantiles are of a coverage that is off by less than 1 %.
DRAWS = 1000
BUDGETS = ("pure", "rho", "delta")
KINDS = ("two classes", "rare class", "three classes", "numbers")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("coverage", "error", "trials"))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of records, for coverage")
    parser.add_argument("--budgets", nargs="+", choices=BUDGETS, default=BUDGETS, help="for coverage")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--out", type=Path, help="file for the table, as Markdown")
    return parser.parse_args()


def sample(kind: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return n records of a population: of two classes, of a rare one, of three, or numbers with heavy tails."""
    X = rng.beta(2, 4, (n, 5))
    margins = X @ [5.0, -4.0, 3.0, 0.0, -1.0]
    if kind == "numbers":
        return X, 20 + 8 * margins + 4 * rng.standard_t(4, n)
    if kind == "three classes":
        return X, np.digitize(margins + rng.logistic(size=n), [0.0, 2.0])
    return X, (margins - (4.5 if kind == "rare class" else 1.0) + rng.logistic(size=n) > 0).astype(int)


def fitted(kind: str):
    """Return a published model of such records."""
    X, y = sample(kind, 20_000, np.random.default_rng(1))
    given = {"bounds": (0, 1), "epsilon": 2.0, "random_state": 1, "anyway": True}
    if kind == "numbers":
        return es.PrivateRidge(target_bounds=(-50, 100), **given).fit(X, y)
    return es.PrivateLogisticRegression(classes=(0, 1, 2) if kind == "three classes" else (0, 1), **given).fit(X, y)


def truth_of(model, found, X, y) -> dict[str, float]:
    """Return the scores as an evaluation defines them: losses at its floor, errors at its bound."""
    scores = dict(es.unprotected_scores(model, X, y).scores)
    if "log_loss" in scores:
        likely = model.predict_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
        scores["log_loss"] = float(np.mean(-np.log(np.maximum(likely, 0.01))))
    if "r2" in scores:
        bound = found.error_bound * found.plan.unit
        errors = np.minimum(np.abs(np.clip(model.predict(X), -50, 100) - model.clipped(y)), bound)
        scores["mean_absolute_error"], square = float(errors.mean()), float(np.mean(errors**2))
        scores["root_mean_squared_error"] = square**0.5
        scores["r2"] = 1 - square / float(np.var(model.clipped(y)))
    return scores


def coverage(runs: int, kinds: Sequence[str], budgets: Sequence[str]) -> list[str]:
    """Return the table of coverages: of each score in each cell, for the sample and for the population."""
    evaluation._DRAWS = DRAWS
    lines = [
        "| records | n | budget | score | sample | population | half width |",
        "| --- | --: | --- | --- | --: | --: | --: |",
    ]
    cells = [(kind, n, es.Pure(eps)) for kind in kinds for n in SIZES for eps in EPSILONS if "pure" in budgets]
    others = {"rho": es.Concentrated(0.02), "delta": es.Approximate(1.0, 1e-6)}
    cells += [(kind, 5000, others[name]) for kind in kinds for name in budgets if name in others]
    for cell, (kind, n, budget) in enumerate(cells):
        model, rng = fitted(kind), np.random.default_rng(7 + cell)
        everybody = sample(kind, POPULATION, np.random.default_rng(11))
        held: dict[str, list[tuple[bool, bool, float]]] = {}
        known: dict[float, dict[str, float]] = {}
        for seed in range(runs):
            X, y = sample(kind, n, rng)
            found = es.evaluate(model, (X, y), budget, seed=runs * cell + seed)
            bound = found.error_bound if kind == "numbers" else 0.0
            if bound not in known:
                known[bound] = truth_of(model, found, *everybody)
            for place, of in enumerate(("sample", "population")):
                truth = truth_of(model, found, X, y) if of == "sample" else known[bound]
                for metric in found.metrics(of):
                    covered = metric.low - 1e-9 <= truth.get(metric.name, 0.5) <= metric.high + 1e-9
                    held.setdefault(metric.name, [])
                    if place == 0:
                        held[metric.name].append((covered, False, 0.0))
                    else:
                        held[metric.name][-1] = (held[metric.name][-1][0], covered, (metric.high - metric.low) / 2)
        for name, found in held.items():
            sampled, population, width = np.array(found, dtype=float).T
            shares = f"{100 * sampled.mean():.1f} % | {100 * population.mean():.1f} %"
            lines.append(f"| {kind} | {n} | {budget} | {name} | {shares} | {np.median(width):.3g} |")
            print(lines[-1], flush=True)
    return lines


def area(first: np.ndarray, second: np.ndarray) -> float:
    """Return the area under the curve of a histogram; 1/2 where there is none."""
    first, second = np.clip(first, 0, None), np.clip(second, 0, None)
    below = np.cumsum(first) - first
    pairs = first.sum() * second.sum()
    return float(np.sum(second * (below + first / 2)) / pairs) if pairs > 0 else 0.5


def error(runs: int) -> list[str]:
    """Return root mean squared errors against the sample's own scores."""
    lines = ["| records | n | epsilon | what | accuracy | AUC |", "| --- | --: | --: | --- | --: | --: |"]
    laplace = mechanisms.named("laplace")
    for kind in ("two classes", "rare class"):
        for n in SIZES:
            for epsilon in (0.05, 0.2, 1.0):
                model, rng = fitted(kind), np.random.default_rng(3)
                off: dict[str, list[tuple[float, float]]] = {}
                for seed in range(runs):
                    X, y = sample(kind, n, rng)
                    truth = es.unprotected_scores(model, X, y).scores
                    wanted = np.array([truth["accuracy"], truth.get("roc_auc", 0.5)])
                    answers = {}
                    for what, options in (("epsteps, all scores", {}), ("epsteps, buckets=2", {"buckets": 2})):
                        found = es.evaluate(model, (X, y), es.Pure(epsilon), seed=seed, **options)
                        arrays = {name: np.asarray(value)[None] for name, value in found.published.items()}
                        values = [score.value(arrays)[0] for score in found._scores[:2]]
                        answers[what] = [np.clip(np.nan_to_num(value, nan=0.5), 0, 1) for value in values]
                    source = Source(seed)
                    right = np.sum(model.predict(X) == y) + source.integers(laplace, 1 / epsilon, (1,))[0]
                    answers["count of right predictions, whole epsilon"] = [np.clip(right / n, 0, 1), np.nan]
                    buckets = np.minimum((expit(model.decision_function(X)) * 20).astype(int), 19)
                    counts = np.bincount(buckets + 20 * y, minlength=40) + source.integers(laplace, 2 / epsilon, (40,))
                    first, second = counts.reshape(2, 20)
                    accuracy = (first[:10].sum() + second[10:].sum()) / max(counts.sum(), 1)
                    answers["histogram, 20 even buckets"] = [np.clip(accuracy, 0, 1), area(first, second)]
                    for what, values in answers.items():
                        off.setdefault(what, []).append(tuple((np.array(values) - wanted) ** 2))
                for what, squares in off.items():
                    numbers = np.sqrt(np.mean(squares, axis=0))
                    shown = ["–" if np.isnan(number) else f"{number:.4f}" for number in numbers]
                    lines.append(f"| {kind} | {n} | {epsilon} | {what} | {shown[0]} | {shown[1]} |")
                    print(lines[-1], flush=True)
    return lines


def poisson_trial(mean: float, budget: es.Approximate) -> float:
    """Return the largest rho of a Gaussian trial, of a Poisson number of which the best fits a budget: by bisection."""
    orders = 1 + np.geomspace(1e-2, 1e4, 300)
    low, high = -40.0, np.log(budget.epsilon) + 3
    while high - low > 1e-6:
        rho = float(np.exp((low + high) / 2))
        costs = [
            poisson_renyi(mean, order, rho * order, lambda e, rho=rho: gaussian_delta((2 * rho) ** 0.5, e))
            for order in orders
        ]
        fits = renyi_epsilon(orders, np.array(costs), budget.delta) <= budget.epsilon
        low, high = ((low + high) / 2, high) if fits else (low, (low + high) / 2)
    return float(np.exp(low))


def trials(candidates: int = 5) -> list[str]:
    """Return what a trial may cost where a candidate is missed equally often: pure, and Gaussian of either law."""
    lines = [
        "| budget | trials | eta | chance that one of 5 candidates is missed | pure trial, as rho | Gaussian trial | "
        "Gaussian trial, Poisson number | its mean |",
        "| --- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for budget in (es.Approximate(1.0, 1e-6), es.Approximate(4.0, 1e-6), es.Approximate(10.0, 1e-6)):
        for number, eta in ((10, 1.0), (10, 0.0), (50, 1.0), (50, 0.0)):
            law = Selection(number, eta)
            missed = law.missed(candidates)
            mean = -candidates * float(np.log(missed))
            rhos = (law.trial(budget).amount ** 2 / 2, law.trial(budget, gaussian=True).amount)
            shown = " | ".join(f"{rho:.4f}" for rho in (*rhos, poisson_trial(mean, budget)))
            lines.append(f"| {budget} | {number} | {eta:g} | {missed:.2f} | {shown} | {mean:.1f} |")
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    given = arguments()
    parts = {
        "coverage": lambda: coverage(given.runs, given.kinds, given.budgets),
        "error": lambda: error(given.runs),
        "trials": trials,
    }
    lines = parts[given.part]()
    if given.out is not None:
        given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
