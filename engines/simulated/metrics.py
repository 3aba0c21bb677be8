"""The log of a simulation and the metrics calculated from it (CEPSim, III-C and III-D)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engines.simulated.events import EventSet
from engines.simulated.query import Consumer, Producer, QueryGraph

_ROUNDING = 1e-9


class Happening(StrEnum):
    """The kind of a log entry."""

    PROCESSED = "processed"
    SENT = "sent"
    RECEIVED = "received"


@dataclass(frozen=True, slots=True)
class MetricsEntry:
    """One line of the log.

    Attributes:
        tick: number of the tick.
        at_s: seconds since the simulation began.
        vertex: the vertex that processed, sent or received.
        happened: which of the three.
        events: how many.
        other: the receiver or the sender; empty when the events were processed.
    """

    tick: int
    at_s: float
    vertex: str
    happened: Happening
    events: float
    other: str = ""


@dataclass(frozen=True, slots=True)
class GraphsSettings:
    """With which settings graphs were simulated.

    Attributes:
        placement: the VM of each vertex.
        tick_s: the length of a tick.
        seed: of arrivals and failures.
    """

    placement: Mapping[str, str]
    tick_s: float
    seed: int


class MetricCalculator(Protocol):
    """Calculates a metric of a simulation (CEPSim's MetricCalculator)."""

    def observe(self, entry: MetricsEntry, events: EventSet) -> None:
        """Add an entry; ``events`` are E of eq. 2, 3 and 7 for these events: at the entry's time, with latency."""
        ...


class Log:
    """Keeps the last ``most`` entries."""

    def __init__(self, most: int = 1_000_000) -> None:
        self.entries: deque[MetricsEntry] = deque(maxlen=most)

    def observe(self, entry: MetricsEntry, events: EventSet) -> None:  # noqa: ARG002
        """See ``MetricCalculator``."""
        self.entries.append(entry)


class Latency:
    """Eq. 6: the mean of the latencies at all times when a consumer consumed something.

    Args:
        since_s: earlier entries are left out.
    """

    def __init__(self, since_s: float = 0.0) -> None:
        self._since_s = since_s
        self._sums: dict[str, tuple[float, int]] = {}

    def observe(self, entry: MetricsEntry, events: EventSet) -> None:
        """See ``MetricCalculator``."""
        if entry.happened is Happening.PROCESSED and entry.at_s >= self._since_s:
            sum_s, times = self._sums.get(entry.vertex, (0.0, 0))
            self._sums[entry.vertex] = (sum_s + events.latency_s, times + 1)

    def latency_s(self, consumer: str) -> float | None:
        """Return a consumer's latency; None if it consumed nothing."""
        sum_s, times = self._sums.get(consumer, (0.0, 0))
        return sum_s / times if times else None


def _paths(queries: Iterable[QueryGraph]) -> dict[str, dict[str, int]]:
    """Return the number of paths to each consumer from each producer."""
    return {
        consumer: {producer: query.paths(producer, consumer) for producer in query.named(Producer)}
        for query in queries
        for consumer in query.named(Consumer)
    }


def _produced(totals: Mapping[str, float], paths: Mapping[str, int]) -> float:
    """Return the producers' events behind these totals, by path (the sum of eq. 10)."""
    return sum(total / paths[producer] for producer, total in totals.items())


class Throughput:
    """Eq. 9 and 10: the producers' events, by path, that a consumer's events stand for, per second.

    Args:
        queries: the queries whose consumers are measured.
        since_s: earlier entries are left out.
    """

    def __init__(self, queries: Iterable[QueryGraph], since_s: float = 0.0) -> None:
        self._since_s = since_s
        self._paths = _paths(queries)
        self._totals: dict[str, dict[str, float]] = {consumer: {} for consumer in self._paths}

    def observe(self, entry: MetricsEntry, events: EventSet) -> None:
        """See ``MetricCalculator``."""
        totals = self._totals.get(entry.vertex)
        if totals is None or entry.happened is not Happening.PROCESSED or entry.at_s < self._since_s:
            return
        for producer, total in events.totals.items():
            totals[producer] = totals.get(producer, 0.0) + total

    def per_s(self, consumer: str, until_s: float) -> float:
        """Return a consumer's throughput from ``since_s`` to ``until_s``."""
        return _produced(self._totals[consumer], self._paths[consumer]) / (until_s - self._since_s)


@dataclass(slots=True)
class MetricsBin:
    """The metrics of a consumer in one part of the time.

    Attributes:
        events: that it consumed.
        latency_s: eq. 6 over this part; None if nothing was consumed.
        throughput_per_s: eq. 9 and 10 over this part.
    """

    events: float = 0.0
    latency_s: float | None = None
    throughput_per_s: float = 0.0


@dataclass(slots=True)
class _Sums:
    """What a consumer consumed in a part of the time."""

    events: float = 0.0
    times: int = 0
    latency_s: float = 0.0
    produced: float = 0.0


class MetricsByTime:
    """Eq. 6 and 10 for equal parts of the time, such as seconds or minutes.

    A time on the border of two parts belongs to the earlier one.

    Args:
        queries: the queries whose consumers are measured.
        part_s: length of a part.
    """

    def __init__(self, queries: Iterable[QueryGraph], part_s: float) -> None:
        self.part_s = part_s
        self._paths = _paths(queries)
        self._sums: dict[str, dict[int, _Sums]] = {consumer: {} for consumer in self._paths}

    def observe(self, entry: MetricsEntry, events: EventSet) -> None:
        """See ``MetricCalculator``."""
        parts = self._sums.get(entry.vertex)
        if parts is None or entry.happened is not Happening.PROCESSED:
            return
        sums = parts.setdefault(max(0, math.ceil(entry.at_s / self.part_s - _ROUNDING) - 1), _Sums())
        sums.events += entry.events
        sums.times += 1
        sums.latency_s += events.latency_s
        sums.produced += _produced(events.totals, self._paths[entry.vertex])

    def of(self, consumer: str, until_s: float) -> list[MetricsBin]:
        """Return a consumer's metrics in all parts until ``until_s``; the last one may be shorter."""
        parts = self._sums[consumer]
        found = []
        for number in range(math.ceil(until_s / self.part_s - _ROUNDING)):
            sums = parts.get(number, _Sums())
            lasts_s = min(self.part_s, until_s - number * self.part_s)
            latency_s = sums.latency_s / sums.times if sums.times else None
            found.append(MetricsBin(sums.events, latency_s, sums.produced / lasts_s))
        return found


class EventTotals:
    """Events that each vertex processed, and that were sent over each edge between two VMs."""

    def __init__(self) -> None:
        self.processed: dict[str, float] = {}
        self.sent: dict[tuple[str, str], float] = {}

    def observe(self, entry: MetricsEntry, events: EventSet) -> None:  # noqa: ARG002
        """See ``MetricCalculator``."""
        if entry.happened is Happening.PROCESSED:
            self.processed[entry.vertex] = self.processed.get(entry.vertex, 0.0) + entry.events
        elif entry.happened is Happening.SENT:
            edge = (entry.vertex, entry.other)
            self.sent[edge] = self.sent.get(edge, 0.0) + entry.events


def all_of(calculators: Sequence[MetricCalculator], entry: MetricsEntry, events: EventSet) -> None:
    """Pass an entry to every calculator."""
    for calculator in calculators:
        calculator.observe(entry, events)
