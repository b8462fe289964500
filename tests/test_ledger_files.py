"""The ledger's file: what was changed by hand, and what is broken, is refused in one line."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import epsteps as es
from epsteps.ledger import Entry, chain


@pytest.fixture
def ledger(tmp_path):
    made = es.Ledger(tmp_path / "budget.db")
    made.create("people", es.Pure(1.0))
    return made


def edit(ledger, statement, *parameters):
    """Change the file behind the ledger's back."""
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        connection.execute(statement, parameters)


COLUMNS = Entry._fields


def filled(ledger):
    ledger.create("others", es.Concentrated(1.0))
    for number in range(3):
        ledger.charge("people", es.Pure(0.1), note=f"note {number}", key=f"key {number}")
    return ledger


def assert_refused(ledger, message="cannot be trusted"):
    for use in (
        ledger.verify,
        lambda: ledger.charge("people", es.Pure(0.01)),
        lambda: ledger.create("new", es.Pure(1.0)),
        lambda: ledger.remaining("people"),
    ):
        with pytest.raises(es.LedgerError, match=message) as caught:
            use()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seq", [1, 3, 5])
@pytest.mark.parametrize("column", COLUMNS)
def test_an_edited_entry_is_refused(ledger, column, seq):
    value = {"seq": 9, "time": "2020-01-01T00:00:00.000000+00:00", "action": "create", "dataset": "others"}.get(column)
    if column == "action" and seq == 1:
        value = "charge"
    if column == "terms":
        value = '{"epsilon": 0.001, "kind": "pure"}'
    edit(filled(ledger), f"UPDATE entries SET {column} = ? WHERE seq = ?", value or "0" * 63 + "1", seq)
    assert_refused(ledger)


@pytest.mark.parametrize("value", [b"note 0", "note 0 ", "", 5])
def test_another_type_is_an_edit(ledger, value):
    edit(filled(ledger), "UPDATE entries SET note = ? WHERE seq = 3", value)
    assert_refused(ledger, "entry 3 was changed after it was written")


@pytest.mark.parametrize("seq", [1, 3, 5])
def test_a_deleted_entry_is_refused(ledger, seq):
    edit(filled(ledger), "DELETE FROM entries WHERE seq = ?", seq)
    assert_refused(ledger, "deleted from its end" if seq == 5 else f"entry {seq} is missing")


def test_exchanged_entries_are_refused(ledger):
    for old, new in ((3, 30), (4, 3), (30, 4)):
        edit(filled(ledger) if old == 3 else ledger, "UPDATE entries SET seq = ? WHERE seq = ?", new, old)
    assert_refused(ledger)


def forge(ledger, entry):
    """Write an entry with a valid hash, as someone could who knows the code."""
    entry = entry._replace(hash=chain.digest(entry))
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        connection.execute(f"INSERT INTO entries VALUES ({','.join('?' * len(entry))})", entry)


@pytest.mark.parametrize(
    "changes",
    [
        {"terms": '{"epsilon": 5.0, "kind": "pure"}'},
        {"terms": '{"epsilon": -5.0, "kind": "pure"}'},
        {"terms": '{"epsilon": 5.0, "kind": "free"}'},
        {"terms": "nothing"},
        {"dataset": "unknown"},
        {"action": "create"},
        {"action": "refund"},
        {"key": "key 0"},
        {"previous": "1" * 64},
        {"time": "2020"},
    ],
)
def test_verify_also_checks_what_entries_say(ledger, changes):
    entries = filled(ledger).entries()
    text = '{"epsilon": 0.001, "kind": "pure"}'
    honest = chain.follow(entries, "charge", "people", text, "", None)
    if "key" in changes:
        with pytest.raises(sqlite3.IntegrityError):
            forge(ledger, honest._replace(**changes))
        return
    forge(ledger, honest._replace(**changes))
    with pytest.raises(es.LedgerError, match="cannot be trusted"):
        ledger.verify()


def test_a_kept_head_notices_what_the_chain_cannot(ledger):
    middle = filled(ledger).entries()[2].hash
    head = ledger.head()
    ledger.charge("people", es.Pure(0.1))
    assert ledger.verify(head) == ledger.head() != head
    edit(ledger, "DELETE FROM entries WHERE seq > 4")
    edit(ledger, "UPDATE sqlite_sequence SET seq = 4")
    ledger.verify(middle)
    with pytest.raises(es.LedgerError, match="cut off or replaced"):
        ledger.verify(head)


def test_a_clock_set_back_keeps_the_order(ledger, monkeypatch):
    class Future(chain.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2099, 1, 1, tzinfo=tz)

    with monkeypatch.context() as patch:
        patch.setattr(chain, "datetime", Future)
        ahead = ledger.charge("people", es.Pure(0.1))
    after = ledger.charge("people", es.Pure(0.1))
    assert after.time == ahead.time
    assert after.seq == ahead.seq + 1
    ledger.verify()


def test_a_missing_file_is_refused_and_not_made(tmp_path):
    ledger = es.Ledger(tmp_path / "none.db")
    for use in (ledger.verify, lambda: ledger.charge("people", es.Pure(0.1)), lambda: ledger.account("people")):
        with pytest.raises(es.LedgerError, match=r"there is no ledger .*none.db: make one"):
            use()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(es.LedgerError, match="there is no folder"):
        es.Ledger(tmp_path / "nowhere" / "none.db").create("people", es.Pure(1.0))


@pytest.mark.parametrize("content", ["text", "sqlite", "folder", "empty"])
def test_other_files_are_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "other.db"
    if content == "text":
        path.write_text("not a database, " * 100)
    elif content == "folder":
        path.mkdir()
    elif content == "empty":
        path.touch()
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE mine (x)")
    before = path.read_bytes() if path.is_file() else None
    ledger = es.Ledger(path)
    uses = [ledger.verify, lambda: ledger.charge("people", es.Pure(0.1)), lambda: ledger.create("x", es.Pure(1.0))]
    for use in uses[: 2 if content == "empty" else 3]:
        with pytest.raises(es.LedgerError, match=r"not a ledger|not a database|there is no ledger|unable to open"):
            use()
    assert before is None or path.read_bytes() == before


def test_text_that_is_none_is_refused(ledger):
    edit(filled(ledger), "UPDATE entries SET note = CAST(X'ff' AS TEXT) WHERE seq = 3")
    assert_refused(ledger, "cannot be used: Could not decode")


def test_another_schema_version_is_refused(ledger):
    edit(ledger, "PRAGMA user_version = 2")
    assert_refused(ledger, "ledger of version 2, but this epsteps reads version 1")


def test_a_corrupted_file_is_refused(ledger):
    filled(ledger)
    content = bytearray(ledger.path.read_bytes())
    for position in range(4096, len(content), 3):
        content[position] ^= 0x5A
    for ending in ("-wal", "-shm"):
        Path(f"{ledger.path}{ending}").unlink(missing_ok=True)
    ledger.path.write_bytes(content)
    assert_refused(ledger, r"cannot be (used|trusted)")


def test_a_dropped_table_is_refused(ledger):
    edit(ledger, "DROP TABLE entries")
    assert_refused(ledger, "cannot be trusted: it lacks the")


FULL = """
import resource, sys
import epsteps as es
ledger = es.Ledger(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
count = 0
try:
    while True:
        ledger.charge("people", es.Pure(1e-6), note="x" * 2000)
        count += 1
except es.LedgerError as error:
    print(count, error)
"""


def test_a_file_that_cannot_grow_refuses_the_charge(ledger):
    result = subprocess.run([sys.executable, "-c", FULL, ledger.path], capture_output=True, text=True, check=True)
    count, message = result.stdout.split(" ", 1)
    assert int(count) > 0
    assert "cannot be used" in message
    assert len(ledger.history("people")) == int(count)
    ledger.charge("people", es.Pure(1e-6))
    ledger.verify()


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("mounting is not permitted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(ledger, made):
    while True:
        made.append(ledger.charge("people", es.Pure(1e-6), note="x" * 2000))


def test_a_full_disk_refuses_the_charge(small_disk):
    ledger = es.Ledger(small_disk / "budget.db")
    ledger.create("people", es.Pure(1.0))
    made = []
    with pytest.raises(es.LedgerError, match=r"full|I/O"):
        fill(ledger, made)
    assert ledger.history("people") == made
    assert len(made) > 5
    assert ledger.verify() == ledger.head()


def test_a_read_only_disk_can_be_read_and_not_charged(small_disk):
    ledger = es.Ledger(small_disk / "budget.db")
    ledger.create("people", es.Pure(1.0))
    ledger.charge("people", es.Pure(0.25))
    assert ledger.remaining("people") == 0.75
    ledger.charge("people", es.Pure(0.25))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(es.LedgerError, match=r"read-?only|unable to open"):
        ledger.charge("people", es.Pure(0.25))
    assert ledger.remaining("people") == 0.5
