"""What mkdocs does beyond its plugins: set formulas as MathML, and write the page of all commands from the code."""

import re
from typing import Any

import typer
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from covshift.cli import app

COMMANDS = "reference/commands.md"
_BLOCK = re.compile(r"^```math\n(.+?)\n```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"\$`(.+?)`\$")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with its formulas, written as on GitHub, as MathML, which browsers draw without any script."""
    del page, config, files
    markdown = _BLOCK.sub(
        lambda found: f'<div style="margin: 1em 0">{convert(found[1], display="block")}</div>', markdown
    )
    return _INLINE.sub(lambda found: convert(found[1]), markdown)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the files with the page of all commands among them."""
    if (held := files.get_file_from_path(COMMANDS)) is not None:
        files.remove(held)
    files.append(File.generated(config, COMMANDS, content=commands_page()))
    return files


def commands_page() -> str:
    """Return Markdown that describes every command with its arguments and options."""
    root = typer.main.get_command(app)
    lines = ["# Commands", "", "Made from the commands themselves; `covshift COMMAND --help` prints the same.", ""]
    for path, command in walk("covshift", root):
        depth = min(path.count(" ") + 1, 4)
        lines += [f"{'#' * depth} `{path}`" if depth > 1 else "", "", *_described(path, command), ""]
    return "\n".join(lines)


def walk(path: str, command: Any) -> list[tuple[str, Any]]:
    """Return a command and all commands below it, each with how it is called."""
    below = getattr(command, "commands", {})
    return [(path, command), *(found for name in below for found in walk(f"{path} {name}", below[name]))]


def _described(path: str, command: Any) -> list[str]:
    context = command.context_class(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    about = _set_examples((command.help or "").replace("\b", "").splitlines())
    rows = [row for parameter in command.params if (row := _row(parameter, context)) is not None]
    table = ["| option | what it does | default |", "|---|---|---|", *rows] if rows else []
    return ["```text", f"{path} {usage}", "```", "", *about, "", *table]


def _set_examples(lines: list[str]) -> list[str]:
    """Return the lines with the examples among them as blocks of code."""
    examples = [line.strip() for line in lines if line.strip().startswith(("covshift ", "torchrun "))]
    text = [line.strip() for line in lines if line.strip() not in examples]
    return [*text, "", "```sh", *examples, "```"] if examples else text


def _row(parameter: Any, context: Any) -> str | None:
    if getattr(parameter, "hidden", False) or parameter.name == "help":
        return None
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}`"
    default = parameter.get_default(context, call=False)
    shown = "" if default is None or default is False or default == () or callable(default) else f"`{default}`"
    about = re.sub(r"\s+", " ", getattr(parameter, "help", None) or "").replace("|", "\\|").replace("<", "&lt;")
    return f"| {names} | {about} | {shown} |"
