"""Noise power: the trace E|w_t|² of everything that is not the exact gradient."""

from epsteps.problem.sampling import Sampling


def noise_trace(sensitivity: float, epsilon: float, T: int, n: int, m: int, d: int) -> float:
    """Return E|w|² of the paper's uniform split: sampling variance plus d Laplace variances 2b².

    ``sensitivity`` is one record's, in L1. The sampling variance is the paper's, with radius sensitivity/2; it holds
    where gradients lie in an L1 or L2 ball of that radius (``Sampling.variance`` with the L2 radius is smaller).
    """
    sampling = Sampling(n, m)
    scale = sensitivity / (m * float(sampling.base_epsilon(epsilon / T)))
    return sampling.variance(sensitivity / 2) + 2 * d * scale**2
