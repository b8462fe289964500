"""The privacy card: one page that tells a data holder what was promised, spent and published.

What it says stands in ``report.html.jinja``, where every text is escaped. Here is what it is told: the content of
model.json, whose numbers are written with their place, so that a page can be held against it, and the shapes of its
pictures (``pictures``). It needs no script and loads nothing.
"""

import html
import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from epsteps.methods import figures
from epsteps.tables import pictures
from epsteps.tables.model import INTERCEPT

# Up to so many releases are listed with a bar each; more are drawn as columns.
_LISTED = 12
# So many variables, and of one so many levels, are open to see; more are folded.
_VARIABLES, _LEVELS = 10, 8


def page(content: Mapping[str, Any]) -> str:
    """Return report.html for the content of a model.json: every number in it stands there."""
    card, prediction = Entry(content), content["prediction"]
    # Files of earlier versions do not have it, nor fits of which nothing more is known than before.
    expected = "after" if prediction.get("after") is not None else "utility"
    shares = [entry["share"] for entry in content["releases"]]
    effects, scale = _effects(card)
    return _template().render(
        card=card,
        colours=figures.LINES,
        verdict_colours={"useful": figures.GOOD, "marginal": figures.DOUBTFUL, "noise": figures.BAD},
        seeded=not content["private"],
        # Files of earlier versions do not have all of these.
        signature=Entry(content.get("signature", {}), ("signature",)),
        chosen=content.get("chosen", {}),
        evaluation=None if content.get("evaluation") is None else card["evaluation"],
        bought=_bought(card),
        person=None if content.get("person") is None else card["person"],
        plan_page=content.get("plan_page"),
        expected=card["prediction"][expected],
        after=expected == "after",
        gauge=pictures.gauge(prediction[expected]),
        bar=pictures.ledger_bar(content["ledger"]),
        columns=pictures.columns(shares) if len(shares) > _LISTED else None,
        largest=card["releases"][shares.index(max(shares))],
        effects=effects,
        open_effects=_VARIABLES if len(effects) > _VARIABLES + 1 else len(effects),  # the intercept alone is not folded
        scale=scale,
        unit=_unit(content),
        path=_path(card) if len(card["points"]) > 1 else None,
        curve=pictures.curve(prediction["curve"], content["certificate"]["epsilon"]),
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


def _effects(card: Entry) -> tuple[list[dict[str, Any]], pictures.Scale | None]:
    """Return the variables, of the largest effects first, each with its levels, largest first; the intercept is last.

    An effect is told with its interval, where there is one: that of a level against the mean of its category's.
    """
    told, intervals = card["coefficients"], card["intervals"]["rows"]
    joined = [intervals[place] for place in range(len(told))] if len(intervals) == len(told) else [None] * len(told)
    numbers = [_numbers(entry.raw, row) for entry, row in zip(told, joined, strict=True)]
    drawn, scale = pictures.spans(numbers)
    groups: dict[str, list[dict[str, Any]]] = {}
    for place, (entry, row) in enumerate(zip(told, joined, strict=True)):
        feature = entry["feature"]
        column = entry.raw.get("column", feature)  # files of earlier versions do not say it
        size = numbers[place]["value"]
        line = {"entry": entry, "interval": row, "drawn": drawn[place], "size": -1.0 if size is None else abs(size)}
        line["level"] = _level(feature, column)
        line["numeric"] = _is_number(feature, column, _declared(card, column))
        line["same"] = row is None or _same(row.raw["coef"], entry.raw["effect"])
        groups.setdefault(column, []).append(line)
    found = [
        {"name": name, "column": _declared(card, name), "lines": sorted(lines, key=lambda line: -line["size"])}
        for name, lines in groups.items()
    ]
    found.sort(key=lambda group: (_is_intercept(group), -group["lines"][0]["size"]))
    return [group | {"folded": group["lines"][_LEVELS:], "lines": group["lines"][:_LEVELS]} for group in found], scale


def _numbers(effect: Mapping[str, Any], interval: Entry | None) -> dict[str, Any]:
    if interval is None:
        return {"value": effect["effect"]}
    return {"value": interval.raw["coef"], "low": interval.raw["low"], "high": interval.raw["high"]}


def _same(first: float | None, second: float | None) -> bool:
    return first == second if first is None or second is None else math.isclose(first, second, rel_tol=1e-9)


def _is_intercept(group: Mapping[str, Any]) -> bool:
    return all(line["entry"].raw["feature"] == INTERCEPT for line in group["lines"])


def _level(feature: str, column: str) -> str | None:
    """Return what a feature is called below its variable; None for the variable itself."""
    return None if feature == column else feature.removeprefix(column).removeprefix("=").strip() or feature


def _is_number(feature: str, column: str, declared: Entry | None) -> bool:
    """Whether a feature is a declared number, or its transform, so that a unit of it has an effect."""
    if declared is None:
        return False
    transform = declared.raw.get("transform")
    return feature == (column if transform is None else f"{transform}({column})")


def _declared(card: Entry, name: str) -> Any:
    return card["schema"]["columns"][name] if name in card["schema"]["columns"].raw else None


def _unit(content: Mapping[str, Any]) -> str:
    """Return what effects are measured in, in words."""
    target = content["schema"]["target"]
    outputs = list(dict.fromkeys(entry["output"] for entry in content["coefficients"]))
    if outputs == [target]:
        return f"effect on {target}, in its unit"
    return "effect on the log-odds of " + (outputs[0] if len(outputs) == 1 else f"each {target}, against their mean")


def _bought(card: Entry) -> Any:
    """Return what was bought for the schema before the fit, each with its note, cost and unit."""
    if "expenses" in card["certificate"].raw:
        return card["certificate"]["expenses"]
    return card["schema"]["bought"] if card["schema"].raw.get("bought") else []


def _path(card: Entry) -> dict[str, Any]:
    """Return the lines of the published points."""
    points, told = card["points"].raw, card["coefficients"]
    width, several = len(points[0][0]), len(points[0]) > 1

    def name(row: int, column: int) -> str:
        entry = told.raw[row * width + column]
        return f"{entry['feature']} ({entry['output']})" if several else entry["feature"]

    return pictures.path(points, name)
