"""The width of a forecast's interval, learned from recent errors: conformal prediction over a sliding window.

A Gaussian process's variance is right only if its kernel is. So an interval is made as wide as needed to contain 90 %
of the last values, in units of each value's expected standard deviation (split conformal prediction: Vovk, Gammerman,
Shafer 2005; over a window, since the world changes). The distance ahead matters: errors of a forecast one step ahead
say little about ten steps ahead.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from policies.arrays import Array

COVERED = 0.9
"""The share of values that the calibrated interval should contain."""

Z_COVERED = float(ndtri(0.5 + COVERED / 2))
"""The half width of that interval in standard deviations."""

ERRORS = 100
"""How many of the last errors are used: enough to distinguish 90 % from 80 %, few enough to follow changes."""

_LEAST_ERRORS = 30
"""With fewer errors the variance is used unchanged."""

_LEAST_FACTOR = 0.1
"""A forecast that was perfect lately is not assumed to stay so."""


def width_factor(z: Array) -> float:
    """Return the factor for standard deviations so that mean +- ``Z_COVERED`` of them contains 90 % of the values.

    That is the smallest width that contains this share of the errors and of one more, future error.

    Args:
        z: the last errors, each divided by its expected standard deviation, shape (n,).
    """
    n = len(z)
    if n < _LEAST_ERRORS:
        return 1.0
    rank = min(math.ceil((n + 1) * COVERED), n)
    return max(float(np.partition(np.abs(z), rank - 1)[rank - 1]) / Z_COVERED, _LEAST_FACTOR)
