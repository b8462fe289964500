"""The trials of a private search: what they will cost, how the best is found, and how one is made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from epsteps.budgets import Pure
from epsteps.budgets.pure import LAPLACE
from epsteps.budgets.selection import FACTOR, Selection
from epsteps.estimators.regression import PrivateRegressor
from epsteps.noise import Source
from epsteps.plans.plan import Plan
from epsteps.problem.sampling import Sampling

# A record adds up to this much to the score of a classifier (1 if its label is found), and of a regressor.
COUNT, FINE = 1, 2**20


@dataclass(frozen=True, eq=False)
class SearchPlan:
    """What a search will do and cost, from public numbers; ``print`` it for the data holder.

    A trial is one fit to ``fitted`` records and one noisy score of ``held_out`` others. A record is in one part only,
    so that the trial costs the larger of both, not their sum.
    """

    budget: Pure
    selection: Selection
    candidates: tuple[dict[str, Any], ...]
    plans: tuple[Plan, ...]
    held_out: int
    unit: int
    scale: float

    @property
    def fitted(self) -> int:
        """Number of records that each trial is fitted to."""
        return self.plans[0].problem.n

    @property
    def trial(self) -> Pure:
        """What one trial costs, computed from the noise that will be drawn."""
        scored = np.nextafter(self.unit / self.scale, np.inf)
        return Pure(max(float(scored), *(plan.spending().amount for plan in self.plans)))

    @property
    def spent(self) -> Pure:
        """What the search costs."""
        return self.selection.cost(self.trial)

    def __str__(self) -> str:
        count = len(self.candidates)
        lines = {
            "Search": f"best of a random number of trials, {self.selection.trials} on average (geometric, kept secret)",
            "grid": f"{count} candidates, one at random in each trial",
            "chance that a candidate is never tried": f"{self.selection.missed(count):.3g}",
            "a trial": f"fit to {self.fitted} records, noisy score of {self.held_out} others",
            "noise of the score": f"{self.scale / self.unit / self.held_out:.3g} (Laplace scale)",
            "cost of a trial": str(self.trial),
            "cost of the search": f"{self.spent}, {FACTOR} times that of a trial",
            "published": "best_params_, best_estimator_ and best_score_: nothing of the other trials",
        }
        width = max(map(len, lines))
        return "\n".join(f"{name:<{width}}  {line}" for name, line in lines.items())


class Trial(NamedTuple):
    """One outcome: a noisy score, in whole units, and what it is the score of."""

    score: int
    outcome: Any


def best_of(selection: Selection, source: Source, trial: Callable[[], Trial]) -> Trial:
    """Return the best of a geometric number of trials, the first among equals; see ``Selection`` for what it costs."""
    best = trial()
    while source.subset(Sampling(selection.trials, 1))[0] != 0:  # goes on with probability 1 - 1/trials, exactly
        other = trial()
        best = other if other.score > best.score else best
    return best


def models_of(estimator: Any, candidates: Sequence[Mapping[str, Any]], share: Pure) -> list[Any]:
    """Return the candidates as estimators, each with a trial's share of the budget."""
    return [_cloned(estimator).set_params(**candidate, epsilon=share.epsilon) for candidate in candidates]


def outward_scale(unit: int, epsilon: float) -> float:
    """Return the smallest Laplace scale of a score whose cost, rounded up, is at most epsilon."""
    scale = unit / epsilon
    while np.nextafter(unit / scale, np.inf) > epsilon:
        scale = float(np.nextafter(scale, np.inf))
    return scale


def make_trial(plan: SearchPlan, models: Sequence[Any], source: Source, fitting: Any, scoring: Any) -> Trial:
    """Fit a candidate at random, and score it with noise."""
    place = int(source.subset(Sampling(len(models), 1))[0])
    seed = int(source.subset(Sampling(2**31, 1))[0]) if source.seeded else None
    model = _cloned(models[place]).set_params(random_state=seed).fit(*fitting)
    noise = source.integers(LAPLACE, plan.scale, (1,))
    return Trial(int((noise + np.sum(points(model, *scoring)))[0]), (place, model))


@np.errstate(all="ignore")  # a warning would tell something about a record
def points(model: Any, X: Any, y: np.ndarray) -> np.ndarray:
    """Return what each record adds to the score: a whole number from 0 to the plan's unit."""
    targets, found = model.comparable(y), model.predict(X)
    if not isinstance(model, PrivateRegressor):
        return (found == targets).astype(np.int64)
    middle, half = model._range()
    error = np.clip((found - middle) / half, -1, 1) - np.clip(np.where(np.isnan(targets), 0.0, targets), -1, 1)
    return np.rint(FINE * (1 - (error / 2) ** 2)).astype(np.int64)


def _cloned(model: Any) -> Any:
    return clone(model)
