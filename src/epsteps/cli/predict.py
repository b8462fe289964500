"""``epsteps predict``: a fitted model on a table."""

import csv
import io
from pathlib import Path

import numpy as np
import typer

from epsteps import tables
from epsteps.cli import files
from epsteps.cli.common import clean_errors
from epsteps.cli.schema import DelimiterName


@clean_errors
def predict(
    model: Path = typer.Argument(..., metavar="MODEL", help="Folder that epsteps fit wrote.", show_default=False),
    data: Path = typer.Argument(..., metavar="DATA", help="The table: a .csv or .parquet file.", show_default=False),
    proba: bool = typer.Option(False, "--proba", help="Add the probability of each class."),
    delimiter: DelimiterName = typer.Option(DelimiterName.comma, help="What stands between the fields of a .csv."),
    out: Path | None = typer.Option(None, help="Write to this .csv file instead of the screen."),
    force: bool = files.FORCE,
) -> None:
    """Predict the target for each row of a table, which needs the model's columns but not the target.

    Predictions for private records tell about those records, whatever the model's guarantee.
    """
    if out is not None:
        files.require_free([out], force)
    fitted = tables.load_model(model)
    if fitted.seeded:
        typer.echo("NOT PRIVATE: the model was fitted with a seed.", err=True)
    schema = fitted.schema
    table = schema.load_features(data, delimiter=delimiter.character)
    header, columns = [str(schema.target)], [fitted.predict(table)]
    if proba:
        probabilities = fitted.probabilities(table)
        header += [f"{schema.target}={label}" for label in fitted.classes or ()]
        columns += list(probabilities.T)
    text = _written(header, columns)
    if out is None:
        typer.echo(text, nl=False)
        return
    files.write(out, text, force=force)
    typer.echo(f"Wrote {len(columns[0])} predictions to {out}.")


def _written(header: list[str], columns: list[np.ndarray]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(*(column.tolist() for column in columns), strict=True))
    return text.getvalue()
