"""What clipped descent takes beside one minimum, for squared loss with a delta: `python benchmarks/clipped.py`.

Private fits of made-up records, seconds of one run with its preparation. Clipped descent reads the records hundreds of
times, where the minimum reads them a few times.
"""

import argparse
import time

import numpy as np
from threadpoolctl import threadpool_limits

import epsteps as es

DELTA = 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--d", type=int, default=20)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0])
    options = parser.parse_args()
    threadpool_limits(1)
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (options.n, options.d))
    y = np.clip(X @ rng.normal(size=options.d) / 5 + 0.1 * rng.normal(size=options.n), -1, 1)
    problem = es.Problem(es.Squared(1.0), es.Box(0, 1), ridge=0.002, n=options.n, d=options.d)
    for epsilon in options.epsilon:
        for method in ("clipped", "adaptive"):
            plan = es.plan(problem, es.Approximate(epsilon, DELTA), method)
            begin = time.perf_counter()
            es.run(plan, es.Rows(problem, X, y), anyway=True)
            print(f"epsilon {epsilon:g}, {plan.method}: {time.perf_counter() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
