"""What a VM was good for: how its events did, and what they would have cost the others at home.

An event that goes to a VM spares those behind it at home its service, for as long as the queue there lasts: together
that is as long as an event waits at home, L. It takes T in the cloud instead of L. So its marginal use is L - (T - L).
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.slot import QuerySlot


@dataclass(slots=True)
class BlockUse:
    """Sums over a billed block of one VM.

    Attributes:
        sent_events: events that were dispatched to it.
        home_s: the sum, over these events, of L when they were dispatched, or of L without VMs.
        answered_events: events that it answered first.
        took_s: the sum, over these events, of their time from arrival to answer.
    """

    sent_events: int = 0
    home_s: float = 0.0
    answered_events: int = 0
    took_s: float = 0.0

    def observe(self, vm: str, slot: QuerySlot, home_alone_s: float = 0.0) -> None:
        """Add a slot of a query.

        Args:
            vm: this VM.
            slot: what was measured.
            home_alone_s: what events would wait if none went to VMs, if a policy knows; L is less since they go there.
        """
        sent, answered = slot.dispatched_events.get(vm, 0), slot.completed_events.get(vm, 0)
        self.sent_events += sent
        self.home_s += sent * max(slot.latency_s, home_alone_s)
        if answered and slot.cloud_latency_s is not None:
            self.answered_events += answered
            self.took_s += answered * slot.cloud_latency_s

    @property
    def why_none(self) -> str:
        """Return why it was of no use although events were sent to it; empty if it was of use, or idle."""
        if not self.sent_events:
            return ""
        at_home_s = self.home_s / self.sent_events
        if not self.answered_events:
            return f"it got {self.sent_events:,} events and answered none of them before home did"
        took_s = self.took_s / self.answered_events
        if took_s < 2.0 * at_home_s:
            return ""
        return (
            f"its {self.answered_events:,} events took {took_s:.1f} s, against {at_home_s:.1f} s at home when they "
            f"were sent: each cost {took_s - at_home_s:.1f} s, and spared the others {at_home_s:.1f} s"
        )


class Rest:
    """How long no VM is launched after VMs that were of no use: twice as long after each in a row, an hour at most.

    A VM may be idle because the load fell just when it was ready, so the first idle one in a row has no effect.

    Args:
        first_s: the first rest.
    """

    _MOST_S = 3_600.0
    _DOUBLINGS_MOST = 12

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._in_a_row = self._idle_in_a_row = 0
        self._until_s = 0.0
        self._why = ""

    def useless(self, vm: str, why: str, at_s: float) -> None:
        """Note a VM that was of no use."""
        rest_s = min(self._MOST_S, self._first_s * 2.0 ** min(self._in_a_row, self._DOUBLINGS_MOST))
        self._in_a_row += 1
        self._until_s, self._why = at_s + rest_s, f"{vm} was of no use: {why}"

    def idle(self, vm: str, at_s: float) -> None:
        """Note a VM that is given back and got no event."""
        self._idle_in_a_row += 1
        if self._idle_in_a_row > 1:
            self.useless(vm, f"it got no event, like {self._idle_in_a_row - 1} before it", at_s)

    def useful(self) -> None:
        """Note a VM that was of use."""
        self._in_a_row = self._idle_in_a_row = 0
        self._until_s = 0.0

    def why_none(self, at_s: float) -> str:
        """Return why no VM is launched now, with the time that is left; empty if one may be."""
        left_s = self._until_s - at_s
        return f"no VM is launched for another {left_s:.0f} s, since {self._why}" if left_s > 0 else ""
