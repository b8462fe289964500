"""Figures 1 and 2 of the paper, as published and corrected: heavy ball on a quadratic, and the multistage noise split.

Figure 1: F has the eigenvalues 0.1 and 1, as in the authors' script and pictures (the text says 0.5 and 1). A run of T
steps has noise of variance (c_w T)² per coordinate, and starts at a gap of 10. Figure 2: mu = 1, L = 20.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import epsteps as es
from epsteps.methods import figures
from epsteps.problem.validate import require

MU, L = 0.1, 1.0
ALPHAS = (0.1, 0.5, 1.0)
BETAS = (0.0, 0.3, 0.7)  # and the one that is called optimal
BETA_GRID = np.arange(100) / 100
NOISES = (1e-2, 1e-4)  # c_w, first and second row of figure 1
ITERATIONS = np.arange(1, 251)
START_GAP = 10.0
STAGES = (2, 3, 4, 5)
VERSIONS = ("published", "corrected")

RATE_COLUMNS = ("version", "alpha", "beta", "rate")
BOUND_COLUMNS = ("version", "c_w", "alpha", "beta", "momentum", "iteration", "bound", "exact_error")
SPLIT_COLUMNS = ("version", "stages", "iterations", "iteration", "stage", "scale")

_MOMENTA = (
    figures.BLACK,
    figures.ORANGE,
    figures.BLUE,
    figures.VERMILLION,
)  # three that are fixed, and the optimal one


class BoundCurve(NamedTuple):
    """One curve of figure 1: the bound, and the exact error that it should be above, for every T."""

    noise: float
    alpha: float
    beta: float
    momentum: str
    bound: np.ndarray
    exact: np.ndarray


class Split(NamedTuple):
    """One panel of figure 2: stage and noise scale (in units of S1/(n epsilon)) of every step."""

    stages: int
    stage: np.ndarray
    scale: np.ndarray


def published_rate(mu: float, L: float, alpha: float, beta: float) -> float:
    """Return the paper's "rate of heavy ball", which is Nesterov's (docs/errata.md#m9)."""
    keep = 1 - alpha * np.array([mu, L], dtype=complex)
    half, root = (1 + beta) * keep / 2, np.sqrt((1 + beta) ** 2 * keep**2 - 4 * beta * keep) / 2
    return float(np.abs([half + root, half - root]).max())


def optimal_momentum(alpha: float, published: bool) -> float:
    """Return the momentum that figure 1 calls optimal: Nesterov's as published, heavy ball's as corrected."""
    root = np.sqrt(alpha * MU)
    return float((1 - root) / (1 + root) if published else (1 - root) ** 2)


def rates(published: bool) -> np.ndarray:
    """Return the rate for every alpha (rows) and every beta of the grid (columns)."""
    if published:
        return np.array([[published_rate(MU, L, a, float(b)) for b in BETA_GRID] for a in ALPHAS])
    return np.array([[es.bounds.rate(es.heavy_ball, MU, L, a, float(b)) for b in BETA_GRID] for a in ALPHAS])


def published_bound(alpha: float, beta: float, noise: float) -> np.ndarray:
    """Return the paper's bound for every T: Nesterov's rate, C_T = T, L times the sum of the variances."""
    T, lam, variance = ITERATIONS, np.array([MU, L]), (noise * ITERATIONS) ** 2
    rho = published_rate(MU, L, alpha, beta)
    limit = alpha * (1 + beta) / (1 - beta) * np.sum(1 / (lam * (2 + 2 * beta - alpha * lam)))
    start = START_GAP + variance * alpha**2 / (1 - rho**2)
    return start * T**2 * rho ** (2 * T) + L * variance * limit


def corrected_bound(alpha: float, beta: float, noise: float) -> np.ndarray:
    """Return the corrected bound for every T."""
    runs = ((int(T), (noise * T) ** 2) for T in ITERATIONS)
    return np.array([es.bounds.heavy_ball_quadratic([MU, L], alpha, beta, T, START_GAP, v) for T, v in runs])


def exact_error(alpha: float, beta: float, noise: float) -> np.ndarray:
    """Return the error itself for every T, for a start whose gap is spread evenly over the two eigenvectors."""
    T = len(ITERATIONS)
    steps = es.Steps(np.full(T, alpha), np.full(T, beta), np.zeros(T), np.zeros(T, dtype=bool))
    transfers, weights = es.bounds.exact_by_horizon(steps, [MU, L])
    return START_GAP * np.mean(transfers**2, axis=1) + weights.sum(axis=1) * (noise * ITERATIONS) ** 2 / 2


def bounds(published: bool) -> list[BoundCurve]:
    """Return the 24 curves of figure 1's first two rows."""
    curves = []
    for noise in NOISES:
        for alpha in ALPHAS:
            momenta = [(beta, "fixed") for beta in BETAS] + [(optimal_momentum(alpha, published), "optimal")]
            for beta, name in momenta:
                bound = (published_bound if published else corrected_bound)(alpha, beta, noise)
                curves.append(BoundCurve(noise, alpha, beta, name, bound, exact_error(alpha, beta, noise)))
    return curves


def split(stages: int, published: bool) -> Split:
    """Return the best noise scales for so many whole stages of multistage Nesterov, mu = 1 and L = 20.

    As published, stage 1 is rounded down and the last step of each stage lacks its factor 2 (docs/errata.md#c3).
    """
    mu, smoothness = 1.0, 20.0
    first = np.sqrt(smoothness) * np.log(smoothness)
    later = int(np.ceil(np.sqrt(smoothness) * np.log(8))) * (2 ** (stages + 1) - 4)
    if not published:
        steps = es.multistage(mu, smoothness, int(np.ceil(first)) + later)
        weights = es.bounds.multistage(steps, mu, smoothness).weights
        return Split(stages, np.cumsum(steps.restart) + 1, 1 / es.Pure(1.0).split(weights))
    lengths = [int(first), *(2**k * int(np.ceil(np.sqrt(smoothness) * np.log(8))) for k in range(2, stages + 1))]
    stage = np.repeat(np.arange(1, stages + 1), lengths)
    alpha = 1 / smoothness / np.where(stage > 1, 4.0**stage, 1.0)
    doubled = np.append(np.diff(stage), 0)  # 1 at the last step of a stage, and counted from the step after
    contraction = (1 - np.sqrt(alpha * mu)) * 2.0**doubled
    roots = np.cbrt(es.bounds.Bound(contraction, alpha / 2 * (1 + alpha * smoothness)).weights)
    return Split(stages, stage, roots.sum() / roots)


def write_csv(out: Path) -> list[Path]:
    """Write fig1-rates.csv, fig1-bounds.csv and fig2.csv, both versions in each, and return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    tables = {
        out / "fig1-rates.csv": (RATE_COLUMNS, _rate_rows()),
        out / "fig1-bounds.csv": (BOUND_COLUMNS, _bound_rows()),
        out / "fig2.csv": (SPLIT_COLUMNS, _split_rows()),
    }
    for path, (columns, rows) in tables.items():
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(rows)
    return list(tables)


def draw(out: Path, published: bool) -> list[Path]:
    """Draw figures 1 and 2 into a folder, each as PNG and PDF, and return their paths."""
    figure_class = require("matplotlib.figure", "plots", "drawing the figures").Figure
    out.mkdir(parents=True, exist_ok=True)
    version, paths = VERSIONS[0] if published else VERSIONS[1], []
    for name, size, fill in (("fig1", (10, 9), _draw_first), ("fig2", (11, 3.4), _draw_second)):
        figure = figure_class(figsize=size, layout="constrained")
        fill(figure, published)
        for ending in ("png", "pdf"):
            paths.append(out / f"{name}-{version}.{ending}")
            figure.savefig(paths[-1], dpi=150)
    return paths


def _rate_rows() -> Iterator[tuple[Any, ...]]:
    for version in VERSIONS:
        for alpha, row in zip(ALPHAS, rates(version == "published").tolist(), strict=True):
            yield from ((version, alpha, beta, rate) for beta, rate in zip(BETA_GRID.tolist(), row, strict=True))


def _bound_rows() -> Iterator[tuple[Any, ...]]:
    for version in VERSIONS:
        for curve in bounds(version == "published"):
            values = zip(ITERATIONS.tolist(), curve.bound.tolist(), curve.exact.tolist(), strict=True)
            yield from ((version, *curve[:4], *value) for value in values)


def _split_rows() -> Iterator[tuple[Any, ...]]:
    for version in VERSIONS:
        for K in STAGES:
            panel = split(K, version == "published")
            T = len(panel.scale)
            values = zip(range(1, T + 1), panel.stage.tolist(), panel.scale.tolist(), strict=True)
            yield from ((version, K, T, *value) for value in values)


def _draw_first(figure: Any, published: bool) -> None:
    """Fill figure 1: bounds for two noise levels, rates below; columns are step sizes."""
    axes = figure.subplots(3, 3, sharex="row", sharey="row")
    for index, curve in enumerate(bounds(published)):
        panel, kind = axes[NOISES.index(curve.noise), ALPHAS.index(curve.alpha)], index % 4
        label = f"β = {curve.beta:g}" if curve.momentum == "fixed" else "β “optimal”" if published else "β optimal"
        panel.semilogy(ITERATIONS, curve.bound, "--" if kind == 3 else "-", color=_MOMENTA[kind], lw=1.8, label=label)
        panel.semilogy(ITERATIONS, curve.exact, ":", color=_MOMENTA[kind], lw=1.2)
        panel.set_title(f"step α = {curve.alpha:g}/L, noise $c_w$ = {curve.noise:g}", fontsize=11)
    for panel, alpha, row, wrong in zip(axes[2], ALPHAS, rates(published), rates(True), strict=True):
        if not published:
            panel.plot(BETA_GRID, wrong, ":", color=figures.GREY, lw=1.6, label="as published (Nesterov's)")
        panel.plot(
            BETA_GRID,
            row,
            color=figures.STYLES["DP-HB"].colour,
            lw=1.8,
            label="printed rate" if published else "heavy ball's rate",
        )
        beta = optimal_momentum(alpha, published)
        rate = published_rate(MU, L, alpha, beta) if published else es.bounds.rate(es.heavy_ball, MU, L, alpha, beta)
        panel.plot(beta, rate, "o", color=_MOMENTA[3], ms=7, label=f"β = {beta:.3f}, rate {rate:.3f}")
        panel.set_title(f"step α = {alpha:g}/L", fontsize=11)
        panel.set_xlabel("momentum β")
        panel.legend(loc="lower left", frameon=False, fontsize=9)
    _label_first(figure, axes, published)


def _label_first(figure: Any, axes: Any, published: bool) -> None:
    """Set limits, titles and the legend of figure 1."""
    axes[0, 0].set_ylim(1e-2, 2e5)
    axes[1, 0].set_ylim(1e-6, 2e5)
    axes[2, 0].set_ylim(0.5, 1.02)
    for panel in axes.flat:
        panel.grid(alpha=0.3, which="major")
    for panel in axes[:2].flat:
        panel.set_xlabel("iterations T")
    for panel, text in zip(axes[:, 0], ("bound on the error", "bound on the error", "rate ρ"), strict=True):
        panel.set_ylabel(text)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    version = "as published" if published else "corrected"
    title = f"Figure 1, {version}: heavy ball on a quadratic, μ = {MU:g}, L = {L:g} (dotted: the exact error)"
    figure.suptitle(title, fontsize=13)


def _draw_second(figure: Any, published: bool) -> None:
    """Fill figure 2: the best noise scale of every step, for 2 to 5 stages."""
    axes = figure.subplots(1, len(STAGES), sharey=True)
    for panel, K in zip(axes, STAGES, strict=True):
        best = split(K, published)
        panel.semilogy(np.arange(1, len(best.scale) + 1), best.scale, color=figures.STYLES["DP-MASG"].colour, lw=1.8)
        for start in np.flatnonzero(np.diff(best.stage)):
            panel.axvline(start + 1.5, color=figures.GREY, lw=0.8, ls="--")
        panel.set_title(f"{K} stages, T = {len(best.scale)}", fontsize=11)
        panel.set_xlabel("iteration t")
        panel.grid(alpha=0.3, which="major")
    axes[0].set_ylabel("noise scale $b_t$ × nε/S₁")
    version = "as published" if published else "corrected"
    title = f"Figure 2, {version}: best noise scales of multistage Nesterov (μ = 1, L = 20)"
    figure.suptitle(title, fontsize=13)
