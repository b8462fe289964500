"""Noise mechanisms: what a step of noise costs, in which currency, and how a total of it is best split over steps.

A mechanism is a law and a rule that shapes it: noise of a norm costs epsilon, Gaussian noise rho of concentrated
privacy, and which norm it is says the shape (``epsteps.problem.shapes``). Costs of one mechanism add up over the steps.
What the sum means is the budget's business.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from epsteps.bounds import Prediction
from epsteps.budgets.costs import Cost, Epsilon, Rho
from epsteps.problem import (
    balanced,  # noqa: F401 - it adds the rules of its shapes
    validate,
)
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import root_between
from epsteps.problem.sampling import Sampling
from epsteps.problem.shapes import RULES, Covarying, Rule, Shape


@dataclass(frozen=True)
class Mechanism(ABC):
    """Noise of a name. ``sensitivity`` is one record's, in the mechanism's norm."""

    name: str
    kind: ClassVar[type[Cost]]

    def __post_init__(self) -> None:
        rule = RULES.get(self.name) if isinstance(self.name, str) else None
        if rule is None or rule.gaussian is self.kind.is_pure:  # all names are listed where they are told alone
            names = tuple(name for name, rule in RULES.items() if rule.gaussian is not self.kind.is_pure)
            validate.choice("name", self.name, names)

    @property
    def rule(self) -> Rule:
        """How the noise is shaped."""
        return RULES[self.name]

    @property
    def norm(self) -> float | str:
        """Norm in which the sensitivity is needed: 1, 2 or "body"."""
        return self.rule.kinds[0].norm

    @property
    def unit(self) -> str:
        """The name of the currency of its costs."""
        return self.kind.unit

    def shape(self, problem: Problem) -> Shape:
        """Return what the noise of a gradient is shaped like, in the domain's units or in real ones (``units``)."""
        shape = self.rule.fit(problem) if self.rule.fit else None
        if shape is None:
            raise ValueError(f"mechanism {self.name!r} does not fit {problem.domain}: use 'auto'.")
        return shape

    def covers(self, problem: Problem) -> bool:
        """Whether there is such noise for the problem: an L2 ball has no body, "l2" and "gaussian" fit it."""
        return self.rule.fit is not None and self.rule.fit(problem) is not None

    def units(self, problem: Problem) -> np.ndarray:
        """Return the real size of each coordinate's unit, in which noise of scale 1 is drawn."""
        return _units(self.shape(problem), problem)

    def covariance(self, problem: Problem) -> tuple[Covarying, np.ndarray]:
        """Return the covariance of noise of scale 1, and the units that it is in."""
        shape = self.shape(problem)
        return shape.covariance, _units(shape, problem)

    def matrix(self, scale: float, problem: Problem) -> np.ndarray:
        """Return the covariance of noise of this scale as a matrix, in real units."""
        covariance, units = self.covariance(problem)
        return scale**2 * covariance.matrix * np.outer(units, units)

    def cell(self, problem: Problem) -> float:
        """Return what a cell of the noise's integers adds to a sensitivity: nothing where an ideal law was rounded."""
        return self.shape(problem).cell

    def half_power(self, scales: np.ndarray | float, problem: Problem) -> np.ndarray:
        """Return half of E|w|², in real units: d b² for Laplace noise, d (d + 1) b²/2 for the Euclidean norm.

        And d σ²/2 for independent Gaussian noise.
        """
        covariance, units = self.covariance(problem)
        return 0.5 * covariance.trace(units) * np.asarray(scales, dtype=float) ** 2

    @abstractmethod
    def costs(self, sensitivity: float, scales: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the costs of steps with noise of these scales on a mean of the sampled gradients."""

    @abstractmethod
    def scales(self, sensitivity: float, costs: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the scales at which steps have these costs."""

    @abstractmethod
    def split(self, weights: np.ndarray, total: float, sampling: Sampling) -> np.ndarray:
        """Return the costs with this total that make ``sum weights_t half_power_t`` smallest."""

    @abstractmethod
    def noise_by_horizon(self, prediction: Prediction, total: float, allocation: str, sampling: Sampling) -> np.ndarray:
        """Return ``sum weights_t scale_t²`` after T steps, for every T; sensitivity 1."""


@dataclass(frozen=True)
class KNorm(Mechanism):
    """The K-norm mechanism (Hardt, Talwar 2010; Awan, Slavković 2021): density ~ exp(-|w|/b) for the norm |w|.

    "laplace" is the L1 norm, independent noise of variance 2b² on each coordinate; "l2" the Euclidean norm; "linf" the
    largest coordinate, "hull" the body that gradients of the declared domain fill, and "blocks" a product of simpler
    ones around that body, the last three in the domain's units. "wishart" is noise of symmetric matrices. "balanced
    laplace", "balanced l2" and "balanced blocks" add up to 0 over the classes (``problem.balanced``), for tilts alone.

    Formal guarantee: added to a value that neighbours move by at most s in that norm it has privacy loss at most s/b:
    |w - v| <= |w| + |v| by the triangle inequality, and shifted densities have the same normaliser. (Where a hull has
    signed coordinates besides one-hot blocks its density is another one, whose logarithm changes no faster.) On the
    mean of a secret sample the loss is amplified as ``Sampling`` says. The paper's published code draws Laplace noise
    of scale b/√2 instead, and so spends √2 times its epsilon or more.

    The variance falls as 1/epsilon², so that full-batch steps with error weights a_t are best given
    epsilon_t ~ a_t^(1/3).
    """

    kind: ClassVar[type[Cost]] = Epsilon

    def costs(self, sensitivity: float, scales: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the epsilon of each step."""
        return sampling.amplified_epsilon(sensitivity / (sampling.m * np.asarray(scales, dtype=float)))

    def scales(self, sensitivity: float, costs: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the scale b at which each step has its epsilon."""
        return sensitivity / (sampling.m * sampling.base_epsilon(costs))

    def split(self, weights: np.ndarray, total: float, sampling: Sampling) -> np.ndarray:
        """Return the best epsilons: in closed form for full batches, by the convex dual when records are sampled."""
        weights = _checked_weights(weights)
        if sampling.is_full:
            shares = np.cbrt(weights / weights.max())
            return total * shares / shares.sum()
        return _sampled_split(weights, total, sampling)

    def noise_by_horizon(self, prediction: Prediction, total: float, allocation: str, sampling: Sampling) -> np.ndarray:
        """Return ``sum weights_t b_t²`` after T steps, for every T; sensitivity 1."""
        if allocation == "uniform":
            T = np.arange(1, len(prediction) + 1)
            noise = prediction.weight_sums(1.0) / sampling.base_epsilon(total / T) ** 2
        elif sampling.is_full:
            noise = prediction.weight_sums(1 / 3) ** 3 / total**2
        else:
            noise = _sampled_noise_by_horizon(prediction, total, sampling)
        return noise / sampling.m**2


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Gaussian noise: of standard deviation σ on each coordinate, or shaped like an ellipsoid.

    "ellipsoid" has the covariance σ²Σ, in the domain's units, where z'Σ⁻¹z <= 1 holds the body that gradients of the
    domain fill (``Body.ellipsoid``): less noise than a ball needs around the same body. "gaussian matrix" is noise of
    symmetric matrices. "balanced gaussian" and "balanced ellipsoid" add up to 0 over the classes, for tilts alone.

    Formal guarantee: added to a value of sensitivity s (in L2, or in √z'Σ⁻¹z) it is ρ-zCDP with ρ = s²/(2σ²) (Bun,
    Steinke 2016), and composed steps are exactly √(2 sum ρ)-Gaussian-DP (Dong, Roth, Su 2022). The variance falls as
    1/ρ, so that steps with error weights a_t are best given ρ_t ~ a_t^(1/2). Sampling is refused: no closed form is
    known for samples of fixed size.
    """

    name: str = "gaussian"
    kind: ClassVar[type[Cost]] = Rho

    def costs(self, sensitivity: float, scales: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the rho of each step."""
        self._require_full(sampling)
        return 0.5 * (sensitivity / (sampling.m * np.asarray(scales, dtype=float))) ** 2

    def scales(self, sensitivity: float, costs: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the standard deviation at which each step has its rho."""
        self._require_full(sampling)
        return sensitivity / (sampling.m * np.sqrt(2 * np.asarray(costs, dtype=float)))

    def split(self, weights: np.ndarray, total: float, sampling: Sampling) -> np.ndarray:
        """Return the best rhos, proportional to √weights."""
        weights = _checked_weights(weights)
        self._require_full(sampling)
        shares = np.sqrt(weights / weights.max())
        return total * shares / shares.sum()

    def noise_by_horizon(self, prediction: Prediction, total: float, allocation: str, sampling: Sampling) -> np.ndarray:
        """Return ``sum weights_t σ_t²`` after T steps, for every T; sensitivity 1."""
        self._require_full(sampling)
        if allocation == "uniform":
            noise = prediction.weight_sums(1.0) * np.arange(1, len(prediction) + 1)
        else:
            noise = prediction.weight_sums(1 / 2) ** 2
        return noise / (2 * total * sampling.m**2)

    @staticmethod
    def _require_full(sampling: Sampling) -> None:
        if not sampling.is_full:
            raise ValueError(
                f"Gaussian noise reads all n={sampling.n} records, got batch={sampling.m}: its amplification by "
                "sampling without replacement is not accounted for. Use batch=None, or mechanism='laplace'."
            )


# Those of sums of gradients, and those of tilts.
LAPLACE = KNorm("laplace")
NAMES = tuple(name for name, rule in RULES.items() if rule.fit and not rule.tilts)
TILTS = tuple(name for name, rule in RULES.items() if rule.fit)
_BALANCED = "balanced "


def named(name: str) -> Mechanism:
    """Return the mechanism of this name, for gradients."""
    # Not NAMES, which are those of the library: a shape from outside has a line in RULES, too.
    if not isinstance(name, str) or name not in RULES or RULES[name].fit is None:
        validate.choice("mechanism", name, tuple(name for name, rule in RULES.items() if rule.fit))
    return Gaussian(name) if RULES[name].gaussian else KNorm(name)


def of_matrices(kind: type[Cost]) -> Mechanism:
    """Return the noise of symmetric matrices that is paid in this currency."""
    return kind.either(KNorm("wishart"), Gaussian("gaussian matrix"))


def for_tilts(name: str, problem: Problem) -> Mechanism:
    """Return the noise of this name for a tilt: balanced where gradients are, which is the same norm in a subspace."""
    return named((_BALANCED if problem.loss.is_balanced else "") + name)


def require_fit(mechanism: Mechanism, problem: Problem, *, tilts: bool = False) -> None:
    """Raise unless there is such noise for sums of a problem's gradients, or for tilts of its objective."""
    if mechanism.rule.tilts and not tilts:
        raise ValueError(f"{mechanism.name!r} noise is for tilts, and protects no sum of gradients: use 'auto'.")
    mechanism.shape(problem)


def smallest(problem: Problem, kind: type[Cost], *, tilts: bool = False) -> Mechanism:
    """Return the noise whose public trace is smallest at the same cost, among those paid in this currency.

    The trace is weighed by a public guess of the curvature: noise along a steep direction does little harm. It is noise
    of sums of gradients, or of tilts.
    """
    known = [named(name) for name in (TILTS if tilts else NAMES)]
    fitting = [mechanism for mechanism in known if mechanism.kind is kind and mechanism.covers(problem)]
    risks = [risk(noise, problem.typical_sensitivity(noise.norm), problem) for noise in fitting]
    # The first within a hair: shapes that are the same but for rounding go by their plainest name.
    return next(noise for noise, size in zip(fitting, risks, strict=True) if size <= min(risks) * (1 + 1e-9))


def risk(noise: Mechanism, scale: float, problem: Problem) -> float:
    """Return a public guess of E ½ w'H⁻¹w, the error that noise of this scale on a sum of gradients leads to."""
    covariance, units = noise.covariance(problem)
    return 0.5 * (scale / problem.n) ** 2 * covariance.weighed(units, *problem.guessed_curvature)


def _units(shape: Shape, problem: Problem) -> np.ndarray:
    return np.ones(problem.dimension) if shape.stretches else problem.units


def _checked_weights(weights: np.ndarray) -> np.ndarray:
    """Return usable weights, or raise; a vanishing one counts as 1e-36 of the largest: every step gets a share."""
    weights = np.asarray(weights, dtype=float)
    if weights.ndim != 1 or len(weights) == 0:
        raise ValueError(f"weights must be a sequence with one entry per step, got shape {weights.shape}.")
    if not (np.all(np.isfinite(weights)) and np.all(weights >= 0) and weights.max() > 0):
        raise ValueError("weights must be finite, not negative and not all zero.")
    return np.maximum(weights, 1e-36 * weights.max())


def _sampled_split(weights: np.ndarray, epsilon: float, sampling: Sampling) -> np.ndarray:
    """Return the epsilons with ``sum = epsilon`` that make ``sum weights_t / u_t²`` smallest."""
    log_weights = np.log(weights / weights.max())
    losses = sampling.base_epsilon(np.array([epsilon, epsilon / len(weights)]))
    # The largest weight gets between an even share and everything: a bracket for the dual variable.
    low, high = (-_level(np.log(losses), sampling.fraction)).tolist()
    if high - low < 1e-12:
        return np.full(len(weights), epsilon / len(weights))

    def costs(shift: float) -> np.ndarray:
        return sampling.amplified_epsilon(np.exp(_inverse_level(log_weights - shift, sampling.fraction)))

    def excess(shift: float) -> float:
        return float(np.log(costs(shift).sum() / epsilon))

    shares = costs(root_between(excess, low - 1e-9, high + 1e-9, xtol=1e-14))
    return epsilon * shares / shares.sum()


def _sampled_noise_by_horizon(prediction: Prediction, epsilon: float, sampling: Sampling) -> np.ndarray:
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
