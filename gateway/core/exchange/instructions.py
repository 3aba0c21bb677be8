"""The instructions and reports of the exchange. The caller carries them out in this order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeAlias

from gateway.core.exchange.entry import R
from gateway.core.exchange.events import A


@dataclass(frozen=True, slots=True)
class Pack(Generic[R]):
    """Encode this run for this lane, then report ``Packed``. Until then there is no other request for this lane.

    Attributes:
        lane: the lane.
        run: the run.
        attempt: how often it was dispatched, with this time.
    """

    lane: str
    run: R
    attempt: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send what was packed last for this lane, then report ``Sent``: the credit for it is taken."""

    lane: str
    first_seq: int


@dataclass(frozen=True, slots=True)
class Dispatched(Generic[R]):
    """A run is being sent; ``sent_bytes`` is 0 if no row of it passes the early predicates."""

    lane: str
    run: R
    raw_bytes: int
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """An answer was accepted. The input of ``runs`` is not needed any more.

    Attributes:
        lane: the lane that answered.
        first_seq: of the answer.
        last_seq: of the answer.
        runs: the runs that it completes, in order of seq.
        counts: False for a duplicate. Its results are dropped, and ``runs`` has only runs that were logged again
            although they were done before, as a stateful query does on recovery.
        isolated: the first seqs of the runs whose answer says nothing about latency.
        batch_id: from the answer.
        batch_s: from the answer.
    """

    lane: str
    first_seq: int
    last_seq: int
    runs: tuple[R, ...]
    counts: bool
    isolated: tuple[int, ...]
    batch_id: int
    batch_s: float


@dataclass(frozen=True, slots=True)
class Release(Generic[A]):
    """Results may go to the sink now.

    Attributes:
        first_seq: of the answer.
        last_seq: of the answer.
        results: from the answer.
        events: how many events they belong to.
        arrival_s: the mean arrival of these events.
        late: whether they are released after later results, which the user is told.
    """

    first_seq: int
    last_seq: int
    results: A
    events: int
    arrival_s: float
    late: bool


@dataclass(frozen=True, slots=True)
class FailLane:
    """Abandon this lane: it has had work and answered nothing for ``silence_s``. Reported once."""

    lane: str
    silence_s: float


@dataclass(frozen=True, slots=True)
class Reopen:
    """Open the stateful query again from its checkpoint: the runs from ``first_seq`` on are overdue."""

    first_seq: int


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """A run is overdue in this lane: it waits once more, and is dispatched elsewhere if possible."""

    lane: str
    first_seq: int


@dataclass(frozen=True, slots=True)
class RunRecalled:
    """Results waited too long for a run in this lane: home does it now, and the first answer counts.

    Attributes:
        lane: the lane.
        first_seq: the run's.
        in_lane_s: how long it has been there.
        pause_s: how long the lane gets no other run.
    """

    lane: str
    first_seq: int
    in_lane_s: float
    pause_s: float


@dataclass(frozen=True, slots=True)
class Moved:
    """No run of a lost lane waits for another lane any more.

    Attributes:
        lane: the lost lane.
        reason: why it was lost.
        runs: how many runs were open in it.
        lost_s: when it was lost.
        first_s: when the first of them was dispatched to another lane.
        last_s: when the last was, or was answered by a lane in which it was overdue.
    """

    lane: str
    reason: str
    runs: int
    lost_s: float
    first_s: float
    last_s: float


Instruction: TypeAlias = (
    Pack[R] | Send | Dispatched[R] | Done[R] | Release[A] | FailLane | Reopen | AskedAgain | RunRecalled | Moved
)
