"""``epsteps fit`` and ``epsteps predict``: from a table and its schema to a private model and its report, and on."""

from __future__ import annotations

import csv
import io
import json as json_module
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

import epsteps as es
from epsteps.cli import common
from epsteps.cli import common as files
from epsteps.cli.plan import with_target

if TYPE_CHECKING:
    import numpy as np

    from epsteps import tables
    from epsteps.budgets.budget import Price
    from epsteps.tables import Schema, SchemaCheck

MODEL, REPORT = "model.json", "report.html"
_MOST_COLUMNS = 12
_LONGEST_NAME = 200


def fit(
    data: common.TableFile,
    schema: Annotated[Path, Option(help="What is declared of its columns: a .toml file.", show_default=False)],
    epsilon: Annotated[float, Option(help="Privacy budget, for one record replaced.", show_default=False)],
    target: str | None = Option(None, help="The column to predict, if the schema does not name it."),
    delta: float | None = Option(None, help="Makes the budget (epsilon, delta) instead of pure epsilon."),
    ridge: float = Option(1e-4, help="Ridge: mean loss + ridge/2 |x|^2, for features scaled to [0, 1]."),
    release: Literal["final", "iterates"] | None = Option(
        None,
        help="Publish the model alone, or every point on the way.  [default: final, unless the method says otherwise]",
        show_default=False,
    ),
    method: common.AnyMethod = Option("auto", help="auto is the most accurate one for the release."),
    intervals: common.Intervals = None,
    robust: common.Robust = False,
    ledger: Path | None = Option(None, help="Charge this ledger before noise is drawn; see epsteps ledger."),
    dataset: str | None = Option(None, help="The ledger's name for these records; goes with --ledger."),
    approved_by: str | None = Option(None, help="Who agreed to the plan: stands in the report."),
    hold_out: float | None = Option(
        None, help="Keep this share of the rows out of the fit, and evaluate the model on them, privately."
    ),
    split_seed: int = Option(0, help="Public seed of the split, with --hold-out: it protects nothing."),
    test: Path | None = Option(None, help="Score on this table of other records, which it does not protect."),
    delimiter: common.Delimiter = "comma",
    encoding: common.Encoding = "utf-8",
    seed: int | None = Option(None, help="Makes the fit repeatable and NOT private: for experiments."),
    per_person: int = Option(1, min=1, help="Records that one person may have; the budget is then for a person."),
    yes: bool = Option(False, "--yes", help="Run the plan without asking."),
    anyway: bool = Option(False, "--anyway", help="Run it even if its model is expected to be nothing but noise."),
    json: bool = Option(False, "--json", help="Print model.json to stdout, and the plan to stderr."),
    out: Path = Option(Path("model"), help="Folder for model.json and report.html."),
    force: common.Force = False,
) -> None:
    """Fit a private linear model to a table: logistic for two classes, softmax for more, least squares for numbers.

    The plan is printed first. It says what is guaranteed and spent, and uses the number of rows (public) but none of
    their values. Values outside the schema never stop a fit: they are moved inside.
    """
    from epsteps import tables

    declared = with_target(es.Schema.read(schema), target)
    budget = es.Pure(epsilon) if delta is None else es.Approximate(epsilon, delta)
    charged = account_of(ledger, dataset)
    approver = None if approved_by is None else _approver(approved_by)
    _require_one_part_each(hold_out, per_person)
    paths = [out / name for name in (MODEL, REPORT)]
    files.require_free(paths, force)
    table, tested = _tables(declared, data, test, {"delimiter": common.DELIMITERS[delimiter], "encoding": encoding})
    say = partial(common.say, err=json)
    n = _rows_of(table)
    training, others = (None, None) if hold_out is None else tables.split(n, hold_out, split_seed)
    problem = tables.problem_of(declared, n if training is None else len(training), ridge)
    asked = {"method": common.method_named(method), "release": release, **common.inference(intervals, robust)}
    replan = partial(es.plan, problem, **asked)
    planned = replan(budget.per_record(per_person))
    for told in _announced(declared, planned, budget, per_person, (training, others)):
        say(f"{told}\n")
    if seed is not None:
        warning = "NOT PRIVATE: a seed makes the noise repeatable. The model must be kept as secret as the records.\n"
        typer.echo(warning, err=json or common.is_quiet())
    if sys.stdout.isatty() and not json and not common.is_quiet():
        typer.echo(_projected(declared.check(table)))
    if seed is None and not anyway:
        _require_hope(planned)
    require_consent(yes, json)
    person = tables.promise_to_a_person(planned, budget, per_person, seed is not None) if per_person > 1 else None
    described = partial(_described, tables.error_curve(planned.budget, replan), tested, approver, person)
    rehearsed = described(tables.rehearsal(planned, declared), None, None)
    tables.page(rehearsed)  # what cannot be described is found out before anything is charged
    with files.opened(paths, force) as outputs:
        fitted = partial(_fitted, planned, declared, table, seed, anyway, per_person)
        if hold_out is None:
            model, evaluation = fitted(None, charged), None
        else:
            rehearsal, parts = tables.rehearsal(planned, declared), {"hold_out": hold_out, "split_seed": split_seed}
            model, evaluation = tables.fit_held_out(
                *(fitted, partial(_part, table), rehearsal, n, planned.spending(), budget),
                **(parts | {"ledger": charged, "seed": seed, "anyway": anyway}),
            )
        content = described(model, None if charged is None else charged.described, evaluation)
        text = json_module.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
        save(outputs, text, content)
    if json:
        typer.echo(text)
    else:
        common.say(_summary(content, out, evaluation))


def _announced(
    declared: Schema, planned: es.Plan, budget: es.budgets.Budget, per_person: int, parts: tuple[Any, Any]
) -> Iterator[str]:
    """Yield what a data holder reads before agreeing: the plan, and what else is spent, promised or was bought."""
    from epsteps import tables
    from epsteps.tables.schema import spent_on

    yield str(planned)
    training, others = parts
    if training is not None:
        yield str(tables.evaluation_plan(tables.rehearsal(planned, declared), len(others), budget))
        yield f"No record is in both parts, of {len(training)} and {len(others)} rows: both cost {budget}, together."
    if per_person > 1:
        yield _shared(declared, budget, per_person)
    for expense in declared.bought:
        yield f"Bought before, and not part of this plan: {common.shown(spent_on(expense))}."


def _require_one_part_each(hold_out: float | None, per_person: int) -> None:
    """Raise where records of one person could be in both parts, which then have something in common."""
    if hold_out is not None and per_person > 1:
        raise ValueError(
            f"--hold-out and --per-person do not go together, got {hold_out!r} and {per_person}: records of one person "
            "may be in both parts. Leave --hold-out out, and use epsteps evaluate."
        )


def _fitted(
    planned: es.Plan,
    declared: Schema,
    table: Any,
    seed: int | None,
    anyway: bool,
    per_person: int,
    places: np.ndarray | None,
    account: Any,
) -> tables.Model:
    """Fit these rows of a table, or all of them for None, charging this account."""
    rows = table if places is None else _part(table, places)
    return _run(planned, declared, rows, seed, account, anyway, per_person)


def _rows_of(table: Any) -> int:
    return len(next(iter(table.values())))


def _part(table: Any, places: np.ndarray) -> dict[str, Any]:
    """Return these rows of a table."""
    import numpy as np

    return {name: np.asarray(column)[places] for name, column in table.items()}


def _described(
    curve: list[tuple[float, float]],
    tested: Any,
    approver: str | None,
    person: dict[str, Any] | None,
    model: tables.Model,
    ledger: dict[str, Any] | None,
    evaluation: tables.Evaluation | None,
) -> dict[str, Any]:
    """Return the content of model.json."""
    from epsteps import tables

    content = tables.model_to_dict(
        model,
        curve=curve,
        ledger=ledger,
        scores=None if tested is None else tables.unprotected_scores(model, tested),
        evaluation=None if evaluation is None else evaluation.to_dict(),
        made={"by": f"epsteps {es.__version__}", "on": datetime.now(UTC).date().isoformat()},
        approved_by=approver,
    )
    return content if person is None else content | {"person": person}


def save(outputs: list[files.Output], text: str, content: dict[str, Any]) -> None:
    """Write the model, which was paid for, and then its report.

    If the model cannot be written after all, on a disk that is full, it is printed. A report is made anew from it.
    """
    from epsteps import tables

    model, report = outputs
    try:
        model.write(text + "\n")
    except OSError as error:
        typer.echo(text)
        raise type(error)(f"{model.path} could not be written ({error}): keep the model that was printed.") from None
    try:
        report.write(tables.page(content))
    except OSError as error:
        report.path.unlink(missing_ok=True)  # one that was to be replaced is about another model
        raise type(error)(f"{model.path} was written, but not {report.path} ({error}).") from None


class CommandAccount:
    """An account that remembers the receipt of its charge."""

    def __init__(self, path: Path, dataset: str) -> None:
        self._ledger, self._dataset = es.Ledger(path), dataset
        self._ledger.account(dataset)  # raises if there is none
        self.described: dict[str, Any] | None = None

    def charge(self, cost: Price, *, note: str = "", key: str | None = None) -> None:
        """Charge the dataset, durably, or raise."""
        entry = self._ledger.charge(self._dataset, cost, note=note, key=key)
        self.described = self._ledger.receipt(entry)


def account_of(path: Path | None, dataset: str | None) -> CommandAccount | None:
    """Return the account of a ledger that the options name, if they name one; raise if there is none."""
    if (path is None) != (dataset is None):
        missing = "--dataset" if dataset is None else "--ledger"
        raise ValueError(f"--ledger and --dataset go together: add {missing}.")
    return None if path is None or dataset is None else CommandAccount(path, dataset)


def _approver(name: str) -> str:
    """Return a name that a page can show, or raise: before anything is charged."""
    if not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise ValueError(f"--approved-by must be a name of up to {_LONGEST_NAME} printable characters, got {name!a}.")
    return name.strip()


def _tables(declared: Schema, data: Path, test: Path | None, how: dict[str, str]) -> tuple[Any, Any]:
    """Read the table, and that of the test, before anything is spent."""
    if test is not None and data.exists() and test.exists() and data.samefile(test):
        raise ValueError(
            f"--test is the table of the fit, {data}: scores of its records would be unprotected, and too good. "
            "Hold some records out, in another file."
        )
    table = declared.load(data, **how)
    return table, None if test is None else declared.load(test, **how)


def _shared(declared: Schema, budget: es.budgets.Budget, records: int) -> str:
    """Say how the budget of a person is shared among records, and what is taken for granted."""
    told = (
        f"Nobody may have more than {records} of these records: nothing checks it, since the schema names no person."
        if declared.person is None
        else f"Records are one person's if {declared.person!r} is the same; those beyond {records} count as nothing."
    )
    return f"A person with {records} records is promised {budget}: the plan is for one record. {told}"


def require_consent(yes: bool, quiet: bool) -> None:
    """Ask the data holder on a terminal; elsewhere the option must say that the plan is agreed to."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ValueError("nothing was run: there is no terminal to ask on. Add --yes if you agree to the plan.")
    typer.confirm("Run this plan?", abort=True, err=quiet)


def _projected(check: SchemaCheck) -> str:
    """Say what the schema will change in the table: for the data holder's eyes, on a terminal only."""
    changed = [column for column in check.columns if column.outside or column.empty]
    if not changed:
        return "For your eyes only: every value is inside the schema.\n"
    lines = ["For your eyes only, of the values in the table:"]
    for column in changed[:_MOST_COLUMNS]:
        counts = {"empty": column.empty, "not as declared": column.unknown}
        counts |= {"below the range": column.below, "above the range": column.above}
        listed = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        lines.append(f"  {common.shown(column.name)}: {listed}")
    if len(changed) > _MOST_COLUMNS:
        lines.append(f"  and {len(changed) - _MOST_COLUMNS} more columns: see epsteps schema check")
    lines.append("A fit moves them inside. If that is a mistake in the file or the schema, correct it first.\n")
    return "\n".join(lines)


def _require_hope(planned: es.Plan) -> None:
    """Refuse a plan whose model is expected to be noise, before anybody is asked and anything charged."""
    try:
        planned.utility.require_hope()
    except es.HopelessError as error:
        raise es.HopelessError(str(error).replace("anyway=True", "--anyway")) from None


def _run(
    planned: es.Plan,
    declared: Schema,
    table: Any,
    seed: int | None,
    account: CommandAccount | None,
    anyway: bool,
    per_person: int,
) -> tables.Model:
    """Run behind a progress bar that counts the answers of the plan, which are public."""
    from epsteps import tables
    from epsteps.ledger.books import OfPerson

    with common.progress_bar("fit", planned.requests) as advance:
        payer = account if account is None or per_person == 1 else OfPerson(account, per_person)
        options = {"seed": seed, "ledger": payer, "on_step": _counted(advance), "anyway": anyway}
        options |= {"per_person": per_person}
        return tables.fit_model(planned, declared, table, **options)


def _counted(advance: Callable[[int], None]) -> Callable[[int], None]:
    """Return what hears of the number of finished answers, and tells of the new ones."""
    done = 0

    def heard(finished: int) -> None:
        nonlocal done
        advance(finished - done)
        done = finished

    return heard


def _summary(content: dict[str, Any], out: Path, evaluation: tables.Evaluation | None) -> str:
    promised, of_one = content.get("person", content["certificate"]), ", of one record" if "person" in content else ""
    lines = [f"Guarantee: {promised['guarantee']}; spent {promised['spent']:.6g}."]
    if (in_all := content["certificate"].get("in_all")) is not None:
        lines.append(f"With what was bought for its schema before: {in_all:.6g} in all{of_one}.")
    lines += [] if evaluation is None else [f"Private scores on the rows held out:\n{evaluation}"]
    if content["scores"] is not None:
        scores = {name: value for name, value in content["scores"].items() if name != "note"}
        texts = (f"{name} {'–' if value is None else format(value, '.4g')}" for name, value in scores.items())
        lines.append("Unprotected scores: " + ", ".join(texts) + ".")
        lines.append(content["scores"]["note"])
    if content["ledger"] is not None:
        lines.append(f"Charged to {content['ledger']['dataset']} in {content['ledger']['file']}.")
    return "\n".join([*lines, f"Wrote {out / MODEL} and {out / REPORT}."])


ModelFile = Annotated[Path, Argument(metavar="MODEL", help="Folder that epsteps fit wrote.", show_default=False)]


def intervals(
    model: ModelFile,
    level: float | None = Option(None, help="From 0.5 to 0.99; by default that of the fit, or 0.95."),
    target: Literal["population", "sample"] | None = Option(
        None, help="What is covered: the population's minimum, or that of the records, which noise alone hides."
    ),
    contrasts: Literal["levels"] | None = Option(
        None, help="levels: each against the mean of its category's levels, which is all that records tell of them."
    ),
    json: bool = Option(False, "--json", help="Print them as JSON instead of a table."),
) -> None:
    """Print intervals for the effects of a model, of any level: from what was published, at no price."""
    fitted = _loaded(model)
    found = fitted.intervals(level, target, contrasts)
    common.answer(found.to_dict(), common.shown_lines(str(found)), as_json=json)


def predict(
    model: ModelFile,
    data: common.TableFile,
    proba: bool = Option(False, "--proba", help="Add the probability of each class."),
    id: str | None = Option(
        None, "--id", help="A column of the table that names its rows: it stands first in the output."
    ),
    delimiter: common.Delimiter = "comma",
    encoding: common.Encoding = "utf-8",
    out: Path | None = Option(None, help="Write to this .csv file instead of the screen."),
    force: common.Force = False,
) -> None:
    """Predict the target for each row of a table, which needs the model's columns but not the target.

    Predictions for private records tell about those records, whatever the model's guarantee.
    """
    from epsteps import tables

    files.require_free([out], force)
    fitted = _loaded(model)
    schema, how = fitted.schema, {"delimiter": common.DELIMITERS[delimiter], "encoding": encoding}
    table = schema.load_features(data, **how)
    header, columns = [str(schema.target)], [fitted.predict(table)]
    if id is not None:
        header.insert(0, id)
        columns.insert(0, tables.read_columns(data, [id], **how)[id])
    if proba:
        columns += list(fitted.probabilities(table).T)
        header += [f"{schema.target}={label}" for label in fitted.classes or ()]
    text = _csv(header, columns)
    if out is None:
        typer.echo(text, nl=False)
        return
    files.write(out, text, force=force)
    common.say(f"Wrote {len(columns[0])} predictions to {out}.")


def _loaded(path: Path) -> tables.Model:
    """Return a model, and say if it is not private."""
    from epsteps import tables

    fitted = tables.load_model(path)
    if fitted.seeded:
        typer.echo("NOT PRIVATE: the model was fitted with a seed.", err=True)
    return fitted


def _csv(header: list[str], columns: list[np.ndarray]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(*(column.tolist() for column in columns), strict=True))
    return text.getvalue()
