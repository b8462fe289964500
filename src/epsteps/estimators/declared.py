"""What a user declares of the records, in units in which each declared range is about 1."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from epsteps.problem.ball import Ball
from epsteps.problem.box import Box
from epsteps.problem.domain import Domain


@dataclass(frozen=True, eq=False)
class Declared:
    """The set of the scaled records ``(u - shift)/unit``, and the public numbers that scale them.

    Scaling makes the ridge mean the same for a column in metres and in kilometres. Being public and of one record at a
    time, it costs no privacy; records are projected after it.
    """

    domain: Domain
    shift: np.ndarray
    unit: np.ndarray

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def scaled(self, X: Any) -> Any:
        """Return records in scaled units, as floats; sparse ones, which are canonical, stay so."""
        if issparse(X):
            return self._scaled_sparse(csr_array(X))
        if not self.shift.any() and np.all(self.unit == 1):
            return X
        return (np.asarray(X, dtype=float) - self.shift) / self.unit

    def _scaled_sparse(self, X: csr_array) -> csr_array:
        if self.shift.any():
            raise ValueError(
                "sparse records need bounds that hold 0 in every column: pass dense records, or widen them."
            )
        return csr_array((X.data / self.unit[X.indices], X.indices, X.indptr), shape=X.shape)

    @np.errstate(all="ignore")
    def projected(self, X: Any) -> Any:
        """Return records in scaled units and inside the domain, as a fit sees them."""
        X = self.scaled(X)
        if not issparse(X):
            return self.domain.project(np.asarray(X, dtype=float))
        entries = self.domain.project_entries(X.data, X.indices, X.indptr, X.shape[1])
        return csr_array((entries, X.indices, X.indptr), shape=X.shape)


def declare(
    d: int,
    *,
    bounds: Any,
    one_hot: Sequence[Sequence[int]],
    row_norm: float | None,
    norm: float,
    domain: Domain | None,
    intercept: bool,
) -> Declared:
    """Return what was declared of d columns: one of bounds, row_norm and domain, or rows of norm 1."""
    options = {"bounds": bounds, "row_norm": row_norm, "domain": domain}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"declare one of bounds, row_norm and domain, got {' and '.join(given)}.")
    if len(one_hot) and bounds is None:
        raise ValueError(f"one_hot goes with bounds. Pass bounds=(low, high), got one_hot={one_hot!r} alone.")
    if norm != 2 and given not in ([], ["row_norm"]):
        raise ValueError(f"norm goes with row_norm, not with {given[0]}. Leave it out, got norm={norm!r}.")
    if bounds is not None:
        return _declare_box(d, bounds, one_hot, intercept)
    if domain is not None:
        domain.require(d)
        return Declared(domain, np.zeros(d), np.ones(d))
    radius = Ball(1.0 if row_norm is None else row_norm, norm=norm).radius
    return Declared(Ball(1.0, norm=norm), np.zeros(d), np.full(d, radius))


def _declare_box(d: int, bounds: Any, one_hot: Sequence[Sequence[int]], intercept: bool) -> Declared:
    """Scale each range: one that holds 0 by its larger end, so that 0 stays, and any other onto [0, 1].

    Without an intercept, which would take up the shift, all ranges are scaled by their larger end.
    """
    if not isinstance(bounds, Sequence | np.ndarray) or len(bounds) != 2:
        raise ValueError(f"bounds must be a pair (low, high) of numbers or of one number per column, got {bounds!r}.")
    box = Box(bounds[0], bounds[1], one_hot)
    box.require(d)
    low, high = (np.array(np.broadcast_to(ends, d), dtype=float) for ends in (box.low, box.high))
    free = np.ones(d, dtype=bool)
    for start, stop in box.one_hot:
        low[start:stop], high[start:stop], free[start:stop] = 0.0, 1.0, False
    apart = ((low > 0) | (high < 0)) & intercept
    shift = np.where(apart, low, 0.0)
    unit = np.where(apart, high - low, np.maximum(np.abs(low), np.abs(high)))
    return Declared(
        Box(_ends((low - shift) / unit, free), _ends(np.where(apart, 1.0, high / unit), free), box.one_hot), shift, unit
    )


def _ends(values: np.ndarray, free: np.ndarray) -> float | Sequence[float]:
    """Return one number where it holds for all columns outside one-hot blocks, which have their own."""
    found = np.unique(values[free])
    return float(found[0]) if len(found) == 1 else values.tolist()
