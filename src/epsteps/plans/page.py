"""A plan as a page that a data holder can read and sign: as text of at most 80 columns, and in a notebook."""

import textwrap
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epsteps.plans.plan import Plan
    from epsteps.problem.problem import Problem

WIDTH = 80
_INDENT = 13


def text(plan: "Plan") -> str:
    """Return the page as text: guarantee, problem, noise, predicted error, and how the budget is split."""
    lines = textwrap.wrap(_visible(f"Plan: {plan.title}"), WIDTH, subsequent_indent="  ")
    for name, fact in _facts(plan).items():
        indent = f"  {_visible(name):<10} "
        lines += textwrap.wrap(_visible(fact), WIDTH, initial_indent=indent, subsequent_indent=" " * _INDENT)
    header, body = plan.table()
    return "\n".join([*lines, "", *_table(header, [[_visible(cell) for cell in row] for row in body])])


def html(plan: "Plan") -> str:
    """Return the page for a notebook."""
    facts = "".join(f"<tr><th>{escape(name)}</th><td>{escape(fact)}</td></tr>" for name, fact in _facts(plan).items())
    header, lines = plan.table()
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in lines)
    return (
        f"<p><b>Plan: {escape(plan.title)}</b></p><table>{facts}</table>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def charges_table(plan: "Plan") -> tuple[list[str], list[list[str]]]:
    """Return a line for each release: what it is, its cost and unit, and its noise."""
    rows = []
    for charge in plan.charges:
        cost = f"{charge.cost.amount:.6g} {charge.cost.unit}"
        rows.append([charge.what, cost, f"{charge.scale:.6g}", charge.noise])
    return ["release", "cost", "noise scale", "noise"], rows


def problem_fact(problem: "Problem", ridge: float) -> str:
    """Return the line about a problem, minimised with this ridge."""
    raised = f", raised to {ridge:g}" if ridge > problem.ridge else ""
    return (
        f"{type(problem.loss).__name__} loss, ridge {problem.ridge:g}{raised}, n = {problem.n}, "
        f"d = {problem.d}{', intercept' * problem.intercept}; records in {problem.domain}"
    )


def _facts(plan: "Plan") -> dict[str, str]:
    guarantee = (
        f"differential privacy with {plan.budget}, when one record is replaced (n is public); "
        f"spends {plan.spent:.12g} of {plan.budget.amount:g}"
    )
    known = plan.utility.expected is not None
    return {"Guarantee": guarantee} | plan.facts | ({"Utility": plan.utility.sentence} if known else {})


def _visible(text: str) -> str:
    """Return text whose line breaks and other control characters are written out: a plan may come from anybody."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _table(header: list[str], body: list[list[str]]) -> list[str]:
    """Return lines of columns that are as wide as their cells; the last goes to lines of its own where it is long.

    The first and the last column hold text, and those between numbers.
    """
    widths = [max(len(row[place]) for row in [header, *body]) for place in range(len(header))]
    lines = []
    for row in [header, *body]:
        numbers = [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
        line = "  ".join(["", row[0].ljust(widths[0]), *numbers])
        if len(line) + 2 + len(row[-1]) <= WIDTH:
            lines.append(f"{line}  {row[-1]}".rstrip())
        else:
            lines += [line.rstrip(), *textwrap.wrap(row[-1], WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)]
    return lines
