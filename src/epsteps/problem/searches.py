"""Searches along a line: the methods of Brent (1973), step for step as SciPy takes them, so that numbers are the same.

Planning makes hundreds of searches whose functions are a few operations each. SciPy's wrappers, which count calls and
compute with NumPy's scalars, take several times as long as they do.
"""

import math
from collections.abc import Callable

_ROUNDING = 4 * 2.0**-52
_MOST_STEPS, _MOST_CALLS = 100, 500
_GOLDEN = 0.5 * (3.0 - math.sqrt(5.0))
_CLOSEST = math.sqrt(2.2e-16)


def root(function: Callable[[float], float], low: float, high: float, xtol: float, rtol: float = _ROUNDING) -> float:
    """Return where a function changes its sign between two points: ``scipy.optimize.brentq(..., disp=False)``."""
    before, x = low, high
    f_before, f = function(before), function(x)
    if f_before == 0 or f == 0:
        return before if f_before == 0 else x
    if (f_before > 0) == (f > 0) or math.isnan(f_before) or math.isnan(f):
        raise ValueError(
            f"there is no root between {low!r} and {high!r}, where the function is {f_before!r} and {f!r}."
        )
    other = f_other = last = step = 0.0
    for _ in range(_MOST_STEPS):
        if (f_before > 0) != (f > 0):
            other, f_other = before, f_before
            last = step = x - before
        if abs(f_other) < abs(f):
            before, x, other = x, other, x
            f_before, f, f_other = f, f_other, f
        close = (xtol + rtol * abs(x)) / 2
        half = (other - x) / 2
        if f == 0 or abs(half) < close:
            return x
        guess = math.inf
        if abs(last) > close and abs(f) < abs(f_before):
            try:
                if before == other:
                    guess = -f * (x - before) / (f - f_before)
                else:
                    slope, far = (f_before - f) / (before - x), (f_other - f) / (other - x)
                    guess = -f * (f_other * far - f_before * slope) / (far * slope * (f_other - f_before))
            except ZeroDivisionError:
                guess = math.inf
        if 2 * abs(guess) < abs(last) and 2 * abs(guess) < 3 * abs(half) - close:
            last, step = step, guess
        else:
            last = step = half
        before, f_before = x, f
        x += step if abs(step) > close else math.copysign(close, half)
        f = function(x)
        if f != f:
            raise ValueError(f"the function is no number at {x!r}.")
    return x


def minimum(function: Callable[[float], float], low: float, high: float, xtol: float) -> float:
    """Return where a function is smallest between two points: ``scipy.optimize.fminbound``."""
    x = second = third = low + _GOLDEN * (high - low)
    f = f_second = f_third = function(x)
    step = last = 0.0
    calls = 1
    while calls < _MOST_CALLS:
        middle = 0.5 * (low + high)
        close = _CLOSEST * abs(x) + xtol / 3.0
        if abs(x - middle) <= 2.0 * close - 0.5 * (high - low):
            break
        parabolic = None
        if abs(last) > close:
            parabolic = _parabolic(x - second, x - third, f - f_third, f - f_second, last, low - x, high - x)
            last = step
        if parabolic is None:
            last = low - x if x >= middle else high - x
            step = _GOLDEN * last
        else:
            step, at = parabolic, x + parabolic
            if at - low < 2.0 * close or high - at < 2.0 * close:
                step = close if middle >= x else -close
        at = x + max(abs(step), close) * (1.0 if step >= 0 else -1.0)
        value = function(at)
        calls += 1
        if value <= f:
            low, high = (x, high) if at >= x else (low, x)
            third, f_third, second, f_second, x, f = second, f_second, x, f, at, value
        else:
            low, high = (at, high) if at < x else (low, at)
            if value <= f_second or second == x:
                third, f_third, second, f_second = second, f_second, at, value
            elif value <= f_third or third in (x, second):
                third, f_third = at, value
    return x


def _parabolic(
    to_second: float, to_third: float, over_third: float, over_second: float, last: float, down: float, up: float
) -> float | None:
    """Return the step to the bottom of the parabola through three points; None where it is not to be trusted."""
    r, q = to_second * over_third, to_third * over_second
    p, q = to_third * q - to_second * r, 2.0 * (q - r)
    if q > 0.0:
        p = -p
    q = abs(q)
    return p / q if abs(p) < abs(0.5 * q * last) and q * down < p < q * up else None
