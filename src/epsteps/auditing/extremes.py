"""Records at the ends of the domain, in many directions, and the two of them that a release tells apart best."""

from collections.abc import Callable

import numpy as np
from scipy.linalg import hadamard

from epsteps.auditing.worst_case import extreme_features, extreme_targets
from epsteps.problem.problem import Problem

_FAR = 1e6  # a vector of this length is projected to the domain's end in its direction
_DIRECTIONS = 64


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
