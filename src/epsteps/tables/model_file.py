"""A model as JSON: nothing in it is executed when it is read, and what it states is checked."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from epsteps.budgets import Budget, Epsilon
from epsteps.plans import notation
from epsteps.plans.plan import Plan
from epsteps.problem.rounding import up
from epsteps.problem.validate import MissingExtraError
from epsteps.tables.model import INTERCEPT, Model, certificate, promise_to_a_person
from epsteps.tables.schema import Schema

_FACTORS = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)


def finite(value: float | None) -> float | None:
    """Return the number, or None where there is none that JSON could hold."""
    return None if value is None or not math.isfinite(value) else float(value)


def error_curve(
    budget: Budget, replan: Callable[[Any], Plan], factors: Sequence[float] = _FACTORS
) -> list[tuple[float, float]]:
    """Return expected errors at other epsilons of a budget that has one, as pairs: those of plans made for them."""
    curve = []
    for factor in factors:
        epsilon = budget.amount * factor
        try:
            with np.errstate(all="ignore"):
                error = finite(replan(replace(cast(Any, budget), epsilon=epsilon)).utility.expected)
        except (ValueError, ArithmeticError, RuntimeError):  # no plan of this method for so small, or large, a budget
            continue
        if error is not None:
            curve.append((epsilon, error))
    return curve


FILE = "model.json"
_FORMAT = 1
_DIGEST = "SHA-256"
_CERTIFICATE = (
    *("guarantee", "epsilon", "delta", "spent", "odds", "seeded", "adjacency"),
    *("records", "features", "domain", "method", "points"),
)

# Models of more numbers have no table of intervals in their report.
_MOST_INTERVALS = 500
# What files of earlier versions say of each coefficient besides: guesses that were too small.
_FORMER = ("noise", "noise_if_never")
# What they do not say.
_LATTER = ("column",)


class ModelFormatError(ValueError):
    """The file is no model, or was changed after it was written."""


def model_to_dict(
    model: Model,
    *,
    curve: Sequence[tuple[float, float]] = (),
    ledger: Mapping[str, Any] | None = None,
    scores: Mapping[str, Any] | None = None,
    evaluation: Mapping[str, Any] | None = None,
    made: Mapping[str, Any] | None = None,
    approved_by: str | None = None,
) -> dict[str, Any]:
    """Return a model as values that JSON can hold, with everything that its report says.

    Parameters
    ----------
    model : Model
        The fitted model.
    curve : pairs of epsilon and error
        From ``error_curve``.
    ledger, scores : mappings, optional
        The ledger's receipt for the fit (``Ledger.receipt``), and unprotected scores on other records.
    evaluation : mapping, optional
        Private scores: ``Evaluation.to_dict()``.
    made : mapping, optional
        By which version, and when.
    approved_by : str, optional
        Who agreed to the plan.

    Whatever the numbers of the model are, nothing here raises or warns: the model was paid for. A number that floats do
    not hold is None.
    """
    with np.errstate(all="ignore"):
        content = _to_dict(model, curve, ledger, scores, evaluation, made)
    signed = {"dataset": (ledger or {}).get("dataset"), "approved_by": approved_by}
    return content | {"signature": signed | digests(content)}


def _to_dict(
    model: Model,
    curve: Sequence[tuple[float, float]],
    ledger: Mapping[str, Any] | None,
    scores: Mapping[str, Any] | None,
    evaluation: Mapping[str, Any] | None,
    made: Mapping[str, Any] | None,
) -> dict[str, Any]:
    return {
        "epsteps_model": _FORMAT,
        "made": dict(made or {}),
        "private": not model.seeded,
        "certificate": stated(model),
        "schema": model.schema.to_dict(),
        "coefficients": coefficients(model),
        "prediction": {
            "error": finite(model.plan.utility.expected),
            "utility": model.plan.utility.to_dict(),
            "after": expected_after(model),
            "curve": [{"epsilon": epsilon, "error": error} for epsilon, error in curve],
        },
        "intervals": intervals(model),
        "releases": releases(model.plan),
        "chosen": chosen(model),
        "scores": None if scores is None else {name: _known(value) for name, value in scores.items()},
        **({} if evaluation is None else {"evaluation": dict(evaluation)}),
        "ledger": None if ledger is None else dict(ledger),
        "points": model.points.tolist(),
        "besides": {name: values.tolist() for name, values in model.besides.items()},
        "plan_text": str(model.plan),
        "plan_page": notation.page(model.plan),
        "plan": json.loads(model.plan.to_json()),
    }


def digests(content: Mapping[str, Any]) -> dict[str, str]:
    """Return digests of the schema, the plan and all that was published, from the content of a model's file.

    Each is of the JSON without spaces, in the file's order. None depends on records but through what was published:
    a digest of the records themselves would tell whether somebody's guess of all of them is right.
    """
    parts = {
        "schema": content["schema"],
        "plan": content["plan"],
        "model": {name: content[name] for name in ("private", "points", "besides")},
    }
    return {"digest": _DIGEST} | {name: _digest(part) for name, part in parts.items()}


def _digest(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def stated(model: Model) -> dict[str, Any]:
    """Return what the fit guarantees, as plain values, computed from the plan's scales, in the order of a file."""
    plan, spent = model.plan, model.plan.spending().amount
    unprotected = "NOT PRIVATE: a seed makes the noise repeatable" if model.seeded else None
    facts = certificate(plan.budget, spent, plan.method, unprotected=unprotected) | {
        "odds": finite(float(np.exp(spent))),
        "records": plan.problem.n,
        "features": plan.problem.d,
        "domain": str(plan.problem.domain),
        "points": len(model.points),
    }
    listed = {name: facts[name] for name in _CERTIFICATE}
    if not model.schema.bought:
        return listed
    return listed | {"expenses": [vars(expense) for expense in model.schema.bought], "in_all": in_all(model)}


def in_all(model: Model) -> float | None:
    """Return what the fit spent with all that was bought for its schema before; None where no number says it.

    Epsilons add up, whatever was planned by what was bought, and so do rhos; a pure epsilon is a rho of epsilon²/2.
    """
    budget, spent = model.plan.budget, model.plan.spending().amount
    costs = [expense.kind(expense.cost) for expense in model.schema.bought]
    if Epsilon in budget.kinds:
        return up(math.fsum([spent, *(cost.amount for cost in costs)])) if all(c.is_pure for c in costs) else None
    return up(math.fsum([spent, *(cost.rho for cost in costs)]))


def coefficients(model: Model) -> list[dict[str, Any]]:
    """Return every number of the model with the names of its feature and of the column that this is made of.

    ``effect`` is that of the whole declared range of a number, or of an indicator; ``per_unit`` that of one unit of the
    column, or of what its transform makes of it. The intercept is the value where numbers are at the low end of their
    ranges and all indicators are 0. What noise may have done to each number stands in ``intervals``.
    """
    schema, x = model.schema, model.points[-1]
    middle, half = schema.target_column.target_scale
    owners = [name for name, column in schema.features.items() for _ in range(column.width)]
    owners += [str(product) for product in schema.products for _ in range(product.width)]
    features = [*zip(schema.names, owners, schema.spans, strict=True), (INTERCEPT, INTERCEPT, 1.0)]
    entries = []
    for row, output in enumerate(model.outputs):
        for place, (name, column, span) in enumerate(features):
            effect = half * float(x[row, place]) + (middle if name == INTERCEPT else 0.0)
            numbers = {"effect": finite(effect), "per_unit": finite(effect / span)}
            entries.append({"output": output, "feature": name, "column": column, **numbers})
    return entries


def intervals(model: Model) -> dict[str, Any]:
    """Return the intervals of the report, or why there are none.

    They are for levels against the mean of their category's, as that is what records tell of them. Where nothing was
    bought for them they are for the minimum of these records, from which noise alone separates the model: at most so
    far. For any other level, target or contrast ask the model.
    """
    try:
        if len(model.terms.names) > _MOST_INTERVALS:
            raise ValueError(f"there are more than {_MOST_INTERVALS} numbers. Ask for contrasts of them.")
        found = model.intervals(target=None if "curvature" in model.besides else "sample", contrasts=_levels(model))
    except (ValueError, ArithmeticError) as error:  # no interval may lose a model that was paid for
        return {"reason": _line(str(error)), "rows": []}
    numbers = ("coef", "low", "high", "stderr", "privacy")
    columns = (getattr(found, name).tolist() for name in numbers)
    rows = [dict(zip(numbers, map(finite, row), strict=True)) for row in zip(*columns, strict=True)]
    return {
        "kind": found.kind,
        "level": found.level,
        "target": found.target,
        "notes": list(found.notes),
        "rows": [{"name": name} | row for name, row in zip(found.names, rows, strict=True)],
    }


def chosen(model: Model) -> dict[str, str]:
    """Return what the fit chose by what it published besides, in words; nothing where no run publishes such numbers."""
    try:
        return model.plan.choices(model.besides)
    except (ValueError, ArithmeticError):  # no choice may lose a model that was paid for
        return {}


def expected_after(model: Model) -> dict[str, Any] | None:
    """Return what the model is expected to be worth by what was published; None where that says nothing more."""
    try:
        found = model.plan.utility_after(model.points.reshape(len(model.points), -1), model.besides)
    except (ValueError, ArithmeticError):
        # Files are tried before the charge with a model of zeros, whose radii no run publishes; files of before have
        # none. What runs publish never comes here: the matrix asks each of them for its utility.
        return None
    return None if found is model.plan.utility else found.to_dict()


def _levels(model: Model) -> str | None:
    return "levels" if len(model.terms.categories) else None


def releases(plan: Plan) -> list[dict[str, Any]]:
    """Return how the budget is split: what each release costs in its unit, and its share of what adds up."""
    sizes = np.array([charge.cost.additive for charge in plan.charges])
    sizes = sizes / (sizes.max() or 1.0)  # relative to the largest, no sum is too large
    total = math.fsum(sizes) or 1.0
    return [
        {"what": charge.what, "cost": charge.cost.amount, "unit": charge.cost.unit, "share": float(size / total)}
        for charge, size in zip(plan.charges, sizes, strict=True)
    ]


def model_from_dict(content: Any) -> Model:
    """Return the model that ``model_to_dict`` wrote, or raise if the plan does not certify what the file says."""
    try:
        with np.errstate(all="ignore"):
            return _from_dict(content)
    except (ModelFormatError, MissingExtraError):
        raise
    except ValueError as error:
        raise ModelFormatError(_line(str(error))) from error
    except Exception as error:  # any content may arrive
        raise ModelFormatError(f"not a complete model: {_line(repr(error))}. Pass what epsteps fit wrote.") from error


def _from_dict(content: Any) -> Model:
    if isinstance(content, Mapping) and "epsteps_estimator" in content:
        raise ModelFormatError("it is an estimator without a schema: read it with epsteps.load in Python.")
    if not isinstance(content, Mapping) or content.get("epsteps_model") != _FORMAT:
        raise ModelFormatError(f"not a model of format {_FORMAT}: pass what epsteps fit wrote.")
    plan = _plan(content["plan"])
    promised, listed = content["certificate"], content["coefficients"]
    seeded = promised["seeded"] is not False
    points = np.array(content["points"], dtype=float)
    model = Model(Schema.from_dict(content["schema"]), plan, points, seeded, content.get("besides", {}))
    _require_same({"private": not seeded}, {"private": content.get("private")})
    _require_same(stated(model), promised)
    if (person := content.get("person")) is not None:
        _require_person(model, person)
    actual = coefficients(model)
    if not isinstance(listed, list) or len(actual) != len(listed):
        raise ModelFormatError("the model was changed: its coefficients are not those of its last point.")
    for ours, theirs in zip(actual, listed, strict=True):
        known = {name: value for name, value in ours.items() if name in theirs or name not in _LATTER}
        _require_same(known, {name: theirs[name] for name in theirs if name not in _FORMER})
    if "signature" in content:
        names = digests(content)
        _require_same(names, {name: content["signature"].get(name) for name in names})
    return model


def _require_person(model: Model, person: Mapping[str, Any]) -> None:
    """Raise unless the plan is for the share of one record in the budget that a person is said to have."""
    plan, records = model.plan, person["per_person"]
    budget = replace(
        cast(Any, plan.budget), **{field.name: person[field.name] for field in fields(cast(Any, plan.budget))}
    )
    if budget.per_record(records) != plan.budget:
        raise ModelFormatError("the model was changed: its plan is not for the budget that a person is said to have.")
    _require_same(promise_to_a_person(plan, budget, records, model.seeded), person)


def model_path(path: str | Path) -> Path:
    """Return the model.json of a folder that ``epsteps fit`` wrote, or the file itself."""
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"there is no model {path}: name the folder that epsteps fit wrote.")
    return path


def load_model(path: str | Path) -> Model:
    """Return the model in a folder that ``epsteps fit`` wrote, or in its model.json."""
    content = read_content(path)
    try:
        return model_from_dict(content)
    except ValueError as error:
        raise ModelFormatError(f"{model_path(path)}: {_line(str(error))}") from None


def read_content(path: str | Path) -> Any:
    """Return what the model.json of a folder holds, unchecked."""
    path = model_path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refused)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise ModelFormatError(f"{path} is not JSON: name the model.json that epsteps fit wrote.") from None
    except ValueError as error:
        raise ModelFormatError(f"{path}: {_line(str(error))}") from None


def _plan(content: Any) -> Plan:
    if (kind := content.get("kind")) not in Plan.kinds:
        raise ModelFormatError(f"a plan of the kind {kind!r} is not known to this version of epsteps.")
    return Plan.from_json(json.dumps(content))


def _require_same(actual: Mapping[str, Any], stated: Any) -> None:
    if not isinstance(stated, Mapping) or stated.keys() != actual.keys():
        raise ModelFormatError(f"not a complete model: it must state {', '.join(actual)}.")
    for name, value in actual.items():
        numbers = all(isinstance(entry, int | float) for entry in (value, stated[name]))
        if not (math.isclose(value, stated[name], rel_tol=1e-9) if numbers else value == stated[name]):
            raise ModelFormatError(
                f"the model was changed: its {name} says {stated[name]!r}, but its plan and points give {value!r}. "
                "Fit it anew."
            )


def _known(value: Any) -> Any:
    """Return a score, or None where floats do not hold it."""
    return finite(value) if isinstance(value, float) else value


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 500 else line[:497] + "..."


def _refused(constant: str) -> None:
    raise ModelFormatError(f"it says {constant}, and models hold finite numbers alone.")
