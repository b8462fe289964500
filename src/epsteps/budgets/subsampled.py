"""The optimal split of epsilon over steps that sample m of n records, by the convex dual.

A step of cost epsilon_t has base loss u_t = ln(1 + (e^epsilon_t - 1)/q), a concave function, so that the noise
``sum a_t / u_t²`` is convex in the costs. Stationarity in the dual variable ν is

    u_t³ q e^{u_t} / (1 - q + q e^{u_t}) = 2 a_t / ν,

whose left side increases in u_t. With y = ln u and z = ln(2 a_t/ν) it reads ``_level(y) = z``.
"""

import numpy as np
from scipy.optimize import brentq

from epsteps.bounds import Bound
from epsteps.sampling import Sampling


def split(weights: np.ndarray, epsilon: float, sampling: Sampling) -> np.ndarray:
    """Return the epsilons with ``sum = epsilon`` that make ``sum weights_t / u_t²`` smallest."""
    log_weights = np.log(weights / weights.max())
    losses = sampling.base_epsilon(np.array([epsilon, epsilon / len(weights)]))
    # The largest weight gets between an even share and everything: a bracket for the dual variable.
    low, high = -_level(np.log(losses), sampling.fraction)
    if high - low < 1e-12:
        return np.full(len(weights), epsilon / len(weights))

    def costs(shift: float) -> np.ndarray:
        return sampling.amplified_epsilon(np.exp(_inverse_level(log_weights - shift, sampling.fraction)))

    shift = brentq(lambda shift: np.log(costs(shift).sum() / epsilon), low - 1e-9, high + 1e-9, xtol=1e-14)
    shares = costs(float(shift))
    return epsilon * shares / shares.sum()


def noise_by_horizon(bound: Bound, epsilon: float, sampling: Sampling) -> np.ndarray:
    """Return the smallest ``sum weights_t / u_t²`` of the first T steps, for every T (to about six digits).

    The weights of T steps are those of T - 1 steps times a constant, and one more. So one table of the
    stationarity condition serves every T, and the dual variable of T - 1 is a good start for T.
    """
    levels, costs, slopes, noises = _table(epsilon, sampling)
    log_decays = np.cumsum(np.log(np.maximum(bound.contraction, np.finfo(float).tiny)))
    log_weights = np.log(bound.gain) - log_decays
    noise, shift = np.empty(len(log_weights)), log_weights[0] - levels[-1]
    for T in range(1, len(log_weights) + 1):  # noqa: N806
        shift = _solve_dual(log_weights[:T], shift, epsilon, levels, costs, slopes)
        per_step = np.interp(log_weights[:T] - shift, levels, noises)
        noise[T - 1] = np.sum(np.exp(log_weights[:T] + log_decays[T - 1]) * per_step)
    return noise


def _table(epsilon: float, sampling: Sampling) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Tabulate level -> (cost, its derivative, 1/u²) for costs from about 1e-13 epsilon to epsilon."""
    log_losses = np.log(sampling.base_epsilon(epsilon)) + np.linspace(-30.0, 0.1, 8192)
    levels = _level(log_losses, sampling.fraction)
    losses = np.exp(log_losses)
    costs = sampling.amplified_epsilon(losses)
    return levels, costs, np.gradient(costs, levels), losses**-2


def _solve_dual(log_weights, shift, epsilon, levels, costs, slopes) -> float:
    """Newton's method on ln(sum of costs) = ln(epsilon), nearly linear in the shift."""
    for _ in range(100):
        total = np.interp(log_weights - shift, levels, costs).sum()
        residual = np.log(total / epsilon)
        if abs(residual) < 1e-9:
            return shift
        shift += residual * total / np.interp(log_weights - shift, levels, slopes).sum()
    raise RuntimeError(f"the split of epsilon={epsilon!r} over {len(log_weights)} steps did not converge.")


def _level(y: np.ndarray, q: float) -> np.ndarray:
    """Return ln(u³ q e^u/(1 - q + q e^u)) for u = e^y."""
    return 3 * y + np.log(q) - np.log(q + (1 - q) * np.exp(-np.exp(y)))


def _inverse_level(z: np.ndarray, q: float) -> np.ndarray:
    """Return y with ``_level(y, q) = z`` by Newton's method inside the bracket z/3 <= y <= (z - ln q)/3."""
    low, high = z / 3, (z - np.log(q)) / 3
    y = low
    for _ in range(100):
        u = np.exp(y)
        share = q / (q + (1 - q) * np.exp(-u))
        step = (_level(y, q) - z) / (3 + (1 - share) * u)
        y = np.clip(y - step, low, high)
        if np.all(np.abs(step) < 1e-14 * (1 + np.abs(y))):
            return y
    return y
