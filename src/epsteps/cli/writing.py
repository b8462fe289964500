"""Files that commands write: none replaces another one unasked, and none a ledger or a checkpoint at all."""

import os
import sqlite3
from pathlib import Path

import typer

from epsteps import _databases

FORCE = typer.Option(False, "--force", help="Replace an existing file (never a ledger or a checkpoint).")


def require_free(path: Path, *, force: bool, never: Path | None = None) -> None:
    """Refuse to write where a file is, unless it may be replaced; best asked before long work.

    Formal guarantee: with ``force`` or without, no file of SQLite that is a ledger or a checkpoint is replaced, and
    neither is ``never``, whatever names they go by. Devices and pipes may be written to.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file.")
    if not path.is_file():
        return
    if _holds_state(path, never):
        raise ValueError(
            f"{path} holds spent budget or secret noise (a ledger, a checkpoint, or a file beside one): it is never "
            "replaced. Name another file."
        )
    if not force:
        raise ValueError(f"{path} exists, and was left as it is. Name another file, or replace it with --force.")


def write_file(path: Path, text: str, *, force: bool, never: Path | None = None) -> None:
    """Write text to a file, under the rules of ``require_free``."""
    require_free(path, force=force, never=never)
    try:
        with path.open("w" if force or path.exists() else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:  # someone made it since, or it is a symbolic link to nowhere
        raise ValueError(f"{path} exists, and was left as it is. Name another file, or use --force.") from None


def _holds_state(path: Path, never: Path | None) -> bool:
    """Whether this is a ledger, a checkpoint or a sidecar of one."""
    found = _databases.real_path(path)
    if never is not None and never.exists() and os.path.samefile(found, never):
        return True
    owners = [found.with_name(found.name.removesuffix(end)) for end in _databases.SIDECARS if found.name.endswith(end)]
    return any(owner.is_file() and _is_state(owner) for owner in (found, *owners))


def _is_state(path: Path) -> bool:
    try:
        return path.stat().st_size > 0 and _databases.application_id(path) in (_databases.LEDGER, _databases.CHECKPOINT)
    except sqlite3.Error:
        return False
