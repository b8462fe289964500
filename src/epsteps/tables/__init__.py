"""Tables: a declared schema, the model that is fitted to one, its file, its scores and its report."""

from epsteps.tables.bounds import Bounds, bounds_plan, buy_bounds
from epsteps.tables.columns import Category, Column, ColumnCheck, Numeric, Unbounded
from epsteps.tables.description import Description, describe, description_plan
from epsteps.tables.evaluation import Evaluation, Metric, evaluate, evaluation_plan, fit_held_out, split
from epsteps.tables.files import DELIMITERS, read_columns
from epsteps.tables.model import (
    Model,
    fit_model,
    problem_of,
    promise_to_a_person,
    rehearsal,
    unprotected_scores,
)
from epsteps.tables.model_file import (
    ModelFormatError,
    error_curve,
    load_model,
    model_from_dict,
    model_path,
    model_to_dict,
)
from epsteps.tables.report import page
from epsteps.tables.schema import Schema, SchemaCheck, draft

__all__ = [
    "DELIMITERS",
    "Bounds",
    "Category",
    "Column",
    "ColumnCheck",
    "Description",
    "Evaluation",
    "Metric",
    "Model",
    "ModelFormatError",
    "Numeric",
    "Schema",
    "SchemaCheck",
    "Unbounded",
    "bounds_plan",
    "buy_bounds",
    "describe",
    "description_plan",
    "draft",
    "error_curve",
    "evaluate",
    "evaluation_plan",
    "fit_held_out",
    "fit_model",
    "load_model",
    "model_from_dict",
    "model_path",
    "model_to_dict",
    "page",
    "problem_of",
    "promise_to_a_person",
    "read_columns",
    "rehearsal",
    "split",
    "unprotected_scores",
]
