"""The square root, which makes the noise of counts about equally wide at every level.

Rates and latencies are sums of many small causes, so they vary more where they are greater; the square root of a count
does not (Bartlett 1936). The Gaussian process works on 2 sqrt(y).
"""

from __future__ import annotations

import numpy as np

from policies.arrays import Array


def warped(y: Array) -> Array:
    """Return 2 sqrt(y); values below 0 count as 0."""
    return 2.0 * np.sqrt(np.maximum(y, 0.0))


def unwarped(mean: Array, std: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of y, if 2 sqrt(y) is normal with these.

    With g normal, y = g^2 / 4 has the mean (m^2 + s^2) / 4 and the variance (4 m^2 s^2 + 2 s^4) / 16. Where m is below
    0, y counts as 0, and its mean is only the contribution of the noise.
    """
    above = np.maximum(mean, 0.0)
    return (above**2 + std**2) / 4.0, std * np.sqrt(4.0 * above**2 + 2.0 * std**2) / 4.0
