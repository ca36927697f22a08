"""Wrong arguments: every public call gives a result or a `CovshiftError`, whatever it is given.

A table of valid calls; each of their arguments is replaced by each of many wrong values, one at a time, and in the slow
test several at once.
"""

import random
import re
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from valid_calls import Call, Ready, calls, get_ready

import covshift
from covshift import CovshiftError

# Said by torch to whoever asks for more workers than there are cores.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "3": lambda: 3,
    "-1": lambda: -1,
    "0": lambda: 0,
    "1.5": lambda: 1.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "a word": lambda: "x",
    "an empty word": lambda: "",
    "a zero byte": lambda: "a\0b",
    "bytes": lambda: b"x",
    "[]": list,
    "[None]": lambda: [None],
    "[1.5]": lambda: [1.5],
    "{}": dict,
    "{1: 2}": lambda: {1: 2},
    "a set": lambda: {1, 2},
    "an object": object,
    "a function": lambda: lambda *args: args,
    "a sparse tensor": lambda: torch.eye(4).to_sparse(),
    "a meta tensor": lambda: torch.zeros(4, 3, 16, 16, device="meta"),
    "a meta vector": lambda: torch.zeros(4, device="meta"),
    "a tensor of floats": lambda: torch.linspace(-1, 1, 4),
    "a complex tensor": lambda: torch.zeros(4, 3, 16, 16, dtype=torch.complex64),
    "an empty tensor": lambda: torch.zeros(0),
    "an array of objects": lambda: np.array([None, "x"], object),
    "an array of words": lambda: np.array(["x", "y"]),
    "an array of times": lambda: np.array(["2020"], "datetime64[s]"),
    "an array of floats": lambda: np.linspace(-1, 1, 4),
    "an array of numbers": lambda: np.arange(4),
    "a structured array": lambda: np.zeros(3, [("a", "i4")]),
}


@pytest.fixture
def ready(tmp_path, monkeypatch) -> Ready:
    monkeypatch.chdir(tmp_path)
    return get_ready(tmp_path)


def outcome(call: Call, changes: dict[str, Any]) -> str | None:
    """Return the error of a call with some arguments changed; None where it gives a result or a `CovshiftError`."""
    try:
        call.function(**call.arguments | changes)
    except CovshiftError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:150]
    return None


def test_the_calls_of_the_table_are_valid(ready):
    for name in calls(ready):
        call = calls(ready)[name]
        call.function(**call.arguments)


ROOMS = ("bench", "corruptions", "data", "doctor", "export", "models", "repairs", "report", "shift")
RETURNED = {
    *("Adapter", "Camera", "Data", "Memory", "Method", "Policy", "Rows", "Exported", "Check", "Verdict", "Examination"),
    *("Finding", "Advice", "Best", "Bounds", "ClassMix", "Covariances", "Distance", "DistanceScale", "Expectation"),
    *("Forecast", "Gaussian", "IMAGENET", "Level", "Point", "Prediction", "Simulation"),
}
"""What users are given, or make kinds of their own of."""


def test_every_public_name_is_in_the_table(ready):
    rooms = [covshift, *(getattr(covshift, name) for name in ROOMS)]
    public = {name for room in rooms for name in room.__all__ if callable(getattr(room, name))}
    known = {word for name in calls(ready) for word in re.findall(r"\w+", name)}
    assert not {name for name in public - RETURNED - known if name != "CovshiftError"}
    assert public >= RETURNED


def failures(ready: Ready, tries: list[tuple[str, dict[str, str]]]) -> list[str]:
    """Return what went wrong in calls with some arguments replaced, each by the wrong value that is named."""
    found = []
    for name, changes in tries:
        problem = outcome(calls(ready)[name], {argument: WRONG[value]() for argument, value in changes.items()})
        if problem:
            found.append(f"{name}({', '.join(f'{a}={v}' for a, v in changes.items())}): {problem}")
        shutil.rmtree("run", ignore_errors=True)
    return found


def one_wrong(ready: Ready) -> list[tuple[str, dict[str, str]]]:
    table = calls(ready)
    return [(name, {argument: value}) for name in table for argument in table[name].arguments for value in WRONG]


def test_a_wrong_argument_is_a_covshift_error(ready):
    tries = random.Random(0).sample(one_wrong(ready), 400)
    assert not failures(ready, tries)


@pytest.mark.slow
def test_every_wrong_argument_is_a_covshift_error(ready):
    tries = one_wrong(ready)
    assert len(tries) >= 3000
    assert not failures(ready, tries)


@pytest.mark.slow
def test_several_wrong_arguments_are_a_covshift_error(ready):
    choose, table, tries = random.Random(1), calls(ready), []
    for _ in range(1000):
        name = choose.choice(list(table))
        arguments = list(table[name].arguments)
        wrong = choose.sample(arguments, choose.randint(1, len(arguments)))
        tries.append((name, {argument: choose.choice(list(WRONG)) for argument in wrong}))
    assert not failures(ready, tries)
