"""The ledger under many processes and threads at once, and under processes that are killed."""

import subprocess
import sys
import threading

import pytest

import epsteps as es


@pytest.fixture
def ledger(tmp_path):
    return es.Ledger(tmp_path / "budget.db")


def run_script(script, path):
    """Run a script that forks; apart from the tests, since their process may have threads."""
    command = [sys.executable, "-W", "ignore", "-c", script, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return [int(word) for word in result.stdout.split()]


CHARGE = """
import multiprocessing, sys
import epsteps as es

def charge(_):
    ledger, made = es.Ledger(sys.argv[1]), 0
    for _ in range(60):
        try:
            ledger.charge("people", es.Pure(2**-11))
            made += 1
        except es.BudgetExceededError:
            pass
    return made

with multiprocessing.get_context("fork").Pool(8) as pool:
    print(*pool.map(charge, range(8), chunksize=1))
"""


def test_processes_at_once_lose_nothing_and_never_overspend(ledger):
    """Eight processes try 60 charges each; 450 of the 480 fit."""
    ledger.create("people", es.Pure(450 * 2**-11))
    made = run_script(CHARGE, ledger.path)
    assert sum(made) == len(ledger.history("people")) == 450
    assert min(made) > 0
    assert ledger.spent("people") == 450 * 2**-11
    assert ledger.remaining("people") == 0
    ledger.verify()


CREATE = """
import multiprocessing, sys
import epsteps as es

def create(number):
    es.Ledger(sys.argv[1]).create(f"dataset {number}", es.Pure(1.0))

with multiprocessing.get_context("fork").Pool(8) as pool:
    pool.map(create, range(16), chunksize=1)
"""


def test_datasets_created_at_once_share_one_file(ledger):
    run_script(CREATE, ledger.path)
    assert {book.name for book in ledger.books()} == {f"dataset {number}" for number in range(16)}


ONCE = """
import multiprocessing, sys
import epsteps as es

def charge(_):
    return es.Ledger(sys.argv[1]).charge("people", es.Pure(0.3), key="one run").seq

with multiprocessing.get_context("fork").Pool(8) as pool:
    print(*pool.map(charge, range(16), chunksize=1))
"""


def test_a_key_charges_once_however_many_try(ledger):
    ledger.create("people", es.Pure(1.0))
    assert set(run_script(ONCE, ledger.path)) == {2}
    assert ledger.spent("people") == 0.3


def test_threads_and_readers_at_once(ledger):
    ledger.create("people", es.Pure(1.0))
    done, seen, failures = threading.Event(), [], []

    def read():
        while not done.is_set():
            seen.append(ledger.remaining("people"))

    def write():
        try:
            for _ in range(25):
                ledger.charge("people", es.Pure(2**-7))
        except BaseException as error:
            failures.append(error)

    reader, writers = threading.Thread(target=read), [threading.Thread(target=write) for _ in range(4)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert failures == []
    assert seen == sorted(seen, reverse=True)
    assert len(seen) > 0
    assert ledger.spent("people") == 100 * 2**-7


KILL = """
import os, random, signal, sys, time
import epsteps as es

random.seed(1)
ledger = es.Ledger(sys.argv[1])
for _ in range(20):
    before = ledger.entries()[-1].seq
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(sink, b"!")
        while True:
            os.write(sink, b"%d " % ledger.charge("people", es.Pure(1e-6)).seq)
    os.close(sink)
    os.read(source, 1)
    time.sleep(random.random() * 0.03)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(source) as file:
        told = file.read().split()
    ledger.verify()
    last = ledger.entries()[-1].seq
    print(last - (int(told[-1]) if told else before))
"""


def test_a_killed_process_leaves_a_valid_ledger(ledger):
    """What was acknowledged is there; at most the one charge under way is there without that."""
    ledger.create("people", es.Pure(1.0))
    unacknowledged = run_script(KILL, ledger.path)
    assert len(unacknowledged) == 20
    assert set(unacknowledged) <= {0, 1}
    ledger.charge("people", es.Pure(1e-6))
    ledger.verify()
