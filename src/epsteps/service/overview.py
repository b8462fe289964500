"""What the holder's pages tell: budgets with what is spent and promised, requests, decisions and tokens.

Everything here is read from the ledger, the service's file, the policy and the file of tokens. No record is read.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from epsteps.budgets import Budget
from epsteps.budgets.budget import Price, round_down, round_up
from epsteps.ledger import LedgerError
from epsteps.ledger.books import Book
from epsteps.ledger.chain import load_cost
from epsteps.service.policy import tally, with_amount
from epsteps.service.server import Desk, described
from epsteps.service.store import Event, Request, Store
from epsteps.service.wire import Refusal
from epsteps.tables.schema import Schema

PAGE = 50
# So many columns of a line of a plan's page are for the name of a fact.
_NAMES = 13


@dataclass(frozen=True)
class Account:
    """An amount that may be spent, of which some is spent and some promised; all in one unit, left rounded down.

    ``promised`` is what approved plans and open sessions may still charge. It can be more than is left: whatever does
    not fit is refused when it is charged.
    """

    name: str
    unit: str
    limit: float
    spent: float
    promised: float
    left: float

    @property
    def over(self) -> bool:
        """Whether more is promised than is left."""
        return self.promised > self.left

    @property
    def shares(self) -> tuple[float, float]:
        """What is spent and what is promised, as shares of the limit that fill it at most."""
        spent = min(self.spent / self.limit, 1.0)
        return spent, min(self.promised / self.limit, 1.0 - spent)


def account(name: str, budget: Budget, book: Book, prices: Sequence[Price], promised: Sequence[Price]) -> Account:
    """Return what prices amount to under a budget, by the rule of a dataset's book."""
    terms = book.terms
    now, then = (tally(budget, terms, list(listed)) for listed in (prices, [*prices, *promised]))
    left = max(round_down(now.limit - now.spent, terms.amounts), 0.0)
    numbers = (round_up(now.spent, terms.amounts), round_up(then.spent - now.spent, terms.amounts), left)
    return Account(name, budget.unit, budget.amount, *numbers)


class Overview:
    """What one page is told, by the store as one thread has it open."""

    def __init__(self, desk: Desk, store: Store) -> None:
        self._desk, self._store = desk, store

    def datasets(self) -> dict[str, Any]:
        """Return every dataset of the ledger with its account, and those of the analysts below the one served."""
        found = []
        for book in self._desk.ledger.books():
            served = book.name == self._desk.setup.dataset
            promised = [price for _, price in self._promised()] if served else []
            prices = [entry.cost for entry in book.charges]
            facts = {"served": served, "charges": len(prices), "budget": str(book.budget)}
            found.append(facts | {"account": account(book.name, book.budget, book, prices, promised)})
        return {"datasets": sorted(found, key=lambda each: not each["served"]), "analysts": self._analysts()}

    def _analysts(self) -> list[dict[str, Any]]:
        """Return the accounts of all who have a token, were named by the policy, or ever asked."""
        book, policy = self._book, self._desk.policy
        asking = {token.analyst for token in self._desk.tokens.listed() if set(token.scopes) & {"plan", "session"}}
        promised = self._promised()
        accounts = []
        for name in sorted({*asking, *self._store.analysts(), *policy.allowances} - {"default"}):
            budget = policy.allowance(name, book.budget)
            theirs = [price for analyst, price in promised if analyst == name]
            below = account(name, budget, book, self._store.prices(analyst=name), theirs)
            accounts.append({"account": below, "own": budget != book.budget})
        return accounts

    def waiting(self) -> list[dict[str, Any]]:
        """Return what waits for a person, the first to come first, with what would be left."""
        found = self._store.listed(states=("waiting",), kinds=("plan", "session"), latest=1000)[::-1]
        return [self._line(request) | self._effect(request) for request in found]

    def waits(self) -> int:
        """Return how much waits for a person."""
        return len(self._store.listed(states=("waiting",), kinds=("plan", "session"), latest=1000))

    def request(self, id: str) -> dict[str, Any]:
        """Return everything that people may want to know of one request; raise ``KeyError`` if there is none."""
        request = self._store.request(id)
        told = self._line(request) | {
            "page": request.page,
            "certified": certified(request.page),
            "asked": _asked(request.body, self._desk.schema) if request.body else None,
            "reason": "",
        }
        told["events"] = self._store.events_of([id])
        told["answers"] = len(self._store.prices(session=id)) if request.kind == "session" else 0
        if told["state"] == "refused" and request.answer is not None:
            told["reason"] = json.loads(request.answer).get("detail", "")
        return told | (self._effect(request) if request.state == "waiting" else {"effect": None})

    def history(self, before: int | None, answers: bool) -> dict[str, Any]:
        """Return a page of requests, the last first; with those for gradients if these are wanted, too."""
        kinds = ("plan", "session", "gradient") if answers else ("plan", "session")
        found = self._store.listed(kinds=kinds, before=before, latest=PAGE + 1)
        shown = found[:PAGE]
        decisions = _decisions(self._store.events_of([request.id for request in shown]))
        lines = [self._line(request) | {"decision": decisions.get(request.id, "")} for request in shown]
        return {"lines": lines, "next": shown[-1].number if len(found) > PAGE else None}

    def chain(self, before: int | None) -> dict[str, Any]:
        """Return a page of the chain's rows, the last first, and both heads."""
        found = self._store.last_events(PAGE + 1, before)
        heads = {"head": self._store.head(), "ledger_head": self._desk.ledger.head()}
        return {"events": found[:PAGE], "next": found[PAGE - 1].seq if len(found) > PAGE else None} | heads

    def verified(self) -> dict[str, Any]:
        """Check both chains, all answers and all charges, and return the heads or what is wrong."""
        ledger = self._desk.ledger
        try:
            return {"ledger_head": ledger.verify(), "head": self._store.verify(ledger), "fault": ""}
        except LedgerError as error:
            return {"fault": str(error)}

    @cached_property
    def _book(self) -> Book:
        """The dataset that is served, as it was when the page was begun."""
        return self._desk.ledger.book(self._desk.setup.dataset)

    def _promised(self) -> list[tuple[str, Price]]:
        """Return what was approved and not charged yet: whole plans, and what is left of open sessions."""
        promised = self._store.promised()
        for request in self._store.listed(states=("approved",), kinds=("session",), latest=1000):
            left = self._left_of(request.id, load_cost(str(request.price)))
            promised += [(request.analyst, price) for price in left]
        return promised

    def _left_of(self, session: str, allowance: Any) -> list[Price]:
        """Return what an open session may still charge; nothing, if its allowance holds no price of this dataset."""
        try:
            used = tally(allowance, self._desk.terms, self._store.prices(session=session))
        except Refusal:
            return []
        left = round_down(used.limit - used.spent, self._desk.terms.amounts)
        return [with_amount(allowance, left)] if left > 0 else []

    def _effect(self, request: Request) -> dict[str, Any]:
        """Return what approving would leave of the dataset's budget, and of the analyst's allowance if there is one."""
        book, price = self._book, load_cost(request.price or "null")
        promised = self._promised()
        own = self._desk.policy.allowance(request.analyst, book.budget)
        theirs = [earlier for analyst, earlier in promised if analyst == request.analyst]
        charges = [entry.cost for entry in book.charges]
        accounts = [(f"dataset {book.name}", book.budget, charges, [earlier for _, earlier in promised])]
        if own != book.budget:
            accounts.append(
                (f"allowance of {request.analyst}", own, self._store.prices(analyst=request.analyst), theirs)
            )
        effect = []
        for name, budget, prices, earlier in accounts:
            after = account(name, budget, book, [*prices, price], earlier)
            fits = tally(budget, book.terms, [*prices, price]).fits
            effect.append({"before": account(name, budget, book, prices, earlier), "after": after, "fits": fits})
        return {"effect": effect}

    def _line(self, request: Request) -> dict[str, Any]:
        """Return what a list tells of a request: its state is the one that its asker is told."""
        answers = self._store.prices(session=request.id) if request.kind == "session" else []
        charged = None if request.paid is None else str(load_cost(str(request.price)))
        if answers:
            terms = self._desk.terms
            charged = str(with_amount(terms.budget, round_up(terms.tally(answers).spent, terms.amounts)))
        return {
            "id": request.id,
            "number": request.number,
            "analyst": request.analyst,
            "kind": request.kind,
            "session": request.session,
            "time": datetime.fromtimestamp(request.time, UTC),
            "state": described(request._replace(answer=None))["state"],
            "price": None if request.price is None else str(load_cost(request.price)),
            "charged": charged,
            "answers": len(answers),
        }


def certified(page: str) -> dict[str, Any]:
    """Return the page of a plan or session in parts, as a screen of any width can show them.

    They are its title, its facts by their names, and the table of what is released, which follows an empty line. Facts
    are written in lines of 80 columns there, with their names in the first 13.
    """
    head, _, rows = page.partition("\n\n")
    title, *lines = head.split("\n")
    facts: list[list[str]] = []
    for line in lines:
        end = _NAMES if line[_NAMES - 1 : _NAMES] in ("", " ") else line.find(" ", _NAMES)  # of a longer name
        name, fact = line[:end].strip(), line[end:].strip()
        if name or not facts:
            facts.append([name, fact])
        else:
            facts[-1][1] += f" {fact}"
    return {"title": title, "facts": facts, "table": rows}


def tokens(desk: Desk) -> list[dict[str, Any]]:
    """Return all tokens of the file, and whether they have expired."""
    now = datetime.now(UTC)
    return [{"token": token, "expired": token.expires <= now} for token in desk.tokens.listed()]


def _asked(body: bytes, schema: Schema) -> dict[str, Any]:
    """Return which columns and target a request is about, and whether it is wanted though its model may be noise."""
    content: Any = {}
    with suppress(ValueError, RecursionError):
        content = json.loads(body)
    content = content if isinstance(content, dict) else {}
    target, columns = content.get("target", schema.target), content.get("columns")
    listed = columns if isinstance(columns, list) else [name for name in schema.columns if name != target]
    return {"columns": ", ".join(map(str, listed)), "target": target, "anyway": content.get("anyway") is True}


def _decisions(events: Sequence[Event]) -> dict[str, str]:
    """Return what was last decided about each request, and by whom."""
    decided = {}
    for event in events:
        if " by " in event.decision:
            decided[event.request] = event.decision
        elif event.decision == "refused":
            decided[event.request] = "refused by the service"
    return decided
