"""Targets as numbers: labels among declared classes, values within a declared bound; nothing in them raises."""

import math
from collections.abc import Sequence

import numpy as np

# Targets are kept in float32, and so are margins of classes: bounds and widths keep away from where it ends.
SIZES = (1e-30, 1e30)


def different(classes: Sequence[object], fewest: int, most: float = math.inf) -> tuple[object, ...]:
    """Return declared classes if they are different, and all text or none, or raise."""
    classes = tuple(classes)
    if not fewest <= len(classes) <= most or len(set(classes)) < len(classes):
        wanted = "two" if most == fewest else f"{fewest} or more"
        raise ValueError(f"classes must be {wanted} different labels, got {classes!r}.")
    if len({isinstance(label, str) for label in classes}) > 1:
        raise ValueError(f"classes must be all text or all numbers, got {classes!r}.")
    return classes


def signs(classes: Sequence[object], y: np.ndarray) -> np.ndarray:
    """Return +1 for the second class and -1 for everything else."""
    _require_labels(classes, y)
    return np.where(y == classes[1], 1.0, -1.0)


def places(classes: Sequence[object], y: np.ndarray) -> np.ndarray:
    """Return each label's place among the classes; a label that is none of them counts as the first."""
    _require_labels(classes, y)
    found = np.zeros(y.shape)
    for place, label in enumerate(classes):
        found[y == label] = place
    return found


def unknown(classes: Sequence[object], y: np.ndarray) -> int:
    """Count the labels that are none of the classes."""
    _require_labels(classes, y)
    return int(np.sum(np.all([y != label for label in classes], axis=0)))


@np.errstate(all="ignore")  # a warning would tell something about a record
def within(bound: float, y: np.ndarray) -> np.ndarray:
    """Clip targets into [-bound, bound]; NaN becomes 0."""
    _require_kind("y", y, text=False)
    return np.clip(np.nan_to_num(y.astype(float), nan=0.0), -bound, bound)


@np.errstate(all="ignore")
def beyond(bound: float, y: np.ndarray) -> int:
    """Count the targets outside [-bound, bound], NaN included."""
    _require_kind("y", y, text=False)
    return int(np.sum(~(np.abs(y.astype(float)) <= bound)))


def _require_labels(classes: Sequence[object], y: np.ndarray) -> None:
    _require_kind("y", y, text=isinstance(classes[1], str))


def _require_kind(name: str, values: np.ndarray, *, text: bool) -> None:
    kinds, wanted = ("U", "text") if text else ("biuf", "numeric")
    if values.dtype.kind not in kinds:
        raise TypeError(f"{name} must be {wanted}, got dtype {values.dtype}. Convert it before.")
