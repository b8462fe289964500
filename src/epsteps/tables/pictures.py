"""The pictures of a report: places of lines, marks and ticks, in percent, so that they stretch to any width.

Ticks are texts that do not stretch; what they say and where they stand follow one scale with all that is drawn.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from epsteps.methods.figures import linear_ticks, log_ticks, spread
from epsteps.plans.utility import NOISE_SHARE, USEFUL_SHARE

WIDTH, HEIGHT = 600.0, 160.0
# Marks keep so far from the edges, in percent, and from the left where the ticks of an axis stand.
_EDGE, _LEFT = 4.0, 9.0
_LINES = 8
_LABEL, _GAP = 18, 8.5  # letters of a label at a line's end, and percent between two


class Scale:
    """Where numbers stand in a picture, in percent, with the ticks of its axis."""

    def __init__(
        self, values: Sequence[float], *, log: bool = False, edges: tuple[float, float] = (_EDGE, _EDGE)
    ) -> None:
        self.low, self.high = min(values), max(values)
        self._log, self._edges = log, edges
        found = (log_ticks if log else linear_ticks)(self.low, self.high)
        self.ticks = [{"at": self.text(value), "value": value, "text": text} for value, text in _named(found)]

    def at(self, value: float) -> float:
        """Return the place of a number between the ends."""
        low, high = self.low, self.high
        if self._log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        span = high / 2 - low / 2  # a difference of floats may be too large for one
        share = (value / 2 - low / 2) / span if span > 0 else 0.5
        return self._edges[0] + (100 - sum(self._edges)) * share

    def text(self, value: float, *, up: bool = False) -> str:
        """Return the place as SVG writes it, from the left, or from the top."""
        return f"{100 - self.at(value) if up else self.at(value):.6g}%"


def _named(values: Sequence[float]) -> list[tuple[float, str]]:
    """Return ticks with as many digits as tell them apart."""
    texts: list[str] = []
    for digits in range(3, 18):
        texts = [format(value, f".{digits}g") for value in values]
        if len(set(texts)) == len(texts):
            break
    return list(zip(values, texts, strict=True))


def gauge(utility: Mapping[str, Any]) -> dict[str, str] | None:
    """Return where the expected excess stands between none and what the model 0 costs, and where verdicts change."""
    expected, trivial = utility["expected"], utility["trivial"]
    if expected is None or not trivial:
        return None
    share = min(max(expected / trivial, 0.0), 1.0)
    return {
        "useful": f"{100 * USEFUL_SHARE:.6g}%",
        "marginal": f"{100 * (NOISE_SHARE - USEFUL_SHARE):.6g}%",
        "noise": f"{100 * (1 - NOISE_SHARE):.6g}%",
        "noise_at": f"{100 * NOISE_SHARE:.6g}%",
        "at": f"{100 * share:.6g}%",
    }


def ledger_bar(ledger: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return the widths of what was spent before and by this release, and where the second begins."""
    if ledger is None or not ledger.get("budget"):
        return None
    before, release = (min(max(ledger[name] / ledger["budget"], 0.0), 1.0) for name in ("before", "release"))
    return {"before": f"{100 * before:.6g}%", "release": f"{100 * min(release, 1 - before):.6g}%"}


def columns(shares: Sequence[float]) -> dict[str, Any]:
    """Return place, top, width and height of a column for each share, to a scale from 0, and the scale."""
    scale = Scale([0.0, max(shares) or 1.0], edges=(0.0, _EDGE))
    first = WIDTH * _LEFT / 100
    step = (WIDTH - first) / len(shares)
    heights = [HEIGHT * scale.at(share) / 100 for share in shares]
    bars = [(first + place * step, HEIGHT - height, 0.9 * step, height) for place, height in enumerate(heights)]
    return {"bars": bars, "ticks": [tick | {"text": f"{100 * tick['value']:.3g}%"} for tick in _upward(scale)]}


def spans(rows: Sequence[Mapping[str, Any] | None]) -> tuple[list[dict[str, str] | None], Scale | None]:
    """Return each row's interval and value to one scale with 0, and the scale; None where a number misses.

    A row has a value, and an interval where there is a ``low`` and a ``high``.
    """
    found = [value for row in rows if row for value in row.values() if value is not None]
    if not found:
        return [None] * len(rows), None
    scale = Scale([0.0, *found])

    def drawn(row: Mapping[str, Any] | None) -> dict[str, str] | None:
        if row is None or row["value"] is None:
            return None
        ends = {name: scale.text(row[name]) for name in ("low", "high") if row.get(name) is not None}
        return {"zero": scale.text(0.0), "value": scale.text(row["value"])} | (ends if len(ends) == 2 else {})

    return [drawn(row) for row in rows], scale


def path(points: Sequence[Sequence[Sequence[float]]], names: Callable[[int, int], str]) -> dict[str, Any]:
    """Return the numbers of the model that are largest at the end as lines over the points, with labels and axes."""
    spots = [(row, column) for row in range(len(points[0])) for column in range(len(points[0][0]))]
    shown = sorted(spots, key=lambda spot: -abs(points[-1][spot[0]][spot[1]]))[:_LINES]
    lines = [[point[row][column] for point in points] for row, column in shown]
    across = Scale([0, len(points) - 1], edges=(_LEFT, 0.0))
    up = Scale([0.0, *(value for line in lines for value in line)])
    ends = spread([100 - up.at(line[-1]) for line in lines], _GAP)
    return {
        "lines": [_line([across.at(t) for t in range(len(line))], [up.at(value) for value in line]) for line in lines],
        "labels": [
            {"at": f"{place:.6g}%", "text": _short(names(*spot))} for place, spot in zip(ends, shown, strict=True)
        ],
        "across": [tick for tick in across.ticks if tick["value"] == int(tick["value"])],
        "up": _upward(up),
    }


def curve(entries: Sequence[Mapping[str, float]], spent: float) -> dict[str, Any] | None:
    """Return the expected error over epsilon, both logarithmic, with axes; None where there is too little to draw."""
    if len(entries) < 2 or not all(entry["error"] > 0 and entry["epsilon"] > 0 for entry in entries):
        return None
    across = Scale([entry["epsilon"] for entry in entries], log=True, edges=(_LEFT, _LEFT))
    up = Scale([entry["error"] for entry in entries], log=True, edges=(_LEFT, _LEFT))
    return {
        "line": _line(*([scale.at(entry[name]) for entry in entries] for scale, name in _both(across, up))),
        "dots": [
            {
                "x": across.text(entry["epsilon"]),
                "y": up.text(entry["error"], up=True),
                "marked": entry["epsilon"] == spent,
            }
            for entry in entries
        ],
        "across": across.ticks,
        "up": _upward(up),
    }


def _both(across: Scale, up: Scale) -> tuple[tuple[Scale, str], ...]:
    return (across, "epsilon"), (up, "error")


def _upward(scale: Scale) -> list[dict[str, Any]]:
    return [tick | {"at": scale.text(tick["value"], up=True)} for tick in scale.ticks]


def _line(across: Sequence[float], up: Sequence[float]) -> str:
    """Return a path through points in percent, for a picture of WIDTH and HEIGHT that is stretched."""
    points = (f"{WIDTH * a / 100:.6g} {HEIGHT * (1 - b / 100):.6g}" for a, b in zip(across, up, strict=True))
    return "M" + "L".join(points)


def _short(text: str) -> str:
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"
