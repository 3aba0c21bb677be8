"""A continuous query as a graph of producers, operators and consumers (CEPSim, III-A)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engines.simulated.generators import Generator

Combination = Callable[[Mapping[str, float]], float]
"""Eq. 1: events emitted for a window, from the events of each predecessor in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """Base of all vertices.

    Attributes:
        name: unique among all vertices of a simulation.
        ipe: instructions per event.
        queue_events: the limit of each of its input queues; a full queue causes back-pressure. None: no limit.
    """

    name: str
    ipe: float
    queue_events: float | None = None

    def __post_init__(self) -> None:
        if not (self.ipe > 0 and math.isfinite(self.ipe)):
            raise ValueError(f"{self.name}: instructions per event must be finite and positive, not {self.ipe!r}")
        if self.queue_events is not None and not self.queue_events > 0:
            raise ValueError(f"{self.name}: queue_events must be positive, not {self.queue_events!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer(Vertex):
    """A source of events. With ``queue_events``, events that its queue cannot hold are dropped and counted."""

    generator: Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator(Vertex):
    """Passes events on; each edge gets the part that its selectivity says: a filter, a transformation, a split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedOperator(Vertex):
    """Emits ``function`` of the events of the last ``window_s`` every ``advance_s``; nothing for an empty window."""

    window_s: float
    advance_s: float
    function: Combination

    def __post_init__(self) -> None:
        Vertex.__post_init__(self)
        steps = self.window_s / self.advance_s if self.advance_s > 0 else 0.0
        if steps < 1 - 1e-9 or abs(steps - round(steps)) > 1e-9:
            raise ValueError(f"{self.name}: {self.window_s:g} s is not a multiple of {self.advance_s:g} s")

    @property
    def slots(self) -> int:
        """How many advances fit into the window."""
        return round(self.window_s / self.advance_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOperator(Vertex):
    """Emits ``reduction`` of all tuples, one event of each predecessor, that are at most ``window_s`` apart."""

    window_s: float
    reduction: float

    def __post_init__(self) -> None:
        Vertex.__post_init__(self)
        if not (self.window_s > 0 and self.reduction >= 0):
            raise ValueError(f"{self.name}: a join needs a window and a reduction that is not negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer(Vertex):
    """The end of a query, where results leave it."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream from ``origin`` to ``target``.

    Attributes:
        origin: name of the vertex that sends.
        target: name of the vertex that receives.
        selectivity: events on this edge per event that ``origin`` emits.
        event_bytes: size of one of them when it crosses a network.
    """

    origin: str
    target: str
    selectivity: float = 1.0
    event_bytes: float = 0.0

    def __post_init__(self) -> None:
        if min(self.selectivity, self.event_bytes) < 0:
            raise ValueError(f"edge {self.origin} -> {self.target}: neither selectivity nor size may be negative")


def constant(events: float) -> Combination:
    """Return a combination that emits this many events for each window."""
    return lambda _: events


class QueryGraph:
    """A directed acyclic graph.

    Args:
        name: for messages.
        vertices: at least a producer and a consumer.
        edges: at most one from one vertex to another.

    Raises:
        ValueError: they do not form such a graph.
    """

    def __init__(self, name: str, vertices: Sequence[Vertex], edges: Sequence[Edge]) -> None:
        self.name = name
        self.vertices: Mapping[str, Vertex] = {vertex.name: vertex for vertex in vertices}
        self.edges = tuple(edges)
        if len(self.vertices) < len(vertices):
            raise ValueError(f"query {name}: two vertices have the same name")
        self.inputs: Mapping[str, list[Edge]] = {vertex: [] for vertex in self.vertices}
        self.outputs: Mapping[str, list[Edge]] = {vertex: [] for vertex in self.vertices}
        for edge in edges:
            self._connect(edge)
        self._check_ends()
        self.order: Sequence[str] = self._topological()

    def _connect(self, edge: Edge) -> None:
        for end in (edge.origin, edge.target):
            if end not in self.vertices:
                raise ValueError(f"query {self.name}: an edge names {end}, which is not a vertex")
        if any(other.target == edge.target for other in self.outputs[edge.origin]):
            raise ValueError(f"query {self.name}: two edges go from {edge.origin} to {edge.target}")
        self.outputs[edge.origin].append(edge)
        self.inputs[edge.target].append(edge)

    def _check_ends(self) -> None:
        for name, vertex in self.vertices.items():
            if isinstance(vertex, Producer) is bool(self.inputs[name]):
                raise ValueError(f"query {self.name}: {name} {'has' if self.inputs[name] else 'lacks'} an input")
            if isinstance(vertex, Consumer) is bool(self.outputs[name]):
                raise ValueError(f"query {self.name}: {name} {'has' if self.outputs[name] else 'lacks'} an output")
        if not self.vertices:
            raise ValueError(f"query {self.name} has no vertex")

    def _topological(self) -> list[str]:
        waits_for = {name: len(edges) for name, edges in self.inputs.items()}
        ready = [name for name, count in waits_for.items() if count == 0]
        order: list[str] = []
        while ready:
            name = ready.pop(0)
            order.append(name)
            for edge in self.outputs[name]:
                waits_for[edge.target] -= 1
                if waits_for[edge.target] == 0:
                    ready.append(edge.target)
        if len(order) < len(self.vertices):
            raise ValueError(f"query {self.name} has a cycle")
        return order

    def paths(self, producer: str, consumer: str) -> int:
        """Return how many paths lead from ``producer`` to ``consumer`` (eq. 10)."""
        ways = dict.fromkeys(self.vertices, 0)
        ways[producer] = 1
        for name in self.order:
            for edge in self.outputs[name]:
                ways[edge.target] += ways[name]
        return ways[consumer]

    def named(self, kind: type[Vertex]) -> list[str]:
        """Return the names of all vertices of a kind."""
        return [name for name, vertex in self.vertices.items() if isinstance(vertex, kind)]
