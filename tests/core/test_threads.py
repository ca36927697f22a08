"""One adapted model in several threads: what one thread would get, bit for bit, or a clear refusal."""

import asyncio
import copy
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch
from networks import assert_same, images, randomise, snapshot, tiny
from torch import nn

import covshift
from covshift import Batch, CovshiftError, Statistics, Stream

SIZES = [1, 3, 8, 16, 5, 2, 13, 8]
STATELESS = [Batch(prior=16), Batch(prior=16, size=8), Batch(prior="auto"), Batch(prior="auto", size=3)]


def batches(number: int = 96) -> list[torch.Tensor]:
    return [images(SIZES[seed % len(SIZES)], seed=seed) for seed in range(number)]


def call(model, x):
    with torch.no_grad():
        return model(x)


def by_threads(model, given):
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda x: call(model, x), given))


def by_asyncio(model, given):
    async def serve():
        return await asyncio.gather(*(asyncio.to_thread(call, model, x) for x in given))

    return asyncio.run(serve())


@pytest.fixture(autouse=True)
def _switch_often():
    """Threads that give way after every few operations meet each other everywhere."""
    import sys

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("serve", [by_threads, by_asyncio])
@pytest.mark.parametrize("policy", STATELESS, ids=str)
def test_threads_get_what_one_thread_gets(policy, serve):
    model, given = tiny(), batches()
    before = snapshot(model)
    with covshift.adapt(model, policy):
        want = [call(model, x) for x in given]
        got = serve(model, given)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert_same(before, model)


@pytest.mark.parametrize("serve", [by_threads, by_asyncio])
def test_a_stream_counts_every_image_of_every_thread_in_every_layer(serve):
    model, given = tiny(), batches()
    total = sum(len(x) for x in given)
    with covshift.adapt(model, Stream(prior=16)) as adapter:
        serve(model, given)
        state = adapter.state
    assert {moments.images for moments in state.values()} == {total}
    # The first layer's input depends on no statistics: whatever the order, these are the moments of all images.
    with torch.no_grad():
        first = torch.cat([model.stem[0](x) for x in given])
    torch.testing.assert_close(state["stem.1"].mean, first.mean((0, 2, 3)), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(state["stem.1"].var, first.var((0, 2, 3), correction=0), rtol=1e-9, atol=1e-12)


def test_errors_and_parts_of_the_model_among_the_passes():
    model, given, choose = tiny(), batches(60), random.Random(0)
    plan = [(x, choose.choice(["model", "part", "bad", "wrong", "state"])) for x in given]
    bad = torch.full((2, 3, 12, 12), torch.nan, dtype=torch.float64)

    def run(step):
        x, kind = step
        if kind == "model":
            return call(model, x)
        if kind == "part":
            return call(model.stem, x)
        with suppress(CovshiftError, RuntimeError):
            call(model, {"bad": bad, "wrong": x[:, :2], "state": x}[kind])
        return adapter.state.images * 0

    with covshift.adapt(model, Batch(prior=4)) as adapter:
        want = [run(step) for step in plan]
        with ThreadPoolExecutor(4) as pool:
            got = list(pool.map(run, plan))
    assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(got, want, strict=True))


class Interrupted(nn.Module):
    """A model that Ctrl-C ends in the middle, for images of a certain number."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, x):
        x = self.first(x)
        if len(x) == 7:
            raise KeyboardInterrupt
        return self.last(x)


@pytest.mark.parametrize("policy", [Batch(prior=1), Stream(prior=1)])
def test_a_pass_that_ctrl_c_has_ended_holds_nobody_up(policy):
    model, x = randomise(Interrupted()), images(4)
    with torch.no_grad(), covshift.adapt(model, policy):
        want = model(x)
    with torch.no_grad(), covshift.adapt(model, policy) as adapter:
        with pytest.raises(KeyboardInterrupt):
            model(images(7))
        with ThreadPoolExecutor(1) as pool:
            assert torch.equal(pool.submit(call, model, x).result(timeout=120), want)
        with pytest.raises(KeyboardInterrupt):
            model(images(7))
        adapter.reset()
        assert torch.equal(model(x), want)
        assert adapter.state.images == 4


class Recursive(nn.Module):
    """A model that halves a batch and calls itself."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        if len(x) > 4:
            return torch.cat([self(x[:4]), self(x[4:])])
        return self.norm(x)


def test_a_model_that_calls_itself():
    model, x = randomise(Recursive()), images(8)
    with torch.no_grad():
        with covshift.adapt(model, Batch(prior=4)):
            want = torch.cat([model(x[:4]), model(x[4:])])
            assert torch.equal(model(x), want)
            assert all(torch.equal(got, want) for got in by_threads(model, [x] * 20))
        with covshift.adapt(model, Stream(prior=4)) as adapter:
            model(x)
            assert adapter.state.images == 8


def test_a_stream_that_sees_more_while_the_model_calls_itself_in_between():
    class Between(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm2d(3)

        def forward(self, x):
            y = self.norm(x)
            return y if len(x) == 3 else y + self(x[:3]).mean()

    model, x = randomise(Between()), images(5)
    with torch.no_grad(), covshift.adapt(model, Stream(prior=4)) as adapter:
        model(x)
        both = torch.cat([x, x[:3]])
        assert adapter.state.images == 8
        torch.testing.assert_close(adapter.state["norm"].mean, both.mean((0, 2, 3)))


class Threaded(nn.Module):
    """A model that runs a layer in a thread of its own and waits for it."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, x):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(call, self.last, self.first(x)).result()


def test_a_model_that_waits_for_a_thread_of_its_own_is_refused():
    model, x = randomise(Threaded()), images(4)
    words = "'last' is called from a thread that the model waits for"
    with pytest.raises(CovshiftError, match=words), torch.no_grad(), covshift.adapt(model, Batch()):
        model(x)
    for exact in (True, False):
        with pytest.raises(CovshiftError, match=words):
            covshift.estimate(model, x.split(2), exact=exact)


@pytest.mark.parametrize("exact", [True, False])
def test_estimating_does_not_disturb_a_thread_that_serves(exact):
    model, x, served = tiny(), images(6), []
    want, target = call(model, x), covshift.estimate(model, images(40).split(4), exact=exact)
    stop = threading.Event()

    def serve():
        while not stop.is_set():
            served.append(call(model, x))

    with ThreadPoolExecutor(2) as pool:
        servers = [pool.submit(serve) for _ in range(2)]
        estimated = [covshift.estimate(model, images(40).split(4), exact=exact) for _ in range(5)]
        stop.set()
        for server in servers:
            server.result(timeout=60)
    assert all(each == target for each in estimated)
    assert served
    assert all(torch.equal(each, want) for each in served)


def test_removing_while_others_wait():
    model, given = tiny(), batches(200)
    plain = [call(model, x) for x in given]
    adapter = covshift.adapt(model, Batch(prior=2))
    adapted = [call(model, x) for x in given]
    before = copy.deepcopy(model.state_dict())
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(call, model, x) for x in given]
        answers[20].result()
        adapter.remove()
        got = [answer.result(timeout=60) for answer in answers]
    # A pass that is being called while the adapter goes may be of either kind, and is never a mixture.
    either = zip(got, plain, adapted, strict=True)
    assert all(torch.equal(each, one) or torch.equal(each, other) for each, one, other in either)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert Statistics.of(model).images == 0


LOOKING_WHILE_GARBAGE_IS_COLLECTED = """
import gc, sys, threading
from covshift.core.turns import _tops

class Cycle:
    def __init__(self):
        self.me = self
    def __del__(self):
        for _ in range(20):
            str(self)

def look(depth):
    lists = [[] for _ in range(depth)]
    return _tops()

def run():
    for number in range(4000):
        Cycle()
        look(number % 7)

sys.setswitchinterval(1e-6)
gc.set_threshold(5)
threads = [threading.Thread(target=run) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert gc.isenabled()
"""


def test_threads_that_look_at_each_other_do_not_stop_python_for_ever():
    """As `sys._current_frames` did in the Python of many distributions; so in an interpreter of its own."""
    subprocess.run([sys.executable, "-c", LOOKING_WHILE_GARBAGE_IS_COLLECTED], check=True, timeout=120)
