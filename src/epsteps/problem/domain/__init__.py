"""The public set that every record's features are projected into: the source of all sensitivities."""

from typing import Protocol

import numpy as np

from epsteps.problem.domain.ball import Ball, checked_norm
from epsteps.problem.domain.box import Box
from epsteps.problem.shapes import Body, Hull


class Domain(Protocol):
    """What the library asks of a domain. A record's values never raise: they are moved inside."""

    def require(self, d: int) -> None:
        """Raise unless records of d features can lie in the domain."""
        ...

    def units(self, d: int) -> np.ndarray:
        """Return the largest absolute value of each column."""
        ...

    def body(self, d: int) -> Body | None:
        """Return a body, in those units, that holds c u for |c| <= 1 and u in the domain; None if there is none."""
        ...

    def hull(self, d: int) -> Body | Hull | None:
        """Return the smallest such body that there is noise for."""
        ...

    def even_moments(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of each column if records were spread evenly: for predictions."""
        ...

    def size(self, norm: float, d: int) -> float:
        """Return the largest ``norm`` (1, 2 or infinity) of a record's d features."""
        ...

    def reach(self, x: np.ndarray) -> np.ndarray:
        """Return sup |u'x| over the domain, for each column of x."""
        ...

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return finite rows inside the domain; NaN counts as 0."""
        ...

    def project_entries(self, entries: np.ndarray, columns: np.ndarray, starts: np.ndarray, d: int) -> np.ndarray:
        """Return what ``project`` does to sparse rows, of which row i holds entries[starts[i]:starts[i+1]]."""
        ...

    def integers(self, rows: np.ndarray, steps: int) -> np.ndarray:
        """Return the projected rows in units of 1/steps of each column's largest value, exactly inside the domain."""
        ...

    def integer_entries(
        self, entries: np.ndarray, columns: np.ndarray, starts: np.ndarray, d: int, steps: int
    ) -> np.ndarray:
        """Return what ``integers`` does to sparse rows."""
        ...

    def outside(self, rows: np.ndarray) -> np.ndarray:
        """Mark the rows that ``project`` would move. Reads data: for its holder's eyes."""
        ...

    def outside_entries(self, entries: np.ndarray, columns: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Mark the sparse rows that ``project_entries`` would move. Reads data: for its holder's eyes."""
        ...


__all__ = ["Ball", "Box", "Domain", "checked_norm"]
