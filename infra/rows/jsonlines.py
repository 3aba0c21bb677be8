"""Decodes JSON lines to Arrow batches of a given schema, and reports each bad line."""

from __future__ import annotations

import base64
import io
import json

import msgspec
import pyarrow as pa
import pyarrow.json as pj

from infra.rows.base import SourceError
from infra.rows.drift import line_drift, rows_with_null
from infra.rows.halving import decode_by_halves, one_batch
from infra.rows.plainlines import PlainLines, UnsureError

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
        # Every field may be null here; the cast to the real schema refuses nulls where they are not allowed.
        self._read_schema = pa.schema([pa.field(f.name, _read_type(f.type)) for f in schema])
        self._binary = [i for i, field in enumerate(schema) if pa.types.is_binary(field.type)]
        try:
            self._plain: PlainLines | None = PlainLines(schema, strict=strict)
        except UnsureError:
            self._plain = None

    def decode(self, lines: list[bytes]) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
        """Return the events in order, and (index, reason) of each bad line; blank lines are neither."""
        if self._plain is not None and lines:
            try:
                return self._plain.decode(lines), []
            except UnsureError:
                pass  # some line is blank, bad or needs Arrow
        return self._decode_each(lines)

    def dead(self, lines: list[bytes]) -> list[tuple[int, str]]:
        """Return (index, reason) of each bad line, as ``decode`` does, sooner if there is none."""
        if self._plain is not None and lines:
            try:
                self._plain.judge(lines)
            except UnsureError:
                pass
            else:
                return []
        return self._decode_each(lines)[1]

    def _decode_each(self, lines: list[bytes]) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
        dead: list[tuple[int, str]] = []
        numbered: list[tuple[int, bytes]] = []
        for i, line in enumerate(lines):
            text = line.strip(_BLANKS).removeprefix(_BYTE_ORDER_MARK)
            # Arrow crashes on a line with null, and would join two halves of an object on two lines.
            if text and not (text.startswith(b"{") and text.endswith(b"}")):
                dead.append((i, "the line is not one JSON object"))
            elif b"\n" in text or b"\r" in text:
                # A message may span several lines; Arrow needs one object per line.
                try:
                    numbered.append((i, msgspec.json.format(text, indent=-1)))
                except msgspec.DecodeError as error:
                    dead.append((i, f"not JSON: {error}"))
            elif text:
                numbered.append((i, text))
        batches, refused = self._decode_numbered(numbered)
        return one_batch(batches, self._schema), sorted(dead + refused)

    def _decode_numbered(self, lines: list[tuple[int, bytes]]) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]:
        if not self._strict or not lines:
            return decode_by_halves(lines, self._attempt)
        try:
            return [self._attempt([line for _, line in lines])], []
        except (pa.ArrowException, ValueError):
            # When fields drift, most lines do: checking each line once is cheaper than halving.
            drifts = [self._drift(line) for _, line in lines]
        dead = [(i, drift) for (i, _), drift in zip(lines, drifts, strict=True) if drift is not None]
        left = [line for line, drift in zip(lines, drifts, strict=True) if drift is None]
        batches, refused = decode_by_halves(left, self._attempt)
        return batches, dead + refused

    def _drift(self, line: bytes) -> str | None:
        try:
            return line_drift(line, self._schema)
        except ValueError:
            return None  # Arrow has the better message

    def _attempt(self, lines: list[bytes]) -> pa.RecordBatch:
        if self._plain is not None:
            try:
                return self._plain.decode(lines)
            except UnsureError:
                pass
        try:
            return self._by_arrow(lines)
        except pa.ArrowInvalid:
            once = last_of_each_field(lines[0]) if len(lines) == 1 else None
            if once is None:
                raise
            return self._by_arrow([once])

    def _by_arrow(self, lines: list[bytes]) -> pa.RecordBatch:
        data = b"\n".join(lines)
        data.decode("utf-8")  # Arrow accepts invalid UTF-8, but Spark does not
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


def last_of_each_field(line: bytes) -> bytes | None:
    """Return the line with the last value of each field that it repeats; None if it repeats none or is not JSON."""
    repeats = False

    def last(pairs: list[tuple[str, object]]) -> dict[str, object]:
        nonlocal repeats
        kept = dict(pairs)
        repeats = repeats or len(kept) < len(pairs)
        return kept

    try:
        value = json.loads(line, object_pairs_hook=last)
    except (ValueError, RecursionError):
        return None
    return json.dumps(value).encode() if repeats else None


def _refused(kind: pa.DataType, *, top: bool = True) -> pa.DataType | None:
    """Return the first type in ``kind`` that JSON lines cannot carry here, if there is one."""
    if pa.types.is_map(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind):
        return kind
    if not top and pa.types.is_binary(kind):
        return kind
    inner = (_refused(kind.field(i).type, top=False) for i in range(kind.num_fields))
    return next((found for found in inner if found is not None), None)


def _read_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that Arrow reads for ``kind``: it cannot convert text to dates and bytes (base64)."""
    if pa.types.is_date(kind) or pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _read_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _read_type(f.type)) for f in kind])
    return kind
