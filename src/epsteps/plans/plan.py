"""The plan: everything that is decided before the data is opened, and its certificate."""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.random import Generator as Random

from epsteps.budgets import Budget, Cost, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.plans import notation
from epsteps.plans import notation as page
from epsteps.plans.notation import PlanFormatError
from epsteps.plans.requests import Gradient, Request
from epsteps.plans.utility import Typical, Utility
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down
from epsteps.problem.sampling import FULL, Sampling
from epsteps.problem.weighting import Weighting


class OverspentError(PlanFormatError):
    """The scales of a plan spend more than its budget: no certificate follows from them."""


class Aim(NamedTuple):
    """The objective whose minimum a run is near, without noise; and the tilts that moved it, where it was tilted.

    A problem, with weights for long records if it has any; noise and scale of each tilt of the sum, times what its
    minimum counts in the model.
    """

    problem: Problem
    weighting: Weighting | None = None
    tilts: tuple[tuple[Mechanism, float], ...] = ()


@dataclass(frozen=True)
class Charge:
    """One release: what it is, what it costs, and the scale and the name of its noise."""

    what: str
    cost: Cost
    scale: float
    noise: str

    def to_dict(self) -> dict[str, Any]:
        """Return the charge as JSON knows it."""
        cost = {"cost": self.cost.amount, "unit": self.cost.unit}
        return {"what": self.what, **cost, "scale": self.scale, "noise": self.noise}


@dataclass(frozen=True, eq=False)
class Published:
    """What a conversation publishes: points, one row each, and other numbers by name."""

    path: np.ndarray
    extras: dict[str, np.ndarray] = field(default_factory=dict)


class Example(NamedTuple):
    """A request as an audit makes it, what it is said to cost, and what that takes for granted."""

    request: Request
    cost: Cost
    assumes: str = ""


# A method: it asks for protected numbers, gets them published, computes, and asks again.
Conversation = Generator[Request, np.ndarray, Published]


class Plan:
    """A private run, decided: nothing in it depends on data, and a changed plan is a new plan, checked again.

    A kind of plan is a frozen dataclass (with ``eq=False, repr=False``) below this class. It lists its fields, which
    are numbers, texts or tuples of them besides ``problem`` and ``budget``; what it will release (``charges``); and how
    it asks for that (``conversation``). Everything else is written here, once. JSON knows every kind by the name of its
    class, or by its ``tag``. One that checks its own fields calls ``super().__post_init__()``.
    """

    kinds: ClassVar[dict[str | None, type["Plan"]]] = {}
    tag: ClassVar[str | None]
    # How fields are read from JSON, and written, that are not plain.
    readers: ClassVar[dict[str, Callable[[Any], Any]]] = {}
    writers: ClassVar[dict[str, Callable[[Any], Any]]] = {}

    # The kinds of requests that a conversation makes.
    reads: ClassVar[tuple[type[Request], ...]] = (Gradient,)
    # Whether a seeded run may be an experiment in floats.
    has_floats: ClassVar[bool] = False
    # Whether a model's file must have what is published besides; files of before have not all of it.
    needs_besides: ClassVar[bool] = True
    # Whether it is about the records of a fit, as a data holder's service prepares them: then it may be posted there.
    travels: ClassVar[bool] = True

    problem: Problem
    budget: Budget
    method: str  # its name, for people

    def __post_init__(self) -> None:
        self.require_affordable()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "tag" not in vars(cls):
            cls.tag = cls.__name__
        known = Plan.kinds.setdefault(cls.tag, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(
                f"there is a kind of plan of the name {cls.tag!r}: {known.__module__}.{known.__qualname__}."
            )
        Plan.kinds[cls.tag] = cls

    def even_charges(self, count: int) -> list[Charge]:
        """Return charges for so many gradients: the budget in equal parts, spent on the noise that fits best.

        Raises if that is too little for the noise to be drawn.
        """
        full = Sampling(self.problem.n, self.problem.n)
        noise = mechanisms.smallest(self.problem, self.budget.kind(full))
        # Rounded down, so that the certificate, which is rounded up, stays within the budget.
        costs = down(self.budget.allocate(None, count, noise, full), 1e-9)
        Gradient.at(self.problem, noise, np.zeros(self.problem.dimension), float(np.min(costs))).require_drawable()
        scales = noise.scales(self.problem.typical_sensitivity(noise.norm), costs, FULL)
        parts = enumerate(zip(costs.tolist(), scales.tolist(), strict=True), start=1)
        return [Charge(f"gradient {number}", noise.kind(cost), scale, noise.name) for number, (cost, scale) in parts]

    def gradient(self, x: np.ndarray, charge: Charge) -> Gradient:
        """Ask for the gradient at a public point, for what was charged for it."""
        return Gradient.at(self.problem, mechanisms.named(charge.noise), x, charge.cost.amount)

    @property
    def charges(self) -> Sequence[Charge]:
        """What is released, in order."""
        raise NotImplementedError

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page: what each release does."""
        return {"Problem": page.problem_fact(self.problem, self.problem.ridge)}

    def choices(self, extras: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Return what a run that published this chose by it, in words: nothing where all was decided beforehand."""
        return {}

    @cached_property
    def utility(self) -> Utility:
        """What the model is expected to be worth, from public numbers; unknown where floats do not hold them."""
        with np.errstate(all="ignore"):
            try:
                return self.worth()
            except (ArithmeticError, np.linalg.LinAlgError):
                return Plan.worth(self)

    def worth(self) -> Utility:
        """Return what the model is expected to be worth; here nothing is known but what the model 0 costs."""
        return Typical(self.problem).utility(None, None)

    def utility_after(self, path: np.ndarray, extras: Mapping[str, np.ndarray]) -> Utility:
        """Return what the model of a run that published this is expected to be worth, by public and published numbers.

        ``path`` has all published points, the model as the last, and ``extras`` what else was published. Here it is
        what was expected before.
        """
        return self.utility

    @property
    def proved_error(self) -> float | None:
        """What E F(x) - F* is proved not to exceed, as planning backwards asks for it."""
        return self.utility.bound

    def intervals(
        self,
        path: np.ndarray,
        extras: dict[str, np.ndarray],
        draw: Callable[..., np.ndarray],
        generator: Random,
        *,
        level: float | None = None,
        target: str | None = None,
        contrasts: Any = None,
        names: Sequence[str] | None = None,
    ) -> Any:
        """Return intervals for a published model's coefficients, from published numbers alone: see ``Run.intervals``.

        ``path`` has all published points, the model as the last, and ``extras`` what else was published. ``draw``
        draws noise of a mechanism's law, and the generator other numbers, from a public seed.
        """
        raise ValueError(f"{self.method} gives no intervals. Use method='objective', with intervals=0.95.")

    def aim(self, extras: dict[str, np.ndarray]) -> Aim:
        """Return what a run that published this minimised, without noise: what intervals are for."""
        return Aim(self.problem)

    @property
    def guessed_half_width(self) -> float | None:
        """What half of the widest measured interval for a coefficient is guessed to be; None where none is bought."""
        return None

    @property
    def besides(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what is published besides the model and which its intervals are computed from, by their names."""
        return {}

    def conversation(self) -> Conversation:
        """Return a generator of requests that sees published numbers only."""
        raise NotImplementedError

    def examples(self) -> Sequence[Example]:
        """Return requests of a typical run, for audits; none if those are typical that answers of 0 lead to."""
        return ()

    def conversations(self, start: np.ndarray) -> Sequence[Conversation]:
        """Return those of independent runs, one for each column of the start; here every run starts at 0."""
        return [self.conversation() for _ in range(start.shape[1])]

    def require_options(self, *, start: object, arithmetic: str) -> None:
        """Raise for options of a run that only plans of steps have."""
        known = {"start": start is None, "arithmetic": arithmetic in ("auto", "exact")}
        for name, value in {"start": start, "arithmetic": arithmetic}.items():
            if not self.has_floats and not known[name]:
                raise ValueError(f"{name} is for plans of steps, not for {self.method}. Leave it out, got {value!r}.")

    def note(self, runs: int) -> str:
        """Return what a ledger says of so many runs."""
        return f"{self.method}, {self.extent}, {runs} run(s)"

    def require_executable(self) -> None:
        """Raise unless the run is certain to end on this machine, whatever the records: by public numbers alone."""

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together: computed from the scales and rounded up.

        Written here for charges in one currency. A conversation may divide their total anew by what was published, as
        the meter of the loop allows: so they are composed as costs on which others depend.
        """
        costs = [charge.cost for charge in self.charges]
        (kind,) = {type(cost) for cost in costs}
        return self.budget.spending(np.zeros(0), kind, np.tile([cost.amount for cost in costs], repetitions))

    @cached_property
    def spent(self) -> float:
        """Epsilon (or rho, for a budget of rho) of everything that is published. Never above the budget."""
        return self.spending().amount

    @property
    def allowance(self) -> Sequence[Cost]:
        """What a run may ask for in all: the meter of the loop holds every request against it."""
        return [charge.cost for charge in self.charges]

    @property
    def requests(self) -> int:
        """How many requests a run makes at most, for a progress bar."""
        return len(self.charges)

    @property
    def points(self) -> int:
        """How many points are published at most, besides the first."""
        return self.requests

    @property
    def extent(self) -> str:
        """How much is released, in words: for the page and for the notes of a ledger."""
        return f"{len(self.charges)} release(s)"

    @property
    def title(self) -> str:
        """The first line of the plan's page."""
        return f"{self.method}, {len(self.charges)} release{'s' * (len(self.charges) > 1)}"

    def require_affordable(self) -> None:
        """Raise if what the plan will execute costs more than its budget."""
        if self.spent > self.budget.amount:
            raise OverspentError(
                f"the plan's scales spend {self.spent!r}, more than its budget {self.budget.amount!r}. "
                "Make the plan anew with epsteps.plan."
            )

    def certificate(self) -> dict[str, Any]:
        """Return what follows from the plan: what a data holder approves."""
        return {
            "adjacency": "replace one record",
            "spent": self.spent,
            **{f"release {number}": charge.to_dict() for number, charge in enumerate(self.charges, start=1)},
        }

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the table of the plan's page: its header, and its rows."""
        return page.charges_table(self)

    def to_json(self) -> str:
        """Return the plan as JSON; ``Plan.from_json`` reads it back and checks the certificate."""
        return json.dumps(notation.written(self), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a plan of any kind (a subclass reads its own); refuse one that does not certify what it says."""
        with notation.refusing():
            content = notation.parse(text)
            kind = Plan.kinds.get(content.get("kind"))
            if kind is None or not issubclass(kind, cls):
                raise PlanFormatError(
                    f"not a plan of the kind {cls.__name__}. Pass the text that its to_json returned."
                )
            plan = kind(**notation.read(kind, content))
            notation.compare(plan.certificate(), dict(content["certificate"]))
            return plan  # pyright: ignore[reportReturnType]

    def __str__(self) -> str:
        return page.text(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}; spends {self.spent:.6g} of {self.budget}>"

    def _repr_html_(self) -> str:
        return page.html(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())
