"""Models of tables: fitted by a plan, kept as JSON without pickle, and described on a page for the data holder."""

from epsteps.models.fitting import fit_model, problem_of, rehearsal
from epsteps.models.guesses import error_curve, expected_error, model_deviations
from epsteps.models.model import Model
from epsteps.models.model_file import ModelFormatError, from_dict, load, to_dict
from epsteps.models.report import page
from epsteps.models.scoring import score

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
