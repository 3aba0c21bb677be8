"""What arrived in the topic of the results: whether it is right, and how long after each mail was due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from gateway.config.connectors.kafka import LATE_HEADER
from gateway.demo.kafka.mails import PARTITIONS, event_of
from gateway.demo.verify import ExpectedResults, SinkVerdict, judge
from gateway.views.runrecord import GatewayRecord, Slot, Spread
from infra.kafka.topics import LoadTopics


@dataclass(frozen=True, slots=True)
class MailAnswers:
    """The results of a topic, in their order; arrays of shape (results,).

    Attributes:
        events: the event of each, -1 if it is the right answer to none.
        late: whether each is marked late.
        at_s: when the broker got it, in seconds since 1970.
    """

    events: NDArray[np.int64]
    late: NDArray[np.bool_]
    at_s: NDArray[np.float64]

    def verdict(self, expected: ExpectedResults, events: int) -> SinkVerdict:
        """Return what is lost, repeated, or out of order within a partition of the mails."""
        parts = [(self.events[~self.late], False), (self.events[self.late], True)]
        return judge(parts, expected, events, PARTITIONS)

    def rate_per_s(self) -> float:
        """Return the results per second of the second half, over the seconds in which some came.

        In the first half an engine's JIT compilers work. Spark's streams pause between their batches.

        Raises:
            ValueError: there are too few results.
        """
        at_s = np.sort(self.at_s)
        by_second = np.bincount((at_s[len(at_s) // 2 :] - at_s[len(at_s) // 2]).astype(int)) if len(at_s) else at_s
        whole = by_second[:-1]  # the last second is not over
        if not whole.any():
            raise ValueError(f"{len(at_s)} results are too few to measure a rate")
        return float(whole[whole > 0].mean())


async def read_answers(topics: LoadTopics, topic: str, expected: ExpectedResults, events: int) -> MailAnswers:
    """Return the results in a topic; see ``LoadTopics.records`` for errors."""
    numbers: list[int] = []
    late: list[bool] = []
    at_ms: list[int] = []
    async for records in topics.records(topic):
        numbers += [event_of(record.value or b"", record.headers, expected, events) for record in records]
        late += [any(name == LATE_HEADER for name, _ in record.headers) for record in records]
        at_ms += [record.timestamp for record in records]
    return MailAnswers(
        np.array(numbers, dtype=np.int64), np.array(late, dtype=bool), np.array(at_ms, dtype=float) / 1e3
    )


def measured(
    record: GatewayRecord, answers: MailAnswers, due_s: NDArray[np.float64], begins_s: float, first: int
) -> GatewayRecord:
    """Return a gateway's record with what was seen from outside: times from the first mail on, and latencies.

    The gateway does not see the latency of each result that Spark delivers by itself.

    Args:
        record: its own.
        answers: to all mails.
        due_s: when each mail was due, in seconds after ``begins_s``.
        begins_s: in seconds since 1970.
        first: so many mails came before; their latencies do not count.
    """
    counts = answers.events >= first
    due_at_s = begins_s + due_s[answers.events[counts] - first]
    latencies_s = answers.at_s[counts] - due_at_s
    shift_s = record.began_s - begins_s
    slots = [replace(slot, at_s=slot.at_s + shift_s) for slot in record.slots if slot.at_s + shift_s > 0]
    spread = _spread(1e3 * latencies_s)
    return replace(
        record,
        totals=replace(record.totals, events=first + len(due_s), latency_ms=spread, delivery_ms=spread),
        slots=_with_latencies(slots, answers.at_s[counts] - begins_s, 1e3 * latencies_s),
        marks=tuple(replace(mark, at_s=mark.at_s + shift_s) for mark in record.marks),
        began_s=begins_s,
    )


def _with_latencies(
    slots: Sequence[Slot], at_s: NDArray[np.float64], latencies_ms: NDArray[np.float64]
) -> tuple[Slot, ...]:
    places = np.searchsorted([slot.at_s for slot in slots], at_s)
    sums = np.bincount(places, weights=latencies_ms, minlength=len(slots))
    counts = np.bincount(places, minlength=len(slots))
    means = [total / count if count else None for total, count in zip(sums.tolist(), counts.tolist(), strict=True)]
    return tuple(replace(slot, all_latency_ms=mean) for slot, mean in zip(slots, means, strict=False))


def _spread(values_ms: NDArray[np.float64]) -> Spread:
    if not len(values_ms):
        return Spread(mean=0.0, p50=0.0, p95=0.0)
    p50, p95 = np.percentile(values_ms, [50, 95]).tolist()
    return Spread(mean=float(values_ms.mean()), p50=p50, p95=p95)
