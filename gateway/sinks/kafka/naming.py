"""Results that name the records of Kafka that they were made of: their headers, and which are there already. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from infra.messages import NAME_HEADERS, NAMES


class EventName(NamedTuple):
    """A record: its topic, partition and offset."""

    topic: str
    partition: int
    offset: int

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """The headers of a result that is made of it."""
        return [(header, str(value).encode()) for header, value in zip(NAME_HEADERS, self, strict=True)]

    @classmethod
    def of(cls, headers: Sequence[tuple[str, bytes]]) -> EventName | None:
        """Return the name in a result's headers; None if it has none."""
        found = dict(headers)
        topic, partition, offset = (found.get(header) for header in NAME_HEADERS)
        if topic is None or partition is None or offset is None:
            return None
        return cls(topic.decode(), int(partition), int(offset))


def unnamed(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[EventName | None]]:
    """Return results without the columns of names, and the name of each; no names if they have no such columns.

    A result has none if its event is of no record, as a dead letter that is replayed.
    """
    if tuple(batch.schema.names[-len(NAMES) :]) != NAMES:
        return batch, []
    told = zip(*(batch.column(name).to_pylist() for name in NAMES), strict=True)
    names = [None if topic is None else EventName(topic, partition, offset) for topic, partition, offset in told]
    return batch.select(batch.schema.names[: -len(NAMES)]), names


def missing(names: Sequence[EventName | None], delivered: Mapping[EventName, int]) -> list[int]:
    """Return which of a run's results are to be written.

    A record's results are all in one run, and in the order in which others have written them: so the first ones are in
    the topic already.

    Args:
        names: of the results.
        delivered: how many results of a record are in the topic.
    """
    seen: Counter[EventName] = Counter()
    rows = []
    for row, name in enumerate(names):
        if name is not None:
            seen[name] += 1
        if name is None or seen[name] > delivered.get(name, 0):
            rows.append(row)
    return rows
