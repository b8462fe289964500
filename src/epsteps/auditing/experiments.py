"""Experiments on what plans say of accuracy: coverage by simulation, and predictions against repeated fits.

Coverage needs no data: records are drawn from a population that is known. Calibration reads records that may be opened.
Nothing here is private.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtri

from epsteps.auditing import attacks
from epsteps.bounds.steps import gd, heavy_ball, multistage, nesterov, restarted_nesterov
from epsteps.budgets import Budget
from epsteps.data.rows import Rows
from epsteps.methods import choice, figures
from epsteps.methods.intervals.table import Intervals
from epsteps.noise import Source
from epsteps.plans.plan import Aim, Plan
from epsteps.problem import validate
from epsteps.problem.problem import Problem
from epsteps.problem.validate import require
from epsteps.problem.weighting import Weighting
from epsteps.running.run import Run, run

Arrays = tuple[np.ndarray, np.ndarray]
Draw = Callable[[np.random.Generator, int], Arrays]
TARGETS = ("population", "sample")
# Records that stand for the population of a function: so many times n, within limits of memory.
_TIMES, _FEWEST, _MOST_NUMBERS = 100, 1_000_000, 2**26
# Confidence of the bounds on coverage.
_CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Population:
    """Where records come from, as a problem declares them: drawn afresh, and all of them for the exact minimum."""

    draw: Draw
    everybody: Arrays

    @classmethod
    def of(cls, population: "Draw | Arrays", problem: Problem, seed: int) -> "Population":
        """Return the population of a function, or of arrays (X, y), from which rows are drawn with replacement."""
        if callable(population):
            count = min(max(_TIMES * problem.n, _FEWEST), max(_MOST_NUMBERS // problem.width, problem.n))
            return cls(population, population(np.random.default_rng([seed, 2**32 - 1]), count))
        X, y = (np.asarray(part) for part in population)
        if len(X) != len(y):
            raise ValueError(f"the population's features and targets must have one length, got {len(X)} and {len(y)}.")

        def rows(generator: np.random.Generator, n: int) -> Arrays:
            chosen = generator.integers(len(y), size=n)
            return X[chosen], y[chosen]

        return cls(rows, (X, y))

    def minimum(self, aim: Aim) -> np.ndarray:
        """Return the minimiser over everybody of what a run minimises: its loss, its weights and its ridge."""
        X, y = self.everybody
        aim = aim._replace(problem=replace(aim.problem, n=len(y)))
        return minimiser(exact(aim, Rows(aim.problem, X, y)))


@dataclass(frozen=True, eq=False)
class Replication:
    """One draw of records and one seeded run: for each target, which numbers were covered, and half the widths.

    ``known`` is half the width that the exact Hessian and the exact covariance of scores would give, ``control`` what
    such intervals cover, and ``free`` half the width of the usual ones without privacy.
    """

    kind: str
    covered: dict[str, np.ndarray]
    control: dict[str, np.ndarray]
    widths: dict[str, np.ndarray]
    known: dict[str, np.ndarray]
    free: np.ndarray
    names: tuple[str, ...]


@dataclass(frozen=True)
class CoverageRow:
    """One coefficient (or contrast): how often its interval covers, with bounds at 95 % confidence, and how wide.

    ``control`` is what an interval covers that knows the Hessian and the scores exactly: what the method can hope for.
    """

    name: str
    coverage: float
    low: float
    high: float
    width: float
    over_known: float
    over_free: float
    control: float


@dataclass(frozen=True, eq=False)
class Coverage:
    """How often intervals cover what they are for, by simulation. Made by :func:`epsteps.coverage`.

    ``rows`` has, for each target, one row for each number. ``kinds`` counts the replications whose intervals were
    "measured" or "provable"; ``of_kind`` is the mean coverage of each.
    """

    plan: Plan
    level: float
    replications: int
    seed: int
    rows: dict[str, tuple[CoverageRow, ...]]
    kinds: dict[str, int]
    of_kind: dict[str, dict[str, float]]

    def mean(self, target: str = "population") -> float:
        """Return the mean coverage over all numbers."""
        return float(np.mean([row.coverage for row in self.rows[target]]))

    def worst(self, target: str = "population") -> CoverageRow:
        """Return the number that is covered least."""
        return min(self.rows[target], key=lambda row: row.coverage)

    def width(self, target: str = "population") -> float:
        """Return the median, over all numbers, of the width over that of a known Hessian."""
        return float(np.median([row.over_known for row in self.rows[target]]))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        rows = {target: [vars(row) for row in rows] for target, rows in self.rows.items()}
        facts = {"level": self.level, "replications": self.replications, "seed": self.seed}
        return facts | {"kinds": self.kinds, "of_kind": self.of_kind, "rows": rows}

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        lines = [
            f"Coverage of {self.level:.0%} intervals, {self.replications} simulated fits ({counts}); bounds are at "
            f"{_CONFIDENCE:.0%} confidence"
        ]
        for target, rows in self.rows.items():
            worst = self.worst(target)
            lines += [
                f"  of the {target}'s minimum: mean {self.mean(target):.3f}, worst {worst.coverage:.3f} ({worst.name})",
                f"{'coverage':>27} {'bounds':>14} {'half width':>10} {'/ known':>8} {'/ free':>8} {'known H':>8}",
                *(
                    f"  {row.name:<16.16} {row.coverage:>8.3f} {f'{row.low:.3f} {row.high:.3f}':>14} "
                    f"{row.width:>10.3g} {row.over_known:>8.2f} {row.over_free:>8.2f} {row.control:>8.3f}"
                    for row in rows
                ),
            ]
        lines.append(
            "  (Widths over those with a known Hessian, and over usual ones without privacy; known H: coverage"
        )
        return "\n".join([*lines, "  of intervals that know the Hessian. Records were simulated: no data was read.)"])

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw coverage with its bounds for each number, and write the picture if a path is given."""
        plots = require("matplotlib.figure", "plots", "drawing coverage")
        figure = plots.Figure((7, 1.5 + 0.28 * len(next(iter(self.rows.values())))), layout="constrained")
        axes = figure.subplots()
        for (target, rows), colour, shift in zip(self.rows.items(), figures.LINES[:2], (-0.12, 0.12), strict=False):
            middle, low, high = (np.array([getattr(r, name) for r in rows]) for name in ("coverage", "low", "high"))
            places = np.arange(len(rows)) + shift
            axes.errorbar(
                middle, places, xerr=(middle - low, high - middle), fmt="o", color=colour, ms=4, label=f"{target}'s"
            )
            axes.set_yticks(np.arange(len(rows)), [row.name for row in rows])
        axes.axvline(self.level, color="black", lw=0.9, ls=":")
        axes.set(xlabel="coverage", title=f"{self.level:.0%} intervals, {self.replications} simulated fits")
        axes.invert_yaxis()
        axes.legend(frameon=False, title="minimum of")
        axes.grid(alpha=0.3, axis="x")
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure


def coverage(
    plan: Plan,
    population: Draw | Arrays,
    *,
    replications: int = 300,
    level: float = 0.95,
    contrasts: np.ndarray | None = None,
    seed: int = 1,
    on_step: Callable[[int], None] | None = None,
) -> Coverage:
    """Find by simulation how often a plan's intervals cover, before any data: records come from a known population.

    Each replication draws n records, runs the plan on them with a seed and asks for its intervals. They are held
    against the population's minimum and the sample's, both of what the run minimised: its loss, its weights and its
    ridge. Where nothing says how samples vary, there are intervals for the sample's minimum alone.

    Parameters
    ----------
    plan : Plan
        A plan whose runs give intervals, such as ``epsteps.plan(problem, budget, intervals=0.95)``.
    population : callable or (X, y)
        A function (generator, n) -> (X, y) that draws n records, or arrays, from which rows are drawn with replacement.
        The minimum over a population that is a function is that of 100 n of its records (a million at least).
    replications : int
        Simulated fits.
    level : float
        Of the intervals.
    contrasts : array, optional
        One row for each number that is asked for, as for ``run.intervals``; the coefficients themselves by default.
    seed : int
        Makes the simulation repeatable.
    on_step : callable, optional
        Called after each replication with their number, for a progress bar.
    """
    found = []
    numbers = range(validate.integer("replications", replications))
    for replication in replicate(plan, population, numbers, level=level, contrasts=contrasts, seed=seed):
        found.append(replication)
        if on_step is not None:
            on_step(len(found))
    return collected(plan, found, level=level, seed=seed)


def replicate(
    plan: Plan,
    population: Draw | Arrays,
    numbers: Sequence[int],
    *,
    level: float = 0.95,
    contrasts: np.ndarray | None = None,
    seed: int = 1,
) -> Iterator[Replication]:
    """Yield the replications with these numbers; they depend on the seed and on their number alone."""
    source = Population.of(population, plan.problem, seed)
    matrix = np.eye(plan.problem.dimension) if contrasts is None else np.asarray(contrasts, dtype=float)
    aimed, truth = None, np.zeros(0)
    for number in numbers:
        generator = np.random.default_rng([seed, number])
        rows = Rows(plan.problem, *source.draw(generator, plan.problem.n))
        made = run(plan, rows, seed=int(generator.integers(2**31)))
        if (aim := plan.aim(made.extras)) != aimed:  # a plan that buys sizes of the records aims by them
            aimed, truth = aim, matrix @ source.minimum(aim)
        objective = exact(aim, rows)
        wanted = {"population": truth, "sample": matrix @ minimiser(objective)}
        asked = _asked(made, level, contrasts)
        known, free = known_widths(aim, objective, made.x, matrix, level, number)
        yield Replication(
            kind=str(asked["sample"].kind),
            covered={t: (asked[t].low <= wanted[t]) & (wanted[t] <= asked[t].high) for t in asked},
            widths={t: (asked[t].high - asked[t].low) / 2 for t in asked},
            control={t: np.abs(matrix @ made.x - wanted[t]) <= known[t] for t in asked},
            known=known,
            free=free,
            names=tuple(asked["sample"].names),
        )


def _asked(made: Run, level: float, contrasts: np.ndarray | None) -> dict[str, Intervals]:
    """Return the intervals for both minima, or for the sample's alone where nothing says how samples vary."""
    found = {"sample": made.intervals(level=level, target="sample", contrasts=contrasts)}
    with suppress(ValueError):
        found["population"] = made.intervals(level=level, target="population", contrasts=contrasts)
    return found


def collected(plan: Plan, found: Sequence[Replication], *, level: float, seed: int = 1) -> Coverage:
    """Return what replications say together."""
    kinds = {kind: [r for r in found if r.kind == kind] for kind in sorted({r.kind for r in found})}
    return Coverage(
        plan=plan,
        level=level,
        replications=len(found),
        seed=seed,
        rows={target: _table(given, target) for target in TARGETS if (given := _given(found, target))},
        kinds={kind: len(some) for kind, some in kinds.items()},
        of_kind={
            kind: {
                target: float(np.mean([r.covered[target] for r in given]))
                for target in TARGETS
                if (given := _given(some, target))
            }
            for kind, some in kinds.items()
        },
    )


def _given(found: Sequence[Replication], target: str) -> list[Replication]:
    """Return the replications that gave intervals for this target."""
    return [replication for replication in found if target in replication.covered]


def _table(found: Sequence[Replication], target: str) -> tuple[CoverageRow, ...]:
    count, level = len(found), (1 - _CONFIDENCE) / 2
    hits = np.sum([r.covered[target] for r in found], axis=0)
    widths = np.array([r.widths[target] for r in found])
    known, free = np.array([r.known[target] for r in found]), np.array([r.free for r in found])
    return tuple(
        CoverageRow(
            name=name,
            coverage=float(hits[j] / count),
            low=attacks.lower(int(hits[j]), count, level),
            high=attacks.upper(int(hits[j]), count, level),
            width=float(np.mean(widths[:, j])),
            over_known=float(np.median(widths[:, j] / known[:, j])),
            over_free=float(np.median(widths[:, j] / free[:, j])),
            control=float(np.mean([r.control[target][j] for r in found])),
        )
        for j, name in enumerate(found[0].names)
    )


# Draws of the tilt for the width that a known Hessian would give.
_TILTS = 4000
# Of the Newton decrement, which is about twice what F still lies above its minimum.
_DECREMENT = 1e-20
_NEWTON_STEPS = 200


def exact(aim: Aim, rows: Rows) -> "Rows | Weighed":
    """Return the objective of a run over these records: as ``Rows`` have it, or with weights for long ones."""
    rows = rows.restated(aim.problem)
    return rows if aim.weighting is None else Weighed(rows, aim.weighting)


@dataclass(frozen=True, eq=False)
class Weighed:
    """The mean of v loss(s u'x) and the ridge: value, gradient and Hessian, UNPROTECTED. For one output."""

    rows: Rows
    weighting: Weighting

    @property
    def problem(self) -> Problem:
        """The loss and the ridge."""
        return self.rows.problem

    @property
    def records(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shortened features s u, with the intercept's column, encoded targets, and weights v."""
        u, y, v, *_ = self._records
        return u, y, v

    @property
    def _caps(self) -> tuple[np.ndarray, ...]:
        """What each record's slopes are held at, as a loss takes it; nothing where it is the loss's own cap."""
        return self._records[3:]

    @cached_property
    def _records(self) -> tuple[np.ndarray, ...]:
        measure, parts = self.weighting.measure(self.problem), []
        steps = measure.most / float(self.problem.units.max())
        for features, targets in self.rows.blocks():
            lengths = np.abs(features * steps) ** self.weighting.norm
            shares = measure.shares(lengths.sum(axis=1))
            caps = () if shares.caps is None else (shares.caps,)
            weights = shares.weights / self.weighting.mean
            parts.append((features * shares.shortening[:, None], targets, weights, *caps))
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def value(self, x: np.ndarray) -> float:
        """Return F at x."""
        u, y, v = self.records
        losses = self.problem.loss.total((u @ x)[None, :], y[None, :], *self._caps)
        return float(v @ losses) / len(y) + 0.5 * self.problem.ridge * float(x @ x)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of F at x."""
        return self.scores(x).mean(axis=0) + self.problem.ridge * x

    def scores(self, x: np.ndarray) -> np.ndarray:
        """Return each record's gradient."""
        u, y, v = self.records
        return u * (v * self.problem.loss.derivative(u @ x, y, *self._caps))[:, None]

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return the Hessian of F at x."""
        u, y, v = self.records
        bends = v * self.problem.loss.second(u @ x, y, *self._caps)
        return (u.T * bends) @ u / len(y) + self.problem.ridge * np.eye(len(x))


def minimiser(objective: Any) -> np.ndarray:
    """Return the x at which F is least, up to rounding, of ``Rows`` or what is like them: UNPROTECTED."""
    x = np.zeros(objective.problem.dimension)
    here = float(objective.value(x))
    for _ in range(_NEWTON_STEPS):
        gradient = objective.gradient(x)
        hessian = objective.hessian(x)
        step = cho_solve(cho_factor(hessian + 1e-14 * np.trace(hessian) / len(x) * np.eye(len(x))), gradient)
        decrement = float(gradient @ step)
        length = 1.0
        while (there := float(objective.value(x - length * step))) > here - 0.25 * length * decrement:
            if length <= 1e-6:
                break
            length /= 2
        if there > here - 1e-16 * abs(here) or decrement <= _DECREMENT:
            return x - step if decrement <= 1e-8 else x
        x, here = x - length * step, there
    return x


def known_widths(
    aim: Aim, objective: "Rows | Weighed", x: np.ndarray, matrix: np.ndarray, level: float, seed: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return half the widths that the exact Hessian at x and the exact covariance of scores would give, UNPROTECTED.

    Of the population's and of the sample's minimum, as quantiles of |H⁻¹(b/n + score)| with b from the tilt's law; and
    those of usual intervals, without a tilt. They are NaN where nothing was tilted, or the loss has several outputs.
    """
    n, unknown = objective.problem.n, np.full(len(matrix), np.nan)
    if not aim.tilts or objective.problem.loss.outputs > 1:
        return {"population": unknown, "sample": unknown}, unknown
    inverse = np.linalg.inv(objective.hessian(x))
    tilts = matrix @ inverse @ tilts_of(aim, _TILTS, seed) / n
    spread = matrix @ inverse @ score_covariance(objective, x) @ inverse @ matrix.T / n
    deviation = np.sqrt(np.diag(spread))
    normal = np.random.default_rng([seed, 7]).standard_normal((len(matrix), _TILTS))
    both = np.abs(tilts + deviation[:, None] * normal)
    known = {"population": np.quantile(both, level, axis=1), "sample": np.quantile(np.abs(tilts), level, axis=1)}
    return known, deviation * float(ndtri((1 + level) / 2))


def tilts_of(aim: Aim, count: int, seed: int) -> np.ndarray:
    """Return draws of the tilt of the sum, one in each column; of the mean of several minima that of their mean."""
    problem, source = aim.problem, Source(seed)
    total = np.zeros((problem.dimension, count))
    for noise, scale in aim.tilts:
        shape, form = noise.shape(problem), total.shape
        drawn = source.draw(noise, 1.0, form) if shape.independent else source.draw(noise, 1.0, form, shape)
        total += scale * noise.units(problem)[:, None] * drawn
    return total


def score_covariance(objective: "Rows | Weighed", x: np.ndarray) -> np.ndarray:
    """Return the covariance of records' gradients at x, UNPROTECTED."""
    if isinstance(objective, Weighed):
        return np.cov(objective.scores(x).T, bias=True)
    problem, total, square = objective.problem, 0.0, 0.0
    for features, targets in objective.blocks():
        scores = features * problem.loss.derivative(features @ x, targets)[:, None]
        total, square = total + scores.sum(axis=0), square + scores.T @ scores
    mean = total / problem.n
    return square / problem.n - np.outer(mean, mean)


# What a plan's own budget is multiplied by, where no others are asked for.
_SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)
# Planners that a plan may have come from, besides the methods with names.
_PAPER = (nesterov, gd, heavy_ball, multistage, restarted_nesterov)
_EXPERIMENT = "An experiment: it reads the records without protection, and so do its numbers. Do not publish them."
# Excess of a fit that diverged.
_LARGEST = 1e100


@dataclass(frozen=True)
class CalibrationPoint:
    """One budget: what its plan predicts of E F(x) - F*, and what seeded runs measured, with the standard error.

    A plan that predicts nothing has NaN there.
    """

    amount: float
    predicted: float
    bound: float | None
    verdict: str
    measured: float
    stderr: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / max(self.measured, 1e-300)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Predicted and measured excess risk of one method, budget by budget. Made by :func:`epsteps.calibration`.

    ``trivial`` is what x = 0 costs on these records, F(0) - F*: a fit that measures as much is worth nothing.
    """

    plan: Plan
    points: tuple[CalibrationPoint, ...]
    trivial: float
    runs: int
    seed: int

    @property
    def useful(self) -> tuple[CalibrationPoint, ...]:
        """The budgets at which neither prediction nor measurement is as bad as x = 0."""
        return tuple(point for point in self.points if max(point.predicted, point.measured) < self.trivial)

    def within(self, factor: float = 2.0) -> float:
        """Return the share of useful budgets whose prediction is off by at most this factor; NaN if there is none."""
        hits = [1 / factor <= point.ratio <= factor for point in self.useful]
        return float(np.mean(hits)) if hits else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        points = [asdict(point) | {"ratio": point.ratio} for point in self.points]
        facts = {"method": self.plan.method, "trivial": self.trivial, "runs": self.runs, "seed": self.seed}
        return facts | {"experiment": _EXPERIMENT, "points": points}

    def __str__(self) -> str:
        budget = self.plan.budget
        lines = [
            f"Calibration of {self.plan.method}, {self.runs} runs at each budget; x = 0 costs {self.trivial:.3g}",
            f"  {'budget':>10}  {'predicted':>10}  {'measured':>10}  {'std err':>9}  {'ratio':>6}  verdict",
        ]
        for point in self.points:
            mark = "*" if point.amount == budget.amount else " "
            lines.append(
                f" {mark}{point.amount:>10.4g}  {point.predicted:>10.3g}  {point.measured:>10.3g}  "
                f"{point.stderr:>9.2g}  {point.ratio:>6.2f}  {point.verdict}"
            )
        if self.useful:
            lines.append(f"  {self.within():.0%} of {len(self.useful)} useful budgets are predicted within a factor 2")
        return "\n".join([*lines, f"  (* the plan's own budget.) {_EXPERIMENT}"])

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw predicted and measured excess over the budget, and write the picture if a path is given."""
        figure = require("matplotlib.figure", "plots", "drawing a calibration").Figure((7, 4.5), layout="constrained")
        axes = figure.subplots()
        amounts = [point.amount for point in self.points]
        predicted, measured, errors = (
            np.array([getattr(point, name) for point in self.points]) for name in ("predicted", "measured", "stderr")
        )
        axes.fill_between(amounts, predicted / 2, 2 * predicted, color=figures.BLUE, alpha=0.15, lw=0)
        axes.plot(amounts, predicted, color=figures.BLUE, marker="o")
        axes.errorbar(amounts, measured, 2 * errors, color=figures.VERMILLION, marker="s", capsize=3)
        axes.axhline(self.trivial, color=figures.GREY, lw=1.2, ls=":")
        axes.set(xscale="log", yscale="log", xlabel=f"budget, {amount_name(self.plan.budget)}", ylabel="E F(x) - F*")
        axes.set_xticks(amounts, [f"{amount:g}" for amount in amounts])
        axes.set_xticks([], minor=True)
        figures.plain(axes)
        figures.readable(axes.yaxis)
        figures.label_ends(
            axes,
            [
                (amounts[-1], predicted[-1], "predicted,\nwithin a factor 2", figures.BLUE),
                (amounts[-1], measured[-1], "measured ± 2 se", figures.VERMILLION),
                (amounts[-1], self.trivial, "x = 0", figures.GREY),
            ],
        )
        axes.set_title(f"{self.plan.method}: {self.runs} seeded runs at each budget", fontsize=11)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure


def calibration(
    plan: Plan,
    data: Rows,
    *,
    runs: int = 30,
    epsilons: Sequence[float] | None = None,
    planner: Callable[[Budget], Plan] | None = None,
    seed: int = 1,
) -> Calibration:
    """Compare what plans predict of their excess risk with what seeded runs measure, on records that may be opened.

    The method of the plan is planned again at each budget and run with seeds. F and its minimum are those of the
    problem that the records were declared with. Nothing of this is private: it is for public or synthetic records.

    Parameters
    ----------
    plan : Plan
        What is calibrated, at its own budget and at others.
    data : Rows
        The records, as for :func:`epsteps.run`.
    runs : int
        Seeded runs at each budget.
    epsilons : sequence of float, optional
        Other amounts of the plan's kind of budget: epsilons, or rhos of a Concentrated one. By default from a quarter
        to four times the plan's own.
    planner : callable, optional
        Returns the plan for a budget. It is needed for a plan that was made with options.
    seed : int
        Makes the experiment repeatable.
    """
    validate.integer("runs", runs, low=2)
    validate.integer("seed", seed, low=0)
    if not plan.problem.same_records(data.problem):
        raise ValueError(f"the plan is for {plan.problem}, but the records are for {data.problem}.")
    own = plan.budget.amount
    amounts = sorted({float(a) for a in epsilons} if epsilons is not None else {own * share for share in _SHARES})
    planner = planner or _planner_of(plan, data, alone=amounts == [own])
    x = minimiser(data)
    lowest = float(data.value(x))
    points = []
    for number, amount in enumerate(amounts):
        made = plan if amount == own else planner(with_amount(plan.budget, amount))
        excess = _excess(made, data, lowest, runs, seed + number * runs)
        error = float(np.std(excess, ddof=1) / np.sqrt(runs))
        told = made.utility
        predicted = float("nan") if told.expected is None else told.expected
        points.append(CalibrationPoint(amount, predicted, told.bound, told.verdict, float(np.mean(excess)), error))
    return Calibration(plan, tuple(points), float(data.value(np.zeros_like(x))) - lowest, runs, seed)


def _excess(plan: Plan, data: Rows, lowest: float, runs: int, seed: int) -> np.ndarray:
    """Return F(x) - F* of each seeded run; steps are run all at once, in floats."""
    if plan.has_floats:
        x = run(plan, data, seed=seed, repetitions=runs).x
    else:
        x = np.stack([run(plan, data, seed=seed + number).x for number in range(runs)], axis=1)
    with np.errstate(over="ignore"):
        return np.minimum(data.value(x) - lowest, _LARGEST)


def with_amount(budget: Budget, amount: float) -> Budget:
    """Return a budget of the same kind with another epsilon, or rho."""
    return replace(budget, **{amount_name(budget): amount})  # pyright: ignore[reportArgumentType]


def amount_name(budget: Budget) -> str:
    """Return the name of the field that is the budget's amount: the first that equals it."""
    names = (field.name for field in fields(budget))  # pyright: ignore[reportArgumentType]
    return next(name for name in names if getattr(budget, name) == budget.amount)


def _planner_of(plan: Plan, data: Rows, *, alone: bool) -> Callable[[Budget], Plan]:
    """Return the planner, without options, that makes this very plan from the problem of the records."""
    if alone:
        return lambda _: plan
    for planner in _planners(data):
        try:
            made = planner(plan.budget)
        except (ValueError, TypeError):
            continue
        if made == plan:
            return planner
    raise ValueError(
        f"no method makes this plan ({plan.method}) from the problem of the records without options. "
        "Pass planner=lambda budget: epsteps.plan(problem, budget, ...) with those that it was made with."
    )


def _planners(data: Rows) -> Iterator[Callable[[Budget], Plan]]:
    for method in (*choice.METHODS, *_PAPER):
        yield lambda budget, method=method: choice.plan(data.problem, budget, method)
