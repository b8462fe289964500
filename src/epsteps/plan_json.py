"""A plan as JSON: what was decided, and the certificate that must follow from it when it is read back."""

import json
import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from epsteps.budgets import Pure
from epsteps.domain import Ball
from epsteps.losses import Logistic, Squared
from epsteps.mechanisms import Laplace
from epsteps.methods import Steps
from epsteps.problem import Problem

if TYPE_CHECKING:
    from epsteps.planning import Plan

_FORMAT = 1
_PLAIN = ("method", "batch", "allocation", "sensitivity", "start_gap")


class PlanFormatError(ValueError):
    """A text is not a plan, or its certificate does not follow from its contents."""


def dumps(plan: "Plan") -> str:
    """Return the plan as indented JSON."""
    steps = {name: getattr(plan.steps, name).tolist() for name in ("alpha", "beta", "gamma", "restart")}
    content = {
        "epsteps_plan": _FORMAT,
        "problem": _problem_to_dict(plan.problem),
        "budget": {"type": "Pure", "epsilon": plan.budget.epsilon},
        "mechanism": plan.mechanism.name,
        **{name: getattr(plan, name) for name in _PLAIN},
        "steps": steps,
        "scales": plan.scales.tolist(),
        "certificate": certificate(plan),
    }
    return json.dumps(content, indent=1, allow_nan=False)


def certificate(plan: "Plan") -> dict[str, Any]:
    """Return what follows from the plan: what a data holder approves."""
    return {
        "adjacency": "replace one record",
        "iterations": plan.iterations,
        "sensitivity_bound": plan.sensitivity_bound,
        "spent": plan.spent,
        "error": plan.error,
        "costs": plan.costs.tolist(),
    }


def read(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of the plan in ``text``, and the certificate that it states."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise PlanFormatError(f"not a plan: {error}. Pass the text that Plan.to_json returned.") from None
    if not isinstance(content, dict) or content.get("epsteps_plan") != _FORMAT:
        raise PlanFormatError(f"not a plan of format {_FORMAT}: 'epsteps_plan' must be {_FORMAT}.")
    try:
        entries = {
            "problem": _problem_from_dict(content["problem"]),
            "budget": _only(content["budget"], "type", {"Pure": Pure}),
            "mechanism": {Laplace.name: Laplace()}[content["mechanism"]],
            "steps": Steps(**content["steps"]),
            "scales": np.array(content["scales"], dtype=float),
            **{name: content[name] for name in _PLAIN},
        }
        return entries, dict(content["certificate"])
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise PlanFormatError(f"not a complete plan: {error!r}. Pass the text that Plan.to_json returned.") from None


def check(plan: "Plan", stated: dict[str, Any]) -> "Plan":
    """Return the plan if its certificate is the stated one, or raise."""
    actual = certificate(plan)
    for name in sorted(actual.keys() | stated.keys()):
        if not _agree(actual.get(name), stated.get(name)):
            raise PlanFormatError(
                f"the plan was changed: its {name} says {_short(stated.get(name))}, but its contents give "
                f"{_short(actual.get(name))}. Make it anew with epsteps.plan."
            )
    return plan


def _problem_to_dict(problem: Problem) -> dict[str, Any]:
    loss = problem.loss
    settings = {entry.name: _plain(getattr(loss, entry.name)) for entry in fields(loss)}  # type: ignore[arg-type]
    return {
        "loss": {"type": type(loss).__name__, **settings},
        "domain": {
            "type": "Ball",
            "radius": problem.domain.radius,
            "norm": _norm_to_json(problem.domain.norm),
        },
        **{name: getattr(problem, name) for name in ("ridge", "n", "d", "intercept", "smoothness")},
    }


def _problem_from_dict(content: dict[str, Any]) -> Problem:
    rest = dict(content)
    domain = dict(rest.pop("domain"))
    domain["norm"] = math.inf if domain["norm"] == "inf" else domain["norm"]
    loss = {k: tuple(v) if isinstance(v, list) else v for k, v in rest.pop("loss").items()}
    return Problem(
        _only(loss, "type", {"Logistic": Logistic, "Squared": Squared}),
        _only(domain, "type", {"Ball": Ball}),
        **rest,
    )


def _only(content: dict[str, Any], key: str, kinds: dict[str, Any]) -> Any:
    """Build the object that ``content[key]`` names from the rest of ``content``."""
    rest = dict(content)
    return kinds[rest.pop(key)](**rest)


def _norm_to_json(norm: float) -> float | str:
    return "inf" if norm == math.inf else norm


def _plain(value: Any) -> Any:
    """Turn tuples and NumPy scalars into what JSON knows."""
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value


def _agree(actual: Any, stated: Any) -> bool:
    numbers = (int, float, list)
    if isinstance(actual, numbers) and isinstance(stated, numbers):
        try:
            return np.shape(actual) == np.shape(stated) and bool(np.allclose(actual, stated, rtol=1e-9, atol=0))
        except (ValueError, TypeError):
            return False
    return actual == stated


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
