"""Another query's results as events, in strict order: its file sink's parts are read by seq, not by release."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from gateway.connectors.position import Position
from gateway.sinks.parts.filesink import PartName
from gateway.sources.base import Chunk
from infra.rows.base import DeadRecord
from infra.rows.jsonlines import LineDecoder

SEQ_COLUMN = "_seq"


class ResultsSource:
    """Source of type ``query``.

    It waits for a late part: no row is returned before those of every earlier seq. ``Position.part`` is the first seq
    of the part that is read next or now, ``offset`` the number of its rows that have been read. A column ``_seq``
    (BIGINT) of the schema gets the row's position, so that an order-sensitive query can use it.

    Args:
        folder: the upstream query's sink (JSON lines, ordered).
        upstream_done: returns whether the upstream query will commit nothing more.
    """

    def __init__(self, folder: Path, upstream_done: Callable[[], bool]) -> None:
        self._folder = folder
        self._upstream_done = upstream_done
        self._position = Position()
        self._parts: dict[int, PartName] = {}
        self._lines: list[bytes] = []
        self._loaded: PartName | None = None

    def open(self, schema: pa.Schema) -> None:
        """See ``Source.open``."""
        self._schema = schema
        self._decoder = LineDecoder(pa.schema([field for field in schema if field.name != SEQ_COLUMN]))

    def seek(self, position: Position) -> None:
        """See ``Source.seek``."""
        self._position = position

    @property
    def finished(self) -> bool:
        """See ``Source.finished``."""
        if not self._upstream_done():
            return False
        self._skip_read_parts()
        return self._loaded is None

    def read(self, max_records: int, max_bytes: int) -> Chunk | None:
        """See ``Source.read``; None while the next part does not exist yet."""
        self._skip_read_parts()
        if self._loaded is None:
            return None
        start = self._position
        lines: list[bytes] = []
        total_bytes = 0
        for line in self._lines[start.offset : start.offset + max_records]:
            if total_bytes >= max_bytes:
                break
            lines.append(line)
            total_bytes += len(line)
        batch, dead = self._decoder.decode(lines)
        self._position = Position(start.record + len(lines), start.part, start.offset + len(lines))
        dead_records = tuple(DeadRecord(start.record + i, start.offset + i, why, lines[i]) for i, why in dead)
        return Chunk(self._numbered(batch, start.record, {i for i, _ in dead}), start, self._position, dead_records)

    def _numbered(self, batch: pa.RecordBatch, first: int, dead: set[int]) -> pa.RecordBatch:
        if SEQ_COLUMN not in self._schema.names:
            return batch
        numbers = [first + i for i in range(batch.num_rows + len(dead)) if i not in dead]
        columns = [
            pa.array(numbers, field.type) if field.name == SEQ_COLUMN else batch.column(field.name)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _skip_read_parts(self) -> None:
        """Load the part at the position; skip parts that have been read to their end."""
        while True:
            if self._loaded is None or self._loaded.first_seq != self._position.part:
                self._loaded = self._find(self._position.part)
                self._lines = (
                    [] if self._loaded is None else (self._folder / str(self._loaded)).read_bytes().splitlines()
                )
            if self._loaded is None or self._position.offset < len(self._lines):
                return
            self._position = Position(self._position.record, self._loaded.last_seq + 1, 0)

    def _find(self, first_seq: int) -> PartName | None:
        if first_seq not in self._parts:
            names = map(PartName.parse, (entry.name for entry in self._folder.iterdir()))
            self._parts = {part.first_seq: part for part in names if part and part.first_seq >= first_seq}
        return self._parts.get(first_seq)

    def close(self) -> None:
        """See ``Source.close``."""
        self._lines = []
