"""A whole run with drawn records as one kernel: between its steps nothing goes back to Python."""

from epsteps.data.engines.fast import _rows, _slopes
from epsteps.data.engines.fast._lanes import VERSION, kernel


@kernel
def descend(
    features,
    negated,
    rows,
    size,
    alpha,
    beta,
    gamma,
    restart,
    noise,
    ridge,
    loss,
    block,
    point,
    sums,
    path,
    first,
    version=VERSION,
):
    """Write the iterates after path[first], one for each row of ``noise``: the library's loop, operation by operation.

    Step t reads ``size`` of the ``rows``, which are drawn for all steps: the next step's first rows are asked for while
    this one is still computing. ``point`` (filled up with zeros to whole vectors) and ``sums`` are for the kernel's own
    use.
    """
    total = sums[:1].copy()
    for i in range(len(noise)):
        t = first + i
        moving = t > 0 and not restart[t]
        for j in range(len(sums)):
            drift = path[t, j] - path[t - 1, j] if moving else 0.0
            path[t + 1, j] = path[t, j] + gamma[t] * drift
            point[j] = path[t + 1, j]
            sums[j] = 0.0
        _rows.means(
            features, negated, rows, point, loss, _slopes.SLOPE, i * size, (i + 1) * size, block, sums, total, VERSION
        )
        for j in range(len(sums)):
            drift = path[t, j] - path[t - 1, j] if moving else 0.0
            noisy = sums[j] / size + ridge * path[t + 1, j] + noise[i, j]
            path[t + 1, j] = path[t, j] + beta[t] * drift - alpha[t] * noisy
