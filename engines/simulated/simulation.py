"""Queries on VMs, tick after tick (CEPSim, III-B and IV-B)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engines.simulated.events import EventSet
from engines.simulated.metrics import Happening, MetricCalculator, MetricsEntry, all_of
from engines.simulated.placement import Link, Placement, SimulatedVm
from engines.simulated.query import Edge, QueryGraph
from engines.simulated.running import Output, RunningProducer, RunningVertex, Turn, run_vertex
from engines.simulated.scheduling import ProportionalToIpe, SchedulingStrategy

_INSTRUCTIONS_PER_MI = 1e6
_SOON_S = 1e-9


@dataclass(frozen=True, slots=True, order=True)
class _Message:
    """Events on a network; ``number`` keeps equal times in the order of sending."""

    due_s: float
    number: int
    origin: str
    target: str
    events: EventSet


class Simulation:
    """Runs queries in equal ticks.

    Args:
        queries: the names of their vertices must differ.
        vms: machines.
        placement: the VM of each vertex.
        interval_s: length of a tick.
        scheduling: returns the strategy of a VM, by its name; CEPSim's default for all if not given.
        links: by (from VM, to VM); events between two VMs without one arrive with the next tick.
        calculators: called for every entry of the log.

    Raises:
        ValueError: names are equal, or a vertex is not placed on one of the VMs.
    """

    def __init__(
        self,
        queries: Sequence[QueryGraph],
        vms: Sequence[SimulatedVm],
        placement: Placement,
        *,
        interval_s: float = 0.01,
        scheduling: Callable[[str], SchedulingStrategy] = lambda _: ProportionalToIpe(),
        links: Mapping[tuple[str, str], Link] | None = None,
        calculators: Sequence[MetricCalculator] = (),
    ) -> None:
        if not interval_s > 0:
            raise ValueError(f"a tick must last longer than {interval_s!r} s")
        self._interval_s = interval_s
        self._placement = dict(placement)
        self._links = dict(links or {})
        self._free_s: dict[tuple[str, str], float] = {}
        self._flying: dict[tuple[str, str], float] = {}
        self._messages: list[_Message] = []
        self._sent = 0
        self._calculators = tuple(calculators)
        self._edges: dict[str, tuple[Edge, ...]] = {}
        self.vertices: dict[str, RunningVertex] = {}
        self._ticks = 0
        for query in queries:
            self._add(query, {vm.name for vm in vms})
        self._vms = tuple(
            (vm, scheduling(vm.name), [own for query in queries if (own := self._on(vm.name, query))]) for vm in vms
        )
        self._producers = [v for v in self.vertices.values() if isinstance(v, RunningProducer)]
        self._say_room()

    def _add(self, query: QueryGraph, vms: set[str]) -> None:
        for name in query.order:
            if name in self.vertices:
                raise ValueError(f"two queries have a vertex {name}: rename one")
            if self._placement.get(name) not in vms:
                raise ValueError(f"vertex {name} of query {query.name} is on no VM")
            outputs = [Output(edge.target, edge.selectivity) for edge in query.outputs[name]]
            inputs = [edge.origin for edge in query.inputs[name]]
            self.vertices[name] = run_vertex(query.vertices[name], inputs, outputs)
            self._edges[name] = tuple(query.outputs[name])

    def _on(self, vm: str, query: QueryGraph) -> list[RunningVertex]:
        return [self.vertices[name] for name in query.order if self._placement[name] == vm]

    @property
    def now_s(self) -> float:
        """Seconds simulated so far."""
        return self._ticks * self._interval_s

    def run(self, until_s: float) -> None:
        """Simulate until ``until_s``, to the next whole tick."""
        while self.now_s < until_s - _SOON_S:
            self.tick()

    def tick(self) -> None:
        """Simulate one tick."""
        from_s = self.now_s
        self._ticks += 1
        at_s = self.now_s
        for producer in self._producers:
            producer.generate(from_s, at_s)
        self._receive(at_s)
        for vm, strategy, queries in self._vms:
            if vm.fails(from_s, at_s):
                for vertex in (vertex for vertices in queries for vertex in vertices):
                    vertex.lose()
            works_s = vm.works_s(from_s, at_s)
            if works_s <= 0:
                continue
            per_s = vm.mips * _INSTRUCTIONS_PER_MI
            begins_s = vm.up_s(from_s)
            for vertex, allocated in strategy.allocate(per_s * works_s, queries):
                begins_s = self._process(vertex, Turn(allocated, begins_s, per_s, at_s))
        self._say_room()

    def _process(self, vertex: RunningVertex, turn: Turn) -> float:
        """Let a vertex have its turn; return when the next one begins."""
        work = vertex.process(turn)
        consumed = work.consumed
        if consumed.count > 0:
            entry = MetricsEntry(self._ticks, consumed.at_s, vertex.name, Happening.PROCESSED, consumed.count)
            all_of(self._calculators, entry, consumed)
        if work.emitted is not None:
            self._pass_on(vertex, work.emitted)
        return turn.ends_s(consumed.count * vertex.vertex.ipe)

    def _pass_on(self, vertex: RunningVertex, emitted: EventSet) -> None:
        for edge, output in zip(self._edges[vertex.name], vertex.outputs, strict=True):
            output.room -= emitted.count * edge.selectivity
            if self._placement[edge.target] == self._placement[vertex.name]:
                self.vertices[edge.target].queues[vertex.name].add(emitted, edge.selectivity)
            else:
                self._send(edge, emitted)

    # ------------------------------------------------------------------------------------------------------- network

    def _send(self, edge: Edge, emitted: EventSet) -> None:
        at_s, events = emitted.at_s, EventSet()
        events.add(emitted, edge.selectivity)
        ends = (self._placement[edge.origin], self._placement[edge.target])
        link = self._links.get(ends, Link())
        free_s = max(at_s, self._free_s.get(ends, 0.0)) + events.count * edge.event_bytes / link.bytes_per_s
        self._free_s[ends] = free_s
        self._sent += 1
        heapq.heappush(self._messages, _Message(free_s + link.delay_s, self._sent, edge.origin, edge.target, events))
        key = (edge.origin, edge.target)
        self._flying[key] = self._flying.get(key, 0.0) + events.count
        entry = MetricsEntry(self._ticks, at_s, edge.origin, Happening.SENT, events.count, edge.target)
        all_of(self._calculators, entry, events)

    def _receive(self, at_s: float) -> None:
        while self._messages and self._messages[0].due_s <= at_s + _SOON_S:
            message = heapq.heappop(self._messages)
            self._flying[message.origin, message.target] -= message.events.count
            arrived = message.events.emitted(message.due_s)
            self.vertices[message.target].queues[message.origin].add(arrived)
            entry = MetricsEntry(
                self._ticks, message.due_s, message.target, Happening.RECEIVED, arrived.count, message.origin
            )
            all_of(self._calculators, entry, arrived)

    # -------------------------------------------------------------------------------------------------- back-pressure

    def _say_room(self) -> None:
        """Let every vertex with bounded queues tell its predecessors how much room it has in the next tick."""
        for origin, vertex in self.vertices.items():
            for output in vertex.outputs:
                target = self.vertices[output.target]
                most = target.vertex.queue_events
                if most is not None:
                    taken = target.queues[origin].count + self._flying.get((origin, output.target), 0.0)
                    output.room = max(0.0, most - taken)
                else:
                    output.room = math.inf
