"""A service for tests: generated records in a folder, and a server in a thread or in a process of its own."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

import epsteps as es
from epsteps.service import tokens
from epsteps.service.client import connect
from epsteps.service.holder import Holder, Setup
from epsteps.service.policy import Policy, read_tables
from epsteps.service.store import Store, beside, verify_beside

SCHEMA = """\
target = "bought"
[columns.age]
type = "numeric"
low = 18
high = 90
[columns.region]
type = "category"
values = ["north", "east", "south"]
[columns.bought]
type = "category"
values = [0, 1]
"""
OPEN = {"plans": {"per_plan": 1e9, "per_analyst": 1e9, "per_day": 1e9}, "sessions": {"per_session": 1e9}}
N = 500


def schema():
    return es.Schema.from_toml(SCHEMA)


def table(seed=0, n=N):
    rng = np.random.default_rng(seed)
    age, region = rng.integers(18, 91, n), rng.integers(0, 3, n)
    bought = rng.uniform(size=n) < 1 / (1 + np.exp(-(age - 54) / 10))
    names = np.array(["north", "east", "south"])[region]
    return {"age": age.astype(float), "region": names.astype(object), "bought": bought.astype(float)}


def rows(problem, seed=0, n=N):
    records = table(seed, n)
    return es.Rows(problem, schema().encode(records), schema().encode_target(records))


def toml(tables):
    """Return a policy's tables as TOML."""
    lines = []
    for name, entries in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in entries.items())]
    return "\n".join(lines)


@dataclass
class Site:
    """A folder with everything that is served."""

    folder: Path
    setup: Setup
    secrets: dict[str, str]
    port: int
    admin_port: int
    connections: list = field(default_factory=list)
    # One for all plain requests: each one of httpx's own functions reads certificates anew.
    http: httpx.Client = field(default_factory=lambda: httpx.Client(verify=False, trust_env=False))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def admin_url(self):
        return f"http://127.0.0.1:{self.admin_port}"

    @property
    def ledger(self):
        return es.Ledger(self.setup.ledger)

    @property
    def tokens(self):
        return self.folder / "tokens.toml"

    def connect(self, who="alice"):
        self.connections.append(connect(self.url, token=self.secrets[who]))
        return self.connections[-1]

    def close(self):
        for connection in [*self.connections, self.http]:
            connection.close()

    def people(self, who="alice"):
        return self.connect(who)["people"]

    def verify(self):
        self.ledger.verify()
        return verify_beside(self.ledger)


def make_site(
    folder,
    budget,
    *,
    policy=OPEN,
    seed=0,
    records=None,
    declared=SCHEMA,
    composition="adaptive",
    source_seed=None,
    **setup,
):
    folder.mkdir(parents=True, exist_ok=True)
    records = table(seed) if records is None else records
    cells = [
        [f"{cell:g}" if isinstance(cell, float) else cell for cell in column.tolist()] for column in records.values()
    ]
    lines = [",".join(records), *map(",".join, zip(*cells, strict=True))]
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    (folder / "schema.toml").write_text(declared)
    (folder / "policy.toml").write_text(toml(policy))
    es.Ledger(folder / "budget.db").create("people", budget, composition=composition)
    secrets = {}
    for who in ("alice", "bob"):
        secrets[who], _ = tokens.make(folder / "tokens.toml", who, ["read", "plan", "session"], 1)
    secrets["admin"], _ = tokens.make(folder / "tokens.toml", "holder", ["admin"], 1)
    paths = [str(folder / name) for name in ("people.csv", "schema.toml", "budget.db")]
    facts = {"policy": read_tables(folder / "policy.toml"), "tick": 0.0, "seed": source_seed} | setup
    return Site(folder, Setup(*paths, "people", **facts), secrets, free_port(), free_port())


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def serving(site):
    """Serve from a thread of this process: the records are read by a process of their own all the same."""
    from epsteps.service import server

    ready, state = threading.Event(), {}

    async def main():
        desk = state["desk"] = server.Desk(site.setup, site.tokens)
        state["loop"] = asyncio.get_running_loop()
        try:
            await server.serve(desk, port=site.port, admin_port=site.admin_port, on_ready=ready.set)
        except OSError as error:
            state["error"] = error
        ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield state
    finally:
        site.close()
        if thread.is_alive():
            state["loop"].call_soon_threadsafe(state["desk"].stopped.set)
        thread.join(30)


class Served:
    """A server in a process of its own, which can be killed and started again."""

    def __init__(self, site):
        self.site, self.process = site, None

    def start(self):
        facts = [json.dumps(vars(self.site.setup)), str(self.site.tokens), str(self.site.port)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path))}
        self.process = subprocess.Popen([sys.executable, __file__, *facts], env=environment, stderr=subprocess.DEVNULL)
        return self

    def wait(self, seconds=60.0):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                if self.site.http.get(f"{self.site.url}/readyz").status_code == 200:
                    return self
            time.sleep(0.05)
        raise TimeoutError("the service did not become ready")

    def worker(self):
        """Return the process that computes: the server's child."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(listed[0]) if listed else None

    def kill_worker(self):
        with contextlib.suppress(ProcessLookupError):
            if (worker := self.worker()) is not None:
                os.kill(worker, signal.SIGKILL)

    def kill(self):
        self.process.kill()
        self.process.wait()


def holder_of(folder, budget, *, seed=None, data_seed=0, policy=OPEN, records=None, composition="adaptive", **facts):
    """Return a holder in this process, with files of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    ledger = es.Ledger(folder / "budget.db")
    if not ledger.path.exists():
        ledger.create("people", budget, composition=composition)
    store = Store(beside(ledger.path))
    records = table(data_seed) if records is None else records
    return Holder(store, ledger, "people", schema(), records, Policy.from_dict(policy), seed=seed, **facts)


def main():
    from epsteps.service import server

    setup, token_file, port = Setup(**json.loads(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])

    async def serve():
        await server.serve(server.Desk(setup, token_file), port=port)

    asyncio.run(serve())


if __name__ == "__main__":
    main()
