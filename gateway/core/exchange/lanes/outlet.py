"""The queue to one lane's host: one run at a time is packed and sent, as far as the host's credit allows."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum

from gateway.core.exchange.lanes.credit import CreditWindow


class Phase(Enum):
    """The state of the run that is sent next."""

    PACKING = "is being packed"
    PACKED = "waits for credit"
    SENDING = "is being sent"


@dataclass(slots=True)
class _Outgoing:
    first_seq: int
    phase: Phase = Phase.PACKING
    payload_bytes: int = 0


class Outlet:
    """The queue of one lane, the run that is sent next, and the credit.

    Args:
        name: the lane's.
        credit_bytes: how many payload bytes may be in flight.
    """

    def __init__(self, name: str, credit_bytes: int) -> None:
        self._name = name
        self.credit = CreditWindow(credit_bytes)
        self._queue: OrderedDict[int, None] = OrderedDict()
        self._outgoing: _Outgoing | None = None

    @property
    def has_credit(self) -> bool:
        """Whether the host takes any more bytes."""
        return self.credit.in_flight_bytes < self.credit.initial_bytes

    @property
    def empty(self) -> bool:
        """Whether nothing is left to send."""
        return not self._queue and self._outgoing is None

    @property
    def sending(self) -> bool:
        """Whether a send is in progress: between ``Send`` and ``Sent``."""
        return self._outgoing is not None and self._outgoing.phase is Phase.SENDING

    def packs(self, first_seq: int) -> bool:
        """Return whether a run is being packed."""
        out = self._outgoing
        return out is not None and (out.first_seq, out.phase) == (first_seq, Phase.PACKING)

    def __contains__(self, first_seq: int) -> bool:
        return first_seq in self._queue or (self._outgoing is not None and self._outgoing.first_seq == first_seq)

    def put(self, first_seq: int) -> None:
        """Queue a run."""
        self._queue[first_seq] = None

    def drop(self, first_seq: int) -> None:
        """Do not send a run, unless it is being sent. A run that is being packed is dropped afterwards."""
        self._queue.pop(first_seq, None)
        out = self._outgoing
        if out is not None and (out.first_seq, out.phase) == (first_seq, Phase.PACKED):
            self._outgoing = None

    def begin_packing(self) -> int | None:
        """Return the run to pack now, if there is one and the host accepts more bytes."""
        if self._outgoing is not None or not self._queue or not self.has_credit:
            return None
        first_seq, _ = self._queue.popitem(last=False)
        self._outgoing = _Outgoing(first_seq)
        return first_seq

    def check(self, first_seq: int, phase: Phase) -> None:
        """Check that a run is in this phase.

        Raises:
            ValueError: it is not.
        """
        if self._outgoing is None or (self._outgoing.first_seq, self._outgoing.phase) != (first_seq, phase):
            raise ValueError(f"lane {self._name}: run {first_seq} is not the one that {phase.value}: {self._outgoing}")

    def packed(self, payload_bytes: int) -> None:
        """Note the size of the run that was packed."""
        assert self._outgoing is not None
        self._outgoing.phase, self._outgoing.payload_bytes = Phase.PACKED, payload_bytes

    def begin_sending(self) -> int | None:
        """Return the packed run, if there is one and the credit covers it; takes the credit."""
        outgoing = self._outgoing
        if outgoing is None or outgoing.phase is not Phase.PACKED or not self.credit.take(outgoing.payload_bytes):
            return None
        outgoing.phase = Phase.SENDING
        return outgoing.first_seq

    def passed(self) -> None:
        """Note that the outgoing run was sent, or will not be."""
        self._outgoing = None

    def validate(self) -> None:
        """Assert that everything that could be sent is being sent."""
        self.credit.validate()
        if self._queue and self.has_credit:
            assert self._outgoing is not None, f"lane {self._name} has runs and credit, and packs none"
        outgoing = self._outgoing
        if outgoing is not None:
            assert outgoing.first_seq not in self._queue, f"run {outgoing.first_seq} is queued twice in {self._name}"
            if outgoing.phase is Phase.PACKED:
                covered = outgoing.payload_bytes <= self.credit.available_bytes or not self.credit.in_flight_bytes
                assert not covered, f"run {outgoing.first_seq} has credit in lane {self._name}, and is not sent"
