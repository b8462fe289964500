"""Errors in the command line's own words: options as they are typed, and commands in the place of functions."""

import inspect
import re
from collections.abc import Mapping
from typing import Any, get_args

from typer.models import OptionInfo

# What the library says of itself, and what that is on the command line.
_PHRASES = (
    (r"\bPure\(epsilon=([^)]*)\)", r"epsilon = \1"),
    (r"\bConcentrated\(rho=([^)]*)\)", r"rho = \1"),
    (r"\bApproximate\(epsilon=([^,)]*), delta=([^)]*)\)", r"epsilon = \1 with delta = \2"),
    (r"Ledger\.create", "epsteps ledger create"),
    (r"epsteps\.plan\(problem, budget[^)]*\)", "epsteps plan"),
    (r"epsteps\.(plan|audit)\b", r"epsteps \1"),
    (r"[Pp]ass the text that (its )?to_json returned", "name a file that epsteps plan --out wrote"),
    (r"declare that the delimiter is ','", "add --delimiter comma"),
    (r"declare that the delimiter is ';'", "add --delimiter semicolon"),
    (r"declare that the delimiter is '\\t'", "add --delimiter tab"),
    (r"declare encoding='latin-1'", "add --encoding latin-1"),
    (r"epsteps\.(gd|heavy_ball|nesterov|multistage|restarted_nesterov)\b", r"--method \1"),
    (r"heavy_ball", "heavy-ball"),
    (r"restarted_nesterov", "restarted-nesterov"),
)
_VALUE = r"(?:'(?P<quoted>[^']*)'|(?P<bare><[^>]*>|[\w.+-]*[\w>]|\.\.\.))"


def flags_of(signature: inspect.Signature) -> dict[str, str]:
    """Return, for each parameter of a command that is an option, how it is typed."""
    flags = {}
    for name, parameter in signature.parameters.items():
        declared = [parameter.default, *get_args(parameter.annotation)]
        for option in (entry for entry in declared if isinstance(entry, OptionInfo)):
            names = [option.default, *(option.param_decls or ())]
            typed = [text for text in names if isinstance(text, str) and text.startswith("--")]
            flags[name] = typed[0] if typed else f"--{name.replace('_', '-')}"
    return flags


def in_words(message: str, flags: Mapping[str, str]) -> str:
    """Return a message of the library as the command line says it: for a command with these options.

    >>> in_words("epsilon must be positive, got 0.0.", {"epsilon": "--epsilon"})
    '--epsilon must be positive, got 0.0.'
    >>> in_words("Use method='descent', or leave max_iterations out.", {"method": "--method"})
    'Use --method descent, or leave max_iterations out.'
    """
    for pattern, words in _PHRASES:
        message = re.sub(pattern, words, message)
    if not flags:
        return message
    names = "|".join(sorted(map(re.escape, flags), key=len, reverse=True))

    def flag(found: re.Match[str]) -> str:
        return flags[found["name"]]

    def assigned(found: re.Match[str]) -> str:
        value: Any = found["quoted"] if found["bare"] is None else found["bare"]
        return flags[found["name"]] if value in ("True", "...") else f"{flags[found['name']]} {value}"

    message = re.sub(rf"(?<![\w.(-])(?P<name>{names})={_VALUE}", assigned, message)
    message = re.sub(rf"(?:^|(?<=[.:;] ))(?P<name>{names})(?= must )", flag, message)
    message = re.sub(rf"(?<=[Ll]eave )(?P<name>{names})(?= out)", flag, message)
    message = re.sub(rf"(?<=option )'(?P<name>{names})'", flag, message)
    return re.sub(rf"(?<=\()(?P<name>{names})(?=\))", flag, message)
