"""One part of a simulated divided query in one place, with its exchange, its lane and its engine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol, cast

import gateway.core.exchange.events as ev
from engines.streaming.checkpoints import ResumePoint
from gateway.core.exchange import Exchange
from gateway.core.exchange.instructions import Done, Release
from gateway.query.flow.keyed.parts import part_name
from gateway.query.flow.measures import Measures
from gateway.query.flow.run import Run
from gateway.query.flow.runlog import KeptRuns
from gateway.simulate.options import QueryOptions
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.dispatching import SimulatedDispatcher
from gateway.simulate.runs.enginehosts import Reply, SimulatedEngineHost
from gateway.simulate.runs.keyed.counting import CountedCheckpoint, CountingEngine, CountsAnswer, CountsOracle
from gateway.simulate.runs.promises import BrokenPromiseError
from gateway.simulate.runs.stateful.keptstate import HomeDisk, StatefulLane
from gateway.simulate.runs.witness import Witness
from policies.failures.overdue import Patience
from policies.signals import HOME

EVERYTHING: Final = ((0, 1 << 62),)


class PartsOwner(Protocol):
    """The divided query, as its parts see it."""

    name: str
    options: QueryOptions
    disk: HomeDisk
    oracle: CountsOracle

    def on_release(self, part: int, release: Release[Reply]) -> None:
        """Take the results of a part."""
        ...

    def on_handled(self) -> None:
        """Look whether the next micro-batch is due."""
        ...

    def on_overdue(self) -> None:
        """Open all parts again: one of them gets no answer."""
        ...

    def killed(self, chance: float) -> bool:
        """Kill the gateway, as far as this query is concerned, with this chance; return whether that happened."""
        ...

    def on_refused(self, part: int, vm: str, reason: str) -> None:
        """Note that a part cannot be on a VM."""
        ...

    def on_moved(self) -> None:
        """Note that a part has moved."""
        ...

    def on_copied(self) -> None:
        """Note that the checkpoint of a part has come home."""
        ...


class PartDispatcher(SimulatedDispatcher):
    """Dispatches the runs of a part to the place where it is.

    Args:
        number: the part's.
        query: it belongs to.
        measures: notified of every dispatch and completion.
        agenda: time.
        trace: the history.
        on_failed: called with a lane's name when it must be abandoned.
        patience: how long to wait for answers.

    Attributes:
        place: the lane where it is.
        kept: knows which runs may be needed again.
        done_before: the first seq that the state in the present lane does not have, as far as it has answered.
        pass_on: called with each run that is done; None if nobody wants it.
    """

    def __init__(
        self,
        number: int,
        query: PartsOwner,
        measures: Measures,
        agenda: Agenda,
        trace: Trace,
        on_failed: Callable[[str], None],
        patience: Patience,
    ) -> None:
        super().__init__(part_name(query.name, number), query.options, measures, agenda, trace, on_failed, patience)
        self.number = number
        self.place = HOME
        self.kept = KeptRuns(stateful=True)
        self.done_before = 0
        self.pass_on: Callable[[Run], None] | None = None
        self._query = query
        self._engine: CountingEngine | None = None
        self._resume_seq = 0
        self._old_answer = False

    @abstractmethod
    def _repeated(self, done: Done[Run]) -> None:
        """Note an answer that does not count."""

    @property
    def is_open(self) -> bool:
        """Whether it is open somewhere."""
        return self._engine is not None

    @property
    def engine(self) -> CountingEngine:
        """The engine where it is open."""
        assert self._engine is not None, f"{self.name} is open nowhere"
        return self._engine

    def _open_on(
        self, host: SimulatedEngineHost, checkpoint: CountedCheckpoint, done: Iterable[tuple[int, int]], before: int
    ) -> None:
        """Open it from a checkpoint; the answers for the ranges ``done`` do not count; all are before ``before``."""
        self.place = host.name
        work_s = partial(self.options.batch_work_s, host.machines)
        self._engine = CountingEngine(host, checkpoint, (), self._agenda, work_s, batch_runs=1)
        self._resume_seq = self.done_before = checkpoint.resume_seq
        self.exchange = Exchange(self.options.exchange_settings(self._patience, host.name), committed=done)
        self._witness = Witness(self.options, before, self._agenda.now_s)
        self._overdue = False
        self.set_shares({HOME: 0.0} | {host.name: 1.0})
        end_seq = max(checkpoint.planned_end_seq, checkpoint.resume_seq)
        planned_end_seq = ResumePoint(checkpoint.resume_seq, end_seq).repeats_before(())
        self._open_lane(StatefulLane(self._engine, self, self._agenda), planned_end_seq)

    def offer(self, run: Run) -> None:
        """Dispatch a run, unless the state has it."""
        if run.first_seq >= self._resume_seq:
            self._handle(ev.RunLogged(at_s=self._agenda.now_s, run=run))

    def close(self, *, killed: bool = False) -> None:
        """Close it; if the gateway is killed, its engine notices nothing."""
        for lane in self.lanes.values():
            lane.closed = True
        self.lanes.clear()
        if self._engine is not None and not killed:
            self._engine.close()
        self._engine = None

    def tick(self) -> None:
        """Look whether runs are overdue."""
        self._handle(ev.Tick(at_s=self._agenda.now_s))

    def tell_committed(self, last_seq: int) -> None:
        """Let the engine know, after a while, that the sink has everything up to this seq."""
        engine = self._engine
        if engine is not None:
            self._agenda.after(engine.host.delay_s, lambda: engine.committed(last_seq))

    # ---------------------------------------------------------------------------------------------------- the exchange

    def on_reply(self, lane: str, reply: Reply) -> None:
        """See ``SimulatedLaneOwner``."""
        answer = cast("CountsAnswer", reply.results)
        self._query.oracle.check_part(answer, reply.first_seq, reply.last_seq, f"{self.name} at {lane}")
        self.kept.answered(reply.first_seq)
        super().on_reply(lane, reply)

    def on_old_reply(self, lane: str, reply: Reply) -> None:
        """See ``StatefulLaneOwner``: the exchange knows no such lane, and the answer does not count."""
        if self._engine is not None and lane not in self.lanes:
            self._old_answer = True
            super().on_reply(lane, reply)
            self._old_answer = False

    def _done(self, done: Done[Run]) -> None:
        if self._old_answer or done.lane != self.place:
            raise BrokenPromiseError(f"{self.name}: {done.lane} answers {done.first_seq}, and it is at {self.place}")
        self.done_before = max(self.done_before, done.last_seq + 1)
        if self.pass_on is not None:
            for run in done.runs:
                self.pass_on(run)
        if done.counts:
            super()._done(done)
        else:
            self._witness.done(done, 0, self._agenda.now_s)
            self._repeated(done)
            if done.last_seq < self._query.disk.committed_before:
                self.tell_committed(done.last_seq)
