"""The service's file beside the ledger: requests, what was drawn for them, their answers, and the chain of decisions.

It is SQLite with a write-ahead log, durable at every commit. What happens to a request is a row of a chain of hashes
like the ledger's: who asked, the digest of what, what was decided and charged, the digest of the answer. A ledger's
charge quotes the chain's head of that moment, so that the ledger's own chain covers this one. The file holds the noise
of the answer in progress, and belongs where the records are: only its owner can read it.
"""

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from epsteps.budgets.budget import Price
from epsteps.ledger import Ledger, databases
from epsteps.ledger.chain import GENESIS, Entry, LedgerError, dump_cost, load_cost
from epsteps.plans.requests import Draw
from epsteps.running.checkpoint import array_bytes, bytes_array
from epsteps.service.tokens import Token
from epsteps.service.wire import Refusal

# What becomes of a request. One that has arrived waits to be certified; who asks is told that it waits.
STATES = ("arrived", "waiting", "approved", "running", "published", "refused", "withdrawn")
FINISHED = ("published", "refused", "withdrawn")
KEY_PREFIX = "service:"

_SCHEMA = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE requests (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    analyst TEXT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    session TEXT,
    digest TEXT NOT NULL,
    body BLOB NOT NULL,
    size INTEGER NOT NULL,
    time REAL NOT NULL,
    state TEXT NOT NULL,
    page TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    price TEXT,
    paid TEXT,
    paid_at REAL,
    status INTEGER,
    answer BLOB,
    visible REAL,
    UNIQUE (analyst, key)
)""",
    "CREATE INDEX paid_by ON requests (analyst, paid)",
    "CREATE INDEX paid_in ON requests (session, paid)",
    "CREATE TABLE held (analyst TEXT PRIMARY KEY, bytes INTEGER NOT NULL)",
    "CREATE TABLE draws (request TEXT NOT NULL, name TEXT NOT NULL, drawn BLOB NOT NULL)",
    """CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,
    request TEXT NOT NULL,
    analyst TEXT NOT NULL,
    what TEXT NOT NULL,
    digest TEXT NOT NULL,
    decision TEXT NOT NULL,
    charge TEXT NOT NULL,
    answer TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
)""",
)
_SETTINGS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA secure_delete = ON",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = OFF",
)
_PATIENCE = 60.0
# What a request takes on the disk besides its body, with its rows of the chain, in bytes; or what one row takes.
_ROW, _EVENT_ROW = 4096, 1024


class Event(NamedTuple):
    """One row of the chain: what was decided about a request. The hash comes last: it covers all before it."""

    seq: int
    time: str
    request: str
    analyst: str
    what: str
    digest: str
    decision: str
    charge: str
    answer: str
    previous: str
    hash: str


class Request(NamedTuple):
    """A request as it is stored. ``key`` is the asker's own name for it, ``id`` the service's.

    ``page`` is what people are shown of a plan or session, ``price`` and ``paid`` what was charged and the hash of the
    ledger's entry, and the answer is not to be shown before the time ``visible``. ``size`` is what is counted for it of
    what its analyst may have stored: public, as it is known before a record is read. A body goes when it is refused.
    """

    number: int
    id: str
    analyst: str
    key: str
    kind: str
    session: str | None
    digest: str
    body: bytes
    size: int
    time: float
    state: str
    page: str
    attempts: int
    price: str | None
    paid: str | None
    paid_at: float | None
    status: int | None
    answer: bytes | None
    visible: float | None

    @property
    def finished(self) -> bool:
        """Whether nothing more will become of it."""
        return self.state in FINISHED


_EVENT, _REQUEST = ", ".join(Event._fields), ", ".join(Request._fields)


def beside(ledger: Path) -> Path:
    """Return where the file of the service lies whose ledger this is."""
    path = databases.real_path(ledger)
    return path.with_name(f"{path.name}.service")


class Store:
    """The file, opened by one thread of one process; others open it for themselves.

    Every decision is one transaction that ends with a row of the chain, and is on the disk when the call returns.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _clear_errors(path):
            if found := databases.foreign_sidecar(path):
                raise LedgerError(f"the service's file {path} would overwrite {found}. Use another path.")
            databases.create_private(path)
            if path.stat().st_size and databases.application_id(path) not in (databases.SERVICE, 0):
                raise LedgerError(f"{path} is not the file of a service; it was left as it is. Use another ledger.")
            self._connection = databases.connect(path, "mode=rw", timeout=_PATIENCE)
            self._connection.execute("PRAGMA journal_mode = WAL")
            for line in _SETTINGS:
                self._connection.execute(line)
            with self._writing():
                if self._one("SELECT count(*) FROM sqlite_master") == (0,):
                    for line in _SCHEMA:
                        self._connection.execute(line)
                    self._connection.execute(f"PRAGMA application_id = {databases.SERVICE}")
                if problem := databases.schema_fault(self._connection, _SCHEMA):
                    raise LedgerError(f"{path} cannot be trusted: {problem}. Nothing may be released.")

    def fold(self) -> None:
        """Write the log into the file and empty it: removed noise is overwritten there, and was still in the log."""
        with _clear_errors(self.path):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Give the file back."""
        self._connection.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fact(self, name: str, value: str) -> str:
        """Return what was first said about a name: this value, if nothing was."""
        with self._writing():
            self._connection.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
            return self._one("SELECT value FROM facts WHERE name = ?", name)[0]

    def ask(
        self,
        analyst: str,
        key: str,
        kind: str,
        digest: str,
        body: bytes,
        *,
        session: str | None = None,
        most: int | None = None,
    ) -> tuple[Request, bool]:
        """Take a request in, or return the one that has this analyst's key already, and whether it is new.

        A key that was used for another body is refused; so is what does not fit ``most`` bytes for the analyst.
        """
        with self._writing():
            if (known := self.find(analyst, key)) is not None:
                if known.digest != digest:
                    raise Refusal(
                        409, "key-reused", "this Idempotency-Key was used for another request. Use a new one."
                    )
                return known, False
            size = _ROW + len(body) * (2 if kind == "gradient" else 1)  # whose answer is as long as what is asked
            self._hold(analyst, size, most)
            row = (uuid4().hex, analyst, key, kind, session, digest, body, size, time.time(), "arrived", "", 0)
            names = "id, analyst, key, kind, session, digest, body, size, time, state, page, attempts"
            self._connection.execute(f"INSERT INTO requests ({names}) VALUES ({_marks(row)})", row)
            request = self.request(row[0])
            self._follow(request, "arrived")
            return request, True

    def held(self, analyst: str) -> int:
        """Return how many bytes are counted for what an analyst has stored."""
        return (self._one("SELECT bytes FROM held WHERE analyst = ?", analyst) or (0,))[0]

    def _hold(self, analyst: str, size: int, most: int | None = None) -> None:
        """Count bytes for an analyst, or refuse them."""
        left = None if most is None else most - self.held(analyst)
        if left is not None and size > left:
            detail = f"it does not fit the {most} bytes that an analyst may have stored: ask the holder for more."
            numbers = {"asked": size, "remaining": max(left, 0), "unit": "bytes"}
            raise Refusal(403, "storage-exceeded", detail, **numbers)
        line = "INSERT INTO held VALUES (?, ?) ON CONFLICT (analyst) DO UPDATE SET bytes = bytes + excluded.bytes"
        self._connection.execute(line, (analyst, size))

    def note_refused(self, analyst: str, kind: str, digest: str, refusal: Refusal, most: int | None = None) -> None:
        """Write down that something was refused that never became a request, if the analyst has room for the row."""
        with suppress(Refusal), self._writing():
            self._hold(analyst, _EVENT_ROW, most)
            self._append("", analyst, kind, digest, f"refused: {refusal.kind}", "", _sha(refusal.body))

    def note_tokens(self, listed: Sequence[Token], by: str) -> None:
        """Write down which tokens were made, changed and revoked since this was last done: never a token itself."""
        now = {token.id: (token.analyst, f"{', '.join(token.scopes)} until {token.expires}") for token in listed}
        with self._writing():
            known = self._noted_tokens()
            for id, (analyst, facts) in now.items():
                if known.get(id) != (analyst, facts):
                    decision = f"{id} {'changed' if id in known else 'made'} by {by}: {facts}"
                    self._append("", analyst, "token", "", decision, "", "")
            for id in sorted(known.keys() - now.keys()):
                self._append("", known[id][0], "token", "", f"{id} revoked by {by}", "", "")

    def _noted_tokens(self) -> dict[str, tuple[str, str]]:
        """Return the tokens that there are by the chain's rows: whose, and what was said of them."""
        known: dict[str, tuple[str, str]] = {}
        line = "SELECT analyst, decision FROM audit WHERE what = 'token' ORDER BY seq"
        for analyst, decision in self._connection.execute(line):
            done, _, facts = decision.partition(": ")
            id = done.split()[0]
            if facts:
                known[id] = (analyst, facts)
            else:
                known.pop(id, None)
        return known

    def move(
        self,
        request: Request,
        state: str,
        *,
        by: str = "",
        page: str | None = None,
        price: Price | None = None,
        status: int | None = None,
        answer: bytes | None = None,
        visible: float | None = None,
        size: int = 0,
        most: int | None = None,
        only_from: str | None = None,
    ) -> Request:
        """Put a request into another state, with its answer if there is one: what was drawn for it is then removed.

        ``size`` are bytes that its answer will take, counted for its analyst as far as ``most`` allows. Of what is
        refused, or a plan that is withdrawn, the body goes: its digest stays, in the chain. Its bytes are given back
        if it did not run: what becomes of a run is not to be seen before its time.

        Nothing moves that is finished, nothing goes back, what runs is not withdrawn, and nothing moves from another
        state than ``only_from``, if that is given: the request is returned as it then is.
        """
        with self._writing():
            now = self.request(request.id)
            back = STATES.index(state) < STATES.index(now.state)
            stays = state == "withdrawn" and now.state == "running"
            if now.finished or back or stays or only_from not in (None, now.state):
                return now
            changes: dict[str, Any] = {"state": state, "attempts": now.attempts + (state == "running")}
            changes |= {} if page is None else {"page": page}
            changes |= {} if price is None else {"price": dump_cost(price)}
            if state == "refused" or (state == "withdrawn" and now.kind == "plan"):
                changes["body"] = b""
                size = _ROW - now.size if now.paid is None and now.state != "running" else 0
            if size:
                self._hold(now.analyst, size, most)
                changes["size"] = now.size + size
            if state in FINISHED:
                changes |= {"status": status, "answer": answer, "visible": visible or time.time()}
                self._connection.execute("DELETE FROM draws WHERE request = ?", (request.id,))
            self._update(request.id, changes)
            self._follow(self.request(request.id), f"{state} by {by}" if by else state)
            return self.request(request.id)

    def count_attempt(self, request: Request) -> Request:
        """Count one more attempt at a request, before it is made. It decides nothing: the chain has no row of it."""
        with self._writing():
            self._update(request.id, {"attempts": self.request(request.id).attempts + 1})
            return self.request(request.id)

    def pay(self, request: Request, price: Price, entry: Entry, draw: Draw | None = None) -> None:
        """Write down that the ledger was charged, and what was drawn afterwards, before any record is read."""
        with self._writing():
            known = self.request(request.id).paid
            if known == entry.hash and not draw:
                return  # a run that goes on was charged before
            self._update(request.id, {"price": dump_cost(price), "paid": entry.hash, "paid_at": time.time()})
            for name, drawn in (draw or {}).items():
                self._connection.execute("INSERT INTO draws VALUES (?, ?, ?)", (request.id, name, array_bytes(drawn)))
            self._follow(self.request(request.id), "charged" if known != entry.hash else "drawn")

    def draw(self, request: Request) -> Draw | None:
        """Return what was drawn for a request that has no answer yet."""
        rows = self._connection.execute("SELECT name, drawn FROM draws WHERE request = ?", (request.id,)).fetchall()
        return {name: bytes_array(drawn) for name, drawn in rows} or None

    def find(self, analyst: str, key: str) -> Request | None:
        """Return the request that has this key of an analyst's, if there is one."""
        return next(iter(self._find("analyst = ? AND key = ?", analyst, key)), None)

    def request(self, id: str) -> Request:
        """Return a request, or raise ``KeyError``."""
        found = self._find("id = ?", id)
        if not found:
            raise KeyError(id)
        return found[0]

    def requests(
        self,
        *,
        states: Sequence[str] = STATES,
        kinds: Sequence[str] = (),
        analyst: str | None = None,
        latest: int | None = None,
    ) -> list[Request]:
        """Return requests in the order of their arrival: those in these states, of these kinds, of this analyst.

        ``latest`` bounds their number: those that came last are returned.
        """
        where, values = [f"state IN ({_marks(states)})"], list(states)
        if kinds:
            where, values = [*where, f"kind IN ({_marks(kinds)})"], [*values, *kinds]
        if analyst is not None:
            where, values = [*where, "analyst = ?"], [*values, analyst]
        order = "number" if latest is None else f"number DESC LIMIT {int(latest)}"
        found = self._find(f"{' AND '.join(where)} ORDER BY {order}", *values)
        return found if latest is None else found[::-1]

    def listed(
        self, *, states: Sequence[str] = STATES, kinds: Sequence[str] = (), before: int | None = None, latest: int
    ) -> list[Request]:
        """Return requests as they are listed for people, the last first: without their bodies and answers.

        ``before`` is a request's number: those that came earlier are returned.
        """
        left_out = {"body": "x'' AS body", "answer": "NULL AS answer"}
        columns = ", ".join(left_out.get(name, name) for name in Request._fields)
        where, values = [f"state IN ({_marks(states)})"], [*states]
        if kinds:
            where, values = [*where, f"kind IN ({_marks(kinds)})"], [*values, *kinds]
        if before is not None:
            where, values = [*where, "number < ?"], [*values, before]
        line = f"SELECT {columns} FROM requests WHERE {' AND '.join(where)} ORDER BY number DESC LIMIT {int(latest)}"
        return [Request._make(row) for row in self._connection.execute(line, values)]

    def states(self) -> dict[str, int]:
        """Return how many plans and sessions are in each state."""
        line = "SELECT state, count(*) FROM requests WHERE kind IN ('plan', 'session') GROUP BY state"
        return dict.fromkeys(STATES, 0) | dict(self._connection.execute(line).fetchall())

    def analysts(self) -> list[str]:
        """Return who ever asked, in the order of names."""
        return [name for (name,) in self._connection.execute("SELECT DISTINCT analyst FROM requests ORDER BY analyst")]

    def prices(self, *, analyst: str | None = None, session: str | None = None, since: float = 0.0) -> list[Price]:
        """Return what was charged, in order: to an analyst, in a session, since a time."""
        where, values = ["paid IS NOT NULL AND paid_at >= ?"], [since]
        for name, value in {"analyst": analyst, "session": session}.items():
            if value is not None:
                where, values = [*where, f"{name} = ?"], [*values, value]
        rows = self._connection.execute(
            f"SELECT price FROM requests WHERE {' AND '.join(where)} ORDER BY number", values
        )
        return [load_cost(price) for (price,) in rows]

    def promised(self) -> list[tuple[str, Price]]:
        """Return what plans will cost that were approved and not charged yet, and whose they are."""
        where = "kind = 'plan' AND state IN ('approved', 'running') AND paid IS NULL"
        rows = self._connection.execute(f"SELECT analyst, price FROM requests WHERE {where} ORDER BY number")
        return [(analyst, load_cost(price)) for analyst, price in rows]

    def last_number(self) -> int:
        """Return the number of the request that came last; 0 if none did."""
        return self._one("SELECT coalesce(max(number), 0) FROM requests")[0]

    def head(self) -> str:
        """Return the hash of the last row of the chain."""
        found = self._one("SELECT hash FROM audit ORDER BY seq DESC LIMIT 1")
        return found[0] if found else GENESIS

    def events(self) -> list[Event]:
        """Return every row of the chain, in order."""
        return [Event._make(row) for row in self._connection.execute(f"SELECT {_EVENT} FROM audit ORDER BY seq")]

    def events_of(self, requests: Sequence[str]) -> list[Event]:
        """Return the rows of the chain about these requests, in order."""
        line = f"SELECT {_EVENT} FROM audit WHERE request IN ({_marks(requests)}) ORDER BY seq"
        return [Event._make(row) for row in self._connection.execute(line, requests)]

    def last_events(self, latest: int, before: int | None = None) -> list[Event]:
        """Return the last rows of the chain, the last first; ``before`` is the number of a row."""
        line = f"SELECT {_EVENT} FROM audit WHERE ? IS NULL OR seq < ? ORDER BY seq DESC LIMIT {int(latest)}"
        return [Event._make(row) for row in self._connection.execute(line, (before, before))]

    def verify(self, ledger: Ledger) -> str:
        """Check the chain, every answer against it, and all against the ledger; return the head of what was checked.

        The service may go on meanwhile. A charge is in the ledger before it is here, and what it quotes is here before
        it is in the ledger: so what is here is looked for in the ledger as it is read afterwards, and what the ledger
        quotes is looked for here if it was there before.
        """
        before = ledger.entries()
        requests, events, issued = self._snapshot()
        after = ledger.entries()
        problem = chain_fault(events, issued)
        if not problem and after[: len(before)] != before:
            problem = "the ledger lost entries while it was read"
        if problem := problem or _contents_fault(requests, events, before, after):
            raise LedgerError(f"{self.path} cannot be trusted: {problem}.")
        return events[-1].hash if events else GENESIS

    def _snapshot(self) -> tuple[list[Request], list[Event], int]:
        """Return all requests, the whole chain and the last number that it ever gave, as of one moment."""
        self._connection.execute("BEGIN")
        try:
            issued = (self._one("SELECT seq FROM sqlite_sequence WHERE name = 'audit'") or (0,))[0]
            return self._find("1"), self.events(), issued
        finally:
            self._connection.execute("ROLLBACK")

    def _follow(self, request: Request, decision: str) -> None:
        answer = "" if request.answer is None else _sha(request.answer)
        self._append(request.id, request.analyst, request.kind, request.digest, decision, request.paid or "", answer)

    def _append(self, *content: str) -> None:
        last = self._one(f"SELECT {_EVENT} FROM audit ORDER BY seq DESC LIMIT 1")
        seq, previous = (last[0] + 1, last[-1]) if last else (1, GENESIS)
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        row = (seq, max(now, last[1]) if last else now, *content, previous)
        self._connection.execute(
            f"INSERT INTO audit ({_EVENT}) VALUES ({_marks(Event._fields)})", (*row, event_digest(row))
        )

    def _update(self, id: str, changes: dict[str, Any]) -> None:
        names = ", ".join(f"{name} = ?" for name in changes)
        self._connection.execute(f"UPDATE requests SET {names} WHERE id = ?", (*changes.values(), id))

    def _find(self, where: str, *values: Any) -> list[Request]:
        rows = self._connection.execute(f"SELECT {_REQUEST} FROM requests WHERE {where}", values)
        return [Request._make(row) for row in rows]

    def _one(self, line: str, *values: Any) -> Any:
        return self._connection.execute(line, values).fetchone()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Become the only one who writes; what was written is on the disk at the end, or nothing is."""
        with _clear_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def verify_beside(ledger: Ledger) -> str | None:
    """Check the service's file of a ledger, if there is one, and return the head of its chain."""
    entries, path = ledger.entries(), beside(ledger.path)
    if not path.is_file():
        orphan = next((entry.seq for entry in entries if (entry.key or "").startswith(KEY_PREFIX)), None)
        if orphan is not None:
            raise LedgerError(f"the ledger's entry {orphan} is of a service, but there is no {path}.")
        return None
    with closing(Store(path)) as store:
        return store.verify(ledger)


def event_digest(content: Sequence[Any]) -> str:
    """Return the SHA-256 of a row of the chain without its own hash."""
    return _sha(json.dumps(list(content)).encode("ascii"))


def chain_fault(events: Sequence[Event], issued: int) -> str | None:
    """Say what is wrong with the chain, or None; ``issued`` is the last number that was ever given."""
    previous = GENESIS
    for number, event in enumerate(events, start=1):
        if event.seq != number or event.previous != previous:
            return f"row {number} of its chain is missing or does not follow from the one before it"
        if event.hash != event_digest(event[:-1]):
            return f"row {number} of its chain was changed after it was written"
        previous = event.hash
    return None if issued == len(events) else "rows were deleted from the end of its chain"


def _contents_fault(
    requests: Sequence[Request], events: Sequence[Event], before: Sequence[Entry], after: Sequence[Entry]
) -> str | None:
    """Say where requests and chain contradict each other, or the ledger as it was read before and after them."""
    last = {event.request: event for event in events if event.request}
    paid = {entry.hash: entry for entry in after}
    known = {request.id: request for request in requests}
    if missing := sorted(last.keys() ^ known.keys()):
        return f"request {missing[0]} is in its chain or among its requests, but not in both"
    for request in requests:
        event, answer = last[request.id], "" if request.answer is None else _sha(request.answer)
        said = (event.analyst, event.what, event.digest, event.charge, event.answer)
        if said != (request.analyst, request.kind, request.digest, request.paid or "", answer):
            return f"request {request.id} was changed after it was written"
        if request.paid and (request.paid not in paid or paid[request.paid].terms != request.price):
            return f"request {request.id} was charged, but the ledger has no such entry"
    heads = {GENESIS, *(event.hash for event in events)}
    for entry in before:
        if (entry.key or "").startswith(KEY_PREFIX):
            # (The charge of a request that was interrupted there is in the ledger, and not yet here.)
            if str(entry.key).split(":")[1] not in known:
                return f"the ledger's entry {entry.seq} is of no request"
            if entry.note.rpartition(" ")[2] not in heads:
                return f"the ledger's entry {entry.seq} quotes a row that is not in its chain"
    return None


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" for _ in values)


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerError(f"the service's file {path} cannot be used: {error}. Nothing may be released.") from error
