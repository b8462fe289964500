"""What the declared domain says of each column: its range, and which columns encode one category."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epsteps.problem.domain import Ball, Box
from epsteps.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a problem, without the intercept's: u = centre + half z, with z in ``domain``.

    Columns of a category are not shifted, and their half is 1; ``numeric`` lists the others.
    """

    domain: Ball | Box
    centre: np.ndarray
    half: np.ndarray

    @property
    def d(self) -> int:
        """Number of columns."""
        return len(self.centre)

    @property
    def categories(self) -> tuple[tuple[int, int], ...]:
        """Ranges of columns that encode one category each."""
        return self.domain.one_hot if isinstance(self.domain, Box) else ()

    @cached_property
    def numeric(self) -> np.ndarray:
        """The columns outside of categories."""
        marks = np.ones(self.d, dtype=bool)
        for start, stop in self.categories:
            marks[start:stop] = False
        return np.flatnonzero(marks)

    @property
    def largest_variance(self) -> float:
        """No direction of length 1 has a larger variance than this."""
        return float(np.sum(self.half**2))

    @property
    def squares(self) -> Ball | Box:
        """A set that holds what is released of the squares: z² of a ball's columns, 2z² - 1 of a box's."""
        return Ball(1, norm=1) if isinstance(self.domain, Ball) else Box(-1, 1)


def columns_of(problem: Problem) -> Columns:
    """Return the columns of a problem; refuse a domain that is neither a ball nor a box."""
    d, domain = problem.d, problem.domain
    if isinstance(domain, Ball) and domain.norm != np.inf:
        return Columns(Ball(1, norm=domain.norm), np.zeros(d), np.full(d, domain.radius))
    if isinstance(domain, Ball):
        return Columns(Box(-1, 1), np.zeros(d), np.full(d, domain.radius))
    if not isinstance(domain, Box):
        raise TypeError(f"the curvature method is written for a Ball or a Box, got the domain {domain!r}.")
    low, high = (np.array(np.broadcast_to(ends, d), dtype=float) for ends in (domain.low, domain.high))
    centre, half = (low + high) / 2, (high - low) / 2
    for start, stop in domain.one_hot:
        centre[start:stop], half[start:stop] = 0.0, 1.0
    return Columns(Box(-1, 1, one_hot=domain.one_hot), centre, half)
