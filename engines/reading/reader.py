"""Reads ranges of a Kafka topic and decodes them, in a process of Spark's or in the host."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from engines.reading.counts import ReadCounts
from infra.clienttls import BadTlsFilesError
from infra.kafka.clients import client_settings
from infra.kafka.events import RecordDecoder
from infra.kafka.rereader import Rereader
from infra.messages import BrokerAccess, KafkaReading, OffsetRange
from infra.rows.base import DeadRecord

_READERS_MOST: Final = 16


@dataclass(frozen=True, slots=True)
class Read:
    """The events of some ranges, in order, and the records that are none."""

    batch: pa.RecordBatch
    dead: tuple[DeadRecord, ...]

    @property
    def counts(self) -> ReadCounts:
        """How much that is."""
        return ReadCounts(self.batch.num_rows, self.batch.nbytes, len(self.dead))


def can_use(access: BrokerAccess) -> bool:
    """Return whether this machine has the files that reaching the brokers takes."""
    try:
        client_settings(access)
    except BadTlsFilesError:
        return False
    return True


class RangeReader:
    """Reads what one query reads; its consumer stays connected between two calls. Threads take turns.

    Args:
        reading: where the records are.
        schema: of the events.

    Raises:
        SourceError: the schema has a column that cannot be filled.
        BadTlsFilesError: the files of TLS cannot be used here.
    """

    def __init__(self, reading: KafkaReading, schema: pa.Schema) -> None:
        self._decoder = RecordDecoder(reading.format, schema)
        self._turn = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._rereader = Rereader(client_settings(reading.access), f"reading from {reading.access.brokers}")

    def read(self, ranges: Sequence[OffsetRange]) -> Read:
        """Return the events of ranges of different partitions, ordered by topic, partition and offset.

        Raises:
            SourceError: a partition does not contain its whole range.
            SourceUnavailableError: the brokers do not answer.
        """
        with self._turn:
            records = self._loop.run_until_complete(self._rereader.read_ranges(ranges))
            return Read(*self._decoder.decode(records, 0))

    def close(self) -> None:
        """Disconnect."""
        with self._turn:
            self._loop.run_until_complete(self._rereader.stop())
            self._loop.close()


_readers: OrderedDict[tuple[KafkaReading, bytes], RangeReader] = OrderedDict()


def reader_of(reading: KafkaReading, schema: pa.Schema) -> RangeReader:
    """Return this process's reader, which is kept for the next run; the one that was not used for longest goes.

    For processes of one thread.
    """
    key = reading, schema.serialize().to_pybytes()
    if key not in _readers:
        if len(_readers) >= _READERS_MOST:
            _readers.popitem(last=False)[1].close()
        _readers[key] = RangeReader(reading, schema)
    _readers.move_to_end(key)
    return _readers[key]
