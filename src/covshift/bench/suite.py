"""Several runs in one: a YAML file with the settings that they share and, under `runs`, those of each by its name."""

import re
from pathlib import Path
from typing import Any

import yaml

from covshift.bench.engines.where import Shard
from covshift.bench.results.store import Store, holds_a_run
from covshift.bench.settings import Settings
from covshift.support.errors import CovshiftError

BUILTIN_SUITE = Path(__file__).with_name("builtin.yaml")
"""The built-in benchmark: the networks and images that `make demo` shows."""


def read_runs(given: dict[str, Any], file: Path | None = None) -> dict[str, Settings]:
    """Return the settings of each run: `given` ones override those of the YAML file, and a run's own the shared ones.

    Args:
        given: the settings from the command line.
        file: a YAML file of one run or, with `runs`, of several.

    Returns:
        Settings by the name of the run, which is that of its folder; one run alone has none.
    """
    shared = _read_yaml(file) if file else {}
    if "runs" not in shared:
        return {"": Settings.read(shared | given)}
    runs = shared.pop("runs")
    if not isinstance(runs, dict) or not runs:
        raise CovshiftError(f"expected runs in {file} as names with their settings, e.g. 'r18: {{model: …}}'")
    found = {}
    for name, own in runs.items():
        if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name:
            raise CovshiftError(f"expected a name for a folder of each of the runs in {file}, got {name!r}")
        if not isinstance(own, dict):
            raise CovshiftError(f"expected settings of the run {name!r} in {file}, e.g. 'model: builtin:resnet20'")
        try:
            found[name] = Settings.read(shared | _underscored(own) | given)
        except CovshiftError as error:
            raise CovshiftError(f"run {name!r} in {file}: {error}") from error
    return found


def code_named_in(file: Path) -> list[str]:
    """Return the Python modules that a YAML file of settings makes a run import, and so execute.

    Args:
        file: a YAML file of one run or, with `runs`, of several; nothing that it names is imported here.
    """
    shared = _read_yaml(file)
    runs = shared.get("runs")
    found: list[str] = []
    for settings in (shared, *(runs.values() if isinstance(runs, dict) else ())):
        if isinstance(settings, dict):
            found += re.findall(r"(?:^|arch=)py(?::|%3A)([\w.]+)", str(settings.get("model", "")), re.IGNORECASE)
            plugins = settings.get("plugins") or []
            found += [str(each) for each in (plugins if isinstance(plugins, list) else str(plugins).split(","))]
    return list(dict.fromkeys(found))


def run_folders(folder: Path) -> list[Path]:
    """Return the folder itself where it holds a run; else those in it that do."""
    if holds_a_run(folder) or not folder.is_dir():
        return [folder]
    found = [inner for inner in sorted(folder.iterdir()) if holds_a_run(inner)]
    if any(Shard.named(inner) for inner in found):
        raise CovshiftError(f"expected a run in {folder}, got its shards; merge them first")
    if not found:
        raise CovshiftError(f"there is no run in {folder}: expected a run.json there or one folder below")
    return found


def open_runs(folder: Path) -> dict[str, Store]:
    """Return the run in a folder or, by name, those in its folders."""
    return {"" if each == folder else each.name: Store(each) for each in run_folders(folder)}


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CovshiftError(f"cannot read the settings {file}: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CovshiftError(f"{file} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise CovshiftError(f"expected settings such as 'model: torchvision:resnet18' in {file}")
    return _underscored(content)


def _underscored(content: dict[Any, Any]) -> dict[str, Any]:
    return {str(key).replace("-", "_"): value for key, value in content.items()}
