"""Dispatches the runs of a simulated query, or of one part of it, as ``Dispatcher`` does, on the virtual clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import gateway.core.exchange.events as ev
from gateway.core.exchange import Exchange
from gateway.core.exchange.instructions import (
    AskedAgain,
    Dispatched,
    Done,
    FailLane,
    Instruction,
    Moved,
    Pack,
    Release,
    Reopen,
    RunRecalled,
    Send,
)
from gateway.query.flow.lane import LaneEvent
from gateway.query.flow.measures import Measures
from gateway.query.flow.run import Run
from gateway.simulate.options import WAITING_PART, Machines, QueryOptions
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.enginehosts import Reply, SimulatedLane
from gateway.simulate.runs.promises import BrokenPromiseError
from gateway.simulate.runs.witness import Witness
from policies.failures.overdue import Patience
from policies.signals import HOME

_VALIDATED_EVERY = 16


class SimulatedDispatcher(ABC):
    """An exchange with its lanes, and a witness.

    Args:
        name: the query's, or the part's.
        options: the query.
        measures: notified of every dispatch and completion.
        agenda: time.
        trace: the history.
        on_failed: called with a lane's name when it must be abandoned.
        patience: how long to wait for answers.
    """

    def __init__(
        self,
        name: str,
        options: QueryOptions,
        measures: Measures,
        agenda: Agenda,
        trace: Trace,
        on_failed: Callable[[str], None],
        patience: Patience,
    ) -> None:
        self.name = name
        self.options = options
        self.lanes: dict[str, SimulatedLane] = {}
        self._measures = measures
        self._agenda = agenda
        self._trace = trace
        self._on_failed = on_failed
        self._patience = patience
        self._witness = Witness(options)
        # Sent runs of a stateful query, of which Spark may have planned one micro-batch.
        self._planned: set[int] = set()
        # Overdue runs of a stateful query are in no lane until it is open again.
        self._overdue = False
        self.exchange: Exchange[Run, Reply] = Exchange(options.exchange_settings(patience, HOME))
        self._undone: dict[int, Run] = {}
        self._undone_events = self._held_events = 0
        self._checks = 0

    @abstractmethod
    def _released_now(self, release: Release[Reply]) -> None:
        """Take results for the sink."""

    @abstractmethod
    def _reopen(self) -> None:
        """Open the query again from its checkpoint: it gets no answer."""

    # ---------------------------------------------------------------------------------------------------- the exchange

    def _handle(self, event: ev.ExchangeEvent[Run, Reply]) -> None:
        for instruction in self.exchange.handle(event):
            self._carry_out(instruction)

    def _carry_out(self, what: Instruction[Run, Reply]) -> None:
        match what:
            case Pack() | Send():
                if isinstance(what, Pack):
                    self._witness.packs(what)
                self.lanes[what.lane].order(what)
            case Dispatched():
                self._dispatched(what)
            case Done():
                self._done(what)
            case Release():
                self._released_now(what)
            case FailLane():
                self._overdue = self.options.stateful
                self._on_failed(what.lane)
            case Reopen():
                self._overdue = True
                self._agenda.after(0.0, self._reopen)
            case AskedAgain():
                self._trace.note(f"{self.name}: run {what.first_seq} is overdue in {what.lane}")
                self._witness.asked_again(what.lane, what.first_seq, self._agenda.now_s)
            case RunRecalled():
                self._trace.note(f"{self.name}: run {what.first_seq} is recalled from {what.lane}")
                self._witness.asked_again(what.lane, what.first_seq, self._agenda.now_s)
            case Moved():
                self._trace.note(f"{self.name}: {what.runs} runs of {what.lane} went elsewhere")

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Use these shares from now on."""
        self._witness.shares_set(shares, self.exchange, self._agenda.now_s)
        self._handle(ev.SharesSet(at_s=self._agenda.now_s, shares=shares))

    # ---------------------------------------------------------------------------------------------------------- lanes

    def _open_lane(self, lane: SimulatedLane, planned_end_seq: int) -> None:
        """Open a lane; micro-batches before ``planned_end_seq`` run again with the limits that they had."""
        now_s, credit_bytes = self._agenda.now_s, self.options.credit_bytes
        self.lanes[lane.name] = lane
        self._witness.lane_opened(lane.name, now_s)
        self._handle(
            ev.LaneOpened(at_s=now_s, lane=lane.name, credit_bytes=credit_bytes, planned_end_seq=planned_end_seq)
        )

    def _lose_lane(self, name: str, reason: str) -> None:
        """Remove a lane; its open runs wait again."""
        self.lanes.pop(name).closed = True
        self._witness.lane_lost(name, self._agenda.now_s)
        self._handle(ev.LaneLost(at_s=self._agenda.now_s, lane=name, reason=reason))

    def drain_lane(self, name: str) -> None:
        """Send no further run to a lane."""
        self._witness.draining(name, self.exchange, self._agenda.now_s)
        self._handle(ev.LaneDraining(at_s=self._agenda.now_s, lane=name))

    def on_event(self, event: LaneEvent) -> None:
        """See ``LaneOwner``."""
        if isinstance(event, ev.Credited):
            self._witness.credited(event.lane, event.consumed_bytes)
        elif isinstance(event, ev.Isolating):
            self._witness.isolating(event.lane, event.first_seq)
        self._handle(event)

    def open_runs(self, lane: str) -> int:
        """See ``LaneOwner``."""
        return self.exchange.lane(lane).open_runs if lane in self.lanes else 0

    def payload_bytes(self, lane: str, run: Run) -> int:
        """See ``LaneOwner``."""
        return run.raw_bytes if lane == HOME else round(run.raw_bytes * self.options.sent_part)

    def sends(self, lane: str, run: Run) -> int:
        """See ``LaneOwner``."""
        payload_bytes = self.payload_bytes(lane, run)
        self._witness.sends(lane, payload_bytes)
        if self.options.stateful:
            self._planned = {first for first in self._planned if first in self._undone} | {run.first_seq}
        return payload_bytes

    def _dispatched(self, what: Dispatched[Run]) -> None:
        if what.run.disordered and what.lane != HOME:
            raise BrokenPromiseError(f"{self.name}: a run out of order went to {what.lane}")
        self._measures.dispatched(what)

    def work_s(self, run: Run, machines: Machines, lane_runs: int) -> float:
        """See ``LaneOwner``: as measured for this query or, if not, for all; with its part of a micro-batch's cost."""
        batch_s, event_s = self.options.costs_s(machines)
        runs = min(max(1.0, WAITING_PART * lane_runs), self.options.batch_runs)
        return (batch_s + (runs - 1.0) * self.options.further_run_s) / runs + run.events * event_s

    def on_reply(self, lane: str, reply: Reply) -> None:
        """See ``LaneOwner``: the first completion counts."""
        self._handle(
            ev.Answered(
                at_s=self._agenda.now_s,
                lane=lane,
                first_seq=reply.first_seq,
                last_seq=reply.last_seq,
                results=reply,
                result_bytes=self._result_bytes(reply.first_seq, reply.last_seq),
                batch_id=reply.batch_id,
                batch_s=reply.batch_s,
            )
        )

    def _result_bytes(self, first_seq: int, last_seq: int) -> int:
        return (last_seq + 1 - first_seq) * self.options.event_bytes

    def _done(self, done: Done[Run]) -> None:
        now_s = self._agenda.now_s
        self._witness.done(done, self._result_bytes(done.first_seq, done.last_seq), now_s)
        for run in done.runs:
            undone = self._undone.pop(run.first_seq, None)
            if not done.counts or undone is not run:
                raise BrokenPromiseError(f"{self.name}: run {run.first_seq} is completed twice")
            self._undone_events -= run.events
            self._held_events += run.events
        self._measures.done(done, now_s)

    # ------------------------------------------------------------------------------------------------------- promises

    @property
    def _repeating_events(self) -> int:
        """Events that are done, and processed again because a state lacks them."""
        return 0

    def _check_undone(self) -> None:
        """Check that each undone event waits or is in a lane.

        Raises:
            BrokenPromiseError: one does not.
        """
        exchange = self.exchange
        if set(exchange.open_lanes) != self.lanes.keys():
            raise BrokenPromiseError(f"{self.name}: the lanes are {set(self.lanes)}")
        somewhere = exchange.waiting_events + sum(exchange.lane(name).open_events for name in self.lanes)
        if somewhere != self._undone_events + self._repeating_events and not self._overdue:
            raise BrokenPromiseError(
                f"{self.name}: {self._undone_events} events are not done, but {somewhere} wait or are in a lane"
            )

    def _validate(self, *, thorough: bool) -> None:
        # It goes through all runs.
        self._checks += 1
        if thorough or self._checks % _VALIDATED_EVERY == 0:
            try:
                self.exchange.validate()
            except AssertionError as error:
                raise BrokenPromiseError(f"{self.name}: {error}") from error

    def check_slot(self) -> None:
        """See ``Witness.check_slot``."""
        self._witness.check_slot(self.exchange, self._agenda.now_s)
