"""Compare `epsteps.paper.quadratic_demo`, as published, with the curves of the paper's figures 1 and 2.

`python benchmarks/check_quadratic_figures.py --repository PATH` takes PATH, a checkout or git directory of
https://github.com/sibirbil/DPAccGradMethods, reads the authors' EPS files there and prints a row per curve (seconds).
It exits with 1 if a point of a curve is off by more than 1e-4 plus the rounding of the file's coordinates.

Every axis is mapped by the anchors of its labels, which MATLAB puts exactly at the ticks; nothing is fitted to a curve.
Titles are outlines, not text: panels are told apart by their place, the curves of one by the order they are drawn in.
"""

import argparse
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from digitise_published import AXIS_GRAY, COMMIT, WHITE, Drawing, fit, parse
from rich.console import Console
from rich.table import Table

from epsteps.paper import quadratic_demo as demo

RATES_FILE = "quad_rho_vs_beta"
BOUND_FILES = {
    1e-2: "quadratic_error_vs_iter_more_noisy_regime",
    1e-4: "quadratic_error_vs_iter_less_noisy_regime",
}
SPLIT_FILE = "MASG_optimum_b_vs_iter"
TOLERANCE = 1e-4
HALF_DIGIT = 0.0005  # coordinates have three decimals
LABEL_OFFSET = 4.0  # from the edge of a panel to its labels, in the page's unit
BLUE = (0.0, 0.447, 0.741)  # MATLAB's first colour
BOUND_COLOURS = ((0.0,) * 3, (1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0,) * 3)  # k, r, b, -.k of the authors' script


@dataclass
class Curve:
    """One drawn curve: its vertices in the axes' units, and half a digit of y in the same unit."""

    colour: tuple[float, ...]
    x: np.ndarray
    y: np.ndarray
    rounding: float


@dataclass
class Comparison:
    """One row: difference and rounding of every point of a curve: absolute for logarithms, else relative."""

    name: str
    quantity: str
    difference: np.ndarray
    rounding: np.ndarray

    def holds(self) -> bool:
        """Return whether every point agrees up to the tolerance and its rounding."""
        return bool((self.difference <= TOLERANCE + self.rounding).all())


def read_drawing(repository: Path, name: str) -> Drawing:
    """Return what one EPS file paints, at the commit that was digitised."""
    command = ["git", "-C", str(repository), "show", f"{COMMIT}:outputfiles/{name}.eps"]
    return parse(subprocess.run(command, check=True, capture_output=True, text=True, encoding="latin-1").stdout)


def axis(drawing: Drawing, low: float, high: float, edge: float, along: int) -> np.ndarray | None:
    """Fit value against coordinate by the labels beside an edge: along = 0 the lower one, 1 the left one.

    Return None where there are no labels. Each must sit at a tick, and all on one line, to 0.001 of the page's unit.
    """
    labels = []
    for text, anchor in drawing.texts:
        away = (anchor[1 - along] - edge) * (1 if along == 0 else -1)
        if abs(away - LABEL_OFFSET) < 0.01 and low - 0.01 <= anchor[along] <= high + 0.01:
            labels.append((anchor[along], float(text)))
    ticks = [
        points[0, along]
        for colour, points in drawing.strokes
        if colour == AXIS_GRAY and len(points) == 2 and points[0, along] == points[1, along]
        if points[0, 1 - along] == edge and abs(points[1, 1 - along] - edge) < 2
    ]
    assert all(np.abs(np.array(ticks) - place).min() < 1e-3 for place, _ in labels)
    return fit(labels) if labels else None


def panels(drawing: Drawing) -> list[list[Curve]]:
    """Return the curves of every panel in drawing order, panels from left to right."""
    found = []
    for colour, box in drawing.fills:
        if colour != WHITE or len(box) != 4:
            continue
        (left, top), (right, bottom) = box.min(axis=0), box.max(axis=0)
        across, up = axis(drawing, left, right, bottom, 0), axis(drawing, top, bottom, left, 1)
        if across is not None and up is not None:  # the legend's box has no labels
            found.append((left, curves_between(drawing, left, right, across, up)))
    return [curves for _, curves in sorted(found, key=lambda panel: panel[0])]


def curves_between(drawing: Drawing, left: float, right: float, across: np.ndarray, up: np.ndarray) -> list[Curve]:
    """Return the coloured paths of more than two vertices (two: samples of the legend) between two abscissas."""
    return [
        Curve(colour, np.polyval(across, points[:, 0]), np.polyval(up, points[:, 1]), HALF_DIGIT * abs(up[0]))
        for colour, points in drawing.strokes
        if colour != AXIS_GRAY and len(points) > 2 and left <= points[0, 0] <= right
    ]


def check_abscissas(curve: Curve, expected: np.ndarray) -> None:
    """Refuse a curve whose vertices are not one per expected abscissa, to 2 % of the distance between them."""
    assert len(curve.x) == len(expected)
    assert np.abs(curve.x - expected).max() < 0.02 * (expected[1] - expected[0])


def compare(name: str, curve: Curve, x: np.ndarray, y: np.ndarray, quantity: str) -> Comparison:
    """Compare a drawn curve with what is computed: logarithms as they are, other quantities relative to the value."""
    check_abscissas(curve, x)
    scale = np.ones(len(y)) if quantity.startswith("ln ") else np.abs(y)
    return Comparison(name, quantity, np.abs(curve.y - y) / scale, curve.rounding / scale)


def compare_rates(repository: Path) -> list[Comparison]:
    """Compare figure 1's last row, the rate over beta for every alpha."""
    drawn = panels(read_drawing(repository, RATES_FILE))
    rows = []
    for alpha, (curve,), rate in zip(demo.ALPHAS, drawn, demo.rates(published=True), strict=True):
        assert curve.colour == BLUE
        rows.append(compare(f"1, α {alpha:g}", curve, demo.BETA_GRID, rate, "rate"))
    return rows


def compare_bounds(repository: Path) -> list[Comparison]:
    """Compare figure 1's first two rows, whose axis is the natural logarithm of the bound."""
    drawn = {}
    for noise, name in BOUND_FILES.items():
        for alpha, curves in zip(demo.ALPHAS, panels(read_drawing(repository, name)), strict=True):
            assert tuple(curve.colour for curve in curves) == BOUND_COLOURS
            drawn[noise, alpha] = iter(curves)
    rows = []
    for found in demo.bounds(published=True):
        momentum = f"{found.beta:g}" if found.momentum == "fixed" else "opt"
        name = f"1, c_w {found.noise:g}, α {found.alpha:g}, β {momentum}"
        curve = next(drawn[found.noise, found.alpha])
        rows.append(compare(name, curve, demo.ITERATIONS, np.log(found.bound), "ln bound"))
    assert not any(list(left) for left in drawn.values())  # none drawn that is not computed
    return rows


def compare_splits(repository: Path) -> list[Comparison]:
    """Compare figure 2, the noise scales of every number of stages."""
    drawn = panels(read_drawing(repository, SPLIT_FILE))
    rows = []
    for stages, (curve,) in zip(demo.STAGES, drawn, strict=True):
        assert curve.colour == BLUE
        scale = demo.split(stages, published=True).scale
        rows.append(compare(f"2, K {stages}", curve, np.arange(1, len(scale) + 1), scale, "scale"))
    return rows


def table_of(rows: list[Comparison]) -> Table:
    """Return the table: the largest difference of each curve, and the rounding of the point where it is."""
    table = Table("figure, curve", "compared", title="quadratic_demo as published against the authors' EPS files")
    for heading in ("points", "largest", "rounding", "holds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        worst = int(row.difference.argmax())
        numbers = (f"{row.difference[worst]:.1e}", f"{row.rounding[worst]:.1e}", "yes" if row.holds() else "NO")
        table.add_row(row.name, row.quantity, str(len(row.difference)), *numbers)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", type=Path, required=True, help="checkout or git directory of DPAccGradMethods")
    repository = parser.parse_args().repository
    rows = compare_rates(repository) + compare_bounds(repository) + compare_splits(repository)
    console = Console()
    console.print(table_of(rows))
    console.print(
        "Largest: largest difference of a curve's points. Rounding: half a digit of the file's coordinates at that "
        "point. Rate and scale: relative to the value computed. ln bound, the figure's own axis: absolute, which to "
        "first order is relative in the bound. Axes are mapped by their labelled ticks, none by a fit to a curve."
    )
    failed = sum(not row.holds() for row in rows)
    console.print(f"{len(rows) - failed} of {len(rows)} curves agree to {TOLERANCE:g} plus rounding at every point.")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
