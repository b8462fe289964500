"""Do repeated fits of real tables cover what they print? Records are drawn from a table with replacement.

The table itself is then the population, and its minimum is known. Tables are fitted by estimators, as people fit them,
and what counts is the table that a summary prints: each coefficient, and each level against the mean of its category.
"""

import json
import time
from argparse import Namespace
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_parts.encodings import Encoding, from_names
from pandas import DataFrame

import epsteps as es
from epsteps.auditing.experiments import Population, minimiser
from epsteps.methods.intervals.table import Intervals

TARGETS = ("population", "sample")


@dataclass(frozen=True)
class Printed:
    """A table, some of its columns (all by default), and the budget of a fit."""

    name: str
    epsilon: float
    columns: tuple[str, ...] = ()
    robust: bool = True

    @property
    def title(self) -> str:
        """The row in words."""
        of = "all columns" if not self.columns else ", ".join(self.columns)
        return f"{self.name}, epsilon {self.epsilon:g}{', robust' if self.robust else ''}: {of}"

    def read(self, folder: Path) -> "Fits":
        """Return the table, encoded by public ranges."""
        with np.load(folder / f"{self.name}.npz") as stored:
            X, y, names = stored["X_train"].astype(float), stored["y_train"], [str(n) for n in stored["feature_names"]]
        kept = [j for j, name in enumerate(names) if not self.columns or name.partition("=")[0] in self.columns]
        names = [names[j] for j in kept]
        return Fits(self, X[:, kept], y.astype(float), names, from_names(self.name, names), y.dtype.kind == "i")


@dataclass(frozen=True, eq=False)
class Fits:
    """Estimators of one table."""

    row: Printed
    X: np.ndarray
    y: np.ndarray
    names: list[str]
    encoding: Encoding
    labels: bool

    def estimator(self, seed: int) -> Any:
        """Return the estimator, not fitted."""
        kind = es.PrivateLogisticRegression if self.labels else es.PrivateHuberRegressor
        targets = {"classes": (-1.0, 1.0)} if self.labels else {"target_bounds": (-1.0, 1.0)}
        bounds = {"bounds": (self.encoding.low, self.encoding.high), "one_hot": self.encoding.one_hot}
        options = {"intervals": 0.95, "robust": self.row.robust, "random_state": seed, "anyway": True}
        return kind(self.row.epsilon, **bounds, **targets, **options)

    @cached_property
    def truth(self) -> np.ndarray:
        """The minimum over the table of what a fit minimises."""
        model = self.estimator(0)
        plan = model.plan(*self.X.shape)
        X = model._declared(self.X.shape[1]).scaled(self.X)
        return Population.of((X, model.comparable(self.y)), plan.problem, 0).minimum(plan.minimised)

    def summary(self) -> str:
        """Return what one fit of the table itself prints."""
        model = self.estimator(0).fit(DataFrame(self.X, columns=self.names), self.y)
        return model.summary(contrasts="levels" if self.encoding.one_hot else None)

    def fit(self, number: int) -> dict:
        """Return what one fit printed, and what of it is covered."""
        rows = np.random.default_rng([number, 5]).integers(len(self.y), size=len(self.y))
        model = self.estimator(number).fit(self.X[rows], self.y[rows])
        plan = model.plan_
        sample = model._rows(plan.problem, self.X[rows], model.comparable(self.y[rows])).restated(plan.minimised)
        minima = {"population": self.truth, "sample": minimiser(sample)}
        found: dict[str, Any] = {"row": self.row.title, "number": number}
        contrasts = "levels" if self.encoding.one_hot else None
        for target in TARGETS:
            printed = model.confint(target=target, contrasts=contrasts)
            aim = model._terms().intervals(_exactly(minima[target]), contrasts).coef
            found[target] = ((printed.low <= aim) & (aim <= printed.high)).astype(int).tolist()
            found |= {"kind": printed.kind, f"{target} width": float(np.median(printed.stderr))}
        return found


def _exactly(x: np.ndarray) -> Any:
    """Return what answers for contrasts with those of x itself, so that they are told in the same terms."""

    def ask(contrasts: np.ndarray) -> Intervals:
        told, nothing = contrasts @ x, np.zeros(len(contrasts))
        return Intervals((), told, told, told, nothing, nothing, "measured", 0.95, "sample", ())

    return ask


BANK = ("age/100", "slog_balance", "day/31", "log_duration", "log_campaign", "housing", "loan")
ROWS = (
    Printed("california", 4.0, ("med_income/15", "house_age/52", "log_population", "log_rooms_per_hh", "lat(32..42)")),
    Printed("bank", 2.0, (*BANK, "marital", "education", "contact")),
    Printed("ijcnn1", 2.0),
    Printed("bank", 4.0, robust=False),
    Printed("california", 4.0),
)


def measure(options: Namespace) -> None:
    """Fit every table so often, as long as time is left."""
    known = {(fit["row"], fit["number"]) for fit in read(options.out)}
    end = time.monotonic() + 60 * options.minutes
    for row in ROWS:
        fits = row.read(options.data)
        for number in range(options.replications):
            if time.monotonic() > end:
                return
            if (row.title, number) not in known:
                with options.out.open("a") as file:
                    file.write(json.dumps(fits.fit(number)) + "\n")
        if options.summaries:
            print(fits.summary())


def read(path: Path) -> list[dict]:
    """Return the fits of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def markdown(fits: list[dict]) -> str:
    """Return the share of printed intervals that covered, for each table."""
    lines = [
        "| table | fits | numbers | measured | population: covered ± se | worst | sample: covered ± se | worst |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for title in dict.fromkeys(fit["row"] for fit in fits):
        some = [fit for fit in fits if fit["row"] == title]
        cells = [title, str(len(some)), str(len(some[0]["population"]))]
        cells.append(f"{np.mean([fit['kind'] == 'measured' for fit in some]):.0%}")
        for target in TARGETS:
            hits = np.array([fit[target] for fit in some])
            error = np.std(hits.mean(axis=1), ddof=1) / np.sqrt(len(hits))
            cells += [f"{hits.mean():.3f} ± {error:.3f}", f"{hits.mean(axis=0).min():.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
