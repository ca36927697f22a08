"""Every block of Python and shell in the documentation runs, or says what it needs and is at least well-formed."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
import typer
from blocks import PAGES, ROOT, Block, blocks, commands
from typer.testing import CliRunner

from covshift.cli import app

COMMAND = typer.main.get_command(app)
MAKE = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
# Programs of others: not ours to check.
OTHERS = {"pip", "python", "ray", "serve", "sbatch", "mkdir", "cd", ".", "git", "export", "curl"}


def of_pages(*kinds: str) -> list[pytest.param]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES if blocks(page, *kinds)]


# What the blocks of some pages go on from.
RUN = (
    "bench run --model torchvision:{} --data folder:val --corruptions fog,snow --severities 3 --prior 16 --out runs/{}"
)
BEFORE = {
    "doctor.md": [RUN.format("resnet18", "r18")],
    "report.md": [RUN.format("resnet18", "r18"), RUN.format("resnet50", "r50")],
}
ALONE = {"README.md", "tutorial.md"}  # their Python takes nothing for granted


@pytest.mark.parametrize("page", of_pages("python"))
def test_python(page, names, capsys):
    names = {} if page.name in ALONE else names
    for block in blocks(page, "python"):
        where = f"{page.name}:{block.line}"
        if block.code.startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(block.code, dict(names), where, str(page), block.line)
            assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0, where
            continue
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        if block.file:
            Path(block.file).write_text(block.code)
        elif not block.needs:
            exec(code, names)
    if page.name == "tutorial.md":
        shown = percentages("".join(block.code for block in blocks(page, "text") if not block.code.startswith("file:")))
        printed = percentages(capsys.readouterr().out)
        assert [label for label, _ in printed] == [label for label, _ in shown]
        # Training differs with the number of threads, and so do the errors: up to 5 points have been seen.
        assert [error for _, error in printed] == pytest.approx([error for _, error in shown], abs=8)


@pytest.mark.parametrize("page", of_pages("sh"))
def test_shell(page, place):
    made = {}
    for block in blocks(page, "python"):
        if block.file:
            Path(block.file).write_text(block.code)
        elif page.name == "tutorial.md" and not block.needs:  # its commands take what its Python has made
            exec(block.code, made)
    for before in BEFORE.get(page.name, []):
        assert CliRunner().invoke(app, shlex.split(before)).exit_code == 0, before
    for block in blocks(page, "sh"):
        for command in commands(block.code):
            for arguments in ours(command, page, block):
                check(arguments, f"{page.name}:{block.line}: {command}")
                if not block.needs:
                    done = CliRunner().invoke(app, arguments)
                    assert done.exit_code in codes(arguments), f"{page.name}:{block.line}: {command}\n{done.output}"


def test_the_page_on_theory_shows_what_the_command_prints():
    page = ROOT / "docs" / "explanation" / "theory.md"
    (command,), (text,) = commands(blocks(page, "sh")[0].code), blocks(page, "text")
    assert CliRunner().invoke(app, shlex.split(command)[1:]).output == text.code


def test_the_page_on_claims_names_commands_that_there_are():
    page = ROOT / "docs" / "claims.md"
    named = set(re.findall(r"`covshift (.+?)`", page.read_text()))
    assert len(named) > 20
    for command in sorted(named):
        check(shlex.split(command), f"{page.name}: {command}")


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 140


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages | {"reference/commands.md"} == listed


def percentages(text: str) -> list[tuple[str, float]]:
    """Return what lines such as "clean: 8.7 %" say."""
    return [(label, float(error)) for label, error in re.findall(r"^(.+): ([\d.]+) %$", text, re.MULTILINE)]


def codes(arguments: list[str]) -> set[int]:
    """Return the exit codes of a command that has worked: 3 is a finding, 4 a doubt."""
    return {0, 3, 4} if "--alarm" in arguments else {0, 3} if arguments[0] == "doctor" else {0}


def ours(command: str, page: Path, block: Block) -> list[list[str]]:
    """Return the arguments of each call of covshift in a command; complain of what is neither ours nor known."""
    calls = []
    for part in re.split(r"\s(?:&&|\|\||\|)\s", command):
        words = shlex.split(part.replace("$(", " ").replace(")", " ") if "sbatch" in part else part)
        words = words[1:] if words[0].endswith("=") else words  # first=$(sbatch …)
        quoted = [word for word in words if word.startswith("covshift ")]  # ray exec cluster.yaml 'covshift …'
        if quoted:
            calls += [shlex.split(word)[1:] for word in quoted]
        elif "covshift" in words:
            calls.append(words[words.index("covshift") + 1 :])
        elif words[0] == "make":
            assert set(words[1:]) <= MAKE, f"{page.name}:{block.line}: no target {words[1:]} in the Makefile"
            assert block.needs, f"{page.name}:{block.line}: say what `{part}` needs"
        else:
            assert words[0] in OTHERS, f"{page.name}:{block.line}: what is {words[0]}?"
            assert block.needs, f"{page.name}:{block.line}: say what `{part}` needs"
            for script in (word for word in words if re.fullmatch(r"(benchmarks|examples)/\w+\.py", word)):
                assert (ROOT / script).exists(), f"{page.name}:{block.line}: there is no {script}"
    return calls


def check(arguments: list[str], where: str) -> None:
    """Parse a command without running it: its name, its options and their values."""
    command, context, rest = COMMAND, None, arguments
    while hasattr(command, "commands"):
        if not rest or rest[0].startswith("-"):
            break
        assert rest[0] in command.commands, (
            f"{where}: there is no command {rest[0]}, only {', '.join(command.commands)}"
        )
        command, rest = command.commands[rest[0]], rest[1:]
    try:
        context = command.make_context("covshift", list(rest), parent=None)
    except Exception as error:
        if type(error).__name__ == "Exit" or "does not exist" in str(getattr(error, "message", error)):
            return  # --help and --version end there; files need not be there to be named
        raise AssertionError(f"{where}: {getattr(error, 'message', error)}") from error
    assert context is not None
