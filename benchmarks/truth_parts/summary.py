"""What the cells say: predicted over measured, in groups; what is not monotone; what exceeds a bound."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

BAND = (0.5, 2.0)
GROUPS = ("method", "loss", "budget", "set", "epsilon")


def is_hopeless(cell: dict) -> bool:
    """Whether the fit is no better than x = 0, as measured or as predicted."""
    return max(cell["measured"], cell["predicted"]) >= cell["zero"]


def ratio(cell: dict) -> float:
    """Return predicted over measured."""
    return cell["predicted"] / max(cell["measured"], 1e-300)


def within(cells: Iterable[dict]) -> float:
    """Return the share of cells whose ratio is in the band."""
    return float(np.mean([BAND[0] <= ratio(cell) <= BAND[1] for cell in cells]))


def markdown(cells: list[dict]) -> str:
    """Return the tables."""
    ran = [cell for cell in cells if "measured" in cell]
    known = [cell for cell in ran if cell["predicted"] is not None]
    useful = [cell for cell in known if not is_hopeless(cell)]
    refused = [cell for cell in cells if "refused" in cell]
    lines = [
        "# Predicted and measured excess risk",
        "",
        f"{len(ran)} cells on {len({cell['set'] for cell in ran})} tables, {len(ran) - len(known)} of them without a "
        f"prediction, {len(known) - len(useful)} hopeless (measured or predicted no better than x = 0). "
        f"{len(refused)} combinations are refused by the library.",
        "",
    ]
    if useful:
        share = f"{within(useful):.1%} of {len(useful)}"
        better = [cell for cell in known if cell["measured"] < cell["zero"]]
        strict = f"{within(useful) * len(useful) / len(better):.1%} of the {len(better)} that measure better than x = 0"
        lines += [
            f"Of the others, predicted over measured lies within [{BAND[0]:g}, {BAND[1]:g}] in {share}. (If those "
            f"count as wrong that only the prediction calls hopeless: {strict}.)",
            "",
        ]
    for group in GROUPS:
        lines += [*_shares(useful, group), ""]
    lines += [*_after(useful), *_verdicts(known), *_hopeless(known), *_steps(known), *_bounds(known), *_worst(useful)]
    return "\n".join([*lines, *_refusals(refused)]) + "\n"


def overview(cells: list[dict], tuned: Iterable[str]) -> str:
    """Return shares in the band, of plans and of runs, on tables that predictions were tuned on and on others."""
    known = [cell for cell in cells if cell.get("predicted") is not None and "measured" in cell]
    useful = [cell for cell in known if not is_hopeless(cell)]
    lines = [
        "| tables | targets | plans, by public numbers | runs, by what they published, too |",
        "| --- | --- | --- | --- |",
    ]
    for is_tuned, name in ((True, "tuned on"), (False, "held out")):
        for targets in ("classes", "numbers"):
            some = [cell for cell in useful if (cell["set"] in tuned) == is_tuned and _targets(cell) == targets]
            if some:
                later = [_later(cell) if cell.get("after") else cell for cell in some]
                count = len({cell["set"] for cell in some})
                shares = (f"{within(part):.0%} of {len(part)}" for part in (some, later))
                lines.append(f"| {name} ({count}) | {targets} | {' | '.join(shares)} |")
    return "\n".join(lines) + "\n"


def _targets(cell: dict) -> str:
    return "numbers" if cell["loss"] in ("squared", "huber") else "classes"


def _later(cell: dict) -> dict:
    """Return the cell with what its runs expect by what they published, on average."""
    return cell | {"predicted": float(np.mean(cell["after"]))}


def insert(page: Path, name: str, text: str) -> None:
    """Write a text between the markers of its name on a page, or raise if there are none."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    before, _, rest = page.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"{page} has no markers {begin.strip()} and {end}.")
    page.write_text(f"{before}{begin}\n{text.strip()}\n\n{end}{after}")


def _shares(cells: list[dict], group: str) -> list[str]:
    """Return a table of shares in the band, and of quantiles of the ratio."""
    lines = [f"| {group} | cells | in the band | 5 % | median | 95 % |", "| --- | --- | --- | --- | --- | --- |"]
    groups = defaultdict(list)
    for cell in cells:
        groups[cell[group]].append(cell)
    for name in sorted(groups):
        low, middle, high = np.quantile([ratio(cell) for cell in groups[name]], (0.05, 0.5, 0.95))
        lines.append(
            f"| {name} | {len(groups[name])} | {within(groups[name]):.0%} | {low:.2g} | {middle:.2g} | {high:.2g} |"
        )
    return lines


def _after(cells: list[dict]) -> list[str]:
    """Return a table of what runs expect by what they published, beside what was expected of them before."""
    lines = [
        "What runs expect by what they published, beside what their plans expected (the mean over the runs of a cell; "
        "of single runs, each against the measured mean):",
        "",
        "| method, targets | cells | before: in band | median | after: in band | 5 % | median | 95 % | single |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    groups = defaultdict(list)
    for cell in cells:
        if cell.get("after"):
            groups[f"{cell['method']}, {_targets(cell)}"].append(cell)
            groups["~ all"].append(cell)
    for name in sorted(groups):
        before = np.array([ratio(cell) for cell in groups[name]])
        later = [_later(cell) for cell in groups[name]]
        single = [cell | {"predicted": each} for cell in groups[name] for each in cell["after"]]
        low, middle, high = np.quantile([ratio(cell) for cell in later], (0.05, 0.5, 0.95))
        lines.append(
            f"| {name.removeprefix('~ ')} | {len(later)} | {within(groups[name]):.0%} | {np.median(before):.2g} | "
            f"{within(later):.0%} | {low:.2g} | {middle:.2g} | {high:.2g} | {within(single):.0%} |"
        )
    return [*lines, ""] if groups else []


def _verdicts(cells: list[dict]) -> list[str]:
    """Return how often each verdict was given, and how the fits were that it was given for."""
    lines = []
    for verdict in ("useful", "marginal", "noise"):
        shares = [cell["measured"] / cell["zero"] for cell in cells if cell.get("verdict") == verdict]
        if shares:
            low, middle, high = np.quantile(shares, (0.05, 0.5, 0.95))
            text = f"median {middle:.2g}, from {low:.2g} to {high:.2g} (5 to 95 %)"
            lines.append(f'- verdict "{verdict}" in {len(shares)} cells: measured over F(0) - F* {text}')
    return [*lines, ""]


def _hopeless(cells: list[dict]) -> list[str]:
    """Return how well hopeless fits were known to be hopeless."""
    counts = Counter((cell["measured"] >= cell["zero"], cell["predicted"] >= cell["zero"]) for cell in cells)
    return [
        "| | predicted useful | predicted hopeless |",
        "| --- | --- | --- |",
        *(f"| measured {w} | {counts[m, False]} | {counts[m, True]} |" for w, m in (("useful", 0), ("hopeless", 1))),
        "",
    ]


def rows_of(cells: list[dict]) -> dict[tuple, list[dict]]:
    """Return the cells that differ in epsilon alone, ordered by it."""
    rows = defaultdict(list)
    for cell in sorted(cells, key=lambda cell: cell["epsilon"]):
        rows[cell["set"], cell["loss"], cell["method"], cell["budget"]].append(cell)
    return rows


def _steps(cells: list[dict]) -> list[str]:
    """Name the rows in which the prediction rises with epsilon."""
    rows = rows_of(cells)
    rising = {
        key: [cell["predicted"] for cell in row]
        for key, row in rows.items()
        if any(later["predicted"] > 1.000001 * cell["predicted"] for cell, later in pairwise(row))
    }
    lines = [f"The prediction rises with epsilon in {len(rising)} of {len(rows)} rows.", ""]
    return [*lines, *(f"- {', '.join(key)}: {_numbers(values)}" for key, values in list(rising.items())[:12]), ""]


def _numbers(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _bounds(cells: list[dict]) -> list[str]:
    """Name the cells whose prediction, or measured mean by more than three standard errors, is above the bound."""
    bounded = [cell for cell in cells if cell["bound"] is not None]
    above = [cell for cell in bounded if cell["predicted"] > cell["bound"]]
    broken = [cell for cell in bounded if cell["measured"] - 3 * cell["se"] > cell["bound"]]
    return [
        f"{len(bounded)} cells have a bound: the prediction is above it in {len(above)}, "
        f"the measured mean (by more than three standard errors) in {len(broken)}.",
        "",
        *(
            f"- broken: {_name(cell)}: measured {cell['measured']:.3g}, bound {cell['bound']:.3g}"
            for cell in broken[:8]
        ),
        "",
    ]


def _worst(cells: list[dict]) -> list[str]:
    """Name the cells farthest off."""
    far = sorted(cells, key=lambda cell: -abs(np.log(max(ratio(cell), 1e-300))))[:15]
    lines = ["| farthest off | predicted | measured | standard error | F(0) - F* |", "| --- | --- | --- | --- | --- |"]
    for cell in far:
        values = (cell[name] for name in ("predicted", "measured", "se", "zero"))
        lines.append(f"| {_name(cell)} | " + " | ".join(f"{value:.2g}" for value in values) + " |")
    return [*lines, ""]


def _name(cell: dict) -> str:
    return ", ".join(f"{cell[name]}" for name in ("set", "loss", "method", "budget", "epsilon"))


def _refusals(cells: list[dict]) -> list[str]:
    """Return why combinations were refused, and how often."""
    counts = Counter((cell["method"], cell["loss"], cell["budget"], cell["refused"][:90]) for cell in cells)
    lines = ["Refused:", ""]
    return [*lines, *(f"- {' / '.join(key[:3])}: {count} x {key[3]}" for key, count in sorted(counts.items()))]


def draw(cells: list[dict], path: Path) -> None:
    """Draw predicted over measured, in units of F(0) - F*: useful cells in colour by method, hopeless ones grey.

    "auto" stands for one of the others, whose points are the same, and is not drawn beside them.
    """
    known = [cell for cell in cells if cell.get("predicted") and "measured" in cell]
    known = [cell for cell in known if "auto" not in cell["method"]] or known
    losses, methods = (sorted({cell[name] for cell in known}) for name in ("loss", "method"))
    colours = dict(zip(methods, plt.get_cmap("tab10").colors, strict=False))
    rows = -(-len(losses) // 3)
    figure, axes = plt.subplots(rows, 3, figsize=(13, 4.4 * rows), squeeze=False, layout="constrained")
    ends = np.array([1e-6, 1e3])
    for axis, loss in zip(axes.flat, losses, strict=False):
        some = [cell for cell in known if cell["loss"] == loss]
        x, y = (np.array([max(cell[k], 1e-12) / cell["zero"] for cell in some]) for k in ("measured", "predicted"))
        hopeless = np.array([is_hopeless(cell) for cell in some])
        axis.scatter(x[hopeless], y[hopeless], s=8, c="#cccccc", linewidths=0)
        shades = [colours[cell["method"]] for cell in some if not is_hopeless(cell)]
        axis.scatter(x[~hopeless], y[~hopeless], s=12, c=shades, linewidths=0)
        axis.plot(ends, ends, color="black", lw=0.9)
        for factor in BAND:
            axis.plot(ends, factor * ends, color="black", lw=0.6, ls=":")
        axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends, title=loss)
        axis.set(xlabel="measured / (F(0) - F*)", ylabel="predicted / (F(0) - F*)")
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(losses) :]:
        axis.set_axis_off()
    handles = [plt.Line2D([], [], marker="o", ls="", color=colours[m], label=m) for m in methods]
    handles.append(plt.Line2D([], [], marker="o", ls="", color="#cccccc", label="hopeless"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    figure.savefig(path, dpi=100)
    plt.close(figure)
