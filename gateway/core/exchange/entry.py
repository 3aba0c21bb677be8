"""The exchange's record of one run: where it is, to which lanes it was dispatched, and the story of its life."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, Protocol, TypeVar

# Steps of a run's story that are kept.
STEPS_MAX = 32

_NOWHERE: frozenset[str] = frozenset()


class SeqRange(Protocol):
    """A contiguous range of seq. The exchange does not look at its content."""

    @property
    def first_seq(self) -> int:
        """Its first seq."""
        ...

    @property
    def last_seq(self) -> int:
        """Its last seq."""
        ...

    @property
    def events(self) -> int:
        """How many events it has: all from ``first_seq`` to ``last_seq``, or some of them if it is a part of a run."""
        ...

    @property
    def arrival_s(self) -> float:
        """The mean due time of its events on the gateway's monotonic clock."""
        ...

    @property
    def disordered(self) -> bool:
        """Whether it must stay at home, because its events came out of order."""
        ...


R = TypeVar("R", bound=SeqRange)
"""The caller's run."""


class RunState(Enum):
    """The state of a run. A committed run is not kept."""

    WAITING = "waiting"
    OPEN = "open in a lane"
    HELD = "answered, and held for an earlier run"
    RELEASED = "released, and not committed yet"


@dataclass(slots=True, eq=False)
class Copy:
    """One run as it was dispatched to one lane.

    Attributes:
        first_seq: the run's.
        events: the run's.
        attempt: the number of its last dispatch to this lane.
        open: False once it is overdue here: it takes no room any more, but an answer still counts.
        tried: whether it has been overdue here.
        isolating: the host looks for bad rows in it.
        put_at_s: when it was last dispatched.
        empty: no row passes the early predicates, so nothing is sent to the host.
        sent_at_s: when it was last sent; None if it was not sent yet.
    """

    first_seq: int
    events: int
    attempt: int = 0
    open: bool = False
    tried: bool = False
    isolating: bool = False
    empty: bool = False
    sent_at_s: float | None = None
    put_at_s: float = 0.0


@dataclass(slots=True, eq=False)
class Move:
    """The runs of a lost lane that move elsewhere; ``left`` of them are in no other lane yet."""

    lane: str
    reason: str
    lost_s: float
    runs: int
    left: int
    first_s: float | None = None


@dataclass(slots=True, eq=False)
class RunEntry(Generic[R]):
    """One run, from logged to committed.

    Attributes:
        first_seq: its first seq.
        last_seq: its last seq.
        events: how many events it has.
        run: the caller's run; None once it is done, so that its input can be freed.
        done_before: it was done before it was logged, which happens when a stateful query recovers.
        state: its state.
        attempt: how often it was dispatched.
        lane: the lane in which it is open.
        counted_in: the lane in which the profiler counts it.
        copies: its copy in each lane where it is open or overdue.
        move: the move from a lost lane that it belongs to while it waits.
        recalled: results waited too long for it, so that home does it now.
        steps: the last steps of its story: (when, what as a format, its arguments).
    """

    first_seq: int
    last_seq: int
    events: int
    run: R | None
    done_before: bool = False
    state: RunState = RunState.WAITING
    attempt: int = 0
    lane: str | None = None
    counted_in: str | None = None
    copies: dict[str, Copy] = field(default_factory=dict)
    move: Move | None = None
    recalled: bool = False
    steps: list[tuple[float, str, tuple[object, ...]]] = field(default_factory=list)

    @property
    def held_run(self) -> R:
        """The caller's run, while it is not done."""
        assert self.run is not None, f"run {self.first_seq} is done, and its input is gone"
        return self.run

    @property
    def tried(self) -> frozenset[str]:
        """The lanes in which it has been overdue."""
        if not self.copies:
            return _NOWHERE
        return frozenset(lane for lane, copy in self.copies.items() if copy.tried)

    @property
    def isolating(self) -> bool:
        """Whether a host looks for bad rows in it."""
        return any(copy.isolating for copy in self.copies.values())

    def note(self, at_s: float, what: str, *arguments: object) -> None:
        """Add a step to the story; only the last ones are kept."""
        self.steps.append((at_s, what, arguments))
        if len(self.steps) > STEPS_MAX:
            del self.steps[0]

    def story(self) -> list[str]:
        """Return the last steps as sentences."""
        name = f"run {self.first_seq}-{self.last_seq}"
        return [f"At {at_s:.3f} s {name} {what.format(*arguments)}." for at_s, what, arguments in self.steps]
