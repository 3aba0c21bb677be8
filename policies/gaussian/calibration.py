"""How wide an interval must be, learned from recent errors: conformal prediction over a sliding window.

A Gaussian process's variance is right only if its kernel is. So an interval is made as wide as would have held nine of
ten of the last values, in parts of the standard deviation that had been expected of each (split conformal prediction:
Vovk, Gammerman, Shafer 2005; over a window, since the world changes). How far ahead matters: errors of a forecast one
step ahead say little about ten steps ahead.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from policies.arrays import Array

COVERED = 0.9
"""The part that the calibrated interval is to hold."""

Z_COVERED = float(ndtri(0.5 + COVERED / 2))
"""That interval's half width in standard deviations."""

ERRORS = 100
"""How many of the last errors are used: enough to tell nine of ten from eight, few enough to follow changes."""

_LEAST_ERRORS = 30
"""With fewer errors the variance is used unchanged."""

_LEAST_FACTOR = 0.1
"""A forecast that was lately perfect is not believed to be so for ever."""


def width_factor(z: Array) -> float:
    """Return what to multiply standard deviations by, so that mean +- ``Z_COVERED`` of them holds nine of ten values.

    That is the least width which holds so many of the errors and of one more that is to come.

    Args:
        z: the last errors, each in parts of its expected standard deviation, shape (n,).
    """
    n = len(z)
    if n < _LEAST_ERRORS:
        return 1.0
    rank = min(math.ceil((n + 1) * COVERED), n)
    return max(float(np.partition(np.abs(z), rank - 1)[rank - 1]) / Z_COVERED, _LEAST_FACTOR)
