"""Confidence bounds on privacy losses from counts, exact for any sample size.

Counts are of independent events. Where events of slightly different probability are pooled, the bounds hold for their
mean: its tails are lighter than the binomial's (Hoeffding 1956).
"""

import math

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta, binom


def upper(count: int, trials: int, level: float) -> float:
    """Return Clopper and Pearson's upper bound (1934): above the probability except with chance ``level``."""
    return 1.0 if count == trials else float(beta.isf(level, count + 1, trials - count))


def lower(count: int, trials: int, level: float) -> float:
    """Return Clopper and Pearson's lower bound: below the probability except with chance ``level``."""
    return 0.0 if count == 0 else float(beta.ppf(level, count, trials - count + 1))


def log_ratio(hits: int, misses: int, trials: int, level: float) -> float:
    """Bound ln(p/q) from below, where hits have probability p and misses q; wrong with chance ``level`` at most.

    If outputs on two datasets are such that an event has probability p on one and q on the other, no epsilon below
    ln(p/q) holds between them (Jagielski, Ullman, Oprea 2020).
    """
    p, q = lower(hits, trials, level / 2), upper(misses, trials, level / 2)
    return max(0.0, math.log(p / q)) if p > 0 else 0.0


def gaussian_mu(errors: tuple[int, int], trials: int, level: float) -> float:
    """Bound the mu of Gaussian differential privacy from below; wrong with chance ``level`` at most.

    A test that errs with probabilities a on one dataset and b on the other refutes every mu below -Φ⁻¹(a) - Φ⁻¹(b)
    (Dong, Roth, Su 2022; used for audits by Nasr et al. 2023).
    """
    first, second = (upper(count, trials, level / 2) for count in errors)
    return max(0.0, -float(ndtri(first) + ndtri(second)))


def independence(samples: np.ndarray) -> float:
    """Return a p-value for the rows of a matrix being independent: an exact test of the signs of every two rows.

    Assumes medians of 0. Two-sided, and corrected for the number of pairs (Bonferroni).
    """
    rows, count = samples.shape
    if rows < 2:
        return 1.0
    signs = np.where(samples > 0, 1.0, -1.0)
    agreements = (count + (signs @ signs.T)[np.triu_indices(rows, k=1)]) / 2
    extreme = np.minimum(agreements, count - agreements)
    return float(min(1.0, len(extreme) * 2 * binom.cdf(np.rint(extreme).min(), count, 0.5)))
