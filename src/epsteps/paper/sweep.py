"""The sweep behind figures 3 and 4: six algorithms over step sizes, batches and numbers of iterations.

Curves are handed on one by one, so that the memory needed is that of one configuration. An experiment: seeded, measured
on the records, with L computed from them; nothing in it is private.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

import epsteps as es
from epsteps.paper.published import ALGORITHMS, corrected_plan, published_plan

# Columns of one product F(x): enough to keep the processor busy, few enough to stay in its cache.
_COLUMNS = 100

PUBLISHED = "as published"
PAPER_L = "corrected, the paper's L"
RIGHT_L = "corrected, the right L"


@dataclass(frozen=True)
class Sweep:
    """What is swept; the defaults are the paper's."""

    variants: tuple[str, ...] = (PAPER_L, RIGHT_L)
    batches: tuple[int, ...] = (100_000, 1000)
    step_factors: tuple[float, ...] = (0.1, 1.0)
    horizons: tuple[int, ...] = (100, 200, 500, 1000)
    epsilon: float = 1.0
    repetitions: int = 20
    seed: int = 1

    def configurations(self) -> list["Configuration"]:
        """Return every combination, in the order of the figures."""
        return [
            Configuration(variant, m, c, algorithm, T)
            for variant in self.variants
            for m in self.batches
            for c in self.step_factors
            for algorithm in ALGORITHMS
            for T in self.horizons
        ]


@dataclass(frozen=True)
class Configuration:
    """One line of one panel."""

    variant: str
    m: int
    c: float
    algorithm: str
    T: int

    @property
    def key(self) -> tuple[int, float, str, int]:
        """What identifies a line of the paper's figures, whatever the variant."""
        return self.m, self.c, self.algorithm, self.T

    def plan(self, problem: es.Problem, epsilon: float) -> es.Plan:
        """Return the plan that this line follows."""
        make = published_plan if self.variant == PUBLISHED else corrected_plan
        return make(self.algorithm, problem, T=self.T, m=self.m, c=self.c, epsilon=epsilon)


@dataclass(frozen=True)
class Curve:
    """A configuration's result: the gap F(x_t) - F* for t = 0..T', mean and standard error over the runs."""

    configuration: Configuration
    iterations: int
    spent: float
    gap: np.ndarray = field(repr=False)
    standard_error: np.ndarray = field(repr=False)
    seconds: float

    @property
    def final(self) -> float:
        """The mean gap of the last iterate."""
        return float(self.gap[-1])


def planned(sweep: Sweep, problems: dict[str, es.Problem]) -> list[tuple[Configuration, es.Plan]]:
    """Return every configuration with its plan; ``problems`` declares the L of each variant."""
    return [
        (configuration, configuration.plan(problems[configuration.variant], sweep.epsilon))
        for configuration in sweep.configurations()
    ]


def run_sweep(
    plans: list[tuple[Configuration, es.Plan]],
    data: es.Rows,
    lowest: float,
    sweep: Sweep,
    on_step: Callable[[int], None] = lambda steps: None,
) -> Iterator[Curve]:
    """Yield one curve after the other; ``on_step`` hears how many iterates were run or measured."""
    for number, (configuration, plan) in enumerate(plans):
        begin = time.perf_counter()
        seed = int(np.random.SeedSequence([sweep.seed, 2, number]).generate_state(1)[0])
        run = es.run(plan, data, seed=seed, repetitions=sweep.repetitions, start=10.0, on_step=lambda _: on_step(1))
        gaps = values(data, run.path, on_step) - lowest
        error = gaps.std(axis=1, ddof=min(1, sweep.repetitions - 1)) / np.sqrt(sweep.repetitions)
        yield Curve(configuration, plan.iterations, plan.spent, gaps.mean(axis=1), error, time.perf_counter() - begin)


def values(data: es.Rows, path: np.ndarray, on_step: Callable[[int], None] = lambda steps: None) -> np.ndarray:
    """Return F at every iterate of every run, (T+1, runs), many columns to a product."""
    count, d, runs = path.shape
    size = max(1, _COLUMNS // runs)
    found = np.empty((count, runs))
    for start in range(0, count, size):
        block = path[start : start + size]
        columns = block.transpose(1, 0, 2).reshape(d, -1)
        found[start : start + size] = data.value(columns).reshape(len(block), runs)
        on_step(len(block))
    return found
