"""What is compared: one small function per method. To add one, write it and list it in METHODS.

A method gets the task, epsilon, delta and one seed per run, and returns one fitted x per run, as columns. Seeded runs
are experiments: nothing here is private.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import epsteps as es
from accuracy_parts import adassp_peer, clipped_descent, diffprivlib_peer, sampled_descent
from accuracy_parts.tasks import Task
from epsteps.budgets import mechanisms
from epsteps.methods import choice
from epsteps.paper import published

BOTH, LOGISTIC, SQUARED = ("logistic", "squared"), ("logistic",), ("squared",)
PAPER_STEPS = (100, 200, 500, 1000)
SHARE_FOR_L = 0.01  # of epsilon, for the smoothness constant


@dataclass(frozen=True)
class Fitted:
    """One x per run, as columns, and what was chosen on the way."""

    x: np.ndarray
    note: str = ""


@dataclass(frozen=True)
class Asked:
    """What a method is asked for."""

    task: Task
    epsilon: float
    delta: float
    seeds: Sequence[int]
    quick: bool

    def budget(self, privacy: str) -> es.Pure | es.Approximate:
        """Return the budget of this kind."""
        return es.Pure(self.epsilon) if privacy == "pure" else es.Approximate(self.epsilon, self.delta)


class UnavailableError(RuntimeError):
    """The method is not in the library's present version."""


def paper_gd(asked: Asked) -> Fitted:
    """Return the paper's DP-GD from its start, at the number of steps that measures best: this favours it."""
    options = {"allocation": "uniform", "start_gap": published.GUESSED_GAP}
    found = [_paper(asked, es.gd, published.START, iterations=T, **options) for T in PAPER_STEPS]
    return min(found, key=lambda fitted: float(np.mean(asked.task.objective.excess(fitted.x))))


def paper_nag(asked: Asked) -> Fitted:
    """Return the paper's DP-NAG-opt from its start."""
    return _paper(asked, es.nesterov, published.START, start_gap=published.GUESSED_GAP)


def paper_nag_from_zero(asked: Asked) -> Fitted:
    """Return the paper's DP-NAG-opt from 0, and told how far that is from the optimum."""
    return _paper(asked, es.nesterov, 0.0, start_gap=asked.task.l1_problem.start_gap)


def _paper(asked: Asked, method: Callable, start: float, **options: Any) -> Fitted:
    """Run the paper's algorithm with Laplace noise of the right scale, and its own L, which is read off the records."""
    task = asked.task
    problem = replace(task.l1_problem, smoothness=published.paper_smoothness(task.X, task.ridge))
    plan = es.plan(problem, es.Pure(asked.epsilon), method, mechanism="laplace", **options)
    assert isinstance(plan, es.Plan)
    run = es.run(plan, task.l1_rows, seed=asked.seeds[0], repetitions=len(asked.seeds), start=start)
    return Fitted(run.x, f"T = {plan.iterations}")


def diffprivlib(asked: Asked) -> Fitted:
    """Return diffprivlib's model with the ridge of our methods' public rule."""
    ridge = diffprivlib_peer.ridge_by_rule(asked.task, asked.epsilon)
    return Fitted(diffprivlib_peer.fit(asked.task, asked.epsilon, ridge, asked.seeds), f"ridge {ridge:.2g}")


def diffprivlib_fixed(asked: Asked) -> Fitted:
    """Return diffprivlib's model with the task's ridge."""
    return Fitted(diffprivlib_peer.fit(asked.task, asked.epsilon, asked.task.ridge, asked.seeds))


def diffprivlib_linear(asked: Asked) -> Fitted:
    """Return diffprivlib's linear regression, which has no ridge."""
    return Fitted(diffprivlib_peer.fit(asked.task, asked.epsilon, asked.task.ridge, asked.seeds))


def clipped(asked: Asked) -> Fitted:
    """Return clipped gradient descent with Gaussian noise, tuned on the measured excess risk."""
    grid = clipped_descent.QUICK_GRID if asked.quick else clipped_descent.GRID
    setting = clipped_descent.best_setting(asked.task, asked.epsilon, asked.delta, asked.seeds[0], grid)
    return Fitted(clipped_descent.fresh(asked.task, setting, asked.epsilon, asked.delta, asked.seeds), str(setting))


def dp_sgd(asked: Asked) -> Fitted:
    """Return DP-SGD with Poisson samples, tuned on the measured excess risk."""
    grid = sampled_descent.QUICK_GRID if asked.quick else sampled_descent.GRID
    setting = sampled_descent.best_setting(asked.task, asked.epsilon, asked.delta, asked.seeds[0], grid)
    rngs = [np.random.default_rng([seed, 10]) for seed in asked.seeds]
    found = [sampled_descent.descend(asked.task, setting, asked.epsilon, asked.delta, rng) for rng in rngs]
    note = f"T = {setting.steps}, rate of sampling {setting.sampled:g}, clip {setting.clip:g}, rate {setting.rate:g}/L"
    return Fitted(np.stack(found, axis=1), note)


def adassp(asked: Asked) -> Fitted:
    """Return AdaSSP's model."""
    rngs = [np.random.default_rng(seed) for seed in asked.seeds]
    return Fitted(np.stack([adassp_peer.fit(asked.task, asked.epsilon, asked.delta, rng) for rng in rngs], axis=1))


def boosted_adassp(asked: Asked) -> Fitted:
    """Return boosted AdaSSP's model."""
    rngs = [np.random.default_rng(seed) for seed in asked.seeds]
    return Fitted(np.stack([adassp_peer.boosted(asked.task, asked.epsilon, asked.delta, rng) for rng in rngs], axis=1))


def nesterov_laplace(asked: Asked) -> Fitted:
    """Return Nesterov's method from 0 with Laplace noise scaled at each public point, and an L bought with 1 %."""
    return _nesterov(asked, asked.task.l1_problem, asked.task.l1_rows, "laplace")


def nesterov_hull(asked: Asked) -> Fitted:
    """Return the same with noise shaped like the hull of the records' gradients."""
    return _nesterov(asked, asked.task.problem, asked.task.rows, "hull")


def _nesterov(asked: Asked, problem: es.Problem, rows: es.Rows, mechanism: str) -> Fitted:
    if mechanism not in mechanisms.NAMES:
        raise UnavailableError(f"this version has no {mechanism!r} noise.")
    found, notes = [], []
    for seed in asked.seeds:
        bought = es.estimate_smoothness(rows, es.Pure(SHARE_FOR_L * asked.epsilon), seed=seed)
        plan = es.plan(
            bought.problem,
            es.Pure(asked.epsilon),
            es.nesterov,
            mechanism=mechanism,
            sensitivity="state",
            start_gap=problem.start_gap,
            expenses=(bought.expense,),
        )
        assert isinstance(plan, es.Plan)
        found.append(es.run(plan, rows, seed=seed).x)
        notes.append(plan.iterations)
    return Fitted(np.stack(found, axis=1), f"T = {min(notes)} to {max(notes)}")


def named(asked: Asked, method: str, release: str, privacy: str = "pure") -> Fitted:
    """Return a method that `epsteps.plan` knows by name; it decides everything else."""
    if method not in ("auto", *choice.METHODS):
        raise UnavailableError(f"this version of epsteps.plan has no method {method!r}.")
    plan = es.plan(asked.task.problem, asked.budget(privacy), method=method, release=release)
    return Fitted(np.stack([es.run(plan, asked.task.rows, seed=seed).x for seed in asked.seeds], axis=1))


@dataclass(frozen=True)
class Method:
    """A method and what must be said about it: whose it is, what is private how, and what may be published."""

    name: str
    label: str
    whose: str  # "ours", "paper" or "peer"
    privacy: str  # "pure" or "delta"
    published: str  # "final" or "iterates"
    losses: tuple[str, ...]
    fit: Callable[[Asked], Fitted]


def _ours(name: str, release: str, losses: tuple[str, ...] = BOTH, privacy: str = "pure") -> Method:
    suffix = "" if privacy == "pure" else "-delta"
    fit = partial(named, method=name, release=release, privacy=privacy)
    return Method(f"{name}-{release}{suffix}", f"epsteps {name}", "ours", privacy, release, losses, fit)


METHODS = (
    Method("paper-gd", "paper DP-GD, best T", "paper", "pure", "iterates", LOGISTIC, paper_gd),
    Method("paper-nag", "paper DP-NAG-opt", "paper", "pure", "iterates", LOGISTIC, paper_nag),
    Method("paper-nag-0", "paper DP-NAG-opt from 0", "paper", "pure", "iterates", LOGISTIC, paper_nag_from_zero),
    Method("diffprivlib", "diffprivlib, our ridge rule", "peer", "pure", "final", LOGISTIC, diffprivlib),
    Method("diffprivlib-fixed", "diffprivlib, ridge as given", "peer", "pure", "final", LOGISTIC, diffprivlib_fixed),
    Method("diffprivlib-linear", "diffprivlib linear, no ridge", "peer", "pure", "final", SQUARED, diffprivlib_linear),
    Method("adassp", "AdaSSP", "peer", "delta", "final", SQUARED, adassp),
    Method("boosted-adassp", "boosted AdaSSP", "peer", "delta", "final", SQUARED, boosted_adassp),
    Method("clipped-gd", "DP-GD, clipped, tuned", "peer", "delta", "iterates", BOTH, clipped),
    Method("dp-sgd", "DP-SGD, tuned", "peer", "delta", "iterates", BOTH, dp_sgd),
    Method("nesterov-laplace", "epsteps nesterov, Laplace", "ours", "pure", "iterates", BOTH, nesterov_laplace),
    Method("nesterov-hull", "epsteps nesterov, hull", "ours", "pure", "iterates", BOTH, nesterov_hull),
    _ours("objective", "final"),
    _ours("output", "final"),
    _ours("statistics", "final", SQUARED),
    _ours("sequential", "iterates"),
    _ours("curvature", "iterates", LOGISTIC),
    _ours("descent", "iterates"),
    _ours("auto", "final"),
    _ours("auto", "iterates"),
    _ours("objective", "final", privacy="delta"),
    _ours("sequential", "iterates", privacy="delta"),
    _ours("curvature", "iterates", LOGISTIC, privacy="delta"),
    _ours("auto", "final", privacy="delta"),
    _ours("auto", "iterates", privacy="delta"),
)
