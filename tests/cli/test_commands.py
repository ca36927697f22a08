"""What holds for every command: help, names and defaults of options, several values, old spellings, signals."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from runs import a_row, a_run, workplace
from typer.testing import CliRunner

import covshift
from covshift.bench.results.store import Store
from covshift.bench.settings import Settings
from covshift.cli import app
from covshift.cli.settings import ORDERS
from covshift.data.orders import parse_order

ROOT = Path(__file__).parents[2]


def commands():
    """Every command that does something, by its words."""
    found = {}
    for name, command in typer.main.get_command(app).commands.items():
        inner = getattr(command, "commands", None)
        found |= {f"{name} {sub}": each for sub, each in inner.items()} if inner else {name: command}
    return found


COMMANDS = commands()


def invoke(*words, **more):
    return CliRunner().invoke(app, list(map(str, words)), **more)


def several(command):
    return [param for param in command.params if getattr(param, "multiple", False)]


def test_there_are_these_commands():
    groups = {"bench": ("run", "table", "status", "rows", "answers", "merge"), "data": ("list", "check")}
    alone = {
        "corrupt",
        "shift",
        "repair",
        "export",
        "serve",
        "theory",
        "report",
        "reproduce",
        "train",
        "models",
        "doctor",
    }
    assert set(COMMANDS) == alone | {f"{group} {name}" for group, names in groups.items() for name in names}


def test_the_help_follows_a_newcomer():
    shown = invoke("--help").stdout
    first = ("models", "data", "corrupt", "bench", "report", "shift", "doctor", "repair", "export")
    names = (*first, "theory", "reproduce", "train")
    places = [re.search(rf"^│ {name} ", shown, re.MULTILINE).start() for name in names]
    assert places == sorted(places)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_an_example_and_stands_alone(name):
    result = invoke(*name.split(), "--help", env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert result.exit_code == 0
    assert re.search(rf"Examples?:\s+covshift {name}\b", result.stdout)
    assert "bool" not in result.stdout  # a flag takes no value
    for param in COMMANDS[name].params:
        assert re.fullmatch(r"[A-Z]\w*[ ,:].+\.", param.help or ""), (name, param.name, param.help)
        assert len(param.help.split()) > 1 + bool(re.search("Likewise|programs", param.help))


# option: default, and where it differs because it must, the commands
SHARED = {
    "--device": ("auto", {}),
    "--seed": ("0", {}),
    "--severities": ("1,2,3,4,5", {}),
    "--json": ("False", {}),
    "--shard": ("None", {}),
    "--threads": ("one for each core", {"serve": "for each pass an equal share of the cores"}),
    "--corruptions": ("all 19", {"corrupt": "False"}),  # nobody writes 95 times the pictures by mistake
    "--limit": (
        "all",
        {
            "shift": "1000",
            "repair": "1000",
            "doctor": "512; 128 if larger than 64 px",
            "reproduce": "all; 512 with --builtin",
        },
    ),
}


@pytest.mark.parametrize("option", SHARED)
def test_the_same_option_has_the_same_name_and_default(option):
    default, others = SHARED[option]
    helps = set()
    users = {name: p for name, command in COMMANDS.items() for p in command.params if option in p.opts}
    assert len(users) > 1
    for name, param in users.items():
        shown = param.show_default if param.default is None and param.show_default is not True else param.default
        expected = others.get(name, default)
        assert str(shown) == expected or str(shown).startswith(f"{expected};"), name
        helps.add(param.help)
    assert len(helps) == 1 or option in ("--limit", "--seed", "--corruptions")


@pytest.mark.parametrize("old", ["--corruption", "--severity", "--folder"])
def test_no_command_has_an_old_name(old):
    assert not [name for name, command in COMMANDS.items() for p in command.params if old in p.opts]


def test_every_setting_has_its_option():
    params = {param.name: param for param in COMMANDS["bench run"].params}
    assert set(Settings.model_fields) <= set(params)
    assert all(name.replace("_", "-") in params[name].opts[0] + "s" for name in Settings.model_fields)
    for order in ORDERS:
        parse_order(order)


SEVERAL = [
    (name, param.opts[0])
    for name, command in COMMANDS.items()
    for param in several(command)
    if all(other.nargs != -1 for other in command.params)  # else the words that follow are arguments
]


def arguments(name):
    """Something for every argument that the command takes, and for every option that it needs."""
    params = COMMANDS[name].params
    needed = [word for p in params if p.param_type_name == "option" and p.required for word in (p.opts[0], "word")]
    return [*(f"word{k}" for k, p in enumerate(params) if p.param_type_name == "argument"), *needed]


@pytest.mark.parametrize(("name", "option"), SEVERAL)
def test_blanks_between_values_are_answered_with_commas(name, option):
    """Wherever the arguments of the command stand."""
    own = arguments(name)
    for words in ([*own, option, "a", "b", "c"], [option, "a", "b", "c", *own]):
        result = invoke(*name.split(), *words)
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
        assert f"use commas between several values: {option} a,b,c\n" in result.stderr


def test_options_that_take_several_values_are_these():
    assert set(SEVERAL) >= {
        *(("bench run", f"--{name}") for name in ("corruptions", "severities", "methods")),
        *(("corrupt", f"--{name}") for name in ("corruptions", "severities")),
        ("theory", "--prior"),
        *(("reproduce", f"--{name}") for name in ("row", "weights")),
    }


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        (["--corruptions", "snow,fog"], "corruptions", ("snow", "fog")),
        (["--corruptions", "snow", "--corruptions", "fog"], "corruptions", ("snow", "fog")),
        (["--severities", "1,5"], "severities", (1, 5)),
        (["--severities", "1", "--severities", "5"], "severities", (1, 5)),
        (["--methods", "none,batch:n=8,N=4,full"], "methods", ("none", "batch:n=8,N=4", "full")),
        (["--methods", "none", "--methods", "batch:n=8,N=4"], "methods", ("none", "batch:n=8,N=4")),
        (["--mean", "0.5,0.25,0.125"], "mean", (0.5, 0.25, 0.125)),
        (["--order", "label"], "order", "label"),
        (["--order", "dirichlet:0.1"], "order", "dirichlet:0.1"),
        (["--sequence", "recurring"], "sequence", ("recurring",)),
        (["--sequence", "clean,fog/5:20"], "sequence", ("clean", "fog/5:20")),
        (["--prior", "16"], "prior", 16.0),
    ],
)
def test_several_values_by_comma_or_by_repeating(options, field, value, monkeypatch):
    told = {}
    monkeypatch.setattr("covshift.cli.bench_run.run", lambda values, *_, **__: told.update(values))
    result = invoke("bench", "run", "--model", "m:x", "--data", "d:x", *options)
    assert result.exit_code == 0, result.output
    assert getattr(Settings.read(told), field) == value


def test_priors_by_comma_or_by_repeating():
    assert invoke("theory", "--prior", "8,16").stdout == invoke("theory", "--prior", 8, "--prior", 16).stdout
    assert "expected numbers with commas between them for --prior" in invoke("theory", "--prior", "a").stderr


def test_an_order_is_one_of_three():
    result = invoke("bench", "run", "--order", "labels")
    assert (result.exit_code, result.stderr) == (2, "error: unknown order 'labels'; did you mean 'label'?\n")
    assert "shuffled, label, source" in invoke("bench", "run", "--order", "x").stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bench --model m:x --data d:x --out o", "covshift bench run --model m:x --data d:x --out o"),
        ("bench --builtin", "covshift bench run --builtin"),
        ("bench --table runs/r18 --csv", "covshift bench table runs/r18 --csv"),
        ("bench --status runs/r18", "covshift bench status runs/r18"),
        ("bench --rows runs/r18", "covshift bench rows runs/r18"),
        ("bench --merge a b --out c", "covshift bench merge a b --out c"),
        ("bench a b --merge --out c", "covshift bench merge a b --out c"),
        ("data --json", "covshift data list --json"),
        ("corrupt a b --corruption fog", "corrupt a b --corruptions fog"),
        ("corrupt a b --severity=3", "corrupt a b --severities=3"),
        ("shift --model m:x --target d:x --images 5", "shift --model m:x --target d:x --limit 5"),
        ("train resnet20 --folder x", "train resnet20 --out x"),
    ],
)
def test_an_old_spelling_is_answered_with_the_new_one(old, new):
    result = invoke(*old.split())
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.endswith(f" {new}\n")
    assert "write " in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_missing_option_is_named():
    assert "expected --data, e.g. --model" in invoke("bench", "run", "--model", "m:x").stderr
    named = invoke("bench", "run", "--model", "m:x", "--data", "d:x")
    assert "expected a folder for the results, e.g. --out runs/r18" in named.stderr


def test_status_for_programs(tmp_path):
    settings = {"corruptions": "fog", "severities": "3", "methods": "none"}
    Store.create(tmp_path / "a", a_run(**settings)).append([a_row("clean/0/none")])
    (row,) = json.loads(invoke("bench", "status", tmp_path, "--json").stdout)
    assert (row["done"], row["cells"], row["next"]) == (1, 2, "fog/3/none")
    assert row["folder"] == str(tmp_path / "a")


def test_a_configuration_says_what_it_imports_before_it_does(tmp_path, monkeypatch):
    monkeypatch.chdir(workplace(tmp_path))
    Path("nets.py").write_text("import sys\nsys.stderr.write('imported\\n')\nraise OSError('stop here')\n")
    runs = "runs: {a: {model: 'py:nets:net'}, b: {model: 'file:x.pth?arch=py:more.nets:net'}, c: {model: 'zoo:py'}}\n"
    Path("bench.yaml").write_text(f"data: npz:set.npz\n{runs}")
    shown = subprocess.run(
        [sys.executable, "-m", "covshift", "bench", "run", "--config", "bench.yaml", "--out", "out"],
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    assert "bench.yaml imports Python code and runs it: nets, more.nets\n" in shown
    assert shown.index("imports Python code") < shown.index("imported\n")


def test_help_does_not_wait_for_torch():
    code = "import sys, covshift.cli; assert not {'torch', 'numpy', 'pandas', 'cv2'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_wait_for_little_more_than_torch():
    code = "import sys, covshift; [getattr(covshift, name) for name in covshift.__all__]; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "torch" in imported
    assert not {"pandas", "sklearn", "scipy", "numba", "cv2", "matplotlib", "timm", "ray"} & set(imported)


def test_every_public_name_is_there():
    for name in covshift.__all__:
        assert getattr(covshift, name) is not None
    assert set(covshift.__all__) <= set(dir(covshift))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        covshift.nothing  # noqa: B018


# Tells when the handler of Ctrl-C is there.
STARTS = """
import signal
from covshift.__main__ import main
def tell(*args, real=signal.signal):
    signal.signal = real
    real(*args)
    print(flush=True)
signal.signal = tell
main()
"""


@pytest.mark.parametrize("after", [0, 0.1, 0.4, 0.8, 1.2])
def test_ctrl_c_while_it_starts_is_one_line(after, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", STARTS, "models", "no-such"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    process.stdout.readline()
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=300)
    assert "Traceback" not in shown
    if "no model matches" not in shown:  # else it was done before
        assert (process.returncode, shown) == (130, "stopped by Ctrl-C\n")


RANK = """
import atexit, sys, threading, time
from types import ModuleType
from covshift.__main__ import main
def app():
    threading.Thread(target=lambda: (time.sleep(0.2), print("a thread"))).start()
    atexit.register(print, "the end")
    print("an answer")
    sys.exit(eval(sys.argv[1]))
sys.modules["covshift.cli"] = ModuleType("covshift.cli")
sys.modules["covshift.cli"].app = app
main()
"""


@pytest.mark.parametrize("code", [None, 0, 3, "not today"])
def test_a_rank_of_torchrun_ends_as_any_other_process(code):
    plain, rank = (
        subprocess.run(
            [sys.executable, "-c", RANK, repr(code)], capture_output=True, text=True, env={**os.environ, **more}
        )
        for more in ({}, {"TORCHELASTIC_RUN_ID": "1"})
    )
    assert plain.stdout == "an answer\na thread\nthe end\n"
    assert (rank.returncode, rank.stdout, rank.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def quoted():
    """Commands in the documentation, the examples and the help, each with the file that quotes it."""
    files = [ROOT / "README.md", ROOT / "Makefile", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    for file in files:
        text = re.sub(r"\\\n\s*", "", file.read_text())
        for found in re.findall(r"(?:^ *|`|\)/|-m |\"|')(covshift [a-z][^`\n\"]*)", text, re.MULTILINE):
            yield str(file.relative_to(ROOT)), found


def test_commands_that_are_quoted_exist():
    checked = 0
    for file, text in quoted():
        words = re.sub(r"\s#.*|\{.*", "", text).split()[1:]
        name = " ".join(words[:2]) if words[0] in ("bench", "data") else words[0]
        if words[0] not in {each.split()[0] for each in COMMANDS}:
            continue  # a sentence
        assert name in COMMANDS or words == words[:1], (file, text)
        if name not in COMMANDS:
            continue
        known = {option for param in COMMANDS[name].params for option in (*param.opts, *param.secondary_opts)}
        used = {word.partition("=")[0].rstrip(".,;:)'") for word in words if re.match("--[a-z]", word)}
        assert used <= known | {"--help"}, (file, text)
        checked += bool(used)
    assert checked > 40


def test_a_corruption_of_ones_own_on_a_picture(tmp_path):
    (tmp_path / "my_dusk.py").write_text(
        "from covshift import corruptions\n\n"
        "@corruptions.register('my_dusk', severities=(2, 4, 8, 16, 32))\n"
        "def my_dusk(image, divisor, rng):\n    return image // divisor\n"
    )
    Image.fromarray(np.full((40, 40, 3), 128, np.uint8)).save(tmp_path / "grey.png")
    words = ["corrupt", "grey.png", "dusk.png", "--plugin", "my_dusk", "--corruptions", "my_dusk", "--severities", "3"]
    subprocess.run([sys.executable, "-m", "covshift", *words], cwd=tmp_path, check=True)  # it is registered there only
    assert np.unique(np.asarray(Image.open(tmp_path / "dusk.png"))).tolist() == [16]
