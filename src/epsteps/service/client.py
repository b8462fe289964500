"""The analyst's side: ``epsteps.connect``, and what stands where records stand, though they are somewhere else."""

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from epsteps.budgets import Budget
from epsteps.budgets.budget import Price
from epsteps.data.rows import Rows
from epsteps.ledger import BudgetExceededError
from epsteps.plans import notation
from epsteps.plans.plan import Plan
from epsteps.plans.requests import Gradient, Request
from epsteps.plans.utility import HopelessError
from epsteps.problem.problem import Problem
from epsteps.problem.validate import require
from epsteps.running.run import Answers, Run, converse
from epsteps.service import wire
from epsteps.service.holder import mock
from epsteps.service.wire import KEY_HEADER, Refusal
from epsteps.tables.model import problem_of
from epsteps.tables.schema import Schema

# Seconds that one call waits for a change, and that a connection may take.
_WAIT, _TIMEOUT = 20.0, 90.0
# How long to wait before a request is sent again whose reply was lost: at first, and at most.
_NAPS = (0.05, 0.5)
_AGAIN = (429, 503)


class RefusedError(ValueError):
    """The holder does not answer this: ``kind`` says why in a word, ``members`` in public numbers."""

    def __init__(self, refusal: Refusal) -> None:
        numbers = {name: refusal.members[name] for name in ("asked", "remaining", "unit") if name in refusal.members}
        said = f" ({', '.join(f'{name}: {value}' for name, value in numbers.items())})" if numbers else ""
        super().__init__(refusal.detail + said)
        self.status, self.kind, self.members = refusal.status, refusal.kind, refusal.members


class SpentError(RefusedError, BudgetExceededError):
    """The price does not fit what is left of the dataset's budget, or of an allowance below it; nothing was charged."""


class NoHopeError(RefusedError, HopelessError):
    """The plan's model would be noise; nothing was charged. ``anyway=True`` asks for it all the same."""


_ERRORS = {"budget-exceeded": SpentError, "allowance-exceeded": SpentError, "hopeless": NoHopeError}


def error_of(refusal: Refusal) -> RefusedError:
    """Return what is raised for a refusal."""
    return _ERRORS.get(refusal.kind, RefusedError)(refusal)


def connect(
    url: str, *, token: str, insecure: bool = False, patience: float = 30.0, transport: Any = None
) -> "Connection":
    """Connect to a data holder's service, which ``epsteps serve`` runs.

    >>> people = connect("https://holder.example", token="eps_...")["people"]  # doctest: +SKIP
    >>> es.run(plan, people)  # doctest: +SKIP

    Parameters
    ----------
    url : str
        Address of the service. Plain HTTP is for this machine, unless ``insecure`` says that the network is trusted.
    token : str
        What the holder gave you.
    insecure : bool
        Send the token over plain HTTP.
    patience : float
        Seconds for which a request is sent again, with the same key, while the service is away or busy.
    transport : optional
        How httpx sends requests: for tests.
    """
    httpx: Any = require("httpx", "remote", "epsteps.connect")
    parts = urlsplit(url)
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme != "https" and not (parts.scheme == "http" and (local or insecure)):
        raise ValueError(f"url must begin with https:// (http:// is for this machine), got {url!r}.")
    if not (token and token.isascii() and token.isprintable()):
        raise ValueError("token must be what the holder gave you: eps_ and letters.")
    headers = {"Authorization": f"Bearer {token}"}
    client = httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT, transport=transport)
    return Connection(client, httpx.TransportError, patience)


class Connection(Mapping[str, "RemoteRows"]):
    """The datasets of a service, by their names."""

    def __init__(self, client: Any, lost: type[Exception], patience: float) -> None:
        self._client, self._lost, self._patience = client, lost, patience

    def __getitem__(self, name: str) -> "RemoteRows":
        return RemoteRows(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ask("GET", "/v1/datasets")["datasets"])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, method: str, path: str, content: Any = None, *, key: str | None = None) -> Any:
        """Return what the service answers, or raise what it refuses with.

        A request whose reply was lost is sent again with the same key: it is neither paid nor answered a second time.
        """
        headers = {} if content is None else {"Content-Type": "application/json"}
        headers |= {} if key is None else {KEY_HEADER: key}
        body = None if content is None else wire.dumped(content)
        deadline, nap = time.monotonic() + self._patience, _NAPS[0]
        while True:
            try:
                reply = self._client.request(method, path, content=body, headers=headers)
                if reply.status_code not in _AGAIN or time.monotonic() > deadline:
                    break
            except self._lost:
                if time.monotonic() > deadline:
                    raise
            time.sleep(nap)
            nap = min(2 * nap, _NAPS[1])
        if reply.status_code >= 400:
            raise error_of(Refusal.read(reply.status_code, reply.content))
        return json.loads(reply.content)


class RemoteRows:
    """Records at a data holder's: ``epsteps.run(plan, people)`` posts the plan, which is executed there.

    Parameters
    ----------
    connection : Connection
        The service.
    name : str
        The dataset.
    columns : sequence of str, optional
        Features, in this order; all but the target by default.
    target : str, optional
        What is to be predicted; the schema's by default.
    """

    def __init__(
        self, connection: Connection, name: str, columns: Sequence[str] | None = None, target: str | None = None
    ) -> None:
        self.connection, self.name = connection, name
        self._columns, self._target = None if columns is None else tuple(columns), target
        self._path = f"/v1/datasets/{quote(name, safe='')}"
        facts = self.facts()
        whole = Schema.from_dict(facts["schema"])
        self.n: int = facts["n"]
        target = whole.target if target is None else target
        listed = [each for each in whole.columns if each != target] if columns is None else list(columns)
        self.schema = whole.only(listed, target)

    def __repr__(self) -> str:
        return f"<records {self.name!r} at a data holder's: n = {self.n}, d = {self.schema.d}>"

    def select(self, columns: Sequence[str], target: str | None = None) -> "RemoteRows":
        """Return the same records with these features alone, and perhaps another target."""
        return RemoteRows(self.connection, self.name, columns, self._target if target is None else target)

    def facts(self) -> dict[str, Any]:
        """Return what is public of the dataset now: schema, n, budget, what was spent and what remains."""
        return self.connection.ask("GET", self._path)

    @property
    def remaining(self) -> float:
        """What is left of the dataset's budget now."""
        return self.facts()["remaining"]

    @property
    def budget(self) -> Budget:
        """The dataset's whole budget."""
        return Price.from_dict(self.facts()["budget"])  # pyright: ignore[reportReturnType]

    def problem(self, ridge: float = 1e-4) -> Problem:
        """Return the problem of the schema's target, with an intercept: what plans are made for."""
        return problem_of(self.schema, self.n, ridge)

    def mock(self, n: int | None = None, seed: int = 0) -> dict[str, np.ndarray]:
        """Return a table of records drawn from the schema alone, on this machine: to debug with, for nothing."""
        return mock(self.schema, self.n if n is None else n, seed)

    def mock_rows(self, problem: Problem, seed: int = 0) -> Rows:
        """Return such records for a problem: they stand where these stand."""
        table = self.mock(problem.n, seed)
        return Rows(problem, self.schema.encode(table), self.schema.encode_target(table))

    def submit(self, plan: Plan, *, anyway: bool = False, key: str | None = None) -> "Submission":
        """Post a plan, and return what becomes of it without waiting: a person may have to approve it."""
        content = {"plan": plan.to_json(), "anyway": anyway} | self._view()
        reply = self.connection.ask("POST", f"{self._path}/plans", content, key=key or uuid.uuid4().hex)
        return Submission(self.connection, plan, reply["id"], reply)

    def execute(self, plan: Plan, *, anyway: bool = False, **options: Any) -> Run:
        """Post a plan and wait for its run: what ``epsteps.run`` does with these records."""
        _require_none(options)
        return self.submit(plan, anyway=anyway).result()

    def session(self, problem: Problem, allowance: Budget, *, key: str | None = None) -> "Session":
        """Ask for a session, and wait until it is open: noisy gradients at points of your own choice.

        Parameters
        ----------
        problem : Problem
            What the gradients are of.
        allowance : Budget
            What all its answers may cost together.
        """
        content = {"problem": notation.problem_to_dict(problem), "allowance": allowance.to_dict()} | self._view()
        reply = self.connection.ask("POST", f"{self._path}/sessions", content, key=key or uuid.uuid4().hex)
        reply = _awaited(self.connection, reply, ("waiting",))
        if reply["state"] != "approved":
            raise error_of(_refusal_of(reply))
        return Session(self.connection, problem, reply["id"])

    def _view(self) -> dict[str, Any]:
        columns = {} if self._columns is None else {"columns": list(self._columns)}
        return columns | ({} if self._target is None else {"target": self._target})


class Submission:
    """A plan that was posted: waiting, approved, running, published, refused or withdrawn."""

    def __init__(self, connection: Connection, plan: Plan, id: str, reply: dict[str, Any]) -> None:
        self._connection, self.plan, self.id, self._reply = connection, plan, id, reply

    @property
    def state(self) -> str:
        """What became of it so far."""
        self._reply = self._connection.ask("GET", f"/v1/requests/{self.id}")
        return self._reply["state"]

    def withdraw(self) -> None:
        """Take it back, if it does not run yet."""
        self._reply = self._connection.ask("DELETE", f"/v1/requests/{self.id}")

    def result(self) -> Run:
        """Wait until it is published, and return the run; raise if it was refused."""
        self._reply = _awaited(self._connection, self._reply, ("waiting", "approved", "running"))
        if self._reply["state"] != "published":
            raise error_of(_refusal_of(self._reply))
        return wire.read_run(self.plan, self._reply["answer"])


class Session(Answers):
    """An open session: the holder answers requests for gradients, each charged as it is asked.

    It stands where records stand for plans that ask for gradients alone: ``epsteps.run(plan, session)`` lets the
    method run here, and sends the holder its points.
    """

    def __init__(self, connection: Connection, problem: Problem, id: str) -> None:
        self._connection, self.problem, self.id = connection, problem, id
        self.charged: list[Price] = []
        self.seeded = False

    def __repr__(self) -> str:
        return f"<session {self.id}: {len(self.charged)} answers>"

    def gradient(self, x: np.ndarray, cost: float, *, key: str | None = None) -> np.ndarray:
        """Return the gradient of F at x with noise of this cost: epsilon, or rho where the dataset counts in rho.

        ``key`` names the request: with the same key and point the same answer comes again, and is not paid again.
        """
        x = np.asarray(x, dtype=float)
        if x.shape != (self.problem.dimension,):
            raise ValueError(f"x must have length {self.problem.dimension}, got shape {x.shape}.")
        return self._ask({"x": wire.point_text(x), "cost": cost}, key)

    def execute(self, plan: Plan, *, start: Any = None, anyway: bool = False, **options: Any) -> Run:
        """Hold the plan's conversation from here: what ``epsteps.run`` does with a session."""
        _require_none(options)
        if plan.problem != self.problem:
            raise ValueError(f"the session is for {self.problem}, but the plan for {plan.problem}.")
        if not anyway:
            plan.utility.require_hope()
        begin = np.zeros((self.problem.dimension, 1)) if start is None else np.asarray(start, float).reshape(-1, 1)
        published = converse(plan, self, begin)
        return Run(plan, published.path[..., 0], self.seeded, {k: v[..., 0] for k, v in published.extras.items()})

    def close(self) -> None:
        """Tell the holder that nothing more will be asked."""
        self._connection.ask("DELETE", f"/v1/requests/{self.id}")

    def finish(self) -> None:
        """Do nothing: every answer is durable at the holder's."""

    def _answer(self, request: Request) -> np.ndarray:
        if type(request) is not Gradient:
            raise TypeError("a session answers requests for gradients alone: post the plan, epsteps.run(plan, people).")
        return self._ask(wire.gradient_to_dict(request), None).reshape(request.x.shape)

    def _ask(self, content: dict[str, Any], key: str | None) -> np.ndarray:
        path = f"/v1/sessions/{self.id}/gradients"
        reply = self._connection.ask("POST", path, content, key=key or uuid.uuid4().hex)
        self.charged.append(Price.from_dict(reply["charged"]))
        self.seeded |= reply["seeded"]
        return wire.read_point(reply["gradient"], self.problem.dimension)


def _require_none(options: dict[str, Any]) -> None:
    """Refuse options of a run that are for records at hand."""
    for name, value in options.items():
        if value is not None and not (name == "arithmetic" and value in ("auto", "exact")):
            raise ValueError(f"{name} is for records on this machine, and these are at a data holder's. Leave it out.")


def _awaited(connection: Connection, reply: dict[str, Any], states: tuple[str, ...]) -> dict[str, Any]:
    """Return what became of a request once it is in none of these states."""
    while reply["state"] in states:
        reply = connection.ask("GET", f"/v1/requests/{reply['id']}?wait={_WAIT}")
    return reply


def _refusal_of(reply: dict[str, Any]) -> Refusal:
    if reply["state"] == "refused" and "answer" in reply:
        return Refusal.read(reply["status"], wire.dumped(reply["answer"]))
    return Refusal(409, reply["state"], f"the request was {reply['state']}.")
