"""A method from outside the library, as its documentation would show one."""

from dataclasses import dataclass

import numpy as np

import epsteps as es
from epsteps.budgets import mechanisms


@dataclass(frozen=True, eq=False, repr=False)
class Descent(es.Plan):
    """A few gradients, each followed with a step of 1/L."""

    problem: es.Problem
    budget: es.Pure
    cost: float
    steps: int

    method = "outside descent"
    reads = (es.Gradient,)

    def __post_init__(self) -> None:
        self.require_affordable()

    @property
    def charges(self) -> list[es.Charge]:
        return [
            es.Charge(f"gradient {t + 1}", es.budgets.Epsilon(self.cost), 1.0, "laplace") for t in range(self.steps)
        ]

    @property
    def facts(self) -> dict[str, str]:
        return {"Published": "every gradient"}

    def spending(self, repetitions: int = 1) -> es.Pure:
        return es.Pure(self.cost * self.steps * repetitions)

    def conversation(self):
        path = [np.zeros(self.problem.dimension)]
        for _ in range(self.steps):
            gradient = yield es.Gradient.at(self.problem, mechanisms.named("laplace"), path[-1], self.asked_cost)
            path.append(path[-1] - gradient / self.problem.L)
        return es.Published(np.array(path))

    @property
    def asked_cost(self) -> float:
        """What a gradient is really asked for."""
        return self.cost


@dataclass(frozen=True, eq=False, repr=False)
class EvenDescent(es.Plan):
    """As above, with the budget in equal parts and the noise that fits best."""

    problem: es.Problem
    budget: es.budgets.Budget
    steps: int

    method = "even descent"

    @property
    def charges(self) -> list[es.Charge]:
        return self.even_charges(self.steps)

    def conversation(self):
        path = [np.zeros(self.problem.dimension)]
        for charge in self.charges:
            gradient = yield self.gradient(path[-1], charge)
            path.append(path[-1] - gradient / self.problem.L)
        return es.Published(np.array(path))
