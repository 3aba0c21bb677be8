"""CEPSim's queries on an engine with micro-batches, such as Spark, and with windows by event time.

CEPSim passes events on from tick to tick, and closes a window when its time has come (III-B). A micro-batch engine
processes everything that has arrived since its last micro-batch as a whole. It closes a window only in a micro-batch
that begins after an event later than the window's end was seen (the watermark). ``gateway.simulate.runs.microbatches``
decides when micro-batches begin and how long they take.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engines.simulated.events import EventSet
from engines.simulated.query import Consumer, Edge, Operator, Producer, QueryGraph, Vertex, WindowedOperator


@dataclass(frozen=True, slots=True)
class ProducedEvents:
    """Events of a producer, evenly spread: ``count`` of them, due from ``from_s`` on and before ``to_s``."""

    count: int
    from_s: float
    to_s: float

    @property
    def newest_s(self) -> float:
        """When the last of them was due."""
        return self.to_s - (self.to_s - self.from_s) / self.count if self.count else -math.inf


@dataclass(frozen=True, slots=True)
class Closed:
    """A window that a micro-batch closed.

    Attributes:
        number: of the window, from 0.
        events: the consumer's events, at their mean event time, without latency and with their totals (eq. 7 and 8).
    """

    number: int
    events: EventSet


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The work of a micro-batch, in instructions, and the windows that it closes."""

    instructions: float
    closed: tuple[Closed, ...]


class MicroBatchedQuery:
    """A chain of a producer, operators, one window that does not slide, operators, and a consumer.

    Args:
        query: such a chain.

    Raises:
        ValueError: the query is not such a chain.
    """

    def __init__(self, query: QueryGraph) -> None:
        edges = _chain(query)
        vertices = [query.vertices[name] for name in query.order]
        at = next(i for i, vertex in enumerate(vertices) if isinstance(vertex, WindowedOperator))
        window = vertices[at]
        assert isinstance(window, WindowedOperator)
        self.producer, self.consumer = vertices[0].name, vertices[-1].name
        self._window, self._before = window, vertices[at - 1].name
        self._event_instructions, self._reaching = _work(vertices[: at + 1], edges[:at])
        self._result_instructions, self._kept = _work(vertices[at + 1 :], edges[at + 1 :])
        passed = edges[at].selectivity
        self._result_instructions *= passed
        self._kept *= passed
        self._watermark_s = -math.inf
        self._open: dict[int, EventSet] = {}

    def batch(self, arrivals: list[ProducedEvents]) -> MicroBatch:
        """Process a micro-batch of these events; they must not belong to a window that an earlier one closed."""
        watermark_s = self._watermark_s
        for some in arrivals:
            self._put(some)
            self._watermark_s = max(self._watermark_s, some.newest_s)
        closing = sorted(number for number in self._open if (number + 1) * self._window.window_s <= watermark_s)
        instructions = self._event_instructions * sum(some.count for some in arrivals)
        closed = []
        for number in closing:
            inside = self._open.pop(number)
            results = self._window.function({self._before: inside.count * self._reaching})
            instructions += results * self._result_instructions
            closed.append(Closed(number, inside.emitted(inside.at_s, results * self._kept)))
        return MicroBatch(instructions, tuple(closed))

    def _put(self, some: ProducedEvents) -> None:
        """Split events over the windows in which they were due."""
        from_s, window_s = some.from_s, self._window.window_s
        per_s = some.count / (some.to_s - some.from_s)
        while from_s < some.to_s:
            number = math.floor(from_s / window_s)
            to_s = min(some.to_s, (number + 1) * window_s)
            count = per_s * (to_s - from_s)
            inside = EventSet(count, (from_s + to_s) / 2, 0.0, {self.producer: count})
            self._open.setdefault(number, EventSet()).add(inside)
            from_s = to_s


def _chain(query: QueryGraph) -> list[Edge]:
    """Return the edges of a chain from first to last."""
    vertices = [query.vertices[name] for name in query.order]
    windows = [vertex for vertex in vertices if isinstance(vertex, WindowedOperator)]
    simple = all(isinstance(vertex, Operator | WindowedOperator) for vertex in vertices[1:-1])
    ends = isinstance(vertices[0], Producer) and isinstance(vertices[-1], Consumer)
    if not (simple and ends and len(windows) == 1 and len(query.edges) == len(vertices) - 1):
        raise ValueError(f"query {query.name}: only a chain with one window can be run in micro-batches")
    if windows[0].slots != 1:
        raise ValueError(f"query {query.name}: a window that slides cannot be run in micro-batches")
    return [query.outputs[name][0] for name in query.order[:-1]]


def _work(vertices: list[Vertex], edges: list[Edge]) -> tuple[float, float]:
    """Return the instructions for an event at the first vertex, and the part of it that reaches the last vertex."""
    part, instructions = 1.0, 0.0
    for vertex, selectivity in zip(vertices, [*(edge.selectivity for edge in edges), 1.0], strict=True):
        instructions += part * vertex.ipe
        part *= selectivity
    return instructions, part
