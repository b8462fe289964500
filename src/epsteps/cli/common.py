"""What the commands share: clean errors, and options that turn into public objects."""

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import epsteps as es
from epsteps.bounds.steps import Method
from epsteps.budgets import Budget


class LossName(StrEnum):
    """Losses on the command line."""

    logistic = "logistic"
    squared = "squared"


class MethodName(StrEnum):
    """Methods on the command line."""

    gd = "gd"
    heavy_ball = "heavy-ball"
    nesterov = "nesterov"
    multistage = "multistage"
    restarted_nesterov = "restarted-nesterov"

    @property
    def function(self) -> Method:
        """The method itself."""
        return getattr(es, self.name)


class AllocationName(StrEnum):
    """Allocations on the command line."""

    optimal = "optimal"
    uniform = "uniform"


class MechanismName(StrEnum):
    """Noise on the command line."""

    auto = "auto"
    laplace = "laplace"
    l2 = "l2"
    linf = "linf"
    blocks = "blocks"
    hull = "hull"
    gaussian = "gaussian"
    ellipsoid = "ellipsoid"


class EngineName(StrEnum):
    """Engines on the command line."""

    auto = "auto"
    numpy = "numpy"
    fast = "fast"
    gpu = "gpu"
    dask = "dask"


class ObjectiveName(StrEnum):
    """What predicts the error, on the command line."""

    bound = "bound"
    exact = "exact"


class NormName(StrEnum):
    """Norms on the command line."""

    one = "1"
    two = "2"
    inf = "inf"

    @property
    def number(self) -> float:
        """The norm as a number."""
        return math.inf if self is NormName.inf else int(self.value)


def clean_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn expected errors into one line and an exit code.

    2 for a wrong argument; 1 for a missing thing, or a budget that does not cover what was asked for.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (OSError, es.MissingExtraError, es.BudgetExceededError) as error:
            raise _ended(str(error), 1) from None
        except (ValueError, TypeError) as error:
            raise _ended(str(error), 2) from None
        except (ArithmeticError, MemoryError, RecursionError) as error:
            raise _ended(f"the numbers are too large or too small to compute with ({error!r}).", 2) from None

    return wrapped


def _ended(message: str, code: int) -> typer.Exit:
    """Say on one line what is wrong, and return what ends the command."""
    typer.echo(f"Error: {' '.join(message.split())}", err=True)
    return typer.Exit(code)


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show progress on a terminal, and nothing in a pipe; yields a function that is told of finished work."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<12}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(description, total=total)
        yield lambda steps: progress.advance(task, steps)


def make_budget(epsilon: float, delta: float | None, rho: float | None) -> Budget:
    """Return the budget that the options declare."""
    if rho is not None:
        if delta is not None:
            raise ValueError("--rho and --delta do not go together: a budget is epsilon, epsilon with delta, or rho.")
        return es.Concentrated(rho)
    return es.Pure(epsilon) if delta is None else es.Approximate(epsilon, delta)


def make_loss(name: LossName, classes: str, target_bound: float) -> es.Logistic | es.Squared:
    """Return the loss that the options declare."""
    if name is LossName.squared:
        return es.Squared(target_bound)
    labels = [float(label) for label in classes.split(",")]
    if len(labels) != 2:
        raise ValueError(f"--classes must be two numbers with a comma, such as 0,1; got {classes!r}.")
    return es.Logistic((labels[0], labels[1]))


def make_problem(
    loss: LossName, target_bound: float, radius: float, norm: NormName, *, classes: str = "-1,1", **facts: Any
) -> es.Problem:
    """Return the problem that the options declare; ``facts`` are those of ``Problem`` itself."""
    return es.Problem(make_loss(loss, classes, target_bound), es.Ball(radius, norm=norm.number), **facts)


def shown(text: str) -> str:
    """Return text that cannot steer a terminal."""
    return text if text.isprintable() else ascii(text)


def print_table(table: Table) -> None:
    """Print a table, wide enough for a pipe, which has no width."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)
