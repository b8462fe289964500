"""``epsteps serve`` and ``epsteps tokens``: the data holder's service, and who may ask it."""

import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

import epsteps as es
from epsteps.cli import common

_PORT, _ADMIN_PORT = 8440, 8441
_SCOPES = "read,plan,session"

_DEMO_SCHEMA = """\
target = "bought"

[columns.age]
type = "numeric"
low = 18
high = 90

[columns.visits]
type = "numeric"
low = 0
high = 30

[columns.region]
type = "category"
values = ["north", "east", "south", "west"]

[columns.bought]
type = "category"
values = [0, 1]
"""
_DEMO_POLICY = """\
[plans]
per_plan = 1.0
per_analyst = 4.0
per_day = 4.0

[sessions]
per_session = 1.0
"""


def serve(
    data: Annotated[
        Path | None, Argument(metavar="DATA", help="The table: a .csv or .parquet file.", show_default=False)
    ] = None,
    schema: Path | None = Option(None, help="What is declared of its columns: a .toml file."),
    ledger: Path | None = Option(None, help="The ledger that is charged; see epsteps ledger create."),
    tokens: Path | None = Option(None, help="Who may ask: a file of epsteps tokens make."),
    policy: Path | None = Option(None, help="What is approved without a person: a .toml file."),
    dataset: str | None = Option(None, help="The ledger's name for these records; the table's name by default."),
    host: str = Option("127.0.0.1", help="Address to serve on."),
    port: int = Option(_PORT, help="Port for analysts."),
    admin_port: int = Option(_ADMIN_PORT, help="Port for the holder's pages and metrics, on this machine alone."),
    tls_cert: Path | None = Option(None, help="Certificate, for HTTPS."),
    tls_key: Path | None = Option(None, help="Its key."),
    insecure: bool = Option(False, "--insecure", help="Serve plain HTTP to other machines."),
    delimiter: common.Delimiter = "comma",
    demo: bool = Option(
        False, "--demo", help="Serve generated records, and print what an analyst types; nothing else is needed."
    ),
) -> None:
    """Serve a table to analysts: they send plans, or ask for gradients at points of their own, within its budget."""
    import asyncio

    from epsteps.problem.validate import require

    require("fastapi", "serve", "epsteps serve")
    require("uvicorn", "serve", "epsteps serve")
    from epsteps.service import server
    from epsteps.service.holder import Setup
    from epsteps.service.policy import read_tables

    if (tls_cert is None) != (tls_key is None):
        raise ValueError("--tls-cert and --tls-key go together.")
    server.require_safe(host, tls_cert is not None, insecure)
    lines = ""
    with ExitStack() as stack:
        if demo:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="epsteps-demo-")))
            data, schema, ledger, tokens, policy, shown = make_demo(folder)
            lines = demo_lines(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin_port}", shown)
        named = {"DATA": data, "--schema": schema, "--ledger": ledger, "--tokens": tokens}
        missing = [name for name, value in named.items() if value is None]
        if missing:
            raise ValueError(f"{missing[0]} is missing: name it, or try epsteps serve --demo.")
        real = {name: server.real(path) for name, path in named.items() if path is not None}
        setup = Setup(
            real["DATA"],
            real["--schema"],
            real["--ledger"],
            data.stem if dataset is None else dataset,  # pyright: ignore[reportOptionalMemberAccess]
            {} if policy is None else read_tables(policy),
            common.DELIMITERS[delimiter],
        )
        desk = server.Desk(setup, Path(real["--tokens"]))
        tls = None if tls_cert is None or tls_key is None else (str(tls_cert), str(tls_key))
        scheme = "http" if tls is None else "https"

        def ready() -> None:
            typer.echo(
                f"Serving {setup.dataset} at {scheme}://{host}:{port}: n = {desk.n}, answers on ticks of "
                f"{desk.tick:.3g} s.\nThe holder's dashboard: http://127.0.0.1:{admin_port}"
            )
            typer.echo(lines, nl=False)

        with suppress(KeyboardInterrupt):  # which is not raised where a shell lets a job in the background ignore it
            asyncio.run(server.serve(desk, host=host, port=port, admin_port=admin_port, tls=tls, on_ready=ready))
        kept = "What was acknowledged is on the disk, and goes on at the next start."
        typer.echo(f"\nStopped. {'The generated records are removed.' if demo else kept}")


def make_demo(folder: Path, n: int = 20_000) -> tuple[Path, Path, Path, Path, Path, dict[str, str]]:
    """Write generated records with their schema, ledger, policy and tokens, and return the files and the tokens."""
    import numpy as np

    from epsteps.noise.bits import public_generator
    from epsteps.service import tokens as token_file

    generator = public_generator(18)
    age, visits = generator.integers(18, 91, n), generator.poisson(4.0, n).clip(0, 30)
    region = generator.integers(0, 4, n)
    score = 0.04 * (age - 50) + 0.25 * (visits - 4) + np.array([0.6, -0.2, -0.6, 0.2])[region]
    bought = generator.uniform(size=n) < 1 / (1 + np.exp(-score))
    names = np.array(["north", "east", "south", "west"])[region]
    rows = (f"{a},{v},{r},{int(b)}" for a, v, r, b in zip(age, visits, names, bought, strict=True))
    data, schema, ledger, tokens, policy = (
        folder / name for name in ("people.csv", "schema.toml", "budget.db", "tokens.toml", "policy.toml")
    )
    data.write_text("age,visits,region,bought\n" + "\n".join(rows) + "\n", encoding="utf-8")
    schema.write_text(_DEMO_SCHEMA, encoding="utf-8")
    policy.write_text(_DEMO_POLICY, encoding="utf-8")
    es.Ledger(ledger).create("people", es.Pure(4.0), note="the demonstration's generated records")
    analyst, _ = token_file.make(tokens, "analyst", _SCOPES.split(","), days=1)
    admin, _ = token_file.make(tokens, "holder", ["admin"], days=1)
    return data, schema, ledger, tokens, policy, {"analyst": analyst, "admin": admin}


def demo_lines(url: str, dashboard: str, shown: dict[str, str]) -> str:
    """Return what the demonstration prints: three lines for an analyst, and how the holder signs in."""
    return (
        "\nThe records are generated, and nobody's. What an analyst types:\n\n"
        "  import epsteps as es\n"
        f'  people = es.connect("{url}", token="{shown["analyst"]}")["people"]\n'
        '  print(es.run(es.plan(people.problem(), es.Pure(1.0), release="final"), people).x)\n\n'
        f"The holder signs in at {dashboard} with the token {shown['admin']}\n"
        "A plan for more than epsilon = 1 waits there for a person. Ctrl-C ends everything, and removes the records.\n"
    )


tokens = common.Commands("tokens", "Say who may ask a service: the file keeps hashes, and a token is shown once.")
TokenFile = Annotated[Path, Argument(metavar="PATH", help="The file of tokens.", show_default=False)]


@tokens.command()
def make(
    path: TokenFile,
    analyst: Annotated[str, Argument(metavar="NAME", help="Whose token it is.", show_default=False)],
    scopes: str = Option(_SCOPES, help="What it is for: read, plan, session, admin; with commas."),
    days: float = Option(90.0, help="Days until it expires."),
) -> None:
    """Make a token, and print it: it cannot be shown again."""
    from epsteps.service import tokens as token_file

    secret, token = token_file.make(path, analyst, [scope.strip() for scope in scopes.split(",")], days)
    typer.echo(f"Token {token.id} of {token.analyst}, until {token.expires:%Y-%m-%d %H:%M} UTC:", err=True)
    typer.echo(secret)


@tokens.command("list")
def list_tokens(path: TokenFile) -> None:
    """List tokens: their names, whose they are, what they are for, and when they end."""
    from epsteps.service import tokens as token_file

    table = common.make_table("token", "analyst", "scopes", "expires (UTC)")
    for token in token_file.read(path):
        table.add_row(token.id, token.analyst, ", ".join(token.scopes), f"{token.expires:%Y-%m-%d %H:%M}")
    common.print_table(table)


@tokens.command()
def revoke(path: TokenFile, id: Annotated[str, Argument(metavar="TOKEN", help="Its name, as listed.")]) -> None:
    """Revoke a token: a running service refuses it from then on."""
    from epsteps.service import tokens as token_file

    typer.echo(f"Revoked token {id} of {token_file.revoke(path, id).analyst}.")
