"""Coverage by simulation: intervals that are right cover as often as they say, and wrong ones are found out."""

from types import SimpleNamespace

import numpy as np
import pytest

import epsteps as es
from epsteps.auditing.experiments import known_widths

needs_intervals = pytest.mark.skipif(not hasattr(es.Run, "intervals"), reason="runs have no intervals yet")


def uniform(generator, n):
    X = generator.uniform(-1, 1, (n, 3))
    return X, np.where(generator.random(n) < 1 / (1 + np.exp(-X @ [1.5, -1.0, 0.5])), 1, -1)


def exact_intervals(factor):
    """Return what a run answers that knows the Hessian and the scores, and takes its widths times a factor."""
    asked = []

    def intervals(run, level, target, contrasts):
        widths = known_widths(run.plan.aim({}), asked[-1], run.x, np.eye(len(run.x)), level, 5)[0][target]
        low, high = run.x - factor * widths, run.x + factor * widths
        return SimpleNamespace(low=low, high=high, kind="measured", names=("a", "b", "c"))

    def keep(generator, n):
        X, y = uniform(generator, n)
        asked.append(es.Rows(PLAN.minimised, X, y) if n == PLAN.problem.n else None)
        return X, y

    return intervals, keep


PROBLEM = es.Problem(es.Logistic(), es.Box(-1, 1), ridge=1e-3, n=4000, d=3)
PLAN = es.plan(PROBLEM, es.Pure(1.0), "objective")


@pytest.mark.parametrize(("factor", "lowest", "highest"), [(1.0, 0.89, 0.995), (0.5, 0.5, 0.8)])
def test_the_harness_tells_right_intervals_from_intervals_that_are_half_as_wide(monkeypatch, factor, lowest, highest):
    intervals, population = exact_intervals(factor)
    monkeypatch.setattr(es.Run, "intervals", intervals, raising=False)
    found = es.coverage(PLAN, population, replications=80, seed=3)
    for target in ("population", "sample"):
        assert lowest < found.mean(target) < highest
        assert found.width(target) == pytest.approx(factor, rel=0.05)
        assert np.mean([row.control for row in found.rows[target]]) == pytest.approx(0.95, abs=0.055)
    assert all(row.low < row.coverage < row.high for row in found.rows["population"])
    assert "population" in str(found)
    assert found.kinds == {"measured": 80}


def test_the_tilts_of_the_control_have_the_law_that_a_run_draws():
    """With a curvature that hardly bends the minimum moves by H⁻¹ b/n: its spread over seeds is the control's."""
    X, y = uniform(np.random.default_rng(2), 4000)
    rows = es.Rows(PLAN.problem, X, y)
    models = np.array([es.run(PLAN, rows, seed=seed).x for seed in range(150)])
    widths = known_widths(PLAN.aim({}), rows.restated(PLAN.minimised), models.mean(axis=0), np.eye(3), 0.9, 1)[0][
        "sample"
    ]
    moved = np.quantile(np.abs(models - models.mean(axis=0)), 0.9, axis=0)
    np.testing.assert_allclose(widths, moved, rtol=0.2)


@needs_intervals
@pytest.mark.parametrize("kind", ["function", "arrays"])
def test_intervals_of_a_plan_cover(kind):
    plan = es.plan(PROBLEM, es.Pure(2.0), "objective", intervals=0.95)
    population = uniform if kind == "function" else uniform(np.random.default_rng(5), 20_000)
    found = es.coverage(plan, population, replications=30)
    assert found.mean("population") > 0.85
    assert found.mean("sample") > 0.85
    assert set(found.to_dict()["rows"]) == {"population", "sample"}


@needs_intervals
def test_contrasts_are_held_against_the_same_contrasts_of_the_truth():
    plan = es.plan(PROBLEM, es.Pure(2.0), "objective", intervals=0.95)
    contrasts = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])
    found = es.coverage(plan, uniform, replications=20, contrasts=contrasts)
    assert len(found.rows["population"]) == 2
    assert found.mean("population") > 0.85


def test_a_picture_is_drawn(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    intervals, population = exact_intervals(1.0)
    monkeypatch.setattr(es.Run, "intervals", intervals, raising=False)
    es.coverage(PLAN, population, replications=5).plot(tmp_path / "coverage.png")
    assert (tmp_path / "coverage.png").stat().st_size > 1000
