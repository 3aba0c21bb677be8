"""What the exchange knows of one run: where it is, in which lanes it was asked for, and the story of its life."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, Protocol, TypeVar

# Steps of a run's story that are kept.
STEPS_MAX = 32

_NOWHERE: frozenset[str] = frozenset()


class SeqRange(Protocol):
    """A contiguous range of seq, as the exchange sees it. What is in it is the caller's."""

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
        """How many events it has: all from ``first_seq`` to ``last_seq``."""
        ...

    @property
    def arrival_s(self) -> float:
        """The mean due time of its events on the gateway's monotonic clock."""
        ...

    @property
    def disordered(self) -> bool:
        """Whether it may not leave home, because its events came out of order."""
        ...


R = TypeVar("R", bound=SeqRange)
"""The caller's run."""


class RunState(Enum):
    """Where a run is. One that is committed is not kept."""

    WAITING = "waiting"
    OPEN = "open in a lane"
    HELD = "answered, and held for an earlier run"
    RELEASED = "released, and not committed yet"


@dataclass(slots=True, eq=False)
class Copy:
    """One run as one lane was asked for it.

    Attributes:
        first_seq: the run's.
        events: the run's.
        attempt: the run's dispatch that brought it here last.
        open: False once it is overdue here: no room is kept for it, but an answer counts.
        tried: it has been overdue here.
        isolating: the host looks for bad rows in it.
        empty: no row passes the early predicates, so that the host is not asked.
        sent_at_s: when it was sent last; None if it was not yet.
    """

    first_seq: int
    events: int
    attempt: int = 0
    open: bool = False
    tried: bool = False
    isolating: bool = False
    empty: bool = False
    sent_at_s: float | None = None


@dataclass(slots=True, eq=False)
class Move:
    """The runs of a lost lane on their way elsewhere; ``left`` of them no other lane has yet."""

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
        run: the caller's run; None once it is done, so that its input is not kept.
        done_before: it was done before it was logged, as happens when a stateful query recovers.
        state: where it is.
        attempt: how often it was dispatched.
        lane: the lane that it is open in.
        told: the lane that the profiler counts it in.
        copies: by lane, how it was asked for: where it is open, and where it is overdue.
        move: the move from a lost lane that it takes part in while it waits.
        steps: the last steps of its story: (when, what as a format, its arguments).
    """

    first_seq: int
    last_seq: int
    run: R | None
    done_before: bool = False
    state: RunState = RunState.WAITING
    attempt: int = 0
    lane: str | None = None
    told: str | None = None
    copies: dict[str, Copy] = field(default_factory=dict)
    move: Move | None = None
    steps: list[tuple[float, str, tuple[object, ...]]] = field(default_factory=list)

    @property
    def events(self) -> int:
        """How many events it has."""
        return self.last_seq - self.first_seq + 1

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
