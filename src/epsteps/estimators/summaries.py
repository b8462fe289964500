"""What is told of a fitted model: its numbers in the units of the data, intervals for them, and a page of both."""

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from epsteps.methods.intervals.table import Terms
from epsteps.problem.problem import Problem
from epsteps.running.run import Run

INTERCEPT = "intercept"
_WIDTH, _NAME = 78, 14


class Telling(NamedTuple):
    """What a loss's outputs are in the terms of the targets: those of this order, times a factor, and moved.

    Of a single output that is to have no axis of its own the order is 0.
    """

    order: np.ndarray | int
    factor: float = 1.0
    middle: float = 0.0

    def told(self, coefficients: np.ndarray, constants: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (point, output, column) and (point, output) in the terms of the targets."""
        return self.factor * coefficients[:, self.order], self.middle + self.factor * constants[:, self.order]


def terms_of(
    problem: Problem,
    telling: Telling,
    shift: np.ndarray,
    unit: np.ndarray,
    columns: Sequence[str],
    labels: Sequence[Any],
) -> Terms:
    """Return how coefficients and intercepts follow from a published point, for records shift + unit u: linearly.

    Rows are in the order of the outputs as they are told, with the columns and then the intercept for each.
    """
    d, width, order = problem.d, problem.width, np.atleast_1d(telling.order)
    block = np.zeros((width, width))
    block[np.arange(d), np.arange(d)] = telling.factor / unit
    offset = np.zeros(width)
    if problem.intercept:
        block[-1, :d], block[-1, -1], offset[-1] = -telling.factor * shift / unit, telling.factor, telling.middle
    rows = np.zeros((len(order) * width, problem.dimension))
    for place, output in enumerate(order.tolist()):
        rows[place * width : (place + 1) * width, output * width : (output + 1) * width] = block
    names = [*columns, *[INTERCEPT] * problem.intercept]
    if len(order) > 1:
        names = [f"{label}: {name}" for label in labels for name in names]
    single = len(order) == 1
    categories = problem.domain.categories if single else ()
    return Terms(names, rows, np.tile(offset, len(order)), categories, problem.intercept and single)


def page(name: str, run: Run, certificate: dict[str, Any], table: str) -> str:
    """Return a summary: what was fitted, to how many records, at what price and how well; and then a table.

    What the fit chose by what it published besides the model stands there, too.
    """
    plan = run.plan
    delta = f", delta {certificate['delta']:.3g}" if certificate["delta"] else ""
    facts = {
        "Method": plan.method,
        "Records": f"{plan.problem.n}, with {plan.problem.d} column(s)",
        "Spent": f"epsilon {certificate['spent']:.6g} of {certificate['epsilon']:.6g}{delta}",
        "Guarantee": certificate["guarantee"],
        **_counted(certificate.get("without_ledger")),
        "Worth": plan.utility.sentence,
        **_worth_after(run),
        **plan.choices(run.extras),
    }
    lines = []
    for what, fact in facts.items():
        first = f"{what + ':':{_NAME}}"
        lines += textwrap.wrap(f"{first}{fact}", _WIDTH, subsequent_indent=" " * _NAME, drop_whitespace=True)
    return "\n".join([name.center(_WIDTH).rstrip(), "=" * _WIDTH, *lines, "", table])


def _worth_after(run: Run) -> dict[str, str]:
    """Return the line of what is expected of the model by what was published, where that says more."""
    after = run.utility
    if after is run.plan.utility or after.expected is None:
        return {}
    return {"Now": f"{after.verdict}: about {after.expected:.3g}, by what was published, too"}


def _counted(without_ledger: dict[str, Any] | None) -> dict[str, str]:
    """Return the line of fits that no ledger counts, where there are any."""
    if without_ledger is None:
        return {}
    delta = f", delta {without_ledger['delta']:.3g}" if without_ledger["delta"] else ""
    fits, epsilon = without_ledger["fits"], without_ledger["epsilon"]
    told = f"{fits} fit(s) of this process had no ledger: on the same records, epsilon {epsilon:.6g}{delta} together"
    return {"Uncounted": told}


def without_intervals(terms: Terms, x: np.ndarray, reason: str) -> str:
    """Return the table of a model that has no intervals, and why."""
    values = terms.rows @ x + terms.offset
    rows = [
        f"{name:<{_WIDTH - 14}.{_WIDTH - 15}}{value:>14.6g}" for name, value in zip(terms.names, values, strict=True)
    ]
    said = textwrap.wrap(f"No intervals: {reason}", _WIDTH)
    return "\n".join([f"{'':{_WIDTH - 14}}{'coef':>14}", "-" * _WIDTH, *rows, "=" * _WIDTH, *said])
