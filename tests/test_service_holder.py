"""The holder's process, in this one: neighbours, filters against adversaries, and a crash at every moment."""

import dataclasses
import functools
import json
import math
import os
import time

import numpy as np
import pytest
from outside import EvenDescent
from service_kit import OPEN, holder_of, make_site, rows, schema, table
from test_own_budget import GaussianDP

import epsteps as es
from epsteps.methods.bought import SmoothnessPlan
from epsteps.plans.notation import problem_to_dict
from epsteps.running import checkpoint
from epsteps.running.run import Answers, Reader, Run, converse
from epsteps.service import holder as holders
from epsteps.service import store as stores
from epsteps.service import wire
from epsteps.service.holder import Worker
from epsteps.service.policy import Policy
from epsteps.service.store import verify_beside
from epsteps.tables.model import problem_of
from epsteps.testing import replay


def problem(ridge=0.1, n=500):
    return problem_of(schema(), n, ridge)


def opened(holder, allowance, who="alice", key="session"):
    body = wire.dumped({"problem": problem_to_dict(problem()), "allowance": allowance.to_dict()})
    request = holder.handle(holder.store.ask(who, key, "session", "", body)[0].id)
    assert request.state == "approved", request.answer
    return request


def asked(holder, session, content, who="alice", key=None):
    body = wire.dumped(content)
    request, _ = holder.store.ask(
        who, key or os.urandom(8).hex(), "gradient", wire.digest(body), body, session=session.id
    )
    return holder.handle(request.id)


class InProcess(Answers):
    """What answers a method over the holder's own bytes, without a server in between."""

    def __init__(self, holder, session):
        self._holder, self._opened = holder, session

    def _answer(self, request):
        reply = asked(self._holder, self._opened, wire.gradient_to_dict(request))
        assert reply.state == "published", reply.answer
        content = wire.read_object(reply.answer, ("gradient",), ("charged", "seeded"))
        return wire.read_point(content["gradient"], len(request.x)).reshape(request.x.shape)

    def finish(self):
        pass


def over_the_wire(plan, holder):
    session = opened(holder, plan.budget)
    published = converse(plan, InProcess(holder, session), np.zeros((plan.problem.dimension, 1)))
    return Run(plan, published.path[..., 0], seeded=False)


@pytest.mark.parametrize("budget", [es.Pure(2.0), es.Concentrated(0.5)], ids=["pure", "zcdp"])
def test_a_session_is_a_run_on_neighbours_too(tmp_path, budget):
    """With its releases frozen, a run over the wire is the same on a neighbour, and loses no more than was charged."""
    plan = es.plan(problem(), budget, iterations=4, method=es.nesterov)
    neighbour = table()
    neighbour["age"][17], neighbour["bought"][17] = 90.0, 1.0 - neighbour["bought"][17]
    fits = []

    def fit(records, account):
        holder = holder_of(tmp_path / str(len(fits)), budget, records=records)
        fits.append(holder)
        charge = holder.charge

        def told(request, price, **facts):
            entry = charge(request, price, **facts)
            account.charge(price, note="a step")
            return entry

        holder.charge = told
        path = over_the_wire(plan, holder).path
        holder.store.close()
        return path

    compared = replay(fit, table(), neighbour)
    assert len(compared.losses) == 4
    assert np.all(compared.losses[:, 0] <= plan.costs * (1 + 1e-9))
    assert sum(charge.amount for charge in compared.charges) <= budget.amount
    local = replay(
        lambda records, account: es.run(plan, prepared(records), ledger=account, anyway=True).path, table(), neighbour
    )
    assert [event.facts for event in local.events if event.kind == "integers"] == [
        event.facts for event in compared.events if event.kind == "integers"
    ]


def prepared(records):
    return es.Rows(problem(), schema().encode(records), schema().encode_target(records))


# Kinds of plans


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Telling(EvenDescent):
    """A method from outside that publishes numbers of several types besides."""

    def conversation(self):
        published = yield from super().conversation()
        extras = {"count": np.arange(3, dtype=np.int32), "flags": np.array([True, False]), "small": np.float32([1.5])}
        return es.Published(published.path, extras | {"bytes": np.uint8([7]), "scalar": np.array(2.0)})


PLANS = {
    "outside": lambda: EvenDescent(problem(), es.Pure(1.0), 3),
    "telling": lambda: Telling(problem(), es.Pure(1.0), 2),
    "a sum": lambda: SmoothnessPlan(problem(), es.Pure(1.0), 0.99),
    "curvature": lambda: es.plan(problem(), es.Pure(20.0), method="curvature"),
}


@pytest.mark.parametrize("name", list(PLANS))
def test_every_kind_of_plan_that_the_holder_knows_travels_as_it_is(tmp_path, name):
    """The service knows none of them by name: what it reads, certifies, charges and runs is a plan."""
    plan = PLANS[name]()
    local = es.run(plan, prepared(table()), seed=3, arithmetic="exact", anyway=True)
    holder = holder_of(tmp_path, es.Pure(50.0), seed=3)
    body = wire.dumped({"plan": plan.to_json(), "anyway": True})
    posted = holder.handle(holder.store.ask("alice", name, "plan", "", body)[0].id)
    assert (posted.state, posted.page) == ("approved", str(plan)), posted.answer
    done = holder.handle(posted.id)
    assert done.state == "published"
    assert holder.ledger.spent("people") == pytest.approx(plan.spent)
    remote = wire.read_run(plan, json.loads(done.answer))
    assert np.array_equal(remote.path, local.path)
    assert {each: values.tolist() for each, values in remote.extras.items()} == {
        each: np.asarray(values).tolist() for each, values in local.extras.items()
    }
    holder.store.close()


def test_a_kind_of_plan_that_the_holder_does_not_know_or_allow_is_refused(tmp_path):
    text = EvenDescent(problem(), es.Pure(1.0), 3).to_json()
    holder = holder_of(tmp_path, es.Pure(50.0), policy=OPEN | {"allowed": {"plans": ["StepsPlan"]}})
    for sent, said in ((text, b"not-allowed"), (text.replace("EvenDescent", "Unheard"), b"plan-refused")):
        refused = holder.handle(
            holder.store.ask("alice", sent[-9:] + str(len(sent)), "plan", "", wire.dumped({"plan": sent}))[0].id
        )
        assert said in refused.answer
    assert holder.ledger.spent("people") == 0
    holder.store.close()


# Filters


KINDS = {
    "pure": (es.Pure(1.0), lambda share: share, lambda price: price.epsilon),
    "zcdp": (es.Concentrated(0.5), lambda share: 0.5 * share, lambda price: price.rho),
    "gaussian": (GaussianDP(1.0), lambda share: 0.5 * share, lambda price: price.mu**2),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_an_adversary_who_chooses_costs_by_the_answers_gets_no_more_than_the_budget(tmp_path, kind):
    """Points and costs are chosen by the noise that was seen, by two colluding analysts, until all is refused."""
    budget, cost_of, amount = KINDS[kind]
    holder = holder_of(tmp_path, budget)
    sessions = [opened(holder, budget, who, who) for who in ("alice", "bob")]
    x, share, refused, spent = np.zeros(problem().dimension), 0.2, 0, []
    for step in range(60):
        who = step % 2
        reply = asked(holder, sessions[who], {"x": wire.point_text(x), "cost": cost_of(share)}, ("alice", "bob")[who])
        if reply.state == "refused":
            assert b"budget-exceeded" in reply.answer or b"allowance-exceeded" in reply.answer
            refused, share = refused + 1, share / 2  # and ask for less, to the last crumb
            if refused > 12:
                break
            continue
        spent.append(holder.store.prices()[-1])
        gradient = wire.read_point(
            wire.read_object(reply.answer, ("gradient", "charged", "seeded"))["gradient"], len(x)
        )
        # Where the noise was lucky the next answer shall be dear, at a point that follows it.
        x, share = x + gradient, min(0.3, 0.02 + 0.2 * abs(math.sin(1e3 * gradient[0])))
    limit = amount(budget)
    total = math.fsum(amount(price) for price in spent)
    assert refused
    assert 0.9 * limit < total <= limit * (1 + 1e-12)
    holder.ledger.verify()
    holder.store.close()


SHARES = (0.4, 0.01, 0.001)
# A budget that stands for 1, and what a share of it costs.
RATIOS = {
    "pure": (es.Pure(1.0), es.Pure),
    "zcdp": (es.Concentrated(0.5), lambda share: es.Concentrated(0.5 * share)),
    "gaussian": (GaussianDP(1.0), lambda share: GaussianDP(math.sqrt(share))),
}


def losses(kind, trials, *, times=1.0):
    """Return the log likelihood ratio of whole transcripts, neighbours at the distance that each answer was paid for.

    The mechanism is simulated: an answer is 0 plus noise, and on the neighbour 1 plus noise, of the scale that its cost
    allows. The adversary chooses the next cost by what makes the ratio grow, and stops when the ledger's own filter
    lets nothing pass; ``times`` makes it one of a larger budget.
    """
    budget, price_of = RATIOS[kind]
    prices, rng, found = [price_of(share) for share in SHARES], np.random.default_rng(1), []
    limit = price_of(times) if times != 1.0 else budget

    @functools.cache
    def fits(counts):
        charged = [price for price, count in zip(prices, counts, strict=True) for _ in range(count)]
        return limit.tally(charged, "adaptive", "decimal").fits

    for _ in range(trials):
        counts, ratio = (0, 0, 0), 0.0
        for _ in range(200):
            tried = (tuple(known + (place == asked) for place, known in enumerate(counts)) for asked in order(ratio))
            after = next(filter(fits, tried), None)
            if after is None:
                break
            price = next(price for price, old, new in zip(prices, counts, after, strict=True) if new > old)
            counts, ratio = after, ratio + one_loss(price, rng)
        found.append(ratio)
    return np.array(found)


def order(ratio):
    """Return which shares the adversary tries: the large one first while the ratio speaks for the neighbour."""
    return (0, 1, 2) if ratio > 0 else (1, 2)


def one_loss(price, rng):
    if isinstance(price, es.Pure):
        answer = rng.laplace(scale=1 / price.epsilon)
        return price.epsilon * (abs(answer - 1) - abs(answer))
    mu = math.sqrt(2 * price.rho) if isinstance(price, es.Concentrated) else price.mu
    answer = rng.normal(scale=1 / mu)
    return mu**2 * (0.5 - answer)


def excess(found):
    """Return by how many standard errors transcripts exceed what a budget of rho = 1/2, or mu = 1, promises at most.

    Whatever the adversary does, E exp((a-1) loss) is at most exp(a (a-1) rho), and the deltas are those of mu.
    """
    tested = [(np.exp((a - 1) * found), math.exp(a * (a - 1) * 0.5)) for a in (1.25, 1.5, 2.0)]
    for epsilon in (0.5, 1.0, 2.0):
        delta = es.budgets.conversions.gaussian_delta(1.0, epsilon)
        tested.append((np.maximum(0, 1 - np.exp(epsilon - found)), delta))
    errors = [(values.mean() - bound) / (values.std() / math.sqrt(len(values))) for values, bound in tested]
    return max(errors)


def test_the_likelihood_ratio_of_an_adaptive_transcript_keeps_to_pure_epsilon():
    found = losses("pure", 1000)
    print(f"\npure: largest log likelihood ratio of 1000 transcripts {np.max(np.abs(found)):.6f} of 1")
    assert np.max(np.abs(found)) <= 1.0 + 1e-9
    assert np.max(found) > 0.9  # the adversary comes near
    assert np.max(losses("pure", 100, times=1.5)) > 1.2  # and would be seen to go beyond


@pytest.mark.parametrize("kind", ["zcdp", "gaussian"])
def test_the_likelihood_ratio_of_an_adaptive_transcript_keeps_to_its_moments(kind):
    """A right filter fails by chance once in 50 000 times; one with 1.5 times the budget is found."""
    right, wrong = excess(losses(kind, 1500)), excess(losses(kind, 1500, times=1.5))
    print(
        f"\n{kind}: largest excess of moments and deltas, 1500 transcripts: {right:.2f} standard errors; "
        f"of a filter with 1.5 times the budget: {wrong:.1f}"
    )
    assert right < 4.5
    assert wrong > 4.5


@pytest.mark.parametrize(
    ("composition", "price"), [("adaptive", es.Concentrated), ("plain", es.Pure)], ids=["adaptive", "plain"]
)
def test_under_epsilon_and_delta_answers_are_charged_as_what_the_filter_takes(tmp_path, composition, price):
    budget = es.Approximate(1.0, 1e-6)
    holder = holder_of(tmp_path, budget, composition=composition)
    session = opened(holder, es.Approximate(0.5, 1e-6))
    reply = asked(holder, session, {"x": wire.point_text(np.zeros(problem().dimension)), "cost": 1e-3})
    assert reply.state == "published"
    assert isinstance(holder.store.prices()[0], price)
    refused = asked(holder, session, {"x": wire.point_text(np.zeros(problem().dimension)), "cost": 0.9})
    assert b"allowance-exceeded" in refused.answer
    holder.store.close()


@pytest.mark.parametrize(
    ("budget", "composition", "wrong", "right"),
    [
        (es.Concentrated(1.0), "adaptive", es.Pure(0.5), es.Concentrated(0.5)),
        (es.Approximate(1.0, 1e-6), "adaptive", es.Pure(0.5), es.Approximate(0.5, 1e-6)),
    ],
    ids=["zcdp", "approximate"],
)
def test_an_allowance_that_could_pay_for_nothing_is_refused_with_the_session(
    tmp_path, budget, composition, wrong, right
):
    holder = holder_of(tmp_path, budget, composition=composition)
    body = wire.dumped({"problem": problem_to_dict(problem()), "allowance": wrong.to_dict()})
    refused = holder.handle(holder.store.ask("alice", "wrong", "session", "", body)[0].id)
    assert (refused.state, refused.status) == ("refused", 422)
    assert json.loads(refused.answer)["budget"] == type(right).__name__
    assert json.loads(refused.answer)["unit"] in json.loads(refused.answer)["detail"]
    session = opened(holder, right)
    reply = asked(holder, session, {"x": wire.point_text(np.zeros(problem().dimension)), "cost": 1e-3})
    assert reply.state == "published", reply.answer
    holder.store.close()


@pytest.mark.parametrize("opening", ["policy", "person", "another process"])
def test_the_first_answer_of_a_session_finds_its_records_prepared(tmp_path, monkeypatch, opening):
    """They are prepared when the session is opened, and again at the start of a process that finds it open."""
    holder = holder_of(tmp_path, es.Pure(1.0), policy={} if opening == "person" else OPEN)
    body = wire.dumped({"problem": problem_to_dict(problem()), "allowance": es.Pure(1.0).to_dict()})
    session = holder.handle(holder.store.ask("alice", "session", "session", "", body)[0].id)
    if opening == "person":
        assert session.state == "waiting"
        holder.store.move(session, "approved", by="holder")
        holder.handle(session.id)  # of which the process is told
    elif opening == "another process":
        holder.store.close()
        holder = holder_of(tmp_path, es.Pure(1.0))
        holder.prepare_open()

    def late(*_):
        raise AssertionError("records were prepared when the clock of an answer had started")

    monkeypatch.setattr(Reader, "prepare", late)
    monkeypatch.setattr(Reader, "__init__", late)
    reply = asked(holder, session, {"x": wire.point_text(np.zeros(problem().dimension)), "cost": 0.1})
    assert reply.state == "published"
    holder.store.close()


def test_sessions_of_more_columns_than_are_kept_are_answered_and_prepared_again(tmp_path):
    holder = holder_of(tmp_path, es.Pure(5.0))
    views = [(["age"], "bought"), (["region"], "bought"), (["age", "region"], "bought"), (["region", "age"], "bought")]
    views += [(["bought"], "age"), (["bought"], "region")]
    for number, (columns, target) in enumerate([*views, *views]):
        declared = es.Schema({name: schema().columns[name] for name in [*columns, target]}, target)
        about = problem_of(declared, 500, 0.1)
        content = {"problem": problem_to_dict(about), "allowance": es.Pure(0.2).to_dict()}
        body = wire.dumped(content | {"columns": columns, "target": target})
        session = holder.handle(holder.store.ask("alice", str(number), "session", "", body)[0].id)
        assert session.id in holder._sessions
        reply = asked(holder, session, {"x": wire.point_text(np.zeros(about.dimension)), "cost": 0.1})
        assert reply.state == "published", reply.answer
    assert len(holder._views) <= 4
    holder.store.close()


@pytest.mark.parametrize(
    ("budget", "composition"),
    [
        (es.Pure(1e-3), "adaptive"),
        (es.Concentrated(1e-3), "adaptive"),
        (es.Approximate(0.1, 1e-9), "adaptive"),
        (es.Approximate(0.1, 1e-9), "plain"),
        (GaussianDP(0.1), "adaptive"),
    ],
    ids=["pure", "zcdp", "adaptive", "plain", "own"],
)
def test_the_clock_is_set_with_a_ledger_of_the_same_kind_and_all_kinds_of_targets(
    tmp_path, monkeypatch, budget, composition
):
    ledger = es.Ledger(tmp_path / "budget.db")
    ledger.create("people", budget, composition=composition)
    charged, targets, charge, steps = [], [], es.Ledger.charge, holders._step_times

    def told(ledger, name, cost, **facts):
        charged.append((ledger.book(name).budget, ledger.book(name).terms.composition))
        return charge(ledger, name, cost, **facts)

    monkeypatch.setattr(es.Ledger, "charge", told)
    monkeypatch.setattr(holders, "_CALIBRATIONS", 2)
    monkeypatch.setattr(holders, "_step_times", lambda *known: targets.append(known[1]) or steps(*known))
    tick = holders.calibrated(schema(), 50, ledger, "people", Policy.from_dict({"allowed": {"columns": ["age"]}}))
    assert tick >= 0.005
    assert len(charged) == 2 * 3  # age cannot be asked for as the only column of itself
    assert {(type(each), rule) for each, rule in charged} == {(type(budget), composition)}
    assert [(view.columns, view.target) for view in targets] == [(("age",), "bought"), (("age",), "region")]
    assert ledger.spent("people") == 0
    assert [path.name for path in tmp_path.iterdir() if "calibration" in path.name] == []


def test_what_was_paid_is_answered_even_if_the_session_was_closed_meanwhile(tmp_path, monkeypatch):
    from epsteps.running import taps

    holder = holder_of(tmp_path, es.Pure(1.0))
    session = opened(holder, es.Pure(1.0))
    with monkeypatch.context() as patched:
        patched.setattr(taps, "reading", lambda *_: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            asked(holder, session, {"x": wire.point_text(np.zeros(problem().dimension)), "cost": 0.1}, key="paid")
    holder.store.move(session, "withdrawn", by="alice")
    (interrupted,) = holder.store.requests(kinds=("gradient",))
    assert holder.handle(interrupted.id).state == "published"
    assert len(holder.ledger.history("people")) == 1
    holder.store.close()


def test_a_charge_that_the_store_did_not_hear_of_counts_after_a_kill(tmp_path, monkeypatch):
    """It counts for the allowance, is not made again, and what it paid for is answered."""
    holder = holder_of(tmp_path, es.Pure(5.0))
    session = opened(holder, es.Pure(1.0))
    content = {"x": wire.point_text(np.zeros(problem().dimension)), "cost": 0.6}
    with monkeypatch.context() as patched:
        patched.setattr(stores.Store, "pay", lambda *_: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            asked(holder, session, content, key="interrupted")
    holder.store.close()
    holder = holder_of(tmp_path, es.Pure(5.0))
    assert b"allowance-exceeded" in asked(holder, session, content, key="another").answer
    (interrupted,) = [each for each in holder.store.requests(kinds=("gradient",)) if each.key == "interrupted"]
    assert holder.handle(interrupted.id).state == "published"
    assert len(holder.ledger.history("people")) == 1
    decisions = [event.decision for event in holder.store.events() if event.request == interrupted.id]
    assert decisions == ["arrived", "charged", "drawn", "published"]
    holder.store.close()


# Crashes


class Killed(BaseException):
    """Stands for kill -9: nothing may catch it."""


class Crashing:
    """Kills before or after the k-th durable write, wherever it is."""

    def __init__(self, monkeypatch, at):
        self.left, self.draws = at, []
        for owner, name in ((stores.Store, "_update"), (stores.Store, "_append"), (checkpoint.Checkpoint, "commit")):
            self._patch(monkeypatch, owner, name)
        self._patch(monkeypatch, es.Ledger, "charge", after=True)

    def _patch(self, monkeypatch, owner, name, after=False):
        original = getattr(owner, name)

        def wrapped(this, *arguments, **facts):
            if not after:
                self._count()
            result = original(this, *arguments, **facts)
            if after:
                self._count()
            return result

        monkeypatch.setattr(owner, name, wrapped)

    def _count(self):
        self.left -= 1
        if self.left == 0:
            raise Killed


def test_a_process_killed_at_any_moment_goes_on_with_one_charge_and_one_noise(tmp_path, monkeypatch):
    """Each write is a moment: before it all is as if it had not begun, or goes on from what is on the disk."""
    from epsteps.plans.requests import Gradient

    read, original = [], Gradient.read

    def reading(self, records, draw):
        read.append(draw["noise"].tobytes())
        return original(self, records, draw)

    monkeypatch.setattr(Gradient, "read", reading)
    plan = es.plan(problem(), es.Pure(1.0), es.nesterov, iterations=2)
    for moment in range(1, 40):
        folder = tmp_path / str(moment)
        holder = holder_of(folder, es.Pure(3.0))
        session = opened(holder, es.Pure(1.0))
        body = wire.dumped({"plan": plan.to_json(), "anyway": True})
        posted = holder.store.ask("alice", "plan", "plan", "", body)[0].id
        step = wire.dumped({"x": wire.point_text(np.zeros(problem().dimension)), "cost": 0.25})
        gradient = holder.store.ask("alice", "step", "gradient", "", step, session=session.id)[0].id
        read.clear()
        with monkeypatch.context() as patched:
            Crashing(patched, moment)
            killed = False
            try:
                for id in (gradient, posted, posted):
                    holder.handle(id)
            except Killed:
                killed = True
        holder.store.close()
        holder = holder_of(folder, es.Pure(3.0))
        for id in (gradient, posted, posted):
            handled = holder.handle(id)
            assert handled.state in ("approved", "published"), handled.answer
        # No answer was read with two noises; the charges are one for each request.
        assert len(set(read)) == 3, moment
        assert holder.ledger.spent("people") == pytest.approx(1.25, abs=1e-9)
        assert len(holder.ledger.history("people")) == 2
        decisions = [(event.request, event.decision) for event in holder.store.events()]
        assert all(decisions.count((id, "charged")) == 1 for id in (gradient, posted))
        verify_beside(holder.ledger)
        holder.store.close()
        if not killed:
            break
    assert not killed
    assert moment > 10


def test_a_result_is_shown_on_the_clock_of_jobs(tmp_path):
    from epsteps.service.server import described

    holder = holder_of(tmp_path, es.Pure(3.0), job_tick=50.0)
    plan = es.plan(problem(), es.Pure(1.0), es.nesterov, iterations=2)
    body = wire.dumped({"plan": plan.to_json(), "anyway": True})
    posted = holder.store.ask("alice", "plan", "plan", "", body)[0].id
    begun = time.time()
    holder.handle(posted)
    finished = holder.handle(posted)
    assert finished.state == "published"
    assert 49 < finished.visible - begun < 52
    assert described(finished)["state"] == "running"
    assert "answer" not in described(finished)
    assert described(finished._replace(visible=begun))["answer"]["seeded"] is False
    holder.store.close()


def test_answers_are_given_between_those_of_a_plan(tmp_path):
    """A plan does not keep sessions waiting: between two of its answers the process looks at what has arrived."""
    site = make_site(tmp_path, es.Pure(5.0))
    told = []
    worker = Worker(site.setup, told.append)
    store = worker.holder.store
    session = opened(worker.holder, es.Pure(1.0))
    plan = es.plan(problem(), es.Pure(1.0), es.nesterov, iterations=3)
    posted = store.ask("alice", "plan", "plan", "", wire.dumped({"plan": plan.to_json(), "anyway": True}))[0].id
    worker._handle(posted, jobs=True)
    step = wire.dumped({"x": wire.point_text(np.zeros(problem().dimension)), "cost": 0.1})
    asked_for = store.ask("alice", "step", "gradient", "", step, session=session.id)[0].id
    worker._inbox.put(asked_for)
    worker._handle(posted, jobs=True)
    assert told == [
        {"id": posted, "state": "approved"},
        {"id": asked_for, "state": "published"},
        {"id": posted, "state": "published"},
    ]
    store.close(), worker._lock.close()


def test_what_is_finished_does_not_move_again(tmp_path):
    holder = holder_of(tmp_path, es.Pure(1.0))
    session = opened(holder, es.Pure(1.0))
    holder.store.move(session, "withdrawn", by="alice")
    assert holder.store.move(session, "approved", by="mallory").state == "withdrawn"
    reply = asked(holder, session, {"x": wire.point_text(np.zeros(problem().dimension)), "cost": 0.1})
    assert (reply.state, reply.status) == ("refused", 409)
    assert holder.ledger.spent("people") == 0
    holder.store.close()


def test_the_store_forgets_noise_and_is_its_owners(tmp_path):
    holder = holder_of(tmp_path, es.Pure(1.0))
    session = opened(holder, es.Pure(1.0))
    asked(holder, session, {"x": wire.point_text(np.zeros(problem().dimension)), "cost": 0.1})
    assert holder.store._one("SELECT count(*) FROM draws") == (0,)
    assert holder.store.path.stat().st_mode & 0o077 == 0
    assert holder.store._one("PRAGMA journal_mode") == ("wal",)
    holder.store.fold()
    assert holder.store.path.with_name(holder.store.path.name + "-wal").stat().st_size == 0
    assert holder.store._one("PRAGMA synchronous") == (2,)
    holder.store.close()


def test_records_of_few_losses_are_kept(tmp_path):
    holder = holder_of(tmp_path, es.Pure(1.0))
    view_rows = set()
    for clip in range(1, 20):
        from epsteps.service.holder import View

        view = View(("age", "region"), "bought")
        view_rows.add(id(holder._rows(view, dataclasses.replace(problem(), clip=float(clip)))))
        assert len(holder._views[view][1]) <= 8
    assert rows(problem()).problem == problem()
    holder.store.close()
