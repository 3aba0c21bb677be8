"""Decodes JSON lines whose columns are plain: text, numbers, booleans, timestamps, and lists of these.

Only the query's fields are decoded, several times as fast as Arrow, which parses every field. What is accepted here
gives the values that Arrow would give (tests/sources/test_plain_lines.py); Arrow decides about everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated

import msgspec
import pyarrow as pa
import pyarrow.compute as pc


class UnsureError(Exception):
    """Arrow must decide about these lines."""


class PlainLines:
    """Decodes lines of one schema.

    Args:
        schema: of the events.
        strict: a missing or an unknown field is not accepted.

    Raises:
        UnsureError: a column is not plain, or there is none.
    """

    def __init__(self, schema: pa.Schema, *, strict: bool) -> None:
        if not len(schema):
            raise UnsureError
        self._schema = schema
        # A name of a column need not be a Python name.
        names = [f"column_{at}" for at in range(len(schema))]
        kinds = [(name, _python_type(field.type)) for name, field in zip(names, schema, strict=True)]
        row = msgspec.defstruct(
            "Row",
            kinds if strict else [(name, kind, None) for name, kind in kinds],
            rename=dict(zip(names, schema.names, strict=True)),
            forbid_unknown_fields=strict,
            gc=False,
        )
        self._values = [attrgetter(name) for name in names]
        self._decoder = msgspec.json.Decoder(row)
        # In these, Arrow may refuse a value that the decoder accepts.
        self._doubtful = [
            at for at, field in enumerate(schema) if pa.types.is_timestamp(field.type) or not field.nullable
        ]

    def decode(self, lines: list[bytes]) -> pa.RecordBatch:
        """Return an event for each line, in order.

        Raises:
            UnsureError: some line is blank, bad, or needs a conversion that only Arrow makes.
        """
        rows = self._rows(lines)
        columns = self._columns(rows, range(len(self._schema)))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def judge(self, lines: list[bytes]) -> None:
        """Do nothing if ``decode`` accepts these lines, in half of its time.

        Raises:
            UnsureError: it does not.
        """
        self._columns(self._rows(lines), self._doubtful)

    def _rows(self, lines: list[bytes]) -> list[msgspec.Struct]:
        data = b"\n".join(lines)
        if data.count(b"\n") != len(lines) - 1:
            raise UnsureError
        try:
            if not data.isascii():
                data.decode("utf-8")  # msgspec does not check fields that it skips
            rows: list[msgspec.Struct] = self._decoder.decode_lines(data)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise UnsureError from error
        if len(rows) != len(lines):
            raise UnsureError
        return rows

    def _columns(self, rows: Sequence[msgspec.Struct], which: Sequence[int]) -> list[pa.Array]:
        fields = [self._schema.field(at) for at in which]
        try:
            columns = [
                _column(list(map(self._values[at], rows)), field.type) for at, field in zip(which, fields, strict=True)
            ]
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise UnsureError from error
        if any(column.null_count and not field.nullable for column, field in zip(columns, fields, strict=True)):
            raise UnsureError
        return columns


def _python_type(kind: pa.DataType) -> object:
    if pa.types.is_string(kind) or pa.types.is_timestamp(kind):
        return str | None
    if pa.types.is_boolean(kind):
        return bool | None
    if pa.types.is_signed_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)] | None
    if pa.types.is_float64(kind):
        return float | None
    if pa.types.is_list(kind) and not (pa.types.is_list(kind.value_type) or pa.types.is_timestamp(kind.value_type)):
        return list[_python_type(kind.value_type)] | None  # type: ignore[misc]
    raise UnsureError


def _column(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_timestamp(kind):
        return pa.array(values, kind)
    text = pa.array(values, pa.string())
    try:
        return pc.cast(text, kind)
    except pa.ArrowInvalid:
        # A time without a zone is UTC, and a time with one loses it in a column without.
        return pc.cast(pc.cast(text, pa.timestamp(kind.unit, None if kind.tz else "UTC")), kind)
