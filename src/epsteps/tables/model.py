"""Linear models: the plan that they came from and the points that were published; of tables, with their schema."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from epsteps.budgets import Budget
from epsteps.data.rows import Rows
from epsteps.ledger.books import Account
from epsteps.methods.intervals.table import Contrasts, Intervals, Terms
from epsteps.plans.plan import Plan
from epsteps.problem import limits
from epsteps.problem.problem import Problem
from epsteps.running.run import Run, run
from epsteps.tables.files import columns_of
from epsteps.tables.schema import Schema

# Points are held within this, so that what is computed from them stays finite.
LARGEST = 1e150
INTERCEPT = "(intercept)"


def published(plan: Plan, rows: Rows, **options: Any) -> tuple[np.ndarray, Run]:
    """Execute a plan on records, with the options of ``epsteps.run``: return its points, and all that it published.

    Points are (point, output, coordinate), in the units of the plan's domain: coefficients, then the intercept if there
    is one. The last point is the model.
    """
    result = run(plan, rows, **options)
    return result.path.reshape(len(result.path), plan.problem.loss.outputs, plan.problem.width), result


def unscaled(
    problem: Problem, points: np.ndarray, shift: np.ndarray, unit: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients (point, output, column) and constants (point, output) for records shift + unit u."""
    coefficients = points[..., : problem.d] / unit
    constants = points[..., -1] if problem.intercept else np.zeros(points.shape[:2])
    return coefficients, constants - coefficients @ shift


def certificate(
    budget: Budget, spent: float, method: str, *, unprotected: str | None, when: str = "", per_person: int = 1
) -> dict[str, Any]:
    """Return what a fit guarantees, as plain values; ``unprotected`` says why nothing, if the noise has a seed.

    Budget and what is spent are those of a person with so many records.
    """
    replaced = "one record is" if per_person == 1 else f"all records of one person, {per_person} at most, are"
    promise = f"differential privacy with {budget}, when {replaced} replaced{when}"
    return {
        "guarantee": promise if unprotected is None else unprotected,
        "epsilon": float(budget.amount),
        "delta": float(budget.delta),
        "spent": float(spent),
        "seeded": unprotected is not None,
        "adjacency": f"{replaced} replaced; the number of records is public",
        "method": method,
    }


def probabilities(margins: np.ndarray) -> np.ndarray:
    """Return the probability of each class from margins: of the second of two classes, or of each of more."""
    if margins.ndim == 1:
        return np.column_stack([expit(-margins), expit(margins)])
    return softmax(margins, axis=1)


def likeliest(margins: np.ndarray) -> np.ndarray:
    """Return the place of the likeliest class from such margins; the first among equals."""
    return (margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)


@dataclass(frozen=True, eq=False)
class Model:
    """A linear model of a table: what a fit published.

    Parameters
    ----------
    schema : Schema
        The declared columns, the target among them.
    plan : plan
        What was decided before the data was read.
    points : array of shape (points, outputs, d + 1)
        Every published point, for encoded features: coefficients, then the intercept. The last one is the model.
    seeded : bool
        Whether the noise came from a seed: such a model is NOT private.
    besides : mapping of arrays
        What was published besides and intervals are computed from, as the plan has it (``plan.besides``).
    """

    schema: Schema
    plan: Plan
    points: np.ndarray
    seeded: bool
    besides: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem = self.plan.problem
        points = np.array(self.points, dtype=float)
        wanted = (problem.loss.outputs, problem.width)
        if points.ndim != 3 or not len(points) or points.shape[1:] != wanted or not np.all(np.isfinite(points)):
            raise ValueError(f"points must be finite numbers of shape (points, {wanted[0]}, {wanted[1]}).")
        if not problem.intercept or problem.d != self.schema.d or problem.domain != self.schema.domain():
            raise ValueError("the plan is for other columns than those that the schema declares.")
        points.flags.writeable = False
        object.__setattr__(self, "points", points)
        besides = {name: np.array(values, dtype=float) for name, values in self.besides.items()}
        shapes = {name: values.shape for name, values in besides.items()}
        lacks = shapes != self.plan.besides and (bool(shapes) or self.plan.needs_besides)
        if lacks or not all(np.all(np.isfinite(values)) for values in besides.values()):
            raise ValueError(
                f"the plan publishes {self.plan.besides} besides, of finite numbers, and here is {shapes}."
            )
        object.__setattr__(self, "besides", besides)

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """The declared classes; None for a target of numbers."""
        return self.schema.target_column.classes

    @property
    def has_probabilities(self) -> bool:
        """Whether margins are logits: so they are with the loss that fits the schema's target."""
        return self.classes is not None and self.plan.problem.loss == self.schema.loss()

    @property
    def outputs(self) -> tuple[str, ...]:
        """What each row of coefficients speaks for: the second of two classes, each of more, or the target itself."""
        if self.classes is None:
            return (str(self.schema.target),)
        listed = self.classes[1:] if len(self.classes) == 2 else self.classes
        return tuple(f"{self.schema.target}={label}" for label in listed)

    @cached_property
    def terms(self) -> Terms:
        """What the numbers of the model are to people: effects of whole ranges and of categories, by their names."""
        middle, half = self.schema.target_column.target_scale
        problem, several = self.plan.problem, len(self.outputs) > 1
        names = [*self.schema.names, INTERCEPT]
        # Points are centred over the classes, so that their rows are, too.
        mixed = np.eye(len(self.outputs)) - several / len(self.outputs)
        return Terms(
            [f"{output}: {name}" for output in self.outputs for name in names] if several else names,
            half * np.kron(mixed, np.eye(problem.width)),
            middle * np.tile(np.eye(problem.width)[-1], len(self.outputs)),
            () if several else self.schema.categories,
            not several,
        )

    def intervals(
        self, level: float | None = None, target: str | None = None, contrasts: Contrasts = None
    ) -> Intervals:
        """Return intervals for the effects of ``terms``, or for contrasts: from what was published, at no price.

        As ``Run.intervals``, and for any level and contrast of a model that is read from its file. Raises where the
        plan's method gives none.
        """
        result = Run(self.plan, self.points.reshape(len(self.points), -1), self.seeded, dict(self.besides))
        return self.terms.intervals(result.intervals, contrasts, level=level, target=target)

    def margins(self, frame: Any) -> np.ndarray:
        """Return the model's values at a table's rows, one for each output; of one output, as a single column."""
        x = self.points[-1]
        margins = self.schema.encode(frame) @ x[:, :-1].T + x[:, -1]
        return margins[:, 0] if len(x) == 1 else margins

    def predict(self, frame: Any) -> np.ndarray:
        """Return each row's class, or its number in the target's own unit, within the declared range."""
        margins = self.margins(frame)
        if self.classes is None:
            return self.schema.decode_target(margins)
        return np.array(self.classes)[likeliest(margins)]

    def probabilities(self, frame: Any) -> np.ndarray:
        """Return each row's probability of each class, in the order of their declaration."""
        if self.classes is None:
            raise ValueError(f"the target {self.schema.target!r} is a number: there are no probabilities of classes.")
        if not self.has_probabilities:
            raise ValueError("the model was fitted with a loss of margins, and has no probabilities of classes.")
        return probabilities(self.margins(frame))

    def evaluated(self, data: Any) -> tuple[Problem, np.ndarray, bool, float, Callable[[], Rows]]:
        """Return what an evaluation needs: how records are read, the point, whether it has probabilities, and the unit.

        And, where there is a table, what reads its records; the number of them is that of its rows.
        """
        schema, problem = self.schema, self.plan.problem
        x, unit = self.points[-1].ravel(), schema.target_column.target_scale[1]
        if data is None:
            return problem, x, self.classes is not None, unit, _no_records
        features, targets = schema.encode(data), schema.encode_target(data)
        problem = replace(problem, n=len(targets), clip=None)
        return problem, x, self.classes is not None, unit, lambda: Rows(problem, features, targets)


def _no_records() -> Rows:
    raise ValueError("there are no records to evaluate the model on. Pass the table.")


def problem_of(schema: Schema, n: int, ridge: float) -> Problem:
    """Return the problem of a schema's target and n records, with an intercept: public facts alone."""
    return Problem(schema.loss(), schema.domain(), ridge=ridge, n=n, d=schema.d, intercept=True)


def fit_model(
    plan: Plan,
    schema: Schema,
    table: Any,
    *,
    seed: int | None = None,
    ledger: Account | None = None,
    on_step: Callable[[int], None] | None = None,
    anyway: bool = False,
    per_person: int = 1,
) -> Model:
    """Execute a plan on a table; where the schema names the column of persons, on so many records of each.

    Formal guarantee: without ``seed``, the model with all its points is private as ``plan.spending()`` says when one
    row of the table is replaced: each row is encoded by the schema alone, and what follows the run is post-processing.
    """
    require_measurable(plan, schema)
    features, targets = schema.encode(table), schema.encode_target(table)
    if schema.person is not None:
        kept, classes = schema.kept(table, per_person), schema.target_column.classes
        features, targets = features * kept[:, None], np.where(kept, targets, 0.0 if classes is None else classes[0])
    rows = Rows(plan.problem, features, targets)
    points, result = published(plan, rows, seed=seed, ledger=ledger, on_step=on_step, anyway=anyway)
    besides = {name: held(result.extras[name]) for name in plan.besides}
    return Model(schema, plan, centred(held(points)), result.seeded, besides)


def promise_to_a_person(plan: Plan, budget: Budget, per_person: int, seeded: bool) -> dict[str, Any]:
    """Return what a plan guarantees a person with so many records, beside the certificate of one record."""
    spent, unprotected = (
        plan.spending().of_group(per_person).amount,
        "NOT PRIVATE: a seed makes the noise repeatable" if seeded else None,
    )
    stated = certificate(budget, spent, plan.method, unprotected=unprotected, per_person=per_person)
    return {"per_person": per_person} | {name: stated[name] for name in ("epsilon", "delta", "spent", "guarantee")}


def require_measurable(plan: Plan, schema: Schema) -> None:
    """Raise where curvature would be bought that measures nothing.

    A number with an indicator for what is missing is a block of two columns to the domain, as a category of two levels
    is. A plan of before does not tell them apart: a record whose value is known would have no level there, and count as
    0.
    """
    if "curvature" in plan.besides and plan.problem.domain.categories != schema.categories:
        raise ValueError(
            "the plan takes numbers that have missing=True for categories, and would measure nothing: it was made by "
            "an earlier version, or not with the schema's domain. Make it anew: nothing was charged."
        )


def rehearsal(plan: Plan, schema: Schema) -> Model:
    """Return a model of zeros: what can be said of any model of this plan can be said of it, before there is one.

    Raises if the file of such a model would be too large.
    """
    require_measurable(plan, schema)
    limits.require_file(plan.problem, plan.points + 1)
    besides = {name: np.eye(*shape) if len(shape) == 2 else np.zeros(shape) for name, shape in plan.besides.items()}
    return Model(schema, plan, np.zeros((1, plan.problem.loss.outputs, plan.problem.width)), True, besides)


def held(points: np.ndarray) -> np.ndarray:
    """Return finite numbers: noise beyond what floats hold, or what comes of it, is held at their end."""
    return np.clip(np.nan_to_num(points, nan=0.0, posinf=LARGEST, neginf=-LARGEST), -LARGEST, LARGEST)


def centred(points: np.ndarray) -> np.ndarray:
    """Return points whose coefficients add up to 0 over several classes: noise that all share changes no prediction."""
    return points if points.shape[1] == 1 else points - points.mean(axis=1, keepdims=True)


NOTE = (
    "The guarantee covers the records of the fit. The records that the model was scored on were read without "
    "protection: if they are private too, so are these scores."
)
_TINY = 1e-15


def of_classes(
    places: np.ndarray, right: np.ndarray, margins: np.ndarray, probabilities: np.ndarray | None
) -> dict[str, float]:
    """Return accuracy, logarithmic loss and, of two classes that both occur, the area under the ROC curve.

    ``places`` are those of the true classes, ``right`` says which predictions are; margins of two classes are those of
    the second. Without probabilities there is no logarithmic loss.
    """
    scores = {"accuracy": float(np.mean(right))}
    if probabilities is not None:
        likely = np.maximum(probabilities[np.arange(len(places)), places], _TINY)
        scores["log_loss"] = float(-np.mean(np.log(likely)))
    if margins.ndim == 1 and 0 < np.sum(places) < len(places):
        second, first = margins[places == 1], np.sort(margins[places == 0])
        below, not_above = (np.searchsorted(first, second, side=side).sum() for side in ("left", "right"))
        scores["roc_auc"] = float(below + not_above) / (2 * len(first) * len(second))
    return scores


def of_numbers(truth: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Return R², mean absolute error and root mean squared error."""
    residuals = truth - predictions
    return {
        "r2": r_squared(truth, predictions),
        "mean_absolute_error": float(np.mean(np.abs(residuals))),
        "root_mean_squared_error": float(np.sqrt(np.mean(residuals**2))),
    }


def r_squared(truth: np.ndarray, predictions: np.ndarray, weights: Any = None) -> float:
    """Return R², of targets that are all the same 1 if they are predicted exactly and else 0, as scikit-learn does."""
    weights = np.ones(len(truth)) if weights is None else np.asarray(weights, dtype=float)
    left = float(np.sum(weights * (truth - predictions) ** 2))
    spread = float(np.sum(weights * (truth - np.average(truth, weights=weights)) ** 2))
    if spread == 0:
        return float(left == 0)
    return 1 - left / spread


def unprotected_scores(model: Model, table: Any) -> dict[str, Any]:
    """Return scores of a model on a table with its target, UNPROTECTED for these records, and a note that says so.

    A label that is not declared counts as wrong in accuracy and as the first class elsewhere; a number outside its
    range as the nearest end. A score that floats do not hold is not finite.
    """
    with np.errstate(all="ignore"):
        truth, predictions = model.schema.encode_target(table), model.predict(table)
        if model.classes is None:
            scores = of_numbers(model.schema.decode_target(truth), predictions)
        else:
            name = str(model.schema.target)
            known = ~model.schema.target_column.unknown(columns_of(table, [name])[name])
            places = np.select([truth == label for label in model.classes], np.arange(len(model.classes)))
            right = (predictions == truth) & known
            likely = model.probabilities(table) if model.has_probabilities else None
            scores = of_classes(places, right, model.margins(table), likely)
    return {"records": len(predictions), **scores, "note": NOTE}
