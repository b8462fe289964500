"""Private records: projected into the declared domain on construction, so that sensitivity is a postcondition."""

from collections.abc import Iterator, Sequence
from copy import copy
from operator import methodcaller
from os import PathLike
from typing import Any

import numpy as np

from epsteps.data import engine as engines
from epsteps.data import sources
from epsteps.data.chunks import Term
from epsteps.data.engine import Engine
from epsteps.data.sources import Check, Records
from epsteps.problem.grid import STEPS, Grid, Points
from epsteps.problem.problem import Problem
from epsteps.problem.validate import choice


class Rows:
    """The records of a problem, every one projected into its domain.

    A record's values never raise: a row outside the domain is moved to it, NaN and missing values become 0, an unknown
    label the first class. Shapes, types, names of columns and files are structure, and do raise. Python's lists and
    arrays of objects declare no type: their cells are converted one by one, and what is no number is missing. Nothing
    that is passed is written to; entries of a sparse matrix that share a place are added up.

    Records may be larger than memory: memory maps and files of more than 2^24 numbers are read in blocks at every step,
    with a working set of a few hundred megabytes however many there are. Their blocks are projected and rounded every
    time, unless ``cache`` names a folder where the result may be kept. The files must not change meanwhile. Sparse
    records are never made dense. Private sums are the same integers wherever the records come from.

    Parameters
    ----------
    problem : Problem
        The public facts that the records must fit.
    X : array of shape (n, d), sparse matrix, or path
        Features: anything NumPy takes for an array, a memory map (``np.load(path, mmap_mode="r")``), a sparse matrix of
        SciPy, the path of a ``.npy`` file, or of a ``.parquet`` file or a folder of such files, read in the order of
        their names (``epsteps[parquet]``).
    y : array of shape (n,), path, or name
        Labels or targets: an array, the path of a ``.npy`` file, or the name of a column where X is Parquet.
    engine : "auto", "numpy", "fast", "gpu" or "dask"
        What computes gradients: NumPy, kernels compiled by numba (``epsteps[fast]``), a card (``epsteps[gpu]``), or
        dask workers that read and keep the records (``epsteps[dask]``; X is then a Parquet path, a dask array or a dask
        dataframe). "auto" takes the kernels for large records where numba is installed. Sparse records are computed
        with SciPy: "auto" or "numpy". The kernels know the logistic and the squared loss: "fast" leaves others, and
        clipped gradients, to NumPy, as "gpu" does with the slopes of others; losses with several outputs are not for
        "fast".
    scheduler : str or distributed.Client, optional
        Address of an existing dask cluster, ``"tcp://..."``; without it workers are started on this machine.
    columns : sequence of str, optional
        The feature columns of a Parquet file, in this order; by default all but the target, in the file's order.
    cache : path, optional
        Folder in which prepared records may be kept in a file, where they are read in blocks: private runs write it in
        their first pass, before anything is charged, and read it in all others, several times as fast. It takes 4 bytes
        for each number and each target, and is best in a folder that is not memory itself. Whoever reads this file
        reads the records: choose a disk that is as well protected as theirs (and encrypted, if that is). The file is
        its owner's alone, has no name, and is gone after ``close``, or when the Rows or the process are.
    validate : bool
        Raise if any record would be projected. The error tells something about the records: it is for the
        data holder's own eyes.
    """

    def __init__(
        self,
        problem: Problem,
        X: Any,
        y: Any,
        *,
        engine: str = "auto",
        columns: Sequence[str] | None = None,
        scheduler: Any = None,
        cache: str | PathLike[str] | None = None,
        validate: bool = False,
    ) -> None:
        choice("engine", engine, engines.names())
        self.problem = problem
        self._records = sources.open_records(problem, X, y, columns, engine, scheduler, cache)
        # All that was opened for losses of these targets, clipped or not: Rows of other problems share it.
        self._opened: list[tuple[Problem, Records]] = [(problem, self._records)]
        if validate and (counts := self._records.check()).any:
            raise ValueError(f"validate=True, and records are outside the declared domain: {counts}.")

    @property
    def _engine(self) -> Engine:
        return self._records.engine()

    def __repr__(self) -> str:
        return f"Rows({self.problem!r})"

    def restated(self, problem: Problem) -> "Rows":
        """Return the same records under another problem about them: another loss of the same targets, or ridge.

        What was prepared for the same loss and clip is used again, and is kept as long as any of these Rows; dask
        workers are the same for all of them. ``close`` closes all of them.
        """
        if problem == self.problem:
            return self
        if not problem.same_records(self.problem):
            raise ValueError(f"the records are for {self.problem}: they cannot be read as {problem}.")
        other = copy(self)
        other.problem, other._records = problem, self._records_of(problem)
        return other

    def _records_of(self, problem: Problem) -> Records:
        for known, records in self._opened:
            if (known.loss, known.clip) == (problem.loss, problem.clip):
                return records
        self._opened.append((problem, self._records.restated(problem)))
        return self._opened[-1][1]

    def gradient(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact, UNPROTECTED gradient of F at x (or each column of x): for the loop, tests and benchmarks.

        ``rows`` restricts the mean to these records, as a step with a batch does.
        """
        x = self._points(x)
        return self._engine.mean_gradient(x, rows) + self.problem.ridge * x

    def descent(self, size: int) -> Engine | None:
        """Return the engine if it runs whole UNPROTECTED descents with so many records per step: for experiments."""
        return self._engine if self._engine.descends(size) else None

    def value(self, x: np.ndarray) -> np.ndarray:
        """Return the exact, UNPROTECTED F at x (or at each column of x): not private, for experiments only."""
        x = self._points(x)
        return self._engine.mean_loss(x) + 0.5 * self.problem.ridge * np.sum(x**2, axis=0)

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the exact, UNPROTECTED Hessian of F at one point x: for solvers inside a release, and experiments.

        It is that of the losses, whether gradients are clipped or not.
        """
        x = self._points(x)
        if x.ndim != 1:
            raise ValueError(f"x must be one point for a Hessian, got shape {x.shape}.")
        return self._engine.hessian(x) + self.problem.ridge * np.eye(len(x))

    def second_moment(self) -> np.ndarray:
        """Return the UNPROTECTED mean of u u' over the records, from exact sums: for releases that add noise to it."""
        moment = self._engine.total(methodcaller("moment")).astype(float)
        units = Grid(self.problem).units[: len(moment)] / STEPS
        return moment * np.outer(units, units) / self.problem.n

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all records, UNPROTECTED, in a fixed order, as private sums read them: for tests and audits.

        Each block has features in float64, inside the domain, on its grid and with the intercept's column, and encoded
        targets. Sparse records become dense block by block. Records in dask workers raise.
        """
        return self._engine.blocks()

    def total(self, term: Term, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact, UNPROTECTED sum of a term over chunks of the records, or of these rows: for the loop.

        A term takes a chunk and returns integers; wherever the records are, it is called there.
        """
        return self._engine.total(term, rows)

    def sums(self, points: Points, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the exact, UNPROTECTED sum of slope x record, in integers, at points of the grid: for the loop."""
        return self._engine.sums(points, rows)

    def expect(self, passes: int) -> None:
        """Tell the engine that about so many exact sums over all records will follow: a public number, for speed."""
        self._engine.expect(passes)

    def prepare(self) -> None:
        """Read and round the records now: what cannot be read fails here, before anything is charged."""
        self._engine.prepare()

    def close(self) -> None:
        """Let dask workers forget the records, end those that were started for them, and remove the file of a cache."""
        for _, records in self._opened:
            records.close()

    def _points(self, x: np.ndarray) -> np.ndarray:
        x = np.asarray(x, dtype=float)
        if x.ndim not in (1, 2) or len(x) != self.problem.dimension:
            raise ValueError(f"x must have length {self.problem.dimension} (or that many rows), got shape {x.shape}.")
        return x


def check(problem: Problem, X: Any, y: Any, *, columns: Sequence[str] | None = None) -> Check:
    """Count what ``Rows`` would project. It reads the data without protection: for the data holder's own eyes."""
    return sources.open_records(problem, X, y, columns).check()
