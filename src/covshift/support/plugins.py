"""Users' own code: importing their modules, and the registries that these add to."""

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from covshift.support.errors import CovshiftError, unknown


def import_users(name: str, what: str) -> ModuleType:
    """Import a user's module, which may be in the current folder.

    Args:
        name: the module, e.g. `mine` or `package.module`.
        what: the purpose of the import, for error messages.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CovshiftError(
                f"there is no Python module {name!r} for {what}; put it in {here} or install it"
            ) from error
        raise failed(what, "cannot be imported", error) from error
    except CovshiftError:
        raise
    except Exception as error:
        raise failed(what, "cannot be imported", error) from error


def load_plugins(modules: Iterable[str]) -> None:
    """Import the modules in which users register corruptions and methods; each module is imported once."""
    for name in modules:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise CovshiftError(f"expected a Python module such as mine or package.module as a plugin, got {name!r}")
        import_users(name, f"the plugin {name}")


def unregistered(kind: str, name: str, known: Iterable[str]) -> CovshiftError:
    """Return the error for a name that nobody has registered, which a plugin may still do.

    >>> unregistered("method", "ful", ["none", "full"])
    CovshiftError("unknown method 'ful'; did you mean 'full'? For your own, name its module as a plugin")
    """
    hint = str(unknown(kind, name, known))
    return CovshiftError(f"{hint}{' For' if hint.endswith('?') else '; for'} your own, name its module as a plugin")


def is_same_code(first: object, second: object) -> bool:
    """Return whether two functions or classes come from the same lines, of a module that was imported twice."""
    names = ("__module__", "__qualname__")
    return first is second or all(getattr(first, name, None) == getattr(second, name, "") for name in names)


def failed(what: str, how: str, error: Exception) -> CovshiftError:
    """Return the error for users' code that raised an error of its own."""
    return CovshiftError(f"{what} {how}: {type(error).__name__}: {error}")
