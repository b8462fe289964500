"""A fitted estimator as a folder: model.json, from which it is read without executing anything, and its report.

With a schema the file is that of ``epsteps fit``, and the command line reads it too. Without one it holds the same plan
and points, but there are no declared columns that a report could speak of.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from epsteps.bounds import steps
from epsteps.estimators import _scikit
from epsteps.estimators.base import PrivateLinearModel
from epsteps.estimators.callers import Circumstances
from epsteps.estimators.classification import PrivateLinearSVC, PrivateLogisticRegression
from epsteps.estimators.regression import PrivateHuberRegressor, PrivateRidge
from epsteps.plans.plan import Plan
from epsteps.running.run import Run
from epsteps.tables import model_file, report
from epsteps.tables.model import Model, held, promise_to_a_person
from epsteps.tables.model_file import ModelFormatError

REPORT = "report.html"
_FORMAT = 1
_KINDS: dict[str, type[PrivateLinearModel]] = {
    kind.__name__: kind for kind in (PrivateLogisticRegression, PrivateLinearSVC, PrivateRidge, PrivateHuberRegressor)
}
_STEPS = ("gd", "heavy_ball", "nesterov", "restarted_nesterov", "multistage")
# What of a certificate does not follow from the plan.
_CIRCUMSTANCES = ("ledger", "without_ledger", "assumptions")
# Parameters that stand elsewhere in the file, or belong to a process.
_ELSEWHERE = ("schema", "domain", "ledger")


def save(model: PrivateLinearModel, folder: str | Path, *, force: bool = False) -> Path:
    """Write a fitted estimator to a folder, with its report where it has a schema; return the folder."""
    folder = Path(folder)
    path = folder / model_file.FILE
    if path.exists() and not force:
        raise FileExistsError(f"there is a model {path} already: name another folder, or pass force=True.")
    content = content_of(model)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
    if model.schema_ is not None:
        (folder / REPORT).write_text(report.page(content), encoding="utf-8")
    return folder


def card(model: PrivateLinearModel, path: str | Path) -> Path:
    """Write the report of a fitted estimator, and return its path."""
    _scikit.require_fitted(model)
    if model.schema_ is None:
        raise ValueError(
            "a report tells what was declared of each column: fit with schema=Schema(...). For a page without columns "
            "there is summary()."
        )
    path = Path(path)
    path.write_text(report.page(content_of(model)), encoding="utf-8")
    return path


def content_of(model: PrivateLinearModel) -> dict[str, Any]:
    """Return a fitted estimator as values that JSON can hold."""
    _scikit.require_fitted(model)
    if "trial" in model.certificate_:
        raise ValueError(
            "the model is the best of several trials, and its file would state the price of one. Fit once with the "
            "chosen parameters, and save that."
        )
    made = {"by": f"epsteps {import_module('epsteps').__version__}", "on": datetime.now(UTC).date().isoformat()}
    plan = model.plan_
    estimator = {
        "name": type(model).__name__,
        "parameters": _parameters(model),
        "certificate": {name: model.certificate_[name] for name in _CIRCUMSTANCES},
    }
    if model.schema_ is None:
        return {
            "epsteps_estimator": _FORMAT,
            "made": made,
            "private": not model.run_.seeded,
            "estimator": estimator,
            "guarantee": model.certificate_["guarantee"],
            "spent": model.certificate_["spent"],
            "columns": list(map(str, getattr(model, "feature_names_in_", ()))),
            "points": model.points_.tolist(),
            "besides": {name: values.tolist() for name, values in _besides(model).items()},
            "plan_text": str(plan),
            "plan": json.loads(plan.to_json()),
        }
    curve = model_file.error_curve(plan.budget, partial(model._planned, plan.problem.n, plan.problem.d))
    fitted = Model(model.schema_, plan, model.points_, model.run_.seeded, _besides(model))
    content = model_file.model_to_dict(fitted, curve=curve, ledger=model.entry_, made=made) | {"estimator": estimator}
    if model.per_person == 1:
        return content
    return content | {"person": promise_to_a_person(plan, model._budget(), model.per_person, fitted.seeded)}


def load(folder: str | Path) -> Any:
    """Return the estimator that was saved to a folder, or the model that ``epsteps fit`` wrote there, as an estimator.

    Nothing in the file is executed. What it states is checked against its plan and points. Predictions are those of the
    estimator that was saved, bit for bit; its ledger is not part of it.
    """
    content = model_file.read_content(folder)
    try:
        return _of_schema(content) if "epsteps_estimator" not in content else _of_numbers(content)
    except ModelFormatError:
        raise
    except Exception as error:  # any content may arrive
        line = " ".join(repr(error).split())[:400]
        raise ModelFormatError(f"not a complete model: {line}. Pass the folder that save wrote.") from error


def _of_schema(content: Mapping[str, Any]) -> PrivateLinearModel:
    fitted = model_file.model_from_dict(content)
    schema, plan = fitted.schema, fitted.plan
    usual = PrivateRidge if fitted.classes is None else PrivateLogisticRegression
    person = content.get("person", {"epsilon": plan.budget.amount, "delta": plan.budget.delta, "per_person": 1})
    budget = {name: person[name] for name in ("epsilon", "delta", "per_person")}
    usually = {"name": usual.__name__, "parameters": budget | {"ridge": plan.problem.ridge}}
    model = _made(content.get("estimator", usually), schema=schema)
    model.schema_ = schema
    model.feature_names_in_ = np.array(list(schema.features), dtype=object)
    model.n_features_in_ = len(schema.features)
    model.entry_ = content["ledger"]
    return _told(model, content, plan, fitted.points, fitted.seeded, dict(fitted.besides))


def _of_numbers(content: Mapping[str, Any]) -> PrivateLinearModel:
    if content["epsteps_estimator"] != _FORMAT:
        raise ModelFormatError(f"not an estimator of format {_FORMAT}: pass what save wrote.")
    plan = Plan.from_json(json.dumps(content["plan"]))
    problem, points = plan.problem, np.array(content["points"], dtype=float)
    if points.ndim != 3 or points.shape[1:] != (problem.loss.outputs, problem.width) or not np.all(np.isfinite(points)):
        raise ModelFormatError("the model was changed: its points are not those of its plan.")
    declared = content["estimator"]["parameters"]
    undeclared = all(declared[name] is None for name in ("bounds", "row_norm"))
    model = _made(content["estimator"], **({"domain": problem.domain} if undeclared else {}))
    model.schema_, model.n_features_in_, model.entry_ = None, problem.d, None
    if content["columns"]:
        model.feature_names_in_ = np.array(content["columns"], dtype=object)
    besides = {name: np.array(values, dtype=float) for name, values in content["besides"].items()}
    _told(model, content, plan, points, content["private"] is not True, besides)
    for name in ("guarantee", "spent"):
        if model.certificate_[name] != content[name]:
            raise ModelFormatError(f"the model was changed: its {name} is not that of its plan.")
    return model


def _made(described: Mapping[str, Any], **declared: Any) -> Any:
    """Return the estimator before its fit."""
    if (kind := _KINDS.get(described["name"])) is None:
        raise ModelFormatError(f"an estimator {described['name']!r} is not known: it must be {', '.join(_KINDS)}.")
    parameters = dict(described["parameters"]) | declared
    if "norm" in parameters:
        parameters["norm"] = float(parameters["norm"])
    if parameters.get("method") in _STEPS:
        parameters["method"] = getattr(steps, parameters["method"])
    return kind(**parameters)


def _told(
    model: PrivateLinearModel,
    content: Mapping[str, Any],
    plan: Plan,
    points: np.ndarray,
    seeded: bool,
    besides: dict[str, np.ndarray],
) -> PrivateLinearModel:
    """Tell of the points as a fit does, or raise if what is declared is not what they were planned for."""
    model._tell_declared(plan)
    if model.declared_.domain != plan.problem.domain or model.loss() != plan.problem.loss:
        raise ModelFormatError("the model was changed: its plan is for other columns or targets than are declared.")
    if model._budget().per_record(model.per_person) != plan.budget:
        raise ModelFormatError("the model was changed: its plan is for another budget than its parameters say.")
    stated = content.get("estimator", {}).get("certificate", {})
    model._tell(Run(plan, points.reshape(len(points), -1), seeded, besides), points, Circumstances(None, ()))
    model.certificate_ |= {name: stated[name] for name in _CIRCUMSTANCES if name in stated}
    return model


def _besides(model: PrivateLinearModel) -> dict[str, np.ndarray]:
    return {name: held(model.run_.extras[name]) for name in model.plan_.besides if name in model.run_.extras}


def _parameters(model: PrivateLinearModel) -> dict[str, Any]:
    return {name: _plain(value) for name, value in model.get_params(deep=False).items() if name not in _ELSEWHERE}


def _plain(value: Any) -> Any:
    """Return a parameter as JSON holds it: steps of the library by their name, and infinity as a text."""
    if callable(value):
        name = getattr(value, "__name__", "")
        return name if name in _STEPS and getattr(steps, name) is value else "auto"
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return "inf" if isinstance(value, float) and value == float("inf") else value
