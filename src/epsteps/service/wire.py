"""What travels between analyst and holder: arrays bit for bit, requests for gradients, results of runs, refusals.

Nothing here reads records. A refusal is made of public numbers, so that it is the same for every content of the data;
whatever goes wrong once records were touched is the one constant ``FAILED``.
"""

import base64
import binascii
import hashlib
import json
import math
from typing import Any

import numpy as np

from epsteps.budgets import Budget, Concentrated, Cost, Pure, mechanisms
from epsteps.budgets.budget import Price
from epsteps.budgets.mechanisms import Mechanism
from epsteps.ledger.chain import Terms
from epsteps.plans.plan import Plan
from epsteps.plans.requests import Gradient
from epsteps.problem import validate
from epsteps.problem.problem import Problem
from epsteps.problem.sampling import Sampling
from epsteps.running.run import Run

PROBLEM_JSON = "application/problem+json"
KEY_HEADER = "Idempotency-Key"
LONGEST_KEY = 128
# Points are held at 1e100 by the engines; none may begin beyond it.
_LARGEST_POINT = 1e100
# Types of what travels, and the kinds of types that become one of them without loss.
_KINDS = {"<f8": "f", "<i8": "iu", "|b1": "b"}
_NUMBERS = tuple(_KINDS)
# What goes wrong with what was sent, before a record is read: it is told.
PUBLIC_FAULTS = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, MemoryError, RecursionError)


class Refusal(Exception):
    """A request that is not answered, and why: by public numbers alone, as RFC 9457 writes it.

    Parameters
    ----------
    status : int
        Of HTTP.
    kind : str
        The end of the problem's type, such as "budget-exceeded".
    detail : str
        One sentence for people.
    **members
        What else programs may want, such as the amount asked for and the amount that remains.
    """

    def __init__(self, status: int, kind: str, detail: str, **members: Any) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.members = status, kind, detail, members

    @property
    def body(self) -> bytes:
        """The problem as JSON; equal refusals are equal bytes."""
        title = self.kind.replace("-", " ")
        head = {"type": f"urn:epsteps:problem:{self.kind}", "title": title, "status": self.status}
        return dumped(head | {"detail": self.detail} | self.members)

    @staticmethod
    def read(status: int, body: bytes) -> "Refusal":
        """Return the refusal that a body writes; of one that is none, the status alone."""
        try:
            content = dict(json.loads(body))
            kind = str(content.pop("type")).rpartition(":")[2]
            detail = str(content.pop("detail"))
        except (ValueError, KeyError, TypeError):
            return Refusal(status, "unreadable", f"the holder answered {status} without saying why.")
        members = {name: value for name, value in content.items() if name not in ("title", "status")}
        return Refusal(status, kind, detail, **members)


# The one answer to whatever goes wrong once records were touched: what it was is in the holder's log.
FAILED = Refusal(
    500,
    "failed",
    "the holder's machine could not finish this request. What was charged stays charged; the holder's log says more.",
)


def dumped(content: Any) -> bytes:
    """Return JSON: the same bytes for the same content in the same order, which of a schema's columns is part of it."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")


def digest(*parts: bytes) -> str:
    """Return the SHA-256 of parts, each with its length, so that no two lists of parts share it."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()


def read_object(body: bytes, needed: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the JSON object of a body with these members and no others, or refuse it."""
    try:
        content = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refusal(400, "not-json", "the body must be JSON, of finite numbers.") from None
    if not isinstance(content, dict):
        raise Refusal(400, "not-json", "the body must be a JSON object.")
    missing = [name for name in needed if name not in content]
    unknown = [name for name in content if name not in needed + optional]
    if missing or unknown:
        raise invalid(f"the body lacks {missing[0]!r}." if missing else f"the body has an unknown {unknown[0][:60]!r}.")
    return content


def _no_constant(_: str) -> None:
    raise ValueError("not finite")


def invalid(detail: str) -> Refusal:
    """Return the refusal of a request that does not say what can be done."""
    return Refusal(422, "invalid-request", " ".join(detail.split())[:500])


def point_text(x: np.ndarray) -> str:
    """Return a vector as base64 of its little-endian float64."""
    return base64.b64encode(np.ascontiguousarray(x, dtype="<f8").tobytes()).decode("ascii")


def read_point(text: Any, length: int) -> np.ndarray:
    """Return the vector of this length that a text is, bit for bit; refuse what is not finite, or of another size."""
    if not isinstance(text, str):
        raise invalid("a point must be the base64 of little-endian float64.")
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("a point must be the base64 of little-endian float64.") from None
    if len(raw) != 8 * length:
        raise invalid(f"a point must have {length} coordinates of 8 bytes, got {len(raw)} bytes.")
    x = np.frombuffer(raw, dtype="<f8").astype(float)
    if not (np.abs(x) <= _LARGEST_POINT).all():
        raise invalid("the coordinates of a point must be finite, and of at most 1e100.")
    return x


def gradient_to_dict(request: Gradient) -> dict[str, Any]:
    """Return a request for one gradient, as what will be executed: the holder computes its cost anew."""
    if request.x.reshape(len(request.x), -1).shape[1] != 1:
        raise ValueError("a session answers one point at a time: leave repetitions out.")
    numbers = {name: float(np.asarray(getattr(request, name)).reshape(-1)[0]) for name in ("scale", "bound")}
    noise = {"noise": request.mechanism.name, "batch": request.sampling.m, "step": request.step}
    return {"x": point_text(request.x.reshape(-1))} | numbers | noise


def read_gradient(content: dict[str, Any], problem: Problem, noise: Mechanism) -> Gradient:
    """Return the request that ``gradient_to_dict`` wrote, or one at a point for a cost of this noise.

    Everything that could fail later fails here, by public numbers: the noise exists for the problem, has a cost, and
    can be drawn.
    """
    x = read_point(content["x"], problem.dimension)
    try:
        with np.errstate(all="ignore"):
            request = _gradient(content, x, problem, noise)
            if not all(cost.amount > 0 for cost in request.costs):
                raise ValueError("the cost must be above 0.")
            request.require_drawable()
    except PUBLIC_FAULTS as error:
        raise invalid(f"this gradient cannot be asked for: {error}") from None
    return request


def _gradient(content: dict[str, Any], x: np.ndarray, problem: Problem, noise: Mechanism) -> Gradient:
    if "cost" in content:
        return Gradient.at(problem, noise, x, validate.positive("cost", content["cost"]))
    noise = mechanisms.named(content["noise"])
    mechanisms.require_fit(noise, problem)
    sampling = Sampling(problem.n, validate.integer("batch", content["batch"], high=problem.n))
    scale, bound = validate.size("scale", content["scale"]), _bound(content["bound"], x, problem)
    step = None if content["step"] is None else validate.integer("step", content["step"], low=0, high=2**31)
    return Gradient(problem, noise, x[:, None], scale, bound, sampling, step)


def _bound(stated: Any, x: np.ndarray, problem: Problem) -> float:
    """Return the largest slope that a request's noise is scaled for: the loss's, or that at the point, as stated.

    It is computed here, as the library does: what is stated chooses between the two, and is not executed.
    """
    known = [problem.loss.slope, float(problem.slope_at(x[:, None])[0])]
    for bound in filter(math.isfinite, known):
        if abs(validate.positive("bound", stated) - bound) <= 1e-9 * bound:
            return bound
    raise ValueError(f"bound must be the loss's largest slope, or that at the point, got {stated!r}.")


def price_of(cost: Cost, terms: Terms) -> Price:
    """Return what a ledger with these terms is charged for a release of this cost: its epsilon or its rho.

    A kind of budget that takes neither says itself what the cost amounts to.
    """
    price = cost.either(Pure, Concentrated)(cost.amount)
    try:
        terms.tally([price])
    except TypeError:
        return terms.budget.of(cost)
    return price


def run_to_dict(run: Run) -> dict[str, Any]:
    """Return all that a run published."""
    extras = {name: array_to_dict(values) for name, values in run.extras.items()}
    return {"path": array_to_dict(run.path), "extras": extras, "seeded": run.seeded}


def run_size(plan: Plan) -> int:
    """Return how many bytes what a plan publishes may have, about: by its own public numbers."""
    numbers = (plan.points + 1) * plan.problem.dimension + sum(map(math.prod, plan.besides.values()))
    return 1024 + 32 * numbers // 3  # of base64


def read_run(plan: Plan, content: dict[str, Any]) -> Run:
    """Return the run that ``run_to_dict`` wrote, bit for bit."""
    extras = {name: read_array(values) for name, values in content["extras"].items()}
    return Run(plan, read_array(content["path"]), bool(content["seeded"]), extras)


def array_to_dict(array: np.ndarray) -> dict[str, Any]:
    """Return an array of numbers as their type, their shape, and the base64 of little-endian bytes of 64 bits."""
    given = np.asarray(array).dtype
    kind = next((each for each in _NUMBERS if np.can_cast(given, each, "safe") and given.kind in _KINDS[each]), None)
    if kind is None:
        raise TypeError(f"arrays of {given} do not travel.")
    data = np.asarray(array, dtype=kind)  # of no axis, too
    return {"dtype": kind, "shape": list(data.shape), "data": base64.b64encode(data.tobytes()).decode("ascii")}


def read_array(content: dict[str, Any]) -> np.ndarray:
    """Return the array that ``array_to_dict`` wrote."""
    kind, shape = validate.choice("dtype", content["dtype"], _NUMBERS), tuple(map(int, content["shape"]))
    raw = base64.b64decode(content["data"], validate=True)
    if len(raw) != math.prod(shape) * np.dtype(kind).itemsize:
        raise ValueError(f"an array of shape {shape} does not have {len(raw)} bytes.")
    return np.frombuffer(raw, dtype=kind).reshape(shape).astype(np.dtype(kind).newbyteorder("="))


def read_budget(content: Any) -> Budget:
    """Return the budget that ``Budget.to_dict`` wrote, or refuse."""
    try:
        price = Price.from_dict(content)
    except PUBLIC_FAULTS as error:
        raise invalid(f"the allowance is no budget: {error}") from None
    if not price.compositions:
        raise invalid("the allowance must be a budget, such as Pure(epsilon).")
    return price  # pyright: ignore[reportReturnType]
