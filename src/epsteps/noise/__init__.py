"""The only room that draws protective randomness: the noise of a step, and its secret subset of the records.

Integer noise is exact: it has the ideal law, with probability one, if the bits are fair. Noise made of float64 numbers
has not, and its low bits can give the value away (Mironov 2012; Haney, Desfontaines, Hartman, Shrestha and Hay 2022).
Every exact sampler is a function of infinitely many fair bits. It is first evaluated in float64 from 64 of them, with a
bound on the error whatever the other bits are. Where that bound leaves an integer or a comparison open, more bits are
drawn and interval arithmetic decides, at growing precision: no probability of failure is left over to be accounted for.

What this rests on: fair bits (``bits``), numpy's logarithm and, where a sampler is compiled, the C library's, and
decimal's logarithm and root (``reals``).
Noise never sees data, so that its work cannot depend on data. It depends on the noise only through rare refinements,
which look at fractional parts rather than sizes, and through the rejections of ``knorm`` and ``shaped``. No promise is
made about time at the level of microseconds.

Without a seed every bit comes from the operating system. With one, everything repeats, which is for experiments:
results of it are marked, and are not private.
"""

from epsteps.noise import balanced, gaussian, hulls, knorm, laplace, matrices, shaped  # they register their samplers
from epsteps.noise.samplers import SAMPLERS, Sampler, Source
from epsteps.problem.grid import added

__all__ = [
    "SAMPLERS",
    "Sampler",
    "Source",
    "added",
    "balanced",
    "gaussian",
    "hulls",
    "knorm",
    "laplace",
    "matrices",
    "shaped",
]
