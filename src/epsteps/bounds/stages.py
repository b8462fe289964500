"""Bounds from certificates, for steps that are constant between restarts."""

import numpy as np

from epsteps.bounds.certificates import lasting_certificate
from epsteps.bounds.recursion import Bound, NoBoundError
from epsteps.bounds.steps import Steps


def heavy_ball(steps: Steps, mu: float, L: float) -> Bound:
    """Bound heavy ball (gamma = 0), alpha and beta constant between restarts, by a certificate (upper, not tight).

    ``V_t <= rho² V_{t-1} + 2R P`` and V_0 <= start_factor E_0, with the constants of ``lasting_certificate``; a restart
    costs start_factor again. Raises ``NoBoundError`` for most settings with beta > ½, the paper's own among them.
    """
    if np.any(steps.gamma) or not np.all(steps.beta > 0):
        raise NoBoundError("no bound covers these steps: heavy ball needs gamma = 0 and beta > 0.")
    return _certified("heavy_ball", steps, mu, L)


def nesterov_any_momentum(steps: Steps, mu: float, L: float) -> Bound:
    """Bound Nesterov's method (gamma = beta) whose momentum is not the one for mu, by a certificate (upper, not tight).

    As ``heavy_ball``; it serves methods that guess a larger strong convexity, such as ``restarted_nesterov``.
    """
    if not np.array_equal(steps.gamma, steps.beta) or not np.all(steps.beta > 0):
        raise NoBoundError("no bound covers these steps: Nesterov's method needs gamma = beta > 0.")
    return _certified("nesterov", steps, mu, L)


def _certified(method: str, steps: Steps, mu: float, L: float) -> Bound:
    """Join the certificates of the stages between restarts."""
    starts = np.flatnonzero(steps.restart[1:]) + 1
    contraction, gain, factors = np.empty(len(steps)), np.empty(len(steps)), []
    for stage in np.split(np.arange(len(steps)), starts):
        alpha, beta = float(steps.alpha[stage[0]]), float(steps.beta[stage[0]])
        if not (np.all(steps.alpha[stage] == alpha) and np.all(steps.beta[stage] == beta)):
            raise NoBoundError("no bound covers these steps: alpha and beta may change only at a restart.")
        found = lasting_certificate(method, alpha, beta, float(mu), float(L)).bound(len(stage))
        contraction[stage], gain[stage] = found.contraction, found.gain
        factors.append(found.start_factor)
        if stage[0] > 0:
            contraction[stage[0]] *= found.start_factor
    return Bound(contraction, gain, factors[0])
