"""Processes: several analysts at once, and kill -9 of the worker and of the server at random moments."""

import contextlib
import random
import threading
import time

import numpy as np
import pytest
from scipy import stats
from service_kit import N, Served, make_site, serving

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
                        es.plan(problem, es.Pure(COST), iterations=2), anyway=True, key=f"plan {count}"
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


@pytest.mark.slow
def test_reply_times_over_ten_datasets_of_the_same_size(tmp_path):
    """The KS distance between reply times of datasets is reported; with the clock it stays that of chance."""
    times = []
    for seed in range(10):
        site = make_site(tmp_path / str(seed), es.Pure(1000.0), seed=seed, policy=OPEN_LIMITS, tick=0.1)
        with serving(site):
            people = site.people()
            problem = people.problem(0.1)
            session = people.session(problem, es.Pure(100.0))
            session.gradient(np.zeros(problem.dimension), COST)
            found = []
            for _ in range(40):
                begun = time.perf_counter()
                session.gradient(np.zeros(problem.dimension), COST)
                found.append(time.perf_counter() - begun)
            times.append(found)
    distances = [stats.ks_2samp(times[0], other).statistic for other in times[1:]]
    worst = max(stats.ks_2samp(a, b).statistic for i, a in enumerate(times) for b in times[:i])
    print(f"\nKS distance of reply times, n = {N}: to the first {np.round(distances, 3)}, largest {worst:.3f}")
    ticks = [{round(each / 0.1) for each in found} for found in times]
    assert all(1 in found for found in ticks)
