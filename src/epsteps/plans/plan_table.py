"""A plan as a page of text that a data holder can read and sign."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from epsteps.plans.planning import Plan

_ROWS = 10


def describe(plan: "Plan") -> str:
    """Return the plan as text: guarantee, problem, noise, predicted error, and how the budget is split."""
    facts = {
        "Guarantee": _guarantee(plan),
        "Problem": _problem(plan),
        "Each step": _step(plan),
        "Noise": _noise(plan),
        "Error": _error(plan),
    }
    lines = [f"Plan: {plan.method}, {plan.iterations} steps, {plan.allocation} split of the budget"]
    lines += [f"  {name:<10} {text}" for name, text in facts.items()]
    return "\n".join([*lines, "", *_table(plan)])


def _guarantee(plan: "Plan") -> str:
    return (
        f"differential privacy with {plan.budget}, when one record is replaced (n is public); "
        f"spends {plan.spent:.12g} of {plan.budget.amount:g}"
    )


def _problem(plan: "Plan") -> str:
    problem = plan.problem
    intercept = ", intercept" if problem.intercept else ""
    return (
        f"{type(problem.loss).__name__} loss, ridge {problem.ridge:g}, n = {problem.n}, d = {problem.d}{intercept}; "
        f"records in {problem.domain}; mu = {problem.mu:.6g}, L = {problem.L:.6g}"
    )


def _step(plan: "Plan") -> str:
    if plan.sampling.is_full:
        return "reads all records"
    return f"reads {plan.batch} of {plan.problem.n} records, drawn afresh without replacement and kept secret"


def _noise(plan: "Plan") -> str:
    text = f"{plan.mechanism.name.capitalize()}, for a sensitivity of {plan.sensitivity_bound:g} / {plan.batch}"
    if plan.sensitivity == "state":
        text += ", rescaled by the sensitivity at each step's public point"
    return text


def _error(plan: "Plan") -> str:
    if plan.error is None:
        return "no theorem at hand covers these steps; the guarantee does not depend on one"
    if plan.objective == "exact":
        return f"E F(x_T) - F* = {plan.error:.6g} on the assumed quadratic, if F(x_0) - F* = {plan.start_gap:g}"
    text = f"E F(x_T) - F* <= {plan.error:.6g}, if F(x_0) - F* <= {plan.start_gap:g}"
    if plan.sensitivity == "state" and not plan.problem.has_bounded_sensitivity:
        text += " and predictions stay in the declared range of the target"
    return text


def _table(plan: "Plan") -> list[str]:
    """List the expenses, the first and last step, every restart, and evenly spaced steps between."""
    unit = plan.mechanism.unit
    total = sum(expense.cost for expense in plan.expenses) + plan.costs.sum()
    lines = [f"  {'step':>6} {'step size':>12} {'momentum':>9} {unit:>12} {'share':>7} {'noise scale':>12}"]
    for expense in plan.expenses:
        lines.append(
            f"  {'before':>6} {'':>12} {'':>9} {expense.cost:>12.6g} {expense.cost / total:>7.2%}  {expense.note}"
        )
    spaced = np.linspace(0, plan.iterations - 1, min(_ROWS, plan.iterations)).round().astype(int)
    for t in np.union1d(spaced, np.flatnonzero(plan.steps.restart)):
        mark = "  restart" if plan.steps.restart[t] else ""
        lines.append(
            f"  {t + 1:>6} {plan.steps.alpha[t]:>12.6g} {plan.steps.beta[t]:>9.4f} "
            f"{plan.costs[t]:>12.6g} {plan.costs[t] / total:>7.2%} {plan.scales[t]:>12.6g}{mark}"
        )
    return [*lines, f"  {'total':>6} {'':>12} {'':>9} {total:>12.6g} {1:>7.2%}"]
