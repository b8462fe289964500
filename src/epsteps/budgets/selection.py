"""Selection that is paid for: what the best of a random number of private trials costs."""

import math
from dataclasses import dataclass

import numpy as np

from epsteps.budgets.pure import Pure
from epsteps.problem import validate

# What the best of a geometric number of trials costs, in trials.
FACTOR = 3


@dataclass(frozen=True)
class Selection:
    """The best of K independent trials, K geometric with mean ``trials``: P(K = k) = g (1-g)^(k-1) with g = 1/trials.

    Formal guarantee: if one trial (whatever it is, its score included) is epsilon-private, publishing the trial with
    the largest score, and nothing else, is 3 epsilon-private, however large the mean (Liu, Talwar 2019; Papernot,
    Steinke 2022, with eta = 1). It takes for granted that trials draw their randomness afresh, that K does not depend
    on the records, and that K stays secret: best of a known number k may cost up to k epsilon.

    Proof: let an outcome o have probability (or density) q(o) in one trial, and let u and v be the chances that a
    trial's score is at least that of o, and larger. Summed over K, with the first among equals taken, o is published
    with probability q(o) g / ((g + (1-g) u) (g + (1-g) v)). Neighbours change each of q(o), u and v by a factor of at
    most e^epsilon, in whatever direction, hence the fraction by at most e^(3 epsilon). No smaller constant holds for
    every g: some trials come as near to 3 as one likes when g is small.

    >>> str(Selection(trials=20).cost(Pure(0.25))), str(Selection(trials=20).trial(Pure(3.0)))
    ('pure epsilon = 0.75', 'pure epsilon = 1')
    """

    trials: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "trials", validate.integer("trials", self.trials, high=2**31))

    def cost(self, trial: Pure) -> Pure:
        """Return what publishing the best trial costs, rounded up, if one costs ``trial``."""
        return Pure(math.nextafter(FACTOR * _pure("trial", trial).epsilon, math.inf))

    def trial(self, budget: Pure) -> Pure:
        """Return the most that one trial may cost: ``cost`` of it is at most the budget."""
        epsilon = _pure("budget", budget).epsilon / FACTOR
        while self.cost(Pure(epsilon)).epsilon > budget.epsilon:
            epsilon = math.nextafter(epsilon, 0.0)
        return Pure(epsilon)

    def missed(self, candidates: int) -> float:
        """Return the chance that one of so many candidates, each equally likely in each trial, is never tried.

        >>> Selection(trials=20).missed(5)
        0.16666666666666666
        """
        others = validate.integer("candidates", candidates) - 1
        return others / (others + self.trials)

    def law(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the best trial's distribution, from that of one trial: outcomes from the worst to the best.

        >>> Selection(trials=2).law([0.5, 0.5])
        array([0.33333333, 0.66666667])
        """
        q = np.asarray(probabilities, dtype=float)
        at_least = np.cumsum(q[::-1])[::-1]
        above = np.append(at_least[1:], 0.0)
        g = 1 / self.trials
        return q * g / ((g + (1 - g) * at_least) * (g + (1 - g) * above))


def _pure(name: str, budget: object) -> Pure:
    if not isinstance(budget, Pure):
        raise TypeError(
            f"{name} must be Pure(epsilon): no other cost of a selection is proved here, got {budget!r}. Use "
            "Pure(epsilon), which a ledger of any kind takes."
        )
    return budget
