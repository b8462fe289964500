"""What the standing benchmark's lines say, by what is asked of a release: counts, geometric means, worst ratios.

± is one standard error. That of a ratio, and of a geometric mean of ratios, comes from those of the means, to first
order. A cell is one table at one epsilon with one budget.
"""

import math
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from accuracy_parts import standing
from accuracy_parts.standing import PEERS, PUBLISHED
from accuracy_parts.tables import KINDS, roles

Where = tuple[str, float, str]  # table, epsilon, budget
OURS = ("final", "iterates", "estimator")


@dataclass(frozen=True)
class Cell:
    """The runs of one method in one place."""

    lines: tuple[dict[str, Any], ...]

    @property
    def values(self) -> list[float]:
        """Excess risk of every run that ended."""
        return [line["excess"] for line in self.lines if line.get("excess") is not None]

    @property
    def mean(self) -> float:
        """Mean excess risk."""
        return float(np.mean(self.values)) if self.values else math.inf

    @property
    def error(self) -> float:
        """Its standard error."""
        return float(np.std(self.values, ddof=1) / math.sqrt(len(self.values))) if len(self.values) > 1 else 0.0

    @property
    def failed(self) -> int:
        """Number of runs without a model."""
        return len(self.lines) - len(self.values)

    def fact(self, name: str) -> Any:
        """Return what all lines of the cell say."""
        return self.lines[0][name]

    def __str__(self) -> str:
        return f"{self.mean:.2g} ± {self.error:.1g}"


@dataclass(frozen=True)
class Ratio:
    """One mean over another, in one place."""

    where: Where
    value: float
    error: float  # of its logarithm

    def __str__(self) -> str:
        return (
            f"{self.where[0]}, ε = {self.where[1]:g}, {self.where[2]}: {self.value:.2f} ± {self.value * self.error:.2f}"
        )


class Results:
    """Cells by method and place."""

    def __init__(self, lines: Iterable[dict[str, Any]], commit: str | None, role: str | None) -> None:
        found: dict[str, dict[Where, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
        lines = [line for line in lines if role is None or roles()[line["set"]] == role]
        self.commit = commit or _only({line["commit"] for line in lines if line["method"] in OURS})
        for line in lines:
            if line["commit"] in (PEERS, self.commit):
                found[line["method"]][line["set"], line["epsilon"], line["budget"]].append(line)
        self._cells = {name: {where: Cell(tuple(x)) for where, x in by.items()} for name, by in found.items()}

    def of(self, method: str, budget: str | None = None, kind: str | None = None) -> dict[Where, Cell]:
        """Return a method's cells, in the order of the lines."""
        return {
            where: cell
            for where, cell in self._cells.get(method, {}).items()
            if budget in (None, where[2]) and kind in (None, cell.fact("kind"))
        }

    @property
    def runs(self) -> tuple[int, int]:
        """The fewest and the most runs of a cell."""
        counts = [len(cell.lines) for by in self._cells.values() for cell in by.values()]
        return min(counts), max(counts)


def _only(commits: set[str]) -> str:
    if len(commits) != 1:
        raise SystemExit(f"the lines are of {len(commits)} commits ({', '.join(sorted(commits))}): say --commit.")
    return commits.pop()


def ratios(ours: dict[Where, Cell], others: Callable[[Where], "Cell | None"]) -> list[Ratio]:
    """Return ours over theirs wherever there are both."""
    found = []
    for where, cell in ours.items():
        if (other := others(where)) is not None and other.mean > 0 and cell.mean > 0:
            error = math.hypot(cell.error / cell.mean, other.error / other.mean)
            found.append(Ratio(where, cell.mean / other.mean, error))
    return found


def summary(name: str, found: Sequence[Ratio], line: float = 1.0) -> str:
    """Return a row of the table of comparisons."""
    if not found:
        return f"| {name} | - | - | - | - | - |"
    logs, errors = np.log([ratio.value for ratio in found]), np.array([ratio.error for ratio in found])
    mean, spread = float(np.exp(logs.mean())), float(np.sqrt(np.sum(errors**2)) / len(found))
    below = sum(ratio.value <= line for ratio in found)
    worst = max(found, key=lambda ratio: ratio.value)
    return (
        f"| {name} | {below} of {len(found)} | {mean:.2f} ± {mean * spread:.2f} | "
        f"{float(np.exp(np.median(logs))):.2f} | {worst} | {sum(ratio.value > 1.5 for ratio in found)} |"
    )


COLUMNS = [
    "| what | at or below 1 | geometric mean | median | worst | above 1.5 |",
    "| --- | --- | --- | --- | --- | --- |",
]


def page(options: Namespace) -> str:
    """Return all tables as Markdown."""
    results = Results(standing.read(options.lines), options.commit, options.role)
    earlier = None
    if options.against is not None:
        earlier = Results(standing.read([options.against]), options.against_commit, options.role)
    fewest, most = results.runs
    parts = [
        [f"Library at {results.commit}, {fewest if fewest == most else f'{fewest} to {most}'} runs a cell."],
        _final(results),
        _zero(results),
        _earlier(results, earlier) if earlier else [],
        _iterates(results),
        _regression(results),
        _monotone(results),
        _published(results),
        _all(results),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _final(results: Results) -> list[str]:
    """Pure final against diffprivlib, final with delta against tuned DP-GD."""
    lines = [
        "**The final model.** Asked: below diffprivlib in every pure cell; with δ at or below DP-GD, tuned for free on"
    ]
    lines += ["the answer, in 3 of 4 cells and nowhere above 1.5 times.", "", *COLUMNS]
    lines.append(summary("pure / diffprivlib", ratios(results.of("final", "pure"), results.of("diffprivlib").get)))
    descent = results.of("dp-gd")
    lines.append(summary("δ / tuned DP-GD", ratios(results.of("final", "delta"), descent.get)))
    for kind in KINDS:
        lines.append(summary(f"- {kind}", ratios(results.of("final", "delta", kind), descent.get)))
    pure = {(name, epsilon, "pure"): cell for (name, epsilon, _), cell in results.of("final", "pure").items()}
    lines.append(
        summary("δ / pure", ratios(results.of("final", "delta"), lambda where: pure.get((*where[:2], "pure"))))
    )
    return lines


def _zero(results: Results) -> list[str]:
    """Return how often x = 0 is better."""
    lines = ["**Against x = 0.** Asked: never above it by more than two standard errors.", ""]
    lines += ["| what | above by more than two standard errors | which |", "| --- | --- | --- |"]
    for method in ("final", "iterates", "dp-gd", "diffprivlib"):
        cells = results.of(method)
        over = [w for w, cell in cells.items() if cell.mean - 2 * cell.error > cell.fact("zero")]
        which = "; ".join(
            f"{n} {e:g} {b} ({cells[n, e, b].mean / cells[n, e, b].fact('zero'):.2g}x)" for n, e, b in over
        )
        lines.append(f"| {method} | {len(over)} of {len(cells)} | {which} |")
    return lines


def _earlier(results: Results, earlier: Results) -> list[str]:
    """Return the comparison with the default of another commit."""
    lines = [f"**Against the default of {earlier.commit}.** Asked: geometric mean at most 0.7, no cell above 1.1.", ""]
    lines += COLUMNS
    for method in ("final", "iterates"):
        every = []
        for budget in standing.BUDGETS:
            found = ratios(results.of(method, budget), earlier.of(method, budget).get)
            lines += [summary(f"{method}, {budget}", found)] if found else []
            every += found
            if above := [str(ratio) for ratio in found if ratio.value > 1.1]:
                lines.append(f"| above 1.1 | {len(above)} | {'; '.join(above)} | | | |")
        surely = [str(ratio) for ratio in every if ratio.value * (1 - 2 * ratio.error) > 1.1]
        lines += [summary(f"{method}, all", every)] if every else []
        lines += [f"| above 1.1 by two standard errors | {len(surely)} | {'; '.join(surely)} | | | |"] if surely else []
    return lines


def _iterates(results: Results) -> list[str]:
    """Everything published against the limit, and against diffprivlib's final model."""
    lines = [
        "**Everything published.** Asked: at most 3 times the one-gradient limit wherever that is below 0.01; no crash;"
    ]
    lines += ["below diffprivlib's final model in 3 of 4 cells.", "", *COLUMNS]
    for method in ("iterates", "final"):
        for budget in standing.BUDGETS:
            cells = {
                where: cell
                for where, cell in results.of(method, budget).items()
                if cell.fact(f"limit_{budget}") < 0.01 and cell.fact("kind") != "regression"
            }
            found = [
                Ratio(where, cell.mean / cell.fact(f"limit_{budget}"), cell.error / cell.mean)
                for where, cell in cells.items()
            ]
            name = f"{method}, {budget} / limit (classes, limit below 0.01)"
            lines.append(summary(name, found))
            lines.append(f"| - at most 3 times | {sum(ratio.value <= 3 for ratio in found)} of {len(found)} | | | | |")
    final = {(name, epsilon): cell for (name, epsilon, _), cell in results.of("diffprivlib").items()}
    for budget in standing.BUDGETS:
        found = ratios(results.of("iterates", budget), lambda where: final.get(where[:2]))
        lines.append(summary(f"iterates, {budget} / diffprivlib's final", found))
    for method in ("final", "iterates"):
        cells = results.of(method).values()
        failed = sum(cell.failed for cell in cells)
        lines.append(f"| {method}: runs that crashed | {failed} of {sum(len(c.lines) for c in cells)} | | | | |")
    return lines


def _regression(results: Results) -> list[str]:
    """Regression against its peers."""
    lines = ["**Regression.** Asked: below tuned DP-GD in 3 of 4 cells, below AdaSSP in all.", "", *COLUMNS]
    for peer in ("dp-gd", "adassp", "boosted-adassp"):
        found = ratios(results.of("final", "delta", "regression"), results.of(peer).get)
        lines.append(summary(f"final, δ / {peer}", found))
    return lines


def _monotone(results: Results) -> list[str]:
    """Whether more epsilon is ever worse."""
    lines = [
        "**More ε is never worse.** Steps from one ε to the next where the mean grows by more than two standard errors:"
    ]
    lines += ["", "| what | steps up | which |", "| --- | --- | --- |"]
    for method in ("final", "iterates"):
        for kind in KINDS:
            ups, steps = [], 0
            cells = results.of(method, kind=kind)
            for name, budget in dict.fromkeys((name, budget) for name, _, budget in cells):
                path = sorted((e, cell) for (n, e, b), cell in cells.items() if (n, b) == (name, budget))
                for (low, before), (high, after) in pairwise(path):
                    steps += 1
                    if after.mean - before.mean > 2 * math.hypot(before.error, after.error):
                        ups.append(f"{name} {budget} {low:g} to {high:g} ({before.mean:.2g} to {after.mean:.2g})")
            lines.append(f"| {method}, {kind} | {len(ups)} of {steps} | {'; '.join(ups)} |")
    return lines


def _published(results: Results) -> list[str]:
    """Accuracies that others published."""
    lines = ["**Published by others**, δ = 1/n², percent of test records; the estimator as it comes:", ""]
    lines += ["| table | ε | here | asked | others |", "| --- | --- | --- | --- | --- |"]
    cells = results.of("estimator")
    for known in PUBLISHED:
        found = [cell for (name, epsilon, _), cell in cells.items() if (name, epsilon) == (known.set, known.epsilon)]
        if found:
            values = 100 * np.array([line["accuracy"] for line in found[0].lines])
            error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
            here = f"{values.mean():.2f} ± {error:.2f}"
            lines.append(f"| {known.set} | {known.epsilon:g} | {here} | {known.asked:g} | {known.others} |")
    return lines if len(lines) > 4 else []


def _all(results: Results) -> list[str]:
    """Every cell."""
    methods = ("final", "iterates", "diffprivlib", "dp-gd", "adassp", "boosted-adassp")
    lines = ["**Every cell**, excess risk:", "", "| table | ε | x = 0 | pure: final | iterates | diffprivlib | limit |"]
    lines[-1] += " δ: final | iterates | DP-GD | AdaSSP | boosted | limit |"
    lines.append("|" + " --- |" * 13)
    places = dict.fromkeys((n, e) for method in methods for n, e, _ in results.of(method))
    for name, epsilon in places:
        row, some = [], None
        for budget, peers in (("pure", methods[2:3]), ("delta", methods[3:])):
            for method in ("final", "iterates", *peers):
                cell = results.of(method).get((name, epsilon, budget))
                some = some or cell
                row.append("-" if cell is None else str(cell))
            row.append(f"{some.fact(f'limit_{budget}'):.2g}" if some else "-")
        zero = f"{some.fact('zero'):.2g}" if some else "-"
        lines.append(f"| {name} | {epsilon:g} | {zero} | " + " | ".join(row) + " |")
    return lines
