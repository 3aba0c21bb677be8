"""JSON lines into Arrow batches of a given schema, line by line accountable.

The whole block is decoded at once by Arrow; only when that fails is it halved until the lines that are at fault stand
alone, so that one bad line costs about 2·log2(n) more attempts, and the same decoder judges all lines.
"""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.json as pj

from gateway.sources.base import SourceError

# Arrow's JSON reader knows no conversion from text to these; they are read as text and cast.
_AS_TEXT = (pa.types.is_date, pa.types.is_binary)


class LineDecoder:
    """Decodes lines to one schema. Missing fields are null, unknown ones ignored; a wrong type makes a dead record."""

    def __init__(self, schema: pa.Schema) -> None:
        for field in schema:
            if _holds_map(field.type):
                raise SourceError(
                    f"column {field.name}: JSON lines cannot carry {field.type}; use a STRUCT or an ARRAY"
                )
        self._schema = schema
        self._read_schema = pa.schema(
            [pa.field(f.name, pa.string()) if any(test(f.type) for test in _AS_TEXT) else f for f in schema]
        )

    def decode(self, lines: list[bytes]) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
        """Return the events in order, and (index, reason) of each line that is none; blank lines are neither."""
        batches: list[pa.RecordBatch] = []
        dead: list[tuple[int, str]] = []
        numbered = [(i, line) for i, line in enumerate(lines) if line.strip()]
        self._decode_range(numbered, batches, dead)
        table = pa.Table.from_batches(batches, self._schema).combine_chunks()
        return (table.to_batches() or [_empty(self._schema)])[0], sorted(dead)

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
                explicit_schema=self._read_schema, unexpected_field_behavior="ignore", newlines_in_values=False
            ),
        )
        if table.num_rows != len(lines):
            raise ValueError(f"{len(lines)} line(s) hold {table.num_rows} JSON objects; one a line is expected")
        return table.cast(self._schema).combine_chunks().to_batches()[0]


def _holds_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_holds_map(kind.field(i).type) for i in range(kind.num_fields))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
