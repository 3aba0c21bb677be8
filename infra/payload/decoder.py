"""Decodes bytes that crossed the WAN into a record batch with exactly the schema both sites agreed on."""

from __future__ import annotations

import pyarrow as pa
import zstandard

from infra.payload import body, shapes, trim, wire
from infra.payload.codecs import codecs
from infra.payload.errors import PayloadError

DEFAULT_MAX_BYTES = 128 << 20
MAX_DICTIONARIES = 4
"""Dictionaries kept for a field; the oldest is dropped first, since an encoder uses only its newest."""


class Decoder:
    """Decodes the payloads of one query; not thread-safe.

    Payloads are not trusted: sizes are compared with the limit before anything is allocated, and Arrow data is
    validated in full before it is used.

    Args:
        schema: of every batch returned; columns that were not sent are null.
        max_bytes: the largest size that one payload may unpack to.
    """

    def __init__(self, schema: pa.Schema, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        body.check_schema(schema)
        self._schema = schema
        self._fingerprint = body.fingerprint(schema)
        self._max_bytes = max_bytes
        self._zstd = zstandard.ZstdDecompressor()
        self._dictionaries: dict[str, dict[int, zstandard.ZstdDecompressor]] = {}

    def add_dictionary(self, field: str, dictionary_id: int, data: bytes) -> None:
        """Add a dictionary for a field.

        Raises:
            PayloadError: the field does not exist, or the dictionary is invalid.
        """
        if self._schema.get_field_index(field) < 0:
            raise PayloadError(f"received a dictionary for field {field!r}, which the schema does not have")
        kept = self._dictionaries.setdefault(field, {})
        kept[dictionary_id] = codecs.dictionary_decompressor(dictionary_id, data)
        if len(kept) > MAX_DICTIONARIES:
            del kept[next(iter(kept))]

    def decode(self, payload: bytes | memoryview) -> pa.RecordBatch:
        """Return the rows of a payload; its arrays may refer to the payload's memory.

        Raises:
            PayloadError: anything about the payload is wrong; bad bytes cause no other error.
        """
        header, bodies = wire.split(payload)
        if header.fingerprint != self._fingerprint:
            raise PayloadError("the payload was made for another schema")
        budget = trim.AllocationBudget(self._max_bytes)
        budget.take(header.rows, f"{header.rows} rows")
        most_bytes = wire.most_unpacked_bytes(len(payload))
        if (unpacked_bytes := sum(field.raw_bytes for field in header.fields)) > most_bytes:
            raise PayloadError(f"{len(payload)} bytes may unpack to {most_bytes} at most, but declare {unpacked_bytes}")
        growth = trim.AllocationBudget(most_bytes - unpacked_bytes)
        came: dict[int, tuple[wire.FieldHeader, pa.Array]] = {}
        for field, packed in zip(header.fields, bodies, strict=True):
            if field.column >= len(self._schema) or field.column in came:
                raise PayloadError(f"field {field.column} is unknown or occurs twice")
            came[field.column] = field, self._column(field, packed, header.rows, budget, growth)
        # Memory for the columns that were not sent is allocated only now, after all others proved valid.
        columns = {
            index: trim.restore(column, self._schema.field(index).type, field.kept, budget)
            for index, (field, column) in came.items()
        }
        return self._assemble(columns, header.rows, budget)

    def _column(
        self,
        field: wire.FieldHeader,
        packed: memoryview,
        rows: int,
        budget: trim.AllocationBudget,
        growth: trim.AllocationBudget,
    ) -> pa.Array:
        full = self._schema.field(field.column)
        kind = trim.pruned_type(full.type, field.kept)
        budget.take(field.raw_bytes, f"field {full.name!r} of {field.raw_bytes} bytes")
        try:
            unpacked = self._unpack(field, full.name, packed)
            if field.shaped:
                column = shapes.read_shape(unpacked, kind, rows, (budget, growth))
            else:
                column = body.read_body(unpacked, kind, rows)
        except PayloadError as error:
            raise PayloadError(f"field {full.name!r}: {error.reason}") from error
        trim.charge_weightless(column, budget)
        return column

    def _unpack(self, field: wire.FieldHeader, name: str, packed: memoryview) -> bytes | memoryview:
        if field.codec == "none":
            if field.raw_bytes != field.packed_bytes:
                raise PayloadError(f"{field.packed_bytes} plain bytes instead of {field.raw_bytes}")
            return packed
        if field.codec == "gzip":
            return codecs.unpack_gzip(packed, field.raw_bytes)
        decompressor: zstandard.ZstdDecompressor | None = self._zstd
        if field.codec == "zstd-dict":
            decompressor = self._dictionaries.get(name, {}).get(field.dictionary_id)
        if decompressor is None:
            raise PayloadError(f"dictionary {field.dictionary_id} was not received")
        return codecs.unpack_zstd(decompressor, packed, field.raw_bytes)

    def _assemble(self, columns: dict[int, pa.Array], rows: int, budget: trim.AllocationBudget) -> pa.RecordBatch:
        arrays = [
            columns[index] if index in columns else trim.null_column(rows, field.type, budget)
            for index, field in enumerate(self._schema)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        batch.validate()
        return batch
