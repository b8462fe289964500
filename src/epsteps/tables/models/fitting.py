"""From a table and a plan to a model."""

from collections.abc import Callable
from typing import Any

import numpy as np

from epsteps.data.rows import Rows
from epsteps.ledger.accounts import Account
from epsteps.methods.steps import StepsPlan
from epsteps.plans.plan import Plan
from epsteps.problem import limits
from epsteps.problem.problem import Problem
from epsteps.running.run import run
from epsteps.tables.models.model import Model
from epsteps.tables.schema import Schema

# Points are held within this, so that what is computed from them stays finite.
LARGEST = 1e150


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
) -> Model:
    """Execute a plan on a table.

    Formal guarantee: without ``seed``, the model with all its points is private as ``plan.spending()`` says when one
    row of the table is replaced: each row is encoded by the schema alone, and what follows the run is post-processing.
    """
    rows = Rows(plan.problem, schema.encode(table), schema.encode_target(table))
    result = run(plan, rows, seed=seed, ledger=ledger, on_step=on_step)
    points = result.path.reshape(len(result.path), plan.problem.loss.outputs, plan.problem.width)
    return Model(schema, plan, centred(held(points)), result.seeded)


def rehearsal(plan: Plan, schema: Schema) -> Model:
    """Return a model of zeros: what can be said of any model of this plan can be said of it, before there is one.

    Raises if the file of such a model would be too large.
    """
    limits.require_file(plan.problem, plan.iterations + 1 if isinstance(plan, StepsPlan) else len(plan.charges) + 5)
    return Model(schema, plan, np.zeros((1, plan.problem.loss.outputs, plan.problem.width)), True)


def held(points: np.ndarray) -> np.ndarray:
    """Return finite points: noise beyond what floats hold, or what comes of it, is held at their end."""
    return np.clip(np.nan_to_num(points, nan=0.0, posinf=LARGEST, neginf=-LARGEST), -LARGEST, LARGEST)


def centred(points: np.ndarray) -> np.ndarray:
    """Return points whose coefficients add up to 0 over several classes: noise that all share changes no prediction."""
    return points if points.shape[1] == 1 else points - points.mean(axis=1, keepdims=True)
