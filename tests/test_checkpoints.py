"""Interrupted runs: they go on where they stood, pay once, and never meet their records with a second noise."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import closing

import numpy as np
import pytest
from conftest import records, small_problem

import epsteps as es
from epsteps.checkpoints import CheckpointError

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
    whole = es.run(plan, rows, **options)
    for stop in stops:

        def interrupt(t, stop=stop):
            if t == stop:
                raise Stop

        with pytest.raises(Stop):
            es.run(plan, rows, **options, checkpoint=tmp_path / "run", on_step=interrupt)
    heard = []
    resumed = es.run(plan, rows, **options, checkpoint=tmp_path / "run", on_step=heard.append)
    np.testing.assert_array_equal(resumed.path, whole.path)
    assert heard == list(range(stops[-1] + 1, 31))


def test_an_unseeded_run_keeps_what_it_has_published(tmp_path):
    plan, rows = example()
    seen = []

    def interrupt(t):
        if t == 11:
            raise Stop

    with pytest.raises(Stop):
        es.run(plan, rows, checkpoint=tmp_path / "run", on_step=interrupt)
    for _ in range(2):
        seen.append(es.run(plan, rows, checkpoint=tmp_path / "run").path)
    np.testing.assert_array_equal(*seen)


def test_the_noise_of_finished_steps_is_gone(tmp_path):
    plan, rows = example()
    es.run(plan, rows, checkpoint=tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "run")) as file:
        assert file.execute("SELECT count(*) FROM pending").fetchone() == (0,)
        assert file.execute("SELECT count(*) FROM path").fetchone() == (31,)
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
        es.run(plan, rows, checkpoint=tmp_path / "run", ledger=account, on_step=interrupt)
    for _ in range(2):
        es.run(plan, rows, checkpoint=tmp_path / "run", ledger=account)
    assert ledger.spent("people") == pytest.approx(plan.spent)
    with pytest.raises(ValueError, match="does not fit"):
        es.run(plan, rows, checkpoint=tmp_path / "other", ledger=account)


def test_another_runs_file_is_refused(tmp_path):
    plan, rows = example()
    es.run(plan, rows, checkpoint=tmp_path / "run")
    for options in ({"start": 1.0}, {"seed": 1, "arithmetic": "exact"}, {"repetitions": 2}):
        with pytest.raises(CheckpointError, match="belongs to a run with another plan, start or seed"):
            es.run(plan, rows, checkpoint=tmp_path / "run", **options)
    es.Ledger(tmp_path / "ledger.db").create("people", es.Pure(1.0))
    with pytest.raises(CheckpointError, match="is not a checkpoint; it was left as it is"):
        es.run(plan, rows, checkpoint=tmp_path / "ledger.db")
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(CheckpointError, match="is not a checkpoint; it was left as it is"):
        es.run(plan, rows, checkpoint=tmp_path / "text")
    with pytest.raises(CheckpointError, match="there is no folder"):
        es.run(plan, rows, checkpoint=tmp_path / "no" / "folder")


def test_a_file_in_use_is_refused(tmp_path):
    plan, rows = example()

    def again(t):
        es.run(plan, rows, checkpoint=tmp_path / "run")

    with pytest.raises(CheckpointError, match="Another run is using it"):
        es.run(plan, rows, checkpoint=tmp_path / "run", on_step=again)


# A run in a process of its own, which writes down with which noise the records were met at each step.
PROGRAM = """
import hashlib, json, sys, time
sys.path.insert(0, sys.argv[2])
import epsteps as es
from epsteps.oracles import ExactOracle
from test_checkpoints import example

folder, seed = sys.argv[1], json.loads(sys.argv[3])
plan, rows = example()
original, log = ExactOracle.gradient, open(f"{folder}/met.txt", "a")

def gradient(self, draw):
    log.write(f"{self._release.x.tobytes().hex()} {hashlib.sha256(draw.noise.tobytes()).hexdigest()}\\n")
    log.flush()
    return original(self, draw)

ExactOracle.gradient = gradient
ledger = es.Ledger(f"{folder}/ledger.db")
run = es.run(plan, rows, seed=seed, arithmetic="exact", ledger=ledger.account("people"), checkpoint=f"{folder}/run",
             on_step=lambda t: time.sleep(0.01))
print(json.dumps(run.path.tolist()))
"""


def killed_run(folder, seed, kills):
    """Kill a run at random moments, so many times, and return the path it ends with."""
    moments = random.Random(5)
    es.Ledger(folder / "ledger.db").create("people", es.Pure(1.0))
    command = [sys.executable, "-c", PROGRAM, str(folder), os.path.dirname(__file__), json.dumps(seed)]
    for _ in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moments.uniform(0.0, 2.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return np.array(json.loads(output))


def check_killed_runs(folder, kills):
    plan, rows = example()
    (folder / "seeded").mkdir()
    path = killed_run(folder / "seeded", 3, kills // 2)
    np.testing.assert_array_equal(path, es.run(plan, rows, seed=3, arithmetic="exact").path)
    (folder / "private").mkdir()
    killed_run(folder / "private", None, kills - kills // 2)
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


def test_killed_runs_go_on(tmp_path):
    check_killed_runs(tmp_path, kills=8)


@pytest.mark.slow
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
    es.run(plan, rows, checkpoint=sys.argv[1], on_step=heard.append)
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
        es.run(plan, rows, checkpoint=tmp_path / "run", on_step=(later := []).append)
        assert later[0] in (int(heard), int(heard) + 1)
