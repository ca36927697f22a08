"""Items that are made while a device works on the ones before them."""

from threading import Event

import pytest
import torch

from covshift.support.ahead import made_ahead

GPU, CPU = torch.device("cuda"), torch.device("cpu")


def test_the_next_item_is_made_while_the_one_before_is_used():
    made = [Event() for _ in range(3)]

    def items():
        for number, event in enumerate(made):
            event.set()
            yield number

    for number in made_ahead(items(), GPU):
        assert number == 2 or made[number + 1].wait(10)


@pytest.mark.parametrize("device", [GPU, CPU])
def test_order_and_errors_stay_where_they_are(device):
    def items():
        yield from range(5)
        raise OSError("broken picture")

    taken = []
    with pytest.raises(OSError, match="broken picture"):
        taken.extend(made_ahead(items(), device))  # what came before the error is kept
    assert taken == list(range(5))
    assert list(made_ahead(iter(()), device)) == []


def test_on_the_cpu_nothing_is_made_before_it_is_asked_for():
    items = iter(range(3))
    assert next(made_ahead(items, CPU)) == 0
    assert next(items) == 1


def test_one_may_stop_early():
    items = made_ahead(iter(range(100)), GPU)
    assert next(items) == 0
    items.close()
    assert list(items) == []
