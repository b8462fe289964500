"""Processes: several analysts at once, and kill -9 of the worker and of the server at random moments."""

import contextlib
import random
import threading
import time

import numpy as np
import pytest
from scipy import stats
from service_kit import N, Served, make_site, serving, table

import epsteps as es
from epsteps.service import tokens
from epsteps.service.client import connect
from epsteps.service.store import Store, beside

COST = 0.01


class Analyst(threading.Thread):
    """Somebody who asks until told to stop, and keeps every answer that was acknowledged, with its key."""

    def __init__(self, site, number, stop):
        super().__init__(daemon=True)
        self.site, self.number, self.stop, self.kept, self.failed = site, number, stop, {}, None
        self.secret, _ = tokens.make(site.tokens, f"analyst{number}", ["read", "plan", "session"], 1)
        self.refused = 0

    def run(self):
        try:
            with connect(self.site.url, token=self.secret, patience=120.0) as connection:
                self.ask(connection["people"])
        except BaseException as error:
            self.failed = error

    def ask(self, people):
        problem, rng = people.problem(0.1), random.Random(self.number)
        session = people.session(problem, people.budget, key=f"session {self.number}")
        x, count = np.zeros(problem.dimension), 0
        while not self.stop.is_set():
            count += 1
            try:
                if self.number == 0 and count % 5 == 0:
                    run = people.submit(
                        es.plan(problem, es.Pure(COST), es.nesterov, iterations=2), anyway=True, key=f"plan {count}"
                    ).result()
                    self.kept[f"plan {count}"] = run.path.tobytes()
                else:
                    key = f"step {count}"
                    x = session.gradient(x, COST, key=key)
                    self.kept[key] = x.tobytes()
                    x = np.clip(x, -1, 1)
            except es.BudgetExceededError:
                self.refused += 1
                return
            time.sleep(rng.uniform(0, 0.002))


def check(site, analysts):
    """What was acknowledged is there; every charge has one draw; nothing is overspent; the chain verifies."""
    for analyst in analysts:
        assert analyst.failed is None, analyst.failed
    site.verify()
    book = site.ledger.book("people")
    assert book.spent <= book.budget.amount
    by_request = [entry.key.split(":")[1] for entry in book.charges]
    assert len(set(by_request)) == len(by_request)
    with Store(beside(site.ledger.path)) as store:
        events = [event.request for event in store.events() if event.decision == "charged"]
        assert len(set(events)) == len(events)  # noise is stored in the same moment: once
        assert set(events) >= {request.id for request in store.requests(states=("published",))}
        stored = {(request.analyst, request.key): request for request in store.requests(states=("published",))}
    for analyst in analysts:
        for key, kept in analyst.kept.items():
            assert kept == content_of(stored[(f"analyst{analyst.number}", key)]), key
    return sum(len(analyst.kept) for analyst in analysts)


def content_of(request):
    from epsteps.service import wire

    if request.kind == "plan":
        content = wire.read_object(request.answer, ("path", "extras", "seeded", "charged"))
        return wire.read_array(content["path"]).tobytes()
    content = wire.read_object(request.answer, ("gradient", "charged", "seeded"))
    return wire.read_point(content["gradient"], 5).tobytes()


def crowd(site, count):
    stop = threading.Event()
    analysts = [Analyst(site, number, stop) for number in range(count)]
    return stop, analysts


def rehearse(site, analysts, stop, seconds):
    for analyst in analysts:
        analyst.start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(analyst.is_alive() for analyst in analysts):
        time.sleep(0.05)
    stop.set()
    for analyst in analysts:
        analyst.join(180)
        assert not analyst.is_alive()


@pytest.mark.parametrize(
    ("seconds", "budget"), [(90.0, 0.3), pytest.param(60.0, 100.0, marks=pytest.mark.slow)], ids=["quick", "minute"]
)
def test_eight_analysts_at_once_overspend_nothing_and_lose_nothing(tmp_path, seconds, budget):
    """They ask until the budget is spent, which each of them is told, or for a minute."""
    site = make_site(tmp_path, es.Pure(budget), policy=OPEN_LIMITS)
    stop, analysts = crowd(site, 8)
    with serving(site):
        rehearse(site, analysts, stop, seconds)
    answered = check(site, analysts)
    print(f"\neight analysts, {seconds:g} s: {answered} answers, spent {site.ledger.spent('people')} of {budget}")
    if budget < 1:
        assert (answered, sum(analyst.refused for analyst in analysts)) == (30, 8)
    assert answered >= 30


OPEN_LIMITS = {
    "plans": {"per_plan": 1e9, "per_analyst": 1e9, "per_day": 1e9},
    "sessions": {"per_session": 1e9},
    "limits": {"rate": 1000.0},
}


def busy(analysts, count):
    """Wait until so many answers were given: a moment in which much is going on."""
    deadline = time.monotonic() + 60
    while sum(len(analyst.kept) for analyst in analysts) < count and time.monotonic() < deadline:
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("kills", "analysts"), [(3, 2), pytest.param(200, 4, marks=pytest.mark.slow)], ids=["quick", "two hundred"]
)
def test_killed_at_random_moments_nothing_is_lost_or_drawn_twice(tmp_path, kills, analysts):
    """Every third kill is of the server, and its worker finds itself alone; the others are of the worker."""
    site = make_site(tmp_path, es.Pure(1000.0), policy=OPEN_LIMITS)
    served = Served(site).start().wait()
    stop, asking = crowd(site, analysts)
    rng = random.Random(kills)
    try:
        for analyst in asking:
            analyst.start()
        for number in range(kills):
            busy(asking, 2 * number + 2)
            time.sleep(rng.uniform(0.0, 0.1))
            if number % 3 == 1:
                served.kill()
                served.start()
            else:
                served.kill_worker()
            with contextlib.suppress(TimeoutError):
                served.wait()
        busy(asking, 2 * kills + 2)
        stop.set()
        for analyst in asking:
            analyst.join(180)
    finally:
        served.wait()
        served.kill()
        site.close()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:  # the worker ends when its server is gone
        with contextlib.suppress(OSError):
            from epsteps.service.holder import only_one

            only_one(beside(site.ledger.path)).close()
            break
    answered = check(site, asking)
    print(f"\n{kills} kills: {answered} acknowledged answers, all there")
    assert answered >= 2 * kills


def contents():
    """Return ten tables of the same size: ordinary ones, constant ones, and cells that are empty or not declared."""
    text = {name: np.array([""] * N, dtype=object) for name in table()}
    low = {"age": np.full(N, 18.0), "region": np.array(["north"] * N, dtype=object), "bought": np.zeros(N)}
    high = {"age": np.full(N, 90.0), "region": np.array(["south"] * N, dtype=object), "bought": np.ones(N)}
    odd = {name: np.array(["?", "1e308", "-1e-308", "nan"] * (N // 4), dtype=object) for name in table()}
    return [*(table(seed) for seed in range(6)), low, high, text, odd]


@pytest.mark.slow
@pytest.mark.parametrize("tick", [0.1, 0.0], ids=["clock", "no clock"])
def test_reply_times_over_ten_datasets_of_the_same_size(tmp_path, tick):
    """They are served side by side and asked in turn: the KS distances of their reply times are those of chance."""
    rounds, sessions = 60, []
    with contextlib.ExitStack() as stack:
        for number, records in enumerate(contents()):
            site = make_site(tmp_path / str(number), es.Pure(1e4), records=records, policy=OPEN_LIMITS, tick=tick)
            stack.enter_context(serving(site))
            people = site.people()
            sessions.append(people.session(people.problem(0.1), es.Pure(100.0)))
        x, times = np.zeros(sessions[0].problem.dimension), np.zeros((rounds, len(sessions)))
        for lap in range(-1, rounds):
            for number, session in enumerate(sessions):
                begun = time.perf_counter()
                session.gradient(x, COST)
                times[lap, number] = time.perf_counter() - begun
    found = [stats.ks_2samp(times[:, a], times[:, b]) for a in range(10) for b in range(a)]
    worst = max(found, key=lambda each: each.statistic)
    print(
        f"\nKS distance of reply times, tick {tick} s, n = {N}: median {np.median([f.statistic for f in found]):.3f}, "
        f"largest of {len(found)} pairs {worst.statistic:.3f} (p = {worst.pvalue:.2g}); "
        f"replies after {np.median(times):.3f} s in the median"
    )
    if tick:
        assert worst.pvalue * len(found) > 1e-3
        assert np.min(times) > 0.99 * tick
