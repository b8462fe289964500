"""How good clipped gradient descent is without a setting per dataset: rules that know public numbers alone.

The peer of the standing benchmark chooses steps, clipping norm, step size and averaging by the answer itself. Here one
rule serves every table: T steps, gradients shortened to a share of the radius that nine of ten records lie within
(which costs next to nothing to buy), steps of A q^-b over the smoothness, q = 2 √dimension/(n mu), and the last
iterate, the mean of the second half or one with linear weights. The constants are the best for the very tables that
they are then measured on, which favours the rule: what it loses to the tuned peer is the price of not knowing the
answer.
"""

from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from accuracy_parts import clipped_descent, standing
from accuracy_parts.tables import Sources, of_role, tables
from accuracy_parts.tasks import Task
from epsteps.budgets.conversions import gaussian_mu

STEPS, CLIPS, RATES = (300, 100, 30), (1.0, 0.7, 0.5, 0.35, 0.25), tuple(2.0**k for k in range(-1, 6))
MEANS = ("last", "second half", "linear")
_FACTORS, _POWERS = np.geomspace(0.05, 50, 25), (0.0, 0.25, 0.5, 0.75, 1.0)
_RUNS = 2


class Rule(NamedTuple):
    """Steps, share of the radius, mean, and how step sizes fall with the noise."""

    steps: int
    clip: float
    mean: str
    factor: float
    power: float

    def rate(self, level: float) -> float:
        """Return the step size of the grid, times the smoothness, for a level of noise."""
        wanted = np.clip(self.factor * level**-self.power, RATES[0], RATES[-1])
        return RATES[int(np.rint(np.log2(wanted / RATES[0])))]


def risks(task: Task, epsilon: float, delta: float, seed: int = 3) -> dict[tuple[int, float, float, str], float]:
    """Return the excess risk of every setting of the grid, over a few runs."""
    radius = min(float(np.quantile(np.linalg.norm(task.X, axis=1), 0.9)), task.encoding.largest(2))
    paths = list(product(CLIPS, RATES))
    clips = radius * np.repeat([clip for clip, _ in paths], _RUNS)
    rates = np.repeat([rate for _, rate in paths], _RUNS) / (task.loss.curvature * radius**2 + task.ridge)
    found = {}
    for steps in STEPS:
        models = _descended(task, steps, clips, rates, gaussian_mu(epsilon, delta), np.random.default_rng(seed))
        for mean, x in zip(MEANS, models, strict=True):
            excess = np.asarray(task.objective.excess(x)).reshape(len(paths), _RUNS).mean(axis=1)
            found |= {(steps, *path, mean): float(value) for path, value in zip(paths, excess, strict=True)}
    return found


def _descended(
    task: Task, steps: int, clips: np.ndarray, rates: np.ndarray, mu: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the last iterates of independent runs from 0, and two means of each run's iterates."""
    sigmas = 2 * clips / task.n * np.sqrt(steps) / mu
    x = np.zeros((task.dimension, len(clips)))
    half, linear = np.zeros_like(x), np.zeros_like(x)
    for step in range(steps):
        gradient = clipped_descent.clipped_sum(task, x.astype(np.float32), clips.astype(np.float32)) / task.n
        x = x - rates * (gradient + task.ridge * x + sigmas * rng.standard_normal(x.shape))
        x = np.clip(x, -1e3, 1e3)  # a diverged run is a bad one, not an overflow
        half += x if step >= steps // 2 else 0.0
        linear += (step + 1) * x
    return x, half / (steps - steps // 2), linear * 2 / (steps * (steps + 1))


def level(task: Task, epsilon: float, delta: float) -> float:
    """Return a gradient's noise over its largest size: 2 √dimension/(n mu)."""
    return 2 * np.sqrt(task.dimension) / (task.n * gaussian_mu(epsilon, delta))


def best_rule(cells: Iterable[dict[str, Any]]) -> tuple[Rule, float, float]:
    """Return the rule with the smallest geometric mean over the tuned peer, that mean, and its worst cell."""
    cells = list(cells)

    def ratios(rule: Rule) -> np.ndarray:
        settings = [(rule.steps, rule.clip, rule.rate(cell["level"]), rule.mean) for cell in cells]
        return np.array([cell["risks"][setting] / cell["tuned"] for cell, setting in zip(cells, settings, strict=True)])

    rules = [
        Rule(steps, clip, mean, factor, power)
        for steps, clip, mean in product(STEPS, CLIPS, MEANS)
        for factor, power in product(_FACTORS.tolist(), _POWERS)
    ]
    means = [float(np.exp(np.mean(np.log(ratios(rule))))) for rule in rules]
    place = int(np.argmin(means))
    return rules[place], means[place], float(ratios(rules[place]).max())


def measure(options: Namespace) -> Iterator[str]:
    """Measure the grid on the design tables whose tuned peer is in files of lines, and yield the best rules."""
    tuned = defaultdict(list)
    for line in standing.read(options.lines):
        if line["method"] == "dp-gd" and line.get("excess") is not None:
            tuned[line["set"], line["epsilon"], line["delta"]].append(line["excess"])
    sources, names = Sources(options.data, options.packages), {table.name for table in of_role("design")}
    places = [place for place in tuned if place[0] in names and tables()[place[0]].kind != "regression"]
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        measured = list(pool.map(_cell, [(sources, *place) for place in places]))
    cells = [cell | {"tuned": float(np.mean(tuned[place]))} for cell, place in zip(measured, places, strict=True)]
    for kind in ("binary", "classes"):
        if some := [cell for cell in cells if cell["kind"] == kind]:
            rule, mean, worst = best_rule(some)
            yield f"{kind}: {len(some)} cells, {rule}: {mean:.2f} of the tuned peer (geometric mean), worst {worst:.1f}"


def _cell(asked: tuple[Sources, str, float, float]) -> dict[str, Any]:
    sources, name, epsilon, delta = asked
    with threadpool_limits(1):
        task = tables()[name].task(sources)
        found = risks(task, epsilon, delta)
    return {"kind": tables()[name].kind, "level": level(task, epsilon, delta), "risks": found}
