"""When a run is asked for again, and when a lane is given up: pure, no clock.

TLS loses nothing, but a host may: one that is broken or stuck answers heartbeats and completes nothing. What a lane
usually takes is learnt from its own completions, so a slow query is not taken for a stuck one.
"""

from __future__ import annotations

from dataclasses import dataclass

_WEIGHT = 0.2
_DOUBLINGS_MAX = 3


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


@dataclass(slots=True)
class _Sent:
    at_s: float
    attempt: int
    overdue: bool = False


class LaneWatch:
    """Tells which runs of one lane are overdue, and whether the lane is to be given up.

    Args:
        patience: how long it is waited for.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._sent: dict[int, _Sent] = {}
        self._usual_s: float | None = None
        self._silent_s = 0.0
        self._silent_since_s: float | None = None

    @property
    def usual_s(self) -> float | None:
        """What the lane usually takes from a run's sending to its completion; None before the first."""
        return self._usual_s

    def sent(self, first_seq: int, attempt: int, now_s: float, held_back_s: float) -> None:
        """Note a run that was sent for the ``attempt``-th time, after the link had held it back for ``held_back_s``."""
        self._sent[first_seq] = _Sent(now_s, attempt)
        if self._silent_since_s is not None:
            self._silent_since_s = min(now_s, self._silent_since_s + held_back_s)

    def works(self, working: bool, now_s: float) -> None:
        """Note whether the lane has anything to answer: only then its silence counts."""
        if working and self._silent_since_s is None:
            self._silent_since_s = now_s
        elif not working and self._silent_since_s is not None:
            self._silent_s += now_s - self._silent_since_s
            self._silent_since_s = None

    def answered(self, first_seq: int, now_s: float) -> None:
        """Note an answer, also one that came late."""
        self._silent_s = 0.0
        if self._silent_since_s is not None:
            self._silent_since_s = now_s
        sent = self._sent.pop(first_seq, None)
        if sent is None:
            return
        service_s, usual_s = now_s - sent.at_s, self._usual_s
        self._usual_s = service_s if usual_s is None else usual_s + _WEIGHT * (service_s - usual_s)

    def forget(self, first_seq: int) -> None:
        """Note that another lane has answered a run."""
        self._sent.pop(first_seq, None)

    def set_aside(self, first_seq: int) -> None:
        """Note that a run takes longer for a reason of its own: it is not overdue, and its answer tells nothing."""
        self._sent.pop(first_seq, None)

    def overdue(self, now_s: float) -> list[int]:
        """Return the first seqs of runs that have become overdue; each sending of a run is given twice as long."""
        late = [
            first_seq
            for first_seq, sent in self._sent.items()
            if not sent.overdue and now_s - sent.at_s > self._run_s * 2.0 ** min(sent.attempt - 1, _DOUBLINGS_MAX)
        ]
        for first_seq in late:
            self._sent[first_seq].overdue = True
        return late

    def waiting_s(self, now_s: float) -> float | None:
        """Return for how long the lane has had work and completed nothing; None while it has no work."""
        return None if self._silent_since_s is None else now_s - self._silent_since_s

    def silence_s(self, now_s: float, *, held_back: bool) -> float | None:
        """Return for how long the lane has had work and completed nothing, if that is too long.

        Args:
            now_s: now.
            held_back: the link holds a send back at present, so that the lane cannot answer sooner.
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
