"""The problems: the paper's with fresh and correlated records, and every dataset of a folder."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.special import ndtr

import epsteps as es
from accuracy_parts.encodings import Encoding, check_norm_bound, from_names, unit_cube
from accuracy_parts.optimum import Objective, SoftmaxObjective

PAPER_RIDGE = 0.02  # twice the paper's λ = 0.01
REAL_RIDGE = 0.002  # twice λ = 0.001, fixed before any run
PAPER_RECORDS, PAPER_TESTS, PAPER_FEATURES = 100_000, 20_000, 20
CORRELATIONS = {"paper": 0.0, "paper-rho0.3": 0.3, "paper-rho0.6": 0.6, "paper-rho0.9": 0.9}


@dataclass(frozen=True, eq=False)
class Task:
    """Records to fit, records to test on, and the public facts. ``group`` is what tables call it, over data seeds."""

    group: str
    data_seed: int | None
    loss: es.Logistic | es.Squared | es.Softmax
    ridge: float
    encoding: Encoding
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @property
    def name(self) -> str:
        """The group, and the seed of the records if they were drawn."""
        return self.group if self.data_seed is None else f"{self.group}-seed{self.data_seed}"

    @property
    def n(self) -> int:
        """Number of records to fit."""
        return len(self.y)

    @property
    def d(self) -> int:
        """Number of features."""
        return self.encoding.d

    @property
    def dimension(self) -> int:
        """Number of coefficients."""
        return self.loss.outputs * self.d

    @property
    def is_classification(self) -> bool:
        """Whether targets are classes."""
        return not isinstance(self.loss, es.Squared)

    @cached_property
    def X32(self) -> np.ndarray:
        """The records in single precision, for peers that take hundreds of steps."""
        return self.X.astype(np.float32)

    @cached_property
    def norms32(self) -> np.ndarray:
        """Their Euclidean norms."""
        return np.linalg.norm(self.X32, axis=1)

    @cached_property
    def problem(self) -> es.Problem:
        """The public facts, over the box that the encoding states."""
        return self._problem(self.encoding.box())

    @cached_property
    def l1_problem(self) -> es.Problem:
        """The same over the L1 ball around that box: the paper's domain, for which Laplace noise is made."""
        return self._problem(es.Ball(self.encoding.largest(1), norm=1))

    def _problem(self, domain: "es.Box | es.Ball") -> es.Problem:
        return es.Problem(self.loss, domain, ridge=self.ridge, n=self.n, d=self.d)

    @cached_property
    def rows(self) -> es.Rows:
        """The records for the library."""
        return es.Rows(self.problem, self.X, self.y)

    @cached_property
    def l1_rows(self) -> es.Rows:
        """The records for the library, over the L1 ball, which contains them all."""
        return es.Rows(self.l1_problem, self.X, self.y)

    @cached_property
    def objective(self) -> Objective | SoftmaxObjective:
        """F, and its minimiser."""
        if isinstance(self.loss, es.Softmax):
            return SoftmaxObjective(self.rows)
        return Objective(self.loss, self.ridge, self.X, self.y)


def paper_task(group: str, data_seed: int) -> Task:
    """Return the paper's problem on fresh records: uniform features, y = sign(Xw) for a normal w.

    The features of a record are a Gaussian copula with correlations rho^|i-j|; rho = 0 is the paper's law. The same
    seed gives the same normals at every rho. On some seeds nearly all labels are equal; they stay.
    """
    rho, n = CORRELATIONS[group], PAPER_RECORDS
    rng = np.random.default_rng([data_seed, 2])
    normals = rng.standard_normal((n + PAPER_TESTS, PAPER_FEATURES))
    for j in range(1, PAPER_FEATURES):
        normals[:, j] = rho * normals[:, j - 1] + np.sqrt(1 - rho**2) * normals[:, j]
    X = ndtr(normals)
    y = np.where(X @ rng.standard_normal(PAPER_FEATURES) >= 0, 1.0, -1.0)
    cube = unit_cube(PAPER_FEATURES)
    return Task(group, data_seed, es.Logistic(), PAPER_RIDGE, cube, X[:n], y[:n], X[n:], y[n:])


def file_task(path: Path) -> Task:
    """Read a dataset; its targets are classes if they are whole numbers (stored as integers), else in [-1, 1]."""
    with np.load(path) as stored:
        X, y, X_test, y_test = (stored[key] for key in ("X_train", "y_train", "X_test", "y_test"))
        names, norm_bound = [str(name) for name in stored["feature_names"]], float(stored["x_norm_bound"])
    encoding = from_names(path.stem, names)
    check_norm_bound(encoding, norm_bound)
    loss = es.Logistic() if y.dtype.kind == "i" else es.Squared(1.0)
    arrays = (np.ascontiguousarray(array, dtype=float) for array in (X, y, X_test, y_test))
    return Task(path.stem, None, loss, REAL_RIDGE, encoding, *arrays)
