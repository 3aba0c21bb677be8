"""A file of comma-separated values (RFC 4180) with a header row, plain or compressed.

The query's schema gives the types. An empty cell is null, a quoted empty cell an empty text. Instants without a zone
are UTC. Any error in a row makes that row a dead record; the header decides which columns there are.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from infra.files.base import FilePlace, Portion, Refused, Skipped
from infra.files.lines import LINE_LIMITS, LineLimits, Lines
from infra.files.packed import open_plain
from infra.rows.base import SourceError
from infra.rows.drift import check_columns
from infra.rows.halving import decode_by_halves, one_batch

_FIELD = rb'(?:"(?:[^"]|"")*+"[^,]*+|[^",][^,]*+|)'
_WHOLE = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*+", re.DOTALL)
_CLOSING = re.compile(rb'(?:[^"]|"")*+"[^,]*+(?:,' + _FIELD + rb")*+", re.DOTALL)
_ARROW_PLACE = re.compile(r"In CSV column #(\d+): Row #1: ")
_ZONED = r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$"


class Rows:
    """The rows of a CSV file: one line each, or several if a quoted cell contains line ends."""

    def __init__(self, lines: Lines, limits: LineLimits = LINE_LIMITS) -> None:
        self._lines = lines
        self._limits = limits
        self._ahead: deque[tuple[bytes, int]] = deque()
        self.offset = lines.offset

    def seek(self, offset: int) -> None:
        """Continue at ``offset``, the beginning of a row."""
        if offset != self.offset:
            self._ahead.clear()
            self._lines.seek(offset)
            self.offset = offset

    def at_end(self) -> bool:
        """Return whether no row is left."""
        return not self._ahead and self._lines.at_end()

    def next_row(self) -> tuple[bytes, str] | None:
        """Return (row without its end, its error), or None at the end."""
        first = self._line(0)
        if first is None:
            return None
        taken, problem = [first], ""
        if len(first[0]) > self._limits.line_bytes:
            problem = f"the row is longer than {self._limits.line_bytes} bytes"
        elif b'"' in first[0] and _WHOLE.fullmatch(first[0]) is None:
            taken, problem = self._rest_of_quoted(first)
        for _ in taken:
            self._ahead.popleft()
        self.offset += sum(size for _, size in taken)
        return b"\n".join(line for line, _ in taken), problem

    def skip(self, max_rows: int, max_bytes: int) -> int:
        """Pass over rows, at least one unless that is not allowed; return how many. See ``Lines.skip``."""
        first = self.offset
        self._ahead.clear()
        self._lines.seek(first)
        # Only a quote can make a row of several lines.
        rows = self._lines.skip(max_rows, max_bytes, without=b'"')
        self.offset = self._lines.offset
        while rows < max_rows and self.offset - first < max_bytes and self.next_row() is not None:
            rows += 1
        return rows

    def _rest_of_quoted(self, first: tuple[bytes, int]) -> tuple[list[tuple[bytes, int]], str]:
        taken, size_bytes = [first], first[1]
        while size_bytes <= self._limits.quoted_bytes and (line := self._line(len(taken))) is not None:
            taken.append(line)
            size_bytes += line[1]
            if _CLOSING.fullmatch(line[0]) is not None:
                return taken, ""
        return [first], f"a quote is not closed within {self._limits.quoted_bytes} bytes or the end of the file"

    def _line(self, ahead: int) -> tuple[bytes, int] | None:
        while len(self._ahead) <= ahead:
            line = self._lines.next_line()
            if line is None:
                return None
            self._ahead.append(line)
        return self._ahead[ahead]


class CsvReader:
    """Reader of ``.csv``, ``.csv.gz`` and ``.csv.zst``; offsets are uncompressed bytes.

    Args:
        path: the file.
        schema: of the events.
        strict: the header must have exactly the schema's columns.
        limits: how much is read and held at a time.

    Raises:
        SourceError: the header is missing, or does not fit.
    """

    def __init__(
        self, path: FilePlace, schema: pa.Schema, *, strict: bool = False, limits: LineLimits = LINE_LIMITS
    ) -> None:
        check_carried(schema)
        self._path = path
        self._schema = schema
        self._limits = limits
        self._lines = Lines(path, limits)
        self._rows = Rows(self._lines, limits)
        try:
            self._header = self._read_header(strict=strict)
        except SourceError:
            self._lines.close()
            raise
        self._first_offset = self._rows.offset
        self._line_number: int | None = None

    def _read_header(self, *, strict: bool) -> list[str]:
        row, problem = self._rows.next_row() or (b"", "the file is empty")
        try:
            names = next(csv.reader(io.StringIO(row.rstrip(b"\r").decode("utf-8-sig"), newline="")), [])
        except (UnicodeDecodeError, csv.Error) as error:
            names, problem = [], str(error)
        if problem or not any(names):
            what = problem or "the first row is empty"
            raise SourceError(f"{self._path} needs a first row with the names of the columns ({what}): put it there")
        if len(set(names)) < len(names):
            raise SourceError(f"{self._path}: a column is named twice in its first row; rename one")
        check_columns(self._path, names, self._schema, strict=strict)
        return names

    def seek(self, offset: int) -> None:
        """See ``FileReader.seek``."""
        offset = offset or self._first_offset
        if offset != self._rows.offset:
            self._rows.seek(offset)
            self._line_number = None

    @property
    def can_skip(self) -> bool:
        """See ``FileReader.can_skip``."""
        return self._lines.can_skip

    def stop_at(self, end: int | None) -> None:
        """See ``FileReader.stop_at``."""
        self._lines.stop_at(end)

    def skip(self, max_records: int, max_bytes: int) -> Skipped:
        """See ``FileReader.skip``."""
        self._line_number = None
        return Skipped(self._rows.skip(max_records, max_bytes), self._rows.offset)

    def at_end(self) -> bool:
        """See ``FileReader.at_end``."""
        return self._rows.at_end()

    def read(self, max_records: int, max_bytes: int) -> Portion:
        """See ``FileReader.read``."""
        raws: list[bytes] = []
        offsets = [self._rows.offset]
        dead: list[tuple[int, str]] = []
        while len(raws) < max_records and offsets[-1] - offsets[0] < max_bytes:
            row = self._rows.next_row()
            if row is None:
                break
            if row[1]:
                dead.append((len(raws), row[1]))
            raws.append(row[0])
            offsets.append(self._rows.offset)
        wrong = {i for i, _ in dead}
        rows = [(i, raw.rstrip(b"\r")) for i, raw in enumerate(raws) if i not in wrong]
        batches, refused = decode_by_halves([row for row in rows if row[1]], self._attempt)
        numbers = self._line_numbers(raws, offsets[0], wanted=bool(dead or refused))
        places = tuple(
            Refused(i, offsets[i], why, raws[i][: self._limits.raw_kept_bytes], f"line {numbers[i]}")
            for i, why in sorted(dead + refused)
        )
        blank = tuple(i for i, row in rows if not row)
        return Portion(one_batch(batches, self._schema), len(raws), offsets[-1], places, blank)

    def _line_numbers(self, raws: list[bytes], offset: int, *, wanted: bool) -> list[int]:
        """Return the line (from 1) where each row begins; after a jump earlier lines are counted only if needed."""
        if self._line_number is None:
            if not wanted:
                return []
            self._line_number = 1 + _count_lines(self._path, offset, self._limits.block_bytes)
        numbers = [self._line_number]
        for raw in raws:
            numbers.append(numbers[-1] + raw.count(b"\n") + 1)
        self._line_number = numbers[-1]
        return numbers

    def _attempt(self, rows: list[bytes]) -> pa.RecordBatch:
        # Arrow reads an empty last cell as a quoted one if the last line has no end.
        data = b"\n".join(rows) + b"\n"
        data.decode("utf-8")
        try:
            table = self._parse(data)
        except pa.ArrowInvalid as error:
            raise ValueError(_ARROW_PLACE.sub(lambda m: f"column {self._header[int(m[1])]}: ", str(error))) from error
        if table.num_rows != len(rows):
            raise ValueError(f"{len(rows)} row(s) hold {table.num_rows}; check the quotes")
        for at, field in enumerate(self._schema):
            if _is_instant(field.type):
                table = table.set_column(at, field.name, _instants(table.column(at), field))
        return table.cast(self._schema).combine_chunks().to_batches()[0]

    def _parse(self, data: bytes) -> pa.Table:
        types = {f.name: pa.string() if _is_instant(f.type) else f.type for f in self._schema}
        return pv.read_csv(
            io.BytesIO(data),
            read_options=pv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._header),
            parse_options=pv.ParseOptions(newlines_in_values=True),
            convert_options=pv.ConvertOptions(
                column_types=types,
                include_columns=self._schema.names,
                include_missing_columns=True,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def close(self) -> None:
        """See ``FileReader.close``."""
        self._lines.close()


def check_carried(schema: pa.Schema) -> None:
    """Refuse columns whose type has no text form in a cell.

    Raises:
        SourceError: names the column.
    """
    for field in schema:
        kind = field.type
        if kind.num_fields or pa.types.is_binary(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind):
            raise SourceError(f"column {field.name}: CSV cannot carry {kind}; use another type or format")


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _instants(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    zoned = pc.match_substring_regex(column, _ZONED)
    nothing = pa.scalar(None, pa.string())
    try:
        with_zone = pc.if_else(zoned, column, nothing).cast(field.type)
        without = pc.if_else(zoned, nothing, column).cast(pa.timestamp(field.type.unit))
    except pa.ArrowInvalid as error:
        raise ValueError(f"column {field.name}: {error}") from error
    return pc.coalesce(with_zone, pc.assume_timezone(without, "UTC").cast(field.type))


def _count_lines(path: FilePlace, until: int, block_bytes: int) -> int:
    count = 0
    with open_plain(path) as file:
        while until > 0 and (block := file.read(min(block_bytes, until))):
            count += block.count(b"\n")
            until -= len(block)
    return count
