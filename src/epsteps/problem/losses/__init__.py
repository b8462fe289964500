"""Losses of a linear model: value and derivative in the margin, and their public constants.

A loss sees a record through its margin ``u'x`` (one for each class, where there are many) and its target. What the
guarantee needs of it are two constants, the steepest slope and the largest curvature, and the slope's certified bound
when margins are known to stay within a reach. A target outside what was declared is mapped inside, never reported.
"""

from epsteps.problem.losses.classification import Logistic, SmoothedHinge
from epsteps.problem.losses.protocol import Loss
from epsteps.problem.losses.regression import PseudoHuber, Squared
from epsteps.problem.losses.softmax import Softmax

# The library's own: their constants are proved, and their slopes keep within them in solvers, too.
OWN = (Logistic, SmoothedHinge, Softmax, Squared, PseudoHuber)

__all__ = ["OWN", "Logistic", "Loss", "PseudoHuber", "SmoothedHinge", "Softmax", "Squared"]
