"""Threads of the engines on one machine: parts of the records, summed by a pool that waits without spinning."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

# Sums are taken over this many parts of the records, so that results do not depend on the number of threads.
PARTS = 8
# Margins below which starting threads costs more than it saves.
_WORTH_THREADS = 1_000_000
# Margins below which BLAS uses no threads of its own, which would spin while they wait.
_WORTH_LIMITING = 5_000

Result = TypeVar("Result")


def map_parts(part: Callable[[int, int], Result], count: int, *, work: int, largest: int | None = None) -> list[Result]:
    """Return ``part(start, stop)`` for parts of the records, in threads where ``work`` per record makes it pay.

    No part is larger than ``largest``. BLAS keeps to one thread: its own would spin, or wait for each other.
    """
    worth = count * work >= _WORTH_THREADS
    parts = max(PARTS if worth else 1, -(-count // largest) if largest else 1)
    edges = np.linspace(0, count, parts + 1).astype(int).tolist()
    if count * work < _WORTH_LIMITING:
        return list(map(part, edges[:-1], edges[1:]))
    run = _pool().map if worth and allowed() > 1 else map
    with _blas().limit(limits=1, user_api="blas"):
        return list(run(part, edges[:-1], edges[1:]))


def allowed() -> int:
    """Return the cores this process may use, or what OMP_NUM_THREADS or NUMBA_NUM_THREADS allow of them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")]
    return min([cores, *(int(limit) for limit in limits if limit.isdigit() and int(limit) > 0)])


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(allowed(), thread_name_prefix="epsteps")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
