"""What the exchange wants done, and what it tells. The caller carries them out in the order they come in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeAlias

from gateway.core.exchange.entry import R
from gateway.core.exchange.events import A


@dataclass(frozen=True, slots=True)
class Pack(Generic[R]):
    """Encode this run for this lane, then say ``Packed``. Until then nothing else is asked for this lane.

    Attributes:
        lane: the lane.
        run: the run.
        attempt: how often it was dispatched, this time included.
    """

    lane: str
    run: R
    attempt: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send what was packed last for this lane, then say ``Sent``: the credit for it is taken."""

    lane: str
    first_seq: int


@dataclass(frozen=True, slots=True)
class Dispatched(Generic[R]):
    """A run is on its way; ``sent_bytes`` is 0 when no row of it passes the early predicates."""

    lane: str
    run: R
    raw_bytes: int
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """An answer was taken. The input of ``runs`` is not needed any more.

    Attributes:
        lane: who answered.
        first_seq: of the answer.
        last_seq: of the answer.
        runs: the runs that are completed by it, in order of seq.
        counts: False for a duplicate. Its results are dropped, and ``runs`` has only what was logged again although it
            was done before, as a stateful query does on recovery.
        isolated: the first seqs of the runs whose answer says nothing of latency.
        batch_id: as answered.
        batch_s: as answered.
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
        results: as answered.
        events: how many events they come from.
        arrival_s: the mean arrival of these events.
        late: they come after later results, and the user is told.
    """

    first_seq: int
    last_seq: int
    results: A
    events: int
    arrival_s: float
    late: bool


@dataclass(frozen=True, slots=True)
class FailLane:
    """Give this lane up: it has had work and answered nothing for ``silence_s``. Said once."""

    lane: str
    silence_s: float


@dataclass(frozen=True, slots=True)
class Reopen:
    """Open the stateful query again from its checkpoint: the runs from ``first_seq`` on are overdue."""

    first_seq: int


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """A run is overdue in this lane: it waits once more, and goes elsewhere if it can."""

    lane: str
    first_seq: int


@dataclass(frozen=True, slots=True)
class Moved:
    """No run of a lost lane waits for another lane any more.

    Attributes:
        lane: the lost lane.
        reason: why it was lost.
        runs: how many were open in it.
        lost_s: when it was lost.
        first_s: when the first was given to another lane.
        last_s: when the last was, or was answered by a lane in which it was overdue.
    """

    lane: str
    reason: str
    runs: int
    lost_s: float
    first_s: float
    last_s: float


Instruction: TypeAlias = Pack[R] | Send | Dispatched[R] | Done[R] | Release[A] | FailLane | Reopen | AskedAgain | Moved
