"""Curvature first: what released moments say about how records are spread, and a model of F that follows from it.

Everything here sees public numbers and numbers that were released with noise, never a record.
"""

from epsteps.methods.curvature.covariance import (
    CONSTANT,
    MATRIX_ROWS,
    MATRIX_STEPS,
    Definite,
    MatrixNoise,
    Moments,
    Spread,
    Statistic,
    Whitening,
    covariance,
    decode_moments,
    definite,
    held,
    matrix_noise,
    statistics_of,
    whitening_of,
)
from epsteps.methods.curvature.model import (
    LEAST_SHARE,
    Division,
    Model,
    UndrawableError,
    divide,
    needed_error,
    predicted_excess,
    require_drawable,
    surrogate_of,
    typical_curvature,
)

__all__ = [
    "CONSTANT",
    "LEAST_SHARE",
    "MATRIX_ROWS",
    "MATRIX_STEPS",
    "Definite",
    "Division",
    "MatrixNoise",
    "Model",
    "Moments",
    "Spread",
    "Statistic",
    "UndrawableError",
    "Whitening",
    "covariance",
    "decode_moments",
    "definite",
    "divide",
    "held",
    "matrix_noise",
    "needed_error",
    "predicted_excess",
    "require_drawable",
    "statistics_of",
    "surrogate_of",
    "typical_curvature",
    "whitening_of",
]
