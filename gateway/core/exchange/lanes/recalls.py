"""How long a lane rests after a run was recalled from it: longer each time, until it answers one that counts."""

from __future__ import annotations

_PAUSE_TIMES = 4.0
"""The first pause, as a multiple of the time that the run was in the lane: trying takes a fifth of the time at most."""
_DOUBLINGS_MOST = 8
_PAUSE_MOST_S = 600.0


class Recalls:
    """Counts the runs of one lane that were recalled without an answer that counts between them.

    Attributes:
        pause_until_s: until then the lane gets no run while home is there.
    """

    def __init__(self) -> None:
        self._count = 0
        self.pause_until_s = 0.0

    def recalled(self, now_s: float, in_lane_s: float) -> float:
        """Note a run that was in the lane for so long; return how long the lane rests."""
        pause_s = min(_PAUSE_MOST_S, _PAUSE_TIMES * 2.0**self._count * in_lane_s)
        self._count = min(self._count + 1, _DOUBLINGS_MOST)
        self.pause_until_s = now_s + pause_s
        return pause_s

    def answered(self) -> None:
        """Note an answer that counts, to a run that was not recalled."""
        self._count = 0
