"""Feeds dead letters back into their query, before the next records of its source."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import msgspec
import pyarrow as pa

from gateway.connectors.position import Position
from gateway.journal.deadletters import DeadLetter
from gateway.sources.base import Ahead, Backlog, Chunk, Loaded, ReferableSource, Source
from gateway.sources.several.table import in_table, own_schema
from infra.failpoints import reached
from infra.messages import STREAM, EventStream, Range
from infra.rows.base import DeadRecord, SourceError
from infra.rows.jsonlines import LineDecoder
from infra.statefiles import sync_folder
from infra.threads import run_to_end

_UNBOUNDED = 1 << 62
_CARRIAGE = bytes.maketrans(b"\r\n", b"  ")
Numbered = tuple[int, DeadLetter]


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    first: int
    last: int


class ReplayFiles:
    """The files that ``DeadLetterFile.move_out`` created. Blocking methods must be called one at a time.

    Args:
        folder: with the files; it need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._files: tuple[_File, ...] = ()
        self._at: tuple[Path, int, int] | None = None

    def look(self) -> None:
        """Note new files, once they are durable.

        Raises:
            OSError: the disk fails.
        """
        if not self._folder.is_dir():
            return
        # A letter that a crash moved back to where it came from would be replayed twice.
        sync_folder(self._folder)
        sync_folder(self._folder.parent)
        with self._lock:
            names = ((path, path.stem.partition("-")) for path in sorted(self._folder.glob("*-*.jsonl")))
            self._files = tuple(_File(path, int(first), int(last)) for path, (first, _, last) in names)

    def count(self, start: int) -> int:
        """Return the number of letters with the number ``start`` or a higher one."""
        return sum(file.last - max(file.first, start) + 1 for file in self._files if file.last >= start)

    def read(self, start: int, end: int, max_records: int, max_bytes: int) -> list[Numbered]:
        """Return letters with numbers from ``start`` to before ``end``, at least one if there is one.

        Raises:
            SourceError: a file is damaged.
        """
        found: list[Numbered] = []
        size_bytes = 0
        for file in self._files:
            if file.last < start or file.first >= end:
                continue
            with file.path.open("rb") as lines:
                number = file.first
                if self._at is not None and self._at[0] == file.path and self._at[1] <= start:
                    number = self._at[1]
                    lines.seek(self._at[2])
                while number <= min(file.last, end - 1) and len(found) < max_records and size_bytes < max_bytes:
                    line = lines.readline()
                    if number >= start:
                        found.append((number, _parsed(line, file.path)))
                        size_bytes += len(line)
                    number += 1
                self._at = (file.path, number, lines.tell())
        return found

    def forget(self, before: int) -> None:
        """Remove the files whose letters all have a lower number than ``before``."""
        with self._lock:
            for file in [file for file in self._files if file.last < before]:
                file.path.unlink(missing_ok=True)
                self._files = tuple(left for left in self._files if left is not file)
                reached("deadletters.replay.forgotten")

    def has_before(self, number: int) -> bool:
        """Whether there is a file to remove."""
        return any(file.last < number for file in self._files)


def _parsed(line: bytes, path: Path) -> DeadLetter:
    try:
        return msgspec.json.decode(line, type=DeadLetter)
    except msgspec.DecodeError as error:
        raise SourceError(f"{path} is damaged ({error}): restore it from a backup") from error


class WithReplays:
    """A source whose query gets dead letters between its records, distinguished only by ``Position.replayed``.

    A letter whose content is now an event becomes one; any other becomes a dead letter again, with the reason.

    Args:
        main: the query's source.
        files: the letters.
        strict: see ``LineDecoder``.
        streams: the streams of several sources; a record of one that could not be decoded has that one's columns.
    """

    def __init__(
        self, main: Source, files: ReplayFiles, *, strict: bool = False, streams: Sequence[EventStream] = ()
    ) -> None:
        self._main = main
        self._files = files
        self._strict = strict
        self._streams = {stream.name: stream for stream in streams}
        self._position = Position()

    async def open(self, schema: pa.Schema) -> None:
        """See ``Source.open``."""
        self._schema = schema
        own = {name: own_schema(stream, schema) for name, stream in self._streams.items()}
        try:
            self._decoders = {
                name: LineDecoder(columns, strict=self._strict) for name, columns in {"": schema, **own}.items()
            }
            self._why_not = ""
        except SourceError as error:
            self._decoders, self._why_not = {}, str(error)
        await self._main.open(schema)
        await self.look()

    @property
    def main(self) -> Source:
        """The query's source."""
        return self._main

    async def look(self) -> None:
        """Note letters that were moved out meanwhile.

        Raises:
            OSError: the disk fails.
        """
        await run_to_end(self._files.look)

    @property
    def waiting(self) -> int:
        """How many letters have not been replayed yet."""
        return self._files.count(self._position.replayed)

    async def read_between(self, start: Position, end: Position) -> Chunk:
        """See ``Source.read_between``."""
        if start.replayed == end.replayed:
            return _replayed(await self._main.read_between(_plain(start), _plain(end)), start.replayed)
        letters = await run_to_end(lambda: self._files.read(start.replayed, end.replayed, _UNBOUNDED, _UNBOUNDED))
        if not letters or letters[-1][0] + 1 != end.replayed:
            raise SourceError(
                f"dead letters {start.replayed} to {end.replayed - 1} were replayed, but their file is gone: restore "
                "the replay folder of the query"
            )
        return await run_to_end(lambda: self._chunk(letters, start))

    async def seek(self, position: Position) -> None:
        """See ``Source.seek``."""
        self._position = position
        await self._main.seek(_plain(position))

    async def read(self, max_records: int, max_bytes: int) -> Chunk | None:
        """See ``Source.read``: dead letters come first."""
        start = self._position
        if self.waiting:
            letters = await run_to_end(lambda: self._files.read(start.replayed, _UNBOUNDED, max_records, max_bytes))
            letters = list(takewhile(lambda each: each[1].stream == letters[0][1].stream, letters))
            chunk: Chunk | None = await run_to_end(lambda: self._chunk(letters, start))
        else:
            plain = await self._main.read(max_records, max_bytes)
            chunk = None if plain is None else _replayed(plain, start.replayed)
        if chunk is not None:
            self._position = chunk.end
        return chunk

    async def ahead(self, max_records: int, max_bytes: int) -> Chunk | Ahead | None:
        """Return records that are not read, or dead letters, which come first; None when there are none now.

        Raises:
            SourceError: the source cannot be read, or always reads; SourceUnavailableError: not now.
        """
        if self.waiting:
            return await self.read(max_records, max_bytes)
        start = self._position
        found = await self._referable.ahead(max_records, max_bytes)
        if found is None:
            return None
        if isinstance(found, Chunk):
            chunk = _replayed(found, start.replayed)
            self._position = chunk.end
            return chunk
        begin, end = (msgspec.structs.replace(each, replayed=start.replayed) for each in (found.start, found.end))
        ahead = Ahead(begin, end, found.arrivals_wall_s, found.more)
        self._position = ahead.end
        return ahead

    async def ranges(self, start: Position, end: Position) -> tuple[Range, ...]:
        """Return which records of the source were passed over.

        Raises:
            SourceError: it does not know them any more; SourceUnavailableError: not now.
        """
        return await self._referable.ranges(_plain(start), _plain(end))

    async def read_range(self, start: Position, end: Position) -> Loaded:
        """Return the events of records that were not read.

        Raises:
            SourceError: it does not have them any more; SourceUnavailableError: not now.
        """
        return await self._referable.read_range(_plain(start), _plain(end))

    @property
    def _referable(self) -> ReferableSource:
        if not isinstance(self._main, ReferableSource):
            raise SourceError("the records of this source cannot be read elsewhere")
        return self._main

    def _chunk(self, letters: list[Numbered], start: Position) -> Chunk:
        reasons = [self._refused(letter) for _, letter in letters]
        # Within JSON the ends of lines are blanks.
        lines = [
            b"" if why else letter.kept().translate(_CARRIAGE)
            for (_, letter), why in zip(letters, reasons, strict=True)
        ]
        batch, dead = self._decoded(lines, letters[0][1].stream)
        for i, why in dead:
            reasons[i] = why
        end = msgspec.structs.replace(start, replayed=letters[-1][0] + 1)
        records = tuple(
            DeadRecord(
                start.record,
                -1,
                f"replayed: {why}",
                letter.kept(),
                _place(letter),
                letter.raw_bytes,
                replayed=number,
                stream=letter.stream,
            )
            for (number, letter), why in zip(letters, reasons, strict=True)
            if why
        )
        return Chunk(batch, start, end, records)

    def _decoded(self, lines: list[bytes], name: str) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
        """Return the events of lines of one stream, and why the other lines are none."""
        decoder = self._decoders.get(name)
        if decoder is None:
            return _nothing(self._schema), []
        batch, dead = decoder.decode(lines)
        return (in_table(batch, self._streams[name], self._schema) if name else batch), dead

    def _refused(self, letter: DeadLetter) -> str:
        """Return why the content cannot even be tried; empty if it can."""
        if letter.stream not in self._decoders:
            return self._why_not or f"it is from the source {letter.stream}, which the query has no more"
        if not letter.whole:
            return f"its content was not kept whole; {letter.reason}"
        if not letter.kept().strip():
            return f"it has no content; {letter.reason}"
        return "" if letter.stream or not self._streams else self._why_of_no_stream(letter.kept())

    def _why_of_no_stream(self, event: bytes) -> str:
        """Return why an event belongs to none of the streams; empty if it does, or if it is not even JSON."""
        with suppress(msgspec.DecodeError):
            found = msgspec.json.decode(event)
            if isinstance(found, dict) and found.get(STREAM) not in self._streams:
                return f"its {STREAM} is {found.get(STREAM)!r}, and the query's sources are {', '.join(self._streams)}"
        return ""

    async def finished(self) -> bool:
        """See ``Source.finished``."""
        return not self.waiting and await self._main.finished()

    def backlog(self) -> Backlog | None:
        """See ``Source.backlog``: that of the source itself."""
        return self._main.backlog()

    async def acknowledge(self, position: Position) -> None:
        """See ``Source.acknowledge``."""
        if self._files.has_before(position.replayed):
            await run_to_end(lambda: self._files.forget(position.replayed))
        await self._main.acknowledge(_plain(position))

    async def close(self) -> None:
        """See ``Source.close``."""
        await self._main.close()


def _plain(position: Position) -> Position:
    return msgspec.structs.replace(position, replayed=0)


def _replayed(chunk: Chunk, replayed: int) -> Chunk:
    start = msgspec.structs.replace(chunk.start, replayed=replayed)
    end = msgspec.structs.replace(chunk.end, replayed=replayed)
    return Chunk(chunk.batch, start, end, chunk.dead, chunk.arrivals_wall_s, chunk.more)


def _place(letter: DeadLetter) -> str:
    """Return the letter's original place."""
    if letter.replayed >= 0:
        return letter.place
    if letter.seq >= 0:
        return f"seq {letter.seq}" + (f", {letter.place}" if letter.place else "")
    return f"record {letter.record}, offset {letter.offset}" + (f", {letter.place}" if letter.place else "")


def _nothing(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
