"""Composition of pure-DP steps at delta > 0, through privacy-loss distributions (Google's dp-accounting)."""

import numpy as np

from epsteps._extras import require

# Privacy losses are rounded up to multiples of this fraction of the largest one.
_RESOLUTION = 1e-3
_FINEST = 1e-6


def composed_epsilon(costs: np.ndarray, delta: float) -> float:
    """Return an epsilon, never too small, at which steps of these pure epsilons are together (epsilon, delta)-private.

    Formal guarantee: a step that is e-DP, whatever its mechanism, is dominated by randomised response with parameter e
    (Kairouz, Oh, Viswanath 2015), also adaptively; the privacy losses of those compose by convolution, rounded up.
    Since the sum of the epsilons always holds, the smaller of both is returned.
    """
    costs = np.asarray(costs, dtype=float)
    costs = costs[costs > 0]
    simple = float(np.sum(costs)) * (1 + 1e-12)
    distributions = require("dp_accounting.pld.privacy_loss_distribution", "accounting", "Laplace noise at delta > 0")
    common = require("dp_accounting.pld.common", "accounting", "Laplace noise at delta > 0")
    interval = max(_FINEST, _RESOLUTION * float(costs.max()))
    # Rounding the losses up to a grid here lets equal ones be composed at once. The grid is stretched by 2e-9, and
    # levels may round down by 1e-9, so that the last digits of costs do not decide: each level is at least its cost.
    levels, counts = np.unique(np.ceil(costs / interval * (1 - 1e-9)), return_counts=True)
    grid = interval * (1 + 2e-9)
    composed = None
    for level, count in zip(levels * grid, counts, strict=True):
        epsilon = float(level) * (1 - 1e-12)  # the library rounds it up to the grid again
        step = distributions.from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon, 0.0), value_discretization_interval=grid
        ).self_compose(int(count))
        composed = step if composed is None else composed.compose(step)
    return simple if composed is None else min(simple, float(composed.get_epsilon_for_delta(delta)))
