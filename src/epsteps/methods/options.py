"""What planning may be told: every option with its type, and refusals in the words of the function that was called."""

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from epsteps.bounds.steps import Method, gd, heavy_ball, multistage, nesterov, restarted_nesterov
from epsteps.budgets import Expense
from epsteps.budgets.budget import is_budget
from epsteps.problem.problem import Problem

if TYPE_CHECKING:
    import numpy as np

RELEASES = ("final", "iterates")
# What each method publishes.
METHODS = {
    "adaptive": "final",
    "objective": "final",
    "output": "final",
    "statistics": "final",
    "sequential": "iterates",
    "curvature": "iterates",
    "descent": "iterates",
    "clipped": "iterates",
}
# The paper's methods, which are functions, by the names that people may write instead.
PAPER: dict[str, Method] = {
    method.__name__: method for method in (gd, heavy_ball, nesterov, multistage, restarted_nesterov)
}
# What the literature, and earlier versions, call some options.
_ALIASES = {"T": "iterations", "steps": "iterations", "m": "batch", "batch_size": "batch", "noise": "mechanism"}
# What is declared elsewhere.
_ELSEWHERE = {
    "epsilon": "the budget, epsteps.Pure(epsilon)",
    "delta": "the budget, epsteps.Approximate(epsilon, delta)",
    "rho": "the budget, epsteps.Concentrated(rho)",
    "ridge": "the problem",
    "clip": "the problem",
    "smoothness": "the problem",
    "L": "the problem, as smoothness",
    "n": "the problem",
    "d": "the problem",
    "seed": "epsteps.run",
    "ledger": "epsteps.run",
}

# Texts are checked when they are used: a variable of type str is no error to a type checker.
MechanismName = Literal["auto", "laplace", "l2", "linf", "blocks", "hull", "gaussian", "ellipsoid"] | str


class NoiseOptions(TypedDict, total=False):
    """What every method but "adaptive" takes."""

    mechanism: MechanismName


class StepsOptions(NoiseOptions, total=False):
    """What the paper's steps and "descent" take: see ``methods.steps.plan_steps``."""

    allocation: Literal["optimal", "uniform"] | str
    iterations: int | Literal["auto"] | str
    max_iterations: int
    batch: int | None
    sensitivity: Literal["auto", "global", "state"] | str
    objective: Literal["bound", "exact", "typical"] | str
    spectrum: "Sequence[float] | np.ndarray | None"
    start_shares: "Sequence[float] | np.ndarray | None"
    start_gap: float
    c: float
    expenses: Sequence[Expense]


class MinimumOptions(NoiseOptions, total=False):
    """What methods take that find minima: "objective", and of these ``shares`` "sequential" as well."""

    shares: Sequence[float] | None
    intervals: float | bool | None
    robust: bool


class PlanOptions(StepsOptions, MinimumOptions, total=False):
    """What some method takes."""


# The one place that knows all names: those of the types above.
NAMES = tuple(PlanOptions.__annotations__)
_INFERENCE = ("intervals", "robust")
# What tells the names of a method's options.
Known = Callable[[Any], Collection[str]]


def require_inputs(function: str, problem: object, budget: object = None, *, budgeted: bool = True) -> None:
    """Raise unless these are a problem and a budget."""
    if not isinstance(problem, Problem):
        raise TypeError(f"{function} needs a problem first, epsteps.Problem(...), got {_shown(problem)}.")
    if budgeted and not is_budget(budget):
        amount = f"({budget!r})" if isinstance(budget, int | float) and not isinstance(budget, bool) else "(1.0)"
        raise TypeError(
            f"{function} needs a budget: epsteps.Pure{amount} for pure epsilon, epsteps.Approximate(epsilon, delta) or "
            f"epsteps.Concentrated(rho), got {_shown(budget)}."
        )


def require_method(function: str, method: object, release: str | None, options: Mapping[str, Any]) -> None:
    """Raise unless a method or a release is named, and they go together.

    Intervals name the one method that buys them.
    """
    if release is not None and release not in RELEASES:
        raise ValueError(f"release must be one of {', '.join(map(repr, RELEASES))}, got {release!r}.")
    if method is None:
        if release is None and options.get("intervals") in (None, False):
            raise TypeError(
                f"{function} needs to know what is published: pass release='final' for the last model alone, which is "
                "the most accurate, release='iterates' for every point on the way, or a method, such as "
                f"epsteps.nesterov for the paper's steps (there are {_listed(PAPER, 'and')})."
            )
        return
    if not callable(method) and method not in ("auto", *METHODS):
        raise _unknown_method(method)
    name = _name(method)
    if release == "final" and (callable(method) or METHODS.get(name) == "iterates"):
        raise ValueError(
            f"release='final' does not go with {_quoted(method)}, which publishes everything that it releases on its "
            "way: leave release out (or say 'iterates'), or leave the method out, and the most accurate one is chosen."
        )
    if release == "iterates" and METHODS.get(name) == "final":
        raise ValueError(
            f"method={name!r} publishes the final model alone: its solver's iterates are not protected. "
            "Use release='final', or method='sequential'."
        )


def _unknown_method(method: object) -> Exception:
    if not isinstance(method, str):
        return TypeError(f"method must be a name or a function such as epsteps.nesterov, got {_shown(method)}.")
    remedy = ""
    if method.replace("-", "_") in PAPER:
        remedy = f" The paper's methods are functions: pass epsteps.{method.replace('-', '_')}, without quotes."
    elif method in RELEASES:
        remedy = f" What is published is release={method!r}."
    options = ", ".join(map(repr, ("auto", *METHODS)))
    return ValueError(f"method must be one of {options}, got {method!r}.{remedy}")


def require_spelt(function: str, options: Mapping[str, Any], method: object, known: Known) -> None:
    """Raise for an option that no method has; ``known`` tells those of a method."""
    is_named = callable(method) or method in METHODS
    names = list(known(method)) if is_named else list(NAMES)
    who = f"method {_name(method)!r}" if is_named else function
    for option in options:
        if option in NAMES:
            continue
        if option in _ELSEWHERE:
            raise TypeError(f"{who} has no option {option!r}: it is declared by {_ELSEWHERE[option]}.")
        close = [_ALIASES[option]] if option in _ALIASES else difflib.get_close_matches(option, names, n=1)
        hint = f"did you mean {close[0]!r}? It" if close and close[0] in names else "it"
        raise TypeError(f"{who} has no option {option!r}: {hint} takes {', '.join(names) or 'none'}.")


def require_options_of(method: Method | str, options: Mapping[str, Any], known: Known) -> None:
    """Raise unless the method has all of these options."""
    for option in options:
        if option not in known(method):
            who = f"method {_name(method)!r}"
            if option in _INFERENCE:
                raise _no_intervals(who, option)
            raise TypeError(f"{who} has no option {option!r}: it takes {', '.join(known(method)) or 'none'}.")


def _no_intervals(who: str, option: str) -> TypeError:
    return TypeError(
        f"{who} buys no intervals: use method='objective', which publishes the last model alone, or leave {option} "
        "out, and ask the run for what is proved."
    )


def no_method_for(release: str, options: Mapping[str, Any], known: Known) -> TypeError:
    """Return what is said where no method that publishes this has all of the options."""
    option = next((name for name in options if not any(name in known(method) for method in _of(release))), None)
    if option is None:
        return TypeError(f"release={release!r} has no method that takes {_listed(options, 'and')}: leave one out.")
    if option in _INFERENCE:
        return _no_intervals(f"release={release!r}", option)
    others = [_quoted(name) for name in METHODS if option in known(name)]
    others += ["the paper's steps"] * (option in StepsOptions.__annotations__)
    return TypeError(
        f"release={release!r} has no option {option!r}, which is for {_listed(others, 'and')}: leave it out, or name "
        "such a method."
    )


def _of(release: str) -> list[str]:
    return [name for name, published in METHODS.items() if published == release]


def _name(method: Any) -> str:
    return method if isinstance(method, str) else getattr(method, "__name__", repr(method))


def _quoted(method: Any) -> str:
    return f"method={method!r}" if isinstance(method, str) else f"epsteps.{_name(method)}"


def _listed(names: Iterable[str], word: str) -> str:
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__}"
