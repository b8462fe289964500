"""The table of intervals: what is printed, drawn and written."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from epsteps.methods import figures
from epsteps.methods.intervals import posterior
from epsteps.methods.intervals.posterior import Released
from epsteps.problem import validate
from epsteps.problem.problem import Problem

if TYPE_CHECKING:
    from numpy.random import Generator

TARGETS = ("population", "sample")
# Levels beyond need more draws than are made.
LEVELS = (0.5, 0.99)
_WIDTH = 78
# What intervals follow from where nothing was bought for them.
_BASIS = "the ridge alone, and are wide"
_OF_LEVELS = "Levels: each against the mean of its category's levels, which the intercept takes."
# What sampling rests on without a dispersion, with one of all coefficients, and with one of each.
_SAMPLING = (
    "Sampling: rests on the model being true (its slopes vary as much as the loss is curved).",
    "Sampling: rests on slopes that vary by one released factor of the curvature in every direction.",
    "Sampling: how much more slopes vary than the loss is curved was released for each coefficient; contrasts take "
    "correlations from the curvature.",
)
# What contrasts are: nothing, "levels", a matrix with a row for each, or rows by their names.
Contrasts = str | np.ndarray | Mapping[str, Sequence[float]] | None


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals for coefficients, or for contrasts of them: coef between low and high.

    Parameters
    ----------
    names : tuple of str
        What each row is.
    coef, low, high : arrays
        The published value, and the ends of its interval.
    stderr : array
        Half of the interval's width over the normal quantile of the level: coef ± 1.96 stderr is the interval of level
        0.95. (The distances are not Gaussian: for another level ask again.)
    privacy : array
        The share of the interval, in squares, that is noise for privacy; the rest is sampling.
    kind : "measured" or "provable"
        Whether curvature was measured, and coverage simulated; or whether the width is an upper bound that is proved.
    level, target : float, str
        What was asked for.
    notes : tuple of str
        What the numbers mean, and what they rest on.
    """

    names: tuple[str, ...]
    coef: np.ndarray
    low: np.ndarray
    high: np.ndarray
    stderr: np.ndarray
    privacy: np.ndarray
    kind: str
    level: float
    target: str
    notes: tuple[str, ...]

    def told(self, names: Sequence[str], offset: np.ndarray, *notes: str) -> "Intervals":
        """Return the same rows by other names, moved by what no noise is in, and with more notes."""
        moved = {name: getattr(self, name) + offset for name in ("coef", "low", "high")}
        return replace(self, names=tuple(names), notes=(*self.notes, *notes), **moved)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON holds it."""
        numbers = {name: getattr(self, name).tolist() for name in ("coef", "low", "high", "stderr", "privacy")}
        return {
            "names": list(self.names),
            **numbers,
            "kind": self.kind,
            "level": self.level,
            "target": self.target,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        ends = [f"[{(1 - self.level) / 2:.4g}", f"{(1 + self.level) / 2:.4g}]"]
        of = "the population's minimum" if self.target == "population" else "the sample's minimum"
        title = f"{self.level:.4g} intervals for {of}: " + (
            "measured" if self.kind == "measured" else "at most" + " (proved)" * (self.target == "sample")
        )
        rows = [
            f"{_cut(name, 25):25s}{_shown(coef)}{_shown(stderr)}{_shown(low)}{_shown(high)}{share:>9.0%}"
            for name, coef, stderr, low, high, share in zip(
                self.names, self.coef, self.stderr, self.low, self.high, self.privacy, strict=True
            )
        ]
        head = f"{'':25s}{'coef':>11s}{'std err':>11s}{ends[0]:>11s}{ends[1]:>11s}{'privacy':>9s}"
        notes = [line for note in self.notes for line in textwrap.wrap(note, _WIDTH, subsequent_indent="  ")]
        return "\n".join([title.center(_WIDTH).rstrip(), "=" * _WIDTH, head, "-" * _WIDTH, *rows, "=" * _WIDTH, *notes])

    def plot(self, ax: Any = None) -> Any:
        """Draw the intervals, one line each, and return the axes: given ones, or those of a new figure."""
        if ax is None:
            figure = validate.require("matplotlib.figure", "plots", "drawing intervals").Figure
            ax = figure(figsize=(7, 1.2 + 0.28 * len(self.names)), layout="constrained").subplots()
        places = np.arange(len(self.names))[::-1]
        proved = self.kind == "provable"
        ax.axvline(0, color="0.7", lw=1)
        ax.hlines(places, self.low, self.high, color=figures.BLUE, lw=1.5 if proved else 3, ls=":" if proved else "-")
        ax.plot(self.coef, places, "o", color=figures.BLUE, ms=5)
        ax.set_yticks(places, self.names)
        ax.set_ylim(-0.7, len(self.names) - 0.3)
        ax.set_xlabel(f"coefficient, with its {self.level:.4g} interval" + (" at most" if proved else ""))
        ax.grid(alpha=0.3, axis="x")
        return ax


@dataclass(frozen=True, eq=False)
class Terms:
    """What coefficients are to people: rows @ x + offset, such as in the units of their columns and targets.

    Parameters
    ----------
    names : sequence of str
        One for each row.
    rows, offset : arrays
        (rows, D) and (rows,): the map from a published model to what is told of it.
    categories : sequence of (start, stop)
        Ranges of the rows that are the levels of one category each.
    intercept : bool
        Whether the last row is that of an intercept, which takes the mean of such levels.
    """

    names: Sequence[str]
    rows: np.ndarray
    offset: np.ndarray
    categories: Sequence[tuple[int, int]] = ()
    intercept: bool = False

    def intervals(self, ask: Callable[..., Intervals], contrasts: Contrasts = None, **asked: Any) -> Intervals:
        """Return intervals for what is told, or for contrasts of it; ``ask`` gives those for rows of numbers of x."""
        labels, wanted = _directions(self.names, contrasts, self.categories, self.intercept)
        notes = [_OF_LEVELS] if isinstance(contrasts, str) else []
        return ask(contrasts=wanted @ self.rows, **asked).told(labels, wanted @ self.offset, *notes)


def intervals_of(
    released: Released,
    generator: "Generator",
    *,
    names: Sequence[str],
    level: float = 0.95,
    target: str = "population",
    contrasts: Contrasts = None,
    categories: Sequence[tuple[int, int]] = (),
    intercept: bool = False,
    asked_ridge: float | None = None,
    changes: Sequence[str] = (),
    basis: str = _BASIS,
) -> Intervals:
    """Return intervals from published numbers: measured where these support it, and otherwise those that are proved.

    Parameters
    ----------
    released, generator
        What was published, and a generator with a public seed of its own.
    names : sequence of str
        One for each coefficient, the intercept's last.
    level, target
        How probable it is to cover, and what: the minimum of the population, or that of the sample, from which the
        published model is separated by noise for privacy alone.
    contrasts : None, "levels", matrix or mapping
        What is asked for in the place of coefficients: each level of a category against the mean of its category's
        levels; rows of a matrix; or rows by their names.
    categories : sequence of (start, stop)
        Ranges of the columns that encode one category each.
    intercept : bool
        Whether the last coefficient is one.
    asked_ridge : float, optional
        The problem's own ridge, which the minimised objective's may exceed.
    changes : sequence of str
        In what else the minimised objective differs from the declared one, in words.
    basis : str
        What they follow from where no curvature was bought, in words.
    """
    validate.choice("target", target, TARGETS)
    if len(names) != released.dimension:
        raise ValueError(f"names must be one for each of {released.dimension} coefficients, got {len(names)}.")
    if not LEVELS[0] <= level <= LEVELS[1]:
        raise ValueError(f"level must be between {LEVELS[0]} and {LEVELS[1]}, got {level!r}.")
    if target == "population" and not released.has_sampling:
        raise ValueError(
            "nothing was released of how far slopes vary, which intervals for the population need with this loss: "
            "plan with intervals=0.95, or ask for target='sample'."
        )
    names, directions = _directions(names, contrasts, categories, intercept)
    sampled = target == "population"
    gate = None if released.matrix is None else posterior.gate_of(released, generator)
    distances = posterior.measured(released, gate, generator) if gate is not None and gate.is_open else None
    if distances is not None:
        half, alone = (distances.half_widths(directions, level, each) for each in (sampled, False))
    else:
        half = posterior.proved(released, generator, directions, level, sampled)
        alone = posterior.proved(released, generator, directions, level, False) if sampled else half
    coef = directions @ released.x
    return Intervals(
        names=names,
        coef=coef,
        low=coef - half,
        high=coef + half,
        stderr=half / float(ndtri((1 + level) / 2)),
        privacy=np.minimum(alone / half, 1.0) ** 2,
        kind="provable" if distances is None else "measured",
        level=level,
        target=target,
        notes=(
            _target(released.ridge, asked_ridge, changes),
            _told(gate, distances is not None, basis),
            *([_SAMPLING[min(0 if released.dispersion is None else np.size(released.dispersion[0]), 2)]] * sampled),
            *([_OF_LEVELS] * isinstance(contrasts, str)),
        ),
    )


def intervals_for(
    problem: Problem,
    released: Released,
    generator: "Generator",
    *,
    level: float | None = None,
    target: str | None = None,
    names: Sequence[str] | None = None,
    **asked: Any,
) -> Intervals:
    """Return intervals for the coefficients of a problem, by their places if they have no names.

    The target is the population's minimum where it is known how samples vary, and otherwise the sample's.
    """
    single = problem.loss.outputs == 1
    return intervals_of(
        released,
        generator,
        names=coefficient_names(problem) if names is None else names,
        level=0.95 if level is None else level,
        target=target or ("population" if released.has_sampling else "sample"),
        categories=problem.domain.categories if single else (),
        intercept=problem.intercept and single,
        **asked,
    )


def coefficient_names(problem: Problem) -> list[str]:
    """Return names for the coordinates of x: columns by their numbers, for each output of the loss."""
    columns = [f"x{j}" for j in range(problem.d)] + ["intercept"] * problem.intercept
    if problem.loss.outputs == 1:
        return columns
    return [f"{output}: {column}" for output in range(problem.loss.outputs) for column in columns]


def _directions(
    names: Sequence[str], contrasts: Contrasts, categories: Sequence[tuple[int, int]], intercept: bool
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return what is asked for, as rows of a matrix, and their names."""
    D = len(names)
    if contrasts is None:
        return tuple(names), np.eye(D)
    if isinstance(contrasts, str):
        validate.choice("contrasts", contrasts, ("levels",))
        return tuple(names), _levels(D, categories, intercept)
    if isinstance(contrasts, Mapping):
        labels, rows = tuple(contrasts), np.array(list(contrasts.values()), dtype=float)
    else:
        rows = np.asarray(contrasts, dtype=float)
        labels = tuple(f"contrast {i + 1}" for i in range(len(rows)))
    if rows.ndim != 2 or rows.shape[1] != D or not np.all(np.isfinite(rows)) or not np.all(np.any(rows, axis=1)):
        raise ValueError(f"contrasts must be rows of {D} finite numbers, none of them all 0, got shape {rows.shape}.")
    return labels, rows


def _levels(D: int, categories: Sequence[tuple[int, int]], intercept: bool) -> np.ndarray:
    """Return levels against the mean of their category's levels, which an intercept takes; other rows as they are.

    Along (1, ..., 1; -1 for the intercept) every model predicts the same: nothing but the ridge tells where it is.
    """
    rows = np.eye(D)
    for start, stop in categories:
        rows[start:stop, start:stop] -= 1 / (stop - start)
        if intercept:
            rows[-1, start:stop] += 1 / (stop - start)
    return rows


def _target(ridge: float, asked_ridge: float | None, changes: Sequence[str]) -> str:
    """Return what the intervals are for: the minimum of what was minimised."""
    own = "" if asked_ridge is None or asked_ridge == ridge else f" (yours: {asked_ridge:.3g})"
    facts = "; ".join([f"ridge {ridge:.3g}{own}", *changes])
    shrinks = "these change them" if changes else "the ridge shrinks them"
    return f"Target: coefficients of the problem with {facts}. What {shrinks} by is not in the intervals."


def _told(gate: posterior.Gate | None, measured: bool, basis: str) -> str:
    """Return what the intervals follow from."""
    if gate is None:
        return f"At most: no curvature was bought, so that these follow from {basis}."
    if measured:
        return (
            "Measured: the curvature was released with noise, and what that noise leaves open is in the intervals. "
            "Their coverage was simulated, and is not proved."
        )
    return (
        f"At most: in some direction the released curvature ({gate.least:.2g}) does not exceed its noise enough "
        f"({gate.threshold:.2g}), so that these follow from what is proved, and are wide. "
        "Fewer or less correlated columns, tighter ranges, more records or more epsilon make curvature visible."
    )


def _shown(number: float) -> str:
    """Return a number in 11 columns: four decimals where these say enough."""
    return f"{number:>11.4f}" if number == 0 or 1e-2 <= abs(number) < 1e5 else f"{number:>11.3g}"


def _cut(name: str, width: int) -> str:
    return name if len(name) < width else name[: width - 2] + "…"
