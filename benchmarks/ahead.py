"""Why clipped DP-GD is ahead where it is: minima with noise in floats, their cap and ridge chosen on the answer.

What a final model of objective perturbation could be at best, on a design table, with Gaussian noise for records of a
radius that nine of ten lie within (delta = 1e-5): with weights and one cap for all slopes, with a cap for each record,
and with the latter if the Jacobian and the number of classes were free. What the first two differ by is what holding
gradients is worth; what the last two differ by is what only gradient descent is spared; and what the library's default
is above the second is what tuning on the answer is worth. Not private: no number here is released.

    python benchmarks/ahead.py mnist_3v8 email --epsilon 0.5 2 --data FOLDER --packages PACKAGES
    python benchmarks/ahead.py spambase email --bias --data FOLDER --packages PACKAGES

The second says what caps cost without noise.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from accuracy_parts import clipped_descent
from accuracy_parts.tables import Sources, roles, tables
from accuracy_parts.tasks import Task
from scipy.optimize import minimize
from scipy.special import expit

from epsteps.budgets.conversions import gaussian_mu
from epsteps.methods.minima import calibrated

DELTA, SHARE, RUNS = 1e-5, 0.92, 3
CAPS = (1.0, 0.7, 0.5, 0.35, 0.2, 0.1)
RIDGES = tuple(2.0**k for k in range(9, -1, -1))
VARIANTS = ("weights, one cap", "a cap each", "a cap each, no Jacobian")


@dataclass(frozen=True, eq=False)
class Table:
    """Records shortened to a radius, or with weights; and minima of capped losses with a tilt."""

    task: Task

    @cached_property
    def radius(self) -> float:
        """That nine of ten records lie within."""
        return float(np.quantile(np.linalg.norm(self.task.X, axis=1), SHARE))

    def prepared(self, cap: float, weighted: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the records as they are in the sum, their weights and their caps."""
        lengths = np.maximum(np.linalg.norm(self.task.X, axis=1), 1e-12)
        longest = (2 if weighted else 1) * self.radius
        rows = self.task.X * np.minimum(1, longest / lengths)[:, None]
        if weighted:
            return rows, np.minimum(1, self.radius / lengths), np.full(len(rows), cap)
        return rows, np.ones(len(rows)), np.minimum(1, cap * self.radius / np.minimum(lengths, longest))

    def noise(self, epsilon: float, cap: float, ridge: float, variant: str) -> float | None:
        """Return the scale of the tilt; None where the Jacobian alone costs more than epsilon."""
        loss = self.task.loss.capped(cap)
        reach = self.radius**2 * (2 if variant == VARIANTS[0] else 1)
        mu = gaussian_mu(epsilon, DELTA)
        if variant != VARIANTS[2]:
            found = calibrated(epsilon, DELTA, reach / (self.task.n * ridge), loss.saturation)
            mu = found.mu if found else 0.0
        return 2 * cap * self.radius * loss.joint_slope(2) / mu if mu > 0 else None

    def minimum(self, cap: float, ridge: float, weighted: bool, tilt: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Return where the tilted sum is least."""
        rows, weights, caps = self.prepared(cap, weighted)
        kinks = np.where(caps < 1, np.log(np.maximum(1 / caps - 1, 1e-300)), -np.inf)

        def value(x: np.ndarray) -> tuple[float, np.ndarray]:
            agreed, slopes = self._agreed(rows, x)
            held = np.maximum(agreed, kinks)
            losses = np.logaddexp(0, -held) + np.where(caps < 1, caps * (held - agreed), 0.0)
            sizes = weights * np.minimum(expit(-agreed), caps)
            gradient = ((slopes * sizes[:, None]).T @ rows).ravel()
            mean = (weights @ losses + tilt @ x) / self.task.n + ridge / 2 * float(x @ x)
            return mean, (gradient + tilt) / self.task.n + ridge * x

        return minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 100, "ftol": 1e-10}).x

    def _agreed(self, rows: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the margin t of ln(1 + exp(-t)) for each record, and what t falls by with the margins."""
        y, outputs = self.task.y, self.task.loss.outputs
        if outputs == 1:
            return y * (rows @ x), -y[:, None]
        margins, own = rows @ x.reshape(outputs, -1).T, np.arange(outputs)[None, :] == y.astype(int)[:, None]
        others = np.where(own, -np.inf, margins)
        largest = others.max(axis=1, keepdims=True)
        powers = np.exp(others - largest)
        total = powers.sum(axis=1, keepdims=True)
        return margins[own] - (largest + np.log(total))[:, 0], powers / total - own

    def best(self, epsilon: float, variant: str) -> tuple[float, float, float]:
        """Return the least excess, and the cap and the ridge that it has."""
        return min(self._tried(epsilon, variant), default=(math.nan, math.nan, math.nan))

    def bias(self, cap: float, weighted: bool) -> float:
        """Return the excess of the minimum without noise, at the declared ridge."""
        zero = np.zeros(self.task.dimension)
        return float(self.task.objective.excess(self.minimum(cap, self.task.ridge, weighted, zero, zero)[:, None])[0])

    def _tried(self, epsilon: float, variant: str) -> Iterator[tuple[float, float, float]]:
        rng = np.random.default_rng(1)
        units = rng.standard_normal((RUNS, self.task.loss.outputs, self.task.d))
        units -= units.mean(axis=1, keepdims=True) if self.task.loss.outputs > 1 else 0.0
        for cap in CAPS:
            starts = [np.zeros(self.task.dimension)] * RUNS
            for ridge in (self.task.ridge * times for times in RIDGES):
                scale = self.noise(epsilon, cap, ridge, variant)
                if scale is None:
                    break
                starts = [
                    self.minimum(cap, ridge, variant == VARIANTS[0], scale * unit.ravel(), start)
                    for unit, start in zip(units, starts, strict=True)
                ]
                yield float(self.task.objective.excess(np.stack(starts, axis=1)).mean()), cap, ridge


def main() -> None:
    """Print a table: a row for each table and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--bias", action="store_true", help="what caps cost without noise")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--packages", type=Path)
    options = parser.parse_args()
    if not options.bias:
        print(f"| table | ε | {' | '.join(VARIANTS)} | tuned DP-GD |\n| --- | --- | --- | --- | --- | --- |")
    for name in options.tables:
        if roles()[name] != "design":
            raise SystemExit(f"{name} is a judge, and not looked at.")
        table = Table(tables()[name].task(Sources(options.data, options.packages)))
        for line in biases(table) if options.bias else rows(table, options.epsilon):
            print(line, flush=True)


def biases(table: Table) -> Iterator[str]:
    """Yield a row of a table: what caps cost, one for all with weights, and one for each."""
    for weighted, variant in ((True, VARIANTS[0]), (False, VARIANTS[1])):
        found = (f"{cap:g}: {table.bias(cap, weighted):.1e}" for cap in CAPS[1:4])
        yield f"| {table.task.name} | {variant} | {' | '.join(found)} |"


def rows(table: Table, epsilons: list[float]) -> Iterator[str]:
    """Yield a row for each epsilon: the variants at their best, and the peer."""
    for epsilon in epsilons:
        found = [table.best(epsilon, variant) for variant in VARIANTS]
        setting = clipped_descent.best_setting(table.task, epsilon, DELTA, 3)
        peer = clipped_descent.fresh(table.task, setting, epsilon, DELTA, range(5))
        cells = [f"{excess:.2g} (cap {cap:g})" for excess, cap, _ in found]
        risk = table.task.objective.excess(peer).mean()
        yield f"| {table.task.name} | {epsilon:g} | {' | '.join(cells)} | {risk:.2g} |"


if __name__ == "__main__":
    main()
