"""Chooses what reads ranges in a process of Spark's or in the host."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

import pyarrow as pa

from engines.reading.counts import Read
from infra.messages import KafkaReading, Range, Reading

_READERS_MOST: Final = 16


class RangeReader(Protocol):
    """Reads what one query reads. Threads take turns."""

    def read(self, ranges: Sequence[Range]) -> Read:
        """Return the events of ranges, in order.

        Raises:
            SourceError: the source does not have them any more.
            SourceUnavailableError: or OSError: it cannot be reached.
        """
        ...

    def close(self) -> None:
        """Close what is open."""
        ...


def can_use(reading: Reading) -> bool:
    """Return whether this machine has what reading takes. Blocks.

    Raises:
        ImportError: it lacks the client.
    """
    if isinstance(reading, KafkaReading):
        from engines.reading.kafkareader import has_files  # needs Kafka's client, which other queries do without

        return has_files(reading.access)
    from infra.files.ranges import can_read

    return can_read(reading)


def make_reader(reading: Reading, schema: pa.Schema) -> RangeReader:
    """Return what reads the events of a query.

    Raises:
        SourceError: the schema has a column that cannot be filled.
        BadTlsFilesError: the files of TLS cannot be used here.
    """
    if isinstance(reading, KafkaReading):
        from engines.reading.kafkareader import KafkaRangeReader

        return KafkaRangeReader(reading, schema)
    from engines.reading.filereader import FilesRangeReader

    return FilesRangeReader(reading, schema)


_readers: OrderedDict[tuple[Reading, bytes], RangeReader] = OrderedDict()


def reader_of(reading: Reading, schema: pa.Schema) -> RangeReader:
    """Return this process's reader, which is kept for the next run; the one that was not used for longest goes.

    For processes of one thread.
    """
    key = reading, schema.serialize().to_pybytes()
    if key not in _readers:
        if len(_readers) >= _READERS_MOST:
            _readers.popitem(last=False)[1].close()
        _readers[key] = make_reader(reading, schema)
    _readers.move_to_end(key)
    return _readers[key]
