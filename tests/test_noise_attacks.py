"""The leak of float64 noise (Mironov 2012), shown on numpy's own Laplace formula; integer noise does not have it."""

import math

import numpy as np
import pytest
from conftest import ENGINES

import epsteps as es
from epsteps.budgets.mechanisms import named
from epsteps.noise import Source
from epsteps.problem.grid import Grid


def numpys_laplace(u, value, scale):
    """Return value plus noise as numpy's generator computes it, from u on the grid of 2^-53."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(u >= 0.5, value - scale * np.log(2.0 - u - u), value + scale * np.log(u + u))


def is_possible(outputs, value, scale):
    """Return which outputs some u near the real inverse gives exactly; no other u comes near."""
    z = (outputs - value) / scale
    inverse = np.round(np.where(z > 0, 1 - 0.5 * np.exp(-np.abs(z)), 0.5 * np.exp(-np.abs(z))) * 2.0**53)
    found = np.zeros(len(outputs), dtype=bool)
    for step in range(-64, 65):
        found |= numpys_laplace((inverse + step) * 2.0**-53, value, scale) == outputs
    return found


def test_the_formula_is_numpys():
    words = np.random.Generator(np.random.PCG64(5)).integers(2**64, size=1000, dtype=np.uint64)
    u = ((words >> np.uint64(11)) * 2.0**-53).tolist()
    ours = [-math.log(2.0 - x - x) if x >= 0.5 else math.log(x + x) for x in u]
    np.testing.assert_allclose(np.random.Generator(np.random.PCG64(5)).laplace(0, 1, 1000), ours, rtol=1e-15)


@pytest.mark.parametrize(
    ("value", "neighbour", "scale", "share"),
    [(0.0, 1.0, 1.0, 0.75), (0.0, 2e-5, 2e-5, 0.75), (0.123, 0.123 + 2e-5, 2e-3, 0.01)],
    ids=["epsilon 1", "a mean of 100 000 records, epsilon 1", "the same away from 0, epsilon 0.01"],
)
def test_float_noise_identifies_the_data(value, neighbour, scale, share):
    """The shares are of single coordinates of single releases."""
    u = np.random.default_rng(1).integers(1, 2**53, 20_000) * 2.0**-53
    outputs = numpys_laplace(u, value, scale)
    assert np.all(is_possible(outputs, value, scale))
    assert np.mean(~is_possible(outputs, neighbour, scale)) > share


def test_integer_noise_does_not():
    """Neighbours that differ by the sensitivity: the same support, and no output is likelier than e^epsilon times."""
    epsilon, sensitivity = 1.0, 8
    t = sensitivity / epsilon
    outputs = np.arange(-400, 400)
    log_ratio = (np.abs(outputs - sensitivity) - np.abs(outputs)) / t
    assert np.abs(log_ratio).max() == epsilon

    first = Source(2).integers(named("laplace"), t, (200_000,))
    second = sensitivity + Source(3).integers(named("laplace"), t, (200_000,))
    counts = np.array([np.bincount(np.clip(x + 40, 0, 90), minlength=91) for x in (first, second)])
    assert counts.min() > 0  # every output near the values occurs under both
    deviation = np.sqrt((1 / counts).sum(axis=0))
    observed = np.abs(np.log(counts[0] / counts[1]))
    assert np.all(observed <= epsilon + 5 * deviation)
    assert observed.max() > 0.9 * epsilon


def test_integer_noise_has_no_gaps_at_a_realistic_scale():
    """Outputs modulo 1024 are uniform whatever the value: low bits tell nothing."""
    noise = Source(4).integers(named("laplace"), 2.0**40, (100_000,))
    for value in (0, 12345):
        counts = np.bincount((value + noise) & 1023, minlength=1024)
        assert np.square(counts - counts.mean()).sum() / counts.mean() < 1024 + 5 * np.sqrt(2048)


def neighbours_for_float32(more=40_000):
    """Return two tables that differ in one record, built so that float32 sums of their gradients at 0 lie far apart.

    Half a unit each, 65 536 records bring the sum to 2^15, where the spacing of float32 doubles. The first record
    decides on which side of it the sum stands; the many small ones that follow vanish above, and count a full step each
    below (Casacuberta et al. 2022).
    """
    X = np.concatenate([[1.0], np.ones(2**16), np.full(more, -0.75 * 2.0**-8)])[:, None]
    other = X.copy()
    other[0] = -1.0
    return X, other


def test_float_sums_exceed_the_sensitivity_and_integer_sums_do_not():
    tables = neighbours_for_float32()
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.0, n=len(tables[0]), d=1)
    y, grid = -np.ones(problem.n), Grid(problem)
    float32 = [np.add.accumulate(0.5 * X[:, 0], dtype=np.float32)[-1] for X in tables]
    assert abs(float32[0] - float32[1]) > 30 * problem.sensitivity(1)
    points = grid.points(np.zeros((1, 1)), 1.0)
    for engine in ENGINES:
        exact = [int(es.Rows(problem, X, y, engine=engine).sums(points)[0, 0]) for X in tables]
        assert abs(exact[0] - exact[1]) * float(grid.gradient_step(1.0)[0, 0]) == 1.0 <= problem.sensitivity(1)
