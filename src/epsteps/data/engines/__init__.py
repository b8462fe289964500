"""Engines: one gradient oracle each; the plan, the loop, the noise and the guarantee do not depend on which.

An engine comes as a pair: float means for experiments and solvers that nobody calls private, and exact integer sums,
which private runs are made of.
"""

from importlib.util import find_spec
from typing import Protocol

import numpy as np
from scipy.sparse import csr_array

from epsteps.data.engines import encoding, selftest
from epsteps.data.engines.dense import DenseEngine
from epsteps.data.engines.dense_sums import DenseSums
from epsteps.data.engines.fast import FastEngine, FastSums
from epsteps.data.engines.gpu import TorchEngine, TorchSums
from epsteps.data.engines.sparse import SparseEngine, SparseSums, sums_of_dense
from epsteps.data.engines.stream import Reader, StreamEngine, StreamSums
from epsteps.problem.grid import Grid, Points
from epsteps.problem.losses import Loss
from epsteps.problem.problem import Problem

NAMES = ("auto", "numpy", "fast", "gpu", "dask")
# The modules of the last one import torch when an engine is made, not before.
_ENGINES = {"numpy": (DenseEngine, DenseSums), "fast": (FastEngine, FastSums), "gpu": (TorchEngine, TorchSums)}
# Numbers in the records from which compiled kernels are worth the seconds that compiling them takes once.
_WORTH_COMPILING = 1_000_000


class Engine(Protocol):
    """Float means. ``x`` is a vector, or a matrix with one point per column.

    A loss with several outputs has one block of coefficients for each, below each other in x.
    """

    def mean_gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the mean loss gradient over all records, or over these rows; each clipped, if that is declared."""
        ...

    def mean_loss(self, x: np.ndarray) -> np.ndarray:
        """Return the mean loss over all records."""
        ...

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the mean Hessian of the loss over all records, at one point."""
        ...


class Sums(Protocol):
    """Exact sums over records on a grid: int64, or Python's integers where 64 bits could overflow."""

    def gradient(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the sum of slope x record over all records, or over these rows; one column per point."""
        ...

    def second_moment(self) -> np.ndarray:
        """Return the sum of u u' over all records."""
        ...


def require_outputs(name: str, loss: Loss) -> None:
    """Raise if the named engine does not compute a loss with so many margins per record."""
    if loss.outputs > 1 and name in ("fast", "gpu"):
        raise ValueError(
            f"engine={name!r} computes one margin per record, {type(loss).__name__} has {loss.outputs}. "
            "Use engine='auto' or 'numpy'."
        )


def chosen(name: str, loss: Loss, numbers: int) -> str:
    """Return the engine that a name stands for.

    "auto" is the compiled one for many numbers, where numba is there and the loss has one margin per record.
    """
    require_outputs(name, loss)
    if name != "auto":
        return name
    worth = loss.outputs == 1 and numbers >= _WORTH_COMPILING
    return "fast" if worth and find_spec("numba") is not None else "numpy"


def make_engine(name: str, problem: Problem, X: np.ndarray, targets: np.ndarray) -> Engine:
    """Return the named engine's float means over raw features and numeric targets."""
    make, _ = _ENGINES[chosen(name, problem.loss, X.size)]
    return make(problem.loss, encoding.projected(problem, X), targets, clip=problem.clip)


def make_sums(name: str, problem: Problem, X: np.ndarray, targets: np.ndarray) -> Sums:
    """Return the named engine's exact sums over raw features and numeric targets, once it has passed its test."""
    name = chosen(name, problem.loss, X.size)
    _, make = _ENGINES[name]
    selftest.require_exact(make, name)
    return make(Grid(problem), encoding.integers(problem, X), targets)


def make_stream_engine(name: str, problem: Problem, reader: Reader) -> Engine:
    """Return the named engine's float means over records that are read in blocks."""
    make, _ = _ENGINES[chosen(name, problem.loss, problem.n * problem.d)]

    def build(features: np.ndarray, targets: np.ndarray) -> Engine:
        encoded = problem.loss.encode(targets)
        return make(problem.loss, encoding.projected(problem, features), encoded, clip=problem.clip)

    return StreamEngine(build, reader)


def make_stream_sums(name: str, problem: Problem, reader: Reader) -> Sums:
    """Return the named engine's exact sums over records that are read in blocks, once it has passed its test."""
    name = chosen(name, problem.loss, problem.n * problem.d)
    _, make = _ENGINES[name]
    selftest.require_exact(make, name)
    grid = Grid(problem)

    def build(features: np.ndarray, targets: np.ndarray) -> Sums:
        return make(grid, encoding.integers(problem, features), problem.loss.encode(targets))

    return StreamSums(build, reader)


def make_sparse_engine(problem: Problem, X: csr_array, targets: np.ndarray) -> Engine:
    """Return float means over raw sparse features and numeric targets."""
    features = encoding.projected_sparse(problem, X)
    return SparseEngine(problem.loss, features, targets, intercept=problem.intercept, clip=problem.clip)


def make_sparse_sums(problem: Problem, X: csr_array, targets: np.ndarray) -> Sums:
    """Return exact sums over raw sparse features and numeric targets, once they have passed their test."""
    selftest.require_exact(sums_of_dense, "sparse")
    return SparseSums(Grid(problem), encoding.integers_sparse(problem, X), targets)


__all__ = [
    "NAMES",
    "DenseEngine",
    "DenseSums",
    "Engine",
    "FastEngine",
    "Sums",
    "chosen",
    "make_engine",
    "make_sparse_engine",
    "make_sparse_sums",
    "make_stream_engine",
    "make_stream_sums",
    "make_sums",
    "require_outputs",
]
