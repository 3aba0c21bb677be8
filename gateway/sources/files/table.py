"""A source that fits into memory: an Arrow file, an mbox or a maildir, read once or several times."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from gateway.connectors.position import Position
from gateway.sources.base import Chunk
from gateway.sources.files.reading.loops import with_loop_ids
from infra.rows.base import SourceError


class TableSource:
    """A source of the rows that ``load`` returns (with any schema that casts to the query's).

    ``Position.part`` counts the passes (loops), ``offset`` the rows of the pass.
    """

    def __init__(self, load: Callable[[], pa.Table], *, loops: int = 1, id_field: str | None = None) -> None:
        self._load = load
        self._loops = loops
        self._id_field = id_field
        self._position = Position()

    def open(self, schema: pa.Schema) -> None:
        """See ``Source.open``."""
        table = self._load()
        missing = [name for name in schema.names if name not in table.column_names]
        if missing:
            raise SourceError(f"the source has no column {', '.join(missing)}; it has {', '.join(table.column_names)}")
        table = table.select(schema.names).cast(schema).combine_chunks()
        batches = table.to_batches()
        if len(batches) > 1:
            raise SourceError("the source holds more than 2 GB in one column: cut it into several files")
        self._batch = batches[0] if batches else None
        self._row_bytes = max(1.0, table.nbytes / max(1, table.num_rows))

    def seek(self, position: Position) -> None:
        """See ``Source.seek``."""
        self._position = position

    @property
    def finished(self) -> bool:
        """See ``Source.finished``."""
        return self._batch is None or self._normal(self._position).part >= self._loops

    def read(self, max_records: int, max_bytes: int) -> Chunk | None:
        """See ``Source.read``; ``max_bytes`` is applied by the mean size of a row. A chunk never spans two passes."""
        start = self._normal(self._position)
        if self._batch is None or start.part >= self._loops:
            return None
        rows = min(max_records, max(1, int(max_bytes / self._row_bytes)), self._batch.num_rows - start.offset)
        batch = self._batch.slice(start.offset, rows)
        self._position = Position(start.record + rows, start.part, start.offset + rows)
        return Chunk(with_loop_ids(batch, self._id_field, start.part), start, self._position)

    def _normal(self, position: Position) -> Position:
        if self._batch is not None and position.offset >= self._batch.num_rows:
            return Position(position.record, position.part + 1, 0)
        return position

    def close(self) -> None:
        """See ``Source.close``."""
        self._batch = None
