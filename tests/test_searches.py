"""Searches along a line take SciPy's steps: every number that was planned with it stays as it was."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq, fminbound

from epsteps.problem import searches

CHANGING = {
    "steep": lambda x, a, b: math.tanh(1e4 * (x - a)) + 0.1 * b,
    "cubic": lambda x, a, b: x**3 - abs(a) * x + b,
    "exponential": lambda x, a, b: math.exp(a * x) - b * b - 0.1,
    "root of a kink": lambda x, a, b: (x - a) * abs(x - a) ** 0.3,
    "step": lambda x, a, b: math.copysign(1.0, x - a),
    "infinite": lambda x, a, b: math.inf if x > a else -1.0,
}
SMALLEST = {
    "parabola": lambda x, a, b: (x - a) ** 2,
    "kink": lambda x, a, b: abs(x - a) + b * x * x,
    "waves": lambda x, a, b: math.cos(3 * x + a) + b * x,
    "infinite on one side": lambda x, a, b: math.inf if x < a else (x - b) ** 4,
    "flat": lambda x, a, b: 0.0,
    "infinite": lambda x, a, b: math.inf,
}
ENDS = np.random.default_rng(0).uniform(size=(60, 4)) * [3, 3, 4, 4] + [-4, 1, -2, -2]


@pytest.mark.parametrize("tolerance", [1e-6, 1e-13])
@pytest.mark.parametrize("function", CHANGING.values(), ids=CHANGING)
def test_roots_are_those_of_scipy(function, tolerance):
    found = 0
    for low, high, a, b in ENDS.tolist():
        try:
            expected = brentq(function, low, high, (a, b), xtol=tolerance, disp=False)
        except ValueError:
            with pytest.raises(ValueError, match="no root between"):
                searches.root(lambda x, a=a, b=b: function(x, a, b), low, high, tolerance)
        else:
            assert searches.root(lambda x, a=a, b=b: function(x, a, b), low, high, tolerance) == expected
            found += 1
    assert found > 5


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("tolerance", [1e-5, 1e-11])
@pytest.mark.parametrize("function", SMALLEST.values(), ids=SMALLEST)
def test_minima_are_those_of_scipy(function, tolerance):
    for low, high, a, b in ENDS.tolist():
        expected = fminbound(function, low, high, (a, b), xtol=tolerance)
        assert searches.minimum(lambda x, a=a, b=b: function(x, a, b), low, high, tolerance) == expected


def test_what_is_no_number_is_refused():
    for hole in (-1.0, 1.0, 0.0):
        with pytest.raises(ValueError, match=r"no root between|no number"):
            searches.root(lambda x, hole=hole: math.nan if x == hole else x, -1.0, 1.0, 1e-9)
