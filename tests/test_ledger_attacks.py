"""The ledger against those who share the machine: other readers, other names, other schemas, files of others."""

import os
import sqlite3
import stat
from contextlib import closing

import pytest

import epsteps as es
from epsteps.ledger import store

# A ledger as it was written before amounts were decimals and names were plain.
ZERO = "0" * 64
OLD = [
    ("create", "p", '{"adjacency": "replace-one", "composition": "adaptive", "epsilon": 1.0, "kind": "pure"}'),
    ("create", "p ", '{"adjacency": "replace-one", "composition": "adaptive", "kind": "concentrated", "rho": 1.0}'),
    ("charge", "p", '{"epsilon": 0.3, "kind": "pure"}'),
    ("charge", "p", '{"epsilon": 0.3, "kind": "pure"}'),
    ("charge", "p", '{"epsilon": 0.3, "kind": "pure"}'),
    ("charge", "p", '{"epsilon": 0.10000000000000003, "kind": "pure"}'),
]
OLD_TIME = "2026-01-01T00:00:00.000000+00:00"
OLD_HASHES = [
    "49377c03f74752b12c0e69de977ef1a2dfb6ddcd44c0d0f8cb92833b5ab6462d",
    "f0d8adb1bd1dd2d639c83f2de5220c65aa3b14268362580a11451ae7b53c697e",
    "cb5af064b0a19e8996d6fc625b76fc2ed421d67e5f9ccdd34a8175e808bfb998",
    "9987d6a35be6162760fa538871e03f85f800632ccff53a8c53a617dd86216893",
    "d7545e0c4e08d5429aa72f6b1c0357afd782668c2e18fbb60389785e9c983d87",
    "6a11edeaf7573dd36e76840cb4ec542eae1f358a4c67c8aabcbd99f159b49849",
]


@pytest.fixture
def ledger(tmp_path):
    made = es.Ledger(tmp_path / "budget.db")
    made.create("people", es.Pure(1.0))
    return made


def uses(ledger):
    return (
        ledger.verify,
        lambda: ledger.charge("people", es.Pure(0.01)),
        lambda: ledger.create("new", es.Pure(1.0)),
        lambda: ledger.remaining("people"),
    )


def assert_refused(ledger, message):
    for use in uses(ledger):
        with pytest.raises(es.LedgerError, match=message) as caught:
            use()
        assert "\n" not in str(caught.value)


def edit(path, *statements):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def traced(monkeypatch, see):
    """Have a look at the machine at each statement of the ledger."""
    connect = store._connect

    def watched(path, options):
        connection = connect(path, options)
        connection.set_trace_callback(see)
        return connection

    monkeypatch.setattr(store, "_connect", watched)


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_nobody_else_can_read_the_files_of_a_ledger_at_any_moment(tmp_path, monkeypatch):
    seen = {}

    def see(_):
        for path in tmp_path.iterdir():
            seen.setdefault(path.name, set()).add(stat.S_IMODE(path.stat().st_mode))

    traced(monkeypatch, see)
    before = os.umask(0)
    try:
        ledger = es.Ledger(tmp_path / "budget.db")
        ledger.create("people", es.Pure(1.0))
        ledger.charge("people", es.Pure(0.1))
    finally:
        os.umask(before)
    assert seen == {"budget.db": {0o600}, "budget.db-journal": {0o600}}


def test_a_second_name_is_refused_while_it_is_there(ledger, tmp_path):
    ledger.charge("people", es.Pure(0.5))
    os.link(ledger.path, tmp_path / "other.db")
    assert_refused(ledger, r"has 2 names \(hard links\)")
    assert_refused(es.Ledger(tmp_path / "other.db"), r"has 2 names \(hard links\)")
    (tmp_path / "other.db").unlink()
    ledger.charge("people", es.Pure(0.5))
    assert ledger.remaining("people") == 0


@pytest.mark.parametrize("change", ["link", "move", "replace", "delete"])
@pytest.mark.parametrize("moment", ["BEGIN EXCLUSIVE", "INSERT INTO", "COMMIT"])
def test_a_charge_whose_file_changes_hands_is_not_confirmed(ledger, tmp_path, monkeypatch, change, moment):
    other = tmp_path / "other.db"

    def see(statement):
        if statement.startswith(moment) and not other.exists():
            if change == "link":
                os.link(ledger.path, other)
            elif change == "delete":
                ledger.path.unlink()
                other.touch()
            else:
                ledger.path.rename(other)
                if change == "replace":
                    ledger.path.write_bytes(other.read_bytes())

    with monkeypatch.context() as patch:
        traced(patch, see)
        with pytest.raises(es.LedgerError, match=r"hard links|moved or replaced|cannot be used"):
            ledger.charge("people", es.Pure(0.5))


def test_symbolic_links_are_the_same_ledger(ledger, tmp_path):
    (tmp_path / "link.db").symlink_to(ledger.path)
    linked = es.Ledger(tmp_path / "link.db")
    linked.charge("people", es.Pure(0.75))
    assert linked.path == ledger.path
    with pytest.raises(es.BudgetExceededError):
        ledger.charge("people", es.Pure(0.75))
    assert [path.name for path in tmp_path.iterdir() if not path.is_symlink()] == ["budget.db"]


def test_a_relative_path_does_not_follow_the_process(tmp_path, monkeypatch):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        es.Ledger(tmp_path / folder / "budget.db").create("people", es.Pure(1.0))
    monkeypatch.chdir(tmp_path / "one")
    ledger = es.Ledger("budget.db")
    account = ledger.account("people")
    monkeypatch.chdir(tmp_path / "two")
    account.charge(es.Pure(0.75))
    assert es.Ledger("budget.db").remaining("people") == 1
    assert ledger.remaining("people") == 0.25
    assert ledger.path == tmp_path / "one" / "budget.db"
    assert repr(ledger) == "Ledger('budget.db')"


SCHEMAS = {
    "trigger": "CREATE TRIGGER t BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END",
    "late trigger": "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries WHERE seq = new.seq; "
    "UPDATE sqlite_sequence SET seq = new.seq - 1; END",
    "view": "CREATE VIEW v AS SELECT * FROM entries",
    "table": "CREATE TABLE t (x)",
    "index": "CREATE INDEX i ON entries (dataset)",
    "statistics": "ANALYZE",
    "column": "ALTER TABLE entries ADD COLUMN more TEXT",
}


@pytest.mark.parametrize("statement", SCHEMAS.values(), ids=SCHEMAS)
def test_what_no_ledger_made_is_refused(ledger, statement):
    edit(ledger.path, statement)
    assert_refused(ledger, r"cannot be trusted: it has a \w+ '\w+' that epsteps did not make")


def test_entries_behind_a_view_are_refused(ledger):
    edit(
        ledger.path,
        "ALTER TABLE entries RENAME TO kept",
        "CREATE VIEW entries AS SELECT * FROM kept",
        "CREATE TRIGGER t INSTEAD OF INSERT ON entries BEGIN SELECT 1; END",
    )
    assert_refused(ledger, "that epsteps did not make")


def test_a_charge_that_was_not_kept_is_noticed(ledger, monkeypatch):
    """Whatever swallows it: here a trigger of the connection, of which the file knows nothing."""
    connect = store._connect

    def swallowing(path, options):
        connection = connect(path, options)
        connection.execute("CREATE TEMP TRIGGER t BEFORE INSERT ON main.entries BEGIN SELECT RAISE(IGNORE); END")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(store, "_connect", swallowing)
        with pytest.raises(es.LedgerError, match="did not keep entry 2"):
            ledger.charge("people", es.Pure(0.1))
    assert ledger.remaining("people") == 1


def contents(folder):
    """Return all that can be seen of the files in a folder."""
    found = {}
    for path in sorted(folder.iterdir()):
        state = path.stat()
        found[path.name] = (path.read_bytes(), state.st_mode, state.st_mtime_ns, state.st_ino, state.st_nlink)
    return found


def foreign(path, journal):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("CREATE TABLE mine (x)")
        connection.execute("INSERT INTO mine VALUES (1)")
    path.chmod(0o644)


@pytest.mark.parametrize("journal", ["WAL", "DELETE", "PERSIST"])
def test_the_database_of_someone_else_is_left_byte_for_byte(tmp_path, journal):
    path = tmp_path / "theirs.db"
    foreign(path, journal)
    before = contents(tmp_path)
    assert_refused(es.Ledger(path), "is not a ledger of epsteps; it was left as it is")
    assert contents(tmp_path) == before


def test_a_new_ledger_overwrites_nothing_beside_it(tmp_path):
    (tmp_path / "budget.db-journal").write_text("a diary")
    with pytest.raises(es.LedgerError, match=r"it would overwrite .*budget.db-journal"):
        es.Ledger(tmp_path / "budget.db").create("people", es.Pure(1.0))
    assert contents(tmp_path).keys() == {"budget.db-journal"}


@pytest.fixture
def old(tmp_path):
    """Return a ledger of an earlier version, which kept a write-ahead log."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(store._SCHEMA)
        connection.execute("PRAGMA application_id = 1701868404")
        connection.execute("PRAGMA user_version = 1")
        for seq, (entry, previous, own) in enumerate(zip(OLD, [ZERO, *OLD_HASHES], OLD_HASHES, strict=False), start=1):
            row = (seq, OLD_TIME, *entry, "", None, previous, own)
            connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    return es.Ledger(path)


def test_old_ledgers_are_read_by_the_rules_they_were_written_by(old):
    """Read as decimals, the charges of p were above 1; and no new dataset may be called "p "."""
    assert old.verify() == OLD_HASHES[-1]
    assert (old.spent("p"), old.remaining("p")) == (1, 0)
    with pytest.raises(es.BudgetExceededError):
        old.charge("p", es.Pure(1e-300))
    for _ in range(2):
        old.charge("p ", es.Concentrated(0.25))
    assert old.remaining("p ") == 0.5
    old.create("q", es.Pure(1.0))
    for _ in range(10):
        old.charge("q", es.Pure(0.1))
    assert old.verify(OLD_HASHES[-1]) == old.head()
    with closing(sqlite3.connect(old.path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_an_old_ledger_is_read_while_another_process_has_its_log_open(old):
    with closing(sqlite3.connect(old.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM entries").fetchone() == (len(OLD),)
        assert old.verify() == OLD_HASHES[-1]
        reader.execute("COMMIT")
    old.charge("p ", es.Concentrated(0.25))
    assert len(old.entries()) == len(OLD) + 1
