"""The data holder's own look: how many values would be projected; and what structure must be like."""

from dataclasses import astuple, dataclass

import numpy as np

from epsteps.data import values
from epsteps.problem.problem import Problem


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
        return any(astuple(self))

    def __add__(self, other: "Check") -> "Check":
        return Check(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        return (
            f"{self.rows_outside} rows outside the domain ({self.not_a_number} values are NaN, {self.infinite} "
            f"infinite), {self.targets_outside} targets outside those declared"
        )


@np.errstate(all="ignore")  # a warning would tell something about a record
def count(problem: Problem, features: np.ndarray, targets: np.ndarray) -> Check:
    """Count what would be projected of these records."""
    features = values.matrix(features)
    return Check(
        rows_outside=int(problem.domain.outside(features).sum()),
        not_a_number=int(np.isnan(features).sum()),
        infinite=int(np.isinf(features).sum()),
        targets_outside=problem.loss.outside(targets),
    )


def require_features(problem: Problem, shape: tuple[int, ...], kind: np.dtype) -> None:
    """Raise unless features are numbers in the declared shape."""
    if kind.kind not in "biuf":
        raise TypeError(f"X must be numeric, got dtype {kind}. Encode text columns before.")
    if shape != (problem.n, problem.d):
        raise ValueError(f"X must have the problem's shape (n, d) = ({problem.n}, {problem.d}), got {shape}.")


def require_targets(problem: Problem, shape: tuple[int, ...], kind: np.dtype) -> None:
    """Raise unless targets have the declared shape and a kind that the loss takes."""
    if shape != (problem.n,):
        raise ValueError(f"y must have the problem's shape (n,) = ({problem.n},), got {shape}.")
    problem.loss.encode(np.empty(0, dtype=kind))
