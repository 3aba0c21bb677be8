"""Packs and unpacks one field's body. Unpacking trusts nothing and never exceeds its size limit."""

from __future__ import annotations

import functools
import zlib

import zstandard

from infra.payload.codecs.choose import Codec
from infra.payload.codecs.dictionaries import MAX_DICTIONARY_BYTES, NewDictionary, dictionary_id
from infra.payload.codecs.zstdblocks import why_too_much
from infra.payload.errors import PayloadError

GZIP_LEVEL = 6
ZSTD_LEVEL = 3
_GZIP_WBITS = 31
_GZIP_LEAST_BYTES = 18
_GZIP_PIECE_BYTES = 1 << 14
_GZIP_STEP_BYTES = 1 << 18


class Packer:
    """Packs bodies; keeps its compressors, since creating one costs more than packing a short run.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._plain = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
        self._with_dictionary: zstandard.ZstdCompressor | None = None

    def use(self, dictionary: NewDictionary) -> None:
        """Use a dictionary for codec ``zstd-dict``."""
        digested = zstandard.ZstdCompressionDict(dictionary.data, dict_type=zstandard.DICT_TYPE_FULLDICT)
        digested.precompute_compress(level=ZSTD_LEVEL)
        self._with_dictionary = zstandard.ZstdCompressor(level=ZSTD_LEVEL, dict_data=digested)

    def pack(self, codec: Codec, body: memoryview) -> bytes | memoryview:
        """Return ``body`` packed; ``none`` gives the same memory, not a copy."""
        if codec == "none":
            return body
        if codec == "gzip":
            return zlib.compress(body, GZIP_LEVEL, wbits=_GZIP_WBITS)
        if codec == "zstd":
            return self._plain.compress(body)
        if self._with_dictionary is None:
            raise ValueError("codec zstd-dict needs a trained dictionary first")
        return self._with_dictionary.compress(body)


def dictionary_decompressor(given_id: int, data: bytes) -> zstandard.ZstdDecompressor:
    """Check an untrusted dictionary and return a decompressor that uses it.

    Raises:
        PayloadError: it is too long, is not a zstd dictionary, or its id does not match its bytes.
    """
    if len(data) > MAX_DICTIONARY_BYTES:
        raise PayloadError(f"a dictionary of {len(data)} bytes is longer than {MAX_DICTIONARY_BYTES}")
    if given_id != dictionary_id(data):
        raise PayloadError(f"dictionary {given_id} does not match its id")
    try:
        dictionary = zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_FULLDICT)
        decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)
        # zstandard parses the dictionary only at its first use; a broken one must be refused here.
        decompressor.decompress(_empty_frame())
    except (zstandard.ZstdError, ValueError) as error:
        raise PayloadError(f"dictionary {given_id} is not a zstd dictionary: {error}") from error
    return decompressor


def unpack_gzip(packed: memoryview, raw_bytes: int) -> memoryview:
    """Return the ``raw_bytes`` that a single gzip member holds, or raise PayloadError."""
    lie = f"gzip: the member does not hold exactly the {raw_bytes} bytes promised"
    # A member ends with its length; most false lengths are refused here, before anything is unpacked.
    if len(packed) < _GZIP_LEAST_BYTES or int.from_bytes(packed[-4:], "little") != raw_bytes:
        raise PayloadError(lie)
    inflater = zlib.decompressobj(wbits=_GZIP_WBITS)
    raw = bytearray(raw_bytes)
    filled = 0
    try:
        for start in range(0, len(packed), _GZIP_PIECE_BYTES):
            left: memoryview | bytes = packed[start : start + _GZIP_PIECE_BYTES]
            more = True
            while more:
                # In small steps, since zlib joins the output of one call. A byte too many shows that there is more.
                room = min(_GZIP_STEP_BYTES, raw_bytes - filled + 1)
                piece = inflater.decompress(left, room)
                if filled + len(piece) > raw_bytes:
                    raise PayloadError(lie)
                raw[filled : filled + len(piece)] = piece
                filled += len(piece)
                left, more = inflater.unconsumed_tail, len(piece) == room
            if inflater.unused_data:
                break
    except zlib.error as error:
        raise PayloadError(f"gzip: {error}") from error
    if filled != raw_bytes or not inflater.eof or inflater.unused_data:
        raise PayloadError(lie)
    return memoryview(raw)


def unpack_zstd(decompressor: zstandard.ZstdDecompressor, packed: memoryview, raw_bytes: int) -> bytes:
    """Return the ``raw_bytes`` that a single zstd frame holds, or raise PayloadError.

    zstandard ignores its output limit when the frame's header declares a size, so that size is checked first. A frame
    without a declared size is refused, since our packer always declares it. A frame that would take too long is refused
    as well (see ``zstdblocks``).
    """
    try:
        declared = zstandard.frame_content_size(packed)
        if declared != raw_bytes:
            raise PayloadError(f"zstd: the frame declares {declared} bytes instead of {raw_bytes}")
        too_much = why_too_much(packed, raw_bytes)
        if too_much:
            raise PayloadError(f"zstd: {too_much}")
        raw = decompressor.decompress(packed, max_output_size=raw_bytes, allow_extra_data=False)
    except (zstandard.ZstdError, ValueError) as error:
        if isinstance(error, PayloadError):
            raise
        raise PayloadError(f"zstd: {error}") from error
    if len(raw) != raw_bytes:
        raise PayloadError(f"zstd: the frame holds {len(raw)} bytes instead of {raw_bytes}")
    return raw


@functools.cache
def _empty_frame() -> bytes:
    return zstandard.ZstdCompressor().compress(b"\0")
