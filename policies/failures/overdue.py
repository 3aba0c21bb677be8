"""When a run is dispatched again, and when a lane is abandoned. Pure, no clock.

TLS loses nothing, but a host may: a broken or stuck host answers heartbeats and completes nothing. The usual time of a
lane is learned from its own completions, so a slow query is not mistaken for a stuck one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for a lane.

    Attributes:
        least_s: a run is never overdue before this time.
        times: a run is overdue after this multiple of the lane's usual time.
        unknown_s: a run is overdue after this time in a lane that has completed nothing yet.
        silences: a lane is abandoned when it has been silent for this multiple of the time that makes a run overdue.
        isolating_s: runs that wait for a search for bad rows are overdue after this time all the same. An engine host
            ends a search sooner, and one micro-batch is searched three times at most, for 300 s each.
    """

    least_s: float = 10.0
    times: float = 8.0
    unknown_s: float = 120.0
    silences: float = 3.0
    isolating_s: float = 1200.0
