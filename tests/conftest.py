"""What the tests share: small problems, and records for them."""

from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  has a BLAS of its own, which must be there to be limited
from hypothesis import settings
from threadpoolctl import threadpool_limits

import epsteps as es
from epsteps.problem.memory import forget

# Problems here are small, and every core has its tests: threads of BLAS would only wait for each other.
threadpool_limits(limits=1, user_api="blas")

# The laws that several tests share explain themselves when they fail, as tests do.
pytest.register_assert_rewrite("laws")

# Statistical and numerical laws are checked on the same examples every time: no flaky runs.
settings.register_profile("epsteps", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("epsteps")

# The engines of one machine that can be tried here.
ENGINES = ["numpy", *(["fast"] if find_spec("numba") is not None else [])]


@pytest.fixture
def monkeypatch(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Change what is computed: nothing is remembered of what was computed otherwise, before or afterwards."""
    forget()
    yield monkeypatch
    forget()


@pytest.fixture
def paper() -> es.Problem:
    """The paper's problem."""
    return es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=100_000, d=20)


def small_problem(n: int = 200, d: int = 3, **facts) -> es.Problem:
    return es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), **({"ridge": 0.1} | facts), n=n, d=d)


def records(problem: es.Problem, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return records inside the unit cube, with noisy labels."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (problem.n, problem.d))
    y = np.where(X @ rng.standard_normal(problem.d) + 0.3 * rng.standard_normal(problem.n) > 0, 1, -1)
    return X, y


def noise_of(run: es.Run, rows: es.Rows) -> np.ndarray:
    """Measure a run's noise back out of its path, each step's divided by the scale of its plan, as one long vector."""
    return vectors_of(run, rows).ravel()


def vectors_of(run: es.Run, rows: es.Rows) -> np.ndarray:
    """Measure a run's noise back out of its path, in scales, and in units if it has a shape: (T, d, repetitions)."""
    plan, found = run.plan, []
    units = plan.mechanism.units(plan.problem)
    for t, (alpha, beta, gamma, restart) in enumerate(plan.steps):
        x, previous = run.path[t], run.path[max(t - 1, 0)]
        drift = np.zeros_like(x) if restart else x - previous
        point = x + gamma * drift
        used = (x + beta * drift - run.path[t + 1]) / alpha - rows.gradient(point)
        found.append(used / plan.scale_at(t, point) / units.reshape(-1, *[1] * (x.ndim - 1)))
    return np.array(found)


def gamma_of(run: es.Run, rows: es.Rows) -> np.ndarray:
    """Return the norms of a run's noise, in scales: Gamma(d) for every norm, chi(d) for Gaussian noise."""
    noise, plan = vectors_of(run, rows), run.plan
    shape = plan.mechanism.shape(plan.problem)
    return np.array([shape.gauge(step) for step in noise]).ravel()
