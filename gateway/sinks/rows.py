"""Result rows as JSON, the same for every sink that writes text."""

from __future__ import annotations

import msgspec
import pyarrow as pa

_ENCODER = msgspec.json.Encoder(decimal_format="number")


def json_rows(batch: pa.RecordBatch) -> list[bytes]:
    """Return each row as one JSON object, without a line end.

    Times are ISO 8601, decimals are numbers, bytes are base64, and numbers that are not finite are null.
    """
    return [_ENCODER.encode(row) for row in batch.to_pylist()]


def json_lines(batch: pa.RecordBatch) -> bytes:
    """Return the rows as ``json_rows`` does, each with a line end; empty when there are none."""
    return _ENCODER.encode_lines(batch.to_pylist())
