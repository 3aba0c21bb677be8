"""Reads files one after the other from any position: the code that all formats share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from gateway.connectors.position import Position
from gateway.sources.base import Ahead, Chunk
from gateway.sources.files.notes import NotedFile
from gateway.sources.files.reading.loops import with_loop_ids
from infra.files.base import FileReader, Portion, Skipped, with_name, without_name
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

    def noted(self, number: int) -> NotedFile | None:
        """Return what is known of a file, as ``at`` does; any thread may call."""
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

    def noted(self, number: int) -> NotedFile | None:
        """See ``Files.noted``."""
        return NotedFile(self._paths[number % len(self._paths)].name) if number < self.count else None

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


def dead_records(portion: Portion, first: int, place: str) -> tuple[DeadRecord, ...]:
    """Return the records of a portion that are no events.

    Args:
        portion: the records.
        first: number of its first record.
        place: precedes the places of its records; may be empty.
    """
    return tuple(
        DeadRecord(first + each.index, each.offset, each.reason, each.raw, ", ".join(filter(None, (place, each.place))))
        for each in portion.dead
    )


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
        self._file_schema = without_name(schema) if self._folder else schema
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
        dead = dead_records(portion, start.record, name if self._folder else "")
        batch = with_loop_ids(portion.batch, self._id_field, self._files.loop_of(start.part))
        return Chunk(with_name(batch, self._schema, name), start, self._position, dead)

    def read_portion(self, max_records: int, max_bytes: int) -> Portion | None:
        """Return the next records of one file, unchanged; None if there are none now."""
        if not self._has_record() or self._reader is None:
            return None
        portion = self._reader.read(max_records, max_bytes)
        self._advance(self._reader, portion)
        return portion

    def ahead(self, max_records: int, max_bytes: int) -> Ahead | Chunk | None:
        """Return the next records of one file without reading them, or those that can only be read; None if none."""
        if not self._has_record() or self._reader is None:
            return None
        if not self._reader.can_skip:
            return self.read(max_records, max_bytes)
        start = self._position
        self._advance(self._reader, self._reader.skip(max_records, max_bytes))
        return Ahead(start, self._position)

    def _advance(self, reader: FileReader, passed: Portion | Skipped) -> None:
        before = self._position
        self._position = Position(before.record + passed.records, before.part, passed.end)
        if self._folder and _is_done(reader):
            self.close()
            self._position = Position(self._position.record, before.part + 1, 0)

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
