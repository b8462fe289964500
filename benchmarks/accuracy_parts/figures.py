"""One picture per dataset: excess risk over epsilon, pure and with delta, limits dashed; and the test score."""

from pathlib import Path

import matplotlib as mpl
import numpy as np

from accuracy_parts.methods import Method
from accuracy_parts.report import Results

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

OURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#e377c2", "#bcbd22", "#0b3d91", "#7f0000")
COLOURS = {
    "ours": OURS,
    "peer": ("#222222", "#666666", "#909090", "#b8b8b8"),
    "paper": ("#5c3317", "#a8703c", "#d2a679"),
}
MARKERS = {"ours": "o", "peer": "s", "paper": "^"}
HIGHEST = 100.0  # what is this many times worse than x = 0 is off the picture (and in the tables)
LINES = {"final": "-", "iterates": (0, (5, 1))}


def write(results: Results, out: Path) -> None:
    """Draw accuracy-GROUP.png for every group that has cells."""
    for group in results.groups:
        drawn = [m for m in results.methods if any(results.of(group, m.name, e) for e in results.epsilons)]
        if drawn:
            _draw(results, group, drawn, out / f"accuracy-{group}.png")


def _draw(results: Results, group: str, methods: list[Method], path: Path) -> None:
    figure, (pure, delta, test) = plt.subplots(1, 3, figsize=(17, 5.4), constrained_layout=True)
    styles = dict(zip(methods, _styles(methods), strict=True))
    _excesses(pure, results, group, {m: style for m, style in styles.items() if m.privacy == "pure"}, "best pure")
    _excesses(
        delta, results, group, {m: style for m, style in styles.items() if m.privacy == "delta"}, "best with delta"
    )
    bottom, top = (choose(axis.get_ylim()[end] for axis in (pure, delta)) for end, choose in ((0, min), (1, max)))
    for axis, title in ((pure, "pure ε"), (delta, f"ε with δ = {results.delta:g}")):
        axis.set(ylim=(bottom, top), title=title)
    _test_scores(test, results, group, styles)
    reference = results.reference(group, results.epsilons[0])[0]
    figure.suptitle(f"{group}: n = {reference['n']}, d = {reference['d']}, ridge = {reference['ridge']:g}")
    found = [pair for axis in (pure, delta) for pair in zip(*axis.get_legend_handles_labels(), strict=True)]
    figure.legend(*zip(*found, strict=True), loc="outside right upper", fontsize=8, frameon=False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _styles(methods: list[Method]) -> list[dict]:
    """Return each method's look: colour by method, marker by whose it is, dashes where all iterates are published."""
    seen, styles = dict.fromkeys(COLOURS, 0), []
    for method in methods:
        colours = COLOURS[method.whose]
        styles.append(
            {
                "color": colours[seen[method.whose] % len(colours)],
                "marker": MARKERS[method.whose],
                "linestyle": LINES[method.published],
                "linewidth": 1.8 if method.whose == "ours" else 1.2,
                "markersize": 5,
            }
        )
        seen[method.whose] += 1
    return styles


def _label(method: Method) -> str:
    return f"{method.label} ({'ε' if method.privacy == 'pure' else 'ε, δ'}; {method.published})"


def _excesses(axis: Axes, results: Results, group: str, styles: dict[Method, dict], limit: str) -> None:
    for method, style in styles.items():
        found = [(e, s) for e in results.epsilons if (s := results.excess(group, method.name, e)) is not None]
        axis.plot([e for e, _ in found], [s.mean for _, s in found], label=_label(method), **style)
    limits = [results.limit(group, epsilon, limit) for epsilon in results.epsilons]
    axis.plot(results.epsilons, limits, "--", color="black", linewidth=1, label=f"limit, {limit}")
    nothing = float(np.mean([reference["at_zero"] for reference in results.reference(group, results.epsilons[0])]))
    axis.axhline(nothing, color="black", linewidth=0.8, linestyle=":")
    axis.annotate("x = 0", (results.epsilons[0], nothing), fontsize=8, va="bottom")
    axis.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="excess risk F(x) - F*")
    axis.set_ylim(top=min(axis.get_ylim()[1], HIGHEST * nothing))
    _finish(axis, results)


def _test_scores(axis: Axes, results: Results, group: str, styles: dict[Method, dict]) -> None:
    best = results.reference(group, results.epsilons[0])
    score = "accuracy" if "accuracy" in best[0]["scores"] else "r2"
    optimum = float(np.mean([reference["scores"][score] for reference in best]))
    lowest = float(np.mean([reference["majority"] for reference in best])) if score == "accuracy" else 0.0
    for method, style in styles.items():
        cells = [(e, results.of(group, method.name, e)) for e in results.epsilons]
        found = [(e, np.mean([np.mean(cell["scores"][score]) for cell in some])) for e, some in cells if some]
        axis.plot([e for e, _ in found], [value for _, value in found], **style)
    axis.axhline(optimum, color="black", linewidth=0.8, linestyle=":")
    axis.annotate(f"non-private {optimum:.4f}", (results.epsilons[0], optimum), fontsize=8, va="bottom")
    if score == "accuracy":
        axis.axhline(lowest, color="black", linewidth=0.8, linestyle=":")
        axis.annotate(f"majority {lowest:.4f}", (results.epsilons[0], lowest), fontsize=8, va="bottom")
    margin = 0.25 * (optimum - lowest) + 1e-3
    axis.set(xscale="log", xlabel="epsilon", ylabel=f"test {score}", ylim=(lowest - margin, optimum + margin))
    _finish(axis, results)


def _finish(axis: Axes, results: Results) -> None:
    axis.set_xticks(results.epsilons, [f"{epsilon:g}" for epsilon in results.epsilons])
    axis.set_xticks([], minor=True)
    axis.grid(alpha=0.3)
