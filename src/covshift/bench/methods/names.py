"""The names of the paper's methods, and its numbers of images."""

from covshift.shift.prior import PRIOR_GRID

NONE, PARTIAL, FULL, REVERSE = "none", "partial", "full", "reverse"
"""The model as it is; adapted with little data and with all data; adapted with all, but evaluated on clean images."""

SCENARIOS = (NONE, PARTIAL, FULL)
"""The paper's scenarios: ad hoc, and adapted with little and with all data."""

PARTIAL_IMAGES = 8
PARTIAL_PRIOR = 16.0
"""N for `partial` where no holdout corruption helps to choose it."""

PRIORS = PRIOR_GRID
"""The values of N that are tried on the holdout corruptions."""

GRID_IMAGES = tuple(2**power for power in range(10))
GRID_PRIORS = tuple(2.0**power for power in range(9))
"""The table of the paper's appendix: n = 1 … 512 by N = 1 … 256."""
