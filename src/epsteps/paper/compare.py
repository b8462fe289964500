"""The paper's six algorithms side by side on one problem: gap to the optimum over the iterations.

An experiment: it evaluates the objective on the records and repeats under a seed, so that nothing it prints is private.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

import epsteps as es
from epsteps.problem.sampling import Sampling

# What is plotted and tabled: name, method, and how the budget is split. The -opt variants also choose T.
ALGORITHMS = (
    ("DP-GD", es.gd, "uniform"),
    ("DP-HB", es.heavy_ball, "uniform"),
    ("DP-NAG", es.nesterov, "uniform"),
    ("DP-MASG", es.multistage, "uniform"),
    ("DP-NAG-opt", es.nesterov, "optimal"),
    ("DP-MASG-opt", es.multistage, "optimal"),
)


@dataclass(frozen=True)
class Settings:
    """Options of a comparison; the defaults are the paper's."""

    epsilon: float = 1.0
    delta: float | None = None
    iterations: int = 200
    batch: int | None = None
    c: float = 1.0
    repetitions: int = 20
    start: float = 10.0
    start_gap: float = 10.0
    seed: int = 1

    @property
    def budget(self) -> es.Pure | es.Approximate:
        """What each run may spend."""
        return es.Pure(self.epsilon) if self.delta is None else es.Approximate(self.epsilon, self.delta)


@dataclass(frozen=True)
class Outcome:
    """One algorithm's result: the gap F(x_t) - F* at some iterations, mean and standard error over the runs."""

    algorithm: str
    plan: es.Plan = field(repr=False)
    iterations: np.ndarray = field(repr=False)
    gap: np.ndarray = field(repr=False)
    standard_error: np.ndarray = field(repr=False)
    seconds: float


def paper_problem(n: int, d: int, ridge: float = 0.02) -> es.Problem:
    """Return the paper's problem: logistic regression over the unit cube."""
    return es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=ridge, n=n, d=d)


def paper_data(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the paper's synthetic records: X uniform on [0, 1], y = sign(Xw) for a normal w."""
    rng = np.random.default_rng([seed, 0])
    X = rng.random((n, d))
    return X, np.where(X @ rng.standard_normal(d) >= 0, 1, -1)


def _paper_noise(problem: es.Problem, settings: Settings) -> str:
    """Return the noise that the paper has, independent over coordinates, or its Gaussian counterpart."""
    sampling = Sampling(problem.n, settings.batch or problem.n)
    return "laplace" if settings.budget.kind(sampling).unit == "epsilon" else "gaussian"


def plans(problem: es.Problem, settings: Settings) -> list[tuple[str, es.Plan]]:
    """Return the six plans: -opt variants choose their number of iterations up to the given one."""
    return [
        (
            name,
            es.plan(
                problem,
                settings.budget,
                method,
                allocation=allocation,
                iterations="auto" if allocation == "optimal" else settings.iterations,
                max_iterations=settings.iterations,
                batch=settings.batch,
                mechanism=_paper_noise(problem, settings),
                start_gap=settings.start_gap,
                c=settings.c,
            ),
        )
        for name, method, allocation in ALGORITHMS
    ]


def compare(
    planned: list[tuple[str, es.Plan]],
    data: es.Rows,
    settings: Settings,
    on_step: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Run every plan, repeated, and measure its gap at up to 101 iterates; ``on_step`` hears of each one, and step."""
    lowest = float(data.value(minimiser(data)))
    outcomes = []
    for number, (name, plan) in enumerate(planned):
        begin = time.perf_counter()
        seed = int(np.random.SeedSequence([settings.seed, 1, number]).generate_state(1)[0])
        run = es.run(
            plan,
            data,
            seed=seed,
            repetitions=settings.repetitions,
            start=settings.start,
            on_step=lambda _: on_step(),
        )
        seconds = time.perf_counter() - begin
        measured = measured_iterations(plan.iterations)
        gaps = np.empty((len(measured), settings.repetitions))
        for row, t in enumerate(measured):
            gaps[row] = data.value(run.path[t]) - lowest
            on_step()
        error = gaps.std(axis=1, ddof=1) / np.sqrt(gaps.shape[1]) if gaps.shape[1] > 1 else np.full(len(gaps), np.nan)
        outcomes.append(Outcome(name, plan, measured, gaps.mean(axis=1), error, seconds))
    return outcomes


def measured_iterations(T: int) -> np.ndarray:
    """Return the iterations at which the gap is measured: all up to 100, evenly spaced ones of more."""
    return np.unique(np.linspace(0, T, min(T, 100) + 1).round().astype(int))


def minimiser(data: es.Rows) -> np.ndarray:
    """Return the exact minimiser of F, UNPROTECTED: the yardstick of an experiment."""
    dimension = data.problem.dimension
    found = minimize(
        lambda x: (float(data.value(x)), data.gradient(x)),
        np.zeros(dimension),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 10_000, "gtol": 1e-11, "ftol": 0.0, "maxcor": 30},
    )
    if np.linalg.norm(data.gradient(found.x)) > 1e-7:
        raise RuntimeError(f"the yardstick did not converge: {found.message}")
    return found.x
