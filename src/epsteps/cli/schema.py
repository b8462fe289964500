"""``epsteps schema``: what is declared of a table's columns."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

import epsteps as es
from epsteps.cli import common
from epsteps.cli import common as files
from epsteps.cli.common import make_budget, print_table, shown, shown_lines
from epsteps.cli.fit import account_of, require_consent

if TYPE_CHECKING:
    from epsteps.budgets import Budget
    from epsteps.tables import Schema, SchemaCheck

schema = common.Commands(
    "schema", "Declare what a table's columns hold: ranges and categories that are known without the data."
)


@schema.command("draft")
def draft_schema(
    data: common.TableFile,
    out: common.InsteadOfScreen = None,
    target: str | None = Option(None, help="The column to predict."),
    delimiter: common.Delimiter = "comma",
    encoding: common.Encoding = "utf-8",
    force: common.Force = False,
) -> None:
    """Draft a schema from a table, to be corrected by hand: NOT private, since its ranges are read from the data.

    Replace every range and category by what is known without this data. The draft is refused until its line
    drafted_from_data is removed.
    """
    from epsteps.tables import draft

    files.require_free([out], force)
    text = draft(data, target=target, delimiter=common.DELIMITERS[delimiter], encoding=encoding)
    if out is None:
        typer.echo(text)
        return
    files.write(out, text, force=force)
    left = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# [columns.")]
    for line in left:
        common.say(shown(line.split(",")[0].rstrip(".") + "."))
    common.say(f"Wrote {out}. Its ranges and categories were READ FROM THE DATA: replace them by public ones.")


@schema.command("show")
def show_schema(path: Annotated[Path, Argument(metavar="SCHEMA", help="The schema: a .toml file.")]) -> None:
    """Print what a schema declares, and how many features it makes. No data is read."""
    declared = es.Schema.read(path)
    print_table(_declared_table(declared))
    columns = len(declared.features)
    typer.echo(f"{declared.d} features from {columns} column{'s' if columns > 1 else ''}.")


@schema.command("check")
def check_schema(
    data: common.TableFile,
    path: Annotated[Path, Option("--schema", help="The schema: a .toml file.", show_default=False)],
    delimiter: common.Delimiter = "comma",
    encoding: common.Encoding = "utf-8",
) -> None:
    """Count what of a table is outside what its schema declares: for the data holder's own eyes, on a terminal only.

    The counts tell about single records. A schema that is changed because of them is no longer public knowledge.
    """
    from epsteps.tables import read_columns

    declared = es.Schema.read(path)
    if not on_terminal():
        raise ValueError(
            "the counts of epsteps schema check tell about single records: they are shown on a terminal only, "
            "and not written to a file or a pipe."
        )
    columns = read_columns(data, list(declared.columns), delimiter=common.DELIMITERS[delimiter], encoding=encoding)
    print_table(_check_table(declared, declared.check(columns)))
    typer.echo("For the data holder's own eyes: not private. A run clips and maps these values, and says nothing.")


@schema.command("bounds")
def buy(
    data: common.TableFile,
    path: Annotated[Path, Option("--schema", help="The schema: a .toml file.", show_default=False)],
    out: Annotated[Path, Option(help="Write the schema with the bought ranges here.", show_default=False)],
    epsilon: float | None = Option(None, help="What may be spent: a twentieth of what the model may cost is usual."),
    delta: common.Delta = None,
    rho: common.Rho = None,
    column: list[str] | None = Option(None, help="Buy a range for this column; may be repeated. By default unknown."),
    low: float | None = Option(None, help="The share of the records below the low end; goes with --high."),
    high: float | None = Option(None, help="The share of the records below the high end; goes with --low."),
    norm: Literal["1", "2"] | None = Option(None, help="Buy a radius of the numbers of the records, too."),
    ledger: Path | None = Option(None, help="Charge this ledger before noise is drawn; see epsteps ledger."),
    dataset: str | None = Option(None, help="The ledger's name for these records; goes with --ledger."),
    delimiter: common.Delimiter = "comma",
    encoding: common.Encoding = "utf-8",
    seed: int | None = Option(None, help="Makes the purchase repeatable and NOT private: for experiments."),
    yes: bool = Option(False, "--yes", help="Run the plan without asking."),
    json: bool = Option(False, "--json", help="Print what was bought as JSON, and the plan to stderr."),
    force: common.Force = False,
) -> None:
    """Buy the ranges of columns that nobody knows, and write them into the schema with what they cost.

    Columns of unknown range are declared with type = "unbounded". The plan is printed first; it uses the number of rows
    (public) but none of their values.
    """
    declared, budget = es.Schema.read(path), required_budget(epsilon, delta, rho)
    account = account_of(ledger, dataset)
    files.require_free([out], force)
    if (low is None) != (high is None):
        raise ValueError("--low and --high go together.")
    table = declared.load(data, delimiter=common.DELIMITERS[delimiter], encoding=encoding)
    quantiles = None if low is None or high is None else (low, high)
    options = {"columns": column or None, "quantiles": quantiles, "norm": None if norm is None else int(norm)}
    planned = es.bounds_plan(declared, len(next(iter(table.values()))), budget, **options)  # pyright: ignore[reportArgumentType]
    common.say(f"{planned}\n", err=json)
    if seed is not None:
        warning = "NOT PRIVATE: a seed makes the noise repeatable. Keep what follows as secret as the records."
        typer.echo(warning, err=json or common.is_quiet())
    require_consent(yes, json)
    with files.opened([out], force) as (output,):
        bought = es.buy_bounds(declared, table, planned, seed=seed, ledger=account)
        text = ("# NOT PRIVATE: bought with a seed.\n" if bought.seeded else "") + bought.schema.to_toml()
        keep(output, text)
    common.answer(bought.to_dict(), f"{shown_lines(str(bought))}\nWrote {out}.", as_json=json)


def required_budget(epsilon: float | None, delta: float | None, rho: float | None) -> Budget:
    """Return the budget that the options declare, or raise if they declare none."""
    if epsilon is None and rho is None:
        raise ValueError("nothing says what may be spent: add --epsilon, with or without --delta, or --rho.")
    if epsilon is not None and rho is not None:
        raise ValueError("--epsilon and --rho do not go together: a budget is epsilon, epsilon with delta, or rho.")
    return make_budget(epsilon or 0.0, delta, rho)


def keep(output: files.Output, text: str) -> None:
    """Write what was paid for; print it if it cannot be written after all."""
    try:
        output.write(text)
    except OSError as error:
        typer.echo(text)
        raise type(error)(f"{output.path} could not be written ({error}): keep what was printed.") from None


def on_terminal() -> bool:
    """Return whether what is printed is seen on a terminal, and nowhere else."""
    return sys.stdout.isatty()


def _declared_table(declared: Schema) -> Table:
    table = Table("column", "declared", "features")
    for name, column in declared.columns.items():
        features = "target" if name == declared.target else str(column.width)
        table.add_row(Text(shown(name)), Text(shown(str(column))), features)
    return table


def _check_table(declared: Schema, check: SchemaCheck) -> Table:
    table = Table("column", title=f"{check.rows} rows", title_justify="left")
    table.add_column("declared", no_wrap=True, overflow="ellipsis", max_width=24)
    for heading in ("empty", "unknown", "below", "above"):
        table.add_column(heading, justify="right")
    table.add_column("most frequent unknown values")
    for column in check.columns:
        counts = (column.empty, column.unknown, column.below, column.above)
        table.add_row(
            Text(shown(column.name)),
            Text(shown(str(declared.columns[column.name]))),
            *(str(count) if count else "" for count in counts),
            Text(", ".join(shown(example[:40]) for example in column.examples)),
        )
    return table
