"""Compiled work on several threads: every part is done once, failures are raised, and a fork can go on."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest
import torch

from covshift.core.compiled.sharing import share

LARGE = 1 << 24


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 32])
@pytest.mark.parametrize("values", [1, LARGE])
def test_every_part_is_done_once(parts, values):
    done = [0] * parts

    def work(first: int, end: int) -> None:
        for part in range(first, end):
            done[part] += 1

    share(work, parts, values)
    assert done == [1] * parts


def test_the_work_is_done_by_several_threads_at_once():
    meeting = threading.Barrier(2, timeout=60)  # two threads do it even where the machine has only one core to offer
    torch.set_num_threads(2)

    def work(first: int, end: int) -> None:
        meeting.wait()

    share(work, 2, LARGE)


@pytest.mark.parametrize("failing", [0, 2])
def test_a_failure_is_raised_when_nobody_works_any_more(failing):
    working = []

    def work(first: int, end: int) -> None:
        working.append(first)
        try:
            if first <= failing < end:
                raise ValueError("broken")
        finally:
            working.remove(first)

    with pytest.raises(ValueError, match="broken"):
        share(work, 3, LARGE)
    assert not working


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_can_share_work_too():
    share(lambda first, end: None, 3, LARGE)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        done = []
        share(lambda first, end: done.append(first), 3, LARGE)
        os._exit(len(done))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
