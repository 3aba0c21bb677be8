"""Finds the columns of events from some of them.

Arrow infers the types. The same decoders as in a running gateway then decode these events with them, so that the
schema fits as many of them as possible, and how many it does not fit is known.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.json as pj

from engines.email.queries import SCHEMA_DDL
from gateway.views.firstconfig.columntypes import ddl_of, with_times_as_text, written_as
from infra.files.choosing import open_by_name
from infra.files.lines import Lines
from infra.rows.base import SourceError
from infra.rows.jsonlines import LineDecoder

RECORDS_MOST: Final = 1000
_BYTES_MOST: Final = 16_000_000
_DATE: Final = r"^\d{4}-\d\d-\d\d$"
_TIME: Final = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d"
_INSTANT: Final = pa.timestamp("us", tz="UTC")


class InferError(Exception):
    """The columns cannot be found; the message says why, and what to do."""


@dataclass(frozen=True)
class Inferred:
    """The columns of events.

    Attributes:
        ddl: for Spark.
        records: how many records it is from.
        unfit: how many of these it does not fit.
        reason: why the first of these does not fit.
    """

    ddl: str
    records: int
    unfit: int = 0
    reason: str = ""


MAIL: Final = Inferred(SCHEMA_DDL, 0)
"""The columns of every mailbox."""

Decode = Callable[[pa.Schema], tuple[pa.RecordBatch, Sequence[str]]]
"""Decodes the records by a schema; returns the events, and why each of the others is none."""


def infer_file(path: Path) -> Inferred:
    """Return the columns of a file, or of the first file in a folder.

    Raises:
        InferError: there are none.
    """
    try:
        return _of_file(path)
    except (SourceError, OSError, EOFError, pa.ArrowException, UnicodeDecodeError) as error:
        raise InferError(f"the columns of {path} cannot be found: {error}") from error


def _of_file(path: Path) -> Inferred:
    if path.name.endswith((".mbox", ".mbox.gz")):
        return MAIL
    match path.name.removesuffix(".gz").removesuffix(".zst").rpartition(".")[2]:
        case "jsonl":
            return infer_json(_lines(path))
        case "csv":
            lines = _lines(path)
            if len(lines) < 2:
                raise InferError(f"{path} has no row below its header: give a file with some")
            return _fitted(_texts(_csv_schema(lines)), partial(_decoded, path), len(lines) - 1)
        case "parquet":
            import pyarrow.parquet as pq

            return _fitted(pq.read_schema(path), partial(_decoded, path), None)
        case _:
            with pa.OSFile(str(path)) as file:
                opened = pa.ipc.open_file(file) if path.suffix == ".arrow" else pa.ipc.open_stream(file)
                return _fitted(opened.schema, partial(_decoded, path), None)


def _lines(path: Path) -> list[bytes]:
    lines, found, size_bytes = Lines(path), list[bytes](), 0
    try:
        while len(found) <= RECORDS_MOST and size_bytes < _BYTES_MOST and (line := lines.next_line()) is not None:
            found.append(line[0])
            size_bytes += line[1]
    finally:
        lines.close()
    return found


def _decoded(path: Path, schema: pa.Schema) -> tuple[pa.RecordBatch, Sequence[str]]:
    reader = open_by_name(path, schema, strict=False)
    try:
        if reader.at_end():
            return pa.RecordBatch.from_pylist([], schema=schema), ()
        portion = reader.read(RECORDS_MOST, _BYTES_MOST)
    finally:
        reader.close()
    return portion.batch, [each.reason for each in portion.dead]


def _csv_schema(lines: Sequence[bytes]) -> pa.Schema:
    data = b"\n".join(lines) + b"\n"
    return pv.read_csv(
        io.BytesIO(data),
        read_options=pv.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda _: "skip"),
        convert_options=pv.ConvertOptions(null_values=[""]),
    ).schema


def infer_json(lines: Sequence[bytes]) -> Inferred:
    """Return the columns of JSON objects, one a line.

    Raises:
        InferError: no line is an object with fields.
    """
    objects = [line for line in lines if _is_object(line)]
    schema = _json_schema(objects)
    if schema is None or not len(schema):
        raise InferError(f"none of the first {len(lines)} records is a JSON object with fields: give other data")

    def decode(columns: pa.Schema) -> tuple[pa.RecordBatch, Sequence[str]]:
        batch, dead = LineDecoder(columns).decode(list(lines))
        return batch, [reason for _, reason in dead]

    return _fitted(_texts(schema), decode, sum(1 for line in lines if line.strip()))


def _is_object(line: bytes) -> bool:
    try:
        return bool(msgspec.json.decode(line, type=dict[str, Any]))
    except (msgspec.DecodeError, RecursionError):
        return False


def _json_schema(objects: Sequence[bytes]) -> pa.Schema | None:
    """Return what Arrow infers; where records contradict each other, the earlier ones count."""
    if not objects:
        return None
    data = b"\n".join(msgspec.json.format(each, indent=-1) for each in objects)
    options = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
    try:
        return pj.read_json(io.BytesIO(data), read_options=options).schema
    except pa.ArrowException:
        if len(objects) == 1:
            return None
    half = len(objects) // 2
    parts = [part for part in (_json_schema(objects[:half]), _json_schema(objects[half:])) if part is not None]
    return _merged(*parts) if len(parts) == 2 else next(iter(parts), None)


def _merged(first: pa.Schema, second: pa.Schema) -> pa.Schema:
    names = dict.fromkeys([*first.names, *second.names])
    return pa.schema(
        [_merged_field([each.field(name) for each in (first, second) if name in each.names]) for name in names]
    )


def _merged_field(fields: Sequence[pa.Field]) -> pa.Field:
    try:
        return pa.unify_schemas([pa.schema([each]) for each in fields], promote_options="permissive").field(0)
    except pa.ArrowException:
        return fields[0]


def _texts(schema: pa.Schema) -> pa.Schema:
    return pa.schema([each.with_type(with_times_as_text(each.type)) for each in schema])


def _fitted(found: pa.Schema, decode: Decode, records: int | None) -> Inferred:
    schema = pa.schema([pa.field(each.name, written_as(each.type)) for each in found])
    batch, dead = decode(schema)
    for at, field in enumerate(schema):
        for kind in _kinds_of_text(batch.column(at)) if pa.types.is_string(field.type) else ():
            if len(decode(pa.schema([field.with_type(kind)]))[1]) <= len(decode(pa.schema([field]))[1]):
                schema = schema.set(at, field.with_type(kind))
                break
    batch, dead = decode(schema)
    read = batch.num_rows + len(dead) if records is None else records
    if not read:
        raise InferError("there are no records: give data with some")
    return Inferred(ddl_of(schema), read, len(dead), dead[0] if dead else "")


def _kinds_of_text(column: pa.Array) -> tuple[pa.DataType, ...]:
    """Return the types that all texts of a column look like."""
    texts = column.drop_null()
    if not len(texts):
        return ()
    kinds = ((_DATE, pa.date32()), (_TIME, _INSTANT))
    return tuple(kind for pattern, kind in kinds if pc.all(pc.match_substring_regex(texts, pattern)).as_py())
