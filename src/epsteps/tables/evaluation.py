"""Scores of a published model on private records, bought: what they are, their intervals, and how they are shown.

Everything here but ``evaluate`` is computed from what an ``EvaluationPlan`` published. An interval is for the score of
these records, from which noise alone separates what was published ("sample"), or for that of the population that they
were drawn from ("population"). Its ends are quantiles of the scores of counts from which noise of the same law, from a
public seed, is taken off once more; for the population also what another sample would change.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import Any, Protocol

import numpy as np
from scipy.special import expit

from epsteps.budgets import Budget
from epsteps.data.rows import Rows
from epsteps.ledger.books import Account
from epsteps.ledger.parts import Disjoint, price_of_parts, split
from epsteps.methods.evaluation import LARGEST_LOSS, STEPS, EvaluationPlan, plan_evaluation
from epsteps.noise import Source
from epsteps.noise.bits import public_generator
from epsteps.problem import validate
from epsteps.problem.problem import Problem
from epsteps.running.run import run

HELD_OUT, TRAINING = "held out", "training"
SAMPLE, POPULATION = "sample", "population"
# Draws that quantiles are taken of; and the public seed of them.
_DRAWS, _SEED = 4000, 0
# Points of a calibration curve at most, each with so many deviations of its noise or more.
_POINTS, _CLEAR = 10, 4.0


class Published(Protocol):
    """A model that can be evaluated: of a table, or an estimator."""

    def evaluated(self, data: Any) -> tuple[Problem, np.ndarray, bool, float, Callable[[], Rows]]:
        """Return how its records are read, its point, whether it has probabilities, its unit, and the records."""
        ...


@dataclass(frozen=True)
class Metric:
    """One private number, with an interval of a level for the score of these records or of their population."""

    name: str
    value: float
    low: float
    high: float
    level: float
    target: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON knows it: None for what floats do not hold."""
        numbers = {name: _finite(getattr(self, name)) for name in ("value", "low", "high")}
        return {"name": self.name, **numbers, "level": self.level, "target": self.target}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Private scores of a published model on n records: everything here may be published, at the price of the plan.

    Parameters
    ----------
    plan : EvaluationPlan
        What was decided before the records were read.
    published : mapping of arrays
        What was released: counts with their edges, or sums.
    rows : "held out" or "training"
        Whether the records are said not to be those of the fit. It is charged in full either way.
    seeded : bool
        Whether the noise came from a seed: then nothing here is private.
    level : float
        Of the intervals.
    charged : str
        What was charged for it, in words.
    """

    plan: EvaluationPlan
    published: Mapping[str, np.ndarray]
    rows: str
    seeded: bool = False
    level: float = 0.95
    charged: str = ""
    _draws: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        validate.choice("rows", self.rows, (HELD_OUT, TRAINING))
        if not 0.5 <= validate.number("level", self.level) <= 0.99:
            raise ValueError(f"level must lie in [0.5, 0.99], got {self.level!r}.")

    @property
    def spent(self) -> Budget:
        """What the evaluation cost."""
        return self.plan.spending()

    @property
    def n(self) -> int:
        """Number of records."""
        return self.plan.problem.n

    def metrics(self, target: str = POPULATION, level: float | None = None) -> list[Metric]:
        """Return the scores with intervals for those of the population, or of these records ("sample")."""
        validate.choice("target", target, (POPULATION, SAMPLE))
        level = self.level if level is None else replace(self, level=level).level
        with np.errstate(all="ignore"):
            return [_metric(score, level, target, self._arrays(target)) for score in self._scores]

    def __getitem__(self, name: str) -> Metric:
        """Return one of the scores by its name, with its interval for the population."""
        found = {metric.name: metric for metric in self.metrics()}
        if name not in found:
            raise KeyError(f"there is no {name!r} here, but {', '.join(found)}.")
        return found[name]

    @cached_property
    def confusion(self) -> np.ndarray:
        """The noisy confusion matrix, one row for each true class and one column for each that is predicted."""
        if not self.plan.classes:
            raise ValueError("targets are numbers: there is no confusion matrix.")
        return _confused(self.plan, self.published, self._counts[None])[0]

    def confusion_intervals(self, target: str = POPULATION) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of an interval for each entry of the confusion matrix, each of the level by itself."""
        counts = _confused(self.plan, self.published, self._arrays(target)["counts"])
        tail = _tail(self.level, len(counts))
        ends = np.quantile(counts, [tail, 1 - tail], axis=0)
        low, high = np.clip(ends, 0, self.n)
        return low, high

    @cached_property
    def calibration(self) -> list[dict[str, float]]:
        """The calibration curve: for ranges of the predicted probability, the share of records for which it was right.

        Of two classes it is the probability of the second and the share of records of it; of more, that of the
        predicted class. ``low`` and ``high`` are ends of an interval for the population's share. Buckets of scores are
        joined until their records are clearly more than their noise.
        """
        return _calibration(self) if self.plan.classes and self.plan.probabilities else []

    @property
    def error_bound(self) -> float:
        """What errors are held within where targets are numbers, in the problem's units: declared, or bought."""
        return float(self.published["bound"][0])

    @property
    def note(self) -> str:
        """What belongs beside the numbers."""
        if self.seeded:
            return "NOT PRIVATE: a seed makes the noise repeatable."
        same = (
            "These are records of the fit: scores of them are too good, as the model was fitted to them."
            if self.rows == TRAINING
            else "No record of the fit is among them."
            if self.charged
            else "They are said not to be those of the fit."
        )
        if not self.plan.classes:
            same += f" Errors beyond {self.error_bound * self.plan.unit:.6g} count as that."
        charged = self.charged or f"{self.spent}, in full"
        return f"Differentially private, {self.n} records, charged: {charged}. {same}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON knows it: for model.json."""
        content = {
            "rows": self.rows,
            "records": self.n,
            "private": not self.seeded,
            "spent": self.spent.amount,
            "unit": self.plan.budget.unit,
            "delta": self.plan.budget.delta,
            "charged": self.charged,
            "note": self.note,
            "metrics": [metric.to_dict() for metric in self.metrics()],
            "sample": [metric.to_dict() for metric in self.metrics(SAMPLE)],
        }
        if not self.plan.classes:
            content["error_bound"] = self.error_bound * self.plan.unit
        else:
            low, high = self.confusion_intervals()
            listed = [str(label) for label in self.plan.problem.loss.targets.classes]  # pyright: ignore
            matrices = {"counts": self.confusion.tolist(), "low": low.tolist(), "high": high.tolist()}
            content["confusion"] = {"classes": listed, **matrices}
            content["calibration"] = [{name: _finite(value) for name, value in row.items()} for row in self.calibration]
        return content

    def table(self) -> list[list[str]]:
        """Return the scores as rows of text: name, value, interval of the population's and of the sample's."""
        ends = [
            [f"[{metric.low:.4g}, {metric.high:.4g}]" for metric in self.metrics(of)] for of in (POPULATION, SAMPLE)
        ]
        return [
            [metric.name, f"{metric.value:.4g}", population, sample]
            for metric, population, sample in zip(self.metrics(), *ends, strict=True)
        ]

    @property
    def _header(self) -> list[str]:
        percent = f"{100 * self.level:g} %"
        return ["score", "value", f"{percent} for the population", f"{percent} for these records"]

    def __str__(self) -> str:
        rows = [self._header, *self.table()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, self.note])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in self._header)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.table())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{escape(self.note)}</p>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the calibration curve, or of numbers the scores with their intervals; needs matplotlib."""
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.figure().add_subplot()
        if self.calibration:
            middles = [(row["from"] + row["to"]) / 2 for row in self.calibration]
            shares = [row["share"] for row in self.calibration]
            ends = [[s - row["low"] for s, row in zip(shares, self.calibration, strict=True)]]
            ends.append([row["high"] - s for s, row in zip(shares, self.calibration, strict=True)])
            ax.plot([0, 1], [0, 1], color="grey", linewidth=1)
            ax.errorbar(middles, shares, yerr=np.maximum(ends, 0), fmt="o")
            ax.set_xlabel("predicted probability")
            ax.set_ylabel("share of records")
            return ax
        for place, metric in enumerate(self.metrics()):
            ax.plot([metric.low, metric.high], [place, place], color="grey")
            ax.plot(metric.value, place, "o")
        ax.set_yticks(range(len(self._scores)), [score.name for score in self._scores])
        return ax

    # --- what intervals are computed from -------------------------------------------------------------------------

    @cached_property
    def _counts(self) -> np.ndarray:
        return np.asarray(self.published["counts"], dtype=float)

    @cached_property
    def _scores(self) -> list["_Score"]:
        if not self.plan.classes:
            return _scores_of_numbers(self.plan, self.error_bound)
        return _scores_of_two(self.plan, self.published) if self.plan.classes == 2 else _scores_of_several(self.plan)

    def _arrays(self, target: str) -> dict[str, np.ndarray]:
        """Return what was published, in the first row, and draws of what the records, or the population, may be."""
        if target not in self._draws:
            self._draws[target] = _simulated(self, target)  # pyright: ignore[reportArgumentType]
        return self._draws[target]  # pyright: ignore[reportReturnType]


# What a score is computed from: an array for each thing that was published, with a row for each draw.
_Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class _Score:
    """A score: its name, its value, a lower and an upper one where buckets leave it open, and what it lies within."""

    name: str
    value: Callable[[_Arrays], np.ndarray]
    within: tuple[float, float]
    ends: Callable[[_Arrays], tuple[np.ndarray, np.ndarray]] | None = None


def _metric(score: _Score, level: float, target: str, arrays: _Arrays) -> Metric:
    """Return a score with the quantiles of its draws; what is no number counts as either end."""
    lowest, highest = score.within
    value = float(score.value({name: array[:1] for name, array in arrays.items()})[0])
    low, high = (score.ends or (lambda arrays: (score.value(arrays),) * 2))(
        {name: array[1:] for name, array in arrays.items()}
    )
    tail = _tail(level, len(low))
    low = float(np.quantile(np.where(np.isnan(low), lowest, low), tail, method="lower"))
    high = float(np.quantile(np.where(np.isnan(high), highest, high), 1 - tail, method="higher"))
    value = value if math.isfinite(value) else (low + high) / 2
    value, low, high = (float(np.clip(number, lowest, highest)) for number in (value, low, high))
    return Metric(score.name, value, min(low, value), max(high, value), level, target)


def _tail(level: float, draws: int) -> float:
    """Return the share of the draws beyond each end: less than half of what is left, by twice its standard error."""
    tail = (1 - level) / 2
    return max(tail - 2 * math.sqrt(tail * (1 - tail) / draws), tail / 5)


def _simulated(evaluation: Evaluation, target: str) -> dict[str, np.ndarray]:
    """Return what was published, and draws of it with the noise taken off once more; and less a sample's deviation."""
    plan, published, generator = evaluation.plan, evaluation.published, public_generator(_SEED)
    scales = {"sums": plan.asked[-1].scale, "losses": plan.asked[-1].scale}
    scales["counts"] = plan.asked[0 if plan.classes > 2 else -1].scale
    arrays = {}
    for place, name in enumerate(name for name in ("counts", "losses", "sums") if name in published):
        values = np.asarray(published[name], dtype=float)
        noise = Source(_SEED + 1 + place).draw(plan.noise, scales[name], (values.size, _DRAWS)).T
        draws = values - noise
        if name == "counts" and target == POPULATION:
            likely = np.clip(values, 0.0, None)
            likely = likely / likely.sum() if likely.any() else np.full(values.size, 1 / values.size)
            draws -= generator.multinomial(plan.problem.n, likely, size=_DRAWS) - plan.problem.n * likely
        arrays[name] = np.concatenate([values[None], draws])
    # One more number for each draw: how a sample's sums deviate, in standard deviations.
    sampled = generator.standard_normal(_DRAWS) if target == POPULATION else np.zeros(_DRAWS)
    arrays["sampling"] = np.append(0.0, sampled)
    return arrays


def _balanced(plan: EvaluationPlan, counts: np.ndarray) -> np.ndarray:
    """Return counts that add up to n, which is public: what is missing is divided evenly."""
    return counts + (plan.problem.n - counts.sum(axis=-1, keepdims=True)) / counts.shape[-1]


def _of_two(plan: EvaluationPlan, edges: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return counts as (draw, class, bucket)."""
    return counts.reshape(len(counts), 2, len(edges) + 1)


def _confused(plan: EvaluationPlan, published: Mapping[str, np.ndarray], counts: np.ndarray) -> np.ndarray:
    """Return confusion matrices, one for each draw."""
    counts = _balanced(plan, counts)
    if plan.classes > 2:
        return counts.reshape(len(counts), plan.classes, plan.classes, plan.buckets).sum(axis=-1)
    edges = published["edges"]
    table = _of_two(plan, edges, counts)
    positive = _lower_ends(edges) >= 0
    return np.stack([table[:, :, ~positive].sum(axis=2), table[:, :, positive].sum(axis=2)], axis=2)


def _lower_ends(edges: np.ndarray) -> np.ndarray:
    return np.append(-np.inf, edges)


def _accuracy(plan: EvaluationPlan, published: Mapping[str, np.ndarray]) -> _Score:
    def value(arrays: _Arrays) -> np.ndarray:
        return np.einsum("dii->d", _confused(plan, published, arrays["counts"])) / plan.problem.n

    return _Score("accuracy", value, (0.0, 1.0))


def _scores_of_two(plan: EvaluationPlan, published: Mapping[str, np.ndarray]) -> list[_Score]:
    edges, n = published["edges"], plan.problem.n
    lower, upper = _lower_ends(edges), np.append(edges, np.inf)

    def pairs(arrays: _Arrays) -> tuple[np.ndarray, np.ndarray]:
        """Return the shares of pairs that are told apart, and of those in one bucket, which hides their order."""
        first, second = np.moveaxis(_of_two(plan, edges, arrays["counts"]), 1, 0)
        below = np.cumsum(first, axis=1) - first
        sizes = first.sum(axis=1), second.sum(axis=1)
        known = np.minimum(*sizes) > plan.deviation
        all_pairs = np.where(known, sizes[0] * sizes[1], np.nan)
        return np.sum(second * below, axis=1) / all_pairs, np.sum(second * first, axis=1) / all_pairs

    def auc(arrays: _Arrays) -> np.ndarray:
        """Return the area, half of what buckets hide included: of counts that are not negative, which err less."""
        apart, together = pairs({"counts": np.maximum(arrays["counts"], 0.0)})
        return apart + together / 2

    def auc_ends(arrays: _Arrays) -> tuple[np.ndarray, np.ndarray]:
        apart, together = pairs(arrays)
        return apart, apart + np.maximum(together, 0.0)

    scores = [_accuracy(plan, published), _Score("roc_auc", auc, (0.0, 1.0), auc_ends)]
    if not plan.probabilities:
        return scores
    # The loss of the second class falls with the margin, that of the first rises; both are held at what FLOOR allows.
    lower, upper = np.clip(lower, *plan.margins), np.clip(upper, *plan.margins)
    middle = np.clip((lower + upper) / 2, edges[0] - plan.spread / 2, edges[-1] + plan.spread / 2)
    least, most, likely = (
        np.minimum(np.concatenate([np.logaddexp(0.0, first), np.logaddexp(0.0, -second)]), LARGEST_LOSS)
        for first, second in ((lower, upper), (upper, lower), (middle, middle))
    )

    def loss(weights: np.ndarray) -> Callable[[_Arrays], np.ndarray]:
        return lambda arrays: _balanced(plan, arrays["counts"]) @ weights / n

    ends = lambda arrays: (loss(least)(arrays), loss(most)(arrays))  # noqa: E731
    return [*scores, _Score("log_loss", loss(likely), (0.0, LARGEST_LOSS), ends)]


def _scores_of_several(plan: EvaluationPlan) -> list[_Score]:
    def loss(arrays: _Arrays) -> np.ndarray:
        mean = np.clip(arrays["losses"][:, 0] / STEPS / plan.problem.n, 0.0, 1.0)
        # No law within [0, 1] of this mean has a larger variance (Bhatia, Davis 2000).
        return LARGEST_LOSS * (mean + arrays["sampling"] * np.sqrt(mean * (1 - mean) / plan.problem.n))

    return [_accuracy(plan, {}), _Score("log_loss", loss, (0.0, LARGEST_LOSS))]


def _scores_of_numbers(plan: EvaluationPlan, bound: float) -> list[_Score]:
    largest, n = plan.problem.loss.targets.largest, plan.problem.n
    relative = bound / largest  # errors are in units of the bound, targets in those of the range's half

    width = bound * plan.unit

    def means(arrays: _Arrays) -> np.ndarray:
        return arrays["sums"].T / STEPS / n

    def spread(variance: np.ndarray) -> np.ndarray:
        return np.sqrt(np.maximum(variance, 0.0) / n)

    def squared(arrays: _Arrays) -> np.ndarray:
        """Return the mean squared error over the bound's square; its variance is at most that of 0 and 1 alone."""
        mean = np.clip(means(arrays)[0], 0.0, 1.0)
        return mean + arrays["sampling"] * spread(mean * (1 - mean))

    def absolute(arrays: _Arrays) -> np.ndarray:
        square, mean = means(arrays)[:2]
        return width * (mean + arrays["sampling"] * spread(np.clip(square, 0, 1) - mean**2))

    def r2(arrays: _Arrays) -> np.ndarray:
        """Return R²; errors and variance deviate in the way that moves it most, whatever their correlation is."""
        _, _, middle, square = means(arrays)
        middle = 2 * middle - 1
        variance = square - middle**2
        largest_square = (1 + np.abs(middle)) ** 2
        variance = variance - arrays["sampling"] * spread(variance * (largest_square - variance))
        return 1 - squared(arrays) * relative**2 / np.where(variance > 0, variance, np.nan)

    return [
        _Score("r2", r2, (-math.inf, 1.0)),
        _Score("mean_absolute_error", absolute, (0.0, width)),
        _Score(
            "root_mean_squared_error", lambda arrays: width * np.sqrt(np.maximum(squared(arrays), 0.0)), (0.0, width)
        ),
    ]


def _calibration(evaluation: Evaluation) -> list[dict[str, float]]:
    """Return the points of the curve, each of a few buckets that follow each other."""
    plan, published = evaluation.plan, evaluation.published
    arrays = evaluation._arrays(POPULATION)["counts"]
    if plan.classes == 2:
        wrong, right = np.moveaxis(_of_two(plan, published["edges"], _balanced(plan, arrays)), 1, 0)
        ends = expit(np.concatenate([[-np.inf], published["edges"], [np.inf]]))
        noisy = 2
    else:
        cells = _balanced(plan, arrays).reshape(len(arrays), plan.classes, plan.classes, plan.buckets)
        right = np.einsum("diib->db", cells)
        wrong = cells.sum(axis=(1, 2)) - right
        ends = 1 / plan.classes + (1 - 1 / plan.classes) * np.linspace(0, 1, plan.buckets + 1)
        noisy = plan.classes**2
    points = []
    for start, stop in _groups(right[0] + wrong[0], plan.deviation * math.sqrt(noisy), plan.problem.n):
        shares = right[:, start:stop].sum(axis=1) / (right + wrong)[:, start:stop].sum(axis=1)
        tail = _tail(evaluation.level, len(shares) - 1)
        low, high = np.quantile(shares[1:], [tail, 1 - tail])
        numbers = {"share": shares[0], "low": low, "high": high}
        numbers = {name: float(np.clip(number, 0.0, 1.0)) for name, number in numbers.items()}
        points.append({"from": float(ends[start]), "to": float(ends[stop]), **numbers})
    return points


def _groups(counts: np.ndarray, deviation: float, n: int) -> list[tuple[int, int]]:
    """Return ranges of buckets with about a tenth of the records each, and clearly more than their noise."""
    groups, start = [], 0
    for stop in range(1, len(counts) + 1):
        held = counts[start:stop].sum()
        if held >= max(n / _POINTS, _CLEAR * deviation * math.sqrt(stop - start)):
            groups.append((start, stop))
            start = stop
    if start < len(counts) and groups:
        groups[-1] = (groups[-1][0], len(counts))
    return groups


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def evaluation_plan(model: Published, n: int, budget: Budget, **options: Any) -> EvaluationPlan:
    """Return how a published model would be evaluated on n records: to be read and approved before any of them is.

    Options are ``buckets`` and ``error_bound``, as ``evaluate`` has them.
    """
    problem, x, probabilities, unit, _ = model.evaluated(None)
    problem = replace(problem, n=validate.integer("n", n), clip=None)
    return plan_evaluation(problem, budget, x, probabilities=probabilities, unit=unit, **options)


def evaluate(
    model: Published,
    data: Any,
    budget: Budget | None = None,
    *,
    plan: EvaluationPlan | None = None,
    rows: str = HELD_OUT,
    level: float = 0.95,
    buckets: int | None = None,
    error_bound: float | None = None,
    ledger: Account | None = None,
    seed: int | None = None,
    anyway: bool = False,
) -> Evaluation:
    """Evaluate a published model on private records, privately.

    Of classes it tells the accuracy, the confusion matrix and, where there are probabilities, the logarithmic loss
    (probabilities below 0.01 count as 0.01) and a calibration curve; of two classes also the area under the ROC curve.
    Of numbers it tells R², the mean absolute and the root mean squared error, of errors held within a bound.

    Formal guarantee: without ``seed``, everything in the result is together private as ``plan.spending()`` says when
    one of these records is replaced: exact counts or sums with exact integer noise, and what is computed from them.
    The model must be public: it is an argument of the release. The cost is charged in full, whatever ``rows`` says. If
    no record is in both the fit and the evaluation, the larger of both prices would do; that is charged only where it
    is enforced, by one call that divides the records: ``epsteps fit --hold-out``, ``fit_held_out``.

    Parameters
    ----------
    model : fitted estimator, or Model
        What was published.
    data : pair (X, y), or table
        The records: features and targets for an estimator, a table with its target for a model of a table. Or records
        at a data holder's (``epsteps.connect``): the plan is posted, and charged there.
    budget : Budget
        What may be spent.
    plan : EvaluationPlan, optional
        In the place of a budget: a plan that was approved (``evaluation_plan``).
    rows : "held out" or "training"
        Whether these are records that the model was not fitted to. A score of the training records is too good.
    level : float
        Of the intervals, from 0.5 to 0.99.
    buckets : int, optional
        Of the scores, where there are classes: by default as many as balance noise and what buckets hide. With 2 the
        accuracy and the confusion matrix have the least noise, and nothing else is told well.
    error_bound : float, optional
        Where targets are numbers: errors are held within this, in the target's unit. By default a share of the budget
        buys a bound that few or no errors are beyond; the smaller it is, the less noise.
    ledger : account, optional
        Charged before noise is drawn.
    seed : int, optional
        Makes it repeatable and NOT private: for experiments.
    anyway : bool
        Evaluate on records so few that nothing will be learned, too.
    """
    validate.choice("rows", rows, (HELD_OUT, TRAINING))
    if not 0.5 <= validate.number("level", level) <= 0.99:
        raise ValueError(f"level must lie in [0.5, 0.99], got {level!r}.")
    remote = hasattr(data, "execute")
    problem, x, probabilities, unit, read = model.evaluated(None if remote else data)
    if remote:
        problem, read = replace(problem, n=data.n), lambda: data
    if plan is not None:
        if any(given is not None for given in (budget, buckets, error_bound)):
            raise ValueError("the plan has decided budget, buckets and error_bound: leave them out.")
        if plan.problem != replace(problem, clip=None) or not np.array_equal(plan.x, x):
            raise ValueError(
                f"the plan is for another model, or for {plan.problem.n} records and not {problem.n}. Make it anew."
            )
    elif budget is None:
        raise TypeError("what may be spent? Pass a budget, such as epsteps.Pure(0.2), or a plan.")
    else:
        problem = replace(problem, clip=None)
        options = {"buckets": buckets, "error_bound": error_bound}
        plan = plan_evaluation(problem, budget, x, probabilities=probabilities, unit=unit, **options)
    if seed is None and not anyway:
        plan.require_hope()
    result = run(plan, read(), ledger=ledger, seed=seed, anyway=anyway)
    return Evaluation(plan, result.extras, rows, result.seeded, level)


def fit_held_out(
    fit: Callable[[np.ndarray, Account | None], Any],
    read: Callable[[np.ndarray], Any],
    rehearsed: Published,
    n: int,
    price: Budget,
    budget: Budget,
    *,
    hold_out: float = 0.2,
    split_seed: int = 0,
    level: float = 0.95,
    ledger: Account | None = None,
    seed: int | None = None,
    anyway: bool = False,
) -> tuple[Any, Evaluation]:
    """Fit a model to one part of the records and evaluate it on the others, for the larger of both prices.

    Formal guarantee: the parts follow from n, ``hold_out`` and ``split_seed`` alone (``ledger.parts.split``), so that a
    replaced record is in one of them. If it is in the fit's, the evaluation is a function of what the fit published; if
    not, the fit does not change. Both together are private as the larger price says (parallel composition), which is
    charged once, before either reads.

    Parameters
    ----------
    fit : callable
        Fits the records of these places, charging this account, and returns the model.
    read : callable
        Returns the records of these places, as ``evaluate`` takes them.
    rehearsed : model
        Any model of the same plan: what cannot be evaluated is found out before anything is charged.
    n, price, budget
        The number of all records, what the fit costs, and what its evaluation may.
    hold_out, split_seed
        The share of the records that is held out, and the public seed of the split.
    level, ledger, seed, anyway
        As in ``evaluate``.
    """
    training, others = split(n, hold_out, split_seed)
    rehearsal = evaluation_plan(rehearsed, len(others), budget)
    rehearsal.require_executable()
    if seed is None and not anyway:
        rehearsal.require_hope()
    larger = price_of_parts((price, budget))
    note = f"fit to {len(training)} records and evaluation on {len(others)} others, the larger price of both"
    account = None if ledger is None else Disjoint(ledger, (price, budget), note)
    parts = [None if account is None else account.part(number) for number in (0, 1)]
    model = fit(training, parts[0])
    options = {"level": level, "ledger": parts[1], "seed": seed, "anyway": anyway}
    evaluation = evaluate(model, read(others), budget, rows=HELD_OUT, **options)
    told = f"{larger} for the fit and this together, as no record is in both"
    return model, replace(evaluation, charged=f"{told} (split {hold_out:g}, seed {split_seed})")
