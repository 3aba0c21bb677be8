"""The time of a stream, which never falls: that of the newest event so far."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
"""64-bit integers, such as times in ms; docstrings give the shape."""


def stream_times(times_ms: Int64Array, before_ms: int | None) -> Int64Array:
    """Return the stream's time at each event: an event that is older than one before it does not turn it back.

    Args:
        times_ms: of the events, shape (events,).
        before_ms: the stream's time before them; None before the first event.
    """
    newest = np.maximum.accumulate(times_ms)
    return newest if before_ms is None else np.maximum(newest, before_ms)
