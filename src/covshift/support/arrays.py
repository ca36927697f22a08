"""The type of NumPy arrays of any shape and any kind of number."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
