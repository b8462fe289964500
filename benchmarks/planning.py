"""How long planning takes, and what knowing L or mu is worth: `python benchmarks/planning.py` (about a minute)."""

import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

import epsteps as es
from epsteps.paper.compare import minimiser, paper_data, paper_problem

N, D = 100_000, 20
RUNS = 20


def seconds(call: Callable[[], object]) -> float:
    """Return the median time of five calls."""
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def timings() -> Table:
    """Time plans with up to 1000 iterations, and certificates that are not cached."""
    problem = paper_problem(N, D)
    table = Table("what (T <= 1000)", "seconds", title="Planning")
    for name, options in (
        ("plan, bound", {"method": es.nesterov}),
        ("plan, bound, multistage", {"method": es.multistage}),
        ("plan, bound, batch 1000", {"method": es.nesterov, "batch": 1000}),
        ("plan, exact", {"method": es.nesterov, "objective": "exact"}),
        ("plan, exact, batch 1000", {"method": es.nesterov, "objective": "exact", "batch": 1000}),
    ):
        table.add_row(
            name,
            f"{seconds(lambda options=options: es.plan(problem, es.Pure(1.0), **options)):.3f}",
        )
    table.add_row(
        "required_epsilon", f"{seconds(lambda: es.required_epsilon(problem, error=0.05, release='final')):.3f}"
    )
    for name, alpha, beta in (("heavy_ball", 1.0, 0.2), ("nesterov", 1.0, 0.5)):
        table.add_row(
            f"certificate, {name}",
            f"{seconds(lambda name=name, a=alpha, b=beta: es.bounds.certificate(name, a, b, 0.1, 1.0)):.3f}",
        )
    return table


def constants() -> Table:
    """Measure the gap at epsilon = 1 in all, start 0, with L public or bought and mu declared or guessed."""
    problem = paper_problem(N, D)
    data = es.Rows(problem, *paper_data(N, D, seed=1))
    lowest = float(data.value(minimiser(data)))
    bought = es.estimate_smoothness(data, es.Pure(0.01), seed=1)
    table = Table("L", "method", "objective", "T", "epsilon", "gap ± standard error", title="What constants are worth")
    for label, known, expenses in (
        (f"public {problem.L:.3f}", problem, ()),
        (f"bought {bought.L:.3f}", bought.problem, (bought.expense,)),
    ):
        for method in (es.nesterov, es.restarted_nesterov):
            for objective in ("bound", "exact"):
                plan = es.plan(
                    known,
                    es.Pure(1.0),
                    method,
                    objective=objective,
                    start_gap=problem.start_gap,
                    expenses=expenses,
                )
                gaps = data.value(es.run(plan, data, seed=2, repetitions=RUNS).x) - lowest
                gap = f"{gaps.mean():.2e} ± {gaps.std(ddof=1) / np.sqrt(RUNS):.0e}"
                table.add_row(label, method.__name__, objective, str(plan.iterations), f"{plan.spent:.6f}", gap)
    return table


def main() -> None:
    console = Console()
    console.print(timings())
    console.print(constants())


if __name__ == "__main__":
    main()
