"""What the commands share: options, how these turn into public objects, clean errors, and how results are printed."""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from typer import Argument, Option

import epsteps as es
from epsteps.cli.words import flags_of, in_words

# Here and in every file of commands the library is imported where it is used: help and completion do not wait for it.
if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from epsteps.bounds.steps import Method
    from epsteps.budgets import Budget

# Losses by their names on the command line, and in the library.
LOSSES = {
    "logistic": "Logistic",
    "capped-logistic": "CappedLogistic",
    "half-exponential": "HalfExponential",
    "smoothed-hinge": "SmoothedHinge",
    "softmax": "Softmax",
    "squared": "Squared",
    "pseudo-huber": "PseudoHuber",
}
LossName = Literal[
    "logistic", "capped-logistic", "half-exponential", "smoothed-hinge", "softmax", "squared", "pseudo-huber"
]
# Those of them with a number of their own, by its name.
_SHAPED = {"capped-logistic": "cap", "smoothed-hinge": "width", "pseudo-huber": "c"}
# Labels where none are declared, if they are not -1 and 1.
_CLASSES = {"softmax": "0,1,2"}
MethodName = Literal["gd", "heavy-ball", "nesterov", "multistage", "restarted-nesterov"]
AnyMethod = Literal[
    "nesterov", "gd", "heavy-ball", "multistage", "restarted-nesterov",
    "auto", "adaptive", "objective", "output", "statistics", "sequential", "curvature", "descent", "clipped",
]  # fmt: skip
NormName = Literal["1", "2", "inf"]

# Options that several commands have, with the same words; what is not here belongs to one command.
Delta = Annotated[float | None, Option(help="Makes the budget (epsilon, delta), with Gaussian noise.")]
Rho = Annotated[float | None, Option(help="A budget of rho (zero-concentrated privacy) instead of epsilon.")]
Features = Annotated[int, Option(help="Number of features.")]
Loss = Annotated[LossName, Option(help="Loss of the linear model.")]
LossShape = Annotated[
    float | None,
    Option(help="Cap of capped-logistic, width of smoothed-hinge, c of pseudo-huber; the loss's own by default."),
]
Classes = Annotated[
    str | None,
    Option(help="Declared labels of the target, with commas.  [default: -1,1; of softmax 0,1,2]", show_default=False),
]
TargetBound = Annotated[float, Option(help="Squared loss and pseudo-huber: targets lie within this bound of 0.")]
Norm = Annotated[NormName, Option(help="Norm of that bound.")]
Ridge = Annotated[float, Option(help="Ridge: F = mean loss + ridge/2 |x|^2.")]
Intercept = Annotated[bool, Option("--intercept", help="Add an intercept.")]
Method_ = Annotated[
    AnyMethod | None,
    Option(
        "--method",
        help="Steps of the paper, or a method that makes its own choices; auto is the most accurate one for the "
        "release, and meant where none is named.",
        show_default=False,
    ),
]
Release = Annotated[
    Literal["final", "iterates"] | None,
    Option("--release", help="Publish the model alone, or every point on the way.", show_default=False),
]
Batch = Annotated[int | None, Option("--batch", "--m", help="Records per step; all by default.")]
StepFactor = Annotated[float, Option(help="The step size is c/L.")]
Intervals = Annotated[
    float | None,
    Option("--intervals", help="Buy intervals of this level for the coefficients, such as 0.95."),
]
Robust = Annotated[
    bool, Option("--robust", help="With --intervals: let the records say how much samples vary, not the model.")
]
TableFile = Annotated[Path, Argument(metavar="DATA", help="The table: a .csv or .parquet file.", show_default=False)]
Delimiter = Annotated[Literal["comma", "semicolon", "tab"], Option(help="What stands between the fields of a .csv.")]
Encoding = Annotated[
    Literal["utf-8", "latin-1"], Option(help="How a .csv writes letters: latin-1 is that of older spreadsheets.")
]
InsteadOfScreen = Annotated[Path | None, Option(help="Write to this file instead of the screen.")]
Force = Annotated[
    bool, Option("--force", help="Replace files that are there already (never a ledger or a checkpoint).")
]

# Seconds that a pass over the records takes before there is a line for it.
_LONG = 1.0
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t"}


_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
Quiet = Annotated[bool, Option("--quiet", "-q", help="No remarks and no progress: results and errors only.")]


class Commands(typer.Typer):
    """Commands whose expected errors are one line and an exit code, with -h and --quiet.

    2 is for a wrong argument; 1 for a missing thing, or a budget that does not cover what was asked for.
    """

    def __init__(self, name: str, help: str, **options: Any) -> None:
        super().__init__(
            name=name,
            help=help,
            short_help=help,  # which is not cut off in a list of commands
            no_args_is_help=True,
            rich_markup_mode=None,
            context_settings={"help_option_names": ["-h", "--help"]},
            **options,
        )

    def command(self, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return what makes a function a command of this name, or of its own."""
        register = super().command

        def registered(function: Callable[..., None]) -> Callable[..., None]:
            summary = (inspect.getdoc(function) or "").split("\n")[0]
            return register(name, short_help=summary)(_as_command(function))

        return registered


def _as_command(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function with ``--quiet``, and with errors in the words of its own options."""
    signature = inspect.signature(function, eval_str=True)
    quiet = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet)
    flags = flags_of(signature)

    @functools.wraps(function)
    def command(*args: Any, quiet: bool = False, **kwargs: Any) -> None:
        token = _QUIET.set(quiet)
        try:
            function(*args, **kwargs)
        except (OSError, es.MissingExtraError, es.BudgetExceededError) as error:
            raise _ended(str(error), 1, flags) from None
        except (ValueError, TypeError) as error:
            raise _ended(str(error), 2, flags) from None
        except (ArithmeticError, MemoryError, RecursionError) as error:
            raise _ended(f"the numbers are too large or too small to compute with ({error!r}).", 2, flags) from None
        finally:
            _QUIET.reset(token)

    parameters = [*signature.parameters.values(), quiet]
    command.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _ended(message: str, code: int, flags: dict[str, str]) -> typer.Exit:
    """Say on one line what is wrong, and return what ends the command."""
    typer.echo(f"Error: {' '.join(in_words(message, flags).split())}", err=True)
    return typer.Exit(code)


def is_quiet() -> bool:
    """Return whether remarks are unwanted."""
    return _QUIET.get()


def say(text: str, *, err: bool = False) -> None:
    """Print a remark, which is not what a command was called for."""
    if not is_quiet():
        typer.echo(text, err=err)


def make_budget(epsilon: float, delta: float | None, rho: float | None) -> Budget:
    """Return the budget that the options declare."""
    if rho is not None:
        if delta is not None:
            raise ValueError("--rho and --delta do not go together: a budget is epsilon, epsilon with delta, or rho.")
        return es.Concentrated(rho)
    return es.Pure(epsilon) if delta is None else es.Approximate(epsilon, delta)


def make_problem(
    loss: LossName,
    target_bound: float,
    radius: float,
    norm: NormName,
    *,
    classes: str | None = None,
    loss_shape: float | None = None,
    **facts: Any,
) -> es.Problem:
    """Return the problem that the options declare; ``facts`` are those of ``Problem`` itself."""
    domain = es.Ball(radius, norm=math.inf if norm == "inf" else int(norm))
    return es.Problem(make_loss(loss, target_bound, classes, loss_shape), domain, **facts)


def make_loss(name: LossName, target_bound: float, classes: str | None, shape: float | None) -> es.Loss:
    """Return the loss that the options declare."""
    kind = getattr(es, LOSSES[name])
    if shape is not None and name not in _SHAPED:
        raise ValueError(f"--loss-shape is for {', '.join(_SHAPED)}, not for {name}: leave it out, got {shape!r}.")
    declared = {} if shape is None else {_SHAPED[name]: shape}
    if name in ("squared", "pseudo-huber"):
        if classes is not None:
            raise ValueError(f"--classes are for losses of labels, not for {name}: leave them out, got {classes!r}.")
        return kind(target_bound, **declared)
    labels = _labels(_CLASSES.get(name, "-1,1") if classes is None else classes)
    if name != "softmax" and len(labels) != 2:
        raise ValueError(f"--classes must be two numbers with a comma, such as 0,1; got {classes!r}.")
    return kind(labels, **declared)


def _labels(classes: str) -> tuple[float, ...]:
    try:
        return tuple(float(label) for label in classes.split(","))
    except ValueError:
        raise ValueError(f"--classes must be numbers with commas, such as 0,1; got {classes!r}.") from None


def inference(intervals: float | None, robust: bool) -> dict[str, Any]:
    """Return what ``epsteps.plan`` is told of intervals: nothing where nothing is asked for."""
    return ({} if intervals is None else {"intervals": intervals}) | ({"robust": True} if robust else {})


def method_named(name: AnyMethod | None) -> Method | str | None:
    """Return the method of this name on the command line: a function of the paper's, or a name that planning knows."""
    from epsteps.methods.options import PAPER

    return None if name is None else PAPER.get(name.replace("-", "_"), name)


def require_published(method: AnyMethod | None, release: str | None, *, is_said: bool) -> None:
    """Raise unless a method or a release is named, or something else says what is published."""
    if method is None and release is None and not is_said:
        raise ValueError(
            "what is published? Add --release final (the last model alone, which is the most accurate), --release "
            "iterates (every point on the way), or a method, such as --method nesterov for the paper's steps."
        )


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show progress on a terminal, and nothing in a pipe; yields a function that is told of finished work.

    While a pass over the records takes long, a second line shows how much of them it has read; it does not stay.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from epsteps.data.chunks import watching

    console = Console(stderr=True)
    shown = console.is_terminal and not is_quiet()
    columns = (TextColumn("{task.description:<15}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not shown) as progress:
        task = progress.add_task(description, total=total)
        reading = progress.add_task("reading records", total=1.0, visible=False)
        try:
            with watching(_shows(progress, reading) if shown else None):
                yield lambda steps: progress.advance(task, steps)
        finally:
            progress.remove_task(reading)


def _shows(progress: Progress, reading: TaskID) -> Callable[[float], None]:
    """Return what hears of the share that a pass has read, and shows it from the first pass on that takes long."""
    begun, last = 0.0, 1.0

    def heard(share: float) -> None:
        nonlocal begun, last
        if share <= last:  # another pass
            begun = monotonic()
            progress.reset(reading)
        last = share
        progress.update(reading, completed=share, visible=True if monotonic() - begun >= _LONG else None)

    return heard


def shown(text: str) -> str:
    """Return text that cannot steer a terminal."""
    return text if text.isprintable() else ascii(text)


def shown_lines(text: str) -> str:
    """Return lines that cannot steer a terminal."""
    return "\n".join(map(shown, text.split("\n")))


def make_table(*headings: str) -> Table:
    """Return a table with these columns; those that begin with > are set to the right."""
    table = Table()
    for heading in headings:
        table.add_column(heading.lstrip(">"), justify="right" if heading.startswith(">") else "left")
    return table


def print_table(table: Table) -> None:
    """Print a table, wide enough for a pipe, which has no width."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)


def print_json(value: Any) -> None:
    """Print plain data as JSON."""
    typer.echo(json.dumps(value, indent=1))


def answer(value: Any, text: str, *, as_json: bool) -> None:
    """Print plain data as JSON, or else the text that says the same."""
    print_json(value) if as_json else typer.echo(text)


class Output:
    """A file of this name, to be written once: until then it is another one beside it, which is there already.

    Whoever else wants to write the same file finds that one, and is refused. Devices and pipes are written to as they
    are: they are never replaced.
    """

    def __init__(self, path: Path) -> None:
        from epsteps.ledger import databases

        self.path = databases.real_path(path)
        self._part = self.path.with_name(f".{self.path.name}.part")
        if _is_device(self.path):
            self._part, self._file = self.path, self.path.open("wb")
            return
        try:
            self._file = self._part.open("xb")
        except FileExistsError:
            raise FileExistsError(
                f"{path} is being written: {self._part} is there. Wait, or remove that file if no command is running."
            ) from None

    def write(self, text: str) -> None:
        """Put the whole text in its place at once, durably. What UTF-8 does not know is written as JSON writes it."""
        with self._file as file:
            file.write(text.encode("utf-8", errors="backslashreplace"))
            file.flush()
            with suppress(OSError):  # devices have nothing to make durable
                os.fsync(file.fileno())
        if self._part != self.path:
            os.replace(self._part, self.path)

    def discard(self) -> None:
        """Leave nothing behind, if nothing was written."""
        with suppress(OSError):
            self._file.close()
        if self._part != self.path:
            self._part.unlink(missing_ok=True)


def require_free(paths: Sequence[Path | None], force: bool, *, never: Path | None = None) -> None:
    """Raise if one of the files is there already, and is not to be replaced, or cannot be; best asked before long work.

    None stands for the screen, which is always free.

    Formal guarantee: with ``force`` or without, no file of SQLite that is a ledger or a checkpoint is replaced, and
    neither is ``never``, whatever names they go by.
    """
    for path in filter(None, paths):
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder: name another place with --out, or remove it first.")
        if _holds_state(path, never):
            raise FileExistsError(
                f"{path} holds spent budget or secret noise (a ledger, a checkpoint, or a file beside one): it is "
                "never replaced. Name another file."
            )
        if not force and os.path.lexists(path) and not _is_device(path):
            raise FileExistsError(
                f"{path} exists, and was left as it is. Name another place with --out, or replace it with --force."
            )


def _is_device(path: Path) -> bool:
    """Whether something is there that is no file: a terminal, a pipe."""
    return path.exists() and not path.is_file()


def _holds_state(path: Path, never: Path | None) -> bool:
    """Whether this is a ledger, a checkpoint or a file beside one."""
    from epsteps.ledger import databases

    file = databases.real_path(path)
    if never is not None and file.exists() and never.exists() and os.path.samefile(file, never):
        return True
    owners = [file.with_name(file.name.removesuffix(end)) for end in databases.SIDECARS if file.name.endswith(end)]
    return any(owner.is_file() and _is_state(owner) for owner in (file, *owners))


def _is_state(path: Path) -> bool:
    """Whether this holds spent budget, secret noise or answers that were paid for."""
    from epsteps.ledger import databases

    states = (databases.LEDGER, databases.CHECKPOINT, databases.SERVICE)
    try:
        return path.stat().st_size > 0 and databases.application_id(path) in states
    except sqlite3.Error:
        return False


@contextmanager
def opened(paths: Sequence[Path], force: bool, *, never: Path | None = None) -> Iterator[list[Output]]:
    """Open files, and their folders, for what is written later; leave nothing behind of what is not."""
    require_free(paths, force, never=never)
    made: list[Path] = []
    outputs: list[Output] = []
    try:
        for path in paths:
            made += _make_folder(path.parent)
            outputs.append(Output(path))
        yield outputs
    finally:
        for output in outputs:
            output.discard()
        for folder in reversed(made):
            with suppress(OSError):  # something was written to it
                folder.rmdir()


def write(path: Path, text: str, *, force: bool, never: Path | None = None) -> None:
    """Write one file, whole or not at all."""
    with opened([path], force, never=never) as (output,):
        output.write(text)


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder, and return those that were not there before, the outermost first."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing[::-1]
