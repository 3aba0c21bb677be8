"""The features of a moment for a Gaussian process: timestamp, time of day, day of week, number of engines (III-B)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.arrays import Array, finite

DAY_S = 86_400.0

TIMESTAMP, TIME_OF_DAY, DAY_OF_WEEK, ENGINES = range(4)
"""The columns of ``features``, in days, hours, days since Monday 0:00, and engines."""

_MONDAY = 3.0
"""The Epoch fell on a Thursday."""


def features(at_s: npt.ArrayLike, engines: npt.ArrayLike | None = None) -> Array:
    """Return the feature vectors of some moments, shape (n, 3), or (n, 4) with the number of engines.

    The day of week is a whole number, as in the paper; the timestamp and the time of day are not.

    Args:
        at_s: seconds since the Epoch (wall clock), shape (n,).
        engines: how many engines run then, shape (n,); latency depends on it, the input does not.
    """
    days = finite("at_s", at_s, 1) / DAY_S
    columns = [days, days % 1.0 * 24.0, np.floor(days + _MONDAY) % 7.0]
    if engines is not None:
        columns.append(finite("engines", engines, 1))
    return np.column_stack(columns)
