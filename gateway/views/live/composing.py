"""Composes the moment of each slot from the parts of the gateway."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gateway.core.decide.scheduler import Scheduler
from gateway.query.flow.statistics import Tally
from gateway.query.running import RunningQuery
from gateway.query.supervision.supervisor import Supervisor
from gateway.views.live.minutes import Minutes
from gateway.views.live.moments import MARKS_MOST, Mark, Moment, Outlook, QueryMoment, VmMoment
from policies.advice import Expected
from policies.histogram import Histogram
from policies.signals import (
    HOME,
    Command,
    DrainVm,
    Event,
    QuerySlot,
    StartVm,
    TerminateVm,
    VmAdopted,
    VmFailed,
    VmGone,
    VmLost,
    VmReady,
    VmReclaimed,
)
from policies.steering import DecisionsPaused, DecisionsResumed, QueryPinned

_LOG = logging.getLogger(__name__)
_OF_COMMANDS: Mapping[type[Command], str] = {StartVm: "launched", DrainVm: "drained", TerminateVm: "terminated"}
_OF_EVENTS: Mapping[type[Event], str] = {
    VmReady: "ready",
    VmAdopted: "adopted",
    VmFailed: "failed",
    VmLost: "lost",
    VmReclaimed: "reclaimed",
    VmGone: "gone",
}


class _Sum(NamedTuple):
    """The weight and the sum of a histogram at the end of a slot."""

    weight: float = 0.0
    total_s: float = 0.0

    @classmethod
    def of(cls, histogram: Histogram) -> _Sum:
        return cls(histogram.weight, histogram.weight * histogram.mean_s)

    def mean_since(self, before: _Sum) -> float | None:
        """Return the mean of what was added; None if nothing was."""
        weight = self.weight - before.weight
        return max(0.0, self.total_s - before.total_s) / weight if weight > 0 else None


class Composer:
    """Collects what happens, and sums it up when a slot ends.

    Args:
        scheduler: for reading.
        supervisors: by query.

    Attributes:
        slots: the last slot's measurements by query.
        vm_events: how often something has happened to a VM, by its word.
    """

    def __init__(self, scheduler: Scheduler, supervisors: Mapping[str, Supervisor]) -> None:
        self._scheduler = scheduler
        self._supervisors = supervisors
        self._last_s = 0.0
        self._minutes = Minutes()
        self._expected: dict[str, Expected | None] = {}
        self._marks: deque[Mark] = deque(maxlen=MARKS_MOST)
        self._before: dict[str, tuple[_Sum, _Sum]] = {}
        self._shown: dict[str, tuple[str, int]] = {}
        self.slots: Mapping[str, QuerySlot] = {}
        self.vm_events = dict.fromkeys((*_OF_COMMANDS.values(), *_OF_EVENTS.values()), 0)

    def begin(self, at_s: float) -> None:
        """Note when the first slot begins, on the gateway's clock."""
        self._last_s = at_s

    def happened(self, event: Event, commands: Sequence[Command], wall_s: float) -> None:
        """Note what an event and its commands mean for VMs, and the orders of an operator."""
        mark = _mark_of(event, wall_s)
        if mark is not None:
            self._marks.append(mark)
        if word := _OF_EVENTS.get(type(event)):
            self.vm_events[word] += 1
        for command in commands:
            word = _OF_COMMANDS.get(type(command))
            if word is not None and isinstance(command, StartVm | DrainVm | TerminateVm):
                self._marks.append(Mark(wall_s, word, command.vm, command.cause.why))
                self.vm_events[word] += 1

    def moment(
        self,
        moment_id: int,
        at_s: float,
        wall_s: float,
        slots: Sequence[QuerySlot],
        phase: str,
        decisions: Sequence[dict[str, Any]],
    ) -> Moment:
        """Return the moment of the slot that ended.

        Args:
            moment_id: its id.
            at_s: the end of the slot.
            wall_s: the same in seconds since 1970.
            slots: the measurements.
            phase: of the gateway.
            decisions: what was newly decided about queries, as the API answers it.
        """
        for_s, self._last_s = max(1e-3, at_s - self._last_s), at_s
        self.slots = {slot.query: slot for slot in slots}
        ahead_s = wall_s - at_s
        self._expected = {each.query: each.advice.expected for each in self._scheduler.last_decisions}
        for line in self._minutes.lines(at_s, {name: each.query.tally for name, each in self._supervisors.items()}):
            _LOG.info("%s", line)
        queries = {name: self._query(each, for_s) for name, each in self._supervisors.items()}
        for name, each in queries.items():
            self._note_changes(name, each, wall_s)
        marks = tuple(self._marks)
        self._marks.clear()
        return Moment(
            id=moment_id,
            for_s=for_s,
            phase=phase,
            paused=self._scheduler.paused_until_s is not None,
            usd=self._scheduler.totals(at_s).usd,
            queries=queries,
            vms={
                lease.vm: VmMoment(str(lease.state), lease.block_since_s + ahead_s, lease.block_end_s + ahead_s)
                for lease in self._scheduler.leases
            },
            marks=marks,
            decisions=tuple(decisions),
        )

    def _query(self, supervisor: Supervisor, for_s: float) -> QueryMoment:
        query = supervisor.query
        slot = self.slots.get(query.name)
        pin = self._scheduler.pins.get(query.name)
        processing_s, delivery_s = self._latencies(query.name, query.tally)
        common = QueryMoment(
            state=supervisor.state,
            processing=processing_s,
            delivery=delivery_s,
            share=query.cloud_share,
            dead_letters=query.dead_letters.count,
            moves=_moves(query),
            pin=None if pin is None else pin.share,
            forecast=self._outlook(query.name),
        )
        return common if slot is None else _with_slot(common, slot, for_s)

    def _latencies(self, name: str, tally: Tally) -> tuple[float | None, float | None]:
        """Return the mean processing and delivery latency since the last call."""
        now = _Sum.of(tally.latency), _Sum.of(tally.delivery)
        before = self._before.get(name, (_Sum(), _Sum()))
        self._before[name] = now
        return now[0].mean_since(before[0]), now[1].mean_since(before[1])

    def _outlook(self, name: str) -> Outlook | None:
        expected = self._expected.get(name)
        return None if expected is None else Outlook(expected.in_s, expected.rate, expected.low, expected.high)

    def _note_changes(self, name: str, now: QueryMoment, wall_s: float) -> None:
        before = self._shown.get(name)
        self._shown[name] = now.state, now.moves
        if before is None:
            return
        if now.state != before[0]:
            self._marks.append(Mark(wall_s, now.state, name, self._supervisors[name].reason))
        if now.moves != before[1]:
            self._marks.append(Mark(wall_s, "moved", name, f"its state is {_where(self._supervisors[name].query)}"))


def _with_slot(common: QueryMoment, slot: QuerySlot, for_s: float) -> QueryMoment:
    return QueryMoment(
        state=common.state,
        latency=slot.latency_s,
        processing=common.processing,
        delivery=common.delivery,
        input=slot.input_rate,
        completed={lane: events / for_s for lane, events in slot.completed_events.items()},
        share=common.share,
        open_runs=slot.open_runs,
        waiting=slot.backlog_events,
        out_of_order=slot.out_of_order_share,
        raw=sum(slot.raw_bytes.values()) / for_s,
        sent=sum(slot.sent_bytes.values()) / for_s,
        forecast=common.forecast,
        dead_letters=common.dead_letters,
        moves=common.moves,
        pin=common.pin,
    )


def _moves(query: RunningQuery) -> int:
    return sum(mover.moves for mover in query.movers) if query.stateful else 0


def _where(query: RunningQuery) -> str:
    places = sorted({mover.place for mover in query.movers})
    return " and ".join("at home" if place == HOME else f"on {place}" for place in places)


def _mark_of(event: Event, wall_s: float) -> Mark | None:
    match event:
        case QueryPinned(query=query, share=None):
            return Mark(wall_s, "unpinned", query)
        case QueryPinned(query=query, share=share):
            return Mark(wall_s, "pinned", query, f"an operator sends {share:.0%} of its events to VMs")
        case DecisionsPaused():
            return Mark(wall_s, "paused", "decisions")
        case DecisionsResumed():
            return Mark(wall_s, "resumed", "decisions")
        case VmFailed(vm=vm, reason=reason) | VmLost(vm=vm, reason=reason):
            return Mark(wall_s, _OF_EVENTS[type(event)], vm, reason)
        case VmReady(vm=vm) | VmAdopted(vm=vm) | VmReclaimed(vm=vm) | VmGone(vm=vm):
            return Mark(wall_s, _OF_EVENTS[type(event)], vm)
    return None
