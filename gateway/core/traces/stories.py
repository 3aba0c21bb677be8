"""Collects from the events and instructions of an exchange what happened to some of its runs, and when. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from gateway.core.exchange.entry import SeqRange
from gateway.core.exchange.events import Committed, ExchangeEvent, LaneLost, Packed, RunLogged, Sent
from gateway.core.exchange.instructions import AskedAgain, Done, Instruction, Pack, Release, RunRecalled

OPEN_MOST: Final = 256
"""So many runs of one exchange are followed at a time; others are not followed meanwhile."""

VISITS_MOST: Final = 16
"""So many dispatches of one run are kept, the first ones."""


class TracedRun(SeqRange, Protocol):
    """A run, with what a trace says of it besides."""

    @property
    def raw_bytes(self) -> int:
        """Its size in memory."""
        ...

    @property
    def read_s(self) -> float | None:
        """When it had been read from the source; None if that is unknown."""
        ...


@dataclass(slots=True)
class Visit:
    """One dispatch of a run to a lane; times on the gateway's clock, None as long as something has not happened.

    Attributes:
        lane: the lane.
        attempt: the number of the dispatch.
        begun_s: when packing began.
        packed_s: when it was packed.
        payload_bytes: its size when it is sent.
        rows: how many rows pass the early predicates; without any, nothing is sent.
        sent_s: when it was sent.
        ended_s: when it was answered, or given up.
        why: why it was given up; empty if this lane answered.
    """

    lane: str
    attempt: int
    begun_s: float
    packed_s: float | None = None
    payload_bytes: int = 0
    rows: int = 0
    sent_s: float | None = None
    ended_s: float | None = None
    why: str = ""


@dataclass(slots=True)
class RunStory:
    """What happened to one run until it was committed; times on the gateway's clock.

    Attributes:
        first_seq: of the run.
        last_seq: of the run.
        events: how many it has.
        raw_bytes: its size in memory.
        arrival_s: the mean due time of its events.
        read_s: when it had been read; None if that is unknown.
        logged_s: when it was in the run log.
        visits: its dispatches.
        answered_s: when its first answer came.
        batch_id: the micro-batch at the host; negative if the answer was known without the host.
        batch_s: how long that took.
        back_s: how long the answer was under way, estimated.
        isolated: whether the host looked for bad rows in it.
        released_s: when its results could go to the sink.
        late: whether that was after later results.
        committed_s: when the sink had them.
    """

    first_seq: int
    last_seq: int
    events: int
    raw_bytes: int
    arrival_s: float
    read_s: float | None
    logged_s: float
    visits: list[Visit] = field(default_factory=list)
    answered_s: float = 0.0
    batch_id: int = -1
    batch_s: float = 0.0
    back_s: float = 0.0
    isolated: bool = False
    released_s: float = 0.0
    late: bool = False
    committed_s: float = 0.0

    def visit(self, lane: str) -> Visit | None:
        """Return the last dispatch to a lane that has not ended."""
        return next((each for each in reversed(self.visits) if each.lane == lane and each.ended_s is None), None)


class Stories:
    """The runs of one exchange that are followed.

    Args:
        wanted: returns whether the run that begins at a seq is followed.
    """

    def __init__(self, wanted: Callable[[int], bool]) -> None:
        self._wanted = wanted
        self._open: dict[int, RunStory] = {}

    @property
    def open_count(self) -> int:
        """How many runs are followed now."""
        return len(self._open)

    def take(
        self, event: ExchangeEvent[Any, Any], done: Iterable[Instruction[Any, Any]], rtt_s: float | None = None
    ) -> list[RunStory]:
        """Take an event of the exchange, with its instructions; return the stories that it ends.

        Args:
            event: of the exchange.
            done: what the exchange said to it.
            rtt_s: the round trip to the host that answered, if it is known.
        """
        if isinstance(event, RunLogged):
            self._begin(event.run, event.at_s)
        if not self._open:
            return []
        self._see(event)
        for instruction in done:
            self._follow(instruction, event.at_s, 0.0 if rtt_s is None else rtt_s / 2)
        return self._end(event) if isinstance(event, Committed) else []

    def _begin(self, run: TracedRun, at_s: float) -> None:
        if len(self._open) < OPEN_MOST and self._wanted(run.first_seq):
            self._open[run.first_seq] = RunStory(
                run.first_seq, run.last_seq, run.events, run.raw_bytes, run.arrival_s, run.read_s, at_s
            )

    def _see(self, event: ExchangeEvent[Any, Any]) -> None:
        match event:
            case Packed() if visit := self._visit(event.lane, event.first_seq):
                visit.packed_s, visit.payload_bytes, visit.rows = event.at_s, event.payload_bytes, event.rows
            case Sent() if visit := self._visit(event.lane, event.first_seq):
                visit.sent_s = event.at_s
            case LaneLost():
                for story in self._open.values():
                    if visit := story.visit(event.lane):
                        visit.ended_s, visit.why = event.at_s, event.reason or "the lane was removed"
            case _:
                pass

    def _visit(self, lane: str, first_seq: int) -> Visit | None:
        story = self._open.get(first_seq)
        return None if story is None else story.visit(lane)

    def _follow(self, what: Instruction[Any, Any], at_s: float, back_s: float) -> None:
        match what:
            case Pack(lane=lane, run=run, attempt=attempt):
                story = self._open.get(run.first_seq)
                if story is not None and len(story.visits) < VISITS_MOST:
                    story.visits.append(Visit(lane, attempt, at_s))
            case AskedAgain(lane=lane, first_seq=first_seq):
                if visit := self._visit(lane, first_seq):
                    visit.why = "overdue"
            case RunRecalled(lane=lane, first_seq=first_seq):
                if visit := self._visit(lane, first_seq):
                    visit.why = "recalled"
            case Done():
                self._answered(what, at_s, back_s)
            case Release(first_seq=first_seq, last_seq=last_seq, late=late):
                for story in self._between(first_seq, last_seq):
                    story.released_s, story.late = at_s, late
            case _:
                pass

    def _answered(self, done: Done[Any], at_s: float, back_s: float) -> None:
        for run in done.runs:
            if not done.counts:  # it was committed before it was logged again, and will not be again
                self._open.pop(run.first_seq, None)
            elif (story := self._open.get(run.first_seq)) is not None:
                story.answered_s, story.back_s = at_s, back_s
                story.batch_id, story.batch_s = done.batch_id, done.batch_s
                story.isolated = run.first_seq in done.isolated
                _end_visits(story, story.visit(done.lane), at_s)

    def _between(self, first_seq: int, last_seq: int) -> Sequence[RunStory]:
        return [story for seq, story in self._open.items() if first_seq <= seq <= last_seq]

    def _end(self, event: Committed) -> list[RunStory]:
        ended = [story for first_seq, last_seq in event.ranges for story in self._between(first_seq, last_seq)]
        for story in ended:
            del self._open[story.first_seq]
            story.committed_s = event.at_s
        return ended


def _end_visits(story: RunStory, answering: Visit | None, at_s: float) -> None:
    for visit in story.visits:
        if visit.ended_s is None:
            visit.ended_s = at_s
            visit.why = "" if visit is answering else visit.why or "another lane answered"
