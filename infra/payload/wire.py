"""The format of a payload: a prefix, a small header, then the packed bodies of the fields.

```
"SPL2" | u32 header length | header (msgpack) | body | body ... | ballast
```

The header is an array: fingerprint, rows, ballast, then an array for each field. A field's codec is its place in
``CODECS``, plus 8 if the body is shaped; its dictionary and its kept members are left out if it has neither. An Arrow
message that is not packed begins at a multiple of 8 bytes, since it is used where it is.

A payload may only unpack to a bounded number of bytes for each of its own. So a payload that packs better than
``MOST_PER_BYTE`` is sent with ballast: as many zeros as it needs. Only runs of more than ``FREE_BYTES`` ever need it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import msgspec

from infra.payload.codecs.choose import CODECS, Codec
from infra.payload.errors import PayloadError

_MAGIC = b"SPL2"
_PREFIX = struct.Struct("<4sI")
_ALIGNMENT = 8
_SHAPED = 8
MAX_HEADER_BYTES = 1 << 20
FREE_BYTES = 8 << 20
"""Every payload may unpack to this many bytes..."""
MOST_PER_BYTE = 64
"""...and to this many more for each byte of its own: 100 kB may unpack to 23 MB."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**48)]


class FieldHeader(msgspec.Struct, frozen=True, kw_only=True):
    """One field that is sent.

    Attributes:
        column: index of the field in the full schema.
        codec: how its body is packed.
        shaped: whether its body is one of ``infra.payload.shapes``, not an Arrow message.
        raw_bytes: length of the body.
        packed_bytes: length of the packed body.
        dictionary_id: for ``zstd-dict``, else 0.
        kept: which nested members are sent (see ``infra.payload.trim``), empty for all.
    """

    column: int
    codec: Codec
    shaped: bool = False
    raw_bytes: int
    packed_bytes: int
    dictionary_id: int = 0
    kept: bytes = b""

    @property
    def in_place(self) -> bool:
        """Whether the body is an Arrow message that is used where it is."""
        return self.codec == "none" and not self.shaped


class Header(NamedTuple):
    """A payload's content: ``rows`` rows of the schema with this ``fingerprint``; fields not listed are null."""

    fingerprint: bytes
    rows: int
    fields: tuple[FieldHeader, ...]
    ballast_bytes: int = 0


class _Field(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    column: Count
    form: Annotated[int, msgspec.Meta(ge=0, lt=2 * _SHAPED)]
    raw_bytes: Count
    packed_bytes: Count
    dictionary_id: Count = 0
    kept: bytes = b""


class _Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    fingerprint: bytes
    rows: Count
    ballast_bytes: Count
    fields: tuple[_Field, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Header)


def most_unpacked_bytes(payload_bytes: int) -> int:
    """Return how many bytes a payload may be unpacked to."""
    return FREE_BYTES + MOST_PER_BYTE * payload_bytes


def ballasted(header: Header, unpacked_bytes: int) -> Header:
    """Return the header with the ballast that the payload needs for the size that its fields unpack to."""
    packed_bytes = sum(field.packed_bytes for field in header.fields)
    lacking_bytes = -(-(unpacked_bytes - FREE_BYTES) // MOST_PER_BYTE) - packed_bytes
    return header if lacking_bytes <= 0 else header._replace(ballast_bytes=lacking_bytes)


def join(header: Header, bodies: Iterable[bytes | memoryview]) -> bytes:
    """Return the payload; its bodies are copied once."""
    fields = [_written(field) for field in header.fields]
    head = _encoder.encode((header.fingerprint, header.rows, header.ballast_bytes, fields))
    parts: list[bytes | memoryview] = [_PREFIX.pack(_MAGIC, len(head)), head]
    at = _PREFIX.size + len(head)
    for field, body in zip(header.fields, bodies, strict=True):
        padding = _padding(field, at)
        parts += [bytes(padding), body]
        at += padding + field.packed_bytes
    parts.append(bytes(header.ballast_bytes))
    return b"".join(parts)


def _written(field: FieldHeader) -> tuple[int | bytes, ...]:
    form = CODECS.index(field.codec) + _SHAPED * field.shaped
    needed = (field.column, form, field.raw_bytes, field.packed_bytes)
    return (*needed, field.dictionary_id, field.kept) if field.dictionary_id or field.kept else needed


def _read(field: _Field) -> FieldHeader:
    codec = field.form % _SHAPED
    if codec >= len(CODECS):
        raise PayloadError(f"the payload's header is malformed: codec {codec} is unknown")
    return FieldHeader(
        column=field.column,
        codec=CODECS[codec],
        shaped=field.form >= _SHAPED,
        raw_bytes=field.raw_bytes,
        packed_bytes=field.packed_bytes,
        dictionary_id=field.dictionary_id,
        kept=field.kept,
    )


def split(payload: bytes | memoryview) -> tuple[Header, list[memoryview]]:
    """Return a payload's header and its packed bodies (views, not copies).

    Raises:
        PayloadError: the payload is not exactly as long as its header says, or the header is malformed.
    """
    view = memoryview(payload)
    if len(view) < _PREFIX.size:
        raise PayloadError(f"a payload of {len(view)} bytes has no prefix")
    magic, header_bytes = _PREFIX.unpack_from(view, 0)
    if magic != _MAGIC:
        raise PayloadError("the payload has a wrong magic number")
    if header_bytes > min(MAX_HEADER_BYTES, len(view) - _PREFIX.size):
        raise PayloadError(f"a header of {header_bytes} bytes does not fit a payload of {len(view)}")
    at = _PREFIX.size + header_bytes
    try:
        found = _decoder.decode(view[_PREFIX.size : at])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError(f"the payload's header is malformed: {error}") from error
    header = Header(found.fingerprint, found.rows, tuple(map(_read, found.fields)), found.ballast_bytes)
    bodies = []
    for field in header.fields:
        at += _padding(field, at)
        bodies.append(view[at : at + field.packed_bytes])
        at += field.packed_bytes
    at += header.ballast_bytes
    if at != len(view):
        raise PayloadError(f"the payload has {len(view)} bytes, its header says {at}")
    return header, bodies


def _padding(field: FieldHeader, at: int) -> int:
    return -at % _ALIGNMENT if field.in_place else 0
