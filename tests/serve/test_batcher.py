"""The batcher: what waits is answered before it stops, and nothing is left hanging."""

import asyncio
import threading
from collections.abc import Sequence

import pytest
import torch

from covshift.serve.batcher import Batcher, Job
from covshift.serve.refusals import Busy


def job(camera: str) -> Job[str]:
    return Job(camera, torch.zeros(1, 3, 2, 2))


class Held:
    """Passes that take until `go_on`, and whose jobs are answered by the names of their cameras."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.passes: list[str] = []

    def run(self, jobs: Sequence[Job[str]]) -> list[str]:
        self.passes.append("".join(each.camera for each in jobs))
        self.begun.set()
        self.go_on.wait(60)
        return [each.camera for each in jobs]


def test_stopping_answers_what_waits_and_what_is_in_a_pass_and_refuses_the_rest():
    held = Held()

    async def scenario() -> None:
        batcher: Batcher[str] = Batcher(held.run, size=1, delay=0.0, queue=10)
        batcher.start()
        answers = [asyncio.ensure_future(batcher.submit(job(name))) for name in ("in the pass", "waiting")]
        await asyncio.to_thread(held.begun.wait, 60)
        stopping = asyncio.ensure_future(batcher.stop())
        await asyncio.sleep(0.05)
        with pytest.raises(Busy, match="shutting down"):
            await batcher.submit(job("late"))
        held.go_on.set()
        await stopping
        assert await asyncio.gather(*answers) == ["in the pass", "waiting"]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_stopping_an_idle_batcher_ends_at_once():
    async def scenario() -> None:
        batcher: Batcher[str] = Batcher(lambda jobs: [each.camera for each in jobs], size=4, delay=0.0, queue=10)
        batcher.start()
        assert await batcher.submit(job("gate")) == "gate"
        await batcher.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_an_error_of_a_pass_is_raised_to_its_jobs_and_the_next_pass_runs():
    def run(jobs: Sequence[Job[str]]) -> list[str]:
        if jobs[0].camera == "bad":
            raise RuntimeError("broken")
        return [each.camera for each in jobs]

    async def scenario() -> None:
        batcher: Batcher[str] = Batcher(run, size=4, delay=0.0, queue=10)
        batcher.start()
        with pytest.raises(RuntimeError, match="broken"):
            await batcher.submit(job("bad"))
        assert await batcher.submit(job("good")) == "good"
        await batcher.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_full_pass_is_made_while_another_one_runs_and_what_is_left_waits_for_more():
    held = Held()

    async def scenario() -> None:
        batcher: Batcher[str] = Batcher(held.run, size=2, delay=0.0, queue=10)
        batcher.start()
        answers = [asyncio.ensure_future(batcher.submit(job(name))) for name in "aba"]
        await asyncio.to_thread(held.begun.wait, 60)
        answers += [asyncio.ensure_future(batcher.submit(job(name))) for name in "cde"]
        await asyncio.sleep(0.05)
        assert batcher.waiting == 4, "a pass of two waits for a thread, and two images for that"
        held.go_on.set()
        assert "".join(await asyncio.gather(*answers)) == "abacde"
        assert held.passes == ["ab", "cd", "ae"]
        assert batcher.waiting == 0
        await batcher.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_passes_run_at_once_but_never_two_of_one_camera():
    meeting, passes = threading.Barrier(2, timeout=60), []

    def run(jobs: Sequence[Job[str]]) -> list[str]:
        passes.append("".join(each.camera for each in jobs))
        if jobs[0].camera != "a" or len(passes) <= 2:
            meeting.wait()
        return [each.camera for each in jobs]

    async def scenario() -> None:
        batcher: Batcher[str] = Batcher(run, size=1, delay=0.0, queue=10, passes=2)
        batcher.start()
        assert "".join(await asyncio.gather(*(batcher.submit(job(name)) for name in "aab"))) == "aab"
        assert sorted(passes[:2]) == ["a", "b"], "the second one of camera a waits for the first, and b need not"
        await batcher.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_small_job_joins_a_pass_that_a_large_one_is_too_large_for():
    held = Held()

    async def scenario() -> None:
        batcher: Batcher[str] = Batcher(held.run, size=4, delay=0.0, queue=30)
        batcher.start()
        answers = [asyncio.ensure_future(batcher.submit(job("first")))]
        await asyncio.to_thread(held.begun.wait, 60)
        for name, images in (("a", 3), ("b", 3), ("c", 1)):
            answers.append(asyncio.ensure_future(batcher.submit(Job(name, torch.zeros(images, 3, 2, 2)))))
        await asyncio.sleep(0.05)
        held.go_on.set()
        await asyncio.gather(*answers)
        assert held.passes == ["first", "ac", "b"]
        await batcher.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))
