"""What exact noise costs per step: `python benchmarks/noise.py` (seconds).

Medians in milliseconds for a vector of d integers with bits of the operating system, next to numpy's float64 Laplace
noise (which is not private) and to OpenDP's integer noise where it is installed (`pip install opendp`).
"""

import time
from collections.abc import Callable
from functools import cache

import numpy as np
from rich.console import Console
from rich.table import Table

from epsteps.budgets.mechanisms import named
from epsteps.noise import Source
from epsteps.problem.sampling import Sampling
from epsteps.problem.shapes import L2, Body

DIMENSIONS = (20, 1000, 10_000)
SCALES = (2.0**20, 2.0**45)
SUBSETS = ((100_000, 1000), (100_000, 50_000))


def milliseconds(call: Callable[[], object]) -> float:
    """Return the median time of about a fifth of a second of calls, at least five."""
    times = []
    while len(times) < 5 or sum(times) < 0.2:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return 1000 * float(np.median(times))


@cache
def cube(d: int) -> Body:
    return Body((), tuple((j,) for j in range(d)))


@cache
def hull(d: int) -> Body:
    return Body(tuple(range(d)), ())


def our_laws(source: Source) -> dict[str, Callable[[int, float], object]]:
    return {
        "discrete Laplace": lambda d, scale: source.integers(named("laplace"), scale, (d,)),
        "rounded Gaussian": lambda d, scale: source.integers(named("gaussian"), scale, (d,)),
        "max norm": lambda d, scale: source.shaped(cube(d), scale),
        "hull norm": lambda d, scale: source.shaped(hull(d), scale),
        "L2 norm": lambda d, scale: source.shaped(L2(d), scale),
    }


def opendp_laws() -> dict[str, Callable[[int, float], object]]:
    try:
        import opendp.prelude as dp
    except ImportError:
        return {}
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    return {
        "OpenDP discrete Laplace": lambda d, s: dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=s)([0] * d),
        "OpenDP discrete Gaussian": lambda d, s: dp.m.make_gaussian(domain, dp.l2_distance(T=int), scale=s)([0] * d),
    }


def main() -> None:
    rng = np.random.default_rng(0)
    floats = {d: milliseconds(lambda d=d: rng.laplace(size=d)) for d in DIMENSIONS}
    table = Table("law", "scale", *(f"d={d}" for d in DIMENSIONS), "over numpy's floats", title="ms per vector")
    table.add_row("numpy Laplace, floats", "1", *(f"{floats[d]:.3f}" for d in DIMENSIONS), "1")
    for name, law in (our_laws(Source()) | opendp_laws()).items():
        for scale in SCALES if not name.startswith("OpenDP") else SCALES[:1]:
            found = [milliseconds(lambda d=d, law=law, scale=scale: law(d, scale)) for d in DIMENSIONS]
            ratios = ", ".join(f"{ms / floats[d]:.0f}" for ms, d in zip(found, DIMENSIONS, strict=True))
            table.add_row(name, f"2^{np.log2(scale):.0f}", *(f"{ms:.3f}" for ms in found), ratios)
    console = Console()
    console.print(table)
    for n, m in SUBSETS:
        ms = milliseconds(lambda n=n, m=m: Source().subset(Sampling(n=n, m=m)))
        console.print(f"subset of {m} of {n} records: {ms:.3f} ms")


if __name__ == "__main__":
    main()
