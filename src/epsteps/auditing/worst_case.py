"""Two records whose gradients differ as much as the declared sensitivity allows, and a public point where they do."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from epsteps.planning import Plan
from epsteps.problem import Problem

# Records lean by this share of their size toward the point, whose margin is then as large as slopes need to saturate.
_TILT = 2.0**-8
_MARGIN = 16.0
_FAR = 1e6  # a vector of this length is projected to the domain's end in its direction


@dataclass(frozen=True, eq=False)
class Pair:
    """Two records at a point x: ``gradients`` holds one loss gradient in each column.

    ``share`` is their distance over the sensitivity that the plan's noise is scaled for.
    """

    x: np.ndarray
    features: np.ndarray
    targets: np.ndarray
    gradients: np.ndarray
    share: float

    @property
    def difference(self) -> np.ndarray:
        """What replacing the first record by the second adds to a sum of gradients."""
        return self.gradients[:, 1] - self.gradients[:, 0]

    def groups(self) -> list[np.ndarray]:
        """Return the coordinates that move, those together that move by the same amount."""
        size = np.abs(self.difference)
        level = np.rint(1000 * size / size.max())
        return [np.flatnonzero(level == value) for value in np.unique(level) if value > 0]


def worst_pair(plan: Plan) -> Pair:
    """Return the pair with the largest share among the extreme records of the domain, at 0 and at far points.

    At a far point x both records may have a saturated slope although they point away from each other: they are
    (1 - t) s + t q and -(1 - t) s + t q, with s orthogonal to q and x along q. Nearly all of the sensitivity is
    attained for losses with a bounded slope in two dimensions or more.
    """
    best: Pair | None = None
    for x, features in _candidates(plan.problem):
        for pair in _pairs(plan, x, features):
            # The first of equals: it spreads its difference over more coordinates.
            if best is None or pair.share > best.share * (1 + 1e-3):
                best = pair
    assert best is not None  # the list of candidates is never empty
    return best


def _candidates(problem: Problem) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield points, and the extreme features that are tried at each."""
    d = problem.d
    spread, single = np.ones(d), np.eye(d)[0]
    for ahead, aside in ((spread, _first_two(d, -1.0)), (single, _first_two(d, None))):
        s, q = (problem.domain.project(_FAR * direction[None, :])[0] for direction in (ahead, aside))
        rows = [side * ((1 - _TILT) * s + lean * q) for side, lean in product((1, -1), (0, _TILT, -_TILT))]
        features = np.array([s, -s, *rows])
        far = np.zeros(problem.dimension)
        yield far, features
        if np.any(q):
            far = far.copy()
            far[:d] = _MARGIN / _TILT * q / (q @ q)
            yield far, features
        if problem.intercept:
            yield np.append(2 * _MARGIN / _TILT * s / (s @ s), 2 * _MARGIN / _TILT * (1 - _TILT / 2)), features


def _first_two(d: int, first: float | None) -> np.ndarray:
    """Return a direction orthogonal to all-ones (first = -1) or to the first axis (None); 0 in one dimension."""
    direction = np.zeros(d)
    if d > 1:
        direction[:2] = (0.0, 1.0) if first is None else (-first, first)
    return direction


def _pairs(plan: Plan, x: np.ndarray, features: np.ndarray) -> Iterator[Pair]:
    problem, norm = plan.problem, plan.mechanism.norm
    targets = _extreme_targets(problem)
    u = np.repeat(features, len(targets), axis=0)
    y = np.tile(targets, len(features))
    rows = np.column_stack([u, np.ones(len(u))]) if problem.intercept else u
    gradients = rows * problem.loss.derivative(rows @ x, problem.loss.encode(y))[:, None]
    declared = problem.sensitivity_at(x, norm) if plan.sensitivity == "state" else problem.sensitivity(norm)
    for i, j in combinations(range(len(u)), 2):
        moved = float(np.linalg.norm(gradients[i] - gradients[j], ord=norm))
        if moved > 0:
            yield Pair(x, u[[i, j]], y[[i, j]], gradients[[i, j]].T, moved / float(declared))


def _extreme_targets(problem: Problem) -> np.ndarray:
    """Return the targets at the ends of what the loss declares."""
    classes = getattr(problem.loss, "classes", None)
    if classes is not None:
        return np.array(classes)
    bound = getattr(problem.loss, "bound", 1.0)
    return np.array([-bound, bound])
