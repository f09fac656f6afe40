"""Compute the normal distribution for arrays without SciPy, which takes longer to load than to use."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

_FAR: Final = 40.0  # standard deviations beyond which floats hold only 0 and 1
_ROOT_HALF: Final = math.sqrt(0.5)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def ndtr(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return P(a standard normal is at most x), to the last digits in both tails; infinities give 0 and 1."""
    probabilities: NDArray[np.float64] = np.where(x > 0, 1.0, 0.0)
    near = np.abs(x) < _FAR
    probabilities[near] = 0.5 * np.asarray(_erfc(-_ROOT_HALF * x[near]), dtype=np.float64)
    return probabilities
