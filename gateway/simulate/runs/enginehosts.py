"""Simulated engine hosts, their links, and lanes to them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import gateway.core.exchange.events as ev
from engines.simulated.server import Server, ServiceInterval
from gateway.core.exchange.instructions import Pack, Send
from gateway.query.flow.lane import NO_BATCH, LaneEvent
from gateway.query.flow.run import Run
from gateway.simulate.options import Faults, Machines
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.promises import BrokenPromiseError
from policies.signals import HOME

_SLOW_LINK = 10.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A host's answer for a run; ``results`` are what its engine computed, if that is simulated."""

    first_seq: int
    last_seq: int
    batch_id: int
    batch_s: float
    results: object = None


class SimulatedEngineHost:
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
        self._worked: deque[ServiceInterval] = deque()
        self._link_free_s = agenda.now_s

    def cpu(self, from_s: float, to_s: float) -> float:
        """Return the part of this time in which the cores were busy, in [0, 1]; earlier intervals are dropped."""
        while self._worked and self._worked[0].done_s <= from_s:
            self._worked.popleft()
        busy_s = sum(max(0.0, min(job.done_s, to_s) - max(job.begun_s, from_s)) for job in self._worked)
        return busy_s / (self.machines.cores * (to_s - from_s)) if to_s > from_s else 0.0

    def send_s(self, sent_bytes: float) -> float:
        """Use the link for this many bytes and return how long that blocks the sender."""
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
    def delay_s(self) -> float:
        """How long a message takes to this host, or from it."""
        return 0.001 if self.name == HOME else self.machines.link_delay_s * self.link_slowness

    def take(
        self,
        run: Run,
        work_s: float,
        on_reply: Callable[[Reply], None],
        begun: Callable[[], None],
        aside: Callable[[], None],
    ) -> None:
        """Accept a run that was sent now.

        Args:
            run: the run.
            work_s: how long a private core works on it.
            on_reply: called with the answer, if any comes.
            begun: called when the gateway learns that the host has begun with it, so that another may be sent.
            aside: called when the gateway learns that the host looks for bad rows in it.
        """
        needed_s = work_s if self.name == HOME else work_s / self.machines.vm_speed
        self._agenda.after(self.delay_s, lambda: self._serve(run, needed_s, on_reply, begun, aside))

    def _serve(
        self,
        run: Run,
        work_s: float,
        on_reply: Callable[[Reply], None],
        begun: Callable[[], None],
        aside: Callable[[], None],
    ) -> None:
        if not self.alive:
            return
        served = self._server.serve(self._agenda.now_s, work_s)
        self._worked.append(served)
        self._agenda.at(served.begun_s + self.delay_s, begun)
        done_s = served.done_s
        if self._faults.bad_rows and self._draw.random() < self._faults.bad_rows:
            self._trace.note(f"fault: {self.name} finds bad rows in {run.first_seq}")
            self._agenda.at(served.done_s + self.delay_s, aside)
            done_s += self._draw.uniform(0.0, self._faults.bad_rows_s)
        self._agenda.at(done_s, lambda: self._finish(run, done_s - served.begun_s, on_reply))

    def _finish(self, run: Run, batch_s: float, on_reply: Callable[[Reply], None]) -> None:
        if not self.alive or self.hung:
            return
        self.reply(run.first_seq, run.last_seq, batch_s, on_reply, run.batch)

    @property
    def answers(self) -> bool:
        """Whether it does anything."""
        return self.alive and not self.hung

    def serve(self, work_s: float) -> ServiceInterval:
        """Let a core work now, or once one is free, for so long at the speed of home."""
        served = self._server.serve(
            self._agenda.now_s, work_s if self.name == HOME else work_s / self.machines.vm_speed
        )
        self._worked.append(served)
        return served

    def reply(
        self,
        first_seq: int,
        last_seq: int,
        batch_s: float,
        on_reply: Callable[[Reply], None],
        results: object = None,
        after_s: float = 0.0,
    ) -> float | None:
        """Send an answer, which may come late, twice or never, but not before ``after_s``.

        Returns:
            When it comes; None if it never does.
        """
        self._batches += 1
        reply = Reply(first_seq, last_seq, self._batches, batch_s, results)
        faults, draw = self._faults, self._draw
        if draw.random() < faults.lost_reply:
            self._trace.note(f"fault: {self.name} lost the reply for {first_seq}")
            return None
        late_s = draw.uniform(0, faults.late_s) if draw.random() < faults.late_reply else 0.0
        comes_s = max(after_s, self._agenda.now_s + (self.delay_s + late_s))
        self._agenda.at(comes_s, lambda: on_reply(reply))
        if draw.random() < faults.doubled_reply:
            again_s = self.delay_s + draw.uniform(0, faults.late_s)
            self._agenda.after(again_s, lambda: on_reply(reply))
        return comes_s


class SimulatedLaneOwner(Protocol):
    """Receives the events of a lane."""

    def on_event(self, event: LaneEvent) -> None:
        """Report an event to the exchange."""
        ...

    def payload_bytes(self, lane: str, run: Run) -> int:
        """Return how many bytes a run has on the link to a lane's host."""
        ...

    def sends(self, lane: str, run: Run) -> int:
        """Check that a run may be sent now; return its size on the link."""
        ...

    def work_s(self, run: Run, machines: Machines, lane_runs: int) -> float:
        """Return how long a private core of such machines works on a run in a lane with this many runs."""
        ...

    def on_reply(self, lane: str, reply: Reply) -> None:
        """Process a host's answer."""
        ...

    def open_runs(self, lane: str) -> int:
        """Return how many runs are open in a lane."""
        ...


def sent_rows(run: Run) -> int:
    """Return how many rows a host gets: a part's may have a heartbeat; else simulated runs have no rows."""
    return run.events if run.seqs is None and run.selected is None else run.batch.num_rows


class SimulatedLane:
    """A lane of one query to a host: packs at once, sends over the host's link, and processes the host's messages.

    Args:
        host: the host.
        owner: receives the lane's events.
        agenda: time.
        whole: the first seqs of runs that are answered only when all of them have arrived, like a micro-batch that
            Spark had planned before it was lost.
    """

    def __init__(
        self, host: SimulatedEngineHost, owner: SimulatedLaneOwner, agenda: Agenda, whole: Iterable[int] = ()
    ) -> None:
        self.host = host
        self.closed = False
        self._owner = owner
        self._agenda = agenda
        self._packed: Run | None = None
        self._whole = set(whole)
        self._kept: list[Reply] = []

    @property
    def name(self) -> str:
        """The host's name."""
        return self.host.name

    def order(self, what: Pack[Run] | Send) -> None:
        """Carry out an instruction of the exchange."""
        match what:
            case Pack(run=run):
                self._agenda.after(0.0, lambda: self._pack(run))
            case Send():
                self._send(what.first_seq)

    def _pack(self, run: Run) -> None:
        if self.closed:
            return
        self._packed, rows = run, sent_rows(run)
        self._owner.on_event(
            ev.Packed(
                at_s=self._agenda.now_s,
                lane=self.name,
                first_seq=run.first_seq,
                raw_bytes=run.raw_bytes,
                payload_bytes=self._owner.payload_bytes(self.name, run),
                rows=rows,
            )
        )
        if not rows:  # no selection ends in it: the answer is known without the host
            self._owner.on_reply(self.name, Reply(run.first_seq, run.last_seq, NO_BATCH, 0.0, run.batch))

    def _send(self, first_seq: int) -> None:
        run = self._packed
        if run is None or run.first_seq != first_seq:
            raise BrokenPromiseError(f"run {first_seq} is to be sent to {self.name}, and was not packed last")
        sent_bytes = self._owner.sends(self.name, run)
        took_s = self.host.send_s(sent_bytes)
        self._agenda.after(took_s, lambda: self._sent(run, sent_bytes, took_s))

    def _sent(self, run: Run, sent_bytes: int, took_s: float) -> None:
        if self.closed:
            return
        work_s = self._owner.work_s(run, self.host.machines, self._owner.open_runs(self.name))
        self.host.take(run, work_s, self._on_reply, lambda: self._consumed(sent_bytes), lambda: self._aside(run))
        self._owner.on_event(ev.Sent(at_s=self._agenda.now_s, lane=self.name, first_seq=run.first_seq, took_s=took_s))

    def _consumed(self, consumed_bytes: int) -> None:
        if not self.closed and self.host.alive:
            now_s = self._agenda.now_s
            self._owner.on_event(ev.Credited(at_s=now_s, lane=self.name, consumed_bytes=consumed_bytes))

    def _aside(self, run: Run) -> None:
        if not self.closed and self.host.alive and not self.host.hung:
            self._owner.on_event(ev.Isolating(at_s=self._agenda.now_s, lane=self.name, first_seq=run.first_seq))

    def _on_reply(self, reply: Reply) -> None:
        if self.closed or not self.host.alive:
            return
        if reply.first_seq in self._whole:
            self._whole.remove(reply.first_seq)
            self._kept.append(reply)
            replies, self._kept = ([], self._kept) if self._whole else (self._kept, [])
        else:
            replies = [reply]
        for each in replies:
            self._owner.on_reply(self.name, each)
