"""A dask cluster: an existing one, or workers on this machine."""

import atexit
import os
import weakref
from typing import Any

from epsteps.data import engine as threads
from epsteps.data.cluster.parts import PURPOSE
from epsteps.problem.extras import require

# How long a scheduler may take to answer, and its first worker to be there.
_SECONDS = 20


class Connection:
    """A client of a dask scheduler; what was started for it ends when it is closed, collected, or Python exits."""

    def __init__(self, client: Any, *started: Any) -> None:
        self.client = client
        self._finalizer = weakref.finalize(self, _close, started)
        self._finalizer.atexit = False
        atexit.register(self._finalizer)  # after distributed's own, so that it runs before: nothing is lost then

    def close(self) -> None:
        """End what was started for this connection; a client that existed before stays."""
        self._finalizer()
        atexit.unregister(self._finalizer)


def _close(started: tuple[Any, ...]) -> None:
    for each in started:
        each.close()


def connect(scheduler: Any = None) -> Connection:
    """Return a connection to this scheduler (an address or a client), the current client's, or one started here."""
    distributed = require("distributed", "dask", PURPOSE)
    if isinstance(scheduler, distributed.Client):
        return Connection(scheduler)
    if scheduler is not None:
        try:
            client = distributed.Client(scheduler, timeout=_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError):
            raise OSError(
                f"no dask scheduler answers at {scheduler!r}. Start one (`dask scheduler` prints its address), or "
                "leave scheduler out for workers on this machine."
            ) from None
        return Connection(client, client)
    try:
        return Connection(distributed.get_client())
    except ValueError:  # there is none
        workers = _local_workers(distributed)
        client = distributed.Client(workers, set_as_default=False)
        return Connection(client, client, workers)


def _local_workers(distributed: Any) -> Any:
    """Return one worker process per core, and leave this process's environment as it is."""
    config = require("dask", "dask", PURPOSE).config
    before, changed = set(os.environ), {*config.get("distributed.nanny.pre-spawn-environ"), "PYTHONHASHSEED"}
    # By default dask has workers return memory to the system at once, which makes sums by NumPy four times slower.
    with config.set({"distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None}):
        workers = distributed.LocalCluster(
            n_workers=threads.allowed(),
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # any port: the usual one may be taken
            scheduler_kwargs={"dashboard": False},
            env={"OMP_NUM_THREADS": "1"},
        )
    for name in changed - before:  # dask limits the workers' threads here too
        os.environ.pop(name, None)
    return workers


def require_workers(client: Any) -> None:
    """Raise unless a worker is there, or comes soon."""
    if client.asynchronous:
        raise TypeError("the dask client must not be asynchronous. Use Client(..., asynchronous=False).")
    try:
        client.wait_for_workers(1, timeout=_SECONDS)
    except TimeoutError:
        raise OSError("the dask scheduler has no workers. Start some with `dask worker` and its address.") from None
