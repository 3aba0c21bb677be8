"""When home does a run that results wait for, and how long its lane rests then."""

from __future__ import annotations

_PAUSE_TIMES = 4.0
"""The first pause, as a multiple of the time that the run was in the lane: trying takes a fifth of the time at most."""
_DOUBLINGS_MOST = 8
_PAUSE_MOST_S = 600.0
_HELD_LEAST_S = 2.0
"""Results wait at least so long: a new VM's first micro-batches, or a pause of a link, are often that long."""
_HOME_WEIGHT = 0.2
"""The weight of the last answer in how long events take at home."""


class HeldPatience:
    """How long results wait for a run in the cloud: as long as events take at home, which is the VM's marginal use.

    An event on a VM spares those at home as long as one takes there (``policies.vms.use``). If results wait for it for
    longer than that, they lose more than they were spared.
    """

    def __init__(self) -> None:
        self._home_s: float | None = None

    def see_home(self, took_s: float) -> None:
        """Note how long the events of an answer took at home, from their arrival."""
        home_s = self._home_s
        self._home_s = took_s if home_s is None else home_s + _HOME_WEIGHT * (took_s - home_s)

    def ends(self, held_s: float, usual_s: float | None) -> bool:
        """Return whether results have waited too long; ``usual_s``: what a run takes in home's lane."""
        return self._home_s is not None and held_s > max(_HELD_LEAST_S, usual_s or 0.0, self._home_s)


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
