"""The source over a journal: a receiver writes to it, and the query reads from it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Literal, Protocol

import pyarrow as pa

from gateway.connectors.position import Position
from gateway.journal.journal import Journal
from gateway.journal.reading import Records
from gateway.sources.base import Backlog, Chunk
from infra.rows.base import DeadRecord, SourceError, SourceUnavailableError
from infra.rows.jsonlines import LineDecoder
from infra.statefiles import StateError
from infra.threads import run_to_end

_LOG = logging.getLogger(__name__)
VALUE = "_value"
TOPIC = "_topic"
RECORD_BYTES_MAX = 16 << 20
_UNBOUNDED_BYTES = 1 << 62
_BLANKS = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Receiver(Protocol):
    """Receives records from senders and answers each sender once the journal has its records."""

    async def start(self) -> None:
        """Begin to receive; the journal is open.

        Raises:
            SourceError: it cannot; SourceUnavailableError: not now.
        """
        ...

    async def stop(self) -> None:
        """Stop receiving, and answer what was received; the journal is closed afterwards."""
        ...

    @property
    def failure(self) -> SourceError | SourceUnavailableError | None:
        """Why nothing is received now; None if nothing is wrong."""
        ...


class JournaledSource:
    """The ``Source`` of the records that a receiver writes to a journal.

    ``Position.part`` is the first record of a segment, ``offset`` the byte in it at which a frame begins.

    Args:
        journal: of this query; the source opens and closes it.
        receiver: writes to it; the source starts and stops it.
        format: ``json`` decodes each record as one object; ``raw`` puts it into ``_value``.
        strict: see ``LineDecoder``.

    Attributes:
        journal: what was received.
        receiver: who receives.
    """

    def __init__(
        self,
        journal: Journal,
        receiver: Receiver,
        *,
        format: Literal["json", "raw"] = "json",  # noqa: A002 -- the config's word
        strict: bool = False,
    ) -> None:
        self.journal = journal
        self.receiver = receiver
        self._format = format
        self._strict = strict
        self._position = Position()
        self._last: Chunk | None = None
        self._acknowledged = 0
        # Ranges without any event, by their first record: no run will ever acknowledge them.
        self._barren: deque[tuple[int, Position]] = deque()
        self._opened = False

    async def open(self, schema: pa.Schema) -> None:
        """See ``Source.open``."""
        self._decoder = _RawDecoder(schema) if self._format == "raw" else _JsonDecoder(schema, strict=self._strict)
        try:
            await self.journal.open()
        except StateError as error:
            raise SourceError(str(error)) from error
        except OSError as error:
            raise SourceUnavailableError(f"the journal {self.journal.folder} cannot be opened ({error})") from error
        try:
            await self.receiver.start()
        except BaseException:
            await self.journal.close()
            raise
        self._opened = True

    async def read_between(self, start: Position, end: Position) -> Chunk:
        """See ``Source.read_between``."""
        chunk = await self._chunk(start, end.record - start.record, _UNBOUNDED_BYTES)
        if chunk is None or chunk.end.record != end.record:
            raise SourceError(
                f"records {start.record} to {end.record - 1} were taken from {self.journal.folder}, but it no longer "
                "has them: restore the folder together with the files beside it"
            )
        return chunk

    async def seek(self, position: Position) -> None:
        """See ``Source.seek``; what was acknowledged and is gone is passed over."""
        if position.record > self.journal.next_record:
            raise SourceError(
                f"{self.journal.folder} ends before record {self.journal.next_record}, but records up to "
                f"{position.record} were read from it: restore the folder together with the files beside it"
            )
        first = self.journal.first_record
        self._last = None
        # Records that were not events may be acknowledged although the run log does not cover them.
        self._position = position if position.record >= first else Position(first, first)

    async def read(self, max_records: int, max_bytes: int) -> Chunk | None:
        """See ``Source.read``. A failure of the receiver is raised once all of the journal has been read."""
        await self._pass_over_barren()
        chunk = await self._chunk(self._position, max_records, max_bytes)
        if chunk is not None:
            self._position, self._last = chunk.end, chunk
        elif (failure := self.receiver.failure) is not None:
            raise failure
        elif self.journal.trouble:
            raise SourceUnavailableError(self.journal.trouble)
        return chunk

    async def _pass_over_barren(self) -> None:
        """Acknowledge the last chunk if it had no event: its dead letters are stored before the next chunk is read."""
        last, self._last = self._last, None
        if last is None or last.batch.num_rows:
            return
        self._barren.append((last.start.record, last.end))
        try:
            await self.acknowledge(Position(self._acknowledged))
        except SourceUnavailableError as error:
            _LOG.warning("%s: the next commit acknowledges these records", error)

    async def _chunk(self, position: Position, max_records: int, max_bytes: int) -> Chunk | None:
        try:
            records = await self.journal.read(position, max_records, max_bytes)
        except StateError as error:
            raise SourceError(str(error)) from error
        except OSError as error:
            raise SourceUnavailableError(f"the journal {self.journal.folder} cannot be read ({error})") from error
        if records is None:
            return None
        batch, dead = await run_to_end(lambda: self._decoder.decode(records))
        return Chunk(
            batch,
            records.start,
            records.end,
            tuple(_dead_record(records, i, reason) for i, reason in dead),
            arrivals_wall_s=records.walls_s,
            more=records.end.record < self.journal.next_record,
        )

    def dead_among(self, records: list[bytes]) -> list[tuple[int, str]]:
        """Return number and reason of each record that is not an event; the source is open. Blocks."""
        return self._decoder.dead_among(records)

    async def finished(self) -> bool:
        """See ``Source.finished``: senders may always send more."""
        return False

    def backlog(self) -> Backlog:
        """See ``Source.backlog``."""
        unread = max(0, self.journal.next_record - self._position.record)
        oldest_s = self.journal.received_wall_s(self._position.record) if unread else None
        return Backlog(unread, oldest_s)

    async def acknowledge(self, position: Position) -> None:
        """See ``Source.acknowledge``; following records without any event are acknowledged with it."""
        while self._barren and self._barren[0][0] <= position.record:
            _, end = self._barren.popleft()
            position = end if end.record > position.record else position
        self._acknowledged = max(self._acknowledged, position.record)
        try:
            await self.journal.release(position)
        except OSError as error:
            raise SourceUnavailableError(f"the journal {self.journal.folder} cannot be shortened ({error})") from error

    async def close(self) -> None:
        """See ``Source.close``."""
        if not self._opened:
            return
        self._opened = False
        try:
            await self.receiver.stop()
        finally:
            await self.journal.close()


class _JsonDecoder:
    """Records that are JSON objects, with the topic added if the schema asks for it."""

    def __init__(self, schema: pa.Schema, *, strict: bool) -> None:
        self._schema = schema
        at = schema.get_field_index(TOPIC)
        if at >= 0 and (len(schema) == 1 or not pa.types.is_string(schema.field(at).type)):
            raise SourceError(f"column {TOPIC} is filled with the topic: it must be STRING, and not the only column")
        self._lines = LineDecoder(schema if at < 0 else schema.remove(at), strict=strict)

    def decode(self, records: Records) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
        batch, dead = self._decoded(records.records)
        at = self._schema.get_field_index(TOPIC)
        if at < 0:
            return batch, dead
        gone = {i for i, _ in dead}
        topics = [topic for i, topic in enumerate(records.topics) if i not in gone]
        return _with_column(batch, self._schema, at, topics), dead

    def dead_among(self, records: Sequence[bytes]) -> list[tuple[int, str]]:
        lines, dead = _parted(records)
        return sorted([*dead, *self._lines.dead(lines)])

    def _decoded(self, records: Sequence[bytes]) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
        lines, dead = _parted(records)
        batch, undecodable = self._lines.decode(lines)
        return batch, sorted([*dead, *undecodable])


def _parted(records: Sequence[bytes]) -> tuple[list[bytes], list[tuple[int, str]]]:
    """Return records as lines, those that cannot be one blank, and (index, reason) of each of these.

    The decoder counts a blank line neither as an event nor as dead.
    """
    lines, dead = list(records), []
    for i, line in enumerate(lines):
        problem = _problem(line)
        if problem:
            lines[i] = b""
            dead.append((i, problem))
    return lines, dead


class _RawDecoder:
    """Records without decoding."""

    def __init__(self, schema: pa.Schema) -> None:
        for field in schema:
            kinds = {VALUE: pa.types.is_binary, TOPIC: pa.types.is_string}
            if field.name not in kinds or not kinds[field.name](field.type):
                raise SourceError(
                    f"column {field.name} {field.type}: format raw fills {VALUE} BINARY and {TOPIC} STRING only; "
                    "leave the column out of the schema, or use format json"
                )
        self._schema = schema

    def decode(self, records: Records) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
        columns = {VALUE: records.records, TOPIC: records.topics}
        arrays = [pa.array(columns[field.name], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), []

    def dead_among(self, _: Sequence[bytes]) -> list[tuple[int, str]]:
        return []


def _problem(line: bytes) -> str:
    if not line.strip(_BLANKS).removeprefix(_BYTE_ORDER_MARK):
        return "the record is empty"
    if len(line) > RECORD_BYTES_MAX:
        return f"the record is longer than {RECORD_BYTES_MAX} bytes"
    return ""


def _with_column(batch: pa.RecordBatch, schema: pa.Schema, at: int, values: list[str]) -> pa.RecordBatch:
    arrays = batch.columns
    arrays.insert(at, pa.array(values, schema.field(at).type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _dead_record(records: Records, number: int, reason: str) -> DeadRecord:
    topic = records.topics[number]
    return DeadRecord(
        records.start.record + number,
        records.offsets[number],
        reason,
        records.records[number],
        place=f"topic {topic}" if topic else "",
    )
