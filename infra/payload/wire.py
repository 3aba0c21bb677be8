"""The format of a payload: a prefix, a small header, then the packed bodies of the fields, on 8-byte boundaries.

```
"SPL1" | u32 header length | header (msgpack) | padding | body | padding | body | padding ... | ballast
```

A payload may only unpack to a bounded number of bytes for each of its own. So a payload that packs better than
``MOST_PER_BYTE`` is sent with ballast: as many zeros as it needs. Only runs of more than ``FREE_BYTES`` ever need it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Annotated

import msgspec

from infra.payload.codecs.choose import Codec
from infra.payload.errors import PayloadError

_MAGIC = b"SPL1"
_PREFIX = struct.Struct("<4sI")
_ALIGNMENT = 8
MAX_HEADER_BYTES = 1 << 20
FREE_BYTES = 8 << 20
"""Every payload may unpack to this many bytes..."""
MOST_PER_BYTE = 64
"""...and to this many more for each byte of its own: 100 kB may unpack to 23 MB."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**48)]


class FieldHeader(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """One field that is sent.

    Attributes:
        column: index of the field in the full schema.
        codec: how its body is packed.
        raw_bytes: length of the body.
        packed_bytes: length of the packed body.
        dictionary_id: for ``zstd-dict``, else 0.
        kept: which nested members are sent (see ``infra.payload.trim``), empty for all.
    """

    column: Count
    codec: Codec
    raw_bytes: Count
    packed_bytes: Count
    dictionary_id: Count = 0
    kept: bytes = b""


class Header(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """A payload's content: ``rows`` rows of the schema with this ``fingerprint``; fields not listed are null."""

    fingerprint: bytes
    rows: Count
    fields: tuple[FieldHeader, ...]


class BallastedHeader(Header, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """The header of a payload with ballast; any header can be read as one."""

    ballast_bytes: Count = 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BallastedHeader)


def most_unpacked_bytes(payload_bytes: int) -> int:
    """Return how many bytes a payload may be unpacked to."""
    return FREE_BYTES + MOST_PER_BYTE * payload_bytes


def ballasted(header: Header) -> Header:
    """Return the header with the ballast that the payload needs for the size that its fields unpack to."""
    raw_bytes = sum(field.raw_bytes for field in header.fields)
    packed_bytes = sum(field.packed_bytes for field in header.fields)
    lacking_bytes = -(-(raw_bytes - FREE_BYTES) // MOST_PER_BYTE) - packed_bytes
    if lacking_bytes <= 0:
        return header
    return BallastedHeader(
        fingerprint=header.fingerprint, rows=header.rows, fields=header.fields, ballast_bytes=lacking_bytes
    )


def join(header: Header, bodies: Iterable[bytes | memoryview]) -> bytes:
    """Return the payload; its bodies are copied once."""
    head = _encoder.encode(header)
    parts: list[bytes | memoryview] = [_PREFIX.pack(_MAGIC, len(head)), head, _padding(len(head))]
    for field, body in zip(header.fields, bodies, strict=True):
        parts += [body, _padding(field.packed_bytes)]
    if isinstance(header, BallastedHeader):
        parts.append(bytes(header.ballast_bytes))
    return b"".join(parts)


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
        header = _decoder.decode(view[_PREFIX.size : at])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError(f"the payload's header is malformed: {error}") from error
    at += len(_padding(header_bytes))
    bodies = []
    for field in header.fields:
        bodies.append(view[at : at + field.packed_bytes])
        at += field.packed_bytes + len(_padding(field.packed_bytes))
    at += header.ballast_bytes
    if at != len(view):
        raise PayloadError(f"the payload has {len(view)} bytes, its header says {at}")
    return header, bodies


def _padding(length_bytes: int) -> bytes:
    return bytes(-length_bytes % _ALIGNMENT)
