"""A plan as JSON, and as a page that a data holder can read and sign.

JSON holds what was decided, and the certificate that must follow from it when it is read back. The page is text of at
most 80 columns, and a table in a notebook.
"""

import json
import math
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from html import escape
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from epsteps.budgets import Budget
from epsteps.problem.domain import Domain
from epsteps.problem.losses import Loss
from epsteps.problem.problem import Problem
from epsteps.problem.validate import Kinds, MissingExtraError
from epsteps.problem.weighting import Weighting

if TYPE_CHECKING:
    from epsteps.plans.plan import Plan
    from epsteps.problem.problem import Problem

_FORMAT = 1


class PlanFormatError(ValueError):
    """A text is not a plan, or its certificate does not follow from its contents."""


@contextmanager
def refusing() -> Iterator[None]:
    """Turn whatever goes wrong while a plan is read into a ``PlanFormatError``: any text may arrive.

    The plan's own classes check what it says, and refuse it in their own words. Only a missing extra, which the
    certificate of some plans is computed with, speaks for itself.
    """
    try:
        with np.errstate(all="ignore"):  # numbers that are too large are refused, not warned of
            yield
    except (PlanFormatError, MissingExtraError):
        raise
    except Exception as error:  # the one place where every error is expected
        if isinstance(error, ValueError):
            raise PlanFormatError(_clipped(str(error), 500)) from error
        said = f"not a complete plan: {_clipped(repr(error), 300)}. Pass the text that to_json returned."
        raise PlanFormatError(said) from error


def written(plan: "Plan") -> dict[str, Any]:
    """Return the plan as JSON knows it."""
    names = [entry.name for entry in fields(plan)]  # pyright: ignore[reportArgumentType]
    return {
        "epsteps_plan": _FORMAT,
        **({} if plan.tag is None else {"kind": plan.tag}),
        "problem": problem_to_dict(plan.problem),
        "budget": budget_to_dict(plan.budget),
        **{
            name: plan.writers.get(name, plain)(getattr(plan, name))
            for name in names
            if name not in ("problem", "budget")
        },
        "certificate": plan.certificate(),
        "utility": plan.utility.to_dict(),
    }


def read(kind: type["Plan"], content: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a plan of this kind from its contents; those with a default may be missing.

    What a plan says of its utility is for readers: it is a guess, and computed anew.
    """
    entries = fields(kind)  # pyright: ignore[reportArgumentType]
    needed = [entry.name for entry in entries if entry.default is MISSING]
    names = [entry.name for entry in entries if entry.default is MISSING or entry.name in content]
    head = ("epsteps_plan", *([] if kind.tag is None else ["kind"]), "certificate")
    require_keys(content, (*head, *needed), (*names, "utility"))
    readers = {"problem": problem_from_dict, "budget": budget_from_dict} | kind.readers
    return {name: readers.get(name, unplain)(content[name]) for name in names}


def parse(text: str) -> dict[str, Any]:
    """Return the contents of a plan's text, or raise if it is none."""
    try:
        content = json.loads(text, parse_constant=_refused, parse_float=_finite, object_pairs_hook=_distinct)
    except (json.JSONDecodeError, RecursionError) as error:
        raise PlanFormatError(f"not a plan: {error}. Pass the text that to_json returned.") from None
    if not isinstance(content, dict) or content.get("epsteps_plan") != _FORMAT:
        raise PlanFormatError(f"not a plan of format {_FORMAT}: 'epsteps_plan' must be {_FORMAT}.")
    return content


def require_keys(content: dict[str, Any], wanted: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
    """Raise unless a plan's contents are those of its kind, no fewer and no more."""
    missing = [name for name in wanted if name not in content]
    unknown = [name for name in content if name not in wanted + optional]
    if missing or unknown:
        said = f"it lacks {_short(missing[0])}" if missing else f"it has an unknown {_short(unknown[0])}"
        raise PlanFormatError(f"not a complete plan: {said}. Pass the text that to_json returned.")


def compare(actual: dict[str, Any], stated: dict[str, Any]) -> None:
    """Raise unless the stated certificate is what the contents give."""
    if actual.get("error", 0.0) is None:
        stated = stated | {"error": None}  # heavy ball's theorem needs an extra that may be missing here
    for name in sorted(actual.keys() | stated.keys()):
        if not _agree(actual.get(name), stated.get(name)):
            raise PlanFormatError(
                f"the plan was changed: its {_short(name)} says {_short(stated.get(name))}, but its contents give "
                f"{_short(actual.get(name))}. Make it anew with epsteps.plan."
            )


def problem_to_dict(problem: Problem) -> dict[str, Any]:
    """Return the problem as JSON knows it."""
    return {
        "loss": _to_dict(problem.loss, Loss.kinds),
        "domain": _to_dict(problem.domain, Domain.kinds),
        **{name: getattr(problem, name) for name in ("ridge", "n", "d", "intercept", "smoothness", "clip")},
    }


def problem_from_dict(content: dict[str, Any]) -> Problem:
    """Build the problem that ``problem_to_dict`` described."""
    others = dict(content)
    loss, domain = _from_dict(others.pop("loss"), Loss.kinds), _from_dict(others.pop("domain"), Domain.kinds)
    return Problem(loss, domain, **others)


def weighting_to_dict(weighting: Weighting | None) -> dict[str, Any] | None:
    """Return a weighting as JSON knows it; None if there is none."""
    return None if weighting is None else {entry.name: getattr(weighting, entry.name) for entry in fields(weighting)}


def weighting_from_dict(content: dict[str, Any] | None) -> Weighting | None:
    """Build the weighting that ``weighting_to_dict`` described."""
    return None if content is None else Weighting(**content)


def budget_to_dict(budget: Budget) -> dict[str, Any]:
    """Return the budget as JSON knows it."""
    return _to_dict(budget, Budget.named)


def budget_from_dict(content: dict[str, Any]) -> Budget:
    """Build the budget that ``budget_to_dict`` described."""
    return _from_dict(content, Budget.named)


def _to_dict(value: Any, kinds: Kinds) -> dict[str, Any]:
    """Return a small dataclass as the name of its kind and its fields.

    Fields that do not tell equals apart are left out where they say nothing.
    """
    if (name := kinds.name_of(value)) is None:
        raise TypeError(f"a plan with {value!r} cannot be written: JSON knows the library's own kinds only.")
    written = (entry.name for entry in fields(value) if entry.compare or getattr(value, entry.name))
    return {"type": name} | {field: plain(getattr(value, field)) for field in written}


def _from_dict(content: dict[str, Any], kinds: Kinds) -> Any:
    """Build the object that ``_to_dict`` described."""
    entries = {name: unplain(value) for name, value in content.items()}
    return kinds.named(entries.pop("type"))(**entries)


def plain(value: Any) -> Any:
    """Return what JSON knows for arrays, tuples, NumPy scalars and infinity."""
    if isinstance(value, tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    return "inf" if value == math.inf else value


def array(values: list[float] | None) -> np.ndarray | None:
    """Return an array of floats, if there is one."""
    return None if values is None else np.array(values, dtype=float)


def unplain(value: Any) -> Any:
    """Turn lists back into tuples, and "inf" into infinity."""
    if isinstance(value, list):
        return tuple(unplain(entry) for entry in value)
    return math.inf if value == "inf" else value


def _agree(actual: Any, stated: Any) -> bool:
    numbers = (int, float, list)
    if isinstance(actual, numbers) and isinstance(stated, numbers):
        try:
            return np.shape(actual) == np.shape(stated) and bool(np.allclose(actual, stated, rtol=1e-9, atol=0))
        except (ValueError, TypeError):
            return False
    return actual == stated


def _refused(constant: str) -> NoReturn:
    raise PlanFormatError(f"not a plan: it says {_short(constant)}, and plans hold finite numbers alone.")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refused(text)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, in which each name stands once: which of two counts is for nobody to guess."""
    content = dict(pairs)
    if len(content) < len(pairs):
        raise PlanFormatError("not a plan: it says something twice.")
    return content


def _short(value: Any) -> str:
    return _clipped(repr(value), 60)


def _clipped(text: str, length: int) -> str:
    """Return text on one line, and no longer than this."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 3] + "..."


WIDTH = 80
_INDENT = 13


def page(plan: "Plan") -> dict[str, Any]:
    """Return what the page says, as plain values: its title, facts by their names, and the table of the releases."""
    header, body = plan.table()
    return {
        "title": _visible(f"Plan: {plan.title}"),
        "facts": {_visible(name): _visible(fact) for name, fact in _facts(plan).items()},
        "header": list(header),
        "rows": [[_visible(cell) for cell in row] for row in body],
    }


def text(plan: "Plan") -> str:
    """Return the page as text: guarantee, problem, noise, predicted error, and how the budget is split."""
    said = page(plan)
    lines = textwrap.wrap(said["title"], WIDTH, subsequent_indent="  ")
    for name, fact in said["facts"].items():
        lines += textwrap.wrap(fact, WIDTH, initial_indent=f"  {name:<10} ", subsequent_indent=" " * _INDENT)
    return "\n".join([*lines, "", *_table(said["header"], said["rows"])])


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
