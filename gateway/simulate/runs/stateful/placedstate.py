"""A query with state of a simulated world, open at one place: it recovers, keeps runs, and checks what is repeated."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import gateway.core.exchange.events as ev
from engines.streaming.checkpoints import ResumePoint
from gateway.core.exchange import Exchange
from gateway.core.exchange.instructions import Done
from gateway.core.intervals import IntervalSet
from gateway.query.flow.run import Run
from gateway.query.flow.runlog import KeptRuns
from gateway.simulate.options import QueryOptions
from gateway.simulate.runs.enginehosts import Reply, SimulatedEngineHost
from gateway.simulate.runs.promises import BrokenPromiseError, promise
from gateway.simulate.runs.simulatedquery import SimulatedQuery
from gateway.simulate.runs.stateful.keptstate import Checkpoint, HomeDisk, StatefulEngine, StatefulLane
from gateway.simulate.runs.witness import Witness
from policies.signals import HOME

_CLOSED_S: Final = 0.5
_KILLED_WRITING: Final = 0.5


class PlacedState(SimulatedQuery):
    """Is open at one place, or closed. Each opening has an exchange of its own, as in the daemon.

    Args:
        options: the query and its load.
        seed: of random draws.
        rest: see ``SimulatedQuery``.

    Attributes:
        place: where the query is.
    """

    def __init__(self, options: QueryOptions, seed: int, *rest: Any) -> None:
        super().__init__(options, seed, *rest)
        self.place = HOME
        self._draw = random.Random(f"moves {seed} {self.name}")  # noqa: S311  # no secret
        self._disk = HomeDisk(self.name)
        self._engine: StatefulEngine | None = None
        self._kept = KeptRuns(stateful=True)
        self._old_answer = False
        self._finished_s: float | None = None

    @abstractmethod
    def _killed(self, chance: float) -> bool:
        """Kill the gateway, as far as this query is concerned, with this chance; return whether that happened."""

    # -------------------------------------------------------------------------------------------- opening and closing

    def _open_on(self, host: SimulatedEngineHost, checkpoint: Checkpoint, home_seq: int) -> None:
        """Open the query on a host; away from home, keep what is needed to continue at home from ``home_seq`` on."""
        self.place = host.name
        self._kept = KeptRuns(stateful=True)
        if host.name != HOME:
            self._kept.keep_from(home_seq)
        work_s = partial(self.options.batch_work_s, host.machines)
        self._engine = StatefulEngine(host, checkpoint, self._disk.ends, self._agenda, work_s)
        self._let_flow(self._engine)

    def _let_flow(self, engine: StatefulEngine) -> None:
        """Recover what the sink does not have or the state needs, and let events flow."""
        name, now_s, checkpoint = engine.host.name, self._agenda.now_s, engine.checkpoint
        end_seq = max(checkpoint.planned_end_seq, checkpoint.resume_seq)
        planned_end_seq = ResumePoint(checkpoint.resume_seq, end_seq).repeats_before(self._disk.ends)
        before, shares = self._disk.committed_before, {HOME: 0.0} | {name: 1.0}
        done = [(0, before - 1)] if before else []
        self.exchange = Exchange(self.options.exchange_settings(self._patience, name), committed=done)
        self._witness = Witness(self.options, before, now_s)
        self._witness.shares_set(shares, self.exchange, now_s)
        self._handle(ev.SharesSet(at_s=now_s, shares=shares))
        self._open_lane(StatefulLane(engine, self, self._agenda), planned_end_seq)
        for run in self._disk.runs_from(min(checkpoint.resume_seq, before)):
            if run.first_seq >= before:
                self._witness.logged(run)
            self._handle(ev.RunLogged(at_s=now_s, run=run))
        if self._finished_s is not None:
            self.finish(self._finished_s)

    def _lose_place(self, reason: str) -> None:
        """Remove the lane, whose host is gone; the query stays open until it moves."""
        self._lose_lane(self.place, reason)

    def _close(self, *, killed: bool = False) -> None:
        """Close the query; what was released goes to the sink, unless the gateway is killed."""
        if self._engine is None:
            return
        for lane in self.lanes.values():
            lane.closed = True
        self.lanes.clear()
        if not killed:
            self._engine.close()
            self._store(self._outbox)
        self._engine, self._outbox = None, []
        before = self._disk.committed_before
        self._undone = {run.first_seq: run for run in self._disk.runs_from(before)}
        self._undone_events = sum(run.events for run in self._undone.values())
        self._held_events, self._released_events = 0, before
        self._released = IntervalSet([(0, before - 1)] if before else [])
        self._highest_seq = before - 1

    # --------------------------------------------------------------------------------------------------------- events

    def arrive(self, to_s: float) -> float:
        """See ``SimulatedQuery``; a query that is closed reads nothing."""
        return to_s + _CLOSED_S if self._engine is None else super().arrive(to_s)

    def finish(self, to_s: float) -> None:
        """See ``SimulatedQuery``; a query that is closed reads the last events when it is open again."""
        self._finished_s = to_s
        if self._engine is not None:
            super().finish(to_s)
            self._finished_s = None

    def _note_logged(self, run: Run) -> None:
        self._disk.log(run)
        super()._note_logged(run)

    def on_reply(self, lane: str, reply: Reply) -> None:
        """See ``SimulatedLaneOwner``."""
        self._kept.answered(reply.first_seq)
        super().on_reply(lane, reply)

    def on_old_reply(self, lane: str, reply: Reply) -> None:
        """See ``StatefulLaneOwner``: the exchange knows no such lane, and the answer does not count."""
        if self._engine is not None and lane not in self.lanes:
            self._old_answer = True
            super().on_reply(lane, reply)
            self._old_answer = False

    def _done(self, done: Done[Run]) -> None:
        promise(not self._old_answer and done.lane == self.place, f"{self.name}: {done.lane} answers {done.first_seq}")
        if done.counts:
            super()._done(done)
            return
        self._witness.done(done, 0, self._agenda.now_s)
        if done.last_seq < self._disk.committed_before:
            self._disk.repeated(done.first_seq, done.last_seq)
            self._tell_committed(done.last_seq)

    # ------------------------------------------------------------------------------------------------------- delivery

    def _commit(self) -> None:
        ranges = tuple(self._outbox)
        if not ranges:
            return  # it was closed meanwhile
        ends, chance = [last_seq + 1 for _, last_seq in ranges], self.options.killed_at_look
        if self.place != HOME and self._draw.random() < chance:
            # The gateway is killed while it writes, or the disk fails and it writes again.
            self._disk.tear_ends(ends, self._draw.randint(1, len(str(ends[-1]))))
            if self._killed(_KILLED_WRITING):
                return
        self._store(ranges)
        self._outbox = []
        if not self._killed(chance):
            self._disk.retire(self._kept.needed_from(self._disk.committed_before))
            self._tell_committed(self._disk.committed_before - 1)
            self._witness.committed(ranges)
            self._handle(ev.Committed(at_s=self._agenda.now_s, ranges=ranges))

    def _store(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Note the ends of micro-batches on a VM, and give the sink their results."""
        if self.place != HOME:
            self._disk.note_ends([last_seq + 1 for _, last_seq in ranges])
        self._disk.commit(ranges)

    def _tell_committed(self, last_seq: int) -> None:
        engine = self._engine
        if engine is not None:
            self._agenda.after(engine.host.delay_s, lambda: engine.committed(last_seq))

    # ------------------------------------------------------------------------------------------------------- promises

    @property
    def idle(self) -> bool:
        """See ``SimulatedQuery``."""
        return self._engine is not None and self._finished_s is None and super().idle

    def check_all(self, *, thorough: bool = False) -> None:
        """See ``SimulatedQuery``; runs that are repeated are in the exchange although they are done."""
        self.check()
        if self._engine is not None:
            promise(
                self.lanes.keys() <= {self.place}, f"{self.name}: it is at {self.place}, its lanes are {self.lanes}"
            )
            self._validate(thorough=thorough)

    def check_slot(self) -> None:
        """See ``SimulatedQuery``; also check that no run waits while the place of the query has nothing to do."""
        if self._engine is None:
            return
        super().check_slot()
        waits = self.place in self.lanes and self.exchange.waiting_runs and not self.open_runs(self.place)
        promise(not waits, f"{self.name}: runs wait, and none is open at {self.place}")

    def check_end(self) -> None:
        """Check that the sink has every event; it took them in order, and each once.

        Raises:
            BrokenPromiseError: one is missing.
        """
        events, committed = self._arrivals.next_seq, self._disk.committed_before
        if committed != events:
            raise BrokenPromiseError(f"{self.name}: {events} events came, the sink has {committed}")
