"""How large a plan may be: limits from public numbers, so that no run ends for want of memory after its charge.

Each number below is a documented limit of this version, besides those of ``Problem`` itself. A plan beyond it is
refused when it is made or read, which is before records are opened.
"""

from epsteps.problem import validate
from epsteps.problem.problem import Problem

# A solver's Hessian of as many rows is 0.8 GB, and there are about six like it.
LARGEST_HESSIAN = 10_000
# Second derivatives of a block of records are a matrix over the classes for each.
LARGEST_CLASSES = 500
# Matrices of exact integers take about 200 bytes for each entry: 1 GB.
LARGEST_MOMENTS = 2_048
# Steps, and numbers on the path that they publish: 2 GB.
LARGEST_STEPS = 1_000_000
LARGEST_PATH = 2**28
# Numbers in a model's file, of which text takes about 60 bytes, and coordinates, each of which is described: 1 GB.
LARGEST_FILE, LARGEST_DESCRIBED = 2**24, 2**17
# Choosing their number by exact errors, or for samples, takes the square of the largest: 0.8 GB, and three like it.
LARGEST_SQUARED_HORIZON = 10_000


def require_hessian(problem: Problem) -> None:
    """Raise unless a solver's dense Hessian fits into memory."""
    remedy = "Declare fewer features or classes, or use release='iterates' with method='descent'."
    _require("coordinates for a solver", problem.dimension, LARGEST_HESSIAN, problem, remedy)
    _require("classes for a solver", problem.loss.outputs, LARGEST_CLASSES, problem, remedy)


def require_moments(problem: Problem) -> None:
    """Raise unless second moments in exact integers fit into memory."""
    remedy = "Declare fewer features, or use another method: 'objective' or 'descent'."
    _require("features for second moments", problem.d, LARGEST_MOMENTS, problem, remedy)


def require_steps(iterations: int) -> None:
    """Raise unless so many steps can be planned."""
    if iterations > LARGEST_STEPS:
        raise ValueError(f"iterations must be at most {LARGEST_STEPS}, got {validate.written(iterations)}.")


def require_horizon(longest: int, *, squared: bool) -> None:
    """Raise unless the number of steps can be chosen up to this one; ``squared``: from a table of all pairs."""
    require_steps(longest)
    if squared and longest > LARGEST_SQUARED_HORIZON:
        raise ValueError(
            f"max_iterations must be at most {LARGEST_SQUARED_HORIZON} with objective='exact' or a batch, "
            f"got {validate.written(longest)}. Allow fewer, or give the number of iterations."
        )


def require_path(problem: Problem, iterations: int, copies: int = 1) -> None:
    """Raise unless all the points of so many steps, in so many runs, fit into memory."""
    require_steps(iterations)
    if (iterations + 1) * problem.dimension * copies > LARGEST_PATH:
        runs = f" in each of {validate.written(copies)} runs" if copies > 1 else ""
        raise ValueError(
            f"a path of {iterations + 1} points with {problem.dimension} coordinates each{runs} is more than the "
            f"{LARGEST_PATH} numbers that a run may publish. Use fewer iterations, repetitions, features or classes."
        )


def require_records(problem: Problem) -> None:
    """Raise unless records that are made up for an experiment fit into memory."""
    if problem.n * problem.d > LARGEST_PATH:
        raise ValueError(
            f"made-up records may have at most {LARGEST_PATH} numbers together, got n = {problem.n} with "
            f"d = {problem.d} each. Use fewer."
        )


def require_file(problem: Problem, points: int) -> None:
    """Raise unless so many points, and the description of the last, fit into the file of a model."""
    remedy = "Declare fewer features or classes."
    _require("coordinates in the file of a model", problem.dimension, LARGEST_DESCRIBED, problem, remedy)
    if points * problem.dimension > LARGEST_FILE:
        raise ValueError(
            f"the file of a model may hold at most {LARGEST_FILE} numbers, got {points} points with "
            f"{problem.dimension} coordinates each. Use release='final', or fewer features or classes."
        )


def _require(what: str, size: int, largest: int, problem: Problem, remedy: str) -> None:
    if size > largest:
        got = problem.coordinates if size == problem.dimension else validate.written(size)
        raise ValueError(f"there may be at most {largest} {what}, got {got}. {remedy}")
