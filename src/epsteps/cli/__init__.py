"""The command line."""

import typer

import epsteps
from epsteps.cli.fit import fit, predict
from epsteps.cli.ledger import ledger
from epsteps.cli.paper import compare, reproduce
from epsteps.cli.plan import audit, plan
from epsteps.cli.schema import schema

app = typer.Typer(
    name="epsteps",
    help="Differentially private convex optimisation: how much epsilon each step gets.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(audit)
app.command()(compare)
app.command()(fit)
app.add_typer(ledger)
app.command()(plan)
app.command()(predict)
app.command()(reproduce)
app.add_typer(schema)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"epsteps {epsteps.__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    app()
