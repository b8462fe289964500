"""The paper's convergence theorems, corrected: each takes steps and constants, and returns a ``Bound``.

A method is data, so its theorem follows from the data: ``for_steps`` finds it. Assumptions common to all: F is
mu-strongly convex and L-smooth (0 < mu <= L), the noise of a step has mean zero given the past. P is half of its power
E|w|².
"""

import numpy as np

from epsteps.bounds.certificates import Bound, NoBoundError, lasting_certificate
from epsteps.bounds.steps import Steps, nesterov_momentum
from epsteps.problem.sampling import Sampling

_TOLERANCE = 1e-9


def gd(steps: Steps, mu: float, L: float) -> Bound:
    """Bound gradient descent with steps alpha_t < 2/L (upper; the noise term of one step is tight for curvature L).

    ``E_t <= (1 - mu alpha (2 - alpha L)) E_{t-1} + L alpha² P``. Proof: the descent lemma, and |∇F|² >= 2 mu (F - F*).
    """
    _require(mu > 0, "a convergence bound needs strong convexity (mu > 0)")
    _require(not np.any(steps.beta) and not np.any(steps.gamma), "gradient descent has beta = gamma = 0")
    _require(bool(np.all(steps.alpha < 2 / L)), f"gradient descent needs alpha < 2/L = {2 / L:.6g}")
    return Bound(np.maximum(1 - mu * steps.alpha * (2 - steps.alpha * L), 0.0), L * steps.alpha**2)


def nesterov(steps: Steps, mu: float, L: float) -> Bound:
    """Bound Nesterov's method, alpha <= 1/L, beta = gamma = (1-√(alpha mu))/(1+√(alpha mu)) (upper, not tight).

    ``V_t <= (1 - √(mu alpha)) V_{t-1} + alpha (1 + alpha L) P`` for the Lyapunov value
    ``V_t = E_t + E|p1 (x_t - x*) + p2 (x_{t-1} - x*)|²``, p1 = √(1/(2 alpha)), p2 = √(mu/2) - p1, so that
    V_0 = E_0 + mu/2 |x_0 - x*|² <= 2 E_0. After Aybat et al. 2019, Thm 2.3. The paper (Thm on NAG) states the recursion
    for E_t itself, without that factor 2, and is then wrong by up to 4/e.
    """
    _require(not np.any(steps.restart), "Nesterov's bound is for steps without restart (see multistage)")
    return multistage(steps, mu, L)


def multistage(steps: Steps, mu: float, L: float) -> Bound:
    """Bound Nesterov's method in stages: as ``nesterov`` within a stage, times 2 at each restart (upper, not tight).

    A restart sets x_{t-1} := x_t, after which V = E + mu/2 |x - x*|² <= 2 E whatever the new step size; this is the
    factor 2 of Aybat et al. 2019. Without the restart (the paper does not mention it) V may grow by more.
    """
    _require(mu > 0, "a convergence bound needs strong convexity (mu > 0)")
    alpha = steps.alpha
    _require(bool(np.all(alpha <= (1 + _TOLERANCE) / L)), f"Nesterov's method needs alpha <= 1/L = {1 / L:.6g}")
    momentum = nesterov_momentum(alpha, mu)
    _require(
        np.allclose(steps.beta, momentum, rtol=0, atol=_TOLERANCE) and np.array_equal(steps.beta, steps.gamma),
        "Nesterov's bound needs beta = gamma = (1 - √(alpha mu))/(1 + √(alpha mu))",
    )
    changed = alpha[1:] != alpha[:-1]
    _require(bool(np.all(steps.restart[1:][changed])), "the step size may change only at a restart")
    contraction = (1 - np.sqrt(mu * alpha)) * np.where(steps.restart, 2.0, 1.0)
    return Bound(contraction, alpha * (1 + alpha * L), start_factor=2.0)


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


def for_steps(steps: Steps, mu: float, L: float) -> Bound:
    """Return the bound of the theorem that covers these steps, or raise ``NoBoundError``.

    Heavy ball's, and that of Nesterov's method with another momentum, comes from a certificate that is searched for,
    which needs ``epsteps[theory]``.
    """
    if not np.any(steps.beta):
        return gd(steps, mu, L)
    if not np.any(steps.gamma):
        return heavy_ball(steps, mu, L)
    try:
        return multistage(steps, mu, L)
    except NoBoundError:
        if mu <= 0 or not np.array_equal(steps.gamma, steps.beta):
            raise
        return nesterov_any_momentum(steps, mu, L)


def noise_trace(sensitivity: float, epsilon: float, T: int, n: int, m: int, d: int) -> float:
    """Return E|w|² of the paper's uniform split: sampling variance plus d Laplace variances 2b².

    ``sensitivity`` is one record's, in L1. The sampling variance is the paper's, with radius sensitivity/2; it holds
    where gradients lie in an L1 or L2 ball of that radius (``Sampling.variance`` with the L2 radius is smaller).
    """
    sampling = Sampling(n, m)
    scale = sensitivity / (m * float(sampling.base_epsilon(epsilon / T)))
    return sampling.variance(sensitivity / 2) + 2 * d * scale**2


def _certified(method: str, steps: Steps, mu: float, L: float) -> Bound:
    """Join the certificates of the stages between restarts."""
    starts = np.flatnonzero(steps.restart[1:]) + 1
    contraction, gain, factors = np.empty(len(steps)), np.empty(len(steps)), []
    for stage in np.split(np.arange(len(steps)), starts):
        alpha, beta = float(steps.alpha[stage[0]]), float(steps.beta[stage[0]])
        if not (np.all(steps.alpha[stage] == alpha) and np.all(steps.beta[stage] == beta)):
            raise NoBoundError("no bound covers these steps: alpha and beta may change only at a restart.")
        bound = lasting_certificate(method, alpha, beta, float(mu), float(L)).bound(len(stage))
        contraction[stage], gain[stage] = bound.contraction, bound.gain
        factors.append(bound.start_factor)
        if stage[0] > 0:
            contraction[stage[0]] *= bound.start_factor
    return Bound(contraction, gain, factors[0])


def _require(holds: bool, assumption: str) -> None:
    if not holds:
        raise NoBoundError(f"no bound covers these steps: {assumption}.")
