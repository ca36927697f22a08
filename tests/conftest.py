"""Settings for all tests."""

import hypothesis
import torch

# Workers side by side, each with threads of its own, would wait for each other most of the time.
torch.set_num_threads(1)

# The same examples each time, and as long as they take: machines are slow at times.
hypothesis.settings.register_profile(
    "covshift", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("covshift")
