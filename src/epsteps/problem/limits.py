"""How large a problem and a plan may be: limits from public numbers, so that no run fails after its charge.

Each number below is a documented limit of this version: of memory, or of what floats hold in all their digits. What is
beyond it is refused when a problem or a plan is made or read, which is before records are opened.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from epsteps.problem import validate

if TYPE_CHECKING:
    from epsteps.problem.problem import Problem

# Counts up to here are exact in doubles; and noise takes about 500 bytes for each coordinate: 2 GB.
LARGEST_N, LARGEST_DIMENSION = 2**53, 4_000_000
# Constants of a problem that are computed from several declared ones lie between this and its inverse.
_SMALLEST_CONSTANT = 1e-300
# Fourth powers of units are finite within this and its inverse.
LARGEST_UNIT = 1e20

# Coordinates of a published minimum: what the roundings of its noise's norms add up to is proved up to here.
LARGEST_SOLVED = 10_000
# Slopes of a block of records, one for each class.
LARGEST_CLASSES = 500
# A second moment of as many rows is 0.8 GB, and there are about six like it.
LARGEST_EIGENVALUE = 10_000
# Matrices of exact integers take about 200 bytes for each entry: 1 GB.
LARGEST_MOMENTS = 2_048
# Steps, and numbers on the path that they publish: 2 GB.
LARGEST_STEPS = 1_000_000
LARGEST_PATH = 2**28
# Choosing the number of steps by exact errors, or for samples, takes a table of all pairs: 0.8 GB, and three like it.
LARGEST_SQUARED_HORIZON = 10_000
# Numbers in a model's file, of which text takes about 60 bytes, and coordinates, each of which is described: 1 GB.
LARGEST_FILE, LARGEST_DESCRIBED = 2**24, 2**17


def require_counts(problem: "Problem") -> None:
    """Raise for more records than doubles count, and for more coordinates than memory holds."""
    if problem.n > LARGEST_N:
        raise ValueError(f"n must be at most 2**53 = {LARGEST_N}, got {validate.written(problem.n)}.")
    if problem.dimension > LARGEST_DIMENSION:
        raise ValueError(
            f"there may be at most {LARGEST_DIMENSION} coordinates, got {problem.coordinates}. "
            "Declare fewer features or classes."
        )


def require_constants(constants: Mapping[str, float]) -> None:
    """Raise for constants that floats do not hold in all their digits."""
    for name, size in constants.items():
        if not _SMALLEST_CONSTANT <= size <= 1 / _SMALLEST_CONSTANT:
            raise ValueError(f"{name} is too large or too small to compute with: {size!r}. Choose other units.")


def require_moderate(numbers: Mapping[str, float]) -> None:
    """Raise for numbers that could overflow or vanish where a solver squares them."""
    for name, value in numbers.items():
        if not validate.SMALLEST < value < validate.LARGEST:
            raise ValueError(f"{name} must lie between 1e-100 and 1e100, got {value!r}. Choose other units.")


def require_solvable(problem: "Problem") -> None:
    """Raise unless a solver's points fit into memory."""
    remedy = "Declare fewer features or classes, or use release='iterates' with method='descent'."
    _require("coordinates for a solver", problem.dimension, LARGEST_SOLVED, problem, remedy)
    _require("classes for a solver", problem.loss.outputs, LARGEST_CLASSES, problem, remedy)


def require_moments(problem: "Problem") -> None:
    """Raise unless second moments in exact integers fit into memory."""
    remedy = "Declare fewer features, or use another method: 'objective' or 'descent'."
    _require("features for second moments", problem.d, LARGEST_MOMENTS, problem, remedy)


def require_units(problem: "Problem") -> None:
    """Raise for units in which squares of squares, as of second moments, are no finite numbers."""
    sizes = [*problem.units, problem.loss.targets.largest]
    if min(sizes) < 1 / LARGEST_UNIT or max(*sizes, problem.ridge) > LARGEST_UNIT:
        raise ValueError(
            f"moments take features, targets and a ridge of at most {LARGEST_UNIT:g}, and ranges of at least "
            f"{1 / LARGEST_UNIT:g}, got {problem.domain}, {problem.loss!r} and ridge={problem.ridge!r}. "
            "Declare them in other units."
        )


def require_eigenvalue(problem: "Problem") -> None:
    """Raise unless a dense second moment, whose largest eigenvalue is released, fits into memory."""
    remedy = "Declare fewer features, or the smoothness itself."
    _require("coordinates for an eigenvalue", problem.width, LARGEST_EIGENVALUE, problem, remedy)


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


def require_path(problem: "Problem", iterations: int, copies: int = 1) -> None:
    """Raise unless all the points of so many steps, in so many runs, fit into memory."""
    require_steps(iterations)
    if (iterations + 1) * problem.dimension * copies > LARGEST_PATH:
        runs = f" in each of {validate.written(copies)} runs" if copies > 1 else ""
        raise ValueError(
            f"a path of {iterations + 1} points with {problem.dimension} coordinates each{runs} is more than the "
            f"{LARGEST_PATH} numbers that a run may publish. Use fewer iterations, repetitions, features or classes."
        )


def require_records(problem: "Problem") -> None:
    """Raise unless records that are made up for an experiment fit into memory."""
    if problem.n * problem.d > LARGEST_PATH:
        raise ValueError(
            f"made-up records may have at most {LARGEST_PATH} numbers together, got n = {problem.n} with "
            f"d = {problem.d} each. Use fewer."
        )


def require_file(problem: "Problem", points: int) -> None:
    """Raise unless so many points, and the description of the last, fit into the file of a model."""
    remedy = "Declare fewer features or classes."
    _require("coordinates in the file of a model", problem.dimension, LARGEST_DESCRIBED, problem, remedy)
    if points * problem.dimension > LARGEST_FILE:
        raise ValueError(
            f"the file of a model may hold at most {LARGEST_FILE} numbers, got {points} points with "
            f"{problem.dimension} coordinates each. Use release='final', or fewer features or classes."
        )


def _require(what: str, size: int, largest: int, problem: "Problem", remedy: str) -> None:
    if size > largest:
        got = problem.coordinates if size == problem.dimension else validate.written(size)
        raise ValueError(f"there may be at most {largest} {what}, got {got}. {remedy}")
