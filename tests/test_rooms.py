"""The rooms of the package: who may import whom, no circles, no module or function that outgrows its subject."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import covshift

ROOT = Path(covshift.__file__).parent

LOW = ("support", "core", "corruptions", "data", "models")
MAY_IMPORT = {
    "support": (),
    "core": ("support",),
    "corruptions": ("support",),
    "data": ("support", "core", "corruptions"),
    "models": ("support", "core", "corruptions"),
    "shift": LOW,
    "rivals": LOW,
    "export": LOW,
    "training": LOW,
    "repairs": (*LOW, "shift", "export"),
    "bench": (*LOW, "shift", "rivals", "export", "training"),
    "serve": ("support", "core", "data", "models", "shift", "export"),
    "doctor": (*LOW, "shift", "bench"),
    "report": (*LOW, "shift", "bench"),
    "reproduce": (*LOW, "shift", "bench"),
    "cli": None,
}
"""For each room the others that it may import, inside functions too; None for all."""

LONGEST_MODULE, LONGEST_FUNCTION = 320, 60


class Import(NamedTuple):
    """One import of a module of ours, and whether it happens as the importing module is loaded."""

    importer: str
    imported: str
    at_once: bool


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, ast.Module]:
    return {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}


def imported_by(name: str) -> Iterator[Import]:
    tree = modules()[name]
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            module = node.module or ""
            # `from covshift.bench import run` imports a module, `from covshift.bench.run import run` a name in it.
            targets = [f"{module}.{a.name}" if f"{module}.{a.name}" in modules() else module for a in node.names]
        else:
            continue
        for target in targets:
            if target.partition(".")[0] == "covshift":
                yield Import(name, target, id(node) not in inside)


def room(name: str) -> str | None:
    """Return the room of a module; None for the few at the root."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and (ROOT / parts[1]).is_dir() else None


@pytest.mark.parametrize("name", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_it_may(name):
    allowed = MAY_IMPORT[name]
    if allowed is None:
        return
    wrong = [
        f"{each.importer} imports {each.imported}"
        for module in modules()
        if room(module) == name
        for each in imported_by(module)
        if room(each.imported) not in (name, *allowed, None)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_folder_is_a_room_of_the_table():
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= set(MAY_IMPORT)


def test_only_the_front_door_is_at_the_root():
    assert {path.name for path in ROOT.glob("*.py")} <= {"__init__.py", "__main__.py"}


def test_no_circle():
    """A module is loaded after all that it imports as it is loaded; a package counts as its `__init__`."""
    edges = {
        name: {each.imported for each in imported_by(name) if each.at_once and each.imported != name}
        for name in modules()
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " → ".join([*path[path.index(name) :], name])
        if name not in done:
            for target in sorted(edges.get(name, ())):
                visit(target, (*path, name))
            done.add(name)

    for name in edges:
        visit(name, ())


def test_modules_and_functions_stay_short():
    """Of a module: one subject. Of a function: one screen. Tables of constants are no functions."""
    long = []
    for name, tree in modules().items():
        path = ROOT.parent / Path(*name.split("."))
        file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
        if (lines := len(file.read_text(encoding="utf-8").splitlines())) > LONGEST_MODULE:
            long.append(f"{name}: {lines} lines")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = node.end_lineno - body[0].lineno + 1 if body else 0
                if lines > LONGEST_FUNCTION:
                    long.append(f"{name}.{node.name}: {lines} lines")
    assert not long, "\n".join(long)
