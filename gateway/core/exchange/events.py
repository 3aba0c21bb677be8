"""The events of the exchange. Every event has its time, in seconds on the gateway's monotonic clock.

An event of a lane that is not open is ignored: its sender could not know that the lane was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from gateway.core.exchange.entry import R

A = TypeVar("A")
"""The results of an answer. The exchange passes them on and never looks at them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _At:
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLogged(_At, Generic[R]):
    """A run is in the run log and waits for a lane."""

    run: R


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneOpened(_At):
    """The query is open on a host.

    Attributes:
        lane: the name of the lane.
        credit_bytes: how many payload bytes the host allows in flight.
        planned_end_seq: a micro-batch that ends before this seq was planned before the host was lost. It answers
            nothing before it has all its runs.
    """

    lane: str
    credit_bytes: int
    planned_end_seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLost(_At):
    """A lane is gone.

    Attributes:
        lane: the name of the lane.
        reason: why it was lost; empty if it was removed on purpose.
        lost_s: when its loss was noticed, if that was before ``at_s``.
    """

    lane: str
    reason: str = ""
    lost_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneDraining(_At):
    """A lane is to end: it gets no further run, and answers the runs it has."""

    lane: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesSet(_At):
    """The scheduler's shares of the events by lane, in [0, 1]; they may name lanes that are not open."""

    shares: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed(_At):
    """The request ``Pack`` was carried out.

    Attributes:
        lane: the lane for which it was packed.
        first_seq: the run's.
        raw_bytes: its size before trimming and compression.
        payload_bytes: its size when it is sent.
        rows: how many rows pass the early predicates. If none does, nothing is sent, and the sender of this event
            answers the run.
    """

    lane: str
    first_seq: int
    raw_bytes: int
    payload_bytes: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent(_At):
    """The request ``Send`` was carried out; it took ``took_s``."""

    lane: str
    first_seq: int
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolating(_At):
    """The host looks for bad rows in a run: the time that this takes says nothing about the lane."""

    lane: str
    first_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(_At, Generic[A]):
    """A lane has completed one run, or several whole consecutive ones.

    Attributes:
        lane: the lane.
        first_seq: of the first run.
        last_seq: of the last run.
        results: of all of them.
        result_bytes: their size.
        batch_id: the micro-batch at the host.
        batch_s: how long that took for all its runs.
    """

    lane: str
    first_seq: int
    last_seq: int
    results: A
    result_bytes: int
    batch_id: int
    batch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Credited(_At):
    """The host has consumed payload bytes."""

    lane: str
    consumed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(_At):
    """No run may be dispatched from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(_At):
    """Runs may be dispatched again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSet(_At):
    """From now on the runs of a stateful query go to this lane, which may be opened later."""

    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsBounded(_At):
    """From now on dispatch stops at this many bytes of uncommitted results (at least 1), or at ``held_bytes_max``."""

    bound_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(_At):
    """The sink has committed these closed ranges of seq, all released before. A range may span several releases."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick(_At):
    """Time has passed: check which runs are overdue, which lanes are silent, and which results wait no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPassed(_At):
    """A slot has ended: older measurements of the lanes' rates fade."""


ExchangeEvent: TypeAlias = (
    RunLogged[R]
    | LaneOpened
    | LaneLost
    | LaneDraining
    | SharesSet
    | Packed
    | Sent
    | Isolating
    | Answered[A]
    | Credited
    | Held
    | Resumed
    | PlaceSet
    | ResultsBounded
    | Committed
    | Tick
    | SlotPassed
)
