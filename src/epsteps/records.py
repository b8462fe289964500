"""Private records: projected into the declared domain on construction, so that sensitivity is a postcondition."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from epsteps import _validate, engines
from epsteps.engines import Engine, Sums
from epsteps.grid import Points
from epsteps.problem import Problem


class Rows:
    """The records of a problem, every one projected into its domain.

    A record's values never raise: a row outside the domain is moved to it, NaN becomes 0, an unknown label the
    first class. Shapes and types are structure, and do raise.

    Parameters
    ----------
    problem : Problem
        The public facts that the records must fit.
    X : array of shape (n, d)
        Features.
    y : array of shape (n,)
        Labels or targets.
    engine : "auto", "numpy" or "fast"
        What computes gradients: NumPy, or kernels compiled by numba (``epsteps[fast]``); "auto" takes the latter for
        large records where numba is installed.
    validate : bool
        Raise if any record would be projected. The error tells something about the records: it is for the
        data holder's own eyes.
    """

    def __init__(self, problem: Problem, X: Any, y: Any, *, engine: str = "auto", validate: bool = False) -> None:
        _validate.choice("engine", engine, engines.NAMES)
        features, targets = _arrays(problem, X, y)
        if validate and (found := check(problem, X, y)).any:
            raise ValueError(f"validate=True, and records are outside the declared domain: {found}.")
        self.problem = problem
        self._name, self._records = engine, (features, problem.loss.encode(targets))

    @cached_property
    def _engine(self) -> Engine:
        return engines.make_engine(self._name, self.problem, *self._records)

    @cached_property
    def _sums(self) -> Sums:
        return engines.make_sums(self._name, self.problem, *self._records)

    def __repr__(self) -> str:
        return f"Rows({self.problem!r})"

    def gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact, UNPROTECTED gradient of F at x (or each column of x): for the loop, tests and benchmarks.

        ``rows`` restricts the mean to these records, as a step with a batch does.
        """
        x = self._points(x)
        return self._engine.mean_gradient(x, rows) + self.problem.ridge * x

    def value(self, x: np.ndarray) -> np.ndarray:
        """Return the exact, UNPROTECTED F at x (or at each column of x): not private, for experiments only."""
        x = self._points(x)
        return self._engine.mean_loss(x) + 0.5 * self.problem.ridge * np.sum(x**2, axis=0)

    def second_moment(self) -> np.ndarray:
        """Return the exact, UNPROTECTED mean of u u' over the records: for releases that add noise to it, and tests."""
        return self._engine.second_moment()

    def sums(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact, UNPROTECTED sum of slope x record, in integers, at points of the grid: for the loop."""
        return self._sums.gradient(points, rows)

    def _points(self, x: np.ndarray) -> np.ndarray:
        x = np.asarray(x, dtype=float)
        if x.ndim not in (1, 2) or len(x) != self.problem.dimension:
            raise ValueError(f"x must have length {self.problem.dimension} (or that many rows), got shape {x.shape}.")
        return x


@dataclass(frozen=True)
class Check:
    """What would be projected: counts of a data holder's own look at the records, not for publication."""

    rows_outside: int
    not_a_number: int
    infinite: int
    targets_outside: int

    @property
    def any(self) -> bool:
        """Whether any record would be changed."""
        return any((self.rows_outside, self.not_a_number, self.infinite, self.targets_outside))

    def __str__(self) -> str:
        return (
            f"{self.rows_outside} rows outside the domain ({self.not_a_number} values are NaN, {self.infinite} "
            f"infinite), {self.targets_outside} targets outside those declared"
        )


def check(problem: Problem, X: Any, y: Any) -> Check:
    """Count what ``Rows`` would project. It reads the data without protection: for the data holder's own eyes."""
    features, targets = _arrays(problem, X, y)
    return Check(
        rows_outside=int(problem.domain.outside(features).sum()),
        not_a_number=int(np.isnan(features).sum()),
        infinite=int(np.isinf(features).sum()),
        targets_outside=problem.loss.outside(targets),
    )


def _arrays(problem: Problem, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return features and targets as arrays of the declared shape, or raise."""
    if hasattr(X, "toarray"):
        raise TypeError(f"X must be a dense array, got the sparse {type(X).__name__}. Use X.toarray().")
    features, targets = np.asarray(X), np.asarray(y)
    if features.dtype.kind not in "biuf":
        raise TypeError(f"X must be numeric, got dtype {features.dtype}. Encode text columns before.")
    if features.shape != (problem.n, problem.d):
        raise ValueError(f"X must have the problem's shape (n, d) = ({problem.n}, {problem.d}), got {features.shape}.")
    if targets.shape != (problem.n,):
        raise ValueError(f"y must have the problem's shape (n,) = ({problem.n},), got {targets.shape}.")
    return features, targets
