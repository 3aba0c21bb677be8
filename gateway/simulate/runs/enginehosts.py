"""Simulated engine hosts, their links, and lanes to them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from engines.simulated.server import Server
from gateway.query.flow.runbook import Run
from gateway.simulate.options import Faults, Machines
from gateway.simulate.runs.agenda import Agenda, Trace
from policies.failures.overdue import LaneWatch, Patience
from policies.signals import HOME

_HORIZON_S = 1.5
_LEAST_RUNS = 2
_RATE_MEMORY = 0.8
_SLOW_LINK = 10.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A host's answer for a run."""

    first_seq: int
    last_seq: int
    batch_id: int
    batch_s: float


class Host:
    """An engine host at the other end of a link; it serves runs of all queries in the order of their arrival."""

    def __init__(
        self, name: str, machines: Machines, faults: Faults, agenda: Agenda, trace: Trace, draw: random.Random
    ) -> None:
        self.name = name
        self.alive = True
        self.hung = False
        self.link_slowness = 1.0
        self.machines = machines
        self._faults = faults
        self._agenda = agenda
        self._trace = trace
        self._draw = draw
        self._server = Server(machines.cores, agenda.now_s)
        self._batches = 0
        self._link_free_s = agenda.now_s

    def send_s(self, sent_bytes: float) -> float:
        """Take the link for so many bytes and return how long that keeps the sender."""
        if self.name == HOME:
            return 0.0
        now_s = self._agenda.now_s
        took_s = sent_bytes / self.machines.link_bytes_per_s * self.link_slowness
        self._link_free_s = max(now_s, self._link_free_s) + took_s
        return self._link_free_s - now_s

    def slow_link(self, for_s: float) -> None:
        """Let the link carry a tenth for a while."""
        self.link_slowness = _SLOW_LINK
        self._agenda.after(for_s, self._link_recovers)

    def _link_recovers(self) -> None:
        self.link_slowness = 1.0

    @property
    def _delay_s(self) -> float:
        return 0.001 if self.name == HOME else self.machines.link_delay_s * self.link_slowness

    def take(self, run: Run, work_s: float, hear: Callable[[Reply], None]) -> None:
        """Take a run that was sent now and needs so much of a private core; ``hear`` gets the answer, if any comes."""
        needed_s = work_s if self.name == HOME else work_s / self.machines.vm_speed
        self._agenda.after(self._delay_s, lambda: self._serve(run, needed_s, hear))

    def _serve(self, run: Run, work_s: float, hear: Callable[[Reply], None]) -> None:
        if not self.alive:
            return
        served = self._server.serve(self._agenda.now_s, work_s)
        self._agenda.at(served.done_s, lambda: self._finish(run, served.done_s - served.begun_s, hear))

    def _finish(self, run: Run, batch_s: float, hear: Callable[[Reply], None]) -> None:
        if not self.alive or self.hung:
            return
        self._batches += 1
        reply = Reply(run.first_seq, run.last_seq, self._batches, batch_s)
        faults, draw = self._faults, self._draw
        if draw.random() < faults.lost_reply:
            self._trace.note(f"fault: {self.name} lost the reply for {run.first_seq}")
            return
        late_s = draw.uniform(0, faults.late_s) if draw.random() < faults.late_reply else 0.0
        self._agenda.after(self._delay_s + late_s, lambda: hear(reply))
        if draw.random() < faults.doubled_reply:
            again_s = self._delay_s + draw.uniform(0, faults.late_s)
            self._agenda.after(again_s, lambda: hear(reply))


class LaneOwner(Protocol):
    """Who hears of a lane."""

    def on_sent(self, lane: Lane, run: Run) -> int:
        """A run is on its way; returns the bytes that cross the link."""
        ...

    def on_answer(self, lane: Lane, reply: Reply) -> None:
        """A run is completed."""
        ...

    def on_room(self) -> None:
        """The lane may take another run."""
        ...

    def work_s(self, run: Run, machines: Machines, lane_runs: int) -> float:
        """Return how long a private core of such machines works on a run, one of so many in a lane."""
        ...


@dataclass(slots=True)
class _Busy:
    since_s: float | None = None
    busy_s: float = 0.0
    served_events: float = 0.0


@dataclass(slots=True, eq=False)
class Lane:
    """A lane of one query to a host: bounds what is in it as ``query.flow.lane.Lane`` does, on the virtual clock."""

    host: Host
    owner: LaneOwner
    agenda: Agenda
    patience: Patience
    closed: bool = False
    open: dict[int, Run] = field(default_factory=dict)
    _queue: deque[Run] = field(default_factory=deque)
    _busy: _Busy = field(default_factory=_Busy)
    _sending: bool = False
    _watch: LaneWatch = field(init=False)

    def __post_init__(self) -> None:
        self._watch = LaneWatch(self.patience)

    @property
    def name(self) -> str:
        """The host's name."""
        return self.host.name

    @property
    def open_events(self) -> int:
        """Events in this lane."""
        return sum(run.events for run in self.open.values())

    @property
    def has_room(self) -> bool:
        """Whether the lane may take another run now."""
        if len(self.open) < _LEAST_RUNS:
            return True
        return not self._queue and self.open_events < self.rate_per_s * _HORIZON_S

    @property
    def rate_per_s(self) -> float:
        """Events per second that the lane serves while it has some; 0 before the first."""
        busy = self._busy
        busy_s = busy.busy_s + (0.0 if busy.since_s is None else self.agenda.now_s - busy.since_s)
        return busy.served_events / busy_s if busy_s > 0 else 0.0

    def put(self, run: Run) -> None:
        """Take a run; the caller has asked ``has_room``."""
        self.open[run.first_seq] = run
        self._see_work()
        self._queue.append(run)
        self._send_next()

    def _send_next(self) -> None:
        while self._queue and not self._sending and not self.closed:
            run = self._queue[0]
            if run.first_seq not in self.open:
                self._queue.popleft()
                continue
            self._sending = True
            took_s = self.host.send_s(self.owner.on_sent(self, run))
            self.agenda.after(took_s, lambda run=run, took_s=took_s: self._sent(run, took_s))  # type: ignore[misc]

    def _sent(self, run: Run, took_s: float) -> None:
        self._sending = False
        if self.closed:
            return
        self._queue.popleft()
        if run.first_seq in self.open:
            self._watch.sent(run.first_seq, run.attempt, self.agenda.now_s, took_s)
        self.host.take(run, self.owner.work_s(run, self.host.machines, len(self.open)), self._hear)
        self.owner.on_room()
        self._send_next()

    def _hear(self, reply: Reply) -> None:
        if self.closed or not self.host.alive:
            return
        self._watch.answered(reply.first_seq, self.agenda.now_s)
        run = self.open.pop(reply.first_seq, None)
        if run is not None:
            self._busy.served_events += run.events
        self._see_work()
        self.owner.on_answer(self, reply)

    def forget(self, first_seq: int) -> None:
        """Wait no more for a run that another lane has answered."""
        self.open.pop(first_seq, None)
        self._watch.forget(first_seq)
        self._see_work()

    def overdue(self) -> list[int]:
        """Return the runs that became overdue; no room is kept for them."""
        late = self._watch.overdue(self.agenda.now_s)
        for first_seq in late:
            del self.open[first_seq]
        self._see_work()
        return late

    @property
    def silent_too_long(self) -> bool:
        """Whether the lane is to be given up."""
        return self._watch.silence_s(self.agenda.now_s, held_back=self._sending) is not None

    def end_slot(self) -> None:
        """Let older measurements of the rate fade."""
        busy, now_s = self._busy, self.agenda.now_s
        if busy.since_s is not None:
            busy.busy_s += now_s - busy.since_s
            busy.since_s = now_s
        busy.served_events *= _RATE_MEMORY
        busy.busy_s *= _RATE_MEMORY

    def _see_work(self) -> None:
        busy, now_s = self._busy, self.agenda.now_s
        self._watch.works(bool(self.open), now_s)
        if self.open and busy.since_s is None:
            busy.since_s = now_s
        elif not self.open and busy.since_s is not None:
            busy.busy_s += now_s - busy.since_s
            busy.since_s = None
