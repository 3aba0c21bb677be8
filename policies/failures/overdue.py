"""When a run is dispatched again, and when a lane is abandoned: pure, no clock.

TLS loses nothing, but a host may: one that is broken or stuck answers heartbeats and completes nothing. What a lane
usually takes is learnt from its own completions, so a slow query is not taken for a stuck one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a lane is waited for.

    Attributes:
        least_s: a run is never overdue before.
        times: a run is overdue after so many times what the lane usually takes.
        unknown_s: a run is overdue after this in a lane that has completed nothing yet.
        silences: a lane is given up when it has been silent for so many times what makes a run overdue.
    """

    least_s: float = 10.0
    times: float = 8.0
    unknown_s: float = 120.0
    silences: float = 3.0
