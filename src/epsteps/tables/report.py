"""The privacy card: one page that tells a data holder what was promised, spent and published.

What it says stands in ``report.html.jinja``, where every text is escaped. Here is what it is told: the content of
model.json, whose numbers are written with their place, so that a page can be held against it, and the shapes of its
pictures. Those hold no text and stretch to any width.
"""

import html
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

# Up to so many releases are listed with a bar each; more are drawn as columns.
_LISTED = 12
_LINES = 8
_WIDTH, _HEIGHT = 600.0, 160.0


def page(content: Mapping[str, Any]) -> str:
    """Return report.html for the content of a model.json: every number in it stands there."""
    card = Entry(content)
    return _template().render(
        card=card,
        seeded=not content["private"],
        bought=card["certificate"]["expenses"] if "expenses" in content["certificate"] else [],
        chosen=content.get("chosen", {}),  # files of earlier versions do not say it
        columns=_columns(card["releases"]) if len(card["releases"]) > _LISTED else None,
        spans=_spans(card["intervals"]["rows"].raw),
        points=_path(card) if len(card["points"]) > 1 else None,
        curve=_curve(card),
    )


@cache
def _template() -> Any:
    import jinja2  # plans and runs do not wait for it

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["as_written"] = lambda value: value.styled(".12g") if isinstance(value, Entry) else value
    return environment.get_template("report.html.jinja")


class Entry:
    """A number of model.json, or a list or table of them, that knows its place; texts in it are texts.

    A page has a number as HTML that says where it stands, and a dash where there is none.
    """

    def __init__(self, raw: Any, place: tuple[str | int, ...] = (), style: str = ".4g") -> None:
        self.raw, self._place, self._style = raw, place, style

    def __getitem__(self, key: str | int) -> Any:
        value = self.raw[key]
        return value if isinstance(value, str | bool) else Entry(value, (*self._place, key))

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the entries of a list, or the keys of a table."""
        return iter(self.raw) if isinstance(self.raw, Mapping) else (self[place] for place in range(len(self.raw)))

    def __reversed__(self) -> Iterator[Any]:
        return (self[place] for place in reversed(range(len(self.raw))))

    def __len__(self) -> int:
        return len(self.raw)

    def styled(self, style: str) -> "Entry":
        """Return the same number, to be written in this style."""
        return Entry(self.raw, self._place, style)

    def __html__(self) -> str:
        if self.raw is None:
            return "–"
        shown = str(self.raw) if isinstance(self.raw, int) else format(self.raw, self._style)
        return f'<data data-key="{html.escape(json.dumps(self._place))}" value="{self.raw!r}">{shown}</data>'


def _columns(releases: Entry) -> dict[str, Any]:
    """Return place, top, width and height of a column for each share, the largest of full height."""
    shares = [entry["share"] for entry in releases.raw]
    step, top = _WIDTH / len(shares), max(shares) or 1.0
    bars = [
        (place * step, _HEIGHT * (1 - share / top), 0.9 * step, _HEIGHT * share / top)
        for place, share in enumerate(shares)
    ]
    return {"bars": bars, "largest": releases[shares.index(max(shares))]}


def _spans(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str] | None]:
    """Return each interval as a line, the number as a mark and 0 as an axis, all to one scale; None where ends miss."""
    known = [all(row[name] is not None for name in ("low", "coef", "high")) for row in rows]
    ends = [0.0, *(row[name] for row, drawn in zip(rows, known, strict=True) if drawn for name in ("low", "high"))]
    low, high = min(ends), max(ends)

    def drawn(row: Mapping[str, Any]) -> dict[str, str]:
        places = _scaled([0.0, row["low"], row["coef"], row["high"]], low, high)
        zero, left, dot, right = (2 + 96 * place for place in places)
        return {
            "axis": f"M{zero:.6g} 0V8",
            "line": f"M{left:.6g} 4H{right:.6g}",
            "mark": f"M{dot:.6g} 1V7",
        }

    return [drawn(row) if whole else None for row, whole in zip(rows, known, strict=True)]


def _path(card: Entry) -> dict[str, Any]:
    """Return the numbers of the model that are largest at the end: their lines, names, and highest and lowest."""
    points = card["points"].raw
    width = len(points[0][0])
    spots = [(row, column) for row in range(len(points[0])) for column in range(width)]
    shown = sorted(spots, key=lambda spot: -abs(points[-1][spot[0]][spot[1]]))[:_LINES]
    flat = [(point[row][column], t, row, column) for t, point in enumerate(points) for row, column in shown]
    (high, *highest), (low, *lowest) = max(flat), min(flat)
    times = _scaled(range(len(points)), 0, len(points) - 1)
    return {
        "lines": [_line(times, _scaled([point[row][column] for point in points], low, high)) for row, column in shown],
        "zero": _line([0.0, 1.0], _scaled([0.0, 0.0], low, high)) if low < 0 < high else None,
        "named": [card["coefficients"][row * width + column] for row, column in shown],
        "several": len(points[0]) > 1,
        "highest": card["points"][highest[0]][highest[1]][highest[2]],
        "lowest": card["points"][lowest[0]][lowest[1]][lowest[2]],
    }


def _curve(card: Entry) -> dict[str, Any] | None:
    """Return the expected error over epsilon, both logarithmic; None where there is too little to draw."""
    entries = card["prediction"]["curve"]
    if len(entries) < 2 or not all(entry["error"] > 0 for entry in entries.raw):
        return None
    epsilons, errors = ([entry[name] for entry in entries.raw] for name in ("epsilon", "error"))
    across, up = (
        _scaled(logs, min(logs), max(logs))
        for logs in ([math.log(value) for value in values] for values in (epsilons, errors))
    )
    spent = card["certificate"]["epsilon"].raw
    return {
        "line": _line(across, up),
        "dots": [_line([a, a], [b, b]) for a, b in zip(across, up, strict=True)],
        "marked": epsilons.index(spent) if spent in epsilons else None,
        "highest": entries[errors.index(max(errors))]["error"],
        "lowest": entries[errors.index(min(errors))]["error"],
    }


def _line(across: Sequence[float], up: Sequence[float]) -> str:
    """Return the path of a line through points of the unit square, a little inside the picture."""
    points = (
        f"{10 + (_WIDTH - 20) * a:.6g} {10 + (_HEIGHT - 20) * (1 - b):.6g}" for a, b in zip(across, up, strict=True)
    )
    return "M" + "L".join(points)


def _scaled(values: Sequence[float], low: float, high: float) -> list[float]:
    span = high / 2 - low / 2  # a difference of floats may be too large for one
    return [(value / 2 - low / 2) / span if span > 0 else 0.5 for value in values]
