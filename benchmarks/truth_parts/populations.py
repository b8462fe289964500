"""Populations with a known minimum: finite sets of atoms, from which records are drawn with replacement.

All cells that coverage is measured in are declared here: the grid that the method was designed on, fresh ones, those
that broke an earlier version of it, and those beside a published method. Those with planted bugs were chosen by
looking: where each bug shows.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import expit, ndtr, stdtr

import epsteps as es

ATOMS = 8000
# Pure epsilon-DP is mu-GDP for mu = 2 Φ⁻¹(e^ε/(1 + e^ε)): this epsilon for mu = 1.
MU_ONE = float(np.log(ndtr(0.5) / ndtr(-0.5)))


@dataclass(frozen=True)
class Cell:
    """A law of records, n and a budget. ``model`` says how targets follow, ``columns`` what features are like.

    ``unknown`` is the share of records whose category is unknown, or of numbers that are missing, ``wide`` how many
    times too wide each range is declared, and ``signal`` what coefficients are multiplied by. ``method`` is that of the
    plan: "objective" with intervals, or another as it is.
    """

    group: str
    model: str
    columns: str
    d: int
    rho: float
    n: int
    epsilon: float
    delta: float | None = None
    robust: bool = False
    unknown: float = 0.0
    wide: float = 1.0
    signal: float = 1.0
    ridge: float = 1e-6
    seed: int = 0
    method: str = "objective"

    @property
    def intercept(self) -> bool:
        """Whether there is one: of fresh cells all have it, of the others those whose columns are not centred."""
        return self.group in ("fresh", "planted", "methods") or self.columns not in (
            "uniform",
            "factor",
            "normal",
            "opposite",
        )

    @property
    def name(self) -> str:
        """The cell in words."""
        words = [f"{self.model} {self.columns} d={self.d} rho={self.rho:g} n={self.n} eps={self.epsilon:.3g}"]
        words += [f"delta={self.delta:g}"] if self.delta else []
        words += ["robust"] if self.robust else []
        plain = {"unknown": 0.0, "wide": 1.0, "signal": 1.0, "ridge": 1e-6, "seed": 0}
        words += [f"{key}={getattr(self, key):g}" for key, value in plain.items() if getattr(self, key) != value]
        words += [self.method] if self.method != "objective" else []
        return " ".join(words)

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """The one-hot blocks: of mixed columns the second half is one category; of holes each number's."""
        if self.columns == "holes":
            return tuple((start, start + 2) for start in range(0, self.d, 2))
        if self.columns == "mixed":
            return ((self.d // 2, self.d),)
        return ((0, self.d),) if self.columns == "category" else ()

    @cached_property
    def population(self) -> tuple[np.ndarray, np.ndarray]:
        """All atoms: features in their declared box, and targets."""
        rng = np.random.default_rng([self.seed, self.d, round(100 * self.rho), 41])
        X = self._features(rng)
        return X, self._targets(X, rng)

    def _normals(self, rng: np.random.Generator) -> np.ndarray:
        """Return correlated normals: AR(1), or one common factor."""
        normals = rng.standard_normal((ATOMS, self.d))
        if self.columns in ("factor", "skewed"):
            return np.sqrt(self.rho) * rng.standard_normal((ATOMS, 1)) + np.sqrt(1 - self.rho) * normals
        for j in range(1, self.d):
            normals[:, j] = self.rho * normals[:, j - 1] + np.sqrt(1 - self.rho**2) * normals[:, j]
        return normals

    def _features(self, rng: np.random.Generator) -> np.ndarray:
        normals = self._normals(rng)
        match self.columns:
            case "uniform" | "factor":
                X = 2 * ndtr(normals) - 1
            case "normal":
                X = np.clip(normals / 3, -1, 1)
            case "skewed":  # log-normal, nearly all of it below half of its range
                X = np.clip(0.1 * np.exp(0.8 * normals), 0, 1)
            case "heavy":  # Student's t with 3 degrees of freedom, cut at 20
                uniforms = ndtr(normals)
                X = np.clip(_student(uniforms) / 20, -1, 1)
            case "binary":
                X = (normals < _cuts(self.d)).astype(float)
            case "rare":
                X = (normals < -1.645).astype(float)
            case "opposite":  # the second column is nearly minus the first, and its range ten times too wide
                X = 2 * ndtr(normals) - 1
                X[:, 1] = -X[:, 0]
            case "holes":  # numbers, and beside each the indicator that it is missing
                X = ndtr(normals)
                X[:, 1::2] = rng.random((ATOMS, self.d // 2)) < self.unknown
                X[:, ::2] *= 1 - X[:, 1::2]
            case "mixed" | "category":
                X = 2 * ndtr(normals) - 1
                for start, stop in self.blocks:
                    levels = rng.choice(stop - start, size=ATOMS, p=_shares(stop - start))
                    X[:, start:stop] = np.eye(stop - start)[levels]
                    X[rng.random(ATOMS) < self.unknown, start:stop] = 0.0
        return X

    def _targets(self, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        theta = self.signal * np.linspace(-1.5, 1.5, self.d) if self.d > 2 else self.signal * np.array([1.0, -0.7])
        if self.columns == "heavy":  # most of its values are small
            theta = 5 * theta
        margins = X @ theta + 0.3 * self.intercept
        match self.model:
            case "logistic" | "hinge":
                return np.where(rng.random(ATOMS) < expit(margins), 1.0, -1.0)
            case "bent":  # misspecified: the log-odds are not linear
                return np.where(rng.random(ATOMS) < expit(margins + margins**2 - 1), 1.0, -1.0)
            case "heteroskedastic":
                noise = 0.1 * (0.3 + np.abs(X[:, 0]) * 1.7) * rng.standard_normal(ATOMS)
                return np.clip(margins / 8 + noise, -1, 1)
        return np.clip(margins / 8 + 0.15 * rng.standard_normal(ATOMS), -1, 1)

    @property
    def problem(self) -> es.Problem:
        """The declared problem."""
        losses = {"logistic": es.Logistic(), "bent": es.Logistic(), "hinge": es.SmoothedHinge()}
        losses |= {"huber": es.PseudoHuber(c=0.4, bound=1.0)}
        low, high = np.full(self.d, -1.0), np.full(self.d, 1.0)
        if self.columns in ("skewed", "binary", "rare", "category", "holes"):
            low[:] = 0.0
        for start, stop in self.blocks:
            low[start:stop] = 0.0
        if self.columns == "opposite":
            low[1], high[1] = self.wide * low[1], self.wide * high[1]
        else:
            low, high = self.wide * low, self.wide * high
        numbers = range(0, self.d, 2) if self.columns == "holes" else ()
        box = es.Box(tuple(low.tolist()), tuple(high.tolist()), one_hot=self.blocks, numbers=numbers)
        loss = losses.get(self.model, es.Squared(1.0))
        return es.Problem(loss, box, ridge=self.ridge, n=self.n, d=self.d, intercept=self.intercept)

    @property
    def plan(self) -> Any:
        """The plan with intervals; of other methods, the plan as it is."""
        budget = es.Pure(self.epsilon) if self.delta is None else es.Approximate(self.epsilon, self.delta)
        if self.method != "objective":
            return es.plan(self.problem, budget, self.method)
        robust = {"robust": True} if self.robust else {}
        return es.plan(self.problem, budget, "objective", intervals=0.95, **robust)

    @property
    def contrasts(self) -> np.ndarray | None:
        """With categories, the numeric coefficients, and each level less the mean of all levels."""
        if not self.problem.domain.categories:
            return None
        ((start, stop),) = self.blocks
        matrix = np.eye(self.d, self.d + 1)
        matrix[start:stop, start:stop] -= 1 / (stop - start)
        return matrix


def _student(uniforms: np.ndarray) -> np.ndarray:
    """Return quantiles of Student's t with 3 degrees of freedom, by interpolation."""
    points = np.sinh(np.linspace(-6, 6, 4001))
    return np.interp(uniforms, stdtr(3, points), points)


def _cuts(d: int) -> np.ndarray:
    """Return cuts with frequencies from one half down to one in ten."""
    return np.linspace(0.0, -1.28, d)


def _shares(levels: int) -> np.ndarray:
    shares = 1 / np.arange(1, levels + 1)
    return shares / shares.sum()


def _grid() -> list[Cell]:
    sizes = ((1000, 1.0), (10_000, 0.3), (10_000, 1.0), (10_000, 3.0), (100_000, 1.0), (1_000_000, 1.0))
    correlations = {2: (0.6, 0.9), 5: (0.0, 0.6, 0.9), 10: (0.0, 0.6, 0.9), 20: (0.6, 0.9)}
    cells = [
        Cell("grid", "logistic", "uniform", d, rho, n, epsilon)
        for d, rhos in correlations.items()
        for rho in rhos
        for n, epsilon in sizes
    ]
    for columns, d, n in (
        ("binary", 5, 10_000), ("binary", 10, 100_000), ("binary", 20, 100_000),
        ("normal", 10, 10_000), ("normal", 10, 100_000),
        ("mixed", 8, 10_000), ("mixed", 8, 100_000), ("mixed", 16, 100_000),
    ):  # fmt: skip
        cells.append(Cell("grid", "logistic", columns, d, 0.5, n, 1.0))
    for model, d, n, robust in (
        ("linear", 2, 10_000, False), ("linear", 5, 10_000, False), ("linear", 10, 100_000, False),
        ("heteroskedastic", 5, 10_000, False), ("heteroskedastic", 5, 100_000, True),
        ("bent", 5, 10_000, False), ("bent", 5, 100_000, True), ("huber", 5, 100_000, False),
    ):  # fmt: skip
        cells.append(Cell("grid", model, "uniform", d, 0.6, n, 1.0, robust=robust))
    cells += [Cell("grid", "logistic", "uniform", d, 0.6, n, 1.0, delta=1e-6) for d, n in ((5, 10_000), (20, 100_000))]
    return cells


# Other designs, d, n, epsilon and coefficients than the grid's.
FRESH = [
    replace(cell, group="fresh", seed=900 + number)
    for number, cell in enumerate(
        (
            Cell("", "logistic", "uniform", 3, 0.4, 2000, 2.0),
            Cell("", "logistic", "uniform", 4, 0.85, 20_000, 0.7),
            Cell("", "logistic", "uniform", 6, 0.7, 200_000, 0.5),
            Cell("", "logistic", "uniform", 8, 0.2, 5000, 1.5),
            Cell("", "logistic", "uniform", 12, 0.85, 50_000, 1.5),
            Cell("", "logistic", "uniform", 16, 0.4, 500_000, 0.7),
            Cell("", "logistic", "uniform", 25, 0.5, 200_000, 1.5),
            Cell("", "logistic", "uniform", 40, 0.3, 300_000, 2.0),
            Cell("", "logistic", "uniform", 50, 0.6, 1_000_000, 1.0),
            Cell("", "logistic", "factor", 6, 0.5, 30_000, 1.0),
            Cell("", "logistic", "factor", 12, 0.8, 200_000, 0.7),
            Cell("", "logistic", "normal", 4, 0.3, 50_000, 1.0),
            Cell("", "logistic", "skewed", 4, 0.3, 50_000, 1.0),
            Cell("", "logistic", "skewed", 8, 0.6, 500_000, 1.5),
            Cell("", "logistic", "heavy", 4, 0.3, 50_000, 1.0),
            Cell("", "logistic", "heavy", 10, 0.5, 500_000, 1.0),
            Cell("", "logistic", "binary", 7, 0.3, 30_000, 1.5),
            Cell("", "logistic", "mixed", 10, 0.3, 50_000, 1.5),
            Cell("", "logistic", "mixed", 14, 0.7, 300_000, 0.5),
            Cell("", "bent", "uniform", 6, 0.4, 50_000, 1.5, robust=True),
            Cell("", "bent", "factor", 6, 0.3, 200_000, 1.0),
            Cell("", "linear", "factor", 6, 0.4, 50_000, 1.5),
            Cell("", "linear", "mixed", 8, 0.5, 100_000, 1.0),
            Cell("", "heteroskedastic", "uniform", 4, 0.3, 50_000, 2.0, robust=True),
            Cell("", "huber", "uniform", 6, 0.5, 50_000, 1.5),
            Cell("", "hinge", "uniform", 5, 0.4, 50_000, 1.0),
            Cell("", "logistic", "factor", 8, 0.5, 50_000, 1.0, delta=1e-6),
            Cell("", "linear", "uniform", 5, 0.5, 50_000, 1.0, delta=1e-6),
        ),
        start=1,
    )
]
# Cells that were sought out to break an earlier version of the method, and did.
BROKEN = [
    Cell("broken", "logistic", "uniform", 10, 0.98, 100_000, 1.0, seed=1),
    Cell("broken", "logistic", "skewed", 6, 0.95, 80_000, 0.7, seed=2),
    Cell("broken", "logistic", "skewed", 6, 0.95, 8000, 0.7, seed=2),
    Cell("broken", "logistic", "skewed", 6, 0.8, 8000, 0.7, seed=3),
    Cell("broken", "logistic", "factor", 6, 0.98, 80_000, 0.7, seed=4),
    Cell("broken", "logistic", "uniform", 3, 0.0, 30_000, 1.0, signal=13.0, seed=5),
    Cell("broken", "logistic", "uniform", 3, 0.0, 30_000, 1.0, signal=27.0, seed=5),
    Cell("broken", "logistic", "category", 3, 0.0, 30_000, 0.05, unknown=0.3, seed=6),
    Cell("broken", "logistic", "category", 3, 0.0, 30_000, 0.05, unknown=0.6, seed=6),
    Cell("broken", "logistic", "rare", 10, 0.5, 1_000_000, 1.0, robust=True, seed=7),
    Cell("broken", "logistic", "skewed", 4, 0.3, 1_000_000, 3.0, robust=True, seed=8),
    Cell("broken", "logistic", "opposite", 10, 0.0, 1000, 1.0, wide=10.0, seed=9),
    Cell("broken", "logistic", "uniform", 4, 0.3, 30_000, 1.0, wide=10.0, seed=10),
]
# Two columns, at the privacy of mu = 1: the setting whose widths DP-CI-ERM publishes.
BESIDE = [Cell("beside", "logistic", "uniform", 2, 0.0, n, MU_ONE, seed=20) for n in (1000, 10_000, 100_000)]
PUBLISHED_WIDTHS = {1000: 3.0, 10_000: 1.36, 100_000: 1.07}
# Numbers that may be missing, each with its indicator.
MISSING = [
    Cell("missing", "logistic", "holes", 4, 0.3, 10_000, 1.0, unknown=0.3, seed=40),
    Cell("missing", "logistic", "holes", 8, 0.0, 50_000, 1.0, unknown=0.1, seed=41),
    Cell("missing", "logistic", "holes", 6, 0.5, 50_000, 1.0, unknown=0.5, delta=1e-6, seed=42),
    Cell("missing", "linear", "holes", 4, 0.3, 50_000, 1.0, unknown=0.3, seed=43),
]
# Intervals from what other methods publish anyway, with a ridge that they follow from.
METHODS = [
    Cell("methods", "logistic", "uniform", 4, 0.3, 10_000, epsilon, delta, ridge=0.01, seed=50, method=method)
    for method in ("adaptive", "output", "sequential", "curvature", "descent")
    for epsilon, delta in ((0.3, None), (2.0, None), (2.0, 1e-6))
]
METHODS += [
    Cell("methods", "logistic", "heavy", 8, 0.3, 10_000, 0.5, ridge=0.001, seed=51, method="adaptive"),
    Cell("methods", "logistic", "skewed", 8, 0.3, 10_000, 2.0, ridge=0.001, seed=52, method="adaptive"),
]
CELLS = [*_grid(), *FRESH, *BROKEN, *BESIDE, *MISSING, *METHODS]
# Where planted bugs must be found: a cell whose intervals are measured, with a ridge that counts; and one in which
# columns go together, so that what the matrix's noise hides decides. There the least curvature is half of a
# deviation of its noise, and many times the ridge: who takes noise for curvature is wrong by as much.
PLANTED = [
    Cell("planted", "logistic", "uniform", 3, 0.6, 30_000, 1.0, ridge=0.02, seed=30),
    Cell("planted", "logistic", "uniform", 2, 0.98, 1000, 10.0, seed=33),
    Cell("planted", "logistic", "uniform", 2, 0.9, 200, 6.0, seed=34),
]
