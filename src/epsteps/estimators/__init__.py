"""Estimators for scikit-learn: linear models whose ``fit`` is differentially private.

Whatever the guarantee needs of the data is a declared, public parameter: bounds of the rows, classes, range of the
targets. It is enforced, and never inferred.
"""

from epsteps.estimators import _scikit as _scikit
from epsteps.estimators.base import UnprotectedScores, fit_held_out, unprotected_scores
from epsteps.estimators.classification import PrivateLinearSVC, PrivateLogisticRegression
from epsteps.estimators.regression import PrivateHuberRegressor, PrivateRidge
from epsteps.estimators.saved import load
from epsteps.estimators.search import PrivateSearch

__all__ = [
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateSearch",
    "UnprotectedScores",
    "fit_held_out",
    "load",
    "unprotected_scores",
]
