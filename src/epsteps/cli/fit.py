"""``epsteps fit`` and ``epsteps predict``: from a table and its schema to a private model and its report, and on."""

import csv
import io
import json as json_module
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from typer import Argument, Option

import epsteps as es
from epsteps import tables
from epsteps.budgets.budget import Price
from epsteps.cli import common
from epsteps.cli import common as files
from epsteps.tables import Schema, SchemaCheck

MODEL, REPORT = "model.json", "report.html"
_MOST_COLUMNS = 12


def fit(
    data: common.TableFile,
    schema: Annotated[Path, Option(help="What is declared of its columns: a .toml file.", show_default=False)],
    epsilon: Annotated[float, Option(help="Privacy budget, for one record replaced.", show_default=False)],
    target: str | None = Option(None, help="The column to predict, if the schema does not name it."),
    delta: float | None = Option(None, help="Makes the budget (epsilon, delta) instead of pure epsilon."),
    ridge: float = Option(1e-4, help="Ridge: mean loss + ridge/2 |x|^2, for features scaled to [0, 1]."),
    release: Literal["final", "iterates"] = Option("final", help="Publish the model alone, or every point on the way."),
    method: Literal[
        "auto", "adaptive", "objective", "output", "statistics", "sequential", "curvature", "descent"
    ] = Option("auto", help="auto is the most accurate one for the release."),
    intervals: common.Intervals = None,
    robust: common.Robust = False,
    ledger: Path | None = Option(None, help="Charge this ledger before noise is drawn; see epsteps ledger."),
    dataset: str | None = Option(None, help="The ledger's name for these records; goes with --ledger."),
    hold_out: float | None = Option(
        None, help="Keep this share of the rows out of the fit, and evaluate the model on them, privately."
    ),
    split_seed: int = Option(0, help="Public seed of the split, with --hold-out: it protects nothing."),
    test: Path | None = Option(None, help="Score on this table of other records, which it does not protect."),
    delimiter: common.Delimiter = "comma",
    seed: int | None = Option(None, help="Makes the fit repeatable and NOT private: for experiments."),
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
    declared = _with_target(Schema.read(schema), target)
    budget = es.Pure(epsilon) if delta is None else es.Approximate(epsilon, delta)
    charged = account_of(ledger, dataset)
    paths = [out / name for name in (MODEL, REPORT)]
    files.require_free(paths, force)
    table, tested = _tables(declared, data, test, common.DELIMITERS[delimiter])
    say = partial(typer.echo, err=json)
    n = _rows_of(table)
    training, others = (np.arange(n), None) if hold_out is None else tables.split(n, hold_out, split_seed)
    problem = tables.problem_of(declared, len(training), ridge)
    replan = partial(es.plan, problem, method=method, release=release, **common.inference(intervals, robust))
    planned = replan(budget)
    say(f"{planned}\n")
    if others is not None:
        say(f"{tables.evaluation_plan(tables.rehearsal(planned, declared), len(others), budget)}\n")
        say(f"No record is in both parts, of {len(training)} and {len(others)} rows: both cost {budget}, together.\n")
    if seed is not None:
        say("NOT PRIVATE: a seed makes the noise repeatable. The model must be kept as secret as the records.\n")
    if sys.stdout.isatty() and not json:
        typer.echo(_projected(declared.check(table)))
    if seed is None and not anyway:
        _require_hope(planned)
    require_consent(yes, json)
    described = partial(_described, tables.error_curve(budget, replan), tested)
    rehearsed = described(tables.rehearsal(planned, declared), None, None)
    tables.page(rehearsed)  # what cannot be described is found out before anything is charged
    with files.opened(paths, force) as outputs:
        fitted = partial(_fitted, planned, declared, table, seed, anyway)
        if hold_out is None:
            model, evaluation = fitted(training, charged), None
        else:
            model, evaluation = tables.fit_held_out(
                fitted,
                partial(_part, table),
                tables.rehearsal(planned, declared),
                n,
                planned.spending(),
                budget,
                hold_out=hold_out,
                split_seed=split_seed,
                ledger=charged,
                seed=seed,
                anyway=anyway,
            )
        content = described(model, None if charged is None else charged.described, evaluation)
        text = json_module.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
        save(outputs, text, content)
    typer.echo(text if json else _summary(content, out, evaluation))


def _fitted(
    planned: es.Plan, declared: Schema, table: Any, seed: int | None, anyway: bool, places: np.ndarray, account: Any
) -> tables.Model:
    """Fit these rows of a table, charging this account."""
    return _run(planned, declared, _part(table, places), seed, account, anyway)


def _rows_of(table: Any) -> int:
    return len(next(iter(table.values())))


def _part(table: Any, places: np.ndarray) -> dict[str, Any]:
    """Return these rows of a table."""
    return {name: np.asarray(column)[places] for name, column in table.items()}


def _described(
    curve: list[tuple[float, float]],
    tested: Any,
    model: tables.Model,
    ledger: dict[str, Any] | None,
    evaluation: tables.Evaluation | None,
) -> dict[str, Any]:
    """Return the content of model.json."""
    return tables.model_to_dict(
        model,
        curve=curve,
        ledger=ledger,
        scores=None if tested is None else tables.unprotected_scores(model, tested),
        evaluation=None if evaluation is None else evaluation.to_dict(),
        made={"by": f"epsteps {es.__version__}", "on": datetime.now(UTC).date().isoformat()},
    )


def save(outputs: list[files.Output], text: str, content: dict[str, Any]) -> None:
    """Write the model, which was paid for, and then its report.

    If the model cannot be written after all, on a disk that is full, it is printed. A report is made anew from it.
    """
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


class _Account:
    """An account that remembers the entry of its charge."""

    def __init__(self, path: Path, dataset: str) -> None:
        self._ledger, self._dataset = es.Ledger(path), dataset
        self._ledger.account(dataset)  # raises if there is none
        self.described: dict[str, Any] | None = None

    def charge(self, cost: Price, *, note: str = "", key: str | None = None) -> None:
        """Charge the dataset, durably, or raise."""
        entry = self._ledger.charge(self._dataset, cost, note=note, key=key)
        facts = {name: getattr(entry, name) for name in ("dataset", "seq", "time", "terms", "note", "hash")}
        self.described = {"file": self._ledger.path.name, **facts}


def account_of(path: Path | None, dataset: str | None) -> _Account | None:
    """Return the account that two options name together, or None without them."""
    if (path is None) != (dataset is None):
        missing = "--dataset" if dataset is None else "--ledger"
        raise ValueError(f"--ledger and --dataset go together: add {missing}.")
    return None if path is None or dataset is None else _Account(path, dataset)


def _with_target(declared: Schema, target: str | None) -> Schema:
    if target is None:
        if declared.target is None:
            raise ValueError("no target: name the column to predict with --target, or in the schema, target = ...")
        return declared
    if declared.target not in (None, target):
        raise ValueError(
            f"--target is {target!r}, but the schema's target is {declared.target!r}: leave --target out, or remove "
            "the target from the schema, which makes that column a feature."
        )
    return declared.with_target(target)


def _tables(declared: Schema, data: Path, test: Path | None, delimiter: str) -> tuple[Any, Any]:
    """Read the table, and that of the test, before anything is spent."""
    if test is not None and data.exists() and test.exists() and data.samefile(test):
        raise ValueError(
            f"--test is the table of the fit, {data}: scores of its records would be unprotected, and too good. "
            "Hold some records out, in another file."
        )
    table = declared.load(data, delimiter=delimiter)
    return table, None if test is None else declared.load(test, delimiter=delimiter)


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
    planned: es.Plan, declared: Schema, table: Any, seed: int | None, account: _Account | None, anyway: bool
) -> tables.Model:
    """Run behind a progress bar that counts the answers of the plan, which are public."""
    with common.progress_bar("fit", planned.requests) as advance:
        options = {"seed": seed, "ledger": account, "on_step": _counted(advance), "anyway": anyway}
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
    lines = [f"Guarantee: {content['certificate']['guarantee']}; spent {content['certificate']['spent']:.6g}."]
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
    fitted = tables.load_model(model)
    if fitted.seeded:
        typer.echo("NOT PRIVATE: the model was fitted with a seed.", err=True)
    found = fitted.intervals(level, target, contrasts)
    common.answer(found.to_dict(), common.shown_lines(str(found)), as_json=json)


def predict(
    model: ModelFile,
    data: common.TableFile,
    proba: bool = Option(False, "--proba", help="Add the probability of each class."),
    delimiter: common.Delimiter = "comma",
    out: Path | None = Option(None, help="Write to this .csv file instead of the screen."),
    force: common.Force = False,
) -> None:
    """Predict the target for each row of a table, which needs the model's columns but not the target.

    Predictions for private records tell about those records, whatever the model's guarantee.
    """
    files.require_free([out], force)
    fitted = tables.load_model(model)
    if fitted.seeded:
        typer.echo("NOT PRIVATE: the model was fitted with a seed.", err=True)
    schema = fitted.schema
    table = schema.load_features(data, delimiter=common.DELIMITERS[delimiter])
    header, columns = [str(schema.target)], [fitted.predict(table)]
    if proba:
        columns += list(fitted.probabilities(table).T)
        header += [f"{schema.target}={label}" for label in fitted.classes or ()]
    text = _csv(header, columns)
    if out is None:
        typer.echo(text, nl=False)
        return
    files.write(out, text, force=force)
    typer.echo(f"Wrote {len(columns[0])} predictions to {out}.")


def _csv(header: list[str], columns: list[np.ndarray]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(*(column.tolist() for column in columns), strict=True))
    return text.getvalue()
