"""Gradients over records that dask workers hold: points go to them, sums come back."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from epsteps.data.engines.cluster import parts
from epsteps.data.engines.cluster.parts import Partition, Parts
from epsteps.problem import grid
from epsteps.problem.grid import Points
from epsteps.problem.problem import Problem


class ClusterEngine:
    """Float means over partitions of the records that dask workers hold.

    ``engine`` is what computes in a worker. ``keep`` is an object that lives as long as this one does.
    """

    def __init__(
        self, problem: Problem, partitions: Sequence[Partition], engine: str, client: Any, keep: object = None
    ) -> None:
        self._parts = Parts(problem, partitions, parts.make_means, engine, client)
        self._n, self._keep = problem.n, keep

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; one per column of x."""
        return self._mean("mean_gradient", (x,), rows)

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records; one per column of x."""
        return self._mean("mean_loss", (x,))

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the mean Hessian of the loss over all records, at one point."""
        return self._mean("hessian", (x,))

    def close(self) -> None:
        """Let the workers forget these records."""
        self._parts.close()

    def _mean(self, what: str, arguments: tuple, rows: np.ndarray | None = None) -> np.ndarray:
        answer = partial(parts.weighted_mean, what)
        return self._parts.ask(answer, parts.add, arguments, rows) / (self._n if rows is None else len(rows))


class ClusterSums:
    """Exact sums over partitions of the records that dask workers hold: the same integers however they are divided.

    ``engine`` and ``keep`` are as in ``ClusterEngine``.
    """

    def __init__(
        self, problem: Problem, partitions: Sequence[Partition], engine: str, client: Any, keep: object = None
    ) -> None:
        self._parts = Parts(problem, partitions, parts.make_sums, engine, client)
        self._keep = keep

    def gradient(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the sum of slope x record over all records, or over these rows, for each point: integers."""
        return self._sum("gradient", (points,), rows)

    def second_moment(self) -> np.ndarray:
        """Return the sum of u u' over all records: integers."""
        return self._sum("second_moment", ())

    def close(self) -> None:
        """Let the workers forget these records."""
        self._parts.close()

    def _sum(self, what: str, arguments: tuple, rows: np.ndarray | None = None) -> np.ndarray:
        return self._parts.ask(partial(parts.exact_sum, what), grid.total, arguments, rows)
