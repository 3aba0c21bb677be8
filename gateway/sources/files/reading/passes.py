"""Reads files one after the other from any position: the code that all formats share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from gateway.connectors.position import Position
from gateway.sources.base import Chunk
from gateway.sources.files.reading.loops import with_loop_ids
from infra.files.base import FILE_COLUMN, FileReader, Portion
from infra.rows.base import DeadRecord, SourceError

OpenFile = Callable[[Path, pa.Schema], FileReader]


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a source.

    Attributes:
        path: where it can be opened.
        name: its name in the source.
        release: called when it is closed; it may be found again later.
    """

    path: Path
    name: str
    release: Callable[[], None] = _nothing


class Files(Protocol):
    """The files of a source by number; a number always means the same file."""

    def at(self, number: int) -> FoundFile | None:
        """Return a file; None if there is none with that number (yet).

        Raises:
            SourceError: the file has changed.
            SourceUnavailableError: or OSError: not now.
        """
        ...

    def loop_of(self, number: int) -> int:
        """Return the number of this file's pass over all files, from 0."""
        ...

    @property
    def count(self) -> int | None:
        """How many files there will ever be (all passes); None if that is unknown."""
        ...

    @property
    def per_loop(self) -> int:
        """How many files a pass has."""
        ...


class FixedFiles:
    """Files that are known from the start, read ``loops`` times."""

    def __init__(self, paths: Sequence[Path], loops: int = 1) -> None:
        self._paths = paths
        self._loops = loops

    def at(self, number: int) -> FoundFile | None:
        """See ``Files.at``."""
        if number >= self.count:
            return None
        path = self._paths[number % len(self._paths)]
        return FoundFile(path, path.name)

    def loop_of(self, number: int) -> int:
        """See ``Files.loop_of``."""
        return number // len(self._paths)

    @property
    def count(self) -> int:
        """See ``Files.count``."""
        return len(self._paths) * self._loops

    @property
    def per_loop(self) -> int:
        """See ``Files.per_loop``."""
        return len(self._paths)


class PassesSource:
    """A source of files.

    ``Position.part`` is the number of the file, ``offset`` a place in it, in the unit of its reader.

    Args:
        files: the files.
        open_file: opens one of them.
        id_field: a column that is made distinct in each pass.
        folder: whether the files are those of a folder or a bucket. Then a column ``_file`` of the schema gets the
            file's name, and a file that was read to its end is not opened again, so that it may be removed once it is
            done.
    """

    def __init__(self, files: Files, open_file: OpenFile, *, id_field: str | None = None, folder: bool = False) -> None:
        self._files = files
        self._open_file = open_file
        self._id_field = id_field
        self._folder = folder
        self._position = Position()
        self._reader: FileReader | None = None
        self._found: FoundFile | None = None

    def open(self, schema: pa.Schema) -> None:
        """See ``Source.open``; a single file is opened, so that its problems are reported at once."""
        self._schema = schema
        fields = [field for field in schema if not (self._folder and field.name == FILE_COLUMN)]
        self._file_schema = pa.schema(fields)
        self.seek(Position())
        if not self._folder:
            self._open_next()

    def seek(self, position: Position) -> None:
        """See ``Source.seek``."""
        if self._reader is not None and position.part == self._position.part:
            self._reader.seek(position.offset)
        else:
            self.close()
        self._position = position

    @property
    def finished(self) -> bool:
        """See ``Source.finished``; looks ahead, so it is true right after the last record."""
        return self._files.count is not None and not self._has_record()

    def read(self, max_records: int, max_bytes: int) -> Chunk | None:
        """See ``Source.read``; a chunk never spans two files, and has no event if all its records are dead."""
        if not self._has_record() or self._found is None:
            return None
        start, name = self._position, self._found.name
        portion = self.read_portion(max_records, max_bytes)
        if portion is None:
            return None
        place = name if self._folder else ""
        dead = tuple(
            DeadRecord(start.record + d.index, d.offset, d.reason, d.raw, ", ".join(filter(None, (place, d.place))))
            for d in portion.dead
        )
        batch = with_loop_ids(portion.batch, self._id_field, self._files.loop_of(start.part))
        return Chunk(self._with_name(batch, name), start, self._position, dead)

    def read_portion(self, max_records: int, max_bytes: int) -> Portion | None:
        """Return the next records of one file, unchanged; None if there are none now."""
        if not self._has_record() or self._reader is None:
            return None
        start = self._position
        portion = self._reader.read(max_records, max_bytes)
        self._position = Position(start.record + portion.records, start.part, portion.end)
        if self._folder and _is_done(self._reader):
            self.close()
            self._position = Position(self._position.record, start.part + 1, 0)
        return portion

    def _with_name(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        if len(self._file_schema) == len(self._schema):
            return batch
        field = self._schema.field(FILE_COLUMN)
        names = pa.array([name] * batch.num_rows, pa.string()).cast(field.type)
        columns = [names if column == FILE_COLUMN else batch.column(column) for column in self._schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _has_record(self) -> bool:
        """Open the file at the position; skip files that have been read to their end."""
        empty = 0
        while True:
            reader = self._reader or self._open_next()
            if reader is None:
                return False
            if not reader.at_end():
                return True
            empty = empty + 1 if self._position.offset == 0 else 0
            count = self._files.count
            # A pass without events gives none however often it is repeated.
            useless = count is not None and empty >= self._files.per_loop
            self.close()
            self._position = Position(
                self._position.record, count if useless and count is not None else self._position.part + 1, 0
            )

    def _open_next(self) -> FileReader | None:
        self._found = self._files.at(self._position.part)
        if self._found is not None:
            self._reader = self._open_file(self._found.path, self._file_schema)
            self._reader.seek(self._position.offset)
        return self._reader

    def close(self) -> None:
        """See ``Source.close``."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._found is not None:
            self._found.release()
            self._found = None


def _is_done(reader: FileReader) -> bool:
    try:
        return reader.at_end()
    except SourceError:
        return False  # what was read is good; the next read reports it
