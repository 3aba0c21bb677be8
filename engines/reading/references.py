"""A query over ranges of a topic or of files: each is a row and a partition, whose events an executor reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructType

from engines.reading.counts import ReadCounts
from infra.messages import Range, Reading

if TYPE_CHECKING:
    from engines.reading.reader import RangeReader

RANGE_COLUMNS: Final = StructType().add("range", BinaryType())
RANGE_SCHEMA: Final = pa.schema([("range", pa.binary())])

_Found = dict[Range, ReadCounts]


def row_of(each: Range) -> pa.RecordBatch:
    """Return a range as a row."""
    return pa.RecordBatch.from_pylist([{"range": msgspec.msgpack.encode(each)}], RANGE_SCHEMA)


def _ranges(batch: pa.RecordBatch) -> list[Range]:
    return [msgspec.msgpack.decode(data, type=Range) for data in batch.column("range").to_pylist()]


def _ranges_of(parts: Sequence[pa.Buffer]) -> list[Range]:
    return [each for part in parts for batch in pa.ipc.open_stream(part) for each in _ranges(batch)]


class _Sums(AccumulatorParam[_Found]):
    """Collects the counts of ranges; of one that was read twice those of the last time."""

    def zero(self, value: _Found) -> _Found:  # noqa: ARG002
        """Return no counts."""
        return {}

    def addInPlace(self, value1: _Found, value2: _Found) -> _Found:  # noqa: N802 - PySpark's name
        """Return both."""
        return {**value1, **value2}


@dataclass(frozen=True)
class _Reading:
    """Reads the events of ranges, in an executor."""

    reading: Reading
    schema: pa.Schema
    counts: Accumulator[_Found]

    def events(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the events of each range."""
        from engines.reading.reader import reader_of

        for batch in rows:
            for each in _ranges(batch):
                read = reader_of(self.reading, self.schema).read([each])
                self.counts.add({each: read.counts})
                yield read.batch


def can_read(context: SparkContext, reading: Reading) -> bool:
    """Return whether executors have what reading needs: this project, with Kafka's client, and the files."""

    def found(_: int) -> bool:
        try:
            from engines.reading.reader import can_use

            return can_use(reading)
        except ImportError:
            return False

    return bool(context.parallelize([0], 1).map(found).collect()[0])


class References:
    """Makes frames of events from frames of ranges, and knows what was read.

    Args:
        context: of Spark.
        reading: where the records are.
        columns: of the events, for Spark.
        schema: the same for Arrow.
    """

    def __init__(self, context: SparkContext, reading: Reading, columns: StructType, schema: pa.Schema) -> None:
        self._reading = reading
        self._columns = columns
        self._schema = schema
        self._found: Accumulator[_Found] = context.accumulator({}, _Sums())
        self._reader: RangeReader | None = None

    def events(self, ranges: DataFrame) -> DataFrame:
        """Return the events of ranges, each in the partition of its range."""
        reading = _Reading(self._reading, self._schema, self._found)

        def read(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return reading.events(rows)

        return ranges.mapInArrow(read, self._columns)

    def counts(self, runs: Sequence[Sequence[pa.Buffer]]) -> list[ReadCounts]:
        """Return what executors have read of runs, given their parts; it is told once.

        Raises:
            KeyError: a range was not read.
        """
        found, self._found.value = self._found.value, {}
        return [sum((found[each] for each in _ranges_of(parts)), ReadCounts()) for parts in runs]

    def read(self, parts: Sequence[pa.Buffer]) -> tuple[pa.RecordBatch, ReadCounts]:
        """Return the events of a run's parts, read by this process.

        Raises:
            SourceError: the source does not have them any more.
            SourceUnavailableError: or OSError: it cannot be reached.
        """
        from engines.reading.reader import make_reader

        if self._reader is None:
            self._reader = make_reader(self._reading, self._schema)
        read = self._reader.read(_ranges_of(parts))
        return read.batch, read.counts

    def close(self) -> None:
        """Disconnect this process."""
        if self._reader is not None:
            self._reader.close()
