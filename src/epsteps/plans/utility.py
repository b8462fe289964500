"""What a plan is expected to be worth, from public numbers alone: one model of a typical problem, and one verdict.

Nothing here is proved but what is called a bound, and nothing here enters a guarantee.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy

from epsteps.bounds.quadratics import coefficients, exact_by_horizon, exact_quadratic, impulse_response
from epsteps.bounds.steps import Steps
from epsteps.budgets.mechanisms import Mechanism
from epsteps.problem.problem import Problem, extent_of

USEFUL, MARGINAL, NOISE, UNKNOWN = "useful", "marginal", "noise", "unknown"
VERDICTS = (USEFUL, MARGINAL, NOISE)
# Shares of what the model 0 costs. Predictions are right to about a factor of 2: what is called useful then keeps at
# least four fifths of what there is to gain, and what is called noise may well keep nothing.
USEFUL_SHARE, NOISE_SHARE = 0.1, 0.7

# Variances along the eigenvectors of real records, relative to records that fill their domain, in tenths of them:
# columns are narrower than declared, and go together. These numbers and the next four are those with which plans of all
# methods predicted best what was measured on adult, bank, bike, breast_cancer, california, diabetes, diamonds, fair and
# wine; other tables were held out.
_DECILES = (1.35e-4, 0.0034, 0.016, 0.04, 0.088, 0.175, 0.36, 0.68, 1.35, 4.3)
# How far the mean of a column is from the middle of its range, squared, in units of its variance.
_OFF_CENTRE = 0.5
# What there is to gain of the loss at 0, the share of it along the mean of the records (0 to 0.8 on those tables), and
# how that along other directions grows with their curvature: about as if coefficients were of one size in all of them.
_GAIN, _MEAN_SHARE, _GAIN_POWER = 0.5, 0.2, 0.8
# What slopes that are held within a share of the targets' bound cost in squared loss, over the square of that bound, is
# _HELD_BIAS/(1 + share/_HELD_TURN)^4: the geometric mean over nine real tables for shares from 0.05 to 3.2. On single
# ones it is up to seven times more or less, as residuals are wider or more skewed. Clipping changes only the
# residuals beyond the clip, where the loss changes all of them: it costs this share of that.
_HELD_BIAS, _HELD_TURN, _CLIPPED = 3e-3, 0.3, 0.1
# Of sharper losses it is less by 1 + (share/_SHARPER_TURN)^k, with this k for a power: no geometric mean, which is far
# below this for large shares, but what chose slopes best on seven tables, some of which have long tails.
_SHARPER_TURN, _SHARPER = 0.4, {4: 3, 8: 4}
# What a published model's length, over that of a typical one, says of what a larger ridge costs, and of what noise
# costs: these powers of it, by the tables that are named in benchmarks/truth_parts/tables.py. Beyond a few
# times more or less it says nothing more.
_PULLED_POWER, _NOISE_POWER, _MOST_LONGER = 3 / 4, 1 / 3, 30.0
# Multiples of it are spread evenly over [0, 1], in no order.
_GOLDEN = (math.sqrt(5) - 1) / 2
# What noise counts as that has grown beyond floats.
_DIVERGED = 1e250
# Columns are told apart by so many variances.
_GROUPS = 12
# Steps are followed along so many eigenvalues.
_EIGENVALUES = 24


class HopelessError(ValueError):
    """The noise that a plan needs is expected to leave nothing of the model: nothing was charged, and nothing read."""


@dataclass(frozen=True)
class Utility:
    """How far a plan's model is expected to be above the minimum of the objective F that was declared.

    Parameters
    ----------
    expected : float or None
        Predicted E F(x) - F*, on a typical problem with these public numbers; None where there is no prediction.
    bound : float or None
        What E F(x) - F* is proved not to exceed; None where nothing is proved. Never below ``expected``.
    trivial, trivial_bound : float
        What the model 0 costs, F(0) - F*: on the typical problem, and at most.
    sampling : float
        What a fit without noise is expected to miss of the population's minimum, as n records are a sample.
    """

    expected: float | None
    bound: float | None
    trivial: float
    trivial_bound: float
    sampling: float

    @property
    def verdict(self) -> str:
        """Whether the model is expected to be "useful", "marginal" or "noise"; "unknown" without a prediction.

        Useful: a tenth of what the model 0 costs, or less. Noise: seven tenths of it, or more.
        """
        if self.expected is None:
            return UNKNOWN
        share = self.expected / self.trivial
        return USEFUL if share <= USEFUL_SHARE else NOISE if share >= NOISE_SHARE else MARGINAL

    def after(self, parts: "Parts", x: np.ndarray, outputs: int = 1) -> "Utility":
        """Return the same once the model x, of so many outputs, is published: by its length, too."""
        expected = parts.after(np.reshape(x, (outputs, -1)))
        if self.bound is not None:
            expected = min(expected, self.bound)
        return replace(self, expected=expected) if math.isfinite(expected) else self

    def beyond(self, verdict: str) -> float:
        """Return how far the expected excess is beyond what a verdict, or a better one, allows; none below 0."""
        limit = USEFUL_SHARE if verdict == USEFUL else math.nextafter(NOISE_SHARE, 0.0)
        return math.inf if self.expected is None else self.expected - limit * self.trivial

    @property
    def sentence(self) -> str:
        """The line of a plan's page."""
        proved = "nothing is proved" if self.bound is None else f"proved: at most {self.bound:.3g}"
        if self.expected is None:
            return f"no prediction of F(x) - F* is at hand; {proved}"
        return (
            f"{self.verdict}: F(x) - F* is expected to be about {self.expected:.3g} ({proved}); that of the model 0 "
            f"is about {self.trivial:.3g}, at most {self.trivial_bound:.3g}; sampling alone costs {self.sampling:.2g}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers and the verdict, as JSON knows them: None for what floats do not hold."""
        numbers = {name: _finite(value) for name, value in asdict(self).items()}
        return numbers | {"verdict": self.verdict}

    def require_hope(self) -> None:
        """Raise ``HopelessError`` where the verdict is that the model is noise."""
        if self.verdict == NOISE:
            raise HopelessError(
                f"the model would be noise: it is expected to be {self.expected:.3g} above the minimum, and the model "
                f"0, for which no data is needed, about {self.trivial:.3g}. Nothing was charged. Use a larger budget "
                "or more records (see required_epsilon, required_n), fewer columns, or run it with anyway=True."
            )


class Parts(NamedTuple):
    """What a model is predicted to cost, in parts, and the square of the length that it is predicted to have.

    ``pulled`` is what a larger ridge costs, which leaves the model too short; ``other`` what another loss or weights in
    the place of what was declared do.
    """

    pulled: float
    noise: float
    other: float
    length: float

    def after(self, x: np.ndarray) -> float:
        """Return what the model is predicted to cost once it is published; it has one row for each output.

        A typical problem gains as much as this one. So where the model is longer, what there is to gain lies along
        directions in which records bend the loss less: a ridge takes more of it away, and noise moves the model more.
        """
        with np.errstate(all="ignore"):
            apart = x if len(x) == 1 else x - x.mean(axis=0)  # what all outputs share changes no loss
            longer = float(np.clip(np.sum(apart**2) / self.length, 1 / _MOST_LONGER, _MOST_LONGER))
        return self.pulled * longer**_PULLED_POWER + self.noise * longer**_NOISE_POWER + self.other


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


@dataclass(frozen=True)
class Typical:
    """A typical problem of these public numbers: F = F* + 1/2 (x - x*)'(A + ridge)(x - x*).

    A is the curvature of the loss at typical margins times a guessed second moment of the records: one direction is
    that of their mean, and each column's variance is spread over the others as in real tables. Directions of the same
    curvature are one entry here, with their number as its weight.
    """

    problem: Problem

    @property
    def trivial(self) -> float:
        """A guess of F(0) - F*: half of the loss of typical targets at 0, and so at most half of ``start_gap``."""
        return _GAIN * self.problem.loss.typical_value

    @cached_property
    def _columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The mean of a record, and for the features which group each is in and the groups' variances."""
        mean, variance = extent_of(self.problem).moments
        values, places = np.unique(variance, return_inverse=True)
        if len(values) > _GROUPS:
            places = places * _GROUPS // len(values)
        counts = np.bincount(places)
        variances = np.bincount(places, variance) / counts
        return np.append(mean, np.ones(int(self.problem.intercept))), places, variances

    @cached_property
    def _profile(self) -> np.ndarray:
        """How variances are spread over the eigenvectors, in as many parts as there are columns, and at most ten."""
        parts = min(self.problem.d, len(_DECILES))
        places = (np.arange(parts) + 0.5) / parts * len(_DECILES) - 0.5
        return np.exp(np.interp(places, np.arange(len(_DECILES)), np.log(_DECILES)))

    @cached_property
    def curvature(self) -> np.ndarray:
        """Eigenvalues of A: that of the mean, then of each group of columns; of several outputs once more, as 0.

        What all outputs share changes no loss of several outputs: the ridge alone bends it.
        """
        mean, _, variances = self._columns
        total = float(mean @ mean) + _OFF_CENTRE * float(np.sum(extent_of(self.problem).moments[1]))
        values = np.append(total, np.outer(variances, self._profile).ravel()) * self.problem.loss.typical_curvature
        values = np.minimum(values, largest_curvature(self.problem))
        return values if self.problem.loss.outputs == 1 else np.append(values, 0.0 * values)

    @cached_property
    def gains(self) -> np.ndarray:
        """What of F(0) - F* lies along each entry."""
        _, places, _ = self._columns
        counts = np.repeat(np.bincount(places) / len(self._profile), len(self._profile))
        size = 1 + len(counts)
        shares = counts * self.curvature[1:size] ** _GAIN_POWER
        total = float(np.sum(shares))
        shares = np.append(_MEAN_SHARE, (1 - _MEAN_SHARE) * shares / total) if total > 0 else np.eye(1, size)[0]
        return self.trivial * np.append(shares, np.zeros(len(self.curvature) - size))

    @np.errstate(all="ignore")  # budgets may be tiny or huge
    def power(self, variances: np.ndarray, along: Callable[[np.ndarray], float]) -> np.ndarray:
        """Return the power of noise along each entry, for its variance in each coordinate and along a vector, v'Σv."""
        problem = self.problem
        mean, places, _ = self._columns
        outputs = problem.loss.outputs
        size = float(mean @ mean)
        total = float(np.sum(variances))
        shared = self._shared(along)
        # Noise of several outputs is alike: in all directions but what they share, where there may be another or none.
        each = total / (outputs - 1 + shared)
        middle = total / ((outputs - 1 + shared) * problem.width)
        if size > 0:
            is_alike = shared == 1
            middle = (
                along(np.tile(mean, outputs)) / (outputs * size) if is_alike else along(_apart(mean, outputs)) / size
            )
        middle = min(middle, each)
        columns = variances.reshape(outputs, problem.width)[:, : problem.d].sum(axis=0) / outputs
        groups = np.bincount(places, columns)
        rest = max(each - middle, 0.0) * groups / float(np.sum(groups))
        single = np.append(middle, np.repeat(rest / len(self._profile), len(self._profile)))
        return single if outputs == 1 else np.append((outputs - 1) * single, shared * single)

    def _shared(self, along: Callable[[np.ndarray], float]) -> float:
        """Return how large noise is in what all outputs share, over what it is elsewhere: 1 if they are independent."""
        outputs = self.problem.loss.outputs
        if outputs == 1:
            return 1.0
        ones = np.ones(self.problem.width)
        elsewhere = along(_apart(ones, outputs))
        share = along(np.tile(ones, outputs) / math.sqrt(outputs)) / elsewhere if elsewhere > 0 else 1.0
        return round(share, 9) if math.isfinite(share) else 1.0

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the mean of coordinates' values along each entry."""
        ones = self.power(np.ones_like(values), lambda vector: float(vector @ vector))
        sums = self.power(values, lambda vector: float(values @ vector**2))
        return np.divide(sums, ones, out=np.zeros_like(sums), where=ones > 0)  # one column is its mean's direction

    def gradient_power(self, noise: Mechanism) -> np.ndarray:
        """Return the power along each entry of noise of scale 1 on a gradient."""
        if noise.name not in self._powers:
            covariance, units = noise.covariance(self.problem)
            self._powers[noise.name] = self.power(
                covariance.variances * units**2, lambda vector: covariance.along(units * vector)
            )
        return self._powers[noise.name]

    @cached_property
    def _powers(self) -> dict[str, np.ndarray]:
        """What was asked for: planning asks for the same with many losses and ridges."""
        return {}

    @np.errstate(all="ignore")  # budgets may be tiny or huge
    def followed(self, noise: Mechanism) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the few curvatures that steps are followed along, with their gains and shares of the noise's power."""
        if noise.name not in self._followed:
            power = self.gradient_power(noise)
            shares = power / float(np.sum(power))
            order = np.argsort(self.curvature)
            starts = np.arange(min(_EIGENVALUES, len(order))) * len(order) // min(_EIGENVALUES, len(order))
            gains, noises = (np.add.reduceat(array[order], starts) for array in (self.gains, shares))
            weights = (shares + self.gains / self.trivial)[order] + 1e-300
            means = np.add.reduceat(weights * self.curvature[order], starts) / np.add.reduceat(weights, starts)
            self._followed[noise.name] = means, gains, noises
        return self._followed[noise.name]

    @cached_property
    def _followed(self) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """What was asked for: planning asks for the same with many ridges."""
        return {}

    @np.errstate(all="ignore")  # budgets may be tiny or huge
    def bias(self, ridge: np.ndarray | float) -> np.ndarray:
        """Return F(x') - F* at the minimum x' for a larger ridge, or for each of several."""
        larger = np.asarray(ridge, dtype=float)[..., None]
        return np.sum(self.gains * self._left(larger) ** 2, axis=-1)

    @np.errstate(all="ignore")  # budgets may be tiny or huge
    def kept(self, ridge: np.ndarray | float) -> np.ndarray:
        """Return the share that is left of a small excess of another loss's minimum, for a larger ridge or several."""
        larger = np.asarray(ridge, dtype=float)[..., None]
        return np.sum(self.gains * (1 - self._left(larger)) ** 2, axis=-1) / self.trivial

    def _left(self, ridge: np.ndarray | float) -> np.ndarray:
        """Return (x* - x')/x* along each entry: a larger ridge pulls x' towards 0."""
        return (ridge - self.problem.ridge) / (self.curvature + ridge)

    @np.errstate(all="ignore")  # budgets may be tiny or huge
    def noise(self, power: np.ndarray, ridge: np.ndarray | float) -> np.ndarray:
        """Return what noise of this power on the gradient costs at a minimum for this ridge, or for each of several."""
        larger = np.asarray(ridge, dtype=float)[..., None]
        return np.sum(power * (self.curvature + self.problem.ridge) / (2 * (self.curvature + larger) ** 2), axis=-1)

    @np.errstate(all="ignore")  # budgets may be tiny or huge
    def length(self, power: np.ndarray, ridge: float) -> float:
        """Return E |x|² of a minimum for this ridge with noise of this power on the gradient, less what outputs share.

        Noise in what all of several outputs share lengthens x and changes no loss.
        """
        pulled = 2 * self.gains / (self.curvature + self.problem.ridge) * (1 - self._left(ridge)) ** 2
        each = pulled + power / (self.curvature + ridge) ** 2
        return float(np.sum(each[: len(each) // min(self.problem.loss.outputs, 2)]))

    @np.errstate(all="ignore")  # budgets may be tiny or huge
    def raised(self, power: np.ndarray, more: np.ndarray) -> float:
        """Return what noise of this power costs where each entry's curvature counts as so much more; at most 0's."""
        bend, held = self.curvature + self.problem.ridge, self.curvature + self.problem.ridge + more
        cost = np.sum(self.gains * (more / held) ** 2 + power * bend / (2 * held**2))
        return min(float(cost), self.trivial)

    @np.errstate(all="ignore")  # budgets may be tiny or huge
    def moved(self, power: np.ndarray) -> float:
        """Return what noise of this power on the model itself costs."""
        return float(np.sum(power * (self.curvature + self.problem.ridge))) / 2

    @property
    def reach(self) -> float:
        """E (largest |u'z| of any record u)² / E |z|², for a z without a direction: quantiles of a normal law."""
        problem = self.problem
        z = scipy.special.ndtri((np.arange(1, problem.width + 1) * _GOLDEN) % 1)[:, None]
        reach = problem.domain.reach(z[: problem.d])[0] + (abs(float(z[-1, 0])) if problem.intercept else 0.0)
        return float(reach) ** 2 / float(np.sum(z**2))

    @property
    def sampling(self) -> float:
        """What n records miss of the population's minimum: 1/(2n) for each direction that the ridge does not decide."""
        problem = self.problem
        known = self.curvature / (self.curvature + problem.ridge) if problem.ridge > 0 else np.sign(self.curvature)
        sizes = self.power(np.ones(problem.dimension), lambda vector: float(vector @ vector))
        return problem.loss.typical_dispersion * float(np.sum(sizes * known**2)) / (2 * problem.n)

    def utility(self, expected: float | None, bound: float | None) -> Utility:
        """Return a prediction with the proved bound and with what to hold it against."""
        expected = None if expected is None or math.isnan(expected) else float(expected)
        if expected is not None and bound is not None:
            expected = min(expected, float(bound))
        return Utility(expected, bound, self.trivial, self.problem.start_gap, self.sampling)


@dataclass(frozen=True, eq=False)
class TypicalError:
    """E F(x_T) - F* of steps from 0 on a typical problem, exactly: the prediction that T and the split are chosen by.

    F is the objective that was declared. Steps may descend on one with a larger ridge: x_t is then a distance from its
    minimum, and the bias is counted.

    Parameters
    ----------
    steps : Steps
        What is executed.
    typical : Typical
        The typical problem, with the ridge that was declared.
    noise : Mechanism
        The noise of the gradients.
    ridge, L : float
        Those of the objective that the steps descend on.
    """

    steps: Steps
    typical: Typical
    noise: Mechanism
    ridge: float
    L: float

    def __len__(self) -> int:
        return len(self.steps)

    @cached_property
    def _entries(self) -> tuple[np.ndarray, ...]:
        """Eigenvalues that are followed, with their curvature in F, gain, pull of the ridge and share of the noise."""
        means, gains, noises = self.typical.followed(self.noise)
        means = np.minimum(means, np.maximum(self.L - self.ridge, 0.0))
        lam = means + self.ridge
        declared = self.typical.problem.ridge
        left = (self.ridge - declared) / np.maximum(lam, np.finfo(float).tiny)
        return lam, means + declared, gains, left, noises

    @cached_property
    def _is_constant(self) -> bool:
        steps = self.steps
        return not np.any(steps.restart) and all(
            np.all(part == part[0]) for part in (steps.alpha, steps.beta, steps.gamma)
        )

    @cached_property
    def _responses(self) -> tuple[np.ndarray, np.ndarray]:
        """What is left of the start after T steps along each eigenvalue, and the weight of noise s steps before T."""
        _, bend, _, _, noises = self._entries
        first, second = self._recursion
        response = impulse_response(first, second, len(self) + 1)
        transfers = response[1:] + second * response[:-1]
        return transfers, (float(self.steps.alpha[0]) * response[:-1]) ** 2 @ (bend * noises)

    @property
    def _recursion(self) -> tuple[np.ndarray, np.ndarray]:
        """What a point and the one before it are multiplied by in each step, along each eigenvalue."""
        lam = self._entries[0]
        alpha, beta, gamma = (float(part[0]) for part in (self.steps.alpha, self.steps.beta, self.steps.gamma))
        return 1 + beta - alpha * lam * (1 + gamma), alpha * lam * gamma - beta

    @np.errstate(all="ignore")  # where steps do not converge nothing is known
    def least_start_error(self) -> np.ndarray:
        """Bound from below what the start and the larger ridge leave after any more steps of this constant kind.

        With x the share of the start that is left, x_{T+k} = h_k x_T + second h_{k-1} x_{T-1}, and |h_k| is at most
        (k + 1) rho^k for roots of at most rho, which is largest where k + 1 = 1/ln(1/rho), or at k = 0.
        """
        _, _, gains, left, _ = self._entries
        first, second = self._recursion
        real = np.sqrt(np.maximum(first**2 + 4 * second, 0.0))
        rho = np.maximum((np.abs(first) + real) / 2, np.sqrt(np.maximum(-second, 0.0)))
        most = np.where(rho < 1, np.maximum(1.0, -1 / (math.e * rho * np.log(rho))), math.inf)
        before, last = np.abs(self._responses[0][-2:])
        reach = most * (last + np.abs(second) * before)
        return np.maximum(left - np.nan_to_num(reach, nan=math.inf) * (1 - left), 0.0) ** 2 @ gains

    def _start(self, transfer: np.ndarray) -> np.ndarray:
        _, _, gains, left, _ = self._entries
        return (left + transfer * (1 - left)) ** 2 @ gains

    @cached_property
    def _by_horizon(self) -> tuple[np.ndarray, np.ndarray]:
        """The same after T steps that change on the way, for every T: weights are one row each."""
        lam, bend, _, _, noises = self._entries
        return exact_by_horizon(self.steps, lam, bend * noises)

    def start_errors(self, start_gap: float) -> np.ndarray:
        """Return what the start and the larger ridge leave after T steps, for every T."""
        return self._start((self._responses if self._is_constant else self._by_horizon)[0])

    def weight_sums(self, exponent: float) -> np.ndarray:
        """Return ``sum_t weights_{T,t}**exponent``, for every T."""
        if self._is_constant:
            return np.cumsum(self._responses[1] ** exponent, axis=0)
        return np.sum(self._by_horizon[1] ** exponent, axis=1)

    def log_weight_rows(self):
        """Yield the logarithms of the T weights, for T = 1, 2, ..."""
        for T in range(1, len(self) + 1):
            row = self._responses[1][:T][::-1] if self._is_constant else self._by_horizon[1][T - 1, :T]
            yield np.log(np.maximum(row, np.finfo(float).tiny))

    @cached_property
    def _final(self) -> tuple[float, np.ndarray]:
        lam, bend, _, _, noises = self._entries
        transfer, weights = exact_quadratic(self.steps, lam, bend * noises)
        return float(self._start(transfer)), weights

    @property
    def weights(self) -> np.ndarray:
        """What multiplies each step's half noise power after all steps."""
        return self._responses[1][::-1] if self._is_constant else self._final[1]

    def error(self, start_gap: float, power: np.ndarray | float) -> float:
        """Return the error after all steps for half noise powers ``power``."""
        start = float(self._start(self._responses[0][-1])) if self._is_constant else self._final[0]
        return start + float(np.sum(self.weights * power))

    @np.errstate(all="ignore")  # what feeds itself may grow beyond all floats
    def fed(self, power: np.ndarray) -> np.ndarray:
        """Return the half noise powers where slopes, and noise with them, grow with the point that noise has moved.

        Planned powers are for a typical slope s. At x it is larger by the reach of what noise has moved x by, and the
        mean of its square is s² + E reach². So noise may feed itself: steps of a loss without a largest slope diverge.
        """
        lam, *_, noises = self._entries
        share = self.typical.reach / self.typical.problem.loss.typical_slope**2
        fed = np.array(power, dtype=float)
        # Along each eigenvalue: second moments of a point, with the one before it, and of that.
        now, both, before = np.zeros((3, len(lam)))
        for t, (first, second) in enumerate(zip(*coefficients(self.steps, lam), strict=True)):
            fed[t] *= 1 + share * float(np.sum(now))
            added = 2 * self.steps.alpha[t] ** 2 * fed[t] * noises
            now, both, before = (
                first**2 * now + 2 * first * second * both + second**2 * before + added,
                first * now + second * both,
                now,
            )
        return np.nan_to_num(fed, nan=_DIVERGED, posinf=_DIVERGED)


def _apart(vector: np.ndarray, outputs: int) -> np.ndarray:
    """Return the difference of a vector between two of several outputs, of the same length."""
    return np.concatenate([vector, -vector, np.zeros((outputs - 2) * len(vector))]) / math.sqrt(2)


def held_bias(bound: float, slope: float, power: int = 2) -> float:
    """Return what holding the slopes of squared loss within this one is expected to cost, for targets of this bound.

    The loss in its place is pseudo-Huber of this power.
    """
    share = slope / bound
    sharper = 1 + (share / _SHARPER_TURN) ** _SHARPER[power] if power > 2 else 1.0
    return _HELD_BIAS * bound**2 / (1 + share / _HELD_TURN) ** 4 / sharper


def clip_bias(bound: float, slope: float) -> float:
    """Return what clipping gradients of squared loss, to those of this slope, is expected to cost."""
    return _CLIPPED * held_bias(bound, slope)


def ridge_bias(problem: Problem, ridge: float) -> float:
    """Bound F'* - F*, where F' has a larger ridge than F: min(v, (ridge'/ridge - 1) v/2), v being ``start_gap``.

    Losses are not negative, so F* >= ridge/2 |x*|²; and F(0) >= F* + ridge/2 |x*|², as F is strongly convex and x* its
    minimum. So ridge |x*|² <= F(0) <= v. Hence F'* <= F'(x*) = F* + (ridge' - ridge)/2 |x*|² <= F* + (ridge'/ridge - 1)
    v/2. And F'* <= F'(0) = F(0) <= F* + v. As F <= F', an x with E F'(x) - F'* <= e has E F(x) - F* <= e + F'* - F*.
    """
    gap = problem.start_gap
    if ridge <= problem.ridge:
        return 0.0
    return min(gap, (ridge / problem.ridge - 1) * gap / 2) if problem.ridge > 0 else gap


@dataclass(frozen=True, eq=False)
class TypicalErrors(TypicalError):
    """Those of several ridges side by side, each with constant steps of its own, as many as the others: a column each.

    Parameters
    ----------
    steps : sequence of Steps
        Constant ones, for each ridge.
    typical, noise
        As for ``TypicalError``.
    ridge, L : array of shape (ridges, 1)
        Those of the objectives that the steps descend on.
    """

    steps: Sequence[Steps]  # pyright: ignore[reportIncompatibleVariableOverride]
    ridge: np.ndarray  # pyright: ignore[reportIncompatibleVariableOverride]
    L: np.ndarray  # pyright: ignore[reportIncompatibleVariableOverride]

    @cached_property
    def _is_constant(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(self.steps[0])

    @cached_property
    def _responses(self) -> tuple[np.ndarray, np.ndarray]:
        """What is left of the start after T steps, by ridge and eigenvalue, and the weight of noise s steps before."""
        _, bend, _, _, noises = self._entries
        first, second = self._recursion
        response = impulse_response(first.ravel(), second.ravel(), len(self) + 1).reshape(-1, *first.shape)
        transfers = response[1:] + second * response[:-1]
        return transfers, np.einsum("tre,re->tr", (self._sizes(0) * response[:-1]) ** 2, bend * noises)

    @property
    def _recursion(self) -> tuple[np.ndarray, np.ndarray]:
        lam, (alpha, beta, gamma) = self._entries[0], map(self._sizes, range(3))
        return 1 + beta - alpha * lam * (1 + gamma), alpha * lam * gamma - beta

    def _sizes(self, which: int) -> np.ndarray:
        """Return the step size, momentum or extrapolation of each ridge, in a column."""
        return np.array([[(each.alpha, each.beta, each.gamma)[which][0]] for each in self.steps])


# Ridges that plans choose among: these times the problem's own, so that no choice depends on budget or records.
RIDGE_STEP = 1.25
_LARGEST_SHARE = 1e3


def largest_curvature(problem: Problem) -> float:
    """Bound the curvature of the mean loss: that of the domain, which is certain, whatever was declared."""
    return problem.loss.curvature * problem.record_size(2) ** 2


def ridges(problem: Problem, ratio: float = RIDGE_STEP, largest: float = _LARGEST_SHARE) -> np.ndarray:
    """Return the ridges to choose among: from the problem's own up to where hardly anything but the ridge is left."""
    least = max(problem.ridge, 1e-12)
    top = largest * max(largest_curvature(problem), least)
    count = math.ceil(max(math.log(top / least), 0.0) / math.log(ratio)) + 1
    return least * ratio ** np.arange(count)


def least_of(
    bounds: Sequence[float] | np.ndarray,
    value: Callable[[int, float], float | None],
    first: int | None = None,
    least: float = math.inf,
) -> tuple[int, float]:
    """Return the place with the smallest value, and that value, given lower bounds of all values.

    ``value`` gets a place and the least value so far; it may return None for one that is certainly no smaller.
    Places are looked at in the order of their bounds, after a good guess if there is one, until no bound is below the
    least value. If none is below ``least``, the place is -1.
    """
    best, order = -1, np.argsort(bounds, kind="stable").tolist()
    for place in order if first is None else [first, *(place for place in order if place != first)]:
        if place != first and bounds[place] >= least:
            break
        found = value(place, least)
        if found is not None and found < least:
            best, least = place, found
    return best, least
