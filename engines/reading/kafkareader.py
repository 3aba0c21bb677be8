"""Reads ranges of a Kafka topic and decodes them, in a process of Spark's or in the host."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pyarrow as pa

from engines.reading.counts import Read
from infra.clienttls import BadTlsFilesError
from infra.kafka.clients import client_settings
from infra.kafka.events import RecordDecoder
from infra.kafka.rereader import Rereader
from infra.messages import BrokerAccess, KafkaReading, OffsetRange, Range


def has_files(access: BrokerAccess) -> bool:
    """Return whether this machine has the files that reaching the brokers takes."""
    try:
        client_settings(access)
    except BadTlsFilesError:
        return False
    return True


class KafkaRangeReader:
    """See ``RangeReader``; its consumer stays connected between two calls.

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

    def read(self, ranges: Sequence[Range]) -> Read:
        """See ``RangeReader.read``: the ranges are of different partitions, ordered by topic, partition and offset."""
        wanted = [each for each in ranges if isinstance(each, OffsetRange)]
        assert len(wanted) == len(ranges), "they are of a Kafka topic"
        with self._turn:
            records = self._loop.run_until_complete(self._rereader.read_ranges(wanted))
            return Read(*self._decoder.decode(records, 0))

    def close(self) -> None:
        """See ``RangeReader.close``."""
        with self._turn:
            self._loop.run_until_complete(self._rereader.stop())
            self._loop.close()
