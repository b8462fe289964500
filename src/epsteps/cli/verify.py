"""``epsteps verify``: whether a model's folder is what it says it is, and was charged to the ledger that it names."""

from __future__ import annotations

import hashlib
import json as json_module
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

import epsteps as es
from epsteps.cli import common
from epsteps.cli.fit import MODEL, REPORT

if TYPE_CHECKING:
    from epsteps import tables

# What the ledger's entry of a fit says, and model.json repeats.
_OF_ENTRY = ("dataset", "seq", "time", "terms", "note", "hash")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    what: str
    result: Literal["matches", "DOES NOT MATCH", "not checked"]
    detail: str


def verify(
    model: Annotated[Path, Argument(metavar="MODEL", help="Folder that epsteps fit wrote.", show_default=False)],
    ledger: Path | None = Option(None, help="The ledger that the fit was charged to: its entry is looked up."),
    json: bool = Option(False, "--json", help="Print the checks as JSON instead of lines."),
) -> None:
    """Check a model's folder: certificate, coefficients, report and ledger entry; the exit code is 1 if one is wrong.

    The certificate is computed anew from the plan in model.json, the coefficients from its last point, and the report
    from model.json. With --ledger, the ledger's own chain is checked, and the entry that the model names. No data is
    read.
    """
    checks = _checks(model, ledger)
    wrong = [check for check in checks if check.result == "DOES NOT MATCH"]
    if json:
        common.print_json({"valid": not wrong, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            typer.echo(f"{check.result:<14}  {check.what}: {common.shown(check.detail)}")
    if wrong:
        names = ", ".join(check.what for check in wrong)
        typer.echo(f"Error: {model} is not what it says: {names}.", err=True)
        raise typer.Exit(1)


def _checks(folder: Path, ledger: Path | None) -> list[Check]:
    """Return what was looked at: where model.json itself is wrong, nothing else is."""
    from epsteps import tables

    try:
        fitted = tables.load_model(folder)
    except tables.ModelFormatError as error:
        return [Check(MODEL, "DOES NOT MATCH", str(error))]
    file = folder / MODEL if folder.is_dir() else folder
    content = json_module.loads(file.read_text(encoding="utf-8"))
    spent = f"{fitted.plan.method}, spends {fitted.plan.spent:.6g} of {fitted.plan.budget}"
    if fitted.seeded:
        spent += "; NOT PRIVATE: fitted with a seed"
    checks = [Check("certificate", "matches", f"computed anew from the plan: {spent}")]
    checks.append(Check("coefficients", "matches", "those of the last published point"))
    checks.append(_told(fitted, content))
    checks.append(_report(file.with_name(REPORT), content))
    checks.append(_entry(fitted, content.get("ledger"), ledger))
    return checks


def _told(fitted: tables.Model, content: dict[str, Any]) -> Check:
    """Check what model.json tells people of its plan."""
    from epsteps.tables import model_file

    wanted = {"plan_text": str(fitted.plan), "releases": model_file.releases(fitted.plan)}
    wanted["chosen"] = model_file.chosen(fitted)
    wrong = [name for name, value in wanted.items() if name in content and content[name] != value]
    if wrong:
        return Check("plan", "DOES NOT MATCH", f"{', '.join(wrong)}: the plan in the same file says something else")
    return Check("plan", "matches", "its page, its releases and what it chose are those of the plan")


def _report(path: Path, content: dict[str, Any]) -> Check:
    """Check the report by its digest: it is a function of model.json."""
    from epsteps import tables

    if not path.is_file():
        return Check("report", "not checked", f"there is no {path.name}")
    digests = [_digest(path.read_bytes()), _digest(tables.page(content).encode("utf-8", errors="backslashreplace"))]
    if digests[0] == digests[1]:
        return Check("report", "matches", f"sha256 {digests[0]}, as made anew from {MODEL}")
    made = content.get("made", {}).get("by")
    if made != f"epsteps {es.__version__}":
        return Check("report", "not checked", f"it was made by {made}, and this is epsteps {es.__version__}")
    return Check("report", "DOES NOT MATCH", f"sha256 {digests[0]}, but {MODEL} gives {digests[1]}")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _entry(fitted: tables.Model, stated: dict[str, Any] | None, path: Path | None) -> Check:
    """Check the entry of the ledger that the model names, and that it paid for what the plan spends."""
    if path is None:
        named = "it names none" if stated is None else f"it names {stated.get('file')}: add --ledger"
        return Check("ledger", "not checked", named)
    if stated is None:
        return Check("ledger", "DOES NOT MATCH", "the model names no entry: its fit was not charged to a ledger")
    ledger = es.Ledger(path)
    ledger.verify()
    entry = next((entry for entry in ledger.entries() if entry.hash == stated.get("hash")), None)
    if entry is None:
        return Check("ledger", "DOES NOT MATCH", f"no entry of {path} has the hash {stated.get('hash')!r}")
    wrong = [name for name in _OF_ENTRY if getattr(entry, name) != stated.get(name)]
    if wrong:
        return Check("ledger", "DOES NOT MATCH", f"entry {entry.seq} has another {', '.join(wrong)}")
    if entry.cost != fitted.plan.spending():
        return Check(
            "ledger", "DOES NOT MATCH", f"entry {entry.seq} paid {entry.cost}, and the plan is for more or less"
        )
    return Check("ledger", "matches", f"entry {entry.seq} of {entry.dataset}, {entry.time[:19]} UTC: {entry.cost}")
