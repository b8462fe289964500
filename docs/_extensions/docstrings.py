"""Docstrings for the site: |x| and F* are formulas, not markup; examples have a heading; those of others left out."""

import re
from typing import Any

from sphinx.application import Sphinx

import epsteps

# Code between double backticks, bold and emphasised words stay as they are.
KEPT = re.compile(r"``.*?``|:\w+:`.*?`|\*\*\w.*?\w\*\*|(?<!\w)\*\w[^*]*\w\*(?!\w)")

LISTS = ("Parameters", "Attributes", "Returns", "Raises")


def escaped(line: str) -> str:
    """Return a line of prose in which a bar or an asterisk is a bar or an asterisk."""
    parts, end = [], 0
    for kept in KEPT.finditer(line):
        parts += [re.sub(r"[|*]", r"\\\g<0>", line[end : kept.start()]), kept[0]]
        end = kept.end()
    return "".join([*parts, re.sub(r"[|*]", r"\\\g<0>", line[end:])])


def escape(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape prose; examples, from a prompt to the next empty line, and indented code are left as they are."""
    example = False
    for place, line in enumerate(lines):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if not example and not (place and line.startswith(" ") and _is_code(lines, place)):
            lines[place] = escaped(line)


def title_sections(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Put headings before examples and prose that follow a list of parameters: numpydoc takes them for parameters."""
    section, place = "", 0
    while place < len(lines):
        line, following = lines[place], lines[place + 1] if place + 1 < len(lines) else ""
        if re.fullmatch(r"-{3,}", following):
            section, place = line, place + 2
            continue
        begins = bool(line) and not line.startswith(" ") and (place == 0 or not lines[place - 1].strip())
        if section in LISTS and begins and not following.startswith(" "):
            section = "Examples" if line.startswith(">>>") else "Notes"
            lines[place:place] = [section, "-" * len(section)]
        elif section == "Notes" and line.startswith(">>>"):
            section = "Examples"
            lines[place:place] = [section, "-" * len(section)]
        place += 1


def _is_code(lines: list[str], place: int) -> bool:
    """Whether an indented line belongs to a block that a line with a double colon begins."""
    before = [line for line in lines[:place] if line.strip() and not line.startswith(" ")]
    return bool(before) and before[-1].rstrip().endswith("::")


def skip(app: Sphinx, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what others wrote, scikit-learn's methods above all, and of modules what has a page of its own."""
    if re.fullmatch(r"set_\w+_request", name) or not str(getattr(obj, "__module__", "epsteps")).startswith("epsteps"):
        return True
    return True if what == "module" and getattr(epsteps, name, None) is obj and name in epsteps.__all__ else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx, before numpydoc."""
    app.connect("autodoc-process-docstring", title_sections, priority=300)
    app.connect("autodoc-process-docstring", escape, priority=400)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
