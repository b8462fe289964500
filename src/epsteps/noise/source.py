"""Where a run draws from: exact integer noise, subsets of the records, and float64 noise for experiments."""

import numpy as np

from epsteps.budgets.mechanisms import Mechanism
from epsteps.noise import _arguments as arguments
from epsteps.noise import floats, knorm, shaped
from epsteps.noise.bits import Bits
from epsteps.noise.gaussian import rounded_gaussian, tilted_gaussian
from epsteps.noise.hull_layout import layout_of
from epsteps.noise.hull_noise import hull_noise
from epsteps.noise.laplace import discrete_laplace
from epsteps.noise.uniform import quick_subsets, uniform_subset
from epsteps.noise.wishart import wishart_difference
from epsteps.problem.bodies import Body, Ellipsoid
from epsteps.problem.hulls import Hull
from epsteps.problem.sampling import Sampling

_SAMPLERS = {"laplace": discrete_laplace, "gaussian": rounded_gaussian}


class Source:
    """A source of protective randomness, from the operating system or, for experiments, from a seed."""

    def __init__(self, seed: int | None = None, step: int | None = None) -> None:
        self._bits = Bits(seed, step)

    @property
    def seeded(self) -> bool:
        """Whether the draws repeat, so that nothing protected by them is private.

        The samplers are the same: only their bits come from a seeded generator.
        """
        return self._bits.generator is not None

    def at_step(self, t: int) -> "Source":
        """Return the source of step t: itself, or one of its own per step where seeded, so that a run can resume."""
        return Source(self._bits.seed, t) if self.seeded else self

    def integers(
        self,
        mechanism: Mechanism,
        scale: np.ndarray | float,
        shape: tuple[int, ...],
        body: Body | Hull | Ellipsoid | None = None,
    ) -> np.ndarray:
        """Return exact integer noise as int64; scales are in integer units and broadcast to the shape, (d,) or (d, R).

        "linf", "hull" and "blocks" are shaped like their ``body``, and "ellipsoid" like its own. These take one scale
        for each column, "l2" takes any, and columns are independent. "laplace" and "gaussian" are independent over all
        entries and take any shape.

        Formal guarantee: "laplace" has P(k) ~ exp(-|k|/scale), "gaussian" is the ideal Gaussian rounded to the nearest
        integer, both modulo 2^64 and for exactly this scale (integers beyond 2^53 are rounded up to a float). Added
        modulo 2^64 to an integer vector of sensitivity Δ they are Δ_1/scale-DP and Δ_2/scale-Gaussian-DP. For "l2" see
        ``l2``, for the shapes of a ``body`` see ``shaped``; "ellipsoid" is ``tilted``, and gauge(Δ)/scale-Gaussian-DP.
        """
        name = arguments.law(mechanism, shape, body)
        scales = np.broadcast_to(arguments.scale(scale), shape)
        if name in _SAMPLERS:
            return _SAMPLERS[name](self._bits, scales.reshape(-1)).reshape(shape)
        columns = scales.reshape(shape[0], int(np.prod(shape[1:])))
        if name == "l2":
            found = [self.l2(shape[0], column) for column in columns.T]
        elif isinstance(body, Ellipsoid):
            return self._ellipsoid(body, arguments.each_column(columns), shape)
        else:
            assert body is not None
            found = [self.shaped(body, t) for t in arguments.each_column(columns)]
        return np.stack(found, axis=-1).reshape(shape) if found else np.empty(shape, np.int64)

    def linf(self, d: int, t: float) -> np.ndarray:
        """Return exact integer noise with P(z) ~ exp(-max|z_j|/t); sensitivity Δ in this norm costs Δ/t."""
        return knorm.linf(self._bits, *arguments.ball(d, t))

    def hull(self, d: int, t: float) -> np.ndarray:
        """Return exact integer noise with P(z) ~ exp(-range(0, z_1, ..., z_d)/(2t))."""
        return knorm.hull(self._bits, *arguments.ball(d, t))

    def shaped(self, body: Body | Hull, t: float) -> np.ndarray:
        """Return exact integer noise with P(z) ~ exp(-f(z)/t), f as in ``noise.shaped``: the gauge, or nearly so.

        The law for a ``Hull`` is that of ``noise.hull_noise``, and its f the negative logarithm.

        Formal guarantee: f(z + Δ) <= f(z) + gauge(Δ) for integers z and Δ. So added modulo 2^64 to an integer vector
        that neighbours move by Δ it is gauge(Δ)/t-DP.
        """
        if isinstance(body, Hull):
            layout = layout_of(body)
            return hull_noise(self._bits, layout, arguments.ball(body.d, t, layout.least_scale)[1])
        parts = shaped.parts_of(body)
        return shaped.shaped(self._bits, parts, arguments.ball(body.d, t, parts.least_scale)[1])

    def l2(self, d: int, t: np.ndarray | float) -> np.ndarray:
        """Return the ideal noise of density ~ exp(-|z/t|_2), each coordinate rounded to the nearest integer.

        t is one scale, or one for each coordinate. Formal guarantee: a change Δ of an integer vector costs |Δ/t|_2.
        """
        return knorm.l2(self._bits, *arguments.stretched_ball(d, t))

    def tilted(
        self,
        scale: np.ndarray | float,
        common: np.ndarray | float,
        shape: tuple[int, ...],
        weights: np.ndarray | float = 1.0,
    ) -> np.ndarray:
        """Return ⌊x_j + w_j y + 1/2⌋ for Gaussians x_j of these scales and one y for each column, of scale ``common``.

        The shape is (d,) or (d, R); scales broadcast to it, ``common`` (0 or more) to (R,), ``weights`` to (d,).
        Formal guarantee: exactly rounded, modulo 2^64. Added to an integer vector it is √(Δ'Σ⁻¹Δ)-Gaussian-DP with
        Σ = diag(scale²) + common² w w'.
        """
        given = arguments.tilt(scale, common, shape, weights)
        return tilted_gaussian(self._bits, *given).reshape(shape)

    def wishart_difference(self, k: int, c: float) -> np.ndarray:
        """Return ⌊Z + 1/2⌋ for the entries of a symmetric Z = W - W', for independent W, W' ~ Wishart(k + 1, c I).

        A Wishart matrix of k + 1 degrees of freedom is the sum of as many outer products of N(0, c I) vectors. The
        integers are whole: int64 where that holds them all, else Python's.

        Formal guarantee: added to a symmetric integer matrix, a change Δ costs |Δ|_*/(2c), where |Δ|_* is the sum of
        the absolute eigenvalues. Proof: with k + 1 degrees of freedom, and with no other number, the determinant drops
        out of W's density p, which is ~ exp(-tr W/(2c)) on the positive semidefinite matrices. Adding A >= 0 stays
        among them, so p(W + A) >= e^(-tr A/(2c)) p(W). Averaged over W' the density f of Z has f(Z + A) >=
        e^(-tr A/(2c)) f(Z), and f(-Z) = f(Z) as W and W' may change places, which gives the same with Z and Z + A
        exchanged. Δ is a difference of two such A, whose traces add up to |Δ|_*. Rounding is post-processing.
        """
        found = wishart_difference(self._bits, *arguments.wishart(k, c))
        return found.astype(np.int64) if np.all(np.abs(found) < 2**63) else found

    def subset(self, sampling: Sampling) -> np.ndarray:
        """Return the records that a step reads, uniform among all subsets of their size, in increasing order."""
        return uniform_subset(self._bits, sampling.m, sampling.n)

    def subsets(self, sampling: Sampling, count: int) -> np.ndarray:
        """Return records for so many steps of an experiment, one row each, in no particular order.

        Uniform up to 2^-64 per draw, many times faster than ``subset``, and for seeded sources only.
        """
        if not self.seeded:
            raise ValueError("subsets are for experiments, and take a seed. Private steps draw theirs with subset.")
        return quick_subsets(self._bits, count, sampling.m, sampling.n)

    def laplace(self, scale: np.ndarray | float, shape: tuple[int, ...]) -> np.ndarray:
        """Return independent Laplace draws of this scale (variance 2 scale²), by inversion in float64: not exact."""
        return np.asarray(scale) * floats.laplace(self._uniform, shape)

    def gaussian(self, scale: np.ndarray | float, shape: tuple[int, ...]) -> np.ndarray:
        """Return independent Gaussian draws of this standard deviation, by inversion in float64: not exact."""
        return np.asarray(scale) * floats.gaussian(self._uniform, shape)

    def draw(
        self,
        mechanism: Mechanism,
        scale: np.ndarray | float,
        shape: tuple[int, ...],
        body: Body | Hull | Ellipsoid | None = None,
    ) -> np.ndarray:
        """Return draws of the mechanism's noise in float64, not exact; arguments as in ``integers``.

        More axes may come before those of a vector and its columns: (..., d, R) has independent vectors along d.
        """
        name = arguments.law(mechanism, shape[-2:], body)
        full = shape if len(shape) > 1 else (*shape, 1)
        if name == "laplace":
            return self.laplace(scale, shape)
        if name == "gaussian":
            return self.gaussian(scale, shape)
        if name == "l2":
            noise = floats.l2(self._uniform, full)
        elif isinstance(body, Ellipsoid):
            noise = floats.ellipsoid(self._uniform, body, full)
        elif isinstance(body, Hull):
            noise = floats.hull(self._uniform, body, full)
        else:
            assert body is not None
            noise = floats.shaped(self._uniform, body, full)
        return np.asarray(scale) * noise.reshape(shape)

    def _ellipsoid(self, body: Ellipsoid, sigmas: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return Gaussian noise with the covariance σ²Σ of an ellipsoid; products are rounded up."""
        scale, common = (np.nextafter(np.multiply.outer(x, sigmas), np.inf) for x in (body.scales, body.common))
        weights = np.zeros(body.d)
        weights[list(body.hull)] = 1.0
        return self.tilted(scale.reshape(shape), common, shape, weights)

    def _uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return uniform draws on the open interval (0, 1): 52 random bits, and half a step more."""
        if self._bits.generator is not None:
            bits = self._bits.generator.integers(2**52, size=shape, dtype=np.uint64)
        else:
            bits = (self._bits.words(int(np.prod(shape))) >> np.uint64(12)).reshape(shape)
        return (bits + 0.5) * 2.0**-52
