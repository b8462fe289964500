"""Read the curves of the paper's figures 3 and 4 out of the authors' EPS files.

`python benchmarks/digitise_published.py --repository PATH` takes PATH, a checkout or git directory of
https://github.com/sibirbil/DPAccGradMethods, and writes src/epsteps/paper/published_curves.csv (a few seconds).
What the numbers are, and how exact, stands beside it in published_curves.md.

MATLAB wrote every curve as one vector path with a vertex per iteration and coordinates of three decimals, so nothing
is hidden where curves overlap. Coordinates here are those of the files after page setup: y grows downwards.
"""

import argparse
import csv
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

COMMIT = "1c3399e0bd06328e9601f09ec01cc7bf84499c7b"
FILE = "outputfiles/errors_n_100000_m_{m}_c_{tenths:02d}_various_T.eps"
FIGURES = [(m, c) for m in (100000, 1000) for c in (0.1, 1.0)]
ALGORITHMS = ("DP-GD", "DP-HB", "DP-NAG", "DP-MASG", "DP-NAG-opt", "DP-MASG-opt")
HORIZONS = {(0.0, 1.0, 0.0): 100, (0.0, 0.0, 0.0): 200, (0.0, 0.0, 1.0): 500, (1.0, 0.0, 0.0): 1000}  # T by colour
AXIS_GRAY = (0.149,) * 3
WHITE = (1.0,) * 3
MOST_STEPS = 100  # a curve keeps iteration 1, multiples of a step, and its last: at most 101 points


@dataclass
class Drawing:
    """What an EPS page paints: strokes and fills as (colour, vertices), texts as (string, anchor)."""

    strokes: list = field(default_factory=list)
    fills: list = field(default_factory=list)
    texts: list = field(default_factory=list)


@dataclass
class Panel:
    """One set of axes: its box, and log10 of the gap and the iteration as affine functions of y and x."""

    left: float
    right: float
    top: float
    bottom: float
    iteration: np.ndarray
    log_gap: np.ndarray

    def holds(self, points: np.ndarray) -> bool:
        """Return whether all vertices lie in the box (curves of the figures do not leave it)."""
        x, y = points.T
        return bool(((self.left <= x) & (x <= self.right) & (self.top <= y) & (y <= self.bottom)).all())


def read_figure(repository: Path, m: int, c: float) -> str:
    """Return the text of one EPS file at the commit that was digitised."""
    path = FILE.format(m=m, tenths=round(10 * c))
    command = ["git", "-C", str(repository), "show", f"{COMMIT}:{path}"]
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="latin-1").stdout


def parse(eps: str) -> Drawing:
    """Interpret the few operators that MATLAB's exporter uses, one per line; unknown lines paint nothing."""
    drawing = Drawing()
    colour, origin, path, saved = (0.0,) * 3, np.zeros(2), [], []
    for line in eps.split("%%EndPageSetup", 1)[1].splitlines():
        *operands, operator = line.split() or [""]
        if operator == "GS":
            saved.append((colour, origin))
        elif operator == "GR":
            colour, origin = saved.pop()
        elif operator == "GC":
            colour = (float(operands[0]),) * 3
        elif operator == "RC":
            colour = tuple(float(value) for value in operands)
        elif operator == "CT":  # the texts wanted are only ever moved; turned ones are drawn as glyph outlines
            origin = origin + [float(value.strip("[]")) for value in operands[4:]]
        elif operator == "N":
            path = []
        elif operator in ("M", "L") and not line.startswith("/"):  # a slash opens the definition of a glyph
            path.append(origin + [float(value) for value in operands])
        elif operator == "S":
            drawing.strokes.append((colour, np.array(path)))
        elif operator == "f" and path:
            drawing.fills.append((colour, np.array(path)))
        elif operator == "t":
            drawing.texts.append((line[line.index("(") + 1 : line.rindex(")")], origin))
    return drawing


def box_under(title: np.ndarray, drawing: Drawing) -> tuple[float, float, float, float]:
    """Return left, right, top and bottom of the white rectangle whose top edge is centred just below a title."""
    boxes = []
    for colour, points in drawing.fills:
        (left, top), (right, bottom) = points.min(axis=0), points.max(axis=0)
        centred = abs((left + right) / 2 - title[0]) < 0.1 and 0 < top - title[1] < 3
        if colour == WHITE and len(points) == 4 and centred:
            boxes.append((left, right, top, bottom))
    (box,) = boxes
    return box


def iteration_axis(drawing: Drawing, left: float, right: float, bottom: float) -> np.ndarray:
    """Fit iteration against x: MATLAB anchors the labels of this axis exactly below their ticks."""
    below = [(x, float(s)) for s, (x, y) in drawing.texts if s.isdigit() and left <= x <= right and 0 < y - bottom < 6]
    assert [value for _, value in sorted(below)] == [0, 500, 1000]
    return fit(below)


def gap_axis(drawing: Drawing, left: float, top: float, bottom: float) -> np.ndarray:
    """Fit log10 of the gap against y: the longest ticks are the labelled ones, the labels are powers of ten."""
    ticks = {}
    for colour, points in drawing.strokes:
        flat = len(points) == 2 and points[0, 1] == points[1, 1] and points[0, 0] == left
        if colour == AXIS_GRAY and flat and 0 < (length := points[1, 0] - left) < 5:
            ticks.setdefault(round(length, 2), set()).add(points[0, 1])
    heights = sorted(y for y in ticks[max(ticks)] if top <= y <= bottom)
    labels = [(y, s) for s, (x, y) in drawing.texts if 5 < left - x < 30 and top - 5 < y < bottom + 10]
    powers = sorted((y, float(s)) for y, s in labels if s != "10")
    assert len(heights) == len(powers) == len(labels) - len(powers) == 3  # 10^2, 10^0 and 10^-2
    assert all(abs(y - tick) < 5 for (y, _), tick in zip(powers, heights, strict=True))
    return fit([(tick, power) for (_, power), tick in zip(powers, heights, strict=True)])


def fit(pairs: list[tuple[float, float]]) -> np.ndarray:
    """Return the line through (coordinate, value) pairs, which must lie on one up to rounding."""
    coordinate, value = np.array(pairs).T
    line = np.polyfit(coordinate, value, 1)
    assert np.allclose(np.polyval(line, coordinate), value, atol=1e-3 * abs(line[0]))  # within 0.001 of the page's unit
    return line


def find_panel(algorithm: str, drawing: Drawing) -> Panel:
    """Locate the axes that carry the algorithm's name as their title."""
    (title,) = (anchor for string, anchor in drawing.texts if string == algorithm)
    left, right, top, bottom = box_under(title, drawing)
    iteration = iteration_axis(drawing, left, right, bottom)
    return Panel(left, right, top, bottom, iteration, gap_axis(drawing, left, top, bottom))


def curves_of(panel: Panel, drawing: Drawing) -> dict[int, np.ndarray]:
    """Return the gaps at iterations 1, 2, ... of the panel's curves by T."""
    curves = {}
    for colour, points in drawing.strokes:
        if len(points) <= 2 or colour not in HORIZONS or not panel.holds(points):  # two: the samples of the legend
            continue
        iteration = np.polyval(panel.iteration, points[:, 0])
        T = HORIZONS[colour]
        assert T not in curves  # one path per curve
        assert np.abs(iteration - np.arange(1, len(points) + 1)).max() < 0.02  # no iteration left out
        curves[T] = 10 ** np.polyval(panel.log_gap, points[:, 1])
    return curves


def kept_iterations(length: int) -> list[int]:
    """Return iteration 1, every step-th one and the last, at most 101 of them (all if there are up to 100)."""
    step = -(-length // MOST_STEPS)
    return sorted({1, *range(step, length + 1, step), length})


def digitise(repository: Path) -> dict[tuple[int, float, str, int], np.ndarray]:
    """Return every curve's gaps from iteration 1 on, by (m, c, algorithm, T)."""
    curves = {}
    for m, c in FIGURES:
        drawing = parse(read_figure(repository, m, c))
        for algorithm in ALGORITHMS:
            found = curves_of(find_panel(algorithm, drawing), drawing)
            for T, gaps in sorted(found.items()):
                assert len(gaps) <= T if algorithm.endswith("-opt") else len(gaps) == T  # the colour means this T
                curves[m, c, algorithm, T] = gaps
    return curves


def write(curves: dict[tuple[int, float, str, int], np.ndarray], out: Path) -> int:
    """Write one row per kept point and return their number."""
    rows = [
        (m, f"{c:g}", algorithm, T, t, f"{gaps[t - 1]:.6g}")
        for (m, c, algorithm, T), gaps in curves.items()
        for t in kept_iterations(len(gaps))
    ]
    with out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("m", "c", "algorithm", "T", "iteration", "gap"))
        writer.writerows(rows)
    return len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", type=Path, required=True, help="checkout or git directory of DPAccGradMethods")
    parser.add_argument("--out", type=Path, default=Path("src/epsteps/paper/published_curves.csv"))
    arguments = parser.parse_args()
    curves = digitise(arguments.repository)
    rows = write(curves, arguments.out)
    wanted = {(m, c, name, T) for m, c in FIGURES for name in ALGORITHMS for T in HORIZONS.values()}
    print(f"{len(curves)} of {len(wanted)} curves, {rows} points, in {arguments.out}")
    for missing in sorted(wanted - set(curves)):
        print("missing: m = {}, c = {}, {}, T = {}".format(*missing))


if __name__ == "__main__":
    main()
