"""Vertices in action: what each consumes and emits in a tick (CEPSim, III-B, step 3)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from engines.simulated.events import EventQueue, EventSet
from engines.simulated.query import Consumer, JoinOperator, Operator, Producer, Vertex, WindowedOperator

_BISECTIONS = 50
_SOON_S = 1e-9


@dataclass(slots=True)
class Output:
    """An edge as its origin sees it: ``room`` is what its target could take at the end of the last tick."""

    target: str
    selectivity: float
    room: float = math.inf


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a vertex in a tick.

    Attributes:
        instructions: how many it may use.
        begins_s: when the turn begins.
        per_s: instructions that its VM executes a second.
        tick_ends_s: when the tick ends.
    """

    instructions: float
    begins_s: float
    per_s: float
    tick_ends_s: float

    def ends_s(self, used: float) -> float:
        """Return when the vertex has used so many instructions."""
        return min(self.begins_s + used / self.per_s, self.tick_ends_s)


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a vertex in one turn: the events that it consumed, when it did, and what it emitted, if anything."""

    consumed: EventSet
    emitted: EventSet | None


class RunningVertex:
    """A vertex with its input queues.

    Args:
        vertex: its definition.
        inputs: names of its predecessors; the generator of a producer has the producer's own name.
        outputs: its edges.
    """

    def __init__(self, vertex: Vertex, inputs: list[str], outputs: list[Output]) -> None:
        self.vertex = vertex
        self.name = vertex.name
        self.queues: dict[str, EventQueue] = {name: EventQueue() for name in inputs}
        self.outputs = outputs
        self.lost_events = 0.0

    def lose(self) -> None:
        """Forget everything that is in memory, since the VM fails; ``lost_events`` counts it."""
        for queue in self.queues.values():
            self.lost_events += queue.count
            queue.clear()

    @property
    def queued_events(self) -> float:
        """Events in all its queues."""
        return sum(queue.count for queue in self.queues.values())

    @property
    def instructions_needed(self) -> float:
        """Instructions to process what is queued, as far as its successors have room for the result."""
        return min(self.queued_events, self._most_emitted) * self.vertex.ipe

    def process(self, turn: Turn) -> Work:
        """Consume and emit what the turn has instructions for; all at its end, but no event before it has come."""
        consumed = _together(self._take(self._most_emitted, turn))
        return Work(consumed, consumed if consumed.count > 0 else None)

    @property
    def _most_emitted(self) -> float:
        """How many events it may emit so that no target gets more than it has room for."""
        return min((out.room / out.selectivity for out in self.outputs if out.selectivity > 0), default=math.inf)

    def _take(self, most: float, turn: Turn) -> dict[str, EventSet]:
        """Remove up to ``most`` events from the queues, in proportion to their sizes, as far as the turn allows."""
        queued = self.queued_events
        count = min(queued, most, turn.instructions / self.vertex.ipe)
        if count <= 0:
            return {}
        part, at_s = count / queued, turn.ends_s(count * self.vertex.ipe)
        return {name: queue.take(queue.count * part, at_s) for name, queue in self.queues.items() if queue.count > 0}


class RunningProducer(RunningVertex):
    """A producer: its generator fills its queue."""

    def __init__(self, vertex: Producer, outputs: list[Output]) -> None:
        super().__init__(vertex, [vertex.name], outputs)
        self._generator = vertex.generator
        self._most_queued = math.inf if vertex.queue_events is None else vertex.queue_events
        self.generated_events = 0.0
        self.discarded_events = 0.0

    def lose(self) -> None:
        """Keep the queue: it is that of the outside world, which waits until the VM is back."""

    def generate(self, from_s: float, to_s: float) -> None:
        """Let the generator fill the queue; the events of a tick come in its middle, on average."""
        events = self._generator.events(from_s, to_s)
        queue = self.queues[self.name]
        taken = min(events, max(0.0, self._most_queued - queue.count))
        self.generated_events += events
        self.discarded_events += events - taken
        if taken > 0:
            queue.add(EventSet(taken, (from_s + to_s) / 2, 0.0, {self.name: taken}))


class RunningWindow(RunningVertex):
    """A windowed operator; a slot for each advance within its window.

    While its output waits for room it consumes nothing, so that back-pressure reaches its predecessors.
    """

    def __init__(self, vertex: WindowedOperator, inputs: list[str], outputs: list[Output]) -> None:
        super().__init__(vertex, inputs, outputs)
        self._window = vertex
        self._slots: deque[dict[str, EventSet]] = deque([{}], maxlen=vertex.slots)
        self._closes = 1
        self._pending = EventSet()

    def lose(self) -> None:
        """See ``RunningVertex``; the events of the open window, and results that were not sent yet, are lost, too."""
        super().lose()
        held = {name: events for slot in list(self._slots)[-1:] for name, events in slot.items()}
        self.lost_events += _together(held).count + self._pending.count
        self._slots = deque([{}], maxlen=self._window.slots)
        self._pending = EventSet()

    @property
    def instructions_needed(self) -> float:
        """See ``RunningVertex``."""
        return 0.0 if self._pending.count > 0 else self.queued_events * self.vertex.ipe

    def process(self, turn: Turn) -> Work:
        """See ``RunningVertex``. A window closes when the first turn after its end begins."""
        at_s = turn.begins_s
        while at_s + _SOON_S >= self._closes * self._window.advance_s:
            self._close(at_s)
        emitted = self._pending.take(self._most_emitted).emitted(at_s) if self._pending.count > 0 else None
        taken = {} if self._pending.count > 0 else self._take(math.inf, turn)
        for name, events in taken.items():
            self._slots[-1].setdefault(name, EventSet()).add(events)
        return Work(_together(taken), emitted)

    def _close(self, at_s: float) -> None:
        self._closes += 1
        inside: dict[str, EventSet] = {}
        for slot in self._slots:
            for name, events in slot.items():
                inside.setdefault(name, EventSet()).add(events)
        window = _together(inside)
        if window.count > 0:
            result = window.emitted(
                at_s, self._window.function({name: events.count for name, events in inside.items()})
            )
            # Earlier slots' totals were counted when the windows before this one closed.
            result.totals = dict(_together(self._slots[-1]).totals)
            self._pending.add(result)
        self._slots.append({})


class RunningJoin(RunningVertex):
    """A join: each tuple is emitted once, when the last of its events is processed."""

    def __init__(self, vertex: JoinOperator, inputs: list[str], outputs: list[Output]) -> None:
        super().__init__(vertex, inputs, outputs)
        self._join = vertex
        self._recent: deque[tuple[float, dict[str, float]]] = deque()
        self._inside = dict.fromkeys(inputs, 0.0)
        self._waiting = EventSet()

    def lose(self) -> None:
        """See ``RunningVertex``; events that wait for others of their tuple are lost, too."""
        super().lose()
        self.lost_events += self._waiting.count
        self._recent.clear()
        self._inside = dict.fromkeys(self._inside, 0.0)
        self._waiting = EventSet()

    @property
    def instructions_needed(self) -> float:
        """See ``RunningVertex``."""
        queued = {name: queue.count for name, queue in self.queues.items()}
        return self.queued_events * self._part_with_room(queued) * self.vertex.ipe

    def process(self, turn: Turn) -> Work:
        """See ``RunningVertex``. Whether events are too far apart is decided by their ticks."""
        self._forget(turn.tick_ends_s - self._join.window_s)
        queued = self.queued_events
        most = min(turn.instructions / self._join.ipe, queued)
        if most <= 0:
            return Work(EventSet(), None)
        new = {name: queue.count * most / queued for name, queue in self.queues.items()}
        part = self._part_with_room(new)
        taken = self._take(most * part, turn)
        counts = {name: events.count for name, events in taken.items()}
        tuples = self._tuples(counts)
        self._recent.append((turn.tick_ends_s, counts))
        for name, count in counts.items():
            self._inside[name] += count
        consumed = _together(taken)
        self._waiting.add(consumed)
        if tuples <= 0:
            return Work(consumed, None)
        emitted = self._waiting.emitted(consumed.at_s, tuples)
        self._waiting = EventSet()
        return Work(consumed, emitted)

    def _forget(self, before_s: float) -> None:
        while self._recent and self._recent[0][0] <= before_s + _SOON_S:
            for name, count in self._recent.popleft()[1].items():
                self._inside[name] -= count
        if not self._recent:
            self._inside = dict.fromkeys(self._inside, 0.0)

    def _tuples(self, new: Mapping[str, float]) -> float:
        before = math.prod(self._inside.values())
        after = math.prod(count + new.get(name, 0.0) for name, count in self._inside.items())
        return self._join.reduction * max(0.0, after - before)

    def _part_with_room(self, new: Mapping[str, float]) -> float:
        """Return the part of ``new`` that may be consumed so that the output has room."""
        most = self._most_emitted
        if self._tuples(new) <= most:
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            if self._tuples({name: count * middle for name, count in new.items()}) <= most:
                low = middle
            else:
                high = middle
        return low


def run_vertex(vertex: Vertex, inputs: list[str], outputs: list[Output]) -> RunningVertex:
    """Return a vertex ready to work.

    Raises:
        TypeError: its class is unknown.
    """
    match vertex:
        case Producer():
            return RunningProducer(vertex, outputs)
        case WindowedOperator():
            return RunningWindow(vertex, inputs, outputs)
        case JoinOperator():
            return RunningJoin(vertex, inputs, outputs)
        case Operator() | Consumer():
            return RunningVertex(vertex, inputs, outputs)
        case _:
            raise TypeError(f"{vertex.name} is a {type(vertex).__name__}, which cannot be simulated")


def _together(parts: Mapping[str, EventSet]) -> EventSet:
    whole = EventSet()
    for events in parts.values():
        whole.add(events)
    return whole
