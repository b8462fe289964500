"""Noise that is longer along an axis: its norm, its law, and what rounding may add."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from epsteps.budgets import mechanisms
from epsteps.noise import Source
from epsteps.problem.shapes import Elongated

ELONGATED = mechanisms.Gaussian("elongated")
SHAPES = [
    Elongated((3.0, 0.0, 0.0)),
    Elongated((0.3, -0.2, 0.1, 0.05, 2.0)),
    Elongated((-4.0, 4.0), outputs=3),
    Elongated((700.0, 600.0, -1e-3), outputs=2),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_gauge_is_that_of_the_covariance(shape):
    covariance, rng = shape.covariance, np.random.default_rng(1)
    z, units = rng.normal(size=(shape.d, 7)), rng.uniform(0.5, 2, size=shape.d)
    spread, mean = rng.uniform(0.5, 2, size=shape.d), rng.normal(size=shape.d)
    matrix, stretched = covariance.matrix, covariance.matrix * np.outer(units, units)
    np.testing.assert_allclose(shape.gauge(z) ** 2, np.sum(z * np.linalg.solve(matrix, z), axis=0), rtol=1e-6)
    np.testing.assert_allclose(shape.gauge(z[:, 0]), shape.gauge(z)[0])
    np.testing.assert_allclose(covariance.variances, np.diag(matrix))
    assert covariance.trace(units) == pytest.approx(np.trace(stretched))
    assert covariance.along(mean) == pytest.approx(mean @ matrix @ mean)
    weighed = np.trace(np.linalg.solve(np.diag(spread) + np.outer(mean, mean), stretched))
    assert covariance.weighed(units, spread, mean) == pytest.approx(weighed)
    assert covariance.root_trace(units) <= np.sum(np.sqrt(np.linalg.eigvalsh(stretched))) * (1 + 1e-9)


@given(
    st.lists(st.floats(-1, 1), min_size=6, max_size=6),
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.sampled_from(SHAPES),
)
def test_no_signs_reach_farther_than_is_said(sizes, signs, shape):
    """Noise is scaled for what rounding may move a sum by, whose signs nobody knows."""
    z = np.abs(sizes)[: shape.d]
    signed = np.where(signs[: shape.d], z, -z)
    z, signed = np.resize(z, shape.d), np.resize(signed, shape.d)
    assert shape.gauge(signed) <= shape.reach(z) * (1 + 1e-12)
    assert shape.reach(z) <= shape.cube * (1 + 1e-12)


def distances(shape, drawn, scales):
    """Return the squares of the noise in its norm: chi-squared with as many degrees of freedom as coordinates."""
    return shape.gauge(drawn / scales[:, None]) ** 2


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "floats"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_noise_has_its_law_and_no_other(shape, exact):
    """Kolmogorov's test of 3000 draws at a level of 1e-4; nine tenths of the scale, or no axis, are far outside."""
    if exact:
        scales = 2.0**30 * np.resize([1.0, 3.0, 0.2], shape.d)
        drawn = [Source(i).integers(ELONGATED, scales, (shape.d,), shape) for i in range(3000)]
        drawn = np.array(drawn).T.astype(float)
    else:
        scales = np.full(shape.d, 2.0)
        drawn = Source(1).draw(ELONGATED, 2.0, (3000, shape.d, 1), shape)[:, :, 0].T
    law = stats.chi2(shape.d)
    assert stats.kstest(distances(shape, drawn, scales), law.cdf).pvalue > 1e-4
    assert stats.kstest(distances(shape, drawn, 0.9 * scales), law.cdf).pvalue < 1e-4
    assert stats.kstest(np.sum((drawn / scales[:, None]) ** 2, axis=0), law.cdf).pvalue < 1e-4
    whitened = drawn / scales[:, None]
    along = np.array(shape.axis) / np.sqrt(shape.square)
    blocks = whitened.reshape(shape.outputs, len(along), -1)
    parts = np.tensordot(blocks, along, axes=(1, 0)) / np.sqrt(1 + shape.square)
    assert all(stats.kstest(part, "norm").pvalue > 1e-5 for part in parts)
    assert np.abs(np.corrcoef(parts) - np.eye(len(parts))).max() < 0.1


def test_columns_have_a_scale_each():
    shape = SHAPES[1]
    scales = np.array([2.0**20, 2.0**40]) * np.ones((shape.d, 1))
    drawn = np.array([Source(i).integers(ELONGATED, scales, (shape.d, 2), shape) for i in range(2000)]).astype(float)
    for column in range(2):
        found = distances(shape, drawn[:, :, column].T, scales[:, column])
        assert stats.kstest(found, stats.chi2(shape.d).cdf).pvalue > 1e-4


@pytest.mark.parametrize("axis", [(0.0, 0.0), (2000.0, 0.0), (float("nan"), 1.0)])
def test_an_axis_without_length_or_with_too_much_is_refused(axis):
    with pytest.raises(ValueError, match="an axis has a positive length of at most 1024"):
        Elongated(axis)
