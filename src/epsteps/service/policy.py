"""The holder's policy: what may be asked at all, what is approved without a person, and what each analyst may spend.

It is a TOML file. All amounts are in the unit of the dataset's budget (epsilon, or rho). Every number that decides is
public: a plan's cost and kind, and what was charged before.
"""

import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from epsteps.budgets import Budget
from epsteps.budgets.budget import Price, round_down
from epsteps.ledger.chain import Terms
from epsteps.plans.plan import Plan
from epsteps.problem import validate
from epsteps.problem.losses import Loss
from epsteps.problem.problem import Problem
from epsteps.service.wire import Refusal, invalid


@dataclass(frozen=True)
class Plans:
    """Plans that are approved without a person: up to so much each, for one analyst, and for all within a day."""

    per_plan: float = 0.0
    per_analyst: float = 0.0
    per_day: float = 0.0


@dataclass(frozen=True)
class Sessions:
    """Sessions that are opened without a person: with an allowance up to this; and the most that one answer costs."""

    per_session: float = 0.0
    per_step: float | None = None


@dataclass(frozen=True)
class Allowed:
    """What may be asked at all; None stands for everything. ``plans`` are names of classes, such as "StepsPlan"."""

    plans: tuple[str, ...] | None = None
    losses: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Limits:
    """What one token, and all together, may ask of the machine.

    ``rate`` is in requests a second, ``body`` in bytes, ``slow`` in seconds until a request must have arrived,
    ``certify`` in seconds that the check of a plan may take; ``waiting`` is how many requests an analyst may have that
    are not finished, ``queue`` how many there may be in all; ``stored`` how many bytes one may have stored, ever.
    ``connections`` is how many there may be, of which one token has at most ``at_once`` in use.
    """

    queue: int = 64
    waiting: int = 8
    rate: float = 100.0
    body: int = 2**24
    stored: int = 2**30
    slow: float = 10.0
    certify: float = 30.0
    connections: int = 256
    at_once: int = 16


@dataclass(frozen=True)
class Policy:
    """What a policy file says; without one a person decides about everything."""

    plans: Plans = field(default_factory=Plans)
    sessions: Sessions = field(default_factory=Sessions)
    allowed: Allowed = field(default_factory=Allowed)
    limits: Limits = field(default_factory=Limits)
    # What each analyst may spend in all; "default" is for those who are not named. Without it: the dataset's budget.
    allowances: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def from_dict(content: dict[str, Any]) -> "Policy":
        """Return the policy that a file's tables say."""
        kinds = {"plans": Plans, "sessions": Sessions, "allowed": Allowed, "limits": Limits}
        unknown = [name for name in content if name not in (*kinds, "allowances")]
        if unknown:
            raise ValueError(f"a policy has the tables {', '.join(kinds)} and allowances, got {unknown[0]!r}.")
        parts = {name: _part(kind, content[name]) for name, kind in kinds.items() if name in content}
        allowances = {name: validate.positive(name, amount) for name, amount in content.get("allowances", {}).items()}
        return Policy(**parts, allowances=allowances)

    def allowance(self, analyst: str, budget: Budget) -> Budget:
        """Return what an analyst may spend of a dataset's budget: an account below the dataset's."""
        amount = self.allowances.get(analyst, self.allowances.get("default"))
        return budget if amount is None or amount >= budget.amount else with_amount(budget, amount)

    def require_allowed(self, problem: Problem, columns: tuple[str, ...], target: str | None) -> None:
        """Refuse losses, columns and targets that may not be asked for."""
        _require_listed("loss", [Loss.kinds.name_of(problem.loss) or "?"], self.allowed.losses)
        _require_listed("column", columns, self.allowed.columns)
        _require_listed("target", [str(target)], self.allowed.targets)

    def require_kind(self, plan: Plan) -> None:
        """Refuse kinds of plans that may not be asked for."""
        _require_listed("kind of plan", [type(plan).__name__], self.allowed.plans)

    def approves(self, terms: Terms, price: Price, of_analyst: list[Price], of_day: list[Price]) -> bool:
        """Whether a plan of this price is approved without a person, given what was charged before."""
        bounds = ((self.plans.per_plan, []), (self.plans.per_analyst, of_analyst), (self.plans.per_day, of_day))
        return all(self._within(terms, amount, [*before, price]) for amount, before in bounds)

    def opens(self, terms: Terms, allowance: Budget) -> bool:
        """Whether a session with this allowance is opened without a person."""
        return self._within(terms, self.sessions.per_session, [allowance])

    def require_step(self, terms: Terms, price: Price) -> None:
        """Refuse an answer that costs more than one may."""
        amount = self.sessions.per_step
        if amount is not None and not self._within(terms, amount, [price]):
            raise Refusal(403, "step-too-dear", "one answer may not cost as much.", asked=price.to_dict(), most=amount)

    @staticmethod
    def _within(terms: Terms, amount: float, prices: list[Price]) -> bool:
        return amount > 0 and tally(with_amount(terms.budget, amount), terms, prices).fits


def read_tables(path: Path) -> dict[str, Any]:
    """Return the tables of a policy's file: they are read once, for every process of a service."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        Policy.from_dict(content)
    except (tomllib.TOMLDecodeError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return content


def with_amount(budget: Budget, amount: float) -> Budget:
    """Return a budget of the same kind of which this much may be spent; the field of that has the name of its unit."""
    return replace(budget, **{budget.unit: amount})  # pyright: ignore[reportArgumentType]


def tally(budget: Budget, terms: Terms, prices: list[Price]) -> Any:
    """Return what prices amount to under a budget, by a dataset's rule; refuse prices that it cannot hold."""
    try:
        return replace(terms, budget=budget).tally(prices)
    except (TypeError, ValueError) as error:
        raise invalid(str(error)) from None


def require_room(budget: Budget, terms: Terms, before: list[Price], price: Price, whose: str) -> None:
    """Refuse a price that does not fit an account below the dataset's."""
    if not tally(budget, terms, [*before, price]).fits:
        known = tally(budget, terms, before)
        remaining = max(round_down(known.limit - known.spent, terms.amounts), 0.0)
        raise Refusal(
            403,
            "allowance-exceeded",
            f"it does not fit what is left of the allowance of the {whose}.",
            asked=price.to_dict(),
            remaining=remaining,
            unit=budget.unit,
        )


def _part(kind: type, content: Any) -> Any:
    """Return one table of the file; lists become tuples, and numbers are checked."""
    names = {entry.name: entry for entry in fields(kind)}
    if not isinstance(content, dict) or any(name not in names for name in content):
        raise ValueError(f"a table of a policy has the entries {', '.join(names)}, got {content!r}.")
    values = {}
    for name, value in content.items():
        if isinstance(value, list):
            values[name] = tuple(map(str, value))
        elif isinstance(names[name].default, int):
            values[name] = validate.integer(name, value)
        else:
            values[name] = validate.positive(name, value)
    return kind(**values)


def _require_listed(what: str, asked: Any, allowed: tuple[str, ...] | None) -> None:
    for name in asked:
        if allowed is not None and name not in allowed:
            raise Refusal(403, "not-allowed", f"the holder's policy does not allow this {what}.", what=what, asked=name)
