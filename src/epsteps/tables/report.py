"""The privacy card: one page that tells a data holder what was promised, spent and published."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from epsteps.tables import svg
from epsteps.tables.markup import Numbers, bullets, chart, frame, paragraph, table

# Up to so many releases are listed with a bar each; more are drawn as columns.
_LISTED = 12
_LINES = 8
_ASSUMPTIONS = (
    "One record is all that one person has in the data. Who has several is protected less.",
    "Ranges, categories and classes in the schema are public knowledge, and were not read off these records.",
    "The number of records, the columns and everything in the plan are public.",
    "The noise came from this machine's operating system, and nobody has seen it, the records, or how long it took.",
    "Whatever else is published about the same records adds to what was spent. A ledger adds it up.",
)
_MAY = (
    "What is true of people in general: a model that says smokers fall ill says so of those who took no part, too.",
    "Everything on this page and in model.json: it is what the promise is about. (Scores tell about the records that "
    "were scored, which the promise does not cover.)",
    "Something about a large group: the promise to many people together is weaker, by their number.",
)
_MAY_NOT = (
    "Whether one person's record was among these, or what stands in it, beyond what the factor above allows. "
    "It does not matter what else they know, how they compute, or whether they know every other record.",
    "How many values were outside the schema: such values were moved inside, and nothing says so.",
)
_EFFECTS = (
    "An effect is that of a number's whole declared range, or of a category. The intercept is the value where all "
    "numbers are at the low end of their ranges and no category is set. "
)
_NOISE = (
    "The noise is a standard deviation, guessed from public numbers for records that fill ranges and categories evenly "
    "(the bars are two of them to each side). What few records have, such as a rare category, has more noise: up to "
    "the next column, which is for what no record has."
)
_NO_NOISE = "The scale of the noise is not guessed for a model of so many numbers."
_NOT_PRIVATE = (
    "NOT PRIVATE. The noise of this model came from a seed, so that it can be drawn again and taken off. "
    "It is an experiment: treat the model as you treat the records."
)


_NO_ODDS = (
    "So large an epsilon promises nothing: what someone might conclude from this model may be more times as probable "
    "with your record, as with any other in its place, than a computer's numbers can say."
)


def page(content: Mapping[str, Any]) -> str:
    """Return report.html for the content of a model.json: every number in it stands there."""
    number = Numbers(content)
    seeded = not content["private"]
    title = f"Privacy card of a model for {number.text('schema', 'target')}"
    if seeded:
        title += " – NOT PRIVATE"
    parts = [
        ("", _opening(number, seeded)),
        ("What was promised", _promise(number, seeded)),
        ("What someone who sees it may learn, and may not", _learning(seeded)),
        ("The model", _coefficients(number)),
        ("How the budget was split", _split(number)),
        ("The published path", _path(number, seeded)),
        ("How good it is expected to be", _prediction(number)),
        ("Scores on other records", _scores(number)),
        ("The ledger", _ledger(number)),
        ("What was declared of the columns", _schema(number)),
        ("The plan", f"<pre>{number.text('plan_text')}</pre>"),
    ]
    return frame(title, [(heading, body) for heading, body in parts if body])


def _opening(number: Numbers, seeded: bool) -> str:
    made = ", ".join(f"{name} {number.text('made', name)}" for name in number.at("made"))
    if seeded:
        return paragraph(_NOT_PRIVATE, "warn") + paragraph(made, "soft")
    return paragraph(f"Guarantee: {number.text('certificate', 'guarantee')}.", "promise") + paragraph(made, "soft")


def _promise(number: Numbers, seeded: bool) -> str:
    delta = number.at("certificate", "delta")
    more = f", plus {number('certificate', 'delta')}" if delta else ""
    if number.at("certificate", "odds") is None:
        words = _NO_ODDS
    else:
        words = (
            "Take anything that someone might conclude from this model. It is at most "
            f"{number('certificate', 'odds')} times as probable with your record as with any other in its place{more}."
        )
    facts = [
        ["epsilon allowed", number("certificate", "epsilon")],
        ["delta allowed", number("certificate", "delta")],
        ["epsilon spent", number("certificate", "spent")],
        ["records", number("certificate", "records")],
        ["features", number("certificate", "features")],
        ["points published", number("certificate", "points")],
        ["method", number.text("certificate", "method")],
        ["neighbours", number.text("certificate", "adjacency")],
        ["records lie in", number.text("certificate", "domain")],
    ]
    promised = "Nothing: without the seed the plan would have meant this. " if seeded else ""
    return (
        paragraph(promised + words)
        + table(["", ""], facts)
        + paragraph("This holds under these assumptions:")
        + bullets(_ASSUMPTIONS)
    )


def _learning(seeded: bool) -> str:
    if seeded:
        return paragraph("Everything, possibly: whoever has the seed can take the noise off the model.")
    return paragraph("They may learn:") + bullets(_MAY) + paragraph("They may not learn:") + bullets(_MAY_NOT)


def _coefficients(number: Numbers) -> str:
    entries = number.at("coefficients")
    known = any(entry["noise"] is not None for entry in entries)
    intervals = _intervals(entries)
    several = len({entry["output"] for entry in entries}) > 1
    rows = []
    for place in range(len(entries)):
        spot = ("coefficients", place)
        names = [number.text(*spot, "feature")] + [number.text(*spot, "output")] * several
        numbers = [number(*spot, name) for name in ("per_unit", "effect", "noise", "noise_if_never")]
        rows.append([*names, *numbers, intervals[place]])
    about = "" if several else f"All numbers speak for {number.text('coefficients', 0, 'output')}. "
    header = ["feature", *["speaks for"] * several, ">per unit", ">effect", ">noise", ">if in no record", ""]
    return paragraph(about + _EFFECTS + (_NOISE if known else _NO_NOISE)) + table(header, rows)


def _intervals(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a picture of each effect that has a guessed noise, all to one scale; nothing of the others."""
    drawn = [(entry["effect"], entry["noise"]) for entry in entries if None not in (entry["effect"], entry["noise"])]
    # Relative to the largest, sums of large numbers are not too large.
    top = max((abs(number) for pair in drawn for number in pair), default=0.0) or 1.0
    reach = max((abs(effect) / top + 2 * (noise / top) for effect, noise in drawn), default=0.0) or 1.0
    return [
        ""
        if entry["effect"] is None or entry["noise"] is None
        else svg.interval(entry["effect"] / top, entry["noise"] / top, reach)
        for entry in entries
    ]


def _split(number: Numbers) -> str:
    entries = number.at("releases")
    if len(entries) <= _LISTED:
        rows = [
            [
                number.text("releases", place, "what"),
                f"{number('releases', place, 'cost')} {number.text('releases', place, 'unit')}",
                number("releases", place, "share", style=".1%"),
                svg.share_bar(entry["share"]),
            ]
            for place, entry in enumerate(entries)
        ]
        return table(["release", ">cost", ">share", ""], rows)
    shares = [entry["share"] for entry in entries]
    top, last = shares.index(max(shares)), len(shares) - 1
    unit = number.text("releases", 0, "unit")
    return chart(
        svg.columns(shares, "cost of each step"),
        (f"largest: {number('releases', top, 'cost')} {unit}, {number.text('releases', top, 'what')}", ""),
        [f"{number.text('releases', t, 'what')}: {number('releases', t, 'cost')}" for t in (0, last)],
        f"Cost of each step, in {unit}: all of them together spend the budget.",
    )


def _path(number: Numbers, seeded: bool) -> str:
    points = number.at("points")
    if len(points) < 2:
        return ""
    width = len(points[0][0])
    spots = [(row, column) for row in range(len(points[0])) for column in range(width)]
    shown = sorted(spots, key=lambda spot: -abs(points[-1][spot[0]][spot[1]]))[:_LINES]
    series = [[point[row][column] for point in points] for row, column in shown]
    flat = [(point[row][column], t, row, column) for t, point in enumerate(points) for row, column in shown]
    corners = [("points", *extreme[1:]) for extreme in (max(flat), min(flat))]
    keys = "".join(
        f'<span class="key"><svg viewBox="0 0 10 4" aria-hidden="true"><path class="line c{place}" d="M0 2H10"/></svg>'
        f"{number.text('coefficients', row * width + column, 'feature')}"
        + (f" ({number.text('coefficients', row * width + column, 'output')})" if len(points[0]) > 1 else "")
        + "</span>"
        for place, (row, column) in enumerate(shown)
    )
    caption = (
        "Numbers of the model that are largest at the end, in the order of publication; for features, and a target of "
        f"numbers, that are scaled by their ranges. {keys}"
    )
    ends = ("first", "last, which is the model")
    return chart(
        svg.lines(series, "path of the published points"),
        (f"highest {number(*corners[0])}", f"lowest {number(*corners[1])}"),
        ends,
        caption,
    ) + ("" if seeded else paragraph("All of these points are public, and the promise covers them together."))


def _prediction(number: Numbers) -> str:
    curve = number.at("prediction", "curve")
    text = paragraph(
        "Expected excess of the objective over its minimum, loss and ridge together: "
        f"{number('prediction', 'error')}. A guess from public numbers; the plan below says what is proved."
    )
    if len(curve) < 2 or not all(entry["error"] > 0 for entry in curve):
        return text
    epsilons, errors = ([entry[name] for entry in curve] for name in ("epsilon", "error"))
    spent = number.at("certificate", "epsilon")
    marked = epsilons.index(spent) if spent in epsilons else None
    last, top, low = len(curve) - 1, errors.index(max(errors)), errors.index(min(errors))
    rows = [
        [number("prediction", "curve", place, "epsilon"), number("prediction", "curve", place, "error")]
        for place in range(len(curve))
    ]
    return (
        text
        + chart(
            svg.log_curve(epsilons, errors, "expected error over epsilon", marked=marked),
            (
                f"highest {number('prediction', 'curve', top, 'error')}",
                f"lowest {number('prediction', 'curve', low, 'error')}",
            ),
            [f"epsilon {number('prediction', 'curve', place, 'epsilon')}" for place in (0, last)],
            "Expected excess over epsilon, both logarithmic; the large dot is this fit.",
        )
        + table([">epsilon", ">expected excess"], rows)
    )


def _scores(number: Numbers) -> str:
    scores = number.at("scores")
    if scores is None:
        return ""
    rows = [[name.replace("_", " "), number("scores", name)] for name in scores if name != "note"]
    return table(["", ">"], rows) + paragraph(number.text("scores", "note"), "soft")


def _ledger(number: Numbers) -> str:
    if number.at("ledger") is None:
        return paragraph(
            "No ledger was named: nobody adds this fit up with what else was, or will be, published of these records."
        )
    return table(["", ""], [[name, number.declared("ledger", name)] for name in number.at("ledger")])


def _schema(number: Numbers) -> str:
    rows = []
    for name in number.at("schema", "columns"):
        spot = ("schema", "columns", name)
        column = number.at(*spot)
        if column["type"] == "numeric":
            text = f"number from {number.declared(*spot, 'low')} to {number.declared(*spot, 'high')}"
        else:
            text = ", ".join(number.declared(*spot, "values", place) for place in range(len(column["values"])))
        text += ", or missing" if column.get("missing") else ""
        mark = " (target)" if name == number.at("schema", "target") else ""
        rows.append([html.escape(name) + mark, text])
    return table(["column", "declared"], rows) + paragraph(
        "Values outside were moved to the nearest declared one, or counted as missing.", "soft"
    )
