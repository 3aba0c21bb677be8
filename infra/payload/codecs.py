"""Packing and unpacking one field's body. Unpacking trusts nothing and never makes more than it was told to."""

from __future__ import annotations

import functools
import zlib

import zstandard

from infra.payload.choose import Codec
from infra.payload.dictionaries import MAX_DICTIONARY_BYTES, NewDictionary, dictionary_id
from infra.payload.errors import PayloadError

GZIP_LEVEL = 6
ZSTD_LEVEL = 3
_GZIP_WBITS = 31
_ZSTD_BLOCK_HEADER_BYTES, _ZSTD_REPEATED, _ZSTD_COMPRESSED = 3, 1, 2
# Blocks that are looked at: twice as many as the largest payload fills, since empty ones would be walked without end.
_ZSTD_BLOCKS_MAX = 2048
_GZIP_LEAST_BYTES = 18
_GZIP_PIECE_BYTES = 1 << 14


class Packer:
    """Packs bodies; keeps its compressors, since making one costs more than packing a short run.

    Not for two threads at once.
    """

    def __init__(self) -> None:
        self._plain = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
        self._with_dictionary: zstandard.ZstdCompressor | None = None

    def use(self, dictionary: NewDictionary) -> None:
        """Take a dictionary for codec ``zstd-dict``."""
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
    """Check a dictionary from outside and return a decompressor that uses it.

    Raises:
        PayloadError: when it is too long, is no zstd dictionary, or its id is not that of its bytes.
    """
    if len(data) > MAX_DICTIONARY_BYTES:
        raise PayloadError(f"a dictionary of {len(data)} bytes is longer than {MAX_DICTIONARY_BYTES}")
    if given_id != dictionary_id(data):
        raise PayloadError(f"dictionary {given_id} does not hold the bytes its id stands for")
    try:
        dictionary = zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_FULLDICT)
        decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)
        # zstandard parses the dictionary at first use only; a broken one must be refused here.
        decompressor.decompress(_empty_frame())
    except (zstandard.ZstdError, ValueError) as error:
        raise PayloadError(f"dictionary {given_id} is no zstd dictionary: {error}") from error
    return decompressor


def unpack_gzip(packed: memoryview, raw_bytes: int) -> memoryview:
    """Return the ``raw_bytes`` that a single gzip member holds, or raise PayloadError."""
    # A member ends with its length; most lies end here, before anything is unpacked.
    if len(packed) < _GZIP_LEAST_BYTES or int.from_bytes(packed[-4:], "little") != raw_bytes:
        raise PayloadError(f"gzip: the member does not hold exactly the {raw_bytes} bytes promised")
    inflater = zlib.decompressobj(wbits=_GZIP_WBITS)
    raw = bytearray(raw_bytes)
    filled = 0
    try:
        # Piece by piece, since zlib would join its blocks in twice the memory.
        for start in range(0, len(packed), _GZIP_PIECE_BYTES):
            # One byte more than there is room for shows a member that holds more.
            piece = inflater.decompress(packed[start : start + _GZIP_PIECE_BYTES], raw_bytes - filled + 1)
            raw[filled : filled + len(piece)] = piece
            filled += len(piece)
            if filled > raw_bytes or inflater.unused_data:
                break
    except zlib.error as error:
        raise PayloadError(f"gzip: {error}") from error
    if filled != raw_bytes or not inflater.eof or inflater.unused_data:
        raise PayloadError(f"gzip: the member does not hold exactly the {raw_bytes} bytes promised")
    return memoryview(raw)


def unpack_zstd(decompressor: zstandard.ZstdDecompressor, packed: memoryview, raw_bytes: int) -> bytes:
    """Return the ``raw_bytes`` that a single zstd frame holds, or raise PayloadError.

    zstandard ignores its output limit when the frame's header declares a size, so that size is compared first; a frame
    without one is refused, for our packer always declares it.
    """
    try:
        declared = zstandard.frame_content_size(packed)
        if declared != raw_bytes:
            raise PayloadError(f"zstd: the frame declares {declared} bytes where {raw_bytes} were promised")
        if zstd_least_bytes(packed, raw_bytes) > raw_bytes:
            raise PayloadError(f"zstd: the frame holds more than the {raw_bytes} bytes promised")
        raw = decompressor.decompress(packed, max_output_size=raw_bytes, allow_extra_data=False)
    except (zstandard.ZstdError, ValueError) as error:
        if isinstance(error, PayloadError):
            raise
        raise PayloadError(f"zstd: {error}") from error
    if len(raw) != raw_bytes:
        raise PayloadError(f"zstd: the frame holds {len(raw)} bytes where {raw_bytes} were promised")
    return raw


def zstd_least_bytes(packed: memoryview, enough: int) -> int:
    """Return how many bytes the first blocks of a zstd frame hold at least, counted no further than past ``enough``.

    Blocks that are stored or repeat one byte say how many they hold (RFC 8878, section 3.1.1.2): that such a frame has
    more than it declares is seen here, before the memory for what it declares is filled.

    Raises:
        ZstdError: this is no frame.
    """
    at, least = zstandard.frame_header_size(packed), 0
    for _ in range(_ZSTD_BLOCKS_MAX):
        if at + _ZSTD_BLOCK_HEADER_BYTES > len(packed) or least > enough:
            break
        head = int.from_bytes(packed[at : at + _ZSTD_BLOCK_HEADER_BYTES], "little")
        last, kind, size = head & 1, head >> 1 & 3, head >> 3
        if kind != _ZSTD_COMPRESSED:
            least += size
        if last:
            break
        at += _ZSTD_BLOCK_HEADER_BYTES + (1 if kind == _ZSTD_REPEATED else size)
    return least


@functools.cache
def _empty_frame() -> bytes:
    return zstandard.ZstdCompressor().compress(b"\0")
