"""Small pictures as inline SVG. They hold no text and stretch to any width: numbers stand beside them, as text."""

import math
from collections.abc import Sequence

_WIDTH, _HEIGHT = 600.0, 160.0
_PALETTE = 8


def share_bar(share: float) -> str:
    """Return one bar that fills this share of its width."""
    return f'{_open("bar", 100, 4)}<rect width="{100 * share:.6g}" height="4"/></svg>'


def columns(shares: Sequence[float], label: str) -> str:
    """Return a column for each share, the largest of full height."""
    step, top = _WIDTH / len(shares), max(shares) or 1.0
    bars = (
        f'<rect x="{place * step:.6g}" y="{_HEIGHT * (1 - share / top):.6g}" width="{0.9 * step:.6g}" '
        f'height="{_HEIGHT * share / top:.6g}"/>'
        for place, share in enumerate(shares)
    )
    return f"{_open('chart', _WIDTH, _HEIGHT, label)}{''.join(bars)}</svg>"


def lines(series: Sequence[Sequence[float]], label: str) -> str:
    """Return one line for each series, over the places of its values; the first eight have colours of their own."""
    low, high = min(map(min, series)), max(map(max, series))
    drawn = "".join(
        _line(_scaled(range(len(values)), 0, len(values) - 1), _scaled(values, low, high), f"line c{place % _PALETTE}")
        for place, values in enumerate(series)
    )
    zero = _line([0.0, 1.0], _scaled([0.0, 0.0], low, high), "axis") if low < 0 < high else ""
    return f"{_open('chart', _WIDTH, _HEIGHT, label)}{zero}{drawn}</svg>"


def log_curve(x: Sequence[float], y: Sequence[float], label: str, *, marked: int | None = None) -> str:
    """Return a curve over logarithmic scales, with dots, one of which may be marked."""
    logs = [[math.log(value) for value in values] for values in (x, y)]
    across, up = (_scaled(values, min(values), max(values)) for values in logs)
    dots = "".join(
        _line([a, a], [b, b], "dot marked" if place == marked else "dot")
        for place, (a, b) in enumerate(zip(across, up, strict=True))
    )
    return f"{_open('chart', _WIDTH, _HEIGHT, label)}{_line(across, up, 'line c0')}{dots}</svg>"


def interval(value: float, spread: float, reach: float) -> str:
    """Return a dot at the value with a bar of twice the spread to each side, on a scale from -reach to reach."""
    low, high, middle = (50 + 48 * _within(point / reach) for point in (value - 2 * spread, value + 2 * spread, value))
    return (
        f'{_open("interval", 100, 12)}<path class="axis" d="M50 0V12"/>'
        f'<path class="spread" d="M{low:.6g} 6H{high:.6g}"/><path class="dot" d="M{middle:.6g} 6h0"/></svg>'
    )


def _open(kind: str, width: float, height: float, label: str = "") -> str:
    name = f'role="img" aria-label="{label}"' if label else 'aria-hidden="true"'
    return f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" preserveAspectRatio="none" {name}>'


def _line(across: Sequence[float], up: Sequence[float], kind: str) -> str:
    """Return a line through points of the unit square, a little inside the picture."""
    points = [
        f"{10 + (_WIDTH - 20) * a:.6g} {10 + (_HEIGHT - 20) * (1 - b):.6g}" for a, b in zip(across, up, strict=True)
    ]
    return f'<path class="{kind}" d="M{"L".join(points)}"/>'


def _scaled(values: Sequence[float], low: float, high: float) -> list[float]:
    span = high / 2 - low / 2  # a difference of floats may be too large for one
    return [(value / 2 - low / 2) / span if span > 0 else 0.5 for value in values]


def _within(value: float) -> float:
    return min(max(value, -1.0), 1.0)
