"""Reads ranges of files and decodes them, in a process of Spark's or in the host."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa

from engines.reading.counts import Read
from infra.files.ranges import FileRangeReader
from infra.messages import FileRange, FileReading, Range
from infra.rows.base import DeadRecord
from infra.rows.halving import one_batch


class FilesRangeReader:
    """See ``RangeReader``; the last files stay open between two calls.

    Args:
        reading: where the files are.
        schema: of the events.
    """

    def __init__(self, reading: FileReading, schema: pa.Schema) -> None:
        self._schema = schema
        self._turn = threading.Lock()
        self._files = FileRangeReader(reading, schema)

    def read(self, ranges: Sequence[Range]) -> Read:
        """See ``RangeReader.read``."""
        with self._turn:
            portions = [self._files.read(each) for each in ranges if isinstance(each, FileRange)]
        assert len(portions) == len(ranges), "they are of files"
        dead = [DeadRecord(each.index, each.offset, each.reason, each.raw) for one in portions for each in one.dead]
        return Read(one_batch([each.batch for each in portions], self._schema), tuple(dead))

    def close(self) -> None:
        """See ``RangeReader.close``."""
        with self._turn:
            self._files.close()
