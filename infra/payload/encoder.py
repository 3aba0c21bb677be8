"""Encodes a run's record batch into the bytes that cross the WAN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from infra.messages import Predicate
from infra.payload import body, trim, wire
from infra.payload.codecs.choose import Codec
from infra.payload.codecs.dictionaries import NewDictionary
from infra.payload.codecs.packer import FieldPacker, PackedColumn
from infra.payload.codecs.policy import CodecPolicy
from infra.payload.predicates import keep_mask, why_not_early
from infra.payload.sealing import Seal


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """An encoded run.

    Attributes:
        payload: what to send.
        rows: rows in the payload.
        raw_bytes: the size of the batch as Arrow IPC, untrimmed and unfiltered.
        dictionaries: those used for the first time; send them before this payload.
    """

    payload: bytes
    rows: int
    raw_bytes: int
    dictionaries: tuple[NewDictionary, ...]


@dataclass(frozen=True)
class _Sent:
    """A field that crosses the WAN: its place in the full schema, its members, its packer, its seal if it has one."""

    column: int
    name: str
    kept: bytes
    packer: FieldPacker
    seal: Seal | None


class Encoder:
    """Encodes the runs of one query; not thread-safe.

    Args:
        schema: of every batch.
        needed: the columns (nested members pruned) that the query reads; None sends all.
        predicates: conditions, all of which a row must meet to be sent; they may read columns that are not sent.
        codecs: how fields are packed.
        seals: what replaces the values of these columns, after the predicates were evaluated.

    Raises:
        ValueError: ``needed``, a predicate or a codec names a column that ``schema`` does not have.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        needed: pa.Schema | None = None,
        predicates: tuple[Predicate, ...] = (),
        codecs: CodecPolicy,
        seals: Mapping[str, Seal] | None = None,
    ) -> None:
        body.check_schema(schema)
        codecs.check_fields(schema.names)
        reasons = [reason for predicate in predicates if (reason := why_not_early(schema, predicate))]
        if reasons:
            raise ValueError("; ".join(reasons))
        self._schema = schema
        self._fingerprint = body.fingerprint(schema)
        self._predicates = predicates
        self._sent = tuple(_fields_to_send(schema, schema if needed is None else needed, codecs, seals or {}))
        self._announced: dict[str, NewDictionary] = {}

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        """Return the rows and columns that the query needs, packed.

        Raises:
            ValueError: the batch has another schema.
        """
        if not batch.schema.equals(self._schema):
            raise ValueError(f"the batch has schema {batch.schema}, but the encoder expects {self._schema}")
        selected = self._selection(batch)
        rows = batch.num_rows if selected is None else int(selected.true_count)
        headers: list[wire.FieldHeader] = []
        bodies: list[bytes | memoryview] = []
        fresh: list[NewDictionary] = []
        unpacked_bytes = 0
        for sent in self._sent if rows else ():
            column = trim.prune(batch.column(sent.column), sent.kept)
            column = column if selected is None else column.filter(selected)
            column = column if sent.seal is None else sent.seal.seal(column)
            if column.null_count == rows:
                continue
            packed = sent.packer.pack(column)
            used = sent.packer.dictionary if packed.codec == "zstd-dict" else None
            headers.append(_header(sent, packed, used))
            bodies.append(packed.packed)
            unpacked_bytes += packed.unpacked_bytes
            if used is not None and sent.name not in self._announced:
                fresh.append(used)
            if used is not None:
                self._announced[sent.name] = used
        header = wire.ballasted(wire.Header(self._fingerprint, rows, tuple(headers)), unpacked_bytes)
        return Encoded(
            payload=wire.join(header, bodies),
            rows=rows,
            raw_bytes=int(pa.ipc.get_record_batch_size(batch)),
            dictionaries=tuple(fresh),
        )

    def choices(self) -> dict[str, Codec]:
        """Return the codec of each field that is sent; fields that ``auto`` has not measured yet are left out."""
        return {sent.name: sent.packer.choice for sent in self._sent if sent.packer.choice is not None}

    def known_dictionaries(self) -> tuple[NewDictionary, ...]:
        """Return every dictionary that payloads so far may use: a new lane must get them first."""
        return tuple(self._announced.values())

    def _selection(self, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        """Return which rows are kept, None when all are."""
        if not self._predicates:
            return None
        mask = keep_mask(batch, self._predicates)
        return None if mask.true_count == batch.num_rows else mask


def _header(sent: _Sent, packed: PackedColumn, used: NewDictionary | None) -> wire.FieldHeader:
    return wire.FieldHeader(
        column=sent.column,
        codec=packed.codec,
        shaped=packed.shaped,
        raw_bytes=packed.raw_bytes,
        packed_bytes=len(packed.packed),
        dictionary_id=used.dictionary_id if used else 0,
        kept=sent.kept,
    )


def _fields_to_send(
    schema: pa.Schema, needed: pa.Schema, codecs: CodecPolicy, seals: Mapping[str, Seal]
) -> Iterator[_Sent]:
    unknown = [name for name in needed.names if schema.get_field_index(name) < 0]
    if unknown:
        raise ValueError(f"needed columns {unknown} are not in the input's schema ({schema.names})")
    for column, field in enumerate(schema):
        at = needed.get_field_index(field.name)
        if at >= 0:
            kept = trim.kept_members(field.type, needed.field(at).type, field.name)
            yield _Sent(column, field.name, kept, FieldPacker(field.name, codecs), seals.get(field.name))
