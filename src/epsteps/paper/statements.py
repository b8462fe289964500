"""What the paper concludes from its experiments, as statements that a sweep confirms or refutes.

Each is judged on mean final gaps. "Best" is over the numbers of iterations tried.
"""

from dataclasses import dataclass

import epsteps as es
from epsteps.paper.compare import ALGORITHMS
from epsteps.paper.sweep import Curve, Sweep

# What the paper's own figures have, and the fewest runs whose means are told apart.
RECORDS, _HORIZONS, _FEWEST = 100_000, (100, 200, 500, 1000), 10


@dataclass(frozen=True)
class Verdict:
    """A statement of the paper's section 5, whether it holds in a sweep, and the numbers."""

    statement: str
    holds: bool
    evidence: str


class Gaps:
    """Final gaps of one variant, by algorithm, batch, step factor and number of iterations."""

    def __init__(self, curves: list[Curve]) -> None:
        self._curves = {
            (c.configuration.algorithm, c.configuration.m, c.configuration.c, c.configuration.T): c for c in curves
        }
        self.horizons = sorted({key[3] for key in self._curves})
        self.batches = sorted({key[1] for key in self._curves}, reverse=True)
        self.factors = sorted({key[2] for key in self._curves})

    def final(self, algorithm: str, m: int, c: float, T: int) -> float:
        """Return the final gap of one configuration."""
        return self._curves[algorithm, m, c, T].final

    def used(self, algorithm: str, m: int, c: float, T: int) -> int:
        """Return the iterations that a configuration really used."""
        return self._curves[algorithm, m, c, T].iterations

    def best_horizon(self, algorithm: str, m: int, c: float) -> int:
        """Return the number of iterations with the smallest final gap."""
        return min(self.horizons, key=lambda T: self.final(algorithm, m, c, T))

    def best(self, algorithm: str, m: int, c: float) -> float:
        """Return the smallest final gap over the numbers of iterations."""
        return min(self.final(algorithm, m, c, T) for T in self.horizons)


def too_small(sweep: Sweep, records: int) -> list[str]:
    """Return why a sweep says nothing about the paper's statements; nothing where it does."""
    reasons = []
    if records != RECORDS:
        reasons.append(f"it has {records} records, and the paper's figures {RECORDS}")
    if missing := [T for T in _HORIZONS if T not in sweep.horizons]:
        reasons.append(f"T = {', '.join(map(str, missing))} was not run")
    if sweep.repetitions < _FEWEST:
        reasons.append(f"means of {sweep.repetitions} runs vary too much (at least {_FEWEST} are needed)")
    return reasons


def verdicts(curves: list[Curve]) -> list[Verdict]:
    """Judge every statement that the sweep covers (some need both step factors, or both batches)."""
    gaps = Gaps(curves)
    small, large = gaps.factors[0], gaps.factors[-1]
    judged = []
    for m in gaps.batches:
        judged += [rule(gaps, m, large) for rule in (_opt_is_best, _opt_prefers_few, _gd_wins_at_the_longest)]
        judged += [_accelerated_beat_gd(gaps, m, c) for c in gaps.factors]
        judged.append(_best_horizons(gaps, m, large))
        if small < large:
            judged += [_masg_needs_its_step(gaps, m, small, large), _nag_opt_is_robust(gaps, m, small)]
    if len(gaps.batches) > 1:
        full, sampled = gaps.batches[0], gaps.batches[-1]
        judged += [_full_batch_is_better(gaps, full, sampled, large), _sampling_saves_noise(gaps, full, sampled)]
    return judged


def _accelerated_beat_gd(gaps: Gaps, m: int, c: float) -> Verdict:
    best = {name: gaps.best(name, m, c) for name in ("DP-GD", "DP-HB", "DP-NAG", "DP-NAG-opt")}
    return _verdict(
        f"m = {m}, c = {c:g}: DP-HB, DP-NAG and DP-NAG-opt, each at its best T, beat DP-GD",
        max(value for name, value in best.items() if name != "DP-GD") < best["DP-GD"],
        best,
    )


def _opt_is_best(gaps: Gaps, m: int, c: float) -> Verdict:
    best = {name: gaps.best(name, m, c) for name in ALGORITHMS}
    others = [value for name, value in best.items() if not name.endswith("-opt")]
    return _verdict(
        f"m = {m}, c = {c:g}: DP-NAG-opt and DP-MASG-opt have the best results of all",
        max(best["DP-NAG-opt"], best["DP-MASG-opt"]) < min(others),
        best,
    )


def _opt_prefers_few(gaps: Gaps, m: int, c: float) -> Verdict:
    longest = gaps.horizons[-1]
    used = {name: float(gaps.used(name, m, c, longest)) for name in ("DP-NAG-opt", "DP-MASG-opt")}
    return _verdict(
        f"m = {m}, c = {c:g}: the -opt variants use few of the {longest} iterations allowed (less than a third)",
        max(used.values()) < longest / 3,
        used,
    )


def _gd_wins_at_the_longest(gaps: Gaps, m: int, c: float) -> Verdict:
    longest = gaps.horizons[-1]
    final = {name: gaps.final(name, m, c, longest) for name in ("DP-GD", "DP-HB", "DP-NAG")}
    return _verdict(
        f"m = {m}, c = {c:g}: at T = {longest} DP-GD reaches a smaller error than DP-HB and DP-NAG",
        final["DP-GD"] < min(final["DP-HB"], final["DP-NAG"]),
        final,
    )


def _masg_needs_its_step(gaps: Gaps, m: int, small: float, large: float) -> Verdict:
    best = {f"c = {c:g}": gaps.best("DP-MASG", m, c) for c in (small, large)}
    ratio = best[f"c = {small:g}"] / best[f"c = {large:g}"]
    return _verdict(
        f"m = {m}: DP-MASG suffers from c = {small:g} (its best gap is more than 3 times larger)", ratio > 3, best
    )


def _nag_opt_is_robust(gaps: Gaps, m: int, small: float) -> Verdict:
    best = {name: gaps.best(name, m, small) for name in ("DP-NAG-opt", "DP-MASG-opt")}
    return _verdict(
        f"m = {m}, c = {small:g}: DP-NAG-opt is more robust to a small step than DP-MASG-opt",
        best["DP-NAG-opt"] < best["DP-MASG-opt"],
        best,
    )


def _full_batch_is_better(gaps: Gaps, full: int, sampled: int, c: float) -> Verdict:
    names = ("DP-HB", "DP-NAG", "DP-NAG-opt", "DP-MASG-opt")
    ratios = {name: gaps.best(name, sampled, c) / gaps.best(name, full, c) for name in names}
    return _verdict(
        f"c = {c:g}: all records (m = {full}) are better than {sampled}, for the accelerated algorithms, by less than "
        "an order of magnitude",
        min(ratios.values()) > 1 and max(ratios.values()) < 10,
        ratios,
    )


def _best_horizons(gaps: Gaps, m: int, c: float) -> Verdict:
    best = {name: float(gaps.best_horizon(name, m, c)) for name in ("DP-HB", "DP-GD")}
    few, many = gaps.horizons[0], gaps.horizons[-1]
    return _verdict(
        f"m = {m}, c = {c:g}: DP-HB is best at T = {few}, and DP-GD at T = {many}",
        best == {"DP-HB": few, "DP-GD": many},
        {f"best T of {name}": value for name, value in best.items()},
    )


def _sampling_saves_noise(gaps: Gaps, full: int, sampled: int) -> Verdict:
    """Compare the Laplace scales that epsilon = 1 needs, evenly split, for a sensitivity of 1: no run is needed."""
    ratios = {
        f"T = {T}": es.budgets.required_scale(1.0, 1 / T, full, sampled)
        / es.budgets.required_scale(1.0, 1 / T, full, full)
        for T in gaps.horizons
    }
    return _verdict(
        f"sampling {sampled} of {full} records decreases the noise that privacy needs (scale over that of all records)",
        max(ratios.values()) < 1,
        ratios,
    )


def _verdict(statement: str, holds: bool, numbers: dict[str, float]) -> Verdict:
    return Verdict(statement, bool(holds), ", ".join(f"{name} {value:.3g}" for name, value in numbers.items()))
