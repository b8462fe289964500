"""Two results compared to the last bit, and where they differ in words."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def first_difference(first: Any, second: Any, where: str = "") -> str | None:
    """Return where two results differ, in words, or None: by type, dtype, shape and every bit."""
    name = where or "the value"
    if type(first) is not type(second):
        return f"{name} is a {type(first).__name__}, then a {type(second).__name__}"
    if isinstance(first, np.ndarray):
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            return f"{name} has dtype {first.dtype} and shape {first.shape}, then {second.dtype} and {second.shape}"
        same = np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
        return None if same else f"{name} is {short(first)}, then {short(second)}"
    if isinstance(first, dict | list | tuple) or is_dataclass(first):
        parts, others = _parts(first), _parts(second)
        if parts.keys() != others.keys():
            return f"{name} has {len(parts)} parts, then {len(others)}: {short(first)}, then {short(second)}"
        found = (first_difference(parts[key], others[key], f"{where}.{key}".lstrip(".")) for key in parts)
        return next((difference for difference in found if difference is not None), None)
    if type(first).__eq__ is object.__eq__ and hasattr(first, "__dict__"):
        return first_difference(vars(first), vars(second), where)
    return None if first == second or first != first else f"{name} is {short(first)}, then {short(second)}"


def _parts(value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    return {field.name: getattr(value, field.name) for field in fields(value)}


def short(value: Any) -> str:
    """Return a value in at most 100 characters."""
    text = " ".join(np.array2string(value, threshold=6).split()) if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 100 else text[:97] + "..."
