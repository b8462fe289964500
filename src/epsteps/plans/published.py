"""What the plans share that are not a sequence of steps: a list of what is released, as text and as JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol, TypeVar

import numpy as np

from epsteps.budgets import Budget
from epsteps.budgets.costs import Cost, Epsilon, Mu, Rho
from epsteps.plans import plan_json
from epsteps.plans.plan_json import PlanFormatError
from epsteps.problem.problem import Problem

_FORMAT = 1


@dataclass(frozen=True)
class Item:
    """One release: what it is, what it costs in which unit, and the scale of its noise."""

    what: str
    cost: float
    unit: str
    scale: float
    noise: str


@dataclass(frozen=True)
class Charge:
    """One release: what it is, what it costs, and the scale and the name of its noise."""

    what: str
    cost: Cost
    scale: float
    noise: str


_COSTS: dict[str, type[Cost]] = {kind.unit: kind for kind in (Epsilon, Rho, Mu)}


def charges(items: Iterable[Item]) -> tuple[Charge, ...]:
    """Return releases with their costs as values."""
    return tuple(Charge(item.what, _COSTS[item.unit](item.cost), item.scale, item.noise) for item in items)


class PublishedPlan(Protocol):
    """What a run, a ledger and a data holder ask of a plan. Its other fields are numbers, texts or tuples of them."""

    @property
    def problem(self) -> Problem:
        """The public facts."""
        ...

    @property
    def budget(self) -> Budget:
        """What may be spent."""
        ...

    @property
    def method(self) -> str:
        """Name of the method, for people."""
        ...

    @property
    def items(self) -> Sequence[Item]:
        """What is released, in order."""
        ...

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page: what each release does, and what error is expected."""
        ...

    @property
    def charges(self) -> Sequence[Charge]:
        """What is released, in order, with costs as values."""
        ...

    @property
    def points(self) -> int:
        """How many points are published at most, besides the first."""
        ...

    @property
    def guessed_error(self) -> float | None:
        """A public guess of how far the model's objective is above its minimum; None where there is none."""
        ...

    def noise_covariance(self, curvature: np.ndarray) -> np.ndarray:
        """Return the covariance of the noise in the last published point, if F has this curvature: a guess."""
        ...

    def to_json(self) -> str:
        """Return the plan as JSON."""
        ...

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together: computed from the scales and rounded up."""
        ...


_P = TypeVar("_P", bound=PublishedPlan)


def problem_fact(problem: Problem, ridge: float) -> str:
    """Return the line of a plan's page about its problem, minimised with this ridge."""
    more = f", raised to {ridge:g}" if ridge > problem.ridge else ""
    return (
        f"{type(problem.loss).__name__} loss, ridge {problem.ridge:g}{more}, n = {problem.n}, "
        f"d = {problem.d}{', intercept' * problem.intercept}; records in {problem.domain}"
    )


def describe(plan: PublishedPlan) -> str:
    """Return the plan as a page of text that a data holder can read and sign."""
    spent = plan.spending().amount
    guarantee = (
        f"differential privacy with {plan.budget}, when one record is replaced (n is public); "
        f"spends {spent:.12g} of {plan.budget.amount:g}"
    )
    lines = [f"Plan: {plan.method}, {len(plan.items)} release{'s' * (len(plan.items) > 1)}"]
    lines += [f"  {name:<10} {text}" for name, text in ({"Guarantee": guarantee} | plan.facts).items()]
    lines += ["", f"  {'release':<34} {'cost':>12} {'unit':>8} {'noise scale':>12}  noise"]
    for item in plan.items:
        lines.append(f"  {item.what:<34} {item.cost:>12.6g} {item.unit:>8} {item.scale:>12.6g}  {item.noise}")
    return "\n".join(lines)


def certificate(plan: PublishedPlan) -> dict[str, Any]:
    """Return what follows from the plan: what a data holder approves."""
    return {
        "adjacency": "replace one record",
        "spent": plan.spending().amount,
        **{f"release {number}": asdict(item) for number, item in enumerate(plan.items, start=1)},
    }


def dumps(plan: PublishedPlan) -> str:
    """Return the plan as indented JSON; ``loads`` reads it back and checks the certificate."""
    names = [entry.name for entry in fields(plan)]  # pyright: ignore[reportArgumentType]
    rest = {name: plan_json.plain(getattr(plan, name)) for name in names if name not in ("problem", "budget")}
    content = {
        "epsteps_plan": _FORMAT,
        "kind": type(plan).__name__,
        "problem": plan_json.problem_to_dict(plan.problem),
        "budget": plan_json.to_dict(plan.budget),
        **rest,
        "certificate": certificate(plan),
    }
    return json.dumps(content, indent=1, allow_nan=False)


def loads(text: str, kind: type[_P]) -> _P:
    """Read a plan of this kind, or raise a ``PlanFormatError`` if its contents do not certify what it says."""
    with plan_json.refusing():
        content = plan_json.parse(text)
        if content.get("kind") != kind.__name__:
            raise PlanFormatError(f"not a plan of the kind {kind.__name__}. Pass the text that its to_json returned.")
        names = [entry.name for entry in fields(kind)]  # pyright: ignore[reportArgumentType]
        plan_json.require_keys(content, ("epsteps_plan", "kind", "certificate", *names))
        problem = plan_json.problem_from_dict(content["problem"])
        budget = plan_json.budget_from_dict(content["budget"])
        rest = {name: plan_json.unplain(content[name]) for name in names if name not in ("problem", "budget")}
        plan = kind(problem=problem, budget=budget, **rest)  # pyright: ignore[reportCallIssue]
        plan_json.compare(certificate(plan), dict(content["certificate"]))
        return plan
