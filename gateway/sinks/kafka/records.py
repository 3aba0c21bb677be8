"""Converts result rows to records of a topic, and chooses their partitions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec
import pyarrow as pa
from aiokafka.partitioner import murmur2

from gateway.config.connectors.kafka import LATE_HEADER
from gateway.sinks.base import ReleasedRows, SinkError
from gateway.sinks.kafka.naming import EventName, missing, unnamed
from gateway.sinks.rows import json_rows

_ENCODER = msgspec.json.Encoder(decimal_format="number")


class KafkaRecord(NamedTuple):
    """A result as a record of a topic."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]


class RecordMaker:
    """Creates records according to the config.

    Args:
        key: the column whose text is the key, or None.
        headers: header name to column.
        replaces_by: the columns that name a row, if a row replaces the earlier one with the same values in them; they
            are the key, and ``key`` is None.

    Attributes:
        delivered: of records whose results are in the topic already, how many: they are left out.
    """

    def __init__(self, key: str | None, headers: Mapping[str, str], replaces_by: Sequence[str] | None = None) -> None:
        self._key = key
        self._headers = dict(headers)
        self._replaces_by = replaces_by
        self.delivered: Mapping[EventName, int] = {}

    def records(self, release: ReleasedRows) -> list[KafkaRecord]:
        """Return a record for each row, in order; those of a late release have the header ``spillway-late``.

        Rows that name their event have its name in headers.

        Raises:
            SinkError: a column from the config does not exist.
        """
        batch, names = unnamed(release.item)
        if names and self.delivered and len(rows := missing(names, self.delivered)) < len(names):
            batch, names = batch.take(pa.array(rows, pa.int64())), [names[row] for row in rows]
        keys = self._keys(batch)
        columns = {name: self._texts(batch, f"headers.{name}", column) for name, column in self._headers.items()}
        late = [(LATE_HEADER, b"true")] if release.late else []
        headers: Iterable[list[tuple[str, bytes]]] = repeat(late, batch.num_rows)
        if columns:
            # A header without a value is left out.
            headers = [
                late + [(name, text) for name, texts in columns.items() if (text := texts[row]) is not None]
                for row in range(batch.num_rows)
            ]
        if names:
            headers = [
                each + ([] if name is None else name.headers) for each, name in zip(headers, names, strict=False)
            ]
        return list(map(KafkaRecord._make, zip(keys, json_rows(batch), headers, strict=True)))

    def _keys(self, batch: pa.RecordBatch) -> Sequence[bytes | None]:
        if self._replaces_by is not None:
            for column in self._replaces_by:
                _check_column(batch, "output.key", column)
            # An object also where there is one column: a compacted topic refuses a record without a key, so NULL needs
            # a form of its own.
            columns = [batch.column(column).to_pylist() for column in self._replaces_by]
            values = zip(*columns, strict=True) if columns else [() for _ in range(batch.num_rows)]
            return [_ENCODER.encode(dict(zip(self._replaces_by, row, strict=True))) for row in values]
        return [None] * batch.num_rows if self._key is None else self._texts(batch, "key", self._key)

    def _texts(self, batch: pa.RecordBatch, setting: str, column: str) -> list[bytes | None]:
        _check_column(batch, f"sink.{setting}", column)
        return [as_text(value) for value in batch.column(column).to_pylist()]


def _check_column(batch: pa.RecordBatch, setting: str, column: str) -> None:
    if column not in batch.schema.names:
        raise SinkError(
            f'{setting} names "{column}", which is not a column of the results; they have '
            f"{', '.join(batch.schema.names)}"
        )


def as_text(value: object) -> bytes | None:
    """Return a value as the text of a key or a header: as in JSON, but strings without quotes and bytes unchanged."""
    match value:
        case None:
            return None
        case bytes():
            return value
        case str():
            return value.encode()
        case _:
            return _ENCODER.encode(value).strip(b'"')


class Partitioner:
    """Chooses partitions: by the key as Java's clients do; without a key one after the other, changed by ``turn``."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, key: bytes | None, partitions: Sequence[int]) -> int:
        """Return one of ``partitions`` (ascending)."""
        if len(partitions) == 1:
            return partitions[0]
        number = self._turn if key is None else murmur2(key) & 0x7FFFFFFF
        return partitions[number % len(partitions)]

    def turn(self) -> None:
        """Send the next records without a key to the next partition."""
        self._turn += 1


def split_by_size(releases: Sequence[ReleasedRows], max_bytes: int) -> list[list[ReleasedRows]]:
    """Cut releases, in order, into groups of at most ``max_bytes`` of Arrow data, but at least one release each."""
    groups: list[list[ReleasedRows]] = []
    group_bytes = 0
    for release in releases:
        if not groups or group_bytes + release.item.nbytes > max_bytes:
            groups.append([])
            group_bytes = 0
        groups[-1].append(release)
        group_bytes += release.item.nbytes
    return groups
