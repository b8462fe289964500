"""A linear model of a table: the schema that encodes it, the plan that it came from, and the published points."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from epsteps.methods import PublishedPlan
from epsteps.plans.planning import Plan
from epsteps.tables.columns import Category, Numeric
from epsteps.tables.schema import Schema


@dataclass(frozen=True, eq=False)
class Model:
    """What a fit published.

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
    """

    schema: Schema
    plan: Plan | PublishedPlan
    points: np.ndarray
    seeded: bool

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

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """The declared classes; None for a target of numbers."""
        column = self.schema.target_column
        return tuple(column.values) if isinstance(column, Category) else None

    @property
    def outputs(self) -> tuple[str, ...]:
        """What each row of coefficients speaks for: the second of two classes, each of more, or the target itself."""
        if self.classes is None:
            return (str(self.schema.target),)
        listed = self.classes[1:] if len(self.classes) == 2 else self.classes
        return tuple(f"{self.schema.target}={label}" for label in listed)

    @property
    def target_scale(self) -> tuple[float, float]:
        """Middle and half width of a numeric target's range, in whose units coefficients are told; else 0 and 1."""
        column = self.schema.target_column
        if not isinstance(column, Numeric):
            return 0.0, 1.0
        return column.low / 2 + column.high / 2, column.high / 2 - column.low / 2

    def margins(self, frame: Any) -> np.ndarray:
        """Return the model's values at a table's rows, one column for each output."""
        x = self.points[-1]
        return self.schema.encode(frame) @ x[:, :-1].T + x[:, -1]

    def predict(self, frame: Any) -> np.ndarray:
        """Return each row's class, or its number in the target's own unit, within the declared range."""
        margins = self.margins(frame)
        if self.classes is None:
            return self.schema.decode_target(margins[:, 0])
        places = (margins[:, 0] > 0).astype(int) if margins.shape[1] == 1 else margins.argmax(axis=1)
        return np.array(self.classes)[places]

    def probabilities(self, frame: Any) -> np.ndarray:
        """Return each row's probability of each class, in the order of their declaration."""
        if self.classes is None:
            raise ValueError(f"the target {self.schema.target!r} is a number: there are no probabilities of classes.")
        margins = self.margins(frame)
        if margins.shape[1] == 1:
            return np.column_stack([expit(-margins[:, 0]), expit(margins[:, 0])])
        return softmax(margins, axis=1)
