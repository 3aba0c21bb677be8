"""Files with their own schema (Parquet, Arrow), read piece by piece as rows of the query's schema."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from infra.files.base import FilePlace, Portion, Refused, Skipped
from infra.files.lines import RAW_KEPT_BYTES
from infra.rows.base import SourceError
from infra.rows.drift import check_columns
from infra.rows.halving import decode_by_halves, one_batch


class Conformer:
    """Converts the rows of one file to the query's schema.

    Args:
        path: the file, for messages.
        found: its schema.
        schema: the query's.
        strict: columns and types must be equal.

    Raises:
        SourceError: the file does not fit the query.
    """

    def __init__(self, path: FilePlace, found: pa.Schema, schema: pa.Schema, *, strict: bool) -> None:
        if len(set(found.names)) < len(found.names):
            raise SourceError(f"{path}: two columns have the same name; rename one")
        check_columns(path, found.names, schema, strict=strict)
        self.wanted = [name for name in schema.names if name in found.names]
        self._schema = schema
        for name in self.wanted:
            has, needs = found.field(name).type, schema.field(name).type
            if strict and _plain(has) != _plain(needs):
                raise SourceError(
                    f"{path}: column {name} is {has}, but the schema says {needs}: correct it, or set drift: lenient"
                )
            try:
                pa.nulls(0, has).cast(needs)
            except (pa.ArrowException, ValueError) as error:
                raise SourceError(f"{path}: column {name} is {has}, which is never {needs}: correct it") from error

    def conform(self, batch: pa.RecordBatch, offset: int) -> Portion:
        """Return the rows of ``batch``, whose first row is at ``offset``; rows that do not fit are dead."""
        try:
            return Portion(self._cast(batch), batch.num_rows, offset + batch.num_rows)
        except (pa.ArrowException, ValueError):
            rows = [(i, i) for i in range(batch.num_rows)]
        batches, dead = decode_by_halves(rows, lambda some: self._cast(batch.slice(some[0], len(some))))
        refused = tuple(Refused(i, offset + i, why, _raw(batch.slice(i, 1))) for i, why in dead)
        return Portion(one_batch(batches, self._schema), batch.num_rows, offset + batch.num_rows, refused)

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for field in self._schema:
            if field.name not in self.wanted:
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            column = batch.column(field.name).cast(field.type)
            if column.null_count and not field.nullable:
                raise ValueError(f"column {field.name} is NOT NULL, but the row has null")
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _raw(row: pa.RecordBatch) -> bytes:
    """Return a row as JSON text, since the file has no text of it."""
    try:
        return json.dumps(row.to_pylist()[0], default=str).encode()[:RAW_KEPT_BYTES]
    except (pa.ArrowException, ValueError, OverflowError) as error:
        return f"the row cannot be shown: {error}".encode()


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return ``kind`` without details of its storage in the file."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    return kind


# Yields (number of its first row, batch), beginning with a batch that contains the row or precedes it.
BatchesFrom = Callable[[int], Iterator[tuple[int, pa.RecordBatch]]]


@dataclass(frozen=True, slots=True)
class Extent:
    """Where the rows of a file are.

    Attributes:
        starts: the first row of each piece that can be read by itself, and the end.
        size_bytes: about how much memory all rows take.
    """

    starts: Sequence[int]
    size_bytes: int

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.starts[-1]


class BatchReader:
    """Reader of a file with record batches; offsets are rows. One decoded batch is in memory at a time.

    Args:
        path: the file, for messages.
        batches_from: yields its batches from about a row on.
        conformer: converts rows to the query's schema.
        close: closes the file.
        extent: returns where its rows are, without reading them; None if that cannot be known.
    """

    def __init__(
        self,
        path: FilePlace,
        batches_from: BatchesFrom,
        conformer: Conformer,
        close: Callable[[], None],
        extent: Callable[[], Extent] | None = None,
    ) -> None:
        self._path = path
        self._batches_from = batches_from
        self._conformer = conformer
        self._close = close
        self._extent = extent
        self._row = 0
        self._batches: Iterator[tuple[int, pa.RecordBatch]] | None = None
        self._batch: pa.RecordBatch | None = None
        self._first = 0

    def seek(self, offset: int) -> None:
        """See ``FileReader.seek``."""
        end = self._first + (0 if self._batch is None else self._batch.num_rows)
        # Within a piece reading on is cheaper than beginning it anew.
        if not self._first <= offset <= end and not (offset > end >= self._begin_of(offset)):
            self._batches = self._batch = None
        self._row = offset

    def _begin_of(self, row: int) -> int:
        """Return the first row of the piece with a row; the row itself if pieces are not known."""
        if self._extent is None:
            return row
        starts = self._known_extent().starts
        return starts[max(0, bisect_right(starts, row) - 1)]

    @property
    def can_skip(self) -> bool:
        """See ``FileReader.can_skip``."""
        return self._extent is not None

    def stop_at(self, end: int | None) -> None:
        """See ``FileReader.stop_at``: whole batches are read anyway."""

    def skip(self, max_records: int, max_bytes: int) -> Skipped:
        """See ``FileReader.skip``; ``max_bytes`` is applied by the mean size of a row in the file."""
        extent, first = self._known_extent(), self._row
        most = min(max_records, max(1, max_bytes * extent.rows // max(1, extent.size_bytes)))
        self._row = min(extent.rows, first + most)
        return Skipped(self._row - first, self._row)

    def _known_extent(self) -> Extent:
        assert self._extent is not None, "see can_skip"
        try:
            return self._extent()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def at_end(self) -> bool:
        """See ``FileReader.at_end``."""
        return self._load() is None if self._extent is None else self._row >= self._known_extent().rows

    def read(self, max_records: int, max_bytes: int) -> Portion:
        """See ``FileReader.read``; ``max_bytes`` is applied by the mean size of a row in its batch."""
        first, left_bytes = self._row, float(max_bytes)
        slices: list[pa.RecordBatch] = []
        while self._row - first < max_records and (not slices or left_bytes > 0):
            batch = self._load()
            if batch is None:
                break
            row_bytes = max(1.0, batch.nbytes / batch.num_rows)
            at = self._row - self._first
            rows = min(max_records - (self._row - first), batch.num_rows - at, max(1, int(left_bytes / row_bytes)))
            slices.append(batch.slice(at, rows))
            self._row += rows
            left_bytes -= rows * row_bytes
        return self._conformer.conform(slices[0] if len(slices) == 1 else pa.concat_batches(slices), first)

    def _load(self) -> pa.RecordBatch | None:
        """Return the batch with the next row, or None at the end."""
        if self._batch is not None and self._first <= self._row < self._first + self._batch.num_rows:
            return self._batch
        try:
            self._batch = None
            if self._batches is None:
                self._batches = self._batches_from(self._row)
            for first, batch in self._batches:
                self._first = first
                if self._row < first + batch.num_rows:
                    batch.validate(full=True)
                    self._batch = batch
                    return batch
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._unreadable(error) from error
        self._batches = self._batch = None
        return None

    def _unreadable(self, error: Exception) -> SourceError:
        return SourceError(f"{self._path} cannot be read to its end ({error}): restore the file")

    def close(self) -> None:
        """See ``FileReader.close``."""
        self._batches = self._batch = None
        self._close()
