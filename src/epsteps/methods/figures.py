"""How methods look in figures: one style for each, the same wherever it is drawn; labels at lines' ends; plain ticks.

Colours are Okabe and Ito's (Color universal design, 2008), which colour-blind readers can tell apart. A colour means a
method, dashes how it splits or publishes, and a marker says it again where there is no colour.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE, GREY = "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#767676"
# For lines that stand for no method, such as columns; the two that are hardest to see on white come last.
LINES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, BLACK, SKY, GREY)
GOOD, DOUBTFUL, BAD = GREEN, ORANGE, VERMILLION

_DASHED, _DOTTED = (0, (5, 1.5)), (0, (1, 1.5))
# The lightest shade of a colour keeps so much of it.
_LIGHTEST = 0.4
_INK = 0.72
_LABELS = 9.0  # points
# The most ticks that are named, and the multiples of powers of ten that may have one.
_TICKS, _MULTIPLES = 6, ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 5), (1, 3), (1,))


@dataclass(frozen=True)
class Style:
    """A line's look."""

    colour: str
    dashes: Any = "-"
    marker: str = "o"
    width: float = 1.8

    def line(self) -> dict[str, Any]:
        """Return the keywords of matplotlib for a line without markers."""
        return {"color": self.colour, "linestyle": self.dashes, "linewidth": self.width}

    def marked(self) -> dict[str, Any]:
        """Return the keywords of matplotlib for a line with markers."""
        return self.line() | {"marker": self.marker, "markersize": 5}


FINAL, ITERATES = Style(BLUE, width=2.4), Style(VERMILLION, _DASHED, width=2.4)
# The paper's six, where dashes are the optimal split; ours, where dashes are everything published; and peers.
STYLES: Mapping[str, Style] = {
    "DP-GD": Style(ORANGE, marker="^"),
    "DP-HB": Style(SKY, marker="v"),
    "DP-NAG": Style(GREEN, marker="s"),
    "DP-MASG": Style(PURPLE, marker="D"),
    "DP-NAG-opt": Style(GREEN, _DASHED, "s"),
    "DP-MASG-opt": Style(PURPLE, _DASHED, "D"),
    "epsteps, final model": FINAL,
    "epsteps, everything published": ITERATES,
    "diffprivlib": Style(BLACK, marker="P", width=1.4),
    "DP-GD, clipped, tuned on the answer": Style(GREY, marker="X", width=1.4),
    "AdaSSP": Style(GREY, _DOTTED, "d", 1.4),
    "not private": Style(BLACK, _DOTTED, "", 1.2),
    "constant model": Style(GREY, _DOTTED, "", 1.2),
}


def shade(colour: str, strength: float) -> str:
    """Return a colour mixed with white: of strength 1 itself, of 0 the lightest shade that is drawn."""
    kept = _LIGHTEST + (1 - _LIGHTEST) * strength
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(255 - kept * (255 - part)):02X}" for part in parts)


def ink(colour: str) -> str:
    """Return a colour dark enough to read text in."""
    return "#" + "".join(f"{round(_INK * int(colour[place : place + 2], 16)):02X}" for place in (1, 3, 5))


def plain(axes: Any) -> None:
    """Leave the frame away where labels stand, and draw a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3, which="major")
    axes.set_axisbelow(True)


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Return places that are at least a gap apart, in the same order, and together moved as little as can be."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    # Neighbours that are too near become one block around the mean of where they belong.
    blocks: list[list[int]] = []
    for index in order:
        blocks.append([index])
        while len(blocks) > 1 and _begin(blocks[-1], places, gap) < _end(blocks[-2], places, gap) + gap:
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    moved = [0.0] * len(places)
    for block in blocks:
        for step, index in enumerate(block):
            moved[index] = _begin(block, places, gap) + step * gap
    return moved


def _begin(block: list[int], places: Sequence[float], gap: float) -> float:
    return math.fsum(places[index] for index in block) / len(block) - gap * (len(block) - 1) / 2


def _end(block: list[int], places: Sequence[float], gap: float) -> float:
    return _begin(block, places, gap) + gap * (len(block) - 1)


def label_ends(axes: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write what each line is beside its end (x, y, text, colour), no label upon another; limits must be final.

    A line that ends beyond what an axis shows, at infinity or at 0 of a logarithmic one, has no label.
    """
    figure = axes.figure
    figure.draw_without_rendering()
    ends = [end for end in ends if math.isfinite(end[1]) and (end[1] > 0 or axes.get_yscale() != "log")]
    points = [axes.transData.transform((x, y)) * 72 / figure.dpi for x, y, _, _ in ends]
    moved = spread([float(point[1]) for point in points], 1.25 * _LABELS)
    for (x, y, text, colour), point, place in zip(ends, points, moved, strict=True):
        axes.annotate(
            text,
            (x, y),
            xytext=(7, place - float(point[1])),
            textcoords="offset points",
            va="center",
            fontsize=_LABELS,
            color=ink(colour),
            annotation_clip=False,
        )


def readable(axis: Any) -> None:
    """Give the ticks of a logarithmic axis plain numbers, as many as there is room for; limits must be final."""
    low, high = sorted(axis.get_view_interval())
    axis.set_ticks(log_ticks(low, high))
    axis.set_ticks([], minor=True)
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def log_ticks(low: float, high: float, most: int = _TICKS) -> list[float]:
    """Return round numbers between two positive ones, for a logarithmic axis: as many as there may be."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    found: list[float] = []
    for multiples in _MULTIPLES:
        found = [float(f"{multiple}e{power}") for power in powers for multiple in multiples]
        found = [value for value in found if low <= value <= high]
        if len(found) <= most:
            return found
    return found[:: -(-len(found) // most)]


def linear_ticks(low: float, high: float, most: int = _TICKS) -> list[float]:
    """Return round numbers between two others, evenly spaced, as many as there may be; the ends if there is none."""
    span = high / 2 - low / 2  # a difference of floats may be too large for one
    if not span > 1e-300:
        return [low] if low == high else [low, high]
    power = math.floor(math.log10(span)) - 1
    for unit in (float(f"{digit}e{power + more}") for more in range(3) for digit in (1, 2, 5)):
        first, last = math.ceil(low / unit), math.floor(high / unit)
        if last - first < most:
            # Written and read, so that 3 times 0.1 is 0.3.
            found = dict.fromkeys(float(f"{step * unit:.12g}") for step in range(first, last + 1))
            return [value for value in found if low <= value <= high] or [low, high]
    return [low, high]
