"""The optimal split of epsilon over steps that sample m of n records, by the convex dual.

A step of cost epsilon_t has base loss u_t = ln(1 + (e^epsilon_t - 1)/q), a concave function, so that the noise
``sum a_t / u_t²`` is convex in the costs. Stationarity in the dual variable ν is

    u_t³ q e^{u_t} / (1 - q + q e^{u_t}) = 2 a_t / ν,

whose left side increases in u_t. In logarithms it reads ``_level(ln u_t) = ln(2 a_t/ν)``.
"""

import numpy as np
from scipy.optimize import root_scalar

from epsteps.bounds import Prediction
from epsteps.problem.sampling import Sampling


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

    def excess(shift: float) -> float:
        return float(np.log(costs(shift).sum() / epsilon))

    shares = costs(root_scalar(excess, bracket=(low - 1e-9, high + 1e-9), xtol=1e-14).root)
    return epsilon * shares / shares.sum()


def noise_by_horizon(prediction: Prediction, epsilon: float, sampling: Sampling) -> np.ndarray:
    """Return the smallest ``sum weights_t / u_t²`` after T steps, for every T (to about five digits).

    One table of the stationarity condition serves every T, and the dual variable of T - 1 is a good start for T.
    """
    table = _Table(epsilon, sampling)
    noise, shift = np.empty(len(prediction)), -table.levels[-1]
    for T, log_weights in enumerate(prediction.log_weight_rows()):
        relative = log_weights - log_weights.max()
        shift = table.solve_dual(relative, shift)
        log_losses = np.interp(relative - shift, table.levels, table.log_losses)
        noise[T] = np.sum(np.exp(log_weights - 2 * log_losses))
    return noise


class _Table:
    """The stationarity condition, tabulated for costs from about 1e-13 epsilon to epsilon."""

    def __init__(self, epsilon: float, sampling: Sampling) -> None:
        self._log_epsilon = np.log(epsilon)
        self.log_losses = np.log(sampling.base_epsilon(epsilon)) + np.linspace(-30.0, 0.1, 8192)
        self.levels = _level(self.log_losses, sampling.fraction)
        self._log_costs = np.log(sampling.amplified_epsilon(np.exp(self.log_losses)))
        self._elasticities = np.gradient(self._log_costs, self.levels)

    def solve_dual(self, log_weights: np.ndarray, shift: float) -> float:
        """Return the dual variable at which the costs add up, by Newton's method: their logarithm is nearly linear."""
        low, high = -np.inf, np.inf
        for _ in range(200):
            costs = np.exp(np.interp(log_weights - shift, self.levels, self._log_costs))
            residual = np.log(costs.sum()) - self._log_epsilon
            if abs(residual) < 1e-9:
                return shift
            low, high = (shift, high) if residual > 0 else (low, shift)
            slope = costs @ np.interp(log_weights - shift, self.levels, self._elasticities) / costs.sum()
            newton = shift + residual / slope
            shift = newton if low < newton < high else (low + high) / 2
        raise RuntimeError(f"the split over {len(log_weights)} steps did not converge.")


def _level(log_loss: np.ndarray, q: float) -> np.ndarray:
    """Return ln(u³ q e^u/(1 - q + q e^u)) for u = e^log_loss."""
    return 3 * log_loss + np.log(q) - np.log(q + (1 - q) * np.exp(-np.exp(log_loss)))


def _inverse_level(level: np.ndarray, q: float) -> np.ndarray:
    """Return the logarithmic loss of a level: looked up in a table, then polished by Newton's method.

    Newton's method alone may creep: the level bends sharply where the loss passes ln(1/q).
    """
    table = np.linspace(level.min() / 3, (level.max() - np.log(q)) / 3, 4096)
    log_loss = np.interp(level, _level(table, q), table)
    for _ in range(4):
        loss = np.exp(log_loss)
        share = q / (q + (1 - q) * np.exp(-loss))
        log_loss = log_loss - (_level(log_loss, q) - level) / (3 + (1 - share) * loss)
    return log_loss
