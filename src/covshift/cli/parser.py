"""The parser of every command: errors in one line, commas between several values, new names for old ones."""

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from covshift.support.errors import CovshiftError, Stopped, printable

MISTYPED = 2
"""Exit code of a command line that is not understood."""

FOUND = 3
"""Exit code of a command that worked, and found something that a script has to know."""

UNSURE = 4
"""Exit code of a command that worked, and cannot tell what a script has to know."""

STOPPED = 130
"""Exit code of a command that Ctrl-C has ended."""

_RENAMED = {
    "--corruption": "--corruptions",
    "--severity": "--severities",
    "--images": "--limit",
    "--folder": "--out",
    "--quality": "--jpeg",
}


class MistypedError(CovshiftError):
    """A command line that is not understood; the message gives one that is."""


@contextmanager
def reporting_errors() -> Iterator[None]:
    """Print an error that the user can fix as one line, not as a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("stopped by Ctrl-C", err=True)
        raise typer.Exit(STOPPED) from None
    except Stopped as stopped:
        typer.echo(printable(str(stopped)), err=True)
        raise typer.Exit(STOPPED) from None
    except CovshiftError as error:
        typer.echo(printable(f"error: {as_options(str(error))}"), err=True)
        raise typer.Exit(MISTYPED if isinstance(error, MistypedError) else 1) from None


def as_options(message: str) -> str:
    """Return a message of the library with its arguments, which stand in backquotes, as options of the command line.

    >>> as_options("remove it, or use `skip_broken=True`; or try `batch_size=8` with `answers=False`")
    'remove it, or use --skip-broken; or try --batch-size 8 with --no-answers'
    """

    def option(found: re.Match[str]) -> str:
        name = found[1].replace("_", "-")
        if found[2] == "False":
            return f"--no-{name}"
        return f"--{name}" if found[2] == "True" else f"--{name} {found[2]}"

    return re.sub(r"`([\w-]+)=([^`]+)`", option, message)


def _without_types(params: list[Any]) -> list[Any]:
    """Return options whose help shows no type for flags, which take no value."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


class Command(TyperCommand):
    """A command that explains words which it cannot place."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments, and the option `--help`."""
        return _without_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line into `ctx.params`."""
        words = list(args)
        own = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        for word in words:
            old, _, _ = word.partition("=")
            new = _RENAMED.get(old)
            if new in own and old not in own:
                renamed = [each.replace(old, new or "", 1) if each == word else each for each in words]
                raise MistypedError(f"{old} is now called {new}; write {ctx.command_path} {shlex.join(renamed)}")
        ctx.allow_extra_args = True
        super().parse_args(ctx, args)
        if ctx.args and not ctx.resilient_parsing:
            several = {name for param in self.params if getattr(param, "multiple", False) for name in param.opts}
            raise MistypedError(_explain(ctx.command_path, words, several, ctx.args))
        return list(ctx.args)


class Group(TyperGroup):
    """A command of commands; a word that it cannot place is explained, errors of any command are one line."""

    def modern(self, words: Sequence[str]) -> str | None:
        """Return the present form of words that do not begin with a command, as they once could; None if unknown."""
        return None

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, and the option `--help`."""
        return _without_types(super().get_params(ctx))

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the words of the command line."""
        with reporting_errors():
            if args and args[0] != "--help" and args[0] not in self.commands and (modern := self.modern(args)):
                raise MistypedError(f"expected a command after {info_name}, got {args[0]}; write {modern}")
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with reporting_errors():
            return super().invoke(ctx)


def _explain(path: str, words: Sequence[str], several: set[str], extra: Sequence[str]) -> str:
    """Return what to write for words that are too many, e.g. with commas where blanks separate the values.

    >>> _explain("covshift bench run", ["--corruptions", "fog", "snow"], {"--corruptions"}, ["snow"])
    'expected one word after --corruptions, got fog snow; use commas between several values: --corruptions fog,snow'
    """
    for place, word in enumerate(words):
        values: list[str] = []
        for value in words[place + 1 :]:
            if value.startswith("-"):
                break
            values.append(value)
        if word in several and len(values) > len(extra):
            # The words that follow may also be what the command is about, e.g. folders.
            values = values[: len(extra) + 1]
            joined = shlex.quote(",".join(value.strip(",") for value in values))
            return (
                f"expected one word after {word}, got {' '.join(values)}; "
                f"use commas between several values: {word} {joined}"
            )
    return f"expected nothing more, got {shlex.join(extra)}; see {path} --help"
