"""The authors' own curves of figures 3 and 4, read off their vector graphics (see published_curves.md)."""

import csv
from functools import cache
from importlib.resources import files

import numpy as np

Key = tuple[int, float, str, int]


@cache
def published_curves() -> dict[Key, tuple[np.ndarray, np.ndarray]]:
    """Return iterations and gaps of each published curve, by (m, c, algorithm, T)."""
    points: dict[Key, list[tuple[int, float]]] = {}
    text = (files("epsteps.paper") / "published_curves.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        key = (int(row["m"]), float(row["c"]), row["algorithm"], int(row["T"]))
        points.setdefault(key, []).append((int(row["iteration"]), float(row["gap"])))
    return {key: (np.array([t for t, _ in line]), np.array([gap for _, gap in line])) for key, line in points.items()}
