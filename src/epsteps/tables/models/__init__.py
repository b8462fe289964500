"""Models of tables: fitted by a plan, kept as JSON without pickle, and described on a page for the data holder."""

from epsteps.tables.models.fitting import fit_model, problem_of, rehearsal
from epsteps.tables.models.guesses import error_curve, expected_error, model_deviations
from epsteps.tables.models.model import Model
from epsteps.tables.models.model_file import ModelFormatError, from_dict, load, to_dict
from epsteps.tables.models.report import page
from epsteps.tables.models.scoring import score

__all__ = [
    "Model",
    "ModelFormatError",
    "error_curve",
    "expected_error",
    "fit_model",
    "from_dict",
    "load",
    "model_deviations",
    "page",
    "problem_of",
    "rehearsal",
    "score",
    "to_dict",
]
