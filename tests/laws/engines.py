"""What holds for a run whatever the engine and the source of its records."""

from pathlib import Path

import numpy as np
from combinations import rows_of, sources_here

import epsteps as es
from laws.examples import records

# Torch is for cards; without one it is tried by tests of its own.
SOURCES = tuple(name for name in sources_here() if name not in ("numpy", "gpu"))


def publish_the_same(plan: es.Plan, folder: Path) -> None:
    """Check that a seeded run publishes the same through every source: to the last bit where sums are exact integers.

    A solver's point is a float's work, and certain up to its tolerance alone, which the noise covers.
    """
    X, y = records(plan.problem)
    usual = es.run(plan, rows_of("numpy", plan.problem, X, y, folder), seed=1, arithmetic="exact")
    apart = 0.0
    if isinstance(plan, es.ObjectivePlan | es.OutputPlan):
        apart = 2 * plan.objective.radius(plan.tolerance) * (1 + 1e-9)
    for source in SOURCES:
        run = es.run(plan, rows_of(source, plan.problem, X, y, folder), seed=1, arithmetic="exact")
        assert np.max(np.linalg.norm(run.path - usual.path, axis=-1)) <= apart, source
        assert run.extras.keys() == usual.extras.keys()
        for name, value in usual.extras.items():
            np.testing.assert_array_equal(run.extras[name], value)
