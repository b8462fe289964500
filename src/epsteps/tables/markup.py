"""The frame of a page, and numbers in it that say where in model.json they stand."""

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

STYLE = """
:root { color-scheme: light dark; --text: #1c1f24; --soft: #5a626e; --line: #d5d9df; --back: #fff; --card: #f5f6f8;
  --ink: #2463a8; --warn: #b3261e; --warn-back: #fdecea; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8eb; --soft: #a3abb7; --line: #3a4049; --back: #15181c;
  --card: #1e2228; --ink: #7db3ef; --warn: #ff8a80; --warn-back: #3a1c1b; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 56rem; margin: 0 auto; padding: 1rem; color: var(--text);
  background: var(--back); overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
section { border-top: 1px solid var(--line); }
.soft, figcaption { color: var(--soft); font-size: .9rem; }
.promise { background: var(--card); border-left: 4px solid var(--ink); padding: .75rem 1rem; font-size: 1.1rem; }
.warn { background: var(--warn-back); border-left: 4px solid var(--warn); color: var(--warn); padding: .75rem 1rem;
  font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem .3rem 0; text-align: left; vertical-align: top; }
th { color: var(--soft); font-weight: 600; font-size: .85rem; }
td.n, th.n { text-align: right; white-space: nowrap; }
td:first-child { min-width: 7.5rem; }
pre { background: var(--card); padding: .75rem; overflow-x: auto; font-size: .8rem; overflow-wrap: normal; }
figure { margin: .75rem 0; } .ends { display: flex; justify-content: space-between; gap: 1rem; font-size: .85rem;
  color: var(--soft); font-variant-numeric: tabular-nums; }
svg { display: block; fill: var(--ink); } svg path { fill: none; vector-effect: non-scaling-stroke; }
svg.chart { width: 100%; height: 11rem; background: var(--card); }
svg.bar { width: 100%; min-width: 5rem; height: 1rem; background: var(--card); }
svg.interval { width: 8rem; height: 1.2rem; }
.line { stroke-width: 2; } .axis { stroke: var(--line); stroke-width: 1; }
.spread { stroke: var(--soft); stroke-width: 2; }
.dot { stroke: var(--ink); stroke-width: 7; stroke-linecap: round; }
.dot.marked { stroke: var(--warn); stroke-width: 11; }
.c0 { stroke: #2463a8; } .c1 { stroke: #d1791b; } .c2 { stroke: #2f8f5b; } .c3 { stroke: #b3477d; }
.c4 { stroke: #7a6ac8; } .c5 { stroke: #8c7324; } .c6 { stroke: #3a9aa8; } .c7 { stroke: #808892; }
.key { display: inline-flex; align-items: center; gap: .35rem; margin-right: 1rem; font-size: .85rem; }
.key svg { width: 1.5rem; height: .5rem; }
"""


class Numbers:
    """The content of model.json, whose numbers are written with their place, so that a page can be held against it."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = content

    def at(self, *place: str | int) -> Any:
        """Return what stands at a place."""
        value: Any = self._content
        for step in place:
            value = value[step]
        return value

    def __call__(self, *place: str | int, style: str = ".4g") -> str:
        """Return a number as HTML; a dash where there is none."""
        value = self.at(*place)
        if value is None:
            return "–"
        shown = str(value) if isinstance(value, int) else format(value, style)
        return f'<data data-key="{html.escape(json.dumps(place))}" value="{value!r}">{shown}</data>'

    def declared(self, *place: str | int) -> str:
        """Return what people wrote, text or a number, as they wrote it."""
        value = self.at(*place)
        return self.text(*place) if isinstance(value, str | bool) else self(*place, style=".12g")

    def text(self, *place: str | int) -> str:
        """Return a text as HTML."""
        return html.escape(str(self.at(*place)))


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph of HTML."""
    return f'<p class="{kind}">{text}</p>' if kind else f"<p>{text}</p>"


def bullets(entries: Sequence[str]) -> str:
    """Return a list of HTML."""
    return "<ul>" + "".join(f"<li>{entry}</li>" for entry in entries) + "</ul>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of HTML; columns whose heading begins with > are set to the right."""
    kinds = [' class="n"' if name.startswith(">") else "" for name in header]
    head = "".join(f"<th{kind}>{name.lstrip('>')}</th>" for kind, name in zip(kinds, header, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>\n"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def chart(picture: str, above: Sequence[str], below: Sequence[str], caption: str) -> str:
    """Return a picture with what stands at its corners, and a caption."""
    ends = ['<div class="ends">' + "".join(f"<span>{end}</span>" for end in pair) + "</div>" for pair in (above, below)]
    return f"<figure>{ends[0]}{picture}{ends[1]}<figcaption>{caption}</figcaption></figure>"


def frame(title: str, parts: Sequence[tuple[str, str]]) -> str:
    """Return a whole page: a title and sections, each with a heading; nothing is loaded from elsewhere."""
    sections = "\n".join(
        f"<section><h2>{heading}</h2>\n{body}\n</section>" if heading else body for heading, body in parts
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n{sections}\n</body></html>\n"
    )
