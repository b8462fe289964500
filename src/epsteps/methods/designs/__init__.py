"""Designs: what released moments say about how records are spread, and a model of F that follows from it.

Everything here sees public numbers and numbers that were released with noise, never a record.
"""

from epsteps.methods.designs.columns import Columns, columns_of
from epsteps.methods.designs.covariance import Spread, covariance
from epsteps.methods.designs.definite import Definite, definite, held
from epsteps.methods.designs.division import LEAST_SHARE, Division, divide, predicted_excess
from epsteps.methods.designs.matrix_noise import MATRIX_ROWS, MATRIX_STEPS, MatrixNoise, matrix_noise
from epsteps.methods.designs.model import Model, typical_curvature
from epsteps.methods.designs.moments import Moments, Statistic, decode_moments, statistics_of
from epsteps.methods.designs.whitening import Whitening, whitening_of

__all__ = [
    "LEAST_SHARE",
    "MATRIX_ROWS",
    "MATRIX_STEPS",
    "Columns",
    "Definite",
    "Division",
    "MatrixNoise",
    "Model",
    "Moments",
    "Spread",
    "Statistic",
    "Whitening",
    "columns_of",
    "covariance",
    "decode_moments",
    "definite",
    "divide",
    "held",
    "matrix_noise",
    "predicted_excess",
    "statistics_of",
    "typical_curvature",
    "whitening_of",
]
