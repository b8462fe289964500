"""Optional dependencies: imported where they are used, refused with the command that installs them."""

from importlib import import_module
from types import ModuleType


class MissingExtraError(ImportError):
    """An optional part of epsteps was used without its dependency."""


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import ``module`` or say which extra brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{purpose} needs {package}, which is not installed: pip install 'epsteps[{extra}]'"
        ) from error
