"""An adapted model that threads share, in random ways: each gets what one thread alone would get, bit for bit."""

import asyncio
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import pytest
import torch
from networks import assert_same, images, snapshot, tiny
from test_files import times
from torch import Tensor, nn

import covshift
from covshift import Batch, CovshiftError, Fleet, Live, Source, Stream
from covshift.core.adapter import Adapter

CLEAN = images(40, seed=99)


class Step(NamedTuple):
    """One thing that a thread does with a model."""

    kind: str
    images: Tensor


def a_policy(choose: random.Random) -> Batch | Stream:
    prior = choose.choice([0.5, 4, 16, 1000, "auto"])
    if prior != "auto" and choose.random() < 0.3:
        return Stream(prior=prior, decay=choose.choice([None, None, 0.9]))
    return Batch(prior=prior, size=choose.choice([None, 2, 3, 8]))


def a_plan(choose: random.Random) -> list[Step]:
    kinds = choose.choices(["model", "part", "nan", "wrong", "look"], [8, 2, 1, 1, 1], k=24)
    return [Step(kind, images(choose.randint(1, 13), seed=choose.randrange(10**6))) for kind in kinds]


def do(model: nn.Module, adapter: Adapter, step: Step) -> Tensor:
    """Return the answer to a step; nothing where it fails, as it should, or only looks."""
    bad = {"nan": step.images * torch.nan, "wrong": step.images[:, :2]}
    with torch.no_grad():
        if step.kind in ("model", "part"):
            return (model if step.kind == "model" else model.stem)(step.images)
        if step.kind == "look":
            repr(adapter), adapter.state.images, adapter.health, model.state_dict()
        else:
            with suppress(CovshiftError, RuntimeError):
                model(bad[step.kind])
                raise AssertionError("this cannot be answered")
    return torch.empty(0)


def by_threads(call: Callable[[Step], Tensor], plan: list[Step], threads: int) -> list[Tensor]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(call, plan))


def by_asyncio(call: Callable[[Step], Tensor], plan: list[Step], threads: int) -> list[Tensor]:
    async def serve() -> list[Tensor]:
        return await asyncio.gather(*(asyncio.to_thread(call, step) for step in plan))

    return asyncio.run(serve())


def share(choose: random.Random) -> None:
    """Let threads share a model, and compare with one thread; a stream, whose order is free, by what it has counted."""
    model, policy, plan = tiny(seed=choose.randrange(100)), a_policy(choose), a_plan(choose)
    source = Source.measure(model, CLEAN, progress=False) if choose.random() < 0.3 else None
    serve, before = choose.choice([by_threads, by_asyncio]), snapshot(model)
    with covshift.adapt(model, policy, source=source) as adapter:
        want = [do(model, adapter, step) for step in plan]
        alone = adapter.state
        adapter.reset()
        got = serve(lambda step: do(model, adapter, step), plan, choose.randint(2, 6))
        state = adapter.state
    assert_same(before, model)
    if isinstance(policy, Batch):
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True)), policy
    elif policy.decay is None:
        counts = [{path: moments.images for path, moments in each.items()} for each in (state, alone)]
        assert counts[0] == counts[1], policy
        # The first layer's input depends on no statistics, and so on no order.
        torch.testing.assert_close(state["stem.1"].mean, alone["stem.1"].mean, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(state["stem.1"].var, alone["stem.1"].var, rtol=1e-9, atol=1e-12)


def serve_cameras(choose: random.Random) -> None:
    """Let each camera of a fleet have a thread of its own, and compare with the camera alone."""
    model, dtype = tiny(seed=choose.randrange(100), dtype=torch.float32), torch.float32
    policy = choose.choice([Live(), Live(memory=8), Stream(prior=4), Stream(decay=0.9), Batch(prior=2)])
    source = Source.measure(model, CLEAN.to(dtype), progress=False) if choose.random() < 0.7 else None
    plans = {name: [step._replace(images=step.images.to(dtype)) for step in a_plan(choose)] for name in "abcd"}
    before = snapshot(model)

    def answer(fleet: Fleet, name: str) -> list[Tensor | str]:
        answers = []
        for step in plans[name]:
            if step.kind == "look":
                repr(fleet), fleet[name].health if name in fleet else None, [fleet.add(each).shift for each in fleet]
            else:
                bad = step.images * (torch.nan if step.kind == "nan" else 1)
                answers.append(fleet.answer({name: bad})[name])
        return [each if isinstance(each, Tensor) else str(each) for each in answers]

    want, states = {}, {}
    for name in plans:
        with Fleet(model, policy, source=source) as alone:
            want[name], states[name] = answer(alone, name), alone[name].state
    passes = choose.randint(1, 3)
    with Fleet(model, policy, source=source, passes=passes) as fleet, ThreadPoolExecutor(len(plans)) as pool:
        got = dict(zip(plans, pool.map(lambda name: answer(fleet, name), plans), strict=True))
        assert all(fleet[name].state == states[name] for name in plans), policy
    assert_same(before, model)
    for name in plans:
        for one, other in zip(got[name], want[name], strict=True):
            assert torch.equal(one, other) if isinstance(other, Tensor) else one == other, policy


@pytest.fixture
def restless():
    """Threads that give way after every few operations, and so meet each other everywhere."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@times(12, 600)
def test_models_that_threads_share(number, seed, restless):
    for attempt in range(number):
        share(random.Random(f"{seed} {attempt}"))


@times(4, 100)
def test_cameras_that_threads_serve(number, seed, restless):
    for attempt in range(number):
        serve_cameras(random.Random(f"{seed} {attempt}"))
