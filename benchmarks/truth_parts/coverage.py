"""Coverage of intervals by simulation, cell by cell, in pieces that are kept; and with bugs planted."""

import json
import os
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from epsteps.auditing.attacks import lower, upper
from epsteps.auditing.experiments import TARGETS, replicate
from truth_parts.populations import CELLS, PLANTED, PUBLISHED_WIDTHS, Cell

LEVEL = 0.95
PIECE = 20  # replications that a process makes at a time
# A cell passes with a mean in this band and no coefficient below the least; a broken one with more than these.
BAND, LEAST = (0.93, 0.99), 0.90
BROKEN_LEAST = {"measured": 0.93, "provable": 0.95}


def _no_tilt(released: Any) -> Any:
    return replace(released, tilts=lambda generator, count: 0.0 * released.tilts(generator, count))


def _half_tilt(released: Any) -> Any:
    return replace(released, tilts=lambda generator, count: 0.5 * released.tilts(generator, count))


def _wrong_ridge(released: Any) -> Any:
    return replace(released, ridge=10 * released.ridge)


def _counted_twice(released: Any) -> Any:
    return replace(released, matrix=2 * released.matrix)


def _quiet_noise(released: Any) -> Any:
    return replace(released, scale=released.scale / 5)


def _floor(released: Any) -> Any:
    """Take the released matrix, its eigenvalues not below half the noise's edge, for the truth."""
    values, vectors = np.linalg.eigh(released.matrix)
    edge = float(np.max(np.linalg.eigvalsh(released.matrices(np.random.default_rng(1), 20))))
    floored = (vectors * np.maximum(values, edge / 2)) @ vectors.T
    return replace(released, matrix=floored, scale=1e-6 * released.scale)


BUGS: dict[str, Callable[[Any], Any]] = {
    "none": lambda released: released,
    "no tilt": _no_tilt,
    "half tilt": _half_tilt,
    "wrong ridge": _wrong_ridge,
    "curvature counted twice": _counted_twice,
    "matrix noise five times too small": _quiet_noise,
    "a floor in place of the distribution": _floor,
}


@contextmanager
def planted(plan: Any, bug: str) -> Iterator[None]:
    """Let the plan's runs compute their intervals from released numbers that a bug has spoiled."""
    kind = type(plan)
    if bug == "none":
        yield
        return
    original = kind.released

    def spoiled(self: Any, *args: Any, **options: Any) -> Any:
        released = original(self, *args, **options)
        return released if released.matrix is None and bug in _OF_MATRIX else BUGS[bug](released)

    kind.released = spoiled
    try:
        yield
    finally:
        kind.released = original


_OF_MATRIX = ("curvature counted twice", "matrix noise five times too small", "a floor in place of the distribution")


@dataclass(frozen=True)
class Piece:
    """Some replications of a cell."""

    cell: Cell
    bug: str
    first: int
    count: int

    @property
    def key(self) -> tuple[str, str, int]:
        """What names the piece."""
        return (self.cell.name, self.bug, self.first)

    def simulate(self, end: float) -> dict | None:
        """Return the counts and widths of the piece, or None if time is over."""
        if time.monotonic() > end:
            return None
        row = {"cell": self.cell.name, "group": self.cell.group, "bug": self.bug, "first": self.first}
        try:
            plan = _plan(self.cell)
        except (ValueError, TypeError) as refusal:
            return row | {"refused": str(refusal)}
        begin, numbers = time.perf_counter(), range(self.first, self.first + self.count)
        with planted(plan, self.bug):
            options = {"level": LEVEL, "contrasts": self.cell.contrasts, "seed": 1 + self.cell.seed}
            found = list(replicate(plan, self.cell.population, numbers, **options))
        row |= {"count": self.count, "r": getattr(plan, "r", None), "share": getattr(plan, "share", None)}
        row |= {"kinds": [each.kind for each in found], "seconds": round(time.perf_counter() - begin, 1)}
        for target in (target for target in TARGETS if all(target in each.covered for each in found)):
            row[target] = {
                "hits": [each.covered[target].astype(int).tolist() for each in found],
                "control": np.sum([each.control[target] for each in found], axis=0).tolist(),
                "known": [float(np.median(each.widths[target] / each.known[target])) for each in found],
                "free": [float(np.median(each.widths[target] / each.free)) for each in found],
            }
        return row


@lru_cache(maxsize=4)
def _plan(cell: Cell) -> Any:
    return cell.plan


def _pieces(options: Namespace) -> Iterator[Piece]:
    """Yield all pieces, the first of every cell first: a run that is cut short knows something of each."""
    bugs = list(BUGS) if options.part == "bugs" else ["none"]
    cells = PLANTED if options.part == "bugs" else [c for c in CELLS if not options.groups or c.group in options.groups]
    if options.cells:
        cells = [cell for cell in cells if set(options.cells) & set(cell.name.split())]
    for first in range(0, options.replications, PIECE):
        for cell in (cell for cell in cells if cell.n <= options.most):
            if first < options.replications * (1.0 if cell.n <= 100_000 else options.share):
                for bug in bugs:
                    yield Piece(cell, bug, first, PIECE)


def measure(options: Namespace) -> None:
    """Simulate every piece that the file does not hold."""
    known = {(row["cell"], row["bug"], row["first"]) for row in read(options.out)}
    end = time.monotonic() + 60 * options.minutes
    pieces = [piece for piece in _pieces(options) if piece.key not in known]
    print(f"{len(pieces)} pieces of {PIECE} replications")
    with ProcessPoolExecutor(options.jobs, initializer=os.nice, initargs=(1,)) as pool:
        running = [pool.submit(piece.simulate, end) for piece in pieces]
        for done, future in enumerate(as_completed(running), start=1):
            if (row := future.result()) is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            if done % 50 == 0:
                print(f"{done} of {len(pieces)}", flush=True)


def read(path: Path) -> list[dict]:
    """Return the pieces of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@dataclass(frozen=True, eq=False)
class Result:
    """All pieces of a cell together."""

    cell: str
    group: str
    pieces: list[dict]

    @property
    def replications(self) -> int:
        """How many there are."""
        return sum(piece["count"] for piece in self.pieces)

    def hits(self, target: str) -> np.ndarray:
        """Return whether each number was covered: (replications, numbers)."""
        return np.concatenate([np.array(piece[target]["hits"]) for piece in self.pieces])

    def measured_hits(self, target: str) -> np.ndarray:
        """Return those of the replications whose intervals were measured ones."""
        return self.hits(target)[[kind == "measured" for piece in self.pieces for kind in piece["kinds"]]]

    def mean(self, target: str) -> float:
        """Return the mean coverage."""
        return float(np.mean(self.hits(target)))

    def mean_error(self, target: str) -> float:
        """Return the standard error of the mean: numbers of one replication go together."""
        return float(np.std(self.hits(target).mean(axis=1), ddof=1) / np.sqrt(self.replications))

    def worst(self, target: str) -> tuple[float, float, float]:
        """Return the coverage of the number that is covered least, with bounds of 95 % that hold for all numbers."""
        counts, level = self.hits(target).sum(axis=0), 0.025 / self.hits(target).shape[1]
        least = int(counts.min())
        ends = (lower(least, self.replications, level), upper(least, self.replications, level))
        return least / self.replications, *ends

    def control(self, target: str) -> float:
        """Return what intervals with a known Hessian cover."""
        return float(np.mean(np.sum([piece[target]["control"] for piece in self.pieces], axis=0)) / self.replications)

    def width(self, target: str, beside: str) -> float:
        """Return the median width over that of a known Hessian, or over that without privacy ("free")."""
        return float(np.median([value for piece in self.pieces for value in piece[target][beside]]))

    @property
    def targets(self) -> list[str]:
        """Whose minimum the intervals were for: the sample's alone, where nothing said how samples vary."""
        return [target for target in TARGETS if all(target in piece for piece in self.pieces)]

    @property
    def measured(self) -> float:
        """The share of replications whose intervals were measured ones."""
        return float(np.mean([kind == "measured" for piece in self.pieces for kind in piece["kinds"]]))

    @property
    def r(self) -> float | None:
        """The plan's number of noise over curvature."""
        return self.pieces[0]["r"]

    @property
    def kind(self) -> str:
        """What most intervals were."""
        return "measured" if self.measured > 0.5 else "provable"

    def passes(self) -> bool:
        """Whether the cell is as it should be, for the population and for the sample."""
        means = [self.mean(target) for target in self.targets]
        if self.group == "broken":
            return min(means) >= BROKEN_LEAST[self.kind]
        high = BAND[1] if self.kind == "measured" else 1.0
        return BAND[0] <= means[0] <= high and self.worst(self.targets[0])[0] >= LEAST


def results(pieces: list[dict], bug: str = "none") -> list[Result]:
    """Return the cells of these pieces, in the order of the first."""
    cells = defaultdict(list)
    for piece in pieces:
        if piece["bug"] == bug and "refused" not in piece:
            cells[piece["cell"], piece["group"]].append(piece)
    order = {cell.name: place for place, cell in enumerate([*CELLS, *PLANTED])}
    return sorted((Result(*key, some) for key, some in cells.items()), key=lambda result: order.get(result.cell, 0))


def markdown(pieces: list[dict]) -> str:
    """Return the tables of all groups, and what they amount to."""
    found = results(pieces)
    lines = []
    for group in ("grid", "fresh", "broken", "beside", "missing", "methods"):
        some = [result for result in found if result.group == group]
        if some:
            lines += [*_summary(group, some), *_table(some), ""]
    refused = {piece["cell"]: piece["refused"] for piece in pieces if "refused" in piece}
    return "\n".join([*lines, *_beside(found), *(f"- refused: {cell}: {why}" for cell, why in refused.items())]) + "\n"


def _summary(group: str, found: list[Result]) -> list[str]:
    passed = sum(result.passes() for result in found)
    means = [result.mean("population") for result in found if "population" in result.targets]
    near = [result.width("population", "known") for result in found if result.r is not None and result.r <= 0.3]
    width = f"; median width over that of a known Hessian for r <= 0.3: {np.median(near):.2f}" if near else ""
    return [
        f"**{group}**: {passed} of {len(found)} cells as they should be; mean coverage of the population's minimum "
        f"from {min(means):.3f} to {max(means):.3f}{width}.",
        "",
    ]


def _table(found: list[Result]) -> list[str]:
    lines = [
        "| cell | R | r | measured | population: mean ± se | worst (95 % bounds) | sample: mean | worst "
        "| known H covers | width / known H | width / free | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for result in found:
        cells = [
            result.cell,
            str(result.replications),
            "" if result.r is None else f"{result.r:.2f}",
            f"{result.measured:.0%}",
            *(_population(result) if "population" in result.targets else ["", ""]),
            f"{result.mean('sample'):.3f}",
            f"{result.worst('sample')[0]:.3f}",
            *_beside_known(result, result.targets[0]),
            "" if result.passes() else "**fails**",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _population(result: Result) -> list[str]:
    worst, low, high = result.worst("population")
    mean = f"{result.mean('population'):.3f} ± {result.mean_error('population'):.3f}"
    return [mean, f"{worst:.3f} ({low:.2f}-{high:.2f})"]


def _beside_known(result: Result, target: str) -> list[str]:
    """Return the columns beside a known Hessian; empty where nothing was tilted, so that there is no such width."""
    known, free = (result.width(target, beside) for beside in ("known", "free"))
    return ["", "", ""] if np.isnan(known) else [f"{result.control(target):.3f}", f"{known:.2f}", f"{free:.2f}"]


def _beside(found: list[Result]) -> list[str]:
    """Return our widths beside DP-CI-ERM's."""
    ours = {int(r.cell.split("n=")[1].split()[0]): r for r in found if r.group == "beside"}
    if not ours:
        return []
    lines = ["| n, two columns, mu = 1 | coverage | width / without privacy | DP-CI-ERM, published |"]
    lines.append("| --- | --- | --- | --- |")
    for n, result in sorted(ours.items()):
        width = result.width("population", "free")
        lines.append(f"| {n} | {result.mean('population'):.3f} | {width:.2f} | {PUBLISHED_WIDTHS[n]:.2f} |")
    return [*lines, ""]


def bugs_markdown(pieces: list[dict]) -> str:
    """Return what each planted bug does to coverage, and whether some cell finds it.

    It is found if intervals, or the measured ones among them, cover less than the band allows by two standard errors;
    or some number of them, by bounds of 95 % that hold for all numbers.
    """
    names = [cell.name for cell in PLANTED]
    lines = [f"| bug | {' | '.join(names)} | found |", "| --- |" + " --- |" * (len(names) + 1)]
    for bug in BUGS:
        by_cell = {result.cell: result for result in results(pieces, bug)}
        texts, caught = [], False
        for name in names:
            if (result := by_cell.get(name)) is None:
                texts.append("")
                continue
            caught |= any(_falls_short(result, target) for target in TARGETS)
            text = " / ".join(f"{result.mean(target):.3f}" for target in TARGETS)
            if 0 < result.measured < 1:
                text += f"; measured {' / '.join(f'{np.mean(result.measured_hits(t)):.3f}' for t in TARGETS)}"
            texts.append(f"{text} ({result.measured:.0%} measured)")
        lines.append(f"| {bug} | {' | '.join(texts)} | {'yes' if caught else 'no'} |")
    return "\n".join(lines) + "\n"


def _falls_short(result: Result, target: str) -> bool:
    for hits in (result.hits(target), result.measured_hits(target)):
        if len(hits) < PIECE:
            continue
        means = hits.mean(axis=1)
        worst = upper(int(hits.sum(axis=0).min()), len(hits), 0.025 / hits.shape[1])
        if min(worst, np.mean(means) + 2 * np.std(means, ddof=1) / np.sqrt(len(means))) < BAND[0]:
            return True
    return False
