"""How long a lane usually takes, and how long it has been silent.

TLS loses nothing, but a host may: a broken or stuck host answers heartbeats and completes nothing. The usual time of a
lane is learned from its own completions, so a slow query is not mistaken for a stuck one.
"""

from __future__ import annotations

from policies.failures.overdue import Patience

# The weight of the last answer in the lane's usual time.
_WEIGHT = 0.2
# How often the time that a run gets is doubled, at most.
DOUBLINGS_MAX = 3


class LaneWatch:
    """Decides when a run of one lane is overdue, and whether to abandon the lane. It keeps no runs.

    Args:
        patience: how long to wait for the lane.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._usual_s: float | None = None
        self._silent_s = 0.0
        self._silent_since_s: float | None = None

    @property
    def usual_s(self) -> float | None:
        """The lane's usual time from the sending of a run to its answer; None before the first."""
        return self._usual_s

    def sent(self, now_s: float, held_back_s: float) -> None:
        """Note that a run was sent, after the link had delayed it for ``held_back_s``, which is not silence."""
        if self._silent_since_s is not None:
            self._silent_since_s = min(now_s, self._silent_since_s + held_back_s)

    def works(self, working: bool, now_s: float) -> None:
        """Note whether the lane has anything to answer: its silence counts only then."""
        if working and self._silent_since_s is None:
            self._silent_since_s = now_s
        elif not working and self._silent_since_s is not None:
            self._silent_s += now_s - self._silent_since_s
            self._silent_since_s = None

    def answered(self, now_s: float, sent_at_s: float | None) -> None:
        """Note an answer, even a late one; ``sent_at_s`` is None if its time says nothing."""
        self._silent_s = 0.0
        if self._silent_since_s is not None:
            self._silent_since_s = now_s
        if sent_at_s is None:
            return
        service_s, usual_s = now_s - sent_at_s, self._usual_s
        self._usual_s = service_s if usual_s is None else usual_s + _WEIGHT * (service_s - usual_s)

    def overdue_after_s(self, doublings: int) -> float:
        """Return how long after its sending a run is overdue; each attempt gets twice the time of the last."""
        return self._run_s * 2.0**doublings

    def waiting_s(self, now_s: float) -> float | None:
        """Return how long the lane has had work and answered nothing; None while it has no work."""
        return None if self._silent_since_s is None else now_s - self._silent_since_s

    def silence_s(self, now_s: float, *, held_back: bool) -> float | None:
        """Return how long the lane has had work and answered nothing, if that is too long.

        Args:
            now_s: now.
            held_back: a send is in progress, so that the lane cannot answer sooner.
        """
        since_s = now_s if self._silent_since_s is None else self._silent_since_s
        silent_s = self._silent_s + now_s - since_s
        run_s = max(self._run_s, self._patience.unknown_s) if held_back else self._run_s
        return silent_s if silent_s > run_s * self._patience.silences else None

    @property
    def _run_s(self) -> float:
        if self._usual_s is None:
            return self._patience.unknown_s
        return max(self._patience.least_s, self._patience.times * self._usual_s)
