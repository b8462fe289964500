"""What stands around a fit: what called it, what was fitted to the records before it, and fits that no ledger counts.

An estimator sees the records that it is given, and not what was done with them before or is done with its clones. Some
of that is told by the stack of calls, in whatever process or thread the fit happens: the loops of scikit-learn, which
fit many times, and its pipelines, whose transformers were fitted to the same records. What leaves no trace there, such
as a loop of one's own or a table that was scaled by hand, cannot be seen: it is among the certificate's assumptions.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from threading import Lock
from typing import Any

from sklearn.pipeline import Pipeline

from epsteps.budgets.budget import Budget, exact, round_up
from epsteps.estimators import _scikit
from epsteps.ledger.books import Account, OfPerson
from epsteps.ledger.chain import Entry
from epsteps.tables.schema import Schema

# Modules of scikit-learn that call a fit once: pipelines, and what is wrapped around every method.
_ONCE = ("base", "pipeline", "utils", "externals", "callback", "_config")
_RECORDS_ALONE = (
    "nothing was fitted to, or chosen by, these records before: no scaling, selection or encoding that was learned "
    "from them"
)
_DECLARED = "what was declared (bounds, classes, ranges) is public knowledge, and was not read off these records"


@dataclass(frozen=True)
class Uncounted:
    """Fits of this process that no ledger counts, and what they cost together if they read the same records."""

    fits: int = 0
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)

    def and_one(self, cost: Budget) -> "Uncounted":
        """Return these fits and one more: epsilons add up, and so do deltas."""
        return Uncounted(self.fits + 1, self.epsilon + exact(cost.amount), self.delta + exact(cost.delta))

    def told(self) -> dict[str, Any]:
        """Return the numbers of a certificate."""
        return {"fits": self.fits, "epsilon": round_up(self.epsilon), "delta": round_up(self.delta)}


_lock, _uncounted = Lock(), Uncounted()


class Process:
    """The account of a fit without a ledger: it refuses nothing, and counts.

    It counts all fits of the process, whichever estimator made them: a clone, or an estimator of the same parameters,
    reads the same records as likely as the estimator itself, and to tell records apart one would have to read them. So
    the sum bounds what any record of this process has paid, whatever the fits had in common.
    """

    def __init__(self) -> None:
        self.counted: Uncounted | None = None

    def charge(self, cost: Any, *, note: str = "", key: str | None = None) -> None:
        """Count a fit, before its noise is drawn."""
        global _uncounted
        with _lock:
            self.counted = _uncounted = _uncounted.and_one(cost)


class Kept:
    """An account of a ledger that keeps the entry of its charge."""

    def __init__(self, account: Account) -> None:
        self._account, self.entry = account, None

    def charge(self, cost: Any, *, note: str = "", key: str | None = None) -> None:
        """Charge the account, durably, or raise."""
        entry: Any = self._account.charge(cost, note=note, **({} if key is None else {"key": key}))
        if isinstance(entry, Entry):
            facts = {name: getattr(entry, name) for name in ("dataset", "seq", "time", "terms", "note", "hash")}
            path = getattr(getattr(self._account, "ledger", None), "path", None)
            self.entry = {"file": None if path is None else path.name, **facts}


@dataclass
class Circumstances:
    """What is known about a fit besides its records, and the account that it is charged to."""

    account: Account | None
    assumptions: tuple[str, ...]

    def of_person(self, records: int, column: str | None) -> "Circumstances":
        """Return the same for people with so many records, who are told apart by a column or by nothing."""
        if records == 1 and column is None:
            return self
        told = (
            f"nobody has more than {records} of these records"
            if column is None
            else f"records are one person's if, and only if, {column!r} is the same in them"
        )
        account = self.account if self.account is None or records == 1 else OfPerson(self.account, records)
        return Circumstances(account, (*self.assumptions, told))

    @property
    def entry(self) -> dict[str, Any] | None:
        """The entry that a ledger made of the charge, as model.json tells of it; None where no ledger did."""
        return getattr(self.account, "entry", None)

    @property
    def without_ledger(self) -> dict[str, Any] | None:
        """Fits that no ledger counts, this one included; None where a ledger counts it, or nothing is protected."""
        counted = getattr(self.account, "counted", None)
        return None if counted is None else counted.told()


# Those of a trial: its search is charged for it, and stands for it.
ALONE = Circumstances(None, ())


def circumstances(name: str, ledger: Account | None, *, seeded: bool) -> Circumstances:
    """Return what stands around the fit that is called now, or raise if its certificate would say too much.

    An experiment, whose noise has a seed, protects nothing: it is neither refused nor counted.
    """
    if seeded:
        return Circumstances(None if ledger is None else Kept(ledger), ())
    frames = list(_frames())
    called = next((each for each in frames if _repeats(each)), None)
    if called is not None and ledger is None:
        raise ValueError(_unaccounted(name, called))
    learned, stateless = _before(frames)
    if learned:
        raise ValueError(
            f"{' and '.join(learned)} before {name} in a pipeline is fitted to the same records without protection, "
            "and the certificate would not hold for them. Declare a Schema in its place, whose transforms "
            "(log1p, clip, bins, interactions) learn nothing; or fit it to public records, and put FrozenEstimator() "
            "around it."
        )
    assumptions = (_DECLARED, _RECORDS_ALONE, *stateless)
    if called is not None:
        assumptions += (
            f"scores of these records that {_module(called)} computes are not published: nothing hides them",
        )
    return Circumstances(Process() if ledger is None else Kept(ledger), assumptions)


def _unaccounted(name: str, frame: Any) -> str:
    return (
        f"{name} was called by {_module(frame)}, which fits more than once or scores these records: each fit would "
        "spend its whole budget, nobody would count them, and such scores are not protected. To choose parameters use "
        "PrivateSearch, which pays for its trials out of one epsilon. To pay for every fit, give the estimator "
        "ledger=Ledger(...).account(...). For an experiment that protects nobody set random_state."
    )


def _frames() -> Iterator[Any]:
    frame = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _repeats(frame: Any) -> bool:
    """Tell whether a call is one of scikit-learn's that may fit more than once, or do more with records than fit."""
    package, _, module = _module(frame).partition(".")
    return package == "sklearn" and module.partition(".")[0] not in _ONCE


def _before(frames: list[Any]) -> tuple[list[str], list[str]]:
    """Return the transformers that pipelines fitted before, and what is assumed of those that learn nothing."""
    learned, assumed = [], []
    pipelines = {}
    for frame in frames:
        if "self" in frame.f_code.co_varnames and isinstance(owner := frame.f_locals.get("self"), Pipeline):
            pipelines[id(owner)] = owner
    for pipeline in pipelines.values():
        for step in _parts([step for _, step in pipeline.steps[:-1]]):
            name = type(step).__name__
            if _scikit.is_frozen(step):
                assumed.append(f"{name}({type(step.estimator).__name__}) was fitted to public records")
            elif _scikit.needs_fit(step):
                learned.append(name)
            elif not isinstance(step, Schema):
                assumed.append(f"{name} acts on each record by itself")
    return learned, assumed


def _parts(steps: list[Any]) -> Iterator[Any]:
    """Yield transformers, and in the place of those that consist of others these."""
    for step in steps:
        if step is None or isinstance(step, str):  # "passthrough" and "drop"
            continue
        parts = next(
            (getattr(step, name) for name in ("steps", "transformer_list", "transformers") if hasattr(step, name)), None
        )
        if parts is None:
            yield step
        else:
            yield from _parts([part[1] for part in parts])


def refuse_weights(parameters: dict[str, Any]) -> None:
    """Raise for parameters of a fit that estimators of scikit-learn may have."""
    if "sample_weight" in parameters:
        raise TypeError(
            "sample_weight is not taken: noise is scaled for records that count once each, and a weight would let one "
            "count for more. Leave it out."
        )
    if parameters:
        raise TypeError(f"fit takes X and y, and no {', '.join(parameters)}.")
