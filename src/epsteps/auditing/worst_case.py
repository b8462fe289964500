"""Records at the ends of a domain, and the two of them that a release tells apart best.

Of gradients, those that differ as much as the declared sensitivity allows, with a public point where they do.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from typing import NamedTuple

import numpy as np
from scipy.linalg import hadamard

from epsteps.budgets.mechanisms import Mechanism
from epsteps.data.chunks import Chunk
from epsteps.methods import StepsPlan
from epsteps.methods.minimum import Minimised
from epsteps.problem.grid import STEPS
from epsteps.problem.problem import Problem

# Records lean by this share of their size toward another, so that a point can have large margins with both.
_TILT = 2.0**-8
_MARGIN = 16.0
_FAR = 1e6  # a vector of this length is projected to the domain's end in its direction
_DIRECTIONS = 64


@dataclass(frozen=True)
class Stated:
    """Gradients of a problem with this noise, scaled for the point itself ("state") or for every point ("global")."""

    problem: Problem
    mechanism: Mechanism
    sensitivity: str


# What releases gradients: a plan of steps states the same.
Noised = Stated | StepsPlan


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
        """Return the coordinates that move, those together that move by nearly the same amount."""
        size = np.abs(self.difference)
        level = np.rint(40 * size / size.max())
        return [np.flatnonzero(level == value) for value in np.unique(level) if value > 0]


def noise_norm(mechanism: Mechanism, problem: Problem, moved: np.ndarray) -> np.ndarray:
    """Return the norm of the mechanism's noise, of a vector or of each column, in real units."""
    return mechanism.shape(problem).gauge(moved / mechanism.units(problem).reshape(-1, *[1] * (moved.ndim - 1)))


def worst_pair(plan: Noised) -> Pair:
    """Return the pair with the largest share among extreme records of the domain, at 0 and at far points.

    At a far point both records may have a saturated slope although they point away from each other: it is the shortest
    x with the wanted margins. Where they are exactly opposite, one of them leans aside a little. Nearly all of the
    sensitivity is attained for losses with a bounded slope in two dimensions or more.
    """
    best, most = None, _largest(plan)
    for x, features, targets in _candidates(plan.problem):
        pair = _pair(plan, x, features, targets)
        # The first of equals: it spreads its difference over more coordinates.
        if pair is not None and (best is None or pair.share > best.share * (1 + 1e-3)):
            best = pair
            if noise_norm(plan.mechanism, plan.problem, pair.difference) * (1 + 1e-3) >= most:
                break  # the search takes a while
    assert best is not None  # the list of candidates is never empty
    return best


def _largest(plan: Noised) -> float:
    """Return what no pair exceeds, found without the declared sensitivity; infinite where that is not known."""
    problem = plan.problem
    if problem.loss.outputs > 1 or problem.clip is not None or not np.isfinite(problem.loss.slope):
        return np.inf
    rows = with_intercept(problem, extreme_features(problem)).T
    return 2 * problem.loss.slope * float(noise_norm(plan.mechanism, problem, rows).max())


def extreme_features(problem: Problem) -> np.ndarray:
    """Return records at the ends of the domain, in several directions."""
    d = problem.d
    ones, axes = np.ones(d), np.eye(d)[sorted({0, min(1, d - 1), d - 1})]
    alternating = np.where(np.arange(d) % 2 == 0, 1.0, -1.0)
    turned = np.where(np.arange(d) == 0, 1.0, np.where(np.arange(d) == 1, -1.0, 0.0))
    lone = np.where(np.arange(d) == 0, -1.0, 1.0)
    directions = np.array([ones, alternating, lone, turned, *axes])
    rows = problem.domain.project(_FAR * np.concatenate([directions, -directions]))
    _, first = np.unique(np.round(rows, 9), axis=0, return_index=True)
    rows = rows[np.sort(first)]
    return rows[np.any(rows != 0, axis=1)] if np.any(rows) else rows


def _candidates(problem: Problem) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield points, with two records each."""
    ends = extreme_features(problem)
    labels = extreme_targets(problem)
    for i, j in combinations_with_replacement(range(len(ends)), 2):
        far = [
            (far_point(problem, pair, _MARGIN * np.array(signs)), pair)
            for pair in _leaning(problem, ends, i, j)
            for signs in ((-1, -1), (-1, 1), (1, -1), (1, 1))
        ]
        for targets in product(labels, repeat=2):
            yield np.zeros(problem.dimension), ends[[i, j]], np.array(targets)
            for x, pair in far:
                yield x, pair, np.array(targets)


def _leaning(problem: Problem, ends: np.ndarray, i: int, j: int) -> Iterator[np.ndarray]:
    """Yield the pair, or, where it lies on a line, with one of them leaning toward some other records."""
    if _independent(problem, ends[[i, j]]):
        yield ends[[i, j]]
        return
    others = [k for k in range(len(ends)) if k not in (i, j) and _independent(problem, ends[[i, k]])]
    for k in others[:3]:
        yield np.array([ends[i], (1 - _TILT) * ends[j] + _TILT * ends[k]])
        yield (1 - _TILT) * ends[[i, j]] + _TILT * ends[k]


def _independent(problem: Problem, pair: np.ndarray) -> bool:
    return bool(np.linalg.svd(with_intercept(problem, pair), compute_uv=False).min() > 1e-6 * np.abs(pair).max())


def with_intercept(problem: Problem, features: np.ndarray) -> np.ndarray:
    """Return records with the intercept's column, if there is one."""
    return np.column_stack([features, np.ones(len(features))]) if problem.intercept else features


def far_point(problem: Problem, pair: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """Return the shortest x with these margins; of several classes, the first two differ by them."""
    x = np.linalg.pinv(with_intercept(problem, pair), rcond=1e-9) @ margins
    if problem.loss.outputs == 1:
        return x
    return np.concatenate([-x, x, np.zeros((problem.loss.outputs - 2) * len(x))])


def record_gradients(problem: Problem, x: np.ndarray, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the gradient of each record's loss at x, one in each column; clipped if the problem says so."""
    return loss_gradients(problem, x, with_intercept(problem, features), problem.loss.encode(targets))


def loss_gradients(
    problem: Problem, x: np.ndarray, rows: np.ndarray, targets: np.ndarray, caps: np.ndarray | None = None
) -> np.ndarray:
    """Return the same of records as an engine has them: with the intercept's column, and encoded targets.

    With ``caps``, slopes are held at each record's own.
    """
    loss, margins = problem.loss, rows @ x.reshape(problem.loss.outputs, problem.width).T
    if loss.outputs == 1:
        slopes = loss.derivative(margins[:, 0], targets, *_own(caps))[:, None]
    else:
        slopes = loss.derivative(margins, targets[:, None], *_own(caps, columns=True))
    gradients = np.einsum("nk,nj->kjn", slopes, rows).reshape(problem.dimension, len(rows))
    if problem.clip is not None:
        gradients = gradients * np.minimum(1, problem.clip / np.maximum(np.linalg.norm(gradients, axis=0), 1e-300))
    return gradients


def _own(caps: np.ndarray | None, *, columns: bool = False) -> tuple[np.ndarray, ...]:
    """Return the caps of records as a loss takes them, or nothing."""
    return () if caps is None else (caps[:, None] if columns else caps,)


def loss_hessian(
    problem: Problem,
    x: np.ndarray,
    rows: np.ndarray,
    targets: np.ndarray,
    counts: np.ndarray | float = 1.0,
    caps: np.ndarray | None = None,
) -> np.ndarray:
    """Return the sum of the second derivatives of their losses at x, each record counted so many times."""
    loss, margins = problem.loss, rows @ x.reshape(problem.loss.outputs, problem.width).T
    if loss.outputs == 1:
        return (rows.T * (counts * loss.second(margins[:, 0], targets, *_own(caps)))) @ rows
    bends = np.reshape(counts, (-1, 1, 1)) * loss.second(margins, targets[:, None], *_own(caps, columns=True))
    return np.einsum("nab,ni,nj->aibj", bends, rows, rows).reshape((problem.dimension,) * 2)


class Counted(NamedTuple):
    """What records count in the sum that is minimised, as they are in it, and what their slopes are held at, if so."""

    weights: np.ndarray | float
    rows: np.ndarray
    caps: np.ndarray | None


def counted(objective: Minimised, rows: np.ndarray) -> Counted:
    """Return what records count in the sum that is minimised, and the records as they are in it: maybe shortened."""
    measure = objective.measure
    if measure is None:
        return Counted(1.0, rows, None)
    integers = np.rint(rows * (STEPS / objective.problem.units[: rows.shape[1]]))
    sums = Chunk(integers, np.zeros(len(rows))).row_sums(measure.factors, measure.most, measure.norm)
    weights, shortening, caps = measure.shares(sums)
    return Counted(weights / objective.mean, rows * shortening[:, None], caps)


def _pair(plan: Noised, x: np.ndarray, features: np.ndarray, targets: np.ndarray) -> Pair | None:
    problem, norm = plan.problem, plan.mechanism.norm
    gradients = record_gradients(problem, x, features, targets)
    moved = float(noise_norm(plan.mechanism, problem, gradients[:, 1] - gradients[:, 0]))
    if moved == 0:
        return None
    declared = problem.sensitivity_at(x, norm) if plan.sensitivity == "state" else problem.sensitivity(norm)
    return Pair(x, features, targets, gradients, moved / float(declared))


def extreme_targets(problem: Problem) -> np.ndarray:
    """Return the two targets at the ends of what the loss declares."""
    return problem.loss.targets.extremes[:2]


def records_of(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return records at ends of the domain and in its middle, each with the targets at their ends.

    The signs of their features are Walsh's functions, and steps from one side to the other: some two of them are
    opposite, and some two nearly at right angles.
    """
    d = problem.d
    size = 1 << max(d - 1, 1).bit_length()
    walsh = hadamard(size)[:_DIRECTIONS, :d]
    cuts = np.unique(np.linspace(0, d, min(d, _DIRECTIONS) + 1).astype(int))
    steps = np.where(np.arange(d)[None, :] < cuts[:, None], -1, 1)
    rows = problem.domain.project(_FAR * np.concatenate([walsh, -walsh, steps, -steps]).astype(float))
    middle = problem.domain.even_moments(d)[0][None, :]
    features = problem.domain.project(np.concatenate([extreme_features(problem), rows, middle]))
    features = np.unique(features, axis=0)
    targets = extreme_targets(problem)
    return np.repeat(features, len(targets), axis=0), np.tile(targets, len(features))


def widest_vectors(vectors: np.ndarray, norm: Callable[[np.ndarray], np.ndarray]) -> tuple[list[int], float]:
    """Return the places of two rows whose difference is largest in a norm (of each column), and how large it is."""
    best, most = [0, 0], 0.0
    for place, vector in enumerate(vectors):
        sizes = norm((vectors - vector).T)
        if sizes.max() > most * (1 + 1e-9):
            best, most = [place, int(np.argmax(sizes))], float(sizes.max())
    return best, most


def widest_matrices(vectors: np.ndarray) -> list[int]:
    """Return the places of two rows a, b whose aa' - bb' has the largest nuclear norm: √((|a|² + |b|²)² - 4 (a'b)²)."""
    products = vectors @ vectors.T
    squares = np.diag(products)
    nuclear = (squares[:, None] + squares[None, :]) ** 2 - 4 * products**2
    return [int(place) for place in np.unravel_index(np.argmax(nuclear), nuclear.shape)]
