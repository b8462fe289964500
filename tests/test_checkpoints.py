"""Interrupted runs: they go on where they stood, pay once, and never meet their records with a second noise."""

import json
import os
import sqlite3
import stat
import subprocess
import sys
from collections import defaultdict
from contextlib import closing

import numpy as np
import pytest
from conftest import records, small_problem

import epsteps as es
from epsteps.ledger import databases

PROBLEM = small_problem(n=100)


def example(**options):
    plan = es.plan(PROBLEM, es.Pure(1.0), es.multistage, iterations=30, **options)
    return plan, es.Rows(PROBLEM, *records(PROBLEM))


class Stop(Exception):
    pass


@pytest.mark.parametrize("batch", [None, 20])
@pytest.mark.parametrize("stops", [[1], [7, 8, 9], [29], [30]])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, batch, stops):
    plan, rows = example(batch=batch)
    options = {"seed": 3, "arithmetic": "exact", "repetitions": 2, "start": 0.5}
    whole = es.run(plan, rows, **options, anyway=True)
    for stop in stops:

        def interrupt(t, stop=stop):
            if t == stop:
                raise Stop

        with pytest.raises(Stop):
            es.run(plan, rows, **options, checkpoint=tmp_path / "run", on_step=interrupt, anyway=True)
    heard = []
    resumed = es.run(plan, rows, **options, checkpoint=tmp_path / "run", on_step=heard.append, anyway=True)
    np.testing.assert_array_equal(resumed.path, whole.path)
    assert heard == list(range(stops[-1] + 1, 31))


def test_an_unseeded_run_keeps_what_it_has_published(tmp_path):
    plan, rows = example()
    seen = []

    def interrupt(t):
        if t == 11:
            raise Stop

    with pytest.raises(Stop):
        es.run(plan, rows, checkpoint=tmp_path / "run", on_step=interrupt, anyway=True)
    for _ in range(2):
        seen.append(es.run(plan, rows, checkpoint=tmp_path / "run", anyway=True).path)
    np.testing.assert_array_equal(*seen)


def test_the_noise_of_finished_steps_is_gone(tmp_path):
    plan, rows = example()
    es.run(plan, rows, checkpoint=tmp_path / "run", anyway=True)
    with closing(sqlite3.connect(tmp_path / "run")) as file:
        assert file.execute("SELECT count(*) FROM pending").fetchone() == (0,)
        assert file.execute("SELECT count(*) FROM answers").fetchone() == (30,)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert (tmp_path / "run").stat().st_mode & 0o077 == 0


def test_a_resumed_run_pays_once(tmp_path):
    plan, rows = example()
    ledger = es.Ledger(tmp_path / "ledger.db")
    ledger.create("people", es.Pure(1.5))
    account = ledger.account("people")

    def interrupt(t):
        raise Stop

    with pytest.raises(Stop):
        es.run(plan, rows, checkpoint=tmp_path / "run", ledger=account, on_step=interrupt, anyway=True)
    for _ in range(2):
        es.run(plan, rows, checkpoint=tmp_path / "run", ledger=account, anyway=True)
    assert ledger.spent("people") == pytest.approx(plan.spent)
    with pytest.raises(ValueError, match="does not fit"):
        es.run(plan, rows, checkpoint=tmp_path / "other", ledger=account, anyway=True)


def test_another_runs_file_is_refused(tmp_path):
    plan, rows = example()
    es.run(plan, rows, checkpoint=tmp_path / "run", anyway=True)
    for options in ({"start": 1.0}, {"seed": 1, "arithmetic": "exact"}, {"repetitions": 2}):
        with pytest.raises(es.CheckpointError, match="belongs to a run with another plan, start or seed"):
            es.run(plan, rows, checkpoint=tmp_path / "run", **options, anyway=True)
    es.Ledger(tmp_path / "ledger.db").create("people", es.Pure(1.0))
    with pytest.raises(es.CheckpointError, match="is not a checkpoint; it was left as it is"):
        es.run(plan, rows, checkpoint=tmp_path / "ledger.db", anyway=True)
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(es.CheckpointError, match="is not a checkpoint; it was left as it is"):
        es.run(plan, rows, checkpoint=tmp_path / "text", anyway=True)
    with pytest.raises(es.CheckpointError, match="there is no folder"):
        es.run(plan, rows, checkpoint=tmp_path / "no" / "folder", anyway=True)


def test_a_file_in_use_is_refused(tmp_path):
    plan, rows = example()

    def again(t):
        es.run(plan, rows, checkpoint=tmp_path / "run", anyway=True)

    with pytest.raises(es.CheckpointError, match="Another run is using it"):
        es.run(plan, rows, checkpoint=tmp_path / "run", on_step=again, anyway=True)


# Runs in processes of their own, killed at random moments so many times; the last one prints its path. Each writes down
# with which noise the records were met at each step. They are forked from one that has imported everything.
PROGRAM = """
import hashlib, json, os, random, signal, sys, time
sys.path.insert(0, sys.argv[2])
import epsteps as es
from test_checkpoints import example

plan, rows = example()
es.run(plan, rows, seed=0, arithmetic="exact")  # else each of them would import, and be killed there, not at its steps
original = es.Gradient.read

def read(self, records, draw):
    log.write(f"{self.x.tobytes().hex()} {hashlib.sha256(draw['noise'].tobytes()).hexdigest()}\\n")
    log.flush()
    return original(self, records, draw)

es.Gradient.read = read

def path(folder, seed):
    account = es.Ledger(f"{folder}/ledger.db").account("people")
    return es.run(plan, rows, seed=seed, arithmetic="exact", anyway=True, ledger=account, checkpoint=f"{folder}/run",
                  on_step=lambda t: time.sleep(0.01)).path

for folder, seed, kills in json.loads(sys.argv[1]):
    moments = random.Random(5)
    with open(f"{folder}/met.txt", "a") as log:
        for _ in range(kills):
            process = os.fork()
            if process == 0:
                path(folder, seed)
                os._exit(0)
            time.sleep(moments.uniform(0.0, 0.2))
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        print(json.dumps(path(folder, seed).tolist()))
"""


def killed_runs(*runs):
    """Kill each run, of a folder and a seed, at random moments, so many times, and return the paths they end with."""
    for folder, _, _ in runs:
        folder.mkdir()
        es.Ledger(folder / "ledger.db").create("people", es.Pure(1.0))
    command = [sys.executable, "-c", PROGRAM, json.dumps(runs, default=str), os.path.dirname(__file__)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [np.array(json.loads(line)) for line in output.splitlines()]


def check_killed_runs(folder, kills):
    plan, rows = example()
    path, _ = killed_runs((folder / "seeded", 3, kills // 2), (folder / "private", None, kills - kills // 2))
    np.testing.assert_array_equal(path, es.run(plan, rows, seed=3, arithmetic="exact").path)
    met = defaultdict(set)
    for line in (folder / "private" / "met.txt").read_text().splitlines():
        point, noise = line.split()
        met[point].add(noise)
    assert len(met) == 30
    assert all(len(noises) == 1 for noises in met.values())
    for name in ("seeded", "private"):
        ledger = es.Ledger(folder / name / "ledger.db")
        assert ledger.spent("people") == pytest.approx(plan.spent)
        ledger.verify()


@pytest.mark.skipif(os.name != "posix", reason="forks and kills")
def test_killed_runs_go_on(tmp_path):
    check_killed_runs(tmp_path, kills=12)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="forks and kills")
def test_runs_killed_two_hundred_times_go_on(tmp_path):
    check_killed_runs(tmp_path, kills=200)


FULL = """
import resource, signal, sys
sys.path.insert(0, sys.argv[2])
import epsteps as es
from test_checkpoints import example

plan, rows = example()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
heard = []
try:
    es.run(plan, rows, checkpoint=sys.argv[1], on_step=heard.append, anyway=True)
except es.CheckpointError as error:
    print(heard[-1] if heard else 0, str(error).count("\\n"), error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files")
@pytest.mark.parametrize("limit", [0, 12_000, 24_000])
def test_a_full_disk_ends_the_run_before_anything_more_is_released(tmp_path, limit):
    command = [sys.executable, "-c", FULL, str(tmp_path / "run"), os.path.dirname(__file__), str(limit)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    heard, lines, message = output.split(maxsplit=2)
    assert (int(heard) < 30, lines) == (True, "0")
    assert "checkpoint" in message
    plan, rows = example()
    if int(heard) > 0:  # with room again, the run goes on from where it was heard of last
        es.run(plan, rows, checkpoint=tmp_path / "run", on_step=(later := []).append, anyway=True)
        assert later[0] in (int(heard), int(heard) + 1)


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_nobody_else_can_read_the_noise_at_any_step(tmp_path):
    """With the most permissive umask, for a new file and for one that an earlier version left readable."""
    plan, rows = example()
    seen = defaultdict(set)

    def look(t):
        for path in tmp_path.iterdir():
            seen[path.name].add(stat.S_IMODE(path.stat().st_mode))
        if t == 12 and len(seen) == 2:
            for path in tmp_path.iterdir():
                path.chmod(0o644)
            raise Stop

    before = os.umask(0)
    try:
        with pytest.raises(Stop):
            es.run(plan, rows, checkpoint=tmp_path / "run", on_step=look, anyway=True)
        first = dict(seen)
        seen.clear()
        seen["a third name"] = set()
        es.run(plan, rows, checkpoint=tmp_path / "run", on_step=look, anyway=True)
    finally:
        os.umask(before)
    assert first == {"run": {0o600}, "run-journal": {0o600}}
    assert seen == first | {"a third name": set()}


def test_the_journal_keeps_no_noise_between_steps(tmp_path):
    """A process that is killed there leaves the noise of the step in progress, in the file, and no other."""
    plan, rows = example()
    sizes = []
    es.run(
        plan,
        rows,
        checkpoint=tmp_path / "run",
        on_step=lambda t: sizes.append((tmp_path / "run-journal").stat()),
        anyway=True,
    )
    assert [size.st_size for size in sizes] == [0] * 30


def contents(folder):
    """Return all that can be seen of the files in a folder."""
    found = {}
    for path in sorted(folder.iterdir()):
        state = path.stat()
        found[path.name] = (path.read_bytes(), state.st_mode, state.st_mtime_ns, state.st_ino)
    return found


def make_foreign(path, kind):
    if kind == "ledger":
        es.Ledger(path).create("people", es.Pure(1.0))
    elif kind == "text":
        path.write_text("no database" * 100)
    elif kind == "short":
        path.write_bytes(b"SQLite format 3\0")
    else:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA journal_mode = {kind}")
            connection.execute("CREATE TABLE mine (x)")
    path.chmod(0o644)


@pytest.mark.parametrize("kind", ["DELETE", "WAL", "PERSIST", "ledger", "text", "short"])
def test_other_files_are_left_byte_for_byte_and_mode_for_mode(tmp_path, kind):
    plan, rows = example()
    make_foreign(tmp_path / "theirs", kind)
    before = contents(tmp_path)
    with pytest.raises(es.CheckpointError, match="is not a checkpoint; it was left as it is"):
        es.run(plan, rows, checkpoint=tmp_path / "theirs", anyway=True)
    assert contents(tmp_path) == before


def test_a_database_in_use_keeps_its_lock_and_its_log(tmp_path):
    """Whoever looks at a file must not take its locks away, which closing it behind SQLite's back does."""
    plan, rows = example()
    with closing(sqlite3.connect(tmp_path / "theirs", isolation_level=None, timeout=0)) as theirs:
        theirs.execute("CREATE TABLE mine (x)")
        theirs.execute("BEGIN EXCLUSIVE")
        with pytest.raises(es.CheckpointError, match="is not a checkpoint"):
            es.run(plan, rows, checkpoint=tmp_path / "theirs", anyway=True)
        probe = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('SELECT * FROM mine')"
        command = [sys.executable, "-W", "ignore", "-c", probe, str(tmp_path / "theirs")]
        assert "database is locked" in subprocess.run(command, capture_output=True, text=True, check=False).stderr
        theirs.execute("COMMIT")


@pytest.mark.parametrize("ending", ["-journal", "-wal"])
def test_nothing_beside_a_checkpoint_is_overwritten(tmp_path, ending):
    plan, rows = example()
    (tmp_path / f"run{ending}").write_text("a diary")
    before = contents(tmp_path)
    with pytest.raises(es.CheckpointError, match=rf"would overwrite .*run{ending}"):
        es.run(plan, rows, checkpoint=tmp_path / "run", anyway=True)
    assert contents(tmp_path) == before


def interrupted(path):
    plan, rows = example()

    def interrupt(t):
        if t == 5:
            raise Stop

    with pytest.raises(Stop):
        es.run(plan, rows, checkpoint=path, on_step=interrupt, anyway=True)
    return plan, rows


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE kept (noise)",
        "CREATE TRIGGER t AFTER INSERT ON pending BEGIN DELETE FROM answers WHERE number = 3; END",
        "CREATE TRIGGER t BEFORE DELETE ON pending BEGIN SELECT RAISE(IGNORE); END",
        "CREATE VIEW v AS SELECT * FROM pending",
        "DELETE FROM run",
        "INSERT INTO run SELECT * FROM run",
    ],
)
def test_a_checkpoint_with_more_or_less_in_it_is_refused(tmp_path, statement):
    """A trigger could keep the noise, or make a step be drawn a second time."""
    plan, rows = interrupted(tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "run", isolation_level=None)) as file:
        file.execute(statement)
    with pytest.raises(es.CheckpointError, match=r"cannot be trusted: it (has a|holds)"):
        es.run(plan, rows, checkpoint=tmp_path / "run", anyway=True)


def test_a_second_name_is_refused(tmp_path):
    plan, rows = interrupted(tmp_path / "run")
    os.link(tmp_path / "run", tmp_path / "other")
    for name in ("run", "other"):
        with pytest.raises(es.CheckpointError, match="another name besides"):
            es.run(plan, rows, checkpoint=tmp_path / name, anyway=True)
    (tmp_path / "other").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    es.run(plan, rows, checkpoint=tmp_path / "link", on_step=(heard := []).append, anyway=True)
    assert heard[0] == 6


def test_a_relative_path_does_not_follow_the_process(tmp_path, monkeypatch):
    plan, rows = example()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    es.run(plan, rows, checkpoint="run", on_step=lambda t: os.chdir(tmp_path / "there"), anyway=True)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["run"]
    assert list((tmp_path / "there").iterdir()) == []


# A writer that dies in the middle of a transaction, some pages of which are in the file already.
DYING = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 2")
connection.execute("BEGIN EXCLUSIVE")
connection.execute("DELETE FROM pending")
for t in range(1000, 1040):
    connection.execute("INSERT INTO answers VALUES (?, zeroblob(9000))", (t,))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="kills")
def test_a_run_goes_on_from_a_file_with_half_a_transaction_in_it(tmp_path):
    """The journal undoes it; nothing but SQLite may do so, and looking what kind of file it is must not."""
    plan, rows = interrupted(tmp_path / "run")
    subprocess.run([sys.executable, "-c", DYING, str(tmp_path / "run")], check=False)
    before = contents(tmp_path)
    assert len(before["run-journal"][0]) > 0
    assert databases.application_id(tmp_path / "run") == databases.CHECKPOINT
    assert contents(tmp_path) == before
    es.run(plan, rows, checkpoint=tmp_path / "run", on_step=(heard := []).append, anyway=True)
    assert heard == list(range(6, 31))


def test_a_header_that_counts_more_pages_than_there_are_is_still_recognised(tmp_path):
    """As between the first and the last page of a commit."""
    interrupted(tmp_path / "run")
    (tmp_path / "torn").write_bytes((tmp_path / "run").read_bytes()[:-4096])
    assert databases.application_id(tmp_path / "torn") == databases.CHECKPOINT


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks at the files that this process has open")
@pytest.mark.parametrize("kind", ["text", "WAL", "another run", "in use"])
def test_a_refused_file_is_given_back_at_once(tmp_path, kind):
    plan, rows = example()
    path = tmp_path / "run"
    if kind in ("text", "WAL"):
        make_foreign(path, kind)
    else:
        es.run(plan, rows, checkpoint=path, anyway=True)
    blocker = sqlite3.connect(path if kind == "in use" else ":memory:", isolation_level=None)
    with closing(blocker):
        blocker.execute("BEGIN EXCLUSIVE")
        before = sum(os.path.realpath(f"/proc/self/fd/{fd}") == str(path) for fd in os.listdir("/proc/self/fd"))
        with pytest.raises(es.CheckpointError):
            es.run(plan, rows, checkpoint=path, start=1.0, anyway=True)
        blocker.execute("ROLLBACK")
        after = sum(os.path.realpath(f"/proc/self/fd/{fd}") == str(path) for fd in os.listdir("/proc/self/fd"))
    assert after == before
