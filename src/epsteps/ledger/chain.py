"""The chain: each entry carries a SHA-256 of its content and of the entry before it."""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from epsteps.ledger.terms import Cost, load_cost, load_terms

# What the first entry follows.
GENESIS = "0" * 64
ACTIONS = ("create", "charge")


class Entry(NamedTuple):
    """One line of a ledger, as stored.

    ``terms`` is the budget of a dataset (``action`` "create") or the price of a release ("charge"), as text that reads
    back exactly; ``cost`` is the same as an object. The hash comes last: it covers all before it.
    """

    seq: int
    time: str
    action: str
    dataset: str
    terms: str
    note: str
    key: str | None
    previous: str
    hash: str

    @property
    def cost(self) -> Cost:
        """The budget or the price."""
        return load_terms(self.terms).budget if self.action == "create" else load_cost(self.terms)

    def to_dict(self) -> dict[str, Any]:
        """Return the columns."""
        return self._asdict()


def digest(entry: Entry) -> str:
    """Return the SHA-256 of everything in the entry but its own hash."""
    return _digest(entry[:-1])


# Remembered by content, so that a process which charges again and again need not hash old entries again.
@lru_cache(maxsize=2**16)
def _digest(content: tuple[int | str | None, ...]) -> str:
    """Hash a JSON list, which no two contents share: numbers, texts and null stay apart."""
    return hashlib.sha256(json.dumps(content).encode("ascii")).hexdigest()


def follow(entries: Sequence[Entry], action: str, dataset: str, terms: str, note: str, key: str | None) -> Entry:
    """Return the entry that comes next.

    The numbers order the entries, not the clock: where it was set back, the time of the last entry is repeated.
    """
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    last = entries[-1] if entries else None
    time = max(now, last.time) if last else now
    previous = last.hash if last else GENESIS
    entry = Entry(len(entries) + 1, time, action, dataset, terms, note, key, previous, hash="")
    return entry._replace(hash=digest(entry))


def fault(entries: Sequence[Entry], issued: int) -> str | None:
    """Say what is wrong with the chain, or None; ``issued`` is the last number that was ever given."""
    previous, time = GENESIS, ""
    for number, entry in enumerate(entries, start=1):
        if entry.seq != number:
            return f"entry {number} is missing"
        if not _is_unchanged(entry):
            return f"entry {number} was changed after it was written"
        if entry.previous != previous or entry.time < time or entry.action not in ACTIONS:
            return f"entry {number} does not follow from the one before it"
        previous, time = entry.hash, entry.time
    if issued != len(entries):
        return f"it has {len(entries)} entries, but {issued} were written: some were deleted from its end"
    return None


def _is_unchanged(entry: Entry) -> bool:
    try:
        return entry.hash == digest(entry)
    except TypeError:  # a column holds bytes, which no ledger wrote
        return False
