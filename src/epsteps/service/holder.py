"""The holder's side: the one process that reads the records. It certifies, charges, draws, reads, and stores.

The order is that of every run: what could fail is decided from public numbers; then the analyst's and the session's
allowance and the ledger are charged; then the noise is drawn and stored; then records are read, and the answer is
stored. Whoever waits for it is told that it is there, and reads it from the store. A process that is killed anywhere in
between goes on where it was, with the same charge and the same noise.
"""

import json
import math
import os
import queue
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import numpy as np

from epsteps.budgets import Budget, Cost, Epsilon, mechanisms
from epsteps.budgets.budget import Price
from epsteps.budgets.mechanisms import Mechanism
from epsteps.data.rows import Rows
from epsteps.ledger import BudgetExceededError, Entry, Ledger, databases
from epsteps.ledger.chain import Terms, dump_cost
from epsteps.noise import Source
from epsteps.noise.bits import public_generator
from epsteps.plans import notation
from epsteps.plans.notation import PlanFormatError
from epsteps.plans.plan import Plan
from epsteps.plans.requests import Gradient
from epsteps.plans.utility import HopelessError
from epsteps.problem import limits
from epsteps.problem.problem import Problem
from epsteps.problem.sampling import FULL
from epsteps.running import taps
from epsteps.running.run import Reader, run
from epsteps.service import wire
from epsteps.service.policy import Policy, require_room, tally, with_amount
from epsteps.service.store import KEY_PREFIX, Request, Store, beside
from epsteps.service.wire import FAILED, PUBLIC_FAULTS, Refusal, dumped, invalid
from epsteps.tables.columns import require_bounds
from epsteps.tables.model import problem_of
from epsteps.tables.schema import Schema

# A plan that ended the process so often is not begun again; nor is one, or what else was asked for, that did so before
# it ran: nothing of that takes long.
_ATTEMPTS, _EARLY_ATTEMPTS = 25, 5
# Prepared records that are kept: for so many choices of columns, and so many losses of each.
_VIEWS, _LOSSES = 4, 8
# After a new start, the records of so many sessions that came last are prepared anew, if they are open.
_LATEST = 32
_CALIBRATIONS = 8
_DAY = 86400.0
# Seconds without a request after which the store is tidied.
_QUIET = 1.0


@dataclass(frozen=True)
class Setup:
    """What is served: the table, what is declared of it, its ledger, and the clock.

    ``policy`` are the tables of the policy's file as they were when the service began: whoever decides has the same.
    ``tick`` is the time after which an answer leaves, in seconds; 0 is without a clock, None lets the process measure
    it on synthetic records. ``seed`` makes answers repeatable and NOT private: it is for tests.
    """

    data: str
    schema: str
    ledger: str
    dataset: str
    policy: dict[str, Any] = field(default_factory=dict)
    delimiter: str = ","
    tick: float | None = None
    job_tick: float | None = None
    seed: int | None = None


class ChangedError(OSError):
    """The table's file is not what it was when the service began."""


def stamp(path: Path, *, contents: bool = False) -> str:
    """Return what tells a file, or a folder of files, from what it becomes when it is changed."""
    files = sorted(path.glob("*")) if path.is_dir() else [path]
    facts = []
    for file in files:
        found = file.stat()
        facts.append([file.name, found.st_size, *([] if contents else [found.st_mtime_ns, found.st_ino])])
        if contents:
            facts[-1].append(wire.digest(file.read_bytes()))
    return json.dumps(facts)


def mock(schema: Schema, n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return a table of n records that are drawn from a schema alone: even over ranges and categories.

    They tell nothing about anybody: it is for trying things out, and for measuring how long they take.
    """
    require_bounds(schema.columns.items())
    generator = public_generator(seed)
    table: dict[str, np.ndarray] = {}
    for name, column in schema.columns.items():
        if column.classes is None:
            low, high = cast(Any, column).low, cast(Any, column).high
            table[name] = generator.uniform(low, high, n)
        else:
            table[name] = np.array(column.classes, dtype=object)[generator.integers(len(column.classes), size=n)]
    return table


@dataclass(frozen=True)
class View:
    """Columns and target that a request is about, and whether there is an intercept."""

    columns: tuple[str, ...]
    target: str | None
    intercept: bool = True

    @staticmethod
    def of(content: dict[str, Any], schema: Schema, intercept: bool) -> "View":
        """Return what a request's "columns" and "target" say; by default all features, and the schema's target."""
        target = content.get("target", schema.target)
        columns = content.get("columns")
        listed = [name for name in schema.columns if name != target] if columns is None else columns
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in [*listed, target]):
            raise invalid("columns must be a list of names, and target a name.")
        unknown = [name for name in [*listed, target] if name not in schema.columns]
        if not listed or unknown or target in listed or len(set(listed)) < len(listed):
            raise invalid("columns must be declared ones, at least one, each once, and the target not among them.")
        return View(tuple(listed), target, intercept)

    def schema(self, whole: Schema) -> Schema:
        """Return what is declared of these columns."""
        return whole.only(self.columns, self.target)


class Holder:
    """The records, and what answers for them: one object of one process."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        dataset: str,
        schema: Schema,
        table: Any,
        policy: Policy,
        *,
        seed: int | None = None,
        job_tick: float = 0.0,
        checkpoints: Path | None = None,
    ) -> None:
        self.store, self.ledger, self.dataset, self.schema, self.policy = store, ledger, dataset, schema, policy
        self.terms: Terms = require_filter(ledger, dataset)
        self.n = len(next(iter(table.values())))
        self.on_step: Callable[[], None] = lambda: None
        self._table, self._seed, self._job_tick = table, seed, job_tick
        self._checkpoints = checkpoints or store.path.with_name(f"{store.path.name}.runs")
        self._views: dict[View, tuple[Rows, set[Any]]] = {}
        self._sessions: dict[str, _Session] = {}
        # Requests up to this number were there before the process: it may be that one of them ended the last one.
        self._earlier = store.last_number()
        self._mark_paid()

    def _mark_paid(self) -> None:
        """Write down charges that the ledger has and the store has not, as the process was killed in between.

        They count for the allowances from the start, and what they paid for is answered whatever was charged since.
        """
        for entry in self.ledger.history(self.dataset):
            if (entry.key or "").startswith(KEY_PREFIX):
                request = self.store.request(str(entry.key).split(":")[1])
                if request.paid is None and not request.finished:
                    self.store.pay(request, entry.cost, entry)

    def handle(self, id: str) -> Request:
        """Do what is next for a request: decide about it, or answer it. It never raises for what a record holds."""
        request = self.store.request(id)
        steps = {"plan": self._plan, "session": self._session, "gradient": self._gradient}
        if request.finished or request.state == "waiting":
            return request
        try:
            if request.state == "arrived" and request.number <= self._earlier:
                request = self.store.count_attempt(request)
                if request.attempts > _EARLY_ATTEMPTS:
                    raise RuntimeError("this request ended the process again and again")
            return steps[request.kind](request)
        except Refusal as refusal:
            return self._finish(request, "refused", refusal.status, refusal.body)
        except Exception as error:  # records may have been touched: one constant body, and where it was to the log
            log(request.id, error)
            return self._finish(request, "refused", FAILED.status, FAILED.body)

    def _finish(self, request: Request, state: str, status: int, body: bytes, begun: float | None = None) -> Request:
        visible = None
        if begun is not None and self._job_tick:
            ticks = math.ceil((time.time() - begun) / self._job_tick)
            visible = begun + max(ticks, 1) * self._job_tick
        return self.store.move(request, state, status=status, answer=body, visible=visible)

    # Plans

    def _plan(self, request: Request) -> Request:
        """Certify a plan that has arrived, or execute one that was approved."""
        content = wire.read_object(request.body, ("plan",), ("anyway", "columns", "target"))
        with self._in_time(request):
            plan, view = self._certified(content)
        if request.state == "arrived":
            return self._decided(request, plan)
        return self._executed(request, plan, view)

    def _in_time(self, request: Request) -> AbstractContextManager[None]:
        """Refuse what takes too long to check by public numbers; what was paid for is answered all the same."""
        return _deadline(self.policy.limits.certify) if request.paid is None else nullcontext()

    def _certified(self, content: dict[str, Any]) -> tuple[Plan, View]:
        """Return the plan and what it is about, or refuse it: by public numbers, before any record is read."""
        if not isinstance(content["plan"], str):
            raise invalid("plan must be the text that to_json returned.")
        try:
            plan = Plan.from_json(content["plan"])
        except PlanFormatError as error:
            raise Refusal(422, "plan-refused", str(error)[:500]) from None
        if not plan.travels:
            detail = f"a plan of {plan.method} is executed where the table is, by its holder, and cannot be posted."
            raise Refusal(422, "plan-refused", detail)
        view = View.of(content, self.schema, plan.problem.intercept)
        self._require_records(plan.problem, view)
        self.policy.require_kind(plan)
        try:
            with np.errstate(all="ignore"):
                limits.require_path(plan.problem, plan.points, 1)
                plan.require_executable()
                if content.get("anyway") is not True:
                    plan.utility.require_hope()
        except HopelessError as error:
            raise Refusal(422, "hopeless", str(error)) from None
        except PUBLIC_FAULTS as error:
            raise invalid(str(error)) from None
        return plan, view

    def _decided(self, request: Request, plan: Plan) -> Request:
        price, promised = plan.spending(), self.store.promised()
        self._require_room(request, price)
        day = self.store.prices(since=time.time() - _DAY) + [earlier for _, earlier in promised]
        own = self.store.prices(analyst=request.analyst)
        own += [earlier for analyst, earlier in promised if analyst == request.analyst]
        approved = self.policy.approves(self.terms, price, own, day)
        state, by = ("approved", "policy") if approved else ("waiting", "")
        size, most = wire.run_size(plan), self.policy.limits.stored
        return self.store.move(request, state, by=by, page=str(plan), price=price, size=size, most=most)

    def _executed(self, request: Request, plan: Plan, view: View) -> Request:
        """Run a plan that was approved: as ``epsteps.run`` does, with this charge and a checkpoint of its own."""
        request = self.store.move(request, "running")
        if request.state != "running":
            return request
        if request.attempts > _ATTEMPTS:
            raise RuntimeError("this plan ended the process again and again")
        begun = time.time()
        self._checkpoints.mkdir(mode=0o700, exist_ok=True)
        path = self._checkpoints / f"{request.id}.checkpoint"
        account = _Account(self, request)
        heard = {"ledger": account, "checkpoint": path, "on_step": lambda _: self.on_step()}
        try:
            self._require_price(request, plan)
            rows = self._rows(view, plan.problem)
            result = run(plan, rows, seed=self._seed, arithmetic="exact", anyway=True, **heard)
            body = dumped(wire.run_to_dict(result) | {"charged": account.price})
        except Refusal as refusal:
            return self._finish(request, "refused", refusal.status, refusal.body, begun)
        except Exception as error:  # on the clock, as everything that a run leads to
            log(request.id, error)
            return self._finish(request, "refused", FAILED.status, FAILED.body, begun)
        finished = self._finish(request, "published", 200, body, begun)
        path.unlink(missing_ok=True)
        return finished

    def _require_price(self, request: Request, plan: Plan) -> None:
        """Refuse a plan whose price is not the one that was approved: another version may compute another one."""
        price = plan.spending()
        if request.price != dump_cost(price):
            detail = "its price is not the one that was approved. Post it again."
            raise Refusal(409, "price-changed", detail, asked=price.to_dict())

    def forget_finished(self) -> None:
        """Remove checkpoints of runs that were stored as finished, if the process ended before it could."""
        for path in self._checkpoints.glob("*.checkpoint"):
            with suppress(KeyError):
                if self.store.request(path.stem).finished:
                    path.unlink(missing_ok=True)

    # Sessions

    def _session(self, request: Request) -> Request:
        """Decide about a session that has arrived, and prepare the records of one that is open for its answers."""
        if request.state != "arrived":  # a person has approved it meanwhile
            self._prepare(request)
            return request
        with self._in_time(request):
            opened = self._opened(request)
            self._require_payable(opened.allowance)
        # A bound on what will be asked for, not a charge: what is left then decides about each answer.
        require_room(
            self.policy.allowance(request.analyst, self.terms.budget), self.terms, [], opened.allowance, "analyst"
        )
        by_policy = self.policy.opens(self.terms, opened.allowance)
        state, by = ("approved", "policy") if by_policy else ("waiting", "")
        page = f"A session: gradients at points of the analyst's choice, for up to {opened.allowance} in all\n"
        page += f"  {'Problem':<10} {notation.problem_fact(opened.problem, opened.problem.ridge)}"
        if by_policy:
            self._prepare(request)
        return self.store.move(request, state, by=by, page=page, price=opened.allowance)

    def _require_payable(self, allowance: Budget) -> None:
        """Refuse an allowance that can hold no price of an answer: each of them would be refused."""
        try:
            tally(allowance, self.terms, [wire.price_of(self.kind(1e-6), self.terms)])
        except Refusal:
            budget = self.terms.budget
            raise Refusal(
                422,
                "allowance-of-another-kind",
                f"{allowance} cannot hold what answers cost here. Ask for an allowance of the dataset's own kind, "
                f"{type(budget).__name__}, in {budget.unit}.",
                budget=type(budget).__name__,
                unit=budget.unit,
            ) from None

    def prepare_open(self) -> None:
        """Prepare the records of sessions that are open, the last first, as many as are kept: after a new start."""
        for request in self.store.requests(states=("approved",), kinds=("session",), latest=_LATEST)[::-1]:
            try:
                view = self._opened(request).view
                if view not in self._views and len(self._views) >= _VIEWS:
                    return
                self._prepare(request)
            except Exception as error:  # its answers say what can be said of it
                log(request.id, error)

    def _prepare(self, request: Request) -> None:
        """Prepare the records that a session's answers are about."""
        session = self._opened(request)
        self._reader(session)
        self._sessions[request.id] = session  # others that were forgotten to make room may have taken it with them

    def _opened(self, request: Request) -> "_Session":
        """Return what a session is about, as its request says."""
        if request.id not in self._sessions:
            content = wire.read_object(request.body, ("problem", "allowance"), ("columns", "target"))
            try:
                with np.errstate(all="ignore"):
                    problem = notation.problem_from_dict(content["problem"])
            except PUBLIC_FAULTS as error:
                raise invalid(f"the problem cannot be read: {error}") from None
            view = View.of(content, self.schema, problem.intercept)
            self._require_records(problem, view)
            allowance = wire.read_budget(content["allowance"])
            self._sessions[request.id] = _Session(problem, view, allowance, mechanisms.smallest(problem, self.kind))
        return self._sessions[request.id]

    def _gradient(self, request: Request) -> Request:
        """Answer one request of a session: charge, draw and store, read, store the answer."""
        opened = self.store.request(str(request.session))
        if opened.state != "approved" and request.paid is None:
            raise Refusal(409, "session-closed", "the session is not open.", state=opened.state)
        session = self._opened(opened)
        with self._in_time(request):
            asked = self._asked(request, session)
        price = wire.price_of(asked.costs[0], self.terms)
        draw = self.store.draw(request)
        reader = self._reader(session)
        if draw is None:
            self.policy.require_step(self.terms, price)
            entry = self.charge(request, price, session=(str(request.session), session.allowance))
            source = taps.open_source(self._seed)
            draw = asked.draw(source if asked.step is None else source.at_step(asked.step))
            self.store.pay(request, price, entry, draw)
        reading = taps.reading(asked, reader, draw)
        gradient = np.asarray(asked.publish(reading, draw)).reshape(-1)
        answer = {"gradient": wire.point_text(gradient), "charged": price.to_dict(), "seeded": self._seed is not None}
        return self._finish(request, "published", 200, dumped(answer))

    def _asked(self, request: Request, session: "_Session") -> Gradient:
        """Return what is asked for, or refuse it; its noise is drawn once in public, to see that it can be."""
        noise = ("cost", "noise", "scale", "bound", "batch", "step")
        content = wire.read_object(request.body, ("x",), noise)
        if ("cost" in content) == all(name in content for name in noise[1:]):
            raise invalid("ask for a cost, or for noise, scale, bound, batch and step.")
        asked = wire.read_gradient(content, session.problem, session.noise)
        facts = (asked.mechanism.name, float(np.max(asked.scale)), float(np.max(asked.bound)), asked.sampling.m)
        if facts != session.drawable:
            try:
                asked.draw(Source(0))
            except PUBLIC_FAULTS as error:
                raise invalid(f"such noise cannot be drawn: {error}") from None
            session.drawable = facts
        return asked

    @property
    def kind(self) -> type[Cost]:
        """The currency of a cost that names none."""
        return Epsilon if self.terms.composition == "plain" else self.terms.budget.kind(FULL)

    # What both share

    def charge(
        self, request: Request, price: Price, *, session: tuple[str, Budget] | None = None, mark: str = ""
    ) -> Entry:
        """Charge the ledger, durably, or refuse: first by the allowances below it, then by the ledger itself.

        A request that was charged before is charged no second time. ``mark`` tells apart attempts that cannot go on
        with the same noise.
        """
        key = f"{KEY_PREFIX}{request.id}{mark}"
        note = f"{request.analyst}: {request.kind} {request.id}; audit {self.store.head()}"
        if request.paid is None:
            self._require_room(request, price, session)
        try:
            return self.ledger.charge(self.dataset, price, note=note, key=key)
        except BudgetExceededError:
            raise self._spent(price) from None

    def _require_room(self, request: Request, price: Price, session: tuple[str, Budget] | None = None) -> None:
        """Refuse what does not fit the session's allowance, the analyst's, or the dataset's budget."""
        if session is not None:
            id, allowance = session
            require_room(allowance, self.terms, self.store.prices(session=id), price, "session")
        budget = self.policy.allowance(request.analyst, self.terms.budget)
        if budget != self.terms.budget:
            require_room(budget, self.terms, self.store.prices(analyst=request.analyst), price, "analyst")
        if request.state == "arrived" and request.kind == "plan":
            try:
                self.ledger.book(self.dataset).require_room(price)
            except BudgetExceededError:
                raise self._spent(price) from None
            except (TypeError, ValueError) as error:
                raise invalid(str(error)) from None

    def _spent(self, price: Price) -> Refusal:
        book = self.ledger.book(self.dataset)
        numbers = {"asked": price.to_dict(), "remaining": book.remaining, "unit": book.unit}
        return Refusal(403, "budget-exceeded", "it does not fit what is left of the dataset's budget.", **numbers)

    def _require_records(self, problem: Problem, view: View) -> None:
        """Refuse problems about other records than these, and what the policy does not allow."""
        self.policy.require_allowed(problem, view.columns, view.target)
        expected = replace(problem_of(view.schema(self.schema), self.n, 0.0), intercept=view.intercept)
        if not problem.same_records(expected):
            raise invalid(f"it is for other records: this dataset's are {expected}.")

    def _reader(self, session: "_Session") -> Reader:
        if session.reader is None:
            session.reader = Reader(self._rows(session.view, session.problem))
            session.reader.prepare()
        return session.reader

    def _rows(self, view: View, problem: Problem) -> Rows:
        """Return the prepared records of these columns, for this problem; few of them are kept."""
        facts = (problem.loss, problem.clip)
        known = self._views.get(view)
        if known is None or (facts not in known[1] and len(known[1]) >= _LOSSES):
            while len(self._views) >= _VIEWS or view in self._views:
                self._views.pop(view if view in self._views else next(iter(self._views)))
                self._sessions.clear()  # whose readers hold on to records
            declared = view.schema(self.schema)
            rows = Rows(problem, declared.encode(self._table), declared.encode_target(self._table))
            known = self._views[view] = (rows, set())
        known[1].add(facts)
        return known[0].restated(problem)


@dataclass
class _Session:
    """What an open session is about, and what was prepared for it."""

    problem: Problem
    view: View
    allowance: Budget
    noise: Mechanism
    reader: Reader | None = None
    drawable: tuple[Any, ...] | None = None


class _Account:
    """What a run charges: the ledger, by way of the allowances below it; with the key of the run's checkpoint."""

    def __init__(self, holder: Holder, request: Request) -> None:
        self._holder, self._request = holder, request
        self.price: dict[str, Any] = {}

    def charge(self, cost: Price, *, note: str = "", key: str | None = None) -> None:
        """Charge, durably, or refuse. A run that goes on has its key, and pays once."""
        entry = self._holder.charge(self._request, cost, mark=f":{key}")
        self._holder.store.pay(self._request, cost, entry)
        self.price = cost.to_dict()


def require_filter(ledger: Ledger, dataset: str) -> Terms:
    """Return the terms of a dataset, or refuse those that do not hold when costs are chosen by earlier answers."""
    terms = ledger.book(dataset).terms
    if terms.composition == "numerical":
        raise ValueError(
            f"dataset {dataset!r} composes numerically, which holds only if all costs are fixed before the first "
            "release: a service cannot promise that. Serve a dataset with composition='adaptive' or 'plain'."
        )
    return terms


def log(id: str, error: BaseException) -> None:
    """Write to the holder's log what went wrong with a request and where, and nothing that a record could shape."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    print(f"request {id}: {type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}", file=sys.stderr)


class _LateError(BaseException):
    """The time is over; no Exception, since whatever goes wrong in a plan's text is turned into a refusal of it."""


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Refuse what takes longer than this to check, where the process can be interrupted."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def late(*_: object) -> None:
        raise _LateError

    before = signal.signal(signal.SIGALRM, late)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _LateError:  # perhaps in the last moment, before the timer was stopped
        raise Refusal(422, "too-long", f"it could not be certified within {seconds:g} s.") from None
    finally:
        signal.signal(signal.SIGALRM, before)


def calibrated(schema: Schema, n: int, ledger: Ledger, dataset: str, policy: Policy) -> float:
    """Return the tick of the clock: twice the longest of a few steps on synthetic records of the same n and d.

    They are whole steps, of a ledger of the same kind and a store of their own on the same disk, for a target of each
    kind that may be asked for with all columns that may be. Reading the dataset's own ledger, which each charge
    does, is added. No record is read.
    """
    terms = require_filter(ledger, dataset)
    with tempfile.TemporaryDirectory(dir=ledger.path.parent, prefix=".calibration-") as scratch:
        mocked = Ledger(Path(scratch) / "ledger")
        mocked.create("mock", with_amount(terms.budget, 1e6), composition=terms.composition)
        with Store(beside(mocked.path)) as store:
            opening = Policy.from_dict({"sessions": {"per_session": 1e6}})
            holder = Holder(store, mocked, "mock", schema, mock(schema, n), opening)
            times = [seconds for view in _widest(schema, policy) for seconds in _step_times(holder, view)]
    begun = time.perf_counter()
    ledger.book(dataset)
    return max(2 * (max(times) + time.perf_counter() - begun), 0.005)


def _widest(schema: Schema, policy: Policy) -> list[View]:
    """Return all columns that may be asked for, with one target of each kind that may be: a number, two classes, most.

    The kind of a target decides about the loss, and how many coordinates a gradient has for each column.
    """
    allowed = policy.allowed
    columns = [name for name in schema.columns if allowed.columns is None or name in allowed.columns]
    targets = [name for name in schema.columns if allowed.targets is None or name in allowed.targets]
    sizes = {name: len(schema.columns[name].classes or ()) for name in targets}
    kinds = {min(size, 3): name for name, size in sorted(sizes.items(), key=lambda each: each[1])}
    views = [View(tuple(name for name in columns if name != target), target) for target in kinds.values()]
    return [view for view in views if view.columns] or [View.of({}, schema, True)]


def _step_times(holder: Holder, view: View) -> list[float]:
    """Return how long the steps of a session take, the first among them, once such a session has had an answer."""
    problem = problem_of(view.schema(holder.schema), holder.n, 1e-4)
    allowance = with_amount(holder.terms.budget, 1e5).to_dict()
    content = {"problem": notation.problem_to_dict(problem), "allowance": allowance}
    body = dumped(content | {"columns": list(view.columns), "target": view.target})
    x, times = np.zeros(problem.dimension), []
    for steps in (1, _CALIBRATIONS):  # what the very first answer waits for, such as a compiler, is no part of it
        opened = holder.handle(holder.store.ask("clock", uuid4().hex, "session", "", body)[0].id)
        times = []
        for _ in range(steps):
            asked = dumped({"x": wire.point_text(x), "cost": 1.0})
            begun = time.perf_counter()
            request, _ = holder.store.ask("clock", uuid4().hex, "gradient", "", asked, session=opened.id)
            if holder.handle(request.id).state != "published":
                raise ValueError(f"the clock cannot be set: no gradient of {problem} could be made on made-up records.")
            times.append(time.perf_counter() - begun)
            x = x + 0.1
    return times


class Worker:
    """The process: it hears of requests by their ids on its standard input, and tells of each that it has handled."""

    def __init__(self, setup: Setup, say: Callable[[dict[str, Any]], None]) -> None:
        self._setup, self._say = setup, say
        self._path = databases.real_path(setup.data)
        self._inbox: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._jobs: deque[str] = deque()
        self._lock = only_one(beside(Path(setup.ledger)))
        ledger, schema = Ledger(setup.ledger), Schema.read(setup.schema)
        store = Store(beside(ledger.path))
        self._stamp = stamp(self._path)
        contents = stamp(self._path, contents=True)
        if store.fact(f"records of {setup.dataset}", contents) != contents:
            raise ChangedError(
                f"{setup.data} is not the file that dataset {setup.dataset!r} was served from before: its noise and "
                "its budget are for those records. Serve other records under another --dataset."
            )
        ledger.verify()
        store.verify(ledger)
        table = schema.load(self._path, delimiter=setup.delimiter)
        if stamp(self._path, contents=True) != contents:
            raise ChangedError(f"{setup.data} was changed while it was read. Start again when nobody writes to it.")
        n, tick, policy = len(next(iter(table.values()))), setup.tick, Policy.from_dict(setup.policy)
        if tick is None:
            tick = calibrated(schema, n, ledger, setup.dataset, policy)
        job_tick = (max(1.0, 20 * tick) if tick else 0.0) if setup.job_tick is None else setup.job_tick
        self.holder = Holder(store, ledger, setup.dataset, schema, table, policy, seed=setup.seed, job_tick=job_tick)
        self.holder.on_step = self._between
        self.ready = {"ready": True, "n": n, "tick": tick, "job_tick": job_tick}

    def run(self, lines: Iterator[str]) -> None:
        """Serve until the one who sends ids is gone."""
        self.holder.forget_finished()
        self.holder.prepare_open()
        threading.Thread(target=self._listen, args=(lines,), daemon=True).start()
        self._say(self.ready)
        while True:
            id = self._jobs.popleft() if self._jobs else self._next()
            self._handle(id, jobs=True)
            self._between()

    def _next(self) -> str:
        """Wait for the next request; in a quiet moment what was removed from the store leaves its log, too."""
        try:
            return self._inbox.get(timeout=_QUIET)
        except queue.Empty:
            self.holder.store.fold()
            return self._inbox.get()

    def _listen(self, lines: Iterator[str]) -> None:
        for line in lines:
            self._inbox.put(line.strip())
        os._exit(0)  # the server is gone; everything is on the disk

    def _between(self) -> None:
        """Handle what has arrived, but begin no plan: between two answers of one, others need not wait for its end."""
        while True:
            try:
                id = self._inbox.get_nowait()
            except queue.Empty:
                return
            self._handle(id, jobs=False)

    def _handle(self, id: str, *, jobs: bool) -> None:
        if stamp(self._path) != self._stamp:
            self._say({"stop": "the table's file was changed"})
            os._exit(3)
        request = self.holder.store.request(id)
        if request.kind == "plan" and request.state in ("approved", "running") and not jobs:
            self._jobs.append(id)
            return
        handled = self.holder.handle(id)
        if handled.kind == "plan" and handled.state == "approved":
            self._jobs.append(id)
        self._say({"id": id, "state": handled.state})


def only_one(path: Path) -> sqlite3.Connection:
    """Become the only process that answers for a ledger, as long as the connection lives."""
    refusal = f"another service uses the ledger beside {path}. Stop it first."
    return databases.exclusive(path.with_name(f"{path.name}.lock"), refusal)


def main() -> None:
    """Run the process; the first line that it is sent is the setup as JSON: lists of processes do not show it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this process
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing else is printed where ids are told

    def say(content: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):
            told.write(json.dumps(content) + "\n")

    try:
        worker = Worker(Setup(**json.loads(sys.stdin.readline())), say)
    except (OSError, ValueError, TypeError, ImportError) as error:
        say({"stop": " ".join(str(error).split())})
        sys.exit(1)
    worker.run(iter(sys.stdin))


def setup_text(setup: Setup) -> str:
    """Return a setup as the line that the process takes."""
    return json.dumps(asdict(setup)) + "\n"


if __name__ == "__main__":
    main()
