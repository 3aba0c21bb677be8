"""Result rows as JSON, the same for every sink that writes text."""

from __future__ import annotations

import msgspec
import pyarrow as pa

_ENCODER = msgspec.json.Encoder(decimal_format="number")


def json_rows(batch: pa.RecordBatch) -> list[bytes]:
    """Return each row as one JSON object, without a line end.

    Times are ISO 8601, decimals are numbers, bytes are base64, and numbers that are not finite are null.
    """
    # No value has a line end: JSON escapes it.
    return json_lines(batch).split(b"\n")[:-1]


def json_lines(batch: pa.RecordBatch) -> bytes:
    """Return the rows as ``json_rows`` does, each with a line end; empty when there are none."""
    names = batch.schema.names
    return _ENCODER.encode_lines(
        [dict(zip(names, row, strict=True)) for row in zip(*map(_values, batch.columns), strict=True)]
    )


def _values(column: pa.Array) -> list[object]:
    """Return the Python values of a column; for plain ones by way of numpy, several times as fast."""
    kind = column.type
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if pa.types.is_string(kind) or (numbers and not column.null_count):
        found: list[object] = column.to_numpy(zero_copy_only=False).tolist()
        return found
    return list(column.to_pylist())
