"""One picture per dataset: excess risk over epsilon, pure and with delta, yardsticks dashed; and the test score.

Means with their standard errors. Colours, dashes and labels are those of all figures (``epsteps.methods.figures``).
"""

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np

from accuracy_parts.methods import Method
from accuracy_parts.report import Results, standard_error
from epsteps.methods import figures
from epsteps.methods.figures import STYLES, Style

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

# What one noisy gradient at the optimum leaves (``limits``): a method may do better, with a larger ridge.
YARDSTICK = Style(figures.BLACK, "--", "", 1.0)
PEERS = {
    "paper-gd": STYLES["DP-GD"],
    "paper-nag": replace(STYLES["DP-NAG-opt"], marker="*"),
    "paper-nag-0": STYLES["DP-NAG-opt"],
    "diffprivlib": STYLES["diffprivlib"],
    "diffprivlib-fixed": replace(STYLES["diffprivlib"], marker="p"),
    "diffprivlib-linear": STYLES["diffprivlib"],
    "adassp": STYLES["AdaSSP"],
    "boosted-adassp": replace(STYLES["AdaSSP"], marker="p"),
    "clipped-gd": STYLES["DP-GD, clipped, tuned on the answer"],
    "dp-sgd": replace(STYLES["DP-GD, clipped, tuned on the answer"], dashes=":"),
}
# Ours have the colour of what they publish; the default's marker is a dot, and other methods have one of their own.
MARKERS = {"objective": "D", "output": "v", "statistics": "P", "sequential": "X", "curvature": "<", "descent": ">"}
MARKERS |= {"nesterov-laplace": "h", "nesterov-hull": "p"}
HIGHEST = 100.0  # what is this many times worse than x = 0 is off the picture (and in the tables)


def write(results: Results, out: Path) -> None:
    """Draw accuracy-GROUP.png for every group that has cells."""
    for group in results.groups:
        drawn = [m for m in results.methods if any(results.of(group, m.name, e) for e in results.epsilons)]
        if drawn:
            _draw(results, group, drawn, out / f"accuracy-{group}.png")


def style(method: Method) -> Style:
    """Return a method's look."""
    if method.name in PEERS:
        return PEERS[method.name]
    marker = next((found for name, found in MARKERS.items() if method.name.startswith(name)), "o")
    return replace(figures.FINAL if method.published == "final" else figures.ITERATES, marker=marker)


def _draw(results: Results, group: str, methods: list[Method], path: Path) -> None:
    figure, (pure, delta, test) = plt.subplots(1, 3, figsize=(21, 5.8), constrained_layout=True)
    drawn = {name: [m for m in methods if m.privacy == name] for name in ("pure", "delta")}
    ends = {
        "pure": _excesses(pure, results, group, drawn["pure"], "best pure"),
        "delta": _excesses(delta, results, group, drawn["delta"], "best with delta"),
    }
    bottom, top = (choose(axis.get_ylim()[end] for axis in (pure, delta)) for end, choose in ((0, min), (1, max)))
    for axis, name, title in ((pure, "pure", "pure ε"), (delta, "delta", f"ε with δ = {results.delta:g}")):
        axis.set(ylim=(bottom, top), title=title)
        figures.readable(axis.yaxis)
        figures.label_ends(axis, [end for end in ends[name] if bottom <= end[1] <= top])
    _test_scores(test, results, group, methods)
    reference = results.reference(group, results.epsilons[0])[0]
    figure.suptitle(f"{group}: n = {reference['n']}, d = {reference['d']}, ridge = {reference['ridge']:g}")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _label(method: Method) -> str:
    return f"{method.label} ({method.published})" if method.whose == "ours" else method.label


def _excesses(
    axis: Axes, results: Results, group: str, methods: list[Method], limit: str
) -> list[tuple[float, float, str, str]]:
    """Draw the lines of one kind of privacy, and return where they end."""
    ends = []
    for method in methods:
        found = [(e, s) for e in results.epsilons if (s := results.excess(group, method.name, e)) is not None]
        errors = np.nan_to_num([summary.error for _, summary in found])
        epsilons, means = [e for e, _ in found], [summary.mean for _, summary in found]
        axis.errorbar(epsilons, means, errors, capsize=2, **style(method).marked())
        ends.append((epsilons[-1], means[-1], _label(method), style(method).colour))
    limits = [results.limit(group, epsilon, limit) for epsilon in results.epsilons]
    axis.plot(results.epsilons, limits, **YARDSTICK.line())
    ends.append((results.epsilons[-1], limits[-1], "yardstick: one noisy gradient", YARDSTICK.colour))
    nothing = float(np.mean([reference["at_zero"] for reference in results.reference(group, results.epsilons[0])]))
    axis.axhline(nothing, **STYLES["constant model"].line())
    ends.append((results.epsilons[-1], nothing, "x = 0", STYLES["constant model"].colour))
    axis.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="excess risk F(x) - F* ± standard error")
    axis.set_ylim(top=min(axis.get_ylim()[1], HIGHEST * nothing))
    _finish(axis, results)
    return ends


def _test_scores(axis: Axes, results: Results, group: str, methods: list[Method]) -> None:
    best = results.reference(group, results.epsilons[0])
    score = "accuracy" if "accuracy" in best[0]["scores"] else "r2"
    optimum = float(np.mean([reference["scores"][score] for reference in best]))
    lowest = float(np.mean([reference["majority"] for reference in best])) if score == "accuracy" else 0.0
    margin = 0.25 * (optimum - lowest) + 1e-3
    ends = [(results.epsilons[-1], optimum, f"not private {optimum:.4f}", figures.BLACK)]
    ends += [(results.epsilons[-1], lowest, f"constant {lowest:.4f}", figures.GREY)]
    for method in methods:
        cells = [(e, some) for e in results.epsilons if (some := results.of(group, method.name, e))]
        means = [float(np.mean([np.mean(cell["scores"][score]) for cell in some])) for _, some in cells]
        errors = np.nan_to_num([standard_error(some[0]["scores"][score]) for _, some in cells])
        inside = {} if method.privacy == "pure" else {"markerfacecolor": "white"}
        axis.errorbar([e for e, _ in cells], means, errors, capsize=2, **style(method).marked(), **inside)
        if means[-1] > lowest - margin:
            ends.append((cells[-1][0], means[-1], _budget(method) + _label(method), style(method).colour))
    axis.axhline(optimum, **STYLES["not private"].line())
    axis.axhline(lowest, **STYLES["constant model"].line())
    axis.set(xscale="log", xlabel="epsilon", ylabel=f"test {score}", ylim=(lowest - margin, optimum + margin))
    _finish(axis, results)
    figures.label_ends(axis, ends)


def _budget(method: Method) -> str:
    return "ε: " if method.privacy == "pure" else "ε, δ: "


def _finish(axis: Axes, results: Results) -> None:
    axis.set_xticks(results.epsilons, [f"{epsilon:g}" for epsilon in results.epsilons])
    axis.set_xticks([], minor=True)
    figures.plain(axis)
