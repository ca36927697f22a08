"""Statistics of imagined models, for tests that need no network."""

import numpy as np
import torch

from covshift import Statistics
from covshift.core.moments import Moments


def statistics(*layers, images=8):
    """Statistics with one (means, variances) a layer."""
    moments = [Moments(images, images, torch.as_tensor(m).double(), torch.as_tensor(v).double()) for m, v in layers]
    return Statistics({f"bn{i}": each for i, each in enumerate(moments)}, "a model")


def random_statistics(seed, channels=(5, 9)):
    rng = np.random.default_rng(seed)
    return statistics(*((rng.normal(0, 1, c), rng.uniform(0.1, 3, c)) for c in channels))


def with_unreached(each, channels=4):
    """The same with one more layer, which no image has reached: an auxiliary head, say."""
    nothing = Moments(0, 0, torch.zeros(channels).double(), torch.ones(channels).double())
    return Statistics({**each, "aux": nothing}, each.fingerprint)
