"""Write the page of all commands from the command line itself: ``python docs/commands.py`` (``docs/commands.md``)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from epsteps.cli import app

PAGE = Path(__file__).with_name("commands.md")
HEAD = """\
# Commands

What `epsteps` can be asked on a command line. This page is written by `docs/commands.py` from the commands
themselves, and a test holds it against them; `epsteps COMMAND -h` says the same.

Exit codes: 0 for success; 1 for something that is missing or does not match, or a budget that does not cover what was
asked for; 2 for a wrong argument. Errors are one line on stderr. Results go to stdout, so that they can be piped;
`--quiet` (`-q`), which every command has, leaves remarks and progress out.

**Completion.** `epsteps --install-completion` makes Tab complete commands, options and their values in the shell that
you are in: bash, zsh or fish. `epsteps --show-completion bash` (or `zsh`, or `fish`) prints the script instead, for a
place of your own:

```sh
epsteps --show-completion bash >> ~/.bashrc
epsteps --show-completion zsh >> ~/.zshrc
epsteps --show-completion fish > ~/.config/fish/completions/epsteps.fish
```
"""
# Every command has these; they are explained above.
EVERYWHERE = ("-q, --quiet", "-h, --help")


def commands(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, Any, Any]]:
    """Yield every command that does something, in the order of their names, with its context."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    context.info_name = name
    if not hasattr(command, "commands"):
        yield context.command_path, command, context
        return
    for child in sorted(command.commands):
        yield from commands(command.commands[child], child, context)


def cell(text: str) -> str:
    """Return text for a cell of a table, in which bars and brackets mean nothing else."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


def section(path: str, command: Any, context: Any) -> str:
    """Return what the page says of a command."""
    usage = " ".join(command.collect_usage_pieces(context))
    paragraphs = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[0] not in EVERYWHERE:
            names, _, kind = record[0].partition(" <") if " <" in record[0] else (record[0], "", "")
            rows.append(f"| `{names}`{' ' + cell('<' + kind) if kind else ''} | {cell(record[1])} |")
    table = "\n".join(["| option | meaning |", "| --- | --- |", *rows]) if rows else ""
    parts = [f"## {path}", *paragraphs, f"```text\n{path} {usage}\n```", table]
    return "\n\n".join(part for part in parts if part)


def page() -> str:
    """Return the whole page."""
    sections = [section(*found) for found in commands(get_command(app), "epsteps")]
    return "\n\n".join([HEAD.rstrip("\n"), *sections]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
