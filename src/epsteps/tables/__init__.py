"""Tables: a declared schema, the model that is fitted to one, its file, its scores and its report."""

from epsteps.tables.columns import Category, Column, ColumnCheck, Numeric
from epsteps.tables.evaluation import Evaluation, Metric, evaluate, evaluation_plan, fit_held_out, split
from epsteps.tables.files import DELIMITERS, read_columns
from epsteps.tables.model import Model, fit_model, problem_of, rehearsal, unprotected_scores
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
    "Category",
    "Column",
    "ColumnCheck",
    "Evaluation",
    "Metric",
    "Model",
    "ModelFormatError",
    "Numeric",
    "Schema",
    "SchemaCheck",
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
    "read_columns",
    "rehearsal",
    "split",
    "unprotected_scores",
]
