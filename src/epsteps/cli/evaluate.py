"""``epsteps evaluate``: private scores of a model on a table, written beside the model."""

from __future__ import annotations

import json as json_module
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Option

import epsteps as es
from epsteps.cli import common
from epsteps.cli import common as files
from epsteps.cli.fit import REPORT, ModelFile, account_of, require_consent, save


def evaluate(
    model: ModelFile,
    data: common.TableFile,
    epsilon: Annotated[float, Option(help="Privacy budget, for one record replaced.", show_default=False)],
    delta: float | None = Option(None, help="Makes the budget (epsilon, delta) instead of pure epsilon."),
    rows: Literal["held out", "training"] = Option("held out", help="Whether the model was fitted to these rows."),
    level: float = Option(0.95, help="Of the intervals, from 0.5 to 0.99."),
    buckets: int | None = Option(None, help="Of the scores of classes; 2 tell of nothing but right and wrong, best."),
    error_bound: float | None = Option(None, help="Hold errors of numbers within this, in the target's unit."),
    ledger: Path | None = Option(None, help="Charge this ledger before noise is drawn; see epsteps ledger."),
    dataset: str | None = Option(None, help="The ledger's name for these records; goes with --ledger."),
    delimiter: common.Delimiter = "comma",
    encoding: common.Encoding = "utf-8",
    seed: int | None = Option(None, help="Makes it repeatable and NOT private: for experiments."),
    yes: bool = Option(False, "--yes", help="Run the plan without asking."),
    anyway: bool = Option(False, "--anyway", help="Run it even if nothing will be learned."),
    json: bool = Option(False, "--json", help="Print the scores as JSON, and the plan to stderr."),
    force: common.Force = False,
) -> None:
    """Evaluate a model privately on a table with its target, and write the scores into its model.json and report.

    The plan is printed first. It is charged in full, whether the rows were held out or not: what costs less is
    epsteps fit --hold-out, which divides the rows itself.
    """
    from epsteps import tables
    from epsteps.tables.model_file import read_content

    say, fitted, path = partial(common.say, err=json), tables.load_model(model), tables.model_path(model)
    content = read_content(path)
    if content.get("evaluation") is not None and not force:
        raise ValueError(f"{path} has private scores already: add --force to replace them. They were paid for.")
    budget = es.Pure(epsilon) if delta is None else es.Approximate(epsilon, delta)
    account = account_of(ledger, dataset)
    table = fitted.schema.load(data, delimiter=common.DELIMITERS[delimiter], encoding=encoding)
    n = len(next(iter(table.values())))
    plan = es.evaluation_plan(fitted, n, budget, buckets=buckets, error_bound=error_bound)
    say(f"{plan}\n")
    if seed is not None:
        typer.echo("NOT PRIVATE: a seed makes the noise repeatable.\n", err=json or common.is_quiet())
    if seed is None and not anyway:
        _require_hope(plan)
    require_consent(yes, json)
    report = path.with_name(REPORT)
    with files.opened([path, report], True) as outputs:
        options = {"level": level, "ledger": account, "seed": seed, "anyway": anyway}
        found = es.evaluate(fitted, table, plan=plan, rows=rows, **options)
        content["evaluation"] = found.to_dict() | _charged(account)
        text = json_module.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
        save(outputs, text, content)
    common.answer(content["evaluation"], f"{common.shown_lines(str(found))}\nWrote {path} and {report}.", as_json=json)


def _charged(account: Any) -> dict[str, Any]:
    return {} if account is None else {"ledger": account.described}


def _require_hope(plan: es.EvaluationPlan) -> None:
    try:
        plan.require_hope()
    except es.HopelessError as error:
        raise es.HopelessError(str(error).replace("anyway=True", "--anyway")) from None
