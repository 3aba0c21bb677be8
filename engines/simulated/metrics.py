"""The log of a simulation and the metrics calculated from it (CEPSim, III-C and III-D)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engines.simulated.events import EventSet
from engines.simulated.query import Consumer, Producer, QueryGraph


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


class Throughput:
    """Eq. 9 and 10: the producers' events, by path, that a consumer's events stand for, per second.

    Args:
        queries: the queries whose consumers are measured.
        since_s: earlier entries are left out.
    """

    def __init__(self, queries: Iterable[QueryGraph], since_s: float = 0.0) -> None:
        self._since_s = since_s
        self._paths: dict[str, dict[str, int]] = {
            consumer: {producer: query.paths(producer, consumer) for producer in query.named(Producer)}
            for query in queries
            for consumer in query.named(Consumer)
        }
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
        paths = self._paths[consumer]
        events = sum(total / paths[producer] for producer, total in self._totals[consumer].items())
        return events / (until_s - self._since_s)


def all_of(calculators: Sequence[MetricCalculator], entry: MetricsEntry, events: EventSet) -> None:
    """Pass an entry to every calculator."""
    for calculator in calculators:
        calculator.observe(entry, events)
