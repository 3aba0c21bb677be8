"""The engine of a query that keeps state, on the virtual clock: micro-batches, and checkpoints that can be copied.

The feed, which says where micro-batches end, is the production code. Spark's rules are repeated: a micro-batch that was
planned runs again with the same limits, and its state counts once the sink has its results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import gateway.core.exchange.events as ev
from engines.streaming.feed import Feed, Item
from gateway.query.flow.run import BATCH_RUNS_MAX, Run
from gateway.query.moving.batchends import ends_after, ends_in, lines_of, whole_bytes
from gateway.simulate.runs.agenda import Agenda
from gateway.simulate.runs.enginehosts import Reply, SimulatedEngineHost, SimulatedLane, SimulatedLaneOwner
from gateway.simulate.runs.promises import BrokenPromiseError

_FEED_BYTES = 1 << 40


class VirtualClock:
    """The agenda's time, for production code that asks a clock.

    Args:
        agenda: has the time.
    """

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda

    def now(self) -> float:
        """See ``Clock``."""
        return self._agenda.now_s

    def wall(self) -> float:
        """See ``Clock``."""
        return self._agenda.now_s

    async def sleep_until(self, at_s: float) -> None:
        """See ``Clock``; nothing sleeps here."""
        raise RuntimeError(f"nothing sleeps until {at_s} s on a virtual clock")


@dataclass(slots=True)
class Checkpoint:
    """A checkpoint: the state of everything before ``resume_seq``, and where the micro-batch planned after it ends."""

    resume_seq: int = 0
    planned_end_seq: int = 0

    def copied(self) -> Checkpoint:
        """Return a copy of its files."""
        return replace(self)


class HomeDisk:
    """What of a query survives when the gateway is killed: checkpoint, run log, ends of micro-batches, and the sink.

    It checks what it gets.

    Args:
        query: its name.

    Attributes:
        checkpoint: of the newest start at home.
        committed_before: the sink has everything before this seq.
    """

    def __init__(self, query: str) -> None:
        self.checkpoint = Checkpoint()
        self.committed_before = 0
        self._query = query
        self._runs: deque[Run] = deque()
        self._ends = b""
        self._limits: dict[int, int] = {}

    # -------------------------------------------------------------------------------------------------------- run log

    def log(self, run: Run) -> None:
        """Add a run."""
        self._runs.append(run)

    def retire(self, before_seq: int) -> None:
        """Remove the runs that end before this seq, as ``RunLog`` does."""
        while self._runs and self._runs[0].last_seq < before_seq:
            self._runs.popleft()

    def runs_from(self, seq: int) -> list[Run]:
        """Return the runs that begin at this seq or later."""
        return [run for run in self._runs if run.first_seq >= seq]

    # ----------------------------------------------------------------------------------------------------------- sink

    def commit(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Store results.

        Raises:
            BrokenPromiseError: they are not the next ones.
        """
        for first_seq, last_seq in ranges:
            if first_seq != self.committed_before:
                raise BrokenPromiseError(
                    f"{self._query}: {first_seq}-{last_seq} goes to the sink, where {self.committed_before} is next"
                )
            self._limits[first_seq] = last_seq
            self.committed_before = last_seq + 1

    def repeated(self, first_seq: int, last_seq: int) -> None:
        """Check that a micro-batch whose results the sink has was repeated with its limits.

        Raises:
            BrokenPromiseError: it was not.
        """
        if self._limits.get(first_seq) != last_seq:
            raise BrokenPromiseError(f"{self._query}: {first_seq}-{last_seq} is repeated with other limits than before")

    # ------------------------------------------------------------------------------------------ ends of micro-batches

    @property
    def ends(self) -> tuple[int, ...]:
        """The ends that are on disk; see ``BatchEnds``."""
        return ends_in(self._ends)

    def note_ends(self, ends: Sequence[int]) -> None:
        """Add ends."""
        self._ends = self._ends[: whole_bytes(self._ends)] + lines_of(ends)

    def tear_ends(self, ends: Sequence[int], lost_bytes: int) -> None:
        """Add ends, of which the last ``lost_bytes`` do not get there."""
        self.note_ends(ends)
        self._ends = self._ends[:-lost_bytes]

    def forget_ends(self, seq: int) -> None:
        """Forget the micro-batches that a checkpoint up to ``seq`` has."""
        self._ends = lines_of(ends_after(self._ends, seq))


class StatefulEngine:
    """A query with state, open on a host from one checkpoint on.

    Args:
        host: where it is open.
        checkpoint: of this start; it changes as micro-batches are committed.
        ends: where its first micro-batches must end.
        agenda: time.
        work_s: how long a core at home works on a micro-batch of some runs.
        batch_runs: the most runs in a micro-batch.
    """

    def __init__(
        self,
        host: SimulatedEngineHost,
        checkpoint: Checkpoint,
        ends: Sequence[int],
        agenda: Agenda,
        work_s: Callable[[Sequence[Run]], float],
        batch_runs: int = BATCH_RUNS_MAX,
    ) -> None:
        self.host = host
        self.checkpoint = checkpoint
        self.closed = False
        self._agenda = agenda
        self._work_s = work_s
        self._feed = Feed(checkpoint.resume_seq, batch_runs, _FEED_BYTES, VirtualClock(agenda), ends)
        self._busy = False
        # A link keeps the order of answers, and loses none: where one is lost, the host sends no more for this query.
        self._silent, self._replied_s = False, 0.0
        self._done_end_seq = self._committed_end_seq = 0

    def take(self, run: Run, on_reply: Callable[[Reply], None]) -> None:
        """Take a run.

        Raises:
            BrokenPromiseError: it is not the next one.
        """
        if not self._answers:
            return
        if run.first_seq != (position := self._feed.next_position):
            self._refuse(f"run {run.first_seq} came to {self.host.name}, where {position} is next")
            return
        self._feed.put((), (run, on_reply), run.last_seq + 1 - run.first_seq)
        self._plan()

    def committed(self, last_seq: int) -> None:
        """Note that the sink has everything up to this seq."""
        self._committed_end_seq = max(self._committed_end_seq, last_seq + 1)
        if self._answers and self._busy:
            self._go_on()

    def close(self) -> None:
        """Stop: a micro-batch whose results the sink does not have will run again."""
        self.closed = True

    @property
    def _answers(self) -> bool:
        return not self.closed and not self._silent and self.host.answers

    def _plan(self) -> None:
        """Begin a micro-batch if its runs are here: first the one that was planned before this start."""
        if self._busy or not self._answers:
            return
        start_seq, end_seq = self.checkpoint.resume_seq, self.checkpoint.planned_end_seq
        if end_seq <= start_seq:
            end_seq = self._feed.latest(start_seq, 0.0)
        if end_seq == start_seq or self._feed.next_position < end_seq:
            return
        self.checkpoint.planned_end_seq = end_seq
        items = self._feed.batch(start_seq, end_seq)
        self._busy = True
        served = self.host.serve(self._work_s([item.tag[0] for item in items]))
        self._agenda.at(served.done_s, lambda: self._done(items, served.done_s - served.begun_s))

    def _done(self, items: Sequence[Item], batch_s: float) -> None:
        if not self._answers:
            return
        self._done_end_seq = items[-1].end
        on_reply = items[-1].tag[1]
        first, last, results = items[0].start, items[-1].end - 1, self._results(items)
        comes_s = self.host.reply(first, last, batch_s, on_reply, results, self._replied_s)
        if comes_s is None:
            self._silent = True
            return
        self._replied_s = comes_s
        self._go_on()

    def _go_on(self) -> None:
        """Commit the micro-batch once the sink has its results, and plan the next one."""
        end_seq = self.checkpoint.planned_end_seq
        if self._done_end_seq == end_seq <= self._committed_end_seq:
            self.checkpoint.resume_seq = end_seq
            self._keep_state()
            self._feed.release(end_seq)
            self._busy = False
            self._plan()

    def _refuse(self, why: str) -> None:
        """Refuse a run, as a host does that gets another one than the next; here that is never to happen.

        Raises:
            BrokenPromiseError: it has happened.
        """
        raise BrokenPromiseError(why)

    def _results(self, items: Sequence[Item]) -> object:  # noqa: ARG002 - here no result depends on events
        """Return the results of a micro-batch."""
        return None

    def _keep_state(self) -> None:
        """Put the state after the last micro-batch into the checkpoint."""


class StatefulLaneOwner(SimulatedLaneOwner, Protocol):
    """Receives the events of a lane of a query that moves."""

    def on_old_reply(self, lane: str, reply: Reply) -> None:
        """Process an answer that comes after its lane was closed."""
        ...


class StatefulLane(SimulatedLane):
    """A lane to a host where a query with state is open.

    Args:
        engine: the query there.
        owner: receives the lane's events.
        agenda: time.
    """

    def __init__(self, engine: StatefulEngine, owner: StatefulLaneOwner, agenda: Agenda) -> None:
        super().__init__(engine.host, owner, agenda)
        self.engine = engine
        self._query = owner
        self._time = agenda
        self._arrives_s = 0.0

    def give_to(self, owner: StatefulLaneOwner) -> None:
        """Let another owner receive its events from now on."""
        self._owner = self._query = owner

    def _sent(self, run: Run, sent_bytes: int, took_s: float) -> None:
        if self.closed:
            return
        # A link keeps the order, also when it is no longer slow.
        self._arrives_s = max(self._arrives_s, self._time.now_s + self.host.delay_s)
        self._time.at(self._arrives_s, lambda: self.engine.take(run, self._on_reply))
        self._time.after(2 * self.host.delay_s, lambda: self._consumed(sent_bytes))
        self._query.on_event(ev.Sent(at_s=self._time.now_s, lane=self.name, first_seq=run.first_seq, took_s=took_s))

    def _on_reply(self, reply: Reply) -> None:
        if self.closed:
            self._query.on_old_reply(self.name, reply)
        elif self.host.alive:
            self._query.on_reply(self.name, reply)
