"""The command line."""

import typer
from typer import Option

import epsteps
from epsteps.cli.common import Commands
from epsteps.cli.describe import describe
from epsteps.cli.evaluate import evaluate
from epsteps.cli.fit import fit, intervals, predict
from epsteps.cli.ledger import ledger
from epsteps.cli.paper import compare, reproduce
from epsteps.cli.plan import audit, plan
from epsteps.cli.schema import schema
from epsteps.cli.serve import serve, tokens
from epsteps.cli.verify import verify

app = Commands(
    "epsteps",
    "Differentially private convex optimisation: how much epsilon each step gets.",
    pretty_exceptions_enable=False,
)
for command in (audit, compare, describe, evaluate, fit, intervals):
    app.command()(command)
app.add_typer(ledger)
for command in (plan, predict, reproduce):
    app.command()(command)
app.add_typer(schema)
app.command()(serve)
app.add_typer(tokens)
app.command()(verify)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"epsteps {epsteps.__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: bool = Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    app()
