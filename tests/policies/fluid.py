"""A query's runs flow through lanes of given rates, in small steps of virtual time; the real Profiler measures."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.core.decide.profiler import Profiler
from gateway.core.exchange import OpenRuns
from gateway.core.exchange.routing import Router
from policies.signals import QuerySlot

STEP_S = 0.05
EVENT_BYTES = 1000


@dataclass
class Run:
    first_seq: int
    events: int
    arrival_s: float
    left: float = 0.0


@dataclass
class Lane:
    """Takes runs up to ``room_events``, and completes ``per_s`` events a second in order, ``wan_s`` later.

    ``engine_per_s`` is the rate of its engine without the link in front of it.
    """

    per_s: float
    wan_s: float = 0.0
    room_events: float = float("inf")
    engine_per_s: float | None = None
    queue: deque[Run] = field(default_factory=deque)
    batch_id: int = 0

    @property
    def open_events(self) -> int:
        return sum(run.events for run in self.queue)


class Fluid:
    """One query ``q`` over lanes; the real Router dispatches its runs."""

    def __init__(self, input_rate: Callable[[float], float], lanes: Mapping[str, Lane], *, slot_s: float = 1.0) -> None:
        self.input_rate = input_rate
        self.lanes = dict(lanes)
        self.router = Router()
        self.profiler = Profiler(slot_s, {"q": "mean"})
        self.slot_s = slot_s
        self.now_s = 0.0
        self.seq = 0
        self.backlog: deque[Run] = deque()
        self.latencies: list[tuple[float, int]] = []

    def run_slot(self) -> QuerySlot:
        for _ in range(round(self.slot_s / STEP_S)):
            self._arrive()
            self._route()
            self._serve()
            self.now_s += STEP_S
        oldest_s = self.backlog[0].arrival_s if self.backlog else None
        self.profiler.under_way(
            "q",
            waiting_events=sum(run.events for run in self.backlog),
            oldest_arrival_s=oldest_s,
            open_runs={
                name: OpenRuns(lane.open_events, len(lane.queue), lane.queue[0].arrival_s)
                for name, lane in self.lanes.items()
                if lane.queue
            },
        )
        (slot,) = self.profiler.end_slot(self.now_s)
        return slot

    def set_shares(self, shares: Mapping[str, float]) -> None:
        self.router.set_shares(shares)

    def remove(self, lane: str) -> None:
        self.backlog.extendleft(reversed(self.lanes.pop(lane).queue))
        self.profiler.lane_closed(lane)

    def _arrive(self) -> None:
        events = round(self.input_rate(self.now_s) * STEP_S)
        if events:
            self.backlog.append(Run(self.seq, events, self.now_s, left=events))
            self.seq += events
            until_s = self.now_s + STEP_S
            self.profiler.arrived(
                "q", events=events, raw_bytes=events * EVENT_BYTES, first_due_s=self.now_s, last_due_s=until_s
            )

    def _route(self) -> None:
        while self.backlog:
            run = self.backlog[0]
            with_room = {name for name, lane in self.lanes.items() if lane.open_events + run.events <= lane.room_events}
            picked = self.router.pick(run.events, with_room)
            if picked is None:
                return
            self.router.dispatched(picked, run.events)
            self._give(self.backlog.popleft(), picked)

    def _give(self, run: Run, lane: str) -> None:
        self.lanes[lane].queue.append(run)
        raw_bytes = run.events * EVENT_BYTES
        self.profiler.dispatched(
            "q",
            lane=lane,
            events=run.events,
            raw_bytes=raw_bytes,
            sent_bytes=raw_bytes // 3,
        )

    def _serve(self) -> None:
        for name, lane in self.lanes.items():
            room = lane.per_s * STEP_S
            while lane.queue and room > 1e-9:
                run = lane.queue[0]
                done = min(room, run.left)
                run.left -= done
                room -= done
                if run.left <= 1e-9:
                    self._complete(lane.queue.popleft(), name, lane)

    def _complete(self, run: Run, name: str, lane: Lane) -> None:
        lane.batch_id += 1
        completed_s = self.now_s + STEP_S + lane.wan_s
        self.latencies.append((completed_s - run.arrival_s, run.events))
        self.profiler.completed(
            "q",
            last_seq=run.first_seq + run.events - 1,
            events=run.events,
            lane=name,
            mean_arrival_s=run.arrival_s,
            completed_s=completed_s,
            batch_id=lane.batch_id,
            batch_s=run.events / (lane.engine_per_s or lane.per_s),
        )
