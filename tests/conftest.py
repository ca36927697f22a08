"""Settings for all tests."""

import torch

# Workers side by side, each with threads of its own, would wait for each other most of the time.
torch.set_num_threads(1)
