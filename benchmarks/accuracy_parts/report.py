"""Tables of the results: accuracy.csv with one row per cell, accuracy.md to read."""

import csv
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from machine import facts

from accuracy_parts.methods import Method

SCORES = ("excess", "accuracy", "auc", "log_loss", "r2", "rmse")


@dataclass(frozen=True)
class Summary:
    """One method at one epsilon on one group: over runs, and over the seeds of the records where there are several.

    ``mean`` is the geometric mean, over those seeds, of the mean over runs; with one seed, that mean itself.
    """

    mean: float
    error: float
    low: float
    high: float
    seeds: int

    def __str__(self) -> str:
        if self.seeds > 1:
            return f"{self.mean:.1e} [{self.low:.1e}, {self.high:.1e}]"
        return f"{self.mean:.1e} ± {self.error:.0e}"


@dataclass(frozen=True)
class Results:
    """Every cell, the optimum and limits per dataset and epsilon, and the methods in the order of the tables."""

    cells: list[dict]
    references: list[dict]
    methods: list[Method]
    delta: float

    @cached_property
    def groups(self) -> list[str]:
        """Names of the datasets, seeds of the records left out."""
        return list(dict.fromkeys(reference["group"] for reference in self.references))

    @cached_property
    def epsilons(self) -> list[float]:
        """Every epsilon, from the smallest."""
        return sorted({reference["epsilon"] for reference in self.references})

    def of(self, group: str, method: str, epsilon: float) -> list[dict]:
        """Return the cells, one for each seed of the records."""
        wanted = (group, method, epsilon)
        return [cell for cell in self.cells if (cell["group"], cell["method"], cell["epsilon"]) == wanted]

    def reference(self, group: str, epsilon: float) -> list[dict]:
        """Return the references, one for each seed of the records."""
        return [r for r in self.references if (r["group"], r["epsilon"]) == (group, epsilon)]

    def excess(self, group: str, method: str, epsilon: float) -> Summary | None:
        """Return the excess risk, if it was measured."""
        found = self.of(group, method, epsilon)
        if not found:
            return None
        means = [float(np.mean(cell["scores"]["excess"])) for cell in found]
        return Summary(
            _geometric(means), standard_error(found[0]["scores"]["excess"]), min(means), max(means), len(means)
        )

    def limit(self, group: str, epsilon: float, name: str) -> float:
        """Return a limit, the geometric mean over the seeds of the records."""
        return _geometric([reference["limits"][name] for reference in self.reference(group, epsilon)])


def _geometric(values: list[float]) -> float:
    """Return the geometric mean; one value is its own."""
    return values[0] if len(values) == 1 else float(np.exp(np.mean(np.log(np.maximum(values, 1e-300)))))


def standard_error(values: list[float]) -> float:
    """Return the standard error of the mean."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def write(results: Results, out: Path) -> None:
    """Write accuracy.csv, accuracy.md and accuracy.json, which says on what machine."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "accuracy.csv").open("w", newline="") as file:
        rows = [_row(results, cell) for cell in results.cells]
        if rows:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    (out / "accuracy.json").write_text(json.dumps({"machine": facts()}, indent=1) + "\n")
    (out / "accuracy.md").write_text("\n".join(line for group in results.groups for line in _section(results, group)))


def _row(results: Results, cell: dict) -> dict:
    """Return a cell as one row: means and standard errors."""
    method = next(method for method in results.methods if method.name == cell["method"])
    reference = next(
        r for r in results.references if (r["dataset"], r["epsilon"]) == (cell["dataset"], cell["epsilon"])
    )
    limit = reference["limits"]["best pure" if method.privacy == "pure" else "best with delta"]
    row = {name: cell[name] for name in ("dataset", "group", "data_seed", "method", "epsilon", "delta", "runs")}
    row |= {"whose": method.whose, "privacy": method.privacy, "published": method.published}
    for name in SCORES:
        values = cell["scores"].get(name)
        row[name] = "" if values is None else f"{np.mean(values):.6g}"
        row[f"{name}_se"] = "" if values is None else f"{standard_error(values):.2g}"
    row["excess_median"] = f"{np.median(cell['scores']['excess']):.6g}"
    row["excess_over_limit"] = f"{np.mean(cell['scores']['excess']) / limit:.4g}"
    return row | {"seconds_per_run": f"{cell['seconds'] / cell['runs']:.3g}", "note": cell["note"]}


def _section(results: Results, group: str) -> list[str]:
    """Return a dataset's part of the page: what it is, excess risks, limits, test scores."""
    first = results.reference(group, results.epsilons[0])
    r = first[0]
    test = ", ".join(f"{name} {value:.4f}" for name, value in r["scores"].items() if name != "excess")
    majority = "" if r["majority"] is None else f", majority {r['majority']:.4f}"
    seeds = f" First of {len(first)} seeds of the records:" if len(first) > 1 else ""
    lines = [f"## {group}", "", f"n = {r['n']}, d = {r['d']}, ridge = {r['ridge']:g}."]
    lines += [
        f"{seeds} Non-private: F* = {r['lowest']:.6f}, F(0) - F* = {r['at_zero']:.4f}; test: {test}{majority}.",
        "",
    ]
    lines += ["Excess risk F(x) - F*:", "", *_table(results, group, _excess_text), *_limit_rows(results, group), ""]
    score, second = ("accuracy", "auc") if "accuracy" in r["scores"] else ("r2", "rmse")
    scored = _table(results, group, partial(_score_text, first=score, second=second))
    return [*lines, f"Test {score} / {second}:", "", *scored, ""]


def _table(results: Results, group: str, text: Callable[[Results, str, str, float], str]) -> list[str]:
    """Return a table of methods by epsilon."""
    lines = ["| method | privacy | published | " + " | ".join(f"ε = {e:g}" for e in results.epsilons) + " |"]
    lines.append("| --- | --- | --- |" + " --- |" * len(results.epsilons))
    for method in results.methods:
        entries = [text(results, group, method.name, epsilon) for epsilon in results.epsilons]
        if any(entries):
            name = f"**{method.label}**" if method.whose == "ours" else method.label
            kind = "ε" if method.privacy == "pure" else "ε, δ"
            lines.append(f"| {name} | {kind} | {method.published} | " + " | ".join(entries) + " |")
    return lines


def _excess_text(results: Results, group: str, method: str, epsilon: float) -> str:
    return str(results.excess(group, method, epsilon) or "")


def _score_text(results: Results, group: str, method: str, epsilon: float, first: str, second: str) -> str:
    cells = results.of(group, method, epsilon)
    if not cells:
        return ""
    return " / ".join(f"{np.mean([np.mean(cell['scores'][name]) for cell in cells]):.4f}" for name in (first, second))


def _limit_rows(results: Results, group: str) -> list[str]:
    """Return the limits as last rows of the table of excess risks."""
    kinds = {"laplace": "ε", "l2": "ε", "linf": "ε", "hull": "ε", "gaussian": "ε, δ"}
    return [
        f"| limit, {name} noise | {kind} | | "
        + " | ".join(f"{results.limit(group, epsilon, name):.1e}" for epsilon in results.epsilons)
        + " |"
        for name, kind in kinds.items()
    ]
