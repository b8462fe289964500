"""Tables and figures of docs/theory.md: bounds against errors, what exact planning gains, what a budget buys.

    python benchmarks/theory.py                    # rewrites docs/theory.md's tables and docs/images/theory-*.png
    python benchmarks/theory.py --quick --out /tmp # fewer runs, elsewhere: the tables are printed

Everything is computed from public numbers or from data made up here; every run is seeded.
"""

import argparse
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import matplotlib
import numpy as np
from rich.progress import track
from scipy.optimize import minimize

import epsteps as es
from epsteps.methods.figures import BLACK, BLUE, GREEN, ORANGE, SKY, VERMILLION

matplotlib.use("Agg")
import matplotlib.pyplot as plt

METHODS = {"gradient descent": es.gd, "heavy ball": es.heavy_ball, "Nesterov": es.nesterov, "multistage": es.multistage}
BUDGET = es.Pure(1.0)
RECORDS = 1000  # n of the made-up problems: only S1/(n epsilon) matters
STYLE = {"font.size": 11, "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False}


@dataclass(frozen=True, eq=False)
class Quadratic:
    """A quadratic with L = 1: spectrum, start relative to the optimum, and noise unit s = S1/(n epsilon)."""

    name: str
    spectrum: np.ndarray
    start: np.ndarray
    s: float

    @cached_property
    def mu(self) -> float:
        """Strong convexity."""
        return float(self.spectrum.min())

    @cached_property
    def gap(self) -> float:
        """F(x_0) - F*."""
        return float(self.spectrum @ self.start**2 / 2)

    @cached_property
    def lyapunov(self) -> float:
        """Nesterov's V_0 = E_0 + mu/2 |x_0 - x*|²."""
        return float(self.gap + self.mu / 2 * np.sum(self.start**2))

    @cached_property
    def problem(self) -> es.Problem:
        """A problem with these constants: a plan needs nothing else."""
        ball = es.Ball(self.s * RECORDS / 2, norm=1)
        return es.Problem(
            es.Logistic(), ball, ridge=self.mu, n=RECORDS, d=len(self.spectrum), smoothness=float(self.spectrum.max())
        )

    def error(self, plan: es.Plan) -> float:
        """Return the exact E F(x_T) - F* of a plan with Laplace noise."""
        transfer, weights = es.bounds.exact_quadratic(plan.steps, self.spectrum)
        return float(self.spectrum @ (transfer * self.start) ** 2 / 2 + weights @ plan.scales**2)

    def path(self, plan: es.Plan) -> np.ndarray:
        """Return the exact E F(x_t) - F* for t = 1..T."""
        transfers, weights = es.bounds.exact_by_horizon(plan.steps, self.spectrum)
        return (transfers * self.start) ** 2 @ self.spectrum / 2 + weights @ plan.scales**2

    def simulated(self, plan: es.Plan, runs: int, seed: int) -> np.ndarray:
        """Return the mean of F(x_t) - F* over runs of the textbook recursion, for t = 1..T."""
        rng = np.random.default_rng(seed)
        x = previous = np.tile(self.start, (runs, 1))
        means = np.empty(plan.iterations)
        for t, (alpha, beta, gamma, restart) in enumerate(plan.steps):
            drift = 0 * x if restart else x - previous
            noise = rng.laplace(scale=plan.scales[t], size=x.shape)
            x, previous = x + beta * drift - alpha * (self.spectrum * (x + gamma * drift) + noise), x
            means[t] = np.mean(x**2 @ self.spectrum) / 2
        return means


def log_spaced(kappa: float, s: float, d: int = 20) -> Quadratic:
    """Return the quadratic with d eigenvalues log-spaced on [1/kappa, 1], started at distance 1 along each."""
    return Quadratic(f"κ = {kappa:g}, d = {d}", np.geomspace(1 / kappa, 1, d), np.ones(d), s)


def even_gap(kappa: float, s: float) -> Quadratic:
    """Return the same spectrum and gap, with every eigenvector holding an equal part of F(x_0) - F*."""
    even = log_spaced(kappa, s)
    start = np.sqrt(2 * even.gap / len(even.spectrum) / even.spectrum)
    return Quadratic(f"κ = {kappa:g}, even gap", even.spectrum, start, s)


def demo(mu: float, c_w: float) -> Quadratic:
    """Return the paper's numerical demonstration: spectrum (mu, 1), F(x_0) - F* = 5 (1 + mu)/4, s = c_w/√2."""
    return Quadratic(f"demo, μ = {mu:g}", np.array([mu, 1.0]), np.full(2, np.sqrt(2.5)), c_w / np.sqrt(2))


def bound_path(plan: es.Plan) -> np.ndarray:
    """Return the bound on E F(x_t) - F* for t = 1..T, under the plan's scales."""
    power = plan.problem.dimension * plan.scales**2
    return np.array([plan.bound.first(t).error(plan.start_gap, power[:t]) for t in range(1, plan.iterations + 1)])


def bound_plan(problem: es.Problem, method: Callable, gap: float, budget: es.Pure = BUDGET) -> tuple[float, es.Plan]:
    """Return step scale c and plan by the bound: c = 1, for heavy ball the certified c with the smallest bound."""
    plans = {}
    for c in (1.0, 0.5, 0.2, 0.1, 0.05, 0.02) if method is es.heavy_ball else (1.0,):
        try:
            plans[c] = es.plan(problem, budget, method, start_gap=gap, max_iterations=2500, c=c)
        except es.NoBoundError:
            continue
    best = min(plans, key=lambda c: plans[c].error)
    return best, plans[best]


# --- Tables -----------------------------------------------------------------------------------------------------------


def looseness(_: int) -> str:
    """Compare each bound with the exact error of the same plan on quadratics."""
    rows = []
    for kappa in (2, 10, 100):
        quadratic = log_spaced(kappa, 1e-4)
        for name, method in METHODS.items():
            c, plan = bound_plan(quadratic.problem, method, quadratic.gap)
            bounds, errors = bound_path(plan), quadratic.path(plan)
            noise = es.bounds.exact_quadratic(plan.steps, quadratic.spectrum)[1] @ plan.scales**2
            noise_bound = plan.bound.weights @ plan.scales**2 * plan.problem.dimension
            ratios = bounds / errors
            cells = [kappa, name, f"{c:g}", plan.iterations, number(bounds[-1]), number(errors[-1])]
            cells += [f"{100 * noise / errors[-1]:.0f} %", f"{noise_bound / noise:.1f}"]
            rows.append([*cells, f"{ratios[-1]:.1f}", f"{ratios.min():.2f}", f"{ratios.max():.3g}"])
    head = "κ | method | c | T | bound | exact error | noise in it | bound/exact, noise only | at T"
    return markdown(f"{head} | least over t | most over t", rows)


def looseness_logistic(runs: int) -> str:
    """Compare each bound with simulated private logistic regression."""
    problem, data, gap, optimum = logistic_data()
    rows = []
    for seed, (name, method) in enumerate(METHODS.items()):
        c, plan = bound_plan(problem, method, gap, es.Pure(5.0))
        path = es.run(plan, data, seed=seed, repetitions=runs).path[1:]
        gaps = np.array([data.value(points) for points in path]) - optimum
        means, final = gaps.mean(axis=1), gaps[-1]
        ratios = bound_path(plan) / means
        error = final.std(ddof=1) / np.sqrt(runs)
        cells = [name, f"{c:g}", plan.iterations, number(plan.error), number(means[-1]), number(error)]
        rows.append([*cells, f"{ratios[-1]:.1f}", f"{ratios.min():.2f}"])
    head = "method | c | T | bound | simulated mean | its standard error"
    return markdown(f"{head} | bound/mean at T | least over t", rows)


def logistic_data() -> tuple[es.Problem, es.Rows, float, float]:
    """Return a small logistic problem, made-up records, F(0) - F* and F*."""
    problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.1, n=2000, d=5)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (problem.n, problem.d))
    y = np.where(X @ rng.standard_normal(problem.d) + 0.3 * rng.standard_normal(problem.n) > 0, 1, -1)
    data = es.Rows(problem, X, y)
    found = minimize(data.value, np.zeros(problem.d), jac=data.gradient, method="L-BFGS-B", options={"ftol": 1e-16})
    return problem, data, float(data.value(np.zeros(problem.d)) - found.fun), float(found.fun)


def gain(_: int) -> str:
    """Compare planning by the exact error with the paper's procedure: split and T by the bound."""
    rows = []
    cases = [demo(mu, c_w) for mu in (0.5, 0.1) for c_w in (1e-4, 1e-2)]
    cases += [log_spaced(kappa, s) for kappa in (100, 1000) for s in (1e-4, 1e-2)]
    cases += [even_gap(kappa, 1e-4) for kappa in (100, 1000)]
    for quadratic in cases:
        plans = gain_plans(quadratic)
        errors = [quadratic.error(plan) for plan in plans]
        cells = [f"{number(error)} ({plan.iterations})" for error, plan in zip(errors, plans, strict=True)]
        _, split, procedure, exact, grid = errors
        ratios = [f"{value / exact:.2f}" for value in (split, procedure, grid)]
        rows.append([quadratic.name, number(quadratic.s), *cells, *ratios])
    head = "problem | s | uniform, best T | bound's split, best T | bound's split and T | exact split and T"
    return markdown(f"{head} | grid surrogate | split/exact | procedure/exact | grid/exact", rows)


def gain_plans(quadratic: Quadratic) -> list[es.Plan]:
    """Return five plans: uniform, the bound's split at its best T and at the bound's T, exact, grid surrogate."""

    def planned(**options) -> es.Plan:
        return es.plan(quadratic.problem, BUDGET, es.nesterov, **({"start_gap": quadratic.gap} | options))

    def best(**options) -> es.Plan:
        return min((planned(iterations=T, **options) for T in range(1, 151)), key=quadratic.error)

    procedure = planned(start_gap=quadratic.lyapunov / 2)  # V_0 itself, in place of its bound 2 E_0
    exact = best(objective="exact", spectrum=quadratic.spectrum)
    return [best(allocation="uniform"), best(), procedure, exact, planned(objective="exact")]


def conversion(_: int) -> str:
    """Compare the rho that (epsilon, delta) allows: exactly for Gaussian noise, and by the textbook's formula."""
    rows = []
    for delta, power in ((1e-5, "10⁻⁵"), (1e-6, "10⁻⁶")):
        for epsilon in (0.1, 1.0, 5.0):
            exact, textbook = es.Approximate(epsilon, delta).rho, es.budgets.zcdp_rho(epsilon, delta)
            rows.append([f"{epsilon:g}", power, number(exact), number(textbook), f"{exact / textbook:.2f}"])
    return markdown("ε | δ | ρ, exact | ρ, textbook | variance, textbook/exact", rows)


def budgets(_: int) -> str:
    """Compare the bounds that budgets promise on the paper's problem."""
    problem, rows = paper_problem(), []
    for epsilon in (0.1, 1.0, 5.0):
        textbook = es.Concentrated(es.budgets.zcdp_rho(epsilon, 1e-6))
        plans = [
            es.plan(problem, es.Pure(epsilon), es.nesterov, allocation="uniform"),
            es.plan(problem, es.Pure(epsilon), es.nesterov),
            es.plan(problem, textbook, es.nesterov),
            es.plan(problem, es.Approximate(epsilon, 1e-6), es.nesterov),
        ]
        cells = [f"{number(plan.error)} ({plan.iterations})" for plan in plans]
        rows.append([f"{epsilon:g}", *cells, f"{plans[1].error / plans[3].error:.1f}"])
    head = "ε | pure, uniform | pure, optimal | δ = 10⁻⁶, textbook ρ | δ = 10⁻⁶, exact | pure/exact Gaussian"
    return markdown(head, rows)


def paper_problem() -> es.Problem:
    """Return the problem of the paper's experiments, with the public smoothness constant."""
    return es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=100_000, d=20)


# --- Figures ----------------------------------------------------------------------------------------------------------


def figure_bounds(runs: int) -> plt.Figure:
    """Draw bound, exact error and simulated mean over t, one panel per method."""
    quadratic = log_spaced(10, 1e-3)
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), sharey=True, layout="constrained")
    for seed, (axis, (name, method)) in enumerate(zip(axes.flat, METHODS.items(), strict=True)):
        c, plan = bound_plan(quadratic.problem, method, quadratic.gap)
        t = np.arange(1, plan.iterations + 1)
        axis.semilogy(t, bound_path(plan), color=VERMILLION, lw=2, label="bound")
        axis.semilogy(t, quadratic.path(plan), color=BLUE, lw=2, label="exact error")
        marks = np.unique(np.linspace(0, plan.iterations - 1, 16).astype(int))
        means = quadratic.simulated(plan, runs, seed)
        axis.semilogy(t[marks], means[marks], "o", color=BLACK, ms=5, mfc="none", label=f"mean of {runs} runs")
        axis.set_title(f"{name}, step {c:g}/L, T = {plan.iterations}")
    for axis in axes[1]:
        axis.set_xlabel("step t")
    for axis in axes[:, 0]:
        axis.set_ylabel(r"$E\,F(x_t) - F^{*}$")
    axes[0, 0].legend(frameon=False)
    figure.suptitle("Bound and truth: κ = 10, d = 20, s = S₁/(nε) = 10⁻³, split and T by the bound")
    return figure


def figure_split(_: int) -> plt.Figure:
    """Draw how the budget is split over the steps, for Nesterov's method and in stages."""
    mu, L, grid = 1.0, 20.0, np.geomspace(1, 20, 40)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.3), layout="constrained")
    panels = [("Nesterov", es.nesterov, 60), ("multistage", es.multistage, 300)]
    for axis, (name, method, T) in zip(axes, panels, strict=True):
        steps, t = method(mu, L, T), np.arange(1, T + 1)
        weights, exact = es.bounds.for_steps(steps, mu, L).weights, es.bounds.exact_quadratic(steps, grid)[1]
        axis.axhline(1, color=BLACK, ls=":", lw=1.5, label="uniform")
        axis.semilogy(t, T * BUDGET.split(weights), color=VERMILLION, lw=2, label="bound, pure ε (cube root)")
        gaussian = T * es.Concentrated(1.0).split(weights)
        axis.semilogy(t, gaussian, color=ORANGE, lw=2, ls="--", label="bound, Gaussian ρ (square root)")
        axis.semilogy(t, T * BUDGET.split(exact), color=BLUE, lw=2, label="exact error, pure ε")
        axis.set(title=f"{name}, κ = 20, T = {T}", xlabel="step t", ylim=(3e-4, 30))
    axes[0].set_ylabel("share of the budget × T")
    axes[1].legend(*axes[0].get_legend_handles_labels(), frameon=False, loc="lower right", fontsize=10)
    return figure


def figure_horizon(_: int) -> plt.Figure:
    """Draw bound and exact error over T for the uniform and the optimal split."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for axis, quadratic, longest in zip(axes, (demo(0.5, 1e-2), log_spaced(100, 1e-4)), (40, 200), strict=True):
        T = np.arange(1, longest + 1)
        for label, colour, line, values in horizon_curves(quadratic, longest):
            axis.semilogy(T, values, color=colour, ls=line, lw=2, label=label)
            best = int(np.argmin(values))
            axis.semilogy(T[best], values[best], "o", color=colour, ms=7)
        axis.set(title=f"{quadratic.name}, s = {number(quadratic.s)}", xlabel="number of steps T")
    axes[0].set_ylabel(r"$E\,F(x_T) - F^{*}$")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncol=3, frameon=False)
    return figure


def horizon_curves(quadratic: Quadratic, longest: int) -> Iterable[tuple[str, str, str, list[float]]]:
    """Yield label, colour, line style and the values for T = 1, 2, ... of each curve."""

    def plans(**options) -> list[es.Plan]:
        return [
            es.plan(quadratic.problem, BUDGET, es.nesterov, start_gap=quadratic.gap, iterations=T, **options)
            for T in range(1, longest + 1)
        ]

    uniform, optimal = plans(allocation="uniform"), plans()
    exact = plans(objective="exact", spectrum=quadratic.spectrum)
    yield "bound, uniform", ORANGE, "--", [plan.error for plan in uniform]
    yield "bound, optimal split", VERMILLION, "--", [plan.error for plan in optimal]
    yield "exact error, uniform", SKY, "-", [quadratic.error(plan) for plan in uniform]
    yield "exact error, bound's split", BLUE, "-", [quadratic.error(plan) for plan in optimal]
    yield "exact error, exact split", GREEN, "-", [quadratic.error(plan) for plan in exact]


# --- Output -----------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Return three significant digits, as people write them."""
    if 1e-3 <= abs(value) < 1e3:
        return f"{value:#.3g}".rstrip(".")
    return re.sub(r"e([+-])0?", r"e\1", f"{value:.2e}")


def markdown(head: str, rows: list[list]) -> str:
    """Return a Markdown table."""
    lines = [head.split(" | "), ["---"] * (head.count(" | ") + 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def insert(page: Path, name: str, table: str) -> None:
    """Replace what stands between the markers of a table."""
    text = page.read_text(encoding="utf-8")
    pattern = rf"(<!-- table: {re.escape(name)} -->\n).*?(<!-- end -->)"
    page.write_text(re.sub(pattern, lambda m: f"{m[1]}\n{table}\n\n{m[2]}", text, flags=re.DOTALL), encoding="utf-8")


def main() -> None:
    """Compute every table and figure."""
    parser = argparse.ArgumentParser(description="Regenerate the tables and figures of docs/theory.md.")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of theory.md and images/")
    parser.add_argument("--quick", action="store_true", help="50 simulated runs in place of 1000")
    options = parser.parse_args()
    runs, page, begun = 50 if options.quick else 1000, options.out / "theory.md", time.perf_counter()
    tables = {
        "looseness": looseness,
        "looseness-logistic": looseness_logistic,
        "gain": gain,
        "conversion": conversion,
        "budgets": budgets,
    }
    figures = {"bounds": figure_bounds, "split": figure_split, "horizon": figure_horizon}
    (options.out / "images").mkdir(parents=True, exist_ok=True)
    for name, job in track([*tables.items(), *figures.items()], description="theory"):
        if name in tables:
            table = job(runs)
            print(f"\n{name}\n{table}")
            if page.exists():
                insert(page, name, table)
            continue
        with plt.rc_context(STYLE):
            figure = job(runs)
            figure.savefig(options.out / "images" / f"theory-{name}.png", dpi=110)
            plt.close(figure)
    print(f"\n{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
