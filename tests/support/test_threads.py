"""Work that several threads share."""

import os
import threading

import pytest

from covshift.support.threads import in_pieces


@pytest.mark.parametrize(
    ("parts", "pieces", "threads"), [(0, 4, 2), (1, 4, 2), (3, 8, 2), (10, 4, 3), (10, 1, 2), (7, 7, 1)]
)
def test_every_part_is_done_once(parts, pieces, threads):
    done = [0] * parts

    def work(begin, end):
        for i in range(begin, end):
            done[i] += 1

    in_pieces(work, parts, pieces, threads)
    assert done == [1] * parts


@pytest.mark.parametrize("broken", [0, 3, 9])
def test_an_error_comes_when_nothing_runs_any_more(broken):
    running = []

    def work(begin, end):
        running.append(begin)
        try:
            if begin <= broken < end:
                raise ValueError(f"part {broken}")
        finally:
            running.remove(begin)

    with pytest.raises(ValueError, match=f"part {broken}"):
        in_pieces(work, 10, 5, 3)
    assert not running


def test_pieces_of_many_callers_are_all_done_also_by_pieces_that_share_themselves():
    done = []

    def work(begin, end):
        in_pieces(lambda first, past: done.extend(range(first, past)), 4, 4, 2)

    callers = [threading.Thread(target=in_pieces, args=(work, 6, 6, 2)) for _ in range(5)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert sorted(done) == sorted([0, 1, 2, 3] * 30)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    in_pieces(lambda begin, end: None, 4, 4, 2)
    if not (child := os.fork()):
        done = []
        in_pieces(lambda begin, end: done.extend(range(begin, end)), 4, 4, 2)
        os._exit(0 if sorted(done) == [0, 1, 2, 3] else 1)
    assert os.waitpid(child, 0)[1] == 0
