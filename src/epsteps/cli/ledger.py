"""``epsteps ledger``: the privacy budgets of datasets, in a file."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text
from typer import Argument, Option

import epsteps as es
from epsteps.cli import common
from epsteps.cli import common as files
from epsteps.cli.common import make_table, print_json, print_table, shown

if TYPE_CHECKING:
    from epsteps.ledger import Book

ledger = common.Commands(
    "ledger", "Keep the privacy budgets of datasets in a file: each run is charged before it draws noise."
)
LedgerFile = Annotated[Path, Argument(metavar="PATH", help="The ledger's file.", show_default=False)]
DatasetName = Annotated[str, Argument(metavar="NAME", help="The dataset.", show_default=False)]
Json = Annotated[bool, Option("--json", help="Print JSON instead of a table.")]
_BAR = 20


@ledger.command()
def create(
    path: LedgerFile,
    name: DatasetName,
    epsilon: float | None = Option(None, help="The whole budget: pure epsilon unless --delta."),
    delta: float | None = Option(None, help="Makes the budget (epsilon, delta)."),
    rho: common.Rho = None,
    composition: str = Option(
        "adaptive",
        help="With --delta: adaptive, plain (add up epsilons and deltas), or numerical (sharpest, and only valid "
        "if all costs are fixed before the first release).",
    ),
    note: str = Option("", help="A remark that is stored with the budget."),
    json: Json = False,
) -> None:
    """Declare a dataset and its whole budget, once and for all; makes the file if there is none."""
    if (epsilon is None) == (rho is None):
        raise ValueError("declare the budget by either --epsilon or --rho, e.g. --epsilon 1.")
    budget = common.make_budget(0.0 if epsilon is None else epsilon, delta, rho)
    entry = es.Ledger(path).create(name, budget, composition=composition, note=note)
    if json:
        print_json(entry.to_dict())
    else:
        common.say(f"{path}: dataset {shown(name)} may spend {budget}, for one record replaced.")


@ledger.command()
def show(path: LedgerFile, json: Json = False) -> None:
    """Show what each dataset has spent, and what remains."""
    books = es.Ledger(path).books()
    if json:
        print_json([_summary(book) for book in books])
        return
    table = make_table("dataset", "budget", ">charges", ">spent", ">remaining", "used")
    for book in books:
        share = book.spent / book.budget.amount
        table.add_row(
            Text(shown(book.name)),
            str(book.budget),
            str(len(book.charges)),
            f"{book.spent:.6g}",
            f"{book.remaining:.6g}",
            f"{'█' * round(share * _BAR):<{_BAR}} {share:>6.1%}",
        )
    print_table(table)


@ledger.command()
def history(path: LedgerFile, name: DatasetName, json: Json = False) -> None:
    """List the charges of a dataset."""
    book = es.Ledger(path).book(name)
    if json:
        print_json(_summary(book) | {"history": [entry.to_dict() for entry in book.charges]})
        return
    table = make_table(">entry", "time (UTC)", "cost", "note", "key")
    for entry in book.charges:
        time = entry.time[:19].replace("T", " ")
        table.add_row(str(entry.seq), time, str(entry.cost), Text(shown(entry.note)), Text(shown(entry.key or "")))
    print_table(table)
    typer.echo(f"Spent {book.spent:.6g}, remaining {book.remaining:.6g}, of {book.budget}.")


@ledger.command()
def verify(
    path: LedgerFile,
    head: str | None = Option(None, help="A head that export or verify printed earlier: it must still be there."),
    json: Json = False,
) -> None:
    """Check every entry and every budget; the exit code is 1 if the ledger was changed by hand.

    Of a ledger that a service charged, the requests beside it are checked as well.
    """
    from epsteps.service.store import verify_beside

    checked = es.Ledger(path)
    last = checked.verify(head)
    content, text = {"valid": True, "head": last}, f"{path} is valid; its head is {last}."
    requests = verify_beside(checked)
    if requests is not None:
        content |= {"requests": requests}
        text += f" The requests of its service are valid; their head is {requests}."
    common.answer(content, text, as_json=json)


@ledger.command()
def export(
    path: LedgerFile,
    out: common.InsteadOfScreen = None,
    force: common.Force = False,
    json: bool = Option(False, "--json", help="With --out: print the head as JSON. The export always is JSON."),
) -> None:
    """Export every entry and the head, as JSON; keep the head elsewhere to notice later if the ledger was cut off."""
    entries = es.Ledger(path).entries()
    head = entries[-1].hash if entries else None
    document = {"ledger": str(path), "head": head, "entries": [entry.to_dict() for entry in entries]}
    if out is None:
        print_json(document)
        return
    files.write(out, json_module.dumps(document, indent=1) + "\n", force=force, never=path)
    if json:
        print_json({"out": str(out), "entries": len(entries), "head": head})
    else:
        common.say(f"Wrote {len(entries)} entries to {out}; the head is {head}.")


def _summary(book: Book) -> dict[str, Any]:
    return {
        "dataset": book.name,
        "budget": book.budget.to_dict(),
        "composition": book.terms.composition,
        "charges": len(book.charges),
        "unit": book.unit,
        "spent": book.spent,
        "remaining": book.remaining,
    }
