"""The map of conditions: what is alike lies together."""

import numpy as np
import pytest
import torch
from imagined import random_statistics, statistics

from covshift import CovshiftError
from covshift.shift import embed


def conditions(kinds=4, each=6):
    """Statistics around a centre of their own for each kind."""
    rng = np.random.default_rng(0)
    centres = [rng.normal(0, 3, 12) for _ in range(kinds)]
    return {
        f"{kind} {i}": statistics((centres[kind] + rng.normal(0, 0.3, 12), rng.uniform(0.8, 1.2, 12)))
        for kind in range(kinds)
        for i in range(each)
    }


SOURCE = statistics((np.zeros(12), np.ones(12)))


def test_the_nearest_neighbour_is_of_the_same_kind():
    found = embed(conditions(), SOURCE)
    names, points = list(found), np.array(list(found.values()))
    distances = np.linalg.norm(points[:, None] - points, axis=-1) + np.diag([np.inf] * len(points))
    assert all(names[i][0] == names[j][0] for i, j in enumerate(distances.argmin(1)))
    assert found == embed(conditions(), SOURCE)
    assert found["0 0"].x == points[0, 0]


def test_units_of_a_channel_do_not_matter():
    def scaled(each):
        factor = torch.logspace(-2, 2, 12, dtype=torch.float64)
        return statistics((each["bn0"].mean * factor, each["bn0"].var * factor**2))

    one, other = conditions(2, 4), {name: scaled(each) for name, each in conditions(2, 4).items()}
    np.testing.assert_allclose(
        list(embed(one, SOURCE).values()), list(embed(other, scaled(SOURCE)).values()), rtol=1e-2, atol=0.5
    )


BAD = [
    (lambda: embed({"fog": random_statistics(0)}, random_statistics(1)), "at least 3 conditions .* got 1"),
    (lambda: embed(conditions(), SOURCE, perplexity=24), "below the 24 conditions, got 24"),
    (lambda: embed(conditions(), random_statistics(0)), "different models or layers"),
    (lambda: embed({**conditions(), "x": statistics((np.zeros(12), np.ones(12)), images=0)}, SOURCE), "no images"),
    (lambda: embed(dict.fromkeys("abc", SOURCE), SOURCE), "the same statistics"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input(call, message):
    with pytest.raises(CovshiftError, match=message):
        call()
