"""``epsteps describe``: private counts, means, quantiles and correlations of a table's columns."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Option

import epsteps as es
from epsteps.cli import common
from epsteps.cli import common as files
from epsteps.cli.fit import account_of, require_consent
from epsteps.cli.schema import keep, required_budget


def describe(
    data: common.TableFile,
    schema: Annotated[Path, Option(help="What is declared of its columns: a .toml file.", show_default=False)],
    epsilon: float | None = Option(None, help="Privacy budget, for one record replaced."),
    delta: common.Delta = None,
    rho: common.Rho = None,
    statistic: list[str] | None = Option(
        None, help="counts, means, deviations, quantiles, histograms or correlations; may be repeated."
    ),
    quantile: list[float] | None = Option(
        None, help="A share below a quantile; may be repeated. By default quartiles."
    ),
    bins: int = Option(20, help="Cells of a histogram."),
    level: float = Option(0.95, help="Of the intervals."),
    points: bool = Option(False, "--no-intervals", help="Buy no intervals: quantiles are sharper then."),
    target: Literal["sample", "population"] = Option("sample", help="What the intervals are for."),
    ledger: Path | None = Option(None, help="Charge this ledger before noise is drawn; see epsteps ledger."),
    dataset: str | None = Option(None, help="The ledger's name for these records; goes with --ledger."),
    delimiter: common.Delimiter = "comma",
    encoding: common.Encoding = "utf-8",
    seed: int | None = Option(None, help="Makes the description repeatable and NOT private: for experiments."),
    yes: bool = Option(False, "--yes", help="Run the plan without asking."),
    json: bool = Option(False, "--json", help="Print JSON, and the plan to stderr."),
    out: Path | None = Option(None, help="Write the description to this .json file, too."),
    plot: Path | None = Option(None, help="Draw it to this file, such as description.svg (epsteps[plots])."),
    force: common.Force = False,
) -> None:
    """Describe a table privately: counts, means, deviations, quantiles and correlations, with intervals.

    The plan is printed first. Values outside the schema never stop it: they are moved inside.
    """
    from epsteps.problem import validate

    declared, budget = es.Schema.read(schema), required_budget(epsilon, delta, rho)
    account = account_of(ledger, dataset)
    files.require_free([out, plot], force)
    if plot is not None:
        validate.require("matplotlib.figure", "plots", "drawing a description")  # before anything is charged
    table = declared.load(data, delimiter=common.DELIMITERS[delimiter], encoding=encoding)
    options = {"statistics": statistic or None, "bins": bins, "level": None if points else level, "target": target}
    planned = es.description_plan(
        declared,
        len(next(iter(table.values()))),
        budget,
        **options | ({"quantiles": quantile} if quantile else {}),  # pyright: ignore[reportArgumentType]
    )
    common.say(f"{planned}\n", err=json)
    if seed is not None:
        warning = "NOT PRIVATE: a seed makes the noise repeatable. Keep what follows as secret as the records.\n"
        typer.echo(warning, err=json or common.is_quiet())
    require_consent(yes, json)
    with files.opened([] if out is None else [out], force) as outputs:
        described = es.describe(declared, table, planned, seed=seed, ledger=account)
        content = described.to_dict()
        common.answer(content, common.shown_lines(str(described)), as_json=json)
        for output in outputs:
            keep(output, json_module.dumps(content, indent=1) + "\n")
    if plot is not None:
        described.plot().savefig(plot)
