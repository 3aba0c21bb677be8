"""JSON lines into Arrow batches of a given schema, line by line accountable.

The whole block is decoded at once by Arrow; only when that fails is it halved until the lines that are at fault stand
alone, so that one bad line costs about 2·log2(n) more attempts, and the same decoder judges all lines.
"""

from __future__ import annotations

import base64
import io

import pyarrow as pa
import pyarrow.json as pj

from gateway.sources.base import SourceError
from gateway.sources.drift import line_drift, rows_with_null

_BLANKS = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LineDecoder:
    """Decodes lines to one schema. Missing fields are null, unknown ones ignored; a wrong type makes a dead record.

    Args:
        schema: of the events.
        strict: a missing or an unknown field makes a dead record too, in a struct as well (docs/schema-drift.md).
    """

    def __init__(self, schema: pa.Schema, *, strict: bool = False) -> None:
        for field in schema:
            refused = _refused(field.type)
            if refused is not None:
                raise SourceError(f"column {field.name}: JSON lines cannot carry {refused}; use another type")
        self._schema = schema
        self._strict = strict
        self._unexpected = "error" if strict else "ignore"
        # Every field may be null here; the cast to the real schema refuses nulls where it has none.
        self._read_schema = pa.schema([pa.field(f.name, _read_type(f.type)) for f in schema])
        self._binary = [i for i, field in enumerate(schema) if pa.types.is_binary(field.type)]

    def decode(self, lines: list[bytes]) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
        """Return the events in order, and (index, reason) of each line that is none; blank lines are neither."""
        batches: list[pa.RecordBatch] = []
        dead: list[tuple[int, str]] = []
        numbered: list[tuple[int, bytes]] = []
        for i, line in enumerate(lines):
            text = line.strip(_BLANKS).removeprefix(_BYTE_ORDER_MARK)
            # Arrow crashes on a line that says null, and would join two halves of an object on two lines.
            if text and not (text.startswith(b"{") and text.endswith(b"}")):
                dead.append((i, "the line is not one JSON object"))
            elif text:
                numbered.append((i, text))
        if self._strict:
            numbered = self._without_drift(numbered, batches, dead)
        self._decode_range(numbered, batches, dead)
        table = pa.Table.from_batches(batches, self._schema).combine_chunks()
        return (table.to_batches() or [_empty(self._schema)])[0], sorted(dead)

    def _without_drift(
        self, lines: list[tuple[int, bytes]], batches: list[pa.RecordBatch], dead: list[tuple[int, str]]
    ) -> list[tuple[int, bytes]]:
        """Decode all lines if none drifts; else return those that are left when the ones that do are dead."""
        try:
            batches.append(self._attempt([line for _, line in lines]))
        except (pa.ArrowException, ValueError):
            left = []
            for i, line in lines:
                reason = self._drift(line)
                if reason is None:
                    left.append((i, line))
                else:
                    dead.append((i, reason))
            return left
        return []

    def _drift(self, line: bytes) -> str | None:
        try:
            return line_drift(line, self._schema)
        except ValueError:
            return None  # Arrow says better what is wrong with it

    def _decode_range(
        self, lines: list[tuple[int, bytes]], batches: list[pa.RecordBatch], dead: list[tuple[int, str]]
    ) -> None:
        if not lines:
            return
        try:
            batches.append(self._attempt([line for _, line in lines]))
        except (pa.ArrowException, UnicodeDecodeError, ValueError) as error:
            if len(lines) == 1:
                dead.append((lines[0][0], " ".join(str(error).split())))
                return
            middle = len(lines) // 2
            self._decode_range(lines[:middle], batches, dead)
            self._decode_range(lines[middle:], batches, dead)

    def _attempt(self, lines: list[bytes]) -> pa.RecordBatch:
        data = b"\n".join(lines)
        data.decode("utf-8")  # Arrow takes invalid UTF-8 as it is, and Spark would not
        table = pj.read_json(
            io.BytesIO(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=self._read_schema, unexpected_field_behavior=self._unexpected, newlines_in_values=False
            ),
        )
        if table.num_rows != len(lines):
            raise ValueError(f"{len(lines)} line(s) hold {table.num_rows} JSON objects; one a line is expected")
        for row in rows_with_null(table) if self._strict else ():
            drift = line_drift(lines[row], self._schema)
            if drift is not None:
                raise ValueError(drift)
        for at in self._binary:
            decoded = [None if v is None else base64.b64decode(v, validate=True) for v in table.column(at).to_pylist()]
            table = table.set_column(at, self._schema.field(at).name, pa.array(decoded, pa.binary()))
        return table.cast(self._schema).combine_chunks().to_batches()[0]


def _refused(kind: pa.DataType, *, top: bool = True) -> pa.DataType | None:
    """Return the type in ``kind`` that has no form in JSON lines here, if there is one."""
    if pa.types.is_map(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind):
        return kind
    if not top and pa.types.is_binary(kind):
        return kind
    inner = (_refused(kind.field(i).type, top=False) for i in range(kind.num_fields))
    return next((found for found in inner if found is not None), None)


def _read_type(kind: pa.DataType) -> pa.DataType:
    """Return what Arrow shall read for ``kind``: it knows no conversion from text to dates and bytes (base64)."""
    if pa.types.is_date(kind) or pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _read_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _read_type(f.type)) for f in kind])
    return kind


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
